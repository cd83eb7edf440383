//! Addresses to listen on, to advertise and to admit. Resolves no name.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Why a text is no address.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AddressRule {
    /// Something that is no address with port.
    #[error(
        "portal {text:?} is not an address; write 192.0.2.1:3260 or [2001:db8::1]:3260; 0.0.0.0:3260 stands for all \
         IPv4 addresses, [::]:3260 for all IPv6 addresses"
    )]
    Portal {
        /// The address as written.
        text: String,
    },
    /// The same for a server of NBD.
    #[error(
        "{text:?} is not an address; write 192.0.2.1:10809 or [2001:db8::1]:10809; 0.0.0.0:10809 stands for all \
         IPv4 addresses, [::]:10809 for all IPv6 addresses"
    )]
    Nbd {
        /// The address as written.
        text: String,
    },
    /// The same for HyperSCSI over UDP.
    #[error(
        "{text:?} is not an address; write 192.0.2.1:5674 or [2001:db8::1]:5674; 0.0.0.0:5674 stands for all \
         IPv4 addresses, [::]:5674 for all IPv6 addresses"
    )]
    HyperScsi {
        /// The address as written.
        text: String,
    },
    /// Something that cannot be the name of an interface.
    #[error(
        "{text:?} is not the name of an interface; write 1 to 15 bytes without blanks, colons and slashes, as \
         `ip link` shows them"
    )]
    Interface {
        /// The name as written.
        text: String,
    },
    /// A port that is no number from 1 to 65535.
    #[error("{text:?}: the port is not a number from {min} to 65535")]
    Port {
        /// The address as written.
        text: String,
        /// Smallest legal port at this place.
        min: u16,
    },
    /// Something that is no host name with port.
    #[error(
        "advertised address {text:?} is not a host; write san.example:3260, 192.0.2.1:3260 or [2001:db8::1]:3260"
    )]
    Advertised {
        /// The address as written.
        text: String,
    },
    /// An advertised address that nobody can connect to.
    #[error("advertised address {text:?} means all addresses; give one that initiators can reach")]
    AdvertisedUnspecified {
        /// The address as written.
        text: String,
    },
    /// A network prefix that is too long for its address.
    #[error("network {text:?}: prefix length {got} is more than {max}")]
    PrefixTooLong {
        /// The network as written.
        text: String,
        /// The prefix length as written.
        got: String,
        /// The longest prefix of this family.
        max: u8,
    },
    /// A network with bits set behind its prefix; half of these are slips.
    #[error(
        "network {text:?} has bits set behind its prefix; write {network} for the network or {host} for the one address"
    )]
    HostBitsSet {
        /// The network as written.
        text: String,
        /// What the whole network would be.
        network: String,
        /// What the single address would be.
        host: String,
    },
    /// An initiator pattern that is neither name, address nor user.
    #[error(
        "initiator {pattern:?} is neither an iSCSI name pattern (iqn.*, eui.*, naa.* or *), nor an address or \
         network (10.0.0.0/24), nor the name of a [[user]]"
    )]
    InitiatorUnknown {
        /// The entry as written.
        pattern: String,
    },
}

/// The port of iSCSI, taken where none is given.
///
/// Spec: RFC 7143 section 4.2.7.1 (registered TCP port).
pub const ISCSI_PORT: u16 = 3260;

/// The port of NBD, where none is given.
///
/// Spec: the NBD protocol; IANA, Service Name and Transport Protocol Port Number Registry.
pub const NBD_PORT: u16 = 10_809;

/// The port of HyperSCSI over UDP, where none is given.
///
/// Spec: docs/internals/hyperscsi.md, carriers.
pub const HYPERSCSI_PORT: u16 = 5674;

/// Reads an address to listen on; port 0 asks the system for a free one.
pub(crate) fn parse_bind(text: &str) -> Result<SocketAddr, AddressRule> {
    parse_bind_or(text, ISCSI_PORT, |text| AddressRule::Portal { text })
}

/// The same for a server of NBD.
pub(crate) fn parse_nbd_bind(text: &str) -> Result<SocketAddr, AddressRule> {
    parse_bind_or(text, NBD_PORT, |text| AddressRule::Nbd { text })
}

/// The same for HyperSCSI over UDP.
pub(crate) fn parse_hyperscsi_bind(text: &str) -> Result<SocketAddr, AddressRule> {
    parse_bind_or(text, HYPERSCSI_PORT, |text| AddressRule::HyperScsi { text })
}

/// The same, with this port where none is given, and this rule for what is no address.
fn parse_bind_or(
    text: &str,
    port: u16,
    wrong: impl FnOnce(String) -> AddressRule,
) -> Result<SocketAddr, AddressRule> {
    let wrong = || wrong(text.to_owned());
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    if let Some(address) = parse_bare_address(text) {
        return Ok(SocketAddr::new(address, port));
    }
    // Right address, wrong port: say that, not that it is no address.
    match text.rsplit_once(':') {
        Some((address, _))
            if parse_bare_address(address).is_some_and(|ip| is_written(ip, address)) =>
        {
            Err(AddressRule::Port {
                text: text.to_owned(),
                min: 0,
            })
        }
        Some(_) | None => Err(wrong()),
    }
}

/// Longest name of an interface in bytes.
///
/// Spec: Linux, IFNAMSIZ without the byte that ends it.
const INTERFACE_BYTES_MAX: usize = 15;

/// The name of an interface.
pub(crate) fn parse_interface(text: &str) -> Result<String, AddressRule> {
    let is_good = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | ':');
    let is_name = (1..=INTERFACE_BYTES_MAX).contains(&text.len()) && text.chars().all(is_good);
    match is_name && !matches!(text, "." | "..") {
        true => Ok(text.to_owned()),
        false => Err(AddressRule::Interface {
            text: text.to_owned(),
        }),
    }
}

/// Whether two texts mean one address to listen on.
pub(crate) fn is_same_bind(a: &str, b: &str) -> bool {
    a == b || parse_bind(a).is_ok_and(|address| parse_bind(b) == Ok(address))
}

/// An address alone; IPv6 with or without brackets.
fn parse_bare_address(text: &str) -> Option<IpAddr> {
    match text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(inner) => inner.parse().ok().filter(IpAddr::is_ipv6),
        None => text.parse().ok(),
    }
}

/// Whether `text` may carry a port: IPv6 only in brackets, as its own colons would swallow it.
fn is_written(address: IpAddr, text: &str) -> bool {
    address.is_ipv4() || text.starts_with('[')
}

/// A host, by name or by address, and a port; the address that initiators connect to.
///
/// Spec: RFC 7143 section 13.8 (TargetAddress).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HostPort {
    /// Host name or address, IPv6 without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// Longest host name in bytes.
const HOST_BYTES_MAX: usize = 253;

impl HostPort {
    /// Reads `host`, `host:port`, `192.0.2.1:port` or `[2001:db8::1]:port`.
    ///
    /// # Errors
    ///
    /// A host that is neither name nor address, an address that stands for all, a port that is no number from 1.
    pub fn parse(text: &str) -> Result<Self, AddressRule> {
        let wrong = || AddressRule::Advertised {
            text: text.to_owned(),
        };
        if let Some(address) = parse_bare_address(text) {
            return Self::from_address(text, address, ISCSI_PORT);
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, parse_port(text, port)?),
            None => (text, ISCSI_PORT),
        };
        match parse_bare_address(host) {
            Some(address) if is_written(address, host) => Self::from_address(text, address, port),
            Some(_) => Err(wrong()),
            None if is_host_name(host) => Ok(Self {
                host: host.to_ascii_lowercase(),
                port,
            }),
            None => Err(wrong()),
        }
    }

    fn from_address(text: &str, address: IpAddr, port: u16) -> Result<Self, AddressRule> {
        if address.is_unspecified() {
            return Err(AddressRule::AdvertisedUnspecified {
                text: text.to_owned(),
            });
        }
        Ok(Self {
            host: address.to_string(),
            port,
        })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

fn parse_port(text: &str, port: &str) -> Result<u16, AddressRule> {
    port.parse()
        .ok()
        .filter(|&port| port != 0)
        .ok_or_else(|| AddressRule::Port {
            text: text.to_owned(),
            min: 1,
        })
}

/// Whether `text` names a host, by name or by address, IPv6 without brackets.
pub fn is_host(text: &str) -> bool {
    is_host_name(text) || text.parse::<IpAddr>().is_ok()
}

fn is_host_name(host: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    // All digits and dots would be a mistyped address, which a resolver might yet take.
    host.len() <= HOST_BYTES_MAX
        && host.split('.').all(is_label)
        && !host
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// A network: an address and the number of leading bits that count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// Whether `text` looks like an address or network rather than a name.
    pub(crate) fn looks_like(text: &str) -> bool {
        let address = text.split_once('/').map_or(text, |(address, _)| address);
        address.parse::<IpAddr>().is_ok()
    }

    /// Reads `192.0.2.1`, `192.0.2.0/24` or `2001:db8::/32`.
    ///
    /// # Errors
    ///
    /// No address, a prefix that is too long, or bits set behind the prefix.
    pub fn parse(text: &str) -> Result<Self, AddressRule> {
        let (address_text, prefix_text) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let Ok(address) = address_text.parse::<IpAddr>() else {
            return Err(AddressRule::InitiatorUnknown {
                pattern: text.to_owned(),
            });
        };
        let max: u8 = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix_text {
            None => max,
            Some(prefix_text) => prefix_text
                .parse()
                .ok()
                .filter(|prefix: &u8| *prefix <= max && prefix.to_string() == prefix_text)
                .ok_or_else(|| AddressRule::PrefixTooLong {
                    text: text.to_owned(),
                    got: prefix_text.to_owned(),
                    max,
                })?,
        };
        let network = mask(address, prefix);
        if network != address {
            return Err(AddressRule::HostBitsSet {
                text: text.to_owned(),
                network: format!("{network}/{prefix}"),
                host: format!("{address}/{max}"),
            });
        }
        // As an address that comes in: a mapped one counts as the IPv4 address it is.
        let mapped = prefix
            .checked_sub(96)
            .filter(|_| address != address.to_canonical());
        Ok(match mapped {
            Some(prefix) => Self {
                address: address.to_canonical(),
                prefix,
            },
            None => Self { address, prefix },
        })
    }

    /// Whether `address` lies in the network. An IPv4 address that came in over an IPv6 socket
    /// counts as the IPv4 address it is.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && mask(address, self.prefix) == self.address
    }

    /// The first address that lies in both networks.
    pub(crate) fn common(&self, other: &Self) -> Option<IpAddr> {
        let (one, two) = (self.address, other.address);
        match (self.contains(two), other.contains(one)) {
            (true, _) => Some(two),
            (false, true) => Some(one),
            (false, false) => None,
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// The first `prefix` bits of an address, the others zero.
fn mask(address: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match address {
        IpAddr::V4(v4) => {
            let bits = !u32::MAX.checked_shr(prefix).unwrap_or(0);
            IpAddr::from((u32::from(v4) & bits).to_be_bytes())
        }
        IpAddr::V6(v6) => {
            let bits = !u128::MAX.checked_shr(prefix).unwrap_or(0);
            IpAddr::from((u128::from(v6) & bits).to_be_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_to_listen_on_is_numeric_and_the_port_may_be_left_out() {
        for (text, address) in [
            ("127.0.0.1:3260", "127.0.0.1:3260"),
            ("127.0.0.1", "127.0.0.1:3260"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("[::]:3261", "[::]:3261"),
            ("[::1]", "[::1]:3260"),
            ("::1", "[::1]:3260"),
        ] {
            assert_eq!(parse_bind(text).unwrap().to_string(), address);
        }
        for (text, message) in [
            ("", "is not an address"),
            ("localhost:3260", "is not an address"),
            ("*:3260", "is not an address"),
            (":3260", "is not an address"),
            ("127.0.0.1:65536", "the port is not a number"),
            ("127.0.0.1:", "the port is not a number"),
            ("[::1]:x", "the port is not a number"),
            ("[127.0.0.1]:3260", "is not an address"),
        ] {
            let got = parse_bind(text).unwrap_err().to_string();
            assert!(got.contains(message), "{text}: {got}");
        }
    }

    #[test]
    fn an_interface_has_a_name_of_1_to_15_bytes() {
        for name in ["e", "eth0.1", "a-name-of-15-by"] {
            assert_eq!(parse_interface(name).as_deref().ok(), Some(name));
        }
        for wrong in [
            "",
            "a-name-of-16-byt",
            "a b",
            "a/b",
            "a:b",
            ".",
            "..",
            "\u{e9}th",
        ] {
            assert!(parse_interface(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_advertised_address_may_be_a_name() {
        for (text, expected) in [
            ("san.example:3260", "san.example:3260"),
            ("San", "san:3260"),
            ("192.0.2.1:1", "192.0.2.1:1"),
            ("2001:db8::1", "[2001:db8::1]:3260"),
            ("[2001:db8::1]:65535", "[2001:db8::1]:65535"),
        ] {
            assert_eq!(HostPort::parse(text).unwrap().to_string(), expected);
        }
        for (text, message) in [
            ("", "is not a host"),
            ("a b:1", "is not a host"),
            ("-a:1", "is not a host"),
            ("a..b:1", "is not a host"),
            ("192.0.2:1", "is not a host"),
            ("san:0", "from 1 to 65535"),
            ("san:65536", "from 1 to 65535"),
            ("0.0.0.0:3260", "means all"),
            ("[::]:3260", "means all"),
        ] {
            let got = HostPort::parse(text).unwrap_err().to_string();
            assert!(got.contains(message), "{text}: {got}");
        }
    }

    #[test]
    fn a_network_contains_its_addresses_and_no_others() {
        for (network, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
            ("192.0.2.0/31", "192.0.2.1", "192.0.2.2"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "2001:db8::1", "192.0.2.1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("2001:db8::1/128", "2001:db8::1", "2001:db8::"),
            ("192.0.2.1/32", "192.0.2.1", "192.0.2.0"),
            ("::ffff:192.0.2.0/120", "192.0.2.255", "192.0.3.0"),
            ("::ffff:0.0.0.0/96", "255.255.255.255", "::1"),
            ("192.0.2.0/24", "::ffff:192.0.2.7", "::ffff:192.0.3.7"),
        ] {
            let network = Cidr::parse(network).unwrap();
            assert!(
                network.contains(inside.parse().unwrap()),
                "{network} {inside}"
            );
            assert!(
                !network.contains(outside.parse().unwrap()),
                "{network} {outside}"
            );
        }
    }

    #[test]
    fn a_network_with_a_slip_is_refused_with_what_was_meant() {
        for (text, message) in [
            (
                "192.0.2.1/24",
                "write 192.0.2.0/24 for the network or 192.0.2.1/32",
            ),
            ("192.0.2.0/33", "prefix length 33 is more than 32"),
            ("2001:db8::/129", "prefix length 129 is more than 128"),
            ("192.0.2.0/x", "prefix length x is more than 32"),
            ("192.0.2", "neither an iSCSI name"),
        ] {
            let got = Cidr::parse(text).unwrap_err().to_string();
            assert!(got.contains(message), "{text}: {got}");
        }
    }
}
