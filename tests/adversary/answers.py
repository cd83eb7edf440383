"""What SCSI commands and iSCSI requests are answered."""
import struct

import iscsi
import scsi
from harness import check, equal, test
from tarn import IQN, Tarn, lun_section, target_section

OTHER = "iqn.2026-11.example.tarn:other"
BLOCK = 512
WRONG_LENGTH = (scsi.ILLEGAL_REQUEST, (0x0E, 0x03))       # INVALID FIELD IN COMMAND INFORMATION UNIT


def login(tarn, initiator="iqn.2026-11.example.tarn:tester", **options):
    """A session that has taken its unit attentions."""
    session = iscsi.Session(tarn.port, options.pop("target", IQN), initiator, **options)
    session.clear_unit_attentions()
    return session


def good(outcome, what="command"):
    check(outcome.good, f"{what}: {outcome}")
    return outcome


def sense_of(outcome):
    return outcome.sense.key, outcome.sense.code


# Reservations.

WRITE_EXCLUSIVE_REGISTRANTS_ONLY, EXCLUSIVE_ACCESS = 5, 3
MODE_SENSE_6 = bytes([0x1A, 0, 0x3F, 0, 0xFF, 0])
MODE_SENSE_10 = bytes([0x5A, 0, 0x3F, 0, 0, 0, 0, 0, 0xFF, 0])
REPORT_TASK_MANAGEMENT = bytes([0xA3, 0x0D, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0])


def reserve_out(session, action, key, action_key=0, kind=0, lun=0):
    """PERSISTENT RESERVE OUT without any of the options."""
    return session.command(struct.pack(">BBB2xIB", 0x5F, action, kind, 24, 0), write=struct.pack(">QQ8x", key, action_key),
                           lun=lun)


def hold(session, kind, key=0xA):
    good(reserve_out(session, 0, 0, key), "REGISTER")
    good(reserve_out(session, 1, key, kind=kind), "RESERVE")


@test
def mode_sense_is_allowed_under_a_write_exclusive_reservation():
    """D1: a node that may not write learns of the write cache, else it would never flush one."""
    with Tarn("file:{dir}/disk.img?size=16M") as tarn, login(tarn) as holder, login(tarn, OTHER) as other:
        hold(holder, WRITE_EXCLUSIVE_REGISTRANTS_ONLY)
        equal(other.command(scsi.write16(0, 1), write=bytes(BLOCK)).status, scsi.RESERVATION_CONFLICT, "WRITE")
        six = good(other.command(MODE_SENSE_6, read=255), "MODE SENSE (6)").data
        ten = good(other.command(MODE_SENSE_10, read=255), "MODE SENSE (10)").data
        for pages in six[12:], ten[16:]:
            caching = pages.index(bytes([0x88, 0x12]))
            check(pages[caching + 2] & 0x04, "WCE is not told")


@test
def reports_on_commands_conflict_under_exclusive_access():
    """D1: REPORT SUPPORTED OPERATION CODES and ... TASK MANAGEMENT FUNCTIONS; the holder may."""
    with Tarn("mem:16M") as tarn, login(tarn) as holder, login(tarn, OTHER) as other:
        hold(holder, EXCLUSIVE_ACCESS)
        for cdb in scsi.report_opcodes(), REPORT_TASK_MANAGEMENT, MODE_SENSE_6:
            equal(other.command(cdb, read=4096).status, scsi.RESERVATION_CONFLICT, f"{cdb[0]:#x} of another")
            good(holder.command(cdb, read=4096), f"{cdb[0]:#x} of the holder")
        good(other.command(scsi.test_unit_ready()), "TEST UNIT READY of another")


@test
def an_spc_2_reservation_shuts_out_what_spc_2_says():
    """D1: MODE SENSE conflicts, READ CAPACITY and LOG SENSE do not."""
    with Tarn("mem:16M") as tarn, login(tarn) as holder, login(tarn, OTHER) as other:
        good(holder.command(scsi.reserve6()), "RESERVE")
        for cdb in MODE_SENSE_6, MODE_SENSE_10, scsi.report_opcodes(), scsi.test_unit_ready():
            equal(other.command(cdb, read=255).status, scsi.RESERVATION_CONFLICT, f"{cdb[0]:#x}")
        good(other.command(scsi.read_capacity16(), read=32), "READ CAPACITY (16)")
        good(other.command(bytes([0x4D, 0, 0x40, 0, 0, 0, 0, 0, 255, 0]), read=255), "LOG SENSE")


# Expected lengths and directions.

BEFORE, AFTER = b"\x11", b"\x33"


def six(opcode, blocks):
    return bytes([opcode, 0, 0, 0, blocks, 0])


def ten(opcode, blocks, flags=0):
    return struct.pack(">BBIBHB", opcode, flags, 0, 0, blocks, 0)


def twelve(opcode, blocks, flags=0):
    return struct.pack(">BBIIBB", opcode, flags, 0, blocks, 0, 0)


def sixteen(opcode, blocks, flags=0):
    return struct.pack(">BBQIBB", opcode, flags, 0, blocks, 0, 0)


BYTCHK = 0x02
WRITES_OF_TWO_BLOCKS = {
    "WRITE (6)": six(0x0A, 2),
    "WRITE (10)": ten(0x2A, 2),
    "WRITE (12)": twelve(0xAA, 2),
    "WRITE (16)": sixteen(0x8A, 2),
    "WRITE AND VERIFY (10)": ten(0x2E, 2),
    "WRITE AND VERIFY (10), BYTCHK": ten(0x2E, 2, BYTCHK),
    "WRITE AND VERIFY (12)": twelve(0xAE, 2),
    "WRITE AND VERIFY (16)": sixteen(0x8E, 2),
    "ORWRITE (16)": sixteen(0x8B, 2),
}
VERIFIES_OF_TWO_BLOCKS = {
    "VERIFY (10)": ten(0x2F, 2, BYTCHK),
    "VERIFY (12)": twelve(0xAF, 2, BYTCHK),
    "VERIFY (16)": sixteen(0x8F, 2, BYTCHK),
}


def medium(session):
    return good(session.command(scsi.read16(0, 2), read=2 * BLOCK), "READ").data


def fill(session):
    good(session.command(scsi.write16(0, 2), write=BEFORE * (2 * BLOCK)), "WRITE of both blocks")


def check_residual(outcome, moved, expected, what):
    """What the command as such transfers, against what the initiator expected."""
    equal((outcome.overflow, outcome.underflow, outcome.residual), (moved > expected, moved < expected, abs(moved - expected)),
          f"{what}: overflow, underflow, residual")


@test
def a_write_that_ends_inside_a_block_fails_and_writes_nothing():
    """D2: 5h/0Eh/03h, with the residual of the whole command; whole blocks are written, none at all is GOOD."""
    with Tarn("mem:16M") as tarn, login(tarn) as session:
        for name, cdb in WRITES_OF_TWO_BLOCKS.items():
            for length in 1, 511, 513, 1023:
                what = f"{name}, {length} bytes expected"
                fill(session)
                outcome = session.command(cdb, write=AFTER * length)
                equal(sense_of(outcome), WRONG_LENGTH, what)
                check_residual(outcome, 2 * BLOCK, length, what)
                equal(medium(session), BEFORE * (2 * BLOCK), f"medium after {what}")
            for length in 0, 512, 1024, 1500:
                what = f"{name}, {length} bytes expected"
                fill(session)
                outcome = good(session.command(cdb, write=AFTER * length), what)
                check_residual(outcome, 2 * BLOCK, length, what)
                written = min(length, 2 * BLOCK)
                equal(medium(session), AFTER * written + BEFORE * (2 * BLOCK - written), f"medium after {what}")


@test
def a_verify_that_gets_less_than_it_compares_fails():
    """D2: also when what it got is equal, is whole blocks, or is nothing."""
    with Tarn("mem:16M") as tarn, login(tarn) as session:
        fill(session)
        for name, cdb in VERIFIES_OF_TWO_BLOCKS.items():
            for length in 0, 511, 512, 1023:
                what = f"{name}, {length} bytes expected"
                outcome = session.command(cdb, write=BEFORE * length)
                equal(sense_of(outcome), WRONG_LENGTH, what)
                check_residual(outcome, 2 * BLOCK, length, what)
            for length in 1024, 1500:
                what = f"{name}, {length} bytes expected"
                check_residual(good(session.command(cdb, write=BEFORE * length), what), 2 * BLOCK, length, what)
            outcome = session.command(cdb, write=BEFORE * 1023 + AFTER)
            equal(outcome.sense.key, scsi.MISCOMPARE, f"{name} of other data")


@test
def commands_that_need_all_of_their_data_fail_without_it():
    """D2: COMPARE AND WRITE, WRITE SAME and VERIFY of one block again and again: 5h/0Eh/03h, residual and flag with it."""
    repeat = sixteen(0x8F, 2, 0x06)
    compare_and_write = bytes([0x89]) + bytes(12) + bytes([1, 0, 0])
    cases = [("COMPARE AND WRITE", compare_and_write, 2 * BLOCK), ("WRITE SAME (10)", ten(0x41, 2), BLOCK),
             ("WRITE SAME (16)", sixteen(0x93, 2), BLOCK), ("VERIFY (16), BYTCHK 11b", repeat, BLOCK)]
    with Tarn("mem:16M") as tarn, login(tarn) as session:
        fill(session)
        for name, cdb, needed in cases:
            for length in 0, 1, needed - 1:
                what = f"{name}, {length} bytes expected"
                outcome = session.command(cdb, write=BEFORE * length)
                equal(sense_of(outcome), WRONG_LENGTH, what)
                check_residual(outcome, needed, length, what)
        equal(medium(session), BEFORE * (2 * BLOCK), "medium")


@test
def data_that_goes_the_wrong_way_fails_the_command():
    """D2: a WRITE with only R and a READ with only W are no success.

    Of a READ (10) with only W libiscsi's Read10Invalid wants GOOD: all that was expected is its residual.
    """
    with Tarn("mem:16M") as tarn, login(tarn) as session:
        fill(session)
        for name, cdb in {**WRITES_OF_TWO_BLOCKS, **VERIFIES_OF_TWO_BLOCKS}.items():
            outcome = session.command(cdb, read=2 * BLOCK)
            equal(sense_of(outcome), WRONG_LENGTH, f"{name} with R")
            equal(outcome.data, b"", f"data of {name} with R")
        for cdb in six(0x08, 2), twelve(0xA8, 2), sixteen(0x88, 2):
            outcome = session.command(cdb, write=AFTER * (2 * BLOCK))
            equal(sense_of(outcome), WRONG_LENGTH, f"READ {cdb[0]:#x} with W")
            check_residual(outcome, 0, 2 * BLOCK, f"READ {cdb[0]:#x} with W")
        check_residual(good(session.command(ten(0x28, 2), write=AFTER * (2 * BLOCK))), 0, 2 * BLOCK, "READ (10) with W")
        equal(medium(session), BEFORE * (2 * BLOCK), "medium")

def log_in_with(session, security, operational):
    """Both stages of a login with these pairs; returns the last answer and what was answered in the operational stage."""
    if security is not None:
        session._exchange(session.connection, 0, 1, True, session.names() + security)
        return session._exchange(session.connection, 1, 3, True, operational)
    return session._exchange(session.connection, 1, 3, True, session.names() + operational)


@test
def names_may_be_said_again_in_the_operational_stage():
    """C7: QEMU and libiscsi with a user repeat their names in the operational stage: that is swallowed if nothing differs."""
    offer = [("AuthMethod", "CHAP,None")]
    with Tarn("mem:1M") as tarn:
        with iscsi.Session(tarn.port, IQN, login=False) as session:
            answer, pairs = log_in_with(session, offer, session.names() + [("InitialR2T", "No")])
            equal(answer.flags & 0x83, 0x83, "the flags of the last answer")
            equal(dict(pairs).get("InitialR2T"), "No", "InitialR2T")
            check(not {"InitiatorName", "TargetName", "SessionType"} & set(dict(pairs)), f"names in the answer {pairs}")
        for key, value in (("InitiatorName", "iqn.2026-11.example.tarn:other"), ("TargetName", IQN + "x"), ("SessionType", "Discovery")):
            with iscsi.Session(tarn.port, IQN, login=False) as session:
                try:
                    log_in_with(session, offer, [(key, value)])
                except iscsi.LoginError as error:
                    equal(error.status >> 8, 2, f"status class of another {key}")
                else:
                    check(False, f"another {key} is taken")


@test
def no_offer_is_irrelevant():
    """C7: operational keys in a discovery login, on a second connection and without a use are answered by the normal selection."""
    keys = {"MaxConnections": "4", "InitialR2T": "Yes", "ImmediateData": "No", "MaxBurstLength": "65536", "FirstBurstLength": "8192",
            "MaxOutstandingR2T": "1", "ErrorRecoveryLevel": "0", "DefaultTime2Wait": "2", "DefaultTime2Retain": "0"}
    with Tarn("mem:1M") as tarn, iscsi.Session(tarn.port, IQN, keys=keys) as leading:
        agreed = {key: value for key, value in leading.answered if key in keys}
        equal(agreed, keys, "answers to the leading login")
        second = iscsi.Session(tarn.port, IQN, isid=leading.isid, tsih=leading.tsih, cmd_sn=leading.cmd_sn, login=False)
        second.connection.cid = 1
        _, pairs = log_in_with(second, None, list(keys.items()))
        equal({key: value for key, value in pairs if key in keys}, agreed, "answers to the second connection")
        with iscsi.Session(tarn.port, login=False) as discovery:
            _, pairs = log_in_with(discovery, None, list(keys.items()))
            equal({key: value for key, value in pairs if key in keys}, keys, "answers to discovery")
        leading.clear_unit_attentions()
        check(leading.command(scsi.read10(0, 1), read=512).good, "a READ")
        second.close()

# iSCSI requests.

TWO_LUNS = lun_section("a", "mem:16M") + lun_section("b", "mem:16M") + target_section("a", "b")
UNDERSCORE = TWO_LUNS + target_section("a", name=f"{IQN}_old_1")


@test
def data_for_another_lun_is_not_written():
    """D3: a Data-Out whose transfer tag is right and whose LUN is not that of its R2T fails the command."""
    with Tarn(config=TWO_LUNS) as tarn, login(tarn) as session:
        for lun, other in (0, 1), (1, 0), (0, 7):
            session.clear_unit_attentions(lun)
            good(session.command(scsi.write16(0, 2), write=BEFORE * (2 * BLOCK), lun=lun))
            task = session.start(scsi.write16(0, 2), write=AFTER * (2 * BLOCK), unsolicited=0, answer_r2t=False, lun=lun)
            while not task.r2ts:
                session.pump()
            task.lun = other
            session.send_data(task, task.r2ts[0])
            outcome = session.finish(task)
            equal((outcome.status, outcome.sense.key), (scsi.CHECK_CONDITION, scsi.ABORTED_COMMAND), f"WRITE to LUN {lun}")
            equal(good(session.command(scsi.read16(0, 2), read=2 * BLOCK, lun=lun)).data, BEFORE * (2 * BLOCK), "medium")


@test
def a_command_with_an_attribute_that_is_not_there_does_not_run():
    """D3: reserved attributes, and ACA without an ACA condition: INVALID MESSAGE ERROR, never SIMPLE."""
    with Tarn("mem:16M") as tarn, login(tarn) as session:
        fill(session)
        for attribute in 4, 5, 6, 7:
            outcome = session.command(scsi.write16(0, 2), write=AFTER * (2 * BLOCK), attribute=attribute)
            equal(sense_of(outcome), (scsi.ILLEGAL_REQUEST, (0x49, 0x00)), f"WRITE with attribute {attribute}")
            equal(medium(session), BEFORE * (2 * BLOCK), f"medium after attribute {attribute}")
        for attribute in range(4):
            good(session.command(scsi.read16(0, 2), read=2 * BLOCK, attribute=attribute), f"READ with attribute {attribute}")


@test
def send_targets_with_what_is_no_name_is_rejected():
    """D3: an empty success says that there is no such target; here nothing can have that name."""
    with Tarn(config=TWO_LUNS) as tarn, iscsi.Session(tarn.port) as discovery, login(tarn) as session:
        for asker in discovery, session:
            for text in "nonsense", "all", "iqn.", "iqn.2026-11.example.tarn:a b", "x" * 255:
                equal(list(asker.text({"SendTargets": text})), [("SendTargets", "Reject")], f"SendTargets={text}")
            equal(list(asker.text({"SendTargets": "iqn.2026-11.example.tarn:none"})), [], "SendTargets of an unknown target")


@test
def targets_may_have_an_underscore_in_their_names():
    """D3: tgt and SCST have such targets; a note says that some initiators refuse them."""
    with Tarn(config=UNDERSCORE) as tarn, iscsi.Session(tarn.port) as discovery:
        name = f"{IQN}_old_1"
        check(("TargetName", name) in list(discovery.text({"SendTargets": "All"})), "the target is not told of")
        with login(tarn, target=name) as session:
            good(session.command(scsi.read16(0, 1), read=BLOCK))
        tarn.await_log("underscore")


@test
def a_session_that_an_administrator_ends_is_told_first():
    """D3: an Async Message that the session is dropped, then the end, within a bound also when nobody reads."""
    with Tarn("mem:16M") as tarn, tarn.api() as api, login(tarn) as session, login(tarn, OTHER) as deaf:
        for _ in range(64):             # answers that nobody takes
            deaf.start(scsi.read16(0, 512), read=512 * BLOCK)
        sessions = {one["initiator"]: one["id"] for one in api.get("sessions")}
        api.delete(f"sessions/{sessions[session.initiator]}")
        try:
            while True:
                session.pump(timeout_s=20)
        except iscsi.Closed:
            pass
        equal([pdu.event for pdu in session.asyncs], [3], "Async Messages before the end")
        api.delete(f"sessions/{sessions[OTHER]}")
        equal([one["id"] for one in api.get("sessions")], [], "sessions that are left")
