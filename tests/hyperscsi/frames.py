#!/usr/bin/env python3
"""Devices over HyperSCSI by frames of Ethernet: two hosts on a wire of their own, in namespaces that need no root.

    frames.py [--list] [PATTERN...]
"""
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import ethernet
import harness
import hyperscsi
from ethernet import Link
from harness import check, equal, skip, test, wait_for
from tarn import BINARY, IQN, Tarn, lun_section, target_section

MIB = 1 << 20
SIZE = 32 * MIB
CHUNK = 64 << 10
GROUP = "storage"
PASSWORD = "correct horse"
SERVER, CLIENT = 1, 0
IF = ethernet.NAMES[CLIENT]


def wire(mtu=1500):
    if not ethernet.works():
        skip("this machine lets no user make namespaces with a veth pair")
    return Link(mtu)


class Host(Tarn):
    """A Tarn at one end of a wire. Its ports are nobody's here, so it is ready when it says so. Clients know it by the name of its
    host, which may be another one."""

    def __init__(self, link, end, config, name=None):
        named = ("unshare", "-u", "sh", "-c", 'echo "$0" >/proc/sys/kernel/hostname; exec "$@"', name) if name else ()
        super().__init__(config=config, prefix=[*link.inside(end), *named])

    def ready(self):
        return self.has_said()


@contextlib.contextmanager
def serve(link, *names, level="crc"):
    """A server with devices of these names on its interface, and the directory of their files and of the password."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="hyperscsi-frames."))
    try:
        password = path / "password"
        password.touch(mode=0o600)
        password.write_text(PASSWORD + "\n")
        units = "".join(lun_section(name, f"file:{path}/{name}.img?size={SIZE}") for name in names)
        devices = "".join(f'[[hyperscsi.group.device]]\nid = "{name}"\nlevel = "{level}"\n' for name in names)
        group = f'[[hyperscsi.group]]\nname = "{GROUP}"\ninterface = "{ethernet.NAMES[SERVER]}"\n' \
                f'password_file = "{path}/password"\n'
        with Host(link, SERVER, units + group + devices) as tarn:
            yield tarn, path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def attached(link, path, *arguments, code=0):
    """Devices at the other end, as an export of NBD: its URL."""
    socket, output = path / "nbd.sock", path / "attach.out"
    command = ["attach", "--password-file", path / "password", "--as", f"nbd:{socket}", "--interface", IF, *arguments]
    with open(output, "wb") as out:
        process = link.start(CLIENT, BINARY, *command, stdout=out, stderr=subprocess.STDOUT,
                             env={**os.environ, "XDG_RUNTIME_DIR": str(path)})

    def is_served():
        check(process.poll() is None, f"attach ended: {output.read_text()}")
        return "export disk" in output.read_text()
    try:
        wait_for(is_served, 30, "the device is attached")
        yield f"nbd+unix:///?socket={socket}"
        process.send_signal(signal.SIGTERM)
        equal(process.wait(30), code, f"exit code of attach: {output.read_text()}")
    finally:
        process.kill()
        process.wait()


def verify(link, *arguments, seconds=2):
    """`tarn bench --verify` at the client's end, running."""
    return link.start(CLIENT, BINARY, "bench", "--verify", "--overwrite", "--rw", "mixed", "--bs", "4k,64k", "--iodepth", "16",
                      "--runtime", seconds, "--repeat", "1", *arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def good(running):
    said, _ = running.communicate(timeout=100)
    equal(running.returncode, 0, f"exit code of the bench: {said}")


def count_long(link):
    """Counts the frames from now on that reach the server and are longer than an MTU of 1500 allows; gives what tells how many."""
    rules = (f'table netdev long {{ chain in {{ type filter hook ingress device "{ethernet.NAMES[SERVER]}" priority -1; '
             "meta length > 1514 counter; }; }")
    link.run(SERVER, "nft", rules)
    return lambda: int(re.search(r"counter packets (\d+)", link.run(SERVER, "nft", "list", "table", "netdev", "long").stdout)[1])


@test
def servers_are_found_by_their_station():
    """Who asks at the interface finds the server with its MAC address, and its devices with the password."""
    with wire() as link, serve(link, "a", "b") as (_, path):
        asked = ("discover", "hyperscsi", "--interface", IF, "--group", GROUP, "--json", "--password-file", path / "password")
        [found] = json.loads(link.run(CLIENT, BINARY, *asked).stdout)
        equal(found["address"], ethernet.MACS[SERVER], "address")
        equal([one["name"] for one in found["devices"]], ["a", "b"], "devices")


@test(limit_s=120)
def what_is_written_comes_back_with_frames_of_any_size_and_loss():
    """Verified loads of `tarn bench` by itself, at MTU 1500 and 9000, encrypted, and with 2 % of the frames lost each way."""
    def ways(path):
        return "--interface", IF, "--password-file", path / "password"
    with wire() as link, serve(link, "a") as (_, path):
        good(verify(link, *ways(path), f"hyperscsi://{GROUP}/a"))
    with wire(9000) as link, serve(link, "a") as (_, path):
        long = count_long(link)
        good(verify(link, *ways(path), "--sessions", "2", f"hyperscsi://{GROUP}/a?level=encrypt"))
        check(long() > 0, "no frame was longer than an MTU of 1500 allows")
        link.lose(2)
        good(verify(link, *ways(path), f"hyperscsi://{GROUP}/1?server={server_name(link)}&level=hash"))


SEND = """
import socket, sys, time
name, of, header, frame = sys.argv[1], *map(bytes.fromhex, sys.argv[2:])
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
link.bind((name, 0))
link.settimeout(0.5)
link.send(header + frame)
end = time.monotonic() + 0.5
while time.monotonic() < end:
    try:
        got = link.recv(9000)
    except TimeoutError:
        break
    if got[6:12] == of and b"\\x88\\x9a" in got[12:20]:
        print(got[:6].hex(":"))
"""


@test
def only_a_station_is_answered():
    """Who asks with the address of many as its own gets no answer, as that would reach them all: neither to a question nor to a frame
    of no session. Nor does who asks in a VLAN of which the interface is no part, or another station. The server goes on."""
    many, none = ("ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01"), []
    of_no_session = bytes([0, 64, 0]) + bytes([7] * 60)
    own, server = ethernet.MACS[CLIENT], ethernet.MACS[SERVER]

    def answers(link, source, frame=None, to="ff:ff:ff:ff:ff:ff", tag=""):
        frame = frame or hyperscsi.question(GROUP)
        header = to.replace(":", "") + source.replace(":", "") + tag + "889a"
        return link.run(CLIENT, "python3", "-c", SEND, IF, server.replace(":", ""), header, frame.hex()).stdout.split()
    with wire() as link, serve(link, "a") as (_, path):
        equal(answers(link, own), [own], "who answers a station")
        equal(answers(link, own, of_no_session, server), [own], "who answers a frame of no session")
        for source in many:
            equal(answers(link, source), none, f"answers to {source}")
            equal(answers(link, source, of_no_session, server), none, f"answers to a frame of {source}")
        equal(answers(link, own, tag="81000007"), none, "answers to another VLAN")
        equal(answers(link, own, to="02:00:00:00:00:77"), none, "answers to what is for another station")
        equal(answers(link, server), [server], "answers to the address of the server itself")
        good(verify(link, "--interface", IF, "--password-file", path / "password", f"hyperscsi://{GROUP}/a"))


@test(limit_s=180)
def an_mtu_below_that_of_others_is_kept_to():
    """Ends of unlike MTU, one below 1500, carry verified loads. An MTU that becomes smaller while a device is attached makes a new
    session, whichever end it is of, and no I/O is held or wrong; as after each lost session, the last flush fails; the server is away while it is too small, and comes back."""
    def set_mtu(link, end, mtu):
        link.run(end, "ip", "link", "set", ethernet.NAMES[end], "mtu", mtu)
    for small in (CLIENT, SERVER):
        with wire() as link:
            set_mtu(link, small, 1400)
            with serve(link, "a") as (_, path):
                ways = "--interface", IF, "--password-file", path / "password"
                good(verify(link, *ways, f"hyperscsi://{GROUP}/a"))
    with wire() as link, serve(link, "a") as (tarn, path), attached(link, path, f"hyperscsi://{GROUP}/a", code=1) as url:
        for end, mtu in ((SERVER, 1400), (CLIENT, 1300), (SERVER, 1000)):
            running = verify(link, url, seconds=4)
            set_mtu(link, end, mtu)
            if mtu < 1280:
                tarn.await_log("its MTU is 1000")
                set_mtu(link, end, 1500)
            good(running)


@contextlib.contextmanager
def beside(link, path):
    """A second server of the group on the same host, with the device b, at a macvlan on the interface of the first."""
    link.run(SERVER, "ip", "link", "add", "link", ethernet.NAMES[SERVER], "name", "above", "type", "macvlan", "mode", "bridge")
    link.run(SERVER, "ip", "link", "set", "above", "up")
    text = f'{lun_section("b", "mem:32M")}[[hyperscsi.group]]\nname = "{GROUP}"\ninterface = "above"\n' \
           f'password_file = "{path}/password"\n[[hyperscsi.group.device]]\nid = "b"\nlevel = "crc"\n'
    with Host(link, SERVER, text) as above:
        yield above


@test
def devices_are_listed_under_the_server_that_has_them():
    """Two servers of one host name and one group, each with its own device: discovery shows each device once, in words and as JSON."""
    with wire() as link, serve(link, "a") as (_, path), beside(link, path):
        asked = ("discover", "hyperscsi", "--interface", IF, "--group", GROUP, "--password-file", path / "password")
        servers = json.loads(link.run(CLIENT, BINARY, *asked, "--json").stdout)
        equal(len({server["server"] for server in servers}), 1, "names of the servers")
        listed = {server["address"]: [device["name"] for device in server["devices"]] for server in servers}
        equal(listed.pop(ethernet.MACS[SERVER]), ["a"], "devices of the first server")
        equal(list(listed.values()), [["b"]], "devices of the others")
        lines = link.run(CLIENT, BINARY, *asked).stdout.splitlines()
        equal(sorted(line.split("\t")[1] for line in lines if line.startswith("  ")), ["a", "b"], "devices in words")


@test(limit_s=120)
def servers_at_interfaces_of_one_wire_do_not_take_each_others_frames():
    """What is for a macvlan comes in at the interface below it, too. A server at each, whose sessions have the same numbers, and one client
    with a device of both: data are right, and neither server sees a frame that is not its own."""
    with wire() as link, serve(link, "a") as (below, path):
        with beside(link, path) as above, \
                attached(link, path, "--stripe", "64k", f"hyperscsi://{GROUP}/a", f"hyperscsi://{GROUP}/b") as url:
            good(verify(link, url, seconds=3))
            for tarn, name in ((above, "above"), (below, "below")):
                text = tarn.api().good("GET", "/metrics").body.decode()
                counts = dict(re.findall(r'tarn_hyperscsi_frames_total{kind="(\w+)"} (\d+)', text))
                check(int(counts["received"]) > 100, f"{name}: {counts}")
                odd = {kind: counts[kind] for kind in ("unknown_tag", "forged", "stale", "corrupt") if counts[kind] != "0"}
                check(not odd, f"{name}: {odd} of {counts}")


def server_name(link):
    asked = ("discover", "hyperscsi", "--interface", IF, "--group", GROUP, "--json")
    return json.loads(link.run(CLIENT, BINARY, *asked).stdout)[0]["server"]


def count_heard(link):
    """Counts the frames of HyperSCSI from now on that reach the client; gives what tells how many."""
    rules = f'table netdev heard {{ chain in {{ type filter hook ingress device "{IF}" priority -1; ether type 0x889a counter; }}; }}'
    link.run(CLIENT, "nft", rules)
    return lambda: int(re.search(r"counter packets (\d+)", link.run(CLIENT, "nft", "list", "table", "netdev", "heard").stdout)[1])


@test(limit_s=120)
def clients_see_the_disks_of_their_groups_alone():
    """Two servers behind a switch, as in figure 1 of the paper of 2002: a client in ABC has one disk, one in DEF has two on two
    servers, and nobody answers one in a third group. A device that both servers have is asked for with the name of one."""
    servers = []
    with wire() as link, contextlib.ExitStack() as stack:
        link.run(SERVER, "ip", "link", "add", "switch", "type", "bridge")
        link.run(SERVER, "ip", "link", "set", "switch", "up")
        link.run(SERVER, "ip", "address", "flush", "dev", ethernet.NAMES[SERVER])
        link.run(SERVER, "ip", "link", "set", ethernet.NAMES[SERVER], "master", "switch")
        for n, (server, groups) in enumerate({"left": {"ABC": "first", "DEF": "second"}, "right": {"DEF": "second"}}.items()):
            link.run(SERVER, "ip", "link", "add", f"host{n}", "type", "veth", "peer", "name", f"port{n}")
            link.run(SERVER, "ip", "link", "set", f"port{n}", "master", "switch", "up")
            link.run(SERVER, "ip", "link", "set", f"host{n}", "up")
            text = "".join(lun_section(disk, "mem:16M") for disk in groups.values())
            for group, disk in groups.items():
                text += f'[[hyperscsi.group]]\nname = "{group}"\ninterface = "host{n}"\npassword_file = "{{dir}}/password"\n' \
                        f'[[hyperscsi.group.device]]\nid = "{disk}"\nlevel = "crc"\n'
            tarn = Host(link, SERVER, text, server)
            tarn.secret("password", PASSWORD)
            servers.append(stack.enter_context(tarn))
        password = ("--interface", IF, "--password-file", tarn.dir / "password")

        def found(group):
            asked = ("discover", "hyperscsi", *password, "--group", group, "--json")
            done = link.run(CLIENT, BINARY, *asked, check=False)
            listed = json.loads(done.stdout) if done.returncode == 0 else []
            return sorted((one["server"], device["name"]) for one in listed for device in one["devices"])
        # A port of a bridge forwards after a while.
        wait_for(lambda: found("ABC"), 30, "the switch carries frames")
        equal(found("ABC"), [("left", "first")], "disks of ABC")
        equal(found("DEF"), [("left", "second"), ("right", "second")], "disks of DEF")
        heard = count_heard(link)
        equal(found("XYZ"), [], "disks of a third group")
        equal(heard(), 0, "frames that come to a client in a third group")
        bench = ("bench", "--verify", "--overwrite", "--rw", "mixed", "--bs", "4k", "--iodepth", "4", "--runtime", "1", "--repeat", "1",
                 *password)
        done = link.run(CLIENT, BINARY, *bench, "hyperscsi://DEF/second", check=False)
        said = done.stderr.strip()
        equal((done.returncode, len(said.splitlines())), (2, 1), f"a device that two servers have: {said}")
        check(all(word in said for word in ("left", "right", "server=")), said)
        for server in servers:
            wait_for(lambda server=server: server.api().get("sessions") == [], 10, "the refused client has logged out")
        done = link.run(CLIENT, BINARY, *bench, "hyperscsi://DEF/second?server=right", check=False)
        equal(done.returncode, 0, f"with the name of one: {done.stdout}{done.stderr}")
        place = json.loads(link.run(SERVER, "ip", "-j", "link", "show", "host0").stdout)[0]["address"]
        done = link.run(CLIENT, BINARY, *bench, f"hyperscsi://DEF/second?server={place}", check=False)
        equal(done.returncode, 0, f"with the address of one: {done.stdout}{done.stderr}")


@test
def sessions_of_one_interface_do_not_disturb_each_other():
    """Two devices are one disk, each with a session at the same interface: all chunks are where they belong."""
    with wire() as link, serve(link, "a", "b") as (_, path):
        image = path / "image"
        image.write_bytes(random.Random(4).randbytes(2 * SIZE))
        with attached(link, path, "--stripe", "64k", f"hyperscsi://{GROUP}/a", f"hyperscsi://{GROUP}/b") as url:
            subprocess.run(["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", image, url], check=True, timeout=60)
        data = memoryview(image.read_bytes())
        for number, name in enumerate("ab"):
            expected = b"".join(data[at:at + CHUNK] for at in range(number * CHUNK, 2 * SIZE, 2 * CHUNK))
            check((path / f"{name}.img").read_bytes() == expected, f"device {name} has other data")


@test(limit_s=120)
def an_interface_that_goes_is_waited_for():
    """A confined gateway has a device as its store: the interface is removed under load and made again. No initiator sees an
    error, meanwhile the status names the interface."""
    with wire() as link, serve(link, "a") as (server, path):
        store = f"hyperscsi://{GROUP}/a?interface={IF}&password_file={path}/password&retry=90"
        text = lun_section("far", store) + target_section("far")
        with Host(link, CLIENT, text) as near:
            outage = lambda: next(iter(near.api().get("luns"))).get("outage") or ""
            running = verify(link, f"iscsi://127.0.0.1:{near.port}/{IQN}/0", seconds=12)
            server.await_log("HyperSCSI session begins")
            link.remove()
            wait_for(lambda: IF in outage(), 60, "the status names the interface")
            link.make(1500)
            wait_for(lambda: not outage(), 60, "the interface is used again")
            good(running)


@test(limit_s=120)
def a_gateway_gets_stores_at_interfaces_while_it_runs():
    """A confined gateway that had no store at an interface gets two: each waits for a restart, as status and findings say, and is not
    ready before it. Then both serve at the same time; one is removed and opened again without a restart."""
    with wire() as link, serve(link, "a", "b") as (_, path):
        def run(*words, check=True):
            return link.run(CLIENT, BINARY, *words, check=check, env={**os.environ, **near.environment()})

        def add(name):
            return f"hyperscsi://{GROUP}/{name}?interface={IF}&password_file={path}/password&retry=90"
        text = lun_section("first", "mem:16M") + target_section("first") + f'[confine]\nroots = ["{path}"]\n'
        with Host(link, CLIENT, text) as near:
            for number, name in enumerate("ab", 1):
                done = run("lun", "add", name, add(name), "--target", IQN, "--lun", str(number))
                check("pending" in done.stdout, done.stdout)
            equal(near.api().get("status").get("pending", []), ["[[lun]] a", "[[lun]] b"], "what is pending")
            held = [one for one in near.api().get("findings") if one["code"] == "store-unopened"]
            check(len(held) == 2 and all("restart" in one["message"] for one in held), held)
            equal(near.terminate(), 0, "exit code")
            near.config = (near.dir / "tarn.toml").read_text()
            near.start()
            equal(near.api().get("status").get("pending", []), [], "what is pending after the restart")
            loads = [verify(link, f"iscsi://127.0.0.1:{near.port}/{IQN}/{number}") for number in (1, 2)]
            for load in loads:
                good(load)
            run("target", "unmap", IQN, "1")
            run("lun", "rm", "a", "--yes")
            done = run("lun", "add", "a", add("a"), "--target", IQN, "--lun", "1")
            check("pending" not in done.stdout, done.stdout)
            good(verify(link, f"iscsi://127.0.0.1:{near.port}/{IQN}/1"))
            good(verify(link, f"iscsi://127.0.0.1:{near.port}/{IQN}/2"))


@test(limit_s=120)
def a_store_whose_server_is_away_at_the_start_is_opened_when_it_is_there():
    """A gateway with a store at an interface starts before its server: the LUN is not ready, and serves without a restart later."""
    with wire() as link, serve(link, "a") as (server, path):
        store = f"hyperscsi://{GROUP}/a?interface={IF}&password_file={path}/password&retry=90"
        with Host(link, CLIENT, lun_section("far", store) + target_section("far")) as near:
            good(verify(link, f"iscsi://127.0.0.1:{near.port}/{IQN}/0"))
            equal(near.terminate(), 0, "exit code")
            server.kill()
            near.start()
            held = lambda: [one for one in near.api().get("findings") if one["code"] == "store-unopened"]
            check(held(), "the store is not open")
            server.start()
            wait_for(lambda: not held(), 60, "the store is opened")
            good(verify(link, f"iscsi://127.0.0.1:{near.port}/{IQN}/0"))


@test
def an_interface_that_cannot_be_used_is_named_with_a_remedy():
    """Unknown, down, with a small MTU, without the right: one line each, exit code 2, by all verbs."""
    with wire() as link, serve(link, "a") as (_, path):
        link.run(CLIENT, "ip", "link", "add", "down0", "type", "veth", "peer", "name", "down1")
        link.run(CLIENT, "ip", "link", "add", "small0", "mtu", "1000", "type", "veth", "peer", "name", "small1")
        link.run(CLIENT, "ip", "link", "set", "small0", "up")
        without = ("setpriv", "--bounding-set=-net_raw")
        url = f"hyperscsi://{GROUP}/a"
        for prefix, name, words in (((), "none0", "there is no interface"), ((), "down0", "ip link set down0 up"),
                                    ((), "small0", "ip link set small0 mtu"), (without, IF, "CAP_NET_RAW")):
            for verb in (("discover", "hyperscsi", "--group", GROUP, "--interface", name),
                         ("attach", "--as", f"nbd:{path}/s", "--password-file", path / "password", "--interface", name, url),
                         ("bench", "--password-file", path / "password", "--interface", name, url),
                         ("serve", "--state", path / "state", "--listen", "127.0.0.1:0",
                          f"{url}?interface={name}&password_file={path}/password")):
                done = link.run(CLIENT, *prefix, BINARY, *verb, check=False)
                equal(done.returncode, 2, f"exit code of {verb}; {done.stderr}")
                check(words in done.stderr and done.stderr.count("\n") == 1, f"{verb}: {done.stderr}")


if __name__ == "__main__":
    harness.main()
