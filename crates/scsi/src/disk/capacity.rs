//! Commands that report: capacities, defects.

use super::Disk;
use crate::sam::cdb::Cdb;

impl Disk {
    /// Spec: SBC-4, READ CAPACITY (10).
    pub(super) fn capacity_10(&self) -> Vec<u8> {
        let last = u32::try_from(self.blocks.saturating_sub(1)).unwrap_or(u32::MAX);
        let mut data = last.to_be_bytes().to_vec();
        data.extend_from_slice(&self.capabilities.block_bytes.to_be_bytes());
        data
    }

    /// Spec: SBC-4, READ CAPACITY (16).
    pub(super) fn capacity_16(&self) -> Vec<u8> {
        /// LBPME and LBPRZ.
        const THIN: u8 = 0xc0;
        let capabilities = &self.capabilities;
        let per_physical = capabilities
            .physical_block_bytes
            .checked_div(capabilities.block_bytes);
        let exponent = per_physical.and_then(u32::checked_ilog2).unwrap_or(0);
        let mut data = self.blocks.saturating_sub(1).to_be_bytes().to_vec();
        data.extend_from_slice(&capabilities.block_bytes.to_be_bytes());
        data.extend_from_slice(&[0x00, u8::try_from(exponent).unwrap_or(0) & 0x0f]);
        data.push(if capabilities.thin { THIN } else { 0x00 });
        data.resize(32, 0);
        data
    }
}

/// There are no defects, in any format.
///
/// Spec: SBC-4, READ DEFECT DATA (10).
pub(super) fn defects_10(cdb: &Cdb) -> Vec<u8> {
    vec![0x00, cdb.u8(2) & 0x1f, 0, 0]
}

/// Spec: SBC-4, READ DEFECT DATA (12).
pub(super) fn defects_12(cdb: &Cdb) -> Vec<u8> {
    vec![0x00, cdb.u8(1) & 0x1f, 0, 0, 0, 0, 0, 0]
}
