//! What the rules need from no other module: the machine, and the load of the cores.

use std::fs;
use std::time::{Duration, Instant};

use api::stats::Core;

/// Between two looks at the cores, at least; rates over less are noise.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What the machine allows, found out once, before anything is out of reach.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Machine {
    /// The greatest receive buffer of a TCP socket, if the kernel reports it.
    pub(super) receive_max_bytes: Option<u64>,
    /// The same of the send buffer.
    pub(super) send_max_bytes: Option<u64>,
    /// Open files; `None` is no limit.
    pub(super) descriptors_max: Option<u64>,
}

impl Machine {
    /// Of this process.
    pub(super) fn look() -> Self {
        // Spec: tcp(7); the third number is the most that autotuning gives.
        let most = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
            text.split_whitespace().nth(2)?.parse().ok()
        };
        Self {
            receive_max_bytes: most("tcp_rmem"),
            send_max_bytes: most("tcp_wmem"),
            descriptors_max: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
        }
    }
}

/// How busy each core was in the last seconds.
#[derive(Debug)]
pub(super) struct Looks {
    last: Look,
    shares: Vec<Share>,
}

/// The counters of the cores at a moment.
#[derive(Debug)]
struct Look {
    at: Instant,
    cores: Vec<Core>,
}

/// A core between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Share {
    pub(super) core: u32,
    pub(super) sessions: u32,
    /// Of the time, from 0 to 1.
    pub(super) busy: f64,
    /// Commands that had to wait for memory.
    pub(super) starved: u64,
}

impl Looks {
    /// Nothing has been counted yet.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            last: Look {
                at: now,
                cores: Vec::new(),
            },
            shares: Vec::new(),
        }
    }

    /// The shares between the last look and now, or those before if that was only just.
    pub(super) fn shares(&mut self, now: Instant, cores: &[Core]) -> Vec<Share> {
        let passed = now.saturating_duration_since(self.last.at);
        if passed >= LOOK_EVERY {
            let before = |core: &Core| self.last.cores.iter().find(|old| old.core == core.core);
            let shares = cores.iter().map(|core| {
                let (busy_us, starved) =
                    before(core).map_or((0, 0), |old| (old.busy_us, old.starved));
                let busy_us = core.busy_us.saturating_sub(busy_us);
                Share {
                    core: core.core,
                    sessions: core.sessions,
                    busy: busy_us as f64 / passed.as_micros() as f64,
                    starved: core.starved.saturating_sub(starved),
                }
            });
            self.shares = shares.collect();
            self.last = Look {
                at: now,
                cores: cores.to_vec(),
            };
        }
        self.shares.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(number: u32, busy_us: u64, sessions: u32, starved: u64) -> Core {
        Core {
            core: number,
            busy_us,
            turns: 0,
            sessions,
            pool_bytes: 0,
            pool_free_bytes: 0,
            starved,
        }
    }

    #[test]
    fn shares_are_of_the_time_between_two_looks() {
        let start = Instant::now();
        let mut looks = Looks::new(start);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(looks.shares(at(1), &[core(0, 900_000, 1, 0)]), []);
        let first = looks.shares(at(10), &[core(0, 9_000_000, 1, 3)]);
        assert_eq!(first, [share(0.9, 3)]);
        // Too soon: the last answer is used again.
        assert_eq!(looks.shares(at(11), &[core(0, 10_000_000, 1, 5)]), first);
        assert_eq!(
            looks.shares(at(20), &[core(0, 10_000_000, 1, 5)]),
            [share(0.1, 2)]
        );
    }

    fn share(busy: f64, starved: u64) -> Share {
        Share {
            core: 0,
            sessions: 1,
            busy,
            starved,
        }
    }
}
