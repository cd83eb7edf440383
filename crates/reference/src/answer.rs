//! Answers that a state allows, and whether what was seen is one of them.

use crate::command::number;
use crate::mode::{Mode, mode_pages};
use crate::types::Outcome;

/// What a command may be answered with.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Answer {
    /// This unit attention.
    Attention(u16),
    /// RESERVATION CONFLICT.
    Conflict,
    /// This sense key, ASC and ASCQ; an ASCQ of FFh stands for all.
    Check(u8, u16),
    /// ILLEGAL REQUEST, for a field of the CDB or of the parameter list.
    Refused,
    /// It works on the medium: GOOD, CONDITION MET or MISCOMPARE, as the medium says.
    Go,
    /// GOOD.
    Done,
    /// GOOD with this data, as far as it goes.
    Data(Vec<u8>),
    /// GOOD with these mode parameters and WP.
    Mode(Mode, bool),
    /// GOOD with sense data as data: of this unit attention, or of none.
    Sense(Option<u16>),
    /// GOOD with PRGENERATION and these keys, in any order.
    Keys(u32, Vec<(u64, u8)>),
    /// GOOD with PRGENERATION and these registrations: key, and type if it holds the reservation.
    FullStatus(u32, Vec<(u64, u8)>),
    /// Everything.
    Anything,
    /// An event happened, or was refused.
    Happens(bool),
    /// It was refused because initiators prevent it.
    Prevented,
}

/// Sense key and additional sense code of sense data in either format.
pub(crate) fn sense(bytes: &[u8]) -> Option<(u8, u16)> {
    let code = |asc: u8, ascq: u8| u16::from_be_bytes([asc, ascq]);
    match bytes {
        [
            0x70 | 0xf0,
            _,
            key,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            asc,
            ascq,
            ..,
        ] => Some((key & 0xf, code(*asc, *ascq))),
        [0x72, key, asc, ascq, ..] => Some((key & 0xf, code(*asc, *ascq))),
        _ => None,
    }
}

impl Answer {
    /// Whether this is what was seen, apart from the data of the medium. `short`: a command of 6 bytes.
    pub(crate) fn allows(&self, outcome: &Outcome<'_>, cdb: &[u8; 16]) -> bool {
        let sensed = sense(outcome.sense).filter(|_| outcome.status == 0x02);
        let is_good = outcome.status == 0;
        let data = outcome.data_in;
        match self {
            Self::Attention(code) => {
                sensed.is_some_and(|seen| seen.0 == 6 && is_reported_as(*code, seen.1))
            }
            Self::Conflict => outcome.status == 0x18,
            Self::Check(key, code) => {
                sensed.is_some_and(|seen| seen.0 == *key && is_code(*code, seen.1))
            }
            Self::Refused => sensed.is_some_and(|seen| {
                seen.0 == 5 && matches!(seen.1 >> 8, 0x24 | 0x26 | 0x1a | 0x0e)
            }),
            Self::Go => {
                is_good || outcome.status == 0x04 || sensed.is_some_and(|seen| seen.0 == 0x0e)
            }
            Self::Done => is_good,
            Self::Data(wanted) => {
                is_good && data.iter().zip(wanted).all(|(seen, wanted)| seen == wanted)
            }
            Self::Mode(mode, is_protected) => is_good && mode.is_shown_by(*is_protected, data, cdb),
            Self::Sense(owed) => is_good && is_sense_of(*owed, data),
            Self::Keys(generation, keys) => is_good && lists(*generation, keys, data, false),
            Self::FullStatus(generation, keys) => is_good && lists(*generation, keys, data, true),
            Self::Anything => true,
            Self::Happens(_) | Self::Prevented => false,
        }
    }
}

const fn is_code(wanted: u16, seen: u16) -> bool {
    wanted == seen || wanted & 0xff == 0xff && wanted >> 8 == seen >> 8
}

/// The first attention of a nexus may name what came before it.
const fn is_reported_as(owed: u16, seen: u16) -> bool {
    owed == seen || owed == 0x2900 && seen >> 8 == 0x29
}

/// Sense data that REQUEST SENSE gave: of an attention, or of none, perhaps cut short.
fn is_sense_of(owed: Option<u16>, data: &[u8]) -> bool {
    match (sense(data), owed) {
        (None, _) => data.len() < 14,
        (Some((key, code)), Some(owed)) => key == 6 && is_reported_as(owed, code),
        // A unit that is not ready says so.
        (Some((key, _)), None) => key == 0 || key == 2,
    }
}

impl Mode {
    /// Compares the current values of a MODE SENSE with these.
    fn is_shown_by(self, is_protected: bool, data: &[u8], cdb: &[u8; 16]) -> bool {
        let is_short = cdb[0] == 0x1a;
        let parameter = data.get(if is_short { 2 } else { 3 });
        let is_current = cdb[2] >> 6 == 0;
        let agrees = |page: &[u8], at: usize, mask: u8, wanted: bool| {
            page.get(at).is_none_or(|byte| (byte & mask != 0) == wanted)
        };
        parameter.is_none_or(|byte| (byte & 0x80 != 0) == is_protected)
            && mode_pages(data, is_short)
                .iter()
                .filter(|_| is_current)
                .all(|(code, page)| match code {
                    0x08 => agrees(page, 2, 0x04, self.write_cache),
                    0x0a => {
                        agrees(page, 2, 0x04, self.descriptor_sense)
                            && agrees(page, 4, 0x08, self.write_protect)
                    }
                    _ => true,
                })
    }
}

/// Whether PERSISTENT RESERVE IN gave these registrations, as far as its data goes.
fn lists(generation: u32, wanted: &[(u64, u8)], data: &[u8], is_full: bool) -> bool {
    let whole = |at: usize, end: usize| data.get(at..end).map(number);
    let mut at = 8;
    let mut seen = Vec::new();
    while let Some(key) = whole(at, at + 8) {
        let holds = data
            .get(at + 12)
            .is_some_and(|flags| is_full && flags & 1 != 0);
        let kind = data
            .get(at + 13)
            .filter(|_| holds)
            .map_or(0, |kind| kind & 0xf);
        seen.push((key, kind));
        let Some(more) = (if is_full {
            whole(at + 20, at + 24)
        } else {
            Some(0)
        }) else {
            break;
        };
        at += if is_full {
            24 + usize::try_from(more).unwrap_or(data.len())
        } else {
            8
        };
    }
    let length = whole(4, 8).and_then(|length| usize::try_from(length).ok());
    let is_whole = length.is_none_or(|length| data.len() >= 8 + length);
    let mut left = wanted.to_vec();
    let are_known = seen.iter().all(|entry| {
        let found = left.iter().position(|wanted| wanted == entry);
        found.map(|found| left.swap_remove(found)).is_some()
    });
    let count_fits = length.is_none_or(|length| is_full || length == 8 * wanted.len());
    are_known
        && count_fits
        && (!is_whole || length.is_none() || left.is_empty())
        && whole(0, 4).is_none_or(|seen| seen == u64::from(generation))
}
