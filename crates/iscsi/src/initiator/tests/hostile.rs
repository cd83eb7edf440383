//! Targets that break rules: each rule by name, and all of them at random.

use proptest::prelude::*;

use super::*;

type Break = fn(&mut Rig, InitiatorTaskTag, InitiatorTaskTag);

/// How a rule is broken, with a read and a write in flight.
#[rustfmt::skip]
const BROKEN: &[(&str, Break)] = &[
    ("DataSn", |rig, read, _| { rig.answer(0, data_in(read, 1, 0, 0), &[0; 4], false) }),
    ("DataInOutside", |rig, read, _| { rig.answer(0, data_in(read, 0, 4, 0), &[0; 4], false) }),
    ("DataInOutside", |rig, read, _| { rig.answer(0, data_in(read, 0, 0, 0), &[0; 1001], false) }),
    ("UnknownTask", |rig, _, _| { rig.answer(0, data_in(InitiatorTaskTag(0x7777_0001), 0, 0, 0), &[0; 4], false); }),
    ("DataInOutside", |rig, _, write| { rig.answer(0, data_in(write, 0, 0, 0), &[0; 4], false) }),
    ("R2tOutside", |rig, read, _| { rig.answer(0, r2t(read, 1, 0, 0, 4), b"", false) }),
    ("R2tOutside", |rig, _, write| { rig.answer(0, r2t(write, 1, 0, 0, 5001), b"", false) }),
    ("R2tOutside", |rig, _, write| { rig.answer(0, r2t(write, 1, 0, 1, 4), b"", false) }),
    ("R2tOutside", |rig, _, write| { rig.answer(0, r2t(write, 1, 0, 0, 0), b"", false) }),
    ("R2tOutside", |rig, _, write| { rig.answer(0, r2t(write, RESERVED_TAG, 0, 0, 4), b"", false); }),
    ("DataSn", |rig, _, write| { rig.answer(0, r2t(write, 1, 1, 0, 4), b"", false) }),
    ("TooManyR2t", |rig, _, write| { rig.answer(0, r2t(write, 1, 0, 0, 4), b"", false); rig.answer(0, r2t(write, 2, 1, 4, 4), b"", false); }),
    ("StatSn", |rig, read, _| { rig.targets[0].stat_sn = SerialNumber(4); rig.respond(read, 2, b""); }),
    ("UnexpectedOpcode", |rig, _, _| { rig.answer(0, NopOutBhs::new(), b"", false) }),
    ("DataSegmentTooLong", |rig, read, _| { rig.answer(0, data_in(read, 0, 0, 0), &[0; 8193], false); }),
    ("Malformed", |rig, read, _| { let mut header = ScsiResponseBhs::new(); header.initiator_task_tag = read.0.into(); rig.answer(0, header, &[0, 9, 1], true); }),
    // GOOD without data, with a residual that covers a part, and when the data was asked for and has not left.
    ("DataNotTaken", |rig, _, write| { rig.sent(0); rig.respond(write, 0, b""); }),
    ("DataNotTaken", |rig, _, write| { rig.sent(0); rig.answer(0, underflow(write, 4999), b"", true); }),
    ("DataNotTaken", |rig, _, write| { rig.answer(0, r2t(write, 1, 0, 0, 4000), b"", false); rig.sent(0); rig.respond(write, 0, b""); }),
    ("DataNotTaken", |rig, _, write| { rig.sent(0); rig.answer(0, r2t(write, 1, 0, 0, 5000), b"", false); rig.respond(write, 0, b""); }),
];

fn underflow(itt: InitiatorTaskTag, count: u32) -> ScsiResponseBhs {
    let mut header = ScsiResponseBhs::new();
    header.initiator_task_tag = itt.0.into();
    header.flags |= flags::RESIDUAL_UNDERFLOW;
    header.residual_count = count.into();
    header
}

#[test]
fn a_write_ends_well_with_what_was_sent_or_a_residual_for_the_rest() {
    // So much is sent unasked, so much is asked for, and so much is said to be left over.
    for (immediate, asked, residual) in
        [(5000, 0, 0), (1000, 4000, 0), (1000, 0, 4000), (5000, 0, 7)]
    {
        let session = SessionParameters {
            first_burst_length_bytes: immediate,
            ..parameters()
        };
        let mut rig = Rig::new(session, ConnectionParameters::default(), 32);
        let itt = rig.session.submit(write(1, 5000)).unwrap();
        rig.sent(0);
        if asked > 0 {
            rig.answer(0, r2t(itt, 1, 0, immediate, asked), b"", false);
            rig.sent(0);
        }
        let mut header = underflow(itt, residual);
        header.exp_data_sn = u32::from(asked > 0).into();
        if residual == 0 {
            header.flags &= !flags::RESIDUAL_UNDERFLOW;
        }
        rig.answer(0, header, b"", true);
        assert_eq!(rig.completion().outcome, Outcome::Status(0));
    }
}

#[test]
fn a_write_that_fails_need_not_take_its_data() {
    let mut rig = Rig::plain();
    let itt = rig.session.submit(write(1, 60_000)).unwrap();
    rig.sent(0);
    rig.respond(itt, 2, b"sense");
    assert_eq!(rig.completion().outcome, Outcome::Status(2));
}

#[test]
fn every_broken_rule_of_the_target_is_named() {
    for (number, &(name, break_rule)) in BROKEN.iter().enumerate() {
        let session = SessionParameters {
            immediate_data: false,
            max_outstanding_r2t: 1,
            ..parameters()
        };
        let mut rig = Rig::new(session, ConnectionParameters::default(), 32);
        let read = rig.session.submit(read(1, 1000)).unwrap();
        let write = rig.session.submit(write(2, 5000)).unwrap();
        break_rule(&mut rig, read, write);
        let violation = rig
            .violation()
            .unwrap_or_else(|| panic!("case {number}: none"));
        let shown = format!("{violation:?}");
        assert!(shown.starts_with(name), "case {number}: {shown}");
        assert_eq!(rig.session.tasks(), 0);
    }
}

#[test]
fn a_wrong_digest_ends_the_connection() {
    let connection = ConnectionParameters {
        data_digest: true,
        ..ConnectionParameters::default()
    };
    let mut rig = Rig::new(parameters(), connection, 32);
    let itt = rig.session.submit(read(1, 8)).unwrap();
    let mut header = *data_in(itt, 0, 0, flags::FINAL).as_bhs_bytes();
    ResponseBhs::view_mut(&mut header).stat_sn = rig.targets[0].stat_sn.into();
    let mut wire = Pdu::new(&header, vec![1; 8]).to_bytes(false, true);
    *wire.last_mut().unwrap() ^= 1;
    rig.session.handle_bytes(0, &wire);
    assert_eq!(rig.violation(), Some(TargetViolation::DataDigest));
}

proptest! {
    /// Mutated answers of a target: no panic, and each command ends exactly once.
    #[test]
    fn a_hostile_target_can_only_end_commands(
        steps in proptest::collection::vec(
            (0_u8..8, 0_u32..4, any::<u8>(), 0_u32..2000, 0_usize..64, 0_usize..400),
            0..40,
        ),
    ) {
        let session = SessionParameters { max_outstanding_r2t: 2, ..parameters() };
        let mut rig = Rig::new(session, ConnectionParameters::default(), 32);
        let mut tags = Vec::new();
        for tag in 0..4_u64 {
            let command = if tag % 2 == 0 { read(tag, 1000) } else { write(tag, 9000) };
            tags.push(rig.session.submit(command).unwrap());
        }
        let mut ended = Vec::new();
        for (kind, task, header_flags, offset, damage, length) in steps {
            if !rig.session.is_alive() {
                break;
            }
            let itt = tags[task as usize % tags.len()];
            let data = vec![0x5a; length];
            let mut bytes = match kind {
                0 | 1 => *data_in(itt, 0, offset, header_flags).as_bhs_bytes(),
                2 | 3 => *r2t(itt, task, task, offset, offset).as_bhs_bytes(),
                4 => *ScsiResponseBhs::new().as_bhs_bytes(),
                5 => *RejectBhs::new().as_bhs_bytes(),
                6 => *TextResponseBhs::new().as_bhs_bytes(),
                _ => *NopInBhs::new().as_bhs_bytes(),
            };
            ResponseBhs::view_mut(&mut bytes).initiator_task_tag = itt.0.into();
            if damage < 48 {
                bytes[damage] = header_flags;
            }
            let header = *ResponseBhs::view(&bytes);
            rig.answer(0, header, &data, kind != 0 && kind != 2);
            let mut out = Vec::new();
            rig.session.transmit(0, &mut out, 1 << 20);
            while let Some(event) = rig.session.poll_event() {
                if let Event::Completed(done) = event {
                    ended.push(done.tag);
                }
            }
        }
        rig.session.connection_lost(0);
        while let Some(event) = rig.session.poll_event() {
            if let Event::Completed(done) = event {
                ended.push(done.tag);
            }
        }
        ended.sort_unstable();
        prop_assert_eq!(ended, [0, 1, 2, 3]);
        prop_assert_eq!(rig.session.tasks(), 0);
    }
}
