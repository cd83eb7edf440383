#!/usr/bin/env python3
"""hyperscsi.py - HyperSCSI on a wire of Ethernet between two namespaces, beside Tarn's iSCSI and tgt on the same wire.

  hyperscsi.py [--suite all|papers] [--only REGEX] [--rounds 5] [--time 2] [--size BYTES] [--json FILE]

Each target is measured in turn, A B C A B C, --rounds times; a figure is the median with the quartiles. --suite papers is what
the paper of 2002 measured: frames, gigabit and mixed. --only chooses parts:

  fast      Fast Ethernet: 64 KiB and 1 MiB, reads and writes, crc, at MTU 1500 and 9000; encrypt at 1500. The rig's ceiling is
            what raw full frames carry in the same minute
  loss      the same with 1 % and 5 % of all frames lost at each end
  gigabit   RAID0 of 8 devices over 2 servers by `tarn attach`, at MTU 1500 and 9000
  latency   4 KiB reads one at a time, beside one raw frame out and as many full frames back
  cpu       4 KiB reads at depth 32: CPU time of both ends for each
  tail      the last frame of each write is lost once: how much longer the writes take
  mixed     Fast Ethernet with 10 to 90 % of foreign frames of 512 bytes, and beside a stream of TCP
  wireless  30 Mbit/s, each way 5 ms give or take 4 and 2 % of all frames lost in bursts, by a relay: 64 KiB reads and writes, and a
            gap of 3 s
  incast    8 servers send to one client through a queue of 64 KiB
  storm     Fast Ethernet with 10,000 questions of discovery a second, each from another station: what reads and writes keep,
            and the CPU time of the server
  frames    frames on the wire, and how often the processes of both ends give up a processor, for each GiB of --size bytes
            (the paper's file, 616,137,020 bytes) read at MTU 1500 and 9000; the paper counts interrupts, which this wire has not

All run on this machine, so both ends share its processors. Needs no root, but tgt does (it is left out without). TARN_BIN names
another tarn. This is a measurement: the exit status is 0 also when a goal is missed.
"""
import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests/lib"))
import ethernet
from ethernet import ADDRESSES, MACS, NAMES, Link
from hyperscsi import question
from tarn import BINARY, IQN

CLIENT, SERVER = 0, 1
GROUP, PASSWORD = "bench", "correct horse battery"
PORT, TGT_PORT, TGT_CONTROL = 3260, 3261, 78
TGT_IQN = "iqn.2024-01.bench:tgt"
DEVICES, MIB = 8, 1 << 20
FAST, GIGABIT = dict(rate="100mbit"), dict(rate="1gbit", burst="1m", limit="2m")
# Of the file that the paper copies.
PAPER_BYTES = 616_137_020
SUITES = {"all": ".", "papers": "^(frames|gigabit|mixed)$"}
ROWS = []


def row(part, name, unit, values, goal=None, at_least=True):
    """One line of the table."""
    median = statistics.median(values) if values else None
    # Quartiles of two values would lie beyond them.
    ends = (min(values, default=None), median, max(values, default=None))
    low, _, high = statistics.quantiles(values, n=4) if len(values) > 2 else ends
    met = None if goal is None or median is None else (median >= goal if at_least else median <= goal)
    ROWS.append(dict(part=part, name=name, unit=unit, values=values, median=median, goal=goal, met=met))
    shown = "no answer" if median is None else f"{median:9.3f} {unit} ({low:.3f}..{high:.3f})"
    held = "" if goal is None else f"  goal {'>=' if at_least else '<='} {goal:.3f}  {'met' if met else 'MISSED'}"
    print(f"{part:8} {name:52} {shown}{held}", flush=True)


class Rig:
    """The wire, a Tarn and a tgt at its far end, and what is needed to use them."""

    def __init__(self, arguments):
        self.arguments, self.begun = arguments, 0
        self.stack = contextlib.ExitStack()
        self.path = Path(tempfile.mkdtemp(prefix="hyperscsi-bench."))
        self.stack.callback(shutil.rmtree, self.path, ignore_errors=True)
        self.link = self.stack.enter_context(Link())
        self.frames = self.path / "frames"
        subprocess.run(["cc", "-O2", "-o", self.frames, HERE / "frames.c"], check=True)
        self.password = self.path / "password"
        self.password.touch(mode=0o600)
        self.password.write_text(PASSWORD + "\n")

    def begin(self, end, *command, name="process"):
        """Starts a process that ends with the rig, or earlier by stop()."""
        log = open(self.path / f"{name}.log", "ab")
        process = self.link.start(end, *command, stdout=log, stderr=subprocess.STDOUT)
        self.stack.callback(log.close)
        self.stack.callback(stop, process)
        return process

    def serve(self, interface=NAMES[SERVER], name="tarn", devices=DEVICES, iscsi=True, size="256M", profile="wired"):
        """A Tarn with devices d0, d1... in memory at this interface."""
        text = "".join(f'[[lun]]\nid = "d{n}"\nstore = "mem:{size}"\n' for n in range(devices))
        if iscsi:
            luns = ", ".join(f'{{ lun = {n}, id = "d{n}" }}' for n in range(devices))
            text += f'[[target]]\nname = "{IQN}"\nportals = ["{ADDRESSES[SERVER]}:{PORT}"]\nluns = [{luns}]\n'
        text += f'[[hyperscsi.group]]\nname = "{GROUP}"\ninterface = "{interface}"\npassword_file = "{self.password}"\n'
        text += f'profile = "{profile}"\n'
        text += "".join(f'[[hyperscsi.group.device]]\nid = "d{n}"\nlevel = "none"\n' for n in range(devices))
        text += f'[server]\ncores = 1\nstate = "{self.path}/{name}"\n[admin]\nsocket = "{self.path}/{name}.sock"\n'
        config = self.path / f"{name}.toml"
        config.write_text(text)
        # Clients choose a server by the name of its host.
        named = ("unshare", "-u", "sh", "-c", 'echo "$0" >/proc/sys/kernel/hostname; exec "$@"', name)
        process = self.begin(SERVER, *named, BINARY, "serve", "--config", config, "--log", "warn", name=name)
        log = self.path / f"{name}.log"
        wait(lambda: "hyperscsi group" in log.read_text(), f"{name} serves", log)
        return process

    def serve_store(self, store):
        """A Tarn with one device and one LUN, which is this store, in place of the other one; `tarn` and its iSCSI port."""
        stop(self.tarn)
        self.begun += 1
        name = f"tarn{self.begun}"
        path = self.path / f"{name}.toml"
        path.write_text(f'[server]\ncores = 1\nstate = "{self.path}/{name}"\n[admin]\nsocket = "{self.path}/{name}.sock"\n'
                        f'[[lun]]\nid = "d0"\nstore = "{store}"\n'
                        f'[[target]]\nname = "{IQN}"\nportals = ["{ADDRESSES[SERVER]}:{PORT}"]\nluns = [{{ lun = 0, id = "d0" }}]\n'
                        f'[[hyperscsi.group]]\nname = "{GROUP}"\ninterface = "{NAMES[SERVER]}"\npassword_file = "{self.password}"\n'
                        '[[hyperscsi.group.device]]\nid = "d0"\nlevel = "none"\n')
        self.tarn = self.begin(SERVER, BINARY, "serve", "--config", path, "--log", "warn", name=name)
        log = self.path / f"{name}.log"
        wait(lambda: "hyperscsi group" in log.read_text(), f"{name} serves", log)

    def serve_tgt(self):
        """tgt with a disk on tmpfs; None where it cannot be."""
        if os.getuid() or not shutil.which("tgtd"):
            return None
        image = Path("/dev/shm") / f"{self.path.name}.img"
        with open(image, "wb") as file:
            file.truncate(256 * MIB)
        self.stack.callback(image.unlink)
        process = self.begin(SERVER, "tgtd", "-f", "-C", TGT_CONTROL, "-t", 1, "--iscsi",
                             f"portal={ADDRESSES[SERVER]}:{TGT_PORT},nop_interval=0", name="tgt")
        admin = ("tgtadm", "-C", TGT_CONTROL, "--lld", "iscsi")
        self.stack.callback(lambda: self.link.run(SERVER, *admin, "--op", "delete", "--mode", "system", check=False))
        ask = lambda *how: self.link.run(SERVER, *admin, *how, check=False).returncode == 0
        wait(lambda: ask("--op", "new", "--mode", "target", "--tid", 1, "-T", TGT_IQN), "tgt serves", self.path / "tgt.log")
        for pair in ("MaxRecvDataSegmentLength=262144", "MaxXmitDataSegmentLength=262144", "FirstBurstLength=262144",
                     "MaxBurstLength=16776192", "InitialR2T=No", "ImmediateData=Yes", "MaxOutstandingR2T=16"):
            key, value = pair.split("=")
            ask("--op", "update", "--mode", "target", "--tid", 1, "-n", key, "-v", value)
        ok = ask("--op", "new", "--mode", "logicalunit", "--tid", 1, "--lun", 1, "-b", image) and \
            ask("--op", "bind", "--mode", "target", "--tid", 1, "-I", "ALL")
        return process if ok else None

    def targets(self, level="crc"):
        """Their URLs with their processes, the first one HyperSCSI."""
        urls = {f"hyperscsi {level}": (f"hyperscsi://{GROUP}/d0?interface={NAMES[CLIENT]}&level={level}", self.tarn.pid),
                "iscsi": (f"iscsi://{ADDRESSES[SERVER]}:{PORT}/{IQN}/0", self.tarn.pid)}
        if self.tgt:
            urls["tgt"] = (f"iscsi://{ADDRESSES[SERVER]}:{TGT_PORT}/{TGT_IQN}/1", self.tgt.pid)
        return urls

    def bench(self, targets, *how, rounds=None, seconds=None, end=CLIENT):
        """Points of `tarn bench` as its JSON has them."""
        out = self.path / "bench.json"
        with contextlib.suppress(FileNotFoundError):
            out.unlink()
        pids = [part for _, pid in targets.values() for part in ("--pid", pid)]
        command = [BINARY, "bench", "--overwrite", "--span", "128m", "--runtime", seconds or self.arguments.time, "--warmup", 1,
                   "--repeat", rounds or self.arguments.rounds, "--json", out, "--password-file", self.password, *how, *pids]
        done = self.link.run(end, *command, *(f"{name}={url}" for name, (url, _) in targets.items()), check=False, limit_s=1800)
        if not out.exists():
            print(f"         tarn bench: {done.stderr.strip()}", flush=True)
            return []
        report = json.loads(out.read_text())
        if report["failure"]:
            print(f"         tarn bench: {report['failure']}", flush=True)
        return report["points"]

    def ceiling(self, mtu, back=False):
        """Bytes a second that raw full frames carry, of which each has a header of 3."""
        source, to = (CLIENT, SERVER) if back else (SERVER, CLIENT)
        sink = self.link.start(to, self.frames, "sink", NAMES[to], 2, stdout=subprocess.PIPE, text=True)
        time.sleep(0.3)
        self.link.run(source, self.frames, "flood", NAMES[source], MACS[to], mtu, 3)
        rate = json.loads(sink.communicate(timeout=20)[0])["bytes_per_second"]
        return rate * (mtu - 3) / mtu

    def set_mtu(self, mtu):
        """The server keeps the MTU that the interface had when it began, so another one begins."""
        for end, name in enumerate(NAMES):
            self.link.run(end, "ip", "link", "set", name, "mtu", mtu)
        stop(self.tarn)
        self.begun += 1
        self.tarn = self.serve(name=f"tarn{self.begun}")


def stop(process):
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait(is_so, what, log, limit_s=20):
    end = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit(f"{what}: never\n{log.read_text() if log.exists() else ''}")
        time.sleep(0.05)


def figures(point, name, figure):
    for target in point["targets"]:
        if target["label"] == name:
            return [run["figures"][figure] for run in target["rounds"] if figure in run["figures"]]
    return []


def size_of(point):
    return f"{point['rw']} {point['block_bytes'] // 1024} KiB"


# Parts.


def throughput(rig, part, targets, goal, note, depth=8, sizes="64k,1m"):
    for point in rig.bench(targets, "--rw", "read,write", "--bs", sizes, "--iodepth", depth):
        for name in targets:
            values = [value for value in figures(point, name, "mb_per_s")]
            row(part, f"{name}, {size_of(point)}, {note}", "MB/s", values, goal if name.startswith("hyperscsi") else None)


def part_fast(rig):
    rig.link.shape(**FAST)
    for mtu, level, goal in ((1500, "crc", None), (9000, "crc", 12.38), (1500, "encrypt", 11.92)):
        rig.set_mtu(mtu)
        ceilings = [rig.ceiling(mtu) / 1e6 for _ in range(3)]
        row("fast", f"raw frames, MTU {mtu}", "MB/s", ceilings)
        goal = goal or 0.995 * statistics.median(ceilings)
        throughput(rig, "fast", rig.targets(level), goal, f"MTU {mtu}")
    rig.set_mtu(1500)
    rig.link.shape(None)


def part_loss(rig):
    rig.link.shape(**FAST)
    for percent, goal in ((1, 11.4), (5, 10.5)):
        rig.link.lose(percent, what="")
        throughput(rig, "loss", rig.targets(), goal, f"{percent} % lost", sizes="64k")
    rig.link.lose(0)
    rig.link.shape(None)


def part_gigabit(rig):
    """Each server has an interface of its own (macvlan) at the same end of the wire, as what is for one on top comes in below, too."""
    link, hosts = rig.link, ("first", "second")
    for host in hosts:
        link.run(SERVER, "ip", "link", "add", "link", NAMES[SERVER], "name", host, "type", "macvlan", "mode", "bridge")
    for mtu, goal in ((1500, 120), (9000, 123)):
        rig.set_mtu(mtu)
        stop(rig.tarn)
        for host in hosts:
            link.run(SERVER, "ip", "link", "set", host, "mtu", mtu, "up")
        servers = [rig.serve(host, f"{host}{mtu}", DEVICES // 2, iscsi=False) for host in hosts]
        link.shape(**GIGABIT)
        row("gigabit", f"raw frames, MTU {mtu}", "MB/s", [rig.ceiling(mtu) / 1e6 for _ in range(3)])
        found = json.loads(link.run(CLIENT, BINARY, "discover", "hyperscsi", "--interface", NAMES[CLIENT], "--group", GROUP,
                                    "--json").stdout)
        urls = [f"hyperscsi://{GROUP}/d{n}?server={one['server']}&level=crc" for n in range(DEVICES // 2) for one in found]
        socket = rig.path / "nbd.sock"
        attach = rig.begin(CLIENT, BINARY, "attach", "--as", f"nbd:{socket}", "--interface", NAMES[CLIENT], "--password-file",
                           rig.password, "--stripe", "64k", "--log", "warn", *urls, name="attach")
        wait(socket.exists, "the disk is attached", rig.path / "attach.log")
        throughput(rig, "gigabit", {"hyperscsi x8": (f"nbd+unix:///?socket={socket}", attach.pid)}, goal, f"MTU {mtu}", 16, "1m")
        stop(attach)
        for server in servers:
            stop(server)
        link.shape(None)
    for host in hosts:
        link.run(SERVER, "ip", "link", "del", host)
    rig.set_mtu(1500)


def part_latency(rig):
    """Raw and protocols in turn: ratios hold when the speed of the machine drifts."""
    rounds = max(7, rig.arguments.rounds)
    pong = rig.begin(SERVER, rig.frames, "pong", NAMES[SERVER], 3, 1500)
    time.sleep(0.2)
    raw, p50 = [], {}
    for _ in range(rounds):
        out = rig.link.run(CLIENT, rig.frames, "ping", NAMES[CLIENT], MACS[SERVER], 3, 20000).stdout
        raw.append(json.loads(out)["p50_us"])
        for point in rig.bench(rig.targets(), "--rw", "randread", "--bs", "4k", "--iodepth", 1, rounds=1, seconds=1):
            for name in rig.targets():
                p50.setdefault(name, []).extend(figures(point, name, "p50_us"))
    stop(pong)
    row("latency", "one raw frame out, three full ones back, p50", "us", raw)
    for name, values in p50.items():
        row("latency", f"{name}, 4 KiB read, p50", "us", values)
    ours = p50.get("hyperscsi crc", [])
    ratios = lambda others: [a / b for a, b in zip(ours, others)]
    row("latency", "hyperscsi over raw frames, of pairs", "", ratios(raw), 1.5, at_least=False)
    row("latency", "hyperscsi over iscsi, of pairs", "", ratios(p50.get("iscsi", [])), 1.0, at_least=False)


def schedstat(pid):
    """Processor time of a process of one thread, in seconds."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def frames_at_depth(rig, mtu):
    """What frames alone take of both ends for a read of 4 KiB at depth 32, in us: requests of all that are free share a frame, pieces share
    one where they fit, each end takes and gives as many frames in a call as there are."""
    each, pieces = (4096, 1) if mtu >= 4192 else (1366, 3)
    answers = rig.begin(SERVER, rig.frames, "answer", NAMES[SERVER], each)
    time.sleep(0.3)
    asks = rig.link.start(CLIENT, rig.frames, "ask", NAMES[CLIENT], MACS[SERVER], each, 32 * pieces, 2, stdout=subprocess.PIPE, text=True)
    time.sleep(0.4)
    before, own = schedstat(answers.pid), schedstat(asks.pid)
    time.sleep(1.2)
    spent = schedstat(answers.pid) - before, schedstat(asks.pid) - own
    report = json.loads(asks.communicate(timeout=20)[0])
    stop(answers)
    return sum(spent) / 1.2 * report["seconds"] / (report["pieces"] / pieces) * 1e6


def part_cpu(rig):
    for mtu in (1500, 9000):
        rig.set_mtu(mtu)
        walls = [frames_at_depth(rig, mtu) for _ in range(rig.arguments.rounds)]
        row("cpu", f"frames alone, read 4 KiB, MTU {mtu}, both ends", "us", walls)
        for point in rig.bench(rig.targets(), "--rw", "randread,randwrite", "--bs", "4k", "--iodepth", 32):
            both = {}
            for name in rig.targets():
                row("cpu", f"{name}, {size_of(point)}, MTU {mtu}", "kIOPS", [n / 1e3 for n in figures(point, name, "iops")])
                ends = [figures(point, name, f"{end}_cpu_us_per_io") for end in ("target", "generator")]
                both[name] = [a + b for a, b in zip(*ends)]
                row("cpu", f"{name}, {size_of(point)}, MTU {mtu}, both ends", "us", both[name])
            ratio = [a / b for a, b in zip(both["hyperscsi crc"], both["iscsi"])]
            row("cpu", f"hyperscsi over iscsi, {size_of(point)}, MTU {mtu}", "", ratio, 1.2, at_least=False)
            if point["rw"] == "randread":
                row("cpu", f"frames alone over iscsi, {size_of(point)}, MTU {mtu}", "", [a / b for a, b in zip(walls, both["iscsi"])])
    rig.set_mtu(1500)


def part_tail(rig):
    """Of the frames that end a PDU every second one is dropped at the server: each write loses its last one once. The bit is
    in the second byte behind the Ethernet header; sealed frames have the first bit of the first."""
    target = dict(list(rig.targets().items())[:1])
    how = ("--rw", "write", "--bs", "64k", "--iodepth", 1)
    before = [value for point in rig.bench(target, *how) for value in figures(point, "hyperscsi crc", "p50_us")]
    rig.link.run(SERVER, "nft", f"add table netdev t; add chain netdev t c {{ type filter hook ingress device {NAMES[SERVER]} priority 0; }}; "
                                "add rule netdev t c ether type 0x889a @ll,112,8 & 0x80 == 0 @ll,120,8 & 4 == 4 numgen inc mod 2 == 0 drop")
    after = [value for point in rig.bench(target, *how) for value in figures(point, "hyperscsi crc", "p50_us")]
    rig.link.lose(0)
    row("tail", "64 KiB write, nothing lost, p50", "ms", [value / 1e3 for value in before])
    row("tail", "64 KiB write, its last frame lost once, p50", "ms", [value / 1e3 for value in after], 5, at_least=False)


def part_mixed(rig):
    rig.link.shape(**FAST)
    target = dict(list(rig.targets().items())[:1])
    frame = 512 + 38
    for percent in (10, 30, 50, 70, 90):
        rate = percent / 100 * 12.5e6 / frame
        seconds = 2 + rig.arguments.time * rig.arguments.rounds + rig.arguments.rounds
        flood = rig.link.start(SERVER, rig.frames, "flood", NAMES[SERVER], MACS[CLIENT], 512, seconds + 4, rate, stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        points = rig.bench(target, "--rw", "read", "--bs", "64k", "--iodepth", 8)
        stop(flood)
        values = figures(points[0], "hyperscsi crc", "mb_per_s") if points else []
        row("mixed", f"64 KiB reads beside {percent} % of foreign frames", "MB/s", values)
        # What the link has left for the storage when the foreign frames have all of theirs.
        share = [(value * 1538 / 1497 + percent / 100 * 12.5) / 12.5 for value in values]
        row("mixed", f"both together beside {percent} %, of the link, if none is lost", "", share, 0.95)
    rate, ours = beside_tcp(rig, target)
    row("mixed", "64 KiB reads beside a stream of TCP", "MB/s", ours)
    row("mixed", "the stream of TCP, of the link", "", [one / 12.5e6 for one in rate], 0.3)
    rig.link.shape(None)


SOURCE = "import socket,sys\ns=socket.create_connection((sys.argv[1],9))\nb=bytes(65536)\nwhile 1: s.sendall(b)"
DRAIN = """import socket,sys,time
l=socket.create_server((sys.argv[1],9)); s,_=l.accept(); n=0; t=time.monotonic()
while time.monotonic()-t<float(sys.argv[2]): n+=len(s.recv(1<<20))
print(n/(time.monotonic()-t))"""


def beside_tcp(rig, target):
    rates, ours = [], []
    for _ in range(rig.arguments.rounds):
        drain = rig.link.start(CLIENT, sys.executable, "-c", DRAIN, ADDRESSES[CLIENT], rig.arguments.time + 2, stdout=subprocess.PIPE, text=True)
        time.sleep(0.3)
        source = rig.link.start(SERVER, sys.executable, "-c", SOURCE, ADDRESSES[CLIENT], stderr=subprocess.DEVNULL)
        for point in rig.bench(target, "--rw", "read", "--bs", "64k", "--iodepth", 8, rounds=1, seconds=rig.arguments.time + 0.5):
            ours += figures(point, "hyperscsi crc", "mb_per_s")
        rates.append(float(drain.communicate(timeout=60)[0] or 0))
        stop(source)
    return rates, ours


def part_incast(rig, servers=8):
    """Each server has an interface of its own behind a switch (a bridge), whose port to the client has the queue."""
    link = rig.link
    link.run(SERVER, "ip", "link", "add", "switch", "type", "bridge")
    link.run(SERVER, "ip", "link", "set", "switch", "up")
    link.run(SERVER, "ip", "address", "flush", "dev", NAMES[SERVER])
    link.run(SERVER, "ip", "link", "set", NAMES[SERVER], "master", "switch")
    processes = []
    for n in range(servers):
        link.run(SERVER, "ip", "link", "add", f"host{n}", "type", "veth", "peer", "name", f"port{n}")
        link.run(SERVER, "ip", "link", "set", f"port{n}", "master", "switch", "up")
        link.run(SERVER, "ip", "link", "set", f"host{n}", "up")
        processes.append(rig.serve(f"host{n}", f"incast{n}", 1, iscsi=False, size="64M"))
    link.run(SERVER, "tc", "qdisc", "add", "dev", NAMES[SERVER], "root", "tbf", "rate", "100mbit", "burst", "16k", "limit", "64k",
             "overhead", "24", "mpu", "84")
    time.sleep(1)
    names = {one["server"] for one in json.loads(link.run(CLIENT, BINARY, "discover", "hyperscsi", "--interface", NAMES[CLIENT],
                                                          "--group", GROUP, "--json").stdout)}
    names = sorted(name for name in names if "incast" in name) or sorted(names)
    totals, losses = [], []
    for _ in range(rig.arguments.rounds):
        before = json.loads(link.run(SERVER, "tc", "-s", "-j", "qdisc", "show", "dev", NAMES[SERVER]).stdout)[0]
        outs = [rig.path / f"incast{n}.json" for n in range(len(names))]
        running = [link.start(CLIENT, BINARY, "bench", "--rw", "read", "--bs", "64k", "--iodepth", 4, "--repeat", 1, "--runtime",
                              rig.arguments.time, "--warmup", 1, "--json", out, "--password-file", rig.password,
                              f"hyperscsi://{GROUP}/d0?interface={NAMES[CLIENT]}&server={name}&level=crc",
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for out, name in zip(outs, names)]
        for one in running:
            one.wait(60)
        reports = [json.loads(out.read_text())["points"] for out in outs if out.exists()]
        totals.append(sum(points[0]["targets"][0]["rounds"][0]["figures"].get("mb_per_s", 0) for points in reports if points))
        after = json.loads(link.run(SERVER, "tc", "-s", "-j", "qdisc", "show", "dev", NAMES[SERVER]).stdout)[0]
        sent, dropped = (after[key] - before[key] for key in ("packets", "drops"))
        losses.append(100 * dropped / max(1, sent + dropped))
    row("incast", f"{len(names)} servers, 64 KiB reads, together, of the link", "", [one / 12.167 for one in totals], 0.85)
    row("incast", "frames that the queue drops", "%", losses, 1, at_least=False)
    for process in processes:
        stop(process)
    for n in range(servers):
        link.run(SERVER, "ip", "link", "del", f"host{n}")
    link.run(SERVER, "ip", "link", "del", "switch")
    link.shape(None)
    link.run(SERVER, "ip", "address", "add", f"{ADDRESSES[SERVER]}/24", "dev", NAMES[SERVER])


def part_wireless(rig):
    """The server is behind a relay, which delays and loses; the wire has the rate."""
    link = rig.link
    link.shape("30mbit")
    stop(rig.tarn)
    link.run(SERVER, "ip", "link", "add", "air", "type", "veth", "peer", "name", "station")
    for name in ("air", "station"):
        link.run(SERVER, "ip", "link", "set", name, "up")
    relay = rig.begin(SERVER, rig.frames, "relay", NAMES[SERVER], "air", 1000, 9000, 51, name="relay")
    server = rig.serve("station", "wireless", 1, iscsi=False, profile="wireless")
    target = {"wireless": (f"hyperscsi://{GROUP}/d0?interface={NAMES[CLIENT]}&level=crc", server.pid)}
    how = ("--rw", "read,write", "--bs", "64k", "--iodepth", 8)
    for point in rig.bench(target, *how, seconds=3 * rig.arguments.time):
        share = [value / 3.75 for value in figures(point, "wireless", "mb_per_s")]
        row("wireless", f"{size_of(point)}, of the link", "", share, 0.7)
    gap = threading.Timer(4, lambda: os.kill(relay.pid, signal.SIGUSR1))
    gap.start()
    points = rig.bench(target, "--rw", "read", "--bs", "64k", "--iodepth", 8, rounds=1, seconds=12)
    gap.join()
    values = figures(points[0], "wireless", "mb_per_s") if points else []
    row("wireless", "64 KiB reads of 12 s with a gap of 3 s, of the rest", "", [value / 3.75 * 12 / 9 for value in values], 0.6)
    for process in (server, relay):
        stop(process)
    link.run(SERVER, "ip", "link", "del", "air")
    link.shape(None)
    rig.set_mtu(1500)


def part_storm(rig):
    """Of another station each, so that none is asked too often; the server sees and answers as many as it will."""
    rig.link.shape(**FAST)
    target = dict(list(rig.targets().items())[:1])
    asked = question(GROUP).hex()
    # Questions and writes go the same way; each frame has 38 bytes around it.
    left = {"read": 1, "write": 1 - 10_000 * (len(asked) / 2 + 38) / 12.5e6}
    begun = time.monotonic()
    idle = cpu_seconds(rig.tarn.pid)
    time.sleep(1)
    idle = (cpu_seconds(rig.tarn.pid) - idle) / (time.monotonic() - begun)
    row("storm", "CPU time of the server without load or storm", "of a core", [idle])
    kept, used, rates = {}, {"without": [], "with": []}, []
    for _ in range(rig.arguments.rounds):
        speeds = {}
        for how in used:
            seconds = 2 * (rig.arguments.time + 4)
            storm = how == "with" and rig.link.start(CLIENT, rig.frames, "storm", NAMES[CLIENT], asked, seconds, 10_000,
                                                     stdout=subprocess.PIPE, text=True)
            begun, before = time.monotonic(), cpu_seconds(rig.tarn.pid)
            for point in rig.bench(target, "--rw", "read,write", "--bs", "64k", "--iodepth", 8, rounds=1):
                speeds[how, point["rw"]] = sum(figures(point, "hyperscsi crc", "mb_per_s"))
            used[how].append((cpu_seconds(rig.tarn.pid) - before) / (time.monotonic() - begun))
            if storm:
                rates.append(json.loads(storm.communicate(timeout=60)[0])["per_second"])
        for rw in ("read", "write"):
            if speeds.get(("without", rw)):
                kept.setdefault(rw, []).append(speeds.get(("with", rw), 0) / speeds["without", rw] / left[rw])
    row("storm", "questions a second", "", rates, 9_900)
    for rw, values in kept.items():
        row("storm", f"64 KiB {rw}, with the storm over without, of what it leaves", "", values, 0.9)
    for how, values in used.items():
        row("storm", f"CPU time of the server, 64 KiB reads and writes {how} it", "of a core", values)
    # A question costs the server no more than this, whoever asks.
    more = [(b - a) / rate * 1e6 for a, b, rate in zip(used["without"], used["with"], rates)]
    row("storm", "CPU time of a question", "us", more, 20, at_least=False)
    rig.link.shape(None)


def cpu_seconds(pid):
    """User and system time of a process."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def switches(*pids):
    """How often the threads of these processes, which all still run, gave up a processor or lost it."""
    total = 0
    for pid in pids:
        for status in Path("/proc").glob(f"{pid}/task/*/status"):
            with contextlib.suppress(FileNotFoundError):
                total += sum(map(int, re.findall(r"ctxt_switches:\s*(\d+)", status.read_text())))
    return total


def whole_blocks(size):
    return -(-size // 512) * 512


def ours_and_iscsi():
    return (("hyperscsi", f"hyperscsi://{GROUP}/d0?interface={NAMES[CLIENT]}&level=crc"),
            ("iscsi", f"iscsi://{ADDRESSES[SERVER]}:{PORT}/{IQN}/0"))


def part_frames(rig):
    """By nbdcopy, which reads 256 KiB at a time, several at once; all clients are `tarn attach`, so that only the wire differs."""
    size = whole_blocks(rig.arguments.size)
    if not shutil.which("nbdcopy"):
        return print("         nbdcopy (libnbd-bin) is not installed: no frames", flush=True)
    for mtu in (1500, 9000):
        for end, name in enumerate(NAMES):
            rig.link.run(end, "ip", "link", "set", name, "mtu", mtu)
        rig.serve_store(f"mem:{size}")
        for label, url in ours_and_iscsi():
            counts = {"frames": [], "context switches": [], "frames back": []}
            for _ in range(rig.arguments.rounds):
                for name, value in count_one(rig, url, size).items():
                    counts[name].append(value * (1 << 30) / size / 1e3)
            for name, values in counts.items():
                row("frames", f"{label}, {name}, reads, MTU {mtu}", "thousands/GiB", values)
    rig.set_mtu(1500)


def count_one(rig, url, size):
    socket = rig.path / "count.sock"
    socket.unlink(missing_ok=True)
    password = ("--password-file", rig.password) if url.startswith("hyperscsi") else ()
    client = rig.begin(CLIENT, BINARY, "attach", "--as", f"nbd:{socket}", "--log", "warn", *password, url, name="count")
    wait(socket.exists, "the disk is attached", rig.path / "count.log")
    look = lambda: (rig.link.counters(CLIENT), switches(client.pid, rig.tarn.pid))
    before, gave_up = look()
    rig.link.run(CLIENT, "nbdcopy", "--no-extents", f"nbd+unix:///?socket={socket}", "null:", limit_s=60 + size / 1e6)
    after, given_up = look()
    stop(client)
    of = lambda way: after[way]["packets"] - before[way]["packets"]
    return {"frames": of("rx"), "frames back": of("tx"), "context switches": given_up - gave_up}


PARTS = {name[5:]: function for name, function in list(globals().items()) if name.startswith("part_")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="all", choices=SUITES)
    parser.add_argument("--only", default=".", metavar="REGEX")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--time", type=float, default=2)
    parser.add_argument("--size", type=int, default=PAPER_BYTES, metavar="BYTES")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not ethernet.works():
        raise SystemExit("this machine lets no user make namespaces with a veth pair")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))       # what was begun ends, too
    rig = Rig(arguments)
    with rig.stack:
        rig.tarn = rig.serve()
        rig.tgt = rig.serve_tgt()
        for name, part in PARTS.items():
            if re.search(SUITES[arguments.suite], name) and re.search(arguments.only, name):
                part(rig)
    if arguments.json:
        arguments.json.write_text(json.dumps(ROWS, indent=1))


if __name__ == "__main__":
    main()
