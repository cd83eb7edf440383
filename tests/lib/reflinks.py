"""File systems that share blocks between files, daemons whose LUNs lie on them, and writes at random places of such a LUN."""
import contextlib
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import threading
import time

import iscsi
import scsi
from harness import check, equal, skip, wait_for
from tarn import BINARY, IQN, Tarn, lun_section, target_section

MIB = 1 << 20
GIB = 1 << 30
BLOCK = 512
PIECE = 64 << 10
MKFS = {"xfs": ["mkfs.xfs", "-q", "-m", "reflink=1"], "btrfs": ["mkfs.btrfs", "-q"], "ext4": ["mke2fs", "-q", "-t", "ext4"]}
# Exit code of a command that did what it was for.
DONE = 0


@contextlib.contextmanager
def file_system(kind, size=GIB):
    """A directory on a new file system of this kind."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="snapshot-test."))
    image, mounted = place / "image", place / "mounted"
    try:
        if os.geteuid() != 0:
            skip("mounting a file system needs root")
        with open(image, "wb") as file:
            file.truncate(size)
        try:
            subprocess.run([*MKFS[kind], str(image)], check=True, capture_output=True)
        except FileNotFoundError:
            skip(f"there is no {MKFS[kind][0]}")
        mounted.mkdir()
        done = subprocess.run(["mount", "-o", "loop", str(image), str(mounted)], capture_output=True, text=True)
        if done.returncode:
            skip(f"{kind} cannot be mounted here: {done.stderr.strip()}")
        try:
            yield mounted
        finally:
            subprocess.run(["umount", "-l", str(mounted)], check=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)


class Daemon(Tarn):
    """A daemon with these LUNs, and tarn with its socket."""

    def __init__(self, luns, more="", config=None):
        luns = {id: str(store) for id, store in luns.items()}
        sections = "".join(lun_section(id, store) for id, store in luns.items())
        super().__init__(config=config or sections + target_section(*luns) + more)

    def run(self, *arguments, code=DONE):
        done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                              env=self.environment(), stdin=subprocess.DEVNULL)
        equal(done.returncode, code, f"tarn {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def take(self, *luns, name=None):
        return self.api().post("snapshots", {"luns": list(luns), **({"name": name} if name else {})})

    def names(self, lun):
        return [one["name"] for one in self.api().get(f"luns/{lun}/snapshots")]


@contextlib.contextmanager
def session_with(tarn):
    with iscsi.Session(tarn.port, IQN) as session:
        session.clear_unit_attentions()
        yield session


def write(session, at, data, lun=0):
    outcome = session.command(scsi.write16(at // BLOCK, len(data) // BLOCK), write=data, lun=lun)
    check(outcome.good, f"write: {outcome}")


class RandomWrites(threading.Thread):
    """Writes 4 KiB at a time into the pieces of a file, one at the begin of each MiB, over a session of its own."""

    def __init__(self, tarn, seed, pieces):
        super().__init__(daemon=True)
        self.tarn, self.chance, self.pieces = tarn, random.Random(seed), pieces
        self.count, self.longest_s, self.error, self.is_over = 0, 0.0, None, False

    def run(self):
        try:
            with session_with(self.tarn) as session:
                while not self.is_over:
                    self.write_eight(session)
        except Exception as error:      # it is the caller that fails
            self.error = error

    def write_eight(self, session):
        begin, tasks = time.monotonic(), []
        for _ in range(8):
            at = self.chance.randrange(self.pieces) * MIB + self.chance.randrange(PIECE // 4096) * 4096
            tasks.append(session.start(scsi.write16(at // BLOCK, 8), write=b"w" * 4096))
        for task in tasks:
            outcome = session.finish(task)
            check(outcome.good, f"write: {outcome}")
        self.longest_s = max(self.longest_s, time.monotonic() - begin)
        self.count += len(tasks)


def file_of_pieces(path, pieces):
    """A file of so many MiB, with data at the begin of each: so many extents."""
    with open(path, "wb") as file:
        file.truncate(pieces * MIB)
        for piece in range(pieces):
            os.pwrite(file.fileno(), b"\x5a" * PIECE, piece * MIB)
        os.fsync(file.fileno())


@contextlib.contextmanager
def random_writes(tarn, pieces):
    """Four sessions that write. When they are left, none of their writes has failed."""
    writers = [RandomWrites(tarn, seed, pieces) for seed in range(4)]
    for writer in writers:
        writer.start()
    try:
        wait_for(lambda: all(writer.count or writer.error for writer in writers), 10, "writes are under way")
        yield writers
    finally:
        for writer in writers:
            writer.is_over = True
    for writer in writers:
        writer.join(30)
        check(writer.error is None, f"the writes failed: {writer.error}")
