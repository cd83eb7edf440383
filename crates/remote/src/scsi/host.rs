//! What an attendant looks after while it waits for something else.

use std::time::Duration;

use super::command::Sense;

/// For the first look at a disk, from the first question to the last answer. A server that does what it should needs a
/// second.
pub(crate) const LOOK_MAX: Duration = Duration::from_secs(30);

/// The caller has no time any more.
#[derive(Debug)]
pub(crate) struct GivenUp;

/// Why there is no session.
pub(crate) enum NotConnected {
    GivenUp,
    /// A reason, and how long to wait before the next attempt.
    Reason(String, Duration),
}

impl From<GivenUp> for NotConnected {
    fn from(_: GivenUp) -> Self {
        Self::GivenUp
    }
}

/// What is looked after while something is waited for.
pub(crate) trait Host {
    /// Called again and again. Says when it wants to be called next at the latest, or that nobody needs the outcome.
    fn turn(&mut self, now: Duration) -> Result<Option<Duration>, GivenUp>;

    /// The device said this, once, instead of executing a command.
    fn note_attention(&mut self, _sense: Sense) {}

    /// What the device has said by now is covered by what it is asked from here on.
    fn begin_look(&mut self) {}
}

/// Waits for nothing else, and not longer than until this moment: each step of a server has its own limit, but how many
/// steps there are is what the server says.
pub(crate) struct Until(pub(crate) Duration);

impl Until {
    /// For a step that has an end of its own.
    pub(crate) const fn never() -> Self {
        Self(Duration::MAX)
    }
}

impl Host for Until {
    fn turn(&mut self, now: Duration) -> Result<Option<Duration>, GivenUp> {
        match now < self.0 {
            true => Ok(Some(self.0)),
            false => Err(GivenUp),
        }
    }
}
