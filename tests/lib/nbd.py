"""A client of NBD that can say anything (doc/proto.md of the NBD project)."""
import contextlib
import socket
import struct

from harness import check, equal

GREETING = b"NBDMAGICIHAVEOPT\0\x03"
READ, WRITE, DISC, FLUSH, TRIM, WRITE_ZEROES = 0, 1, 2, 3, 4, 6
LIST, STARTTLS, INFO, GO, STRUCTURED_REPLY = 3, 5, 6, 7, 8


class Raw:
    """A client that can say anything."""

    def __init__(self, tarn, name="lun0", structured=False, go=True, source="127.0.0.1"):
        self.socket = socket.create_connection(("127.0.0.1", tarn.port2), timeout=10, source_address=(source, 0))
        self.structured = structured
        equal(self.take(18), GREETING, "greeting")
        self.cookie = 0
        if go:
            self.send(struct.pack(">I", 3))
            if structured:
                equal(self.option(STRUCTURED_REPLY), 1, "reply to STRUCTURED_REPLY")
            data = struct.pack(">I", len(name)) + name.encode() + struct.pack(">HH", 1, 3)
            equal(self.option(GO, data), 1, "last reply to GO")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def take(self, size):
        """So many bytes; fewer when the connection ends."""
        data = b""
        while len(data) < size:
            with contextlib.suppress(ConnectionError):
                more = self.socket.recv(size - len(data))
                if more:
                    data += more
                    continue
            break
        return data

    def option(self, number, data=b""):
        """The type of the last reply."""
        self.send(b"IHAVEOPT" + struct.pack(">II", number, len(data)) + data)
        while True:
            head = self.take(20)
            check(len(head) == 20, "a reply to an option")
            _, _, kind, length = struct.unpack(">QIII", head)
            self.take(length)
            if kind == 1 or kind >> 31:
                return kind

    def request(self, command, offset=0, length=0, flags=0, data=b""):
        """Sends a request; returns its cookie."""
        self.cookie += 1
        self.send(struct.pack(">IHHQQI", 0x25609513, flags, command, self.cookie, offset, length) + data)
        return self.cookie

    def answer(self, length=0):
        """The cookie, the error and the data of a simple reply."""
        head = self.take(16)
        check(len(head) == 16, "a reply")
        magic, error, cookie = struct.unpack(">IIQ", head)
        equal(magic, 0x67446698, "magic number of a simple reply")
        return cookie, error, self.take(length) if not error else b""

    def do(self, command, offset=0, length=0, flags=0, data=b""):
        """The error of a request."""
        cookie = self.request(command, offset, length, flags, data)
        got, error, _ = self.answer(length if command == READ else 0)
        equal(got, cookie, "cookie")
        return error

    def is_closed(self, seconds=10):
        self.socket.settimeout(seconds)
        with contextlib.suppress(ConnectionError):
            return self.socket.recv(1) == b""
        return True
