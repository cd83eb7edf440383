//! The sending half of a connection: PDUs become parts of one message, with their digests.

use memory::{Message, Payload, PayloadIndex};

use crate::SerialNumber;
use crate::digest::{DIGEST_LENGTH_BYTES, Digest};
use crate::pdu::{Bhs, ResponseBhs, U24, padding_length};

/// Data up to this size is copied behind its header: a copy of this size costs less than another
/// stretch of memory for the kernel to walk.
pub(super) const COPY_MAX_BYTES: usize = 1024;

/// The data segment of a PDU to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Segment<'a> {
    Bytes(&'a [u8]),
    /// The first `len` bytes of a payload that is not kept.
    Copy {
        payload: &'a Payload,
        len: usize,
    },
    /// Bytes of a kept payload.
    Part {
        index: PayloadIndex,
        start: usize,
        len: usize,
    },
}

/// What waits to be sent on one connection, and the numbers that go with it.
#[derive(Debug)]
pub(super) struct Transmitter {
    header_digest: bool,
    data_digest: bool,
    /// The initiator's MaxRecvDataSegmentLength, in bytes.
    pub(super) data_segment_max_bytes: usize,
    pub(super) stat_sn: SerialNumber,
    message: Message,
}

impl Transmitter {
    pub(super) fn new(
        header_digest: bool,
        data_digest: bool,
        data_segment_max_bytes: usize,
        stat_sn: SerialNumber,
    ) -> Self {
        let message = Message::default();
        Self {
            header_digest,
            data_digest,
            data_segment_max_bytes,
            stat_sn,
            message,
        }
    }

    pub(super) const fn data_digest(&self) -> bool {
        self.data_digest
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.message.is_empty()
    }

    pub(super) const fn queued_bytes(&self) -> usize {
        self.message.len()
    }

    pub(super) const fn heap_bytes(&self) -> usize {
        self.message.heap_bytes()
    }

    /// The number of the next status, which is thereby used.
    pub(super) const fn next_stat_sn(&mut self) -> SerialNumber {
        let number = self.stat_sn;
        self.stat_sn = number.next();
        number
    }

    /// Takes out all that waits and leaves `empty` to be filled.
    pub(super) const fn take(&mut self, empty: Message) -> Message {
        std::mem::replace(&mut self.message, empty)
    }

    /// Keeps a payload whose parts will be sent.
    #[inline]
    pub(super) fn keep(&mut self, payload: Payload) -> PayloadIndex {
        self.message.push_payload(payload)
    }

    /// Appends bytes of another phase, without digests.
    pub(super) fn push_raw(&mut self, bytes: &[u8]) {
        self.message.push_bytes(bytes);
    }

    /// Appends a PDU without data.
    pub(super) fn push(&mut self, header: &impl Bhs) {
        self.push_filled(|slot| *slot = *header);
    }

    /// Appends a PDU without data, whose header `fill` writes where it will be sent from.
    pub(super) fn push_filled<T: Bhs>(&mut self, fill: impl FnOnce(&mut T)) {
        self.push_header(U24::default(), fill);
    }

    /// Appends a PDU with data; fills the length in.
    ///
    /// Data of a kept payload must not change any more when data digests are on.
    pub(super) fn push_with_data(&mut self, header: &impl Bhs, segment: Segment<'_>) {
        self.push_filled_with_data(segment, |slot| *slot = *header);
    }

    /// As [`Transmitter::push_with_data`], with a header that `fill` writes where it will be sent
    /// from.
    pub(super) fn push_filled_with_data<T: Bhs>(
        &mut self,
        segment: Segment<'_>,
        fill: impl FnOnce(&mut T),
    ) {
        let len = match segment {
            Segment::Bytes(bytes) => bytes.len(),
            Segment::Copy { len, .. } | Segment::Part { len, .. } => len,
        };
        let length = u32::try_from(len).ok().and_then(U24::new);
        debug_assert!(length.is_some(), "a data segment of {len} bytes");
        self.push_header(length.unwrap_or_default(), fill);
        let digest = match segment {
            Segment::Bytes(bytes) => {
                self.message.push_bytes(bytes);
                self.data_digest.then(|| Digest::of(bytes))
            }
            Segment::Copy { payload, len } => {
                let copy = self.message.push_copy(payload, 0, len);
                self.data_digest.then(|| Digest::of(copy))
            }
            Segment::Part { index, start, len } => self.push_part(index, start, len),
        };
        if len > 0 {
            let padding = padding_length(len);
            if padding > 0 {
                self.message.push_zeros(padding);
            }
            if let Some(digest) = digest {
                self.message.push_bytes(&digest.pad(len).to_wire());
            }
        }
    }

    fn push_header<T: Bhs>(&mut self, data_segment_length: U24, fill: impl FnOnce(&mut T)) {
        let bhs = self.message.push_array(T::new().as_bhs_bytes());
        fill(T::view_mut(bhs));
        ResponseBhs::view_mut(bhs).data_segment_length = data_segment_length;
        if self.header_digest {
            let wire: [u8; DIGEST_LENGTH_BYTES] = Digest::of(bhs).to_wire();
            self.message.push_bytes(&wire);
        }
    }

    #[inline]
    fn push_part(&mut self, index: PayloadIndex, start: usize, len: usize) -> Option<Digest> {
        self.message.push_part(index, start, len);
        if !self.data_digest {
            return None;
        }
        let bytes = self.message.payload(index).as_slice();
        debug_assert!(bytes.is_some(), "a digest of data that others may write");
        bytes
            .and_then(|bytes| bytes.get(start..start + len))
            .map(Digest::of)
    }
}
