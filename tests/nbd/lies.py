"""Servers that lie, at the start, when they are found again, and in their answers: a part of suite.py.

No data that such a server did not send is ever given to an initiator as that of a READ, and all others are served.
"""
import contextlib
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import admin
import harness
import iscsi
import scsi
from harness import check, equal, test, wait_for
from liar import FLAGS, MIB, Liar
from tarn import IQN, Tarn, free_port, lun_section, run, target_section

BLOCK = 512
PAGE = 4096
LIMITS = "[limits]\ntask_deadline_seconds = 2\nshutdown_timeout_seconds = 2\n"
OLD_STYLE = b"NBDMAGIC" + bytes.fromhex("00420281861253") + bytes(145)


def with_go(server, name):
    server.go = getattr(server, name)
    return server


def with_tls(name, **how):
    server = Liar(scheme="nbds", **how)
    server.start_tls = getattr(server, name)
    return server


# What a server is, the options of the store, and what the line has to say.
AT_THE_START = {
    "no bytes": (lambda: Liar(size=0), "", ("0 bytes are not a whole number of blocks of 512 bytes",)),
    "half a block": (lambda: Liar(size=8 * MIB + 256), "", ("8388864 bytes are not a whole number of blocks of 512",)),
    "blocks of 4096 that are not whole": (lambda: Liar(size=8 * MIB + 512), "?blocksize=4096", ("whole number of blocks of 4096",)),
    "larger blocks": (lambda: Liar(sizes=(4096, 4096, MIB)), "", ("smallest block has 4096 bytes", "blocksize=4096")),
    "blocks that are too large": (lambda: Liar(sizes=(8192, 8192, MIB)), "?blocksize=4096", ("8192 bytes", "cannot be a disk")),
    "blocks of no bytes": (lambda: Liar(sizes=(0, 4096, MIB)), "", ("contradict each other", "repaired")),
    "blocks of three bytes": (lambda: Liar(sizes=(3, 4096, MIB)), "", ("contradict each other: 3 at least",)),
    "best blocks that are no blocks": (lambda: Liar(sizes=(512, 4097, MIB)), "", ("contradict each other", "4097 at best")),
    "requests that hold no block": (lambda: Liar(sizes=(512, 512, 256)), "", ("contradict each other", "256 at most")),
    "requests of broken blocks": (lambda: Liar(sizes=(512, 4096, 5000)), "", ("contradict each other", "5000 at most")),
    "another protocol": (lambda: Liar(greeting=b"SSH-2.0-OpenSSH_9.2\r\n"), "", ("no NBD server",)),
    "the old style": (lambda: Liar(greeting=OLD_STYLE), "", ("no NBD server of the new style",)),
    "half an answer": (lambda: with_go(Liar(), "silent_go"), "", ("accepts, but does not answer",)),
    "a byte at a time": (lambda: with_go(Liar(), "slow_go"), "", ("accepts, but does not answer",)),
    "no end": (lambda: with_go(Liar(), "endless_go"), "", ("too many replies",)),
    "an end": (lambda: with_go(Liar(), "closing_go"), "", ("the handshake broke off",)),
    "no TLS": (lambda: with_tls("no_tls"), "", ("does not take TLS (no TLS here)", "connect without TLS")),
    "clear text before TLS": (lambda: with_tls("clear_tls"), "", ("the server sent clear text before TLS began",)),
}


def config(*stores, more=LIMITS):
    ids = [f"lun{n}" for n in range(len(stores))]
    return "".join(lun_section(id, store) for id, store in zip(ids, stores)) + target_section(*ids) + more


@contextlib.contextmanager
def serve(server, options=""):
    """A Tarn with this server's disk and one of memory, and a session."""
    with Tarn(config=config(server.store + options, "mem:1M")) as tarn, iscsi.Session(tarn.port, IQN, timeout_s=30) as session:
        for lun in range(2):
            session.clear_unit_attentions(lun)
        yield tarn, session


def read(session, at, length, lun=0):
    return session.command(scsi.read16(at // BLOCK, length // BLOCK), read=length, lun=lun)


def write(session, at, data, lun=0):
    return session.command(scsi.write16(at // BLOCK, len(data) // BLOCK), write=data, lun=lun)


def good(outcome, what):
    check(outcome.good, f"{what}: {outcome}")
    return outcome.data


def alive(session):
    """The other unit works."""
    data = os.urandom(PAGE)
    good(write(session, 0, data, lun=1), "WRITE of the other unit")
    equal(good(read(session, 0, PAGE, lun=1), "READ of the other unit"), data, "data of the other unit")


def lost(tarn):
    findings = tarn.api().get("status")["findings"]
    return " ".join(found["message"] for found in findings if found["code"] == "store-lost")


@test(limit_s=120)
def what_a_server_says_of_itself_is_checked_at_the_start():
    """Sizes and blocks that cannot be, other protocols, answers that do not end: exit code 2, one line with place and remedy."""
    for name, (make, options, words) in AT_THE_START.items():
        with make() as server:
            store = server.store + options
            begin = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="nbd-test.") as path:
                done = run("serve", "--state", path, "--listen", f"127.0.0.1:{free_port()}", store)
            equal(done.returncode, 2, f"{name}: exit code; {done.stderr}")
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            equal(len(lines), 1, f"{name}: lines of {done.stderr}")
            for word in (f'STORE "{store}"', *words):
                check(word in lines[0], f"{name}: {word!r} is not in {lines[0]}")
            harness.measured(f"{name} {time.monotonic() - begin:.1f} s")


@test(limit_s=120)
def what_a_server_says_of_itself_is_checked_in_changes():
    """The same in a running daemon: the change is refused with that reason, and the units go on."""
    with Liar() as first, serve(first) as (tarn, session):
        for name, (make, options, words) in AT_THE_START.items():
            with make() as server:
                try:
                    tarn.api().put("luns/new", {"id": "new", "store": server.store + options})
                    raise harness.Failure(f"{name} is not refused")
                except admin.Refused as error:
                    said = error.answer.json["detail"]
                for word in words:
                    check(word in said, f"{name}: {word!r} is not in {said}")
            alive(session)
        equal(len(tarn.api().get("luns")), 2, "units")


@test
def a_server_that_says_nothing_of_blocks_is_served():
    """Without block sizes those of the protocol hold; with the largest and the least possible ones data comes back as well."""
    for sizes in (None, (1, 512, 0xFFFFFFFF), (512, 512, 512), (1, 1 << 25, 1 << 25)):
        with Liar(sizes=sizes) as server, serve(server) as (_, session):
            data = os.urandom(64 << 10)
            good(write(session, 3 * BLOCK, data), "WRITE")
            equal(good(read(session, 3 * BLOCK, len(data)), "READ"), data, f"data with {sizes}")


@test
def a_disk_of_all_that_a_number_can_name_is_served():
    """The last block of an export of 2^64 - 512 bytes can be asked for; what is behind it is refused."""
    with Liar(size=2 ** 64 - 512) as server, serve(server) as (_, session):
        blocks = 2 ** 55 - 1
        equal(scsi.capacity(session), (blocks, BLOCK), "capacity")
        good(write(session, 0, bytes(PAGE)), "WRITE")
        check(not session.command(scsi.read16(blocks, 1), read=BLOCK).good, "a READ behind the end")
        check(not session.command(scsi.read16(blocks - 1, 2), read=2 * BLOCK).good, "a READ over the end")
        alive(session)


def lies(name):
    def case():
        with Liar() as server, serve(server) as (tarn, session):
            data = os.urandom(64 << 10)
            good(write(session, MIB, data), "WRITE")
            good(session.command(scsi.synchronize_cache16()), "SYNCHRONIZE CACHE")
            server.read = getattr(server, name)
            outcome = read(session, MIB, len(data))
            check(not outcome.good, "the READ is answered as good")
            check(outcome.sense.key in (scsi.NOT_READY, scsi.HARDWARE_ERROR), f"READ: {outcome}")
            harness.measured(f"{server.reads} answers, {outcome}")
            alive(session)
            server.read = server.honest_read
            wait_for(lambda: read(session, 0, BLOCK).good, 20, "the unit is served again")
            equal(good(read(session, MIB, len(data)), "READ"), data, "data")
    case.__doc__ = f"A server whose answer to READ is a lie ({name}): no data is given, others are served, and so is it afterwards."
    harness.add(f"an_answer_that_lies_{name}_gives_no_data", case)


for lie in ("twice", "half", "elsewhere", "to_nobody", "other_magic", "wrong_chunk", "breaks_off"):
    lies(lie)


@test(limit_s=90)
def a_server_that_stands_still_within_its_answer_holds_its_own_unit_alone():
    """Half of the data, then nothing: the other unit works; an abort is answered; a cut of the connection is another attempt."""
    with Liar() as server, serve(server) as (tarn, session):
        data = os.urandom(256 << 10)
        good(write(session, MIB, data), "WRITE")
        good(session.command(scsi.synchronize_cache16()), "SYNCHRONIZE CACHE")
        server.read = server.stands_still
        waits = session.start(scsi.read16(MIB // BLOCK, len(data) // BLOCK), read=len(data))
        ends = session.start(scsi.read16(0, 8), read=PAGE)
        for _ in range(20):
            alive(session)
        response = session.tmf(iscsi.ABORT_TASK, task=ends, timeout_s=10)
        check(response in (iscsi.TMF_COMPLETE, iscsi.TMF_REJECTED), f"response {response}")
        with iscsi.Session(tarn.port, IQN) as second:
            second.clear_unit_attentions(1)
            alive(second)
        check(not session.connection.readable(0), "the READ was answered")
        server.read = server.honest_read
        server.cut()
        equal(good(session.finish(waits), "the READ"), data, "data")


@test(limit_s=120)
def an_export_that_comes_back_as_another_one_is_not_used():
    """When the connection is made again, an export that is smaller, can do less, or has other blocks is NOT READY, with the reason
    in the finding; as it was before, it is served again."""
    with Liar() as server, serve(server, "?retry=1") as (tarn, session):
        data = os.urandom(64 << 10)
        good(write(session, MIB, data), "WRITE")
        good(session.command(scsi.synchronize_cache16()), "SYNCHRONIZE CACHE")
        honest = {"size": server.size, "flags": server.flags, "sizes": server.sizes, "go": server.go}
        for lie, words in (({"size": 4 * MIB}, "had 8388608 bytes and has 4194304"), ({"size": 0}, "had 8388608 bytes and has 0"),
                           ({"flags": FLAGS & ~4}, "can do less than before"), ({"flags": FLAGS | 2}, "can do less than before"),
                           ({"sizes": (1024, 4096, MIB)}, "other block sizes"), ({"sizes": (512, 4096, PAGE)}, "other block sizes"),
                           ({"sizes": (512, 4097, MIB)}, "contradict each other"),
                           ({"go": server.silent_go}, "does not answer"), ({"go": server.endless_go}, "too many replies")):
            server.__dict__.update(lie)
            server.cut()
            outcome = wait_for(lambda: not (said := read(session, MIB, PAGE)).good and said, 20, f"NOT READY with {lie}")
            equal((outcome.sense.key, outcome.sense.code), (scsi.NOT_READY, (0x04, 0x01)), f"READ with {lie}")
            wait_for(lambda: words in lost(tarn), 20, f"{words!r} in the finding")
            alive(session)
            server.__dict__.update(honest)
            server.cut()
            wait_for(lambda: read(session, MIB, PAGE).good, 30, f"it is served again after {lie}")
            equal(good(read(session, MIB, len(data)), "READ"), data, f"data after {lie}")
        good(session.command(scsi.synchronize_cache16()), "SYNCHRONIZE CACHE of what was flushed before")


@test
def an_export_that_grows_is_seen_whichever_core_has_its_connection():
    """Several exports are larger when their connections are made again: each unit is, and initiators are told."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Liar()) for _ in range(8)]
        tarn = stack.enter_context(Tarn(config=config(*(server.store for server in servers))))
        session = stack.enter_context(iscsi.Session(tarn.port, IQN, timeout_s=30))
        for lun, server in enumerate(servers):
            session.clear_unit_attentions(lun)
            server.size = 16 * MIB
            server.disk.extend(bytes(8 * MIB))
            server.cut()
        for lun in range(len(servers)):
            wait_for(lambda: read(session, 12 * MIB, PAGE, lun).good, 30, f"unit {lun} is larger")
            equal(scsi.capacity(session, lun), (16 * MIB // BLOCK, BLOCK), f"capacity of unit {lun}")


@test
def an_eject_reports_a_lost_cache_once_and_the_log_has_it():
    """A connection is lost after a WRITE that no flush covered: the eject fails and says why, the next one does not, and the end is
    good, as the caller of the eject has had the report. The log has it, too."""
    with Liar() as server, Tarn(config=config(f"{server.store}?removable=true")) as tarn:
        with iscsi.Session(tarn.port, IQN, timeout_s=30) as session:
            session.clear_unit_attentions()
            good(write(session, 0, bytes(PAGE)), "WRITE")
            server.cut()
            wait_for(lambda: "is lost" in tarn.log() and read(session, 0, BLOCK).good, 20, "it is connected again")
        answer = tarn.api().ask("POST", "luns/lun0/eject", {})
        equal(answer.status, 500, f"an eject that reports a loss: {answer}")
        check("cannot be flushed" in answer.json["detail"], answer)
        tarn.await_log("the flush of an order for its medium failed")
        # Its exit code is checked at the end.
        tarn.api().post("luns/lun0/eject", {})


@test
def a_cache_that_is_lost_shows_at_the_end():
    """A connection that is lost after a WRITE that no flush covered: the end of Tarn says so, whichever core has the connection."""
    for _ in range(4):
        with Liar() as server:
            with Tarn(config=config(server.store), check_exit=False) as tarn, iscsi.Session(tarn.port, IQN, timeout_s=30) as session:
                session.clear_unit_attentions()
                good(write(session, 0, bytes(PAGE)), "WRITE")
                server.cut()
                wait_for(lambda: "is lost" in tarn.log() and read(session, 0, BLOCK).good, 20, "it is connected again")
                equal(tarn.terminate(), 1, f"exit code; {tarn.log_tail(5)}")
