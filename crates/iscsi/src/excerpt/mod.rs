//! Excerpts of a connection for traces: each PDU as it went over the wire, cut to
//! its significant part, without secrets.
//!
//! [`Cutter`] follows one direction of a connection beside the machine that understands it. It
//! checks nothing: whatever comes in is cut by the lengths it announces.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

mod secrets;
#[cfg(test)]
mod tests;

use memory::Piece;

use crate::limits::{AHS_MAX_BYTES, LOGIN_SEGMENT_MAX_BYTES};
use crate::pdu::{BHS_LENGTH_BYTES, BhsBytes, Opcode, PduLayout, opcode};

/// The longest excerpt: all headers with their digest, and of the data what a login may have, with
/// its own digest.
pub const EXCERPT_MAX_BYTES: usize =
    BHS_LENGTH_BYTES + AHS_MAX_BYTES + 4 + LOGIN_SEGMENT_MAX_BYTES + 4;

/// One PDU, as far as it is kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Excerpt<'a> {
    /// How long it was on the wire, in bytes.
    pub whole_bytes: usize,
    /// Its beginning, or all of it.
    pub bytes: &'a [u8],
}

/// Where a connection is when somebody begins to follow it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Standing<'a> {
    /// Header digests were negotiated.
    pub header_digest: bool,
    /// Data digests were negotiated.
    pub data_digest: bool,
    /// The beginning of a header whose rest is to come.
    pub begun: &'a [u8],
    /// Bytes to come of a PDU whose header has passed.
    pub left_bytes: usize,
}

/// Cuts one direction of a connection into excerpts.
#[derive(Debug)]
pub struct Cutter {
    header_digest: bool,
    data_digest: bool,
    data_bytes_max: usize,
    /// Bytes to come of a PDU that is not followed.
    skip_bytes: usize,
    /// What is kept of the PDU that is passing.
    kept: Vec<u8>,
    /// How much of it has passed.
    passed_bytes: usize,
}

/// What a PDU is cut by.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    kept_bytes: usize,
    whole_bytes: usize,
}

impl Cutter {
    /// Follows a connection from `standing` on. Of the data of SCSI and of pings `data_bytes_max`
    /// are kept, of everything else as much as a login PDU may have.
    #[must_use]
    pub fn new(standing: &Standing<'_>, data_bytes_max: usize) -> Self {
        let mut cutter = Self {
            header_digest: standing.header_digest,
            data_digest: standing.data_digest,
            data_bytes_max: data_bytes_max.min(LOGIN_SEGMENT_MAX_BYTES),
            skip_bytes: standing.left_bytes,
            kept: Vec::new(),
            passed_bytes: 0,
        };
        // Less than a PDU: nothing is found.
        cutter.push(Piece::from(standing.begun), |_| {});
        cutter
    }

    /// The full-feature phase has these digests. PDUs of a login never have any.
    pub const fn set_digests(&mut self, header_digest: bool, data_digest: bool) {
        self.header_digest = header_digest;
        self.data_digest = data_digest;
    }

    /// Takes the next bytes of the stream and shows each PDU that ends in them.
    pub fn push(&mut self, piece: Piece<'_>, mut found: impl FnMut(Excerpt<'_>)) {
        let mut at = self.skip_bytes.min(piece.len());
        self.skip_bytes = self.skip_bytes.saturating_sub(at);
        while at < piece.len() {
            let lengths = self.lengths();
            let here = piece.len().saturating_sub(at);
            let take = lengths
                .whole_bytes
                .saturating_sub(self.passed_bytes)
                .min(here);
            let keep = lengths.kept_bytes.saturating_sub(self.kept.len()).min(take);
            self.keep(piece, at, keep);
            at = at.saturating_add(take);
            self.passed_bytes = self.passed_bytes.saturating_add(take);
            // A header that is now complete has the length of its PDU.
            let whole_bytes = self.lengths().whole_bytes;
            if self.passed_bytes >= whole_bytes {
                self.show(whole_bytes, &mut found);
            }
        }
    }

    fn keep(&mut self, piece: Piece<'_>, at: usize, bytes: usize) {
        let have = self.kept.len();
        self.kept.resize(have.saturating_add(bytes), 0);
        if let Some(room) = self.kept.get_mut(have..) {
            piece.copy_to(at, room);
        }
    }

    fn show(&mut self, whole_bytes: usize, found: &mut impl FnMut(Excerpt<'_>)) {
        if let Some(text) = self.text_mut() {
            secrets::blank(text);
        }
        found(Excerpt {
            whole_bytes,
            bytes: &self.kept,
        });
        self.kept.clear();
        self.passed_bytes = 0;
    }

    /// The keys and values of the PDU that has passed, if it is one that has some.
    fn text_mut(&mut self) -> Option<&mut [u8]> {
        let bhs = self.kept.first_chunk::<BHS_LENGTH_BYTES>()?;
        let layout = self.layout(bhs);
        if !is_text(bhs) {
            return None;
        }
        let data = self.kept.get_mut(layout.header_end()..)?;
        let end = layout.data_bytes.min(data.len());
        data.get_mut(..end)
    }

    /// How long the PDU that is passing is: at first only its header is known to be there.
    fn lengths(&self) -> Lengths {
        let Some(bhs) = self.kept.first_chunk::<BHS_LENGTH_BYTES>() else {
            return Lengths {
                kept_bytes: BHS_LENGTH_BYTES,
                whole_bytes: BHS_LENGTH_BYTES,
            };
        };
        let layout = self.layout(bhs);
        let whole_bytes = layout.total_bytes();
        let data_bytes_max = match opcode(bhs) {
            Some(
                Opcode::ScsiCommand
                | Opcode::DataOut
                | Opcode::DataIn
                | Opcode::NopOut
                | Opcode::NopIn,
            ) => self.data_bytes_max,
            Some(
                Opcode::TaskManagementRequest
                | Opcode::LoginRequest
                | Opcode::TextRequest
                | Opcode::LogoutRequest
                | Opcode::Snack
                | Opcode::ScsiResponse
                | Opcode::TaskManagementResponse
                | Opcode::LoginResponse
                | Opcode::TextResponse
                | Opcode::LogoutResponse
                | Opcode::R2t
                | Opcode::AsyncMessage
                | Opcode::Reject,
            )
            | None => LOGIN_SEGMENT_MAX_BYTES,
        };
        let kept_bytes = if layout.data_bytes <= data_bytes_max {
            whole_bytes
        } else {
            layout.header_end().saturating_add(data_bytes_max)
        };
        Lengths {
            kept_bytes,
            whole_bytes,
        }
    }

    fn layout(&self, bhs: &BhsBytes) -> PduLayout {
        let is_login = matches!(
            opcode(bhs),
            Some(Opcode::LoginRequest | Opcode::LoginResponse)
        );
        PduLayout::of(
            bhs,
            self.header_digest && !is_login,
            self.data_digest && !is_login,
        )
    }
}

/// Its data is a text of keys and values.
fn is_text(bhs: &BhsBytes) -> bool {
    matches!(
        opcode(bhs),
        Some(
            Opcode::LoginRequest
                | Opcode::LoginResponse
                | Opcode::TextRequest
                | Opcode::TextResponse
        )
    )
}
