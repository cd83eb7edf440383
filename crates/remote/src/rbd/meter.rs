//! What is known of the space that an image takes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rbd::CallError;

use super::errno::CANCELED;

/// Between two counts of an image pass so many times what the one before has taken, so that the cluster has its time
/// for other things.
const REST: u32 = 9;

/// A snapshot by its number, and the one before it.
type Part = (u64, Option<u64>);

#[derive(Debug, Default)]
pub(super) struct State {
    /// What was counted last.
    pub(super) bytes: Option<u64>,
    /// Of it, what snapshots keep. There are as many as the image has snapshots.
    pub(super) parts: HashMap<Part, u64>,
    /// It is in the queue, or is being counted.
    is_asked: bool,
    /// When it may be counted again.
    due: Option<Instant>,
    /// Why the last count failed.
    reason: Option<String>,
    pub(super) is_given_up: bool,
}

/// Of one image.
#[derive(Debug, Default)]
pub(super) struct Meter(Mutex<State>);

impl Meter {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store is gone: nothing is counted any more.
    pub(super) fn give_up(&self) {
        self.state().is_given_up = true;
    }

    /// Whether a count is to begin, which the caller then sees to.
    pub(super) fn takes_order(&self) -> bool {
        let mut state = self.state();
        let is_early = state.due.is_some_and(|due| Instant::now() < due);
        let takes = !state.is_asked && !state.is_given_up && !is_early;
        state.is_asked |= takes;
        takes
    }

    /// A count is over. Why it has failed, where that is another reason than before.
    pub(super) fn end(&self, counted: Result<u64, CallError>, took: Duration) -> Option<String> {
        let mut state = self.state();
        state.is_asked = false;
        state.due = Some(Instant::now() + took.saturating_mul(REST));
        match counted {
            Ok(bytes) => {
                state.bytes = Some(bytes);
                state.reason = None;
                None
            }
            // It was ended.
            Err(error) if state.is_given_up || error.errno == CANCELED => None,
            Err(error) => {
                let reason = error.to_string();
                let before = state.reason.replace(reason.clone());
                (before.as_ref() != Some(&reason)).then_some(reason)
            }
        }
    }
}
