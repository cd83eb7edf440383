//! Two players of whom one preempts the other while the store hangs.

use super::book::{Book, Feud};
use super::seat::Seat;
use crate::prng::Prng;

/// Of 1000 moments, those at which they go on with it.
const STEPS: u32 = 300;

/// See above.
#[derive(Debug)]
pub(super) struct Rivals {
    pub(super) players: [usize; 2],
    /// Of their own, so that lives without them are the same with and without this.
    pub(super) prng: Prng,
}

impl Rivals {
    /// Draws whether there are any. Clients of NBD make no reservations.
    pub(super) fn draw(seed: u64, seats: &[Seat]) -> Option<Self> {
        let mut prng = Prng::stream(seed, "rivals");
        let seats = seats.iter().enumerate();
        let may = seats.filter(|(_, seat)| !matches!(seat, Seat::Nbd { .. }));
        let may: Vec<usize> = may.map(|(player, _)| player).collect();
        let (one, other) = (prng.pick(&may)?, prng.pick(&may)?);
        (one != other && prng.chance(700)).then_some(Self {
            players: [one, other],
            prng,
        })
    }

    /// What they do next to a unit.
    pub(super) fn step(&mut self, book: &Book) -> Option<Feud> {
        book.towards_preemption(self.players, &mut self.prng)
    }

    /// Whether they go on with it now.
    pub(super) fn is_time(&mut self) -> bool {
        self.prng.chance(STEPS)
    }
}
