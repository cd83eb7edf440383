//! What a disk says of itself: VPD pages, mode pages, block descriptors.
//!
//! Spec: SBC-4, Vital product data parameters and Mode parameters for direct access block devices.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use super::Disk;
use crate::sam::device_type::DeviceType;
use crate::sam::sense::Sense;
use crate::spc::mode::{length_error, wrong_at};
use crate::spc::parameters::{Modes, PageCode};
use crate::spc::peripheral::Peripheral;
use crate::table::row::Features;

const BLOCK_LIMITS: u8 = 0xb0;
const CHARACTERISTICS: u8 = 0xb1;
const PROVISIONING: u8 = 0xb2;

const ERROR_RECOVERY: PageCode = PageCode::fixed(0x01);
const CACHING: PageCode = PageCode::saveable(0x08);

const WCE: u8 = 0x04;

impl Peripheral for Disk {
    #[inline]
    fn features(&self) -> Features {
        Features {
            device_type: DeviceType::Disk,
            thin: self.capabilities.thin,
            removable: self.removable,
        }
    }

    fn version_descriptor(&self) -> u16 {
        const SBC_3: u16 = 0x04c0;
        SBC_3
    }

    fn has_volatile_cache(&self) -> bool {
        self.has_cache
    }

    fn is_read_only(&self) -> bool {
        self.capabilities.read_only
    }

    fn vpd_pages(&self) -> &'static [u8] {
        &[BLOCK_LIMITS, CHARACTERISTICS, PROVISIONING]
    }

    fn vpd_page(&self, code: u8) -> Option<Vec<u8>> {
        match code {
            BLOCK_LIMITS => Some(self.block_limits()),
            CHARACTERISTICS => Some(self.characteristics()),
            PROVISIONING => Some(self.provisioning()),
            _ => None,
        }
    }

    fn mode_pages(&self) -> &'static [PageCode] {
        &[ERROR_RECOVERY, CACHING]
    }

    fn mode_page(&self, page: PageCode, modes: Modes) -> Vec<u8> {
        if page == CACHING {
            let mut page = vec![0x08, 0x12, if modes.write_cache { WCE } else { 0 }];
            page.resize(20, 0);
            page
        } else {
            // Read-write error recovery: no retries of ours, nothing reassigned.
            vec![0x01, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
    }

    fn select_mode_page(&self, page: PageCode, bytes: &[u8], modes: &mut Modes) {
        if page == CACHING {
            modes.write_cache = bytes.get(2).is_some_and(|byte| byte & WCE != 0);
        }
    }

    fn changeable_modes(&self) -> Modes {
        Modes {
            write_cache: self.has_cache,
            descriptor_sense: true,
            software_write_protect: true,
        }
    }

    fn default_modes(&self) -> Modes {
        Modes {
            write_cache: self.has_cache,
            ..Modes::NONE
        }
    }

    fn device_specific_parameter(&self) -> u8 {
        const DPO_AND_FUA: u8 = 0x10;
        DPO_AND_FUA
    }

    /// Spec: SBC-4, Short LBA and Long LBA mode parameter block descriptor.
    fn block_descriptor(&self, is_long: bool, blocks: u64) -> Vec<u8> {
        let length = self.capabilities.block_bytes.to_be_bytes();
        if is_long {
            [&blocks.to_be_bytes()[..], &[0; 4], &length].concat()
        } else {
            let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
            [blocks.to_be_bytes(), length].concat()
        }
    }

    /// The number of blocks may be the capacity, zero or all ones; the length must be the length.
    fn check_block_descriptor(
        &self,
        descriptor: &[u8],
        at: usize,
        blocks: u64,
    ) -> Result<(), Sense> {
        let (count, all_ones, length, length_at) = match *descriptor {
            [c0, c1, c2, c3, _, l0, l1, l2] => (
                u64::from(u32::from_be_bytes([c0, c1, c2, c3])),
                u64::from(u32::MAX),
                u32::from_be_bytes([0, l0, l1, l2]),
                5,
            ),
            [c0, c1, c2, c3, c4, c5, c6, c7, _, _, _, _, l0, l1, l2, l3] => (
                u64::from_be_bytes([c0, c1, c2, c3, c4, c5, c6, c7]),
                u64::MAX,
                u32::from_be_bytes([l0, l1, l2, l3]),
                12,
            ),
            _ => return Err(length_error()),
        };
        if count != 0 && count != all_ones && count != blocks {
            return Err(wrong_at(at));
        }
        if length != self.capabilities.block_bytes {
            return Err(wrong_at(at.saturating_add(length_at)));
        }
        Ok(())
    }
}

impl Disk {
    /// Spec: SBC-4, Block Limits VPD page.
    fn block_limits(&self) -> Vec<u8> {
        /// Without WSNZ, zero blocks in WRITE SAME stand for the rest of the medium.
        const NO_WSNZ: u8 = 0x00;
        const UGAVALID: u32 = 0x8000_0000;
        let limits = &self.limits;
        let capabilities = &self.capabilities;
        let blocks_of = |bytes: u32| bytes.checked_div(capabilities.block_bytes).unwrap_or(0);
        let granularity = u16::try_from(blocks_of(capabilities.physical_block_bytes)).unwrap_or(0);
        let transfer_max = self.transfer_blocks_max.to_be_bytes();
        let mut body = vec![NO_WSNZ, limits.compare_and_write_blocks_max];
        body.extend_from_slice(&granularity.to_be_bytes());
        body.extend_from_slice(&transfer_max);
        body.extend_from_slice(&blocks_of(limits.transfer_bytes_optimal).to_be_bytes());
        // MAXIMUM PREFETCH LENGTH: more is allowed and read no further.
        body.extend_from_slice(&transfer_max);
        let unmap = if capabilities.thin {
            [
                limits.unmap_blocks_max,
                u32::from(limits.unmap_descriptors_max),
                blocks_of(capabilities.unmap_granularity_bytes).max(1),
                UGAVALID,
            ]
        } else {
            [0; 4]
        };
        for field in unmap {
            body.extend_from_slice(&field.to_be_bytes());
        }
        body.extend_from_slice(&u64::from(limits.write_same_blocks_max).to_be_bytes());
        body.resize(60, 0);
        body
    }

    /// Spec: SBC-4, Block Device Characteristics VPD page.
    fn characteristics(&self) -> Vec<u8> {
        // MEDIUM ROTATION RATE: 1 is a medium that does not rotate, 0 is not reported.
        let rotation = u8::from(self.capabilities.solid_state);
        let mut body = vec![0x00, rotation];
        body.resize(60, 0);
        body
    }

    /// Spec: SBC-4, Logical Block Provisioning VPD page.
    fn provisioning(&self) -> Vec<u8> {
        /// LBPU, LBPWS, LBPWS10, LBPRZ 001b (unmapped blocks read zeros).
        const UNMAPS: u8 = 0xe4;
        const THIN: u8 = 0x02;
        if self.capabilities.thin {
            vec![0x00, UNMAPS, THIN, 0x00]
        } else {
            vec![0; 4]
        }
    }
}
