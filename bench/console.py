#!/usr/bin/env python3
"""console.py - how fast the web console shows its pages on a large server.

  console.py [--rounds 7] [--luns 300] [--sessions 1000] [--only WORD] [--json FILE]

A Tarn with so many disks in memory, 100 targets, 120 groups and so many sessions, and Chromium, as tests/browser drives
it, which opens the address of each page with nothing in its cache. First paint and first contentful paint are what the
browser tells; a page stands when nothing is being loaded any more and its table, if it has one, has its rows. All in ms
from the beginning of the navigation: the median of the rounds, with quartiles. The goal is 1 s until a page stands, and
90,000 bytes of gzip for the console as a whole. Tarn and the browser share the machine.

TARN_BIN names another tarn. Exit status 0 also when a goal is missed: it is a measurement.
"""
import argparse, gzip, json, statistics, subprocess, sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
WEB = HERE.parent / "web"
sys.path.insert(0, str(HERE.parent / "tests/lib"))
import iscsi
from tarn import IQN, Tarn, raise_descriptor_limit

GOAL_MS = 1000
GOAL_BYTES = 90_000
TARGETS, GROUPS = 100, 120
FIGURES = ("paint", "contentful", "stands")


def configuration(luns, sessions):
    """The first target exports all disks to one of the groups, each other one three of them to everyone."""
    parts = [f'[[lun]]\nid = "disk{n}"\nstore = "mem:1M"\n' for n in range(luns)]
    parts += [f'[[group]]\nid = "group{n}"\ninitiators = ["{IQN}-host{n}", "{IQN}-host{n + 200}", "198.18.{n}.0/24"]\n' for n in range(GROUPS)]
    for n in range(TARGETS):
        views = range(luns) if n == 0 else range(3)
        entries = ", ".join(f'{{ lun = {lun}, id = "disk{(n * 3 + lun) % luns}"' + (f', groups = ["group{lun % GROUPS}"]' if n == 0 else "") + " }"
                            for lun in views)
        parts.append(f'[[target]]\nname = "{IQN}{n}"\nportals = ["127.0.0.1:{{port}}"]\nluns = [{entries}]\n')
    parts.append('[admin]\nlisten = ["127.0.0.1:{port2}"]\ntls = false\n')
    # A part of the sessions is kept for those who authenticate. Sessions that only wait are asked nothing.
    parts.append(f"[limits]\nsessions_max = {sessions * 9 // 8 + 1}\nnop_interval_seconds = 0\n")
    return "\n".join(parts)


def packages():
    """Those of web/package-lock.json, unless they are there."""
    if not (WEB / "node_modules/.package-lock.json").exists():
        subprocess.run(["npm", "ci", "--no-fund", "--no-audit", "--loglevel=error"], cwd=WEB, check=True, stdout=subprocess.DEVNULL)


def size():
    """Bytes of the files that a browser is sent, each compressed."""
    return sum(len(gzip.compress(path.read_bytes(), 9)) for path in sorted((WEB / "dist").rglob("*")) if path.is_file())


def quartiles(values):
    return statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3


def shown(values):
    low, middle, high = quartiles(values)
    return f"{middle:6.0f} ({low:.0f} to {high:.0f})"


def pages(tarn, args):
    """One page after the other, with its figures."""
    token = tarn.api().post("tokens", {"name": "bench", "role": "admin"})["token"]
    command = ["node", "test/paint.mjs", "--url", f"http://127.0.0.1:{tarn.port2}", "--token", token, "--rounds", str(args.rounds), args.only]
    with subprocess.Popen(command, cwd=WEB, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            row = json.loads(line)
            yield row["page"], {name: [one[name] for one in row["figures"]] for name in FIGURES}
    if process.returncode:
        sys.exit(f"console: {' '.join(command[:2])} ended with {process.returncode}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--luns", type=int, default=300)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    args = parser.parse_args()
    packages()
    raise_descriptor_limit(args.sessions + 1000)
    results = {}
    with Tarn(config=configuration(args.luns, args.sessions)) as tarn:
        held = [iscsi.Session(tarn.port, f"{IQN}{n % (TARGETS - 1) + 1}", initiator=f"{IQN}-host{n}", timeout_s=30) for n in range(args.sessions)]
        print(f"{args.luns} LUNs, {len(tarn.api().get('sessions'))} sessions, {args.rounds} rounds; ms from the navigation, median (quartiles)")
        print(f"{'page':12} {'first paint':>22} {'first contentful':>22} {'stands':>22}  goal {GOAL_MS}")
        for page, figures in pages(tarn, args):
            results[page] = figures
            met = "met" if statistics.median(figures["stands"]) <= GOAL_MS else "MISSED"
            print(f"{page:12} {shown(figures['paint']):>22} {shown(figures['contentful']):>22} {shown(figures['stands']):>22}  {met}", flush=True)
        for session in held:
            session.connection.socket.close()
    if not results:
        sys.exit(f"console: no page has {args.only!r} in its name")
    slowest = max(results, key=lambda page: statistics.median(results[page]["stands"]))
    met = sum(statistics.median(one["stands"]) <= GOAL_MS for one in results.values())
    print(f"{met} of {len(results)} pages stand within {GOAL_MS} ms; the slowest is {slowest}")
    compressed = size()
    print(f"the console has {compressed} bytes compressed, goal {GOAL_BYTES}: {'met' if compressed <= GOAL_BYTES else 'MISSED'}")
    if args.json:
        Path(args.json).write_text(json.dumps({"pages": results, "gzip_bytes": compressed}, indent=1))


if __name__ == "__main__":
    main()
