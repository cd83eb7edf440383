#!/usr/bin/env python3
"""Snapshots of LUNs: files on XFS and btrfs, under writes, of several LUNs at one moment, after crashes.

The file systems are made in files and mounted by loop devices, which needs root; without it most tests are skipped.

    suite.py [--list] [PATTERN...]
"""
import collections
import contextlib
import http.client
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import iscsi
import scsi
from harness import Failure, check, equal, main, measured, skip, test, wait_for
from reflinks import BLOCK, GIB, MIB, Daemon, file_of_pieces, file_system, random_writes, session_with, write
from tarn import IQN, lun_section, target_section

REFLINKS = ["xfs", "btrfs"]
FAILED, WRONG, NOT_FOUND, CONFLICT = 1, 2, 5, 6


def read(session, at, length, lun=0):
    outcome = session.command(scsi.read16(at // BLOCK, length // BLOCK), read=length, lun=lun)
    check(outcome.good, f"read: {outcome}")
    return outcome.data


class Counter(threading.Thread):
    """Writes 1, 2, 3 and so on to the first block of each of these LUNs, one after the other, until it is left."""

    def __init__(self, tarn, luns):
        super().__init__(daemon=True)
        self.tarn, self.luns = tarn, luns
        self.count, self.longest_s, self.error, self.is_over = 0, 0.0, None, False

    def run(self):
        try:
            with session_with(self.tarn) as session:
                for lun in self.luns:
                    session.clear_unit_attentions(lun)
                while not self.is_over:
                    self.count += 1
                    for lun in self.luns:
                        begin = time.monotonic()
                        write(session, 0, struct.pack(">Q", self.count) * (BLOCK // 8), lun)
                        self.longest_s = max(self.longest_s, time.monotonic() - begin)
        except Exception as error:      # it is the test that fails
            self.error = error

    def __enter__(self):
        self.start()
        wait_for(lambda: self.count > 10 or self.error, 10, "writes are under way")
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.join(30)
        if self.error:
            raise Failure(f"the writes failed: {self.error}")


def counted(path):
    """The number in the first block of a file, which must be whole."""
    with open(path, "rb") as file:
        block = file.read(BLOCK)
    numbers = set(struct.unpack(f">{BLOCK // 8}Q", block))
    equal(len(numbers), 1, f"numbers in one block of {path}")
    return numbers.pop()


@test
def a_snapshot_has_the_data_of_its_moment():
    """On XFS and btrfs: what was answered before is in it, what came later is not, and the LUN goes on."""
    for kind in REFLINKS:
        with file_system(kind) as place, Daemon({"disk": f"file:{place}/disk.img?size=64M"}) as tarn, \
                session_with(tarn) as session:
            write(session, MIB, b"a" * 4096)
            equal(tarn.names("disk"), [], f"snapshots of a new LUN on {kind}")
            (one,) = tarn.take("disk", name="first")["snapshots"]
            write(session, MIB, b"b" * 4096)
            equal(read(session, MIB, 4096), b"b" * 4096, "the LUN after the snapshot")
            equal((one["lun"], one["name"], one["size_bytes"]), ("disk", "first", 64 * MIB), "what is answered")
            with open(one["path"], "rb") as file:
                file.seek(MIB)
                equal(file.read(4096), b"a" * 4096, f"the snapshot on {kind}")
            equal(tarn.api().get("luns/disk/snapshots"), [one], "the list")
            equal(tarn.api().get("snapshots"), [one], "the list of all")
            equal(os.stat(one["path"]).st_mode & 0o222, 0, "rights to write the snapshot")
            kinds = [event["kind"] for event in tarn.api().get("events")]
            check("snapshot-taken" in kinds, kinds)
            tarn.api().delete("luns/disk/snapshots/first")
            equal((tarn.names("disk"), os.listdir(f"{place}/disk.img.snapshots")), ([], []), "after its removal")


@test
def the_command_line_takes_lists_and_removes():
    with file_system("xfs") as place, Daemon({id: f"file:{place}/{id}.img?size=16M" for id in "ab"}) as tarn:
        text = tarn.run("snapshot", "create", "a", "one", "--with", "b")
        check("a@one: taken, commands waited" in text and "b@one" in text, text)
        check(tarn.run("snapshot", "create", "a").startswith("a@20"), "the time is the name")
        text = tarn.run("snapshot", "list")
        check("a@one" in text and "b@one" in text, text)
        check("b@one" not in tarn.run("snapshot", "list", "a"), "those of one LUN")
        check("already" in tarn.run("snapshot", "create", "a", "one", code=CONFLICT), "a name twice")
        equal(tarn.run("snapshot", "rm", "a@one"), "a@one: removed\n", "rm")
        tarn.run("snapshot", "rm", "a@one", code=NOT_FOUND)
        tarn.run("snapshot", "rm", "a", code=WRONG)
        tarn.run("snapshot", "create", "none", code=NOT_FOUND)


@test
def luns_of_one_snapshot_are_of_one_moment():
    """A number is written to LUN a, then to b: in no snapshot is b ahead of a, or more than one behind."""
    with file_system("xfs") as place, Daemon({id: f"file:{place}/{id}.img?size=16M" for id in "ab"}) as tarn:
        with Counter(tarn, [0, 1]) as counter:
            for number in range(20):
                before = counter.count
                a, b = tarn.take("a", "b", name=f"s{number}")["snapshots"]
                first, second = counted(a["path"]), counted(b["path"])
                check(first - 1 <= second <= first, f"snapshot {number}: {first} in a, {second} in b")
                check(before - 1 <= second, f"snapshot {number}: {second}, and {before - 1} was answered before it began")
        measured(f"longest write {counter.longest_s * 1e3:.1f} ms")


@test
def a_snapshot_is_refused_with_the_remedy():
    with file_system("ext4", 64 * MIB) as other, file_system("xfs") as place:
        luns = {"disk": f"file:{place}/disk.img?size=16M", "memory": "mem:16M", "elsewhere": f"file:{other}/disk.img?size=16M"}
        with Daemon(luns) as tarn:
            def refused(status, word, luns, name="a"):
                answer = tarn.api().ask("POST", "snapshots", {"luns": luns, "name": name})
                check(answer.status == status and word in answer.json["detail"], answer)
            refused(409, "put its data into a file", ["memory"])
            refused(409, "XFS", ["elsewhere"])
            refused(409, "XFS", ["disk", "elsewhere"])
            equal(tarn.names("disk"), [], "all or none")
            refused(404, "no lun", ["disk", "none"])
            refused(400, "twice", ["disk", "disk"])
            refused(400, "1 to 16", [])
            refused(400, "1 to 16", [f"lun{n}" for n in range(17)])
            for name in ["", ".", "..", "../up", "a/b", ".hidden", "x" * 65, "a b", "a\u0000", "\u00e9"]:
                refused(400, "name of a snapshot", ["disk"], name)
                path = name.encode().hex().upper()
                path = "".join(f"%{path[n:n + 2]}" for n in range(0, len(path), 2))
                check(tarn.api().ask("DELETE", f"luns/disk/snapshots/{path}").status in (400, 404), name)
            tarn.take("disk", name="a")
            refused(409, "already", ["disk"])
            check(tarn.api().ask("DELETE", "luns/disk/snapshots/none").status == 404, "one that is not there")
            equal(os.listdir(f"{place}/disk.img.snapshots"), ["a"], "nothing else is left")


@test
def a_snapshot_that_is_served_is_not_removed():
    """It is a file like others: a LUN of it is read-only, and has the data of the moment."""
    with file_system("xfs") as place, Daemon({"disk": f"file:{place}/disk.img?size=16M"}) as tarn, \
            session_with(tarn) as session:
        write(session, 0, b"a" * BLOCK)
        (one,) = tarn.take("disk", name="first")["snapshots"]
        write(session, 0, b"b" * BLOCK)
        tarn.run("lun", "add", "old", f"file:{one['path']}?readonly", "--target", IQN)
        answer = tarn.api().ask("DELETE", "luns/disk/snapshots/first")
        check(answer.status == 409 and "in use" in answer.json["detail"], answer)
        with session_with(tarn) as reader:
            reader.clear_unit_attentions(1)
            equal(read(reader, 0, BLOCK, lun=1), b"a" * BLOCK, "the LUN of the snapshot")
        tarn.run("target", "unmap", IQN, "1", "--yes")
        tarn.run("lun", "rm", "old", "--yes")
        wait_for(lambda: tarn.api().ask("DELETE", "luns/disk/snapshots/first").status == 204, 10, "it can be removed")


@test
def a_store_names_a_snapshot_by_its_lun():
    """It is only read and not removed; it follows the LUN's id, and the LUN is not removed before it."""
    with file_system("xfs") as place:
        luns = {"disk": f"file:{place}/disk.img?size=16M&blocksize=4096", "memory": "mem:1M"}
        with Daemon(luns) as tarn:
            (one,) = tarn.take("disk", name="first")["snapshots"]
            def add(id, store):
                return tarn.api().ask("PUT", f"luns/{id}", {"id": id, "store": store})
            for store, word in [("snap:none@first", "none"), ("snap:memory@first", "whose store is a file"),
                                ("snap:disk", "names no snapshot"), ("snap:disk@none", "tarn snapshot list"),
                                ("snap:disk@first?size=32M", "size")]:
                answer = add("old", store)
                check(400 <= answer.status < 500 and word in answer.body.decode(), f"{store}: {answer}")
            tarn.run("lun", "add", "old", "snap:disk@first", "--target", IQN)
            lun = tarn.api().get("luns/old")
            equal((lun["kind"], lun["readonly"], lun["block_bytes"], lun["size_bytes"]), ("snapshot", True, 4096, 16 * MIB), "the LUN")
            answer = tarn.api().ask("DELETE", "luns/disk/snapshots/first")
            check(answer.status == 409 and "in use by lun old" in answer.json["detail"], answer)
            answer = add("two", f"file:{one['path']}?readonly")
            check(400 <= answer.status < 500 and "already used" in answer.body.decode(), answer)
            tarn.run("lun", "rename", "disk", "web")
            equal(tarn.api().get("luns/old")["spec"]["store"], "snap:web@first", "after the rename")
            tarn.run("target", "unmap", IQN, "0", "--yes")
            check("lun old" in tarn.run("lun", "rm", "web", "--yes", code=CONFLICT), "who uses it")
            with session_with(tarn) as reader:
                reader.clear_unit_attentions(2)
                outcome = reader.command(scsi.read16(0, 1), read=4096, lun=2)
                check(outcome.good and outcome.data == bytes(4096), f"read: {outcome}")
                outcome = reader.command(scsi.write16(0, 1), write=bytes(4096), lun=2)
                check(not outcome.good, "a write is refused")
            tarn.run("target", "unmap", IQN, "2", "--yes")
            tarn.run("lun", "rm", "old", "--yes")
            tarn.run("lun", "rm", "web", "--yes")


@test
def nobody_writes_a_snapshot():
    """The file of a snapshot is served with readonly only, also by a link, and no clone is made among snapshots."""
    with file_system(REFLINKS[0]) as place, Daemon({"disk": f"file:{place}/disk.img?size=16M"}) as tarn:
        tarn.take("disk", name="first")
        file = place / "disk.img.snapshots/first"
        (place / "link").symlink_to(place / "disk.img.snapshots")
        for path in (file, place / "link/first"):
            said = tarn.run("lun", "add", "old", f"file:{path}", code=WRONG)
            check("which nobody may write; add readonly" in said, said)
        said = tarn.run("lun", "add", "new", f"file:{place}/link/other", "--clone", "disk@first", code=CONFLICT)
        check("choose another directory" in said, said)
        equal([one.name for one in (place / "disk.img.snapshots").iterdir()], ["first"], "snapshots")
        tarn.run("lun", "add", "old", f"file:{file}?readonly")


@test
def nobody_writes_a_snapshot_by_another_name():
    """A hard link, a mount of its directory and a loop device lead to it; the plan says no, check and a start, too. With readonly
    each of them is served."""
    with file_system(REFLINKS[0]) as place, Daemon({"disk": f"file:{place}/disk.img?size=16M"}) as tarn, \
            contextlib.ExitStack() as stack:
        tarn.take("disk", name="first")
        file = place / "disk.img.snapshots/first"
        os.link(file, place / "hard")
        (tarn.dir / "bound").mkdir()
        subprocess.run(["mount", "--bind", str(file.parent), str(tarn.dir / "bound")], check=True)
        stack.callback(subprocess.run, ["umount", "-l", str(tarn.dir / "bound")], check=True)
        done = subprocess.run(["losetup", "--find", "--show", str(file)], capture_output=True, text=True, check=False)
        ways = [f"file:{place}/hard", f"file:{tarn.dir}/bound/first"]
        if done.returncode == 0:
            stack.callback(subprocess.run, ["losetup", "--detach", done.stdout.strip()], check=True)
            ways.append(f"block:{done.stdout.strip()}")
        for way in ways:
            new = lun_section("old", way)
            text = tarn.api().get("config")["text"]
            plan = tarn.api().post("plan", {"text": text + new})
            check(not plan["is_applicable"] and "which nobody may write; add readonly" in str(plan["mistakes"]), plan)
            said = tarn.run("lun", "add", "old", way, code=WRONG)
            check("which nobody may write; add readonly" in said, said)
            config = tarn.dir / "other.toml"
            config.write_text(lun_section("disk", f"file:{place}/disk.img") + new)
            said = tarn.run("check", str(config), code=WRONG)
            check("which nobody may write; add readonly" in said, said)
        os.link(place / "disk.img", place / "of-disk")
        (place / "other").write_bytes(bytes(MIB))
        os.link(place / "other", place / "twin")
        tarn.run("lun", "add", "twin", f"file:{place}/twin")
        tarn.run("lun", "add", "old", f"{ways[0]}?readonly")


@test
def many_snapshots_and_removals_of_luns_at_once_end_no_daemon():
    """Snapshots are taken of a LUN that is removed and added again: each is made or refused."""
    with file_system(REFLINKS[0]) as place, Daemon({"disk": f"file:{place}/disk.img?size=4M", "other": "mem:1M"}) as tarn:
        disk = tarn.api().get("luns/disk")["spec"]
        done = threading.Event()
        def take():
            while not done.is_set():
                tarn.api().ask("POST", "snapshots", {"luns": ["disk"]})
        takers = [threading.Thread(target=take) for _ in range(2)]
        for taker in takers:
            taker.start()
        try:
            for _ in range(30):
                tarn.api().good("DELETE", f"targets/{IQN}/luns/0")
                tarn.api().good("DELETE", "luns/disk")
                tarn.api().good("PUT", "luns/disk", disk)
                tarn.api().good("PUT", f"targets/{IQN}/luns/0", {"lun": 0, "id": "disk"})
        finally:
            done.set()
            for taker in takers:
                taker.join()
        wait_for(lambda: tarn.api().ask("POST", "snapshots", {"luns": ["disk"], "name": "last"}).status == 201, 10, "one more is taken")


@test
def snapshots_stay_with_the_file():
    """When the LUN gets another id, grows, is removed and is added again; a LUN whose file was replaced has none of it."""
    with file_system("xfs") as place, Daemon({"disk": f"file:{place}/disk.img?size=16M", "two": "mem:1M"}) as tarn:
        tarn.take("disk", name="a")
        tarn.run("lun", "rename", "disk", "web")
        equal(tarn.names("web"), ["a"], "after a new id")
        tarn.run("lun", "resize", "web", "32M")
        tarn.take("web", name="b")
        sizes = [one["size_bytes"] for one in tarn.api().get("luns/web/snapshots")]
        equal(sizes, [16 * MIB, 32 * MIB], "each has the size of its moment")
        tarn.run("target", "unmap", IQN, "0", "--yes")
        tarn.run("lun", "rm", "web", "--yes")
        equal(tarn.api().get("snapshots"), [], "without the LUN")
        tarn.run("lun", "add", "again", f"file:{place}/disk.img")
        equal(tarn.names("again"), ["a", "b"], "added again")
        os.rename(place / "disk.img", place / "moved.img")
        shutil.copy(place / "moved.img", place / "disk.img")
        answer = tarn.api().ask("POST", "snapshots", {"luns": ["again"], "name": "c"})
        check(answer.status == 409 and "another file" in answer.json["detail"], answer)


@test
def a_clone_is_a_lun_of_its_own():
    """It has the data of the snapshot; what is written to either is not in the other, and the snapshot can go."""
    for kind in REFLINKS:
        with file_system(kind) as place, Daemon({"disk": f"file:{place}/disk.img?size=16M"}) as tarn:
            with session_with(tarn) as session:
                write(session, 0, b"a" * BLOCK)
                tarn.take("disk", name="first")
                write(session, 0, b"b" * BLOCK)
            def refused(word, store, code=CONFLICT):
                text = tarn.run("lun", "add", "clone", store, "--clone", "disk@first", code=code)
                check(word in text, text)
            refused("blocksize=512", f"{place}/clone.img?blocksize=4096")
            refused("is there already", f"{place}/disk.img")
            refused("another file system", f"{tarn.dir}/clone.img")
            refused("name one", "mem:16M", code=WRONG)
            text = tarn.run("lun", "add", "disk", f"{place}/clone.img", "--clone", "disk@first", code=CONFLICT)
            check(not (place / "clone.img").exists(), f"the file of a clone that was not added: {text}")
            tarn.run("lun", "add", "clone", f"{place}/clone.img?size=32M", "--clone", "disk@first", "--target", IQN)
            tarn.run("snapshot", "rm", "disk@first")
            with session_with(tarn) as session:
                session.clear_unit_attentions(1)
                equal(read(session, 0, BLOCK, lun=1), b"a" * BLOCK, f"the clone on {kind}")
                equal(read(session, 31 * MIB, BLOCK, lun=1), bytes(BLOCK), "the part that it has grown by")
                write(session, 0, b"c" * BLOCK, lun=1)
                equal(read(session, 0, BLOCK), b"b" * BLOCK, "the LUN that it is from")


@test
def a_rollback_gives_the_data_of_the_snapshot_back():
    """Sessions that see the LUN end, others stay; identity and size stay, and a restart finds the same."""
    for kind in REFLINKS:
        with file_system(kind) as place, Daemon({"disk": f"file:{place}/disk.img?size=16M", "other": "mem:16M"}) as tarn:
            with session_with(tarn) as session:
                write(session, 0, b"a" * BLOCK)
                tarn.take("disk", name="first")
                write(session, 0, b"b" * BLOCK)
                before = tarn.api().get("luns/disk")
                tarn.run("lun", "resize", "disk", "32M")
            # Larger than its snapshot and than `size=`, which alone would make the file as large again.
            tarn.config = (tarn.dir / "tarn.toml").read_text()
            tarn.terminate()
            os.truncate(place / "disk.img", 48 * MIB)
            tarn.start()
            with session_with(tarn) as session:
                mode = os.stat(place / "disk.img").st_mode
                check("--yes" in tarn.run("snapshot", "rollback", "disk@first", code=FAILED), "a rollback without a terminal")
                tarn.run("snapshot", "rollback", "disk@none", "--yes", code=NOT_FOUND)
                equal(read(session, 0, BLOCK), b"b" * BLOCK, "a rollback that was refused ends no session")
                tarn.run("snapshot", "rollback", "disk@first", "--yes")
                check(session.connection.closed_within(5), "the session has ended")
            with session_with(tarn) as session:
                equal(read(session, 0, BLOCK), b"a" * BLOCK, f"after the rollback on {kind}")
                equal(session.command(scsi.read_capacity16(), read=32).data[:8], struct.pack(">Q", 48 * MIB // 512 - 1), "its last block")
                equal(read(session, 47 * MIB, BLOCK), bytes(BLOCK), "the part that it has grown by")
                write(session, BLOCK, b"d" * BLOCK)
                session.command(scsi.synchronize_cache16())
            after = tarn.api().get("luns/disk")
            equal((after["serial"], after["naa"], after["size_bytes"]), (before["serial"], before["naa"], 48 * MIB), "identity")
            found = os.stat(place / "disk.img")
            equal((found.st_mode, found.st_size), (mode, 48 * MIB), "mode and size of the file")
            equal(os.listdir(f"{place}/disk.img.snapshots"), ["first"], "the file of before is gone")
            kinds = [event["kind"] for event in tarn.api().get("events")]
            check("snapshot-restored" in kinds, kinds)
            tarn.config = (tarn.dir / "tarn.toml").read_text()
            tarn.terminate()
            tarn.start()
            with session_with(tarn) as session:
                equal(read(session, 0, 2 * BLOCK), b"a" * BLOCK + b"d" * BLOCK, "after a restart")
            findings = [one["code"] for one in tarn.api().get("findings")]
            check("file-replaced" not in findings and "lun-withheld" not in findings, findings)


@test
def a_lun_with_a_log_device_is_not_rolled_back():
    """What is answered is in a snapshot, also where it is durable by the log only. The log knows nothing of a rollback."""
    with file_system("xfs") as place:
        store = f"file:{place}/disk.img?size=64M"
        config = lun_section("disk", store) + f'log = "file:{place}/disk.log?size=16M"\n' + target_section("disk")
        with Daemon({}, config=config) as tarn:
            with session_with(tarn) as session:
                write(session, 0, b"a" * BLOCK)
                tarn.take("disk", name="first")
                write(session, 0, b"b" * BLOCK)
            equal((place / "disk.img.snapshots/first").read_bytes()[:1], b"a", "the snapshot")
            answer = tarn.api().ask("POST", "luns/disk/snapshots/first/rollback")
            check(answer.status == 409 and "without log" in answer.json["detail"], answer)
            with session_with(tarn) as session:
                equal(read(session, 0, BLOCK)[:1], b"b", "the LUN after that")


@test
def a_rollback_that_is_killed_is_done_or_not():
    """At any moment: the LUN has the data of before, or that of the snapshot, all of it."""
    pieces = 32
    with file_system("xfs") as place, Daemon({"disk": f"file:{place}/disk.img?size=64M"}) as tarn:
        def fill(byte):
            with session_with(tarn) as session:
                for piece in range(pieces):
                    write(session, 2 * piece * MIB, byte * BLOCK)
                session.command(scsi.synchronize_cache16())
        fill(b"a")
        tarn.take("disk", name="first")
        done = 0
        for number in range(12):
            fill(b"b")

            def ask():
                with contextlib.suppress(OSError, http.client.HTTPException):
                    tarn.api().ask("POST", "luns/disk/snapshots/first/rollback")
            thread = threading.Thread(target=ask)
            thread.start()
            time.sleep(0.02 * number)
            tarn.kill()
            thread.join()
            tarn.start()
            with session_with(tarn) as session:
                found = {read(session, 2 * piece * MIB, BLOCK)[:1] for piece in range(pieces)}
            equal(len(found), 1, f"data after kill {number}: {found}")
            done += found == {b"a"}
        measured(f"{done} of 12 were done")


@test
def what_a_crash_leaves_is_whole_or_goes():
    """Killed at any moment of a snapshot: what is listed after that has the data, and the rest is removed by the next."""
    with file_system("xfs") as place, Daemon({"disk": f"file:{place}/disk.img?size=64M"}) as tarn:
        directory = place / "disk.img.snapshots"
        with session_with(tarn) as session:
            for at in range(0, 64, 2):
                write(session, at * MIB, bytes([at]) * 4096)
        (place / "disk.img.snapshots").mkdir()
        (directory / ".left.new").write_bytes(b"half")
        for number in range(12):
            def ask(number=number):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    tarn.api().ask("POST", "snapshots", {"luns": ["disk"], "name": f"s{number}"})
            thread = threading.Thread(target=ask)
            thread.start()
            time.sleep(0.002 * number)
            tarn.kill()
            thread.join()
            tarn.start()
            for one in tarn.api().get("luns/disk/snapshots"):
                equal(one["size_bytes"], 64 * MIB, f"{one['name']} is whole")
                with open(one["path"], "rb") as file:
                    for at in range(0, 64, 2):
                        file.seek(at * MIB)
                        equal(file.read(4096), bytes([at]) * 4096, f"{one['name']} at {at} MiB")
        tarn.take("disk", name="last")
        left = [name for name in os.listdir(directory) if name.startswith(".")]
        equal(left, [], "what is left of those that were not finished")


@test
def a_full_file_system_refuses_a_snapshot_and_the_lun_goes_on():
    with file_system("xfs", 320 * MIB) as place, Daemon({"disk": f"file:{place}/disk.img?size=64M"}) as tarn, \
            session_with(tarn) as session:
        for at in range(64):
            write(session, at * MIB, os.urandom(4096))
        session.command(scsi.synchronize_cache16())
        with contextlib.suppress(OSError), open(place / "filler", "wb") as filler:
            while True:
                filler.write(bytes(MIB))
                filler.flush()
        answers = [tarn.api().ask("POST", "snapshots", {"luns": ["disk"], "name": f"s{n}"}) for n in range(3)]
        for answer in answers:
            check(answer.status in (201, 507), answer)
            check(answer.status == 201 or "make room" in answer.json["detail"], answer)
        equal(len(tarn.names("disk")), sum(answer.status == 201 for answer in answers), "what is there was answered as taken")
        os.remove(place / "filler")
        tarn.take("disk", name="with-room")
        write(session, 0, b"z" * BLOCK)
        equal(read(session, 0, BLOCK), b"z" * BLOCK, "the LUN")


@test
def a_file_system_that_hangs_keeps_no_other_lun_from_its_commands():
    """It is frozen. The snapshot of both is refused within its time, and what comes late is removed."""
    with file_system("xfs") as place, file_system("xfs") as frozen:
        with Daemon({"disk": f"file:{place}/disk.img?size=16M", "frozen": f"file:{frozen}/disk.img?size=16M"}) as tarn:
            subprocess.run(["fsfreeze", "-f", str(frozen)], check=True)
            try:
                with Counter(tarn, [0]) as counter:
                    begin = time.monotonic()
                    answer = tarn.api().ask("POST", "snapshots", {"luns": ["disk", "frozen"], "name": "a"})
                    took_s = time.monotonic() - begin
                    again = tarn.api().ask("POST", "snapshots", {"luns": ["disk"], "name": "b"})
                check(answer.status == 503 and "frozen" in answer.json["detail"], answer)
                check(took_s < 20, f"it took {took_s:.1f} s")
                equal(again.status, 201, f"a snapshot of the other LUN alone: {again}")
                check(counter.longest_s < 5, f"a write of the other LUN took {counter.longest_s:.1f} s")
            finally:
                subprocess.run(["fsfreeze", "-u", str(frozen)], check=True)
            # The directory may be made late, too.
            late = frozen / "disk.img.snapshots"
            wait_for(lambda: not list(late.glob("*")), 10, "what came late is removed")
            equal(tarn.names("disk"), ["b"], "the other LUN")
            tarn.take("disk", "frozen", name="a")
            wait_for(lambda: [one.name for one in late.glob("*")] == ["a"], 10, "nothing else is left")


@contextlib.contextmanager
def frozen(place):
    """A file system that answers nothing that changes it."""
    subprocess.run(["fsfreeze", "-f", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "-u", str(place)], check=True)


@contextlib.contextmanager
def rollback_without_an_answer(tarn, place, other, copy_is_lost=False):
    """The file system stops answering after the copy of a rollback is made, and before it takes the place of the file. Gives what
    the command said."""
    copy = place / "disk.img.snapshots/.first.new"
    with iscsi.Session(tarn.port, IQN, timeout_s=60) as session:
        for lun in (0, 1):
            session.clear_unit_attentions(lun)
        subprocess.run(["fsfreeze", "-f", str(other)], check=True)
        try:
            # The session ends when this is given up.
            session.start(scsi.write16(0, 8, 0x08), write=bytes(8 * BLOCK), lun=1)
            answers = []
            asker = threading.Thread(target=lambda: answers.append(tarn.run("snapshot", "rollback", "disk@first", "--yes")))
            asker.start()
            wait_for(copy.exists, 10, "the copy")
            wait_for(lambda: session.connection.closed_within(0.1), 10, "the session ends")
            if copy_is_lost:
                copy.unlink()
            with frozen(place):
                asker.join(60)
                check(answers, "the command has not ended with exit code 0")
                yield answers[0]
        finally:
            subprocess.run(["fsfreeze", "-u", str(other)], check=True)


@test(limit_s=120)
def a_rollback_without_an_answer_loses_nothing_that_is_answered_after_it():
    """It is not known whether it was done: nothing is written until that is known, and then it is done."""
    limits = "[limits]\ntask_deadline_seconds = 2\n"
    with file_system("xfs") as place, file_system("xfs") as other:
        luns = {"disk": f"file:{place}/disk.img?size=16M", "other": f"file:{other}/disk.img?size=16M"}
        with Daemon(luns, more=limits) as tarn:
            with session_with(tarn) as session:
                write(session, 0, b"a" * BLOCK)
                tarn.take("disk", name="first")
                write(session, 0, b"b" * BLOCK)
                session.command(scsi.synchronize_cache16())
            with rollback_without_an_answer(tarn, place, other) as said:
                check("not known yet" in said and "tarn lun show disk" in said, said)
                check("not known yet" in tarn.run("lun", "show", "disk"), "tarn lun show")
                findings = [one["message"] for one in tarn.api().get("findings") if one["code"] == "change-unsettled"]
                check(any("lun disk" in message for message in findings), findings)
                again = tarn.api().ask("POST", "luns/disk/snapshots/first/rollback")
                check(again.status in (409, 503), again)
                with iscsi.Session(tarn.port, IQN, timeout_s=60) as session:
                    session.clear_unit_attentions()
                    outcome = session.command(scsi.write16(8, 1, 0x08), write=b"c" * BLOCK)
                    check(not outcome.good, "a WRITE with FUA is answered while nobody knows which file it is in")
            wait_for(lambda: "snapshot-restored" in [event["kind"] for event in tarn.api().get("events")], 30, "it is done")
            with session_with(tarn) as session:
                equal(read(session, 0, BLOCK), b"a" * BLOCK, "the data of the snapshot")
                write(session, 8 * BLOCK, b"d" * BLOCK)
                session.command(scsi.synchronize_cache16())
            equal((place / "disk.img").read_bytes()[8 * BLOCK:9 * BLOCK], b"d" * BLOCK, "in the file at the path")
            equal(os.listdir(f"{place}/disk.img.snapshots"), ["first"], "the file of before is gone")
            check("not known yet" not in tarn.run("lun", "show", "disk"), "tarn lun show after it")


@test(limit_s=120)
def a_rollback_that_is_killed_without_an_answer_keeps_its_file():
    """Until the file system answers, no other process serves the file of before."""
    with file_system("xfs") as place, file_system("xfs") as other:
        luns = {"disk": f"file:{place}/disk.img?size=16M", "other": f"file:{other}/disk.img?size=16M"}
        with Daemon(luns, more="[limits]\ntask_deadline_seconds = 2\n") as tarn:
            with session_with(tarn) as session:
                write(session, 0, b"a" * BLOCK)
                tarn.take("disk", name="first")
                write(session, 0, b"b" * BLOCK)
            with rollback_without_an_answer(tarn, place, other) as said:
                check("not known yet" in said, said)
                tarn.kill()
                tarn.begin()
                time.sleep(2)
                with contextlib.suppress(OSError), session_with(tarn) as session:
                    check(not session.command(scsi.read16(0, 1), read=BLOCK).good, "the file of before is served")
            wait_for(lambda: tarn.has_said() and not tarn.api().get("luns/disk").get("trouble"), 30, "the unit is served")
            with session_with(tarn) as session:
                equal(read(session, 0, BLOCK), b"a" * BLOCK, "the data of the snapshot")


@test(limit_s=120)
def a_rollback_that_fails_after_its_answer_is_undone():
    """The LUN goes on with the data of before, the commands that waited end, and an event says that it was not done."""
    with file_system("xfs") as place, file_system("xfs") as other:
        luns = {"disk": f"file:{place}/disk.img?size=16M", "other": f"file:{other}/disk.img?size=16M"}
        with Daemon(luns) as tarn:
            with session_with(tarn) as session:
                write(session, 0, b"a" * BLOCK)
                tarn.take("disk", name="first")
                write(session, 0, b"b" * BLOCK)
            with rollback_without_an_answer(tarn, place, other, copy_is_lost=True) as said:
                check("not known yet" in said, said)
            wait_for(lambda: "rollback-failed" in [event["kind"] for event in tarn.api().get("events")], 30, "it is said")
            with session_with(tarn) as session:
                equal(read(session, 0, BLOCK), b"b" * BLOCK, "the data of before")
                write(session, BLOCK, b"c" * BLOCK)
            check("not known yet" not in tarn.run("lun", "show", "disk"), "tarn lun show after it")
            tarn.run("snapshot", "rollback", "disk@first", "--yes")
            with session_with(tarn) as session:
                equal(read(session, 0, BLOCK), b"a" * BLOCK, "the data of the snapshot")


@test
def a_file_that_was_cut_or_shadowed_gives_no_snapshot_away():
    """A snapshot of a cut file would keep the loss; those beside another file at the path are of that file."""
    with file_system("xfs") as place, Daemon({"disk": f"file:{place}/disk.img?size=16M"}) as tarn:
        tarn.take("disk", name="first")
        os.truncate(place / "disk.img", 8 * MIB)
        wait_for(lambda: "store-short" in [one["code"] for one in tarn.api().get("findings")], 30, "the finding")
        said = tarn.api().ask("POST", "snapshots", {"luns": ["disk"], "name": "second"})
        check(said.status == 409 and "was cut" in said.json["detail"], said)
        other = place / "other.img"
        other.write_bytes(bytes(16 * MIB))
        other.rename(place / "disk.img")
        said = tarn.api().ask("DELETE", "luns/disk/snapshots/first")
        check(said.status == 409 and "another file" in said.json["detail"], said)
        tarn.run("lun", "add", "clone", f"{place}/clone.img", "--clone", "disk@first", code=6)
        equal(os.listdir(place / "disk.img.snapshots"), ["first"], "snapshots")


@test(limit_s=60)
def a_clone_that_is_made_too_late_is_not_there():
    """What was answered as not made is removed when the file system goes on, and can be made again."""
    with file_system("xfs") as place, Daemon({"disk": f"file:{place}/disk.img?size=16M"}) as tarn:
        tarn.take("disk", name="first")
        with frozen(place):
            tarn.run("lun", "add", "clone", f"{place}/clone.img", "--clone", "disk@first", code=3)
        tarn.run("snapshot", "list", "disk")
        wait_for(lambda: not (place / "clone.img").exists(), 10, "it is removed")
        tarn.run("lun", "add", "clone", f"{place}/clone.img", "--clone", "disk@first")


SCHEDULED = re.compile(r"(hourly|daily|weekly)-\d{4}-\d\d-\d\dT\d\d\.\d\dZ")


def with_schedule(path, schedule):
    """A configuration of one LUN with this schedule."""
    section = lun_section("disk", f"file:{path}?size=16M")
    return f"{section}snapshots = {schedule}\n" + target_section("disk")


def scheduled(tarn):
    """How many snapshots of each period there are."""
    return collections.Counter(name.split("-")[0] for name in tarn.names("disk") if SCHEDULED.fullmatch(name))


@test
def a_schedule_takes_what_is_due_and_keeps_so_many():
    """Only its own are removed, the oldest first; what is served stays; a change of it takes effect at once."""
    for kind in REFLINKS:
        with file_system(kind) as place:
            directory = place / "disk.img.snapshots"
            directory.mkdir()
            old = [f"hourly-2001-01-01T0{hour}.00Z" for hour in range(4)]
            others = ["before-upgrade", "hourly-2001", "daily-2001-01-01T00.00Z", "weekly-2001-01-07T00.00Z"]
            for name in [*old, *others]:
                (directory / name).write_bytes(bytes(MIB))
            config = lun_section("served", f"snap:disk@{old[0]}") + with_schedule(place / "disk.img", "{ hourly = 3, daily = 2 }")
            with Daemon({}, config=config) as tarn:
                wait_for(lambda: scheduled(tarn)["daily"] == 2, 30, "the first run of each period")
                wait_for(lambda: old[1] not in tarn.names("disk"), 30, "what is kept no longer goes")
                names = tarn.names("disk")
                check(old[0] in names and old[3] in names, names)
                check(set(others) <= set(names), names)
                (new,) = [name for name in names if name.startswith("hourly-20") and name > "hourly-2002" and SCHEDULED.fullmatch(name)][:1]
                refused = tarn.api().ask("POST", "snapshots", {"luns": ["disk"], "name": new.replace("20", "21", 1)})
                check(refused.status == 400 and "schedule" in refused.json["detail"], refused)
                tarn.run("lun", "set", "disk", "--snapshots", "weekly=1,at=00:00")
                wait_for(lambda: scheduled(tarn)["weekly"] == 1 and others[3] not in tarn.names("disk"), 30, "the new schedule")
                equal(scheduled(tarn)["daily"], 2, "of a period that is left out")
                text = tarn.run("lun", "show", "disk")
                check("weekly=1,at=00:00" in text, text)
                tarn.run("lun", "set", "disk", "--snapshots", "")
                check("snapshots" not in tarn.api().get("luns/disk")["spec"], "no schedule")


@test
def a_full_file_system_stops_a_schedule_and_removes_nothing():
    """There is an event and a finding; with room, and a touch of the schedule, it goes on."""
    with file_system("xfs", 320 * MIB) as place:
        directory = place / "disk.img.snapshots"
        directory.mkdir()
        old = [f"daily-2001-01-0{day}T00.00Z" for day in range(1, 5)]
        for name in old:
            (directory / name).write_bytes(bytes(MIB))
        with contextlib.suppress(OSError), open(place / "filler", "wb") as filler:
            (place / "disk.img").write_bytes(bytes(16 * MIB))
            while True:
                filler.write(bytes(MIB))
                filler.flush()
        with Daemon({}, config=with_schedule(place / "disk.img", "{ daily = 2 }")) as tarn:
            wait_for(lambda: "snapshot-missed" in [event["kind"] for event in tarn.api().get("events")], 30, "the event")
            findings = [one for one in tarn.api().get("findings") if one["code"] == "snapshot-missed"]
            check(len(findings) == 1 and "make room" in findings[0]["message"], findings)
            equal(tarn.names("disk"), old, "what is there")
            os.remove(place / "filler")
            tarn.run("lun", "set", "disk", "--snapshots", "daily=3")
            wait_for(lambda: scheduled(tarn)["daily"] == 3 and old[1] not in tarn.names("disk"), 30, "it goes on")
            wait_for(lambda: not [one for one in tarn.api().get("findings") if one["code"] == "snapshot-missed"], 30, "the finding goes")


@test
def operators_take_snapshots_and_admins_remove_them():
    with file_system("xfs") as place:
        luns = {"disk": f"file:{place}/disk.img?size=16M"}
        with Daemon(luns) as tarn:
            paths = tarn.api().get("openapi.json")["paths"]
            roles = {(method, path): operation["x-role"] for path, methods in paths.items()
                     for method, operation in methods.items() if "snapshots" in path}
            one = "/api/v1/luns/{id}/snapshots"
            equal(roles, {("get", "/api/v1/snapshots"): "viewer", ("post", "/api/v1/snapshots"): "operator",
                          ("get", one): "viewer", ("delete", one + "/{name}"): "admin",
                          ("post", one + "/{name}/rollback"): "admin", ("post", one + "/{name}/clone"): "admin"}, "roles")


@test
def a_confined_daemon_takes_snapshots_within_its_roots():
    """And says what to allow where only the file is a root."""
    with file_system("xfs") as place:
        luns = {"disk": f"file:{place}/disk.img?size=16M"}
        with Daemon(luns, f'[confine]\nroots = ["{place}"]\n') as tarn:
            tarn.take("disk", name="a")
            equal(tarn.names("disk"), ["a"], "confined")
            tarn.api().delete("luns/disk/snapshots/a")
        os.rmdir(place / "disk.img.snapshots")
        with Daemon(luns, f'[confine]\nroots = ["{place}/disk.img"]\n') as tarn:
            answer = tarn.api().ask("POST", "snapshots", {"luns": ["disk"], "name": "a"})
            if answer.status == 201:
                skip("this kernel does not confine files")
            check("confine.roots" in answer.json["detail"], answer)


@test
def many_snapshots_at_once_are_all_whole():
    """Callers beside each other: each gets its snapshot, or is told to try again, and writes go on."""
    with file_system("xfs") as place, Daemon({id: f"file:{place}/{id}.img?size=16M" for id in "ab"}) as tarn:
        answers = []

        def ask(number):
            luns = [["a"], ["b"], ["a", "b"], ["b", "a"]][number % 4]
            answers.append((luns, tarn.api().ask("POST", "snapshots", {"luns": luns, "name": f"s{number}"})))
        with Counter(tarn, [0, 1]):
            callers = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
            for caller in callers:
                caller.start()
            for caller in callers:
                caller.join()
        check(all(answer.status in (201, 503) for _, answer in answers), answers)
        taken = [luns for luns, answer in answers if answer.status == 201]
        check(taken, answers)
        for id in "ab":
            equal(len(tarn.names(id)), sum(id in luns for luns in taken), f"snapshots of {id}")


@test
def a_snapshot_of_many_pieces_has_no_write_fail():
    """While four sessions write to random places, eight writes at a time. The later snapshots have more pieces: a block that
    is written after a snapshot is one of its own. How long writes wait is measured by bench/snapshots.py."""
    pieces = 640
    with file_system("xfs", 2 * GIB) as place:
        path = place / "disk.img"
        file_of_pieces(path, pieces)
        with Daemon({"disk": f"file:{path}"}) as tarn, random_writes(tarn, pieces) as writers:
            for number in range(3):
                tarn.take("disk", name=f"s{number}")
                before = [writer.count for writer in writers]
                wait_for(lambda: all(now.count > then or now.error for now, then in zip(writers, before)), 10, "they go on")
            equal(tarn.names("disk"), ["s0", "s1", "s2"], "snapshots")


if __name__ == "__main__":
    main()
