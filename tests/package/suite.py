#!/usr/bin/env python3
"""The Debian package and the service: what is in it, that it works from its own files, that the unit is one systemd takes,
and that the service manager is told the truth.

    suite.py [--list] [PATTERN...]
"""
import configparser
import contextlib
import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
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
from tarn import BINARY, IQN, Tarn, free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNIT = ROOT / "packaging/systemd/tarn.service"
# Exposure as systemd-analyze counts it, from 0 to 10: what is left needs the network and files.
EXPOSURE_MAX = 2.5

# What is packed best takes a minute of a processor, each time.
os.environ.setdefault("DPKG_DEB_COMPRESSOR_LEVEL", "1")


def sh(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=400, **options)


def package():
    out = sh(ROOT / "packaging/deb/build", ROOT / "target/debian")
    equal(out.returncode, 0, f"packaging/deb/build: {out.stderr}")
    return next((ROOT / "target/debian").glob("tarn_*.deb"))


@test(limit_s=400)
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
                           ("usr/share/doc/tarn/copyright", 0o644), ("usr/share/doc/tarn/LICENSE-APACHE", 0o644),
                           ("usr/share/doc/tarn/LICENSE-MIT", 0o644), ("usr/share/tarn/tarn.schema.json", 0o644),
                           ("usr/share/man/man5/tarn.toml.5.gz", 0o644),
                           ("usr/share/doc/tarn/reference/configuration.md", 0o644), ("usr/share/doc/tarn/tarn.toml.example", 0o644)]:
            equal((root / path).stat().st_mode & 0o777, mode, path)
        words = (root / "usr/share/doc/tarn/copyright").read_text()
        check("Apache-2.0" in words and "Expat" in words, words)
        page = gzip.decompress((root / "usr/share/man/man5/tarn.toml.5.gz").read_bytes()).decode()
        check(".TH tarn.toml 5" in page and "discovery_auth" in page and "Its JSON schema" in page, page[:300])
        if shutil.which("man"):
            shown = sh("man", "--warnings", "-l", root / "usr/share/man/man5/tarn.toml.5.gz", env={**os.environ, "MANWIDTH": "100"})
            equal((shown.returncode, shown.stderr), (0, ""), "man of the page")
        json.loads((root / "usr/share/tarn/tarn.schema.json").read_text())
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
        unit.write_text(UNIT.read_text().replace("/usr/bin/tarn", str(BINARY)))
        out = sh("systemd-analyze", "verify", "--man=no", unit)
        # Keys that an older systemd ignores, as the unit says.
        newer = ("'RestartSteps'", "'RestartMaxDelaySec'")
        wrong = [line for line in out.stderr.splitlines() if "tarn.service" in line and not any(key in line for key in newer)]
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
            tarn.run("snapshot", "rollback", "disk@a", "--yes")
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
    administration = (ROOT / "docs/guide/hyperscsi.md").read_text()
    check("\n".join(["[Service]", *right]) in administration, "the page for administrators shows another drop-in")
    check(re.search(r"^RestrictAddressFamilies=.*AF_PACKET", text, re.MULTILINE), "the unit allows no sockets of frames")
    if not shutil.which("systemd-analyze") or not unitcalls.usable():
        harness.skip("there is no systemd-analyze, or another processor")
    with hyperscsi.wire_of_root() as inside:
        calls = ROOT / "tests/lib/unitcalls.py"
        python = shutil.which("python3", path="/usr/bin:/bin")
        hyperscsi.one_right_is_enough(inside, files=[calls, UNIT], before=[python, "{dir}/unitcalls.py", "{dir}/tarn.service"])


def fields(unit):
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str
    parsed.read_string(unit.read_text())
    return parsed["Service"]


@test
def the_unit_needs_no_srv_and_is_watched():
    """A missing /srv is no mistake, the kernel ends other processes first, and systemd waits longer for a sign of life than a core may
    be stuck."""
    service = fields(UNIT)
    equal(service["ReadWritePaths"].split(), ["/etc/tarn", "-/srv"], "ReadWritePaths")
    check(int(service["OOMScoreAdjust"]) < 0, service["OOMScoreAdjust"])
    limit = re.search(r"\| `core_stall_limit_seconds` \|[^|]*\| `(\d+)` \|", (ROOT / "docs/reference/configuration.md").read_text())
    check(int(service["WatchdogSec"]) > int(limit.group(1)), f"WatchdogSec={service['WatchdogSec']}, limit {limit.group(1)}")


@test
def a_place_that_the_service_may_not_write_is_named_with_the_remedy():
    """As below ProtectSystem=strict: a file system that is read-only for this process."""
    if os.geteuid() != 0:
        harness.skip("it takes root to make a file system read-only")
    with tempfile.TemporaryDirectory(prefix="tarn-readonly.") as folder:
        (pathlib.Path(folder) / "disks").mkdir()
        steps = "mount -t tmpfs none disks && mount -o remount,ro disks && exec \"$0\" serve --state state --listen 127.0.0.1:0 disks/a.img --size 1M"
        out = sh("unshare", "--mount", "sh", "-c", steps, BINARY, cwd=folder)
        equal(out.returncode, 2, f"exit code: {out.stderr}")
        check("ReadWritePaths=" in out.stderr and "disks/a.img" in out.stderr, out.stderr)


class Place:
    """A daemon as the service has it, below another root: etc/tarn with its configuration and secrets, var/lib/tarn."""

    def __init__(self, root, binary=BINARY):
        self.root, self.binary = root, binary
        self.etc, self.state = root / "etc/tarn", root / "var/lib/tarn"
        self.port = free_port()
        self.process = None

    def prepare(self):
        self.etc.mkdir(parents=True)
        self.state.mkdir(parents=True)
        (self.etc / "alice.secret").touch(mode=0o600)
        (self.etc / "alice.secret").write_text("correct horse battery\n")
        disk = self.root / "d.img"
        (self.etc / "tarn.toml").write_text(
            f'[[lun]]\nid = "d"\nstore = "file:{disk}?size=8M"\n[[user]]\nname = "alice"\nsecret_file = "alice.secret"\n'
            f'[[target]]\nname = "{IQN}"\nportals = ["127.0.0.1:{self.port}"]\nluns = [{{ lun = 0, id = "d" }}]\n')

    def environment(self):
        return {**os.environ, "TARN_SOCKET": str(self.state / "tarn.sock")}

    def run(self, *words):
        out = sh(self.binary, *words, env=self.environment())
        equal(out.returncode, 0, f"tarn {words}: {out.stderr}")
        return out.stdout

    def what_is_kept(self):
        """Identities, users, tokens and the history; not where things stand at this moment."""
        luns = [{"id": lun["spec"]["id"], **{key: lun[key] for key in ("serial", "naa", "size_bytes")}}
                for lun in json.loads(self.run("lun", "list", "--json"))]
        names = [sorted(one["name"] for one in json.loads(self.run(noun, "list", "--json"))) for noun in ("user", "token")]
        revisions = [(one["revision"], one.get("comment")) for one in json.loads(self.run("history", "--json"))]
        return luns, names, revisions

    def __enter__(self):
        command = [self.binary, "serve", "--config", self.etc / "tarn.toml", "--state", self.state]
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        env=self.environment(), text=True)
        check(self.process.stdout.readline() != "", "tarn ended at its start")
        return self

    def __exit__(self, *_what):
        self.process.send_signal(signal.SIGTERM)
        equal(self.process.wait(60), 0, "exit code")
        self.process.stdout.close()


def register(session, key):
    """PERSISTENT RESERVE OUT, REGISTER with APTPL. Spec: SPC-4 6.16."""
    parameters = struct.pack(">QQ4xBB2x", 0, key, 1, 0)
    check(session.command(bytes([0x5F, 0, 0, 0, 0, 0, 0, 0, len(parameters), 0]), write=parameters).good, "REGISTER")


def keys(session):
    """The keys that are registered: PERSISTENT RESERVE IN, READ KEYS. Spec: SPC-4 6.15.2."""
    answer = session.command(bytes([0x5E, 0, 0, 0, 0, 0, 0, 1, 0, 0]), read=256)
    check(answer.good, "READ KEYS")
    count = int.from_bytes(answer.data[4:8], "big") // 8
    return [int.from_bytes(answer.data[8 + 8 * n:16 + 8 * n], "big") for n in range(count)]


@contextlib.contextmanager
def session_at(place):
    with iscsi.Session(place.port, IQN) as session:
        session.clear_unit_attentions()
        yield session


@test(limit_s=120)
def a_backup_of_the_state_is_the_same_disk_again():
    """The commands of docs/guide/operating.md, below another root: what was saved comes back, with identity, reservations, tokens, history."""
    text = (ROOT / "docs/guide/operating.md").read_text()
    backup = re.search(r"^(tar -C / .*-czf tarn-backup.tar.gz .*)$", text, re.MULTILINE)
    restore = re.search(r"`(tar -C / -xpzf tarn-backup.tar.gz)`", text)
    check(backup and restore, "docs/guide/operating.md does not say how to back up and to restore")
    with tempfile.TemporaryDirectory(prefix="tarn-backup.") as folder:
        place = Place(pathlib.Path(folder))
        place.prepare()
        archive = f"{folder}/tarn-backup.tar.gz"

        def step(command):
            out = sh("sh", "-c", command.group(1).replace(" / ", f" {folder} ").replace("tarn-backup.tar.gz", archive))
            equal(out.returncode, 0, f"{command.group(1)}: {out.stderr}")
        with place, session_at(place) as session:
            register(session, 0xABC)
            place.run("lun", "resize", "d", "16M")
            place.run("token", "add", "me", "admin")
            kept = place.what_is_kept()
        step(backup)
        shutil.rmtree(place.etc)
        shutil.rmtree(place.state)
        place.prepare()
        with place:
            check(place.what_is_kept()[0][0]["serial"] != kept[0][0]["serial"], "a new state directory has the old identity")
        shutil.rmtree(place.etc)
        shutil.rmtree(place.state)
        step(restore)
        equal((place.etc / "alice.secret").stat().st_mode & 0o777, 0o600, "mode of the secret")
        with place, session_at(place) as session:
            equal(place.what_is_kept(), kept, "what is kept")
            equal(keys(session), [0xABC], "registered keys")


@test(limit_s=900)
def an_upgrade_keeps_configuration_and_state():
    """The package over an earlier one, below another root: the edited configuration and the state directory stay, the binary is the new
    one, and serves what the earlier one did."""
    if os.geteuid() != 0:
        harness.skip("dpkg needs root")
    with tempfile.TemporaryDirectory(prefix="tarn-upgrade.") as folder:
        root = pathlib.Path(folder) / "root"
        for path in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "tmp"):
            (root / path).mkdir(parents=True)
        (root / "var/lib/dpkg/status").touch()

        def install(version):
            out = sh(ROOT / "packaging/deb/build", pathlib.Path(folder) / version, env={**os.environ, "TARN_VERSION": version})
            equal(out.returncode, 0, f"packaging/deb/build: {out.stderr}")
            deb = next((pathlib.Path(folder) / version).glob("*.deb"))
            out = sh("dpkg", f"--root={root}", "--force-depends", "--force-script-chrootless", "--force-confdef", "--force-confold",
                     "--install", deb)
            equal(out.returncode, 0, f"dpkg --install: {out.stdout}{out.stderr}")
        install("0.0.1")
        place = Place(root, root / "usr/bin/tarn")
        example = place.etc / "tarn.toml"
        check("Nothing is served yet" in example.read_text(), "the configuration as it comes")
        shutil.rmtree(place.etc)
        place.prepare()
        with place, session_at(place) as session:
            register(session, 0xDEF)
            place.run("lun", "resize", "d", "16M")
            place.run("token", "add", "me", "admin")
            kept, text, inode = place.what_is_kept(), example.read_text(), (root / "usr/bin/tarn").stat().st_ino
            # The service runs on while the package is unpacked.
            install("0.0.2")
            equal(place.what_is_kept(), kept, "what the daemon says that was there before")
        check((root / "usr/bin/tarn").stat().st_ino != inode, "the binary is the same file")
        equal(example.read_text(), text, "the edited configuration")
        with place, session_at(place) as session:
            equal(place.what_is_kept(), kept, "what is kept")
            equal(keys(session), [0xDEF], "registered keys")
        out = sh("dpkg", f"--root={root}", "--force-script-chrootless", "--purge", "tarn")
        equal(out.returncode, 0, f"dpkg --purge: {out.stdout}{out.stderr}")
        check(not place.state.exists() and not place.etc.exists(), "state after a purge")
        check((root / "d.img").exists(), "a disk went with the package")


def recipe():
    """The instructions of the recipe of the container, those that go on in the next line joined."""
    text = (ROOT / "packaging/container/Containerfile").read_text().replace("\\\n", " ")
    return [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]


@test(limit_s=120)
def in_the_container_the_commands_work_and_its_health_is_checked():
    """The layout of the recipe as a root directory, with the user, the variables and the commands that it names, and nothing else of this
    machine: Tarn serves, `tarn status` finds it, the port of the administration answers, and the health check tells a daemon
    that is there from one that is not."""
    if os.geteuid() != 0:
        harness.skip("it takes root to have another root directory")
    words = {key: value for key, value in recipe()}
    with tempfile.TemporaryDirectory(prefix="tarn-container.") as folder:
        root = pathlib.Path(folder)
        for path in ("usr/bin", "etc/tarn", "var/lib/tarn", "srv", "proc", "dev", "tmp"):
            (root / path).mkdir(parents=True)
        root.chmod(0o755)
        shutil.copy(BINARY, root / "usr/bin/tarn")
        for library in re.findall(r"(/\S+) \(0x", sh("ldd", BINARY).stdout):
            (root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, root / library[1:])
        user = words["USER"]
        for path in ("var/lib/tarn", "srv", "etc/tarn"):
            os.chown(root / path, *map(int, user.split(":")))
        port, admin_port = free_port(), free_port()
        (root / "etc/tarn/tarn.toml").write_text(
            f'[[lun]]\nid = "d"\nstore = "file:/srv/d.img?size=8M"\n[[target]]\nname = "{IQN}"\nportals = ["127.0.0.1:{port}"]\n'
            f'luns = [{{ lun = 0, id = "d" }}]\n[admin]\nlisten = ["127.0.0.1:{admin_port}"]\n')
        os.chown(root / "etc/tarn/tarn.toml", *map(int, user.split(":")))
        variables = dict(value.split("=", 1) for key, value in recipe() if key == "ENV")
        entry, command = json.loads(words["ENTRYPOINT"]), json.loads(words["CMD"])
        health = json.loads(words["HEALTHCHECK"].split(" CMD ")[1])
        equal(words["EXPOSE"].split(), ["3260", "3262"], "ports")

        def inside(arguments, **how):
            """A process of the container: its root, its user, only its variables, a /proc and a /dev of its own."""
            steps = 'mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot --userspec="$1" "$0" "${@:2}"'
            return ["unshare", "--mount", "bash", "-c", steps, str(root), user, *arguments], {"env": {"PATH": os.environ["PATH"], **variables}, **how}

        def status(arguments):
            command, how = inside(arguments)
            return sh(*command, **how)
        started, how = inside([*entry, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with subprocess.Popen(started, **how) as process:
            try:
                check(process.stdout.readline() != "", "tarn ended at its start")
                out = status([*entry, "status"])
                check(out.returncode == 0 and "/var/lib/tarn" in out.stdout, f"tarn status: {out.stdout}{out.stderr}")
                equal(status(health).returncode, 0, "the health check")
                with socket.create_connection(("127.0.0.1", admin_port), timeout=20):
                    pass
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(60)
        out = status(health)
        equal(out.returncode, 3, f"the health check without a daemon: {out.stdout}{out.stderr}")


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
            os.environ["WATCHDOG_USEC"] = "90000000"
            tarn = Tarn(config=config).start()
        finally:
            del os.environ["NOTIFY_SOCKET"]
            os.environ.pop("WATCHDOG_USEC", None)
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
            for _ in range(3):
                equal(manager.wait_for("WATCHDOG=1"), "WATCHDOG=1\n", "a sign of life")
            equal(tarn.terminate(), 0, "exit code")
            manager.wait_for("STOPPING=1")
        finally:
            tarn.close()


if __name__ == "__main__":
    harness.main()
