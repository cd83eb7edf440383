"""Clients that are blocklisted, moves between gateways, and images that lose their names: a part of suite.py."""
import contextlib
import pathlib
import signal
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import admin
import scsi
from harness import Failure, check, equal, test, wait_for
from rig import BLOCK, cluster, config, good, held_elsewhere, lost, read, serve, serve_waiting, write
from tarn import Tarn, free_port, run

ROUNDS = 5


def found(tarn, code):
    """What the doctor says with this code."""
    findings = tarn.api().get("status")["findings"]
    return " ".join(finding["message"] for finding in findings if finding["code"] == code)


def refused(words, act):
    """The order fails, with all these words."""
    try:
        act()
    except admin.Refused as error:
        said = error.answer.body.decode()
        for word in words:
            check(word in said, f"{word!r} is not in {said}")
    else:
        raise Failure(f"it is not refused: {words}")


@test(limit_s=120)
def a_client_that_is_blocklisted_while_idle_says_so_and_is_served_again():
    """When somebody has Tarn's client blocklisted, its units are NOT READY and the doctor says why, without a command. As no other
    client has the images, they are opened again over another connection."""
    ceph = cluster()
    with ceph.image("taken", 8) as first, ceph.image("beside", 8) as second:
        with serve(first, second, check_exit=False) as (tarn, session):
            for n in range(2):
                good(write(session, 0, b"a" * BLOCK, lun=n), "WRITE")
            address = ceph.watchers("taken")[0]
            ceph.admin("osd", "blocklist", "add", address)
            try:
                wait_for(lambda: lost(tarn).count("blocklisted") == 2, 8, "the findings of the doctor", 0.2)
                for n in range(2):
                    check(held_elsewhere(session.command(scsi.test_unit_ready(), lun=n)), f"TEST UNIT READY of lun {n}")
                for n in range(2):
                    wait_for(lambda n=n: write(session, 0, b"b" * BLOCK, lun=n).good, 40, f"lun {n} is served again", 0.5)
                    equal(good(read(session, 0, BLOCK, lun=n), "READ"), b"b" * BLOCK, "data")
                wait_for(lambda: not lost(tarn), 10, "the end of the findings")
                check(ceph.watchers("taken")[0] != address, "it has the same connection")
            finally:
                ceph.admin("osd", "blocklist", "rm", address)


@test(limit_s=120)
def a_takeover_at_a_gateway_that_was_fenced_while_idle_gives_the_image_back():
    """A gateway that has just been fenced does not answer a takeover with what it believes: it takes the image back."""
    ceph = cluster()
    with ceph.image("back", 8) as store:
        with serve(store, check_exit=False) as (one, here), serve_waiting(ceph.store("back", "&takeover=wait")) as (other, there):
            for tarn, session in ((other, there), (one, here), (other, there)):
                tarn.api().post("luns/lun0/takeover", None)
                wait_for(lambda session=session: write(session, 0, b"x" * BLOCK).good, 20, "the unit is served")


@test(limit_s=240)
def a_planned_move_costs_the_gateway_that_takes_over_nothing():
    """One gateway ends and the other gets the order to take its image over at the same moment: it never blocklists its own client,
    so its other image goes on."""
    ceph = cluster()
    for _ in range(ROUNDS):
        with ceph.image("moving", 8) as store, ceph.image("staying", 8) as other:
            first = Tarn(config=config(store), check_exit=False)
            with first:
                with serve_waiting(ceph.store("moving", "&takeover=wait"), other) as (second, session):
                    wait_for(lambda: write(session, 0, bytes(BLOCK), lun=1).good, 20, "the other image is served")
                    first.process.send_signal(signal.SIGTERM)
                    second.api().post("luns/lun0/takeover", None)
                    wait_for(lambda: write(session, 0, bytes(BLOCK)).good, 20, "the image is served")
                    good(write(session, 0, bytes(BLOCK), lun=1), "WRITE to the other image")
                    equal(lost(second), "", "findings")


@test(limit_s=120)
def an_image_that_lost_its_name_to_another_one_is_not_confused_with_it():
    """After `rbd rename` and a new image of the name the LUN goes on with its data, the doctor reports it, and clones, snapshots and
    removals of snapshots are refused; a gateway that waits does not take the new one over."""
    ceph = cluster()
    with ceph.image("named", 8) as store, ceph.image("another", 8):
        with serve(store, check_exit=False) as (tarn, session), contextlib.ExitStack() as stack:
            api = tarn.api()
            good(write(session, 0, b"a" * BLOCK), "WRITE")
            api.post("snapshots", {"luns": ["lun0"], "name": "s1"})
            second, waiting = stack.enter_context(serve_waiting(ceph.store("named", "&takeover=wait")))
            wait_for(lambda: "it waits for the client" in lost(second), 10, "the second one waits")
            ceph.rbd("rename", "rbd/named", "rbd/kept")
            ceph.rbd("rename", "rbd/another", "rbd/named")
            try:
                wait_for(lambda: "another image" in found(tarn, "file-replaced"), 10, "the finding of the doctor")
                refused(["another image"], lambda: api.post("snapshots", {"luns": ["lun0"], "name": "s2"}))
                refused(["another image"], lambda: second.api().post("luns/lun0/takeover", None))
                good(write(session, 0, b"b" * BLOCK), "WRITE")
                equal(good(read(session, 0, BLOCK), "READ"), b"b" * BLOCK, "data")
                check(held_elsewhere(waiting.command(scsi.test_unit_ready())), "the second one has it")
            finally:
                ceph.rbd("rename", "rbd/named", "rbd/another")
                ceph.rbd("rename", "rbd/kept", "rbd/named")
            wait_for(lambda: not found(tarn, "file-replaced"), 10, "the end of the finding")
            api.post("snapshots", {"luns": ["lun0"], "name": "s2"})
            for name in ("s1", "s2"):
                ceph.rbd("snap", "rm", f"rbd/named@{name}")


@test
def to_wait_for_an_image_needs_its_exclusive_lock():
    """`takeover=wait` with an image that has none is refused with the remedy; one that loses it is not opened by who waits."""
    ceph = cluster()
    ceph.rbd("create", "--size", "8M", "--image-feature", "layering", "rbd/bare")
    try:
        with tempfile.TemporaryDirectory(prefix="ceph-test.") as path:
            done = run("serve", "--state", f"{path}/state", "--listen", f"127.0.0.1:{free_port()}",
                       ceph.store("bare", "&takeover=wait"), limit_s=30)
        equal(done.returncode, 2, "exit code")
        for word in ("no exclusive lock", "rbd feature enable"):
            check(word in done.stderr, f"{word!r} is not in {done.stderr}")
    finally:
        wait_for(lambda: not ceph.watchers("bare"), 60, "the end of its watch", 0.5)
        ceph.rbd("rm", "rbd/bare")
    with ceph.image("stripped", 8) as store:
        with serve(store) as (_, session), serve_waiting(ceph.store("stripped", "&takeover=wait")) as (second, waiting):
            good(write(session, 0, bytes(BLOCK)), "WRITE")
            wait_for(lambda: "it waits for the client" in lost(second), 10, "the second one waits")
            ceph.rbd("feature", "disable", "rbd/stripped", "object-map", "fast-diff", "exclusive-lock")
            wait_for(lambda: "no exclusive lock" in lost(second), 20, "the finding of the doctor")
            check(not write(waiting, 0, bytes(BLOCK)).good, "both serve it")
