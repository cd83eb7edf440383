//! Text, logout, and what a target in this phase does not take.
//!
//! Spec: RFC 7143 sections 11.10, 11.14, 11.16 and 11.17.

use super::*;
use crate::pdu::LogoutResponseCode;

#[test]
fn text_is_answered_in_both_kinds_of_session() {
    let own = format!("TargetName={OWN_NAME}\0TargetAddress=192.0.2.1:3260,1\0");
    for (config, keys, answer) in [
        (config(), "SendTargets=\0", &own[..]),
        (config(), "SendTargets=All\0", &own),
        (config(), "SendTargets=iqn.2026-11.example.other:x\0", ""),
        (discovery(), "SendTargets=All\0", &own),
        (
            discovery(),
            "X-com.example=1\0",
            "X-com.example=NotUnderstood\0",
        ),
    ] {
        for (step, immediate) in [(usize::MAX, true), (1, false)] {
            let mut rig = Rig::new(config.clone());
            rig.step = step;
            let pdu = text(3, 1, keys);
            let pdu = if immediate { pdu.immediate() } else { pdu };
            assert_eq!(rig.events(0, &[pdu]), [""; 0], "{keys}");
            let pdus = rig.output(0);
            assert_eq!(pdus[0].story(), "text 3 F", "{keys}");
            assert_eq!(String::from_utf8_lossy(&pdus[0].data), answer, "{keys}");
            assert_eq!(rig.session.window().0.0, if immediate { 1 } else { 2 });
        }
    }
}

#[test]
fn a_segment_length_declared_anew_holds_from_the_next_answer_on() {
    let mut rig = Rig::new(config());
    rig.send(
        0,
        &[text(3, 1, "MaxRecvDataSegmentLength=512\0").immediate()],
    );
    rig.answers(0);
    let id = rig.start(0, read(1, 1, 1024));
    rig.answer(id, pattern(1024).into(), 1024);
    assert_eq!(rig.answers(0), ["in 0 0+512", "in 1 512+512 FS"]);
}

#[test]
fn a_long_answer_is_given_in_pieces() {
    let mut connection = connection(1);
    connection
        .parameters
        .peer_max_recv_data_segment_length_bytes = 512;
    let mut config = discovery();
    let names = (0..20).map(|n| TargetRecord {
        name: format!("{OWN_NAME}-{n}"),
        addresses: vec!["192.0.2.1:3260,1".to_owned()],
    });
    config.text = TextRecords::for_discovery(names.collect());
    let mut rig = Rig::with_connections(config, &[connection]);
    let mut request = text(3, 1, "SendTargets=All\0").immediate();
    let mut whole = Vec::new();
    for turn in 0.. {
        assert!(turn < 10, "never ends");
        assert_eq!(rig.events(0, &[request]), [""; 0]);
        let answer = rig.output(0).remove(0);
        assert!(answer.data.len() <= 512);
        whole.extend_from_slice(&answer.data);
        let bhs: &TextResponseBhs = answer.view();
        if bhs.is_final() {
            break;
        }
        request = text(3, 1, "").immediate();
        TextRequestBhs::view_mut(&mut request.bhs).target_transfer_tag = bhs.target_transfer_tag;
    }
    assert_eq!(crate::discovery::parse_targets(&whole).unwrap().len(), 20);
}

#[test]
fn a_refused_text_request_is_rejected_and_its_number_stays_due() {
    let mut rig = Rig::new(config());
    let mut stray = text(3, 1, "SendTargets=\0");
    TextRequestBhs::view_mut(&mut stray.bhs).target_transfer_tag = 0x99.into();
    for pdu in [text(3, 1, "no equals sign\0"), stray] {
        assert_eq!(rig.events(0, slice::from_ref(&pdu)), ["Text"]);
        assert_eq!(rig.answers(0), ["reject 04"]);
        // Spec: RFC 7143 section 11.17; a rejected request leaves a gap.
        assert_eq!(rig.session.window(), (SerialNumber(1), SerialNumber(8)));
        assert_eq!(rig.events(0, &[command(2, 2)]), [""; 0]);
        assert_eq!(rig.events(0, &[command(1, 1)]), ["command 1", "command 2"]);
        rig = Rig::new(config());
    }
}

#[test]
fn a_request_that_is_refused_in_its_turn_leaves_a_gap_too() {
    let mut rig = Rig::new(config());
    assert_eq!(
        rig.events(0, &[text(3, 2, "no equals sign\0"), command(4, 3)]),
        [""; 0]
    );
    assert_eq!(rig.events(0, &[command(1, 1)]), ["command 1", "Text"]);
    assert_eq!(rig.answers(0), ["reject 04"]);
    assert_eq!(rig.session.window().0, SerialNumber(2));
    assert_eq!(rig.events(0, &[nop(5, 2)]), ["command 4"]);
}

#[test]
fn logout_names_what_is_to_be_closed() {
    for (reason, cid, told, answer) in [
        (0, 77, Some("logout None"), None),
        (1, 1, Some("logout Some(0)"), None),
        (1, 2, Some("logout Some(1)"), None),
        (1, 3, None, Some("logout 5 1")),
        (2, 1, None, Some("logout 5 2")),
        (2, 3, None, Some("logout 5 1")),
        (3, 1, Some("InvalidField"), Some("reject 09")),
        (0x7f, 1, Some("InvalidField"), Some("reject 09")),
    ] {
        let mut rig = Rig::with_connections(config(), &[connection(1), connection(2)]);
        let events = rig.events(0, &[logout(5, 1, reason, cid)]);
        assert_eq!(events.first().map(String::as_str), told, "{reason} {cid}");
        assert_eq!(
            rig.answers(0).first().map(String::as_str),
            answer,
            "{reason} {cid}"
        );
    }
}

#[test]
fn the_answer_to_logout_tells_how_long_the_session_is_kept() {
    let mut config = config();
    config.parameters.default_time2wait_s = 3;
    config.parameters.default_time2retain_s = 20;
    let mut rig = Rig::new(config);
    let id = rig.start(0, command(1, 1));
    let events = rig.send(0, &[logout(5, 2, 1, 1)]);
    let [Event::Logout(event)] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(rig.answers(0), [""; 0], "not before its tasks have ended");
    assert_eq!(rig.session.tasks_of_connection(0), [id]);
    rig.session.abandon(id);
    rig.session
        .respond_logout(event.id, LogoutResponseCode::Success);
    let pdus = rig.output(0);
    let bhs: &LogoutResponseBhs = pdus[0].view();
    assert_eq!((bhs.response, bhs.itt().0), (0, 5));
    assert_eq!((bhs.time2wait_s.get(), bhs.time2retain_s.get()), (3, 20));
    rig.session.remove_connection(0);
    assert_eq!(rig.session.connection_count(), 0);
    assert!(rig.session.is_idle());
}

#[test]
fn a_discovery_session_takes_text_pings_and_the_end_and_nothing_else() {
    #[rustfmt::skip]
    let cases = [
        (command(1, 1), "NotInDiscovery", "reject 04"),
        (write(1, 1, 512).with_data(&[0; 512]), "NotInDiscovery", "reject 04"),
        (management(1, 1, 1, 5, 1), "NotInDiscovery", "reject 04"),
        (logout(1, 1, 1, 1), "NotInDiscovery", "reject 04"),
        (logout(1, 1, 2, 1), "NotInDiscovery", "reject 04"),
        (data_out(1, RESERVED_TAG, 0, 0, &[0; 9]), "DataOutForUnknownTask", "reject 04"),
    ];
    for (pdu, told, answer) in cases {
        let mut rig = Rig::new(discovery());
        assert_eq!(rig.events(0, slice::from_ref(&pdu)), [told], "{pdu:?}");
        assert_eq!(rig.answers(0), [answer], "{pdu:?}");
        assert_eq!(rig.session.window().0, SerialNumber(1));
        rig.assert_alive(0);
        assert_eq!(rig.events(0, &[logout(2, 1, 0, 0)]), ["logout None"]);
    }
}

#[test]
fn what_a_target_does_not_take_is_rejected_with_its_header() {
    let takes = [0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x10];
    for code in (0..0x40).filter(|code| !takes.contains(code)) {
        for step in [usize::MAX, 1] {
            let mut rig = Rig::new(config());
            rig.step = step;
            let mut pdu = nop(1, 1).with_ahs(&[1; 8]).with_data(&[2; 30]);
            pdu.bhs[0] = code;
            assert_eq!(
                rig.events(0, slice::from_ref(&pdu)),
                ["OpcodeNotSupported"],
                "{code:#x}"
            );
            let answer = &rig.output(0)[0];
            assert_eq!(answer.story(), "reject 05", "{code:#x}");
            assert_eq!(answer.data, [&pdu.bhs[..], &pdu.ahs].concat(), "{code:#x}");
            rig.assert_alive(0);
        }
    }
}

#[test]
fn a_snack_has_no_place_at_this_level_of_recovery() {
    let mut rig = Rig::new(config());
    for kind in 0..4 {
        let mut pdu = Pdu::new(&crate::pdu::SnackBhs::new());
        pdu.bhs[1] |= kind;
        assert_eq!(rig.events(0, &[pdu]), ["Snack"]);
        assert_eq!(rig.answers(0), ["reject 03"]);
    }
}

#[test]
fn every_connection_is_asked_to_log_out() {
    let mut rig = Rig::with_connections(config(), &[connection(1), connection(2)]);
    rig.session.request_logout(30);
    for connection in 0..2 {
        let pdus = rig.output(connection);
        assert_eq!(pdus[0].story(), "async 1 30");
        assert_eq!(pdus[0].view::<AsyncMessageBhs>().itt().0, RESERVED_TAG);
    }
}

#[test]
fn the_last_answer_of_the_login_goes_out_as_it_is() {
    let mut digested = connection(1);
    digested.parameters.header_digest = true;
    let mut rig = Rig::with_connections(config(), &[digested]);
    rig.session.push_login_answer(0, &[0x23; 48]);
    assert_eq!(rig.session.output_bytes(0), 48);
    assert_eq!(
        rig.session.take_message(0, Message::default()).to_vec(),
        [0x23; 48]
    );
    assert!(!rig.session.has_output(0));
}
