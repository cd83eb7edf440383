//! GET CONFIGURATION: what the drive can do, with and without what is in it.
//!
//! Spec: MMC-6, Features and profiles; GET CONFIGURATION.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use super::{BLOCK_BYTES, Disc};
use crate::sam::cdb::Cdb;
use crate::sam::sense::Sense;

const CD_ROM: u16 = 0x0008;
const DVD_ROM: u16 = 0x0010;

/// A feature: its code, its version, and whether it is there whatever is in the drive.
struct Feature {
    code: u16,
    version: u8,
    is_persistent: bool,
    is_current: bool,
    data: Vec<u8>,
}

impl Feature {
    const fn persistent(code: u16, version: u8, data: Vec<u8>) -> Self {
        Self {
            code,
            version,
            is_persistent: true,
            is_current: true,
            data,
        }
    }

    const fn of_medium(code: u16, version: u8, is_current: bool, data: Vec<u8>) -> Self {
        Self {
            code,
            version,
            is_persistent: false,
            is_current,
            data,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let flags = self.version << 2 | u8::from(self.is_persistent) << 1;
        let length = u8::try_from(self.data.len()).unwrap_or(u8::MAX);
        let [high, low] = self.code.to_be_bytes();
        let mut bytes = vec![high, low, flags | u8::from(self.is_current), length];
        bytes.extend_from_slice(&self.data);
        bytes
    }
}

fn features(disc: Option<Disc>) -> Vec<Feature> {
    let is_cd = matches!(disc, Some(Disc::Cd { .. }));
    let is_dvd = matches!(disc, Some(Disc::Dvd { .. }));
    let profile = |code: u16, is_current: bool| {
        let [high, low] = code.to_be_bytes();
        [high, low, u8::from(is_current), 0]
    };
    let profiles = [profile(DVD_ROM, is_dvd), profile(CD_ROM, is_cd)].concat();
    // The blocks of a DVD are corrected together by sixteen.
    let blocking = if is_dvd { 16 } else { 1 };
    let readable = [&BLOCK_BYTES.to_be_bytes()[..], &[0, blocking, 0, 0]].concat();
    vec![
        Feature::persistent(0x0000, 0, profiles),
        // Core: SCSI, DBE (a starting feature may be any).
        Feature::persistent(0x0001, 2, vec![0, 0, 0, 1, 0x01, 0, 0, 0]),
        // Morphing: operational changes are told, on request only.
        Feature::persistent(0x0002, 1, vec![0x02, 0, 0, 0]),
        // Removable medium: a tray, which can be ejected, loaded and locked.
        Feature::persistent(0x0003, 2, vec![0x39, 0, 0, 0]),
        Feature::of_medium(0x0010, 0, disc.is_some(), readable),
        Feature::of_medium(0x001e, 2, is_cd, vec![0, 0, 0, 0]),
        Feature::of_medium(0x001f, 1, is_dvd, vec![0, 0, 0, 0]),
    ]
}

/// The caller cuts to the allocation length.
pub(super) fn configuration(cdb: &Cdb, disc: Option<Disc>) -> Result<Vec<u8>, Sense> {
    const ALL: u8 = 0b00;
    const CURRENT: u8 = 0b01;
    const ONE: u8 = 0b10;
    let start = cdb.u16(2);
    let requested = cdb.u8(1) & 0x03;
    let is_wanted = |feature: &Feature| match requested {
        ALL => feature.code >= start,
        CURRENT => feature.code >= start && feature.is_current,
        _ => feature.code == start,
    };
    if requested > ONE {
        return Err(Sense::invalid_field_in_cdb(1, 1));
    }
    let all = features(disc);
    let wanted = all.iter().filter(|feature| is_wanted(feature));
    let body: Vec<u8> = wanted.flat_map(Feature::encode).collect();
    let current = match disc {
        Some(Disc::Cd { .. }) => CD_ROM,
        Some(Disc::Dvd { .. }) => DVD_ROM,
        None => 0,
    };
    // DATA LENGTH counts what follows it.
    let length = u32::try_from(body.len())
        .unwrap_or(u32::MAX)
        .saturating_add(4);
    let header = [&length.to_be_bytes()[..], &[0, 0], &current.to_be_bytes()];
    Ok([header.concat(), body].concat())
}
