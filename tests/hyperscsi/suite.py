#!/usr/bin/env python3
"""Devices of a Tarn over HyperSCSI: found, attached, used as stores, and there again after a restart.

    suite.py [--list] [PATTERN...]
"""
import contextlib
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


@test
def a_signal_ends_the_start_of_an_export():
    """SIGTERM while the server does not answer: exit code 0, and nothing is left."""
    with serve("a") as (tarn, path):
        attached = Attached(path, "--udp", place(tarn), f"hyperscsi://{GROUP}/a")
        harness.suspend(tarn.process.pid)
        try:
            with open(attached.output, "wb") as output:
                process = subprocess.Popen([str(part) for part in attached.command], stdin=subprocess.DEVNULL, stdout=output,
                                           stderr=subprocess.STDOUT, env=attached.environment)
            try:
                wait_for(lambda: directories(path), 30, "the directory")
                process.send_signal(signal.SIGTERM)
                equal(process.wait(20), 0, f"exit code: {attached.output.read_text()}")
            finally:
                process.kill()
                process.wait()
        finally:
            tarn.process.send_signal(signal.SIGCONT)
        equal(directories(path), [], "what is left")
        check(not attached.socket.exists(), "the socket is left")


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
    looks like the one that wrote, flushes: the one that wrote learns of it all the same, once."""
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
