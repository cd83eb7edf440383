//! Both sides against each other, and each against a cheat.

use super::*;
use crate::text::parse;

fn secret(text: &str) -> Secret {
    Secret::new(text.as_bytes().to_vec())
}

fn credentials(name: &str, text: &str) -> Credentials {
    Credentials {
        name: name.to_owned(),
        secret: secret(text),
    }
}

const fn challenge(fill: u8) -> Challenge {
    Challenge {
        identifier: fill,
        bytes: [fill; CHALLENGE_BYTES],
    }
}

fn account() -> ChapAccount {
    ChapAccount {
        initiator: credentials("alice", "alice-secret-1"),
        target: Some(credentials("tarn", "target-secret-2")),
    }
}

/// Calls `f` with the CHAP keys of a written text.
fn with_keys<T>(out: TextWriter, f: impl FnOnce(&ChapKeys<'_>) -> T) -> T {
    let text = out.into_bytes();
    let pairs = parse(&text).unwrap();
    let mut keys = ChapKeys::default();
    for pair in &pairs {
        assert!(keys.take(Key::from_name(pair.key).unwrap(), pair.value));
    }
    f(&keys)
}

/// Runs initiator against target; the outcome of each side's last step.
fn run(
    mut initiator: ChapInitiator,
    allowed: &[ChapAlgorithm],
    account: ChapAccount,
) -> (Result<String, ChapError>, Result<bool, ChapError>) {
    let accounts = [account];
    let mut target = ChapTarget::new(challenge(1));
    let mut proved = None;
    let mut request = TextWriter::new();
    initiator.start(&mut request);
    for _ in 0..2 {
        let mut response = TextWriter::new();
        match with_keys(request, |keys| {
            target.handle(keys, allowed, &accounts, &mut response)
        }) {
            Ok(name) => proved = name.map(str::to_owned).or(proved),
            Err(error) => return (Err(error), Ok(initiator.is_done())),
        }
        request = TextWriter::new();
        if initiator.is_done() {
            break;
        }
        if let Err(error) = with_keys(response, |keys| initiator.handle(keys, &mut request)) {
            return (Ok(proved.unwrap_or_default()), Err(error));
        }
    }
    (Ok(proved.unwrap_or_default()), Ok(initiator.is_done()))
}

fn alice(target: Option<Credentials>, offered: &[ChapAlgorithm]) -> ChapInitiator {
    let own = credentials("alice", "alice-secret-1");
    ChapInitiator::new(own, target, offered.to_vec(), challenge(2)).unwrap()
}

/// Hashes of 0x01, "secret", "challenge" made with a second implementation.
#[test]
fn responses_equal_those_of_another_implementation() {
    #[rustfmt::skip]
    let cases = [
        (ChapAlgorithm::Md5, "0x46e47770030e2b4e26a0db72a7efec00"),
        (ChapAlgorithm::Sha1, "0x011f25d29fe1baaced569c0d7e4878e40ddb7d7e"),
        (ChapAlgorithm::Sha256, "0x2dfa0526f4764864b7c3c5bc6596bcead3d8dbd984f4fc1d9f330299f0beced4"),
        (ChapAlgorithm::Sha3_256, "0x9444877c4dff778ed2add0f102dcd561e11944e7e948ee1b89508451a9e680ad"),
    ];
    for (algorithm, hex) in cases {
        let response = algorithm.response(1, &secret("secret"), b"challenge");
        assert_eq!(encode_hex(&response), hex, "{algorithm:?}");
    }
}

#[test]
fn both_ways_succeed_with_every_algorithm() {
    for &algorithm in ChapAlgorithm::ALL {
        for mutual in [None, Some(credentials("tarn", "target-secret-2"))] {
            let (target, initiator) =
                run(alice(mutual, &[algorithm]), ChapAlgorithm::ALL, account());
            assert_eq!(target.as_deref(), Ok("alice"));
            assert_eq!(initiator, Ok(true));
        }
    }
}

#[test]
fn the_strongest_common_algorithm_is_taken_in_whatever_order_it_is_offered() {
    use ChapAlgorithm::{Md5, Sha1, Sha256};
    assert_eq!(strongest_common("5,7", &[Sha256, Md5]), Ok(Sha256));
    assert_eq!(strongest_common("7,5", &[Md5, Sha256]), Ok(Sha256));
    assert_eq!(
        strongest_common("5,6,7,8", ChapAlgorithm::ALL),
        Ok(ChapAlgorithm::Sha3_256)
    );
    assert_eq!(strongest_common("5,6,7", &[Md5]), Ok(Md5));
    assert_eq!(strongest_common("99,x,7,5", &[Sha256, Md5]), Ok(Sha256));
    assert_eq!(strongest_common("0x6", &[Sha1]), Ok(Sha1));
    assert_eq!(
        strongest_common("5", &[Sha256]),
        Err(ChapError::NoCommonAlgorithm)
    );
    assert_eq!(
        strongest_common("", &[Sha256]),
        Err(ChapError::NoCommonAlgorithm)
    );
}

#[test]
fn wrong_parties_are_told_apart_here_and_not_on_the_wire() {
    let all = ChapAlgorithm::ALL;
    let stranger = ChapInitiator::new(
        credentials("mallory", "alice-secret-1"),
        None,
        all.to_vec(),
        challenge(2),
    );
    assert_eq!(
        run(stranger.unwrap(), all, account()).0,
        Err(ChapError::UnknownName)
    );
    let guesser = ChapInitiator::new(
        credentials("alice", "alice-secret-2"),
        None,
        all.to_vec(),
        challenge(2),
    );
    assert_eq!(
        run(guesser.unwrap(), all, account()).0,
        Err(ChapError::WrongResponse)
    );
    let (_, initiator) = run(
        alice(Some(credentials("tarn", "other")), all),
        all,
        account(),
    );
    assert_eq!(initiator, Err(ChapError::WrongResponse));
    let (_, initiator) = run(
        alice(Some(credentials("nrat", "target-secret-2")), all),
        all,
        account(),
    );
    assert_eq!(initiator, Err(ChapError::UnknownName));
    let one_way = ChapAccount {
        target: None,
        ..account()
    };
    let (target, _) = run(alice(Some(credentials("tarn", "x")), all), all, one_way);
    assert_eq!(target, Err(ChapError::NoMutual));
}

#[test]
fn reflection_and_shared_secrets_are_refused() {
    let all = ChapAlgorithm::ALL;
    let reflecting = ChapInitiator::new(
        credentials("alice", "alice-secret-1"),
        Some(credentials("tarn", "target-secret-2")),
        all.to_vec(),
        challenge(1),
    );
    // Its challenge equals the target's; it must not even answer.
    assert_eq!(
        run(reflecting.unwrap(), all, account()).1,
        Err(ChapError::Reflected)
    );
    let mut target = ChapTarget::new(challenge(1));
    let accounts = [account()];
    let offer = ChapKeys {
        algorithms: Some("5"),
        ..ChapKeys::default()
    };
    target
        .handle(&offer, all, &accounts, &mut TextWriter::new())
        .unwrap();
    let response = encode_hex(&ChapAlgorithm::Md5.response(
        1,
        &secret("alice-secret-1"),
        &[1; CHALLENGE_BYTES],
    ));
    let mirrored = encode_hex(&[1; CHALLENGE_BYTES]);
    let keys = ChapKeys {
        name: Some("alice"),
        response: Some(&response),
        identifier: Some("9"),
        challenge: Some(&mirrored),
        algorithms: None,
    };
    assert_eq!(
        target.handle(&keys, all, &accounts, &mut TextWriter::new()),
        Err(ChapError::Reflected)
    );

    let shared = Some(credentials("tarn", "alice-secret-1"));
    assert!(matches!(
        ChapInitiator::new(
            credentials("alice", "alice-secret-1"),
            shared.clone(),
            vec![],
            challenge(2)
        ),
        Err(ChapError::SharedSecret)
    ));
    let account = ChapAccount {
        target: shared,
        ..account()
    };
    let (target, _) = run(alice(Some(credentials("tarn", "x")), all), all, account);
    assert_eq!(target, Err(ChapError::SharedSecret));
}

#[test]
fn keys_out_of_turn_end_the_authentication() {
    let all = ChapAlgorithm::ALL;
    let accounts = [account()];
    let handle = |target: &mut ChapTarget, keys: ChapKeys<'_>| {
        target
            .handle(&keys, all, &accounts, &mut TextWriter::new())
            .map(|name| name.map(str::to_owned))
    };
    let empty = ChapKeys::default();
    let mut target = ChapTarget::new(challenge(1));
    assert_eq!(
        handle(
            &mut target,
            ChapKeys {
                name: Some("alice"),
                ..empty
            }
        ),
        Err(ChapError::OutOfTurn(Key::ChapAlgorithm))
    );
    handle(
        &mut target,
        ChapKeys {
            algorithms: Some("5"),
            ..empty
        },
    )
    .unwrap();
    #[rustfmt::skip]
    let cases = [
        (empty, ChapError::OutOfTurn(Key::ChapName)),
        (ChapKeys { name: Some("alice"), ..empty }, ChapError::OutOfTurn(Key::ChapResponse)),
        (ChapKeys { name: Some("alice"), response: Some("12"), ..empty }, ChapError::Malformed(Key::ChapResponse)),
        (ChapKeys { algorithms: Some("5"), ..empty }, ChapError::OutOfTurn(Key::ChapAlgorithm)),
    ];
    for (keys, error) in cases {
        assert_eq!(handle(&mut target, keys), Err(error));
        assert!(!target.is_done());
    }
}
