//! GET EVENT STATUS NOTIFICATION, for those who ask again and again.
//!
//! Spec: MMC-6, GET EVENT STATUS NOTIFICATION.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use super::OfUnit;
use crate::sam::cdb::Cdb;
use crate::sam::sense::Sense;
use crate::spc::gate::MediaEvent;

/// Classes of events: as the request has them, a bit each.
const OPERATIONAL_CHANGE: u8 = 1;
const MEDIA: u8 = 4;
const SUPPORTED: u8 = 1 << OPERATIONAL_CHANGE | 1 << MEDIA;
/// No event is available.
const NEA: u8 = 0x80;

/// The status of the first class that is asked for and that there is; the caller cuts to the allocation length.
pub(super) fn status(cdb: &Cdb, of: &OfUnit<'_>) -> Result<Vec<u8>, Sense> {
    const POLLED: u8 = 0x01;
    if !cdb.has(1, POLLED) {
        // Nothing is told by itself.
        return Err(Sense::invalid_field_in_cdb(1, 0));
    }
    let wanted = cdb.u8(4) & SUPPORTED;
    if wanted & 1 << OPERATIONAL_CHANGE != 0 {
        // What the drive can do changes with its medium alone, which is an event of another class.
        return Ok(vec![0, 6, OPERATIONAL_CHANGE, SUPPORTED, 0, 0, 0, 0]);
    }
    if wanted & 1 << MEDIA == 0 {
        return Ok(vec![0, 2, NEA, SUPPORTED]);
    }
    let event = match of.event {
        MediaEvent::None => 0,
        MediaEvent::EjectRequest => 1,
        MediaEvent::NewMedia => 2,
        MediaEvent::Removal => 3,
    };
    let status = u8::from(of.shared.is_open()) | u8::from(!of.shared.is_ejected) << 1;
    Ok(vec![0, 6, MEDIA, SUPPORTED, event, status, 0, 0])
}

/// Whether a request is answered with the event of the medium, which is told then.
pub(crate) fn tells_of_medium(cdb: &Cdb) -> bool {
    cdb.u8(4) & SUPPORTED == 1 << MEDIA
}
