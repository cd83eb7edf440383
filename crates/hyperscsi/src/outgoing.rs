//! A PDU that is sent in fragments, and what is known of each.

use std::ops::{Deref, DerefMut};
use std::slice;
use std::time::Duration;

use crate::keys::MacKey;
use crate::pdu::{HEADER_BYTES, Header, Level, Trailer, trailer};

/// Where a fragment is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum State {
    /// Not sent yet.
    #[default]
    Waiting,
    /// Sent, and nothing is known of it.
    Flying,
    /// To be sent again.
    Lost,
    /// The peer has it.
    Arrived,
}

/// One fragment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fragment {
    pub(crate) state: State,
    /// The number of its last transmission.
    pub(crate) order: u64,
    pub(crate) sent_at: Duration,
    pub(crate) transmissions: u32,
    /// The frame of its last transmission was longer than what every path carries.
    pub(crate) is_large: bool,
}

/// The fragments of a PDU. A single one takes no memory of its own.
#[derive(Debug, Default)]
pub(crate) enum Fragments {
    /// It is not begun.
    #[default]
    None,
    One([Fragment; 1]),
    Many(Vec<Fragment>),
}

impl Fragments {
    fn new(count: usize) -> Self {
        match count {
            0 => Self::None,
            1 => Self::One(Default::default()),
            count => Self::Many(vec![Fragment::default(); count]),
        }
    }
}

impl Deref for Fragments {
    type Target = [Fragment];

    fn deref(&self) -> &[Fragment] {
        match self {
            Self::None => &[],
            Self::One(fragment) => fragment,
            Self::Many(fragments) => fragments,
        }
    }
}

impl DerefMut for Fragments {
    fn deref_mut(&mut self) -> &mut [Fragment] {
        match self {
            Self::None => &mut [],
            Self::One(fragment) => fragment,
            Self::Many(fragments) => fragments,
        }
    }
}

impl<'a> IntoIterator for &'a Fragments {
    type Item = &'a Fragment;
    type IntoIter = slice::Iter<'a, Fragment>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Fragments {
    type Item = &'a mut Fragment;
    type IntoIter = slice::IterMut<'a, Fragment>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

/// A PDU on its way.
#[derive(Debug)]
pub(crate) struct Outgoing<D> {
    pub(crate) header: Header,
    pub(crate) sequence: u64,
    pub(crate) level: Level,
    /// Its header, and its body up to the data.
    head: Vec<u8>,
    data: D,
    trailer: Trailer,
    /// None before it is begun.
    pub(crate) fragments: Fragments,
    fragment_bytes: usize,
    /// Fragments before this one are not waiting.
    pub(crate) next: usize,
}

impl<D: AsRef<[u8]>> Outgoing<D> {
    /// A PDU with this head, which has room for its header and then its body, and data behind it. The header is written
    /// when it is cut.
    pub(crate) fn new(header: Header, sequence: u64, level: Level, head: Vec<u8>, data: D) -> Self {
        debug_assert!(head.len() >= HEADER_BYTES);
        Self {
            header: header.at(level),
            sequence,
            level,
            head,
            data,
            trailer: Trailer::default(),
            fragments: Fragments::None,
            fragment_bytes: 0,
            next: 0,
        }
    }

    /// The memory of its head.
    pub(crate) fn into_head(self) -> Vec<u8> {
        self.head
    }

    /// With its trailer, in bytes.
    pub(crate) fn whole_bytes(&self) -> usize {
        self.head.len() + self.data.as_ref().len() + self.level.trailer_bytes()
    }

    pub(crate) const fn is_begun(&self) -> bool {
        !matches!(self.fragments, Fragments::None)
    }

    pub(crate) const fn fragment_bytes(&self) -> usize {
        self.fragment_bytes
    }

    /// Cuts it into fragments; what was known of those before is void.
    pub(crate) fn cut(&mut self, fragment_bytes: u16, tag: u16, key: &MacKey) {
        self.header.fragment_bytes = fragment_bytes;
        let header = self.header.encode();
        self.head[..header.len()].copy_from_slice(&header);
        let pieces = [&self.head[..], self.data.as_ref()];
        self.trailer = trailer(self.level, key, tag, self.sequence, &pieces);
        self.fragment_bytes = usize::from(fragment_bytes);
        let count = self.whole_bytes().div_ceil(self.fragment_bytes);
        self.fragments = Fragments::new(count);
        self.next = 0;
    }

    /// The pieces of a fragment.
    pub(crate) fn pieces(&self, fragment: usize) -> [&[u8]; 3] {
        let mut from = fragment * self.fragment_bytes;
        let mut left = self.fragment_bytes;
        [&self.head[..], self.data.as_ref(), &self.trailer[..]].map(|part| {
            let start = from.min(part.len());
            let end = (start + left).min(part.len());
            from -= start;
            left -= end - start;
            &part[start..end]
        })
    }

    /// The bytes of a fragment.
    pub(crate) fn length_of(&self, fragment: usize) -> usize {
        let from = fragment * self.fragment_bytes;
        self.whole_bytes()
            .saturating_sub(from)
            .min(self.fragment_bytes)
    }

    pub(crate) fn flying(&self) -> usize {
        self.count(State::Flying)
    }

    fn count(&self, state: State) -> usize {
        let is_in = |fragment: &&Fragment| fragment.state == state;
        self.fragments.iter().filter(is_in).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pdu::{Opcode, is_intact};

    #[test]
    fn the_fragments_are_the_pdu_whatever_their_size() {
        let key = MacKey::new([1; 32]);
        for (size, length) in [(10, 0), (10, 1), (64, 200), (300, 200), (26, 0)] {
            let data = vec![0xab; length];
            let header = Header::new(Opcode::Reply, 5 + length);
            let head = [&[0; HEADER_BYTES][..], b"abcde"].concat();
            let mut pdu = Outgoing::new(header, 9, Level::Hash, head, data);
            pdu.cut(size, 3, &key);
            let whole: Vec<u8> = (0..pdu.fragments.len())
                .flat_map(|fragment| pdu.pieces(fragment).concat())
                .collect();
            assert_eq!(whole.len(), pdu.whole_bytes());
            for fragment in 0..pdu.fragments.len() {
                let length = pdu.pieces(fragment).concat().len();
                assert_eq!(pdu.length_of(fragment), length);
            }
            assert!(is_intact(Level::Hash, &key, 3, 9, &whole));
            let last = pdu.fragments.len() - 1;
            assert!(!pdu.pieces(last).concat().is_empty());
        }
    }
}
