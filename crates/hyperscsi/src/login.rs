//! From a question of a client to a session: two round trips, repeated by the client until they are answered.
//!
//! ```text
//! client                                   target
//! 1 names, cookie, offer, first   ->
//!                                 <-   0 cookie                where the cookie was not right
//!                                 <-   2 server, answer
//! 3 last                          ->
//!                                 <-   4 sealed: terms
//! ```
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

mod client;
mod gate;

pub use client::{Login, LoginError, LoginProgress};
pub use gate::{Accepted, Gate, GateSettings, Proved, Unproved};

use crate::bytes::{Reader, put_name};
use crate::limits::{FRAME_LEAST_BYTES, GROUP_NAME_MAX_BYTES, NAME_MAX_BYTES, SLOTS_MAX};
use crate::link::Terms;
use crate::path::Profile;

/// Requests are at least so long, so that no answer is longer. In bytes after the Ethernet header.
pub const REQUEST_BYTES: usize = 640;
/// The suite of RFC 9807, and ChaCha20-Poly1305 and BLAKE3 for a session; a frame carries one PDU.
const SUITE_SINGLE: u16 = 1;
/// The same; a frame may carry several PDUs, and acknowledgements may be short. (2 was the former alone.)
const SUITE_BUNDLES: u16 = 4;
/// The messages of the exchange, in bytes, at most.
const MESSAGE_MAX_BYTES: usize = 400;

const _: () = assert!(
    3 + 21 + 1 + 16 + 8 + 16 + 2 + 10 + 65 + 65 + 2 + MESSAGE_MAX_BYTES + 4
        <= FRAME_LEAST_BYTES as usize,
    "a request fits every path"
);

/// What a client wants, and what it has room for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Wish {
    /// The client: a random number, the same as long as it runs.
    pub client: [u8; 16],
    /// The group.
    pub group: String,
    /// The user, if it is not the group's password.
    pub user: Option<String>,
    /// Commands under way.
    pub slots: u16,
    /// Frames that the target may have under way.
    pub window: u16,
    /// PDUs that the target may have begun, in bytes.
    pub begun_bytes: u32,
    /// The largest frame, in bytes after the Ethernet header.
    pub frame_bytes_max: u16,
    /// A frame may carry several PDUs, and acknowledgements may be short, if the target can read that.
    pub bundles: bool,
}

impl Wish {
    /// The name that the password belongs to: kind, group and user.
    #[must_use]
    pub fn credential(group: &str, user: Option<&str>) -> Vec<u8> {
        let mut name = vec![u8::from(user.is_some())];
        put_name(&mut name, group);
        name.extend(user.unwrap_or_default().bytes());
        name
    }

    /// What a client offers.
    const fn suites(&self) -> u16 {
        match self.bundles {
            true => SUITE_SINGLE | SUITE_BUNDLES,
            false => SUITE_SINGLE,
        }
    }

    /// What a target takes of that.
    const fn suite(&self) -> u16 {
        match self.bundles {
            true => SUITE_BUNDLES,
            false => SUITE_SINGLE,
        }
    }
}

/// A message of a login.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Message {
    Cookie {
        nonce: [u8; 8],
        cookie: [u8; 16],
    },
    First {
        nonce: [u8; 8],
        cookie: [u8; 16],
        wish: Wish,
        message: Vec<u8>,
    },
    Answer {
        nonce: [u8; 8],
        server: [u8; 16],
        suite: u16,
        login: u32,
        message: Vec<u8>,
    },
    Last {
        nonce: [u8; 8],
        login: u32,
        message: Vec<u8>,
    },
    Accepted {
        nonce: [u8; 8],
        sealed: Vec<u8>,
    },
}

impl Message {
    fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        match self {
            Self::Cookie { nonce, cookie } => {
                body.push(0);
                body.extend(nonce);
                body.extend(cookie);
            }
            Self::First {
                nonce,
                cookie,
                wish,
                message,
            } => {
                body.push(1);
                body.extend(nonce);
                body.extend(cookie);
                body.extend(wish.client);
                body.extend(wish.suites().to_be_bytes());
                body.extend(wish.slots.to_be_bytes());
                body.extend(wish.window.to_be_bytes());
                body.extend(wish.begun_bytes.to_be_bytes());
                body.extend(wish.frame_bytes_max.to_be_bytes());
                put_name(&mut body, &wish.group);
                match &wish.user {
                    Some(user) => put_name(&mut body, user),
                    None => body.push(0),
                }
                body.extend(message);
            }
            Self::Answer {
                nonce,
                server,
                suite,
                login,
                message,
            } => {
                body.push(2);
                body.extend(nonce);
                body.extend(server);
                body.extend(suite.to_be_bytes());
                body.extend(login.to_be_bytes());
                body.extend(message);
            }
            Self::Last {
                nonce,
                login,
                message,
            } => {
                body.push(3);
                body.extend(nonce);
                body.extend(login.to_be_bytes());
                body.extend(message);
            }
            Self::Accepted { nonce, sealed } => {
                body.push(4);
                body.extend(nonce);
                body.extend(sealed);
            }
        }
        body
    }

    fn decode(body: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        let (step, nonce) = (reader.u8()?, reader.array()?);
        let message = |reader: Reader<'_>| {
            let rest = reader.rest();
            (rest.len() <= MESSAGE_MAX_BYTES).then(|| rest.to_vec())
        };
        Some(match step {
            0 => Self::Cookie {
                nonce,
                cookie: reader.array()?,
            },
            1 => {
                let (cookie, client) = (reader.array()?, reader.array()?);
                let suites = read_suites(&mut reader)?;
                let (slots, window) = (reader.u16()?, reader.u16()?);
                let (begun_bytes, frame_bytes_max) = (reader.u32()?, reader.u16()?);
                let group = reader.name(GROUP_NAME_MAX_BYTES)?.to_owned();
                let user = if reader.rest().first() == Some(&0) {
                    reader.u8()?;
                    None
                } else {
                    Some(reader.name(NAME_MAX_BYTES)?.to_owned())
                };
                let is_sound = (2..=SLOTS_MAX).contains(&slots)
                    && begun_bytes >= crate::limits::PDU_MAX_BYTES
                    && frame_bytes_max >= FRAME_LEAST_BYTES;
                is_sound.then_some(())?;
                let wish = Wish {
                    client,
                    group,
                    user,
                    slots,
                    window,
                    begun_bytes,
                    frame_bytes_max,
                    bundles: suites & SUITE_BUNDLES != 0,
                };
                Self::First {
                    nonce,
                    cookie,
                    wish,
                    message: message(reader)?,
                }
            }
            2 => Self::Answer {
                nonce,
                server: reader.array()?,
                suite: read_suites(&mut reader).filter(|suite| suite.is_power_of_two())?,
                login: reader.u32()?,
                message: message(reader)?,
            },
            3 => Self::Last {
                nonce,
                login: reader.u32()?,
                message: message(reader)?,
            },
            4 => Self::Accepted {
                nonce,
                sealed: message(reader)?,
            },
            _ => return None,
        })
    }
}

/// A mask of suites, at least one of which is known.
fn read_suites(reader: &mut Reader<'_>) -> Option<u16> {
    let suites = reader.u16();
    suites.filter(|suites| suites & (SUITE_SINGLE | SUITE_BUNDLES) != 0)
}

/// The body of a first step, for tests of any bytes.
pub(crate) fn sample(message: &[u8]) -> Vec<u8> {
    Message::First {
        nonce: [1; 8],
        cookie: [2; 16],
        wish: Wish {
            client: [3; 16],
            group: "ABC".to_owned(),
            user: None,
            slots: 8,
            window: 64,
            begun_bytes: 4 << 20,
            frame_bytes_max: 1500,
            bundles: true,
        },
        message: message.to_vec(),
    }
    .encode()
}

/// What both ends said, up to the exchange's answer: nobody can change a word of it unnoticed.
fn context(first: &[u8], suite: u16, server: &[u8; 16], login: u32) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("tarn hyperscsi login context");
    hasher.update(&suite.to_be_bytes());
    hasher.update(server);
    hasher.update(&login.to_be_bytes());
    hasher.update(first);
    *hasher.finalize().as_bytes()
}

/// The terms as they stand in the last step, from the target to the client.
fn encode_terms(terms: &Terms) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend(terms.session.to_be_bytes());
    bytes.extend(terms.first_tag.to_be_bytes());
    bytes.extend(terms.slots.to_be_bytes());
    bytes.extend(terms.peer_window.to_be_bytes());
    bytes.extend(terms.peer_begun_bytes.to_be_bytes());
    bytes.extend(terms.frame_bytes_max.to_be_bytes());
    bytes.push(terms.profile.to_wire());
    bytes
}

/// `None` if there is no place for the session.
fn decode_terms(bytes: &[u8], suite: u16) -> Option<Option<Terms>> {
    let mut reader = Reader::new(bytes);
    if reader.u8()? != 0 {
        return Some(None);
    }
    let terms = Terms {
        session: reader.u32()?,
        first_tag: reader.u16()?,
        slots: reader.u16()?,
        peer_window: reader.u16()?,
        peer_begun_bytes: reader.u32()?,
        frame_bytes_max: reader.u16()?,
        profile: Profile::from_wire(reader.u8()?)?,
        bundles: suite == SUITE_BUNDLES,
    };
    let is_sound = (2..=SLOTS_MAX).contains(&terms.slots)
        && terms.first_tag > 0
        && terms.first_tag.checked_add(terms.slots)? < crate::limits::TAGS
        && terms.peer_begun_bytes >= crate::limits::PDU_MAX_BYTES
        && terms.frame_bytes_max >= FRAME_LEAST_BYTES;
    is_sound.then_some(Some(terms))
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests;
