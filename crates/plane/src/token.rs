//! What an operation of the reactor was for, packed into its token.

use engine::table::Key;
use engine::{PartKey, UnitIndex};
use front::iscsi::{ConnectionKey, LoginKey};
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
        ] {
            assert_eq!(Purpose::of(purpose.token()), Some(purpose));
        }
        assert_eq!(Purpose::of(Token::MAX), None);
    }
}
