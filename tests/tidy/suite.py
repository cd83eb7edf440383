#!/usr/bin/env python3
"""Sources keep to their limits: size of files and functions, width, no circle of imports, plain words.

    tests/tidy/suite.py           every rule
    tests/tidy/suite.py --lower   also takes ceilings.toml down to what is there now

What was there before a rule is in ceilings.toml, each with a ceiling that may only fall.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

import rust

ROOT = pathlib.Path(__file__).resolve().parents[2]
CEILINGS = pathlib.Path(__file__).with_name("ceilings.toml")
FILE_LINES_MAX = 900
FUNCTION_LINES_MAX = 70
WIDTH_MAX = 120
# Crates in which no file may need, by way of others, what needs it.
WITHOUT_CIRCLES = [
    "api", "budget", "client", "confine", "durable", "engine", "front", "hyperscsi", "iscsi", "memory", "nbd", "pcap", "plane", "rbd", "reactor", "scsi",
    "store",
]
# Crates whose code, without tests and what serves them, has an assertion for each of its functions, on average.
WITH_ASSERTIONS = ["engine"]
# Words that have made readers stop, and what to write instead. Counted in documents, comments and texts of the program.
DIALECT = {
    "tell": (r"\b(tells?|told|telling)\b", "log, report, notify, answer, count, show"),
    "whoever": (r"\b(whoever|for who(m|ever)?)\b", "the noun: administrator, initiator, caller; in help texts the purpose"),
    "hear": (r"\b(hears?|heard)\b", "receive, is notified"),
    "bury": (r"\b(bury|buries|buried|burying)\b", "remove, close"),
    "forget": (r"\b(forgets?|forgot|forgotten|forgetting)\b", "remove, drop"),
    "retire": (r"\b(retires?|retired|retiring)\b", "remove, drain"),
    "patiently": (r"\bpatiently\b", "with retries"),
    "says no": (r"\bsa(y|ys|id) no\b", "refuses; in a heading: errors"),
    "good news": (r"\bgood news\b", "success"),
    "all there is": (r"\ball there is\b", "only, alone"),
    "who shows it": (r"\bwho shows it\b", "exported by"),
    "give a disk": (r"\bgive a disk\b", "add a disk"),
    "desk": (r"\bdesks?\b", "the noun of what it does: front, session of the API"),
    "doors": (r"\bdoors?\b", "listeners, sockets"),
    "held against": (r"\bheld against\b", "compared with"),
    "anew": (r"\banew\b", "again"),
    "of late": (r"\bof late\b", "in the last seconds, recently"),
    "proved nothing": (r"\b(proves?|proved|proven) nothing\b", "has not authenticated"),
    "asker": (r"\baskers?\b", "caller, client, initiator"),
    "of who": (r"\b(of|by|to|from|at|with|than|under|as) who\b", "the noun: the caller, users who"),
    "let go of": (r"\blets? go of\b", "closes, removes"),
    "stay behind": (r"\bstay(s|ed)? behind\b", "is left out"),
    "in vain": (r"\bin vain\b", "without an answer, without success"),
    "all told": (r"\ball told\b", "together"),
    "who comes": (r"\bwho comes\b", "the noun: a peer that connects, a request that arrives"),
    "whom they cost": (r"\bwhom they cost\b", "whom they affect"),
}


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
    for crate in WITHOUT_CIRCLES:
        circles = rust.Modules(ROOT / "crates" / crate / "src").circles()
        if circles:
            found["circles"][crate] = (sum(map(len, circles)), "; ".join(" ".join(circle) for circle in circles))
    for crate in WITH_ASSERTIONS:
        src = ROOT / "crates" / crate / "src"
        parts = [source.path.relative_to(src).parts if src in source.path.parents else None for source in sources]
        functions, assertions = density([source for source, of in zip(sources, parts) if of and not {"testing", "tests", "tests.rs"} & set(of)])
        if assertions < functions:
            found["assertions"][crate] = (functions - assertions, f"{assertions} assertions for {functions} functions")
    prose = [(source.path, source.prose) for source in sources]
    prose += [(path, path.read_text(encoding="utf-8")) for path in tracked("*.md") if path.name != "CHANGELOG.md"]
    for word, (pattern, _) in DIALECT.items():
        places = collections.Counter()
        for path, text in prose:
            if count := len(re.findall(pattern, text, re.IGNORECASE)):
                places[str(path.relative_to(ROOT))] = count
        if places.total():
            most = ", ".join(f"{path} ({count})" for path, count in places.most_common(5))
            found["words"][word] = (places.total(), most)
    return found


def density(sources):
    """How many functions with a body, and how many assertions, the code of these files has without its tests."""
    code = [rust.Source(source.path, source.without_tests()) for source in sources]
    functions = sum(len(list(source.functions())) for source in code)
    return functions, sum(len(re.findall(r"\b(?:debug_)?assert(?:_eq|_ne)?!", source.code)) for source in code)


RULES = {
    "files": f"a file has at most {FILE_LINES_MAX} lines",
    "functions": f"a function has at most {FUNCTION_LINES_MAX} lines",
    "width": f"a line has at most {WIDTH_MAX} characters",
    "circles": "no circle of imports among the files of " + ", ".join(WITHOUT_CIRCLES),
    "assertions": "at least as many assertions as functions in the code of " + ", ".join(WITH_ASSERTIONS),
    "words": "no word that makes readers stop is added",
}


def check(rule, found, ceilings):
    """The lines to print of one rule, and whether it holds."""
    broken = {what: (much, where) for what, (much, where) in found.items() if much > ceilings.get(what, 0)}
    for what, (much, where) in sorted(broken.items()):
        instead = f"; write: {DIALECT[what][1]}" if rule == "words" else ""
        yield f"      {what}: {much}, {f'the ceiling is {ceilings[what]}' if what in ceilings else 'a new one'}{instead}; {where}"
    lower = sum(found.get(what, (0,))[0] < ceiling for what, ceiling in ceilings.items())
    note = f" ({lower} ceilings can be lowered: tests/tidy/suite.py --lower)" if lower else ""
    yield f"{'FAIL ' if broken else 'ok   '} {RULES[rule]}, or what ceilings.toml says{note}"


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
    # One function with a body and one assertion; neither the tests' count, nor those in a comment and a string.
    "g.rs": """fn one() {\n    debug_assert_eq!(1, 1, "assert!(fn)"); // assert!\n}\ntrait T {\n    fn two();\n}\n#[cfg(test)]\nmod tests {\n    fn three() {\n        assert!(true);\n    }\n}\n""",
}


def planted_faults_are_found():
    with tempfile.TemporaryDirectory() as scratch:
        src = pathlib.Path(scratch)
        for name, text in PLANTED.items():
            (src / name).write_text(text, encoding="utf-8")
        circles = rust.Modules(src).circles()
        functions = list(rust.Source(src / "d.rs").functions())
        dense = density([rust.Source(src / "g.rs")])
        tables = rust.Source(src / "d.rs", "x\n#[rustfmt::skip]\nconst T: &[u8] = &[\n    1,\n];\ny\n").tables()
    are_circles = circles == [["crate::a", "crate::b"], ["crate::e", "crate::f"]]
    return are_circles and functions == [("long", 3, 3)] and tables == {2, 3, 4, 5} and dense == (1, 1)


def lowered(found, ceilings):
    """ceilings.toml anew: its comment, and no ceiling above what is there or was allowed."""
    text = [line for line in CEILINGS.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    for rule in RULES:
        text += ["", f"[{rule}]"]
        for what, ceiling in sorted(ceilings.get(rule, {}).items()):
            much = found[rule].get(what, (0,))[0]
            if much:
                name = what if re.fullmatch(r"[\w-]+", what) else f'"{what}"'
                text.append(f"{name} = {min(much, ceiling)}")
    CEILINGS.write_text("\n".join(text) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lower", action="store_true", help="lower the ceilings to what is there")
    arguments = parser.parse_args()
    ceilings = tomllib.loads(CEILINGS.read_text(encoding="utf-8"))
    found = found_now()
    failed = 0
    for rule in RULES:
        lines = list(check(rule, found[rule], ceilings.get(rule, {})))
        print("\n".join(lines))
        failed += lines[-1].startswith("FAIL")
    if arguments.lower:
        lowered(found, ceilings)
    sees = planted_faults_are_found()
    print("ok    planted faults are found" if sees else "FAIL  planted faults are not found")
    failed += not sees
    print(f"= {len(RULES) + 1 - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
