#!/usr/bin/env python3
"""Tarn as a server of NBD: real clients get their data, rules of SCSI hold for them, and no client harms anybody else.

    server.py [--list] [PATTERN...]
"""
import contextlib
import pathlib
import random
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import faultfs
import harness
import iscsi
import scsi
from harness import check, equal, test, wait_for
from nbd import FLUSH, GO, INFO, LIST, READ, Raw, STARTTLS, STRUCTURED_REPLY, TRIM, WRITE, WRITE_ZEROES
from tarn import IQN, Tarn, lun_section, run, target_section

MIB = 1 << 20
SIZE = 32 * MIB
EPERM, EIO, EINVAL, ENOSPC = 1, 5, 22, 28
ERR_TLS_REQD = 0x80000005
LIMITS = "[limits]\nlogin_timeout_seconds = 2\nunproved_per_address_max = 8\nshutdown_timeout_seconds = 2\n"

# A process that is confined makes no unix sockets after its start.
UNSEALED = LIMITS + "[confine]\nseccomp = false\n"


def nbd_section(*luns, port="{port2}", keys=""):
    """A section [[nbd]] with these units."""
    names = ", ".join(f'"{id}"' for id in luns)
    return f'[[nbd]]\nbind = "127.0.0.1:{port}"\nluns = [{names}]\n{keys}'


def config(*stores, keys="", more=LIMITS):
    """Units lun0, lun1, ... with these stores, each LUN of a target and export."""
    ids = [f"lun{n}" for n in range(len(stores))]
    units = "".join(lun_section(id, store) for id, store in zip(ids, stores))
    return units + target_section(*ids) + nbd_section(*ids, keys=keys) + more


def serve(*stores, **how):
    return Tarn(config=config(*stores, **how))


def tool(*command, limit_s=40):
    """What a client prints. It must end well."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=limit_s)
    equal(done.returncode, 0, f"exit code of {command[0]} ({done.stderr.strip()})")
    return done.stdout


def uri(tarn, name="lun0"):
    return f"nbd://127.0.0.1:{tarn.port2}/{name}"


def socket_section(*luns, path="{dir}/nbd.sock", keys=""):
    """The same at a unix socket."""
    return nbd_section(*luns, keys=keys).replace('bind = "127.0.0.1:{port2}"', f'socket = "{path}"')


TLS_KEYS = 'certificate = "pki/server-cert.pem"\nkey = "pki/server-key.pem"\n'


def certificates(path):
    """An authority, certificates that it signed for the server and for two clients, and one of another authority."""
    path.mkdir()

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=path, check=True, capture_output=True)
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for name in ("ca", "other-ca"):
        openssl("req", "-x509", *key, "-keyout", f"{name}-key.pem", "-out", f"{name}-cert.pem", "-days", "2", "-subj", f"/CN={name}")
    for name, names, ca in (("server", "DNS:localhost, IP:127.0.0.1", "ca"), ("client", "DNS:one.example", "ca"),
                            ("two", "DNS:two.example", "ca"), ("foreign", "DNS:one.example", "other-ca")):
        (path / "names").write_text(f"subjectAltName = {names}\n")
        openssl("req", *key, "-keyout", f"{name}-key.pem", "-out", "request.pem", "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", "request.pem", "-CA", f"{ca}-cert.pem", "-CAkey", f"{ca}-key.pem", "-CAcreateserial",
                "-days", "2", "-extfile", "names", "-out", f"{name}-cert.pem")
    for name in ("client", "two", "foreign"):
        # As libnbd and QEMU want them.
        directory = path / name
        directory.mkdir()
        shutil.copy(path / "ca-cert.pem", directory)
        shutil.copy(path / f"{name}-cert.pem", directory / "client-cert.pem")
        shutil.copy(path / f"{name}-key.pem", directory / "client-key.pem")
    directory = path / "nobody"
    directory.mkdir()
    shutil.copy(path / "ca-cert.pem", directory)


@contextlib.contextmanager
def serve_tls(*stores, keys="", more=LIMITS):
    """As serve, with TLS, and its certificates in the directory `pki`."""
    tarn = serve(*stores, keys=TLS_KEYS + keys, more=more)
    certificates(tarn.dir / "pki")
    with tarn:
        yield tarn


def tls_uri(tarn, name="lun0", who="nobody"):
    return f"nbds://localhost:{tarn.port2}/{name}?tls-certificates={tarn.dir}/pki/{who}"


def qemu_tls(tarn, name="lun0", who="nobody"):
    """What QEMU needs to connect."""
    return ("--object", f"tls-creds-x509,id=tls0,endpoint=client,dir={tarn.dir}/pki/{who}",
            "--image-opts", f"driver=nbd,host=localhost,port={tarn.port2},export={name},tls-creds=tls0")


def start_tls(client):
    """The reply to STARTTLS."""
    client.send(struct.pack(">I", 3))
    return client.option(STARTTLS)


def over_tls(tarn, client, who=None):
    """Puts TLS under a raw client."""
    context = ssl.create_default_context(cafile=tarn.dir / "pki/ca-cert.pem")
    if who:
        context.load_cert_chain(tarn.dir / f"pki/{who}-cert.pem", tarn.dir / f"pki/{who}-key.pem")
    client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
    return client


def unix_uri(tarn, name="lun0"):
    return f"nbd+unix:///{name}?socket={tarn.dir}/nbd.sock"


@test
def nbdinfo_shows_what_a_unit_is():
    """nbdinfo lists the exports with their sizes, block sizes and what they can do, and maps holes."""
    with serve("mem:32M", "mem:16M?blocksize=4096", "file:{dir}/thick.img?size=1M&thin=false") as tarn:
        listed = tool("nbdinfo", "--list", uri(tarn, ""))
        for words in ('export="lun0"', 'export="lun1"', "block_size_minimum: 4096", "block_size_maximum: 33554432",
                      "can_fua: true", "can_multi_conn: true", "can_df: true", "base:allocation"):
            check(words in listed, f"{words} in {listed}")
        equal(int(tool("nbdinfo", "--size", uri(tarn))), SIZE, "size")
        check("can_trim: false" in tool("nbdinfo", uri(tarn, "lun2")), "no TRIM without thin")
        tool("qemu-io", "-f", "raw", "-c", "write 1M 1M", uri(tarn))
        lines = [line.split() for line in tool("nbdinfo", "--map", uri(tarn)).splitlines()]
        equal([(int(at), int(length), kind) for at, length, kind, _ in lines],
              [(0, MIB, "3"), (MIB, MIB, "0"), (2 * MIB, SIZE - 2 * MIB, "3")], "map")


@test
def nbdcopy_and_qemu_img_get_back_what_they_wrote():
    """Random data with holes goes through nbdcopy and qemu-img to memory and files and back, and an iSCSI initiator reads it."""
    with serve("mem:32M", "file:{dir}/disk.img?size=32M", "file:{dir}/direct.img?size=32M&cache=direct") as tarn:
        data = bytearray(SIZE)
        data[3 * MIB:20 * MIB] = random.Random(1).randbytes(17 * MIB)
        source = tarn.dir / "source"
        source.write_bytes(data)
        for name in ("lun0", "lun1", "lun2"):
            back = tarn.dir / "back"
            tool("nbdcopy", source, uri(tarn, name))
            tool("nbdcopy", uri(tarn, name), back)
            check(back.read_bytes() == data, f"nbdcopy of {name}")
            tool("qemu-io", "-f", "raw", "-c", "discard 0 32M", "-c", "read -P 0 0 32M", uri(tarn, name))
            tool("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", source, uri(tarn, name))
            tool("qemu-img", "compare", "-f", "raw", "-F", "raw", source, uri(tarn, name))
        with iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions(0)
            task = session.command(scsi.read16(3 * MIB // 512, 2048), read=MIB)
            check(task.data == data[3 * MIB:4 * MIB], "READ by iSCSI")


@test
def qemu_io_zeroes_discards_and_flushes():
    """Patterns, zeros with and without space, discards and flushes of qemu-io verify."""
    with serve("mem:32M", "file:{dir}/disk.img?size=32M") as tarn:
        for name in ("lun0", "lun1"):
            tool("qemu-io", "-f", "raw", "-c", "write -P 7 0 8M", "-c", "write -z 1M 1M", "-c", "write -zu 2M 1M",
                 "-c", "discard 3M 1M", "-c", "write -f -P 9 4M 64k", "-c", "flush", "-c", "read -P 7 0 1M",
                 "-c", "read -P 0 1M 3M", "-c", "read -P 9 4M 64k", "-c", "read -P 7 5M 3M", uri(tarn, name))


@test
def a_unit_that_is_not_thin_takes_zeros():
    """WRITE_ZEROES with and without NO_HOLE works on units that are not thin, as qemu-img uses it there; TRIM does not."""
    with serve("mem:32M?thin=false", "file:{dir}/thick.img?size=32M&thin=false") as tarn:
        source = tarn.dir / "source"
        source.write_bytes(bytes(8 * MIB) + b"x" * MIB + bytes(23 * MIB))
        for name in ("lun0", "lun1"):
            with Raw(tarn, name) as client:
                for flags in range(4):
                    equal(client.do(WRITE, 0, MIB, 0, b"y" * MIB), 0, "WRITE")
                    equal(client.do(WRITE_ZEROES, 0, MIB, flags), 0, f"WRITE_ZEROES with flags {flags}")
                    client.request(READ, 0, MIB)
                    equal(client.answer(MIB)[1:], (0, bytes(MIB)), "zeros")
                equal(client.do(TRIM, 0, MIB), EINVAL, "TRIM")
            tool("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", source, uri(tarn, name))
            tool("qemu-img", "compare", "-f", "raw", "-F", "raw", source, uri(tarn, name))


@test
def long_requests_are_served_to_all_clients():
    """Requests of 32 MiB, with simple replies too and others between them, give the right bytes."""
    with serve("mem:64M", "file:{dir}/disk.img?size=64M") as tarn:
        for name in ("lun0", "lun1"):
            with Raw(tarn, name) as client:
                data = random.Random(2).randbytes(SIZE)
                equal(client.do(WRITE, 4096, SIZE, 0, data), 0, "WRITE of 32 MiB")
                wanted = {}
                for n in range(4):
                    wanted[client.request(READ, 4096, SIZE)] = data
                    wanted[client.request(READ, 4096 * (n + 1), 4096)] = data[4096 * n:4096 * (n + 1)]
                while wanted:
                    # The length is that of the request, whose cookie comes before.
                    magic, error, cookie = struct.unpack(">IIQ", client.take(16))
                    equal((magic, error), (0x67446698, 0), "reply")
                    data_of = wanted.pop(cookie)
                    check(client.take(len(data_of)) == data_of, "data of a reply")


@test
def a_read_that_may_not_be_fragmented_is_one_chunk():
    """With DF, data of several commands comes in one chunk; without, each chunk says where it belongs."""
    df = 4
    with serve("mem:32M") as tarn, Raw(tarn, structured=True) as client:
        data = random.Random(5).randbytes(5 * MIB)
        client.request(WRITE, 0, len(data), 0, data)
        client.take(20)
        for flags in (df, 0):
            client.request(READ, 0, len(data), flags)
            chunks, got = 0, bytearray(len(data))
            is_done = False
            while not is_done:
                magic, is_done, kind, _, length = struct.unpack(">IHHQI", client.take(20))
                equal((magic, kind), (0x668e33ef, 1), "magic number and type of a chunk")
                [offset] = struct.unpack(">Q", client.take(8))
                got[offset:offset + length - 8] = client.take(length - 8)
                chunks += 1
            check(got == data, "data")
            check(chunks == 1 or not flags, f"{chunks} chunks")
        equal(client.request(READ, 0, 512), client.cookie, "cookie")
        equal(len(client.take(20 + 8 + 512)), 20 + 8 + 512, "the next reply")


@test
def reservations_and_write_protection_hold_for_clients():
    """While an initiator has reserved the unit, a client reads and does not write where the reservation says so; a read-only
    store, an ejected medium and a full one have their errors."""
    exclusive_access, write_exclusive = 3, 1
    def pr_out(action, kind=0, key=0, new=0):
        cdb = bytes([0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0])
        return cdb, struct.pack(">QQ", key, new) + bytes(8)
    with serve("mem:32M?removable", "mem:1M?readonly") as tarn, iscsi.Session(tarn.port, IQN) as session, Raw(tarn) as client:
        session.clear_unit_attentions(0)
        def out(*arguments, **keys):
            cdb, data = pr_out(*arguments, **keys)
            equal(session.command(cdb, write=data).status, scsi.GOOD, "PERSISTENT RESERVE OUT")
        def errors():
            return [client.do(READ, 0, 512), client.do(WRITE, 0, 512, 0, bytes(512)), client.do(WRITE_ZEROES, 0, 512)]
        equal(errors(), [0, 0, 0], "before")
        out(0, new=7)
        for kind, want in ((write_exclusive, [0, EPERM, EPERM]), (exclusive_access, [EPERM] * 3)):
            out(1, kind, key=7)
            equal(errors(), want, f"reserved with type {kind}")
            out(2, kind, key=7)
            equal(errors(), [0, 0, 0], "released")
        out(0, key=7)
        equal(session.command(scsi.reserve6()).status, scsi.GOOD, "RESERVE (6)")
        equal(errors(), [EPERM] * 3, "reserved by RESERVE (6)")
        equal(session.command(scsi.release6()).status, scsi.GOOD, "RELEASE (6)")
        equal(errors(), [0, 0, 0], "released")
        tarn.api().post("luns/lun0/eject", {})
        equal(errors(), [EIO] * 3, "ejected")
        with Raw(tarn, "lun1") as reader:
            equal(reader.do(READ, 0, 512), 0, "READ of a read-only export")
            equal(reader.do(WRITE, 0, 512, 0, bytes(512)), EPERM, "WRITE to it")
        check("is_read_only: true" in tool("nbdinfo", uri(tarn, "lun1")), "read-only export")


@test
def a_reset_by_an_initiator_is_nothing_to_clients():
    """LOGICAL UNIT RESETs under load: no request of a client fails."""
    with serve("mem:32M") as tarn, iscsi.Session(tarn.port, IQN) as session, Raw(tarn) as client:
        for n in range(200):
            cookies = [client.request(WRITE, 4096 * k, 4096, 0, bytes([n] * 4096)) for k in range(8)]
            if n % 10 == 0:
                session.tmf(5)
            answers = [client.answer() for _ in cookies]
            equal(sorted(cookie for cookie, _, _ in answers), cookies, "cookies")
            equal({error for _, error, _ in answers}, {0}, "errors")


@test
def writes_that_a_reset_ends_are_answered():
    """LOGICAL UNIT RESETs while all requests of a client are writes to a file: each is answered, at once."""
    with serve("file:{dir}/disk.img?size=32M&cache=direct") as tarn, iscsi.Session(tarn.port, IQN) as session, Raw(tarn) as client:
        chance = random.Random(6)
        for _ in range(40):
            cookies = [client.request(WRITE, 65536 * k, 65536, 1, bytes(65536)) for k in range(16)]
            time.sleep(chance.random() / 250)
            session.tmf(5)
            answers = [client.answer() for _ in cookies]
            equal(sorted(cookie for cookie, _, _ in answers), cookies, "cookies")
            check({error for _, error, _ in answers} <= {0, EIO}, f"errors {answers}")


@test
def what_is_out_of_bounds_is_refused_alone():
    """Ranges, alignment, unknown requests and flags fail with their errors, and the connection goes on."""
    with serve("mem:32M") as tarn, Raw(tarn) as client:
        for request, want in (((READ, SIZE, 512), EINVAL), ((READ, SIZE - 512, 1024), EINVAL), ((READ, 1, 512), EINVAL),
                              ((READ, 0, 0), EINVAL), ((WRITE, SIZE, 512, 0, bytes(512)), ENOSPC), ((TRIM, SIZE, 512), EINVAL),
                              ((WRITE, 0, 100, 0, bytes(100)), EINVAL), ((99, 0, 512), EINVAL), ((READ, 0, 512, 0x80), EINVAL),
                              ((READ, (1 << 64) - 512, 512), EINVAL), ((READ, 0, 64 * MIB), EINVAL), ((FLUSH,), 0),
                              ((READ, 0, 512), 0)):
            equal(client.do(*request), want, f"request {request[:4]}")


@test
def liars_are_closed_and_nobody_else_notices():
    """Wrong magic numbers, endless options, writes that are too long, garbage and half requests end their connections; a client
    beside them reads all the while, and memory stays."""
    with serve("mem:32M") as tarn, Raw(tarn) as witness:
        before = tarn.heap_bytes()
        chance = random.Random(3)
        for n in range(60):
            with Raw(tarn) as client:
                client.send([bytes(28), struct.pack(">IHHQQI", 0x25609513, 0, WRITE, 1, 0, 33 * MIB),
                             b"\xff" * 4096][n % 3])
                check(client.is_closed(), "a liar is closed")
            with Raw(tarn, go=False) as client:
                client.send([struct.pack(">I", 0xff), struct.pack(">I", 3) + b"GET / HTTP/1.1\r\n\r\n",
                             struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 7, 1 << 30),
                             struct.pack(">I", 3) + (b"IHAVEOPT" + struct.pack(">II", LIST, 0)) * 100][n % 4])
                with contextlib.suppress(ConnectionError):
                    while client.socket.recv(1 << 16):
                        pass
            with Raw(tarn) as client, contextlib.suppress(ConnectionError):
                client.send(chance.randbytes(chance.randrange(5000)))
            with Raw(tarn) as client:
                client.request(WRITE, 0, MIB, 0, bytes(chance.randrange(MIB)))
            equal(witness.do(READ, 0, 4096), 0, "READ beside them")
        wait_for(lambda: len(tarn.api().get("sessions")) == 1, 10, "their sessions end")
        check(tarn.heap_bytes() < before + 16 * MIB, f"heap of {tarn.heap_bytes()} bytes, before {before}")


@test
def half_open_connections_have_a_limit_and_a_deadline():
    """Silent connections are closed at the deadline, the oldest at the limit of their address, and an iSCSI initiator is not
    concerned."""
    with serve("mem:32M") as tarn:
        silent = [Raw(tarn, go=False) for _ in range(12)]
        for client in silent[:4]:
            check(client.is_closed(), "the oldest are closed")
        with iscsi.Session(tarn.port, IQN):
            begun = time.monotonic()
            for client in silent[4:]:
                check(client.is_closed(), "all are closed at the deadline")
            check(time.monotonic() - begun < 8, "deadline")


@test
def who_does_not_read_gets_no_more():
    """A client that sends reads and takes no answer holds little memory, and others are served."""
    with serve("file:{dir}/disk.img?size=32M") as tarn, Raw(tarn) as witness, Raw(tarn) as client:
        before = tarn.rss_bytes()
        client.socket.settimeout(3)
        with contextlib.suppress(TimeoutError):
            for _ in range(20_000):
                client.request(READ, 0, MIB)
        for _ in range(20):
            equal(witness.do(READ, 0, 4096), 0, "READ beside it")
        check(tarn.rss_bytes() < before + 160 * MIB, f"{tarn.rss_bytes() - before} bytes more")


@test
def writes_wait_at_their_client_while_a_store_hangs():
    """A client that writes to a store that hangs holds 8 MiB at most; the rest stays in its connection. Then all is written."""
    with faultfs.FaultFs(size=64 * MIB) as files, serve(f"file:{files.path}") as tarn, Raw(tarn) as client:
        files.hang = "write"
        sender = threading.Thread(target=lambda: [client.request(WRITE, n * MIB, MIB, 0, bytes(MIB)) for n in range(32)])
        sender.start()
        time.sleep(1)
        [session] = tarn.api().get("sessions")
        equal(session["window"], 128 - 8, "room for further requests")
        files.release()
        equal({client.answer()[1] for _ in range(32)}, {0}, "errors")
        sender.join()


@test
def three_hundred_clients_leave_memory_to_others():
    """Clients that begin writes of 2 MiB and send no more of them leave an initiator its commands of 1 MiB, and a client of
    another address its writes."""
    with serve("file:{dir}/disk.img?size=32M") as tarn, contextlib.ExitStack() as crowd:
        for _ in range(300):
            client = crowd.enter_context(Raw(tarn))
            client.request(WRITE, 0, 2 * MIB, 0, bytes(4096))
        with iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions(0)
            for n in range(8):
                begun = time.monotonic()
                task = session.command(scsi.write16(n * 2048, 2048), write=bytes([n]) * MIB)
                equal(task.status, scsi.GOOD, "WRITE of 1 MiB")
                task = session.command(scsi.read16(n * 2048, 2048), read=MIB)
                check(task.data == bytes([n]) * MIB, "READ of 1 MiB")
                check(time.monotonic() - begun < 8, "it did not wait for the crowd")
        with Raw(tarn, source="127.0.0.2") as other:
            equal(other.do(WRITE, 0, 2 * MIB, 0, bytes(2 * MIB)), 0, "WRITE from elsewhere")


@test
def sections_come_and_go_under_clients():
    """A section is added, gets groups and goes while Tarn runs: clients that may not stay are ended, others are not; a renamed
    unit is another export; a unit that is exported is not removed."""
    with serve("mem:32M", "mem:1M") as tarn:
        api = tarn.api()
        def apply(change):
            document = api.get("config")
            return api.put("config", {"text": change(document["text"])})
        with Raw(tarn) as client:
            apply(lambda text: text + '[[group]]\nid = "far"\ninitiators = ["192.0.2.0/24"]\n')
            equal(client.do(READ, 0, 512), 0, "a client of a section that stays")
            apply(lambda text: text.replace('luns = ["lun0", "lun1"]\n', 'luns = ["lun0", "lun1"]\ngroups = ["far"]\n'))
            check(client.is_closed(), "a client that is in no group is ended")
        done = subprocess.run(["nbdinfo", uri(tarn)], capture_output=True, text=True, timeout=20)
        check(done.returncode != 0, "no export for it")
        apply(lambda text: text.replace('groups = ["far"]\n', ""))
        with Raw(tarn) as client:
            equal(client.do(READ, 0, 512), 0, "READ")
            [session] = api.get("sessions")
            equal((session["initiator"], session["target"]), ("nbd:127.0.0.1", "nbd:lun0"), "client and export")
            details = {"export": "lun0", "service": f"127.0.0.1:{tarn.port2}", "names": []}
            equal(session["transport"], {"nbd": details}, "what only a session of NBD has")
            section = nbd_section("lun0", "lun1").replace("{port2}", str(tarn.port2))
            apply(lambda text: text.replace(section, ""))
            check(client.is_closed(), "clients of a section that goes are ended")


@test
def a_unix_socket_serves_clients():
    """Data goes through nbdcopy, qemu-img and qemu-io over a unix socket and back; the socket has its mode, another one when it is
    made again, and is gone with its section and at the end."""
    section = socket_section("lun0", "lun1", keys='mode = "0660"\n')
    with serve("mem:32M", "file:{dir}/disk.img?size=32M", more=section + UNSEALED) as tarn:
        path = tarn.dir / "nbd.sock"
        data = random.Random(7).randbytes(SIZE)
        (tarn.dir / "source").write_bytes(data)
        for name in ("lun0", "lun1"):
            tool("nbdcopy", tarn.dir / "source", unix_uri(tarn, name))
            tool("nbdcopy", unix_uri(tarn, name), tarn.dir / "back")
            check((tarn.dir / "back").read_bytes() == data, f"nbdcopy of {name}")
            tool("qemu-img", "compare", "-f", "raw", "-F", "raw", tarn.dir / "source", unix_uri(tarn, name))
            tool("qemu-io", "-f", "raw", "-c", "write -P 5 1M 1M", "-c", "discard 0 1M", "-c", "flush", "-c", "read -P 5 1M 1M",
                 unix_uri(tarn, name))
        equal(int(tool("nbdinfo", "--size", unix_uri(tarn))), SIZE, "size")
        equal(path.stat().st_mode & 0o777, 0o660, "mode")
        api = tarn.api()
        def apply(change):
            return api.put("config", {"text": change(api.get("config")["text"])})
        apply(lambda text: text.replace('mode = "0660"', 'mode = "0666"'))
        equal(path.stat().st_mode & 0o777, 0o666, "mode after a change in a process without a filter of system calls")
        tool("nbdinfo", unix_uri(tarn))
        section = section.replace("{dir}", str(tarn.dir)).replace("0660", "0666")
        apply(lambda text: text.replace(section, ""))
        check(not path.exists(), "the socket goes with its section")
        apply(lambda text: text.replace("[limits]", section + "[limits]"))
        equal(path.stat().st_mode & 0o777, 0o666, "mode of a new socket, whatever the mask")
        tool("nbdinfo", unix_uri(tarn))
        equal(tarn.terminate(), 0, "exit code")
        check(not path.exists(), "the socket goes with Tarn")
        tarn.start()


@test
def a_stale_unix_socket_is_replaced_and_one_that_is_served_is_not():
    """After SIGKILL the next start takes the socket over. One that another program serves, and a file, are left alone: a change
    is refused with the reason."""
    with serve("mem:32M", more=socket_section("lun0") + UNSEALED) as tarn:
        tarn.process.kill()
        tarn.process.wait()
        check((tarn.dir / "nbd.sock").exists(), "the socket is left")
        tarn.start()
        tool("nbdinfo", unix_uri(tarn))
        (tarn.dir / "file").write_text("precious")
        with socket.socket(socket.AF_UNIX) as foreign:
            foreign.bind(str(tarn.dir / "foreign"))
            foreign.listen()
            text = tarn.api().get("config")["text"]
            for name, words in (("foreign", "serves this socket"), ("file", "no socket"), ("a" * 100, "the limit is 103 bytes")):
                section = socket_section("lun0", path=f"{tarn.dir}/{name}")
                answer = tarn.api().ask("PUT", "config", {"text": text + section})
                check(answer.status >= 400 and words in str(answer.body), f"{name}: {answer.status} {answer.body}")
        equal((tarn.dir / "file").read_text(), "precious", "the file")
        tool("nbdinfo", unix_uri(tarn))


@test
def tls_carries_data_of_real_clients():
    """nbdinfo, nbdcopy, qemu-img and qemu-io get back over TLS what they wrote, to memory and to a file."""
    with serve_tls("mem:32M", "file:{dir}/disk.img?size=32M") as tarn:
        data = bytearray(SIZE)
        data[3 * MIB:20 * MIB] = random.Random(8).randbytes(17 * MIB)
        source, back = tarn.dir / "source", tarn.dir / "back"
        source.write_bytes(data)
        check("protocol: newstyle-fixed with TLS" in tool("nbdinfo", tls_uri(tarn)), "TLS in nbdinfo")
        listed = tool("nbdinfo", "--list", tls_uri(tarn, ""))
        check('export="lun0"' in listed and 'export="lun1"' in listed, listed)
        for name in ("lun0", "lun1"):
            tool("nbdcopy", source, tls_uri(tarn, name))
            tool("nbdcopy", tls_uri(tarn, name), back)
            check(back.read_bytes() == data, f"nbdcopy of {name}")
            tool("qemu-img", "compare", *qemu_tls(tarn, name), f"driver=raw,file.driver=file,file.filename={source}")
            creds, options = qemu_tls(tarn, name)[:2], qemu_tls(tarn, name)[2:]
            tool("qemu-io", *creds, "-c", "write -P 7 1M 8M", "-c", "discard 2M 1M", "-c", "flush", "-c", "read -P 7 1M 1M",
                 "-c", "read -P 0 2M 1M", "-c", "read -P 7 3M 6M", *options)


@test
def without_tls_nothing_is_told():
    """Where there is TLS, a client in clear text learns no name: its options are refused, EXPORT_NAME ends the connection. Without
    TLS, STARTTLS is refused and the client may go on."""
    with serve_tls("mem:32M") as tarn:
        with Raw(tarn, go=False) as client:
            client.send(struct.pack(">I", 3))
            data = struct.pack(">I", 4) + b"lun0" + struct.pack(">H", 0)
            for number, payload in ((LIST, b""), (INFO, data), (GO, data), (STRUCTURED_REPLY, b"")):
                equal(client.option(number, payload), ERR_TLS_REQD, f"reply to option {number}")
            client.send(b"IHAVEOPT" + struct.pack(">II", 1, 4) + b"lun0")
            check(client.is_closed(), "EXPORT_NAME")
        done = subprocess.run(["nbdinfo", uri(tarn)], capture_output=True, text=True, timeout=20)
        check(done.returncode != 0 and "lun0" not in done.stdout, "nbdinfo without TLS")
    with serve("mem:32M") as tarn, Raw(tarn, go=False) as client:
        check(start_tls(client) >> 31, "STARTTLS is refused")
        equal(client.option(LIST), 1, "reply to LIST")


@test
def clear_text_is_not_mixed_into_tls():
    """What comes with STARTTLS, or in place of a handshake, ends the connection: nobody on the way can put in options."""
    go = struct.pack(">I", 4) + b"lun0" + struct.pack(">H", 0)
    option = b"IHAVEOPT" + struct.pack(">II", GO, len(go)) + go
    with serve_tls("mem:32M") as tarn:
        with Raw(tarn, go=False) as client:
            client.send(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", STARTTLS, 0) + option)
            with contextlib.suppress(ConnectionError):
                while got := client.socket.recv(4096):
                    check(b"lun0" not in got, "no answer to an option in clear text")
        with Raw(tarn, go=False) as client:
            equal(start_tls(client), 1, "reply to STARTTLS")
            client.send(option)
            with contextlib.suppress(ConnectionError):
                while got := client.socket.recv(4096):
                    check(got[0] == 21, "an alert at most")
        with Raw(tarn, go=False) as client:
            equal(start_tls(client), 1, "reply to STARTTLS")
            over_tls(tarn, client)
            equal(client.option(STARTTLS) >> 31, 1, "STARTTLS over TLS")
            equal(client.option(LIST), 1, "LIST over TLS")
        tool("nbdinfo", tls_uri(tarn))
        check(not tarn.api().get("sessions"), "no session is left")


@test
def clients_are_known_by_their_certificates():
    """With `ca` a client needs a certificate that the authority signed; groups compare its names, and a session is ended when its
    name is in none any more."""
    more = '[[group]]\nid = "ones"\ninitiators = ["certificate:one.*"]\n' + LIMITS
    keys = 'ca = "pki/ca-cert.pem"\ngroups = ["ones"]\n'
    with serve_tls("mem:32M", keys=keys, more=more) as tarn:
        tool("nbdinfo", tls_uri(tarn, who="client"))
        tool("qemu-img", "info", *qemu_tls(tarn, who="client"))
        for who in ("nobody", "foreign", "two"):
            done = subprocess.run(["nbdinfo", tls_uri(tarn, who=who)], capture_output=True, text=True, timeout=20)
            check(done.returncode != 0 and "export-size" not in done.stdout, f"{who}: {done.stdout}")
        with Raw(tarn, go=False) as client:
            equal(start_tls(client), 1, "reply to STARTTLS")
            over_tls(tarn, client, "client")
            data = struct.pack(">I", 4) + b"lun0" + struct.pack(">HH", 1, 3)
            equal(client.option(GO, data), 1, "reply to GO")
            equal(client.do(WRITE, 0, 4096, 0, b"x" * 4096), 0, "WRITE")
            api = tarn.api()
            [session] = api.get("sessions")
            equal(session["initiator"], "nbd:one.example", "initiator")
            equal(session["transport"]["nbd"]["names"], ["one.example"], "names of the certificate")
            text = api.get("config")["text"]
            api.put("config", {"text": text.replace("certificate:one.*", "certificate:three.*")})
            check(client.is_closed(), "its name is in no group")
        tarn.await_log("one.example")


@test
def handshakes_of_tls_are_bounded():
    """Clients that begin TLS and then are silent, send a byte at a time or garbage are closed at the deadline, and count for their
    address; a client beside them is served all the while."""
    with serve_tls("mem:32M") as tarn:
        witness = Raw(tarn, go=False)
        start_tls(witness)
        over_tls(tarn, witness)
        data = struct.pack(">I", 4) + b"lun0" + struct.pack(">HH", 1, 3)
        equal(witness.option(GO, data), 1, "reply to GO")
        silent = [Raw(tarn, go=False) for _ in range(8)]
        for client in silent:
            equal(start_tls(client), 1, "reply to STARTTLS")
        slow = silent[0]
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
        begun = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for byte in hello:
                slow.send(bytes([byte]))
                equal(witness.do(READ, 0, 4096), 0, "READ beside them")
                time.sleep(0.1)
        for client in silent:
            check(client.is_closed(), "closed at the deadline")
        check(time.monotonic() - begun < 8, "deadline")
        chance = random.Random(9)
        for _ in range(40):
            with Raw(tarn, go=False) as client, contextlib.suppress(ConnectionError):
                start_tls(client)
                client.send(b"\x16\x03\x01" + chance.randbytes(chance.randrange(3000)))
        equal(witness.do(READ, 0, 4096), 0, "READ after them")


@test
def who_does_not_read_over_tls_gets_no_more():
    """A client over TLS that sends reads and takes no answer holds little memory beside its share."""
    with serve_tls("file:{dir}/disk.img?size=32M") as tarn, Raw(tarn, go=False) as client:
        start_tls(client)
        over_tls(tarn, client)
        data = struct.pack(">I", 4) + b"lun0" + struct.pack(">HH", 1, 3)
        equal(client.option(GO, data), 1, "reply to GO")
        before = tarn.heap_bytes()
        client.socket.settimeout(3)
        with contextlib.suppress(TimeoutError, ssl.SSLError):
            for _ in range(20_000):
                client.request(READ, 0, MIB)
        check(tarn.heap_bytes() < before + 14 * MIB, f"{tarn.heap_bytes() - before} bytes more")


@test
def new_certificates_are_taken_with_the_configuration():
    """Certificates that were replaced are used after SIGHUP, also where the text is the same; sessions stay. Files that cannot be
    used are refused, with the place, and the old ones stay in use."""
    with serve_tls("mem:32M") as tarn:
        with Raw(tarn, go=False) as client:
            start_tls(client)
            over_tls(tarn, client)
            data = struct.pack(">I", 4) + b"lun0" + struct.pack(">HH", 1, 3)
            equal(client.option(GO, data), 1, "reply to GO")
            old = client.socket.getpeercert(True)
            pki = tarn.dir / "pki"
            shutil.rmtree(pki)
            certificates(pki)
            (api := tarn.api()).put("config", {"text": api.get("config")["text"]})
            equal(client.do(READ, 0, 4096), 0, "READ of a session from before")
            with Raw(tarn, go=False) as second:
                start_tls(second)
                over_tls(tarn, second)
                check(second.socket.getpeercert(True) != old, "the new certificate")
            (pki / "server-cert.pem").write_text("nonsense")
            answer = api.ask("PUT", "config", {"text": api.get("config")["text"]})
            check(answer.status >= 400 and "server-cert.pem" in str(answer.body), f"{answer.status} {answer.body}")
            tool("nbdinfo", tls_uri(tarn))


def own_address():
    """An address of this machine that is not loopback; none if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))      # Sends nothing.
        return probe.getsockname()[0]


@test
def what_tarn_exports_is_no_store_of_its_own():
    """By address, by name, on a socket and by links to that: a start ends with exit code 2, a change is refused, and the unit
    that would have waited for itself goes on."""
    def refused(tarn, store):
        for path, spec in (("luns/new", {"id": "new", "store": store}), ("luns/lun1", {"id": "lun1", "store": store})):
            answer = tarn.api().ask("PUT", path, spec)
            check(400 <= answer.status < 500, f"{store} is no store: {answer}")
            check("is an export of this Tarn itself" in answer.json["detail"], answer.json["detail"])
    with serve("mem:4M", "file:{dir}/disk.img?size=4M", more=socket_section("lun0", "lun1") + UNSEALED) as tarn:
        (tarn.dir / "link").symlink_to(tarn.dir / "nbd.sock")
        (tarn.dir / "twin").hardlink_to(tarn.dir / "nbd.sock")
        for store in (f"nbd://127.0.0.1:{tarn.port2}/lun1", f"nbd://localhost:{tarn.port2}/lun0",
                      *(f"nbd+unix:///lun1?socket={tarn.dir / name}" for name in ("nbd.sock", "link", "twin"))):
            refused(tarn, store)
        with Raw(tarn, "lun1") as client:
            equal(client.do(WRITE, 0, 512, data=bytes(512)), 0, "WRITE")
    text = config("mem:4M", "mem:4M", more=UNSEALED)
    with Tarn(config=text.replace('bind = "127.0.0.1:{port2}"', 'bind = "0.0.0.0:{port2}"')) as tarn:
        refused(tarn, f"nbd://127.0.0.2:{tarn.port2}/lun0")
        if address := own_address():
            refused(tarn, f"nbd://{address}:{tarn.port2}/lun0")
        text = (tarn.dir / "tarn.toml").read_text()
    with tempfile.TemporaryDirectory(prefix="nbd-test.") as path:
        file = pathlib.Path(path) / "tarn.toml"
        file.write_text(text.replace('store = "mem:4M"', f'store = "nbd://localhost:{tarn.port2}/lun0"', 1))
        done = run("serve", "--config", file, "--state", f"{path}/state")
    equal(done.returncode, 2, done.stderr)
    check("tarn.toml:3: lun[0].store" in done.stderr and "is an export of this Tarn itself" in done.stderr, done.stderr)


@test
def a_client_has_no_trace():
    """A trace of a session of NBD is refused with the reason, as it would stay empty."""
    with serve("mem:32M") as tarn, Raw(tarn) as client:
        equal(client.do(READ, 0, 512), 0, "READ")
        [session] = tarn.api().get("sessions")
        answer = tarn.api().ask("PUT", f"traces/{session['id']}", {})
        equal(answer.status, 409, "status")
        check("NBD" in str(answer.body), f"the reason in {answer.body}")


@test
def at_the_end_clients_are_told():
    """SIGTERM ends idle clients at once, and Tarn with them."""
    with serve("mem:32M") as tarn, Raw(tarn) as client:
        equal(client.do(WRITE, 0, 512, 1, bytes(512)), 0, "WRITE with FUA")
        begun = time.monotonic()
        equal(tarn.terminate(), 0, "exit code")
        check(time.monotonic() - begun < 1.5, "nobody is waited for")
        check(client.is_closed(), "the client sees the end")
        tarn.start()


if __name__ == "__main__":
    harness.main()
