#!/usr/bin/env python3
"""The verbs of the command line, against a daemon that serves: what they print for people and for programs, and the exit
code of every way to end.

    suite.py [--list] [PATTERN...]
"""
import fcntl
import json
import os
import pathlib
import pty
import random
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import iscsi
import scsi
from harness import Failure, check, equal, main, skip, suspend, test, wait_for
from tarn import BINARY, IQN, ROOT, Tarn, free_port, listens

DONE, FAILED, WRONG, UNREACHABLE, NOT_ALLOWED, NOT_FOUND, CONFLICT, REFUSED, DIFFERS = 0, 1, 2, 3, 4, 5, 6, 7, 10
OTHER = "iqn.2026-11.example:other"
SECRET = "correct horse battery"
CONFIG = f"""# shelf one
[[lun]]
id = "disk"     # the first
store = "mem:16M"
serial = "S1"
naa = "3000000000000001"

[[lun]]
id = "file"
store = "file:{{dir}}/file.img?size=8M"
serial = "S2"
naa = "3000000000000002"

[[group]]
id = "blades"
initiators = ["iqn.2026-11.example:blade*"]

[[target]]
name = "{IQN}"
portals = ["127.0.0.1:{{port}}"]
luns = [{{ lun = 0, id = "disk" }}, {{ lun = 1, id = "file", groups = ["blades"] }}]
"""


class Daemon(Tarn):
    """A daemon with the configuration above, and tarn with its socket."""

    def __init__(self, config=CONFIG.replace("{{", "{").replace("}}", "}"), **more):
        super().__init__(config=config, **more)

    def run(self, *arguments, given="", code=DONE, environment=(), mistakes=1):
        """Runs a verb, which must end with this code; returns what it printed. An error has a line for each mistake."""
        variables = {**self.environment(), **dict(environment)}
        done = subprocess.run([BINARY, *map(str, arguments)], input=given, capture_output=True, text=True, timeout=30,
                              env=variables)
        said = f"tarn {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}"
        equal(done.returncode, code, f"exit code of {said}")
        check("panicked" not in done.stderr, said)
        check("\x1b" not in done.stdout + done.stderr, f"colour without a terminal: {said}")
        if code not in (DONE, DIFFERS) and not done.stdout:
            errors = [line for line in done.stderr.splitlines() if not line.startswith("tarn: warning: ")]
            equal(len(errors), mistakes, f"lines of the error of {said}")
            check(all(line.startswith("tarn: ") for line in errors), said)
            return "\n".join(errors)
        return done.stdout

    def json(self, *arguments, **more):
        return json.loads(self.run(*arguments, "--json", **more))

    def golden(self, expected, *arguments, **more):
        """What a verb prints is this, but for the directory and the ports."""
        got = self.run(*arguments, **more).replace(str(self.dir), "DIR")
        for name in ("port", "port2"):
            got = got.replace(str(getattr(self, name)), name.upper())
        equal(got, expected.lstrip("\n"), f"tarn {' '.join(map(str, arguments))}")

    def typed(self, *arguments, keys, code=DONE):
        """Runs a verb on a terminal of its own where a person types: pairs of what must be seen first and what is typed
        then. Returns all that the terminal showed."""
        ours, theirs = pty.openpty()
        with subprocess.Popen([BINARY, *map(str, arguments)], stdin=theirs, stdout=theirs, stderr=theirs,
                              env=self.environment(), start_new_session=True) as process:
            os.close(theirs)
            try:
                shown = self.type(ours, keys)
                equal(process.wait(30), code, f"exit code of {arguments}: {shown!r}")
            finally:
                process.kill()
                os.close(ours)
        return shown.decode()

    @staticmethod
    def type(terminal, keys):
        shown = b""
        for awaited, text in [*keys, (None, None)]:
            since = len(shown)
            while awaited is None or awaited not in shown[since:]:
                check(select.select([terminal], [], [], 20)[0], f"{awaited!r} is not in {shown!r}")
                try:
                    shown += os.read(terminal, 65536)
                except OSError:     # the other side has closed
                    check(awaited is None, f"{awaited!r} is not in {shown!r}")
                    break
            if text:
                os.write(terminal, text)
        return shown

    @staticmethod
    def type_until(terminal, keys, awaited, seconds=60):
        """Types this, and returns what the terminal shows until it shows what is awaited."""
        os.write(terminal, keys)
        shown = b""
        while awaited not in shown:
            check(select.select([terminal], [], [], seconds)[0], f"{awaited!r} is not in {shown!r} after {keys!r}")
            shown += os.read(terminal, 65536)
        return shown

    def revision(self):
        return self.json("status")["revision"]

    def login(self, initiator):
        return iscsi.Session(self.port, IQN, initiator=initiator)


@test
def status_tells_what_runs():
    with Daemon() as daemon:
        told = daemon.json("status")
        equal((told["revision"], told["luns"], told["targets"], told["sessions"]), (1, 2, 1, 0), "figures of the status")
        equal(told["pid"], daemon.process.pid, "process of the status")
        text = daemon.run("status")
        check(re.search(r"^revision +1$", text, re.MULTILINE), text)
        check(re.search(rf"^configuration +{daemon.dir}/tarn.toml$", text, re.MULTILINE), text)


@test
def listings_have_a_line_for_each_thing():
    with Daemon() as daemon:
        daemon.golden("""
ID    KIND    TYPE    SIZE  BLOCK  WAYS  SERIAL  FLAGS
disk  memory  disk  16 MiB    512     1  S1      thin
file  file    disk   8 MiB    512     1  S2      thin
""", "lun", "list")
        daemon.golden(f"""
NAME                           LUNS  SESSIONS  LOGIN     PORTALS
{IQN}     2         0  everyone  127.0.0.1:PORT
""", "target", "list")
        daemon.golden("""
ID      COUNT  INITIATORS
blades      1  iqn.2026-11.example:blade*
""", "group", "list")
        daemon.golden("NAME  MUTUAL  SECRET FILE\n", "user", "list")
        daemon.golden("NAME  ROLE  MADE\n", "token", "list")
        daemon.golden("ID  INITIATOR  ADDRESS  TARGET  LUNS\n", "session", "list")
        text = daemon.run("portal", "list")
        check(f"{IQN}  127.0.0.1:{daemon.port}" in text, text)


@test
def one_thing_is_told_whole():
    with Daemon() as daemon:
        daemon.golden(f"""
id        file
store     file:DIR/file.img?size=8M
kind      file
type      disk
size      8 MiB (8388608 bytes)
block     512 bytes
serial    S2
naa       3000000000000002
cache     writeback
thin      yes

TARGET                         LUN  GROUPS  FLAGS
{IQN}    1  blades
""", "lun", "show", "file")
        text = daemon.run("target", "show", IQN)
        check("  0  disk  everyone" in text and "  1  file  blades" in text, text)
        equal(daemon.run("group", "show", "blades"), "iqn.2026-11.example:blade*\n", "tarn group show")
        equal(daemon.json("lun", "show", "file")["size_bytes"], 8 << 20, "exact size in JSON")


@test
def an_option_of_a_store_is_changed_and_the_others_stay():
    """`lun set` with options alone changes those of the STORE that is there."""
    with Daemon() as daemon:
        daemon.run("lun", "set", "file", "--cache", "writethrough")
        equal(daemon.json("lun", "show", "file")["spec"]["store"], f"file:{daemon.dir}/file.img?size=8M&cache=writethrough", "the STORE")
        daemon.run("lun", "set", "file", "--size", "16M", "--owner", "bob")
        lun = daemon.json("lun", "show", "file")
        equal((lun["size_bytes"], lun["cache"], lun["spec"]["owner"]), (16 << 20, "writethrough", "bob"), "all of it")
        daemon.run("lun", "set", "file", code=WRONG)
        daemon.run("lun", "set", "none", "--cache", "direct", code=NOT_FOUND)


@test
def who_has_reserved_a_disk_is_shown_and_a_person_is_asked_before_that_ends():
    """`lun show` names holder and registrations; `clear` shows them again, and without a yes nothing happens."""
    with Daemon() as daemon:
        equal(daemon.json("lun", "reservation", "show", "disk"), {"registered": 0, "aptpl": False, "lost": False}, "none")
        daemon.run("lun", "reservation", "show", "none", code=NOT_FOUND)
        daemon.run("lun", "reservation", "clear", "none", "--yes", code=NOT_FOUND)
        with iscsi.Session(daemon.port, IQN) as session:
            session.clear_unit_attentions()
            parameters = bytes(8) + (0xABC).to_bytes(8, "big") + bytes(8)
            check(session.command(bytes([0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0]), write=parameters).good, "REGISTER")
            check(session.command(bytes([0x5F, 1, 5, 0, 0, 0, 0, 0, 24, 0]), write=parameters[8:16] + bytes(16)).good, "RESERVE")
            shown = daemon.run("lun", "show", "disk")
            check(re.search(r"^reservation +write-exclusive-registrants-only$", shown, re.M), shown)
            check(re.search(rf"^{session.initiator} .* 0x0000000000000abc +iscsi .* holder$", shown, re.M), shown)
            check("reserved" in daemon.run("lun", "list"), "the flag of the list")
            shown = daemon.typed("lun", "reservation", "clear", "disk", keys=[(b"End all reservations", b"n\n")], code=FAILED)
            check(session.initiator in shown, shown)
            equal(daemon.json("lun", "reservation", "show", "disk")["registered"], 1, "nothing has happened")
            daemon.typed("lun", "reservation", "clear", "disk", keys=[(b"End all reservations", b"y\n")])
        equal(daemon.json("lun", "reservation", "show", "disk")["registered"], 0, "they are gone")
        done = [one["message"] for one in daemon.json("events") if one["kind"] == "admin-change"]
        check(any("luns/disk/reservations/clear" in one for one in done), done)


@test
def a_disk_gets_an_owner_and_loses_it():
    """`--owner` of add and set is in the configuration, and an empty one is nobody."""
    with Daemon() as daemon:
        daemon.run("lun", "add", "owned", "mem:8M", "--owner", "alice")
        check(re.search(r"^owner +alice$", daemon.run("lun", "show", "owned"), re.M), "the owner of add")
        daemon.run("lun", "set", "owned", "--owner", "bob")
        equal(daemon.json("lun", "show", "owned")["spec"]["owner"], "bob", "the owner of set")
        daemon.run("lun", "set", "owned", "--owner", "")
        check("owner" not in daemon.json("lun", "show", "owned")["spec"], "nobody's")


@test
def groups_of_hyperscsi_come_change_and_go():
    """Groups and their devices are added, shown, changed and removed by themselves, and comments stay. A plan says what an edit
    costs, a password is kept in a private file, and a name that two groups have is asked about."""
    with Daemon() as daemon:
        place = f"udp:127.0.0.1:{free_port()}"
        noun = "hyperscsi"
        check("password" in daemon.run(noun, "group", "add", "ABC", place, "--devices", "disk", code=WRONG), "a password is needed")
        check("8 to 128" in daemon.run(noun, "group", "add", "ABC", place, "--devices", "disk", "--password-from", "-", given="seven b",
                                       code=WRONG), "a password that is too short")
        daemon.run(noun, "group", "add", "ABC", place, "--devices", "disk", "--level", "crc", "--password-from", "-", given="eight by\n")
        group, = daemon.json(noun, "group", "list")
        kept = pathlib.Path(group["spec"]["password_file"])
        equal((kept.read_text(), kept.stat().st_mode & 0o777), ("eight by", 0o600), "the file of the password")
        equal((group["name"], group["place"], group["password"], group["sessions"]), (f"ABC at {place}", place, "file", []), "group")
        check("eight by" not in (daemon.dir / "tarn.toml").read_text(), "the password is in the document")
        before = (daemon.dir / "tarn.toml").read_text()

        # The same again changes nothing, also for the password.
        whole = {"name": "ABC", "udp": place[4:], "password": "eight by", "device": [{"id": "disk", "level": "crc"}]}
        answer = daemon.api().ask("PUT", f"hyperscsi/ABC%20at%20{place}", whole)
        equal((answer.status, answer.json["steps"]), (200, []), "the same again")
        equal((daemon.dir / "tarn.toml").read_text(), before, "the document")
        plan = daemon.api().ask("DELETE", "hyperscsi/ABC?plan=true")
        equal([(step["kind"], step["name"]) for step in plan.json["steps"]], [("hyperscsi", f"ABC at {place}")], "a plan")
        equal((daemon.dir / "tarn.toml").read_text(), before, "a plan changes nothing")

        daemon.run(noun, "device", "add", "ABC", "file", "--readonly")
        daemon.run(noun, "device", "add", "ABC", "file", code=CONFLICT)
        daemon.run(noun, "device", "set", "ABC", "file", "--level", "hash", "--readonly", "false")
        daemon.run(noun, "device", "set", "ABC", "file", code=WRONG)
        check("hyperscsi.group ABC" in daemon.run("lun", "rm", "file", "--yes", code=CONFLICT), "a unit that a group has")
        equal(daemon.json(noun, "group", "show", "ABC")["spec"]["device"],
              [{"id": "disk", "level": "crc"}, {"id": "file", "level": "hash"}], "devices")
        equal([(one["protocol"], one["name"], one["level"]) for one in daemon.json("lun", "show", "file")["served_by"]],
              [("hyperscsi", f"ABC at {place}", "hash")], "what serves the LUN")
        daemon.run(noun, "group", "set", "ABC", "--profile", "wireless", "--user", "alice")
        shown = daemon.run(noun, "group", "show", f"ABC at {place}")
        check(all(word in shown for word in ["alice", "wireless", "hash", str(kept)]), shown)
        daemon.run(noun, "group", "set", "ABC", code=WRONG)
        daemon.run(noun, "group", "set", "ABC", "--open")
        check("needs none" in daemon.run(noun, "group", "list"), "an open group")

        other = f"udp:127.0.0.1:{free_port()}"
        daemon.run(noun, "group", "add", "ABC", other, "--devices", "disk", "--open")
        for words in (("rm", "ABC", "--yes"), ("show", "ABC")):
            said = daemon.run(noun, "group", *words, code=CONFLICT)
            check(f"ABC at {other}" in said and "say which" in said, f"two of one name: {said}")
        equal(daemon.api().ask("GET", "hyperscsi/ABC").status, 409, "the status of a name that two have")
        equal(daemon.json(noun, "group", "show", f"ABC at {other}")["password"], "none", "one of the two")
        daemon.run(noun, "group", "rm", f"ABC at {other}", "--yes")
        daemon.run(noun, "device", "rm", "ABC", "file", "--yes")
        daemon.run(noun, "device", "rm", "ABC", "file", "--yes", code=NOT_FOUND)
        check("tarn hyperscsi group rm" in daemon.run(noun, "device", "rm", "ABC", "disk", "--yes", code=WRONG), "the last device")
        daemon.run(noun, "group", "rm", "ABC", "--yes")
        daemon.run(noun, "group", "show", "ABC", code=NOT_FOUND)
        text = (daemon.dir / "tarn.toml").read_text()
        check("# the first" in text and "hyperscsi" not in text, f"the text at the end:\n{text}")


@test
def sections_of_stores_nbd_and_quotas_come_change_and_go():
    """Named stores, servers of NBD and quotas are added, shown, changed and removed by themselves, and comments stay. What refers
    to a store keeps it; a plan says what an edit would do; a quota shows what its disks hold and refuses what is beyond it."""
    with Daemon() as daemon:
        daemon.run("store", "add", "left", "mem:4M")
        daemon.run("store", "add", "right", "mem:4M")
        daemon.run("lun", "add", "both", "concat:left,right", "--owner", "alice")
        check("both" in daemon.run("store", "rm", "left", "--yes", code=CONFLICT), "the error names who has the store")
        daemon.run("store", "add", "spare", "mem:1M")
        daemon.run("store", "set", "spare", "mem:2M")
        equal([store["store"] for store in daemon.json("store", "list")], ["mem:4M", "mem:4M", "mem:2M"], "stores")
        daemon.run("store", "rm", "spare", "--yes")

        port = free_port()
        place = f"127.0.0.1:{port}"
        daemon.run("nbd", "add", place, "--luns", "disk,both")
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            equal(client.recv(8), b"NBDMAGIC", "greeting of the server")
        row = next(row for row in daemon.run("lun", "list").splitlines() if row.startswith("both"))
        equal(row.split()[6], "1", f"ways to a LUN that no target has: {row}")
        shown = daemon.run("lun", "show", "both")
        check(place in shown and "nobody can reach it" not in shown, shown)
        daemon.run("nbd", "set", place, "--luns", "disk", "--groups", "blades")
        equal(daemon.json("nbd", "show", place), {"bind": place, "luns": ["disk"], "groups": ["blades"]}, "server")
        daemon.run("nbd", "set", place, code=WRONG)
        daemon.run("nbd", "rm", place, "--yes")
        # A place without a port has one name, by which all verbs know it.
        bare = f"127.{random.randint(1, 254)}.{random.randint(1, 254)}.9"
        name = f"{bare}:10809"
        daemon.run("nbd", "add", bare, "--luns", "disk")
        plan = daemon.api().ask("DELETE", f"nbd/{bare}?plan=true")
        equal([(step["kind"], step["name"]) for step in plan.json["steps"]], [("nbd", name)], "a plan")
        for asked in (bare, name):
            equal(daemon.json("nbd", "show", asked)["bind"], name, f"the server as {asked}")
        equal([server["bind"] for server in daemon.json("nbd", "list")], [name], "servers")
        daemon.run("nbd", "rm", name, "--yes")
        equal(daemon.json("nbd", "list"), [], "servers at the end")

        daemon.run("quota", "add", "owner:alice", "--provisioned", "8M", "--used", "6M")
        check("8" in daemon.run("lun", "add", "more", "mem:1M", "--owner", "alice", code=REFUSED), "a disk beyond the quota")
        daemon.run("quota", "set", "owner:alice", "--provisioned", "16M", "--soft", "50")
        daemon.run("lun", "add", "more", "mem:1M", "--owner", "alice")
        quota, = daemon.json("quota", "list")
        equal((quota["name"], quota["luns"], quota["provisioned_bytes"], quota["provisioned_max_bytes"], quota["used_max_bytes"]),
              ("owner:alice", ["both", "more"], 9 << 20, 16 << 20, 6 << 20), "quota")
        equal(quota["spec"], {"owner": "alice", "provisioned": "16M", "used": "6M", "soft": 50}, "as configured")
        wait_for(lambda: daemon.json("quota", "show", "owner:alice")["used_bytes"] is not None, 15, "a look at what is used")
        plan = daemon.api().ask("DELETE", "quotas/owner:alice?plan=true")
        equal(plan.status, 200, "a plan")
        daemon.run("quota", "add", "mine", code=WRONG)
        for pool, why in ((daemon.dir / "gone", "it is not there"), (daemon.dir / "tarn.toml", "it is no directory"), ("rbd", "rbd:POOL")):
            text = daemon.run("quota", "add", f"pool:{pool}", "--used", "1G", code=WRONG)
            check(f'quota "{pool}": pool:' in text, f"the place: {text}")
            check(why in text and "make that directory" in text, text)
        check(not (daemon.dir / "gone").exists(), "the directory is made")
        daemon.run("quota", "add", f"pool:{daemon.dir}", "--used", "1G")
        daemon.run("quota", "rm", f"pool:{daemon.dir}", "--yes")
        daemon.run("quota", "rm", "owner:alice", "--yes")
        daemon.run("quota", "show", "owner:alice", code=NOT_FOUND)
        text = (daemon.dir / "tarn.toml").read_text()
        check("# the first" in text and "quota" not in text and "nbd" not in text, f"the text at the end:\n{text}")


@test
def units_come_change_and_go():
    """A unit is added, with its place at a target in the same revision, renamed, resized, unmapped and removed."""
    with Daemon() as daemon:
        daemon.golden(f"""
+ lun web  file:DIR/web.img?size=4M
+ view {IQN} LUN 2 (web)
revision 2
""", "lun", "add", "web", f"file:{daemon.dir}/web.img?size=4M", "--target", IQN, "--groups", "blades")
        equal(daemon.json("lun", "show", "web")["shown_by"],
              [{"target": IQN, "lun": 2, "groups": ["blades"], "readonly": False}], "ways to the new unit")
        daemon.run("lun", "resize", "web", "6M")
        equal(daemon.json("lun", "show", "web")["size_bytes"], 6 << 20, "size after resize")
        daemon.golden('~ lun web  id: "web" -> "www"\nrevision 4\n', "lun", "rename", "web", "www")
        for taken in (("lun", "add", "more", "mem:1M", "--target", IQN, "--lun", "2"), ("target", "map", IQN, "2", "disk")):
            check(f"tarn target unmap {IQN} 2" in daemon.run(*taken, code=CONFLICT), "remedy for a number that is taken")
        daemon.run("target", "map", IQN, "2", "www", "--readonly")
        equal(daemon.json("lun", "show", "www")["shown_by"][0]["readonly"], True, "the same unit, shown otherwise")
        check(IQN in daemon.run("lun", "rm", "www", code=CONFLICT), "the error names who uses the unit")
        daemon.run("target", "unmap", IQN, "2")
        daemon.run("lun", "rm", "www")
        equal([lun["spec"]["id"] for lun in daemon.json("lun", "list")], ["disk", "file"], "units at the end")
        text = (daemon.dir / "tarn.toml").read_text()
        check(text.startswith("# shelf one\n") and "# the first" in text, f"comments are kept:\n{text}")


@test
def a_medium_is_ejected_loaded_and_exchanged():
    """Ejected when nobody prevents that, or by force; loaded; and another STORE put in its place. What is refused names who
    prevents, and the remedy."""
    config = CONFIG.replace("{{", "{").replace("}}", "}").replace("file.img?size=8M", "file.img?size=8M&removable")
    with Daemon(config=config) as daemon:
        (daemon.dir / "other.img").write_bytes(b"\x77" * (8 << 20))
        blade = "iqn.2026-11.example:blade1"
        session = daemon.login(blade)
        session.clear_unit_attentions(1)

        def read():
            return session.command(scsi.read16(0, 1), read=512, lun=1)

        def medium():
            return daemon.json("lun", "show", "file")["medium"]

        def sense():
            found = read().sense
            return found.key, found.code
        check("fixed" in daemon.run("lun", "eject", "disk", code=CONFLICT), "a fixed medium")
        daemon.run("lun", "eject", "none", code=NOT_FOUND)
        equal(medium(), {"loaded": True, "prevented_by": []}, "the medium at the start")
        check(session.command(bytes([0x1e, 0, 0, 0, 1, 0]), lun=1).good, "PREVENT")
        equal(medium(), {"loaded": True, "prevented_by": [blade]}, "the medium that is held")
        text = daemon.run("lun", "eject", "file", code=CONFLICT)
        check(blade in text and "--force" in text, text)
        check(read().good, "READ after an eject that was refused")
        daemon.golden("lun file: medium ejected\n", "lun", "eject", "file", "--force")
        equal(sense(), (scsi.NOT_READY, (0x3a, 0)), "READ without a medium")
        check("lun file: its medium is out" in daemon.run("events"), "the events name the LUN")
        length = (daemon.dir / "file.img").stat().st_size
        check("tarn lun load file" in daemon.run("lun", "resize", "file", "64M", code=REFUSED), "another size without a medium")
        equal((daemon.dir / "file.img").stat().st_size, length, "the file after a resize that was refused")
        text = daemon.run("lun", "show", "file")
        check("ejected" in text and blade in text, text)
        check("ejected" in daemon.run("lun", "list"), "the list has it")
        daemon.golden("lun file: medium loaded\n", "lun", "load", "file")
        equal(sense(), (scsi.UNIT_ATTENTION, (0x28, 0)), "READ after the load")
        check(read().good, "READ of the loaded medium")
        equal(daemon.revision(), 1, "revision: moves change no configuration")
        kinds = [event["kind"] for event in daemon.json("events")]
        check("medium-ejected" in kinds and "medium-loaded" in kinds, kinds)

        other = f"file:{daemon.dir}/other.img?removable"
        check("--force" in daemon.run("lun", "load", "file", other, code=REFUSED), "a medium is in, and held")
        check("fixed" in daemon.run("lun", "load", "disk", other, code=CONFLICT), "another medium for a fixed one")
        check(session.command(bytes([0x1e, 0, 0, 0, 0, 0]), lun=1).good, "ALLOW")
        daemon.run("lun", "eject", "file")
        for store, told in ((other.replace("?removable", ""), "removable"), (other + "&blocksize=4096", "4096"), ("tape:1", "STORE")):
            check(told in daemon.run("lun", "load", "file", store, code=WRONG), store)
        daemon.run("lun", "load", "file", other)
        equal(medium(), {"loaded": True, "prevented_by": []}, "the new medium")
        session.clear_unit_attentions(1)
        equal(read().data, b"\x77" * 512, "data of the new medium")
        session.close()


@test
def point_1_plan_ends_as_apply_would():
    """The exit code of `tarn plan` is that of `tarn apply` of the same file, with and without --exit-code, and all mistakes are told
    at once with the name of that file; `tarn check` tells all of them, too."""
    with Daemon() as daemon:
        text = (daemon.dir / "tarn.toml").read_text()
        new = daemon.dir / "new.toml"

        def ends(text, code, differs=None, mistakes=1):
            new.write_text(text)
            told = [daemon.run("plan", new, code=code, mistakes=mistakes),
                    daemon.run("plan", new, "--exit-code", code=code if differs is None else differs, mistakes=mistakes)]
            apply = daemon.run("apply", new, "--yes", code=code, mistakes=mistakes)
            return told[0], apply
        ends(text, DONE)
        ends(text + "# only a comment\n", DONE)
        far = '[[lun]]\nid = "far"\nstore = "file:none/far.img?size=1M"\n[[user]]\nname = "u"\nsecret_file = "none"\n'
        plan, apply = ends(text + far, WRONG, mistakes=2)
        for told in (plan, apply):
            check(f"{new}:" in told and "lun[2].store" in told and "user[0].secret_file" in told, told)
        plan, _ = ends(text + '[[lun]]\nid = 5\ncolour = "red"\nstore = "mem:1X"\n', WRONG, mistakes=3)
        check(plan.count(f"{new}:") == 3, plan)
        plan, _ = ends(text.replace("mem:16M", "mem:8M"), REFUSED)
        check("0 online" in plan and "1 refused" in plan, plan)
        both = text.replace("mem:16M", "mem:8M") + far
        check("far.img" in ends(both, REFUSED, mistakes=3)[1], "what else is wrong")
        runs = (daemon.dir / "tarn.toml").read_text()
        (daemon.dir / "tarn.toml").write_text(text + "# by hand\n")
        plan, apply = ends(text + "# other\n", CONFLICT)
        check("by hand" in plan and "by hand" in apply, plan)
        (daemon.dir / "tarn.toml").write_text(runs)
        new.write_text(text + '[[lun]]\nid = "more"\nstore = "mem:1M"\n')
        daemon.run("plan", new)
        daemon.run("plan", new, "--exit-code", code=DIFFERS)
        new.write_text(text + far + '[admin]\nlisten = ["127.0.0.1:0"]\ncertificate = "c.pem"\nkey = "k.pem"\n')
        told = daemon.run("check", new, code=WRONG, mistakes=4)
        check("c.pem" in told and "k.pem" in told and "far.img" in told and "secret_file" in told, told)


@test
def point_2_people_are_asked_before_something_is_taken_away():
    """On a terminal each verb that takes away what a session uses shows who loses what, and asks; a no changes nothing, --yes asks
    nobody. A removal says what becomes of the data. What takes nothing away is not asked for."""
    with Daemon() as daemon, daemon.login("iqn.2026-11.example:blade1"):
        loses = "iqn.2026-11.example:blade1 loses"
        for verb in (["target", "unmap", IQN, "0"], ["target", "rm", IQN], ["group", "set", "blades", "--add", "iqn.2026-11.example:x", "--remove", "iqn.2026-11.example:blade*"],
                     ["target", "map", IQN, "1", "file", "--groups", "none"]):
            if verb[1] == "map":
                daemon.run("group", "add", "none", "iqn.2026-11.example:none")
            before = daemon.json("show")["revision"]
            shown = daemon.typed(*verb, keys=[(b"[y/N]", b"n\n")], code=FAILED)
            check(loses in shown and "in the last second" in shown and "takes away" in shown, shown)
            check("add --yes" in daemon.run(*verb, code=FAILED), "without a terminal")
            done = subprocess.run([BINARY, *verb, "--json"], capture_output=True, text=True, timeout=30, env=daemon.environment())
            equal((done.returncode, "add --yes" in json.loads(done.stderr)["error"]["detail"]), (FAILED, True), "with --json")
            equal(daemon.json("show")["revision"], before, f"the revision after a no to {verb}")
        daemon.typed("target", "set", IQN, "--alias", "disks", keys=[])
        daemon.run("lun", "add", "ram", "mem:1M")
        daemon.run("lun", "add", "img", "file:img?size=1M")
        check("in memory and is lost" in daemon.typed("lun", "rm", "ram", keys=[(b"[y/N]", b"n\n")], code=FAILED), "memory")
        check("stays in file:img" in daemon.typed("lun", "rm", "img", keys=[(b"[y/N]", b"y\n")]), "a file")
        check((daemon.dir / "img").exists(), "the file is gone")
        file = daemon.dir / "new.toml"
        file.write_text(daemon.run("show").replace('lun = 0, id = "disk"', 'lun = 0, id = "file"'))
        check("add --yes" in daemon.run("apply", file, code=FAILED), "apply without a terminal")
        daemon.run("apply", file, "--yes")
        check("add --yes" in daemon.run("rollback", code=FAILED), "rollback without a terminal")
        daemon.run("rollback", "--yes")
        daemon.typed("target", "unmap", IQN, "0", "--yes", keys=[])
    with Daemon() as daemon:
        daemon.run("target", "unmap", IQN, "0")


class Saved(Daemon):
    """A daemon of the command line that keeps its configuration."""

    def __init__(self, *stores, save="kept.toml"):
        super().__init__(config=None)
        self.stores = stores
        self.arguments = ["--save", str(self.dir / save)] if save else []


@test
def point_5_the_first_minute_leads_to_a_lasting_service():
    """`tarn serve STORE --save FILE` makes the file and serves it: a LUN is added at once, also after a restart with the same
    arguments, which keep identity and data. `tarn show` prints the file; one that is there counts, and what it lacks is noted."""
    with Saved("{dir}/demo.img?size=8M", "mem:1M") as daemon:
        file = daemon.dir / "kept.toml"
        check(file.read_text().startswith("# Made by tarn serve --save"), file.read_text())
        equal(daemon.json("show")["text"], file.read_text(), "tarn show")
        with daemon.login("iqn.2026-11.example:a") as session:
            session.clear_unit_attentions()
            check(session.command(scsi.write16(0, 1), write=b"k" * 512).good, "WRITE")
        before = {lun["spec"]["id"]: (lun["serial"], lun["naa"]) for lun in daemon.json("lun", "list")}
        equal(sorted(before), ["demo", "disk"], "ids")
        daemon.run("lun", "add", "web", f"{daemon.dir}/web.img?size=4M", "--target", IQN)
        check("web.img" in file.read_text(), "the file has the change")
        equal(daemon.terminate(), 0, "exit code")
        daemon.stores = (*daemon.stores, "{dir}/other.img?size=1M")
        daemon.start()
        after = {lun["spec"]["id"]: (lun["serial"], lun["naa"]) for lun in daemon.json("lun", "list")}
        equal(sorted(after), ["demo", "disk", "web"], "ids after a restart")
        equal({id: after[id] for id in before}, before, "identities after a restart")
        daemon.await_log("is used as it is; it lacks STORE")
        check("other.img" in daemon.log() and not (daemon.dir / "other.img").exists(), "the argument that the file lacks")
        with daemon.login("iqn.2026-11.example:a") as session:
            session.clear_unit_attentions()
            equal(session.command(scsi.read16(0, 1), read=512).data, b"k" * 512, "data after a restart")
        daemon.run("check", file)
        # The next file is of other disks, beside the identities of these: nothing is wrong with that.
        equal(daemon.terminate(), 0, "exit code")
        daemon.arguments, daemon.stores = ["--save", str(daemon.dir / "next.toml")], ("{dir}/next.img?size=1M",)
        daemon.start()
        check("state-foreign" not in daemon.run("doctor") + daemon.log(), daemon.log())
        equal(daemon.terminate(), 0, "exit code")
        # Where a configuration that is there knows none of them, something may be.
        (daemon.dir / "next.toml").write_text((daemon.dir / "next.toml").read_text().replace('id = "next"', 'id = "new"'))
        daemon.start()
        daemon.await_log("state-foreign")
        line, = {line for line in daemon.log().splitlines() if "state-foreign" in line and "finding" not in line}
        check(" WARN " in line and "initiators see new disks" in line, line)
    # Without a file: what is printed is one that serves the same.
    with Saved("{dir}/demo.img?size=8M", save=None) as daemon:
        shown = daemon.json("show")["text"]
        lun, = daemon.json("lun", "list")
        check("--save FILE" in daemon.run("lun", "add", "web", "mem:1M", code=REFUSED), "the remedy")
        equal(daemon.terminate(), 0, "exit code")
        file = daemon.dir / "same.toml"
        file.write_text(shown)
        daemon.run("check", file)
        daemon.arguments, daemon.stores = [], ()
        daemon.config = shown
        daemon.start()
        again, = daemon.json("lun", "list")
        equal((again["serial"], again["naa"], again["size_bytes"]), (lun["serial"], lun["naa"], lun["size_bytes"]), "the disk as before")
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run([BINARY, "serve", "mem:1M", "--state", f"{scratch}/state", "--save", f"{scratch}/none/a.toml"],
                              capture_output=True, text=True, timeout=30)
        equal(done.returncode, WRONG, f"exit code of a file that cannot be made: {done.stderr}")


@test
def point_4_warnings_are_told_once_and_edits_have_no_lines():
    """A change that causes a warning tells it, the next one and its plan do not; an edit is answered by names and verbs, a file by
    its lines."""
    with Daemon() as daemon:
        def warnings(*arguments, **more):
            done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=30, env=daemon.environment())
            equal(done.returncode, DONE, done.stderr)
            return [line for line in done.stderr.splitlines() if "warning" in line]
        told = warnings("lun", "add", "alone", "mem:1M")
        check(len(told) == 1 and 'lun "alone"' in told[0] and "tarn.toml:" not in told[0], told)
        equal(warnings("lun", "add", "other", "mem:1M", "--target", IQN), [], "warnings of the next change")
        new = daemon.dir / "new.toml"
        text = (daemon.dir / "tarn.toml").read_text()
        new.write_text(text + "# no more\n")
        equal(warnings("plan", new), [], "warnings of a plan that causes none")
        new.write_text(text + '[[lun]]\nid = "third"\nstore = "mem:1M"\n')
        for verb in (["plan"], ["apply", "--yes"]):
            told = warnings(*verb, new)
            check(len(told) == 1 and f"{new}:" in told[0] and "third" in told[0], told)
        error = daemon.run("lun", "add", "x", "mem:1X", code=WRONG)
        check("1X" in error and "tarn.toml:" not in error, error)
        error = daemon.run("target", "map", IQN, "9", "disk", "--groups", "nosuch", code=NOT_FOUND)
        check("tarn group add" in error and "tarn.toml:" not in error and "[[group]]" not in error, error)
        error = daemon.run("lun", "add", "far", f"file:{daemon.dir}/none/a.img?size=1M", code=WRONG)
        check('lun "far": store' in error and "tarn.toml:" not in error, error)


def polled(daemon):
    """Whether a core looks for more work after some before it sleeps: the seconds in which it is busy count that."""
    def busy():
        text = daemon.api().good("GET", "/metrics").body.decode()
        return sum(float(value) for value in re.findall(r"^tarn_reactor_busy_seconds_total\S* (\S+)", text, re.MULTILINE))
    rounds = 100
    with daemon.login("iqn.2026-11.example:blade1") as session:
        session.clear_unit_attentions()
        before = busy()
        for _ in range(rounds):
            session.command(scsi.test_unit_ready())
            time.sleep(0.006)
        return busy() - before > rounds * 0.003


@test
def point_3_a_rollback_works_and_keys_wait_for_a_restart():
    """A disk that has grown does not keep an earlier revision from coming back, and stays as large; a disk that cannot be what it was
    stays as it is, and one whose file is gone is left out: each is said. A key that only the start reads is pending, and status and
    doctor show it until it is as it was."""
    with Daemon() as daemon:
        daemon.run("lun", "resize", "file", "16M")
        daemon.run("lun", "add", "gone", f"file:{daemon.dir}/gone.img?size=1M", "--target", IQN)
        daemon.run("target", "unmap", IQN, "0", "--yes")
        daemon.run("lun", "rm", "disk", "--yes")
        daemon.run("lun", "add", "disk", "mem:32M", "--target", IQN)
        daemon.run("target", "unmap", IQN, "2", "--yes")
        daemon.run("lun", "rm", "gone", "--yes")
        (daemon.dir / "gone.img").unlink()
        (daemon.dir / "gone.img").mkdir()
        done = subprocess.run([BINARY, "rollback", "1", "--yes"], capture_output=True, text=True, timeout=30, env=daemon.environment())
        equal(done.returncode, DONE, done.stderr)
        check("lun disk stays as it is" in done.stderr, done.stderr)
        sizes = {lun["spec"]["id"]: lun["size_bytes"] >> 20 for lun in daemon.json("lun", "list")}
        equal(sizes, {"disk": 32, "file": 16}, "sizes after the way back")
        done = subprocess.run([BINARY, "rollback", "3", "--yes"], capture_output=True, text=True, timeout=30, env=daemon.environment())
        equal(done.returncode, DONE, done.stderr)
        check("lun gone is left out" in done.stderr, done.stderr)
        equal(daemon.terminate(), 0, "exit code")
        daemon.config = (daemon.dir / "tarn.toml").read_text()
        daemon.start()
        equal({lun["spec"]["id"]: lun["size_bytes"] >> 20 for lun in daemon.json("lun", "list")}["file"], 16, "size after a restart")

        text = (daemon.dir / "tarn.toml").read_text()
        new = daemon.dir / "new.toml"
        new.write_text(text + '[server]\nbusy_poll_us = 5000\nlog = "warn"\n[[lun]]\nid = "live"\nstore = "mem:1M"\n')
        plan = daemon.json("plan", new)
        equal({(step["kind"], step["name"]): step["effect"] for step in plan["steps"]},
              {("lun", "live"): "online", ("server", "busy_poll_us"): "pending", ("server", "log"): "online"}, "effects")
        equal(polled(daemon), False, "whether a core polls")
        begins = lambda: daemon.log().count("session begins")
        wait_for(lambda: begins() == 1, 20, "a session that begins is logged")
        daemon.run("apply", new, "--yes")
        check("live" in daemon.run("lun", "list"), "what is live is there")
        equal(daemon.json("status")["pending"], ["[server] busy_poll_us: 0 -> 5000"], "what is pending")
        equal(polled(daemon), False, "whether a core polls before the restart")
        check("busy_poll_us" in daemon.run("status"), "status")
        check("restart-pending" in [one["code"] for one in daemon.json("status")["findings"]], "the doctor")
        equal((daemon.terminate(), begins()), (0, 1), "exit code, and whether sessions are logged at the level of now")
        daemon.config = (daemon.dir / "tarn.toml").read_text()
        daemon.start()
        equal((daemon.json("status").get("pending"), polled(daemon)), (None, True), "what is pending, and whether a core polls")
        new.write_text(text)
        daemon.run("apply", new, "--yes")
        equal(daemon.json("status")["pending"], ["[server] busy_poll_us: 5000 -> 0"], "what is pending on the way back")
        new.write_text((daemon.dir / "tarn.toml").read_text() + "[server]\nbusy_poll_us = 5000\n")
        daemon.run("apply", new, "--yes")
        equal(daemon.json("status").get("pending"), None, "what is pending in the end")


def removable_daemon():
    """LUN 1 has a removable medium, file.img; other.img has other data. Both are seen by blades."""
    daemon = Daemon(config=CONFIG.replace("{{", "{").replace("}}", "}").replace("file.img?size=8M", "file.img?size=8M&removable"))
    (daemon.dir / "other.img").write_bytes(b"\x77" * (8 << 20))
    return daemon


def first_block(daemon):
    with daemon.login("iqn.2026-11.example:blade1") as session:
        session.clear_unit_attentions(1)
        return session.command(scsi.read16(0, 1), read=512, lun=1).data


@test
def a_load_with_a_store_loads_whatever_differs_of_it():
    """The same STORE, one that only names its size, and another: the medium is in afterwards, and with --json one document says it."""
    with removable_daemon() as daemon:
        file, other = f"file:{daemon.dir}/file.img?removable", f"file:{daemon.dir}/other.img?removable"
        for store, revisions in ((f"file:{daemon.dir}/file.img?size=8M&removable", 0), (file, 1), (file, 0), (other, 1), (other + "&size=8M", 1)):
            daemon.run("lun", "eject", "file")
            before = daemon.revision()
            told = daemon.run("lun", "load", "file", store)
            check("medium loaded" in told or "revision" in told, told)
            equal(daemon.json("lun", "show", "file")["medium"]["loaded"], True, f"the medium after a load of {store}")
            equal(daemon.revision(), before + revisions, f"revisions of {store}")
        daemon.run("lun", "eject", "file")
        daemon.json("lun", "load", "file", other)
        equal(first_block(daemon), b"\x77" * 512, "data of the other medium")


@test
def a_load_serves_the_file_that_is_at_the_place_of_the_medium():
    """A file that was replaced while the medium was out is opened by the load; one that is gone is not made anew; one that was
    replaced under a LUN is told by the doctor."""
    with removable_daemon() as daemon:
        place, serial = daemon.dir / "file.img", daemon.json("lun", "show", "file")["serial"]
        codes = lambda: {(found["code"], found["subject"]) for found in daemon.json("doctor")}
        for store in ((), (f"file:{place}?size=8M&removable",)):
            daemon.run("lun", "eject", "file")
            place.rename(daemon.dir / "old.img")
            told = daemon.run("lun", "load", "file", *store, code=CONFLICT)
            check(str(place) in told and "does not exist" in told, told)
            check(not place.exists(), "a load has made a file")
            fill = b"\x77" if not store else b"\x88"
            place.write_bytes(fill * (8 << 20))
            daemon.golden("lun file: medium loaded\n", "lun", "load", "file", *store)
            equal(first_block(daemon), fill * 512, "data of the new file")
            equal(daemon.json("lun", "show", "file")["serial"], serial, "the identity")
        with daemon.login("iqn.2026-11.example:blade1") as session:
            session.clear_unit_attentions(1)
            check(session.command(scsi.write16(0, 1), write=b"\x99" * 512, lun=1).good, "WRITE to the new file")
            check(session.command(scsi.synchronize_cache16(), lun=1).good, "SYNCHRONIZE CACHE")
        equal(place.read_bytes()[:512], b"\x99" * 512, "the new file has what was written")
        equal(daemon.revision(), 1, "revision: moves change no configuration")
        check("medium-loaded" in [event["kind"] for event in daemon.json("events")], "the load is an event")
        daemon.run("lun", "eject", "file")
        place.write_bytes(b"x" * 512)
        daemon.run("lun", "load", "file")
        check(("file-replaced", "file") not in codes(), "a file that was written is the same")
        place.rename(daemon.dir / "old.img")
        wait_for(lambda: ("file-replaced", "file") in codes(), 30, "the doctor tells of it", step_s=0.5)


@test
def a_medium_that_is_held_is_not_exchanged():
    """While an initiator prevents the removal neither `lun set --store` nor a plan, a file or a rollback swaps the medium; all name
    who prevents and the remedy. After an eject by force they do, and load."""
    with removable_daemon() as daemon:
        blade, other = "iqn.2026-11.example:blade1", f"file:{daemon.dir}/other.img?removable"
        daemon.run("lun", "set", "file", "--store", other)
        file = daemon.dir / "new.toml"
        file.write_text(daemon.run("show").replace("other.img?removable", "file.img?removable"))
        session = daemon.login(blade)
        session.clear_unit_attentions(1)
        check(session.command(bytes([0x1e, 0, 0, 0, 1, 0]), lun=1).good, "PREVENT")
        for verb in (("lun", "set", "file", "--store", f"file:{daemon.dir}/file.img?removable"), ("apply", "--yes", file)):
            told = daemon.run(*verb, code=REFUSED)
            check(blade in told and "tarn lun eject file --force" in told, told)
        stays, = daemon.json("rollback", "--yes")["warnings"]
        check("lun file stays as it is" in stays and blade in stays and "tarn lun eject file --force" in stays, stays)
        told = daemon.run("plan", file, "--exit-code", code=REFUSED)
        check("1 refused" in told and blade in told, told)
        equal(session.command(scsi.read16(0, 1), read=512, lun=1).data, b"\x77" * 512, "the medium that is held")
        daemon.run("lun", "eject", "file", "--force")
        daemon.run("rollback", "--yes")
        equal(daemon.json("lun", "show", "file")["medium"]["loaded"], True, "another medium is in")
        session.close()


@test
def another_medium_is_told_with_its_size_and_what_is_lost():
    with removable_daemon() as daemon:
        (daemon.dir / "small.img").write_bytes(b"\x77" * (1 << 20))
        file = daemon.dir / "new.toml"
        text = daemon.run("show")
        file.write_text(text.replace("file.img?size=8M&", "small.img?"))
        for told in (daemon.run("plan", file), daemon.run("lun", "set", "file", "--store", f"file:{daemon.dir}/small.img?removable")):
            check("another medium comes, of 1048576 bytes for one of 8388608" in told, told)
            check("in memory" not in told, told)
        told = daemon.run("lun", "set", "disk", "--store", f"file:{daemon.dir}/other.img")
        check("of 8388608 bytes for one of 16777216" in told and "what is in memory is lost" in told, told)


@test
def stores_of_the_command_line_are_not_changed_and_the_remedy_is_told():
    """Its LUNs and targets stand in no document: no message may say that there are none of their name."""
    daemon = Daemon(config=None)
    daemon.stores = ("mem:16M",)
    with daemon:
        for verb in (("lun", "add", "web", "mem:1M"), ("lun", "add", "web", "mem:1M", "--target", IQN), ("lun", "rm", "mem:16M", "--yes"),
                     ("lun", "resize", "mem:16M", "32M"), ("target", "rm", IQN, "--yes")):
            told = daemon.run(*verb, code=REFUSED)
            check("command line" in told and "--save FILE" in told, told)


@test
def messages_name_the_file_that_was_given():
    with Daemon() as daemon:
        file = daemon.dir / "new.toml"
        text = (daemon.dir / "tarn.toml").read_text()
        disk = '[[lun]]\nid = "disk"\nstore = "mem:1M"\n'
        lost = '[[lun]]\nid = "lost"\nstore = "file:{}/none/lost.img?size=1M"\n'.format(daemon.dir)
        for added in (disk, lost):
            file.write_text(text + added)
            for verb in (("plan",), ("apply", "--yes")):
                told = daemon.run(*verb, file, code=WRONG)
                check("new.toml:" in told and "tarn.toml:" not in told, told)
        told = daemon.run("plan", file, "--exit-code", code=WRONG)
        check("1 refused" in told and "directory does not exist" in told, told)
        told = daemon.run("apply", "--yes", "-", given=text + disk, code=WRONG)
        check("standard input:" in told and "tarn.toml:" not in told, told)


@test
def a_doctor_tells_of_a_file_that_tarn_would_not_start_with():
    with Daemon() as daemon:
        file = daemon.dir / "tarn.toml"
        text = file.read_text()
        codes = lambda: [found["code"] for found in daemon.json("doctor")]
        check("file-invalid" not in codes() and "file-edited" not in codes(), codes())
        file.write_text(text + "# by hand\n")
        check("file-edited" in codes(), codes())
        file.write_text(text + "junk = \n")
        told = daemon.run("doctor", "--exit-code", code=DIFFERS)
        check("file-invalid" in told and "tarn check" in told, told)
        file.write_text(text)
        check("file-invalid" not in codes(), codes())


@test
def wrong_numbers_are_told_in_plain_words():
    with Daemon() as daemon:
        for verb in (("events", "--after", "0x2"), ("rollback", "0x1"), ("top", "--interval", "x"), ("serve", "--cores", "x", "mem:1M")):
            told = daemon.run(*verb, code=WRONG)
            check("a whole number is expected" in told and "digit" not in told, told)


@test
def a_unit_that_is_added_in_vain_leaves_nothing():
    with Daemon() as daemon:
        daemon.run("lun", "add", "web", "mem:1M", "--target", "iqn.2026-11.example:none", code=NOT_FOUND)
        daemon.run("lun", "add", "web", "mem:1M", "--target", IQN, "--groups", "none", code=NOT_FOUND)
        daemon.run("lun", "add", "disk", "mem:1M", code=CONFLICT)
        daemon.run("lun", "add", "web", "tape:1", code=WRONG)
        equal(daemon.revision(), 1, "revision after changes that failed")


@test
def targets_portals_and_groups_come_change_and_go():
    with Daemon() as daemon:
        bind = f"127.0.0.1:{daemon.port2}"
        daemon.run("group", "add", "vaults", "iqn.2026-11.example:vault", "192.0.2.0/24")
        daemon.run("group", "set", "vaults", "--add", "192.0.2.9", "--remove", "192.0.2.0/24")
        equal(daemon.json("group", "show", "vaults")["initiators"], ["iqn.2026-11.example:vault", "192.0.2.9"], "group")
        daemon.run("target", "add", OTHER, "--portals", bind, "--alias", "two words")
        daemon.run("target", "map", OTHER, "3", "disk", "--groups", "vaults,blades", "--readonly")
        told = daemon.json("target", "show", OTHER)
        equal(told["spec"]["luns"], [{"lun": 3, "id": "disk", "groups": ["vaults", "blades"], "readonly": True}], "map")
        equal((told["spec"]["alias"], told["bound"]), ("two words", [bind]), "alias and portal")
        daemon.run("target", "set", OTHER, "--alias", "")
        check("alias" not in daemon.json("target", "show", OTHER)["spec"], "no alias")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            third = f"127.0.0.1:{free.getsockname()[1]}"
        daemon.run("portal", "add", OTHER, third)
        equal(daemon.json("target", "show", OTHER)["bound"], [bind, third], "portals")
        daemon.run("portal", "rm", OTHER, third)
        daemon.run("group", "rm", "vaults", code=CONFLICT)
        daemon.run("target", "rm", OTHER)
        daemon.run("group", "rm", "vaults")
        daemon.run("target", "set", IQN, code=WRONG)
        daemon.run("target", "set", OTHER, "--alias", "x", code=NOT_FOUND)


@test
def secrets_come_from_files_and_never_back():
    with Daemon() as daemon:
        daemon.run("user", "add", "blade", "--secret-from", "-", given=SECRET + "\n")
        (daemon.dir / "mutual").write_text("another long secret\n")
        daemon.run("user", "set", "blade", "--mutual", "shelf", "--mutual-secret-from", daemon.dir / "mutual")
        told = daemon.json("user", "show", "blade")
        equal(told["mutual"]["name"], "shelf", "mutual name")
        kept = pathlib.Path(told["secret_file"])
        equal((kept.read_text().strip(), kept.stat().st_mode & 0o777), (SECRET, 0o600), "the secret that is kept")
        everything = daemon.run("show") + daemon.run("history", "--json") + daemon.run("events", "--json") + daemon.log()
        check(SECRET not in everything, "the secret is told")
        check("--secret-from" in daemon.run("user", "add", "none", code=WRONG), "remedy for a missing secret")
        daemon.run("user", "add", "short", "--secret-from", "-", given="short", code=WRONG)
        check("foo" in daemon.run("user", "set", "blade", "--initiators", "foo", code=WRONG), "no iSCSI name is foo")
        check("another one" not in daemon.run("user", "set", "blade", "--no-mutual"), "the secret of the user stays")
        check("mutual" not in daemon.json("user", "show", "blade"), "no mutual")
        daemon.run("user", "rm", "blade")
        daemon.run("user", "show", "blade", code=NOT_FOUND)


@test
def a_rollback_after_a_rollback_says_that_it_undoes_it():
    """`tarn rollback` goes back to the revision before; after a rollback that is the one that was undone, which a note says."""
    with Daemon() as daemon:
        daemon.run("target", "set", IQN, "--alias", "disks")
        for number, is_noted in ((1, False), (2, True)):
            done = subprocess.run([BINARY, "rollback"], capture_output=True, text=True, timeout=30, env=daemon.environment())
            equal(done.returncode, DONE, done.stderr)
            equal(f"goes back to revision {number}" in done.stderr, is_noted, done.stderr)
        check("disks" in daemon.run("show"), "what was undone is there again")


@test
def a_file_edited_by_hand_is_kept_when_another_text_comes_back():
    """A change is refused and tells the remedy; that puts the text that runs back and keeps the edited one beside it."""
    with Daemon() as daemon:
        file = daemon.dir / "tarn.toml"
        first = file.read_text()
        daemon.run("group", "add", "vaults", "iqn.2026-11.example:vault*")
        second, edited = file.read_text(), first + "# by hand\n"
        file.write_text(edited)
        remedy = re.search(r"tarn (rollback \d+)", daemon.run("group", "rm", "vaults", code=CONFLICT))
        equal(remedy[1], "rollback 2", "remedy")
        daemon.run("rollback", "99", code=NOT_FOUND)
        equal(sorted(path.name for path in daemon.dir.glob("tarn.toml*")), ["tarn.toml"], "files after an error")
        told = daemon.json(*remedy[1].split())
        equal((told["revision"], told["steps"]), (2, []), "what the way back did")
        check(any(f"{file}.edited " in warning for warning in told["warnings"]), told)
        equal((file.read_text(), pathlib.Path(f"{file}.edited").read_text()), (second, edited), "the files")
        file.write_text(edited)
        daemon.run("rollback")
        equal((daemon.revision(), file.read_text()), (3, first), "the way back to another revision")
        equal(pathlib.Path(f"{file}.edited.2").read_text(), edited, "the text edited by hand")
        daemon.run("group", "add", "vaults", "iqn.2026-11.example:vault*")


@test
def a_file_is_planned_compared_and_applied():
    with Daemon() as daemon:
        text = (daemon.dir / "tarn.toml").read_text()
        new = daemon.dir / "new.toml"
        new.write_text(text.replace('"iqn.2026-11.example:blade*"', '"iqn.2026-11.example:blade7"'))
        daemon.golden("nothing to do: revision 1 is the same\n", "plan", daemon.dir / "tarn.toml", "--exit-code")
        step = '~ group blades  initiators: ["iqn.2026-11.example:blade*"] -> ["iqn.2026-11.example:blade7"]\n'
        planned = f"{step}1 step from revision 1: 1 online, 0 taking away, 0 draining, 0 pending, 0 refused\n"
        daemon.golden(planned, "plan", new)
        daemon.golden(planned, "plan", "-", "--exit-code", given=new.read_text(), code=DIFFERS)
        daemon.golden(f"""
--- running (revision 1)
+++ DIR/new.toml
@@ -13,7 +13,7 @@
 
 [[group]]
 id = "blades"
-initiators = ["iqn.2026-11.example:blade*"]
+initiators = ["iqn.2026-11.example:blade7"]
 
 [[target]]
 name = "{IQN}"
{planned}""", "diff", new)
        equal(daemon.json("plan", new)["is_applicable"], True, "plan in JSON")
        daemon.run("apply", new, "--revision", "7", code=CONFLICT)
        equal(daemon.revision(), 1, "nothing was applied")
        daemon.golden(f"{step}revision 2\n", "apply", new, "--revision", "1", "--comment", "one blade")
        daemon.golden("nothing to do: revision 2 runs already\n", "apply", new)
        equal(daemon.run("show"), new.read_text(), "what runs is what was applied")
        daemon.golden("nothing to do: revision 2 is the same\n", "diff", "--exit-code")
        history = daemon.json("history")
        equal([(r["revision"], r.get("comment")) for r in history], [(2, "one blade"), (1, None)], "history")
        daemon.run("rollback")
        equal(daemon.run("show"), text, "the text of revision 1")
        equal(daemon.run("show", "--revision", "2"), new.read_text(), "the text of revision 2")
        equal(daemon.revision(), 3, "a way back is a new revision")
        daemon.run("rollback", "99", code=NOT_FOUND)
        commented = daemon.dir / "commented.toml"
        commented.write_text(f"# a comment\n{text}")
        daemon.golden("no steps: only the text differs, such as comments; tarn apply takes it over\n", "plan", commented)
        daemon.golden("only the text changed, such as comments\nrevision 4\n", "apply", commented)
        equal(daemon.json("history")[0]["summary"], ["only the text, such as comments"], "summary")


@test
def a_missing_file_is_named_and_written_again():
    with Daemon() as daemon:
        file = daemon.dir / "tarn.toml"
        text = file.read_text()
        file.unlink()
        remedy = daemon.run("group", "add", "vaults", "iqn.2026-11.example:vault*", code=CONFLICT)
        check("tarn rollback 1 " in remedy, remedy)
        check("tarn rollback 1 " in daemon.run("doctor"), "the doctor names the remedy")
        daemon.run("rollback", "1")
        equal((file.read_text(), daemon.revision()), (text, 1), "the file that was missing")
        daemon.run("group", "add", "vaults", "iqn.2026-11.example:vault*")


@test
def only_new_warnings_are_printed():
    with Daemon() as daemon:
        first = daemon.json("user", "add", "nobody", "--secret-from", "-", given="0123456789abcdef\n")["warnings"]
        check(any("nobody" in warning for warning in first), first)
        equal(daemon.json("group", "add", "vaults", "iqn.2026-11.example:vault*")["warnings"], [], "warnings of the next")


@test
def a_file_that_is_wrong_or_refused_changes_nothing():
    with Daemon() as daemon:
        text = (daemon.dir / "tarn.toml").read_text()
        for bad, code, word in [(text + "[sever]\n", WRONG, "sever"), (text.replace("mem:16M", "mem:8M"), REFUSED, "disk")]:
            line = daemon.run("apply", "-", given=bad, code=code)
            check(word in line, f"the error names the place: {line}")
        daemon.run("plan", "-", "--exit-code", given=text.replace("mem:16M", "mem:8M"), code=REFUSED)
        daemon.run("apply", daemon.dir / "none.toml", code=WRONG)
        equal(daemon.revision(), 1, "revision after files that failed")


@test
def the_effective_configuration_has_the_defaults():
    with Daemon() as daemon:
        text = daemon.run("show", "--effective")
        check("[limits]" in text and "queue_depth" in text, text)


@test
def access_is_tried_dry():
    with Daemon() as daemon:
        blade, other = (daemon.run("who-sees", name) for name in ("iqn.2026-11.example:blade1", "iqn.2026-11.example:x"))
        check("file" in blade and "disk" in blade, blade)
        check("file" not in other and "disk" in other, other)
        check("it is in blades" in blade and "is only for blades" in other, f"{blade}{other}")
        told = daemon.json("who-sees", "iqn.2026-11.example:x", "--address", "192.0.2.1")
        equal([lun["id"] for lun in told[0]["luns"]], ["disk"], "what a stranger sees")
        daemon.run("who-sees", "nobody?", code=WRONG)
        spelled = daemon.json("who-sees", "iqn.1991-05.com.Microsoft:my_host")
        check(spelled[0]["may_login"], f"a host with an underscore: {spelled}")

        daemon.run("group", "add", "near", "192.0.2.0/24")
        group, server = f"udp:127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        daemon.run("hyperscsi", "group", "add", "ABC", group, "--devices", "file", "--level", "crc", "--password-from", "-", given="eight by")
        daemon.run("nbd", "add", server, "--luns", "disk", "--groups", "near")
        for address, may_login in (("192.0.2.1", True), ("198.51.100.1", False)):
            asked = ("who-sees", "iqn.2026-11.example:x", "--address", address)
            told = {one["protocol"]: one for one in daemon.json(*asked)}
            equal((told["nbd"]["target"], told["nbd"]["may_login"], [lun["id"] for lun in told["nbd"]["luns"]]),
                  (server, may_login, ["disk"] if may_login else []), f"NBD from {address}")
            equal((told["hyperscsi"]["target"], told["hyperscsi"]["needs_password"], [lun["id"] for lun in told["hyperscsi"]["luns"]]),
                  (f"ABC at {group}", True, ["file"]), "HyperSCSI")
            text = daemon.run(*asked)
            check(f"group of HyperSCSI ABC at {group}: may log in, with the password" in text and "near" in text, text)


@test
def discovery_that_needs_chap_is_said():
    text = CONFIG.replace("{{", "{").replace("}}", "}") + '[[user]]\nname = "finder"\nsecret_file = "finder.secret"\n'
    daemon = Daemon(config=f'server = {{ discovery_auth = ["finder"] }}\n{text}')
    daemon.secret("finder.secret", SECRET)
    with daemon:
        stranger = daemon.run("who-sees", "iqn.2026-11.example:x")
        check("discovery needs CHAP" in stranger and "may log in" in stranger, stranger)
        found = daemon.run("who-sees", "iqn.2026-11.example:x", "--user", "finder")
        check("discovery shows it" in found, found)
        told = daemon.json("who-sees", "iqn.2026-11.example:x")[0]
        equal((told["is_discovered"], told["discovery_needs_chap"]), (False, True), "as JSON")


@test
def a_target_without_a_portal_says_who_reaches_it():
    with Daemon() as daemon:
        if listens(3260):
            skip("something listens at port 3260")
        done = subprocess.run([BINARY, "target", "add", OTHER], capture_output=True, text=True, timeout=30, env=daemon.environment())
        check(done.returncode == 0 and "127.0.0.1:3260, which only programs on this host reach" in done.stderr, f"{done}")


@test
def sessions_are_told_and_ended():
    with Daemon() as daemon:
        session = daemon.login("iqn.2026-11.example:blade1")
        found = daemon.json("session", "list")
        equal([s["initiator"] for s in found], ["iqn.2026-11.example:blade1"], "sessions")
        number = found[0]["id"]
        text = daemon.run("session", "show", number)
        check("iqn.2026-11.example:blade1" in text and "  1  file" in text, text)
        daemon.golden(f"session {number} has ended\n", "session", "rm", number)
        equal(daemon.json("session", "list"), [], "sessions after the end")
        daemon.run("session", "rm", number, code=NOT_FOUND)
        session.close()


@test
def top_prints_a_table_for_each_interval():
    with Daemon() as daemon:
        session = daemon.login("iqn.2026-11.example:blade1")
        session.clear_unit_attentions()
        stop = threading.Event()

        def work():
            while not stop.is_set():
                session.command(scsi.read10(0, 8), read=4096)
        worker = threading.Thread(target=work)
        worker.start()
        try:
            text = daemon.run("top", "--count", "2", "--interval", "1")
            found = re.findall(r"^disk +([1-9]\d*) ", text, re.MULTILINE)
            equal(len(found), 2, f"tables with a rate of the unit:\n{text}")
            check("iqn.2026-11.example:blade1" in text, text)
            lines = daemon.run("top", "--count", "2", "--interval", "1", "--json").splitlines()
            counts = [json.loads(line)["series"][0]["read"]["count"] for line in lines]
            check(len(counts) == 2 and counts[0] < counts[1], f"counters grow: {counts}")
        finally:
            stop.set()
            worker.join()
            session.close()


@test
def events_are_told_and_followed():
    with Daemon() as daemon:
        daemon.run("lun", "rename", "disk", "first")
        kinds = [event["kind"] for event in daemon.json("events")]
        check("config-applied" in kinds, f"kinds of events: {kinds}")
        last = daemon.json("events", "--most", "1000")[-1]["number"]
        with subprocess.Popen([BINARY, "events", "--follow", "--json", "--after", str(last)], stdout=subprocess.PIPE,
                              text=True, env=daemon.environment()) as follower:
            daemon.run("lun", "rename", "first", "disk")
            lines = iter(follower.stdout.readline, "")
            event = next(event for event in map(json.loads, lines) if event["kind"] == "config-applied")
            check(event["number"] > last, f"an event that is new: {event}")
            follower.terminate()


@test
def the_newest_events_are_told():
    """Without a number those at the end, and of a severity those at the end of it; numbers rise over a restart."""
    with Daemon() as daemon:
        daemon.run("lun", "rename", "disk", "first")
        try:
            iscsi.Session(daemon.port, IQN + "-that-is-not-there")
        except iscsi.LoginError:
            pass
        daemon.run("lun", "rename", "first", "disk")
        everything = daemon.json("events", "--after", "0", "--most", "1000")
        equal(daemon.json("events", "--most", "2"), everything[-2:], "the newest two")
        equal(daemon.json("events", "--after", str(everything[0]["number"]), "--most", "1"), everything[1:2], "the one after the first")
        bad = [event for event in everything if event["severity"] != "info"]
        check(bad and bad != everything[-len(bad):], f"the warnings are the newest, so this shows nothing: {everything}")
        equal(daemon.json("events", "--severity", "warning", "--most", str(len(bad))), bad, "warnings")
        daemon.terminate()
        daemon.start()
        daemon.run("lun", "rename", "disk", "again")
        news = daemon.json("events", "--after", str(everything[-1]["number"]))
        check(any(event["kind"] == "config-applied" for event in news), f"after the restart: {news}")


@test
def a_doctor_sees_the_network():
    """An initiator that takes smaller segments than this side does, as with another MTU; one that takes as large ones is no
    finding. What the kernel tells is a moment old at most."""
    def mtu(daemon):
        return [finding for finding in daemon.json("doctor") if finding["code"] == "mtu"]

    with Daemon() as daemon, daemon.login("iqn.2026-11.example:large"):
        equal(mtu(daemon), [], "findings about an initiator with the same MTU")
        small = iscsi.Connection(daemon.port, segment_bytes=1400)
        wait_for(lambda: mtu(daemon), 30, "the doctor sees it")
        [finding] = mtu(daemon)
        equal(finding["subject"], "127.0.0.1", "the host")
        check("segments have 1388 bytes" in finding["message"] or "segments have 1400 bytes" in finding["message"], finding)
        small.socket.close()
        wait_for(lambda: not mtu(daemon), 30, "the doctor sees that it is gone")


@test
def a_doctor_tells_findings():
    with Daemon() as daemon:
        def agree():
            found = daemon.json("doctor")
            codes = [finding["code"] for finding in found]
            try:
                equal(codes, [finding["code"] for finding in daemon.json("status")["findings"]], "findings")
                worst = any(finding["severity"] != "info" for finding in found)
                daemon.run("doctor", "--exit-code", code=DIFFERS if worst else DONE)
            except Failure:
                if codes == [finding["code"] for finding in daemon.json("doctor")]:
                    raise
                return False    # what there is to find has changed between the questions
            return True
        wait_for(agree, 30, "findings stay for three questions")


@test
def a_file_that_was_named_without_its_directory_is_changed_too():
    class Beside(Daemon):
        def command(self):
            return [word.replace(f"{self.dir}/tarn.toml", "tarn.toml") for word in super().command()]

    with Beside() as daemon:
        daemon.run("lun", "rename", "disk", "first")
        check('id = "first"' in (daemon.dir / "tarn.toml").read_text(), "the file has the change")


@test
def a_daemon_elsewhere_is_asked_with_a_token():
    """Over TLS: a role that may not ends with 4, no token is an error of the command line."""
    config = CONFIG.replace("{{", "{").replace("}}", "}") + '[admin]\nlisten = ["127.0.0.1:{port2}"]\n'
    with Daemon(config=config) as daemon:
        daemon.secret("admin", daemon.run("token", "add", "me", "admin").strip())
        daemon.secret("viewer", daemon.run("token", "add", "guest", "viewer").strip())
        daemon.secret("unknown", "tarn_" + "0" * 64)
        certificate = daemon.dir / "state/admin-cert.pem"
        url = ["--url", f"https://127.0.0.1:{daemon.port2}"]
        trusted = [*url, "--ca", certificate]

        def token(name):
            return ["--token-file", daemon.dir / name]
        equal(daemon.json("status", *trusted, *token("viewer"))["pid"], daemon.process.pid, "the same daemon")
        daemon.run("lun", "rename", "disk", "first", *trusted, *token("viewer"), code=NOT_ALLOWED)
        daemon.run("status", *trusted, *token("unknown"), code=NOT_ALLOWED)
        daemon.run("lun", "rename", "disk", "first", *trusted, *token("admin"))
        daemon.run("status", *url, *token("admin"), code=UNREACHABLE)
        daemon.run("status", *trusted, code=WRONG)
        daemon.run("status", *trusted, environment={"TARN_TOKEN_FILE": str(daemon.dir / "viewer")})
        daemon.run("status", "--url", "http://127.0.0.1", *token("admin"), code=WRONG)
        daemon.run("diff", *trusted, *token("admin"), code=WRONG)
        daemon.run("token", "rm", "guest")
        daemon.run("status", *trusted, *token("viewer"), code=NOT_ALLOWED)


@test
def a_daemon_that_is_not_there_ends_with_3():
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "tarn.sock"
        environment = {**os.environ, "TARN_SOCKET": str(path)}

        def status():
            return subprocess.run([BINARY, "status"], env=environment, capture_output=True, text=True, timeout=30)
        done = status()
        equal(done.returncode, UNREACHABLE, f"no socket: {done.stderr}")
        check(str(path) in done.stderr and "tarn serve" in done.stderr, f"place and remedy: {done.stderr}")
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
        done = status()
        equal(done.returncode, UNREACHABLE, f"a socket that nobody listens at: {done.stderr}")


@test
def what_does_not_speak_the_api_ends_with_an_error():
    """Whatever answers at the socket, the verb ends with one line and never hangs."""
    ok = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    cases = [(b"", UNREACHABLE), (b"hello\r\n\r\n", UNREACHABLE), (ok + b"Content-Length: 100\r\n\r\n{}", UNREACHABLE),
             (ok + b"Content-Length: 2\r\n\r\n{}", FAILED), (ok + b"Content-Length: 3\r\n\r\n\xff\xfe\xfd", FAILED),
             (ok + b"Content-Length: 99999999999\r\n\r\n{", UNREACHABLE),
             (ok + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", UNREACHABLE),
             (b"HTTP/1.1 500 No\r\nContent-Length: 4\r\n\r\noops", FAILED)]
    with tempfile.TemporaryDirectory() as scratch:
        for number, (answer, code) in enumerate(cases):
            path = pathlib.Path(scratch) / f"{number}.sock"
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))
                listener.listen()

                def speak():
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(65536)
                        connection.sendall(answer)
                server = threading.Thread(target=speak)
                server.start()
                done = subprocess.run([BINARY, "status", "--socket", path], capture_output=True, text=True, timeout=30)
                server.join()
            equal(done.returncode, code, f"{answer!r}: {done.stderr}")
            equal(len(done.stderr.splitlines()), 1, f"lines of the error for {answer!r}: {done.stderr}")


@test
def a_person_is_asked_before_something_goes():
    with Daemon() as daemon:
        new = daemon.dir / "new.toml"
        new.write_text((daemon.dir / "tarn.toml").read_text().replace("blade*", "blade7"))
        shown = daemon.typed("apply", new, keys=[(b"[y/N]", b"n\n")], code=FAILED)
        check("group blades" in shown and "nothing was changed" in shown, f"plan and answer: {shown!r}")
        equal(daemon.revision(), 1, "revision after a no")
        daemon.typed("apply", new, keys=[(b"[y/N]", b"y\n")])
        equal(daemon.revision(), 2, "revision after a yes")
        daemon.typed("rollback", keys=[(b"[y/N]", b"yes\n")])
        daemon.typed("apply", new, "--yes", keys=[])
        daemon.run("group", "add", "spare", "iqn.2026-11.example:spare")
        daemon.typed("group", "rm", "spare", keys=[(b"[y/N]", b"\n")], code=FAILED)
        # Nobody is asked for what cannot be done.
        daemon.typed("group", "rm", "blades", keys=[], code=CONFLICT)
        equal(daemon.revision(), 5, "revision at the end")


@test
def a_secret_is_typed_twice_and_not_shown():
    typed = SECRET.encode() + b"\n"
    with Daemon() as daemon:
        shown = daemon.typed("user", "add", "blade", keys=[(b"Secret of blade: ", typed), (b"again: ", typed)])
        check(SECRET not in shown, "the terminal shows the secret")
        kept = pathlib.Path(daemon.json("user", "show", "blade")["secret_file"])
        equal(kept.read_text().strip(), SECRET, "the secret that is kept")
        daemon.typed("user", "add", "other", keys=[(b"Secret of other: ", typed), (b"again: ", b"x" + typed)], code=WRONG)


@test
def top_on_a_terminal_is_drawn_until_q_and_leaves_it_as_it_was():
    with Daemon() as daemon:
        shown = daemon.typed("top", "--interval", "1", keys=[(b"LUN", b"p"), (b"LUN", b"q")])
        check(shown.startswith("\x1b[?1049h") and shown.endswith("\x1b[?1049l"), f"screen: {shown!r}")


@test
def top_that_is_ended_by_a_signal_leaves_the_terminal_as_it_was():
    with Daemon() as daemon:
        for number in (signal.SIGTERM, signal.SIGHUP):
            ours, theirs = pty.openpty()
            before = termios.tcgetattr(theirs)
            with subprocess.Popen([BINARY, "top"], stdin=theirs, stdout=theirs, stderr=theirs, env=daemon.environment(),
                                  start_new_session=True) as process:
                shown = b""
                while b"LUN" not in shown:
                    shown += os.read(ours, 65536)
                check(termios.tcgetattr(theirs) != before, "another mode while it runs")
                process.send_signal(number)
                equal(process.wait(30), DONE, f"exit code after {number!r}")
            shown = b""
            while not shown.endswith(b"\x1b[?1049l"):       # it may come in pieces
                check(select.select([ours], [], [], 20)[0], f"screen after {number!r}: {shown!r}")
                shown += os.read(ours, 65536)
            equal(termios.tcgetattr(theirs), before, f"modes after {number!r}")
            os.close(ours)
            os.close(theirs)


@test
def completion_and_manual_pages_are_made():
    for shell in ("bash", "zsh", "fish"):
        done = subprocess.run([BINARY, "completion", shell], capture_output=True, text=True, timeout=30)
        check(done.returncode == 0 and f"tarn complete {shell}" in done.stdout, f"completion for {shell}: {done.stderr}")
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run([BINARY, "man", pathlib.Path(scratch) / "man1"], capture_output=True, text=True, timeout=30)
        equal((done.returncode, done.stderr), (0, ""), "tarn man")
        page = (pathlib.Path(scratch) / "man1/tarn-lun-add.1").read_text()
        check("EXIT STATUS" in page and "tarn lun add web" in page, page)
        page = (pathlib.Path(scratch) / "man1/tarn.toml.5").read_text()
        check(".TH tarn.toml 5" in page and ".B discovery_auth" in page, page)


def mistakes():
    """(code, mistake, commands) of the table in mistakes.txt."""
    for line in (ROOT / "tests/verbs/mistakes.txt").read_text().splitlines()[2:]:
        _, code, mistake, commands, _ = (part.strip() for part in line.split("|"))
        yield int(code), mistake, re.findall(r"`tarn ([^`]+)`", commands)


@test(limit_s=180)
def point_12_the_same_mistake_ends_with_the_same_code():
    """Every command of the table in mistakes.txt ends with the code that stands there, and changes nothing."""
    with Daemon() as daemon:
        before = daemon.run("show")
        count = 0
        for code, mistake, commands in mistakes():
            for command in commands:
                words = shlex.split(command.replace("iqn.2026-11.example:san", IQN).replace("tarn.toml", str(daemon.dir / "tarn.toml")))
                done = subprocess.run([BINARY, *words], input="", capture_output=True, text=True, timeout=30, cwd=daemon.dir,
                                      env=daemon.environment())
                equal(done.returncode, code, f"{mistake}: tarn {command}: {done.stdout}{done.stderr}")
                equal(len(done.stderr.splitlines()), 1, f"lines of tarn {command}: {done.stderr}")
                count += 1
        check(count > 60, f"only {count} commands in the table")
        equal(daemon.run("show"), before, "the configuration after all mistakes")


@test(limit_s=120)
def point_12_errors_are_json_where_that_is_asked_for():
    """One line on the standard error with what the API says, or with the same members, and the exit code in it."""
    with Daemon() as daemon:
        for words, code, kind in [(["lun", "show", "web"], NOT_FOUND, "not-found"), (["lun", "add", "disk", "mem:1M"], CONFLICT, "conflict"),
                                  (["lun", "resize", "disk", "1M"], REFUSED, "refused"), (["lun", "lst"], WRONG, "wrong"),
                                  (["plan", "/nonexistent"], WRONG, "wrong"),
                                  (["status", "--socket", "/nonexistent/tarn.sock"], UNREACHABLE, "unreachable"),
                                  (["import", "/nonexistent"], WRONG, "wrong")]:
            done = subprocess.run([BINARY, *words, "--json"], capture_output=True, text=True, timeout=30, env=daemon.environment())
            equal((done.returncode, done.stdout), (code, ""), f"{words}: {done.stderr}")
            lines = done.stderr.splitlines()
            equal(len(lines), 1, f"lines of {words}: {done.stderr}")
            error = json.loads(lines[0])["error"]
            equal((error["type"], error["exit"]), (kind, code), f"{words}: {error}")
            check(error["detail"] and not error["detail"].startswith("tarn: "), error)
        wrong = daemon.dir / "wrong.toml"
        wrong.write_text('[[lun]]\nid = "a"\nstore = "mem:1Q"\n[[lun]]\nid = "b"\nstore = "mem:2Q"\n')
        done = subprocess.run([BINARY, "apply", wrong, "--json"], capture_output=True, text=True, timeout=30, env=daemon.environment())
        equal(len(json.loads(done.stderr)["error"]["mistakes"]), 2, f"all mistakes: {done.stderr}")


@test
def point_12_help_aliases_and_flags_for_stores():
    with Daemon() as daemon:
        equal(daemon.run("help", "lun", "add"), daemon.run("lun", "add", "--help"), "tarn help lun add")
        equal(daemon.run("help", "lun", "create"), daemon.run("lun", "add", "--help"), "help by another name")
        check("who-sees" in daemon.run("help"), "tarn help")
        equal(daemon.run("lun", "ls"), daemon.run("lun", "list"), "tarn lun ls")
        daemon.run("lun", "create", "web", daemon.dir / "web.img", "--size", "4M", "--cache", "direct", "--thin=false")
        spec = daemon.json("lun", "info", "web")
        equal(spec["spec"]["store"], f"{daemon.dir}/web.img?size=4M&cache=direct&thin=false", "the STORE with its flags")
        equal(spec["cache"], "direct", "the cache of the unit")
        daemon.run("lun", "mv", "web", "www")
        daemon.run("lun", "grow", "www", "8M")
        equal(daemon.json("lun", "show", "www")["size_bytes"], 8 << 20, "size after grow")
        daemon.run("lun", "delete", "www", "--yes")
        daemon.run("group", "create", "vaults", "iqn.2026-11.example:vault*")
        daemon.run("group", "modify", "vaults", "iqn.2026-11.example:other*")
        daemon.run("group", "remove", "vaults")
        everything = daemon.json("events", "--after", "0", "--limit", "1000")
        equal(daemon.json("events", "--limit", "2"), everything[-2:], "events --limit")
        equal(len(daemon.api().get("events?limit=3")), 3, "limit= of the API")
        for path in (daemon.json("status")["config_file"], daemon.json("status")["state_directory"]):
            check(path.startswith("/"), f"{path} in the status is not absolute")


@test
def point_12_status_has_absolute_paths_whatever_the_daemon_was_started_with():
    with tempfile.TemporaryDirectory(prefix="tarn-test.") as folder:
        folder = pathlib.Path(folder).resolve()
        (folder / "t.toml").write_text(CONFIG.replace("{dir}", str(folder)).replace("{port}", str(free_port())))
        environment = {**os.environ, "TARN_SOCKET": str(folder / "s")}
        with subprocess.Popen([BINARY, "serve", "--config", "t.toml", "--state", "st"], cwd=folder, env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            try:
                process.stdout.readline()
                done = subprocess.run([BINARY, "status", "--json"], env=environment, capture_output=True, text=True, timeout=30)
                told = json.loads(done.stdout)
                equal((told["config_file"], told["state_directory"]), (f"{folder}/t.toml", f"{folder}/st"), "paths")
            finally:
                process.terminate()


def take_terminal():
    """Makes the standard input the terminal of this session, of which Ctrl-C is a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def completed(daemon, line, shell="bash"):
    done = subprocess.run([BINARY, "complete", shell, "--breaks", "\"'><=;|&(:", "--", line], capture_output=True, text=True, timeout=30,
                          env=daemon.environment())
    equal((done.returncode, done.stderr), (0, ""), f"tarn complete {line!r}")
    return done.stdout.splitlines()


@test
def point_12_completion_offers_what_the_daemon_has():
    with Daemon() as daemon:
        daemon.run("user", "add", "alice", "--secret-from", "-", given=SECRET)
        for line, want in [("tarn lun show ", ["disk", "file"]), ("tarn lun delete f", ["file"]),
                           ("tarn target map iqn.2026-11.example.tarn:", ["test"]), (f"tarn target map {IQN} 3 ", ["disk", "file"]),
                           ("tarn target map iqn", [IQN]), (f"tarn target set {IQN} --auth ", ["alice"]),
                           ("tarn lun add x mem:1M --groups ", ["blades"]), ("tarn rollback ", ["1", "2"]),
                           ("tarn lun add x", []), ("tarn lun re", ["resize", "reservation", "rename"])]:
            equal(completed(daemon, line), want, line)
        equal(completed(daemon, "tarn apply "), ["\tfiles"], "names of files")
        check("lun\tLogical units" in completed(daemon, "tarn l", "fish"), "words with what they are")
        daemon.terminate()
        equal(completed(daemon, "tarn lun show "), [], "ids of a daemon that is gone")
        equal(completed(daemon, "tarn lun sh"), ["show"], "verbs without a daemon")
        daemon.start()


@test(limit_s=120)
def point_12_shells_complete_ids():
    """A real shell on a terminal, TAB pressed. Bash takes the name of a target for several words."""
    scripts = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"], "fish": ["--no-config", "-i"]}
    there = [shell for shell in scripts if shutil.which(shell)]
    with Daemon() as daemon:
        daemon.run("lun", "add", "web-of-many", "mem:1M")
        for shell in there:
            script = daemon.dir / f"completion.{shell}"
            script.write_text(daemon.run("completion", shell))
            environment = {**daemon.environment(), "PATH": f"{BINARY.parent}:{os.environ['PATH']}", "TERM": "xterm", "PS1": "ready> ",
                           "HOME": str(daemon.dir), "INPUTRC": "/dev/null"}
            ours, theirs = pty.openpty()
            with subprocess.Popen([shell, *scripts[shell]], stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
                                  start_new_session=True, preexec_fn=take_terminal, cwd=daemon.dir) as process:
                os.close(theirs)
                try:
                    begin = {"bash": f"source {script}; bind 'set bell-style none'; echo now-$((1+1))\n",
                             "zsh": f"autoload -U compinit; compinit -u -D; source {script}; echo now-$((1+1))\n",
                             "fish": f"source {script}; echo now-(math 1+1)\n"}[shell]
                    Daemon.type_until(ours, begin.encode(), b"now-2")
                    Daemon.type_until(ours, b"tarn lun show we\t", b"web-of-many")
                    # The number is printed where the completed line has run, and not where it is echoed.
                    Daemon.type_until(ours, b" | grep -c mem:\n", b"1\r\n")
                    Daemon.type_until(ours, b"tarn target show iqn.2026-11.example.tarn:\t", b"tarn:test")
                    Daemon.type_until(ours, b" | grep -c ^target\n", b"1\r\n")
                finally:
                    process.kill()
                    os.close(ours)
    check("bash" in there, "there is no bash")


def script(daemon, text, **more):
    return daemon.run("shell", given=text, **more)


@test
def point_12_a_shell_walks_the_tree_and_runs_verbs_where_it_is():
    """Lines from a pipe."""
    with Daemon() as daemon:
        equal(script(daemon, "pwd\ncd luns/disk\npwd\n\n# a remark\n"), "/\n/luns/disk\n", "cd and pwd")
        text = script(daemon, f"ls\nls targets/{IQN}/luns\n")
        check("luns/" in text and re.search(r"^revision +1$", text, re.MULTILINE), text)
        check(re.search(r"^0 +-> /luns/disk$", text, re.MULTILINE), f"where a link leads: {text}")
        equal(script(daemon, f"cd targets/{IQN}/luns/1\npwd\ncat size\n"), "/luns/file\n8388608\n", "a link is followed")
        equal(script(daemon, "cd luns/file\nresize 16M\n").splitlines()[-1], "revision 2", "a verb where one is")
        equal(script(daemon, "cd luns/file\nwrite size 32M\ncat size\n"), "33554432\n", "a value that is written")
        check("S2" in script(daemon, "cd /luns\nshow file\n"), "a verb of all units")
        check("[[lun]]" in script(daemon, "cd /luns/file\ntarn show\n"), "a verb of the top level")
        script(daemon, f"cd targets/{IQN}\nmap 7 disk\nunmap 7\nlun add web mem:1M\ncd /luns/web\nrm --yes\n")
        check(all(one["spec"]["id"] != "web" for one in daemon.json("lun", "list")), "a unit that was added and removed")
        check("Verbs for lun disk" in script(daemon, "cd luns/disk\nhelp\n"), "help")
        # A verb of a script has no input: the rest of the script is not a configuration, nor is nothing at all one.
        before = daemon.run("show")
        script(daemon, "apply -\npwd\n", code=WRONG, mistakes=2)
        script(daemon, "user add alice --secret-from -\npwd\n", code=WRONG, mistakes=2)
        equal(daemon.run("show"), before, "the configuration after a script without input")


@test
def point_12_a_script_ends_at_the_first_line_that_fails():
    with Daemon() as daemon:
        for line, code, word in [("cd nowhere", NOT_FOUND, "/nowhere"), ("lun show web", NOT_FOUND, "web"), ("nonsense", WRONG, "nonsense"),
                                 ("cat luns", WRONG, "no file"), ("cd 'a", WRONG, "quote"), ("cd a b", WRONG, "cd [PATH]"),
                                 ("shell", WRONG, "shell"), ("write revision 7", WRONG, "reading"), ("lun resize disk 1M", REFUSED, "shrink")]:
            text = script(daemon, f"# one\n{line}\nlun rename disk gone\n", code=code, mistakes=2)
            check(word in text and "line 2 failed" in text, f"{line}: {text}")
        equal(daemon.revision(), 1, "lines after the one that failed")
        script(daemon, "pwd\nexit\nnonsense\n")


@test(limit_s=180)
def point_12_a_shell_on_a_terminal():
    """TAB completes paths, verbs and ids; Ctrl-C ends a verb and not the shell; a daemon that hangs or is gone is a line."""
    with Daemon() as daemon:
        ours, theirs = pty.openpty()
        with subprocess.Popen([BINARY, "shell", "--no-color"], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                              preexec_fn=take_terminal, env={**daemon.environment(), "TERM": "xterm"}) as process:
            os.close(theirs)
            try:
                def line(keys, awaited):
                    return Daemon.type_until(ours, keys, awaited)

                def interrupted(verb):
                    """Ctrl-C, when the verb runs; and again, if it came before the terminal was the verb's."""
                    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
                    os.write(ours, verb + b"\r")
                    wait_for(children.read_text, 30, f"{verb} runs")

                    def has_ended():
                        if children.read_text():
                            os.write(ours, b"\x03")
                        return not children.read_text()
                    wait_for(has_ended, 30, f"{verb} has ended", 0.3)
                    check(process.poll() is None, "Ctrl-C has ended the shell")
                line(b"", b"tarn:/> ")
                line(b"cd lu\t\r", b"tarn:/luns> ")
                line(b"cd di\t\r", b"tarn:/luns/disk> ")
                line(b"sho\t\r", b"S1")        # of the unit one is at
                line(b"cd /tar\t", b"/targets/")
                line(b"i\t\r", f"tarn:/targets/{IQN}> ".encode())
                line(b"map 5 fi\t\r", b"revision 2")
                line(b"lun show fi\t --js\t\r", b'"S2"')
                interrupted(b"events --follow")
                line(b"cd /\r", b"tarn:/> ")
                process_id = daemon.process.pid
                suspend(process_id)
                try:
                    line(b"ls luns\r", b"did not answer")
                    line(b"lun show \t\r", b"tarn lun show --help")     # nobody offers an id, and the line still runs
                    interrupted(b"status")
                finally:
                    os.kill(process_id, signal.SIGCONT)
                line(b"ls luns\r", b"disk/")
                daemon.kill()
                line(b"status\r", b"no daemon")
                line(b"ls luns\r", b"no daemon")
                daemon.start()
                line(b"status\r", b"revision")
                line(b"ls luns\r", b"disk/")
                def is_over():
                    """One that comes before the prompt ends nothing."""
                    if process.poll() is None:
                        os.write(ours, b"\x04")
                    return process.poll() is not None
                wait_for(is_over, 30, "Ctrl-D ends it", 0.3)
                equal(process.returncode, DONE, "exit code after Ctrl-D")
            finally:
                process.kill()
                os.close(ours)


if __name__ == "__main__":
    main()
