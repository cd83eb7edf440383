"""Runs the tarn program for a test: on free ports, in a directory of its own, watched until its end."""
import contextlib
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import admin
import harness

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("TARN_BIN") or ROOT / "target/release/tarn").absolute()
IQN = "iqn.2026-11.example.tarn:test"
PORT_MIN = 10_000
START_LIMIT_S = 20
STOP_LIMIT_S = 15


def free_ports(count):
    """Different TCP ports of the loopback address that nobody uses now, and that the kernel gives to no connection.

    By chance, so that suites beside each other do not find the same; below those of connections, of which suites open
    thousands: a daemon that starts again would find its port taken.
    """
    ephemeral = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(1000):
            probe = stack.enter_context(socket.socket())
            port = random.randrange(PORT_MIN, max(ephemeral, PORT_MIN + 1000))
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))     # and held until all are known
                found.append(port)
            if len(found) == count:
                return found
    raise harness.Failure(f"not {count} free ports from {PORT_MIN} to {ephemeral}")


def free_port():
    return free_ports(1)[0]


def listens(port, host="127.0.0.1"):
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError:
        return False
    return True


def run(*arguments, limit_s=20, cwd=None):
    """Runs tarn to its end: for errors at the start. Returns the finished process with its output as text."""
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=limit_s, cwd=cwd,
                          stdin=subprocess.DEVNULL)


def refusal(*arguments, limit_s=20):
    """What `tarn serve` says against a configuration: the one line that ends its start with exit code 2, or the one that says why a
    LUN is not ready while the others are served."""
    with subprocess.Popen([BINARY, "serve", *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          stdin=subprocess.DEVNULL) as process:
        timer = threading.Timer(limit_s, process.kill)
        timer.start()
        lines = []
        for line in process.stderr:
            if "a lun is not ready" in line:
                process.kill()
                return line
            lines.append(line)
        timer.cancel()
    harness.equal(process.returncode, 2, f"exit code; {lines}")
    lines = [line for line in lines if "warn" not in line.lower()]
    harness.equal(len(lines), 1, f"lines; {lines}")
    return lines[0]


def lun_section(id, store):
    """A section [[lun]]."""
    return f'[[lun]]\nid = "{id}"\nstore = "{store}"\n'


def user_section(name, file="{dir}/secret"):
    """A section [[user]]."""
    return f'[[user]]\nname = "{name}"\nsecret_file = "{file}"\n'


def target_section(*luns, name=IQN, auth=None, keys=""):
    """A section [[target]] at {port} that exports these units as LUN 0, 1, ...; `keys` are more of its lines."""
    entries = ", ".join(f'{{ lun = {number}, id = "{id}" }}' for number, id in enumerate(luns))
    keys += f'auth = ["{auth}"]\n' if auth else ""
    return f'[[target]]\nname = "{name}"\nportals = ["127.0.0.1:{{port}}"]\nluns = [{entries}]\n{keys}'


def many_luns(count, size="16M", limits=""):
    """The text of a configuration whose one target has `count` memory disks as LUN 0, 1, ...

    `limits` are lines of the section of that name.
    """
    units = "".join(f'[[lun]]\nid = "disk{n}"\nstore = "mem:{size}"\n' for n in range(count))
    luns = "".join(f'    {{ lun = {n}, id = "disk{n}" }},\n' for n in range(count))
    return f'{units}[[target]]\nname = "{IQN}"\nportals = ["127.0.0.1:{{port}}"]\nluns = [\n{luns}]\n[limits]\n{limits}\n'


def raise_descriptor_limit(wanted):
    """Lets this process and those it starts have `wanted` open files, or as many as the system allows. Returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
            return wanted
        except (ValueError, OSError):
            wanted = hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    return max(soft, wanted)


class Tarn:
    """One tarn process.

    Either `stores` become LUN 0, 1, ... of the target IQN, or `config` is the text of a configuration file, in which
    {port}, {port2} and {dir} are filled in. As a context manager it starts, and at the end must stop with exit code 0.
    """

    def __init__(self, *stores, config=None, arguments=(), prefix=(), check_exit=True):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tarn-test."))
        self.port, self.port2 = free_ports(2)
        self.stores, self.config = stores, config
        self.arguments, self.prefix = list(arguments), list(prefix)
        self.check_exit = check_exit
        self.process = None
        self.start_seconds = None       # from the process to the first accepted connection, to some 20 ms
        self.log_path = self.dir / "log"
        self.out_path = self.dir / "out"
        self.socket = self.dir / "tarn.sock"

    def command(self):
        state = ["--state", str(self.dir / "state")]
        if self.config is not None:
            text = self.config.replace("{port}", str(self.port)).replace("{port2}", str(self.port2))
            (self.dir / "tarn.toml").write_text(text.replace("{dir}", str(self.dir)))
            return [str(BINARY), "serve", "--config", str(self.dir / "tarn.toml"), *state, *self.arguments]
        stores = [str(s).replace("{dir}", str(self.dir)) for s in self.stores]
        return [str(BINARY), "serve", "--listen", f"127.0.0.1:{self.port}", "--target", IQN, *state,
                *self.arguments, *stores]

    def environment(self):
        """Its own socket for the administration: many daemons run here at once."""
        return {**os.environ, "TARN_SOCKET": str(self.socket)}

    def api(self, **options):
        """Its administration, over the socket."""
        return admin.Api(self.socket, **options)

    def session_id(self, session):
        """By which administrators know a session, which its initiator knows by TSIH."""
        sessions = self.api().get("sessions")
        return next(one["id"] for one in sessions if one["transport"].get("iscsi", {}).get("tsih") == session.tsih)

    def secret(self, name, text):
        """Puts a secret into the directory of the configuration, readable by its owner alone."""
        path = self.dir / name
        path.touch(mode=0o600)
        path.write_text(text + "\n")

    def begin(self):
        """Starts the process."""
        with open(self.log_path, "ab") as log, open(self.out_path, "ab") as out:
            self.said_before = out.tell()
            self.process = subprocess.Popen([*self.prefix, *self.command()], stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=log, cwd=self.dir, env=self.environment())

    def start(self):
        """Starts the process and returns when it is ready."""
        self.begin()
        begin = time.monotonic()
        end = begin + START_LIMIT_S
        while not self.ready():
            if self.process.poll() is not None:
                raise harness.Failure(f"tarn ended with {self.process.returncode} at its start:\n{self.log_tail()}")
            if time.monotonic() > end:
                self.kill()
                raise harness.Failure(f"tarn does not serve within {START_LIMIT_S} s:\n{self.log_tail()}")
            time.sleep(0.02)
        self.start_seconds = time.monotonic() - begin
        return self

    def ready(self):
        """It can be asked for what the test is about. It has said so itself: the port may still be open from the Tarn before
        it, whose guardian closes it a moment after the end."""
        return self.has_said() and listens(self.port)

    def administers(self):
        """Its administration has answered: that listens before the portals do, and answers when everything serves."""
        if not (listens(self.port2) and self.socket.exists()):
            return False
        self.api().ask("GET", "/readyz")
        return True

    def has_said(self):
        """This process has printed what it serves, which it does when all of it works, the administration too."""
        return self.out_path.stat().st_size > self.said_before

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def terminate(self, limit_s=STOP_LIMIT_S):
        """Asks it to end (SIGTERM); returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise harness.Failure(f"tarn does not end within {limit_s} s of SIGTERM:\n{self.log_tail()}") from None

    def kill(self):
        """Ends it as a crash would. Returns when the kernel has taken its sockets down, which it does in the background."""
        if self.alive():
            self.process.kill()
            self.process.wait()
            harness.wait_for(lambda: not listens(self.port), 10, "the port of the killed process is free")

    def close(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind, _value, _trace):
        try:
            if kind is not None:
                print(f"         log of tarn ends with:\n{self.log_tail(15)}", flush=True)
            elif self.check_exit:
                harness.check(self.alive(), f"tarn ended by itself:\n{self.log_tail()}")
                code = self.terminate()
                harness.check(code == 0, f"exit code after SIGTERM: {code}\n{self.log_tail()}")
                self.check_log()
        finally:
            self.close()

    # What it says and what it uses.

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def await_log(self, *words):
        """Waits for a line of the log with all of these words; lines come a little later than what they tell of."""
        def has_line():
            return any(all(word in line for word in words) for line in self.log().splitlines())
        harness.wait_for(has_line, 10, f"a line of the log with {' and '.join(map(repr, words))}")

    def out(self):
        return self.out_path.read_text(errors="replace") if self.out_path.exists() else ""

    def log_tail(self, lines=30):
        return "\n".join(f"           {line}" for line in self.log().splitlines()[-lines:])

    def check_log(self):
        for line in self.log().splitlines():
            harness.check("panicked at" not in line, f"tarn panicked: {line}")
            harness.check(not line.startswith("confinement: "), f"the filter lacks a call: {line}")

    def url(self, lun=0, iqn=IQN, port=None, user=""):
        """The libiscsi address of a LUN; `user` is "name%secret"."""
        return f"iscsi://{user + '@' if user else ''}127.0.0.1:{port or self.port}/{iqn}/{lun}"

    def _proc(self, name):
        return pathlib.Path(f"/proc/{self.process.pid}/{name}").read_text()

    def _memory_bytes(self, field):
        line = next(l for l in self._proc("status").splitlines() if l.startswith(field + ":"))
        return int(line.split()[1]) * 1024

    def rss_bytes(self):
        """All resident memory: with the buffer pools, and with a `mem:` store as far as it was written."""
        return self._memory_bytes("VmRSS")

    def heap_bytes(self):
        """Resident memory without files and shared mappings: what sessions and tasks cost beside the pools."""
        return self._memory_bytes("RssAnon")

    def cpu_seconds(self):
        fields = self._proc("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def waits_in(self, function):
        """Its first thread waits in this function of the kernel."""
        return function in self._proc("wchan")

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))
