#!/usr/bin/env python3
"""Disks of several stores: stripes and concats of files, memory and exports.

    suite.py [--list] [PATTERN...]
"""
import contextlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
import iscsi
import scsi
from faultfs import FaultFs
from harness import check, equal, test, wait_for
from tarn import IQN, Tarn, free_port, lun_section, refusal, run, target_section

MIB = 1 << 20
BLOCK = 512
CHUNK = 64 << 10
LIMITS = "[limits]\ntask_deadline_seconds = 2\nshutdown_timeout_seconds = 2\n"


def stores(**named):
    """Sections [[store]]."""
    return "".join(f'[[store]]\nid = "{id}"\nstore = "{store}"\n' for id, store in named.items())


def config(disk, more=LIMITS, **named):
    """A configuration of one unit of these stores."""
    return stores(**named) + lun_section("disk", disk) + target_section("disk") + more


@contextlib.contextmanager
def directory():
    """A directory for files of a test."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="compose-test."))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def session_with(tarn, **options):
    with iscsi.Session(tarn.port, IQN, **options) as session:
        session.clear_unit_attentions()
        yield session


def write(session, at, data):
    return session.command(scsi.write16(at // BLOCK, len(data) // BLOCK), write=data)


def read(session, at, length):
    return session.command(scsi.read16(at // BLOCK, length // BLOCK), read=length)


def flush(session):
    return session.command(scsi.synchronize_cache16())


def good(outcome, what):
    check(outcome.good, f"{what}: {outcome}")
    return outcome.data


def sense_key(outcome):
    return outcome.sense.key if outcome.sense else outcome.status


def write_at_random(session, expected, seed, count=80):
    """Writes and unmaps pieces of any size; `expected` becomes what the disk holds then."""
    chance = random.Random(seed)
    for _ in range(count):
        length = chance.choice((BLOCK, 9 * BLOCK, CHUNK, 3 * CHUNK + BLOCK, MIB))
        at = chance.randrange(0, (len(expected) - length) // BLOCK + 1) * BLOCK
        if chance.random() < 0.2:
            ranges = scsi.unmap_parameters((at // BLOCK, length // BLOCK))
            good(session.command(scsi.unmap(len(ranges)), write=ranges), "UNMAP")
            expected[at:at + length] = bytes(length)
        else:
            data = chance.randbytes(length)
            good(write(session, at, data), f"WRITE of {length} at {at}")
            expected[at:at + length] = data


def equal_data(session, expected):
    step = MIB - 3 * BLOCK
    for at in range(0, len(expected), step):
        length = min(step, len(expected) - at)
        check(good(read(session, at, length), "READ") == expected[at:at + length], f"READ at {at}")


def refused(text):
    """How a start and a check with this configuration fail: with one line."""
    with directory() as path:
        file = path / "tarn.toml"
        file.write_text(text.replace("{port}", str(free_port())).replace("{dir}", str(path)))
        for name in ("a.img", "b.img", "c.img"):
            (path / name).write_bytes(bytes(MIB))
        os.symlink(path / "a.img", path / "link.img")
        # The log quotes what has quotes.
        return refusal("--config", file, "--state", path / "state").replace(str(path), "DIR").replace('\\"', '"')


@test
def a_stripe_lies_on_its_files_as_the_documentation_says():
    """Random writes and unmaps over a stripe of three files; each file has its chunks in turn; all is there after a kill."""
    named = {id: f"file:{{dir}}/{id}.img?size=8M" for id in ("a", "b", "c")}
    expected = bytearray(24 * MIB)
    tarn = Tarn(config=config("stripe:a,b,c", **named))
    try:
        tarn.start()
        with session_with(tarn) as session:
            equal(scsi.capacity(session), (len(expected) // BLOCK, BLOCK), "capacity")
            write_at_random(session, expected, 5)
            equal_data(session, expected)
            good(flush(session), "SYNCHRONIZE CACHE")
            shown = tarn.api().get("luns")[0]
            equal((shown["kind"], shown["size_bytes"], shown["block_bytes"]), ("stripe", len(expected), BLOCK), "the LUN")
        tarn.kill()
        images = [(tarn.dir / f"{id}.img").read_bytes() for id in named]
        rows = range(0, 8 * MIB, CHUNK)
        on_disk = b"".join(image[at:at + CHUNK] for at in rows for image in images)
        check(on_disk == expected, "the files have other data")
        tarn.start()
        with session_with(tarn) as session:
            equal_data(session, expected)
        equal(tarn.terminate(), 0, "exit code")
    finally:
        tarn.close()


@test
def compositions_of_memory_hold_what_was_written():
    """Stripes and concats of memory, whose reads are sent in place or across members."""
    for disk in ("stripe:a,b,c,d?chunk=4k", "stripe:a,b,c,d", "concat:a,b,c,d"):
        named = {id: "mem:3M" for id in ("a", "b", "c", "d")}
        with Tarn(config=config(disk, **named)) as tarn, session_with(tarn) as session:
            expected = bytearray(12 * MIB)
            write_at_random(session, expected, 11)
            equal_data(session, expected)


@test
def what_does_not_fit_is_one_line_with_place_and_remedy():
    """Block sizes that differ, one medium twice in any way, members that are not there: exit code 2, one line."""
    file = "file:{dir}/%s.img"
    a, b = file % "a", file % "b"
    second = lun_section("other", a)
    cases = [
        (config("stripe:a,b", a=a, b=f"{b}?blocksize=4096"), "lun[0].store: store \"a\" has blocks of 512", "one blocksize="),
        (config("stripe:a,a", a=a), "lun[0].store: store \"stripe:a,a\" has the member \"a\" twice", "each once"),
        (config("stripe:a,nothing", a=a, b=b), "lun[0].store: store \"nothing\" does not exist", "add a [[store]]"),
        (config("stripe:a,b", a=a, b=a), "store[1].store: store \"DIR/a.img\" is already used at", "keep one"),
        (config("stripe:a,b", a=a, b=b) + second, "lun[1].store: store \"DIR/a.img\" is already used at", "keep one"),
        (config("stripe:a,b", a=a, b=file % "link"), "store \"DIR/a.img\" is already used at", "keep one"),
        (config("stripe:a,b", a=a, b=b) + lun_section("other", file % "link"), "store \"DIR/a.img\" is already used", "keep one"),
        (config("concat:a", a=a) + lun_section("other", "concat:a"), "lun[1].store: store \"a\" is already used at", "keep one"),
        (config("concat:a,b", a=a, b=b), "lun[0].store: store \"a\" is not the last member", "give it size="),
        (config("stripe:a,b", a="mem:4k", b="mem:1M"), "lun[0].store: store \"a\" has 4096 bytes, less than a chunk", "smaller chunk="),
        (config("stripe:a,b", a=f"{a}?readonly", b=b), "store[0].store: store \"a\" has readonly", "write it at the [[lun]]"),
        (config("stripe:a,b", a=file % "none", b=b), "store[0].store", "size="),
    ]
    for text, place, remedy in cases:
        said = refused(text)
        check("tarn.toml:" in said and place in said and remedy in said, f"{said}\nwanted: {place} ... {remedy}")
    with directory() as path:
        done = run("serve", "--state", path / "state", "--listen", f"127.0.0.1:{free_port()}", "stripe:a,b")
        equal(done.returncode, 2, "exit code")
        check("--config FILE" in done.stderr, done.stderr)


@test
def a_concat_grows_by_a_member_while_it_is_written():
    """A change that puts a member behind the last is online: the plan says so, initiators learn the new size, the old data stays,
    the new part is served, and a restart finds all of it."""
    def sized(count):
        named = {f"m{n}": f"file:{{dir}}/m{n}.img?size=4M" for n in range(count)}
        return config("concat:" + ",".join(named), **named)
    expected = bytearray(4 * MIB)
    tarn = Tarn(config=sized(1))
    try:
        tarn.start()
        with session_with(tarn) as session:
            api = tarn.api()
            write_at_random(session, expected, 3, count=20)
            for count in (2, 3):
                text = sized(count).replace("{dir}", str(tarn.dir)).replace("{port}", str(tarn.port))
                answer = api.put("config?plan=true", dict(text=text))
                effects = {(step["kind"], step["action"]): step["effect"] for step in answer["steps"]}
                equal(effects[("lun", "change")], "online", f"effect of {answer['steps']}")
                api.put("config", dict(text=text))
                outcome = session.command(scsi.test_unit_ready())
                equal(sense_key(outcome), scsi.UNIT_ATTENTION, "TEST UNIT READY")
                session.clear_unit_attentions()
                expected += bytes(4 * MIB)
                equal(scsi.capacity(session), (len(expected) // BLOCK, BLOCK), "capacity")
                write_at_random(session, expected, count, count=30)
                equal_data(session, expected)
        equal(tarn.terminate(), 0, "exit code")
        tarn.config = sized(3)
        tarn.start()
        with session_with(tarn) as session:
            equal_data(session, expected)
        equal(tarn.terminate(), 0, "exit code")
    finally:
        tarn.close()


@test
def named_stores_are_edited_one_by_one():
    """PUT and DELETE of a store, and a LUN that gets it as a member: each with a plan; one that is in use is not removed."""
    with Tarn(config=config("concat:a", a="mem:1M")) as tarn, session_with(tarn) as session:
        api = tarn.api()
        data = os.urandom(CHUNK)
        good(write(session, 0, data), "WRITE")
        equal(api.get("stores"), [dict(id="a", store="mem:1M")], "stores")
        added = api.put("stores/b", dict(id="b", store="mem:3M"))
        equal([(step["kind"], step["action"], step["effect"]) for step in added["steps"]], [("store", "add", "online")], "steps")
        api.put("luns/disk", dict(id="disk", store="concat:a,b"))
        session.clear_unit_attentions()
        equal(scsi.capacity(session), (4 * MIB // BLOCK, BLOCK), "capacity")
        equal(good(read(session, 0, CHUNK), "READ"), data, "data")
        answer = api.ask("DELETE", "stores/b")
        equal(answer.status, 409, "DELETE of a store that is in use")
        check("still used by lun disk" in str(answer.json), answer.json)
        api.put("stores/c", dict(id="c", store="mem:1M"))
        api.delete("stores/c")
        equal([one["id"] for one in api.get("stores")], ["a", "b"], "stores")
        equal(api.ask("POST", "luns/disk/resize", dict(size_bytes=8 * MIB)).status, 409, "a size for all of it")


@test
def members_grow_with_their_size():
    """A larger size= of the last member of a concat, and of all members of a stripe, is online; that of another member is
    refused, as are other orders and chunks."""
    def concat(first, last):
        return config("concat:a,b", a=f"file:{{dir}}/a.img?size={first}", b=f"file:{{dir}}/b.img?size={last}")

    def stripe(size, disk="stripe:a,b"):
        return config(disk, a=f"file:{{dir}}/a.img?size={size}", b=f"file:{{dir}}/b.img?size={size}")
    cases = [
        (concat("1M", "1M"), concat("1M", "3M"), 4 * MIB),
        (stripe("1M"), stripe("3M"), 6 * MIB),
    ]
    for before, after, size in cases:
        with Tarn(config=before) as tarn, session_with(tarn) as session:
            api = tarn.api()
            expected = bytearray(2 * MIB)
            write_at_random(session, expected, 9, count=20)
            filled = after.replace("{dir}", str(tarn.dir)).replace("{port}", str(tarn.port))
            api.put("config", dict(text=filled))
            session.clear_unit_attentions()
            equal(scsi.capacity(session), (size // BLOCK, BLOCK), "capacity")
            expected += bytes(size - len(expected))
            equal_data(session, expected)
            write_at_random(session, expected, 10, count=20)
            equal_data(session, expected)
    refusals = [
        (concat("1M", "1M"), concat("2M", "1M"), "would move"),
        (concat("1M", "2M"), concat("1M", "1M"), "cannot shrink"),
        (concat("1M", "1M"), concat("1M", "1M").replace("concat:a,b", "concat:b,a"), "not opened twice"),
        (stripe("1M"), stripe("1M", "stripe:b,a"), "not opened twice"),
        (stripe("1M"), stripe("1M", "stripe:a,b?chunk=16k"), "not opened twice"),
        (stripe("1M"), stripe("1M") + lun_section("second", "file:{dir}/a.img"), "already used"),
    ]
    for before, after, reason in refusals:
        with Tarn(config=before) as tarn, session_with(tarn) as session:
            data = os.urandom(CHUNK)
            good(write(session, MIB, data), "WRITE")
            filled = after.replace("{dir}", str(tarn.dir)).replace("{port}", str(tarn.port))
            answer = tarn.api().ask("PUT", "config", dict(text=filled))
            check(answer.status in (409, 422), f"{reason}: {answer}")
            check(reason in str(answer.json), f"{reason}: {answer.json}")
            equal(good(read(session, MIB, CHUNK), "READ"), data, "data")


def change(tarn, text, plan=False):
    """Makes a change, or its plan. Returns the answer."""
    filled = text.replace("{dir}", str(tarn.dir)).replace("{port}", str(tarn.port))
    return tarn.api().ask("PUT", "config?plan=true" if plan else "config", dict(text=filled))


def refusals(answer):
    """What a plan refuses, in words."""
    return "; ".join(step["reason"] for step in answer.json["steps"] if step["effect"] == "refused")


@test
def the_size_of_a_member_is_that_of_the_disk_and_of_the_next_start():
    """A size= below what the file of a member has is refused. One that the file has already, and one that is left out, are taken
    over by the disk."""
    # The size of the disk without one of the second member, with one of 1M, with one of 3M, and without one at 4M.
    for disk, sizes in (("concat:a,b", (5, 5, 7, 8)), ("stripe:b,a", (2, 2, 6, 8))):
        with directory() as path:
            for name, size in (("a", 4 * MIB), ("b", MIB), ("witness", MIB)):
                (path / f"{name}.img").write_bytes(bytes(size))

            def sized(size, path=path, disk=disk):
                text = stores(a=f"file:{path}/a.img?size=4M", b=f"file:{path}/b.img{size}") + lun_section("disk", disk)
                return text + lun_section("witness", f"file:{path}/witness.img") + target_section("disk", "witness") + LIMITS
            with Tarn(config=sized("")) as tarn, session_with(tarn) as session:
                def now(session=session):
                    def capacity():
                        # A new size is a unit attention, which may come at any time.
                        outcome = session.command(scsi.read_capacity16(), read=32)
                        return outcome.data[:8] if outcome.good else None
                    return (int.from_bytes(wait_for(capacity, 10, "the disk has a capacity"), "big") + 1) * BLOCK // MIB

                def grow(size, path=path, api=tarn.api()):
                    # Tarn looks at all sizes in turn: after two turns it knows this one.
                    os.truncate(path / "b.img", size * MIB)
                    for turn in (2 * size, 2 * size + 1):
                        os.truncate(path / "witness.img", turn * MIB)
                        wait_for(lambda turn=turn: api.get("luns/witness")["size_bytes"] == turn * MIB, 30, "the witness is seen")

                def shrinks_not(size, sized=sized, tarn=tarn, disk=disk, now=now):
                    before = now()
                    # Of a concat each size says where the next member begins; else it is the least that the disk has.
                    answer = change(tarn, sized(size))
                    if answer.status != 200:
                        equal(answer.status, 409, f"{size}, below that of the file: {answer.json}")
                        check("cannot shrink to" in str(answer.json), answer.json)
                    check(now() >= before, f"MiB of {disk} with {size}: {now()}, {before} before")

                def takes(size, expected, sized=sized, tarn=tarn, disk=disk, now=now):
                    answer = change(tarn, sized(size))
                    equal(answer.status, 200, f"{size}: {answer.json}")
                    equal(now(), expected, f"MiB of {disk} with {size or 'no size'}")
                equal(now(), sizes[0], f"MiB of {disk}")
                shrinks_not("?size=512k")
                takes("?size=1M", sizes[1])
                grow(3)
                shrinks_not("?size=2M")
                takes("?size=3M", sizes[2])
                grow(4)
                takes("", sizes[3])
                takes("?size=4M", sizes[3])


@test
def a_last_member_that_is_longer_than_its_size_is_served_with_that_size():
    """As a change that was refused leaves it: a start serves the disk as before. Of another member it would move data, and is
    not served."""
    with directory() as path:
        for name in "ab":
            (path / f"{name}.img").write_bytes(os.urandom(MIB))
        before = b"".join((path / f"{name}.img").read_bytes() for name in "ab")
        text = config("concat:a,b", a=f"file:{path}/a.img?size=1M", b=f"file:{path}/b.img?size=1M")
        for longer, is_served in (("b", True), ("a", False)):
            os.truncate(path / f"{longer}.img", 3 * MIB)
            with Tarn(config=text) as tarn:
                trouble = tarn.api().get("luns/disk").get("trouble")
                equal(trouble is None, is_served, f"{longer} is longer: {trouble}")
                if is_served:
                    with session_with(tarn) as session:
                        equal(scsi.capacity(session), (2 * MIB // BLOCK, BLOCK), "capacity")
                        equal_data(session, before)


@test
def a_member_that_is_added_is_looked_for_as_a_new_lun_is():
    """A member that is not there is refused by the plan. A file or an export has one use, by whatever name, whether the disk or the
    other one comes first."""
    with directory() as path:
        for name in ("a", "b"):
            (path / f"{name}.img").write_bytes(bytes(MIB))
        os.symlink(path / "b.img", path / "link.img")
        os.symlink(path / "socket", path / "socket-link")
        process = subprocess.Popen(["nbdkit", "--foreground", "--unix", path / "socket", "memory", "1M"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for((path / "socket").exists, 20, "nbdkit listens")
            more = LIMITS + "[confine]\nseccomp = false\n"

            def text(disk, x, other=""):
                other = lun_section("other", other) if other else ""
                return config(disk, more=other + more, a=f"file:{path}/a.img?size=1M", x=x)
            with Tarn(config=text("concat:a", "mem:1M")) as tarn:
                missing = text("concat:a,x", f"file:{path}/none.img")
                plan = change(tarn, missing, plan=True)
                check("none.img does not exist" in refusals(plan), f"the plan takes what is not there: {plan.json}")
                for there, again in ((f"file:{path}/b.img", f"file:{path}/link.img"),
                                     (f"nbd+unix:///?socket={path}/socket", f"nbd+unix:///?socket={path}/socket-link")):
                    for first in (text("concat:a,x", there), text("concat:a", "mem:1M", there)):
                        equal(change(tarn, first).status, 200, first)
                        use = text("concat:a,x", there, again) if "concat:a,x" in first else text("concat:a,x", again, there)
                        twice = change(tarn, use)
                        check(twice.status in (409, 422), f"{there} twice: {twice.json}")
                        check("is already used at" in str(twice.json) or "in use by another program" in str(twice.json), twice.json)
                        equal(change(tarn, text("concat:a", "mem:1M").replace("concat:a", "mem:2M")).status, 200, "back")
                        equal(change(tarn, text("concat:a", "mem:1M")).status, 200, "back")
        finally:
            process.kill()
            process.wait()


@test
def a_member_whose_file_was_replaced_while_the_medium_was_out_is_loaded():
    """A load opens the file that was replaced. The members that are at their place stay as they are, memory with its data."""
    with directory() as path:
        for name in ("a", "b"):
            (path / f"{name}.img").write_bytes(name.encode() * MIB)
        named = dict(a=f"file:{path}/a.img", b=f"file:{path}/b.img", c="mem:1M")
        with Tarn(config=config("stripe:a,b,c?removable", **named)) as tarn, session_with(tarn) as session:
            good(write(session, 2 * CHUNK, b"c" * CHUNK), "WRITE")
            api = tarn.api()
            for _ in range(2):
                api.post("luns/disk/eject", {})
                (path / "new").write_bytes(b"n" * MIB)
                os.rename(path / "new", path / "a.img")
                api.post("luns/disk/load")
                session.clear_unit_attentions()
                equal(good(read(session, 0, 3 * CHUNK), "READ")[::CHUNK], b"nbc", "the members")
                good(write(session, 0, b"abc" * CHUNK), "WRITE")
                good(write(session, CHUNK, b"b" * CHUNK + b"c" * CHUNK), "WRITE")


@test
def a_member_that_hangs_is_the_one_that_is_named():
    """A change that opens a disk of which the second file hangs names that file, and the first one can be used."""
    with FaultFs(8 * MIB) as fs:
        def text(disk):
            named = dict(a="file:{dir}/a.img?size=1M", b=f"file:{fs.path}")
            return stores(**named) + lun_section("first", "mem:1M") + lun_section("disk", disk) + target_section("first") + LIMITS
        with Tarn(config=lun_section("first", "mem:1M") + target_section("first") + LIMITS) as tarn:
            fs.hang = ("getattr", "read", "lseek")
            reason = refusals(change(tarn, text("stripe:a,b"), plan=True))
            check("store[1].store" in reason and str(fs.path) in reason, reason)
            equal(change(tarn, text("concat:a")).status, 200, "a disk of the other file")
            fs.heal()
            fs.release()


@test
def a_member_that_hangs_holds_up_only_what_touches_it():
    """While one file of a stripe hangs, chunks on the other are read and written; a command on it waits, and goes on."""
    with FaultFs(8 * MIB) as fs:
        named = dict(a="file:{dir}/a.img?size=8M", b=f"file:{fs.path}?cache=direct")
        with Tarn(config=config("stripe:a,b", more="", **named)) as tarn, session_with(tarn, timeout_s=30) as session:
            data = os.urandom(CHUNK)
            good(write(session, CHUNK, data), "WRITE on the member")
            fs.hang = ("read",)
            task = session.start(scsi.read16(CHUNK // BLOCK, CHUNK // BLOCK), read=CHUNK)
            wait_for(fs.hung, 20, "the READ hangs")
            for row in range(60):
                good(write(session, 2 * row * CHUNK, data), "WRITE beside it")
                equal(good(read(session, 2 * row * CHUNK, CHUNK), "READ beside it"), data, "data")
            check(not session.connection.readable(0), "the READ of the member that hangs was answered")
            fs.heal()
            fs.release()
            equal(good(session.finish(task), "the READ"), data, "data")


@test
def a_failed_flush_of_a_member_is_remembered():
    """An fsync that fails on one file of a stripe fails SYNCHRONIZE CACHE, and all later ones."""
    with FaultFs(8 * MIB) as fs:
        named = dict(a="file:{dir}/a.img?size=8M", b=f"file:{fs.path}")
        # Its last flush fails, too, and it says so at its end.
        with Tarn(config=config("stripe:a,b", **named), check_exit=False) as tarn, session_with(tarn) as session:
            good(write(session, 0, bytes(4 * CHUNK)), "WRITE")
            good(flush(session), "SYNCHRONIZE CACHE")
            fs.fsync_failures = 1
            for _ in range(3):
                check(not flush(session).good, "a flush after the failed one is good")
            good(read(session, 0, 4 * CHUNK), "READ")
            findings = [one["code"] for one in tarn.api().get("status")["findings"]]
            check("flush-failed" in findings, findings)


@test
def a_member_that_is_gone_is_not_ready_for_what_touches_it():
    """A member behind an NBD server that is killed: commands on it end with NOT READY, others go on; it comes back."""
    port = free_port()
    command = ["nbdkit", "--foreground", "--ipaddr", "127.0.0.1", "--port", str(port), "memory", "8M"]

    def start():
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: f"pid={process.pid}," in subprocess.run(["ss", "-Hlnp"], capture_output=True, text=True).stdout, 20,
                 "nbdkit listens")
        return process
    process = start()
    try:
        named = dict(a="mem:8M", b=f"nbd://127.0.0.1:{port}/?retry=1")
        with Tarn(config=config("stripe:a,b", **named)) as tarn, session_with(tarn, timeout_s=40) as session:
            expected = bytearray(4 * MIB)
            write_at_random(session, expected, 21, count=30)
            equal_data(session, expected)
            process.send_signal(signal.SIGKILL)
            process.wait()
            equal(sense_key(read(session, CHUNK, CHUNK)), scsi.NOT_READY, "READ of the member that is gone")
            equal(sense_key(read(session, 0, 4 * CHUNK)), scsi.NOT_READY, "READ of both")
            for _ in range(20):
                good(write(session, 0, bytes(CHUNK)), "WRITE of the other member")
            process = start()
            wait_for(lambda: read(session, CHUNK, CHUNK).good, 20, "it is served again")
            check(not flush(session).good, "no flush tells that a cache may be lost")
            good(flush(session), "SYNCHRONIZE CACHE")
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    harness.main()
