//! What must happen exactly once is a value that must be spent.

use std::fmt::Debug;

/// Something that is owed: the answer of a command, what follows a wait, the end of a fence. Its
/// holder hands it on or spends it.
///
/// Losing one is a bug of ours that nobody would notice otherwise: an initiator waits for ever. So it
/// panics where debug assertions are on, in tests and in the simulation; elsewhere nothing is left
/// of this type.
#[derive(Debug)]
#[must_use = "what is owed must be done"]
pub struct Owed<T: Debug>(Option<T>);

impl<T: Debug> Owed<T> {
    /// From now on this is owed.
    pub const fn new(what: T) -> Self {
        Self(Some(what))
    }

    /// It is being done now.
    #[expect(
        clippy::expect_used,
        reason = "only this takes it, with the value itself"
    )]
    pub fn spend(mut self) -> T {
        self.0.take().expect("a value is spent once")
    }

    /// Whether what is owed is of a kind.
    pub fn is(&self, test: impl FnOnce(&T) -> bool) -> bool {
        self.0.as_ref().is_some_and(test)
    }

    /// Nobody is there any more who could get it.
    pub fn forgive(mut self) {
        self.0 = None;
    }
}

impl<T: Debug> Drop for Owed<T> {
    fn drop(&mut self) {
        debug_assert!(
            self.0.is_none() || std::thread::panicking(),
            "lost: {:?}",
            self.0
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_or_forgiven_is_no_longer_owed() {
        assert_eq!(Owed::new(7).spend(), 7);
        Owed::new(7).forgive();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lost: Some(\"an answer\")")]
    fn what_is_lost_panics() {
        drop(Owed::new("an answer"));
    }
}
