//! What leaves a simulated core is put down for the world to carry.

use engine::{Carrier, Ending, Letter, Life, News, Purpose, StoreWork, UnitIndex};
use front::iscsi::SessionPort;
use iscsi::target::{Command, TaskId};
use memory::{Buffer, Pool};
use scsi::Status;
use std::rc::Rc;

use super::session::Detail;
use crate::prng::Prng;
use crate::sabotage::Sabotage;

/// A letter about a unit, and the core that it is for.
type Posted = (usize, UnitIndex, Letter);

/// The simulated disk does nothing on a ring, nor by a helper.
#[derive(Clone, Copy, Debug)]
pub(super) enum NoOperation {}

/// What one core has put down.
#[derive(Debug)]
pub(super) struct Outside {
    letters: Vec<Posted>,
    /// A state of the unit that is to be made safe.
    to_keep: Option<Vec<u8>>,
    sabotage: Option<Sabotage>,
    pool: Pool,
    /// What [`Sabotage::LeakBuffers`] leaves behind.
    leaked: Vec<Buffer>,
    prng: Prng,
}

impl Outside {
    pub(super) fn new(index: usize, sabotage: Option<Sabotage>, pool: Pool, prng: Prng) -> Self {
        Self {
            letters: Vec::new(),
            to_keep: None,
            sabotage,
            pool,
            leaked: Vec::new(),
            prng: Prng::stream(prng.clone().next_u64(), &format!("outside {index}")),
        }
    }

    pub(super) fn take_letters(&mut self) -> Vec<Posted> {
        std::mem::take(&mut self.letters)
    }

    pub(super) const fn take_state(&mut self) -> Option<Vec<u8>> {
        self.to_keep.take()
    }

    /// Loses a buffer, if that is what is to go wrong.
    fn leak_now_and_then(&mut self) {
        if self.sabotage == Some(Sabotage::LeakBuffers)
            && self.prng.chance(30)
            && let Ok(buffer) = self.pool.allocate(1)
        {
            self.leaked.push(buffer);
        }
    }
}

impl Carrier for Outside {
    type Port = SessionPort<Detail>;
    type Operation = NoOperation;
    type Receipt = ();
    type Account = ();

    fn post(&mut self, core: usize, unit: UnitIndex, letter: Letter) {
        self.letters.push((core, unit, letter));
    }

    #[expect(clippy::panic, reason = "the simulated disk never asks for it")]
    fn begin(&mut self, purpose: Purpose, work: StoreWork) -> NoOperation {
        panic!("{purpose:?} asks for {work:?}")
    }

    fn cancel(&mut self, operation: NoOperation) {
        match operation {}
    }

    fn keep(&mut self, _: UnitIndex, state: Vec<u8>) {
        debug_assert!(self.to_keep.is_none(), "one state at a time is made safe");
        self.to_keep = Some(state);
    }

    fn lend_chunk(&mut self, _: &Rc<Buffer>) -> bool {
        self.prng.chance(500)
    }

    fn notify(&mut self, news: News) {
        debug_assert!(!matches!(news, News::Broken(_)), "{news:?}");
    }

    fn series(&mut self, _: UnitIndex, _: &SessionPort<Detail>) -> u32 {
        0
    }

    fn account(_: u32, _: &SessionPort<Detail>, _: TaskId, _: &Command) {}

    fn note_answer(&mut self, (): (), _: Status) {
        self.leak_now_and_then();
    }

    fn note_wait(&mut self, (): ()) {}

    fn note_end(&mut self, (): (), _: Ending, _: Life) {
        self.leak_now_and_then();
    }

    fn note_starved(&mut self) {}
}
