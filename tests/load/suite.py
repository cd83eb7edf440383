#!/usr/bin/env python3
"""Many sessions, storms of logins, and what an idle Tarn costs. Figures are printed; the bounds are generous, since two
cores also run the load.

    suite.py [--list] [PATTERN...]
"""
import fcntl
import os
import pathlib
import select
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
import iscsi
import scsi
from harness import check, equal, measured, test, wait_for
from tarn import IQN, Tarn, lun_section, target_section

MIB = 1 << 20
BLOCK = 512
SESSIONS = 200
# What 200 sessions may cost beside the buffer pools: some ten times what they did when this was written.
HEAP_MAX_BYTES = 64 * MIB


def name(n):
    return f"iqn.2026-11.example.tarn:load-{n}"


def in_threads(count, work):
    """Runs work(0) ... work(count-1) at once; the first exception is raised again."""
    failures = []

    def guarded(n):
        try:
            work(n)
        except BaseException as error:      # the thread must not swallow it
            failures.append(error)
    threads = [threading.Thread(target=guarded, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    check(not any(thread.is_alive() for thread in threads), "a thread hangs")
    if failures:
        raise failures[0]


def sessions_at_once(tarn, luns):
    """200 sessions log in at once, all write and read back their own blocks at once, all log out."""
    sessions = [None] * SESSIONS
    start = time.monotonic()

    def log_in(n):
        sessions[n] = iscsi.Session(tarn.port, IQN, initiator=name(n), timeout_s=60)
        sessions[n].clear_unit_attentions(n % luns)
    in_threads(SESSIONS, log_in)
    measured(f"{SESSIONS} sessions in {time.monotonic() - start:.2f} s, {tarn.heap_bytes() // MIB} MiB of heap")
    check(tarn.heap_bytes() <= HEAP_MAX_BYTES, "memory")
    start = time.monotonic()

    def work(n):
        session, lun = sessions[n], n % luns
        base = n * 64
        for turn in range(10):
            data = os.urandom(16 * BLOCK)
            check(session.command(scsi.write16(base + turn, 16), write=data, lun=lun).good, f"WRITE of session {n}")
            outcome = session.command(scsi.read16(base + turn, 16), read=len(data), lun=lun)
            check(outcome.data == data, f"session {n} reads what it did not write")
    in_threads(SESSIONS, work)
    seconds = time.monotonic() - start
    measured(f"{SESSIONS * 20} commands in {seconds:.1f} s")
    for session in sessions:
        equal(session.logout(), 0, "logout")
        session.close()


@test(limit_s=180)
def two_hundred_sessions_on_one_lun():
    """All logged in at the same time, each writes and reads its own blocks."""
    with Tarn("mem:64M") as tarn:
        sessions_at_once(tarn, 1)


@test(limit_s=180)
def two_hundred_sessions_on_many_luns():
    """The same spread over 32 LUNs; REPORT LUNS lists them all."""
    with Tarn(*["mem:16M"] * 32) as tarn:
        with iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions()
            data = session.command(scsi.report_luns(), read=4096).data
            equal(int.from_bytes(data[:4], "big") // 8, 32, "LUNs reported")
        sessions_at_once(tarn, 32)


@test(limit_s=120)
def two_initiators_load_one_lun():
    """Two sessions at queue depth 32 on the same blocks: every READ returns one of the patterns written, never a mixture."""
    with Tarn("mem:64M") as tarn:
        mixtures = []

        def work(n):
            with iscsi.Session(tarn.port, IQN, initiator=name(n), timeout_s=30) as session:
                session.clear_unit_attentions()
                for turn in range(60):
                    tasks = []
                    for k in range(16):
                        pattern = bytes([1 + (turn * 16 + k) * 2 % 200 + n]) * BLOCK
                        tasks.append(session.start(scsi.write16(k, 1), write=pattern))
                        tasks.append(session.start(scsi.read16(k, 1), read=BLOCK))
                    for task in tasks:
                        outcome = session.finish(task)
                        check(outcome.good, f"{outcome}")
                        if outcome.data and len(set(outcome.data)) != 1:
                            mixtures.append(outcome.data[:16])
        in_threads(2, work)
        equal(mixtures, [], "blocks that are a mixture of two writes")


@test(limit_s=180)
def a_storm_of_logins():
    """Twenty threads log in, use the session and log out, 100 times each; nothing is left behind."""
    with Tarn("mem:64M") as tarn:
        with iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions()
        before_fds, before_heap = tarn.descriptors(), tarn.heap_bytes()
        start = time.monotonic()

        def work(n):
            for _ in range(100):
                with iscsi.Session(tarn.port, IQN, initiator=name(n), timeout_s=30) as session:
                    session.clear_unit_attentions()
                    check(session.command(scsi.read16(0, 1), read=BLOCK).good, "READ")
                    equal(session.logout(), 0, "logout")
        in_threads(20, work)
        seconds = time.monotonic() - start
        measured(f"2,000 sessions in {seconds:.1f} s")
        wait_for(lambda: tarn.descriptors() <= before_fds + 4, 10, f"descriptors: {before_fds} before")
        grown = tarn.heap_bytes() - before_heap
        measured(f"{grown // 1024} KiB more of heap")
        check(grown < 64 * MIB, f"{grown} bytes more after the storm")


@test(limit_s=120)
def one_name_and_isid_from_all_sides():
    """Sixteen threads log in with the same initiator name and ISID at once, again and again: each login works or is refused in
    words, at most one session is left at the end, and it works."""
    isid = bytes.fromhex("800000000001")
    with Tarn("mem:64M", arguments=["--cores", "2"]) as tarn:
        counts = {"worked": 0, "reinstated": 0, "refused": 0}
        lock = threading.Lock()

        def work(_):
            for _ in range(25):
                result = "refused"
                try:
                    with iscsi.Session(tarn.port, IQN, initiator=name(0), isid=isid, timeout_s=20) as session:
                        result = "reinstated"
                        session.clear_unit_attentions()
                        session.command(scsi.read16(0, 8), read=4096)
                        result = "worked"
                except iscsi.LoginError as error:
                    check(error.status >> 8 in (2, 3), f"login status {error.status:04x}")
                except (iscsi.Closed, OSError):
                    pass        # another thread's login took this session's place
                with lock:
                    counts[result] += 1
        start = time.monotonic()
        in_threads(16, work)
        measured(f"400 logins in {time.monotonic() - start:.1f} s: {counts}")
        check(counts["worked"] > 0, "not one session worked")
        with iscsi.Session(tarn.port, IQN, initiator=name(0), isid=isid) as session:
            session.clear_unit_attentions()
            check(session.command(scsi.read16(0, 8), read=4096).good, "READ of the last session")


@test
def reservations_survive_the_storm_of_others():
    """A persistent reservation of one session holds while 50 others come, are refused their writes and go."""
    with Tarn("mem:64M") as tarn, iscsi.Session(tarn.port, IQN, initiator=name(0)) as holder:
        holder.clear_unit_attentions()
        register = bytes([0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0])
        check(holder.command(register, write=bytes(8) + bytes([0] * 7 + [1]) + bytes(8)).good, "REGISTER")
        reserve = bytes([0x5F, 1, 1, 0, 0, 0, 0, 0, 24, 0])
        check(holder.command(reserve, write=bytes([0] * 7 + [1]) + bytes(16)).good, "RESERVE")

        def work(n):
            with iscsi.Session(tarn.port, IQN, initiator=name(n + 1), timeout_s=30) as session:
                session.clear_unit_attentions()
                equal(session.command(scsi.write16(0, 1), write=bytes(BLOCK)).status, scsi.RESERVATION_CONFLICT, "status")
                check(session.command(scsi.read16(0, 1), read=BLOCK).good, "READ")
        in_threads(50, work)
        check(holder.command(scsi.write16(0, 1), write=bytes(BLOCK)).good, "WRITE of the holder")


def cpu_of(tarn, seconds):
    before = tarn.cpu_seconds()
    time.sleep(seconds)
    return tarn.cpu_seconds() - before


@test
def idle_costs_next_to_nothing():
    """CPU time over idle seconds: without a session, with 200 idle ones, and after a load."""
    with Tarn("mem:64M") as tarn:
        # It listens before all of it has started.
        wait_for(tarn.socket.exists, 20, "the administration is there")
        iscsi.Session(tarn.port, IQN, initiator=name(0)).logout()
        alone = cpu_of(tarn, 5)
        sessions = [iscsi.Session(tarn.port, IQN, initiator=name(n)) for n in range(SESSIONS)]
        loaded = cpu_of(tarn, 10)
        for session in sessions:
            session.clear_unit_attentions()
        for _ in range(200):
            sessions[0].command(scsi.read16(0, 64), read=32768)
        after = cpu_of(tarn, 5)
        measured(f"{alone:.2f} s in 5 s alone, {loaded:.2f} s in 10 s with {SESSIONS} sessions, {after:.2f} s in 5 s after a load;"
                 f" {tarn.threads()} threads, {tarn.heap_bytes() // MIB} MiB of heap")
        # A host that others use counts more than the work takes. A core that spins would take all of the time.
        check(alone <= 0.25, f"{alone:.2f} s of CPU in 5 s without a session")
        check(loaded <= 0.8, f"{loaded:.2f} s of CPU in 10 s with idle sessions")
        check(after <= 0.4, f"{after:.2f} s of CPU in 5 s after a load")
        for session in sessions:
            session.close()


@test
def a_log_that_nobody_reads_holds_nobody_up():
    """The log goes to a pipe that is full after some lines and is never read: initiators come and go, and it ends in time."""
    tarn = Tarn("mem:16M")
    os.mkfifo(tarn.log_path)
    reader = os.open(tarn.log_path, os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
        tarn.start()
        for n in range(100):
            with iscsi.Session(tarn.port, IQN, initiator=name(n)) as s:
                s.clear_unit_attentions()
        check(len(select.select([], [reader], [], 0)[1]) == 0, "the pipe is not full, so this shows nothing")
        equal(tarn.terminate(), 0, "exit code after SIGTERM")
    finally:
        os.close(reader)
        tarn.close()


@test
def more_sessions_than_the_limit_are_refused():
    """sessions_max = 4: the fifth login is told so (0302), and works when one has gone."""
    config = lun_section("disk", "mem:16M") + target_section("disk") + "[limits]\nsessions_max = 4\n"
    with Tarn(config=config) as tarn:
        sessions = [iscsi.Session(tarn.port, IQN, initiator=name(n)) for n in range(4)]
        try:
            iscsi.Session(tarn.port, IQN, initiator=name(4))
            raise harness.Failure("the fifth session logged in")
        except iscsi.LoginError as error:
            equal(error.status, 0x0302, "login status")
        sessions[0].logout()

        def again():
            try:
                iscsi.Session(tarn.port, IQN, initiator=name(5)).close()
                return True
            except iscsi.LoginError:
                return False
        wait_for(again, 5, "a login works when one session has gone")
        for session in sessions:
            session.close()


@test(limit_s=120)
def qemu_and_raw_sessions_together():
    """qemu-img bench in the background while raw sessions come and go."""
    if not pathlib.Path("/usr/bin/qemu-img").exists():
        harness.skip("qemu-img is not there")
    with Tarn("mem:256M") as tarn:
        bench = subprocess.Popen(["qemu-img", "bench", "-f", "raw", "-c", "60000", "-d", "32", "-s", "4096", tarn.url()],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
        turns = 0
        while bench.poll() is None:
            with iscsi.Session(tarn.port, IQN, initiator=name(turns)) as session:
                session.clear_unit_attentions()
                check(session.command(scsi.read16(0, 8), read=4096).good, "READ")
            turns += 1
        equal(bench.wait(), 0, "exit status of qemu-img bench")
        measured(f"{bench.stdout.read().strip().splitlines()[-1]}; {turns} sessions meanwhile")


if __name__ == "__main__":
    harness.main()
