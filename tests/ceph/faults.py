"""Images whose object store stands still, under sessions that end, aborts, and the end of the process: a part of suite.py.

These are the tests of the suite `faults` of stores that hang. A store that is full, fails or is gone is in suite.py.
"""
import contextlib
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
import iscsi
import scsi
from harness import check, equal, measured, wait_for
from rig import BLOCK, LIMITS, cluster, config, good, not_ready, read, serve, write
from tarn import IQN, Tarn

TASK_DEADLINE_S, SHUTDOWN_S = 2, 2
PAGE = 8 * BLOCK


@contextlib.contextmanager
def stopped(ceph):
    """The object store stands still, until the given function is called or the block is left."""
    def go_on():
        ceph.signal("osd.0", signal.SIGCONT)
    ceph.signal("osd.0", signal.SIGSTOP)
    try:
        yield go_on
    finally:
        go_on()


@contextlib.contextmanager
def served(name):
    """An image, a Tarn that serves it beside memory, and a session."""
    ceph = cluster()
    with ceph.image(name, 8) as store, serve(store, "mem:1M") as (tarn, session):
        good(write(session, 0, b"\x11" * PAGE), "WRITE")
        yield ceph, tarn, session


def start(session, kind):
    """A command that does not end."""
    if kind == "read":
        return session.start(scsi.read16(0, 8), read=PAGE)
    return session.start(scsi.write16(0, 8), write=b"\x77" * PAGE)


def alive(session):
    """The session answers, and its other unit works."""
    equal(session.nop(b"alive"), b"alive", "answer to a ping")
    good(write(session, 0, b"\xa5" * PAGE, lun=1), "WRITE to the other unit")
    equal(good(read(session, 0, PAGE, lun=1), "READ of the other unit"), b"\xa5" * PAGE, "data")


def aborts(function, name, kind):
    def run():
        with served(f"abort-{kind}") as (ceph, _, session):
            with stopped(ceph):
                task = start(session, kind)
                alive(session)
                begin = time.monotonic()
                response = session.tmf(function, task=task if function == iscsi.ABORT_TASK else None,
                                       timeout_s=TASK_DEADLINE_S + 5)
                measured(f"response {response} after {time.monotonic() - begin:.1f} s")
                if kind == "write":     # it may still reach the image, so nobody may say that it is over
                    equal(response, iscsi.TMF_REJECTED, "response")
                    session.clear_unit_attentions()
                    check(not_ready(read(session, 0, BLOCK)), "its blocks can be read meanwhile")
                else:
                    check(response in (iscsi.TMF_COMPLETE, iscsi.TMF_REJECTED), f"response {response}")
                alive(session)
            wait_for(lambda: read(session, 0, BLOCK).good, 30, "its blocks can be read again")
            good(write(session, 0, b"\x12" * PAGE), "WRITE afterwards")
            equal(good(read(session, 0, PAGE), "READ"), b"\x12" * PAGE, "data")
    run.__doc__ = f"{name} with a {kind} that waits for the cluster is answered in time; the session and the other unit go on."
    harness.add(f"{name.lower().replace(' ', '_')}_of_a_{kind}_that_the_cluster_holds_is_answered", run, 90)


for kind in ("read", "write"):
    aborts(iscsi.ABORT_TASK, "ABORT TASK", kind)
    aborts(iscsi.LU_RESET, "LOGICAL UNIT RESET", kind)


def session_ends(name, end):
    def run():
        with served(f"session-{name}") as (ceph, tarn, session):
            second = iscsi.Session(tarn.port, IQN)
            second.clear_unit_attentions()
            with stopped(ceph):
                start(second, "read")
                end(second, tarn)
                alive(session)
                with iscsi.Session(tarn.port, IQN) as third:
                    third.clear_unit_attentions(1)
                    third.logout()
            wait_for(lambda: read(session, 0, BLOCK).good, 30, "the unit works")
    run.__doc__ = f"A session that ends ({name}) while the cluster holds its READ does not hold up others, nor a new login."
    harness.add(f"{name}_with_a_read_that_the_cluster_holds", run, 90)


session_ends("cut", lambda second, _: second.connection.reset())
session_ends("reinstatement", lambda second, tarn: iscsi.Session(tarn.port, IQN, isid=second.isid).close())


def process_ends():
    """SIGTERM while the cluster holds a WRITE ends the process in bounded time."""
    ceph = cluster()
    with ceph.image("ends", 8) as store:
        tarn = Tarn(config=config(store, more=LIMITS), check_exit=False)
        with tarn, iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions()
            with stopped(ceph):
                start(session, "write")
                begin = time.monotonic()
                tarn.terminate(limit_s=SHUTDOWN_S + TASK_DEADLINE_S + 15)
                measured(f"{time.monotonic() - begin:.1f} s")
        wait_for(lambda: not ceph.watchers("ends"), 60, "the end of its watch", 0.5)


harness.add("the_process_ends_while_the_cluster_holds_a_write", process_ends, 150)
