//! Both parts of a login, and what lies between them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::client::{ClientEvent, ClientSession};
use crate::device::{Device, Opening};
use crate::discovery::Cookies;
use crate::exchange::{ClientExchange, OpaqueClient, OpaqueTarget, Secret, TargetExchange};
use crate::keys::Entropy;
use crate::link::Settings;
use crate::pdu::Level;
use crate::target::{TargetEvent, TargetSession};

/// An exchange that costs nothing, and is worth nothing.
#[derive(Debug)]
struct Cheap(Vec<u8>);

fn mix(parts: &[&[u8]]) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().as_bytes().to_vec()
}

impl ClientExchange for Cheap {
    fn first(&self) -> &[u8] {
        b"first"
    }

    fn finish(
        &mut self,
        answer: &[u8],
        context: &[u8],
        _: &mut Entropy,
    ) -> Option<(Vec<u8>, Secret)> {
        let expected = mix(&[&self.0, context, b"answer"]);
        (answer == expected).then(|| {
            (
                mix(&[&self.0, context, b"last"]),
                mix(&[&self.0, context]).into(),
            )
        })
    }
}

impl TargetExchange for Cheap {
    type Pending = Vec<u8>;

    fn answer(
        &self,
        _: &[u8],
        record: Option<&[u8]>,
        _: &[u8],
        context: &[u8],
        _: &mut Entropy,
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        let password = record.unwrap_or(b"nobody's").to_vec();
        let answer = mix(&[&password, context, b"answer"]);
        Some((password, answer))
    }

    fn finish(&self, pending: Vec<u8>, last: &[u8], context: &[u8]) -> Option<Secret> {
        (last == mix(&[&pending, context, b"last"])).then(|| mix(&[&pending, context]).into())
    }
}

const ZERO: Duration = Duration::ZERO;
const HOUR: Duration = Duration::from_secs(3600);

fn wish() -> Wish {
    Wish {
        client: [5; 16],
        group: "ABC".to_owned(),
        user: None,
        slots: 32,
        window: 100,
        begun_bytes: 4 << 20,
        frame_bytes_max: 9000,
        bundles: true,
    }
}

fn entropy(seed: u8) -> Entropy {
    Entropy::new(&[seed; 32])
}

fn login<X: ClientExchange>(exchange: X, seed: u8) -> Login<X> {
    Login::new(
        ZERO,
        HOUR,
        wish(),
        Settings::default(),
        [0; 16],
        exchange,
        entropy(seed),
    )
}

fn gate<X: TargetExchange>(exchange: X, record: Vec<u8>) -> (Gate<X, ()>, Cookies) {
    let settings = GateSettings {
        server: [8; 16],
        session: Settings::default(),
    };
    let records = BTreeMap::from([(Wish::credential("ABC", None), record)]);
    (
        Gate::new(settings, exchange, records, entropy(9)),
        Cookies::new(&mut entropy(10)),
    )
}

fn devices() -> Vec<Device> {
    let device = |handle, level| Device {
        handle,
        level,
        is_read_only: false,
        is_removable: false,
        peripheral_type: 0,
        block_bytes: 512,
        blocks: 8,
        data_max_bytes: 4096,
        designator: [0; 16],
        name: format!("disk{handle}"),
    };
    vec![
        device(1, Level::None),
        device(2, Level::Hash),
        device(3, Level::Encrypt),
    ]
}

type Ends = (ClientSession<Vec<u8>>, TargetSession<Vec<u8>>);

/// Runs a login. `change` sees each frame, and loses it where it gives `None`; each is repeated three times.
fn run<X: ClientExchange, Y: TargetExchange>(
    login: &mut Login<X>,
    gate: &mut Gate<Y, ()>,
    cookies: &Cookies,
    mut change: impl FnMut(usize, Vec<u8>) -> Option<Vec<u8>>,
) -> Result<Ends, LoginError> {
    let (mut now, mut number, mut session) = (ZERO, 0, None);
    let mut pass = |frame: Vec<u8>| {
        number += 1;
        change(number, frame)
    };
    while now < Duration::from_secs(60) {
        now = now.max(login.deadline());
        let Some(request) = login.poll_frame(now).and_then(&mut pass) else {
            continue;
        };
        let (answer, proved) = gate.handle_frame(now, cookies, (b"client", ()), &request);
        assert!(answer.iter().all(|answer| answer.len() <= request.len()));
        let accepted =
            proved.and_then(|proved| gate.accept(now, proved.login, (77, 1, 32), devices()));
        let answer = match accepted {
            Some(accepted) => {
                assert!(
                    session.replace(accepted.session).is_none(),
                    "accepted twice"
                );
                Some(accepted.frame)
            }
            None => answer,
        };
        match answer
            .and_then(&mut pass)
            .map(|answer| login.handle_frame(now, &answer))
        {
            Some(LoginProgress::Done(client)) => return Ok((*client, session.unwrap())),
            Some(LoginProgress::Failed(error)) => return Err(error),
            Some(LoginProgress::Going) | None => {}
        }
    }
    Err(LoginError::Silent)
}

fn talk(client: &mut ClientSession<Vec<u8>>, target: &mut TargetSession<Vec<u8>>) {
    let mut buffer = vec![0; 9100];
    for _ in 0..10 {
        while let Some(length) = client.poll_frame(ZERO, &mut buffer) {
            target.handle_frame(ZERO, &buffer[..length]);
        }
        while let Some(length) = target.poll_frame(ZERO, &mut buffer) {
            client.handle_frame(ZERO, &buffer[..length]);
        }
    }
}

#[test]
fn opaque_leads_to_a_session() {
    let mut random = entropy(1);
    let target = OpaqueTarget::new(&mut random);
    let name = Wish::credential("ABC", None);
    let record = target.record(&name, b"correct horse", &mut random).unwrap();
    let (mut gate, cookies) = gate(target, record);
    let mut good = login(OpaqueClient::new(b"correct horse", &mut random).unwrap(), 2);
    let (mut client, mut target) =
        run(&mut good, &mut gate, &cookies, |_, frame| Some(frame)).unwrap();
    client.list(ZERO, 1);
    talk(&mut client, &mut target);
    let Some(ClientEvent::Devices(page)) = client.poll_event() else {
        panic!("no devices")
    };
    assert_eq!((page.total, page.devices.len()), (3, 2));
    let mut bad = login(OpaqueClient::new(b"correct house", &mut random).unwrap(), 3);
    let failed = run(&mut bad, &mut gate, &cookies, |_, frame| Some(frame));
    assert_eq!(failed.unwrap_err(), LoginError::Password);
}

#[test]
fn a_lower_level_refuses_the_device_and_not_the_session() {
    let (mut gate, cookies) = gate(Cheap(Vec::new()), b"secret".to_vec());
    let mut login = login(Cheap(b"secret".to_vec()), 1);
    let (mut client, mut target) =
        run(&mut login, &mut gate, &cookies, |_, frame| Some(frame)).unwrap();
    for (device, level, expected) in [
        (2, Level::Crc, Opening::TooLow(Level::Hash)),
        (3, Level::Hash, Opening::TooLow(Level::Encrypt)),
        (2, Level::Hash, Opening::Open(Level::Hash)),
        (1, Level::Encrypt, Opening::Open(Level::Encrypt)),
        (1, Level::None, Opening::OtherLevel(Level::Encrypt)),
        (4, Level::Encrypt, Opening::Unknown),
    ] {
        client.open(ZERO, device, level);
        talk(&mut client, &mut target);
        let event = client.poll_event();
        assert_eq!(
            event,
            Some(ClientEvent::Opening {
                device,
                opening: expected
            })
        );
    }
    let opened: Vec<_> = std::iter::from_fn(|| target.poll_event()).collect();
    assert_eq!(opened.len(), 2);
    assert_eq!(
        opened[0],
        TargetEvent::Opened {
            device: 2,
            level: Level::Hash
        }
    );
}

#[test]
fn each_frame_may_be_lost() {
    for lost in 1..8 {
        let (mut gate, cookies) = gate(Cheap(Vec::new()), b"secret".to_vec());
        let mut login = login(Cheap(b"secret".to_vec()), 1);
        let change = |number, frame| (number != lost).then_some(frame);
        assert!(
            run(&mut login, &mut gate, &cookies, change).is_ok(),
            "frame {lost}"
        );
    }
}

/// The wish is bound into the exchange, and every bit is under a checksum: one that somebody put right does not help.
#[test]
fn a_wish_that_was_changed_on_the_way_fails() {
    let (mut gate, cookies) = gate(Cheap(Vec::new()), b"secret".to_vec());
    let mut login = login(Cheap(b"secret".to_vec()), 1);
    let outcome = run(&mut login, &mut gate, &cookies, |_, frame| {
        let (opcode, body) = crate::plain::read(&frame)?;
        let mut message = Message::decode(body)?;
        if let Message::First { wish, .. } = &mut message {
            wish.frame_bytes_max = 1500;
        }
        let answer = [Opcode::NegotiationAnswer].contains(&opcode);
        let length = if answer { 0 } else { REQUEST_BYTES };
        Some(crate::plain::write(opcode, &message.encode(), length))
    });
    assert_eq!(outcome.unwrap_err(), LoginError::Password);
}

use crate::pdu::Opcode;

/// Bundles are for two ends that know them. Somebody on the way cannot take them away, or make them up.
#[test]
fn bundles_are_used_where_both_ends_know_them() {
    let login = |bundles| {
        let wish = Wish { bundles, ..wish() };
        let exchange = Cheap(b"secret".to_vec());
        let settings = Settings::default();
        Login::new(ZERO, HOUR, wish, settings, [0; 16], exchange, entropy(1))
    };
    for bundles in [true, false] {
        let (mut gate, cookies) = gate(Cheap(Vec::new()), b"secret".to_vec());
        let mut login = login(bundles);
        let ends = run(&mut login, &mut gate, &cookies, |_, frame| Some(frame)).unwrap();
        assert_eq!(
            (ends.0.terms().bundles, ends.1.terms().bundles),
            (bundles, bundles)
        );
    }
    for (offered, taken) in [(true, SUITE_SINGLE), (false, SUITE_BUNDLES)] {
        let (mut gate, cookies) = gate(Cheap(Vec::new()), b"secret".to_vec());
        let mut login = login(offered);
        let outcome = run(&mut login, &mut gate, &cookies, |_, frame| {
            let (opcode, body) = crate::plain::read(&frame)?;
            let mut message = Message::decode(body)?;
            let Message::Answer { suite, .. } = &mut message else {
                return Some(frame);
            };
            *suite = taken;
            Some(crate::plain::write(opcode, &message.encode(), 0))
        });
        // What was not offered is no answer.
        let expected = if offered {
            LoginError::Password
        } else {
            LoginError::Silent
        };
        assert_eq!(outcome.unwrap_err(), expected);
    }
}

#[test]
fn passwords_can_be_tried_no_faster_than_the_bucket_of_an_address_fills() {
    let (mut gate, cookies) = gate(Cheap(Vec::new()), b"secret".to_vec());
    let mut answered = |now: Duration, address: &[u8], seeds: std::ops::Range<u8>| {
        let cookie = cookies.make(now, address, &[5; 16]);
        seeds
            .filter(|&seed| {
                let exchange = Cheap(b"guess".to_vec());
                let settings = Settings::default();
                let mut login =
                    Login::new(now, HOUR, wish(), settings, cookie, exchange, entropy(seed));
                let request = login.poll_frame(now).unwrap();
                gate.handle_frame(now, &cookies, (address, ()), &request)
                    .0
                    .is_some()
            })
            .count()
    };
    assert_eq!(answered(ZERO, b"one", 0..100), 5);
    assert_eq!(
        answered(ZERO, b"two", 0..100),
        5,
        "another address is not affected"
    );
    assert_eq!(answered(Duration::from_secs(4), b"one", 100..200), 2);
}

#[test]
fn logins_without_a_proof_are_told_of_once() {
    let (mut gate, cookies) = gate(Cheap(Vec::new()), b"secret".to_vec());
    let log_in = |gate: &mut Gate<Cheap, ()>, password: &[u8], seed: u8| {
        let exchange = Cheap(password.to_vec());
        let settings = Settings::default();
        let mut login = Login::new(
            ZERO,
            HOUR,
            wish(),
            settings,
            [0; 16],
            exchange,
            entropy(seed),
        );
        run(&mut login, gate, &cookies, |_, frame| Some(frame)).is_ok()
    };
    assert!(log_in(&mut gate, b"secret", 1));
    let at = Duration::from_secs(70);
    assert_eq!(gate.take_unproved(at), [], "it was proved");
    assert!(!log_in(&mut gate, b"guess", 2));
    let one = Unproved {
        from: (),
        wish: wish(),
    };
    assert_eq!(gate.take_unproved(at), [one]);
    assert_eq!(gate.take_unproved(at), []);
}

#[test]
fn one_address_that_knows_the_password_leaves_logins_for_others() {
    let (mut gate, cookies) = gate(Cheap(Vec::new()), b"secret".to_vec());
    let mut enters = |now: Duration, address: &[u8], seed: u8| {
        let cookie = cookies.make(now, address, &wish().client);
        let exchange = Cheap(b"secret".to_vec());
        let settings = Settings::default();
        let mut login = Login::new(now, HOUR, wish(), settings, cookie, exchange, entropy(seed));
        let mut proved = None;
        for _ in 0..2 {
            let Some(request) = login.poll_frame(now) else {
                break;
            };
            let (answer, who) = gate.handle_frame(now, &cookies, (address, ()), &request);
            proved = proved.or(who);
            if let Some(answer) = answer {
                let _going: LoginProgress<Vec<u8>> = login.handle_frame(now, &answer);
            }
        }
        proved.is_some()
    };
    let mut count =
        |now, seeds: std::ops::Range<u8>| seeds.filter(|&seed| enters(now, b"one", seed)).count();
    assert_eq!(count(ZERO, 0..120), 40);
    assert_eq!(count(Duration::from_secs(1), 120..250), 10);
    assert!(enters(Duration::from_secs(1), b"two", 1));
}

#[test]
fn a_server_that_sends_cookies_without_end_is_answered_at_its_time() {
    let mut login = login(Cheap(Vec::new()), 1);
    let mut sent = Vec::new();
    for number in 1..=200 {
        sent.extend(login.poll_frame(ZERO));
        let cookie = Message::Cookie {
            nonce: first_of(sent.last().unwrap()).0,
            cookie: [number; 16],
        };
        let frame = crate::plain::write(Opcode::NegotiationAnswer, &cookie.encode(), 0);
        let progress: LoginProgress<Vec<u8>> = login.handle_frame(ZERO, &frame);
        assert!(matches!(progress, LoginProgress::Going));
    }
    // The first, and one for each of two cookies.
    assert_eq!(sent.len(), 3);
    assert!(login.deadline() > ZERO);
    let next = login.poll_frame(login.deadline()).unwrap();
    assert_eq!(
        first_of(&next).1,
        [3; 16],
        "those that answer an earlier question do not"
    );
}

/// A cookie that comes between a question and its answer makes another question: the answer is not one to that.
#[test]
fn a_late_answer_to_an_earlier_question_is_not_a_wrong_password() {
    let (mut gate, cookies) = gate(Cheap(Vec::new()), b"secret".to_vec());
    let cookie = cookies.make(ZERO, b"client", &wish().client);
    let settings = Settings::default();
    let exchange = Cheap(b"secret".to_vec());
    let mut login = Login::new(ZERO, HOUR, wish(), settings, cookie, exchange, entropy(1));
    let (before, after) = (Duration::from_secs(119), Duration::from_secs(120));
    let question = login.poll_frame(before).unwrap();
    let (late, _) = gate.handle_frame(before, &cookies, (b"client", ()), &question);
    // Once more, when its cookie is not taken any more.
    let (cookie, _) = gate.handle_frame(after, &cookies, (b"client", ()), &question);
    for answer in [cookie, late] {
        let progress: LoginProgress<Vec<u8>> = login.handle_frame(after, &answer.unwrap());
        assert!(matches!(progress, LoginProgress::Going), "{progress:?}");
    }
    // Nor does a server answer another question under a nonce that it knows.
    let (_, body) = crate::plain::read(&question).unwrap();
    let Some(Message::First {
        nonce,
        wish,
        message,
        ..
    }) = Message::decode(body)
    else {
        panic!("{body:?}")
    };
    let cookie = cookies.make(after, b"client", &wish.client);
    let other = Message::First {
        nonce,
        cookie,
        wish,
        message,
    };
    let other = crate::plain::write(Opcode::Negotiation, &other.encode(), REQUEST_BYTES);
    assert_eq!(
        gate.handle_frame(after, &cookies, (b"client", ()), &other)
            .0,
        None
    );
    let first = login.poll_frame(after).unwrap();
    let (answer, _) = gate.handle_frame(after, &cookies, (b"client", ()), &first);
    let progress: LoginProgress<Vec<u8>> = login.handle_frame(after, &answer.unwrap());
    assert!(matches!(progress, LoginProgress::Going), "{progress:?}");
    let last = login.poll_frame(after).unwrap();
    let (_, proved) = gate.handle_frame(after, &cookies, (b"client", ()), &last);
    assert!(proved.is_some(), "the right password leads to a session");
}

/// Nonce and cookie of a first request.
fn first_of(frame: &[u8]) -> ([u8; 8], [u8; 16]) {
    let (_, body) = crate::plain::read(frame).unwrap();
    match Message::decode(body) {
        Some(Message::First { nonce, cookie, .. }) => (nonce, cookie),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_login_under_way_ends_with_its_password_and_a_session_does_not() {
    let records = |record: &str| {
        let name = Wish::credential("ABC", None);
        BTreeMap::from([
            (name, record.as_bytes().to_vec()),
            (b"other".to_vec(), vec![1]),
        ])
    };
    for (changed_at, record, is_in) in [
        (1, "another", false),
        (2, "another", false),
        (3, "another", true),
        (1, "secret", true),
        (2, "secret", true),
    ] {
        let (mut gate, cookies) = gate(Cheap(Vec::new()), b"secret".to_vec());
        let mut login = login(Cheap(b"secret".to_vec()), 1);
        let mut proved = None;
        // For a cookie, for the answer, with the proof.
        for step in 0..3 {
            if step == 2 && changed_at == 1 {
                gate.set_records(records(record));
            }
            let request = login.poll_frame(ZERO).unwrap();
            let (answer, who) = gate.handle_frame(ZERO, &cookies, (b"client", ()), &request);
            proved = who;
            if let Some(answer) = answer {
                let _going: LoginProgress<Vec<u8>> = login.handle_frame(ZERO, &answer);
            }
        }
        assert_eq!(proved.is_some(), changed_at > 1 || is_in);
        if changed_at == 2 {
            gate.set_records(records(record));
        }
        let number = proved.map_or(0, |proved| proved.login);
        let accepted: Option<Accepted<Vec<u8>>> = gate.accept(ZERO, number, (77, 1, 32), devices());
        assert_eq!(accepted.is_some(), is_in, "{changed_at} {record:?}");
        if changed_at == 3 {
            gate.set_records(records(record));
            // The last answer may have been lost.
            let again = login.poll_frame(login.deadline()).unwrap();
            let (answer, _) = gate.handle_frame(ZERO, &cookies, (b"client", ()), &again);
            assert_eq!(answer, accepted.map(|accepted| accepted.frame));
        }
    }
}

#[test]
fn without_a_cookie_nothing_is_kept() {
    let (mut gate, cookies) = gate(Cheap(Vec::new()), b"secret".to_vec());
    for seed in 0..100 {
        let request = login(Cheap(Vec::new()), seed).poll_frame(ZERO).unwrap();
        let (answer, _) = gate.handle_frame(ZERO, &cookies, (&[seed; 6], ()), &request);
        assert!(answer.is_some_and(|answer| answer.len() < 100));
    }
    assert!(!format!("{gate:?}").contains("Pending {"));
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        step in 0_u8..5,
        bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
    ) {
        let body = [&[step], &bytes[..]].concat();
        if let Some(message) = Message::decode(&body) {
            proptest::prop_assert_eq!(Message::decode(&message.encode()), Some(message));
        }
    }
}
