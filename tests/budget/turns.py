"""Counts the system calls and the sleeps of a turn of the real daemon: commands that arrive together are one turn, which
sends all their answers at once. Time plays no part in the counts: the next commands come when the last answer is there.
"""
import contextlib
import pathlib
import re
import subprocess
import time

import harness
import iscsi
import scsi
from harness import check, measured, wait_for
from tarn import IQN, Tarn

TURNS = 200
BLOCKS = 8
BYTES = 4096
# What a core does of itself, beside its turns, in a second at most: its tick, and a look at the administration.
OWN_PER_S = 10


class Load:
    """A session, and the thread of the core that serves it."""

    def __init__(self, tarn, session, depth, writes):
        self.session, self.depth, self.writes = session, depth, writes
        tasks = pathlib.Path(f"/proc/{tarn.process.pid}/task").iterdir()
        cores = [task for task in tasks if (task / "comm").read_text().startswith("core-")]
        self.turns(1)
        before = {core: sleeps_of(core) for core in cores}
        self.turns(20)
        self.core = max(cores, key=lambda core: sleeps_of(core) - before[core])

    def turns(self, count):
        """So many times: all commands in one send, and then all answers."""
        for _ in range(count):
            tasks = []
            with collected(self.session.connection):
                for n in range(self.depth):
                    tasks.append(self.session.start(scsi.write16(n * BLOCKS, BLOCKS), write=bytes(BYTES)) if self.writes else
                                 self.session.start(scsi.read16(n * BLOCKS, BLOCKS), read=BYTES))
            for task in tasks:
                check(self.session.finish(task).good, "a command")


@contextlib.contextmanager
def collected(connection):
    """What is sent on the connection meanwhile goes out at the end, together."""
    sent, send_raw = [], connection.send_raw
    connection.send_raw = sent.append
    try:
        yield
    finally:
        connection.send_raw = send_raw
    send_raw(b"".join(sent))


def sleeps_of(core):
    """How often a thread has waited for something."""
    return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", (core / "status").read_text(), re.MULTILINE)[1])


def calls_of(load, log):
    """System calls of the core while the load runs, with strace on its thread."""
    with subprocess.Popen(["strace", "-qq", "-p", load.core.name, "-o", log], stderr=subprocess.PIPE, text=True) as tracer:
        try:
            def is_traced():
                if tracer.poll() is not None:
                    harness.skip(f"strace cannot attach: {tracer.stderr.read().strip()}")
                return f"TracerPid:\t{tracer.pid}" in (load.core / "status").read_text()
            wait_for(is_traced, 10, "strace has the thread")
            load.turns(TURNS)
        finally:
            tracer.terminate()
    return sum("resumed" not in line for line in log.read_text().splitlines())


def hold(depth, writes, budget):
    """Fails when a turn takes more sleeps or system calls than it may."""
    with Tarn("mem:64M") as tarn, iscsi.Session(tarn.port, IQN) as session:
        session.clear_unit_attentions()
        load = Load(tarn, session, depth, writes)
        begin, before = time.monotonic(), sleeps_of(load.core)
        load.turns(TURNS)
        sleeps = sleeps_of(load.core) - before
        own = OWN_PER_S * (1 + time.monotonic() - begin)
        measured(f"{sleeps} sleeps in {TURNS} turns of {depth}")
        check(sleeps <= budget["sleeps"] * TURNS + own, f"{sleeps} sleeps, wanted {budget['sleeps']} a turn")
        begin = time.monotonic()
        calls = calls_of(load, tarn.dir / "calls")
        own = OWN_PER_S * (1 + time.monotonic() - begin)
        measured(f"{calls} system calls")
        check(TURNS <= calls, "strace has seen less than a system call a turn")
        check(calls <= budget["calls"] * TURNS + own, f"{calls} system calls, wanted {budget['calls']} a turn")
