//! What HyperSCSI is to serve, as it is given. It replaces what was given before, as a whole.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use ::hyperscsi::limits::{DEVICES_MAX, FRAME_BASE_BYTES, FRAME_LEAST_BYTES, FRAME_MAX_BYTES};
use ::hyperscsi::{Level, OpaqueTarget, Profile, Retransmit, Wish};
use engine::{UnitIndex, VisibleLun};

/// Where frames come in. Groups may share a place.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Place {
    /// A UDP socket at this address. Broadcasts reach only those at the wildcard address, whose answers leave from the
    /// address that the route chooses.
    Udp(SocketAddr),
    /// A network interface of this name: Ethernet frames.
    Interface(Arc<str>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(address) => write!(f, "udp:{address}"),
            Self::Interface(name) => write!(f, "ether:{name}"),
        }
    }
}

/// The server that all groups are of.
#[derive(Clone, Debug)]
pub struct Server {
    /// A random number that stays the same over restarts.
    pub id: [u8; 16],
    /// Its name for people, of 1 to 64 bytes.
    pub name: String,
    /// Its key, and the seed of its records: [`OpaqueTarget::from_bytes`] of what is kept.
    pub keys: Arc<OpaqueTarget>,
}

/// A group: devices under one name and one password, at one place.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Group {
    /// Of 1 to 64 bytes. No other group at the place has it.
    pub name: String,
    /// The name that clients log in with, if not that of the group.
    pub user: Option<String>,
    /// Where its clients come in.
    pub place: Place,
    /// The kind of network.
    pub profile: Profile,
    /// What is sent again after a loss.
    pub retransmit: Retransmit,
    /// It needs no password: its record is that of the empty one.
    pub is_open: bool,
    /// [`OpaqueTarget::record`] of the password, under [`Group::credential`]. With another one, logins need the new
    /// password, and sessions stay.
    pub record: Vec<u8>,
    /// In the order in which clients see them, at most 1024.
    pub devices: Vec<GroupDevice>,
}

impl Group {
    /// The name that the password of a group is recorded under.
    #[must_use]
    pub fn credential(name: &str, user: Option<&str>) -> Vec<u8> {
        Wish::credential(name, user)
    }

    /// What a session of the group sees.
    pub(super) fn luns(&self) -> Vec<VisibleLun> {
        let devices = self.devices.iter().take(usize::from(DEVICES_MAX));
        let lun = |device: &GroupDevice| VisibleLun {
            lun: device.handle,
            unit: device.unit,
            read_only: device.read_only,
        };
        devices.map(lun).collect()
    }
}

/// A unit as a device of a group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupDevice {
    /// Its number in sessions, and its LUN in them: from 1 to 16383, once in a group. A device that stays keeps it.
    pub handle: u16,
    /// Its name for people, of 1 to 64 bytes.
    pub name: String,
    /// The unit.
    pub unit: UnitIndex,
    /// The least level that clients may open it at.
    pub level: Level,
    /// Clients may not write.
    pub read_only: bool,
    /// Its medium may leave.
    pub is_removable: bool,
    /// PERIPHERAL DEVICE TYPE.
    pub peripheral_type: u8,
    /// The designator of INQUIRY page 83h, with zeros behind it.
    pub designator: [u8; 16],
}

/// The frames that a place carries, in bytes behind the Ethernet header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FrameSizes {
    /// Without anybody trying.
    pub base: u16,
    /// The largest that is tried.
    pub most: u16,
}

impl FrameSizes {
    /// Over UDP: what every path carries at first, then up to what one datagram of a large frame has room for.
    pub const UDP: Self = Self {
        base: FRAME_LEAST_BYTES,
        most: FRAME_MAX_BYTES - 48,
    };

    /// Of an interface with this MTU; `None` where it is too small.
    #[must_use]
    pub fn of_mtu(mtu: u32) -> Option<Self> {
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        (mtu >= FRAME_LEAST_BYTES).then(|| Self {
            base: mtu.min(FRAME_BASE_BYTES),
            most: mtu.min(FRAME_MAX_BYTES),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_carries_what_its_mtu_allows() {
        let sizes = |base, most| Some(FrameSizes { base, most });
        assert_eq!(FrameSizes::of_mtu(1500), sizes(1500, 1500));
        assert_eq!(FrameSizes::of_mtu(9216), sizes(1500, 9000));
        assert_eq!(FrameSizes::of_mtu(1280), sizes(1280, 1280));
        assert_eq!(FrameSizes::of_mtu(1279), None);
    }
}
