//! A CD or DVD drive.

use super::medium::{LOEJ, START, TEST_UNIT_READY, prevent, removable, start_stop};
use super::*;

const SECTOR: u64 = 2048;
const NOW_READY: Codes = (6, 0x28, 0x00);
const TRAY_CLOSED: Codes = (2, 0x3a, 0x01);
const TRAY_OPEN: Codes = (2, 0x3a, 0x02);
/// More than a CD has.
const DVD_BLOCKS: u64 = 500_000;

fn drive(blocks: u64) -> Profile {
    let mut profile = profile();
    profile.device_type = DeviceType::Optical;
    profile.identity.removable = true;
    profile.capabilities = Capabilities {
        read_only: true,
        ..Capabilities::plain(blocks * SECTOR, 2048)
    };
    profile
}

/// A drive with a CD of 1,000 blocks, each of which begins with its number.
fn cd() -> (Rig, At) {
    let (mut rig, at) = Rig::ready(drive(1000));
    for (number, block) in (0_u16..).zip(rig.medium.chunks_mut(2048)) {
        block[..2].copy_from_slice(&number.to_be_bytes());
    }
    rig.change(Some(1), ChangeKind::NexusAttached);
    (rig, at)
}

/// A drive with a DVD.
pub(super) fn dvd_profile() -> Profile {
    drive(DVD_BLOCKS)
}

fn twelve(opcode: u8, rest: [u8; 11]) -> [u8; 12] {
    let mut cdb = [opcode; 12];
    cdb[1..].copy_from_slice(&rest);
    cdb
}

fn toc(time: u8, format: u8, first: u8) -> [u8; 10] {
    [0x43, time, format, 0, 0, 0, first, 0xff, 0xff, 0]
}

fn event_status(classes: u8) -> [u8; 10] {
    [0x4a, 1, 0, 0, classes, 0, 0, 0xff, 0xff, 0]
}

/// Event and status of the medium.
fn media(rig: &mut Rig, at: At) -> [u8; 2] {
    let data = data(rig.run(at, &event_status(0x10), &[]));
    assert_eq!(data[..4], [0, 6, 4, 0x12]);
    [data[4], data[5]]
}

#[test]
fn a_drive_is_of_type_5_and_reads_blocks_of_2048_bytes() {
    let (mut rig, at) = cd();
    let inquiry = data(rig.run(at, &[0x12, 0, 0, 0, 96, 0], &[]));
    assert_eq!(inquiry[..3], [0x05, 0x80, 0x06]);
    assert_eq!(inquiry[62..64], [0x04, 0xe0], "MMC-6");
    let pages = data(rig.run(at, &[0x12, 1, 0, 0, 96, 0], &[]));
    assert_eq!(pages[4..], [0x00, 0x80, 0x83, 0x86, 0x87]);
    let capacity = data(rig.run(at, &ten(0x25, 0, 0, 0), &[]));
    assert_eq!(capacity, [0, 0, 3, 0xe7, 0, 0, 8, 0]);
    let read = data(rig.run(at, &ten(0x28, 0, 998, 2), &[]));
    assert_eq!((read.len(), &read[2048..2050]), (4096, &[3, 0xe7][..]));
    let read = twelve(0xa8, [0, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0]);
    assert_eq!(data(rig.run(at, &read, &[]))[..2], [0, 7]);
    let beyond = rig.run(at, &ten(0x28, 0, 999, 2), &[]);
    assert_eq!(sense(&beyond), OUT_OF_RANGE);
    for cdb in [&ten(0x2a, 0, 0, 1)[..], &ten(0x42, 0, 0, 24), &[0x9e; 16]] {
        assert_eq!(sense(&rig.run(at, cdb, &[0; 2048])), (5, 0x20, 0x00));
    }
}

#[test]
fn user_data_is_read_by_block_and_by_time() {
    let (mut rig, at) = cd();
    let by_block = |kind: u8, lba: u8, count: u8, what: u8| {
        twelve(0xbe, [kind, 0, 0, 0, lba, 0, 0, count, what, 0, 0])
    };
    let read = data(rig.run(at, &by_block(0, 5, 2, 0x10), &[]));
    assert_eq!((read.len(), &read[2048..2050]), (4096, &[0, 6][..]));
    good(&rig.run(at, &by_block(0x08, 5, 2, 0x10), &[]));
    let nothing = data(rig.run(at, &by_block(0, 5, 2, 0), &[]));
    assert_eq!(nothing, []);
    let audio = rig.run(at, &by_block(0x04, 5, 2, 0x10), &[]);
    assert_eq!(sense(&audio), (5, 0x64, 0x00));
    let raw = rig.run(at, &by_block(0, 5, 2, 0xf8), &[]);
    assert_eq!((sense(&raw), pointer(&raw)), (INVALID_FIELD, (9, Some(7))));
    // 00:02:05 is block 5.
    let by_time = |to: u8| twelve(0xb9, [0, 0, 0, 2, 5, 0, 2, to, 0x10, 0, 0]);
    assert_eq!(data(rig.run(at, &by_time(6), &[]))[..2], [0, 5]);
    good(&rig.run(at, &by_time(5), &[]));
    for wrong in [4, 75] {
        let outcome = rig.run(at, &by_time(wrong), &[]);
        assert_eq!(sense(&outcome), INVALID_FIELD, "{wrong}");
    }
}

#[test]
fn the_disc_is_one_session_of_one_track() {
    let (mut rig, at) = cd();
    let by_block = data(rig.run(at, &toc(0, 0, 0), &[]));
    assert_dump(&by_block, "0012 0101 00140100 00000000 0014aa00 000003e8");
    let by_time = data(rig.run(at, &toc(2, 0, 0), &[]));
    assert_dump(&by_time, "0012 0101 00140100 00000200 0014aa00 00000f19");
    let lead_out = data(rig.run(at, &toc(0, 0, 0xaa), &[]));
    assert_dump(&lead_out, "000a 0101 0014aa00 000003e8");
    let sessions = data(rig.run(at, &toc(0, 1, 0), &[]));
    assert_dump(&sessions, "000a 0101 00140100 00000000");
    let raw = data(rig.run(at, &toc(0, 2, 1), &[]));
    let golden = "002e 0101 011400a0 00000000 010000 011400a1 00000000 010000 \
                  011400a2 00000000 000f19 01140001 00000000 000200";
    assert_dump(&raw, golden);
    for (cdb, place) in [
        (toc(0, 0, 2), (6, None)),
        (toc(0, 3, 0), (2, Some(3))),
        (toc(0, 5, 0), (2, Some(3))),
    ] {
        let outcome = rig.run(at, &cdb, &[]);
        assert_eq!((sense(&outcome), pointer(&outcome)), (INVALID_FIELD, place));
    }
    let cut = data(rig.run(at, &[0x43, 0, 0, 0, 0, 0, 0, 0, 4, 0], &[]));
    assert_dump(&cut, "0012 0101");
}

#[test]
fn disc_and_track_are_complete() {
    let (mut rig, at) = cd();
    let disc = data(rig.run(at, &[0x51, 0, 0, 0, 0, 0, 0, 0, 0xff, 0], &[]));
    let golden = "0020 0e 01010101 20 00000000 00000000 ffffffff ffffffff 00000000 00000000 0000";
    assert_dump(&disc, golden);
    for (kind, number, is_there) in [
        (0, 999, true),
        (0, 1000, false),
        (1, 1, true),
        (1, 2, false),
        (2, 1, true),
    ] {
        let [a, b, c, d] = u32::to_be_bytes(number);
        let outcome = rig.run(at, &[0x52, kind, a, b, c, d, 0, 0, 0xff, 0], &[]);
        if is_there {
            let track = data(outcome);
            assert_eq!((track.len(), &track[2..7]), (36, &[1, 1, 0, 4, 1][..]));
            assert_eq!(track[24..28], [0, 0, 3, 0xe8]);
        } else {
            assert_eq!(sense(&outcome), INVALID_FIELD);
        }
    }
}

#[test]
fn what_is_in_decides_on_the_profile_and_on_structures() {
    let get = |from: u16, kind: u8| {
        let [high, low] = from.to_be_bytes();
        [0x46, kind, high, low, 0, 0, 0, 0xff, 0xff, 0]
    };
    let structure = |format: u8| twelve(0xad, [0, 0, 0, 0, 0, 0, format, 0xff, 0xff, 0, 0]);
    let (mut rig, at) = cd();
    let all = data(rig.run(at, &get(0, 0), &[]));
    assert_eq!(all[..8], [0, 0, 0, 0x48, 0, 0, 0, 8]);
    assert_eq!(usize::from(all[3]) + 4, all.len());
    let one = data(rig.run(at, &get(0x1e, 2), &[]));
    assert_dump(&one, "0000000c 0000 0008 001e0904 00000000");
    let current = data(rig.run(at, &get(0x1e, 1), &[]));
    assert_eq!(current, one, "there is no DVD");
    assert_eq!(sense(&rig.run(at, &get(0, 3), &[])), INVALID_FIELD);
    assert_eq!(sense(&rig.run(at, &structure(0), &[])), (5, 0x30, 0x02));
    let (mut rig, at) = Rig::ready(dvd_profile());
    let current = data(rig.run(at, &get(0x1f, 1), &[]));
    assert_dump(&current, "0000000c 0000 0010 001f0504 00000000");
    let physical = data(rig.run(at, &structure(0), &[]));
    assert_eq!(physical.len(), 2052);
    assert_dump(&physical[..16], "0802 0000 010f0100 00030000 000aa11f");
    assert_dump(&data(rig.run(at, &structure(1), &[])), "0006 0000 00000000");
    assert_eq!(data(rig.run(at, &structure(4), &[])).len(), 2052);
    let bca = rig.run(at, &structure(3), &[]);
    assert_eq!((sense(&bca), pointer(&bca)), (INVALID_FIELD, (7, None)));
    let time = data(rig.run(at, &toc(2, 0, 0xaa), &[]));
    assert_eq!(time[8..], [0, 99, 59, 74], "times end there");
}

#[test]
fn an_empty_drive_says_whether_its_tray_is_open() {
    let (mut rig, at) = Rig::ready(drive(0));
    rig.change(Some(1), ChangeKind::NexusAttached);
    assert_eq!(sense(&rig.run(at, &TEST_UNIT_READY, &[])), TRAY_CLOSED);
    assert_eq!(media(&mut rig, at), [0, 0]);
    good(&rig.run(at, &start_stop(LOEJ), &[]));
    assert_eq!(sense(&rig.run(at, &TEST_UNIT_READY, &[])), TRAY_OPEN);
    assert_eq!(media(&mut rig, at), [0, 1], "nothing went");
    let mechanism = twelve(0xbd, [0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0]);
    assert_eq!(data(rig.run(at, &mechanism, &[]))[1], 0x10);
    good(&rig.run(at, &start_stop(LOEJ | START), &[]));
    assert_eq!(sense(&rig.run(at, &TEST_UNIT_READY, &[])), TRAY_CLOSED);
    let toc = rig.run(at, &toc(0, 0, 0), &[]);
    assert_eq!(sense(&toc), TRAY_CLOSED);
    let configuration = data(rig.run(at, &[0x46, 0, 0, 0, 0, 0, 0, 0, 8, 0], &[]));
    assert_eq!(configuration[6..], [0, 0], "no profile is current");
}

#[test]
fn each_nexus_hears_of_each_move_of_the_medium_once() {
    let (mut rig, first) = cd();
    let second = rig.attach(1, 2);
    rig.change(Some(2), ChangeKind::NexusAttached);
    assert_eq!(media(&mut rig, first), [0, 2]);
    good(&rig.run(first, &start_stop(LOEJ), &[]));
    assert_eq!(media(&mut rig, first), [3, 1]);
    assert_eq!(media(&mut rig, first), [0, 1]);
    // One that asks for both classes is answered with the first, and has not heard of the medium.
    let both = data(rig.run(second, &event_status(0x12), &[]));
    assert_eq!(both[..5], [0, 6, 1, 0x12, 0]);
    assert_eq!(media(&mut rig, second), [3, 1]);
    good(&rig.run(first, &start_stop(LOEJ | START), &[]));
    // It bypasses the attention, which stays.
    assert_eq!(media(&mut rig, second), [2, 2]);
    assert_eq!(sense(&rig.run(second, &TEST_UNIT_READY, &[])), NOW_READY);
    assert_eq!(media(&mut rig, first), [2, 2]);
    let none = data(rig.run(first, &event_status(0x08), &[]));
    assert_eq!(none, [0, 2, 0x80, 0x12]);
    let unasked = rig.run(first, &[0x4a, 0, 0, 0, 0x10, 0, 0, 0, 8, 0], &[]);
    assert_eq!(pointer(&unasked), (1, Some(0)));
}

#[test]
fn one_that_prevents_the_removal_learns_that_it_is_wanted() {
    let (mut rig, first) = cd();
    let second = rig.attach(1, 2);
    rig.change(Some(2), ChangeKind::NexusAttached);
    good(&rig.run(second, &prevent(1), &[]));
    let eject = rig.run(first, &start_stop(LOEJ), &[]);
    assert_eq!(sense(&eject), (5, 0x53, 0x02));
    rig.change(None, ChangeKind::EjectWish);
    assert_eq!(media(&mut rig, second), [1, 2]);
    assert_eq!(media(&mut rig, second), [0, 2]);
    let wanted = rig.run(second, &TEST_UNIT_READY, &[]);
    assert_eq!(sense(&wanted), (6, 0x5a, 0x01));
    good(&rig.run(first, &TEST_UNIT_READY, &[]));
    good(&rig.run(second, &prevent(0), &[]));
    good(&rig.run(first, &start_stop(LOEJ), &[]));
}

#[test]
fn a_disk_has_none_of_it() {
    let (mut rig, at) = Rig::ready(removable());
    for cdb in [
        &toc(0, 0, 0)[..],
        &event_status(0x10),
        &twelve(0xbe, [0; 11]),
    ] {
        assert_eq!(sense(&rig.run(at, cdb, &[])), (5, 0x20, 0x00));
    }
    rig.change(None, ChangeKind::EjectWish);
    good(&rig.run(at, &TEST_UNIT_READY, &[]));
}

#[test]
fn modes_of_a_drive_have_no_block_descriptor() {
    let (mut rig, at) = cd();
    let modes = data(rig.run(at, &[0x5a, 0, 0x2a, 0, 0, 0, 0, 0, 0xff, 0], &[]));
    assert_eq!(modes[..8], [0, 28, 0, 0x80, 0, 0, 0, 0]);
    assert_eq!((modes[8], modes[9], modes.len()), (0x2a, 0x14, 30));
    let all = data(rig.run(at, &[0x5a, 0, 0x3f, 0, 0, 0, 0, 0, 0xff, 0], &[]));
    let (mut at_byte, mut codes) = (8, Vec::new());
    while at_byte < all.len() {
        codes.push(all[at_byte] & 0x3f);
        at_byte += 2 + usize::from(all[at_byte + 1]);
    }
    assert_eq!(codes, [0x01, 0x0a, 0x1a, 0x1c, 0x1d, 0x2a]);
}

#[test]
fn there_are_no_keys_and_no_regions() {
    let (mut rig, at) = cd();
    let key = |format: u8| twelve(0xa4, [0, 0, 0, 0, 0, 0, 0, 0, 8, format, 0]);
    assert_dump(&data(rig.run(at, &key(0x08), &[])), "0006 00000000 0000");
    assert_eq!(data(rig.run(at, &key(0x3f), &[])), []);
    assert_eq!(sense(&rig.run(at, &key(0x04), &[])), (5, 0x6f, 0x01));
    let speed = twelve(0xbb, [0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    good(&rig.run(at, &speed, &[]));
}
