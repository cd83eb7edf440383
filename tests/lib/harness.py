"""A small harness for suites that drive a real target process.

A suite is a script: it defines functions marked with @test, in the order they run, and ends in main(). Each test is
named by its function, states its claim in the docstring, and may print what it measured. A test has a time limit; it
fails by any exception and is skipped by skip(). The last line of a suite is the one that tests/run reads.
"""
import argparse
import contextlib
import fnmatch
import os
import pathlib
import signal
import sys
import time
import traceback

LIMIT_S_DEFAULT = 60
_tests = []
_measured = []


class Failure(Exception):
    """A claim that did not hold."""


class Skip(Exception):
    """The test does not apply here; the text says why."""


class TooLong(BaseException):
    """The time limit; not an Exception, so that no retry loop in a test swallows it."""


def test(function=None, *, limit_s=LIMIT_S_DEFAULT):
    """Marks a function as a test of this suite."""
    def mark(f):
        _tests.append((f.__name__, f, limit_s))
        return f
    return mark(function) if function else mark


def add(name, function, limit_s=LIMIT_S_DEFAULT):
    """Adds a test by name: for tables of cases."""
    _tests.append((name, function, limit_s))


def skip(why):
    raise Skip(why)


def measured(text):
    """A figure of the running test; printed with its result."""
    _measured.append(str(text))


def check(condition, what):
    if not condition:
        raise Failure(what)


def equal(got, want, what):
    if got != want:
        raise Failure(f"{what}: got {got!r}, want {want!r}")


def wait_for(condition, seconds, what, step_s=0.05):
    """Waits until condition() is true and returns its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= end:
            raise Failure(f"not within {seconds} s: {what}")
        time.sleep(step_s)


def suspend(pid):
    """Stops a process and waits until it stands: the kernel stops each of its threads by itself, some of them a moment later."""
    def stands():
        with contextlib.suppress(OSError):      # a thread that ended meanwhile
            threads = pathlib.Path(f"/proc/{pid}/task").glob("*/stat")
            return all(thread.read_text().rpartition(")")[2].split()[0] in "TZ" for thread in threads)
    os.kill(pid, signal.SIGSTOP)
    wait_for(stands, 10, f"process {pid} stands still", 0.005)


def _on_alarm(_signal, _frame):
    raise TooLong()


def _run_one(name, function, limit_s):
    """Runs one test; returns its state and the text for a failure."""
    _measured.clear()
    signal.signal(signal.SIGALRM, _on_alarm)
    signal.alarm(limit_s)
    start = time.monotonic()
    state, why = "ok", ""
    try:
        function()
    except Skip as reason:
        state, why = "skipped", str(reason)
    except TooLong:
        state, why = "FAILED", f"longer than {limit_s} s\n" + traceback.format_exc(limit=-3)
    except Failure as failure:
        where = traceback.extract_tb(failure.__traceback__)
        line = next((f"{f.filename.rpartition('/')[2]}:{f.lineno}" for f in reversed(where)
                     if not f.filename.endswith("lib/harness.py")), "?")
        state, why = "FAILED", f"{failure} ({line})"
    except Exception:
        state, why = "FAILED", traceback.format_exc()
    finally:
        signal.alarm(0)
    notes = "; ".join(_measured)
    print(f"{state:8} {name} ({time.monotonic() - start:.1f} s){': ' + notes if notes else ''}", flush=True)
    if why:
        print("         " + why.rstrip().replace("\n", "\n         "), flush=True)
    return state


def main(on_failure=None):
    """Runs the suite's tests. `on_failure` is called after each that failed (to show a log, to start afresh)."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the tests with their claims")
    parser.add_argument("only", nargs="*", metavar="PATTERN", help="run the tests whose name matches (shell wildcards)")
    arguments = parser.parse_args()
    chosen = [t for t in _tests if not arguments.only or any(fnmatch.fnmatch(t[0], p) for p in arguments.only)]
    if arguments.list:
        for name, function, _ in chosen:
            print(f"{name}\n    {(function.__doc__ or '').strip()}")
        sys.exit(0)
    states = []
    start = time.monotonic()
    for name, function, limit_s in chosen:
        state = _run_one(name, function, limit_s)
        states.append(state)
        if state == "FAILED" and on_failure:
            on_failure()
    summary(states.count("ok"), states.count("FAILED"), states.count("skipped"), time.monotonic() - start)
    sys.exit(1 if "FAILED" in states or not chosen else 0)


def summary(passed, failed, skipped, seconds):
    """The closing line of a suite, which tests/run reads."""
    print(f"= {passed} passed, {failed} failed, {skipped} skipped in {seconds:.1f} s", flush=True)
