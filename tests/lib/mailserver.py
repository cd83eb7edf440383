#!/usr/bin/python3
"""A real mail server (aiosmtpd) for tests: prints its port, then each mail that it takes, as lines of JSON.

    mailserver.py [--host ADDRESS] [--certificate FILE --key FILE] [--user NAME --password WORD] [--busy COUNT]

With a certificate it takes nothing before STARTTLS, with a user nothing before a login; so many recipients at first are
refused with 451. It is run by the Python of Debian, whose package python3-aiosmtpd has the library.
"""
import argparse
import asyncio
import json
import ssl
import subprocess
import sys
import threading

PYTHON = "/usr/bin/python3"


class MailServer:
    """The server as a process, and the mails that it has taken."""

    def __init__(self, *arguments):
        self.arguments = arguments
        self.mails = []

    def __enter__(self):
        self.process = subprocess.Popen([PYTHON, __file__, *map(str, self.arguments)], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the mail server ended with {self.process.wait()}; is python3-aiosmtpd installed?")
        self.port = json.loads(line)["port"]
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        return self

    def read(self):
        for line in self.process.stdout:
            self.mails.append(json.loads(line))

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()


def say(**what):
    print(json.dumps(what), flush=True)


async def serve(flags):
    from aiosmtpd.smtp import SMTP, AuthResult

    class Handler:
        busy = flags.busy

        async def handle_RCPT(self, _server, _session, envelope, address, _options):
            if Handler.busy > 0:
                Handler.busy -= 1
                return "451 come back later"
            envelope.rcpt_tos.append(address)
            return "250 OK"

        async def handle_DATA(self, _server, session, envelope):
            say(sender=envelope.mail_from, to=envelope.rcpt_tos, content=envelope.content.decode("ascii"),
                is_tls=session.ssl is not None, user=(session.auth_data and session.auth_data.login.decode()))
            return "250 taken"

    def authenticate(_server, _session, _envelope, _mechanism, data):
        good = data.login == flags.user.encode() and data.password == flags.password.encode()
        return AuthResult(success=good, auth_data=data)

    options = {}
    if flags.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(flags.certificate, flags.key)
        options = {"tls_context": context, "require_starttls": True}
    if flags.user:
        options |= {"authenticator": authenticate, "auth_required": True, "auth_require_tls": bool(flags.certificate)}
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(Handler(), **options), flags.host, 0)
    say(port=server.sockets[0].getsockname()[1])
    await server.serve_forever()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    for name in ("certificate", "key", "user", "password"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--busy", type=int, default=0)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
