#!/usr/bin/env python3
"""What lies at the path of a store has to be what was served: late mounts, devices that change names, files that are cut, copies
that are restored, and power that is cut under store, log, configuration and state together.

    suite.py [--list] [PATTERN...]
"""
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
import iscsi
import power
import scsi
from harness import check, equal, skip, test, wait_for
from power import call, disk
from tarn import BINARY, IQN, Tarn, lun_section, run, target_section

MIB = 1 << 20
SIZE = 16 * MIB
BLOCK, PAGE = 512, 4096
FUA = 0x08
NOT_READY, MANUAL = 0x02, (0x04, 0x03)
PATTERN = b"\x5a" * PAGE
# Tarn looks every 10 s.
LOOK_S = 25


def config(store, *keys, more=""):
    """A unit of this store, and one that has nothing to do with it."""
    return lun_section("disk", store) + "".join(f"{key}\n" for key in keys) + lun_section("sound", "mem:16M") + \
        target_section("disk", "sound") + more


@contextlib.contextmanager
def place(where=None):
    path = pathlib.Path(tempfile.mkdtemp(prefix="medium-test.", dir=where))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def device(image):
    """A loop device of a file."""
    if os.geteuid() != 0:
        skip("a loop device needs root")
    loop = call("losetup", "--find", "--show", image)
    try:
        yield loop
    finally:
        call("losetup", "-d", loop)


@contextlib.contextmanager
def session_with(tarn, luns=2):
    with iscsi.Session(tarn.port, IQN) as session:
        for lun in range(luns):
            session.clear_unit_attentions(lun)
        yield session


def write(tarn, data=PATTERN, at=0, lun=0):
    """Writes with FUA."""
    cdb = bytearray(scsi.write16(at // BLOCK, len(data) // BLOCK))
    cdb[1] |= FUA
    with session_with(tarn, max(2, lun + 1)) as session:
        outcome = session.command(bytes(cdb), write=data, lun=lun)
        check(outcome.good, f"WRITE: {outcome}")


def data(tarn, length=PAGE, at=0, lun=0):
    with session_with(tarn) as session:
        outcome = session.command(scsi.read16(at // BLOCK, length // BLOCK), read=length, lun=lun)
        check(outcome.good, f"READ: {outcome}")
        return outcome.data


def trouble(tarn, lun="disk"):
    """The code of what keeps a unit from being served."""
    return (tarn.api().get(f"luns/{lun}").get("trouble") or {}).get("code")


def findings(tarn):
    return {one["code"]: one for one in tarn.api().get("status")["findings"]}


def is_held(tarn, code="medium-changed"):
    """The unit is not ready and says why, and the other one is served."""
    equal(trouble(tarn), code, "what keeps the unit from being served")
    check(code in findings(tarn), f"finding {code}: {findings(tarn)}")
    with session_with(tarn) as session:
        for cdb in (scsi.test_unit_ready(), scsi.read16(0, 8), scsi.write16(0, 8)):
            outcome = session.command(cdb, read=PAGE) if cdb[0] == 0x88 else session.command(cdb, write=PATTERN) \
                if cdb[0] == 0x8A else session.command(cdb)
            sense = outcome.sense
            check(sense and sense.key == NOT_READY and sense.code == MANUAL, f"{cdb[0]:02x}h: {outcome}")
    write(tarn, lun=1)


def is_served(tarn, expected=PATTERN):
    equal(trouble(tarn), None, "what keeps the unit from being served")
    check(data(tarn) == expected, "the unit has its data")


def comes_back(tarn, expected=PATTERN):
    wait_for(lambda: trouble(tarn) is None, LOOK_S, "the unit is served again")
    is_served(tarn, expected)


def verb(tarn, *arguments, code=0):
    done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          env=tarn.environment(), stdin=subprocess.DEVNULL, check=False)
    equal(done.returncode, code, f"tarn {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def stop(tarn):
    equal(tarn.terminate(), 0, "exit code")


@test
def a_store_whose_file_system_is_not_mounted_is_not_made_and_comes_back_with_the_mount():
    with disk() as it:
        it.mount()
        with Tarn(config=config(f"file:{it.mount_point}/disk.img?size=16M")) as tarn:
            write(tarn)
            stop(tarn)
            it.unmount()
            tarn.start()
            is_held(tarn)
            equal(os.listdir(it.mount_point), [], "what is at the mount point")
            it.mount()
            comes_back(tarn)
            stop(tarn)
            it.unmount()
            # A file of the right size on the file system below is none of it either.
            (it.mount_point / "disk.img").write_bytes(bytes(SIZE))
            tarn.start()
            is_held(tarn)
            check("file-system" in findings(tarn)["medium-changed"]["message"], findings(tarn))
            (it.mount_point / "disk.img").unlink()
            it.mount()
            comes_back(tarn)


@test(limit_s=120)
def a_log_is_not_replayed_into_what_lies_at_the_path_before_the_mount():
    """Power is cut under store and log; configuration, state and log are there again, the file system of the store is late."""
    with disk() as it, disk("ext4", 256 << 20) as base:
        it.mount()
        base.mount()
        store = f"file:{it.mount_point}/disk.img?size=16M"
        log = f'log = "file:{base.mount_point}/disk.log?size=32M"'
        tarn = Tarn(config=config(store, log))
        shutil.rmtree(tarn.dir)
        tarn.dir = base.mount_point / "tarn"
        tarn.dir.mkdir()
        tarn.log_path, tarn.out_path = base.directory / "log", base.directory / "out"
        with tarn:
            write(tarn)
            call("sync", "-f", base.mount_point)
            tarn.kill()
            it.cut()
            base.cut()
            base.mount()
            tarn.start()
            is_held(tarn)
            equal(os.listdir(it.mount_point), [], "what is at the mount point")
            it.mount()
            comes_back(tarn)
            stop(tarn)
            tarn.start()
            is_served(tarn)


@test(limit_s=120)
def changes_of_a_log_go_into_no_copy_of_the_store_unless_an_administrator_says_so():
    with place() as there:
        image = there / "disk.img"
        with Tarn(config=config(f"file:{image}?size=16M", f'log = "file:{there}/disk.log?size=32M"')) as tarn:
            for decision, expected in (("replay", PATTERN), ("discard", bytes(PAGE))):
                shutil.copyfile(image, there / "old")
                write(tarn)
                tarn.kill()
                (there / "old").rename(image)
                tarn.start()
                is_held(tarn, "log-lost")
                check(image.read_bytes() == bytes(SIZE), "nothing was written into the copy")
                verb(tarn, "lun", "log", decision, "disk", "--yes")
                is_served(tarn, expected)
                write(tarn, bytes(PAGE))
                stop(tarn)
                tarn.start()
            write(tarn)
            tarn.kill()
            tarn.start()
            is_served(tarn)


@test
def devices_that_change_names_do_not_change_disks():
    with place() as there:
        for name in ("a", "b"):
            (there / name).write_bytes(bytes(SIZE))
        links = there / "dev"
        links.mkdir()
        with device(there / "a") as one, device(there / "b") as two:
            (links / "first").symlink_to(one)
            (links / "second").symlink_to(two)
            sections = lun_section("disk", f"block:{links}/first") + lun_section("sound", f"block:{links}/second")
            with Tarn(config=sections + target_section("disk", "sound")) as tarn:
                write(tarn)
                write(tarn, b"\xb2" * PAGE, lun=1)
                stop(tarn)
                for name, to in (("first", two), ("second", one)):
                    (links / name).unlink()
                    (links / name).symlink_to(to)
                tarn.start()
                equal([trouble(tarn, lun) for lun in ("disk", "sound")], ["medium-changed"] * 2, "troubles")
                for name, to in (("first", one), ("second", two)):
                    (links / name).unlink()
                    (links / name).symlink_to(to)
                wait_for(lambda: trouble(tarn) is None and trouble(tarn, "sound") is None, LOOK_S, "both are served again")
                is_served(tarn)
                check(data(tarn, lun=1) == b"\xb2" * PAGE, "data of the second")


@test
def a_file_that_was_cut_is_neither_lengthened_nor_served_until_it_is_accepted():
    with place() as there:
        image = there / "disk.img"
        with Tarn(config=config(f"file:{image}?size=16M")) as tarn:
            write(tarn)
            stop(tarn)
            os.truncate(image, MIB)
            tarn.start()
            is_held(tarn)
            equal(image.stat().st_size, MIB, "size of the file")
            check("served" in verb(tarn, "lun", "adopt", "disk", "--yes"), "answer")
            is_served(tarn)
            equal(image.stat().st_size, SIZE, "size of the file")
            stop(tarn)
            tarn.start()
            is_served(tarn)


@test
def what_is_not_there_is_not_accepted():
    """A directory in the place of a file system that is not mounted: no empty disk is made under the old identity."""
    with place() as there:
        image = there / "disks/disk.img"
        image.parent.mkdir()
        with Tarn(config=config(f"file:{image}?size=16M")) as tarn:
            write(tarn)
            stop(tarn)
            image.parent.rename(there / "away")
            tarn.start()
            for _ in range(2):
                is_held(tarn)
                check("is not there" in verb(tarn, "lun", "adopt", "disk", "--yes", code=1), "refusal")
                check(not image.exists(), "a disk was made")
                image.parent.mkdir(exist_ok=True)
            image.parent.rmdir()
            (there / "away").rename(image.parent)
            comes_back(tarn)


@test
def a_file_that_grew_beside_tarn_counts_with_what_it_has_grown_to():
    with place() as there:
        image = there / "disk.img"
        image.write_bytes(bytes(SIZE))
        with Tarn(config=config(f"file:{image}")) as tarn:
            write(tarn)
            os.truncate(image, 2 * SIZE)
            records = list((tarn.dir / "state/units").glob("*/medium"))
            wait_for(lambda: any(f"size {2 * SIZE}" in record.read_text() for record in records), LOOK_S, "it is recorded")
            stop(tarn)
            os.truncate(image, SIZE)
            tarn.start()
            is_held(tarn)


@test
def what_is_accepted_while_tarn_is_stopped_has_to_be_there():
    with place() as there:
        image = there / "disk.img"
        with Tarn(config=config(f"file:{image}?size=16M")) as tarn:
            write(tarn)
            stop(tarn)
            image.rename(there / "away")
            equal(run("state", "adopt", "--all", "--state", tarn.dir / "state").returncode, 0, "exit code")
            tarn.start()
            is_held(tarn)
            check(not image.exists(), "a disk was made")
            (there / "away").rename(image)
            comes_back(tarn)


@test
def a_composition_with_a_missing_part_is_not_served_as_half_zeros():
    with place() as there:
        parts = "".join(f'[[store]]\nid = "{name}"\nstore = "file:{there}/{name}.img?size=8M"\n' for name in "ab")
        with Tarn(config=parts + config("stripe:a,b")) as tarn:
            write(tarn, b"\x11" * MIB)
            stop(tarn)
            (there / "b.img").rename(there / "away")
            tarn.start()
            is_held(tarn)
            check(not (there / "b.img").exists(), "the part was made")
            (there / "away").rename(there / "b.img")
            comes_back(tarn, b"\x11" * PAGE)
            check(data(tarn, MIB) == b"\x11" * MIB, "data")


@test
def members_of_a_composition_are_served_in_no_other_order_size_or_chunk():
    with place() as there:
        parts = "".join(f'[[store]]\nid = "{name}"\nstore = "file:{there}/{name}.img?size=8M"\n' for name in "ab")
        with Tarn(config=parts + config("concat:a,b")) as tarn:
            write(tarn)
            write(tarn, b"\x22" * PAGE, at=8 * MIB)
            stop(tarn)
            good = tarn.config
            for old, new in (("concat:a,b", "concat:b,a"), ("concat:a,b", "stripe:a,b"), ("a.img?size=8M", "a.img?size=12M")):
                tarn.config = good.replace(old, new)
                tarn.start()
                is_held(tarn)
                stop(tarn)
                equal((there / "a.img").stat().st_size, 8 * MIB, "size of the first member")
            tarn.config = good.replace("b.img?size=8M", "b.img?size=12M")
            tarn.start()
            is_served(tarn)
            check(data(tarn, at=8 * MIB) == b"\x22" * PAGE, "data of the second member")
            stop(tarn)
            tarn.config = good.replace("concat:a,b", "concat:b,a").replace("b.img?size=8M", "b.img?size=12M")
            tarn.start()
            is_held(tarn)
            verb(tarn, "lun", "adopt", "disk")
            comes_back(tarn, b"\x22" * PAGE)
            stop(tarn)
            tarn.start()
            is_served(tarn, b"\x22" * PAGE)
        with Tarn(config=parts.replace(".img", ".s") + config("stripe:a,b?chunk=64k")) as tarn:
            write(tarn)
            stop(tarn)
            tarn.config = tarn.config.replace("64k", "128k")
            tarn.start()
            is_held(tarn)


@test(limit_s=180)
def ordinary_handling_holds_nothing():
    """Other device numbers, a restored copy, a moved file system, growth while Tarn is off, another store, a removed LUN."""
    with disk() as it:
        it.mount()
        image = it.mount_point / "disk.img"
        with Tarn(config=config(f"file:{image}?size=16M")) as tarn:
            write(tarn)
            stop(tarn)
            it.unmount()
            it.mount()
            tarn.start()
            is_served(tarn)
            stop(tarn)
            for how in (["cp", image, it.mount_point / "copy"], ["cp", "--sparse=never", image, it.mount_point / "copy"]):
                call(*how)
                (it.mount_point / "copy").rename(image)
                tarn.start()
                is_served(tarn)
                kinds = [event["kind"] for event in tarn.api().get("events")]
                check("medium-replaced" in kinds, kinds)
                stop(tarn)
            tarn.config = tarn.config.replace("size=16M", "size=24M")
            tarn.start()
            is_served(tarn)
            equal(image.stat().st_size, 24 * MIB, "size of the file")
            stop(tarn)
            os.truncate(image, 32 * MIB)
            tarn.start()
            is_served(tarn)
            verb(tarn, "lun", "resize", "disk", "40M")
            stop(tarn)
            tarn.config = (tarn.dir / "tarn.toml").read_text()
            tarn.start()
            is_served(tarn)
            # A LUN that was removed is made again when it is added again.
            verb(tarn, "target", "unmap", IQN, "0", "--yes")
            verb(tarn, "lun", "rm", "disk", "--yes")
            image.unlink()
            verb(tarn, "lun", "add", "disk", f"file:{image}?size=16M")
            stop(tarn)
            tarn.config = (tarn.dir / "tarn.toml").read_text()
            tarn.start()
            equal(trouble(tarn), None, "trouble")


@test
def another_store_in_the_configuration_is_the_answer_of_the_administrator():
    with place() as there:
        with Tarn(config=config(f"file:{there}/a.img?size=16M")) as tarn:
            write(tarn)
            stop(tarn)
            tarn.config = tarn.config.replace("a.img", "b.img")
            tarn.start()
            is_served(tarn, bytes(PAGE))
            stop(tarn)
            (there / "b.img").unlink()
            tarn.start()
            is_held(tarn)


@test
def what_lay_in_memory_is_made_again():
    with place("/dev/shm") as there:
        with Tarn(config=config(f"file:{there}/a.img?size=16M")) as tarn:
            write(tarn)
            stop(tarn)
            (there / "a.img").unlink()
            tarn.start()
            is_served(tarn, bytes(PAGE))


@test
def a_state_directory_of_an_earlier_release_makes_no_file_that_is_missing():
    """It has the identity of the unit and no record of its medium: what is there is recorded."""
    with place() as there:
        image = there / "a.img"
        with Tarn(config=config(f"file:{image}?size=16M")) as tarn:
            write(tarn)
            stop(tarn)
            records = list((tarn.dir / "state/units").glob("*/medium"))
            equal(len(records), 1, "records")
            records[0].unlink()
            image.rename(there / "away")
            tarn.start()
            is_held(tarn)
            check(not image.exists(), "the file was made")
            stop(tarn)
            (there / "away").rename(image)
            tarn.start()
            is_served(tarn)
            stop(tarn)
            check(records[0].exists(), "the medium is recorded")
            image.unlink()
            tarn.start()
            is_held(tarn)


@test
def a_server_that_was_restored_elsewhere_takes_one_command():
    with place() as there:
        image = there / "a.img"
        with Tarn(config=config(f"file:{image}?size=16M")) as tarn:
            write(tarn)
            done = run("state", "adopt", "--all", "--state", tarn.dir / "state")
            check(done.returncode and "tarn lun adopt" in done.stderr, f"while it is served: {done}")
            stop(tarn)
            os.truncate(image, MIB)
            for words, code in ((("nosuch",), 1), (("--all",), 0)):
                done = run("state", "adopt", *words, "--state", tarn.dir / "state")
                equal(done.returncode, code, f"{words}: {done}")
            tarn.start()
            is_served(tarn)


@test
def no_single_unit_keeps_the_others_from_being_served():
    """A directory, a missing file, a locked one: each is not ready, says why, and is served when that is put right."""
    with place() as there:
        (there / "directory.img").mkdir()
        held = there / "held.img"
        held.write_bytes(bytes(SIZE))
        ids = ("directory", "missing", "nowhere", "held")
        stores = {id: f"file:{there}/{id}.img" for id in ids}
        stores["nowhere"] = f"file:{there}/none/a.img?size=16M"
        sections = "".join(lun_section(id, store) for id, store in stores.items())
        text = sections + lun_section("sound", "mem:16M") + target_section(*ids, "sound")
        with open(held, "rb+") as file:
            import fcntl
            fcntl.flock(file, fcntl.LOCK_EX)
            with Tarn(config=text) as tarn:
                done = run("check", tarn.dir / "tarn.toml")
                check(done.returncode == 2 and "missing.img" in done.stderr, f"check: {done}")
                equal({id: trouble(tarn, id) for id in ids}, dict.fromkeys(ids, "store-unopened"), "troubles")
                write(tarn, lun=len(ids))
                fcntl.flock(file, fcntl.LOCK_UN)
                (there / "directory.img").rmdir()
                for name in ("directory", "missing"):
                    (there / f"{name}.img").write_bytes(bytes(SIZE))
                (there / "none").mkdir()
                wait_for(lambda: not any(trouble(tarn, id) for id in ids), LOOK_S, "all are served")
                for lun in range(len(ids)):
                    write(tarn, lun=lun)


@test
def a_file_that_shares_blocks_is_served_past_the_page_cache():
    """A copy by reflink makes XFS report a larger alignment of direct transfers for both files."""
    with disk() as it:
        it.mount()
        image = it.mount_point / "disk.img"
        with Tarn(config=config(f"file:{image}?size=16M&cache=direct")) as tarn:
            write(tarn)
            stop(tarn)
            call("cp", "--reflink=always", image, it.mount_point / "copy")
            tarn.start()
            is_served(tarn)
            write(tarn, b"\x77" * BLOCK, at=BLOCK)
            check(data(tarn, BLOCK, at=BLOCK) == b"\x77" * BLOCK, "data")


if __name__ == "__main__":
    harness.main()
