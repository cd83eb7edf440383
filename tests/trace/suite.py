#!/usr/bin/env python3
"""Traces of sessions and initiators, read back by tshark: what went over a connection is there, and no secret is.

    suite.py [--list] [PATTERN...]
"""
import contextlib
import os
import pathlib
import socket
import stat
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import iscsi
import scsi
from admin import Api, name
from harness import check, equal, main, measured, test, wait_for
from tarn import BINARY, IQN, Tarn, listens, lun_section, target_section, user_section

ME, OTHER = "iqn.2026-11.example:traced", "iqn.2026-11.example:other"
DIGESTS = {"HeaderDigest": "CRC32C", "DataDigest": "CRC32C"}
SMALL = {"MaxRecvDataSegmentLength": "4096", "MaxBurstLength": "16384", "FirstBurstLength": "4096"}
KEEP_MIN = 64 << 10
USER, SECRET = "tester", "tester-secret-0123"
CHAP = user_section(USER, "secret") + lun_section("disk", "mem:16M") + target_section("disk", auth=USER)
REMOTE = """
[admin]
listen = ["127.0.0.1:{port2}"]
tls = false
"""


class Traced(Tarn):
    """A daemon whose traces are read."""

    def start_trace(self, subject=ME, status=201, **limits):
        answer = self.api().ask("PUT", f"traces/{name(str(subject))}", limits)
        equal(answer.status, status, f"start of the trace of {subject}: {answer}")
        return answer.json

    def stop_trace(self, subject=ME):
        self.api().delete(f"traces/{name(str(subject))}")

    def trace(self, subject=ME):
        return Trace(self, self.api().good("GET", f"traces/{name(str(subject))}").body)

    def login(self, initiator=ME, **options):
        return iscsi.Session(self.port, IQN, initiator=initiator, **options)


def with_users(more=""):
    """A daemon that asks for CHAP."""
    tarn = Traced(config=more + CHAP)
    tarn.secret("secret", SECRET)
    return tarn


class Trace:
    """What a trace has, as tshark understands it."""

    def __init__(self, tarn, file):
        self.port, self.bytes = tarn.port, file
        self.path = tarn.dir / "trace.pcap"
        self.path.write_bytes(file)

    def rows(self, *fields, only="iscsi"):
        """The fields of each frame that the filter lets through; of a field that a frame has twice, the first."""
        arguments = [word for field in fields for word in ("-e", field)]
        done = subprocess.run(["tshark", "-n", "-r", self.path, "-d", f"tcp.port=={self.port},iscsi", "-Y", only,
                               "-T", "fields", "-E", "occurrence=f", *arguments], capture_output=True, text=True, timeout=60)
        equal(done.returncode, 0, f"exit code of tshark: {done.stderr}")
        return [tuple(line.split("\t")) for line in done.stdout.splitlines()]

    def pdus(self):
        """(opcode, first byte of the CDB of a command) of all PDUs: requests, responses."""
        rows = self.rows("iscsi.opcode", "scsi_sbc.opcode")
        pdus = [(int(opcode, 16), int(cdb, 16) if opcode == "0x01" else None) for opcode, cdb in rows]
        return [pdu for pdu in pdus if pdu[0] < 0x20], [pdu for pdu in pdus if pdu[0] >= 0x20]

    def check_whole(self):
        """Nothing is missing between the first and the last PDU of a connection, and nothing is malformed."""
        equal(self.rows("frame.number", "frame.protocols", only="_ws.malformed || tcp.analysis.flags"), [], "odd frames")


@contextlib.contextmanager
def witness():
    """What goes over the connections of this process meanwhile, in the form of Trace.pdus."""
    requests, responses = [], []
    send, recv = iscsi.Connection.send, iscsi.Connection.recv

    def note(pdu, where):
        where.append((pdu.opcode, pdu.bhs[32] if pdu.opcode == iscsi.SCSI_COMMAND else None))
        return pdu
    iscsi.Connection.send = lambda self, pdu: send(self, note(pdu, requests))
    iscsi.Connection.recv = lambda self, *arguments: note(recv(self, *arguments), responses)
    try:
        yield requests, responses
    finally:
        iscsi.Connection.send, iscsi.Connection.recv = send, recv


def work(session):
    """One of everything that an initiator does in a day; ends with a failed command."""
    session.clear_unit_attentions()
    for cdb, options in [(scsi.inquiry(), {"read": 255}), (scsi.read_capacity16(), {"read": 32}),
                         (scsi.write16(0, 200), {"write": b"w" * 102400}), (scsi.write10(8, 1), {"write": b"w" * 512}),
                         (scsi.read16(0, 200), {"read": 102400}), (scsi.synchronize_cache16(), {})]:
        check(session.command(cdb, **options).good, f"{cdb.hex()} failed")
    session.nop(b"ping")
    equal(session.tmf(5), 0, "answer to LOGICAL UNIT RESET")
    session.clear_unit_attentions()
    equal(str(session.command(scsi.read16(1 << 40, 1), read=512).sense), "sense 5/21/00", "beyond the end")


@test
def all_pdus_are_there_and_no_others():
    """From the first login request to the answer to the logout; with digests, with small segments, in both directions."""
    for keys in ({}, DIGESTS, SMALL, {**SMALL, **DIGESTS, "ImmediateData": "No", "InitialR2T": "Yes"}):
        with Traced("mem:16M", "mem:16M") as tarn, tarn.login(OTHER) as other:
            tarn.start_trace()
            with witness() as (requests, responses):
                with tarn.login(keys=keys) as session:
                    work(session)
                    session.logout()
            other.clear_unit_attentions()
            trace = tarn.trace()
            equal(trace.pdus(), (requests, responses), f"PDUs with {keys}")
            trace.check_whole()
            status = trace.rows("scsi_sbc.rdwr16.lba", "iscsi.scsiresponse.status", only="iscsi.scsiresponse.status == 2")
            check(status, "the failed command has its status")
            measured(f"{len(requests)} + {len(responses)} PDUs in {len(trace.bytes)} bytes")


@test(limit_s=300)
def a_session_can_be_traced_from_its_middle():
    """The trace begins with the next whole PDU, wherever the stream is: in a header, in data that is copied, in data that
    goes straight to its place."""
    data = bytes(range(256)) * 256
    for digests in ({}, DIGESTS):
        for cut in (0, 1, 47, 48, 52, 1000, 40_000, len(data) - 1):
            with Traced("mem:16M") as tarn, tarn.login(keys={"MaxRecvDataSegmentLength": "262144", **digests}) as session:
                session.clear_unit_attentions()
                connection = session.connection
                sent = []
                connection.send_raw, whole = sent.append, connection.send_raw
                task = session.start(scsi.write16(0, 128), write=data)
                stream = b"".join(sent)
                whole(stream[:cut])
                connection.send_raw = whole
                # An answer on another connection tells nothing; that the daemon has read the bytes does.
                wait_for(lambda: unread(connection) == 0, 5, "the daemon reads what came")
                id_ = tarn.session_id(session)
                tarn.start_trace(id_)
                whole(stream[cut:])
                check(session.finish(task).good, f"WRITE cut at {cut}")
                check(session.command(scsi.read16(0, 1), read=512).data == data[:512], "what was written")
                trace = tarn.trace(id_)
                requests, responses = trace.pdus()
                trace.check_whole()
                equal(requests[-1], (iscsi.SCSI_COMMAND, 0x88), f"last request after a cut at {cut}")
                is_first = requests[0] == (iscsi.SCSI_COMMAND, 0x8A)
                header = 52 if digests else 48
                equal(is_first, cut < header, f"the WRITE is there after a cut at {cut}")
                equal(responses[-1][0], iscsi.DATA_IN, f"last response after a cut at {cut}")


def unread(connection):
    """Bytes that the daemon's side of a connection has not taken from the kernel, as /proc tells."""
    (_, ours), (_, theirs) = connection.socket.getsockname(), connection.socket.getpeername()
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if (int(words[1].split(":")[1], 16), int(words[2].split(":")[1], 16)) == (theirs, ours):
            return int(words[4].split(":")[1], 16)
    raise AssertionError("the connection is not in /proc/net/tcp")


@test
def secrets_are_blanked():
    """Of a login with CHAP all is there but the answers to challenges, of the initiator and of the target."""
    with with_users() as tarn:
        tarn.start_trace()
        with tarn.login(chap={"name": USER, "secret": SECRET}):
            pass
        with contextlib.suppress(iscsi.LoginError):
            tarn.login(chap={"name": USER, "secret": SECRET + "x"}).close()
        trace = tarn.trace()
        answers = trace.bytes.split(b"CHAP_R=")[1:]
        equal(len(answers), 2, "answers to a challenge")
        for answer in answers:
            check(set(answer.split(b"\0")[0]) == {ord("*")}, answer[:40])
        for shown in (f"CHAP_N={USER}", "CHAP_C=0x", f"TargetName={IQN}"):
            check(shown.encode() in trace.bytes, f"{shown} is there")
        status = trace.rows("iscsi.login.status", only="iscsi.opcode == 0x23")
        equal(status[-1], ("0x0201",), "status of the login that failed")


@test
def failed_logins_of_an_initiator_are_there():
    with Traced("mem:16M") as tarn:
        tarn.start_trace()
        with contextlib.suppress(iscsi.LoginError):
            iscsi.Session(tarn.port, IQN + "x", initiator=ME.upper().replace("IQN", "iqn")).close()
        with contextlib.suppress(iscsi.LoginError):
            tarn.login(tsih=77).close()
        rows = tarn.trace().rows("iscsi.opcode", "iscsi.login.status")
        equal(rows, [("0x03", ""), ("0x23", "0x0203"), ("0x03", ""), ("0x23", "0x020a")], "requests and answers")


@test
def all_connections_are_there_whatever_their_core():
    """Sessions on several cores, a second connection of a session, a session that replaces another."""
    with Traced("mem:16M", arguments=["--cores", "4"]) as tarn:
        tarn.start_trace()
        with contextlib.ExitStack() as stack, witness() as (requests, responses):
            sessions = [stack.enter_context(tarn.login(keys={"MaxConnections": "2"})) for _ in range(4)]
            equal(len({one["core"] for one in tarn.api().get("sessions")}), 4, "cores with sessions")
            sessions[0].add_connection(1)
            again = stack.enter_context(tarn.login(isid=sessions[1].isid))
            for session in [sessions[0], again, *sessions[2:]]:
                session.clear_unit_attentions()
        trace = tarn.trace()
        trace.check_whole()
        equal(len({row for row in trace.rows("tcp.stream")}), 6, "connections")
        equal(tuple(map(sorted_pdus, trace.pdus())), tuple(map(sorted_pdus, (requests, responses))), "PDUs of all")


def sorted_pdus(pdus):
    """Of several connections only each one's order is known."""
    return sorted(pdus, key=lambda pdu: (pdu[0], pdu[1] or 0))


@test
def data_is_noted_as_it_went():
    """Data that the kernel put straight into the buffer of a task is noted like any other."""
    data = b"".join(number.to_bytes(8, "big") for number in range(64 << 10))
    with Traced("mem:16M") as tarn:
        with tarn.login() as session:
            session.clear_unit_attentions()
            for cdb, options, opcode in [(scsi.write16(0, 1024), {"write": data}, iscsi.DATA_OUT),
                                         (scsi.read16(0, 1024), {"read": len(data)}, iscsi.DATA_IN)]:
                tarn.start_trace()
                check(session.command(cdb, **options).good, f"512 KiB by {cdb.hex()}")
                trace = tarn.trace()
                trace.check_whole()
                rows = trace.rows("iscsi.bufferOffset", only=f"iscsi.opcode == {opcode}")
                check(len(rows) > 1, f"{len(rows)} PDUs of opcode {opcode:#x}")
                for (offset,) in rows:
                    begin = int(offset, 0)
                    equal(trace.bytes.count(data[begin:begin + 64]), 1, f"data from {offset} on")
                tarn.stop_trace()


@test
def only_as_much_data_is_kept_as_was_asked_for():
    block = b"a block that may be secret......" * 16
    for data_bytes, count in [(0, 0), (64, 2), (512, 16)]:
        with Traced("mem:16M") as tarn:
            tarn.start_trace(data_bytes=data_bytes)
            with tarn.login() as session:
                session.clear_unit_attentions()
                check(session.command(scsi.write16(0, 1), write=block).good, "WRITE")
                equal(session.command(scsi.read16(0, 1), read=512).data, block, "what was written")
            trace = tarn.trace()
            trace.check_whole()
            equal(trace.bytes.count(block[:32]), 2 * count, f"pieces of the block with {data_bytes} bytes")


@test
def the_last_pdus_are_kept_while_a_busy_session_is_read():
    """Old ones go, the file stays below its limit, and each file that was read meanwhile is whole."""
    with Traced("mem:16M") as tarn:
        tarn.start_trace(keep_bytes=KEEP_MIN)
        with tarn.login() as session:
            session.clear_unit_attentions()
            is_over, sizes = threading.Event(), []

            def read():
                while not is_over.is_set():
                    sizes.append(len(tarn.api().good("GET", f"traces/{name(ME)}").body))
            reader = threading.Thread(target=read)
            reader.start()
            for lba in range(1500):
                check(session.command(scsi.read16(lba, 1), read=512).good, f"READ of {lba}")
            is_over.set()
            reader.join()
            trace = tarn.trace()
            (told,) = tarn.api().get("traces")
        trace.check_whole()
        check(max(sizes) <= KEEP_MIN + 24, f"{max(sizes)} bytes")
        rows = trace.rows("scsi_sbc.rdwr16.lba", only="iscsi.opcode == 1")
        numbers = [int(lba, 16) for (lba,) in rows]
        equal(numbers, list(range(1500 - len(numbers), 1500)), "the last commands")
        check(len(numbers) > 100, f"{len(numbers)} commands")
        check(told["dropped"] > 2000, told)
        measured(f"{len(numbers)} commands in {len(trace.bytes)} bytes, {len(sizes)} files read meanwhile")


@test
def traces_have_limits_and_mistakes_are_told():
    with Traced("mem:16M") as tarn, tarn.login() as session:
        api = tarn.api()

        def refused(status, kind, method, path, body=None):
            answer = api.ask(method, path, body)
            equal((answer.status, answer.kind), (status, kind), f"{method} {path}")
        id_ = tarn.session_id(session)
        refused(404, "not-found", "PUT", f"traces/{id_ + 1}", {})
        refused(404, "not-found", "GET", f"traces/{id_}")
        refused(404, "not-found", "DELETE", f"traces/{id_}")
        refused(400, "bad-request", "PUT", "traces/blade", {})
        refused(400, "bad-request", "PUT", f"traces/{name(ME)}", {"data_bytes": 8193})
        refused(400, "bad-request", "PUT", f"traces/{name(ME)}", {"keep_bytes": KEEP_MIN - 1})
        refused(400, "bad-request", "PUT", f"traces/{name(ME)}", {"pdus": 5})
        subjects = [id_, *(f"{ME}{n}" for n in range(7))]
        for subject in subjects:
            tarn.start_trace(subject)
        refused(409, "conflict", "PUT", f"traces/{name(ME)}", {})
        equal([trace["subject"] for trace in api.get("traces")], list(map(str, subjects)), "traces")
        # The same again is nothing new; other limits are.
        session.clear_unit_attentions()
        check(tarn.start_trace(id_, status=200)["pdus"] > 0, "the trace goes on")
        equal(tarn.start_trace(id_, data_bytes=0)["pdus"], 0, "PDUs of the trace that began anew")
        for subject in subjects:
            tarn.stop_trace(subject)
        equal(api.get("traces"), [], "traces after their end")
        check(session.command(scsi.test_unit_ready()).good, "the session goes on")


@test
def a_trace_that_was_stopped_costs_nothing():
    """Neither its memory nor the taps of a session that goes on are left."""
    with Traced("mem:16M") as tarn, tarn.login() as session:
        session.clear_unit_attentions()

        def trace_some():
            tarn.start_trace(data_bytes=8192, keep_bytes=16 << 20)
            for _ in range(100):
                check(session.command(scsi.read16(0, 16), read=8192).good, "READ of 8 KiB")
            held = len(tarn.trace().bytes)
            check(held > 100 * 8192, f"{held} bytes of a trace")
            tarn.stop_trace()
        for _ in range(5):
            trace_some()
        before = tarn.heap_bytes()
        for _ in range(20):
            trace_some()
        more = tarn.heap_bytes() - before
        measured(f"{more >> 10} KiB more memory after 20 traces of 800 KiB")
        check(more < 4 << 20, f"{more} bytes more memory")


@test
def files_on_their_way_are_bounded():
    """Readers that do not read hold two files; further ones are told to wait, and the sessions go on."""
    with Traced("mem:16M") as tarn, tarn.login() as session, contextlib.ExitStack() as stack:
        session.clear_unit_attentions()
        tarn.start_trace(data_bytes=8192, keep_bytes=16 << 20)
        for _ in range(1000):
            check(session.command(scsi.read16(0, 16), read=8192).good, "READ of 8 KiB")
        idle = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(8)]
        for one in idle:
            one.connect(str(tarn.socket))
            one.sendall(f"GET /api/v1/traces/{name(ME)} HTTP/1.1\r\nHost: tarn\r\n\r\n".encode())
        statuses = [one.recv(13).decode() for one in idle]
        equal(sorted(statuses), ["HTTP/1.1 200 "] * 2 + ["HTTP/1.1 503 "] * 6, "answers")
        equal(tarn.api().ask("GET", f"traces/{name(ME)}").status, 503, "one more")
        check(session.command(scsi.read16(0, 16), read=8192).good, "READ meanwhile")
        for one in idle:
            one.close()
        wait_for(lambda: tarn.api().ask("GET", f"traces/{name(ME)}").status == 200, 10, "a place")


@test
def viewers_see_no_data():
    with with_users(REMOTE) as tarn:
        wait_for(lambda: listens(tarn.port2), 10, "the administration listens")
        tarn.start_trace()

        def ask(role, method):
            token = tarn.api().post("tokens", {"name": f"{role}-{method}", "role": role})["token"]
            remote = Api(address=("127.0.0.1", tarn.port2), plain=True, token=token)
            equal(remote.ask("GET", "traces").status, 200, f"the list for {role}")
            return remote.ask(method, f"traces/{name(ME)}", {} if method == "PUT" else None).status
        equal([ask("viewer", method) for method in ("GET", "PUT", "DELETE")], [403] * 3, "answers to a viewer")
        equal([ask("operator", method) for method in ("GET", "PUT", "DELETE")], [200, 200, 204], "answers to an operator")
        reads = [event["message"] for event in tarn.api().get("events") if event["kind"] == "admin-read"]
        check(len(reads) == 1 and "by operator" in reads[0] and reads[0].endswith(": 200"), f"who has read it: {reads}")


@test
def a_trace_outlives_its_session_and_follows_no_other():
    """The record is there after the end; the next session has another id and is not in it."""
    with Traced("mem:16M") as tarn:
        with tarn.login() as session:
            id_ = tarn.session_id(session)
            tarn.start_trace(id_)
            session.clear_unit_attentions()
            session.logout()
        wait_for(lambda: not tarn.api().get("sessions"), 10, "the end of the session")
        before = tarn.trace(id_)
        equal(before.pdus()[1][-1][0], iscsi.LOGOUT_RESPONSE, "last response")
        with tarn.login(OTHER) as other:
            check(tarn.session_id(other) > id_, "the id of the next session")
            other.clear_unit_attentions()
        equal(tarn.trace(id_).bytes, before.bytes, "the trace")


@test
def the_command_line_has_it_all():
    """Start, list, save to a private file and to the standard output, stop; and each mistake."""
    with Traced("mem:16M") as tarn:
        def run(*arguments, code=0):
            done = subprocess.run([BINARY, "trace", *map(str, arguments)], capture_output=True, timeout=30,
                                  env=tarn.environment(), cwd=tarn.dir)
            equal(done.returncode, code, f"tarn trace {arguments}: {done.stderr}")
            return done.stdout if not code else done.stderr.decode()
        equal(run("start", ME, "--bytes", 0, "--keep", "64k"), f"{ME} is traced from now on\n".encode(), "start")
        equal(run("start", ME, "--bytes", 0, "--keep", "64k"), f"{ME} is traced already\n".encode(), "start again")
        with tarn.login() as session:
            work(session)
        lines = run("list").decode().splitlines()
        equal(lines[0].split(), ["SUBJECT", "SINCE", "PDUS", "DROPPED", "DATA", "KEEPS"], "titles")
        check(lines[1].startswith(ME) and lines[1].endswith("64 KiB"), lines[1])
        os.umask(0)
        check(run("save", ME, "-o", "out.pcap").startswith(b"out.pcap: "), "what save says")
        saved = tarn.dir / "out.pcap"
        equal(stat.S_IMODE(saved.stat().st_mode), 0o600, "mode of the file")
        equal(saved.read_bytes(), tarn.trace().bytes, "what was saved")
        equal(run("save", ME, "-o", "-"), saved.read_bytes(), "what went to the standard output")
        check("tarn trace list" in run("save", OTHER, "-o", "x", code=5), "no such trace")
        check("directory" in run("save", ME, "-o", "no/x.pcap", code=2), "no such directory")
        check("8192" in run("start", ME, "--bytes", 9000, code=2), "too much data")
        check("neither" in run("start", "blade", code=2), "no subject")
        check("tarn session list" in run("start", 65535, code=5), "no such session")
        equal(run("stop", ME), f"{ME} is traced no more\n".encode(), "stop")
        run("stop", ME, code=5)


if __name__ == "__main__":
    main()
