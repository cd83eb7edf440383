#!/usr/bin/env python3
"""steps.py - the instructions of a turn with one command, by function, outside the kernel.

  steps.py [--tarn FILE] [--bs BYTES] [--rw randread|randwrite] [--turns 150] [--functions 40]

Steps through the thread of the core (steps.c) while the load generator has one command under way, and counts. The count is exact
and needs no counters of the processor, which virtual machines often lack. Stepping stretches time, so turns in which something
falls due by time (a tick, a session that is looked at) are left out; the median of the others is printed, and what each function
has of it. The binary must have symbols:

  CARGO_PROFILE_RELEASE_STRIP=none cargo build --release --package tarn

Only for x86-64. Needs the right to trace (root, or /proc/sys/kernel/yama/ptrace_scope 0).
"""
import argparse
import bisect
import collections
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
IQN, PORT, IO_URING_ENTER = "iqn.2024-01.bench:steps", 3319, "426"
BY_TIME = ("BinaryHeap<T,A>::pop", "::tend", "find_due", "handle_due", "log_left_out", "look_again", "probe_some", "note_overdue")


def symbols(binary):
    listed = subprocess.run(["nm", "--demangle", "--numeric-sort", binary], capture_output=True, text=True).stdout
    rows = [line.split(" ", 2) for line in listed.splitlines() if line[17:18] in ("t", "T")]
    return [int(address, 16) for address, _, _ in rows], [name for _, _, name in rows]


def turns_of(trace, base, size, places):
    """Each turn as a counter of its functions; those that are cut off at the ends are left out."""
    addresses, names = places
    turns, turn, known = [], collections.Counter(), {}
    for line in trace:
        if line.startswith("S"):
            if line.split()[1] == IO_URING_ENTER:
                turns.append(turn)
                turn = collections.Counter()
            continue
        at = int(line, 16) - base
        if at not in known:
            known[at] = names[bisect.bisect(addresses, at) - 1] if 0 <= at < size else "libraries"
        turn[known[at]] += 1
    return turns[1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tarn", default=str(HERE.parent / "target/release/tarn"))
    parser.add_argument("--bs", default="512")
    parser.add_argument("--rw", default="randread")
    parser.add_argument("--turns", type=int, default=150)
    parser.add_argument("--functions", type=int, default=40)
    args = parser.parse_args()
    places = symbols(args.tarn)
    if not places[1]:
        # What is due by time is known by the names of its functions.
        sys.exit(f"{args.tarn} has no symbols: CARGO_PROFILE_RELEASE_STRIP=none cargo build --release --package tarn")
    with tempfile.TemporaryDirectory(prefix="tarn-steps-") as name:
        folder = pathlib.Path(name)
        for program in ("iload", "steps"):
            subprocess.run(["cc", "-O2", "-march=native", "-o", folder / program, HERE / f"{program}.c"], check=True)
        serve = [args.tarn, "serve", "--cores", "1", "--listen", f"127.0.0.1:{PORT}", "--target", IQN, "--state", folder / "state",
                 "--log", "warn", "mem:64M"]
        with subprocess.Popen(serve, stdout=subprocess.DEVNULL) as tarn:
            time.sleep(2)
            load = [folder / "iload", "--port", str(PORT), "--iqn", IQN, "--lun", "0", "--span", "64m", "--qd", "1"]
            subprocess.run([*load, "--rw", "seqwrite", "--bs", "1m", "--time", "0.5"], check=True, stdout=subprocess.DEVNULL)
            with subprocess.Popen([*load, "--rw", args.rw, "--bs", args.bs, "--time", "600"], stdout=subprocess.DEVNULL) as generator:
                time.sleep(2)
                tasks = pathlib.Path(f"/proc/{tarn.pid}/task")
                core = next(task for task in tasks.iterdir() if (task / "comm").read_text().startswith("core-0"))
                mapped = [line for line in pathlib.Path(f"/proc/{tarn.pid}/maps").read_text().splitlines()
                          if line.endswith(os.path.realpath(args.tarn))]
                base, end = int(mapped[0].split("-")[0], 16), int(mapped[-1].split("-")[1].split()[0], 16)
                subprocess.run([folder / "steps", core.name, str(args.turns), folder / "trace"], check=True)
                generator.kill()
            tarn.kill()
        with open(folder / "trace") as trace:
            turns = turns_of(trace, base, end - base, places)
    plain = [turn for turn in turns if not any(word in name for name in turn for word in BY_TIME)]
    # A turn without a command is short, and one in which the generator is slow has none.
    longest = max(turn.total() for turn in plain)
    plain = [turn for turn in plain if turn.total() > longest / 2]
    if not plain:
        sys.exit("no turn without work that is due by time")
    print(f"{statistics.median(turn.total() for turn in plain):.0f} instructions, the median of {len(plain)} turns")
    everything = sum(plain, collections.Counter())
    for name, count in everything.most_common(args.functions):
        print(f"{count / len(plain):8.0f}  {name[:140]}")


if __name__ == "__main__":
    main()
