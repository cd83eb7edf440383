#!/usr/bin/env python3
"""Images of a Ceph cluster as stores: the data is right, and a cluster that hangs, ends or is taken over harms nobody else.

    suite.py [--list] [PATTERN...]

A cluster of one machine is started (start.sh). Where Ceph cannot be installed, every test is skipped.
"""
import contextlib
import json
import os
import pathlib
import random
import signal
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import admin
import harness
import iscsi
import scsi
from harness import check, equal, test, wait_for
from rig import BLOCK, CHUNK, LIMITS, MIB, Cluster, cluster, compare_and_write, config, good, held_elsewhere, lost, not_ready, \
    pr_out, read, registrations, serve, serve_waiting, shown, told, write
from tarn import IQN, Tarn, free_port, run, target_section

# Their tests are of this suite.
import faults
import gateways
import quotas
import snapshots

PARTS = [snapshots, faults, gateways, quotas]

# What a unit answers whose image another client has.
DESCRIBING = {
    "INQUIRY": scsi.inquiry(),
    "READ CAPACITY (10)": bytes([0x25]) + bytes(9),
    "READ CAPACITY (16)": scsi.read_capacity16(),
    "REPORT LUNS": scsi.report_luns(255),
    "PERSISTENT RESERVE IN": bytes([0x5E, 0, 0, 0, 0, 0, 0, 0, 255, 0]),
    "MODE SENSE": bytes([0x1A, 0, 0x3F, 0, 255, 0]),
}


def refused(*stores, limit_s=30):
    """How a start with these stores fails, in one line."""
    with tempfile.TemporaryDirectory(prefix="ceph-test.") as path:
        done = run("serve", "--state", f"{path}/state", "--listen", f"127.0.0.1:{free_port()}", *stores, limit_s=limit_s)
    equal(done.returncode, 2, f"exit code; {done.stderr}")
    equal(done.stderr.count("\n"), 1, f"lines; {done.stderr}")
    return done.stderr


def put_to_the_test(session, size, chance):
    """Writes and unmaps at random; gives what the disk has to have."""
    expected = bytearray(size)
    for _ in range(120):
        length = chance.choice((BLOCK, 8 * BLOCK, CHUNK, 256 << 10))
        at = chance.randrange(0, (size - length) // BLOCK) * BLOCK
        data = chance.randbytes(length)
        good(write(session, at, data), "WRITE")
        expected[at:at + length] = data
    for length in (MIB, 3 * BLOCK, 9 * MIB):
        at = chance.randrange(0, (size - length) // BLOCK) * BLOCK
        ranges = scsi.unmap_parameters((at // BLOCK, length // BLOCK))
        good(session.command(scsi.unmap(len(ranges)), write=ranges), "UNMAP")
        expected[at:at + length] = bytes(length)
    good(session.command(scsi.synchronize_cache16()), "SYNCHRONIZE CACHE")
    return expected


def equal_on_disk(session, expected):
    for at in range(0, len(expected), 256 << 10):
        check(good(read(session, at, 256 << 10), "READ") == expected[at:at + (256 << 10)], f"READ at {at}")


@test(limit_s=120)
def data_reaches_the_image_and_comes_back():
    """What is written, unmapped, compared and written over iSCSI is in the image as `rbd export` has it, and in what is read;
    after another start, too."""
    ceph = cluster()
    with ceph.image("data") as store:
        tarn = Tarn(store)
        with tarn.start() and iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions(0)
            equal(scsi.capacity(session), (64 * MIB // BLOCK, BLOCK), "capacity")
            expected = put_to_the_test(session, 64 * MIB, random.Random(7))
            new = os.urandom(BLOCK)
            swap = bytes(expected[:BLOCK]) + new
            good(session.command(compare_and_write(0, 1), write=swap), "COMPARE AND WRITE")
            expected[:BLOCK] = new
            equal(session.command(compare_and_write(0, 1), write=swap).sense.key, scsi.MISCOMPARE, "the second one")
            equal_on_disk(session, expected)
            serial = good(session.command(scsi.inquiry(0x80), read=255), "INQUIRY")
            equal(tarn.api().get("luns")[0]["kind"], "rbd", "kind")
        equal(tarn.terminate(), 0, "exit code")
        check(ceph.rbd("export", "rbd/data", "-") == expected, "the image has other data")
        with tarn.start() and iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions(0)
            equal_on_disk(session, expected)
            equal(good(session.command(scsi.inquiry(0x80), read=255), "INQUIRY"), serial, "serial number")
        equal(tarn.terminate(), 0, "exit code")
        tarn.close()


@test
def a_snapshot_is_only_read():
    """`@SNAP` shows what the image had, and refuses writes, while the image itself is written."""
    ceph = cluster()
    with ceph.image("snapped", 8) as store:
        with serve(store) as (_, session):
            good(write(session, 0, b"a" * BLOCK), "WRITE")
        ceph.rbd("snap", "create", "rbd/snapped@one")
        with serve(store, ceph.store("snapped@one")) as (_, session):
            good(write(session, 0, b"b" * BLOCK), "WRITE")
            equal(good(read(session, 0, BLOCK, lun=1), "READ"), b"a" * BLOCK, "the snapshot")
            equal(write(session, 0, bytes(BLOCK), lun=1).sense.key, scsi.DATA_PROTECT, "WRITE to the snapshot")
        ceph.rbd("snap", "rm", "rbd/snapped@one")


@test
def whole_ranges_are_compared_and_written():
    """COMPARE AND WRITE of several blocks, in one object and across two, and with blocks of 4096 bytes; a difference is where it
    is, also in a later object."""
    ceph = cluster()
    with ceph.image("compared", 16) as store:
        for options, block in (("", BLOCK), ("&blocksize=4096", 4096)):
            with serve(store + options) as (_, session):
                for at in (0, (4 << 20) - 4 * block, 8 << 20):
                    count, lba = 8, at // block
                    old, new = os.urandom(count * block), os.urandom(count * block)
                    good(session.command(scsi.write16(lba, count), write=old), "WRITE")
                    good(session.command(compare_and_write(lba, count), write=old + new), "COMPARE AND WRITE")
                    equal(good(session.command(scsi.read16(lba, count), read=count * block), "READ"), new, "data")
                    for blocks in (1, count):
                        wrong = bytearray(new[:blocks * block])
                        wrong[259] ^= 1
                        outcome = session.command(compare_and_write(lba, blocks), write=bytes(wrong) + bytes(blocks * block))
                        equal((outcome.sense.key, outcome.sense.information), (scsi.MISCOMPARE, 259), f"{blocks} blocks at {at}")


@test(limit_s=120)
def what_is_only_read_is_watched():
    """A snapshot that is removed while it is served fails and gives no zeros; the resize of a `readonly` image is told."""
    ceph = cluster()
    with ceph.image("watched", 8) as store:
        with serve(store) as (_, session):
            good(write(session, 0, b"a" * BLOCK), "WRITE")
        ceph.rbd("snap", "create", "rbd/watched@one")
        with serve(ceph.store("watched@one"), check_exit=False) as (_, session):
            equal(good(read(session, 0, BLOCK), "READ"), b"a" * BLOCK, "the snapshot")
            ceph.rbd("snap", "rm", "rbd/watched@one")
            wait_for(lambda: not read(session, 0, BLOCK).good, 10, "its READs fail", 0.2)
        with serve(f"{store}&readonly") as (_, session):
            ceph.rbd("resize", "--size", "16M", "rbd/watched")
            def attention():
                outcome = session.command(scsi.test_unit_ready())
                return outcome.sense.key == scsi.UNIT_ATTENTION and outcome.sense.code == (0x2A, 0x09)
            wait_for(attention, 10, "CAPACITY DATA HAS CHANGED", 0.2)
            equal(scsi.capacity(session)[0], (16 << 20) // BLOCK, "the new capacity")
            equal(good(read(session, 0, BLOCK), "READ"), b"a" * BLOCK, "data")


@test
def an_image_without_a_lock_is_served_and_one_with_a_cache_is_not():
    """Images with other features and settings. That an image has no lock, or has lost it, is a line of the log."""
    ceph = cluster()
    ceph.rbd("create", "--size", "8M", "--image-feature", "layering", "rbd/plain")
    with serve(ceph.store("plain")) as (tarn, session):
        good(write(session, 0, b"a" * BLOCK), "WRITE")
        tarn.await_log("rbd/plain", "no exclusive lock")
    with ceph.image("unlocked", 8) as store, serve(store) as (tarn, session):
        good(write(session, 0, b"a" * BLOCK), "WRITE")
        check("no exclusive lock" not in tarn.log(), "it has a lock")
        ceph.rbd("feature", "disable", "rbd/unlocked", "object-map", "fast-diff", "exclusive-lock")
        tarn.await_log("rbd/unlocked", "no exclusive lock")
        good(write(session, 0, b"b" * BLOCK), "WRITE")
    wait_for(lambda: not ceph.watchers("plain"), 60, "the end of its watch", 0.5)
    for word in ("1", "TRUE", "true"):
        ceph.rbd("config", "image", "set", "rbd/plain", "rbd_cache", word)
        said = refused(ceph.store("plain"))
        check("rbd_cache" in said, said)
    ceph.rbd("config", "image", "rm", "rbd/plain", "rbd_cache")
    ceph.rbd("rm", "rbd/plain")


@test
def a_resize_from_outside_is_told():
    """`rbd resize` gives a unit attention, the new capacity, and room behind the old end."""
    ceph = cluster()
    with ceph.image("grown", 8) as store, serve(store) as (_, session):
        ceph.rbd("resize", "--size", "16M", "rbd/grown")
        attention = None

        def is_noticed():
            nonlocal attention
            attention = session.command(scsi.test_unit_ready())
            return not attention.good
        wait_for(is_noticed, 20, "the unit attention")
        equal((attention.sense.key, attention.sense.code), (scsi.UNIT_ATTENTION, (0x2A, 0x09)), "capacity data has changed")
        session.clear_unit_attentions(0)
        equal(scsi.capacity(session)[0], 16 * MIB // BLOCK, "the new capacity")
        data = os.urandom(CHUNK)
        good(write(session, 15 * MIB, data), "WRITE behind the old end")
        equal(good(read(session, 15 * MIB, CHUNK), "READ"), data, "data")


@test
def an_image_is_made_and_grows():
    """`size=` makes a missing image; a resize by the API grows it while it is used, with a unit attention, and the next start
    has that size. What is larger than its size=, is only read, or is a snapshot is not grown, and says so."""
    ceph = cluster()
    try:
        with serve(ceph.store("made", "&size=8M")) as (tarn, session):
            equal(scsi.capacity(session)[0], 8 * MIB // BLOCK, "blocks of the image that was made")
            good(write(session, 0, bytes(CHUNK)), "WRITE")
            tarn.api().post("luns/lun0/resize", {"size_bytes": 16 * MIB})
            attention = session.command(scsi.test_unit_ready())
            equal(attention.sense.code, (0x2A, 0x09), "capacity data has changed")
            data = os.urandom(CHUNK)
            good(write(session, 15 * MIB, data), "WRITE behind the old end")
            equal(json.loads(ceph.rbd("info", "--format", "json", "rbd/made"))["size"], 16 * MIB, "size of the image")
            check("size=16M" in tarn.api().get("luns")[0]["spec"]["store"], "the configuration has not the size")
        with serve(ceph.store("made", "&size=24M")) as (_, session):
            equal(scsi.capacity(session)[0], 24 * MIB // BLOCK, "blocks after a start with more")
            equal(good(read(session, 15 * MIB, CHUNK), "READ"), data, "data")
        wait_for(lambda: not ceph.watchers("made"), 20, "the end of the watches")
        with serve(ceph.store("made", "&size=8M")) as (_, session):
            equal(scsi.capacity(session)[0], 24 * MIB // BLOCK, "blocks after a start with less: size= is the least")
        wait_for(lambda: not ceph.watchers("made"), 20, "the end of the watches")
        said = refused(ceph.store("made", "&size=32M&readonly"))
        check("leave size= out" in said, said)
        check("a snapshot keeps the size" in refused(ceph.store("made@one", "&size=8M")), "the size of a snapshot")
    finally:
        wait_for(lambda: not ceph.watchers("made"), 60, "the end of the watches", step_s=0.5)
        ceph.rbd("rm", "rbd/made")


@test
def a_cluster_that_hangs_holds_its_own_unit_alone():
    """While the object store is stopped commands of its unit wait and those of another go on; then all go on."""
    ceph = cluster()
    with ceph.image("hung", 8) as store, serve(store, "mem:1M", more="") as (_, session):
        good(write(session, 0, bytes(CHUNK)), "WRITE")
        ceph.signal("osd.0", signal.SIGSTOP)
        try:
            data = os.urandom(CHUNK)
            tasks = [session.start(scsi.write16(0, CHUNK // BLOCK), write=data),
                     session.start(scsi.read16(2048, 8), read=8 * BLOCK)]
            for _ in range(100):
                good(write(session, 0, bytes(CHUNK), lun=1), "WRITE of the other unit")
            check(not session.connection.readable(0), "a command was answered")
        finally:
            ceph.signal("osd.0", signal.SIGCONT)
        for task in tasks:
            good(session.finish(task), "a command that waited")
        equal(good(read(session, 0, CHUNK), "READ"), data, "data")


@test(limit_s=90)
def without_an_answer_commands_end_as_not_ready():
    """With `retry=5` commands that come while the object store is stopped end with NOT READY, never with a medium error; the
    doctor and events tell both. A write that was begun is answered when the cluster goes on, and has its data there."""
    ceph = cluster()
    with ceph.image("lost", 8), serve(ceph.store("lost", "&retry=5"), more="") as (tarn, session):
        data = os.urandom(CHUNK)
        good(write(session, 0, bytes(CHUNK)), "WRITE")
        equal((lost(tarn), told(tarn)), ("", []), "before")
        ceph.signal("osd.0", signal.SIGSTOP)
        try:
            begun = session.start(scsi.write16(0, CHUNK // BLOCK), write=data)
            check(not_ready(read(session, MIB, BLOCK)), "a READ does not end with NOT READY")
            check(not_ready(write(session, MIB, bytes(BLOCK))), "a WRITE is not refused")
            wait_for(lambda: "does not answer" in lost(tarn), 10, "the finding of the doctor")
            equal(told(tarn), ["store-lost"], "events")
        finally:
            ceph.signal("osd.0", signal.SIGCONT)
        good(session.finish(begun), "the WRITE that was begun")
        wait_for(lambda: read(session, 0, BLOCK).good, 30, "the unit is served again")
        equal(good(read(session, 0, CHUNK), "READ"), data, "data")
        wait_for(lambda: not lost(tarn), 10, "the end of the finding")
        equal(told(tarn), ["store-lost", "store-reached"], "events")


@test
def an_image_of_another_client_is_refused():
    """A start with an image whose exclusive lock another client has says who that is. While Tarn serves an image, another
    Tarn gets that answer; when it has ended, the image is free."""
    ceph = cluster()
    with ceph.image("locked", 8) as store:
        with serve(store) as (_, session):
            good(write(session, 0, bytes(BLOCK)), "WRITE")
            address = ceph.watchers("locked")[0].split("/")[0]
            said = refused(store)
            for word in ("STORE \"rbd:rbd/locked", "exclusive lock", address, "end that client"):
                check(word in said, f"{word!r} is not in {said}")
        with serve(store) as (_, session):
            good(write(session, 0, bytes(BLOCK)), "WRITE")


@test(limit_s=90)
def a_second_gateway_shows_the_same_disk():
    """Serial number and NAA go with the image, and so do a registration and a reservation with APTPL, which the second
    gateway has for its own number of the same port; a clone is another disk."""
    ceph = cluster()
    with ceph.image("moved", 8) as store:
        with serve(store) as (_, session):
            before = shown(session)
            pr_out(session, 0, new_key=0xABC, aptpl=True)
            pr_out(session, 1, key=0xABC, scope_type=1)
            equal(registrations(session), [(0xABC, 1)], "registrations")
            isid = session.isid
        # Here another target had its number first.
        first = target_section(name="iqn.2000-01.example:first").replace("{port}", "{port2}")
        tarn = Tarn(config=first + config(store))
        (tarn.dir / "disks").mkdir()
        with tarn, iscsi.Session(tarn.port, IQN, isid=isid) as holder:
            holder.clear_unit_attentions(0)
            equal(shown(holder), before, "serial number and NAA")
            equal(registrations(holder), [(0xABC, 2)], "registrations")
            good(write(holder, 0, bytes(BLOCK)), "WRITE of the holder")
            with iscsi.Session(tarn.port, IQN, initiator=f"{IQN}.other") as other:
                other.clear_unit_attentions(0)
                equal(write(other, 0, bytes(BLOCK)).status, scsi.RESERVATION_CONFLICT, "WRITE of another")
            pr_out(holder, 3, key=0xABC)
        ceph.rbd("snap", "create", "rbd/moved@one")
        ceph.rbd("snap", "protect", "rbd/moved@one")
        ceph.rbd("clone", "rbd/moved@one", "rbd/copied")
        check(b"tarn.identity" in ceph.rbd("image-meta", "list", "rbd/copied"), "the clone has no copy of the metadata")
        with serve(store, ceph.store("copied"), ceph.store("moved@one")) as (_, session):
            equal(shown(session), before, "serial number and NAA")
            equal(registrations(session), [], "registrations after CLEAR")
            disks = {shown(session, lun)[0] for lun in range(3)}
            equal(len(disks), 3, "serial numbers of image, clone and snapshot")
            copy = shown(session, 1)
        with serve(ceph.store("copied")) as (_, session):
            equal(shown(session), copy, "serial number and NAA of the clone")
        wait_for(lambda: not ceph.watchers("copied"), 20, "the end of the watches")
        ceph.rbd("rm", "rbd/copied")
        ceph.rbd("snap", "unprotect", "rbd/moved@one")
        ceph.rbd("snap", "rm", "rbd/moved@one")


@test(limit_s=150)
def a_waiting_gateway_takes_over():
    """With takeover=wait an image of another Tarn does not end the start: its unit is NOT READY, and the doctor says who has it.
    When the other one ends, the unit is served, with its reservation; when it is killed, `takeover` does not wait for the
    30 s of its watch."""
    ceph = cluster()
    with ceph.image("shared", 8) as store:
        waits, took, data = ceph.store("shared", "&takeover=wait"), [], os.urandom(CHUNK)
        for end in ("terminate", "kill", "kill", "kill"):
            first = Tarn(config=config(store), check_exit=False)
            with first, iscsi.Session(first.port, IQN, isid=b"\x80tarn1") as session:
                session.clear_unit_attentions(0)
                before = shown(session)
                with serve_waiting(waits) as (second, waiting):
                    wait_for(lambda: held_elsewhere(waiting.command(scsi.test_unit_ready())), 30, "TEST UNIT READY is refused")
                    for what, outcome in (("READ", read(waiting, 0, BLOCK)), ("WRITE", write(waiting, 0, bytes(BLOCK))),
                                          ("SYNCHRONIZE CACHE", waiting.command(bytes([0x35]) + bytes(9)))):
                        check(held_elsewhere(outcome), f"{what} of the one that waits: {outcome}")
                    for what, cdb in DESCRIBING.items():
                        good(waiting.command(cdb, read=255), f"{what} of the one that waits")
                    wait_for(lambda: "it waits for the client at 127.0.0.1" in lost(second), 30, "the finding of the doctor")
                    good(write(session, 0, data), "WRITE")
                    pr_out(session, 6, new_key=0xABC, aptpl=True)
                    getattr(first, end)()
                    begin = time.monotonic()
                    if end == "kill":
                        second.api().post("luns/lun0/takeover", None)
                    # Its unit starts again, as the other one has saved a reservation.
                    wait_for(lambda: read(waiting, 0, BLOCK).good, 20, "the unit is served")
                    if end == "kill":
                        took.append(time.monotonic() - begin)
                    equal(good(read(waiting, 0, CHUNK), "READ"), data, "data")
                    equal([key for key, _ in registrations(waiting)], [0xABC], "registrations")
                    equal(shown(waiting), before, "serial number and NAA")
                    good(waiting.command(scsi.test_unit_ready()), "TEST UNIT READY")
                    good(write(waiting, 0, data), "WRITE")
        harness.measured(", ".join(f"{seconds:.1f} s" for seconds in took))
        check(statistics.median(took) <= 7, f"the median of {took} is more than 7 s")


@test(limit_s=120)
def a_client_that_lives_is_fenced_and_can_take_the_image_back():
    """A takeover from a Tarn that lives ends its writes; a takeover there gives the image back. A unit without an image has no
    takeover."""
    ceph = cluster()
    with ceph.image("fenced", 8) as store:
        waits = ceph.store("fenced", "&takeover=wait")
        with serve(store, "mem:1M", check_exit=False) as (one, here):
            # The first one has the image before the second one looks for it.
            good(write(here, 0, b"a" * BLOCK), "WRITE")
            # The one that is fenced ends in order: what it has answered is on the disks of the cluster.
            with serve_waiting(waits) as (other, there):
                other.api().post("luns/lun0/takeover", None)
                wait_for(lambda: write(there, 0, b"b" * BLOCK).good, 20, "the other one serves")
                wait_for(lambda: held_elsewhere(write(here, 0, b"c" * BLOCK)), 20, "the first one is fenced")
                check(held_elsewhere(here.command(scsi.test_unit_ready())), "TEST UNIT READY of the first one")
                good(here.command(scsi.test_unit_ready(), lun=1), "TEST UNIT READY of another unit")
                wait_for(lambda: "blocklisted" in lost(one), 10, "the finding of the doctor")
                equal(good(read(there, 0, BLOCK), "READ"), b"b" * BLOCK, "data")
                one.api().post("luns/lun0/takeover", None)
                wait_for(lambda: read(here, 0, BLOCK).good, 20, "the first one serves again")
                equal(good(read(here, 0, BLOCK), "READ"), b"b" * BLOCK, "data")
                wait_for(lambda: not_ready(write(there, 0, b"d" * BLOCK)), 20, "the other one is fenced")
                equal(one.api().ask("POST", "luns/lun1/takeover").status, 409, "a takeover of memory")
                equal(one.api().ask("POST", "luns/none/takeover").status, 404, "a takeover of nothing")


@test(limit_s=120)
def a_full_cluster_is_no_medium_error():
    """A cluster that has no space left ends writes to new objects as thin provisioning does and goes on with reads; with space
    all goes on."""
    ceph = cluster()
    objects = iter(range(2, 128))

    def set_ratios(ratios):
        for name, ratio in ratios.items():
            ceph.admin("osd", f"set-{name}-ratio", str(ratio))
    with ceph.image("full", 512) as store, serve(store) as (_, session):
        data = os.urandom(CHUNK)
        for at in range(0, 8 * MIB, CHUNK):
            good(write(session, at, data), "WRITE")

        def fails_for_space():
            outcome = write(session, next(objects) * 4 * MIB, data)
            check(outcome.good or outcome.sense.code == scsi.SPACE_ALLOCATION_FAILED, f"WRITE: {outcome}")
            return not outcome.good
        # Of 8 GiB.
        set_ratios({"nearfull": 0.00001, "backfillfull": 0.00002, "full": 0.00003})
        try:
            wait_for(fails_for_space, 40, "a WRITE that finds no space", step_s=0.5)
            equal(good(read(session, 0, CHUNK), "READ"), data, "data")
        finally:
            set_ratios({"full": 0.97, "backfillfull": 0.95, "nearfull": 0.9})
        wait_for(lambda: not fails_for_space(), 20, "writes with space", step_s=0.5)
        good(write(session, 0, data), "WRITE")


@test(limit_s=120)
def a_crash_is_followed_by_a_start():
    """After kill -9 the image is refused until the cluster notices that the client is gone; then a start breaks the lock, and
    every answered write is there."""
    ceph = cluster()
    with ceph.image("crashed", 8) as store:
        tarn = Tarn(config=config(store))
        with tarn.start() and iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions(0)
            data = os.urandom(CHUNK)
            good(write(session, MIB, data), "WRITE")
            tarn.kill()
        tarn.close()
        check("exclusive lock" in refused(store), "the lock is not in the way at once")
        begin = time.monotonic()
        wait_for(lambda: not ceph.watchers("crashed"), 60, "the end of the watch", step_s=0.5)
        harness.measured(f"{time.monotonic() - begin:.0f} s")
        with serve(store) as (_, session):
            equal(good(read(session, MIB, CHUNK), "READ"), data, "data")
            good(write(session, 0, data), "WRITE")


@test
def what_is_missing_is_told_in_one_line():
    """Configuration file, key, user, pool, image, snapshot and monitors that are not there: place, reason, remedy."""
    ceph = cluster()
    with tempfile.TemporaryDirectory(prefix="ceph-test.") as path:
        other = pathlib.Path(path) / "ceph.conf"
        monitors = f"mon host = 127.0.0.1:{free_port()}"
        lines = ceph.conf.read_text().splitlines()
        other.write_text("\n".join(monitors if line.startswith("mon host") else line for line in lines) + "\n")
        tail = f"?conf={ceph.conf}&user=target"
        for store, words in (
                (f"rbd:rbd/i?conf={path}/none", ("none: No such file or directory", "conf=")),
                (f"rbd:rbd/i{tail}&keyring={path}/key", ("key: No such file or directory", "client.target")),
                (f"rbd:rbd/i?conf={ceph.conf}&user=nobody", ("cannot connect as client.nobody", "keyring=")),
                (f"rbd:rbd/i?conf={other}&user=target", ("no monitor answers", "mon_host")),
                (f"rbd:none/i{tail}", ('there is no pool "none"', "create it")),
                (f"rbd:rbd/none{tail}", ("there is no such image", "rbd create")),
                (f"rbd:rbd/n/none{tail}", ("there is no such image", "rbd create"))):
            said = refused(store)
            for word in (f'STORE "{store}"', *words):
                check(word in said, f"{word!r} is not in {said}")
        pipe = pathlib.Path(path) / "pipe"
        os.mkfifo(pipe)
        said = refused(f"rbd:rbd/i?conf={pipe}&user=target")
        check("pipe: it is no file" in said, said)
        with ceph.image("bare", 8):
            said = refused(ceph.store("bare@none"))
            check("no such snapshot" in said, said)
            said = refused(ceph.store("bare"), ceph.store("bare", "&retry=7"))
            check("is already used at STORE" in said, said)


@test
def changes_add_and_remove_images():
    """A change adds an image and takes it out again; one that is not there, another size and another option are refused with
    the reason; units that are served go on."""
    ceph = cluster()
    with ceph.image("first", 8) as first, ceph.image("second", 16) as second, serve(first) as (tarn, session):
        api = tarn.api()

        def change(*stores):
            text = config(first, *stores).replace("{port}", str(tarn.port))
            return api.put("config", {"text": text})

        def fails(words, act):
            try:
                act()
            except admin.Refused as error:
                check(words in error.answer.body.decode(), f"{words!r} is not in {error.answer.body}")
            else:
                raise harness.Failure(f"it is not refused: {words}")
        for _ in range(2):
            change(second)
            session.clear_unit_attentions(0)
            session.clear_unit_attentions(1)
            equal(scsi.capacity(session, 1)[0], 16 * MIB // BLOCK, "blocks of the new unit")
            good(write(session, 0, bytes(CHUNK), lun=1), "WRITE")
            change()
            session.clear_unit_attentions(0)
        fails("there is no such image", lambda: change(ceph.store("none")))
        other = tarn.dir / "other.conf"
        other.write_text(ceph.conf.read_text())
        for options in ("", "&takeover=wait"):
            fails("another store of this Tarn has the same image", lambda: change(first.replace(str(ceph.conf), str(other)) + options))
        good(write(session, 0, bytes(CHUNK)), "WRITE")
        equal([lun["spec"]["id"] for lun in api.get("luns")], ["lun0"], "units")


@test(limit_s=90)
def images_share_a_connection():
    """A start with some images connects to the cluster as often as one with a single one, and so does a change that adds
    them; all are served."""
    ceph = cluster()
    with contextlib.ExitStack() as stack:
        stores = [stack.enter_context(ceph.image(f"many{n}", 8)) for n in range(6)]

        def connections(tarn):
            found = ceph.connections(tarn.process.pid)
            check(found > 0, "there is no connection")
            return found
        with serve(stores[0]) as (tarn, session):
            good(write(session, 0, bytes(BLOCK)), "WRITE")
            one = connections(tarn)
            text = config(*stores).replace("{port}", str(tarn.port))
            tarn.api().put("config", {"text": text})
            for n in range(len(stores)):
                session.clear_unit_attentions(n)
                good(write(session, 0, bytes(BLOCK), lun=n), "WRITE to an image that was added")
            # Those of the looks end behind the change.
            wait_for(lambda: connections(tarn) == one, 20, f"no more than {one} connections")
        with serve(*stores) as (tarn, session):
            for n in range(len(stores)):
                good(write(session, 0, bytes(BLOCK), lun=n), "WRITE")
            equal(connections(tarn), one, "connections of the start with all")
            harness.measured(f"{tarn.start_seconds:.1f} s, {tarn.threads()} threads")


@test(limit_s=90)
def confined_it_serves_and_opens_images():
    """With system calls, and with files too, given up, an image is served, and another one is added later. Without an image at
    the start the plan of the first is refused with the remedy."""
    ceph = cluster()
    roots = LIMITS + '[confine]\nroots = ["disks"]\n'
    with ceph.image("inside", 8) as inside, ceph.image("later", 8) as later:
        for more in (LIMITS, roots):
            with serve(inside, more=more) as (tarn, session):
                filter = pathlib.Path(f"/proc/{tarn.process.pid}/status").read_text()
                check("Seccomp:\t2" in filter, "no filter of system calls")
                data = os.urandom(CHUNK)
                good(write(session, 0, data), "WRITE")
                equal(good(read(session, 0, CHUNK), "READ"), data, "data")
                text = config(inside, later, more=more).replace("{port}", str(tarn.port))
                tarn.api().put("config", {"text": text})
                session.clear_unit_attentions(0)
                session.clear_unit_attentions(1)
                good(write(session, 0, data, lun=1), "WRITE to the image that was added")
        with serve("mem:1M", more=LIMITS) as (tarn, _):
            text = config("mem:1M", inside).replace("{port}", str(tarn.port))
            steps = tarn.api().post("plan", {"text": text})["steps"]
            reasons = [step["reason"] for step in steps if step["effect"] == "refused"]
            equal(len(reasons), 1, f"refusals ({reasons})")
            check("no store was an image of a Ceph cluster at the start" in reasons[0], reasons[0])


@test(limit_s=120)
def the_end_of_a_cluster_is_not_that_of_tarn():
    """The whole cluster is killed: commands end with NOT READY, another unit goes on, and Tarn ends in its bounds and says that
    an image is not closed."""
    cluster()
    ceph = Cluster()
    ceph.rbd("create", "--size", "8M", "rbd/gone")
    with serve(ceph.store("gone", "&retry=5"), "mem:1M", check_exit=False) as (tarn, session):
        good(write(session, 0, bytes(BLOCK)), "WRITE")
        for name in ("osd.0", "mon.a"):
            ceph.signal(name, signal.SIGKILL)
        check(not_ready(read(session, 0, BLOCK)), "NOT READY")
        check(not_ready(write(session, 0, bytes(BLOCK))), "a WRITE is not refused")
        good(write(session, 0, bytes(BLOCK), lun=1), "WRITE of the other unit")
        begin = time.monotonic()
        tarn.terminate()
        harness.measured(f"{time.monotonic() - begin:.1f} s")
        check("is not closed" in tarn.log(), f"no word about the image:\n{tarn.log_tail()}")


if __name__ == "__main__":
    harness.main()
