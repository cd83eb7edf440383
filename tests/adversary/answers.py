"""What SCSI commands and iSCSI requests are answered."""
import struct

import iscsi
import scsi
from harness import check, equal, test
from tarn import IQN, Tarn

OTHER = "iqn.2026-11.example.tarn:other"
BLOCK = 512


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
