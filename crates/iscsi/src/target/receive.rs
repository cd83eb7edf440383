//! Framing: from a stream of bytes to PDUs, without copying what lies whole in a chunk.
//!
//! A header that ends in another chunk than it began is put together here; a data segment never
//! is: its pieces are handed on as they come, so that they can go straight to their place.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::ops::Range;

use super::Violation;
use crate::digest::{DIGEST_LENGTH_BYTES, Digest};
use crate::excerpt::Standing;
use crate::pdu::{BHS_LENGTH_BYTES, Bhs, BhsBytes, PduLayout, RequestBhs, opcode_bits};

/// A header that is whole and, as far as digests show, undamaged; where it was received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header<'a> {
    pub(super) bhs: &'a BhsBytes,
    /// Additional header segments; almost always empty.
    pub(super) ahs: &'a [u8],
}

impl Header<'_> {
    pub(super) fn common(&self) -> &RequestBhs {
        RequestBhs::view(self.bhs)
    }

    pub(super) const fn opcode_bits(&self) -> u8 {
        opcode_bits(self.bhs)
    }

    pub(super) const fn header_bytes(&self) -> usize {
        BHS_LENGTH_BYTES.saturating_add(self.ahs.len())
    }

    pub(super) fn data_bytes(&self) -> usize {
        self.common().data_segment_length.as_usize()
    }

    /// A copy, for what goes on when the bytes are gone.
    pub(super) fn kept(&self) -> KeptHeader {
        KeptHeader {
            bhs: *self.bhs,
            ahs: self.ahs.to_vec(),
        }
    }
}

/// A header apart from the bytes that were received.
#[derive(Clone, Debug)]
pub(super) struct KeptHeader {
    bhs: BhsBytes,
    ahs: Vec<u8>,
}

impl KeptHeader {
    pub(super) fn view(&self) -> Header<'_> {
        Header {
            bhs: &self.bhs,
            ahs: &self.ahs,
        }
    }
}

/// A header where it is found.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// In the chunk, as nearly all are.
    There(Header<'a>),
    /// It began in an earlier chunk.
    Carried(Box<KeptHeader>),
}

impl Found<'_> {
    #[inline]
    pub(super) fn view(&self) -> Header<'_> {
        match self {
            Self::There(header) => *header,
            Self::Carried(header) => header.view(),
        }
    }
}

/// What a chunk holds next. Ranges are places in the chunk.
#[derive(Debug)]
pub(super) enum Received<'a> {
    /// The chunk is used up.
    Starved,
    /// A PDU with its whole data segment. `intact` is false after a data digest error.
    Whole {
        header: Found<'a>,
        data: Range<usize>,
        intact: bool,
    },
    /// A PDU whose data segment goes on in later chunks.
    Begin { header: Found<'a> },
    /// The next bytes of the data segment begun.
    Piece(Range<usize>),
    /// The data segment begun is over. `intact` is false after a data digest error.
    End { intact: bool },
}

/// The rest of a data segment.
#[derive(Debug)]
struct Body {
    data_left: usize,
    /// Padding and digest after the data.
    tail_bytes: usize,
    tail: [u8; 3 + DIGEST_LENGTH_BYTES],
    tail_have: usize,
    digest: Digest,
}

/// The receiving half of one connection in full-feature phase.
#[derive(Debug)]
pub(super) struct Receiver {
    header_digest: bool,
    data_digest: bool,
    data_segment_max_bytes: usize,
    /// The beginning of a header that ends in a later chunk.
    carry: Vec<u8>,
    body: Option<Body>,
    /// How many more headers are received alone, in the hope that a long data segment follows.
    alone: u8,
}

/// A data segment of this size is long, in bytes: worth a receive of its own header.
const LONG_BYTES: usize = 64 * 1024;

/// How many shorter PDUs after a long data segment make it unlikely that another one follows: a
/// write of many segments is mixed with the commands of its neighbours.
const ALONE_MAX: u8 = 8;

impl Receiver {
    pub(super) const fn new(
        header_digest: bool,
        data_digest: bool,
        data_segment_max_bytes: usize,
    ) -> Self {
        Self {
            header_digest,
            data_digest,
            data_segment_max_bytes,
            carry: Vec::new(),
            body: None,
            alone: 0,
        }
    }

    /// How much of the data segment begun is still to come, padding left out.
    pub(super) fn data_left(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.data_left)
    }

    /// Where it is, for a trace that begins.
    pub(super) fn standing(&self) -> Standing<'_> {
        let left_bytes = self.body.as_ref().map_or(0, |body| {
            let tail_left = body.tail_bytes.saturating_sub(body.tail_have);
            body.data_left.saturating_add(tail_left)
        });
        Standing {
            header_digest: self.header_digest,
            data_digest: self.data_digest,
            begun: &self.carry,
            left_bytes,
        }
    }

    /// How much is best received into a chunk next. Where long data segments are to be expected,
    /// only up to the end of the next header: whatever of the data came with it would have to be
    /// copied from the chunk to its place.
    pub(super) fn appetite_bytes(&self) -> usize {
        if self.alone == 0 || !self.carry.is_empty() || self.data_left() > 0 {
            return usize::MAX;
        }
        let tail = self
            .body
            .as_ref()
            .map_or(0, |body| body.tail_bytes.saturating_sub(body.tail_have));
        let digest = if self.header_digest {
            DIGEST_LENGTH_BYTES
        } else {
            0
        };
        tail.saturating_add(BHS_LENGTH_BYTES).saturating_add(digest)
    }

    /// Bytes of the data segment begun that did not come through a chunk.
    pub(super) fn take_direct(&mut self, bytes: &[u8]) {
        if let Some(body) = &mut self.body {
            body.data_left = body.data_left.saturating_sub(bytes.len());
            if self.data_digest {
                body.digest = body.digest.update(bytes);
            }
        }
    }

    /// What lies in `chunk` from `at` on; moves `at` past it.
    pub(super) fn next<'a>(
        &mut self,
        chunk: &'a [u8],
        at: &mut usize,
    ) -> Result<Received<'a>, Violation> {
        if let Some(body) = &mut self.body {
            let left = chunk.get(*at..).unwrap_or(&[]);
            if body.data_left > 0 {
                let take = left.len().min(body.data_left);
                if take == 0 {
                    return Ok(Received::Starved);
                }
                let start = *at;
                *at = at.saturating_add(take);
                body.data_left = body.data_left.saturating_sub(take);
                if self.data_digest {
                    body.digest = body.digest.update(left.get(..take).unwrap_or(&[]));
                }
                return Ok(Received::Piece(start..*at));
            }
            let take = left
                .len()
                .min(body.tail_bytes.saturating_sub(body.tail_have));
            let have = body.tail_have.saturating_add(take);
            if let (Some(to), Some(from)) =
                (body.tail.get_mut(body.tail_have..have), left.get(..take))
            {
                to.copy_from_slice(from);
            }
            body.tail_have = have;
            *at = at.saturating_add(take);
            if have < body.tail_bytes {
                return Ok(Received::Starved);
            }
            let tail = body.tail.get(..body.tail_bytes).unwrap_or(&[]);
            let intact = !self.data_digest || tail_matches(body.digest, tail);
            self.body = None;
            return Ok(Received::End { intact });
        }
        self.next_header(chunk, at)
    }

    fn next_header<'a>(
        &mut self,
        chunk: &'a [u8],
        at: &mut usize,
    ) -> Result<Received<'a>, Violation> {
        let left = chunk.get(*at..).unwrap_or(&[]);
        if self.carry.is_empty() {
            let Some(bhs) = left.first_chunk::<BHS_LENGTH_BYTES>() else {
                self.carry.extend_from_slice(left);
                *at = chunk.len();
                return Ok(Received::Starved);
            };
            let layout = self.layout(bhs)?;
            let Some(head) = left.get(..layout.header_end()) else {
                self.carry.extend_from_slice(left);
                *at = chunk.len();
                return Ok(Received::Starved);
            };
            let header = self.checked(head, &layout)?;
            *at = at.saturating_add(layout.header_end());
            return Ok(self.with_data(Found::There(header), &layout, chunk, at));
        }
        self.carried_header(chunk, at)
    }

    fn carried_header<'a>(
        &mut self,
        chunk: &'a [u8],
        at: &mut usize,
    ) -> Result<Received<'a>, Violation> {
        // The rest of a header that began earlier: first the 48 bytes, then what they announce.
        let mut wanted = BHS_LENGTH_BYTES;
        loop {
            let take = wanted.saturating_sub(self.carry.len());
            let left = chunk.get(*at..).unwrap_or(&[]);
            let Some(piece) = left.get(..take) else {
                self.carry.extend_from_slice(left);
                *at = chunk.len();
                return Ok(Received::Starved);
            };
            self.carry.extend_from_slice(piece);
            *at = at.saturating_add(take);
            let Some(bhs) = self.carry.first_chunk::<BHS_LENGTH_BYTES>() else {
                return Ok(Received::Starved);
            };
            let layout = self.layout(bhs)?;
            if self.carry.len() >= layout.header_end() {
                let carried = std::mem::take(&mut self.carry);
                let header = Box::new(self.checked(&carried, &layout)?.kept());
                return Ok(self.with_data(Found::Carried(header), &layout, chunk, at));
            }
            wanted = layout.header_end();
        }
    }

    fn layout(&self, bhs: &BhsBytes) -> Result<PduLayout, Violation> {
        let layout = PduLayout::of(bhs, self.header_digest, self.data_digest);
        if layout.data_bytes > self.data_segment_max_bytes {
            return Err(Violation::DataSegmentTooLong {
                got_bytes: layout.data_bytes,
                limit_bytes: self.data_segment_max_bytes,
            });
        }
        Ok(layout)
    }

    /// Takes a complete header apart and checks its digest.
    fn checked<'a>(&self, head: &'a [u8], layout: &PduLayout) -> Result<Header<'a>, Violation> {
        let Some((bhs, rest)) = head.split_first_chunk::<BHS_LENGTH_BYTES>() else {
            return Err(Violation::HeaderDigest);
        };
        let (ahs, wire) = rest
            .split_at_checked(layout.ahs_bytes)
            .unwrap_or((rest, &[]));
        if self.header_digest && Digest::of(bhs).update(ahs).to_wire() != wire {
            return Err(Violation::HeaderDigest);
        }
        Ok(Header { bhs, ahs })
    }

    fn with_data<'a>(
        &mut self,
        header: Found<'a>,
        layout: &PduLayout,
        chunk: &'a [u8],
        at: &mut usize,
    ) -> Received<'a> {
        self.alone = if layout.data_bytes >= LONG_BYTES {
            ALONE_MAX
        } else {
            self.alone.saturating_sub(1)
        };
        let start = *at;
        let data_end = start.saturating_add(layout.data_bytes);
        let tail_bytes = layout
            .padding_bytes
            .saturating_add(layout.data_digest_bytes);
        let end = data_end.saturating_add(tail_bytes);
        let (Some(data), Some(tail)) = (chunk.get(start..data_end), chunk.get(data_end..end))
        else {
            self.body = Some(Body {
                data_left: layout.data_bytes,
                tail_bytes,
                tail: [0; 3 + DIGEST_LENGTH_BYTES],
                tail_have: 0,
                digest: Digest::new(),
            });
            return Received::Begin { header };
        };
        *at = end;
        let intact = layout.data_digest_bytes == 0 || tail_matches(Digest::of(data), tail);
        Received::Whole {
            header,
            data: start..data_end,
            intact,
        }
    }
}

/// `tail` is the padding, which the digest covers, and the digest itself.
fn tail_matches(data: Digest, tail: &[u8]) -> bool {
    tail.split_last_chunk::<DIGEST_LENGTH_BYTES>()
        .is_some_and(|(padding, wire)| data.update(padding).matches(*wire))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects)]

    use super::*;
    use crate::digest::{data_digest, header_digest};
    use crate::excerpt::Cutter;
    use crate::pdu::{NopOutBhs, U24, padding_length};

    /// A NOP-Out with `len` bytes of ping data and `ahs` words of additional headers.
    fn pdu(len: usize, ahs_words: u8, digests: bool) -> Vec<u8> {
        let mut nop = NopOutBhs::new();
        nop.data_segment_length = U24::new(u32::try_from(len).unwrap()).unwrap();
        nop.total_ahs_length_words = ahs_words;
        let ahs = vec![0x5a; usize::from(ahs_words) * 4];
        let data: Vec<u8> = (0..len).map(|n| u8::try_from(n % 253).unwrap()).collect();
        let mut bytes = nop.as_bhs_bytes().to_vec();
        bytes.extend_from_slice(&ahs);
        if digests {
            bytes.extend_from_slice(&header_digest(nop.as_bhs_bytes(), &ahs));
        }
        bytes.extend_from_slice(&data);
        bytes.resize(bytes.len() + padding_length(len), 0);
        if digests && len > 0 {
            bytes.extend_from_slice(&data_digest(&data));
        }
        bytes
    }

    /// Feeds `stream` in chunks of `step` bytes and gives (data, intact) of each PDU.
    fn run(
        receiver: &mut Receiver,
        stream: &[u8],
        step: usize,
    ) -> Result<Vec<(Vec<u8>, bool)>, Violation> {
        let mut pdus = Vec::new();
        let mut data = Vec::new();
        for chunk in stream.chunks(step) {
            let mut at = 0;
            loop {
                match receiver.next(chunk, &mut at)? {
                    Received::Starved => break,
                    Received::Whole { data, intact, .. } => {
                        pdus.push((chunk[data].to_vec(), intact))
                    }
                    Received::Begin { .. } => data.clear(),
                    Received::Piece(range) => data.extend_from_slice(&chunk[range]),
                    Received::End { intact } => pdus.push((std::mem::take(&mut data), intact)),
                }
            }
            assert_eq!(at, chunk.len());
        }
        Ok(pdus)
    }

    #[test]
    fn the_same_pdus_come_out_however_the_stream_is_cut() {
        for digests in [false, true] {
            let shapes = [(0, 0), (1, 0), (4, 1), (511, 0), (0, 255), (2000, 3)];
            let stream: Vec<u8> = shapes
                .iter()
                .flat_map(|&(len, ahs)| pdu(len, ahs, digests))
                .collect();
            for step in [1, 2, 3, 7, 47, 48, 49, 52, 53, 100, 1000, stream.len()] {
                let mut receiver = Receiver::new(digests, digests, 8192);
                let pdus = run(&mut receiver, &stream, step).unwrap();
                let lengths: Vec<_> = pdus.iter().map(|(data, _)| data.len()).collect();
                assert_eq!(lengths, shapes.map(|(len, _)| len), "step {step}");
                assert!(
                    pdus.iter().all(|(_, intact)| *intact),
                    "step {step} digests {digests}"
                );
            }
        }
    }

    /// A trace that begins has the PDUs from the next whole one on.
    #[test]
    fn it_tells_where_it_stands_wherever_that_is() {
        for digests in [false, true] {
            let shapes = [(5, 0), (300, 1), (0, 2_u8), (7, 0)];
            let pdus = shapes.map(|(len, ahs)| pdu(len, ahs, digests));
            let stream = pdus.concat();
            for at in 0..stream.len() {
                let mut receiver = Receiver::new(digests, digests, 8192);
                let (before, after) = stream.split_at(at);
                run(&mut receiver, before, 11).unwrap();
                let mut cutter = Cutter::new(&receiver.standing(), 8192);
                let mut found = Vec::new();
                cutter.push(after.into(), |excerpt| found.push(excerpt.bytes.to_vec()));
                // A complete header has been reported.
                let mut start = 0;
                let header_ends = pdus.iter().zip(shapes).map(|(pdu, (_, ahs))| {
                    let header_end = start + if digests { 52 } else { 48 } + usize::from(ahs) * 4;
                    start += pdu.len();
                    header_end
                });
                let first = header_ends.filter(|end| *end <= at).count();
                assert_eq!(found, pdus[first..], "{at} of {}", stream.len());
            }
        }
    }

    #[test]
    fn a_damaged_byte_is_noticed_wherever_it_is() {
        let good = pdu(100, 1, true);
        for at in 8..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            for step in [13, good.len()] {
                let outcome = run(&mut Receiver::new(true, true, 8192), &bad, step);
                if at < 56 {
                    assert_eq!(outcome, Err(Violation::HeaderDigest), "byte {at}");
                } else {
                    assert!(!outcome.unwrap()[0].1, "byte {at}");
                }
            }
        }
    }

    #[test]
    fn a_length_above_the_limit_ends_the_connection_and_one_at_it_does_not() {
        let mut receiver = Receiver::new(false, false, 512);
        assert_eq!(
            run(&mut receiver, &pdu(512, 0, false), 1000).unwrap().len(),
            1
        );
        assert_eq!(
            run(&mut receiver, &pdu(513, 0, false), 1000),
            Err(Violation::DataSegmentTooLong {
                got_bytes: 513,
                limit_bytes: 512
            })
        );
    }

    #[test]
    fn headers_come_alone_while_long_data_segments_are_likely() {
        for digests in [false, true] {
            let header = if digests { 52 } else { 48 };
            let mut receiver = Receiver::new(digests, digests, 1 << 20);
            assert_eq!(receiver.appetite_bytes(), usize::MAX);
            let long = pdu(LONG_BYTES, 0, digests);
            let (head, tail) = long.split_at(header + LONG_BYTES);
            let mut at = 0;
            let begun = receiver.next(head, &mut at).unwrap();
            let is_whole = matches!(begun, Received::Whole { .. });
            if !is_whole {
                assert_eq!(receiver.appetite_bytes(), usize::MAX, "data is due");
                receiver.next(head, &mut at).unwrap();
                assert_eq!(receiver.appetite_bytes(), tail.len() + header);
                let mut at = 0;
                let ended = receiver.next(tail, &mut at).unwrap();
                assert!(matches!(ended, Received::End { intact: true }));
            }
            for _ in 0..ALONE_MAX {
                assert_eq!(receiver.appetite_bytes(), header);
                let mut at = 0;
                receiver.next(&pdu(0, 0, digests), &mut at).unwrap();
            }
            assert_eq!(receiver.appetite_bytes(), usize::MAX);
        }
    }

    #[test]
    fn bytes_taken_directly_count_for_length_and_digest() {
        let bytes = pdu(1000, 0, true);
        let mut receiver = Receiver::new(true, true, 8192);
        let mut at = 0;
        let head = &bytes[..52 + 10];
        assert!(matches!(
            receiver.next(head, &mut at).unwrap(),
            Received::Begin { .. }
        ));
        assert!(
            matches!(receiver.next(head, &mut at).unwrap(), Received::Piece(range) if range == (52..62))
        );
        assert_eq!(receiver.data_left(), 990);
        receiver.take_direct(&bytes[62..62 + 990]);
        let mut at = 0;
        assert!(matches!(
            receiver.next(&bytes[52 + 1000..], &mut at).unwrap(),
            Received::End { intact: true }
        ));
    }
}
