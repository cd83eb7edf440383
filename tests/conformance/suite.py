#!/usr/bin/env python3
"""Runs libiscsi's iscsi-test-cu over every configuration of a LUN it has tests for, and keeps the score.

Everything goes through a relay that records it, and the reference unit (crate `reference`) judges each command.

A test counts as failed if it fails, hangs or crashes in any configuration meant for it; as passed if it passed in one of
them and failed in none; else as skipped. Skips are allowed only where ALLOWED_SKIPS says so.

    suite.py [--json OUT] [--write] [CONFIGURATION...]

--write puts the table into docs/internals/conformance.md; without it the run fails if the table there is not what was measured.
"""
import argparse
import difflib
import fnmatch
import json
import pathlib
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import relay
import score
import harness
from tarn import BINARY, IQN, ROOT, Tarn

DOC = ROOT / "docs/internals/conformance.md"
PEERS = pathlib.Path(__file__).with_name("peers.json")
CHAP_USER, CHAP_SECRET = "tester", "tester-secret-0123"
LIMIT_S = 60
JUDGE = BINARY.parent / "examples/judge"

CHAP_CONFIG = f"""
[[lun]]
id = "disk"
store = "file:{{dir}}/disk.img?size=256M"
[[user]]
name = "{CHAP_USER}"
secret_file = "{{dir}}/secret"
[[target]]
name = "{IQN}"
portals = ["127.0.0.1:{{port}}", "127.0.0.1:{{port2}}"]
auth = ["{CHAP_USER}"]
luns = [{{ lun = 0, id = "disk" }}]
cold_reset = true
"""


def one_disk(store):
    """A configuration with one disk and two portals, whose target lets Reserve6.TargetColdReset do what it wants to see."""
    return f"""
[[lun]]
id = "disk"
store = "{store}"
[[target]]
name = "{IQN}"
portals = ["127.0.0.1:{{port}}", "127.0.0.1:{{port2}}"]
luns = [{{ lun = 0, id = "disk" }}]
cold_reset = true
"""


READING = ["Inquiry", "Mandatory", "Prefetch*", "Read*", "TestUnitReady"]
# What the tool leaves out of a disk with a fixed medium, and what a medium that can go must not change.
MEDIUM = ["PreventAllow", "NoMedia", "StartStopUnit"] + READING + ["ModeSense6", "Reserve6", "Write10"]
NOT_WRITABLE = ["ReadOnly"]
# Want a unit to be ready that was stopped (SBC-3: 2h/04h/02h), and GOOD for all 15 power conditions, most of which are reserved.
NOT_STOPPED = ["StartStopUnit.NoLoej", "StartStopUnit.PwrCnd"]
# Asks for the status of block i+1 and wants it told of block i + (logical blocks per physical block), which SBC-3 forbids
# unless the two are one.
NOT_BELOW_PHYSICAL_BLOCKS = NOT_WRITABLE + ["GetLBAStatus.UnmapSingle"]
# Write 512 bytes to a block whatever its size is, which ends in 5h/0Eh/03h where a block is longer.
NOT_WITH_4K_BLOCKS = NOT_WRITABLE + ["iSCSITMF.AbortTaskSimpleAsync", "ProutReserve.Access*"]


class Configuration:
    """A LUN, how it is reached, and the tests meant for it: `tests` but not `but`, patterns of SUITE or SUITE.TEST."""

    def __init__(self, name, about, *stores, config=None, paths=1, user="", tests=("*",), but=(), unit="524288 512 thin cached"):
        self.name, self.about, self.unit = name, about, unit.split()
        self.stores, self.config = stores, config
        self.paths, self.user = paths, user
        self.patterns, self.but = tests, but

    def tests(self, names):
        def matches(name, patterns):
            _, suite, test = name.split(".")
            return any(fnmatch.fnmatch(n, p) for p in patterns for n in (suite, f"{suite}.{test}"))
        return [n for n in names if matches(n, self.patterns) and not matches(n, self.but)]

    def run(self, names):
        tarn = Tarn(*self.stores, config=self.config)
        if self.config:
            tarn.secret("secret", CHAP_SECRET)
        with tarn:
            ports = [tarn.port, tarn.port2 if self.config else tarn.port][:self.paths]
            with relay.Relay(ports, [JUDGE, *self.unit]) as between:
                urls = [tarn.url(port=port, user=self.user) for port in between.ports]

                def end_of_test(result):
                    progress(result)
                    # Then the judge knows that what ends with a session has ended.
                    harness.wait_for(lambda: not tarn.api().get("sessions"), 20, "no session is left")
                    between.quiet()
                results = score.score(self.tests(names), urls, limit_s=LIMIT_S, progress=end_of_test)
                return results, *between.judgement()


CONFIGURATIONS = [
    Configuration("thin", "thin file, 512-byte blocks, two paths", config=one_disk("file:{dir}/disk.img?size=256M"), paths=2,
                  but=NOT_BELOW_PHYSICAL_BLOCKS),
    Configuration("thick", "file without thin provisioning", config=one_disk("file:{dir}/disk.img?size=256M&thin=false"),
                  but=NOT_WRITABLE, unit="524288 512 cached"),
    Configuration("mem-4k", "memory, 4096-byte blocks, two paths", config=one_disk("mem:256M?blocksize=4096"), paths=2,
                  but=NOT_WITH_4K_BLOCKS, unit="65536 4096 thin"),
    Configuration("chap", "CHAP, two portals", config=CHAP_CONFIG, paths=2, user=f"{CHAP_USER}%{CHAP_SECRET}",
                  but=NOT_BELOW_PHYSICAL_BLOCKS),
    Configuration("readonly", "read-only", "mem:256M?readonly", tests=READING, unit="524288 512 thin readonly"),
    Configuration("removable", "removable medium", config=one_disk("file:{dir}/disk.img?size=256M&removable"), tests=MEDIUM,
                  but=NOT_WRITABLE + NOT_STOPPED, unit="524288 512 thin removable cached"),
]

# What may be skipped in every configuration, and why.
ALLOWED_SKIPS = {
    "ExtendedCopy.*": "EXTENDED COPY is not there",
    "ReceiveCopyResults.*": "EXTENDED COPY is not there",
    "Sanitize.*": "SANITIZE is not there",
    "WriteAtomic16.*": "WRITE ATOMIC is not there",
    "StartStopUnit.NoLoej": "wants a stopped unit to be ready",
    "StartStopUnit.PwrCnd": "power conditions are not there",
}


def progress(result):
    if result["state"] not in ("PASS", "SKIP"):
        print(f"  {result['state']} {result['test']} ({result['seconds']} s) {result['reason']}", flush=True)
        if result["state"] != "TOOL-BUG":
            print("    " + result["tail"].strip()[-1200:].replace("\n", "\n    "), flush=True)


def union(per_configuration):
    """The state of each test over all configurations it ran in."""
    states = {}
    for results in per_configuration.values():
        for r in results:
            states.setdefault(r["test"], []).append(r["state"])

    def one(seen):
        for state in (*score.BAD, "TOOL-BUG", "PASS"):
            if state in seen:
                return state
        return "SKIP"
    return {test: one(seen) for test, seen in states.items()}


def skip_is_allowed(test):
    return any(fnmatch.fnmatch(test.split(".", 1)[1], pattern) for pattern in ALLOWED_SKIPS)


def cell(states):
    """passed/skipped/failed, as the tables have it; the tool's own defect counts as failed there."""
    states = list(states)
    passed, skipped = states.count("PASS"), states.count("SKIP")
    return [passed, skipped, len(states) - passed - skipped]


def table(per_configuration, total):
    """The Markdown table: a row for each suite of the tool that does not pass everywhere, Tarn beside its peers."""
    peers = json.loads(PEERS.read_text(encoding="utf-8"))
    names = list(dict.fromkeys(test.split(".")[1] for test in total))
    out = ["| suite | Tarn | " + " | ".join(peers) + " |", "|---" * (len(peers) + 2) + "|"]

    def row(name, cells):
        out.append("| " + " | ".join([name] + ["/".join(map(str, c)) if c else "" for c in cells]) + " |")
    passed = []
    for name in names:
        ours = cell(state for test, state in total.items() if test.split(".")[1] == name)
        cells = [ours] + [peer["suites"].get(name) for peer in peers.values()]
        if all(not c or c[1:] == [0, 0] for c in cells):
            passed.append(name)
        else:
            row(name, cells)
    row("**total**", [cell(total.values())] + [peer["total"] for peer in peers.values()])
    out += ["", "| configuration of Tarn | passed/skipped/failed |", "|---|---|"]
    for configuration in CONFIGURATIONS:
        results = per_configuration[configuration.name]
        row(f"{configuration.name}: {configuration.about}", [cell(r["state"] for r in results)])
    out += ["", "All tests pass at all of these in " + (", ".join(passed) or "no suite") + "."]
    skipped = [test.removeprefix("ALL.") for test, state in total.items() if state == "SKIP"]
    out += ["", "Skipped: " + (", ".join(skipped) or "none") + "."]
    return "\n".join(out)


def put_into_doc(text, write):
    """Writes the table between its markers; returns the lines that were others."""
    begin, end = "<!-- score: begin (tests/conformance/suite.py --write) -->", "<!-- score: end -->"
    doc = DOC.read_text(encoding="utf-8")
    new = re.sub(re.escape(begin) + ".*" + re.escape(end), lambda _: f"{begin}\n{text}\n{end}", doc, flags=re.DOTALL)
    if write:
        DOC.write_text(new, encoding="utf-8")
    return [line for line in difflib.unified_diff(doc.splitlines(), new.splitlines(), "document", "found", lineterm="", n=0)
            if not line.startswith("@@")]


# All configurations, by a word that tests/run tries again.
ALL = "all"


def report(failed, what, why, lines=()):
    """Notes a failure, in the form that tests/run reads."""
    print("\n         ".join([f"FAILED   {what} ({why})", *lines]))
    if what not in failed:
        failed.append(what)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write all results there")
    parser.add_argument("--write", action="store_true", help="put the table into docs/internals/conformance.md")
    parser.add_argument("names", nargs="*", metavar="CONFIGURATION", help=", ".join([*(c.name for c in CONFIGURATIONS), ALL]))
    arguments = parser.parse_args()
    wanted = arguments.names or [ALL]
    chosen = [c for c in CONFIGURATIONS if ALL in wanted or c.name in wanted]
    names = score.listing()
    if not chosen or not names:
        parser.error("no such configuration" if names else "iscsi-test-cu lists no tests")
    start = time.monotonic()
    per_configuration, breaches = {}, {}
    for configuration in chosen:
        at = time.monotonic()
        results, judgement, is_right = configuration.run(names)
        per_configuration[configuration.name] = results
        counts = score.count(results)
        print(f"{configuration.name:9} {' '.join(f'{s.lower()} {counts[s]}' for s in score.STATES)} of {len(results)}"
              f" ({time.monotonic() - at:.1f} s): {configuration.about}", flush=True)
        print("          reference: " + judgement.replace("\n", "; "), flush=True)
        if not is_right:
            breaches[configuration.name] = judgement
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(per_configuration, indent=1), encoding="utf-8")

    total, is_whole = union(per_configuration), len(chosen) == len(CONFIGURATIONS)
    failed = [test for test, state in total.items() if state in score.BAD]
    for test in list(failed):
        report(failed, test, "see above")
    for test, state in total.items():
        # Some configurations alone skip what is for others.
        if is_whole and state == "SKIP" and not skip_is_allowed(test):
            reason = next(r["reason"] for rs in per_configuration.values() for r in rs if r["test"] == test)
            report(failed, test, f"skipped, which is not allowed: {reason}")
    others = put_into_doc(table(per_configuration, total), arguments.write) if is_whole else []
    if others and not arguments.write:
        for name, results in per_configuration.items():
            others += [f"{name}: {r['test']}: {r['reason']}" for r in results if r["state"] == "SKIP" and not skip_is_allowed(r["test"])]
        report(failed, ALL, "docs/internals/conformance.md does not show this score; run tests/conformance/suite.py --write", others)
    for name, judgement in breaches.items():
        report(failed, name, "the reference finds a breach", judgement.splitlines())
    passed = sum(state == "PASS" for state in total.values())
    skipped = sum(test not in failed for test in total) - passed
    harness.summary(passed, len(failed), skipped, time.monotonic() - start)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
