"""SCSI as far as tests need it: CDBs, sense data, status codes.

Spec: SPC-4, SBC-3; names are those of the standards.
"""
import struct

GOOD, CHECK_CONDITION, CONDITION_MET, BUSY, RESERVATION_CONFLICT, TASK_SET_FULL, TASK_ABORTED = \
    0x00, 0x02, 0x04, 0x08, 0x18, 0x28, 0x40
NO_SENSE, RECOVERED_ERROR, NOT_READY, MEDIUM_ERROR, HARDWARE_ERROR, ILLEGAL_REQUEST, UNIT_ATTENTION, DATA_PROTECT = range(8)
ABORTED_COMMAND, MISCOMPARE = 0x0B, 0x0E

# Additional sense codes that tests name: (ASC, ASCQ).
MANUAL_INTERVENTION_REQUIRED = (0x04, 0x03)
INVALID_OPCODE = (0x20, 0x00)
LBA_OUT_OF_RANGE = (0x21, 0x00)
INVALID_FIELD_IN_CDB = (0x24, 0x00)
LUN_NOT_SUPPORTED = (0x25, 0x00)
SPACE_ALLOCATION_FAILED = (0x27, 0x07)
BUS_DEVICE_RESET_FUNCTION_OCCURRED = (0x29, 0x03)


def lun_field(lun):
    """The 8 bytes of a LUN: peripheral addressing below 256, flat above (SAM-5)."""
    if isinstance(lun, (bytes, bytearray)):
        return lun
    return struct.pack(">H6x", lun if lun < 256 else 0x4000 | lun)


class Sense:
    """Sense data in either format; `code` is (ASC, ASCQ), all None if there is none."""

    def __init__(self, data):
        self.data = bytes(data)
        self.key, self.code, self.information = None, None, None
        self.deferred = False
        if len(data) < 8:
            return
        kind = data[0] & 0x7F
        self.deferred = kind in (0x71, 0x73)
        if kind in (0x70, 0x71) and len(data) >= 14:
            self.key, self.code = data[2] & 0x0F, (data[12], data[13])
            if data[0] & 0x80:
                self.information = int.from_bytes(data[3:7], "big")
        elif kind in (0x72, 0x73):
            self.key, self.code = data[1] & 0x0F, (data[2], data[3])
            at = 8
            while at + 2 <= len(data):
                if data[at] == 0x00 and data[at + 2] & 0x80:
                    self.information = int.from_bytes(data[at + 4:at + 12], "big")
                at += 2 + data[at + 1]

    def __repr__(self):
        if self.key is None:
            return "no sense"
        return f"sense {self.key:x}/{self.code[0]:02x}/{self.code[1]:02x}" + \
            (f" information {self.information}" if self.information is not None else "")


def test_unit_ready():
    return bytes(6)


def request_sense(length=252):
    return bytes([0x03, 0, 0, 0, length, 0])


def inquiry(page=None, length=255):
    return struct.pack(">BBBHB", 0x12, page is not None, page or 0, length, 0)


def report_luns(length=4096):
    return struct.pack(">BBBBBBIBB", 0xA0, 0, 0, 0, 0, 0, length, 0, 0)


def read_capacity16(length=32):
    return struct.pack(">BBQIBB", 0x9E, 0x10, 0, length, 0, 0)


def read16(lba, blocks, flags=0):
    return struct.pack(">BBQIBB", 0x88, flags, lba, blocks, 0, 0)


def write16(lba, blocks, flags=0):
    return struct.pack(">BBQIBB", 0x8A, flags, lba, blocks, 0, 0)


def read10(lba, blocks, flags=0):
    return struct.pack(">BBIBHB", 0x28, flags, lba, 0, blocks, 0)


def write10(lba, blocks, flags=0):
    return struct.pack(">BBIBHB", 0x2A, flags, lba, 0, blocks, 0)


def verify16(lba, blocks, bytchk=0):
    return struct.pack(">BBQIBB", 0x8F, bytchk << 1, lba, blocks, 0, 0)


def write_same16(lba, blocks, flags=0):
    return struct.pack(">BBQIBB", 0x93, flags, lba, blocks, 0, 0)


def synchronize_cache16(lba=0, blocks=0):
    return struct.pack(">BBQIBB", 0x91, 0, lba, blocks, 0, 0)


def unmap(parameter_length):
    return struct.pack(">BB5xHB", 0x42, 0, parameter_length, 0)


def unmap_parameters(*ranges):
    body = b"".join(struct.pack(">QI4x", lba, blocks) for lba, blocks in ranges)
    return struct.pack(">HH4x", len(body) + 6, len(body)) + body


def get_lba_status(lba, length=4096):
    return struct.pack(">BBQIBB", 0x9E, 0x12, lba, length, 0, 0)


def report_opcodes(length=65536):
    """All commands, without timeouts."""
    return struct.pack(">BBBBHIBB", 0xA3, 0x0C, 0x00, 0, 0, length, 0, 0)


def reserve6():
    return bytes([0x16, 0, 0, 0, 0, 0])


def release6():
    return bytes([0x17, 0, 0, 0, 0, 0])


def capacity(session, lun=0):
    """(blocks, block size in bytes) of a LUN."""
    data = session.command(read_capacity16(), read=32, lun=lun).data
    last, size = struct.unpack(">QI", data[:12])
    return last + 1, size


def device_names(session, lun=0):
    """The NAA designators of the logical unit (not of its ports), from VPD page 83h."""
    data = session.command(inquiry(0x83, 4096), read=4096, lun=lun).data
    at, names = 4, []
    while at + 4 <= len(data):
        length = data[at + 3]
        if data[at + 1] & 0x3F == 0x03:        # association 0, type 3
            names.append(data[at + 4:at + 4 + length].hex())
        at += 4 + length
    return names
