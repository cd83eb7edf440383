//! Data that was not negotiated, not asked for or not right: the task fails, the session goes on.
//!
//! Spec: RFC 7143 sections 7.9, 11.4.7.2 and 11.7.

use super::*;

/// Unsolicited data up to 2048 bytes, bursts of 1000.
fn rig(initial_r2t: bool, immediate_data: bool) -> Rig {
    let mut config = config_of_bursts(2048, 1000);
    config.parameters.initial_r2t = initial_r2t;
    config.parameters.immediate_data = immediate_data;
    Rig::with_connections(config, &[connection(1), connection(2)])
}

#[test]
fn data_that_was_not_negotiated_fails_the_command() {
    let with = |length| write(1, 1, 4096).with_data(&pattern(length));
    #[rustfmt::skip]
    let cases = [
        (true, true, with(2048), "command 1"),
        (true, true, with(2049), "fault 1 UnexpectedUnsolicited"),
        (true, false, with(1), "fault 1 UnexpectedUnsolicited"),
        (false, false, with(1), "fault 1 UnexpectedUnsolicited"),
        (true, false, with(0), "command 1"),
        (true, true, with(512).not_final(), "fault 1 UnexpectedUnsolicited"),
        (true, true, with(0).not_final(), "fault 1 UnexpectedUnsolicited"),
        (false, true, with(512).not_final(), "command 1"),
        (false, true, with(0).not_final(), "command 1"),
        // More than the command is said to carry.
        (true, true, write(1, 1, 512).with_data(&pattern(513)), "fault 1 UnexpectedUnsolicited"),
        (true, true, write(1, 1, 512).with_data(&pattern(512)), "command 1"),
        // A command that reads, or moves nothing, brings no data.
        (true, true, read(1, 1, 512).with_data(&[0]), "fault 1 UnexpectedUnsolicited"),
        (true, true, command(1, 1).with_data(&[0]), "fault 1 UnexpectedUnsolicited"),
        (true, true, read(1, 1, 512).not_final(), "command 1"),
    ];
    for (initial_r2t, immediate_data, pdu, told) in cases {
        for step in [usize::MAX, 1, 60] {
            let case = format!("{initial_r2t} {immediate_data} {:02x?} {step}", pdu.bhs);
            let mut rig = rig(initial_r2t, immediate_data);
            rig.step = step;
            assert_eq!(rig.events(0, slice::from_ref(&pdu)), [told], "{case}");
            assert_eq!(rig.session.window().0, SerialNumber(2), "{case}");
            let id = rig.session.tasks()[0];
            rig.good(id);
            assert_eq!(rig.answers(0), ["response 1 00"], "{case}");
            rig.assert_alive(0);
        }
    }
}

/// The transfer tag is right and the LUN is not that of the R2T: nothing reaches the command.
#[test]
fn data_for_another_unit_fails_the_task() {
    for (lun, told) in [
        (0, vec![]),
        (
            1 << 48,
            vec!["DataOutForOtherLun", "fault 1 IncorrectAmount"],
        ),
    ] {
        let mut rig = rig(true, false);
        let id = rig.start(0, write(1, 1, 512));
        assert!(rig.session.request_data(id, 512, &rig.pool).is_none());
        assert_eq!(rig.answers(0), ["r2t 1 0 0+512"]);
        let mut pdu = data_out(1, 0, 0, 0, &pattern(512));
        DataOutBhs::view_mut(&mut pdu.bhs).lun = lun.into();
        let mut events = rig.events(0, &[pdu]);
        events.retain(|event| !event.starts_with("data"));
        events.sort_by_key(|event| event.starts_with("fault"));
        assert_eq!(events, told, "{lun:#x}");
        rig.assert_alive(0);
    }
}

#[test]
fn a_wrong_unsolicited_sequence_fails_the_task_once() {
    let length = "fault 1 IncorrectAmount";
    let missing = "fault 1 DigestError";
    let data = |sn, offset, length| data_out(1, RESERVED_TAG, sn, offset, &pattern(length));
    #[rustfmt::skip]
    let cases = [
        (vec![data(0, 0, 2048)], vec![]),
        (vec![data(0, 0, 2049)], vec!["BurstTooLong", length]),
        (vec![data(0, 0, 2048).not_final(), data(1, 2048, 1)], vec!["BurstTooLong", length]),
        (vec![data(1, 0, 2048)], vec!["DataSnOutOfOrder", missing]),
        (vec![data(0, 1, 2047)], vec!["DataOutOfOrder", missing]),
        (vec![data(0, 0, 512).not_final(), data(0, 512, 512).not_final(), data(1, 1024, 1024)], vec!["DataSnOutOfOrder", missing]),
        (vec![data(0, 0, 512).not_final(), data(2, 512, 1536)], vec!["DataSnOutOfOrder", missing]),
        (vec![data(0, 0, 512).not_final(), data(1, 1024, 1024)], vec!["DataOutOfOrder", missing]),
        (vec![data(0, 0, 512).not_final(), data(1, 0, 2048)], vec!["DataOutOfOrder", missing]),
        (vec![data(0, u32::MAX as usize, 16)], vec!["DataOutOfOrder", missing]),
    ];
    for (pdus, told) in cases {
        for step in [usize::MAX, 1, 100] {
            let mut rig = rig(false, true);
            rig.step = step;
            let id = rig.start(0, write(1, 1, 2048 + 1000).not_final());
            assert!(rig.session.request_data(id, 3048, &rig.pool).is_none());
            let mut events = rig.events(0, &pdus);
            events.sort_by_key(|event| event.starts_with("fault"));
            assert_eq!(events, told);
            let asked = if told.is_empty() {
                vec!["r2t 1 0 2048+1000"]
            } else {
                vec![]
            };
            assert_eq!(rig.answers(0), asked);
            rig.good(id);
            assert_eq!(rig.answers(0), ["response 1 00"]);
            rig.assert_alive(0);
            assert_eq!(rig.events(0, &[command(2, 2)]), ["command 2"]);
        }
    }
}

#[test]
fn a_wrong_burst_fails_the_task_once_and_what_follows_is_dropped() {
    let length = "fault 1 IncorrectAmount";
    let missing = "fault 1 DigestError";
    // DataSN, offset, length and F of each PDU in the first burst, 0+1000.
    type Sequence = [(u32, usize, usize, bool)];
    #[rustfmt::skip]
    let table: &[(&Sequence, &[&str])] = &[
        (&[(0, 0, 1000, true)], &[]),
        (&[(0, 0, 600, false), (1, 600, 400, true)], &[]),
        (&[(0, 0, 600, false), (1, 600, 0, false), (2, 600, 400, true)], &[]),
        (&[(0, 0, 1001, true)], &["BurstTooLong", length]),
        (&[(0, 0, 600, false), (1, 600, 401, true)], &["BurstTooLong", length]),
        // Short of what was asked for.
        (&[(0, 0, 600, true)], &[length]),
        // All of it, but more is announced.
        (&[(0, 0, 1000, false)], &[length]),
        (&[(0, 0, 600, false), (2, 600, 400, true)], &["DataSnOutOfOrder", missing]),
        (&[(7, 0, 1000, true)], &["DataSnOutOfOrder", missing]),
        (&[(0, 0, 600, false), (1, 500, 500, true)], &["DataOutOfOrder", missing]),
        (&[(0, 1, 999, true)], &["DataOutOfOrder", missing]),
    ];
    for (pdus, told) in table {
        let mut rig = rig(true, true);
        let id = rig.start(0, write(1, 1, 3000));
        assert!(rig.session.request_data(id, 3000, &rig.pool).is_none());
        let transfer = rig.output(0)[0].view::<R2tBhs>().target_transfer_tag.get();
        let pdus: Vec<Pdu> = pdus
            .iter()
            .map(|&(sn, offset, length, is_final)| {
                let pdu = data_out(1, transfer, sn, offset, &pattern(length));
                if is_final { pdu } else { pdu.not_final() }
            })
            .collect();
        let mut events = rig.events(0, &pdus);
        events.sort_by_key(|event| event.starts_with("fault"));
        assert_eq!(events, *told, "{pdus:?}");
        if told.is_empty() {
            assert_eq!(rig.answers(0), ["r2t 1 1 1000+1000"]);
            continue;
        }
        // No more is asked for, and the rest of the burst does no harm.
        assert_eq!(rig.answers(0), [""; 0], "{pdus:?}");
        assert_eq!(
            rig.events(0, &[data_out(1, transfer, 1, 600, &[0; 400])]),
            [""; 0]
        );
        rig.good(id);
        assert_eq!(rig.answers(0), ["response 1 00"], "{pdus:?}");
        rig.assert_alive(0);
    }
}

#[test]
fn data_that_belongs_to_nothing_is_rejected_with_its_header() {
    let mut rig = rig(true, true);
    let id = rig.start(0, write(1, 1, 2000));
    rig.session.request_data(id, 2000, &rig.pool);
    let transfer = rig.output(0)[0].view::<R2tBhs>().target_transfer_tag.get();
    for (connection, pdu) in [
        // No such task, with and without a transfer nobody asked for.
        (0, data_out(9, RESERVED_TAG, 0, 0, &[0; 100])),
        (0, data_out(9, 0x1234_5678, 0, 0, &[0; 100])),
        // A task, but another transfer, none at all, or the wrong connection.
        (0, data_out(1, transfer + 7, 0, 0, &[0; 100])),
        (0, data_out(1, RESERVED_TAG, 0, 0, &[0; 100])),
        (1, data_out(1, transfer, 0, 0, &[0; 100])),
    ] {
        for step in [usize::MAX, 10] {
            rig.step = step;
            let events = rig.events(connection, slice::from_ref(&pdu));
            assert_eq!(events, ["DataOutForUnknownTask"], "{pdu:?}");
            let answers = rig.output(connection);
            assert_eq!(answers[0].story(), "reject 04", "{pdu:?}");
            assert_eq!(answers[0].data, pdu.bhs);
        }
    }
    // The task has not suffered.
    let data = [data_out(1, transfer, 0, 0, &[6; 1000])];
    assert_eq!(rig.events(0, &data), [""; 0]);
    assert_eq!(rig.answers(0), ["r2t 1 1 1000+1000"]);
}

#[test]
fn bursts_are_filled_in_the_order_they_were_asked_for() {
    let mut config = config_of_bursts(512, 1000);
    config.parameters.max_outstanding_r2t = 2;
    let mut rig = Rig::new(config);
    let id = rig.start(0, write(1, 1, 2000));
    rig.session.request_data(id, 2000, &rig.pool);
    let r2ts = rig.output(0);
    let second = r2ts[1].view::<R2tBhs>().target_transfer_tag.get();
    let early = data_out(1, second, 0, 1000, &[0; 1000]);
    assert_eq!(rig.events(0, &[early]), ["DataOutForUnknownTask"]);
}
