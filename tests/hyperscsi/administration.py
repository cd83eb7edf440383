#!/usr/bin/env python3
"""Groups of HyperSCSI as administrators have them: mistakes are named, groups come and go while Tarn runs, its key stays, and
rights are given up.

    administration.py [--list] [PATTERN...]

Whether a group is served is asked on the wire, by a discovery of its own: docs/internals/hyperscsi.md, discovery.
"""
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
from harness import check, equal, test, wait_for
from hyperscsi import ANSWER, DISCOVERY, body_of, frame
from tarn import BINARY, Tarn, lun_section, run, target_section

PASSWORD = "open sesame"
ETHER_TYPE = 0x889a
CAP_NET_RAW = 13


class Client:
    """Asks for groups."""

    def __init__(self, address):
        self.address = address
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(0.3)
        self.asked = 0

    def ask(self, *names):
        """(groups that are there, those that are open, number of the server, its name), or None without an answer."""
        self.asked += 1
        nonce = struct.pack(">Q", self.asked)
        listed = b"".join(bytes([len(name)]) + name.encode() for name in names)
        question = frame(DISCOVERY, bytes([7] * 16) + nonce + bytes([len(names)]) + listed)
        self.socket.sendto(question, self.address)
        try:
            while True:
                answer = self.socket.recv(9000)
                body = body_of(answer, ANSWER)
                if body[:8] == nonce:
                    break
        except (TimeoutError, ConnectionRefusedError):
            return None
        check(len(answer) <= len(question), "an answer is not longer than its question")
        groups, opened = struct.unpack_from(">HH", body, 24)
        chosen = lambda mask: [name for n, name in enumerate(names) if mask >> n & 1]
        return chosen(groups), chosen(opened), body[8:24], body[45:45 + body[44]].decode()

    def finds(self, *names):
        """Those of the names that are there, asked until an answer comes."""
        return wait_for(lambda: self.ask(*names), 10, f"an answer about {names}")[0]

    def misses(self, name):
        """Nobody answers for it, though asked several times."""
        return all(self.ask(name) is None for _ in range(3))


class Grouped(Tarn):
    """A Tarn that need not have a target, whose file can be changed. {port} is its UDP port as well."""

    def __init__(self, config=None, **how):
        super().__init__(config=config, **how)
        self.secret("abc.secret", PASSWORD)

    def ready(self):
        # Without a group nothing is printed.
        return self.has_said() or (self.socket.exists() and self.api().ask("GET", "/readyz").status == 200)

    def client(self, port=None):
        return Client(("127.0.0.1", port or self.port))

    def file(self, text):
        return text.replace("{port}", str(self.port)).replace("{port2}", str(self.port2)).replace("{dir}", str(self.dir))

    def plan(self, text):
        return self.api().post("plan", {"text": self.file(text)})

    def apply(self, text):
        return self.api().put("config", {"text": self.file(text)})

    def current(self):
        return self.api().get("config")["text"]

    def current_file(self):
        return (self.dir / "tarn.toml").read_text()

    def capabilities(self):
        """Of each thread, what it could still do."""
        status = [(task / "status").read_text() for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()]
        lines = [line for text in status for line in text.splitlines() if line.startswith(("CapEff:", "CapPrm:"))]
        return [int(line.split()[1], 16) for line in lines]


def group(name="ABC", at='udp = "127.0.0.1:{port}"', password='password_file = "abc.secret"', devices=("a",), keys="", level="crc"):
    """A section with these units as devices."""
    listed = ", ".join(f'{{ id = "{id}", level = "{level}" }}' for id in devices)
    return f'[[hyperscsi.group]]\nname = "{name}"\n{at}\n{password}\n{keys}device = [{listed}]\n'


LUNS = lun_section("a", "mem:4M") + lun_section("b", "mem:4M")
ONE = LUNS + group(devices=("a", "b"))


def steps(plan):
    return [(step["action"], step["kind"], step["name"].split()[0], step["effect"]) for step in plan["steps"]]


@test
def a_file_with_groups_alone_is_whole():
    """No target is needed: the group is found by its name on the wire, the start shows it, and nothing warns of a missing target."""
    with Grouped(ONE) as tarn:
        client = tarn.client()
        equal(client.finds("ABC", "other"), ["ABC"], "groups on the wire")
        check(client.misses("other"), "nobody answers for a name that is not there")
        check(client.misses("abc"), "the case of letters counts")
        out = tarn.out()
        check(f"hyperscsi group ABC at udp:127.0.0.1:{tarn.port}" in out and "device b  4 MiB  mem:4M  crc" in out, out)
        check("nothing can be reached" not in tarn.log(), tarn.log_tail())
        equal(tarn.api().get("sessions"), [], "sessions")


@test
def a_port_that_the_system_chooses_is_shown():
    """Port 0 is a free one, which the start shows; groups at one address share it."""
    text = LUNS + group(at='udp = "127.0.0.1:0"') + group("DEF", at='udp = "127.0.0.1:0"', devices=("b",))
    with Grouped(text) as tarn:
        ports = {line.rsplit(":", 1)[1] for line in tarn.out().splitlines() if line.startswith("hyperscsi group ")}
        equal(len(ports), 1, f"one port for both: {tarn.out()}")
        equal(tarn.client(int(ports.pop())).finds("ABC", "DEF", "G"), ["ABC", "DEF"], "groups on the wire")


@test
def the_command_line_has_a_short_form():
    """`tarn serve --hyperscsi` serves all its stores in one group, without a target."""
    short = ["--hyperscsi", "udp:127.0.0.1:{port}", "--group", "ABC", "--password-file", "abc.secret"]

    class Short(Grouped):
        def command(self):
            flags = [self.file(flag) for flag in short]
            return [str(BINARY), "serve", "--state", str(self.dir / "state"), *flags, "mem:1M", "mem:2M?readonly"]

    with Short() as tarn:
        equal(tarn.client().finds("ABC"), ["ABC"], "groups on the wire")
        out = tarn.out()
        check("device disk0  1 MiB" in out and "device disk1  2 MiB" in out and "target" not in out, out)
    for missing in range(0, len(short), 2):
        flags = short[:missing] + short[missing + 2:]
        done = run("serve", *flags, "mem:1M")
        equal((done.returncode, len(done.stderr.splitlines())), (2, 1), f"without {short[missing]}: {done.stderr}")


@test
def groups_come_and_go_while_it_runs():
    """A group and a device are added, changed and removed at once; a plan says what that is and what it costs."""
    with Grouped(LUNS + target_section("a")) as tarn:
        client = tarn.client()
        check(client.misses("ABC"), "a group that is not there yet")
        base = LUNS + target_section("a")
        for text, expected, found in [
            (base + group(), ("add", "hyperscsi", "ABC", "online"), ["ABC"]),
            (base + group(devices=("a", "b")), ("change", "hyperscsi", "ABC", "online"), ["ABC"]),
            (base + group(devices=("b",)), ("change", "hyperscsi", "ABC", "online"), ["ABC"]),
            (base + group(devices=("b",), keys='profile = "wireless"\n'), ("change", "hyperscsi", "ABC", "online"), ["ABC"]),
            (base + group(devices=("b",)) + group("DEF"), ("add", "hyperscsi", "DEF", "online"), ["ABC", "DEF"]),
            (base + group("DEF"), ("remove", "hyperscsi", "ABC", "drains"), ["DEF"]),
            (base, ("remove", "hyperscsi", "DEF", "drains"), []),
            (base + group(), ("add", "hyperscsi", "ABC", "online"), ["ABC"]),
        ]:
            # Another profile is for sessions that begin later, and the step back is one, too.
            planned = [step for step in steps(tarn.plan(text)) if step[1] == "hyperscsi"]
            check(expected in planned, f"{expected} is not in {planned}")
            tarn.apply(text)
            if found:
                wait_for(lambda found=found: client.finds("ABC", "DEF") == found, 10, f"{found} on the wire")
            else:
                wait_for(lambda: client.misses("ABC"), 10, "nobody answers")


@test
def a_group_moves_to_another_address():
    """Another address is another group: it is served there, and not at the old one any more."""
    with Grouped(ONE) as tarn:
        old, new = tarn.client(), tarn.client(tarn.port2)
        equal(old.finds("ABC"), ["ABC"], "before")
        moved = ONE.replace("{port}", "{port2}")
        equal(sorted(step[:3] for step in steps(tarn.plan(moved))), [("add", "hyperscsi", "ABC"), ("remove", "hyperscsi", "ABC")],
              "the plan")
        tarn.apply(moved)
        equal(new.finds("ABC"), ["ABC"], "at the new address")
        check(old.misses("ABC"), "nobody is at the old one")


@test
def a_change_that_fails_changes_nothing():
    """An address that somebody has, a password file that is gone or too short, an interface that nobody has: all is as before."""
    with Grouped(ONE) as tarn, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        taken = other.getsockname()[1]
        tarn.secret("short.secret", "seven b")
        before = tarn.current()
        for text, why in [
            (ONE + group("DEF", at=f'udp = "127.0.0.1:{taken}"'), "in use"),
            (ONE + group("DEF", password='password_file = "absent"'), "with 8 to 128 bytes"),
            (ONE + group("DEF", password='password_file = "short.secret"'), "has 7 bytes"),
            (ONE + group("DEF", at='interface = "no-such-one"'), "there is no interface"),
        ]:
            answer = tarn.api().ask("PUT", "config", {"text": tarn.file(text)})
            check(answer.status == 422 and why in answer.json["detail"], f"{why!r} is not in {answer}")
            equal(tarn.current(), before, "the document that runs")
            equal(tarn.client().finds("ABC", "DEF"), ["ABC"], "groups on the wire")


@test
def a_new_password_is_a_step_and_ends_nothing():
    """Another password in the same file, or in the document, is a change of the group, and is never shown."""
    written = LUNS + group(password='password = "written in here"')
    with Grouped(ONE) as tarn:
        equal(steps(tarn.plan(ONE)), [], "nothing has changed")
        tarn.secret("abc.secret", "another password")
        [step] = tarn.plan(ONE)["steps"]
        equal((step["action"], step["kind"], step["effect"]), ("change", "hyperscsi", "online"), "the step")
        check("password" in step["detail"] and "another password" not in json.dumps(step), step)
        tarn.apply(ONE)
        equal(steps(tarn.plan(ONE)), [], "it has been read")
        tarn.apply(written)
        changed = written.replace("written in here", "written in anew")
        [step] = tarn.plan(changed)["steps"]
        check("password" in step["detail"] and "written in" not in json.dumps(step), step)
        effective = tarn.api().get("config/effective")["text"]
        check("written in here" not in effective and "(not shown)" in effective, effective)
        check("written in here" not in tarn.log(), "the log has no password")


@test
def a_password_that_others_may_read_is_warned_of():
    """The mode of the configuration file counts where the password stands in it; a password file of others is refused."""
    text = LUNS + group(password='password = "written in here"')
    with Grouped(LUNS) as tarn:
        file, other = tarn.dir / "tarn.toml", tarn.dir / "other.toml"
        other.write_text(tarn.file(text))
        for mode, is_warned in [(0o644, True), (0o640, True), (0o600, False)]:
            file.chmod(mode)
            other.chmod(mode)
            done = run("check", other)
            equal((done.returncode, "chmod 600" in done.stdout), (0, is_warned), f"{mode:o}: {done.stdout}{done.stderr}")
            warnings = " ".join(tarn.plan(text)["warnings"])
            equal("chmod 600" in warnings, is_warned, f"plan at {mode:o}: {warnings}")
        secret = tarn.dir / "abc.secret"
        secret.chmod(0o644)
        answer = tarn.api().ask("PUT", "config", {"text": tarn.file(ONE)})
        check(answer.status >= 400 and "chmod 600" in answer.json["detail"], answer)


@test
def an_open_group_says_so():
    """A group without password is warned of, and discovery shows that it needs none."""
    text = LUNS + group(password="open = true") + group("DEF")
    with Grouped(text) as tarn:
        answer = wait_for(lambda: tarn.client().ask("DEF", "ABC"), 10, "an answer")
        equal(answer[:2], (["DEF", "ABC"], ["ABC"]), "all groups and the open ones")
        tarn.await_log("group ABC of HyperSCSI needs no password", "password_file")
        findings = tarn.api().get("findings")
        check(any("needs no password" in finding["message"] for finding in findings), findings)
        url, secret = f"hyperscsi://ABC/a?udp=127.0.0.1:{tarn.port}", tarn.dir / "abc.secret"
        done = run("attach", "--as", f"nbd:{tarn.dir}/disk.sock", "--password-file", secret, url)
        equal((done.returncode, len(done.stderr.splitlines())), (2, 1), f"with a password: {done.stderr}")
        check("needs no password there" in done.stderr and "leave it out" in done.stderr, done.stderr)


@test
def the_key_stays_over_a_restart():
    """Clients see the same server again; its file is for its user alone; one that is damaged comes from its copy."""
    tarn = Grouped(ONE)
    try:
        def seen():
            tarn.start()
            answer = wait_for(lambda: tarn.client().ask("ABC"), 10, "an answer")
            equal(tarn.terminate(), 0, "exit code")
            return answer[2:]
        first = seen()
        check(first[0] != bytes(16) and first[1], f"{first}")
        file = tarn.dir / "state/hyperscsi.toml"
        equal(file.stat().st_mode & 0o777, 0o600, "mode of the key")
        equal(seen(), first, "server and name after a restart")
        whole = file.read_bytes()
        file.write_bytes(whole[:-3])
        done = run("state", "check", "--state", tarn.dir / "state")
        check(done.returncode != 0 and "hyperscsi.toml" in done.stdout + done.stderr, f"{done}")
        equal(seen(), first, "with a damaged file")
        equal(file.read_bytes(), whole, "it is whole again")
    finally:
        tarn.close()


@test
def mistakes_are_one_line_with_a_place_and_a_remedy():
    """`tarn check` and `tarn serve` refuse them with exit code 2 before anything is made."""
    tarn = Grouped(ONE)
    try:
        for text, place, remedy in [
            (ONE.replace('"ABC"', '"' + "n" * 65 + '"'), "tarn.toml:8: hyperscsi.group[0].name", "the limit is 64 bytes"),
            (ONE + group(), "tarn.toml:13: hyperscsi.group[1].name", "already used at"),
            (LUNS + group(devices=("a", "a")), "device[1].id", "already used at"),
            (LUNS + group(devices=("nowhere",)), "device[0].id", "add a [[lun]]"),
            (LUNS + group(at=""), "hyperscsi.group[0]", "give interface"),
            (LUNS + group(keys='interface = "lo"\n'), "hyperscsi.group[0].udp", "does not go with"),
            (LUNS + group(password=""), "hyperscsi.group[0]", "open = true"),
            (LUNS + group(password='password = "seven b"'), "hyperscsi.group[0].password", "8 to 128"),
            (LUNS + group(password='password_file = "absent"'), "hyperscsi.group[0].password_file", "chmod 600"),
            (LUNS + group(at='interface = "no-such-one"'), "hyperscsi.group[0].interface", "this machine has"),
        ]:
            file = tarn.dir / "tarn.toml"
            file.write_text(tarn.file(text))
            for command in [["check", file], ["serve", "--config", file, "--state", tarn.dir / "state"]]:
                done = run(*command)
                said = done.stderr.strip()
                equal((done.returncode, len(said.splitlines())), (2, 1), f"{command[0]}: {said}")
                check(place in said and remedy in said, f"{place!r} and {remedy!r} are not in: {said}")
        check(not (tarn.dir / "state/hyperscsi.toml").exists(), "nothing was made")
    finally:
        tarn.close()


@test
def a_disk_that_a_group_has_follows_and_stays():
    """A device keeps its disk when that is renamed by the API, which refuses to remove it."""
    with Grouped(ONE) as tarn:
        answer = tarn.api().ask("DELETE", "luns/a")
        check(answer.status >= 400 and "hyperscsi.group ABC" in answer.json["detail"], answer)
        tarn.api().post("luns/a/rename", {"id": "c"})
        check('id = "c", level' in tarn.current(), tarn.current())
        equal(tarn.client().finds("ABC"), ["ABC"], "groups on the wire")


def has_right():
    """Whether this process may take frames."""
    status = pathlib.Path("/proc/self/status").read_text()
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return int(effective.split()[1], 16) >> CAP_NET_RAW & 1 == 1


def ask_on_the_link(interface, name):
    """Whether somebody answers for a group on an interface."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHER_TYPE)) as link:
        link.bind((interface, ETHER_TYPE))
        link.settimeout(0.5)
        question = frame(DISCOVERY, bytes([7] * 16) + bytes(8) + bytes([1, len(name)]) + name.encode())
        header = bytes(6) + link.getsockname()[4][:6] + struct.pack(">H", ETHER_TYPE)
        link.send(header + question)
        try:
            while True:
                got = link.recv(9000)
                if got[14 + 4] == ANSWER:
                    body_of(got[14:], ANSWER)
                    return True
        except TimeoutError:
            return False


@test
def an_interface_is_opened_at_the_start_and_the_right_is_given_up():
    """Frames are taken without CAP_NET_RAW. A later group on that interface is served, also where it was closed meanwhile. A group
    on an interface that no group had when Tarn started is served after a restart."""
    if not has_right():
        harness.skip("no CAP_NET_RAW here")
    text = LUNS + group(at='interface = "lo"')
    for more in ["", "[confine]\nroots = [\"{dir}\"]\n"]:
        with Grouped(text + more) as tarn:
            wait_for(lambda: ask_on_the_link("lo", "ABC"), 10, "an answer on the link")
            check(all(not bits >> CAP_NET_RAW & 1 for bits in tarn.capabilities()), "CAP_NET_RAW is given up")
            second = text + group("DEF", at='interface = "lo"') + more
            tarn.apply(second)
            wait_for(lambda: ask_on_the_link("lo", "DEF"), 10, "an answer of the second group")
            tarn.apply(LUNS + target_section("a") + more)
            check(not ask_on_the_link("lo", "ABC"), "nobody answers any more")
            planned = {step[3] for step in steps(tarn.plan(second)) if step[1] == "hyperscsi"}
            equal(planned, {"online"}, "the plan")
            tarn.apply(second)
            wait_for(lambda: ask_on_the_link("lo", "DEF"), 10, "an answer of the second group again")
    with Grouped(LUNS + target_section("a")) as tarn:
        planned = {step[3] for step in steps(tarn.plan(text)) if step[1] == "hyperscsi"}
        equal(planned, {"pending"}, "the plan")
        tarn.apply(text)
        equal(tarn.api().get("status").get("pending", []), ["[[hyperscsi.group]] ABC at lo"], "what is pending")
        check(not ask_on_the_link("lo", "ABC"), "nobody answers before the restart")
        equal(tarn.terminate(), 0, "exit code")
        tarn.config = tarn.current_file()
        tarn.start()
        wait_for(lambda: ask_on_the_link("lo", "ABC"), 10, "an answer of the first group with an interface")
        equal(tarn.api().get("status").get("pending", []), [], "what is pending after the restart")
        check(all(not bits >> CAP_NET_RAW & 1 for bits in tarn.capabilities()), "CAP_NET_RAW is given up")


@test
def without_the_right_at_the_start_a_plan_names_the_remedy():
    """A Tarn that never had CAP_NET_RAW refuses a group with an interface with what to grant."""
    if not has_right():
        harness.skip("no CAP_NET_RAW here, which this takes away")
    tarn = Grouped(LUNS + target_section("a"), prefix=["setpriv", "--bounding-set=-net_raw"])
    with tarn:
        plan = tarn.plan(LUNS + target_section("a") + group(at='interface = "lo"'))
        reasons = {step["reason"] for step in plan["steps"] if step["kind"] == "hyperscsi"}
        check(not plan["is_applicable"] and all("CAP_NET_RAW" in why and "udp" in why for why in reasons), plan)


@test
def without_the_right_an_interface_is_refused_with_the_remedy():
    """A user without CAP_NET_RAW gets one line and exit code 2; UDP needs no right."""
    if os.geteuid() != 0:
        harness.skip("only root can become another user")
    tarn = Grouped(lun_section("a", "mem:4M") + group(at='interface = "lo"'))
    try:
        tarn.command()
        for path in [tarn.dir, tarn.dir / "tarn.toml", tarn.dir / "abc.secret"]:
            os.chown(path, 65534, 65534)
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        done = subprocess.run([*user, BINARY, "serve", "--config", tarn.dir / "tarn.toml", "--state", tarn.dir / "state"],
                              capture_output=True, text=True, timeout=20)
        said = done.stderr.strip()
        equal((done.returncode, len(said.splitlines())), (2, 1), said)
        for words in ["hyperscsi.group[0].interface", "CAP_NET_RAW", "udp"]:
            check(words in said, f"{words!r} is not in: {said}")
    finally:
        tarn.close()


@test
def another_user_has_its_interfaces():
    """Started as root with `[confine] user`, Tarn opens them before it becomes nobody in earnest."""
    if os.geteuid() != 0 or not has_right():
        harness.skip("needs root and CAP_NET_RAW")
    tarn = Grouped(LUNS + group(at='interface = "lo"') + '[confine]\nuser = "nobody"\n')
    try:
        for path in [tarn.dir, tarn.dir / "abc.secret"]:
            os.chown(path, 65534, 65534)
        tarn.start()
        wait_for(lambda: ask_on_the_link("lo", "ABC"), 10, "an answer on the link")
        check(all(bits == 0 for bits in tarn.capabilities()), f"{tarn.capabilities()}")
        tarn.process.send_signal(signal.SIGTERM)
        equal(tarn.process.wait(15), 0, "exit code")
    finally:
        tarn.close()


if __name__ == "__main__":
    harness.main()
