#!/usr/bin/env python3
"""Initiators that others wrote, without a kernel: QEMU's block layer and libiscsi's tools, against Tarn.

    suite.py [--list] [PATTERN...]
"""
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness
from harness import check, equal, measured, skip, test
from tarn import IQN, Tarn

MIB = 1 << 20
IMAGE_BYTES = 1 << 30
STRETCH_BYTES = 16 * MIB
TOOL_LIMIT_S = 120


def tool(*command, limit_s=TOOL_LIMIT_S, status=0):
    """Runs a tool under a time limit; returns what it printed. `status` None: any exit status."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, errors="replace", timeout=limit_s,
                          stdin=subprocess.DEVNULL, check=False)
    if status is not None:
        equal(done.returncode, status, f"exit status of {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def qemu_io(url, *commands):
    """Runs qemu-io commands in order; each must succeed."""
    arguments = [word for command in commands for word in ("-c", command)]
    out = tool("qemu-io", "-f", "raw", *arguments, url)
    check("Pattern verification failed" not in out, f"qemu-io: {out}")
    return out


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def allocated_bytes(path):
    return os.stat(path).st_blocks * 512


def make_image(path):
    """An image of random and zero stretches in turn, of lengths that share no block size; returns the random bytes."""
    dice = random.Random(1)
    random_bytes = 0
    with open(path, "wb") as image:
        image.truncate(IMAGE_BYTES)
        at = 0
        while at < IMAGE_BYTES:
            length = dice.randrange(1, STRETCH_BYTES // 4096) * 4096
            length = min(length, IMAGE_BYTES - at)
            image.seek(at)
            image.write(dice.randbytes(length))
            random_bytes += length
            at += length + dice.randrange(1, 2 * STRETCH_BYTES // 4096) * 4096
    return random_bytes


def holes(url):
    """Bytes that read as zeros without being stored, and all bytes, as QEMU sees them."""
    extents = json.loads(tool("qemu-img", "map", "-f", "raw", "--output=json", url))
    return sum(e["length"] for e in extents if e["zero"] and not e["data"]), sum(e["length"] for e in extents)


@test(limit_s=300)
def qemu_img_converts_1_gib_there_and_back():
    """Equal SHA-256, and what is zero in the image takes no room on the LUN nor in the copy."""
    with tempfile.TemporaryDirectory() as scratch, Tarn(f"file:{{dir}}/disk.img?size={IMAGE_BYTES}") as tarn:
        source, copy = pathlib.Path(scratch, "source.img"), pathlib.Path(scratch, "copy.img")
        random_bytes = make_image(source)
        # Garbage where the image has zeros, which must go.
        qemu_io(tarn.url(), f"write -P 0xaa {IMAGE_BYTES - 8 * MIB} 8M")
        start = time.monotonic()
        tool("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", source, tarn.url())
        there = time.monotonic() - start
        tool("qemu-img", "compare", "-f", "raw", "-F", "raw", source, tarn.url())
        start = time.monotonic()
        tool("qemu-img", "convert", "-f", "raw", "-O", "raw", tarn.url(), copy)
        back = time.monotonic() - start
        want = sha256(source)
        equal(sha256(copy), want, "SHA-256 of the copy")
        zero_bytes, all_bytes = holes(tarn.url())
        equal(all_bytes, IMAGE_BYTES, "bytes that qemu-img map covers")
        slack = 8 * MIB
        lun, copied = allocated_bytes(tarn.dir / "disk.img"), allocated_bytes(copy)
        check(lun <= random_bytes + slack, f"the LUN takes {lun} bytes for {random_bytes} bytes of data")
        check(copied <= random_bytes + slack, f"the copy takes {copied} bytes for {random_bytes} bytes of data")
        check(zero_bytes >= IMAGE_BYTES - random_bytes - slack, f"qemu-img map shows {zero_bytes} bytes of holes")
        equal(tarn.terminate(), 0, "exit code")
        equal(sha256(tarn.dir / "disk.img"), want, "SHA-256 of the file behind the LUN")
        tarn.start()
        measured(f"{random_bytes // MIB} MiB of data: there {there:.1f} s, back {back:.1f} s; LUN {lun // MIB} MiB,"
                 f" copy {copied // MIB} MiB allocated, {zero_bytes // MIB} MiB of holes mapped")


def patterns(store):
    """Writes, zeroes and discards in all alignments that the block size allows, and reads back."""
    def run():
        block = 4096 if "blocksize=4096" in store else 512
        with Tarn(store) as tarn:
            url = tarn.url()
            qemu_io(url, "write -P 0x11 0 4M", "read -P 0x11 0 4M",
                    f"write -P 0x22 {block} {block}", f"read -P 0x11 0 {block}", f"read -P 0x22 {block} {block}",
                    f"read -P 0x11 {2 * block} 64k",
                    # across what QEMU and the target split at
                    f"write -P 0x33 {MIB - block} {2 * block}", f"read -P 0x33 {MIB - block} {2 * block}",
                    "write -P 0x44 8M 16M", "read -P 0x44 8M 16M",
                    "flush")
            qemu_io(url, "write -z 1M 1M", "read -P 0 1M 1M", "write -z -u 2M 64k", "read -P 0 2M 64k",
                    f"write -z {3 * MIB + block} {block}", f"read -P 0 {3 * MIB + block} {block}",
                    f"read -P 0x11 {3 * MIB} {block}", f"read -P 0x11 {3 * MIB + 2 * block} {block}")
            if "thin=false" not in store:       # without UNMAP a discard promises nothing
                qemu_io(url, "discard 8M 4M", "read -P 0 8M 4M", "read -P 0x44 12M 4M")
            qemu_io(url, "write -f -P 0x55 0 64k", "read -P 0x55 0 64k")
            qemu_io(url, "aio_write -P 0x66 32M 1M", "aio_write -P 0x77 33M 1M", "aio_flush",
                    "read -P 0x66 32M 1M", "read -P 0x77 33M 1M")
            qemu_io(url, "read -P 0x66 32M 1M", "read -P 0x77 33M 1M", "read -P 0x55 0 64k")
    run.__doc__ = f"qemu-io patterns, zeroes and discards on {store}"
    return run


for _name, _store in (("file", "file:{dir}/disk.img?size=64M"), ("file_writethrough", "file:{dir}/disk.img?size=64M&cache=writethrough"),
                      ("file_direct", "file:{dir}/disk.img?size=64M&cache=direct"),
                      ("file_thick", "file:{dir}/disk.img?size=64M&thin=false"),
                      ("memory", "mem:64M"),
                      # QEMU 7.2 stops at an assertion of its own when it reads much of an unmapped stretch of a thin unit
                      # with blocks above 512 bytes, so these are thick.
                      ("file_4k_blocks", "file:{dir}/disk.img?size=64M&blocksize=4096&thin=false"),
                      ("memory_4k_blocks", "mem:64M?blocksize=4096&thin=false")):
    harness.add(f"qemu_io_patterns_on_{_name}", patterns(_store))


@test
def a_discard_gives_the_room_back():
    """UNMAP punches a hole into the file behind the LUN."""
    with Tarn("file:{dir}/disk.img?size=64M") as tarn:
        qemu_io(tarn.url(), "write -P 0x5a 0 32M", "flush")
        before = allocated_bytes(tarn.dir / "disk.img")
        qemu_io(tarn.url(), "discard 0 32M")
        after = allocated_bytes(tarn.dir / "disk.img")
        check(before >= 32 * MIB and after <= MIB, f"{before} bytes before, {after} after")
        equal(os.path.getsize(tarn.dir / "disk.img"), 64 * MIB, "size of the file")
        measured(f"{before // MIB} MiB before, {after // 1024} KiB after")


@test
def a_block_device_is_served():
    """A loop device: patterns through the LUN arrive in what is behind the device, blocks given back read as zeros."""
    losetup = shutil.which("losetup", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if os.geteuid() != 0 or losetup is None:
        skip("attaching a loop device needs root and losetup (package mount)")
    with tempfile.TemporaryDirectory() as scratch:
        image = pathlib.Path(scratch, "behind.img")
        with open(image, "wb") as file:
            file.truncate(64 * MIB)
        attached = subprocess.run([losetup, "--find", "--show", image], capture_output=True, text=True, timeout=TOOL_LIMIT_S, check=False)
        if attached.returncode != 0:
            skip(f"no loop device to be had: {attached.stderr.strip()}")
        device = attached.stdout.strip()
        try:
            for cache in ("writeback", "writethrough", "direct"):
                with Tarn(f"block:{device}?cache={cache}") as tarn:
                    qemu_io(tarn.url(), "write -P 0x5a 1M 4M", "flush", "read -P 0x5a 1M 4M", "write -z -u 2M 1M",
                            "read -P 0x5a 1M 1M", "read -P 0 2M 1M", "read -P 0x5a 3M 2M")
                with open(image, "rb") as file:
                    file.seek(MIB)
                    equal(file.read(2 * MIB), b"\x5a" * MIB + bytes(MIB), f"what is behind the device, cache={cache}")
        finally:
            tool(losetup, "--detach", device)
        measured("three cache modes")


@test
def qemu_img_bench_keeps_64_requests_going():
    """QEMU's own load at queue depth 64, reads and writes. A core takes several requests in a turn, and none of them waits for the
    next turn that happens anyway: the other core, which has no session, does not come to many of those meanwhile."""
    with Tarn("mem:256M", arguments=["--cores", "2"]) as tarn:
        def turns():
            text = tarn.api().good("GET", "/metrics").body.decode()
            return [int(found) for found in re.findall(r"^tarn_reactor_turns_total\S* (\d+)", text, re.MULTILINE)]
        count = 20_000
        for flags in ([], ["-w"]):
            before = turns()
            out = tool("qemu-img", "bench", "-f", "raw", "-c", count, "-d", "64", "-s", "4096", "-S", "8192", *flags, tarn.url())
            idle, busy = sorted(after - before for after, before in zip(turns(), before))
            check(idle <= count // 200, f"{idle} turns of the core without a session: requests have waited")
            check(busy - idle <= count // 2, f"{busy} turns for {count} requests")
            seconds = float(re.search(r"Run completed in ([\d.]+)", out)[1])
            measured(f"20,000 {'writes' if flags else 'reads'} in {seconds:.2f} s and {busy} turns, {idle} elsewhere")


@test
def a_read_only_lun_refuses_qemu():
    """QEMU opens it for reading only, and a write fails."""
    with Tarn("mem:16M?readonly") as tarn:
        tool("qemu-io", "-r", "-f", "raw", "-c", "read -P 0 0 64k", tarn.url())
        out = tool("qemu-io", "-f", "raw", "-c", "write 0 64k", tarn.url(), status=None)
        check(re.search(r"(?i)write.?protected|read.?only|Permission denied|failed", out), f"qemu-io says: {out}")
        check("wrote 65536" not in out, f"qemu-io wrote: {out}")


TWO_TARGETS = f"""
[[lun]]
id = "one"
store = "mem:32M?serial=FIRST0001"
[[lun]]
id = "two"
store = "mem:64M"
[[lun]]
id = "hidden"
store = "mem:16M"
[[group]]
id = "others"
initiators = ["iqn.2026-11.example.other:*"]
[[target]]
name = "{IQN}"
portals = ["127.0.0.1:{{port}}", "[::1]:{{port2}}"]
luns = [{{ lun = 0, id = "one" }}, {{ lun = 5, id = "two" }}, {{ lun = 6, id = "hidden", groups = ["others"] }}]
[[target]]
name = "{IQN}-second"
portals = ["127.0.0.1:{{port}}"]
luns = [{{ lun = 0, id = "two" }}]
"""


def luns_by_target(text, port):
    """{target: [LUN...]} from what iscsi-ls -s tells of the portals with this port; a target has one entry per portal."""
    found = {}
    for target, portal, rest in re.findall(r"^Target:(\S+) Portal:(\S+),\d+\n((?:Lun:.*\n?)*)", text, re.MULTILINE):
        if portal.endswith(f":{port}"):
            found[target] = re.findall(r"^Lun:(\d+) +Type:DIRECT_ACCESS", rest, re.MULTILINE)
    return found


@test
def iscsi_ls_shows_targets_and_luns():
    """Discovery and REPORT LUNS, over IPv4 and IPv6; a LUN for others does not show."""
    with Tarn(config=TWO_TARGETS) as tarn:
        url = f"iscsi://127.0.0.1:{tarn.port}"
        out = tool("iscsi-ls", "-s", url, limit_s=20)
        equal(luns_by_target(out, tarn.port), {IQN: ["0", "5"], f"{IQN}-second": ["0"]}, f"LUNs in\n{out}")
        out = tool("iscsi-ls", "-i", "iqn.2026-11.example.other:a", "-s", url, limit_s=20)
        equal(sum(map(len, luns_by_target(out, tarn.port).values())), 4, f"LUNs for the initiator of the group in\n{out}")
        out = tool("iscsi-ls", f"iscsi://[::1]:{tarn.port2}", limit_s=20)
        check(f"Target:{IQN} " in out and f"[::1]:{tarn.port2}" in out, out)


@test
def iscsi_inq_decodes_every_page():
    """INQUIRY and the VPD pages that libiscsi decodes; the serial number is the one asked for."""
    with Tarn(config=TWO_TARGETS) as tarn:
        out = tool("iscsi-inq", tarn.url(), limit_s=20)
        check("DIRECT_ACCESS" in out and "CmdQue:1" in out, out)
        out = tool("iscsi-inq", "-e", "1", "-c", "0", tarn.url(), limit_s=20)
        for page in ("0x00", "0x80", "0x83", "0xb0", "0xb1", "0xb2"):
            check(f"({page})" in out or f"{page[2:]}" in out.lower(), f"page {page} in\n{out}")
        check("FIRST0001" in tool("iscsi-inq", "-e", "1", "-c", str(0x80), tarn.url(), limit_s=20), "the serial number")
        out = tool("iscsi-inq", "-e", "1", "-c", str(0x83), tarn.url(), limit_s=20)
        check("NAA" in out, out)
        for page in (0xB0, 0xB1, 0xB2):
            tool("iscsi-inq", "-e", "1", "-c", str(page), tarn.url(), limit_s=20)


@test
def iscsi_readcapacity16_tells_the_size():
    """Size, block size, and that the LUN is thin and reads zeros."""
    with Tarn("mem:32M", "mem:64M?blocksize=4096") as tarn:
        out = tool("iscsi-readcapacity16", tarn.url(), limit_s=20)
        check("LOGICAL BLOCK ADDRESS:65535" in out and "IN BYTES:512" in out and "LBPME:1 LBPRZ:1" in out, out)
        out = tool("iscsi-readcapacity16", tarn.url(lun=1), limit_s=20)
        check("LOGICAL BLOCK ADDRESS:16383" in out and "IN BYTES:4096" in out, out)


@test
def iscsi_swp_switches_write_protection():
    """SWP of the control mode page can be set and cleared, and is obeyed."""
    with Tarn("mem:32M") as tarn:
        check("SWP:0" in tool("iscsi-swp", tarn.url(), limit_s=20), "SWP is clear at first")
        tool("iscsi-swp", "--swp", "on", tarn.url(), limit_s=20)
        check("SWP:1" in tool("iscsi-swp", tarn.url(), limit_s=20), "SWP is set")
        out = tool("qemu-io", "-f", "raw", "-c", "write 0 64k", tarn.url(), status=None)
        check("wrote 65536" not in out, f"written although protected: {out}")
        tool("iscsi-swp", "--swp", "off", tarn.url(), limit_s=20)
        qemu_io(tarn.url(), "write -P 1 0 64k", "read -P 1 0 64k")


@test
def iscsi_perf_reads_without_error():
    """Two seconds of libiscsi's own load."""
    with Tarn("mem:256M") as tarn:
        done = subprocess.run(["timeout", "-s", "INT", "3", "iscsi-perf", "-t", "2", "-m", "32", tarn.url()],
                              capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL, check=False)
        rates = re.findall(r"iops average (\d+)", done.stdout)
        check(rates and int(rates[-1]) > 0, f"iscsi-perf says: {done.stdout}{done.stderr}")
        measured(f"{rates[-1]} IOPS")


@test
def a_restart_keeps_identity_and_data():
    """The NAA name and serial number outlive the process, and so does what was written."""
    with Tarn("file:{dir}/disk.img?size=32M") as tarn:
        pages = [str(0x80), str(0x83)]
        qemu_io(tarn.url(), "write -P 0x3c 1M 1M", "flush")
        before = [tool("iscsi-inq", "-e", "1", "-c", page, tarn.url(), limit_s=20) for page in pages]
        equal(tarn.terminate(), 0, "exit code")
        tarn.start()
        after = [tool("iscsi-inq", "-e", "1", "-c", page, tarn.url(), limit_s=20) for page in pages]
        equal(after, before, "VPD pages 80h and 83h")
        qemu_io(tarn.url(), "read -P 0x3c 1M 1M")


if __name__ == "__main__":
    harness.main()
