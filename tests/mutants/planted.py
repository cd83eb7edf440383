"""What tests/mutants/run and tests/mutants/draw have in common: a copy of the tree with bugs in it, each behind a switch; its one
build; and who finds a bug.

A find is repeated: the very test that failed must fail with the bug and pass without it, so that a flaky test finds nothing.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/mutants"
PLACE = ROOT / "target/mutants"
TREE = PLACE / "tree"
PROFILE = os.environ.get("PROFILE", "quick")
SEEDS = 1000
# How long one program may take: unit tests at least, and as a multiple of what they take without a bug; and the others.
UNITS_LIMIT_S = 60
UNITS_TIMES = 5
LIMIT_S = 600
# So many failed tests of one program are repeated until one is a find.
REPEATED_MOST = 5
NO_END, EARLY_END = "no end", "ends early"
# Is what nothing switches on: every branch must be off then.
NONE = ""

HELPER = '''
/// Whether this planted bug is switched on.
#[allow(dead_code, clippy::all)]
pub(crate) fn mutant(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("TARN_MUTANT").unwrap_or_default()) == name
}
'''
# Functions, by file and name, that call one which asks for a mutant, as the compiler named them.
NOT_CONSTANT = set()
# The head of a function on a line of its own.
HEADS = re.compile(r"^ *(?:pub(?:\([a-z ]+\))? )?(?:const )?fn (\w+)", re.M)


def fail(text):
    print(text, file=sys.stderr)
    sys.exit(2)


def sources(crate):
    """The sources of a crate by their path in the repository."""
    return {str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / "crates" / crate / "src").rglob("*.rs"))}


def with_switches(crate, texts):
    """Makes the sources of a crate that ask for mutants compile."""
    not_constant(texts)
    for root in ("lib.rs", "main.rs"):
        if f"crates/{crate}/src/{root}" in texts:
            texts[f"crates/{crate}/src/{root}"] += HELPER


def not_constant(texts):
    """The functions that ask which mutant is switched on cannot be constant, nor can those that the compiler named. Nothing moves: the
    places of errors count bytes."""
    for path, text in texts.items():
        bounds = [match.start() for match in HEADS.finditer(text)] + [len(text)]
        pieces = [text[:bounds[0]]]
        for begin, end in zip(bounds, bounds[1:]):
            head, piece = HEADS.match(text, begin), text[begin:end]
            if 'crate::mutant("' in piece or (path, head.group(1)) in NOT_CONSTANT:
                piece = head.group().replace("const fn", "      fn", 1) + piece[len(head.group()):]
            pieces.append(piece)
        texts[path] = "".join(pieces)


def made_not_constant(errors):
    """Whether errors are about constant functions that call one which is none: these are none any more, in the copy and later."""
    named = set()
    for error in errors:
        if (error["message"].get("code") or {}).get("code") != "E0015":
            continue
        for span in [span for span in error["message"]["spans"] if span["is_primary"]]:
            text = (TREE / span["file_name"]).read_bytes()[:span["byte_start"]].decode()
            heads = list(HEADS.finditer(text))
            if heads and "const fn" in heads[-1].group():
                named.add((span["file_name"], heads[-1].group(1)))
    NOT_CONSTANT.update(named)
    texts = {path: (TREE / path).read_text() for path, _ in named}
    not_constant(texts)
    for path, text in texts.items():
        (TREE / path).write_text(text)
    return bool(named)


def copy_tree(files):
    """The repository as it is now, with the mutants in it. What does not change keeps its time, so that little is built anew."""
    TREE.mkdir(parents=True, exist_ok=True)
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True)
    wanted = {name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()}
    for old in [path for path in TREE.rglob("*") if path.is_file()]:
        if str(old.relative_to(TREE)) not in wanted:
            old.unlink()
    for name in wanted:
        source, copy = ROOT / name, TREE / name
        content = files[name].encode() if name in files else source.read_bytes()
        if not copy.exists() or copy.read_bytes() != content:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
            shutil.copymode(source, copy)


def build(crates, wanted):
    """Compiles the copy: the tests of crates and the wanted programs. Gives the test programs of each crate, that of its library
    first, the wanted programs by name, and the errors as the compiler reports them."""
    while True:
        tests, programs, errors = compiled(crates, wanted)
        if not made_not_constant(errors):
            return tests, programs, errors


def compiled(crates, wanted):
    """As build, once."""
    packages = [word for crate in sorted({*crates, *wanted}) for word in ("--package", crate)]
    place = ["--profile", PROFILE, "--target-dir", str(PLACE / "build"), "--message-format=json"]
    done = subprocess.run(["cargo", "test", "--no-run", *packages, *place], cwd=TREE, text=True, stdout=subprocess.PIPE)
    tests, programs, errors = {}, {}, []
    for line in done.stdout.splitlines():
        made = json.loads(line)
        if made.get("reason") == "compiler-message" and made["message"]["level"].startswith("error"):
            errors.append(made)
        elif made.get("executable") and made["profile"]["test"]:
            crate = pathlib.Path(made["manifest_path"]).parent.name
            tests.setdefault(crate, []).insert(0 if "lib" in made["target"]["kind"] else len(tests[crate]), made["executable"])
        elif made.get("executable") and made["target"]["name"] in wanted:
            programs[made["target"]["name"]] = made["executable"]
    if done.returncode != 0 and not errors:
        fail("cargo fails without an error of the compiler")
    return tests, programs, errors


def run(mutant, directory, *command, limit_s=LIMIT_S, **variables):
    """What a program prints with a mutant switched on, and whether it ended well."""
    environment = os.environ | {"TARN_MUTANT": mutant, "RUST_BACKTRACE": "0"} | variables
    try:
        done = subprocess.run(command, cwd=directory, env=environment, text=True, timeout=limit_s, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        return NO_END, False
    return done.stdout, done.returncode == 0


class Units:
    """The unit tests of some crates, which pass without any bug."""

    def __init__(self, tests, crates):
        self.tests = {crate: tests[crate] for crate in crates}
        self.limits = {program: UNITS_LIMIT_S for programs in self.tests.values() for program in programs}
        for crate, programs in self.tests.items():
            for program in programs:
                self._measure(crate, program)

    def _measure(self, crate, program):
        begin = time.monotonic()
        output, is_good = self._run(NONE, crate, program, limit_s=LIMIT_S)
        self.limits[program] = max(UNITS_LIMIT_S, UNITS_TIMES * (time.monotonic() - begin))
        if is_good:
            return
        failed = failed_units(output)
        for name in failed:
            if not self._run(NONE, crate, program, "--exact", name)[1]:
                fail(f"{crate}: {name} fails without any mutant")
        if not failed:
            fail(f"{crate}: {NO_END if output == NO_END else EARLY_END} without any mutant")
        print(f"{crate}: flaky without any mutant: {' '.join(failed)}", file=sys.stderr)

    def _run(self, mutant, crate, program, *arguments, limit_s=None):
        limit_s = limit_s or self.limits[program]
        return run(mutant, TREE / "crates" / crate, program, "--test-threads", "2", *arguments, limit_s=limit_s)

    def find(self, mutant, crates):
        """What fails of the first program in which something fails with the mutant, and passes without it. None: nothing."""
        for crate in crates:
            for program in self.tests[crate]:
                output, is_good = self._run(mutant, crate, program)
                if not is_good and (found := self._repeated(mutant, crate, program, output)):
                    return found
        return None

    def _repeated(self, mutant, crate, program, output):
        failed = failed_units(output)
        for name in failed[:REPEATED_MOST]:
            only = ("--exact", name)
            if not self._run(mutant, crate, program, *only)[1] and self._run(NONE, crate, program, *only)[1]:
                return name + (f" and {len(failed) - 1} more" if len(failed) > 1 else "")
        if failed:
            return None
        # A program that hangs is not run with the mutant again: the limit is long.
        is_again = output == NO_END or not self._run(mutant, crate, program)[1]
        if is_again and self._run(NONE, crate, program)[1]:
            return f"{crate}: {NO_END if output == NO_END else EARLY_END}"
        return None


def failed_units(output):
    """The tests that a test program of cargo lists as failed."""
    return [name.removesuffix(".") for name in re.findall(r"^    (\S+)$", output.rpartition("failures:")[2], re.M)]


def by_sim(mutant, sim, seeds=SEEDS):
    """The rule that the first seed breaks, and that seed, which holds without the mutant. None: all seeds hold."""
    output, is_good = run(mutant, TREE, sim, "--first", "--seeds", str(seeds))
    if is_good:
        return None
    broken = re.search(r"^seed (\d+): ([\w-]+):", output, re.M)
    only = ("--from", broken[1], "--seeds", "1") if broken else ("--seeds", str(seeds))
    is_again = output == NO_END or not run(mutant, TREE, sim, "--first", *only)[1]
    if not is_again or not run(NONE, TREE, sim, "--first", *only)[1]:
        # Or the machine is too slow.
        print(f"{mutant}: `sim` fails, but not always with it, or without it too", file=sys.stderr)
        return None
    return f"{broken[2]} (seed {broken[1]})" if broken else f"sim: {NO_END if output == NO_END else EARLY_END}"


def by_suite(mutant, script, pattern, tarn):
    """A test of a suite that fails with the mutant and passes without it. None: there is none."""
    output, is_good = run(mutant, TREE, script, pattern, TARN_BIN=tarn)
    for name in [] if is_good else re.findall(r"^FAILED +(\S+)", output, re.M)[:REPEATED_MOST] or [pattern]:
        if not run(mutant, TREE, script, name, TARN_BIN=tarn)[1] and run(NONE, TREE, script, name, TARN_BIN=tarn)[1]:
            return f"{script.removeprefix('tests/').removesuffix('/suite.py')}: {name}"
    return None
