//! Starts again what fails or panics, after a pause that grows.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The pause after the first failure.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Who ran so long is taken to be well again.
const WELL_AFTER: Duration = Duration::from_secs(60);

/// Runs `life` until it has ended well. When it fails or panics, `pause` waits and says whether to go on; then it runs
/// again.
pub(crate) fn supervise(
    mut life: impl FnMut() -> Result<(), String>,
    mut pause: impl FnMut(Duration) -> bool,
) {
    let mut next = PAUSE_MIN;
    loop {
        let start = Instant::now();
        // What the life shares with the next one is behind locks that hold no half changes.
        let reason = match catch_unwind(AssertUnwindSafe(&mut life)) {
            Ok(Ok(())) => return,
            Ok(Err(reason)) => reason,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref().copied());
                text.unwrap_or("a panic without text").to_owned()
            }
        };
        if start.elapsed() >= WELL_AFTER {
            next = PAUSE_MIN;
        }
        tracing::error!(
            reason,
            pause_ms = next.as_millis(),
            "the administration failed and starts again"
        );
        if !pause(next) {
            return;
        }
        next = PAUSE_MAX.min(next * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_panics_or_fails_runs_again_after_pauses_that_grow() {
        let mut lives = 0;
        let mut pauses = Vec::new();
        let life = || {
            lives += 1;
            assert!(lives > 2, "life {lives}");
            if lives == 3 {
                Err("no runtime".to_owned())
            } else {
                Ok(())
            }
        };
        supervise(life, |pause| {
            pauses.push(pause);
            true
        });
        assert_eq!(lives, 4);
        assert_eq!(pauses, [PAUSE_MIN, PAUSE_MIN * 2, PAUSE_MIN * 4]);
    }

    #[test]
    fn pauses_stop_growing() {
        let mut lives = 0;
        let mut last = Duration::ZERO;
        let life = || {
            lives += 1;
            assert!(lives > 20, "life {lives}");
            Ok(())
        };
        supervise(life, |pause| {
            last = pause;
            true
        });
        assert_eq!(last, PAUSE_MAX);
    }

    #[test]
    fn a_stop_in_a_pause_is_the_end() {
        let mut lives = 0;
        let life = || {
            lives += 1;
            panic!("always");
        };
        supervise(life, |_| false);
        assert_eq!(lives, 1);
    }
}
