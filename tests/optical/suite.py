#!/usr/bin/env python3
"""CD and DVD drives: what is in them, another disc under use, an eject and its prevention, a restart, and files that are no disc.

    suite.py [--list] [PATTERN...]
"""
import os
import pathlib
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import iscsi
import scsi
from disc import BLOCK, BLOCKS, MARKER, bootable, iso
from harness import check, equal, main, test, wait_for
from tarn import BINARY, IQN, Tarn, lun_section, run, target_section

DVD_BYTES = 1 << 30
FIRST, OTHER = "iqn.2026-11.example:first", "iqn.2026-11.example:other"
DONE, WRONG, CONFLICT, REFUSED = 0, 2, 6, 7
CONFIG = lun_section("cd", "cdrom:a.iso") + lun_section("stick", "file:stick.img?size=8M&removable") + target_section("cd", "stick")

EMPTY_CLOSED, EMPTY_OPEN = (scsi.NOT_READY, (0x3A, 1)), (scsi.NOT_READY, (0x3A, 2))
NO_MEDIUM = (scsi.NOT_READY, (0x3A, 0))
NOW_READY = (scsi.UNIT_ATTENTION, (0x28, 0))
REMOVAL_WANTED = (scsi.UNIT_ATTENTION, (0x5A, 1))
PREVENTED = (scsi.ILLEGAL_REQUEST, (0x53, 2))


class Drive(Tarn):
    """Tarn with a drive as LUN 0, a removable disk as LUN 1, and two discs beside its configuration."""

    def __init__(self, config=CONFIG):
        super().__init__(config=config)
        (self.dir / "a.iso").write_bytes(iso(0xA1))
        (self.dir / "b.iso").write_bytes(iso(0xB2, 300))

    def login(self, initiator=FIRST):
        return iscsi.Session(self.port, IQN, initiator=initiator)

    def run(self, *arguments, code=DONE):
        done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=60, cwd=self.dir,
                              env=self.environment(), stdin=subprocess.DEVNULL, check=False)
        equal(done.returncode, code, f"tarn {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def lun(self, name="cd"):
        return self.api().get(f"luns/{name}")

    def again(self):
        """Stops and starts it with the configuration that it has now."""
        equal(self.terminate(), 0, "exit code of SIGTERM")
        self.config = (self.dir / "tarn.toml").read_text()
        self.start()


def good(outcome, what="command"):
    check(outcome.good, f"{what}: {outcome}")
    return outcome


def sense(session, cdb, **more):
    found = session.command(cdb, **more).sense
    return found.key, found.code


def read(session, lba=20, length=BLOCK, lun=0):
    return session.command(scsi.read10(lba, length // BLOCK), read=length, lun=lun)


def holds(session, fill):
    check(good(read(session), "READ").data == bytes([fill]) * BLOCK, f"the disc of {fill:02x}")


def start_stop(flags):
    return bytes([0x1B, 0, 0, 0, flags, 0])


def prevent(is_prevented):
    return bytes([0x1E, 0, 0, 0, int(is_prevented), 0])


def toc(form=0, length=0xFF):
    return struct.pack(">BBBxxxBHB", 0x43, 0, form, 0, length, 0)


def ready(*sessions, luns=2):
    for session in sessions:
        for lun in range(luns):
            session.clear_unit_attentions(lun)


@test(limit_s=120)
def a_machine_boots_from_the_disc():
    """A machine of QEMU, which logs in by itself, runs the program that a disc begins with."""
    with Drive() as tarn:
        (tarn.dir / "boot.iso").write_bytes(bootable())
        tarn.run("lun", "load", "cd", "boot.iso")
        out = tarn.dir / "serial"
        machine = subprocess.Popen(
            ["qemu-system-x86_64", "-nodefaults", "-no-reboot", "-display", "none", "-m", "64", "-serial", f"file:{out}", "-device", "virtio-scsi-pci",
             "-drive", f"file=iscsi://127.0.0.1:{tarn.port}/{IQN}/0,if=none,id=cd,format=raw,readonly=on", "-device", "scsi-cd,drive=cd"],
            stdin=subprocess.DEVNULL)
        try:
            wait_for(lambda: out.exists() and MARKER in out.read_bytes(), 60, "what the disc says")
        finally:
            machine.kill()
            machine.wait()


@test
def a_file_is_a_disc_in_a_drive():
    """INQUIRY, capacity, READ of each form, contents, profile, and what is no medium of it."""
    with Drive() as tarn, tarn.login() as session:
        ready(session)
        inquiry = session.command(scsi.inquiry(), read=96).data
        equal((inquiry[0] & 0x1F, inquiry[1] & 0x80, inquiry[16:23]), (5, 0x80, b"DVD-ROM"), "type, RMB and product")
        capacity = session.command(struct.pack(">B9x", 0x25), read=8).data
        equal(struct.unpack(">II", capacity), (BLOCKS - 1, BLOCK), "capacity")
        for cdb in (scsi.read10(20, 2), struct.pack(">BBIIBB", 0xA8, 0, 20, 2, 0, 0),
                    bytes([0xBE, 0, 0, 0, 0, 20, 0, 0, 2, 0x10, 0, 0]), bytes([0xB9, 0, 0, 0, 2, 20, 0, 2, 22, 0x10, 0, 0])):
            data = good(session.command(cdb, read=2 * BLOCK), f"{cdb[0]:02x}h").data
            check(data == b"\xa1" * 2 * BLOCK, f"{cdb[0]:02x}h: the data")
        volume = good(read(session, 16)).data
        equal(volume[1:6], b"CD001", "the volume descriptor")
        tracks = good(session.command(toc(), read=0xFF), "READ TOC").data
        equal(tracks, struct.pack(">HBB BBBBI BBBBI", 18, 1, 1, 0, 0x14, 1, 0, 0, 0, 0x14, 0xAA, 0, BLOCKS), "the contents")
        profile = good(session.command(bytes([0x46, 0, 0, 0, 0, 0, 0, 0, 8, 0]), read=8), "GET CONFIGURATION").data
        equal(profile[6:8], b"\x00\x08", "CD-ROM is the profile")
        equal(sense(session, scsi.write10(0, 1), write=bytes(BLOCK)), (scsi.ILLEGAL_REQUEST, scsi.INVALID_OPCODE), "WRITE")
        equal(sense(session, toc(), lun=1, read=0xFF), (scsi.ILLEGAL_REQUEST, scsi.INVALID_OPCODE), "READ TOC of a disk")
        equal(sense(session, scsi.read10(BLOCKS, 1), read=BLOCK)[0], scsi.ILLEGAL_REQUEST, "a READ behind the end")
        shown = tarn.lun()
        equal((shown["type"], shown["kind"], shown["block_bytes"], shown["size_bytes"], shown["medium"]),
              ("cdrom", "cdrom", BLOCK, BLOCKS * BLOCK, {"loaded": True, "prevented_by": []}), "what administrators see")
        equal(tarn.lun("stick")["type"], "disk", "the type of a disk")
        metrics = tarn.api().good("GET", "/metrics").body.decode()
        for lun, kind in ((shown["spec"]["id"], "cdrom"), ("stick", "disk")):
            check(f'\ntarn_lun_info{{lun="{lun}",type="{kind}"}} 1\n' in metrics, f"the metric has no type of {lun}")


@test
def a_large_file_is_a_dvd():
    """Above 900 MB the profile is DVD-ROM, with the physical format."""
    with Drive() as tarn, tarn.login() as session:
        with open(tarn.dir / "dvd.iso", "wb") as file:
            file.truncate(DVD_BYTES)
        tarn.run("lun", "load", "cd", "dvd.iso")
        ready(session)
        profile = good(session.command(bytes([0x46, 0, 0, 0, 0, 0, 0, 0, 8, 0]), read=8)).data
        equal(profile[6:8], b"\x00\x10", "DVD-ROM is the profile")
        structure = struct.pack(">BBIBBHBB", 0xAD, 0, 0, 0, 0, 2052, 0, 0)
        data = good(session.command(structure, read=2052), "READ DISC STRUCTURE").data
        equal((len(data), data[4:6]), (2052, b"\x01\x0f"), "the physical format")


@test
def another_disc_comes_under_use():
    """28h/00h for every nexus; sessions and the RESERVE of another initiator stay; the configuration has the new disc, and a restart
    serves it. The same file once more is no change of the configuration."""
    with Drive() as tarn, tarn.login() as a, tarn.login(OTHER) as b:
        ready(a, b)
        good(b.command(scsi.reserve6()), "RESERVE")
        holds(b, 0xA1)
        said = tarn.run("lun", "load", "cd", "b.iso")
        check("/b.iso" in said and "28h/00h" in said, said)
        equal(sense(b, scsi.read10(20, 1), read=BLOCK), NOW_READY, "the holder is told")
        holds(b, 0xB2)
        equal(a.command(scsi.read10(20, 1), read=BLOCK).status, scsi.RESERVATION_CONFLICT, "the reservation stays")
        good(b.command(scsi.release6()), "RELEASE")
        equal(sense(a, scsi.test_unit_ready()), NOW_READY, "the other is told")
        holds(a, 0xB2)
        capacity = good(a.command(struct.pack(">B9x", 0x25), read=8)).data
        equal(struct.unpack(">II", capacity), (299, BLOCK), "capacity of the new disc")
        equal(tarn.lun()["spec"]["store"], "cdrom:b.iso", "the configuration")
        equal(tarn.api().get("status")["revision"], 2, "a change like others")
        tarn.run("lun", "load", "cd", "b.iso")
        equal(tarn.api().get("status")["revision"], 2, "no change")
        equal(sense(a, scsi.test_unit_ready()), NOW_READY, "the file may have changed")
        holds(a, 0xB2)
        tarn.again()
        with tarn.login() as c:
            ready(c)
            holds(c, 0xB2)


@test
def a_file_that_was_changed_is_another_disc_after_a_bare_load():
    """Written in place or replaced, in the drive or out of it, larger, smaller or as large: contents and size are the new ones, and
    every nexus gets 28h/00h. An initiator that prevents the removal is named, and keeps its disc."""
    with Drive() as tarn, tarn.login() as a, tarn.login(OTHER) as b:
        ready(a, b)
        file, revision = tarn.dir / "a.iso", tarn.api().get("status")["revision"]
        for blocks, is_replaced, is_out in ((300, False, False), (500, False, False), (500, False, True), (400, True, False)):
            fill, inode = 0xA2 + blocks // 100 + is_out, file.stat().st_ino
            if is_out:
                tarn.run("lun", "eject", "cd")
            target = tarn.dir / "next.iso" if is_replaced else file
            target.write_bytes(iso(fill, blocks))
            target.rename(file)
            equal(file.stat().st_ino != inode, is_replaced, "another inode")
            tarn.run("lun", "load", "cd")
            for session in (a, b):
                equal(sense(session, scsi.test_unit_ready()), NOW_READY, f"a disc of {blocks} blocks")
                holds(session, fill)
                capacity = good(session.command(struct.pack(">B9x", 0x25), read=8)).data
                equal(struct.unpack(">II", capacity), (blocks - 1, BLOCK), "its capacity")
            equal(tarn.lun()["size_bytes"], blocks * BLOCK, "its size")
        equal(tarn.api().get("status")["revision"], revision, "no change of the configuration")
        good(b.command(prevent(True)), "PREVENT")
        check(OTHER in tarn.run("lun", "load", "cd", code=CONFLICT), "who prevents it is named")
        for session in (a, b):
            good(session.command(scsi.test_unit_ready()), "the disc that is in")


@test
def an_edit_of_the_configuration_exchanges_the_disc():
    """`tarn apply` of another cdrom: is the same as `tarn lun load`; its plan says so; cdrom: alone empties the drive."""
    with Drive() as tarn, tarn.login() as session:
        ready(session)
        good(session.command(scsi.reserve6()), "RESERVE")
        file = tarn.dir / "tarn.toml"
        text = file.read_text()
        file.write_text(text.replace("cdrom:a.iso", "cdrom:b.iso"))
        plan = tarn.run("plan", file)
        check("28h/00h" in plan and "refused" not in plan.replace("0 refused", ""), plan)
        tarn.run("apply", file, "--yes")
        equal(sense(session, scsi.test_unit_ready()), NOW_READY, "the new disc")
        holds(session, 0xB2)
        file.write_text(text.replace("cdrom:a.iso", "cdrom:"))
        tarn.run("apply", file, "--yes")
        equal(sense(session, scsi.test_unit_ready()), EMPTY_CLOSED, "an empty drive")
        equal((tarn.lun()["size_bytes"], tarn.lun()["medium"]["loaded"]), (0, False), "what administrators see")
        check("a file" in tarn.run("lun", "load", "cd", code=CONFLICT), "an empty drive has nothing to load")
        tarn.run("lun", "load", "cd", "a.iso")
        equal(sense(session, scsi.test_unit_ready()), NOW_READY, "a disc again")
        holds(session, 0xA1)
        tarn.run("rollback", "1", "--yes")
        holds(session, 0xA1)
        with tarn.login(OTHER) as other:
            ready(other, luns=1)
            equal(other.command(scsi.read10(20, 1), read=BLOCK).status, scsi.RESERVATION_CONFLICT, "the reservation of the start")


@test
def a_disc_that_is_held_stays_and_its_holder_learns_of_the_wish():
    """PREVENT: eject and load are refused with the name of the initiator, which gets 5Ah/01h; --force ejects and exchanges."""
    with Drive() as tarn, tarn.login() as a, tarn.login(OTHER) as b:
        ready(a, b)
        good(b.command(prevent(True)), "PREVENT")
        for arguments in (("lun", "eject", "cd"), ("lun", "load", "cd", "b.iso")):
            said = tarn.run(*arguments, code=CONFLICT if arguments[1] == "eject" else REFUSED)
            check(OTHER in said and "--force" in said, said)
        equal(sense(b, scsi.test_unit_ready()), REMOVAL_WANTED, "the wish")
        good(b.command(scsi.test_unit_ready()), "once")
        good(a.command(scsi.test_unit_ready()), "the other has nothing to do with it")
        equal(sense(a, start_stop(2)), PREVENTED, "an eject by another initiator")
        tarn.run("lun", "load", "cd", "b.iso", "--force")
        equal(sense(b, scsi.test_unit_ready()), NOW_READY, "another disc by force")
        holds(b, 0xB2)
        tarn.run("lun", "eject", "cd", "--force")
        equal(sense(b, scsi.test_unit_ready()), EMPTY_OPEN, "the tray is open")
        check("none.iso" in tarn.run("lun", "load", "cd", "none.iso", "--force", code=WRONG), "no such file")
        equal(sense(b, scsi.test_unit_ready()), EMPTY_OPEN, "the tray is still open")
        tarn.run("lun", "load", "cd", "a.iso")
        equal(sense(b, scsi.test_unit_ready()), NOW_READY, "and closes with a disc")
        holds(b, 0xA1)


@test
def events_of_the_drive_are_there_for_who_asks():
    """GET EVENT STATUS NOTIFICATION: new medium, removal."""
    def event(session):
        return session.command(bytes([0x4A, 1, 0, 0, 0x10, 0, 0, 0, 8, 0]), read=8).data[4:6]
    with Drive() as tarn, tarn.login() as session:
        ready(session)
        equal(event(session), b"\x00\x02", "a disc is in")
        tarn.run("lun", "eject", "cd")
        equal(event(session), b"\x03\x01", "it went")
        equal(event(session), b"\x00\x01", "once")
        tarn.run("lun", "load", "cd")
        equal(event(session), b"\x02\x02", "it came")


@test
def an_eject_outlives_a_restart():
    """Of a drive and of a removable disk, by an initiator and by an administrator; tarn lun load ends it, also over a crash."""
    with Drive() as tarn:
        with tarn.login() as session:
            ready(session)
            good(session.command(start_stop(2)), "an eject by the initiator")
            tarn.run("lun", "eject", "stick")
        for restart in (tarn.again, lambda: (tarn.kill(), tarn.start())):
            restart()
            with tarn.login() as session:
                ready(session)
                equal(sense(session, scsi.test_unit_ready()), EMPTY_OPEN, "the drive")
                equal(sense(session, scsi.test_unit_ready(), lun=1), NO_MEDIUM, "the disk")
                check("ejected" in tarn.run("lun", "list"), "the list")
        with tarn.login() as session:
            ready(session)
            good(session.command(start_stop(3)), "a load by the initiator")
            holds(session, 0xA1)
            tarn.run("lun", "load", "stick")
            equal(sense(session, scsi.test_unit_ready(), lun=1), NOW_READY, "a load by the administrator")
        tarn.again()
        with tarn.login() as session:
            ready(session)
            holds(session, 0xA1)
            good(session.command(scsi.test_unit_ready(), lun=1), "the disk")


@test
def a_removable_disk_is_exchanged_like_a_disc():
    """Another file for a removable disk: the reservation stays, and the data of the old one was flushed."""
    with Drive() as tarn, tarn.login() as session:
        ready(session)
        (tarn.dir / "other.img").write_bytes(b"\x77" * (4 << 20))
        good(session.command(scsi.write16(0, 1), write=b"\x55" * 512, lun=1), "WRITE")
        good(session.command(scsi.reserve6(), lun=1), "RESERVE")
        tarn.run("lun", "load", "stick", "file:other.img?removable")
        equal(sense(session, scsi.test_unit_ready(), lun=1), NOW_READY, "the other")
        equal(good(session.command(scsi.read16(0, 1), read=512, lun=1)).data, b"\x77" * 512, "its data")
        equal(scsi.capacity(session, 1), (8192, 512), "its size")
        equal((tarn.dir / "stick.img").read_bytes()[:512], b"\x55" * 512, "the file that went")
        with tarn.login(OTHER) as other:
            ready(other, luns=1)
            other.command(scsi.test_unit_ready(), lun=1)
            equal(other.command(scsi.read16(0, 1), read=512, lun=1).status, scsi.RESERVATION_CONFLICT, "the reservation")


@test
def what_is_no_disc_is_refused_and_the_one_in_the_drive_stays():
    """No file, an empty one, one below a block, a directory, one that may not be read: refused with the place; all is as before."""
    with Drive() as tarn, tarn.login() as session:
        ready(session)
        (tarn.dir / "empty.iso").write_bytes(b"")
        (tarn.dir / "short.iso").write_bytes(b"x" * (BLOCK - 1))
        (tarn.dir / "directory.iso").mkdir()
        (tarn.dir / "secret.iso").write_bytes(iso(1))
        (tarn.dir / "secret.iso").chmod(0)
        cases = ["none.iso", "empty.iso", "short.iso", "directory.iso", *(["secret.iso"] if os.geteuid() else [])]
        for case in cases:
            said = tarn.run("lun", "load", "cd", case, code=WRONG)
            check(case in said, said)
            good(session.command(scsi.test_unit_ready()), f"the drive after {case}")
            holds(session, 0xA1)
        equal(tarn.lun()["spec"]["store"], "cdrom:a.iso", "the configuration")


def write(tarn, name, text):
    path = tarn.dir / name
    path.write_text(text)
    return path


@test
def what_a_drive_cannot_be_is_refused_with_place_and_remedy():
    """Options of disks, a log, snapshots, stripe, concat, NBD: each with the key and what to do, and exit code 2."""
    with Drive() as tarn:
        drive = f'[[lun]]\nid = "cd"\nstore = "cdrom:{tarn.dir}/a.iso'
        member = f'[[store]]\nid = "m"\nstore = "cdrom:{tarn.dir}/a.iso"\n'
        for name, text, words in (
                ("size", drive + '?size=1G"\n', ("store", "size")),
                ("blocks", drive + '?blocksize=512"\n', ("store", "2048")),
                ("write", drive + '?readonly=false"\n', ("store", "read")),
                ("cache", drive + '?cache=direct"\n', ("store", "read")),
                ("log", drive + f'"\nlog = "file:{tarn.dir}/log?size=64M"\n', ("log", "no use")),
                ("snapshots", drive + '"\nsnapshots = { every = "1h", keep = 3 }\n', ("snapshots",)),
                ("concat", member + '[[lun]]\nid = "x"\nstore = "concat:m"\n', ("store", "no disk")),
                ("nbd", drive + f'"\n[[nbd]]\nbind = "127.0.0.1:{tarn.port2}"\nluns = ["cd"]\n', ("luns", "disk"))):
            done = run("check", write(tarn, f"{name}.toml", text))
            said = done.stdout + done.stderr
            equal(done.returncode, WRONG, f"{name}: {said}")
            check(f"{name}.toml:" in said and all(word in said for word in words), f"{name}: {said}")
        text = lun_section("cd", f"{tarn.dir}/a.iso") + target_section("cd").replace("{port}", str(tarn.port2))
        done = run("check", write(tarn, "disk.toml", text))
        equal(done.returncode, DONE, f"an ISO as a disk: {done.stdout}{done.stderr}")
        check("cdrom:" in done.stdout + done.stderr, f"the other kind is named: {done.stdout}{done.stderr}")


@test
def a_file_that_is_cut_or_has_a_rest_is_a_finding():
    """The last block that is not whole is left out; what is behind the end of a file that was cut fails and nothing else does."""
    with Drive() as tarn, tarn.login() as session:
        ready(session)
        (tarn.dir / "rest.iso").write_bytes(iso(0xC3) + b"x" * 100)
        tarn.run("lun", "load", "cd", "rest.iso")
        ready(session)
        equal(tarn.lun()["size_bytes"], BLOCKS * BLOCK, "size without the rest")
        holds(session, 0xC3)

        def codes():
            return {one["code"] for one in tarn.api().get("status")["findings"]}
        wait_for(lambda: "disc-cut" in codes(), 20, "the finding")
        tarn.run("lun", "load", "cd", "a.iso")
        ready(session)
        os.truncate(tarn.dir / "a.iso", BLOCK * 100)
        holds(session, 0xA1)
        key = sense(session, scsi.read10(200, 1), read=BLOCK)[0]
        check(key in (scsi.MEDIUM_ERROR, scsi.HARDWARE_ERROR, scsi.ILLEGAL_REQUEST, scsi.UNIT_ATTENTION), f"behind the end: {key}")
        holds(session, 0xA1)
        equal(tarn.lun("stick")["size_bytes"], 8 << 20, "the other unit")


@test
def a_drive_whose_disc_is_gone_at_the_start_keeps_nobody_from_being_served():
    """The other unit is served, the drive says why not, and is there again when the file is."""
    with Drive() as tarn:
        equal(tarn.terminate(), 0, "exit code")
        (tarn.dir / "a.iso").rename(tarn.dir / "away.iso")
        tarn.start()
        equal(tarn.lun()["trouble"]["code"], "store-unopened", "the trouble")
        with tarn.login() as session:
            ready(session)
            equal(sense(session, scsi.test_unit_ready())[0], scsi.NOT_READY, "the drive")
            good(session.command(scsi.test_unit_ready(), lun=1), "the disk")
            (tarn.dir / "away.iso").rename(tarn.dir / "a.iso")
            wait_for(lambda: not tarn.lun().get("trouble"), 30, "it is served")
        with tarn.login() as session:
            ready(session)
            holds(session, 0xA1)


if __name__ == "__main__":
    main()
