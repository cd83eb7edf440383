//! What of a unit outlives a restart: saved mode parameters, persistent reservations, and that the medium is out.
//!
//! Layout: magic, version, then sections, each with a tag (2 bytes), a length (4) and its body. All
//! numbers are big-endian.

use std::collections::BTreeSet;

use crate::spc::parameters::Modes;
use crate::spc::peripheral::Peripheral;
use crate::spc::reservation::{KeptError, Reservations};
use crate::spc::shared::Shared;

/// Why kept state cannot be used.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// It does not start as it must.
    #[error("not the state of a logical unit")]
    NotAState,
    /// Written by a later version of this program.
    #[error("the state is of version {got}, known is {known}")]
    Version {
        /// The version found.
        got: u8,
        /// The version this program writes.
        known: u8,
    },
    /// It has something that must not be left out and that this program does not know.
    #[error("the state has a section {tag} of a later version of this program")]
    Section {
        /// Its tag.
        tag: u16,
    },
    /// Its reservations were lost already, and nobody has replaced them.
    #[error("its reservations are lost")]
    Lost,
    /// It names a target port that nobody knows.
    #[error("the state names target port {port}, and nothing says which that is")]
    Port {
        /// Its relative identifier.
        port: u16,
    },
    /// The reservations in it cannot be used.
    #[error("the kept reservations cannot be used")]
    Reservations(#[source] KeptError),
}

/// Kept state, all numbers big-endian: these 8 bytes, the version in one, then sections. A section
/// is a tag in 2 bytes, the length of its body in 4, and the body; none stands twice. One whose tag
/// has the highest bit set may be skipped by a program that does not know it: so a new field costs
/// nobody what was kept before. What is not there is as at the first start.
///
/// Version 1 had no sections: the modes in one byte, then the reservations.
const MAGIC: &[u8; 8] = b"TARNUNIT";
const VERSION: u8 = 2;
const VERSION_WITHOUT_SECTIONS: u8 = 1;

/// The saved mode parameters, in one byte.
const TAG_MODES: u16 = 1;
/// The reservations, as [`Reservations::encode`] gives them.
const TAG_RESERVATIONS: u16 = 2;
/// The reservations are lost.
const TAG_LOST: u16 = 3;
const MAY_BE_SKIPPED: u16 = 0x8000;
/// The medium is out: an older release finds it in.
const TAG_EJECTED: u16 = MAY_BE_SKIPPED | 1;

/// What is kept.
pub(crate) struct Kept {
    pub(crate) modes: Modes,
    pub(crate) reservations: Reservations,
    /// The medium is out.
    pub(crate) is_out: bool,
}

pub(crate) fn encode(shared: &Shared) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.push(VERSION);
    append_section(&mut bytes, TAG_MODES, &[shared.saved_modes.to_byte()]);
    append_section(&mut bytes, TAG_RESERVATIONS, &shared.reservations.encode());
    if shared.reservations.lost_sense().is_some() {
        append_section(&mut bytes, TAG_LOST, &[]);
    }
    if shared.is_kept_out() {
        append_section(&mut bytes, TAG_EJECTED, &[]);
    }
    bytes
}

fn append_section(bytes: &mut Vec<u8>, tag: u16, body: &[u8]) {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&tag.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(body);
}

/// Tag and body of the first section, and all after it.
fn next_section(bytes: &[u8]) -> Result<(u16, &[u8], &[u8]), RestoreError> {
    let (head, rest) = bytes
        .split_first_chunk::<6>()
        .ok_or(RestoreError::NotAState)?;
    let [a, b, length @ ..] = *head;
    let tag = u16::from_be_bytes([a, b]);
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    let (body, rest) = rest
        .split_at_checked(length)
        .ok_or(RestoreError::NotAState)?;
    Ok((tag, body, rest))
}

/// Whether [`Owner::new`] could start from this.
///
/// # Errors
///
/// Why not.
pub fn check_kept_state(bytes: &[u8]) -> Result<(), RestoreError> {
    parse(bytes).map(drop)
}

/// The relative identifiers of the target ports that registrations in kept state have.
///
/// # Errors
///
/// It cannot be used.
pub fn ports_of_kept_state(bytes: &[u8]) -> Result<BTreeSet<u16>, RestoreError> {
    let mut ports = BTreeSet::new();
    with_ports_of_kept_state(bytes, |port| {
        ports.insert(port);
        Some(port)
    })?;
    Ok(ports)
}

/// The same state with other relative identifiers of target ports: those of another device, which `number` gives. It
/// gives each another one.
///
/// # Errors
///
/// It cannot be used, or there is none for a port.
pub fn with_ports_of_kept_state(
    bytes: &[u8],
    mut number: impl FnMut(u16) -> Option<u16>,
) -> Result<Vec<u8>, RestoreError> {
    let head = MAGIC.len().saturating_add(1);
    let (head, mut rest) = bytes
        .split_at_checked(head)
        .ok_or(RestoreError::NotAState)?;
    match head.strip_prefix(MAGIC) {
        Some([VERSION]) => {}
        Some([got]) => {
            let (got, known) = (*got, VERSION);
            return Err(RestoreError::Version { got, known });
        }
        Some(_) | None => return Err(RestoreError::NotAState),
    }
    let mut changed = head.to_vec();
    while !rest.is_empty() {
        let (tag, body, after) = next_section(rest)?;
        match tag {
            TAG_RESERVATIONS => {
                let record = Reservations::decode(body).map_err(RestoreError::Reservations)?;
                let record = record.with_ports(&mut number);
                let record = record.map_err(|port| RestoreError::Port { port })?;
                append_section(&mut changed, tag, &record.encode());
            }
            tag => append_section(&mut changed, tag, body),
        }
        rest = after;
    }
    Ok(changed)
}

pub(crate) fn decode(bytes: &[u8], device: &impl Peripheral) -> Result<Kept, RestoreError> {
    let (modes, reservations, is_out) = parse(bytes)?;
    let modes = match modes {
        Some(modes) => Modes::from_byte(modes, device.changeable_modes()),
        None => device.default_modes(),
    };
    Ok(Kept {
        modes,
        reservations,
        is_out,
    })
}

/// The byte of the saved modes, if it is there, the reservations, and whether the medium is out.
fn parse(bytes: &[u8]) -> Result<(Option<u8>, Reservations, bool), RestoreError> {
    let body = bytes.strip_prefix(MAGIC).ok_or(RestoreError::NotAState)?;
    let (&version, body) = body.split_first().ok_or(RestoreError::NotAState)?;
    let Sections {
        modes,
        reservations,
        ejected,
    } = match version {
        VERSION_WITHOUT_SECTIONS => {
            let (modes, reservations) = body.split_at_checked(1).ok_or(RestoreError::NotAState)?;
            Sections {
                modes: Some(modes),
                reservations: Some(reservations),
                ejected: None,
            }
        }
        VERSION => sections(body)?,
        got => {
            let known = VERSION;
            return Err(RestoreError::Version { got, known });
        }
    };
    let modes = match modes {
        Some(&[modes]) => Some(modes),
        Some(_) => return Err(RestoreError::NotAState),
        None => None,
    };
    let reservations = match reservations {
        Some(record) => Reservations::decode(record).map_err(RestoreError::Reservations)?,
        None => Reservations::default(),
    };
    Ok((modes, reservations, ejected.is_some()))
}

/// The bodies of the sections.
#[derive(Default)]
struct Sections<'a> {
    modes: Option<&'a [u8]>,
    reservations: Option<&'a [u8]>,
    ejected: Option<&'a [u8]>,
}

fn sections(mut bytes: &[u8]) -> Result<Sections<'_>, RestoreError> {
    let mut found = Sections::default();
    while !bytes.is_empty() {
        let (tag, body, rest) = next_section(bytes)?;
        let before = match tag {
            TAG_MODES => found.modes.replace(body),
            TAG_RESERVATIONS => found.reservations.replace(body),
            TAG_EJECTED => found.ejected.replace(body),
            TAG_LOST => return Err(RestoreError::Lost),
            tag if tag & MAY_BE_SKIPPED != 0 => None,
            tag => return Err(RestoreError::Section { tag }),
        };
        if before.is_some() {
            return Err(RestoreError::NotAState);
        }
        bytes = rest;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// State with these sections.
    fn state(sections: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = [MAGIC.as_slice(), &[VERSION]].concat();
        for (tag, body) in sections {
            append_section(&mut bytes, *tag, body);
        }
        bytes
    }

    #[test]
    fn sections_that_have_no_ports_stay_as_they_are() {
        let none = Reservations::default().encode();
        let whole = state(&[
            (TAG_MODES, &[4]),
            (TAG_RESERVATIONS, &none),
            (TAG_LOST, &[]),
            (MAY_BE_SKIPPED | 9, b"later"),
        ]);
        assert_eq!(
            with_ports_of_kept_state(&whole, |_| None),
            Ok(whole.clone())
        );
        assert_eq!(ports_of_kept_state(&whole), Ok(BTreeSet::new()));
        assert_eq!(ports_of_kept_state(&state(&[])), Ok(BTreeSet::new()));
    }

    #[test]
    fn what_is_no_state_has_no_ports() {
        let whole = state(&[(TAG_MODES, &[4])]);
        for length in (0..whole.len()).filter(|&length| length != MAGIC.len() + 1) {
            let cut = ports_of_kept_state(&whole[..length]);
            assert_eq!(cut, Err(RestoreError::NotAState), "{length} bytes");
        }
        let mut later = whole.clone();
        later[MAGIC.len()] = 3;
        let version = RestoreError::Version { got: 3, known: 2 };
        assert_eq!(ports_of_kept_state(&later), Err(version));
        let damaged = state(&[(TAG_RESERVATIONS, b"x")]);
        let damaged = ports_of_kept_state(&damaged);
        assert!(matches!(damaged, Err(RestoreError::Reservations(_))));
    }
}
