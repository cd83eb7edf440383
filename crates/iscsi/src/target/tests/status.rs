//! StatSN: which PDUs use a number, and which only show the next one.
//!
//! Spec: RFC 7143 section 4.2.2.2.

use super::*;

/// StatSN of each PDU.
fn numbers(pdus: &[Pdu]) -> Vec<u32> {
    pdus.iter()
        .map(|pdu| pdu.view::<ResponseBhs>().stat_sn.get())
        .collect()
}

#[test]
fn every_answer_uses_a_number() {
    let mut rig = Rig::new(config());
    let id = rig.start(0, command(1, 1));
    rig.good(id);
    rig.send(
        0,
        &[
            nop(2, 2),
            text(3, 3, ""),
            management(3, 4, 4, RESERVED_TAG, 0),
        ],
    );
    rig.send(0, &[Pdu::new(&NopInBhs::new())]);
    rig.session.request_logout(10);
    let Event::Logout(event) = rig.send(0, &[logout(5, 4, 0, 0)]).remove(0) else {
        panic!()
    };
    rig.session
        .respond_logout(event.id, crate::pdu::LogoutResponseCode::Success);
    let pdus = rig.output(0);
    let stories: Vec<_> = pdus.iter().map(Pdu::story).collect();
    assert_eq!(
        stories,
        [
            "response 1 00",
            "nop 2",
            "text 3 F",
            "management 4 5",
            "reject 05",
            "async 1 10",
            "logout 5 0"
        ]
    );
    assert_eq!(numbers(&pdus), [100, 101, 102, 103, 104, 105, 106]);
}

#[test]
fn an_r2t_and_a_ping_show_the_next_number_and_do_not_use_it() {
    let mut config = config_of_bursts(512, 512);
    config.nop_interval = Some(Duration::from_secs(1));
    let mut rig = Rig::new(config);
    let id = rig.start(0, write(1, 1, 512));
    assert!(rig.session.request_data(id, 512, &rig.pool).is_none());
    rig.session.handle_timeout(Duration::from_secs(1));
    let id = rig.start(0, command(2, 2));
    rig.good(id);
    let pdus = rig.output(0);
    let stories: Vec<_> = pdus.iter().map(Pdu::story).collect();
    assert_eq!(stories, ["r2t 1 0 0+512", "nop ffffffff", "response 2 00"]);
    assert_eq!(numbers(&pdus), [100, 100, 100]);
}

#[test]
fn data_uses_a_number_only_where_it_carries_the_status() {
    let mut rig = Rig::new(config());
    let id = rig.start(0, read(1, 1, 20_000));
    rig.answer(id, pattern(20_000).into(), 20_000);
    let id = rig.start(0, read(2, 2, 512));
    rig.answer(id, pattern(512).into(), 512);
    let pdus = rig.output(0);
    // Reserved without status.
    assert_eq!(numbers(&pdus), [0, 0, 100, 101]);
}

#[test]
fn numbers_wrap_and_each_connection_has_its_own() {
    let mut second = connection(2);
    second.stat_sn = SerialNumber(0xffff_ffff);
    let mut rig = Rig::with_connections(config(), &[connection(1), second]);
    rig.send(0, &[nop(1, 1)]);
    rig.send(1, &[nop(2, 2), nop(3, 3), nop(4, 4)]);
    assert_eq!(numbers(&rig.output(0)), [100]);
    assert_eq!(numbers(&rig.output(1)), [0xffff_ffff, 0, 1]);
}
