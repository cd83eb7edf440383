"""The state directory, memory limits, the start."""
import os
import struct
import subprocess
import threading
import time

import cgroup
import iscsi
import scsi
import tarn as program
from harness import check, equal, measured, test, wait_for
from tarn import IQN, Tarn

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
