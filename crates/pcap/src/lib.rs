//! Captures as files that protocol analysers read: segments of TCP streams in, or frames of Ethernet, one file out.
//!
//! The caller knows what went over a connection, but not in which packets. So the packets are
//! made up: each segment gets headers of IP and TCP with the real addresses, ports and places in
//! the stream. A segment that is too long for one packet becomes several. Of a segment that was
//! cut short the packets say how long it was and hold what there is, as those of a capture with a
//! snapshot length do. Frames are those that went over a wire, with their Ethernet headers.
//!
//! The crate knows no protocol above TCP or Ethernet, and no file, clock or socket.
//!
//! Spec: draft-ietf-opsawg-pcap; RFC 791, RFC 8200, RFC 9293.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod packet;

use std::net::SocketAddr;
use std::time::Duration;

/// The first bytes of the file, in the order of the machine that wrote it: times are microseconds.
const MAGIC: u32 = 0xa1b2_c3d4;

/// Version 2.4.
const VERSION: (u16, u16) = (2, 4);

/// What packets of a file begin with.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LinkType {
    /// The header of IP, version 4 or 6 as its first bits say: a file of segments.
    #[default]
    Ip,
    /// The header of Ethernet: a file of frames.
    Ethernet,
}

impl LinkType {
    /// Spec: draft-ietf-opsawg-pcaplinktype.
    const fn number(self) -> u32 {
        match self {
            Self::Ip => 101,
            Self::Ethernet => 1,
        }
    }
}

/// No packet is longer, in bytes.
const SNAPSHOT_BYTES_MAX: u32 = 65_535;

/// Data of one packet, in bytes: with all headers it stays below what their length fields hold.
const DATA_BYTES_MAX: usize = 65_000;

const _: () = assert!(DATA_BYTES_MAX + packet::HEADER_BYTES_MAX <= SNAPSHOT_BYTES_MAX as usize);

/// A piece of one direction of a TCP stream.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// When it went, since 1970-01-01 UTC.
    pub at: Duration,
    /// Who sent it.
    pub from: SocketAddr,
    /// Who got it.
    pub to: SocketAddr,
    /// How much the sender had sent before it, in bytes.
    pub position: u64,
    /// How much the sender had received before it, in bytes.
    pub acknowledged: u64,
    /// How long it was, in bytes.
    pub whole_bytes: usize,
    /// Its beginning, or all of it.
    pub bytes: &'a [u8],
}

/// A frame of Ethernet.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// When it went, since 1970-01-01 UTC.
    pub at: Duration,
    /// Who got it.
    pub to: [u8; 6],
    /// Who sent it.
    pub from: [u8; 6],
    /// Its EtherType.
    pub ether_type: u16,
    /// How long it was behind its header, in bytes.
    pub whole_bytes: usize,
    /// The beginning of what is behind its header, or all of it.
    pub bytes: &'a [u8],
}

/// The file of these packets, which are all of one kind. Readers expect them in the order of their times.
pub fn file<'a>(link: LinkType, packets: impl IntoIterator<Item = &'a Packets>) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend_from_slice(&MAGIC.to_le_bytes());
    file.extend_from_slice(&VERSION.0.to_le_bytes());
    file.extend_from_slice(&VERSION.1.to_le_bytes());
    // Offset of the time zone and accuracy of the times: both are zero everywhere.
    file.extend_from_slice(&[0; 8]);
    file.extend_from_slice(&SNAPSHOT_BYTES_MAX.to_le_bytes());
    file.extend_from_slice(&link.number().to_le_bytes());
    for some in packets {
        file.extend_from_slice(&some.bytes);
    }
    file
}

/// Packets, each behind its time and its lengths, as they stand in the file.
#[derive(Clone, Debug, Default)]
pub struct Packets {
    bytes: Vec<u8>,
}

impl Packets {
    /// How much they take in a file, in bytes.
    pub const fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a segment.
    #[inline]
    pub fn push(&mut self, segment: &Segment<'_>) {
        let whole = segment.whole_bytes.max(segment.bytes.len());
        let mut start = 0;
        loop {
            let end = whole.min(start + DATA_BYTES_MAX);
            let have = segment.bytes.len();
            let data = &segment.bytes[start.min(have)..end.min(have)];
            self.push_packet(segment, start, end - start, data);
            start = end;
            if start >= whole {
                return;
            }
        }
    }

    /// Appends the packet of `length` bytes of data from `start` on, of which `data` is there.
    fn push_packet(&mut self, segment: &Segment<'_>, start: usize, length: usize, data: &[u8]) {
        let headers = packet::headers(segment, start, length);
        self.push_record(segment.at, &headers, length, data);
    }

    /// Appends a frame.
    pub fn push_frame(&mut self, frame: &Frame<'_>) {
        let mut header = [0; 14];
        let (to, rest) = header.split_at_mut(6);
        let (from, ether_type) = rest.split_at_mut(6);
        to.copy_from_slice(&frame.to);
        from.copy_from_slice(&frame.from);
        ether_type.copy_from_slice(&frame.ether_type.to_be_bytes());
        let length = frame.whole_bytes.max(frame.bytes.len());
        self.push_record(frame.at, &header, length, frame.bytes);
    }

    /// Appends what went at that time: headers, and `data` of `length` bytes behind them.
    fn push_record(&mut self, at: Duration, headers: &[u8], length: usize, data: &[u8]) {
        let seconds = u32::try_from(at.as_secs()).unwrap_or(u32::MAX);
        self.push_u32(seconds);
        self.push_u32(at.subsec_micros());
        self.push_length(headers.len() + data.len());
        self.push_length(headers.len() + length);
        self.bytes.extend_from_slice(headers);
        self.bytes.extend_from_slice(data);
    }

    fn push_u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    fn push_length(&mut self, bytes: usize) {
        self.push_u32(u32::try_from(bytes).unwrap_or(u32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE_HEADER_BYTES: usize = 24;
    const RECORD_HEADER_BYTES: usize = 16;

    fn segment(bytes: &[u8]) -> Segment<'_> {
        Segment {
            at: Duration::new(1_700_000_000, 123_456_789),
            from: "192.0.2.1:3260".parse().unwrap(),
            to: "192.0.2.2:50000".parse().unwrap(),
            position: 0x10,
            acknowledged: 0x20,
            whole_bytes: bytes.len(),
            bytes,
        }
    }

    /// (bytes in the file, bytes in the stream, packet) of every packet.
    fn cut(file: &[u8]) -> Vec<(usize, usize, &[u8])> {
        let mut rest = &file[FILE_HEADER_BYTES..];
        let mut found = Vec::new();
        while !rest.is_empty() {
            let length = |at: usize| {
                let bytes = rest[at..at + 4].try_into().unwrap();
                u32::from_le_bytes(bytes) as usize
            };
            let (included, original) = (length(8), length(12));
            let end = RECORD_HEADER_BYTES + included;
            found.push((included, original, &rest[RECORD_HEADER_BYTES..end]));
            rest = &rest[end..];
        }
        found
    }

    #[test]
    fn a_file_begins_as_all_of_its_kind() {
        let expected = [
            0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 101, 0,
            0, 0,
        ];
        assert_eq!(file(LinkType::Ip, []), expected);
    }

    #[test]
    fn a_frame_has_its_header_and_both_lengths() {
        let mut packets = Packets::default();
        packets.push_frame(&Frame {
            at: Duration::new(7, 8_000),
            to: [1, 2, 3, 4, 5, 6],
            from: [7, 8, 9, 10, 11, 12],
            ether_type: 0x889a,
            whole_bytes: 1500,
            bytes: b"begin",
        });
        let file = file(LinkType::Ethernet, [&packets]);
        assert_eq!(file[20..24], [1, 0, 0, 0]);
        let lengths: Vec<u8> = [7, 8, 19, 1514]
            .iter()
            .flat_map(|value: &u32| value.to_le_bytes())
            .collect();
        assert_eq!(
            file[FILE_HEADER_BYTES..FILE_HEADER_BYTES + RECORD_HEADER_BYTES],
            lengths
        );
        let frame = [
            &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x88, 0x9a],
            &b"begin"[..],
        ]
        .concat();
        assert!(file.ends_with(&frame));
    }

    #[test]
    fn a_segment_is_a_packet_with_its_time_and_both_lengths() {
        let mut packets = Packets::default();
        packets.push(&Segment {
            whole_bytes: 100,
            ..segment(b"begin")
        });
        let file = file(LinkType::Ip, [&packets]);
        let record = &file[FILE_HEADER_BYTES..FILE_HEADER_BYTES + RECORD_HEADER_BYTES];
        let expected: Vec<u8> = [1_700_000_000, 123_456, 45, 140]
            .iter()
            .flat_map(|value: &u32| value.to_le_bytes())
            .collect();
        assert_eq!(record, expected);
        assert!(file.ends_with(b"begin"));
    }

    #[test]
    fn a_long_segment_is_several_packets_that_follow_each_other() {
        for (whole, have, expected) in [
            (DATA_BYTES_MAX, 7, &[(7, DATA_BYTES_MAX)][..]),
            (DATA_BYTES_MAX + 1, 7, &[(7, DATA_BYTES_MAX), (0, 1)]),
            (
                2 * DATA_BYTES_MAX,
                DATA_BYTES_MAX + 3,
                &[(DATA_BYTES_MAX, DATA_BYTES_MAX), (3, DATA_BYTES_MAX)],
            ),
            (0, 0, &[(0, 0)]),
        ] {
            let mut packets = Packets::default();
            packets.push(&Segment {
                whole_bytes: whole,
                ..segment(&vec![0x5a; have])
            });
            let file = file(LinkType::Ip, [&packets]);
            let mut position = 0x11;
            let mut found = Vec::new();
            for (included, original, packet) in cut(&file) {
                let sequence = u32::from_be_bytes(packet[24..28].try_into().unwrap());
                assert_eq!(sequence as usize, position, "{whole} bytes");
                position += original - 40;
                found.push((included - 40, original - 40));
            }
            assert_eq!(found, expected, "{whole} bytes");
        }
    }

    #[test]
    fn more_data_than_was_announced_is_believed() {
        let mut packets = Packets::default();
        packets.push(&Segment {
            whole_bytes: 1,
            ..segment(b"four")
        });
        assert_eq!(cut(&file(LinkType::Ip, [&packets]))[0].1, 44);
    }
}
