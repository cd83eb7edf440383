//! Offers in, answers out, in both roles.

#![allow(clippy::arithmetic_side_effects)]

use proptest::prelude::*;

use super::*;
use crate::text::{TextWriter, parse};

fn target() -> Negotiation {
    Negotiation::new(
        Role::Target,
        Phase::LeadingLogin,
        SessionType::Normal,
        OperationalPreferences::default(),
    )
}

fn initiator(own: OperationalPreferences) -> Negotiation {
    Negotiation::new(
        Role::Initiator,
        Phase::LeadingLogin,
        SessionType::Normal,
        own,
    )
}

/// Gives `text` (pairs separated by blanks) to the negotiation and reads its answers back.
fn tell(negotiation: &mut Negotiation, text: &str) -> Result<String, NegotiationViolation> {
    let bytes = text.replace(' ', "\0").into_bytes();
    let mut answers = TextWriter::new();
    negotiation.handle_text(&parse(&bytes).unwrap(), &mut answers)?;
    let answers = String::from_utf8(answers.into_bytes()).unwrap();
    Ok(answers.trim_end_matches('\0').replace('\0', " "))
}

#[test]
fn table_matches_the_published_rows() {
    // Name, default and result, typed from the standard's list rather than from the code.
    for (name, default, result) in [
        ("MaxConnections", 1, ResultFunction::Minimum),
        ("InitialR2T", 1, ResultFunction::Or),
        ("ImmediateData", 1, ResultFunction::And),
        (
            "MaxRecvDataSegmentLength",
            8192,
            ResultFunction::Declarative,
        ),
        ("MaxBurstLength", 262_144, ResultFunction::Minimum),
        ("FirstBurstLength", 65_536, ResultFunction::Minimum),
        ("DefaultTime2Wait", 2, ResultFunction::Maximum),
        ("DefaultTime2Retain", 20, ResultFunction::Minimum),
        ("MaxOutstandingR2T", 1, ResultFunction::Minimum),
        ("DataPDUInOrder", 1, ResultFunction::Or),
        ("DataSequenceInOrder", 1, ResultFunction::Or),
        ("ErrorRecoveryLevel", 0, ResultFunction::Minimum),
        ("iSCSIProtocolLevel", 1, ResultFunction::Minimum),
    ] {
        let spec = Key::from_name(name).unwrap().spec();
        assert_eq!(
            (spec.name, spec.default, spec.result),
            (name, default, result)
        );
    }
    for (index, row) in KEYS.iter().enumerate() {
        assert_eq!(row.key.index(), index);
        assert!(crate::text::is_key_name(row.name));
        assert_eq!(
            KEYS.iter().filter(|other| other.name == row.name).count(),
            1
        );
    }
}

#[test]
fn target_answers_each_offer_by_its_result_function() {
    for (offer, answer) in [
        ("InitialR2T=Yes", "InitialR2T=Yes"),
        ("InitialR2T=No", "InitialR2T=No"),
        ("ImmediateData=Yes", "ImmediateData=Yes"),
        ("ImmediateData=No", "ImmediateData=No"),
        ("ImmediateData=yes", "ImmediateData=Reject"),
        ("MaxBurstLength=512", "MaxBurstLength=512"),
        ("MaxBurstLength=511", "MaxBurstLength=Reject"),
        ("MaxBurstLength=16777215", "MaxBurstLength=1048576"),
        ("MaxBurstLength=16777216", "MaxBurstLength=Reject"),
        ("MaxBurstLength=0x1000", "MaxBurstLength=4096"),
        ("MaxBurstLength=512~4096", "MaxBurstLength=4096"),
        ("MaxBurstLength=2097152~4194304", "MaxBurstLength=Reject"),
        ("FirstBurstLength=4096", "FirstBurstLength=4096"),
        ("FirstBurstLength=16777215", "FirstBurstLength=262144"),
        ("DefaultTime2Wait=0", "DefaultTime2Wait=2"),
        ("DefaultTime2Wait=3600", "DefaultTime2Wait=3600"),
        ("DefaultTime2Wait=3601", "DefaultTime2Wait=Reject"),
        ("DefaultTime2Wait=0~1", "DefaultTime2Wait=Reject"),
        ("DefaultTime2Wait=0~9", "DefaultTime2Wait=2"),
        ("DefaultTime2Retain=0", "DefaultTime2Retain=0"),
        ("MaxConnections=0", "MaxConnections=Reject"),
        ("MaxConnections=65535", "MaxConnections=8"),
        ("MaxConnections=65536", "MaxConnections=Reject"),
        ("MaxOutstandingR2T=65535", "MaxOutstandingR2T=8"),
        ("DataPDUInOrder=No", "DataPDUInOrder=Yes"),
        ("DataSequenceInOrder=No", "DataSequenceInOrder=Yes"),
        ("ErrorRecoveryLevel=2", "ErrorRecoveryLevel=0"),
        ("ErrorRecoveryLevel=3", "ErrorRecoveryLevel=Reject"),
        ("HeaderDigest=None,CRC32C", "HeaderDigest=None"),
        ("HeaderDigest=CRC32C,None", "HeaderDigest=CRC32C"),
        ("HeaderDigest=XX,CRC32C", "HeaderDigest=CRC32C"),
        ("DataDigest=crc32c", "DataDigest=Reject"),
        (
            "TaskReporting=ResponseFence,RFC3720",
            "TaskReporting=RFC3720",
        ),
        ("iSCSIProtocolLevel=2", "iSCSIProtocolLevel=1"),
        ("iSCSIProtocolLevel=0", "iSCSIProtocolLevel=0"),
        ("IFMarker=Yes", "IFMarker=No"),
        ("OFMarker=No", "OFMarker=No"),
        ("IFMarkInt=2048~8192", "IFMarkInt=Reject"),
        ("OFMarkInt=2048", "OFMarkInt=Reject"),
        ("X-com.example.thing=1", "X-com.example.thing=NotUnderstood"),
        ("RDMAExtensions=Yes", "RDMAExtensions=NotUnderstood"),
        ("X-com.example.thing=NotUnderstood", ""),
        ("MaxRecvDataSegmentLength=512", ""),
        (
            "MaxRecvDataSegmentLength=511",
            "MaxRecvDataSegmentLength=Reject",
        ),
        ("X#NodeArchitecture=abc", ""),
        ("SendTargets=All", "SendTargets=Reject"),
    ] {
        assert_eq!(tell(&mut target(), offer).as_deref(), Ok(answer), "{offer}");
    }
}

#[test]
fn first_burst_is_selected_also_without_unsolicited_data_wherever_it_stands() {
    let mut negotiation = target();
    let answers = tell(
        &mut negotiation,
        "FirstBurstLength=8192 InitialR2T=Yes ImmediateData=No",
    );
    assert_eq!(
        answers.as_deref(),
        Ok("InitialR2T=Yes ImmediateData=No FirstBurstLength=8192")
    );
}

#[test]
fn first_burst_never_exceeds_max_burst() {
    let mut negotiation = target();
    assert_eq!(
        tell(
            &mut negotiation,
            "FirstBurstLength=65536 MaxBurstLength=4096"
        )
        .as_deref(),
        Ok("MaxBurstLength=4096 FirstBurstLength=4096")
    );
    let mut negotiation = target();
    tell(&mut negotiation, "FirstBurstLength=65536").unwrap();
    assert_eq!(
        tell(&mut negotiation, "MaxBurstLength=4096"),
        Err(NegotiationViolation::FirstBurstAboveMaxBurst {
            first: 65536,
            max: 4096
        })
    );
    // Left out by the initiator, the default would be too long: the target offers it.
    let mut negotiation = target();
    tell(&mut negotiation, "MaxBurstLength=4096").unwrap();
    let mut out = TextWriter::new();
    assert!(negotiation.offer_where_default_is_too_much(&mut out));
    assert_eq!(out.into_bytes(), b"FirstBurstLength=4096\0");
    assert_eq!(negotiation.unanswered(), Some(Key::FirstBurstLength));
    assert_eq!(
        tell(&mut negotiation, "FirstBurstLength=2048").as_deref(),
        Ok("")
    );
    assert!(!negotiation.is_waiting());
    assert_eq!(
        negotiation.session_parameters().first_burst_length_bytes,
        2048
    );
}

#[test]
fn a_key_has_one_turn() {
    let twice = |key| Err(NegotiationViolation::KeyTwice { key });
    let mut negotiation = target();
    assert_eq!(
        tell(&mut negotiation, "ImmediateData=Yes ImmediateData=Yes"),
        twice(Key::ImmediateData)
    );
    let mut negotiation = target();
    tell(&mut negotiation, "MaxRecvDataSegmentLength=1024").unwrap();
    assert_eq!(
        tell(&mut negotiation, "MaxRecvDataSegmentLength=1024"),
        twice(Key::MaxRecvDataSegmentLength)
    );
    let mut negotiation = target();
    assert_eq!(
        tell(&mut negotiation, "TargetName=iqn.a TargetName=iqn.b"),
        twice(Key::TargetName)
    );
}

#[test]
fn a_key_of_the_other_side_is_a_violation() {
    assert_eq!(
        tell(&mut target(), "TargetPortalGroupTag=1"),
        Err(NegotiationViolation::WrongSender {
            key: Key::TargetPortalGroupTag
        })
    );
    assert_eq!(
        tell(
            &mut initiator(OperationalPreferences::default()),
            "SessionType=Normal"
        ),
        Err(NegotiationViolation::WrongSender {
            key: Key::SessionType
        })
    );
}

#[test]
fn keys_without_effect_in_discovery_and_joining_logins_are_selected_as_ever() {
    let own = OperationalPreferences::default();
    let mut discovery = Negotiation::new(
        Role::Target,
        Phase::LeadingLogin,
        SessionType::Discovery,
        own.clone(),
    );
    assert_eq!(
        tell(
            &mut discovery,
            "InitialR2T=No MaxConnections=4 DefaultTime2Wait=5 HeaderDigest=CRC32C"
        )
        .as_deref(),
        Ok("InitialR2T=No MaxConnections=4 DefaultTime2Wait=5 HeaderDigest=CRC32C")
    );
    let mut joining = Negotiation::new(Role::Target, Phase::JoiningLogin, SessionType::Normal, own);
    assert_eq!(
        tell(&mut joining, "MaxBurstLength=4096 DataDigest=CRC32C").as_deref(),
        Ok("MaxBurstLength=4096 DataDigest=CRC32C")
    );
}

#[test]
fn full_feature_phase_takes_segment_length_again_and_rejects_login_keys() {
    let own = OperationalPreferences::default();
    let mut negotiation =
        Negotiation::new(Role::Target, Phase::FullFeature, SessionType::Normal, own);
    for length in [2048, 4096] {
        negotiation.begin_exchange();
        let offer = format!("MaxRecvDataSegmentLength={length} HeaderDigest=CRC32C");
        assert_eq!(
            tell(&mut negotiation, &offer).as_deref(),
            Ok("HeaderDigest=Reject")
        );
        let parameters = negotiation.connection_parameters();
        assert_eq!(parameters.peer_max_recv_data_segment_length_bytes, length);
        assert!(!parameters.header_digest);
    }
}

#[test]
fn a_required_digest_is_offered_when_the_initiator_is_silent() {
    let own = OperationalPreferences {
        header_digest: DigestPolicy::Required,
        ..OperationalPreferences::default()
    };
    let mut negotiation = target();
    negotiation.configure(SessionType::Normal, own);
    let mut out = TextWriter::new();
    assert!(negotiation.offer_where_default_is_too_much(&mut out));
    assert_eq!(out.into_bytes(), b"HeaderDigest=CRC32C\0");
    let mut refused = negotiation.clone();
    assert_eq!(
        tell(&mut refused, "HeaderDigest=Reject"),
        Err(NegotiationViolation::NoCommonValue {
            key: Key::HeaderDigest
        })
    );
    assert_eq!(
        tell(&mut negotiation.clone(), "HeaderDigest=None"),
        Err(NegotiationViolation::AnswerOutsideOffer {
            key: Key::HeaderDigest
        })
    );
    tell(&mut negotiation, "HeaderDigest=CRC32C").unwrap();
    assert_eq!(negotiation.unacceptable(), None);
    // An initiator that offers None only is answered Reject, and the login must then fail.
    let mut negotiation = target();
    negotiation.configure(
        SessionType::Normal,
        OperationalPreferences {
            header_digest: DigestPolicy::Required,
            ..OperationalPreferences::default()
        },
    );
    assert_eq!(
        tell(&mut negotiation, "HeaderDigest=None").as_deref(),
        Ok("HeaderDigest=Reject")
    );
    assert!(!negotiation.offer_where_default_is_too_much(&mut TextWriter::new()));
    assert_eq!(negotiation.unacceptable(), Some(Key::HeaderDigest));
}

#[test]
fn initiator_checks_every_answer_against_its_offer() {
    let own = OperationalPreferences {
        immediate_data: false,
        initial_r2t: true,
        max_burst_length_bytes: 8192,
        default_time2wait_s: 5,
        ..OperationalPreferences::default()
    };
    for (answer, legal) in [
        ("ImmediateData=No", true),
        ("ImmediateData=Yes", false),
        ("ImmediateData=maybe", false),
        ("InitialR2T=Yes", true),
        ("InitialR2T=No", false),
        ("MaxBurstLength=8192", true),
        ("MaxBurstLength=8193", false),
        ("MaxBurstLength=511", false),
        ("MaxBurstLength=600~700", false),
        ("DefaultTime2Wait=5", true),
        ("DefaultTime2Wait=4", false),
        ("HeaderDigest=CRC32C", true),
        ("HeaderDigest=None,CRC32C", false),
        ("HeaderDigest=MD5", false),
        ("HeaderDigest=Reject", true),
        ("MaxOutstandingR2T=Reject", true),
        ("MaxConnections=NotUnderstood", true),
    ] {
        let mut negotiation = initiator(own.clone());
        negotiation.offer_all(&mut TextWriter::new());
        assert_eq!(tell(&mut negotiation, answer).is_ok(), legal, "{answer}");
    }
}

#[test]
fn a_hard_refusal_of_a_needed_value_ends_the_login() {
    let own = OperationalPreferences {
        max_burst_length_bytes: 8192,
        ..OperationalPreferences::default()
    };
    let mut negotiation = initiator(own);
    negotiation.offer_all(&mut TextWriter::new());
    assert_eq!(
        tell(&mut negotiation, "MaxBurstLength=Reject"),
        Err(NegotiationViolation::NoCommonValue {
            key: Key::MaxBurstLength
        })
    );
}

/// Runs a whole negotiation between two sides and returns both, or the first violation.
fn agree(
    own_initiator: OperationalPreferences,
    own_target: OperationalPreferences,
) -> Result<(Negotiation, Negotiation), NegotiationViolation> {
    let mut initiator = initiator(own_initiator);
    let mut target = target();
    target.configure(SessionType::Normal, own_target);
    let mut offers = TextWriter::new();
    initiator.offer_all(&mut offers);
    let mut answers = TextWriter::new();
    target.handle_text(&parse(&offers.into_bytes()).unwrap(), &mut answers)?;
    target.declare_segment_length(&mut answers);
    let mut surplus = TextWriter::new();
    let open = target.offer_where_default_is_too_much(&mut answers);
    initiator.handle_text(&parse(&answers.into_bytes()).unwrap(), &mut surplus)?;
    if open {
        target.handle_text(
            &parse(&surplus.into_bytes()).unwrap(),
            &mut TextWriter::new(),
        )?;
    } else {
        assert!(surplus.is_empty());
    }
    assert!(!initiator.is_waiting() && !target.is_waiting());
    Ok((initiator, target))
}

fn any_preferences() -> impl Strategy<Value = OperationalPreferences> {
    let digest = prop_oneof![
        Just(DigestPolicy::Never),
        Just(DigestPolicy::Allowed),
        Just(DigestPolicy::Preferred),
    ];
    (
        (digest.clone(), digest),
        any::<[bool; 5]>(),
        any::<[u16; 4]>(),
        prop::array::uniform3(prop_oneof![0_u32..300_000, any::<u32>()]),
        any::<[u8; 2]>(),
    )
        .prop_map(
            |((header_digest, data_digest), flags, shorts, lengths, bytes)| {
                OperationalPreferences {
                    header_digest,
                    data_digest,
                    max_connections: shorts[0],
                    initial_r2t: flags[0],
                    immediate_data: flags[1],
                    max_recv_data_segment_length_bytes: lengths[0],
                    max_burst_length_bytes: lengths[1],
                    first_burst_length_bytes: lengths[2],
                    default_time2wait_s: shorts[1],
                    default_time2retain_s: shorts[2],
                    max_outstanding_r2t: shorts[3],
                    data_pdu_in_order: flags[2],
                    data_sequence_in_order: flags[3],
                    error_recovery_level: bytes[0],
                    response_fence: flags[4],
                    protocol_level: bytes[1],
                }
            },
        )
}

proptest! {
    #[test]
    fn any_two_sides_agree_on_the_same(a in any_preferences(), b in any_preferences()) {
        let (initiator, target) = agree(a, b).unwrap();
        prop_assert_eq!(initiator.session_parameters(), target.session_parameters());
        let session = target.session_parameters();
        prop_assert!(session.first_burst_length_bytes <= session.max_burst_length_bytes);
        let (i, t) = (initiator.connection_parameters(), target.connection_parameters());
        prop_assert_eq!((i.header_digest, i.data_digest), (t.header_digest, t.data_digest));
        prop_assert_eq!(
            i.max_recv_data_segment_length_bytes,
            t.peer_max_recv_data_segment_length_bytes
        );
        prop_assert_eq!(
            t.max_recv_data_segment_length_bytes,
            i.peer_max_recv_data_segment_length_bytes
        );
        prop_assert_eq!(target.unacceptable(), None);
    }

    #[test]
    fn no_text_makes_either_side_panic(
        words in proptest::collection::vec(
            (0..KEYS.len() + 2, "[A-Za-z0-9,~]{0,12}|Yes|No|Reject|Irrelevant|None"),
            0..30,
        ),
        is_target in any::<bool>(),
    ) {
        let mut negotiation = if is_target { target() } else {
            let mut negotiation = initiator(OperationalPreferences::default());
            negotiation.offer_all(&mut TextWriter::new());
            negotiation
        };
        for (row, value) in &words {
            let key = KEYS.get(*row).map_or("Unknown", |row| row.name);
            let mut answers = TextWriter::new();
            if negotiation.handle_text(&[Pair { key, value }], &mut answers).is_err() {
                break;
            }
            prop_assert!(parse(&answers.into_bytes()).is_ok());
        }
    }
}
