#!/usr/bin/env python3
"""Devices that another process emulates behind Tarn: one that works, one that dies, hangs or lies, and one that is fast.

    suite.py [--list] [PATTERN...]
"""
import collections
import contextlib
import importlib.util
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples/handlers"
sys.path.insert(0, str(ROOT / "tests/lib"))
import harness
import iscsi
import scsi
from harness import check, equal, measured, test, wait_for
from tarn import BINARY, IQN, Tarn, lun_section, refusal, target_section

spec = importlib.util.spec_from_file_location("write_once", EXAMPLES / "write_once.py")
write_once = importlib.util.module_from_spec(spec)
spec.loader.exec_module(write_once)

WRITE_PROTECTED, TERMINATED, INTERNAL_RESET = (0x27, 0x00), (0x00, 0x06), (0x29, 0x04)
MANUAL_INTERVENTION = (0x04, 0x03)
ABORTED_COMMAND, NOT_READY, DATA_PROTECT = 0x0B, 2, 7
ABORT_TASK, FUNCTION_REJECTED, BLOCKS = 1, 255, 4096
LIE_AT, HANDLER_LUN, DISK_LUN = 666, 0, 1
CONFINED = '[confine]\nroots = ["{dir}"]\n'


@contextlib.contextmanager
def directory():
    """A directory for files of a test."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="handlers-test."))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class Process:
    """A handler in a process of its own."""

    def __init__(self, socket_path, *command):
        self.socket, self.command = socket_path, [*map(str, command)]
        self.start()

    def start(self):
        self.socket.unlink(missing_ok=True)
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        wait_for(self.listens, 20, "the handler listens", 0.01)

    def listens(self):
        check(self.process.poll() is None, f"{self.command}: exit code {self.process.returncode}")
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(str(self.socket))
            return True
        return False

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def write_once_process(path):
    script = [sys.executable, EXAMPLES / "write_once.py", path / "socket", path / "blocks", "--blocks", BLOCKS, "--log", path / "log"]
    return Process(path / "socket", *script)


def gateway(path, retry=2, more=""):
    """A Tarn with the handler as LUN 0, and a disk beside it as LUN 1."""
    luns = lun_section("device", f"handler:{path}/socket?retry={retry}") + lun_section("disk", "mem:4M")
    return Tarn(config=luns + target_section("device", "disk") + more)


def initiator(tarn, name="one"):
    """A session that has heard what a new nexus is told."""
    session = iscsi.Session(tarn.port, target=IQN, initiator=f"iqn.2026-11.example.tarn:{name}")
    for lun in (HANDLER_LUN, DISK_LUN):
        session.clear_unit_attentions(lun)
    return session


def good(session, cdb, what=None, **options):
    outcome = session.command(cdb, **options)
    check(outcome.good, f"{what or cdb.hex()}: {outcome}")
    return outcome


def block(number):
    return number.to_bytes(4, "big") * 128


def told(session):
    """Asks until the device is ready again, and returns the unit attentions that the nexus is told meanwhile."""
    codes = []

    def is_ready():
        outcome = session.command(scsi.test_unit_ready())
        if outcome.sense.key == scsi.UNIT_ATTENTION:
            codes.append(outcome.sense.code)
        return outcome.good
    wait_for(is_ready, 20, "the device is ready")
    return codes


class Beside:
    """An initiator that uses the disk all the time; no command of it may fail."""

    def __init__(self, tarn):
        self.session = iscsi.Session(tarn.port, target=IQN, initiator="iqn.2026-11.example.tarn:beside")
        self.session.clear_unit_attentions(DISK_LUN)
        self.failed, self.slowest_s, self.is_over = [], 0.0, False
        self.thread = threading.Thread(target=self.run)

    def run(self):
        number = 0
        while not self.is_over:
            number += 1
            start = time.monotonic()
            try:
                wrote = self.session.command(scsi.write10(number % 64, 1), lun=DISK_LUN, write=block(number))
                read = self.session.command(scsi.read10(number % 64, 1), lun=DISK_LUN, read=512)
                if not wrote.good or read.data != block(number):
                    self.failed.append((wrote, read))
            except Exception as error:
                self.failed.append(error)
                return
            self.slowest_s = max(self.slowest_s, time.monotonic() - start)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.is_over = True
        self.thread.join()
        self.session.close()
        if kind is None:
            equal(self.failed, [], "commands of the disk beside that failed")
            measured(f"slowest pair of commands beside: {self.slowest_s * 1000:.0f} ms")


@test
def a_handler_is_a_disk_with_what_it_says_of_itself():
    """Blocks there and back, a refusal with its sense data, and names of the handler with the identity of the configuration."""
    with directory() as path, write_once_process(path), gateway(path) as tarn, initiator(tarn) as session:
        inquiry = good(session, scsi.inquiry(), read=255).data
        equal((inquiry[0], inquiry[8:30]), (0, b"EXAMPLE WRITE ONCE    "), "standard INQUIRY data")
        check(b"WRITEONCE1" not in good(session, scsi.inquiry(0x83), read=255).data, "the identity is that of the configuration")
        equal(scsi.capacity(session), (BLOCKS, 512), "READ CAPACITY(16)")
        tasks = [session.start(scsi.write10(number * 8, 8), write=block(number) * 8) for number in range(32)]
        check(all(session.finish(task).good for task in tasks), "writes at once")
        long = bytes(range(256)) * 4096
        good(session, scsi.write10(2048, 2048), write=long)
        equal(good(session, scsi.read10(2048, 2048), read=len(long)).data, long, "a mebibyte")
        equal((path / "blocks").read_bytes()[:32 * 4096], b"".join(block(number) * 8 for number in range(32)), "the file of the handler")
        again = session.command(scsi.write10(0, 1), write=block(9))
        equal((again.sense.key, again.sense.code), (DATA_PROTECT, WRITE_PROTECTED), "a second write")
        less = session.command(scsi.read10(0, 1), read=4096)
        equal((less.good, len(less.data), less.residual), (True, 512, 3584), "a read with more room than it takes")
        more = session.command(scsi.read10(0, 8), read=512)
        equal((more.good, more.overflow, more.residual), (True, True, 7 * 512), "and one with less")
        equal(session.command(bytes([0x3B, 5] + [0] * 8)).sense.code, scsi.INVALID_OPCODE, "firmware")


@test
def a_handler_that_is_killed_carries_out_nothing_twice():
    """kill -9 with commands under way from two initiators: ABORTED COMMAND, NOT READY, 29h/04h once for each when it is back."""
    with directory() as path, write_once_process(path) as process, gateway(path, more=CONFINED) as tarn, Beside(tarn), \
            initiator(tarn) as one, initiator(tarn, "two") as two:
        ends = collections.Counter()
        carried_out = []
        for round in range(6):
            # Stopped first every other time, so that all is under way when it is killed; else in the middle of its work.
            first = round * 400
            good(one, scsi.write10(first, 1), write=block(first))
            if round % 2:
                harness.suspend(process.process.pid)
            tasks = [(number, session, session.start(scsi.write10(number, 1), write=block(number)))
                     for session, start in ((one, first + 1), (two, first + 200)) for number in range(start, start + 40)]
            for _, session, task in tasks[:0 if round % 2 else 20]:
                session.finish(task)
            process.kill()
            for number, session, task in tasks:
                outcome = session.finish(task)
                ends[(outcome.sense.key, outcome.sense.code) if outcome.sense.data else outcome.status] += 1
                carried_out += [number] if outcome.good else []
            equal(one.command(scsi.test_unit_ready()).sense.key, NOT_READY, "without its handler")
            process.start()
            equal([told(session) for session in (one, two)], [[INTERNAL_RESET]] * 2, "what the initiators are told")
        check(ends[(ABORTED_COMMAND, TERMINATED)] >= 64, f"commands under way end as terminated: {ends}")
        check(ends.keys() <= {0, (ABORTED_COMMAND, TERMINATED), (NOT_READY, (0x04, 0x01))}, f"the ends of commands: {ends}")
        writes = [line for line in (path / "log").read_text().split() if line.startswith("2a")]
        equal(len(writes), len(set(writes)), "writes that were carried out")
        blocks = (path / "blocks").read_bytes()
        lost = [number for number in carried_out if blocks[number * 512:][:512] != block(number)]
        equal(lost, [], "writes that were answered as good and are not there")
        measured(f"ends: {dict(ends)}, {len(writes)} writes carried out")


@test
def a_handler_that_hangs_keeps_only_its_own_commands():
    """SIGSTOP: an abort ends the wait of its command, the disk beside has no error; SIGCONT: all others end well."""
    with directory() as path, write_once_process(path) as process, gateway(path) as tarn, Beside(tarn), \
            initiator(tarn) as one, initiator(tarn, "two") as two:
        pid = process.process.pid
        harness.suspend(pid)
        tasks = [one.start(scsi.write10(number, 1), write=block(number)) for number in range(100)]
        other = two.start(scsi.read10(0, 1), read=512)
        # It may still be carried out, so the function does not succeed; but it is answered.
        equal(one.tmf(ABORT_TASK, task=tasks[3], timeout_s=30), FUNCTION_REJECTED, "ABORT TASK of a command that the handler has")
        process.process.send_signal(signal.SIGCONT)
        check(two.finish(other, 30).good, "the other's read")
        for number in (*range(3), *range(4, len(tasks))):
            check(one.finish(tasks[number], 30).good, f"command {number} of it: {tasks[number].outcome}")
        good(one, scsi.read10(0, 1), "after it all", read=512)


class Liar:
    """A handler in threads of the test, which follows the protocol until block 666 is read."""

    def __init__(self, path):
        self.path, self.lie = path / "socket", None
        self.device = write_once.WriteOnce(path / "blocks", BLOCKS)
        self.version, self.greeting = 1, None
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                stream, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(stream,), daemon=True).start()

    def serve(self, stream):
        with contextlib.suppress(OSError), stream:
            if self.greeting is not None:
                stream.sendall(self.greeting)
                stream.recv(1)
                return
            ring = write_once.Ring(stream, self.version)
            for command in ring.commands():
                if self.lie and command.cdb[0] == 0x28 and int.from_bytes(command.cdb[2:6], "big") == LIE_AT:
                    self.lie(ring, command)
                    continue
                try:
                    ring.end(command, 0, self.device.execute(command.cdb, ring.data_out(command)))
                except write_once.Refused as refused:
                    ring.end(command, 2, sense=write_once.sense_data(*refused.args))

    def close(self):
        self.listener.close()
        self.path.unlink(missing_ok=True)


def ends(*slots, **options):
    """A lie that ends these slots; `None` is that of the command."""
    def lie(ring, command):
        for slot in slots:
            ring.put(command.slot if slot is None else slot, options.get("status", 0), **options.get("more", {}))
        ring.publish(options.get("index"))
    return lie


def back(ring, _command):
    ring.publish((ring.ended - 1) % (1 << 32))


def forever(ring, command):
    """Writes ends as fast as it can, for slots that it makes up."""
    for number in range(100_000):
        ring.put((command.slot + number) % 64, 0)
        ring.words[write_once.COMPLETED // 4] = ring.ended
    ring.publish()


LIES = {
    "answers twice": (ends(None, None), "it ends"),
    "answers nobody": (ends(63), "in slot 63, which it does not have"),
    "answers outside": (ends(0xFFFFFFFF), "in slot 4294967295"),
    "jumps": (ends(None, index=0x7FFFFFFF), "commands at once"),
    "goes back": (back, "commands at once"),
    "has no such status": (ends(None, status=0x102), "status 0x102"),
    "has too much sense": (ends(None, status=2, more={"sense_length": 253}), "253 bytes of sense data"),
    "answers without end": (forever, "it ends"),
}


@test(limit_s=120)
def a_handler_that_lies_is_cut_off_with_a_reason():
    """Each lie ends the connections with its reason in the log, as ABORTED COMMAND, and hurts nothing beside."""
    with directory() as path, contextlib.closing(Liar(path)) as liar, gateway(path) as tarn, Beside(tarn), initiator(tarn) as session:
        for name, (lie, reason) in LIES.items():
            good(session, scsi.read10(LIE_AT, 1), f"before it {name}", read=512)
            before, liar.lie = tarn.descriptors(), lie
            lines = len(tarn.log().splitlines())
            outcome = session.command(scsi.read10(LIE_AT, 1), read=512)
            if not outcome.good:        # what answers twice may have been right the first time
                equal((outcome.sense.key, outcome.sense.code), (ABORTED_COMMAND, TERMINATED), f"a read when it {name}")
            liar.lie = None
            said = lambda: any("broke the protocol" in line and reason in line for line in tarn.log().splitlines()[lines:])
            wait_for(said, 10, f"a reason when it {name}: {tarn.log_tail(5)}")
            equal(told(session), [INTERNAL_RESET], f"what is told after it {name}")
            wait_for(lambda: tarn.descriptors() <= before, 10, f"no descriptor is left when it {name}")


def never_reads(stream, device):
    """Follows the protocol by polling, answers each command with unit attentions first, and leaves all wake-ups unread."""
    ring, seen = write_once.Ring(stream), collections.Counter()
    while True:
        if ring.words[0] == ring.done:
            time.sleep(0.0002)
            continue
        command = write_once.Command(ring, ring.submissions + ring.done % ring.slots * ring.entry)
        ring.done += 1
        seen[bytes(command.cdb)] += 1
        if seen[bytes(command.cdb)] < 16:
            ring.end(command, scsi.CHECK_CONDITION, sense=write_once.sense_data(scsi.UNIT_ATTENTION, 0x29, 0))
        elif bytes(command.cdb[:3]) == b"\x12\1\0":
            ring.end(command, 0, bytes([0, 0, 0, 70, 0, *range(0xB0, 0xB0 + 69)]))
        else:
            try:
                ring.end(command, 0, device.execute(command.cdb, b""))
            except write_once.Refused as refused:
                ring.end(command, scsi.CHECK_CONDITION, sense=write_once.sense_data(*refused.args))


@test
def a_handler_that_reads_no_wake_up_holds_no_start_up():
    """Its connection is full after some hundred bytes: its unit is not served, or is, and the disk beside it is served."""
    with directory() as path, contextlib.closing(Liar(path)) as liar:
        def serve(stream):
            with contextlib.suppress(OSError, ValueError), stream:
                never_reads(stream, liar.device)
        liar.serve = serve
        with gateway(path, retry=0) as tarn, iscsi.Session(tarn.port, target=IQN) as session:
            session.clear_unit_attentions(DISK_LUN)
            good(session, scsi.read10(0, 1), "the disk beside", lun=DISK_LUN, read=512)


@test
def a_handler_that_is_another_one_is_not_used():
    """Garbage, another version and another serial number leave the unit NOT READY with the reason, and the right one serves again."""
    with directory() as path, contextlib.closing(Liar(path)) as liar, gateway(path, retry=0) as tarn, Beside(tarn), \
            initiator(tarn) as session:
        def breaks_off(ring, _command):
            ring.stream.shutdown(socket.SHUT_RDWR)
        serial = liar.device.serial
        for change, reason in (({"greeting": b"HTTP/1.1 400 Bad Request"}, "no handler"), ({"version": 7}, "version 7 of the protocol"),
                               ({"serial": b"ANOTHER"}, "is another one now")):
            liar.greeting, liar.version = change.get("greeting"), change.get("version", 1)
            liar.device.serial, liar.lie = change.get("serial", serial), breaks_off
            check(not session.command(scsi.read10(LIE_AT, 1), read=512).good, "a read that has no answer")
            tarn.await_log(reason)
            equal(session.command(scsi.test_unit_ready()).sense.key, NOT_READY, f"with {change}")
            liar.greeting, liar.version, liar.device.serial, liar.lie = None, 1, serial, None
            equal(told(session), [INTERNAL_RESET], f"what is told after {change}")


@test
def a_handler_keeps_no_other_out_by_what_it_says():
    """Two have one serial number: nobody need believe either, and both are served, each by its own socket."""
    with directory() as one, directory() as two, contextlib.closing(Liar(one)) as first, contextlib.closing(Liar(two)) as second:
        second.device.serial = first.device.serial
        luns = [lun_section(name, f"handler:{path}/socket") for name, path in (("first", one), ("second", two))]
        with Tarn(config="".join(luns) + target_section("first", "second")) as tarn, initiator(tarn) as session:
            for lun in (0, 1):
                good(session, scsi.write10(0, 1), f"a write to the handler {lun}", write=block(7 + lun), lun=lun)
            for lun in (0, 1):
                equal(good(session, scsi.read10(0, 1), read=512, lun=lun).data, block(7 + lun), f"what the handler {lun} has")


@test
def a_handler_that_is_not_there_at_the_start_is_not_ready():
    """Its unit has no type yet: all commands but INQUIRY, REPORT LUNS and REQUEST SENSE end with NOT READY until it is found."""
    with directory() as path, write_once_process(path) as process, gateway(path) as tarn:
        equal(tarn.terminate(), 0, "exit code")
        process.kill()
        tarn.start()
        with initiator(tarn) as session:
            for cdb, room in ((scsi.test_unit_ready(), 0), (scsi.read10(0, 1), 512), (scsi.read_capacity16(), 32)):
                sense = session.command(cdb, read=room).sense
                equal((sense.key, sense.code), (NOT_READY, MANUAL_INTERVENTION), f"command {cdb[0]:02x}h")
            good(session, scsi.inquiry(), read=255)
            good(session, scsi.read10(0, 1), "the disk beside", lun=DISK_LUN, read=512)
            process.start()
            wait_for(lambda: not tarn.api().get("luns/device").get("trouble"), 30, "it is served")
        with initiator(tarn) as session:
            equal(scsi.capacity(session), (BLOCKS, 512), "READ CAPACITY(16)")


@test
def what_a_handler_cannot_be_is_refused_with_place_and_remedy():
    """No socket, no handler behind it, an option of disks, and a server of NBD."""
    with directory() as path:
        config = path / "tarn.toml"
        section = lun_section("device", f"handler:{path}/none")
        for text, words in ((section, ["tarn.toml:3", "cannot connect", "start the handler"]),
                            (lun_section("device", "handler:/x?readonly"), ["readonly", "handler"]),
                            (section + '[[nbd]]\nbind = "127.0.0.1:0"\nluns = ["device"]\n', ["device", "NBD"])):
            config.write_text(text)
            message = refusal("--config", config, "--state", path / "state")
            check(all(word in message for word in words), f"{words} in: {message}")
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as silent:
            silent.bind(str(path / "none"))
            silent.listen()
            config.write_text(section)
            check("does not answer within 5 s" in refusal("--config", config, "--state", path / "state"), "one that is silent")


def counts(process):
    """Commands and system calls of the handler in C so far."""
    process.process.send_signal(signal.SIGUSR1)
    return [int(number) for number in re.findall(r"\d+", process.process.stdout.readline())]


@test
def a_fast_handler_makes_few_system_calls():
    """The handler in C: at most two system calls a command at depth 1, and at most 0.1 at depth 32, by its own count."""
    with directory() as path:
        binary = path / "null"
        subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-pthread", "-o", binary, EXAMPLES / "null.c"], check=True)
        config = lun_section("device", f"handler:{path}/socket") + target_section("device")
        with Process(path / "socket", binary, path / "socket") as process, Tarn(config=config) as tarn:
            for depth, most in ((1, 2.0), (32, 0.1)):
                before = counts(process)
                bench = [BINARY, "bench", "--runtime", "3", "--warmup", "0", "--repeat", "1", "--iodepth", str(depth), tarn.url()]
                subprocess.run(bench, check=True, stdout=subprocess.DEVNULL, timeout=40)
                commands, calls = (now - then for now, then in zip(counts(process), before, strict=True))
                check(commands > 1000, f"{commands} commands at depth {depth}")
                check(calls <= most * commands + 100, f"{calls} system calls for {commands} commands at depth {depth}")
                measured(f"depth {depth}: {commands} commands, {calls / commands:.3f} system calls each")


if __name__ == "__main__":
    harness.main()
