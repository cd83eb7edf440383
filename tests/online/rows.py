"""The table of all keys: what is changed, and what shows it. Imported by suite.py."""
import collections
import contextlib
import http.client
import re
import socket
import stat
import struct
import subprocess

import hyperscsi
import iscsi
import nbd
import scsi
from harness import wait_for
from tarn import BINARY, IQN, listens

MIB = 1 << 20
TESTER = "iqn.2026-11.example.tarn:tester"
STRANGER = "iqn.2026-11.example.tarn:stranger"
TWO, CHAP = IQN + "-two", IQN + "-chap"
ALICE, OTHER, OWN, OWN_OTHER = "secret of alice", "another secret", "secret of the target", "another of the target"
SECRETS = {"alice.secret": ALICE, "other.secret": OTHER, "own.secret": OWN, "own-other.secret": OWN_OTHER,
           "abc.secret": "correct horse battery", "def.secret": "other horse battery"}
NOT_AUTHORIZED = 6
REFUSED = {0x0201: "not authenticated", 0x0202: "not allowed", 0x0203: "not found", 0x0302: "out of resources", 0x0200: "refused"}

# {p0}, {p1} and so on are free ports, {fault} is a file that fails and hangs on request.
BASE = f"""
[[lun]]
id = "a"
store = "file:{{dir}}/a.img?size=8M"
owner = "bob"
# more of a
[[lun]]
id = "b"
store = "mem:8M"
[[lun]]
id = "r"
store = "mem:1M"
[[lun]]
id = "f"
store = "file:{{fault}}"
[[lun]]
id = "l"
store = "file:{{dir}}/l.img?size=8M"
log = "file:{{dir}}/l.log?size=16M"
[[group]]
id = "known"
initiators = ["{TESTER}", "127.0.0.0/8"]
[[group]]
id = "others"
initiators = ["{STRANGER}", "192.0.2.0/24"]
[[user]]
name = "alice"
secret_file = "alice.secret"
mutual = {{ name = "tarn", secret_file = "own.secret" }}
# more of alice
[[target]]
name = "{IQN}"
portals = ["127.0.0.1:{{port}}"]
luns = [{{ lun = 0, id = "a" }}, {{ lun = 1, id = "b" }}, {{ lun = 2, id = "f" }}, {{ lun = 3, id = "l" }}]
[[target]]
name = "{TWO}"
portals = ["127.0.0.1:{{port}}", {{ bind = "127.0.0.1:{{p0}}" }}]
luns = [{{ lun = 0, id = "r" }}, {{ lun = 1, id = "b", groups = ["known"] }}]
# more of two
[[target]]
name = "{CHAP}"
portals = ["127.0.0.1:{{port}}"]
luns = [{{ lun = 0, id = "r" }}]
auth = ["alice"]
# more of chap
[[nbd]]
bind = "127.0.0.1:{{port2}}"
luns = ["r", "a"]
# more of nbd
[[nbd]]
socket = "{{dir}}/nbd.sock"
luns = ["r"]
# more of the socket
[[hyperscsi.group]]
name = "ABC"
udp = "127.0.0.1:{{p2}}"
password_file = "abc.secret"
# more of the group
[[hyperscsi.group.device]]
id = "a"
level = "crc"
[[hyperscsi.group.device]]
id = "r"
level = "crc"
# more of the device
[[quota]]
owner = "bob"
provisioned = "20M"
used = "12M"
# more of the quota
[server]
state = "{{dir}}/state"
cores = 2
# more of the server
[admin]
socket = "{{dir}}/tarn.sock"
listen = ["127.0.0.1:{{p4}}"]
# more of the administration
[limits]
shutdown_timeout_seconds = 300
task_deadline_seconds = 300
# more of the limits
[confine]
seccomp = false
"""

Row = collections.namedtuple("Row", ["key", "old", "new", "probe", "before", "after", "effect", "returns"])


def row(key, old, new, probe, before, after, effect="online", returns=True):
    """`key` with what is written in place of `old`; a probe before and after, and again where the change is taken back."""
    return Row(key, old, new, probe, before, after, effect, returns)


def more(key, of, value, *rest, **how):
    """As row, where the key is not written: it comes behind the other keys `of` a section."""
    mark = f"# more of {of}\n"
    return row(key, mark, f"{key.split()[-1]} = {value}\n{mark}", *rest, **how)


def limit(name, value, *rest, **how):
    return more(f"[limits] {name}", "the limits", value, *rest, **how)


# ---- probes: each gets the world and gives what shows ----------------------------------------------


def both(*probes):
    return lambda world: [probe(world) for probe in probes]


def inquiry(start, end):
    return lambda world: world.stays.command(scsi.inquiry(), read=255, lun=0).data[start:end].decode().rstrip()


def vpd(page):
    return lambda world: world.stays.command(scsi.inquiry(page), read=255, lun=0).data


def first_byte(world):
    return world.stays.command(scsi.read16(0, 1), read=512, lun=0).data[:1]


def blocks(world):
    return int.from_bytes(world.stays.command(scsi.read_capacity16(), read=32, lun=0).data[:8], "big") + 1


def has_cache(world):
    data = world.stays.command(bytes([0x1a, 0x08, 0x08, 0, 255, 0]), read=255, lun=0).data
    return bool(data[4 + data[3]:][2] & 4)


def may_grow(world):
    """Whether a quota lets LUN a have 24 MiB."""
    return world.api.good("POST", "luns/a/resize?plan=true", {"size_bytes": 24 * MIB}).json["is_applicable"]


def exports(*names):
    """Which of these exports a server of NBD has."""
    def has(world, name):
        with nbd.Raw(world.tarn, go=False) as client:
            client.send(struct.pack(">I", 3))
            return client.option(nbd.GO, struct.pack(">I", len(name)) + name.encode() + bytes(2)) == 1
    return lambda world: [name for name in names if has(world, name)]


def export(name):
    """The size of an export of NBD, or why there is none."""
    def probe(world):
        with nbd.Raw(world.tarn, go=False) as client:
            client.send(struct.pack(">I", 3))
            data = struct.pack(">I", len(name)) + name.encode() + bytes(2)
            client.send(b"IHAVEOPT" + struct.pack(">II", nbd.GO, len(data)) + data)
            while True:
                _, _, kind, length = struct.unpack(">QIII", client.take(20))
                info = client.take(length)
                if kind == 3 and info[:2] == bytes(2):
                    return struct.unpack(">Q", info[2:10])[0]
                if kind != 3:
                    return hex(kind)
    return probe


def served(world):
    """Whether a client of NBD reads, or its connection is closed."""
    with nbd.Raw(world.tarn, "r") as client:
        client.request(nbd.READ, 0, 512)
        return "served" if client.take(16) else "closed"


def silent_nbd(world):
    return socket.create_connection(("127.0.0.1", world.tarn.port2), timeout=20)


def login(initiator=TESTER, target=TWO, answer=None, keys=None, chap=None, see=lambda session: "in", **how):
    """What a login comes to: why it is refused, or what is seen of the session."""
    def probe(world):
        try:
            with iscsi.Session(world.tarn.port, target, initiator=initiator, keys=keys, chap=chap, timeout_s=20, **how) as session:
                seen = see(session)
                # A reset may have ended it.
                with contextlib.suppress(iscsi.Closed):
                    session.logout()
                return seen
        except iscsi.LoginError as error:
            return REFUSED.get(error.status, hex(error.status))
        except iscsi.ProtocolError as error:
            return str(error)
    return probe


def answered(key):
    return login(see=lambda session: dict(session.answered).get(key))


def negotiated(key, offer):
    return login(keys={key: offer}, see=lambda session: session.params[key])


def luns(session):
    data = session.command(scsi.report_luns(), read=4096).data
    return [data[at + 1] for at in range(8, 8 + int.from_bytes(data[:4], "big"), 8)]


def is_protected(session):
    session.clear_unit_attentions(1)
    return bool(session.command(bytes([0x1a, 0x08, 0x08, 0, 255, 0]), read=255, lun=1).data[2] & 0x80)


def resets(session):
    return session.tmf(iscsi.TARGET_COLD_RESET)


def chap(name="alice", secret=ALICE, **more_of_it):
    return login(target=CHAP, chap={"name": name, "secret": secret, **more_of_it})


def mutual(name, secret):
    return chap(mutual_name=name, mutual_secret=secret)


def discovered(see):
    """What discovery says of the second target."""
    def probe(world):
        with iscsi.Session(world.tarn.port, timeout_s=20) as session:
            found, at = {}, None
            for key, value in session.text([("SendTargets", "All")]):
                at = value if key == "TargetName" else at
                if key == "TargetAddress":
                    found.setdefault(at, []).append(value)
            session.logout()
        return see(world, found)
    return probe


def at_p0(world, found):
    """The address at the second portal of it: without ports, which differ from run to run, and its group."""
    port = str(world.ports[0])
    return [one.replace(port, "P0") for one in found[TWO] if not one.startswith(f"127.0.0.1:{world.tarn.port},")]


def listening(*ports):
    return lambda world: [listens(world.ports[at]) for at in ports]


def paths(*names):
    return lambda world: [(world.tarn.dir / name).exists() for name in names]


def mode(world):
    return oct(stat.S_IMODE((world.tarn.dir / "nbd.sock").stat().st_mode))


def groups_found(at=2):
    """Which groups a server has, at one of the ports."""
    def probe(world):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(20)
            client.connect(("127.0.0.1", world.ports[at]))
            try:
                client.send(hyperscsi.question("ABC", "DEF"))
                body = hyperscsi.body_of(client.recv(2048), hyperscsi.ANSWER)
            except ConnectionRefusedError:
                return []
        bits = int.from_bytes(body[24:26], "big")
        return [name for at, name in enumerate(("ABC", "DEF")) if bits >> at & 1]
    return probe


def shown(field):
    """This of each device of the group, as a client that has the password is told."""
    def probe(world):
        done = subprocess.run([BINARY, "discover", "hyperscsi", "--json", "--udp", f"127.0.0.1:{world.ports[2]}", "--group", "ABC",
                               "--password-file", world.tarn.dir / "abc.secret"], capture_output=True, text=True, timeout=60, check=False)
        return re.findall(rf'"{field}": ?"?(\w+)"?', done.stdout) or done.stdout + done.stderr
    return probe


def client(secret="abc.secret", device="r", rw="randread"):
    """What a client of HyperSCSI comes to: done, or the reason."""
    def probe(world):
        given = ["--password-file", world.tarn.dir / secret] if secret else []
        done = subprocess.run([BINARY, "bench", "--rw", rw, "--overwrite", "--bs", "512", "--iodepth", "1", "--runtime", "0.1",
                               "--warmup", "0", "--repeat", "1", "--udp", f"127.0.0.1:{world.ports[2]}", *given,
                               f"hyperscsi://ABC/{device}?level=crc"], capture_output=True, text=True, timeout=60, check=False)
        words = ["check the password", "no such device", "read-only", "needs a password", "no room for another session", "protect"]
        said = done.stdout + done.stderr
        return "done" if done.returncode == 0 else next((word for word in words if word in said), said)
    return probe


def logged(world):
    """Whether a session that begins is logged, by the time that a warning is which comes behind it."""
    before = world.tarn.log()
    login()(world)
    world.fault.delay_s = 1.2
    world.stays.command(scsi.read16(0, 1), read=512, lun=2)
    world.fault.delay_s = 0
    slow = lambda: "slow command" in world.tarn.log()[len(before):]
    wait_for(slow, 20, "the warning")
    return "session begins" in world.tarn.log()[len(before):]


def slow_is_counted(world):
    """Whether each of three is: on a busy machine one may take a second although its store takes 0.3 s."""
    def count():
        return sum(world.metric("tarn_slow_commands_total"))
    before = count()
    world.fault.delay_s = 0.3
    for _ in range(3):
        world.stays.command(scsi.read16(0, 1), read=512, lun=2)
    world.fault.delay_s = 0
    return count() == before + 3


def window(world):
    world.stays.command(scsi.test_unit_ready(), lun=1)
    for _ in range(200):
        world.stays.command(scsi.test_unit_ready(), lun=1)
    return (world.stays.max_cmd_sn - world.stays.cmd_sn + 1) % (1 << 32)


def is_open(connection):
    """Whether a connection is open; takes what has come."""
    connection.setblocking(False)
    try:
        while connection.recv(1 << 16):
            pass
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        connection.setblocking(True)


def silent(world):
    return socket.create_connection(("127.0.0.1", world.tarn.port), timeout=20)


def of_several(count, begin=silent, end=socket.socket.close):
    """How many of so many connections that are begun now are open when no more are closed."""
    def probe(world):
        connections = [begin(world) for _ in range(count)]
        sockets = [one if isinstance(one, socket.socket) else one.connection.socket for one in connections]
        # The last one is served when a later one is.
        login()(world)
        left = sum(is_open(one) for one in sockets)
        for one in sockets:
            end(one)
        return left
    return probe


def discovery(world):
    return iscsi.Session(world.tarn.port, timeout_s=20)


def with_gap(world):
    """A session with a command that waits for the one before."""
    session = iscsi.Session(world.tarn.port, TWO, timeout_s=20)
    session.start(scsi.test_unit_ready(), cmd_sn=session.cmd_sn + 1)
    return session


def deaf(world):
    """A session that answers no ping."""
    return iscsi.Session(world.tarn.port, TWO, timeout_s=20)


def outlives(begin, done=lambda connection: not is_open(connection)):
    """Whether what is begun now comes to its end before what was begun under the values of the start, which is there still."""
    def probe(world):
        key = (begin, done)
        if key not in world.earlier:
            world.earlier[key] = begin(world)
            return "waits"
        now = begin(world)
        wait_for(lambda: done(socket_of(now)), 30, "the end of what has begun later")
        return "waits" if done(socket_of(world.earlier[key])) else "ends first"
    return probe


def socket_of(one):
    return one if isinstance(one, socket.socket) else one.connection.socket


def is_pinged(connection):
    """A NOP-In has come, or a later PDU."""
    connection.setblocking(False)
    try:
        return bool(connection.recv(48, socket.MSG_PEEK))
    except BlockingIOError:
        return False
    finally:
        connection.setblocking(True)


def abort_is_answered(world):
    """Whether an ABORT TASK of what hangs is answered before one that has begun with the deadline of the start."""
    world.fault.hang = ("read",)

    def abort(session):
        before = world.fault.hung()
        task = session.start(scsi.read16(0, 1), read=512, lun=2)
        wait_for(lambda: world.fault.hung() > before, 20, "the READ hangs")
        return session.request(iscsi.Pdu(iscsi.TMF_REQUEST | iscsi.IMMEDIATE, 0x80 | iscsi.ABORT_TASK, lun=2, itt=session.itt(),
                                         ref_itt=task.itt, ref_cmd_sn=task.cmd_sn))
    if "abort" not in world.earlier:
        session = iscsi.Session(world.tarn.port, IQN, timeout_s=20)
        session.clear_unit_attentions(2)
        world.earlier["abort"] = session
        abort(session)
        return "waits"
    with iscsi.Session(world.tarn.port, IQN, timeout_s=30) as session:
        session.clear_unit_attentions(2)
        answer = session.answer(abort(session)).response
        first = "waits" if is_pinged(world.earlier["abort"].connection.socket) else "ends first"
    world.fault.release()
    return first if answer == iscsi.TMF_REJECTED else answer


def host(name):
    return lambda world: world.remote().ask("GET", "status", Host=name).status


def is_plain(world):
    """Whether the administration answers without TLS."""
    connection = http.client.HTTPConnection("127.0.0.1", world.ports[4], timeout=20)
    try:
        connection.request("GET", "/api/v1/status", headers={"Authorization": f"Bearer {world.token}"})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def revisions(world):
    """How many are kept after some changes."""
    for _ in range(3):
        world.touch()
    return len(world.api.get("config/history"))


def found(code):
    """Whether there is this finding, which comes and goes with the next look at the disks."""
    def probe(world):
        has = lambda: code in {one["code"] for one in world.api.get("findings")}
        if (last := world.earlier.get(code)) is not None:
            wait_for(lambda: has() != last, 20, f"{code} changes", 0.2)
        world.earlier[code] = has()
        return has()
    return probe


# ---- the table --------------------------------------------------------------------------------------


LIVE = [
    # Units.
    more("[[lun]] vendor", "a", '"OTHER"', inquiry(8, 16), "TARN", "OTHER"),
    more("[[lun]] product", "a", '"THING"', inquiry(16, 32), "DISK", "THING"),
    more("[[lun]] revision", "a", '"R7"', inquiry(32, 36), lambda seen: seen != "R7", "R7"),
    row("[[lun]] owner", 'owner = "bob"\n# more of a', "# more of a", may_grow, False, True),
    row("[[lun]] id", '"r"', '"r2"', exports("r", "r2"), ["r"], ["r2"]),
    row("[[lun]] store", "a.img", "a2.img", first_byte, b"A", b"B", effect="takes-away"),
    row("[[lun]] store cache", "a.img?size=8M", "a.img?size=8M&cache=writethrough", has_cache, True, False),
    row("[[lun]] store size", "a.img?size=8M", "a.img?size=16M", blocks, 16384, 32768, returns=False),
    row("[[lun]] store size", "a.img?size=16M", "a.img?size=20M", both(export("a"), shown("size_bytes")),
        [16 * MIB, [str(16 * MIB), str(MIB)]], [20 * MIB, [str(20 * MIB), str(MIB)]], returns=False),
    more("[[lun]] serial", "a", '"S9"', vpd(0x80), lambda seen: b"S9" not in seen, None, effect="refused"),
    more("[[lun]] naa", "a", '"3000000000000009"', vpd(0x83), lambda seen: bytes.fromhex("3000000000000009") not in seen, None,
         effect="refused"),
    more("[[lun]] log", "a", '"file:{dir}/a.log?size=16M"', paths("a.log"), [False], None, effect="refused"),
    row("[[lun]] sync_bias", 'l.log?size=16M"', 'l.log?size=16M"\nsync_bias = "throughput"',
        lambda world: world.spec("l").get("sync_bias"), lambda seen: seen in (None, "latency"), None, effect="refused"),
    # Targets, with a portal and the entries of `luns`.
    row("[[target]] name", f'"{TWO}"', f'"{TWO}-2"', discovered(lambda _, found: [name for name in found if name.startswith(TWO)]), [TWO],
        [TWO + "-2"], effect=None),
    more("[[target]] alias", "two", '"shelf"', answered("TargetAlias"), None, "shelf"),
    row("[[target]] portals", '{p0}" }]', '{p0}" }, "127.0.0.1:{p1}"]', listening(0, 1), [True, False], [True, True]),
    more("[[target]] auth", "two", '["alice"]', login(), "in", "not authenticated"),
    more("[[target]] chap_algorithms", "chap", '["sha256"]', login(target=CHAP, chap={"name": "alice", "secret": ALICE}), "in",
         "not authenticated"),
    more("[[target]] cold_reset", "two", "true", login(see=resets), NOT_AUTHORIZED, iscsi.TMF_COMPLETE),
    row("[[target]] luns", 'groups = ["known"] }]', 'groups = ["known"] }, { lun = 7, id = "a" }]', login(see=luns), [0, 1], [0, 1, 7]),
    row("portal table in `portals` bind", "127.0.0.1:{p0}", "127.0.0.1:{p1}", listening(0, 1), [True, False], [False, True]),
    row("portal table in `portals` advertise", '{p0}" }', '{p0}", advertise = "san.example:7" }', discovered(at_p0), ["127.0.0.1:P0,1"],
        ["san.example:7,1"]),
    row("portal table in `portals` group", '{p0}" }', '{p0}", group = 4 }', discovered(at_p0), ["127.0.0.1:P0,1"], ["127.0.0.1:P0,4"]),
    row("unit table in `luns` lun", "lun = 1, id = \"b\", g", "lun = 9, id = \"b\", g", login(see=luns), [0, 1], [0, 9]),
    row("unit table in `luns` id", "lun = 1, id = \"b\", g", "lun = 1, id = \"a\", g",
        login(see=lambda session: session.command(scsi.inquiry(0x80), read=255, lun=1).data),
        lambda seen: seen, lambda seen: seen),
    row("unit table in `luns` groups", '["known"] }', '["others"] }', login(see=luns), [0, 1], [0]),
    row("unit table in `luns` readonly", '["known"] }', '["known"], readonly = true }', login(see=is_protected), False, True),
    # Users and groups.
    row("[[user]] name", '"alice"', '"alicia"', chap("alicia"), "not authenticated", "in"),
    row("[[user]] secret_file", '"alice.secret"', '"other.secret"', chap(secret=OTHER), "not authenticated", "in"),
    row("[[user]] mutual", 'mutual = { name = "tarn", secret_file = "own.secret" }\n', "", mutual("tarn", OWN), "in",
        lambda seen: seen != "in"),
    row("table `mutual` name", '"tarn", secret', '"other", secret', mutual("other", OWN), lambda seen: seen != "in", "in"),
    row("table `mutual` secret_file", "own.secret", "own-other.secret", mutual("tarn", OWN_OTHER), lambda seen: seen != "in", "in"),
    more("[[user]] initiators", "alice", f'["{STRANGER}"]', chap(), "in", lambda seen: seen != "in"),
    row("[[group]] id", '"known"', '"friends"', login(see=luns), [0, 1], [0, 1]),
    row("[[group]] initiators", f'["{TESTER}", "127.0.0.0/8"]', '["192.0.2.7"]', login(see=luns), [0, 1], [0]),
    # Other transports.
    row("[[nbd]] bind", "127.0.0.1:{port2}", "127.0.0.1:{p3}", listening(3), [False], [True], effect=None),
    row("[[nbd]] socket", "nbd.sock", "other.sock", paths("nbd.sock", "other.sock"), [True, False], [False, True], effect=None),
    more("[[nbd]] mode", "the socket", '"0660"', mode, "0o600", "0o660"),
    row("[[nbd]] luns", 'luns = ["r", "a"]', 'luns = ["a", "b"]', exports("r", "a", "b"), ["r", "a"], ["a", "b"]),
    more("[[nbd]] groups", "nbd", '["others"]', exports("r", "a"), ["r", "a"], []),
    row("[[hyperscsi.group]] name", '"ABC"', '"DEF"', groups_found(), ["ABC"], ["DEF"], effect=None),
    row("[[hyperscsi.group]] udp", "127.0.0.1:{p2}", "127.0.0.1:{p5}", groups_found(5), [], ["ABC"], effect=None),
    more("[[hyperscsi.group]] user", "the group", '"carol"', client(), "done", "check the password"),
    row("[[hyperscsi.group]] password_file", '"abc.secret"', '"def.secret"', client("def.secret"), "check the password", "done"),
    row("[[hyperscsi.group]] password", 'password_file = "abc.secret"', 'password = "other horse battery"', client("def.secret"),
        "check the password", "done"),
    row("[[hyperscsi.group]] open", 'password_file = "abc.secret"', "open = true", client(None), "needs a password", "done"),
    row("[[hyperscsi.group]] device", "# more of the device\n",
        '# more of the device\n[[hyperscsi.group.device]]\nid = "b"\nlevel = "crc"\n', client(device="b"), "no such device", "done"),
    row("[[hyperscsi.group.device]] id", 'id = "r"\nlevel', 'id = "b"\nlevel', client(device="b"), "no such device", "done"),
    row("[[hyperscsi.group.device]] level", '"crc"\n# more of the device', '"hash"\n# more of the device', shown("level"),
        ["crc", "crc"], ["crc", "hash"], effect=None),
    more("[[hyperscsi.group.device]] readonly", "the device", "true", client(rw="randwrite"), "done", lambda seen: seen != "done"),
    # Quotas.
    row("[[quota]] owner", 'owner = "bob"\nprov', 'owner = "carol"\nprov', may_grow, False, True),
    row("[[quota]] pool", 'owner = "bob"\nprov', 'pool = "{dir}/pool"\nprov', may_grow, False, True),
    row("[[quota]] provisioned", '"20M"', '"40M"', may_grow, False, True),
    more("[[quota]] soft", "the quota", 40, found("quota-soft"), False, True),
    row("[[quota]] used", 'used = "12M"', 'used = "4M"', found("quota-full"), False, True),
    # The process.
    more("[server] discovery_auth", "the server", '["alice"]', login(target=None), "in", "not authenticated"),
    more("[server] log", "the server", '"warn"', logged, True, False),
    more("[admin] names", "the administration", '["san.example"]', host("san.example"), 403, 200),
    more("[admin] tls", "the administration", "false", is_plain, False, True),
    row("[admin] listen", "127.0.0.1:{p4}", "127.0.0.1:{p6}", listening(4, 6), [True, False], [False, True]),
    more("[admin] history", "the administration", "2", revisions, lambda seen: seen > 2, 2, returns=False),
]

LIVE += [
    # Initiators do not log out, so that the end of the test waits for as long as this says.
    row("[limits] shutdown_timeout_seconds", "shutdown_timeout_seconds = 300", "shutdown_timeout_seconds = 1",
        lambda world: None, None, None, returns=False),
    limit("queue_depth", 7, window, 128, 7),
    limit("slow_command_ms", 100, slow_is_counted, False, True),
    limit("connections_per_session_max", 3, negotiated("MaxConnections", "50"), "8", "3"),
    limit("max_burst_bytes", 65536 * 8, negotiated("MaxBurstLength", "16777215"), str(MIB), str(65536 * 8)),
    limit("first_burst_bytes", 8192, negotiated("FirstBurstLength", "262144"), "262144", "8192"),
    limit("max_recv_data_segment_bytes", 16384, answered("MaxRecvDataSegmentLength"), str(MIB), "16384"),
    limit("outstanding_r2t_max", 2, negotiated("MaxOutstandingR2T", "50"), "4", "2"),
    limit("initial_r2t", "true", negotiated("InitialR2T", "No"), "No", "Yes"),
    limit("immediate_data", "false", negotiated("ImmediateData", "Yes"), "Yes", "No"),
    limit("header_digest", '"refuse"', negotiated("HeaderDigest", "CRC32C,None"), "CRC32C", "None"),
    limit("data_digest", '"require"', negotiated("DataDigest", "None"), "None", lambda seen: seen != "None"),
    limit("sessions_max", 1, both(login(), served, client()), ["in", "served", "done"],
          ["out of resources", "closed", "no room for another session"]),
    limit("connections_in_login_max", 3, of_several(6), 6, 2),
    limit("discovery_sessions_max", 2, of_several(5, discovery), 5, 2),
    limit("unproved_per_address_max", 4, both(of_several(6), of_several(6, silent_nbd)), [6, 6],
          lambda seen: max(seen) < 6),
    limit("login_timeout_seconds", 1, both(outlives(silent), outlives(silent_nbd)), ["waits", "waits"],
          ["ends first", "ends first"], returns=False),
    limit("discovery_lifetime_seconds", 1, outlives(discovery), "waits", "ends first", returns=False),
    limit("command_gap_seconds", 1, outlives(with_gap), "waits", "ends first", returns=False),
    limit("nop_interval_seconds", 1, outlives(deaf, is_pinged), "waits", "ends first", returns=False),
    # Those of the row before are pinged, so that they end by it.
    limit("nop_timeout_seconds", 1, outlives(deaf), "waits", "ends first", returns=False),
    row("[limits] task_deadline_seconds", "task_deadline_seconds = 300", "task_deadline_seconds = 1", abort_is_answered,
        "waits", "ends first", returns=False),
]

PENDING = [
    row("[server] state", '"{dir}/state"', '"{dir}/other-state"', paths("other-state"), [False], [True]),
    row("[server] cores", "cores = 2", "cores = 1", lambda world: len(world.metric("tarn_reactor_turns_total")), 2, 1),
    limit("pool_per_core_bytes", '"64M"', lambda world: max(world.metric("tarn_pool_bytes")), 256 * MIB, 64 * MIB),
    row("[confine] seccomp", "seccomp = false", "seccomp = true", lambda world: world.status("Seccomp"), "0", "2"),
    row("[admin] socket", "tarn.sock", "other.sock", paths("other.sock"), [False], [True]),
]

# Where the effect of other keys is looked at, by tests of their own.
SUITES = {
    "[admin] enabled": "online/suite.py what_is_pending_has_its_effect_after_a_restart_and_none_before",
    "[[lun]] snapshots": "snapshot/suite.py a_schedule_takes_what_is_due_and_keeps_so_many",
    "table `snapshots` hourly": "snapshot/suite.py a_schedule_takes_what_is_due_and_keeps_so_many",
    "table `snapshots` daily": "snapshot/suite.py a_schedule_takes_what_is_due_and_keeps_so_many",
    "table `snapshots` weekly": "snapshot/suite.py a_schedule_takes_what_is_due_and_keeps_so_many",
    "table `snapshots` at": "snapshot/suite.py a_schedule_takes_what_is_due_and_keeps_so_many",
    "[[store]] id": "compose/suite.py named_stores_are_edited_one_by_one",
    "[[store]] store": "compose/suite.py members_grow_with_their_size",
    "[[nbd]] certificate": "nbd/server.py new_certificates_are_taken_with_the_configuration",
    "[[nbd]] key": "nbd/server.py new_certificates_are_taken_with_the_configuration",
    "[[nbd]] ca": "nbd/server.py new_certificates_are_taken_with_the_configuration",
    "[[hyperscsi.group]] interface": "hyperscsi/administration.py an_interface_is_opened_at_the_start_and_the_right_is_given_up",
    "[admin] certificate": "change/live.py point_3_another_certificate_and_another_name_are_in_use_at_once",
    "[admin] key": "change/live.py point_3_another_certificate_and_another_name_are_in_use_at_once",
    "[server] busy_poll_us": "verbs/suite.py point_3_a_rollback_works_and_keys_wait_for_a_restart",
    "[confine] user": "confine/suite.py root_becomes_the_user",
    "[confine] group": "confine/suite.py root_becomes_the_user",
    "[confine] roots": "confine/suite.py confinement_itself_is_not_changed",
    # The section is read as a whole.
    **dict.fromkeys((f"[[notify]] {key}" for key in ("url", "secret_file", "mail", "smtp", "from", "smtp_user", "smtp_password_file",
                                                     "events")),
                    "faults/suite.py a_change_of_notify_needs_a_restart"),
}

# What no test looks at when it changes.
UNSEEN = {
    "[limits] unproved_memory_bytes": "it takes many peers to use it up: adversary/strangers.py has that, with the value of the start",
    "[limits] core_stall_limit_seconds": "a core that stands for its least value, 10 s, ends the daemon",
    "[server] coalescing": "it moves the time of a send",
    "[confine] required": "it shows on a kernel alone that cannot confine",
    "[[hyperscsi.group]] retransmit": "it shows on a wire alone that loses frames: hyperscsi/wire.py has that, with the value of the start",
    "[[hyperscsi.group]] profile": "it is a set of timers",
    "[[lun]] vendor_commands": "it needs a device with commands of its vendor: the unit tests of scsi have that (tests/foreign.rs)",
}
