#!/usr/bin/env python3
"""rbd_scale.py - what an open image of a Ceph cluster costs Tarn: time at the start, memory, threads, connections.

  rbd_scale.py [--images 500] [--goal 20] [--json FILE]

A cluster of this machine is started (tests/ceph/start.sh, objects in memory) with so many empty images. One Tarn serves
the first of them, one serves all; the difference is what the others cost. An image is open when its unit answers
TEST UNIT READY. The cluster runs on the same processors, so the times are those of both.
TARN_BIN names another tarn. Exit status 0 also when the goal is missed: it is a measurement.
"""
import argparse, atexit, json, os, pathlib, re, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/lib"))
import iscsi
import scsi
import tarn as harness_of_tarn
from tarn import IQN, Tarn, lun_section, raise_descriptor_limit, target_section

FLAT = 0x4000   # a LUN in flat addressing, which those from 256 on need (SAM-5)
# The limit of the harness for a start is for a few units.
START_LIMIT_S = 300
IMAGE = "8M"


class Cluster:
    def __init__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="tarn-rbd-scale."))
        self.settings = {**os.environ, "CEPHRIG_DIR": str(self.directory), "CEPHRIG_STORE": "memstore", "CEPHRIG_MGR": "0",
                         "CEPHRIG_IMAGE": ""}
        self.conf = self.directory / "ceph.conf"
        atexit.register(self.stop)
        subprocess.run([ROOT / "tests/ceph/start.sh"], env=self.settings, check=True, capture_output=True, timeout=200)

    def stop(self):
        subprocess.run([ROOT / "tests/ceph/stop.sh"], env=self.settings, capture_output=True, timeout=60)

    def make(self, count):
        names = "\n".join(f"rbd/image{n}" for n in range(count))
        command = ["xargs", "-P", "4", "-n", "1", "rbd", "--id", "target", "-c", self.conf, "create", "--size", IMAGE]
        subprocess.run(command, input=names, text=True, check=True, timeout=1800)

    def store(self, number):
        return f"rbd:rbd/image{number}?conf={self.conf}&user=target"

    def ports(self):
        """Where its daemons listen."""
        listening = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
        rows = [line.split() for line in listening]
        daemons = {socket for file in (self.directory / "run").glob("*.pid") for socket in sockets(file.read_text().split()[0])}
        return {row[1].split(":")[1] for row in rows if row[3] == "0A" and row[9] in daemons}


def sockets(pid):
    """The inodes of the sockets of a process."""
    found = set()
    for file in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(file))
        except FileNotFoundError:
            continue
        if match:
            found.add(match[1])
    return found


def connections(tarn, cluster):
    own, ports = sockets(tarn.process.pid), cluster.ports()
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[3] == "01" and row[9] in own and row[2].split(":")[1] in ports for row in rows)


def look(cluster, count):
    """Figures of a Tarn that serves so many images."""
    ids = [f"lun{n}" for n in range(count)]
    units = "".join(lun_section(id, cluster.store(n)) for n, id in enumerate(ids))
    begin = time.monotonic()
    with Tarn(config=units + target_section(*ids)) as tarn:
        with iscsi.Session(tarn.port, IQN, timeout_s=START_LIMIT_S) as session:
            for number in range(count):
                while not session.command(scsi.test_unit_ready(), lun=number if number < 256 else FLAT | number).good:
                    time.sleep(0.01)
        opened = time.monotonic() - begin
        return {"images": count, "serves after, s": round(tarn.start_seconds, 2), "all open after, s": round(opened, 2),
                "threads": tarn.threads(), "descriptors": tarn.descriptors(), "connections": connections(tarn, cluster),
                "resident, MiB": round(tarn.rss_bytes() / (1 << 20), 1),
                "of it heap, MiB": round(tarn.heap_bytes() / (1 << 20), 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--goal", type=float, default=20, help="seconds until all are open")
    parser.add_argument("--json")
    args = parser.parse_args()
    harness_of_tarn.START_LIMIT_S = START_LIMIT_S
    raise_descriptor_limit(16 * args.images)
    cluster = Cluster()
    cluster.make(args.images)
    one, all = look(cluster, 1), look(cluster, args.images)
    each = {key: (all[key] - one[key]) / (args.images - 1) for key in one}
    print(f"| | 1 image | {args.images} images | each |\n|---|--:|--:|--:|")
    for key in list(one)[1:]:
        print(f"| {key} | {one[key]} | {all[key]} | {each[key]:.3f} |")
    took = all["all open after, s"]
    print(f"{args.images} images are open after {took} s, {'' if took <= args.goal else 'not '}within the goal of {args.goal:g} s")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps([one, all], indent=1))


if __name__ == "__main__":
    main()
