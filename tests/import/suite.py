#!/usr/bin/env python3
"""Configurations of other targets, imported and served: initiators find the names, LUN numbers, serial numbers and NAA
designators that they knew, and prove themselves as before.

    suite.py [--list] [PATTERN...]

What the other programs show stands here by hand, not taken from the importer.
"""
import dataclasses
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import tomllib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
import iscsi
import scsi
from harness import check, equal, measured, test
from tarn import BINARY, Tarn, run

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
AUTHENTICATION_FAILED, NOT_FOUND = 0x0201, 0x0203
HOST = "iqn.2026-11.example.host:a"
# Networks of the samples, which become that of this test.
NETWORKS = ["192.0.2.0/24"]

# What the exit code says.
CARRIED, LEFT_OUT, WRONG = 0, 1, 2


@dataclasses.dataclass
class Disk:
    """A disk as an initiator sees it: `None` is whatever Tarn makes."""
    file: str | None
    serial: str | None = None
    naa: str | None = None
    block: int = 512
    readonly: bool = False


@dataclasses.dataclass
class Target:
    """A target: what is behind each number, for whom, and with what proof (name, secret, mutual name and secret)."""
    name: str
    disks: dict
    tag: int = 1
    chap: tuple = ()
    initiator: str = HOST


@dataclasses.dataclass
class Sample:
    """A configuration of another program: its files, what it shows, who may ask for targets, secrets to be made by hand,
    files of disks that are written and that no target shows."""
    files: list
    targets: list
    finder: bool = True
    by_hand: tuple = ()
    unseen: tuple = ()


def alice(mutual_name, mutual_secret):
    return ("alice", "alice-secret-123", mutual_name, mutual_secret)


SAMPLES = {
    "tgt": Sample(["tgt/targets.conf"], [
        Target("iqn.2026-11.example.shop:store", {
            1: Disk("tgt/audit.img", "beaf81", "60000000000000000e00000000080001"),
            2: Disk("tgt/orders.img", "beaf82", "60000000000000000e00000000080002")},
            chap=alice("shop", "shop-secret-8901")),
        Target("iqn.2026-11.example.shop:archive", {
            5: Disk("tgt/archive.img", "ARC-7", "60000000000000000000a0c000e00007", 4096, readonly=True)})]),
    "tgt-show": Sample(["tgt-show/show.txt"], [
        Target("iqn.2026-11.example.shop:shown", {
            1: Disk("show/a.img", "beaf31", "60000000000000000e00000000030001"),
            300: Disk("show/b.img", "ARC-7", "60000000000000000000a0c000e00007", 4096, readonly=True)},
            chap=("carol", "made-by-hand-1"))],
        finder=False, by_hand=("carol.secret", "carol.mutual.secret")),
    "lio": Sample(["lio/saveconfig.json"], [
        Target("iqn.2026-11.example.lio:shop", {
            0: Disk("lio/db.img", "7e1f6f7c-0a52-4f0e-9a5b-3c2d1e0f4a5b", "60014057e1f6f7c0a524f0e9a5b3c2d1"),
            1: Disk("lio/log.img", "c0ffee00-1234-4abc-8def-00112233aabb", "6001405c0ffee0012344abc8def00112", 4096)},
            tag=2, chap=alice("shop", "shop-secret-8901")),
        Target("iqn.2026-11.example.lio:open", {
            3: Disk(None, "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee", "6001405aaaaaaaabbbb4ccc8dddeeeee")})],
        by_hand=("bob.secret",)),
    "scst": Sample(["scst/scst.conf"], [
        Target("iqn.2026-11.example.scst:office", {
            0: Disk("scst/mail.img", "4b1d0c2e", "6001405a5b6c7d8e9f00112233445566"),
            1: Disk("scst/home.img", "HOME-0001", block=4096, readonly=True)},
            chap=alice("office", "office-secret-1"), initiator="iqn.2026-11.example.desk:7"),
        Target("iqn.2026-11.example.scst:lab", {2: Disk("scst/plain.img", "2c9796ae")})]),
    "iet": Sample(["iet/ietd.conf", "iet/initiators.allow"], [
        Target("iqn.2026-11.example.iet:disk1", {
            0: Disk("iet/disk1.img", "IET-0001"),
            1: Disk("iet/disk2.img", "IET-0002")},
            chap=alice("iet", "iets-secret-5678")),
        Target("iqn.2026-11.example.iet:disk3", {
            7: Disk("iet/disk3.img", readonly=True),
            8: Disk(None, "NULL-8")})]),
    "istgt": Sample(["istgt/istgt.conf", "istgt/auth.conf"], [
        Target("iqn.2026-11.example.istgt:disk1", {
            0: Disk("istgt/disk1.img", "10000001", "30000000ffcdd763"),
            3: Disk("istgt/disk3.img", "10000001L3", "300000009def5e5a")},
            tag=3, chap=alice("istgt", "istgts-secret-99")),
        Target("iqn.2026-11.example.other:disk2", {
            0: Disk("istgt/disk2.img", "SER-2", "30000000b57e4dad", readonly=True)},
            tag=3)]),
    "ctl": Sample(["ctl/ctl.conf"], [
        Target("iqn.2026-11.example.ctl:shop", {
            0: Disk("ctl/shared.img", "SH-0001", "6589cfc000000b1c2d3e4f5061728394"),
            1: Disk("ctl/one.img", "ONE-1", block=4096)},
            tag=257, chap=alice("freebsd", "freebsd-secret-1")),
        Target("iqn.2026-11.example.ctl:open", {
            4: Disk("ctl/shared.img", "SH-0001", "6589cfc000000b1c2d3e4f5061728394"),
            5: Disk(None, readonly=True)},
            tag=9)], finder=False, unseen=("ctl/closed.img",)),
}


def marker(file):
    """What stands in the first block of a disk, so that the right one is known."""
    return f"this is {file}".encode().ljust(512, b".")


class Move(Tarn):
    """The move of one sample: its files with stores in a directory of the test, imported, and served from there."""

    def __init__(self, name):
        super().__init__(config="")
        self.sample = SAMPLES[name]
        self.output = self.dir / "tarn.toml"
        for source in (HERE / name).rglob("*"):
            if source.is_file():
                self.bring(source)
        for target in self.sample.targets:
            for disk in target.disks.values():
                if disk.file:
                    self.make_store(disk.file)
        for file in self.sample.unseen:
            self.make_store(file)

    def bring(self, source):
        """Copies a file of the sample, with paths and networks of this test."""
        text = source.read_text().replace("/srv/", f"{self.dir}/srv/")
        for network in NETWORKS:
            text = text.replace(network, "127.0.0.0/8")
        copy = self.dir / source.relative_to(HERE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text)

    def make_store(self, file):
        path = self.dir / "srv" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(marker(file))
        os.truncate(path, 32 * MIB)

    def run_import(self, *arguments):
        files = [self.dir / file for file in self.sample.files]
        # Nothing that this machine has is found below it.
        return run("import", *files, "--root", self.dir, "--listen", f"127.0.0.1:{self.port}", *arguments)

    def command(self):
        return [str(BINARY), "serve", "--config", str(self.output), "--state", str(self.dir / "state")]

    def make_secrets(self):
        """Does what the list asks for: puts the secrets that could not be carried over beside the configuration."""
        for number, name in enumerate(self.sample.by_hand, 1):
            path = self.dir / f"tarn.{name}"
            check(not path.exists(), f"{path} was to be made by hand")
            self.secret(path.name, f"made-by-hand-{number}")

    def login(self, target, **changes):
        """A session with the target, proved as it asks for."""
        keys = ("name", "secret", "mutual_name", "mutual_secret")
        chap = dict(zip(keys, target.chap)) or None
        return iscsi.Session(self.port, target.name, **{"initiator": target.initiator, "chap": chap, **changes})


def moved(name):
    """The sample, imported, with its secrets complete: ready to be served."""
    move = Move(name)
    try:
        done = move.run_import("-o", move.output)
        equal(done.returncode, LEFT_OUT, f"exit code of tarn import\n{done.stderr}")
        check(done.stderr.startswith(f"read as {name}: "), f"the format was not told by the text: {done.stderr}")
        move.make_secrets()
        checked = run("check", move.output)
        equal(checked.returncode, 0, f"exit code of tarn check\n{checked.stderr}")
    except BaseException:
        move.close()
        raise
    return move


def serial(session, lun):
    """The unit serial number, VPD page 80h."""
    data = session.command(scsi.inquiry(0x80), read=255, lun=lun).data
    return data[4:4 + data[3]].decode()


def check_disk(session, lun, disk):
    session.clear_unit_attentions(lun)
    got = serial(session, lun)
    equal(got, disk.serial or got, f"serial number of LUN {lun}")
    check(got.strip(), f"LUN {lun} has no serial number")
    names = scsi.device_names(session, lun)
    equal(names, [disk.naa] if disk.naa else names[:1], f"NAA designators of LUN {lun}")
    check(names, f"LUN {lun} has no NAA designator")
    equal(scsi.capacity(session, lun)[1], disk.block, f"block size of LUN {lun}")
    if disk.file:
        data = session.command(scsi.read16(0, 1), read=disk.block, lun=lun).data
        equal(data[:512], marker(disk.file), f"the first block of LUN {lun}")
    written = session.command(scsi.write16(8, 1), write=bytes(disk.block), lun=lun)
    equal(written.status, scsi.CHECK_CONDITION if disk.readonly else scsi.GOOD, f"status of a WRITE to LUN {lun}")


def luns(session):
    """The LUNs of REPORT LUNS."""
    data = session.command(scsi.report_luns(), read=4096, lun=0).data
    fields = [data[at:at + 8] for at in range(8, 8 + int.from_bytes(data[:4], "big"), 8)]
    return sorted(int.from_bytes(field[:2], "big") & 0x3fff for field in fields)


def check_target(tarn, target):
    with tarn.login(target) as session:
        equal(luns(session), sorted(target.disks), f"LUNs of {target.name}")
        equal(dict(session.answered).get("TargetPortalGroupTag"), str(target.tag), f"portal group tag of {target.name}")
        for lun, disk in target.disks.items():
            check_disk(session, lun, disk)


def check_proof(tarn, target):
    """A wrong secret and no proof at all are refused where CHAP is asked for."""
    name, secret, *_ = target.chap
    for chap in ({"name": name, "secret": secret + "x"}, {"name": "nobody", "secret": secret}, None):
        try:
            tarn.login(target, chap=chap).close()
        except iscsi.LoginError as error:
            equal(error.status, AUTHENTICATION_FAILED, f"login status of {target.name} with {chap}")
        else:
            raise harness.Failure(f"{target.name} lets {chap} in")


def check_discovery(tarn):
    """Discovery asks for the proof that it asked for, and tells whoever gives it all targets of the initiator, as
    the foreign one did."""
    chap = {"name": "finder", "secret": "finders-secret-1"} if tarn.sample.finder else None
    if chap:
        try:
            iscsi.Session(tarn.port, initiator=HOST).close()
            raise harness.Failure("discovery is open")
        except iscsi.LoginError as error:
            equal(error.status, AUTHENTICATION_FAILED, "login status of discovery without CHAP")
    with iscsi.Session(tarn.port, initiator=HOST, chap=chap) as session:
        names = [value for key, value in session.text({"SendTargets": "All"}) if key == "TargetName"]
    # The one of the samples is for discovery alone.
    its_own = [target.name for target in tarn.sample.targets if target.initiator == HOST]
    equal(sorted(names), sorted(its_own), "targets of discovery")


def round_trip(name):
    with moved(name) as tarn:
        check_discovery(tarn)
        for target in tarn.sample.targets:
            check_target(tarn, target)
            if target.chap:
                check_proof(tarn, target)
        disks = sum(len(target.disks) for target in tarn.sample.targets)
        measured(f"{len(tarn.sample.targets)} targets, {disks} disks")


for format_name in SAMPLES:
    def case(name=format_name):
        round_trip(name)
    case.__doc__ = f"What {format_name} showed, Tarn shows: names, LUN numbers, serial numbers, NAA, proof."
    harness.add(f"{format_name.replace('-', '_')}_moves_unnoticed", case)


@test
def a_group_is_still_needed_to_see_a_disk():
    """An initiator that the other target did not list sees no disk, and may not even log in."""
    with moved("scst") as tarn:
        try:
            tarn.login(tarn.sample.targets[0], initiator="iqn.2026-11.example.stranger:1").close()
            raise harness.Failure("a stranger is let in")
        except iscsi.LoginError as error:
            equal(error.status, NOT_FOUND, "login status of a stranger")


def secrets_of(move):
    """Every secret that stands in the files of a sample."""
    words = set()
    for target in move.sample.targets:
        words.update(target.chap[1::2])
    return words | {"finders-secret-1"}


@test
def secrets_go_into_private_files_and_nowhere_else():
    """With -o each secret lies in a file of mode 0600; neither the configuration nor anything printed has one."""
    move = Move("lio")
    try:
        done = move.run_import("-o", move.output)
        printed = done.stdout + done.stderr + move.output.read_text()
        told = run("import", move.dir / "lio/saveconfig.json", "--json").stdout
        for secret in secrets_of(move):
            check(secret not in printed and secret not in told, f"the secret {secret} is shown")
        files = sorted(move.dir.glob("tarn.*.secret"))
        names = ["tarn.alice.mutual.secret", "tarn.alice.secret", "tarn.finder.secret"]
        equal([file.name for file in files], names, "secret files")
        for file in files:
            equal(stat.S_IMODE(file.stat().st_mode), 0o600, f"mode of {file.name}")
        check("tarn.bob.secret: to be made" in done.stderr, done.stderr)
    finally:
        move.close()


@test
def a_readable_file_with_secrets_is_warned_of():
    """A file of the other target that others may read is named if it holds secrets."""
    move = Move("lio")
    try:
        file = move.dir / "lio/saveconfig.json"
        for mode, is_warned in ((0o644, True), (0o640, True), (0o600, False)):
            file.chmod(mode)
            equal("others may read it" in move.run_import().stderr, is_warned, f"warned with mode {mode:o}")
    finally:
        move.close()


@test
def nothing_is_overwritten():
    """Where a file of the result is there already, the import ends with 2 and leaves no other behind."""
    move = Move("lio")
    try:
        for name in ("tarn.toml", "tarn.alice.secret"):
            (move.dir / name).write_text("mine")
            done = move.run_import("-o", move.output)
            equal(done.returncode, WRONG, f"exit code with {name} in the way")
            check(name in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr)
            left = {path.name for path in move.dir.glob("tarn.*")}
            equal(left, {name}, "files that are there")
            equal((move.dir / name).read_text(), "mine", name)
            (move.dir / name).unlink()
    finally:
        move.close()


@test
def the_exit_code_tells_whether_something_was_left_out():
    """0 when everything was imported, 1 when not, 2 with one line when nothing can be read."""
    whole = '{"storage_objects": [{"plugin": "fileio", "name": "d", "dev": "/d", "wwn": "W1", "write_back": true}], "targets": ' \
        '[{"fabric": "iscsi", "wwn": "iqn.2026-11.example:t", "tpgs": [{"tag": 1, "attributes": {"authentication": 0, "generate_node_acls": 1, ' \
        '"demo_mode_write_protect": 0}, "portals": [{"ip_address": "127.0.0.1", "port": 3260}], ' \
        '"luns": [{"index": 0, "storage_object": "/backstores/fileio/d"}]}]}]}'
    part = whole.replace('"write_back"', '"node": {}, "write_back"').replace('"targets"', '"x": 0, "targets"')
    part = part.replace('[{"plugin"', '[{"plugin": "ramdisk2", "name": "p"}, {"plugin"')
    for text, arguments, code, word in [
            (whole, [], CARRIED, "0 left out"), (part, [], LEFT_OUT, "ramdisk2"),
            ("hello\n", [], WRONG, "name it"), ("{\n\"targets\": [}\n", [], WRONG, ":2: "),
            ("<target x>\n", ["tgt"], WRONG, "is not closed"), (whole, ["--listen", "here"], WRONG, "--listen")]:
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory) / "f"
            file.write_text(text)
            done = run("import", *arguments, file) if arguments[:1] != ["--listen"] else run("import", file, *arguments)
            equal(done.returncode, code, f"exit code for {text[:20]!r}\n{done.stderr}")
            check(word in done.stderr, f"{word!r} is not told: {done.stderr}")
            if code == WRONG:
                equal(len(done.stderr.splitlines()), 1, f"lines of {done.stderr}")
            if code != CARRIED:
                told = run("import", *arguments, file, "--json") if arguments[:1] != ["--listen"] else done
                check(word in told.stdout + told.stderr, f"{word!r} is not told with --json: {told.stdout}")
    done = run("import", "lio", "/nonexistent/saveconfig.json")
    equal(done.returncode, WRONG, "exit code without a file")
    check("/nonexistent/saveconfig.json" in done.stderr, done.stderr)


@test
def what_is_not_imported_has_its_reasons_in_the_list():
    """A file without a disk for Tarn ends with 2, and a target that lets nobody in leaves its disk: the list says why,
    for people and for programs."""
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory) / "saveconfig.json"
        file.write_text('{"storage_objects": [{"plugin": "pscsi", "name": "p", "dev": "tape"}], "targets": []}')
        for path, code, word in ((file, WRONG, "no SCSI device has the address tape"), (HERE / "cases/silent.conf", LEFT_OUT, "its auth-group lets nobody in")):
            listed = run("import", path)
            equal(listed.returncode, code, f"exit code for {path.name}\n{listed.stderr}")
            check(word in listed.stderr, f"{word!r} is not in the list: {listed.stderr}")
            told = run("import", path, "--json")
            equal(told.returncode, code, f"exit code with --json for {path.name}")
            report = json.loads(told.stdout)
            check(any(word in note["message"] for note in report["notes"]), f"{word!r} is not in {report}")
            equal("error" in report, code == WRONG, "whether the report has an error")


def add_device(root, address, kind, node, name):
    """A SCSI device in a file system: what the kernel has of it below /sys, and a name that stays."""
    device = root / "sys/devices/host7" / address
    (device / "scsi_generic" / node).mkdir(parents=True)
    for file, text in (("type", kind), ("vendor", "STK     "), ("model", "L700            ")):
        (device / file).write_text(f"{text}\n")
    listed = root / "sys/class/scsi_device" / address
    listed.mkdir(parents=True)
    (listed / "device").symlink_to(device)
    (root / "dev/tape/by-id").mkdir(parents=True, exist_ok=True)
    (root / "dev/tape/by-id" / name).symlink_to(f"../../{node}")


@test
def devices_are_passed_on_by_their_paths_and_addresses():
    """tgt and LIO name devices by paths, SCST by addresses, which lead to names that stay; what is not there, or of another
    type, is left out with the reason, and so is a handler that moves no data."""
    cases = HERE / "cases"
    wanted = {"passed.targets.conf": ["/dev/bsg/3:0:0:0", "/dev/disk/by-id/usb-HL-DT-ST_BD-RE_BU40N-0:0", "/dev/sg10", "/dev/sg2", "/dev/sg5"],
              "passed.show.txt": ["/dev/sg4"],
              "passed.scst.conf": ["/dev/tape/by-id/scsi-1STK_L700", "/dev/tape/by-id/scsi-350011d00018a5f03"],
              "passed.json": ["/dev/st0", "/dev/tape/by-id/scsi-1STK_L700"]}
    reasons = {"passed.scst.conf": ["no SCSI device has the address 7:0:3:0", "its type is 1, not 0", "dev_tape_perf answers"],
               "passed.json": ["no SCSI device has the address 7:0:9:0"]}
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        add_device(root, "7:0:0:0", 8, "sg3", "scsi-1STK_L700")
        add_device(root, "7:0:1:0", 1, "sg4", "scsi-350011d00018a5f03")
        add_device(root, "7:0:2:0", 1, "sg5", "scsi-350011d00018a5f04")
        for file, devices in wanted.items():
            output = root / f"{file}.toml"
            done = run("import", cases / file, "--root", root, "-o", output)
            equal(done.returncode, LEFT_OUT, f"exit code for {file}\n{done.stderr}")
            stores = tomllib.loads(output.read_text())["lun"]
            equal(sorted(unit["store"] for unit in stores), [f"scsi:{device}" for device in devices], f"stores of {file}")
            for words in reasons.get(file, []):
                check(words in done.stderr, f"{words!r} is not in the list: {done.stderr}")
            checked = run("check", output)
            equal(checked.returncode, 0, f"exit code of tarn check for {file}\n{checked.stderr}")


@test
def only_regular_files_are_read_and_others_are_not_shown():
    """A pipe and a device are refused at once; a line of an included file that is no configuration is not quoted."""
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        os.mkfifo(directory / "pipe")
        for path in (directory / "pipe", pathlib.Path("/dev/zero"), directory):
            done = run("import", "lio", path)
            equal(done.returncode, WRONG, f"exit code for {path}")
            check("is not a regular file" in done.stderr, done.stderr)
        (directory / "shadow").write_text("root:$6$salt$hash:19000::::::\n")
        (directory / "targets.conf").write_text("default-driver iscsi\ninclude shadow\n")
        done = run("import", directory / "targets.conf", "--json")
        equal(done.returncode, WRONG, "exit code for an included file that is none")
        check("shadow:1: this included file" in done.stderr, done.stderr)
        check("hash" not in done.stderr + done.stdout, f"a line is shown: {done.stderr}")


@test
def json_has_all_that_people_are_told():
    """--json gives the format, every note with its place, the secrets to be made, and the configuration."""
    move = Move("tgt-show")
    try:
        listed = move.run_import()
        report = json.loads(move.run_import("--json").stdout)
        equal(report["format"], "tgt-show", "format")
        equal(report["toml"], listed.stdout, "the configuration")
        for note in report["notes"]:
            check(note["message"] in listed.stderr, f"{note} is not in the list")
        equal([secret["written"] for secret in report["secrets"]], [False, False], "secrets that were written")
        severities = {note["severity"] for note in report["notes"]}
        equal(severities, {"left-out", "changed", "carried"}, "severities")
    finally:
        move.close()


RESIDENT_BYTES_MAX = 350_000_000
MANY = 200_000


def many_targets(folder):
    """Files with so many targets, of some 10 MB each, by their format."""
    name = "iqn.2026-11.example:t{:06d}"
    (folder / "targets.conf").write_text("".join(f"<target {name.format(n)}>\n</target>\n" for n in range(MANY)))
    group = 'portal-group pg { listen 192.0.2.1 }\nauth-group ag { auth-type none }\n'
    one = "target {} {{ portal-group pg\nauth-group ag }}\n"
    (folder / "ctl.conf").write_text(group + "".join(one.format(name.format(n)) for n in range(MANY)))
    return [folder / "targets.conf", folder / "ctl.conf"]


@test(limit_s=300)
def point_7_a_large_file_takes_little_memory():
    """200,000 targets: all of them are in the result, and the process never had 350 MB, whether the result goes into a file, to the
    standard output, or is JSON."""
    with tempfile.TemporaryDirectory(prefix="tarn-many.") as folder:
        folder = pathlib.Path(folder)
        for number, file in enumerate(many_targets(folder)):
            for ways in ([], ["-o", folder / f"{number}.toml"], ["--json"]):
                out = folder / "out"
                with open(out, "wb") as stream:
                    process = subprocess.Popen([BINARY, "import", file, *ways], stdin=subprocess.DEVNULL, stdout=stream,
                                               stderr=subprocess.DEVNULL)
                    _, status, used = os.wait4(process.pid, 0)
                    process.returncode = os.waitstatus_to_exitcode(status)
                check(process.returncode in (CARRIED, LEFT_OUT), f"exit code {process.returncode} of {file.name} {ways}")
                result = ways[1] if ways[:1] == ["-o"] else out
                equal(result.read_bytes().count(b"[[target]]"), MANY, f"targets of {file.name} {ways}")
                resident = used.ru_maxrss * 1024
                measured(f"{file.name} of {file.stat().st_size / 1e6:.1f} MB: {resident / 1e6:.0f} MB")
                check(resident < RESIDENT_BYTES_MAX, f"{resident} bytes resident for {file.name} {ways}")


if __name__ == "__main__":
    harness.main()
