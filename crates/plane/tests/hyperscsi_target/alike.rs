//! One unit by both transports: commands come to the same.

use hyperscsi::Level;

use crate::client::{Client, Session};
use crate::host::listen;
use crate::initiator::Initiator;
use crate::udp::{login, pattern, plane_with};

const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 2;

/// A command: its name here, CDB, data, room for data, and the status that it ends with.
type Row = (&'static str, Vec<u8>, Vec<u8>, u32, u8);

/// A CDB of 16 bytes with an LBA and a count of blocks.
fn long(opcode: u8, lba: u8, count: u8) -> Vec<u8> {
    let mut cdb = vec![0; 16];
    (cdb[0], cdb[9], cdb[13]) = (opcode, lba, count);
    cdb
}

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    let block = pattern(1, 512);
    let other = pattern(2, 512);
    let unmap = [&[0, 22, 0, 16, 0, 0, 0, 0][..], &[0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0, 0]].concat();
    // COMPARE AND WRITE has its count of blocks elsewhere, and both contents in its data.
    let compare = {
        let mut cdb = long(0x89, 3, 0);
        cdb[13] = 1;
        cdb
    };
    let inquiry = |page: u8| vec![0x12, 1, page, 0, 255, 0];
    vec![
        ("INQUIRY of 00h", inquiry(0), vec![], 255, GOOD),
        ("INQUIRY of B0h", inquiry(0xb0), vec![], 255, GOOD),
        ("INQUIRY of B2h", inquiry(0xb2), vec![], 255, GOOD),
        ("INQUIRY of a page that is not there", inquiry(0x33), vec![], 255, CHECK_CONDITION),
        ("READ CAPACITY (16)", { let mut cdb = long(0x9e, 0, 32); cdb[1] = 0x10; cdb }, vec![], 32, GOOD),
        ("MODE SENSE (6)", vec![0x1a, 0, 0x3f, 0, 255, 0], vec![], 255, GOOD),
        ("WRITE (16)", long(0x8a, 3, 1), block.clone(), 0, GOOD),
        ("READ (16)", long(0x88, 3, 1), vec![], 512, GOOD),
        ("COMPARE AND WRITE", compare.clone(), [&block[..], &other].concat(), 0, GOOD),
        ("COMPARE AND WRITE of what is not there", compare, [&block[..], &other].concat(), 0, CHECK_CONDITION),
        ("WRITE SAME (16)", long(0x93, 4, 4), block.clone(), 0, GOOD),
        ("READ (16) of that", long(0x88, 4, 4), vec![], 2048, GOOD),
        ("UNMAP", { let mut cdb = vec![0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0]; cdb[8] = 24; cdb }, unmap, 0, GOOD),
        ("READ (16) of what was unmapped", long(0x88, 8, 4), vec![], 2048, GOOD),
        ("SYNCHRONIZE CACHE (16)", long(0x91, 0, 0), vec![], 0, GOOD),
        ("READ (16) beyond the end", { let mut cdb = long(0x88, 0, 1); cdb[2] = 1; cdb }, vec![], 512, CHECK_CONDITION),
        ("an opcode that is none", vec![0xc1, 0, 0, 0, 0, 0], vec![], 0, CHECK_CONDITION),
        ("REPORT SUPPORTED OPCODES", vec![0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0], vec![], 0xffff, GOOD),
    ]
}

/// What a command comes to over HyperSCSI.
fn run(session: &mut Session, (_, cdb, out, room, _): &Row) -> (u8, Vec<u8>, Vec<u8>) {
    let done = session.run_ready(1, cdb, out, *room);
    (done.status(), done.reply.sense.clone(), done.data)
}

/// The designators of page 83h, those of the unit and those of a port or a target.
fn designators(page: &[u8]) -> (Vec<&[u8]>, Vec<&[u8]>) {
    let mut rest = &page[4..];
    let mut found = Vec::new();
    while let [_, _, _, length, ..] = rest {
        let (one, others) = rest.split_at(4 + usize::from(*length));
        found.push(one);
        rest = others;
    }
    found.into_iter().partition(|one| one[1] >> 4 & 3 == 0)
}

#[test]
fn commands_come_to_the_same_by_both_transports() {
    let (plane, _, address, _) = plane_with(&[("ABC", "secret")]);
    let mut initiator = Initiator::login(listen(&plane));
    let mut session = login(Client::udp([127, 0, 0, 1], address), "ABC", "secret");
    session.open(1, Level::Crc);
    for row in rows() {
        let mine = run(&mut session, &row);
        assert_eq!(mine.0, row.4, "{}: sense {:x?}", row.0, mine.1);
        // What compares changes what it compares with.
        if row.0 == "COMPARE AND WRITE" {
            run(
                &mut session,
                &("", long(0x8a, 3, 1), pattern(1, 512), 0, GOOD),
            );
        }
        let (name, cdb, out, room, _) = row;
        let theirs = initiator.run(&cdb, &out, room);
        assert_eq!(mine, theirs, "{name}: over HyperSCSI, and over iSCSI");
    }
    let page = [0x12, 1, 0x83, 0, 255, 0];
    let mine = session.run_ready(1, &page, &[], 255);
    let (_, _, theirs) = initiator.run(&page, &[], 255);
    let (of_unit, of_port) = designators(&mine.data);
    assert!(!of_unit.is_empty() && of_port.is_empty());
    let (theirs, of_iscsi) = designators(&theirs);
    assert_eq!(of_unit, theirs, "page 83h");
    let protocols: Vec<u8> = of_iscsi.iter().map(|one| one[0] >> 4).collect();
    assert_eq!(protocols, [5; 4], "protocols of page 83h over iSCSI");
    // The version descriptor of the transport is all that sets standard data apart.
    let standard = [0x12, 0, 0, 0, 96, 0];
    let mut mine = session.run_ready(1, &standard, &[], 96).data;
    let (_, _, theirs) = initiator.run(&standard, &[], 96);
    assert_eq!(
        (&mine[64..66], &theirs[64..66]),
        (&[0, 0][..], &[0x09, 0x60][..])
    );
    mine[64..66].copy_from_slice(&theirs[64..66]);
    assert_eq!(mine, theirs, "INQUIRY");
    // A session has the LUNs of its devices.
    let luns = session.run_ready(1, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], &[], 256);
    let list: Vec<u8> = luns.data[8..].chunks(8).map(|lun| lun[1]).collect();
    assert_eq!(list, [1, 2], "REPORT LUNS");
    assert!(!plane.stop().is_core_lost);
}
