//! Addresses as the other programs write them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The port where none is given.
const PORT_DEFAULT: u16 = 3260;

/// `ADDRESS:PORT` for Tarn, of an address with or without a port, IPv6 with or without brackets;
/// `None` for anything else, such as host names.
pub(crate) fn bind(text: &str) -> Option<String> {
    let text = text.trim();
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address.to_string());
    }
    address(text).map(|address| SocketAddr::new(address, PORT_DEFAULT).to_string())
}

/// The same where a program means both families by the addresses that stand for all: then there are two.
pub(crate) fn binds(text: &str) -> Vec<String> {
    let text = text.trim();
    let any = text
        .strip_prefix('*')
        .and_then(|rest| match rest.strip_prefix(':') {
            Some(port) => port.parse().ok(),
            None => rest.is_empty().then_some(PORT_DEFAULT),
        });
    let bind = bind(text);
    let is_any = |address: &SocketAddr| address.is_ipv6() && address.ip().is_unspecified();
    let parsed = bind
        .as_ref()
        .and_then(|bind| bind.parse().ok())
        .filter(is_any);
    match any.or_else(|| parsed.map(|address: SocketAddr| address.port())) {
        Some(port) => {
            let all = [
                IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            ];
            all.map(|ip| SocketAddr::new(ip, port).to_string()).into()
        }
        None => bind.into_iter().collect(),
    }
}

/// An address alone; IPv6 with or without brackets.
pub(crate) fn address(text: &str) -> Option<IpAddr> {
    let inner = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    inner.unwrap_or(text).parse().ok()
}

/// An address or network as Tarn takes it: bits behind the prefix, which some programs ignore, are cleared. A prefix
/// may stand in brackets with its address.
pub(crate) fn network(text: &str) -> Option<String> {
    let (address, prefix) = parts(text)?;
    Some(match prefix {
        None => address.to_string(),
        Some(prefix) => format!("{}/{prefix}", masked(address, prefix)),
    })
}

/// The same for programs where an IPv4 network with bits behind the prefix, or with all or no bits in it, is nobody's:
/// tgt and IET.
pub(crate) fn strict_network(text: &str) -> Option<String> {
    let (address, prefix) = parts(text)?;
    let is_some = match (address, prefix) {
        (_, None) => true,
        (IpAddr::V4(_), Some(prefix)) => {
            (1..32).contains(&prefix) && masked(address, prefix) == address
        }
        (IpAddr::V6(_), Some(prefix)) => prefix < 128,
    };
    network(text).filter(|_| is_some)
}

fn parts(text: &str) -> Option<(IpAddr, Option<u8>)> {
    let Some((front, behind)) = text.split_once('/') else {
        return Some((address(text)?, None));
    };
    let address = address(front)?;
    let max: u8 = if address.is_ipv4() { 32 } else { 128 };
    let prefix = behind.parse().ok().filter(|prefix| *prefix <= max)?;
    Some((address, Some(prefix)))
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
            ("[::]", Some("[::]:3260")),
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
            ("192.0.2.7/255.255.255.0", None),
            ("192.0.2.7", Some("192.0.2.7")),
            ("192.0.2.7/33", None),
            ("[2001:db8::7]/32", Some("2001:db8::/32")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("x/8", None),
        ] {
            assert_eq!(network(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn an_address_for_all_is_one_of_each_family() {
        let both = |port: u16| vec![format!("0.0.0.0:{port}"), format!("[::]:{port}")];
        for (text, expected) in [
            ("*", both(3260)),
            ("*:3262", both(3262)),
            ("[::0]:3261", both(3261)),
            ("::", both(3260)),
            ("0.0.0.0", vec!["0.0.0.0:3260".to_owned()]),
            ("*:x", Vec::new()),
        ] {
            assert_eq!(binds(text), expected, "{text}");
        }
    }

    #[test]
    fn a_network_with_bits_that_do_not_count_is_nobody_to_tgt() {
        for (text, expected) in [
            ("192.0.2.0/24", Some("192.0.2.0/24")),
            ("192.0.2.5/24", None),
            ("192.0.2.5/32", None),
            ("0.0.0.0/0", None),
            ("192.0.2.5", Some("192.0.2.5")),
            ("[2001:db8::1]/32", Some("2001:db8::/32")),
            ("[2001:db8::1]/128", None),
        ] {
            assert_eq!(strict_network(text).as_deref(), expected, "{text}");
        }
    }
}
