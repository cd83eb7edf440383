#!/usr/bin/env python3
"""Confinement: what Tarn gave up it does not have, what it needs it has, and both stay so while the configuration changes.

    suite.py [--list] [PATTERN...]
"""
import fcntl
import os
import pathlib
import pwd
import signal
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import admin
import harness
import hyperscsi
import iscsi
import scsi
from harness import check, equal, test, wait_for
from tarn import IQN, Tarn, free_port, run

BLOCK = 512
FILTERED = 2            # Seccomp in /proc/PID/status


def lun(id, store):
    return f'[[lun]]\nid = "{id}"\nstore = "{store}"\n'


def target(*ids, portals='"127.0.0.1:{port}"'):
    luns = ", ".join(f'{{ lun = {n}, id = "{id}" }}' for n, id in enumerate(ids))
    return f'[[target]]\nname = "{IQN}"\nportals = [{portals}]\nluns = [{luns}]\n'


def confine(*lines):
    return "[confine]\nroots = [\"disks\"]\n" + "".join(f"{line}\n" for line in lines)


class Confined(Tarn):
    """A Tarn with a directory `disks`, whose file can be changed."""

    def __init__(self, config, **options):
        super().__init__(config=config, **options)
        (self.dir / "disks").mkdir()
        # For those who become another user.
        self.dir.chmod(0o755)

    def reload(self, text):
        """Changes the file and has it applied. Returns the line of the log that tells how it went."""
        text = text.replace("{port}", str(self.port)).replace("{dir}", str(self.dir))
        (self.dir / "tarn.toml").write_text(text)
        before = len(self.answers())
        self.process.send_signal(signal.SIGHUP)
        return wait_for(lambda: self.answers()[before:], 40, "an answer to SIGHUP")[0]

    def answers(self):
        return [line for line in self.log().splitlines() if "configuration applied" in line or "nothing was changed" in line]

    def status(self, field):
        """The values of a field of /proc/PID/status, one for each thread."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        lines = [line for task in tasks for line in (task / "status").read_text().splitlines()]
        return {line.split(":", 1)[1].strip() for line in lines if line.startswith(field + ":")}

    def ready(self):
        """Whether it said that it serves; what it prints comes after it has given up what it gives up."""
        return wait_for(self.has_said, 20, "the banner")


def write_and_read(port, luns):
    with iscsi.Session(port, IQN, timeout_s=10) as session:
        for n in range(luns):
            session.clear_unit_attentions(n)
            data = bytes([n + 1]) * BLOCK
            check(session.command(scsi.write16(3, 1), write=data, lun=n).good, f"WRITE to LUN {n}")
            check(session.command(scsi.synchronize_cache16(), lun=n).good, f"SYNCHRONIZE CACHE of LUN {n}")
            equal(session.command(scsi.read16(3, 1), read=BLOCK, lun=n).data, data, f"READ from LUN {n}")
            check(session.command(scsi.unmap(24), write=scsi.unmap_parameters((0, 8)), lun=n).good, f"UNMAP of LUN {n}")


def no_call_refused(tarn):
    lines = [line for line in tarn.log().splitlines() if line.startswith("confinement:")]
    equal(lines, [], "refused system calls")


@test
def every_store_serves_confined():
    """Memory, files in each cache mode, and null: they serve, flush, unmap and end without one refused system call."""
    stores = ["mem:8M"] + [f"file:disks/{cache}.img?size=8M&cache={cache}" for cache in ("writeback", "writethrough")]
    ids = [f"d{n}" for n in range(len(stores))]
    config = "".join(map(lun, ids, stores)) + lun("n", "null:8M") + target(*ids) + confine()
    with Confined(config) as tarn:
        tarn.ready()
        write_and_read(tarn.port, len(stores))
        equal(tarn.status("Seccomp"), {str(FILTERED)}, "Seccomp of every thread")
        equal(tarn.status("NoNewPrivs"), {"1"}, "NoNewPrivs of every thread")
        no_call_refused(tarn)


@test
def changes_work_confined():
    """Under confinement SIGHUP adds a LUN in the roots, grows it, takes a portal and a user with a secret, and takes all back."""
    base = lun("a", "file:disks/a.img?size=8M")
    with Confined(base + target("a") + confine()) as tarn:
        tarn.secret("u.secret", "0123456789abcdef")
        port = free_port()
        user = '[[user]]\nname = "u"\nsecret_file = "u.secret"\n'
        portals = f'"127.0.0.1:{{port}}", "127.0.0.1:{port}"'
        for text in [base + lun("b", "file:disks/b.img?size=8M") + target("a", "b") + confine(),
                     base + lun("b", "file:disks/b.img?size=16M") + user + target("a", "b", portals=portals) + confine(),
                     base + target("a") + confine()]:
            check("configuration applied" in (line := tarn.reload(text)), line)
            write_and_read(tarn.port, text.count("[[lun]]"))
        no_call_refused(tarn)


@test
def a_store_outside_the_roots_is_refused():
    """A plan with a store outside the roots, also by way of a link, is refused with the roots and the remedy; nothing changes."""
    base = lun("a", "mem:8M")
    with Confined(base + target("a") + confine()) as tarn:
        outside = tarn.dir / "outside.img"
        outside.write_bytes(bytes(1 << 20))
        (tarn.dir / "disks/link.img").symlink_to(outside)
        for store in ["file:outside.img", "file:disks/link.img", "file:new.img?size=1M", "file:disks/../outside.img"]:
            line = tarn.reload(base + lun("b", store) + target("a", "b") + confine())
            for word in ["nothing was changed", "add lun b", "tarn.toml:6", "is outside the roots", str(tarn.dir / "disks"),
                         "confine.roots and restart"]:
                check(word in line, f"{store}: {word!r} is not in: {line}")
        check(not (tarn.dir / "new.img").exists(), "the file was made")
        write_and_read(tarn.port, 1)
    for arguments in (["check"], ["serve", "--state", "{dir}/state", "--config"]):
        tarn = Confined(base + lun("b", "file:outside.img?size=1M") + target("a", "b") + confine())
        tarn.command()
        out = run(*[word.replace("{dir}", str(tarn.dir)) for word in arguments], tarn.dir / "tarn.toml", cwd=tarn.dir)
        check(out.returncode == 2 and "is outside the roots" in out.stderr, f"{arguments}: {out.returncode} {out.stderr}")
        tarn.close()


@test
def a_secret_out_of_reach_is_refused():
    """A secret in a directory that the process cannot read any more is refused with the remedy, not as unreadable."""
    base = lun("a", "mem:8M") + target("a")
    with Confined(base + confine()) as tarn:
        (tarn.dir / "elsewhere").mkdir()
        # Beside the file and below are within reach; the directory of another test is not.
        other = pathlib.Path(str(tarn.dir) + ".other")
        other.mkdir()
        try:
            line = tarn.reload(f'{base}[[user]]\nname = "u"\nsecret_file = "{other}/secret"\n{confine()}')
        finally:
            other.rmdir()
        check("out of reach of the confined process" in line and "nothing was changed" in line, line)


@test
def confinement_itself_is_not_changed():
    """A change of [confine] is accepted and pending: it is read at the start, and what is confined stays so."""
    base = lun("a", "mem:8M") + target("a")
    with Confined(base + confine()) as tarn:
        for text in [base, base + confine("seccomp = false"), base + '[confine]\nroots = ["disks", "/"]\n']:
            tarn.reload(text)
            pending = tarn.api().get("status")["pending"]
            check(pending and all("[confine]" in one for one in pending), pending)
            check("Seccomp:\t2" in (pathlib.Path("/proc") / str(tarn.process.pid) / "status").read_text(), "the filter is gone")


@test
def seccomp_can_be_left_out():
    """With seccomp = false and without roots, threads have no filter, and nobody is told of confinement."""
    with Confined(lun("a", "mem:8M") + target("a") + "[confine]\nseccomp = false\n") as tarn:
        tarn.ready()
        equal(tarn.status("Seccomp"), {"0"}, "Seccomp")
        check("confined" not in tarn.log(), tarn.log())


@test
def root_becomes_the_user():
    """Started as root, it runs as the user, without one capability, keeps its state as that user, and changes work."""
    if os.geteuid() != 0:
        harness.skip("not root")
    user = pwd.getpwnam("nobody")
    base = lun("a", "file:disks/a.img?size=8M")
    with Confined(base + target("a") + confine('user = "nobody"')) as tarn:
        tarn.ready()
        for field, number in [("Uid", user.pw_uid), ("Gid", user.pw_gid)]:
            equal(tarn.status(field), {"\t".join([str(number)] * 4)}, field)
        for field in ("CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb"):
            equal(tarn.status(field), {"0" * 16}, field)
        for path in ("state", "state/identities.toml", "disks/a.img"):
            equal((tarn.dir / path).stat().st_uid, user.pw_uid, f"owner of {path}")
        write_and_read(tarn.port, 1)
        # What comes later must be open to the user itself.
        os.chown(tarn.dir, user.pw_uid, user.pw_gid)
        os.chown(tarn.dir / "disks", user.pw_uid, user.pw_gid)
        line = tarn.reload(base + lun("b", "file:disks/b.img?size=8M") + target("a", "b") + confine('user = "nobody"'))
        check("configuration applied" in line, line)
        write_and_read(tarn.port, 2)
        no_call_refused(tarn)

    def other():
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    tarn = Confined(base + target("a") + confine('user = "root"'))
    out = subprocess.run(tarn.command(), capture_output=True, text=True, timeout=20, preexec_fn=other)
    tarn.close()
    check(out.returncode == 2 and "only root can become user root" in out.stderr, f"{out.returncode} {out.stderr}")


@test
def a_check_reads_secrets_as_the_user():
    """`tarn check` as root finds a secret that the user of confine.user cannot read, and takes one that is the user's."""
    if os.geteuid() != 0:
        harness.skip("not root")
    base = lun("a", "file:disks/a.img?size=8M") + target("a")
    tarn = Confined(base + '[[user]]\nname = "u"\nsecret_file = "{dir}/secret"\n' + confine('user = "nobody"'))
    try:
        file, secret = tarn.dir / "tarn.toml", tarn.dir / "secret"
        file.write_text(tarn.config.replace("{port}", str(tarn.port)).replace("{dir}", str(tarn.dir)))
        secret.write_text("secret-of-twelve-bytes")
        secret.chmod(0o600)
        done = run("check", file)
        check(done.returncode == 2 and "Permission denied" in done.stderr, f"of root: {done}")
        os.chown(secret, pwd.getpwnam("nobody").pw_uid, -1)
        done = run("check", file)
        equal(done.returncode, 0, f"of the user: {done}")
    finally:
        tarn.close()


# CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_NET_BIND_SERVICE (linux/capability.h).
SERVING = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 10


@test
def root_without_a_user_keeps_the_capabilities_of_serving_alone():
    """Started as root without [confine] user, every thread has four capabilities, and what they are for works: a store of
    another user is added by a change, and the configuration file keeps its owner."""
    if os.geteuid() != 0:
        harness.skip("not root")
    user = pwd.getpwnam("nobody")
    base = lun("a", "mem:8M")
    with Confined(base + target("a")) as tarn:
        tarn.ready()
        for field in ("CapPrm", "CapEff"):
            equal(tarn.status(field), {f"{SERVING:016x}"}, field)
        for field in ("CapBnd", "CapInh", "CapAmb"):
            equal(tarn.status(field), {"0" * 16}, field)
        equal(tarn.status("NoNewPrivs"), {"1"}, "NoNewPrivs of every thread")
        theirs = tarn.dir / "disks/theirs.img"
        theirs.write_bytes(bytes(8 << 20))
        theirs.chmod(0o600)
        for path in (theirs, theirs.parent, tarn.dir / "tarn.toml", tarn.dir):
            os.chown(path, user.pw_uid, user.pw_gid)
        line = tarn.reload(base + lun("b", f"file:{theirs}") + target("a", "b"))
        check("configuration applied" in line, line)
        write_and_read(tarn.port, 2)
        tarn.api().put("luns/c", {"id": "c", "store": "mem:8M"})
        status = (tarn.dir / "tarn.toml").stat()
        equal((status.st_uid, status.st_gid), (user.pw_uid, user.pw_gid), "owner of the configuration file")
        no_call_refused(tarn)


PASSWORD = "open sesame"


def group(name, port, *devices):
    """A group of HyperSCSI over UDP."""
    listed = ", ".join(f'{{ id = "{id}", level = "hash" }}' for id in devices)
    return f'[[hyperscsi.group]]\nname = "{name}"\nudp = "127.0.0.1:{port}"\npassword_file = "abc.secret"\ndevice = [{listed}]\n'


def write_and_verify(tarn, name, port, device):
    done = run("bench", "--verify", "--overwrite", "--rw", "mixed", "--bs", "4k,64k", "--iodepth", "8", "--runtime", "1", "--repeat",
               "1", "--password-file", tarn.dir / "abc.secret", f"hyperscsi://{name}/{device}?udp=127.0.0.1:{port}", limit_s=60)
    equal(done.returncode, 0, f"exit code of the bench: {done.stdout}{done.stderr}")


@test(limit_s=120)
def hyperscsi_serves_confined():
    """Groups over UDP serve, come and go under confinement without one refused system call; every thread has the filter."""
    base = lun("a", "file:disks/a.img?size=16M")
    tarn = Confined(base + group("ABC", "{port}", "a") + confine())
    tarn.secret("abc.secret", PASSWORD)
    with tarn:
        port = free_port()
        write_and_verify(tarn, "ABC", tarn.port, "a")
        more = base + lun("b", "file:disks/b.img?size=16M") + group("ABC", "{port}", "a", "b") + group("DEF", port, "b") + confine()
        check("configuration applied" in (line := tarn.reload(more)), line)
        write_and_verify(tarn, "ABC", tarn.port, "b")
        write_and_verify(tarn, "DEF", port, "b")
        check("configuration applied" in (line := tarn.reload(base + group("ABC", "{port}", "a") + confine())), line)
        write_and_verify(tarn, "ABC", tarn.port, "a")
        equal(tarn.status("Seccomp"), {str(FILTERED)}, "Seccomp of every thread")
        no_call_refused(tarn)


@test(limit_s=120)
def hyperscsi_needs_one_right_which_it_gives_up():
    """An ordinary user with CAP_NET_RAW alone, as the drop-in of the service grants it, serves frames of an interface, confined.
    Then no thread has the right; another interface waits for a restart."""
    with hyperscsi.wire_of_root() as inside:
        hyperscsi.one_right_is_enough(inside)


@test(limit_s=120)
def hyperscsi_names_an_interface_that_cannot_be_used():
    """A plan with an interface that is not there, or is down, is refused with the remedy. What is open is served all the while, and
    groups over UDP are added."""
    with hyperscsi.wire_of_root() as inside, hyperscsi.Wired(inside) as wired:
        tarn = wired.tarn
        subprocess.run([*inside, "ip", "link", "add", "hs2", "type", "veth", "peer", "name", "hs3"], check=True)
        for name, why in [("nowhere0", "there is no interface"), ("hs2", "ip link set hs2 up")]:
            effects, reason = wired.plan(hyperscsi.group_at(name, "DEF"))
            check(effects == {"refused"} and why in reason, f"{name}: {effects} {reason}")
        wired.apply(group("UDP", free_port(), "a").replace("abc.secret", "{dir}/abc.secret"))
        wired.serves("ABC", hyperscsi.USED)
        no_call_refused(tarn)


@test
def the_rights_of_the_start_end_with_it():
    """Once it is ready, every thread has the filter that takes rings, unix sockets and filters away; a reload is still told to
    the service manager."""
    base = lun("a", "mem:8M") + target("a")
    tarn = Confined(base)
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tarn.dir / "notify"))
    manager.settimeout(20)
    environment = tarn.environment
    tarn.environment = lambda: {**environment(), "NOTIFY_SOCKET": str(tarn.dir / "notify")}
    with manager, tarn:
        while "READY=1" not in manager.recv(4096).decode():
            pass
        equal(tarn.status("Seccomp_filters"), {"3"}, "filters of every thread")
        check("configuration applied" in (line := tarn.reload(base + lun("b", "mem:8M"))), line)
        told = manager.recv(4096).decode()
        check(told.startswith("RELOADING=1\nMONOTONIC_USEC="), told)
        told = manager.recv(4096).decode()
        check("READY=1" in told and "luns 2" in told, told)
        equal(tarn.status("Seccomp_filters"), {"3"}, "filters of every thread after a change")
        write_and_read(tarn.port, 1)
        no_call_refused(tarn)


@test
def mistakes_are_told_before_anything_starts():
    """A user, group or root that is not there ends the start with exit code 2, place and remedy."""
    for lines, word in [('user = "no-such-user"', 'tarn.toml:9: confine.user: there is no user "no-such-user" in /etc/passwd; add it'),
                        ('user = "root"\ngroup = "no-such"', 'there is no group "no-such" in /etc/group; add it'),
                        ('roots = ["nowhere"]', 'tarn.toml:9: confine.roots[0]: cannot look at root')]:
        tarn = Confined(lun("a", "mem:8M") + target("a") + f"[confine]\n{lines}\n")
        command = tarn.command()
        out = run(*command[1:], cwd=tarn.dir)
        tarn.close()
        check(out.returncode == 2 and word in out.stderr and "panicked" not in out.stderr, f"{lines}: {out.returncode} {out.stderr}")


# Sockets of a service manager.

PASS_ON = """
import os, sys
# What is open at 3 and on was put there by who started this.
os.environ["LISTEN_FDS"], os.environ["LISTEN_PID"] = sys.argv[1], str(os.getpid())
os.execv(sys.argv[2], sys.argv[2:])
"""


class Activated(Confined):
    """A Tarn that is started with sockets, as a service manager does."""

    def __init__(self, config, sockets, **options):
        super().__init__(config, **options)
        self.sockets = sockets

    def start(self):
        def place():
            # Out of the way first: a socket may be at 3 already.
            high = [fcntl.fcntl(s.fileno(), fcntl.F_DUPFD, 100) for s in self.sockets]
            for n, number in enumerate(high):
                os.dup2(number, 3 + n)
        with open(self.log_path, "ab") as log, open(self.out_path, "ab") as out:
            self.said_before = out.tell()
            words = [sys.executable, "-c", PASS_ON, str(len(self.sockets)), *self.command()]
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=log, cwd=self.dir,
                                            env=self.environment(), preexec_fn=place, close_fds=False)
        self.ready()
        return self


def listening(address=("127.0.0.1", 0)):
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(address)
    made.listen(16)
    return made


@test
def a_server_of_nbd_takes_over_its_unix_socket():
    """An inherited unix socket serves the `[[nbd]]` of its path, is left in place at the end, and one that nobody has is warned
    of."""
    with tempfile.TemporaryDirectory() as directory:
        used, unused = pathlib.Path(directory) / "used", pathlib.Path(directory) / "unused"
        made = []
        for path in (used, unused):
            made.append(socket.socket(socket.AF_UNIX))
            made[-1].bind(str(path))
            made[-1].listen(16)
        section = f'[[nbd]]\nsocket = "{used}"\nluns = ["a"]\n'
        with Activated(lun("a", "mem:8M") + target("a") + section + confine(), made) as tarn:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(used))
                equal(client.recv(8), b"NBDMAGIC", "greeting")
            tarn.await_log(str(unused), "no [[nbd]] has this socket")
        check(used.exists(), "the socket of the service manager stays")
        for one in made:
            one.close()


@test
def a_unix_socket_works_in_confinement():
    """A unix socket for clients of NBD is served and removed at the end. Another one is refused with the remedy, unless system calls
    are not confined; then one can be made within the roots."""
    section = '[[nbd]]\nsocket = "{dir}/nbd.sock"\nluns = ["a"]\n'
    def greets(path):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            equal(client.recv(8), b"NBDMAGIC", "greeting")
    base = lun("a", "mem:8M") + target("a")
    with Confined(base + section + confine()) as tarn:
        text = tarn.api().get("config")["text"]
        answer = tarn.api().ask("PUT", "config", {"text": text.replace("nbd.sock", "other.sock")})
        check(answer.status >= 400 and "restart it" in str(answer.body), f"{answer.status} {answer.body}")
        greets(tarn.dir / "nbd.sock")
        equal(tarn.terminate(), 0, "exit code")
        check(not (tarn.dir / "nbd.sock").exists(), "gone at the end")
        tarn.start()
    with Confined(base + section + confine("seccomp = false")) as tarn:
        text = tarn.api().get("config")["text"]
        tarn.api().put("config", {"text": text.replace("nbd.sock", "other.sock")})
        greets(tarn.dir / "other.sock")
        check(not (tarn.dir / "nbd.sock").exists(), "the first is gone")


@test
def a_portal_takes_over_the_socket_of_its_address():
    """An inherited socket serves its portal, another portal is bound beside it, an address nobody has is warned of; a portal
    that goes and comes back has its socket again."""
    with listening() as taken, listening() as unused:
        port, idle = taken.getsockname()[1], unused.getsockname()[1]
        both = target("a", portals=f'"127.0.0.1:{port}", "127.0.0.1:{{port}}"')
        alone = target("a")
        with Activated(lun("a", "mem:8M") + both + confine(), [taken, unused]) as tarn:
            write_and_read(port, 1)
            write_and_read(tarn.port, 1)
            tarn.await_log(f"127.0.0.1:{idle}", "no portal has this socket")
            check(f"127.0.0.1:{port}" not in tarn.log(), "the socket that is used was warned of")
            for text in (alone, both):
                line = tarn.reload(lun("a", "mem:8M") + text + confine())
                check("configuration applied" in line, line)
            write_and_read(port, 1)


@test
def a_low_port_needs_no_right_if_it_is_passed_on():
    """As an ordinary user, a portal below 1024 is served over an inherited socket, and refused without one."""
    if os.geteuid() != 0:
        harness.skip("not root, who has to bind the port")
    user = pwd.getpwnam("nobody")
    port = next(p for p in range(700, 1000) if not in_use(p))
    config = lun("a", "mem:8M") + target("a", portals=f'"127.0.0.1:{port}"') + confine('user = "nobody"')
    with listening(("127.0.0.1", port)) as low, Activated(config, [low]) as tarn:
        equal(tarn.status("Uid"), {"\t".join([str(user.pw_uid)] * 4)}, "Uid")
        write_and_read(port, 1)


def in_use(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


@test
def what_is_no_listening_socket_is_refused():
    """A pipe, or a socket that does not listen, ends the start with exit code 2 and says which descriptor it is."""
    for make in (lambda: os.fdopen(os.open("/dev/null", os.O_RDONLY)), socket.socket):
        with make() as wrong:
            tarn = Activated(lun("a", "mem:8M") + target("a") + confine(), [wrong])
            tarn.ready = lambda: None
            try:
                tarn.start()
                equal(tarn.process.wait(20), 2, "exit code")
                check("descriptor 3 is no socket that listens" in tarn.log(), tarn.log())
            finally:
                tarn.close()


if __name__ == "__main__":
    harness.main()
