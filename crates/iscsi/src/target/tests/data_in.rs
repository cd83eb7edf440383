//! Data to the initiator: segments, sequences, status and residuals.
//!
//! Spec: RFC 7143 sections 11.4 and 11.7.

use super::*;
use crate::pdu::read_length_ahs;

/// A rig whose initiator takes segments of `segment_max` bytes.
fn rig(segment_max: u32, burst_max: u32, data_digest: bool) -> Rig {
    let mut connection = connection(1);
    connection
        .parameters
        .peer_max_recv_data_segment_length_bytes = segment_max;
    connection.parameters.data_digest = data_digest;
    Rig::with_connections(config_of_bursts(512, burst_max), &[connection])
}

#[test]
fn data_is_cut_into_segments_and_sequences() {
    #[rustfmt::skip]
    let cases = [
        (1, 8192, 65_536, &["in 0 0+1 FS"][..]),
        (512, 512, 512, &["in 0 0+512 FS"]),
        (513, 512, 512, &["in 0 0+512 F", "in 1 512+1 FS"]),
        (1024, 512, 512, &["in 0 0+512 F", "in 1 512+512 FS"]),
        (1024, 512, 1024, &["in 0 0+512", "in 1 512+512 FS"]),
        (1024, 2048, 8192, &["in 0 0+1024 FS"]),
        (1025, 2048, 8192, &["in 0 0+1025 FS"]),
        (5000, 2048, 4096, &["in 0 0+2048", "in 1 2048+2048 F", "in 2 4096+904 FS"]),
        // A segment never crosses the end of a sequence.
        (2500, 1000, 1500, &["in 0 0+1000", "in 1 1000+500 F", "in 2 1500+1000 FS"]),
        // The limit of a segment may be larger than a sequence.
        (2000, 8192, 1500, &["in 0 0+1500 F", "in 1 1500+500 FS"]),
    ];
    for (length, segment_max, burst_max, told) in cases {
        for data_digest in [false, true] {
            let case = format!("{length} {segment_max} {burst_max} {data_digest}");
            let mut rig = rig(segment_max, burst_max, data_digest);
            let id = rig.start(0, read(7, 1, length));
            assert_eq!(rig.session.needs_stable_data(id), data_digest);
            let data = pattern(length as usize);
            rig.answer(id, data.clone().into(), u64::from(length));
            let pdus = rig.output(0);
            let stories: Vec<_> = pdus.iter().map(Pdu::story).collect();
            assert_eq!(stories, told, "{case}");
            let sent: Vec<u8> = pdus.iter().flat_map(|pdu| pdu.data.clone()).collect();
            assert!(sent == data, "{case}");
            for pdu in &pdus {
                let bhs: &DataInBhs = pdu.view();
                assert_eq!(
                    (bhs.itt().0, bhs.target_transfer_tag.get()),
                    (7, RESERVED_TAG)
                );
            }
        }
    }
}

#[test]
fn a_status_other_than_good_follows_the_data_in_a_response() {
    let mut rig = rig(512, 512, true);
    let id = rig.start(0, read(1, 1, 2048));
    let sense = [0x70, 0, 3];
    let response = Response {
        status: 2,
        sense: &sense,
        data: pattern(1024).into(),
        transfer_length: 1024,
    };
    assert_eq!(rig.session.respond(id, response), Some(0));
    let pdus = rig.output(0);
    let stories: Vec<_> = pdus.iter().map(Pdu::story).collect();
    assert_eq!(stories, ["in 0 0+512 F", "in 1 512+512 F", "response 1 02"]);
    let bhs: &ScsiResponseBhs = pdus[2].view();
    assert_eq!(bhs.exp_data_sn.get(), 2);
    assert_eq!(bhs.flags, flags::FINAL | flags::RESIDUAL_UNDERFLOW);
    assert_eq!(bhs.residual_count.get(), 1024);
    // Spec: RFC 7143 section 11.4.7.2; the length of the sense data comes first.
    assert_eq!(pdus[2].data, [0, 3, 0x70, 0, 3]);
}

#[test]
fn a_busy_status_comes_without_sense_or_data() {
    let mut rig = rig(512, 512, false);
    let id = rig.start(0, read(1, 1, 2048));
    let response = Response {
        status: 8,
        sense: &[],
        data: Payload::Empty,
        transfer_length: 0,
    };
    rig.session.respond(id, response);
    let pdus = rig.output(0);
    assert_eq!(
        (pdus.len(), pdus[0].story(), pdus[0].data.len()),
        (1, "response 1 08".into(), 0)
    );
}

#[test]
fn the_residual_is_the_difference_between_expected_and_moved() {
    const O: u8 = flags::RESIDUAL_OVERFLOW;
    const U: u8 = flags::RESIDUAL_UNDERFLOW;
    for (expected, have, moves, sent, residual) in [
        (512, 512, 512, 512, (0, 0)),
        (1024, 512, 512, 512, (U, 512)),
        (512, 1024, 1024, 512, (O, 512)),
        (512, 512, 1024, 512, (O, 512)),
        (512, 0, 0, 0, (U, 512)),
        (0, 512, 512, 0, (O, 512)),
        (0, 0, 0, 0, (0, 0)),
        (512, 512, u64::MAX, 512, (O, u32::MAX)),
        (2000, 1, 1, 1, (U, 1999)),
    ] {
        let case = format!("{expected} {have} {moves}");
        let mut rig = rig(8192, 8192, false);
        let id = rig.start(0, read(1, 1, expected));
        rig.answer(id, pattern(have).into(), moves);
        let pdus = rig.output(0);
        assert_eq!(pdus.len(), 1, "{case}");
        let (got, count) = if opcode(&pdus[0].bhs) == Some(Opcode::DataIn) {
            let bhs: &DataInBhs = pdus[0].view();
            (bhs.flags, bhs.residual_count.get())
        } else {
            let bhs: &ScsiResponseBhs = pdus[0].view();
            (bhs.flags, bhs.residual_count.get())
        };
        assert_eq!((got & (O | U), count), residual, "{case}");
        assert_eq!(pdus[0].data, pattern(have)[..sent], "{case}");
    }
}

#[test]
fn a_write_has_a_residual_too() {
    const O: u8 = flags::RESIDUAL_OVERFLOW;
    const U: u8 = flags::RESIDUAL_UNDERFLOW;
    for (expected, moves, flag, count) in [
        (512, 512, 0, 0),
        (1024, 512, U, 512),
        (512, 1024, O, 512),
        (512, 0, U, 512),
    ] {
        let mut rig = rig(8192, 8192, false);
        let id = rig.start(0, write(1, 1, expected));
        rig.answer(id, Payload::Empty, moves);
        let pdus = rig.output(0);
        let bhs: &ScsiResponseBhs = pdus[0].view();
        assert_eq!(
            (bhs.flags & (O | U), bhs.residual_count.get()),
            (flag, count)
        );
    }
}

#[test]
fn a_bidirectional_command_has_a_residual_in_each_direction() {
    for (have, moves, flag, count, read_flag, read_count) in [
        (512, 1024, 0, 0, 0, 0),
        (
            0,
            0,
            flags::RESIDUAL_UNDERFLOW,
            1024,
            flags::BIDIRECTIONAL_READ_UNDERFLOW,
            512,
        ),
        (
            600,
            1025,
            flags::RESIDUAL_OVERFLOW,
            1,
            flags::BIDIRECTIONAL_READ_OVERFLOW,
            88,
        ),
    ] {
        let mut rig = rig(8192, 8192, false);
        let mut pdu = write(1, 1, 1024);
        pdu.bhs[1] |= flags::READ;
        let id = rig.start(0, pdu.with_ahs(&read_length_ahs(512)));
        rig.answer(id, pattern(have).into(), moves);
        let pdus = rig.output(0);
        // Data-In has no fields for it, so the status never rides on the data.
        let bhs: &ScsiResponseBhs = pdus.last().unwrap().view();
        assert_eq!(pdus.last().unwrap().story(), "response 1 00");
        assert_eq!(bhs.flags, flags::FINAL | flag | read_flag, "{have} {moves}");
        assert_eq!(bhs.residual_count.get(), count);
        assert_eq!(bhs.bidirectional_read_residual_count.get(), read_count);
    }
}

#[test]
fn a_task_is_answered_once() {
    let mut rig = Rig::new(config());
    let id = rig.start(0, command(1, 1));
    rig.good(id);
    let again = Response {
        status: 0,
        sense: &[],
        data: Payload::Empty,
        transfer_length: 0,
    };
    assert_eq!(rig.session.respond(id, again), None);
    // Nor does the old name reach the next task in its place.
    let next = rig.start(0, command(1, 2));
    assert_eq!(next.index, id.index);
    rig.session.abandon(id);
    assert_eq!(rig.session.tasks(), [next]);
    assert_eq!(rig.answers(0), ["response 1 00"]);
}
