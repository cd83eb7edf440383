"""Snapshots, clones and rollbacks of images: a part of suite.py."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "conformance"))
import harness
import iscsi
import score
from harness import Failure, check, equal, measured, test, wait_for
from reflinks import file_system
from rig import BLOCK, CHUNK, LIMITS, MIB, cluster, config, good, lost, pr_out, read, registrations, serve, shown, write
from tarn import BINARY, IQN, Tarn

# A disk that libiscsi's tests run over as a whole; what is left out is what suite.py of conformance leaves out of a thin file.
NOT_BELOW_PHYSICAL_BLOCKS = ("ALL.ReadOnly.", "ALL.GetLBAStatus.UnmapSingle")


class Counter(threading.Thread):
    """Writes 1, 2, 3 and so on to the first block of each of these LUNs, one after the other, until it is left."""

    def __init__(self, tarn, luns):
        super().__init__(daemon=True)
        self.tarn, self.luns, self.count, self.error, self.is_over = tarn, luns, 0, None, False

    def run(self):
        try:
            with iscsi.Session(self.tarn.port, IQN, timeout_s=60) as session:
                for lun in self.luns:
                    session.clear_unit_attentions(lun)
                while not self.is_over:
                    self.count += 1
                    for lun in self.luns:
                        good(write(session, 0, struct.pack(">Q", self.count) * (BLOCK // 8), lun), "WRITE")
        except Exception as error:      # it is the test that fails
            self.error = error

    def __enter__(self):
        self.start()
        wait_for(lambda: self.count > 10 or self.error, 20, "writes are under way")
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.join(60)
        if self.error:
            raise Failure(f"the writes failed: {self.error}")


def counted(block):
    numbers = set(struct.unpack(f">{BLOCK // 8}Q", block[:BLOCK]))
    equal(len(numbers), 1, "numbers in one block")
    return numbers.pop()


def names(tarn, lun="lun0"):
    return [one["name"] for one in tarn.api().get(f"luns/{lun}/snapshots")]


def take(tarn, name, *luns):
    return tarn.api().post("snapshots", {"luns": list(luns or ["lun0"]), "name": name})


def remove(tarn, name, lun="lun0"):
    return tarn.api().ask("DELETE", f"luns/{lun}/snapshots/{name}")


def clone(tarn, lun, store, name, of="lun0"):
    view = {"target": IQN, "lun": 1, "id": lun}
    return tarn.api().ask("POST", f"luns/{of}/snapshots/{name}/clone", {"lun": {"id": lun, "store": store}, "view": view})


def verb(tarn, *arguments, code=0):
    done = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=90, env=tarn.environment(),
                          stdin=subprocess.DEVNULL)
    equal(done.returncode, code, f"tarn {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def refused(answer, status, *words):
    equal(answer.status, status, f"status of {answer.body}")
    for word in words:
        check(word in answer.json["detail"], f"{word!r} is not in {answer.json['detail']}")


@contextlib.contextmanager
def file_on_xfs():
    """A file that has snapshots, or nothing where there is no such file system."""
    if os.geteuid() != 0 or not shutil.which("mkfs.xfs"):
        yield None
        return
    with file_system("xfs") as place:
        yield f"file:{place}/disk.img?size=16M"


@test(limit_s=120)
def snapshots_of_images_and_files_are_of_one_moment():
    """A number is written to two images and a file, one after the other: in no snapshot is a later one ahead, or more than one
    behind. Commands wait for some tenths of a second at most."""
    ceph = cluster()
    with ceph.image("first", 16) as first, ceph.image("next", 16) as second, file_on_xfs() as third:
        stores = [first, second] + ([third] if third else [])
        with serve(*stores) as (tarn, _):
            paused = []
            with Counter(tarn, range(len(stores))) as counter:
                for number in range(6):
                    before = counter.count
                    taken = take(tarn, f"s{number}", *(f"lun{n}" for n in range(len(stores))))
                    paused.append(taken["paused_us"])
                    blocks = [ceph.rbd("export", f"rbd/{name}@s{number}", "-") for name in ("first", "next")]
                    if third:
                        blocks.append(pathlib.Path(taken["snapshots"][2]["path"]).read_bytes())
                    found = [counted(block) for block in blocks]
                    check(found == sorted(found, reverse=True) and found[0] - found[-1] <= 1, f"numbers {found}")
                    check(found[-1] >= before - 1, f"{found}, and {before - 1} was answered before")
            measured(f"commands waited {max(paused) / 1e3:.0f} ms at most")
            equal(names(tarn), [f"s{number}" for number in range(6)], "the list")
            (one, *_) = tarn.api().get("luns/lun1/snapshots")
            equal((one["path"], one["size_bytes"]), ("rbd:rbd/next@s0", 16 * MIB), "what is listed")
            check("snapshot-taken" in [event["kind"] for event in tarn.api().get("events")], "no event")
            for lun in ("lun0", "lun1"):
                for number in range(6):
                    equal(remove(tarn, f"s{number}", lun).status, 204, "removed")


@test(limit_s=150)
def a_clone_is_a_disk_of_its_own_and_is_flattened():
    """`lun add --clone` makes a copy-on-write clone: it has the data, changes alone, is another disk without the reservations of
    the first, and keeps the snapshot from being removed until it is flattened."""
    ceph = cluster()
    with ceph.image("origin", 16) as store:
        with serve(store) as (tarn, session):
            good(write(session, 0, b"a" * CHUNK), "WRITE")
            pr_out(session, 0, new_key=0xABC, aptpl=True)
            equal(take(tarn, "one")["snapshots"][0]["name"], "one", "name")
            refused(clone(tarn, "copy", ceph.store("copy", "&blocksize=4096"), "one"), 409, "say blocksize=512")
            refused(clone(tarn, "copy", ceph.store("copy"), "none"), 404, "no snapshot none")
            refused(clone(tarn, "copy", "file:{dir}/x.img", "one"), 400, "an image of the same cluster")
            refused(clone(tarn, "copy", "rbd:rbd/copy?user=target", "one"), 409, "conf=")
            refused(clone(tarn, "copy", ceph.store("origin"), "one"), 409, "choose another name")
            # One that cannot be served leaves nothing: it is only read, so it cannot grow.
            answer = clone(tarn, "copy", ceph.store("copy", "&size=24M&readonly"), "one")
            check(answer.status >= 400 and b"leave size= out" in answer.body, f"{answer.status}: {answer.body}")
            check("copy" not in ceph.rbd("ls", "rbd").decode().split(), "the clone that is not served is left over")
            text = verb(tarn, "lun", "add", "copy", ceph.store("copy", "&size=24M"), "--clone", "lun0@one", "--target", IQN)
            check("copy" in text, text)
            session.clear_unit_attentions(0)
            good(write(session, CHUNK, b"b" * CHUNK), "WRITE to the origin")
            with iscsi.Session(tarn.port, IQN, timeout_s=60) as reader:
                for lun in range(2):
                    reader.clear_unit_attentions(lun)
                equal(good(read(reader, 0, CHUNK, lun=1), "READ"), b"a" * CHUNK, "the clone")
                good(write(reader, 4096, b"c" * BLOCK, lun=1), "WRITE to the clone")
                expected = b"a" * 4096 + b"c" * BLOCK + b"a" * (CHUNK - 4096 - BLOCK)
                equal(good(read(reader, 0, CHUNK, lun=1), "READ"), expected, "the rest of its object was copied up")
                equal(good(read(reader, CHUNK, BLOCK, lun=1), "READ"), bytes(BLOCK), "what came later")
                equal(good(read(reader, 0, CHUNK), "READ"), b"a" * CHUNK, "the origin")
                check(shown(reader, 0) != shown(reader, 1), "the clone shows the identity of its origin")
                equal(len(registrations(reader)), 1, "registrations of the origin")
                refused(remove(tarn, "one"), 409, "has clones (rbd/copy)")
                refused(tarn.api().ask("POST", "luns/lun0/flatten"), 409, "no clone")
                verb(tarn, "snapshot", "flatten", "copy")
                equal(good(read(reader, 0, CHUNK, lun=1), "READ"), expected, "the clone after it")
            check("parent" not in json.loads(ceph.rbd("info", "--format", "json", "rbd/copy")), "it has a parent still")
            check("lun-flattened" in [event["kind"] for event in tarn.api().get("events")], "no event")
            verb(tarn, "snapshot", "rm", "lun0@one", "--yes")
        wait_for(lambda: not ceph.watchers("copy"), 20, "the end of its watch", 0.5)
        ceph.rbd("rm", "rbd/copy")


@test
def a_snapshot_that_is_needed_stays():
    """One that is served, protected, or whose name is taken; those of others with names that Tarn has not are not listed."""
    ceph = cluster()
    with ceph.image("kept", 8) as store:
        ceph.rbd("snap", "create", "rbd/kept@.left.new")
        ceph.rbd("snap", "create", "rbd/kept@not ours")
        with serve(store) as (tarn, _):
            equal(names(tarn), [], "snapshots")
            take(tarn, "one")
            check(b".left.new" not in ceph.rbd("snap", "ls", "rbd/kept"), "what a crash left is there")
            refused(tarn.api().ask("POST", "snapshots", {"luns": ["lun0"], "name": "one"}), 409, "already")
            text = config(store, ceph.store("kept@one")).replace("{port}", str(tarn.port))
            tarn.api().put("config", {"text": text})
            refused(remove(tarn, "one"), 409, "in use")
            refused(tarn.api().ask("POST", "snapshots", {"luns": ["lun1"]}), 409, "is a snapshot itself")
            tarn.api().put("config", {"text": config(store).replace("{port}", str(tarn.port))})
            wait_for(lambda: remove(tarn, "one").status == 204, 20, "it can be removed", 0.2)
            take(tarn, "two")
            ceph.rbd("snap", "protect", "rbd/kept@two")
            refused(remove(tarn, "two"), 409, "rbd snap unprotect")
            ceph.rbd("snap", "unprotect", "rbd/kept@two")
            equal(remove(tarn, "two").status, 204, "removed")
            refused(remove(tarn, "two"), 404, "no snapshot two")
        with serve(f"{store}&readonly") as (tarn, _):
            refused(tarn.api().ask("POST", "snapshots", {"luns": ["lun0"]}), 409, "only read here")
        ceph.rbd("snap", "rm", "rbd/kept@not ours")


@test(limit_s=120)
def a_rollback_gives_the_data_back():
    """Sessions end, the data is that of the snapshot, the size and the identity stay, other LUNs go on. One that was cut by a
    crash ends before the image is served again."""
    ceph = cluster()
    with ceph.image("back", 64) as store:
        with serve(store, "mem:1M") as (tarn, session):
            for at in range(0, 64 * MIB, 4 * MIB):
                good(write(session, at, b"a" * CHUNK), "WRITE")
            before = shown(session)
            take(tarn, "one")
            tarn.api().post("luns/lun0/resize", {"size_bytes": 72 * MIB})
            session.clear_unit_attentions(0)
            with Counter(tarn, [1]):
                for at in range(0, 72 * MIB, 4 * MIB):
                    good(write(session, at, b"b" * CHUNK), "WRITE")
            equal(tarn.api().ask("POST", "luns/lun0/snapshots/none/rollback").status, 404, "a rollback to nothing")
            good(write(session, 0, b"b" * CHUNK), "WRITE after what was refused")
            verb(tarn, "snapshot", "rollback", "lun0@one", "--yes")
            try:
                raise Failure(f"the session goes on: {read(session, 0, BLOCK)}")
            except (OSError, iscsi.Closed):
                pass
            with iscsi.Session(tarn.port, IQN, timeout_s=60) as again:
                again.clear_unit_attentions(0)
                for at in range(0, 64 * MIB, 4 * MIB):
                    equal(good(read(again, at, CHUNK), "READ"), b"a" * CHUNK, f"data at {at}")
                equal(good(read(again, 68 * MIB, CHUNK), "READ"), bytes(CHUNK), "the part behind it")
                equal(shown(again), before, "identity")
                for at in range(0, 64 * MIB, 4 * MIB):
                    good(write(again, at, b"c" * CHUNK), "WRITE")
            kinds = [event["kind"] for event in tarn.api().get("events")]
            check("snapshot-restored" in kinds, kinds)
        wait_for(lambda: not ceph.watchers("back"), 20, "the end of the watches", 0.5)
        # As it is when the process ended in between.
        id = json.loads(ceph.rbd("info", "--format", "json", "rbd/back"))["id"]
        ceph.rbd("image-meta", "set", "rbd/back", "tarn.rollback", f"{id} {72 * MIB} one")
        with serve(store) as (tarn, session):
            wait_for(lambda: read(session, 0, BLOCK).good, 20, "it is served")
            equal(good(read(session, 0, CHUNK), "READ"), b"a" * CHUNK, "data of the snapshot")
            told = lambda: [event["message"] for event in tarn.api().get("events") if event["kind"] == "snapshot-restored"]
            wait_for(told, 30, "the event at its end", step_s=0.2)
            check("lun0" in told()[0] and "snapshot one" in told()[0], told())
            equal(remove(tarn, "one").status, 204, "removed")


@test(limit_s=90)
def a_cluster_that_hangs_holds_up_no_snapshot_for_long():
    """While the object store is stopped a snapshot, a list and a flatten are refused in their time and other LUNs go on; when it
    goes on nothing is left of the snapshot, and the next one is taken."""
    ceph = cluster()
    with ceph.image("stuck", 8) as store, serve(store, "mem:1M", more="") as (tarn, session):
        good(write(session, 0, bytes(CHUNK)), "WRITE")
        take(tarn, "before")
        ceph.signal("osd.0", signal.SIGSTOP)
        try:
            begin = time.monotonic()
            refused(tarn.api().ask("POST", "snapshots", {"luns": ["lun0"], "name": "during"}), 503)
            measured(f"refused after {time.monotonic() - begin:.1f} s")
            for _ in range(50):
                good(write(session, 0, bytes(CHUNK), lun=1), "WRITE of the other unit")
            equal(tarn.api().ask("GET", "luns/lun0/snapshots").status, 503, "the list")
        finally:
            ceph.signal("osd.0", signal.SIGCONT)
        wait_for(lambda: not lost(tarn), 30, "the unit is served")
        good(write(session, 0, bytes(CHUNK)), "WRITE")
        wait_for(lambda: tarn.api().ask("GET", "luns/lun0/snapshots").status == 200, 30, "the list")
        take(tarn, "after")
        equal(names(tarn), ["before", "after"], "snapshots")
        for name in ("before", "after"):
            equal(remove(tarn, name).status, 204, "removed")
        check(b"during" not in ceph.rbd("snap", "ls", "--all", "rbd/stuck"), "the one that was refused is there")


@test(limit_s=200)
def half_a_gigabyte_goes_there_and_back():
    """512 MiB are copied to an image by qemu-img over iSCSI, and back, and are the same."""
    ceph = cluster()
    if subprocess.run([pathlib.Path(__file__).parents[2] / "tools/need", "qemu-img=qemu-utils",
                       "/usr/lib/*/qemu/block-iscsi.so=qemu-block-extra"]).returncode:
        harness.skip("qemu-img with iSCSI cannot be installed")
    with ceph.image("large", 512) as store, tempfile.TemporaryDirectory(prefix="ceph-test.") as path, Tarn(store) as tarn:
        source, back = f"{path}/source", f"{path}/back"
        with open(source, "wb") as file:
            for _ in range(32):
                file.write(os.urandom(MIB) * 16)
        begin = time.monotonic()
        for command in (["convert", "-n", "-f", "raw", "-O", "raw", source, tarn.url()],
                        ["convert", "-f", "raw", "-O", "raw", tarn.url(), back]):
            subprocess.run(["qemu-img", *command], check=True, capture_output=True, timeout=150)
        measured(f"{time.monotonic() - begin:.0f} s")
        equal(subprocess.run(["cmp", source, back]).returncode, 0, "cmp")


@test(limit_s=400)
def the_tests_of_libiscsi_pass_over_an_image():
    """Every test that a thin file with 512-byte blocks passes, in one session, and no other one fails."""
    ceph = cluster()
    if not shutil.which("iscsi-test-cu"):
        harness.skip("libiscsi-bin is not installed")
    with ceph.image("judged", 256) as image, tempfile.TemporaryDirectory(prefix="ceph-test.") as path:
        states = {}
        tests = [name for name in score.listing() if not name.startswith(NOT_BELOW_PHYSICAL_BLOCKS)]
        for store in (f"file:{path}/disk.img?size=256M", image):
            with Tarn(store) as tarn:
                results = score.score(tests, [tarn.url()], limit_s=60)
                states[store[:4]] = {result["test"]: result["state"] for result in results}
        over_file, over_image = states.values()
        check(len(over_file) > 150, f"{len(over_file)} tests")
        different = {name: (state, over_image[name]) for name, state in over_file.items() if over_image[name] != state}
        equal(different, {}, "tests that end otherwise than over a file")
        measured(f"{list(over_image.values()).count('PASS')} passed")
