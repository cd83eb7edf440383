//! Entry points for fuzzing: any bytes in, nothing out, and never a panic.
//!
//! Each function drives one parser or machine as its real owner would. What they check beyond
//! "no panic" is said at each.

use std::time::Duration;

use crate::chap::decode_binary;
use crate::discovery::{TargetAddress, parse_targets};
use crate::framing::PduBuffer;
use crate::initiator::{Command, ReadBuffer, Session};
use crate::limits::{DATA_SEGMENT_MAX_BYTES, LOGIN_SEGMENT_MAX_BYTES, LOGIN_TIMEOUT_DEFAULT};
use crate::login::{
    Admission, EstablishedInitiator, LoginAction, LoginRefusal, LoginTarget, RANDOM_BYTES,
    TargetAuth, TargetPolicy,
};
use crate::names::IscsiName;
use crate::negotiate::{
    ConnectionParameters, Negotiation, OperationalPreferences, Phase, Role, SessionType,
};
use crate::pdu::{AdditionalHeaders, BhsBytes, Cid, PduLayout, TaskAttribute, Tsih};
use crate::serial::SerialNumber;
use crate::text::{TextWriter, parse};

/// A header, its lengths, and its additional header segments.
pub fn pdu(bytes: &[u8]) {
    let Some((bhs, rest)) = bytes.split_first_chunk() else {
        return;
    };
    let bhs: &BhsBytes = bhs;
    let layout = PduLayout::of(bhs, true, true);
    assert!(layout.data_bytes <= DATA_SEGMENT_MAX_BYTES as usize);
    assert_eq!(layout.total_bytes() % 4, 0);
    if let Ok(headers) = AdditionalHeaders::parse(&rest[..layout.ahs_bytes.min(rest.len())]) {
        assert!(headers.extended_cdb.len() <= rest.len());
    }
}

/// A text, and every value in it read as everything a value can be; then negotiated.
///
/// What is answered is itself a proper text.
pub fn text(bytes: &[u8]) {
    let Ok(pairs) = parse(bytes) else {
        return;
    };
    for pair in &pairs {
        let _binary = decode_binary(pair.value);
        let _address = TargetAddress::parse(pair.value);
        let _name = IscsiName::parse(pair.value);
    }
    let _targets = parse_targets(bytes);
    for role in [Role::Target, Role::Initiator] {
        let own = OperationalPreferences::default();
        let mut negotiation = Negotiation::new(role, Phase::LeadingLogin, SessionType::Normal, own);
        if role == Role::Initiator {
            negotiation.offer_all(&mut TextWriter::new());
        }
        let mut answers = TextWriter::new();
        if negotiation.handle_text(&pairs, &mut answers).is_ok() {
            assert!(parse(&answers.into_bytes()).is_ok());
        }
        let session = negotiation.session_parameters();
        assert!(session.first_burst_length_bytes <= session.max_burst_length_bytes);
    }
}

/// A stream of login PDUs to a target that is open to everyone.
///
/// The target answers each request at most once and always comes to an end.
pub fn login(bytes: &[u8]) {
    let mut stream = PduBuffer::new();
    stream.push(bytes);
    let mut login = LoginTarget::new(Duration::ZERO, LOGIN_TIMEOUT_DEFAULT, [7; RANDOM_BYTES]);
    while let Ok(Some(pdu)) = stream.next_pdu(LOGIN_SEGMENT_MAX_BYTES, false, false) {
        login.handle_pdu(&pdu.header, &pdu.data);
        let mut answers = 0;
        while let Some(action) = login.poll_action() {
            match action {
                LoginAction::Send(pdu) => {
                    answers += 1;
                    assert!(pdu.data.len() <= LOGIN_SEGMENT_MAX_BYTES);
                }
                LoginAction::Authorize(_) => login.authorize_reply(Ok::<_, LoginRefusal>(open())),
                LoginAction::Admit(asked) => login.admit_reply(Ok::<_, LoginRefusal>(Admission {
                    tsih: Tsih(1),
                    exp_cmd_sn: asked.cmd_sn,
                    max_cmd_sn: asked.cmd_sn,
                })),
                LoginAction::Complete(_) | LoginAction::Close(_) => {}
            }
        }
        assert!(answers <= 1);
    }
    login.handle_timeout(LOGIN_TIMEOUT_DEFAULT);
    assert_eq!(login.poll_timeout(), None);
}

fn open() -> TargetPolicy {
    TargetPolicy {
        auth: TargetAuth::None,
        preferences: OperationalPreferences::default(),
        portal_group_tag: 1,
        target_alias: None,
    }
}

/// A stream of PDUs to an initiator with a read and a write under way.
///
/// Once the connection is gone, nothing is left under way.
pub fn initiator(bytes: &[u8]) {
    let own = OperationalPreferences::default();
    let negotiation = Negotiation::new(
        Role::Initiator,
        Phase::LeadingLogin,
        SessionType::Normal,
        own,
    );
    let login = EstablishedInitiator {
        tsih: Tsih(1),
        session: negotiation.session_parameters(),
        connection: ConnectionParameters::default(),
        cmd_sn: SerialNumber(1),
        exp_stat_sn: SerialNumber(1),
        exp_cmd_sn: SerialNumber(1),
        max_cmd_sn: SerialNumber(8),
        portal_group_tag: None,
        target_alias: None,
    };
    let mut session = Session::new(&login, Cid(1), 8);
    for tag in 0..2 {
        let command = Command {
            tag,
            lun: 0,
            cdb: [0; 16],
            extended_cdb: Vec::new(),
            attribute: TaskAttribute::Simple,
            write: (tag == 1).then(|| vec![1; 20_000].into()),
            read: if tag == 0 {
                ReadBuffer::Into(vec![0; 4096])
            } else {
                ReadBuffer::None
            },
        };
        assert!(session.submit(command).is_ok());
    }
    session.handle_bytes(0, bytes);
    session.transmit(0, &mut Vec::new(), 1 << 20);
    session.connection_lost(0);
    assert_eq!(session.tasks(), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_entry_point_stands_any_bytes(
            opcode in any::<u8>(),
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            pdu(&bytes);
            text(&bytes);
            // A length that lets the stream go on, so that more than a header is reached.
            let mut stream = vec![opcode, 0x87, 0, 0, 0, 0, 0, 0x20];
            stream.extend_from_slice(&bytes);
            login(&stream);
            initiator(&stream);
        }
    }
}
