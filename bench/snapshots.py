#!/usr/bin/env python3
"""snapshots.py - how long writes wait for a snapshot of a file in many pieces.

  snapshots.py [--rounds 7] [--pieces 10240] [--json FILE]

A file of one MiB per piece lies on a new XFS, of which each MiB has 64 KiB of data: so many extents. While four sessions
write to random places of them, eight writes of 4 KiB at a time, a snapshot is taken, with a new file in each round. The
table has the longest time that eight writes took together, and for how long the daemon held the medium. Needs root.
TARN_BIN names another tarn. Exit status 0 also when the goal, 1 s, is missed: it is a measurement.
"""
import argparse, json, pathlib, statistics, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/lib"))
from reflinks import GIB, MIB, Daemon, file_of_pieces, file_system, random_writes


def round_of(pieces):
    """The longest time of eight writes without and with the snapshot, and for how long the medium was held, in seconds."""
    with file_system("xfs", 2 * pieces * MIB + GIB) as place:
        path = place / "disk.img"
        file_of_pieces(path, pieces)
        with Daemon({"disk": f"file:{path}"}) as tarn, random_writes(tarn, pieces) as writers:
            time.sleep(1)
            before = max(writer.longest_s for writer in writers)
            for writer in writers:
                writer.longest_s = 0.0
            held = tarn.take("disk", name="one")["paused_us"] / 1e6
            time.sleep(0.5)
            return before, max(writer.longest_s for writer in writers), held


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--pieces", type=int, default=10240)
    arguments.add_argument("--json", type=pathlib.Path)
    given = arguments.parse_args()
    rounds = [round_of(given.pieces) for _ in range(given.rounds)]
    print("| what | median | quartiles | all, ms |\n| --- | --- | --- | --- |")
    for name, times in zip(("eight writes before", "eight writes at the snapshot", "the medium is held"), zip(*rounds)):
        low, middle, high = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
        every = ", ".join(f"{one * 1e3:.0f}" for one in times)
        print(f"| {name} | {middle * 1e3:.0f} | {low * 1e3:.0f} to {high * 1e3:.0f} | {every} |")
    if given.json:
        given.json.write_text(json.dumps([dict(zip(("before_s", "at_snapshot_s", "held_s"), one)) for one in rounds]))


if __name__ == "__main__":
    main()
