#!/usr/bin/env python3
"""takeover.py - how long an image of a Ceph cluster is away when its gateway is killed and another one takes it.

  takeover.py [--rounds 10] [--goal 7] [--json FILE]

A cluster of this machine is started (tests/ceph/start.sh, objects in memory). In each round one Tarn serves an image, and
a second one waits for it (takeover=wait). The first is killed (SIGKILL) when an initiator has written to it, the second takes the
image at once by order (as `tarn lun takeover` gives it), and an initiator reads there until a READ is answered. Measured is the
time from the kill to that answer, which has to be the last block that was answered as written. With --unaided there is no order.
TARN_BIN names another tarn. Exit status 0 also when the goal is missed: it is a measurement.
"""
import argparse, atexit, json, os, pathlib, statistics, struct, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/lib"))
import iscsi
import scsi
from tarn import IQN, Tarn, lun_section, target_section

BLOCK = 512
LIMIT_S = 120
STEP_S = 0.01


class Cluster:
    def __init__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="tarn-takeover."))
        self.settings = {**os.environ, "CEPHRIG_DIR": str(self.directory), "CEPHRIG_STORE": "memstore", "CEPHRIG_MGR": "0",
                         "CEPHRIG_IMAGE": "shared", "CEPHRIG_IMAGE_SIZE": "64M"}
        atexit.register(self.stop)
        subprocess.run([ROOT / "tests/ceph/start.sh"], env=self.settings, check=True, capture_output=True, timeout=200)

    def stop(self):
        subprocess.run([ROOT / "tests/ceph/stop.sh"], env=self.settings, capture_output=True, timeout=60)

    def store(self):
        return f"rbd:rbd/shared?conf={self.directory}/ceph.conf&user=target&takeover=wait"


def read(session):
    return session.command(scsi.read16(0, 1), read=BLOCK)


def await_data(session, what):
    """The first READ that is answered; what comes before is a unit that is not ready, or its unit attentions."""
    end = time.monotonic() + LIMIT_S
    while not (outcome := read(session)).good:
        if outcome.sense is None or outcome.sense.key not in (scsi.NOT_READY, scsi.UNIT_ATTENTION):
            raise SystemExit(f"takeover.py: {what}: {outcome}")
        if time.monotonic() > end:
            raise SystemExit(f"takeover.py: {what}: no READ was answered within {LIMIT_S} s")
        time.sleep(STEP_S)
    return outcome.data


def measure(store, number, unaided):
    """Seconds from the kill to the first READ, and the part of it that the order to take the image took."""
    config = lun_section("lun0", store) + target_section("lun0")
    with Tarn(config=config, check_exit=False) as first, iscsi.Session(first.port, IQN, timeout_s=LIMIT_S) as here:
        await_data(here, "the first gateway")
        with Tarn(config=config, check_exit=False) as second, iscsi.Session(second.port, IQN, timeout_s=LIMIT_S) as there:
            there.clear_unit_attentions()
            if read(there).good:
                raise SystemExit("takeover.py: the second gateway does not wait")
            for count in range(100):
                data = struct.pack("<QQ", number, count) * (BLOCK // 16)
                outcome = here.command(scsi.write16(0, 1), write=data)
                if not outcome.good:
                    raise SystemExit(f"takeover.py: WRITE: {outcome}")
            begin = time.monotonic()
            first.process.kill()
            if not unaided:
                second.api().post("luns/lun0/takeover", None)
            asked = time.monotonic() - begin
            found = await_data(there, "the second gateway")
            seconds = time.monotonic() - begin
            if found != data:
                raise SystemExit("takeover.py: the READ has another block than the last that was written")
            first.process.wait()
            second.terminate()
    return seconds, asked


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--goal", type=float, default=7, help="seconds that the median may have (default 7)")
    parser.add_argument("--unaided", action="store_true", help="the second one takes the image by itself")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    store, rounds = Cluster().store(), []
    for number in range(options.rounds):
        rounds.append(measure(store, number, options.unaided))
        print(f"round {number + 1:2}: {rounds[-1][0]:6.2f} s, of which {rounds[-1][1]:.2f} s until the order was accepted", flush=True)
    seconds = [one for one, _ in rounds]
    median = statistics.median(seconds)
    word = "reached" if median <= options.goal else "MISSED"
    print(f"median of {len(seconds)}: {median:.2f} s ({min(seconds):.2f} to {max(seconds):.2f}); goal of {options.goal:g} s {word}")
    if options.json:
        options.json.write_text(json.dumps({"seconds": seconds, "median": median, "goal": options.goal}))


if __name__ == "__main__":
    main()
