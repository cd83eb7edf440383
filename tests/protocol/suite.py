#!/usr/bin/env python3
"""iSCSI, task management and reservations where libiscsi's tests do not look, with a raw initiator (tests/lib/iscsi.py).

    suite.py [--list] [PATTERN...]

Spec: RFC 7143, SAM-5, SPC-4.
"""
import itertools
import os
import pathlib
import signal
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
import iscsi
import scsi
from harness import check, equal, measured, test, wait_for
from tarn import IQN, Tarn, listens

OTHER = "iqn.2026-11.example.tarn:other"
BLOCK = 512
SHUTDOWN_S = 3
RESERVATIONS_PREEMPTED = (scsi.UNIT_ATTENTION, (0x2A, 0x03))
CHAP_USER, CHAP_SECRET = "tester", "tester-secret-0123"
MUTUAL_NAME, MUTUAL_SECRET = "tarn", "target-secret-4567"

CONFIG = f"""
[[lun]]
id = "disk"
store = "mem:64M"
[[lun]]
id = "second"
store = "file:{{dir}}/second.img?size=16M"
[[user]]
name = "{CHAP_USER}"
secret_file = "{{dir}}/secret"
mutual = {{ name = "{MUTUAL_NAME}", secret_file = "{{dir}}/mutual" }}
[[target]]
name = "{IQN}"
portals = ["127.0.0.1:{{port}}"]
luns = [{{ lun = 0, id = "disk" }}, {{ lun = 1, id = "second" }}]
cold_reset = true
[[target]]
name = "{IQN}-chap"
portals = ["127.0.0.1:{{port}}"]
auth = ["{CHAP_USER}"]
luns = [{{ lun = 0, id = "disk" }}]
[limits]
nop_interval_seconds = 1
nop_timeout_seconds = 2
login_timeout_seconds = 2
shutdown_timeout_seconds = SHUTDOWN
outstanding_r2t_max = 4
"""


def serve(shutdown_s=SHUTDOWN_S):
    tarn = Tarn(config=CONFIG.replace("SHUTDOWN", str(shutdown_s)))
    tarn.secret("secret", CHAP_SECRET)
    tarn.secret("mutual", MUTUAL_SECRET)
    return tarn


def login(tarn, clear=True, **options):
    """A session that has taken its unit attentions."""
    session = iscsi.Session(tarn.port, options.pop("target", IQN), **options)
    if clear:
        session.clear_unit_attentions()
    return session


def good(outcome, what="command"):
    check(outcome.good, f"{what}: {outcome}")
    return outcome


def no_answer(session, task, seconds=0.5):
    """The task gets no response: aborted tasks have none."""
    try:
        while True:
            session.pump(task.connection, seconds)
            check(task.outcome is None, f"an aborted task was answered: {task.outcome}")
    except iscsi.Timeout:
        pass


def waiting_write(session, lba, blocks=256, data=None, **options):
    """A WRITE that has its R2T and gets no data."""
    data = data or b"\xdd" * (blocks * BLOCK)
    task = session.start(scsi.write16(lba, blocks), write=data, unsolicited=0, answer_r2t=False, **options)
    while not task.r2ts:
        session.pump(task.connection)
    return task


# Task management.

@test
def lun_reset_is_seen_by_other_nexuses():
    """LOGICAL UNIT RESET: unit attention 29/03 for every other initiator, once; the unit works on."""
    with serve() as tarn, login(tarn) as a, login(tarn, initiator=OTHER) as b:
        equal(a.tmf(iscsi.LU_RESET), iscsi.TMF_COMPLETE, "response")
        outcome = b.command(scsi.test_unit_ready())
        equal((outcome.sense.key, outcome.sense.code), (scsi.UNIT_ATTENTION, scsi.BUS_DEVICE_RESET_FUNCTION_OCCURRED), "sense for B")
        good(b.command(scsi.test_unit_ready()), "TEST UNIT READY of B afterwards")
        a.clear_unit_attentions()
        good(a.command(scsi.read16(0, 1), read=BLOCK), "READ of A")
        equal(a.tmf(iscsi.LU_RESET, lun=1), iscsi.TMF_COMPLETE, "response for LUN 1")
        tarn.await_log("task management", "function=LogicalUnitReset lun=1")


@test
def lun_reset_aborts_the_tasks_of_all_nexuses():
    """Tasks of both initiators that wait for data get no answer, and what they would have written is not there."""
    with serve() as tarn, login(tarn) as a, login(tarn, initiator=OTHER) as b:
        good(a.command(scsi.write16(0, 512), write=b"\x11" * (512 * BLOCK)))
        own, others = waiting_write(a, 0), waiting_write(b, 256)
        equal(a.tmf(iscsi.LU_RESET), iscsi.TMF_COMPLETE, "response")
        for session, task in ((a, own), (b, others)):
            session.send_data(task, task.r2ts[0])       # late data is drained or rejected
            no_answer(session, task)
            session.clear_unit_attentions()
            equal(session.nop(b"on"), b"on", "answer to a ping")
        equal(good(a.command(scsi.read16(0, 512), read=512 * BLOCK)).data, b"\x11" * (512 * BLOCK), "data")


@test
def lun_reset_spares_the_other_unit():
    """A task of LUN 1 survives a reset of LUN 0, and nobody gets a unit attention there."""
    with serve() as tarn, login(tarn) as a, login(tarn, initiator=OTHER) as b:
        b.clear_unit_attentions(1)
        task = waiting_write(b, 0, lun=1)
        equal(a.tmf(iscsi.LU_RESET), iscsi.TMF_COMPLETE, "response")
        task.answer_r2t = True
        b.send_data(task, task.r2ts[0])
        good(b.finish(task), "WRITE to LUN 1")
        good(b.command(scsi.test_unit_ready(), lun=1), "TEST UNIT READY of LUN 1")


@test
def lun_reset_releases_an_spc2_reservation():
    """RESERVE of A keeps B out until B resets the unit."""
    with serve() as tarn, login(tarn) as a, login(tarn, initiator=OTHER) as b:
        good(a.command(scsi.reserve6()), "RESERVE")
        equal(b.command(scsi.test_unit_ready()).status, scsi.RESERVATION_CONFLICT, "status for B")
        equal(b.tmf(iscsi.LU_RESET), iscsi.TMF_COMPLETE, "response")
        b.clear_unit_attentions()
        good(b.command(scsi.read16(0, 1), read=BLOCK), "READ of B")


@test
def abort_task_ends_one_task():
    """The aborted WRITE has no answer, its neighbour goes on; aborting it again finds nothing."""
    with serve() as tarn, login(tarn) as session:
        first, second = waiting_write(session, 0), waiting_write(session, 1000)
        equal(session.tmf(iscsi.ABORT_TASK, task=first), iscsi.TMF_COMPLETE, "response")
        equal(session.tmf(iscsi.ABORT_TASK, task=first), iscsi.TMF_NO_TASK, "response to the second ABORT TASK")
        second.answer_r2t = True
        session.send_data(second, second.r2ts[0])
        good(session.finish(second), "the other WRITE")
        check(first.outcome is None, "the aborted task was answered")


@test
def abort_task_set_ends_the_own_tasks_only():
    """A's tasks end, B's goes on."""
    with serve() as tarn, login(tarn) as a, login(tarn, initiator=OTHER) as b:
        tasks = [waiting_write(a, n * 1000) for n in range(4)]
        others = waiting_write(b, 8000)
        equal(a.tmf(iscsi.ABORT_TASK_SET), iscsi.TMF_COMPLETE, "response")
        for task in tasks:
            equal(a.tmf(iscsi.ABORT_TASK, task=task), iscsi.TMF_NO_TASK, "response for a task of the set")
        others.answer_r2t = True
        b.send_data(others, others.r2ts[0])
        good(b.finish(others), "WRITE of B")
        good(b.command(scsi.test_unit_ready()), "TEST UNIT READY of B")


@test
def clear_task_set_answers():
    """With one task set for each nexus (TST 001b) it ends the own tasks and nobody else's."""
    with serve() as tarn, login(tarn) as a, login(tarn, initiator=OTHER) as b:
        task, others = waiting_write(a, 0), waiting_write(b, 1000)
        equal(a.tmf(iscsi.CLEAR_TASK_SET), iscsi.TMF_COMPLETE, "response")
        equal(a.tmf(iscsi.ABORT_TASK, task=task), iscsi.TMF_NO_TASK, "response for the task")
        others.answer_r2t = True
        b.send_data(others, others.r2ts[0])
        good(b.finish(others), "WRITE of B")


@test
def task_management_names_what_it_cannot_do():
    """A LUN that is not there: 2. TASK REASSIGN at ErrorRecoveryLevel 0: 4. An unknown function: 5 or a Reject."""
    with serve() as tarn, login(tarn) as session:
        equal(session.tmf(iscsi.LU_RESET, lun=77), iscsi.TMF_NO_LUN, "response for LUN 77")
        equal(session.tmf(iscsi.ABORT_TASK_SET, lun=77), iscsi.TMF_NO_LUN, "response for LUN 77")
        task = waiting_write(session, 0)
        equal(session.tmf(iscsi.TASK_REASSIGN, task=task), 4, "response to TASK REASSIGN")
        itt = session.request(iscsi.Pdu(iscsi.TMF_REQUEST | iscsi.IMMEDIATE, 0x80 | 0x55, itt=session.itt(), ref_itt=iscsi.NO_TAG))
        while itt not in session.answers and not session.rejects:
            session.pump()
        if itt in session.answers:
            equal(session.answers[itt].response, 5, "response to an unknown function")
        equal(session.nop(b"on"), b"on", "answer to a ping")


@test
def target_warm_reset_is_seen_by_all():
    """A reset-class unit attention (29/xx) for the other initiator; tasks end; sessions stay."""
    with serve() as tarn, login(tarn) as a, login(tarn, initiator=OTHER) as b:
        task = waiting_write(b, 0)
        equal(a.tmf(iscsi.TARGET_WARM_RESET), iscsi.TMF_COMPLETE, "response")
        no_answer(b, task)
        outcome = b.command(scsi.test_unit_ready())
        equal((outcome.sense.key, outcome.sense.code[0]), (scsi.UNIT_ATTENTION, 0x29), "sense for B")
        measured(f"sense for the other initiator: {outcome.sense}")
        a.clear_unit_attentions()
        b.clear_unit_attentions()
        good(b.command(scsi.read16(0, 1), read=BLOCK), "READ of B")


@test
def target_cold_reset_ends_all_sessions():
    """Every connection is closed; logins work at once."""
    with serve() as tarn, login(tarn) as a, login(tarn, initiator=OTHER) as b:
        a.request(iscsi.Pdu(iscsi.TMF_REQUEST | iscsi.IMMEDIATE, 0x80 | iscsi.TARGET_COLD_RESET, itt=a.itt(), ref_itt=iscsi.NO_TAG))
        check(a.connection.closed_within(2), "A's connection is still open")
        check(b.connection.closed_within(1), "B's connection is still open")
        with login(tarn) as session:
            good(session.command(scsi.read16(0, 1), read=BLOCK))


# Sessions and connections.

@test
def reinstatement_ends_the_old_session():
    """The same name and ISID again: the old connection closes, its WRITE never happens, its reservation is gone, and the new
    session is told of the nexus loss."""
    with serve() as tarn, login(tarn) as old:
        good(old.command(scsi.write16(0, 256), write=b"\x21" * (256 * BLOCK)))
        good(old.command(scsi.reserve6()), "RESERVE")
        waiting_write(old, 0)
        with login(tarn, isid=old.isid, clear=False) as new:
            check(old.connection.closed_within(5), "the old connection is still open")
            attentions = new.clear_unit_attentions()
            check(attentions and all(code[0] == 0x29 for code in attentions), f"unit attentions {attentions}")
            measured("unit attention " + "/".join(f"{n:02x}" for n in attentions[0]))
            equal(good(new.command(scsi.read16(0, 256), read=256 * BLOCK)).data, b"\x21" * (256 * BLOCK), "data")
            with login(tarn, initiator=OTHER) as other:
                good(other.command(scsi.read16(0, 1), read=BLOCK), "READ of another initiator, the reservation being gone")


@test
def reinstatements_are_counted_port_by_port():
    """Logged in once: 0; the same name and ISID again: 1, and again: 2. A logout replaces nothing, and other ports count for
    themselves."""
    with serve() as tarn, login(tarn) as other:
        def counts(session):
            found = [one["transport"]["iscsi"] for one in tarn.api().get("sessions")]
            sessions = {one["tsih"]: one["reinstatements"] for one in found}
            return sessions[session.tsih], sessions[other.tsih]

        isid = b"\x80\x01\x02\x03\x04\x05"
        for expected in range(3):
            session = login(tarn, isid=isid)
            equal(counts(session), (expected, 0), "reinstatements of this port and of another")
        session.logout()
        wait_for(lambda: len(tarn.api().get("sessions")) == 1, 5, "the session has ended")
        with login(tarn, isid=isid) as back:
            equal(counts(back), (2, 0), "reinstatements after a logout")


@test
def another_isid_or_name_is_another_session():
    """Neither ends the first."""
    with serve() as tarn, login(tarn) as first, login(tarn) as second, login(tarn, isid=first.isid, initiator=OTHER) as third:
        for session in (first, second, third):
            equal(session.nop(b"on"), b"on", "answer to a ping")


@test
def commands_of_two_connections_are_delivered_in_order():
    """CmdSN n+1 on the second connection waits for CmdSN n on the first, however late that comes."""
    with serve() as tarn, login(tarn, keys={"MaxConnections": "2"}) as session:
        equal(session.params["MaxConnections"], "2", "MaxConnections")
        second = session.add_connection(1)
        n = session.cmd_sn
        # The smaller number comes a moment later and over the other connection; both write the same blocks.
        late = session.start(scsi.write16(0, 8), write=b"\x02" * 4096, connection=second, cmd_sn=n + 1, attribute=iscsi.ORDERED)
        no_answer(session, late, 0.3)
        early = session.start(scsi.write16(0, 8), write=b"\x01" * 4096, cmd_sn=n, attribute=iscsi.ORDERED)
        good(session.finish(early), "WRITE n")
        good(session.finish(late), "WRITE n+1")
        session.cmd_sn = n + 2
        equal(good(session.command(scsi.read16(0, 8), read=4096)).data, b"\x02" * 4096, "data")
        for number in range(200):       # and many more, on both in turn
            good(session.command(scsi.write16(number, 1), write=bytes([number]) * BLOCK, connection=session.connections[number % 2]))
        equal(good(session.command(scsi.read16(0, 200), read=200 * BLOCK)).data,
              b"".join(bytes([number]) * BLOCK for number in range(200)), "data")


@test
def a_task_is_answered_on_its_own_connection():
    """Data-In, R2T and response come where the command went (connection allegiance)."""
    with serve() as tarn, login(tarn, keys={"MaxConnections": "4"}) as session:
        connections = [session.connection] + [session.add_connection(cid) for cid in (1, 2, 3)]
        data = os.urandom(400 * BLOCK)
        for connection in connections:
            good(session.command(scsi.write16(0, 400), write=data, unsolicited=0, connection=connection))
            equal(good(session.command(scsi.read16(0, 400), read=len(data), connection=connection)).data, data, "data")


@test
def more_connections_than_agreed_are_refused():
    """The second connection of a session with MaxConnections=1: 0206; an unknown TSIH: 020A."""
    with serve() as tarn, login(tarn) as session:
        status = None
        try:
            session.add_connection(1)
        except iscsi.LoginError as error:
            status = error.status
        equal(status, 0x0206, "login status")
        try:
            iscsi.Session(tarn.port, IQN, tsih=0x7FFF)
            raise harness.Failure("a login with an unknown TSIH worked")
        except iscsi.LoginError as error:
            equal(error.status, 0x020A, "login status")
        equal(session.nop(b"on"), b"on", "answer to a ping")


@test
def connection_reinstatement_takes_the_place_of_the_old():
    """The same CID again: the old connection closes, the session goes on."""
    with serve() as tarn, login(tarn, keys={"MaxConnections": "2"}) as session:
        session.add_connection(1)
        old = session.connections[1]
        session.connections.remove(old)
        new = session.add_connection(1)
        check(old.closed_within(5), "the old connection is still open")
        good(session.command(scsi.read16(0, 1), read=BLOCK, connection=new))
        good(session.command(scsi.read16(0, 1), read=BLOCK))


@test
def what_a_connection_has_ends_with_it_and_what_a_session_has_does_not():
    """Digests are shown for each connection; a violation on one that has gone stays counted for the session."""
    with serve() as tarn, login(tarn, keys={"MaxConnections": "2"}) as session:
        def shown():
            (one,) = tarn.api().get("sessions")
            iscsi_session = one["transport"]["iscsi"]
            connections = [(it["cid"], it["header_digest"], it["data_digest"]) for it in iscsi_session["connections"]]
            return connections, iscsi_session["violations"]

        session.offered |= {"HeaderDigest": "CRC32C", "DataDigest": "CRC32C"}
        second = session.add_connection(1)
        equal(shown(), ([(0, False, False), (1, True, True)], 0), "two connections")
        second.send(iscsi.Pdu(iscsi.SNACK, 0x8F, itt=iscsi.NO_TAG, ttt=iscsi.NO_TAG, exp_stat_sn=second.exp_stat_sn))
        equal(second.recv().opcode, iscsi.REJECT, "the answer to a SNACK of no type")
        equal(session.logout(reason=1, cid=1), 0, "response to 'close connection 1'")
        check(second.closed_within(5), "the second connection is still open")
        session.connections.remove(second)
        equal(shown(), ([(0, False, False)], 1), "the first is left")
        good(session.command(scsi.read16(0, 1), read=BLOCK))


@test
def logout_has_three_reasons():
    """1 closes one connection, or says that the CID is not there; 2 is not supported at this level; 0 closes them all."""
    with serve() as tarn, login(tarn, keys={"MaxConnections": "3"}) as session:
        one, two = session.add_connection(1), session.add_connection(2)
        equal(session.logout(reason=1, cid=9), 1, "response for an unknown CID")
        equal(session.logout(reason=2, cid=1), 2, "response to 'remove for recovery'")
        equal(session.logout(reason=1, cid=1), 0, "response to 'close connection 1' sent on connection 0")
        check(one.closed_within(5), "connection 1 is still open")
        equal(session.logout(reason=1, cid=2, connection=two), 0, "response to 'close connection 2' sent on itself")
        check(two.closed_within(5), "connection 2 is still open")
        session.connections = session.connections[:1]
        good(session.command(scsi.read16(0, 1), read=BLOCK), "READ on the connection that is left")
        equal(session.logout(), 0, "response to 'close the session'")
        check(session.connection.closed_within(5), "the connection is still open")


@test
def a_dead_peer_is_found_by_pings():
    """nop_interval 1 s and nop_timeout 2 s: who does not answer is dropped, who does is not."""
    with serve() as tarn, login(tarn) as silent, login(tarn, initiator=OTHER) as lively:
        silent.answer_pings = False
        start = time.monotonic()
        dropped_after = None
        while time.monotonic() - start < 8:
            if dropped_after is None and silent.connection.readable():
                try:
                    silent.pump()
                except iscsi.Closed:
                    dropped_after = time.monotonic() - start
            try:
                lively.pump(timeout_s=0.1)
            except iscsi.Timeout:
                pass
        check(silent.pings >= 1, "no ping before it was dropped")
        check(dropped_after and 1 <= dropped_after <= 7, f"dropped after {dropped_after} s")
        measured(f"dropped after {dropped_after:.1f} s")
        check(lively.pings >= 3, f"{lively.pings} pings in 8 s")
        equal(lively.nop(b"on"), b"on", "answer to a ping")


@test
def sigterm_asks_initiators_to_log_out():
    """Async Message "logout requested" on every session; when they have, the process ends with 0 at once."""
    patience_s = 2 * SHUTDOWN_S
    with serve(patience_s) as tarn:
        with login(tarn) as a, login(tarn, initiator=OTHER) as b:
            tarn.process.send_signal(signal.SIGTERM)
            for session in (a, b):
                while not session.asyncs:
                    session.pump(timeout_s=5)
                equal(session.asyncs[0].event, 1, "AsyncEvent")
                check(1 <= session.asyncs[0].param3 <= 3600, f"Parameter3 {session.asyncs[0].param3}")
            try:
                iscsi.Session(tarn.port, IQN, timeout_s=1).close()
                raise harness.Failure("a new login worked")
            except (iscsi.LoginError, iscsi.Closed, iscsi.Timeout, OSError) as error:
                measured(f"a new login: {type(error).__name__} {error}")
            start = time.monotonic()
            for session in (a, b):
                equal(session.logout(), 0, "response to the logout")
        equal(tarn.process.wait(patience_s + 5), 0, "exit code")
        seconds = time.monotonic() - start
        measured(f"ended {seconds:.2f} s after the last logout")
        check(seconds < patience_s / 2, "it waits for nobody")
        tarn.start()


@test
def sigterm_does_not_wait_for_the_deaf():
    """An initiator that does not log out is dropped after shutdown_timeout_seconds; exit code 0."""
    with serve() as tarn:
        with login(tarn) as session:
            start = time.monotonic()
            tarn.process.send_signal(signal.SIGTERM)
            equal(tarn.process.wait(SHUTDOWN_S + 5), 0, "exit code")
            seconds = time.monotonic() - start
            measured(f"ended {seconds:.1f} s after SIGTERM")
            check(session.connection.closed_within(1), "the connection is still open")
        tarn.start()


@test
def discovery_sessions_do_discovery_only():
    """SendTargets=All and =name answer; SCSI commands are refused and the target lives on."""
    with serve() as tarn:
        with iscsi.Session(tarn.port) as session:
            names = [v for k, v in session.text([("SendTargets", "All")]) if k == "TargetName"]
            equal(sorted(names), sorted([IQN, IQN + "-chap"]), "targets")
            pairs = session.text([("SendTargets", IQN)])
            equal(pairs[0], ("TargetName", IQN), "the target asked for")
            check(all(k != "TargetName" or v == IQN for k, v in pairs), f"others too: {pairs}")
            address = dict(pairs)["TargetAddress"]
            equal(address, f"127.0.0.1:{tarn.port},1", "TargetAddress")
            equal([k for k, _ in session.text([("SendTargets", "iqn.2026-11.example.tarn:nobody")])], [], "unknown target")
        with iscsi.Session(tarn.port) as session:
            session.start(scsi.test_unit_ready())
            try:
                while not session.rejects:
                    session.pump(timeout_s=5)
            except iscsi.Closed:
                pass
        check(tarn.alive() and listens(tarn.port), "it does not serve any more")


@test
def sendtargets_in_a_normal_session_names_the_own_target():
    """An empty value answers with the target of the session."""
    with serve() as tarn, login(tarn) as session:
        equal([v for k, v in session.text([("SendTargets", "")]) if k == "TargetName"], [IQN], "targets")


@test
def command_numbers_wrap():
    """A session that starts at CmdSN FFFFFFF0h runs over the wrap, and its window stays open."""
    with serve() as tarn, login(tarn, cmd_sn=0xFFFFFFF0) as session:
        for n in range(64):
            good(session.command(scsi.write16(n, 1), write=bytes([n]) * BLOCK), f"WRITE at CmdSN {session.cmd_sn:#x}")
        check(session.cmd_sn < 0x100, f"CmdSN {session.cmd_sn:#x}")
        equal(good(session.command(scsi.read16(63, 1), read=BLOCK)).data, bytes([63]) * BLOCK, "data")


@test
def a_command_outside_the_window_is_ignored():
    """CmdSN beyond MaxCmdSN and CmdSN received before get no answer; the session goes on."""
    with serve() as tarn, login(tarn) as session:
        beyond = session.start(scsi.test_unit_ready(), cmd_sn=(session.max_cmd_sn + 1) % 2**32)
        no_answer(session, beyond)
        before = session.start(scsi.test_unit_ready(), cmd_sn=(session.cmd_sn - 1) % 2**32)
        no_answer(session, before)
        good(session.command(scsi.test_unit_ready()))


@test
def an_immediate_command_passes_the_gap():
    """While CmdSN n is missing, n+1 waits and an immediate command is executed."""
    with serve() as tarn, login(tarn) as session:
        n = session.cmd_sn
        waiting = session.start(scsi.read16(0, 1), read=BLOCK, cmd_sn=n + 1)
        good(session.finish(session.start(scsi.test_unit_ready(), immediate=True)), "immediate command")
        check(waiting.outcome is None, "CmdSN n+1 did not wait for n")
        good(session.finish(session.start(scsi.test_unit_ready(), cmd_sn=n)), "CmdSN n")
        good(session.finish(waiting), "CmdSN n+1")
        session.cmd_sn = n + 2
        good(session.command(scsi.test_unit_ready()))


# Negotiation and data.

@test
def several_r2ts_are_outstanding():
    """MaxOutstandingR2T=4: a WRITE of 16 bursts has four requests out, never five, and the data is right."""
    with serve() as tarn, login(tarn, keys={"MaxOutstandingR2T": "8", "MaxBurstLength": "16384", "InitialR2T": "Yes",
                                            "ImmediateData": "No"}) as session:
        equal(session.params["MaxOutstandingR2T"], "4", "MaxOutstandingR2T")
        data = os.urandom(512 * BLOCK)
        task = session.start(scsi.write16(0, 512), write=data, answer_r2t=False)

        def asked():
            return sum(r2t.desired_length for r2t in task.r2ts)

        def listen(seconds, until=lambda: False):
            end = time.monotonic() + seconds
            while not until() and session.connection.readable(max(0, end - time.monotonic())):
                session.pump()      # pings, too
        answered = 0
        while answered < len(task.r2ts) or asked() < len(data):
            listen(20, lambda: len(task.r2ts) - answered == 4 or asked() == len(data))
            check(len(task.r2ts) - answered == 4 or asked() == len(data), f"only {len(task.r2ts) - answered} R2Ts outstanding")
            # No data goes out until it is seen that the target asks for no more.
            listen(0.1)
            check(len(task.r2ts) - answered <= 4, f"{len(task.r2ts) - answered} R2Ts outstanding")
            check(task.outcome is None, f"an early answer: {task.outcome}")
            session.send_data(task, task.r2ts[answered])
            answered += 1
        good(session.finish(task), "WRITE")
        equal(asked(), len(data), "bytes asked for")
        equal(good(session.command(scsi.read16(0, 512), read=len(data))).data, data, "data")


MATRIX = {
    "InitialR2T": ("Yes", "No"), "ImmediateData": ("Yes", "No"), "HeaderDigest": ("None", "CRC32C"),
    "DataDigest": ("None", "CRC32C"),
}
LENGTHS = ({"MaxRecvDataSegmentLength": "512", "MaxBurstLength": "1024", "FirstBurstLength": "512"},
           {"MaxRecvDataSegmentLength": "4096", "MaxBurstLength": "65536", "FirstBurstLength": "16384"},
           {"MaxRecvDataSegmentLength": "65536", "MaxBurstLength": "65532", "FirstBurstLength": "65532"})


@test(limit_s=120)
def every_combination_of_keys_moves_data():
    """InitialR2T, ImmediateData, both digests and three sets of lengths: 48 sessions, each with reads and writes of many sizes."""
    sessions = 0
    with serve() as tarn:
        for values in itertools.product(*MATRIX.values()):
            for lengths in LENGTHS:
                keys = {**dict(zip(MATRIX, values)), **lengths}
                with login(tarn, keys=keys) as session:
                    for key in ("InitialR2T", "ImmediateData", "MaxBurstLength", "FirstBurstLength"):
                        if session.params[key] != keys[key] and dict(session.answered).get(key) != "Irrelevant":
                            raise harness.Failure(f"{key}={session.params[key]} for an offer of {keys[key]}")
                    equal(session.connection.header_digest, keys["HeaderDigest"] == "CRC32C", "HeaderDigest")
                    equal(session.connection.data_digest, keys["DataDigest"] == "CRC32C", "DataDigest")
                    for blocks in (1, 3, 8, 33, 130):
                        data = os.urandom(blocks * BLOCK)
                        good(session.command(scsi.write16(blocks, blocks), write=data), f"WRITE of {blocks} with {keys}")
                        equal(good(session.command(scsi.read16(blocks, blocks), read=len(data))).data, data, f"data with {keys}")
                    equal(session.logout(), 0, "logout")
                sessions += 1
    measured(f"{sessions} sessions")


@test
def what_each_key_becomes():
    """Minimum, maximum, OR and AND as RFC 7143 section 13 says; unknown keys are NotUnderstood, obsolete ones Rejected."""
    with serve() as tarn, login(tarn, keys={
            "MaxConnections": "65535", "MaxOutstandingR2T": "1", "MaxBurstLength": "512", "FirstBurstLength": "512",
            "DefaultTime2Wait": "7", "DefaultTime2Retain": "0", "ErrorRecoveryLevel": "2", "HeaderDigest": "CRC32C,None",
            "X-com.example.key": "1", "Unheard": "of", "IFMarker": "No", "OFMarker": "No",
            "DataPDUInOrder": "Yes", "DataSequenceInOrder": "Yes"}) as session:
        answered = dict(session.answered)
        equal(answered["X-com.example.key"], "NotUnderstood", "answer to an unknown X- key")
        equal(answered["Unheard"], "NotUnderstood", "answer to an unknown key")
        equal(answered["HeaderDigest"], "CRC32C", "HeaderDigest, the first of ours that it takes")
        check(1 <= int(answered["MaxConnections"]) <= 65535, "MaxConnections")
        equal(answered["MaxOutstandingR2T"], "1", "MaxOutstandingR2T")
        equal(answered["MaxBurstLength"], "512", "MaxBurstLength")
        check(int(answered["DefaultTime2Wait"]) >= 7, "DefaultTime2Wait is the maximum")
        equal(answered["DefaultTime2Retain"], "0", "DefaultTime2Retain is the minimum")
        equal(answered["ErrorRecoveryLevel"], "0", "ErrorRecoveryLevel is the minimum")
        check(answered["IFMarker"] in ("No", "Reject"), "IFMarker")
        equal(answered["TargetPortalGroupTag"], "1", "TargetPortalGroupTag")
        check("MaxRecvDataSegmentLength" in answered, "the target declares its MaxRecvDataSegmentLength")


@test
def residuals_count_what_was_not_moved():
    """READ and WRITE with an expected length above and below what the CDB asks for."""
    with serve() as tarn, login(tarn) as session:
        good(session.command(scsi.write16(0, 8), write=b"\x33" * 4096))
        outcome = session.command(scsi.read16(0, 2), read=4096)
        check(outcome.underflow and outcome.residual == 4096 - 1024, f"READ of 2 blocks, 4096 expected: {outcome}")
        equal(outcome.data, b"\x33" * 1024, "data")
        outcome = session.command(scsi.read16(0, 8), read=1024)
        check(outcome.overflow and outcome.residual == 4096 - 1024, f"READ of 8 blocks, 1024 expected: {outcome}")
        outcome = session.command(scsi.write16(100, 2), write=b"\x44" * 4096)
        check(outcome.underflow and outcome.residual == 4096 - 1024, f"WRITE of 2 blocks, 4096 expected: {outcome}")
        equal(good(session.command(scsi.read16(100, 8), read=4096)).data, b"\x44" * 1024 + bytes(3072), "data")
        outcome = session.command(scsi.inquiry(length=255), read=255)
        check(outcome.good and (outcome.residual == 255 - len(outcome.data)), f"INQUIRY: {outcome}")


@test
def pings_come_back_whole():
    """NOP-Out with 0, 1, 4096 and 8192 bytes of data."""
    with serve() as tarn, login(tarn) as session:
        for size in (0, 1, 4095, 4096, 8192):
            data = os.urandom(size)
            equal(session.nop(data), data, f"ping of {size} bytes")


@test
def the_status_of_blocks_starts_where_it_was_asked():
    """GET LBA STATUS: the first descriptor begins at the requested block, mapped and unmapped stretches in turn."""
    with serve() as tarn, login(tarn) as session:
        good(session.command(scsi.write16(0, 1024), write=b"\x01" * (1024 * BLOCK)))
        parameters = scsi.unmap_parameters((256, 512))
        good(session.command(scsi.unmap(len(parameters)), write=parameters), "UNMAP")
        for lba, blocks, state in ((0, 256, 0), (17, 239, 0), (256, 512, 1), (300, 468, 1), (767, 1, 1), (768, 256, 0), (1023, 1, 0)):
            data = good(session.command(scsi.get_lba_status(lba), read=4096)).data
            got = struct.unpack(">QIB", data[8:21])
            equal((got[0], got[1], got[2] & 0x0F), (lba, blocks, state), f"status of block {lba}")


# Authentication.

def chap_login(tarn, **chap):
    return login(tarn, target=IQN + "-chap", chap={"name": CHAP_USER, "secret": CHAP_SECRET, **chap})


@test
def chap_works_with_all_four_algorithms():
    """MD5, SHA1, SHA-256 and SHA3-256, each alone, one way and mutual; of a list the strongest is taken, in whatever order."""
    with serve() as tarn:
        for algorithm in iscsi.CHAP_HASHES:
            for mutual in ({}, {"mutual_name": MUTUAL_NAME, "mutual_secret": MUTUAL_SECRET}):
                with chap_login(tarn, algorithms=[algorithm], **mutual) as session:
                    good(session.command(scsi.read16(0, 1), read=BLOCK))
        for order in ([8, 7, 6, 5], [5, 8], [6, 5], [99, 7, 5]):
            with chap_login(tarn, algorithms=order) as session:
                equal(session.chap_algorithm, max(a for a in order if a in iscsi.CHAP_HASHES), f"choice from {order}")
                measured(f"{order} gives {session.chap_algorithm}")


def refused(tarn, status, what, **options):
    try:
        session = iscsi.Session(tarn.port, IQN + "-chap", **options)
    except iscsi.LoginError as error:
        equal(error.status, status, f"login status for {what}")
        return
    except iscsi.Closed:
        return
    session.close()
    raise harness.Failure(f"logged in with {what}")


@test
def chap_refuses_what_is_wrong():
    """No CHAP, a wrong name, a wrong secret, only unknown algorithms: 0201 each."""
    with serve() as tarn:
        refused(tarn, 0x0201, "no authentication")
        refused(tarn, 0x0201, "a wrong secret", chap={"name": CHAP_USER, "secret": CHAP_SECRET + "x"})
        refused(tarn, 0x0201, "a wrong name", chap={"name": "nobody", "secret": CHAP_SECRET})
        try:
            refused(tarn, 0x0201, "unknown algorithms", chap={"name": CHAP_USER, "secret": CHAP_SECRET, "algorithms": [99]})
        except KeyError:
            raise harness.Failure("the login went on without an algorithm") from None
        with chap_login(tarn) as session:
            good(session.command(scsi.read16(0, 1), read=BLOCK))


@test
def chap_refuses_a_reflected_challenge():
    """An initiator that sends the target's own challenge back to have it answered gets nothing."""
    with serve() as tarn:
        session = iscsi.Session(tarn.port, IQN + "-chap", login=False)
        with session:
            connection = session.connection
            session._exchange(connection, 0, 0, False, session.names() + [("AuthMethod", "CHAP")])
            _, got = session._exchange(connection, 0, 0, False, [("CHAP_A", "5")])
            got = dict(got)
            answer = iscsi.chap_response(5, int(got["CHAP_I"], 0), CHAP_SECRET, iscsi.binary(got["CHAP_C"]))
            try:
                reply, _ = session._exchange(connection, 0, 1, True, [
                    ("CHAP_N", CHAP_USER), ("CHAP_R", "0x" + answer.hex()), ("CHAP_I", got["CHAP_I"]), ("CHAP_C", got["CHAP_C"])])
                raise harness.Failure(f"the target answered its own challenge: {reply}")
            except (iscsi.LoginError, iscsi.Closed):
                pass


# How logins end.

def login_failures(tarn):
    return {one["cause"]: one["count"] for one in tarn.api().get("stats")["logins"]["failed"]}


def told_failures(tarn):
    return [event for event in tarn.api().get("events?most=1000") if event["kind"] == "login-failed"]


def fails(attempt):
    try:
        attempt()
    except (iscsi.LoginError, iscsi.Closed):
        return
    raise harness.Failure("the login worked")


def silence(tarn):
    connection = iscsi.Connection(tarn.port)
    check(connection.closed_within(6), "a silent connection is still open")
    raise iscsi.Closed


def noise(tarn):
    connection = iscsi.Connection(tarn.port)
    connection.send(iscsi.Pdu(iscsi.NOP_OUT | iscsi.IMMEDIATE, 0x80, itt=1, ttt=iscsi.NO_TAG))
    connection.recv()


def half_a_login(tarn):
    session = iscsi.Session(tarn.port, IQN + "-chap", login=False)
    session._exchange(session.connection, 0, 0, False, session.names() + [("AuthMethod", "CHAP")])
    session.close()
    raise iscsi.Closed


@test
def every_failed_login_is_counted_and_told_with_its_cause():
    """Wherever a login fails, one counter grows by one, one event and one line of the log say why; it is no success."""
    with serve() as tarn, login(tarn) as session:
        first = tarn.api().get("stats")["logins"]["succeeded"]
        ends = {
            "too-many-connections": lambda: session.add_connection(1),
            "session-does-not-exist": lambda: iscsi.Session(tarn.port, IQN, tsih=0x7FFF),
            "not-found": lambda: iscsi.Session(tarn.port, IQN + "-none"),
            "authentication-failure": lambda: iscsi.Session(tarn.port, IQN + "-chap"),
            "no-login": lambda: noise(tarn),
            "abandoned": lambda: half_a_login(tarn),
            "timeout": lambda: silence(tarn),
        }
        for cause, attempt in ends.items():
            fails(attempt)
            wait_for(lambda: cause in login_failures(tarn), 5, f"a login is counted as {cause}")
        equal(login_failures(tarn), dict.fromkeys(ends, 1), "failed logins")
        events = told_failures(tarn)
        equal([event["message"].rpartition("(")[2] for event in events], [f"{cause})" for cause in ends], "causes of events")
        equal(events[2]["target"], IQN + "-none", "the target of an event")
        wait_for(lambda: tarn.log().count("login failed") >= len(ends), 10, "lines of the log")
        equal(tarn.log().count("login failed"), len(ends), "lines of the log")
        equal(tarn.api().get("stats")["logins"]["succeeded"], first, "logins that succeeded")
        with login(tarn):
            equal(tarn.api().get("stats")["logins"]["succeeded"], first + 1, "logins that succeeded")


@test
def a_flood_of_failed_logins_is_counted_and_not_told():
    """Of very many that fail a few are events and lines of the log; the counter has them all."""
    with serve() as tarn:
        for _ in range(300):
            fails(lambda: iscsi.Session(tarn.port, IQN + "-none"))
        equal(login_failures(tarn), {"not-found": 300}, "failed logins")
        told = len(told_failures(tarn))
        check(16 <= told < 150, f"{told} events")
        wait_for(lambda: tarn.log().count("login failed") >= told, 10, "lines of the log")
        equal(tarn.log().count("login failed"), told, "lines of the log")
        measured(f"{told} events of 300 failed logins")


# Reservations and saved state.

def pr_out(action, key=0, new_key=0, scope_type=0, aptpl=False):
    cdb = struct.pack(">BBB2xIB", 0x5F, action, scope_type, 24, 0)
    return cdb, struct.pack(">QQ4xBB2x", key, new_key, 1 if aptpl else 0, 0)


def registered_keys(session):
    data = good(session.command(struct.pack(">BB5xHB", 0x5E, 0, 4096, 0), read=4096), "READ KEYS").data
    length = int.from_bytes(data[4:8], "big")
    return [int.from_bytes(data[8 + n:16 + n], "big") for n in range(0, length, 8)]


@test
def registrations_with_aptpl_outlive_a_crash():
    """Registered and reserved with APTPL, answered GOOD, then killed: both are still there."""
    with serve() as tarn:
        with login(tarn) as session:
            cdb, parameters = pr_out(0, new_key=0xABC, aptpl=True)
            good(session.command(cdb, write=parameters), "REGISTER")
            cdb, parameters = pr_out(1, key=0xABC, scope_type=1)
            good(session.command(cdb, write=parameters), "RESERVE")
            isid = session.isid
        tarn.kill()
        tarn.start()
        with login(tarn, initiator=OTHER) as other:
            equal(registered_keys(other), [0xABC], "keys")
            equal(other.command(scsi.write16(0, 1), write=bytes(BLOCK)).status, scsi.RESERVATION_CONFLICT, "WRITE of another")
        with login(tarn, isid=isid) as session:
            good(session.command(scsi.write16(0, 1), write=bytes(BLOCK)), "WRITE of the holder")
            cdb, parameters = pr_out(3, key=0xABC)
            good(session.command(cdb, write=parameters), "CLEAR")
        tarn.kill()
        tarn.start()
        with login(tarn) as session:
            equal(registered_keys(session), [], "keys after CLEAR and another crash")


@test
def an_administrator_sees_and_ends_reservations_of_the_dead():
    """The holder dies with its session. Who meets the conflict is an event that names the holder, the doctor says that nobody
    can release it, and CLEAR by an administrator reaches every initiator and what is saved."""
    with serve() as tarn:
        with login(tarn) as holder:
            for action, key, new_key, scope_type in [(0, 0, 0xABC, 0), (1, 0xABC, 0, 3)]:
                cdb, parameters = pr_out(action, key=key, new_key=new_key, scope_type=scope_type, aptpl=True)
                good(holder.command(cdb, write=parameters), f"PERSISTENT RESERVE OUT {action}")
            name = holder.initiator
            held = tarn.api().get("luns/disk/reservations")
            equal(held["holder"]["has_session"], True, "the session of the holder")
        with login(tarn, initiator=OTHER) as other:
            cdb, parameters = pr_out(0, new_key=0xDEF, aptpl=True)
            good(other.command(cdb, write=parameters), "REGISTER of another")
            equal(other.command(scsi.write16(0, 1), write=bytes(BLOCK)).status, scsi.RESERVATION_CONFLICT, "WRITE of another")
            held = tarn.api().get("luns/disk/reservations")
            equal((held["type"], held["holder"]["initiator"], held["holder"]["has_session"]), ("exclusive-access", name, False), "holder")
            equal([(one["nexus"]["initiator"], one["key"], one["holder"]) for one in held["registrations"]],
                  [(name, "0x0000000000000abc", True), (OTHER, "0x0000000000000def", False)], "registrations")
            equal((held["registered"], held["aptpl"], held["lost"], "since_ms" in held), (2, True, False, True), "the rest")
            summary = next(one for one in tarn.api().get("luns") if one["spec"]["id"] == "disk")["reservations"]
            equal((summary["type"], summary["registered"], "registrations" in summary), (held["type"], 2, False), "in the list")
            conflict = next(one for one in tarn.api().get("events") if one["kind"] == "reservation-conflict")
            equal((conflict["lun"], conflict["initiator"]), ("disk", OTHER), "the event")
            check(f"{name} holds it (exclusive-access)" in conflict["message"], conflict["message"])
            finding = next(one for one in tarn.api().get("findings") if one["code"] == "reservation-stranded")
            check(name in finding["message"] and "tarn lun reservation clear disk" in finding["remedy"], finding)
            tarn.api().post("luns/disk/reservations/clear")
            answer = other.command(scsi.write16(0, 1), write=bytes(BLOCK))
            equal((answer.sense.key, answer.sense.code), RESERVATIONS_PREEMPTED, "who was registered is notified")
            good(other.command(scsi.write16(0, 1), write=bytes(BLOCK)), "WRITE of another")
            equal(registered_keys(other), [], "keys")
            check("reservations" not in tarn.api().get("luns/disk"), "it is shown as before")
            codes = [one["code"] for one in tarn.api().get("findings")]
            check("reservation-stranded" not in codes, codes)
        tarn.kill()
        tarn.start()
        with login(tarn) as session:
            equal(registered_keys(session), [], "keys after a crash")


@test
def an_administrator_ends_an_spc2_reservation():
    """RESERVE of a session that lives: who holds the unit is shown, is notified, and others get in."""
    with serve() as tarn, login(tarn) as holder, login(tarn, initiator=OTHER) as other:
        good(holder.command(scsi.reserve6()), "RESERVE")
        equal(tarn.api().get("luns/disk/reservations")["reserved_by"]["initiator"], holder.initiator, "holder")
        equal(other.command(scsi.read16(0, 1), read=BLOCK).status, scsi.RESERVATION_CONFLICT, "READ of another")
        tarn.api().post("luns/disk/reservations/clear")
        good(other.command(scsi.read16(0, 1), read=BLOCK), "READ of another")
        answer = holder.command(scsi.read16(0, 1), read=BLOCK)
        equal((answer.sense.key, answer.sense.code), RESERVATIONS_PREEMPTED, "the holder is notified")


@test
def registrations_without_aptpl_do_not():
    """Without APTPL they end with the power."""
    with serve() as tarn:
        with login(tarn) as session:
            cdb, parameters = pr_out(0, new_key=0xABC)
            good(session.command(cdb, write=parameters), "REGISTER")
        tarn.kill()
        tarn.start()
        with login(tarn) as session:
            equal(registered_keys(session), [], "keys")


@test
def saved_mode_pages_outlive_a_restart():
    """WCE cleared by MODE SELECT with SP is still clear after a restart."""
    with serve() as tarn:
        sense_page = bytes([0x1A, 0x08, 0x08, 0, 255, 0])

        def page(session):
            data = good(session.command(sense_page, read=255, lun=1), "MODE SENSE").data
            return bytearray(data[4 + data[3]:])
        with login(tarn) as session:
            session.clear_unit_attentions(1)
            caching = page(session)
            caching[0] &= 0x3F
            equal(caching[2] & 0x04, 0x04, "WCE at first")
            caching[2] &= ~0x04
            parameters = bytes(4) + bytes(caching)
            good(session.command(bytes([0x15, 0x11, 0, 0, len(parameters), 0]), write=parameters, lun=1), "MODE SELECT with SP")
            equal(page(session)[2] & 0x04, 0, "WCE afterwards")
        equal(tarn.terminate(), 0, "exit code")
        tarn.start()
        with login(tarn) as session:
            session.clear_unit_attentions(1)
            equal(page(session)[2] & 0x04, 0, "WCE after the restart")


@test
def one_unit_through_two_targets_is_one_unit():
    """The same identity and the same reservation, however it is reached."""
    with serve() as tarn, login(tarn) as a, chap_login(tarn) as b:
        equal(scsi.device_names(a), scsi.device_names(b), "NAA names")
        check(scsi.device_names(a), "it has an NAA name")
        good(a.command(scsi.write16(7, 1), write=b"\x99" * BLOCK))
        equal(good(b.command(scsi.read16(7, 1), read=BLOCK)).data, b"\x99" * BLOCK, "data")
        good(a.command(scsi.reserve6()), "RESERVE through the first")
        equal(b.command(scsi.test_unit_ready()).status, scsi.RESERVATION_CONFLICT, "status through the second")
        good(a.command(scsi.release6()), "RELEASE")


def start_stop(flags):
    """START STOP UNIT: 1 starts, 2 ejects, 3 loads."""
    return bytes([0x1b, 0, 0, 0, flags, 0])


def prevent(is_prevented):
    return bytes([0x1e, 0, 0, 0, int(is_prevented), 0])


def sense_of(session, cdb, **more):
    sense = session.command(cdb, lun=1, **more).sense
    return sense.key, sense.code


def serve_removable():
    """LUN 1 has a removable medium."""
    config = CONFIG.replace("SHUTDOWN", str(SHUTDOWN_S)).replace("second.img?size=16M", "second.img?size=16M&removable")
    tarn = Tarn(config=config)
    tarn.secret("secret", CHAP_SECRET)
    tarn.secret("mutual", MUTUAL_SECRET)
    return tarn


@test
def a_removable_medium_is_ejected_loaded_and_held():
    """A store with removable: INQUIRY says so, START STOP UNIT ejects and loads for everyone, who prevents it keeps it in, and the
    data stays. Any other disk is not removable."""
    eject, load = start_stop(0x02), start_stop(0x03)
    with serve_removable() as tarn:
        with login(tarn) as a, login(tarn, initiator=OTHER) as b:
            for session in (a, b):
                session.clear_unit_attentions(1)
            bits = [a.command(scsi.inquiry(), read=36, lun=lun).data[1] & 0x80 for lun in (0, 1)]
            equal(bits, [0, 0x80], "RMB of a disk and of a removable one")
            good(a.command(scsi.write16(0, 1), write=b"\x42" * BLOCK, lun=1))
            good(b.command(prevent(True), lun=1), "PREVENT")
            sense = a.command(eject, lun=1).sense
            equal((sense.key, sense.code), (5, (0x53, 0x02)), "an eject that another prevents")
            good(b.command(prevent(False), lun=1), "ALLOW")
            good(a.command(eject, lun=1), "the eject")
            for session in (a, b):
                equal(sense_of(session, scsi.read16(0, 1), read=BLOCK), (2, (0x3a, 0)), "READ without a medium")
                equal(sense_of(session, start_stop(0x01)), (2, (0x3a, 0)), "START without a medium")
            good(b.command(load, lun=1), "the load")
            equal(sense_of(a, scsi.read16(0, 1), read=BLOCK), (6, (0x28, 0)), "what the other nexus is told of the load")
            equal(good(a.command(scsi.read16(0, 1), read=BLOCK, lun=1)).data, b"\x42" * BLOCK, "the data")


@test
def a_medium_is_held_by_every_nexus_that_prevents_its_removal():
    """Three nexuses on all cores: each that prevents must allow, be reset, preempted and aborted, or go."""
    with serve_removable() as tarn, login(tarn) as a, login(tarn, initiator=OTHER) as b:
        for session in (a, b):
            session.clear_unit_attentions(1)
        with login(tarn, initiator=OTHER + "3") as c:
            c.clear_unit_attentions(1)
            for session in (a, b, c):
                good(session.command(prevent(True), lun=1), "PREVENT")
            for session in (a, b):
                good(session.command(prevent(False), lun=1), "ALLOW")
            equal(sense_of(a, start_stop(0x02)), (5, (0x53, 2)), "an eject that the third prevents")
        wait_for(lambda: a.command(start_stop(0x02), lun=1).good, 5, "the end of the third ends what it prevents")
        good(b.command(start_stop(0x03), lun=1), "the load")
        a.clear_unit_attentions(1)
        good(b.command(prevent(True), lun=1), "PREVENT")
        equal(sense_of(a, start_stop(0x02)), (5, (0x53, 2)), "an eject that the second prevents")
        equal(a.tmf(iscsi.LU_RESET, lun=1), iscsi.TMF_COMPLETE, "LOGICAL UNIT RESET")
        a.clear_unit_attentions(1)
        good(a.command(start_stop(0x02), lun=1), "the eject after the reset")


@test
def a_write_that_waits_for_its_data_does_not_reach_an_ejected_medium():
    """The eject is answered when nobody is at work on the medium; what comes later finds none, and the data is as it was."""
    with serve_removable() as tarn, login(tarn) as a, login(tarn, initiator=OTHER) as b:
        for session in (a, b):
            session.clear_unit_attentions(1)
        good(a.command(scsi.write16(0, 1), write=b"\x11" * BLOCK, lun=1))
        task = waiting_write(a, 0, lun=1)
        good(b.command(start_stop(0x02), lun=1), "the eject")
        a.send_data(task, task.r2ts[0])
        sense = a.finish(task).sense
        equal((sense.key, sense.code), (2, (0x3a, 0)), "the write of before")
        good(b.command(start_stop(0x03), lun=1), "the load")
        a.clear_unit_attentions(1)
        equal(good(a.command(scsi.read16(0, 1), read=BLOCK, lun=1)).data, b"\x11" * BLOCK, "the data")


@test
def a_silent_login_is_dropped_at_the_deadline():
    """login_timeout_seconds=2: a connection that says nothing, and one that stops in the middle, are closed."""
    with serve() as tarn:
        for first_bytes in (b"", iscsi.Pdu(iscsi.LOGIN_REQUEST | iscsi.IMMEDIATE, 0x04).pack()[:20]):
            connection = iscsi.Connection(tarn.port)
            connection.send_raw(first_bytes)
            start = time.monotonic()
            check(connection.closed_within(6), "still open")
            seconds = time.monotonic() - start
            check(seconds >= 1, f"closed after {seconds:.1f} s already")
            measured(f"closed after {seconds:.1f} s")
            connection.close()


@test
def a_closed_window_opens_again():
    """More commands than queue_depth: the window closes, every command is answered, the window opens."""
    with serve() as tarn, login(tarn) as session:
        tasks = []
        while not iscsi.serial_lt(session.max_cmd_sn, session.cmd_sn) and len(tasks) < 5000:
            tasks.append(session.start(scsi.write16(len(tasks), 256), write=b"\x66" * (256 * BLOCK), unsolicited=0, answer_r2t=False))
        measured(f"{len(tasks)} commands fill the window")
        check(len(tasks) < 5000, "the window does not close")
        for task in tasks:
            task.answer_r2t = True
            for r2t in task.r2ts:
                session.send_data(task, r2t)
            good(session.finish(task), "WRITE")
        wait_for(lambda: session.command(scsi.test_unit_ready()).good, 5, "the window is open")


if __name__ == "__main__":
    harness.main()
