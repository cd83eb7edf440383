#!/usr/bin/env python3
"""scale.py - what Tarn costs with more cores, sessions and LUNs, against what it costs with one.

  scale.py [--pairs 15] [--time 0.5] [--only REGEX] [--interval 120] [--json FILE]

Rows of two loads: in each pair the one runs right after the other, and what counts is the ratio of
the CPU time per I/O that Tarn's threads take (schedstat); the goal is met when the median of the
ratios is at or below it. Rows of one figure are held against the goal as they are.

A machine of two cores has none left for a generator when two reactors are busy. So there each
reactor shares its core with the generator of its session, in both loads of a pair. "One reactor"
leaves the other core idle; "two Tarns" loads both cores as two reactors do, with nothing in common
above the kernel, so the rest of that ratio is what the reactors of one Tarn cost each other.
Elsewhere Tarn is on core 0 and the generator on core 1. Nothing here says what cores on different
sockets do to each other.

Idle sessions are measured over one interval of the keep-alive and a tenth of it more, so that each is
pinged, whenever it logged in.
TARN_BIN names another tarn. Exit status 0 also when a goal is missed: it is a measurement.
"""
import argparse, json, os, re, selectors, shutil, signal, statistics, subprocess, sys, tempfile, time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests/lib"))
import iscsi
from tarn import IQN, Tarn, many_luns, raise_descriptor_limit

K = 1024
LUNS, SESSIONS, SESSIONS_FEW = 1000, 10_000, 100
FLAT = 0x4000   # a LUN in flat addressing, which those from 256 on need (SAM-5)
TEN_UNITS = "160m"
# Generators start so far apart, since sessions take reactors in the order they come. They measure the same span of time.
APART_S = 0.1

# name: (stores or a configuration, its reactors, the cores it may use)
TARNS = {
    "one": (["mem:16M"], 1, "0"),
    "many": (many_luns(LUNS), 1, "0"),
    "ten": ([f"mem:{TEN_UNITS.upper()}"] + ["mem:16M"] * 10, 1, "0"),
    "two": (["mem:16M"], 2, "0,1"),
    "left": (["mem:16M"], 1, "0"),
    "right": (["mem:16M"], 1, "1"),
}


def gen(tarn, cpu, lun=0, span="16m", more=()):
    """One generator: the Tarn it loads and the core it runs on."""
    return dict(tarn=tarn, cpu=cpu, more=["--lun", str(lun), "--span", span, *more])


READ = ["--rw", "randread", "--bs", str(4 * K), "--qd", "32"]
WRITE = ["--rw", "randwrite", "--bs", str(4 * K), "--qd", "32"]
SHARED = ["--rw", "randread", "--bs", str(4 * K), "--qd", "8", "--sessions", "10"]
ONE_REACTOR = [gen("left", 0)]
TWO_TARNS = [gen("left", 0), gen("right", 1)]
TWO_REACTORS = [gen("two", 0), gen("two", 1)]
PAIRS = [   # name, workload, the load it is held against, the load, goal
    ("two reactors against one reactor, 4 KiB read", READ, ONE_REACTOR, TWO_REACTORS, 1.1),
    ("two reactors against one reactor, 4 KiB write", WRITE, ONE_REACTOR, TWO_REACTORS, 1.1),
    ("two reactors against two Tarns, 4 KiB read", READ, TWO_TARNS, TWO_REACTORS, 1.1),
    ("two reactors against two Tarns, 4 KiB write", WRITE, TWO_TARNS, TWO_REACTORS, 1.1),
    ("LUN 0 of 1,000 against the only LUN", READ, [gen("one", 1)], [gen("many", 1)], 1.05),
    ("LUN 999 of 1,000 against the only LUN", READ, [gen("one", 1)], [gen("many", 1, FLAT | 999)], 1.05),
    ("one LUN against ten, 10 sessions", SHARED, [gen("ten", 1, 1, more=["--luns", "10"])], [gen("ten", 1, 0, TEN_UNITS)],
     1.05),
]
# Memory that nobody has written is one page of zeros, which no cache misses: these are written before.
FILLS = {"many": [gen("many", 1), gen("many", 1, FLAT | 999)],
         "ten": [gen("ten", 1, 0, TEN_UNITS), gen("ten", 1, 1, more=["--luns", "10", "--sessions", "10"])]}


class Failed(Exception):
    """The generator could not measure; says why."""


class Bench:
    """Starts what a row needs, when the first row needs it."""

    def __init__(self, args, folder):
        self.args, self.iload, self.running = args, folder / "iload", {}
        subprocess.run(["cc", "-O2", "-march=native", "-o", self.iload, HERE / "iload.c"], check=True)

    def tarn(self, name):
        if name not in self.running:
            stores, reactors, cores = TARNS[name]
            source = dict(config=stores) if isinstance(stores, str) else {}
            self.running[name] = started(*([] if source else stores), cores=cores, reactors=reactors, **source)
            for fill in FILLS.get(name, [gen(name, int(cores[-1]))]):
                self.load([fill], ["--rw", "seqwrite", "--bs", "1m", "--qd", "4"], 0.5)
        return self.running[name]

    def load(self, generators, workload, seconds):
        """Runs the generators at once. Returns the CPU time of their Tarns per I/O, in us."""
        tarns = [self.tarn(g["tarn"]) for g in generators]
        processes = []
        for number, (g, tarn) in enumerate(zip(generators, tarns)):
            command = ["taskset", "-c", str(g["cpu"]), str(self.iload), "--port", str(tarn.port), "--iqn", IQN, "--pid",
                       str(tarn.process.pid), "--first", str(1 + 100 * number), *workload, "--time", str(seconds), "--warm",
                       str(0.3 - APART_S * number), *g["more"]]
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            time.sleep(APART_S)
        answers = [answer(process) for process in processes]
        # Every generator tells the CPU time of its whole Tarn: take it once for each.
        busy = {g["tarn"]: a["tgt_us_per_io_sched"] * a["iops"] for g, a in zip(generators, answers)}
        return sum(busy.values()) / sum(a["iops"] for a in answers)

    def stop(self):
        for tarn in self.running.values():
            tarn.close()


def started(*stores, cores, reactors, config=None):
    arguments = ["--cores", str(reactors), "--log", "warn"]
    return Tarn(*stores, config=config, arguments=arguments, prefix=["taskset", "-c", cores]).start()


def answer(process):
    out, errors = process.communicate(timeout=60)
    if process.returncode or not out.strip():
        raise Failed(f"{' '.join(process.args)}: {errors.strip() or 'no answer'}")
    return json.loads(out)


def quarters(values):
    return statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3


def verdict(name, middle, values, goal):
    q = quarters(values)
    median = statistics.median(values)
    met = median <= goal
    print(f"{name:46} {middle} {median:6.2f} ({q[0]:.2f}..{q[2]:.2f})  goal {goal:4}  {'met' if met else 'MISSED'}", flush=True)
    return dict(name=name, values=values, median=median, goal=goal, met=met)


def run_pair(bench, name, workload, base, load, goal):
    before, after = [], []
    for _ in range(bench.args.pairs):
        before.append(bench.load(base, workload, bench.args.time))
        after.append(bench.load(load, workload, bench.args.time))
    ratios = [b / a for a, b in zip(before, after)]
    middle = f"{statistics.median(before):6.2f} us -> {statistics.median(after):6.2f} us  ratio"
    return verdict(name, middle, ratios, goal)


def start_times(bench):
    """Seconds from the process to the first accepted connection, 1,000 LUNs, identities to be made."""
    values = []
    for _ in range(bench.args.pairs):
        tarn = started(cores="0,1", reactors=2, config=many_luns(LUNS))
        values.append(tarn.start_seconds)
        tarn.close()
    return values


class Idle:
    """A Tarn with sessions that do nothing but answer pings."""

    def __init__(self, count, interval_s, answering):
        limits = f"sessions_max = {SESSIONS * 9 // 8 + 1}\nnop_interval_seconds = {interval_s}"
        self.tarn = started(cores="0", reactors=1, config=many_luns(1, limits=limits))
        before = self.tarn.rss_bytes()
        self.sessions = [iscsi.Session(self.tarn.port, IQN, initiator=f"{IQN}-{n}", timeout_s=30) for n in range(count)]
        self.bytes_each = (self.tarn.rss_bytes() - before) / count
        for session in self.sessions:
            answering.register(session.connection.socket, selectors.EVENT_READ, session)
        self.cpu_before = self.tarn.cpu_seconds()

    def percent(self, seconds):
        return 100 * (self.tarn.cpu_seconds() - self.cpu_before) / seconds

    def pings(self):
        return sum(session.pings for session in self.sessions)


_idle = {}


def idle(bench):
    """Both counts of sessions at once: what is idle does not disturb."""
    if not _idle:
        raise_descriptor_limit(SESSIONS + SESSIONS_FEW + 1000)
        interval = bench.args.interval
        with selectors.DefaultSelector() as answering:
            tarns = {count: Idle(count, interval, answering) for count in (SESSIONS, SESSIONS_FEW)}
            start = time.monotonic()
            while (left := start + interval * 1.1 - time.monotonic()) > 0:
                for key, _ in answering.select(left):
                    key.data.pump()
            seconds = time.monotonic() - start
        for count, one in tarns.items():
            _idle[count] = (one.percent(seconds), one.bytes_each / K)
            print(f"({count} sessions answered {one.pings()} pings in {seconds:.0f} s)")
            one.tarn.close()
    return _idle


SINGLES = [     # name, unit, figures, goal
    ("start with 1,000 LUNs", "s", start_times, 1.0),
    ("idle, 100 sessions", "% of a core", lambda bench: [idle(bench)[SESSIONS_FEW][0]], 0.1),
    ("idle, 10,000 sessions", "% of a core", lambda bench: [idle(bench)[SESSIONS][0]], 0.5),
    ("memory of an idle session", "KiB", lambda bench: [idle(bench)[SESSIONS][1]], 64),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--time", type=float, default=0.5)
    parser.add_argument("--only", default="")
    parser.add_argument("--interval", type=int, default=120, help="seconds between the pings of an idle session")
    parser.add_argument("--json")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tarn-scale-", dir=os.environ.get("TMPDIR", "/var/tmp")))
    raise_descriptor_limit(16 * LUNS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    bench, results = Bench(args, folder), []
    try:
        for name, *row in PAIRS:
            if re.search(args.only, name):
                results.append(run_pair(bench, name, *row))
        for name, unit, figures, goal in SINGLES:
            if re.search(args.only, name):
                results.append(verdict(name, f"{unit:>34}", figures(bench), goal))
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
