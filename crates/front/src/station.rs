//! Where clients are.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Where a client is, as its carrier has it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Station {
    /// Of TCP or UDP.
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
    pub(crate) fn host(&self) -> Vec<u8> {
        match self {
            Self::Inet(address) => match address.ip().to_canonical() {
                IpAddr::V4(address) => address.octets().to_vec(),
                // Of its network a host has whatever address it likes.
                IpAddr::V6(address) => address.octets().into_iter().take(8).collect(),
            },
            Self::Link(hardware) => hardware.to_vec(),
        }
    }

    /// Its address for those who know IP addresses only. A station of Ethernet is a network of its own there.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        match self {
            Self::Inet(address) => address.ip(),
            Self::Link([a, b, c, d, e, f]) => {
                let words = [[0xfd, *a], [*b, *c], [*d, *e], [*f, 0]].map(u16::from_be_bytes);
                let [a, b, c, d] = words;
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
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

impl From<SocketAddr> for Station {
    fn from(address: SocketAddr) -> Self {
        Self::Inet(address)
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
        let lens = [&host("192.0.2.7:1"), &one, &MAC.host()].map(Vec::len);
        assert_eq!(lens, [4, 8, 6]);
    }

    #[test]
    fn stations_of_ethernet_are_shown_and_counted_each_for_itself() {
        assert_eq!(MAC.to_string(), "02:11:22:33:44:55");
        assert_eq!(MAC.ip().to_string(), "fd02:1122:3344:5500::");
        let other = Station::Link([0x02, 0x11, 0x22, 0x33, 0x44, 0x56]);
        let origin = |station: &Station| crate::iscsi::origin(station.ip());
        assert_ne!(origin(&MAC), origin(&other));
    }
}
