//! What becomes of what a store has answered: one pure machine for each unit.
//!
//! [`Losses`] knows whose writes no flush has covered, and who is still to get a report that some of them may be lost.
//! The idea is that of Linux's `errseq_t`: a loss is an epoch of the unit, an initiator is concerned by it if a write
//! of it was uncovered then, and each of its sessions has a cursor. A flush fails once while the cursor of its session
//! is behind a loss that concerns its initiator.

mod losses;

pub use self::losses::{Departure, Losses, Mark, Party};
