#!/usr/bin/env python3
"""What a plan calls online has its effect, on the wire, in the log, in a file or in a metric, and what it calls pending has none
before a restart: every key of the configuration, by the table in rows.py.

    suite.py [--list] [PATTERN...]
"""
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
import iscsi
import scsi
from admin import Api
from faultfs import FaultFs
from harness import check, equal, measured, test
from rows import BASE, LIVE, MIB, PENDING, SECRETS, SUITES, UNSEEN
from tarn import BINARY, IQN, ROOT, Tarn, free_ports


class Whole(Tarn):
    """A Tarn whose command line says nothing but where its configuration is."""

    def command(self):
        super().command()
        return [str(BINARY), "serve", "--config", str(self.dir / "tarn.toml")]

    def environment(self):
        return {name: value for name, value in os.environ.items() if name != "TARN_SOCKET"}


class World:
    """A daemon with the configuration of the table, and a session that stays whatever is changed."""

    def __init__(self):
        self.ports, self.earlier = free_ports(8), {}
        self.fault = FaultFs(8 * MIB)
        self.tarn = Whole(config=self.fill(BASE, is_config=True))
        for name, text in SECRETS.items():
            self.tarn.secret(name, text)
        for name, byte in (("a.img", b"A"), ("a2.img", b"B")):
            (self.tarn.dir / name).write_bytes(byte * 8 * MIB)
        (self.tarn.dir / "pool").mkdir()

    def fill(self, text, is_config=False):
        """With its ports and paths in their places; what a Tarn puts in by itself is left to it in a configuration."""
        values = {f"p{n}": port for n, port in enumerate(self.ports)} | {"fault": self.fault.path}
        if not is_config:
            values |= {"dir": self.tarn.dir, "port": self.tarn.port, "port2": self.tarn.port2}
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", str(value))
        return text

    def __enter__(self):
        self.fault.__enter__()
        self.tarn.__enter__()
        self.api = self.tarn.api(timeout_s=60)
        self.token = self.api.post("tokens", {"name": "a", "role": "admin"})["token"]
        self.text = (self.tarn.dir / "tarn.toml").read_text()
        self.stays = iscsi.Session(self.tarn.port, IQN, timeout_s=20)
        for lun in range(4):
            self.stays.clear_unit_attentions(lun)
        return self

    def __exit__(self, *what):
        # It does not log out: the end waits for it as long as it may, which is not for long.
        if "shutdown_timeout_seconds = 300" in self.text:
            self.stays.close()
        for one in self.earlier.values():
            if hasattr(one, "close"):
                one.close()
        try:
            self.tarn.__exit__(*what)
        finally:
            self.fault.__exit__(*what)

    # What probes ask.

    def metric(self, name):
        text = self.api.good("GET", "/metrics").body.decode()
        return [float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)]

    def remote(self):
        return Api(address=("127.0.0.1", self.ports[4]), token=self.token, timeout_s=20)

    def spec(self, lun):
        return next(one["spec"] for one in self.api.get("luns") if one["spec"]["id"] == lun)

    def status(self, field):
        text = pathlib.Path(f"/proc/{self.tarn.process.pid}/status").read_text()
        return re.search(rf"^{field}:\s*(\S+)", text, re.MULTILINE)[1]

    def touch(self):
        """A change without a difference, which is a revision."""
        self.count = getattr(self, "count", 0) + 1
        self.api.put("config", {"text": self.text + f"# change {self.count}\n"})

    # Changes.

    def change(self, text, effect):
        """Plans and applies; the session that stays has a unit attention at most."""
        plan = self.api.post("plan", {"text": text})
        effects = {step["effect"] for step in plan["steps"]}
        if effect == "refused":
            check(not plan["is_applicable"] and effect in effects, f"the plan: {plan}")
            check(self.api.ask("PUT", "config", {"text": text}).status >= 400, "it is done")
            return
        check(plan["is_applicable"] and plan["steps"], f"the plan: {plan}")
        check(effects == {effect} if effect else "pending" not in effects, f"effects other than {effect}: {plan}")
        self.api.put("config", {"text": text})
        equal(self.api.get("status").get("pending"), None, "what is pending")
        for lun in (0, 1):
            self.stays.clear_unit_attentions(lun)
            check(self.stays.command(scsi.read16(0, 1), read=512, lun=lun).good, f"a READ of LUN {lun} by the session that stays")
        self.text = text

    def expect(self, row, want):
        got = row.probe(self)
        check(want(got) if callable(want) else got == want, f"{got!r} where {'other' if callable(want) else repr(want)} is expected")
        return got

    def run(self, row):
        old, new = self.fill(row.old), self.fill(row.new)
        check(old in self.text, f"{old!r} is not in\n{self.text}")
        text, changed = self.text, self.text.replace(old, new)
        before = self.expect(row, row.before)
        self.change(changed, row.effect)
        if row.effect == "refused":
            equal(row.probe(self), before, "what shows after a change that was refused")
            return
        after = self.expect(row, row.after)
        check(after != before or row.before == row.after, f"nothing shows: {after!r}")
        if row.returns:
            self.change(text, row.effect)
            equal(row.probe(self), before, "what shows when the change is taken back")


def keys():
    """All keys as the reference has them, which a unit test compares with the program; those of the process with when a value
    takes effect."""
    found, section = {}, None
    for line in (ROOT / "docs/reference/configuration.md").read_text().splitlines():
        if line.startswith("### "):
            section = line[4:]
            section = section.strip("`") if section.startswith("`") else section
        if section and line.startswith("| `"):
            cells = line.strip("| ").split(" | ")
            found[f"{section} {cells[0].strip('`')}"] = cells[-1]
    check(len(found) > 100, f"keys of the reference: {found}")
    return found


@test
def the_table_has_every_key_and_says_what_the_reference_says():
    """A key without a row fails here. What is looked at elsewhere names a test that is there, what is not looked at its reason."""
    all_keys = {key: when for key, when in keys().items() if not key.startswith(("the file ", "table `hyperscsi` "))}
    live, pending = ({row.key for row in rows} for rows in (LIVE, PENDING))
    named = live | pending | set(SUITES) | set(UNSEEN)
    equal(sorted(set(all_keys) - named), [], "keys without a row")
    equal(sorted(key for key in named - set(all_keys) if not key.startswith("[[lun]] store ")), [], "rows without a key")
    for key in live:
        check(all_keys.get(key) != "after a restart", f"{key} is live and waits for a restart")
    for key in pending:
        equal(all_keys[key], "after a restart", f"when {key} takes effect")
    for where in SUITES.values():
        file, name = where.split()
        check(f"def {name}(" in (ROOT / "tests" / file).read_text(), f"{where} is not there")


def add_live(number, first, last):
    """A test of a part of the table, with a daemon of its own."""
    rows = LIVE[first:last]

    def run():
        with World() as world:
            for row in rows:
                try:
                    world.run(row)
                except (harness.Failure, iscsi.LoginError, iscsi.ProtocolError, iscsi.Timeout, iscsi.Closed, OSError) as error:
                    raise harness.Failure(f"{row.key}: {error!r}") from error
            measured(f"{len(rows)} keys")
    run.__doc__ = f"From {rows[0].key} to {rows[-1].key}: the plan says online, what shows differs before and after, and back; " \
                  "a session that is not meant stays."
    harness.add(f"part_{number}_of_the_table_has_its_effect_at_once", run, 180)


PARTS = 3
for part in range(PARTS):
    add_live(part + 1, part * len(LIVE) // PARTS, (part + 1) * len(LIVE) // PARTS)


@test(limit_s=120)
def what_is_pending_has_its_effect_after_a_restart_and_none_before():
    """All such keys change at once. Plan and status name each; what shows is as before until the restart."""
    with World() as world:
        text = world.text
        for row in PENDING:
            world.expect(row, row.before)
            check(world.fill(row.old) in text, f"{row.old!r} is not in\n{text}")
            text = text.replace(world.fill(row.old), world.fill(row.new))
        plan = world.api.post("plan", {"text": text})
        names = {row.key.split()[-1] for row in PENDING}
        equal({step["name"]: step["effect"] for step in plan["steps"]}, dict.fromkeys(names, "pending"), "the plan")
        world.api.put("config", {"text": text})
        pending = world.api.get("status")["pending"]
        equal(len(pending), len(PENDING), f"what is pending: {pending}")
        for row in PENDING:
            world.expect(row, row.before)
        world.stays.close()
        equal(world.tarn.terminate(), 0, "exit code")
        world.tarn.config, world.tarn.socket = text, world.tarn.dir / "other.sock"
        world.tarn.start()
        world.api = world.tarn.api()
        equal(world.api.get("status").get("pending"), None, "what is pending after the restart")
        for row in PENDING:
            world.expect(row, row.after)
        # The last key: nobody can be asked any more, and initiators are served.
        without = text.replace("[admin]\n", "[admin]\nenabled = false\n")
        world.api.put("config", {"text": without})
        equal(world.api.get("status")["pending"], ["[admin] enabled: true -> false"], "what is pending")
        equal(world.tarn.terminate(), 0, "exit code")
        world.tarn.config = without
        world.tarn.start()
        check(not world.tarn.socket.exists(), "there is a socket of the administration")
        with iscsi.Session(world.tarn.port, IQN, timeout_s=20) as session:
            session.clear_unit_attentions()
            check(session.command(scsi.read16(0, 1), read=512).good, "a READ without an administration")


if __name__ == "__main__":
    harness.main()
