//! What HyperSCSI is to serve, as it is given. It replaces what was given before, as a whole.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
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

/// The address of a client, as its carrier has it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Station {
    /// Of UDP.
    Inet(SocketAddr),
    /// The MAC address of Ethernet.
    Link([u8; 6]),
}

impl Station {
    /// The core that serves it, of so many. Kernels that deal frames out use the same rule: the last four bytes of
    /// the IP address, or of the MAC address, as a number, modulo the cores.
    #[must_use]
    pub fn core(&self, cores: usize) -> usize {
        let last = match self {
            Self::Inet(address) => match address.ip() {
                IpAddr::V4(address) => address.octets(),
                IpAddr::V6(address) => {
                    let [.., a, b, c, d] = address.octets();
                    [a, b, c, d]
                }
            },
            Self::Link([_, _, a, b, c, d]) => [*a, *b, *c, *d],
        };
        let number = usize::try_from(u32::from_be_bytes(last)).unwrap_or_default();
        number.checked_rem(cores).unwrap_or_default()
    }

    /// The address without what a client can choose freely: attempts, questions and cookies go by it.
    pub(super) fn host(&self) -> Vec<u8> {
        match self {
            Self::Inet(address) => match address.ip().to_canonical() {
                IpAddr::V4(address) => address.octets().to_vec(),
                // Of its network a host has whatever address it likes.
                IpAddr::V6(address) => address.octets().into_iter().take(8).collect(),
            },
            Self::Link(hardware) => hardware.to_vec(),
        }
    }

    /// As others count it: a station is a network of its own there.
    pub(super) fn origin(&self) -> IpAddr {
        match self {
            Self::Inet(address) => address.ip(),
            Self::Link([a, b, c, d, e, f]) => {
                let words = [[0xfd, *a], [*b, *c], [*d, *e], [*f, 0]].map(u16::from_be_bytes);
                let [a, b, c, d] = words;
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
        }
    }

    /// For reports that have IP addresses only: a station of Ethernet stands there with its link-local address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        match self {
            Self::Inet(address) => *address,
            Self::Link([a, b, c, d, e, f]) => {
                let words = [[*a ^ 2, *b], [*c, 0xff], [0xfe, *d], [*e, *f]];
                let [a, b, c, d] = words.map(u16::from_be_bytes);
                let address = Ipv6Addr::new(0xfe80, 0, 0, 0, a, b, c, d);
                SocketAddr::new(IpAddr::V6(address), 0)
            }
        }
    }
}

impl fmt::Display for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => address.fmt(f),
            Self::Link([a, b, c, d, e, g]) => {
                write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Station = Station::Link([0x02, 0x11, 0x22, 0x33, 0x44, 0x55]);

    #[test]
    fn a_station_has_one_core_whatever_its_port() {
        let at = |text: &str| Station::Inet(text.parse().unwrap());
        assert_eq!(at("192.0.2.7:1").core(4), at("192.0.2.7:9000").core(4));
        assert_eq!(at("0.0.0.7:1").core(4), 3);
        assert_eq!(at("[2001:db8::6]:1").core(4), 2);
        assert_eq!(MAC.core(2), 1);
        assert_eq!(MAC.core(1), 0);
        assert_eq!(MAC.core(0), 0, "no core is none to divide by");
    }

    #[test]
    fn attempts_of_a_host_are_counted_together_whatever_address_of_its_network_it_takes() {
        let host = |text: &str| Station::Inet(text.parse().unwrap()).host();
        let one = host("[2001:db8:0:1::1]:9");
        assert_eq!(one, host("[2001:db8:0:1:ffff:ffff:ffff:ffff]:10"));
        assert_ne!(one, host("[2001:db8:0:2::1]:9"), "another network");
        assert_eq!(host("192.0.2.7:1"), host("192.0.2.7:2"), "ports are free");
        assert_eq!(host("192.0.2.7:1"), host("[::ffff:192.0.2.7]:1"));
        assert_ne!(host("192.0.2.7:1"), host("192.0.2.8:1"));
        assert_eq!(MAC.host().len(), 6);
    }

    #[test]
    fn stations_of_ethernet_are_shown_and_counted_each_for_itself() {
        assert_eq!(MAC.to_string(), "02:11:22:33:44:55");
        assert_eq!(MAC.peer().to_string(), "[fe80::11:22ff:fe33:4455]:0");
        let other = Station::Link([0x02, 0x11, 0x22, 0x33, 0x44, 0x56]);
        let origin = |station: &Station| crate::iscsi::origin(station.origin());
        assert_ne!(origin(&MAC), origin(&other));
    }

    #[test]
    fn an_interface_carries_what_its_mtu_allows() {
        let sizes = |base, most| Some(FrameSizes { base, most });
        assert_eq!(FrameSizes::of_mtu(1500), sizes(1500, 1500));
        assert_eq!(FrameSizes::of_mtu(9216), sizes(1500, 9000));
        assert_eq!(FrameSizes::of_mtu(1280), sizes(1280, 1280));
        assert_eq!(FrameSizes::of_mtu(1279), None);
    }
}
