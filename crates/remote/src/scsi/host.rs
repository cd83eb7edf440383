//! What an attendant looks after while it waits for something else.

use std::time::Duration;

use super::command::Sense;

/// The caller has no time any more.
#[derive(Debug)]
pub(crate) struct GivenUp;

/// What is looked after while something is waited for.
pub(crate) trait Host {
    /// Called again and again. Says when it wants to be called next at the latest, or that nobody needs the outcome.
    fn turn(&mut self, now: Duration) -> Result<Option<Duration>, GivenUp>;

    /// The device said this, once, instead of executing a command.
    fn note_attention(&mut self, _sense: Sense) {}

    /// What the device has said by now is covered by what it is asked from here on.
    fn begin_look(&mut self) {}
}

/// Waits for nothing else.
pub(crate) struct Nobody;

impl Host for Nobody {
    fn turn(&mut self, _now: Duration) -> Result<Option<Duration>, GivenUp> {
        Ok(None)
    }
}
