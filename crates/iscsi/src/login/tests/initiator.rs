//! The initiator against targets that break rules.

use super::*;

#[test]
fn initiator_refuses_responses_that_break_rules() {
    let start = || {
        let mut initiator = LoginInitiator::new(
            config(),
            Duration::ZERO,
            LOGIN_TIMEOUT_DEFAULT,
            [2; RANDOM_BYTES],
        )
        .unwrap();
        assert!(matches!(
            initiator.poll_action(),
            Some(InitiatorLoginAction::Send(_))
        ));
        initiator
    };
    let response = || {
        let mut response = LoginResponseBhs::new();
        response.isid = config().isid;
        response.initiator_task_tag.set(0x77);
        response.flags = 0x81;
        response
    };
    let outcome = |header: LoginResponseBhs, text: &[u8]| {
        let mut initiator = start();
        initiator.handle_pdu(header.as_bhs_bytes(), text);
        match initiator.poll_action() {
            Some(InitiatorLoginAction::Failed(error)) => Some(error),
            _ => None,
        }
    };
    assert_eq!(outcome(response(), b"AuthMethod=None\0"), None);
    type Change = fn(&mut LoginResponseBhs);
    let cases: [(Change, &[u8]); 9] = [
        (|r| r.opcode = 0x21, b""),
        (|r| r.initiator_task_tag.set(1), b""),
        (|r| r.isid.0[0] = 0, b""),
        (|r| r.version_active = 1, b""),
        (|r| r.flags = 0x85, b""),
        (|r| r.flags = 0x83, b""),
        (|r| r.flags = 0xc1, b""),
        (|_| (), b"AuthMethod=CHAP\0"),
        (|_| (), b"SessionType=Normal\0"),
    ];
    for (number, (change, text)) in cases.into_iter().enumerate() {
        let mut header = response();
        change(&mut header);
        assert!(outcome(header, text).is_some(), "case {number}");
    }
}

#[test]
fn initiator_gives_up_on_a_target_that_never_ends() {
    let mut initiator = LoginInitiator::new(
        config(),
        Duration::ZERO,
        LOGIN_TIMEOUT_DEFAULT,
        [2; RANDOM_BYTES],
    )
    .unwrap();
    let mut response = LoginResponseBhs::new();
    response.isid = config().isid;
    response.initiator_task_tag.set(0x77);
    let mut requests = 0;
    loop {
        match initiator.poll_action() {
            Some(InitiatorLoginAction::Send(_)) => requests += 1,
            Some(InitiatorLoginAction::Failed(error)) => {
                let limit = LOGIN_REQUESTS_MAX;
                assert_eq!(error, InitiatorLoginError::TooManyRequests { limit });
                break;
            }
            other => panic!("{other:?}"),
        }
        initiator.handle_pdu(response.as_bhs_bytes(), b"");
    }
    assert_eq!(requests, LOGIN_REQUESTS_MAX);
}

#[test]
fn redirection_reaches_the_initiator() {
    let mut initiator = LoginInitiator::new(
        config(),
        Duration::ZERO,
        LOGIN_TIMEOUT_DEFAULT,
        [2; RANDOM_BYTES],
    )
    .unwrap();
    let _first = initiator.poll_action();
    let mut response = LoginResponseBhs::new();
    response.isid = config().isid;
    response.initiator_task_tag.set(0x77);
    (response.status_class, response.status_detail) = (1, 2);
    initiator.handle_pdu(response.as_bhs_bytes(), b"TargetAddress=10.0.0.9:3261\0");
    let Some(InitiatorLoginAction::Failed(error)) = initiator.poll_action() else {
        panic!("not failed");
    };
    assert_eq!(error.status(), Some(LoginStatus::TargetMovedPermanently));
    let InitiatorLoginError::Refused { address, .. } = error else {
        panic!("not refused");
    };
    assert_eq!(address.unwrap().to_string(), "10.0.0.9:3261");
}
