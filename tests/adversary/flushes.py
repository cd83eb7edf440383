"""Flushes and durability: what was answered GOOD is kept, and what could not be is said."""
import errno
import pathlib
import shutil
import tempfile

import iscsi
import scsi
from faultfs import FaultFs
from harness import check, equal, skip, test, wait_for
from tarn import IQN, Tarn, lun_section, target_section

MIB = 1 << 20
FUA = 0x08
ABORT_DEADLINE_S = 2

CONFIG = lun_section("faulty", "file:STORE") + target_section("faulty") + f"""
[limits]
task_deadline_seconds = {ABORT_DEADLINE_S}
"""


def serve(fs, options="", **how):
    return Tarn(config=CONFIG.replace("STORE", f"{fs.path}{options}"), **how)


def not_good(outcome, what):
    check(not outcome.good, f"{what} is answered GOOD after a failed flush: {outcome}")


@test
def a_failed_flush_is_known_however_its_write_ends():
    """A4: the flush half of a FUA write fails, and the write is aborted while its second try hangs in the store; from then on
    no SYNCHRONIZE CACHE and no FUA write is answered GOOD."""
    with FaultFs(16 * MIB, direct_io=False) as fs, serve(fs, check_exit=False) as tarn, \
            iscsi.Session(tarn.port, IQN) as session:
        session.clear_unit_attentions()
        check(session.command(scsi.write16(0, 8), write=b"\x11" * 4096).good, "a WRITE")
        fs.fsync_failures, fs.hang_after_failed_fsync = 1, ("write",)
        task = session.start(scsi.write16(8, 8, FUA), write=b"\x22" * 4096)
        wait_for(lambda: fs.fsync_failures == 0, 10, "a flush has failed")
        # Time for a second try to reach the store, if there is one.
        if fs.hung() or not session.connection.readable(1):
            session.tmf(iscsi.ABORT_TASK, task=task, timeout_s=ABORT_DEADLINE_S + 10)
            fs.heal()
            fs.release()
        else:
            not_good(session.finish(task), "the write that met the failed flush")
        fs.heal()
        for n in range(2):
            not_good(session.command(scsi.synchronize_cache16()), f"SYNCHRONIZE CACHE {n}")
            not_good(session.command(scsi.write16(16, 8, FUA), write=bytes(4096)), f"FUA write {n}")
        check(session.command(scsi.write16(16, 8), write=bytes(4096)).good, "a WRITE without FUA goes on")


def durable_where_dsync_is_ignored(name, options, flags):
    def run():
        with FaultFs(16 * MIB, direct_io=True) as fs, serve(fs, options, check_exit=False) as tarn, \
                iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions()
            for n in range(4):
                before = fs.counts["fsync"]
                check(session.command(scsi.write16(8 * n, 8, flags), write=b"\x33" * 4096).good, f"write {n}")
                check(fs.counts["fsync"] > before, f"write {n} was answered GOOD without an fsync")
            fs.fsync_failures = 1
            not_good(session.command(scsi.write16(0, 8, flags), write=bytes(4096)), "a write whose sync failed")
            not_good(session.command(scsi.write16(0, 8, flags), write=bytes(4096)), "the write after it")
            not_good(session.command(scsi.synchronize_cache16()), "SYNCHRONIZE CACHE")
    run.__doc__ = f"A5: FUSE with direct I/O ignores RWF_DSYNC: {name} is answered after an fsync, whose failure latches."
    run.__name__ = f"{name}_is_durable_where_dsync_is_ignored"
    test(run)


durable_where_dsync_is_ignored("fua", "", FUA)
durable_where_dsync_is_ignored("write_through", "?cache=writethrough", 0)


@test
def a_last_flush_that_fails_is_the_exit_code():
    """A7: the last flush fails when Tarn ends: the exit code is 1, and a line names the unit."""
    with FaultFs(16 * MIB, direct_io=False) as fs, serve(fs, check_exit=False) as tarn:
        with iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions()
            check(session.command(scsi.write16(0, 8), write=b"\x11" * 4096).good, "a WRITE")
            session.logout()
        fs.fsync_failures = 1
        equal(tarn.terminate(), 1, "exit code after a last flush that failed")
        said = [line for line in tarn.log().splitlines() if line.startswith("tarn: ") and "faulty" in line]
        check(said, f"no line names the unit:\n{tarn.log_tail()}")


@test
def a_last_flush_that_fails_is_in_the_report_of_the_change():
    """A7: the last flush of a unit that a change removes fails: the answer to the change warns, with the name of the unit."""
    with FaultFs(16 * MIB, direct_io=False) as fs, serve(fs) as tarn:
        with iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions()
            check(session.command(scsi.write16(0, 8), write=b"\x11" * 4096).good, "a WRITE")
            session.logout()
        fs.fsync_failures = 1
        text = f'[[target]]\nname = "{IQN}"\nportals = ["127.0.0.1:{tarn.port}"]\n' \
            f"[limits]\ntask_deadline_seconds = {ABORT_DEADLINE_S}\n"
        applied = tarn.api(timeout_s=60).put("config", {"text": text})
        equal(fs.fsync_failures, 0, "flushes that are left to fail")
        check(any("faulty" in warning and "flush" in warning for warning in applied["warnings"]), f"no warning: {applied}")


def try_again(name, error):
    def run():
        with FaultFs(16 * MIB, direct_io=True) as fs, serve(fs) as tarn, iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions()
            fs.answer_errno = {"write": (error, 1 << 30), "read": (error, 1 << 30)}
            for kind, start in (("write", lambda: session.start(scsi.write16(0, 8), write=bytes(4096))),
                                ("read", lambda: session.start(scsi.read16(0, 8), read=4096))):
                before = fs.counts[kind]
                task = start()
                wait_for(lambda: session.connection.readable(0) or fs.counts[kind] > before + 100, 30, f"an end of the {kind}")
                tries = fs.counts[kind] - before
                check(tries <= 32, f"{tries} tries of one {kind}")
                equal(session.finish(task).status, scsi.CHECK_CONDITION, f"status of the {kind}")
            # One that gives way after some tries is answered well.
            fs.answer_errno = {"write": (error, 4)}
            check(session.command(scsi.write16(0, 8), write=bytes(4096)).good, "a WRITE that is tried again")
    run.__doc__ = f"A7: a store that answers {name} for ever is asked a bounded number of times; then the command fails."
    run.__name__ = f"{name}_is_not_tried_for_ever"
    test(run)


try_again("eagain", errno.EAGAIN)
try_again("eintr", errno.EINTR)


@test
def a_unit_names_the_target_that_is_asked():
    """A7: page 83h names the target, and a port of the target, through which the session asks."""
    names = [IQN, IQN + ".other"]
    targets = "".join(f'[[target]]\nname = "{name}"\nportals = ["127.0.0.1:{{port}}"]\nluns = [{{ lun = 0, id = "a" }}]\n'
                      for name in names)
    with Tarn(config=f'[[lun]]\nid = "a"\nstore = "mem:16M"\n{targets}') as tarn:
        for name in names:
            with iscsi.Session(tarn.port, name) as session:
                session.clear_unit_attentions()
                page = session.command(scsi.inquiry(0x83, 4096), read=4096).data
                at, found = 4, {}
                while at + 4 <= len(page):
                    length, kind = page[at + 3], page[at + 1]
                    if kind & 0x0F == 0x08:
                        found[kind >> 4 & 3] = page[at + 4:at + 4 + length].rstrip(b"\0").decode()
                    at += 4 + length
                equal(found.get(2), name, "name of the target device")
                equal(found.get(1, "").split(",")[0], name, "target of the port")


@test
def the_directory_of_a_new_file_is_synced():
    """A7: a file that Tarn creates for a LUN is in its directory also after a power cut."""
    if not shutil.which("strace"):
        skip("no strace")
    prefix = ["strace", "-D", "-f", "-qq", "-y", "-e", "trace=fsync", "-o", "{trace}"]
    with tempfile.TemporaryDirectory(prefix="adversary.") as scratch:
        trace = pathlib.Path(scratch) / "trace"
        disks = pathlib.Path(scratch) / "disks"
        disks.mkdir()
        prefix[-1] = str(trace)
        with Tarn(f"file:{disks}/new.img?size=16M", prefix=prefix):
            check((disks / "new.img").stat().st_size == 16 * MIB, "the file is there")
            synced = [line for line in trace.read_text().splitlines() if "fsync(" in line and f"<{disks}>" in line]
            check(synced, "the directory was not synced")
