"""One unit, one session, one core: what each may take from the others."""

# B4: changes of the configuration.

import threading  # noqa: E402

import faultfs  # noqa: E402
import harness  # noqa: E402
import iscsi  # noqa: E402
import scsi  # noqa: E402
from harness import check, equal, test  # noqa: E402
from tarn import IQN, Tarn  # noqa: E402

MEMORY_LUN = """[[lun]]
id = "ID"
store = "mem:8M"
"""
FILE_LUN = """[[lun]]
id = "ID"
store = "file:PATH"
"""


class FrozenFs(faultfs.FaultFs):
    """Answers no look at its file and no attempt to open it while it is frozen, as a network file system whose server is
    gone."""

    LOOKS = (faultfs.LOOKUP, faultfs.GETATTR, faultfs.OPEN, faultfs.STATFS)

    def __init__(self, size):
        super().__init__(size)
        self.frozen, self.kept = False, []

    def _take(self, opcode, unique, node, body):
        if opcode == faultfs.INTERRUPT:
            super()._take(opcode, unique, node, body)
            return
        with self._lock:
            if self.frozen and opcode in self.LOOKS:
                self.kept.append((opcode, unique, node, body))
                return
        super()._take(opcode, unique, node, body)

    def release(self):
        with self._lock:
            self.frozen = False
            kept, self.kept = self.kept, []
        for request in kept:
            self._serve(*request)
        super().release()


def changed(lun_texts):
    """A document with these LUNs, as LUN 0, 1, ..."""
    units = "".join(text.replace("ID", name) for name, text in lun_texts)
    luns = ", ".join(f'{{ lun = {n}, id = "{name}" }}' for n, (name, _) in enumerate(lun_texts))
    return f'{units}[[target]]\nname = "{IQN}"\nportals = ["127.0.0.1:{{port}}"]\nluns = [{luns}]\n'


def put(tarn, text, limit_s=50):
    text = text.replace("{port}", str(tarn.port))
    return tarn.api(timeout_s=limit_s).ask("PUT", "config", {"text": text})


@test
def a_change_that_meets_a_hung_file_system_fails_and_holds_up_no_other():
    """B4: a change whose new file does not answer is refused at its deadline and undone; the file is not asked again while it
    hangs; a change whose asker gives up before it begins is not made; other changes are."""
    base = [("m0", MEMORY_LUN)]
    with FrozenFs(8 << 20) as fs, Tarn(config=changed(base)) as tarn:
        fs.frozen = True
        hung = [*base, ("f", FILE_LUN.replace("PATH", str(fs.path)))]
        answers = []
        asker = threading.Thread(target=lambda: answers.append(put(tarn, changed(hung))), daemon=True)
        asker.start()
        harness.wait_for(lambda: fs.kept, 20, "the change is at the file")
        try:
            put(tarn, changed([*base, ("later", MEMORY_LUN)]), limit_s=1)
        except OSError:
            pass        # it gives up
        else:
            raise harness.Failure("a change did not wait for the one before it")
        asker.join(50)
        check(answers, "the change on the hung file system has no answer")
        check(answers[0].status >= 400, f"{answers[0]}")
        again = put(tarn, changed(hung))
        check(again.status >= 400 and "not asked again" in again.json["detail"], f"{again}")
        equal(put(tarn, changed([*base, ("m1", MEMORY_LUN)])).status, 200, "a change of another lun")
        fs.release()
        equal([one["author"] for one in tarn.api().get("config/history")], ["uid 0", "start"], "the history")
        with iscsi.Session(tarn.port, IQN, timeout_s=10) as session:
            session.clear_unit_attentions()
            check(session.command(scsi.test_unit_ready()).good, "the disk that is not concerned")


@test
def a_lun_whose_file_system_hangs_is_removed_and_others_change():
    """B4: while the file system of a served LUN does not answer, other LUNs are added, and the LUN itself is removed."""
    base = [("m0", MEMORY_LUN)]
    with FrozenFs(8 << 20) as fs:
        served = [*base, ("f", FILE_LUN.replace("PATH", str(fs.path)))]
        with Tarn(config=changed(served)) as tarn:
            fs.frozen = True
            more = [*served, ("m1", MEMORY_LUN)]
            answer = put(tarn, changed(more))
            equal(answer.status, 200, f"a change of another lun: {answer}")
            answer = put(tarn, changed([*base, ("m1", MEMORY_LUN)]))
            equal(answer.status, 200, f"the removal: {answer}")
            equal(tarn.api().get("config")["revision"], 3, "the revision")
            fs.release()
