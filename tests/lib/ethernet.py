"""Two hosts on one Ethernet wire: network namespaces of a user namespace of their own, joined by a veth pair. Needs no root.

Namespaces live as long as the processes that hold them, which end with this one.
"""
import contextlib
import json
import subprocess

import harness

NAMES = ("tarn0", "tarn1")
ADDRESSES = ("10.9.0.1", "10.9.0.2")
MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")
# Frames on the wire are those that hosts send, none of them larger.
FEATURES_OFF = ("tso", "off", "gso", "off", "gro", "off")


def works():
    """Whether this machine lets a user make namespaces and interfaces."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(["unshare", "-Urn", "ip", "link", "add", NAMES[0], "type", "veth", "peer", "name", NAMES[1]],
                              capture_output=True, timeout=20).returncode == 0
    return False


class Link:
    """The wire; `end` is 0 or 1."""

    def __init__(self, mtu=1500):
        self.holders = []
        self._hold(["unshare", "-Urn"])
        self._hold([*self._into(0, "-U"), "unshare", "-n"])
        self.make(mtu)

    def _hold(self, command):
        holder = subprocess.Popen([*command, "sh", "-c", "echo ready; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.holders.append(holder)
        if holder.stdout.readline() != b"ready\n":
            raise harness.Failure(f"{command}: no namespace")

    def _into(self, end, *kinds):
        return ["nsenter", "-t", str(self.holders[end].pid), *kinds, "--preserve-credentials"]

    def inside(self, end):
        """What a command begins with to run at this end."""
        return self._into(end, "-U", "-n")

    def run(self, end, *command, check=True, limit_s=60, **how):
        done = subprocess.run([*self.inside(end), *map(str, command)], capture_output=True, text=True, timeout=limit_s,
                              stdin=subprocess.DEVNULL, **how)
        if check and done.returncode:
            raise harness.Failure(f"{command}: {done.stdout}{done.stderr}")
        return done

    def start(self, end, *command, **how):
        return subprocess.Popen([*self.inside(end), *map(str, command)], stdin=subprocess.DEVNULL, **how)

    def make(self, mtu):
        """Makes the pair, and gives both ends an address; also after it was removed."""
        peer = self.holders[1].pid
        self.run(0, "ip", "link", "add", NAMES[0], "address", MACS[0], "type", "veth", "peer", "name", NAMES[1], "address",
                 MACS[1], "netns", peer)
        for end, (name, address) in enumerate(zip(NAMES, ADDRESSES)):
            self.run(end, "ip", "link", "set", "lo", "up")
            self.run(end, "ip", "address", "add", f"{address}/24", "dev", name)
            self.run(end, "ip", "link", "set", name, "mtu", mtu, "up")
            self.run(end, "ethtool", "-K", name, *FEATURES_OFF, check=False)

    def remove(self):
        self.run(0, "ip", "link", "del", NAMES[0])

    def shape(self, rate, limit="200k", burst="16k"):
        """Has each end send as Ethernet of this rate does, frame by frame; without a rate as fast as it can."""
        for end, name in enumerate(NAMES):
            self.run(end, "tc", "qdisc", "del", "dev", name, "root", check=False)
            if rate:
                self.run(end, "tc", "qdisc", "add", "dev", name, "root", "tbf", "rate", rate, "burst", burst, "limit", limit,
                         "overhead", "24", "mpu", "84")

    def lose(self, percent, what="ether type 0x889a"):
        """Has each end lose so many of the frames that come, by chance."""
        for end, name in enumerate(NAMES):
            self.run(end, "nft", "flush", "ruleset")
            if percent:
                self.run(end, "nft", f"add table netdev t; add chain netdev t c {{ type filter hook ingress device {name} "
                                     f"priority 0; }}; add rule netdev t c {what} numgen random mod 1000 < "
                                     f"{round(10 * percent)} counter drop")

    def counters(self, end):
        """What the interface of this end has counted: stats64 of `ip -s link`."""
        return json.loads(self.run(end, "ip", "-s", "-j", "link", "show", NAMES[end]).stdout)[0]["stats64"]

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

