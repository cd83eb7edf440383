"""PDUs of HyperSCSI outside a session: docs/HYPERSCSI.md, PDUs and discovery."""
import struct

from harness import equal

QUESTION_BYTES = 256
DISCOVERY, ANSWER = 0x10, 0x90
HEADER = struct.Struct(">BBBHIIIHH")
HEAD = bytes([0, 4, 0])         # tag 0, the last fragment, of number 0


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def frame(opcode, body):
    """A PDU outside a session."""
    pdu = HEADER.pack(0x20, opcode, 1, 0, 0, 0, HEADER.size + len(body), HEADER.size, 0) + body
    return (HEAD + pdu + struct.pack(">I", crc32c(bytes(2) + pdu))).ljust(QUESTION_BYTES, b"\0")


def body_of(data, opcode):
    """The body of a PDU outside a session, which must be right."""
    version, got, flags, device, session, _, length, at, _ = HEADER.unpack_from(data, 3)
    equal((data[:3], version, got, flags, device, session), (HEAD, 0x20, opcode, 1, 0, 0), "header of the answer")
    pdu = data[3:3 + length]
    equal(data[3 + length:7 + length], struct.pack(">I", crc32c(bytes(2) + pdu)), "CRC of the answer")
    return pdu[at:]


def question(*groups):
    """A question of discovery."""
    listed = b"".join(bytes([len(name)]) + name.encode() for name in groups)
    return frame(DISCOVERY, bytes([7] * 16) + bytes(8) + bytes([len(groups)]) + listed)
