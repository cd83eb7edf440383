#!/usr/bin/env python3
"""stores.py - what stores behind others, and units behind other protocols, cost beside the plain ones.

  stores.py [--rounds 7] [--time 3] [--only PATTERN] [--tarn PATH]

    stripe       reads of a stripe of 8 mem:, beside one mem: of its size: CPU of Tarn for each
    nbd-server   reads of a mem: unit by NBD, beside the same by iSCSI: CPU of Tarn for each; and of nbdkit's memory plug-in
    nbd-store    reads of a LUN that is an export of nbdkit, beside those of the export itself: the rate
    rbd          reads and writes of a LUN that is an image of a Ceph cluster, beside those of fio on the same image: the rate,
                 and at depth 1 the median latency, beside that of the same from mem: by iSCSI in the same minute; and the processor
                 time of both ways, since what librbd and the cluster leave of the processors is what a network can have
    log          durable writes of a file whose sync takes 8 ms, with a log in memory (tmpfs) beside none; the same of a file of
                 this machine's disk; and large ones with sync_bias = "throughput": the rate

All targets of a row are measured in turn by `tarn bench`, so that ratios hold on a machine whose speed drifts. Printed is the
median of the ratios of the rounds, with their quartiles. Exit status 1: a goal is missed. Rows whose programs are not installed
are skipped. An image has one writer at a time, so that of `rbd` a Tarn is started for each round; the cluster is one monitor and
one OSD with its objects in memory, on the same processors.
"""
import argparse, contextlib, fnmatch, json, os, shutil, socket, statistics, subprocess, sys, tempfile, time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/lib"))
from faultfs import FaultFs
IQN = "iqn.2026-11.example.tarn:stores"
MEMBERS = 8
SIZE_MB = 512
FILL = ("--rw", "write", "--bs", "1m", "--runtime", "3", "--repeat", "1", "--overwrite")
READ = ("--rw", "randread", "--bs", "4k")
CEPH = ROOT / "tests/ceph"
# How long a sync takes, as of a disk that turns.
LOG_SYNC_S = 0.008
# Of Tarn's median latency above that of fio, at depth 1.
RBD_LATENCY_US = 40
RBD_POINTS = [("randread", "4k", 32), ("randwrite", "4k", 32), ("read", "1m", 8), ("write", "1m", 8),
              ("randread", "4k", 1), ("randwrite", "4k", 1)]


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_for(port):
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit(f"stores.py: nothing listens on port {port}")


class Row:
    """Servers of one row, and what is measured of them."""

    def __init__(self, args, folder, running):
        self.args, self.folder, self.running = args, Path(folder), running

    def start(self, port, *command):
        process = subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL)
        self.running.callback(process.wait)
        self.running.callback(process.terminate)
        wait_for(port)
        return process.pid

    def tarn(self, stores, sections="", of_luns=None):
        """Serves LUN 0, 1, ... of these ids; gives URLs and the process. `of_luns`: further keys of a [[lun]], by id."""
        port = free_port()
        luns = ", ".join(f'{{ lun = {n}, id = "{id}" }}' for n, id in enumerate(stores))
        text = (f'[server]\ncores = 1\nlog = "warn"\nstate = "{self.folder}/state"\n[admin]\nsocket = "{self.folder}/tarn.sock"\n{sections}'
                + "".join(f'[[lun]]\nid = "{id}"\nstore = "{store}"\n{(of_luns or {}).get(id, "")}' for id, store in stores.items())
                + f'[[target]]\nname = "{IQN}"\nportals = ["127.0.0.1:{port}"]\nluns = [{luns}]\n')
        file = self.folder / "tarn.toml"
        file.write_text(text)
        pid = self.start(port, self.args.tarn, "serve", "--config", file)
        return [f"iscsi://127.0.0.1:{port}/{IQN}/{lun}" for lun in range(len(stores))], pid

    def nbdkit(self):
        port = free_port()
        pid = self.start(port, "nbdkit", "--foreground", "--exit-with-parent", "-i", "127.0.0.1", "-p", port, "memory", f"{SIZE_MB}M")
        return f"nbd://127.0.0.1:{port}/", pid

    def bench(self, urls, *flags):
        subprocess.run([self.args.tarn, "bench", *map(str, flags), *urls], check=True, capture_output=True, text=True)

    def measure(self, targets, *flags, depth=32, rounds=None):
        """Gives the figures of each target, round by round, at each point. `targets`: URL and process by name."""
        out = self.folder / "out.json"
        pids = [word for _, pid in targets.values() for word in ("--pid", pid)]
        self.bench([f"{name}={url}" for name, (url, _) in targets.items()], "--iodepth", depth, *flags, "--runtime", self.args.time,
                   "--repeat", rounds or self.args.rounds, *pids, "--json", out)
        for point in json.loads(out.read_text())["points"]:
            yield point, [[each["figures"] for each in target["rounds"]] for target in point["targets"]]


def ratio(figure, first, other):
    ratios = [b[figure] / a[figure] for a, b in zip(first, other)]
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return middle, f"{middle:.2f} ({low:.2f} to {high:.2f})"


def verdict(is_good, goal):
    return f"wanted {goal}: {'good' if is_good else 'MISSED'}"


def stripe(row):
    members = [f"m{n}" for n in range(MEMBERS)]
    sections = "".join(f'[[store]]\nid = "{id}"\nstore = "mem:{SIZE_MB // MEMBERS}M"\n' for id in members)
    (one, striped), pid = row.tarn({"one": f"mem:{SIZE_MB}M", "stripe": f"stripe:{','.join(members)}"}, sections)
    row.bench([one, striped], *FILL)
    targets = {"one": (one, pid), "stripe": (striped, pid)}
    for point, (first, other) in row.measure(targets, "--rw", "randread,read", "--bs", "64k,68k"):
        middle, text = ratio("target_cpu_us_per_io", first, other)
        # Reads of 68 KiB cross chunks and are copied.
        has_goal = point["block_bytes"] == 64 << 10
        yield (f"{point['rw']} {point['block_bytes'] >> 10} KiB: {text} times the CPU of one mem:",
               middle <= 1.3 if has_goal else None, "1.3 at most")


def nbd_server(row):
    port = free_port()
    (iscsi,), pid = row.tarn({"disk": f"mem:{SIZE_MB}M"}, f'[[nbd]]\nbind = "127.0.0.1:{port}"\nluns = ["disk"]\n')
    kit, kit_pid = row.nbdkit()
    row.bench([iscsi, kit], *FILL)
    targets = {"iscsi": (iscsi, pid), "nbd": (f"nbd://127.0.0.1:{port}/disk", pid), "nbdkit": (kit, kit_pid)}
    for _, (first, nbd, peer) in row.measure(targets, *READ):
        middle, text = ratio("target_cpu_us_per_io", first, nbd)
        yield f"randread 4 KiB by NBD: {text} times the CPU of iSCSI", middle <= 1.3, "1.3 at most"
        _, text = ratio("target_cpu_us_per_io", nbd, peer)
        yield f"randread 4 KiB of nbdkit: {text} times the CPU of Tarn by NBD", None, ""


def nbd_store(row):
    kit, _ = row.nbdkit()
    (served,), _ = row.tarn({"far": f"{kit}?connections=4"})
    row.bench([kit], *FILL)
    for _, (direct, other) in row.measure({"direct": (kit, 0), "tarn": (served, 0)}, *READ):
        middle, text = ratio("iops", direct, other)
        yield f"randread 4 KiB through Tarn: {text} times the rate of the export itself", middle >= 0.75, "0.75 at least"


def busy_seconds():
    """Of all processors, since the machine has started."""
    of = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return (sum(of[:8]) - of[3] - of[4]) / os.sysconf("SC_CLK_TCK")


def fio(conf, point, seconds):
    """Rate, median latency in microseconds from submission to completion, and share of the processors that were busy, of one run by
    librbd without its cache."""
    rw, bs, depth = point
    begun, before = time.monotonic(), busy_seconds()
    done = subprocess.run(["fio", "--name=rbd", "--ioengine=rbd", "--clientname=target", "--pool=rbd", "--rbdname=disk", f"--rw={rw}",
                           f"--bs={bs}", f"--iodepth={depth}", "--time_based", f"--runtime={seconds}", "--lat_percentiles=1", "--clat_percentiles=0",
                           "--output-format=json"],
                          env={**os.environ, "CEPH_CONF": str(conf)}, check=True, capture_output=True, text=True)
    figures = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]["write" if "write" in rw else "read"]
    busy = (busy_seconds() - before) / (time.monotonic() - begun) / os.cpu_count()
    return {"iops": figures["iops"], "p50_us": figures["lat_ns"]["percentile"]["50.000000"] / 1000, "busy": busy}


@contextlib.contextmanager
def cluster(folder):
    """A cluster with the filled image rbd/disk; gives the configuration of a client without a cache."""
    directory = Path(folder) / "ceph"
    settings = {**os.environ, "CEPHRIG_DIR": str(directory), "CEPHRIG_STORE": "memstore", "CEPHRIG_MGR": "0",
                "CEPHRIG_IMAGE": "disk", "CEPHRIG_IMAGE_SIZE": f"{SIZE_MB}M"}
    try:
        subprocess.run([CEPH / "start.sh"], env=settings, check=True, capture_output=True)
        conf = directory / "client.conf"
        conf.write_text((directory / "ceph.conf").read_text().replace("[client]", "[client]\nrbd cache = false"))
        fio(conf, ("write", "4m", 8), 5)
        yield conf
    finally:
        subprocess.run([CEPH / "stop.sh"], env=settings, capture_output=True)


def rbd(row):
    with cluster(row.folder) as conf:
        for point in RBD_POINTS:
            rw, bs, depth = point
            direct, served, plain = [], [], []
            for _ in range(row.args.rounds):
                direct.append(fio(conf, point, row.args.time))
                with contextlib.ExitStack() as running:
                    one = Row(row.args, row.folder, running)
                    (url, memory), pid = one.tarn({"disk": f"rbd:rbd/disk?conf={conf}&user=target", "memory": f"mem:{SIZE_MB}M"})
                    one.bench([memory], *FILL)
                    overwrite = ["--overwrite"] if "write" in rw else []
                    targets = {"tarn": (url, pid), "memory": (memory, pid)}
                    ((_, measured),) = one.measure(targets, "--rw", rw, "--bs", bs, *overwrite, depth=depth, rounds=1)
                    for figures, into in zip(measured, (served, plain)):
                        into += figures
            if depth > 1:
                middle, text = ratio("iops", direct, served)
                busy = statistics.median(each["busy"] for each in direct)
                own = statistics.median(each["busy"] * os.cpu_count() * 1e6 / each["iops"] for each in direct)
                way = statistics.median(each["target_cpu_us_per_io"] + each["generator_cpu_us_per_io"] for each in plain)
                yield (f"{rw} {bs} QD{depth}: {text} times the rate of fio, which left {100 - 100 * busy:.0f} % of the processors idle; "
                       f"processor time of an I/O: {own:.0f} us with fio, of both ends of iSCSI to mem: {way:.0f} us",
                       middle >= 0.8, "0.8 at least")
            else:
                more = [b["p50_us"] - a["p50_us"] for a, b in zip(direct, served)]
                low, middle, high = statistics.quantiles(more, n=4) if len(more) > 1 else more * 3
                own, way = (statistics.median(each["p50_us"] for each in of) for of in (direct, plain))
                yield (f"{rw} {bs} QD1: median latency {middle:.0f} us ({low:.0f} to {high:.0f}) above the {own:.0f} us of fio; "
                       f"mem: by iSCSI takes {way:.0f} us", middle <= RBD_LATENCY_US, f"{RBD_LATENCY_US} us at most")


def log(row):
    durable = f"?size={SIZE_MB}M&cache=writethrough"
    with tempfile.TemporaryDirectory(prefix="tarn-log.", dir="/dev/shm") as memory, FaultFs(SIZE_MB << 20, direct_io=False) as slow:
        slow.fsync_delay_s = LOG_SYNC_S
        os.mkdir(row.folder / "disk")
        disk = row.folder / "disk"
        keys = {id: f'log = "file:{memory}/{id}.log?size=256M"\nsync_bias = "{bias}"\n'
                for id, bias in (("slow-log", "latency"), ("disk-log", "latency"), ("disk-large", "throughput"))}
        # A second file system of the same kind, since one file has one unit.
        with FaultFs(SIZE_MB << 20, direct_io=False) as logged, contextlib.ExitStack() as running:
            row = Row(row.args, row.folder, running)
            logged.fsync_delay_s = LOG_SYNC_S
            stores = {"slow": f"file:{slow.path}{durable}", "slow-log": f"file:{logged.path}{durable}",
                      **{id: f"file:{disk}/{id}.img{durable}" for id in ("disk", "disk-log", "disk-large")}}
            urls, pid = row.tarn(stores, of_luns=keys)
            of = {id: (url, pid) for id, url in zip(stores, urls)}
            row.bench([of[id][0] for id in ("disk", "disk-log", "disk-large")], *FILL)
            small = ("--rw", "randwrite", "--bs", "4k", "--overwrite")
            for name, plain, other, goal in (("a sync of 8 ms", "slow", "slow-log", 10), ("this machine's disk", "disk", "disk-log", None)):
                for _, (first, second) in row.measure({plain: of[plain], other: of[other]}, *small, depth=1):
                    middle, text = ratio("iops", first, second)
                    yield (f"durable writes of 4 KiB, {name}: {text} times the rate without a log",
                           None if goal is None else middle >= goal, f"{goal} at least")
            large = ("--rw", "write", "--bs", "1m", "--overwrite")
            for _, (first, second) in row.measure({"disk": of["disk"], "disk-large": of["disk-large"]}, *large, depth=8):
                middle, text = ratio("mb_per_s", first, second)
                yield f"1 MiB at depth 8 with throughput: {text} times the rate without a log", middle >= 0.95, "0.95 at least"


ROWS = {"stripe": (stripe, []), "nbd-server": (nbd_server, ["nbdkit"]), "nbd-store": (nbd_store, ["nbdkit"]),
        "rbd": (rbd, ["ceph-mon", "ceph-osd", "rbd", "fio"]), "log": (log, ["fusermount3"])}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--time", type=float, default=3)
    parser.add_argument("--only", default="*")
    parser.add_argument("--tarn", default=str(ROOT / "target/release/tarn"))
    args = parser.parse_args()
    missed = 0
    for name, (measure, needs) in ROWS.items():
        if not fnmatch.fnmatch(name, args.only):
            continue
        missing = [program for program in needs if not shutil.which(program)]
        if missing:
            print(f"{name}: skipped, install {', '.join(missing)}")
            continue
        with tempfile.TemporaryDirectory(prefix="tarn-stores.") as folder, contextlib.ExitStack() as running:
            for text, is_good, goal in measure(Row(args, folder, running)):
                missed += is_good is False
                print(f"{name}: {text} ({'no goal' if is_good is None else verdict(is_good, goal)})", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
