#!/usr/bin/env python3
"""The web console in a browser against the daemon itself: every task and every page, and from nothing to a disk.

    suite.py [--list] [PATTERN...]

The tests in the browser are those of web/test, which the stage `console` runs against its mock. Pictures of two pages go to
target/browser.
"""
import contextlib
import pathlib
import re
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
import iscsi
import scsi
from harness import check, equal, measured, test
from tarn import IQN, ROOT, Tarn

WEB = ROOT / "web"
INQ_NAME = "iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-inq"
EMPTY = """
[admin]
listen = ["127.0.0.1:{port2}"]
tls = false
"""
FULL = EMPTY + """
[[lun]]
id = "database"
store = "mem:64M"

[[lun]]
id = "scratch"
store = "mem:16M"

[[lun]]
id = "golden"
store = "file:{dir}/golden.img?size=4M&removable"

[[hyperscsi.group]]
name = "lab"
udp = "127.0.0.1:0"
password_file = "{dir}/lab.secret"
device = [{ id = "scratch", level = "crc" }]

[[group]]
id = "hosts"
initiators = ["*"]

[[target]]
name = "%s"
portals = ["127.0.0.1:{port}"]
luns = [{ lun = 0, id = "database", groups = ["hosts"] }, { lun = 1, id = "scratch" }, { lun = 2, id = "golden" }]
""" % IQN


class Daemon(Tarn):
    def __init__(self, **options):
        super().__init__(**options)
        (self.dir / "lab.secret").write_text("a password of the lab")
        (self.dir / "lab.secret").chmod(0o600)

    def ready(self):
        return self.administers()

    @property
    def console(self):
        return f"http://127.0.0.1:{self.port2}"

    def token(self):
        return self.api().post("tokens", {"name": "browser", "role": "admin"})["token"]


def node(script, *arguments, limit_s):
    return subprocess.run(["node", f"test/{script}", *map(str, arguments)], cwd=WEB, capture_output=True, text=True,
                          timeout=limit_s, stdin=subprocess.DEVNULL)


@contextlib.contextmanager
def load(tarn):
    """An initiator at work; when its session ends, it logs in again. A hundred reads a second are enough for figures that move,
    and leave the processors to the browser and to compilers beside it."""
    stop = threading.Event()

    def work():
        while not stop.is_set():
            with contextlib.suppress(OSError, iscsi.Closed, iscsi.Timeout, iscsi.LoginError), \
                    iscsi.Session(tarn.port, IQN) as session:
                session.clear_unit_attentions()
                while not stop.wait(0.01):
                    session.command(scsi.read10(0, 8), read=4096)
            stop.wait(0.1)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@test(limit_s=120)
def the_wizard_makes_a_disk_that_iscsi_inq_reads():
    """A daemon with nothing: a person with a keyboard is led to a disk, and an initiator reads it."""
    with Daemon(config=EMPTY) as tarn:
        done = node("first-disk.mjs", "--url", tarn.console, "--token", tarn.token(), "--portal", f"127.0.0.1:{tarn.port}",
                    "--initiator", INQ_NAME, limit_s=100)
        check(done.returncode == 0, done.stdout + done.stderr)
        target = done.stdout.strip()
        inq = subprocess.run(["iscsi-inq", tarn.url(0, target)], capture_output=True, text=True, timeout=20)
        check(inq.returncode == 0 and "Product:" in inq.stdout, inq.stdout + inq.stderr)
        with iscsi.Session(tarn.port, target, initiator=INQ_NAME) as session:
            session.clear_unit_attentions()
            check(session.command(scsi.write10(1, 1), write=b"w" * 512).good, "WRITE")
            equal(session.command(scsi.read10(1, 1), read=512).data, b"w" * 512, "what was written")
        try:
            with iscsi.Session(tarn.port, target, initiator="iqn.2026-11.example.tarn:stranger") as session:
                equal(session.command(scsi.report_luns(), read=4096).data[:4], bytes(4), "LUNs of a stranger")
        except iscsi.LoginError:
            pass


@test(limit_s=1520)
def every_task_and_every_page():
    """The tests of web/test, with an initiator at work: figures move, sessions end, plans are applied, pages fit and log
    nothing."""
    with Daemon(config=FULL) as tarn, load(tarn):
        done = node("suite.mjs", "--url", tarn.console, "--token", tarn.token(), "--out", ROOT / "target/browser", limit_s=1500)
        found = re.search(r"= (\d+) passed, (\d+) failed, (\d+) skipped", done.stdout)
        check(done.returncode == 0 and found, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}")
        measured(f"{found[1]} passed in the browser")
        equal([lun["spec"]["id"] for lun in tarn.api().get("luns")], ["database", "scratch", "golden"], "what is left")


def install_packages():
    """Those that web/package-lock.json names, unless they are there: the stage `console` has just brought them."""
    wanted, there = WEB / "package-lock.json", WEB / "node_modules/.package-lock.json"
    if not there.exists() or there.stat().st_mtime <= wanted.stat().st_mtime:
        subprocess.run(["npm", "ci", "--no-fund", "--no-audit", "--loglevel=error"], cwd=WEB, check=True,
                       stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    install_packages()
    harness.main()
