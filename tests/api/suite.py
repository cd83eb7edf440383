#!/usr/bin/env python3
"""The administration of a running daemon, by its API: what it changes is real, who may not is refused, and whatever comes in
is answered and bounded, while disks are served.

    suite.py [--list] [PATTERN...]
"""
import collections
import contextlib
import http.client
import json
import os
import pathlib
import re
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import admin
import harness
import iscsi
import scsi
from admin import Api, name
from harness import check, equal, measured, skip, test, wait_for
from tarn import BINARY, IQN, ROOT, Tarn, free_port, listens, target_section

MIB = 1 << 20
ADMIN = """
[admin]
listen = ["127.0.0.1:{port2}"]
tls = false
"""
ONE = ADMIN + """
[[lun]]
id = "disk"
store = "mem:16M"

[[target]]
name = "%s"
portals = ["127.0.0.1:{port}"]
luns = [{ lun = 0, id = "disk" }]
""" % IQN
EXPORT = '[[lun]]\nid = "plain"\nstore = "mem:16M"\n[[nbd]]\nsocket = "{dir}/nbd.sock"\nluns = ["plain"]\n' + target_section("plain")
WRITERS = 16
MONITORING = ROOT / "packaging/monitoring"
VENV = ROOT / "target/schemathesis"
SCHEMATHESIS = "schemathesis>=4,<5"


def with_export(server):
    """A configuration whose LUN 1 is the export of a server."""
    lun = f'[[lun]]\nid = "export"\nstore = "nbd+unix:///plain?socket={server.dir}/nbd.sock&retry=0"\n\n'
    return ONE.replace("[[target]]", lun + "[[target]]").replace('id = "disk" }]', 'id = "disk" }, { lun = 1, id = "export" }]')


class Daemon(Tarn):
    """A Tarn whose administration listens at `port2` too, in the plain."""

    def __init__(self, config=ONE, **options):
        super().__init__(config=config, **options)

    def command(self):
        """The file is written once; from then on it is the daemon's."""
        file = self.dir / "tarn.toml"
        if file.exists():
            return [str(BINARY), "serve", "--config", str(file), "--state", str(self.dir / "state")]
        return super().command()

    def ready(self):
        return self.administers()

    def remote(self, role=None, **options):
        """Asks over TCP, with a new token of this role."""
        token = self.token(role) if role else None
        return Api(address=("127.0.0.1", self.port2), plain=True, token=token, **options)

    def token(self, role):
        tokens = self.api().get("tokens")
        return self.api().post("tokens", {"name": f"{role}-{len(tokens)}", "role": role})["token"]

    @contextlib.contextmanager
    def session(self, target=IQN, **options):
        """A session whose unit attentions at LUN 0, if it is there, are taken."""
        with iscsi.Session(self.port, target, timeout_s=10, **options) as session:
            session.clear_unit_attentions()
            yield session


def refused(status, kind, call, *arguments, **options):
    """The answer to a question that must be refused."""
    answer = call(*arguments, **options)
    equal((answer.status, answer.kind), (status, kind), f"{arguments[:2]}")
    equal(answer.headers["Content-Type"], "application/problem+json", "Content-Type of a problem")
    return answer


# From nothing to a disk.


@test
def from_nothing_to_a_disk():
    """A daemon without a target becomes one with a disk that iscsi-inq reads; the file says so, and a restart keeps it."""
    with Daemon(config=ADMIN) as tarn:
        api = tarn.api()
        equal(api.get("luns"), [], "LUNs at first")
        (tarn.dir / "disk.img").write_bytes(bytes(8 * MIB))
        answer = api.good("PUT", "luns/one", {"id": "one", "store": "disk.img", "serial": "S-1"})
        equal((answer.status, answer.etag), (201, 2), "status and revision of a LUN that was made")
        target = {"name": IQN, "portals": [{"bind": f"127.0.0.1:{tarn.port}"}], "luns": [{"lun": 3, "id": "one"}]}
        equal(api.good("PUT", f"targets/{name(IQN)}", target).status, 201, "status of a target that was made")
        out = subprocess.run(["iscsi-inq", "-e", "1", "-c", "128", tarn.url(3)], capture_output=True, text=True, timeout=20).stdout
        check("S-1" in out, out)
        with tarn.session() as session:
            session.clear_unit_attentions(3)
            check(session.command(scsi.write10(0, 1), write=b"x" * 512, lun=3).good, "WRITE")
        equal((tarn.dir / "disk.img").read_bytes()[:512], b"x" * 512, "what the file holds")
        equal((tarn.dir / "tarn.toml").read_text(), api.get("config")["text"], "the file and the document")
        equal(tarn.terminate(), 0, "exit code")
        tarn.start()
        equal([lun["spec"]["id"] for lun in api.get("luns")], ["one"], "LUNs after a restart")
        with tarn.session() as session:
            session.clear_unit_attentions(3)
            equal(session.command(scsi.read10(0, 1), read=512, lun=3).data, b"x" * 512, "the data after a restart")


@test
def everything_can_be_made_changed_and_removed():
    """LUNs, targets, LUN numbers, portals, groups and users: each by a PUT that is taken again without a change, each gone
    by a DELETE, and 404 after it."""
    with Daemon() as tarn:
        api = tarn.api()
        target = f"targets/{name(IQN)}"
        for path, made, changed in [
            ("luns/two", {"id": "two", "store": "mem:8M"}, None),
            ("groups/hosts", {"id": "hosts", "initiators": ["iqn.2026-11.example:*"]},
             {"id": "hosts", "initiators": ["iqn.2026-11.example:*", "192.0.2.0/24"]}),
            ("users/alice", {"name": "alice", "secret": "twelve-or-more"}, {"name": "alice", "secret": "twelve-and-more"}),
            (f"{target}/luns/7", {"lun": 7, "id": "two"}, {"lun": 7, "id": "two", "readonly": True}),
            (f"{target}/portals/{name('127.0.0.2:' + str(free_port()))}", None, None),
        ]:
            if made is None:
                made = {"bind": admin.urllib.parse.unquote(path.rsplit("/", 1)[1])}
            before = api.get("config")["revision"]
            equal(api.good("PUT", path, made).status, 201, f"status of {path}")
            again = api.good("PUT", path, made)
            equal((again.status, again.json["steps"], again.etag), (200, [], before + 1), f"{path} again")
            if changed:
                once_more = api.good("PUT", path, changed)
                equal((once_more.status, once_more.etag), (200, before + 2), f"{path} changed")
        for path in [f"{target}/luns/7", "luns/two", "groups/hosts", "users/alice", target]:
            api.delete(path)
            refused(404, "not-found", api.ask, "DELETE", path)
        equal([lun["spec"]["id"] for lun in api.get("luns")], ["disk"], "what is left")
        check("twelve" not in api.get("config")["text"], "a secret is in the document")
        check("twelve" not in tarn.log(), "a secret is in the log")


@test
def a_disk_grows_and_is_renamed_while_it_works():
    """POST resize and rename: an open session goes on and is told; the identity stays."""
    with Daemon(config=ONE.replace("mem:16M", "disk.img?size=16M")) as tarn:
        api = tarn.api()
        before = api.get("luns/disk")
        with tarn.session() as session:
            session.clear_unit_attentions()
            api.post("luns/disk/resize", {"size_bytes": 32 * MIB})
            sense = session.command(scsi.test_unit_ready()).sense
            equal((sense.key, *sense.code), (6, 0x2a, 0x09), "unit attention")
            api.post("luns/disk/rename", {"id": "drive"})
            check(session.command(scsi.read10(0, 1), read=512).good, "READ after the rename")
        after = api.get("luns/drive")
        equal((after["size_bytes"], after["serial"], after["naa"]), (32 * MIB, before["serial"], before["naa"]), "the disk")
        refused(404, "not-found", api.ask, "GET", "luns/disk")


@test
def events_and_the_log_know_a_disk_by_its_new_name():
    """What happens to a disk after a rename is told with the name it has then, and its identity stays."""
    with Daemon(config=ONE.replace("mem:16M", "disk.img?size=16M")) as tarn:
        api = tarn.api()
        with tarn.session() as session:
            identity = session.command(scsi.inquiry(page=0x83), read=255).data
            api.post("luns/disk/rename", {"id": "drive"})
            api.post("luns/drive/resize", {"size_bytes": 32 * MIB})
            sense = session.command(scsi.test_unit_ready()).sense
            equal((sense.key, *sense.code), (6, 0x2a, 0x09), "the only unit attention")
            equal(session.command(scsi.inquiry(page=0x83), read=255).data, identity, "the identity")
        resized = [event["lun"] for event in api.get("events?after=0&most=1000") if event["kind"] == "lun-resized"]
        equal(resized, ["drive"], "the LUN of the event")
        tarn.await_log("the size of a unit changed")
        line = next(line for line in tarn.log().splitlines() if "the size of a unit changed" in line)
        check("drive" in line and "disk" not in line, line)


@test
def a_plan_changes_nothing_and_a_rollback_is_a_new_revision():
    """POST plan tells the steps; history and rollback lead back to any revision."""
    with Daemon() as tarn:
        api = tarn.api()
        first = api.get("config")
        text = first["text"] + '\n[[lun]]\nid = "more"\nstore = "mem:1M"\n'
        plan = api.post("plan", {"text": text})
        equal([(step["action"], step["kind"], step["name"], step["effect"]) for step in plan["steps"]],
              [("add", "lun", "more", "online")], "steps")
        equal(api.get("config"), first, "the document after a plan")
        api.put("config", {"text": text, "comment": "one more"})
        applied = api.post("config/rollback", {"revision": first["revision"]})
        equal((applied["revision"], api.get("config")["text"]), (3, first["text"]), "after the rollback")
        history = api.get("config/history")
        equal([one["revision"] for one in history], [3, 2, 1], "history")
        equal((history[1]["author"], history[1]["comment"]), (f"uid {os.getuid()}", "one more"), "who and why")
        equal(api.get("config/history/2")["text"], text, "an old document")
        refused(404, "not-found", api.ask, "POST", "config/rollback", {"revision": 99})
        broken = refused(422, "invalid-config", api.ask, "PUT", "config", {"text": "[[lun]]\nid = 1\n"})
        places = [one["place"].split(":", 1)[1] for one in broken.json["mistakes"]]
        equal(places, ["1: lun[0]", "2: lun[0].id"], f"places of {broken}")


@test
def point_1_plans_say_all_that_is_wrong_and_what_they_did_not_look_at():
    """A text with several mistakes is answered with all of them, by plan and by change. An admin's plan has what only a look shows,
    an operator's says that it has not looked, and by edits it is the same."""
    with Daemon() as tarn:
        api = tarn.api()
        text = api.get("config")["text"]
        wrong = text + '[[lun]]\nid = "a/b"\nstore = "mem:10X"\n[[user]]\nname = "u"\ncolour = "red"\n'
        for method, path in (("POST", "plan"), ("PUT", "config")):
            answer = refused(422, "invalid-config", api.ask, method, path, {"text": wrong}).json
            keys = [one["place"].rsplit(": ", 1)[-1] for one in answer["mistakes"]]
            equal(keys, ["lun[1].id", "lun[1].store", "user[0]", "user[0]"], f"places of {answer}")
            equal((answer["place"], answer["detail"]), (answer["mistakes"][0]["place"], answer["mistakes"][0]["detail"]), "the first")
        elsewhere = {"edits": [{"add": {"lun": {"id": "far", "store": f"file:{tarn.dir}/none/a.img?size=1M"}}},
                               {"add": {"portal": {"target": IQN, "portal": {"bind": "192.0.2.77:3260"}}}}]}
        plan = api.post("config/edits?plan=true", elsewhere)
        equal((plan["is_applicable"], plan["outcome"], len(plan["mistakes"])), (False, "invalid-config", 2), f"the plan: {plan}")
        check(all(step["effect"] == "refused" for step in plan["steps"]), plan["steps"])
        answer = refused(422, "invalid-config", api.ask, "POST", "config/edits", elsewhere)
        equal(answer.json["mistakes"], plan["mistakes"], "mistakes of the change")
        seen = tarn.remote("operator").post("config/edits?plan=true", elsewhere)
        equal((seen["is_applicable"], seen.get("mistakes"), seen.get("outcome")), (True, None, None), "the plan of an operator")
        check("the store of far" in seen["not_probed"] and any("192.0.2.77" in one for one in seen["not_probed"]), seen["not_probed"])
        check(any("below admin" in warning for warning in seen["warnings"]), seen["warnings"])
        equal(plan.get("not_probed"), None, "what an admin's plan has not looked at")


def steps_of(answer):
    """What a plan or a change says that it does, without the sessions that come and go."""
    return [(step["action"], step["kind"], step["name"], step["detail"], step["effect"]) for step in answer["steps"]]


@test
def every_change_can_be_planned_first():
    """?plan=true on each route that changes the configuration tells the steps that the change then makes, and changes nothing;
    a change of something else is refused with it, and not made."""
    with Daemon() as tarn:
        api = tarn.api()
        target = f"targets/{name(IQN)}"
        other, bind = "iqn.2026-11.example.tarn:other", f"127.0.0.2:{free_port()}"
        place = f"127.0.0.1:{free_port()}"
        nbd, lun = f"127.0.0.1:{free_port()}", api.get("luns")[0]["spec"]["id"]
        text = api.get("config")["text"]
        changes = [
            ("PUT", "luns/two", {"id": "two", "store": "two.img?size=8M"}),
            ("POST", "luns/two/resize", {"size_bytes": 9 * MIB}),
            ("POST", "luns/two/rename", {"id": "deux"}),
            ("PUT", f"{target}/luns/7", {"lun": 7, "id": "deux"}),
            ("DELETE", f"{target}/luns/7", None),
            ("PUT", f"hyperscsi/{name(f'G at udp:{place}')}", {"name": "G", "udp": place, "open": True, "device": [{"id": lun}]}),
            ("PUT", "hyperscsi/G/devices/deux", {"id": "deux", "level": "crc"}),
            ("DELETE", "hyperscsi/G/devices/deux", None),
            ("DELETE", "hyperscsi/G", None),
            ("DELETE", "luns/deux", None),
            ("PUT", f"{target}/portals/{name(bind)}", {"bind": bind}),
            ("DELETE", f"{target}/portals/{name(bind)}", None),
            ("PUT", "groups/hosts", {"id": "hosts", "initiators": ["iqn.2026-11.example:*"]}),
            ("DELETE", "groups/hosts", None),
            ("PUT", "users/alice", {"name": "alice", "secret": "twelve-or-more"}),
            ("DELETE", "users/alice", None),
            ("PUT", "stores/part", {"id": "part", "store": "mem:1M"}),
            ("DELETE", "stores/part", None),
            ("PUT", f"nbd/{name(nbd)}", {"bind": nbd, "luns": [lun]}),
            ("DELETE", f"nbd/{name(nbd)}", None),
            ("PUT", "quotas/owner%3Aalice", {"owner": "alice", "provisioned": "1G"}),
            ("DELETE", "quotas/owner%3Aalice", None),
            ("PUT", f"targets/{name(other)}", {"name": other, "portals": [{"bind": f"127.0.0.1:{free_port()}"}]}),
            ("DELETE", f"targets/{name(other)}", None),
            ("POST", "config/edits", {"edits": [{"add": {"lun": {"id": "x", "store": "mem:1M"}}}]}),
            ("PUT", "config", {"text": text}),
            ("POST", "config/rollback", "the one before"),
        ]
        secrets = tarn.dir / "state/secrets"
        kept = lambda: sorted(secrets.rglob("*"))
        for method, path, body in changes:
            if body == "the one before":
                body = {"revision": api.get("config")["revision"] - 1}
            before = (api.get("config"), api.get("luns"), kept())
            plan = api.good(method, f"{path}?plan=true", body)
            check(plan.json["is_applicable"] and plan.json["steps"], f"{method} {path}: {plan.json}")
            equal((api.get("config"), api.get("luns"), kept()), before, f"after a plan of {method} {path}")
            refused(412, "revision-mismatch", api.ask, method, f"{path}?plan=true", body, If_Match='"999"')
            done = api.good(method, f"{path}?plan=false", body)
            equal(steps_of(done.json), steps_of(plan.json), f"steps of {method} {path}")
        document = api.get("openapi.json")
        planned = {(method.upper(), path) for path, item in document["paths"].items() for method, operation in item.items()
                   if any(field["name"] == "plan" for field in operation.get("parameters", []))}
        equal(len(planned), len(changes), f"routes that can be planned: {planned}")
        with tarn.session() as session:
            one = api.get("sessions")[0]["id"]
            refused(400, "bad-request", api.ask, "DELETE", f"sessions/{one}?plan=true")
            refused(400, "bad-request", api.ask, "POST", "tokens?plan=true", {"name": "t", "role": "viewer"})
            refused(400, "bad-request", api.ask, "DELETE", "luns/disk?plan=yes")
            told = refused(400, "bad-request", api.ask, "DELETE", "sessions/nine").json["detail"]
            check("nine" in told and "a whole number from 0" in told, told)
            check(session.command(scsi.test_unit_ready()).good, "the session is gone")
        equal(api.get("tokens"), [], "tokens")


@test
def edits_are_made_together_or_not_at_all():
    """POST config/edits: one revision for all, nothing when one of them fails, and what nobody edits stays to the byte."""
    note = "# what nobody edits\n[limits]   # unusual\nqueue_depth = 64 # few\n\n"
    with Daemon(config=note + ONE) as tarn:
        api = tarn.api()
        target = {"target": IQN}
        edits = [
            {"add": {"lun": {"id": "two", "store": "mem:8M"}}},
            {"add": {"group": {"id": "lab", "initiators": ["iqn.2026-11.example:*"]}}},
            {"add": {"user": {"name": "alice", "secret": "twelve-or-more"}}},
            {"add": {"view": {**target, "id": "two", "groups": ["lab"]}}},
            {"rename": {"lun": "two", "id": "deux"}},
            {"set": {"target": {"name": IQN, "alias": "the disks"}}},
        ]
        broken = [*edits, {"remove": {"lun": "absent"}}]
        before = api.get("config")
        answer = refused(404, "not-found", api.ask, "POST", "config/edits", {"edits": broken})
        equal(answer.json["place"], "edits[6]", "the edit that failed")
        equal(api.get("config"), before, "after edits of which one fails")
        equal(list((tarn.dir / "state/secrets").rglob("*.secret")), [], "secrets of edits that failed")
        applied = api.post("config/edits", {"edits": edits, "comment": "all of it"})
        equal(applied["revision"], before["revision"] + 1, "revisions")
        equal(api.get("config/history")[0]["comment"], "all of it", "the comment")
        text = api.get("config")["text"]
        check(text.startswith(note), text)
        check("twelve" not in text, "a secret is in the document")
        view = next(view for view in api.get(f"targets/{name(IQN)}")["spec"]["luns"] if view["id"] == "deux")
        equal((view["lun"], view["groups"]), (1, ["lab"]), "the lowest free number")
        equal(api.post("config/edits", {"edits": []})["revision"], applied["revision"], "no edits")
        operator = tarn.remote("operator")
        equal(operator.post("config/edits?plan=true", {"edits": [{"remove": {"user": "alice"}}]})["is_applicable"], True, "a plan")
        refused(403, "forbidden", operator.ask, "POST", "config/edits", {"edits": [{"remove": {"user": "alice"}}]})
        operator.post("config/edits", {"edits": [{"rename": {"lun": "deux", "id": "two"}}]})
        viewer = tarn.remote("viewer")
        refused(403, "forbidden", viewer.ask, "POST", "config/edits?plan=true", {"edits": []})
        # Whether a secret is the one that is kept already is not for an operator to find out.
        same, other = ({"edits": [{"set": {"user": {"name": "alice", "secret": text}}}]} for text in ("twelve-or-more", "twelve-or-less"))
        equal(*(steps_of(operator.post("config/edits?plan=true", edits)) for edits in (same, other)), "plans with secrets")


@test
def edits_that_rename_several_luns_keep_their_data_and_identity():
    """Two equal disks renamed by an operator in one request are what they were; swaps, chains and a resize of memory are refused."""
    memory = '[[lun]]\nid = "%s"\nstore = "mem:16M"\n'
    config = ADMIN + memory % "a" + memory % "b" + '[[lun]]\nid = "f"\nstore = "f.img?size=16M"\n' + target_section("a", "b", "f")
    with Daemon(config=config) as tarn, tarn.session() as session:
        operator = tarn.remote("operator")

        def rename(*renames):
            edits = [{"rename": {"lun": old, "id": new}} for old, new in renames]
            return operator.ask("POST", "config/edits", {"edits": edits})

        def disks():
            found = []
            for lun in range(3):
                session.clear_unit_attentions(lun)
                serial = session.command(scsi.inquiry(page=0x80), read=255, lun=lun).data
                found.append((session.command(scsi.read10(0, 1), read=512, lun=lun).data, serial))
            return found

        for lun in range(3):
            session.clear_unit_attentions(lun)
            check(session.command(scsi.write10(0, 1), write=bytes([0xA0 + lun]) * 512, lun=lun).good, "WRITE")
        before = disks()
        equal(rename(("a", "z"), ("b", "y")).status, 200, "two renames")
        equal(disks(), before, "the disks after two renames")
        for renames in [(("z", "t"), ("y", "z")), (("z", "t"), ("y", "z"), ("t", "y"))]:
            answer = rename(*renames)
            equal((answer.status, answer.kind), (409, "refused"), f"{renames}")
            check("free it in one change" in answer.json["detail"], answer.json["detail"])
        both = lambda lun, new: [{"resize": {"lun": lun, "size_bytes": 32 * MIB}}, {"rename": {"lun": lun, "id": new}}]
        refused(409, "refused", operator.ask, "POST", "config/edits", {"edits": both("z", "m")})
        equal(disks(), before, "the disks after what was refused")
        operator.post("config/edits", {"edits": both("f", "g")})
        equal(disks(), before, "the disks after a file was resized and renamed")
        equal([(lun["spec"]["id"], lun["size_bytes"]) for lun in tarn.api().get("luns")],
              [("z", 16 * MIB), ("y", 16 * MIB), ("g", 32 * MIB)], "LUNs")


# Who writes at the same time.


@test
def a_change_of_an_old_revision_is_refused():
    """If-Match names the revision a change starts from: 412 for another one, and nothing is changed."""
    with Daemon() as tarn:
        api = tarn.api()
        lun = {"id": "two", "store": "mem:1M"}
        answer = refused(412, "revision-mismatch", api.ask, "PUT", "luns/two", lun, If_Match='"7"')
        equal((answer.json["revision"], api.get("config")["revision"]), (1, 1), "the revision that runs")
        equal(api.good("PUT", "luns/two", lun, If_Match='"1"').etag, 2, "the next revision")
        refused(400, "bad-request", api.ask, "PUT", "luns/two", lun, If_Match="two")


@test(limit_s=180)
def sixteen_writers_lose_nothing():
    """16 at once: half edit resources, half read the document, add to it and write it back with If-Match. All is there at
    the end, each revision tells of one change, and an initiator has worked on meanwhile."""
    each = 12
    with Daemon() as tarn:
        failures, conflicts = [], collections.Counter()

        def resources(writer):
            with tarn.api(timeout_s=120) as api:
                for number in range(each):
                    id = f"w{writer}-{number}"
                    api.put(f"groups/{id}", {"id": id, "initiators": [f"iqn.2026-11.example:{id}"]})

        def documents(writer):
            with tarn.api(timeout_s=120) as api:
                for number in range(each):
                    id = f"w{writer}-{number}"
                    while True:
                        now = api.get("config")
                        text = now["text"] + f'\n[[group]]\nid = "{id}"\ninitiators = ["iqn.2026-11.example:{id}"]\n'
                        answer = api.ask("PUT", "config", {"text": text}, If_Match=f'"{now["revision"]}"')
                        if answer.status == 200:
                            break
                        conflicts[answer.status] += 1
                        equal(answer.status, 412, f"writer {writer}")

        def guarded(work, writer):
            try:
                work(writer)
            except Exception as error:  # noqa: BLE001 - told below
                failures.append(f"writer {writer}: {error}")

        threads = [threading.Thread(target=guarded, args=(documents if writer % 2 else resources, writer))
                   for writer in range(WRITERS)]
        with tarn.session() as session:
            for thread in threads:
                thread.start()
            commands = 0
            while any(thread.is_alive() for thread in threads):
                check(session.command(scsi.read10(0, 8), read=4096).good, "READ under 16 writers")
                commands += 1
        equal(failures, [], "failures")
        api = tarn.api()
        wanted = {f"w{writer}-{number}" for writer in range(WRITERS) for number in range(each)}
        equal({group["id"] for group in api.get("groups")}, wanted, "groups")
        equal(api.get("config")["revision"], 1 + len(wanted), "revision")
        equal({len(one["summary"]) for one in api.get("config/history")[:-1]}, {1}, "steps of a revision")
        measured(f"{len(wanted)} changes, {conflicts[412]} made again, {commands} READs meanwhile")


# Who may ask.


@test
def the_socket_is_private():
    """Mode 0600; and if somebody opens it wider, the kernel's word on who connects still keeps others out."""
    with Daemon() as tarn:
        equal(stat.S_IMODE(tarn.socket.stat().st_mode), 0o600, "mode")
        if os.getuid() != 0:
            skip("only root can be somebody else")
        for path in (tarn.dir, tarn.socket):
            path.chmod(0o777)
        equal(as_somebody_else(lambda: answered(tarn.api(timeout_s=5))), False, "uid 65534 is answered")
        check(answered(tarn.api()), "its own user is not")


def as_somebody_else(ask):
    """The truth of what the user 65534 finds."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            status = int(bool(ask()))
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    check(status in (0, 1), f"the child ended with {status}")
    return bool(status)


@test
def tcp_needs_a_token_and_each_role_has_its_own():
    """Loopback too. Every method of every path of the OpenAPI document is asked with every role."""
    ranks = ["metrics", "viewer", "operator", "admin"]
    with Daemon() as tarn:
        document = tarn.api().get("openapi.json")
        nobody = tarn.remote()
        refused(401, "unauthorized", nobody.ask, "GET", "status")
        refused(401, "unauthorized", nobody.ask, "GET", "/metrics")
        equal(nobody.ask("GET", "/healthz").status, 200, "healthz for everybody")
        callers = {role: tarn.remote(role) for role in ranks}
        for role, path, status in [("metrics", "/metrics", 200), ("metrics", "status", 403), ("viewer", "status", 200),
                                   ("viewer", "tokens", 403), ("operator", "tokens", 403), ("admin", "tokens", 200)]:
            equal(callers[role].ask("GET", path).status, status, f"{role} {path}")
        asked = 0
        for path, methods in document["paths"].items():
            for method in methods:
                if path.endswith(("/login", "/logout", "/live")) or method == "get":
                    continue
                for role in ("metrics", "viewer"):
                    # A body that is wrong for all: who may not is told so before it is read.
                    answer = callers[role].ask(method.upper(), re.sub(r"\{\w+\}", "1", path), b"{")
                    equal(answer.status, 403, f"{role} {method} {path}")
                    asked += 1
        equal(tarn.api().get("config")["revision"], 1, "revision")
        measured(f"{asked} changes refused")


@test
def secrets_that_stand_in_the_document_are_for_administrators():
    """The password of a group and what follows the host in the URL of a webhook: no answer that a lower role gets has them, as a
    document, an earlier revision, a finding, an event or a plan, and neither has the log."""
    password, former, path = "correct horse battery", "the one before it", "token/4711"
    text = ONE + f'''
[[hyperscsi.group]]
name = "ABC"
udp = "127.0.0.1:0"
# password = "{former}"
password = "{password}"
device = [{{ id = "disk", level = "crc" }}]

[[notify]]
url = "http://127.0.0.1:1/{path}"
secret_file = "notify.secret"
events = ["admin-change", "config-applied"]
'''
    tarn = Daemon(config=text)
    tarn.secret("notify.secret", "what messages are signed with")
    with tarn:
        api = tarn.api()
        callers = {role: tarn.remote(role) for role in ("metrics", "viewer", "operator", "admin")}
        written = api.get("config")["text"]
        api.put("config", {"text": written + "# a second revision\n"})
        failing = lambda: [one for one in api.get("findings") if one["code"] == "notify-failed"]
        (finding,) = wait_for(failing, 60, "nobody listens at the address of the webhook")
        equal(finding["subject"], "http://127.0.0.1:1", "the subject of the finding")
        documents = ["config", "config/effective", "config/history/1", "config/history/2"]
        for document in documents:
            shown = callers["admin"].get(document)["text"]
            check(path in shown and (password in shown) == ("effective" not in document), f"{document} of an administrator: {shown}")
            check((former in shown) == ("effective" not in document), f"the comments of {document} of an administrator: {shown}")
            for role in ("viewer", "operator"):
                shown = callers[role].get(document)["text"]
                check("(not shown)" in shown and '"http://127.0.0.1:1/(not shown)"' in shown, f"{document} of the {role}: {shown}")
        # As it was shown it is no configuration; in a plan of those who were shown it, it is the one in force.
        shown = callers["operator"].get("config")["text"]
        answer = refused(422, "invalid-config", api.ask, "PUT", "config", {"text": shown})
        check("(not shown)" in answer.json["detail"], answer.json)
        equal(callers["operator"].post("plan", {"text": shown})["steps"], [], "steps to what is shown")
        changed = callers["operator"].post("plan", {"text": shown + '[[group]]\nid = "g"\ninitiators = ["192.0.2.1"]\n'})
        equal([step["name"] for step in changed["steps"]], ["g"], "steps to that and a group")
        # A file that Tarn would not start with is a finding, with what is wrong in words.
        for wrong in ("ftp://127.0.0.1:1", "http://192.0.2.1"):
            (tarn.dir / "tarn.toml").write_text(written.replace("http://127.0.0.1:1", wrong))
            codes = lambda: [one["code"] for one in api.get("findings")]
            wait_for(lambda: "file-invalid" in codes(), 60, "the finding about the file")
            paths = [path for path, methods in api.get("openapi.json")["paths"].items() if "get" in methods]
            asked = [(role, ask) for role in ("metrics", "viewer", "operator") for ask in [*documents, *paths]]
            for role, ask in asked:
                if "{" in ask or ask.endswith("/live"):
                    continue
                body = callers[role].ask("GET", ask).body.decode()
                check(not any(secret in body for secret in (password, former, path)), f"{ask} of the {role}: {body}")
        without = written.split("[[notify]]")[0]
        plan = callers["operator"].post("plan", {"text": without})
        check("http://127.0.0.1:1" in [step["name"] for step in plan["steps"]] and path not in json.dumps(plan), plan)
        tarn.await_log("events cannot be sent")
        check(password not in tarn.log() and path not in tarn.log(), tarn.log_tail())


@test
def browsers_are_not_led_here():
    """A foreign Host or Origin is refused; a login sets a cookie that only the console sends, and changes need its CSRF
    token."""
    with Daemon() as tarn:
        viewer, port = tarn.remote("viewer"), tarn.port2
        refused(403, "forbidden", viewer.ask, "GET", "status", Host=f"evil.example:{port}")
        refused(403, "forbidden", viewer.ask, "GET", "status", Origin="http://evil.example")
        equal(viewer.ask("GET", "status", Origin=f"http://127.0.0.1:{port}").status, 200, "its own origin")
        token = tarn.token("admin")
        login = tarn.remote().ask("POST", "login", {"token": token})
        equal(login.status, 200, "login")
        cookie = login.headers["Set-Cookie"]
        for word in ("HttpOnly", "SameSite=Strict", "Path=/"):
            check(word in cookie, f"{word} is not in {cookie}")
        check(token not in cookie, "the cookie holds the token")
        browser, cookie = tarn.remote(), cookie.split(";")[0]
        group = {"id": "g", "initiators": ["iqn.2026-11.example:*"]}
        equal(browser.ask("GET", "status", Cookie=cookie).status, 200, "a question with the cookie")
        refused(403, "forbidden", browser.ask, "PUT", "groups/g", group, Cookie=cookie)
        csrf = login.json["csrf"]
        equal(browser.ask("PUT", "groups/g", group, Cookie=cookie, X_Tarn_CSRF=csrf).status, 201, "a change with both")
        equal(browser.ask("POST", "logout", Cookie=cookie, X_Tarn_CSRF=csrf).status, 204, "logout")
        refused(401, "unauthorized", browser.ask, "GET", "status", Cookie=cookie)


@test
def guesses_are_limited():
    """Wrong tokens from one address are answered 429 after some; who has a right one at another address is not."""
    with Daemon(config=ONE.replace('"127.0.0.1:{port2}"', '"127.0.0.1:{port2}", "127.0.0.2:{port2}"')) as tarn:
        right = tarn.token("viewer")
        statuses = collections.Counter()
        for _ in range(60):
            guess = tarn.remote()
            guess.token = "tarn_" + "0" * 64
            statuses[guess.ask("GET", "status").status] += 1
        check(statuses[429] > 0 and set(statuses) == {401, 429}, f"{statuses}")
        other = Api(address=("127.0.0.2", tarn.port2), plain=True, token=right, source="127.0.0.2")
        equal(other.ask("GET", "status").status, 200, "another address")
        login = tarn.remote().ask("POST", "login", {"token": right})
        equal(login.status, 200, "a login with a right token from the address of the guesses, as behind a proxy")
        measured(f"{statuses[401]} guesses were looked at")


@test
def a_revoked_token_is_nothing():
    """At once, for new questions and for a stream that is open."""
    with Daemon() as tarn:
        viewer = tarn.remote("viewer")
        stream = viewer.stream()
        next(stream)
        tarn.api().delete("tokens/viewer-0")
        refused(401, "unauthorized", viewer.ask, "GET", "status")
        began = time.monotonic()
        for _ in stream:
            check(time.monotonic() - began < 20, "the stream goes on")
        # A console login of it is not revived by another token of that name.
        def login(token):
            return tarn.remote().ask("POST", "login", {"token": token}).headers["Set-Cookie"].split(";")[0]
        old = login(tarn.api().post("tokens", {"name": "a", "role": "viewer"})["token"])
        equal(tarn.remote().ask("GET", "status", Cookie=old).status, 200, "a console login")
        tarn.api().delete("tokens/a")
        new = login(tarn.api().post("tokens", {"name": "a", "role": "viewer"})["token"])
        refused(401, "unauthorized", tarn.remote().ask, "GET", "status", Cookie=old)
        equal(tarn.remote().ask("GET", "status", Cookie=new).status, 200, "a console login by the new token")


@test
def tls_has_a_certificate_of_its_own():
    """Without a word about it, TCP is TLS, by a certificate that is made once and kept."""
    with Daemon(config=ONE.replace("tls = false", "")) as tarn:
        remote = Api(address=("127.0.0.1", tarn.port2), token=tarn.token("viewer"))
        equal(remote.ask("GET", "status").status, 200, "over TLS")
        pem = tarn.dir / "state/admin-cert.pem"
        equal(stat.S_IMODE((tarn.dir / "state/admin-key.pem").stat().st_mode), 0o600, "mode of the key")
        context = admin.ssl.create_default_context(cafile=str(pem))
        with socket.create_connection(("127.0.0.1", tarn.port2), 10) as plain, \
                context.wrap_socket(plain, server_hostname="localhost") as wrapped:
            check(wrapped.version() in ("TLSv1.2", "TLSv1.3"), wrapped.version())
        machine = socket.gethostname()
        with socket.create_connection(("127.0.0.1", tarn.port2), 10) as plain, \
                context.wrap_socket(plain, server_hostname=machine) as wrapped:
            wrapped.sendall(f"GET /healthz HTTP/1.1\r\nHost: {machine}:{tarn.port2}\r\n\r\n".encode())
            check(wrapped.recv(4096).startswith(b"HTTP/1.1 200 "), "no answer by the name of the machine")


@test
def plain_http_on_the_port_of_https_leads_browsers_there_and_refuses_programs():
    """Nobody is served in clear, with or without a token; a page is found at the same address over TLS."""
    with Daemon(config=ONE.replace("tls = false", "")) as tarn:
        token = tarn.token("admin")
        plain = lambda **options: Api(address=("127.0.0.1", tarn.port2), plain=True, **options)
        page = http.client.HTTPConnection("127.0.0.1", tarn.port2, timeout=20)
        page.request("GET", "/?a=b")
        answer = page.getresponse()
        equal((answer.status, answer.headers["Location"]), (307, f"https://127.0.0.1:{tarn.port2}/?a=b"), "a page")
        for api in (plain(), plain(token=token)):
            answer = refused(400, "bad-request", api.ask, "GET", "status")
            check("https://" in answer.json["detail"], f"{answer}")
        equal(refused(400, "bad-request", plain(token=token).ask, "DELETE", "luns/disk").status, 400, "a change")
        equal([lun["spec"]["id"] for lun in tarn.api().get("luns")], ["disk"], "LUNs")
        with socket.create_connection(("127.0.0.1", tarn.port2), 10) as noise:
            noise.sendall(b"SSH-2.0-client\r\n\r\n")
            check(b" 200 " not in noise.recv(4096), "an answer to noise")


@test
def a_browser_without_a_valid_login_is_led_to_the_login_page():
    """A page of the API in the address bar, with no cookie or a wrong one; programs get their problem as before."""
    with Daemon() as tarn:
        for path, headers, status in [
                ("/api/v1/status", {"Accept": "text/html,application/xhtml+xml"}, 303),
                ("/metrics", {"Accept": "text/html", "Cookie": "tarn=wrong"}, 303),
                ("/api/v1/status", {"Accept": "application/json"}, 401),
                ("/api/v1/status", {"Accept": "text/html", "Authorization": "Bearer wrong"}, 401)]:
            connection = http.client.HTTPConnection("127.0.0.1", tarn.port2, timeout=20)
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            equal((answer.status, answer.headers["Location"]), (status, "/" if status == 303 else None), f"{path} {headers}")


# What is told.


@test(limit_s=180)
def figures_of_the_past_outlive_a_restart_and_wake_no_core():
    """Reads are in the figures of all three ranges, for the LUN and for all, before and after a restart; a rename takes them
    along, a LUN that is removed loses them, and an idle daemon that keeps them takes no turns of its cores for it."""
    with Daemon() as tarn:
        api = tarn.api()
        ranges = ("1h", "24h", "30d")
        busy = lambda **of: [point for point in api.get("figures?" + urllib.parse.urlencode(of))["points"] if point["read_iops"] > 0]
        equal(api.get("figures?lun=disk")["points"], [], "figures before the first command")
        with tarn.session() as session:
            for _ in range(50):
                session.command(scsi.read10(0, 8), read=4096)
        wait_for(lambda: all(busy(range=each, lun="disk") for each in ranges), 60, "figures of the LUN")
        for each in ranges:
            point = busy(range=each)[-1]
            check(point["p99_us"] > 0 and "busy" in point and "busy" not in busy(range=each, lun="disk")[-1], f"{each}: {point}")
        turns = lambda: sum(core["turns"] for core in api.get("stats")["cores"])
        count = lambda: len(api.get("figures")["points"])
        before, first = count(), turns()
        wait_for(lambda: count() >= before + 2, 60, "two more points")
        check(turns() - first < 200, f"{turns() - first} turns of the cores while nothing but figures was read")
        equal(tarn.terminate(), 0, "exit code")
        check(any((tarn.dir / "state").rglob("figures")), "the file")
        tarn.start()
        for each in ranges:
            check(busy(range=each, lun="disk") and busy(range=each), f"{each} after a restart")
        api.post("luns/disk/rename", {"id": "other"})
        check(busy(lun="other"), "figures under another id")
        refused(404, "not-found", api.ask, "GET", "figures?lun=disk")
        refused(400, "bad-request", api.ask, "GET", "figures?range=2h")
        tarn.kill()
        (kept,) = (tarn.dir / "state").rglob("figures")
        kept.write_bytes(kept.read_bytes()[:-1] + b"?")
        tarn.start()
        equal(busy(), [], "figures of a file that was changed")
        tarn.await_log("the figures of the past begin again")


@test
def space_checks_and_places_are_shown():
    with Daemon(config=ONE.replace("mem:16M", "disk.img?size=16M")) as tarn:
        api = tarn.api()
        space = wait_for(lambda: [one for one in api.get("space")["luns"] if "allocated_bytes" in one], 30, "space of the LUN")
        equal((space[0]["lun"], space[0]["size_bytes"]), ("disk", 16 * MIB), "space")
        (system,) = api.get("space")["file_systems"]
        check(0 < system["free_bytes"] <= system["size_bytes"], f"{system}")
        codes = [one["code"] for one in api.get("checks")]
        check("store-error" in codes and len(codes) == len(set(codes)), f"{codes}")
        equal(api.get("hyperscsi"), [], "groups of HyperSCSI")
        places = api.get("places")
        check(str(tarn.dir) in places["directories"], f"{places}")
        check(all(one["path"].startswith("/dev/") for one in places["devices"]), f"{places}")
        refused(403, "forbidden", tarn.remote("operator").ask, "GET", "places")


@test
def live_figures_and_events_arrive():
    """The stream tells the counters each second and events as they come."""
    with Daemon() as tarn:
        api = tarn.api()
        seen = []
        with tarn.session() as session:
            for event, data in api.stream(seconds=20):
                seen.append(event)
                if event == "event" and data["kind"] == "config-applied":
                    equal(data["author"], f"uid {os.getuid()}", "author")
                if event == "stats" and seen.count("stats") == 1:
                    for _ in range(10):
                        session.command(scsi.read10(0, 8), read=4096)
                    api.put("groups/g", {"id": "g", "initiators": ["iqn.2026-11.example:*"]})
                elif event == "stats" and "event" in seen:
                    series = [one for one in data["series"] if one["lun"] == "disk"]
                    check(series and sum(one["read"]["count"] for one in series) >= 10, f"{data}")
                    break
        check("event" in seen, f"{seen}")


@test
def what_administrators_do_is_noted():
    """Changes and refusals are events with their author, and lines of the log."""
    with Daemon() as tarn:
        tarn.api().put("groups/g", {"id": "g", "initiators": ["iqn.2026-11.example:*"]})
        refused(403, "forbidden", tarn.remote("viewer").ask, "DELETE", "groups/g")
        events = tarn.api().get("events?after=0&most=1000")
        numbers = [event["number"] for event in events]
        equal(numbers, sorted(set(numbers)), "numbers of events")
        check(any(event["kind"] == "config-applied" and event["author"] == f"uid {os.getuid()}" for event in events), f"{events}")
        check(any(event.get("author", "").startswith("viewer") for event in events), f"{events}")
        tarn.await_log("viewer-0")
        refused(401, "unauthorized", tarn.remote().ask, "GET", "whoami")
        tarn.api().post("plan", {"text": tarn.api().get("config")["text"]})
        news = tarn.api().get(f"events?after={numbers[-1]}")
        equal(news, [], "events of a console that is opened, and of a plan")


@test
def nobody_unknown_washes_the_events_away():
    """Logins that make no sense are refusals, and a few of them events; one that succeeds has its author."""
    with Daemon() as tarn:
        tarn.api().put("groups/g", {"id": "g", "initiators": ["iqn.2026-11.example:*"]})
        with tarn.remote() as nobody:
            for _ in range(1000):
                refused(415, "unsupported-media-type", nobody.ask, "POST", "login", b"{}", Content_Type="text/plain")
        tarn.remote().good("POST", "login", {"token": tarn.token("viewer")})
        events = tarn.api().get("events?after=0&most=1000")
        check(any(event["kind"] == "config-applied" for event in events), "the change is gone")
        refusals = [event for event in events if event["kind"] == "admin-refused"]
        check(0 < len(refusals) < 100, f"{len(refusals)} refusals")
        changes = [event for event in events if event["kind"] == "admin-change"]
        equal([event for event in changes if "author" not in event], [], "changes without an author")
        equal([event["author"] for event in changes if "/login" in event["message"]], ["viewer-0"], "logins")


@test
def nobody_known_washes_the_audit_out():
    """Logouts without a login are no events; refusals and repeated requests of a viewer are some, with how many there were, and
    neither hides a refusal to another token."""
    with Daemon() as tarn:
        noisy, calm = tarn.remote("viewer"), tarn.remote("viewer")
        for _ in range(300):
            noisy.good("POST", "logout")
        login = {"token": tarn.token("viewer")}
        for number in range(300):
            noisy.good("POST", "login", login)
            refused(403, "forbidden", noisy.ask, "DELETE", f"luns/x{number}")
        refused(403, "forbidden", calm.ask, "DELETE", "groups/g")
        events = tarn.api().get("events?after=0&most=1000")
        check(not [event for event in events if "/logout" in event["message"]], "logouts that ended nothing are events")
        for words in ("/login", "/luns/x"):
            count = sum(words in event["message"] for event in events)
            check(20 <= count < 100, f"{count} events about {words}")
        check(any("/groups/g" in event["message"] for event in events), "the refusal to the other token is hidden")
        check(tarn.log().count("/login") < 100, "the log has every login")


@test
def metrics_are_what_prometheus_reads():
    """promtool finds nothing to say about them; a series appears with the first command; all counters grow."""
    with Daemon() as tarn:
        reader = tarn.remote("metrics")
        before = reader.ask("GET", "/metrics").body.decode()
        check('tarn_scsi_commands_total{lun="disk"' not in before, "a series before the first command")
        with tarn.session() as session:
            for _ in range(5):
                session.command(scsi.read10(0, 8), read=4096)
            session.command(scsi.write10(0, 8), write=bytes(4096))
            body = reader.ask("GET", "/metrics").body
        text = body.decode()
        labels = f'lun="disk",initiator="{session.initiator}",operation="read"'
        for line in (f"tarn_scsi_commands_total{{{labels}}} 5", f"tarn_scsi_bytes_total{{{labels}}} 20480"):
            check(line in text, f"{line} is not in:\n{text}")
        check('\ntarn_lun_info{lun="disk",type="disk"} 1\n' in text, f"no type of the disk in:\n{text}")
        done = subprocess.run(["promtool", "check", "metrics"], input=body, capture_output=True, timeout=30)
        equal((done.returncode, done.stdout.decode(), done.stderr.decode()), (0, "", ""), "promtool")
        accept = "application/openmetrics-text;version=1.0.0"
        open_metrics = reader.ask("GET", "/metrics", Accept=accept)
        check(open_metrics.headers["Content-Type"].startswith("application/openmetrics-text"), open_metrics.headers["Content-Type"])
        check(open_metrics.body.endswith(b"# EOF\n"), "no # EOF")


@test
def alert_rules_say_what_they_should():
    """promtool takes the rules, and to known figures each rule says what tests/monitoring expects."""
    for arguments in (["check", "rules", MONITORING / "tarn.rules.yml"], ["test", "rules", ROOT / "tests/monitoring/rules_test.yml"]):
        done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=60)
        equal(done.returncode, 0, f"{arguments[0]} rules: {done.stdout}{done.stderr}")


@test(limit_s=180)
def prometheus_scrapes_it_and_every_panel_shows_something():
    """A real Prometheus with a token of the role metrics and the alert rules: every query of the dashboard has an answer
    while an initiator works, errs and is refused, and the server of one of its disks ends."""
    server = Tarn(config=EXPORT, check_exit=False)
    with server, Daemon(with_export(server), check_exit=False) as tarn, scraping(tarn) as asks, at_work(tarn):
        server.kill()
        def found(query):
            answer = asks.ask("GET", f"/api/v1/query?query={name(query)}")
            equal(answer.status, 200, f"{query}: {answer}")
            return answer.json["data"]["result"]
        wait_for(lambda: found('tarn_scsi_commands_total{lun="disk",operation="read"}'), 60, "the counter is in Prometheus")
        wait_for(lambda: [one["value"][1] for one in found("up")] == ["1"], 60, "up is 1")
        dashboard = json.loads((MONITORING / "dashboard.json").read_text())
        queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        for query in queries:
            for variable, value in (("instance", ".*"), ("lun", ".*"), ("initiator", ".*"), ("__rate_interval", "10s")):
                query = query.replace(f"${variable}", value)
            wait_for(lambda: found(query), 30, f"an answer to {query}", step_s=0.5)
        rules = asks.ask("GET", "/api/v1/rules").json["data"]["groups"][0]["rules"]
        equal({rule["health"] for rule in rules} - {"unknown"}, {"ok"}, "health of the rules")
        measured(f"{len(queries)} queries, {len(rules)} rules")


@contextlib.contextmanager
def scraping(tarn):
    """A Prometheus that scrapes this Tarn; gives the way to ask it."""
    port, home = free_port(), tarn.dir / "prometheus"
    home.mkdir()
    (home / "token").write_text(tarn.token("metrics"))
    (home / "prometheus.yml").write_text(f"""
global: {{ scrape_interval: 1s, evaluation_interval: 1s }}
rule_files: ["{MONITORING}/tarn.rules.yml"]
scrape_configs:
  - job_name: tarn
    authorization: {{ credentials_file: {home}/token }}
    static_configs: [{{ targets: ["127.0.0.1:{tarn.port2}"] }}]
""")
    process = subprocess.Popen(["prometheus", f"--config.file={home}/prometheus.yml", f"--storage.tsdb.path={home}/data",
                                f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL,
                               stderr=open(home / "log", "w"))
    try:
        asks = Api(address=("127.0.0.1", port), plain=True)
        # It listens before its database can be asked.
        wait_for(lambda: listens(port) and asks.ask("GET", "/-/ready").status == 200, 60, "prometheus is ready")
        yield asks
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def at_work(tarn):
    """An initiator that reads, writes, asks for what is not there, and another one that may not log in."""
    stop = threading.Event()

    def work():
        with tarn.session() as session:
            while not stop.wait(0.05):
                session.command(scsi.read10(0, 8), read=4096)
                session.command(scsi.write10(0, 8), write=bytes(4096))
                session.command(scsi.read10(0x7fff0000, 8), read=4096)
                session.command(scsi.read10(0, 8), read=4096, lun=1)
                with contextlib.suppress(iscsi.LoginError):
                    iscsi.Session(tarn.port, f"{IQN}-none")
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


# Whatever comes in.


@test
def paths_methods_and_bodies_that_are_wrong_are_told_so():
    """404, 405, 400, 413, 415, 431: each with its reason, none is a 5xx."""
    with Daemon() as tarn:
        api = tarn.api()
        for method, path, body, headers, status in [
            ("GET", "nothing", None, {}, 404),
            ("GET", "luns/none", None, {}, 404),
            ("GET", "luns/%ff%fe", None, {}, 400),
            ("PATCH", "status", None, {}, 405),
            ("PUT", "luns/a", b"{", {"Content_Type": "application/json"}, 400),
            ("PUT", "luns/a", b"{}", {"Content_Type": "text/plain"}, 415),
            ("PUT", "luns/a", {"id": "b", "store": "mem:1M"}, {}, 400),
            ("PUT", "luns/a", {"id": "a", "store": "mem:1M", "colour": "red"}, {}, 400),
            ("PUT", "luns/a", b'{"id":"a"' + b" " * 70_000 + b"}", {"Content_Type": "application/json"}, 413),
            ("PUT", "luns/a", {"id": "a", "store": "nonsense:"}, {}, 422),
            ("PUT", "luns/a", {"id": "a", "store": "/no/such/file"}, {}, 422),
            ("GET", "events?after=-1", None, {}, 400),
            ("GET", "status", None, {"X_Long": "x" * 20_000}, 431),
            ("DELETE", "sessions/9", None, {}, 404),
            ("POST", "luns/disk/resize", {"size_bytes": 1}, {}, None),
        ]:
            answer = api.ask(method, path, body, **headers)
            if status is None:
                check(400 <= answer.status < 500, f"{method} {path}: {answer}")
            else:
                equal(answer.status, status, f"{method} {path} {str(body)[:40]}: {answer}")
        equal(api.get("config")["revision"], 1, "revision")


@test
def a_refusal_waits_for_the_body():
    """Who sends a body in pieces after its head, as many clients do, reads the reason instead of a broken pipe."""
    with Daemon() as tarn:
        for head, length, status in [("PUT /api/v1/luns/a", 1_000_000, 413), ("PUT /api/v1/luns/a", 1000, 412),
                                     ("PUT /api/v1/luns", 1000, 405)]:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(tarn.socket))
                client.settimeout(20)
                client.sendall(f"{head} HTTP/1.1\r\nHost: tarn\r\nContent-Type: application/json\r\nIf-Match: \"none\"\r\n"
                               f"Content-Length: {length}\r\n\r\n".encode())
                for _ in range(10):
                    time.sleep(0.02)        # time enough for an answer that comes too early, and its end of the connection
                    client.sendall(b" " * (length // 10))
                answer = client.recv(4096)
                check(answer.startswith(b"HTTP/1.1 %d" % status), f"{head}, {length} bytes: {answer[:60]}")


@test(limit_s=120)
def connections_and_streams_are_bounded():
    """1,000 connections that say nothing, half a head, or read nothing: memory stays, others are answered, disks served."""
    with Daemon() as tarn, tarn.session() as session:
        api = tarn.api()
        api.get("status")
        before = tarn.heap_bytes()
        idle = []
        for number in range(1000):
            one = socket.socket(socket.AF_UNIX)
            one.settimeout(5)
            try:
                one.connect(str(tarn.socket))
                if number % 2:
                    one.sendall(b"GET /api/v1/live HTTP/1.1\r\nHost: x\r\n" + (b"\r\n" if number % 4 == 1 else b""))
            except OSError:
                pass  # It may be closed at any time.
            idle.append(one)
            if number % 50 == 0:
                check(session.command(scsi.read10(0, 8), read=4096).good, "READ meanwhile")
        check(wait_for(lambda: answered(api), 60, "an answer among 1,000 connections"), "no answer")
        grown = tarn.heap_bytes() - before
        check(grown < 32 * MIB, f"{grown >> 10} KiB more memory")
        measured(f"{grown >> 10} KiB more memory")
        for one in idle:
            one.close()
        wait_for(lambda: answered(api), 60, "an answer afterwards")


@test
def one_token_takes_its_share_of_streams_and_logins():
    """A viewer opens more streams and logins than there are places: an administrator's go on, and another one's are opened."""
    with Daemon() as tarn, contextlib.ExitStack() as stack:
        def listen(role):
            connection = stack.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", tarn.port2, timeout=20)))
            connection.request("GET", "/api/v1/live", headers={"Authorization": f"Bearer {role}"})
            return connection.getresponse()

        def goes_on(stream):
            return all(stream.readline() for _ in range(6))
        admin_token, viewer_token = tarn.token("admin"), tarn.token("viewer")
        cookie = tarn.remote().ask("POST", "login", {"token": admin_token}).headers["Set-Cookie"].split(";")[0]
        first = listen(admin_token)
        streams = [listen(viewer_token) for _ in range(40)]
        equal({stream.status for stream in streams}, {200}, "streams of one token")
        check(goes_on(first), "the stream of an administrator ended")
        check(goes_on(listen(admin_token)), "an administrator's next stream")
        check(goes_on(streams[-1]), "the newest stream of the viewer")
        streams[0].read()       # to its end: it has lost its place
        for _ in range(100):
            equal(tarn.remote().ask("POST", "login", {"token": viewer_token}).status, 200, "a viewer's login")
        equal(tarn.remote().ask("GET", "status", Cookie=cookie).status, 200, "the administrator in the console")


@test
def what_a_request_does_not_know_is_refused_and_nothing_is_done():
    with Daemon() as tarn:
        api = tarn.api()
        for query in ("?Plan=true", "?plan=True", "?dry=true", "?plan=true&dry=1"):
            answer = refused(400, "bad-request", api.ask, "DELETE", f"luns/disk{query}")
            check("plan" in answer.json["detail"], answer.json)
        answer = refused(400, "bad-request", api.ask, "GET", "events?afer=1")
        check(all(word in answer.json["detail"] for word in ("afer", "after", "most", "severity")), answer.json)
        for body in ({}, {"what": 1}, []):
            refused(400, "bad-request", api.ask, "POST", "luns/disk/load", body)
            refused(400, "bad-request", api.ask, "DELETE", "luns/disk", body)
        for body in ([], [True], 1):
            refused(400, "bad-request", api.ask, "POST", "luns/disk/eject", body)
        refused(400, "bad-request", api.ask, "PUT", "luns/n", ["n", "mem:1M"])
        refused(400, "bad-request", api.ask, "POST", "config/edits", [[{"remove": {"lun": "disk"}}]])
        refused(400, "bad-request", api.ask, "POST", "tokens", ["zz", "admin"])
        equal(api.get("tokens"), [], "tokens after all that")
        equal(api.get("status")["revision"], 1, "revision after all that")


@test
def a_request_that_names_another_server_is_refused():
    """Where the target names another server than Host, nothing is done, also on a connection that goes on."""
    spare = ONE + '[[lun]]\nid = "spare"\nstore = "mem:1M"\n'
    with Daemon(config=spare) as tarn:
        token, own = tarn.token("admin"), f"127.0.0.1:{tarn.port2}"
        headers = {"Authorization": f"Bearer {token}", "Host": own, "Content-Type": "application/json"}
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", tarn.port2, timeout=20)) as connection:
            def ask(method, target, body=None):
                connection.request(method, target, body, headers)
                answer = connection.getresponse()
                answer.read()
                return answer.status
            for _ in range(3):
                equal(ask("GET", "/api/v1/luns/spare"), 200, "a question")
                equal(ask("DELETE", "http://evil.example/api/v1/luns/spare"), 400, "another server")
                equal(ask("GET", f"http://{own}/api/v1/luns/spare"), 200, "this server")
            equal(ask("DELETE", "/api/v1/luns/spare"), 200, "the deed")


@test(limit_s=120)
def who_has_proved_nothing_takes_nothing_from_administrators():
    """100 connections that ask /readyz without end, then 300 logins whose body never comes: root is answered at the socket, and over
    TCP who has a token; what is done is noted."""
    with Daemon() as tarn, tarn.remote("viewer") as known:
        equal(known.ask("GET", "status").status, 200, "over TCP")
        stop, statuses = threading.Event(), collections.Counter()

        def ask():
            with contextlib.suppress(OSError, http.client.HTTPException), tarn.remote() as nobody:
                while not stop.is_set():
                    statuses[nobody.ask("GET", "/readyz").status] += 1
        threads = [threading.Thread(target=ask) for _ in range(100)]
        for one in threads:
            one.start()
        try:
            for _ in range(60):
                tarn.api().get("luns")
            tarn.api().put("groups/g", {"id": "g", "initiators": ["iqn.2026-11.example:*"]})
        finally:
            stop.set()
            for one in threads:
                one.join()
        equal(set(statuses), {200}, "answers to /readyz")
        events = tarn.api().get("events?after=0&most=1000")
        check(any(event["kind"] == "admin-change" and "groups/g" in event["message"] for event in events), f"{events}")
        head = f"POST /api/v1/login HTTP/1.1\r\nHost: 127.0.0.1:{tarn.port2}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
        with contextlib.ExitStack() as silent:
            for _ in range(300):
                one = silent.enter_context(socket.create_connection(("127.0.0.1", tarn.port2), 10))
                with contextlib.suppress(OSError):
                    one.sendall(head.encode())
            tarn.api().get("status")
            equal(known.ask("GET", "status").status, 200, "who was known before")
            equal(tarn.remote("viewer").ask("GET", "status").status, 200, "who comes with a token")
        measured(f"{statuses[200]} answers to /readyz")


def answered(api):
    try:
        return api.ask("GET", "status").status == 200
    except OSError:
        return False


@test(limit_s=60)
def noise_is_not_understood():
    """Bytes that are no HTTP get an answer or an end of the connection; the next one is answered."""
    with Daemon() as tarn:
        for noise in (b"\0" * 100, b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                      b"POST /api/v1/plan HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
                      b"POST /api/v1/plan HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
                      b"POST /api/v1/plan HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde"):
            with socket.socket(socket.AF_UNIX) as one:
                one.settimeout(25)
                one.connect(str(tarn.socket))
                one.sendall(noise)
                one.shutdown(socket.SHUT_WR)
                answer = one.recv(65536)
                check(not answer.startswith(b"HTTP/1.1 2"), f"{noise!r}: {answer!r}")
            check(answered(tarn.api()), f"no answer after {noise!r}")


@test(limit_s=600)
def no_question_of_the_openapi_document_ends_in_a_5xx():
    """schemathesis makes questions from the document that the daemon serves: none ends in a 5xx, each answer is as the
    document says, and the disk is served to the end."""
    schemathesis = install_schemathesis()
    with Daemon() as tarn, Forwarder(tarn.socket) as forwarder:
        first = tarn.api().get("config")["text"]
        base = f"http://127.0.0.1:{forwarder.port}"
        done = subprocess.run(
            [schemathesis, "run", f"{base}/api/v1/openapi.json", "--url", base, "--max-examples", "40", "--seed", "1",
             "--phases", "examples,coverage,fuzzing,stateful", "--no-color", "--request-timeout", "20", "--exclude-path-regex", "/live$",
             "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"],
            capture_output=True, text=True, timeout=580, cwd=tarn.dir)
        (ROOT / "target/test-logs").mkdir(parents=True, exist_ok=True)
        (ROOT / "target/test-logs/schemathesis.log").write_text(done.stdout + done.stderr)
        check(done.returncode == 0, done.stdout[-6000:] + done.stderr[-500:])
        check(answered(tarn.api()), "no answer afterwards")
        # Whatever it has done to the configuration, the first one can be had again.
        revisions = len(tarn.api().get("config/history"))
        tarn.api().put("config", {"text": first})
        with tarn.session() as session:
            check(session.command(scsi.read10(0, 8), read=4096).good, "READ afterwards")
        check(revisions > 3, f"{revisions} revisions: nothing was ever changed")
        measured(f"{re.search('([0-9]+) generated', done.stdout).group(1)} questions, {revisions} revisions")


class Forwarder:
    """A port of the loopback address that leads to a unix socket: there everybody is its owner, and needs no token."""

    def __init__(self, path):
        self.path = str(path)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                one, _ = self.listener.accept()
                other = socket.socket(socket.AF_UNIX)
                other.connect(self.path)
                for source, sink in ((one, other), (other, one)):
                    threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    @staticmethod
    def _copy(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()


def install_schemathesis():
    """From PyPI, into a place of its own."""
    program = VENV / "bin/schemathesis"
    if not program.exists():
        if subprocess.run([sys.executable, "-c", "import ensurepip"], capture_output=True).returncode != 0:
            # Debian's Python leaves it to a package.
            subprocess.run([ROOT / "tools/need", "/usr/lib/python3*/ensurepip/__init__.py=python3-venv"], check=True, timeout=300)
        subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True, timeout=300)
        subprocess.run([VENV / "bin/pip", "install", "--quiet", "--disable-pip-version-check", SCHEMATHESIS], check=True, timeout=300)
    return program


# When the administration is unwell.


class Traced:
    """strace on the thread of the administration, with a system call that goes wrong."""

    def __init__(self, tarn, injection):
        self.log = tarn.dir / "strace"
        self.process = subprocess.Popen(["strace", "-p", str(thread(tarn, "admin")), "-o", str(self.log), "-e", "trace=epoll_wait",
                                         "-e", f"inject=epoll_wait:{injection}"], stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        if "attached" not in line:
            self.close()
            skip(f"strace cannot attach: {line}")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@contextlib.contextmanager
def calls_of(tarn):
    """A list that has the system calls of all threads by which files are opened or locked and sockets used, when it is over."""
    calls, log = [], tarn.dir / "strace"
    trace = "trace=open,openat,openat2,flock,fcntl,bind,listen,connect"
    with subprocess.Popen(["strace", "-f", "-qq", "-y", "-s", "256", "-p", str(tarn.process.pid), "-o", str(log), "-e", trace],
                          stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as tracer:
        try:
            tasks = pathlib.Path(f"/proc/{tarn.process.pid}/task")

            def is_traced():
                statuses = [(task / "status").read_text() for task in tasks.iterdir()]
                return all(f"TracerPid:\t{tracer.pid}" in status for status in statuses)
            wait_for(is_traced, 10, "strace has all threads")
            yield calls
        finally:
            tracer.terminate()
    # What is saved meanwhile has nothing to do with it.
    state = str(tarn.dir / "state")
    calls += [line for line in log.read_text().splitlines() if state not in line]


LOOKED_AT = """
[[lun]]
id = "there"
store = "file:{dir}/there.img?size=2M"

[[lun]]
id = "new"
store = "file:{dir}/new.img?size=1M&thin=false"
log = "file:{dir}/log.img?size=16M"

[[nbd]]
socket = "{dir}/new.sock"
luns = ["there"]

[[nbd]]
bind = "127.0.0.1:{third}"
luns = ["new"]
"""
WRITES = re.compile(r"O_(WRONLY|RDWR|CREAT)")
LOCKS = re.compile(r"\bflock\(|\bfcntl\(.*F_(OFD_)?SETLKW?\b")


@test
def a_plan_of_an_admin_writes_locks_and_serves_nothing_and_one_of_an_operator_touches_no_store():
    """By the system calls of the daemon: the plan of an admin opens stores for reading, binds addresses and asks servers; that of an
    operator does neither; the change makes and locks files, and listens."""
    unconfined = "[confine]\nseccomp = false\n"
    with Tarn(config=EXPORT) as server, Daemon(config=ONE + unconfined) as tarn:
        api, third = tarn.api(), free_port()
        there = tarn.dir / "there.img"
        there.write_bytes(bytes(MIB))
        text = with_export(server) + unconfined
        text = text.replace("[[target]]", LOOKED_AT.replace("{third}", str(third)) + "\n[[target]]")
        text = text.replace("{dir}", str(tarn.dir)).replace("{port2}", str(tarn.port2)).replace("{port}", str(tarn.port))
        names = ["there.img", "new.img", "log.img", "new.sock", "nbd.sock"]

        def touched(calls, pattern=""):
            return [line for line in calls if re.search(pattern, line) and any(name in line for name in names)]

        with calls_of(tarn) as calls:
            plan = api.post("plan", {"text": text})
        check(plan["is_applicable"], plan)
        check(touched(calls, r"there\.img.*O_RDONLY"), "nobody has looked at a store")
        check([line for line in calls if "bind(" in line and f"htons({third})" in line], "nobody has bound an address")
        check(touched(calls, r"connect\(.*nbd\.sock"), "nobody has asked a server")
        for what, pattern in (("opens for writing", WRITES), ("locks", LOCKS), ("listens", re.compile(r"\blisten\("))):
            equal([line for line in calls if pattern.search(line)], [], f"a plan that {what}")
        equal(sorted(path.name for path in tarn.dir.glob("*.img")), ["there.img"], "files after a plan")
        equal(there.stat().st_size, MIB, "size after a plan")

        operator = tarn.remote("operator")
        with calls_of(tarn) as calls:
            plan = operator.post("plan", {"text": text})
        check(plan["not_probed"], plan)
        equal(touched(calls), [], "stores that the plan of an operator touches")
        equal([line for line in calls if re.search(r"\b(bind|connect|listen)\(", line) or LOCKS.search(line)], [], "sockets and locks")

        with calls_of(tarn) as calls:
            api.put("config", {"text": text})
        for what, pattern in (("made", r"new\.img.*O_CREAT"), ("opened", r"there\.img.*O_RDWR")):
            check(touched(calls, pattern), f"no store was {what}")
        check(any(LOCKS.search(line) for line in calls) and any("listen(" in line for line in calls), "nothing was locked or served")
        equal((there.stat().st_size, (tarn.dir / "new.img").stat().st_size), (2 * MIB, MIB), "sizes after the change")


def thread(tarn, comm):
    """The number of a thread, by its name."""
    for task in pathlib.Path(f"/proc/{tarn.process.pid}/task").iterdir():
        if (task / "comm").read_text().strip() == comm:
            return int(task.name)
    raise harness.Failure(f"there is no thread {comm}")


def works_on(session, commands=200):
    for number in range(commands):
        check(session.command(scsi.read10(number % 64, 8), read=4096).good, f"READ {number}")


@test
def a_blocked_administration_blocks_no_disk():
    """Its thread hangs in a system call for as long as somebody wants; commands are answered, logins too, and it goes on
    afterwards."""
    with Daemon() as tarn, tarn.session() as session:
        with Traced(tarn, "delay_enter=60s"):
            asked = threading.Thread(target=lambda: answered(tarn.api(timeout_s=5)))
            asked.start()
            works_on(session)
            with tarn.session() as another:
                works_on(another, 20)
            asked.join()
        check(wait_for(lambda: answered(tarn.api()), 30, "an answer afterwards"), "no answer")


@test
def an_administration_that_panics_is_started_again():
    """The kernel fails it in a way it cannot go on from: it panics, is started again and answers; disks notice nothing."""
    with Daemon(check_exit=False) as tarn, tarn.session() as session:
        for round in range(3):
            with Traced(tarn, "error=EBADF:when=1"):
                answered(tarn.api(timeout_s=2))
                works_on(session)
                wait_for(lambda: tarn.log().count("panicked at") > round, 20, "the panic")
            wait_for(lambda: answered(tarn.api(timeout_s=2)), 30, "an answer after the panic")
            works_on(session)
        check(listens(tarn.port2), "TCP is gone")
        equal(tarn.terminate(), 0, "exit code")


@test(limit_s=120)
def a_flood_of_questions_fails_no_command():
    """Eight ask without end, in the expensive way; every command is answered, and every question too or with 503."""
    with Daemon() as tarn, tarn.session() as session:
        statuses, stop = collections.Counter(), threading.Event()

        def ask():
            with tarn.api() as api:
                while not stop.is_set():
                    statuses[api.ask("GET", "/metrics").status] += 1
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for one in threads:
            one.start()
        works_on(session, 3000)
        stop.set()
        for one in threads:
            one.join()
        check(set(statuses) <= {200, 503} and statuses[200] > 0, f"{statuses}")
        measured(f"{sum(statuses.values())} questions, 3000 READs")


if __name__ == "__main__":
    harness.main()
