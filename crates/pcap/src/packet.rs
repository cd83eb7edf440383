//! The headers of a packet that could have carried a segment.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Segment;

/// Of IP version 4, without options.
const IPV4_BYTES: usize = 20;

/// Of IP version 6, without extensions.
const IPV6_BYTES: usize = 40;

/// Of TCP, without options.
const TCP_BYTES: usize = 20;

/// What [`headers`] gives at most.
pub(crate) const HEADER_BYTES_MAX: usize = IPV6_BYTES + TCP_BYTES;

/// The number of TCP among the protocols of IP.
const PROTOCOL_TCP: u8 = 6;

/// Hops a packet may take.
const HOPS_MAX: u8 = 64;

/// Headers of IP and TCP for `length` bytes of data from byte `start` of a segment on.
pub(crate) fn headers(segment: &Segment<'_>, start: usize, length: usize) -> Vec<u8> {
    let mut headers = Vec::with_capacity(HEADER_BYTES_MAX);
    // A socket for both versions reports addresses of version 4 as mapped ones.
    let ends = (
        segment.from.ip().to_canonical(),
        segment.to.ip().to_canonical(),
    );
    match ends {
        (IpAddr::V4(from), IpAddr::V4(to)) => push_ipv4(&mut headers, from, to, length),
        (from, to) => push_ipv6(&mut headers, version_6(from), version_6(to), length),
    }
    push_tcp(&mut headers, segment, start);
    headers
}

fn version_6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn length_field(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes()
}

/// Spec: RFC 791 section 3.1.
fn push_ipv4(headers: &mut Vec<u8>, from: Ipv4Addr, to: Ipv4Addr, length: usize) {
    const VERSION_AND_LENGTH: u8 = 0x45;
    const DONT_FRAGMENT: u8 = 0x40;
    let [high, low] = length_field(IPV4_BYTES + TCP_BYTES + length);
    headers.extend_from_slice(&[VERSION_AND_LENGTH, 0, high, low, 0, 0, DONT_FRAGMENT, 0]);
    headers.extend_from_slice(&[HOPS_MAX, PROTOCOL_TCP, 0, 0]);
    headers.extend_from_slice(&from.octets());
    headers.extend_from_slice(&to.octets());
    let checksum = checksum(headers).to_be_bytes();
    headers[10..12].copy_from_slice(&checksum);
}

/// Spec: RFC 1071.
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2);
    let mut sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    while let Some(carry) = Some(sum >> 16).filter(|carry| *carry > 0) {
        sum = (sum & 0xffff) + carry;
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

/// Spec: RFC 8200 section 3.
fn push_ipv6(headers: &mut Vec<u8>, from: Ipv6Addr, to: Ipv6Addr, length: usize) {
    const VERSION: u8 = 0x60;
    let [high, low] = length_field(TCP_BYTES + length);
    headers.extend_from_slice(&[VERSION, 0, 0, 0, high, low, PROTOCOL_TCP, HOPS_MAX]);
    headers.extend_from_slice(&from.octets());
    headers.extend_from_slice(&to.octets());
}

/// The checksum is left out: it covers data that may not be there.
///
/// Spec: RFC 9293 section 3.1.
fn push_tcp(headers: &mut Vec<u8>, segment: &Segment<'_>, start: usize) {
    const HEADER_WORDS: u8 = 5 << 4;
    const ACK_AND_PSH: u8 = 0x18;
    const WINDOW: u16 = u16::MAX;
    headers.extend_from_slice(&segment.from.port().to_be_bytes());
    headers.extend_from_slice(&segment.to.port().to_be_bytes());
    headers.extend_from_slice(&sequence_number(segment.position + start as u64));
    headers.extend_from_slice(&sequence_number(segment.acknowledged));
    headers.extend_from_slice(&[HEADER_WORDS, ACK_AND_PSH]);
    headers.extend_from_slice(&WINDOW.to_be_bytes());
    headers.extend_from_slice(&[0; 4]);
}

/// The number of the byte at this place, which wraps around. The first byte of a stream has number
/// one: zero is the SYN's.
fn sequence_number(position: u64) -> [u8; 4] {
    let [_, _, _, _, low @ ..] = position.wrapping_add(1).to_be_bytes();
    low
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn segment(from: &str, to: &str, position: u64) -> Segment<'static> {
        Segment {
            at: Duration::ZERO,
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            position,
            acknowledged: 0xffff_ffff,
            whole_bytes: 0,
            bytes: &[],
        }
    }

    #[test]
    fn the_headers_of_version_4_have_every_field_in_its_place() {
        let headers = headers(&segment("192.0.2.1:3260", "192.0.2.2:50000", 7), 3, 48);
        let expected = [
            0x45, 0, 0, 88, 0, 0, 0x40, 0, 64, 6, 0xb6, 0x9c, 192, 0, 2, 1, 192, 0, 2, 2, 0x0c,
            0xbc, 0xc3, 0x50, 0, 0, 0, 11, 0, 0, 0, 0, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0,
        ];
        assert_eq!(headers, expected);
        assert_eq!(checksum(&headers[..IPV4_BYTES]), 0);
    }

    #[test]
    fn the_headers_of_version_6_have_every_field_in_its_place() {
        let headers = headers(&segment("[2001:db8::1]:860", "[2001:db8::2]:1", 0), 0, 1000);
        let mut expected = vec![0x60, 0, 0, 0, 0x03, 0xfc, 6, 64];
        for last in [1, 2] {
            expected.extend_from_slice(&[0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0]);
            expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, last]);
        }
        expected.extend_from_slice(&[0x03, 0x5c, 0, 1, 0, 0, 0, 1]);
        assert_eq!(headers[..48], expected);
    }

    #[test]
    fn mapped_addresses_are_those_of_version_4() {
        let mapped = headers(
            &segment("[::ffff:192.0.2.1]:1", "[::ffff:192.0.2.2]:2", 0),
            0,
            0,
        );
        assert_eq!(
            mapped,
            headers(&segment("192.0.2.1:1", "192.0.2.2:2", 0), 0, 0)
        );
        let mixed = headers(&segment("192.0.2.1:1", "[2001:db8::2]:2", 0), 0, 0);
        assert_eq!((mixed[0], mixed.len()), (0x60, HEADER_BYTES_MAX));
    }

    #[test]
    fn numbers_of_bytes_wrap_around() {
        assert_eq!(sequence_number(0), [0, 0, 0, 1]);
        assert_eq!(sequence_number(0xffff_fffe), [0xff; 4]);
        assert_eq!(sequence_number(0xffff_ffff), [0; 4]);
        assert_eq!(sequence_number(u64::MAX), [0; 4]);
    }
}
