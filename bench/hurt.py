#!/usr/bin/env python3
"""hurt.py - what a hung store, peers that prove nothing, and a mass loss of sessions cost those who have nothing to do with it.

  hurt.py [--only REGEX] [--pairs 7] [--time 1] [--stores fuse,fuse-cached] [--peers 1000] [--lost 10000] [--limit 900] [--json FILE]

Three parts, whose rows --only chooses by part ("hung", "peers", "lost") or name:

  hung    A store hangs with 128 READs of one session. On the same core: the p99 of 4 KiB READs of a memory LUN, in pairs without
          and with the hung neighbour, the ratio of each pair; medians of pings and logins; ABORT TASK of a hung command; the end
          after SIGTERM. Then the same beside 20 healthy file LUNs, which are read meanwhile, too.
          --stores: fuse (direct I/O), fuse-cached, block (a loop device over a hung FUSE file), ext4 (an image on ext4 on
          such a device); the last two need root and a kernel with loop devices.
  peers   --peers connections from as many addresses of 127.0.0.0/8, at a target with `auth` and at discovery, that prove nothing
          and hold what they get (silent, half a login, in the middle of CHAP, discovery with requests that wait for a
          gap, with answers that are not read): resident memory above idle, honest logins, the p99 of a session at work in
          pairs without and with them. Then peers that connect, try and go as fast as half a core lets them, against a
          control that only opens and closes sockets, as many a second.
  lost    --lost sessions of 32 LUNs end at once, by SIGKILL of their process: CPU time of the target until all is given
          back, and pings of survivors meanwhile.

Tarn is on core 0 with one reactor, everything else on core 1. A ratio is the median of its pairs with the quartiles. A part
that does not come to its end within --limit seconds is left with "no answer": this is a measurement, it asserts nothing, and the
exit status is 0 also when a goal is missed. Needs a C compiler (iload.c), fusermount3 and descriptors for all peers (ulimit -Hn).
TARN_BIN names another tarn.
"""
import argparse, contextlib, itertools, json, os, re, select, shutil, signal, socket, statistics, struct, subprocess, sys, tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests/lib"))
import iscsi
import scsi
from faultfs import FaultFs
from iscsi import IMMEDIATE, LOGIN_REQUEST, NO_TAG, TEXT_REQUEST, Pdu
from tarn import IQN, Tarn, raise_descriptor_limit

K, M = 1024, 1 << 20
TARGET_CORE, OTHER_CORE = 0, 1
BLOCK = 512
COMMANDS, HEALTHY = 128, 20
STORE_BYTES, IMAGE_BYTES, STRIDE = 256 * M, 32 * M, 256 * K
PINGS, LOGINS = 50, 30
STOP_LIMIT_S = 5            # shutdown_timeout_seconds
ANSWER_LIMIT_S = 20         # for whatever must be answered
SURVIVORS, LUNS_EACH = 10, 32
GUARDED = IQN + "-guarded"
USER, SECRET = "alice", "the secret of alice"


class Failed(Exception):
    """A figure cannot be had; says why."""


class TooLong(BaseException):
    """The time limit of a part."""


# Results.

ROWS = []


def row(part, name, unit, values, goal=None, note=""):
    """One line of the table. `values` are those of all pairs, or one; None stands for no answer."""
    values = values if isinstance(values, list) else [values]
    got = [value for value in values if value is not None]
    median = statistics.median(got) if got and len(got) == len(values) else None
    q = statistics.quantiles(got, n=4) if len(got) > 1 else [median] * 3
    met = None if goal is None else median is not None and median <= goal
    ROWS.append(dict(part=part, name=name, unit=unit, values=values, median=median, goal=goal, met=met, note=note))
    shown = "no answer" if median is None else f"{median:10.2f} {unit}"
    spread = f" ({q[0]:.2f}..{q[2]:.2f})" if len(got) > 1 and median is not None else ""
    held = "" if goal is None else f"  goal {goal:g}  {'met' if met else 'MISSED'}"
    print(f"{part:6} {name:66} {shown}{spread}{held}{'  ' + note if note else ''}", flush=True)


def ratios(pairs):
    """Of (before, after) pairs; None where one of them has no answer."""
    return [after / before if before and after else None for before, after in pairs]


# The load and the figures.


def build_iload(folder):
    path = folder / "iload"
    subprocess.run(["cc", "-O2", "-march=native", "-o", path, HERE / "iload.c"], check=True)
    return path


def begin_load(bench, tarn, lun=0, more=(), seconds=None, span="16m"):
    command = ["taskset", "-c", str(OTHER_CORE), bench.iload, "--port", tarn.port, "--iqn", IQN, "--lun", lun, "--span", span,
               "--rw", "randread", "--bs", 4 * K, "--qd", 4, "--time", seconds or bench.args.time, "--warm", 0.2, *more]
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end_load(process):
    """The p99 in us; None when the load does not come to its end."""
    try:
        out, _ = process.communicate(timeout=ANSWER_LIMIT_S)
        return json.loads(out)["p99_us"] if process.returncode == 0 else None
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return None
    finally:
        process.kill()
        process.wait()


def p99(bench, tarn, **options):
    return end_load(begin_load(bench, tarn, **options))


def timed(call):
    """Milliseconds; None when there is no answer."""
    begin = time.perf_counter()
    try:
        call()
    except (OSError, iscsi.Closed, iscsi.Timeout, iscsi.LoginError, iscsi.ProtocolError):
        return None
    return 1000 * (time.perf_counter() - begin)


def series(count, call):
    """So many milliseconds. Ends at the first that has no answer: the next would not have one either."""
    values = []
    for _ in range(count):
        values.append(timed(call))
        if values[-1] is None:
            break
    return values


def log_in(tarn, target=IQN, timeout_s=ANSWER_LIMIT_S, **options):
    return iscsi.Session(tarn.port, target, timeout_s=timeout_s, **options)


def started(config):
    tarn = Tarn(config=config, arguments=["--cores", "1", "--log", "warn"], prefix=["taskset", "-c", str(TARGET_CORE)])
    try:
        return tarn.start()
    except BaseException:
        tarn.close()
        raise


def lun(id, store):
    return f'[[lun]]\nid = "{id}"\nstore = "{store}"\n'


def target(name, ids, *lines):
    luns = ", ".join(f'{{ lun = {n}, id = "{id}" }}' for n, id in enumerate(ids))
    return f'[[target]]\nname = "{name}"\nportals = ["127.0.0.1:{{port}}"]\nluns = [{luns}]\n' + "".join(f"{one}\n" for one in lines)


# A hung store.


@contextlib.contextmanager
def loop_over(fs):
    done = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", fs.path], capture_output=True, text=True, timeout=20, check=False)
    if done.returncode:
        raise Failed(f"losetup: {done.stderr.strip()}")
    try:
        yield done.stdout.strip()
    finally:
        fs.heal()
        fs.release()
        subprocess.run(["losetup", "--detach", done.stdout.strip()], capture_output=True, timeout=20, check=False)


@contextlib.contextmanager
def ext4_on(device, fs):
    folder = Path(tempfile.mkdtemp(prefix="hurt-ext4."))
    for command in (["mkfs.ext4", "-q", "-F", device], ["mount", device, folder]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise Failed(f"{command[0]}: {done.stderr.strip()}")
    try:
        image = folder / "image"
        with open(image, "wb") as file:
            for _ in range(IMAGE_BYTES // M):
                file.write(os.urandom(M))
            file.flush()
            os.fsync(file.fileno())
        yield image
    finally:
        fs.heal()
        fs.release()
        subprocess.run(["umount", "--lazy", folder], capture_output=True, timeout=20, check=False)
        with contextlib.suppress(OSError):
            folder.rmdir()


@contextlib.contextmanager
def hanging_store(kind):
    """The file system that will hang, and the STORE on it."""
    with FaultFs(STORE_BYTES, direct_io=kind != "fuse-cached") as fs, contextlib.ExitStack() as stack:
        if kind in ("fuse", "fuse-cached"):
            store = f"file:{fs.path}"
        elif kind in ("block", "ext4"):
            device = stack.enter_context(loop_over(fs))
            store = f"block:{device}" if kind == "block" else f"file:{stack.enter_context(ext4_on(device, fs))}?cache=direct"
        else:
            raise Failed(f"no such store: {kind}")
        yield fs, store


def hang(fs, session, number, size):
    """128 READs, which get no answer. Gives their tasks. Each time they are of places that nobody has read or read ahead yet."""
    fs.hang = ("read",)
    places = [(number * COMMANDS + n) * STRIDE % size // BLOCK for n in range(COMMANDS)]
    tasks = [session.start(scsi.read10(lba, 4 * K // BLOCK), read=4 * K, lun=1) for lba in places]
    end = time.monotonic() + ANSWER_LIMIT_S
    while not fs.hung():
        if time.monotonic() > end:
            raise Failed("the store does not hang")
        time.sleep(0.02)
    time.sleep(0.3)
    return tasks


def let_go(fs, session, tasks):
    """The store answers again; what was asked is answered or aborted."""
    fs.heal()
    fs.release()
    for task in tasks:
        with contextlib.suppress(iscsi.Timeout, iscsi.Closed, iscsi.ProtocolError):
            session.finish(task, 2)


def hung_part(bench, kind, healthy):
    name = f"{kind}, {healthy} file LUNs beside" if healthy else kind
    with contextlib.ExitStack() as stack:
        fs, store = stack.enter_context(hanging_store(kind))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hurt-files.")))
        files = [folder / f"{n}.img" for n in range(healthy)]
        for file in files:
            file.write_bytes(os.urandom(M) * 16)
        stores = ["mem:16M", store, *[f"file:{file}" for file in files]]
        ids = [f"d{n}" for n in range(len(stores))]
        config = "".join(map(lun, ids, stores)) + target(IQN, ids)
        config += f"[limits]\nqueue_depth = {COMMANDS}\nshutdown_timeout_seconds = {STOP_LIMIT_S}\n"
        tarn = started(config)
        # Releases first: nothing that hangs in the kernel can be killed.
        stack.callback(tarn.close)
        stack.callback(lambda: (fs.heal(), fs.release()))
        measure_hung(bench, name, tarn, fs, IMAGE_BYTES if kind == "ext4" else STORE_BYTES, healthy)


def measure_hung(bench, name, tarn, fs, size, healthy):
    # Names of its own: the same name again would replace the other session.
    aside = ["--luns", str(healthy), "--sessions", str(healthy), "--first", "100"]
    pairs, pings, logins, aborts, asides = [], [], [], [], []
    for number in range(bench.args.pairs):
        before = both(bench, tarn, aside if healthy else None)
        with log_in(tarn) as hurt, log_in(tarn) as other:
            hurt.clear_unit_attentions(1)
            other.clear_unit_attentions(0)
            tasks = hang(fs, hurt, number, size)
            after = both(bench, tarn, aside if healthy else None)
            pairs.append((before[0], after[0]))
            asides.append((before[1], after[1]))
            pings += series(PINGS, lambda: other.nop(b"x" * 64))
            logins += series(LOGINS, lambda: log_in(tarn).close())
            aborts.append(timed(lambda: hurt.tmf(iscsi.ABORT_TASK, 1, tasks[-1], ANSWER_LIMIT_S)))
            if number + 1 < bench.args.pairs and after[0] is not None:
                let_go(fs, hurt, tasks)
                continue
            # Nothing better comes after a pair without an answer.
            break
    # The last pair left the store hanging.
    row("hung", f"{name}: p99 of a 4 KiB READ of memory, with / without", "x", ratios(pairs), 2, spans(pairs))
    if healthy:
        row("hung", f"{name}: p99 of a 4 KiB READ of the healthy files", "x", ratios(asides), None, spans(asides))
    row("hung", f"{name}: ping", "ms", pings, 100)
    row("hung", f"{name}: login", "ms", logins, 100)
    row("hung", f"{name}: ABORT TASK answered", "ms", aborts)
    begin = time.monotonic()
    tarn.process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        tarn.process.wait(STOP_LIMIT_S + 30)
    seconds = time.monotonic() - begin if tarn.process.poll() is not None else None
    row("hung", f"{name}: end after SIGTERM", "s", seconds, 2 * STOP_LIMIT_S, f"its limit is {STOP_LIMIT_S} s for logouts, then for flushes")


def both(bench, tarn, aside):
    """The p99 of the memory LUN, and of the healthy files if there are any, at the same time."""
    beside = begin_load(bench, tarn, 2, aside, bench.args.time + 0.4, "8m") if aside else None
    memory = p99(bench, tarn)
    return memory, end_load(beside) if beside else None


def spans(pairs):
    """The medians of what the ratios are of."""
    parts = [[value for value in column if value is not None] for column in zip(*pairs)]
    return " -> ".join(f"{statistics.median(part):.0f} us" if part else "no answer" for part in parts)


# Peers that prove nothing. They run in a process of their own, which is told what to do in its arguments.


def address_of(number):
    """Some address of 127.0.0.0/8 but those that the honest come from."""
    return f"127.{1 + number // 62500 % 250}.{1 + number // 250 % 250}.{1 + number % 250}"


def connected(port, number):
    made = socket.socket()
    try:
        made.settimeout(2)
        made.bind((address_of(number), 0))
        made.connect(("127.0.0.1", port))
    except OSError:
        made.close()
        raise
    return made


def login_request(number, pairs, csg, nsg):
    flags = 0x80 | csg << 2 | nsg if nsg else csg << 2
    return Pdu(LOGIN_REQUEST | IMMEDIATE, flags, iscsi.text(pairs), isid=b"\x80" + struct.pack(">I", number) + b"\0", itt=1, cmd_sn=1)


def read_pdu(made):
    """The next PDU; None when there is none."""
    header = made.recv(48, socket.MSG_WAITALL)
    if len(header) < 48:
        return None
    pdu = Pdu()
    pdu.bhs[:] = header
    length = int.from_bytes(header[5:8], "big")
    pdu.data = made.recv((length + 3) & ~3, socket.MSG_WAITALL) if length else b""
    return pdu


def offer(number, made, what):
    """Does the part of a login that needs no proof. Gives the last answer, if any."""
    name = [("InitiatorName", f"{IQN}.peer{number}")]
    if what == "silent":
        return None
    if what == "half":
        made.sendall(login_request(number, name, 0, 0).pack()[:40])
        return None
    if what == "chap":
        pairs = [*name, ("SessionType", "Normal"), ("TargetName", GUARDED), ("AuthMethod", "CHAP")]
        made.sendall(login_request(number, pairs, 0, 0).pack())
        read_pdu(made)
        made.sendall(login_request(number, [("CHAP_A", "5,7")], 0, 0).pack())
        return read_pdu(made)
    made.sendall(login_request(number, [*name, ("SessionType", "Discovery")], 1, 3).pack())
    return read_pdu(made)


def hold(number, made, what):
    """Takes as much as is given."""
    answer = offer(number, made, what)
    made.setblocking(False)
    if answer is None or answer.login_status or what not in ("gap", "unread"):
        return
    if what == "unread":
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    # A request that never comes leaves a gap, which all others wait for.
    first = 2 if what == "gap" else 1
    body = iscsi.text([("SendTargets", "All")] if what == "unread" else [(f"X-{n}", "x" * 200) for n in range(30)])
    with contextlib.suppress(OSError):
        for n in range(first, first + 200):
            made.sendall(Pdu(TEXT_REQUEST, 0x80, body, itt=n, ttt=NO_TAG, cmd_sn=n, exp_stat_sn=answer.stat_sn + 1).pack())


KINDS = ("silent", "half", "chap", "gap", "unread")


def crowd(port, count):
    """Connects so many peers, says so, answers pings, and ends with its input."""
    peers, refused = {}, 0
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        try:
            made = connected(port, number)
            hold(number, made, kind)
        except OSError:
            refused += 1
            continue
        peers[made.fileno()] = (made, kind)
    print(json.dumps({"connected": len(peers), "refused": refused}), flush=True)
    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    for fd, (_, kind) in peers.items():
        poll.register(fd, select.POLLIN if kind != "unread" else 0)
    while True:
        for fd, _ in poll.poll(1000):
            if fd == 0:
                return
            made, kind = peers[fd]
            try:
                data = made.recv(65536) if kind != "unread" else b""
            except OSError:
                data = b""
            if not data:
                poll.unregister(fd)
            elif kind == "gap":
                answer_pings(made, data)


def answer_pings(made, data):
    """Answers every ping that begins where a read began; so a session lives on."""
    if len(data) >= 48 and data[0] & 0x3F == iscsi.NOP_IN and data[20:24] != b"\xff" * 4:
        with contextlib.suppress(OSError):
            made.sendall(Pdu(iscsi.NOP_OUT | IMMEDIATE, 0x80, itt=NO_TAG, ttt=data[20:24], cmd_sn=1,
                             exp_stat_sn=int.from_bytes(data[24:28], "big")).pack())


def storm(port, seconds, rate_max=None):
    """Peers that come, try as much as needs no proof, and go; capped at half a core of their own. With a rate, a second, they
    try nothing: that is the control."""
    begin, busy = time.monotonic(), time.process_time()
    done = 0
    for number in itertools.count():
        now = time.monotonic() - begin
        if now > seconds:
            break
        with contextlib.suppress(OSError):
            made = connected(port, number)
            with made:
                if rate_max is None:
                    offer(number, made, ("chap", "gap")[number % 2])
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            done += 1
        due = done / rate_max if rate_max else 0
        ahead = max((time.process_time() - busy) / 0.5, due) - (time.monotonic() - begin)
        if ahead > 0.002:
            time.sleep(ahead)
    print(json.dumps({"per_second": done / seconds}), flush=True)


@contextlib.contextmanager
def helper(*words):
    """This script in another process and on the other core, with a task of its own. Ends with its input."""
    command = ["taskset", "-c", str(OTHER_CORE), sys.executable, __file__, "--as", *map(str, words)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process, limit_s):
    """The line of a helper, as JSON."""
    if not select.select([process.stdout], [], [], limit_s)[0]:
        raise Failed(f"a helper says nothing within {limit_s} s")
    return json.loads(process.stdout.readline() or "{}")


def honest(tarn, count):
    """How many logins with a right secret succeed, and their milliseconds."""
    def once():
        log_in(tarn, GUARDED, chap={"name": USER, "secret": SECRET, "algorithms": [7, 5]}).close()
    values = [timed(once) for _ in range(count)]
    return sum(value is not None for value in values), values


def peers_part(bench, count):
    text = lun("memory", "mem:16M") + f'[[user]]\nname = "{USER}"\nsecret_file = "alice.secret"\n' \
        + target(IQN, ["memory"]) + target(GUARDED, ["memory"], f'auth = ["{USER}"]')
    tarn = Tarn(config=text, arguments=["--cores", "1", "--log", "error"], prefix=["taskset", "-c", str(TARGET_CORE)])
    tarn.secret("alice.secret", SECRET)
    try:
        tarn.start()
        hold_rows(bench, tarn, count)
        storm_rows(bench, tarn)
    finally:
        tarn.close()


def hold_rows(bench, tarn, count):
    limit_s = 60 + count / 50
    p99(bench, tarn)
    idle, most, pairs, good, tried, times = tarn.rss_bytes(), 0, [], 0, 0, []
    for _ in range(bench.args.pairs):
        before = p99(bench, tarn)
        with helper("crowd", tarn.port, count) as process:
            there = said(process, limit_s)
            most = max(most, tarn.rss_bytes() - idle)
            pairs.append((before, p99(bench, tarn)))
            succeeded, values = honest(tarn, 10)
            good, tried, times = good + succeeded, tried + 10, times + values
            most = max(most, tarn.rss_bytes() - idle)
        quiet(tarn)
    note = f"{there.get('connected', 0)} of {count} connected in the last pair"
    row("peers", f"{count} hold: resident memory above idle", "MiB", most / M, 256, note)
    row("peers", f"{count} hold: honest logins that fail", f"of {tried}", tried - good, 0)
    row("peers", f"{count} hold: honest login", "ms", [value for value in times if value is not None] or None)
    row("peers", f"{count} hold: p99 of a session at work, with / without", "x", ratios(pairs), 2, spans(pairs))


def quiet(tarn):
    """Waits until what peers had is given back, or some seconds."""
    end = time.monotonic() + 20
    while tarn.descriptors() > 100 and time.monotonic() < end:
        time.sleep(0.1)


def storm_rows(bench, tarn):
    pairs, rates, good, tried = [], {"control": [], "storm": []}, 0, 0
    for _ in range(bench.args.pairs):
        found = {}
        for what in ("storm", "control"):
            seconds = bench.args.time + (4.5 if what == "storm" else 1.5)
            rate = rates["storm"][-1] if what == "control" else 0
            with helper(what, tarn.port, seconds, rate) as process:
                time.sleep(0.5)
                found[what] = p99(bench, tarn)
                if what == "storm":
                    succeeded, _ = honest(tarn, 10)
                    good, tried = good + succeeded, tried + 10
                rates[what].append(said(process, seconds + 30).get("per_second", 0))
            quiet(tarn)
        pairs.append((found["control"], found["storm"]))
    median = {what: statistics.median(values) for what, values in rates.items()}
    note = f"{spans(pairs)}; {median['control']:.0f}/s -> {median['storm']:.0f}/s"
    row("peers", "storm: p99 of a session at work, tries / opens and closes", "x", ratios(pairs), 2, note)
    row("peers", "storm: honest logins that fail", f"of {tried}", tried - good, 0)


# A mass loss.


def lose(port, count):
    """Logs so many sessions in and says so; they end with this process."""
    sessions = [iscsi.Session(port, IQN, initiator=f"{IQN}.lost{n}", timeout_s=60) for n in range(count)]
    print(json.dumps({"sessions": len(sessions)}), flush=True)
    sys.stdin.read()


def lost_part(_bench, count):
    ids = [f"d{n}" for n in range(LUNS_EACH)]
    config = "".join(lun(id, "mem:1M") for id in ids) + target(IQN, ids)
    config += f"[limits]\nsessions_max = {min(count * 9 // 8 + 100, 65535)}\nnop_interval_seconds = 600\n"
    tarn = started(config)
    try:
        survivors = [log_in(tarn) for _ in range(SURVIVORS)]
        before = tarn.descriptors()
        with helper("lose", tarn.port, count) as process:
            there = said(process, 60 + count / 20).get("sessions", 0)
            if there != count:
                raise Failed(f"{there} of {count} sessions logged in")
            cpu = tarn.cpu_seconds()
            process.kill()
            pings, end = [], time.monotonic() + 60
            while tarn.descriptors() > before and time.monotonic() < end:
                for survivor in survivors:
                    pings.append(timed(lambda one=survivor: one.nop(b"x")))
                    time.sleep(0.002)
        # What is done after the descriptors are closed counts, too.
        last = None
        while last != tarn.cpu_seconds() and time.monotonic() < end:
            last = tarn.cpu_seconds()
            time.sleep(0.5)
        gone = tarn.descriptors() <= before
        row("lost", f"{count} sessions of {LUNS_EACH} LUNs: CPU time", "s", tarn.cpu_seconds() - cpu if gone else None, 1)
        slowest = None if None in pings or not pings else max(pings)
        row("lost", f"{count} sessions: slowest ping of {SURVIVORS} survivors", "ms", slowest, 200, f"{len(pings)} pings")
        row("lost", f"{count} sessions: median ping of survivors", "ms", [ping for ping in pings if ping is not None] or None)
        for survivor in survivors:
            survivor.close()
    finally:
        tarn.close()


# Running.


class Bench:
    def __init__(self, args, folder):
        self.args, self.iload = args, build_iload(folder)


def parts(args):
    """Name and call of every part, in their order."""
    for kind in args.stores.split(","):
        yield f"hung {kind}", lambda bench, kind=kind: hung_part(bench, kind, 0)
        yield f"hung {kind} beside {HEALTHY}", lambda bench, kind=kind: hung_part(bench, kind, HEALTHY)
    yield f"peers {args.peers}", lambda bench: peers_part(bench, args.peers)
    yield f"lost {args.lost}", lambda bench: lost_part(bench, args.lost)


def run_part(bench, name, call):
    def too_long(*_):
        raise TooLong()
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(bench.args.limit)
    try:
        call(bench)
    except TooLong:
        row(name.split()[0], f"{name}: not done within {bench.args.limit} s", "", None)
    except (Failed, OSError, iscsi.Timeout, iscsi.Closed, iscsi.LoginError, iscsi.ProtocolError, subprocess.SubprocessError) as error:
        row(name.split()[0], f"{name}: {type(error).__name__} {error}"[:120], "", None)
    except Exception as error:      # A Tarn that does not start fails its test; here it is one row.
        row(name.split()[0], f"{name}: {error}"[:200], "", None)
    finally:
        signal.alarm(0)


def main():
    if sys.argv[1:2] == ["--as"]:
        what, port, number, *rate = sys.argv[2:]
        if what in ("storm", "control"):
            storm(int(port), float(number), float(rate[0]) or 1 if what == "control" else None)
        else:
            {"crowd": crowd, "lose": lose}[what](int(port), int(number))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--time", type=float, default=1)
    parser.add_argument("--stores", default="fuse,fuse-cached")
    parser.add_argument("--peers", type=int, default=1000, choices=range(1, 10_001), metavar="N")
    parser.add_argument("--lost", type=int, default=10_000, choices=range(1, 60_001), metavar="N")
    parser.add_argument("--limit", type=int, default=900, help="seconds for each part")
    parser.add_argument("--json", type=Path, default=HERE / "out/hurt.json")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    raise_descriptor_limit(max(args.peers, args.lost) + 2000)
    os.sched_setaffinity(0, {OTHER_CORE})
    folder = Path(tempfile.mkdtemp(prefix="tarn-hurt."))
    try:
        bench = Bench(args, folder)
        for name, call in parts(args):
            if re.search(args.only, name):
                run_part(bench, name, call)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(ROWS, indent=1))
    held = [one for one in ROWS if one["goal"] is not None]
    print(f"{sum(one['met'] for one in held)} of {len(held)} goals met; {args.json}")


if __name__ == "__main__":
    main()
