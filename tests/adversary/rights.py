"""Who may do what: before login, after login, through a read-only view, as operator."""
import collections
import contextlib
import json
import os
import socket
import struct
import threading
import time

import admin
import faultfs
import iscsi
import scsi
from faultfs import FaultFs
from harness import check, equal, test, wait_for
from tarn import IQN, Tarn, listens, lun_section, target_section, user_section

# C6

OPERATED = """
[admin]
listen = ["127.0.0.1:{port2}"]
tls = false
""" + lun_section("disk", "mem:16M") + user_section("alice", "alice.secret") + target_section("disk", auth="alice")


class Operated(Tarn):
    """A Tarn with the user alice, whose administration listens at `port2` too."""

    def __init__(self, more=""):
        super().__init__(config=OPERATED + more)
        self.secret("alice.secret", "the secret of alice")

    def ready(self):
        return self.administers()

    def operator(self):
        made = self.api().post("tokens", {"name": "op", "role": "operator"})
        return admin.Api(address=("127.0.0.1", self.port2), plain=True, token=made["token"])


class WatchedFs(FaultFs):
    """Counts every request of the kernel that names the file or opens it."""

    def _handle(self, opcode, node, body):
        if opcode in (faultfs.LOOKUP, faultfs.OPEN):
            self.looks = getattr(self, "looks", 0) + 1
        return super()._handle(opcode, node, body)


def answer_of(api, text):
    """What a plan of this document is answered: the status and the body."""
    answer = api.ask("POST", "plan", {"text": text})
    return answer.status, answer.body


def user(name, path):
    return f'[[user]]\nname = "{name}"\nsecret_file = "{path}"\n'


@test
def a_plan_below_admin_says_nothing_of_a_path_it_names():
    """C6: whatever lies at a path, an operator's plan that names it as a secret is answered the same; an admin's plan tells."""
    with Operated() as tarn:
        operator, probed = tarn.operator(), tarn.dir / "probed"
        text = tarn.api().get("config")["text"]

        def nothing():
            pass

        def held(content, mode):
            def make():
                probed.write_bytes(content)
                probed.chmod(mode)
            return make
        seen = {}
        for what, make in [("nothing", nothing), ("a directory", probed.mkdir), ("a pipe", lambda: os.mkfifo(probed)),
                           ("a file that others may read", held(b"twelve bytes", 0o644)), ("too short", held(b"short", 0o600)),
                           ("a secret", held(b"some other secret", 0o600)), ("that of alice", held(b"the secret of alice\n", 0o600))]:
            make()
            for which, document in [("a new user", text + user("mallory", probed)),
                                    ("another file of alice", text.replace('"alice.secret"', f'"{probed}"')),
                                    ("a mutual secret", text + user("bob", tarn.dir / "alice.secret")
                                     + f'mutual = {{ name = "t", secret_file = "{probed}" }}\n')]:
                seen.setdefault(which, {})[what] = answer_of(operator, document)
            if probed.is_dir():
                probed.rmdir()
            elif what != "nothing":
                probed.unlink()
        for which, answers in seen.items():
            equal(len(set(answers.values())), 1, f"different answers to an operator for {which}: {answers}")
            status, body = answers["nothing"]
            equal(status, 200, f"{which}: {body}")
            check("no file was read" in " ".join(json.loads(body)["warnings"]), f"{which}: {body}")
        # Who may read the daemon's files is told what is wrong with one.
        status, body = answer_of(tarn.api(), text + user("mallory", probed))
        check(status == 200 and b"cannot read secret file" in body and not json.loads(body)["is_applicable"], f"admin: {status} {body}")
        equal(tarn.api().get("config")["revision"], 1, "revision")


@test
def a_plan_below_admin_touches_no_file():
    """C6: an operator's plan that names secrets and stores on a file system makes no request to it, an admin's plan does."""
    for more in ("", '[confine]\nroots = ["."]\n'):
        with WatchedFs(1 << 20) as fs, Operated(more) as tarn:
            operator, text = tarn.operator(), tarn.api().get("config")["text"]
            fs.looks = 0
            document = text + user("mallory", fs.path) + f'[[lun]]\nid = "x"\nstore = "file:{fs.path}"\n'
            status, body = answer_of(operator, document)
            equal((status, fs.looks), (200, 0), f"answer to an operator and requests to the file system: {body}")
            answer_of(tarn.api(), document)
            check(fs.looks > 0, "an admin's plan does not look at the file either: this test shows nothing")


@test
def an_operator_cannot_compare_secrets():
    """C6: whether two users have one secret is no concern of an operator: their plans do not differ by it."""
    with Operated() as tarn:
        operator, text = tarn.operator(), tarn.api().get("config")["text"]
        answers = []
        for secret in ("the secret of alice", "the secret of nobody"):
            tarn.secret("guess.secret", secret)
            mutual = 'secret_file = "alice.secret"\nmutual = { name = "t", secret_file = "guess.secret" }\n'
            answers.append([answer_of(operator, text.replace("alice.secret", "guess.secret")),
                            answer_of(operator, text.replace('secret_file = "alice.secret"\n', mutual))])
            (tarn.dir / "guess.secret").unlink()
        equal(answers[0], answers[1], "plans with a right and with a wrong guess")


HOOK = """
[[notify]]
url = "https://127.0.0.1:1/hook/SECRETPATH"
secret_file = "alice.secret"
"""
WRITTEN = HOOK + """
[[hyperscsi.group]]
name = "GRP"
udp = "127.0.0.1:0"
password = "HyperPassw0rdXYZ"
device = [{ id = "disk" }]
"""


@test
def an_operator_cannot_try_secrets_that_are_written():
    """C6: passwords and paths of URLs in the configuration: a plan is the same for a right and a wrong guess, also of a second URL."""
    with Operated(WRITTEN) as tarn:
        operator = tarn.operator()
        shown = operator.get("config")["text"]
        check("HyperPassw0rd" not in shown and "SECRETPATH" not in shown, f"secrets are shown: {shown}")
        status, body = answer_of(operator, shown)
        equal((status, json.loads(body)["steps"]), (200, []), "plan of what was shown")
        second = '[[notify]]\nurl = "https://127.0.0.1:1/hook/{}"\nsecret_file = "alice.secret"\n'
        for what, right, wrong, document in [("password", "HyperPassw0rdXYZ", "HyperPassw0rdXYY", lambda guess: shown.replace('"(not shown)"', f'"{guess}"')),
                                             ("URL", "hook/SECRETPATH", "hook/SECRETPATS", lambda guess: shown.replace(':1/(not shown)"', f':1/{guess}"')),
                                             ("second URL", "SECRETPATH", "SECRETPATS", lambda guess: shown + second.format(guess))]:
            check(document(right) != shown, f"{what}: nothing is guessed")
            plans = [answer_of(operator, document(guess)) for guess in (right, wrong)]
            equal(plans[0], plans[1], f"plans with a right and a wrong guess of the {what}")
            check(plans[0][0] == 200 and json.loads(plans[0][1])["steps"], f"a guessed {what} is no step: {plans[0]}")


@test
def no_mistake_shows_the_path_of_a_url():
    """C6: what is wrong with the section of a web server names it as every role may see it."""
    with Operated() as tarn:
        operator = tarn.operator()
        tarn.secret("hook.secret", "the secret of the web server")
        text = tarn.api().get("config")["text"] + HOOK.replace("alice.secret", "hook.secret")
        check(tarn.api().ask("PUT", "config", {"text": text}).status == 200, "the configuration with a web server")
        (tarn.dir / "hook.secret").chmod(0o644)
        for path, body in [("luns/disk/resize", {"size_bytes": 32 << 20}), ("luns/disk/rename", {"id": "other"}), ("config/edits", {"edits": []})]:
            answer = operator.ask("POST", path, body)
            check(answer.status >= 400 and b"hook.secret" in answer.body, f"{path} is made: {answer.status} {answer.body}")
            check(b"SECRETPATH" not in answer.body, f"{path}: {answer.body}")


@test
def a_file_of_tarn_is_no_store():
    """C6: an admin cannot add a LUN, or a log, that is a secret, the configuration or below the state directory, and nothing becomes
    larger; a configuration that has one starts without that LUN."""
    with Operated() as tarn:
        made = tarn.api().post("tokens", {"name": "adm", "role": "admin"})
        far = admin.Api(address=("127.0.0.1", tarn.port2), plain=True, token=made["token"])
        tarn.api().put("users/bob", {"name": "bob", "secret": "the-secret-of-bob-1234"})
        state = tarn.dir / "state"
        kept = next(state.rglob("*.secret"))
        (tarn.dir / "twin.img").hardlink_to(kept)
        (tarn.dir / "link.img").symlink_to(tarn.dir / "alice.secret")
        files = [kept, tarn.dir / "twin.img", tarn.dir / "alice.secret", tarn.dir / "link.img", state / "tokens.toml", tarn.dir / "tarn.toml"]
        before = [file.read_bytes() for file in files]
        stores = [f"file:{path}?size=64k&format=raw" for path in (*files, state / "new.img")] + [f"{path}?readonly" for path in files]
        luns = [{"id": "x", "store": store} for store in stores]
        luns.append({"id": "x", "store": f"file:{tarn.dir}/x.img?size=16M", "log": f"file:{kept}?size=64M"})
        for lun in luns:
            edits = {"edits": [{"add": {"lun": lun}}, {"add": {"view": {"target": IQN, "id": "x", "lun": 5}}}]}
            answer = far.ask("POST", "config/edits", edits)
            check(answer.status >= 400 and b"a file of Tarn itself" in answer.body, f"{lun}: {answer.status} {answer.body}")
        equal([file.read_bytes() for file in files], before, "files of Tarn")
        check(not (state / "new.img").exists(), "a file was made below the state directory")
        tarn.kill()
        tarn.config += lun_section("x", f"file:{kept}?size=64k")
        tarn.start()
        trouble = tarn.api().get("luns/x").get("trouble")
        check(trouble and "a file of Tarn itself" in trouble["why"], f"trouble: {trouble}")
        equal(kept.read_bytes(), before[0], "a secret after a start")


# C1, C5

HOST = "iqn.2026-11.example.tarn:host"
ISID = b"\x80\x00\x00\x00\x00\x07"
ALICE = dict(name="alice", secret="alice-secret-of-16")
BOB = dict(name="bob", secret="bob-secret-of-16-b")
PATHS = {"MaxConnections": "4"}
REFUSED, NO_SESSION, OUT_OF_RESOURCES, NO_PROOF, NOT_FOUND = 0x0202, 0x020A, 0x0302, 0x0201, 0x0203
BLOCK = 512
SECRET = b"only alice may see this".ljust(BLOCK, b".")

# `IQN` wants CHAP; `IQN-open` takes everybody and shows more to alice; `IQN-net` shows by address.
CONFIG = f"""
[[lun]]
id = "hers"
store = "mem:16M"
[[lun]]
id = "common"
store = "mem:16M"
[[user]]
name = "alice"
secret_file = "{{dir}}/alice"
[[user]]
name = "bob"
secret_file = "{{dir}}/bob"
[[group]]
id = "hers"
initiators = ["alice"]
[[group]]
id = "near"
initiators = [NEAR]
[[group]]
id = "all"
initiators = ["127.0.0.0/8"]
[[target]]
name = "{IQN}"
portals = ["127.0.0.1:{{port}}"]
auth = ["alice", "bob"]
luns = [{{ lun = 0, id = "hers", groups = ["hers"] }}, {{ lun = 1, id = "common" }}]
[[target]]
name = "{IQN}-open"
portals = ["127.0.0.1:{{port}}"]
luns = [{{ lun = 0, id = "hers", groups = ["hers"] }}, {{ lun = 1, id = "common" }}]
[[target]]
name = "{IQN}-net"
portals = ["127.0.0.1:{{port}}"]
luns = [{{ lun = 0, id = "hers", groups = ["near"] }}, {{ lun = 1, id = "common", groups = ["all"] }}]
"""
NEAR = '"127.0.0.5", "127.0.0.6"'


def serve(near=NEAR, extra=""):
    tarn = Tarn(config=CONFIG.replace("NEAR", near) + extra)
    for user in (ALICE, BOB):
        tarn.secret(user["name"], user["secret"])
    return tarn


class Origin(threading.local):
    """Where connections of this thread come from, if a test wants a certain address."""

    address = None


origin = Origin()
plain_connect = socket.socket.connect


def connect_from_origin(one, address):
    if origin.address:
        one.bind((origin.address, 0))
    plain_connect(one, address)


socket.socket.connect = connect_from_origin


class Host(iscsi.Session):
    """A host that comes from the address `source` and whose first connection has the number `cid`."""

    def __init__(self, tarn, target=IQN, *, source="127.0.0.1", cid=0, **options):
        self.source, self.first_cid = source, cid
        options = {"initiator": HOST, "isid": ISID, "keys": PATHS, **options}
        super().__init__(tarn.port, target, **options)

    def add_connection(self, cid, login=True):
        origin.address = self.source
        try:
            return super().add_connection(cid or self.first_cid, login)
        finally:
            origin.address = None


def status_of(login):
    """The status that ends a login, 0 for one that is let in."""
    try:
        login().close()
    except iscsi.LoginError as error:
        return error.status
    return 0


def is_well(session, lun):
    """The session goes on: it takes commands and its data is there."""
    session.nop()
    session.clear_unit_attentions(lun)
    outcome = session.command(scsi.read10(0, 1), read=BLOCK, lun=lun)
    check(outcome.good, f"a READ of the honest session: {outcome}")
    return outcome.data


def begin(tarn, target=IQN, user=ALICE, lun=0, **options):
    """An honest session, with something worth reading."""
    session = Host(tarn, target, chap=user, **options)
    session.clear_unit_attentions(lun)
    check(session.command(scsi.write10(0, 1), write=SECRET, lun=lun).good, "the WRITE of the honest session")
    return session


def entrances(tarn, session, target, **newcomer):
    """What a newcomer with the names of a session gets: another connection, one in place of the first, a new session."""
    options = {"source": session.source, **newcomer}
    return [status_of(lambda: Host(tarn, target, tsih=tsih, cid=cid, **options))
            for tsih, cid in ((session.tsih, 1), (session.tsih, 0), (0, 0))]


@test
def another_user_enters_no_session():
    """C1: with alice's InitiatorName, ISID and TSIH bob neither joins her session nor replaces a connection or all of it."""
    with serve() as tarn, begin(tarn) as alice:
        equal(entrances(tarn, alice, IQN, chap=BOB), [REFUSED] * 3, "what bob is answered")
        equal(is_well(alice, 0), SECRET, "the data of alice")
        equal(len(tarn.api().get("sessions")), 1, "sessions")


@test
def nobody_enters_the_session_of_a_user():
    """C1: where CHAP is not asked for, one who proves nothing does not enter the session of one who did, nor the reverse."""
    target = f"{IQN}-open"
    with serve() as tarn:
        with begin(tarn, target) as alice:
            equal(entrances(tarn, alice, target), [REFUSED] * 3, "what nobody is answered")
            equal(entrances(tarn, alice, target, chap=BOB)[-1] in (REFUSED, NO_PROOF), True, "what bob is answered")
            equal(is_well(alice, 0), SECRET, "the data of alice")
            alice.logout()
        with begin(tarn, target, None, lun=1) as nobody:
            equal(entrances(tarn, nobody, target, chap=ALICE), [REFUSED] * 3, "what alice is answered")
            equal(is_well(nobody, 1), SECRET, "the data of nobody")


@test
def the_same_user_enters_its_session():
    """C1: alice joins her session, replaces a connection of it, and replaces it as a whole."""
    with serve() as tarn:
        for user, target, lun in ((ALICE, IQN, 0), (None, f"{IQN}-open", 1)):
            with begin(tarn, target, user, lun) as alice:
                alice.add_connection(1)
                alice.add_connection(2)
                equal(alice.nop(b"two", alice.connections[2]), b"two", "a ping over the third connection")
                again = Host(tarn, target, chap=user, tsih=alice.tsih, cid=2, cmd_sn=alice.cmd_sn)
                check(alice.connections[2].closed_within(10), "the connection that was replaced stays open")
                alice.nop()
                again.close()
                alice.close()
            with begin(tarn, target, user, lun) as alice, Host(tarn, target, chap=user) as newer:
                check(alice.connection.closed_within(10), "the session that was replaced stays open")
                equal(is_well(newer, lun), SECRET, "the data")
                newer.logout()


@test
def an_address_that_is_granted_less_enters_no_session():
    """C1: a connection from an address that sees less than the session has neither joins nor replaces it."""
    target = f"{IQN}-net"
    with serve() as tarn, begin(tarn, target, None, source="127.0.0.5") as near:
        equal(entrances(tarn, near, target, source="127.0.0.9"), [REFUSED] * 3, "what the far one is answered")
        equal(is_well(near, 0), SECRET, "the data")
        with Host(tarn, target, source="127.0.0.6", tsih=near.tsih, cid=1, cmd_sn=near.cmd_sn) as second:
            second.nop()
            near.nop()


def reserve_out(session, action, key=0, new_key=0, kind=0, lun=1):
    """PERSISTENT RESERVE OUT; returns the outcome."""
    cdb = struct.pack(">BBB2xIB", 0x5F, action, kind, 24, 0)
    return session.command(cdb, write=struct.pack(">QQ8x", key, new_key), lun=lun)


@test
def another_user_inherits_no_reservation():
    """C1: once alice is gone, bob with her InitiatorName and ISID is not the holder of her reservation; alice is."""
    register, reserve, release, write_exclusive = 0, 1, 2, 1
    with serve() as tarn:
        with begin(tarn, lun=1) as alice:
            check(reserve_out(alice, register, 0, 0xA11CE).good, "REGISTER of alice")
            check(reserve_out(alice, reserve, 0xA11CE, kind=write_exclusive).good, "RESERVE of alice")
            alice.logout()
        with Host(tarn, chap=BOB) as bob:
            bob.clear_unit_attentions(1)
            outcome = bob.command(scsi.write10(0, 1), write=b"b" * BLOCK, lun=1)
            equal(outcome.status, scsi.RESERVATION_CONFLICT, "a WRITE of bob")
            outcome = reserve_out(bob, release, 0xA11CE, kind=write_exclusive)
            equal(outcome.status, scsi.RESERVATION_CONFLICT, "a RELEASE by bob")
            check(reserve_out(bob, register, 0, 0xB0B).good, "REGISTER of bob, as another nexus")
            outcome = bob.command(scsi.write10(0, 1), write=b"b" * BLOCK, lun=1)
            equal(outcome.status, scsi.RESERVATION_CONFLICT, "a WRITE of bob, registered")
            bob.logout()
        with Host(tarn, chap=ALICE) as alice:
            equal(is_well(alice, 1), SECRET, "the data of alice")
            check(alice.command(scsi.write10(0, 1), write=SECRET, lun=1).good, "a WRITE of alice")
            check(reserve_out(alice, release, 0xA11CE, kind=write_exclusive).good, "RELEASE of alice")


@test
def numbers_of_sessions_are_not_foreseen():
    """C1: TSIHs do not follow each other."""
    with serve() as tarn:
        hosts = [Host(tarn, f"{IQN}-open", isid=b"\x80\x00\x00\x00\x01" + bytes([n])) for n in range(12)]
        numbers = [host.tsih for host in hosts]
        steps = [(b - a) % 2**16 for a, b in zip(numbers, numbers[1:])]
        check(0 not in numbers and len(set(numbers)) == len(numbers), f"TSIHs {numbers}")
        check(sum(step < 16 for step in steps) <= 2, f"TSIHs {numbers}")
        for host in hosts:
            host.close()


@test
def failed_joins_are_limited_and_delay_no_leading_login():
    """C1: whoever tries TSIHs is no longer looked at, by address; leading logins and other addresses notice nothing."""
    target, tries = f"{IQN}-open", 48
    with serve() as tarn, begin(tarn, target, None, lun=1, source="127.0.0.5") as honest:
        guess = {"source": "127.0.0.9", "cid": 1}
        answers = [status_of(lambda n=n: Host(tarn, target, tsih=(honest.tsih + n) % 2**16 or 7, isid=b"\x80\0\0\0\0\x63", **guess))
                   for n in range(1, tries)]
        equal(answers[0], NO_SESSION, "the first wrong TSIH")
        equal(answers[-1], OUT_OF_RESOURCES, "the last wrong TSIH")
        with Host(tarn, target, isid=b"\x80\0\0\0\0\x64", source="127.0.0.9") as leading:
            leading.nop()
        honest.add_connection(1)
        equal(honest.nop(b"one", honest.connections[1]), b"one", "a ping over the second connection")


@test
def every_connection_is_listed_and_logged():
    """C1: a session shows each of its connections with address and portal; one that joins is an event and a line of the log."""
    target = f"{IQN}-net"
    with serve() as tarn, begin(tarn, target, None, source="127.0.0.5") as near:
        with Host(tarn, target, source="127.0.0.6", tsih=near.tsih, cid=3, cmd_sn=near.cmd_sn) as second:
            second.nop()
            session, = tarn.api().get("sessions")
            connections = session["transport"]["iscsi"]["connections"]
            listed = [(one["cid"], one["address"].rpartition(":")[0], one["portal"]) for one in connections]
            portal = f"127.0.0.1:{tarn.port}"
            equal(listed, [(0, "127.0.0.5", portal), (3, "127.0.0.6", portal)], "connections of the session")
            event, = (one for one in tarn.api().get("events?most=100") if one["kind"] == "connection-joined")
            check("127.0.0.6" in event["message"] and event["initiator"] == HOST, f"the event: {event}")
            tarn.await_log("connection joins", "127.0.0.6", HOST)


@test
def every_connection_is_judged_by_a_change():
    """C1: a session ends when a change no longer admits the address of any of its connections, not only of its first."""
    target = f"{IQN}-net"
    with serve() as tarn, begin(tarn, target, None, source="127.0.0.5") as near:
        with Host(tarn, target, source="127.0.0.6", tsih=near.tsih, cid=1, cmd_sn=near.cmd_sn) as second:
            second.nop()
            api = tarn.api()
            api.put("groups/near", dict(id="near", initiators=["127.0.0.5", "127.0.0.7"]))
            check(second.connection.closed_within(10), "a connection from an address that is granted no more stays open")
            wait_for(lambda: not api.get("sessions"), 10, "the session has ended")


@test
def users_are_bound_to_their_names():
    """C1: a user with `initiators` proves right under these names alone, and they are nobody else's; a change judges sessions so."""
    with serve() as tarn, Host(tarn, chap=BOB) as bob:
        bob.nop()
        api = tarn.api()
        alice = next(user for user in api.get("users") if user["name"] == "alice")
        api.put("users/alice", {**alice, "initiators": [HOST]})
        check(bob.connection.closed_within(10), "bob stays logged in with a name that is now that of alice")
        for target, chap, want in ((IQN, BOB, REFUSED), (f"{IQN}-open", None, REFUSED), (f"{IQN}-net", None, 0), (IQN, ALICE, 0)):
            equal(status_of(lambda: Host(tarn, target, chap=chap)), want, f"{target} as {chap} with the name of alice")
        for target, chap, want in ((IQN, ALICE, NO_PROOF), (f"{IQN}-open", ALICE, NO_PROOF), (IQN, BOB, 0), (f"{IQN}-open", None, 0)):
            got = status_of(lambda: Host(tarn, target, chap=chap, initiator=f"{HOST}2"))
            equal(got, want, f"{target} as {chap} with another name")
        # A client that does not know the key does not free her.
        del alice["secret_file"]
        api.put("users/alice", alice)
        equal(next(user for user in api.get("users") if user["name"] == "alice")["initiators"], [HOST], "the names of alice")


def wrong_proof(tarn, user="alice", **options):
    """A guess at a secret; returns the status of the answer and how long it took."""
    begin = time.monotonic()
    status = status_of(lambda: Host(tarn, chap=dict(name=user, secret="not the secret of it"), **options))
    return status, time.monotonic() - begin


@test
def guesses_wait_and_right_proofs_do_not():
    """C5: wrong proofs for a user from one address are answered later and later; right ones, other users and addresses at once."""
    with serve() as tarn:
        begin = time.monotonic()
        waits = []
        for _ in range(7):
            status, wait = wrong_proof(tarn, source="127.0.0.9")
            equal(status, NO_PROOF, "a wrong proof")
            waits.append(wait)
        # 0.5, 1, 2 and 4 seconds after three that are free.
        check(time.monotonic() - begin > 7, f"seven guesses take {waits}")
        with Host(tarn, chap=ALICE, source="127.0.0.9") as alice:
            alice.nop()
        slow = threading.Thread(target=wrong_proof, args=(tarn,), kwargs={"source": "127.0.0.9"})
        slow.start()
        # While one waits, nobody else does.
        equal(status_of(lambda: Host(tarn, chap=ALICE, source="127.0.0.9")), 0, "a right proof meanwhile")
        equal(wrong_proof(tarn, "bob", source="127.0.0.9")[0], NO_PROOF, "a wrong proof for another user")
        equal(wrong_proof(tarn, source="127.0.0.8")[0], NO_PROOF, "a wrong proof from another address")
        check(slow.is_alive(), "the eighth guess was answered as fast as the first of others")
        guesses = lambda: [one for one in tarn.api().get("findings") if one["code"] == "guessed-secret"]
        wait_for(guesses, 10, "the finding")
        finding, = guesses()
        check(finding["subject"] == "alice" and "127.0.0.9" in finding["message"], f"the finding: {finding}")
        slow.join()
        # Guesses at another user do not hide those.
        others = [threading.Thread(target=wrong_proof, args=(tarn, "bob"), kwargs={"source": "127.0.0.9"}) for _ in range(8)]
        for other in others:
            other.start()
        for other in others:
            other.join()
        guessed = {one["subject"] for one in tarn.api().get("findings") if one["code"] == "guessed-secret"}
        equal(guessed, {"alice", "bob"}, "users whose secrets were guessed")


@test(limit_s=60)
def a_viewer_who_holds_connections_keeps_nobody_else_out():
    """E4: one address holds as many connections as it gets, each with a request whose body does not come; another address is
    answered every time."""
    with Operated() as tarn:
        wait_for(lambda: listens(tarn.port2), 20, "the administration listens")
        tokens = {role: tarn.api().post("tokens", {"name": role, "role": role})["token"] for role in ("viewer", "admin")}
        head = (f"POST /api/v1/logout HTTP/1.1\r\nHost: 127.0.0.1:{tarn.port2}\r\nAuthorization: Bearer {tokens['viewer']}\r\n"
                "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{").encode()
        held = []
        for n in range(600):
            one = socket.create_connection(("127.0.0.1", tarn.port2), 5, source_address=("127.0.0.2", 0))
            one.sendall(head)
            held.append(one)
            if n % 20 == 19:
                answer = admin.Api(address=("127.0.0.1", tarn.port2), plain=True, token=tokens["admin"]).ask("GET", "status")
                equal(answer.status, 200, f"status for another address beside {n + 1} such connections")
        for one in held:
            one.close()


@test(limit_s=120)
def an_operator_keeps_no_administrator_out():
    """B1: an operator plans a thousand edits over and over and holds connections whose bodies do not come, from the address of the
    administrator: who is `admin` there, or at the socket, reads and changes all the same. More edits than that are refused."""
    groups = "".join(f'[[group]]\nid = "g{n}"\ninitiators = ["iqn.2026-11.example:{n}"]\n' for n in range(8000))
    with Operated(groups) as tarn, contextlib.ExitStack() as held:
        wait_for(lambda: listens(tarn.port2), 20, "the administration listens")
        tokens = {role: tarn.api().post("tokens", {"name": role, "role": role})["token"] for role in ("operator", "admin")}
        remote = lambda role: admin.Api(address=("127.0.0.1", tarn.port2), plain=True, token=tokens[role], timeout_s=60)
        edit = lambda n: {"put": {"group": {"id": f"new{n}", "initiators": [f"iqn.2026-11.example:n{n}"]}}}
        edits = [edit(n) for n in range(1001)]
        refused = remote("operator").ask("POST", "config/edits?plan=true", {"edits": edits})
        check(refused.status == 400 and "1000 edits at most, this one has 1001" in refused.json["detail"], refused.body)
        stop, statuses = threading.Event(), collections.Counter()

        def plan():
            api = remote("operator")
            while not stop.is_set():
                with contextlib.suppress(OSError):
                    statuses[api.ask("POST", "config/edits?plan=true", {"edits": edits[:1000]}).status] += 1
        threads = [threading.Thread(target=plan) for _ in range(12)]
        for one in threads:
            one.start()
        try:
            head = (f"POST /api/v1/plan HTTP/1.1\r\nHost: 127.0.0.1:{tarn.port2}\r\nAuthorization: Bearer {tokens['operator']}\r\n"
                    "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{").encode()
            for n in range(300):
                one = held.enter_context(socket.create_connection(("127.0.0.1", tarn.port2), 5))
                with contextlib.suppress(OSError):
                    one.sendall(head)
                if n % 30 == 29:
                    for who, api in (("over TCP", remote("admin")), ("at the socket", tarn.api())):
                        equal(api.ask("GET", "config").status, 200, f"a read {who} beside {n + 1} connections")
                        group = {"id": "mine", "initiators": [f"iqn.2026-11.example:{who[-3:]}{n}"]}
                        check(api.ask("PUT", "groups/mine", group).status in (200, 201), f"a change {who}")
        finally:
            stop.set()
            for one in threads:
                one.join()
        # 412: the administrator has changed it meanwhile.
        check(statuses[200] and set(statuses) <= {200, 412, 503}, f"answers to the operator: {statuses}")


@test
def strangers_hide_no_refusal_of_a_known_token():
    """C5: forty wrong tokens leave the refusals of an operator among the events."""
    with Operated() as tarn:
        wait_for(lambda: listens(tarn.port2), 20, "the administration listens")
        api = tarn.api()
        token = api.post("tokens", {"name": "op", "role": "operator"})["token"]
        for n in range(40):
            admin.Api(address=("127.0.0.1", tarn.port2), plain=True, token=f"wrong{n}").ask("GET", "config")
        operator = admin.Api(address=("127.0.0.1", tarn.port2), plain=True, token=token)
        equal([operator.ask("DELETE", "luns/disk").status for _ in range(3)], [403] * 3, "what the operator is answered")
        refused = [one.get("author") for one in api.get("events?most=1000") if one["kind"] == "admin-refused"]
        equal(refused.count("op"), 3, "refusals of the operator among the events")


@test
def discovery_washes_no_event_out():
    """C5: thousands of discovery sessions leave no event, and sessions push none of the audit out."""
    with serve() as tarn:
        api = tarn.api()
        group = dict(id="near", initiators=["127.0.0.5"])
        api.put("groups/near", group)
        audit = [event for event in api.get("events?most=1000") if event["kind"] == "admin-change"]
        for _ in range(100):
            session = iscsi.Session(tarn.port)
            session.logout()
            session.close()
        events = api.get("events?most=1000")
        check(not [one for one in events if one["kind"] in ("session-began", "session-ended")], "events of discovery sessions")
        # Sessions of a target have events, of which the last 4096 are kept: 2,100 sessions have more.
        for n in range(2100):
            with Host(tarn, f"{IQN}-open", isid=b"\x80\0\0\1" + n.to_bytes(2, "big")):
                pass
        first = [one["number"] for one in api.get("events?after=0&most=1000") if one["kind"] == "admin-change"]
        equal(first, [one["number"] for one in audit], "the audit")


@test
def the_strongest_common_algorithm_is_used():
    """C5: the strongest algorithm that both have is taken, whatever the initiator names first."""
    with serve() as tarn:
        for offered, best in (([5, 6, 7, 8], 8), ([5, 7], 7), ([6, 5], 6), ([5], 5)):
            with Host(tarn, chap={**ALICE, "algorithms": offered}) as alice:
                equal(alice.chap_algorithm, best, f"of {offered}")


@test
def a_minimum_of_algorithms_holds_for_discovery():
    """C5: where no target takes MD5, discovery takes none either."""
    extra = '[server]\ndiscovery_auth = ["alice"]\n'
    strong = CONFIG.replace('auth = ["alice", "bob"]', 'auth = ["alice", "bob"]\nchap_algorithms = ["sha256", "sha3-256"]')
    strong = strong.replace("[[target]]\nname = \"%s-open\"" % IQN, '[[target]]\nname = "%s-open"\nchap_algorithms = ["sha3-256"]' % IQN)
    tarn = Tarn(config=extra + strong.replace("NEAR", NEAR))
    for user in (ALICE, BOB):
        tarn.secret(user["name"], user["secret"])
    with tarn:
        for algorithms, want in (([5], NO_PROOF), ([5, 6], NO_PROOF), ([5, 7], 0)):
            got = status_of(lambda: iscsi.Session(tarn.port, chap={**ALICE, "algorithms": algorithms}))
            equal(got, want, f"discovery with {algorithms}")


@test
def hidden_targets_are_as_missing_ones():
    """C5: the name of a target that an initiator may not see is answered as one that is not there."""
    only_near = CONFIG.replace('groups = ["all"]', 'groups = ["near"]')
    tarn = Tarn(config=only_near.replace("NEAR", NEAR))
    for user in (ALICE, BOB):
        tarn.secret(user["name"], user["secret"])
    with tarn:
        for target, source, want in ((f"{IQN}-net", "127.0.0.9", NOT_FOUND), (f"{IQN}-none", "127.0.0.9", NOT_FOUND),
                                     (f"{IQN}-net", "127.0.0.5", 0)):
            equal(status_of(lambda: Host(tarn, target, source=source)), want, f"{target} from {source}")
# C4. What a read-only view, and any initiator by a reset, may do to others.

VIEW, COLD = f"{IQN}-view", f"{IQN}-cold"
VIEW_CONFIG = lun_section("disk", "file:{dir}/disk.img?size=16M") + target_section("disk") + f"""
[[target]]
name = "{VIEW}"
portals = ["127.0.0.1:{{port}}"]
luns = [{{ lun = 0, id = "disk", readonly = true }}]
"""
COLD_CONFIG = VIEW_CONFIG + target_section("disk", name=COLD, keys="cold_reset = true\n")
WRITE_PROTECTED = (scsi.DATA_PROTECT, (0x27, 0x00))
AUTHORIZATION_FAILED = 6
SOFTWARE_WRITE_PROTECT = bytes([0, 0, 0, 0, 0x0A, 0x0A, 0x22, 0x10, 0x08]) + bytes(7)
MODE_SELECT_6 = bytes([0x15, 0x11, 0, 0, 16, 0])
MODE_SELECT_10 = bytes([0x55, 0x11, 0, 0, 0, 0, 0, 0, 20, 0])
STOP, START = bytes([0x1B, 0, 0, 0, 0, 0]), bytes([0x1B, 0, 0, 0, 1, 0])


def session_at(tarn, target=IQN, **options):
    """A session that has taken its unit attentions."""
    session = iscsi.Session(tarn.port, target, **options)
    session.clear_unit_attentions()
    return session


def reservation_cdb(action, key=0, action_key=0, kind=0, aptpl=False):
    """CDB and parameter list of PERSISTENT RESERVE OUT."""
    cdb = struct.pack(">BBB2xIB", 0x5F, action, kind, 24, 0)
    return cdb, struct.pack(">QQ4xB3x", key, action_key, aptpl)


def write_is_good(session, what):
    outcome = session.command(scsi.write16(0, 1), write=b"\x5a" * 512)
    check(outcome.good, f"WRITE of the one that may write, {what}: {outcome}")


@test
def a_read_only_view_cannot_alter_the_unit():
    """C4: write protection, stop and reservations through it are refused, and nothing of them is there after a restart."""
    altering = {
        "MODE SELECT (6), SWP, SP": (MODE_SELECT_6, SOFTWARE_WRITE_PROTECT),
        "MODE SELECT (10), SWP, SP": (MODE_SELECT_10, bytes(4) + SOFTWARE_WRITE_PROTECT),
        "START STOP UNIT, START 0": (STOP, b""),
        "RESERVE (6)": (scsi.reserve6(), b""),
        "RESERVE (10)": (bytes([0x56]) + bytes(9), b""),
        "REGISTER, APTPL": reservation_cdb(0, 0, 0xB, aptpl=True),
        "REGISTER AND IGNORE, APTPL": reservation_cdb(6, 0, 0xB, aptpl=True),
        "RESERVE": reservation_cdb(1, 0xB, kind=3),
        "CLEAR": reservation_cdb(3, 0xB),
        "PREEMPT": reservation_cdb(4, 0xB, 0xA, 3),
        "PREEMPT AND ABORT": reservation_cdb(5, 0xB, 0xA, 3),
    }
    tarn = Tarn(config=VIEW_CONFIG)
    with tarn:
        with session_at(tarn) as writer, session_at(tarn, VIEW) as view:
            for name, (cdb, parameters) in altering.items():
                outcome = view.command(cdb, write=parameters)
                equal((outcome.sense.key, outcome.sense.code), WRITE_PROTECTED, f"{name} through the read-only view")
                write_is_good(writer, f"after {name}")
            keys = view.command(bytes([0x5E, 0, 0, 0, 0, 0, 0, 0, 255, 0]), read=255)
            equal(keys.data, bytes(8), "registrations")
            check(view.command(bytes([0x1A, 0, 0x3F, 0, 255, 0]), read=255).good, "MODE SENSE through the view")
            check(view.command(scsi.read16(0, 1), read=512).good, "READ through the view")
        tarn.terminate()
        tarn.start()
        with session_at(tarn) as writer:
            write_is_good(writer, "after a restart")


@test
def a_read_only_view_cannot_start_what_a_writer_stopped():
    """C4: START changes a stopped unit and is refused; of a unit that runs it changes nothing and is GOOD. RELEASE gives back."""
    with Tarn(config=VIEW_CONFIG) as tarn, session_at(tarn) as writer, session_at(tarn, VIEW) as view:
        check(view.command(START).good, "START of a unit that runs")
        check(view.command(scsi.release6()).good, "RELEASE")
        check(writer.command(STOP).good, "STOP of the one that may write")
        outcome = view.command(START)
        equal((outcome.sense.key, outcome.sense.code), WRITE_PROTECTED, "START of a stopped unit")
        equal(view.command(scsi.read16(0, 1), read=512).sense.key, scsi.NOT_READY, "READ of a stopped unit")
        check(writer.command(START).good, "START of the one that may write")
        check(view.command(scsi.read16(0, 1), read=512).good, "READ")


@test
def resets_through_a_read_only_view_are_refused():
    """C4: LOGICAL UNIT RESET and TARGET WARM RESET would end the commands of others; ABORT TASK SET ends the view's own."""
    with Tarn(config=VIEW_CONFIG) as tarn, session_at(tarn) as writer, session_at(tarn, VIEW) as view:
        task = writer.start(scsi.write16(0, 512), write=b"\x77" * (512 * 512), unsolicited=0, answer_r2t=False)
        while not task.r2ts:
            writer.pump()
        for function in iscsi.LU_RESET, iscsi.TARGET_WARM_RESET, iscsi.TARGET_COLD_RESET:
            equal(view.tmf(function), AUTHORIZATION_FAILED, f"response to function {function}")
        for function in iscsi.ABORT_TASK_SET, iscsi.CLEAR_TASK_SET:
            equal(view.tmf(function), iscsi.TMF_COMPLETE, f"response to function {function}")
        task.answer_r2t = True
        writer.send_data(task, task.r2ts[0])
        outcome = writer.finish(task)
        check(outcome.good, f"the WRITE under way: {outcome}")
        write_is_good(writer, "without a unit attention")


@test
def a_cold_reset_ends_nobody_elses_session():
    """C4: refused unless the target allows it, also to one that may write."""
    with Tarn(config=VIEW_CONFIG) as tarn, session_at(tarn) as victim:
        with session_at(tarn, initiator="iqn.2026-11.example.tarn:other") as other:
            equal(other.tmf(iscsi.TARGET_COLD_RESET), AUTHORIZATION_FAILED, "response")
            write_is_good(victim, "after a refused TARGET COLD RESET")
            equal(victim.nop(b"alive"), b"alive", "a ping")


@test
def a_target_may_allow_cold_resets():
    """C4: with `cold_reset` every session of that target ends; D3: a nexus that comes back hears of the reset (29h/02h)."""
    isid = b"\x80\x00\x00\x00\x00\x2a"
    with Tarn(config=COLD_CONFIG) as tarn, session_at(tarn) as apart:
        victim = session_at(tarn, COLD, isid=isid)
        other = session_at(tarn, COLD, initiator="iqn.2026-11.example.tarn:other")
        equal(other.tmf(iscsi.TARGET_COLD_RESET), iscsi.TMF_COMPLETE, "response")
        for session in victim, other:
            check(session.connection.closed_within(20), "a session of the target is still there")
            session.close()
        taken = apart.clear_unit_attentions()
        equal(taken, [(0x29, 0x02)], "unit attention of a session of another target on the same unit")
        again = iscsi.Session(tarn.port, COLD, isid=isid)
        equal(again.clear_unit_attentions(), [(0x29, 0x02)], "unit attention of the nexus that comes back")
        again.close()
