//! Logins that must prove who they are.

use std::sync::Arc;
use std::time::Duration;

use iscsi::chap::{ChapAccount, ChapAlgorithm, Credentials, Secret};
use iscsi::framing::PduBuffer;
use iscsi::limits::{LOGIN_SEGMENT_MAX_BYTES, LOGIN_TIMEOUT_DEFAULT};
use iscsi::login::{
    LoginAction, LoginRefusal, LoginTarget, RANDOM_BYTES, TargetAuth, TargetPolicy,
};
use iscsi::negotiate::OperationalPreferences;

/// A stream of login PDUs to a target that wants proof. The challenge follows from the stream, so
/// that no recorded answer fits: nobody gets in, and every login comes to an end.
pub(crate) fn run(bytes: &[u8]) {
    let mut stream = PduBuffer::new();
    stream.push(bytes);
    let mut random = [0_u8; RANDOM_BYTES];
    for (at, byte) in bytes.iter().enumerate() {
        let place = &mut random[at % RANDOM_BYTES];
        *place = place.wrapping_mul(31).wrapping_add(*byte).wrapping_add(1);
    }
    let mut login = LoginTarget::new(Duration::ZERO, LOGIN_TIMEOUT_DEFAULT, random);
    while let Ok(Some(pdu)) = stream.next_pdu(LOGIN_SEGMENT_MAX_BYTES, false, false) {
        login.handle_pdu(&pdu.header, &pdu.data);
        let mut answers = 0;
        while let Some(action) = login.poll_action() {
            match action {
                LoginAction::Send(pdu) => {
                    answers += 1;
                    assert!(pdu.data.len() <= LOGIN_SEGMENT_MAX_BYTES);
                }
                LoginAction::Authorize(_) => {
                    login.authorize_reply(Ok::<_, LoginRefusal>(policy()));
                }
                LoginAction::Admit(_) | LoginAction::Complete(_) => {
                    panic!("let in without proof");
                }
                LoginAction::Close(_) => {}
            }
        }
        assert!(answers <= 1);
    }
    login.handle_timeout(LOGIN_TIMEOUT_DEFAULT);
    assert_eq!(login.poll_timeout(), None);
}

pub(crate) fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials {
        name: name.to_owned(),
        secret: Secret::new(secret.as_bytes().to_vec()),
    }
}

pub(crate) fn policy() -> TargetPolicy {
    TargetPolicy {
        auth: TargetAuth::Chap {
            is_required: true,
            algorithms: ChapAlgorithm::ALL.to_vec(),
            accounts: Arc::new([ChapAccount {
                initiator: credentials("alice", "alice-secret-1"),
                target: Some(credentials("tarn", "target-secret-2")),
            }]),
        },
        preferences: OperationalPreferences::default(),
        portal_group_tag: 1,
        target_alias: None,
    }
}
