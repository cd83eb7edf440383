//! Checks that every core takes turns.
//!
//! A core never waits for anything but new work, and takes a turn each second even without. One
//! that does not is stuck in the kernel or in a loop of ours, and with it all of its sessions, the
//! units it owns and, on the first core, every login. That is reported, and after a limit the
//! process ends, so that a service manager restarts it: everything else would wait for ever.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use reactor::process;

use crate::counters::CoreCounters;
use crate::events::{Event, EventSink};
use crate::times::Times;

/// How often the cores are checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A core that has not turned for so long is reported.
const REPORT_AFTER: Duration = Duration::from_secs(5);

/// When the watchdog itself is this late, the machine was stopped or very busy, and no core is reported.
const OWN_DELAY_MAX: Duration = Duration::from_secs(2);

/// The exit status of a process that ends for a core that is stuck.
const STUCK: u8 = 1;

/// The thread that watches; it ends with this value.
#[derive(Debug)]
pub(crate) struct Watchdog {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches cores by their counters of turns. After [`Times::core_stall_limit`] without a turn the process ends.
    pub(crate) fn start(
        cores: Vec<Arc<CoreCounters>>,
        times: Arc<Times>,
        events: Arc<dyn EventSink>,
    ) -> std::io::Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let begin = Instant::now();
        let run = move || {
            let mut watch = Watch::new(cores.len(), times.core_stall_limit());
            while !is_stopped_within(&stopped, LOOK_EVERY) {
                let turns = cores.iter().map(|core| core.turns());
                watch.limit = times.core_stall_limit();
                for stall in watch.look(begin.elapsed(), turns) {
                    report(&stall, &*events);
                }
                if watch.all_turn() {
                    events.turned();
                }
            }
        };
        let thread = thread::Builder::new()
            .name("watchdog".to_owned())
            .spawn(run)?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let (stop, changed) = &*self.stop;
        *stop.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the watchdog panicked");
        }
    }
}

fn is_stopped_within(stop: &(Mutex<bool>, Condvar), time: Duration) -> bool {
    let (stop, changed) = stop;
    let stopped = stop.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = changed.wait_timeout_while(stopped, time, |stopped| !*stopped);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

fn report(stall: &Stall, events: &dyn EventSink) {
    let (core, seconds) = (stall.core, stall.time.as_secs());
    if stall.is_over_limit {
        let line = format!(
            "tarn: core {core} has not turned for {seconds} s, the process ends; a store or the \
             kernel holds it (limits.core_stall_limit_seconds)"
        );
        process::end_at_once(STUCK, &line);
    }
    tracing::error!(core, seconds, "a core does not turn");
    events.emit(&Event::CoreStalled { core, seconds });
}

/// A core that does not turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Stall {
    core: usize,
    time: Duration,
    is_over_limit: bool,
}

/// What was seen so far, pure.
#[derive(Debug)]
struct Watch {
    limit: Duration,
    looked: Duration,
    cores: Vec<Seen>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    turns: u64,
    since: Duration,
    is_reported: bool,
}

impl Watch {
    fn new(cores: usize, limit: Duration) -> Self {
        Self {
            limit,
            looked: Duration::ZERO,
            cores: vec![Seen::default(); cores],
        }
    }

    /// Whether no core is reported as stuck.
    fn all_turn(&self) -> bool {
        !self.cores.iter().any(|core| core.is_reported)
    }

    /// Takes the counts of turns of all cores; gives each stall once, and once more at the limit.
    fn look(&mut self, now: Duration, turns: impl Iterator<Item = u64>) -> Vec<Stall> {
        let was_late = now.saturating_sub(self.looked) > LOOK_EVERY + OWN_DELAY_MAX;
        self.looked = now;
        let mut stalls = Vec::new();
        for (core, (seen, turns)) in self.cores.iter_mut().zip(turns).enumerate() {
            if seen.turns != turns || was_late {
                *seen = Seen {
                    turns,
                    since: now,
                    is_reported: false,
                };
                continue;
            }
            let time = now.saturating_sub(seen.since);
            let is_over_limit = time >= self.limit;
            if is_over_limit || time >= REPORT_AFTER && !seen.is_reported {
                seen.is_reported = true;
                stalls.push(Stall {
                    core,
                    time,
                    is_over_limit,
                });
            }
        }
        stalls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_core_that_does_not_turn_is_reported_once_and_ends_the_process_at_the_limit() {
        let mut watch = Watch::new(2, s(10));
        let mut seen = Vec::new();
        for second in 1..=11 {
            let stalls = watch.look(s(second), [7, second].into_iter());
            seen.extend(stalls.iter().map(|stall| (second, *stall)));
        }
        let stall = |time, is_over_limit| Stall {
            core: 0,
            time: s(time),
            is_over_limit,
        };
        assert_eq!(seen, [(6, stall(5, false)), (11, stall(10, true))]);
    }

    #[test]
    fn it_is_told_that_all_turn_until_one_is_stuck_and_again_when_that_turns() {
        let mut watch = Watch::new(2, s(60));
        let mut told = Vec::new();
        // The second core stands still from the third second to the tenth.
        for second in 1..=12 {
            let stuck = if (3..=10).contains(&second) {
                3
            } else {
                second
            };
            watch.look(s(second), [second, stuck].into_iter());
            if watch.all_turn() {
                told.push(second);
            }
        }
        assert_eq!(told, [1, 2, 3, 4, 5, 6, 7, 11, 12]);
    }

    #[test]
    fn no_core_is_reported_after_the_machine_was_stopped() {
        let mut watch = Watch::new(1, s(10));
        watch.look(s(1), [7].into_iter());
        assert_eq!(watch.look(s(100), [7].into_iter()), []);
        assert_eq!(watch.look(s(101), [7].into_iter()), []);
    }
}
