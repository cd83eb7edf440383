#!/usr/bin/env python3
"""goals.py - hold Tarn against the walls of this machine, goal by goal.

  goals.py [--pairs 15] [--time 0.4] [--only REGEX] [--tarn PATH] [--before PATH] [--json FILE]

A wall (wall.c) is the least that sockets allow: it parses PDUs and sends memory. In each pair the
generator (iload.c, on core 1) runs once against the wall and once against Tarn (both on core 0),
one after the other, and what counts is the ratio of the two: rates of a shared machine drift by a
third within minutes, the ratio of neighbours hardly does. Where the wall has two forms (blocking
calls, io_uring) the better of the two in the same pair is taken. A goal is met when the median of
the ratios is at or below it (at or above it for throughput; of processor time at depth 1 and 4 the
upper quartile). Needs root only for rows that choose the congestion control. With --before an earlier Tarn runs in every pair, too: where both miss a goal
the machine is to blame, or it was missed before. Exit status 0 also when a goal is missed: it is a measurement, not a test.
"""
import argparse, json, os, re, shutil, signal, socket, statistics, subprocess, sys, tempfile, time
from pathlib import Path

HERE = Path(__file__).resolve().parent
K, M = 1024, 1024 * 1024
IQN = "iqn.2026-11.example.tarn:goals"
PORTS = {"blk": 3311, "uring": 3312, "store": 3313, "tarn": 3314, "tarn-poll": 3315, "tarn-xfs": 3316,
         "tarn-before": 3317, "tarn-poll-before": 3318, "tarn-xfs-before": 3319}
LUNS = {"mem": 0, "file": 1, "large": 2}
PIECES = {"file": 4 * K, "large": M}  # how an image was written: as small pages of the cache, or as large folios


def row(name, rw, bs, qd, goal, figure="cpu", walls=None, lun="mem", tarn="tarn", more=(), sessions=1, cc=None, judge="median"):
    """One goal: a workload, the figure that counts, the walls it is held against, and which of the ratios has to meet it."""
    return dict(name=name, rw=rw, bs=bs, qd=qd, goal=goal, figure=figure, walls=walls or WALLS, lun=lun, tarn=tarn,
                more=list(more), sessions=sessions, cc=cc, judge=judge)


WALLS = ("blk", "uring")
STORE = ("store",)
DIGESTS = ("--hd", "--dd")
GOALS = [
    row("512 B read QD32", "randread", 512, 32, 1.15),
    row("512 B read QD128", "randread", 512, 128, 1.6),
    row("4 KiB read QD32", "randread", 4 * K, 32, 1.2),
    row("4 KiB read QD128", "randread", 4 * K, 128, 1.4),
    row("4 KiB write QD32", "randwrite", 4 * K, 32, 1.3, walls=STORE),
    row("4 KiB write QD128", "randwrite", 4 * K, 128, 1.5, walls=STORE),
    row("8 KiB read 10x10", "randread", 8 * K, 10, 1.1, sessions=10),
    row("8 KiB write 10x10", "randwrite", 8 * K, 10, 1.25, walls=STORE, sessions=10),
    row("4 KiB read QD32, digests", "randread", 4 * K, 32, 1.15, more=DIGESTS),
    row("4 KiB read QD32, digests against none", "randread", 4 * K, 32, 1.3, walls=("tarn",), more=DIGESTS),
    row("1 MiB read QD8, bbr", "seqread", M, 8, 1.0, cc="bbr"),
    row("1 MiB read QD8, bbr, MB/s", "seqread", M, 8, 0.95, figure="rate", cc="bbr"),
    row("1 MiB read QD8, reno", "seqread", M, 8, 1.0, cc="reno"),
    row("1 MiB read QD8, reno, MB/s", "seqread", M, 8, 0.95, figure="rate", cc="reno"),
    row("1 MiB write QD8, bbr", "seqwrite", M, 8, 1.15, walls=STORE, cc="bbr"),
    row("1 MiB write QD8, bbr, MB/s", "seqwrite", M, 8, 0.95, figure="rate", walls=STORE, cc="bbr"),
    row("1 MiB write QD8, reno", "seqwrite", M, 8, 1.15, walls=STORE, cc="reno"),
    row("1 MiB write QD8, reno, MB/s", "seqwrite", M, 8, 0.95, figure="rate", walls=STORE, cc="reno"),
    *(row(f"{name} QD{qd}, CPU", rw, bs, qd, 1.15, walls=walls, judge="upper quartile") for qd in (1, 4) for name, rw, bs, walls in (
        ("512 B read", "randread", 512, WALLS), ("4 KiB read", "randread", 4 * K, WALLS), ("4 KiB write", "randwrite", 4 * K, STORE))),
    row("512 B read QD1, p50", "randread", 512, 1, 1.1, figure="p50"),
    row("4 KiB read QD1, p50", "randread", 4 * K, 1, 1.1, figure="p50"),
    row("512 B read QD1, p50, busy poll", "randread", 512, 1, 0.7, figure="p50", tarn="tarn-poll"),
    row("4 KiB read QD1, p50, busy poll", "randread", 4 * K, 1, 0.7, figure="p50", tarn="tarn-poll"),
    row("4 KiB read QD32, file in the page cache", "randread", 4 * K, 32, 1.6, lun="file"),
    row("4 KiB read QD128, file in the page cache", "randread", 4 * K, 128, 2.2, lun="file"),
    row("4 KiB write QD32, file in small pages", "randwrite", 4 * K, 32, 8, walls=STORE, lun="file"),
    row("4 KiB write QD32, file in large folios", "randwrite", 4 * K, 32, 8, walls=STORE, lun="large"),
    row("4 KiB write QD32, file on XFS", "randwrite", 4 * K, 32, 4, walls=STORE, tarn="tarn-xfs"),
]
FIGURES = {  # key of iload's answer, unit, whether less is better
    "cpu": ("tgt_us_per_io_sched", "us", True),
    "rate": ("mbps", "MB/s", False),
    "p50": ("p50_us", "us", True),
}


def wait_port(port):
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"nothing listens on port {port}")


class Failed(Exception):
    """The generator could not measure; says why."""


class Servers:
    """Starts what a row needs, when the first row needs it."""

    def __init__(self, args, folder):
        self.args, self.folder, self.running, self.mounted = args, folder, {}, None

    def start(self, name, command):
        full = ["taskset", "-c", "0"] + command
        log = open(self.folder / f"{name}.log", "w")
        self.running[name] = subprocess.Popen(full, stdout=log, stderr=log)
        wait_port(PORTS[name])
        # Memory that nobody has written is one page of zeros, which no cache misses.
        self.iload(name, 0, "--rw", "seqwrite", "--bs", "1m", "--qd", "8", "--time", "1.5")

    def iload(self, name, lun, *more):
        command = ["taskset", "-c", "1", str(self.folder / "iload"), "--port", str(PORTS[name]), "--iqn", IQN, "--lun", str(lun),
                   "--pid", str(self.running[name].pid), "--span", "1g", *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode or not done.stdout.strip():
            raise Failed(f"{' '.join(command)}: {done.stderr.strip() or 'no answer'}")
        return json.loads(done.stdout)

    def pid(self, name):
        if name not in self.running:
            if name.startswith("tarn"):
                self.start(name, self.tarn(name))
            else:
                more = {"blk": [], "uring": ["--mode=uring"], "store": ["--store"]}[name]
                self.start(name, [str(self.folder / "wall"), "--port", str(PORTS[name]), "--mem", "1024"] + more)
        return self.running[name].pid

    def tarn(self, name):
        kind, is_before = name.removesuffix("-before"), name.endswith("-before")
        luns = {"tarn": lambda: ["mem:1G", self.image(self.folder, "file", name), self.image(self.folder, "large", name)],
                "tarn-poll": lambda: ["mem:1G"], "tarn-xfs": lambda: [self.image(self.xfs(), "file", name)]}[kind]()
        more = ["--busy-poll", "100"] if kind == "tarn-poll" else []
        return [self.args.before if is_before else self.args.tarn, "serve", "--cores", "1", "--listen", f"127.0.0.1:{PORTS[name]}", "--target", IQN,
                "--state", str(self.folder / f"state-{name}"), "--log", "warn"] + more + [str(lun) for lun in luns]

    def image(self, folder, kind, user):
        path = folder / f"{user}-{kind}.img"
        with open(path, "wb", buffering=0) as image:
            for _ in range(1024):
                data, piece = os.urandom(M), PIECES[kind]
                for start in range(0, M, piece):
                    image.write(data[start:start + piece])
        return path

    def xfs(self):
        if self.mounted:
            return self.mounted
        base, self.mounted = self.folder / "xfs.img", self.folder / "xfs"
        self.mounted.mkdir()
        subprocess.run(["truncate", "-s", "5G", base], check=True)
        subprocess.run(["mkfs.xfs", "-q", base], check=True)
        subprocess.run(["mount", "-o", "loop", base, self.mounted], check=True)
        return self.mounted

    def stop(self):
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait()
        if self.mounted:
            subprocess.run(["umount", self.mounted])


def measure(args, servers, goal, name, more):
    servers.pid(name)
    lun = LUNS[goal["lun"]] if name in ("tarn", "tarn-before") else 0
    answer = servers.iload(name, lun, "--rw", goal["rw"], "--bs", str(goal["bs"]), "--qd", str(goal["qd"]),
                           "--sessions", str(goal["sessions"]), "--time", str(args.time), "--warm", "0.1", *more)
    if answer["errors"]:
        raise Failed(f"{goal['name']}: {answer['errors']} errors from {name}")
    return answer


def each_wall(args, servers, goal, key):
    """The figure of each form of the wall. One form may fail: the one with io_uring mixes answers up now and then."""
    figures, failures = {}, []
    for name in goal["walls"]:
        # Where Tarn is its own wall, the wall goes without what the row adds.
        more = goal["more"] if name != "tarn" else []
        try:
            figures[name] = measure(args, servers, goal, name, more)[key]
        except Failed as failure:
            failures.append(str(failure))
    if not figures:
        sys.exit("\n".join(failures))
    return figures


def congestion_control(name):
    Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text(name)


def quartiles(ratios):
    return statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3


def spread(ratios):
    low, median, high = quartiles(ratios)
    return f"{median:.2f} ({low:.2f}..{high:.2f})"


def run(args, servers, goal):
    key, unit, less = FIGURES[goal["figure"]]
    if goal["cc"]:
        congestion_control(goal["cc"])
    ratios, walls, ours, before, rings = [], [], [], [], []
    for _ in range(args.pairs):
        best = min if less else max
        forms = each_wall(args, servers, goal, key)
        wall = best(forms.values())
        if "uring" in forms:
            rings.append(forms["uring"] / wall)
        own = measure(args, servers, goal, goal["tarn"], goal["more"])[key]
        walls.append(wall)
        ours.append(own)
        ratios.append(own / wall)
        if args.before:
            before.append(measure(args, servers, goal, goal["tarn"] + "-before", goal["more"])[key] / wall)
    median = statistics.median(ratios)
    quarters = quartiles(ratios)
    judged = {"median": median, "upper quartile": quarters[2]}[goal["judge"]]
    met = judged <= goal["goal"] if less else judged >= goal["goal"]
    print(f"{goal['name']:42} wall {statistics.median(walls):8.2f} {unit:4} tarn {statistics.median(ours):8.2f} {unit:4} "
          f"ratio {median:5.2f} ({quarters[0]:.2f}..{quarters[2]:.2f})  goal {goal['goal']:4}  {'met' if met else 'MISSED'}"
          + (f"  before {spread(before)}" if before else "") + (f"  wall with a ring {spread(rings)}" if rings else ""), flush=True)
    return dict(name=goal["name"], unit=unit, wall=walls, tarn=ours, ratios=ratios, before=before, rings=rings, median=median,
                goal=goal["goal"], met=met)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--time", type=float, default=0.4)
    parser.add_argument("--only", default="")
    parser.add_argument("--tarn", default=str(HERE.parent / "target/release/tarn"))
    parser.add_argument("--before")
    parser.add_argument("--json")
    args = parser.parse_args()
    wanted = [goal for goal in GOALS if re.search(args.only, goal["name"])]
    was = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    folder = Path(tempfile.mkdtemp(prefix="tarn-goals-", dir=os.environ.get("TMPDIR", "/var/tmp")))
    if not shutil.which("mkfs.xfs"):
        left_out = [goal for goal in wanted if goal["tarn"] == "tarn-xfs"]
        wanted = [goal for goal in wanted if goal not in left_out]
        for goal in left_out:
            print(f"{goal['name']:42} left out: needs mkfs.xfs (package xfsprogs)")
    for program in ("wall", "iload"):
        subprocess.run(["cc", "-O2", "-march=native", "-o", folder / program, HERE / f"{program}.c", "-luring", "-lpthread"], check=True)
    servers = Servers(args, folder)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    results = []
    try:
        for goal in wanted:
            results.append(run(args, servers, goal))
    except Failed as failure:
        sys.exit(str(failure))
    finally:
        servers.stop()
        if any(goal["cc"] for goal in wanted):
            congestion_control(was)
        shutil.rmtree(folder, ignore_errors=True)
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1))
    print(f"{sum(r['met'] for r in results)} of {len(results)} goals met; congestion control {was} where no other is named")


if __name__ == "__main__":
    main()
