"""The state directory, memory limits, the start."""
import contextlib
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import threading
import time

import admin
import cgroup
import iscsi
import scsi
import tarn as program
from harness import check, equal, measured, skip, test, wait_for
from tarn import BINARY, IQN, Tarn, run

KEY = 0x1122334455667788

ONE_FILE = f"""[[lun]]
id = "ID"
store = "file:{{dir}}/disk.img?size=8M"
[[target]]
name = "{IQN}"
portals = ["127.0.0.1:{{port}}"]
luns = [{{ lun = 0, id = "ID" }}]
"""


def session_of(tarn, initiator="alice"):
    session = iscsi.Session(tarn.port, IQN, initiator=f"iqn.2026-11.example:{initiator}", timeout_s=15)
    session.clear_unit_attentions()
    return session


def reserve_for_good(session):
    """Registers KEY with APTPL and takes a Write Exclusive reservation."""
    for action, key, new, flags in [(0, 0, KEY, 1), (1, KEY, 0, 0)]:
        cdb = struct.pack(">BBBHIB", 0x5F, action, 0x01 if action else 0, 0, 24, 0)
        answer = session.command(cdb, write=struct.pack(">QQ4xB3x", key, new, flags))
        check(answer.good, f"PERSISTENT RESERVE OUT {action}: {answer}")


def reservation(session):
    """The key that holds the reservation, or None."""
    data = session.command(struct.pack(">BB5xHB", 0x5E, 1, 32, 0), read=32).data
    return struct.unpack(">Q", data[8:16])[0] if data[7] else None


def serial(session):
    data = session.command(scsi.inquiry(0x80, 255), read=255).data
    return data[4:4 + data[3]].decode()


def shown(tarn):
    """What initiators know a disk by."""
    with session_of(tarn, "bob") as session:
        return serial(session), scsi.device_names(session), reservation(session)


class Killed(Tarn):
    """A Tarn that is killed at a moment, and started again with the file as it is then."""

    written = False

    def command(self):
        if self.written:
            self.config, config = None, self.config
            command = super().command()
            self.config = config
            at = command.index("--state")
            return [command[0], "serve", "--config", str(self.dir / "tarn.toml"), *command[at:at + 2]]
        self.written = True
        return super().command()

    def text(self):
        return (self.dir / "tarn.toml").read_text()

    def kill_when_replaced(self, path, act, delay_s=0.0):
        """Runs act() in a thread, and kills the process when the file is another one. Returns whether it became one."""
        def inode():
            try:
                return os.stat(path).st_ino
            except OSError:
                return None

        def quietly():
            try:
                act()
            except OSError:
                pass        # killed meanwhile

        before = inode()
        thread = threading.Thread(target=quietly, daemon=True)
        thread.start()
        end = time.monotonic() + 20
        while inode() == before and time.monotonic() < end and thread.is_alive():
            pass
        time.sleep(delay_s)
        was_replaced = inode() != before
        self.kill()
        thread.join(10)
        return was_replaced


@test
def a_crash_while_a_lun_is_renamed_leaves_the_disk_its_identity_and_its_reservation():
    """E1: killed as the ledger, the history or the configuration file is replaced, and a little later, a disk has its
    serial number, its NAA designator and its APTPL reservation again, under the old id or the new one."""
    with Killed(config=ONE_FILE.replace("ID", "first"), check_exit=False) as tarn:
        with session_of(tarn) as session:
            reserve_for_good(session)
        before = shown(tarn)
        equal(before[2], KEY, "the reservation")
        replaced = 0
        moments = [("tarn.toml", 0), ("state/identities.toml", 0), ("tarn.toml", 0.002), ("tarn.toml", 0)]
        for number, (name, delay_s) in enumerate(moments):
            text = tarn.text()
            new = text.replace('"first"' if '"first"' in text else '"second"', '"second"' if '"first"' in text else '"first"')
            api = tarn.api()
            replaced += tarn.kill_when_replaced(tarn.dir / name, lambda: api.ask("PUT", "config", {"text": new}), delay_s)
            check(tarn.text() in (text, new), "the file is neither the old document nor the new one")
            tarn.start()
            equal(shown(tarn), before, f"after crash {number}, as {name} is replaced")
            equal(len(tarn.api().get("luns")), 1, "LUNs")
        check(replaced >= 3, f"{replaced} changes were reached by the kill")


@test
def a_rename_that_the_ledger_cannot_keep_is_refused():
    """E1: where the ledger cannot be written, a rename is answered with an error, nothing changes, and the disk is the same
    after a restart."""
    with Killed(config=ONE_FILE.replace("ID", "second"), check_exit=False) as tarn:
        tarn.kill()
        # The ledger knows the new id already, from a disk that is gone.
        (tarn.dir / "tarn.toml").write_text(tarn.text().replace('"second"', '"first"'))
        tarn.start()
        before, text = shown(tarn), tarn.text()
        # The temporary file of the ledger cannot be made.
        for name in ("identities.toml.tarn-new", "identities.toml.last.tarn-new"):
            (tarn.dir / "state" / name / "x").mkdir(parents=True)
        answer = tarn.api().ask("PUT", "config", {"text": text.replace('"first"', '"second"')})
        check(answer.status >= 400, f"{answer}")
        equal(tarn.text(), text, "the file")
        check('"first"' in tarn.api().get("config")["text"], "the document that runs")
        equal(shown(tarn), before, "the disk")
        tarn.kill()
        tarn.start()
        equal(shown(tarn), before, "the disk after a restart")


TWO_LUNS = f"""[admin]
listen = ["127.0.0.1:{{port2}}"]
[[lun]]
id = "file"
store = "file:{{dir}}/disk.img?size=8M"
[[lun]]
id = "named"
store = "mem:8M"
serial = "NAMED1"
naa = "5000000000000001"
[[target]]
name = "{IQN}"
portals = ["127.0.0.1:{{port}}"]
luns = [{{ lun = 0, id = "file" }}, {{ lun = 1, id = "named" }}]
"""


def luns_of(session):
    data = session.command(scsi.report_luns(4096), read=4096).data
    return [data[at + 1] for at in range(8, 8 + int.from_bytes(data[:4], "big"), 8)]


def codes(tarn):
    return {finding["code"] for finding in tarn.api().get("findings")}


def event_kinds(tarn):
    return {event["kind"] for event in tarn.api().get("events?most=1000")}


def restart(tarn, change=lambda: None):
    tarn.terminate()
    change()
    tarn.start()


def upkeep(tarn, verb, *arguments):
    return run("state", verb, "--state", tarn.dir / "state", *arguments)


@contextlib.contextmanager
def small_state():
    """A Tarn whose state directory is a file system of its own, with room for little; and what fills it."""
    tarn = Killed(config=TWO_LUNS, check_exit=False)
    state = tarn.dir / "state"
    state.mkdir(mode=0o700)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", state], capture_output=True, check=False).returncode:
        skip("a file system of its own needs root")

    def fill():
        with open(state / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
            while filler.write(bytes(4096)):
                pass

    try:
        tarn.start()
        tarn.api().get("status")        # its administration has made what it needs
        yield tarn, fill
    finally:
        tarn.kill()
        subprocess.run(["umount", "-l", state], check=False)
        tarn.close()


@test
def damaged_identities_make_no_other_disk_of_a_disk():
    """E2: with identities.toml empty, cut or gone, disks are what they were, by the copy that Tarn keeps; without that they are
    not shown, while disks whose identity is configured are. Finding, event, check and restore tell of it and mend it."""
    with Killed(config=TWO_LUNS, check_exit=False) as tarn:
        ledger = tarn.dir / "state/identities.toml"
        copy = tarn.dir / "state/identities.toml.last"
        with session_of(tarn) as session:
            reserve_for_good(session)
        before = shown(tarn)
        restart(tarn)           # by then it says for which unit something was saved
        whole = ledger.read_bytes()
        for damage in (lambda: ledger.write_bytes(b""), lambda: ledger.write_bytes(whole[:len(whole) // 2]), ledger.unlink):
            restart(tarn, damage)
            equal(shown(tarn), before, "the disk")
            check("state-damaged" in codes(tarn), f"findings: {codes(tarn)}")
            check("state-damaged" in event_kinds(tarn), f"events: {event_kinds(tarn)}")
            equal(upkeep(tarn, "check").returncode, 1, "exit code of tarn state check")
        equal(upkeep(tarn, "restore").returncode, 0, "exit code of tarn state restore")
        equal(ledger.read_bytes(), whole, "the ledger")
        restart(tarn)
        check("state-damaged" not in codes(tarn), f"findings: {codes(tarn)}")

        def lose():
            ledger.write_bytes(b"")
            copy.unlink()

        restart(tarn, lose)
        with session_of(tarn) as session:
            equal(luns_of(session), [1], "LUNs with the ledger and its copy gone")
        check({"state-damaged", "lun-withheld"} <= codes(tarn), f"findings: {codes(tarn)}")
        equal(ledger.read_bytes(), b"", "the damaged ledger")
        restart(tarn, lambda: ledger.write_bytes(whole))
        equal(shown(tarn), before, "the disk with the ledger of a backup")


@test
def a_saved_state_that_is_gone_or_of_another_unit_fences_its_unit():
    """E2: a missing units/*/saved, with or without its copy or its directory, or with that of another unit in its place, loses
    no reservation in silence: the unit refuses what it could forbid, and says so."""
    config = ONE_FILE.replace("ID", "ONE").replace("[[target]]", '[[lun]]\nid = "TWO"\nstore = "mem:8M"\n[[target]]', 1)
    config = config.replace(" }]", ' }, { lun = 1, id = "TWO" }]')
    with Killed(config=config) as tarn:
        units = tarn.dir / "state/units"
        with session_of(tarn, "holder") as holder:
            reserve_for_good(holder)
            own = next(units.glob("*/saved"))
        kept = {path: path.read_bytes() for path in units.glob("*/saved*")}

        def gone():
            for path in own.parent.glob("saved*"):
                path.unlink()

        def of_another():
            # With the header of another unit.
            text = kept[own].replace(own.parent.name.encode(), b"naa.3" + b"0" * 15, 1)
            check(text != kept[own], f"the name is in the header: {kept[own][:60]}")
            for path in own.parent.glob("saved*"):
                path.write_bytes(text)
        damages = {"saved": own.unlink, "saved and its copy": gone, "its directory": lambda: shutil.rmtree(own.parent),
                   "all directories": lambda: shutil.rmtree(units), "that of another unit": of_another}
        for what, damage in damages.items():
            restart(tarn, damage)
            with session_of(tarn, "stranger") as stranger:
                outcome = stranger.command(scsi.write16(0, 1), write=bytes(512))
                check(not outcome.good, f"a WRITE when {what} was lost: {outcome}")
            check("reservations-lost" in codes(tarn), f"findings when {what} was lost: {codes(tarn)}")
            equal(upkeep(tarn, "check").returncode, 1, f"exit code of tarn state check when {what} was lost")

            def heal():
                for path, content in kept.items():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
            restart(tarn, heal)
            with session_of(tarn, "stranger") as stranger:
                equal(reservation(stranger), KEY, "the reservation, when the file is back")
        restart(tarn, gone)
        tarn.kill()
        equal(upkeep(tarn, "restore").returncode, 1, "exit code of a restore without a copy")
        equal(upkeep(tarn, "restore", "--discard").returncode, 0, "exit code of a discard")
        tarn.start()
        with session_of(tarn, "stranger") as stranger:
            check(stranger.command(scsi.write16(0, 1), write=bytes(512)).good, "a WRITE when it was given up")


@test
def a_rename_to_the_id_of_a_removed_lun_and_back_leaves_that_its_identity():
    """E1: a LUN is removed, another gets its id and gives it up again; the removed one comes back as the disk that it was."""
    with Killed(config=TWO_LUNS) as tarn:
        api = tarn.api()
        spec = {"id": "old", "store": f"file:{tarn.dir}/old.img?size=1M"}
        api.put("luns/old", spec)
        before = api.get("luns/old")["naa"], api.get("luns/file")["naa"]
        api.delete("luns/old")
        for old, new in (("file", "old"), ("old", "file")):
            equal(api.ask("POST", f"luns/{old}/rename", {"id": new}).status, 200, f"status of the rename to {new}")
            equal(api.get(f"luns/{new}")["naa"], before[1], "NAA of the LUN that is renamed")
            restart(tarn)
            equal(api.get(f"luns/{new}")["naa"], before[1], "its NAA after a restart")
        api.put("luns/old", spec)
        equal((api.get("luns/old")["naa"], api.get("luns/file")["naa"]), before, "NAAs at the end")


@test
def a_truncated_saved_state_fences_its_unit_alone():
    """E2: a cut units/*/saved stops neither the daemon nor other units; the unit refuses what its lost reservation could
    forbid; its copy brings the reservation back."""
    with Killed(config=TWO_LUNS, check_exit=False) as tarn:
        with session_of(tarn) as session:
            reserve_for_good(session)
        saved = next((tarn.dir / "state/units").glob("*/saved"))
        for content in (saved.read_bytes()[:20], saved.read_bytes()[:-1] + b"?"):
            restart(tarn, lambda: saved.write_bytes(content))
            with session_of(tarn, "bob") as session:
                refused = session.command(scsi.read16(0, 1), read=512)
                equal((refused.status, refused.sense.key), (scsi.CHECK_CONDITION, scsi.DATA_PROTECT), "a READ of the unit")
                session.clear_unit_attentions(lun=1)
                check(session.command(scsi.read16(0, 1), read=512, lun=1).good, "the other unit")
            check("reservations-lost" in codes(tarn) & event_kinds(tarn), f"findings: {codes(tarn)}")
        tarn.terminate()
        equal(upkeep(tarn, "restore").returncode, 0, "exit code of tarn state restore")
        tarn.start()
        equal(shown(tarn)[2], KEY, "the reservation")


@test
def a_saved_state_that_was_put_back_under_a_served_unit_is_not_overwritten():
    """E2: units/*/saved of a backup, copied over the file of a unit that is served: changes that must be saved are refused,
    event and doctor name the file; reads, writes and other changes go on; the next start begins with the file of the backup."""
    with Killed(config=ONE_FILE.replace("ID", "ONE")) as tarn:
        with session_of(tarn) as session:
            def register(key, new):
                cdb = struct.pack(">BBBHIB", 0x5F, 0, 0, 0, 24, 0)
                return session.command(cdb, write=struct.pack(">QQ4xB3x", key, new, 1))
            reserve_for_good(session)
            saved = next((tarn.dir / "state/units").glob("*/saved"))
            backup = saved.read_bytes()
            check(register(KEY, 2 * KEY).good, "a change before")
            check("state-conflict" not in codes(tarn), "a finding before")
            saved.write_bytes(backup)
            for _ in range(2):
                refused = register(2 * KEY, 3 * KEY)
                equal((refused.sense.key, refused.sense.code), (scsi.HARDWARE_ERROR, (0x44, 0x00)), "a change that must be saved")
            equal(reservation(session), 2 * KEY, "the reservation in force")
            check(session.command(scsi.write16(0, 1), write=bytes(512)).good, "a WRITE of the holder")
            check(session.command(bytes([0x1B, 1, 0, 0, 0, 0])).good, "a change that is not saved")
        equal(saved.read_bytes(), backup, "the file")
        events = [event["message"] for event in tarn.api().get("events") if event["kind"] == "state-conflict"]
        equal(len(events), 1, "events")
        found = [one["message"] + one["remedy"] for one in tarn.api().get("findings") if one["code"] == "state-conflict"]
        equal(len(found), 1, "findings")
        for text in events + found:
            check(str(saved.relative_to(tarn.dir)) in text and "restart" in text, text)
        restart(tarn)
        check("state-conflict" not in codes(tarn), "a finding after the start")
        equal(shown(tarn)[2], KEY, "the reservation of the backup")


@test
def half_a_file_of_tokens_is_no_file_of_tokens():
    """E2: with tokens.toml cut, no token is good and none is made over it; restored, all are good."""
    with Killed(config=TWO_LUNS, check_exit=False) as tarn:
        tokens = [tarn.api().post("tokens", {"name": name, "role": "admin"})["token"] for name in ("one", "two")]
        path = tarn.dir / "state/tokens.toml"
        whole = path.read_text()
        restart(tarn, lambda: path.write_text(whole[:whole.rindex("[[token]]")]))

        def statuses():
            apis = [admin.Api(address=("127.0.0.1", tarn.port2), token=token) for token in tokens]
            return [api.ask("GET", "status").status for api in apis]

        equal(statuses(), [401, 401], "what the tokens are answered")
        equal(tarn.api().ask("POST", "tokens", {"name": "three", "role": "admin"}).status, 409, "a new token")
        check("administration" in codes(tarn) & event_kinds(tarn), f"findings: {codes(tarn)}")
        restart(tarn, lambda: equal(upkeep(tarn, "restore").returncode, 0, "exit code of tarn state restore"))
        equal(statuses(), [200, 200], "what the tokens are answered after the restore")


@test
def state_files_that_are_no_regular_files_are_damaged():
    """E2: a FIFO, a directory or a very long file in place of a state file is told to be damaged and restored, and hangs neither
    tarn state nor the start."""
    with Killed(config=TWO_LUNS, check_exit=False) as tarn:
        with session_of(tarn) as session:
            reserve_for_good(session)
        before, state = shown(tarn), tarn.dir / "state"
        saved = next((state / "units").glob("*/saved"))

        def grow(path):
            with open(path, "wb") as file:
                file.truncate((64 << 20) + 1)

        for path in (state / "identities.toml", saved):
            for put, problem in ((os.mkfifo, "it is not a regular file"), (os.mkdir, "it is not a regular file"),
                                 (grow, "it is longer than 64 MiB")):
                def damage(path=path, put=put):
                    path.unlink()
                    put(path)
                restart(tarn, damage)
                told = upkeep(tarn, "check")
                equal(told.returncode, 1, "exit code of tarn state check")
                check(f"{path}: {problem}; its copy is good" in told.stdout, told.stdout)
                tarn.terminate()
                equal(upkeep(tarn, "restore").returncode, 0, "exit code of tarn state restore")
                equal(upkeep(tarn, "check").returncode, 0, "exit code of tarn state check after the restore")
                if (aside := path.with_name(path.name + ".damaged")).is_dir():
                    aside.rmdir()
                tarn.start()
                equal(shown(tarn), before, "the disk")


@test
def a_directory_that_is_no_state_directory_is_not_vouched_for():
    """tarn state refuses a directory that has no file of a state directory, and writes nothing there."""
    with tempfile.TemporaryDirectory() as directory:
        other = pathlib.Path(directory)
        (other / "notes.txt").write_text("mine")
        for verb in ("check", "restore", "prune"):
            refused = run("state", verb, "--state", other)
            equal(refused.returncode, 1, f"exit code of tarn state {verb}")
            for word in (str(other), "is not a state directory", "--config FILE", "--state DIR"):
                check(word in refused.stderr, f"no {word!r} in {refused.stderr}")
            equal([path.name for path in other.iterdir()], ["notes.txt"], f"what is there after tarn state {verb}")


@test
def a_state_directory_of_an_earlier_version_starts_whole():
    """E2: files without length and checksum, as 46980bd wrote them, are read, found whole, and get them when they are written."""
    with Killed(config=TWO_LUNS, check_exit=False) as tarn:
        with session_of(tarn) as session:
            reserve_for_good(session)
        tarn.api().post("tokens", {"name": "one", "role": "admin"})
        before, state = shown(tarn), tarn.dir / "state"

        def age():
            for copy in state.rglob("*.last"):
                copy.unlink()
            for path in filter(os.path.isfile, state.rglob("*.toml")):
                path.write_text(re.sub(r"\A# sum = .*\n", "", path.read_text()))
            for path in state.glob("units/*/saved"):
                _, _, content = path.read_bytes().split(b"\n", 2)
                path.write_bytes(b"tarn-state 1 %d\n" % len(content) + content)

        restart(tarn, age)
        equal(shown(tarn), before, "the disk")
        equal([token["name"] for token in tarn.api().get("tokens")], ["one"], "the tokens")
        check(not codes(tarn) & {"state-damaged", "reservations-lost", "administration"}, f"findings: {codes(tarn)}")
        equal(upkeep(tarn, "check").returncode, 0, "exit code of tarn state check")
        tarn.api().post("tokens", {"name": "two", "role": "admin"})
        check((state / "tokens.toml").read_text().startswith("# sum = "), "the file that was written has no checksum")


@test
def a_full_state_directory_and_a_broken_certificate_keep_no_disk_from_starting():
    """E4: with no room for the record of an edited file, and with its own certificate cut, Tarn serves its disks, and the
    findings say what is missing."""
    with small_state() as (tarn, fill):
        before = shown(tarn)

        def edit():
            fill()
            (tarn.dir / "tarn.toml").write_text(tarn.text() + "# edited\n")

        restart(tarn, edit)
        equal(shown(tarn), before, "the disk")
        check("state-unwritable" in codes(tarn) & event_kinds(tarn), f"findings: {codes(tarn)}")

        def cut():
            (tarn.dir / "state/filler").unlink()
            certificate = tarn.dir / "state/admin-cert.pem"
            certificate.write_bytes(certificate.read_bytes()[:100])

        restart(tarn, cut)
        equal(shown(tarn), before, "the disk")
        check("administration" in codes(tarn) & event_kinds(tarn), f"findings: {codes(tarn)}")


def pr_out(session, action, key, new):
    """PERSISTENT RESERVE OUT with APTPL."""
    cdb = struct.pack(">BBBHIB", 0x5F, action, 0, 0, 24, 0)
    return session.command(cdb, write=struct.pack(">QQ4xB3x", key, new, 1))


@test(limit_s=300)
def what_a_full_state_directory_cannot_keep_is_refused_with_place_and_remedy():
    """E5: without bytes or without files left, reservations, tokens and changes are refused and nothing of them is there; the log,
    the answers and a finding name the place and the remedy; disks are served, over kill -9 too; with room all of it works."""
    for nothing_left in ("bytes", "files"):
        with small_state() as (tarn, fill):
            state = tarn.dir / "state"
            with session_of(tarn) as session:
                reserve_for_good(session)
                if nothing_left == "bytes":
                    fill()
                    free = (state / "filler").unlink
                else:
                    system = os.statvfs(state)
                    used = system.f_files - system.f_ffree
                    subprocess.run(["mount", "-o", f"remount,nr_inodes={used}", state], check=True)
                    free = lambda: subprocess.run(["mount", "-o", "remount,nr_inodes=10000", state], check=True)
                outcome = pr_out(session, 6, KEY, KEY + 1)
                equal((outcome.good, outcome.sense.key), (False, 4), f"another key: {outcome}")
                equal(reservation(session), KEY, "the holder")
                text = tarn.text()
                for method, path, body in [("POST", "tokens", {"name": "one", "role": "admin"}),
                                           ("PUT", "luns/new", {"id": "new", "store": "mem:1M"})]:
                    answer = tarn.api().ask(method, path, body)
                    equal((answer.status, answer.kind), (507, "storage-full"), f"{method} {path}: {answer}")
                    said = answer.json["detail"]
                    check(str(state) in said and "make room there" in said, said)
                equal(tarn.text(), text, "the configuration file")
                check(session.command(scsi.write16(0, 8), write=bytes(4096)).good, "a WRITE")
            tarn.await_log("state of a unit is not saved", f"{state}/units", "make room there")
            found = wait_for(lambda: [one for one in tarn.api().get("findings") if one["code"] == "state-unwritable"], 60, "finding")
            equal((found[0]["subject"], found[0]["remedy"]), (str(state), "make room there"), "the finding")
            tarn.kill()
            tarn.start()
            with session_of(tarn) as session:
                equal(reservation(session), KEY, "the holder after a crash")
                free()
                check(pr_out(session, 6, KEY, KEY + 1).good, "another key, with room")
            tarn.api().put("luns/new", {"id": "new", "store": "mem:1M"})
            wait_for(lambda: "state-unwritable" not in codes(tarn), 60, "the finding ends")
            tarn.kill()
            tarn.start()
            with session_of(tarn, "bob") as session:
                equal(reservation(session), KEY, "the holder at the end")
                keys = session.command(struct.pack(">BB5xHB", 0x5E, 0, 64, 0), read=64).data
                check(struct.pack(">Q", KEY + 1) in keys, "the key that was registered with room")
            equal(len(tarn.api().get("luns")), 3, "LUNs")


@test(limit_s=180)
def a_state_directory_that_is_gone_is_found_while_the_disks_are_served():
    """E5: moved away under a running Tarn: what has to be kept is refused, and a finding says so until it is back."""
    with Tarn(config=ONE_FILE) as tarn:
        state, away = tarn.dir / "state", tarn.dir / "away"
        with session_of(tarn) as session:
            reserve_for_good(session)
            state.rename(away)
            check(not pr_out(session, 6, KEY, KEY + 1).good, "another key")
            found = wait_for(lambda: [one for one in tarn.api().get("findings") if one["code"] == "state-unwritable"], 60, "finding")
            check(found[0]["subject"] == str(state) and "put it back before Tarn ends" in found[0]["remedy"], found)
            check(session.command(scsi.read16(0, 8), read=4096).good, "a READ")
            away.rename(state)
            wait_for(lambda: "state-unwritable" not in codes(tarn), 60, "the finding ends")
            check(pr_out(session, 6, KEY, KEY + 1).good, "another key, with the directory")


@test
def a_full_disk_is_called_that_and_leaves_no_temporary_file():
    """E5: what cannot be kept for want of room is answered with 507, never with 503, and nothing is left over."""
    with small_state() as (tarn, fill):
        fill()
        text = tarn.text()
        for method, path, body in [("POST", "tokens", {"name": "one", "role": "admin"}),
                                   ("PUT", "config", {"text": text + "# more\n" + "# room\n" * 1000})]:
            answer = tarn.api().ask(method, path, body)
            equal((answer.status, answer.kind), (507, "storage-full"), f"{method} {path}: {answer}")
        left = [path.name for path in (tarn.dir / "state").rglob("*") if path.name.endswith(("new", ".tmp"))]
        equal(left, [], "temporary files")
        equal(tarn.text(), text, "the configuration file")


@test
def event_numbers_never_go_back():
    """E5: numbers of events rise over a restart and over a crash, also where an earlier run was ahead of the clock."""
    with Killed(config=TWO_LUNS, check_exit=False) as tarn:
        def newest():
            tarn.api().post("tokens", {"name": "t", "role": "viewer"})
            tarn.api().delete("tokens/t")
            return tarn.api().get("events?most=1")[-1]["number"]

        first = newest()
        tarn.kill()
        ahead = first + 10**9
        directory = next(path for path in (tarn.dir / "state/history").iterdir() if path.is_dir())
        (directory / "events.next").write_text(f"{ahead}\n")
        tarn.start()
        second = newest()
        check(second > ahead, f"{second} after {ahead}")
        tarn.kill()
        tarn.start()
        third = newest()
        check(third > second, f"{third} after {second}")


@test
def luns_that_exchange_their_ids_are_planned_as_what_they_are():
    """E5: two ids that change places in one document are refused by the plan, with the true reason."""
    text = f"""[[lun]]
id = "a"
store = "file:{{dir}}/a.img?size=8M"
[[lun]]
id = "b"
store = "file:{{dir}}/b.img?size=8M"
[[target]]
name = "{IQN}"
portals = ["127.0.0.1:{{port}}"]
luns = [{{ lun = 0, id = "a" }}, {{ lun = 1, id = "b" }}]
"""
    with Tarn(config=text) as tarn:
        now = (tarn.dir / "tarn.toml").read_text()
        swapped = now.replace("a.img", "x.img").replace("b.img", "a.img").replace("x.img", "b.img")
        plan = tarn.api().post("plan", {"text": swapped})
        check(not plan["is_applicable"], f"{plan}")
        check(all("is in use by lun" in step["reason"] for step in plan["steps"]), f"{plan}")
        answer = tarn.api().ask("PUT", "config", {"text": swapped})
        equal((answer.status, answer.kind), (409, "refused"), f"{answer}")


@test
def a_machine_without_proc_is_told_so():
    """E5: without /proc Tarn says that it misses /proc."""
    script = f"mount -t tmpfs none /proc && exec {BINARY} serve --listen 127.0.0.1:0 mem:8M"
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=20, check=False,
                              env={**os.environ, "HOME": home, "XDG_STATE_HOME": home, "TARN_SOCKET": f"{home}/s"})
    if "unshare" in done.stderr or "mount:" in done.stderr:
        skip("a mount of its own needs root")
    check(done.returncode == 2 and "/proc" in done.stderr, f"{done.returncode}: {done.stderr}")


# E3

MIB = 1 << 20
GROUP_MIB = 300


@test
def default_pools_fit_in_a_control_group_and_the_load_does_not_kill_tarn():
    """E3: with the defaults in a control group of 300 MiB, Tarn says that its pools are smaller and survives a load."""
    with cgroup.MemoryGroup(GROUP_MIB * MIB) as group:
        with Tarn("file:{dir}/disk.img?size=256M&cache=direct", arguments=["--cores", "2"], prefix=group.prefix) as served:
            # Each takes its share of a pool and nothing of its answers.
            mutes = [iscsi.Session(served.port, IQN, initiator=f"iqn.2026-11.example.tarn:mute{n}") for n in range(6)]
            for mute in mutes:
                mute.clear_unit_attentions()
                pdus = []
                mute.connection.send = lambda pdu, pdus=pdus: pdus.append(pdu.pack())
                for n in range(100):
                    mute.start(scsi.read16(n * 2048, 2048), read=MIB)
                del mute.connection.send
                mute.connection.send_raw(b"".join(pdus))
            with iscsi.Session(served.port, IQN, timeout_s=20) as honest:
                honest.clear_unit_attentions()
                for n in range(16):
                    check(honest.command(scsi.read16(n * 2048, 2048), read=MIB).good, f"READ {n} beside the load")
            check(served.alive(), "Tarn is alive")
            measured(f"{served.rss_bytes() / MIB:.0f} MiB resident")
            check(served.rss_bytes() < GROUP_MIB * MIB, "resident memory is within the limit")
            served.await_log("instead of 256 MiB", str(group.dir))
            check("note: each core has" in served.out(), f"the banner says it: {served.out()}")
            codes = [finding["code"] for finding in served.api().get("findings")]
            check("little-memory" in codes, f"findings {codes}")
            for mute in mutes:
                mute.close()


@test
def a_memory_disk_that_cannot_fit_is_refused_with_number_and_remedy():
    """E3: `mem:512M` in a control group of 300 MiB is an error of `tarn check` and of the start."""
    with cgroup.MemoryGroup(GROUP_MIB * MIB) as group:
        served = Tarn(config=f'[[lun]]\nid = "a"\nstore = "mem:512M"\n[[target]]\nname = "{IQN}"\n'
                             'portals = ["127.0.0.1:{port}"]\nluns = [{ lun = 0, id = "a" }]\n')
        try:
            command = served.command()
            check_it = [str(program.BINARY), "check", str(served.dir / "tarn.toml")]
            for one in (check_it, command):
                try:
                    done = subprocess.run([*group.prefix, *one], capture_output=True, text=True, timeout=10, cwd=served.dir,
                                          env=served.environment(), stdin=subprocess.DEVNULL)
                except subprocess.TimeoutExpired:
                    check(False, f"it serves: {' '.join(one[1:3])}")
                equal(done.returncode, 2, f"exit code of {' '.join(one[1:3])}: {done.stderr}")
                for word in ("512 MiB", "300 MiB", str(group.dir), "make the disks smaller"):
                    check(word in done.stderr, f"{word!r} in {done.stderr!r}")
        finally:
            served.close()


@test(limit_s=120)
def plans_and_lists_of_large_documents_fit_in_little_memory():
    """E3: an operator sends many plans of 1 MiB at once, a viewer asks for 15,000 groups as often: a Tarn of 300 MiB goes on."""
    groups = "".join(f'[[group]]\nid = "g{n}"\ninitiators = ["iqn.2026-11.example:{n}"]\n' for n in range(15_000))
    with cgroup.MemoryGroup(GROUP_MIB * MIB) as group, Tarn(config=TWO_LUNS + groups, prefix=group.prefix) as tarn:
        wait_for(lambda: program.listens(tarn.port2), 20, "the administration listens")
        operator = tarn.api().post("tokens", {"name": "op", "role": "operator"})["token"]
        viewer = tarn.api().post("tokens", {"name": "view", "role": "viewer"})["token"]
        nested = {"text": "x=" + "[" * 400_000 + "]" * 400_000}
        tables = {"text": "a=[" + "{}," * 330_000 + "]"}
        asks = [(operator, "POST", "plan", nested), (operator, "POST", "plan", tables), (viewer, "GET", "groups", None)] * 10
        answers = []

        def ask(token, method, path, body):
            api = admin.Api(address=("127.0.0.1", tarn.port2), token=token, timeout_s=100)
            answers.append(api.ask(method, path, body).status)
        threads = [threading.Thread(target=ask, args=one) for one in asks]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        check(set(answers) <= {200, 422, 503} and {200, 422} <= set(answers), f"statuses: {answers}")
        equal(len(answers), len(asks), "questions that were answered")


@test
def what_is_kept_of_removed_luns_is_pruned_and_of_served_ones_is_not():
    """E2: the record of a removed LUN stays until it is pruned; that of a LUN that runs stays, whatever is asked."""
    config = ONE_FILE.replace("ID", "ONE").replace('[[target]]', '[[lun]]\nid = "TWO"\nstore = "mem:8M"\n[[target]]', 1)
    config = config.replace(' }]', ' }, { lun = 1, id = "TWO" }]')
    with Tarn(config=config) as tarn:
        units = tarn.dir / "state/units"
        before = sorted(one.name for one in units.iterdir())
        equal(len(before), 2, "records of units")
        serials = shown(tarn)[0]
        api = tarn.api()
        text = api.get("config")["text"]
        less = text.replace('[[lun]]\nid = "TWO"\nstore = "mem:8M"\n', "").replace(', { lun = 1, id = "TWO" }', "")
        check(less != text and "TWO" not in less, f"the text without it: {less}")
        api.put("config", {"text": less})
        equal(upkeep(tarn, "prune").returncode, 0, "exit code of a prune of what is a year old")
        equal(len(list(units.iterdir())), 2, "records of units that were used today")
        done = upkeep(tarn, "prune", "--unused-days", "0")
        check(done.returncode == 0 and "a record is pruned" in done.stdout, f"the prune: {done}")
        equal(len(list(units.iterdir())), 1, "records of units")
        equal(upkeep(tarn, "check").returncode, 0, "exit code of tarn state check")
        equal(shown(tarn)[0], serials, "serial of the LUN that runs")
        equal(tarn.terminate(), 0, "exit code")
        tarn.start()
        equal(shown(tarn)[0], serials, "its serial after a restart")
