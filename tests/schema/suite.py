#!/usr/bin/python3
"""The published schema of tarn.toml: it takes what Tarn takes, and refuses planted mistakes.

    suite.py [--list] [PATTERN...]

Runs on Debian's Python, which is where the package python3-jsonschema goes.
"""
import json
import pathlib
import re
import sys
import tomllib

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import harness
from harness import check, measured, test

SCHEMA = json.loads((ROOT / "docs/tarn.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
EXAMPLE = (ROOT / "examples/tarn.toml").read_text()

# As in the tests of crates/config/src/store.rs.
STORES = ["disk.img", "/srv/disk.img", "/srv/a:b", "./mem:1", "file:disk.img", "file:mem:1", "file:a%3Fb", "100%25", "a%20b",
          "block:/dev/sdx", "mem:256M", "mem:64kiB", "mem:1TB", "mem:512", "mem:512B", "null:1T", "mem:1M?thin",
          "disk.img?size=1M&blocksize=4096&readonly&cache=direct&thin=false&serial=A1&format=raw&removable", "a?serial=?=x",
          "nbd://host", "nbd://host:1/a?retry=0&connections=16", "nbds://[::1]:10809/a%3Fb?ca=/c%26d", "nbd+unix:///?socket=s",
          "nbd+unix://?socket=/run/s", "./a+b:c"]
NO_STORES = ["", "mem:", "mem:10X", "mem:1.5G", "mem:1M?size=2M ", "qcow2:a.img", "a?siez=1M", "a?size=1X", "a?blocksize=520",
             "a?cache=none", "a?readonly=yes", "a?removable=1", "a?", "a?thin&", "a?&thin", "file:", "a?serial=",
             "nbd:host", "nbd://", "nbd:///a", "nbd+unix://host/a?socket=s", "nbd://h?connections=100", "nbds://h?ca=", "a+b:c"]

# What to change in the example, and into what: each a slip that somebody can make.
MISTAKES = [
    ('id = "demo"', 'id = "de mo"'),
    ('id = "demo"', 'id = ""'),
    ('id = "demo"', "id = 7"),
    ('id = "demo"', 'id = ".."'),
    ('store = "mem:256M?blocksize=4096"', 'stroe = "mem:256M"'),
    ('store = "mem:256M?blocksize=4096"', ""),
    ('serial = "GOLDEN-0001"', 'serial = "GOLDEN 0001"'),
    ('naa = "3000000000000001"', 'naa = "4000000000000001"'),
    ('naa = "3000000000000001"', 'naa = "30000000000001"'),
    ('name = "iqn.2026-11.example.tarn:scratch"', 'name = "scratch"'),
    ('"127.0.0.1:3260",', '"localhost:3260",'),
    ("group = 2", "group = 0"),
    ("group = 2", "grup = 2"),
    ('auth = ["alice"]', 'auth = "alice"'),
    ('"sha256"', '"sha512"'),
    ("lun = 1, id", "lun = 16384, id"),
    ("readonly = true", 'readonly = "yes"'),
    ('secret_file = "tarn.secret"', 'secret = "twelve bytes"'),
    ('log = "info"', 'log = "loud"'),
    ("cores = 2", "cores = 0"),
    ("[limits]", "[limit]"),
    ('pool_per_core_bytes = "256M"', 'pool_per_core_bytes = "256X"'),
    ("pool_per_core_bytes = \"256M\"", "pool_per_core_bytes = 1"),
    ('header_digest = "allow"', 'header_digest = "crc32c"'),
    ("history = 100", "history = 0"),
    ('listen = ["127.0.0.1:8443", "[::1]:8443"]', 'listen = ["8443"]'),
    ("tls = true", 'tls = "true"'),
]


def faults(text):
    """What the schema says against this text."""
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in VALIDATOR.iter_errors(tomllib.loads(text))]


@test
def the_schema_is_one():
    """docs/tarn.schema.json is a schema of draft 2020-12, and each default in it is legal by it"""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    defaults = 0

    def walk(node):
        nonlocal defaults
        if isinstance(node, dict):
            if "default" in node:
                jsonschema.Draft202012Validator(node).validate(node["default"])
                defaults += 1
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)
    walk(SCHEMA)
    check(defaults > 20, f"only {defaults} defaults")
    measured(f"{defaults} defaults")


@test
def every_example_is_taken():
    """The example file and every configuration that the documentation shows pass"""
    texts = {"examples/tarn.toml": EXAMPLE}
    for name in ("README.md", "docs/reference/configuration.md", "docs/guide/stores.md", "docs/guide/remote-stores.md", "docs/guide/quotas.md",
                 "docs/guide/operating.md"):
        blocks = re.findall(r"```toml\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
        check(blocks, f"{name} shows no configuration")
        texts |= {f"{name} [{number}]": block for number, block in enumerate(blocks)}
    for name, text in texts.items():
        check(not faults(text), f"{name}: {faults(text)}")
    measured(f"{len(texts)} texts")


@test
def every_store_is_taken_and_no_other():
    """The pattern of STORE takes the stores of the reader's own tests and refuses its mistakes"""
    for stores, is_good in ((STORES, True), (NO_STORES, False)):
        for store in stores:
            found = faults(f"lun = [{{ id = 'a', store = {json.dumps(store)} }}]")
            check((not found) == is_good, f"{store!r}: {found}")


@test
def planted_mistakes_are_refused():
    """Each of the slips in the example is found where it is"""
    for right, wrong in MISTAKES:
        check(right in EXAMPLE, f"the example has no {right!r}")
        check(faults(EXAMPLE.replace(right, wrong, 1)), f"{right!r} became {wrong!r}, and the schema takes it")
    measured(f"{len(MISTAKES)} mistakes")


if __name__ == "__main__":
    harness.main()
