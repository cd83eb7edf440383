//! What is known of a session when it begins.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use ::iscsi::discovery::TextRecords;
use ::iscsi::pdu::Isid;
use engine::{TargetIndex, VisibleLun};
use scsi::PortName;
use scsi::reservation::canonical_transport_id;

use crate::policy::Asker;

/// What the front knows of a session when it begins.
#[derive(Clone, Debug)]
pub struct SessionProfile {
    /// InitiatorName.
    pub initiator_name: String,
    /// TargetName; `None` for discovery.
    pub target_name: Option<String>,
    /// The initiator's part of the session identifier.
    pub isid: Isid,
    /// Where its first connection comes from.
    pub peer: SocketAddr,
    /// The address of ours that was reached.
    pub portal: SocketAddr,
    /// The user that CHAP has proved.
    pub user: Option<String>,
    /// TargetPortalGroupTag.
    pub portal_group_tag: u16,
    /// When its login ended.
    pub since: SystemTime,
    /// `None` for discovery.
    pub target: Option<TargetIndex>,
    /// The SCSI ports of its I_T nexus.
    pub port: PortName,
    /// What it sees.
    pub luns: Vec<VisibleLun>,
    /// What SendTargets reports.
    pub text: TextRecords,
}

impl SessionProfile {
    /// Who is behind the session, for the rules of access.
    pub fn asker(&self) -> Asker<'_> {
        Asker {
            initiator_name: &self.initiator_name,
            address: self.peer.ip(),
            portal: self.portal,
            user: self.user.as_deref(),
        }
    }
}

/// The TransportID of an initiator port.
///
/// Format code 01b and protocol identifier 5h, then the name, `,i,0x` and the ISID in 12
/// hexadecimal digits, ended by zeros up to a multiple of four and at least 24 bytes in all.
///
/// Spec: SPC-4, iSCSI initiator port TransportIDs; RFC 7143 section 4.2.7.
pub fn transport_id(initiator_name: &str, isid: Isid) -> Arc<[u8]> {
    let digits: String = isid.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("{initiator_name},i,0x{digits}");
    let length = (name.len() + 1).next_multiple_of(4).max(20);
    let mut bytes = vec![0x45, 0];
    bytes.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
    bytes.extend_from_slice(name.as_bytes());
    bytes.resize(4 + length, 0);
    canonical_transport_id(&bytes).unwrap_or_else(|| bytes.into())
}

/// The InitiatorName in the TransportID of an initiator port, in the form of [`transport_id`].
pub fn initiator_name(transport_id: &[u8]) -> String {
    let text = transport_id.get(4..).unwrap_or_default();
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    text.split(",i,0x").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_id_is_padded_to_words_and_never_shorter_than_24() {
        let id = transport_id("iqn.a", Isid([0x80, 0, 0, 0x12, 0x34, 0xab]));
        assert_eq!(&id[..4], &[0x45, 0, 0, 24]);
        assert_eq!(&id[4..], b"iqn.a,i,0x8000001234ab\0\0");
        for (name, length) in [("iqn.ab", 24), ("iqn.abc", 28)] {
            let id = transport_id(name, Isid([0; 6]));
            assert_eq!(
                (id[3], id.len()),
                (length, 4 + usize::from(length)),
                "{name}"
            );
        }
        let id = transport_id("i", Isid([0; 6]));
        assert_eq!(&id[..4], &[0x45, 0, 0, 20]);
        assert_eq!(&id[4..], b"i,i,0x000000000000\0\0");
    }

    #[test]
    fn the_name_of_an_initiator_is_found_in_its_transport_id() {
        for name in ["iqn.2026-11.example:host", "i", "eui.0123456789abcdef"] {
            let id = transport_id(name, Isid([0x80, 0, 0, 0x12, 0x34, 0xab]));
            assert_eq!(initiator_name(&id), name);
        }
        assert_eq!(initiator_name(&[0x45, 0]), "");
    }
}
