#!/usr/bin/env python3
"""What deny.toml says of the dependencies: their licences, which crates never, from where. Without a network.

    suite.py [--list] [PATTERN...]

It reads Cargo.lock and what cargo tells of the packages it has; cargo-deny, where it is installed, reads the same deny.toml.
"""
import collections
import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import harness
from harness import check, equal, measured, test

DENY = tomllib.loads((ROOT / "deny.toml").read_text())
LOCK = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
MANIFEST = tomllib.loads((ROOT / "Cargo.toml").read_text())


def packages():
    """Every package that the program or its tests are built from on any target of deny.toml, by name and version."""
    found = {}
    for platform in DENY["graph"]["targets"]:
        done = subprocess.run(["cargo", "metadata", "--offline", "--locked", "--format-version", "1", "--filter-platform", platform],
                              cwd=ROOT, capture_output=True, text=True, timeout=120)
        check(done.returncode == 0, f"cargo metadata for {platform}: {done.stderr[-500:]}")
        found.update({(package["name"], package["version"]): package for package in json.loads(done.stdout)["packages"]})
    return found


# Licences.


def is_allowed(expression, allowed):
    """Whether a licence expression can be met by these licences alone.

    Spec: SPDX 2.3 annex D; AND binds stronger than OR. Old manifests write a slash for OR.
    """
    words = collections.deque(re.findall(r"[()]|[^\s()]+", re.sub(r"\s*/\s*", " OR ", expression)))

    def either():
        holds = both()
        while words and words[0] == "OR":
            words.popleft()
            holds = both() or holds
        return holds

    def both():
        holds = one()
        while words and words[0] == "AND":
            words.popleft()
            holds = one() and holds
        return holds

    def one():
        word = words.popleft()
        if word == "(":
            holds = either()
            if words.popleft() != ")":
                raise ValueError(expression)
            return holds
        if words and words[0] == "WITH":
            words.popleft()
            word = f"{word} WITH {words.popleft()}"
        return word in allowed

    holds = either()
    if words:
        raise ValueError(expression)
    return holds


def licence_faults(found):
    allowed = set(DENY["licenses"]["allow"])
    return [f"{name} {version}: licence {package['license']}" for (name, version), package in sorted(found.items())
            if not package["license"] or not is_allowed(package["license"], allowed)]


@test
def every_licence_is_allowed():
    """Each package may be used under licences that deny.toml allows."""
    found = packages()
    equal(licence_faults(found), [], "licences that are not allowed")
    measured(f"{len(found)} packages")


@test
def no_licence_is_allowed_for_nothing():
    """Without any one of the allowed licences some package could not be used, save for the exception of LLVM, which is one of
    three choices where it stands."""
    found = packages()
    for licence in set(DENY["licenses"]["allow"]) - {"Apache-2.0 WITH LLVM-exception"}:
        rest = set(DENY["licenses"]["allow"]) - {licence}
        check(any(not is_allowed(package["license"] or "", rest) for package in found.values() if package["license"]),
              f"{licence} is allowed and not needed")


@test
def licence_expressions_are_read_right():
    """AND needs both, OR one, WITH makes a licence of its own, a slash is OR, brackets bind."""
    for expression, allowed, holds in [("MIT", {"MIT"}, True), ("MIT", {"ISC"}, False), ("MIT OR GPL-3.0", {"MIT"}, True),
                                       ("MIT AND GPL-3.0", {"MIT"}, False), ("MIT/Apache-2.0", {"Apache-2.0"}, True),
                                       ("Apache-2.0 / MIT", {"MIT"}, True), ("(MIT OR ISC) AND Zlib", {"ISC", "Zlib"}, True),
                                       ("MIT OR ISC AND Zlib", {"MIT"}, True), ("MIT OR ISC AND Zlib", {"ISC"}, False),
                                       ("Apache-2.0 WITH LLVM-exception", {"Apache-2.0"}, False),
                                       ("Apache-2.0 WITH LLVM-exception OR MIT", {"MIT"}, True)]:
        equal(is_allowed(expression, allowed), holds, f"{expression} by {allowed}")


# Bans.


def ban_faults(lock):
    banned = {entry["crate"]: entry["reason"] for entry in DENY["bans"]["deny"]}
    faults = [f"{package['name']}: {banned[package['name']]}" for package in lock if package["name"] in banned]
    skipped = {entry["crate"] for entry in DENY["bans"]["skip"]}
    versions = collections.defaultdict(list)
    for package in lock:
        if f"{package['name']}@{package['version']}" not in skipped:
            versions[package["name"]].append(package["version"])
    return faults + [f"{name}: versions {', '.join(those)}" for name, those in sorted(versions.items()) if len(those) > 1]


def built(found):
    """What of Cargo.lock is built on some target of deny.toml: the file also has what other systems would need."""
    return [package for package in LOCK if (package["name"], package["version"]) in found]


@test
def no_crate_is_banned_or_there_twice():
    """No banned crate is in Cargo.lock; what is built has one version of each but for those that deny.toml names, with reasons."""
    lock = built(packages())
    equal(ban_faults(lock), [], "bans")
    equal([package["name"] for package in LOCK if package["name"] in {entry["crate"] for entry in DENY["bans"]["deny"]}], [],
          "banned crates in Cargo.lock")
    there = {f"{package['name']}@{package['version']}" for package in lock}
    equal([entry["crate"] for entry in DENY["bans"]["skip"] if entry["crate"] not in there], [], "exceptions for what is not there")


@test
def no_version_is_a_wildcard():
    """Each dependency of the workspace names a version or a path."""
    for name, wanted in MANIFEST["workspace"]["dependencies"].items():
        wanted = wanted if isinstance(wanted, dict) else {"version": wanted}
        check("path" in wanted or wanted.get("version", "*").strip() not in ("", "*"), f"{name}: {wanted}")
        check("git" not in wanted, f"{name} is from git")


# Sources.


def source_faults(lock):
    allowed = {f"registry+{url}" for url in DENY["sources"]["allow-registry"]} | {f"git+{url}" for url in DENY["sources"]["allow-git"]}
    faults = []
    for package in lock:
        source = package.get("source")
        if source is None:
            continue
        if source.split("?")[0].split("#")[0] not in allowed:
            faults.append(f"{package['name']} is from {source}")
        elif not re.fullmatch(r"[0-9a-f]{64}", package.get("checksum", "")):
            faults.append(f"{package['name']} has no checksum")
    return faults


@test
def every_crate_is_from_the_one_registry():
    """Whatever Cargo.lock names is of this workspace, or from an allowed registry and has a checksum."""
    equal(source_faults(LOCK), [], "sources")
    own = {package["name"] for package in LOCK if "source" not in package}
    here = {tomllib.loads(path.read_text())["package"]["name"] for path in [*ROOT.glob("crates/*/Cargo.toml"), ROOT / "fuzz/Cargo.toml"]}
    equal(own - here, set(), "crates without a source that are not of this workspace")


@test
def planted_faults_are_found():
    """A licence, a banned crate, a second version and a source that are not allowed: each is reported."""
    found = packages()
    planted = copy.deepcopy(found)
    planted[("evil", "1.0.0")] = {"license": "AGPL-3.0"}
    planted[("silent", "1.0.0")] = {"license": None}
    equal(len(licence_faults(planted)), 2, "planted licences")
    lock = built(found)
    equal(len(ban_faults([*lock, {"name": "openssl", "version": "0.10.0"}])), 1, "a banned crate")
    equal(len(ban_faults([*lock, {"name": "serde", "version": "0.9.0"}])), 1, "a second version")
    for source in ("git+https://example.org/evil.git#0123", "registry+https://example.org/index"):
        equal(len(source_faults([{"name": "evil", "version": "1.0.0", "source": source, "checksum": "0" * 64}])), 1, source)
    registry = f"registry+{DENY['sources']['allow-registry'][0]}"
    equal(len(source_faults([{"name": "evil", "version": "1.0.0", "source": registry}])), 1, "no checksum")


# Advisories.


@test
def advisories_are_matched_by_version():
    """Of a database with four advisories the one that concerns Cargo.lock is reported; without a database it says 'skipped'."""
    version = next(package["version"] for package in LOCK if package["name"] == "serde")
    texts = {"RUSTSEC-1": ("serde", f'patched = [">= {version}"]'), "RUSTSEC-2": ("serde", f'patched = ["> {version}"]'),
             "RUSTSEC-3": ("no-such-crate", "patched = []"),
             "RUSTSEC-4": ("serde", f'patched = []\nunaffected = ["< 0.1", "^{version.split(".")[0]}"]')}
    script = ROOT / "tests/deny/advisories"
    with tempfile.TemporaryDirectory(prefix="deny-test.") as directory:
        for id, (name, versions) in texts.items():
            path = pathlib.Path(directory) / "crates" / name / f"{id}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'```toml\n[advisory]\nid = "{id}"\npackage = "{name}"\n\n[versions]\n{versions}\n```\n\n# What\n')
        done = subprocess.run([script, directory], capture_output=True, text=True, timeout=20)
        equal(done.returncode, 1, done.stdout + done.stderr)
        equal([line.split(":")[0] for line in done.stdout.splitlines() if line.startswith("RUSTSEC")], ["RUSTSEC-2"], done.stdout)
    with tempfile.TemporaryDirectory(prefix="deny-test.") as empty:
        done = subprocess.run([script, empty], capture_output=True, text=True, timeout=20)
        check(done.returncode == 0 and done.stdout.startswith("skipped"), done.stdout + done.stderr)


if __name__ == "__main__":
    harness.main()
