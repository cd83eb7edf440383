"""Who may do what: before login, after login, through a read-only view, as operator."""
import json
import os

import admin
import faultfs
from faultfs import FaultFs
from harness import check, equal, test
from tarn import IQN, Tarn, listens

# C6

OPERATED = """
[admin]
listen = ["127.0.0.1:{port2}"]
tls = false
[[lun]]
id = "disk"
store = "mem:16M"
[[user]]
name = "alice"
secret_file = "alice.secret"
[[target]]
name = "%s"
portals = ["127.0.0.1:{port}"]
luns = [{ lun = 0, id = "disk" }]
auth = ["alice"]
""" % IQN


class Operated(Tarn):
    """A Tarn with the user alice, whose administration listens at `port2` too."""

    def __init__(self, more=""):
        super().__init__(config=OPERATED + more)
        self.secret("alice.secret", "the secret of alice")

    def ready(self):
        return listens(self.port2) and self.socket.exists()

    def operator(self):
        made = self.api().post("tokens", {"name": "op", "role": "operator"})
        return admin.Api(address=("127.0.0.1", self.port2), plain=True, token=made["token"])


class WatchedFs(FaultFs):
    """Counts every request of the kernel that names the file or opens it."""

    def _handle(self, opcode, node, body):
        if opcode in (faultfs.LOOKUP, faultfs.OPEN):
            self.looks = getattr(self, "looks", 0) + 1
        return super()._handle(opcode, node, body)


def answer_of(api, text):
    """What a plan of this document is answered: the status and the body."""
    answer = api.ask("POST", "plan", {"text": text})
    return answer.status, answer.body


def user(name, path):
    return f'[[user]]\nname = "{name}"\nsecret_file = "{path}"\n'


@test
def a_plan_below_admin_says_nothing_of_a_path_it_names():
    """C6: whatever lies at a path, an operator's plan that names it as a secret is answered the same; an admin's plan tells."""
    with Operated() as tarn:
        operator, probed = tarn.operator(), tarn.dir / "probed"
        text = tarn.api().get("config")["text"]

        def nothing():
            pass

        def held(content, mode):
            def make():
                probed.write_bytes(content)
                probed.chmod(mode)
            return make
        seen = {}
        for what, make in [("nothing", nothing), ("a directory", probed.mkdir), ("a pipe", lambda: os.mkfifo(probed)),
                           ("a file that others may read", held(b"twelve bytes", 0o644)), ("too short", held(b"short", 0o600)),
                           ("a secret", held(b"some other secret", 0o600)), ("that of alice", held(b"the secret of alice\n", 0o600))]:
            make()
            for which, document in [("a new user", text + user("mallory", probed)),
                                    ("another file of alice", text.replace('"alice.secret"', f'"{probed}"')),
                                    ("a mutual secret", text + user("bob", tarn.dir / "alice.secret")
                                     + f'mutual = {{ name = "t", secret_file = "{probed}" }}\n')]:
                seen.setdefault(which, {})[what] = answer_of(operator, document)
            if probed.is_dir():
                probed.rmdir()
            elif what != "nothing":
                probed.unlink()
        for which, answers in seen.items():
            equal(len(set(answers.values())), 1, f"different answers to an operator for {which}: {answers}")
            status, body = answers["nothing"]
            equal(status, 200, f"{which}: {body}")
            check("no file was looked at" in " ".join(json.loads(body)["warnings"]), f"{which}: {body}")
        # Who may read the daemon's files is told what is wrong with one.
        status, body = answer_of(tarn.api(), text + user("mallory", probed))
        check(status >= 400 and b"cannot read secret file" in body, f"admin: {status} {body}")
        equal(tarn.api().get("config")["revision"], 1, "revision")


@test
def a_plan_below_admin_touches_no_file():
    """C6: an operator's plan that names secrets and stores on a file system makes no request to it, an admin's plan does."""
    for more in ("", '[confine]\nroots = ["."]\n'):
        with WatchedFs(1 << 20) as fs, Operated(more) as tarn:
            operator, text = tarn.operator(), tarn.api().get("config")["text"]
            fs.looks = 0
            document = text + user("mallory", fs.path) + f'[[lun]]\nid = "x"\nstore = "file:{fs.path}"\n'
            status, body = answer_of(operator, document)
            equal((status, fs.looks), (200, 0), f"answer to an operator and requests to the file system: {body}")
            answer_of(tarn.api(), document)
            check(fs.looks > 0, "an admin's plan does not look at the file either: this test shows nothing")


@test
def an_operator_cannot_compare_secrets():
    """C6: whether two users have one secret is no concern of an operator: their plans do not differ by it."""
    with Operated() as tarn:
        operator, text = tarn.operator(), tarn.api().get("config")["text"]
        answers = []
        for secret in ("the secret of alice", "the secret of nobody"):
            tarn.secret("guess.secret", secret)
            mutual = 'secret_file = "alice.secret"\nmutual = { name = "t", secret_file = "guess.secret" }\n'
            answers.append([answer_of(operator, text.replace("alice.secret", "guess.secret")),
                            answer_of(operator, text.replace('secret_file = "alice.secret"\n', mutual))])
            (tarn.dir / "guess.secret").unlink()
        equal(answers[0], answers[1], "plans with a right and with a wrong guess")
