#!/usr/bin/env python3
"""The load generator `tarn bench`, against Tarn, NBD servers of others, and files. No figure is judged for its size.

    suite.py [--list] [PATTERN...]
"""
import contextlib
import html.parser
import json
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
from harness import add, check, equal, measured, test, wait_for
from tarn import BINARY, IQN, Tarn, free_port, listens, lun_section, target_section, user_section

SECRET = "bench-secret-0123"
SHORT = ["--runtime", "0.3", "--warmup", "0.1"]
LONGER = ["--runtime", "1", "--warmup", "0.1"]
CHAP = lun_section("a", "mem:64M") + user_section("tester") + target_section("a", auth="tester")


def bench(*arguments, limit_s=40, environment=None, status=0):
    """Runs a benchmark to its end and checks its exit status; returns what it printed, errors behind."""
    done = subprocess.run([BINARY, "bench", *map(str, arguments)], capture_output=True, text=True, timeout=limit_s,
                          stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})})
    text = done.stdout + done.stderr
    equal(done.returncode, status, f"exit status of bench {arguments}:\n{text}\n")
    check("panicked" not in text, text)
    return text


def document(*arguments, **options):
    """Runs a benchmark and returns its JSON, its page, and what it printed.

    When the machine stalled meanwhile, it is measured once more, for so long that a stall explains nothing any more.
    """
    with tempfile.TemporaryDirectory(prefix="tarn-bench.") as directory:
        paths = [pathlib.Path(directory) / name for name in ("a.json", "a.html")]
        for window in (SHORT, LONGER):
            text = bench(*window, "--json", paths[0], "--html", paths[1], *arguments, **options)
            report = json.loads(paths[0].read_text())
            why = [odd(run, point) for point in report["points"] for target in point["targets"] for run in target["rounds"]]
            if not any(why):
                break
            measured(f"odd with {window}: {next(filter(None, why))}")
        return report, paths[1].read_text(), text


@contextlib.contextmanager
def process(*command):
    """A process for the time of a test."""
    with subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as running:
        try:
            yield running
        finally:
            running.kill()


@contextlib.contextmanager
def scratch(size):
    """A file of this size, of zeros."""
    with tempfile.TemporaryDirectory(prefix="tarn-bench.") as directory:
        path = pathlib.Path(directory) / "disk.img"
        with open(path, "wb") as file:
            file.truncate(size)
        yield path


def near(got, want, what):
    check(abs(got - want) <= 0.02 * abs(want) + 1e-9, f"{what}: {got} and {want} differ")


def odd(run, point):
    """What does not agree and may do so in a short window, when the machine stalls in it; empty if all agrees."""
    if not run["seconds"]:
        return ""
    # Each thread counts by its own time, which is no longer than that of all; how much shorter, the machine's load decides.
    if "iops" not in run["figures"]:
        return "nothing was measured"
    iops, over_all = run["figures"]["iops"], (run["reads"] + run["writes"]) / run["seconds"]
    if not 0.98 * over_all <= iops <= 3 * over_all:
        return f"rate: {iops}, and {over_all} over all"
    # Little's law: what is under way is the rate times the mean time. A stall of the machine counts in one and not the other.
    under_way = iops * run["mean_us"] / 1e6
    depth = point["iodepth"] * point["sessions"]
    return "" if 0.2 * depth < under_way < 3 * depth else f"{under_way:.1f} under way, {depth} asked for"


def check_round(run, point):
    """The figures of one measurement agree with each other."""
    equal((run["errors"], run["miscompares"], run["failure"]), (0, 0, None), "what went wrong")
    figures, ios = run["figures"], run["reads"] + run["writes"]
    check(ios > 0, "no I/O was done")
    near(figures["mb_per_s"], figures["iops"] * point["block_bytes"] / 1e6, "throughput")
    check(figures["p50_us"] <= figures["p99_us"] <= figures["p999_us"] <= run["max_us"], "percentiles ascend")
    check(not odd(run, point), odd(run, point))


@test(limit_s=150)
def json_holds_every_point_and_its_figures_agree():
    """Two targets, lists of everything: 16 points with two rounds each, whose figures follow from each other."""
    with Tarn("mem:64M", "mem:64M") as tarn:
        pid = tarn.process.pid
        report, _, text = document(
            "--rw", "randread,write", "--bs", "4k,64k", "--iodepth", "1,8", "--sessions", "1,3", "--repeat", "2",
            "--overwrite", "--threads", "2", "--pid", pid, "--pid", "0", "a=" + tarn.url(0), "b=" + tarn.url(1), limit_s=110)
        equal((report["format"], report["version"], report["failure"]), ("tarn-bench", 1, None), "head")
        check(report["host"]["cpus"] >= 1 and report["host"]["kernel"] and report["host"]["date"].endswith("Z"), "host")
        equal([t["label"] for t in report["targets"]], ["a", "b"], "targets")
        equal(len(report["points"]), 16, "points")
        for point in report["points"]:
            first, second = point["targets"]
            for target in (first, second):
                equal(len(target["rounds"]), 2, "rounds")
                for run in target["rounds"]:
                    check_round(run, point)
                    equal(run["reads" if point["rw"] == "write" else "writes"], 0, "I/Os of the other kind")
            check("target_cpu_us_per_io" in first["summary"] and "target_cpu_us_per_io" not in second["summary"], "CPU")
            pairs = [b["figures"]["iops"] / a["figures"]["iops"] for a, b in zip(first["rounds"], second["rounds"])]
            near(second["ratio_to_first"]["iops"]["median"], sum(pairs) / 2, "median of ratios")
            equal(first["ratio_to_first"], {}, "ratios of the first")
            check(f"{point['rw']} {point['block_bytes'] // 1024} KiB, depth {point['iodepth']}" in text, "table")


class Page(html.parser.HTMLParser):
    """Follows the elements of a page and collects its text."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.seen.append(tag)
        for name, value in attributes:
            check(name not in ("src", "href"), f"the page needs {value}")

    def handle_startendtag(self, tag, attributes):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        if tag != "meta":
            equal(self.open.pop(), tag, "element that ends")

    def handle_data(self, data):
        self.text.append(data)


@test
def the_page_is_whole_stands_alone_and_shows_labels_as_they_are():
    """Every element is closed, nothing is loaded, and a label with markup in it is text."""
    with Tarn("mem:16M") as tarn:
        label = "<b>&\"x"
        report, text, _ = document("--iodepth", "1,4", "--bs", "512,4k", "--repeat", "1", f"{label}={tarn.url()}", tarn.url())
        page = Page()
        page.feed(text.removeprefix("<!DOCTYPE html>"))
        page.close()
        equal(page.open, [], "elements that stay open")
        equal(report["targets"][0]["label"], label, "label in JSON")
        check(label in "".join(page.text), "label in the page")
        check("script" not in page.seen and "prefers-color-scheme" in text, "style")
        # Without --pid: two charts over the depth for each block size, one over the block size for each depth.
        equal(page.seen.count("figure"), 6, "charts")
        equal(page.seen.count("table"), 4, "tables")


@test
def chap_takes_its_secret_from_url_file_or_environment_and_never_shows_it():
    """All three ways log in, a wrong secret does not, and no secret is in the output or in a report."""
    tarn = Tarn(config=CHAP)
    tarn.secret("secret", SECRET)
    with tarn:
        wrong = "wrong-secret-9876"
        ways = [([tarn.url(user=f"tester%{SECRET}")], {}),
                (["--user", "tester", "--secret-file", tarn.dir / "secret", tarn.url()], {}),
                (["--user", "tester", tarn.url()], {"TARN_BENCH_SECRET": SECRET})]
        for arguments, environment in ways:
            report, page, text = document("--repeat", "1", *arguments, environment=environment)
            check_round(report["points"][0]["targets"][0]["rounds"][0], report["points"][0])
            check(SECRET not in json.dumps(report) + page + text, "the secret is shown")
        text = bench(*SHORT, tarn.url(user=f"tester%{wrong}"), status=2)
        check("authentication failed; check user and secret" in text and wrong not in text, text)
        text = bench(*SHORT, tarn.url(), status=2)
        check("login refused" in text or "login failed" in text, text)


@test
def the_initiator_has_the_name_that_is_given():
    """A target that lets one name in is measured under that name, and refuses the name of before with the remedy."""
    name = "iqn.2026-11.example:blade1"
    group = f'[[group]]\nid = "blades"\ninitiators = ["{name}"]\n'
    with Tarn(config=lun_section("a", "mem:64M") + group + target_section("a").replace('id = "a" }', 'id = "a", groups = ["blades"] }')) as tarn:
        report, _, _ = document("--repeat", "1", "--initiator", name, tarn.url())
        check_round(report["points"][0]["targets"][0]["rounds"][0], report["points"][0])
        text = bench(*SHORT, tarn.url(), status=2)
        check("for initiator iqn.2026-11.example.tarn:bench; check the name, or use --initiator" in text, text)
        check("--initiator" in bench(*SHORT, "--initiator", "no name", tarn.url(), status=2), "a name that is none")


@test
def verification_passes_on_tarn_with_digests_and_several_sessions():
    """Small and large blocks, with and without digests: every byte read is what was written."""
    with Tarn("mem:64M") as tarn:
        for digests in ([], ["--header-digest", "--data-digest"]):
            report, _, _ = document("--verify", "--overwrite", "--bs", "512,4k,1m", "--iodepth", "4", "--sessions", "3",
                                    "--threads", "2", "--repeat", "1", *digests, tarn.url())
            for point in report["points"]:
                run = point["targets"][0]["rounds"][0]
                check_round(run, point)
                check(run["reads"] > 0 and run["writes"] > 0, "both kinds")


@test
def verification_catches_a_store_that_forgets():
    """A store of zeros keeps nothing: miscompares are counted, the first are told, and the exit status is 1."""
    with Tarn("null:64M") as tarn:
        text = bench(*SHORT, "--verify", "--overwrite", "--repeat", "1", tarn.url(), status=1)
        check("MISCOMPARES" in text and "zeros came" in text and "expected write" in text, text)


def nbd(name, command, url):
    """A test with an NBD server: verification, then a plain load."""
    def run():
        with scratch(64 << 20) as path:
            port, unix = free_port(), path.with_name("socket")
            words = [str(w).format(port=port, path=path, socket=unix) for w in command]
            with process(*words):
                wait_for(lambda: unix.exists() or listens(port), 10, f"{name} listens")
                target = url.format(port=port, socket=unix)
                for load in (["--verify"], ["--rw", "randread,write"]):
                    report, _, _ = document(*load, "--overwrite", "--bs", "4k,256k", "--iodepth", "8", "--repeat", "1", target)
                    for point in report["points"]:
                        check_round(point["targets"][0]["rounds"][0], point)
    run.__doc__ = f"{name}: verification and plain loads, {url.split(':')[0]}."
    add(f"nbd_{name}", run)


nbd("nbdkit", ["nbdkit", "-f", "-i", "127.0.0.1", "-p", "{port}", "memory", "64M"], "nbd://127.0.0.1:{port}")
nbd("nbdkit_unix", ["nbdkit", "-f", "-U", "{socket}", "memory", "64M"], "nbd+unix:///?socket={socket}")
nbd("nbdkit_old_handshake", ["nbdkit", "-f", "--mask-handshake=0", "-i", "127.0.0.1", "-p", "{port}", "memory", "64M"],
    "nbd://127.0.0.1:{port}")
nbd("qemu_nbd", ["qemu-nbd", "-t", "-e", "8", "-f", "raw", "-b", "127.0.0.1", "-p", "{port}", "-x", "disk", "{path}"],
    "nbd://127.0.0.1:{port}/disk")


@test
def files_are_verified_too():
    """A file by its path and as file:, through the page cache."""
    with scratch(64 << 20) as path:
        for url in (path, f"file:{path}"):
            report, _, _ = document("--verify", "--overwrite", "--iodepth", "8", "--repeat", "1", url)
            check_round(report["points"][0]["targets"][0]["rounds"][0], report["points"][0])


GROUP_PASSWORD = "correct horse"
DEVICES = lun_section("a", "mem:64M") + lun_section("b", "mem:64M") + target_section("a") + """
[[hyperscsi.group]]
name = "G"
udp = "127.0.0.1:{port2}"
password = "correct horse"
[[hyperscsi.group.device]]
id = "a"
level = "crc"
[[hyperscsi.group.device]]
id = "b"
level = "encrypt"
"""


@test(limit_s=120)
def devices_of_groups_are_measured_and_verified():
    """HyperSCSI over UDP: verification and plain loads at two levels, with several sessions; the password from the environment or
    a file; what is wrong is said in one line."""
    with Tarn(config=DEVICES) as tarn, tempfile.TemporaryDirectory(prefix="tarn-bench.") as directory:
        password, udp = pathlib.Path(directory) / "password", f"127.0.0.1:{tarn.port2}"
        password.touch(mode=0o600)
        password.write_text(GROUP_PASSWORD + "\n")
        device = f"hyperscsi://G/a?udp={udp}"
        for url in (device, f"hyperscsi://G/b?udp={udp}"):
            for load in (["--verify"], ["--rw", "randread,write"]):
                report, _, _ = document(*load, "--overwrite", "--bs", "4k,256k", "--iodepth", "8", "--sessions", "2", "--repeat", "1",
                                        "--password-file", password, "--pid", tarn.process.pid, url)
                equal([t["transport"] for t in report["targets"]], ["hyperscsi"], "transport")
                for point in report["points"]:
                    check_round(point["targets"][0]["rounds"][0], point)
        environment = {"TARN_PASSWORD": GROUP_PASSWORD}
        report, _, _ = document("--rw", "randread", "--bs", "1m", "--repeat", "1", "--udp", udp, "hyperscsi://G/1?level=hash",
                                tarn.url(), environment=environment)
        equal([t["label"] for t in report["targets"]], ["hyperscsi://G/1", f"127.0.0.1:{tarn.port}"], "labels")
        for arguments, words in ((["--bs", "2m", device], "take 1048576 at most"), ([device.replace("/a?", "/c?")], 'there are "a", "b"'),
                                 (["hyperscsi://G/a"], "or add --udp HOST[:PORT] or --interface IF"),
                                 (["--rw", "write", device], "add --overwrite"),
                                 (["--password-file", password.with_name("none"), device], "cannot be read")):
            text = bench(*SHORT, *arguments, status=2, environment=environment)
            check(words in text and text.count("\n") == 1, f"{arguments}: {text}")
        text = bench(*SHORT, device, status=2, environment={"TARN_PASSWORD": "another one"})
        check("check the password" in text and text.count("\n") == 1, text)


def mistakes(tarn, path):
    """What is done wrong, and words of the answer; all end with status 2 before anything is measured."""
    url = tarn.url()
    return [
        (["iscsi://127.0.0.1:1/iqn.2026-11.example.tarn:x/0"], "cannot connect to 127.0.0.1:1; is it running"),
        ([tarn.url(iqn=IQN + "x")], "there is no target"),
        ([tarn.url(lun=9)], "LUN 9 is not ready"),
        (["--rw", "write", url], "add --overwrite"),
        (["--verify", url], "add --overwrite"),
        (["--verify", "--rw", "read", "--overwrite", url], "leave --rw out"),
        (["--span", "1T", url], "--span 1099511627776 is larger"),
        (["--span", "4k", "--sessions", "2", "--rw", "read", url], "take a larger --span"),
        (["--bs", "513", url], "multiple of 512"),
        (["--bs", "512", tarn.url(lun=1)], "no multiple of its blocks of 4096 bytes"),
        (["--bs", "4m", "--iodepth", "1024", url], "the limit is 1073741824"),
        (["--pid", "4194305", url], "--pid 4194305: cannot read its CPU time"),
        (["--pid", "1", "--pid", "1", url], "--pid is given 2 times for 1 targets"),
        (["--user", "u", url], "put it into TARN_BENCH_SECRET"),
        (["--suite", "quick", "--bs", "4k", url], "cannot be used with"),
        (["http://127.0.0.1/"], "unknown scheme"),
        ([path.with_name("missing")], "the file or device does not exist"),
        ([path.parent], "neither a regular file nor a block device"),
        ([f"nbd://127.0.0.1:{tarn.port}/"], "is this the right kind of server?"),
    ]


@test
def mistakes_are_answered_with_place_and_remedy():
    """Each mistake is one line on the error stream that says what to do, and exit status 2."""
    with Tarn("mem:16M", "mem:16M?blocksize=4096") as tarn, scratch(1 << 20) as path:
        cases = mistakes(tarn, path)
        for arguments, words in cases:
            text = bench(*SHORT, *arguments, status=2)
            check(words in text, f"{arguments}: {words!r} is not in {text!r}")
            equal(len(text.splitlines()), 1, f"lines of {text!r}")
        measured(f"{len(cases)} mistakes")


def started(tarn, *arguments):
    """A benchmark of this Tarn that is somewhere in its window."""
    running = subprocess.Popen([BINARY, "bench", "--runtime", "60", "--warmup", "0.1", "--repeat", "1", *arguments], text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def reads():
        check(running.poll() is None, "the benchmark has ended")
        return tarn.socket.exists() and any(one["read"]["count"] for one in tarn.api().get("stats")["series"])
    try:
        wait_for(reads, 30, "the benchmark reads")
        time.sleep(1)       # the time to warm up, and some
    except BaseException:
        running.kill()
        raise
    return running


@test
def a_target_killed_during_a_run_ends_it_at_once():
    """Exit status 1 within seconds, the connection named as lost, and the counts so far."""
    with Tarn("mem:16M", check_exit=False) as tarn:
        running = started(tarn, "mine=" + tarn.url())
        tarn.process.kill()
        text, _ = running.communicate(timeout=15)
        tarn.process.wait()
        equal(running.returncode, 1, f"exit status:\n{text}\n")
        check("mine: connection lost during I/O" in text and "randread 4 KiB, depth 32" in text, text)


@test(limit_s=90)
def a_target_that_falls_silent_is_given_up():
    """Stopped, it answers nothing: after 30 s that is said, with exit status 1."""
    with Tarn("mem:16M", check_exit=False) as tarn:
        running = started(tarn, tarn.url())
        harness.suspend(tarn.process.pid)
        text, _ = running.communicate(timeout=60)
        tarn.process.send_signal(signal.SIGCONT)
        equal(running.returncode, 1, f"exit status:\n{text}\n")
        check("no answer for 30 s with 32 I/Os under way" in text, text)


@test
def an_interrupt_ends_the_point_and_shows_what_there_is():
    """SIGINT: the table of what was measured so far, and a clean end."""
    with Tarn("mem:16M") as tarn:
        running = started(tarn, tarn.url())
        running.send_signal(signal.SIGINT)
        text, _ = running.communicate(timeout=15)
        equal(running.returncode, 0, f"exit status:\n{text}\n")
        check("interrupted; this is what there is" in text and "median" in text, text)


@test
def a_server_that_says_nothing_is_not_waited_for_without_end():
    """A socket that accepts and is silent: an error within the time for set-up."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        start = time.monotonic()
        text = bench(f"iscsi://127.0.0.1:{port}/{IQN}/0", status=2)
        check("no answer within 10 s" in text, text)
        check(time.monotonic() - start < 20, "it took longer")


@test
def suites_spare_data_and_tell_history_as_history():
    """papers without --overwrite leaves writes out and says so; the preface says what the figures are."""
    with Tarn("mem:64M") as tarn:
        text = bench("--runtime", "0.1", "--warmup", "0", "--repeat", "1", "--suite", "papers", tarn.url())
        check("writes; add --overwrite for them" in text and "not a contest" in text, text)
        check("COMSTAR" in text and "\nwrite" not in text, text)


if __name__ == "__main__":
    check(shutil.which("nbdkit") and shutil.which("qemu-nbd"), "nbdkit and qemu-nbd are needed")
    harness.main()
