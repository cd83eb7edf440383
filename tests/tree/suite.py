#!/usr/bin/env python3
"""`tarn mount`: a real mount over a real daemon. All can be read, what can be written takes effect, mistakes are told, and
neither a daemon that dies or hangs nor an end in the middle leaves anything behind.

    suite.py [--list] [PATTERN...]
"""
import contextlib
import errno
import os
import pathlib
import signal
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
import iscsi
import scsi
from harness import check, equal, measured, skip, test, wait_for
from reflinks import file_system
from tarn import BINARY, IQN, Tarn, many_luns, run, target_section

DEVICE = "/dev/fuse"
MIB = 1 << 20
MANY = 1000
OPEN_MAX = 256
VALUE_BYTES_MAX = 64 * 1024
INITIATOR = "iqn.2026-11.example.tarn:tester"
FILES_OF_A_LUN = {"id", "store", "kind", "type", "size", "block_size", "readonly", "cache", "thin", "serial", "naa", "owner", "medium",
                  "prevented_by", "reservations", "served_by", "shown_by"}

CONFIG = f"""
[[lun]]
id = "memory"
store = "mem:16M"
[[lun]]
id = "image"
store = "file:{{dir}}/disk.img?size=16M"
serial = "TREE1"
[[group]]
id = "lab"
initiators = ["{INITIATOR}", "192.0.2.0/24"]
[[hyperscsi.group]]
name = "ABC"
udp = "127.0.0.1:{{port2}}"
open = true
device = [{{ id = "memory", level = "crc" }}]
[[user]]
name = "alice"
secret_file = "{{dir}}/alice.secret"
[[target]]
name = "{IQN}"
portals = ["127.0.0.1:{{port}}"]
luns = [{{ lun = 0, id = "memory" }}, {{ lun = 5, id = "image", groups = ["lab"], readonly = true }}]
"""

SECTIONS = f"""
[[store]]
id = "left"
store = "mem:8M"
[[store]]
id = "right"
store = "mem:8M"
[[store]]
id = "spare"
store = "mem:8M"
[[lun]]
id = "wide"
store = "stripe:left,right?chunk=64k"
[[lun]]
id = "plain"
store = "mem:4M"
[[nbd]]
socket = "{{dir}}/nbd.sock"
luns = ["plain"]
[[quota]]
owner = "alice"
used = "1G"
[[target]]
name = "{IQN}"
portals = ["127.0.0.1:{{port}}"]
luns = [{{ lun = 0, id = "wide" }}, {{ lun = 1, id = "plain" }}]
"""


class Mount:
    """`tarn mount` on a directory of its own, over the socket of a daemon."""

    def __init__(self, tarn):
        self.tarn, self.dir = tarn, tarn.dir / "tree"
        self.process = None

    def __enter__(self):
        if not os.access(DEVICE, os.R_OK | os.W_OK):
            skip(f"{DEVICE} is missing, or not for this user")
        self.dir.mkdir(exist_ok=True)
        self.process = subprocess.Popen([BINARY, "mount", self.dir, "--socket", self.tarn.socket], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        line = self.process.stdout.readline()
        check(" shows the daemon at " in line, f"tarn mount says: {line}")
        check(self.is_mounted(), "it is mounted")
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        if self.is_mounted():
            subprocess.run(["fusermount3", "-u", "-z", self.dir], check=False)

    def is_mounted(self):
        # `fuse` for root, `fuse.tarn` by way of fusermount3.
        return f" {self.dir} fuse" in pathlib.Path("/proc/mounts").read_text()

    def path(self, path):
        return self.dir / path

    def read(self, path):
        return self.path(path).read_text()

    def write(self, path, text):
        """One write, as `echo` does it."""
        descriptor = os.open(self.path(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            data = text if isinstance(text, bytes) else text.encode()
            equal(os.write(descriptor, data), len(data), f"bytes written to {path}")
        finally:
            os.close(descriptor)

    def end(self, number=signal.SIGTERM):
        """Asks it to end; returns what it said when it did."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self):
        said, _ = self.process.communicate(timeout=20)
        equal(self.process.returncode, 0, f"exit code of tarn mount, which says: {said}")
        check(not self.is_mounted(), "nothing is mounted any more")
        equal(os.listdir(self.dir), [], "what is in the directory")


@contextlib.contextmanager
def mounted(config=CONFIG, check_exit=True):
    """A daemon, the tree on it."""
    tarn = Tarn(config=config, check_exit=check_exit)
    tarn.secret("alice.secret", "correct horse battery")
    with tarn, Mount(tarn) as tree:
        yield tarn, tree


def fails(number, what, action):
    """The action fails with this error number."""
    try:
        action()
    except OSError as error:
        equal(errno.errorcode[error.errno], errno.errorcode[number], what)
        return
    raise harness.Failure(f"{what}: it did not fail")


def walk(tree):
    """Reads all that can be reached; returns path -> text, and the paths of links."""
    texts, links = {}, {}

    def stop(error):
        raise error
    for where, directories, files in os.walk(tree.dir, onerror=stop):
        for name in directories + files:
            path = pathlib.Path(where) / name
            inside = str(path.relative_to(tree.dir))
            if path.is_symlink():
                links[inside] = os.readlink(path)
                check(path.exists(), f"{inside} leads nowhere")
            elif name in files:
                texts[inside] = path.read_text()
    return texts, links


@test
def everything_is_listed_and_can_be_read():
    """Every file under every directory opens and reads; texts end with a newline or are empty; links lead somewhere."""
    with mounted() as (tarn, tree), iscsi.Session(tarn.port, IQN):
        texts, links = walk(tree)
        for path, text in texts.items():
            check(not text or text.endswith("\n"), f"{path} ends with {text[-10:]!r}")
        equal({pathlib.PurePath(path).name for path in texts if path.startswith("luns/image/") and path.count("/") == 2},
              FILES_OF_A_LUN, "files of a unit")
        equal(links[f"targets/{IQN}/luns/5"], "../../../luns/image", "link of LUN 5")
        equal(texts["luns/image/size"], f"{16 * MIB}\n", "size")
        equal(texts["luns/image/serial"], "TREE1\n", "serial")
        equal(texts["luns/image/shown_by"], f"{IQN} 5 ro lab\n", "who shows it")
        equal(texts["luns/memory/served_by"], f"hyperscsi rw ABC at udp:127.0.0.1:{tarn.port2}\n", "who serves it")
        equal(texts["groups/lab/initiators"], f"{INITIATOR}\n192.0.2.0/24\n", "initiators")
        check("correct horse" not in "".join(texts.values()), "a secret is in the tree")
        equal(texts["last_error"], "", "last problem")
        equal(texts["config"], (tarn.dir / "tarn.toml").read_text(), "configuration")
        session = os.listdir(tree.path("sessions"))[0]
        equal(texts[f"sessions/{session}/initiator"], f"{INITIATOR}\n", "initiator")
        equal(links[f"targets/{IQN}/sessions/{session}"], f"../../../sessions/{session}", "link of the session")
        place = f"udp:127.0.0.1:{tarn.port2}"
        grouped = f"hyperscsi/ABC at {place}/"
        equal([texts[grouped + name] for name in ["name", "place", "password", "password_file", "devices"]],
              ["ABC\n", f"{place}\n", "none\n", "", "memory crc rw\n"], "group of HyperSCSI")
        equal(os.listdir(tree.path(grouped + "sessions")), [], "its sessions")
        tree.write(grouped + "profile", "wireless\n")
        equal(tree.read(grouped + "profile"), "wireless\n", "profile")
        told = {line.split()[0] for line in texts["help"].splitlines()}
        known = {"luns/image/": "luns/ID/", "luns/memory/": "luns/ID/", f"targets/{IQN}/": "targets/NAME/",
                 f"sessions/{session}/": "sessions/ID/", "groups/lab/": "groups/ID/", "users/alice/": "users/NAME/",
                 grouped: "hyperscsi/NAME/"}
        for path in texts:
            start = next((start for start in known if path.startswith(start)), "")
            check(known.get(start, "") + path[len(start):] in told, f"help has no {path}")
        measured(f"{len(texts)} files, {len(links)} links")


@test
def programs_of_the_shell_work_on_it():
    """find, cat, grep, tail, stat and test see what is there."""
    with mounted() as (_, tree):
        def shell(line):
            return subprocess.run(["bash", "-euc", line], cwd=tree.dir, capture_output=True, text=True, timeout=30)
        equal(shell("cat luns/*/size").stdout, f"{16 * MIB}\n" * 2, "cat")
        equal(shell("grep -rl TREE1 luns").stdout, "luns/image/serial\n", "grep")
        equal(shell("tail -n 1 groups/lab/initiators").stdout, "192.0.2.0/24\n", "tail")
        equal(shell("wc -c < luns/image/serial").stdout, "6\n", "wc")
        found = shell("find . -type f -exec cat {} + | wc -l; find . -type f -perm -u+w | sort")
        equal(found.stderr, "", "what find complains of")
        lines = found.stdout.splitlines()[1:]
        of_groups = [line for line in lines if line.startswith("./hyperscsi/")]
        equal([line.rsplit("/", 1)[1] for line in of_groups], ["profile", "retransmit", "user"], "what can be written of a group")
        equal([line for line in lines if line not in of_groups], sorted(f"./{path}" for path in (
            "groups/lab/initiators", "luns/image/id", "luns/image/medium", "luns/image/owner", "luns/image/size", "luns/memory/id",
            "luns/memory/medium", "luns/memory/owner", "luns/memory/size", f"targets/{IQN}/alias")), "what can be written")
        equal(shell("test ! -s last_error; echo x > luns/image/size || test -s last_error").returncode, 0, "test -s")


@test
def what_is_written_takes_effect():
    """Size, alias, id and initiators: the daemon has it, the tree shows it at once, initiators see it."""
    with mounted() as (tarn, tree), iscsi.Session(tarn.port, IQN) as session:
        session.clear_unit_attentions(5)
        revision = int(tree.read("revision"))
        tree.write("luns/image/size", "32M\n")
        equal(tree.read("luns/image/size"), f"{32 * MIB}\n", "size in the tree")
        session.clear_unit_attentions(5)
        capacity = session.command(scsi.read_capacity16(), read=32, lun=5)
        equal(int.from_bytes(capacity.data[:8], "big"), 32 * MIB // 512 - 1, "last block for the initiator")
        tree.write(f"targets/{IQN}/alias", "the disks\n")
        equal(tree.read(f"targets/{IQN}/alias"), "the disks\n", "alias")
        check("portals = [" in tree.read("config"), "the portals are as they were written")
        tree.write(f"targets/{IQN}/alias", "\n")
        equal(tree.read(f"targets/{IQN}/alias"), "", "alias that was taken away")
        check("alias" not in tree.read("config"), "the alias is gone from the configuration")
        tree.write("groups/lab/initiators", "iqn.2026-11.example.tarn:other\n198.51.100.0/24\n")
        equal(tree.read("groups/lab/initiators"), "iqn.2026-11.example.tarn:other\n198.51.100.0/24\n", "initiators")
        tree.write("luns/image/id", "picture\n")
        equal(sorted(os.listdir(tree.path("luns"))), ["memory", "picture"], "units")
        equal(os.readlink(tree.path(f"targets/{IQN}/luns/5")), "../../../luns/picture", "link of LUN 5")
        equal(tree.read("luns/picture/serial"), "TREE1\n", "serial of the renamed unit")
        equal(int(tree.read("revision")), revision + 5, "revision after five changes")
        equal(tree.read("last_error"), "", "last problem")


@test
def a_medium_is_moved_by_its_file():
    """Writing `out` ejects it, `in` loads it; the file says where it is."""
    with mounted(CONFIG.replace("disk.img?size=16M", "disk.img?size=16M&removable")) as (_, tree):
        for text in ("out", "in", "out", "in"):
            tree.write("luns/image/medium", text + "\n")
            equal(tree.read("luns/image/medium"), text + "\n", "the medium")
        fails(errno.EINVAL, "no place", lambda: tree.write("luns/image/medium", "up\n"))


@test
def a_list_is_one_change_however_it_is_written():
    """Shells write lists line by line, and programs that they start close the file, too: all lines are in force after the command, by
    one revision. What is refused leaves the list as it was."""
    with mounted() as (_, tree):
        def shell(line):
            return subprocess.run(["bash", "-uc", line], cwd=tree.dir, capture_output=True, text=True, timeout=30)
        lines = lambda n: [f"10.{n}.{at}.0/24" for at in range(3)]
        for n, line in enumerate((
                r"printf '10.0.0.0/24\n10.0.1.0/24\n10.0.2.0/24\n' > groups/lab/initiators",
                "{ echo 10.1.0.0/24; cat <<< 10.1.1.0/24; echo $(echo 10.1.2.0/24); } > groups/lab/initiators",
                "for at in 0 1 2; do echo 10.2.$at.0/24; done > groups/lab/initiators",
                "cat > groups/lab/initiators <<< $'10.3.0.0/24\n10.3.1.0/24\n10.3.2.0/24'",
                "seq -f 10.4.%g.0/24 0 2 | tee groups/lab/initiators > /dev/null")):
            revision = int(tree.read("revision"))
            done = shell(line)
            equal((done.returncode, done.stderr), (0, ""), line)
            equal(tree.read("groups/lab/initiators").split(), lines(n), line)
            equal(int(tree.read("revision")), revision + 1, f"revisions of {line}")
        shell(r"printf '10.9.0.0/24\nnot/a/name\n' > groups/lab/initiators")
        equal(tree.read("groups/lab/initiators").split(), lines(4), "after a list that is refused")
        check("not/a/name" in tree.read("last_error"), tree.read("last_error"))
        check(shell("cp /dev/stdin groups/lab/initiators <<< not/a/name").returncode != 0, "cp sees the error")


@test
def sections_are_edited_by_their_files():
    """Named stores, servers of NBD and quotas: the daemon has what is written, the tree shows it, what is wrong is refused with its
    reason, and the rest of the section stays."""
    with mounted(SECTIONS) as (tarn, tree):
        server = f"nbd/{tarn.dir}/nbd.sock".replace("/", "%2F").replace("nbd%2F", "nbd/", 1)
        equal({path: os.listdir(tree.path(path)) for path in ("quotas", "nbd")},
              {"quotas": ["owner:alice"], "nbd": [server.removeprefix("nbd/")]}, "sections")
        equal(sorted(os.listdir(tree.path("stores"))), ["left", "right", "spare"], "stores")
        tree.write("stores/spare/store", "mem:16M\n")
        equal(tree.read("stores/spare/store"), "mem:16M\n", "store")
        tree.write(f"{server}/luns", "plain\nwide\n")
        equal(tree.read(f"{server}/luns"), "plain\nwide\n", "exports")
        equal(tarn.api().get("nbd")[0]["luns"], ["plain", "wide"], "exports of the daemon")
        tree.write(f"{server}/mode", "0600\n")
        equal((tarn.dir / "nbd.sock").stat().st_mode & 0o777, 0o600, "mode of the socket")
        tree.write("quotas/owner:alice/soft", "80\n")
        tree.write("quotas/owner:alice/provisioned", "8M\n")
        tree.write("luns/plain/owner", "alice\n")
        equal(tree.read("quotas/owner:alice/luns"), "plain\n", "disks of the quota")
        equal(tree.read("quotas/owner:alice/provisioned_bytes"), f"{4 * MIB}\n", "size of its disks")
        wait_for(lambda: tree.read("quotas/owner:alice/used_bytes") == "0\n", 20, "what they take", step_s=0.2)
        spec = tarn.api().get("quotas")[0]["spec"]
        equal(spec, {"owner": "alice", "provisioned": "8M", "used": "1G", "soft": 80}, "the quota of the daemon")
        tree.write("quotas/owner:alice/provisioned", "\n")
        check("provisioned" not in tree.read("config"), "the limit is gone")
        before = tree.read("config")
        for path, text, number, reason in (
                ("stores/left/store", "mem:none\n", errno.EINVAL, "none"),
                (f"{server}/luns", "missing\n", errno.ENOENT, "missing"),
                (f"{server}/tls", "/one/file\n", errno.EINVAL, "certificate"),
                ("quotas/owner:alice/used", "much\n", errno.EINVAL, "much"),
                ("quotas/owner:alice/soft", "100\n", errno.EINVAL, "percent"),
                ("luns/wide/owner", "a b\n", errno.EINVAL, "a b")):
            def attempt():
                # A list is taken when it is closed.
                with open(tree.path(path), "w") as file:
                    file.write(text)
            fails(number, f"{text!r} to {path}", attempt)
            said = tree.read("last_error")
            check(said.startswith(f"{path}: ") and reason in said, f"{text!r} to {path} says {said!r}")
        equal(tree.read("config"), before, "configuration")


@test
def snapshots_are_directories():
    """mkdir takes one, its files show it, writing 1 to `rollback` gives the data back, rmdir removes it; where a store can have none,
    the directory is empty and mkdir says why."""
    with file_system("xfs") as place:
        config = f"""
[[lun]]
id = "web"
store = "{place}/web.img?size=16M"
[[lun]]
id = "memory"
store = "mem:1M"
""" + target_section("web", "memory")
        with mounted(config) as (tarn, tree):
            of = "luns/web/snapshots"
            equal(os.listdir(tree.path(of)), [], "snapshots at first")
            def first_block(data=None):
                with iscsi.Session(tarn.port, IQN) as session:
                    session.clear_unit_attentions(0)
                    if data:
                        check(session.command(scsi.write16(0, 1), write=data).good, "a write")
                    return session.command(scsi.read16(0, 1), read=512).data
            old, new = b"a" * 512, b"b" * 512
            first_block(old)
            tree.path(f"{of}/before").mkdir()
            equal(os.listdir(tree.path(of)), ["before"], "snapshots")
            equal(tree.read(f"{of}/before/size"), f"{16 * MIB}\n", "size")
            equal(tree.read(f"{of}/before/path"), f"{place}/web.img.snapshots/before\n", "path")
            told = tarn.api().get("luns/web/snapshots")[0]
            equal(tree.read(f"{of}/before/taken_ms"), f"{told['taken_ms']}\n", "time")
            check(first_block(new) == new, "what is written then")
            fails(errno.EEXIST, "a name that there is", lambda: tree.path(f"{of}/before").mkdir())
            fails(errno.EINVAL, "a name that is none", lambda: tree.path(f"{of}/-x").mkdir())
            check("-x" in tree.read("last_error"), tree.read("last_error"))
            fails(errno.EPERM, "rm in a snapshot", lambda: tree.path(f"{of}/before/size").unlink())
            fails(errno.EINVAL, "no 1", lambda: tree.write(f"{of}/before/rollback", "yes\n"))
            tree.write(f"{of}/before/rollback", "1\n")
            check(first_block() == old, "the data of the snapshot")
            tree.path(f"{of}/before").rmdir()
            equal((os.listdir(tree.path(of)), tarn.api().get("snapshots")), ([], []), "snapshots at the end")
            fails(errno.ENOENT, "one that is gone", lambda: tree.path(f"{of}/before").rmdir())
            equal(os.listdir(tree.path("luns/memory/snapshots")), [], "snapshots of a store that has none")
            fails(errno.EBUSY, "a snapshot of such a store", lambda: tree.path("luns/memory/snapshots/a").mkdir())
            check("has no snapshots" in tree.read("last_error"), tree.read("last_error"))


@test
def a_session_ends_by_its_file():
    """Writing 1 to `end` ends that session, and no other; its directory is gone."""
    with mounted() as (tarn, tree), iscsi.Session(tarn.port, IQN) as stays:
        before = set(os.listdir(tree.path("sessions")))
        with iscsi.Session(tarn.port, IQN) as goes:
            goes.clear_unit_attentions(0)
            new = wait_for(lambda: set(os.listdir(tree.path("sessions"))) - before, 10, "the session is in the tree").pop()
            equal(tree.read(f"sessions/{new}/end"), "0\n", "end")
            tree.write(f"sessions/{new}/end", "1\n")
            equal(set(os.listdir(tree.path("sessions"))), before, "sessions")
            fails(errno.ENOENT, "a session that has ended", lambda: tree.read(f"sessions/{new}/initiator"))
        equal(stays.nop(b"alive"), b"alive", "answer of the session that stays")


@test
def counters_move():
    """What an initiator reads is counted at the unit and at the session."""
    with mounted() as (tarn, tree), iscsi.Session(tarn.port, IQN) as session:
        session.clear_unit_attentions(0)
        for _ in range(10):
            check(session.command(scsi.read16(0, 8), read=4096).good, "a read")
        of_session = os.listdir(tree.path("sessions"))[0]
        for place in ("luns/memory", f"sessions/{of_session}"):
            wait_for(lambda: int(tree.read(f"{place}/stats/reads")) >= 10, 10, f"reads of {place}", step_s=0.2)
            check(int(tree.read(f"{place}/stats/read_bytes")) >= 10 * 4096, f"bytes of {place}")
            equal(tree.read(f"{place}/stats/writes"), "0\n", f"writes of {place}")


@test
def a_wrong_value_is_refused_with_its_reason():
    """The number is right, last_error has the path and the reason, and nothing is changed."""
    with mounted() as (tarn, tree), iscsi.Session(tarn.port, IQN):
        before = tree.read("config")
        session = os.listdir(tree.path("sessions"))[0]
        alias = f"targets/{IQN}/alias"
        for path, text, number, reason in (
                ("luns/memory/size", "big\n", errno.EINVAL, "big"),
                ("luns/memory/size", "0\n", errno.EINVAL, "size"),
                ("luns/image/size", "16777217\n", errno.EINVAL, "block"),
                ("luns/image/size", "8M\n", errno.EBUSY, "shrink"),
                ("luns/memory/size", "32M\n", errno.EBUSY, "memory"),
                ("luns/memory/id", "image\n", errno.EBUSY, "image"),
                ("luns/memory/id", "a b\n", errno.EINVAL, "a b"),
                ("luns/memory/id", "a\nb\n", errno.EINVAL, "one line"),
                (alias, "x" * 1000 + "\n", errno.EINVAL, "alias"),
                ("groups/lab/initiators", "\n", errno.EINVAL, "initiators"),
                ("groups/lab/initiators", "not/a/name\n", errno.EINVAL, "not/a/name"),
                (f"sessions/{session}/end", "yes\n", errno.EINVAL, "write 1"),
                ("luns/memory/serial", "X\n", errno.EACCES, "for reading"),
                ("revision", "1\n", errno.EACCES, "for reading"),
                ("groups/lab/initiators", "x" * (VALUE_BYTES_MAX + 1), errno.EFBIG, str(VALUE_BYTES_MAX))):
            fails(number, f"{text[:20]!r} to {path}", lambda path=path, text=text: tree.write(path, text))
            said = tree.read("last_error")
            check(said.startswith(f"{path}: ") and reason in said, f"{text[:20]!r} to {path} says {said!r}")
            equal(said.count("\n"), 1, f"lines of {said!r}")
        fails(errno.EINVAL, "what is no text", lambda: tree.write("luns/memory/id", b"\xff\n"))
        descriptor = os.open(tree.path("groups/lab/initiators"), os.O_WRONLY)
        try:
            fails(errno.EINVAL, "a value in pieces", lambda: os.pwrite(descriptor, b"b\n", 2))
        finally:
            os.close(descriptor)
        equal(tree.read("config"), before, "configuration")


@test
def the_longest_value_is_taken():
    """A group of some thousand initiators goes in with one write."""
    with mounted() as (_, tree):
        lines = [f"iqn.2026-11.example.tarn:host{n}" for n in range(1500)]
        text = "\n".join(lines) + "\n"
        check(len(text) <= VALUE_BYTES_MAX, "the value is not too long")
        tree.write("groups/lab/initiators", text)
        equal(tree.read("groups/lab/initiators"), text, "initiators")


@test
def nothing_is_made_removed_or_moved():
    """mkdir, rm, mv, links, modes: EPERM, and last_error tells what to use."""
    with mounted() as (_, tree):
        for what, action in {
                "mkdir": lambda: tree.path("luns/new").mkdir(),
                "rmdir": lambda: tree.path("luns/image").rmdir(),
                "new file": lambda: tree.write("luns/image/new", "x"),
                "rm": lambda: tree.path("luns/image/size").unlink(),
                "mv": lambda: tree.path("luns/image").rename(tree.path("luns/other")),
                "ln -s": lambda: tree.path("luns/link").symlink_to("image"),
                "ln": lambda: os.link(tree.path("luns/image/size"), tree.path("luns/link"))}.items():
            fails(errno.EPERM, what, action)
            check("tarn lun" in tree.read("last_error"), f"{what} says {tree.read('last_error')!r}")
        fails(errno.EPERM, "chmod", lambda: tree.path("luns/image/size").chmod(0o600))
        check("fixed" in tree.read("last_error"), f"chmod says {tree.read('last_error')!r}")
        fails(errno.ENOENT, "what is not there", lambda: tree.read("luns/none/size"))


@test
def open_files_have_a_limit():
    """As many as may be, no more, and closing makes room; an open file keeps the text it had."""
    with mounted() as (_, tree):
        files = []
        try:
            for _ in range(OPEN_MAX):
                files.append(os.open(tree.path("luns/image/size"), os.O_RDONLY))
            fails(errno.ENFILE, "one more", lambda: os.open(tree.path("revision"), os.O_RDONLY))
            os.close(files.pop())
            tree.write("luns/image/size", "32M")
            equal(os.read(files[0], 100), f"{16 * MIB}\n".encode(), "text of an open file")
        finally:
            for file in files:
                os.close(file)
        equal(tree.read("luns/image/size"), f"{32 * MIB}\n", "size")


@test
def a_killed_daemon_gives_errors_and_a_new_one_works():
    """EIO for whatever has to be asked, the reason in last_error, and all is well when the daemon is there again."""
    with mounted(check_exit=False) as (tarn, tree):
        equal(tree.read("luns/memory/size"), f"{16 * MIB}\n", "size")
        tarn.kill()
        wait_for(lambda: is_dead(tree), 10, "the tree notices", step_s=0.2)
        for what, action in {"a list": lambda: os.listdir(tree.path("luns")),
                             "a file": lambda: tree.read("status"),
                             "a write": lambda: tree.write("luns/memory/size", "32M")}.items():
            fails(errno.EIO, what, action)
        check("no daemon at" in tree.read("last_error"), f"last_error says {tree.read('last_error')!r}")
        check("luns" in os.listdir(tree.dir), "the root is there")
        tarn.start()
        wait_for(lambda: not is_dead(tree), 10, "the tree works again", step_s=0.2)
        equal(tree.read("luns/memory/size"), f"{16 * MIB}\n", "size")


def is_dead(tree):
    try:
        tree.read("luns/memory/size")
    except OSError as error:
        equal(error.errno, errno.EIO, "error number")
        return True
    return False


@test
def a_hanging_daemon_gives_errors_too():
    """A daemon that is stopped costs the deadline of a question, then EIO; the mount ends while somebody waits."""
    with mounted() as (tarn, tree):
        harness.suspend(tarn.process.pid)
        try:
            wait_for(lambda: is_dead(tree), 10, "the tree notices", step_s=0.2)
            check("did not answer" in tree.read("last_error"), f"last_error says {tree.read('last_error')!r}")
            reader = threading.Thread(target=lambda: is_dead_or_gone(tree))
            reader.start()
            tree.end()
            reader.join(20)
            check(not reader.is_alive(), "who waited is told")
        finally:
            tarn.process.send_signal(signal.SIGCONT)


def is_dead_or_gone(tree):
    with contextlib.suppress(OSError):
        tree.read("luns/memory/size")


@test
def a_mount_ends_by_signals_and_by_umount():
    """SIGTERM, SIGINT, SIGHUP, umount: exit code 0 and an empty directory; also with somebody inside."""
    with mounted() as (tarn, tree):
        tree.end(signal.SIGTERM)
        for number in (signal.SIGINT, signal.SIGHUP):
            with Mount(tarn) as again:
                again.end(number)
        with Mount(tarn) as again:
            subprocess.run(["fusermount3", "-u", again.dir], check=True)
            again.ended()
        with Mount(tarn) as again:
            inside = os.open(again.path("luns/memory/size"), os.O_RDONLY)
            again.end()
            fails(errno.ENOTCONN, "a file that is left open", lambda: os.read(inside, 100))
            with contextlib.suppress(OSError):
                os.close(inside)


@test
def mistakes_are_told_before_anything_is_mounted():
    """No daemon, no directory, a dead mount: one line with the remedy, its exit code."""
    with mounted() as (tarn, tree):
        def mount(directory, socket=tarn.socket):
            return run("mount", directory, "--socket", socket)
        for what, process, code, words in (
                ("no daemon", mount(tree.dir, tarn.dir / "none"), 3, ("no daemon at", "tarn serve")),
                ("no directory", mount(tarn.dir / "none"), 2, ("cannot mount on", "name a directory that exists")),
                ("a file", mount(tarn.dir / "tarn.toml"), 2, ("cannot mount on", "name a directory that exists")),
                ("no token", run("mount", tree.dir, "--url", "https://localhost:1"), 2, ("--token-file",)),
                ("no argument", run("mount"), 2, ("DIR",))):
            equal(process.returncode, code, f"exit code of {what}: {process.stderr!r}")
            equal(process.stderr.count("\n"), 1, f"lines for {what}: {process.stderr!r}")
            for word in words:
                check(word in process.stderr, f"{what} says {process.stderr!r}")
        tree.process.kill()
        tree.process.wait()
        process = mount(tree.dir)
        equal(process.returncode, 2, "exit code of a dead mount")
        check("fusermount3 -u" in process.stderr, f"a dead mount says {process.stderr!r}")


@test(limit_s=240)
def a_thousand_units_are_listed():
    """1,000 units: all are listed, each is found, and a walk over all of them reads every file."""
    with mounted(many_luns(MANY, size="1M")) as (_, tree):
        equal(len(os.listdir(tree.path("luns"))), MANY, "units")
        equal(len(os.listdir(tree.path(f"targets/{IQN}/luns"))), MANY, "links")
        equal(tree.read(f"luns/disk{MANY - 1}/size"), f"{MIB}\n", "size of the last")
        sizes = [tree.read(f"luns/disk{n}/size") for n in range(MANY)]
        equal(set(sizes), {f"{MIB}\n"}, "sizes")
        found = subprocess.run(["find", tree.path("luns"), "-type", "f"], capture_output=True, text=True, check=True)
        files = len(found.stdout.splitlines())
        per_unit = len(FILES_OF_A_LUN) + len(os.listdir(tree.path("luns/disk0/stats")))
        equal(files, MANY * per_unit, "files below luns")
        measured(f"{files} files found")


if __name__ == "__main__":
    harness.main()
