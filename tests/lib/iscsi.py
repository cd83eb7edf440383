"""A raw iSCSI initiator for tests: full control over every byte, and strict about what the target sends.

Connection sends and receives PDUs. Session logs in, numbers commands, moves data, and checks on every PDU it receives
that StatSN has no gap and that the command window does not shrink. Whatever a test wants to get wrong it builds with
Pdu and sends with Connection.send.

Spec: RFC 7143; names are those of the RFC.
"""
import base64
import hashlib
import os
import select
import socket
import struct
import time

import scsi

# Opcodes (RFC 7143 section 11.2.1.2).
NOP_OUT, SCSI_COMMAND, TMF_REQUEST, LOGIN_REQUEST, TEXT_REQUEST, DATA_OUT, LOGOUT_REQUEST, SNACK = \
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x10
NOP_IN, SCSI_RESPONSE, TMF_RESPONSE, LOGIN_RESPONSE, TEXT_RESPONSE, DATA_IN, LOGOUT_RESPONSE, R2T, ASYNC, REJECT = \
    0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x31, 0x32, 0x3F
IMMEDIATE = 0x40
NO_TAG = 0xFFFFFFFF
BHS = 48

# Task management functions and responses (RFC 7143 sections 11.5.1 and 11.6.1).
ABORT_TASK, ABORT_TASK_SET, CLEAR_ACA, CLEAR_TASK_SET, LU_RESET, TARGET_WARM_RESET, TARGET_COLD_RESET, TASK_REASSIGN = \
    range(1, 9)
TMF_COMPLETE, TMF_NO_TASK, TMF_NO_LUN, TMF_REJECTED = 0, 1, 2, 255

# Task attributes (RFC 7143 section 11.3.1).
UNTAGGED, SIMPLE, ORDERED, HEAD_OF_QUEUE, ACA = range(5)

DEFAULT_KEYS = {
    "HeaderDigest": "None", "DataDigest": "None", "MaxRecvDataSegmentLength": "262144", "MaxBurstLength": "262144",
    "FirstBurstLength": "65536", "InitialR2T": "No", "ImmediateData": "Yes", "MaxOutstandingR2T": "1",
    "MaxConnections": "1", "ErrorRecoveryLevel": "0", "DefaultTime2Wait": "2", "DefaultTime2Retain": "0",
}
# What holds when a key is not negotiated (RFC 7143 section 13).
KEYS_WITHOUT_NEGOTIATION = {
    "HeaderDigest": "None", "DataDigest": "None", "MaxRecvDataSegmentLength": "8192", "MaxBurstLength": "262144",
    "FirstBurstLength": "65536", "InitialR2T": "Yes", "ImmediateData": "Yes", "MaxOutstandingR2T": "1",
    "MaxConnections": "1", "ErrorRecoveryLevel": "0",
}
CHAP_HASHES = {5: "md5", 6: "sha1", 7: "sha256", 8: "sha3_256"}


class Closed(Exception):
    """The target closed the connection."""


class Timeout(Exception):
    """Nothing arrived in time."""


class ProtocolError(Exception):
    """The target sent what the standard does not allow."""


class LoginError(Exception):
    """The target refused the login; `status` is class and detail, such as 0x0201."""

    def __init__(self, status):
        super().__init__(f"login status {status:04x}")
        self.status = status


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC = _crc_table()


def crc32c(data):
    """The digest as it lies on the wire, four bytes (RFC 7143 section 13.1)."""
    crc = 0xFFFFFFFF
    table = _CRC
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return struct.pack("<I", crc ^ 0xFFFFFFFF)


def pad4(data):
    return data + bytes(-len(data) % 4)


def serial_lt(a, b):
    """a before b in serial number arithmetic of 32 bits (RFC 1982)."""
    return a != b and (b - a) % 2**32 < 2**31


def text(keys):
    """Key=value pairs as a data segment; takes a dict or a list of pairs."""
    pairs = keys.items() if isinstance(keys, dict) else keys
    return b"".join(f"{k}={v}".encode() + b"\0" for k, v in pairs)


def parse_text(data):
    """The pairs of a data segment in order."""
    pairs = []
    for item in data.split(b"\0"):
        if item:
            key, _, value = item.decode("utf-8", "replace").partition("=")
            pairs.append((key, value))
    return pairs


class Pdu:
    """A PDU in parts: basic header segment, additional header segments, data segment (without padding)."""

    __slots__ = ("bhs", "ahs", "data")

    def __init__(self, opcode=0, flags=0, data=b"", ahs=b"", **fields):
        self.bhs = bytearray(BHS)
        self.bhs[0], self.bhs[1] = opcode, flags
        self.ahs, self.data = ahs, data
        self.bhs[4] = len(ahs) // 4
        self.bhs[5:8] = (len(data) & 0xFFFFFF).to_bytes(3, "big")
        for name, value in fields.items():
            self.put(name, value)

    # Offset and length of the header fields that several kinds share, and of some that one kind has.
    FIELDS = {
        "lun": (8, 8), "isid": (8, 6), "tsih": (14, 2), "itt": (16, 4), "ttt": (20, 4), "edtl": (20, 4),
        "ref_itt": (20, 4), "cid": (20, 2), "cmd_sn": (24, 4), "stat_sn": (24, 4), "exp_stat_sn": (28, 4),
        "exp_cmd_sn": (28, 4), "max_cmd_sn": (32, 4), "ref_cmd_sn": (32, 4), "data_sn": (36, 4), "exp_data_sn": (36, 4),
        "r2t_sn": (36, 4), "buffer_offset": (40, 4), "bidi_residual": (40, 4), "desired_length": (44, 4), "residual": (44, 4),
        "begrun": (40, 4), "runlength": (44, 4), "event": (36, 1), "param1": (38, 2), "param2": (40, 2), "param3": (42, 2),
        "time2wait": (40, 2), "time2retain": (42, 2), "login_status": (36, 2),
        "data_in_status": (3, 1), "response": (2, 1), "status": (3, 1),
    }

    def put(self, name, value):
        if name == "cdb":
            self.bhs[32:48] = bytes(value[:16]).ljust(16, b"\0")
            return
        if name == "lun":
            value = scsi.lun_field(value)
        at, size = self.FIELDS[name]
        self.bhs[at:at + size] = value if isinstance(value, (bytes, bytearray)) else (value % 256**size).to_bytes(size, "big")

    def __getattr__(self, name):
        if name not in Pdu.FIELDS:
            raise AttributeError(name)
        at, size = Pdu.FIELDS[name]
        return int.from_bytes(self.bhs[at:at + size], "big")

    @property
    def opcode(self):
        return self.bhs[0] & 0x3F

    @property
    def flags(self):
        return self.bhs[1]

    def pack(self, header_digest=False, data_digest=False):
        header = bytes(self.bhs) + self.ahs
        out = header + (crc32c(header) if header_digest else b"")
        if self.data:
            body = pad4(self.data)
            out += body + (crc32c(body) if data_digest else b"")
        return out

    def __repr__(self):
        return f"<PDU {self.opcode:#04x} flags {self.flags:#04x} {self.bhs[16:48].hex(' ', 4)} +{len(self.data)}>"


class Connection:
    """A TCP connection that carries PDUs. Digests are off until the login switches them on. `segment_bytes`: it takes no
    larger segments, as an initiator with a smaller MTU."""

    def __init__(self, port, host="127.0.0.1", timeout_s=10, segment_bytes=None):
        self.timeout_s = timeout_s
        self.socket = socket.socket()
        self.socket.settimeout(timeout_s)
        if segment_bytes is not None:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment_bytes)
        self.socket.connect((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.header_digest = self.data_digest = False
        self.exp_stat_sn = 0
        self.cid = 0

    def send(self, pdu):
        self.send_raw(pdu.pack(self.header_digest, self.data_digest))

    def send_raw(self, data):
        try:
            self.socket.sendall(data)
        except (ConnectionResetError, BrokenPipeError) as error:
            raise Closed(str(error)) from None

    def _read(self, size, deadline):
        parts = []
        while size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Timeout()
            self.socket.settimeout(left)
            try:
                part = self.socket.recv(min(size, 1 << 20))
            except socket.timeout:
                raise Timeout() from None
            except ConnectionResetError as error:
                raise Closed(str(error)) from None
            if not part:
                raise Closed("end of stream")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def recv(self, timeout_s=None):
        """The next PDU. Raises Closed or Timeout; ProtocolError for a wrong digest."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        pdu = Pdu()
        pdu.bhs[:] = self._read(BHS, deadline)
        pdu.ahs = self._read(pdu.bhs[4] * 4, deadline)
        if self.header_digest and self._read(4, deadline) != crc32c(bytes(pdu.bhs) + pdu.ahs):
            raise ProtocolError(f"header digest of {pdu}")
        length = int.from_bytes(pdu.bhs[5:8], "big")
        body = self._read((length + 3) & ~3, deadline)
        if length and self.data_digest and self._read(4, deadline) != crc32c(body):
            raise ProtocolError(f"data digest of {pdu}")
        pdu.data = body[:length]
        return pdu

    def readable(self, seconds=0):
        return bool(select.select([self.socket], [], [], seconds)[0])

    def closed_within(self, seconds):
        """True if the target ends this connection in time; what it still sends is read and dropped."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                if not self.socket.recv(1 << 16):
                    return True
            except socket.timeout:
                return False
            except OSError:
                return True
        return False

    def reset(self):
        """Closes it the hard way, with a TCP reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self):
        self.socket.close()


class Task:
    """A SCSI command on its way."""

    def __init__(self, itt, cmd_sn, connection, read_bytes, write, answer_r2t):
        self.itt, self.cmd_sn, self.connection = itt, cmd_sn, connection
        self.write, self.answer_r2t = write, answer_r2t
        self.lun = 0
        self.data = bytearray(read_bytes)
        self.received = 0
        self.data_sn = self.r2t_sn = 0
        self.r2ts = []
        self.outcome = None


class Outcome:
    """How a SCSI command ended."""

    def __init__(self, pdu, data):
        self.status, self.response, self.flags = pdu.status, pdu.response, pdu.flags
        self.data = data
        self.residual = pdu.residual if pdu.flags & 0x06 else 0
        self.overflow, self.underflow = bool(pdu.flags & 0x04), bool(pdu.flags & 0x02)
        self.sense = scsi.Sense(b"")
        if pdu.opcode == SCSI_RESPONSE and len(pdu.data) >= 2:
            length = int.from_bytes(pdu.data[:2], "big")
            self.sense = scsi.Sense(pdu.data[2:2 + length])

    @property
    def good(self):
        return self.response == 0 and self.status == scsi.GOOD

    def __repr__(self):
        return f"<status {self.status:#04x} {self.sense} {len(self.data)} bytes, residual {self.residual}>"


class Session:
    """One session. Logs in at once unless `login` is False; then `connection` is there for the test to use."""

    def __init__(self, port, target=None, initiator="iqn.2026-11.example.tarn:tester", isid=None, keys=None, chap=None,
                 cmd_sn=1, tsih=0, host="127.0.0.1", login=True, timeout_s=10):
        self.port, self.host, self.target, self.initiator = port, host, target, initiator
        self.isid = isid if isid is not None else b"\x80" + os.urandom(5)
        self.tsih = tsih
        self.cmd_sn = cmd_sn
        self.exp_cmd_sn = self.max_cmd_sn = cmd_sn
        self.chap = chap
        self.offered = {**DEFAULT_KEYS, **(keys or {})}
        self.params = dict(KEYS_WITHOUT_NEGOTIATION)
        self.answered = []
        self.timeout_s = timeout_s
        self._itt = int.from_bytes(os.urandom(2), "big") << 8
        self.tasks, self.answers = {}, {}
        self.asyncs, self.rejects, self.pings = [], [], 0
        self.answer_pings = True
        self.connections = []
        self.add_connection(0, login=login)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def connection(self):
        return self.connections[0]

    def close(self):
        for connection in self.connections:
            connection.close()

    def itt(self):
        self._itt = (self._itt + 1) % NO_TAG
        return self._itt

    # Login.

    def add_connection(self, cid, login=True):
        connection = Connection(self.port, self.host, self.timeout_s)
        connection.cid = cid
        self.connections.append(connection)
        if login:
            try:
                self._login(connection)
            except BaseException:
                connection.close()
                self.connections.remove(connection)
                raise
        return connection

    def names(self):
        """The declarations that every login starts with."""
        pairs = [("InitiatorName", self.initiator)]
        if self.target is None:
            pairs.append(("SessionType", "Discovery"))
        else:
            pairs += [("SessionType", "Normal"), ("TargetName", self.target)]
        return pairs

    def login_pdu(self, connection, csg, nsg, transit, pairs, itt=0x10, **fields):
        flags = (0x80 if transit else 0) | csg << 2 | (nsg if transit else 0)
        data = pairs if isinstance(pairs, bytes) else text(pairs)
        return Pdu(LOGIN_REQUEST | IMMEDIATE, flags, data, **{
            "isid": self.isid, "tsih": self.tsih, "itt": itt, "cid": connection.cid, "cmd_sn": self.cmd_sn,
            "exp_stat_sn": connection.exp_stat_sn, **fields})

    def _exchange(self, connection, csg, nsg, transit, pairs):
        """One login request and its answer, which may come in several PDUs. Returns flags and pairs."""
        connection.send(self.login_pdu(connection, csg, nsg, transit, pairs))
        data = b""
        while True:
            answer = connection.recv()
            if answer.opcode != LOGIN_RESPONSE:
                raise ProtocolError(f"{answer} in login")
            if answer.login_status:
                raise LoginError(answer.login_status)
            connection.exp_stat_sn = (answer.stat_sn + 1) % 2**32
            self.exp_cmd_sn, self.max_cmd_sn = answer.exp_cmd_sn, answer.max_cmd_sn
            data += answer.data
            if not answer.flags & 0x40:
                break
            connection.send(self.login_pdu(connection, csg, 0, False, b""))
        pairs = parse_text(data)
        self.answered += pairs
        return answer, pairs

    def _login(self, connection):
        pairs = self.names()
        if self.chap:
            pairs = self._authenticate(connection, pairs)
        leading_only = {"MaxConnections", "InitialR2T", "ImmediateData", "MaxBurstLength", "FirstBurstLength",
                        "MaxOutstandingR2T", "ErrorRecoveryLevel", "DefaultTime2Wait", "DefaultTime2Retain"}
        offer = [(k, v) for k, v in self.offered.items() if v is not None]
        if self.target is None:
            offer = [(k, v) for k, v in offer if k in ("HeaderDigest", "DataDigest", "MaxRecvDataSegmentLength")]
        elif self.tsih:
            offer = [(k, v) for k, v in offer if k not in leading_only]
        pairs = pairs + offer
        negotiated = {}
        for _ in range(8):
            answer, got = self._exchange(connection, 1, 3, True, pairs)
            negotiated.update(got)
            if answer.flags & 0x83 == 0x83:
                break
            pairs = []
        else:
            raise ProtocolError("the login does not come to an end")
        if self.tsih == 0:
            self.tsih = answer.tsih
            if self.target is not None and not self.tsih:
                raise ProtocolError("TSIH 0 at the end of a leading login")
        self.params.update({k: v for k, v in negotiated.items() if k in self.params and v != "Irrelevant"})
        connection.header_digest = negotiated.get("HeaderDigest") == "CRC32C"
        connection.data_digest = negotiated.get("DataDigest") == "CRC32C"
        self.itt()

    def _authenticate(self, connection, pairs):
        """The security stage. `chap` has name, secret and perhaps algorithms, mutual_name, mutual_secret."""
        chap = self.chap
        _, got = self._exchange(connection, 0, 0, False, pairs + [("AuthMethod", "CHAP")])
        if dict(got).get("AuthMethod") != "CHAP":
            raise ProtocolError(f"answer to AuthMethod=CHAP: {got}")
        algorithms = chap.get("algorithms", [5])
        _, got = self._exchange(connection, 0, 0, False, [("CHAP_A", ",".join(map(str, algorithms)))])
        got = dict(got)
        algorithm = int(got["CHAP_A"])
        if algorithm not in algorithms:
            raise ProtocolError(f"CHAP_A={algorithm} was not offered")
        self.chap_algorithm = algorithm
        answer = chap_response(algorithm, int(got["CHAP_I"], 0), chap["secret"], binary(got["CHAP_C"]))
        request = [("CHAP_N", chap["name"]), ("CHAP_R", "0x" + answer.hex())]
        if "mutual_secret" in chap:
            identifier, challenge = os.urandom(1)[0], os.urandom(16)
            request += [("CHAP_I", str(identifier)), ("CHAP_C", "0x" + challenge.hex())]
        reply, got = self._exchange(connection, 0, 1, True, request)
        if "mutual_secret" in chap:
            got = dict(got)
            want = chap_response(algorithm, identifier, chap["mutual_secret"], challenge)
            if binary(got.get("CHAP_R", "0x")) != want or got.get("CHAP_N") != chap["mutual_name"]:
                raise ProtocolError("the target did not prove its secret")
        if not reply.flags & 0x80:
            raise ProtocolError("the target does not leave the security stage")
        return []

    # Receiving.

    def pump(self, connection=None, timeout_s=None):
        """Receives one PDU, books it, answers what needs an answer, and returns it."""
        connection = connection or self.connection
        pdu = connection.recv(self.timeout_s if timeout_s is None else timeout_s)
        self._check_numbers(connection, pdu)
        if pdu.opcode == R2T:
            self._on_r2t(connection, pdu)
        elif pdu.opcode == DATA_IN:
            self._on_data_in(pdu)
        elif pdu.opcode == SCSI_RESPONSE:
            task = self.tasks.pop(pdu.itt, None)
            if task is None:
                raise ProtocolError(f"response for an unknown task: {pdu}")
            task.outcome = Outcome(pdu, bytes(task.data[:task.received]))
        elif pdu.opcode == NOP_IN and pdu.itt == NO_TAG:
            self.pings += pdu.ttt != NO_TAG
            if pdu.ttt != NO_TAG and self.answer_pings:
                connection.send(Pdu(NOP_OUT | IMMEDIATE, 0x80, itt=NO_TAG, ttt=pdu.ttt, cmd_sn=self.cmd_sn,
                                    exp_stat_sn=connection.exp_stat_sn))
        elif pdu.opcode == ASYNC:
            self.asyncs.append(pdu)
        elif pdu.opcode == REJECT:
            self.rejects.append(pdu)
        elif pdu.opcode in (NOP_IN, TMF_RESPONSE, TEXT_RESPONSE, LOGOUT_RESPONSE):
            self.answers[pdu.itt] = pdu
        else:
            raise ProtocolError(f"a target does not send {pdu}")
        return pdu

    def _check_numbers(self, connection, pdu):
        if pdu.opcode == DATA_IN and not pdu.flags & 0x01:
            numbered = False            # StatSN is reserved here
        else:
            if pdu.stat_sn != connection.exp_stat_sn:
                raise ProtocolError(f"StatSN {pdu.stat_sn:#x}, expected {connection.exp_stat_sn:#x}: {pdu}")
            numbered = pdu.opcode != R2T and not (pdu.opcode == NOP_IN and pdu.itt == NO_TAG)
        if numbered:
            connection.exp_stat_sn = (connection.exp_stat_sn + 1) % 2**32
        if serial_lt(self.exp_cmd_sn, pdu.exp_cmd_sn):
            self.exp_cmd_sn = pdu.exp_cmd_sn
        if serial_lt(self.max_cmd_sn, pdu.max_cmd_sn):
            self.max_cmd_sn = pdu.max_cmd_sn
        if len(self.connections) == 1 and serial_lt(pdu.max_cmd_sn, self.max_cmd_sn):
            raise ProtocolError(f"the command window shrinks to {pdu.max_cmd_sn:#x}: {pdu}")

    def _on_r2t(self, connection, pdu):
        task = self.tasks.get(pdu.itt)
        if task is None:
            raise ProtocolError(f"R2T for an unknown task: {pdu}")
        if pdu.r2t_sn != task.r2t_sn:
            raise ProtocolError(f"R2TSN {pdu.r2t_sn}, expected {task.r2t_sn}")
        task.r2t_sn += 1
        if not 0 < pdu.desired_length <= int(self.params["MaxBurstLength"]):
            raise ProtocolError(f"R2T for {pdu.desired_length} bytes")
        if pdu.buffer_offset + pdu.desired_length > len(task.write):
            raise ProtocolError(f"R2T beyond the data: {pdu.buffer_offset}+{pdu.desired_length} of {len(task.write)}")
        task.r2ts.append(pdu)
        if task.answer_r2t:
            self.send_data(task, pdu)

    def send_data(self, task, r2t):
        """Sends what an R2T asks for."""
        data = task.write[r2t.buffer_offset:r2t.buffer_offset + r2t.desired_length]
        self.data_out(task, data, r2t.buffer_offset, r2t.ttt)

    def data_out(self, task, data, offset, ttt):
        """Sends one sequence of Data-Out PDUs."""
        step = min(int(self.params["MaxRecvDataSegmentLength"]), 262144)
        pieces = [data[i:i + step] for i in range(0, len(data), step)] or [b""]
        for data_sn, piece in enumerate(pieces):
            final = 0x80 if data_sn == len(pieces) - 1 else 0
            task.connection.send(Pdu(DATA_OUT, final, piece, lun=task.lun, itt=task.itt, ttt=ttt, data_sn=data_sn,
                                     exp_stat_sn=task.connection.exp_stat_sn, buffer_offset=offset))
            offset += len(piece)

    def _on_data_in(self, pdu):
        task = self.tasks.get(pdu.itt)
        if task is None:
            raise ProtocolError(f"Data-In for an unknown task: {pdu}")
        if pdu.data_sn != task.data_sn:
            raise ProtocolError(f"Data-In with DataSN {pdu.data_sn}, expected {task.data_sn}")
        if len(pdu.data) > int(self.offered["MaxRecvDataSegmentLength"] or 8192):
            raise ProtocolError(f"Data-In of {len(pdu.data)} bytes exceeds MaxRecvDataSegmentLength")
        task.data_sn += 1
        end = pdu.buffer_offset + len(pdu.data)
        if end > len(task.data):
            raise ProtocolError(f"Data-In up to {end}, expected data transfer length {len(task.data)}")
        task.data[pdu.buffer_offset:end] = pdu.data
        task.received = max(task.received, end)
        if pdu.flags & 0x01:
            del self.tasks[pdu.itt]
            task.outcome = Outcome(pdu, bytes(task.data[:task.received]))

    # SCSI commands.

    def start(self, cdb, *, read=0, write=b"", lun=0, attribute=SIMPLE, immediate=False, unsolicited=None, edtl=None,
              connection=None, answer_r2t=True, cmd_sn=None):
        """Sends a command. `unsolicited` is how many bytes go without R2T (default: as much as was negotiated)."""
        connection = connection or self.connection
        if cmd_sn is None and not immediate:
            while serial_lt(self.max_cmd_sn, self.cmd_sn):
                self.pump(connection)
        length = edtl if edtl is not None else (len(write) or read)
        first_burst = int(self.params["FirstBurstLength"])
        if unsolicited is None:
            unsolicited = len(write) if self.params["InitialR2T"] == "No" else \
                (int(self.params["MaxRecvDataSegmentLength"]) if self.params["ImmediateData"] == "Yes" else 0)
        unsolicited = min(unsolicited, first_burst, len(write))
        inline = min(unsolicited, int(self.params["MaxRecvDataSegmentLength"])) if self.params["ImmediateData"] == "Yes" else 0
        more = unsolicited - inline
        flags = (0 if more else 0x80) | (0x40 if read else 0) | (0x20 if write else 0) | attribute
        task = Task(self.itt(), self.cmd_sn if cmd_sn is None else cmd_sn, connection, read, write, answer_r2t)
        task.lun = lun
        self.tasks[task.itt] = task
        ahs = b""
        if len(cdb) > 16:       # Extended CDB (RFC 7143 section 11.2.2.3)
            ahs = pad4(struct.pack(">HBB", len(cdb) - 15, 1, 0) + bytes(cdb[16:]))
        connection.send(Pdu(SCSI_COMMAND | (IMMEDIATE if immediate else 0), flags, write[:inline], ahs, lun=lun, itt=task.itt,
                            edtl=length, cmd_sn=task.cmd_sn, exp_stat_sn=connection.exp_stat_sn, cdb=cdb))
        if cmd_sn is None and not immediate:
            self.cmd_sn = (self.cmd_sn + 1) % 2**32
        if more:
            self.data_out(task, write[inline:unsolicited], inline, NO_TAG)
        return task

    def finish(self, task, timeout_s=None):
        """Waits for the outcome of a command."""
        end = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        while task.outcome is None:
            self.pump(task.connection, max(0.0, end - time.monotonic()))
        return task.outcome

    def command(self, cdb, **options):
        return self.finish(self.start(cdb, **options))

    def clear_unit_attentions(self, lun=0):
        """Takes what a new nexus is owed, as initiators do. Returns the unit attentions."""
        taken = []
        for _ in range(16):
            outcome = self.command(scsi.test_unit_ready(), lun=lun)
            if outcome.status != scsi.CHECK_CONDITION or outcome.sense.key != scsi.UNIT_ATTENTION:
                return taken
            taken.append(outcome.sense.code)
        raise ProtocolError("unit attentions without end")

    # The other requests.

    def request(self, pdu, connection=None):
        """Sends a numbered or immediate request other than a SCSI command; returns its tag."""
        connection = connection or self.connection
        pdu.put("cmd_sn", self.cmd_sn)
        pdu.put("exp_stat_sn", connection.exp_stat_sn)
        connection.send(pdu)
        if not pdu.bhs[0] & IMMEDIATE:
            self.cmd_sn = (self.cmd_sn + 1) % 2**32
        return pdu.itt

    def answer(self, itt, connection=None, timeout_s=None):
        """Waits for the answer to a request."""
        end = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        while itt not in self.answers:
            self.pump(connection or self.connection, max(0.0, end - time.monotonic()))
        return self.answers.pop(itt)

    def tmf(self, function, lun=0, task=None, timeout_s=None, connection=None):
        """A task management function; returns the response code."""
        itt = self.request(Pdu(TMF_REQUEST | IMMEDIATE, 0x80 | function, lun=lun, itt=self.itt(),
                               ref_itt=task.itt if task else NO_TAG, ref_cmd_sn=task.cmd_sn if task else 0), connection)
        return self.answer(itt, connection, timeout_s).response

    def nop(self, data=b"", connection=None, timeout_s=None):
        """A ping; returns what comes back."""
        itt = self.request(Pdu(NOP_OUT | IMMEDIATE, 0x80, data, itt=self.itt(), ttt=NO_TAG), connection)
        return self.answer(itt, connection, timeout_s).data

    def text(self, pairs, connection=None):
        """A text exchange to its end; returns all pairs."""
        data, ttt = b"", NO_TAG
        body, itt = text(pairs), self.itt()
        while True:
            self.request(Pdu(TEXT_REQUEST, 0x80, body, itt=itt, ttt=ttt), connection)
            answer = self.answer(itt, connection)
            data += answer.data
            if answer.flags & 0x80:
                return parse_text(data)
            body, ttt = b"", answer.ttt

    def logout(self, reason=0, cid=0, connection=None):
        """Returns the response code."""
        itt = self.request(Pdu(LOGOUT_REQUEST | IMMEDIATE, 0x80 | reason, itt=self.itt(), cid=cid), connection)
        return self.answer(itt, connection).response


def chap_response(algorithm, identifier, secret, challenge):
    return hashlib.new(CHAP_HASHES[algorithm], bytes([identifier]) + secret.encode() + challenge).digest()


def binary(value):
    """A binary value: hexadecimal or base64 (RFC 7143 section 6.1)."""
    if value[:2] in ("0x", "0X"):
        digits = value[2:]
        return bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2))
    if value[:2] in ("0b", "0B"):
        return base64.b64decode(value[2:])
    raise ProtocolError(f"not a binary value: {value}")
