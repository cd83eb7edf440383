//! Memory for data of replies that are copied from the medium, used again and again.
//!
//! One for each core, shared by its sessions: what the reply of one session leaves is what the next one of any session
//! takes, so that the few in use stay in the cache of the core. What is held here is bounded; a reply that finds
//! nothing gets ordinary memory: a client that acknowledges nothing keeps its own replies only.

use std::cell::RefCell;

/// So many pieces are kept, of so many bytes at most: larger ones cost more to copy than to have made.
const PIECES_MAX: usize = 128;
const PIECE_BYTES_MAX: usize = 16 << 10;

/// See above.
#[derive(Debug, Default)]
pub(super) struct Stock(RefCell<Vec<Vec<u8>>>);

impl Stock {
    /// So many bytes; what is in them does not matter.
    pub(super) fn take(&self, length: usize) -> Vec<u8> {
        let spare = match length {
            1..=PIECE_BYTES_MAX => self.0.borrow_mut().pop(),
            _ => None,
        };
        let mut piece = spare.unwrap_or_default();
        piece.resize(length, 0);
        piece
    }

    /// Takes what is not needed any more.
    pub(super) fn give_back(&self, piece: Vec<u8>) {
        let mut pieces = self.0.borrow_mut();
        let is_fit = (1..=PIECE_BYTES_MAX).contains(&piece.capacity());
        if is_fit && pieces.len() < PIECES_MAX {
            pieces.push(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_kept_than_the_limits_say() {
        let stock = Stock::default();
        let large = stock.take(PIECE_BYTES_MAX + 1);
        assert_eq!(large.len(), PIECE_BYTES_MAX + 1);
        stock.give_back(large);
        stock.give_back(Vec::new());
        assert_eq!(stock.0.borrow().len(), 0);
        for _ in 0..=PIECES_MAX {
            stock.give_back(Vec::with_capacity(PIECE_BYTES_MAX));
        }
        assert_eq!(stock.0.borrow().len(), PIECES_MAX);
        assert_eq!(stock.take(0).len(), 0);
        assert_eq!(stock.take(5), [0; 5]);
        assert_eq!(stock.0.borrow().len(), PIECES_MAX - 1);
    }
}
