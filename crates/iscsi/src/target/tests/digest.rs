//! Damage on the way.
//!
//! Spec: RFC 7143 section 7.8.

use super::*;

fn rig() -> Rig {
    let mut config = config();
    config.parameters.initial_r2t = false;
    let mut connection = connection(1);
    connection.parameters.header_digest = true;
    connection.parameters.data_digest = true;
    Rig::with_connections(config, &[connection])
}

/// Sends a PDU with the last byte of its data digest changed.
fn send_damaged(rig: &mut Rig, pdu: &Pdu) -> Vec<String> {
    let mut wire = pdu.to_wire(true, true);
    *wire.last_mut().unwrap() ^= 0x80;
    rig.feed(0, &wire).unwrap();
    std::iter::from_fn(|| rig.session.poll_event())
        .collect::<Vec<_>>()
        .iter()
        .map(|event| rig.story(event))
        .collect()
}

#[test]
fn a_damaged_header_ends_the_connection() {
    for at in [0, 8, 20, 47, 48, 51] {
        for step in [usize::MAX, 1, 49] {
            let mut rig = rig();
            rig.step = step;
            let mut wire = command(1, 1).to_wire(true, true);
            wire[at] ^= 1;
            assert_eq!(
                rig.feed(0, &wire),
                Err(Violation::HeaderDigest),
                "byte {at}"
            );
            assert!(rig.session.poll_event().is_none());
        }
    }
}

#[test]
fn a_segment_longer_than_declared_ends_the_connection() {
    let mut rig = rig();
    assert_eq!(rig.events(0, &[nop(1, 1).with_data(&[0; 8192])]), [""; 0]);
    let wire = nop(1, 2).with_data(&[0; 8193]).to_wire(true, true);
    let limit = Violation::DataSegmentTooLong {
        got_bytes: 8193,
        limit_bytes: 8192,
    };
    assert_eq!(rig.feed(0, &wire), Err(limit));
}

#[test]
fn a_damaged_command_is_rejected_as_if_it_had_never_come() {
    for step in [usize::MAX, 1, 60] {
        for pdu in [
            write(1, 1, 512).with_data(&[1; 512]),
            write(1, 2, 512).with_data(&[1; 512]),
        ] {
            let mut rig = rig();
            rig.step = step;
            assert_eq!(send_damaged(&mut rig, &pdu), ["DataDigest"]);
            let answers = rig.output(0);
            assert_eq!(answers[0].story(), "reject 02");
            assert_eq!(answers[0].data, pdu.bhs);
            assert_eq!(rig.session.window().0, SerialNumber(1));
            // Neither its number nor its tag is taken.
            let fill = nop(2, 3 - pdu.view::<RequestBhs>().cmd_sn.get());
            assert_eq!(rig.events(0, &[pdu, fill]), ["command 1"]);
        }
    }
}

#[test]
fn damaged_data_fails_its_task_and_only_that() {
    for (unsolicited, step) in [
        (true, usize::MAX),
        (true, 1),
        (false, usize::MAX),
        (false, 99),
    ] {
        let mut rig = rig();
        rig.step = step;
        let mut pdu = write(1, 1, 1000);
        if unsolicited {
            pdu = pdu.not_final();
        }
        let id = rig.start(0, pdu);
        rig.session.request_data(id, 1000, &rig.pool);
        let transfer = match &rig.output(0)[..] {
            [r2t] => r2t.view::<R2tBhs>().target_transfer_tag.get(),
            _ => RESERVED_TAG,
        };
        let data = data_out(1, transfer, 0, 0, &[1; 500]).not_final();
        let told = ["DataDigest", "fault 1 DigestError"];
        assert_eq!(send_damaged(&mut rig, &data), told);
        assert_eq!(rig.answers(0), ["reject 02"]);
        // The rest of the sequence.
        assert_eq!(
            rig.events(0, &[data_out(1, transfer, 1, 500, &[1; 500])]),
            [""; 0]
        );
        rig.good(id);
        assert_eq!(rig.answers(0), ["response 1 00"]);
        assert_eq!(rig.events(0, &[command(2, 2)]), ["command 2"]);
    }
}

#[test]
fn damaged_data_of_other_requests_is_rejected_and_not_numbered() {
    let mut rig = rig();
    for pdu in [nop(1, 1).with_data(&[1; 5]), text(1, 1, "SendTargets=\0")] {
        assert_eq!(send_damaged(&mut rig, &pdu), ["DataDigest"]);
        assert_eq!(rig.answers(0), ["reject 02"]);
        assert_eq!(rig.session.window().0, SerialNumber(1));
    }
    assert_eq!(rig.events(0, &[nop(1, 1).with_data(&[1; 5])]), [""; 0]);
    assert_eq!(rig.answers(0), ["nop 1"]);
}
