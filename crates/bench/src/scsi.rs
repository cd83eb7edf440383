//! The few SCSI commands that an initiator of disks needs. Knows bytes only.

use crate::transport::Geometry;

/// TEST UNIT READY.
///
/// Spec: SPC-4, TEST UNIT READY.
pub(crate) const TEST_UNIT_READY: [u8; 16] = [0; 16];

/// Bytes that READ CAPACITY (16) answers with, as its CDB says in byte 13, and those of READ
/// CAPACITY (10).
const CAPACITY_16_BYTES: usize = 32;
const CAPACITY_10_BYTES: usize = 8;

const _: () = assert!(READ_CAPACITY[0].0[13] as usize == CAPACITY_16_BYTES);

/// One way to ask a disk for its size: CDB, length of the answer in bytes, and how to read it.
type CapacityQuery = ([u8; 16], usize, fn(&[u8]) -> Option<Geometry>);

/// Both ways, better one first: the short form cannot express sizes from 2 TiB on.
///
/// Spec: SBC-3, READ CAPACITY (16) and READ CAPACITY (10).
pub(crate) const READ_CAPACITY: [CapacityQuery; 2] = [
    (
        [0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0],
        CAPACITY_16_BYTES,
        parse_capacity_16,
    ),
    (
        [0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        CAPACITY_10_BYTES,
        parse_capacity_10,
    ),
];

fn parse_capacity_16(data: &[u8]) -> Option<Geometry> {
    let (last, rest) = data.split_first_chunk()?;
    let block = rest.first_chunk()?;
    geometry(u64::from_be_bytes(*last), u32::from_be_bytes(*block))
}

fn parse_capacity_10(data: &[u8]) -> Option<Geometry> {
    let (last, rest) = data.split_first_chunk()?;
    let block = rest.first_chunk()?;
    geometry(u32::from_be_bytes(*last).into(), u32::from_be_bytes(*block))
}

/// Sizes that are none are refused: offsets are computed by shifting.
fn geometry(last_lba: u64, block_bytes: u32) -> Option<Geometry> {
    let is_sensible = block_bytes.is_power_of_two() && (512..=1 << 20).contains(&block_bytes);
    let size_bytes = last_lba
        .checked_add(1)?
        .checked_mul(u64::from(block_bytes))?;
    is_sensible.then_some(Geometry {
        size_bytes,
        block_bytes,
    })
}

/// READ or WRITE, in the 10-byte form where that can express address and length, else in the
/// 16-byte form.
///
/// Spec: SBC-3, READ (10), READ (16), WRITE (10), WRITE (16).
pub(crate) fn transfer_cdb(is_write: bool, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    match (u32::try_from(lba), u16::try_from(blocks)) {
        (Ok(lba), Ok(blocks)) => {
            cdb[0] = if is_write { 0x2a } else { 0x28 };
            cdb[2..6].copy_from_slice(&lba.to_be_bytes());
            cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
        }
        _ => {
            cdb[0] = if is_write { 0x8a } else { 0x88 };
            cdb[2..10].copy_from_slice(&lba.to_be_bytes());
            cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
        }
    }
    cdb
}

/// The LUN field of a flat number below 16384.
///
/// Spec: SAM-5 section 4.7.7.2 (peripheral device addressing) and 4.7.7.3 (flat space).
pub(crate) const fn lun_field(lun: u16) -> u64 {
    let addressed = if lun < 256 { lun } else { lun | 0x4000 };
    (addressed as u64) << 48
}

/// Sense key, additional sense code and qualifier of sense data in fixed or descriptor format.
///
/// Spec: SPC-4 section 4.5.
pub(crate) fn sense_code(sense: &[u8]) -> Option<[u8; 3]> {
    let at = |index| sense.get(index).copied();
    match at(0)? & 0x7f {
        0x70 | 0x71 => Some([at(2)? & 0x0f, at(12)?, at(13)?]),
        0x72 | 0x73 => Some([at(1)? & 0x0f, at(2)?, at(3)?]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_is_used_up_to_its_edges() {
        let (lba, blocks) = (u64::from(u32::MAX), u32::from(u16::MAX));
        let edge = transfer_cdb(false, lba, blocks);
        assert_eq!(edge[..10], [0x28, 0, 255, 255, 255, 255, 0, 255, 255, 0]);
        assert_eq!(transfer_cdb(true, lba, 1)[0], 0x2a);
        let long = transfer_cdb(true, lba + 1, 8);
        assert_eq!(long, [0x8a, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0]);
        assert_eq!(transfer_cdb(false, 0, blocks + 1)[0], 0x88);
    }

    #[test]
    fn capacities_are_read_and_nonsense_is_refused() {
        let mut long = [0; 32];
        long[7] = 9;
        long[10] = 2;
        let expected = Geometry {
            size_bytes: 5120,
            block_bytes: 512,
        };
        assert_eq!(parse_capacity_16(&long), Some(expected));
        assert_eq!(parse_capacity_16(&long[..11]), None);
        assert_eq!(parse_capacity_10(&[0, 0, 0, 9, 0, 0, 2, 0]), Some(expected));
        for block_bytes in [0, 1, 511, 513, 1 << 21] {
            assert_eq!(geometry(9, block_bytes), None);
        }
        assert_eq!(geometry(u64::MAX, 512), None);
        assert_eq!(geometry(u64::MAX / 512, 512), None);
    }

    #[test]
    fn sense_of_both_formats_is_read() {
        let fixed = [0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x29, 1];
        assert_eq!(sense_code(&fixed), Some([6, 0x29, 1]));
        assert_eq!(sense_code(&fixed[..13]), None);
        assert_eq!(sense_code(&[0x72, 5, 0x24, 0]), Some([5, 0x24, 0]));
        assert_eq!(sense_code(&[]), None);
    }

    #[test]
    fn luns_are_addressed_by_their_size() {
        assert_eq!(lun_field(5), 0x0005_0000_0000_0000);
        assert_eq!(lun_field(255), 0x00ff_0000_0000_0000);
        assert_eq!(lun_field(256), 0x4100_0000_0000_0000);
    }
}
