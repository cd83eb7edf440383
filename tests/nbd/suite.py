#!/usr/bin/env python3
"""Exports of NBD servers as stores: the data is right, and servers that die, hang, delay and fail harm nobody else.

    suite.py [--list] [PATTERN...]
"""
import contextlib
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import admin
import gluster
import harness
import iscsi
import scsi
from harness import check, equal, test, wait_for
from tarn import BINARY, IQN, Tarn, free_port, lun_section, run, target_section

# Its tests are of this suite.
import lies

PARTS = [lies]

MIB = 1 << 20
SIZE = 32 * MIB
BLOCK = 512
# Of one WRITE.
CHUNK = 64 << 10
PYTHON_PLUGIN = "/usr/lib/*/nbdkit/plugins/nbdkit-python-plugin.so=nbdkit-plugin-python"
# A disk of a dozen lines, which answers one request at a time.
PLUGIN = """
data = bytearray(%d)
def thread_model(): return nbdkit.THREAD_MODEL_SERIALIZE_ALL_REQUESTS
def open(readonly): return 1
def get_size(handle): return len(data)
def can_flush(handle): return True
def pread(handle, buffer, offset, flags): buffer[:] = data[offset:offset + len(buffer)]
def pwrite(handle, buffer, offset, flags): data[offset:offset + len(buffer)] = buffer
def flush(handle, flags): pass
import nbdkit
API_VERSION = 2
""" % SIZE
LIMITS = "[limits]\ntask_deadline_seconds = 2\nshutdown_timeout_seconds = 2\n"


class Server:
    """A server on a port, or on a socket if it has one, that can be ended and started again."""

    def __init__(self, *command):
        self.command = [str(part) for part in command]
        self.process = None

    def start(self):
        """Starts it; it listens when this returns."""
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        wait_for(self.listens, 20, f"{self.command[0]} listens")
        return self

    def listens(self):
        check(self.process.poll() is None, f"{self.command} ended with {self.process.returncode}")
        # Nothing connects: qemu-nbd would count it as a client.
        state = subprocess.run(["ss", "-Hlnp"], capture_output=True, text=True, check=True).stdout
        return f"pid={self.process.pid}," in state

    def kill(self):
        """Ends it as a crash would, also where it is stopped."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def signal(self, number):
        if number == signal.SIGSTOP:
            harness.suspend(self.process.pid)
        else:
            self.process.send_signal(number)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.kill()
            raise

    def __exit__(self, *_):
        self.kill()


class Nbdkit(Server):
    """nbdkit on a port of its own. `store` is how Tarn names its export."""

    def __init__(self, *plugin, host="127.0.0.1"):
        self.port = free_port()
        super().__init__("nbdkit", "--foreground", "--ipaddr", "127.0.0.1", "--port", self.port, *plugin)
        self.store = f"nbd://{host}:{self.port}/disk"


@contextlib.contextmanager
def directory():
    """A directory for files of a test."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="nbd-test."))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def disk(path, *options, **how):
    """nbdkit with a file that outlives it."""
    image = path / "disk.img"
    if not image.exists():
        with open(image, "wb") as file:
            file.truncate(SIZE)
    with Nbdkit(*options, "file", image, **how) as server:
        server.image = image
        yield server


def config(*stores, more=LIMITS):
    """A configuration whose units lun0, lun1, ... have these stores."""
    ids = [f"lun{n}" for n in range(len(stores))]
    return "".join(lun_section(id, store) for id, store in zip(ids, stores)) + target_section(*ids) + more


@contextlib.contextmanager
def serve(*stores, more=LIMITS, timeout_s=40, **options):
    """A Tarn with these stores and a session with it."""
    with Tarn(config=config(*stores, more=more), **options) as tarn, \
            iscsi.Session(tarn.port, IQN, timeout_s=timeout_s) as session:
        for n in range(len(stores)):
            session.clear_unit_attentions(n)
        yield tarn, session


def write(session, at, data, lun=0):
    return session.command(scsi.write16(at // BLOCK, len(data) // BLOCK), write=data, lun=lun)


def read(session, at, length, lun=0):
    return session.command(scsi.read16(at // BLOCK, length // BLOCK), read=length, lun=lun)


def good(outcome, what):
    check(outcome.good, f"{what}: {outcome}")
    return outcome.data


def flush(session, lun=0):
    return session.command(scsi.synchronize_cache16(), lun=lun)


def not_ready(outcome):
    return not outcome.good and outcome.sense.key == scsi.NOT_READY


def comes_back(session, lun=0):
    wait_for(lambda: read(session, 0, BLOCK, lun).good, 20, "the unit is served again")


def serial(session, lun=0):
    return good(session.command(scsi.inquiry(0x80), read=255, lun=lun), "INQUIRY")


def refused(*stores, limit_s=20):
    """How a start with these stores fails."""
    with directory() as path:
        done = run("serve", "--state", path / "state", "--listen", f"127.0.0.1:{free_port()}", *stores, limit_s=limit_s)
    equal(done.returncode, 2, f"exit code; {done.stderr}")
    check("panicked" not in done.stderr, done.stderr)
    return done.stderr


@test
def data_reaches_a_qcow2_image_through_qemu_nbd():
    """What is written over iSCSI into an export of qemu-nbd is in the qcow2 image behind it, and zeros where nothing was."""
    with directory() as path:
        image, raw, unix = path / "disk.qcow2", path / "disk.raw", path / "nbd.sock"
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, str(SIZE)], check=True)
        expected = bytearray(SIZE)
        chance = random.Random(7)
        command = ("qemu-nbd", "--persistent", "--shared=8", "--format=qcow2", "--export-name=disk", "--socket", unix, image)
        with Server(*command) as server:
            with serve(f"nbd+unix:///disk?socket={unix}") as (tarn, session):
                equal(scsi.capacity(session), (SIZE // BLOCK, BLOCK), "capacity")
                for _ in range(60):
                    length = chance.choice((BLOCK, 8 * BLOCK, CHUNK, 256 << 10))
                    at = chance.randrange(0, (SIZE - length) // BLOCK) * BLOCK
                    data = chance.randbytes(length)
                    good(write(session, at, data), "WRITE")
                    expected[at:at + length] = data
                at = chance.randrange(0, SIZE // MIB - 1) * MIB
                ranges = scsi.unmap_parameters((at // BLOCK, MIB // BLOCK))
                good(session.command(scsi.unmap(len(ranges)), write=ranges), "UNMAP")
                expected[at:at + MIB] = bytes(MIB)
                good(flush(session), "SYNCHRONIZE CACHE")
                for at in range(0, SIZE, MIB):
                    data = b"".join(good(read(session, at + part, CHUNK), "READ") for part in range(0, MIB, CHUNK))
                    check(data == expected[at:at + MIB], f"READ at {at}")
                shown = tarn.api().get("luns")[0]
                equal((shown["kind"], shown["size_bytes"]), ("nbd", SIZE), "the LUN of the API")
            server.signal(signal.SIGTERM)
            server.process.wait(20)
        subprocess.run(["qemu-img", "convert", "-f", "qcow2", "-O", "raw", image, raw], check=True)
        check(raw.read_bytes() == expected, "the image has other data")


@test
def a_unit_of_the_command_line_keeps_its_identity():
    """`tarn serve nbd://...` shows the same serial number when it starts again, and another one for another export."""
    with directory() as path, disk(path) as server, Nbdkit("memory", "1M") as other:
        tarn = Tarn(server.store, other.store)
        serials = []
        for _ in range(2):
            with tarn.start() and iscsi.Session(tarn.port, IQN) as session:
                serials.append([serial(session, n) for n in range(2)])
            equal(tarn.terminate(), 0, "exit code")
        tarn.close()
        equal(serials[0], serials[1], "serial numbers")
        check(serials[0][0] != serials[0][1], "two units have one serial number")


@test
def tls_is_checked():
    """With TLS data is written and read; a server with a certificate of somebody else, and one that wants TLS and does not get
    it, are told with the remedy."""
    with directory() as path:
        for name in ("own", "other"):
            certificates(path / name)
        server = Nbdkit("--tls=require", f"--tls-certificates={path / 'own'}", "memory", "1M", host="localhost")
        with server:
            store = server.store.replace("nbd:", "nbds:")
            with serve(f"{store}?ca={path}/own/ca-cert.pem") as (_, session):
                data = os.urandom(CHUNK)
                good(write(session, 0, data), "WRITE")
                equal(good(read(session, 0, CHUNK), "READ"), data, "data")
            said = refused(f"{store}?ca={path}/other/ca-cert.pem")
            check("TLS failed" in said and "check the certificate" in said, said)
            said = refused(server.store)
            check("connect with TLS" in said, said)
            said = refused(f"{store}?ca={path}/nowhere.pem")
            check("nowhere.pem" in said and "PEM" in said, said)


def certificates(path):
    """An authority, and the certificate of a server that it signed, as nbdkit wants them."""
    path.mkdir()
    (path / "names").write_text("subjectAltName = DNS:localhost, IP:127.0.0.1\n")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=path, check=True, capture_output=True)
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca-key.pem", "-out", "ca-cert.pem", "-days", "2", "-subj", "/CN=authority")
    openssl("req", *key, "-keyout", "server-key.pem", "-out", "request.pem", "-subj", "/CN=localhost")
    openssl("x509", "-req", "-in", "request.pem", "-CA", "ca-cert.pem", "-CAkey", "ca-key.pem", "-CAcreateserial", "-days", "2",
            "-extfile", "names", "-out", "server-cert.pem")


@test
def an_export_that_is_read_only_needs_readonly():
    """Without `readonly` the start says so; with it the unit is served and refuses writes."""
    with Nbdkit("--readonly", "memory", "1M") as server:
        said = refused(server.store)
        check("read-only" in said and server.store in said, said)
        with serve(f"{server.store}?readonly") as (_, session):
            good(read(session, 0, CHUNK), "READ")
            equal(write(session, 0, bytes(BLOCK)).sense.key, scsi.DATA_PROTECT, "WRITE")


@test
def errors_of_the_server_are_those_of_the_medium():
    """EIO is a medium error, and ENOSPC that of thin provisioning; the unit goes on when they end."""
    with directory() as path:
        switch = path / "fail"
        filters = ("--filter=error", "memory", "1M", "error-pread=EIO", "error-pwrite=ENOSPC", "error-rate=100%",
                   f"error-file={switch}")
        with Nbdkit(*filters) as server, serve(server.store) as (_, session):
            good(write(session, 0, bytes(CHUNK)), "WRITE")
            switch.touch()
            equal(read(session, 0, BLOCK).sense.key, scsi.MEDIUM_ERROR, "READ")
            equal(write(session, 0, bytes(BLOCK)).sense.code, scsi.SPACE_ALLOCATION_FAILED, "WRITE")
            switch.unlink()
            good(read(session, 0, BLOCK), "READ")


@test
def a_server_that_delays_delays_its_own_unit():
    """While a READ of one unit waits for its server, another unit on another server answers any number of them."""
    with Nbdkit("--filter=delay", "memory", "1M", "rdelay=2") as slow, Nbdkit("memory", "1M") as quick:
        with serve(slow.store, quick.store, more="") as (_, session):
            task = session.start(scsi.read16(0, 8), read=8 * BLOCK)
            for _ in range(200):
                good(read(session, 0, BLOCK, lun=1), "READ")
            check(not session.connection.readable(0), "the slow READ was answered first")
            good(session.finish(task), "the slow READ")


def in_background(work):
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def write_all(session, server, pause_s):
    """Writes other data to each part of the disk, over and over, while the server is killed and started again twice. Returns
    what the disk has to have."""
    expected = bytearray(8 * MIB)
    is_over = threading.Event()
    failures = []

    def write_until_it_is_over():
        rounds = 0
        while not is_over.is_set() or rounds < 2:
            for at in range(0, len(expected), CHUNK):
                data = os.urandom(CHUNK)
                outcome = write(session, at, data)
                if not outcome.good:
                    failures.append(f"WRITE at {at}: {outcome}")
                    return
                expected[at:at + CHUNK] = data
            rounds += 1
    writer = in_background(write_until_it_is_over)
    try:
        # Not in the other thread: nbdkit ends with the thread that started it.
        for _ in range(2):
            time.sleep(pause_s)
            server.kill()
            time.sleep(pause_s)
            server.start()
        time.sleep(pause_s)
    finally:
        is_over.set()
        writer.join()
    equal(failures, [], "failures")
    return bytes(expected)


def equal_data(session, server, expected):
    """The unit and the file of the server have this data, after a flush that tells what may have been lost."""
    check(not flush(session).good, "no flush tells that a cache may be lost")
    good(flush(session), "SYNCHRONIZE CACHE")
    for at in range(0, len(expected), CHUNK):
        check(good(read(session, at, CHUNK), "READ") == expected[at:at + CHUNK], f"READ at {at}")
    with open(server.image, "rb") as file:
        check(file.read(len(expected)) == expected, "the file has other data")


@test(limit_s=90)
def a_server_that_restarts_is_not_noticed():
    """With `retry=20` a server is killed twice under writes: no WRITE fails, and the data is right."""
    with directory() as path, disk(path) as server, serve(f"{server.store}?retry=20") as (_, session):
        equal_data(session, server, write_all(session, server, 1))


@test
def without_retry_commands_fail_at_once():
    """With `retry=0` commands end with NOT READY while there is no server, and the unit is served again when there is one.
    The doctor and the events tell both."""
    def lost(tarn):
        findings = tarn.api().get("status")["findings"]
        return [found["message"] for found in findings if found["code"] == "store-lost"]

    def told(tarn):
        kinds = [event["kind"] for event in tarn.api().get("events?after=0&most=1000")]
        return [kind for kind in kinds if kind in ("store-lost", "store-reached")]
    with directory() as path, disk(path) as server, serve(f"{server.store}?retry=0") as (tarn, session):
        equal((lost(tarn), told(tarn)), ([], []), "before")
        data = os.urandom(CHUNK)
        good(write(session, 0, data), "WRITE")
        good(flush(session), "SYNCHRONIZE CACHE")
        server.kill()
        wait_for(lambda: not_ready(read(session, 0, BLOCK)), 10, "NOT READY")
        check(not_ready(write(session, 0, data)), "a WRITE is not refused")
        wait_for(lambda: any("Connection refused" in why for why in lost(tarn)), 10, "the finding of the doctor")
        check("store-lost" in told(tarn), told(tarn))
        server.start()
        comes_back(session)
        wait_for(lambda: not lost(tarn), 10, "the end of the finding")
        equal(told(tarn)[-1], "store-reached", "the last event")
        equal(good(read(session, 0, CHUNK), "READ"), data, "data")
        good(write(session, 0, bytes(CHUNK)), "WRITE")


def reports_a_loss(outcome, what):
    """Not by an error after which initiators repeat a command by themselves: the next flush is good."""
    sense = outcome.sense
    check(not outcome.good and sense, f"{what} reports no loss: {outcome}")
    equal((sense.key, sense.code), (scsi.HARDWARE_ERROR, (0x0C, 0x00)), f"the sense of {what}")


@test
def a_lost_cache_is_reported_once_to_each_that_wrote():
    """A server dies after writes of two initiators that no flush covered: the next SYNCHRONIZE CACHE of each fails, the one after it
    does not, nor any of an initiator that wrote nothing. One that was away learns of it when it is back."""
    with directory() as path, disk(path) as server, serve(server.store) as (tarn, session), contextlib.ExitStack() as stack:
        log_in = lambda name: stack.enter_context(iscsi.Session(tarn.port, IQN, initiator=f"iqn.2026-11.example:{name}", timeout_s=30))
        other, reader, away = log_in("other"), log_in("reader"), log_in("away")
        for one in (other, reader, away):
            one.clear_unit_attentions()
        for one in (session, other, away):
            good(write(one, 0, bytes(CHUNK)), "WRITE")
        away.close()
        server.kill()
        server.start()
        comes_back(session)
        good(flush(reader), "SYNCHRONIZE CACHE of one that wrote nothing")
        for one in (other, session):
            reports_a_loss(flush(one), "the first flush")
            good(flush(one), "the second SYNCHRONIZE CACHE")
        back = log_in("away")
        back.clear_unit_attentions()
        reports_a_loss(flush(back), "the flush of one that was away")
        good(flush(back), "its second SYNCHRONIZE CACHE")


@test
def a_gateway_before_a_gateway_goes_on_after_one_loss():
    """The server behind two Tarns restarts once, with writes that no flush covered: the first Tarn reports that once, by a flush, and
    its flushes and durable writes are good again."""
    section = '[[nbd]]\nbind = "127.0.0.1:{port2}"\nluns = ["lun0"]\n'
    with directory() as path, disk(path) as server, Tarn(config=config(server.store, more=section + LIMITS)) as middle, \
            serve(f"nbd://127.0.0.1:{middle.port2}/lun0") as (tarn, session):
        good(write(session, 0, bytes(CHUNK)), "WRITE")
        server.kill()
        server.start()
        comes_back(session)
        reports_a_loss(flush(session), "the first flush")
        # Each connection between the two may have the report once.
        wait_for(lambda: flush(session).good, 10, "a flush is good again")
        for _ in range(20):
            good(write(session, 0, os.urandom(CHUNK)), "WRITE")
            good(flush(session), "a later SYNCHRONIZE CACHE")
        durable = session.command(scsi.write16(0, 1, 0x08), write=bytes(BLOCK))
        good(durable, "WRITE with FUA")
        findings = [found["code"] for found in tarn.api().get("findings")]
        check("flush-failed" not in findings, findings)


@test
def a_server_that_hangs_holds_its_own_unit_alone():
    """One of two servers is stopped: its READ waits, the other unit works, also for new sessions; then all goes on."""
    with directory() as path, disk(path) as server, Nbdkit("memory", "1M") as other:
        with serve(server.store, other.store, more="") as (tarn, session):
            server.signal(signal.SIGSTOP)
            task = session.start(scsi.read16(0, 8), read=8 * BLOCK)
            with iscsi.Session(tarn.port, IQN) as second:
                second.clear_unit_attentions(1)
                for _ in range(100):
                    good(write(second, 0, bytes(CHUNK), lun=1), "WRITE")
                    good(flush(second, lun=1), "SYNCHRONIZE CACHE")
            check(not session.connection.readable(0), "the READ was answered")
            server.signal(signal.SIGCONT)
            good(session.finish(task), "the READ")


@test
def the_end_comes_beside_a_server_that_hangs():
    """SIGTERM ends Tarn in its bounds while a server hangs with writes under way, and says whose flush failed, if a write was answered
    that no flush has covered."""
    for is_answered, ends_with in ((True, 1), (False, 0)):
        with directory() as path, disk(path) as server:
            with serve(server.store, "mem:1M", check_exit=False) as (tarn, session):
                if is_answered:
                    good(write(session, 9, bytes(BLOCK)), "WRITE")
                server.signal(signal.SIGSTOP)
                for n in range(4):
                    session.start(scsi.write16(n, 1), write=bytes(BLOCK))
                good(write(session, 0, bytes(BLOCK), lun=1), "WRITE")
                begin = time.monotonic()
                code = tarn.terminate()
                harness.measured(f"{time.monotonic() - begin:.1f} s")
                equal("the last flush of lun0 failed" in tarn.log(), is_answered, f"whether lun0 is named: {tarn.log_tail()}")
                equal(code, ends_with, "exit code")


@test
def the_end_says_whose_last_flush_failed_also_of_a_lun_that_goes():
    """SIGTERM comes while a LUN that is removed waits for its last flush: who removes it gets no answer any more, so the exit code
    says it."""
    with directory() as path, disk(path) as server:
        with serve(server.store, "mem:1M", check_exit=False) as (tarn, session):
            good(write(session, 9, bytes(BLOCK)), "WRITE")
            server.signal(signal.SIGSTOP)
            rest = lun_section("lun1", "mem:1M") + target_section("lun1") + LIMITS
            (path / "rest.toml").write_text(rest.replace("{port}", str(tarn.port)))
            removal = subprocess.Popen([BINARY, "apply", "--yes", path / "rest.toml"], env=tarn.environment(), stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_for(lambda: "lun0" not in str(tarn.api().get("luns")), 10, "the removal of lun0")
            equal(tarn.terminate(), 1, f"the exit code: {tarn.log_tail()}")
            check("the last flush of lun0 failed" in tarn.log(), tarn.log_tail())
            removal.wait()


@test
def a_start_without_its_server_is_told():
    """A server that is not there, one that does not answer, and an export that is not there: place, reason, remedy."""
    port = free_port()
    said = refused(f"nbd://127.0.0.1:{port}/disk")
    for word in (f'STORE "nbd://127.0.0.1:{port}/disk"', f"127.0.0.1:{port}", "Connection refused", "start the server"):
        check(word in said, f"{word!r} is not in {said}")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        said = refused(f"nbd://127.0.0.1:{silent.getsockname()[1]}")
        check("does not answer" in said, said)
    said = refused("nbd+unix:///?socket=/nowhere/nbd.sock")
    check("/nowhere/nbd.sock" in said and "No such file" in said, said)
    with directory() as path:
        image = path / "disk.img"
        image.write_bytes(bytes(MIB))
        unix = path / "nbd.sock"
        with Server("qemu-nbd", "--persistent", "--format=raw", "--export-name=disk", "--socket", unix, image):
            said = refused(f"nbd+unix:///other?socket={unix}")
            check("there is no such export" in said, said)


@test
def an_export_is_the_store_of_one_unit():
    """One export in two forms is refused, before anything is connected."""
    said = refused("nbd://localhost/disk", "nbds://LOCALHOST:10809/disk?retry=0")
    check("is already used at STORE" in said and "nbd://localhost:10809/disk" in said, said)


@test
def changes_add_and_remove_exports():
    """A change adds a unit on a server that answers and takes it out again; one on a dead server, one on a server that hangs, a
    resize and another option are refused with the reason, and units that are served go on meanwhile."""
    with Nbdkit("memory", "1M") as first, Nbdkit("memory", "2M") as second, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with serve(first.store) as (tarn, session):
            api = tarn.api()

            def change(*stores):
                text = config(first.store, *stores).replace("{port}", str(tarn.port))
                return api.put("config", {"text": text})

            def fails(words, act):
                try:
                    act()
                except admin.Refused as error:
                    check(words in error.answer.body.decode(), f"{words!r} is not in {error.answer.body}")
                else:
                    raise harness.Failure(f"it is not refused: {words}")
            change(second.store)
            session.clear_unit_attentions(0)
            session.clear_unit_attentions(1)
            equal(scsi.capacity(session, 1)[0], 2 * MIB // BLOCK, "blocks of the new unit")
            good(write(session, 0, bytes(CHUNK), lun=1), "WRITE")
            fails("grow it there", lambda: api.post("luns/lun1/resize", {"size_bytes": 4 * MIB}))
            fails("not opened twice", lambda: change(f"{second.store}?retry=3"))
            change()
            fails("start the server", lambda: change(f"nbd://127.0.0.1:{free_port()}"))
            hanging = in_background(lambda: fails("does not answer", lambda: change(f"nbd://127.0.0.1:{silent.getsockname()[1]}")))
            session.clear_unit_attentions(0)
            while hanging.is_alive():
                good(write(session, 0, bytes(CHUNK)), "WRITE during the change")
            equal([lun["spec"]["id"] for lun in api.get("luns")], ["lun0"], "units")


CONFINED = LIMITS + '[confine]\nroots = ["disks"]\n'


@contextlib.contextmanager
def confined(*stores, more=CONFINED):
    """As `serve`, with the directory of the roots."""
    tarn = Tarn(config=config(*stores, more=more))
    (tarn.dir / "disks").mkdir()
    with tarn, iscsi.Session(tarn.port, IQN, timeout_s=40) as session:
        for n in range(len(stores)):
            session.clear_unit_attentions(n)
        yield tarn, session


def plan(tarn, *stores, more=CONFINED):
    """The reasons for which a plan is refused."""
    text = config(*stores, more=more).replace("{port}", str(tarn.port))
    steps = tarn.api().post("plan", {"text": text})["steps"]
    return [step["reason"] for step in steps if step["effect"] == "refused"]


@test(limit_s=90)
def confined_with_roots_it_connects_again():
    """With roots the server, named by its host, is killed twice under writes and none fails; a unit on the same port of
    another address is added, one on another port is refused in the plan."""
    with directory() as path, disk(path, host="localhost") as server:
        with confined(server.store) as (tarn, session):
            equal_data(session, server, write_all(session, server, 1))
            equal(plan(tarn, server.store, f"nbd://127.0.0.1:{server.port}/other"), [], "refusals")
            reasons = plan(tarn, server.store, f"nbd://127.0.0.1:{free_port()}")
            equal(len(reasons), 1, f"refusals ({reasons})")
            check("out of reach" in reasons[0] and "restart Tarn" in reasons[0], reasons[0])


@test
def without_a_server_at_the_start_none_is_added():
    """A confined Tarn without stores behind servers has given connections up: the plan of the first is refused with the remedy."""
    with Nbdkit("memory", "1M") as server:
        for more in (LIMITS, CONFINED):
            with confined("mem:1M", more=more) as (tarn, _):
                reasons = plan(tarn, "mem:1M", server.store, more=more)
                equal(len(reasons), 1, f"refusals ({reasons})")
                check("no store was behind a server at the start" in reasons[0] and "restart Tarn" in reasons[0], reasons[0])


def need(*pairs):
    """Has them installed, or skips the test."""
    if subprocess.run([ROOT / "tools/need", *pairs]).returncode:
        harness.skip(f"{pairs} cannot be installed")


def write_and_read(session, count=40):
    """Random writes, a flush, and all of it read back. Gives what the disk holds."""
    expected = bytearray(SIZE)
    chance = random.Random(11)
    for _ in range(count):
        length = chance.choice((BLOCK, 8 * BLOCK, CHUNK))
        at = chance.randrange(0, (SIZE - length) // BLOCK) * BLOCK
        data = chance.randbytes(length)
        good(write(session, at, data), "WRITE")
        expected[at:at + length] = data
    good(flush(session), "SYNCHRONIZE CACHE")
    for at in range(0, SIZE, CHUNK):
        check(good(read(session, at, CHUNK), "READ") == expected[at:at + CHUNK], f"READ at {at}")
    return expected


@test
def a_server_in_python_is_a_store():
    """nbdkit with a disk written in Python, without trim, zeroes or FUA: the data is right."""
    need(PYTHON_PLUGIN)
    with directory() as path:
        script = path / "disk.py"
        script.write_text(PLUGIN)
        with Nbdkit("python", script) as server, serve(server.store) as (_, session):
            write_and_read(session)


class Elsewhere(Server):
    """One in another network namespace, whose sockets are not listed in this one."""

    def __init__(self, socket, *command):
        super().__init__(*command)
        self.socket = socket

    def listens(self):
        check(self.process.poll() is None, f"{self.command} ended with {self.process.returncode}")
        return self.socket.exists()


@test(limit_s=120)
def an_image_on_gluster_is_a_store():
    """qemu-nbd has a qcow2 image of a Gluster volume: what is written over iSCSI is in that image."""
    need(*gluster.NEEDS)
    if os.geteuid() != 0:
        harness.skip("a network namespace needs root")
    with directory() as path:
        empty, unix, raw = path / "empty.qcow2", path / "nbd.sock", path / "raw"
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", empty, str(SIZE)], check=True)
        # Gluster has no zeros behind the end of a file, where the table of the image goes on.
        os.truncate(empty, MIB)
        with gluster.Volume(path, {"disk.qcow2": empty}) as volume:
            command = (*volume.inside, "qemu-nbd", "--persistent", "--format=qcow2", "--export-name=disk", "--socket", unix,
                       f"{volume.url}disk.qcow2")
            with Elsewhere(unix, *command):
                with serve(f"nbd+unix:///disk?socket={unix}") as (_, session):
                    equal(scsi.capacity(session), (SIZE // BLOCK, BLOCK), "capacity")
                    expected = write_and_read(session)
        # The file of the brick is the image.
        subprocess.run(["qemu-img", "convert", "-f", "qcow2", "-O", "raw", path / "brick/disk.qcow2", raw], check=True)
        check(raw.read_bytes() == expected, "the image has other data")


def bench(tarn, seconds):
    return subprocess.Popen([BINARY, "bench", "--verify", "--overwrite", "--rw", "mixed", "--bs", "4k", "--iodepth", "16",
                             "--runtime", str(seconds), "--repeat", "1", f"iscsi://127.0.0.1:{tarn.port}/{IQN}/0"],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@test(limit_s=90)
def verified_data_survives_restarts():
    """With `retry=20` the server is killed three times under `tarn bench --verify`, which sees no error and no wrong block."""
    with directory() as path, disk(path) as server, serve(f"{server.store}?retry=20") as (tarn, session):
        running = bench(tarn, 8)
        for _ in range(3):
            time.sleep(1)
            server.kill()
            time.sleep(0.5)
            server.start()
        said, _ = running.communicate(timeout=60)
        equal(running.returncode, 0, f"exit code: {said}")
        hears_of_a_loss(tarn)


def hears_of_a_loss(tarn):
    """The bench is gone and has flushed nothing; its next session learns of it."""
    with iscsi.Session(tarn.port, IQN, initiator="iqn.2026-11.example.tarn:bench", timeout_s=30) as session:
        session.clear_unit_attentions()
        reports_a_loss(flush(session), "the flush of the bench")


@test(limit_s=90)
def without_retry_verified_reads_end_and_none_is_wrong():
    """With `retry=0` the bench ends with NOT READY when the server is killed; run again with a new server it finds no wrong
    block."""
    with directory() as path, disk(path) as server, serve(f"{server.store}?retry=0") as (tarn, session):
        running = bench(tarn, 20)
        killer = threading.Timer(2, lambda: server.process.kill())
        killer.start()
        said, _ = running.communicate(timeout=60)
        killer.join()
        server.kill()
        check(running.returncode not in (0, None), f"the bench did not notice: {said}")
        check("sense 2/04/01" in said and "0 miscompares" in said, f"not told as NOT READY: {said}")
        server.start()
        wait_for(lambda: read(session, 0, BLOCK).good, 20, "the unit is served again")
        hears_of_a_loss(tarn)
        again = bench(tarn, 2)
        said, _ = again.communicate(timeout=60)
        equal(again.returncode, 0, f"exit code: {said}")


if __name__ == "__main__":
    harness.main()
