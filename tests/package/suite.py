#!/usr/bin/env python3
"""The Debian package and the service: what is in it, that it works from its own files, that the unit is one systemd takes,
and that the service manager is told the truth.

    suite.py [--list] [PATTERN...]
"""
import configparser
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
import hyperscsi
import iscsi
import reflinks
import scsi
import unitcalls
from harness import check, equal, measured, test
from tarn import BINARY, IQN, Tarn

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNIT = ROOT / "packaging/systemd/tarn.service"
# Exposure as systemd-analyze counts it, from 0 to 10: what is left needs the network and files.
EXPOSURE_MAX = 2.5


def sh(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120, **options)


def package():
    out = sh(ROOT / "packaging/deb/build", ROOT / "target/debian")
    equal(out.returncode, 0, f"packaging/deb/build: {out.stderr}")
    return next((ROOT / "target/debian").glob("tarn_*.deb"))


@test(limit_s=180)
def the_package_has_what_it_needs():
    """Everything is there with the right modes; the binary of the package runs and takes the configuration beside it."""
    deb = package()
    fields = sh("dpkg-deb", "--field", deb).stdout
    for field in ("Package: tarn", "Depends:", "Version: 0."):
        check(field in fields, f"{field!r} is not in {fields}")
    measured(f"{deb.stat().st_size >> 10} KiB")
    with tempfile.TemporaryDirectory(prefix="tarn-deb.") as folder:
        root = pathlib.Path(folder)
        equal(sh("dpkg-deb", "--extract", deb, root).returncode, 0, "extract")
        for path, mode in [("usr/bin/tarn", 0o755), ("lib/systemd/system/tarn.service", 0o644), ("etc/tarn/tarn.toml", 0o640),
                           ("lib/systemd/system/tarn.socket", 0o644), ("usr/lib/sysusers.d/tarn.conf", 0o644),
                           ("usr/share/man/man1/tarn.1.gz", 0o644), ("usr/share/man/man1/tarn-lun-add.1.gz", 0o644),
                           ("usr/share/bash-completion/completions/tarn", 0o644), ("usr/share/zsh/vendor-completions/_tarn", 0o644),
                           ("usr/share/fish/vendor_completions.d/tarn.fish", 0o644),
                           ("usr/share/tarn/monitoring/tarn.rules.yml", 0o644), ("usr/share/tarn/monitoring/dashboard.json", 0o644),
                           ("usr/share/doc/tarn/copyright", 0o644),
                           ("usr/share/doc/tarn/CONFIG.md", 0o644), ("usr/share/doc/tarn/tarn.toml.example", 0o644)]:
            equal((root / path).stat().st_mode & 0o777, mode, path)
        version = sh(root / "usr/bin/tarn", "--version").stdout
        check(version.startswith("tarn 0."), f"--version: {version!r}")
        # The example of the file as it comes, taken out of its comments.
        lines = (root / "etc/tarn/tarn.toml").read_text().splitlines()
        start = next(n for n, line in enumerate(lines) if "[[lun]]" in line)
        example = root / "example.toml"
        example.write_text("\n".join(line.lstrip("# ") for line in lines[start:]).replace("/srv", str(root)))
        out = sh(root / "usr/bin/tarn", "check", example)
        check(out.returncode == 0 and "1 target, 1 lun" in out.stdout, f"check: {out.stdout}{out.stderr}")


@test
def the_unit_is_sound():
    """systemd-analyze finds nothing wrong with the unit, and counts little exposure."""
    if not shutil.which("systemd-analyze"):
        harness.skip("systemd-analyze is not installed")
    with tempfile.TemporaryDirectory(prefix="tarn-unit.") as folder:
        unit = pathlib.Path(folder) / "tarn.service"
        unit.write_text(UNIT.read_text().replace("/usr/bin/tarn", str(ROOT / "target/release/tarn")))
        out = sh("systemd-analyze", "verify", "--man=no", unit)
        wrong = [line for line in out.stderr.splitlines() if "tarn.service" in line]
        equal(wrong, [], "systemd-analyze verify")
        out = sh("systemd-analyze", "security", "--offline=true", unit)
        found = re.search(r"Overall exposure level for tarn.service: ([\d.]+)", out.stdout)
        check(found is not None, f"systemd-analyze security: {out.stdout[-300:]}{out.stderr}")
        measured(f"exposure {found.group(1)}")
        check(float(found.group(1)) <= EXPOSURE_MAX, f"exposure {found.group(1)}, wanted at most {EXPOSURE_MAX}")


@test
def a_start_is_tried_again_as_long_as_it_takes():
    """A start that fails at once, as one whose store is behind a server that is not up yet, is no reason for the service manager
    to give the service up. It would after five starts within 10 s."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read_string(UNIT.read_text())
    equal(unit["Service"]["Restart"], "on-failure", "Restart")
    equal(unit["Unit"].get("StartLimitIntervalSec"), "0", "StartLimitIntervalSec")
    with tempfile.TemporaryDirectory(prefix="tarn-unit.") as folder:
        out = sh(BINARY, "serve", "--state", folder, "--listen", "127.0.0.1:0", "nbd+unix:///disk?socket=/nowhere/nbd.sock")
    check(out.returncode not in (0, None) and "start the server" in out.stderr, out.stderr)


@test
def what_the_unit_forbids_is_not_called():
    """With the system calls that the unit allows, a daemon starts, serves, changes its configuration by the API, by a reload and
    by a rollback, makes certificates and tokens, takes snapshots and gives them back, and ends."""
    if not shutil.which("systemd-analyze") or not unitcalls.usable():
        harness.skip("there is no systemd-analyze, or another processor")
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(reflinks.file_system("xfs")) if os.geteuid() == 0 and shutil.which("mkfs.xfs") else None
        luns = {"memory": "mem:16M", "file": "file:{dir}/disk.img?size=16M",
                **({"disk": f"file:{place}/disk.img?size=16M"} if place else {})}
        tarn = reflinks.Daemon(luns, '[admin]\nlisten = ["127.0.0.1:{port2}"]\nsocket = "{dir}/tarn.sock"\n')
        tarn.prefix = [sys.executable, ROOT / "tests/lib/unitcalls.py", UNIT]
        stack.enter_context(tarn)
        with iscsi.Session(tarn.port, IQN) as session:
            for lun in range(len(luns)):
                session.clear_unit_attentions(lun)
                reflinks.write(session, 0, b"a" * 65536, lun)
                check(session.command(scsi.synchronize_cache16(), lun=lun).good, f"SYNCHRONIZE CACHE of LUN {lun}")
        tarn.run("lun", "add", "new", f"{tarn.dir}/new.img?size=16M", "--target", IQN)
        tarn.run("lun", "resize", "new", "32M")
        tarn.run("token", "add", "me", "admin")
        if place:
            tarn.run("snapshot", "create", "disk", "a")
            tarn.run("lun", "add", "test", f"{place}/test.img", "--clone", "disk@a")
            tarn.run("snapshot", "rollback", "disk@a")
            tarn.run("snapshot", "rm", "disk@a")
        tarn.run("rollback", "1", "--yes")
        tarn.process.send_signal(signal.SIGHUP)
        tarn.run("doctor")


@test(limit_s=120)
def frames_take_one_right_and_the_calls_of_the_unit():
    """The drop-in that the unit names grants one right. With it, as another user, and with the system calls that the unit allows, a
    group on an interface is served, confined; the right is gone then."""
    right = ["CapabilityBoundingSet=CAP_NET_RAW", "AmbientCapabilities=CAP_NET_RAW"]
    text = UNIT.read_text()
    equal([line for line in right if f"#   {line}\n" not in text], [], "lines of the drop-in that the unit does not show")
    administration = (ROOT / "docs/HYPERSCSI-ADMIN.md").read_text()
    check("\n".join(["[Service]", *right]) in administration, "the page for administrators shows another drop-in")
    check(re.search(r"^RestrictAddressFamilies=.*AF_PACKET", text, re.MULTILINE), "the unit allows no sockets of frames")
    if not shutil.which("systemd-analyze") or not unitcalls.usable():
        harness.skip("there is no systemd-analyze, or another processor")
    with hyperscsi.wire_of_root() as inside:
        calls = ROOT / "tests/lib/unitcalls.py"
        python = shutil.which("python3", path="/usr/bin:/bin")
        hyperscsi.one_right_is_enough(inside, files=[calls, UNIT], before=[python, "{dir}/unitcalls.py", "{dir}/tarn.service"])


@test
def the_container_recipe_is_sound():
    """What the recipe of the container copies is there, and the command that it runs is one tarn takes."""
    lines = (ROOT / "packaging/container/Containerfile").read_text().splitlines()
    words = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines if line and not line.startswith("#")}
    sources = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    equal(sources[0], "target/release/tarn", "the binary")
    for source in [BINARY, *(ROOT / name for name in sources[1:])]:
        check(source.is_file(), f"{source} is missing")
    command = [word.replace("/etc/tarn", "/nonexistent") for word in json.loads(words["CMD"])]
    out = sh(BINARY, *command)
    check(out.returncode == 2 and "cannot read configuration file /nonexistent/tarn.toml" in out.stderr, out.stderr)
    equal(json.loads(words["ENTRYPOINT"]), ["/usr/bin/tarn"], "entry point")
    check(words["USER"].split(":")[0] not in ("0", "root"), "it runs as root")


class Manager:
    """The socket that a service manager listens on."""

    def __init__(self, folder):
        self.path = str(folder / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(20)
        self.heard = []

    def wait_for(self, word):
        """The next message with this line."""
        while True:
            text = self.socket.recv(4096).decode()
            self.heard.append(text)
            if word in text.split("\n"):
                return text


@test
def the_service_manager_is_told():
    """READY when the portals are bound, RELOADING and READY around a change, also one that is refused, STOPPING at the end."""
    with tempfile.TemporaryDirectory(prefix="tarn-notify.") as folder:
        manager = Manager(pathlib.Path(folder))
        config = f'[[lun]]\nid = "d"\nstore = "mem:8M"\n[[target]]\nname = "{IQN}"\nportals = ["127.0.0.1:{{port}}"]\nluns = [{{ lun = 0, id = "d" }}]\n'
        os.environ["NOTIFY_SOCKET"] = manager.path
        try:
            tarn = Tarn(config=config).start()
        finally:
            del os.environ["NOTIFY_SOCKET"]
        try:
            text = manager.wait_for("READY=1")
            check("STATUS=revision 1: targets 1, luns 1" in text, text)
            for more, status in [('[[lun]]\nid = "e"\nstore = "mem:8M"\n', "STATUS=revision 2: targets 1, luns 2"),
                                 ("nonsense", "STATUS=revision 2: targets 1, luns 2")]:
                with open(tarn.dir / "tarn.toml", "a") as file:
                    file.write(more)
                before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
                tarn.process.send_signal(signal.SIGHUP)
                text = manager.wait_for("RELOADING=1")
                stamp = re.search(r"MONOTONIC_USEC=(\d+)", text)
                check(stamp and int(stamp.group(1)) >= before, f"no time of the reload in {text!r}")
                check(status in manager.wait_for("READY=1"), f"{status!r} was not told: {manager.heard[-1]!r}")
            equal(tarn.terminate(), 0, "exit code")
            manager.wait_for("STOPPING=1")
        finally:
            tarn.close()


if __name__ == "__main__":
    harness.main()
