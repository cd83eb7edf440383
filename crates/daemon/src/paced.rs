//! Questions that disturb the cores, asked only so often.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A question with a pause between two times it is asked. A caller within the pause waits for its
/// end; all who wait share one answer, which is never older than their question.
#[derive(Debug)]
pub(super) struct Paced<T> {
    pause: Duration,
    /// When the last question was asked, and the answer to it.
    last: Mutex<Option<(Instant, T)>>,
}

impl<T: Clone> Paced<T> {
    pub(super) fn new(pause: Duration) -> Self {
        Self {
            pause,
            last: Mutex::new(None),
        }
    }

    /// The answer.
    #[expect(
        clippy::disallowed_methods,
        reason = "a thread of the administration waits, never a core"
    )]
    pub(super) fn ask(&self, question: impl FnOnce() -> T) -> T {
        let came = Instant::now();
        // A question that panicked has left the answer before it.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((asked, answer)) = &*last {
            if *asked >= came {
                return answer.clone();
            }
            thread::sleep(self.pause.saturating_sub(asked.elapsed()));
        }
        let asked = Instant::now();
        let answer = question();
        *last = Some((asked, answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn those_who_wait_share_an_answer_that_is_newer_than_their_question() {
        let pause = Duration::from_millis(50);
        let paced = Paced::new(pause);
        let (asked, world) = (AtomicU32::new(0), AtomicU32::new(0));
        let began = Instant::now();
        let ask = || {
            let known = world.fetch_add(1, Ordering::SeqCst);
            let answer = paced.ask(|| {
                asked.fetch_add(1, Ordering::SeqCst);
                world.load(Ordering::SeqCst)
            });
            assert!(answer > known, "{answer} is not newer than {known}");
        };
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..4).for_each(|_| ask()));
            }
        });
        let asked = asked.into_inner();
        let most = 1 + began.elapsed().as_millis() / pause.as_millis();
        assert!(
            u128::from(asked) <= most,
            "{asked} questions, {most} may be"
        );
        assert!(asked < 32);
    }
}
