"""A plan and the change it promises: what is refused leaves nothing behind, an address becomes another of the same port, and the
plan knows what apply would find out (issue 14, day two).

Imported by suite.py.
"""
import contextlib
import os
import pathlib
import shutil
import socket
import subprocess

import iscsi
from harness import check, equal, skip, test, wait_for
from reflinks import file_system
from tarn import BINARY, IQN, Tarn, free_port, listens, lun_section, run, target_section

MIB = 1 << 20
SECRET = "open sesame"
WRONG, CONFLICT = 2, 6


class Planned(Tarn):
    """A Tarn whose configuration is planned and applied by the API."""

    def filled(self, text):
        return text.replace("{port}", str(self.port)).replace("{port2}", str(self.port2)).replace("{dir}", str(self.dir))

    def plan(self, text):
        return self.api().good("POST", "plan", dict(text=self.filled(text))).json

    def apply(self, text):
        """The answer, whatever it says."""
        return self.api().ask("PUT", "config", dict(text=self.filled(text)))

    def applied(self, text):
        plan = self.plan(text)
        check(plan["is_applicable"], plan)
        answer = self.apply(text)
        check(answer.status < 300, answer)

    def refused(self, text, *words):
        """The plan and the change say no in the same words; nothing is changed."""
        plan = self.plan(text)
        revision = self.api().get("status")["revision"]
        answer = self.apply(text)
        check(not plan["is_applicable"], f"the plan says yes, the change: {answer}")
        check(answer.status >= 400, f"the change is made: {answer}")
        said = str(plan.get("mistakes")) + str([step.get("reason") for step in plan["steps"]])
        for word in words:
            check(word in said, f"{word!r} is not in the plan: {said}")
            check(word in answer.body.decode(), f"{word!r} is not in the answer: {answer}")
        equal(self.api().get("status")["revision"], revision, "the revision")
        return said

    def files(self):
        """What there is beside what the harness made."""
        return sorted(str(path.relative_to(self.dir)) for path in self.dir.rglob("*")
                      if path.relative_to(self.dir).parts[0] not in ("state", "log", "out", "tarn.sock", "tarn.sock.lock"))


def base():
    return lun_section("d0", "mem:16M") + target_section("d0")


# What is refused leaves nothing.

@test
def a_refused_change_leaves_no_file_that_it_made():
    """The history cannot be written, which shows when the stores and the log are open: they go again, and what was there stays."""
    more = lun_section("new", "file:{dir}/new.img?size=8M") + lun_section("logged", "file:{dir}/logged.img?size=8M") + \
        'log = "file:{dir}/logged.log?size=16M"\n' + lun_section("old", "file:{dir}/old.img?size=8M")
    with Planned(config=base()) as tarn:
        (tarn.dir / "old.img").write_bytes(b"\x55" * MIB)
        before = tarn.files()
        (history,) = {path.parent for path in (tarn.dir / "state/history").rglob("*") if path.is_file()}
        aside = tarn.dir / "state/aside"
        history.rename(aside)
        history.write_text("")
        check(tarn.plan(base() + more)["is_applicable"], "the plan")
        answer = tarn.apply(base() + more)
        check(answer.status >= 400, answer)
        wait_for(lambda: tarn.files() == before, 20, f"nothing is left: {tarn.files()}")
        equal((tarn.dir / "old.img").read_bytes()[:MIB], b"\x55" * MIB, "what was there")
        history.unlink()
        aside.rename(history)
        tarn.applied(base() + more)
        made = {"new.img", "logged.img", "logged.log"}
        check(made <= set(tarn.files()), tarn.files())
        tarn.applied(base())
        check(made <= set(tarn.files()), f"a file of a lun that was removed is gone: {tarn.files()}")
        tarn.applied(base() + more)
        equal(tarn.terminate(), 0, "exit code")
        check(made <= set(tarn.files()), f"a file that was served is gone: {tarn.files()}")
        tarn.config = base() + more
        tarn.start()


@test
def a_refused_start_leaves_no_file_that_it_made():
    """The port is taken, which shows when the stores are open."""
    tarn = Planned(config=lun_section("d0", "file:{dir}/new.img?size=8M") + 'log = "file:{dir}/new.log?size=16M"\n' +
                   '[[nbd]]\nsocket = "{dir}/a/b/nbd.sock"\nluns = ["d0"]\n' + target_section("d0"))
    try:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", tarn.port))
            taken.listen()
            tarn.begin()
            check(tarn.process.wait(60) != 0, "it starts")
            check("another program" in tarn.log(), tarn.log())
        equal(tarn.files(), ["tarn.toml"], "files")
        tarn.start()
        check({"new.img", "new.log", "a/b/nbd.sock"} <= set(tarn.files()), tarn.files())
        equal(tarn.terminate(), 0, "exit code")
        equal(tarn.files(), ["new.img", "new.log", "tarn.toml"], "files after the end")
    finally:
        tarn.close()


# Addresses.

def group(at):
    return f'[[hyperscsi.group]]\nname = "ABC"\nudp = "{at}"\npassword_file = "{{dir}}/abc"\ndevice = [{{ id = "d0" }}]\n'


def serves(host, port):
    return wait_for(lambda: listens(port, host), 20, f"{host}:{port} answers") and True


@test
def an_address_becomes_another_of_its_port_in_one_change():
    """127.0.0.1 to 0.0.0.0 and back, of a portal, a server of NBD, the administration and HyperSCSI; a port goes from one to
    another of them."""
    def portal(host):
        return lun_section("d0", "mem:16M") + target_section("d0").replace("127.0.0.1:", f"{host}:")

    def nbd(host, port="{port2}"):
        return f'[[nbd]]\nbind = "{host}:{port}"\nluns = ["d0"]\n'

    def admin(host):
        return f'[admin]\nlisten = ["{host}:{{port2}}"]\n'

    def hyperscsi(host):
        return group(f"{host}:{{port2}}")
    with Planned(config=base()) as tarn:
        tarn.secret("abc", SECRET)
        for host in ("0.0.0.0", "127.0.0.1", "0.0.0.0", "127.0.0.2", "127.0.0.1"):
            tarn.applied(portal(host))
            reached = host.replace("0.0.0.0", "127.0.0.3")
            iscsi.Session(tarn.port, IQN, host=reached).close()
            if host != "0.0.0.0":
                wait_for(lambda: not listens(tarn.port, "127.0.0.3"), 20, "the old address is closed")
        for what in (nbd, admin, hyperscsi):
            for host in ("127.0.0.1", "0.0.0.0", "127.0.0.1"):
                tarn.applied(portal("127.0.0.1") + what(host))
                if what is not hyperscsi:
                    serves(host.replace("0.0.0.0", "127.0.0.3"), tarn.port2)
            tarn.applied(portal("127.0.0.1"))
        # From one to another of them.
        tarn.applied(portal("127.0.0.1") + nbd("127.0.0.1"))
        tarn.applied(portal("127.0.0.1") + admin("0.0.0.0"))
        tarn.applied(portal("127.0.0.1").replace("{port}", "{port2}") + nbd("0.0.0.0", "{port}"))
        iscsi.Session(tarn.port2, IQN).close()
        serves("127.0.0.3", tarn.port)
        with socket.socket() as other:
            try:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                other.bind(("127.0.0.1", tarn.port))
                check(False, "another program may have the port, too")
            except OSError:
                pass
        tarn.applied(portal("127.0.0.1"))


@test
def a_port_that_another_program_has_is_refused_with_that_and_the_old_address_stays():
    """It has one address of the port, and all are wanted."""
    def portal(host):
        return lun_section("d0", "mem:16M") + target_section("d0").replace("127.0.0.1:", f"{host}:")
    with Planned(config=base()) as tarn, socket.socket() as other, iscsi.Session(tarn.port, IQN) as session:
        other.bind(("127.0.0.9", tarn.port))
        other.listen()
        session.clear_unit_attentions()
        tarn.refused(portal("0.0.0.0"), "in use by another program")
        iscsi.Session(tarn.port, IQN).close()
        check(session.command(bytes(6)).good, "the session")


# The plan knows.

@test
def a_plan_knows_files_that_cannot_be_made():
    """A link that leads nowhere, one new file by two names, and two that fit one at a time."""
    with Planned(config=base()) as tarn:
        (tarn.dir / "real").mkdir()
        (tarn.dir / "linked").symlink_to(tarn.dir / "real")
        (tarn.dir / "nowhere").symlink_to(tarn.dir / "not-there.img")
        tarn.refused(base() + lun_section("a", "file:{dir}/nowhere?size=1M"), "is a link to a file that is not there")
        log = 'log = "file:{dir}/nowhere?size=16M"\n'
        tarn.refused(base() + lun_section("a", "file:{dir}/a.img?size=1M") + log, "is a link to a file that is not there")
        two = lun_section("a", "file:{dir}/real/x.img?size=16M") + lun_section("b", "file:{dir}/linked/x.img?size=16M")
        tarn.refused(base() + two, "already used")
        log = 'log = "file:{dir}/linked/x.img?size=16M"\n'
        tarn.refused(base() + lun_section("a", "file:{dir}/real/x.img?size=16M") + log, "already used")
        two = lun_section("a", "file:{dir}/a.img?size=1M") + 'log = "file:{dir}/real/x.log?size=16M"\n' + \
            lun_section("b", "file:{dir}/b.img?size=1M") + 'log = "file:{dir}/linked/x.log?size=16M"\n'
        tarn.refused(base() + two, "already used")
        equal(sorted(os.listdir(tarn.dir / "real")), [], "files that were made")


@test
def a_plan_adds_up_what_files_take_at_once():
    """Two of 60 MiB on a file system that has room for one; a log counts, too."""
    with file_system("ext4", size=128 * MIB) as place, Planned(config=base()) as tarn:
        def store(id, mib):
            return lun_section(id, f"file:{place}/{id}.img?size={mib}M&thin=false")
        tarn.refused(base() + store("a", 60) + store("b", 60), "the files before it take 62914560", "thin=false")
        log = f'log = "file:{place}/c.log?size=60M"\n'
        tarn.refused(base() + store("a", 60) + lun_section("c", f"file:{place}/c.img?size=1M") + log, "the files before it take")
        equal([path.name for path in place.iterdir() if path.is_file()], [], "files that were made")
        tarn.applied(base() + store("a", 60))
        tarn.refused(base() + store("a", 60) + store("b", 60), "space")
        tarn.applied(base() + store("a", 60) + store("b", 16))
        tarn.applied(base())


@test
def a_plan_refuses_a_schedule_of_snapshots_that_can_never_be_taken():
    """On ext4, which shares no blocks; on XFS it is accepted."""
    for kind, is_good in (("ext4", False), ("xfs", True)):
        with file_system(kind) as place, Planned(config=base()) as tarn:
            disk = lun_section("disk", f"file:{place}/disk.img?size=16M")
            scheduled = disk + "snapshots = { daily = 2 }\n"
            if is_good:
                tarn.applied(base() + scheduled)
            else:
                tarn.refused(base() + scheduled, "does not share blocks between files")
                tarn.applied(base() + disk)
                tarn.refused(base() + scheduled, "does not share blocks between files")
            tarn.applied(base())


@test
def a_plan_tries_what_waits_for_the_next_start():
    """A socket that is no socket, too large a pool, an account and a root that are not there."""
    with Planned(config=base()) as tarn:
        (tarn.dir / "file").write_text("")
        for section, key in (
                ("admin", 'socket = "{dir}/file"'),
                ("limits", 'pool_per_core_bytes = "64G"\n[server]\ncores = 512'),
                ("confine", 'user = "nobody-of-that-name"'), ("confine", 'roots = ["{dir}/none"]')):
            said = tarn.refused(base() + f"[{section}]\n{key}\n")
            check(said.strip("[]"), f"{key}: no reason")
        tarn.applied(base() + '[admin]\nsocket = "{dir}/more/tarn.sock"\n')
        check(not (tarn.dir / "more").exists(), "the plan has made something")
        tarn.applied(base() + f'[admin]\nsocket = "{tarn.socket}"\n')
        tarn.applied(base())


@test
def an_empty_text_is_refused_and_a_comment_means_it():
    """From a pipe that failed, by the API and from a file that was cut; the plan says so, too."""
    with Planned(config=base()) as tarn:
        for text in ("", "\n \n"):
            answer = tarn.apply(text)
            check(answer.status == 422 and "the configuration is empty" in answer.json["detail"], answer)
            plan = tarn.api().ask("POST", "plan", dict(text=text))
            check("the configuration is empty" in plan.body.decode(), plan)
            for verb in (["apply", "-", "--yes"], ["plan", "-"]):
                done = subprocess.run([BINARY, *verb], input=text, capture_output=True, text=True, timeout=30,
                                      env=tarn.environment(), check=False)
                equal(done.returncode, WRONG, done.stdout + done.stderr)
                check("write a comment" in done.stderr, done.stderr)
        check(tarn.api().get("luns"), "the lun is gone")
        tarn.applied("# nothing\n")
        equal(tarn.api().get("luns"), [], "luns")
        tarn.applied("")
