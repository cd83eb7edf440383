#!/usr/bin/env python3
"""State directories of earlier versions: how one is made, and what a daemon shows of one.

    TARN_BIN=OLD_TARN tests/change/kept.py DIRECTORY     makes the fixture in DIRECTORY

A fixture is the configuration with its state directory, {dir}, {port} and {port2} standing for what differs from place to
place, and `facts.json`: what initiators and administrators saw when the version that made it had started on it.
"""
import itertools
import json
import pathlib
import re
import shutil
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import admin
import iscsi
import scsi
from harness import check, equal
from tarn import BINARY, Tarn

NAME = "iqn.2026-11.example.tarn"
DISKS, OTHER, LOCKED = (f"{NAME}:{name}" for name in ("disks", "other", "locked"))
USER, SECRET = "alice", "twelve-or-more"
# The directory of a configuration's history and secrets is called after its path; in a fixture it is called so.
OF_CONFIG = "CONFIG"
CONFIG = f"""
[admin]
listen = ["127.0.0.1:{{port2}}"]
tls = false

[[lun]]
id = "shared"
store = "file:{{dir}}/shared.img?size=1M"

[[lun]]
id = "modes"
store = "file:{{dir}}/modes.img?size=1M"

[[lun]]
id = "both"
store = "file:{{dir}}/both.img?size=1M"

[[lun]]
id = "unkept"
store = "file:{{dir}}/unkept.img?size=1M"

[[target]]
name = "{DISKS}"
portals = ["127.0.0.1:{{port}}"]
luns = [{{ lun = 0, id = "shared" }}, {{ lun = 1, id = "modes" }}, {{ lun = 2, id = "both" }}, {{ lun = 3, id = "unkept" }}]

[[target]]
name = "{OTHER}"
portals = ["127.0.0.1:{{port}}"]
luns = [{{ lun = 0, id = "shared" }}, {{ lun = 2, id = "both" }}]
"""
SHARED, MODES, BOTH, UNKEPT = range(4)
LUNS = {DISKS: (SHARED, MODES, BOTH, UNKEPT), OTHER: (SHARED, BOTH), LOCKED: (MODES,)}
REGISTER, RESERVE, PREEMPT = 0, 1, 4
WRITE_EXCLUSIVE_REGISTRANTS_ONLY, EXCLUSIVE_ACCESS = 5, 3
READ_KEYS, READ_RESERVATION, READ_FULL_STATUS = 0, 1, 3
PAGES = {"caching": 0x08, "control": 0x0A}


class Kept(Tarn):
    """A Tarn on a configuration file and a state directory that are there already."""

    def __init__(self, fixture=None):
        super().__init__(config="")
        if fixture:
            copy(fixture, self.dir, lambda text: replaced(text, self.places()))
            # Its disks were there when it was stopped: none that is missing is made.
            for name in re.findall(r'file:\{dir\}/(\S+\.img)\?size=1M', (fixture / "tarn.toml").read_text()):
                (self.dir / name).write_bytes(bytes(1 << 20))

    def command(self):
        return [str(BINARY), "serve", "--config", str(self.dir / "tarn.toml"), "--state", str(self.dir / "state")]

    def ready(self):
        return super().ready() and self.administers()

    def remote(self, token):
        return admin.Api(address=("127.0.0.1", self.port2), plain=True, token=token)

    def places(self):
        """What stands in a fixture for what is here."""
        return [("{dir}", str(self.dir)), ("{port2}", str(self.port2)), ("{port}", str(self.port)),
                (OF_CONFIG, f"{self.dir}/tarn.toml".strip("/").replace("-", "--").replace("/", "-"))]

    def initiator(self, number, target=DISKS, **options):
        """Its name and ISID are always the same, so that it is the same I_T nexus."""
        session = iscsi.Session(self.port, target, initiator=f"{NAME}:init-{number}", isid=b"\x80\x00\x00\x00\x00" + bytes([number]),
                                **options)
        for lun in LUNS[target]:
            session.clear_unit_attentions(lun)
        return session


def replaced(text, places):
    for old, new in places:
        text = text.replace(old, new)
    return text


def copy(source, to, change):
    """Copies what is text with `change`, in its name too, and all else as it is."""
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        content = path.read_bytes()
        target = to / change(str(path.relative_to(source)))
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        target.touch(mode=0o600)
        target.write_bytes(content if path.name.startswith("saved") else change(content.decode()).encode())


def reserve_out(session, lun, action, key=0, new_key=0, kind=0, aptpl=True):
    parameters = struct.pack(">QQ4xBB2x", key, new_key, 1 if aptpl else 0, 0)
    cdb = struct.pack(">BBB2xIB", 0x5F, action, kind, len(parameters), 0)
    session.clear_unit_attentions(lun)
    outcome = session.command(cdb, write=parameters, lun=lun)
    check(outcome.good, f"PERSISTENT RESERVE OUT {action} of {session.initiator}: {outcome}")


def clear_write_cache(session, lun):
    """MODE SELECT with SP: WCE of the caching page is saved as 0."""
    data = session.command(bytes([0x1A, 0x08, 0x08, 0, 255, 0]), read=255, lun=lun).data
    page = bytearray(data[4 + data[3]:])
    page[0] &= 0x3F
    page[2] &= ~0x04
    parameters = bytes(4) + bytes(page)
    outcome = session.command(bytes([0x15, 0x11, 0, 0, len(parameters), 0]), write=parameters, lun=lun)
    check(outcome.good, f"MODE SELECT: {outcome}")


def facts(tarn):
    """What initiators and administrators see of all that is kept."""
    identity = {"serial number": scsi.inquiry(0x80), "designators": scsi.inquiry(0x83)}
    reservations = {name: struct.pack(">BB5xHB", 0x5E, action, 4096, 0) for name, action in
                    (("keys and generation", READ_KEYS), ("reservation", READ_RESERVATION), ("full status", READ_FULL_STATUS))}
    modes = {f"{name} page, {what}": bytes([0x1A, 0x08, control << 6 | page, 0, 255, 0])
             for name, page in PAGES.items() for what, control in (("current", 0), ("saved", 3))}
    seen = {}

    def ask(session, luns, questions):
        for lun, (name, cdb) in itertools.product(luns, questions.items()):
            outcome = session.command(cdb, read=4096, lun=lun)
            check(outcome.good, f"LUN {lun}, {name}: {outcome}")
            seen[f"LUN {lun}: {name}"] = outcome.data.hex()
    with tarn.initiator(9) as anybody, tarn.initiator(3, OTHER) as holder:
        ask(anybody, LUNS[DISKS], identity | reservations)
        ask(anybody, (MODES, UNKEPT), modes)
        ask(holder, (SHARED, BOTH), modes)
    api = tarn.api()
    history = sorted(api.get("config/history"), key=lambda one: one["revision"])
    here = [(new, old) for old, new in tarn.places()]
    seen["history"] = [{name: one.get(name) for name in ("revision", "applied_ms", "author", "comment", "summary")} for one in history]
    documents = [api.get(f"config/history/{one['revision']}")["text"] for one in history]
    seen["documents"] = [replaced(text, here) for text in documents]
    seen["document in force"] = replaced(api.get("config")["text"], here)
    seen["tokens"] = [{name: one[name] for name in ("name", "role", "made_ms")} for one in api.get("tokens")]
    return seen


def fill(tarn):
    """Gives the daemon everything that is kept. Returns the tokens."""
    with tarn.initiator(1) as one, tarn.initiator(2) as two, tarn.initiator(3, OTHER) as three, tarn.initiator(4) as four:
        for key, session in ((0x11, one), (0x22, two), (0x33, three), (0x44, four)):
            reserve_out(session, SHARED, REGISTER, new_key=key)
        reserve_out(two, SHARED, RESERVE, 0x22, kind=WRITE_EXCLUSIVE_REGISTRANTS_ONLY)
        reserve_out(one, SHARED, PREEMPT, 0x11, 0x44, kind=WRITE_EXCLUSIVE_REGISTRANTS_ONLY)
        clear_write_cache(one, MODES)
        clear_write_cache(three, BOTH)
        reserve_out(one, BOTH, REGISTER, new_key=0x55)
        reserve_out(three, BOTH, REGISTER, new_key=0x66)
        reserve_out(three, BOTH, RESERVE, 0x66, kind=EXCLUSIVE_ACCESS)
        reserve_out(one, UNKEPT, REGISTER, new_key=0x77, aptpl=False)
        reserve_out(one, UNKEPT, RESERVE, 0x77, kind=EXCLUSIVE_ACCESS)
    api = tarn.api()
    api.put(f"users/{USER}", {"name": USER, "secret": SECRET})
    locked = f'\n[[target]]\nname = "{LOCKED}"\nportals = ["127.0.0.1:{tarn.port}"]\nauth = ["{USER}"]\nluns = [{{ lun = 1, id = "modes" }}]\n'
    kept = api.put("config", {"text": api.get("config")["text"] + locked, "comment": "a target for alice"})
    more = api.get("config")["text"] + '\n[[lun]]\nid = "more"\nstore = "mem:1M"\n'
    api.put("config", {"text": more, "comment": "one more disk"})
    api.post("config/rollback", {"revision": kept["revision"]})
    return {role: api.post("tokens", {"name": role, "role": role})["token"] for role in ("admin", "viewer")}



def make(directory):
    shutil.rmtree(directory, ignore_errors=True)
    tarn = Kept()
    (tarn.dir / "tarn.toml").write_text(replaced(CONFIG, tarn.places()))
    with tarn:
        tokens = fill(tarn)
        equal(tarn.terminate(), 0, "exit code")
        tarn.start()
        seen = {**facts(tarn), "token texts": tokens}
        equal(tarn.terminate(), 0, "exit code")
        here = [(new, old) for old, new in tarn.places()]
        copy(tarn.dir / "state", directory / "state", lambda text: replaced(text, here))
        (directory / "tarn.toml").write_text(replaced((tarn.dir / "tarn.toml").read_text(), here))
        (directory / "facts.json").write_text(json.dumps(seen, indent=1) + "\n")
        tarn.start()


if __name__ == "__main__":
    make(pathlib.Path(sys.argv[1]))
