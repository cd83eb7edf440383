//! What is said of the disc: one session, one data track, nothing behind it.
//!
//! Spec: MMC-6, READ TOC/PMA/ATIP, READ DISC INFORMATION, READ TRACK INFORMATION, READ DISC STRUCTURE, REPORT KEY,
//! MECHANISM STATUS.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use super::{BLOCK_BYTES, Disc};
use crate::sam::cdb::Cdb;
use crate::sam::sense::{Sense, SenseCode};
use crate::spc::shared::Shared;

/// Q sub-channel with the position, and a data track that was recorded without interruption.
const DATA_TRACK: u8 = 0x14;
const LEAD_OUT: u8 = 0xaa;
/// Blocks before the first one, by time.
const PREGAP: u32 = 150;
const FRAMES: u32 = 75;
const SECONDS: u32 = 60;
/// Times end here; a DVD goes on.
const LAST_TIME: u32 = 100 * SECONDS * FRAMES - 1;

/// An address by time: minute, second, frame.
pub(super) struct Msf;

impl Msf {
    /// The block at the time in these three bytes of the CDB.
    pub(super) fn of(cdb: &Cdb, at: usize) -> Result<u32, Sense> {
        let [minute, second, frame] =
            [0, 1, 2].map(|byte| u32::from(cdb.u8(at.saturating_add(byte))));
        let wrong = || Sense::invalid_byte_in_cdb(u16::try_from(at).unwrap_or(0));
        if minute >= 100 || second >= SECONDS || frame >= FRAMES {
            return Err(wrong());
        }
        let seconds = minute.saturating_mul(SECONDS).saturating_add(second);
        let time = seconds.saturating_mul(FRAMES).saturating_add(frame);
        time.checked_sub(PREGAP).ok_or_else(wrong)
    }

    /// The time of a block, in the last three bytes.
    fn bytes(block: u32) -> [u8; 4] {
        let time = block.saturating_add(PREGAP).min(LAST_TIME);
        let part = |value: u32| u8::try_from(value).unwrap_or(0);
        let seconds = time.checked_div(FRAMES).unwrap_or(0);
        [
            0,
            part(seconds.checked_div(SECONDS).unwrap_or(0)),
            part(seconds.checked_rem(SECONDS).unwrap_or(0)),
            part(time.checked_rem(FRAMES).unwrap_or(0)),
        ]
    }
}

/// Parameter data with the length of what follows in its first two bytes.
fn counted(body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes()[..], body].concat()
}

pub(super) fn table_of_contents(cdb: &Cdb, disc: Disc) -> Result<Vec<u8>, Sense> {
    const TIME: u8 = 0x02;
    const FORMATTED: u8 = 0;
    const SESSIONS: u8 = 1;
    const RAW: u8 = 2;
    let address = |block: u32| match cdb.has(1, TIME) {
        true => Msf::bytes(block),
        false => block.to_be_bytes(),
    };
    let first = cdb.u8(6);
    let body = match cdb.u8(2) {
        FORMATTED => {
            let mut body = vec![1, 1];
            if first > 1 && first != LEAD_OUT {
                return Err(Sense::invalid_byte_in_cdb(6));
            }
            for (track, block) in [(1, 0), (LEAD_OUT, disc.blocks())] {
                if track >= first {
                    body.extend_from_slice(&[0, DATA_TRACK, track, 0]);
                    body.extend_from_slice(&address(block));
                }
            }
            body
        }
        SESSIONS => [&[1, 1, 0, DATA_TRACK, 1, 0][..], &address(0)].concat(),
        RAW if first > 1 => return Err(Sense::invalid_byte_in_cdb(6)),
        RAW => raw(disc),
        _ => return Err(Sense::invalid_field_in_cdb(2, 3)),
    };
    Ok(counted(&body))
}

/// The lead-in, entry by entry. Its times are times whatever was asked for.
fn raw(disc: Disc) -> Vec<u8> {
    const FIRST_TRACK: u8 = 0xa0;
    const LAST_TRACK: u8 = 0xa1;
    const LEAD_OUT_START: u8 = 0xa2;
    let [_, minute, second, frame] = Msf::bytes(disc.blocks());
    let [_, m, s, f] = Msf::bytes(0);
    let mut body = vec![1, 1];
    for (point, time) in [
        (FIRST_TRACK, [1, 0, 0]),
        (LAST_TRACK, [1, 0, 0]),
        (LEAD_OUT_START, [minute, second, frame]),
        (1, [m, s, f]),
    ] {
        body.extend_from_slice(&[1, DATA_TRACK, 0, point, 0, 0, 0, 0]);
        body.extend_from_slice(&time);
    }
    body
}

pub(super) fn disc_information(cdb: &Cdb) -> Result<Vec<u8>, Sense> {
    /// Session and disc are complete; it cannot be erased.
    const COMPLETE: u8 = 0x0e;
    /// URU: for every use.
    const UNRESTRICTED: u8 = 0x20;
    if cdb.u8(1) & 0x07 != 0 {
        return Err(Sense::invalid_field_in_cdb(1, 2));
    }
    let mut body = vec![COMPLETE, 1, 1, 1, 1, UNRESTRICTED, 0, 0, 0, 0];
    body.extend_from_slice(&[0; 4]);
    // Where the next session would begin and end: nowhere.
    body.extend_from_slice(&[0xff; 8]);
    body.extend_from_slice(&[0; 10]);
    Ok(counted(&body))
}

pub(super) fn track_information(cdb: &Cdb, disc: Disc) -> Result<Vec<u8>, Sense> {
    const BY_BLOCK: u8 = 0b00;
    const BY_TRACK: u8 = 0b01;
    const BY_SESSION: u8 = 0b10;
    /// Of data, recorded without interruption; blocks of mode 1.
    const MODE: [u8; 2] = [0x04, 0x01];
    let number = u32::from(cdb.u16(2)) << 16 | u32::from(cdb.u16(4));
    let is_there = match cdb.u8(1) & 0x07 {
        BY_BLOCK => number < disc.blocks(),
        BY_TRACK | BY_SESSION => number == 1,
        _ => return Err(Sense::invalid_field_in_cdb(1, 2)),
    };
    if !is_there {
        return Err(Sense::invalid_byte_in_cdb(2));
    }
    let [track_mode, data_mode] = MODE;
    let mut body = vec![1, 1, 0, track_mode, data_mode, 0];
    body.extend_from_slice(&[0; 16]);
    body.extend_from_slice(&disc.blocks().to_be_bytes());
    body.extend_from_slice(&disc.blocks().saturating_sub(1).to_be_bytes());
    body.resize(34, 0);
    Ok(counted(&body))
}

pub(super) fn disc_structure(cdb: &Cdb, disc: Disc) -> Result<Vec<u8>, Sense> {
    const DVD: u8 = 0;
    const PHYSICAL: u8 = 0x00;
    const COPYRIGHT: u8 = 0x01;
    const MANUFACTURER: u8 = 0x04;
    if cdb.u8(1) & 0x0f != DVD {
        return Err(Sense::invalid_field_in_cdb(1, 3));
    }
    let Disc::Dvd { blocks } = disc else {
        let code = SenseCode::CANNOT_READ_MEDIUM_INCOMPATIBLE_FORMAT;
        return Err(Sense::illegal_request(code));
    };
    if cdb.u8(6) != 0 {
        // There is one layer.
        return Err(Sense::invalid_byte_in_cdb(6));
    }
    let data = match cdb.u8(7) {
        PHYSICAL => physical(blocks),
        // Protected by nothing, for all regions.
        COPYRIGHT => vec![0; 4],
        MANUFACTURER => vec![0; BLOCK_BYTES as usize],
        _ => return Err(Sense::invalid_byte_in_cdb(7)),
    };
    Ok(counted(&[&[0, 0][..], &data].concat()))
}

/// Physical format information: DVD-ROM, one layer of 120 mm that was embossed.
fn physical(blocks: u32) -> Vec<u8> {
    /// Where the data of a DVD begin, as the disc counts.
    const START: u32 = 0x0003_0000;
    let last = START.saturating_add(blocks).saturating_sub(1);
    let mut data = vec![0x01, 0x0f, 0x01, 0x00];
    for sector in [START, last, 0] {
        data.extend_from_slice(&sector.to_be_bytes());
    }
    data.resize(BLOCK_BYTES as usize, 0);
    data
}

/// Discs have no keys: the drive has no region and gives no key.
pub(super) fn report_key(cdb: &Cdb) -> Result<Vec<u8>, Sense> {
    const REGION: u8 = 0x08;
    const INVALIDATE: u8 = 0x3f;
    if cdb.u8(7) != 0 {
        return Err(Sense::invalid_byte_in_cdb(7));
    }
    match cdb.u8(10) & 0x3f {
        REGION => Ok(counted(&[0, 0, 0, 0, 0, 0])),
        INVALIDATE => Ok(Vec::new()),
        _ => {
            let code = SenseCode::COPY_PROTECTION_KEY_NOT_PRESENT;
            Err(Sense::illegal_request(code))
        }
    }
}

pub(super) fn mechanism_status(shared: &Shared) -> Vec<u8> {
    const DOOR_OPEN: u8 = 0x10;
    let door = if shared.is_open() { DOOR_OPEN } else { 0 };
    vec![0, door, 0, 0, 0, 0, 0, 0]
}
