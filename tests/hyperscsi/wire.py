#!/usr/bin/env python3
"""HyperSCSI on an Ethernet wire: tshark reads every frame of a session, and no wrong byte gets through a wire that loses, repeats,
reorders, changes and replays frames, goes dark, or carries less than it says.

    wire.py [--list] [PATTERN...]

Runs in a network of its own (`unshare -Urn`), with a veth pair. The target serves one end. Behind the other is a bridge of this
suite, which takes the frames of `tarn attach` over UDP, and does to both directions what the test wants; nftables drops frames
before the target gets them.
"""
import collections
import contextlib
import heapq
import json
import os
import pathlib
import random
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import harness
from harness import check, equal, measured, skip, test, wait_for
from hyperscsi import question
from tarn import BINARY, Tarn, lun_section

INSIDE = "TARN_TEST_OWN_NETWORK"
ETHER_TYPE = 0x889a
ETHERNET_BYTES = 14
OWN, FAR = "hs1", "hs0"
GROUP, PASSWORD = "ABC", "correct horse"
SIZE = 32 << 20
BROADCAST = b"\xff" * 6
VERSION = 0x20
# docs/internals/hyperscsi.md, PDUs.
OPCODES = {0x00, 0x01, 0x10, 0x90, 0x11, 0x12, 0x13, 0x93, 0x20, 0x21, 0x22}
MARKER = b"in the clear of this disk"


def network_or_skip():
    if INSIDE not in os.environ:
        skip("`unshare -Urn ip link` does not work here")


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextlib.contextmanager
def pair(mtu):
    """A wire between `OWN` and `FAR`."""
    network_or_skip()
    ip("link", "add", FAR, "type", "veth", "peer", "name", OWN)
    try:
        for name in (FAR, OWN):
            pathlib.Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
            ip("link", "set", name, "mtu", str(mtu), "up")
        yield
    finally:
        ip("link", "del", FAR)


@contextlib.contextmanager
def lossy(permille):
    """nftables drops so many of 1000 frames, each way."""
    rules = "add table netdev t\n"
    for name in (FAR, OWN):
        rules += f"add chain netdev t {name} {{ type filter hook ingress device {name} priority 0; }}\n"
        rules += f"add rule netdev t {name} ether type {ETHER_TYPE:#x} numgen random mod 1000 < {permille} counter drop\n"
    subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)
    try:
        yield
    finally:
        subprocess.run(["nft", "delete", "table", "netdev", "t"], check=True)


def dropped():
    """How many frames nftables has dropped."""
    said = subprocess.run(["nft", "list", "table", "netdev", "t"], capture_output=True, text=True, check=True).stdout
    return sum(int(words[words.index("packets") + 1]) for words in map(str.split, said.splitlines()) if "packets" in words)


class Faults:
    """What befalls frames: shares of 1 for each kind. A seed of its own makes a run repeatable as far as time is."""

    def __init__(self, seed=1, loss=0, twice=0, changed=0, reorder=0, depth=1, replay=0, stale=0, cap=None):
        self.random = random.Random(seed)
        self.loss, self.twice, self.changed, self.reorder, self.depth = loss, twice, changed, reorder, depth
        self.replay, self.stale, self.cap = replay, stale, cap
        self.dark = threading.Event()
        self.counts = collections.Counter()
        self.held = {True: [], False: []}
        self.continuations = collections.deque(maxlen=100)

    def happens(self, kind, share):
        happens = self.random.random() < share
        self.counts[kind] += happens
        return happens

    def pass_on(self, frame, to_target):
        """(delay in seconds, frame) of all that comes out for one that goes in."""
        if self.dark.is_set():
            self.counts["dark"] += 1
            return []
        if self.cap and len(frame) > self.cap:
            self.counts["cap"] += 1
            return []
        out = []
        # Those that wait until others have overtaken them.
        held = self.held[to_target]
        for one in held:
            one[0] -= 1
        out += [(0, one[1]) for one in held if one[0] <= 0]
        held[:] = [one for one in held if one[0] > 0]
        if self.happens("loss", self.loss):
            return out
        if self.happens("changed", self.changed):
            at = self.random.randrange(len(frame) * 8)
            changed = bytearray(frame)
            changed[at // 8] ^= 1 << at % 8
            frame = bytes(changed)
        if self.happens("reorder", self.reorder):
            held.append([self.random.randint(1, self.depth), frame])
        else:
            out.append((0, frame))
        if self.happens("twice", self.twice):
            out.append((0, frame))
        # A frame of a write, after newer writes.
        if to_target and len(frame) > 1000 and self.happens("replay", self.replay):
            out.append((2, frame))
        if to_target and self.stale:
            fragment = (frame[1] & 3) << 8 | frame[2]
            if fragment and not frame[0] & 0x80:
                self.continuations.append(frame)
            elif self.continuations and self.happens("stale", self.stale):
                # An old continuation, with the tag and the generation of this frame.
                old = bytearray(self.random.choice(self.continuations))
                old[0], old[1] = frame[0] & 0x7f, frame[1] & 0xf8 | old[1] & 7
                out.append((0, bytes(old)))
        return out


class Bridge:
    """Between one client over UDP and the wire. Keeps what goes over the wire, if it is to."""

    def __init__(self, faults=None, keeps=False):
        self.faults = faults or Faults()
        self.kept = [] if keeps else None
        self.ether = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHER_TYPE))
        self.ether.bind((OWN, ETHER_TYPE))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        for one in (self.ether, self.udp):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
            one.setblocking(False)
        self.own = self.ether.getsockname()[4]
        self.server, self.client = BROADCAST, None
        self.waiting, self.number = [], 0
        self.too_long = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    @property
    def place(self):
        return f"127.0.0.1:{self.udp.getsockname()[1]}"

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.ether.close()
        self.udp.close()

    def run(self):
        with selectors.DefaultSelector() as selector:
            for one in (self.ether, self.udp):
                selector.register(one, selectors.EVENT_READ)
            while not self.over.is_set():
                now = time.monotonic()
                while self.waiting and self.waiting[0][0] <= now:
                    _, _, to_target, frame = heapq.heappop(self.waiting)
                    self.send(frame, to_target)
                pause = min(0.05, self.waiting[0][0] - now) if self.waiting else 0.05
                for key, _ in selector.select(pause):
                    self.take(key.fileobj)

    def take(self, source):
        for _ in range(64):
            try:
                if source is self.udp:
                    frame, self.client = self.udp.recvfrom(65536)
                    self.bring(frame, True)
                else:
                    data, address = self.ether.recvfrom(65536)
                    if address[2] == socket.PACKET_OUTGOING or data[6:12] == self.own:
                        continue
                    self.server = data[6:12]
                    self.keep(data)
                    self.bring(data[ETHERNET_BYTES:], False)
            except (BlockingIOError, ConnectionRefusedError):
                return

    def keep(self, data):
        if self.kept is not None:
            self.kept.append((time.time(), data))

    def bring(self, frame, to_target):
        for delay, out in self.faults.pass_on(frame, to_target):
            if delay:
                self.number += 1
                heapq.heappush(self.waiting, (time.monotonic() + delay, self.number, to_target, out))
            else:
                self.send(out, to_target)

    def send(self, frame, to_target):
        try:
            if not to_target:
                self.udp.sendto(frame, self.client)
                return
            data = self.server + self.own + struct.pack(">H", ETHER_TYPE) + frame
            self.ether.send(data)
            self.keep(data)
        except BlockingIOError:
            pass
        except OSError:
            # Longer than the wire carries: it is lost, as on a path that is narrower than its ends.
            self.too_long += 1


def config(path, levels, retransmit):
    units = "".join(lun_section(f"disk{n}", f"file:{path}/disk{n}.img?size={SIZE}") for n, _ in enumerate(levels))
    devices = ", ".join(f'{{ id = "disk{n}", level = "{level}" }}' for n, level in enumerate(levels))
    return units + f'[[hyperscsi.group]]\nname = "{GROUP}"\ninterface = "{FAR}"\npassword_file = "{{dir}}/password"\n' \
                   f'retransmit = "{retransmit}"\ndevice = [{devices}]\n'


class Target(Tarn):
    """Serves disks with these levels at the far end."""

    def __init__(self, *levels, retransmit="selective"):
        super().__init__()
        self.config = config(self.dir, levels, retransmit)
        self.secret("password", PASSWORD)

    def ready(self):
        return self.has_said()


class Attached:
    """A disk of the group as an export of NBD."""

    def __init__(self, tarn, bridge, disk="disk0", retry=60):
        directory = tarn.dir / f"attached-{disk}"
        directory.mkdir(exist_ok=True)
        self.socket, self.output = directory / "nbd.sock", directory / "out"
        self.command = [str(BINARY), "attach", "--password-file", str(tarn.dir / "password"), "--as", f"nbd:{self.socket}",
                        "--retry", str(retry), f"hyperscsi://{GROUP}/{disk}?udp={bridge.place}"]
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(directory)}
        self.url = f"nbd+unix:///?socket={self.socket}"

    def __enter__(self):
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                            env=self.environment)
        wait_for(self.is_served, 40, "the disk is attached")
        return self

    def is_served(self):
        check(self.process.poll() is None, f"attach ended: {self.output.read_text()}")
        return "export disk" in self.output.read_text()

    def end(self, code=0):
        self.process.send_signal(signal.SIGTERM)
        equal(self.process.wait(40), code, f"exit code of attach: {self.output.read_text()}")

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def bench(self, seconds, rw="mixed", bs="4k", depth=16):
        """`tarn bench --verify` of this disk: writes, reads back, and compares every byte."""
        command = [BINARY, "bench", "--verify", "--overwrite", "--rw", rw, "--bs", bs, "--iodepth", str(depth), "--runtime",
                   str(seconds), "--repeat", "1", self.url]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def good(running):
    said, _ = running.communicate(timeout=100)
    equal(running.returncode, 0, f"exit code of the bench: {said}")


def verified(faults, *, mtu=1500, levels=("crc",), seconds=2, retransmit="selective", rounds=(("mixed", "4k"), ("mixed", "64k"))):
    """Small and large blocks through a wire with these faults. Gives what befell the frames."""
    with pair(mtu), Target(*levels, retransmit=retransmit) as tarn, Bridge(faults) as bridge:
        with Attached(tarn, bridge) as attached:
            for rw, bs in rounds:
                good(attached.bench(seconds, rw, bs))
            attached.end()
        check("panic" not in tarn.log(), tarn.log_tail())
    return faults.counts


# ---- what is on the wire ---------------------------------------------------------------------------


def pcap(frames):
    """A capture file of Ethernet frames."""
    head = struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1)
    body = [struct.pack("<IIII", int(at), int(at % 1 * 1e6), len(data), len(data)) + data for at, data in frames]
    return head + b"".join(body)


FIELDS = ["frame.len", "eth.src", "hyperscsi.tagno", "hyperscsi.fragno", "hyperscsi.lastfrag", "hyperscsi.cmd", "hyperscsi.version",
          "hyperscsi.reserved"]
Row = collections.namedtuple("Row", ["length", "source", "tag", "fragment", "is_last", "opcode", "version", "reserved"])


def tshark(file, *arguments):
    done = subprocess.run(["tshark", "-n", "-r", str(file), *arguments], capture_output=True, text=True, timeout=60)
    equal(done.returncode, 0, f"exit code of tshark: {done.stderr}")
    return done.stdout.splitlines()


def number(text):
    """A field of tshark: a number, true or false, or nothing."""
    if text in ("True", "False"):
        return int(text == "True")
    return int(text, 0) if text else None


def rows(file):
    options = [option for field in FIELDS for option in ("-e", field)]
    for line in tshark(file, "-T", "fields", *options):
        length, source, *others = line.split("\t")
        yield Row(int(length), source, *map(number, others))


@test(limit_s=120)
def tshark_reads_every_frame_of_a_session():
    """Discovery, login, devices, commands at three levels and the end, over a veth pair: none is malformed, every PDU has all
    its fragments and one last one, and a disk can be read in the frames where its level says so."""
    with pair(1500), Target("crc", "hash", "encrypt") as tarn:
        frames = []
        for number_of_disk, level in enumerate(("crc", "hash", "encrypt")):
            (tarn.dir / f"disk{number_of_disk}.img").write_bytes((MARKER + level.encode()).ljust(4096, b".") * (SIZE // 4096))
            with Bridge(keeps=True) as bridge:
                with Attached(tarn, bridge, f"disk{number_of_disk}") as attached:
                    reading = [BINARY, "bench", "--rw", "read", "--bs", "64k", "--iodepth", "4", "--runtime", "1", "--repeat", "1",
                               attached.url]
                    subprocess.run(reading, check=True, capture_output=True, timeout=60)
                    good(attached.bench(1, "mixed", "16k", 4))
                    attached.end()
                kept = list(bridge.kept)
            is_readable = any(MARKER + level.encode() in data for _, data in kept)
            equal(is_readable, level != "encrypt", f"the disk of level {level} can be read on the wire")
            check(not any(PASSWORD.encode() in data for _, data in kept), "the password is on the wire")
            frames += kept
        file = tarn.dir / "run.pcap"
        file.write_bytes(pcap(frames))
        equal(tshark(file, "-Y", "_ws.malformed"), [], "malformed frames")
        equal(tshark(file, "-Y", "eth.type==0x889a && !hyperscsi"), [], "frames that are not decoded")
        seen = list(rows(file))
    equal(len(seen), len(frames), "frames")
    opcodes = {row.opcode for row in seen if row.fragment == 0}
    # The bit of an answer is a field of its own to tshark.
    check({0x00, 0x01, 0x10, 0x11, 0x12, 0x22} <= opcodes <= {code & 0x7f for code in OPCODES}, f"opcodes: {opcodes}")
    equal({row.version for row in seen if row.fragment == 0}, {VERSION}, "versions")
    lengths = [row.length for row in seen]
    check(min(lengths) >= 60 and max(lengths) <= 1500 + ETHERNET_BYTES, f"lengths from {min(lengths)} to {max(lengths)}")
    complete(seen)
    measured(f"{len(seen)} frames")


def pdus_in(frame):
    """Opcodes of the PDUs of a frame that are not sealed, as docs/internals/hyperscsi.md lays them out: each but the last is whole."""
    opcodes, at = [], 0
    while at + 3 <= len(frame) and frame[at:at + 3] != bytes(3) and not frame[at] & 0x80:
        is_last, fragment = frame[at + 1] & 4, (frame[at + 1] & 3) << 8 | frame[at + 2]
        if fragment or not is_last:
            return opcodes, False
        version, opcode, flags = frame[at + 3:at + 6]
        length, = struct.unpack(">I", frame[at + 16:at + 20])
        equal(version, VERSION, f"version of PDU {len(opcodes)} in {frame.hex()}")
        opcodes.append(opcode)
        at += 3 + length + (0, 4, 16)[flags]
        check(at <= len(frame), f"PDU {len(opcodes)} is longer than its frame: {frame.hex()}")
    return opcodes, at < len(frame) and frame[at] & 0x80 != 0


@test(limit_s=120)
def small_pdus_share_frames():
    """4 KiB at depth 32 and an MTU of 9000: frames hold several requests or replies, each where the page says, and tshark reads
    them; an acknowledgement is behind some. Every byte is right, also where frames are lost."""
    with pair(9000), Target("crc", "encrypt") as tarn, Bridge(keeps=True) as bridge:
        with Attached(tarn, bridge) as attached, Attached(tarn, bridge, "disk1") as other:
            for one in (attached, other):
                good(one.bench(1, "mixed", "4k", 32))
            kept, bridge.kept = list(bridge.kept), None
            with lossy(20):
                for one in (attached, other):
                    good(one.bench(2, "mixed", "4k", 32))
                check(dropped() > 20, "frames are lost")
            other.end()
            attached.end()
        several = collections.Counter()
        for _, data in kept:
            frame = data[ETHERNET_BYTES:]
            if not frame[0] & 0x80 and (frame[0] & 0x0f or frame[1] >> 3):
                opcodes, has_seal = pdus_in(frame)
                several["requests"] += len(opcodes) > 1 and set(opcodes) == {0}
                several["replies"] += len(opcodes) > 1 and set(opcodes) == {1}
                several["acknowledged"] += has_seal
                check(len(opcodes) < 2 or len(set(opcodes)) == 1, f"requests and replies in one frame: {opcodes}")
        check(all(several[kind] for kind in ("requests", "replies", "acknowledged")), f"{several}")
        file = tarn.dir / "run.pcap"
        file.write_bytes(pcap(kept))
        equal(tshark(file, "-Y", "_ws.malformed"), [], "malformed frames")
        equal(tshark(file, "-Y", "eth.type==0x889a && !hyperscsi"), [], "frames that are not decoded")
        seen = list(rows(file))
        equal({row.version for row in seen if row.fragment == 0}, {VERSION}, "versions")
        check({row.opcode for row in seen if row.fragment == 0} <= {code & 0x7f for code in OPCODES}, "opcodes")
        measured(f"{len(seen)} frames, {dict(several)}")


def complete(seen):
    """Each PDU has the fragments from 0 to its last. A tag has one PDU at a time, and the generation changes with each."""
    pdus = {}
    for row in seen:
        key = (row.source, row.tag)
        begun = pdus.get(key)
        if begun is None or row.fragment == 0 and 0 in begun[0]:
            if begun is not None:
                whole(key, *begun)
            begun = pdus[key] = (set(), set())
        begun[0].add(row.fragment)
        if row.is_last:
            begun[1].add(row.fragment)
    for key, begun in pdus.items():
        whole(key, *begun)


def whole(key, fragments, last):
    equal(fragments, set(range(max(fragments) + 1)), f"fragments of a PDU of {key}")
    equal(last, {max(fragments)}, f"last fragments of a PDU of {key}")


@test
def tshark_reads_any_header_as_the_page_says():
    """10,000 headers with any bits: tag, fragment and last-fragment flag are where docs/internals/hyperscsi.md has them."""
    network_or_skip()
    chosen = random.Random(5)
    headers = [chosen.randbytes(3) for _ in range(10_000)]
    frames = [(n / 1000, bytes(12) + struct.pack(">H", ETHER_TYPE) + head + bytes([VERSION, 0x21]) + bytes(60))
              for n, head in enumerate(headers)]
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        pathlib.Path(file.name).write_bytes(pcap(frames))
        seen = list(rows(file.name))
    for head, row in zip(headers, seen, strict=True):
        word = int.from_bytes(head, "big")
        equal((row.tag, row.fragment, row.is_last), (word >> 11 & 0x1ff, word & 0x3ff, word >> 10 & 1), f"header {head.hex()}")


@test(limit_s=120)
def a_trace_has_the_frames_of_a_session():
    """`tarn trace` follows a session by frames of Ethernet and one over UDP: tshark reads what it keeps, requests and replies are
    there, no more of the disk than is asked for, nothing of other sessions, and none once it has ended."""
    with pair(1500), Target("crc", "encrypt") as tarn:
        (tarn.dir / "disk0.img").write_bytes(MARKER.ljust(4096, b".") * (SIZE // 4096))
        with Bridge() as bridge, Attached(tarn, bridge) as attached, Attached(tarn, bridge, "disk1"):
            levels = {"disk0": "crc", "disk1": "encrypt"}

            def both():
                now = tarn.api().get("sessions")
                opened = {lun["id"]: lun["level"] for one in now for lun in one["luns"] if "level" in lun}
                return len(now) == 2 and opened == levels and now
            sessions = wait_for(both, 20, "two sessions, each with its device open")
            hardware = json.loads(subprocess.check_output(["ip", "-j", "link", "show", OWN]))[0]["address"]
            ends = {(one["address"], one["transport"]["hyperscsi"]["place"]) for one in sessions}
            equal(ends, {(hardware, FAR)}, "where clients are, and where they came in")
            traced = next(one for one in sessions if any(lun["id"] == "disk0" and "level" in lun for lun in one["luns"]))
            path = f"traces/{traced['id']}"
            equal(tarn.api().ask("PUT", path, {"data_bytes": 16, "keep_bytes": 16 << 20}).status, 201, "start of the trace")
            subprocess.run([BINARY, "bench", "--rw", "read", "--bs", "64k", "--iodepth", "4", "--runtime", "1", "--repeat", "1",
                            attached.url], check=True, capture_output=True, timeout=60)
            file = tarn.dir / "trace.pcap"
            file.write_bytes(tarn.api().good("GET", path).body)
            seen = list(rows(file))
            equal(tshark(file, "-Y", "_ws.malformed"), [], "malformed frames")
            equal(tshark(file, "-Y", "eth.type==0x889a && !hyperscsi"), [], "frames that are not decoded")
            opcodes = {row.opcode for row in seen if row.fragment == 0}
            check({0x00, 0x01, 0x22} <= opcodes, f"opcodes: {opcodes}")
            equal(len({row.source for row in seen}), 2, "stations")
            kept = file.read_bytes()
            check(MARKER[:16] in kept and MARKER not in kept, "16 bytes of the data of a PDU are kept")
            attached.end()
            wait_for(lambda: len(tarn.api().get("sessions")) == 1, 20, "the session is over")
            count = tarn.api().get("traces")[0]["pdus"]
            check(count > 100, f"{count} frames")
            with Attached(tarn, bridge) as again:
                good(again.bench(1, "mixed", "16k", 4))
            equal(tarn.api().get("traces")[0]["pdus"], count, "frames after the end of the session")


# ---- loss, order, duplicates, corruption -----------------------------------------------------------


def add_losses():
    for percent in (1, 5):
        for mtu in (1500, 9000):
            for retransmit in ("selective", "window"):
                def lose(percent=percent, mtu=mtu, retransmit=retransmit):
                    with pair(mtu), Target("crc", retransmit=retransmit) as tarn, lossy(percent * 10), Bridge() as bridge:
                        with Attached(tarn, bridge) as attached:
                            good(attached.bench(2, "mixed", "4k"))
                            good(attached.bench(2, "mixed", "256k", 4))
                            attached.end()
                        lost = dropped()
                    check(lost > 20, f"nftables dropped {lost} frames")
                    measured(f"{lost} frames lost")
                lose.__doc__ = f"nftables drops {percent} % of the frames each way, MTU {mtu}, mode {retransmit}: every byte is right."
                harness.add(f"loss_of_{percent}_percent_at_{mtu}_{retransmit}", lose, 120)


add_losses()


@test(limit_s=120)
def frames_in_another_order():
    """A tenth of the frames is overtaken by up to 64 others, at each level: every byte is right."""
    for depth, level in ((1, "crc"), (8, "hash"), (64, "encrypt")):
        counts = verified(Faults(seed=depth, reorder=0.1, depth=depth), levels=(level,))
        check(counts["reorder"] > 100, f"{counts}")


@test(limit_s=120)
def frames_that_come_twice_and_old_writes():
    """5 % come twice, and some frames of writes once more after 2 s, when newer writes have been there: the newer data stay."""
    for level in ("crc", "encrypt"):
        counts = verified(Faults(twice=0.05, replay=0.02), levels=(level,), seconds=4, rounds=(("mixed", "4k"),))
        check(counts["twice"] > 100 and counts["replay"] > 20, f"{counts}")


@test(limit_s=120)
def a_captured_session_is_worth_nothing():
    """All frames of a session, its login too, are sent again from the station of its client: when it is over no session begins, and
    while another one of that client works nothing of them reaches its disk. What is refused is counted."""
    for level in ("crc", "encrypt"):
        with pair(1500), Target(level) as tarn, Bridge(keeps=True) as bridge:
            sent = lambda: [data for _, data in list(bridge.kept) if data[6:12] == bridge.own]
            with Attached(tarn, bridge) as attached:
                good(attached.bench(1, "mixed", "4k"))
                # Where a frame is lost for want of processor time, its command waits for a second: that may be all of them.
                while len(sent()) <= 100:
                    good(attached.bench(1, "mixed", "4k"))
                attached.end()
            captured = sent()
            bridge.kept = None

            def count(kind, name):
                text = tarn.api().good("GET", "/metrics").body.decode()
                label = {"frames": "kind", "events": "event"}[kind]
                return next(int(line.split()[1]) for line in text.splitlines()
                            if line.startswith(f'tarn_hyperscsi_{kind}_total{{{label}="{name}"}}'))

            def again():
                for n, data in enumerate(captured):
                    with contextlib.suppress(BlockingIOError):
                        bridge.ether.send(data)
                    if n % 50 == 0:
                        time.sleep(0.01)
            logins, disk = count("events", "authenticated"), (tarn.dir / "disk0.img").read_bytes()
            again()
            wait_for(lambda: count("frames", "unknown_tag") > 0, 20, "frames of no session are counted")
            equal(tarn.api().get("sessions"), [], "sessions")
            equal(count("events", "authenticated"), logins, "logins")
            equal((tarn.dir / "disk0.img").read_bytes(), disk, "the disk")
            with Attached(tarn, bridge) as attached:
                running = attached.bench(4, "mixed", "4k")
                refused = lambda: sum(count("frames", kind) for kind in ("forged", "stale", "corrupt"))
                before = refused()
                again()
                wait_for(lambda before=before: refused() > before, 20, "refused frames are counted")
                good(running)
                attached.end()


@test(limit_s=120)
def changed_bits_and_stale_fragments():
    """Of 1000 frames 5 have another bit, and old continuations come with the tag and generation of new PDUs: all is noticed."""
    for level in ("crc", "hash", "encrypt"):
        counts = verified(Faults(changed=0.005, stale=0.01), levels=(level,), rounds=(("mixed", "64k"),), seconds=3)
        check(counts["changed"] > 20, f"{counts}")


@test(limit_s=120)
def everything_at_once():
    """Loss, order, duplicates, replays and changed bits together, in both modes and at MTU 9000: every byte is right."""
    for retransmit, level in (("selective", "crc"), ("window", "encrypt")):
        faults = Faults(loss=0.02, twice=0.02, changed=0.003, reorder=0.05, depth=20, replay=0.01, stale=0.005)
        verified(faults, mtu=9000, levels=(level,), retransmit=retransmit)


@test(limit_s=120)
def a_wire_that_goes_dark_and_comes_back():
    """Nothing gets through for 10 s: what was under way goes on, and every byte is right."""
    with pair(1500), Target("crc") as tarn, Bridge() as bridge:
        with Attached(tarn, bridge) as attached:
            running = attached.bench(14)
            wait_for(lambda: len(tarn.api().get("sessions")) == 1, 20, "a session")
            session = tarn.api().get("sessions")[0]["id"]
            time.sleep(1)
            bridge.faults.dark.set()
            time.sleep(10)
            bridge.faults.dark.clear()
            good(running)
            equal([one["id"] for one in tarn.api().get("sessions")], [session], "the session has survived")
            attached.end()


@test(limit_s=120)
def a_wire_that_stays_dark_is_an_error():
    """Longer than --retry: commands end with an error, within their limit, and never with wrong data."""
    with pair(1500), Target("crc") as tarn, Bridge() as bridge:
        with Attached(tarn, bridge, retry=12) as attached:
            running = attached.bench(60)
            time.sleep(1)
            bridge.faults.dark.set()
            said, _ = running.communicate(timeout=90)
            check(running.returncode != 0 and "differs" not in said, f"{running.returncode}: {said}")


@test(limit_s=120)
def a_target_that_is_killed_under_writes():
    """It is killed twice and starts again: the client logs in anew, and every byte is right."""
    with pair(1500), Target("crc") as tarn, Bridge() as bridge:
        with Attached(tarn, bridge) as attached:
            running = attached.bench(12)
            for _ in range(2):
                time.sleep(2)
                tarn.kill()
                tarn.start()
            good(running)
            # What no flush had covered when the target was killed may be lost, and is said to be.
            attached.end(code=1)


@test(limit_s=120)
def a_path_that_is_narrower_than_its_ends():
    """Both ends have an MTU of 9000 and the path drops what exceeds 1514 bytes, later on: frames become shorter, and all arrives."""
    with pair(9000), Target("crc") as tarn, Bridge() as bridge:
        with Attached(tarn, bridge) as attached:
            good(attached.bench(1, "mixed", "256k", 4))
            bridge.faults.cap = 1500
            good(attached.bench(4, "mixed", "256k", 4))
            attached.end()
        check(bridge.faults.counts["cap"] > 0, "the path has dropped nothing: no frame was longer")


@test(limit_s=120)
def a_storm_of_questions():
    """20,000 questions of discovery from many addresses and one, while a disk is in use: it goes on, and few are answered."""
    asked = question(GROUP)
    with pair(1500), Target("crc") as tarn, Bridge() as bridge:
        with Attached(tarn, bridge) as attached:
            running = attached.bench(6)
            time.sleep(1)
            one = b"\x02\0\0\0\0\1"
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHER_TYPE)) as storm:
                storm.bind((OWN, ETHER_TYPE))
                for n in range(20_000):
                    source = one if n % 2 else b"\x02\1" + n.to_bytes(4, "big")
                    with contextlib.suppress(BlockingIOError):
                        storm.send(BROADCAST + source + struct.pack(">H", ETHER_TYPE) + asked)
            good(running)
            attached.end()
        equal(tarn.api().get("sessions"), [], "sessions")
        text = tarn.api().good("GET", "/metrics").body.decode()
        counted = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("tarn_hyperscsi_"))
        count = lambda kind, name: int(counted[f'tarn_hyperscsi_{kind}="{name}"}}'])
        questions, answers = count('events_total{event', "question"), count('events_total{event', "answer")
        check(questions > 1000 and answers < questions, f"{questions} questions, {answers} answers")
        equal(count('place_away{place', f"ether:{FAR}"), 0, "cores on which the place is away")


def main():
    if INSIDE not in os.environ:
        can = subprocess.run(["unshare", "-Urn", "ip", "link"], capture_output=True, check=False)
        if can.returncode == 0:
            os.execvpe("unshare", ["unshare", "-Urn", sys.executable, __file__, *sys.argv[1:]], {**os.environ, INSIDE: "1"})
    else:
        ip("link", "set", "lo", "up")
    harness.main()


if __name__ == "__main__":
    main()
