//! Login: from the first byte of a connection to the full-feature phase, in both roles.
//!
//! [`LoginTarget`] and [`LoginInitiator`] each drive one connection, one request and one response
//! at a time. They know nothing of other connections: whether a target exists, who may use it,
//! and which session a connection belongs to are questions to their owner.
//!
//! Spec: RFC 7143 sections 6, 11.12 and 11.13.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

mod entry;
mod initiator;
mod target;
mod violation;

pub use entry::{Claim, Entry, EntryRefusal, decide_entry};
pub use initiator::{
    EstablishedInitiator, InitiatorAuth, InitiatorLoginAction, InitiatorLoginConfig,
    InitiatorLoginError, LoginInitiator,
};
pub use target::{
    Admission, AuthorizeRequest, EstablishedLogin, LoginAction, LoginRefusal, LoginTarget,
    NegotiatedLogin, TargetAuth, TargetPolicy,
};
pub use violation::LoginViolation;

use crate::chap::{CHALLENGE_BYTES, Challenge};
use crate::pdu::LoginStage;
use crate::serial::SerialNumber;

/// Random bytes that one login uses up: a challenge, its identifier, and a first StatSN.
pub const RANDOM_BYTES: usize = CHALLENGE_BYTES + 1 + 4;

/// Takes the random bytes of one login apart.
fn split_random(random: [u8; RANDOM_BYTES]) -> (Challenge, SerialNumber) {
    let mut bytes = [0; CHALLENGE_BYTES];
    let mut rest = random.into_iter();
    for (slot, byte) in bytes.iter_mut().zip(&mut rest) {
        *slot = byte;
    }
    let identifier = rest.next().unwrap_or_default();
    let number = rest.fold(0_u32, |number, byte| number << 8 | u32::from(byte));
    (Challenge { identifier, bytes }, SerialNumber(number))
}

/// True when a login may go from `current` to `next`.
const fn is_forward(current: LoginStage, next: LoginStage) -> bool {
    next.code() > current.code()
}

#[cfg(test)]
mod tests;
