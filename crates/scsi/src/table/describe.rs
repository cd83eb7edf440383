//! What a CDB asks for, in words: for reports about a command that is long over.

use super::commands::row_of;
use crate::sam::cdb::Cdb;

/// What a command was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Description {
    /// Its name in the standards.
    pub name: &'static str,
    /// LBA and number of blocks as the CDB has them, of a command that names blocks there.
    pub extent: Option<(u64, u32)>,
}

/// Describes a command by the first 16 bytes of its CDB. Nothing is checked: what the unit made of
/// it is in its status.
pub fn describe(cdb: &[u8; 16]) -> Description {
    let cdb = Cdb::new(cdb);
    let row = row_of(&cdb);
    Description {
        name: row.map_or("unknown command", |row| row.name),
        extent: row
            .filter(|row| row.fields.has_extent())
            .map(|row| (row.fields.lba(&cdb), row.fields.blocks(&cdb))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_named_and_their_blocks_read_from_every_size_of_cdb() {
        #[rustfmt::skip]
        let cases = [
            (&[0x00][..], "TEST UNIT READY", None),
            (&[0x08, 0xe1, 0x02, 0x03, 0x00], "READ (6)", Some((0x01_0203, 256))),
            (&[0x2a, 0, 0, 0, 1, 0, 0, 0, 8, 0], "WRITE (10)", Some((256, 8))),
            (&[0xa8, 0, 0, 0, 0, 9, 0, 1, 0, 0, 0, 0], "READ (12)", Some((9, 0x1_0000))),
            (&[0x88, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0], "READ (16)", Some((1 << 56, 7))),
            (&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0], "COMPARE AND WRITE", Some((5, 1))),
            (&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], "UNMAP", None),
            (&[0x9e, 0x10], "READ CAPACITY (16)", None),
            (&[0x9e, 0x1f], "unknown command", None),
            (&[0xff], "unknown command", None),
        ];
        for (cdb, name, extent) in cases {
            let mut padded = [0; 16];
            padded[..cdb.len()].copy_from_slice(cdb);
            assert_eq!(
                describe(&padded),
                Description { name, extent },
                "{cdb:02x?}"
            );
        }
    }
}
