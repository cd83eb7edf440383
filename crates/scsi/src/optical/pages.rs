//! What a drive says of itself: mode pages; it has no VPD pages of its own.
//!
//! Spec: MMC-6, Mode parameters for multimedia devices.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use super::Optical;
use crate::sam::device_type::DeviceType;
use crate::sam::sense::Sense;
use crate::spc::mode::wrong_at;
use crate::spc::parameters::{Modes, PageCode};
use crate::spc::peripheral::Peripheral;
use crate::table::row::Features;

const ERROR_RECOVERY: PageCode = PageCode::fixed(0x01);
const POWER_CONDITION: PageCode = PageCode::fixed(0x1a);
const TIMEOUT: PageCode = PageCode::fixed(0x1d);
const CAPABILITIES: PageCode = PageCode::fixed(0x2a);

/// What a drive of 24 times the speed of a CD reads, in kB/s.
const SPEED: u16 = 24 * 176;

impl Peripheral for Optical {
    #[inline]
    fn features(&self) -> Features {
        Features {
            device_type: DeviceType::Optical,
            thin: false,
            removable: true,
        }
    }

    fn version_descriptor(&self) -> u16 {
        const MMC_6: u16 = 0x04e0;
        MMC_6
    }

    fn has_volatile_cache(&self) -> bool {
        false
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn vpd_pages(&self) -> &'static [u8] {
        &[]
    }

    fn vpd_page(&self, _: u8) -> Option<Vec<u8>> {
        None
    }

    fn mode_pages(&self) -> &'static [PageCode] {
        &[ERROR_RECOVERY, POWER_CONDITION, TIMEOUT, CAPABILITIES]
    }

    fn mode_page(&self, page: PageCode, _: Modes) -> Vec<u8> {
        match page {
            // No retries of ours.
            ERROR_RECOVERY => vec![0x01, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            // It never stops by itself.
            POWER_CONDITION => vec![0x1a, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            TIMEOUT => vec![0x1d, 0x08, 0, 0, 0, 0, 0, 0, 0, 0],
            _ => capabilities(),
        }
    }

    fn select_mode_page(&self, _: PageCode, _: &[u8], _: &mut Modes) {}

    fn changeable_modes(&self) -> Modes {
        Modes {
            descriptor_sense: true,
            ..Modes::NONE
        }
    }

    fn default_modes(&self) -> Modes {
        Modes::NONE
    }

    fn device_specific_parameter(&self) -> u8 {
        0
    }

    /// There is none.
    ///
    /// Spec: MMC-6, Mode parameter header.
    fn block_descriptor(&self, _: bool, _: u64) -> Vec<u8> {
        Vec::new()
    }

    fn check_block_descriptor(&self, _: &[u8], at: usize, _: u64) -> Result<(), Sense> {
        Err(wrong_at(at))
    }
}

/// MM capabilities and mechanical status: reads DVD-ROM, user data of mode 1, has a tray that locks and ejects.
///
/// Spec: MMC-3, CD/DVD capabilities and mechanical status page.
fn capabilities() -> Vec<u8> {
    const READS_DVD: u8 = 0x08;
    /// A tray, EJECT, LOCK.
    const TRAY: u8 = 0x29;
    let mut page = vec![0x2a, 0x14, READS_DVD, 0, 0, 0, TRAY, 0];
    for field in [SPEED, 0, 0, SPEED] {
        page.extend_from_slice(&field.to_be_bytes());
    }
    page.resize(22, 0);
    page
}
