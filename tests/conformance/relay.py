"""A relay between initiators and a target that sends what goes either way to `judge` of the crate `reference`, as a record.

A record is a sequence of: the connection (4 bytes), what happened (1 byte), how many bytes follow (4 bytes), these. What an
initiator sent is recorded before the target can get it, an answer before the initiator can.
"""
import contextlib
import selectors
import socket
import struct
import subprocess
import threading

FROM_INITIATOR, FROM_TARGET, CLOSED, QUIET = range(4)


class Relay:
    """Listens on a free port for each port of the target. A context manager; `ports` are its own, `command` is the judge."""

    def __init__(self, ports, command):
        self.judge = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.lock = threading.Lock()
        self.connections = 0
        self.listeners = [socket.create_server(("127.0.0.1", 0)) for _ in ports]
        self.ports = [listener.getsockname()[1] for listener in self.listeners]
        for listener, port in zip(self.listeners, ports):
            threading.Thread(target=self._accept, args=(listener, port), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for listener in self.listeners:
            listener.close()
        self.judge.kill()
        self.judge.wait()

    def judgement(self):
        """What the judge says of all, and whether there was no breach."""
        with self.lock:
            said, _ = self.judge.communicate()
        return said.decode().strip(), self.judge.returncode == 0

    def record(self, connection, what, data=b""):
        with self.lock, contextlib.suppress(BrokenPipeError):
            # A judge that has ended says why.
            if not self.judge.stdin.closed:
                self.judge.stdin.write(struct.pack(">IBI", connection, what, len(data)) + data)

    def quiet(self):
        """The target has no session any more."""
        self.record(0, QUIET)

    def _accept(self, listener, port):
        while True:
            try:
                initiator, _ = listener.accept()
            except OSError:
                return
            with self.lock:
                self.connections += 1
                number = self.connections
            threading.Thread(target=self._carry, args=(initiator, port, number), daemon=True).start()

    def _carry(self, initiator, port, number):
        with initiator, contextlib.suppress(ConnectionError):     # libiscsi also connects again after a target has gone
            with socket.create_connection(("127.0.0.1", port)) as target, selectors.DefaultSelector() as selector:
                for one in (initiator, target):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(initiator, selectors.EVENT_READ, (FROM_INITIATOR, target))
                selector.register(target, selectors.EVENT_READ, (FROM_TARGET, initiator))
                while all(self._pass_on(key.fileobj, *key.data, number) for key, _ in selector.select()):
                    pass
        self.record(number, CLOSED)

    def _pass_on(self, source, what, sink, number):
        """Whether the connection goes on."""
        try:
            data = source.recv(1 << 18)
            if not data:
                return False
            self.record(number, what, data)
            sink.sendall(data)
        except ConnectionError:
            return False
        return True
