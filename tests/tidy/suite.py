#!/usr/bin/env python3
"""Sources keep to their limits: size of files and functions, width, no circle of imports."""
import collections
import pathlib
import subprocess
import sys
import tempfile

import rust

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILE_LINES_MAX = 900
FUNCTION_LINES_MAX = 70
WIDTH_MAX = 120


def tracked(*patterns):
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", *patterns], cwd=ROOT,
                            check=True, stdout=subprocess.PIPE, text=True)
    return [ROOT / name for name in sorted(filter(None, listed.stdout.split("\0"))) if (ROOT / name).exists()]


def crate_of(path):
    parts = path.relative_to(ROOT).parts
    return parts[1] if parts[0] == "crates" else parts[0]


def found_now():
    """What breaks each rule: {rule: {what: (how much, where)}}."""
    found = collections.defaultdict(dict)
    sources = [rust.Source(path) for path in tracked("*.rs")]
    for source in sources:
        name, crate = source.path.relative_to(ROOT), crate_of(source.path)
        lines = source.text.splitlines()
        if len(lines) > FILE_LINES_MAX:
            found["files"][str(name)] = (len(lines), str(name))
        for function, first, count in source.functions():
            if count > FUNCTION_LINES_MAX:
                before = found["functions"].get(f"{crate} {function}", (0, ""))
                found["functions"][f"{crate} {function}"] = max(before, (count, f"{name}:{first}"))
        # One row of a table is one line, however wide.
        tables = source.tables()
        wide = [f"{name}:{number}" for number, line in enumerate(lines, 1) if len(line) > WIDTH_MAX and number not in tables]
        if wide:
            count, places = found["width"].get(crate, (0, ""))
            found["width"][crate] = (count + len(wide), " ".join(filter(None, [places, *wide])))
    for src in sorted({ROOT / "fuzz/src", *(ROOT / "crates").glob("*/src")}):
        crate, circles = src.parent.name, rust.Modules(src).circles()
        if circles:
            found["circles"][crate] = (sum(map(len, circles)), "; ".join(" ".join(circle) for circle in circles))
    return found


RULES = {
    "files": f"a file has at most {FILE_LINES_MAX} lines",
    "functions": f"a function has at most {FUNCTION_LINES_MAX} lines",
    "width": f"a line has at most {WIDTH_MAX} characters",
    "circles": "no file of a crate needs, by way of others, what needs it",
}


def check(rule, found):
    """The lines to print of one rule, the last one with its outcome."""
    for what, (much, where) in sorted(found.items()):
        yield f"      {what}: {much}; {where}"
    yield f"{'FAIL ' if found else 'ok   '} {RULES[rule]}"


PLANTED = {
    "lib.rs": """mod a;\nmod b;\nmod c;\nmod e;\nmod f;\npub use a::A;\npub use e::*;\n""",
    # The crate hands A on, so b imports from a. A circle, of which the comment and the string are no part.
    "a.rs": """//! use crate::c::C;\nuse crate::b::B;\npub struct A(B, &'static str);\n""",
    "b.rs": """use crate::A;\npub struct B(Vec<A>);\nconst C: &str = "use crate::c::C;";\n""",
    # The same with a star.
    "e.rs": """use crate::f::F;\npub struct E(F);\n""",
    "f.rs": """use crate::E;\npub struct F(Vec<E>);\n""",
    # What only the tests import is no circle.
    "c.rs": """pub struct C;\n#[cfg(test)]\nmod tests {\n    use crate::d::D;\n}\n""",
    "d.rs": """use crate::c::C;\npub struct D(C);\nfn long<const N: usize>(_: [u8; 2]) -> usize {\n    '{'.len_utf8()\n}\n""",
}


def planted_faults_are_found():
    with tempfile.TemporaryDirectory() as scratch:
        src = pathlib.Path(scratch)
        for name, text in PLANTED.items():
            (src / name).write_text(text, encoding="utf-8")
        circles = rust.Modules(src).circles()
        functions = list(rust.Source(src / "d.rs").functions())
        tables = rust.Source(src / "d.rs", "x\n#[rustfmt::skip]\nconst T: &[u8] = &[\n    1,\n];\ny\n").tables()
    are_circles = circles == [["crate::a", "crate::b"], ["crate::e", "crate::f"]]
    return are_circles and functions == [("long", 3, 3)] and tables == {2, 3, 4, 5}


def main():
    found = found_now()
    failed = 0
    for rule in RULES:
        lines = list(check(rule, found[rule]))
        print("\n".join(lines))
        failed += lines[-1].startswith("FAIL")
    sees = planted_faults_are_found()
    print("ok    planted faults are found" if sees else "FAIL  planted faults are not found")
    failed += not sees
    print(f"= {len(RULES) + 1 - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
