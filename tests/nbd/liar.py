"""An NBD server that says what a test wants: an honest disk in memory, of which each part can be replaced by a lie.

    with Liar(size=8 << 20) as server:
        ... server.store is how Tarn names it ...
        server.read = server.twice      # from now on

Standard library only.
"""
import socket
import struct
import threading

MIB = 1 << 20
GREETING = b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3)
# HAS_FLAGS, SEND_FLUSH, SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES.
FLAGS = 0x6D
STARTTLS, GO, STRUCTURED_REPLY, SET_META_CONTEXT = 5, 7, 8, 10
ACK, INFO = 1, 3
UNSUPPORTED = 1 << 31 | 1
READ, WRITE, DISCONNECT, FLUSH, TRIM, WRITE_ZEROES = 0, 1, 2, 3, 4, 6
DATA, HOLE, ERROR = 1, 2, 1 << 15 | 1
DONE = 1


class Gone(Exception):
    """The peer has closed, or the test ends."""


class Peer:
    """One connection."""

    def __init__(self, connection):
        self.connection = connection

    def take(self, size):
        data = b""
        while len(data) < size:
            more = self.connection.recv(size - len(data))
            if not more:
                raise Gone
            data += more
        return data

    def send(self, *parts):
        self.connection.sendall(b"".join(parts))

    def reply(self, option, kind, data=b""):
        self.send(struct.pack(">QIII", 0x3E889045565A9, option, kind, len(data)), data)

    def simple(self, cookie, data=b"", error=0):
        self.send(struct.pack(">IIQ", 0x67446698, error, cookie), data)

    def chunk(self, cookie, kind, data=b"", flags=DONE):
        self.send(struct.pack(">IHHQI", 0x668E33EF, flags, kind, cookie, len(data)), data)

    def data(self, cookie, offset, data, flags=0):
        self.chunk(cookie, DATA, struct.pack(">Q", offset) + data, flags)


class Liar:
    """A server on a port of its own."""

    def __init__(self, size=8 * MIB, sizes=(512, 4096, MIB), flags=FLAGS, greeting=GREETING, scheme="nbd"):
        self.size, self.sizes, self.flags, self.greeting = size, sizes, flags, greeting
        self.disk = bytearray(min(size, 64 * MIB))
        self.start_tls = self.no_tls
        self.go = self.honest_go
        self.read = self.honest_read
        # How many READs were answered, truly or not.
        self.reads = 0
        self.is_over = threading.Event()
        self.lock = threading.Lock()
        self.connections = set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.store = f"{scheme}://localhost:{self.listener.getsockname()[1]}/disk"

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()

    def cut(self):
        """Ends all connections."""
        with self.lock:
            for connection in self.connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=[connection], daemon=True).start()

    def serve(self, connection):
        with self.lock:
            self.connections.add(connection)
        try:
            with connection:
                self.converse(Peer(connection))
        except (Gone, OSError):
            pass
        finally:
            with self.lock:
                self.connections.discard(connection)

    def converse(self, peer):
        peer.send(self.greeting)
        peer.take(4)
        has_begun = False
        while not has_begun:
            _, option, length = struct.unpack(">8sII", peer.take(16))
            peer.take(length)
            if option == STRUCTURED_REPLY:
                peer.reply(option, ACK)
            elif option == STARTTLS:
                self.start_tls(peer)
            elif option == GO:
                has_begun = self.go(peer)
            else:
                peer.reply(option, UNSUPPORTED)
        while True:
            _, _, command, cookie, offset, length = struct.unpack(">IHHQQI", peer.take(28))
            if command == DISCONNECT:
                return
            if command == READ:
                self.read(peer, cookie, offset, length)
                self.reads += 1
                continue
            if command == WRITE:
                self.disk[offset:offset + length] = peer.take(length)
            elif command in (TRIM, WRITE_ZEROES):
                self.disk[offset:offset + length] = bytes(length)
            peer.simple(cookie)

    def wait(self):
        """For the end of the test: the connection stays, and nothing comes."""
        self.is_over.wait()
        raise Gone

    # What it says of itself.

    def info(self, peer):
        peer.reply(GO, INFO, struct.pack(">HQH", 0, self.size, self.flags))
        if self.sizes:
            peer.reply(GO, INFO, struct.pack(">HIII", 3, *self.sizes))

    def honest_go(self, peer):
        self.info(peer)
        peer.reply(GO, ACK)
        return True

    def silent_go(self, peer):
        """The first half of the answer."""
        self.info(peer)
        self.wait()

    def slow_go(self, peer):
        """A byte at a time, for ever."""
        while True:
            for byte in struct.pack(">QIII", 0x3E889045565A9, GO, 9, 0):
                peer.send(bytes([byte]))
                if self.is_over.wait(0.3):
                    raise Gone

    def endless_go(self, peer):
        """More and more of what nobody asked for."""
        while True:
            peer.reply(GO, 9, bytes(60_000))

    def closing_go(self, _peer):
        raise Gone

    def no_tls(self, peer):
        peer.reply(STARTTLS, UNSUPPORTED, b"no TLS here")

    def clear_tls(self, peer):
        """Consents, with the answer to what was not asked yet behind it: what an attacker on the way would put there."""
        peer.send(struct.pack(">QIII", 0x3E889045565A9, STARTTLS, ACK, 0),
                  struct.pack(">QIII", 0x3E889045565A9, STRUCTURED_REPLY, ACK, 0))

    # How it answers READ.

    def honest_read(self, peer, cookie, offset, length):
        peer.data(cookie, offset, self.disk[offset:offset + length], DONE)

    def twice(self, peer, cookie, offset, length):
        """The first half two times, which is as many bytes as were asked for."""
        half = length // 2
        for flags in (0, DONE):
            peer.data(cookie, offset, bytes(half), flags)

    def half(self, peer, cookie, offset, length):
        peer.data(cookie, offset, bytes(length // 2), DONE)

    def elsewhere(self, peer, cookie, offset, length):
        peer.data(cookie, offset + length, bytes(length), DONE)

    def to_nobody(self, peer, cookie, offset, length):
        peer.data(cookie + 1, offset, bytes(length), DONE)

    def other_magic(self, peer, _cookie, _offset, length):
        peer.send(bytes(16 + length))

    def wrong_chunk(self, peer, cookie, _offset, _length):
        peer.chunk(cookie, 7)

    def breaks_off(self, peer, cookie, offset, length):
        """The connection ends within the data."""
        peer.send(struct.pack(">IHHQIQ", 0x668E33EF, DONE, DATA, cookie, 8 + length, offset), bytes(length // 2))
        raise Gone

    def stands_still(self, peer, cookie, offset, length):
        """Nothing more comes within the data."""
        peer.send(struct.pack(">IHHQIQ", 0x668E33EF, DONE, DATA, cookie, 8 + length, offset), bytes(length // 2))
        self.wait()
