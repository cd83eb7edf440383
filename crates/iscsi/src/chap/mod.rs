//! CHAP: challenge and response, one-way and mutual, for both roles.
//!
//! This module owns algorithms, the text form of binary values, and the rules against reflection
//! and shared secrets. It does not know login stages. Random challenges come in as arguments.
//!
//! Spec: RFC 7143 section 12.1.3, RFC 1994.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

mod binary;

pub use binary::{decode_binary, encode_base64, encode_hex};

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::limits::BINARY_VALUE_MAX_BYTES;
use crate::negotiate::{Key, parse_number};
use crate::text::TextWriter;

/// Length of the challenges this side sends, in bytes.
pub const CHALLENGE_BYTES: usize = 32;

const _: () = assert!(CHALLENGE_BYTES <= BINARY_VALUE_MAX_BYTES);

/// The hash that turns secret and challenge into a response.
///
/// Spec: RFC 7143 section 12.1.3.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum ChapAlgorithm {
    /// MD5, which every peer has.
    Md5 = 5,
    /// SHA-1.
    Sha1 = 6,
    /// SHA-256.
    Sha256 = 7,
    /// SHA3-256.
    Sha3_256 = 8,
}

impl ChapAlgorithm {
    /// All algorithms, strongest first, which is also the order for offers.
    pub const ALL: &[Self] = &[Self::Sha3_256, Self::Sha256, Self::Sha1, Self::Md5];

    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The algorithm of a number, if it is known.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|algorithm| u32::from(algorithm.code()) == code)
    }

    /// The response to a challenge: the hash of identifier, secret and challenge in a row.
    #[must_use]
    pub fn response(self, identifier: u8, secret: &Secret, challenge: &[u8]) -> Vec<u8> {
        fn hash<H: sha1::Digest>(identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
            let mut hasher = H::new();
            hasher.update([identifier]);
            hasher.update(secret);
            hasher.update(challenge);
            hasher.finalize().to_vec()
        }
        let secret = secret.0.as_slice();
        match self {
            Self::Md5 => hash::<md5::Md5>(identifier, secret, challenge),
            Self::Sha1 => hash::<sha1::Sha1>(identifier, secret, challenge),
            Self::Sha256 => hash::<sha2::Sha256>(identifier, secret, challenge),
            Self::Sha3_256 => hash::<sha3::Sha3_256>(identifier, secret, challenge),
        }
    }
}

/// A CHAP secret. Cleared from memory when dropped; never printed.
#[derive(Clone)]
#[expect(
    missing_debug_implementations,
    reason = "a secret must not get into a log"
)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the bytes over.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// True when both secrets are the same; takes the same time whatever they are.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.as_slice().ct_eq(other.0.as_slice()).into()
    }

    /// Length in bytes. The standard wants 12 at least where the link is not protected.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.0.len()
    }
}

/// One name with its secret.
#[derive(Clone)]
pub struct Credentials {
    /// CHAP_N.
    pub name: String,
    /// What proves it.
    pub secret: Secret,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// One user of a target.
#[derive(Clone, Debug)]
pub struct ChapAccount {
    /// How the initiator proves itself.
    pub initiator: Credentials,
    /// How the target proves itself to this user, if it can.
    pub target: Option<Credentials>,
}

/// Why authentication failed. The peer only learns that it did.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ChapError {
    /// No algorithm is on both lists.
    #[error("no common CHAP algorithm")]
    NoCommonAlgorithm,
    /// A key came in the wrong step, or one of a group is missing.
    #[error("CHAP key {} missing or out of turn", .0.name())]
    OutOfTurn(Key),
    /// A value is not a number or binary value as its key wants.
    #[error("value of CHAP key {} is malformed", .0.name())]
    Malformed(Key),
    /// The name is not known.
    #[error("unknown CHAP name")]
    UnknownName,
    /// The response does not fit the secret.
    #[error("wrong CHAP response")]
    WrongResponse,
    /// The peer sent our own challenge back.
    #[error("CHAP challenge reflected")]
    Reflected,
    /// The same secret serves both directions.
    #[error("one CHAP secret configured for both directions")]
    SharedSecret,
    /// The peer wants us to prove ourselves and we have nothing to do it with.
    #[error("mutual CHAP asked for and not configured")]
    NoMutual,
    /// We want the peer to prove itself and it did not.
    #[error("mutual CHAP not answered")]
    MutualMissing,
}

/// The CHAP keys of one text, gathered.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChapKeys<'a> {
    /// CHAP_A.
    pub algorithms: Option<&'a str>,
    /// CHAP_I.
    pub identifier: Option<&'a str>,
    /// CHAP_C.
    pub challenge: Option<&'a str>,
    /// CHAP_N.
    pub name: Option<&'a str>,
    /// CHAP_R.
    pub response: Option<&'a str>,
}

impl<'a> ChapKeys<'a> {
    /// Puts a key into its place; false when it is no CHAP key.
    pub fn take(&mut self, key: Key, value: &'a str) -> bool {
        let Some(slot) = self.slot(key) else {
            return false;
        };
        *slot = Some(value);
        true
    }

    const fn slot(&mut self, key: Key) -> Option<&mut Option<&'a str>> {
        if matches!(key, Key::ChapAlgorithm) {
            Some(&mut self.algorithms)
        } else if matches!(key, Key::ChapIdentifier) {
            Some(&mut self.identifier)
        } else if matches!(key, Key::ChapChallenge) {
            Some(&mut self.challenge)
        } else if matches!(key, Key::ChapName) {
            Some(&mut self.name)
        } else if matches!(key, Key::ChapResponse) {
            Some(&mut self.response)
        } else {
            None
        }
    }

    /// True when the text had no CHAP key.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.algorithms.is_none()
            && self.identifier.is_none()
            && self.challenge.is_none()
            && self.name.is_none()
            && self.response.is_none()
    }

    /// The peer's challenge with its identifier; `None` when neither is there.
    fn challenge(&self) -> Result<Option<(u8, Vec<u8>)>, ChapError> {
        match (self.identifier, self.challenge) {
            (None, None) => Ok(None),
            (Some(_), None) => Err(ChapError::OutOfTurn(Key::ChapChallenge)),
            (None, Some(_)) => Err(ChapError::OutOfTurn(Key::ChapIdentifier)),
            (Some(identifier), Some(challenge)) => {
                let identifier = parse_number(identifier)
                    .and_then(|number| u8::try_from(number).ok())
                    .ok_or(ChapError::Malformed(Key::ChapIdentifier))?;
                let challenge =
                    decode_binary(challenge).ok_or(ChapError::Malformed(Key::ChapChallenge))?;
                Ok(Some((identifier, challenge)))
            }
        }
    }

    /// The peer's name and response.
    fn proof(&self) -> Result<(&'a str, Vec<u8>), ChapError> {
        let name = self.name.ok_or(ChapError::OutOfTurn(Key::ChapName))?;
        let response = self
            .response
            .ok_or(ChapError::OutOfTurn(Key::ChapResponse))?;
        let response = decode_binary(response).ok_or(ChapError::Malformed(Key::ChapResponse))?;
        Ok((name, response))
    }
}

/// One challenge of ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Challenge {
    /// CHAP_I.
    pub identifier: u8,
    /// CHAP_C; must be random and never used twice.
    pub bytes: [u8; CHALLENGE_BYTES],
}

impl Challenge {
    fn write(&self, out: &mut TextWriter) {
        out.push_number(Key::ChapIdentifier.name(), self.identifier.into());
        out.push(Key::ChapChallenge.name(), &encode_hex(&self.bytes));
    }

    fn is_answered_by(&self, algorithm: ChapAlgorithm, secret: &Secret, response: &[u8]) -> bool {
        algorithm
            .response(self.identifier, secret, &self.bytes)
            .ct_eq(response)
            .into()
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum TargetStep {
    AwaitAlgorithms,
    AwaitResponse(ChapAlgorithm),
    Done,
}

/// The target's side of one authentication.
#[derive(Debug)]
pub struct ChapTarget {
    step: TargetStep,
    challenge: Challenge,
}

impl ChapTarget {
    /// An authentication about to begin.
    #[must_use]
    pub const fn new(challenge: Challenge) -> Self {
        Self {
            step: TargetStep::AwaitAlgorithms,
            challenge,
        }
    }

    /// True once the initiator has proved itself.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.step == TargetStep::Done
    }

    /// Takes the keys of one request and writes the answer. Returns the name that is now proved,
    /// once it is.
    ///
    /// # Errors
    ///
    /// Authentication has failed and the login with it.
    pub fn handle<'a>(
        &mut self,
        keys: &ChapKeys<'_>,
        allowed: &[ChapAlgorithm],
        accounts: &'a [ChapAccount],
        out: &mut TextWriter,
    ) -> Result<Option<&'a str>, ChapError> {
        match self.step {
            TargetStep::AwaitAlgorithms => {
                let offered = keys
                    .algorithms
                    .ok_or(ChapError::OutOfTurn(Key::ChapAlgorithm))?;
                if keys.name.is_some() || keys.response.is_some() {
                    return Err(ChapError::OutOfTurn(Key::ChapResponse));
                }
                let algorithm = strongest_common(offered, allowed)?;
                out.push_number(Key::ChapAlgorithm.name(), algorithm.code().into());
                self.challenge.write(out);
                self.step = TargetStep::AwaitResponse(algorithm);
                Ok(None)
            }
            TargetStep::AwaitResponse(algorithm) => {
                if keys.algorithms.is_some() {
                    return Err(ChapError::OutOfTurn(Key::ChapAlgorithm));
                }
                let account = self.verify(algorithm, keys, accounts)?;
                self.answer(algorithm, keys, account, out)?;
                self.step = TargetStep::Done;
                Ok(Some(&account.initiator.name))
            }
            TargetStep::Done => Err(ChapError::OutOfTurn(Key::ChapResponse)),
        }
    }

    fn verify<'a>(
        &self,
        algorithm: ChapAlgorithm,
        keys: &ChapKeys<'_>,
        accounts: &'a [ChapAccount],
    ) -> Result<&'a ChapAccount, ChapError> {
        let (name, response) = keys.proof()?;
        let Some(account) = accounts
            .iter()
            .find(|account| account.initiator.name == name)
        else {
            // The same work as for a known name, so that timing does not reveal names.
            let nobody = Secret::new(self.challenge.bytes.to_vec());
            let _ = self.challenge.is_answered_by(algorithm, &nobody, &response);
            return Err(ChapError::UnknownName);
        };
        if !self
            .challenge
            .is_answered_by(algorithm, &account.initiator.secret, &response)
        {
            return Err(ChapError::WrongResponse);
        }
        Ok(account)
    }

    /// Proves this side, if the initiator asks for it.
    fn answer(
        &self,
        algorithm: ChapAlgorithm,
        keys: &ChapKeys<'_>,
        account: &ChapAccount,
        out: &mut TextWriter,
    ) -> Result<(), ChapError> {
        let Some((identifier, challenge)) = keys.challenge()? else {
            return Ok(());
        };
        if challenge == self.challenge.bytes {
            return Err(ChapError::Reflected);
        }
        let own = account.target.as_ref().ok_or(ChapError::NoMutual)?;
        if own.secret.is_same(&account.initiator.secret) {
            return Err(ChapError::SharedSecret);
        }
        let response = algorithm.response(identifier, &own.secret, &challenge);
        out.push(Key::ChapName.name(), &own.name);
        out.push(Key::ChapResponse.name(), &encode_hex(&response));
        Ok(())
    }
}

/// The strongest algorithm of the initiator's list that the administrator allows, wherever it
/// stands: one who changes the list on its way cannot make a weak one come first.
fn strongest_common(offered: &str, allowed: &[ChapAlgorithm]) -> Result<ChapAlgorithm, ChapError> {
    let is_offered = |algorithm: &ChapAlgorithm| {
        let mut codes = offered.split(',').filter_map(parse_number);
        codes.any(|code| code == u32::from(algorithm.code()))
    };
    ChapAlgorithm::ALL
        .iter()
        .copied()
        .find(|algorithm| allowed.contains(algorithm) && is_offered(algorithm))
        .ok_or(ChapError::NoCommonAlgorithm)
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum InitiatorStep {
    Start,
    AwaitChallenge,
    AwaitProof(ChapAlgorithm),
    Done,
}

/// The initiator's side of one authentication.
#[derive(Debug)]
pub struct ChapInitiator {
    step: InitiatorStep,
    own: Credentials,
    /// Whom the target has to prove to be, if it has to.
    target: Option<Credentials>,
    challenge: Challenge,
    offered: Vec<ChapAlgorithm>,
}

impl ChapInitiator {
    /// An authentication about to begin. `target` makes it mutual.
    ///
    /// # Errors
    ///
    /// One secret serves both directions.
    pub fn new(
        own: Credentials,
        target: Option<Credentials>,
        offered: Vec<ChapAlgorithm>,
        challenge: Challenge,
    ) -> Result<Self, ChapError> {
        if target
            .as_ref()
            .is_some_and(|target| target.secret.is_same(&own.secret))
        {
            return Err(ChapError::SharedSecret);
        }
        Ok(Self {
            step: InitiatorStep::Start,
            own,
            target,
            challenge,
            offered,
        })
    }

    /// True once this side has answered and, if mutual, the target has proved itself.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.step == InitiatorStep::Done
    }

    /// True once this side has proved itself; only the target's own proof may be missing.
    #[must_use]
    pub const fn has_answered(&self) -> bool {
        matches!(
            self.step,
            InitiatorStep::AwaitProof(_) | InitiatorStep::Done
        )
    }

    /// Offers the algorithms.
    pub fn start(&mut self, out: &mut TextWriter) {
        let words: Vec<String> = self
            .offered
            .iter()
            .map(|algorithm| algorithm.code().to_string())
            .collect();
        out.push(Key::ChapAlgorithm.name(), &words.join(","));
        self.step = InitiatorStep::AwaitChallenge;
    }

    /// Takes the keys of one response and writes the answer.
    ///
    /// # Errors
    ///
    /// Authentication has failed; the connection is to be closed.
    pub fn handle(&mut self, keys: &ChapKeys<'_>, out: &mut TextWriter) -> Result<(), ChapError> {
        match self.step {
            InitiatorStep::AwaitChallenge => self.answer(keys, out),
            InitiatorStep::AwaitProof(algorithm) => {
                let expected = self.target.as_ref().ok_or(ChapError::MutualMissing)?;
                if keys.is_empty() {
                    return Err(ChapError::MutualMissing);
                }
                let (name, response) = keys.proof()?;
                if name != expected.name {
                    return Err(ChapError::UnknownName);
                }
                if !self
                    .challenge
                    .is_answered_by(algorithm, &expected.secret, &response)
                {
                    return Err(ChapError::WrongResponse);
                }
                self.step = InitiatorStep::Done;
                Ok(())
            }
            InitiatorStep::Start | InitiatorStep::Done => {
                Err(ChapError::OutOfTurn(Key::ChapAlgorithm))
            }
        }
    }

    fn answer(&mut self, keys: &ChapKeys<'_>, out: &mut TextWriter) -> Result<(), ChapError> {
        let chosen = keys
            .algorithms
            .ok_or(ChapError::OutOfTurn(Key::ChapAlgorithm))?;
        let algorithm = strongest_common(chosen, &self.offered)?;
        let (identifier, challenge) = keys
            .challenge()?
            .ok_or(ChapError::OutOfTurn(Key::ChapChallenge))?;
        let response = algorithm.response(identifier, &self.own.secret, &challenge);
        out.push(Key::ChapName.name(), &self.own.name);
        out.push(Key::ChapResponse.name(), &encode_hex(&response));
        if self.target.is_some() {
            if challenge == self.challenge.bytes {
                return Err(ChapError::Reflected);
            }
            self.challenge.write(out);
            self.step = InitiatorStep::AwaitProof(algorithm);
        } else {
            self.step = InitiatorStep::Done;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
