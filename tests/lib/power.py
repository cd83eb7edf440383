"""A disk whose power can be cut, with a file system on it: it loses all that was not flushed."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile

from faultfs import FaultFs
from harness import skip
from reflinks import MKFS


def call(*words):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def copy(source, target):
    call("cp", "--sparse=always", source, target)


class Disk:
    """`mount()` and `unmount()` it; `cut()` takes its power away while it is mounted, and leaves it unmounted."""

    def __init__(self, kind, size, directory):
        self.directory = directory
        self.image, self.stable, self.mount_point = directory / "image", directory / "stable", directory / "mounted"
        self.mount_point.mkdir()
        with open(self.image, "wb") as file:
            file.truncate(size)
        call(*MKFS[kind], self.image)
        self.size, self.cache, self.loop, self.at = size, None, None, None

    def mount(self, at=None):
        """Mounts it with a volatile cache of its own, as another device each time."""
        copy(self.image, self.stable)
        self.cache = FaultFs(self.size, direct_io=False, stable=self.stable)
        copy(self.image, self.cache.backing)
        self.cache.__enter__()
        self.loop = call("losetup", "--find", "--show", self.cache.path)
        self.at = at or self.mount_point
        call("mount", self.loop, self.at)

    def _detach(self):
        if self.loop:
            call("umount", self.at)
            call("losetup", "-d", self.loop)
            self.loop = None
        self.cache.__exit__()
        self.cache = None

    def unmount(self):
        self._detach()
        copy(self.stable, self.image)

    def cut(self):
        copy(self.stable, self.image)
        self._detach()


@contextlib.contextmanager
def disk(kind="xfs", size=512 << 20):
    if os.geteuid() != 0:
        skip("mounting a file system needs root")
    directory = pathlib.Path(tempfile.mkdtemp(prefix="power-test."))
    try:
        it = Disk(kind, size, directory)
    except FileNotFoundError:
        skip(f"there is no {MKFS[kind][0]}")
    try:
        yield it
    finally:
        if it.cache:
            with contextlib.suppress(subprocess.SubprocessError):
                it._detach()
        shutil.rmtree(directory, ignore_errors=True)
