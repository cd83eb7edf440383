//! NOP-Out and NOP-In, and peers that are silent.
//!
//! Spec: RFC 7143 sections 11.18 and 11.19.

use super::*;

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn pinging(connections: &[ConnectionConfig]) -> Rig {
    let nop_interval = Some(at(10));
    Rig::with_connections(
        SessionConfig {
            nop_interval,
            ..config()
        },
        connections,
    )
}

/// The answer to the target's ping.
fn pong(ping: &Pdu) -> Pdu {
    let mut pdu = nop(RESERVED_TAG, 1).immediate();
    NopOutBhs::view_mut(&mut pdu.bhs).target_transfer_tag =
        ping.view::<NopInBhs>().target_transfer_tag;
    pdu
}

#[test]
fn a_ping_comes_back_with_its_data_as_far_as_the_initiator_takes_it() {
    for (length, comes_back) in [(0, 0), (1, 1), (512, 512), (600, 512)] {
        for step in [usize::MAX, 1] {
            let mut connection = connection(1);
            connection
                .parameters
                .peer_max_recv_data_segment_length_bytes = 512;
            let mut rig = Rig::with_connections(config(), &[connection]);
            rig.step = step;
            assert_eq!(
                rig.events(0, &[nop(5, 1).with_data(&pattern(length))]),
                [""; 0]
            );
            let answer = &rig.output(0)[0];
            let bhs: &NopInBhs = answer.view();
            assert_eq!(
                (bhs.itt().0, bhs.target_transfer_tag.get()),
                (5, RESERVED_TAG)
            );
            assert_eq!((bhs.exp_cmd_sn().0, bhs.stat_sn().0), (2, 100));
            assert_eq!(answer.data, pattern(length)[..comes_back]);
        }
    }
}

#[test]
fn an_immediate_ping_takes_no_number_and_one_without_tag_gets_no_answer() {
    let mut rig = Rig::new(config());
    rig.send(
        0,
        &[nop(5, 1).immediate(), nop(RESERVED_TAG, 1).immediate()],
    );
    assert_eq!(rig.answers(0), ["nop 5"]);
    assert_eq!(rig.session.window().0, SerialNumber(1));
}

#[test]
fn a_silent_connection_is_pinged_and_an_answer_keeps_it() {
    let mut rig = pinging(&[connection(1)]);
    assert_eq!(rig.session.poll_timeout(), Some(at(10)));
    rig.session.handle_timeout(at(10) - Duration::from_nanos(1));
    assert!(!rig.session.has_output(0));
    rig.session.handle_timeout(at(10));
    let pdus = rig.output(0);
    assert_eq!(pdus.len(), 1);
    let bhs: &NopInBhs = pdus[0].view();
    assert_eq!(bhs.itt().0, RESERVED_TAG);
    assert_ne!(bhs.target_transfer_tag.get(), RESERVED_TAG);
    assert_eq!(rig.session.poll_timeout(), Some(at(15)));
    rig.now = at(12);
    assert_eq!(rig.events(0, &[pong(&pdus[0])]), [""; 0]);
    assert_eq!(rig.answers(0), [""; 0], "an answer is not answered");
    assert_eq!(rig.session.poll_timeout(), Some(at(22)));
    rig.session.handle_timeout(at(15));
    assert!(rig.session.poll_event().is_none());
}

#[test]
fn a_peer_that_does_not_answer_is_told_at_the_deadline_and_not_before() {
    let mut rig = pinging(&[connection(1), connection(2)]);
    rig.now = at(9);
    rig.send(1, &[nop(1, 1)]);
    rig.session.handle_timeout(at(10));
    rig.session.handle_timeout(at(15) - Duration::from_nanos(1));
    assert!(rig.session.poll_event().is_none());
    rig.session.handle_timeout(at(15));
    let events: Vec<_> = std::iter::from_fn(|| rig.session.poll_event()).collect();
    let told: Vec<_> = events.iter().map(|event| rig.story(event)).collect();
    assert_eq!(told, ["silent 0"]);
    rig.session.remove_connection(0);
    assert_eq!(
        rig.session.poll_timeout(),
        Some(at(19)),
        "that of the other"
    );
}

#[test]
fn any_sign_of_life_will_do() {
    let mut rig = pinging(&[connection(1)]);
    rig.session.handle_timeout(at(10));
    let ping = rig.output(0).remove(0);
    rig.now = at(14);
    rig.send(0, &[command(1, 1)]);
    rig.session.handle_timeout(at(15));
    assert!(rig.session.poll_event().is_none());
    // The answer comes late, and is no harm.
    assert_eq!(rig.events(0, &[pong(&ping)]), ["UnknownPing"]);
    assert_eq!(rig.answers(0), [""; 0]);
    assert_eq!(rig.session.poll_timeout(), Some(at(24)));
}

#[test]
fn an_answer_to_no_ping_is_ignored() {
    let mut rig = Rig::new(config());
    let mut pdu = nop(RESERVED_TAG, 1).immediate();
    NopOutBhs::view_mut(&mut pdu.bhs).target_transfer_tag = 0x4711.into();
    assert_eq!(rig.events(0, &[pdu]), ["UnknownPing"]);
    assert_eq!(rig.answers(0), [""; 0]);
    assert_eq!(rig.session.poll_timeout(), None, "never pinged");
}
