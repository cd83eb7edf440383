use super::*;

fn compare_and_write(lba: u64, blocks: u8) -> [u8; 16] {
    let mut cdb = sixteen(0x89, 0, lba, 0);
    cdb[13] = blocks;
    cdb
}

#[test]
fn compare_and_write_writes_behind_a_fence_when_the_medium_is_as_expected() {
    let (mut rig, at) = Rig::ready(profile());
    rig.medium[3 * BLOCK..5 * BLOCK].fill(b'a');
    let parameters = [vec![b'a'; 2 * BLOCK], vec![b'b'; 2 * BLOCK]].concat();
    let outcome = rig.run(at, &compare_and_write(3, 2), &parameters);
    good(&outcome);
    assert_eq!(outcome.transfer_length, 4 * 512);
    assert_eq!(rig.fences, vec![3..5]);
    assert_eq!(
        rig.asked,
        [
            Asked::Read(3 * 512, 1024),
            Asked::Write(3 * 512, 1024, false)
        ]
    );
    assert_eq!(rig.block(4), [b'b'; BLOCK]);
    assert_eq!(rig.block(5), [0; BLOCK]);
}

#[test]
fn a_miscompare_tells_the_offset_and_writes_nothing() {
    for offset in [0, 1, 511, 512, 1023] {
        let (mut rig, at) = Rig::ready(profile());
        let mut parameters = [vec![0; 2 * BLOCK], vec![b'b'; 2 * BLOCK]].concat();
        parameters[offset] = 1;
        let outcome = rig.run(at, &compare_and_write(3, 2), &parameters);
        assert_eq!(sense(&outcome), (0xe, 0x1d, 0x00));
        assert_eq!(
            outcome.own_sense().unwrap().information,
            Some(offset as u64)
        );
        assert_eq!(rig.block(3), [0; BLOCK]);
        assert_eq!(rig.asked.len(), 1);
    }
}

/// Within the unit of a store that can, without a fence; across its end behind one, as everywhere.
#[test]
fn a_store_that_compares_by_itself_is_asked_to_where_it_can() {
    let mut profile = profile();
    profile.capabilities.compare_and_write_bytes = 4 * 512;
    let (mut rig, at) = Rig::ready(profile);
    let swap = |old: u8, new: u8| [vec![old; 2 * BLOCK], vec![new; 2 * BLOCK]].concat();
    good(&rig.run(at, &compare_and_write(2, 2), &swap(0, 1)));
    assert_eq!(rig.asked, [Asked::CompareAndWrite(2 * 512, 1024)]);
    assert_eq!(rig.fences, []);
    assert_eq!(rig.block(3), [1; BLOCK]);
    let mut wrong = swap(1, 2);
    wrong[700] = 9;
    let outcome = rig.run(at, &compare_and_write(2, 2), &wrong);
    assert_eq!(sense(&outcome), (0xe, 0x1d, 0x00));
    assert_eq!(outcome.own_sense().unwrap().information, Some(700));
    assert_eq!(rig.block(3), [1; BLOCK]);
    rig.asked.clear();
    good(&rig.run(at, &compare_and_write(4, 2), &swap(0, 1)));
    let outcome = rig.run(at, &compare_and_write(3, 2), &swap(1, 3));
    good(&outcome);
    assert_eq!(rig.fences, vec![3..5]);
    assert_eq!(rig.block(4), [3; BLOCK]);
}

#[test]
fn compare_and_write_of_too_many_blocks_is_refused_at_its_length() {
    let (mut rig, at) = Rig::ready(profile());
    good(&rig.run(at, &compare_and_write(0, 128), &vec![0; 256 * BLOCK]));
    let outcome = rig.run(at, &compare_and_write(0, 129), &vec![0; 258 * BLOCK]);
    assert_eq!(
        (sense(&outcome), pointer(&outcome)),
        (INVALID_FIELD, (13, None))
    );
}

#[test]
fn compare_and_write_wants_exactly_two_blocks_of_data_for_each() {
    for announced in [0, 3 * BLOCK, 4 * BLOCK - 1, 4 * BLOCK + 1, 6 * BLOCK] {
        let (mut rig, at) = Rig::ready(profile());
        let outcome = rig.run(at, &compare_and_write(0, 2), &vec![0; announced]);
        assert_eq!(sense(&outcome), (5, 0x0e, 0x03), "{announced} announced");
    }
    let (mut rig, at) = Rig::ready(profile());
    good(&rig.run(at, &compare_and_write(0, 0), &[]));
    assert!(rig.asked.is_empty());
}

#[test]
fn orwrite_sets_bits_behind_a_fence() {
    let (mut rig, at) = Rig::ready(profile());
    rig.medium[..2 * BLOCK].fill(0xf0);
    good(&rig.run(at, &sixteen(0x8b, 0x08, 0, 2), &[0x0c; 2 * BLOCK]));
    assert_eq!(rig.fences, vec![0..2]);
    assert_eq!(rig.asked.last(), Some(&Asked::Write(0, 1024, true)));
    assert_eq!(rig.block(1), [0xfc; BLOCK]);
    assert_eq!(rig.block(2), [0; BLOCK]);
}
