"""A Ceph cluster of this machine for tests, and a Tarn that serves its images."""
import atexit
import contextlib
import functools
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
import harness
import iscsi
import scsi
from harness import check, equal, suspend, wait_for
from tarn import IQN, Tarn, lun_section, target_section

MIB = 1 << 20
BLOCK = 512
# Of one WRITE.
CHUNK = 64 << 10
LIMITS = "[limits]\ntask_deadline_seconds = 2\nshutdown_timeout_seconds = 2\n"
NEEDS = ["ceph-mon=ceph-mon", "ceph-osd=ceph-osd", "rbd=ceph-common", "/usr/lib/*/librbd.so.1=librbd1"]


class Cluster:
    """A cluster of this machine, with images in memory."""

    def __init__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="ceph-test."))
        self.settings = {**os.environ, "CEPHRIG_DIR": str(self.directory), "CEPHRIG_STORE": "memstore", "CEPHRIG_MGR": "0",
                         "CEPHRIG_IMAGE": ""}
        self.conf = self.directory / "ceph.conf"
        atexit.register(self.stop)
        done = subprocess.run([HERE / "start.sh"], env=self.settings, capture_output=True, text=True, timeout=200)
        equal(done.returncode, 0, f"start of the cluster: {done.stderr}")

    def stop(self):
        for name in ("osd.0", "mon.a"):
            with contextlib.suppress(OSError):
                self.signal(name, signal.SIGCONT)
        subprocess.run([HERE / "stop.sh"], env=self.settings, capture_output=True, timeout=60)

    def signal(self, name, number):
        """Sends a signal to a daemon."""
        file = self.directory / "run" / f"{name}.pid"
        if file.exists():
            pid = int(file.read_text().split()[0])
            suspend(pid) if number == signal.SIGSTOP else os.kill(pid, number)

    def rbd(self, *arguments):
        quiet = ["--no-progress"] if arguments[0] in ("export", "resize", "rm") else []
        command = ["rbd", *quiet, "--id", "target", "-c", self.conf, *map(str, arguments)]
        return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout

    def admin(self, *arguments):
        keyring = self.directory / "ceph.client.admin.keyring"
        subprocess.run(["ceph", "-c", self.conf, "-k", keyring, *arguments], check=True, capture_output=True, timeout=60)

    def connections(self, pid):
        """How many TCP connections a process has to the daemons."""
        def sockets(pid):
            with contextlib.suppress(FileNotFoundError):
                return {os.readlink(file)[8:-1] for file in pathlib.Path(f"/proc/{pid}/fd").iterdir()}
            return set()
        daemons = (file.read_text().split()[0] for file in (self.directory / "run").glob("*.pid"))
        daemons, own = set().union(*map(sockets, daemons)), sockets(pid)
        rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
        ports = {row[1].split(":")[1] for row in rows if row[3] == "0A" and row[9] in daemons}
        return sum(row[3] == "01" and row[9] in own and row[2].split(":")[1] in ports for row in rows)

    def watchers(self, image):
        status = json.loads(self.rbd("status", "--format", "json", f"rbd/{image}"))
        return [watcher["address"] for watcher in status["watchers"]]

    @contextlib.contextmanager
    def image(self, name, size_mib=64):
        """An image of the pool `rbd`; gives its store."""
        self.rbd("create", "--size", f"{size_mib}M", f"rbd/{name}")
        try:
            yield self.store(name)
        finally:
            wait_for(lambda: not self.watchers(name), 60, f"the end of the watches of {name}", step_s=0.5)
            self.rbd("rm", f"rbd/{name}")

    def store(self, name, options=""):
        return f"rbd:rbd/{name}?conf={self.conf}&user=target{options}"


@functools.cache
def installed():
    """Whether Ceph is there, after an attempt to install it."""
    return subprocess.run([HERE.parents[1] / "tools/need", *NEEDS]).returncode == 0


@functools.cache
def shared_cluster():
    return Cluster()


def cluster():
    """The cluster of most tests."""
    if not installed():
        harness.skip("Ceph cannot be installed")
    return shared_cluster()


def config(*stores, more=LIMITS):
    """A configuration whose units lun0, lun1, ... have these stores."""
    ids = [f"lun{n}" for n in range(len(stores))]
    return "".join(lun_section(id, store) for id, store in zip(ids, stores)) + target_section(*ids) + more


@contextlib.contextmanager
def serve(*stores, more=LIMITS, timeout_s=60, **options):
    """A Tarn with these stores and a session with it."""
    tarn = Tarn(config=config(*stores, more=more), **options)
    (tarn.dir / "disks").mkdir()
    with tarn, iscsi.Session(tarn.port, IQN, timeout_s=timeout_s) as session:
        for n in range(len(stores)):
            session.clear_unit_attentions(n)
        yield tarn, session


@contextlib.contextmanager
def serve_waiting(*stores):
    """As `serve`, of stores that may not be ready."""
    with Tarn(config=config(*stores), check_exit=False) as tarn, iscsi.Session(tarn.port, IQN, timeout_s=60) as session:
        wait_for(lambda: (outcome := session.command(scsi.test_unit_ready())).good or not_ready(outcome), 20, "no unit attention")
        yield tarn, session
        # So it gives its images up.
        equal(tarn.terminate(), 0, "exit code")


def write(session, at, data, lun=0):
    return session.command(scsi.write16(at // BLOCK, len(data) // BLOCK), write=data, lun=lun)


def read(session, at, length, lun=0):
    return session.command(scsi.read16(at // BLOCK, length // BLOCK), read=length, lun=lun)


def compare_and_write(lba, count):
    return bytes([0x89, 0]) + lba.to_bytes(8, "big") + bytes([0, 0, 0, count, 0, 0])


def good(outcome, what):
    check(outcome.good, f"{what}: {outcome}")
    return outcome.data


def pr_out(session, action, key=0, new_key=0, scope_type=0, aptpl=False):
    """PERSISTENT RESERVE OUT"""
    cdb = struct.pack(">BBB2xIB", 0x5F, action, scope_type, 24, 0)
    good(session.command(cdb, write=struct.pack(">QQ4xB3x", key, new_key, aptpl)), f"PERSISTENT RESERVE OUT {action}")


def registrations(session):
    """READ FULL STATUS: the key and the relative target port of each registration."""
    data = good(session.command(struct.pack(">BB5xHB", 0x5E, 3, 4096, 0), read=4096), "READ FULL STATUS")
    at, found = 8, []
    while at < len(data):
        found.append((int.from_bytes(data[at:at + 8], "big"), int.from_bytes(data[at + 18:at + 20], "big")))
        at += 24 + int.from_bytes(data[at + 20:at + 24], "big")
    return found


def shown(session, lun=0):
    """What initiators know a disk by."""
    serial = good(session.command(scsi.inquiry(0x80), read=255, lun=lun), "INQUIRY")
    return serial, scsi.device_names(session, lun)


def not_ready(outcome):
    return not outcome.good and outcome.sense.key == scsi.NOT_READY


def held_elsewhere(outcome):
    """The refusal that no path checker and no kernel repeats."""
    return not_ready(outcome) and outcome.sense.code == scsi.MANUAL_INTERVENTION_REQUIRED


def told(tarn):
    """The kinds of events about stores."""
    kinds = [event["kind"] for event in tarn.api().get("events?after=0&most=1000")]
    return [kind for kind in kinds if kind in ("store-lost", "store-reached")]


def lost(tarn):
    """What the doctor says about stores that cannot be reached."""
    findings = tarn.api().get("status")["findings"]
    return " ".join(found["message"] for found in findings if found["code"] == "store-lost")
