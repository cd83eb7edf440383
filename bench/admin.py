#!/usr/bin/env python3
"""admin.py - what an administration that is unwell costs the disks.

  admin.py [--pairs 15] [--time 0.5] [--only REGEX] [--json FILE]

In each pair a load runs beside an administration that does nothing, then beside one that is blocked in
a system call, or panics and is started again, or is flooded with questions; what counts is the ratio of
the CPU time per I/O of Tarn's cores (schedstat of the threads `core-N`), and that no command fails. The
goal is met when the median of the ratios is at or below it. Who floods shares the other core with the
generator, and does so in both halves of the pair: in the first half they ask a daemon of their own.

TARN_BIN names another tarn. Exit status 0 also when a goal is missed: it is a measurement.
"""
import argparse, contextlib, json, os, re, shutil, subprocess, sys, tempfile, threading, time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests/lib"))
import admin
from scale import Failed, answer, verdict
from tarn import IQN, Tarn

GOAL = 1.05
ASKED = ["/metrics", "stats", "sessions", "targets", "status", "luns", "config/effective", "openapi.json"]
READ = ["--rw", "randread", "--bs", "4096", "--qd", "32"]
WRITE = ["--rw", "randwrite", "--bs", "4096", "--qd", "32"]


def thread(tarn, comm):
    tasks = Path(f"/proc/{tarn.process.pid}/task").iterdir()
    return next(task.name for task in tasks if (task / "comm").read_text().strip() == comm)


@contextlib.contextmanager
def traced(tarn, injection):
    """The thread of the administration with a system call that goes wrong."""
    process = subprocess.Popen(["strace", "-p", thread(tarn, "admin"), "-o", "/dev/null", "-e", "trace=epoll_wait", "-e",
                                f"inject=epoll_wait:{injection}"], stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        if "attached" not in line:
            raise Failed(f"strace: {line}")
        with contextlib.suppress(OSError):
            admin.Api(tarn.socket, timeout_s=0.2).ask("GET", "/healthz")    # It has to come to the call.
        yield
    finally:
        process.kill()
        process.wait()


def blocked(tarn, _other):
    return traced(tarn, "delay_enter=600s")


def panicking(tarn, _other):
    return traced(tarn, "error=EBADF")


@contextlib.contextmanager
def flooded(tarn, _other):
    """Without end, by one process for each question."""
    script = ("import sys; sys.path.insert(0, sys.argv[1]); import admin\n"
              "while True:\n"
              "    try:\n"
              "        with admin.Api(sys.argv[2]) as api:\n"
              "            while True: api.ask('GET', sys.argv[3])\n"
              "    except OSError: pass\n")
    askers = [subprocess.Popen(["taskset", "-c", "1", sys.executable, "-c", script, str(HERE.parent / "tests/lib"), str(tarn.socket),
                                path]) for path in ASKED]
    try:
        time.sleep(0.3)
        yield
    finally:
        for one in askers:
            one.kill()
            one.wait()


def flooded_elsewhere(_tarn, other):
    return flooded(other, None)


def nothing(_tarn, _other):
    return contextlib.nullcontext()


ROWS = [    # name, workload, before, after
    ("blocked, 4 KiB read", READ, nothing, blocked),
    ("blocked, 4 KiB write", WRITE, nothing, blocked),
    ("panicking, 4 KiB read", READ, nothing, panicking),
    ("panicking, 4 KiB write", WRITE, nothing, panicking),
    ("flooded, 4 KiB read", READ, flooded_elsewhere, flooded),
    ("flooded, 4 KiB write", WRITE, flooded_elsewhere, flooded),
]


class Bench:
    def __init__(self, args, folder):
        self.args, self.iload = args, folder / "iload"
        subprocess.run(["cc", "-O2", "-march=native", "-o", self.iload, HERE / "iload.c"], check=True)
        self.tarn, self.other = (Tarn("mem:16M", arguments=["--cores", "1", "--log", "error"]).start() for _ in range(2))
        for tarn, core in ((self.tarn, 0), (self.other, 1)):
            subprocess.run(["taskset", "-cp", str(core), thread(tarn, "core-0")], check=True, stdout=subprocess.DEVNULL)
        self.load(["--rw", "seqwrite", "--bs", "1m", "--qd", "4"])

    def load(self, workload):
        """The CPU time of the cores per I/O, in us."""
        command = ["taskset", "-c", "1", str(self.iload), "--port", str(self.tarn.port), "--iqn", IQN, "--pid", str(self.tarn.process.pid),
                   "--threads", "core-", "--span", "16m", "--warm", "0.2", "--time", str(self.args.time), *workload]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return answer(process)["tgt_us_per_io_sched"]

    def row(self, name, workload, before, after):
        figures = ([], [])
        for _ in range(self.args.pairs):
            for state, half in zip((before, after), figures):
                with state(self.tarn, self.other):
                    half.append(self.load(workload))
        middles = [sorted(half)[len(half) // 2] for half in figures]
        middle = f"{middles[0]:6.2f} us -> {middles[1]:6.2f} us  ratio"
        return verdict(name, middle, [b / a for a, b in zip(*figures)], GOAL)

    def stop(self):
        for tarn in (self.tarn, self.other):
            tarn.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--time", type=float, default=0.5)
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tarn-admin-", dir=os.environ.get("TMPDIR", "/var/tmp")))
    bench = Bench(args, folder)
    try:
        results = [bench.row(*row) for row in ROWS if re.search(args.only, row[0])]
    except Failed as failure:
        sys.exit(str(failure))
    finally:
        bench.stop()
        shutil.rmtree(folder, ignore_errors=True)
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1))
    print(f"{sum(r['met'] for r in results)} of {len(results)} goals met")


if __name__ == "__main__":
    main()
