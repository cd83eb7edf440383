//! Handshakes: what is offered, who gets it, and how they end.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::SystemTime;

use engine::deadlines::Moment;
use engine::testing::disk::SIZE;
use engine::testing::outside::Receipt;
use engine::{UnitIndex, VisibleLun};

use super::super::{FrontSettings, LineKey, SessionSettings, transport_id};
use super::*;
use crate::iscsi::Holding;
use crate::testing::LineKey as AnyKey;
use crate::{SessionReport, Station, TransportDetails};

const MOMENT: Duration = Duration::from_nanos(1);
/// What is left of a front that knows a session.
const HELD: &str = "a front that is not idle";

/// What GO is answered: the export, its block sizes, and that this is all.
fn offer(size_bytes: u64, flags: u16, blocks: [u32; 2]) -> Vec<u8> {
    let reply = |kind: u32, data: &[u8]| {
        let length = u32::try_from(data.len()).unwrap();
        let head = [
            0x0003_e889_0455_65a9_u64.to_be_bytes(),
            [0, 0, 0, 7, 0, 0, 0, 0],
        ]
        .concat();
        [
            &head[..12],
            &kind.to_be_bytes(),
            &length.to_be_bytes(),
            data,
        ]
        .concat()
    };
    let export = [&[0, 0], &size_bytes.to_be_bytes()[..], &flags.to_be_bytes()].concat();
    let [min, preferred] = blocks.map(u32::to_be_bytes);
    let sizes = [&[0, 3], &min[..], &preferred, &(32_u32 << 20).to_be_bytes()].concat();
    [reply(3, &export), reply(3, &sizes), reply(1, b"")].concat()
}

/// A connection asks for an export and its block sizes. Gives what it is answered.
fn go(bench: &mut Bench, name: &str) -> (usize, Vec<u8>) {
    let line = bench.connect();
    bench.heard(line);
    let length = u8::try_from(name.len()).unwrap();
    let data = [&[0, 0, 0, length], name.as_bytes(), &[0, 1, 0, 3]].concat();
    bench.send(line, &[&[0, 0, 0, 3], &option(7, &data)[..]].concat());
    (line, bench.heard(line))
}

fn failed(bench: &mut Bench) -> Vec<String> {
    std::mem::take(&mut bench.engine.carrier.lines.failed)
}

/// Spec: NBD protocol, transmission flags.
#[test]
fn each_export_is_offered_as_it_is() {
    const PLAIN: u16 = 0b1_0100_1101;
    const THIN: u16 = PLAIN | 1 << 5 | 1 << 11;
    const READ_ONLY: u16 = 1 << 1;
    let mut bench = Bench::new();
    let of = |thin, read_only, block_bytes| Capabilities {
        thin,
        read_only,
        block_bytes,
        size_bytes: 1 << 20,
        ..capabilities()
    };
    let units = [
        of(false, false, 512),
        of(false, true, 4096),
        of(true, false, 512),
        of(true, true, 4096),
    ]
    .map(|one| bench.add_unit(&one));
    #[rustfmt::skip]
    let exports = [
        ("disk", UNIT, false, SIZE, THIN, [512, 4096]),
        ("plain", units[0], false, 1 << 20, PLAIN, [512, 4096]),
        ("fixed", units[1], false, 1 << 20, PLAIN | READ_ONLY, [4096, 4096]),
        ("seen", units[2], true, 1 << 20, THIN | READ_ONLY, [512, 4096]),
        ("both", units[3], true, 1 << 20, THIN | READ_ONLY, [4096, 4096]),
    ];
    bench.set_exports(
        exports
            .iter()
            .map(|one| export(one.0, one.1, one.2))
            .collect(),
    );
    for (name, unit, read_only, size_bytes, flags, blocks) in exports {
        let (_, heard) = go(&mut bench, name);
        assert_eq!(heard, offer(size_bytes, flags, blocks), "{name}");
        let mut report = bench.nbd.report(&bench.engine);
        report.sort_by_key(|session| session.id);
        let lun = VisibleLun {
            lun: 0,
            unit,
            read_only,
        };
        assert_eq!(report.last().unwrap().luns, [lun], "{name}");
    }
    // The empty name is that of the only one.
    let sessions = bench.engine.sessions().count();
    for (exports, is_there) in [(2, false), (1, true), (0, false)] {
        let some = ["disk", "other"][..exports].iter();
        bench.set_exports(some.map(|name| export(name, UNIT, false)).collect());
        let (line, heard) = go(&mut bench, "");
        assert_eq!(
            heard == offer(SIZE, THIN, [512, 4096]),
            is_there,
            "{exports} exports"
        );
        assert!(!bench.is_shut(line));
    }
    assert_eq!(bench.engine.sessions().count(), sessions + 1);
    // A name of another one, and a unit that is not there.
    for (name, unit) in [("diskette", UNIT), ("disk", UnitIndex(77))] {
        bench.set_exports(vec![export(name, unit, false)]);
        let (_, heard) = go(&mut bench, "disk");
        assert_eq!(heard[12..16], [0x80, 0, 0, 6], "{name}: unknown");
    }
    assert_eq!(failed(&mut bench), [""; 0]);
    bench.end_all();
}

/// The rules change while the answer is on its way.
#[test]
fn what_was_offered_is_there_at_the_end_or_the_handshake_fails() {
    const NONE: &str = "there is no such export, or not without TLS or block sizes";
    let thick = Capabilities {
        thin: false,
        ..capabilities()
    };
    let sized = |size_bytes| Capabilities {
        size_bytes,
        ..capabilities()
    };
    let blocks = Capabilities {
        block_bytes: 4096,
        ..capabilities()
    };
    let cases = [
        (capabilities(), capabilities(), true),
        (capabilities(), sized(SIZE + 512), true),
        (capabilities(), sized(SIZE - 512), false),
        (capabilities(), blocks, false),
        (capabilities(), thick.clone(), false),
        (thick.clone(), capabilities(), true),
        (thick.clone(), thick, true),
    ];
    for (number, (before, after, is_in)) in cases.into_iter().enumerate() {
        let mut bench = Bench::new();
        bench.replace_unit(&before);
        let line = bench.connect();
        bench.end(line).is_silent = true;
        let go = option(7, b"\0\0\0\x04disk\0\0");
        bench.send(line, &[&[0, 0, 0, 3], &go[..]].concat());
        bench.replace_unit(&after);
        bench.end(line).is_silent = false;
        bench.settle();
        assert_eq!(
            bench.engine.sessions().count(),
            usize::from(is_in),
            "{number}"
        );
        assert_eq!(bench.is_shut(line), !is_in, "{number}");
        let why: &[&str] = if is_in { &[] } else { &[NONE] };
        assert_eq!(failed(&mut bench), why, "{number}");
        bench.end_all();
    }
    let mut bench = Bench::new();
    let line = bench.connect();
    bench.end(line).is_silent = true;
    bench.send(
        line,
        &[&[0, 0, 0, 3], &option(7, b"\0\0\0\x04disk\0\0")[..]].concat(),
    );
    bench.set_exports(Vec::new());
    bench.end(line).is_silent = false;
    bench.settle();
    assert_eq!(failed(&mut bench), [NONE]);
    bench.end_all();
}

#[test]
fn a_handshake_that_breaks_the_protocol_fails_once_and_says_why() {
    let flags = [0, 0, 0, 3];
    let with = |behind: &[u8]| [&flags, behind].concat();
    let cases = [
        (
            with(b"GET / HTTP/1.1\r\n"),
            "the client does not speak NBD of the new style",
        ),
        (vec![0, 0, 0, 7], "unknown flags 0x7 of the client"),
        (with(&option(3, b"").repeat(65)), "more than 64 options"),
        (
            with(&option(1, b"none")),
            "there is no such export, or not without TLS or block sizes",
        ),
    ];
    for (bytes, why) in cases {
        let mut bench = Bench::new();
        let line = bench.connect();
        bench.send(line, &bytes);
        assert_eq!(failed(&mut bench), [why]);
        assert!(bench.is_shut(line));
        bench.pass_to(BEGIN + TIMEOUT);
        assert_eq!(failed(&mut bench), [""; 0]);
        assert_eq!(bench.nbd.handshakes(), 0);
        bench.end_all();
    }
}

#[test]
fn each_handshake_has_the_time_that_there_was_when_it_began() {
    let mut bench = Bench::new();
    let old = bench.connect();
    let settings = FrontSettings {
        handshakes_max: 8,
        per_address_max: 2,
        timeout: Duration::from_secs(2),
        memory: Holding::new(usize::MAX).logins,
    };
    bench
        .nbd
        .set_limits(SessionSettings { queue_depth: 2 }, &settings);
    bench.pass_to(BEGIN + Duration::from_secs(1));
    let new = bench.connect();
    let [soon, late] = [BEGIN + Duration::from_secs(3), BEGIN + TIMEOUT];
    assert_eq!(bench.nbd.poll_timeout(), Some(soon));
    assert!(bench.nbd.soonest() <= Moment::of(Some(soon)));
    bench.pass_to(soon - MOMENT);
    assert_eq!([old, new].map(|line| bench.is_shut(line)), [false, false]);
    bench.pass_to(soon);
    assert_eq!([old, new].map(|line| bench.is_shut(line)), [false, true]);
    assert_eq!(bench.nbd.poll_timeout(), Some(late));
    let third = bench.connect();
    bench.connect();
    assert_eq!([old, third].map(|line| bench.is_shut(line)), [true, false]);
    let crowded = "more than 2 unfinished logins and discovery sessions from this address";
    assert_eq!(
        failed(&mut bench),
        ["the handshake takes too long", crowded]
    );
    // A session that begins now has the other depth.
    let line = bench.raw(false, b"");
    bench.disk.take(Take::Pending);
    let reads: Vec<u8> = (1..4)
        .flat_map(|cookie| header(0, 0, cookie, (0, 512)))
        .collect();
    bench.send(line, &reads);
    assert_eq!((bench.port().limit(), under_way(&mut bench)), (2, 2));
    bench.finish_pending();
    bench.finish_pending();
    bench.finish_pending();
    bench.end_all();
    let mut bench = Bench::new();
    assert_eq!(bench.nbd.poll_timeout(), None);
    let line = bench.raw(false, b"");
    assert_eq!(bench.nbd.poll_timeout(), None);
    bench.end(line).is_gone = true;
    bench.settle();
    bench.end_all();
}

/// What is under way on a line that is shut ends once more.
#[test]
fn nothing_comes_of_what_ends_on_a_line_that_is_shut() {
    let mut bench = Bench::new();
    let line = bench.connect();
    assert_eq!(bench.last_end(line), Some(SendEnd::Wakes));
    let front = bench.nbd.front.as_mut().unwrap();
    front.close_all(&mut bench.engine);
    assert!(bench.is_shut(line));
    assert_eq!(bench.nbd.handshakes(), 1, "it is received from");
    assert_eq!(bench.nbd.poll_timeout(), None);
    let receiving = bench.under_way(line).receiving.take();
    let Some((AnyKey::Nbd(LineKey::Handshake(key)), _)) = receiving else {
        panic!("{receiving:?}");
    };
    let bytes = [&[0, 0, 0, 3], &option(3, b"")[..]].concat();
    bench
        .nbd
        .handle_handshake_received(&mut bench.engine, key, Some(&bytes));
    assert_eq!(bench.nbd.handshakes(), 0);
    assert!(bench.under_way(line).sending.is_none());
    bench
        .nbd
        .handle_handshake_received(&mut bench.engine, key, None);
    let means = (Some(&mut bench.logins), SystemTime::UNIX_EPOCH);
    bench
        .nbd
        .handle_handshake_sent(&mut bench.engine, key, true, means);
    assert_eq!(failed(&mut bench), [""; 0]);
    assert_eq!(bench.engine.carrier.lines.shut, [line]);
    bench.end_all();
}

#[test]
fn an_answer_that_is_sent_on_a_line_that_is_shut_is_the_last() {
    let mut bench = Bench::new();
    let line = bench.connect();
    bench.end(line).is_silent = true;
    let list = [&[0, 0, 0, 3], &option(3, b"")[..]].concat();
    bench.send(line, &list);
    let front = bench.nbd.front.as_mut().unwrap();
    front.close_all(&mut bench.engine);
    assert_eq!(bench.nbd.handshakes(), 1, "it is sent to");
    let sending = bench.under_way(line).sending.take().unwrap();
    let AnyKey::Nbd(LineKey::Handshake(key)) = sending.key else {
        panic!("{sending:?}");
    };
    let means = (Some(&mut bench.logins), SystemTime::UNIX_EPOCH);
    bench
        .nbd
        .handle_handshake_sent(&mut bench.engine, key, true, means);
    assert_eq!(bench.nbd.handshakes(), 0);
    assert_eq!(bench.wants(line), Wants::Nothing);
    bench.end_all();
}

/// It is there until what is under way on its line has ended.
#[test]
fn a_connection_goes_when_nothing_is_under_way_on_its_line() {
    for receives_last in [false, true] {
        let mut bench = Bench::new();
        let line = bench.raw(false, b"");
        bench.end(line).is_silent = true;
        bench.send(line, &header(0, 0, 1, (0, 512)));
        bench.nbd.end_all(&mut bench.engine, "the end");
        for is_receive in [!receives_last, receives_last] {
            assert!(!bench.nbd.is_quiet());
            if is_receive {
                let receiving = bench.under_way(line).receiving.take();
                let Some((AnyKey::Nbd(LineKey::Connection(key)), _)) = receiving else {
                    panic!("{receiving:?}");
                };
                let chunk = Rc::new(bench.chunks.allocate(512).unwrap());
                bench.nbd.handle_received(&mut bench.engine, key, &chunk);
            } else {
                let sending = bench.under_way(line).sending.take().unwrap();
                let AnyKey::Nbd(LineKey::Connection(key)) = sending.key else {
                    panic!("{sending:?}");
                };
                let message = sending.message;
                bench.nbd.handle_sent(&mut bench.engine, key, message, true);
            }
        }
        assert!(bench.nbd.is_quiet());
        assert_eq!(bench.ended(), ["the end"]);
        bench.end_all();
    }
}

fn report(bench: &Bench) -> SessionReport {
    let mut report = bench.nbd.report(&bench.engine);
    assert_eq!(report.len(), 1);
    report.remove(0)
}

#[test]
fn a_session_is_reported_from_its_beginning_to_its_end() {
    let mut bench = Bench::new();
    bench.address = "::ffff:192.0.2.7".parse().unwrap();
    let line = bench.raw(false, b"");
    bench.disk.take(Take::Pending);
    bench.send(line, &header(0, 0, 1, (0, 512)));
    let one = report(&bench);
    let details = TransportDetails::Nbd {
        export: "disk".to_owned(),
        service: "service".into(),
        names: Vec::new().into(),
    };
    assert_eq!(one.transport, details);
    assert_eq!(one.initiator_name, "nbd:192.0.2.7");
    let peer = SocketAddr::new(bench.address, 0);
    assert_eq!((one.core, one.peer), (0, Station::from(peer)));
    assert_eq!(one.portal, "10.0.0.2:10809".parse().unwrap());
    assert_eq!(
        (one.user, one.target, one.since),
        (None, None, SystemTime::UNIX_EPOCH)
    );
    assert_eq!(
        (one.commands, one.window, one.is_ending),
        (1, DEPTH - 1, false)
    );
    let who = bench.port().detail.who();
    assert_eq!((who.session, who.initiator), (one.id, "nbd:192.0.2.7"));
    assert_eq!(
        (who.peer, who.target, who.user),
        (peer.into(), Some("disk"), None)
    );
    let held = ["1 sessions by name", "1 connections", "1 addresses", HELD];
    assert_eq!(bench.nbd.leftovers(), held);
    assert!(bench.nbd.session(one.id).is_some() && !bench.nbd.is_quiet());
    bench.finish_pending();
    bench.end_all();
}

#[test]
fn an_administrator_ends_a_session_and_learns_when_it_is_gone() {
    let mut bench = Bench::new();
    let line = bench.raw(false, b"");
    bench.disk.take(Take::Pending);
    bench.send(line, &header(0, 0, 1, (0, 512)));
    let id = report(&bench).id;
    let receipts: [Receipt; 3] = Default::default();
    let dismiss = |bench: &mut Bench, receipt: usize| {
        let receipt = Rc::clone(&receipts[receipt]);
        bench
            .nbd
            .dismiss(&mut bench.engine, id, "dismissed", receipt);
        bench.settle();
    };
    let held = || receipts.each_ref().map(|one| Rc::strong_count(one) > 1);
    dismiss(&mut bench, 0);
    dismiss(&mut bench, 1);
    assert_eq!(held(), [true, true, false], "its store has a command");
    assert_eq!(bench.ended(), ["dismissed"]);
    assert_eq!(bench.engine.carrier.lines.left, (1, 0));
    assert!(bench.is_shut(line) && report(&bench).is_ending);
    let left = ["1 sessions by name", "1 receipts", "1 addresses", HELD];
    assert_eq!(bench.nbd.leftovers(), left);
    bench.finish_pending();
    assert_eq!(held(), [false; 3]);
    assert_eq!(bench.nbd.leftovers(), [""; 0]);
    assert_eq!(bench.nbd.session(id), None);
    // There is none of that name.
    dismiss(&mut bench, 2);
    assert_eq!(held(), [false; 3]);
    bench.end_all();
}

/// They share memory by their addresses.
#[test]
fn an_address_is_known_as_long_as_it_has_a_session() {
    let mut bench = Bench::new();
    let [first, second] = [(); 2].map(|()| bench.raw(false, b""));
    bench.address = [10, 0, 1, 2].into();
    bench.raw(false, b"");
    assert_eq!(bench.nbd.leftovers()[2], "2 addresses");
    bench.end(first).is_gone = true;
    bench.settle();
    assert_eq!(bench.nbd.leftovers()[2], "2 addresses");
    bench.address = [10, 0, 1, 1].into();
    bench.raw(false, b"");
    assert_eq!(
        bench.nbd.leftovers()[..3],
        ["3 sessions by name", "3 connections", "2 addresses"]
    );
    for (line, left) in [(second, "2 addresses"), (2, "1 addresses")] {
        bench.end(line).is_gone = true;
        bench.settle();
        assert_eq!(bench.nbd.leftovers()[2], left);
    }
    bench.end_all();
}

/// Spec: SPC-5, TransportID identifiers.
#[test]
fn a_client_is_known_to_others_by_its_address() {
    let [v4, v6] = ["192.0.2.7", "2001:db8::7"].map(|one| one.parse().unwrap());
    let mut expected = [0; 24];
    expected[0] = 0x0f;
    (expected[18], expected[19]) = (0xff, 0xff);
    expected[20..].copy_from_slice(&[192, 0, 2, 7]);
    assert_eq!(transport_id(v4)[..], expected);
    expected[8..].fill(0);
    expected[8..12].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    expected[23] = 7;
    assert_eq!(transport_id(v6)[..], expected);
}
