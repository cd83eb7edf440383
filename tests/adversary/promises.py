"""docs/reference/security.md names tests, keys and constants: all of them are there, and the defaults are those it says.

    promises.py [--list] [PATTERN...]        by itself; TARN_TREES names more trees, colon-separated, in which to look, too
"""
import os
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
import harness
from harness import check, equal, measured, test

ROOT = HERE.parents[1]
TREES = [ROOT, *[pathlib.Path(tree) for tree in os.environ.get("TARN_TREES", "").split(":") if tree]]
TEXT = (ROOT / "docs/reference/security.md").read_text()
# A Rust constant, or a key of a configuration.
CONSTANT = re.compile(r"[A-Z][A-Z0-9_]+")


def tables():
    """Rows of all tables, by the words of their headings."""
    heading = None
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else None
        if cells is None:
            heading = None
        elif heading is None:
            heading = cells
        elif not set(line) <= set("|-: "):
            yield dict(zip(heading, cells, strict=True))


def texts(pattern):
    return {path: path.read_text() for tree in TREES for path in tree.glob(pattern)}


@test
def every_test_that_the_promises_name_is_there():
    """A name in the column "Shown by", or in brackets behind a sentence, is a function of a suite."""
    there = set(re.findall(r"^def (\w+)\(", "\n".join(texts("tests/*/*.py").values()), re.MULTILINE))
    for place in ("src", "tests"):
        there |= set(re.findall(r"^ *fn (\w+)\(", "\n".join(texts(f"crates/*/{place}/**/*.rs").values()), re.MULTILINE))
    named = set(re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+){3,})`", TEXT)) - keys()
    check(len(named) > 20, f"only {len(named)} tests are named")
    equal(sorted(named - there), [], "tests that are not there")
    measured(f"{len(named)} tests")


def keys():
    """The keys of `[limits]` with their defaults, as docs/reference/configuration.md says."""
    return set(defaults())


def defaults():
    found = {}
    for text in texts("docs/reference/configuration.md").values():
        section = text.partition("### `[limits]`")[2].partition("\n### ")[0]
        for key, value in re.findall(r"^\| `(\w+)` \|[^|]*\| `\"?([^`\"]+)\"?` \|", section, re.MULTILINE):
            found.setdefault(key, value)
    return found


@test
def every_bound_that_the_promises_name_is_there():
    """A key has the default that docs/reference/configuration.md gives it, a constant is in its file, and every file exists."""
    known, rows = defaults(), [row for row in tables() if "Key or constant" in row]
    check(len(rows) > 20, f"only {len(rows)} bounds are named")
    wrong = []
    for row in rows:
        name, path = row["Key or constant"].strip("`"), row["File"].strip("`")
        files = [tree / "crates" / path for tree in TREES if (tree / "crates" / path).exists()]
        if not files:
            wrong.append(f"{row['Limit']}: no file crates/{path}")
        elif CONSTANT.fullmatch(name):
            if not any(re.search(rf"const {name}\b", file.read_text()) for file in files):
                wrong.append(f"{row['Limit']}: no {name} in {path}")
        elif name not in known:
            wrong.append(f"{row['Limit']}: no key {name}")
        elif re.match(r"[\d]+", known[name])[0] != re.match(r"[\d]+", row["Default"])[0]:
            wrong.append(f"{row['Limit']}: {name} is {known[name]}, not {row['Default']}")
    equal(wrong, [], "bounds that are not as they are described")


if __name__ == "__main__":
    harness.main()
