//! Bytes on their way to a peer: headers written in place, and data where it lies.

use std::ptr::NonNull;

use crate::Payload;

/// What one send gathers. Headers and other small bytes are kept in one vector of the message,
/// data stays in its [`Payload`]; parts refer to both in the order of sending.
///
/// A message owns all it refers to, so it can be lent to the kernel as one value. Cleared, it
/// keeps its room, so that one in steady use allocates nothing.
#[derive(Debug, Default)]
pub struct Message {
    bytes: Vec<u8>,
    payloads: Vec<Payload>,
    parts: Vec<Part>,
    len: usize,
    heap_len: usize,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Bytes {
        start: usize,
        len: usize,
    },
    Payload {
        index: usize,
        start: usize,
        len: usize,
    },
}

/// A stretch of bytes that may only be copied, because others may write some of them.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a>(Place<'a>);

#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    Bytes(&'a [u8]),
    Payload {
        payload: &'a Payload,
        start: usize,
        len: usize,
    },
}

impl Piece<'_> {
    /// The length in bytes.
    pub const fn len(&self) -> usize {
        match self.0 {
            Place::Bytes(bytes) => bytes.len(),
            Place::Payload { len, .. } => len,
        }
    }

    /// True when there are no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `bytes.len()` bytes from `offset` on.
    ///
    /// # Panics
    ///
    /// When they are not all inside the piece.
    pub fn copy_to(&self, offset: usize, bytes: &mut [u8]) {
        let end = offset + bytes.len();
        assert!(
            end <= self.len(),
            "{end} bytes of a piece of {}",
            self.len()
        );
        match self.0 {
            Place::Bytes(own) => bytes.copy_from_slice(&own[offset..end]),
            Place::Payload { payload, start, .. } => payload.copy_to(start + offset, bytes),
        }
    }
}

impl<'a> From<&'a [u8]> for Piece<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self(Place::Bytes(bytes))
    }
}

/// Names a payload of one message; see [`Message::push_payload`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PayloadIndex(usize);

impl Message {
    /// How many bytes there are to send.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True when there is nothing to send.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How much of it is on the heap, in bytes: all that is in no buffer that somebody accounts for.
    pub const fn heap_bytes(&self) -> usize {
        self.bytes.len() + self.heap_len
    }

    /// How many separate stretches of memory the kernel would be given.
    pub const fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// Appends `len` zero bytes and gives them to be written: a header slot.
    pub fn push_zeros(&mut self, len: usize) -> &mut [u8] {
        let start = self.bytes.len();
        self.bytes.resize(start + len, 0);
        self.note_bytes(start, len);
        &mut self.bytes[start..]
    }

    /// Appends a copy of `bytes`.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.note_bytes(start, bytes.len());
    }

    /// Appends an array and gives the copy, to be changed where it lies: filling a header in
    /// elsewhere and copying it then makes the copy wait for every field.
    pub fn push_array<const N: usize>(&mut self, bytes: &[u8; N]) -> &mut [u8; N] {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.note_bytes(start, N);
        match self.bytes.last_chunk_mut() {
            Some(copy) => copy,
            None => unreachable!("{N} bytes were just appended"),
        }
    }

    /// Appends a copy of `len` bytes of a payload that is not kept, and gives the copy: it does
    /// not change any more, even if the payload is written meanwhile.
    ///
    /// # Panics
    ///
    /// When they are not all inside the payload.
    #[inline]
    pub fn push_copy(&mut self, payload: &Payload, start: usize, len: usize) -> &[u8] {
        match payload.as_slice() {
            Some(bytes) => self.push_bytes(&bytes[start..start + len]),
            None => payload.copy_to(start, self.push_zeros(len)),
        }
        &self.bytes[self.bytes.len() - len..]
    }

    /// Takes a payload over, to be referred to by [`Message::push_part`]. Sends nothing by itself.
    #[inline]
    pub fn push_payload(&mut self, payload: Payload) -> PayloadIndex {
        if let Payload::Heap(bytes) = &payload {
            self.heap_len += bytes.len();
        }
        self.payloads.push(payload);
        PayloadIndex(self.payloads.len() - 1)
    }

    /// The payload behind an index of this message.
    pub fn payload(&self, index: PayloadIndex) -> &Payload {
        &self.payloads[index.0]
    }

    /// Appends `len` bytes of a payload without copying them.
    ///
    /// # Panics
    ///
    /// When they are not all inside the payload.
    #[inline]
    pub fn push_part(&mut self, index: PayloadIndex, start: usize, len: usize) {
        let room = self.payloads[index.0].len();
        assert!(
            start + len <= room,
            "{len} bytes at {start} of a payload of {room}"
        );
        if len > 0 {
            self.parts.push(Part::Payload {
                index: index.0,
                start,
                len,
            });
            self.len += len;
        }
    }

    /// Where each part lies, in the order of sending, from byte `skip` on.
    pub fn parts(&self, skip: usize) -> impl Iterator<Item = (NonNull<u8>, usize)> + '_ {
        let mut skip = skip;
        self.parts.iter().filter_map(move |part| {
            let (base, whole): (NonNull<u8>, usize) = match *part {
                Part::Bytes { start, len } => {
                    (NonNull::from(&self.bytes[start..start + len]).cast(), len)
                }
                Part::Payload { index, start, len } => {
                    // Inside one allocation, as `push_part` checked.
                    let first = self.payloads[index].address().as_ptr();
                    (NonNull::new(first.wrapping_add(start))?, len)
                }
            };
            let skipped = skip.min(whole);
            skip -= skipped;
            let start = NonNull::new(base.as_ptr().wrapping_add(skipped))?;
            (skipped < whole).then_some((start, whole - skipped))
        })
    }

    /// Everything that would be sent, in order.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        self.parts.iter().map(|part| match *part {
            Part::Bytes { start, len } => Piece::from(&self.bytes[start..start + len]),
            Part::Payload { index, start, len } => Piece(Place::Payload {
                payload: &self.payloads[index],
                start,
                len,
            }),
        })
    }

    /// Copies `bytes.len()` bytes of what would be sent, from byte `skip` on.
    ///
    /// # Panics
    ///
    /// When there are fewer.
    pub fn copy_to(&self, skip: usize, bytes: &mut [u8]) {
        let (mut skip, mut left) = (skip, bytes);
        for piece in self.pieces() {
            let skipped = skip.min(piece.len());
            skip -= skipped;
            let count = left.len().min(piece.len() - skipped);
            let (now, rest) = left.split_at_mut(count);
            piece.copy_to(skipped, now);
            left = rest;
        }
        assert!(left.is_empty(), "{} bytes too many are wanted", left.len());
    }

    /// Everything that would be sent, in a vector. For tests and for small exchanges.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = vec![0; self.len];
        let mut at = 0;
        for piece in self.pieces() {
            piece.copy_to(0, &mut all[at..at + piece.len()]);
            at += piece.len();
        }
        all
    }

    /// Drops all payloads and bytes and keeps the room, up to `room_bytes` of it.
    pub fn clear(&mut self, room_bytes: usize) {
        self.payloads.clear();
        self.parts.clear();
        self.bytes.clear();
        self.bytes.shrink_to(room_bytes);
        self.len = 0;
        self.heap_len = 0;
    }

    /// Neighbouring bytes become one part, so that a run of headers is one stretch of memory.
    fn note_bytes(&mut self, start: usize, len: usize) {
        if len == 0 {
            return;
        }
        self.len += len;
        match self.parts.last_mut() {
            Some(Part::Bytes { len: last, .. }) => *last += len,
            Some(Part::Payload { .. }) | None => self.parts.push(Part::Bytes { start, len }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Message {
        let mut message = Message::default();
        message.push_bytes(b"head");
        message.push_zeros(2)[1] = b'!';
        let data = message.push_payload(Payload::Heap(b"0123456789".to_vec()));
        message.push_part(data, 2, 3);
        message.push_bytes(b"next");
        message.push_part(data, 5, 5);
        message
    }

    #[test]
    fn parts_come_in_order_and_neighbouring_bytes_are_one() {
        let message = sample();
        assert_eq!(message.to_vec(), b"head\0!234next56789");
        assert_eq!(message.len(), 18);
        assert_eq!(message.part_count(), 4);
    }

    #[test]
    fn any_part_of_a_piece_can_be_copied() {
        let message = sample();
        let pieces: Vec<Piece<'_>> = message.pieces().collect();
        let mut two = [0; 2];
        for (piece, expected) in pieces.iter().zip([b"ea", b"34", b"ex", b"67"]) {
            piece.copy_to(1, &mut two);
            assert_eq!(&two, expected, "{piece:?}");
        }
        assert_eq!(pieces[1].len(), 3);
    }

    #[test]
    fn any_stretch_of_a_message_can_be_copied() {
        let (message, all) = (sample(), b"head\0!234next56789");
        for skip in 0..=all.len() {
            for end in skip..=all.len() {
                let mut bytes = vec![0xee; end - skip];
                message.copy_to(skip, &mut bytes);
                assert_eq!(bytes, all[skip..end], "{skip}..{end}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "1 bytes too many are wanted")]
    fn no_more_is_copied_than_would_be_sent() {
        sample().copy_to(17, &mut [0; 2]);
    }

    #[test]
    #[should_panic(expected = "4 bytes of a piece of 3")]
    fn what_lies_behind_a_piece_is_not_copied() {
        let message = sample();
        if let Some(piece) = message.pieces().nth(1) {
            piece.copy_to(2, &mut [0; 2]);
        }
    }

    #[test]
    fn skipping_starts_inside_the_right_part() {
        let message = sample();
        let lengths = |skip| message.parts(skip).map(|(_, len)| len).collect::<Vec<_>>();
        assert_eq!(lengths(0), [6, 3, 4, 5]);
        assert_eq!(lengths(6), [3, 4, 5]);
        assert_eq!(lengths(8), [1, 4, 5]);
        assert_eq!(lengths(17), [1]);
        assert_eq!(lengths(18), [0; 0]);
    }

    #[test]
    fn a_cleared_message_is_empty_and_keeps_its_room() {
        let mut message = sample();
        message.clear(1024);
        assert!(message.is_empty() && message.part_count() == 0);
        assert_eq!(message.to_vec(), b"");
    }
}
