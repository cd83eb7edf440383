#!/usr/bin/env python3
"""Disks of iSCSI targets as stores: a Tarn before another one, or before tgt, and `tarn attach`.

    suite.py [--list] [PATTERN...]
"""
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import harness
import iscsi
import scsi
from harness import check, equal, test, wait_for
from tarn import BINARY, IQN, Tarn, free_port, listens, lun_section, refusal, run, target_section

MIB = 1 << 20
SIZE = 64 * MIB
SECRET, MUTUAL, WRONG = "a secret of alice", "a secret of the target", "a wrong secret of nobody"
NEAR = "iqn.2026-11.example.near:test"
TGT = "iqn.2026-11.example.tgt:disk"


@contextlib.contextmanager
def directory():
    """A directory for files of a test."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="gateway-test."))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def secret(path, text):
    """A file with a secret, which nobody else may read."""
    path.touch(mode=0o600)
    path.write_text(text + "\n")
    return path


@contextlib.contextmanager
def far(path, size=SIZE, auth=False):
    """A target with the file `far.img` of this directory as LUN 0."""
    text = lun_section("far", f"file:{path}/far.img?size={size}")
    if auth:
        secret(path / "alice", SECRET)
        secret(path / "target", MUTUAL)
        text += f'[[user]]\nname = "alice"\nsecret_file = "{path}/alice"\n' \
                f'mutual = {{ name = "the target", secret_file = "{path}/target" }}\n'
    with Tarn(config=text + target_section("far", auth="alice" if auth else None)) as tarn:
        yield tarn


def disk(tarn, *options, host="127.0.0.1"):
    """The disk of a Tarn as a STORE."""
    joined = "?" + "&".join(options) if options else ""
    return f"iscsi://{host}:{tarn.port}/{IQN}/0{joined}"


def gateway(store, more=""):
    """A configuration with this store, by iSCSI at {port} and by NBD at {port2}."""
    return lun_section("near", store) + target_section("near", name=NEAR) + \
        f'[[nbd]]\nbind = "127.0.0.1:{{port2}}"\nluns = ["near"]\n{more}'


def near_url(near):
    return f"iscsi://127.0.0.1:{near.port}/{NEAR}/0"


def nbd(near):
    return f"nbd://127.0.0.1:{near.port2}/near"


def convert(source, target, *options):
    subprocess.run(["qemu-img", "convert", *options, "-f", "raw", "-O", "raw", source, target], check=True, timeout=60)


def verify(url, seconds):
    return subprocess.Popen([BINARY, "bench", "--verify", "--overwrite", "--rw", "mixed", "--bs", "4k", "--iodepth", "16",
                             "--runtime", str(seconds), "--repeat", "1", url], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)


def good(running):
    said, _ = running.communicate(timeout=100)
    equal(running.returncode, 0, f"exit code of the bench: {said}")


def refused(done, *words):
    """One line with all of these words, and exit code 2."""
    equal(done.returncode, 2, f"exit code; {done.stderr}")
    check(done.stderr.count("\n") == 1 and all(word in done.stderr for word in words), done.stderr)


class Attached:
    """A disk as an export of NBD."""

    def __init__(self, path, *arguments):
        self.socket, self.output = path / "nbd.sock", path / "attach.out"
        self.command = [BINARY, "attach", "--as", f"nbd:{self.socket}", *arguments]
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(path)}
        self.environment.pop("TARN_PASSWORD", None)
        self.url = f"nbd+unix:///?socket={self.socket}"

    def __enter__(self):
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen([str(part) for part in self.command], stdin=subprocess.DEVNULL, stdout=output,
                                            stderr=subprocess.STDOUT, env=self.environment)
        wait_for(self.is_served, 30, "the disk is attached")
        return self

    def is_served(self):
        said = self.output.read_text()
        check(self.process.poll() is None, f"attach ended: {said}")
        return "export disk" in said

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        equal(self.process.wait(60), 0, f"exit code of attach: {self.output.read_text()}")

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


@test
def an_image_goes_through_a_gateway_and_comes_back():
    """64 MiB that qemu-img writes by NBD are in the file behind the far target, and come back; the bench verifies the same disk
    by iSCSI. The process is confined."""
    with directory() as path, far(path) as tarn:
        image, back = path / "image", path / "back"
        image.write_bytes(random.Random(3).randbytes(SIZE))
        with Tarn(config=gateway(disk(tarn))) as near:
            convert(image, nbd(near), "-n")
            convert(nbd(near), back)
            check(image.read_bytes() == back.read_bytes(), "other data comes back")
            check(image.read_bytes() == (path / "far.img").read_bytes(), "the file has other data")
            [lun] = near.api().get("luns")
            equal(lun["size_bytes"], SIZE, "size")
            good(verify(near_url(near), 2))


@test
def the_short_form_serves_a_disk_of_a_target():
    """`tarn serve iscsi://...` without any file."""
    with directory() as path, far(path) as tarn:
        with Tarn(disk(tarn)) as near:
            good(verify(near.url(), 2))


@test
def both_sides_prove_who_they_are():
    """With the right secrets the disk is served; a wrong one of either side, or none, is one line with the place and a remedy,
    and exit code 2."""
    with directory() as path, far(path, auth=True) as tarn:
        wrong = secret(path / "wrong", WRONG)
        right = ("user=alice", f"password_file={path}/alice")
        mutual = "mutual_user=the target"
        with Tarn(config=gateway(disk(tarn, *right, mutual, f"mutual_password_file={path}/target"))) as near:
            good(verify(near_url(near), 1))
        serve = ("serve", "--state", path / "state", "--listen", f"127.0.0.1:{free_port()}")
        place = f"iscsi://127.0.0.1:{tarn.port}/{IQN}/0"
        refused(run(*serve, disk(tarn)), place, "the target wants CHAP; add user= and password_file=")
        refused(run(*serve, disk(tarn, "user=alice", f"password_file={wrong}")), place, "check user= and the secret")
        refused(run(*serve, disk(tarn, *right, mutual, f"mutual_password_file={wrong}")), place, "check the secrets of both sides")
        refused(run(*serve, disk(tarn, "user=alice")), "wants both user and password_file")
        refused(run("attach", "--as", f"nbd:{path}/s", "--password-file", wrong, disk(tarn, "user=alice")), "check user=")
        with Attached(path, "--password-file", path / "alice", disk(tarn, "user=alice")) as attached:
            good(verify(attached.url, 1))
            attached.end()


@test
def what_is_not_there_is_said_in_one_line():
    """No target at the port, no target of the name, no LUN of the number."""
    with directory() as path, far(path) as tarn:
        serve = ("serve", "--state", path / "state", "--listen", f"127.0.0.1:{free_port()}")
        refused(run(*serve, f"iscsi://127.0.0.1:{free_port()}/{IQN}/0"), "cannot connect", "check host and port")
        refused(run(*serve, disk(tarn).replace(IQN, f"{IQN}2")), "there is no such target; check its name")
        refused(run(*serve, disk(tarn).replace("/0", "/7")), "no such LUN", "check the number")


@test
def a_disk_is_attached_as_nbd():
    """64 MiB that qemu-img writes through `tarn attach iscsi://...` are in the file behind, and come back."""
    with directory() as path, far(path) as tarn:
        image, back = path / "image", path / "back"
        image.write_bytes(random.Random(4).randbytes(SIZE))
        with Attached(path, disk(tarn)) as attached:
            convert(image, attached.url, "-n")
            convert(attached.url, back)
            attached.end()
        check(image.read_bytes() == back.read_bytes(), "other data comes back")
        check(image.read_bytes() == (path / "far.img").read_bytes(), "the file has other data")


@test
def disks_of_two_targets_are_one():
    """With --stripe the chunks of an image are on two disks in turn."""
    with directory() as one, directory() as two, far(one) as first, far(two) as second:
        image, chunk = one / "image", 64 << 10
        image.write_bytes(random.Random(6).randbytes(2 * SIZE))
        with Attached(one, "--stripe", "64k", disk(first), disk(second)) as attached:
            convert(image, attached.url, "-n")
            attached.end()
        data = memoryview(image.read_bytes())
        for number, path in enumerate((one, two)):
            expected = b"".join(data[at:at + chunk] for at in range(number * chunk, 2 * SIZE, 2 * chunk))
            check((path / "far.img").read_bytes() == expected, f"disk {number} has other data")


@test(limit_s=150)
def verified_data_survives_restarts_of_the_target():
    """The far Tarn is killed three times under `tarn bench --verify` through the gateway, which sees no error and no wrong
    block. The next flush fails once, as the cache of the target may be lost."""
    with directory() as path, far(path) as tarn:
        with Tarn(config=gateway(disk(tarn, "retry=60"))) as near:
            running = verify(near_url(near), 12)
            for _ in range(3):
                time.sleep(1)
                tarn.kill()
                tarn.start()
            good(running)
            near.await_log("is lost")
            # A target that was killed may have lost its cache; the next flush of the one that wrote says so, once.
            equal(io(near, "flush")[0], 0, "a flush of another one")
            with iscsi.Session(near.port, NEAR, initiator="iqn.2026-11.example.tarn:bench", timeout_s=30) as session:
                session.clear_unit_attentions()
                check(not session.command(scsi.synchronize_cache16()).good, "no flush reports that the target was off")
                check(session.command(scsi.synchronize_cache16()).good, "the flush after it")


def io(near, *commands):
    """What qemu-io says to these commands, and its exit code. Its cache is off: a flush is a flush."""
    words = [word for command in commands for word in ("-c", command)]
    done = subprocess.run(["qemu-io", "-f", "raw", "-t", "none", *words, nbd(near)], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


@test(limit_s=120)
def an_outage_is_shown_and_passes():
    """A target that is stopped for longer than `retry`: reads fail, the outage is in `tarn status` and the metrics, and what is
    read when it goes on is what was written. No error is one of the medium."""
    with directory() as path, far(path) as tarn:
        with Tarn(config=gateway(disk(tarn, "retry=2"))) as near:
            equal(io(near, "write -P 7 0 64k", "flush")[0], 0, "write")
            harness.suspend(tarn.process.pid)
            try:
                code, said = io(near, "read 0 64k")
                check(code != 0, f"a read without the target: {said}")
                [lun] = near.api().get("luns")
                check("does not answer" in json.dumps(lun), f"no outage in {lun}")
            finally:
                tarn.process.send_signal(signal.SIGCONT)
            wait_for(lambda: io(near, "read -P 7 0 64k")[0] == 0, 60, "a read when the target goes on")
            # The same target went on, with its cache: nothing is lost.
            equal(io(near, "write -P 8 0 64k", "flush", "read -P 8 0 64k")[0], 0, "flush")


@test
def one_disk_is_one_store():
    """Of two LUNs with one disk by two addresses the second is not served, and a plan refuses it, with the place; so it is with an own
    LUN."""
    with directory() as path, far(path) as tarn:
        twice = lun_section("near", disk(tarn)) + lun_section("again", disk(tarn, host="localhost"))
        file = path / "twice.toml"
        file.write_text(twice + target_section("near", "again", name=NEAR).replace("{port}", str(free_port())))
        said = refusal("--config", file, "--state", path / "state")
        check("it is the disk that iscsi://" in said and "lun[1].store" in said, said)
        with Tarn(config=gateway(disk(tarn))) as near:
            text = (near.dir / "tarn.toml").read_text()
            for store, word in ((disk(tarn, host="localhost"), "it is the disk that iscsi://"),
                                (near_url(near), "is an export of this Tarn itself")):
                (near.dir / "tarn.toml").write_text(text + lun_section("again", store))
                done = subprocess.run([BINARY, "apply", near.dir / "tarn.toml"], capture_output=True, text=True, timeout=60,
                                      env=near.environment())
                check(done.returncode != 0 and word in done.stdout + done.stderr, f"{done}")
            (near.dir / "tarn.toml").write_text(text)


@test
def a_larger_disk_is_seen():
    """The far disk grows: the gateway has the new size, and writes what is new."""
    with directory() as path, far(path, size=8 * MIB) as tarn:
        with Tarn(config=gateway(disk(tarn))) as near:
            done = subprocess.run([BINARY, "lun", "resize", "far", "16M"], capture_output=True, text=True, timeout=60,
                                  env=tarn.environment())
            equal(done.returncode, 0, f"{done}")

            def has_grown():
                # A command is what the target tells it by.
                io(near, "read 0 512")
                [lun] = near.api().get("luns")
                return lun["size_bytes"] == 16 * MIB
            wait_for(has_grown, 30, "the new size")
            equal(io(near, "write -P 5 12M 64k", "flush")[0], 0, "a write to the new part")
            equal((path / "far.img").read_bytes()[12 * MIB:][:64 << 10], bytes([5]) * (64 << 10), "the new part")


@contextlib.contextmanager
def tgt(path):
    """tgt with a file as LUN 1, at a port. Its socket for administrators is in a directory that only root can write to."""
    if os.getuid() != 0 or not shutil.which("tgtd"):
        harness.skip("tgt is not installed, or this is not root")
    port, control = free_port(), str(random.randrange(1000, 30000))
    pathlib.Path("/var/run/tgtd").mkdir(exist_ok=True)
    image = path / "tgt.img"
    with open(image, "wb") as file:
        file.truncate(SIZE)
    with open(path / "tgt.log", "wb") as log:
        process = subprocess.Popen(["tgtd", "-f", "-C", control, "-t", "1", "--iscsi", f"portal=127.0.0.1:{port}"], stdout=log,
                                   stderr=log)

    def ask(*words):
        return subprocess.run(["tgtadm", "-C", control, "--lld", "iscsi", *words], capture_output=True, timeout=30).returncode == 0
    try:
        wait_for(lambda: ask("--op", "new", "--mode", "target", "--tid", "1", "-T", TGT), 30, "tgt serves")
        check(ask("--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "-b", str(image)), "tgt takes the file")
        check(ask("--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL"), "tgt lets all in")
        wait_for(lambda: listens(port), 30, "tgt listens")
        yield f"iscsi://127.0.0.1:{port}/{TGT}/1", image
    finally:
        process.kill()
        process.wait()


@test
def a_disk_of_tgt_is_a_store():
    """64 MiB through Tarn are in the file behind tgt, and the bench verifies the disk."""
    with directory() as path, tgt(path) as (store, behind):
        image = path / "image"
        image.write_bytes(random.Random(7).randbytes(SIZE))
        with Tarn(config=gateway(store)) as near:
            convert(image, nbd(near), "-n")
            check(image.read_bytes() == behind.read_bytes(), "the file has other data")
            good(verify(near_url(near), 2))


if __name__ == "__main__":
    harness.main()
