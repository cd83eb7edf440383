//! How an administrator learns that cores have done what they were asked for.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use engine::UnitIndex;

/// Kept by a core until it has done what it was asked for. Dropping the last copy is the answer, so no core
/// can fail to answer.
#[derive(Clone, Debug)]
pub(crate) struct Receipt {
    held: Sender<UnitIndex>,
}

impl Receipt {
    /// The last flush of a unit that was to be closed failed.
    pub(crate) fn note_unflushed(&self, unit: UnitIndex) {
        if self.held.send(unit).is_err() {
            tracing::debug!("no caller waits for the last flush of a unit any more");
        }
    }
}

/// What cores were asked for and have yet to confirm: the other end of a [`Receipt`]. Dropping it cancels
/// nothing.
#[derive(Debug)]
pub struct Confirmation {
    returned: Receiver<UnitIndex>,
    unflushed: Vec<UnitIndex>,
}

/// The two ends, of which the first is copied for each core that is asked.
pub(crate) fn receipt() -> (Receipt, Confirmation) {
    let (held, returned) = mpsc::channel();
    let unflushed = Vec::new();
    (
        Receipt { held },
        Confirmation {
            returned,
            unflushed,
        },
    )
}

impl Confirmation {
    /// Waits until all have confirmed. False when some have not by then.
    pub fn wait_until(&mut self, end: Instant) -> bool {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.returned.recv_timeout(left) {
                Ok(unit) => self.unflushed.push(unit),
                Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }

    /// The units whose last flush failed, of those that are closed by now.
    pub fn unflushed(&self) -> &[UnitIndex] {
        &self.unflushed
    }

    pub(crate) fn wait(mut self, limit: Duration) -> Result<(), NoAnswer> {
        let end = Instant::now() + limit;
        self.wait_until(end).then_some(()).ok_or(NoAnswer)
    }
}

/// A core did not do in time what it was asked for; it may still do it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a core of the data plane does not answer in time")]
pub struct NoAnswer;

/// Why a unit is not added.
#[derive(Debug, thiserror::Error)]
pub enum AddUnitError {
    /// A store gives no handle to a core.
    #[error("store of unit {name}")]
    Store {
        /// The unit.
        name: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A core did not answer in time.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_confirmed_when_the_last_copy_is_dropped_and_not_before() {
        let (first, mut confirmation) = receipt();
        let second = first.clone();
        first.note_unflushed(UnitIndex(3));
        drop(first);
        assert!(!confirmation.wait_until(Instant::now()));
        second.note_unflushed(UnitIndex(5));
        drop(second);
        assert!(confirmation.wait_until(Instant::now()));
        assert_eq!(confirmation.unflushed(), [UnitIndex(3), UnitIndex(5)]);
    }

    #[test]
    fn a_receipt_may_outlive_its_caller() {
        let (held, confirmation) = receipt();
        drop(confirmation);
        held.note_unflushed(UnitIndex(3));
    }
}
