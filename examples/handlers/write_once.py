#!/usr/bin/env python3
"""A disk for Tarn whose blocks can be written once: a handler in the standard library of Python (x86-64).

    write_once.py SOCKET FILE [--blocks N] [--log FILE]

Then, in tarn.toml: store = "handler:SOCKET". FILE keeps the blocks, FILE.written which of them are written. The protocol is
docs/internals/handler.md. Python has no fences, so this handler is always woken (2) and always wakes Tarn; that its stores stay
in order is a promise of x86-64, not of every processor.
"""
import argparse
import mmap
import os
import socket
import threading

BLOCK = 512
MAGIC, VERSION = b"TARNHDLR", 1
SUBMITTED, HANDLER_SLEEPS, COMPLETED = 0, 64, 128
GOOD, CHECK_CONDITION = 0, 2
INVALID_OPCODE, INVALID_FIELD, OUT_OF_RANGE = (5, 0x20, 0), (5, 0x24, 0), (5, 0x21, 0)
WRITE_PROTECTED, WRONG_LENGTH = (7, 0x27, 0), (5, 0x1A, 0)


class Command:
    """A command as it stands in the submission ring."""

    def __init__(self, ring, at):
        word = lambda offset: ring.words[(at + offset) // 4]
        self.slot, self.nexus = word(0), word(24) | word(28) << 32
        self.out_length, self.room, self.place = word(8), word(12), word(16)
        self.cdb = bytes(ring.memory[at + 60:at + 60 + word(4)])


class Ring:
    """A connection of Tarn's with its memory."""

    def __init__(self, stream, version=VERSION):
        self.stream = stream
        hello, descriptors, _, _ = socket.recv_fds(stream, 64, 1)
        if hello[:8] != MAGIC or not descriptors:
            raise ConnectionError("this is not Tarn")
        number = lambda offset: int.from_bytes(hello[offset:offset + 4], "little")
        self.slots, self.entry = number(12), number(20)
        self.submissions, self.completions, self.data = number(24), number(28), number(32)
        self.memory = mmap.mmap(descriptors[0], number(16))
        os.close(descriptors[0])
        self.words = memoryview(self.memory).cast("I")      # stores of 32 bits, each at once
        self.done = self.ended = 0
        self.words[HANDLER_SLEEPS // 4] = 2
        stream.sendall(MAGIC + version.to_bytes(4, "little") + bytes(4))

    def commands(self):
        """All commands, as they come, until the connection ends."""
        while self.stream.recv(64):
            while self.done != self.words[SUBMITTED // 4] and not self.is_over():
                at = self.submissions + self.done % self.slots * self.entry
                self.done = (self.done + 1) % (1 << 32)
                yield Command(self, at)

    def is_over(self):
        """The connection has ended: what is left was not carried out, and never will be."""
        try:
            while self.stream.recv(64, socket.MSG_DONTWAIT):
                pass
        except BlockingIOError:
            return False
        return True

    def data_out(self, command):
        return self.memory[self.data + command.place:self.data + command.place + command.out_length]

    def put(self, slot, status, transferred=0, sense=b"", sense_length=None):
        """Writes the end of a command, which counts when the index is written."""
        at = self.completions + self.ended % self.slots * self.entry
        fields = (slot, status, transferred, len(sense) if sense_length is None else sense_length)
        for offset, value in enumerate(fields):
            self.words[at // 4 + offset] = value
        self.memory[at + 32:at + 32 + len(sense)] = sense
        self.ended = (self.ended + 1) % (1 << 32)

    def publish(self, ended=None):
        self.words[COMPLETED // 4] = self.ended if ended is None else ended
        self.stream.sendall(b"\0")

    def end(self, command, status, data=b"", sense=b""):
        given = data[:command.room]
        self.memory[self.data + command.place:self.data + command.place + len(given)] = given
        self.put(command.slot, status, len(data) if command.room else command.out_length, sense)
        self.publish()


def sense_data(key, code, qualifier):
    return bytes([0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, code, qualifier, 0, 0, 0, 0])


class Refused(Exception):
    """Key, code and qualifier."""


class WriteOnce:
    """The device: blocks that can be written once."""

    def __init__(self, path, blocks, log=None, serial="WRITEONCE1"):
        self.blocks, self.serial = blocks, serial.encode()
        self.lock = threading.Lock()
        self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self.file, blocks * BLOCK)
        self.marks = os.open(f"{path}.written", os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self.marks, blocks)
        self.log = log

    def execute(self, cdb, data):
        """Carries a command out and returns its data. One at a time."""
        with self.lock:
            if self.log:
                self.log.write(f"{cdb.hex()}\n")
                self.log.flush()
            action = {0x00: self.nothing, 0x12: self.inquiry, 0x1A: self.mode_sense, 0x25: self.capacity10, 0x9E: self.capacity16,
                      0x08: self.read, 0x28: self.read, 0x88: self.read, 0x2A: self.write, 0x8A: self.write, 0x35: self.sync,
                      0x91: self.sync}.get(cdb[0])
            if not action:
                raise Refused(*INVALID_OPCODE)
            return action(cdb, data)

    def nothing(self, _cdb, _data):
        return b""

    def inquiry(self, cdb, _data):
        if not cdb[1] & 1:
            return (bytes([0, 0, 6, 2, 31, 0, 0, 2]) + b"EXAMPLE WRITE ONCE      1   ")[:int.from_bytes(cdb[3:5], "big")]
        pages = {0x00: bytes([0x00, 0x80, 0x83]), 0x80: self.serial, 0x83: bytes([2, 1, 0, 8 + len(self.serial)]) + b"EXAMPLE " + self.serial}
        if cdb[2] not in pages:
            raise Refused(*INVALID_FIELD)
        page = pages[cdb[2]]
        return (bytes([0, cdb[2]]) + len(page).to_bytes(2, "big") + page)[:int.from_bytes(cdb[3:5], "big")]

    def mode_sense(self, cdb, _data):
        return bytes([3, 0, 0, 0])[:cdb[4]]

    def capacity10(self, _cdb, _data):
        return min(self.blocks - 1, 0xFFFFFFFF).to_bytes(4, "big") + BLOCK.to_bytes(4, "big")

    def capacity16(self, cdb, _data):
        if cdb[1] & 0x1F != 0x10:
            raise Refused(*INVALID_FIELD)
        whole = (self.blocks - 1).to_bytes(8, "big") + BLOCK.to_bytes(4, "big") + bytes(20)
        return whole[:int.from_bytes(cdb[10:14], "big")]

    def range_of(self, cdb):
        """First block and count of a READ or WRITE of 6, 10 or 16 bytes."""
        if cdb[0] < 0x20:                       # by the operation code: iSCSI fills each up to 16 bytes
            first, count = int.from_bytes(cdb[1:4], "big") & 0x1FFFFF, cdb[4] or 256
        elif cdb[0] < 0x60:
            first, count = int.from_bytes(cdb[2:6], "big"), int.from_bytes(cdb[7:9], "big")
        else:
            first, count = int.from_bytes(cdb[2:10], "big"), int.from_bytes(cdb[10:14], "big")
        if first + count > self.blocks:
            raise Refused(*OUT_OF_RANGE)
        return first, count

    def read(self, cdb, _data):
        first, count = self.range_of(cdb)
        return os.pread(self.file, count * BLOCK, first * BLOCK)

    def write(self, cdb, data):
        first, count = self.range_of(cdb)
        if len(data) != count * BLOCK:
            raise Refused(*WRONG_LENGTH)
        if any(os.pread(self.marks, count, first)):
            raise Refused(*WRITE_PROTECTED)
        os.pwrite(self.file, data, first * BLOCK)
        os.pwrite(self.marks, b"\1" * count, first)
        return b""

    def sync(self, _cdb, _data):
        os.fdatasync(self.file)
        os.fdatasync(self.marks)
        return b""


def serve(stream, device):
    """Carries out the commands of a connection, one after the other."""
    try:
        with device.lock:                       # what another connection has begun ends first
            ring = Ring(stream)
        for command in ring.commands():
            try:
                ring.end(command, GOOD, device.execute(command.cdb, ring.data_out(command)))
            except Refused as refused:
                ring.end(command, CHECK_CONDITION, sense=sense_data(*refused.args))
    except OSError:
        pass                                    # Tarn is gone, or was never there
    finally:
        stream.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("socket")
    parser.add_argument("file")
    parser.add_argument("--blocks", type=int, default=1 << 16)
    parser.add_argument("--log", help="where each command is written that is carried out")
    arguments = parser.parse_args()
    device = WriteOnce(arguments.file, arguments.blocks, arguments.log and open(arguments.log, "a"))
    if os.path.exists(arguments.socket):
        os.unlink(arguments.socket)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(arguments.socket)
        listener.listen()
        while True:
            stream, _ = listener.accept()
            threading.Thread(target=serve, args=(stream, device), daemon=True).start()


if __name__ == "__main__":
    main()
