"""Strangers: what peers that prove nothing may hold, and whom they may displace."""
import contextlib

import crowd
import faultfs
import iscsi
import scsi
from harness import check, equal, measured, test, wait_for
from tarn import IQN, Tarn, lun_section, raise_descriptor_limit, target_section, user_section

# ---- C2, C3: what peers that prove nothing may hold ------------------------------------------------------------------

MIB = 1 << 20
SECRET = "a-long-enough-secret"
STRANGER = "iqn.2026-11.example.tarn:stranger"
OUT_OF_RESOURCES = 0x0a


def guarded(limits="", targets=1):
    """A target with `auth`, others that only fill the answer to SendTargets, and one memory disk."""
    more = "".join(f'[[target]]\nname = "{IQN}-{n:04}"\nportals = ["127.0.0.1:{{port}}"]\nluns = []\n'
                   for n in range(1, targets))
    config = f"""
[[lun]]
id = "disk"
store = "mem:16M"
[[user]]
name = "alice"
secret_file = "{{dir}}/secret"
[[target]]
name = "{IQN}"
portals = ["127.0.0.1:{{port}}"]
auth = ["alice"]
luns = [{{ lun = 0, id = "disk" }}]
{more}
[limits]
pool_per_core_bytes = "32M"
{limits}
"""
    tarn = Tarn(config=config)
    tarn.secret("secret", SECRET)
    return tarn


def alice(tarn, **options):
    """An honest session: from 127.0.0.1, with CHAP."""
    return iscsi.Session(tarn.port, IQN, chap={"name": "alice", "secret": SECRET}, timeout_s=20, **options)


def honest_login(tarn, what):
    with alice(tarn) as session:
        session.clear_unit_attentions()
        check(session.command(scsi.read10(0, 1), read=512).good, f"a READ of a proved user {what}")


@test
def pings_that_wait_for_their_turn_are_held_up_to_a_limit():
    """C2: discovery sessions that send large pings with a CmdSN gap hold 64 KiB each, not 127 MiB; the rest is rejected."""
    with guarded() as tarn:
        before = tarn.rss_bytes()
        with contextlib.ExitStack() as stack:
            for _ in range(4):
                session = stack.enter_context(iscsi.Session(tarn.port, initiator=STRANGER))
                size = int(dict(session.answered).get("MaxRecvDataSegmentLength", 8192))
                check(size <= 8192, f"a discovery session takes segments of {size} bytes")
                for n in range(1, 16):
                    session.connection.send(iscsi.Pdu(iscsi.NOP_OUT, 0x80, bytes(size), itt=n, ttt=iscsi.NO_TAG,
                                                      cmd_sn=session.cmd_sn + n, exp_stat_sn=session.connection.exp_stat_sn))
                reject = session.connection.recv()
                equal((reject.opcode, reject.bhs[2]), (iscsi.REJECT, OUT_OF_RESOURCES), "the answer to too much")
            grown = tarn.rss_bytes() - before
            measured(f"{grown / MIB:.1f} MiB for 4 sessions")
            check(grown < 16 * MIB, f"{grown} bytes are held")
            honest_login(tarn, "while strangers hold what they may")


@test
def commands_that_wait_for_their_turn_are_held_up_to_a_limit():
    """C2: writes behind a CmdSN gap keep 64 KiB of data; those beyond end with TASK SET FULL, and none is without answer."""
    with guarded() as tarn, alice(tarn) as session:
        session.clear_unit_attentions()
        first = session.cmd_sn
        data = bytes(8192)
        late = [session.start(scsi.write10(n * 16, 16), write=data, cmd_sn=first + n) for n in range(1, 33)]
        gap = session.start(scsi.test_unit_ready(), cmd_sn=first)
        session.cmd_sn = first + 33
        equal(session.finish(gap).status, 0, "the command that was missing")
        states = [session.finish(task).status for task in late]
        equal(set(states), {0, 0x28}, "outcomes: GOOD and TASK SET FULL")
        check(1 <= states.count(0) <= 8, f"{states.count(0)} writes of 8 KiB were held")
        check(session.command(scsi.read10(0, 1), read=512).good, "a READ afterwards")


@test
def a_gap_that_is_not_filled_ends_the_session():
    """C2: a session whose missing CmdSN does not come ends at the deadline, although it answers pings."""
    with guarded("command_gap_seconds = 2\nnop_interval_seconds = 1") as tarn:
        with iscsi.Session(tarn.port, initiator=STRANGER) as waits, iscsi.Session(tarn.port, initiator=STRANGER) as works:
            waits.connection.send(iscsi.Pdu(iscsi.NOP_OUT, 0x80, b"late", itt=1, ttt=iscsi.NO_TAG,
                                            cmd_sn=waits.cmd_sn + 1, exp_stat_sn=waits.connection.exp_stat_sn))
            with contextlib.suppress(iscsi.Closed):
                for _ in range(20):
                    waits.pump(timeout_s=20)        # answers the target's pings
                raise AssertionError("twenty pings were answered and the session is still there")
            tarn.await_log("CmdSN", "did not come")
            equal(works.nop(b"well"), b"well", "the ping of a session without a gap")


@test
def discovery_sessions_take_no_place_of_others():
    """C3: more discovery sessions than sessions_max leave the places of normal sessions alone."""
    with guarded("sessions_max = 3") as tarn, crowd.Crowd(tarn.port, crowd.sources(4)) as strangers:
        strangers.add(20, crowd.deaf_discovery, 0)
        strangers.pump(20)
        equal(strangers.open(), 20, "discovery sessions")
        with contextlib.ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(alice(tarn))
            try:
                alice(tarn).close()
                raise AssertionError("a fourth session was let in")
            except iscsi.LoginError as error:
                equal(error.status, 0x0302, "the login beyond sessions_max")


@test
def one_holder_of_sessions_leaves_places_to_others():
    """Of 18 places one user gets 16. Another one finds a place then, and the first gets no more."""
    config = (lun_section("disk", "mem:16M") + user_section("alice") + user_section("bob")
              + target_section("disk", keys='auth = ["alice", "bob"]\n') + "[limits]\nsessions_max = 18\n")
    tarn = Tarn(config=config)
    tarn.secret("secret", SECRET)
    with tarn, contextlib.ExitStack() as stack:
        def begin(user, **options):
            chap = {"name": user, "secret": SECRET}
            return stack.enter_context(iscsi.Session(tarn.port, IQN, chap=chap, timeout_s=20, **options))

        own = [begin("alice") for _ in range(16)]
        for _ in range(2):
            try:
                begin("alice")
                raise AssertionError("one user has more than eight ninths of the places")
            except iscsi.LoginError as error:
                equal(error.status, 0x0302, "the login beyond the share")
            begin("bob")
        for session in own:
            begin("alice", isid=session.isid)
            check(session.connection.closed_within(20), "a session that another of its port replaces")


@test
def one_user_leaves_descriptors_to_others():
    """A user with eight connections for each session gets eight ninths of those that there may be; another finds one."""
    config = (lun_section("disk", "mem:16M") + user_section("alice") + user_section("bob")
              + target_section("disk", keys='auth = ["alice", "bob"]\n'))
    tarn = Tarn(config=config, prefix=["prlimit", "--nofile=512:512"])
    tarn.secret("secret", SECRET)
    with tarn, contextlib.ExitStack() as stack:
        def begin(user):
            chap = {"name": user, "secret": SECRET}
            options = {"chap": chap, "keys": {"MaxConnections": "8"}, "timeout_s": 20}
            return stack.enter_context(iscsi.Session(tarn.port, IQN, **options))

        count = 0
        try:
            while count < 512:
                session = begin("alice")
                count += 1
                for cid in range(1, 8):
                    session.add_connection(cid)
                    count += 1
            raise AssertionError("one user has all descriptors")
        except iscsi.LoginError as error:
            equal(error.status, 0x0302, "the connection beyond the share")
        measured(f"{count} connections of one user")
        session = begin("bob")
        session.clear_unit_attentions()
        check(session.command(scsi.read10(0, 1), read=512).good, "a READ of another user")


@test
def what_sessions_hold_displaces_no_login():
    """C2: sessions at a target without `auth` hold all that they may behind a gap in CmdSN; others log in and discover."""
    config = (lun_section("disk", "mem:16M") + lun_section("open", "mem:16M") + user_section("alice")
              + target_section("disk", keys='auth = ["alice"]\n') + target_section("open", name=IQN + "-open")
              + '[limits]\nunproved_memory_bytes = "1M"\n')
    tarn = Tarn(config=config)
    tarn.secret("secret", SECRET)
    with tarn, contextlib.ExitStack() as stack:
        for _ in range(20):
            session = stack.enter_context(iscsi.Session(tarn.port, IQN + "-open", timeout_s=20))
            for n in range(1, 9):
                session.start(scsi.write10(0, 16), write=bytes(8192), cmd_sn=session.cmd_sn + n)
            equal(session.nop(), b"", "a ping after the writes")
        honest_login(tarn, "while sessions hold what they may")
        with iscsi.Session(tarn.port, initiator=STRANGER) as session:
            check(("TargetName", IQN + "-open") in session.text([("SendTargets", "All")]), "a discovery session")


@test
def the_fullest_address_gives_way_at_the_limit_of_discovery_sessions():
    """C3: at discovery_sessions_max the address with the most sessions gives up its oldest; a single one of another stays."""
    with guarded("discovery_sessions_max = 10") as tarn, crowd.Crowd(tarn.port, ["127.0.2.2"]) as strangers:
        with iscsi.Session(tarn.port, initiator=STRANGER) as honest:
            strangers.add(30, crowd.deaf_discovery, 0)
            strangers.pump(20)
            wait_for(lambda: strangers.open() == 9, 10, "nine strangers and the honest one are left")
            check(("TargetName", IQN) in honest.text([("SendTargets", "All")]), "the honest session gets its answer")
            refused = tarn.api().get("stats")["logins"]["failed"]
            check(sum(one["count"] for one in refused if one["cause"] == "out-of-resources") >= 21, f"counted: {refused}")
        codes = [finding["code"] for finding in tarn.api().get("findings")]
        check("strangers" in codes, f"findings of doctor: {codes}")


@test
def an_honest_login_is_not_displaced_by_those_of_strangers():
    """C3: at connections_in_login_max the address with the most logins gives up its oldest, not the honest one."""
    with guarded("connections_in_login_max = 20") as tarn, crowd.Crowd(tarn.port, crowd.sources(4)) as strangers:
        honest = iscsi.Session(tarn.port, IQN, chap={"name": "alice", "secret": SECRET}, login=False, timeout_s=20)
        strangers.add(60, crowd.half_login, IQN)
        strangers.pump(10)
        wait_for(lambda: strangers.open() <= 20, 10, "no more logins are under way than may be")
        honest._login(honest.connection)
        honest.clear_unit_attentions()
        honest.close()


@test
def one_address_has_so_many_that_have_proved_nothing():
    """C3: unproved_per_address_max counts logins and discovery sessions of an address, not its sessions at targets."""
    with guarded("unproved_per_address_max = 4") as tarn, contextlib.ExitStack() as stack:
        normal = [stack.enter_context(alice(tarn)) for _ in range(6)]
        strangers = stack.enter_context(crowd.Crowd(tarn.port, ["127.0.2.2"]))
        strangers.add(4, crowd.deaf_discovery, 0)
        strangers.add(6, crowd.silent)
        strangers.pump(10)
        wait_for(lambda: strangers.open() == 4, 10, "four connections of the address are left")
        for session in normal:
            session.clear_unit_attentions()
        honest_login(tarn, "from another address")


@test
def a_discovery_session_ends_after_its_lifetime():
    """C3: a discovery session ends after discovery_lifetime_seconds, a normal one does not."""
    with guarded("discovery_lifetime_seconds = 2") as tarn, alice(tarn) as normal:
        with iscsi.Session(tarn.port, initiator=STRANGER) as discovery:
            check(discovery.connection.closed_within(20), "the discovery session has ended")
        tarn.await_log("session ends", "a discovery session lasts no longer")
        normal.clear_unit_attentions()


@test
def answers_that_nobody_reads_hold_little_memory():
    """C3: 60 discovery sessions with 1,000 targets to see ask 400 times and read nothing: 64 KiB each, and one shared list."""
    with guarded(targets=1000) as tarn, crowd.Crowd(tarn.port, crowd.sources(8)) as strangers:
        with iscsi.Session(tarn.port, initiator=STRANGER) as session:
            for size in ("512", "262144"):
                with iscsi.Session(tarn.port, initiator=STRANGER, keys={"MaxRecvDataSegmentLength": size}) as other:
                    names = [value for key, value in other.text([("SendTargets", "All")]) if key == "TargetName"]
                equal(len(names), 1000, f"targets in segments of {size} bytes")
            before = tarn.rss_bytes()
            strangers.add(60, crowd.deaf_discovery, 400)
            strangers.pump(15)
            grown = tarn.rss_bytes() - before
            measured(f"{grown / MIB:.1f} MiB for 60 sessions")
            check(grown < 24 * MIB, f"{grown} bytes are held")
            equal(session.nop(b"well"), b"well", "the ping of a session that reads")
        honest_login(tarn, "beside them")


@test(limit_s=120)
def two_thousand_strangers_leave_memory_and_logins_alone():
    """C3: 2,000 strangers from 64 addresses: at most 256 MiB above idle, and every honest login with CHAP succeeds."""
    raise_descriptor_limit(8192)
    with guarded(targets=200) as tarn:
        honest_login(tarn, "before")
        before = tarn.rss_bytes()
        with crowd.surround(tarn.port, IQN, 2000) as strangers:
            for _ in range(12):
                strangers.pump(2)
                honest_login(tarn, "among strangers")
            grown = tarn.rss_bytes() - before
            measured(f"{grown / MIB:.0f} MiB above idle; of 2,000 strangers {strangers.open()} are left")
            check(grown < 256 * MIB, f"{grown} bytes above idle")
            with iscsi.Session(tarn.port, initiator=STRANGER) as session:
                check(("TargetName", IQN) in session.text([("SendTargets", "All")]), "an honest discovery session")


@test
def descriptors_are_kept_back_for_the_administration():
    """E4: 1,100 silent connections do not take the last descriptors: the API answers, a user logs in, the log stays short."""
    raise_descriptor_limit(4096)
    tarn = guarded()
    tarn.prefix = ["prlimit", "--nofile=1024:1024"]
    with tarn, crowd.Crowd(tarn.port, crowd.sources(8)) as strangers:
        strangers.add(1100, crowd.silent)
        strangers.pump(10)
        for _ in range(3):
            equal(tarn.api(timeout_s=10).ask("GET", "/readyz").status, 200, "/readyz")
        with alice(tarn) as session:
            session.clear_unit_attentions()
            one = next(one["id"] for one in tarn.api(timeout_s=10).get("sessions"))
            tarn.api(timeout_s=10).delete(f"sessions/{one}")
            check(session.connection.closed_within(20), "the session is removed")
        check(tarn.descriptors() < 1024 - 64, f"{tarn.descriptors()} descriptors are open")
        lines = [line for line in tarn.log().splitlines() if "descriptors" in line or "open files" in line]
        # Both buckets at once, of failed logins and of connections not taken.
        check(len(lines) < 32, f"{len(lines)} lines tell of it: {lines[:3]}")


OPEN = f"""
[[lun]]
id = "disk"
store = "null:1M"
[[target]]
name = "{IQN}"
portals = ["127.0.0.1:{{port}}"]
luns = [{{ lun = 0, id = "disk" }}]
"""


@test(limit_s=60)
def pings_whose_echoes_nobody_takes_hold_little_memory():
    """C2: twenty-four sessions that prove nothing send pings of 32 KiB and take no echo. Each held 8 MiB of them."""
    count, body = 24, b"p" * 32768
    with Tarn(config=OPEN) as tarn, contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(iscsi.Session(tarn.port, IQN, f"{STRANGER}{n}", timeout_s=20)) for n in range(count)]
        before = tarn.rss_bytes()
        sent = 0
        for session in sessions:
            ping = iscsi.Pdu(iscsi.NOP_OUT | iscsi.IMMEDIATE, 0x80, body, itt=5, ttt=iscsi.NO_TAG, cmd_sn=session.cmd_sn,
                             exp_stat_sn=session.connection.exp_stat_sn).pack()
            session.connection.socket.settimeout(0.2)
            with contextlib.suppress(OSError):
                for _ in range(300):
                    session.connection.socket.sendall(ping)
                    sent += len(ping)
        held = tarn.rss_bytes() - before
        measured(f"{held / MIB:.0f} MiB held of {sent / MIB:.0f} sent")
        check(sent > count * 2 * MIB, f"only {sent / MIB:.0f} MiB were sent")
        check(held < 64 * MIB, f"{held / MIB:.0f} MiB more")
        with iscsi.Session(tarn.port, IQN, timeout_s=20) as honest:
            honest.nop(b"x")


@test(limit_s=60)
def logins_that_wait_for_one_session_displace_each_other():
    """C3: the end of a session hangs with its store; of the logins that wait for it the newest stays, the others are refused."""
    with faultfs.FaultFs(16 * MIB) as fs:
        config = OPEN.replace("null:1M", f"file:{fs.path}")
        with Tarn(config=config) as tarn:
            old = iscsi.Session(tarn.port, IQN, STRANGER, isid=b"\x80wait1", timeout_s=20)
            old.clear_unit_attentions()
            fs.hang = ("write",)
            old.start(scsi.write16(0, 8), write=bytes(4096))
            wait_for(lambda: fs.hung() == 1, 20, "the WRITE is in the store")
            before = tarn.descriptors()
            waiting = []
            for _ in range(200):
                connection = iscsi.Connection(tarn.port, timeout_s=20)
                connection.send(iscsi.Pdu(iscsi.LOGIN_REQUEST | iscsi.IMMEDIATE, 0x87, iscsi.text(
                    [("InitiatorName", STRANGER), ("SessionType", "Normal"), ("TargetName", IQN)] + list(iscsi.DEFAULT_KEYS.items())),
                    isid=b"\x80wait1", itt=1, cmd_sn=1))
                waiting.append(connection)
            refused = [connection.recv().login_status for connection in waiting[:-1]]
            equal(set(refused), {0x0301}, "what the logins before the newest are answered")
            check(tarn.descriptors() < before + 20, f"{tarn.descriptors() - before} descriptors more")
            fs.hang = ()
            fs.release()
            equal(waiting[-1].recv().login_status, 0, "what the newest login is answered")
            for connection in waiting:
                connection.close()
            old.close()
