//! What an operation of the reactor was for, packed into its token.

use reactor::Token;

use crate::tasks::TaskKey;

/// The purpose of an operation. Keys name places in the tables of one core. A place of a connection
/// or a login is not used again before its operations have ended; a task's key is never given twice.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    /// A portal, by its index in the plan.
    Accept(usize),
    /// The next bytes of a connection.
    Receive(usize),
    /// Output of a connection.
    Send(usize),
    /// A store request of a task.
    Task(TaskKey),
    /// The next bytes of a login.
    LoginReceive(usize),
    /// An answer of a login.
    LoginSend(usize),
    /// Mail from other cores.
    Mail,
    /// The state of a unit that this core owns is being kept.
    Keep(usize),
    /// The size of a unit that this core owns is being looked at.
    Probe(usize),
    /// The last flush of a unit before the plane stops.
    Flush(usize),
}

const KEY_BITS: u32 = 56;

impl Purpose {
    pub(crate) const fn token(self) -> Token {
        let (kind, key) = match self {
            Self::Accept(key) => (0, key),
            Self::Receive(key) => (1, key),
            Self::Send(key) => (2, key),
            Self::Task(key) => return 3 << KEY_BITS | key.to_bits(),
            Self::LoginReceive(key) => (4, key),
            Self::LoginSend(key) => (5, key),
            Self::Mail => (6, 0),
            Self::Keep(key) => (7, key),
            Self::Probe(key) => (8, key),
            Self::Flush(key) => (9, key),
        };
        kind << KEY_BITS | key as Token
    }

    pub(crate) const fn of(token: Token) -> Option<Self> {
        let key = (token & ((1 << KEY_BITS) - 1)) as usize;
        Some(match token >> KEY_BITS {
            0 => Self::Accept(key),
            1 => Self::Receive(key),
            2 => Self::Send(key),
            3 => Self::Task(TaskKey::from_bits(token & ((1 << KEY_BITS) - 1))),
            4 => Self::LoginReceive(key),
            5 => Self::LoginSend(key),
            6 => Self::Mail,
            7 => Self::Keep(key),
            8 => Self::Probe(key),
            9 => Self::Flush(key),
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
            Purpose::Receive(0),
            Purpose::Send(70_000),
            Purpose::Task(TaskKey::from_bits((1 << KEY_BITS) - 1)),
            Purpose::LoginReceive(1),
            Purpose::LoginSend(2),
            Purpose::Mail,
            Purpose::Keep(5),
            Purpose::Probe(6),
            Purpose::Flush(7),
        ] {
            assert_eq!(Purpose::of(purpose.token()), Some(purpose));
        }
        assert_eq!(Purpose::of(Token::MAX), None);
    }
}
