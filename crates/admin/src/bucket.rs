//! Token buckets: how often something may fail, by address and in all. Time is an argument.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::connections::Source;
use crate::limits;

/// How much a bucket holds and how fast it fills.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// Attempts at once.
    pub(crate) burst: u32,
    /// One more after each of these.
    pub(crate) every: Duration,
}

/// Failed attempts of one address.
const PER_ADDRESS: Rate = Rate {
    burst: 5,
    every: Duration::from_secs(6),
};

/// Failed attempts of all addresses.
const IN_ALL: Rate = Rate {
    burst: 60,
    every: Duration::from_secs(1),
};

/// What is left of a rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    rate: Rate,
    left: u32,
    filled: Instant,
}

impl Bucket {
    /// A full one.
    pub(crate) const fn new(rate: Rate, now: Instant) -> Self {
        Self {
            rate,
            left: rate.burst,
            filled: now,
        }
    }

    fn fill(&mut self, now: Instant) {
        let every = self.rate.every.as_nanos().max(1);
        let passed = now.saturating_duration_since(self.filled).as_nanos() / every;
        let more = u32::try_from(passed).unwrap_or(u32::MAX);
        if more >= self.rate.burst.saturating_sub(self.left) {
            self.left = self.rate.burst;
            self.filled = now;
        } else {
            self.left += more;
            self.filled += self.rate.every * more;
        }
    }

    /// True when there was one left, which is gone now.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        self.fill(now);
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }

    /// When it was last looked into.
    pub(crate) const fn filled(&self) -> Instant {
        self.filled
    }

    fn has_one(&mut self, now: Instant) -> bool {
        self.fill(now);
        self.left > 0
    }
}

/// Failed attempts to prove who one is.
#[derive(Debug)]
pub(crate) struct Attempts {
    all: Bucket,
    addresses: HashMap<Source, Bucket>,
}

impl Attempts {
    /// None yet.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            all: Bucket::new(IN_ALL, now),
            addresses: HashMap::new(),
        }
    }

    /// True when this address may try.
    pub(crate) fn may_try(&mut self, address: IpAddr, now: Instant) -> bool {
        let own = self.addresses.get_mut(&Source::of(address));
        own.is_none_or(|bucket| bucket.has_one(now)) && self.all.has_one(now)
    }

    /// Counts an attempt that failed.
    pub(crate) fn failed(&mut self, address: IpAddr, now: Instant) {
        let key = Source::of(address);
        if self.addresses.len() >= limits::ADDRESSES_MAX && !self.addresses.contains_key(&key) {
            self.forget_one();
        }
        let own = self.addresses.entry(key);
        own.or_insert_with(|| Bucket::new(PER_ADDRESS, now))
            .take(now);
        self.all.take(now);
    }

    fn forget_one(&mut self) {
        let oldest = self.addresses.iter().min_by_key(|(_, b)| b.filled);
        if let Some(address) = oldest.map(|(address, _)| *address) {
            self.addresses.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_is_refused_after_its_burst_and_may_try_again_when_one_came_back() {
        let start = Instant::now();
        let mut attempts = Attempts::new(start);
        let peer = address("192.0.2.1");
        for _ in 0..PER_ADDRESS.burst {
            assert!(attempts.may_try(peer, start));
            attempts.failed(peer, start);
        }
        assert!(!attempts.may_try(peer, start));
        assert!(attempts.may_try(address("192.0.2.2"), start));
        assert!(!attempts.may_try(peer, start + PER_ADDRESS.every - SECOND));
        assert!(attempts.may_try(peer, start + PER_ADDRESS.every));
    }

    #[test]
    fn all_addresses_together_are_limited() {
        let start = Instant::now();
        let mut attempts = Attempts::new(start);
        for n in 0..IN_ALL.burst {
            let peer = IpAddr::V4((0xc633_6400 + n).into());
            assert!(attempts.may_try(peer, start), "{n}");
            attempts.failed(peer, start);
        }
        assert!(!attempts.may_try(address("203.0.113.9"), start));
        assert!(attempts.may_try(address("203.0.113.9"), start + IN_ALL.every));
    }

    #[test]
    fn remembered_addresses_are_limited() {
        let start = Instant::now();
        let mut attempts = Attempts::new(start);
        for n in 0..=u32::try_from(limits::ADDRESSES_MAX).unwrap() {
            attempts.failed(IpAddr::V4(n.into()), start + SECOND * n);
        }
        assert_eq!(attempts.addresses.len(), limits::ADDRESSES_MAX);
        assert!(
            !attempts
                .addresses
                .contains_key(&Source::of(address("0.0.0.0")))
        );
    }
}
