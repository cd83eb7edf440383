"""Discs to be put into a drive."""
import struct

BLOCK = 2048
BLOCKS = 400


def iso(fill, blocks=BLOCKS):
    """The least that is a file system of a CD: a primary volume descriptor and its end. Every other block is of one byte."""
    image = bytearray(bytes([fill]) * (BLOCK * blocks))
    image[16 * BLOCK:17 * BLOCK] = (b"\x01CD001\x01" + b"\0" * 33 + f"DISC{fill:02X}".encode().ljust(32)).ljust(BLOCK, b"\0")
    image[17 * BLOCK:18 * BLOCK] = b"\xffCD001\x01".ljust(BLOCK, b"\0")
    return bytes(image)


MARKER = b"booted from a disc of Tarn"


def bootable():
    """A disc that writes MARKER to the first serial port when it is booted, and resets the machine. El Torito specification 1.0: a boot record that leads to
    a catalogue, whose first entry is a program of 512 bytes, without emulation of a floppy."""
    image = bytearray(iso(0))
    image[17 * BLOCK:19 * BLOCK] = (b"\0CD001\1" + b"EL TORITO SPECIFICATION".ljust(64, b"\0") + struct.pack("<I", 19)).ljust(BLOCK, b"\0") \
        + b"\xffCD001\1".ljust(BLOCK, b"\0")
    entry = struct.pack("<HH24sHBB", 1, 0, b"", 0, 0x55, 0xAA)
    total = sum(struct.unpack("<16H", entry))
    image[19 * BLOCK:19 * BLOCK + 64] = struct.pack("<HH24sHBB", 1, 0, b"", -total & 0xFFFF, 0x55, 0xAA) \
        + struct.pack("<BBHBBHI20x", 0x88, 0, 0, 0, 0, 1, 20)
    # xor ax, ax; mov ds, ax; mov si, text; next: lodsb; test al, al; jz end; mov dx, 3f8h; out dx, al; jmp next;
    # end: mov al, feh; out 64h, al; halt: hlt; jmp halt
    code = bytes.fromhex("31c08ed8be197cac84c07406baf803eeebf5b0fee664f4ebfd") + MARKER + b"\r\n\0"
    image[20 * BLOCK:20 * BLOCK + len(code)] = code
    return bytes(image)
