//! Additional header segments: long CDBs, bidirectional commands, and bad ones.
//!
//! Spec: RFC 7143 section 11.2.2.

use super::*;
use crate::pdu::{extended_cdb_ahs, read_length_ahs};

#[test]
fn a_long_cdb_and_a_read_length_reach_the_owner() {
    let cdb: Vec<u8> = (0..32).collect();
    let long = extended_cdb_ahs(&cdb).unwrap();
    let both = [&long[..], &read_length_ahs(700)].concat();
    for (ahs, extended, read_length) in [
        (&[][..], &[][..], 0),
        (&long, &cdb[16..], 0),
        (&read_length_ahs(700), &[], 700),
        (&both, &cdb[16..], 700),
    ] {
        for (step, held) in [(usize::MAX, false), (1, false), (50, true)] {
            let mut rig = Rig::new(config());
            rig.step = step;
            let mut pdu = write(1, if held { 2 } else { 1 }, 512);
            pdu.bhs[1] |= flags::READ;
            ScsiCommandBhs::view_mut(&mut pdu.bhs).cdb = cdb[..16].try_into().unwrap();
            let mut events = rig.send(0, &[pdu.with_ahs(ahs)]);
            if held {
                events = rig.send(0, &[nop(2, 1)]);
            }
            let [Event::Command(_, command)] = &events[..] else {
                panic!("{events:?}")
            };
            assert_eq!(
                (&command.cdb[..], &command.extended_cdb[..]),
                (&cdb[..16], extended)
            );
            assert_eq!(
                (command.data_out_length, command.data_in_length),
                (512, read_length)
            );
        }
    }
}

#[test]
fn bad_ones_are_rejected_with_all_of_the_header() {
    for ahs in [
        // Type unknown, length too long, length wrong for the type, twice the same.
        vec![0, 1, 9, 0],
        vec![0, 9, 1, 0, 1, 2, 3, 4],
        vec![0, 4, 2, 0, 1, 2, 3, 4],
        vec![0, 0, 0, 0],
        [read_length_ahs(1), read_length_ahs(2)].concat(),
        vec![0xff; 1020],
    ] {
        for step in [usize::MAX, 1] {
            let mut rig = Rig::new(config());
            rig.step = step;
            let pdu = write(1, 1, 512).with_data(&[0; 512]).with_ahs(&ahs);
            assert_eq!(
                rig.events(0, slice::from_ref(&pdu)),
                ["AdditionalHeaders"],
                "{ahs:?}"
            );
            let answer = &rig.output(0)[0];
            assert_eq!(answer.story(), "reject 09");
            assert_eq!(answer.data, [&pdu.bhs[..], &ahs].concat());
            assert_eq!(rig.session.window().0, SerialNumber(1));
            assert_eq!(rig.events(0, &[command(1, 1)]), ["command 1"]);
        }
    }
}

#[test]
fn attributes_and_directions_are_as_sent() {
    for (bits, attribute) in [
        (0, Some(TaskAttribute::Untagged)),
        (1, Some(TaskAttribute::Simple)),
        (2, Some(TaskAttribute::Ordered)),
        (3, Some(TaskAttribute::HeadOfQueue)),
        (4, Some(TaskAttribute::Aca)),
        (5, None),
        (7, None),
    ] {
        let mut rig = Rig::new(config());
        let mut pdu = read(1, 1, 900);
        pdu.bhs[1] = pdu.bhs[1] & !flags::ATTRIBUTE_MASK | bits;
        ScsiCommandBhs::view_mut(&mut pdu.bhs).lun = 0x4005_0000_0000_0000.into();
        let events = rig.send(0, &[pdu]);
        let [Event::Command(_, command)] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!(command.attribute, attribute);
        assert_eq!(command.lun, 0x4005_0000_0000_0000);
        assert_eq!((command.data_out_length, command.data_in_length), (0, 900));
    }
}
