//! A PDU that is put together of its fragments.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use crate::bytes::size;
use crate::keys::MAC_BYTES;
use crate::limits::{FRAGMENTS_MAX, PDU_MAX_BYTES};
use crate::pdu::Header;

/// What became of a fragment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Taken {
    /// It is in its place, and others before it may be missing.
    Placed {
        /// One before it is missing.
        after_gap: bool,
    },
    /// It was there.
    Again,
    /// It cannot be of this PDU.
    Strange,
    /// There is no memory for it.
    NoRoom,
}

/// What has arrived of a PDU.
#[derive(Debug)]
pub(crate) struct Assembly {
    /// The frames were sealed.
    is_sealed: bool,
    /// Of the PDU in each fragment but the last.
    fragment_bytes: usize,
    /// The size above is that of other PDUs: only the last fragment has come.
    is_guess: bool,
    bytes: Vec<u8>,
    /// One bit for each fragment.
    have: Vec<u64>,
    count: u16,
    last: Option<u16>,
    header: Option<Header>,
    /// The session and sequence number of the PDU.
    name: (u32, u32),
}

impl Assembly {
    /// Of nothing yet. `guess_bytes` is the size of fragments of other PDUs.
    pub(crate) fn new(is_sealed: bool, guess_bytes: usize, name: (u32, u32)) -> Self {
        Self {
            is_sealed,
            fragment_bytes: guess_bytes,
            is_guess: true,
            bytes: Vec::new(),
            have: Vec::new(),
            count: 0,
            last: None,
            header: None,
            name,
        }
    }

    pub(crate) const fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// Memory that it takes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// As a field; 0 while it is not known.
    pub(crate) fn fragment_bytes(&self) -> u16 {
        u16::try_from(self.fragment_bytes).unwrap_or_default()
    }

    fn has(&self, fragment: u16) -> bool {
        let word = self.have.get(usize::from(fragment / 64));
        word.is_some_and(|word| word.wrapping_shr(u32::from(fragment)) & 1 != 0)
    }

    /// Fragments before the first that is missing.
    pub(crate) fn contiguous(&self) -> u16 {
        let mut count = 0_u32;
        for word in &self.have {
            count = count.saturating_add(word.trailing_ones());
            if *word != u64::MAX {
                break;
            }
        }
        u16::try_from(count).map_or(FRAGMENTS_MAX, |count| count.min(FRAGMENTS_MAX))
    }

    /// One bit for each fragment from `first` on, the first in the most significant bit.
    pub(crate) fn bitmap(&self, first: u16) -> Vec<u8> {
        let Some(highest) = self.highest().filter(|highest| *highest >= first) else {
            return Vec::new();
        };
        let bytes = highest.saturating_sub(first) / 8;
        (0..=bytes)
            .map(|byte| {
                (0_u16..8).fold(0, |bits, bit| {
                    let at = first
                        .saturating_add(byte.saturating_mul(8))
                        .saturating_add(bit);
                    (bits << 1) | u8::from(self.has(at))
                })
            })
            .collect()
    }

    /// Takes a fragment. Without `room` for more bytes the memory does not grow.
    pub(crate) fn take(
        &mut self,
        fragment: u16,
        is_last: bool,
        payload: &[u8],
        room: usize,
    ) -> Taken {
        if !is_last && payload.len() != self.fragment_bytes {
            // A path that carries less: all is sent again, in pieces. A larger one is old, or one here is wrong.
            if !self.is_guess && payload.len() > self.fragment_bytes {
                return Taken::Strange;
            }
            *self = Self::new(self.is_sealed, payload.len(), self.name);
        }
        if !is_last {
            self.is_guess = false;
        }
        if self.has(fragment) {
            // What is there may be of another PDU, or be wrong: it must not keep out what is right.
            let is_same =
                (self.last == Some(fragment)) == is_last && self.is_held(fragment, payload);
            return if is_same {
                Taken::Again
            } else {
                Taken::Strange
            };
        }
        let is_beyond = self.last.is_some_and(|last| fragment > last || is_last);
        let is_before = is_last && self.highest().is_some_and(|highest| highest > fragment);
        let at = usize::from(fragment).saturating_mul(self.fragment_bytes);
        let end = at.saturating_add(payload.len());
        let end_max = size(PDU_MAX_BYTES).saturating_add(MAC_BYTES);
        let is_long = payload.len() > self.fragment_bytes && fragment > 0;
        let lies = self
            .header
            .is_some_and(|header| at >= header.whole_bytes(self.is_sealed));
        if is_beyond || is_before || is_long || lies || payload.is_empty() || end > end_max {
            return Taken::Strange;
        }
        if fragment == 0 && is_last {
            self.fragment_bytes = payload.len();
        }
        if fragment == 0 && !self.take_header(payload, is_last) {
            return Taken::Strange;
        }
        let after_gap = fragment
            .checked_sub(1)
            .is_some_and(|before| !self.has(before));
        if end > self.bytes.len() {
            let whole = self
                .header
                .map_or(end, |header| header.whole_bytes(self.is_sealed).max(end));
            if whole.saturating_sub(self.bytes.capacity()) > room {
                self.header = self.header.filter(|_| fragment != 0);
                return Taken::NoRoom;
            }
            self.bytes
                .reserve_exact(whole.saturating_sub(self.bytes.len()));
        }
        self.put(at, payload);
        self.mark(fragment);
        if is_last {
            self.last = Some(fragment);
        }
        Taken::Placed { after_gap }
    }

    /// Copies bytes to their place, for which there is memory.
    fn put(&mut self, at: usize, payload: &[u8]) {
        if at == self.bytes.len() {
            self.bytes.extend_from_slice(payload);
            return;
        }
        let end = at.saturating_add(payload.len());
        self.bytes.resize(self.bytes.len().max(end), 0);
        if let Some(place) = self.bytes.get_mut(at..end) {
            place.copy_from_slice(payload);
        }
    }

    /// Whether these bytes are those of the fragment that is there.
    fn is_held(&self, fragment: u16, payload: &[u8]) -> bool {
        let at = usize::from(fragment).saturating_mul(self.fragment_bytes);
        let end = at.saturating_add(payload.len());
        self.bytes.get(at..end) == Some(payload)
    }

    fn highest(&self) -> Option<u16> {
        let at = self.have.iter().rposition(|word| *word != 0)?;
        let word = self.have.get(at)?;
        let bit = 63_u32.saturating_sub(word.leading_zeros());
        let fragment = at.saturating_mul(64).saturating_add(size(bit));
        u16::try_from(fragment).ok()
    }

    fn mark(&mut self, fragment: u16) {
        let at = usize::from(fragment / 64);
        if self.have.len() <= at {
            self.have.resize(at.saturating_add(1), 0);
        }
        if let Some(word) = self.have.get_mut(at) {
            *word |= 1_u64.wrapping_shl(u32::from(fragment));
        }
        self.count = self.count.saturating_add(1);
    }

    /// Looks into the first fragment.
    fn take_header(&mut self, payload: &[u8], is_last: bool) -> bool {
        let Some(header) = Header::decode(payload) else {
            return false;
        };
        let whole = header.whole_bytes(self.is_sealed);
        let fits = if is_last {
            whole <= payload.len()
        } else {
            usize::from(header.fragment_bytes) == payload.len() && whole > payload.len()
        };
        if (header.session, header.sequence) != self.name {
            return false;
        }
        self.header = Some(header);
        let expected = self.expected().unwrap_or_default();
        fits && self
            .highest()
            .is_none_or(|highest| usize::from(highest) < expected)
    }

    /// So many fragments make the PDU, as its header says. The mark of the last one may be wrong.
    fn expected(&self) -> Option<usize> {
        let whole = self.header?.whole_bytes(self.is_sealed);
        Some(whole.div_ceil(self.fragment_bytes.max(1)))
    }

    /// All fragments are there.
    pub(crate) fn is_whole(&self) -> bool {
        self.expected() == Some(usize::from(self.count))
    }

    /// The PDU with its trailer, without what frames were padded with; `None` where the pieces do not fit together.
    pub(crate) fn finish(mut self) -> Option<(Header, Vec<u8>)> {
        let header = self.header?;
        let whole = header.whole_bytes(self.is_sealed);
        if whole > self.bytes.len() {
            return None;
        }
        self.bytes.truncate(whole);
        Some((header, self.bytes))
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pdu::{HEADER_BYTES, Opcode};

    /// A PDU with a body of so many bytes, in fragments of 100.
    fn pdu(body: usize, fragment_bytes: u16) -> Vec<u8> {
        let mut header = Header::new(Opcode::Request, body);
        header.fragment_bytes = fragment_bytes;
        let mut pdu = header.encode().to_vec();
        pdu.extend((0..body).map(|at| u8::try_from(at % 251).unwrap()));
        pdu
    }

    fn give(assembly: &mut Assembly, pdu: &[u8], each: usize, fragment: usize) -> Taken {
        let pieces: Vec<_> = pdu.chunks(each).collect();
        let number = u16::try_from(fragment).unwrap();
        assembly.take(
            number,
            fragment + 1 == pieces.len(),
            pieces[fragment],
            1 << 20,
        )
    }

    #[test]
    fn a_pdu_is_put_together_in_any_order() {
        let pdu = pdu(400, 100);
        let mut assembly = Assembly::new(false, 100, (0, 0));
        for fragment in [4, 1, 3, 0] {
            let taken = give(&mut assembly, &pdu, 100, fragment);
            assert!(
                matches!(taken, Taken::Placed { .. }),
                "{fragment}: {taken:?}"
            );
            assert!(!assembly.is_whole());
        }
        assert_eq!(
            (assembly.contiguous(), assembly.bitmap(2)),
            (2, vec![0b0110_0000])
        );
        assert_eq!(give(&mut assembly, &pdu, 100, 3), Taken::Again);
        give(&mut assembly, &pdu, 100, 2);
        assert!(assembly.is_whole());
        assert_eq!(assembly.finish().unwrap().1, pdu);
    }

    #[test]
    fn smaller_pieces_replace_larger_ones_and_not_the_other_way_round() {
        let (large, small) = (pdu(400, 200), pdu(400, 100));
        let mut assembly = Assembly::new(false, 200, (0, 0));
        give(&mut assembly, &large, 200, 0);
        give(&mut assembly, &small, 100, 1);
        assert_eq!(assembly.contiguous(), 0);
        assert_eq!(give(&mut assembly, &large, 200, 0), Taken::Strange);
        for fragment in [0, 2, 3, 4] {
            give(&mut assembly, &small, 100, fragment);
        }
        assert!(assembly.is_whole());
        assert_eq!(assembly.finish().unwrap().1, small);
    }

    /// A changed bit in a header of a fragment is under no checksum.
    #[test]
    fn a_lost_mark_of_the_last_fragment_does_not_matter() {
        let pdu = pdu(279, 100);
        let mut assembly = Assembly::new(false, 100, (0, 0));
        for (number, piece) in (0..).zip(pdu.chunks(100)) {
            assert!(!assembly.is_whole());
            assembly.take(number, false, piece, 1 << 20);
        }
        assert!(assembly.is_whole());
        assert_eq!(assembly.finish().unwrap().1, pdu);
    }

    #[test]
    fn memory_grows_no_further_than_there_is_room() {
        let pdu = pdu(400, 100);
        let mut assembly = Assembly::new(false, 100, (0, 0));
        assert_eq!(assembly.take(1, false, &pdu[100..200], 199), Taken::NoRoom);
        assert!(matches!(
            assembly.take(1, false, &pdu[100..200], 200),
            Taken::Placed { .. }
        ));
        assert_eq!(
            assembly.take(0, false, &pdu[..100], 220),
            Taken::Placed { after_gap: false }
        );
        assert_eq!(
            assembly.take(1023, false, &[0; 100], 0),
            Taken::Strange,
            "behind the length"
        );
    }

    proptest! {
        #[test]
        fn any_fragments_are_taken_or_refused(
            fragments in prop::collection::vec((0_u16..1024, any::<bool>(), 0_usize..300, any::<u8>()), 0..40)
        ) {
            let mut assembly = Assembly::new(false, 64, (0, 0));
            for (fragment, is_last, length, byte) in fragments {
                let mut payload = vec![byte; length];
                if fragment == 0 && length > HEADER_BYTES {
                    payload = pdu(usize::from(byte), u16::try_from(length).unwrap());
                    payload.resize(length, 0);
                }
                assembly.take(fragment, is_last, &payload, 1 << 16);
                prop_assert!(assembly.held_bytes() <= 1 << 17);
            }
            if assembly.is_whole() && let Some((header, pdu)) = assembly.finish() {
                prop_assert_eq!(header.whole_bytes(false), pdu.len());
            }
        }
    }
}
