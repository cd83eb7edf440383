"""Stores that hang in every way a store can: a FUSE file in each of its modes, a block device behind a FUSE file, an image on
ext4 on that device. Each is a context that gives a HungStore; leaving it lets everything go first, so that nothing stays
mounted whatever a test did.
"""
import contextlib
import os
import pathlib
import subprocess
import tempfile
import time

import harness
from faultfs import FaultFs

MIB = 1 << 20
SIZE = 64 * MIB


class HungStore:
    """`path` is what Tarn serves; stop() lets its reads and writes hang, go() ends that."""

    def __init__(self, fs, path, hang):
        self.fs, self.path, self.hang = fs, path, hang

    def stop(self):
        self.fs.is_stubborn = True
        self.fs.hang = self.hang

    def go(self):
        self.fs.release()
        self.fs.is_stubborn = False


@contextlib.contextmanager
def fuse(hang=("read", "write", "fsync", "getattr", "lseek", "fallocate"), **mode):
    with FaultFs(SIZE, **mode) as fs:
        store = HungStore(fs, fs.path, hang)
        try:
            yield store
        finally:
            store.go()


def _run(*command, check=True):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=30, check=False)
    if check and done.returncode:
        raise OSError(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def _until_it_works(*command):
    """For what is busy for as long as a killed process has its last operation in the kernel."""
    for _ in range(100):
        if subprocess.run([str(part) for part in command], capture_output=True, timeout=30, check=False).returncode == 0:
            return
        time.sleep(0.1)


def _needs_root():
    if os.geteuid() or not os.path.exists("/dev/loop-control"):
        harness.skip("needs root and loop devices")


@contextlib.contextmanager
def loop_device():
    """A block device whose medium is a FUSE file."""
    _needs_root()
    with fuse(hang=("read", "write", "fsync", "fallocate")) as store:
        device = pathlib.Path(_run("losetup", "--find", "--show", store.path))
        try:
            yield HungStore(store.fs, device, store.hang)
        finally:
            store.go()
            _until_it_works("losetup", "-d", device)


@contextlib.contextmanager
def image_on_ext4(in_pieces=False):
    """A file on ext4 on such a device, with data that no cache has; `in_pieces` where that lies is in no cache, either."""
    with loop_device() as store, tempfile.TemporaryDirectory(prefix="hungstore.") as directory:
        _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", store.path)
        _run("mount", store.path, directory)
        try:
            image = pathlib.Path(directory, "disk.img")
            with open(image, "wb") as file:
                for n in range(5120 if in_pieces else 40):
                    if in_pieces:
                        file.seek(n * 8192)
                    file.write(os.urandom(4096 if in_pieces else MIB))
                file.truncate(40 * MIB)
                file.flush()
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if in_pieces:
                _run("umount", directory)
                _run("mount", store.path, directory)
            yield HungStore(store.fs, image, store.hang)
        finally:
            store.go()
            _until_it_works("umount", directory)
