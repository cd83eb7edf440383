#!/usr/bin/env python3
"""Commands that take longer than slow_command_ms: each is told once with what it waited for, and counted; fast ones are not.

Stores are slow by a FUSE file system (tests/lib/faultfs.py), initiators by doing nothing for a while.

    suite.py [--list] [PATTERN...]
"""
import contextlib
import pathlib
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
import iscsi
import scsi
from faultfs import FaultFs
from harness import check, equal, measured, test, wait_for
from tarn import IQN, Tarn, lun_section, target_section

SIZE = 16 << 20
BLOCK = 512
LIMIT_MS = 100
# How long things are held up: more than the limit, and far less than what hangs, which is told at ten times the limit.
HELD_S = 0.3
HELD_US = int(HELD_S * 1e6)
NEVER_REACHED_MS = 600_000
# Of one core, at once; one more is told every ten seconds.
TOLD_AT_ONCE = 8
INITIATOR = "iqn.2026-11.example.tarn:tester"

CONFIG = lun_section("slow", "file:STORE") + lun_section("quick", "mem:16M") + target_section("slow", "quick") + """
[limits]
task_deadline_seconds = 2
shutdown_timeout_seconds = 3
slow_command_ms = MILLISECONDS
"""


class Slow:
    """A Tarn on the slow file system with a session, and what it tells of slow commands."""

    def __init__(self, fs, tarn, session):
        self.fs, self.tarn, self.session, self.api = fs, tarn, session, tarn.api()

    def events(self, kind="slow-command"):
        return [event for event in self.api.get("events?most=1000") if event["kind"] == kind]

    def told(self, task, kind="slow-command"):
        """The event about a command, which comes; there is one."""
        def about():
            return [event for event in self.events(kind) if event["command"]["task_tag"] == task.itt]
        wait_for(about, 30, f"{kind} of task {task.itt:#x}")
        equal(len(about()), 1, "events about it")
        return about()[0]

    def counted(self, lun="slow"):
        """The metric of the unit."""
        text = self.api.good("GET", "/metrics").body.decode()
        counts = re.findall(rf'^tarn_slow_commands_total\{{lun="{lun}",initiator="{INITIATOR}"\}} (\d+)$', text, re.MULTILINE)
        return int(counts[0]) if counts else 0

    def set_limit(self, milliseconds):
        """Changes the limit while Tarn runs. Returns the steps."""
        text = re.sub(r"(?m)^slow_command_ms = .*$", f"slow_command_ms = {milliseconds}", self.api.get("config")["text"])
        return self.api.put("config", {"text": text})["steps"]


@contextlib.contextmanager
def served(limit_ms=LIMIT_MS):
    with FaultFs(SIZE) as fs:
        config = CONFIG.replace("STORE", str(fs.path)).replace("MILLISECONDS", str(limit_ms))
        with Tarn(config=config) as tarn, iscsi.Session(tarn.port, IQN, initiator=INITIATOR, timeout_s=30) as session:
            session.clear_unit_attentions(0)
            session.clear_unit_attentions(1)
            yield Slow(fs, tarn, session)
            fs.heal()
            fs.release()


def read(session, lba=0, **options):
    return session.start(scsi.read16(lba, 8), read=8 * BLOCK, **options)


def good(session, task):
    outcome = session.finish(task)
    check(outcome.good, f"{outcome}")


def waited_for(command, phase):
    """The command waited for this as long as it was held up, and its parts are its whole."""
    phases = {one["phase"]: one["us"] for one in command["phases"]}
    check(phases.get(phase, 0) >= HELD_US * 9 // 10, f"it waited for its {phase}: {command}")
    off = command["took_us"] - sum(phases.values()) - command["core_us"]
    check(abs(off) <= len(phases) + 1, f"{off} us are nowhere: {command}")
    measured(", ".join(f"{name} {us / 1e6:.3f} s" for name, us in phases.items()) + f", core {command['core_us'] / 1e6:.3f} s")


@test
def a_slow_store_is_told_with_the_whole_life_of_the_command():
    """A READ that its store holds up: who, what, where, how long and how it ended, in the event, the log and the metric."""
    with served() as slow:
        slow.fs.delay_s = HELD_S
        task = read(slow.session, lba=2048)
        good(slow.session, task)
        event = slow.told(task)
        command = event["command"]
        waited_for(command, "store")
        equal((event["severity"], event["lun"], event["target"], event["initiator"]), ("warning", "slow", IQN, INITIATOR), "whose")
        equal((command["name"], command["lba"], command["blocks"], command["bytes"]), ("READ (16)", 2048, 8, 4096), "what")
        equal((command["session"], command["outcome"], command["untold"]), (slow.tarn.session_id(slow.session), "GOOD", 0), "how")
        check(command["took_us"] >= HELD_US * 9 // 10, f"it took {command['took_us']} us")
        line = "READ (16), 8 blocks at 2048, 4096 bytes: GOOD after "
        check(line in event["message"], event["message"])
        slow.tarn.await_log("slow command", line)
        equal((slow.counted("slow"), slow.counted("quick")), (1, 0), "metrics")


@test
def slow_data_of_the_initiator_is_told():
    """A WRITE whose data comes late waits for data, not for its store."""
    with served() as slow:
        data = bytes(256 * BLOCK)
        task = slow.session.start(scsi.write16(0, 256), write=data, unsolicited=0, lun=1, answer_r2t=False)
        wait_for(lambda: task.r2ts or slow.session.pump() and task.r2ts, 10, "an R2T")
        time.sleep(HELD_S)
        task.answer_r2t = True
        slow.session.send_data(task, task.r2ts[0])
        good(slow.session, task)
        event = slow.told(task)
        waited_for(event["command"], "data")
        equal((event["lun"], event["command"]["name"], event["command"]["bytes"]), ("quick", "WRITE (16)", len(data)), "what")


@test
def a_command_that_waits_for_the_one_numbered_before_it_is_told():
    """Two commands, the second first: it waits to arrive. The other one was fast and is not told."""
    with served() as slow:
        first, second = slow.session.cmd_sn, slow.session.cmd_sn + 1
        late = read(slow.session, lun=1, cmd_sn=second)
        slow.session.nop(b"it is there")
        time.sleep(HELD_S)
        early = read(slow.session, lun=1, cmd_sn=first)
        slow.session.cmd_sn += 2
        good(slow.session, late)
        good(slow.session, early)
        waited_for(slow.told(late)["command"], "arrival")
        equal([event["command"]["task_tag"] for event in slow.events()], [late.itt], "commands that were told")


@contextlib.contextmanager
def held_read(slow):
    """A READ that its store holds up, for long after what is begun meanwhile; then it is answered."""
    slow.fs.hang = ("read",)
    held = read(slow.session)
    wait_for(slow.fs.hung, 10, "the READ reaches the store")
    yield held
    slow.session.nop(b"it is there")
    time.sleep(HELD_S)
    slow.fs.release()
    good(slow.session, held)


@test
def a_command_that_waits_for_older_ones_is_told():
    """An ORDERED command behind one that its store holds up waits for its order."""
    with served() as slow:
        with held_read(slow) as older:
            ordered = slow.session.start(scsi.test_unit_ready(), attribute=iscsi.ORDERED)
        good(slow.session, ordered)
        waited_for(slow.told(older)["command"], "store")
        command = slow.told(ordered)["command"]
        waited_for(command, "order")
        equal((command["name"], "lba" in command), ("TEST UNIT READY", False), "what")


@test
def a_command_that_waits_for_others_on_its_blocks_is_told():
    """A COMPARE AND WRITE beside a READ of the same block that its store holds up waits for a fence."""
    with served() as slow:
        compare_and_write = bytes([0x89, *bytes(12), 1, 0, 0])
        with held_read(slow):
            atomic = slow.session.start(compare_and_write, write=bytes(2 * BLOCK))
        good(slow.session, atomic)
        command = slow.told(atomic)["command"]
        waited_for(command, "fence")
        equal((command["name"], command["lba"], command["blocks"]), ("COMPARE AND WRITE", 0, 1), "what")


@test
def an_aborted_command_is_told():
    """A READ that hangs and is aborted was slow, though it has no status."""
    with served() as slow:
        slow.fs.hang = ("read",)
        task = read(slow.session)
        wait_for(slow.fs.hung, 10, "the READ reaches the store")
        time.sleep(HELD_S)
        slow.session.tmf(iscsi.ABORT_TASK, task=task)
        slow.fs.release()
        command = slow.told(task)["command"]
        waited_for(command, "store")
        equal(command["outcome"], "aborted", "outcome")


@test
def a_command_that_hangs_is_told_once_and_again_when_it_is_over():
    """A READ without an answer is told at ten times the limit, once, with what it waits for; when it ends, it was slow."""
    with served() as slow:
        slow.fs.hang = ("read",)
        task = read(slow.session, lba=16)
        event = slow.told(task, "command-hangs")
        waited_for(event["command"], "store")
        check("outcome" not in event["command"], f"it has an outcome: {event}")
        check("not answered after" in event["message"], event["message"])
        equal((event["command"]["lba"], slow.counted()), (16, 0), "its LBA, and the metric while it is not over")
        time.sleep(2.5)                 # some rounds of those who look
        slow.told(task, "command-hangs")
        slow.fs.release()
        good(slow.session, task)
        waited_for(slow.told(task)["command"], "store")
        equal(slow.counted(), 1, "metric")


@test
def a_network_that_takes_no_answers_is_told():
    """An initiator that does not receive: the send is slow, and it is told whose."""
    with served() as slow:
        tasks = [slow.session.start(scsi.read16(0, 512), read=512 * BLOCK, lun=1) for _ in range(64)]
        time.sleep(HELD_S)
        for task in tasks:
            good(slow.session, task)
        event = wait_for(lambda: slow.events("slow-send"), 30, "slow-send")[0]
        equal((event["initiator"], event["target"]), (INITIATOR, IQN), "whose")
        check("bytes of answers" in event["message"], event["message"])
        measured(event["message"])


@test
def fast_commands_are_not_told_and_the_limit_changes_at_once():
    """Under the limit nothing is told; a lower one is in force when the change is answered, for commands under way too; 0
    is never."""
    with served(NEVER_REACHED_MS) as slow:
        slow.fs.delay_s = HELD_S
        for n in range(3):
            good(slow.session, read(slow.session, n * 8))
        good(slow.session, read(slow.session, lun=1))
        equal((slow.events(), slow.counted()), ([], 0), "what is told below the limit")
        slow.fs.hang = ("read",)
        under_way = read(slow.session)
        wait_for(slow.fs.hung, 10, "the READ reaches the store")
        steps = slow.set_limit(LIMIT_MS)
        equal([(step["name"], step["effect"]) for step in steps], [("slow_command_ms", "online")], "steps")
        time.sleep(HELD_S)
        slow.fs.release()
        good(slow.session, under_way)
        slow.told(under_way)
        slow.set_limit(0)
        good(slow.session, read(slow.session))
        equal((len(slow.events()), slow.counted()), (1, 1), "what was told in all")


@test
def very_many_are_counted_and_some_are_told():
    """Of 32 slow commands at once eight are told, all are counted, and the next that is told says how many were not."""
    with served() as slow:
        slow.fs.delay_s = HELD_S
        for task in [read(slow.session, n * 8) for n in range(32)]:
            good(slow.session, task)
        equal(slow.counted(), 32, "metric")
        listed = slow.events()
        check(TOLD_AT_ONCE <= len(listed) < 32, f"{len(listed)} were listed")
        untold = 32 - len(listed)

        def one_more():
            good(slow.session, read(slow.session))
            return [event["command"]["untold"] for event in slow.events()[len(listed):]]
        later = wait_for(one_more, 30, "one more is told")[0]
        check(later >= untold, f"{later} were not told, it says; {untold} at least were not")
        check(f"{later} more were slow and are not listed" in slow.events()[len(listed)]["message"], "the message does not say so")


if __name__ == "__main__":
    harness.main()
