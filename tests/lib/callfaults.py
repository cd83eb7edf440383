"""System calls of a process that fail when a test says so: the Nth of those that may fail, with an error that this call can have.

The kernel asks this process about each call of a list (seccomp_unotify(2)); the answer is "go on" or an error. So the program
that is tested is the one that ships, its own filter included, threads and child processes are counted together, and calls are
counted from a moment that the test chooses. Operations of an io_uring are no system calls and do not come here.

    with Faults() as faults:
        tarn = Tarn(..., prefix=faults.prefix())
        faults.arm(17)      # the seventeenth call from now on fails
        faults.disarm()

As a program it starts a command whose calls are asked about: callfaults.py SOCKET COMMAND...
"""
import ctypes
import errno
import fcntl
import os
import pathlib
import re
import select
import socket
import struct
import sys
import tempfile
import threading

HEADER = pathlib.Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
SECCOMP = 317
PR_SET_NO_NEW_PRIVS, SET_MODE_FILTER = 38, 1
NEW_LISTENER, WAIT_KILLABLE = 1 << 3, 1 << 5
ALLOW, NOTIFY = 0x7FFF0000, 0x7FC00000
# struct seccomp_notif, with its seccomp_data; struct seccomp_notif_resp.
REQUEST, RESPONSE = struct.Struct("QIIiIQ6Q"), struct.Struct("QqiI")
RECEIVE, SEND, GO_ON = 0xC0502100, 0xC0182101, 1
AT_CWD, O_CREAT, PATH_MAX = 0xFFFFFF9C, 0o100, 4096
FICLONE, LOCKS, DUPLICATES = 0x40049409, {6, 7, 37, 38}, {0, 1030}
# Rust's runtime begins with this one: what comes before belongs to the loader.
BEGINS = "poll"

SPACE, FILE = (errno.ENOSPC, errno.EIO), (errno.EIO, errno.EACCES)
DESCRIPTORS, MEMORY = (errno.EMFILE,), (errno.ENOMEM,)
# What may fail, and how.
ERRORS = {
    "open": (*FILE, errno.EMFILE), "openat": (*FILE, errno.EMFILE), "read": (errno.EIO,), "pread64": (errno.EIO,),
    "write": SPACE, "pwrite64": SPACE, "fsync": SPACE, "fdatasync": SPACE, "ftruncate": SPACE, "fallocate": SPACE,
    "rename": SPACE, "renameat2": SPACE, "mkdir": (errno.ENOSPC, errno.EACCES), "link": SPACE, "linkat": SPACE, "symlink": SPACE,
    "unlink": FILE, "unlinkat": FILE, "rmdir": FILE, "chmod": (errno.EPERM,), "fchmod": (errno.EPERM,), "chown": (errno.EPERM,),
    "fchown": (errno.EPERM,), "stat": FILE, "lstat": FILE, "fstat": (errno.EIO,), "newfstatat": FILE, "statx": FILE,
    "readlink": FILE, "getdents64": (errno.EIO,), "statfs": (errno.EIO,), "fstatfs": (errno.EIO,), "ioctl": SPACE,
    "copy_file_range": SPACE, "flock": (errno.ENOLCK,), "fcntl": (errno.ENOLCK,),
    "mmap": MEMORY, "mremap": MEMORY, "mprotect": MEMORY, "memfd_create": (*DESCRIPTORS, *MEMORY), "eventfd2": DESCRIPTORS,
    "epoll_create1": DESCRIPTORS, "epoll_ctl": (*MEMORY, errno.ENOSPC), "timerfd_create": DESCRIPTORS, "signalfd4": DESCRIPTORS,
    "inotify_init1": DESCRIPTORS, "pipe2": DESCRIPTORS, "dup": DESCRIPTORS, "dup2": DESCRIPTORS, "dup3": DESCRIPTORS,
    "pidfd_open": DESCRIPTORS, "socket": (*DESCRIPTORS, errno.ENOBUFS), "socketpair": DESCRIPTORS, "bind": (errno.EADDRINUSE,),
    "listen": (errno.EADDRINUSE,), "accept4": (*DESCRIPTORS, errno.ECONNABORTED, errno.ENOBUFS), "setsockopt": (errno.ENOBUFS,),
    "clone": (errno.EAGAIN,), "clone3": (errno.EAGAIN,), "io_uring_setup": (*MEMORY, errno.EMFILE),
    "io_uring_enter": (errno.EAGAIN, errno.EBUSY), "io_uring_register": MEMORY,
}
# Of these a failure may last. Others are what an answer comes by; without memory Rust aborts.
LASTING = {"open", "openat", "read", "write", "pwrite64", "fsync", "fdatasync", "ftruncate", "fallocate", "rename", "renameat2",
           "mkdir", "unlink", "stat", "statx", "fstat", "fstatfs", "readlink", "flock", "ioctl"}
PATH_FIRST = {"open", "rename", "renameat2", "mkdir", "link", "symlink", "unlink", "rmdir", "chmod", "chown", "stat", "lstat",
              "readlink", "statfs"}
PATH_SECOND = {"openat", "unlinkat", "newfstatat", "statx", "linkat"}
NO_DESCRIPTOR = {"mmap", "mremap", "mprotect", "clone", "clone3", "pipe2", "socket", "eventfd2"}
DATA = {"read", "pread64", "write", "pwrite64"}


def usable():
    """Whether calls can fail here."""
    return os.uname().machine == "x86_64" and HEADER.exists()


def numbers():
    return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", HEADER.read_text())}


class Call:
    """A call that waits for its answer."""

    def __init__(self, name, pid, arguments):
        self.name, self.pid, self.arguments = name, pid, arguments

    def text_at(self, address):
        with open(f"/proc/{self.pid}/mem", "rb") as memory:
            memory.seek(address)
            return memory.read1(PATH_MAX).partition(b"\0")[0].decode(errors="replace")

    def descriptor(self, number):
        """What a descriptor is, as /proc says it: a path, or its kind; empty without it."""
        try:
            return os.readlink(f"/proc/{self.pid}/fd/{number}")
        except OSError:
            return ""

    def errors(self):
        """With what it may fail; none: it goes on uncounted."""
        first, second = self.arguments[:2]
        is_file = self.name not in DATA or self.descriptor(first & 0xFFFFFFFF).startswith("/")
        has_work = self.name != "fcntl" or second in LOCKS | DUPLICATES
        is_known = self.name != "ioctl" or second & 0xFFFFFFFF == FICLONE
        if not (is_file and has_work and is_known):
            return ()
        if self.name == "fcntl" and second in DUPLICATES:
            return DESCRIPTORS
        if self.name in ("open", "openat") and self.arguments[1 + (self.name == "openat")] & O_CREAT:
            return (*ERRORS["open"], errno.ENOSPC)
        return ERRORS[self.name]

    def what(self):
        """For people: the call with what it is about."""
        try:
            if self.name in PATH_FIRST:
                return f"{self.name} {self.text_at(self.arguments[0])}"
            path = self.text_at(self.arguments[1]) if self.name in PATH_SECOND else ""
            if path.startswith("/"):
                return f"{self.name} {path}"
            if self.name in NO_DESCRIPTOR:
                return self.name
            number = self.arguments[0] & 0xFFFFFFFF
            place = "." if number == AT_CWD else self.descriptor(number)
            return f"{self.name} {path or place}".rstrip()
        except OSError:
            return self.name


class Faults:
    """Answers for the calls of what is started with `prefix()`."""

    def __init__(self):
        self.path = os.path.join(tempfile.mkdtemp(prefix="callfaults."), "socket")
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(self.path)
        self.listening.listen()
        self.names = {number: name for name, number in numbers().items()}
        self.lock = threading.Lock()
        self.count, self.hit = 0, None
        self.disarm()
        threading.Thread(target=self._accept, daemon=True).start()

    def prefix(self):
        """To be put before a command."""
        return [sys.executable, str(pathlib.Path(__file__).resolve()), self.path]

    def arm(self, place, variant=0, lasts=False, begins=False):
        """Counts from now on, or from where the program begins, and lets call number `place` fail; 0: none. `variant` chooses among
        its errors. If it `lasts`, all calls of its name that can have this error fail from then on, as on a full disk."""
        with self.lock:
            self.place, self.variant, self.lasts = place, variant, lasts
            self.is_counting, self.begins = not begins, begins
            self.count, self.hit, self.seen = 0, None, []

    def disarm(self):
        """Lets all go on. Returns how many calls were counted."""
        with self.lock:
            self.is_counting = self.begins = False
            return self.count

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listening.close()
        os.unlink(self.path)
        os.rmdir(os.path.dirname(self.path))

    def _accept(self):
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:     # the test is over
                return
            with connection:
                _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
            threading.Thread(target=self._answer_all, args=descriptors, daemon=True).start()

    def _answer_all(self, notifier):
        poll = select.poll()
        poll.register(notifier, select.POLLIN)
        while not poll.poll()[0][1] & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
            request = bytearray(REQUEST.size)
            try:
                fcntl.ioctl(notifier, RECEIVE, request)
                key, pid, _, number, _, _, *arguments = REQUEST.unpack(request)
                error = self._judge(Call(self.names[number], pid, arguments))
                fcntl.ioctl(notifier, SEND, RESPONSE.pack(key, 0, -error, 0 if error else GO_ON))
            except OSError as problem:      # it was killed while it was asked about
                if problem.errno not in (errno.ENOENT, errno.EINTR):
                    raise
        os.close(notifier)

    def _judge(self, call):
        """The error with which it ends, or 0."""
        with self.lock:
            if self.begins and call.name == BEGINS:
                self.is_counting, self.begins = True, False
            errors = call.errors() if self.is_counting and call.name != BEGINS else ()
            if not errors:
                return 0
            self.count += 1
            if not self.place:
                self.seen.append(call.name)
            if self.hit and self.lasts and call.name == self.failing[0] and self.failing[1] in errors:
                return self.failing[1]
            if self.count != self.place:
                return 0
            error = errors[self.variant % len(errors)]
            self.failing = call.name, error
            self.lasts = self.lasts and call.name in LASTING
            self.hit = f"{call.what()}: {errno.errorcode[error]}{' from then on' if self.lasts else ''}"
            return error


def statement(code, value, if_true=0, if_false=0):
    return struct.pack("HBBI", code, if_true, if_false, value)


def listener():
    """Has this process asked about from now on; returns the descriptor at which it is."""
    load, is_equal, answer = 0x20, 0x15, 0x06
    known = numbers()
    asked = sorted({known[name] for name in [*ERRORS, BEGINS]})
    parts = [statement(load, 0)]
    parts += [statement(is_equal, number, len(asked) - at, 0) for at, number in enumerate(asked)]
    parts += [statement(answer, ALLOW), statement(answer, NOTIFY)]
    code = ctypes.create_string_buffer(b"".join(parts))
    # struct sock_fprog
    head = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(parts), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, *(ctypes.c_ulong(one) for one in (1, 0, 0, 0))):
        raise OSError(ctypes.get_errno(), "prctl")
    flags = NEW_LISTENER | WAIT_KILLABLE
    found = libc.syscall(ctypes.c_long(SECCOMP), ctypes.c_ulong(SET_MODE_FILTER), ctypes.c_ulong(flags), head)
    if found < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return found


def main(path, *command):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [b"x"], [listener()])
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
