#!/usr/bin/env python3
"""Devices of others behind Tarn: a tape drive, a changer and a disk of tgt, each for several initiators.

    suite.py [--list] [PATTERN...]
"""
import contextlib
import pathlib
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import harness
import iscsi
import scsi
import tgt
from harness import check, equal, test, wait_for
from tarn import IQN, Tarn, lun_section, refusal, target_section

TEST_UNIT_READY, REWIND, LOAD, UNLOAD = bytes(6), bytes([1, 0, 0, 0, 0, 0]), bytes([0x1B, 0, 0, 0, 1, 0]), bytes([0x1B, 0, 0, 0, 0, 0])
FILEMARK, READ_POSITION = bytes([0x10, 0, 0, 0, 1, 0]), bytes([0x34] + [0] * 9)
REMOVAL_PREVENTED, TAPE, CHANGER = (0x53, 0x02), 1, 8
LUN_RESET = 5
FILEMARK_BIT, BLANK_CHECK = 0x80, 8


def write(length):
    return bytes([0x0A, 0]) + length.to_bytes(3, "big") + b"\0"


def read(length):
    return bytes([0x08, 0]) + length.to_bytes(3, "big") + b"\0"


def space(count, code):
    return bytes([0x11, code]) + (count % (1 << 24)).to_bytes(3, "big") + b"\0"


def prevent(prevents):
    return bytes([0x1E, 0, 0, 0, prevents, 0])


@contextlib.contextmanager
def directory():
    """A directory for files of a test."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="devices-test."))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def gateway(daemon, more=""):
    """A Tarn that passes the device of a tgt on."""
    config = lun_section("device", f"scsi:{daemon.store}?retry=0") + more + target_section("device")
    with Tarn(config=config) as tarn:
        yield tarn


@contextlib.contextmanager
def tape_drive(more=""):
    """A tape drive of tgt with an empty tape, and a Tarn before it."""
    with directory() as path, tgt.tgt(path) as daemon:
        serve_tape(daemon, tgt.tape(path))
        with gateway(daemon, more) as tarn:
            yield daemon, tarn


def serve_tape(daemon, image):
    daemon.serve(image, "--device-type", "tape", "--bstype", "ssc")


def initiator(tarn, name="one"):
    """A session that has heard what a new nexus is told."""
    session = iscsi.Session(tarn.port, target=IQN, initiator=f"iqn.2026-11.example.tarn:{name}")
    session.clear_unit_attentions()
    return session


def told(session):
    """The unit attention that a nexus is owed, if it is owed one."""
    outcome = session.command(TEST_UNIT_READY)
    return outcome.sense.code if outcome.sense.key == scsi.UNIT_ATTENTION else None


def good(session, cdb, what=None, **options):
    outcome = session.command(cdb, **options)
    check(outcome.good, f"{what or cdb.hex()}: {outcome}")
    return outcome


# What is asked of a tape that was just rewound: CDB and options, in order.
TAPE_SCRIPT = [
    (bytes([0x05, 0, 0, 0, 0, 0]), {"read": 6}),
    (bytes([0x1A, 8, 0x3F, 0, 96, 0]), {"read": 96}),
    (write(1024), {"write": b"a" * 1024}),
    (write(65536), {"write": bytes(range(256)) * 256}),
    (FILEMARK, {}),
    (write(512), {"write": b"c" * 512}),
    (FILEMARK, {}),
    (READ_POSITION, {"read": 20}),
    (REWIND, {}),
    (read(2048), {"read": 2048}),               # a block that is shorter: ILI, a residual, and data
    (read(512), {"read": 512}),                 # one that is longer
    (read(4096), {"read": 4096}),               # a filemark
    (read(1024), {"read": 1024}),
    (read(1024), {"read": 1024}),
    (read(1024), {"read": 1024}),               # the end of data
    (space(-1, 1), {}),
    (space(2, 0), {}),
    (REWIND, {}),
    (space(1, 1), {}),
    (read(512), {"read": 512}),
    (bytes([0x4D, 0, 0, 0, 0, 0, 0, 0, 96, 0]), {"read": 96}),
    (bytes([0x3C, 0, 0, 0, 0, 0, 0, 0, 4, 0]), {"read": 4}),
    (bytes([0x44, 0, 0, 0, 0, 0, 0, 0, 64, 0]), {"read": 64}),
]


def script(session, lun):
    """What a device answers to the script: all that an initiator sees."""
    answers = []
    for cdb, options in TAPE_SCRIPT:
        outcome = session.command(cdb, lun=lun, **options)
        sense, data = outcome.sense.data, outcome.data
        if len(sense) > 2 and (sense[2] & FILEMARK_BIT or sense[2] & 0x0F == BLANK_CHECK):
            data = len(data)                    # tgt sends what happens to lie in its memory
        answers.append((cdb.hex(), outcome.status, sense.hex(), data, outcome.residual, outcome.overflow))
    return answers


@test
def a_tape_answers_through_tarn_as_it_does_itself():
    """Status, sense data byte for byte, data and residual of a whole script, with data beside CHECK CONDITION."""
    with directory() as path, tgt.tgt(path) as daemon:
        serve_tape(daemon, tgt.tape(path))
        with iscsi.Session(daemon.port, target=tgt.NAME) as direct:
            direct.clear_unit_attentions(lun=1)
            wanted = script(direct, 1)
            good(direct, REWIND, lun=1)
        check(any(status == scsi.CHECK_CONDITION and data for _, status, _, data, _, _ in wanted), "the script meets short blocks")
        with gateway(daemon) as tarn, initiator(tarn) as session:
            for got, want in zip(script(session, 0), wanted, strict=True):
                equal(got, want, f"the answer to {want[0]}")


@test
def two_initiators_have_one_tape():
    """What one writes the other reads; a reservation, a reset and prevention by one are seen by the other."""
    with tape_drive() as (_, tarn), initiator(tarn) as one, initiator(tarn, "two") as two:
        good(one, write(4096), write=b"x" * 4096)
        good(one, REWIND)
        equal(good(two, read(4096), read=4096).data, b"x" * 4096, "what the other has written")
        good(one, scsi.reserve6())
        equal(two.command(REWIND).status, scsi.RESERVATION_CONFLICT, "a command of the other")
        good(one, REWIND)
        equal(one.tmf(LUN_RESET), 0, "a reset of the unit")
        equal(told(two), scsi.BUS_DEVICE_RESET_FUNCTION_OCCURRED, "what the other is told")
        good(two, REWIND, "after the reset, which ends a reservation")
        one.clear_unit_attentions()
        good(one, prevent(1))
        equal(two.command(UNLOAD).sense.code, REMOVAL_PREVENTED, "an unload of the other")
        good(one, prevent(0))
        good(two, UNLOAD)
        good(two, LOAD)
        equal(told(one), (0x28, 0x00), "what the other is told of a load")


@test
def a_persistent_reservation_of_a_tape_is_of_tarn():
    """Registered and reserved by one, it shuts the other out and outlives a session."""
    def out(action, key, new, kind=0):
        cdb = bytes([0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0])
        return cdb, key.to_bytes(8, "big") + new.to_bytes(8, "big") + bytes(8)
    with tape_drive() as (_, tarn), initiator(tarn, "two") as two:
        with initiator(tarn) as one:
            for cdb, parameters in (out(0, 0, 7), out(1, 7, 0, 3)):
                good(one, cdb, write=parameters)
            equal(two.command(write(16), write=b"y" * 16).status, scsi.RESERVATION_CONFLICT, "a write of the other")
            good(one, write(16), write=b"y" * 16)
        equal(two.command(REWIND).status, scsi.RESERVATION_CONFLICT, "and when its holder is away")


@test
def a_device_says_what_it_is_and_is_known_by_the_identity_of_the_configuration():
    """Type and names are the device's, the designator is Tarn's; the list of commands has what both have."""
    with tape_drive() as (daemon, tarn), initiator(tarn) as session, iscsi.Session(daemon.port, target=tgt.NAME) as direct:
        inquiry = good(session, scsi.inquiry(), read=255).data
        equal((inquiry[0], inquiry[1] & 0x80, inquiry[8:24]), (TAPE, 0x80, b"IET     VIRTUAL-"), "standard INQUIRY data")
        of_device = direct.command(scsi.inquiry(0x83), read=255, lun=1).data
        check(scsi.device_names(session) and of_device[4:] not in good(session, scsi.inquiry(0x83), read=255).data, "another identity")
        pages = good(session, scsi.inquiry(0x00), read=255).data[4:]
        check({0x80, 0x83, 0xB0, 0xB1, 0xB2} <= set(pages), f"pages of both: {pages.hex()}")
        for page in (0xB0, 0xB1, 0xB2):
            want = direct.command(scsi.inquiry(page), read=255, lun=1).data
            equal(good(session, scsi.inquiry(page), read=255).data[1:], want[1:], f"page {page:x}h")
        listed = good(session, scsi.report_opcodes(4096), read=4096).data
        opcodes = {listed[at] for at in range(4, len(listed), 8)}
        check({0x01, 0x08, 0x0A, 0x11, 0x5F} <= opcodes, f"commands of both: {sorted(opcodes)}")
        check(0x3B not in opcodes and 0x83 not in opcodes, "what is refused is not listed")
        equal(session.command(bytes([0x3B, 5] + [0] * 8)).sense.code, scsi.INVALID_OPCODE, "firmware")


@test
def a_device_that_was_away_has_no_command_twice_and_all_are_told():
    """tgt is killed and comes back with the same tape: what was written once stands there once."""
    with directory() as path, tgt.tgt(path) as daemon:
        image = tgt.tape(path)
        serve_tape(daemon, image)
        with gateway(daemon) as tarn, initiator(tarn) as one, initiator(tarn, "two") as two:
            for number in range(4):
                good(one, write(512), write=bytes([number]) * 512)
            good(one, FILEMARK)
            daemon.kill()
            outcome = one.command(write(512), write=b"z" * 512)
            check(outcome.status == scsi.CHECK_CONDITION, f"without its device: {outcome}")
            daemon.start()
            serve_tape(daemon, image)
            wait_for(lambda: one.command(TEST_UNIT_READY).sense.key == scsi.UNIT_ATTENTION, 30, "the device is back")
            equal(told(two) is not None, True, "the other is told, too")
            # BUSY keeps out what may have been sent in ignorance of that.
            wait_for(lambda: two.command(REWIND).good, 10, "REWIND of the other")
            for number in range(4):
                equal(good(two, read(512), read=512).data, bytes([number]) * 512, f"block {number}")


@test
def a_disk_of_others_is_read_and_written_as_it_is():
    """The same blocks at the device and through it; commands of a nexus overtake each other."""
    with directory() as path, tgt.tgt(path) as daemon:
        image = path / "disk.img"
        image.write_bytes(b"\0" * (16 << 20))
        daemon.serve(image)
        with gateway(daemon) as tarn, initiator(tarn) as session:
            data = bytes(range(256)) * 256
            good(session, scsi.write10(8, 128), write=data)
            equal(image.read_bytes()[4096:4096 + len(data)], data, "the file of tgt")
            tasks = [session.start(scsi.read10(8 + number, 1), read=512) for number in range(32)]
            for number, task in enumerate(tasks):
                equal(session.finish(task).data, data[number * 512:][:512], f"block {number}")


@test
def a_read_that_the_other_sends_in_several_bursts_arrives_whole():
    """tgt sends more than its MaxBurstLength of 256 KiB without a pause: a megabyte comes, also beside others."""
    with directory() as path, tgt.tgt(path) as daemon:
        image = path / "disk.img"
        data = b"".join(number.to_bytes(4, "big") * 128 for number in range(4096))
        image.write_bytes(data)
        daemon.serve(image)
        with gateway(daemon) as tarn, initiator(tarn) as session:
            tasks = [session.start(scsi.read10(number * 512, 2048), read=1 << 20) for number in range(4)]
            for number, task in enumerate(tasks):
                check(session.finish(task).data == data[number << 18:][:1 << 20], f"the megabyte at {number << 18} is another")


@test
def what_a_device_cannot_be_is_refused_with_place_and_remedy():
    """A device of others is no disk: no NBD server, log, quota or snapshot of it."""
    store = "scsi:iscsi://127.0.0.1:1/iqn.2026-11.example:none/0"
    nbd = lun_section("device", store) + '[[nbd]]\nbind = "127.0.0.1:0"\nluns = ["device"]\n'
    with directory() as path:
        config = path / "tarn.toml"
        config.write_text(nbd)
        message = refusal("--config", config)
        check("device" in message and "NBD" in message, f"the mistake: {message}")


if __name__ == "__main__":
    harness.main()
