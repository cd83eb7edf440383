#!/usr/bin/env python3
"""tests/run itself, with small stages of its own: what runs beside what, and that no failure is lost.

    suite.py [--list] [PATTERN...]
"""
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import harness
from harness import check, equal, test, wait_for


def load():
    """tests/run as a module."""
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("runner", str(ROOT / "tests/run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("runner", loader))
    loader.exec_module(module)
    return module


runner = load()


def stage(name, script="exit 0", **options):
    """A stage that is a piece of shell, and is one test by itself unless the options say otherwise."""
    return runner.Stage(name, f"what {name} is for", "sh", "-c", script, **{"whole": True, **options})


class Run:
    """One run of stages in a directory of its own: exit status, what was printed, and when each stage was at work."""

    def __init__(self, *stages, arguments=(), late_minutes=10, limit_minutes_all=10, logs=None):
        with tempfile.TemporaryDirectory(prefix="tarn-runner.") as own:
            folder = logs or own
            self.times = pathlib.Path(own) / "times"
            self.times.touch()
            out = io.StringIO()
            with unittest.mock.patch.multiple(runner, STAGES=stages, LOGS=pathlib.Path(folder), PATIENCE_S=1,
                                              LATE_MINUTES=late_minutes, LIMIT_MINUTES_ALL=limit_minutes_all), \
                    unittest.mock.patch.dict(os.environ, TIMES=str(self.times)), \
                    unittest.mock.patch.object(sys, "argv", ["run", *arguments]), contextlib.redirect_stdout(out):
                self.status = runner.main()
            self.output = out.getvalue()
            self.events = [line.split() for line in self.times.read_text().splitlines()]

    def summary(self):
        """What the lines at the end say: by stage (passed, failed, skipped), and the note."""
        table = self.output.rpartition("\nstages:\n")[2]
        rows = re.findall(r"^(?:ok|FAIL) +(\S+) +[\d.]+ min +[\d.]+ busy +(\d+) passed +(\d+) failed +(\d+) skipped(?:  \((.*)\))?$", table, re.M)
        return {name: (*map(int, numbers), note) for name, *numbers, note in rows}

    def together(self):
        """The sets of stages that were at work at the same time, and the most of them."""
        sets, now = set(), set()
        for what, name in self.events:
            (now.add if what == "+" else now.discard)(name)
            sets.add(frozenset(now))
        return sets, max(map(len, sets))


def timed(name, seconds=1, **options):
    return stage(name, f'echo + {name} >> "$TIMES"; sleep {seconds}; echo - {name} >> "$TIMES"', **options)


@test
def four_run_at_a_time_and_never_five():
    """Of six stages four are at work together, never more; with --jobs 1 one is."""
    names = "abcdef"
    equal(Run(*map(timed, names)).together()[1], 4, "stages together")
    equal(Run(*map(timed, names), arguments=["--jobs", "1"]).together()[1], 1, "stages together with --jobs 1")


@test
def what_is_alone_has_nothing_beside_it():
    """A stage that needs the machine alone begins when nothing runs, and nothing begins until it has ended."""
    run = Run(timed("a", 1.5), timed("b", 1.5), timed("alone", alone=True), timed("c", alone=True))
    sets, _ = run.together()
    check(all(len(those) == 1 for those in sets if those & {"alone", "c"}), f"{sets}")
    check(frozenset("ab") in sets, f"{sets}")


@test
def what_shares_something_runs_one_after_the_other():
    """Two that name the same thing never run together, and what stands behind them in the list does not wait for them."""
    run = Run(timed("a", 1.5, uses=["x"]), timed("b", uses=["x", "y"]), timed("c", 1.5, uses=["z"]), timed("d", uses=["y"]), arguments=["--jobs", "2"])
    sets, most = run.together()
    check(not any({"a", "b"} <= those or {"b", "d"} <= those for those in sets), f"{sets}")
    equal((most, frozenset("ac") in sets), (2, True), f"together in {sets}")


@test
def a_stage_waits_for_what_it_comes_after():
    """`after` and the build of what a stage drives have ended before it begins, wherever they stand in the list."""
    run = Run(timed("late", after=["early"]), timed("suite", drives="quick"), timed("early"), timed("quick"))
    order = [name for what, name in run.events if what == "+"]
    ends = {name: at for at, (what, name) in enumerate(run.events) if what == "-"}
    begins = {name: at for at, (what, name) in enumerate(run.events) if what == "+"}
    check(begins["late"] > ends["early"] and begins["suite"] > ends["quick"], f"{order}")
    # Some stages: their builds run as well, and a stage that was not chosen is not waited for.
    run = Run(timed("late", after=["early"]), timed("suite", drives="quick"), timed("early"), timed("quick"), arguments=["suite", "late"])
    equal(sorted(run.summary()), ["late", "quick", "suite"], "stages")
    equal(list(run.summary()), ["late", "suite", "quick"], "their order")


@test
def a_suite_finds_its_binary_in_tarn_bin():
    """TARN_BIN is the program of the profile that a stage drives, and is left alone for others."""
    show = 'echo "$TARN_BIN."'
    run = Run(stage("quick"), stage("release"), stage("a", show, drives="quick"), stage("b", show, drives="release"), stage("c", show))
    for name, words in (("a", f"{ROOT}/target/quick/tarn."), ("b", f"{ROOT}/target/release/tarn."),
                        ("c", f"{os.environ.get('TARN_BIN', '')}.")):
        check(f"##### {name}: what {name} is for\n{words}\n" in run.output, run.output)


@test
def any_failure_fails_the_run():
    """An exit status, a failed test, no closing line, or one that says nothing ran: the run ends with 1 and counts it."""
    closing = "echo '= {} passed, {} failed, {} skipped'; exit {}"
    for script, whole, want in [
            ("exit 0", True, (1, 0, 0, "")), ("exit 3", True, (0, 1, 0, "exit status 3")),
            (closing.format(2, 0, 1, 0), False, (2, 0, 1, "")), (closing.format(2, 1, 0, 1), False, (2, 1, 0, "")),
            (closing.format(2, 1, 0, 0), False, (2, 1, 0, "")), (closing.format(2, 0, 0, 5), False, (2, 1, 0, "exit status 5")),
            (closing.format(0, 0, 0, 0), False, (0, 1, 0, "exit status 0, no test ran")),
            ("echo nothing", False, (0, 1, 0, "exit status 0, no test ran")), ("kill -9 $$", True, (0, 1, 0, "exit status -9"))]:
        run = Run(stage("good"), stage("tried", script, whole=whole), stage("other"))
        equal(run.summary()["tried"], want, f"the line of {script!r}")
        equal((run.status, run.summary()["good"][0], run.summary()["other"][0]), (1 if want[1] else 0, 1, 1), f"the run with {script!r}")
        check(f"{want[0] + 2} passed, {want[1]} failed" in run.output.splitlines()[-1], run.output)


@test
def a_failed_build_fails_what_drives_it_and_nothing_else():
    """Stages of a binary that could not be built are failed without running; the others run."""
    run = Run(stage("quick", "exit 1"), stage("release"), timed("a", drives="quick"), timed("b", drives="release"), timed("c"))
    equal(run.summary()["a"], (0, 1, 0, "no quick binary"), "what drives it")
    equal(sorted({name for _, name in run.events}), ["b", "c"], "what ran")
    equal(run.status, 1, "exit status")


@test
def needs_that_cannot_be_met_fail_the_stage():
    """A package that there is not: the stage fails without running, and says so."""
    if os.geteuid() != 0 and not os.access("/usr/bin/sudo", os.X_OK):
        harness.skip("packages cannot be installed here")
    with unittest.mock.patch.dict(os.environ, PATH="/nonexistent-first:/bin:/usr/bin"), \
            tempfile.TemporaryDirectory(prefix="tarn-runner.") as folder:
        fake = pathlib.Path(folder) / "apt-get"
        fake.write_text("#!/bin/sh\nexit 100\n")
        fake.chmod(0o755)
        with unittest.mock.patch.dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}"):
            run = Run(timed("a", needs=["no-such-command=no-such-package"]), timed("b", needs=["sh=dash"]))
    equal(run.summary()["a"], (0, 1, 0, "what it needs could not be installed"), "what lacks something")
    equal([name for _, name in run.events], ["b", "b"], "what ran")


@test
def another_apt_is_waited_for():
    """apt-get finds the lists locked, then the archives: tools/need calls it again, and has what it wants in the end."""
    if os.geteuid() != 0:
        harness.skip("sudo would not find the apt-get of this test")
    with tempfile.TemporaryDirectory(prefix="tarn-runner.") as folder:
        fake = pathlib.Path(folder) / "apt-get"
        fake.write_text(f"""#!/bin/sh
echo "$*" >> {folder}/calls
case $(wc -l < {folder}/calls) in
1) echo 'E: Unable to locate package' >&2; exit 100 ;;
2 | 4) echo 'E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)' >&2; exit 100 ;;
3) ;;
*) touch {folder}/wanted ;;
esac
""")
        fake.chmod(0o755)
        done = subprocess.run([ROOT / "tools/need", f"{folder}/wanted=some-package"], capture_output=True, text=True, timeout=30,
                              env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
        calls = [re.sub(r" -o Dpkg.*", "", line) for line in (pathlib.Path(folder) / "calls").read_text().splitlines()]
    equal((done.returncode, done.stderr), (0, ""), "status and errors")
    options = "-qq -o DPkg::Lock::Timeout=300 "
    equal(calls, [options + word for word in ("install", "update", "update", "install", "install")], "calls of apt-get")


def alive_in(group):
    """The processes of a group that have not ended."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
            found += [path.parent.name] if int(its_group) == group and state != "Z" else []
    return found


@test
def what_takes_too_long_is_ended_with_its_children():
    """At its limit a stage fails, and nothing of it goes on, even what does not heed SIGTERM; what passed until then counts."""
    script = "echo '= 3 passed, 0 failed, 0 skipped'; (trap '' TERM; echo $$ > \"$TIMES.pid\"; sleep 60) & sleep 60"
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tarn-runner.") as folder:
        script = script.replace("$TIMES.pid", f"{folder}/pid")
        run = Run(stage("slow", script, whole=False, limit_minutes=0.1), timed("b"))
        group = int((pathlib.Path(folder) / "pid").read_text())
    equal(run.summary()["slow"], (3, 1, 0, "longer than 0.1 minutes"), "its line")
    check(time.monotonic() - began < 30, "it was waited for")

    wait_for(lambda: not alive_in(group), 10, "the children of the stage are gone")
    equal(run.status, 1, "exit status")


@test
def a_run_that_takes_too_long_fails():
    """All stages are good, and take longer together than they may: what runs is ended, what waits does not begin, both are named."""
    run = Run(timed("a", 0.1), stage("b", "sleep 60"), stage("c", alone=True), limit_minutes_all=0.1)
    summary = run.summary()
    equal(summary["a"][:2], (1, 0), "what had ended")
    check(run.status == 1 and summary["b"][1] == 1 and "with the run" in summary["b"][3], f"what ran: {summary}")
    equal(summary["c"], (0, 1, 0, "did not begin within 0.1 minutes"), "what waited")


@test
def what_can_be_spared_does_not_begin_in_a_run_that_is_late():
    """It is named, and counts as skipped; what runs already goes on, and so does what cannot be spared."""
    run = Run(timed("a", spare=True), timed("b", 4), timed("c", spare=True, after=["b"]), timed("d", after=["b"]), late_minutes=0.05)
    summary = run.summary()
    equal([summary[name][:3] for name in "abcd"], [(1, 0, 0), (1, 0, 0), (0, 0, 1), (1, 0, 0)], "passed, failed, skipped")
    check(summary["c"][3].startswith("left out") and run.status == 0, f"{summary}")
    equal(Run(timed("a", spare=True)).summary()["a"][:3], (1, 0, 0), "in time")


@test
def the_output_of_a_stage_stands_together():
    """Two stages that print by turns: each has its lines in one piece below its name, and its result below them."""
    def slow_words(word):
        return "; ".join(f"echo {word}{n}; sleep 0.2" for n in range(4))
    run = Run(stage("a", slow_words("a")), stage("b", slow_words("b")))
    for name in "ab":
        lines = "".join(f"{name}{n}\n" for n in range(4))
        check(f"##### {name}: what {name} is for\n{lines}##### ok    {name} " in run.output, run.output)


@test
def a_run_that_is_ended_leaves_nothing():
    """SIGTERM: the stages under way end with the run."""
    with tempfile.TemporaryDirectory(prefix="tarn-runner.") as folder:
        files = [pathlib.Path(folder) / name for name in ("a", "b")]
        code = f"""
import pathlib, sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import suite
sys.argv = ["run"]
suite.runner.LOGS = pathlib.Path({folder!r})
suite.runner.STAGES = [suite.stage(name, f"echo $$ > {folder}/{{name}}; sleep 60") for name in ("a", "b")]
suite.runner.main()
"""
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
        wait_for(lambda: all(file.exists() and file.read_text().strip() for file in files), 20, "both stages run")
        process.send_signal(signal.SIGTERM)
        equal(process.wait(20), 143, "exit status")
        for file in files:
            wait_for(lambda: not alive_in(int(file.read_text())), 10, f"nothing is left of {file.name}")


def program(folder, failures):
    """A suite as a program: test `a` passes; `b` and the like fail as often as said, then pass."""
    path = pathlib.Path(folder) / "some.py"
    path.write_text(f"""#!{sys.executable}
import pathlib, sys
sys.path.insert(0, {str(ROOT / "tests/lib")!r})
import harness
def add(name, failures):
    count = pathlib.Path({folder!r}, name)
    def run():
        so_far = len(count.read_text()) if count.exists() else 0
        count.write_text("x" * (so_far + 1))
        harness.check(so_far >= failures, f"the reason of {{name}}")
    harness.add(name, run)
add("a", 0)
for name, failures in {failures!r}.items():
    add(name, failures)
harness.main()
""")
    path.chmod(0o755)
    return runner.Stage("some", "what it is for", str(path))


def run_program(folder=None, **failures):
    with tempfile.TemporaryDirectory(prefix="tarn-runner.") as own:
        return Run(program(own, failures), stage("other"), logs=folder)


@test
def a_test_that_fails_once_is_named_as_unstable():
    """It passes twice when it is tried again: the run is good, and its name and what it said stand at the end."""
    run = run_program(b=1)
    equal((run.status, run.summary()["some"]), (0, (2, 0, 0, "")), "status and line")
    end = run.output.rpartition(" min\n\n")[2]
    check("unstable: failed, then passed twice, in some:\nFAILED   b (" in end and "the reason of b" in end, run.output)
    check(run.output.splitlines()[-1].endswith("3 passed, 0 failed; tried again: b of some"), run.output)
    check(" some" not in run_program(b=0).output.splitlines()[-1], "a run without failures names something")


@test
def no_test_is_tried_again_in_two_runs():
    """What was tried again in the run before fails at once, and goes on to fail until it has passed by itself; others are tried."""
    with tempfile.TemporaryDirectory(prefix="tarn-runner.") as folder:
        for failures, status, tried in (({"b": 1}, 0, ["b"]), ({"b": 1}, 1, []), ({"b": 1, "c": 1}, 1, []), ({"c": 1}, 0, ["c"]),
                                        ({"b": 1}, 0, ["b"]), ({"b": 0}, 0, []), ({"b": 1}, 0, ["b"])):
            run = run_program(folder, **failures)
            named = re.findall(r"tried again: (\S+) of some", run.output.splitlines()[-1])
            equal((run.status, named), (status, tried), f"with {failures}")
        equal(Run(stage("other"), stage("third"), logs=folder).status, 0, "a run of other stages")
        equal(run_program(folder, b=1).status, 1, "after a run of other stages")


@test
def a_test_that_fails_again_has_failed():
    """Also if it passes the last time, or when another one passes; the end names it with what it said."""
    for failures in ({"b": 2}, {"b": 3}, {"b": 1, "c": 2}):
        run = run_program(**failures)
        equal((run.status, run.summary()["some"][1]), (1, 1), f"status and failures with {failures}")
        check("\nfailed, in some:\nFAILED   " in run.output, run.output)


@test
def a_page_of_the_console_that_fails_is_named():
    """Its tests are sentences, and say why in lines of their own; they are not tried again."""
    said = "echo 'ok    one'; echo 'FAIL  a page fits'; echo '      it is too wide'; echo '= 1 passed, 1 failed, 0 skipped'; exit 1"
    run = Run(stage("console", said, whole=False), stage("other"))
    end = run.output.rpartition(" min\n\n")[2]
    equal(end, "failed, in console:\nFAIL  a page fits\n      it is too wide\n\n2 passed, 1 failed\n", "what stands at the end")


@test
def many_failures_are_no_accident():
    """More than a few are not tried again; and neither is a run where something else failed, too."""
    many = {f"t{n}": 1 for n in range(runner.UNSTABLE_MOST + 1)}
    run = run_program(**many)
    equal((run.status, run.summary()["some"][1]), (1, len(many)), "many failures")
    with tempfile.TemporaryDirectory(prefix="tarn-runner.") as folder:
        run = Run(program(folder, {"b": 1}), stage("other", "exit 1"))
        equal((run.status, run.summary()["some"][1]), (1, 1), "another stage failed")


@test
def a_stage_that_was_cut_off_has_failed():
    """One test had failed when a limit, or the end of the suite without its closing line, cut the others off: no test is tried."""
    for rest, note in (("time.sleep(60)", "longer than 0.1 minutes"), ("os._exit(1)", "exit status 1, no test ran")):
        with tempfile.TemporaryDirectory(prefix="tarn-runner.") as folder:
            some = program(folder, {"b": 1})
            path = pathlib.Path(some.command[0])
            path.write_text(path.read_text().replace("harness.main()", f"import os, time\nharness.add('z', lambda: {rest})\nharness.main()"))
            some.limit_minutes = 0.1
            run = Run(some, stage("other"))
        equal((run.status, run.summary()["some"]), (1, (0, 2, 0, note)), rest)
        check("failed, in some:\nFAILED   b (" in run.output and "tried again" not in run.output, run.output)
        check(f"failed, in some: {note}; its last lines:\n         " in run.output, run.output)


# One test program of the fake cargo, which lists its tests, and then runs them as SAID says.
CARGO = """#!/bin/sh
case "$*" in
*--list*) printf '     Running unittests src/lib.rs (x/a-1)\\na::one: test\\na::two: test\\n\\n2 tests, 0 benchmarks\\n'
          printf '     Running tests/b.rs (x/b-2)\\nthree: test\\nfour: test\\nfive: test\\n\\n3 tests, 0 benchmarks\\n'; exit $LISTED ;;
esac
printf "$SAID"
exit $ENDED
"""
FIRST = "     Running unittests src/lib.rs (x/a-1)\n\nrunning 2 tests\ntest a::two ... ok\ntest a::one ... ok\n\n" \
    "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured\n"
SECOND = "     Running tests/b.rs (x/b-2)\n\nrunning 3 tests\n{}\ntest four ... ignored, why\n{}" \
    "test result: {}. {} passed; {} failed; 1 ignored; 0 measured\n"


def run_cargo(said, ended=0, listed=0):
    with tempfile.TemporaryDirectory(prefix="tarn-runner.") as folder:
        fake = pathlib.Path(folder) / "cargo"
        fake.write_text(CARGO)
        fake.chmod(0o755)
        variables = {"PATH": f"{folder}:{os.environ['PATH']}", "SAID": said.replace("\n", "\\n"), "ENDED": str(ended), "LISTED": str(listed)}
        with unittest.mock.patch.dict(os.environ, variables):
            return Run(runner.cargo("unit", "what it is for", "test", "--workspace"), stage("other"))


@test
def tests_that_were_built_and_did_not_report_have_failed():
    """Test programs that never ran, or ended without all of their tests, whatever cargo's exit status; and what a test starts,
    which prints lines of the same kind, counts as nothing."""
    whole = FIRST + SECOND.format("test three ... ok", "test five - should panic ... ok\n", "ok", 2, 0)
    child = "running 1 test\ntest five ... ok\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured\n"
    one = "exit status {}, 1 test programs did not run to their end"
    b = "silent, in unit: tests/b.rs (x/b-2) "
    for said, ended, want, line in [
            (whole, 0, (4, 0, 1, ""), ""), (whole, 101, (4, 1, 1, "exit status 101"), ""),
            (whole.replace("test four", child + "chatter test four"), 0, (4, 0, 1, ""), ""),
            (FIRST + SECOND.format("test three ... FAILED", "test five ... ok\n", "FAILED", 1, 1), 101, (3, 1, 1, ""), ""),
            (FIRST, 0, (2, 1, 0, one.format(0)), b + "never ran: 3 tests without a result five four three"),
            (FIRST + SECOND.format("test three ... ok", "", "ok", 1, 0), 0, (3, 1, 1, one.format(0)),
             b + "did not end: 1 tests without a result five"),
            (FIRST + SECOND.format("test three ... FAILED", "", "FAILED", 0, 1), 101, (2, 2, 1, one.format(101)),
             b + "did not end: 1 tests without a result five"),
            (whole.rpartition("test result")[0], 101, (4, 1, 1, one.format(101)), b + "did not end: 0 tests without a result"),
            (whole.rpartition("test result")[0] + child, 101, (4, 1, 1, one.format(101)), b + "did not end: 0 tests without a result"),
            ("", 101, (0, 2, 0, "exit status 101, 2 test programs did not run to their end"), b + "never ran")]:
        run = run_cargo(said, ended)
        equal((run.summary()["unit"], run.status), (want, 1 if want[1] else 0), f"{said!r}")
        check(line in run.output and ("silent" in run.output) == bool(line), run.output)
    run = run_cargo(whole, listed=101)
    equal(run.summary()["unit"], (0, 1, 0, "exit status 101, no test ran"), "a build that failed")
    check("five: test" in run.output, "what it said is not shown")


@test
def a_test_program_that_hangs_is_ended():
    """Cargo starts each test program of `unit` with a limit, and nothing that takes it out of the group of its stage."""
    unit = next(one for one in runner.STAGES if one.name == "unit")
    check(runner.LIMITED in unit.command and runner.LIMITED in unit.listing, f"{unit.command}")
    limited = tomllib.loads(runner.LIMITED)["target"]["cfg(all())"]["runner"]
    check(limited[-1] == str(runner.PROGRAM_LIMIT_S), f"{limited}")
    done = subprocess.run([*limited[:-1], "3", "sh", "-c", "ps -o pgid= $$; exec sleep 60"], capture_output=True, text=True, timeout=30)
    equal((done.returncode, int(done.stdout)), (124, os.getpgrp()), "status and group")


@test
def no_comment_has_an_example_that_is_a_test():
    """Stage `unit` does without rustdoc's tests, of which there are none: what stands between fences is marked as text."""
    found = []
    for path in sorted([*ROOT.glob("crates/**/*.rs"), *ROOT.glob("fuzz/**/*.rs")]):
        fences = re.findall(r"^\s*//[/!]\s*```(\S*)", path.read_text(), re.M)
        found += [f"{path.relative_to(ROOT)}: {word or 'no word'}" for word in fences[::2] if word != "text"]
    equal(found, [], "code in comments that rustdoc would run; mark it ```text, or have stage unit run doc tests")


@test
def every_suite_is_a_stage():
    """What stands below tests/ with a suite is run by a stage, which drives what is built; names are there once."""
    names = [one.name for one in runner.STAGES]
    equal(len(names), len(set(names)), "names")
    run = {word for one in runner.STAGES for word in one.command}
    suites = {str(path.relative_to(ROOT)) for pattern in ("*/suite.py", "*/suite") for path in (ROOT / "tests").glob(pattern)}
    equal(sorted(suites - run), [], "suites without a stage")
    for one in runner.STAGES:
        check(one.after <= set(names), f"{one.name} comes after {one.after}")


if __name__ == "__main__":
    harness.main()
