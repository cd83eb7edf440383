"""A crowd of raw connections in one thread: strangers that connect, log in half or for discovery, and then misbehave.

A Crowd opens connections from many source addresses (127.0.0.0/8 belongs to the loopback interface as a whole), keeps
what they send going and counts what becomes of them. Nothing is read unless a script asks for it.

    crowd = Crowd(port, sources(16))
    crowd.add(2000, deaf_discovery(requests=200))
    crowd.pump(5)                       # until all scripts are through, at most 5 s
    crowd.count("through"), crowd.count("closed")
"""
import selectors
import socket
import time

import iscsi

# How many connections are being opened at a time: fewer than the backlog of a portal.
OPENING_MAX = 128


def sources(count, first=2):
    """So many addresses of the loopback network, none of which is 127.0.0.1."""
    return [f"127.{1 + n // 62500}.{n // 250 % 250}.{first + n % 250}" for n in range(count)]


# Scripts: generators that yield what to send (bytes) or how much to receive (int), and get what was received.

def silent():
    """Connects and says nothing."""
    yield b""


def login_pdu(pairs, csg=1, nsg=3, transit=True, cid=0):
    flags = (0x80 if transit else 0) | csg << 2 | (nsg if transit else 0)
    return iscsi.Pdu(iscsi.LOGIN_REQUEST | iscsi.IMMEDIATE, flags, iscsi.text(pairs), isid=b"\x80\0\0\0\0\x01", tsih=0,
                     itt=1, cid=cid, cmd_sn=1, exp_stat_sn=0).pack()


def half_login(target, initiator="iqn.2026-11.example.tarn:stranger"):
    """Begins a login with CHAP and leaves it there, after a second PDU that is never complete."""
    pairs = [("InitiatorName", initiator), ("SessionType", "Normal"), ("TargetName", target), ("AuthMethod", "CHAP")]
    yield login_pdu(pairs, 0, 0, False)
    yield bytes(40)


def discovery_login(initiator):
    """Logs in for discovery; gives the target's MaxRecvDataSegmentLength."""
    pairs = [("InitiatorName", initiator), ("SessionType", "Discovery"), ("MaxRecvDataSegmentLength", "262144")]
    yield login_pdu(pairs)
    header = yield 48
    length = int.from_bytes(header[5:8], "big")
    data = (yield (length + 3) & ~3) if length else b""
    if header[36:38] != b"\0\0":
        return None
    return int(dict(iscsi.parse_text(data[:length])).get("MaxRecvDataSegmentLength", 8192))


def deaf_discovery(requests=200, initiator="iqn.2026-11.example.tarn:stranger"):
    """Asks SendTargets again and again, and never reads an answer."""
    if (yield from discovery_login(initiator)) is None:
        return
    ask = iscsi.text([("SendTargets", "All")])
    for n in range(requests):
        yield iscsi.Pdu(iscsi.TEXT_REQUEST | iscsi.IMMEDIATE, 0x80, ask, itt=2 + n, ttt=iscsi.NO_TAG, cmd_sn=1,
                        exp_stat_sn=0).pack()


def gap_pings(count=128, initiator="iqn.2026-11.example.tarn:stranger"):
    """Sends pings as large as the target takes them, of which the first never comes."""
    size = yield from discovery_login(initiator)
    if size is None:
        return
    for n in range(count):
        yield iscsi.Pdu(iscsi.NOP_OUT, 0x80, bytes(size), itt=2 + n, ttt=iscsi.NO_TAG, cmd_sn=2 + n,
                        exp_stat_sn=0).pack()


class Member:
    """One connection and where it is in its script. `state` is opening, busy, through, closed or refused."""

    def __init__(self, crowd, source, script):
        self.state, self.script, self.crowd = "opening", script, crowd
        self.out, self.wanted, self.got = memoryview(b""), 0, b""
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((source, 0))
        self.socket.connect_ex(crowd.address)
        crowd.selector.register(self.socket, selectors.EVENT_WRITE, self)

    def advance(self, received=None):
        """Takes the next step of the script; connects it with the selector."""
        try:
            step = next(self.script) if received is None else self.script.send(received)
        except StopIteration:
            self.settle("through")
            return
        self.out, self.wanted, self.got = (memoryview(b""), step, b"") if isinstance(step, int) else (memoryview(step), 0, b"")
        self.crowd.selector.modify(self.socket, selectors.EVENT_READ if self.wanted else selectors.EVENT_WRITE, self)

    def handle(self):
        try:
            if self.state == "opening":
                error = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error:
                    raise OSError(error, "connect")
                self.state = "busy"
                self.advance()
            elif self.wanted:
                piece = self.socket.recv(self.wanted - len(self.got))
                if not piece:
                    raise ConnectionResetError("closed by the target")
                self.got += piece
                if len(self.got) == self.wanted:
                    self.advance(self.got)
            else:
                self.out = self.out[self.socket.send(self.out):] if self.out else self.out
                if not self.out:
                    self.advance()
        except BlockingIOError:
            pass
        except OSError:
            self.settle("refused" if self.state == "opening" else "closed")

    def settle(self, state):
        self.state = state
        self.crowd.selector.unregister(self.socket)
        if state != "through":
            self.socket.close()

    def is_open(self):
        """Whether the target still holds it, as far as the kernel knows."""
        if self.state in ("closed", "refused"):
            return False
        return self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 1   # TCP_ESTABLISHED


class Crowd:
    def __init__(self, port, addresses, host="127.0.0.1"):
        self.address, self.addresses = (host, port), addresses
        self.selector = selectors.DefaultSelector()
        self.members, self.coming = [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def add(self, count, script, *arguments, **options):
        """So many more, each with a script of its own, from the addresses in turn. They come as pump() lets them."""
        self.coming += [(script, arguments, options)] * count

    def pump(self, seconds):
        """Lets them act until every script is through, or stands still for a second, or the time is up."""
        end = time.monotonic() + seconds
        last = time.monotonic()
        while (now := time.monotonic()) < end:
            while self.coming and len(self.selector.get_map()) < OPENING_MAX:
                script, arguments, options = self.coming.pop()
                source = self.addresses[len(self.members) % len(self.addresses)]
                self.members.append(Member(self, source, script(*arguments, **options)))
            if not self.selector.get_map():
                return
            ready = self.selector.select(0.05)
            for key, _ in ready:
                key.data.handle()
            last = now if ready else last
            if now - last > 1:
                self.release()

    def release(self):
        """Those whose target does not go on with them stay as they are, and make room for others."""
        for key in list(self.selector.get_map().values()):
            key.data.settle("through")

    def count(self, state):
        return sum(member.state == state for member in self.members)

    def open(self):
        """How many connections the target still holds."""
        return sum(member.is_open() for member in self.members)

    def close(self):
        for member in self.members:
            member.socket.close()
        self.members, self.coming = [], []
        self.selector.close()


def surround(port, target, count, addresses=64):
    """A crowd of `count` strangers of every kind, still to be pumped: discovery sessions that read nothing, half logins,
    and pings behind a CmdSN gap."""
    strangers = Crowd(port, sources(addresses))
    strangers.add(count // 3, deaf_discovery, 50)
    strangers.add(count // 3, half_login, target)
    strangers.add(count - 2 * (count // 3), gap_pings, 16)
    return strangers
