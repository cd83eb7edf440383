#!/usr/bin/env python3
"""coalesce.py - what holding answers for a moment gives, over links of ordinary and of jumbo frames.

  coalesce.py [--rounds 5] [--time 0.4] [--tarn PATH] [--links veth-1500 veth-9000 loopback]

For each link, block size and queue depth Tarn is measured with coalescing off, adaptive and always,
one after the other, --rounds times: CPU of the target per I/O, TCP segments that it sent per I/O,
p50 and p99. A veth pair into a network name space stands for a link; segmentation is left to the
stack (TSO off), so that a segment is a frame. Wanted: adaptive within 10 % of the better of the
other two in CPU everywhere, and its p99 at depth 1 within 20 % of that without. Needs root.
"""
import argparse, json, re, shutil, socket, statistics, subprocess, sys, tempfile, time
from pathlib import Path

HERE = Path(__file__).resolve().parent
IQN = "iqn.2026-11.example.tarn:coalesce"
SPACE, OURS, THEIRS = "tarn-coalesce", "10.207.41.1", "10.207.41.2"
MODES = ("off", "adaptive", "always")
PORTS = dict(zip(MODES, (3321, 3322, 3323)))
DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128)
SIZES = (512, 4096)


def sh(*command, check=True):
    return subprocess.run([str(part) for part in command], check=check, capture_output=True, text=True)


def make_link(mtu):
    sh("ip", "netns", "add", SPACE)
    sh("ip", "link", "add", "tarn-a", "type", "veth", "peer", "name", "tarn-b", "netns", SPACE)
    inside = ("ip", "netns", "exec", SPACE)
    for prefix, name, address in (((), "tarn-a", OURS), (inside, "tarn-b", THEIRS)):
        sh(*prefix, "ip", "address", "add", f"{address}/30", "dev", name)
        sh(*prefix, "ip", "link", "set", name, "mtu", mtu, "gso_max_size", 65536, "gso_max_segs", 1, "up")
    return inside, OURS


def drop_link():
    sh("ip", "netns", "del", SPACE, check=False)
    sh("ip", "link", "del", "tarn-a", check=False)


def segments_out():
    lines = Path("/proc/net/snmp").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith("Tcp:"))
    return int(values[names.index("OutSegs")])


def start(args, folder, mode):
    config = folder / f"{mode}.toml"
    config.write_text(f'[server]\ncores = 1\ncoalescing = "{mode}"\nlog = "warn"\nstate = "{folder}/state-{mode}"\n'
                      f'[[lun]]\nid = "m"\nstore = "mem:256M"\n[[target]]\nname = "{IQN}"\n'
                      f'portals = ["0.0.0.0:{PORTS[mode]}"]\nluns = [{{ lun = 0, id = "m" }}]\n')
    log = open(folder / f"{mode}.log", "w")
    process = subprocess.Popen(["taskset", "-c", "0", args.tarn, "serve", "--config", str(config)], stdout=log, stderr=log)
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", PORTS[mode]), 1).close()
            return process
        except OSError:
            time.sleep(0.05)
    sys.exit(f"tarn with coalescing {mode}: {Path(log.name).read_text()}")


def measure(args, folder, inside, host, pid, mode, size, depth, rw="randread"):
    command = [*inside, "taskset", "-c", "1", str(folder / "iload"), "--host", host, "--port", str(PORTS[mode]), "--iqn", IQN,
               "--pid", str(pid), "--rw", rw, "--bs", str(size), "--qd", str(depth), "--span", "256m",
               "--time", str(args.time), "--warm", "0.1"]
    before = segments_out()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    sent = segments_out() - before
    if done.returncode or not done.stdout.strip():
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    answer = json.loads(done.stdout)
    # The counter runs through the warm-up, too, at the same rate. On loopback it counts both ends.
    seconds = answer["secs"] + 0.1
    return dict(cpu=answer["tgt_us_per_io_sched"], segments=sent / max(1, answer["iops"] * seconds),
                p50=answer["p50_us"], p99=answer["p99_us"])


def median(rows, key):
    return statistics.median(row[key] for row in rows)


def report(link, size, depth, rows):
    best = min(median(rows["off"], "cpu"), median(rows["always"], "cpu"))
    ratio = median(rows["adaptive"], "cpu") / best
    is_fine = ratio <= 1.1
    text = " | ".join(f"{mode} {median(rows[mode], 'cpu'):6.2f} us {median(rows[mode], 'segments'):5.2f} seg "
                      f"p50 {median(rows[mode], 'p50'):5.0f} p99 {median(rows[mode], 'p99'):5.0f}" for mode in MODES)
    more = ""
    if depth == 1:
        slower = median(rows["adaptive"], "p99") / median(rows["off"], "p99")
        is_fine = is_fine and slower <= 1.2
        more = f" p99 ratio {slower:.2f}"
    print(f"{link:10} {size:4} B QD{depth:<3} | {text} | adaptive/best {ratio:.2f}{more} {'met' if is_fine else 'MISSED'}", flush=True)
    return is_fine


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--time", type=float, default=0.4)
    parser.add_argument("--tarn", default=str(HERE.parent / "target/release/tarn"))
    parser.add_argument("--links", nargs="+", default=["veth-1500", "veth-9000", "loopback"])
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tarn-coalesce-", dir="/var/tmp"))
    sh("cc", "-O2", "-march=native", "-o", folder / "iload", HERE / "iload.c")
    processes, met, count = {}, 0, 0
    try:
        for mode in MODES:
            processes[mode] = start(args, folder, mode)
            measure(args, folder, (), "127.0.0.1", processes[mode].pid, mode, 1 << 20, 4, "seqwrite")
        for link in args.links:
            drop_link()
            inside, host = make_link(int(re.sub(r"\D", "", link))) if link.startswith("veth") else ((), "127.0.0.1")
            for size in SIZES:
                for depth in DEPTHS:
                    rows = {mode: [] for mode in MODES}
                    for _ in range(args.rounds):
                        for mode in MODES:
                            rows[mode].append(measure(args, folder, inside, host, processes[mode].pid, mode, size, depth))
                    met += report(link, size, depth, rows)
                    count += 1
    finally:
        for process in processes.values():
            process.terminate()
            process.wait()
        drop_link()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{met} of {count} rows as wanted")


if __name__ == "__main__":
    main()
