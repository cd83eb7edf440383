//! Cuts a byte stream into whole PDUs.
//!
//! For the places where speed does not matter: the login of both roles, and tests. The
//! full-feature phase of the target receives into the buffers of its tasks instead.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use crate::digest::{DIGEST_LENGTH_BYTES, Digest};
use crate::pdu::{BHS_LENGTH_BYTES, BhsBytes, PduLayout, padded_length};

/// Why a byte stream cannot be cut on.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FramingError {
    /// The data segment is longer than this side declared to take.
    #[error("data segment of {got_bytes} bytes, limit is {limit_bytes}")]
    DataSegmentTooLong {
        /// Announced by the peer.
        got_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// The header's digest is wrong, so no length in it can be trusted.
    #[error("header digest error")]
    HeaderDigest,
    /// The data's digest is wrong.
    #[error("data digest error")]
    DataDigest,
}

/// One PDU, out of the stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pdu {
    /// Basic header segment.
    pub header: BhsBytes,
    /// Additional header segments.
    pub ahs: Vec<u8>,
    /// Data segment without padding.
    pub data: Vec<u8>,
}

impl Pdu {
    /// A PDU of these parts; the length fields of the header are set to fit.
    ///
    /// Data beyond what a length field can express is cut off, which no caller of this crate does.
    #[must_use]
    pub fn new(header: &BhsBytes, data: Vec<u8>) -> Self {
        let mut header = *header;
        let length = u32::try_from(data.len()).unwrap_or(crate::pdu::U24::MAX);
        let common = <crate::pdu::RequestBhs as crate::pdu::Bhs>::view_mut(&mut header);
        common.data_segment_length = crate::pdu::U24::new(length).unwrap_or_default();
        Self {
            header,
            ahs: Vec::new(),
            data,
        }
    }

    /// The bytes to send, with padding and the digests that are on.
    #[must_use]
    pub fn to_bytes(&self, header_digest: bool, data_digest: bool) -> Vec<u8> {
        let layout = PduLayout::of(&self.header, header_digest, data_digest);
        let mut bytes = Vec::with_capacity(layout.total_bytes());
        bytes.extend_from_slice(&self.header);
        bytes.extend_from_slice(&self.ahs);
        if header_digest {
            bytes.extend_from_slice(&Digest::of(&bytes).to_wire());
        }
        bytes.extend_from_slice(&self.data);
        bytes.resize(bytes.len().saturating_add(layout.padding_bytes), 0);
        if layout.data_digest_bytes != 0 {
            bytes.extend_from_slice(&crate::digest::data_digest(&self.data));
        }
        bytes
    }
}

/// Bytes received and not yet cut.
#[derive(Clone, Debug, Default)]
pub struct PduBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl PduBuffer {
    /// An empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
        }
    }

    /// Appends what was received. The buffer never holds more than one longest PDU and what came
    /// in with its last byte, as long as [`PduBuffer::next_pdu`] is called after each push.
    pub fn push(&mut self, received: &[u8]) {
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.extend_from_slice(received);
    }

    /// The next whole PDU, or `None` when more bytes are needed.
    ///
    /// # Errors
    ///
    /// The stream cannot be followed any further; close the connection.
    pub fn next_pdu(
        &mut self,
        data_limit_bytes: usize,
        header_digest: bool,
        data_digest: bool,
    ) -> Result<Option<Pdu>, FramingError> {
        let bytes = self.bytes.get(self.start..).unwrap_or_default();
        let Some((header, _)) = bytes.split_first_chunk::<BHS_LENGTH_BYTES>() else {
            return Ok(None);
        };
        let layout = PduLayout::of(header, header_digest, data_digest);
        let headers_end = BHS_LENGTH_BYTES.saturating_add(layout.ahs_bytes);
        let Some((headers, _)) = bytes.split_at_checked(headers_end) else {
            return Ok(None);
        };
        if header_digest {
            let Some(wire) = digest_at(bytes, headers_end) else {
                return Ok(None);
            };
            // Checked before any length is believed.
            if !Digest::of(headers).matches(wire) {
                return Err(FramingError::HeaderDigest);
            }
        }
        if layout.data_bytes > data_limit_bytes {
            return Err(FramingError::DataSegmentTooLong {
                got_bytes: layout.data_bytes,
                limit_bytes: data_limit_bytes,
            });
        }
        let Some(whole) = bytes.get(..layout.total_bytes()) else {
            return Ok(None);
        };
        let padded = whole
            .get(layout.header_end()..)
            .and_then(|rest| rest.get(..padded_length(layout.data_bytes)))
            .unwrap_or_default();
        if layout.data_digest_bytes != 0 {
            let at = layout.header_end().saturating_add(padded.len());
            if !digest_at(whole, at).is_some_and(|wire| Digest::of(padded).matches(wire)) {
                return Err(FramingError::DataDigest);
            }
        }
        let pdu = Pdu {
            header: *header,
            ahs: headers.get(BHS_LENGTH_BYTES..).unwrap_or_default().to_vec(),
            data: padded.get(..layout.data_bytes).unwrap_or_default().to_vec(),
        };
        self.start = self.start.saturating_add(whole.len());
        Ok(Some(pdu))
    }

    /// What was received behind the last PDU that was cut.
    #[must_use]
    pub fn into_unread(mut self) -> Vec<u8> {
        self.bytes.drain(..self.start);
        self.bytes
    }
}

fn digest_at(bytes: &[u8], at: usize) -> Option<[u8; DIGEST_LENGTH_BYTES]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pdu(ahs_words: u8, data: &[u8]) -> Pdu {
        let mut header = [0; BHS_LENGTH_BYTES];
        header[0] = 0x01;
        header[4] = ahs_words;
        let mut pdu = Pdu::new(&header, data.to_vec());
        pdu.ahs = vec![0x5a; usize::from(ahs_words) * 4];
        pdu
    }

    #[test]
    fn any_cut_of_the_stream_gives_the_same_pdus() {
        let pdus = [pdu(0, b""), pdu(2, b"abcde"), pdu(1, b"abcdefgh")];
        for (header_digest, data_digest) in
            [(false, false), (true, false), (false, true), (true, true)]
        {
            let stream: Vec<u8> = pdus
                .iter()
                .flat_map(|pdu| pdu.to_bytes(header_digest, data_digest))
                .collect();
            for step in [1, 7, 50, stream.len()] {
                let mut buffer = PduBuffer::new();
                let mut found = Vec::new();
                for piece in stream.chunks(step) {
                    buffer.push(piece);
                    while let Some(pdu) = buffer.next_pdu(8, header_digest, data_digest).unwrap() {
                        found.push(pdu);
                    }
                }
                assert_eq!(found, pdus);
                assert_eq!(buffer.into_unread(), b"");
            }
        }
    }

    #[test]
    fn length_limit_holds_at_both_edges_before_the_data_comes() {
        let mut buffer = PduBuffer::new();
        buffer.push(&pdu(0, b"12345678").to_bytes(false, false)[..48]);
        assert_eq!(buffer.next_pdu(8, false, false), Ok(None));
        assert_eq!(
            buffer.next_pdu(7, false, false),
            Err(FramingError::DataSegmentTooLong {
                got_bytes: 8,
                limit_bytes: 7
            })
        );
    }

    #[test]
    fn one_flipped_bit_is_seen_by_the_digest_that_covers_it() {
        let good = pdu(1, b"abcde").to_bytes(true, true);
        for (byte, error) in [
            (20, FramingError::HeaderDigest),
            (50, FramingError::HeaderDigest),
            (55, FramingError::HeaderDigest),
            (56, FramingError::DataDigest),
            (63, FramingError::DataDigest),
            (64, FramingError::DataDigest),
        ] {
            let mut bad = good.clone();
            bad[byte] ^= 0x10;
            let mut buffer = PduBuffer::new();
            buffer.push(&bad);
            assert_eq!(buffer.next_pdu(8, true, true), Err(error), "byte {byte}");
        }
    }

    #[test]
    fn bytes_behind_a_pdu_are_kept() {
        let mut buffer = PduBuffer::new();
        buffer.push(&[pdu(0, b"x").to_bytes(false, false), b"rest".to_vec()].concat());
        assert!(buffer.next_pdu(8, false, false).unwrap().is_some());
        assert_eq!(buffer.into_unread(), b"rest");
    }

    proptest! {
        #[test]
        fn no_stream_makes_the_cutter_panic(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..20),
            header_digest in any::<bool>(),
            data_digest in any::<bool>(),
        ) {
            let mut buffer = PduBuffer::new();
            'stream: for piece in pieces {
                buffer.push(&piece);
                loop {
                    match buffer.next_pdu(100, header_digest, data_digest) {
                        Ok(Some(pdu)) => prop_assert!(pdu.data.len() <= 100),
                        Ok(None) => break,
                        Err(_) => break 'stream,
                    }
                }
            }
        }
    }
}
