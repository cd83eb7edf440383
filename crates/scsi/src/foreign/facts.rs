//! What a device of others says of itself where SPC asks, with what Tarn answers in its place.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use store::{DeviceCommand, DeviceFacts};

use super::Foreign;
use crate::sam::sense::Sense;
use crate::spc::parameters::{Modes, PageCode};
use crate::spc::peripheral::Peripheral;
use crate::table::foreign::is_of_vendor;
use crate::table::row::{CommandSpec, Features, Operation};

/// VPD pages that are Tarn's, or that tell of ports and of initiators, which the device knows nothing of: the list,
/// serial number, identification, extended INQUIRY data, management addresses, mode page policy, SCSI ports,
/// third-party copy.
const OWN_PAGES: [u8; 8] = [0x00, 0x80, 0x83, 0x85, 0x86, 0x87, 0x88, 0x8f];

/// The codes of the pages that are shown as the device has them.
pub(super) fn shown_pages(facts: &DeviceFacts) -> Vec<u8> {
    let codes = facts.pages.keys().copied();
    codes.filter(|code| !OWN_PAGES.contains(code)).collect()
}

/// The longest CDB there is, in bytes.
const CDB_BYTES_MAX: u16 = 260;

/// The commands of its vendor that the device lists, in ascending order, each once.
pub(super) fn vendor_commands(facts: &DeviceFacts) -> Vec<DeviceCommand> {
    let is_one = |one: &DeviceCommand| {
        is_of_vendor(one.opcode) && (1..=CDB_BYTES_MAX).contains(&one.cdb_bytes)
    };
    let listed = facts.commands.iter().flatten().copied();
    let mut found: Vec<DeviceCommand> = listed.filter(is_one).collect();
    let name = |one: &DeviceCommand| (one.opcode, one.service_action);
    found.sort_by_key(name);
    found.dedup_by_key(|one| name(one));
    found
}

impl Peripheral for Foreign {
    fn features(&self) -> Features {
        Features {
            device_type: self.device_type,
            thin: false,
            removable: self.facts.is_removable(),
            is_foreign: true,
            has_vendor_commands: self.has_vendor_commands,
        }
    }

    fn standard_inquiry(&self) -> Option<&[u8]> {
        Some(&self.facts.inquiry)
    }

    fn lists(&self, row: &CommandSpec) -> bool {
        !matches!(row.operation, Operation::Foreign(_))
            || self.facts.has_command(row.opcode(), row.service_action())
    }

    fn vendor_commands(&self) -> &[DeviceCommand] {
        &self.vendor_commands
    }

    fn version_descriptor(&self) -> u16 {
        0
    }

    fn has_volatile_cache(&self) -> bool {
        false
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn vpd_pages(&self) -> &[u8] {
        &self.pages
    }

    fn vpd_page(&self, code: u8) -> Option<Vec<u8>> {
        let page = self.facts.pages.get(&code)?;
        let page = page.get(4..).filter(|_| self.pages.contains(&code));
        page.map(<[u8]>::to_vec)
    }

    /// The device answers MODE SENSE and MODE SELECT.
    fn mode_pages(&self) -> &'static [PageCode] {
        &[]
    }

    fn mode_page(&self, _: PageCode, _: Modes) -> Vec<u8> {
        Vec::new()
    }

    fn select_mode_page(&self, _: PageCode, _: &[u8], _: &mut Modes) {}

    fn changeable_modes(&self) -> Modes {
        Modes::NONE
    }

    fn default_modes(&self) -> Modes {
        Modes::NONE
    }

    fn device_specific_parameter(&self) -> u8 {
        0
    }

    fn block_descriptor(&self, _: bool, _: u64) -> Vec<u8> {
        Vec::new()
    }

    fn check_block_descriptor(&self, _: &[u8], at: usize, _: u64) -> Result<(), Sense> {
        let at = u16::try_from(at).unwrap_or(u16::MAX);
        Err(Sense::invalid_byte_in_parameters(at))
    }
}
