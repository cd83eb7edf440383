use super::*;

fn write_same(flags: u8, lba: u32, blocks: u16) -> [u8; 10] {
    ten(0x41, flags, lba, blocks)
}

fn unmap_list(descriptors: &[(u64, u32)]) -> Vec<u8> {
    let length = u16::try_from(descriptors.len() * 16).unwrap();
    let mut list = (length + 6).to_be_bytes().to_vec();
    list.extend_from_slice(&length.to_be_bytes());
    list.resize(8, 0);
    for (lba, blocks) in descriptors {
        list.extend_from_slice(&lba.to_be_bytes());
        list.extend_from_slice(&blocks.to_be_bytes());
        list.extend_from_slice(&[0; 4]);
    }
    list
}

fn unmap(rig: &mut Rig, at: At, list: &[u8]) -> Outcome {
    let length = u16::try_from(list.len()).unwrap();
    rig.run(at, &ten(0x42, 0, 0, length), list)
}

const UNMAP: u8 = 0x08;

#[test]
fn write_same_repeats_the_block_in_bounded_pieces() {
    let (mut rig, at) = Rig::ready(profile());
    let outcome = rig.run(at, &write_same(0, 1, 300), &[b'x'; BLOCK]);
    good(&outcome);
    assert_eq!(outcome.transfer_length, 512);
    assert_eq!(
        rig.asked,
        [
            Asked::Write(512, 128 * 512, false),
            Asked::Write(129 * 512, 128 * 512, false),
            Asked::Write(257 * 512, 44 * 512, false)
        ]
    );
    assert_eq!(rig.block(0), [0; BLOCK]);
    assert_eq!(rig.block(300), [b'x'; BLOCK]);
    assert_eq!(rig.block(301), [0; BLOCK]);
}

#[test]
fn write_same_of_zeros_unmaps_only_if_asked_to() {
    let (mut rig, at) = Rig::ready(profile());
    good(&rig.run(at, &write_same(UNMAP, 8, 8), &[0; BLOCK]));
    good(&rig.run(at, &write_same(0, 8, 8), &[0; BLOCK]));
    // Other data than zeros must be there afterwards, hole or not.
    good(&rig.run(at, &write_same(UNMAP, 8, 1), &[1; BLOCK]));
    assert_eq!(
        rig.asked,
        [
            Asked::Unmap(4096, 8192),
            Asked::Zero(4096, 8192, false),
            Asked::Write(4096, 512, false)
        ]
    );
    assert_eq!(rig.block(8), [1; BLOCK]);
}

#[test]
fn write_same_with_ndob_takes_no_data() {
    const NDOB: u8 = 0x01;
    let (mut rig, at) = Rig::ready(profile());
    let outcome = rig.run(at, &sixteen(0x93, NDOB, 8, 8), &[]);
    good(&outcome);
    assert_eq!(outcome.transfer_length, 0);
    good(&rig.run(at, &sixteen(0x93, NDOB | UNMAP, 8, 8), &[]));
    assert_eq!(
        rig.asked,
        [Asked::Zero(4096, 8192, false), Asked::Unmap(4096, 8192)]
    );
    let outcome = rig.run(at, &write_same(NDOB, 8, 8), &[]);
    assert_eq!(pointer(&outcome), (1, Some(0)));
}

#[test]
fn write_same_refuses_too_many_blocks_and_other_data_lengths() {
    let (mut rig, at) = Rig::ready(Profile {
        limits: Limits {
            write_same_blocks_max: 100,
            ..profile().limits
        },
        ..profile()
    });
    good(&rig.run(at, &write_same(0, 0, 100), &[0; BLOCK]));
    // Zero is the rest of the medium, and that is too much from the start of it.
    for blocks in [0, 101] {
        let outcome = rig.run(at, &write_same(0, 0, blocks), &[0; BLOCK]);
        assert_eq!(
            (sense(&outcome), pointer(&outcome)),
            (INVALID_FIELD, (7, None))
        );
    }
    let blocks = BLOCKS;
    rig.asked.clear();
    good(&rig.run(
        at,
        &write_same(0, u32::try_from(blocks - 100).unwrap(), 0),
        &[0; BLOCK],
    ));
    let bytes = 100 * BLOCK as u64;
    let from = (blocks - 100) * BLOCK as u64;
    assert_eq!(rig.asked, [Asked::Zero(from, from + bytes, false)]);
    let mut pattern = [0; BLOCK];
    pattern[0] = 1;
    rig.asked.clear();
    // The rest of the medium, unmapped: the block does not matter.
    good(&rig.run(
        at,
        &write_same(UNMAP, u32::try_from(blocks - 100).unwrap(), 0),
        &pattern,
    ));
    assert_eq!(rig.asked, [Asked::Unmap(from, from + bytes)]);
    for announced in [0, 256, 511, 513, 1024] {
        let outcome = rig.run(at, &write_same(UNMAP, 0, 1), &vec![0; announced]);
        assert_eq!(sense(&outcome), (5, 0x0e, 0x03), "{announced} announced");
    }
}

#[test]
fn anchor_is_refused() {
    const ANCHOR: u8 = 0x10;
    let (mut rig, at) = Rig::ready(profile());
    let same = rig.run(at, &write_same(ANCHOR | UNMAP, 0, 1), &[0; BLOCK]);
    assert_eq!(
        (sense(&same), pointer(&same)),
        (INVALID_FIELD, (1, Some(4)))
    );
    let unmap = rig.run(at, &ten(0x42, 0x01, 0, 8), &[0; 8]);
    assert_eq!(
        (sense(&unmap), pointer(&unmap)),
        (INVALID_FIELD, (1, Some(0)))
    );
}

#[test]
fn a_thick_unit_has_no_unmap_at_all() {
    let mut profile = profile();
    profile.capabilities.thin = false;
    let (mut rig, at) = Rig::ready(profile);
    assert_eq!(
        sense(&unmap(&mut rig, at, &unmap_list(&[(0, 1)]))),
        (5, 0x20, 0x00)
    );
    let outcome = rig.run(at, &write_same(UNMAP, 0, 1), &[0; BLOCK]);
    assert_eq!(pointer(&outcome), (1, Some(3)));
    good(&rig.run(at, &write_same(0, 0, 1), &[0; BLOCK]));
}

#[test]
fn unmap_works_through_its_list_in_order() {
    let (mut rig, at) = Rig::ready(profile());
    let outcome = unmap(&mut rig, at, &unmap_list(&[(8, 8), (0, 0), (100, 3)]));
    good(&outcome);
    assert_eq!(outcome.transfer_length, 56);
    assert_eq!(
        rig.asked,
        [Asked::Unmap(4096, 8192), Asked::Unmap(51_200, 52_736)]
    );
}

#[test]
fn unmap_of_nothing_is_good_even_at_the_end() {
    let (mut rig, at) = Rig::ready(profile());
    good(&unmap(&mut rig, at, &[]));
    good(&unmap(&mut rig, at, &unmap_list(&[])));
    good(&unmap(&mut rig, at, &unmap_list(&[(BLOCKS, 0)])));
    assert!(rig.asked.is_empty());
}

#[test]
fn unmap_refuses_a_wrong_list_before_anything_is_unmapped() {
    let too_many = vec![(0, 0); 257];
    let table: &[(Vec<u8>, Codes)] = &[
        (unmap_list(&[(0, 1), (BLOCKS, 1)]), OUT_OF_RANGE),
        (unmap_list(&[(0, 1), (u64::MAX, 2)]), OUT_OF_RANGE),
        (unmap_list(&[(0, 1), (BLOCKS + 1, 0)]), OUT_OF_RANGE),
        (unmap_list(&too_many), (5, 0x26, 0x00)),
        (vec![0; 7], LIST_LENGTH),
        (unmap_list(&[(0, 1)])[..23].to_vec(), LIST_LENGTH),
    ];
    for (list, expected) in table {
        let (mut rig, at) = Rig::ready(profile());
        assert_eq!(sense(&unmap(&mut rig, at, list)), *expected, "{list:02x?}");
        assert!(rig.asked.is_empty());
    }
    let (mut rig, at) = Rig::ready(profile());
    good(&unmap(&mut rig, at, &unmap_list(&too_many[..256])));
}

#[test]
fn unmap_refuses_more_blocks_than_the_limit() {
    let mut profile = profile();
    profile.limits.unmap_blocks_max = 10;
    let (mut rig, at) = Rig::ready(profile);
    good(&unmap(&mut rig, at, &unmap_list(&[(0, 5), (20, 5)])));
    let outcome = unmap(&mut rig, at, &unmap_list(&[(0, 5), (20, 6)]));
    assert_eq!(sense(&outcome), (5, 0x26, 0x00));
}

#[test]
fn unmap_ignores_an_incomplete_descriptor() {
    let (mut rig, at) = Rig::ready(profile());
    let mut list = unmap_list(&[(8, 8), (16, 8)]);
    list.truncate(39);
    list[2..4].copy_from_slice(&31_u16.to_be_bytes());
    good(&unmap(&mut rig, at, &list));
    assert_eq!(rig.asked, [Asked::Unmap(4096, 8192)]);
}

#[test]
fn without_the_write_cache_an_unmap_is_made_durable() {
    let unmapped = |rig: &mut Rig, at| {
        rig.asked.clear();
        good(&unmap(rig, at, &unmap_list(&[(8, 8)])));
        good(&rig.run(at, &write_same(UNMAP, 8, 8), &[0; BLOCK]));
        std::mem::take(&mut rig.asked)
    };
    let flushed = [
        Asked::Unmap(4096, 8192),
        Asked::Flush,
        Asked::Unmap(4096, 8192),
        Asked::Flush,
    ];
    let (mut rig, at) = Rig::ready(profile());
    let off = [0x15, 0x10, 0, 0, 24, 0];
    let mut list = vec![0, 0, 0, 0, 0x08, 0x12];
    list.resize(24, 0);
    good(&rig.run(at, &off, &list));
    assert_eq!(unmapped(&mut rig, at), flushed);
    // A unit that writes through, from the start or by an order of an administrator.
    let mut through = profile();
    through.capabilities.writes_through = true;
    let (mut rig, at) = Rig::ready(through);
    assert_eq!(unmapped(&mut rig, at), flushed);
    let (mut rig, at) = Rig::ready(profile());
    rig.change(None, ChangeKind::WriteThrough);
    assert_eq!(unmapped(&mut rig, at), flushed);
    // What a store without a volatile cache has answered is durable.
    let mut without = profile();
    without.capabilities.volatile_cache = false;
    let (mut rig, at) = Rig::ready(without);
    let not_flushed = [Asked::Unmap(4096, 8192), Asked::Unmap(4096, 8192)];
    assert_eq!(unmapped(&mut rig, at), not_flushed);
}

#[test]
fn get_lba_status_starts_where_it_is_asked_and_merges_neighbours() {
    let (mut rig, at) = Rig::ready(profile());
    rig.mapped.extend(10..20);
    let status = |lba, length| {
        let mut cdb = sixteen(0x9e, 0x12, lba, length);
        cdb[1] = 0x12;
        cdb
    };
    assert_dump(
        &data(rig.run(at, &status(5, 4096), &[])),
        "00 00 00 34 00 00 00 00
         00 00 00 00 00 00 00 05 00 00 00 05 01 00 00 00
         00 00 00 00 00 00 00 0a 00 00 00 0a 00 00 00 00
         00 00 00 00 00 00 00 14 00 00 0f ec 01 00 00 00",
    );
    // Room for one descriptor, and for none: the length field still counts one.
    assert_dump(
        &data(rig.run(at, &status(12, 24), &[])),
        "00 00 00 14 00 00 00 00
         00 00 00 00 00 00 00 0c 00 00 00 08 00 00 00 00",
    );
    assert_dump(
        &data(rig.run(at, &status(12, 8), &[])),
        "00 00 00 14 00 00 00 00",
    );
    assert_eq!(sense(&rig.run(at, &status(BLOCKS, 24), &[])), OUT_OF_RANGE);
}

#[test]
fn on_a_thick_unit_every_block_is_mapped() {
    let mut profile = profile();
    profile.capabilities.thin = false;
    let (mut rig, at) = Rig::ready(profile);
    assert_dump(
        &data(rig.run(at, &sixteen(0x9e, 0x12, 1, 24), &[])),
        "00 00 00 14 00 00 00 00
         00 00 00 00 00 00 00 01 00 00 0f ff 00 00 00 00",
    );
    assert!(rig.asked.is_empty());
}

/// It was requested while it did not have to be durable.
#[test]
fn an_unmap_that_began_before_the_unit_wrote_through_is_flushed() {
    for is_cached in [true, false] {
        unmap_while_the_store_is_switched(is_cached);
    }
}

/// `is_cached`: the initiators have the cache on until then.
fn unmap_while_the_store_is_switched(is_cached: bool) {
    let (mut rig, at) = Rig::ready(profile());
    if !is_cached {
        let mut modes = vec![0, 0, 0, 0, 0x08, 0x12];
        modes.resize(24, 0);
        good(&rig.run(at, &[0x15, 0x10, 0, 0, 24, 0], &modes));
    }
    let list = unmap_list(&[(8, 8)]);
    let length = u16::try_from(list.len()).unwrap();
    let (mut task, step) = rig.start(at, &ten(0x42, 0, 0, length), &list);
    let Step::Io(request) = step else {
        panic!("{step:?}");
    };
    let done = rig.submit(request);
    rig.change(None, ChangeKind::WriteThrough);
    let epoch = rig.owner.shared().cache.epoch();
    rig.change(None, ChangeKind::Flushed { epoch });
    let step = rig.cores[0].resume(&mut task, Input::Io(done));
    assert!(matches!(step, Step::Io(IoRequest::Flush)), "{step:?}");
    // So is the next one.
    if is_cached {
        assert_eq!(sense(&rig.run(at, &[0; 6], &[])), (6, 0x2a, 0x01));
    }
    rig.asked.clear();
    good(&unmap(&mut rig, at, &list));
    assert_eq!(rig.asked, [Asked::Unmap(8 * 512, 16 * 512), Asked::Flush]);
}
