//! Data from an initiator that keeps to what was negotiated: immediate, unsolicited, solicited.
//!
//! Spec: RFC 7143 sections 4.2.5.2, 11.7 and 11.8.

use super::*;
use crate::limits::{DATA_TIME_PER_BYTE, DATA_TIMEOUT};

const FIRST: u32 = 4096;
const MAX: u32 = 3000;

/// A legal initiator's side of one write.
struct Writer {
    data: Vec<u8>,
    tag: u32,
    segment_max: usize,
}

impl Writer {
    /// One sequence of Data-Out: `length` bytes from `start` on.
    fn sequence(&self, transfer: u32, start: usize, length: usize) -> Vec<Pdu> {
        let mut pdus = Vec::new();
        let pieces = self.data[start..start + length].chunks(self.segment_max);
        for (sn, piece) in (0..).zip(pieces) {
            let offset = start + sn as usize * self.segment_max;
            pdus.push(data_out(self.tag, transfer, sn, offset, piece).not_final());
        }
        pdus.last_mut().unwrap().bhs[1] |= flags::FINAL;
        pdus
    }

    /// Answers every R2T until the data is there.
    fn serve(&self, rig: &mut Rig) -> (Vec<String>, Vec<u8>) {
        let mut asked = Vec::new();
        loop {
            let r2ts = rig.output(0);
            assert!(!r2ts.is_empty(), "nothing is asked for any more");
            for pdu in r2ts {
                asked.push(pdu.story());
                let r2t: &R2tBhs = pdu.view();
                let start = r2t.buffer_offset.get() as usize;
                let length = r2t.desired_data_transfer_length.get() as usize;
                let pdus = self.sequence(r2t.target_transfer_tag.get(), start, length);
                let events = rig.send(0, &pdus);
                if let [Event::DataOut(_, payload)] = &events[..] {
                    assert!(!rig.session.has_output(0));
                    return (asked, payload.to_vec());
                }
                assert!(events.is_empty(), "{events:?}");
            }
        }
    }
}

/// InitialR2T, ImmediateData, immediate bytes, unsolicited bytes, what is asked for.
#[rustfmt::skip]
const TRANSFERS: &[(bool, bool, usize, usize, &[&str])] = &[
    (true, false, 0, 0, &["r2t 1 0 0+3000", "r2t 1 1 3000+3000", "r2t 1 2 6000+4000"]),
    (true, true, 0, 0, &["r2t 1 0 0+3000", "r2t 1 1 3000+3000", "r2t 1 2 6000+4000"]),
    (true, true, 1000, 0, &["r2t 1 0 1000+3000", "r2t 1 1 4000+3000", "r2t 1 2 7000+3000"]),
    (true, true, 4096, 0, &["r2t 1 0 4096+3000", "r2t 1 1 7096+2904"]),
    (false, false, 0, 4096, &["r2t 1 0 4096+3000", "r2t 1 1 7096+2904"]),
    (false, false, 0, 0, &["r2t 1 0 0+3000", "r2t 1 1 3000+3000", "r2t 1 2 6000+4000"]),
    (false, true, 1000, 3096, &["r2t 1 0 4096+3000", "r2t 1 1 7096+2904"]),
    (false, true, 1000, 500, &["r2t 1 0 1500+3000", "r2t 1 1 4500+3000", "r2t 1 2 7500+2500"]),
    (false, true, 4096, 0, &["r2t 1 0 4096+3000", "r2t 1 1 7096+2904"]),
];

#[test]
fn a_write_arrives_whole_with_every_kind_of_transfer() {
    for &(initial_r2t, immediate_data, immediate, unsolicited, r2ts) in TRANSFERS {
        for (step, digests) in [
            (usize::MAX, false),
            (usize::MAX, true),
            (1, true),
            (47, false),
            (600, true),
        ] {
            let case = (
                initial_r2t,
                immediate_data,
                immediate,
                unsolicited,
                step,
                digests,
            );
            let mut config = config_of_bursts(FIRST, MAX);
            config.parameters.initial_r2t = initial_r2t;
            config.parameters.immediate_data = immediate_data;
            let mut connection = connection(1);
            connection.parameters.header_digest = digests;
            connection.parameters.data_digest = digests;
            let mut rig = Rig::with_connections(config, &[connection]);
            rig.step = step;
            let length = if r2ts.last().unwrap().ends_with("4000") {
                9000
            } else {
                10_000
            };
            let writer = Writer {
                data: pattern(length),
                tag: 1,
                segment_max: 700,
            };

            let edtl = u32::try_from(length).unwrap();
            let mut pdu = write(1, 1, edtl).with_data(&writer.data[..immediate]);
            if unsolicited > 0 {
                pdu = pdu.not_final();
            }
            let id = rig.start(0, pdu);
            assert!(
                rig.session.request_data(id, edtl, &rig.pool).is_none(),
                "{case:?}"
            );
            if unsolicited > 0 {
                let pdus = writer.sequence(RESERVED_TAG, immediate, unsolicited);
                assert_eq!(rig.events(0, &pdus), [""; 0], "{case:?}");
            }
            let (asked, data) = writer.serve(&mut rig);
            let expected: Vec<_> = r2ts
                .iter()
                .map(|story| story.replace("6000+4000", "6000+3000"))
                .collect();
            assert_eq!(asked, expected, "{case:?}");
            assert!(data == writer.data, "{case:?}");
            rig.answer(id, Payload::Empty, length as u64);
            assert_eq!(rig.answers(0), ["response 1 00"]);
        }
    }
}

#[test]
fn data_that_comes_with_the_command_is_there_at_once() {
    for step in [usize::MAX, 1, 50] {
        let mut rig = Rig::new(config());
        rig.step = step;
        let id = rig.start(0, write(1, 1, 512).with_data(&pattern(512)));
        let data = rig.session.request_data(id, 512, &rig.pool).unwrap();
        assert_eq!(data.to_vec(), pattern(512));
        // What lies whole in what was received is not copied.
        assert_eq!(matches!(data, Payload::Received { .. }), step == usize::MAX);
        assert_eq!(rig.answers(0), [""; 0]);
    }
}

#[test]
fn a_command_that_takes_less_asks_for_no_more() {
    for (wanted, immediate, told) in [
        (0, 0, None),
        (0, 512, None),
        (300, 512, None),
        (700, 512, Some("r2t 1 0 512+188")),
    ] {
        let mut rig = Rig::new(config());
        let id = rig.start(0, write(1, 1, 2048).with_data(&pattern(immediate)));
        let data = rig.session.request_data(id, wanted, &rig.pool);
        let r2ts = rig.output(0);
        let stories: Vec<_> = r2ts.iter().map(Pdu::story).collect();
        assert_eq!(stories.first().map(String::as_str), told);
        match r2ts.first() {
            None => assert_eq!(data.unwrap().to_vec(), pattern(wanted as usize)),
            Some(pdu) => {
                let transfer = pdu.view::<R2tBhs>().target_transfer_tag.get();
                let data = data_out(1, transfer, 0, 512, &pattern(188));
                assert_eq!(rig.events(0, &[data]), ["data 1 700"]);
            }
        }
    }
}

#[test]
fn a_command_that_takes_more_than_will_come_gets_what_comes() {
    let mut rig = Rig::new(config());
    let id = rig.start(0, write(1, 1, 512).with_data(&pattern(512)));
    assert_eq!(
        rig.session.request_data(id, 4096, &rig.pool).unwrap().len(),
        512
    );
    let id = rig.start(0, command(2, 2));
    assert!(
        rig.session
            .request_data(id, 4096, &rig.pool)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn as_many_r2ts_are_open_as_was_negotiated() {
    for (outstanding, first) in [(1_u16, 1), (2, 2), (3, 3), (100, 4)] {
        let mut config = config_of_bursts(512, 1000);
        config.parameters.max_outstanding_r2t = outstanding;
        let mut rig = Rig::new(config);
        let id = rig.start(0, write(1, 1, 4000));
        assert!(rig.session.request_data(id, 4000, &rig.pool).is_none());
        let mut open = rig.output(0);
        assert_eq!(open.len(), first, "{outstanding}");
        let writer = Writer {
            data: pattern(4000),
            tag: 1,
            segment_max: 512,
        };
        let mut story = Vec::new();
        for burst in 0..4 {
            let pdu = open.remove(0);
            story.push(pdu.story());
            let transfer = pdu.view::<R2tBhs>().target_transfer_tag.get();
            let events = rig.events(0, &writer.sequence(transfer, burst * 1000, 1000));
            assert_eq!(
                events,
                if burst == 3 {
                    vec!["data 1 4000"]
                } else {
                    vec![]
                }
            );
            open.extend(rig.output(0));
        }
        let told = [
            "r2t 1 0 0+1000",
            "r2t 1 1 1000+1000",
            "r2t 1 2 2000+1000",
            "r2t 1 3 3000+1000",
        ];
        assert_eq!(story, told, "{outstanding}");
    }
}

#[test]
fn an_r2t_names_the_unit_and_a_transfer_of_its_own() {
    let mut config = config_of_bursts(512, 512);
    config.parameters.max_outstanding_r2t = 4;
    let mut rig = Rig::new(config);
    let mut pdu = write(1, 1, 2048);
    ScsiCommandBhs::view_mut(&mut pdu.bhs).lun = 0x0005_0000_0000_0000.into();
    let id = rig.start(0, pdu);
    rig.session.request_data(id, 2048, &rig.pool);
    let pdus = rig.output(0);
    let mut tags: Vec<_> = pdus
        .iter()
        .map(|pdu| pdu.view::<R2tBhs>().target_transfer_tag.get())
        .collect();
    assert!(
        pdus.iter()
            .all(|pdu| pdu.view::<R2tBhs>().lun.get() == 5 << 48)
    );
    tags.dedup();
    assert_eq!(tags.len(), 4);
    assert!(!tags.contains(&RESERVED_TAG));
}

#[test]
fn unsolicited_data_of_several_commands_may_be_mixed() {
    let mut config = config();
    config.parameters.initial_r2t = false;
    let mut rig = Rig::new(config);
    let one = rig.start(0, write(1, 1, 1000).not_final());
    let two = rig.start(0, write(2, 2, 1000).not_final());
    for id in [one, two] {
        assert!(rig.session.request_data(id, 1000, &rig.pool).is_none());
    }
    let pdus = [
        data_out(2, RESERVED_TAG, 0, 0, &[2; 600]).not_final(),
        data_out(1, RESERVED_TAG, 0, 0, &[1; 1000]),
        data_out(2, RESERVED_TAG, 1, 600, &[2; 400]),
    ];
    assert_eq!(rig.events(0, &pdus), ["data 1 1000", "data 2 1000"]);
    assert_eq!(rig.answers(0), [""; 0]);
}

#[test]
fn data_of_a_command_that_waits_for_its_turn_is_kept() {
    let mut config = config();
    config.parameters.initial_r2t = false;
    let mut rig = Rig::new(config);
    rig.step = 100;
    let pdus = [
        write(2, 2, 3000).with_data(&[7; 1000]).not_final(),
        data_out(2, RESERVED_TAG, 0, 1000, &[8; 2000]),
        write(3, 3, 512).with_data(&[9; 512]),
    ];
    assert_eq!(rig.events(0, &pdus), [""; 0]);
    let told = ["command 1", "command 2", "command 3"];
    assert_eq!(rig.events(0, &[command(1, 1)]), told);
    let mut ids = rig.session.tasks();
    ids.sort_by_key(|id| rig.session.tag_of(*id));
    let data = rig
        .session
        .request_data(ids[1], 3000, &rig.pool)
        .unwrap()
        .to_vec();
    assert_eq!(data, [vec![7; 1000], vec![8; 2000]].concat());
    assert_eq!(
        rig.session
            .request_data(ids[2], 512, &rig.pool)
            .unwrap()
            .to_vec(),
        [9; 512]
    );
}

#[test]
fn unsolicited_data_after_an_early_answer_is_taken_and_dropped() {
    let mut config = config();
    config.parameters.initial_r2t = false;
    for abandoned in [false, true] {
        let mut rig = Rig::new(config.clone());
        let id = rig.start(0, write(1, 1, 3000).with_data(&[1; 500]).not_final());
        if abandoned {
            rig.session.abandon(id);
        } else {
            rig.good(id);
            assert_eq!(rig.answers(0), ["response 1 00"]);
        }
        assert!(rig.session.is_idle());
        assert!(rig.session.tasks().is_empty());
        let first = data_out(1, RESERVED_TAG, 0, 500, &[2; 1000]).not_final();
        let last = data_out(1, RESERVED_TAG, 1, 1500, &[3; 1500]);
        assert_eq!(rig.events(0, &[first, last.clone()]), [""; 0]);
        assert_eq!(rig.answers(0), [""; 0]);
        // The sequence has ended: what comes now belongs to nothing.
        assert_eq!(rig.events(0, &[last]), ["DataOutForUnknownTask"]);
        assert_eq!(rig.answers(0), ["reject 04"]);
    }
}

#[test]
fn a_tag_may_be_used_again_while_its_data_is_still_owed() {
    let mut config = config();
    config.parameters.initial_r2t = false;
    let mut rig = Rig::new(config);
    let id = rig.start(0, write(1, 1, 3000).not_final());
    rig.good(id);
    let next = rig.start(0, write(1, 2, 512).not_final());
    assert!(rig.session.request_data(next, 512, &rig.pool).is_none());
    assert_eq!(
        rig.events(0, &[data_out(1, RESERVED_TAG, 0, 0, &[4; 512])]),
        ["data 1 512"]
    );
}

#[test]
fn late_data_for_an_aborted_task_is_dropped() {
    let mut rig = Rig::new(config());
    let id = rig.start(0, write(1, 1, 1000));
    rig.session.request_data(id, 1000, &rig.pool);
    let transfer = rig.output(0)[0].view::<R2tBhs>().target_transfer_tag.get();
    rig.session.abandon(id);
    for final_bit in [false, true] {
        let mut late = data_out(1, transfer, 0, 0, &[5; 500]);
        if !final_bit {
            late = late.not_final();
        }
        assert_eq!(rig.events(0, &[late]), [""; 0]);
        assert_eq!(rig.answers(0), [""; 0]);
    }
}

/// Asks for so much, and has the transfer tag of the first burst.
fn asked(rig: &mut Rig, length: u32) -> u32 {
    let id = rig.start(0, write(1, 1, length));
    assert!(rig.session.request_data(id, length, &rig.pool).is_none());
    rig.output(0)[0].view::<R2tBhs>().target_transfer_tag.get()
}

/// Whether the peer counts as silent a moment before and at this time.
fn is_silent(rig: &mut Rig, at: Duration) -> [bool; 2] {
    [at - Duration::from_nanos(1), at].map(|now| {
        rig.session.handle_timeout(now);
        matches!(
            rig.session.poll_event(),
            Some(Event::PeerSilent { connection: 0 })
        )
    })
}

#[test]
fn data_that_comes_in_drips_has_the_time_of_its_length_and_no_more() {
    let mut rig = Rig::new(config_of_bursts(65_536, 1 << 20));
    let transfer = asked(&mut rig, 1 << 20);
    // A byte every 15 s.
    for (sn, offset) in (0..4).zip(0..) {
        rig.now += Duration::from_secs(15);
        let drip = data_out(1, transfer, sn, offset, &[1]).not_final();
        assert_eq!(rig.events(0, &[drip]), [""; 0]);
    }
    let end = DATA_TIMEOUT + 4 * DATA_TIME_PER_BYTE;
    assert_eq!(rig.session.poll_timeout(), Some(end));
    assert_eq!(is_silent(&mut rig, end), [false, true]);
}

#[test]
fn data_that_comes_at_a_steady_pace_has_the_whole_time_again() {
    let mut rig = Rig::new(config_of_bursts(65_536, 1 << 20));
    let transfer = asked(&mut rig, 1 << 20);
    let mut piece = vec![1; 6_000];
    for (sn, offset) in (0..10).zip((0..).step_by(6_000)) {
        rig.now += Duration::from_secs(5);
        let data = data_out(1, transfer, sn, offset, &piece).not_final();
        assert_eq!(rig.events(0, &[data]), [""; 0]);
        assert_eq!(rig.session.poll_timeout(), Some(rig.now + DATA_TIMEOUT));
    }
    // More than enough is no credit.
    piece.truncate(1);
    let drip = data_out(1, transfer, 10, 60_000, &piece).not_final();
    assert_eq!(rig.events(0, &[drip]), [""; 0]);
    let end = rig.now + DATA_TIMEOUT;
    assert_eq!(is_silent(&mut rig, end), [false, true]);
}

#[test]
fn a_further_burst_is_no_further_time() {
    let mut rig = Rig::new(config_of_bursts(65_536, 512));
    let mut transfer = asked(&mut rig, 1 << 20);
    for burst in 0..3 {
        rig.now += Duration::from_secs(15);
        assert_eq!(
            rig.events(0, &[data_out(1, transfer, 0, burst * 512, &[1; 512])]),
            [""; 0]
        );
        transfer = rig.output(0)[0].view::<R2tBhs>().target_transfer_tag.get();
    }
    let end = DATA_TIMEOUT + 3 * 512 * DATA_TIME_PER_BYTE;
    assert_eq!(is_silent(&mut rig, end), [false, true]);
}
