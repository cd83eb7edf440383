//! Follows the byte stream of one connection, PDU by PDU, without gathering data segments: their
//! bytes are handed on as they come.

use super::violation::TargetViolation;
use crate::digest::{DIGEST_LENGTH_BYTES, Digest};
use crate::negotiate::ConnectionParameters;
use crate::pdu::{BHS_LENGTH_BYTES, BhsBytes, PduLayout};

/// What the next bytes mean.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Step<'a> {
    /// Nothing yet: more bytes are needed.
    More,
    /// A header is whole and its digest right; its data follows.
    Header,
    /// The next bytes of the data segment.
    Piece(&'a [u8]),
    /// The PDU is whole and its data digest right.
    Complete,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Part {
    #[default]
    Header,
    Data,
    Trailer,
}

/// The state of one stream.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    part: Part,
    /// BHS, AHS and header digest so far; then padding and data digest so far.
    gathered: Vec<u8>,
    bhs: Option<BhsBytes>,
    data_left: usize,
    digest: Digest,
}

impl Receiver {
    /// The header of the PDU under way, once [`Step::Header`] was given.
    pub(super) fn header(&self) -> BhsBytes {
        self.bhs.unwrap_or([0; BHS_LENGTH_BYTES])
    }

    /// Takes as many of `bytes` as belong to one step. Call until [`Step::More`].
    pub(super) fn step<'a>(
        &mut self,
        bytes: &mut &'a [u8],
        parameters: &ConnectionParameters,
    ) -> Result<Step<'a>, TargetViolation> {
        match self.part {
            Part::Header => self.take_header(bytes, parameters),
            Part::Data if self.data_left > 0 => Ok(self.take_data(bytes, parameters)),
            Part::Data => {
                self.part = Part::Trailer;
                self.take_trailer(bytes, parameters)
            }
            Part::Trailer => self.take_trailer(bytes, parameters),
        }
    }

    /// Gathers up to `wanted` bytes in all; false while some are missing.
    fn gather(&mut self, bytes: &mut &[u8], wanted: usize) -> bool {
        let missing = wanted.saturating_sub(self.gathered.len());
        let (taken, rest) = bytes.split_at(missing.min(bytes.len()));
        self.gathered.extend_from_slice(taken);
        *bytes = rest;
        self.gathered.len() >= wanted
    }

    fn layout(&self, parameters: &ConnectionParameters) -> PduLayout {
        PduLayout::of(
            &self.header(),
            parameters.header_digest,
            parameters.data_digest,
        )
    }

    fn take_header<'a>(
        &mut self,
        bytes: &mut &'a [u8],
        parameters: &ConnectionParameters,
    ) -> Result<Step<'a>, TargetViolation> {
        if self.bhs.is_none() {
            if !self.gather(bytes, BHS_LENGTH_BYTES) {
                return Ok(Step::More);
            }
            self.bhs = self.gathered.first_chunk().copied();
        }
        let layout = self.layout(parameters);
        if !self.gather(bytes, layout.header_end()) {
            return Ok(Step::More);
        }
        if parameters.header_digest {
            let covered = BHS_LENGTH_BYTES.saturating_add(layout.ahs_bytes);
            let (headers, wire) = self.gathered.split_at_checked(covered).unwrap_or_default();
            if !is_digest(Digest::of(headers), wire) {
                return Err(TargetViolation::HeaderDigest);
            }
        }
        let limit = parameters.max_recv_data_segment_length_bytes;
        let limit_bytes = usize::try_from(limit).unwrap_or(usize::MAX);
        if layout.data_bytes > limit_bytes {
            return Err(TargetViolation::DataSegmentTooLong {
                got_bytes: layout.data_bytes,
                limit_bytes,
            });
        }
        self.gathered.clear();
        self.data_left = layout.data_bytes;
        self.digest = Digest::new();
        self.part = Part::Data;
        Ok(Step::Header)
    }

    fn take_data<'a>(
        &mut self,
        bytes: &mut &'a [u8],
        parameters: &ConnectionParameters,
    ) -> Step<'a> {
        if bytes.is_empty() {
            return Step::More;
        }
        let (piece, rest) = bytes.split_at(self.data_left.min(bytes.len()));
        *bytes = rest;
        self.data_left = self.data_left.saturating_sub(piece.len());
        if parameters.data_digest {
            self.digest = self.digest.update(piece);
        }
        Step::Piece(piece)
    }

    fn take_trailer<'a>(
        &mut self,
        bytes: &mut &'a [u8],
        parameters: &ConnectionParameters,
    ) -> Result<Step<'a>, TargetViolation> {
        let layout = self.layout(parameters);
        let wanted = layout
            .padding_bytes
            .saturating_add(layout.data_digest_bytes);
        if !self.gather(bytes, wanted) {
            return Ok(Step::More);
        }
        if layout.data_digest_bytes != 0 {
            let (padding, wire) = self
                .gathered
                .split_at_checked(layout.padding_bytes)
                .unwrap_or_default();
            if !is_digest(self.digest.update(padding), wire) {
                return Err(TargetViolation::DataDigest);
            }
        }
        self.gathered.clear();
        self.bhs = None;
        self.part = Part::Header;
        Ok(Step::Complete)
    }
}

fn is_digest(digest: Digest, wire: &[u8]) -> bool {
    wire.first_chunk::<DIGEST_LENGTH_BYTES>()
        .is_some_and(|wire| digest.matches(*wire))
}
