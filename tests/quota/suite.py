#!/usr/bin/env python3
"""Quotas: disks are no larger together than is promised, take no more than is allowed, and go on where they have space.

    suite.py [--list] [PATTERN...]
"""
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
import iscsi
import scsi
from faultfs import FaultFs
from harness import check, equal, test, wait_for
from tarn import IQN, Tarn, free_port, run, target_section

MIB = 1 << 20
BLOCK = 512
CHUNK = 256 << 10
# Longer than two looks.
LOOK_S = 15
SOFT, NO_SPACE = (0x38, 0x07), (0x27, 0x07)


def lun(id, store, owner=None):
    return f'[[lun]]\nid = "{id}"\nstore = "{store}"\n' + (f'owner = "{owner}"\n' if owner else "")


def quota(of, **limits):
    lines = [f'{key} = {value if isinstance(value, int) else chr(34) + value + chr(34)}' for key, value in {**of, **limits}.items()]
    return "[[quota]]\n" + "\n".join(lines) + "\n"


ALICE = {"owner": "alice"}


def findings(tarn):
    return {found["code"] for found in tarn.api().get("status")["findings"] if found["code"].startswith("quota")}


def events(tarn):
    kinds = [event["kind"] for event in tarn.api().get("events?after=0&most=1000")]
    return [kind for kind in kinds if kind.startswith("quota")]


def write(session, at, size=CHUNK, lun=0, byte=b"\xa5"):
    return session.command(scsi.write16(at // BLOCK, size // BLOCK), write=byte * size, lun=lun)


def settled(command):
    """What a command gives when it gets no unit attention any more."""
    while (outcome := command()).sense.key == scsi.UNIT_ATTENTION:
        pass
    return outcome


def good(outcome, what):
    check(outcome.good, f"{what}: {outcome}")
    return outcome


def fill(session, start, end, lun=0):
    for at in range(start, end, CHUNK):
        good(write(session, at, lun=lun), f"WRITE at {at}")


def no_space(outcome, what):
    equal((outcome.status, outcome.sense.key, outcome.sense.code), (scsi.CHECK_CONDITION, scsi.DATA_PROTECT, NO_SPACE), what)


def unmap(session, at, size, lun=0):
    parameters = scsi.unmap_parameters((at // BLOCK, size // BLOCK))
    return session.command(scsi.unmap(len(parameters)), write=parameters, lun=lun)


@test
def more_than_is_promised_is_refused():
    """Sizes beyond `provisioned`: a start ends with exit code 2 and the place of the quota; a plan and a change are refused, also
    where only the file has the size; another owner is not concerned."""
    text = lun("a", "{dir}/a.img?size=8M", "alice") + quota(ALICE, provisioned="16M") + target_section("a")
    with Tarn(config=text) as tarn:
        def refused(answer):
            check(not answer["is_applicable"], answer)
            reasons = " ".join(step.get("reason") or "" for step in answer["steps"])
            check("owner alice" in reasons and "16777216" in reasons, reasons)
        api = tarn.api()
        big = {"id": "b", "store": f"{tarn.dir}/b.img?size=9M", "owner": "alice"}
        refused(api.good("PUT", "luns/b?plan=true", big).json)
        check(api.ask("PUT", "luns/b", big).status >= 400, "a change beyond the quota is made")
        refused(api.good("POST", "luns/a/resize?plan=true", {"size_bytes": 17 * MIB}).json)
        (tarn.dir / "there.img").write_bytes(b"")
        os.truncate(tarn.dir / "there.img", 9 * MIB)
        answer = api.ask("PUT", "luns/b", {"id": "b", "store": f"{tarn.dir}/there.img", "owner": "alice"})
        check(answer.status >= 400 and "owner alice" in str(answer.json), str(answer.json))
        equal([one["spec"]["id"] for one in api.get("luns")], ["a"], "units")
        api.good("PUT", "luns/b", {**big, "owner": "bob"})
        refused(api.good("POST", "config/edits?plan=true", {"edits": [{"set": {"lun": {"id": "b", "owner": "alice"}}}]}).json)
        api.good("POST", "luns/a/resize", {"size_bytes": 16 * MIB})
        file = tarn.dir / "other.toml"
        file.write_text('[server]\nstate = "other"\n[admin]\nsocket = "other.sock"\n' + lun("c", "c.img?size=16M", "alice")
                        + quota(ALICE, provisioned="15M") + target_section("c").replace("{port}", str(free_port())))
        done = run("serve", "--config", file)
        equal(done.returncode, 2, done.stderr)
        check("other.toml:" in done.stderr and "raise the quota" in done.stderr, done.stderr)


@test
def disks_that_have_grown_are_served():
    """Beyond `provisioned`, by a file that has grown while Tarn was stopped: it starts, and says so. Changes that make the disks no
    larger are made, others not, and neither is a lower limit; a larger one ends the finding."""
    text = lun("a", "{dir}/a.img?size=8M", "alice") + lun("b", "{dir}/b.img?size=1M", "alice") + quota(ALICE, provisioned="16M") \
        + target_section("a", "b")
    with Tarn(config=text) as tarn:
        tarn.kill()
        os.truncate(tarn.dir / "a.img", 20 * MIB)
        tarn.start()
        wait_for(lambda: findings(tarn) == {"quota-exceeded"}, 20, "the finding", 0.2)
        api = tarn.api()
        api.good("PUT", "luns/d", {"id": "d", "store": f"{tarn.dir}/d.img?size=1M", "owner": "bob"})
        answer = api.ask("PUT", "luns/c", {"id": "c", "store": f"{tarn.dir}/c.img?size=1M", "owner": "alice"})
        check(answer.status >= 400 and "owner alice" in str(answer.json), str(answer.json))
        text = api.get("config")["text"]
        answer = api.ask("PUT", "config", {"text": text.replace('"16M"', '"15M"')})
        check(answer.status >= 400 and "owner alice" in str(answer.json), str(answer.json))
        api.good("PUT", "config", {"text": text.replace('"16M"', '"32M"')})
        wait_for(lambda: not findings(tarn), 20, "the end of the finding", 0.2)


@test
def a_log_device_counts_where_it_lies():
    """The log of a disk is part of what its owner and a pool have, also where the path has dots; the data elsewhere is not."""
    text = lun("a", "{dir}/a.img?size=8M", "alice") + target_section("a") + quota(ALICE, provisioned="40M") \
        + quota({"pool": "{dir}/fast"}, provisioned="8M")
    with Tarn(config=text) as tarn:
        (tarn.dir / "fast").mkdir()
        def refused(path, size, by):
            new = {"id": "b", "store": f"{tarn.dir}/b.img?size=8M", "owner": "alice", "log": f"file:{path}?size={size}"}
            answer = tarn.api().good("PUT", "luns/b?plan=true", new).json
            reasons = " ".join(step.get("reason") or "" for step in answer["steps"])
            check(not answer["is_applicable"] and by in reasons, reasons)
        refused(tarn.dir / "b.log", "32M", "owner alice")
        refused(tarn.dir / "fast/b.log", "16M", "pool")
        refused(tarn.dir / "other/../fast/b.log", "16M", "pool")


@test(limit_s=120)
def what_disks_take_is_limited():
    """Two thin disks of one owner: at `soft` a unit attention, a finding and an event; at `used` blocks with space are written
    again, others end with 27h/07h; the disk of another owner goes on; UNMAP gives space back."""
    text = (lun("a", "{dir}/a.img?size=32M", "alice") + lun("b", "{dir}/b.img?size=32M", "alice") + lun("c", "{dir}/c.img?size=32M")
            + quota(ALICE, used="8M", soft=50) + target_section("a", "b", "c"))
    with Tarn(config=text) as tarn, iscsi.Session(tarn.port, IQN) as session:
        for number in range(3):
            session.clear_unit_attentions(number)
        fill(session, 0, 4 * MIB)
        fill(session, 0, MIB, lun=1)
        session.command(scsi.synchronize_cache16())
        wait_for(lambda: findings(tarn) == {"quota-soft"}, LOOK_S, "the soft mark")
        for number in range(2):
            outcome = session.command(scsi.test_unit_ready(), lun=number)
            equal((outcome.sense.key, outcome.sense.code), (scsi.UNIT_ATTENTION, SOFT), f"of LUN {number}")
        good(session.command(scsi.test_unit_ready(), lun=2), "TEST UNIT READY of the other owner")
        fill(session, 4 * MIB, 8 * MIB)
        session.command(scsi.synchronize_cache16())
        wait_for(lambda: findings(tarn) == {"quota-full"}, LOOK_S, "the limit")
        equal(events(tarn), ["quota-soft", "quota-full"], "events")
        for number, end in ((0, 8 * MIB), (1, MIB)):
            no_space(write(session, end, lun=number), f"WRITE to new blocks of LUN {number}")
            no_space(write(session, end - CHUNK // 2, lun=number), f"WRITE over the end of LUN {number}")
            good(write(session, end - CHUNK, lun=number, byte=b"\x5a"), f"WRITE again of LUN {number}")
            read = session.command(scsi.read16((end - CHUNK) // BLOCK, CHUNK // BLOCK), read=CHUNK, lun=number)
            equal(read.data, b"\x5a" * CHUNK, f"data of LUN {number}")
        fill(session, 0, 16 * MIB, lun=2)
        good(unmap(session, 0, 5 * MIB), "UNMAP")
        wait_for(lambda: "quota-full" not in findings(tarn), LOOK_S, "space again")
        good(write(session, 20 * MIB), "WRITE to new blocks")


@test(limit_s=60)
def a_disk_that_has_its_space_is_written_at_a_full_quota():
    """With `thin=false` a file has all its space from the start: that others of its owner have taken the rest is nothing to it."""
    text = (lun("a", "{dir}/a.img?size=8M&thin=false", "alice") + lun("b", "{dir}/b.img?size=32M", "alice")
            + quota(ALICE, used="10M") + target_section("a", "b"))
    with Tarn(config=text) as tarn, iscsi.Session(tarn.port, IQN) as session:
        for number in range(2):
            session.clear_unit_attentions(number)
        fill(session, 0, 4 * MIB, lun=1)
        # New blocks each time: those that have space are written again.
        places = iter(range(4 * MIB, 32 * MIB, CHUNK))
        def is_full():
            at = next(places)
            return settled(lambda: write(session, at, lun=1)).sense.key == scsi.DATA_PROTECT
        wait_for(is_full, LOOK_S, "the quota is full", 0.3)
        good(settled(lambda: write(session, 4 * MIB)), "WRITE to the disk that has its space")


@test(limit_s=120)
def a_disk_that_is_added_keeps_to_its_quota_at_once():
    """Where the quota is full, the first command to a new disk finds it so, after a change that adds the disk and after a start; what
    the new disk has counts before anybody sees it."""
    text = lun("a", "{dir}/a.img?size=32M", "alice") + quota(ALICE, used="8M") + target_section("a")
    tarn = Tarn(config=text)
    with tarn.start() and iscsi.Session(tarn.port, IQN) as session:
        session.clear_unit_attentions(0)
        fill(session, 0, 4 * MIB)
        session.command(scsi.synchronize_cache16())
        api = tarn.api()
        wait_for(lambda: (api.get("quotas")[0]["used_bytes"] or 0) >= 4 * MIB, LOOK_S, "what the disk takes")
        # The one that fills the quota is looked at first.
        (tarn.dir / "b.img").write_bytes(os.urandom(5 * MIB))
        os.truncate(tarn.dir / "b.img", 32 * MIB)
        view = lambda id, n: {"add": {"view": {"target": IQN, "id": id, "lun": n}}}
        new = lambda id, n: [{"add": {"lun": {"id": id, "store": f"{tarn.dir}/{id}.img?size=32M", "owner": "alice"}}}, view(id, n)]
        api.post("config/edits", {"edits": new("b", 1)})
        session.clear_unit_attentions(1)
        no_space(settled(lambda: write(session, 16 * MIB, lun=1)), "WRITE to the disk that is new")
        good(write(session, 0, lun=1), "WRITE again")
        wait_for(lambda: findings(tarn) == {"quota-full"}, LOOK_S, "the limit")
        api.post("config/edits", {"edits": new("c", 2)})
        session.clear_unit_attentions(2)
        no_space(settled(lambda: write(session, 0, lun=2)), "WRITE to another new one")
        # As it is now.
        tarn.config = api.get("config")["text"]
    equal(tarn.terminate(), 0, "exit code")
    with tarn.start() and iscsi.Session(tarn.port, IQN) as session:
        for number in range(3):
            session.clear_unit_attentions(number)
        no_space(settled(lambda: write(session, 0, lun=2)), "WRITE after a start")
        no_space(settled(lambda: write(session, 16 * MIB)), "WRITE after a start")
    equal(tarn.terminate(), 0, "exit code")
    tarn.close()


@test(limit_s=120)
def quotas_and_owners_change_while_disks_are_served():
    """A quota comes by a reload, a disk gets another owner, the quota goes: each takes effect within two looks."""
    text = lun("a", "{dir}/a.img?size=32M") + target_section("a")
    with Tarn(config=text) as tarn, iscsi.Session(tarn.port, IQN) as session:
        session.clear_unit_attentions()
        fill(session, 0, 4 * MIB)
        session.command(scsi.synchronize_cache16())
        api = tarn.api()
        api.good("PUT", "config", {"text": api.get("config")["text"] + quota({"pool": str(tarn.dir)}, used="2M")})
        wait_for(lambda: findings(tarn) == {"quota-full"}, LOOK_S, "the quota of the directory")
        session.clear_unit_attentions()
        no_space(write(session, 8 * MIB), "WRITE")
        text = api.get("config")["text"].replace(f'pool = "{tarn.dir}"', 'owner = "bob"')
        api.good("PUT", "config", {"text": text})
        wait_for(lambda: findings(tarn) == set(), LOOK_S, "the end of that quota")
        good(write(session, 8 * MIB), "WRITE")
        plan = api.good("POST", "config/edits?plan=true", {"edits": [{"set": {"lun": {"id": "a", "owner": "bob"}}}]}).json
        equal([step["effect"] for step in plan["steps"]], ["online"], "effects")
        api.post("config/edits", {"edits": [{"set": {"lun": {"id": "a", "owner": "bob"}}}]})
        equal(api.get("luns")[0]["spec"]["owner"], "bob", "the owner")
        wait_for(lambda: findings(tarn) == {"quota-full"}, LOOK_S, "the quota of the owner")
        api.good("PUT", "config", {"text": api.get("config")["text"].replace('used = "2M"', 'used = "2G"')})
        wait_for(lambda: findings(tarn) == set(), LOOK_S, "a larger quota")


@test(limit_s=120)
def a_file_that_hangs_is_the_trouble_of_its_own_disk():
    """A file of the same owner whose size is not answered: what it took last counts, and the other disk is accounted, limited and
    served nevertheless."""
    with FaultFs(32 * MIB) as fs:
        text = (lun("hung", f"{fs.path}", "alice") + lun("a", "{dir}/a.img?size=32M", "alice")
                + quota(ALICE, used="4M") + target_section("hung", "a"))
        with Tarn(config=text) as tarn, iscsi.Session(tarn.port, IQN) as session:
            for number in (0, 1):
                session.clear_unit_attentions(number)
            fill(session, 0, 2 * MIB)
            session.command(scsi.synchronize_cache16())
            usage = lambda: tarn.api().get("quotas")[0]["used_bytes"]
            wait_for(lambda: usage() >= 2 * MIB, LOOK_S, "what the file takes")
            fs.hang = ("getattr", "read", "write")
            wait_for(fs.hung, LOOK_S, "its size is asked for")
            # Together as much as they may, neither of them by itself.
            fill(session, 0, 2 * MIB, lun=1)
            session.command(scsi.synchronize_cache16(), lun=1)
            wait_for(lambda: findings(tarn) == {"quota-full"}, 3 * LOOK_S, "the quota")
            session.clear_unit_attentions(1)
            no_space(write(session, 8 * MIB, lun=1), "WRITE to new blocks")
            good(write(session, 0, lun=1), "WRITE again")
            fs.release()


if __name__ == "__main__":
    harness.main()
