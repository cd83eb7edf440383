#!/usr/bin/env python3
"""Scores a target with libiscsi's iscsi-test-cu: one process per test, three states and hangs.

The tool's own summary cannot be trusted as a score: a skipped test counts as passed, and the exit status is 0 after
failures. Here every test runs alone under a time limit and ends as PASS, SKIP, FAIL, HANG, CRASH or TOOL-BUG.

    score.py [--json OUT] [--only 'ALL.Read10.*'] [--tool iscsi-test-cu] [--limit 60] URL [URL2]

URL is iscsi://[user[%pass]@]host[:port]/iqn/lun; URL2 is a second path to the same LUN (multipath and two-session
tests). Exit status: 0 when nothing failed, hung or crashed; 1 otherwise; 2 when the run could not be made.
The LUN is overwritten. Debian package: libiscsi-bin.
"""
import argparse
import fnmatch
import json
import re
import subprocess
import sys
import tempfile
import time

STATES = ("PASS", "SKIP", "FAIL", "HANG", "CRASH", "TOOL-BUG")
BAD = ("FAIL", "HANG", "CRASH")

# Fails or crashes against every target: 1.19.0 asserts on a reconnect flag before it has sent the reset (fixed in 1.20.0).
TOOL_BUG = {"ALL.iSCSITMF.LUNResetSimpleAsync"}

# A test that says nothing and asserts nothing may have come too late: what AbortTaskSimpleAsync aborts has ended before.
TRIES = 3

# Suites whose tests return without a word: when the command they need is missing, or, with no assertion made, when the medium is
# not removable.
SILENT_SKIP = {"ReportTargetPortGroups": "Failed to send|not implemented|ILLEGAL_REQUEST",
               "NoMedia": r"asserts\s+0\s", "StartStopUnit": r"asserts\s+0\s"}


def listing(tool="iscsi-test-cu"):
    """The names of all tests, FAMILY.SUITE.TEST, in the tool's order."""
    lines = subprocess.run([tool, "--list"], capture_output=True, text=True, check=False).stdout.splitlines()
    names = [line.strip() for line in lines]
    return list(dict.fromkeys(n for n in names if n.startswith("ALL.") and n.count(".") == 2))


def run_one(test, urls, cwd, tool="iscsi-test-cu", limit_s=60.0):
    """Runs one test alone; returns its state with the tool's reason and the end of what it printed."""
    command = [tool, "--dataloss", "--allow-sanitize", "--normal", f"--test={test}", *urls]
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=cwd,
                               stdin=subprocess.DEVNULL)
    try:
        raw, _ = process.communicate(timeout=limit_s)
        hung = False
    except subprocess.TimeoutExpired:
        process.kill()
        raw, _ = process.communicate()
        hung = True
    seconds = time.monotonic() - start
    # What the tool prints before its banner is its own survey of the LUN, not the test.
    text = raw.decode("utf-8", "replace")
    survey, banner, out = text.rpartition("A unit testing framework")
    state = "HANG" if hung else _state(test, process.returncode, out if banner else "")
    reason = re.search(r"\[(?:SKIPPED|FAILED)\][^\n]*", out)
    return {"test": test, "state": state, "seconds": round(seconds, 2), "reason": reason.group(0)[:160] if reason else "",
            "tail": "" if state == "PASS" else (out if banner else survey + out)[-3000:]}


def _state(test, status, out):
    counts = re.search(r"tests\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)", out)
    if status < 0:
        state = "CRASH"
    elif counts is None or int(counts.group(4)) > 0:
        state = "FAIL"
    elif int(counts.group(2)) == 0 or "[SKIPPED]" in out:
        state = "SKIP"
    else:
        silent = SILENT_SKIP.get(test.split(".")[1])
        state = "SKIP" if silent and re.search(silent, out) else "PASS"
    return "TOOL-BUG" if test in TOOL_BUG and state in ("FAIL", "CRASH") else state


def score(tests, urls, tool="iscsi-test-cu", limit_s=60.0, progress=None):
    """Runs the tests one after another; `progress` is called with each result."""
    results = []
    with tempfile.TemporaryDirectory() as cwd:       # the tool leaves files in its working directory
        for test in tests:
            for _ in range(TRIES):
                result = run_one(test, urls, cwd, tool, limit_s)
                if progress:
                    progress(result)
                if result["state"] != "SKIP" or result["reason"]:
                    break
            results.append(result)
    return results


def count(results):
    return {state: sum(r["state"] == state for r in results) for state in STATES}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write all results there")
    parser.add_argument("--only", default="ALL.*")
    parser.add_argument("--tool", default="iscsi-test-cu")
    parser.add_argument("--limit", type=float, default=60, metavar="SECONDS")
    parser.add_argument("urls", nargs="+", metavar="URL")
    arguments = parser.parse_args()
    try:
        tests = [t for t in listing(arguments.tool) if fnmatch.fnmatch(t, arguments.only)]
    except OSError as error:
        print(f"score: cannot run {arguments.tool}: {error}", file=sys.stderr)
        return 2
    if not tests:
        print(f"score: no test matches {arguments.only}", file=sys.stderr)
        return 2

    def progress(result):
        if result["state"] not in ("PASS", "SKIP"):
            print(f"{result['state']} {result['test']} {result['reason']}", flush=True)

    results = score(tests, arguments.urls, arguments.tool, arguments.limit, progress)
    counts = count(results)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as out:
            json.dump({"urls": arguments.urls, "count": counts, "results": results}, out, indent=1)
    print(" ".join(f"{state.lower()} {counts[state]}" for state in STATES), f"of {len(tests)}")
    return 1 if any(counts[state] for state in BAD) else 0


if __name__ == "__main__":
    sys.exit(main())
