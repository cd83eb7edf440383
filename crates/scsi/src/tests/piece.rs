//! Work on more of the medium than an initiator sends or receives.

use super::*;

/// A command, its data, and the requests that it makes of so many pieces.
type Row<'a> = (&'a str, Vec<u8>, Vec<u8>, usize);

fn rows() -> Vec<Row<'static>> {
    let zeros = vec![0; BLOCK];
    let list = |count: u8| {
        let mut list = vec![0, count * 16 + 6, 0, count * 16, 0, 0, 0, 0];
        for first in 0..count {
            list.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, first * 16, 0, 0, 0, 8, 0, 0, 0, 0]);
        }
        list
    };
    let ten = |opcode, flags, blocks| ten(opcode, flags, 0, blocks).to_vec();
    let unmap = |length: u8| vec![0x42, 0, 0, 0, 0, 0, 0, 0, length, 0];
    let status = sixteen(0x9e, 0x12, 0, 64).to_vec();
    vec![
        ("VERIFY", ten(0x2f, 0, 3000), vec![], 3),
        ("VERIFY of one block", ten(0x2f, 6, 3000), zeros.clone(), 3),
        ("VERIFY of data", ten(0x2f, 2, 1000), vec![0; 512_000], 1),
        ("WRITE AND VERIFY", ten(0x2e, 2, 8), vec![0; 4096], 1),
        ("PRE-FETCH", ten(0x34, 0, 2000), vec![], 1),
        ("WRITE SAME", ten(0x41, 0, 300), vec![1; BLOCK], 3),
        ("WRITE SAME of zeros", ten(0x41, 0, 300), zeros.clone(), 1),
        ("WRITE SAME that unmaps", ten(0x41, 8, 300), zeros, 1),
        ("UNMAP", unmap(56), list(3), 3),
        ("GET LBA STATUS", status, vec![], 1),
        ("READ", ten(0x28, 0, 1000), vec![], 0),
        ("WRITE", ten(0x2a, 0, 8), vec![2; 4096], 0),
    ]
}

#[test]
fn requests_beyond_what_is_sent_or_received_wait_for_their_turn() {
    for (name, cdb, data, pieces) in rows() {
        let (mut rig, at) = Rig::ready(profile());
        good(&rig.run(at, &cdb, &data));
        assert_eq!(rig.turns.len(), pieces, "{name}");
        if pieces == 0 {
            continue;
        }
        let moved = rig.asked.iter().filter_map(|one| match one {
            Asked::Read(_, len) | Asked::Write(_, len, _) => u32::try_from(*len).ok(),
            Asked::CompareAndWrite(..)
            | Asked::Flush
            | Asked::Unmap(..)
            | Asked::Zero(..)
            | Asked::Extents
            | Asked::Device => None,
        });
        // The first request of WRITE AND VERIFY writes the data that was sent.
        let moved = moved.skip(usize::from(cdb[0] == 0x2e));
        let moved: Vec<u32> = moved.collect();
        if !moved.is_empty() {
            assert_eq!(rig.turns, moved, "{name}: each costs what it moves");
        }
        assert!(rig.turns.iter().all(|bytes| *bytes <= PIECE_BYTES_MAX));
    }
}

/// The books of a store may have a bit for each page.
#[test]
fn what_a_store_only_takes_note_of_costs_its_books_and_stays_below_a_piece() {
    let mut profile = profile();
    profile.capabilities.size_bytes = 1 << 50;
    profile.capabilities.block_bytes = 4096;
    let owner = Owner::new(profile, None).unwrap();
    let mut view = LogicalUnit::new(Arc::clone(owner.profile()), Arc::clone(owner.shared()));
    let slot = view.attach(nexus(1), None);
    let mut cost = |cdb: &[u8]| {
        let command = Command {
            cdb,
            data_out_length: 0,
            data_in_length: 1024,
            luns: &[Lun::new(0).unwrap()],
        };
        let mut task = view.task(slot);
        let step = view.start(&mut task, &command);
        let Step::Turn { bytes } = step else {
            panic!("{step:?}");
        };
        bytes
    };
    assert_eq!(cost(&sixteen(0x9e, 0x12, 0, 64)), 512 * 1024);
    assert_eq!(cost(&sixteen(0x93, 1, 0, 0xffff)), 8191);
    assert_eq!(cost(&sixteen(0x93, 9, 0, 8)), 1);
}
