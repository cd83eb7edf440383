#!/usr/bin/env python3
"""table.py RESULTS.json - what `tarn bench --json` measured of several targets, as a table in Markdown.

For each point: the first target's figures, and of each other one the ratio to the first, taken within rounds: CPU of the
target per I/O and rate. Least and greatest ratio of all rounds stand behind the median.
"""
import json, sys

KEYS = (("target_cpu_us_per_io", "CPU per I/O"), ("iops", "rate"))


def size(count):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count // factor} {unit}"
    return f"{count} B"


def name(point):
    sessions = f" x {point['sessions']} sessions" if point["sessions"] > 1 else ""
    return f"{point['rw']} {size(point['block_bytes'])}, depth {point['iodepth']}{sessions}"


def figure(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio(summary, is_cost):
    """A peer's figure over ours; bold where the peer wins."""
    if summary is None:
        return "-"
    wins = summary["median"] < 1 if is_cost else summary["median"] > 1
    text = f"{figure(summary['median'])} ({figure(summary['min'])} to {figure(summary['max'])})"
    return f"**{text}**" if wins else text


def main():
    results = json.load(open(sys.argv[1]))
    first, *others = [target["label"] for target in results["targets"]]
    host = results["host"]
    rounds = len(results["points"][0]["targets"][0]["rounds"])
    kernel = ".".join(host["kernel"].split(".")[:2])
    pinned = ", ".join(f"{target['label']} on CPU {target['cpus']}" for target in results["targets"])
    print(f"{host['cpu_model']}, {host['cpus']} CPUs, Linux {kernel}, {host['congestion_control']}; {pinned}, "
          f"generator on CPU {', '.join(map(str, host['pinned_cpus']))}; median of {rounds} rounds with least and greatest; bold where the other target is ahead.\n")
    heads = [f"{first}: I/Os per second", f"{first}: p50", f"{first}: CPU per I/O"]
    heads += [f"{other}: {what} against {first}" for other in others for _, what in KEYS]
    print("| point | " + " | ".join(heads) + " |")
    print("|---|" + "--:|" * len(heads))
    for point in results["points"]:
        ours, *theirs = point["targets"]
        summary = {key: value["median"] for key, value in ours["summary"].items()}
        cells = [f"{summary['iops']:.0f}", f"{figure(summary['p50_us'])} us", f"{figure(summary['target_cpu_us_per_io'])} us"]
        for target in theirs:
            ratios = target["ratio_to_first"]
            cells += [ratio(ratios.get(key), key != "iops") for key, _ in KEYS]
        print(f"| {name(point)} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
