#!/usr/bin/env python3
"""Stores that fail, fill up, delay, hang, shrink and grow under a Tarn that serves them.

After each the initiator has been told the truth, the session is alive, and the process ends when asked. Faults come from a
FUSE file system (tests/lib/faultfs.py), a small tmpfs, and changes of the file behind Tarn's back. Tests that end in _over_nbd
are those of files once more: an NBD server (nbdkit) has the file, and Tarn its export.

    suite.py [--list] [PATTERN...]
"""
import contextlib
import email
import email.policy
import functools
import hashlib
import hmac
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
import iscsi
import scsi
from faultfs import FaultFs
from harness import check, equal, measured, skip, test, wait_for
from mailserver import MailServer
from reflinks import file_system
from tarn import IQN, Tarn, lun_section, target_section

MIB = 1 << 20
SIZE = 64 * MIB
BLOCK = 512
FUA = 0x08
TASK_DEADLINE_S = 2
SHUTDOWN_S = 3

CONFIG = lun_section("faulty", "STORE") + lun_section("sound", "mem:16M") + target_section("faulty", "sound") + f"""
[limits]
task_deadline_seconds = {TASK_DEADLINE_S}
shutdown_timeout_seconds = {SHUTDOWN_S}
"""


def serve(path, options="", **how):
    return serve_store(f"file:{path}{options}", **how)


def serve_store(store, **how):
    return Tarn(config=CONFIG.replace("STORE", store), **how)


@contextlib.contextmanager
def as_file(path):
    yield f"file:{path}"


@contextlib.contextmanager
def as_export(path):
    """nbdkit has the file; gives its export, by a socket."""
    if not shutil.which("nbdkit"):
        skip("nbdkit is not installed")
    with tempfile.TemporaryDirectory(prefix="faults.") as directory:
        at = f"{directory}/nbd.sock"
        # As many threads as any test has commands under way.
        command = ["nbdkit", "--foreground", "--exit-with-parent", "--threads", "40", "--unix", at, "file", path]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: os.path.exists(at), 20, "nbdkit listens")
            yield f"nbd+unix:///?socket={at}"
        finally:
            server.kill()
            server.wait()


# How Tarn has the file that is at fault.
STORES = {"": as_file, "_over_nbd": as_export}


@contextlib.contextmanager
def faulty(place=as_file):
    """The faulty file system, and the store of it. Whatever hangs at the end goes on."""
    with FaultFs(SIZE) as fs, contextlib.ExitStack() as last, place(fs.path) as store:
        last.callback(fs.release)
        yield fs, store


def over_all(name, about, run):
    """Adds a test for each way in which Tarn may have the file; it is called with that way."""
    for suffix, place in STORES.items():
        case = functools.partial(run, place)
        case.__doc__ = about
        harness.add(name + suffix, case)


def over_each(function):
    """Marks a test that is run over each kind of store."""
    over_all(function.__name__, function.__doc__, function)
    return function


@contextlib.contextmanager
def served(place=as_file, options="", **how):
    """The faulty file system, a Tarn on it and a session."""
    with faulty(place) as (fs, store):
        with serve_store(f"{store}{options}", **how) as tarn, iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions(0)
            session.clear_unit_attentions(1)
            yield fs, tarn, session
            fs.heal()
            fs.release()


def sense(outcome, key, code, what):
    """The command ended in CHECK CONDITION with this sense."""
    equal(outcome.status, scsi.CHECK_CONDITION, f"status of {what} ({outcome})")
    equal((outcome.sense.key, outcome.sense.code), (key, code), f"sense of {what} ({outcome})")


def good(outcome, what):
    check(outcome.good, f"{what}: {outcome}")
    return outcome


def alive(session):
    """The session answers, and its other unit works."""
    equal(session.nop(b"alive"), b"alive", "answer to a ping")
    good(session.command(scsi.write16(0, 8), write=b"\xa5" * 4096, lun=1), "write to the sound unit")
    equal(good(session.command(scsi.read16(0, 8), read=4096, lun=1), "read of the sound unit").data, b"\xa5" * 4096, "data")


READ_ERROR, WRITE_ERROR = (0x11, 0x00), (0x0C, 0x00)


@test
def a_read_error_tells_the_lba():
    """EIO in the middle of a READ: MEDIUM ERROR, INFORMATION holds the very block, the blocks before it read well."""
    with served() as (fs, _, session):
        data = os.urandom(64 * 1024)
        good(session.command(scsi.write16(1000, 128), write=data), "write")
        good(session.command(scsi.synchronize_cache16()), "SYNCHRONIZE CACHE")
        fs.bad_reads = [(1040 * BLOCK, BLOCK)]
        outcome = session.command(scsi.read16(1000, 128), read=len(data))
        sense(outcome, scsi.MEDIUM_ERROR, READ_ERROR, "READ over a bad block")
        equal(outcome.sense.information, 1040, "LBA in INFORMATION")
        equal(good(session.command(scsi.read16(1000, 40), read=40 * BLOCK), "READ before it").data, data[:40 * BLOCK], "data")
        equal(good(session.command(scsi.read16(1041, 87), read=87 * BLOCK), "READ behind it").data, data[41 * BLOCK:], "data")
        sense(session.command(scsi.verify16(1000, 128)), scsi.MEDIUM_ERROR, READ_ERROR, "VERIFY over it")
        alive(session)
        fs.heal()
        equal(good(session.command(scsi.read16(1000, 128), read=len(data)), "READ when healed").data, data, "data")


@over_each
def a_read_that_fails_whole_is_a_medium_error_too(place):
    """Some file systems fail the whole request: the LBA is then within it, and exact for a single block."""
    with served(place) as (fs, _, session):
        fs.bad_reads, fs.whole_reads_fail = [(2040 * BLOCK, BLOCK)], True
        outcome = session.command(scsi.read16(2000, 128), read=128 * BLOCK)
        sense(outcome, scsi.MEDIUM_ERROR, READ_ERROR, "READ over a bad block")
        check(outcome.sense.information in range(2000, 2041), f"INFORMATION {outcome.sense.information}")
        outcome = session.command(scsi.read16(2040, 1), read=BLOCK)
        equal(outcome.sense.information, 2040, "LBA in INFORMATION")
        alive(session)
        measured(f"INFORMATION for 2000+128 with 2040 bad: {outcome.sense.information}")


@test
def a_write_error_tells_the_lba():
    """EIO in the middle of a WRITE: MEDIUM ERROR with a block up to the bad one (the kernel's ring does not tell how far it
    came), and the very block when it is the only one."""
    with served(options="?cache=writethrough") as (fs, _, session):
        fs.bad_writes = [(3010 * BLOCK, BLOCK)]
        outcome = session.command(scsi.write16(3000, 64), write=bytes(64 * BLOCK))
        sense(outcome, scsi.MEDIUM_ERROR, WRITE_ERROR, "WRITE over a bad block")
        check(outcome.sense.information in range(3000, 3011), f"INFORMATION {outcome.sense.information}")
        outcome = session.command(scsi.write16(3010, 1), write=bytes(BLOCK))
        sense(outcome, scsi.MEDIUM_ERROR, WRITE_ERROR, "WRITE of the bad block")
        equal(outcome.sense.information, 3010, "LBA in INFORMATION")
        alive(session)
        fs.heal()
        good(session.command(scsi.write16(3000, 64), write=bytes(64 * BLOCK)), "WRITE when healed")


@over_each
def errors_in_many_commands_at_once_all_arrive(place):
    """32 READs under way, every other one over a bad block: 16 good, 16 MEDIUM ERROR with their own LBA."""
    with served(place) as (fs, _, session):
        fs.bad_reads = [(n * 1000 * BLOCK, BLOCK) for n in range(0, 32, 2)]
        tasks = [(n, session.start(scsi.read16(n * 1000, 8), read=4096)) for n in range(32)]
        for n, task in tasks:
            outcome = session.finish(task)
            if n % 2:
                good(outcome, f"READ {n}")
            else:
                sense(outcome, scsi.MEDIUM_ERROR, READ_ERROR, f"READ {n}")
                equal(outcome.sense.information, n * 1000, "LBA in INFORMATION")
        alive(session)


@over_each
def a_full_file_system_is_the_thin_provisioning_sense(place):
    """ENOSPC: DATA PROTECT 27/07; room again: the same WRITE succeeds."""
    with served(place) as (fs, _, session):
        fs.full = True
        sense(session.command(scsi.write16(0, 64), write=bytes([1]) * 64 * BLOCK), scsi.DATA_PROTECT,
              scsi.SPACE_ALLOCATION_FAILED, "WRITE without room")
        good(session.command(scsi.read16(0, 64), read=64 * BLOCK), "READ meanwhile")
        alive(session)
        fs.full = False
        good(session.command(scsi.write16(0, 64), write=bytes([1]) * 64 * BLOCK), "WRITE with room")


@test
def a_full_tmpfs_recovers_after_unmap():
    """A LUN larger than its file system: 27/07 when it is full, UNMAP gives room back, nothing written before is lost."""
    if os.geteuid() != 0:
        skip("mounting a tmpfs needs root")
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8M", "tmpfs", directory], check=True)
        try:
            with serve(f"{directory}/disk.img", "?size=64M") as tarn, iscsi.Session(tarn.port, IQN) as session:
                session.clear_unit_attentions()
                chunk, written = 128, 0
                while True:
                    outcome = session.command(scsi.write16(written * chunk, chunk), write=bytes([written % 255 + 1]) * chunk * BLOCK)
                    if not outcome.good:
                        break
                    written += 1
                    check(written * chunk * BLOCK <= 8 * MIB, "more was written than there is room for")
                sense(outcome, scsi.DATA_PROTECT, scsi.SPACE_ALLOCATION_FAILED, f"WRITE {written}")
                measured(f"{written * chunk * BLOCK // 1024} KiB of 8192 KiB written")
                check(written * chunk * BLOCK > 6 * MIB, "too early")
                parameters = scsi.unmap_parameters((0, 32 * chunk))
                good(session.command(scsi.unmap(len(parameters)), write=parameters), "UNMAP")
                good(session.command(scsi.write16(written * chunk, chunk), write=b"\xee" * chunk * BLOCK), "WRITE after UNMAP")
                equal(session.command(scsi.read16(0, 1), read=BLOCK).data, bytes(BLOCK), "an unmapped block")
                for n in (32, written - 1):
                    equal(session.command(scsi.read16(n * chunk, chunk), read=chunk * BLOCK).data,
                          bytes([n % 255 + 1]) * chunk * BLOCK, f"chunk {n}")
                session.logout()
        finally:
            subprocess.run(["umount", "-l", directory], check=True)


@over_each
def a_failed_fsync_latches(place):
    """The kernel tells of lost writes once, so Tarn goes on telling: SYNCHRONIZE CACHE and FUA fail from then on, also for
    another initiator, as deferred errors without INFORMATION. Reads go on, and the other unit is not touched. The last flush
    fails, too, which the exit code says."""
    with served(place, check_exit=False) as (fs, tarn, session):
        good(session.command(scsi.write16(0, 8), write=b"\x11" * 4096), "WRITE")
        fs.fsync_failures = 1
        outcome = session.command(scsi.synchronize_cache16())
        equal(outcome.status, scsi.CHECK_CONDITION, "status of the first SYNCHRONIZE CACHE")
        check(outcome.sense.key in (scsi.MEDIUM_ERROR, scsi.HARDWARE_ERROR), f"its sense ({outcome})")
        with iscsi.Session(tarn.port, IQN, initiator="iqn.2026-11.example.tarn:other") as other:
            other.clear_unit_attentions()
            for who, a_session in (("same", session), ("other", other)):
                for n in range(2):
                    outcome = a_session.command(scsi.synchronize_cache16())
                    sense(outcome, scsi.MEDIUM_ERROR, WRITE_ERROR, f"SYNCHRONIZE CACHE {n} of the {who} initiator")
                    check(outcome.sense.deferred and outcome.sense.information is None, f"a deferred error: {outcome.sense}")
                outcome = a_session.command(scsi.write16(16, 8, FUA), write=bytes(4096))
                sense(outcome, scsi.MEDIUM_ERROR, WRITE_ERROR, f"WRITE with FUA of the {who} initiator")
                good(a_session.command(scsi.read16(0, 8), read=4096), f"READ of the {who} initiator")
        good(session.command(scsi.synchronize_cache16(), lun=1), "SYNCHRONIZE CACHE of the sound unit")
        alive(session)
        session.logout()
        equal(tarn.terminate(), 1, "exit code")


@over_each
def delays_overlap(place):
    """32 READs that the store keeps are all in it at the same time, and the data is right."""
    with served(place) as (fs, _, session):
        for n in range(32):
            good(session.command(scsi.write16(n * 256, 8), write=bytes([n]) * 4096), "WRITE")
        fs.hang = ("read",)
        tasks = [session.start(scsi.read16(n * 256, 8), read=4096) for n in range(32)]
        wait_for(lambda: fs.hung() == 32, 30, "all READs reach the store")
        fs.release()
        for n, task in enumerate(tasks):
            equal(session.finish(task).data, bytes([n]) * 4096, f"data of READ {n}")


def hang(fs, session, kind):
    """Starts a command that hangs in the store; returns its task."""
    fs.hang = (kind,)
    cdb = scsi.read16(0, 8) if kind == "read" else scsi.write16(0, 8, FUA)
    task = session.start(cdb, **({"read": 4096} if kind == "read" else {"write": b"\x77" * 4096}))
    wait_for(fs.hung, 5, f"the {kind} reaches the store")
    return task


def aborts(function, name):
    def case(kind):
        def run(place):
            with served(place) as (fs, _, session):
                task = hang(fs, session, kind)
                alive(session)
                start = time.monotonic()
                response = session.tmf(function, task=task if function == iscsi.ABORT_TASK else None, timeout_s=TASK_DEADLINE_S + 5)
                seconds = time.monotonic() - start
                measured(f"response {response} after {seconds:.2f} s")
                if kind == "write":     # it may still reach the medium, so nobody may say that it is over
                    equal(response, iscsi.TMF_REJECTED, "response")
                    session.clear_unit_attentions()
                    outcome = session.command(scsi.read16(7, 8), read=4096)
                    equal((outcome.sense.key, outcome.sense.code[:1]), (scsi.NOT_READY, (0x04,)), f"access meanwhile ({outcome})")
                    good(session.command(scsi.read16(64, 8), read=4096), "READ of other blocks meanwhile")
                else:
                    check(response in (iscsi.TMF_COMPLETE, iscsi.TMF_REJECTED), f"response {response}")
                check(seconds < TASK_DEADLINE_S + 2, f"{seconds:.1f} s")
                alive(session)
                fs.release()
                wait_for(lambda: session.command(scsi.read16(0, 8), read=4096).good, 10, "its blocks can be read again")
                good(session.command(scsi.write16(64, 8), write=b"\x12" * 4096), "WRITE afterwards")
                equal(session.command(scsi.read16(64, 8), read=4096).data, b"\x12" * 4096, "data")
        over_all(f"{name.lower().replace(' ', '_')}_of_a_hanging_{kind}_is_answered",
                 f"{name} with a {kind} that hangs in the store is answered in time; the session and the other unit go on.", run)
    case("read")
    case("write")


aborts(iscsi.ABORT_TASK, "ABORT TASK")
aborts(iscsi.ABORT_TASK_SET, "ABORT TASK SET")
aborts(iscsi.LU_RESET, "LOGICAL UNIT RESET")


def session_ends(name, end):
    def run(place):
        with served(place) as (fs, tarn, session):
            second = iscsi.Session(tarn.port, IQN)
            second.clear_unit_attentions()
            fs.hang = ("read",)
            second.start(scsi.read16(0, 8), read=4096)
            wait_for(fs.hung, 5, "the read reaches the store")
            end(second, tarn)
            alive(session)
            with iscsi.Session(tarn.port, IQN) as third:
                third.clear_unit_attentions(1)
                third.logout()
            fs.release()
            wait_for(lambda: session.command(scsi.read16(64, 8), read=4096).good, 10, "the unit works")
    over_all(f"{name}_with_a_hanging_read",
             f"A session that ends ({name}) while its READ hangs does not hold up others, nor a new login.", run)


session_ends("cut", lambda second, _: second.connection.reset())
session_ends("logout", lambda second, _: check(second.logout() in (0, 3), "logout is answered, perhaps with 'cleanup failed'"))
session_ends("reinstatement", lambda second, tarn: iscsi.Session(tarn.port, IQN, isid=second.isid).close())


def ends(kind):
    def run(place):
        with faulty(place) as (fs, store):
            tarn = serve_store(store)
            try:
                tarn.start()
                with iscsi.Session(tarn.port, IQN) as session:
                    session.clear_unit_attentions()
                    hang(fs, session, kind)
                    start = time.monotonic()
                    status = tarn.terminate(limit_s=SHUTDOWN_S + TASK_DEADLINE_S + 5)
                    measured(f"exit code {status} after {time.monotonic() - start:.1f} s")
                    tarn.check_log()
            finally:
                fs.release()
                tarn.close()
    over_all(f"the_process_ends_while_a_{kind}_hangs", f"SIGTERM while a {kind} hangs ends the process in bounded time.", run)


ends("read")
ends("write")


@test
def a_truncated_file_is_an_error_and_not_zeros():
    """Blocks behind the new end: MEDIUM ERROR with the LBA; the blocks before it are still there."""
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/disk.img"
        with serve(path, f"?size={SIZE}") as tarn, iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions()
            good(session.command(scsi.write16(0, 8), write=b"\x42" * 4096), "WRITE")
            os.truncate(path, SIZE // 2)
            outcome = session.command(scsi.read16(SIZE // 2 // BLOCK - 8, 16), read=8192)
            check(not outcome.good, f"READ across the new end: {outcome}")
            if outcome.sense.key == scsi.MEDIUM_ERROR:
                equal(outcome.sense.information, SIZE // 2 // BLOCK, "LBA in INFORMATION")
            measured(f"READ across the new end: {outcome.sense}")
            session.clear_unit_attentions()
            outcome = session.command(scsi.read16(SIZE // BLOCK - 8, 8), read=4096)
            check(not outcome.good, f"READ behind the new end: {outcome}")
            equal(good(session.command(scsi.read16(0, 8), read=4096), "READ before it").data, b"\x42" * 4096, "data")
            session.clear_unit_attentions(1)
            alive(session)


@test
def a_grown_file_is_reported():
    """A larger file: unit attention CAPACITY DATA HAS CHANGED, then READ CAPACITY tells the new size."""
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/disk.img"
        with serve(path, f"?size={SIZE}") as tarn, iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions()
            equal(scsi.capacity(session)[0], SIZE // BLOCK, "blocks before")
            os.truncate(path, 2 * SIZE)
            start = time.monotonic()

            def attention():
                outcome = session.command(scsi.test_unit_ready())
                return outcome.sense.key == scsi.UNIT_ATTENTION and outcome.sense.code == (0x2A, 0x09)
            wait_for(attention, 15, "CAPACITY DATA HAS CHANGED", step_s=0.2)
            measured(f"seen after {time.monotonic() - start:.1f} s")
            equal(scsi.capacity(session)[0], 2 * SIZE // BLOCK, "blocks after")
            good(session.command(scsi.write16(2 * SIZE // BLOCK - 8, 8), write=bytes(4096)), "WRITE to the new part")


@test
def buffered_pages_do_not_hide_a_failed_write_back():
    """Through the page cache: what the file system refuses later shows at SYNCHRONIZE CACHE and not as GOOD."""
    with FaultFs(SIZE, direct_io=False) as fs:
        with serve(fs.path) as tarn, iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions()
            fs.bad_writes = [(0, SIZE)]
            first = session.command(scsi.write16(0, 64), write=bytes([9]) * 64 * BLOCK)
            second = session.command(scsi.synchronize_cache16())
            check(not (first.good and second.good), "a lost write was answered GOOD twice")
            measured(f"WRITE {first}, SYNCHRONIZE CACHE {second}")
            equal(session.nop(b"alive"), b"alive", "answer to a ping")
            fs.heal()


# What is told of all this: an event, a line of the log, a finding, a metric.

# Between two looks of the doctor, with room for a machine that has much to do.
LOOK_S = 60


class Told:
    """What a Tarn says of its LUN "faulty"."""

    def __init__(self, tarn):
        self.tarn, self.api = tarn, tarn.api()

    def findings(self):
        """The codes of what is found about it."""
        codes = {one["code"] for one in self.api.get("findings") if one.get("lun") == "faulty"}
        return codes - {"medium-unmarked"}      # no file system of FUSE has a UUID

    def events(self, kind):
        return [one for one in self.api.get(f"events?after=0&most=1000&kind={kind}") if one.get("lun") == "faulty"]

    def turns(self, kind, code):
        """Findings of this code that have begun, or ended, as events say."""
        return [one for one in self.events(kind) if one["message"].startswith(f"finding {code} of faulty")]

    def lines(self, *words):
        """Lines of the log with all these words, of which there is one at least."""
        self.tarn.await_log(*words)
        return [line for line in self.tarn.log().splitlines() if all(word in line for word in words)]

    def errors(self):
        """How many failures are counted, by cause."""
        return {one["errno"]: one["count"] for one in self.api.get("stats").get("store_errors", [])}

    def metrics(self, name):
        """Samples of a metric, by their labels."""
        text = self.api.ask("GET", "/metrics").body.decode()
        pairs = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(name + "{")]
        return {labels: float(value) for labels, value in pairs}


def fails(session, cdb, many=5, **data):
    for n in range(many):
        outcome = session.command(cdb, **data)
        check(not outcome.good, f"command {n} does not fail: {outcome}")


@test
def a_full_store_is_told_everywhere_until_there_is_space():
    """ENOSPC five times: one event and one line of the log, each failure counted, a finding that ends with its cause."""
    with served() as (fs, tarn, session):
        told = Told(tarn)
        equal((told.errors(), told.findings()), ({}, set()), "before")
        fs.full = True
        fails(session, scsi.write16(0, 64), write=bytes([1]) * 64 * BLOCK)
        equal(told.errors(), {"ENOSPC": 5}, "failures that are counted")
        equal(told.metrics("tarn_store_errors_total"), {'tarn_store_errors_total{lun="faulty",errno="ENOSPC"}': 5}, "the metric")
        (event,) = told.events("store-error")
        equal(event["severity"], "error", "severity of the event")
        check(event["message"].startswith("lun faulty: ") and "(ENOSPC)" in event["message"], f"the event: {event}")
        equal(len(told.lines("the store of a unit failed", "ENOSPC")), 1, "lines of the log")
        check("store-error" in told.findings(), "no finding")
        name = 'tarn_findings{rule="store-error",severity="error",lun="faulty"}'
        equal(told.metrics("tarn_findings").get(name), 1, "the metric of findings")
        wait_for(lambda: told.turns("finding-began", "store-error"), LOOK_S, "the finding begins")
        check(told.lines("finding", "store-error", "no space"), "no line of the log says that the finding begins")
        fs.full = False
        good(session.command(scsi.write16(0, 64), write=bytes([1]) * 64 * BLOCK), "WRITE with room")
        wait_for(lambda: "store-error" not in told.findings(), LOOK_S, "the finding is over")
        wait_for(lambda: told.turns("finding-ended", "store-error"), LOOK_S, "the event of its end")
        equal(told.errors(), {"ENOSPC": 5}, "failures at the end")


@test
def a_bad_medium_is_told_everywhere():
    """EIO of reads: MEDIUM ERROR for the initiator; event, line, finding and metric for the administrator."""
    with served() as (fs, tarn, session):
        told = Told(tarn)
        fs.bad_reads = [(0, SIZE)]
        fails(session, scsi.read16(0, 8), read=4096)
        equal(told.errors(), {"EIO": 5}, "failures that are counted")
        equal(len(told.events("store-error")), 1, "events")
        equal(len(told.lines("the store of a unit failed", "EIO")), 1, "lines of the log")
        check("store-error" in told.findings(), "no finding")


@test
def a_failed_flush_is_told_everywhere_until_the_lun_is_opened_again():
    """An fsync that fails once: EIO for the flush, flush-failed for all later ones; event, line, finding and metric."""
    with served(check_exit=False) as (fs, tarn, session):
        told = Told(tarn)
        good(session.command(scsi.write16(0, 8), write=bytes(4096)), "WRITE")
        fs.fsync_failures = 1
        fails(session, scsi.synchronize_cache16(), many=3)
        equal(told.errors(), {"EIO": 1, "flush-failed": 2}, "failures that are counted")
        equal(len(told.events("store-error")), 2, "events, one of each cause")
        equal(len(told.lines("the store of a unit failed", "flush-failed")), 1, "lines of the log")
        check("flush-failed" in told.findings(), "no finding")
        wait_for(lambda: told.turns("finding-began", "flush-failed"), LOOK_S, "the finding begins")


@test
def a_shrunk_image_is_told_everywhere_until_it_is_opened_again():
    """A file that is cut while it is served: event, line, finding and metric, also when somebody has made it longer again."""
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/disk.img"
        with serve(path, f"?size={SIZE}") as tarn, iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions()
            told = Told(tarn)
            os.truncate(path, SIZE // 2)
            wait_for(lambda: "store-short" in told.findings(), LOOK_S, "the finding")
            (event,) = told.events("lun-resized")
            equal(event["severity"], "error", "severity of the event")
            check(told.lines("the store of a unit has shrunk"), "no line of the log")
            name = 'tarn_findings{rule="store-short",severity="error",lun="faulty"}'
            equal(told.metrics("tarn_findings").get(name), 1, "the metric")
            os.truncate(path, SIZE)
            session.clear_unit_attentions()
            last = SIZE // BLOCK - 1
            for cdb in (scsi.read16(last, 1), scsi.write16(last, 1)):
                outcome = session.command(cdb, read=BLOCK) if cdb[0] == 0x88 else session.command(cdb, write=bytes(BLOCK))
                check(not outcome.good, f"what was lost reads as zeros, or is written: {outcome}")
            check("store-short" in told.findings(), "the finding is over")
        with serve(path, f"?size={SIZE}") as tarn, iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions()
            good(session.command(scsi.read16(last, 1), read=BLOCK), "READ after the next start")


@test
def no_write_makes_a_file_longer_that_was_cut():
    """On each file system, through the page cache and past it, at once after the cut: writes behind the end fail as reads do."""
    for kind in ("xfs", "ext4", "btrfs"):
        with file_system(kind) as place:
            for cache in ("writeback", "direct"):
                path = f"{place}/{cache}.img"
                with serve(path, f"?size={SIZE}&cache={cache}&blocksize=4096") as tarn, iscsi.Session(tarn.port, IQN) as session:
                    session.clear_unit_attentions()
                    good(session.command(scsi.write16(0, 8), write=bytes(8 * 4096)), "WRITE before the cut")
                    os.truncate(path, SIZE // 2)
                    for lba in (SIZE // 4096 - 1, SIZE // 2 // 4096 + 9):
                        for flags in (0, FUA):
                            outcome = session.command(scsi.write16(lba, 1, flags), write=b"x" * 4096)
                            check(not outcome.good, f"{kind}, {cache}: a WRITE behind the end: {outcome}")
                    equal(os.stat(path).st_size, SIZE // 2, f"{kind}, {cache}: the length of the file")
                    good(session.command(scsi.write16(1, 1, FUA), write=b"y" * 4096), "WRITE in front of the end")


@test
def a_vanished_image_is_told_everywhere_until_it_is_back():
    """A file that is moved away while it is served: finding, event, line and metric, without a command."""
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/disk.img"
        with serve(path, f"?size={SIZE}") as tarn:
            told = Told(tarn)
            os.rename(path, f"{path}.away")
            wait_for(lambda: told.turns("finding-began", "file-replaced"), LOOK_S, "the finding begins")
            check(told.lines("finding", "file-replaced", "is gone"), "no line of the log")
            name = 'tarn_findings{rule="file-replaced",severity="error",lun="faulty"}'
            equal(told.metrics("tarn_findings").get(name), 1, "the metric")
            os.rename(f"{path}.away", path)
            wait_for(lambda: told.turns("finding-ended", "file-replaced"), LOOK_S, "the finding is over")


@test
def a_store_that_hangs_is_told_everywhere_until_it_answers():
    """A write that the store keeps beyond its deadline: slow, then stuck; both findings and the events name the LUN."""
    with served() as (fs, tarn, session):
        told = Told(tarn)
        task = hang(fs, session, "write")
        session.tmf(iscsi.ABORT_TASK, task=task, timeout_s=TASK_DEADLINE_S + 5)
        wait_for(lambda: told.events("store-stuck"), LOOK_S, "the event")
        check("store-stuck" in told.findings(), "no finding")
        check(told.lines("did not end a request in time", "faulty"), "no line of the log")
        name = 'tarn_findings{rule="store-stuck",severity="error",lun="faulty"}'
        equal(told.metrics("tarn_findings").get(name), 1, "the metric")
        fs.release()
        wait_for(lambda: told.events("store-freed"), LOOK_S, "the event of its end")
        check("store-stuck" not in told.findings(), "the finding is not over")
        wait_for(lambda: "store-slow" in told.findings(), LOOK_S, "the command was slow")


@test
def what_is_no_fault_of_the_store_is_not_told_as_one():
    """Unit attentions, a bad LBA and a miscompare are CHECK CONDITIONs, and no errors of the store."""
    with served() as (_, tarn, session):
        told = Told(tarn)
        session.tmf(iscsi.LU_RESET)
        outcome = session.command(scsi.test_unit_ready())
        equal(outcome.sense.key, scsi.UNIT_ATTENTION, "after a reset")
        fails(session, scsi.read16(SIZE // BLOCK, 8), many=1, read=4096)
        equal((told.errors(), told.events("store-error")), ({}, []), "errors of the store")


@test
def space_is_in_the_metrics():
    """The size of each LUN, what its file takes, and what its file system has and has promised."""
    with served() as (_, tarn, session):
        good(session.command(scsi.write16(0, 128), write=bytes([1]) * 65536), "WRITE")
        good(session.command(scsi.synchronize_cache16()), "SYNCHRONIZE CACHE")
        told = Told(tarn)
        equal(told.metrics("tarn_lun_size_bytes"), {'tarn_lun_size_bytes{lun="faulty"}': SIZE,
                                                    'tarn_lun_size_bytes{lun="sound"}': 16 * MIB}, "sizes")
        wait_for(lambda: told.metrics("tarn_lun_allocated_bytes"), LOOK_S, "a look")
        equal(list(told.metrics("tarn_lun_allocated_bytes")), ['tarn_lun_allocated_bytes{lun="faulty"}'], "files")
        for name, least in (("size", 1), ("free", 1), ("promised", SIZE - 2 * MIB)):
            (value,) = told.metrics(f"tarn_filesystem_{name}_bytes").values()
            check(value >= least, f"{name}: {value}")


# Who gets events.

SECRET = "a secret of 26 characters."


class Hook:
    """A web server that keeps what it is sent. `answers` are the statuses of the next requests, then 204; None: it never answers."""

    def __init__(self):
        self.requests, self.answers, self.waits = [], [], threading.Event()
        hook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = hook.answers.pop(0) if hook.answers else 204
                hook.requests.append((status, self.path, dict(self.headers), body))
                if status is None:
                    hook.waits.wait(30)
                else:
                    self.send_response(status)
                    self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.waits.set()
        self.server.shutdown()
        self.server.server_close()

    def events(self):
        """Events of the requests that it has taken."""
        return [event for status, _, _, body in self.requests if status == 204 for event in json.loads(body)["events"]]

    def section(self, path="/hook", events=""):
        return f'[[notify]]\nurl = "http://127.0.0.1:{self.port}{path}"\nsecret_file = "notify.secret"\n{events}\n'


def notifying(sections, store="mem:16M"):
    tarn = Tarn(config=CONFIG.replace("STORE", store) + sections)
    tarn.secret("notify.secret", SECRET)
    return tarn


@test
def findings_are_sent_signed_when_they_begin_and_end():
    """A web server gets both, with a signature that holds, also under the filter of system calls; nothing else that happens."""
    with tempfile.TemporaryDirectory() as directory, Hook() as hook:
        path = f"{directory}/disk.img"
        with notifying(hook.section(), f"file:{path}?size={SIZE}") as tarn:
            iscsi.Session(tarn.port, IQN).logout()
            os.rename(path, f"{path}.away")
            sent = lambda kind: [one for one in hook.events() if one["kind"] == kind and one.get("lun") == "faulty"]
            (began,) = wait_for(lambda: sent("finding-began"), LOOK_S, "the finding begins")
            check("file-replaced" in began["message"], f"the event: {began}")
            os.rename(f"{path}.away", path)
            wait_for(lambda: sent("finding-ended"), LOOK_S, "the finding is over")
            listed = {one["number"]: one for one in tarn.api().get("events?after=0&most=1000&kind=finding-began,finding-ended")}
            for event in hook.events():
                equal(event, listed[event["number"]], "an event that was sent, and as the API has it")
        for status, path, headers, body in hook.requests:
            equal((status, path, headers["Content-Type"]), (204, "/hook", "application/json"), "a request")
            signed = headers["X-Tarn-Timestamp"].encode() + b"." + body
            code = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
            equal(headers["X-Tarn-Signature"], f"sha256={code}", "signature")


@test
def what_a_server_does_not_take_is_sent_again_and_holds_nobody_up():
    """One server answers 500 twice, one never: the first gets the event in the end, the finding says so meanwhile, disks work."""
    with Hook() as failing, Hook() as silent:
        failing.answers, silent.answers = [500, 500], [None] * 100
        kinds = 'events = ["session-began"]'
        with notifying(failing.section(events=kinds) + silent.section(events=kinds)) as tarn:
            with iscsi.Session(tarn.port, IQN) as session:
                session.clear_unit_attentions(0)
                found = lambda: [one for one in tarn.api().get("findings") if one["code"] == "notify-failed"]
                wait_for(lambda: any("answered 500" in one["message"] for one in found()), LOOK_S, "the finding")
                wait_for(failing.events, LOOK_S, "the event is taken")
                good(session.command(scsi.write16(0, 8), write=bytes(4096)), "WRITE meanwhile")
                wait_for(lambda: [one["subject"] for one in found()] == [f"http://127.0.0.1:{silent.port}"], LOOK_S,
                         "only the silent server fails")
            bodies = {body for _, _, _, body in failing.requests[:3]}
            equal(([status for status, *_ in failing.requests[:3]], len(bodies)), ([500, 500, 204], 1), "the same, three times")
            tarn.await_log("events cannot be sent")
            tarn.await_log("events are sent again")


def mail_section(server, host="127.0.0.1", more=""):
    return f'[[notify]]\nmail = "ops@example.org"\nfrom = "san@example.org"\nsmtp = "{host}:{server.port}"\n{more}\n'


def words_of(mail):
    """Subject and text, as a reader sees them."""
    read = email.message_from_string(mail["content"], policy=email.policy.default)
    return read["Subject"], read.get_content()


@test
def findings_are_sent_by_mail_when_they_begin_and_end():
    """A real mail server, which is busy at first and wants a login: a webhook and a mailbox get the same events."""
    with tempfile.TemporaryDirectory() as directory, Hook() as hook, \
            MailServer("--user", "san", "--password", SECRET, "--busy", 1) as server:
        path = f"{directory}/disk.img"
        login = 'smtp_user = "san"\nsmtp_password_file = "notify.secret"'
        with notifying(hook.section() + mail_section(server, more=login), f"file:{path}?size={SIZE}") as tarn:
            os.rename(path, f"{path}.away")
            about = lambda word: [mail for mail in list(server.mails) if f"{word} file-replaced" in words_of(mail)[1].replace("\n", " ")]
            wait_for(lambda: about("finding"), LOOK_S, "the mail that the finding begins")
            tarn.await_log("come back later")
            os.rename(f"{path}.away", path)
            wait_for(lambda: any("finding-ended" in words_of(mail)[1] for mail in list(server.mails)), LOOK_S, "the mail that it is over")
            wait_for(lambda: any(one["kind"] == "finding-ended" for one in hook.events()), LOOK_S, "the request that it is over")
            numbers = [int(number) for mail in server.mails for number in re.findall(r"event (\d+)\)", words_of(mail)[1])]
            listed = [one["number"] for one in tarn.api().get("events?after=0&most=1000&kind=finding-began,finding-ended")]
        equal(numbers, [number for number in listed if number in numbers], "events in order, each once")
        check(set(one["number"] for one in hook.events()) <= set(numbers), "the mailbox has what the webhook has")
        for mail in server.mails:
            equal((mail["sender"], mail["to"], mail["user"]), ("san@example.org", ["ops@example.org"], "san"), "from whom to whom")
        subject, text = words_of(about("finding")[0])
        check(text.splitlines()[0] in about("finding")[0]["content"], "the text can be read as it is sent")
        check("file-replaced" in subject and "faulty" in text, f"{subject}\n{text}")


@test(limit_s=180)
def mail_beyond_this_machine_needs_tls_that_is_trusted():
    """127.0.0.2 counts as another machine: with a certificate that is trusted mail is sent over STARTTLS, with another one, or
    without TLS, the finding says why and nothing goes out."""
    with tempfile.TemporaryDirectory() as directory:
        key, certificate = f"{directory}/key.pem", f"{directory}/certificate.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", "/CN=mail", "-addext", "subjectAltName=IP:127.0.0.2", "-addext", "basicConstraints=critical,CA:FALSE",
                        "-keyout", key, "-out", certificate],
                       check=True, capture_output=True)
        tls = ("--host", "127.0.0.2", "--certificate", certificate, "--key", key)
        kinds = 'events = ["session-began"]'
        for arguments, trusted, why in [(tls, certificate, None), (tls, "/dev/null", "invalid peer certificate"),
                                        (("--host", "127.0.0.2"), certificate, "offers no STARTTLS")]:
            with MailServer(*arguments) as server, unittest.mock.patch.dict(os.environ, SSL_CERT_FILE=trusted), \
                    notifying(mail_section(server, "127.0.0.2", kinds)) as tarn, iscsi.Session(tarn.port, IQN):
                if why is None:
                    (mail,) = wait_for(lambda: list(server.mails), LOOK_S, "a mail")
                    check(mail["is_tls"] and "logged in" in words_of(mail)[1], f"the mail: {mail}")
                else:
                    failed = lambda: [one for one in tarn.api().get("findings") if one["code"] == "notify-failed" and why in one["message"]]
                    wait_for(failed, LOOK_S, f"the finding: {why}")
                    equal(server.mails, [], "mails")


@test
def a_change_of_notify_needs_a_restart():
    """Another URL is pending until a restart: events go where they went until then, and only there, and afterwards to the other one
    alone. A wrong kind of event is an error with its place."""
    kinds = 'events = ["session-began"]'
    with Hook() as hook, notifying(hook.section(events=kinds)) as tarn:
        text = (tarn.dir / "tarn.toml").read_text()
        plan = tarn.api().post("plan", {"text": text.replace("/hook", "/other")})
        steps = [step for step in plan["steps"] if step["kind"] == "notify"]
        check(steps and all(step["effect"] == "pending" for step in steps), f"the plan: {plan}")

        def sent():
            """To which paths a session that begins is sent."""
            before = len(hook.requests)
            iscsi.Session(tarn.port, IQN).logout()
            wait_for(lambda: len(hook.requests) > before, LOOK_S, "the event is sent")
            return {path for _, path, _, _ in hook.requests[before:]}
        equal(sent(), {"/hook"}, "where events go")
        tarn.api().put("config", {"text": text.replace("/hook", "/other")})
        check(tarn.api().get("status").get("pending"), "nothing is pending")
        equal(sent(), {"/hook"}, "where events go until a restart")
        equal(tarn.terminate(), 0, "exit code")
        tarn.config = (tarn.dir / "tarn.toml").read_text()
        tarn.start()
        equal(tarn.api().get("status").get("pending"), None, "what is pending after the restart")
        equal(sent(), {"/other"}, "where events go after it")
        wrong = tarn.api().ask("POST", "plan", {"text": text.replace("session-began", "no-such")})
        check(wrong.status == 422 and "no-such" in wrong.json["detail"], f"a wrong kind: {wrong}")


if __name__ == "__main__":
    harness.main()
