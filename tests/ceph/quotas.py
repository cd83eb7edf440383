"""Quotas of images, which count what these take in their cluster: a part of suite.py."""
import json
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import iscsi
import scsi
from harness import check, equal, test, wait_for
from rig import BLOCK, CHUNK, LIMITS, MIB, cluster, config, good, serve, write
from tarn import IQN, Tarn

# Of an image with the usual layout.
OBJECT = 4 * MIB
# Longer than some looks, and one of a slow machine.
LOOK_S = 60
NO_SPACE = (0x27, 0x07)
QUOTA = '[[quota]]\npool = "rbd:rbd"\nused = "32M"\nsoft = 60\n' + LIMITS


def used(tarn):
    return tarn.api().get("quotas")[0]["used_bytes"]


def space(tarn):
    return tarn.api().get("quotas")[0]["space"]


def takes(tarn, objects, what):
    wait_for(lambda: used(tarn) == objects * OBJECT, LOOK_S, f"{objects} objects: {what}", step_s=0.2)


def put(session, at, data, lun):
    """A WRITE, after the unit attentions that marks give."""
    while (outcome := write(session, at, data, lun=lun)).sense.key == scsi.UNIT_ATTENTION:
        pass
    return outcome


def touch(session, lun, *objects, byte=b"\xa5"):
    for number in objects:
        good(put(session, number * OBJECT, byte * CHUNK, lun), f"WRITE to object {number} of LUN {lun}")


def no_space(outcome, what):
    equal((outcome.status, outcome.sense.key, outcome.sense.code), (scsi.CHECK_CONDITION, scsi.DATA_PROTECT, NO_SPACE), what)


def of_rbd(ceph, image):
    """What `rbd du` says an image takes with its snapshots."""
    # A row for the image and one for each snapshot.
    return sum(one["used_size"] for one in json.loads(ceph.rbd("du", "--format", "json", f"rbd/{image}"))["images"])


@test(limit_s=300)
def quotas_count_what_images_and_their_snapshots_take():
    """Two thin images of 64 MiB under a quota of 32 MiB: their objects count as `rbd du` has them, and so does what a snapshot
    keeps, also after a start; at the limit blocks with space are written, others end with 27h/07h; what a snapshot kept is free
    when it is removed."""
    ceph = cluster()
    with ceph.image("thin") as one, ceph.image("second") as two:
        with serve(one, two, more=QUOTA) as (tarn, session):
            takes(tarn, 0, "nothing is written")
            touch(session, 0, 0, 1, 2, 3)
            takes(tarn, 4, "what was written")
            equal(used(tarn), of_rbd(ceph, "thin"), "as rbd du has it")
            tarn.api().post("snapshots", {"luns": ["lun0"], "name": "one"})
            touch(session, 0, 0, 1, byte=b"\x5a")
            takes(tarn, 6, "with what the snapshot keeps")
            equal(used(tarn), of_rbd(ceph, "thin"), "as rbd du has it, with a snapshot")
            wait_for(lambda: space(tarn) == "low", LOOK_S, "the soft mark", step_s=0.2)
            touch(session, 1, 0, 1)
            takes(tarn, 8, "of both images")
            wait_for(lambda: space(tarn) == "full", LOOK_S, "the limit", step_s=0.2)
            for lun, number in ((0, 4), (1, 2)):
                no_space(put(session, number * OBJECT, bytes(BLOCK), lun), f"WRITE to a new object of LUN {lun}")
                good(put(session, 0, b"c" * BLOCK, lun), "WRITE again")
        with serve(one, two, more=QUOTA) as (tarn, session):
            wait_for(lambda: space(tarn) == "full", LOOK_S, "the limit after a start", step_s=0.2)
            no_space(put(session, 2 * OBJECT, bytes(BLOCK), 1), "WRITE to a new object after a start")
            equal(tarn.api().ask("DELETE", "luns/lun0/snapshots/one").status, 204, "the snapshot is removed")
            takes(tarn, 6, "without the snapshot")
            wait_for(lambda: space(tarn) == "low", LOOK_S, "space again", step_s=0.2)
            touch(session, 1, 2)


@test(limit_s=240)
def images_are_counted_whatever_they_are_and_a_cluster_that_hangs_harms_nobody():
    """An image without the maps of its objects counts the same, and a clone without what it shares; while the object store is stopped
    the figures stay, questions are answered, the quota of a file goes on, and Tarn ends well when it goes on."""
    ceph = cluster()
    with ceph.image("plain") as plain, ceph.image("base") as base:
        ceph.rbd("feature", "disable", "rbd/plain", "fast-diff", "object-map")
        more = QUOTA + '[[quota]]\nowner = "alice"\nused = "2M"\n'
        text = config(plain, base, "{dir}/file.img?size=16M", more=more).replace('id = "lun2"\n', 'id = "lun2"\nowner = "alice"\n', 1)
        with Tarn(config=text) as tarn, iscsi.Session(tarn.port, IQN, timeout_s=60) as session:
            for lun in range(3):
                session.clear_unit_attentions(lun)
            touch(session, 0, 0, 7)
            touch(session, 1, 0, 1, 2)
            takes(tarn, 5, "of both")
            tarn.api().post("snapshots", {"luns": ["lun1"], "name": "one"})
            tarn.api().post("luns/lun1/snapshots/one/clone", {"lun": {"id": "copy", "store": ceph.store("copy")},
                                                              "view": {"target": IQN, "lun": 9, "id": "copy"}})
            session.clear_unit_attentions(9)
            touch(session, 9, 3)
            takes(tarn, 6, "with the object of the clone")
            ceph.signal("osd.0", signal.SIGSTOP)
            try:
                for at in range(0, 2 * MIB, CHUNK):
                    good(put(session, at, b"\xa5" * CHUNK, 2), "WRITE to the file")
                session.command(scsi.synchronize_cache16(), lun=2)
                alice = lambda: tarn.api().get("quotas")[1]
                wait_for(lambda: alice()["space"] == "full", LOOK_S, "the quota of the file", step_s=0.2)
                equal(used(tarn), 6 * OBJECT, "what the images took")
            finally:
                ceph.signal("osd.0", signal.SIGCONT)
            touch(session, 1, 5)
            takes(tarn, 7, "when the cluster goes on")
            edits = [{"hide": {"lun": "copy"}}, {"remove": {"lun": "copy"}}]
            tarn.api().post("config/edits", {"edits": edits})
            takes(tarn, 6, "without the clone")
        wait_for(lambda: not ceph.watchers("copy"), 60, "the end of the clone", step_s=0.5)
        ceph.rbd("rm", "rbd/copy")
        wait_for(lambda: not ceph.watchers("base"), 60, "the end of the image", step_s=0.5)
        ceph.rbd("snap", "rm", "rbd/base@one")


@test(limit_s=240)
def it_ends_well_while_images_are_counted():
    """Ended again and again right after its start, while images are counted: each end is a good one, and leaves no lock."""
    ceph = cluster()
    with ceph.image("ended", 8192) as store:
        ceph.rbd("feature", "disable", "rbd/ended", "fast-diff", "object-map")
        for _ in range(8):
            # The end of the block ends it, with exit code 0.
            with serve(store, more=QUOTA) as (_, session):
                good(put(session, 0, bytes(BLOCK), 0), "WRITE")
            equal(ceph.watchers("ended"), [], "watches")
