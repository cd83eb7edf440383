use super::*;

fn pattern(blocks: usize, seed: usize) -> Vec<u8> {
    (0..blocks * BLOCK)
        .map(|at| u8::try_from((at / BLOCK * 7 + at + seed) % 251).unwrap())
        .collect()
}

/// READ and WRITE of two blocks at LBA 3, in each size of CDB.
fn read_and_write() -> [([u8; 16], [u8; 16]); 4] {
    let six = |opcode| {
        let mut cdb = [0; 16];
        cdb[..6].copy_from_slice(&[opcode, 0, 0, 3, 2, 0]);
        cdb
    };
    let short = |opcode| {
        let mut cdb = [0; 16];
        cdb[..10].copy_from_slice(&ten(opcode, 0, 3, 2));
        cdb
    };
    let twelve = |opcode| {
        let mut cdb = [0; 16];
        cdb[..12].copy_from_slice(&[opcode, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0]);
        cdb
    };
    [
        (six(0x08), six(0x0a)),
        (short(0x28), short(0x2a)),
        (twelve(0xa8), twelve(0xaa)),
        (sixteen(0x88, 0, 3, 2), sixteen(0x8a, 0, 3, 2)),
    ]
}

#[test]
fn what_was_written_is_read_with_every_size_of_cdb() {
    for (seed, (read, write)) in read_and_write().into_iter().enumerate() {
        let (mut rig, at) = Rig::ready(profile());
        let written = pattern(2, seed);
        good(&rig.run(at, &write, &written));
        let outcome = rig.run(at, &read, &[]);
        assert_eq!(outcome.transfer_length, 1024);
        assert_eq!(data(outcome), written, "{read:02x?}");
        assert_eq!(rig.block(2), [0; BLOCK]);
        assert_eq!(rig.block(5), [0; BLOCK]);
    }
}

#[test]
fn length_zero_of_a_six_byte_cdb_is_256_blocks() {
    let (mut rig, at) = Rig::ready(profile());
    let outcome = rig.run(at, &[0x08, 0, 0, 0, 0, 0], &[]);
    assert_eq!(data(outcome).len(), 256 * BLOCK);
    let write = [0x0a, 0, 0x0f, 0x00, 0, 0];
    good(&rig.run(at, &write, &pattern(256, 0)));
    assert_eq!(
        rig.asked.last(),
        Some(&Asked::Write(0x0f00 * 512, 256 * 512, false))
    );
}

#[test]
fn the_address_is_checked_also_when_nothing_is_transferred() {
    let last = u32::try_from(BLOCKS).unwrap() - 1;
    for opcode in [0x28, 0x2a, 0x2e, 0x2f, 0x34, 0x35] {
        let (mut rig, at) = Rig::ready(profile());
        let fine = rig.run(at, &ten(opcode, 0, last, 0), &[]);
        good(&fine);
        let outside = rig.run(at, &ten(opcode, 0, last + 1, 0), &[]);
        assert_eq!(sense(&outside), OUT_OF_RANGE, "{opcode:#x}");
        let across = rig.run(at, &ten(opcode, 0, last, 2), &[0; 1024]);
        assert_eq!(sense(&across), OUT_OF_RANGE, "{opcode:#x}");
    }
    for opcode in [0x88, 0x8a, 0x89, 0x8b, 0x8e, 0x8f, 0x90, 0x91, 0x93] {
        let (mut rig, at) = Rig::ready(profile());
        let outcome = rig.run(at, &sixteen(opcode, 0, u64::MAX, 1), &[]);
        assert_eq!(sense(&outcome), OUT_OF_RANGE, "{opcode:#x}");
    }
}

#[test]
fn a_transfer_longer_than_the_limit_is_refused_at_its_length() {
    let (mut rig, at) = Rig::ready(profile());
    let blocks_max = 1024;
    assert_eq!(
        data(rig.run(at, &ten(0x28, 0, 0, blocks_max), &[])).len(),
        512 * 1024
    );
    let outcome = rig.run(at, &ten(0x28, 0, 0, blocks_max + 1), &[]);
    assert_eq!(
        (sense(&outcome), pointer(&outcome)),
        (INVALID_FIELD, (7, None))
    );
}

#[test]
fn protection_bits_and_naca_are_refused_where_they_stand() {
    let table: &[(&[u8], Place)] = &[
        (&ten(0x28, 0x20, 0, 1), (1, Some(5))),
        (&ten(0x2a, 0xe0, 0, 1), (1, Some(7))),
        (&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0x04], (9, Some(2))),
        (&[0x00, 0, 0, 0, 0, 0x04], (5, Some(2))),
        (&[0x08, 0x20, 0, 0, 1, 0], (1, Some(5))),
    ];
    for (cdb, place) in table {
        let (mut rig, at) = Rig::ready(profile());
        let outcome = rig.run(at, cdb, &[0; BLOCK]);
        assert_eq!(
            (sense(&outcome), pointer(&outcome)),
            (INVALID_FIELD, *place),
            "{cdb:02x?}"
        );
    }
}

#[test]
fn fua_makes_a_write_durable_and_a_read_flush_first() {
    const FUA: u8 = 0x08;
    let (mut rig, at) = Rig::ready(profile());
    good(&rig.run(at, &ten(0x2a, FUA, 0, 1), &[1; BLOCK]));
    good(&rig.run(at, &ten(0x2a, 0, 0, 1), &[1; BLOCK]));
    good(&rig.run(at, &ten(0x28, FUA, 0, 1), &[]));
    assert_eq!(
        rig.asked,
        [
            Asked::Write(0, BLOCK, true),
            Asked::Write(0, BLOCK, false),
            Asked::Flush,
            Asked::Read(0, BLOCK)
        ]
    );
}

#[test]
fn without_a_volatile_cache_nothing_is_flushed() {
    let mut profile = profile();
    profile.capabilities.volatile_cache = false;
    let (mut rig, at) = Rig::ready(profile);
    good(&rig.run(at, &ten(0x28, 0x08, 0, 1), &[]));
    good(&rig.run(at, &ten(0x2a, 0, 0, 1), &[1; BLOCK]));
    assert_eq!(
        rig.asked,
        [Asked::Read(0, BLOCK), Asked::Write(0, BLOCK, true)]
    );
}

/// What the initiator announces decides how much is written; what the CDB says, the residual. A
/// length that ends inside a block writes nothing.
#[test]
fn only_whole_blocks_that_come_are_written() {
    const LENGTH: Codes = (5, 0x0e, 0x03);
    for opcode in [0x2a, 0x2e] {
        for (announced, written) in [
            (0, Ok(0)),
            (1, Err(LENGTH)),
            (511, Err(LENGTH)),
            (512, Ok(1)),
            (513, Err(LENGTH)),
            (1023, Err(LENGTH)),
            (1024, Ok(2)),
            (1025, Ok(2)),
            (2000, Ok(2)),
        ] {
            let (mut rig, at) = Rig::ready(profile());
            let cdb = ten(opcode, 0, 0, 2);
            let outcome = rig.run_with_room(at, &cdb, &vec![b'b'; announced], 0);
            match written {
                Ok(_) => good(&outcome),
                Err(codes) => assert_eq!(sense(&outcome), codes, "{announced} announced"),
            }
            assert_eq!(outcome.transfer_length, 1024, "{announced} announced");
            let changed = rig.medium.iter().filter(|byte| **byte == b'b').count();
            assert_eq!(
                changed,
                written.unwrap_or(0) * BLOCK,
                "{announced} announced"
            );
        }
    }
}

/// Data the other way is no success, and moves nothing.
#[test]
fn data_that_would_go_the_other_way_ends_the_command() {
    let (mut rig, at) = Rig::ready(profile());
    for cdb in [
        ten(0x2a, 0, 0, 1),
        ten(0x2e, 0, 0, 1),
        ten(0x2f, 0x02, 0, 1),
    ] {
        let outcome = rig.run_with_room(at, &cdb, &[], 512);
        assert_eq!(sense(&outcome), (5, 0x0e, 0x03));
        assert_eq!(outcome.transfer_length, 0);
    }
    let outcome = rig.run_with_room(at, &sixteen(0x88, 0, 0, 1), &[0; 512], 0);
    assert_eq!(sense(&outcome), (5, 0x0e, 0x03));
    assert_eq!(outcome.transfer_length, 0);
    // The public suite wants this one to end well; that nothing came is in the residual.
    let outcome = rig.run_with_room(at, &ten(0x28, 0, 0, 1), &[0; 512], 0);
    good(&outcome);
    assert_eq!((outcome.transfer_length, outcome.data.len()), (0, 0));
    // Nothing to move either way.
    good(&rig.run_with_room(at, &ten(0x28, 0, 0, 0), &[0; 512], 0));
    good(&rig.run_with_room(at, &ten(0x2a, 0, 0, 0), &[], 512));
}

#[test]
fn a_read_fetches_no_block_that_the_initiator_has_no_room_for() {
    for (room, fetched) in [
        (0, None),
        (200, Some(512)),
        (512, Some(512)),
        (513, Some(1024)),
    ] {
        let (mut rig, at) = Rig::ready(profile());
        let outcome = rig.run_with_room(at, &ten(0x28, 0, 0, 2), &[], room);
        good(&outcome);
        assert_eq!(outcome.transfer_length, 1024);
        let asked = fetched.map(|len| Asked::Read(0, len));
        assert_eq!(rig.asked.first().copied(), asked, "room for {room}");
    }
}

#[test]
fn failures_of_the_store_name_the_block() {
    let (mut rig, at) = Rig::ready(profile());
    let medium = IoFailure::Medium { offset: 513 };
    rig.failure = Some(medium.clone());
    let outcome = rig.run(at, &ten(0x28, 0, 0, 2), &[]);
    assert_eq!(sense(&outcome), (3, 0x11, 0x00));
    assert_eq!(outcome.own_sense().unwrap().information, Some(1));
    rig.failure = Some(medium);
    let outcome = rig.run(at, &ten(0x2a, 0, 0, 2), &[0; 1024]);
    assert_eq!(sense(&outcome), (3, 0x0c, 0x00));
    rig.failure = Some(IoFailure::NoSpace { offset: 0 });
    let outcome = rig.run(at, &ten(0x2a, 0, 0, 2), &[0; 1024]);
    assert_eq!(sense(&outcome), (7, 0x27, 0x07));
    rig.failure = Some(IoFailure::FlushLatched);
    let outcome = rig.run(at, &ten(0x35, 0, 0, 0), &[]);
    assert!(outcome.own_sense().unwrap().is_deferred);
    good(&rig.run(at, &ten(0x28, 0, 0, 2), &[]));
}

#[test]
fn verify_without_data_reads_the_medium_in_pieces() {
    let (mut rig, at) = Rig::ready(profile());
    good(&rig.run(at, &sixteen(0x8f, 0, 1, 2050), &[]));
    assert_eq!(
        rig.asked,
        [
            Asked::Flush,
            Asked::Read(512, 1024 * 512),
            Asked::Read(1025 * 512, 1024 * 512),
            Asked::Read(2049 * 512, 2 * 512)
        ]
    );
    rig.failure = None;
    good(&rig.run(at, &ten(0x2f, 0, 0, 0), &[]));
}

#[test]
fn verify_compares_block_by_block_and_names_the_first_that_differs() {
    const BYTCHK: u8 = 0x02;
    for (opcode, long) in [(0x2f, false), (0xaf, false), (0x8f, true)] {
        let (mut rig, at) = Rig::ready(profile());
        let mut expected = pattern(3, 1);
        rig.medium[2 * BLOCK..5 * BLOCK].copy_from_slice(&expected);
        let cdb = match (opcode, long) {
            (0xaf, _) => vec![0xaf, BYTCHK, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0],
            (_, true) => sixteen(opcode, BYTCHK, 2, 3).to_vec(),
            (_, false) => ten(opcode, BYTCHK, 2, 3).to_vec(),
        };
        let outcome = rig.run(at, &cdb, &expected);
        good(&outcome);
        assert_eq!(outcome.transfer_length, 3 * 512);
        *expected.last_mut().unwrap() ^= 0x01;
        let outcome = rig.run(at, &cdb, &expected);
        assert_eq!(sense(&outcome), (0xe, 0x1d, 0x00), "{opcode:#x}");
        assert_eq!(outcome.own_sense().unwrap().information, Some(4));
    }
}

#[test]
fn verify_compares_every_piece_with_its_own_part_of_the_data() {
    const BYTCHK: u8 = 0x02;
    let mut profile = profile();
    profile.limits.transfer_bytes_max = 4 << 20;
    let (mut rig, at) = Rig::ready(profile);
    let mut expected = pattern(2050, 1);
    rig.medium[BLOCK..2051 * BLOCK].copy_from_slice(&expected);
    let cdb = sixteen(0x8f, BYTCHK, 1, 2050);
    good(&rig.run(at, &cdb, &expected));
    expected[1500 * BLOCK] ^= 0x01;
    let outcome = rig.run(at, &cdb, &expected);
    assert_eq!(sense(&outcome), (0xe, 0x1d, 0x00));
    assert_eq!(outcome.own_sense().unwrap().information, Some(1501));
}

#[test]
fn verify_with_bytchk_11_holds_one_block_against_all() {
    const BYTCHK: u8 = 0x06;
    let (mut rig, at) = Rig::ready(profile());
    let block = pattern(1, 5);
    for lba in 10..14 {
        rig.medium[lba * BLOCK..(lba + 1) * BLOCK].copy_from_slice(&block);
    }
    let outcome = rig.run(at, &ten(0x2f, BYTCHK, 10, 4), &block);
    good(&outcome);
    assert_eq!(outcome.transfer_length, 512);
    let outcome = rig.run(at, &ten(0x2f, BYTCHK, 10, 5), &block);
    assert_eq!(sense(&outcome), (0xe, 0x1d, 0x00));
    assert_eq!(outcome.own_sense().unwrap().information, Some(14));
    let outcome = rig.run(at, &ten(0x2f, BYTCHK, 10, 4), &block[..511]);
    assert_eq!(sense(&outcome), (5, 0x0e, 0x03));
}

#[test]
fn verify_with_bytchk_10_is_reserved() {
    let (mut rig, at) = Rig::ready(profile());
    let outcome = rig.run(at, &ten(0x2f, 0x04, 0, 1), &[0; BLOCK]);
    assert_eq!(
        (sense(&outcome), pointer(&outcome)),
        (INVALID_FIELD, (1, Some(2)))
    );
}

#[test]
fn write_and_verify_writes_durably_and_reads_back() {
    for bytchk in [0x00, 0x02] {
        let (mut rig, at) = Rig::ready(profile());
        let written = pattern(2, 9);
        good(&rig.run(at, &ten(0x2e, bytchk, 7, 2), &written));
        assert_eq!(
            rig.asked,
            [
                Asked::Write(7 * 512, 1024, true),
                Asked::Read(7 * 512, 1024)
            ]
        );
        assert_eq!(rig.medium[7 * BLOCK..9 * BLOCK], written);
    }
}

#[test]
fn pre_fetch_reads_ahead_once_and_ends_good() {
    let (mut rig, at) = Rig::ready(profile());
    good(&rig.run(at, &ten(0x34, 0, 0, 2), &[]));
    // Length 0: up to the end of the medium, as far as one transfer goes.
    good(&rig.run(at, &ten(0x34, 0, 1, 0), &[]));
    assert_eq!(
        rig.asked,
        [Asked::Read(0, 1024), Asked::Read(512, 512 * 1024)]
    );
    let immed = [0x34, 0x02, 0, 0, 0, 0, 0x03, 0, 1, 0];
    good(&rig.run(at, &immed, &[]));
    assert_eq!(rig.asked.len(), 2);
}

#[test]
fn synchronize_cache_flushes_once_whatever_the_range() {
    for cdb in [
        ten(0x35, 0, 0, 0).to_vec(),
        ten(0x35, 0x02, 5, 1).to_vec(),
        sixteen(0x91, 0, 0, 0).to_vec(),
    ] {
        let (mut rig, at) = Rig::ready(profile());
        good(&rig.run(at, &cdb, &[]));
        assert_eq!(rig.asked, [Asked::Flush]);
    }
}

#[test]
fn the_task_tells_which_blocks_it_touches() {
    let (mut rig, (core, slot)) = Rig::ready(profile());
    let luns = [Lun::new(0).unwrap()];
    let mut blocks_of = |cdb: &[u8], data_out_length| {
        let command = Command {
            cdb,
            data_out_length,
            data_in_length: 4096,
            luns: &luns,
        };
        let mut task = rig.cores[core].task(slot);
        let _step = rig.cores[core].start(&mut task, &command);
        (task.blocks(), task.writes())
    };
    assert_eq!(blocks_of(&ten(0x28, 0, 5, 3), 0), (Some(5..8), false));
    assert_eq!(blocks_of(&ten(0x2a, 0, 5, 3), 1024), (Some(5..7), true));
    assert_eq!(blocks_of(&ten(0x41, 0, 5, 3), 512), (Some(5..8), true));
    assert_eq!(blocks_of(&ten(0x42, 0, 0, 24), 24), (None, true));
    assert_eq!(blocks_of(&[0x00; 6], 0), (None, false));
}

#[test]
fn an_unmap_touches_the_blocks_from_its_first_to_its_last_once_its_list_is_there() {
    let (mut rig, (core, slot)) = Rig::ready(profile());
    let command = Command {
        cdb: &ten(0x42, 0, 0, 40),
        data_out_length: 40,
        data_in_length: 0,
        luns: &[Lun::new(0).unwrap()],
    };
    let unit = &mut rig.cores[core];
    let mut task = unit.task(slot);
    let _step = unit.start(&mut task, &command);
    assert_eq!(task.blocks(), None);
    let mut list = vec![0, 38, 0, 32, 0, 0, 0, 0];
    for (lba, blocks) in [(5_u64, 2_u32), (2, 1)] {
        list.extend(lba.to_be_bytes());
        list.extend(blocks.to_be_bytes());
        list.extend([0; 4]);
    }
    let _step = unit.resume(&mut task, Input::DataOut(Payload::Heap(list)));
    assert_eq!(task.blocks(), Some(2..7));
}

#[test]
fn the_self_test_reads_a_block() {
    let (mut rig, at) = Rig::ready(profile());
    good(&rig.run(at, &[0x1d, 0x04, 0, 0, 0, 0], &[]));
    assert_eq!(rig.asked, [Asked::Read(0, BLOCK)]);
    rig.failure = Some(IoFailure::Hardware { errno: 5 });
    let outcome = rig.run(at, &[0x1d, 0x04, 0, 0, 0, 0], &[]);
    assert_eq!(sense(&outcome), (4, 0x44, 0x00));
}
