#!/usr/bin/env python3
"""Log devices: durable writes do not wait for the store, a crash loses none of them, and a log that is lost, foreign, failed or
hung hurts its unit alone.

A crash of the machine is played: Tarn is killed, and the store gets the content of its last sync back.

    suite.py [--list] [PATTERN...]
"""
import contextlib
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
import iscsi
import scsi
from faultfs import FaultFs
from harness import check, equal, measured, test, wait_for
from tarn import BINARY, IQN, Tarn, lun_section, refusal, target_section

MIB = 1 << 20
SIZE = 32 * MIB
BLOCK = 512
PAGE = 4096
FUA = 0x08
NOT_READY = 0x02
LIMITS = "[limits]\ntask_deadline_seconds = 2\nshutdown_timeout_seconds = 2\n"
SYNC_S = 0.008


def config(store, log="", more="", options=""):
    """A unit of this store with this log, and one that has nothing to do with them."""
    keys = f'log = "{log}"\n' if log else ""
    return lun_section("disk", f"file:{store}{options}") + keys + more + lun_section("sound", "mem:16M") + \
        target_section("disk", "sound") + LIMITS


@contextlib.contextmanager
def directory():
    """A directory for logs, whose sync takes no time."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="log-test.", dir="/dev/shm"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def session_with(tarn):
    with iscsi.Session(tarn.port, IQN) as session:
        for lun in (0, 1):
            session.clear_unit_attentions(lun)
        yield session


def good(outcome, what):
    check(outcome.good, f"{what}: {outcome}")
    return outcome.data


def write(session, at, data, fua=True, lun=0):
    cdb = bytearray(scsi.write16(at // BLOCK, len(data) // BLOCK))
    cdb[1] |= FUA if fua else 0
    return session.command(bytes(cdb), write=data, lun=lun)


def read(session, at, length, lun=0):
    return session.command(scsi.read16(at // BLOCK, length // BLOCK), read=length, lun=lun)


def discarded(tarn):
    """The administrator does without the log, and the unit is served again."""
    code, said = verb(tarn, "lun", "log", "discard", "disk", "--yes")
    equal(code, 0, said)
    with session_with(tarn) as session:
        good(write(session, 0, b"\x22" * PAGE), "write with FUA")


def sound(session):
    """The other unit works."""
    good(write(session, 0, b"\xa5" * PAGE, lun=1), "write to the sound unit")


def not_ready(session, what):
    outcome = read(session, 0, PAGE)
    check(outcome.sense and outcome.sense.key == NOT_READY, f"{what}: {outcome}")


def crash(tarn, fs):
    """The machine stops: what was not synced since the start is gone from the store."""
    tarn.kill()
    fs.backing.write_bytes(bytes(SIZE))


def verb(tarn, *arguments):
    """Runs a verb against this Tarn; what it printed and its exit code."""
    done = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=30, env=tarn.environment(), check=False)
    return done.returncode, done.stdout + done.stderr


def codes(tarn):
    return {one["code"]: one for one in tarn.api().get("status")["findings"]}


def durable_writes(session, count, seed, expected):
    """Durable writes of all sizes here and there; `expected` becomes what the disk must hold."""
    chance = random.Random(seed)
    for _ in range(count):
        length = chance.choice((BLOCK, PAGE, 9 * BLOCK, 128 << 10))
        at = chance.randrange(0, (len(expected) - length) // BLOCK + 1) * BLOCK
        if chance.random() < 0.1:
            ranges = scsi.unmap_parameters((at // BLOCK, length // BLOCK))
            good(session.command(scsi.unmap(len(ranges)), write=ranges), "UNMAP")
            expected[at:at + length] = bytes(length)
        else:
            data = chance.randbytes(length)
            good(write(session, at, data, fua=chance.random() < 0.7), "WRITE")
            expected[at:at + length] = data


def equal_data(session, expected, what):
    for at in range(0, len(expected), MIB):
        check(good(read(session, at, MIB), "READ") == expected[at:at + MIB], f"{what}: data at {at}")


@test
def durable_writes_and_flushes_wait_for_the_log_and_not_for_the_store():
    """A hundred writes with FUA and ten flushes: the store is synced some few times, and not for each."""
    with directory() as logs, FaultFs(SIZE) as fs:
        fs.fsync_delay_s = SYNC_S
        rates = {}
        for log in ("", f"file:{logs}/a.log?size=64M"):
            with Tarn(config=config(fs.path, log)) as tarn, session_with(tarn) as session:
                before, begun = fs.counts["fsync"], time.monotonic()
                for number in range(100):
                    good(write(session, number * PAGE, os.urandom(PAGE)), "write with FUA")
                rates[log] = 100 / (time.monotonic() - begun)
                for number in range(10):
                    good(write(session, number * PAGE, os.urandom(PAGE), fua=False), "write")
                    good(session.command(scsi.synchronize_cache16()), "SYNCHRONIZE CACHE")
                syncs = fs.counts["fsync"] - before
                check(syncs >= 110 if not log else syncs <= 5, f"{syncs} syncs, log {log!r}")
        without, with_log = rates.values()
        measured(f"4 KiB with FUA, a sync takes 8 ms: {without:.0f}/s without a log, {with_log:.0f}/s with")


@test
def a_crash_loses_nothing_that_was_durable():
    """The store loses all that was not synced; the next start writes it again, three times over."""
    for bias in ("latency", "throughput"):
        with directory() as logs, FaultFs(SIZE) as fs:
            expected = bytearray(SIZE)
            tarn = Tarn(config=config(fs.path, f"file:{logs}/a.log?size=64M", f'sync_bias = "{bias}"\n'))
            try:
                for turn in range(3):
                    tarn.start()
                    synced = fs.backing.read_bytes()
                    fs.counts["fsync"] = 0
                    with session_with(tarn) as session:
                        equal_data(session, expected, f"turn {turn}")
                        durable_writes(session, 60, turn, expected)
                        good(session.command(scsi.synchronize_cache16()), "SYNCHRONIZE CACHE")
                    unsynced = not fs.counts["fsync"]
                    tarn.kill()
                    if unsynced:
                        fs.backing.write_bytes(synced)
                    if bias == "latency":
                        check(unsynced, "the store was synced, and nothing is shown")
                tarn.start()
                with session_with(tarn) as session:
                    equal_data(session, expected, "the last start")
                    sound(session)
                if bias == "latency":
                    tarn.await_log("changes that only the log had")
                equal(tarn.terminate(), 0, "exit code")
            finally:
                tarn.close()


@test
def a_cache_that_writes_through_is_durable_by_the_log():
    """cache=writethrough: writes without FUA are in the log, too."""
    with directory() as logs, FaultFs(SIZE) as fs:
        tarn = Tarn(config=config(fs.path, f"file:{logs}/a.log?size=16M", options="?cache=writethrough")).start()
        try:
            with session_with(tarn) as session:
                good(write(session, PAGE, b"\x5a" * PAGE, fua=False), "write")
            crash(tarn, fs)
            tarn.start()
            with session_with(tarn) as session:
                equal(good(read(session, PAGE, PAGE), "READ"), b"\x5a" * PAGE, "data")
        finally:
            tarn.close()


@test
def a_lost_log_keeps_the_unit_from_being_served_until_an_administrator_decides():
    """Killed, and the log is gone, cut, empty or damaged behind its beginning: NOT READY, doctor and error name the verb, which
    serves it."""
    def gone(log):
        log.unlink()

    def empty(log):
        log.write_bytes(bytes(16 * MIB))

    def scrambled(log):
        log.write_bytes(os.urandom(16 * MIB))

    def cut(log):
        os.truncate(log, 8 * MIB)

    def flipped(log):
        data = bytearray(log.read_bytes())
        records = [at for at in range(0, len(data), PAGE) if data[at:at + 8] == b"TARNREC1"]
        check(len(records) > 2, f"{len(records)} records")
        data[records[1] + PAGE + 7] ^= 1
        log.write_bytes(data)

    with directory() as logs, FaultFs(SIZE) as fs:
        for spoil in (gone, empty, scrambled, cut, flipped):
            log = logs / f"{spoil.__name__}.log"
            tarn = Tarn(config=config(fs.path, f"file:{log}?size=16M")).start()
            try:
                with session_with(tarn) as session:
                    for number in range(4):
                        good(write(session, number * PAGE, b"\x11" * PAGE), "write with FUA")
                tarn.kill()
                spoil(log)
                for _ in range(2):
                    tarn.start()
                    with session_with(tarn) as session:
                        not_ready(session, spoil.__name__)
                        sound(session)
                    tarn.await_log("tarn lun log discard disk")
                    check("tarn lun log discard disk" in codes(tarn)["log-lost"]["message"], codes(tarn))
                    code, listed = verb(tarn, "lun", "list")
                    rows = {row.split()[0]: "log-lost" in row for row in listed.splitlines()[1:]}
                    equal((code, rows["disk"], rows["sound"]), (0, True, False), f"LUNs with a lost log: {listed}")
                    tarn.kill()
                tarn.start()
                equal(verb(tarn, "lun", "log", "discard", "sound", "--yes")[0], 6, "exit code for a unit that has no log")
                code, said = verb(tarn, "lun", "log", "discard", "disk", "--yes")
                equal(code, 0, said)
                with session_with(tarn) as session:
                    good(write(session, 0, b"\x22" * PAGE), "write with FUA")
                check("log-lost" not in codes(tarn), codes(tarn))
                tarn.kill()
                tarn.start()
                with session_with(tarn) as session:
                    equal(good(read(session, 0, PAGE), "READ"), b"\x22" * PAGE, "data after the new log")
            finally:
                tarn.close()


@test
def the_log_of_another_unit_is_never_written_over():
    """It stands where the own one was, or is given to a new unit: NOT READY, and nobody is told to discard it, nor can. A new file
    at log is the way out."""
    with directory() as logs, FaultFs(SIZE) as fs:
        with Tarn(config=config("{dir}/o.img", f"file:{logs}/o.log?size=16M", options="?size=8M")):
            pass
        other = (logs / "o.log").read_bytes()
        log = logs / "own.log"
        tarn = Tarn(config=config(fs.path, f"file:{log}?size=16M")).start()
        try:
            with session_with(tarn) as session:
                good(write(session, 0, b"\x11" * PAGE), "write with FUA")
            tarn.kill()
            for path in (log, logs / "new.log"):
                path.write_bytes(other)
                tarn.config = config(fs.path, f"file:{path}?size=16M")
                tarn.start()
                with session_with(tarn) as session:
                    not_ready(session, path)
                    sound(session)
                tarn.await_log("log of another unit")
                finding = codes(tarn)["log-lost"]
                check("log of another unit" in finding["message"], finding)
                check("discard" not in finding["message"] + finding["remedy"], finding)
                code, said = verb(tarn, "lun", "log", "discard", "disk", "--yes")
                check(code == 6 and "log of another unit" in said, said)
                equal(path.read_bytes(), other, "the log of the other unit")
                tarn.kill()
            tarn.config = config(fs.path, f"file:{logs}/made.log?size=16M")
            tarn.start()
            discarded(tarn)
        finally:
            tarn.close()


@test
def a_store_that_hangs_behind_its_log_does_not_keep_tarn_from_ending():
    """What was written is durable in the log, so the last flush ends; the sync that would close the log does not."""
    with directory() as logs, FaultFs(SIZE) as fs:
        fs.is_stubborn = True
        tarn = Tarn(config=config(fs.path, f"file:{logs}/a.log?size=16M"), check_exit=False).start()
        try:
            with session_with(tarn) as session:
                good(write(session, 0, b"\x33" * PAGE), "write with FUA")
                good(write(session, PAGE, b"\x33" * PAGE, fua=False), "write")
                fs.hang = ("fsync",)
            tarn.terminate()
            fs.release()
            tarn.start()
            with session_with(tarn) as session:
                equal(good(read(session, 0, PAGE), "READ"), b"\x33" * PAGE, "data")
        finally:
            fs.release()
            tarn.close()


@test
def a_new_log_takes_nothing_that_is_no_log():
    """A file with data behind its first blocks, a snapshot, and one that is too small; the plan says so, too."""
    with directory() as logs:
        data = logs / "data.img"
        data.write_bytes(bytes(64 << 10) + b"\x44" * PAGE + bytes(16 * MIB))
        (logs / "b.img").write_bytes(bytes(PAGE))
        (logs / "b.img.snapshots").mkdir()
        snapshot = logs / "b.img.snapshots/one"
        snapshot.write_bytes(bytes(16 * MIB))
        with Tarn(config=config("{dir}/o.img", "", options="?size=8M")) as tarn:
            def plan(log):
                new = {"id": "new", "store": f"{tarn.dir}/new.img?size=8M", "log": f"file:{log}"}
                answer = tarn.api().good("PUT", "luns/new?plan=true", new).json
                return answer["is_applicable"], " ".join(step.get("reason") or "" for step in answer["steps"])
            for log, words in ((snapshot, "snapshot"), (f"{logs}/small.log?size=8M", "16777216"), (logs / "b.img", "16777216")):
                is_good, reason = plan(log)
                check(not is_good and words in reason, f"{log}: {reason}")
        tarn = Tarn(config=config("{dir}/o.img", f"file:{data}", options="?size=8M")).start()
        try:
            with session_with(tarn) as session:
                not_ready(session, "a log on data")
            check(data.read_bytes()[64 << 10:][:PAGE] == b"\x44" * PAGE, "the data is gone")
        finally:
            tarn.close()


@test
def a_damaged_note_of_a_log_keeps_the_unit_from_being_served():
    """The file of the state directory is damaged: NOT READY, and the verb serves the unit."""
    with directory() as logs, FaultFs(SIZE) as fs:
        tarn = Tarn(config=config(fs.path, f"file:{logs}/a.log?size=16M")).start()
        try:
            tarn.kill()
            note, = (tarn.dir / "state/units").glob("*/log")
            note.write_text(note.read_text().replace("serving", "closed"))
            tarn.start()
            with session_with(tarn) as session:
                not_ready(session, "damaged")
                sound(session)
            discarded(tarn)
        finally:
            tarn.close()


@test
def a_log_that_the_configuration_no_longer_names_is_missed():
    """Killed, and started without log=, or with another store: not ready. After an end in order both are fine."""
    with directory() as logs, FaultFs(SIZE) as fs:
        log = f"file:{logs}/a.log?size=16M"
        tarn = Tarn(config=config(fs.path, log)).start()
        try:
            with session_with(tarn) as session:
                good(write(session, 0, b"\x11" * PAGE), "write with FUA")
            crash(tarn, fs)
            for wrong in (config(fs.path), config("{dir}/b.img", log, options="?size=32M")):
                tarn.config = wrong
                tarn.start()
                with session_with(tarn) as session:
                    not_ready(session, wrong)
                check("log-lost" in codes(tarn), codes(tarn))
                tarn.kill()
            tarn.config = config(fs.path, log)
            tarn.start()
            with session_with(tarn) as session:
                equal(good(read(session, 0, PAGE), "READ"), b"\x11" * PAGE, "data")
                good(write(session, 0, b"\x22" * PAGE), "write with FUA")
            equal(tarn.terminate(), 0, "exit code")
            equal(fs.backing.read_bytes()[:PAGE], b"\x22" * PAGE, "the store has it")
            tarn.config = config(fs.path)
            tarn.start()
            with session_with(tarn) as session:
                equal(good(read(session, 0, PAGE), "READ"), b"\x22" * PAGE, "data")
        finally:
            tarn.close()


@test
def a_unit_that_is_removed_in_order_leaves_nothing_to_replay():
    """Its log is closed; the store is changed by others; added again, it has what they wrote."""
    with directory() as logs, FaultFs(SIZE) as fs:
        log = f"file:{logs}/a.log?size=16M"
        text = config(fs.path, log).replace('{ lun = 0, id = "disk" }, ', "")
        with Tarn(config=config(fs.path, log)) as tarn:
            with session_with(tarn) as session:
                good(write(session, 0, b"\x11" * PAGE), "write with FUA")
            code, said = verb(tarn, "target", "unmap", IQN, "0", "--yes")
            equal(code, 0, said)
            code, said = verb(tarn, "lun", "rm", "disk", "--yes")
            equal(code, 0, said)
            notes = list((tarn.dir / "state/units").glob("*/log"))
            equal(len(notes), 1, "notes of logs")
            wait_for(lambda: "closed" in notes[0].read_text(), 10, "the log is closed")
            check(text, "a text")
            equal(fs.backing.read_bytes()[:PAGE], b"\x11" * PAGE, "the store has it")
            with open(fs.backing, "r+b") as backing:
                backing.write(b"\x33" * PAGE)
            code, said = verb(tarn, "lun", "add", "disk", f"file:{fs.path}", "--log", log, "--target", IQN, "--lun", "0")
            equal(code, 0, said)
            with session_with(tarn) as session:
                equal(good(read(session, 0, PAGE), "READ"), b"\x33" * PAGE, "data")


@test
def a_log_that_is_missing_after_an_end_in_order_is_not_made_anew():
    """Its file system may not be mounted. Put back, it serves the unit; a log at another place is made."""
    with tempfile.TemporaryDirectory() as logs, FaultFs(SIZE) as fs:
        logs = pathlib.Path(logs)
        log = logs / "a.log"
        with Tarn(config=config(fs.path, f"file:{log}?size=16M")) as tarn:
            with session_with(tarn) as session:
                good(write(session, 0, b"\x11" * PAGE), "write with FUA")
            equal(tarn.terminate(), 0, "exit code")
            log.rename(logs / "away")
            tarn.start()
            with session_with(tarn) as session:
                not_ready(session, "a log that is not there")
                sound(session)
            check("log discard" in codes(tarn)["log-lost"]["message"], codes(tarn))
            check(not log.exists(), "a log was made")
            equal(tarn.terminate(), 0, "exit code")
            (logs / "away").rename(log)
            tarn.start()
            with session_with(tarn) as session:
                equal(good(read(session, 0, PAGE), "READ"), b"\x11" * PAGE, "data")
            equal(tarn.terminate(), 0, "exit code")
            tarn.config = config(fs.path, f"file:{logs}/b.log?size=16M")
            tarn.start()
            with session_with(tarn) as session:
                good(write(session, 0, b"\x22" * PAGE), "write with FUA")


@test
def a_log_that_the_state_directory_does_not_know_is_not_replayed():
    """The state directory is lost, and the identity is in the configuration: an administrator decides about the changes."""
    for word, expected in (("replay", b"\x11"), ("discard", b"\x00")):
        with directory() as logs, FaultFs(SIZE) as fs:
            text = config(fs.path, f"file:{logs}/a.log?size=16M", more='naa = "35d6e7f8091a2b3c"\n')
            with Tarn(config=text) as tarn:
                with session_with(tarn) as session:
                    good(write(session, 0, b"\x11" * PAGE), "write with FUA")
                crash(tarn, fs)
                shutil.rmtree(tarn.dir / "state")
                tarn.start()
                with session_with(tarn) as session:
                    not_ready(session, "a log that nobody knows")
                    sound(session)
                code, said = verb(tarn, "lun", "log", word, "disk", "--yes")
                equal(code, 0, said)
                with session_with(tarn) as session:
                    equal(good(read(session, 0, PAGE), "READ"), expected * PAGE, word)


@test
def a_log_that_fails_is_left_and_never_replayed():
    """EIO of the log: durable writes go on by the store, the doctor says so, and the next start takes nothing from the log."""
    with FaultFs(SIZE) as fs, FaultFs(16 * MIB) as device:
        tarn = Tarn(config=config(fs.path, f"file:{device.path}")).start()
        try:
            with session_with(tarn) as session:
                good(write(session, 0, b"\x11" * PAGE), "write with FUA")
                device.bad_writes = [(0, 16 * MIB)]
                good(write(session, 0, b"\x22" * PAGE), "write with FUA when the log fails")
                before = fs.counts["fsync"]
                good(write(session, 0, b"\x33" * PAGE), "write with FUA after that")
                check(fs.counts["fsync"] > before, "the store was not synced")
                sound(session)
                check("log-failed" in codes(tarn), codes(tarn))
            tarn.kill()
            device.heal()
            tarn.start()
            with session_with(tarn) as session:
                equal(good(read(session, 0, PAGE), "READ"), b"\x33" * PAGE, "data")
                check("log-failed" not in codes(tarn), codes(tarn))
        finally:
            tarn.close()


@test
def a_log_that_hangs_holds_up_durable_writes_of_its_unit_alone():
    """Reads and the other unit go on, and the process ends when asked."""
    with FaultFs(SIZE) as fs, FaultFs(16 * MIB) as device:
        tarn = Tarn(config=config(fs.path, f"file:{device.path}")).start()
        try:
            with session_with(tarn) as session:
                good(write(session, 0, b"\x11" * PAGE), "write with FUA")
                device.hang = ("write", "fsync")
                task = session.start(bytes(scsi.write16(8, 8)[:1] + bytes([FUA]) + scsi.write16(8, 8)[2:]), write=b"\x22" * PAGE)
                wait_for(device.hung, 10, "the log hangs")
                equal(good(read(session, 0, PAGE), "READ"), b"\x11" * PAGE, "data")
                good(write(session, 4 * PAGE, b"\x44" * PAGE, fua=False), "write without FUA")
                sound(session)
                device.release()
                good(session.finish(task), "the write that waited")
                device.hang = ("write", "fsync")
                session.start(bytes(scsi.write16(8, 8)[:1] + bytes([FUA]) + scsi.write16(8, 8)[2:]), write=b"\x55" * PAGE)
                wait_for(device.hung, 10, "the log hangs again")
            check(tarn.terminate() is not None, "it ends")
        finally:
            device.release()
            tarn.close()


@test
def a_failed_sync_of_the_store_is_remembered_and_the_log_heals_it():
    """A checkpoint fails: flushes fail from then on; after a crash everything that was answered is there."""
    with directory() as logs, FaultFs(SIZE) as fs:
        tarn = Tarn(config=config(fs.path, f"file:{logs}/a.log?size=16M")).start()
        try:
            with session_with(tarn) as session:
                good(write(session, 0, b"\x11" * PAGE), "write with FUA")
                fs.fsync_failures = 1
                wait_for(lambda: not fs.fsync_failures, 15, "a checkpoint")
                wait_for(lambda: not write(session, PAGE, b"\x22" * PAGE).good, 10, "durable writes fail")
                check(not session.command(scsi.synchronize_cache16()).good, "SYNCHRONIZE CACHE after a failed sync")
            crash(tarn, fs)
            tarn.start()
            with session_with(tarn) as session:
                equal(good(read(session, 0, PAGE), "READ"), b"\x11" * PAGE, "data")
                good(write(session, PAGE, b"\x22" * PAGE), "write with FUA after the start")
        finally:
            tarn.close()


@test
def a_replay_takes_nothing_back_that_was_answered_after_a_failed_sync():
    """A checkpoint fails: a write to a place of the log fails, others go on. Killed, or removed and added again, all that was
    answered is there."""
    def killed(tarn, _store, _log):
        tarn.kill()
        tarn.start()

    def added_again(tarn, store, log):
        for words in (("target", "unmap", IQN, "0", "--yes"), ("lun", "rm", "disk", "--yes")):
            code, said = verb(tarn, *words)
            equal(code, 0, said)
        code, said = verb(tarn, "lun", "add", "disk", f"file:{store}", "--log", log, "--target", IQN, "--lun", "0")
        equal(code, 0, said)

    for again in (killed, added_again):
        with directory() as logs, FaultFs(SIZE) as fs:
            log = f"file:{logs}/a.log?size=16M"
            tarn = Tarn(config=config(fs.path, log), check_exit=False).start()
            try:
                expected = [b"\x11" * PAGE] * 64
                with session_with(tarn) as session:
                    for number in range(64):
                        good(write(session, number * PAGE, expected[number], fua=number < 32), "write")
                    fs.fsync_failures = 1
                    wait_for(lambda: not fs.fsync_failures, 15, "a checkpoint")
                    wait_for(lambda: "log-failed" in codes(tarn), 10, "the failed sync is noticed")
                    answered = [write(session, number * PAGE, b"\x22" * PAGE, fua=False).good for number in range(64)]
                    check(all(answered[32:]), f"writes where the log has nothing: {answered}")
                    expected = [b"\x22" * PAGE if is_good else one for is_good, one in zip(answered, expected)]
                again(tarn, fs.path, log)
                with session_with(tarn) as session:
                    for number in range(64):
                        data = good(read(session, number * PAGE, PAGE), "READ")
                        # A write that failed may have changed its place.
                        is_kept = data == expected[number] or not answered[number] and data == b"\x22" * PAGE
                        check(is_kept, f"{again.__name__}: page {number} begins with {data[:1]}, and {expected[number][:1]} was answered")
                    good(write(session, 0, b"\x33" * PAGE), "write with FUA")
            finally:
                tarn.close()


@test
def a_state_directory_from_a_backup_costs_no_change_of_a_live_log():
    """Its note says closed, or knows of an older generation, and the log has changes: NOT READY, nothing is begun anew, and both verbs
    serve the unit. Without changes the unit is served at once."""
    for is_running, words, expected in ((False, "replay", b"\x22"), (True, "replay", b"\x22"), (False, "discard", b"\x11"),
                                        (False, "", b"\x11")):
        with directory() as logs, FaultFs(SIZE) as fs:
            log = logs / "a.log"
            tarn = Tarn(config=config(fs.path, f"file:{log}?size=16M")).start()
            state, backup = tarn.dir / "state", tarn.dir / "backup"
            try:
                with session_with(tarn) as session:
                    good(write(session, 0, b"\x11" * PAGE), "write with FUA")
                if is_running:
                    shutil.copytree(state, backup)
                equal(tarn.terminate(), 0, "exit code")
                if not is_running:
                    shutil.copytree(state, backup)
                synced = fs.backing.read_bytes()
                tarn.start()
                if words:
                    with session_with(tarn) as session:
                        good(write(session, 0, b"\x22" * PAGE), "write with FUA")
                tarn.kill()
                fs.backing.write_bytes(synced)
                shutil.rmtree(state)
                shutil.copytree(backup, state)
                live = log.read_bytes()
                for _ in range(2 if words else 0):
                    tarn.start()
                    with session_with(tarn) as session:
                        not_ready(session, words)
                        sound(session)
                    message = codes(tarn)["log-lost"]["message"]
                    check("tarn lun log replay disk" in message and "tarn lun log discard disk" in message, message)
                    tarn.kill()
                    equal(log.read_bytes(), live, "the log")
                tarn.start()
                if words:
                    equal(verb(tarn, "lun", "log", words, "sound", "--yes")[0], 6, "exit code for a unit that has no log")
                    code, said = verb(tarn, "lun", "log", words, "disk", "--yes")
                    equal(code, 0, said)
                for _ in range(2):
                    with session_with(tarn) as session:
                        equal(good(read(session, 0, PAGE), "READ"), expected * PAGE, words)
                    check("log-lost" not in codes(tarn), codes(tarn))
                    tarn.kill()
                    tarn.start()
                with session_with(tarn) as session:
                    good(write(session, 0, b"\x33" * PAGE), "write with FUA")
            finally:
                tarn.close()


@test
def what_can_be_no_log_is_one_line_with_its_remedy():
    """Too small, a kind that cannot be, options, one log for two units, a bias without a log."""
    def refused(text):
        with directory() as path:
            file = path / "tarn.toml"
            file.write_text(text.replace("{dir}", str(path)).replace("{port}", "1"))
            return refusal("--config", file, "--state", path / "state")
    store, log = "{dir}/a.img", "file:{dir}/a.log?size=16M"
    size = "?size=1M"
    for text, words in [
            (config(store, "file:{dir}/a.log?size=1M", options=size), "less than the 16777216 that a log needs"),
            (config(store, "mem:16M", options=size), "is not possible"),
            (config(store, log + "&readonly", options=size), "without other options"),
            (config(store, log, options=size + "&removable"), "has no use for a log"),
            (config(store, log, 'sync_bias = "speed"\n', options=size), "use latency or throughput"),
            (config(store, "", 'sync_bias = "latency"\n', options=size), "it has none"),
            (config(store, log, options=size) + lun_section("b", "file:{dir}/b.img?size=1M") + f'log = "{log}"\n', "a.log"),
            (config(store, "file:{dir}/a.img", options=size), "a.img")]:
        said = refused(text)
        check(words in said, f"{words!r} in {said}")


if __name__ == "__main__":
    harness.main()
