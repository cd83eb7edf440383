//! Bugs on purpose: a checker that never fails proves nothing.

use memory::{Buffer, Pool};

use crate::prng::Prng;

/// Something the target or its disk does wrong. No seed ever draws one; tests put them in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sabotage {
    /// Now and then the disk says that a write is done and has not done it.
    LoseWrites,
    /// Now and then the disk reads the block before the right one.
    MisplaceReads,
    /// A flush keeps nothing.
    FlushInVain,
    /// Now and then a command is not answered.
    ForgetAnswers,
    /// Now and then a command leaves a buffer behind.
    LeakBuffers,
    /// Now and then a connection is closed for no reason.
    HangUp,
}

impl Sabotage {
    /// Every kind, and the rule that must notice it.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::LoseWrites, "reads-give-what-was-written"),
        (Self::MisplaceReads, "reads-give-what-was-written"),
        (Self::FlushInVain, "reads-give-what-was-written"),
        (Self::ForgetAnswers, "one-outcome"),
        (Self::LeakBuffers, "nothing-is-left"),
        (Self::HangUp, "legal-initiators-are-not-hung-up-on"),
    ];
}

/// Does wrong on one core what the settings say.
#[derive(Debug)]
pub(crate) struct Saboteur {
    kind: Option<Sabotage>,
    prng: Prng,
    leaked: Vec<Buffer>,
}

impl Saboteur {
    /// For one core, with a stream of its own.
    pub(crate) const fn new(kind: Option<Sabotage>, prng: Prng) -> Self {
        Self {
            kind,
            prng,
            leaked: Vec::new(),
        }
    }

    /// Whether this is to go wrong now.
    pub(crate) fn strikes(&mut self, kind: Sabotage) -> bool {
        self.kind == Some(kind) && self.prng.chance(30)
    }

    /// Loses a buffer, if that is what is to go wrong.
    pub(crate) fn leak(&mut self, pool: &Pool) {
        if self.strikes(Sabotage::LeakBuffers) {
            self.leaked.extend(pool.allocate(1));
        }
    }
}
