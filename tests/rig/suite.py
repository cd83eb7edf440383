#!/usr/bin/env python3
"""A real Linux initiator and a firmware initiator against Tarn: the scenarios of tests/rig in two guests, then iPXE.

    suite.py                    all where KVM runs the guest, else some
    suite.py --all              all (`make kernel`)
    suite.py SCENARIO...        some, by the beginning of their names, such as 02 or ipxe
"""
import collections
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
import disc
import harness
from tarn import BINARY, IQN, Tarn

# What needs a kernel later than that of the release: ublk. They run in a guest of their own, or without ublk where its packages
# cannot be had.
BACKPORTS = ("16-attach",)
# What runs where the guest is emulated, and each takes one to two minutes of a processor; `make kernel` and KVM run all.
EMULATED = ("02-ext4", "09-recovery", "12-upgrade", "18-optical", "19-passed")
# So many lines of a scenario that failed are shown again.
LINES = 25
CACHE = os.environ.get("XDG_CACHE_HOME") or str(pathlib.Path.home() / ".cache")


def build_image(kernel):
    """Makes a guest's image if it is not in the cache; that alone needs root."""
    sudo = [] if os.geteuid() == 0 else ["sudo", "env", f"XDG_CACHE_HOME={CACHE}"]
    return subprocess.run([*sudo, HERE / "vmrig", "build", "--kernel", kernel], check=False).returncode == 0


def is_emulated():
    """Whether KVM does not run the guest here."""
    info = build_image("stable") and subprocess.run([HERE / "vmrig", "info"], capture_output=True, text=True, check=False).stdout
    return bool(info) and "kvm" not in info.partition("accel")[2]


def scenarios(names, kernel):
    """Runs them in one guest with this kernel. Returns (passed, failed, skipped)."""
    if not build_image(kernel):
        if kernel == "backports":
            print("skipped  ublk: the guest's image with a later kernel cannot be built", flush=True)
            passed, failed, skipped = scenarios(names, "stable")
            return passed, failed, skipped + 1
        for name in names:
            name_failed(name, f"the guest's image cannot be built, kernel: {kernel}")
        return 0, len(names), 0
    how = ["-v", "-k", "--kernel", kernel, "-e", "WANTS_UBLK=1" if kernel == "backports" else "WANTS_UBLK="]
    process = subprocess.Popen([HERE / "check", *how, HERE / "targets/tarn.sh", *names], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace",
                               env={**os.environ, "T_ALL_COMMANDS": "1", "T_OLD": BINARY, "T_NEW": BINARY})
    said, ends, name = collections.defaultdict(list), [], names[0]
    for line in process.stdout:
        print(line, end="", flush=True)
        if begins := re.match(r"=== (\S+)\.sh ", line):
            name = begins[1]
        said[name].append(line.rstrip())
        ends += re.findall(r"^(PASS|FAIL|SKIP|NOT RUN)\b.* (\S+)\.sh$", line)
    status = process.wait()
    if len(names) == 1 and not ends:        # with one script there is no table
        ends = [("PASS" if status == 0 else "SKIP" if status == 77 else "FAIL", name)]
    if not ends:
        return 0, 1, 0
    for word, name in ends:
        if word not in ("PASS", "SKIP"):
            name_failed(name, f"{word}, kernel: {kernel}", said[name])
    words = [word for word, _ in ends]
    passed, skipped = words.count("PASS"), words.count("SKIP")
    return passed, len(words) - passed - skipped, skipped


def name_failed(name, why, lines=()):
    """Names what failed with its last lines, as tests/run reads it."""
    print("\n         ".join([f"FAILED   {name} ({why})", *lines[-LINES:]]), flush=True)


CHAP_USER, CHAP_SECRET = "firmware", "firmware-secret-01"
IPXE_CONFIG = f"""
[[lun]]
id = "disk"
store = "mem:64M"
[[lun]]
id = "disc"
store = "cdrom:{{dir}}/boot.iso"
[[user]]
name = "{CHAP_USER}"
secret_file = "{{dir}}/secret"
[[target]]
name = "{IQN}"
portals = ["127.0.0.1:{{port}}"]
luns = [{{ lun = 0, id = "disk" }}]
[[target]]
name = "{IQN}:chap"
portals = ["127.0.0.1:{{port}}"]
auth = ["{CHAP_USER}"]
luns = [{{ lun = 0, id = "disk" }}, {{ lun = 1, id = "disc" }}]
"""


def ipxe():
    """The iPXE firmware logs in and opens the unit, without and with CHAP, and starts a disc. Returns (passed, failed)."""
    tarn = Tarn(config=IPXE_CONFIG)
    tarn.secret("secret", CHAP_SECRET)
    (tarn.dir / "boot.iso").write_bytes(disc.bootable())
    with tarn:
        cases = {"without CHAP": [tarn.port, IQN, 0], "with CHAP": [tarn.port, f"{IQN}:chap", 0, CHAP_USER, CHAP_SECRET],
                 "from a disc": ["--boot", disc.MARKER.decode(), tarn.port, f"{IQN}:chap", 1, CHAP_USER, CHAP_SECRET]}
        passed = 0
        for name, case in cases.items():
            ok = subprocess.run([HERE / "ipxe-check", *map(str, case)], check=False).returncode == 0
            if ok:
                print(f"ok       ipxe ({name})", flush=True)
            else:
                name_failed("ipxe", name)
            passed += ok
    return passed, len(cases) - passed


def main():
    every, wanted = "--all" in sys.argv[1:], [word for word in sys.argv[1:] if word != "--all"]
    start = time.monotonic()
    names = [p.name for p in sorted((HERE / "scenarios").glob("[0-9]*.sh"))]
    names = [n for n in names if not wanted or any(n.startswith(w) for w in wanted)]
    names = [n.removesuffix(".sh") for n in names]
    if not wanted and not every and is_emulated():
        print(f"without KVM, {', '.join(n for n in names if n not in EMULATED)} are left to make kernel", flush=True)
        names = [n for n in names if n in EMULATED]
    passed = failed = skipped = 0
    for kernel in ("stable", "backports"):
        if some := [n for n in names if (n in BACKPORTS) == (kernel == "backports")]:
            good, bad, left = scenarios(some, kernel)
            passed, failed, skipped = passed + good, failed + bad, skipped + left
    if not wanted or "ipxe" in wanted:
        ok, bad = ipxe()
        passed, failed = passed + ok, failed + bad
    harness.summary(passed, failed, skipped, time.monotonic() - start)
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
