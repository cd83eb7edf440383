#!/usr/bin/env python3
"""The command line: errors name the place and the remedy and end with 2, nothing starts half, signals end cleanly.

    suite.py [--list] [PATTERN...]
"""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
import iscsi
import scsi
from harness import check, equal, measured, skip, test
from tarn import BINARY, IQN, Tarn, free_port, listens, run

MIB = 1 << 20


class Scratch(tempfile.TemporaryDirectory):
    """A directory for one test; `serve` runs tarn in it and expects an error."""

    def __enter__(self):
        self.path = pathlib.Path(super().__enter__())
        self.port = free_port()
        return self

    def file(self, name, data=b"", size=None):
        path = self.path / name
        path.write_bytes(data)
        if size is not None:
            os.truncate(path, size)
        return path

    def serve_fails(self, *arguments, words, listen=True):
        """tarn serve must end with 2 and one error that has all the words; returns the error."""
        listen = ["--listen", f"127.0.0.1:{self.port}"] if listen else []
        start = time.monotonic()
        done = run("serve", "--state", self.path / "state", *listen, *arguments, cwd=self.path)
        seconds = time.monotonic() - start
        equal(done.returncode, 2, f"exit code of tarn serve {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
        check("panicked" not in done.stderr, done.stderr)
        errors = [line for line in done.stderr.splitlines() if line.strip()]
        check(errors, "no word about the error")
        check(len(errors) <= 8, f"more than one clear error:\n{done.stderr}")
        for line in errors:
            parts = [part for part in line.split(": ") if len(part) > 12]
            check(len(parts) == len(set(parts)), f"the error says the same twice: {line}")
        for word in words:
            check(str(word).lower() in done.stderr.lower(), f"{word!r} is not in the error:\n{done.stderr}")
        check(seconds < 10, f"the error took {seconds:.1f} s")
        return done.stderr

    def config_fails(self, text, words):
        self.file("tarn.toml", text.replace("{port}", str(self.port)).encode())
        return self.serve_fails("--config", self.path / "tarn.toml", words=words, listen=False)


@test
def help_and_version_end_with_0():
    """--help names serve, its options and the store forms."""
    equal(run("--version").returncode, 0, "exit code of --version")
    check("serve" in run("--help").stdout, "serve in --help")
    done = run("serve", "--help")
    equal(done.returncode, 0, "exit code of serve --help")
    for word in ("--config", "--listen", "--target", "--state", "--log", "--cores", "--busy-poll", "mem:", "readonly"):
        check(word in done.stdout, f"{word} in serve --help")


def case(name, arguments, words, prepare=None):
    """A row of the table of errors."""
    def run_case():
        with Scratch() as scratch:
            if prepare:
                prepare(scratch)
            scratch.serve_fails(*arguments, words=words)
            check(not listens(scratch.port), "something listens")
    run_case.__doc__ = f"tarn serve {' '.join(arguments)}: exit code 2, names {', '.join(map(str, words))}"
    harness.add(f"error_{name}", run_case)


case("nothing_to_serve", [], [])
case("unknown_option", ["--lissen", "127.0.0.1:1", "mem:1M"], ["--lissen"])
case("missing_file", ["nowhere.img"], ["nowhere.img", "size="])
case("missing_directory", ["nowhere/disk.img?size=1M"], ["nowhere/disk.img"])
case("a_directory", ["."], ["."])
case("bad_size", ["mem:12Q"], ["12Q"])
case("size_zero", ["mem:0"], ["mem:0"])
case("size_not_whole_blocks", ["mem:1000"], ["1000", "512"])
case("block_size", ["mem:1M?blocksize=1000"], ["blocksize", "1000", "4096"])
case("unknown_store_option", ["mem:1M?raedonly"], ["raedonly", "readonly"])
case("unknown_store_kind", ["rbd:pool/image"], ["rbd"])
case("unknown_cache_mode", ["disk.img?size=1M&cache=maybe"], ["maybe", "writeback"])
case("same_file_twice", ["disk.img?size=1M", "./disk.img"], ["disk.img"])
case("file_that_is_no_block_device", ["block:disk.img"], ["disk.img", "block"], lambda s: s.file("disk.img", size=MIB))
case("empty_file", ["disk.img"], ["disk.img", "empty", "size"], lambda s: s.file("disk.img"))
case("qcow2_image", ["disk.qcow2"], ["qcow2", "format=raw"], lambda s: s.file("disk.qcow2", b"QFI\xfb\0\0\0\3", size=MIB))
case("vmdk_image", ["disk.vmdk"], ["vmdk", "format=raw"], lambda s: s.file("disk.vmdk", b"KDMV\1\0\0\0", size=MIB))
case("bad_target_name", ["--target", "tarn:demo", "mem:1M"], ["tarn:demo", "iqn."])
case("bad_listen_address", ["--listen", "localhost", "mem:1M"], ["localhost"])
case("foreign_listen_address", ["--listen", "192.0.2.1:3260", "mem:1M"], ["192.0.2.1:3260"])


@test
def error_port_in_use():
    """The error names the address."""
    with Scratch() as scratch, socket.socket() as other:
        other.bind(("127.0.0.1", scratch.port))
        other.listen()
        scratch.serve_fails("mem:1M", words=[f"127.0.0.1:{scratch.port}", "in use"])


@test
def error_second_writer():
    """A second tarn on the same file is refused; the first goes on."""
    with Tarn("file:{dir}/disk.img?size=16M") as tarn, Scratch() as scratch:
        error = scratch.serve_fails(tarn.dir / "disk.img", words=["disk.img"])
        check("lock" in error.lower() or "in use" in error.lower() or "another" in error.lower(), error)
        with iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions()


@test
def error_of_one_store_starts_nothing():
    """A bad second store: no port is opened, not even for a moment the first could be used in, and no file is left locked."""
    with Scratch() as scratch:
        good = scratch.file("good.img", size=MIB)
        scratch.serve_fails(good, "missing.img", words=["missing.img"])
        check(not listens(scratch.port), "something listens")
        with Tarn(str(good)):
            pass


@test
def a_qcow2_file_is_served_raw_when_asked():
    """format=raw serves the very bytes of a qcow2 file."""
    with Scratch() as scratch:
        path = scratch.file("disk.qcow2", b"QFI\xfb\0\0\0\3", size=MIB)
        with Tarn(f"{path}?format=raw") as tarn, iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions()
            equal(session.command(scsi.read16(0, 1), read=512).data[:4], b"QFI\xfb", "first bytes")


@test
def size_creates_and_never_shrinks():
    """size= makes a missing file, sparse; a larger file keeps its size."""
    with Scratch() as scratch:
        with Tarn(f"{scratch.path}/new.img?size=64M") as tarn, iscsi.Session(tarn.port, IQN) as session:
            session.clear_unit_attentions()
            equal(scsi.capacity(session), (64 * MIB // 512, 512), "capacity")
        made = os.stat(scratch.path / "new.img")
        equal(made.st_size, 64 * MIB, "size of the file made")
        check(made.st_blocks * 512 < MIB, "the file made is not sparse")
        old = scratch.file("old.img", b"kept", size=64 * MIB)
        done = subprocess.Popen([BINARY, "serve", "--state", scratch.path / "state", "--listen", f"127.0.0.1:{scratch.port}",
                                 f"{old}?size=32M"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            harness.wait_for(lambda: done.poll() is not None or listens(scratch.port), 10, "tarn neither serves nor refuses")
        finally:
            done.terminate()
            done.communicate(timeout=15)
        equal(os.path.getsize(old), 64 * MIB, "size of the larger file")
        equal(old.read_bytes()[:4], b"kept", "its contents")


CONFIG = """
[[lun]]
id = "disk"
store = "mem:16M"
[[target]]
name = "iqn.2026-11.example.tarn:cli"
portals = ["127.0.0.1:{port}"]
luns = [{ lun = 0, id = "disk" }]
"""


def config_case(name, text, *words):
    def run_case():
        with Scratch() as scratch:
            scratch.config_fails(text, ["tarn.toml", *words])
            check(not listens(scratch.port), "something listens")
    run_case.__doc__ = f"A configuration file with {name.replace('_', ' ')}: exit code 2, names {', '.join(words)}"
    harness.add(f"config_{name}", run_case)


config_case("unknown_key", CONFIG + "[[lun]]\nid = \"two\"\nstroe = \"mem:1M\"\n", "stroe", "store", "11")
config_case("unknown_section", CONFIG + "[admin]\nlisten = \"127.0.0.1:80\"\n", "admin")
config_case("syntax_error", CONFIG + "[[lun\n", "9")
config_case("unknown_unit", CONFIG.replace('id = "disk" }', 'id = "dissk" }'), "dissk", "disk")
config_case("unknown_user", CONFIG + 'auth = ["alice"]\n', "alice")
config_case("same_lun_twice", CONFIG.replace("}]", "}, { lun = 0, id = \"disk\" }]"), "0")
config_case("wrong_type", CONFIG.replace("lun = 0", 'lun = "zero"'), "zero")
config_case("limit_out_of_range", CONFIG + "[limits]\nlogin_timeout_seconds = 0\n", "login_timeout_seconds", "1")


@test
def config_missing():
    """A configuration file that is not there."""
    with Scratch() as scratch:
        scratch.serve_fails("--config", scratch.path / "nowhere.toml", words=["nowhere.toml"], listen=False)


@test
def a_secret_file_that_others_can_read_is_refused():
    """The error names the file and chmod."""
    text = CONFIG + 'auth = ["alice"]\n[[user]]\nname = "alice"\nsecret_file = "alice.secret"\n'
    with Scratch() as scratch:
        secret = scratch.file("alice.secret", b"long-enough-secret\n")
        secret.chmod(0o644)
        error = scratch.config_fails(text, ["alice.secret", "600"])
        check("long-enough-secret" not in error, "the secret is in the error")


@test
def a_short_secret_is_refused():
    """RFC 7143 wants 96 bits at least."""
    text = CONFIG + 'auth = ["alice"]\n[[user]]\nname = "alice"\nsecret_file = "alice.secret"\n'
    with Scratch() as scratch:
        secret = scratch.file("alice.secret", b"short\n")
        secret.chmod(0o600)
        scratch.config_fails(text, ["alice.secret", "12"])


@test
def check_reads_a_configuration_without_serving():
    """tarn check ends with 0 for a good file and with 2 for one that serve refuses; nothing listens."""
    with Scratch() as scratch:
        good = scratch.file("good.toml", CONFIG.replace("{port}", str(scratch.port)).encode())
        equal(run("check", good, cwd=scratch.path).returncode, 0, "exit code for a good file")
        bad = scratch.file("bad.toml", CONFIG.replace("{port}", str(scratch.port)).replace("mem:16M", "gone.img").encode())
        done = run("check", bad, cwd=scratch.path)
        equal(done.returncode, 2, "exit code for a missing store")
        check("gone.img" in done.stderr, done.stderr)
        check(not listens(scratch.port), "something listens")


@test
def a_configuration_that_is_no_text_is_told_by_its_line():
    """tarn check and serve name the line of the first byte that is not UTF-8, and say of a directory that it is one."""
    with Scratch() as scratch:
        latin = scratch.file("latin.toml", "# one\n# Z\u00fcrich\n".encode("latin-1"))
        for path, words in ((latin, ["latin.toml:2", "not UTF-8"]), (scratch.path, [str(scratch.path), "is a directory"])):
            told = [scratch.serve_fails("--config", path, words=words, listen=False), run("check", path).stderr]
            equal(told[0], told[1], "what serve and check say")
            check("readable" not in told[1], told[1])


@test
def the_default_port_is_3260_on_loopback():
    """`tarn serve mem:16M` needs nothing else."""
    if listens(3260):
        skip("port 3260 is in use")
    with Scratch() as scratch:
        environment = {**os.environ, "XDG_STATE_HOME": str(scratch.path), "HOME": str(scratch.path)}
        process = subprocess.Popen([BINARY, "serve", "--state", scratch.path / "state", "mem:16M"], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, env=environment)
        try:
            harness.wait_for(lambda: listens(3260), 10, "127.0.0.1:3260 answers")
            line = process.stdout.readline().decode()
            check("127.0.0.1:3260" in line or "iqn." in line, f"the first line does not tell that it serves: {line!r}")
            with iscsi.Session(3260) as session:
                names = [value for key, value in session.text([("SendTargets", "All")]) if key == "TargetName"]
            equal(len(names), 1, "targets found")
            measured(names[0])
        finally:
            process.terminate()
            equal(process.wait(15), 0, "exit code")


@test
def a_portal_off_loopback_without_chap_warns():
    """0.0.0.0 serves, and the log says what is missing."""
    port = free_port()
    with Tarn("mem:16M", arguments=["--listen", f"0.0.0.0:{port}"]) as tarn:
        harness.wait_for(lambda: listens(port), 5, "the second portal answers")
        tarn.await_log("WARN", "CHAP")


@test
def a_portal_on_loopback_does_not_warn():
    """Nothing to warn of in the first minute."""
    with Tarn("mem:16M") as tarn:
        check("warn" not in tarn.log().lower(), tarn.log())


@test
def a_configuration_without_a_target_warns():
    """It is served, so that targets can be added, and says so."""
    with Scratch() as scratch:
        scratch.file("tarn.toml", b'[[lun]]\nid = "disk"\nstore = "mem:1M"\n')
        done = run("check", scratch.path / "tarn.toml")
        equal(done.returncode, 0, done.stderr)
        check("no [[target]]" in done.stdout + done.stderr, done.stdout + done.stderr)


@test
def stdout_tells_how_to_reach_it():
    """The target's name and address are on standard output; logs are on standard error."""
    with Tarn("mem:16M") as tarn:
        harness.wait_for(lambda: IQN in tarn.out(), 5, "the target's name on standard output")
        check(f"127.0.0.1:{tarn.port}" in tarn.out(), tarn.out())


def ends(name, number):
    def run_case():
        with Tarn("file:{dir}/disk.img?size=16M", check_exit=False) as tarn:
            with iscsi.Session(tarn.port, IQN) as session:
                session.clear_unit_attentions()
                session.command(scsi.write16(0, 8), write=b"\x5a" * 4096)
                session.logout()
            start = time.monotonic()
            tarn.process.send_signal(number)
            equal(tarn.process.wait(15), 0, "exit code")
            measured(f"{(time.monotonic() - start) * 1000:.0f} ms")
            equal((tarn.dir / "disk.img").read_bytes()[:4096], b"\x5a" * 4096, "what was written")
    run_case.__doc__ = f"{number.name} ends it with exit code 0 and the data in the file."
    harness.add(name, run_case)


ends("sigterm_ends_cleanly", signal.SIGTERM)
ends("sigint_ends_cleanly", signal.SIGINT)


@test
def a_killed_tarn_leaves_no_lock():
    """After SIGKILL the next one serves at once."""
    with Tarn("file:{dir}/disk.img?size=16M") as tarn:
        tarn.kill()
        tarn.start()


@test
def sigpipe_on_stdout_does_not_end_it():
    """A closed standard output, as from `tarn serve | head -1`, is no reason to stop serving."""
    with Scratch() as scratch:
        read, write = os.pipe()
        process = subprocess.Popen([BINARY, "serve", "--state", scratch.path / "state", "--listen", f"127.0.0.1:{scratch.port}",
                                    "mem:16M"], stdout=write, stderr=subprocess.DEVNULL)
        os.close(write)
        os.close(read)
        try:
            harness.wait_for(lambda: listens(scratch.port), 10, "it serves")
            with iscsi.Session(scratch.port):
                pass
            check(process.poll() is None, f"it ended with {process.poll()}")
        finally:
            process.terminate()
            equal(process.wait(15), 0, "exit code")


@test
def an_ordinary_user_can_serve():
    """No privilege is needed."""
    if os.geteuid() != 0:
        skip("this whole run is an ordinary user's")
    with Scratch() as scratch:
        os.chmod(scratch.path, 0o777)
        binary = scratch.path / "tarn"
        shutil.copy(BINARY, binary)
        process = subprocess.Popen(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", binary, "serve", "--state",
                                    scratch.path / "state", "--listen", f"127.0.0.1:{scratch.port}",
                                    f"{scratch.path}/disk.img?size=16M"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            harness.wait_for(lambda: listens(scratch.port) or process.poll() is not None, 10, "it serves")
            check(process.poll() is None, f"it ended: {process.stderr.read().decode() if process.poll() is not None else ''}")
            with iscsi.Session(scratch.port) as session:
                session.text([("SendTargets", "All")])
        finally:
            process.terminate()
            equal(process.wait(15), 0, "exit code")
        equal(os.stat(scratch.path / "disk.img").st_uid, 65534, "owner of the file made")


if __name__ == "__main__":
    harness.main()
