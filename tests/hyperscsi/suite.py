#!/usr/bin/env python3
"""Devices of a Tarn over HyperSCSI: found, attached, used as stores, and there again after a restart.

    suite.py [--list] [PATTERN...]
"""
import contextlib
import ctypes
import errno
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import harness
from harness import check, equal, test, wait_for
from tarn import BINARY, IQN, Tarn, free_port, lun_section, refusal, run, target_section

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


class Mounted(Attached):
    """A device, or several, as the file `disk` of a directory."""

    def __init__(self, path, *arguments):
        super().__init__(path, *arguments)
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            harness.skip("/dev/fuse is missing, or not for this user")
        self.dir = path / "mount"
        self.dir.mkdir()
        self.disk = self.dir / "disk"
        self.command[self.command.index("--as") + 1] = f"fuse:{self.dir}"

    def is_served(self):
        check(self.process.poll() is None, f"attach ended: {self.output.read_text()}")
        return f"{self.disk} until" in self.output.read_text()

    def is_mounted(self):
        return f" {self.dir} fuse" in pathlib.Path("/proc/mounts").read_text()

    def children(self):
        """The process that has the devices."""
        return pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()

    def end(self, code=0):
        self.process.send_signal(signal.SIGTERM)
        equal(self.process.wait(60), code, f"exit code of attach: {self.output.read_text()}")
        check(not self.is_mounted(), "nothing is mounted any more")
        left = [entry.name for entry in self.output.parent.iterdir() if entry.name.startswith("tarn-attach-")]
        equal(left, [], "what is left of the processes")

    def __exit__(self, *_):
        super().__exit__()
        if self.is_mounted():
            subprocess.run(["fusermount3", "-u", "-z", self.dir], check=False)


def fails(number, what, action):
    """The action fails with this error."""
    try:
        action()
    except OSError as error:
        equal(error.errno, number, f"error number of {what}")
    else:
        check(False, f"{what} succeeded")


def punch(descriptor, offset, length, mode=3):
    """fallocate(2), by default with FALLOC_FL_PUNCH_HOLE and FALLOC_FL_KEEP_SIZE."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if libc.fallocate(descriptor, mode, offset, length) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


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


@test
def what_is_not_found_is_said_in_both_forms():
    """An unknown group and a wrong password end with exit code 2, a group among others that nobody has with a warning; also as JSON."""
    with serve("a") as (tarn, path):
        wrong = path / "wrong"
        wrong.touch(mode=0o600)
        wrong.write_text("another password\n")
        for form in ((), ("--json",)):
            for arguments, code, words in (
                    (("--group", "other"), 2, "--group: no server answers for other"),
                    (("--group", GROUP, "--group", "other"), 0, "warning: no server answers for other"),
                    (("--group", GROUP, "--password-file", wrong), 2, "--password-file: no server shows devices: server ")):
                done = run("discover", "hyperscsi", "--udp", place(tarn), *arguments, *form)
                equal(done.returncode, code, f"exit code; {done.stderr}")
                check(words in done.stderr and done.stderr.count("\n") == 1, done.stderr)
                check(not form or isinstance(json.loads(done.stdout), list), done.stdout)


@test
def a_group_with_a_user_shows_its_devices_to_that_user():
    """The start says how a device of such a group is used; its devices are listed with --user, and without one the password is wrong."""
    with directory() as path:
        password = path / "password"
        password.touch(mode=0o600)
        password.write_text(PASSWORD + "\n")
        text = config(path, "a").replace(f'name = "{GROUP}"\n', f'name = "{GROUP}"\nuser = "alice"\n')
        with Tarn(config=text) as tarn:
            check(f"'hyperscsi://{GROUP}/a?user=alice'" in tarn.out(), tarn.out())
            asked = ("discover", "hyperscsi", "--udp", place(tarn), "--group", GROUP, "--password-file", password, "--json")
            [found] = json.loads(run(*asked, "--user", "alice").stdout)
            equal([one["name"] for one in found["devices"]], ["a"], "devices")
            refused = run(*asked)
            check(refused.returncode == 2 and "check the password, the group and the user" in refused.stderr, refused.stderr)


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
                (("attach", *form, url), "the group needs a password"),
                (("attach", "--as", f"nbd:{path}/gone/disk.sock", url), f"--as: {path}/gone cannot have the socket"),
                (("attach", *form, "--password-file", path / "password", url.replace("/a?", "/z?")), 'there are "a"'),
                (("attach", *form, "--password-file", path / "password", f"{url}&server=127.0.0.9"), f" at {place(tarn)}"),
                (("serve", "--state", path / "state", "--listen", f"127.0.0.1:{free_port()}", f"{url}&password_file={wrong}"),
                 "check the password")):
            done = run(*arguments)
            equal(done.returncode, 2, f"exit code; {done.stderr}")
            check(words in done.stderr and done.stderr.count("\n") == 1, done.stderr)


@test
def an_attached_disk_has_several_clients():
    """Three clients have the export at the same time."""
    with serve("a") as (tarn, path):
        with Attached(path, f"hyperscsi://{GROUP}/a?udp={place(tarn)}") as attached:
            command = [BINARY, "bench", "--rw", "read", "--bs", "4k", "--runtime", "2", "--repeat", "1", attached.url]
            readers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(3)]
            for reader in readers:
                good(reader)
            attached.end()


@test(limit_s=120)
def guessed_passwords_are_told_of():
    """A client finds out by itself that its password is wrong, and goes. The server counts such a login, reports it, and many are a
    finding; one with the right password is neither."""
    with serve("a") as (tarn, path):
        wrong = path / "wrong"
        wrong.touch(mode=0o600)
        wrong.write_text("another password\n")
        asked = ("discover", "hyperscsi", "--udp", place(tarn), "--group", GROUP, "--password-file")
        equal(run(*asked, path / "password").returncode, 0, "exit code with the right password")
        for _ in range(9):
            equal(run(*asked, wrong).returncode, 2, "exit code with a wrong one")
        counted = lambda line: f"\n{line} 9\n" in tarn.api().good("GET", "/metrics").body.decode()
        wait_for(lambda: counted('tarn_login_failures_total{cause="abandoned"}'), 30, "nine failed logins")
        check(counted('tarn_hyperscsi_events_total{event="unproved"}'), "HyperSCSI counts nine")
        told = [one for one in tarn.api().get("events") if one["kind"] == "login-failed"]
        equal({one["target"] for one in told}, {f"hyperscsi:{GROUP}"}, "whose logins failed")
        check("127.0.0.1" in told[0]["message"] and "the password" in told[0]["message"], told[0]["message"])
        wait_for(lambda: [one for one in tarn.api().get("findings") if one["code"] == "guessed-secret"], 15, "a finding")
        [found] = [one for one in tarn.api().get("findings") if one["code"] == "guessed-secret"]
        equal(found["subject"], f"hyperscsi:{GROUP}", "its subject")


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
def a_device_is_a_file_by_fuse():
    """qemu-img and dd read and write `DIR/disk`, which is what is in the file behind. It has the size of the disk, which stays;
    holes are punched, a flush reaches the device, and what a block device refuses is refused."""
    with serve("a") as (tarn, path):
        image, behind = path / "image", path / "a.img"
        data = bytearray(random.Random(5).randbytes(SIZE))
        image.write_bytes(data)
        with Mounted(path, "--udp", place(tarn), f"hyperscsi://{GROUP}/a") as mounted:
            equal([entry.name for entry in mounted.dir.iterdir()], ["disk"], "what is in the directory")
            status = mounted.disk.stat()
            equal((status.st_size, status.st_mode & 0o777), (SIZE, 0o600), "size and mode")
            convert(image, mounted.disk, "-n")
            check(mounted.disk.read_bytes() == data, "other data comes back")
            check(behind.read_bytes() == data, "the file behind has other data")
            subprocess.run(["dd", f"if={image}", f"of={mounted.disk}", "bs=1M", "count=8", "skip=8", "oflag=direct", "conv=fsync",
                            "status=none"], check=True, timeout=60)
            data[:8 * MIB] = data[8 * MIB:16 * MIB]
            check(behind.read_bytes() == data, "what dd wrote")
            descriptor = os.open(mounted.disk, os.O_RDWR)
            try:
                before = behind.stat().st_blocks
                punch(descriptor, 2 * MIB, 4 * MIB)
                os.fsync(descriptor)
                data[2 * MIB:6 * MIB] = bytes(4 * MIB)
                check(behind.read_bytes() == data, "a hole reads zeros, and all else is as it was")
                check(behind.stat().st_blocks < before, "a hole takes no space")
                equal(os.pread(descriptor, 3, 6 * MIB - 1), data[6 * MIB - 1:6 * MIB + 2], "bytes over the edge of a block")
                equal(os.pread(descriptor, 100, SIZE - 10), data[-10:], "bytes at the end")
                equal(os.pread(descriptor, 1, SIZE), b"", "bytes behind the end")
                fails(errno.EINVAL, "a write of part of a block", lambda: os.pwrite(descriptor, b"x", 0))
                fails(errno.ENOSPC, "a write behind the end", lambda: os.pwrite(descriptor, bytes(512), SIZE))
                fails(errno.EINVAL, "another size", lambda: os.ftruncate(descriptor, MIB))
                fails(errno.EOPNOTSUPP, "space that is promised", lambda: punch(descriptor, 0, MIB, mode=0))
            finally:
                os.close(descriptor)
            with open(mounted.disk, "wb"):
                pass
            check(behind.read_bytes() == data, "O_TRUNC takes nothing away")
            new = mounted.dir / "new"
            for what, action in (("a new file", lambda: os.open(new, os.O_CREAT | os.O_WRONLY)), ("a new directory", new.mkdir),
                                 ("a link", lambda: new.symlink_to("disk")), ("another name", lambda: mounted.disk.rename(new)),
                                 ("a removal", mounted.disk.unlink)):
                fails(errno.EPERM, what, action)
            mounted.end()


@test
def a_read_only_device_is_a_read_only_file():
    """Nothing writes to it, and it can be read."""
    with serve("a") as (tarn, path):
        with Mounted(path, f"hyperscsi://{GROUP}/a?readonly&udp={place(tarn)}") as mounted:
            equal(mounted.disk.stat().st_mode & 0o777, 0o400, "mode")
            fails(errno.EROFS, "an open to write", lambda: os.open(mounted.disk, os.O_WRONLY))
            equal(len(mounted.disk.read_bytes()), SIZE, "bytes")
            mounted.end()


@test
def a_file_system_on_a_loop_device_is_whole():
    """As root: ext4 on a loop device over `DIR/disk` with direct I/O is made, filled, trimmed, unmounted and found clean."""
    if os.geteuid() != 0:
        harness.skip("only root has loop devices")
    if not pathlib.Path("/dev/loop-control").exists():
        harness.skip("there are no loop devices here")
    with serve("a") as (tarn, path):
        with Mounted(path, "--udp", place(tarn), f"hyperscsi://{GROUP}/a") as mounted:
            done = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", mounted.disk], capture_output=True, text=True,
                                  timeout=60)
            if done.returncode != 0:
                harness.skip(f"losetup: {done.stderr.strip()}")
            loop = done.stdout.strip()
            try:
                direct = subprocess.run(["losetup", "--list", "--noheadings", "--output", "DIO", loop], capture_output=True,
                                        text=True, check=True, timeout=60)
                equal(direct.stdout.strip(), "1", "direct I/O of the loop device")
                subprocess.run(["mkfs.ext4", "-q", loop], check=True, timeout=60)
                there = path / "there"
                there.mkdir()
                subprocess.run(["mount", "-t", "ext4", loop, there], check=True, timeout=60)
                try:
                    data = random.Random(6).randbytes(24 * MIB)
                    (there / "file").write_bytes(data)
                    os.sync()
                    check((there / "file").read_bytes() == data, "other data comes back")
                    (there / "file").unlink()
                    os.sync()
                    subprocess.run(["fstrim", there], check=True, timeout=60)
                    (there / "other").write_bytes(data)
                finally:
                    subprocess.run(["umount", there], check=True, timeout=60)
                subprocess.run(["fsck.ext4", "-f", "-n", loop], check=True, timeout=60, stdout=subprocess.DEVNULL)
            finally:
                subprocess.run(["losetup", "--detach", loop], check=True, timeout=60)
            # The kernel lets go of the file a moment later.
            wait_for(lambda: loop not in subprocess.run(["losetup", "--list", "--noheadings", "--output", "NAME"], check=True,
                                                        capture_output=True, text=True, timeout=60).stdout.split(), 30, "no loop device")
            mounted.end()
        subprocess.run(["fsck.ext4", "-f", "-n", path / "a.img"], check=True, timeout=60, stdout=subprocess.DEVNULL)


@test(limit_s=120)
def a_file_whose_server_is_gone_gives_errors():
    """A server that is stopped: a read fails with EIO after --retry and no earlier answer is wrong; when it goes on, reads do, too.
    The process with the devices is killed: all ends with an error, and nothing stays mounted."""
    with serve("a") as (tarn, path):
        with Mounted(path, "--retry", "2", "--udp", place(tarn), f"hyperscsi://{GROUP}/a") as mounted:
            descriptor = os.open(mounted.disk, os.O_RDONLY)
            try:
                equal(os.pread(descriptor, 512, 0), bytes(512), "before")
                harness.suspend(tarn.process.pid)
                try:
                    fails(errno.EIO, "a read while the server is away", lambda: os.pread(descriptor, 512, MIB))
                finally:
                    tarn.process.send_signal(signal.SIGCONT)

                def reads():
                    try:
                        return os.pread(descriptor, 512, 0) == bytes(512)
                    except OSError as error:
                        equal(error.errno, errno.EIO, "error of a read")
                        return False
                wait_for(reads, 60, "a read when the server is there again")
            finally:
                os.close(descriptor)
            child, = mounted.children()
            os.kill(int(child), signal.SIGKILL)
            equal(mounted.process.wait(60), 1, f"exit code: {mounted.output.read_text()}")
            check("the disk is lost" in mounted.output.read_text(), mounted.output.read_text())
            check(not mounted.is_mounted(), "it is not mounted any more")


@test
def the_devices_are_let_go_when_the_mount_is_killed():
    """The process with the mount is killed: the one with the devices ends by itself."""
    with serve("a") as (tarn, path):
        with Mounted(path, "--udp", place(tarn), f"hyperscsi://{GROUP}/a") as mounted:
            child, = mounted.children()
            mounted.process.kill()
            mounted.process.wait(30)

            def is_gone():
                try:
                    return pathlib.Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
                except OSError:
                    return True
            wait_for(is_gone, 30, "the end of the process with the devices")


@test
def a_directory_with_a_mount_is_refused():
    """A second disk is not mounted over the first, which works on."""
    with serve("a", "b") as (tarn, path):
        with Mounted(path, "--udp", place(tarn), f"hyperscsi://{GROUP}/a") as mounted:
            done = run("attach", "--as", f"fuse:{mounted.dir}", "--password-file", path / "password", "--udp", place(tarn),
                       f"hyperscsi://{GROUP}/b")
            equal(done.returncode, 2, f"exit code; {done.stderr}")
            check(f"cannot mount on {mounted.dir}, a mount of Tarn is there already" in done.stderr, done.stderr)
            equal(done.stderr.count("\n"), 1, f"lines: {done.stderr}")
            equal(mounted.disk.stat().st_size, SIZE, "size of the file")
            mounted.end()


@test
def what_a_killed_process_leaves_is_removed_by_the_next():
    """The directory of a process that was killed goes when the next one starts, whose own goes with it."""
    with serve("a") as (tarn, path):
        arguments = (path, "--udp", place(tarn), f"hyperscsi://{GROUP}/a")

        def left():
            return sorted(entry.name for entry in path.glob("tarn-attach-*"))
        with Attached(*arguments) as killed:
            killed.process.kill()
            killed.process.wait(30)
        equal(left(), [f"tarn-attach-{killed.process.pid}"], "what the killed one left")
        with Attached(*arguments) as attached:
            equal(left(), [f"tarn-attach-{attached.process.pid}"], "what the next one has")
            attached.end()
        equal(left(), [], "what is left at the end")


def directories(path):
    """The directories of processes."""
    return [entry.name for entry in path.iterdir() if entry.name.startswith("tarn-attach-")]


def ends_while_it_starts(form, count):
    """SIGTERM, when `count` processes have their directories and the server does not answer."""
    with serve("a") as (tarn, path):
        attached = form(path, "--udp", place(tarn), f"hyperscsi://{GROUP}/a")
        harness.suspend(tarn.process.pid)
        try:
            with open(attached.output, "wb") as output:
                process = subprocess.Popen([str(part) for part in attached.command], stdin=subprocess.DEVNULL, stdout=output,
                                           stderr=subprocess.STDOUT, env=attached.environment)
            try:
                wait_for(lambda: len(directories(path)) == count, 30, "the directories")
                process.send_signal(signal.SIGTERM)
                equal(process.wait(20), 0, f"exit code: {attached.output.read_text()}")
            finally:
                process.kill()
                process.wait()
        finally:
            tarn.process.send_signal(signal.SIGCONT)
        equal(directories(path), [], "what is left")
        check(not attached.socket.exists(), "the socket is left")


@test
def a_signal_ends_the_start_of_an_export():
    """SIGTERM while the server does not answer: exit code 0, and nothing is left."""
    ends_while_it_starts(Attached, 1)


@test
def a_signal_ends_the_start_of_a_file():
    """The same with a file, whose two processes have a directory each."""
    ends_while_it_starts(Mounted, 2)


@test(limit_s=120)
def a_signal_at_any_time_of_the_start_leaves_nothing():
    """SIGTERM after times that grow in small steps: exit code 0, or the signal where nothing was begun, and nothing is left, no
    session of the server either."""
    with serve("a") as (tarn, path):
        attached = Attached(path, "--udp", place(tarn), f"hyperscsi://{GROUP}/a")
        for turn in range(16):
            with open(attached.output, "wb") as output:
                process = subprocess.Popen([str(part) for part in attached.command], stdin=subprocess.DEVNULL, stdout=output,
                                           stderr=subprocess.STDOUT, env=attached.environment)
            time.sleep(0.025 * turn)
            process.send_signal(signal.SIGTERM)
            code = process.wait(20)
            check(code in (0, -signal.SIGTERM), f"exit code {code}: {attached.output.read_text()}")
            check(code == 0 or not attached.output.read_text(), attached.output.read_text())
            equal(directories(path), [], f"what is left in turn {turn}")
        wait_for(lambda: not tarn.api().get("sessions"), 5, "the end of all sessions")


class NbdClient:
    """A client of NBD that does what a test wants, no more."""

    def __init__(self, url):
        self.peer = socket.socket(socket.AF_UNIX)
        self.peer.settimeout(60)
        self.peer.connect(url.split("socket=")[1])
        check(len(self.receive(18)) == 18, "the greeting")
        self.peer.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, 0))
        check(len(self.receive(10)) == 10, "size and flags")

    def receive(self, length):
        return self.peer.recv(length, socket.MSG_WAITALL)

    def ask(self, command, data=b"", length=0):
        """The error of the answer."""
        self.peer.sendall(struct.pack(">IHHQQI", 0x25609513, 0, command, 7, 0, len(data) or length) + data)
        magic, error, cookie = struct.unpack(">IIQ", self.receive(16))
        equal((magic, cookie), (0x67446698, 7), "the answer")
        return error

    def write(self):
        equal(self.ask(1, bytes([7] * 4096)), 0, "a write")

    def flush(self):
        return self.ask(3)


def write_without_flush(url, _):
    """A write as the protocol has it: what programs do to end their use may flush."""
    client = NbdClient(url)
    client.write()
    client.peer.close()


def is_killed_after(deed):
    """The end of an attached disk whose server was killed after this deed, and what it said."""
    with serve("a") as (tarn, path):
        with Attached(path, "--udp", place(tarn), f"hyperscsi://{GROUP}/a") as attached:
            deed(attached.url, path)
            tarn.kill()
            attached.process.send_signal(signal.SIGTERM)
            code = attached.process.wait(60)
            said = attached.output.read_text()
        tarn.start()
        check("kernel" not in said and "did not end in time; their memory" not in said, said)
        return code, said


@test(limit_s=120)
def a_server_that_is_gone_takes_nothing_with_it_where_nothing_was_written():
    """The disk was read, and the server is killed: attach ends with 0. With a write that was not flushed it names the server."""
    code, said = is_killed_after(lambda url, path: convert(url, path / "back"))
    check(code == 0 and "may be lost" not in said, f"exit code {code}: {said}")

    code, said = is_killed_after(write_without_flush)
    equal(code, 1, f"exit code: {said}")
    check("may be lost; look at what has hyperscsi://storage/a?udp=" in said, said)


@test(limit_s=120)
def each_client_of_an_attached_disk_learns_of_a_lost_cache():
    """The server is killed after a write that no flush covered. One client goes while its flush is under way, another one, which
    looks like the one that wrote, flushes: the one that wrote learns of it all the same, once. As files by fuse, each that is
    open learns of it."""
    with serve("a") as (tarn, path):
        with Attached(path, "--udp", place(tarn), f"hyperscsi://{GROUP}/a") as attached:
            writer, other, hasty = (NbdClient(attached.url) for _ in range(3))
            writer.write()
            tarn.kill()
            tarn.start()
            hasty.peer.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 3, 7, 0, 0))
            hasty.peer.close()
            for client in (other, writer):
                equal(client.flush(), errno.EIO, "the first flush")
                equal(client.flush(), 0, "the second flush")
            attached.end()
        with Mounted(path, "--udp", place(tarn), f"hyperscsi://{GROUP}/a") as mounted:
            first, second = (os.open(mounted.disk, os.O_RDWR) for _ in range(2))
            os.pwrite(first, bytes(4096), 0)
            tarn.kill()
            tarn.start()
            for file in (second, first):
                fails(errno.EIO, "the first fsync", lambda file=file: os.fsync(file))
                os.fsync(file)
                os.close(file)
            mounted.end()


@test
def a_password_that_others_may_read_is_warned_of_by_all():
    """A file with mode 0644: discover, bench and attach say so."""
    with serve("a") as (tarn, path):
        (path / "password").chmod(0o644)
        given = ("--password-file", path / "password", "--udp", place(tarn))
        url = f"hyperscsi://{GROUP}/a"
        for arguments in (("discover", "hyperscsi", "--group", GROUP, *given),
                          ("bench", *given, "--rw", "randread", "--bs", "4k", "--iodepth", "1", "--runtime", "1", url)):
            done = run(*arguments)
            equal(done.returncode, 0, f"exit code: {done.stderr}")
            words = f"others may read the password in {path}/password (mode 0644); run chmod 600 on the file"
            check(words in done.stderr, done.stderr)
        with Attached(path, "--udp", place(tarn), url) as attached:
            check("others may read a password" in attached.output.read_text(), attached.output.read_text())
            attached.end()


@test
def what_cannot_be_mounted_is_said_in_one_line():
    """A directory that is not there, a wrong password: one line, exit code 2, and nothing is mounted."""
    with serve("a") as (tarn, path):
        wrong = path / "wrong"
        wrong.touch(mode=0o600)
        wrong.write_text("another password\n")
        (path / "empty").mkdir()
        url = f"hyperscsi://{GROUP}/a?udp={place(tarn)}"
        for directory, password, words in ((path / "nowhere", path / "password", "name a directory that exists"),
                                           (path / "empty", wrong, "check the password")):
            done = run("attach", "--as", f"fuse:{directory}", "--password-file", password, url)
            equal(done.returncode, 2, f"exit code; {done.stderr}")
            check(words in done.stderr and done.stderr.count("\n") == 1, done.stderr)


@test
def several_devices_are_one_disk():
    """With --stripe the chunks of an image are on two devices in turn."""
    with serve("a", "b") as (tarn, path):
        image = path / "image"
        image.write_bytes(random.Random(4).randbytes(2 * SIZE))
        urls = [f"hyperscsi://{GROUP}/{name}" for name in "ab"]
        with Attached(path, "--udp", place(tarn), "--stripe", "64k", *urls) as attached:
            check(f"stripe of {', '.join(urls)}, 64 KiB each in turn" in attached.output.read_text(), attached.output.read_text())
            convert(image, attached.url, "-n")
            attached.end()
        data = memoryview(image.read_bytes())
        for number, name in enumerate("ab"):
            chunks = range(number * CHUNK, 2 * SIZE, 2 * CHUNK)
            expected = b"".join(data[at:at + CHUNK] for at in chunks)
            check((path / f"{name}.img").read_bytes() == expected, f"device {name} has other data")


@test(limit_s=120)
def one_device_is_one_store_however_it_is_spelled():
    """A device by its name and by its place, through two groups, by two addresses of its server and by iSCSI is one disk: no stripe
    has it twice, and no two LUNs. The error names both; what was written stays, and a device that is given up is free."""
    with serve("a", "b") as (tarn, path):
        text = (tarn.dir / "tarn.toml").read_text()
        second = text[text.index("[[hyperscsi.group]]"):].replace(f'name = "{GROUP}"', 'name = "second"')
        tarn.api().put("config", {"text": text + second})
        port = tarn.port2

        def store(device, group=GROUP, host="127.0.0.1"):
            return f"hyperscsi://{group}/{device}?udp={host}:{port}&password_file={path}/password"
        same = [store("1"), store("a", "second"), store("a", host="localhost"), f"iscsi://127.0.0.1:{tarn.port}/{IQN}/0"]
        data = random.Random(7).randbytes(MIB)
        (path / "image").write_bytes(data)
        with Attached(path, store("a")) as attached:
            convert(path / "image", attached.url, "-n")
            attached.end()
        for other in same:
            done = run("attach", "--stripe", "64k", "--as", f"nbd:{path}/twice.sock", store("a"), other, limit_s=60)
            said = done.stderr.strip()
            equal((done.returncode, len(said.splitlines())), (2, 1), f"a stripe with {other}: {said}")
            check(f"it is the disk that hyperscsi://{GROUP}/a by 127.0.0.1:{port} has already" in said and "name it once" in said, said)
        check((path / "a.img").read_bytes()[:MIB] == data, "the refused stripes have written")
        members = "".join(f'[[store]]\nid = "s{n}"\nstore = "{one}"\n' for n, one in enumerate((store("a"), store("1"))))
        luns = lun_section("x", store("a")) + lun_section("y", store("a", "second"))
        for config, at in ((members + lun_section("striped", "stripe:s0,s1") + target_section("striped"), "store[1].store"),
                           (luns + target_section("x", "y"), "lun[1].store")):
            file = path / "twice.toml"
            file.write_text(config.replace("{port}", "0"))
            said = refusal("--config", file, "--state", path / "state", limit_s=60)
            check(at in said and "it is the disk that hyperscsi://" in said, said)
        with Tarn(config=lun_section("x", store("a")) + target_section("x")) as near:
            def lun(*words):
                return subprocess.run([BINARY, "lun", *words], capture_output=True, text=True, timeout=60, env=near.environment())
            for other in same:
                done = lun("add", "again", other)
                check(done.returncode != 0 and "it is the disk that hyperscsi://" in done.stderr, f"{other}: {done}")
            equal(len(near.api().get("luns")), 1, "units")
            # What is used as before is not opened again, and what is given up is free.
            for words in (("rename", "x", "z"), ("add", "b", store("b")), ("rm", "b", "--yes"), ("add", "c", store("2"))):
                done = lun(*words)
                equal(done.returncode, 0, f"{words}: {done.stderr}")


@test(limit_s=120)
def verified_data_survives_restarts():
    """The server is killed three times under `tarn bench --verify` through `tarn attach`, which sees no error and no wrong
    block. The log says that the session is lost, and that there is one again."""
    with serve("a") as (tarn, path):
        with Attached(path, "--retry", "60", f"hyperscsi://{GROUP}/a?udp={place(tarn)}&server=127.0.0.1") as attached:
            running = verify(attached.url, 12)
            for _ in range(3):
                time.sleep(1)
                tarn.kill()
                tarn.start()
            good(running)
            said = attached.output.read_text()
            for words in ("a session with a HyperSCSI server is lost", "a session with a HyperSCSI server is there again"):
                check(words in said, f"{words!r} is not in the log: {said}")


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
