"""HyperSCSI for suites: PDUs outside a session (docs/internals/hyperscsi.md, PDUs and discovery), a daemon with one right on a wire."""
import contextlib
import os
import pathlib
import shutil
import struct
import subprocess

from harness import equal, skip, wait_for
from tarn import BINARY, Tarn

QUESTION_BYTES = 256
DISCOVERY, ANSWER = 0x10, 0x90
HEADER = struct.Struct(">BBBHIIIHH")
HEAD = bytes([0, 4, 0])         # tag 0, the last fragment, of number 0


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def frame(opcode, body):
    """A PDU outside a session."""
    pdu = HEADER.pack(0x20, opcode, 1, 0, 0, 0, HEADER.size + len(body), HEADER.size, 0) + body
    return (HEAD + pdu + struct.pack(">I", crc32c(bytes(2) + pdu))).ljust(QUESTION_BYTES, b"\0")


def body_of(data, opcode):
    """The body of a PDU outside a session, which must be right."""
    version, got, flags, device, session, _, length, at, _ = HEADER.unpack_from(data, 3)
    equal((data[:3], version, got, flags, device, session), (HEAD, 0x20, opcode, 1, 0, 0), "header of the answer")
    pdu = data[3:3 + length]
    equal(data[3 + length:7 + length], struct.pack(">I", crc32c(bytes(2) + pdu)), "CRC of the answer")
    return pdu[at:]


def question(*groups):
    """A question of discovery."""
    listed = b"".join(bytes([len(name)]) + name.encode() for name in groups)
    return frame(DISCOVERY, bytes([7] * 16) + bytes(8) + bytes([len(groups)]) + listed)


NOBODY = 65534
CAP_NET_RAW = 13
SERVED, USED = "hs0", "hs1"
OPENER = "tarn-opener"


@contextlib.contextmanager
def wire_of_root():
    """A network of its own with a wire between the interfaces `SERVED` and `USED`: what a command in it begins with. Needs root,
    as a process there is to become another user."""
    if os.geteuid() != 0:
        skip("only root can become another user")
    make = f"ip link add {SERVED} type veth peer name {USED} && ip link set {SERVED} up && ip link set {USED} up && " \
           "ip link set lo up && echo made && exec cat"
    holder = subprocess.Popen(["unshare", "-n", "sh", "-c", make], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)
    try:
        if holder.stdout.readline() != b"made\n":
            skip("no network namespace with a veth pair can be made here")
        yield ["nsenter", "-t", str(holder.pid), "-n"]
    finally:
        holder.stdin.close()
        holder.wait(10)


class WithOneRight(Tarn):
    """A Tarn of an ordinary user with CAP_NET_RAW alone, inherited as from the drop-in of the service. `files` are put beside its
    program, as the user may not come near the tree; in `before`, what its command begins with, {dir} is where they are."""

    def __init__(self, config, inside, files=(), before=()):
        super().__init__(config=config)
        for file in (BINARY, *files):
            shutil.copy2(file, self.dir)
        right = "-all,+net_raw"
        self.prefix = [*inside, "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", f"--inh-caps={right}",
                       f"--ambient-caps={right}", f"--bounding-set={right}",
                       *(str(word).replace("{dir}", str(self.dir)) for word in before)]

    def command(self):
        words = super().command()
        (self.dir / "disks").mkdir(exist_ok=True)
        for path in [self.dir, *self.dir.iterdir()]:
            os.chown(path, NOBODY, NOBODY)
        return [str(self.dir / BINARY.name), *words[1:]]

    def ready(self):
        return self.has_said()

    def has_no_right(self):
        """No thread of it can do anything that others cannot."""
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            for line in (task / "status").read_text().splitlines():
                if line.startswith(("CapPrm:", "CapEff:", "CapAmb:", "CapInh:")):
                    equal(int(line.split()[1], 16), 0, line)


def openers(tarn):
    """The processes that open sockets of interfaces for this Tarn and run, by their numbers."""
    found = []
    for children in pathlib.Path(f"/proc/{tarn.process.pid}/task").glob("*/children"):
        for pid in children.read_text().split():
            with contextlib.suppress(OSError):
                name, state = [pathlib.Path(f"/proc/{pid}", part).read_text() for part in ("comm", "stat")]
                if name.strip() == OPENER and state.rsplit(")", 1)[1].split()[0] != "Z":
                    found.append(int(pid))
    return found


def opener_has_one_right(tarn, user=NOBODY):
    """The opener is this user with the right to frames alone, one thread, one open file and the filter of calls of its own."""
    pid, = openers(tarn)
    status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    for field, wanted in [("CapPrm", 1 << CAP_NET_RAW), ("CapEff", 1 << CAP_NET_RAW), ("CapInh", 0), ("CapAmb", 0)]:
        equal(int(status[field], 16), wanted, f"{field} of the opener")
    for field, wanted in [("NoNewPrivs", "1"), ("Seccomp", "2"), ("Threads", "1")]:
        equal(status[field].strip(), wanted, f"{field} of the opener")
    for field in ("Uid", "Gid"):
        equal(set(status[field].split()), {str(user)}, f"{field} of the opener")
    equal(os.listdir(f"/proc/{pid}/fd"), ["0"], "open files of the opener")


PASSWORD = "open sesame"
DEVICE = '[[hyperscsi.group.device]]\nid = "a"\nlevel = "crc"\n'


def group_at(interface, name):
    """A group with the device a on an interface."""
    return f'[[hyperscsi.group]]\nname = "{name}"\ninterface = "{interface}"\npassword_file = "{{dir}}/abc.secret"\n{DEVICE}'


class Wired:
    """A Tarn of one right, confined, that serves the group ABC on `SERVED`, and its clients on the same wire."""

    def __init__(self, inside, **how):
        self.inside = inside
        self.config = f'[[lun]]\nid = "a"\nstore = "file:{{dir}}/disks/a.img?size=16M"\n{group_at(SERVED, "ABC")}' \
                      '[confine]\nroots = ["{dir}/disks"]\n'
        self.tarn = WithOneRight(self.config, inside, **how)
        self.tarn.secret("abc.secret", PASSWORD)

    def __enter__(self):
        self.tarn.__enter__()
        # The one of the daemon is that user's.
        own = self.tarn.dir / "own.secret"
        own.touch(mode=0o600)
        own.write_text(PASSWORD + "\n")
        return self

    def __exit__(self, *what):
        self.tarn.__exit__(*what)

    def fill(self, text):
        return text.replace("{dir}", str(self.tarn.dir))

    def plan(self, more):
        """Whether a plan with these groups besides can be applied, and why not."""
        plan = self.tarn.api().post("plan", {"text": self.fill(self.config + more)})
        return plan["is_applicable"], " ".join(step.get("reason") or "" for step in plan["steps"])

    def apply(self, more):
        return self.tarn.api().put("config", {"text": self.fill(self.config + more)})

    def serves(self, name, interface, level="crc"):
        """A client at this interface writes and reads the device of a group."""
        done = subprocess.run([*self.inside, BINARY, "bench", "--verify", "--overwrite", "--rw", "mixed", "--bs", "4k,64k", "--iodepth",
                               "8", "--runtime", "1", "--repeat", "1", "--interface", interface, "--password-file",
                               self.tarn.dir / "own.secret", f"hyperscsi://{name}/a?level={level}"],
                              capture_output=True, text=True, timeout=60, check=False)
        equal(done.returncode, 0, f"exit code of the bench: {done.stdout}{done.stderr}")


def one_right_is_enough(inside, **how):
    """With CAP_NET_RAW alone a group on an interface is served, confined, and the right is given up. A plan with another interface
    needs no restart: its sockets come from a process that has the right and nothing else."""
    with Wired(inside, **how) as wired:
        wired.tarn.has_no_right()
        opener_has_one_right(wired.tarn)
        for level in ("crc", "encrypt"):
            wired.serves("ABC", USED, level)
        more = group_at(USED, "DEF")
        equal(wired.plan(more), (True, ""), "the plan")
        wired.apply(more)
        wired.serves("DEF", SERVED)
        wired.serves("ABC", USED)
        # A place that was closed is opened once more.
        wired.apply("")
        wired.apply(more)
        wired.serves("DEF", SERVED)
        wired.tarn.has_no_right()
        opener_has_one_right(wired.tarn)
        pid, = openers(wired.tarn)
    wait_for(lambda: not pathlib.Path(f"/proc/{pid}").exists(), 20, "the opener has ended with Tarn")
