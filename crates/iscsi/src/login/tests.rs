//! Both sides against each other, and the target against initiators that break rules.

#![allow(clippy::arithmetic_side_effects)]

mod initiator;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::chap::{ChapAccount, ChapAlgorithm, Credentials, Secret};
use crate::discovery::TargetAddress;
use crate::framing::Pdu;
use crate::limits::{LOGIN_REQUESTS_MAX, LOGIN_TIMEOUT_DEFAULT};
use crate::negotiate::{DigestPolicy, OperationalPreferences, SessionType};
use crate::pdu::{
    Bhs, Cid, InitiatorTaskTag, Isid, LoginRequestBhs, LoginResponseBhs, LoginStatus, NopOutBhs,
    Tsih,
};

const INITIATOR: &str = "iqn.2001-04.com.example:host";
const TARGET: &str = "iqn.2001-04.com.example:disk";
const TSIH: Tsih = Tsih(0x1234);

fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials {
        name: name.to_owned(),
        secret: Secret::new(secret.as_bytes().to_vec()),
    }
}

fn policy() -> TargetPolicy {
    TargetPolicy {
        auth: TargetAuth::None,
        preferences: OperationalPreferences::default(),
        portal_group_tag: 3,
        target_alias: Some("a disk".to_owned()),
    }
}

fn chap_policy(algorithms: &[ChapAlgorithm]) -> TargetPolicy {
    TargetPolicy {
        auth: TargetAuth::Chap {
            is_required: true,
            algorithms: algorithms.to_vec(),
            accounts: Arc::new([ChapAccount {
                initiator: credentials("alice", "alice-secret-1"),
                target: Some(credentials("tarn", "target-secret-2")),
            }]),
        },
        ..policy()
    }
}

fn config() -> InitiatorLoginConfig {
    InitiatorLoginConfig {
        initiator_name: INITIATOR.to_owned(),
        initiator_alias: Some("host".to_owned()),
        target_name: Some(TARGET.to_owned()),
        isid: Isid([0x80, 1, 2, 3, 4, 5]),
        tsih: Tsih::NONE,
        cid: Cid(1),
        cmd_sn: SerialNumber(u32::MAX),
        initiator_task_tag: InitiatorTaskTag(0x77),
        auth: InitiatorAuth::None { skip_stage: false },
        preferences: OperationalPreferences::default(),
    }
}

fn target() -> LoginTarget {
    LoginTarget::new(Duration::ZERO, LOGIN_TIMEOUT_DEFAULT, [1; RANDOM_BYTES])
}

/// What came of a login on both sides.
#[derive(Debug)]
struct Outcome {
    initiator: Result<EstablishedInitiator, InitiatorLoginError>,
    target: Result<EstablishedLogin, LoginViolation>,
    requests: u32,
}

impl Outcome {
    fn expect(self) -> (EstablishedInitiator, EstablishedLogin) {
        (self.initiator.unwrap(), self.target.unwrap())
    }
}

/// Lets both sides talk until neither has anything left to say.
fn login(config: InitiatorLoginConfig, policy: &TargetPolicy) -> Outcome {
    let mut initiator = LoginInitiator::new(
        config,
        Duration::ZERO,
        LOGIN_TIMEOUT_DEFAULT,
        [2; RANDOM_BYTES],
    )
    .unwrap();
    let mut target = target();
    let (mut initiator_result, mut target_result, mut requests) = (None, None, 0);
    loop {
        let mut progress = false;
        while let Some(action) = initiator.poll_action() {
            progress = true;
            match action {
                InitiatorLoginAction::Send(pdu) => {
                    requests += 1;
                    target.handle_pdu(&pdu.header, &pdu.data);
                }
                InitiatorLoginAction::Complete(done) => initiator_result = Some(Ok(*done)),
                InitiatorLoginAction::Failed(error) => initiator_result = Some(Err(error)),
            }
        }
        while let Some(action) = target.poll_action() {
            progress = true;
            match action {
                LoginAction::Send(pdu) => initiator.handle_pdu(&pdu.header, &pdu.data),
                LoginAction::Authorize(request) => {
                    assert_eq!(request.initiator_name.as_str(), INITIATOR);
                    target.authorize_reply(Ok::<_, LoginRefusal>(policy.clone()));
                }
                LoginAction::Admit(login) => {
                    let tsih = if login.tsih.is_none() {
                        TSIH
                    } else {
                        login.tsih
                    };
                    target.admit_reply(Ok::<_, LoginRefusal>(Admission {
                        tsih,
                        exp_cmd_sn: login.cmd_sn,
                        max_cmd_sn: login.cmd_sn.plus(31),
                    }));
                }
                LoginAction::Complete(done) => target_result = Some(Ok(*done)),
                LoginAction::Close(violation) => target_result = Some(Err(violation)),
            }
        }
        if !progress {
            break;
        }
    }
    Outcome {
        initiator: initiator_result.expect("initiator has no result"),
        target: target_result.unwrap_or(Err(LoginViolation::DeadlinePassed)),
        requests,
    }
}

#[test]
fn every_way_to_log_in_leads_to_the_same_parameters_on_both_sides() {
    use DigestPolicy::{Allowed, Never, Preferred, Required};
    let mut auths = vec![
        (InitiatorAuth::None { skip_stage: false }, policy(), None),
        (InitiatorAuth::None { skip_stage: true }, policy(), None),
    ];
    for &algorithm in ChapAlgorithm::ALL {
        for target in [None, Some(credentials("tarn", "target-secret-2"))] {
            let auth = InitiatorAuth::Chap {
                own: credentials("alice", "alice-secret-1"),
                target,
                algorithms: vec![algorithm],
                or_none: false,
            };
            auths.push((auth, chap_policy(ChapAlgorithm::ALL), Some("alice")));
        }
    }
    for (auth, policy, user) in auths {
        for (ours, theirs, digest) in [
            (Never, Allowed, false),
            (Allowed, Allowed, false),
            (Preferred, Allowed, true),
            (Required, Allowed, true),
            (Allowed, Required, true),
            (Preferred, Never, false),
        ] {
            for target_name in [Some(TARGET.to_owned()), None] {
                for tsih in [Tsih::NONE, Tsih(9)] {
                    if target_name.is_none() && !tsih.is_none() {
                        continue;
                    }
                    let preferences = OperationalPreferences {
                        header_digest: ours,
                        data_digest: ours,
                        ..OperationalPreferences::default()
                    };
                    let config = InitiatorLoginConfig {
                        auth: auth.clone(),
                        target_name: target_name.clone(),
                        tsih,
                        preferences,
                        ..config()
                    };
                    let mut policy = policy.clone();
                    policy.preferences.header_digest = theirs;
                    policy.preferences.data_digest = theirs;
                    let (initiator, target) = login(config, &policy).expect();
                    assert_eq!(initiator.connection.header_digest, digest);
                    assert_eq!(initiator.connection.data_digest, digest);
                    check_same(&initiator, &target);
                    assert_eq!(target.login.chap_user.as_deref(), user);
                    let is_discovery = target_name.is_none();
                    assert_eq!(
                        target.login.session_type == SessionType::Discovery,
                        is_discovery
                    );
                    assert_eq!(initiator.portal_group_tag, (!is_discovery).then_some(3));
                    assert_eq!(initiator.tsih, if tsih.is_none() { TSIH } else { tsih });
                }
            }
        }
    }
}

fn check_same(initiator: &EstablishedInitiator, target: &EstablishedLogin) {
    let (i, t) = (initiator.connection, target.login.connection);
    assert_eq!(initiator.session, target.login.session);
    assert_eq!(
        (i.header_digest, i.data_digest),
        (t.header_digest, t.data_digest)
    );
    assert_eq!(
        (
            i.max_recv_data_segment_length_bytes,
            i.peer_max_recv_data_segment_length_bytes
        ),
        (
            t.peer_max_recv_data_segment_length_bytes,
            t.max_recv_data_segment_length_bytes
        )
    );
    assert_eq!(initiator.tsih, target.tsih);
    assert_eq!(initiator.exp_stat_sn, target.login.next_stat_sn);
    assert_eq!(initiator.cmd_sn, target.login.cmd_sn);
    assert_eq!(initiator.exp_cmd_sn, target.login.cmd_sn);
    assert_eq!(initiator.target_alias.as_deref(), Some("a disk"));
    assert_eq!(target.login.initiator_alias.as_deref(), Some("host"));
}

#[test]
fn the_shortest_login_takes_one_request() {
    let config = InitiatorLoginConfig {
        auth: InitiatorAuth::None { skip_stage: true },
        ..config()
    };
    assert_eq!(login(config, &policy()).requests, 1);
}

#[test]
fn an_open_target_takes_an_initiator_that_could_do_chap() {
    let auth = |target| InitiatorAuth::Chap {
        own: credentials("alice", "x"),
        target,
        algorithms: vec![ChapAlgorithm::Md5],
        or_none: true,
    };
    let config_with = |auth| InitiatorLoginConfig { auth, ..config() };
    let (_, target) = login(config_with(auth(None)), &policy()).expect();
    assert_eq!(target.login.chap_user, None);
    // Who wants the target to prove itself does not go on without.
    let outcome = login(config_with(auth(Some(credentials("tarn", "y")))), &policy());
    assert_eq!(
        outcome.initiator,
        Err(InitiatorLoginError::NoCommonAuthMethod)
    );
}

#[test]
fn where_chap_is_optional_the_initiator_decides() {
    let mut policy = chap_policy(&[ChapAlgorithm::Sha256]);
    if let TargetAuth::Chap { is_required, .. } = &mut policy.auth {
        *is_required = false;
    }
    let with_secret = InitiatorAuth::Chap {
        own: credentials("alice", "alice-secret-1"),
        target: None,
        algorithms: vec![ChapAlgorithm::Sha256],
        or_none: false,
    };
    for (auth, user) in [
        (with_secret, Some("alice".to_owned())),
        (InitiatorAuth::None { skip_stage: false }, None),
        (InitiatorAuth::None { skip_stage: true }, None),
    ] {
        let config = InitiatorLoginConfig { auth, ..config() };
        let (_, target) = login(config, &policy).expect();
        assert_eq!(target.login.chap_user, user);
    }
}

#[test]
fn failed_authentication_is_0201_whatever_the_cause() {
    let chap = |name: &str, secret: &str, algorithm| InitiatorAuth::Chap {
        own: credentials(name, secret),
        target: None,
        algorithms: vec![algorithm],
        or_none: false,
    };
    let sha = [ChapAlgorithm::Sha256];
    #[rustfmt::skip]
    let cases = [
        (chap("alice", "wrong", ChapAlgorithm::Sha256), chap_policy(&sha)),
        (chap("bob", "alice-secret-1", ChapAlgorithm::Sha256), chap_policy(&sha)),
        (chap("alice", "alice-secret-1", ChapAlgorithm::Md5), chap_policy(&sha)),
        (chap("alice", "alice-secret-1", ChapAlgorithm::Md5), policy()),
        (InitiatorAuth::None { skip_stage: false }, chap_policy(&sha)),
        (InitiatorAuth::None { skip_stage: true }, chap_policy(&sha)),
    ];
    for (auth, policy) in cases {
        let config = InitiatorLoginConfig { auth, ..config() };
        let outcome = login(config, &policy);
        assert_eq!(
            outcome.initiator.unwrap_err().status(),
            Some(LoginStatus::AuthenticationFailure)
        );
        assert_eq!(
            outcome.target.unwrap_err().status(),
            Some(LoginStatus::AuthenticationFailure)
        );
    }
}

#[test]
fn a_target_that_cannot_prove_itself_is_left() {
    let auth = InitiatorAuth::Chap {
        own: credentials("alice", "alice-secret-1"),
        target: Some(credentials("tarn", "not-the-secret")),
        algorithms: vec![ChapAlgorithm::Sha256],
        or_none: false,
    };
    let outcome = login(
        InitiatorLoginConfig { auth, ..config() },
        &chap_policy(ChapAlgorithm::ALL),
    );
    assert!(matches!(
        outcome.initiator,
        Err(InitiatorLoginError::Chap(_))
    ));
}

#[test]
fn limits_below_the_defaults_hold_even_for_an_initiator_that_offers_nothing() {
    let mut policy = policy();
    policy.preferences.max_burst_length_bytes = 65536;
    policy.preferences.first_burst_length_bytes = 16384;
    policy.preferences.immediate_data = false;
    let mut target = target();
    let names = format!("InitiatorName={INITIATOR}\0TargetName={TARGET}\0");
    let first = request(0x87, names.as_bytes());
    target.handle_pdu(&first.header, &first.data);
    assert!(matches!(
        target.poll_action(),
        Some(LoginAction::Authorize(_))
    ));
    target.authorize_reply(Ok::<_, LoginRefusal>(policy));
    let (header, text) = sent(&mut target);
    assert!(!header.is_transit());
    for offer in [
        "ImmediateData=No",
        "MaxBurstLength=65536",
        "FirstBurstLength=16384",
    ] {
        assert!(text.contains(offer), "{text}");
    }
    let answers = request(
        0x87,
        b"ImmediateData=No\0MaxBurstLength=8192\0FirstBurstLength=4096\0",
    );
    target.handle_pdu(&answers.header, &answers.data);
    let Some(LoginAction::Admit(login)) = target.poll_action() else {
        panic!("not admitted");
    };
    assert_eq!(login.session.max_burst_length_bytes, 8192);
    assert_eq!(login.session.first_burst_length_bytes, 4096);
    assert!(!login.session.immediate_data);
}

/// A login request with these flags, from the same initiator port each time.
fn request(flags: u8, text: &[u8]) -> Pdu {
    let mut header = LoginRequestBhs::new();
    header.opcode |= 0x40;
    header.flags = flags;
    header.isid = Isid([0x80, 1, 2, 3, 4, 5]);
    header.initiator_task_tag.set(5);
    header.cid.set(1);
    header.cmd_sn.set(100);
    Pdu::new(header.as_bhs_bytes(), text.to_vec())
}

/// Changes one field of a request.
fn with(mut pdu: Pdu, change: impl FnOnce(&mut LoginRequestBhs)) -> Pdu {
    change(LoginRequestBhs::view_mut(&mut pdu.header));
    pdu
}

/// The next PDU the target sends.
fn sent(target: &mut LoginTarget) -> (LoginResponseBhs, String) {
    match target.poll_action() {
        Some(LoginAction::Send(pdu)) => (
            *LoginResponseBhs::view(&pdu.header),
            String::from_utf8(pdu.data).unwrap().replace('\0', " "),
        ),
        other => panic!("{other:?} instead of a response"),
    }
}

fn first() -> Pdu {
    let text = format!("InitiatorName={INITIATOR}\0TargetName={TARGET}\0");
    request(0x04, text.as_bytes())
}

/// Gives PDUs to a fresh target, authorizes, and returns the status it ends with: `None` while it
/// goes on, `Some(None)` when it closes without a word.
fn ending(pdus: &[Pdu]) -> Option<Option<LoginStatus>> {
    let mut target = target();
    let mut status = None;
    for pdu in pdus {
        target.handle_pdu(&pdu.header, &pdu.data);
        while let Some(action) = target.poll_action() {
            match action {
                LoginAction::Send(pdu) => status = LoginResponseBhs::view(&pdu.header).status(),
                LoginAction::Authorize(_) => {
                    target.authorize_reply(Ok::<_, LoginRefusal>(policy()));
                }
                LoginAction::Admit(_) | LoginAction::Complete(_) => return None,
                LoginAction::Close(violation) => {
                    assert_eq!(status, violation.status());
                    assert_eq!(target.poll_timeout(), None);
                    return Some(violation.status());
                }
            }
        }
    }
    None
}

/// QEMU and others with libiscsi declare their names in each stage.
#[test]
fn names_that_are_said_again_in_the_operational_stage_change_nothing() {
    let open = || TargetPolicy {
        auth: TargetAuth::None,
        ..policy()
    };
    for (again, is_taken) in [
        (format!("InitiatorName={INITIATOR}"), true),
        (format!("TargetName={TARGET}"), true),
        ("SessionType=Normal".to_owned(), true),
        ("InitiatorAlias=box".to_owned(), true),
        ("AuthMethod=CHAP,None".to_owned(), true),
        (format!("InitiatorName={INITIATOR}x"), false),
        (format!("TargetName={TARGET}x"), false),
        ("SessionType=Discovery".to_owned(), false),
        ("AuthMethod=None".to_owned(), false),
    ] {
        let mut target = target();
        let text = format!(
            "InitiatorName={INITIATOR}\0TargetName={TARGET}\0InitiatorAlias=box\0AuthMethod=CHAP,None\0"
        );
        let security = request(0x81, text.as_bytes());
        target.handle_pdu(&security.header, &security.data);
        assert!(matches!(
            target.poll_action(),
            Some(LoginAction::Authorize(_))
        ));
        target.authorize_reply(Ok::<_, LoginRefusal>(open()));
        sent(&mut target);
        let operational = request(0x87, format!("{again}\0").as_bytes());
        target.handle_pdu(&operational.header, &operational.data);
        let is_admitted = matches!(target.poll_action(), Some(LoginAction::Admit(_)));
        assert_eq!(is_admitted, is_taken, "{again}");
    }
}

fn nop() -> Pdu {
    Pdu::new(NopOutBhs::new().as_bhs_bytes(), Vec::new())
}

/// A first request of keys, with a space between two.
fn text(keys: &str) -> Pdu {
    request(0x04, keys.replace(' ', "\0").as_bytes())
}

/// A first request with the names of both sides, then other keys.
fn named(keys: &str) -> Pdu {
    text(&format!(
        "InitiatorName={INITIATOR} TargetName={TARGET} {keys}"
    ))
}

type Requests = fn() -> Vec<Pdu>;

/// Requests, and the status that the last of them gets.
#[rustfmt::skip]
const BROKEN: &[(Requests, Option<LoginStatus>)] = &[
    (|| vec![nop()], None),
    (|| vec![first(), nop()], Some(LoginStatus::InvalidRequestDuringLogin)),
    (|| vec![with(first(), |r| r.version_min = 1)], Some(LoginStatus::UnsupportedVersion)),
    (|| vec![with(first(), |r| r.flags = 0x0c)], Some(LoginStatus::InitiatorError)),
    (|| vec![with(first(), |r| r.flags = 0x08)], Some(LoginStatus::InitiatorError)),
    (|| vec![with(first(), |r| r.flags = 0x86)], Some(LoginStatus::InitiatorError)),
    (|| vec![with(first(), |r| r.flags = 0x85)], Some(LoginStatus::InitiatorError)),
    (|| vec![with(first(), |r| r.flags = 0xc7)], Some(LoginStatus::InitiatorError)),
    (|| vec![with(first(), |r| r.total_ahs_length_words = 1)], Some(LoginStatus::InitiatorError)),
    (|| vec![request(0x04, &vec![0; 8193])], Some(LoginStatus::InitiatorError)),
    (|| vec![first(), with(request(0x04, b""), |r| r.isid.0[5] = 9)], Some(LoginStatus::InitiatorError)),
    (|| vec![first(), with(request(0x04, b""), |r| r.cid.set(2))], Some(LoginStatus::InitiatorError)),
    (|| vec![first(), with(request(0x04, b""), |r| r.tsih.set(2))], Some(LoginStatus::InitiatorError)),
    (|| vec![first(), with(request(0x04, b""), |r| r.initiator_task_tag.set(2))], Some(LoginStatus::InitiatorError)),
    (|| vec![first(), request(0x00, b"")], Some(LoginStatus::InitiatorError)),
    (|| vec![first(), text("SessionType=Discovery")], Some(LoginStatus::InitiatorError)),
    (|| vec![text("")], Some(LoginStatus::MissingParameter)),
    (|| vec![text(&format!("TargetName={TARGET}"))], Some(LoginStatus::MissingParameter)),
    (|| vec![text(&format!("InitiatorName={INITIATOR}"))], Some(LoginStatus::MissingParameter)),
    (|| vec![text("InitiatorName=x TargetName=iqn.2001-04.com.example:a")], Some(LoginStatus::InitiatorError)),
    (|| vec![text(&format!("InitiatorName={INITIATOR} TargetName=x"))], Some(LoginStatus::NotFound)),
    (|| vec![named("SessionType=Other")], Some(LoginStatus::SessionTypeNotSupported)),
    (|| vec![with(named("SessionType=Discovery"), |r| r.tsih.set(4))], Some(LoginStatus::CannotIncludeInSession)),
    (|| vec![named("garbage")], Some(LoginStatus::InitiatorError)),
    (|| vec![named(&format!("InitiatorName={INITIATOR} TargetName={TARGET}"))], Some(LoginStatus::InitiatorError)),
    (|| vec![named("ImmediateData=Yes ImmediateData=No")], Some(LoginStatus::InitiatorError)),
    (|| vec![named("CHAP_A=5")], Some(LoginStatus::AuthenticationFailure)),
];

#[test]
fn every_broken_rule_has_its_status() {
    for (number, &(pdus, status)) in BROKEN.iter().enumerate() {
        assert_eq!(ending(&pdus()), Some(status), "case {number}");
    }
    assert_eq!(ending(&[first(), request(0x04, b"Unknown=1\0")]), None);
    assert_eq!(ending(&[first(), request(0x87, b"")]), None);
}

#[test]
fn a_request_before_the_answer_is_invalid() {
    let mut target = target();
    let pdu = first();
    target.handle_pdu(&pdu.header, &pdu.data);
    assert!(matches!(
        target.poll_action(),
        Some(LoginAction::Authorize(_))
    ));
    target.handle_pdu(&pdu.header, &pdu.data);
    let (header, _) = sent(&mut target);
    assert_eq!(
        header.status(),
        Some(LoginStatus::InvalidRequestDuringLogin)
    );
    // A reply of the owner that comes too late changes nothing.
    assert!(matches!(target.poll_action(), Some(LoginAction::Close(_))));
    target.authorize_reply(Ok::<_, LoginRefusal>(policy()));
    assert!(target.poll_action().is_none());
}

#[test]
fn an_endless_login_is_cut_off() {
    let mut pdus = vec![first()];
    pdus.extend((1..LOGIN_REQUESTS_MAX).map(|_| request(0x04, b"")));
    assert_eq!(ending(&pdus), None);
    pdus.push(request(0x04, b""));
    assert_eq!(ending(&pdus), Some(Some(LoginStatus::InitiatorError)));
    // The same for a text that is continued for ever, with the text limit in between.
    let pdus: Vec<Pdu> = (0..9).map(|_| request(0x44, &[b'A'; 8192])).collect();
    assert_eq!(ending(&pdus[..8]), None);
    assert_eq!(ending(&pdus), Some(Some(LoginStatus::InitiatorError)));
}

#[test]
fn the_owners_no_goes_out_with_its_address() {
    let mut target = target();
    let pdu = first();
    target.handle_pdu(&pdu.header, &pdu.data);
    assert!(matches!(
        target.poll_action(),
        Some(LoginAction::Authorize(_))
    ));
    target.authorize_reply(Err(LoginRefusal {
        status: LoginStatus::TargetMovedTemporarily,
        target_address: TargetAddress::parse("[::1]:3261"),
    }));
    let (header, text) = sent(&mut target);
    assert_eq!(header.status(), Some(LoginStatus::TargetMovedTemporarily));
    assert_eq!(text, "TargetAddress=[::1]:3261 ");
    assert!(!header.is_transit());
}

#[test]
fn a_login_not_admitted_ends_with_the_owners_status() {
    let mut target = target();
    let mut pdu = first();
    LoginRequestBhs::view_mut(&mut pdu.header).flags = 0x87;
    target.handle_pdu(&pdu.header, &pdu.data);
    assert!(matches!(
        target.poll_action(),
        Some(LoginAction::Authorize(_))
    ));
    target.authorize_reply(Ok::<_, LoginRefusal>(policy()));
    assert!(matches!(target.poll_action(), Some(LoginAction::Admit(_))));
    target.admit_reply(Err(LoginStatus::SessionDoesNotExist));
    let (header, _) = sent(&mut target);
    assert_eq!(header.status(), Some(LoginStatus::SessionDoesNotExist));
}

#[test]
fn silent_peer_is_dropped_at_the_deadline_and_not_before() {
    let start = Duration::from_secs(100);
    let mut target = LoginTarget::new(start, Duration::from_secs(15), [1; RANDOM_BYTES]);
    let deadline = target.poll_timeout().unwrap();
    assert_eq!(deadline, start + Duration::from_secs(15));
    target.handle_timeout(deadline - Duration::from_nanos(1));
    assert!(target.poll_action().is_none());
    target.handle_timeout(deadline);
    assert!(matches!(
        target.poll_action(),
        Some(LoginAction::Close(LoginViolation::DeadlinePassed))
    ));
    assert_eq!(target.poll_timeout(), None);
}

#[test]
fn a_text_cut_by_the_c_bit_is_answered_when_it_is_whole() {
    let mut target = target();
    let text = format!("InitiatorName={INITIATOR}\0TargetName={TARGET}\0MaxConnections=4\0");
    let (head, tail) = text.as_bytes().split_at(40);
    let pdu = request(0x44, head);
    target.handle_pdu(&pdu.header, &pdu.data);
    let (header, text) = sent(&mut target);
    assert_eq!((header.flags, text.as_str()), (0x04, ""));
    let pdu = request(0x04, tail);
    target.handle_pdu(&pdu.header, &pdu.data);
    assert!(matches!(
        target.poll_action(),
        Some(LoginAction::Authorize(_))
    ));
    target.authorize_reply(Ok::<_, LoginRefusal>(policy()));
    let (header, text) = sent(&mut target);
    assert_eq!(header.stat_sn(), SerialNumber(0x0101_0102));
    assert!(text.contains("TargetPortalGroupTag=3 "), "{text}");
    assert!(text.contains("MaxConnections=4 "), "{text}");
    assert!(text.contains("MaxRecvDataSegmentLength=262144 "), "{text}");
}

#[test]
fn an_answer_longer_than_a_login_segment_is_continued() {
    let mut target = target();
    let mut text = format!("InitiatorName={INITIATOR}\0TargetName={TARGET}\0");
    for number in 0..400 {
        text.push_str(&format!("Xyz{number}=1\0"));
    }
    assert!(text.len() < 8192);
    let pdu = request(0x87, text.as_bytes());
    target.handle_pdu(&pdu.header, &pdu.data);
    assert!(matches!(
        target.poll_action(),
        Some(LoginAction::Authorize(_))
    ));
    target.authorize_reply(Ok::<_, LoginRefusal>(policy()));
    let (header, first) = sent(&mut target);
    assert!(header.is_continued() && !header.is_transit());
    assert_eq!(first.len(), 8192);
    let pdu = request(0x87, b"");
    target.handle_pdu(&pdu.header, &pdu.data);
    assert!(matches!(target.poll_action(), Some(LoginAction::Admit(_))));
    target.admit_reply(Ok::<_, LoginRefusal>(Admission {
        tsih: TSIH,
        exp_cmd_sn: SerialNumber(100),
        max_cmd_sn: SerialNumber(131),
    }));
    let (header, rest) = sent(&mut target);
    assert_eq!(header.flags, 0x87);
    assert_eq!(header.tsih(), TSIH);
    assert_eq!((header.exp_cmd_sn().0, header.max_cmd_sn().0), (100, 131));
    assert_eq!((first + &rest).matches("NotUnderstood").count(), 400);
}

/// Words that make deep states likely.
fn any_text() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just(format!("InitiatorName={INITIATOR}")),
        Just(format!("TargetName={TARGET}")),
        Just("SessionType=Discovery".to_owned()),
        Just("AuthMethod=CHAP,None".to_owned()),
        Just("AuthMethod=None".to_owned()),
        Just("CHAP_A=5,7".to_owned()),
        Just("CHAP_N=alice".to_owned()),
        Just("CHAP_R=0x00".to_owned()),
        Just("MaxBurstLength=512".to_owned()),
        "[A-Z][A-Za-z]{0,8}=[ -~]{0,12}",
    ];
    prop_oneof![
        proptest::collection::vec(word, 0..6).prop_map(|words| words.join("\0").into_bytes()),
        proptest::collection::vec(any::<u8>(), 0..60),
    ]
}

proptest! {
    #[test]
    fn no_requests_make_the_target_panic_or_answer_without_end(
        requests in proptest::collection::vec((any::<u8>(), any_text(), 0_u8..20), 0..80),
        requires_chap in any::<bool>(),
    ) {
        let mut target = target();
        let policy = if requires_chap { chap_policy(ChapAlgorithm::ALL) } else { policy() };
        let mut sends = 0;
        for (flags, text, damage) in requests {
            let mut pdu = request(flags, &text);
            if damage == 0 {
                pdu.header[usize::from(flags) % 48] ^= 0x11;
            }
            target.handle_pdu(&pdu.header, &pdu.data);
            while let Some(action) = target.poll_action() {
                match action {
                    LoginAction::Send(pdu) => {
                        sends += 1;
                        prop_assert!(pdu.data.len() <= 8192);
                    }
                    LoginAction::Authorize(_) => {
                        target.authorize_reply(Ok::<_, LoginRefusal>(policy.clone()));
                    }
                    LoginAction::Admit(login) => {
                        prop_assert!(!requires_chap, "{login:?} admitted without proof");
                        target.admit_reply(Err(LoginStatus::OutOfResources));
                    }
                    LoginAction::Complete(_) => prop_assert!(false, "completed"),
                    LoginAction::Close(_) => prop_assert_eq!(target.poll_timeout(), None),
                }
            }
        }
        prop_assert!(sends <= LOGIN_REQUESTS_MAX + 1);
    }

    #[test]
    fn no_responses_make_the_initiator_panic(
        responses in proptest::collection::vec((any::<u8>(), any_text()), 0..20),
    ) {
        let mut initiator =
            LoginInitiator::new(config(), Duration::ZERO, LOGIN_TIMEOUT_DEFAULT, [2; RANDOM_BYTES])
                .unwrap();
        for (flags, text) in responses {
            let mut response = LoginResponseBhs::new();
            response.isid = config().isid;
            response.initiator_task_tag.set(0x77);
            response.flags = flags;
            initiator.handle_pdu(response.as_bhs_bytes(), &text);
            while let Some(action) = initiator.poll_action() {
                if let InitiatorLoginAction::Complete(done) = action {
                    // The TSIH above is zero, which names no session.
                    prop_assert!(false, "{done:?}");
                }
            }
        }
    }
}
