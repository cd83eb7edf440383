//! What an operation of the reactor was for, packed into its token.

use engine::table::Key;
use engine::{PartKey, UnitIndex};
use front::iscsi::{ConnectionKey, LoginKey};
use front::{hyperscsi, nbd};
use reactor::Token;

/// The purpose of an operation. Keys are those of one core and never given twice, so an operation that ends
/// too late finds nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    /// A portal, by its index in the plan.
    Accept(usize),
    /// The next bytes of a connection.
    Receive(ConnectionKey),
    /// Output of a connection.
    Send(ConnectionKey),
    /// An operation for a store.
    Store(PartKey),
    /// The next bytes of a login.
    LoginReceive(LoginKey),
    /// An answer of a login.
    LoginSend(LoginKey),
    /// Mail from other cores.
    Mail,
    /// The state of a unit that this core owns is being kept.
    Keep(UnitIndex),
    /// The next bytes of a connection of NBD.
    NbdReceive(nbd::ConnectionKey),
    /// Output of a connection of NBD.
    NbdSend(nbd::ConnectionKey),
    /// The next bytes of a handshake.
    HandshakeReceive(nbd::HandshakeKey),
    /// An answer of a handshake.
    HandshakeSend(nbd::HandshakeKey),
    /// What comes in at a place of HyperSCSI.
    Frames(hyperscsi::PlaceKey),
    /// A frame that leaves there.
    FrameSent(hyperscsi::PlaceKey),
}

const KEY_BITS: u32 = 56;

impl Purpose {
    pub(crate) const fn token(self) -> Token {
        let (kind, key) = match self {
            Self::Accept(portal) => (0, portal as u64),
            Self::Receive(key) => (1, key.to_bits()),
            Self::Send(key) => (2, key.to_bits()),
            Self::Store(key) => (3, key.to_bits()),
            Self::LoginReceive(key) => (4, key.to_bits()),
            Self::LoginSend(key) => (5, key.to_bits()),
            Self::Mail => (6, 0),
            Self::Keep(UnitIndex(unit)) => (7, unit as u64),
            Self::NbdReceive(key) => (8, key.to_bits()),
            Self::NbdSend(key) => (9, key.to_bits()),
            Self::HandshakeReceive(key) => (10, key.to_bits()),
            Self::HandshakeSend(key) => (11, key.to_bits()),
            Self::Frames(key) => (12, key.to_bits()),
            Self::FrameSent(key) => (13, key.to_bits()),
        };
        kind << KEY_BITS | key
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "an index of a unit has 32 bits"
    )]
    pub(crate) const fn of(token: Token) -> Option<Self> {
        let bits = token & ((1 << KEY_BITS) - 1);
        let (index, unit) = (bits as usize, UnitIndex(bits as u32));
        Some(match token >> KEY_BITS {
            0 => Self::Accept(index),
            1 => Self::Receive(Key::from_bits(bits)),
            2 => Self::Send(Key::from_bits(bits)),
            3 => Self::Store(Key::from_bits(bits)),
            4 => Self::LoginReceive(Key::from_bits(bits)),
            5 => Self::LoginSend(Key::from_bits(bits)),
            6 => Self::Mail,
            7 => Self::Keep(unit),
            8 => Self::NbdReceive(Key::from_bits(bits)),
            9 => Self::NbdSend(Key::from_bits(bits)),
            10 => Self::HandshakeReceive(Key::from_bits(bits)),
            11 => Self::HandshakeSend(Key::from_bits(bits)),
            12 => Self::Frames(Key::from_bits(bits)),
            13 => Self::FrameSent(Key::from_bits(bits)),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_purpose_survives_its_token() {
        for purpose in [
            Purpose::Accept(3),
            Purpose::Receive(Key::from_bits(0)),
            Purpose::Send(Key::from_bits(70_000)),
            Purpose::Store(Key::from_bits((1 << KEY_BITS) - 1)),
            Purpose::LoginReceive(Key::from_bits(1 << 24)),
            Purpose::LoginSend(Key::from_bits(2)),
            Purpose::Mail,
            Purpose::Keep(UnitIndex(5)),
            Purpose::NbdReceive(Key::from_bits(6)),
            Purpose::NbdSend(Key::from_bits(7)),
            Purpose::HandshakeReceive(Key::from_bits(8)),
            Purpose::HandshakeSend(Key::from_bits(9)),
            Purpose::Frames(Key::from_bits(10)),
            Purpose::FrameSent(Key::from_bits(11)),
        ] {
            assert_eq!(Purpose::of(purpose.token()), Some(purpose));
        }
        assert_eq!(Purpose::of(Token::MAX), None);
    }
}
