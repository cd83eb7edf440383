"""Stores that hang: what they may take from their core, from other units and from the end of the process."""
import contextlib
import errno
import functools
import os
import pathlib
import signal
import struct
import tempfile
import threading

import harness
import hungstore
import iscsi
import scsi
from harness import check, equal, test
from tarn import IQN, Tarn

BLOCK = 512
MIB = 1 << 20
TASK_DEADLINE_S = 2
SHUTDOWN_S = 3
# What SIGTERM may take: sessions, then aborts, then room for a slow machine.
END_S = SHUTDOWN_S + TASK_DEADLINE_S + 10
HUNG, MEMORY, FIRST_FILE = 0, 1, 2
QUEUE_DEPTH = 128


def _config(store, files=1, hung_luns=1):
    """The hung store, a memory disk and healthy files, all on one core."""
    units = [("hung", f'"{store}"'), ("memory", '"mem:16M"')]
    units += [(f"file{n}", f'"file:{{dir}}/file{n}?size=4M"') for n in range(files)]
    text = "".join(f'[[lun]]\nid = "{name}"\nstore = {value}\n' for name, value in units)
    luns = ", ".join(f'{{ lun = {n}, id = "{name}" }}' for n, (name, _) in enumerate(units))
    return (f'[server]\ncores = 1\n{text}[[target]]\nname = "{IQN}"\nportals = ["127.0.0.1:{{port}}"]\nluns = [{luns}]\n'
            f"[limits]\ntask_deadline_seconds = {TASK_DEADLINE_S}\nshutdown_timeout_seconds = {SHUTDOWN_S}\n")


@contextlib.contextmanager
def _few_processes(limit):
    """What starts a program in a control group of so many processes, and the file with their limit."""
    top = pathlib.Path("/sys/fs/cgroup/pids")
    if os.geteuid() != 0 or not (top / "cgroup.procs").exists():
        top = pathlib.Path("/sys/fs/cgroup")
        try:
            (top / "cgroup.subtree_control").write_text("+pids")
        except OSError:
            harness.skip("no control group for processes can be made")
    group = pathlib.Path(tempfile.mkdtemp(prefix="tarn-test.", dir=top))
    try:
        (group / "pids.max").write_text(str(limit))
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"], group
    finally:
        def removed():
            with contextlib.suppress(OSError):
                group.rmdir()
            return not group.exists()
        harness.wait_for(removed, 20, f"{group} can be removed")


@contextlib.contextmanager
def _served(store, files=1, mode=""):
    """A Tarn of one core on a store. It has to end by itself when asked, also while the store hangs."""
    with Tarn(config=_config(f"{store.path}{mode}", files), check_exit=False) as tarn:
        try:
            yield tarn
        finally:
            store.go()


def _session(tarn, luns=(), timeout_s=20):
    """A new session: it also shows that logins are answered."""
    session = iscsi.Session(tarn.port, IQN, timeout_s=timeout_s)
    for lun in luns:
        session.clear_unit_attentions(lun)
    return session


def _sector_reads(session, count, first=0):
    """READs of the hung unit, each beyond what the kernel has read ahead for another."""
    places = (1024 + n * 200 for n in range(first, first + count))
    return [session.start(scsi.read16(lba, 8), read=8 * BLOCK, lun=HUNG) for lba in places]


def _register(session, lun):
    """PERSISTENT RESERVE OUT, REGISTER with APTPL: a change that has to reach the state directory."""
    cdb = struct.pack(">BBBBBIB", 0x5F, 0x06, 0, 0, 0, 24, 0)
    parameters = struct.pack(">QQIBxH", 0, 0x1234, 0, 1, 0)
    return session.command(cdb, write=parameters, lun=lun)


def _others_go_on(tarn, files=1):
    """Logins, pings, memory, files and reservations of the same core are answered."""
    with _session(tarn, [MEMORY]) as session:
        equal(session.nop(b"alive"), b"alive", "answer to a ping")
        data = b"\xa5" * 4096
        for lun in (MEMORY, *range(FIRST_FILE, FIRST_FILE + files)):
            session.clear_unit_attentions(lun)
            outcome = session.command(scsi.write16(0, 8), write=data, lun=lun)
            check(outcome.good, f"WRITE to LUN {lun}: {outcome}")
            outcome = session.command(scsi.synchronize_cache16(), lun=lun)
            check(outcome.good, f"SYNCHRONIZE CACHE of LUN {lun}: {outcome}")
            outcome = session.command(scsi.read16(0, 8), read=4096, lun=lun)
            check(outcome.good and outcome.data == data, f"READ of LUN {lun}: {outcome}")
        outcome = _register(session, MEMORY)
        check(outcome.good, f"PERSISTENT RESERVE OUT: {outcome}")


def _aborts_are_answered(session, tasks):
    """ABORT TASK of a command in the store, and of one that waits for its turn."""
    for task in (tasks[0], tasks[-1]):
        response = session.tmf(1, lun=HUNG, task=task)
        check(response in (0, 255), f"ABORT TASK: {response}")


def _ends(tarn):
    """It ends within its limits of SIGTERM."""
    tarn.terminate(END_S)
    tarn.check_log()


def _hang(kind, commands=2 * QUEUE_DEPTH + 40, files=1):
    """Reads of a store that hangs, as many as three sessions may have, with everybody else at work."""
    with kind() as store, _served(store, files) as tarn:
        # Held open to the end: their tasks stay in the store.
        sessions = [_session(tarn, [HUNG]) for _ in range(-(-commands // QUEUE_DEPTH))]
        store.stop()
        each = min(QUEUE_DEPTH - 8, commands)
        tasks = [_sector_reads(session, each, n * each) for n, session in enumerate(sessions)]
        harness.wait_for(lambda: store.fs.hung() > 0, 20, "an operation hangs")
        _others_go_on(tarn, files)
        _aborts_are_answered(sessions[0], tasks[0])
        _others_go_on(tarn, files)
        _ends(tarn)
        for session in sessions:
            session.close()


FUSE_MODES = {
    "direct_with_async_dio": {"direct_io": True},
    "direct_without_async_dio": {"direct_io": True, "async_dio": False},
    "cached": {"direct_io": False},
    "cached_with_attributes_that_expire": {"direct_io": False, "expiring": True},
}


def _add_fuse(name, mode):
    def run():
        _hang(functools.partial(hungstore.fuse, **mode))
    run.__doc__ = f"B1: a FUSE file ({name.replace('_', ' ')}) that hangs stops neither its core nor the end of the process."
    harness.add(f"a_hung_fuse_file_{name}_stops_nobody_else", run)


for _name, _mode in FUSE_MODES.items():
    _add_fuse(_name, _mode)


@test
def a_fuse_file_that_hangs_on_attributes_stops_nobody_else():
    """B1: GETATTR alone hangs, which the kernel asks before a read on the thread that reads."""
    with hungstore.fuse(hang=("getattr",), direct_io=False, expiring=True) as store, _served(store) as tarn:
        with _session(tarn, [HUNG]) as session:
            store.stop()
            tasks = _sector_reads(session, 16)
            harness.wait_for(lambda: store.fs.hung() > 0, 20, "an operation hangs")
            _others_go_on(tarn)
            _aborts_are_answered(session, tasks)
            _ends(tarn)


@test
def a_hung_block_device_stops_nobody_else():
    """B1: more READs than the queue of the device takes (nr_requests) do not stop the core."""
    _hang(hungstore.loop_device)


@test
def an_image_on_a_hung_ext4_stops_nobody_else():
    """B1: the same for a file on ext4 on a hung device."""
    _hang(hungstore.image_on_ext4)


@test
def hung_commands_leave_twenty_healthy_files_alone():
    """B2: 8 commands that hang do not take the workers that all files of a core would share."""
    _hang(functools.partial(hungstore.fuse, direct_io=False), commands=8, files=20)


@test
def a_hung_write_leaves_all_other_files_alone():
    """B2: one WRITE that hangs holds back no other file, whatever bucket the kernel sorts their inodes into."""
    with hungstore.fuse(hang=("write",)) as store, _served(store, files=120) as tarn:
        with _session(tarn, [HUNG]) as session:
            store.stop()
            session.start(scsi.write16(0, 8), write=bytes(4096), lun=HUNG)
            harness.wait_for(lambda: store.fs.hung() > 0, 20, "the WRITE hangs")
            _others_go_on(tarn, files=120)
            _ends(tarn)


@test
def questions_to_a_hung_file_leave_memory_and_reservations_alone():
    """B2: 16 GET LBA STATUS that hang do not take the threads that memory disks and reservations need."""
    with hungstore.fuse(hang=("lseek",)) as store, _served(store) as tarn:
        with _session(tarn, [HUNG, MEMORY]) as session:
            store.stop()
            tasks = [session.start(scsi.get_lba_status(0), read=4096, lun=HUNG) for _ in range(24)]
            harness.wait_for(lambda: store.fs.hung() > 0, 20, "a question hangs")
            _others_go_on(tarn)
            # The WRITE that fills a huge page is answered when a helper has collapsed it.
            for n in range(8):
                outcome = session.command(scsi.write16(n * 2048, 2048), write=bytes(MIB), lun=MEMORY)
                check(outcome.good, f"WRITE {n} of 1 MiB to memory: {outcome}")
            _aborts_are_answered(session, tasks)
            _ends(tarn)


@test
def what_hung_is_served_again():
    """B1: when the store goes on, its commands are answered with its data, and the same Tarn serves it as before."""
    with hungstore.fuse(direct_io=False) as store, _served(store) as tarn:
        with _session(tarn, [HUNG]) as session:
            data = b"\x5a" * 4096
            check(session.command(scsi.write16(64, 8), write=data, lun=HUNG).good, "WRITE")
            check(session.command(scsi.synchronize_cache16(), lun=HUNG).good, "SYNCHRONIZE CACHE")
            store.stop()
            tasks = _sector_reads(session, 100)
            harness.wait_for(lambda: store.fs.hung() > 0, 20, "an operation hangs")
            store.go()
            for task in tasks:
                check(session.finish(task).good, "READ that hung")
            equal(session.command(scsi.read16(64, 8), read=4096, lun=HUNG).data, data, "data")
            equal(tarn.terminate(END_S), 0, "exit code")


# The joints: the end of the process, of a file, of a worker, of a command.

def _workers(tarn):
    """The processes that do the operations of stores for this Tarn, by their numbers."""
    found = set()
    for children in pathlib.Path(f"/proc/{tarn.process.pid}/task").glob("*/children"):
        for pid in children.read_text().split():
            if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "tarn-lane":
                found.add(int(pid))
    return found


def _guardians(tarn):
    """The guardians of this Tarn that run, by their numbers."""
    found = set()
    for children in pathlib.Path(f"/proc/{tarn.process.pid}/task").glob("*/children"):
        for pid in children.read_text().split():
            with contextlib.suppress(OSError):
                name, state = [pathlib.Path(f"/proc/{pid}", part).read_text() for part in ("comm", "stat")]
                if name.strip() == "tarn-guardian" and state.rsplit(")", 1)[1].split()[0] != "Z":
                    found.add(int(pid))
    return found


def _await_guardian(tarn):
    """It comes last in a start, after Tarn listens."""
    harness.wait_for(lambda: _guardians(tarn), 20, "a guardian runs")


def _is_alive(pid):
    try:
        return ") Z" not in pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def _serves_again(end):
    """Ends a Tarn whose store hangs, and starts another on the same port, with the same state and without that store."""
    with hungstore.fuse() as store, _served(store) as tarn:
        with _session(tarn, [HUNG, FIRST_FILE]) as session:
            store.stop()
            tasks = _sector_reads(session, 16)
            harness.wait_for(lambda: store.fs.hung() > 0, 20, "an operation hangs")
            check(_register(session, FIRST_FILE).good, "a registration that is kept")
            workers = _workers(tarn)
            check(workers, "no worker was seen")
            _await_guardian(tarn)
            end(tarn)
            check(any(map(_is_alive, workers)), "the old worker hangs no longer")
            del tasks
        text = tarn.config
        tarn.config = text.replace(f'[[lun]]\nid = "hung"\nstore = "{store.path}"\n', "").replace('{ lun = 0, id = "hung" }, ', "")
        check(tarn.config != text, "the hung LUN is removed")
        tarn.start()
        check(any(map(_is_alive, workers)), "the old worker hangs no longer")
        _others_go_on(tarn)
        equal(tarn.terminate(END_S), 0, "exit code of the second Tarn")


@test
def a_start_whose_file_hangs_ends_with_sigterm():
    """The file is opened and nothing more is answered: what waits for that is woken by no signal that is caught."""
    with hungstore.fuse() as store:
        tarn = Tarn(config=_config(store.path))
        store.fs.is_deaf_after_open = True
        try:
            tarn.begin()
            harness.wait_for(store.fs.is_deaf, 20, "the file is open")
            harness.wait_for(lambda: tarn.waits_in("request_wait_answer"), 20, "the start waits for the file")
            equal(tarn.terminate(END_S), -signal.SIGTERM, "how it ended")
        finally:
            store.fs.release()
            tarn.close()


@test
def a_restart_while_a_store_hangs_has_its_port_and_its_state():
    """B1: after SIGTERM a new Tarn serves on the same port and from the same state directory, while old workers still hang."""
    _serves_again(_ends)


@test
def a_restart_after_a_kill_while_a_store_hangs_has_its_port_and_its_state():
    """B1: the same after SIGKILL, which leaves no time to give anything back."""
    _serves_again(lambda tarn: tarn.kill())


@test
def a_restart_after_an_abort_while_a_store_hangs_has_its_port_and_its_state():
    """B1: the same after SIGABRT, as after a fault that ends the process."""
    def end(tarn):
        tarn.process.send_signal(signal.SIGABRT)
        tarn.process.wait(END_S)
    _serves_again(end)


@test(limit_s=90)
def a_restart_after_a_kill_while_the_administration_waits_for_a_store_has_its_port_and_its_state():
    """B1: the same when the administration has asked for everything before."""
    def end(tarn):
        for path in ("luns", "/metrics", "findings", "status"):
            equal(tarn.api(timeout_s=30).ask("GET", path).status, 200, f"status of GET {path}")
        tarn.kill()
    _serves_again(end)


@test(limit_s=60)
def a_guardian_that_is_killed_is_replaced():
    """B1: kill -9 of the guardian is told, another one starts, and the end of Tarn is as with the first."""
    with hungstore.fuse(hang=("flush",)) as store, _served(store) as tarn:
        with _session(tarn, [HUNG]) as session:
            check(session.command(scsi.read16(64, 8), read=4096, lun=HUNG).good, "READ")
        _await_guardian(tarn)
        first, = _guardians(tarn)
        os.kill(first, signal.SIGKILL)
        tarn.await_log("the guardian was killed")
        harness.wait_for(lambda: _guardians(tarn) - {first}, 20, "another guardian runs")
        store.stop()
        _ends(tarn)


@test
def a_restart_after_a_kill_has_the_files_of_stores_that_answer():
    """B1: Tarn is killed while nothing is under way. Two of its files ask a server when they are closed that gives no
    answer; a third one, which was opened after them, is free for the next Tarn."""
    with hungstore.fuse(hang=("flush",)) as one, hungstore.fuse(hang=("flush",)) as two, hungstore.fuse() as healthy:
        def config(*stores):
            units = "".join(f'[[lun]]\nid = "lun{n}"\nstore = "{store.path}"\n' for n, store in enumerate(stores))
            luns = ", ".join(f'{{ lun = {n}, id = "lun{n}" }}' for n in range(len(stores)))
            return f'{units}[[target]]\nname = "{IQN}"\nportals = ["127.0.0.1:{{port}}"]\nluns = [{luns}]\n'
        with Tarn(config=config(one, two, healthy)) as tarn:
            with _session(tarn, [0, 1, 2]) as session:
                for lun in (0, 1, 2):
                    check(session.command(scsi.read16(0, 8), read=4096, lun=lun).good, f"READ of LUN {lun}")
            _await_guardian(tarn)
            try:
                one.stop()
                two.stop()
                tarn.kill()
                harness.wait_for(lambda: one.fs.hung() > 0 and two.fs.hung() > 0, 20, "both files are being closed")
                with Tarn(config=config(healthy)) as next_one, _session(next_one, [0]) as session:
                    check(session.command(scsi.read16(0, 8), read=4096).good, "READ by the next Tarn")
            finally:
                one.go()
                two.go()
            tarn.start()


@test(limit_s=120)
def an_administration_that_asks_about_a_hung_store_goes_on_and_ends_with_tarn():
    """B1, B4: views, findings, metrics, a resize and a new LUN on a file system that answers nothing, each asked often: the
    administration answers the next question, and no thread that asked keeps the process from ending."""
    with hungstore.fuse() as store, _served(store) as tarn:
        api = tarn.api(timeout_s=30)
        with _session(tarn, [HUNG, MEMORY]):
            store.stop()
            for path in ("luns", "luns/hung", "status", "findings", "targets", "/metrics") * 5:
                equal(api.ask("GET", path).status, 200, f"status of GET {path}")
            beside = str(pathlib.Path(store.path).parent / "other.img?size=1M")
            changes = [("POST", "luns/hung/resize", {"size_bytes": 128 << 20}), ("PUT", "luns/new", {"id": "new", "store": beside})]
            asked = [threading.Thread(target=tarn.api(timeout_s=40).ask, args=change) for change in changes]
            for one in asked:
                one.start()
            equal(api.ask("GET", "status").status, 200, "status meanwhile")
            for one in asked:
                one.join()
            _others_go_on(tarn)
            _ends(tarn)


@test
def closing_a_file_whose_store_hangs_stops_nobody_else():
    """B1: a LUN is removed whose file asks its store when it is closed (FUSE_FLUSH), which gets no answer."""
    with hungstore.fuse(hang=("flush",)) as store, _served(store) as tarn:
        with _session(tarn, [HUNG]) as session:
            check(session.command(scsi.read16(64, 8), read=4096, lun=HUNG).good, "READ")
            store.stop()
            text = tarn.config.replace('{ lun = 0, id = "hung" }, ', "").replace("{port}", str(tarn.port))
            text = text.replace(f'[[lun]]\nid = "hung"\nstore = "{store.path}"\n', "").replace("{dir}", str(tarn.dir))
            answer = tarn.api(timeout_s=30).ask("PUT", "config", {"text": text})
            equal(answer.status, 200, f"the removal: {answer}")
            harness.wait_for(lambda: store.fs.hung() > 0, 20, "the file is being closed")
            _others_go_on(tarn)
            _ends(tarn)


@test
def a_worker_that_is_killed_fails_its_operation_and_nothing_else():
    """B1: SIGKILL of a worker (by hand, for want of memory) ends the command it was at; the unit serves on."""
    with hungstore.fuse(hang=("read",)) as store, _served(store) as tarn:
        with _session(tarn, [HUNG]) as session:
            store.fs.hang = store.hang
            tasks = _sector_reads(session, 3)
            harness.wait_for(lambda: store.fs.hung() == len(tasks), 20, "all READs are in the store")
            store.fs.hang = ()
            for pid in _workers(tarn):
                os.kill(pid, signal.SIGKILL)
            for task in tasks:
                # Like a READ of a bad block it is tried again for the blocks that can be read.
                status = session.finish(task).status
                check(status in (scsi.GOOD, scsi.CHECK_CONDITION), f"status of a READ whose worker is killed: {status}")
            tarn.await_log("a worker of a store was killed")
            store.go()
            _others_go_on(tarn)
            for _ in range(40):
                check(session.command(scsi.read16(64, 8), read=4096, lun=HUNG).good, "READ after that")
            equal(tarn.terminate(END_S), 0, "exit code")


@test
def a_last_flush_that_hangs_fails_the_end_within_its_limits():
    """B1, A7: SIGTERM while the store of written data does not answer a flush: it ends in time, names the unit, exit code 1."""
    with hungstore.fuse(hang=("fsync",)) as store, _served(store) as tarn:
        with _session(tarn, [HUNG]) as session:
            check(session.command(scsi.write16(64, 8), write=bytes(4096), lun=HUNG).good, "WRITE")
            store.stop()
            equal(tarn.terminate(END_S), 1, "exit code")
            check("the last flush of hung failed" in tarn.log(), "the unit is not named")


@test
def reads_that_hang_leave_places_to_writes_and_flushes():
    """B1: however many READs of a unit hang, its WRITEs, flushes and questions have places of their own on its lane."""
    with hungstore.fuse(hang=("read",)) as store, _served(store) as tarn:
        with _session(tarn, [HUNG]) as session, _session(tarn, [HUNG]) as other:
            store.stop()
            tasks = _sector_reads(session, QUEUE_DEPTH - 8)
            harness.wait_for(lambda: store.fs.hung() > 0, 20, "an operation hangs")
            check(other.command(scsi.write16(64, 8), write=bytes(4096), lun=HUNG).good, "WRITE")
            check(other.command(scsi.synchronize_cache16(), lun=HUNG).good, "SYNCHRONIZE CACHE")
            check(other.command(scsi.get_lba_status(0), read=4096, lun=HUNG).good, "GET LBA STATUS")
            store.go()
            for task in tasks:
                check(session.finish(task).good, "READ that hung")
            equal(tarn.terminate(END_S), 0, "exit code")


@test
def an_abort_takes_back_what_waits_and_waits_for_what_runs():
    """B1: ABORT TASK of a READ that no worker has begun ends it at once; one of a WRITE in the store is not confirmed until that
    has ended."""
    with hungstore.fuse(hang=("read", "write")) as store, _served(store) as tarn:
        with _session(tarn, [HUNG]) as session:
            store.stop()
            tasks = _sector_reads(session, QUEUE_DEPTH - 8)
            write = session.start(scsi.write16(0, 8), write=bytes([7]) * 4096, lun=HUNG)
            harness.wait_for(lambda: store.fs.counts["write"] > 0, 20, "the WRITE is in the store")
            before = store.fs.hung()
            for task in tasks[-8:]:
                equal(session.tmf(iscsi.ABORT_TASK, lun=HUNG, task=task), 0, "response for a READ that waits")
            check(store.fs.hung() >= before, "a READ that runs was ended by the abort of another")
            equal(session.tmf(iscsi.ABORT_TASK, lun=HUNG, task=write), 255, "response for a WRITE that runs")
            store.go()
            # What has landed late is what the standard allows: the rest is untouched, and the unit serves on.
            for task in tasks[:-8]:
                check(session.finish(task).good, "READ that hung")
        with _session(tarn, [HUNG]) as session:
            harness.wait_for(lambda: session.command(scsi.read16(0, 8), read=4096, lun=HUNG).data == bytes([7]) * 4096, 20,
                             "the unit serves on")
            equal(tarn.terminate(END_S), 0, "exit code")


@test
def errors_of_a_store_are_answered_as_before():
    """B1: what the kernel answers a worker comes back as it is: a bad medium is no full one."""
    with hungstore.fuse() as store, _served(store) as tarn:
        with _session(tarn, [HUNG]) as session:
            for number, key, code in ((errno.EIO, scsi.MEDIUM_ERROR, (0x0C, 0x00)), (errno.ENOSPC, scsi.DATA_PROTECT, (0x27, 0x07)),
                                      (errno.EDQUOT, scsi.DATA_PROTECT, (0x27, 0x07))):
                store.fs.answer_errno = {"write": (number, 8)}
                outcome = session.command(scsi.write16(0, 8), write=bytes(4096), lun=HUNG)
                equal((outcome.sense.key, outcome.sense.code), (key, code), errno.errorcode[number])
            store.fs.answer_errno = {"read": (errno.EIO, 8)}
            outcome = session.command(scsi.read16(0, 8), read=4096, lun=HUNG)
            equal((outcome.sense.key, outcome.sense.code), (scsi.MEDIUM_ERROR, (0x11, 0x00)), "EIO of a READ")
            store.fs.answer_errno = {}
            os.truncate(store.path, MIB)
            outcome = session.command(scsi.read16(8 * MIB // BLOCK, 8), read=4096, lun=HUNG)
            equal(outcome.status, scsi.CHECK_CONDITION, "a READ past the end of a truncated file")
            check(session.command(scsi.read16(0, 8), read=4096, lun=HUNG).good, "a READ before it")
            equal(tarn.terminate(END_S), 0, "exit code")


@test(limit_s=60)
def commands_without_a_worker_wait_for_one_and_do_not_fail():
    """B2: the limit of processes leaves no worker for a healthy file: its commands wait, nothing else does, and when there is
    a process they are done. No flush has failed."""
    with _few_processes(1000) as (prefix, group), Tarn(config=_config("mem:16M"), prefix=prefix) as tarn:
        with _session(tarn, [MEMORY, FIRST_FILE]) as session:
            (group / "pids.max").write_text((group / "pids.current").read_text())
            write = session.start(scsi.write16(0, 8), write=bytes(4096), lun=FIRST_FILE)
            flush = session.start(scsi.synchronize_cache16(), lun=FIRST_FILE)
            harness.wait_for(lambda: "no worker for a store" in tarn.log(), 20, "Tarn misses a worker")
            check(session.command(scsi.read16(0, 8), read=4096, lun=MEMORY).good, "a READ of memory")
            equal(_session(tarn).nop(b"alive"), b"alive", "answer to a ping")
            (group / "pids.max").write_text("1000")
            for task, what in ((write, "WRITE"), (flush, "SYNCHRONIZE CACHE")):
                outcome = session.finish(task)
                check(outcome.good, f"{what} that waited: {outcome}")
            outcome = session.command(scsi.synchronize_cache16(), lun=FIRST_FILE)
            check(outcome.good, f"SYNCHRONIZE CACHE later: {outcome}")


def _cold_metadata(mode):
    """One READ, for which the file system has to read first where the data lies."""
    with hungstore.image_on_ext4(in_pieces=True) as store, _served(store, mode=mode) as tarn:
        with _session(tarn, [HUNG]) as session:
            store.stop()
            task = session.start(scsi.read16(40_000, 8), read=4096, lun=HUNG)
            harness.wait_for(lambda: store.fs.hung() > 0, 20, "an operation hangs")
            _others_go_on(tarn)
            store.go()
            check(session.finish(task).good, "the READ")


@test(limit_s=60)
def a_read_that_needs_metadata_stops_nobody_else():
    """B1: where the data of an image on ext4 lies is in no cache, and the device hangs."""
    _cold_metadata("")


@test(limit_s=60)
def a_direct_read_that_needs_metadata_stops_nobody_else():
    """B1: the same past the page cache."""
    _cold_metadata("?cache=direct")


@test(limit_s=60)
def a_read_beside_a_flush_that_fills_the_queue_stops_nobody_else():
    """B1: 600 WRITEs, the device hangs, SYNCHRONIZE CACHE fills its queue, and then one READ of what no cache has."""
    with hungstore.loop_device() as store, _served(store) as tarn:
        with _session(tarn, [HUNG]) as session:
            for first in range(0, 600, 100):
                writes = [session.start(scsi.write16((first + n) * 64, 8), write=os.urandom(4096), lun=HUNG) for n in range(100)]
                for task in writes:
                    check(session.finish(task).good, "a WRITE")
            device = pathlib.Path(store.path).resolve().name
            throttle = pathlib.Path("/sys/block", device, "queue/wbt_lat_usec")
            if throttle.exists():
                # Else the kernel itself keeps room in the queue.
                throttle.write_text("0")
            store.stop()
            session.start(scsi.synchronize_cache16(), lun=HUNG)
            harness.wait_for(lambda: store.fs.hung() > 0, 20, "an operation hangs")
            session.start(scsi.read16(45000, 8), read=4096, lun=HUNG)
            _others_go_on(tarn)
            _ends(tarn)


@test(limit_s=60)
def a_lun_of_the_start_is_removed_and_added_again():
    """A removed LUN gives its file, its identity and their locks back, whether it is of the start or not."""
    with Tarn(config=_config("file:{dir}/first?size=4M")) as tarn:
        full = (tarn.dir / "tarn.toml").read_text()
        less = full.replace('{ lun = 0, id = "hung" }, ', "")
        less = less.replace(f'[[lun]]\nid = "hung"\nstore = "file:{tarn.dir}/first?size=4M"\n', "")
        check(less != full and "first" not in less, f"the text without it: {less}")
        for _ in range(2):
            for text in (less, full):
                answer = tarn.api(timeout_s=30).ask("PUT", "config", {"text": text})
                equal(answer.status, 200, f"status of the change: {answer.body}")
        with _session(tarn, [HUNG]) as session:
            check(session.command(scsi.write16(0, 8), write=bytes(4096), lun=HUNG).good, "a WRITE")
