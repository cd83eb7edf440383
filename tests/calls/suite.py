#!/usr/bin/env python3
"""Every call fails once: the Nth system call that may fail during a start, a change or the end of a daemon fails, and it neither
panics nor hangs, what it answers holds, and nothing is left that the next start does not repair or name.

    suite.py [--all] [--list] [PATTERN...]

With --all every call of an operation fails in two runs of its own, once and from then on; otherwise some do in one, evenly spread.
CALLS_JOBS: so many runs at a time.
"""
import collections
import concurrent.futures
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1] / "lib")]
import callfaults
import harness
import world
from harness import Failure, check, equal, measured, skip, test
from reflinks import file_system

ALL = "--all" in sys.argv
# Runs mostly wait for daemons that begin and end.
JOBS = int(os.environ.get("CALLS_JOBS") or 3)
# In the test stage: about so many runs in all, of some 10,000.
RUNS = 240
# What an undisturbed run counts is some calls more or less than another, as threads of the daemon count, too.
MORE = 1.05
SHOWN = 12
LIMIT_S = 7200 if ALL else 240


def places(operation, calls):
    """Which calls fail."""
    last = int(calls * MORE)
    step = 1 if ALL else max(1, last * len(world.EVERY) // RUNS)
    return range(1 + sorted(world.EVERY).index(operation.name) % step, last + 1, step)


def one(name, place, lasts, known):
    operation, body = world.EVERY[name]
    return body(operation, place, variant=place + lasts, lasts=lasts, **known)


def ways(place):
    """Whether the error of this call lasts."""
    return [False, True] if ALL else [place % 3 == 0]


def undisturbed(operation, body):
    """What is there before and after, and how many calls it takes."""
    first = body(operation, 0)
    check(not first.findings, f"undisturbed: {first}")
    check(first.is_done and first.calls, f"undisturbed: {first}")
    return first


def fail_every_call(name):
    """The operation, with one call that fails in each run."""
    operation, body = world.EVERY[name]
    first = undisturbed(operation, body)
    known = {"before": first.before, "after": first.after}
    forked = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(JOBS, mp_context=forked) as pool:
        try:
            chosen = [(place, lasts) for place in places(operation, first.calls) for lasts in ways(place)]
            runs = [pool.submit(one, name, place, lasts, known) for place, lasts in chosen]
            runs = [run.result() for run in runs]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    failed = [run for run in runs if run.hit]
    bad = [run for run in failed if run.findings]
    well = [run for run in failed if not run.findings]
    counts = collections.Counter(run.known or ("ended well" if run.is_done else "refused well") for run in well)
    measured(f"{first.calls} calls, {len(failed)} failed: " + ", ".join(f"{count} {how}" for how, count in counts.most_common())
             + f", {len(bad)} not")
    wrong = [run for run in runs if run.findings and not run.hit]
    check(not wrong, f"undisturbed: {wrong[:SHOWN]}")
    if bad:
        raise Failure("\n".join(map(repr, bad if ALL else bad[:SHOWN])))
    check(failed, "no call has failed")


def every_call(name):
    def operation():
        if not callfaults.usable():
            skip("the numbers of system calls are not known here: linux-libc-dev, x86-64")
        if not world.EVERY[name][0].reflinks:
            fail_every_call(name)
            return
        with file_system("xfs") as place:
            before, tempfile.tempdir = tempfile.tempdir, str(place)
            try:
                fail_every_call(name)
            finally:
                tempfile.tempdir = before
    operation.__doc__ = f"Each call that may fail fails once: {name}."
    harness.add(f"every_call_of_{name.replace('-', '_')}_fails_once", operation, LIMIT_S)


def add_to(name, text):
    def meddle(tarn):
        with open(tarn.dir / name, "a") as file:
            file.write(text)
    return meddle


def overwrite(tarn):
    with tarn.session(world.IQN) as session:
        world.write(session, 0, "?")


def damage(tarn):
    path = next(tarn.dir.glob("state/units/*/medium"))
    path.write_text(path.read_text().replace("store", "stare"))


def interrupt(tarn):
    """Ends it as an abort would."""
    tarn.process.send_signal(signal.SIGABRT)
    tarn.process.wait()


# What is done to a daemon that did all it should, and what the judge must say.
MEDDLING = [
    ("lun-add", add_to("stray.img", ""), "answered as done: left behind: stray.img"),
    ("lun-add", add_to("log", "thread 'x' panicked at crates/x.rs:1:1:\n"), "panicked at crates/x.rs"),
    ("lun-add", add_to("tarn.toml", "# more\n"), "answered as done: file: ['+# more']"),
    ("lun-add", lambda tarn: (tarn.dir / "c.img").unlink(), "answered as done: missing: c.img"),
    ("lun-add", overwrite, "answered as done: iqn.2026-11.example.tarn:test at PORT: {0: (b'????'"),
    ("lun-add", lambda tarn: tarn.told("portal", "add", world.OTHER, "127.0.0.1:{port2}"), "answered as done: ports: [True, True]"),
    ("lun-add", interrupt, "the daemon ended: ['ended by signal SIGABRT']"),
    ("lun-add", damage, "state check: "),
    ("start-again", overwrite, "serving: iqn.2026-11.example.tarn:test at PORT: {0: (b'????'"),
    ("stop", add_to("stray.img", ""), "after the restart: left behind: stray.img"),
]


@test(limit_s=120)
def the_judge_finds_what_was_done_wrong():
    """No call fails, and a file, a line or a byte is not as it must be: the judge says so. Without that it says nothing."""
    if not callfaults.usable():
        skip("the numbers of system calls are not known here")
    for name in dict.fromkeys(name for name, _, _ in MEDDLING):
        operation, body = world.EVERY[name]
        first = undisturbed(operation, body)
        known = {"before": first.before, "after": first.after}
        check(not body(operation, 0, **known).findings, "a finding where nothing is wrong")
        for _, meddle, finding in (one for one in MEDDLING if one[0] == name):
            found = body(operation, 0, meddle=meddle, **known)
            check(any(finding in line for line in found.findings), f"{finding!r} is not in {found}")


@test
def a_call_fails_where_it_is_to_fail():
    """Of the calls of `cat` the one that opens its file fails, with the error that was chosen."""
    if not callfaults.usable():
        skip("the numbers of system calls are not known here")
    with callfaults.Faults() as faults, tempfile.NamedTemporaryFile() as file:
        def cat(place, variant=0):
            faults.arm(place, variant)
            done = subprocess.run([*faults.prefix(), "cat", file.name], capture_output=True, text=True, timeout=20)
            return done.returncode, done.stderr, faults.disarm()
        code, _, calls = cat(0)
        check(code == 0 and "openat" in faults.seen, f"{code}, {faults.seen}")
        # The last file that it opens.
        place = calls - faults.seen[::-1].index("openat")
        code, said, _ = cat(place, variant=1)
        check(code == 1 and "Permission denied" in said, f"{code}, {said!r}")
        equal(faults.hit, f"openat {file.name}: EACCES", "what has failed")


for each in world.EVERY:
    every_call(each)


if __name__ == "__main__":
    sys.argv = [one_of for one_of in sys.argv if one_of != "--all"]
    harness.main()
