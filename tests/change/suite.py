#!/usr/bin/env python3
"""The configuration changes while initiators work: what a change does not concern goes on as if nothing had happened, what
it concerns is told by unit attention, and a change that fails leaves everything as it was.

    suite.py [--list] [PATTERN...]

The file is changed and SIGHUP sent, as `systemctl reload` does.
"""
import contextlib
import copy
import fcntl
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1] / "lib")]
import admin
import faultfs
import harness
import iscsi
import kept
import scsi
from harness import check, equal, measured, test, wait_for
from tarn import BINARY, Tarn, free_port, run

NAME = "iqn.2026-11.example.tarn"
MIB = 1 << 20
BLOCK = 512
REPORTED_LUNS_CHANGED = (6, 0x3f, 0x0e)
INQUIRY_CHANGED = (6, 0x3f, 0x03)
MODE_CHANGED = (6, 0x2a, 0x01)
CAPACITY_CHANGED = (6, 0x2a, 0x09)
PLANS = 200
# The generator has what lies before.
WORKERS_FROM = 40 * MIB // BLOCK


class Config:
    """A configuration as its parts; `text()` is the file."""

    def __init__(self):
        self.luns, self.groups, self.targets = {}, {}, {}
        self.users, self.more = {}, ""

    def target(self, name, luns, portals=("127.0.0.1:{port}",), groups=None, readonly=(), auth=()):
        self.targets[name] = dict(luns=dict(luns), portals=list(portals), groups=dict(groups or {}), readonly=set(readonly),
                                  auth=list(auth))
        return self

    def text(self):
        lines = []
        for id, store in self.luns.items():
            lines += ["[[lun]]", f'id = "{id}"', f'store = "{store}"']
        for name, path in self.users.items():
            lines += ["[[user]]", f'name = "{name}"', f'secret_file = "{path}"']
        for id, initiators in self.groups.items():
            lines += ["[[group]]", f'id = "{id}"', f"initiators = {initiators!r}".replace("'", '"')]
        for name, t in self.targets.items():
            lines += ["[[target]]", f'name = "{NAME}:{name}"', f"portals = {t['portals']!r}".replace("'", '"')]
            if t["auth"]:
                lines.append(f"auth = {t['auth']!r}".replace("'", '"'))
            entries = []
            for lun, id in t["luns"].items():
                more = f', groups = ["{t["groups"][lun]}"]' if lun in t["groups"] else ""
                more += ", readonly = true" if lun in t["readonly"] else ""
                entries.append(f'{{ lun = {lun}, id = "{id}"{more} }}')
            lines.append(f"luns = [{', '.join(entries)}]")
        return "\n".join(lines) + "\n" + self.more


class Changing(Tarn):
    """A Tarn whose file can be changed."""

    def filled(self, text):
        return text.replace("{port}", str(self.port)).replace("{port2}", str(self.port2)).replace("{dir}", str(self.dir))

    def write(self, text):
        (self.dir / "tarn.toml").write_text(self.filled(text))

    def reload(self, text):
        """Changes the file and has it applied. Returns the line of the log that tells how it went."""
        self.write(text)
        before = len(self.answers())
        self.process.send_signal(signal.SIGHUP)
        return wait_for(lambda: self.answers()[before:], 40, "an answer to SIGHUP")[0]

    def answers(self):
        return [line for line in self.log().splitlines() if "configuration applied" in line or "nothing was changed" in line]

    def applied(self, text):
        line = self.reload(text)
        check("configuration applied" in line, line)
        return int(re.search(r"revision.*?=.*?(\d+)", re.sub(r"\x1b\[\d*m", "", line)).group(1))

    def refused(self, text, why):
        line = self.reload(text)
        check("nothing was changed" in line and why in line, f"{why!r} is not in: {line}")

    def session(self, target, initiator="a", port=None, **options):
        return iscsi.Session(port or self.port, f"{NAME}:{target}", initiator=f"{NAME}:init-{initiator}", timeout_s=10, **options)


def one_disk():
    config = Config().target("one", {0: "d0"})
    config.luns["d0"] = "mem:16M"
    return config


def luns_of(session):
    data = session.command(scsi.report_luns(4096), read=4096).data
    return [int.from_bytes(data[at:at + 2], "big") & 0x3fff for at in range(8, 8 + int.from_bytes(data[:4], "big"), 8)]


def attention(session, lun=0):
    """The unit attention that waits, or None."""
    answer = session.command(scsi.test_unit_ready(), lun=lun)
    if answer.good:
        return None
    return (answer.sense.key, *answer.sense.code)


def write_and_read(session, lun=0, lba=3):
    data = bytes([(lba + lun + 1) % 256]) * BLOCK
    check(session.command(scsi.write16(lba, 1), write=data, lun=lun).good, f"WRITE to LUN {lun}")
    equal(session.command(scsi.read16(lba, 1), read=BLOCK, lun=lun).data, data, f"READ from LUN {lun}")


@test
def a_lun_comes_and_goes():
    """A LUN that is added is told, works at once, and goes again; the other one never notices more than a unit attention."""
    config = one_disk()
    with Changing(config=config.text()) as tarn, tarn.session("one") as session:
        session.clear_unit_attentions()
        write_and_read(session)
        config.luns["d1"] = "file:{dir}/d1.img?size=8M"
        config.targets["one"]["luns"][5] = "d1"
        equal(tarn.applied(config.text()), 2, "revision")
        equal(attention(session), REPORTED_LUNS_CHANGED, "what LUN 0 tells")
        equal(luns_of(session), [0, 5], "LUNs")
        session.clear_unit_attentions(5)
        write_and_read(session, 5)
        del config.targets["one"]["luns"][5], config.luns["d1"]
        equal(tarn.applied(config.text()), 3, "revision")
        equal(attention(session), REPORTED_LUNS_CHANGED, "what LUN 0 tells")
        check(not session.command(scsi.test_unit_ready(), lun=5).good, "a LUN that is gone is ready")
        write_and_read(session)
        # It is closed: nobody holds its lock any more.
        subprocess.run(["flock", "--nonblock", tarn.dir / "d1.img", "true"], check=True)


@test
def a_number_leads_to_another_disk():
    """A number that is given to another unit drains the old one; data of neither is mixed up."""
    config = one_disk()
    config.luns["d1"] = "mem:32M"
    with Changing(config=config.text()) as tarn, tarn.session("one") as session:
        session.clear_unit_attentions()
        write_and_read(session)
        config.targets["one"]["luns"][0] = "d1"
        tarn.applied(config.text())
        session.clear_unit_attentions()
        equal(scsi.capacity(session)[0] * BLOCK, 32 * MIB, "capacity of the other disk")
        equal(session.command(scsi.read16(3, 1), read=BLOCK).data, bytes(BLOCK), "data of the other disk")
        config.targets["one"]["luns"][0] = "d0"
        tarn.applied(config.text())
        session.clear_unit_attentions()
        equal(session.command(scsi.read16(3, 1), read=BLOCK).data, bytes([4]) * BLOCK, "data of the first disk")


@test
def a_file_grows():
    """A larger size makes the file larger; initiators are told, and the new blocks work."""
    config = one_disk()
    config.luns["d0"] = "file:{dir}/d0.img?size=8M"
    with Changing(config=config.text()) as tarn, tarn.session("one") as session:
        session.clear_unit_attentions()
        write_and_read(session)
        config.luns["d0"] = "file:{dir}/d0.img?size=12M"
        tarn.applied(config.text())
        equal(attention(session), CAPACITY_CHANGED, "what the LUN tells")
        equal(scsi.capacity(session)[0] * BLOCK, 12 * MIB, "capacity")
        write_and_read(session, lba=11 * MIB // BLOCK)
        config.luns["d0"] = "file:{dir}/d0.img?size=4M"
        tarn.applied(config.text())
        equal(scsi.capacity(session)[0] * BLOCK, 12 * MIB, "capacity after a smaller size=, which is the least")


@test
def a_disk_is_renamed():
    """Another id for the same disk: its data, its serial number and its sessions stay, over a restart too."""
    config = one_disk()
    config.luns["d0"] = "file:{dir}/d0.img?size=8M"
    with Changing(config=config.text()) as tarn:
        with tarn.session("one") as session:
            session.clear_unit_attentions()
            write_and_read(session)
            names = scsi.device_names(session)
            config.luns = {"better": config.luns["d0"]}
            config.targets["one"]["luns"][0] = "better"
            tarn.applied(config.text())
            equal(attention(session), None, "what the LUN tells")
            equal(scsi.device_names(session), names, "designators")
        equal(tarn.terminate(), 0, "exit code")
        tarn.config = config.text()
        tarn.start()
        with tarn.session("one") as session:
            session.clear_unit_attentions()
            equal(scsi.device_names(session), names, "designators after a restart")


@test
def other_names_in_inquiry_are_told_and_planned_as_such():
    config = one_disk()
    with Changing(config=config.text()) as tarn, tarn.session("one") as session:
        session.clear_unit_attentions()

        def names():
            data = session.command(scsi.inquiry(), read=255).data
            return data[8:16], data[16:32], data[32:36]
        equal(names()[:2], (b"TARN    ", b"DISK            "), "names")
        command = [BINARY, "lun", "set", "d0", "--vendor", "IET", "--product", "VIRTUAL-DISK", "--revision", "0001"]
        done = subprocess.run(command, capture_output=True, text=True, env=tarn.environment(), stdin=subprocess.DEVNULL, check=False)
        check(done.returncode == 0 and "new for initiators" in done.stdout and "by-id" in done.stdout, f"what it costs: {done}")
        equal(attention(session), INQUIRY_CHANGED, "unit attention")
        equal(names(), (b"IET     ", b"VIRTUAL-DISK    ", b"0001"), "names")
        write_and_read(session)


@test
def readonly_is_told():
    """A LUN becomes read-only and writable again for its initiators."""
    config = one_disk()
    with Changing(config=config.text()) as tarn, tarn.session("one") as session:
        session.clear_unit_attentions()
        config.targets["one"]["readonly"] = {0}
        tarn.applied(config.text())
        equal(attention(session), MODE_CHANGED, "what the LUN tells")
        check(not session.command(scsi.write16(0, 1), write=bytes(BLOCK)).good, "a write to a read-only LUN")
        config.targets["one"]["readonly"] = set()
        tarn.applied(config.text())
        session.clear_unit_attentions()
        write_and_read(session)


@test
def groups_change_who_sees_what():
    """Who is put into a group sees its LUNs at once; who is taken out loses the session only if nothing is left for it."""
    config = one_disk()
    config.luns["d1"] = "mem:16M"
    config.groups["g"] = [f"{NAME}:init-a"]
    config.target("one", {0: "d0", 1: "d1"}, groups={1: "g"})
    with Changing(config=config.text()) as tarn, tarn.session("one", "a") as a, tarn.session("one", "b") as b:
        equal((luns_of(a), luns_of(b)), ([0, 1], [0]), "LUNs")
        config.groups["g"] = [f"{NAME}:init-b"]
        tarn.applied(config.text())
        equal((luns_of(a), luns_of(b)), ([0], [0, 1]), "LUNs after the change")
        for session in (a, b):
            session.clear_unit_attentions()
            write_and_read(session)
        config.target("one", {0: "d0", 1: "d1"}, groups={0: "g", 1: "g"})
        tarn.applied(config.text())
        check(a.connection.closed_within(5), "a session that sees nothing lives on")
        b.clear_unit_attentions()
        write_and_read(b)
        try:
            tarn.session("one", "a").close()
            check(False, "an initiator that sees nothing logs in")
        except iscsi.LoginError:
            pass


def own_disks(luns, groups):
    """A target that shows each group another disk under one number: (LUN, id, groups) each."""
    lines = [f'[[lun]]\nid = "{id}"\nstore = "mem:{size}M"' for id, size in (("d0", 16), ("d1", 32), ("d2", 48))]
    lines += [f'[[group]]\nid = "{id}"\ninitiators = {json.dumps(initiators)}' for id, initiators in groups.items()]
    entries = [f'{{ lun = {lun}, id = "{id}"' + (f", groups = {json.dumps(of)} }}" if of else " }") for lun, id, of in luns]
    lines += [f'[[target]]\nname = "{NAME}:one"\nportals = ["127.0.0.1:{{port}}"]\nluns = [{", ".join(entries)}]']
    return "\n".join(lines) + "\n"


def capacity(session, lun=0):
    data = session.command(scsi.read_capacity16(), read=32, lun=lun).data
    return (int.from_bytes(data[:8], "big") + 1) * BLOCK // MIB


@test
def each_group_has_a_disk_of_its_own_as_lun_0():
    """Hosts that boot from LUN 0 of one target see different disks there, and all others a third; a change of one view is for
    its group alone; who is excluded is among the others; who is in two groups is refused with both names."""
    groups = {"g1": [f"{NAME}:init-a"], "g2": [f"{NAME}:init-*", f"!{NAME}:init-a", f"!{NAME}:init-c"]}
    luns = [(0, "d0", ["g1"]), (0, "d1", ["g2"]), (0, "d2", []), (1, "d2", ["g1"])]
    with Changing(config=own_disks(luns, groups)) as tarn, \
            tarn.session("one", "a") as a, tarn.session("one", "b") as b, tarn.session("one", "c") as c:
        equal([luns_of(one) for one in (a, b, c)], [[0, 1], [0], [0]], "LUNs")
        for one in (a, b, c):
            one.clear_unit_attentions()
        equal([capacity(one) for one in (a, b, c)], [16, 32, 48], "MiB of LUN 0")
        write_and_read(a, lba=3)
        equal(b.command(scsi.read16(3, 1), read=BLOCK).data, bytes(BLOCK), "what b reads of its own disk")

        # One view comes, and another goes. What is not concerned goes on without a word.
        tarn.applied(own_disks(luns[:3] + [(1, "d2", ["g2"])], groups))
        equal((attention(b), attention(c)), (REPORTED_LUNS_CHANGED, None), "unit attentions")
        for one in (a, b):
            one.clear_unit_attentions()
        equal([luns_of(one) for one in (a, b, c)], [[0], [0, 1], [0]], "LUNs after the change")
        equal([capacity(one) for one in (a, b, c)], [16, 32, 48], "MiB of LUN 0 after the change")

        # The wildcard takes b, and it is in the other group too: no choice is made.
        both = dict(groups, g1=[f"{NAME}:init-a", f"{NAME}:init-b"])
        tarn.refused(own_disks(luns, both), "LUN 0 is one unit for group")
        line = tarn.reload(own_disks(luns, both))
        for word in ("g1", "g2", f"{NAME}:init-b", "is in both"):
            check(word in line, f"{word!r} is not in: {line}")
        equal([luns_of(one) for one in (a, b, c)], [[0], [0, 1], [0]], "LUNs after what was refused")

        # Whether a name comes from an address is known at the login alone: the session ends, and is not let in again.
        here = dict(groups, g1=["127.0.0.0/8", f"!{NAME}:init-c"])
        tarn.applied(own_disks([(0, "d0", ["g1"]), (0, "d1", ["g2"]), (0, "d2", [])], here))
        check(b.connection.closed_within(5), "a session for which LUN 0 is two disks lives on")
        try:
            tarn.session("one", "b").close()
            check(False, "an initiator logs in for which LUN 0 is two disks")
        except iscsi.LoginError:
            pass
        wait_for(lambda: [line for line in tarn.log().splitlines() if "group g1" in line and "group g2" in line and "in both" in line],
                 5, "a line of the log with both groups")
        a.clear_unit_attentions()
        equal((capacity(a), capacity(c)), (16, 48), "MiB of LUN 0 of the others")


@test
def targets_and_portals_come_and_go():
    """A second target and portal are reached at once; when they go, their sessions end and no other."""
    config = one_disk()
    with Changing(config=config.text()) as tarn, tarn.session("one") as session:
        session.clear_unit_attentions()
        config.target("two", {0: "d0"}, portals=["127.0.0.1:{port2}"])
        tarn.applied(config.text())
        with tarn.session("two", port=tarn.port2) as other:
            other.clear_unit_attentions()
            write_and_read(other)
            session.clear_unit_attentions()
            write_and_read(session)
            config.targets["two"]["portals"] = ["127.0.0.1:{port}"]
            tarn.applied(config.text())
            check(other.connection.closed_within(5), "a session over a portal that is gone lives on")
        with tarn.session("two") as other:
            other.clear_unit_attentions()
            write_and_read(other)
            del config.targets["two"]
            tarn.applied(config.text())
            check(other.connection.closed_within(5), "a session of a target that is gone lives on")
        session.clear_unit_attentions()
        write_and_read(session)


@test
def a_secret_changes():
    """A new secret counts from the next login on; sessions stay."""
    config = one_disk()
    config.users["alice"] = "{dir}/alice.secret"
    config.targets["one"]["auth"] = ["alice"]
    with_secret = dict(chap=dict(name="alice", secret="first secret 1234"))
    tarn = Changing(config=config.text())
    tarn.secret("alice.secret", "first secret 1234")
    with tarn, tarn.session("one", **with_secret) as session:
        tarn.secret("alice.secret", "second secret 5678")
        tarn.applied(config.text() + "# a new secret\n")
        session.clear_unit_attentions()
        write_and_read(session)
        tarn.session("one", "b", chap=dict(name="alice", secret="second secret 5678")).close()
        try:
            tarn.session("one", "b", **with_secret).close()
            check(False, "the old secret still works")
        except iscsi.LoginError:
            pass


MISTAKES = [    # what is wrong, how the file is changed, what the log says
    ("no store", lambda c: c.luns.update(x="file:{dir}/absent/x.img?size=8M"), "cannot"),
    ("a store that another one has", lambda c: c.luns.update(x="file:{dir}/held.img"), "in use"),
    ("an address that is taken", lambda c: c.target("t", {0: "d0"}, portals=["127.0.0.1:{taken}"]), "in use"),
    ("a unit that is not there", lambda c: c.target("t", {0: "nope"}), "nope"),
    ("other options for a store that is open", lambda c: c.luns.update(d1="file:{dir}/d1.img?size=8M&cache=direct"), "twice"),
    ("memory of another size", lambda c: c.luns.update(d0="mem:32M"), "lost"),
]


@test
def a_change_that_fails_changes_nothing():
    """Each mistake stands behind changes that are right: none of those is seen, in the file's history neither."""
    config = one_disk()
    config.luns["d1"] = "file:{dir}/d1.img?size=8M"
    taken = free_port()
    with Changing(config=config.text()) as tarn, tarn.session("one") as session:
        holder = iscsi.socket.socket()
        holder.bind(("127.0.0.1", taken))
        holder.listen()
        (tarn.dir / "held.img").write_bytes(bytes(MIB))
        lock = open(tarn.dir / "held.img", "rb")
        fcntl.flock(lock, fcntl.LOCK_EX)
        session.clear_unit_attentions()
        descriptors = tarn.descriptors()
        for what, change, why in MISTAKES:
            wrong = one_disk()
            wrong.luns["d1"] = "file:{dir}/d1.img?size=8M"
            wrong.luns["good"] = "mem:8M"
            wrong.target("new", {0: "good"})
            wrong.targets["one"]["luns"][7] = "good"
            change(wrong)
            tarn.refused(wrong.text().replace("{taken}", str(taken)), why)
            equal(attention(session), None, f"{what}: what the LUN tells")
            equal(luns_of(session), [0], f"{what}: LUNs")
            write_and_read(session)
            wait_for(lambda: tarn.descriptors() == descriptors, 5, f"{what}: the descriptors are given back")
        lock.close()
        holder.close()
        config.luns["last"] = "mem:8M"
        equal(tarn.applied(config.text()), 2, "revision after all mistakes")


def secret_files(tarn):
    """The files of the daemon's own secrets, with what they hold."""
    return {path: path.read_text() for path in (tarn.dir / "state/secrets").rglob("*") if path.is_file()}


@test
def a_refused_secret_is_never_in_force():
    """PUT of a user that is refused leaves the secrets as they are: for the next change, a check, a rollback and a restart."""
    config = one_disk()
    config.users["alice"] = "{dir}/alice.secret"
    config.targets["one"]["auth"] = ["alice"]
    tarn = Changing(config=config.text())
    tarn.secret("alice.secret", "secret of the file")
    first = dict(name="alice", secret="forward secret 1", mutual=dict(name="t", secret="mutual secret 12"))
    wrong = [dict(first, mutual=dict(name="t", secret=first["secret"])),
             dict(first, secret="another secret 1", mutual=dict(name="t\1", secret="another secret 2"))]
    with tarn:
        api = tarn.api()
        api.put("users/alice", first)
        kept = secret_files(tarn)
        equal(sorted(kept.values()), [first["secret"], first["mutual"]["secret"]], "secrets")
        for user in wrong:
            equal(api.ask("PUT", "users/alice", user).status, 422, f"answer to {user}")
            equal(secret_files(tarn), kept, "secrets after a refusal")
        equal(api.put("users/alice", first)["steps"], [], "the same once more")
        api.put("groups/k", dict(id="k", initiators=[f"{NAME}:k"]))
        equal(run("check", tarn.dir / "tarn.toml").returncode, 0, "exit code of tarn check")
        revision = api.get("config")
        api.put("users/alice", dict(name="alice", secret="forward secret 2"))
        tarn.session("one", chap=dict(name="alice", secret="forward secret 2")).close()
        api.post("config/rollback", dict(revision=revision["revision"]))
        tarn.session("one", chap=dict(name="alice", secret=first["secret"])).close()
        long_name = "ä" * 60
        api.put(f"users/{admin.name(long_name)}", dict(name=long_name, secret="secret of a name"))
        equal(tarn.terminate(), 0, "exit code")
        tarn.config = (tarn.dir / "tarn.toml").read_text()
        tarn.start()
        tarn.session("one", chap=dict(name="alice", secret=first["secret"])).close()


@test
def a_secret_goes_with_the_last_revision_that_names_it():
    """With a history of one, another secret takes the file of the one before with it, and a start removes what is left over;
    what somebody else put beside that stays."""
    with Changing(config=one_disk().text() + "[admin]\nhistory = 1\n") as tarn:
        api = tarn.api()
        for secret in ("forward secret 1", "forward secret 2"):
            api.put("users/alice", dict(name="alice", secret=secret))
            equal(list(secret_files(tarn).values()), [secret], "secrets")
        equal(tarn.terminate(), 0, "exit code")
        (kept,) = secret_files(tarn)
        (kept.parent / "0123456789abcdef.secret").write_text("secret of a crash")
        (kept.parents[1] / "bob.secret").write_text("secret of an administrator")
        others = {kept.parents[1] / "bob.secret": "secret of an administrator"}
        tarn.config = (tarn.dir / "tarn.toml").read_text()
        tarn.start()
        equal(set(secret_files(tarn)), {kept, *others}, "files after a start")
        api.delete("users/alice")
        equal(secret_files(tarn), others, "secrets at the end")


@test
def a_full_disk_leaves_file_and_history():
    """A change for which there is no room is refused and nowhere to be found: the next SIGHUP does not apply it."""
    if os.geteuid() != 0:
        harness.skip("not root")
    tarn = Changing(config=one_disk().text())
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tarn-test", tarn.dir], capture_output=True).returncode != 0:
        tarn.close()
        harness.skip("no file system can be mounted here")
    try:
        with tarn:
            api = tarn.api()
            file, filler = tarn.dir / "tarn.toml", tarn.dir / "filler"
            before, room = file.read_text(), os.statvfs(tarn.dir)
            # Enough for the text once, not for its record, too.
            filler.write_bytes(bytes(room.f_bavail * room.f_bsize - 60 * 1024))
            text = before + "# " + "x" * 40 * 1024 + "\n"
            equal(api.ask("PUT", "config", dict(text=text)).kind, "storage-full", "answer on a full disk")
            equal(file.read_text(), before, "the file")
            equal([one["revision"] for one in api.get("config/history")], [1], "the history")
            equal(sorted(path.name for path in tarn.dir.rglob("*new*")), [], "temporary files")
            equal(tarn.applied(before), 1, "revision after SIGHUP")
            filler.unlink()
            api.put("config", dict(text=text))
            equal(file.read_text(), text, "the file when there is room")
    finally:
        subprocess.run(["umount", tarn.dir], check=True)
        tarn.close()


@contextlib.contextmanager
def hung_file(tarn):
    """The configuration file is on a file system that answers no read until release()."""
    file = tarn.dir / "tarn.toml"
    text = file.read_bytes()
    with faultfs.FaultFs(size=len(text)) as fs:
        fs.path.write_bytes(text)
        fs.hang = ("read",)
        link = tarn.dir / "link"
        link.symlink_to(fs.path)
        link.rename(file)
        yield fs


def put_back(tarn, text):
    """An ordinary file is at the path again. Who reads the other one goes on to do so."""
    new = tarn.dir / "new"
    new.write_text(text)
    new.rename(tarn.dir / "tarn.toml")


def wait_for_reader(fs):
    wait_for(fs.hung, 20, "somebody reads the file")


@test
def a_long_change_stops_nobody_who_looks_back():
    """While a change waits for its file, the history and its documents are told."""
    with Changing(config=one_disk().text()) as tarn:
        api = tarn.api()
        text = api.get("config")["text"]
        answers = []
        change = threading.Thread(target=lambda: answers.append(api.put("config", dict(text=text + "# new\n"))))
        with hung_file(tarn) as fs:
            change.start()
            wait_for_reader(fs)
            equal([one["revision"] for one in api.get("config/history")], [1], "history")
            equal(api.get("config/history/1")["text"], text, "document of revision 1")
            equal(answers, [], "the change goes on")
            put_back(tarn, text)
            fs.release()
            change.join(20)
        equal([answer["revision"] for answer in answers], [2], "revision of the change")


@test
def a_reload_that_hangs_does_not_keep_tarn_from_ending():
    """SIGTERM ends Tarn while it reads its file again."""
    with Changing(config=one_disk().text()) as tarn:
        text = (tarn.dir / "tarn.toml").read_text()
        with hung_file(tarn) as fs:
            tarn.process.send_signal(signal.SIGHUP)
            wait_for_reader(fs)
            # The exit code is that of a Tarn that ended in order.
            equal(tarn.terminate(), 0, "exit code")
        put_back(tarn, text)
        tarn.start()


@test
def a_sighup_during_a_reload_is_not_forgotten():
    """What the file says at the last SIGHUP is what runs in the end, however many came while one was served."""
    config = one_disk()
    with Changing(config=config.text()) as tarn:
        with hung_file(tarn) as fs:
            tarn.process.send_signal(signal.SIGHUP)
            wait_for_reader(fs)
            (tarn.dir / "tarn.toml").unlink()
            config.luns["last"] = "mem:8M"
            tarn.write(config.text())
            for _ in range(3):
                tarn.process.send_signal(signal.SIGHUP)
            fs.backing.write_bytes(b"no TOML [")
            fs.release()
            wait_for(lambda: any("configuration applied" in line for line in tarn.answers()), 20, "the last file is applied")
        check("nothing was changed" in tarn.answers()[0], tarn.answers()[0])
        equal([lun["spec"]["id"] for lun in tarn.api().get("luns")], ["d0", "last"], "LUNs")


class Worker(threading.Thread):
    """Writes and reads one disk without a pause and counts; any error is one too many."""

    def __init__(self, tarn, number):
        super().__init__(daemon=True)
        self.session = tarn.session("steady", f"steady-{number}")
        self.number, self.count, self.error, self.stopped = number, 0, None, False

    def run(self):
        source = random.Random(self.number)
        expected = {}
        try:
            while not self.stopped:
                lba = WORKERS_FROM + self.number * 64 + source.randrange(64)
                data = source.randbytes(BLOCK)
                self.good(scsi.write16(lba, 1), write=data)
                expected[lba] = data
                lba = source.choice(list(expected))
                equal(self.good(scsi.read16(lba, 1), read=BLOCK).data, expected[lba], f"block {lba}")
                self.count += 2
        except Exception as error:      # told by check_worker
            self.error = error

    def good(self, cdb, **options):
        answer = self.session.command(cdb, **options)
        if not answer.good and answer.sense.key == 6:   # a unit attention is no error
            answer = self.session.command(cdb, **options)
        check(answer.good, f"{answer!r}")
        return answer

    def finish(self):
        self.stopped = True
        self.join(20)
        self.session.close()
        check(self.error is None, f"worker {self.number}: {self.error}")
        return self.count


def random_change(config, source, number):
    """Changes one thing or several; never what the workers use."""
    for _ in range(source.randint(1, 3)):
        extra = [id for id in config.luns if id != "steady"]
        shown = {id for t in config.targets.values() for id in t["luns"].values()}
        kind = source.choice(["lun", "lun", "rm-lun", "map", "unmap", "target", "rm-target", "group", "rename", "readonly"])
        names = [name for name in config.targets if name != "steady"]
        if kind == "lun" and len(extra) < 12:
            store = source.choice(["mem:8M", f"file:{{dir}}/f{number}.img?size=4M", "null:1G"])
            config.luns[f"x{number}-{len(config.luns)}"] = store if "file" not in store else store.replace(".img", f"-{len(config.luns)}.img")
        elif kind == "rm-lun":
            for id in [id for id in extra if id not in shown][:1]:
                del config.luns[id]
        elif kind == "map" and extra:
            target = config.targets[source.choice(list(config.targets))]
            lun = source.randrange(1, 40)
            target["luns"][lun] = source.choice(extra)
            if config.groups and source.random() < 0.5:
                target["groups"][lun] = source.choice(list(config.groups))
        elif kind == "unmap":
            target = config.targets[source.choice(list(config.targets))]
            for lun in [lun for lun in target["luns"] if lun != 0][:1]:
                del target["luns"][lun]
                target["groups"].pop(lun, None)
        elif kind == "target" and extra and len(names) < 5:
            config.target(f"t{number}", {0: source.choice(extra)}, portals=[source.choice(["127.0.0.1:{port}", "127.0.0.1:{port2}"])])
        elif kind == "rm-target" and names:
            del config.targets[source.choice(names)]
        elif kind == "group":
            config.groups[f"g{source.randrange(4)}"] = [f"{NAME}:init-*", f"10.{source.randrange(250)}.0.0/16"]
        elif kind == "rename" and extra:
            old = source.choice(extra)
            new = f"r{number}-{len(config.luns)}"
            config.luns = {new if id == old else id: store for id, store in config.luns.items()}
            for target in config.targets.values():
                target["luns"] = {lun: new if id == old else id for lun, id in target["luns"].items()}
        elif kind == "readonly":
            target = config.targets[source.choice(list(config.targets))]
            luns = [lun for lun in target["luns"] if lun != 0]
            target["readonly"] ^= set(source.sample(luns, min(1, len(luns))))


def other_machine(config):
    config.target("wrong", {}, portals=["192.0.2.77:3260"])


def two_mistakes(config):
    config.luns["wrong"] = "file:{dir}/none/a.img?size=1M"
    config.users["wrong"] = "{dir}/no-secret"


# What is wrong, as what applying it is answered.
WRONG = [
    ("invalid-config", "a directory that is not there", lambda c: c.luns.update(wrong="file:{dir}/none/w.img?size=1M")),
    ("invalid-config", "a file that is not there", lambda c: c.luns.update(wrong="file:{dir}/none.img")),
    ("invalid-config", "one image by another path", lambda c: c.luns.update(wrong="file:{dir}/link.img")),
    ("invalid-config", "one image twice", lambda c: c.luns.update(wrong="file:{dir}/steady.img")),
    ("invalid-config", "more memory than there is", lambda c: c.luns.update(wrong="mem:100T")),
    ("invalid-config", "an image of another program", lambda c: c.luns.update(wrong="file:{dir}/held.img")),
    ("invalid-config", "an address of another machine", other_machine),
    ("invalid-config", "a port of another program", lambda c: c.target("wrong", {}, portals=["127.0.0.1:{taken}"])),
    ("invalid-config", "a secret that is not there", lambda c: c.users.update(wrong="{dir}/no-secret")),
    ("invalid-config", "a reference to nothing", lambda c: c.target("wrong", {0: "nothing"})),
    ("invalid-config", "a limit outside its range", lambda c: setattr(c, "more", "[limits]\nqueue_depth = 0\n")),
    ("invalid-config", "two mistakes", two_mistakes),
    ("invalid-config", "part of a block", lambda c: c.luns.update(wrong="file:{dir}/odd.img")),
    ("refused", "another cache", lambda c: c.luns.update(steady="file:{dir}/steady.img?size=64M&cache=direct")),
    ("refused", "another block size", lambda c: c.luns.update(steady="file:{dir}/steady.img?size=64M&blocksize=4096")),
]


def answer_of(answer):
    """How a plan or a change ended: None if nothing was in its way, else the kind of the problem."""
    return answer.json.get("outcome") if answer.status == 200 else answer.kind


def mistakes_of(answer):
    """The places and words of all that is wrong."""
    found = answer.json.get("mistakes") or ([] if answer.status == 200 else [answer.json])
    return {(one.get("place"), one["detail"]) for one in found}


class Guests:
    """Sessions that come and go with targets. What a plan says of them is what becomes of them."""

    def __init__(self, tarn):
        self.tarn, self.sessions = tarn, []

    def ids(self):
        return {session["id"] for session in self.tarn.api().get("sessions")}

    def come(self, config, source):
        """One more logs in, if there is a target for it."""
        names = [name for name in config.targets if name != "steady"]
        if len(self.sessions) < 8 and names:
            name = source.choice(names)
            port = self.tarn.port2 if "{port2}" in config.targets[name]["portals"][0] else self.tarn.port
            self.sessions.append(self.tarn.session(name, f"guest-{len(self.sessions)}-{source.randrange(10**6)}", port=port))

    def leave(self):
        for session in self.sessions:
            with contextlib.suppress(Exception):
                session.close()
        self.sessions.clear()


def plan_and_apply(tarn, text, guests):
    """A plan and the change agree: on whether it can be, on what is wrong, on the steps, and on the sessions that end."""
    api = tarn.api()
    before = guests.ids()
    plan = api.ask("POST", "plan", dict(text=text))
    equal(guests.ids(), before, "sessions after a plan")
    applied = api.ask("PUT", "config", dict(text=text))
    kind = applied.kind if applied.status != 200 else None
    equal(answer_of(plan), kind, f"the plan {plan.body} and the change {applied.body} of\n{text}")
    if kind is not None:
        if kind != "refused":
            equal(mistakes_of(plan), mistakes_of(applied), f"mistakes of\n{text}")
        return kind
    what = lambda answer: [(step["action"], step["kind"], step["name"], step["effect"]) for step in answer.json["steps"]]
    equal(what(plan), what(applied), f"steps of\n{text}")
    ended = {one for step in plan.json["steps"] for one in step.get("sessions_ended", [])}
    check(ended <= before, f"sessions {ended - before} are not there")
    wait_for(lambda: not ended & guests.ids(), 20, f"sessions {ended} end")
    check(before - ended <= guests.ids(), f"of {before} sessions {before - guests.ids()} are over, and the plan has {ended}")
    return None


@test(limit_s=400)
def two_hundred_plans_under_load():
    """200 random plans, of which a third is wrong, while a generator verifies a disk and sessions write and read: no error, and
    plan and change agree on every single one, and on the sessions. In the end every target shows what the file says."""
    source = random.Random(20261121)
    config = Config().target("steady", {0: "steady"})
    config.luns["steady"] = "file:{dir}/steady.img?size=64M"
    config.groups["g0"] = [f"{NAME}:init-*"]
    taken, outcomes = free_port(), {}
    holder = iscsi.socket.socket()
    holder.bind(("127.0.0.1", taken))
    holder.listen()
    with Changing(config=config.text(), arguments=["--cores", "2"]) as tarn:
        (tarn.dir / "link.img").symlink_to(tarn.dir / "steady.img")
        (tarn.dir / "held.img").write_bytes(bytes(MIB))
        (tarn.dir / "odd.img").write_bytes(bytes(1000))
        lock = open(tarn.dir / "held.img", "rb")
        fcntl.flock(lock, fcntl.LOCK_EX)
        workers = [Worker(tarn, number) for number in range(3)]
        for worker in workers:
            worker.session.clear_unit_attentions()
            worker.start()
        url = tarn.url(iqn=f"{NAME}:steady")
        generator = subprocess.Popen([BINARY, "bench", url, "--verify", "--overwrite", "--bs", "4k", "--iodepth", "8", "--span", "32m",
                                      "--runtime", "600", "--repeat", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: len(tarn.api().get("sessions")) >= 4, 20, "the generator has logged in")
        begin, guests = time.monotonic(), Guests(tarn)
        for number in range(PLANS):
            before = copy.deepcopy(config)
            if number % 4 == 0:
                guests.come(config, source)
            random_change(config, source, number)
            wanted = None
            if source.random() < 1 / 3:
                wanted, what, spoil = source.choice(WRONG)
                spoil(config)
            text = tarn.filled(config.text()).replace("{taken}", str(taken))
            kind = plan_and_apply(tarn, text, guests)
            equal(kind, wanted, f"what {what if wanted else 'a change that is right'} is answered with")
            outcomes[kind] = outcomes.get(kind, 0) + 1
            if kind is not None:
                config = before
        measured(f"{PLANS} plans in {time.monotonic() - begin:.1f} s: {outcomes}")
        check(outcomes["invalid-config"] + outcomes["refused"] >= PLANS // 4, f"too few are wrong: {outcomes}")
        guests.leave()
        lock.close()
        holder.close()
        check(generator.poll() is None, f"the generator ended: {generator.communicate()[1] if generator.poll() is not None else ''}")
        generator.send_signal(signal.SIGINT)
        out, errors = generator.communicate(timeout=60)
        equal(generator.returncode, 0, f"the generator's exit code\n{out}{errors}")
        measured(f"{sum(worker.finish() for worker in workers)} commands of sessions, the generator says: {out.splitlines()[-1] if out else ''}")
        for name, target in config.targets.items():
            port = tarn.port2 if "{port2}" in target["portals"][0] else tarn.port
            with tarn.session(name, "reader", port=port) as session:
                visible = [lun for lun in sorted(target["luns"])]
                equal(sorted(luns_of(session)) or [0], visible or [0], f"LUNs of {name}")
        sizes = tarn.descriptors()
        measured(f"{sizes} descriptors, {tarn.heap_bytes() // MIB} MiB of heap at the end")


@test
def point_1_a_plan_names_all_mistakes_at_once_and_makes_nothing():
    """Stores, one image by two paths, memory, addresses, secrets, certificates: all are in one plan, each at its place and beside its
    step, and the change is answered with the same. Nothing is made by it, and no file is left locked."""
    config = one_disk()
    config.luns["d1"] = "file:{dir}/d1.img?size=8M"
    with Changing(config=config.text()) as tarn:
        (tarn.dir / "link.img").symlink_to(tarn.dir / "d1.img")
        before = sorted(tarn.dir.iterdir())
        config.luns.update(a="file:{dir}/none/a.img?size=1M", b="file:{dir}/link.img", c="mem:100T", new="file:{dir}/new.img?size=1M")
        config.users["u"] = "{dir}/no-secret"
        config.target("two", {0: "new"}, portals=["192.0.2.77:3260"])
        config.more = "[[nbd]]\nbind = '127.0.0.1:0'\nluns = ['d0']\ncertificate = '{dir}/c.pem'\nkey = '{dir}/k.pem'\n"
        text = tarn.filled(config.text())
        api = tarn.api()
        plan = api.good("POST", "plan", dict(text=text)).json
        equal((plan["is_applicable"], plan["outcome"]), (False, "invalid-config"), "the plan")
        places = [one.get("place", "").rsplit(": ", 1)[-1] for one in plan["mistakes"]]
        # Whether so much memory can be reserved is the matter of the machine.
        equal(sorted(set(places) - {"lun[4].store"}), ["", "lun[2].store", "lun[3].store", "nbd[0].certificate", "target[1].portals[0]",
                                    "user[0].secret_file"], f"places of {plan['mistakes']}")
        equal(places.count("nbd[0].certificate"), 2, "the certificate and the key")
        wrong = {step["name"] for step in plan["steps"] if step["effect"] == "refused"}
        check({"a", "b", "127.0.0.1:0", f"{NAME}:two"} <= wrong and "new" not in wrong, f"refused steps: {plan['steps']}")
        answer = api.ask("PUT", "config", dict(text=text))
        equal((answer.status, answer.kind), (422, "invalid-config"), f"the change: {answer.body}")
        equal(mistakes_of(answer), {(one.get("place"), one["detail"]) for one in plan["mistakes"]}, "mistakes of the change")
        equal(sorted(tarn.dir.iterdir()), before, "files after a plan and a change that is refused")


@test
def point_1_a_file_that_hangs_holds_nobody():
    """A plan with an image whose file system does not answer is there in time, says so, and another plan is not held up."""
    with Changing(config=one_disk().text()) as tarn, faultfs.FaultFs(size=MIB) as fs:
        fs.hang = ("read",)
        api = tarn.api()
        text = api.get("config")["text"]
        hung = text + f'[[lun]]\nid = "hung"\nstore = "file:{fs.path}"\n'
        plan = api.good("POST", "plan", dict(text=hung)).json
        equal(plan["outcome"], "apply-failed", f"the plan: {plan}")
        check("does not answer" in str(plan["mistakes"]), plan["mistakes"])
        other = api.good("POST", "plan", dict(text=text + '[[lun]]\nid = "x"\nstore = "mem:1M"\n')).json
        equal((other["is_applicable"], [step["name"] for step in other["steps"]]), (True, ["x"]), "another plan")
        fs.hang = ()
        fs.release()


class Reader(threading.Thread):
    """Reads a block of a LUN without a pause."""

    def __init__(self, session, lun):
        super().__init__(daemon=True)
        self.session, self.lun, self.stopped, self.error = session, lun, False, None

    def run(self):
        try:
            while not self.stopped:
                check(self.session.command(scsi.read16(0, 1), read=BLOCK, lun=self.lun).good, "READ")
        except Exception as error:      # told by finish
            self.error = error

    def finish(self):
        self.stopped = True
        self.join(20)
        check(self.error is None, self.error)


@test
def point_2_what_is_taken_away_names_who_uses_it():
    """A LUN that leaves its target, is removed or gets another store, a target and a portal that go: the step takes away, and names
    initiator, target, LUN and the I/Os of the last second. What nobody uses is drained. It says what becomes of the data."""
    config = one_disk()
    config.luns.update(d1="file:{dir}/d1.img?size=8M", spare="mem:8M")
    config.targets["one"]["luns"] = {0: "d0", 1: "d1"}
    config.target("two", {0: "d1"}, portals=["127.0.0.1:{port}", "127.0.0.1:{port2}"])
    with Changing(config=config.text()) as tarn, tarn.session("one", "busy") as busy, \
            tarn.session("two", "idle", port=tarn.port2):
        api = tarn.api()
        for lun in (0, 1):
            busy.clear_unit_attentions(lun)
        ids = {one["initiator"]: one["id"] for one in api.get("sessions")}

        def plan(change):
            new = copy.deepcopy(config)
            change(new)
            answer = api.good("POST", "plan", dict(text=tarn.filled(new.text()))).json
            check(answer["is_applicable"], answer)
            return {(step["kind"], step["action"], step["name"].split(":")[-1]): step for step in answer["steps"]}

        def losers(step):
            return [(one["initiator"].split("init-")[1], (one.get("target") or ":").split(":")[1], one.get("lun"), one.get("id"))
                    for one in step.get("taken", [])]

        def unmap(new):
            del new.targets["one"]["luns"][1]
        reader = Reader(busy, 1)
        reader.start()
        view = ("view", "remove", "one LUN 1 (d1)")
        step = wait_for(lambda: (found := plan(unmap)[view])["taken"][0]["ios_per_second"] and found, 30, "I/Os are counted")
        equal((step["effect"], losers(step), step.get("sessions_ended")), ("takes-away", [("busy", "one", 1, "d1")], None), "unmap")
        reader.finish()

        def remove(new):
            unmap(new)
            del new.targets["two"], new.luns["d1"]
        steps = plan(remove)
        lun, target = steps["lun", "remove", "d1"], steps["target", "remove", "two"]
        equal((lun["effect"], lun["data"], losers(lun)), ("takes-away", "stays", [("busy", "one", 1, "d1")]), "a LUN that is removed")
        equal((target["effect"], losers(target), target["sessions_ended"]),
              ("takes-away", [("idle", "two", 0, "d1")], [ids[f"{NAME}:init-idle"]]), "a target that is removed")
        step = plan(lambda new: new.targets["two"]["portals"].pop())["portal", "remove", "{port2}".format(port2=tarn.port2)]
        equal((step["effect"], losers(step)), ("takes-away", [("idle", "two", 0, "d1")]), "a portal that is removed")
        step = plan(lambda new: new.luns.update(d1="file:{dir}/other.img?size=8M"))["lun", "change", "d1"]
        equal((step["effect"], step["data"], sorted(losers(step))),
              ("takes-away", "stays", [("busy", "one", 1, "d1"), ("idle", "two", 0, "d1")]), "another store")
        step = plan(lambda new: new.luns.pop("spare"))["lun", "remove", "spare"]
        equal((step["effect"], step["data"], losers(step)), ("drains", "lost", []), "what nobody uses")

        def hide(new):
            new.groups["none"] = ["iqn.2026-11.example:nobody"]
            new.targets["one"]["groups"] = {1: "none"}
        steps = plan(hide)
        taking = [step for step in steps.values() if step["effect"] == "takes-away"]
        equal([losers(step) for step in taking], [[("busy", "one", 1, "d1")]], f"a view that another group has: {steps}")
        step = plan(lambda new: new.luns.update(more="mem:1M"))["lun", "add", "more"]
        equal((step["effect"], losers(step)), ("online", []), "what takes nothing away")


# State of earlier versions.

@test
def a_state_directory_of_46980bd_starts_intact():
    """Reservations, registrations, saved modes, identities, history, secret and tokens are what they were; also when this
    version has saved them, and was killed."""
    fixture = pathlib.Path(__file__).with_name("46980bd")
    expected = json.loads((fixture / "facts.json").read_text())
    tokens = expected.pop("token texts")

    def write(number, lun, target=kept.DISKS):
        with tarn.initiator(number, target) as session:
            return session.command(scsi.write16(0, 1), write=bytes(BLOCK), lun=lun).status
    with kept.Kept(fixture) as tarn:
        seen = kept.facts(tarn)
        equal(sorted(seen), sorted(expected), "the facts")
        for name, before in expected.items():
            equal(seen[name], before, name)
        check("lost" not in tarn.log() and "damaged" not in tarn.log(), tarn.log())
        conflict = scsi.RESERVATION_CONFLICT
        equal([write(number, kept.SHARED) for number in (1, 2, 4)], [scsi.GOOD, scsi.GOOD, conflict], "WRITE to registrants")
        equal((write(3, kept.BOTH, kept.OTHER), write(1, kept.BOTH)), (scsi.GOOD, conflict), "WRITE to a holder alone")
        equal(write(4, kept.UNKEPT), scsi.GOOD, "WRITE where nothing was kept")
        tarn.initiator(5, kept.LOCKED, chap=dict(name=kept.USER, secret=kept.SECRET)).close()
        try:
            tarn.initiator(5, kept.LOCKED, chap=dict(name=kept.USER, secret=kept.SECRET + "x")).close()
            check(False, "a wrong secret is let in")
        except iscsi.LoginError:
            pass
        statuses = {role: [tarn.remote(token).ask(method, "tokens").status for method in ("GET", "POST")]
                    for role, token in {**tokens, "nobody": "tarn_" + "0" * 64}.items()}
        equal(statuses, {"admin": [200, 415], "viewer": [403, 403], "nobody": [401, 401]}, "what the tokens may")
        api = tarn.api()
        equal(api.post("config/rollback", {"revision": 4})["revision"], 6, "the revision of a rollback")
        check("more" in [lun["spec"]["id"] for lun in api.get("luns")], "the rollback has not brought the LUN back")
        api.post("config/rollback", {"revision": 5})
        with tarn.initiator(5) as session:
            kept.reserve_out(session, kept.SHARED, kept.REGISTER, new_key=0x99)
            kept.reserve_out(session, kept.SHARED, kept.REGISTER, key=0x99)
        tarn.kill()
        tarn.start()
        for name, now in kept.facts(tarn).items():
            if "LUN" in name:
                equal(now, expected[name], f"{name}, saved by this version")


# Further tests, in the order of the file.
import live  # noqa: E402,F401
import refused  # noqa: E402,F401

if __name__ == "__main__":
    harness.main()
