"""What changes at once, without a restart: cache mode, limits, where the administration listens (issue 14, point 3).

Imported by suite.py.
"""
import contextlib
import http.client
import pathlib
import re
import socket
import ssl
import subprocess
import threading

import admin
import faultfs
import iscsi
import nbd
import scsi
from harness import check, equal, test, wait_for
from tarn import BINARY, IQN, Tarn, free_port, listens, lun_section, target_section

MIB = 1 << 20
BLOCK = 512
MODE_CHANGED = (0x2a, 0x01)
WCE = 0x04


def plain(text):
    """A log without its colours."""
    return re.sub(r"\x1b\[\d*m", "", text)


def caching_page(session, lun, control=0):
    data = session.command(bytes([0x1a, 0x08, control << 6 | 0x08, 0, 255, 0]), read=255, lun=lun).data
    return bytearray(data[4 + data[3]:])


def has_cache(session, lun):
    return bool(caching_page(session, lun)[2] & WCE)


def switch_cache_on(session, lun):
    """MODE SELECT of WCE; the status."""
    page = caching_page(session, lun)
    page[0] &= 0x3f
    page[2] |= WCE
    parameters = bytes(4) + bytes(page)
    return session.command(bytes([0x15, 0x10, 0, 0, len(parameters), 0]), write=parameters, lun=lun)


def write(session, lun, lba=0):
    check(session.command(scsi.write16(lba, 1), write=b"w" * BLOCK, lun=lun).good, f"WRITE to LUN {lun}")


class Disks:
    """Two disks of files that fail on request, and a change of either."""

    def __init__(self, tarn, stores):
        self.tarn, self.api = tarn, tarn.api(timeout_s=60)
        self.stores, self.options = stores, ["", ""]
        self.session = iscsi.Session(tarn.port, IQN, timeout_s=20)
        for lun in (0, 1):
            self.session.clear_unit_attentions(lun)

    def text(self, lun, option):
        text = self.api.get("config")["text"]
        before, after = self.stores[lun] + self.options[lun], self.stores[lun] + option
        check(f'"{before}"' in text, f"{before} in {text}")
        return text.replace(f'"{before}"', f'"{after}"')

    def plan(self, lun, option):
        plan = self.api.post("plan", dict(text=self.text(lun, option)))
        return plan, {(step["kind"], step["name"]): step for step in plan["steps"]}

    def change(self, lun, option):
        answer = self.api.ask("PUT", "config", dict(text=self.text(lun, option)))
        if answer.status < 300:
            self.options[lun] = option
        return answer

    def changed(self, lun, option):
        answer = self.change(lun, option)
        check(answer.status < 300, f"the change to {option!r}: {answer}")


@contextlib.contextmanager
def two_disks(log="", **how):
    with faultfs.FaultFs(8 * MIB) as a, faultfs.FaultFs(8 * MIB) as b:
        stores = [f"file:{fs.path}" for fs in (a, b)]
        config = lun_section("a", stores[0]) + log + lun_section("b", stores[1]) + target_section("a", "b")
        with Tarn(config=config, **how) as tarn:
            disks = Disks(tarn, stores)
            yield disks, a, b
            disks.session.close()


def syncs(fs, work):
    """How many syncs reach a file during some work."""
    before = fs.counts["fsync"]
    work()
    return fs.counts["fsync"] - before


@test
def point_3_a_disk_begins_to_write_through_when_it_is_flushed_and_may_write_back_again():
    """The plan says online; initiators of that disk alone get MODE PARAMETERS CHANGED, see WCE go and cannot switch it on; then every
    write is durable. Back, the cache is there again, for the next start, too. A rollback changes it as well."""
    with two_disks() as (disks, a, b):
        session = disks.session
        plan, steps = disks.plan(0, "?cache=writethrough")
        step = steps["lun", "a"]
        equal((plan["is_applicable"], step["effect"]), (True, "online"), f"the plan {plan}")
        check("flushed first" in step["reason"], step)
        write(session, 0)
        check(syncs(a, lambda: disks.changed(0, "?cache=writethrough")) > 0, "the disk was not flushed")
        equal([session.clear_unit_attentions(lun) for lun in (0, 1)], [[MODE_CHANGED], []], "unit attentions")
        equal([has_cache(session, lun) for lun in (0, 1)], [False, True], "WCE")
        equal(caching_page(session, 0, control=1)[2] & WCE, 0, "WCE can be changed")
        check(not switch_cache_on(session, 0).good, "MODE SELECT has switched the cache on")
        equal(syncs(a, lambda: write(session, 0)), 1, "syncs of a WRITE")
        equal(syncs(b, lambda: write(session, 1)), 0, "syncs of a WRITE to the other disk")

        plan, steps = disks.plan(0, "")
        check(steps["lun", "a"]["effect"] == "online" and "rescan" in steps["lun", "a"]["reason"], f"the way back: {steps}")
        disks.changed(0, "?cache=writeback")
        equal(session.clear_unit_attentions(0), [MODE_CHANGED], "unit attention")
        check(has_cache(session, 0), "the cache is not back")
        equal(syncs(a, lambda: write(session, 0)), 0, "syncs of a WRITE")
        disks.api.post("config/rollback", dict(revision=2))
        equal(session.clear_unit_attentions(0), [MODE_CHANGED], "unit attention of the rollback")
        check(not has_cache(session, 0), "the rollback has left the cache")
        equal(disks.api.get("status").get("pending"), None, "what is pending")
        plan, steps = disks.plan(1, "?cache=direct")
        equal((plan["is_applicable"], steps["lun", "b"]["effect"]), (False, "refused"), "direct I/O")


@test
def point_3_a_size_and_a_cache_mode_change_together_and_an_initiators_choice_is_kept_until_then():
    """WCE that an initiator has switched off stays off while the disk writes through, and the administrator's write-back has it on."""
    with Tarn(config=lun_section("a", "file:{dir}/a.img?size=8M") + target_section("a")) as tarn, \
            iscsi.Session(tarn.port, IQN, timeout_s=20) as session:
        api = tarn.api()
        session.clear_unit_attentions()
        page = caching_page(session, 0)
        page[0] &= 0x3f
        page[2] &= ~WCE
        check(session.command(bytes([0x15, 0x10, 0, 0, 24, 0]), write=bytes(4) + bytes(page)).good, "MODE SELECT")
        text = api.get("config")["text"]
        api.put("config", dict(text=text.replace("size=8M", "size=16M&cache=writethrough")))
        equal(session.clear_unit_attentions(), [(0x2a, 0x09)], "nothing of the modes shows")
        check(not has_cache(session, 0), "WCE")
        api.put("config", dict(text=text.replace("size=8M", "size=16M")))
        equal(session.clear_unit_attentions(), [MODE_CHANGED], "unit attention")
        check(has_cache(session, 0), "the cache that the administrator wants")


@test
def point_3_a_disk_with_a_log_begins_to_write_through():
    """What was not durable before goes to the log from then on, and the store is not synced by each write."""
    log = 'log = "file:{dir}/log.img?size=16M"\n'
    with two_disks(log) as (disks, a, _):
        session = disks.session
        write(session, 0)
        disks.changed(0, "?cache=writethrough")
        equal(session.clear_unit_attentions(0), [MODE_CHANGED], "unit attention")
        check(not has_cache(session, 0), "WCE")
        write(session, 0)
        disks.changed(0, "")
        equal(session.clear_unit_attentions(0), [MODE_CHANGED], "unit attention")
        check(has_cache(session, 0), "WCE")


@test
def point_3_a_disk_that_cannot_be_flushed_keeps_its_cache():
    """The change is refused with the name of the disk and the remedy; file, history and cache are as before, and so is another disk
    of the same change. After that the plan knows it."""
    with two_disks(check_exit=False) as (disks, a, _):
        session, api = disks.session, disks.api
        before = api.get("config")
        text = disks.text(0, "?cache=writethrough").replace(disks.stores[1] + '"', disks.stores[1] + '?cache=writethrough"')
        write(session, 0)
        a.fsync_failures = 1
        answer = api.ask("PUT", "config", dict(text=text))
        equal(answer.kind, "apply-failed", f"the change: {answer}")
        check("lun a keeps its write cache" in answer.json["detail"] and "look at its store" in answer.json["detail"], answer.json)
        equal(api.get("config"), before, "the configuration")
        equal((disks.tarn.dir / "tarn.toml").read_text(), before["text"], "the file")
        # The other disk was written through for a moment, which it is told.
        session.clear_unit_attentions(1)
        equal((session.clear_unit_attentions(0), [has_cache(session, lun) for lun in (0, 1)]), ([], [True, True]), "the caches")
        plan, steps = disks.plan(0, "?cache=writethrough")
        equal((plan["is_applicable"], steps["lun", "a"]["effect"]), (False, "refused"), "a plan after the flush that failed")
        check("remove the lun in one change" in steps["lun", "a"]["reason"], steps)


@test
def point_3_a_disk_that_hangs_holds_up_no_other():
    """While the flush of a change hangs, commands go on; the change is refused in the end, and the next one of another disk is made
    while the first hangs still. When it answers, the change goes through."""
    with two_disks() as (disks, a, b):
        session = disks.session
        write(session, 0)
        a.hang = ("fsync",)
        answers = []
        change = threading.Thread(target=lambda: answers.append(disks.change(0, "?cache=writethrough")))
        change.start()
        wait_for(a.hung, 20, "the flush hangs")
        write(session, 1)
        check(session.command(scsi.read16(0, 1), read=BLOCK, lun=0).good, "READ of the disk that hangs")
        change.join(60)
        equal([answer.kind for answer in answers], ["apply-failed"], f"the change: {answers}")
        check("lun a keeps its write cache" in answers[0].json["detail"], answers[0].json)
        check(a.hung() > 0, "the flush hangs no more")
        disks.changed(1, "?cache=writethrough")
        equal(session.clear_unit_attentions(1), [MODE_CHANGED], "unit attention of the other disk")
        again = disks.change(0, "?cache=writethrough")
        equal(again.kind, "apply-failed", f"the change while the flush hangs: {again}")
        a.hang = ()
        a.release()

        def is_made():
            return disks.change(0, "?cache=writethrough").status < 300
        wait_for(is_made, 60, "the change is made when the store answers")
        equal(session.clear_unit_attentions(0), [MODE_CHANGED], "unit attention of the disk that hung")
        check(not has_cache(session, 0), "WCE")


# Limits.

LIMITS = {"sessions_max": 3, "connections_in_login_max": 9, "login_timeout_seconds": 7, "discovery_sessions_max": 8,
          "discovery_lifetime_seconds": 9, "unproved_per_address_max": 99, "unproved_memory_bytes": 2 * MIB,
          "command_gap_seconds": 9, "nop_interval_seconds": 8, "nop_timeout_seconds": 7, "queue_depth": 64,
          "task_deadline_seconds": 4, "shutdown_timeout_seconds": 3, "core_stall_limit_seconds": 33, "slow_command_ms": 900,
          "max_burst_bytes": 65536, "first_burst_bytes": 4096, "max_recv_data_segment_bytes": 65536, "outstanding_r2t_max": 2,
          "connections_per_session_max": 2}


def limited(text, **limits):
    return text + "[limits]\n" + "".join(f"{name} = {value}\n" for name, value in limits.items())


@test
def point_3_all_limits_but_the_pools_change_at_once():
    """The plan says online for each, and nothing is pending; a pool is."""
    with Tarn(config=lun_section("a", "mem:8M") + target_section("a")) as tarn:
        api = tarn.api()
        text = api.get("config")["text"]
        plan = api.post("plan", dict(text=limited(text, **LIMITS)))
        equal({step["name"]: step["effect"] for step in plan["steps"]}, dict.fromkeys(LIMITS, "online"), "effects")
        api.put("config", dict(text=limited(text, **LIMITS)))
        equal(api.get("status").get("pending"), None, "what is pending")
        plan = api.post("plan", dict(text=limited(text, **LIMITS, pool_per_core_bytes=64 * MIB)))
        equal([(step["name"], step["effect"]) for step in plan["steps"]], [("pool_per_core_bytes", "pending")], "the pool")


@test
def point_3_sessions_beyond_a_lower_limit_stay_and_no_more_come():
    """Nothing ends for it; a login is refused until there are fewer, and one comes when the limit is raised."""
    with Tarn(config=lun_section("a", "mem:8M") + target_section("a")) as tarn:
        api = tarn.api()
        text = api.get("config")["text"]

        def session(number):
            return iscsi.Session(tarn.port, IQN, initiator=f"{IQN}:init-{number}", timeout_s=20)

        def is_refused(number):
            try:
                session(number).close()
            except iscsi.LoginError as error:
                equal(error.status, 0x0302, "the status: out of resources")
                return True
            return False
        with session(1) as one, session(2) as two:
            for each in (one, two):
                each.clear_unit_attentions()
            api.put("config", dict(text=limited(text, sessions_max=1)))
            for each in (one, two):
                write(each, 0)
            check(is_refused(3), "a third session is let in")
            one.logout()
            wait_for(lambda: len(api.get("sessions")) == 1, 20, "the end of the first session")
            check(is_refused(4), "another session beside the one that may be")
            api.put("config", dict(text=limited(text, sessions_max=20)))
            check(not is_refused(5), "a session is refused although there may be 20")
            write(two, 0)


@test
def point_3_the_window_of_a_session_follows_queue_depth():
    """A larger one is there with the next answer; a smaller one comes as answers go out, and MaxCmdSN never goes back."""
    config = lun_section("a", "mem:8M") + target_section("a") + "[limits]\nqueue_depth = 4\n"
    with Tarn(config=config) as tarn, iscsi.Session(tarn.port, IQN, timeout_s=20) as session:
        api = tarn.api()
        text = api.get("config")["text"]
        session.clear_unit_attentions()

        def window():
            write(session, 0)
            return (session.max_cmd_sn - session.cmd_sn + 1) % (1 << 32)
        equal(window(), 4, "the window")
        api.put("config", dict(text=text.replace("queue_depth = 4", "queue_depth = 100")))
        equal(window(), 100, "the larger window")
        tasks = [session.start(scsi.read16(0, 1), read=BLOCK) for _ in range(50)]
        api.put("config", dict(text=text.replace("queue_depth = 4", "queue_depth = 2")))
        for task in tasks:
            check(session.finish(task).good, "a READ that was under way")
        for _ in range(200):
            width = window()
            if width == 2:
                break
        equal(width, 2, "the smaller window")


def waiting(api, lun="a"):
    """How many commands wait at a unit, of each client."""
    text = api.good("GET", "/metrics").body.decode()
    found = re.findall(rf'^tarn_queue_depth{{lun="{lun}",initiator="([^"]*)"}} (\d+)', text, re.M)
    return {client: int(count) for client, count in found if count != "0"}


@contextlib.contextmanager
def held(more):
    """A Tarn with a disk that answers nothing while `hang` of its file system says so, with a window of 4."""
    with faultfs.FaultFs(8 * MIB) as fs:
        config = lun_section("a", f"file:{fs.path}") + target_section("a") + more + "[limits]\nqueue_depth = 4\n"
        tarn = Tarn(config=config)
        tarn.secret("abc.secret", "correct horse battery")
        with tarn:
            api = tarn.api()
            text = api.get("config")["text"]

            def set_depth(depth):
                plan = api.post("plan", dict(text=text.replace("queue_depth = 4", f"queue_depth = {depth}")))
                check(all(step["effect"] == "online" for step in plan["steps"]), f"the plan: {plan}")
                api.put("config", dict(text=text.replace("queue_depth = 4", f"queue_depth = {depth}")))
            yield tarn, api, fs, set_depth
            fs.release()


@test
def point_3_requests_of_a_client_of_nbd_follow_queue_depth():
    """No more of them are under way than that, in a session that is there: more at once, fewer when those that were have ended."""
    with held('[[nbd]]\nbind = "127.0.0.1:{port2}"\nluns = ["a"]\n') as (tarn, api, fs, set_depth), nbd.Raw(tarn, "a") as client:
        def ask(count):
            fs.hang = ("read",)
            for at in range(count):
                client.request(nbd.READ, at * BLOCK, BLOCK)

        def answered(count):
            fs.release()
            cookies = {client.answer(BLOCK)[:2] for _ in range(count)}
            equal(cookies, {(number, 0) for number in range(client.cookie - count + 1, client.cookie + 1)}, "the answers")
        under_way = lambda: sum(waiting(api).values())
        ask(12)
        wait_for(lambda: under_way() == 4, 20, "as many as the window")
        set_depth(7)
        wait_for(lambda: under_way() == 7, 20, "as many as the larger window")
        set_depth(2)
        equal(under_way(), 7, "those that were under way")
        answered(12)
        ask(6)
        wait_for(lambda: under_way() == 2, 20, "as many as the smaller window")
        answered(6)


@test
def point_3_a_client_of_hyperscsi_keeps_its_window_and_the_next_one_has_the_new_one():
    """While one works with the window of its login, another that logs in after the change has the new one. Both end well."""
    group = '[[hyperscsi.group]]\nname = "G"\nudp = "127.0.0.1:{port2}"\npassword_file = "{dir}/abc.secret"\n' \
            '[[hyperscsi.group.device]]\nid = "a"\nlevel = "crc"\n'

    def work(tarn):
        return subprocess.Popen([BINARY, "bench", "--rw", "randread", "--bs", "512", "--iodepth", "16", "--runtime", "2", "--repeat", "1",
                                 "--udp", f"127.0.0.1:{tarn.port2}", "--password-file", tarn.dir / "abc.secret", "hyperscsi://G/a?level=crc"],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with held(group) as (tarn, api, fs, set_depth):
        fs.hang = ("read",)
        with work(tarn) as first:
            wait_for(lambda: list(waiting(api).values()) == [4], 20, "as many as the window")
            before = waiting(api)
            set_depth(7)
            with work(tarn) as second:
                wait_for(lambda: sorted(waiting(api).values()) == [4, 7], 20, f"as many as the larger window, of another beside {before}")
                set_depth(2)
                with work(tarn) as third:
                    wait_for(lambda: sorted(waiting(api).values()) == [2, 4, 7], 20, "as many as the smaller window")
                    fs.release()
                    for one in (first, second, third):
                        said, _ = one.communicate(timeout=40)
                        equal(one.returncode, 0, f"exit code: {said}")


# Where the administration listens.

class Administered(Tarn):
    """A Tarn whose administration changes its addresses; with tokens and confined to its directory."""

    CONFIG = lun_section("a", "file:{dir}/a.img?size=8M") + target_section("a") + '[confine]\nroots = ["{dir}"]\n'

    def __init__(self):
        super().__init__(config=self.CONFIG)

    def begun(self):
        self.local = self.api()
        self.text = self.local.get("config")["text"]
        self.token = self.local.post("tokens", dict(name="a", role="admin"))["token"]
        return self

    def with_admin(self, listen, more=""):
        return self.text + "[admin]\nlisten = [" + ", ".join(f'"{one}"' for one in listen) + f"]\n{more}"

    def remote(self, port, **options):
        return admin.Api(address=("127.0.0.1", port), token=self.token, timeout_s=30, **options)

    def listen(self, *ports, more=""):
        return self.local.put("config", dict(text=self.with_admin([f"127.0.0.1:{port}" for port in ports], more)))


@test
def point_3_the_administration_listens_elsewhere_at_once():
    """A new address answers, and an old one is closed when that is so: what is asked on it, the change itself among that, is
    answered first. Nothing is pending. Confined, with an address that does not change."""
    with Administered() as tarn:
        tarn.begun()
        one, two, three = (free_port() for _ in range(3))
        plan = tarn.local.post("plan", dict(text=tarn.with_admin([f"127.0.0.1:{one}"])))
        equal([(step["kind"], step["name"], step["effect"]) for step in plan["steps"]], [("admin", "listen", "online")], "the plan")
        tarn.listen(one, three)
        equal(tarn.remote(one).get("status")["revision"], 2, "the revision, asked at the new address")
        with tarn.remote(one) as old, tarn.remote(three) as stays:
            stays.get("status")
            answer = old.ask("PUT", "config", dict(text=tarn.with_admin([f"127.0.0.1:{port}" for port in (two, three)])))
            equal(answer.status, 200, f"the change over the address that goes: {answer}")
            equal(tarn.remote(two).get("status")["revision"], 3, "the revision, asked at the new address")
            wait_for(lambda: not listens(one), 20, "the old address is closed")
            equal(stays.get("status")["revision"], 3, "asked over a connection to the address that stays")

            def is_closed():
                try:
                    old.ask("GET", "status")
                except (OSError, http.client.HTTPException):
                    return True
                return False
            wait_for(is_closed, 20, "the connection to the old address is closed")
        equal(tarn.local.get("status").get("pending"), None, "what is pending")
        tarn.listen()
        wait_for(lambda: not listens(two) and not listens(three), 20, "no address is left")
        tarn.local.post("config/rollback", dict(revision=2))
        equal(tarn.remote(one).get("status")["revision"], 5, "asked at the address that a rollback has opened")


@test
def point_3_an_address_that_cannot_be_had_refuses_the_change():
    """In use by another program, not of this machine, in use by an address that stays: plan and change say the same, with the place
    and the remedy, and all that listened goes on."""
    with Administered() as tarn, socket.socket() as other:
        tarn.begun()
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken, own = other.getsockname()[1], free_port()
        tarn.listen(own)
        kept = [f"127.0.0.1:{own}", "127.0.0.1:0"]
        tarn.local.put("config", dict(text=tarn.with_admin(kept)))
        bound = [int(port) for port in re.findall(r"administration over TLS address=127\.0\.0\.1:(\d+)", plain(tarn.log()))]
        chosen = next(port for port in reversed(bound) if port != own)
        for listen, words in (([*kept, f"127.0.0.1:{taken}"], "in use by another program"),
                              (["192.0.2.77:8443"], "not an address of this host"),
                              ([*kept, f"0.0.0.0:{chosen}"], f"while this Tarn listens on 127.0.0.1:{chosen}")):
            text = tarn.with_admin(listen)
            plan = tarn.local.post("plan", dict(text=text))
            answer = tarn.local.ask("PUT", "config", dict(text=text))
            check(not plan["is_applicable"] and answer.status >= 400, f"{listen}: {plan}, {answer}")
            said = [(one.get("place", ""), one["detail"]) for one in plan["mistakes"]]
            check(any("admin.listen[" in place and words in detail for place, detail in said), f"{listen}: {said}")
            check("admin.listen[" in answer.json["place"] and words in answer.json["detail"], answer.json)
            equal(tarn.remote(own).get("status")["revision"], 3, "asked at the address that was there")


@test
def point_3_another_certificate_and_another_name_are_in_use_at_once():
    """Other files, and other contents of the same files, which a reload finds; a key that others may read is refused."""
    with Administered() as tarn:
        tarn.begun()
        port = free_port()

        def make(name):
            command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                       "-keyout", tarn.dir / "k.pem", "-out", tarn.dir / "c.pem", "-subj", f"/CN={name}"]
            subprocess.run(command, check=True, capture_output=True)
            (tarn.dir / "k.pem").chmod(0o600)
            return certificate_in(tarn.dir / "c.pem")
        own = tarn.listen(port) and certificate_at(port)
        first = make("one")
        files = f'certificate = "{tarn.dir}/c.pem"\nkey = "{tarn.dir}/k.pem"\n'
        tarn.listen(port, more=files + 'names = ["san.example"]\n')
        check(own != first, "one certificate twice")
        equal(certificate_at(port), first, "the certificate")
        equal(tarn.remote(port).ask("GET", "status", Host="san.example").status, 200, "asked by the new name")
        equal(tarn.remote(port).ask("GET", "status", Host="vm.example").status, 403, "asked by another name")
        second = make("two")
        equal(certificate_at(port), first, "until it is applied")
        text = tarn.local.get("config")["text"]
        plan = tarn.local.post("plan", dict(text=text))
        equal([(step["kind"], step["name"], step["effect"]) for step in plan["steps"]], [("admin", "certificate", "online")], "the plan")
        tarn.local.put("config", dict(text=text))
        equal(certificate_at(port), second, "the renewed certificate")
        (tarn.dir / "k.pem").chmod(0o644)
        answer = tarn.local.ask("PUT", "config", dict(text=text + "history = 50\n"))
        check(answer.status >= 400 and "chmod 600" in answer.json["detail"], f"a key that others can read: {answer}")


@test
def point_5_a_command_line_of_hyperscsi_is_kept_in_a_file_too():
    """`--save` makes a file with the group, whose devices have the names of before; `tarn show` of a Tarn without a file prints it."""
    def texts(save):
        with Tarn("{dir}/demo.img?size=8M", "mem:1M?readonly") as tarn:
            tarn.secret("abc.secret", "correct horse battery")
            equal(tarn.terminate(), 0, "exit code")
            place = f"udp:127.0.0.1:{tarn.port2}"
            more = ["--save", str(tarn.dir / "kept.toml")] if save else []
            tarn.arguments = ["--hyperscsi", place, "--group", "ABC", "--password-file", str(tarn.dir / "abc.secret"), *more]
            tarn.start()
            api = tarn.api()
            group, = api.get("hyperscsi")
            equal([one["id"] for one in group["spec"]["device"]], ["disk0", "disk1"], "the devices")
            text = api.get("config")["text"]
            if save:
                equal((tarn.dir / "kept.toml").read_text(), text, "the file")
                api.put("luns/more", dict(id="more", store="mem:1M"))
            for part in ('name = "ABC"', f'udp = "{place[4:]}"', f'password_file = "{tarn.dir}/abc.secret"', 'id = "disk0"'):
                check(part in text, f"{part} in {text}")
            return text.replace(str(tarn.dir), "DIR").replace(str(tarn.port2), "PORT").replace(str(tarn.port), "PORT")
    kept, shown = texts(True), texts(False)

    def without_identities(text):
        return [line for line in text.splitlines() if not line.startswith(("serial", "naa"))]
    equal(without_identities(shown), without_identities(kept), "what tarn show prints")


def certificate_at(port):
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port)))


def certificate_in(path):
    return ssl.PEM_cert_to_DER_cert(pathlib.Path(path).read_text())
