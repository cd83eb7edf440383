//! A device of others, whose commands are passed to it: what is answered in its place, and what becomes of the rest.
//! Names [`crate::sam`], [`crate::table`], [`crate::spc`] and [`crate::disk`], which counts what fails.
//!
//! The device knows one initiator, which is Tarn. So what belongs to a nexus is Tarn's: identity, reservations, unit
//! attentions, who prevents the removal of a medium. A unit attention of the device is for one command; the other
//! nexuses get it from here. What one nexus changes for all, the others learn of, at worst twice.

mod facts;
mod pass;

use std::sync::Arc;

use store::{DeviceCommand, DeviceFacts};

use crate::disk::Disk;
use crate::sam::device_type::DeviceType;
use crate::sam::profile::Profile;

pub(crate) use pass::{Next, Pass};

/// A device of others as one core sees it.
#[derive(Debug)]
pub(crate) struct Foreign {
    /// Has no blocks.
    pub(crate) disk: Disk,
    facts: Arc<DeviceFacts>,
    /// The codes of its VPD pages that are shown.
    pages: Vec<u8>,
    has_vendor_commands: bool,
    /// Those that it lists, if they pass.
    vendor_commands: Vec<DeviceCommand>,
    device_type: DeviceType,
}

impl Foreign {
    pub(crate) fn new(profile: &Profile, facts: &Arc<DeviceFacts>) -> Self {
        Self {
            disk: Disk::new(profile),
            facts: Arc::clone(facts),
            pages: facts::shown_pages(facts),
            has_vendor_commands: profile.has_vendor_commands,
            vendor_commands: match profile.has_vendor_commands {
                true => facts::vendor_commands(facts),
                false => Vec::new(),
            },
            device_type: profile.device_type,
        }
    }
}
