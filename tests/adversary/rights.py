"""Who may do what: before login, after login, through a read-only view, as operator."""
import contextlib

import iscsi
import scsi
from harness import check, equal, measured, test
from tarn import IQN, Tarn

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
        check(session.command(scsi.read10(0, 1), read=512).good(), f"a READ of a proved user {what}")


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
            check(grown < 4 * MIB, f"{grown} bytes are held")
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
        check(session.command(scsi.read10(0, 1), read=512).good(), "a READ afterwards")


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
