"""One unit, one session, one core: what each may take from the others."""

# B4: changes of the configuration.

import os  # noqa: E402
import re  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402

import faultfs  # noqa: E402
import harness  # noqa: E402
import iscsi  # noqa: E402
import scsi  # noqa: E402
from harness import check, equal, measured, test  # noqa: E402
from tarn import IQN, Tarn, lun_section, target_section  # noqa: E402

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
        check(again.status >= 400 and "is not tried again" in again.json["detail"], f"{again}")
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


@test
def a_lun_that_hangs_is_removed_and_holds_up_no_change():
    """B4: a LUN with commands that hang is removed. While whoever removed it waits for the end of that, another change is made,
    and removed LUNs of others are gone; the answer says what is not closed yet, and the log when it is."""
    base = [("m0", MEMORY_LUN)]
    with faultfs.FaultFs(8 << 20) as fs:
        served = [*base, ("f", FILE_LUN.replace("PATH", str(fs.path))), ("gone", MEMORY_LUN)]
        with Tarn(config=changed(served), check_exit=False) as tarn, iscsi.Session(tarn.port, IQN, timeout_s=30) as session:
            for lun in range(3):
                session.clear_unit_attentions(lun)
            fs.hang = ("read",)
            session.start(scsi.read10(0, 1), lun=1, read=512)
            harness.wait_for(lambda: fs.hung, 20, "the read hangs")
            answers = []
            without = [*base, ("gone", MEMORY_LUN)]
            asker = threading.Thread(target=lambda: answers.append(put(tarn, changed(without))), daemon=True)
            asker.start()
            harness.wait_for(lambda: tarn.api().get("config")["revision"] == 2, 20, "the removal is in force")
            answer = put(tarn, changed([*base, ("m1", MEMORY_LUN)]), limit_s=20)
            equal(answer.status, 200, f"a change meanwhile: {answer}")
            check("unsettled" not in answer.json, f"it waits for the lun that hangs: {answer}")
            check(not answers, f"the removal does not wait for what hangs: {answers}")
            asker.join(50)
            check(answers and answers[0].status == 200, f"the removal: {answers}")
            check("lun f" in answers[0].json.get("unsettled", ""), f"the answer does not say what is not closed: {answers[0]}")
            fs.release()
            harness.wait_for(lambda: "changes are settled" in tarn.log(), 30, "the log says that it is closed")
            session.clear_unit_attentions()
            check(session.command(scsi.test_unit_ready()).good, "the disk that is not concerned")


# B3: the memory of one core.

# One core with little memory, so that a few sessions come to the edge of it.
POOL_MIB = 64
B3_CONFIG = f"""
[[lun]]
id = "slow"
store = "{{slow}}"
[[lun]]
id = "file"
store = "file:{{dir}}/disk.img?size=64M&cache=direct"
[[lun]]
id = "memory"
store = "mem:256M"
[[target]]
name = "{IQN}"
portals = ["127.0.0.1:{{port}}"]
luns = [{{ lun = 0, id = "file" }}, {{ lun = 1, id = "memory" }}, {{ lun = 2, id = "slow" }}]
[server]
cores = 1
[limits]
pool_per_core_bytes = "{POOL_MIB}M"
"""
MIB = 1 << 20


def _b3_tarn(slow="mem:1M"):
    text = B3_CONFIG
    for name in ("{slow}", "{dir}", "{port}"):
        text = text.replace("{" + name + "}", name)
    return Tarn(config=text.replace("{slow}", str(slow)))


def _session(tarn, name, **keys):
    session = iscsi.Session(tarn.port, IQN, initiator=f"iqn.2026-11.example.tarn:{name}", keys=keys, timeout_s=20)
    for lun in (0, 1, 2):
        session.clear_unit_attentions(lun)
    return session


@test
def reads_of_an_initiator_that_takes_nothing_leave_room_for_the_others():
    """B3: an initiator that does not read its socket holds its share of the pool; file READs of others are answered."""
    with _b3_tarn() as tarn, _session(tarn, "mute") as mute, _session(tarn, "honest") as honest:
        _start_at_once(mute, [lambda n=n: mute.start(scsi.read16(n * 2048 % 65536, 2048), read=MIB, lun=0)
                              for n in range(100)])
        for n in range(8):
            outcome = honest.command(scsi.read16(n * 2048, 2048), read=MIB, lun=0)
            check(outcome.good and len(outcome.data) == MIB, f"READ {n} of the honest initiator: {outcome}")
        # It loses nothing by it, and gets all its answers as soon as it takes them.
        for task in list(mute.tasks.values()):
            check(mute.finish(task).good, "a READ of the initiator that was slow")


def _start_at_once(session, starts):
    """Starts commands so that all of them come in one segment."""
    pdus = []
    session.connection.send = lambda pdu: pdus.append(pdu.pack())
    for start in starts:
        start()
    del session.connection.send
    session.connection.send_raw(b"".join(pdus))


@test
def writes_that_wait_for_their_data_leave_chunks_to_receive_it():
    """B3: five correct sessions with 128 WRITEs of 1 MiB each, 8 KiB of it immediate, do not bring a core to a halt."""
    data = os.urandom(MIB)
    with _b3_tarn() as tarn:
        sessions = [_session(tarn, f"writer{n}", MaxRecvDataSegmentLength="262144", FirstBurstLength="8192",
                             InitialR2T="Yes", MaxBurstLength="1048576") for n in range(5)]
        # All commands first: each comes by itself, as the ping between them has its answer.
        for n in range(128):
            for session in sessions:
                session.start(scsi.write16(n * 2048, 2048), write=data, lun=1, unsolicited=8192, answer_r2t=False)
                session.nop()
        for session in sessions:
            for task in list(session.tasks.values()):
                task.answer_r2t = True
                for r2t in task.r2ts:
                    session.send_data(task, r2t)
        statuses = _finish_all(sessions)
        check(set(statuses) <= {scsi.GOOD, scsi.TASK_SET_FULL}, f"statuses {statuses}")
        check(statuses.get(scsi.GOOD, 0) >= 64, f"statuses {statuses}")
        measured(f"statuses {statuses}")
        equal(sessions[0].command(scsi.read16(0, 16), read=8192, lun=1).data, data[:8192], "what was written")
        for session in sessions:
            session.close()


def _finish_all(sessions):
    """Statuses with their numbers; every session is served in turn, as all are busy at the same time."""
    statuses = {}
    for session in sessions:
        for task in list(session.tasks.values()):
            status = session.finish(task, timeout_s=30).status
            statuses[status] = statuses.get(status, 0) + 1
    return statuses


@test
def small_writes_on_a_hung_unit_hold_no_more_than_their_data():
    """B3: 16 sessions with 32 WRITEs of 4 KiB each on a hung LUN hold some MiB of a pool, and others go on."""
    with faultfs.FaultFs(64 * MIB) as slow:
        with _b3_tarn(f"file:{slow.path}") as tarn:
            sessions = [_session(tarn, f"hung{n}") for n in range(16)]
            slow.hang = ("write",)
            data = bytes(4096)
            for n in range(32):
                for index, session in enumerate(sessions):
                    session.start(scsi.write16((n * 16 + index) * 8, 8), write=data, lun=2)
                    session.nop()
            with _session_without_slow(tarn, "honest") as honest:
                blob = os.urandom(MIB)
                for n in range(16):
                    check(honest.command(scsi.write16(n * 2048, 2048), write=blob, lun=1).good, f"WRITE {n} of memory")
                    outcome = honest.command(scsi.read16(n * 2048, 2048), read=MIB, lun=1)
                    check(outcome.data == blob, f"READ {n} of memory")
                core = tarn.api().get("stats")["cores"][0]
                held = core["pool_bytes"] - core["pool_free_bytes"]
                measured(f"{held / MIB:.1f} MiB held")
                # 8 MiB of chunks are always out, as many bytes of chunks again at most are kept; 2 MiB of data.
                check(held <= 24 * MIB, f"{held} bytes of the pool are held for 2 MiB of data")
            slow.heal()
            slow.release()
            for session in sessions:
                for task in list(session.tasks.values()):
                    session.finish(task)
                session.close()


def _session_without_slow(tarn, name):
    session = iscsi.Session(tarn.port, IQN, initiator=f"iqn.2026-11.example.tarn:{name}", timeout_s=20)
    for lun in (0, 1):
        session.clear_unit_attentions(lun)
    return session


@test(limit_s=60)
def data_that_comes_unasked_leaves_room_for_a_newcomer():
    """B3: 44 sessions that each announce a WRITE without its data and send 24 more with 256 KiB each fill what they may of the
    pool; a READ of a session that holds nothing is answered."""
    config = f"""[server]
cores = 1
[[lun]]
id = "a"
store = "file:{{dir}}/disk.img?size=64M"
[[target]]
name = "{IQN}"
portals = ["127.0.0.1:{{port}}"]
luns = [{{ lun = 0, id = "a" }}]
"""
    data = b"z" * 262144
    with Tarn(config=config) as tarn:
        newcomer = iscsi.Session(tarn.port, IQN, "iqn.2026-11.example.tarn:newcomer", timeout_s=20)
        newcomer.clear_unit_attentions()
        greedy = []
        for n in range(44):
            session = iscsi.Session(tarn.port, IQN, f"iqn.2026-11.example.tarn:greedy{n}", keys={"FirstBurstLength": "262144"},
                                    timeout_s=20)
            session.clear_unit_attentions()
            greedy.append(session)
        for session in greedy:
            def send(attribute, body, length):
                blocks = length // 512
                session.connection.send(iscsi.Pdu(iscsi.SCSI_COMMAND, 0x80 | 0x20 | attribute, body, lun=0, itt=session.itt(),
                                                  edtl=length, cmd_sn=session.cmd_sn, cdb=scsi.write10(0, blocks),
                                                  exp_stat_sn=session.connection.exp_stat_sn))
                session.cmd_sn += 1
            send(1, b"", 512)
            for _ in range(24):
                send(2, data, len(data))
        outcome = newcomer.command(scsi.read10(0, 8), read=4096)
        check(outcome.good, f"a READ of a session that holds nothing: {outcome}")
        for session in (newcomer, *greedy):
            session.close()


# What a core does for one command.

@test(limit_s=60)
def commands_that_cost_a_core_much_leave_its_turns_to_others():
    """64 commands of one initiator have a core compare 16 GiB of a memory disk with one block (VERIFY, BYTCHK 3), or write one
    block to 16 GiB of a disk (WRITE SAME). Before the first of them is answered, 20 commands of a neighbour are; an ABORT
    TASK SET ends them all."""
    count, between, blocks, block = 64, 20, 0xFFFF, 4096
    units = "".join(lun_section(name, f"{name}:256M?blocksize={block}") for name in ("mem", "null"))
    luns = target_section("mem", "null")
    with Tarn(config=f"[server]\ncores = 1\n{units}{luns}") as tarn, \
            iscsi.Session(tarn.port, IQN, initiator="iqn.2026-11.example.tarn:greedy", timeout_s=30) as greedy, \
            iscsi.Session(tarn.port, IQN, initiator="iqn.2026-11.example.tarn:neighbour", timeout_s=30) as neighbour:
        for lun in (0, 1):
            greedy.clear_unit_attentions(lun)
            neighbour.clear_unit_attentions(lun)
        costly = [(0, scsi.verify16(0, blocks, bytchk=3), bytes(block)), (1, scsi.write_same16(0, blocks), b"x" * block)]
        for lun, cdb, data in costly:
            _start_at_once(greedy, [lambda: greedy.start(cdb, write=data, lun=lun) for _ in range(count)])
            for n in range(between):
                outcome = neighbour.command(scsi.read16(n, 1), read=block, lun=lun)
                check(outcome.good, f"READ {n} of the neighbour: {outcome}")
            check(not greedy.connection.readable(), f"{count} commands are over before {between} of a neighbour, LUN {lun}")
            equal(greedy.tmf(iscsi.ABORT_TASK_SET, lun=lun), iscsi.TMF_COMPLETE, "ABORT TASK SET")
            greedy.tasks.clear()
            check(greedy.command(scsi.test_unit_ready(), lun=lun).good, "the initiator itself afterwards")


# The log.

def judge_log(tarn, total, written_as, left_out_as, provoke):
    """Provokes so many lines: a burst is written and 50 a second after it; the others are counted, in lines that say how many."""
    burst, per_second = 500, 50
    before, began = len(tarn.log().splitlines()), time.monotonic()
    provoke()
    written, left_out = 0, 0

    def is_all_told():
        nonlocal written, left_out
        lines = tarn.log().splitlines()
        written = sum(written_as in line and "left out" not in line for line in lines)
        told = [re.search(rf"(\d+) lines about {left_out_as} left out", line) for line in lines]
        left_out = sum(int(match[1]) for match in told if match)
        return written + left_out >= total

    harness.wait_for(is_all_told, 20, "every line is written or counted")
    seconds = time.monotonic() - began
    equal(written + left_out, total, "lines that were written or left out")
    check(left_out > 0 or total <= burst + per_second * seconds, f"nothing was left out in {seconds:.1f} s")
    grown = len(tarn.log().splitlines()) - before
    # A line a second tells what is left out; some are about the session.
    check(grown <= burst + (per_second + 1) * (seconds + 1) + 20, f"{grown} lines in {seconds:.1f} s")
    measured(f"{grown} lines in {seconds:.1f} s, {left_out} left out")


@test(limit_s=120)
def task_management_that_never_ends_does_not_fill_the_log():
    """20,000 ABORT TASK SET of one session write few lines."""
    # Of immediate requests 32 are taken at a time.
    total, batch = 20_000, 25
    with Tarn(config="[server]\ncores = 1\n" + changed([("m0", MEMORY_LUN)])) as tarn:
        with iscsi.Session(tarn.port, IQN, timeout_s=20) as session:
            def provoke():
                for _ in range(total // batch):
                    requests = [iscsi.Pdu(iscsi.TMF_REQUEST | iscsi.IMMEDIATE, 0x80 | iscsi.ABORT_TASK_SET, lun=0, itt=session.itt(),
                                          ref_itt=iscsi.NO_TAG, cmd_sn=session.cmd_sn, exp_stat_sn=session.connection.exp_stat_sn)
                                for _ in range(batch)]
                    session.connection.send_raw(b"".join(request.pack() for request in requests))
                    for request in requests:
                        equal(session.answer(request.itt).response, iscsi.TMF_COMPLETE, "response")

            judge_log(tarn, total, "task management", "task management", provoke)


@test(limit_s=120)
def ejects_that_never_end_do_not_fill_the_log():
    """An initiator ejects and loads a medium 2,000 times: few lines are written, and the medium is in at the end."""
    rounds, eject, load = 2000, bytes([0x1b, 0, 0, 0, 2, 0]), bytes([0x1b, 0, 0, 0, 3, 0])
    unit = MEMORY_LUN.replace("mem:8M", "mem:8M?removable=true")
    with Tarn(config="[server]\ncores = 1\n" + changed([("m0", unit)])) as tarn:
        with iscsi.Session(tarn.port, IQN, timeout_s=20) as session:
            session.clear_unit_attentions()

            def provoke():
                for _ in range(rounds):
                    check(session.command(eject).good and session.command(load).good, "an eject or a load is refused")

            judge_log(tarn, 2 * rounds, "the medium of a unit was", "media that are ejected or loaded", provoke)
            session.clear_unit_attentions()
            check(session.command(scsi.test_unit_ready()).good, "the medium is not in")
