//! The identity of a session, whatever carries it.

use std::fmt;
use std::net::Ipv6Addr;

use crate::iscsi::initiator_name;

/// Names a session for administrators. It is given when the session is placed, from 1, and never
/// again while the process runs; zero names none.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An initiator port, from its TransportID.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct InitiatorPort {
    /// `iscsi`, `nbd` or `hyperscsi`.
    pub transport: &'static str,
    /// As [`initiator_name`](crate::SessionReport::initiator_name) of its sessions.
    pub name: String,
    /// What sets it apart from other ports of that name: the ISID of iSCSI, in hexadecimal; empty where there is
    /// none.
    pub isid: String,
}

impl InitiatorPort {
    /// Of a TransportID as the transports lay it out.
    pub fn of(transport_id: &[u8]) -> Self {
        const NO_SPECIFIC_PROTOCOL: u8 = 0x0f;
        let number = transport_id
            .get(8..)
            .and_then(|rest| rest.first_chunk::<16>());
        let (transport, name) = match (transport_id, number) {
            ([NO_SPECIFIC_PROTOCOL, 1, ..], Some(client)) => {
                let digits: String = client.iter().map(|byte| format!("{byte:02x}")).collect();
                ("hyperscsi", format!("hyperscsi:{digits}"))
            }
            ([NO_SPECIFIC_PROTOCOL, ..], Some(address)) => {
                let address = Ipv6Addr::from(*address).to_canonical();
                ("nbd", format!("nbd:{address}"))
            }
            (_, _) => ("iscsi", initiator_name(transport_id)),
        };
        let text = String::from_utf8_lossy(transport_id);
        let isid = text.split_once(",i,0x").map_or("", |(_, rest)| rest);
        Self {
            transport,
            name,
            isid: isid.trim_end_matches('\0').to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ::iscsi::pdu::Isid;

    use super::*;

    #[test]
    fn ports_of_every_transport_have_the_names_of_their_sessions() {
        let isid = Isid([0x40, 0, 1, 0x37, 0, 0]);
        let address = "192.0.2.7".parse().unwrap();
        for (id, expected) in [
            (
                crate::iscsi::transport_id("iqn.2026-11.example:a", isid),
                ("iscsi", "iqn.2026-11.example:a", "400001370000"),
            ),
            (
                crate::nbd::transport_id(address),
                ("nbd", "nbd:192.0.2.7", ""),
            ),
            (
                crate::hyperscsi::transport_id(&[0xab; 16]),
                (
                    "hyperscsi",
                    "hyperscsi:abababababababababababababababab",
                    "",
                ),
            ),
            (Arc::from([0x0f, 1]), ("iscsi", "", "")),
        ] {
            let port = InitiatorPort::of(&id);
            let found = (port.transport, port.name.as_str(), port.isid.as_str());
            assert_eq!(found, expected);
        }
    }
}
