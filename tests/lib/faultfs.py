"""A file system with one file that fails, delays and hangs on request, for tests of what a target does then.

It speaks the kernel's FUSE protocol itself and passes everything through to a backing file; a thread of the test serves it,
so a fault is just an attribute that the test sets. Mounting is left to fusermount3 (package fuse3), so that root is not
needed where user mounts are allowed.

    with FaultFs(size=64 << 20) as fs:
        ... tarn serves fs.path ...
        fs.bad_reads = [(offset, length)]
"""
import array
import ctypes
import errno
import os
import pathlib
import shutil
import socket
import stat
import struct
import subprocess
import tempfile
import threading
import time

# Operations (linux/fuse.h).
LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE = 1, 2, 3, 4, 14, 15, 16, 17, 18
FSYNC, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, ACCESS, INTERRUPT, DESTROY, BATCH_FORGET, FALLOCATE, LSEEK = \
    20, 25, 26, 27, 28, 29, 34, 36, 38, 42, 43, 46
STATX = 52
KINDS = {READ: "read", WRITE: "write", FSYNC: "fsync", FALLOCATE: "fallocate", GETATTR: "getattr", STATX: "getattr", LSEEK: "lseek",
         FLUSH: "flush"}
WITHOUT_REPLY = (FORGET, BATCH_FORGET, INTERRUPT)

MAJOR, MINOR = 7, 31
ASYNC_READ, BIG_WRITES, AUTO_INVAL_DATA, ASYNC_DIO, MAX_PAGES = 1 << 0, 1 << 5, 1 << 12, 1 << 15, 1 << 22
FOPEN_DIRECT_IO, FOPEN_NOFLUSH = 1 << 0, 1 << 5
FATTR_SIZE = 1 << 3
MAX_WRITE = 1 << 20
ROOT_NODE, FILE_NODE = 1, 2
FILE_NAME = "disk.img"


class FaultFs:
    """Mounted while the context lasts; `path` is the file, `backing` the one behind it.

    bad_reads, bad_writes   [(offset, length), ...]: EIO there. A read that begins before one stops short of it, as the
                            page cache of a real file system does, unless `whole_reads_fail`.
    full                    writes fail with ENOSPC, and no block is free.
    fsync_failures          how many of the next fsyncs fail, each with EIO, as the kernel reports a lost write once.
    hang_after_failed_fsync as `hang`, from the moment an fsync has failed.
    answer_errno            {"write": (errno, count), ...}: the next so many of these operations fail with it.
    delay_s                 every read and write takes this long.
    fsync_delay_s           every fsync takes this long.
    hang                    "read", "write", "fsync", "fallocate", "getattr", "lseek", "flush" (a close): these operations get no answer until
                            release().
    is_deaf_after_open      once the file is open, no further request is read until release(), as of a daemon that is stopped: the kernel waits
                            for it as only SIGKILL, or a signal that nothing catches, interrupts.
    is_stubborn             what hangs does not give way to a signal either, as a dead daemon's operations do not.

    `counts` says how many operations of each kind have come.

    direct_io is past the page cache; with async_dio the kernel need not wait for such a transfer on the thread that asks.
    With expiring attributes it asks for them before each read, on the thread that reads.

    With `stable`, a path, that file has what a disk with a volatile cache keeps when its power is cut: what was written before the
    last fsync.
    """

    def __init__(self, size, direct_io=True, async_dio=True, expiring=False, stable=None):
        self.flags = ASYNC_READ | BIG_WRITES | MAX_PAGES | (ASYNC_DIO if async_dio else 0) | (AUTO_INVAL_DATA if expiring else 0)
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="faultfs."))
        self.mount_point = self.dir / "mnt"
        self.mount_point.mkdir()
        self.backing = self.dir / "backing"
        self._fd = os.open(self.backing, os.O_RDWR | os.O_CREAT, 0o600)
        os.truncate(self._fd, size)
        self._born = int(time.time())
        self._unstable = []
        self._stable = os.open(stable, os.O_RDWR | os.O_CREAT, 0o600) if stable else None
        if stable:
            os.truncate(self._stable, size)
        self.path = self.mount_point / FILE_NAME
        self.direct_io = direct_io
        self._lock = threading.Lock()
        self._hears = threading.Event()
        self._hears.set()
        self._hung = {}
        self.heal()
        self.counts = dict.fromkeys(KINDS.values(), 0)

    def heal(self):
        """No faults from now on; what hangs stays so until release()."""
        self.bad_reads, self.bad_writes = [], []
        self.whole_reads_fail = self.full = False
        self.fsync_failures = 0
        self.hang_after_failed_fsync = ()
        self.answer_errno = {}
        self.delay_s = self.fsync_delay_s = 0
        self.hang = ()
        self.is_stubborn = False
        self.is_deaf_after_open = False

    def hung(self):
        """How many operations are without an answer."""
        with self._lock:
            return len(self._hung)

    def release(self):
        """Lets everything that hangs go on."""
        with self._lock:        # so that nothing that comes just now is kept
            self.hang = ()
            self.is_deaf_after_open = False
            self._hears.set()
            requests, self._hung = list(self._hung.values()), {}
        for request in requests:
            self._serve(*request)

    # Mounting.

    def __enter__(self):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            done = subprocess.run(["fusermount3", "-o", "rw,nosuid,nodev,fsname=faultfs,subtype=test", "--", self.mount_point],
                                  env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())}, pass_fds=[theirs.fileno()],
                                  capture_output=True, text=True, check=False)
            if done.returncode:
                self._remove()
                raise OSError(f"fusermount3: {done.stderr.strip()}")
            fds = array.array("i")
            _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_LEN(fds.itemsize))
            fds.frombytes(ancillary[0][2][:fds.itemsize])
        self._fuse = fds[0]
        self._thread = threading.Thread(target=self._loop, name="faultfs", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.heal()
        self.release()
        subprocess.run(["fusermount3", "-u", "-z", "--", self.mount_point], capture_output=True, check=False)
        self._thread.join(5)
        os.close(self._fuse)
        self._remove()

    def _remove(self):
        os.close(self._fd)
        if self._stable is not None:
            os.close(self._stable)
        shutil.rmtree(self.dir, ignore_errors=True)

    # Serving.

    def _loop(self):
        while True:
            self._hears.wait()
            try:
                request = os.read(self._fuse, MAX_WRITE + 65536)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    continue            # the request was taken back
                return                  # unmounted
            _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
            self._take(opcode, unique, node, request[40:])
            if opcode == OPEN and self.is_deaf_after_open:
                self._hears.clear()

    def is_deaf(self):
        """The file was opened, and nothing is heard since."""
        return not self._hears.is_set()

    def _take(self, opcode, unique, node, body):
        kind = KINDS.get(opcode) if node == FILE_NODE else None
        if kind:
            self.counts[kind] += 1
        if opcode == INTERRUPT:
            self._interrupt(struct.unpack_from("<Q", body)[0])
        elif self._keep(kind, unique, (opcode, unique, node, body)):
            pass
        elif self.answer_errno.get(kind, (0, 0))[1]:
            error, count = self.answer_errno[kind]
            self.answer_errno[kind] = (error, count - 1)
            self._reply(unique, -error)
        elif kind in ("read", "write") and self.delay_s:
            threading.Timer(self.delay_s, self._serve, (opcode, unique, node, body)).start()
        elif kind == "fsync" and self.fsync_delay_s:
            threading.Timer(self.fsync_delay_s, self._serve, (opcode, unique, node, body)).start()
        else:
            self._serve(opcode, unique, node, body)

    def _keep(self, kind, unique, request):
        """Whether the operation hangs from now on."""
        with self._lock:
            if kind in self.hang:
                self._hung[unique] = request
            return kind in self.hang

    def _interrupt(self, unique):
        """The kernel ends the process that waits: a hung operation gives way, as on a well-behaved network mount."""
        with self._lock:
            found = None if self.is_stubborn else self._hung.pop(unique, None)
        if found:
            self._reply(unique, -errno.EINTR)

    def _serve(self, opcode, unique, node, body):
        if opcode in WITHOUT_REPLY:
            return
        try:
            self._reply(unique, 0, self._handle(opcode, node, body))
        except OSError as error:
            self._reply(unique, -error.errno)

    def _reply(self, unique, error, data=b""):
        try:
            os.write(self._fuse, struct.pack("<IiQ", 16 + len(data), error, unique) + data)
        except OSError:
            pass        # nobody waits for it any more

    def _handle(self, opcode, node, body):
        if opcode == INIT:
            minor = min(struct.unpack_from("<II", body)[1], MINOR)
            return struct.pack("<IIIIHHIIHHI28x", MAJOR, minor, 0, self.flags, 64, 48, MAX_WRITE, 1, MAX_WRITE // 4096, 0, 0)
        if opcode == LOOKUP:
            if body.rstrip(b"\0") != FILE_NAME.encode():
                raise OSError(errno.ENOENT, "no such file")
            return struct.pack("<QQQQII", FILE_NODE, 0, 0, 0, 0, 0) + self._attributes(FILE_NODE)
        if opcode == GETATTR:
            return struct.pack("<QII", 0, 0, 0) + self._attributes(node)
        if opcode == STATX:
            return self._statx(node)
        if opcode == SETATTR:
            valid, _, _, size = struct.unpack_from("<IIQQ", body)
            if valid & FATTR_SIZE:
                os.truncate(self._fd, size)
            return struct.pack("<QII", 0, 0, 0) + self._attributes(node)
        if opcode in (OPEN, OPENDIR):
            flags = FOPEN_DIRECT_IO if self.direct_io and node == FILE_NODE else 0
            # The kernel waits for the answer to a close even in a process that was killed.
            return struct.pack("<QII", 1, flags | (FOPEN_NOFLUSH if self.is_deaf_after_open else 0), 0)
        if opcode == READ:
            return self._read(*struct.unpack_from("<8xQI", body))
        if opcode == WRITE:
            return self._write(*struct.unpack_from("<8xQI", body), body[40:])
        if opcode == FSYNC:
            if self.fsync_failures:
                self.fsync_failures -= 1
                self.hang = self.hang_after_failed_fsync or self.hang
                raise OSError(errno.EIO, "injected")
            self._make_stable()
            return b""
        if opcode == FALLOCATE:
            return self._fallocate(*struct.unpack_from("<8xQQI", body))
        if opcode == LSEEK:
            return struct.pack("<Q", os.lseek(self._fd, *struct.unpack_from("<8xQI", body)))
        if opcode == STATFS:
            free = 0 if self.full else 1 << 20
            return struct.pack("<5Q4I24x", 1 << 20, free, free, 1, 1, 4096, 255, 4096, 0)
        if opcode == READDIR or opcode in (RELEASE, RELEASEDIR, FLUSH, ACCESS, DESTROY):
            return b""
        raise OSError(errno.ENOSYS, "not here")

    def _attributes(self, node):
        now = int(time.time())
        if node == ROOT_NODE:
            size, blocks, mode = 0, 0, stat.S_IFDIR | 0o755
        else:
            real = os.fstat(self._fd)
            size, blocks, mode = real.st_size, real.st_blocks, stat.S_IFREG | 0o600
        return struct.pack("<6Q10I", node, size, blocks, now, now, now, 0, 0, 0, mode, 1, os.getuid(), os.getgid(), 0, 4096, 0)

    def _statx(self, node):
        """The same, with a time of birth (Linux 6.6 asks for it), so that the file is known from a copy of it."""
        ino, size, blocks, *_, mode, nlink, uid, gid, _, blksize, _ = struct.unpack("<6Q10I", self._attributes(node))
        basic_and_birth, now = 0xFFF, int(time.time())
        times = b"".join(struct.pack("<qIi", second, 0, 0) for second in (now, self._born, now, now))
        return struct.pack("<QIIQQ", 0, 0, 0, 0, 0) + struct.pack("<IIQIIIHHQQQQ", basic_and_birth, blksize, 0, nlink, uid, gid, mode, 0,
                                                                  ino, size, blocks, 0) + times + bytes(16 + 14 * 8)

    def _read(self, offset, size):
        end = offset + size
        for bad, length in self.bad_reads:
            if offset < bad + length and bad < end:
                if bad <= offset or self.whole_reads_fail:
                    raise OSError(errno.EIO, "injected")
                end = bad
        return os.pread(self._fd, end - offset, offset)

    def _write(self, offset, size, data):
        if self.full:
            raise OSError(errno.ENOSPC, "injected")
        for bad, length in self.bad_writes:
            if offset < bad + length and bad < offset + size:
                if bad <= offset:
                    raise OSError(errno.EIO, "injected")
                size = bad - offset
        self._note_unstable(offset, size)
        return struct.pack("<II", os.pwrite(self._fd, data[:size], offset), 0)

    def _note_unstable(self, offset, length):
        if self._stable is not None:
            self._unstable.append((offset, length))

    def _make_stable(self):
        ranges, self._unstable = self._unstable, []
        for offset, length in ranges:
            os.pwrite(self._stable, os.pread(self._fd, length, offset), offset)

    def _fallocate(self, offset, length, mode):
        if self.full and not mode & 0x02:       # punching holes needs no room
            raise OSError(errno.ENOSPC, "injected")
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.fallocate64(self._fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)):
            raise OSError(ctypes.get_errno(), "fallocate")
        self._note_unstable(offset, length)
        return b""
