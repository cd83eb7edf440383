//! How often, and with what pauses, an operation of a store is tried again that the kernel answered
//! with "try again" (`EAGAIN`) or "interrupted" (`EINTR`).
//!
//! A file system may answer so for as long as it likes. Without a pause a core would do nothing
//! else, without a limit the command would never end.

use std::time::Duration;

/// Tries in all. With the pauses between them an operation fails after about a second.
const TRIES_MAX: u8 = 12;

/// The pause after the first try; each is twice the one before, up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// The tries of one operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tries(u8);

impl Tries {
    /// A try was answered with "try again": the pause before the next one, or `None` when it was the
    /// last.
    pub(crate) fn pause(&mut self) -> Option<Duration> {
        let done = self.0.saturating_add(1);
        self.0 = done;
        let pause = PAUSE_MIN * (1 << u32::from(done - 1).min(16));
        (done < TRIES_MAX).then_some(pause.min(PAUSE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let mut tries = Tries::default();
        let pauses = std::iter::from_fn(|| tries.pause()).map(|pause| pause.as_millis());
        let expected = [1, 2, 4, 8, 16, 32, 64, 128, 200, 200, 200];
        assert_eq!(pauses.collect::<Vec<_>>(), expected);
        assert_eq!(tries.pause(), None, "it stays at its end");
    }
}
