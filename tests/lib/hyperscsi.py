"""HyperSCSI for suites: PDUs outside a session (docs/internals/hyperscsi.md, PDUs and discovery), a daemon with one right on a wire."""
import contextlib
import os
import pathlib
import shutil
import struct
import subprocess

from harness import check, equal, skip
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
        """The effects of a plan with these groups besides, and the reasons."""
        plan = self.tarn.api().post("plan", {"text": self.fill(self.config + more)})
        return {step["effect"] for step in plan["steps"]}, " ".join(step.get("reason") or "" for step in plan["steps"])

    def apply(self, more):
        return self.tarn.api().put("config", {"text": self.fill(self.config + more)})

    def pending(self):
        """What waits for a restart, by the status and by the findings."""
        found = [one["message"] for one in self.tarn.api().get("findings") if one["code"] == "restart-pending"]
        return self.tarn.api().get("status").get("pending", []), " ".join(found)

    def serves(self, name, interface, level="crc"):
        """A client at this interface writes and reads the device of a group."""
        done = subprocess.run([*self.inside, BINARY, "bench", "--verify", "--overwrite", "--rw", "mixed", "--bs", "4k,64k", "--iodepth",
                               "8", "--runtime", "1", "--repeat", "1", "--interface", interface, "--password-file",
                               self.tarn.dir / "own.secret", f"hyperscsi://{name}/a?level={level}"],
                              capture_output=True, text=True, timeout=60, check=False)
        equal(done.returncode, 0, f"exit code of the bench: {done.stdout}{done.stderr}")


def one_right_is_enough(inside, **how):
    """With CAP_NET_RAW alone a group on an interface is served, confined, and the right is given up. A group at an interface that had
    none waits for a restart, as plan, status and findings say; one that had is closed and opened while Tarn runs."""
    with Wired(inside, **how) as wired:
        wired.tarn.has_no_right()
        for level in ("crc", "encrypt"):
            wired.serves("ABC", USED, level)
        more = group_at(USED, "DEF")
        equal(wired.plan(more), ({"pending"}, "pending until Tarn is restarted"), "the plan")
        wired.apply(more)
        listed, found = wired.pending()
        equal(listed, [f"[[hyperscsi.group]] DEF at {USED}"], "what is pending")
        check(listed[0] in found, f"the finding: {found}")
        wired.serves("ABC", USED)
        equal(wired.tarn.terminate(), 0, "exit code")
        wired.tarn.config = (wired.tarn.dir / "tarn.toml").read_text()
        wired.tarn.start()
        equal(wired.pending(), ([], ""), "what is pending after the restart")
        wired.serves("DEF", SERVED)
        # A place that was closed is opened once more.
        wired.apply("")
        equal(wired.plan(more), ({"online"}, ""), "the plan with a place that was open")
        wired.apply(more)
        wired.serves("DEF", SERVED)
        wired.serves("ABC", USED)
        wired.tarn.has_no_right()
