"""One unit, one session, one core: what each may take from the others."""

# B4: changes of the configuration.

import threading  # noqa: E402

import faultfs  # noqa: E402
import harness  # noqa: E402
import iscsi  # noqa: E402
import scsi  # noqa: E402
from harness import check, equal, test  # noqa: E402
from tarn import IQN, Tarn  # noqa: E402

MEMORY_LUN = """[[lun]]
id = "ID"
store = "mem:8M"
"""
FILE_LUN = """[[lun]]
id = "ID"
store = "file:PATH"
"""


class FrozenFs(faultfs.FaultFs):
    """Answers no look at its file and no attempt to open it while it is frozen, as a network file system whose server is
    gone."""

    LOOKS = (faultfs.LOOKUP, faultfs.GETATTR, faultfs.OPEN, faultfs.STATFS)

    def __init__(self, size):
        super().__init__(size)
        self.frozen, self.kept = False, []

    def _take(self, opcode, unique, node, body):
        if opcode == faultfs.INTERRUPT:
            super()._take(opcode, unique, node, body)
            return
        with self._lock:
            if self.frozen and opcode in self.LOOKS:
                self.kept.append((opcode, unique, node, body))
                return
        super()._take(opcode, unique, node, body)

    def release(self):
        with self._lock:
            self.frozen = False
            kept, self.kept = self.kept, []
        for request in kept:
            self._serve(*request)
        super().release()


def changed(lun_texts):
    """A document with these LUNs, as LUN 0, 1, ..."""
    units = "".join(text.replace("ID", name) for name, text in lun_texts)
    luns = ", ".join(f'{{ lun = {n}, id = "{name}" }}' for n, (name, _) in enumerate(lun_texts))
    return f'{units}[[target]]\nname = "{IQN}"\nportals = ["127.0.0.1:{{port}}"]\nluns = [{luns}]\n'


def put(tarn, text, limit_s=50):
    text = text.replace("{port}", str(tarn.port))
    return tarn.api(timeout_s=limit_s).ask("PUT", "config", {"text": text})


@test
def a_change_that_meets_a_hung_file_system_fails_and_holds_up_no_other():
    """B4: a change whose new file does not answer is refused at its deadline and undone; the file is not asked again while it
    hangs; a change whose asker gives up before it begins is not made; other changes are."""
    base = [("m0", MEMORY_LUN)]
    with FrozenFs(8 << 20) as fs, Tarn(config=changed(base)) as tarn:
        fs.frozen = True
        hung = [*base, ("f", FILE_LUN.replace("PATH", str(fs.path)))]
        answers = []
        asker = threading.Thread(target=lambda: answers.append(put(tarn, changed(hung))), daemon=True)
        asker.start()
        harness.wait_for(lambda: fs.kept, 20, "the change is at the file")
        try:
            put(tarn, changed([*base, ("later", MEMORY_LUN)]), limit_s=1)
        except OSError:
            pass        # it gives up
        else:
            raise harness.Failure("a change did not wait for the one before it")
        asker.join(50)
        check(answers, "the change on the hung file system has no answer")
        check(answers[0].status >= 400, f"{answers[0]}")
        again = put(tarn, changed(hung))
        check(again.status >= 400 and "not asked again" in again.json["detail"], f"{again}")
        equal(put(tarn, changed([*base, ("m1", MEMORY_LUN)])).status, 200, "a change of another lun")
        fs.release()
        equal([one["author"] for one in tarn.api().get("config/history")], ["uid 0", "start"], "the history")
        with iscsi.Session(tarn.port, IQN, timeout_s=10) as session:
            session.clear_unit_attentions()
            check(session.command(scsi.test_unit_ready()).good, "the disk that is not concerned")


@test
def a_lun_whose_file_system_hangs_is_removed_and_others_change():
    """B4: while the file system of a served LUN does not answer, other LUNs are added, and the LUN itself is removed."""
    base = [("m0", MEMORY_LUN)]
    with FrozenFs(8 << 20) as fs:
        served = [*base, ("f", FILE_LUN.replace("PATH", str(fs.path)))]
        with Tarn(config=changed(served)) as tarn:
            fs.frozen = True
            more = [*served, ("m1", MEMORY_LUN)]
            answer = put(tarn, changed(more))
            equal(answer.status, 200, f"a change of another lun: {answer}")
            answer = put(tarn, changed([*base, ("m1", MEMORY_LUN)]))
            equal(answer.status, 200, f"the removal: {answer}")
            equal(tarn.api().get("config")["revision"], 3, "the revision")
            fs.release()
import contextlib
import functools
import struct

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
def _served(store, files=1):
    """A Tarn of one core on a store. It has to end by itself when asked, also while the store hangs."""
    with Tarn(config=_config(store.path, files), check_exit=False) as tarn:
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
