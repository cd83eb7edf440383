"""Changes of the configuration: what one takes away is gone with its answer, and none undoes or holds up another."""

import re
import signal
import threading
import time

import faultfs
import harness
import iscsi
import scsi
from bounds import FILE_LUN, MEMORY_LUN, FrozenFs, changed, put
from harness import Failure, check, equal, test, wait_for
from tarn import IQN, Tarn, lun_section, target_section

MIB = 1 << 20
ALICE = dict(name="alice", secret="alice-secret-of-16")


def readonly(document):
    return document.replace('id = "m0" }', 'id = "m0", readonly = true }')


@test
def a_reload_takes_back_no_change():
    """A reload (SIGHUP) that comes while a change is being made applies the file as that change leaves it."""
    base = [("m0", MEMORY_LUN)]
    with FrozenFs(8 * MIB) as fs, Tarn(config=changed(base)) as tarn:
        fs.frozen = True
        more = [*base, ("f", FILE_LUN.replace("PATH", str(fs.path)))]
        answers = []
        asker = threading.Thread(target=lambda: answers.append(put(tarn, changed(more))), daemon=True)
        asker.start()
        wait_for(lambda: fs.kept, 20, "the change is at its file")
        tarn.process.send_signal(signal.SIGHUP)
        time.sleep(1)       # the reload begins, and finds the change under way
        fs.release()
        asker.join(50)
        check(answers and answers[0].status == 200, f"the change: {answers}")
        wait_for(lambda: "configuration applied" in tarn.log(), 20, "the reload is over")
        found = tarn.api().get("config")
        equal(found["revision"], 2, "the revision")
        check('id = "f"' in found["text"], f"the change was answered and is undone:\n{found['text']}")
        check('id = "f"' in (tarn.dir / "tarn.toml").read_text(), "it is not in the file")


@test
def a_right_to_write_that_is_taken_is_gone_with_the_answer():
    """A view becomes read-only: a WRITE whose data comes after the answer of the change is refused, and changes nothing."""
    writable = changed([("m0", MEMORY_LUN)])
    with Tarn(config=writable) as tarn, iscsi.Session(tarn.port, IQN, keys={"InitialR2T": "Yes", "ImmediateData": "No"}) as session:
        session.clear_unit_attentions()
        data = b"\xa5" * 64 * 1024
        task = session.start(scsi.write10(0, 128), write=data, answer_r2t=False)
        wait_for(lambda: session.pump(session.connection, 0.2) or task.r2ts, 10, "the write is asked for its data")
        answer = put(tarn, readonly(writable))
        equal(answer.status, 200, f"the change: {answer}")
        check("unsettled" not in answer.json, f"it waits for data of an initiator: {answer}")
        while task.r2ts:
            session.send_data(task, task.r2ts.pop(0))
        outcome = session.finish(task)
        equal((outcome.status, outcome.sense.key), (scsi.CHECK_CONDITION, 7), f"the late write: {outcome}")
        session.clear_unit_attentions()
        found = session.command(scsi.read10(0, 128), read=len(data)).data
        check(not any(found), "the late write is on the medium")


@test
def a_write_in_the_store_ends_before_its_right_is_gone():
    """The same with a write that the store has: the change is answered when it has ended."""
    with faultfs.FaultFs(8 * MIB) as fs:
        document = changed([("m0", FILE_LUN.replace("PATH", str(fs.path)))])
        with Tarn(config=document) as tarn, iscsi.Session(tarn.port, IQN, timeout_s=30) as session:
            session.clear_unit_attentions()
            fs.hang = ("write",)
            task = session.start(scsi.write10(0, 1), write=b"\x5a" * 512)
            wait_for(lambda: fs.hung, 20, "the write hangs")
            answers = []
            asker = threading.Thread(target=lambda: answers.append(put(tarn, readonly(document))), daemon=True)
            asker.start()
            wait_for(lambda: tarn.api().get("config")["revision"] == 2, 20, "the change is in force")
            time.sleep(0.5)
            check(not answers, f"the change is answered while the write may still land: {answers}")
            fs.release()
            asker.join(30)
            check(answers and answers[0].status == 200, f"the change: {answers}")
            check(session.finish(task).status in (scsi.GOOD, scsi.CHECK_CONDITION), "the write has no outcome")


@test
def whoever_ends_a_session_that_hangs_holds_up_no_change():
    """An operator ends a session with a command that hangs; a change is made meanwhile."""
    with faultfs.FaultFs(8 * MIB) as fs:
        base = [("m0", MEMORY_LUN), ("f", FILE_LUN.replace("PATH", str(fs.path)))]
        with Tarn(config=changed(base) + "[limits]\ntask_deadline_seconds = 30\n", check_exit=False) as tarn, \
                iscsi.Session(tarn.port, IQN, timeout_s=30) as session:
            session.clear_unit_attentions(1)
            fs.hang = ("read",)
            session.start(scsi.read10(0, 1), lun=1, read=512)
            wait_for(lambda: fs.hung, 20, "the read hangs")
            (one,) = tarn.api().get("sessions")
            answers = []

            def end():
                answers.append(tarn.api(timeout_s=60).ask("DELETE", f"sessions/{one['id']}"))
            asker = threading.Thread(target=end, daemon=True)
            asker.start()
            wait_for(lambda: "session ends: an administrator ended it" in tarn.log(), 20, "the session begins to end")
            more = changed([*base, ("m1", MEMORY_LUN)]) + "[limits]\ntask_deadline_seconds = 30\n"
            answer = put(tarn, more, limit_s=10)
            equal(answer.status, 200, f"a change meanwhile: {answer}")
            check("unsettled" not in answer.json, f"the change waits for the session that another one ends: {answer}")
            check(not answers or answers[0].status == 503, f"the end of the session: {answers}")
            fs.release()
            asker.join(60)
            check(answers, "whoever ended the session has no answer")


@test
def a_store_that_hangs_costs_no_other_its_last_flush():
    """At SIGTERM, a store with unflushed writes is flushed although a command of another one hangs."""
    with faultfs.FaultFs(8 * MIB) as hung, faultfs.FaultFs(8 * MIB) as healthy:
        luns = [("f", FILE_LUN.replace("PATH", str(hung.path))), ("g", FILE_LUN.replace("PATH", str(healthy.path)))]
        with Tarn(config=changed(luns), check_exit=False) as tarn, iscsi.Session(tarn.port, IQN, timeout_s=30) as session:
            for lun in range(2):
                session.clear_unit_attentions(lun)
            check(session.command(scsi.write10(0, 1), lun=1, write=bytes(512)).good, "the write")
            hung.hang = ("read", "fsync")
            session.start(scsi.read10(0, 1), lun=0, read=512)
            wait_for(lambda: hung.hung, 20, "the read hangs")
            before = healthy.counts["fsync"]
            tarn.terminate(60)
            check(healthy.counts["fsync"] > before, "the healthy store was not flushed")
            line = [line for line in tarn.log().splitlines() if "the last flush" in line]
            check(not [one for one in line if "unit=g" in one or " g " in one or ", g" in one], f"it is named all the same: {line}")
            hung.release()


@test
def a_user_who_is_removed_discovers_nothing():
    """A discovery session of a user who is taken out of `discovery_auth` ends, and a login half done is refused."""
    head = '[server]\ndiscovery_auth = ["alice"]\n[[user]]\nname = "alice"\nsecret_file = "{dir}/alice"\n'
    document = head + changed([("m0", MEMORY_LUN)])
    bob = '[[user]]\nname = "bob"\nsecret_file = "{dir}/bob"\n'
    tarn = Tarn(config=document)
    tarn.secret("alice", ALICE["secret"])
    tarn.secret("bob", "bob-secret-of-16-b")
    with tarn:
        text = (document.replace('["alice"]', '["bob"]') + bob).replace("{dir}", str(tarn.dir))
        with iscsi.Session(tarn.port, chap=ALICE, timeout_s=10) as session:
            check(session.text({"SendTargets": "All"}), "alice discovers")
            equal(put(tarn, text).status, 200, "alice is taken out")
            try:
                session.text({"SendTargets": "All"})
            except (OSError, iscsi.Closed, iscsi.ProtocolError):
                pass        # it has ended
            else:
                raise Failure("a user who may not discover any more still does")


def opens(name, change):
    def run():
        """A session of one command at a time, whose command hangs, is told when it may send another one: nothing else is sent."""
        with faultfs.FaultFs(8 * MIB) as fs:
            text = f'[[lun]]\nid = "slow"\nstore = "file:{fs.path}"\n' + lun_section("fast", "mem:4M") + \
                target_section("slow", "fast") + "[limits]\nqueue_depth = 1\nnop_interval_seconds = 0\ntask_deadline_seconds = 2\n"
            with Tarn(config=text, check_exit=False) as tarn, iscsi.Session(tarn.port, IQN) as session:
                for lun in (0, 1):
                    session.clear_unit_attentions(lun)
                fs.hang = ("write",)
                session.start(scsi.write16(0, 1), write=bytes(512))
                wait_for(lambda: fs.hung() == 1, 20, "the WRITE is in the store")
                equal(session.max_cmd_sn - session.cmd_sn + 1, 0, "the window before")
                written = tarn.api().get("config")["text"]
                tarn.api().put("config", {"text": change(written)})
                while session.max_cmd_sn - session.cmd_sn + 1 <= 0:
                    session.pump(timeout_s=20)
                session.clear_unit_attentions(1)
                check(session.command(scsi.read16(0, 1), read=512, lun=1).good, "a READ of the other unit")
                fs.release()
    harness.add(f"a_window_that_{name}_is_said", run)


opens("a_higher_queue_depth_opens", lambda text: text.replace("queue_depth = 1\n", "queue_depth = 64\n"))
opens("a_removed_unit_opens", lambda text: re.sub(r'\{[^{}]*"slow"[^{}]*\}, *', "", text))
