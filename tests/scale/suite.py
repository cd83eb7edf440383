#!/usr/bin/env python3
"""Ten thousand sessions and a thousand LUNs in one Tarn. What they cost in time is measured by bench/scale.py; asserted here
is what does not depend on the machine: memory, and that everything is there and works.

    suite.py [--list] [PATTERN...]
"""
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
import iscsi
import scsi
from harness import check, equal, measured, test, wait_for
from tarn import IQN, Tarn, many_luns, raise_descriptor_limit

KIB = 1024
BLOCK = 512
SESSIONS = 10_000
LUNS = 1_000
# Resident memory beyond that of a Tarn without sessions, for each idle session.
SESSION_MAX_BYTES = 64 * KIB
# Descriptors of either side beside those of the sessions or units.
DESCRIPTORS_SPARE = 1_000
# Longer than the kernel takes to give up a peer that does not answer its probes. Those of so many sessions come in one burst,
# of which the loopback device drops the most.
IDLE_S = 75
# Bound for a hang, not for speed: a machine that runs the load as well takes a tenth of it.
ALL_LOGINS_MAX_S = 150


def need_descriptors(count):
    limit = raise_descriptor_limit(count + DESCRIPTORS_SPARE)
    if limit < count + DESCRIPTORS_SPARE:
        harness.skip(f"{count + DESCRIPTORS_SPARE} open files are needed, {limit} are allowed (ulimit -Hn)")


def log_in(tarn, number):
    return iscsi.Session(tarn.port, IQN, initiator=f"iqn.2026-11.example.tarn:scale-{number}", timeout_s=30)


def has_work(session, lun=0):
    """Writes a block of its own to a LUN and reads it back."""
    session.clear_unit_attentions(lun)
    data = (lun + 1).to_bytes(2, "big") * (BLOCK // 2)
    check(session.command(scsi.write16(7, 1), write=data, lun=lun).good, f"WRITE to LUN {lun}")
    equal(session.command(scsi.read16(7, 1), read=BLOCK, lun=lun).data, data, f"READ from LUN {lun}")


@test(limit_s=300)
def ten_thousand_idle_sessions():
    """10,000 sessions at once on one core: each costs less than 64 KiB of resident memory, all survive the kernel's probes, the
    first and the last work, and when they are gone nothing of them is left."""
    need_descriptors(SESSIONS)
    limits = f"sessions_max = {SESSIONS * 9 // 8 + 1}\nnop_interval_seconds = 600"
    with Tarn(config=many_luns(1, limits=limits), arguments=["--cores", "1", "--log", "warn"]) as tarn:
        with log_in(tarn, SESSIONS) as first:
            has_work(first)
            with_first = tarn.descriptors()
        wait_for(lambda: tarn.descriptors() < with_first, 30, "the first session is gone")
        before_fds, before_bytes = tarn.descriptors(), tarn.rss_bytes()
        start, cpu = time.monotonic(), tarn.cpu_seconds()
        sessions = [log_in(tarn, number) for number in range(SESSIONS)]
        seconds = time.monotonic() - start
        check(tarn.descriptors() >= before_fds + SESSIONS, "not all of them are there at once")
        each = (tarn.rss_bytes() - before_bytes) / SESSIONS
        measured(f"{SESSIONS} logins in {seconds:.1f} s with {tarn.cpu_seconds() - cpu:.1f} s of CPU, {each / KIB:.1f} KiB each")
        check(seconds <= ALL_LOGINS_MAX_S, f"{seconds:.0f} s for all logins")
        check(each < SESSION_MAX_BYTES, f"{each / KIB:.1f} KiB of memory for each session")
        cpu = tarn.cpu_seconds()
        time.sleep(IDLE_S)
        measured(f"{100 * (tarn.cpu_seconds() - cpu) / IDLE_S:.2f} % of a core while all idle")
        lost = before_fds + SESSIONS - tarn.descriptors()
        check(lost <= 0, f"{lost} idle sessions were lost")
        has_work(sessions[0])
        has_work(sessions[-1])
        for session in sessions:
            session.close()
        wait_for(lambda: tarn.descriptors() <= before_fds + 4, 60, "the descriptors are given back")


@test(limit_s=120)
def a_thousand_luns():
    """1,000 LUNs of one target: REPORT LUNS names them all, the first and the last keep what is written to them."""
    need_descriptors(4 * LUNS)
    with Tarn(config=many_luns(LUNS), arguments=["--log", "warn"]) as tarn:
        measured(f"{tarn.start_seconds:.2f} s to the first accepted connection, {tarn.descriptors()} descriptors,"
                 f" {tarn.rss_bytes() // KIB // KIB} MiB resident")
        with log_in(tarn, 0) as session:
            session.clear_unit_attentions()
            data = session.command(scsi.report_luns(16 * KIB), read=16 * KIB).data
            length = int.from_bytes(data[:4], "big")
            found = [data[at:at + 8] for at in range(8, 8 + length, 8)]
            equal(found, [scsi.lun_field(lun) for lun in range(LUNS)], "LUNs reported")
            for lun in (0, LUNS - 1):
                has_work(session, lun)
            equal(session.command(scsi.read16(7, 1), read=2).data, (1).to_bytes(2, "big"), "what LUN 0 keeps")
            check(not session.command(scsi.test_unit_ready(), lun=LUNS).good, "a LUN beyond the last is ready")


if __name__ == "__main__":
    harness.main()
