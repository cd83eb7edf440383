"""Data and the process: places of tasks, late writes, reservations."""
import contextlib
import pathlib
import socket
import subprocess
import sys
import time

import iscsi
import scsi
from faultfs import FaultFs
from harness import check, equal, measured, test, wait_for
from tarn import IQN, Tarn, lun_section, target_section

MIB = 1 << 20
SIZE = 64 * MIB
BLOCK = 512
# What an abort may take, and the end of a session.
DEADLINE_S = 1
ANSWER_S = 20

CONFIG = lun_section("faulty", "file:STORE") + lun_section("sound", "mem:16M") + target_section("faulty", "sound") + f"""
[limits]
task_deadline_seconds = {DEADLINE_S}
shutdown_timeout_seconds = 2
"""

ISID = b"\x80adver"
OTHER = "iqn.2026-11.example.tarn:other"


@contextlib.contextmanager
def faulty(config=CONFIG):
    """The faulty file system and a Tarn on it."""
    with FaultFs(SIZE) as fs, Tarn(config=config.replace("STORE", str(fs.path))) as tarn:
        yield fs, tarn
        fs.heal()
        fs.release()


def login(tarn, **options):
    session = iscsi.Session(tarn.port, IQN, timeout_s=ANSWER_S, **options)
    session.clear_unit_attentions(0)
    session.clear_unit_attentions(1)
    return session


def good(outcome, what):
    check(outcome.good, f"{what}: {outcome}")
    return outcome


def command_with_bad_data(session, cdb, lun=0):
    """One segment: a command that takes no data though it announces some, then a Data-Out with a wrong DataSN."""
    itt = session.itt()
    connection = session.connection
    command = iscsi.Pdu(iscsi.SCSI_COMMAND, 0x20 | iscsi.SIMPLE, lun=lun, itt=itt, edtl=8192, cmd_sn=session.cmd_sn,
                        exp_stat_sn=connection.exp_stat_sn, cdb=cdb)
    data = iscsi.Pdu(iscsi.DATA_OUT, 0x80, bytes(BLOCK), lun=lun, itt=itt, ttt=iscsi.NO_TAG, exp_stat_sn=connection.exp_stat_sn)
    data.put("data_sn", 7)
    session.tasks[itt] = task = iscsi.Task(itt, session.cmd_sn, connection, 0, b"", True)
    session.cmd_sn += 1
    connection.send_raw(command.pack() + data.pack())
    return task


UNSOLICITED = {"InitialR2T": "No", "ImmediateData": "Yes"}


@test
def bad_data_of_a_command_in_the_store_ends_no_other_command():
    """A1: a VERIFY hangs in the store while data that nobody asked it for is wrong. Another session's WRITE, begun after it,
    is not answered before the store has done it; every command has its own outcome; the core lives."""
    with faulty() as (fs, tarn):
        with login(tarn, keys=UNSOLICITED) as first, login(tarn) as second:
            good(first.command(scsi.write16(1000, 8), write=b"\x11" * 8 * BLOCK), "WRITE")
            fs.hang = ("read", "write")
            task = command_with_bad_data(first, scsi.verify16(1000, 8))
            wait_for(lambda: fs.hung() == 1, ANSWER_S, "the VERIFY is in the store")
            write = second.start(scsi.write16(0, 8), write=b"\x22" * 8 * BLOCK)
            wait_for(lambda: fs.hung() == 2, ANSWER_S, "the WRITE is in the store")
            equal(second.nop(b"alive"), b"alive", "answer to a ping")
            equal(write.outcome, None, "answer to a WRITE that the store has not done")
            fs.release()
            good(first.finish(task), "the VERIFY")
            good(second.finish(write), "the WRITE of the other session")
            zero, other = (good(second.command(scsi.read16(lba, 8), read=8 * BLOCK), "READ").data for lba in (0, 1000))
            check(zero == b"\x22" * 8 * BLOCK and other == b"\x11" * 8 * BLOCK, "a READ has brought the data of another LBA")


@test
def bad_data_of_commands_that_take_none_is_dropped():
    """A1: the same with SYNCHRONIZE CACHE and UNMAP, in the store and at once."""
    with faulty() as (fs, tarn), login(tarn, keys=UNSOLICITED) as session:
        fs.hang = ("fsync",)
        task = command_with_bad_data(session, scsi.synchronize_cache16())
        wait_for(lambda: fs.hung() == 1, ANSWER_S, "the SYNCHRONIZE CACHE is in the store")
        equal(session.nop(b"alive"), b"alive", "answer to a ping")
        fs.release()
        good(session.finish(task), "the SYNCHRONIZE CACHE")
        for lun in (0, 1):
            good(session.finish(command_with_bad_data(session, scsi.unmap(0), lun)), f"UNMAP of LUN {lun}")
            good(session.command(scsi.test_unit_ready(), lun=lun), f"TEST UNIT READY of LUN {lun}")


def orphan_of(fs, tarn, **options):
    """A session whose WRITE of 0x01 at LBA 0 hangs in the store."""
    old = login(tarn, **options)
    fs.hang = ("write",)
    task = old.start(scsi.write16(0, 8), write=b"\x01" * 8 * BLOCK)
    wait_for(lambda: fs.hung() == 1, ANSWER_S, "the WRITE is in the store")
    fs.hang = ()
    return old, task


def newest_stays(fs, session, what):
    """Writes 0x02 over it as soon as that is allowed; what was answered GOOD stays when the old WRITE lands."""
    outcome = session.command(scsi.write16(0, 8), write=b"\x02" * 8 * BLOCK)
    for _ in range(8):      # unit attentions come first
        if outcome.status != scsi.CHECK_CONDITION or outcome.sense.key != scsi.UNIT_ATTENTION:
            break
        outcome = session.command(scsi.write16(0, 8), write=b"\x02" * 8 * BLOCK)
    fs.release()
    if outcome.good:
        wait_for(lambda: fs.counts["write"] >= 2, ANSWER_S, "both writes have been done")
        data = fs.backing.read_bytes()[:8 * BLOCK]
        check(data == b"\x02" * 8 * BLOCK, f"after {what} the old WRITE has replaced what was answered GOOD later")
    else:
        equal((outcome.sense.key, outcome.sense.code), (scsi.NOT_READY, (0x04, 0x00)), f"WRITE after {what}")

        def allowed():
            return session.command(scsi.read16(0, 8), read=8 * BLOCK).good
        wait_for(allowed, ANSWER_S, "its blocks can be read when the old WRITE is over", step_s=0.1)
    measured(f"{what}: {'GOOD' if outcome.good else 'NOT READY'}")


# The unit that comes second is owned by the second core; sessions go to the first while it has none.
UNITS_SWAPPED = CONFIG.replace("[[target]]", "[[lun]]\nid = \"faulty\"\nstore = \"file:STORE\"\n[[target]]", 1) \
    .replace("[[lun]]\nid = \"faulty\"\nstore = \"file:STORE\"\n", "", 1).replace("[limits]", "[server]\ncores = 2\n[limits]")


@contextlib.contextmanager
def slow_core(tarn, index, seconds):
    """Each turn of one core begins this late."""
    tasks = pathlib.Path(f"/proc/{tarn.process.pid}/task")
    thread = next(task for task in tasks.iterdir() if (task / "comm").read_text().strip() == f"core-{index}")
    inject = f"inject=io_uring_enter:delay_exit={seconds * 1_000_000}"
    with subprocess.Popen(["strace", "-qq", "-p", thread.name, "-o", "/dev/null", "-e", "trace=io_uring_enter", "-e", inject],
                          stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as tracer:
        try:
            wait_for(lambda: f"TracerPid:\t{tracer.pid}" in (thread / "status").read_text(), ANSWER_S, "strace has the thread")
            yield
        finally:
            tracer.terminate()


@test(limit_s=90)
def a_reinstated_session_writes_nothing_that_the_old_one_overwrites():
    """A3: the WRITE of the replaced session is still in the store, and the core that owns the unit is slow. The new session
    begins when every core refuses access to the blocks of that WRITE, so its own is refused until the old one is over."""
    with faulty(UNITS_SWAPPED) as (fs, tarn):
        old, _ = orphan_of(fs, tarn, isid=ISID)
        with slow_core(tarn, 1, 4), old, login_over(tarn, isid=ISID) as new:
            newest_stays(fs, new, "reinstatement")


def login_over(tarn, **options):
    """A login whose unit attentions are left, so that the very first command is a test's own."""
    return iscsi.Session(tarn.port, IQN, timeout_s=2 * ANSWER_S, **options)


def key_of_read(session, lba=0):
    """The sense key that a READ of some blocks ends with, if it ends with one."""
    outcome = session.command(scsi.read16(lba, 8), read=8 * BLOCK)
    return outcome.sense and outcome.sense.key


TWO_CORES = CONFIG.replace("[limits]", "[server]\ncores = 2\n[limits]")


@test
def a_write_that_hangs_after_its_abort_stops_nobody_on_other_blocks():
    """A WRITE of blocks 0 to 7 hangs in the store and is aborted. Sessions on both cores read all other blocks of the same LUN
    meanwhile, flush and ask; only what touches those eight is refused, until the WRITE is over."""
    with faulty(TWO_CORES) as (fs, tarn):
        with login(tarn) as victim:
            good(victim.command(scsi.write16(8, 8), write=b"\x33" * 8 * BLOCK), "WRITE of other blocks")
            fs.hang = ("write",)
            task = victim.start(scsi.write16(0, 8), write=b"\x01" * 8 * BLOCK)
            wait_for(lambda: fs.hung() == 1, ANSWER_S, "the WRITE is in the store")
            fs.hang = ()
            equal(victim.tmf(iscsi.ABORT_TASK, task=task, timeout_s=ANSWER_S), iscsi.TMF_REJECTED, "response of ABORT TASK")
            with login(tarn) as one, login(tarn) as two:
                for session in (victim, one, two):
                    session.clear_unit_attentions()
                    good(session.command(scsi.test_unit_ready()), "TEST UNIT READY")
                    data = good(session.command(scsi.read16(8, 8), read=8 * BLOCK), "READ of other blocks").data
                    equal(data, b"\x33" * 8 * BLOCK, "data of other blocks")
                    good(session.command(scsi.read16(100_000, 8), read=8 * BLOCK), "READ far away")
                    for lba in (0, 7):
                        equal(key_of_read(session, lba), scsi.NOT_READY, f"READ at {lba}, beside the old WRITE")
                    outcome = session.command(scsi.write16(4, 8), write=bytes(8 * BLOCK))
                    equal((outcome.sense.key, outcome.sense.code), (scsi.NOT_READY, (0x04, 0x00)), "WRITE beside the old WRITE")
                fs.release()
                for session in (victim, one, two):
                    wait_for(lambda: key_of_read(session) is None, ANSWER_S, "its blocks can be read again", step_s=0.1)
                    good(session.command(scsi.write16(4, 8), write=bytes(8 * BLOCK)), "WRITE afterwards")


@test
def resets_do_not_complete_while_a_write_of_a_session_that_is_gone_may_land():
    """A3: LOGICAL UNIT RESET and TARGET WARM RESET are answered, and not with "complete", while there is an orphan."""
    with faulty() as (fs, tarn):
        old, _ = orphan_of(fs, tarn)
        old.close()
        with iscsi.Session(tarn.port, IQN, OTHER, timeout_s=ANSWER_S) as other:
            wait_for(lambda: key_of_read(other) == scsi.NOT_READY, ANSWER_S, "its blocks are refused", step_s=0.1)
            for function, name in ((5, "LOGICAL UNIT RESET"), (6, "TARGET WARM RESET")):
                equal(other.tmf(function, timeout_s=ANSWER_S), 255, f"response of {name} while a write may land")
            fs.release()
            wait_for(lambda: other.tmf(5, timeout_s=ANSWER_S) == 0, ANSWER_S, "LOGICAL UNIT RESET completes", step_s=0.2)


def pr_out(action, kind=0, key=0, new=0, aptpl=False):
    """PERSISTENT RESERVE OUT: CDB and parameter list (SPC-4)."""
    cdb = bytes([0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0])
    return cdb, key.to_bytes(8, "big") + new.to_bytes(8, "big") + bytes(4) + bytes([aptpl, 0, 0, 0])


def pr_keys(session):
    """The registered keys, as PERSISTENT RESERVE IN, READ KEYS gives them."""
    data = good(session.command(bytes([0x5E, 0, 0, 0, 0, 0, 0, 1, 0, 0]), read=256), "READ KEYS").data
    length = int.from_bytes(data[4:8], "big")
    return [int.from_bytes(data[at:at + 8], "big") for at in range(8, 8 + length, 8)]


@contextlib.contextmanager
def failing_syncs(pid, seconds=0, path=None):
    """Every fsync of the process, or only those of a path, takes so long and then fails; operations of the ring are not concerned."""
    inject = f"inject=fsync,fdatasync:error=EIO:delay_enter={seconds * 1_000_000}"
    only = ["-P", str(path)] if path else []
    with subprocess.Popen(["strace", "-f", "-qq", "-p", str(pid), "-o", "/dev/null", *only, "-e", "trace=fsync,fdatasync", "-e", inject],
                          stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as tracer:
        try:
            tasks = pathlib.Path(f"/proc/{pid}/task")

            def is_traced():
                statuses = [(task / "status").read_text() for task in tasks.iterdir()]
                return all(f"TracerPid:\t{tracer.pid}" in status for status in statuses)
            wait_for(is_traced, ANSWER_S, "strace has all threads")
            yield
        finally:
            tracer.terminate()


@test
def a_reservation_that_could_not_be_kept_is_not_in_force_and_the_unit_gets_ready():
    """A6: a save fails while an orphan comes back. The registration it was for is on no core, and the unit is ready."""
    # A call that a tracer lets fail looks to the filter like one that is not allowed.
    with faulty(CONFIG + "[confine]\nseccomp = false\n") as (fs, tarn):
        old, _ = orphan_of(fs, tarn)
        old.close()
        with iscsi.Session(tarn.port, IQN, OTHER, timeout_s=ANSWER_S) as other:
            def key():
                return key_of_read(other)
            wait_for(lambda: key() == scsi.NOT_READY, ANSWER_S, "the blocks of the orphan are refused", step_s=0.1)
            with failing_syncs(tarn.process.pid, seconds=3):
                cdb, parameters = pr_out(0, new=0xABC, aptpl=True)
                task = other.start(cdb, write=parameters)
                time.sleep(0.5)         # the save has begun, and takes longer than what follows
                fs.release()
                wait_for(lambda: key() is None, ANSWER_S, "they are free when the orphan has come back", step_s=0.1)
                outcome = other.finish(task)
            check(not outcome.good, f"a registration that could not be kept: {outcome}")
            equal(pr_keys(other), [], "keys after a registration that could not be kept")
            equal(other.tmf(5, timeout_s=ANSWER_S), 0, "response of LOGICAL UNIT RESET")
            wait_for(lambda: key() is None, ANSWER_S, "the unit is ready after another change", step_s=0.1)
            good(other.command(scsi.write16(0, 8), write=bytes(8 * BLOCK)), "WRITE")


@test
def a_registration_whose_save_failed_is_not_there_after_a_restart():
    """A save writes its file and cannot flush the directory, again and again: its change has failed, also after a SIGKILL.
    When saves fail otherwise and then succeed, nothing is taken for the work of another Tarn."""
    config = lun_section("kept", "file:{dir}/disk.img?size=64M") + target_section("kept") + "[confine]\nseccomp = false\n"

    def register(session, key, new):
        cdb, parameters = pr_out(0, key=key, new=new, aptpl=True)
        return session.command(cdb, write=parameters)

    with Tarn(config=config) as tarn:
        with iscsi.Session(tarn.port, IQN, timeout_s=ANSWER_S, isid=ISID) as session:
            session.clear_unit_attentions()
            good(register(session, 0, 0xA), "REGISTER")
            saved = next(tarn.dir.rglob("saved"))
            before = saved.read_bytes()
            with failing_syncs(tarn.process.pid, path=saved.parent):
                outcome = register(session, 0xA, 0xB)
                check(not outcome.good, f"a registration whose save failed: {outcome}")
            check(saved.read_bytes() != before, "the failed saves have replaced the file")
            equal(pr_keys(session), [0xA], "keys after it")
        tarn.kill()
        tarn.start()
        with iscsi.Session(tarn.port, IQN, timeout_s=ANSWER_S, isid=ISID) as session:
            session.clear_unit_attentions()
            equal(pr_keys(session), [0xA], "keys after a restart")
            for path in (saved.parent, None):
                with failing_syncs(tarn.process.pid, path=path):
                    outcome = register(session, 0xA, 0xC)
                    check(not outcome.good, f"a registration whose save failed: {outcome}")
            good(register(session, 0xA, 0xD), "REGISTER when storage is sound")
            equal(pr_keys(session), [0xD], "keys after that")


@test
def preempt_and_abort_does_not_complete_while_a_write_it_ends_may_land():
    """A3: the preempted session's WRITE hangs in the store: PREEMPT AND ABORT is no success, and its asker is refused
    those blocks until that write is over."""
    with faulty() as (fs, tarn), iscsi.Session(tarn.port, IQN, OTHER, timeout_s=ANSWER_S) as other:
        other.clear_unit_attentions()
        with login(tarn) as victim:
            for session, own in ((victim, 1), (other, 2)):
                cdb, parameters = pr_out(0, new=own)
                good(session.command(cdb, write=parameters), "REGISTER")
            cdb, parameters = pr_out(1, kind=5, key=1)
            good(victim.command(cdb, write=parameters), "RESERVE")
            fs.hang = ("write",)
            victim.start(scsi.write16(0, 8), write=b"\x01" * 8 * BLOCK)
            wait_for(lambda: fs.hung() == 1, ANSWER_S, "the WRITE is in the store")
            fs.hang = ()
            cdb, parameters = pr_out(5, kind=5, key=2, new=1)
            outcome = other.command(cdb, write=parameters)
            check(not outcome.good, f"PREEMPT AND ABORT while a write may land: {outcome}")
            newest_stays(fs, other, "PREEMPT AND ABORT")


ADMITTED_ONE = "iqn.2026-11.example.tarn:admitted"
ADMITTED = f"""
[server]
cores = 2
[[lun]]
id = "disk"
store = "mem:16M"
[[target]]
name = "{IQN}"
portals = ["127.0.0.1:{{port}}"]
luns = [{{ lun = 0, id = "disk", groups = ["admitted"] }}]
[[group]]
id = "admitted"
initiators = ["{ADMITTED_ONE}"]
"""


@test(limit_s=120)
def a_change_that_a_slow_core_does_not_confirm_is_settled_later():
    """A7: a core answers later than a change waits: the answer says so, and without another change the session that the
    change lets in no longer is ended."""
    with Tarn(config=ADMITTED) as tarn, iscsi.Session(tarn.port, IQN, ADMITTED_ONE, timeout_s=ANSWER_S) as session:
        session.clear_unit_attentions()
        with slow_core(tarn, 1, 13):
            time.sleep(6)       # the plan is answered in this turn, and what is made of it not before the end of the next
            text = (tarn.dir / "tarn.toml").read_text().replace(ADMITTED_ONE, OTHER)
            answer = tarn.api(timeout_s=60).ask("PUT", "config", {"text": text})
            equal(answer.status, 200, f"status of the change: {answer}")
            check(answer.json.get("unsettled"), f"nothing says that a core has not confirmed: {answer}")
        wait_for(lambda: not tarn.api().get("sessions"), 60, "the session has ended", step_s=0.2)
        wait_for(lambda: "changes are settled" in tarn.log(), ANSWER_S, "the log says so", step_s=0.2)
