//! What the simulated world decides of the carrier of a core. What leaves the core is put down for the world.

use std::time::Duration;

use engine::testing::outside::{self, Hooks};
use engine::{Ending, Life, News, Phase};
use front::Port;
use front::testing::{LineHooks, Lines, Mail};
use memory::Pool;
use scsi::Status;

use crate::prng::Prng;
use crate::sabotage::{Sabotage, Saboteur};

/// The carrier of a simulated core.
pub type Outside = outside::Outside<Chance>;

/// Chance, bugs on purpose, and a look at the books.
#[derive(Debug)]
pub struct Chance {
    pub(crate) saboteur: Saboteur,
    pool: Pool,
    prng: Prng,
    /// How long a command may wait for fences, all of its requests together.
    fence_timeout: Duration,
    /// What was found to be wrong with the engine.
    pub(crate) broken: Option<&'static str>,
}

impl Chance {
    /// Of one core, on which this goes wrong.
    pub(crate) fn new(
        index: usize,
        (sabotage, fence_timeout): (Option<Sabotage>, Duration),
        pool: Pool,
        prng: &Prng,
    ) -> Self {
        let stream = |name| Prng::stream(prng.clone().next_u64(), &format!("{name} {index}"));
        Self {
            saboteur: Saboteur::new(sabotage, stream("saboteur")),
            pool,
            prng: stream("outside"),
            fence_timeout,
            broken: None,
        }
    }
}

impl Hooks for Chance {
    type Port = Port;
    type Mail = Mail;
    type Lines = Lines;

    fn lends_chunk(&mut self) -> bool {
        self.prng.chance(500)
    }

    fn notify(&mut self, news: News) {
        if let News::Broken(what) = news {
            self.broken.get_or_insert(what);
        }
    }

    fn note_answer(&mut self, _: Status) {
        self.saboteur.leak(&self.pool);
    }

    fn note_end(&mut self, _: Ending, life: Life) {
        self.saboteur.leak(&self.pool);
        let mut phases = life.phases().into_iter();
        let fences = phases.find(|time| time.phase == Phase::Fence);
        if fences.is_some_and(|time| time.took > self.fence_timeout) {
            let what = "a command waits for fences after its deadline";
            self.broken.get_or_insert(what);
        }
    }
}

impl LineHooks for Chance {
    fn takes_all(&mut self) -> bool {
        self.prng.chance(700)
    }

    fn takes_cold_reset(&self) -> bool {
        true
    }
}
