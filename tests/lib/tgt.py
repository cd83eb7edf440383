"""tgt as the one who has a device: a target with one LUN of any type it emulates."""
import contextlib
import os
import pathlib
import random
import shutil
import subprocess

import harness
from harness import check, wait_for
from tarn import free_port, listens

NAME = "iqn.2026-11.example.tgt:device"


class Tgt:
    """A daemon. `kill` and `start` are those of its process; what it serves has to be made anew."""

    def __init__(self, path):
        self.path, self.port, self.control = path, free_port(), str(random.randrange(1000, 30000))
        self.process = None

    def start(self):
        with open(self.path / "tgt.log", "ab") as log:
            self.process = subprocess.Popen(["tgtd", "-f", "-C", self.control, "-t", "1", "--iscsi",
                                             f"portal=127.0.0.1:{self.port}"], stdout=log, stderr=log)
        wait_for(lambda: self.ask("--op", "new", "--mode", "target", "--tid", "1", "-T", NAME), 30, "tgt serves")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def ask(self, *words):
        words = ["tgtadm", "-C", self.control, "--lld", "iscsi", *words]
        return subprocess.run(words, capture_output=True, timeout=30).returncode == 0

    def serve(self, image, *words):
        """Makes LUN 1 of a file, and lets all in."""
        lun = ["--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "-b", str(image), *words]
        check(self.ask(*lun), "tgt takes the file")
        check(self.ask("--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL"), "tgt lets all in")
        wait_for(lambda: listens(self.port), 30, "tgt listens")

    @property
    def store(self):
        return f"iscsi://127.0.0.1:{self.port}/{NAME}/1"


@contextlib.contextmanager
def tgt(path):
    """A daemon whose files are in this directory. Its socket for administrators is in a directory that only root can write to."""
    if os.getuid() != 0 or not shutil.which("tgtd"):
        harness.skip("tgt is not installed, or this is not root")
    pathlib.Path("/var/run/tgtd").mkdir(exist_ok=True)
    daemon = Tgt(path)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.kill()


def tape(path, megabytes=64):
    """A file that is a tape for tgt."""
    image = path / "tape.img"
    words = ["tgtimg", "--op", "new", "--device-type", "tape", "--barcode=TARN01", f"--size={megabytes}", "--type=data",
             f"--file={image}", "--thin-provisioning"]
    check(subprocess.run(words, capture_output=True, timeout=30).returncode == 0, "tgtimg makes a tape")
    return image
