//! What of a unit outlives a restart: saved mode parameters and persistent reservations.
//!
//! Layout: magic, version, then sections, each with a tag (2 bytes), a length (4) and its body. All
//! numbers are big-endian.

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

pub(crate) fn encode(shared: &Shared) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.push(VERSION);
    let mut section = |tag: u16, body: &[u8]| {
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&tag.to_be_bytes());
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(body);
    };
    section(TAG_MODES, &[shared.saved_modes.to_byte()]);
    section(TAG_RESERVATIONS, &shared.reservations.encode());
    if shared.reservations.lost_sense().is_some() {
        section(TAG_LOST, &[]);
    }
    bytes
}

/// Whether [`Owner::new`] could start from this.
///
/// # Errors
///
/// Why not.
pub fn check_kept_state(bytes: &[u8]) -> Result<(), RestoreError> {
    parse(bytes).map(drop)
}

pub(crate) fn decode(
    bytes: &[u8],
    device: &impl Peripheral,
) -> Result<(Modes, Reservations), RestoreError> {
    let (modes, reservations) = parse(bytes)?;
    let modes = match modes {
        Some(modes) => Modes::from_byte(modes, device.changeable_modes()),
        None => device.default_modes(),
    };
    Ok((modes, reservations))
}

/// The byte of the saved modes, if it is there, and the reservations.
fn parse(bytes: &[u8]) -> Result<(Option<u8>, Reservations), RestoreError> {
    let body = bytes.strip_prefix(MAGIC).ok_or(RestoreError::NotAState)?;
    let (&version, body) = body.split_first().ok_or(RestoreError::NotAState)?;
    let (modes, reservations) = match version {
        VERSION_WITHOUT_SECTIONS => {
            let (modes, reservations) = body.split_at_checked(1).ok_or(RestoreError::NotAState)?;
            (Some(modes), Some(reservations))
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
    Ok((modes, reservations))
}

/// The bodies of the sections for modes and reservations.
type Sections<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

fn sections(mut bytes: &[u8]) -> Result<Sections<'_>, RestoreError> {
    let (mut modes, mut reservations) = (None, None);
    while let Some((head, rest)) = bytes.split_first_chunk::<6>() {
        let [a, b, length @ ..] = *head;
        let tag = u16::from_be_bytes([a, b]);
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        let (body, rest) = rest
            .split_at_checked(length)
            .ok_or(RestoreError::NotAState)?;
        let before = match tag {
            TAG_MODES => modes.replace(body),
            TAG_RESERVATIONS => reservations.replace(body),
            TAG_LOST => return Err(RestoreError::Lost),
            tag if tag & MAY_BE_SKIPPED != 0 => None,
            tag => return Err(RestoreError::Section { tag }),
        };
        if before.is_some() {
            return Err(RestoreError::NotAState);
        }
        bytes = rest;
    }
    if bytes.is_empty() {
        Ok((modes, reservations))
    } else {
        Err(RestoreError::NotAState)
    }
}
