#!/usr/bin/env python3
"""tests/mutants itself: what counts as a find, what is drawn, where its switches stand, which mutant an error is blamed on.

    suite.py [--list] [PATTERN...]
"""
import importlib.machinery
import importlib.util
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
import planted
from harness import check, equal, test

loader = importlib.machinery.SourceFileLoader("draw", str(planted.HERE / "draw"))
draw = importlib.util.module_from_spec(importlib.util.spec_from_loader("draw", loader))
loader.exec_module(draw)

# A program of unit tests: what it does depends on the mutant and on whether one test runs alone.
PROGRAM = """#!/bin/sh
fail() { printf '\\nfailures:\\n    %s\\n' "$1"; exit 101; }
case "$TARN_MUTANT,$4" in
    real,) fail a::flaky ;;
    real,a::flaky) fail a::flaky ;;
    in-company,) fail a::flaky ;;
    often,a::often|often,|,a::often) fail a::often ;;
    hangs,) exec sleep 60 ;;
    aborts,) kill -ABRT $$ ;;
esac
"""
SIM = """#!/bin/sh
case "$TARN_MUTANT,$*" in
    real,*--seeds\\ 50) echo 'seed 7: order: wrong'; exit 1 ;;
    real,*--from\\ 7*) echo 'seed 7: order: wrong'; exit 1 ;;
    flaky,*--seeds\\ 50) echo 'seed 7: order: wrong'; exit 1 ;;
    broken,*|,*--from\\ 8*) echo 'seed 8: order: wrong'; exit 1 ;;
esac
"""


def programs(directory):
    """Both, in a tree of their own."""
    planted.TREE = pathlib.Path(directory)
    (planted.TREE / "crates/paint").mkdir(parents=True)
    for name, text in (("units", PROGRAM), ("sim", SIM)):
        (planted.TREE / name).write_text(text)
        (planted.TREE / name).chmod(0o755)
    return str(planted.TREE / "units"), str(planted.TREE / "sim")


@test
def a_find_fails_with_the_bug_and_passes_without_it():
    """A test that fails only in company, or without the bug too, finds nothing; one that fails alone, hangs or aborts does."""
    planted.UNITS_LIMIT_S = 2
    with tempfile.TemporaryDirectory(prefix="mutants-test.") as directory:
        program, _ = programs(directory)
        units = planted.Units({"paint": [program]}, ["paint"])
        expected = {"real": "a::flaky", "in-company": None, "often": None, "hangs": "paint: no end", "aborts": None, "none": None}
        equal({mutant: units.find(mutant, ["paint"]) for mutant in expected}, expected | {"aborts": "paint: ends early"}, "finds")


@test
def a_seed_is_repeated_alone():
    """A seed that fails with the bug alone and holds without it is a find, no other."""
    with tempfile.TemporaryDirectory(prefix="mutants-test.") as directory:
        _, sim = programs(directory)
        found = {mutant: planted.by_sim(mutant, sim, 50) for mutant in ("real", "flaky", "broken", "none")}
        equal(found, {"real": "order (seed 7)", "flaky": None, "broken": None, "none": None}, "finds")


SOURCE = "pub const fn half() -> u8 {\n    é(1 < 2)\n}\nfn whole() {\n    g();\n}\nconst A: u8 = half();\n"
FILE = "crates/paint/src/lib.rs"


def site(kind, old, new):
    begin = SOURCE.encode().index(old.encode())
    put = f'(if crate::mutant("@") {{ ({new}) }} else {{ ({old}) }})'
    edit = {"begin": begin, "end": begin + len(old.encode()), "new": new, "put": put}
    return {"crate": "paint", "file": FILE, "function": "half", "kind": kind, "operator": kind, "text": old, "edits": [edit]}


SITES = [site("comparison", "1 < 2", "1 <= 2"), site("boundary", "1", "0"), site("boundary", "2", "3"), site("statement", "g();", "")]


def error(what, begin=0, code=None, path=FILE):
    spans = [{"file_name": path, "byte_start": begin, "byte_end": begin + 1, "is_primary": True, "expansion": None}] if path else []
    return {"manifest_path": "/tree/crates/paint/Cargo.toml",
            "message": {"message": what, "spans": spans, "children": [], "code": {"code": code} if code else None}}


@test
def drawn_mutants_do_not_overlap_and_a_seed_draws_the_same():
    """Of three sites of which one holds the others either that one is drawn or the others; all kinds come; one seed, one order."""
    def of(seed):
        drawn = draw.Drawn(seed, SITES, {FILE: SOURCE})
        return [drawn.next() for _ in range(2)]

    orders = [[mutant.text for mutant in of(seed)] for seed in range(20)]
    check(all("1 < 2" not in order or set(order) == {"1 < 2", "g();"} for order in orders), f"overlap: {orders}")
    check(any("1 < 2" in order for order in orders) and any("2" in order for order in orders), f"not all are drawn: {orders}")
    equal(orders, [[mutant.text for mutant in of(seed)] for seed in range(20)], "the same seeds again")
    by_text = {mutant.text: mutant for seed in range(20) for mutant in of(seed)}
    equal((by_text["g();"].line, by_text["2"].line), (5, 2), "lines")
    equal((by_text["g();"].is_constant, by_text["2"].is_constant), (False, True), "in a constant function")
    equal(by_text["1 < 2"].difference(), ["-    é(1 < 2)", "+    é(1 <= 2)"], "difference")


@test
def switches_stand_where_the_edits_are_and_errors_find_them():
    """The bytes between are as they were; an error is blamed on the mutant that it is in, or on what is nearest."""
    mutants = [draw.Mutant(f"d{number}", SITES[number], {FILE: SOURCE}) for number in (0, 3)]
    files, places = draw.plant(mutants, {FILE: SOURCE})
    text = files[FILE].encode()
    for begin, end, mutant in places[FILE]:
        put = mutant.edits[0]["put"].replace("@", mutant.name)
        equal(text[begin:end].decode(), put, mutant.name)
    check(b"const fn" not in text and b"fn half" in text, "the function is constant")
    first, second = mutants
    start = places[FILE][0][0]
    for what, expected in ((error("in it", start + 3), {first}), (error("beside it", start - 4), {first}),
                           (error("a constant", len(text) - 9, "E0015"), {first}), (error("in the other", text.index(b"whole")), {second}),
                           (error("nowhere", path=None), {first, second}), (error("of std", path="/std.rs"), {first, second})):
        equal(draw.blamed(what, mutants, files, places), expected, what["message"]["message"])


if __name__ == "__main__":
    harness.main()
