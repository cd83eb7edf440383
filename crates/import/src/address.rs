//! Addresses as the other programs write them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The port where none is given.
const PORT_DEFAULT: u16 = 3260;

/// `ADDRESS:PORT` for Tarn, of an address with or without a port, IPv6 with or without brackets;
/// `None` for anything else, such as host names.
pub(crate) fn bind(text: &str) -> Option<String> {
    let text = text.trim();
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address.to_string());
    }
    if let Some(port) = text.strip_prefix("*:").and_then(|port| port.parse().ok()) {
        return Some(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port).to_string());
    }
    address(text).map(|address| SocketAddr::new(address, PORT_DEFAULT).to_string())
}

/// An address alone; IPv6 with or without brackets.
pub(crate) fn address(text: &str) -> Option<IpAddr> {
    let inner = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    inner.unwrap_or(text).parse().ok()
}

/// An address or network as Tarn takes it: bits behind the prefix, which the other programs ignore,
/// are cleared. A prefix may stand in brackets with its address, and an IPv4 mask be dotted.
pub(crate) fn network(text: &str) -> Option<String> {
    let Some((front, behind)) = text.split_once('/') else {
        return address(text).map(|address| address.to_string());
    };
    let address = address(front)?;
    let max: u8 = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match behind.parse::<u8>() {
        Ok(prefix) => prefix,
        Err(_) => dotted_prefix(behind)?,
    };
    if prefix > max {
        return None;
    }
    Some(format!("{}/{prefix}", masked(address, prefix)))
}

/// The length of a mask such as `255.255.255.0`, if its ones are all in front.
fn dotted_prefix(text: &str) -> Option<u8> {
    let mask = u32::from(text.parse::<std::net::Ipv4Addr>().ok()?);
    let ones = mask.leading_ones();
    (ones == mask.count_ones()).then(|| u8::try_from(ones).ok())?
}

fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match address {
        IpAddr::V4(v4) => {
            let host_bits = u32::MAX.checked_shr(prefix).unwrap_or(0);
            IpAddr::from((u32::from(v4) & !host_bits).to_be_bytes())
        }
        IpAddr::V6(v6) => {
            let host_bits = u128::MAX.checked_shr(prefix).unwrap_or(0);
            IpAddr::from((u128::from(v6) & !host_bits).to_be_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_an_address_is_read() {
        for (text, expected) in [
            ("192.0.2.1", Some("192.0.2.1:3260")),
            ("192.0.2.1:3261", Some("192.0.2.1:3261")),
            ("[2001:db8::1]:1", Some("[2001:db8::1]:1")),
            ("[2001:db8::1]", Some("[2001:db8::1]:3260")),
            ("2001:db8::1", Some("[2001:db8::1]:3260")),
            ("*:3262", Some("[::]:3262")),
            ("san.example", None),
            ("", None),
        ] {
            assert_eq!(bind(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_network_loses_the_bits_that_do_not_count() {
        for (text, expected) in [
            ("192.0.2.7/24", Some("192.0.2.0/24")),
            ("192.0.2.7/255.255.255.0", Some("192.0.2.0/24")),
            ("192.0.2.7/255.0.255.0", None),
            ("192.0.2.7", Some("192.0.2.7")),
            ("192.0.2.7/33", None),
            ("[2001:db8::7]/32", Some("2001:db8::/32")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("x/8", None),
        ] {
            assert_eq!(network(text).as_deref(), expected, "{text}");
        }
    }
}
