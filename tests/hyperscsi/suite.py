#!/usr/bin/env python3
"""Devices of a Tarn over HyperSCSI: found, attached, used as stores, and there again after a restart.

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
from harness import check, equal, test, wait_for
from tarn import BINARY, IQN, Tarn, free_port, lun_section, run, target_section

MIB = 1 << 20
SIZE = 64 * MIB
CHUNK = 64 << 10
GROUP = "storage"
PASSWORD = "correct horse"


@contextlib.contextmanager
def directory():
    """A directory for files of a test."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="hyperscsi-test."))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def config(path, *names, level="hash"):
    """Files of this directory as devices of the group, over UDP at {port2}."""
    units = "".join(lun_section(name, f"file:{path}/{name}.img?size={SIZE}") for name in names)
    devices = "".join(f'[[hyperscsi.group.device]]\nid = "{name}"\nlevel = "{level}"\n' for name in names)
    group = f'[[hyperscsi.group]]\nname = "{GROUP}"\nudp = "127.0.0.1:{{port2}}"\npassword_file = "{path}/password"\n'
    return units + target_section(*names) + group + devices


@contextlib.contextmanager
def serve(*names, **how):
    """A Tarn with devices of these names, and the directory of their files."""
    with directory() as path:
        password = path / "password"
        password.touch(mode=0o600)
        password.write_text(PASSWORD + "\n")
        with Tarn(config=config(path, *names, **how)) as tarn:
            yield tarn, path


def place(tarn):
    return f"127.0.0.1:{tarn.port2}"


class Attached:
    """A device, or several, as an export of NBD."""

    def __init__(self, path, *arguments):
        self.socket, self.output = path / "nbd.sock", path / "attach.out"
        self.command = [BINARY, "attach", "--password-file", path / "password", "--as", f"nbd:{self.socket}", *arguments]
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(path)}
        self.url = f"nbd+unix:///?socket={self.socket}"

    def __enter__(self):
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen([str(part) for part in self.command], stdin=subprocess.DEVNULL, stdout=output,
                                            stderr=subprocess.STDOUT, env=self.environment)
        wait_for(self.is_served, 30, "the device is attached")
        return self

    def is_served(self):
        check(self.process.poll() is None, f"attach ended: {self.output.read_text()}")
        return "export disk" in self.output.read_text()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        equal(self.process.wait(30), 0, f"exit code of attach: {self.output.read_text()}")

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def convert(source, target, *options):
    subprocess.run(["qemu-img", "convert", *options, "-f", "raw", "-O", "raw", source, target], check=True, timeout=60)


def verify(url, seconds):
    return subprocess.Popen([BINARY, "bench", "--verify", "--overwrite", "--rw", "mixed", "--bs", "4k", "--iodepth", "16",
                             "--runtime", str(seconds), "--repeat", "1", url], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)


def good(running):
    said, _ = running.communicate(timeout=80)
    equal(running.returncode, 0, f"exit code of the bench: {said}")


@test
def servers_and_devices_are_found():
    """Who asks for the group finds the server; with the password the devices, with their sizes and levels; others find nothing."""
    with serve("a", "b", level="encrypt") as (tarn, path):
        asked = ("discover", "hyperscsi", "--udp", place(tarn), "--group", GROUP, "--json")
        [found] = json.loads(run(*asked).stdout)
        check(found["needs_password"] and "devices" not in found, f"{found}")
        [found] = json.loads(run(*asked, "--password-file", path / "password").stdout)
        devices = [(one["place"], one["name"], one["size_bytes"], one["level"]) for one in found["devices"]]
        equal(devices, [(1, "a", SIZE, "encrypt"), (2, "b", SIZE, "encrypt")], "devices")
        nothing = run("discover", "hyperscsi", "--udp", place(tarn), "--group", "other")
        check(nothing.returncode != 0 and "no server answers" in nothing.stderr, nothing.stderr)


@test
def a_wrong_password_and_an_unknown_device_are_refused():
    """Each is one line with the place and a remedy, and exit code 2."""
    with serve("a") as (tarn, path):
        url = f"hyperscsi://{GROUP}/a?udp={place(tarn)}"
        wrong = path / "wrong"
        wrong.touch(mode=0o600)
        wrong.write_text("another password\n")
        form = ("--as", f"nbd:{path}/s")
        for arguments, words in (
                (("attach", *form, "--password-file", wrong, url), "check the password"),
                (("attach", *form, "--password-file", path / "password", url.replace("/a?", "/z?")), 'there are "a"'),
                (("serve", "--state", path / "state", "--listen", f"127.0.0.1:{free_port()}", f"{url}&password_file={wrong}"),
                 "check the password")):
            done = run(*arguments)
            equal(done.returncode, 2, f"exit code; {done.stderr}")
            check(words in done.stderr and done.stderr.count("\n") == 1, done.stderr)


@test
def an_image_goes_in_and_comes_out():
    """64 MiB that qemu-img writes through `tarn attach` are in the file behind, and come back."""
    with serve("a") as (tarn, path):
        image, back = path / "image", path / "back"
        image.write_bytes(random.Random(3).randbytes(SIZE))
        with Attached(path, f"hyperscsi://{GROUP}/a?udp={place(tarn)}") as attached:
            convert(image, attached.url, "-n")
            convert(attached.url, back)
            attached.end()
        check(image.read_bytes() == back.read_bytes(), "other data comes back")
        check(image.read_bytes() == (path / "a.img").read_bytes(), "the file has other data")


@test
def several_devices_are_one_disk():
    """With --stripe the chunks of an image are on two devices in turn."""
    with serve("a", "b") as (tarn, path):
        image = path / "image"
        image.write_bytes(random.Random(4).randbytes(2 * SIZE))
        urls = [f"hyperscsi://{GROUP}/{name}" for name in "ab"]
        with Attached(path, "--udp", place(tarn), "--stripe", "64k", *urls) as attached:
            convert(image, attached.url, "-n")
            attached.end()
        data = memoryview(image.read_bytes())
        for number, name in enumerate("ab"):
            chunks = range(number * CHUNK, 2 * SIZE, 2 * CHUNK)
            expected = b"".join(data[at:at + CHUNK] for at in chunks)
            check((path / f"{name}.img").read_bytes() == expected, f"device {name} has other data")


@test(limit_s=120)
def verified_data_survives_restarts():
    """The server is killed three times under `tarn bench --verify` through `tarn attach`, which sees no error and no wrong
    block."""
    with serve("a") as (tarn, path):
        with Attached(path, "--retry", "60", f"hyperscsi://{GROUP}/a?udp={place(tarn)}") as attached:
            running = verify(attached.url, 12)
            for _ in range(3):
                time.sleep(1)
                tarn.kill()
                tarn.start()
            good(running)


@test
def a_device_is_a_store_of_another_tarn():
    """What is verified over iSCSI is on a device that is behind HyperSCSI, also with a small level and a confined process."""
    with serve("a", level="none") as (tarn, path):
        store = f"hyperscsi://{GROUP}/a?udp={place(tarn)}&password_file={path}/password&level=encrypt"
        text = lun_section("far", store) + target_section("far")
        with Tarn(config=text) as near:
            good(verify(f"iscsi://127.0.0.1:{near.port}/{IQN}/0", 2))


if __name__ == "__main__":
    harness.main()
