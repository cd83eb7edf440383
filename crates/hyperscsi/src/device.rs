//! Devices of a group: the table that a client reads, and opening them.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use crate::bytes::{Reader, put_name, short};
use crate::limits::{CONTROL_MAX_BYTES, NAME_MAX_BYTES};
use crate::pdu::Level;

/// What a client may know of a device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Device {
    /// Its name in a session, from 1.
    pub handle: u16,
    /// What its server asks for at least.
    pub level: Level,
    /// It takes no writes.
    pub is_read_only: bool,
    /// Its medium may leave.
    pub is_removable: bool,
    /// PERIPHERAL DEVICE TYPE.
    pub peripheral_type: u8,
    /// A logical block, in bytes.
    pub block_bytes: u32,
    /// Logical blocks.
    pub blocks: u64,
    /// The data of a command, at most, in bytes.
    pub data_max_bytes: u32,
    /// The designator of INQUIRY page 83h, with zeros behind it.
    pub designator: [u8; 16],
    /// Its name for people.
    pub name: String,
}

impl Device {
    fn encode(&self, to: &mut Vec<u8>) {
        let flags = u8::from(self.is_read_only) | (u8::from(self.is_removable) << 1);
        to.extend(self.handle.to_be_bytes());
        to.extend([self.level.to_wire(), flags, self.peripheral_type]);
        to.extend(self.block_bytes.to_be_bytes());
        to.extend(self.blocks.to_be_bytes());
        to.extend(self.data_max_bytes.to_be_bytes());
        to.extend(self.designator);
        put_name(to, &self.name);
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let (handle, level) = (reader.u16()?, Level::of(reader.u8()?)?);
        let flags = reader.u8()?;
        Some(Self {
            handle,
            level,
            is_read_only: flags & 1 != 0,
            is_removable: flags & 2 != 0,
            peripheral_type: reader.u8()?,
            block_bytes: reader.u32()?,
            blocks: reader.u64()?,
            data_max_bytes: reader.u32()?,
            designator: reader.array()?,
            name: reader.name(NAME_MAX_BYTES)?.to_owned(),
        })
    }
}

/// A part of the table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Page {
    /// Devices of the whole table.
    pub total: u16,
    /// The place of the first of these in it.
    pub first: u16,
    /// Those of this part; none behind the end.
    pub devices: Vec<Device>,
}

/// Whether a device is open now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Opening {
    /// It is, at this level.
    Open(Level),
    /// The level is below this one, the least that its server accepts.
    TooLow(Level),
    /// It is open at this level already.
    OtherLevel(Level),
    /// There is none of this name.
    Unknown,
}

/// A question in a session, or its answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Inquiry {
    /// Which devices are there, from this place in the table?
    List { id: u32, first: u16 },
    /// A part of the table.
    Listed { id: u32, page: Page },
    /// Open this device.
    Open { id: u32, handle: u16, level: Level },
    /// Whether it is.
    Opened {
        id: u32,
        handle: u16,
        opening: Opening,
    },
}

impl Inquiry {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        match self {
            Self::List { id, first } => {
                body.push(5);
                body.extend(id.to_be_bytes());
                body.extend(first.to_be_bytes());
            }
            Self::Listed { id, page } => {
                body.push(6);
                body.extend(id.to_be_bytes());
                body.extend(page.total.to_be_bytes());
                body.extend(page.first.to_be_bytes());
                body.extend(short(page.devices.len()).to_be_bytes());
                page.devices
                    .iter()
                    .for_each(|device| device.encode(&mut body));
            }
            Self::Open { id, handle, level } => {
                body.push(7);
                body.extend(id.to_be_bytes());
                body.extend(handle.to_be_bytes());
                body.push(level.to_wire());
            }
            Self::Opened {
                id,
                handle,
                opening,
            } => {
                let (code, level) = match *opening {
                    Opening::Open(level) => (0, level),
                    Opening::TooLow(level) => (1, level),
                    Opening::OtherLevel(level) => (2, level),
                    Opening::Unknown => (3, Level::None),
                };
                body.push(8);
                body.extend(id.to_be_bytes());
                body.extend(handle.to_be_bytes());
                body.extend([code, level.to_wire()]);
            }
        }
        body
    }

    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        let (step, id) = (reader.u8()?, reader.u32()?);
        Some(match step {
            5 => Self::List {
                id,
                first: reader.u16()?,
            },
            6 => {
                let (total, first, count) = (reader.u16()?, reader.u16()?, reader.u16()?);
                let devices = (0..count)
                    .map(|_| Device::decode(&mut reader))
                    .collect::<Option<_>>()?;
                let page = Page {
                    total,
                    first,
                    devices,
                };
                Self::Listed { id, page }
            }
            7 => Self::Open {
                id,
                handle: reader.u16()?,
                level: Level::of(reader.u8()?)?,
            },
            8 => {
                let (handle, code) = (reader.u16()?, reader.u8()?);
                let level = Level::of(reader.u8()?)?;
                let opening = match code {
                    0 => Opening::Open(level),
                    1 => Opening::TooLow(level),
                    2 => Opening::OtherLevel(level),
                    3 => Opening::Unknown,
                    _ => return None,
                };
                Self::Opened {
                    id,
                    handle,
                    opening,
                }
            }
            _ => return None,
        })
    }

    /// The part of a table that begins at this place, as much as one control PDU holds.
    pub(crate) fn page(table: &[Device], first: u16) -> Page {
        let mut page = Page {
            total: short(table.len()),
            first,
            devices: Vec::new(),
        };
        let mut body = Vec::new();
        for device in table.iter().skip(usize::from(first)) {
            device.encode(&mut body);
            if body.len() > CONTROL_MAX_BYTES.saturating_sub(11) {
                break;
            }
            page.devices.push(device.clone());
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn device(handle: u16, level: Level) -> Device {
        Device {
            handle,
            level,
            is_read_only: false,
            is_removable: true,
            peripheral_type: 0,
            block_bytes: 512,
            blocks: 1 << 40,
            data_max_bytes: 1 << 20,
            designator: [3; 16],
            name: "x".repeat(NAME_MAX_BYTES),
        }
    }

    #[test]
    fn a_table_is_read_in_parts() {
        let table: Vec<_> = (1..=100)
            .map(|handle| device(handle, Level::Hash))
            .collect();
        let mut read = Vec::new();
        loop {
            let page = Inquiry::page(&table, short(read.len()));
            let listed = Inquiry::Listed { id: 1, page };
            let body = listed.encode();
            assert!(body.len() <= CONTROL_MAX_BYTES, "{}", body.len());
            let Some(Inquiry::Listed { page, .. }) = Inquiry::decode(&body) else {
                panic!("{body:?}")
            };
            assert_eq!(page.total, 100);
            if page.devices.is_empty() {
                break;
            }
            read.extend(page.devices);
        }
        assert_eq!(read, table);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(step in 5_u8..9, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let body = [&[step], &bytes[..]].concat();
            if let Some(inquiry) = Inquiry::decode(&body) {
                prop_assert_eq!(Inquiry::decode(&inquiry.encode()), Some(inquiry));
            }
        }
    }
}
