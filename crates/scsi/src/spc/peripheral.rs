//! What SPC asks a device server of whatever type about itself.

use store::DeviceCommand;

use super::parameters::{Modes, PageCode};
use crate::sam::sense::Sense;
use crate::table::row::{CommandSpec, Features};

/// A device server, as SPC code sees it.
pub(crate) trait Peripheral {
    /// What decides which commands it has.
    fn features(&self) -> Features;

    /// Standard INQUIRY data of a device of others.
    fn standard_inquiry(&self) -> Option<&[u8]> {
        None
    }

    /// Whether REPORT SUPPORTED OPERATION CODES lists one of its commands.
    fn lists(&self, _row: &CommandSpec) -> bool {
        true
    }

    /// Commands without a row that REPORT SUPPORTED OPERATION CODES lists, in ascending order.
    fn vendor_commands(&self) -> &[DeviceCommand] {
        &[]
    }

    /// The version descriptor of its command set.
    ///
    /// Spec: SPC-5, Version descriptor values.
    fn version_descriptor(&self) -> u16;

    /// What was written may be lost with the power until it is flushed (V_SUP).
    fn has_volatile_cache(&self) -> bool;

    /// No nexus may write.
    fn is_read_only(&self) -> bool;

    /// VPD pages of its device type, in ascending order.
    fn vpd_pages(&self) -> &[u8];

    /// What stands behind the header of one of [`Peripheral::vpd_pages`].
    fn vpd_page(&self, code: u8) -> Option<Vec<u8>>;

    /// Mode pages of its device type, in ascending order.
    fn mode_pages(&self) -> &'static [PageCode];

    /// One of [`Peripheral::mode_pages`] without its saveable bit, in the form of MODE SENSE.
    fn mode_page(&self, page: PageCode, modes: Modes) -> Vec<u8>;

    /// Takes over what MODE SELECT may change in one of [`Peripheral::mode_pages`].
    fn select_mode_page(&self, page: PageCode, bytes: &[u8], modes: &mut Modes);

    /// Every mode parameter that MODE SELECT may switch on.
    fn changeable_modes(&self) -> Modes;

    /// What a unit starts with when nothing was saved.
    fn default_modes(&self) -> Modes;

    /// The DEVICE-SPECIFIC PARAMETER of the mode parameter header, but for write protection.
    fn device_specific_parameter(&self) -> u8;

    /// The mode parameter block descriptor.
    fn block_descriptor(&self, is_long: bool, blocks: u64) -> Vec<u8>;

    /// Whether MODE SELECT may send this block descriptor, which starts at byte `at` of its list.
    fn check_block_descriptor(
        &self,
        descriptor: &[u8],
        at: usize,
        blocks: u64,
    ) -> Result<(), Sense>;
}
