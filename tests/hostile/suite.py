#!/usr/bin/env python3
"""Hostile input, before and after login. One Tarn takes it all.

After every attack that same process must be alive, hold no more memory than its pools allow, take a fresh login, and give
back the canary blocks unchanged.

    suite.py [--list] [PATTERN...]

Spec: RFC 7143 (what a target must answer), SPC-4 (REPORT SUPPORTED OPERATION CODES usage data).
"""
import os
import pathlib
import random
import socket
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
import iscsi
import scsi
from harness import check, equal, measured, wait_for
from iscsi import IMMEDIATE, NO_TAG, Pdu
from tarn import IQN, Tarn, lun_section, raise_descriptor_limit, target_section, user_section

MIB = 1 << 20
BLOCK = 512
LOGIN_S = 2
CANARY_LBA, CANARY = 4096, bytes(range(256)) * 16
# Two pools of 64 MiB, the store of 64 MiB, and as much again for the program and all that is kept for sessions.
RSS_MAX_BYTES = 256 * MIB

CONFIG = lun_section("disk", "mem:64M") + user_section("tester") + target_section("disk") + \
    target_section("disk", name=f"{IQN}-chap", auth="tester") + f"""
[limits]
login_timeout_seconds = {LOGIN_S}
nop_interval_seconds = 2
nop_timeout_seconds = 3
"""

tarn = None     # the one process; attack() starts it, and anew only after it died


def victim():
    global tarn
    if tarn is None or not tarn.alive():
        if tarn:
            tarn.close()
        tarn = Tarn(config=CONFIG)
        tarn.secret("secret", "tester-secret-0123")
        tarn.start()
        with session() as s:
            check(s.command(scsi.write16(CANARY_LBA, 8), write=CANARY).good, "the canary is written")
    return tarn


def session(**options):
    s = iscsi.Session(tarn.port, IQN, **options)
    s.clear_unit_attentions()
    return s


def fresh_login(patience_s):
    """Logs in, perhaps after waiting for room, and reads the canary. Returns the seconds it took."""
    start = time.monotonic()

    def attempt():
        try:
            with iscsi.Session(tarn.port, IQN, initiator="iqn.2026-11.example.tarn:survivor") as s:
                s.clear_unit_attentions()
                return s.command(scsi.read16(CANARY_LBA, 8), read=4096).data
        except (iscsi.Closed, iscsi.LoginError, iscsi.Timeout, OSError) as error:
            attempt.last = error
            return None
    data = wait_for(attempt, patience_s, "a fresh login works", step_s=0.2)
    equal(data, CANARY, "the canary")
    return time.monotonic() - start


def survives(patience_s=5):
    check(tarn.alive(), f"tarn died with {tarn.process.poll()}:\n{tarn.log_tail()}")
    fresh_login(patience_s)
    rss = tarn.rss_bytes()
    check(rss <= RSS_MAX_BYTES, f"{rss // MIB} MiB resident, the limit is {RSS_MAX_BYTES // MIB} MiB")
    measured(f"{rss // MIB} MiB resident")
    tarn.check_log()


def attack(function=None, *, limit_s=60):
    """Marks a function as an attack: a test that the process must survive."""
    def mark(f):
        def run():
            victim()
            f()
            survives()
        run.__doc__ = f.__doc__
        harness.add(f.__name__, run, limit_s)
        return f
    return mark(function) if function else mark


def answer_or_close(connection, seconds=3):
    """What the target does: a PDU, or "closed". Silence is a failure."""
    try:
        return connection.recv(seconds)
    except iscsi.Closed:
        return "closed"
    except iscsi.Timeout:
        raise harness.Failure("neither an answer nor an end") from None


def send_quietly(connection, data):
    """Sends as far as the target lets us. Returns whether all of it went."""
    try:
        connection.send_raw(data)
        return True
    except (iscsi.Closed, OSError):
        return False


def first_login(s, pairs=None, **fields):
    """A leading login request as a legal one would be."""
    return s.login_pdu(s.connection, 1, 3, True, s.names() + [("HeaderDigest", "None")] if pairs is None else pairs, **fields)


# Before login.

@attack
def garbage_instead_of_a_login():
    """200 connections with random bytes."""
    dice = random.Random(1)
    for _ in range(200):
        connection = iscsi.Connection(tarn.port)
        send_quietly(connection, dice.randbytes(dice.randrange(1, 4096)))
        connection.close()


@attack
def a_login_cut_at_every_byte():
    """A legal login request of which only the first n bytes come, for every n."""
    whole = first_login(iscsi.Session(tarn.port, IQN, login=False)).pack()
    for n in range(len(whole)):
        connection = iscsi.Connection(tarn.port)
        connection.send_raw(whole[:n])
        connection.close()
    measured(f"{len(whole)} cuts")


@attack
def every_opcode_before_the_login():
    """Anything but a login request ends the connection, perhaps after a Login Response 020B."""
    for opcode in range(0x80):
        if opcode & 0x3F == iscsi.LOGIN_REQUEST:
            continue
        with iscsi.Session(tarn.port, IQN, login=False) as s:
            s.connection.send(Pdu(opcode, 0x80, itt=1, ttt=NO_TAG))
            answer = answer_or_close(s.connection)
            if answer != "closed":
                equal((answer.opcode, answer.login_status), (iscsi.LOGIN_RESPONSE, 0x020B), f"answer to opcode {opcode:#x}")
                check(s.connection.closed_within(3), f"open after opcode {opcode:#x}")


@attack
def a_login_that_lies_about_its_length():
    """A data segment of 16 MiB or 64 KiB is announced: no memory for it, and an end."""
    for length in (0xFFFFFF, 65536, 8193 + 4):
        with iscsi.Session(tarn.port, IQN, login=False) as s:
            pdu = first_login(s)
            pdu.bhs[5:8] = length.to_bytes(3, "big")
            before = tarn.rss_bytes()
            if send_quietly(s.connection, bytes(pdu.bhs)):
                send_quietly(s.connection, b"A=b\0" * 4096)
            check(tarn.rss_bytes() - before < 4 * MIB, "memory grew by what was announced")
            check(s.connection.closed_within(LOGIN_S + 3), f"still open after announcing {length} bytes")


@attack
def login_keys_that_never_end():
    """Login requests with the C bit and ever new keys: the target puts an end to it, early."""
    sent = 0
    with iscsi.Session(tarn.port, IQN, login=False) as s:
        for n in range(100_000):
            keys = [(f"X-key-{n}-{i}", "v" * 200) for i in range(30)]
            pdu = s.login_pdu(s.connection, 1, 0, False, s.names() + keys if n == 0 else keys)
            pdu.bhs[1] |= 0x40
            if not send_quietly(s.connection, pdu.pack()):
                break
            sent += len(pdu.data)
            try:
                answer = s.connection.recv(3)
            except iscsi.Closed:
                break
            if answer.login_status:
                break
        else:
            raise harness.Failure(f"{sent} bytes of keys were taken")
    measured(f"ended after {sent} bytes of keys")
    check(sent <= MIB, f"{sent} bytes of keys were taken")


@attack
def a_login_that_never_ends():
    """Login requests without T for ever: over at the login deadline."""
    with iscsi.Session(tarn.port, IQN, login=False) as s:
        start = time.monotonic()
        s.connection.send(s.login_pdu(s.connection, 1, 0, False, s.names()))
        while time.monotonic() - start < LOGIN_S + 5:
            try:
                answer = s.connection.recv(3)
                if answer.login_status:
                    break
                time.sleep(0.01)
                s.connection.send(s.login_pdu(s.connection, 1, 0, False, []))
            except (iscsi.Closed, iscsi.Timeout):
                break
        seconds = time.monotonic() - start
        measured(f"over after {seconds:.1f} s")
        check(seconds < LOGIN_S + 4, f"{seconds:.1f} s")


def refused(pairs=None, what="", status=None, **fields):
    """A login request that must be refused: a status other than 0, or an end."""
    with iscsi.Session(tarn.port, IQN, login=False) as s:
        names = dict(s.names())
        pairs = pairs(names) if callable(pairs) else pairs
        pdu = first_login(s, pairs, **fields)
        if not send_quietly(s.connection, pdu.pack()):
            return
        answer = answer_or_close(s.connection, LOGIN_S + 3)
        if answer == "closed":
            check(status is None, f"{what}: closed, expected login status {status}")
            return
        equal(answer.opcode, iscsi.LOGIN_RESPONSE, f"answer to {what}")
        check(answer.login_status != 0, f"{what}: the login went on")
        if status is not None:
            equal(answer.login_status, status, f"login status for {what}")


@attack
def malformed_keys():
    """Each is refused or ends the connection; none is taken."""
    names = iscsi.text([("InitiatorName", "iqn.2026-11.example.tarn:tester"), ("SessionType", "Normal"), ("TargetName", IQN)])
    for what, data in {
        "no key at all": b"", "no equals sign": names + b"HeaderDigest\0", "an empty key": names + b"=None\0",
        "a key of 100 bytes": names + b"K" * 100 + b"=v\0",
        "a value of 8000 bytes": names + b"InitiatorAlias=" + b"v" * 7000 + b"\0",
        "a key twice": names + b"MaxBurstLength=512\0MaxBurstLength=1024\0",
        "InitiatorName twice": names + b"InitiatorName=iqn.2026-11.example.tarn:two\0",
        "a name that is none": names.replace(b"iqn.2026-11.example.tarn:tester", b"nobody"),
        "a name of 300 bytes": names.replace(b"example.tarn:tester", b"x" * 300),
        "a target name of 300 bytes": names.replace(IQN.encode(), b"iqn.2026-11." + b"x" * 300),
        "no UTF-8": names.replace(b"tarn:tester", b"\xff\xfe\x80"),
        "SessionType of another kind": names.replace(b"Normal", b"Strange"),
    }.items():
        refused(data, what)


@attack
def values_out_of_range_do_not_pass():
    """A key with a value that it cannot have is answered Reject, or the login is refused; it is never agreed to."""
    for key, value in (("MaxBurstLength", "0"), ("MaxBurstLength", "511"), ("MaxBurstLength", "16777216"), ("MaxBurstLength", "-1"),
                       ("MaxBurstLength", "9" * 100), ("FirstBurstLength", "0x"),
                       ("MaxOutstandingR2T", "0"), ("MaxOutstandingR2T", "65536"), ("MaxConnections", "0"), ("InitialR2T", "yes"),
                       ("ImmediateData", ""), ("ErrorRecoveryLevel", "3"), ("DefaultTime2Wait", "3601"), ("HeaderDigest", "MD5"),
                       ("HeaderDigest", ""), ("DataPDUInOrder", "Maybe")):
        with iscsi.Session(tarn.port, IQN, login=False) as s:
            s.connection.send(first_login(s, s.names() + [(key, value)]))
            answer = answer_or_close(s.connection)
            if answer == "closed" or answer.login_status:
                continue
            got = dict(iscsi.parse_text(answer.data)).get(key)
            check(got in ("Reject", "Irrelevant", "None"),
                  f"{key}={value[:20]} was answered with {got}")


@attack
def every_stage_and_flag_of_a_login():
    """All 256 values of the flags byte: a legal answer or an end, never silence."""
    went_on = 0
    for flags in range(256):
        with iscsi.Session(tarn.port, IQN, login=False) as s:
            pdu = first_login(s)
            pdu.bhs[1] = flags
            s.connection.send(pdu)
            answer = answer_or_close(s.connection, LOGIN_S + 3)
            if answer != "closed":
                equal(answer.opcode, iscsi.LOGIN_RESPONSE, f"answer to flags {flags:#x}")
                if answer.login_status == 0:
                    went_on += 1
                    csg, nsg = flags >> 2 & 3, flags & 3
                    check(csg in (0, 1), f"flags {flags:#x} passed: current stage {csg}")
                    check(not flags & 0x80 or nsg in (1, 3) and nsg > csg, f"flags {flags:#x} passed: next stage {nsg}")
                    check(flags & 0xC0 != 0xC0, f"flags {flags:#x} passed: T and C")
    measured(f"{went_on} of 256 went on")


@attack
def logins_refused_with_the_right_status():
    """Version 0205, missing names 0207, unknown target 0203, unknown session 020A."""
    with iscsi.Session(tarn.port, IQN, login=False) as s:
        pdu = first_login(s)
        pdu.bhs[2], pdu.bhs[3] = 5, 5
        s.connection.send(pdu)
        equal(s.connection.recv().login_status, 0x0205, "status for version 5 only")
    refused(lambda n: [("SessionType", "Normal"), ("TargetName", IQN)], "no InitiatorName", 0x0207)
    refused(lambda n: [("InitiatorName", n["InitiatorName"])], "no TargetName", 0x0207)
    refused(lambda n: [("InitiatorName", n["InitiatorName"]), ("TargetName", IQN + "-nowhere")], "an unknown target", 0x0203)
    refused(None, "an unknown TSIH", 0x020A, tsih=0x4321)


@attack
def chap_out_of_order():
    """A response before the challenge, an empty list, an over-long challenge, no name: refused or ended each time."""
    for what, steps in {
        "CHAP_R first": [[("CHAP_N", "tester"), ("CHAP_R", "0x" + "00" * 16)]],
        "an empty list": [[("CHAP_A", "")]],
        "a list of 2000 numbers": [[("CHAP_A", ",".join(str(n) for n in range(10, 1500)))]],
        "CHAP_A twice": [[("CHAP_A", "5")], [("CHAP_A", "5")]],
        "no CHAP_N": [[("CHAP_A", "5")], [("CHAP_R", "0x" + "00" * 16)]],
        "CHAP_R that is no number": [[("CHAP_A", "5")], [("CHAP_N", "tester"), ("CHAP_R", "zz")]],
        "CHAP_R of 4000 bytes": [[("CHAP_A", "5")], [("CHAP_N", "tester"), ("CHAP_R", "0x" + "ab" * 3500)]],
        "CHAP_C of 4000 bytes": [[("CHAP_A", "5")], [("CHAP_N", "tester"), ("CHAP_R", "0x" + "00" * 16), ("CHAP_I", "1"),
                                                      ("CHAP_C", "0x" + "ab" * 3000)]],
        "the next stage at once": [[("HeaderDigest", "None")]],
    }.items():
        with iscsi.Session(tarn.port, IQN + "-chap", login=False) as s:
            s.connection.send(s.login_pdu(s.connection, 0, 0, False, s.names() + [("AuthMethod", "CHAP")]))
            answer = answer_or_close(s.connection)
            for step in steps:
                last = step is steps[-1]
                check(answer != "closed" and answer.login_status == 0, f"{what}: over too early")
                if not send_quietly(s.connection, s.login_pdu(s.connection, 0, 1, last, step).pack()):
                    answer = "closed"
                    break
                answer = answer_or_close(s.connection, LOGIN_S + 3)
            check(answer == "closed" or answer.login_status or not answer.flags & 0x80, f"{what}: passed the security stage")


@attack
def a_login_with_header_segments():
    """Additional header segments of all lengths in a login request: an answer or an end."""
    for words in (1, 2, 255):
        with iscsi.Session(tarn.port, IQN, login=False) as s:
            pdu = first_login(s)
            pdu.ahs = b"\x00\x01\x00\x00" * words
            pdu.bhs[4] = words
            send_quietly(s.connection, pdu.pack())
            answer_or_close(s.connection, LOGIN_S + 3)


@attack(limit_s=180)
def ten_thousand_half_open_connections():
    """10,000 connections that say nothing: memory stays small, a login works meanwhile, and all are gone after their deadline."""
    limit = raise_descriptor_limit(11_000)
    count = min(10_000, limit - 200)
    before = tarn.descriptors()
    sockets, refused_connections = [], 0
    start = time.monotonic()
    for _ in range(count):
        try:
            sockets.append(socket.create_connection(("127.0.0.1", tarn.port), timeout=5))
        except OSError:
            refused_connections += 1
    opened = time.monotonic() - start
    measured(f"{len(sockets)} connections in {opened:.1f} s, {refused_connections} refused, {tarn.descriptors()} descriptors,"
             f" {tarn.rss_bytes() // MIB} MiB resident")
    check(len(sockets) + refused_connections >= min(count, 10_000), "not that many connections")
    check(tarn.rss_bytes() <= RSS_MAX_BYTES, "memory")
    measured(f"fresh login after {fresh_login(LOGIN_S + 10):.1f} s")
    for s in sockets:
        s.close()
    wait_for(lambda: tarn.descriptors() <= before + 8, LOGIN_S + 10, "the descriptors are given back")


@attack
def a_storm_of_connects():
    """3,000 connections, each closed at once, half of them with a reset."""
    start = time.monotonic()
    for n in range(3000):
        connection = iscsi.Connection(tarn.port)
        connection.reset() if n % 2 else connection.close()
    measured(f"{3000 / (time.monotonic() - start):.0f} a second")


@attack
def drips():
    """100 connections that send a login byte by byte, slowly: all dropped at the login deadline."""
    connections = [iscsi.Connection(tarn.port) for _ in range(100)]
    whole = first_login(iscsi.Session(tarn.port, IQN, login=False)).pack()
    start = time.monotonic()
    open_ones = connections
    for byte in whole:
        open_ones = [c for c in open_ones if send_quietly(c, bytes([byte]))]
        if not open_ones or time.monotonic() - start > LOGIN_S + 5:
            break
        time.sleep(0.1)
    seconds = time.monotonic() - start
    measured(f"{len(connections) - len(open_ones)} of 100 dropped after {seconds:.1f} s")
    check(not open_ones, f"{len(open_ones)} are still open after {seconds:.1f} s")
    for connection in connections:
        connection.close()


# In full feature phase.

REQUESTS = {
    "NOP-Out": lambda s: Pdu(iscsi.NOP_OUT, 0x80, b"ping" * 10, itt=s.itt(), ttt=NO_TAG),
    "SCSI Command": lambda s: Pdu(iscsi.SCSI_COMMAND, 0xA1, bytes(512), itt=s.itt(), edtl=512, cdb=scsi.write16(0, 1)),
    "TMF": lambda s: Pdu(iscsi.TMF_REQUEST, 0x82, itt=s.itt(), ref_itt=NO_TAG),
    "Login": lambda s: Pdu(iscsi.LOGIN_REQUEST | IMMEDIATE, 0x87, iscsi.text(s.names()), itt=s.itt(), isid=s.isid),
    "Text": lambda s: Pdu(iscsi.TEXT_REQUEST, 0x80, b"SendTargets=\0", itt=s.itt(), ttt=NO_TAG),
    "Data-Out": lambda s: Pdu(iscsi.DATA_OUT, 0x80, bytes(512), itt=s.itt(), ttt=1),
    "Logout": lambda s: Pdu(iscsi.LOGOUT_REQUEST, 0x80, itt=s.itt()),
    "SNACK": lambda s: Pdu(iscsi.SNACK, 0x80, itt=NO_TAG, ttt=NO_TAG),
}


def numbered(s, pdu):
    pdu.put("cmd_sn", s.cmd_sn)
    pdu.put("exp_stat_sn", s.connection.exp_stat_sn)
    return pdu


@attack
def every_request_cut_at_many_bytes():
    """Each kind of request of which only the first n bytes come."""
    cuts = 0
    for make in REQUESTS.values():
        with session() as s:
            whole = len(numbered(s, make(s)).pack())
        for n in [*range(1, 48, 5), *range(48, whole, 97)]:
            with session() as s:
                s.connection.send_raw(numbered(s, make(s)).pack()[:n])
                cuts += 1
    measured(f"{cuts} cuts")


@attack
def every_opcode_in_full_feature_phase():
    """All 128 values of the first byte, with and without data: a Reject, an answer or an end."""
    ends = 0
    for opcode in range(128):
        for data in (b"", bytes(512)):
            with session() as s:
                s.connection.send(numbered(s, Pdu(opcode, 0x80, data, itt=s.itt(), ttt=NO_TAG, edtl=0 if opcode & 0x3F == 1 else NO_TAG)))
                try:        # an ignored PDU is legal too; what counts is that the session still answers, or is closed
                    s.cmd_sn += not opcode & IMMEDIATE
                    s.request(Pdu(iscsi.NOP_OUT | IMMEDIATE, 0x80, b"x", itt=s.itt(), ttt=NO_TAG))
                    while not any(p.opcode == iscsi.NOP_IN for p in s.answers.values()):
                        s.pump(timeout_s=5)
                except iscsi.Closed:
                    ends += 1
                except iscsi.ProtocolError as error:
                    # The answer to a command this session object has no task for.
                    check("unknown task" in str(error), f"opcode {opcode:#x}: {error}")
    measured(f"{ends} of 256 ended the connection")


@attack
def segments_longer_than_declared():
    """A data segment above MaxRecvDataSegmentLength ends the connection before it is stored."""
    for length in (1048576 + 4, 0xFFFFFF):
        with session() as s:
            limit = int(s.params["MaxRecvDataSegmentLength"])
            check(length > limit, f"the target declares {limit}")
            pdu = numbered(s, Pdu(iscsi.NOP_OUT | IMMEDIATE, 0x80, itt=s.itt(), ttt=NO_TAG))
            pdu.bhs[5:8] = length.to_bytes(3, "big")
            before = tarn.rss_bytes()
            if send_quietly(s.connection, bytes(pdu.bhs)):
                send_quietly(s.connection, bytes(65536))
            check(tarn.rss_bytes() - before < 4 * MIB, "memory grew by what was announced")
            closed = s.connection.closed_within(5)
            check(closed, f"still open after announcing {length} bytes")


@attack
def header_segments_that_lie():
    """AHS of unknown types, wrong lengths and 1020 bytes: an answer or an end."""
    dice = random.Random(2)
    for n in range(200):
        words = dice.choice((1, 2, 3, 5, 13, 64, 255))
        ahs = bytearray(dice.randbytes(words * 4))
        if n % 2:
            struct.pack_into(">HB", ahs, 0, dice.choice((0, 1, 5, 33, words * 4 - 3, 65535)), dice.choice((1, 2, 0x41, 0xC1)))
        with session() as s:
            s.connection.send(numbered(s, Pdu(iscsi.SCSI_COMMAND, 0xC1, ahs=bytes(ahs), itt=s.itt(), edtl=512, cdb=scsi.read16(0, 1))))
            answer_or_close(s.connection)


@attack
def wrong_digests():
    """A wrong header digest ends the connection; a wrong data digest is never written."""
    keys = {"HeaderDigest": "CRC32C", "DataDigest": "CRC32C"}
    with session(keys=keys) as s:
        raw = bytearray(numbered(s, Pdu(iscsi.NOP_OUT | IMMEDIATE, 0x80, itt=s.itt(), ttt=NO_TAG)).pack(True, True))
        raw[-1] ^= 1
        s.connection.send_raw(bytes(raw))
        check(s.connection.closed_within(5), "still open after a wrong header digest")
    with session(keys=keys) as s:
        pdu = numbered(s, Pdu(iscsi.SCSI_COMMAND, 0xA1, b"\xee" * 4096, itt=s.itt(), edtl=4096, cdb=scsi.write16(CANARY_LBA, 8)))
        raw = bytearray(pdu.pack(True, True))
        raw[-1] ^= 1
        s.connection.send_raw(bytes(raw))
        answer = answer_or_close(s.connection)
        if answer != "closed":
            check(answer.opcode == iscsi.REJECT and answer.response == 0x02 or
                  answer.opcode == iscsi.SCSI_RESPONSE and answer.status == scsi.CHECK_CONDITION, f"answer {answer}")


def waiting_write(s, blocks=256, lba=0):
    """A WRITE that has its first R2T."""
    task = s.start(scsi.write16(lba, blocks), write=b"\xee" * (blocks * BLOCK), unsolicited=0, answer_r2t=False)
    while not task.r2ts:
        s.pump()
    return task


BAD_DATA = {
    "more than asked for": lambda t, r: [dict(data=bytes(r.desired_length + 512), offset=r.buffer_offset, ttt=r.ttt)],
    "much more than asked for": lambda t, r: [dict(data=bytes(65536), offset=r.buffer_offset, ttt=r.ttt)] * 8,
    "behind the end": lambda t, r: [dict(data=bytes(512), offset=len(t.write), ttt=r.ttt)],
    "at the largest offset": lambda t, r: [dict(data=bytes(512), offset=0xFFFFFE00, ttt=r.ttt)],
    "before what was asked for": lambda t, r: [dict(data=bytes(512), offset=(r.buffer_offset - 512) % 2**32, ttt=r.ttt)],
    "with a gap": lambda t, r: [dict(data=bytes(512), offset=r.buffer_offset + 1024, ttt=r.ttt)],
    "with a wrong TTT": lambda t, r: [dict(data=bytes(512), offset=r.buffer_offset, ttt=(r.ttt + 1) % 2**32)],
    "without a TTT": lambda t, r: [dict(data=bytes(512), offset=r.buffer_offset, ttt=NO_TAG)],
    "for an unknown task": lambda t, r: [dict(data=bytes(512), offset=r.buffer_offset, ttt=r.ttt, itt=0x7777)],
    "with DataSN 1 first": lambda t, r: [dict(data=bytes(512), offset=r.buffer_offset, ttt=r.ttt, data_sn=1)],
    "with DataSN -1": lambda t, r: [dict(data=bytes(512), offset=r.buffer_offset, ttt=r.ttt, data_sn=-1)],
    "with DataSN 0 twice": lambda t, r: [dict(data=bytes(512), offset=r.buffer_offset, ttt=r.ttt, data_sn=0, final=False),
                                         dict(data=bytes(512), offset=r.buffer_offset + 512, ttt=r.ttt, data_sn=0)],
    "final too early": lambda t, r: [dict(data=bytes(512), offset=r.buffer_offset, ttt=r.ttt)],
    "empty for ever": lambda t, r: [dict(data=b"", offset=r.buffer_offset, ttt=r.ttt, data_sn=n, final=False) for n in range(100)],
}


@attack
def data_out_that_was_not_asked_for():
    """Sizes, offsets, tags and numbers that no R2T allows: the task fails or the connection ends; it never ends GOOD, and
    no other block changes."""
    for what, make in BAD_DATA.items():
        with session() as s:
            task = waiting_write(s)
            ended = False
            for number, piece in enumerate(make(task, task.r2ts[0])):
                pdu = Pdu(iscsi.DATA_OUT, 0x80 if piece.get("final", True) else 0, piece["data"], itt=piece.get("itt", task.itt),
                          ttt=piece["ttt"], data_sn=piece.get("data_sn", number), buffer_offset=piece["offset"],
                          exp_stat_sn=s.connection.exp_stat_sn)
                if not send_quietly(s.connection, pdu.pack()):
                    ended = True
                    break
            try:
                while not ended and task.outcome is None and not s.rejects:
                    s.pump(timeout_s=1)
            except (iscsi.Closed, iscsi.Timeout):
                pass
            check(task.outcome is None or not task.outcome.good, f"a WRITE with data {what} ended GOOD")
        check(tarn.alive(), f"dead after data {what}")


@attack
def unsolicited_data_that_was_not_agreed():
    """Data with InitialR2T=Yes, immediate data with ImmediateData=No, more than FirstBurstLength: never GOOD."""
    def run(what, keys, flags, inline, pieces):
        with session(keys=keys) as s:
            itt = s.itt()
            pdu = numbered(s, Pdu(iscsi.SCSI_COMMAND, flags | 0x21, inline, itt=itt, edtl=256 * BLOCK, cdb=scsi.write16(0, 256)))
            s.connection.send(pdu)
            offset = len(inline)
            for n, piece in enumerate(pieces):
                last = n == len(pieces) - 1
                if not send_quietly(s.connection, Pdu(iscsi.DATA_OUT, 0x80 if last else 0, piece, itt=itt, ttt=NO_TAG, data_sn=n,
                                                      buffer_offset=offset).pack()):
                    return
                offset += len(piece)
            try:
                while True:
                    answer = s.connection.recv(2)
                    if answer.opcode == iscsi.R2T:
                        continue
                    check(answer.opcode != iscsi.SCSI_RESPONSE or answer.status != scsi.GOOD, f"{what}: ended GOOD")
                    return
            except (iscsi.Closed, iscsi.Timeout):
                pass
    run("unsolicited Data-Out", {"InitialR2T": "Yes", "ImmediateData": "No"}, 0, b"", [bytes(65536)] * 2)
    run("immediate data", {"InitialR2T": "Yes", "ImmediateData": "No"}, 0x80, bytes(4096), [])
    run("more than FirstBurstLength", {"InitialR2T": "No", "ImmediateData": "Yes", "FirstBurstLength": "4096"}, 0, bytes(4096),
        [bytes(32768)] * 3)
    run("more immediate data than expected", {}, 0x80, bytes(200 * BLOCK), [])


@attack
def expected_lengths_that_lie():
    """EDTL of 0, 1 and 4 GiB against CDBs that want something else: residuals or errors, no wait, no memory."""
    with session() as s:
        for cdb, read, write in ((scsi.read16(0, 8), 1, b""), (scsi.read16(0, 8), 0, b""), (scsi.read16(0, 1), 65536, b"")):
            s.command(cdb, read=read, write=write)
        before = tarn.rss_bytes()
        for flags in (0xC1, 0xA1):      # read, write
            task = s.start(scsi.test_unit_ready(), edtl=0)
            s.finish(task)
            itt = s.itt()
            s.tasks[itt] = iscsi.Task(itt, s.cmd_sn, s.connection, 65536, b"", False)
            s.connection.send(numbered(s, Pdu(iscsi.SCSI_COMMAND, flags, itt=itt, edtl=0xFFFFFFFF,
                                              cdb=scsi.read16(0, 8) if flags == 0xC1 else scsi.write16(0, 0))))
            s.cmd_sn += 1
            task = s.tasks[itt]
            s.finish(task, 5)
        check(tarn.rss_bytes() - before < 8 * MIB, "memory grew")


@attack
def text_requests_that_never_end():
    """C-bit text without end, unknown TTTs, garbage: Rejects or an end, bounded memory."""
    for follow in (True, False):        # as one exchange, with the target's tag, and as ever new ones
        with session() as s:
            sent, ttt = 0, NO_TAG
            try:
                for n in range(2000):
                    itt = s.request(Pdu(iscsi.TEXT_REQUEST, 0x40, b"X-k%d=" % n + b"v" * 4000 + b"\0", itt=0x99, ttt=ttt))
                    sent += 4000
                    while itt not in s.answers and not s.rejects:
                        s.pump(timeout_s=3)
                    if s.rejects:
                        break
                    ttt = s.answers.pop(itt).ttt if follow else NO_TAG
            except (iscsi.Closed, iscsi.Timeout):
                pass
            measured(f"{sent} bytes in {'one exchange' if follow else 'many exchanges'}, {len(s.rejects)} Rejects")
            check(not follow or sent <= MIB, f"{sent} bytes of keys were taken in one exchange")
    dice = random.Random(3)
    for _ in range(50):
        with session() as s:
            s.connection.send(numbered(s, Pdu(iscsi.TEXT_REQUEST, dice.choice((0, 0x40, 0x80, 0xC0)), dice.randbytes(dice.randrange(600)),
                                              itt=s.itt(), ttt=dice.choice((NO_TAG, 0, 1, 0x12345678)))))
            try:
                s.connection.recv(1)
            except (iscsi.Closed, iscsi.Timeout):
                pass


@attack
def snack_at_recovery_level_0():
    """A Reject or an end of the connection."""
    for kind in range(4):
        with session() as s:
            s.connection.send(numbered(s, Pdu(iscsi.SNACK, 0x80 | kind, itt=NO_TAG, ttt=NO_TAG)))
            answer = answer_or_close(s.connection)
            check(answer == "closed" or answer.opcode == iscsi.REJECT, f"SNACK {kind} was answered with {answer}")


@attack
def random_pdus():
    """150 sessions, each with a stream of mutated requests from a seed; whatever the target says is fine, but it lives."""
    count = 0
    for seed in range(150):
        dice = random.Random(seed)
        try:
            with session() as s:
                for _ in range(60):
                    pdu = numbered(s, REQUESTS[dice.choice(list(REQUESTS))](s))
                    raw = bytearray(pdu.pack())
                    for _ in range(dice.randrange(1, 6)):
                        # Lengths mostly stay true, else one PDU swallows all that follow.
                        at = dice.randrange(len(raw)) if dice.random() < 0.1 else dice.choice((0, 1, 2, 3, *range(8, 48)))
                        raw[at] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
                    s.connection.send_raw(bytes(raw))
                    count += 1
                    s.cmd_sn = (s.cmd_sn + 1) % 2**32
        except (iscsi.Closed, iscsi.LoginError, iscsi.Timeout, OSError):
            pass
    measured(f"{count} PDUs")
    with session() as s:        # some of these were commands with real effects
        restore(s)


# SCSI commands.

def supported_commands(s):
    """[(opcode, service action or None, usage data)] from REPORT SUPPORTED OPERATION CODES."""
    data = s.command(scsi.report_opcodes(), read=65536).data
    rows = []
    for at in range(4, 4 + int.from_bytes(data[:4], "big"), 8):
        opcode, action, has_action = data[at], int.from_bytes(data[at + 2:at + 4], "big"), data[at + 5] & 1
        one = struct.pack(">BBBBHIBB", 0xA3, 0x0C, 2 if has_action else 1, opcode, action, 512, 0, 0)
        answer = s.command(one, read=512)
        check(answer.good and answer.data[1] & 7 == 3, f"RSOC for opcode {opcode:02x}h: {answer}")
        size = int.from_bytes(answer.data[2:4], "big")
        rows.append((opcode, action if has_action else None, answer.data[4:4 + size]))
    return rows


@attack(limit_s=120)
def every_reserved_bit_of_every_command():
    """Each bit of a CDB that the usage data of the command does not name gives INVALID FIELD IN CDB, and nothing happens."""
    tried = 0
    with session() as s:
        rows = supported_commands(s)
        for opcode, action, usage in rows:
            base = bytearray(len(usage))
            base[0] = opcode
            if action is not None:
                base[1] = action & 0x1F
            for byte in range(1, len(usage)):
                for bit in range(8):
                    if usage[byte] >> bit & 1 or (action is not None and byte == 1 and bit < 5):
                        continue
                    cdb = bytearray(base)
                    cdb[byte] |= 1 << bit
                    outcome = s.command(bytes(cdb), read=4096)
                    if outcome.sense.key == scsi.UNIT_ATTENTION:
                        outcome = s.command(bytes(cdb), read=4096)
                    equal((outcome.status, outcome.sense.key, outcome.sense.code),
                          (scsi.CHECK_CONDITION, scsi.ILLEGAL_REQUEST, scsi.INVALID_FIELD_IN_CDB),
                          f"opcode {opcode:02x}h{f'/{action:02x}h' if action is not None else ''} with bit {bit} of byte {byte}")
                    tried += 1
    measured(f"{len(rows)} commands, {tried} reserved bits")
    check(len(rows) >= 30 and tried >= 500, "fewer commands or bits than there must be")


@attack(limit_s=120)
def every_opcode_and_service_action():
    """All 256 opcodes with all 32 service actions, the rest zero: what RSOC does not list is 5/20/00 or 5/24/00."""
    with session() as s:
        rows = supported_commands(s)
        listed = {(opcode, action) for opcode, action, _ in rows}
        with_action = {opcode for opcode, action, _ in rows if action is not None}
        for opcode in range(256):
            for action in range(32) if opcode in with_action or opcode in (0x7F, 0x9E, 0x9F, 0xA3, 0xA4, 0x5E, 0x5F, 0x83, 0x84) else (0,):
                if (opcode, action) in listed or (opcode, None) in listed:
                    continue
                outcome = s.command(bytes([opcode, action]) + bytes(14), read=4096)
                equal((outcome.status, outcome.sense.key), (scsi.CHECK_CONDITION, scsi.ILLEGAL_REQUEST),
                      f"opcode {opcode:02x}h/{action:02x}h ({outcome})")
                check(outcome.sense.code in (scsi.INVALID_OPCODE, scsi.INVALID_FIELD_IN_CDB), f"opcode {opcode:02x}h/{action:02x}h: {outcome}")
    measured(f"{len(rows)} commands listed")


@attack(limit_s=120)
def random_cdbs():
    """20,000 random CDBs, reading and writing, from a seed: each is answered."""
    dice = random.Random(4)
    statuses = {}
    with session() as s:
        opcodes = [opcode for opcode, _, _ in supported_commands(s)]
        for n in range(20_000):
            cdb = bytearray(dice.randbytes(16))
            if n % 4:
                cdb[0] = dice.choice(opcodes)
            if n % 2:       # most fields small, so that the checks behind the first are reached
                for at in dice.sample(range(1, 16), 11):
                    cdb[at] = 0
            if n % 3:
                outcome = s.command(bytes(cdb), read=dice.choice((512, 4096, 65536)))
            else:
                outcome = s.command(bytes(cdb), write=dice.randbytes(dice.choice((8, 24, 512, 1024))))
            statuses[outcome.status] = statuses.get(outcome.status, 0) + 1
            if n % 500 == 0:
                s.command(bytes([0x1B, 0, 0, 0, 1, 0]))
        restore(s)
    measured(", ".join(f"status {k:02x}h {v}" for k, v in sorted(statuses.items())))


def restore(s):
    """Undoes what random commands may have done: mode pages, reservations, a stopped unit, the canary."""
    s.tmf(iscsi.LU_RESET)
    s.clear_unit_attentions()
    data = s.command(struct.pack(">BB5xHB", 0x5E, 0, 4096, 0), read=4096).data
    for at in range(8, 8 + int.from_bytes(data[4:8], "big"), 8):
        key = data[at:at + 8]
        register = struct.pack(">8s8s4xB3x", bytes(8), key, 0)
        s.command(struct.pack(">BB3xIB", 0x5F, 6, 24, 0), write=register)                        # REGISTER AND IGNORE
        s.command(struct.pack(">BB3xIB", 0x5F, 3, 24, 0), write=struct.pack(">8s16x", key))      # CLEAR
    s.command(bytes([0x1B, 0, 0, 0, 1, 0]))
    s.command(bytes([0x1E, 0, 0, 0, 0, 0]))
    for page in (0x08, 0x0A):       # back to the defaults
        default = s.command(bytes([0x1A, 0x08, 0x80 | page, 0, 255, 0]), read=255).data
        body = bytearray(default[4 + default[3]:])
        body[0] &= 0x3F
        parameters = bytes(4) + bytes(body)
        s.command(bytes([0x15, 0x11, 0, 0, len(parameters), 0]), write=parameters)
    s.clear_unit_attentions()
    outcome = s.command(scsi.write16(CANARY_LBA, 8), write=CANARY)
    check(outcome.good, f"the canary cannot be written again: {outcome}")


@attack(limit_s=120)
def random_parameter_lists():
    """MODE SELECT, UNMAP and PERSISTENT RESERVE OUT with lists that lie about their lengths: each is answered."""
    dice = random.Random(5)
    statuses = {}
    with session() as s:
        for n in range(6000):
            size = dice.choice((0, 1, 3, 4, 7, 8, 12, 20, 23, 24, 25, 40, 255))
            body = bytearray(dice.randbytes(size))
            if n % 2 and size >= 8:     # a plausible beginning
                body[:8] = dice.choice((bytes(8), bytes([0, 0, 0, 0, 0x08, 0x12, 4, 0]), bytes([0, 0, 0, 0, 0x0A, 0x0A, 2, 0]),
                                        struct.pack(">HH4x", dice.randrange(65536), dice.randrange(65536)),
                                        struct.pack(">HH4x", max(0, size - 2), max(0, size - 8))))
            length = dice.choice((size, size, size, 0, 255, size + 1))
            cdb = dice.choice((bytes([0x15, 0x10, 0, 0, length & 0xFF, 0]), struct.pack(">BB5xHB", 0x55, 0x10, length, 0),
                               scsi.unmap(length), struct.pack(">BBB2xIB", 0x5F, dice.randrange(10), dice.randrange(10), length, 0)))
            outcome = s.command(cdb, write=bytes(body)) if body else s.command(cdb)
            statuses[outcome.status] = statuses.get(outcome.status, 0) + 1
        restore(s)
    measured(", ".join(f"status {k:02x}h {v}" for k, v in sorted(statuses.items())))


@attack
def luns_that_are_not_there():
    """All ways to write a LUN: INQUIRY answers with qualifier 011b, others 5/25/00."""
    dice = random.Random(6)
    with session() as s:
        luns = [bytes([kind << 6 | n, n, *rest]) for kind in range(4) for n in (0x01, 0x3F) for rest in ([0] * 6, [0xFF] * 6)]
        luns += [dice.randbytes(8) for _ in range(100)]
        for lun in luns:
            outcome = s.command(scsi.test_unit_ready(), lun=lun)
            equal((outcome.sense.key, outcome.sense.code), (scsi.ILLEGAL_REQUEST, scsi.LUN_NOT_SUPPORTED), f"LUN {lun.hex()}")
            outcome = s.command(scsi.inquiry(length=36), read=36, lun=lun)
            check(outcome.good and outcome.data[0] == 0x7F, f"INQUIRY of LUN {lun.hex()}: {outcome}")


# Greed.

@attack
def a_reader_that_does_not_read():
    """Eight sessions ask for all their window allows and read nothing: memory is bounded and others are served."""
    greedy = [session() for _ in range(8)]
    for s in greedy:
        for n in range(1000):
            if iscsi.serial_lt(s.max_cmd_sn, s.cmd_sn):
                break
            s.start(scsi.read16(0, 2048), read=MIB)
    time.sleep(1)
    measured(f"{tarn.rss_bytes() // MIB} MiB while they wait")
    check(tarn.rss_bytes() <= RSS_MAX_BYTES, "memory")
    measured(f"fresh login after {fresh_login(10):.1f} s")
    for s in greedy:
        s.connection.reset()


@attack
def writers_that_do_not_write():
    """Forty sessions fill their windows with WRITEs and send no data: others are served."""
    lazy = [session() for _ in range(40)]
    waiting = 0
    for s in lazy:
        while not iscsi.serial_lt(s.max_cmd_sn, s.cmd_sn) and len(s.tasks) < 200:
            s.start(scsi.write16(0, 512), write=bytes(256 * 1024), unsolicited=0, answer_r2t=False)
        waiting += len(s.tasks)
    time.sleep(0.5)
    measured(f"{waiting} WRITEs wait, {tarn.rss_bytes() // MIB} MiB")
    with iscsi.Session(tarn.port, IQN, initiator="iqn.2026-11.example.tarn:worker") as worker:
        worker.clear_unit_attentions()
        start = time.monotonic()
        for n in range(50):
            check(worker.command(scsi.write16(8192, 64), write=bytes(32768)).good, "WRITE of another session")
        measured(f"50 WRITEs of another session in {time.monotonic() - start:.2f} s")
    for s in lazy:
        s.connection.reset()


@attack
def a_flood_of_immediate_commands():
    """5,000 immediate pings and task management functions without reading an answer: Rejects or an end, bounded memory."""
    with session() as s:
        s.connection.socket.settimeout(3)
        sent = 0
        for n in range(5000):
            kind = Pdu(iscsi.NOP_OUT | IMMEDIATE, 0x80, bytes(1024), itt=n, ttt=NO_TAG) if n % 2 else \
                Pdu(iscsi.TMF_REQUEST | IMMEDIATE, 0x82, itt=n, ref_itt=NO_TAG)
            try:
                s.connection.send(numbered(s, kind))
            except (iscsi.Closed, OSError):
                break
            sent += 1
        measured(f"{sent} sent, {tarn.rss_bytes() // MIB} MiB")
        check(tarn.rss_bytes() <= RSS_MAX_BYTES, "memory")


@attack
def tags_used_twice():
    """Two commands with one initiator task tag: an error, a Reject or an end, and never a mixed-up answer."""
    with session() as s:
        task = waiting_write(s)
        s.connection.send(numbered(s, Pdu(iscsi.SCSI_COMMAND, 0xC1, itt=task.itt, edtl=512, cdb=scsi.read16(CANARY_LBA, 1))))
        s.cmd_sn += 1
        try:
            answer = s.connection.recv(3)
            check(answer.opcode in (iscsi.REJECT, iscsi.SCSI_RESPONSE) and not (answer.opcode == iscsi.SCSI_RESPONSE and
                  answer.status == scsi.GOOD), f"answer {answer}")
        except (iscsi.Closed, iscsi.Timeout):
            pass


def last_words():
    """The process that took it all ends cleanly, with every descriptor of its peers given back."""
    victim()
    equal(tarn.terminate(), 0, "exit code after SIGTERM")
    tarn.check_log()
    measured(f"{len(tarn.log().splitlines())} lines of log, {os.path.getsize(tarn.log_path) // 1024} KiB")
    check(os.path.getsize(tarn.log_path) < 64 * MIB, "the log grows without bound")
    tarn.close()


harness.add("the_process_that_took_it_all_ends_cleanly", last_words)


if __name__ == "__main__":
    try:
        harness.main(on_failure=lambda: print(f"         log of tarn ends with:\n{tarn.log_tail(15)}") if tarn else None)
    finally:
        if tarn:
            tarn.close()
