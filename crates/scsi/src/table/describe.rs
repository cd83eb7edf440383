//! What a CDB asks for, in words: for reports about a command that is long over.

use super::commands::{find_further, kind_of, row_of};
use super::row::{CommandKind, CommandSpec, Features};
use crate::sam::cdb::Cdb;
use crate::sam::device_type::DeviceType;
use crate::sam::profile::Profile;

/// What a command was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Description {
    /// Its name in the standards.
    pub name: &'static str,
    /// LBA and number of blocks as the CDB has them, of a command that names blocks there.
    pub extent: Option<(u64, u32)>,
}

/// Whose commands: an operation code means one thing to a disk and another to a tape.
#[derive(Clone, Copy, Debug)]
pub struct CommandSet(Features);

impl CommandSet {
    /// Those of Tarn's own devices, whose operation codes mean the same to all.
    pub const OWN: Self = Self(Features {
        device_type: DeviceType::Disk,
        thin: true,
        removable: true,
        is_foreign: false,
        has_vendor_commands: false,
    });

    /// Those of a unit.
    pub fn of(profile: &Profile) -> Self {
        Self(Features {
            device_type: profile.device_type,
            is_foreign: profile.foreign.is_some(),
            has_vendor_commands: profile.has_vendor_commands,
            ..Self::OWN.0
        })
    }

    /// What a command with this operation code does to the medium.
    #[inline]
    pub fn kind_of(&self, opcode: u8) -> CommandKind {
        match self.0.is_foreign {
            false => kind_of(opcode),
            true => find_further(&Cdb::new(&[opcode]), &self.0)
                .map_or(CommandKind::Other, CommandSpec::kind),
        }
    }

    /// Describes a command by the first 16 bytes of its CDB. Nothing is checked: what the unit made of
    /// it is in its status.
    pub fn describe(&self, cdb: &[u8; 16]) -> Description {
        let cdb = Cdb::new(cdb);
        let row = match self.0.is_foreign {
            false => row_of(&cdb),
            true => find_further(&cdb, &self.0).ok(),
        };
        Description {
            name: row.map_or("unknown command", |row| row.name),
            extent: row
                .filter(|row| row.fields.has_extent())
                .map(|row| (row.fields.lba(&cdb), row.fields.blocks(&cdb))),
        }
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
                CommandSet::OWN.describe(&padded),
                Description { name, extent },
                "{cdb:02x?}"
            );
        }
    }

    #[test]
    fn an_operation_code_is_named_and_counted_by_the_type_of_the_device() {
        let of = |device_type, is_foreign| {
            CommandSet(Features {
                device_type,
                is_foreign,
                ..CommandSet::OWN.0
            })
        };
        let mut cdb = [0; 16];
        for (opcode, device_type, name, kind) in [
            (0x42, DeviceType::Disk, "UNMAP", CommandKind::Write),
            (
                0x42,
                DeviceType::Optical,
                "READ SUB-CHANNEL",
                CommandKind::Other,
            ),
            (0x91, DeviceType::Tape, "SPACE (16)", CommandKind::Other),
            (0x08, DeviceType::Tape, "READ (6)", CommandKind::Read),
            (0x0a, DeviceType::Tape, "WRITE (6)", CommandKind::Write),
            (
                0x08,
                DeviceType::Changer,
                "unknown command",
                CommandKind::Other,
            ),
        ] {
            cdb[0] = opcode;
            let set = of(device_type, true);
            assert_eq!(set.describe(&cdb).name, name);
            assert_eq!(set.kind_of(opcode), kind, "{name}");
        }
        let own = of(DeviceType::Optical, false);
        assert_eq!(own.kind_of(0x28), CommandKind::Read);
    }
}
