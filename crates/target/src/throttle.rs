//! Limits on what fails too often: for each origin, in a table that never grows beyond its size.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// How many origins a table remembers. One more displaces the one with the oldest failure.
const ORIGINS_MAX: usize = 1024;

/// Who an address stands for. A host with IPv6 has a whole network of 64 bits to choose from.
pub(crate) fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(network))
        }
    }
}

/// Failed joins of sessions, by origin: some at once, then one from time to time.
#[derive(Debug, Default)]
pub(crate) struct JoinLimiter {
    origins: HashMap<IpAddr, Failures>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    /// How many count at the moment.
    count: u32,
    /// When that was last counted down, or up from zero.
    since: Duration,
}

/// How many joins of one origin may fail at once: more than a host with all its paths needs when its
/// sessions are gone.
const FAILED_JOINS_MAX: u32 = 32;

/// One failure less counts after each of these. It takes a day to try every TSIH.
const FORGIVE_EVERY: Duration = Duration::from_secs(2);

impl JoinLimiter {
    /// Whether a join from this address is looked at. A leading login always is.
    pub(crate) fn allows(&mut self, address: IpAddr, now: Duration) -> bool {
        let Some(failures) = self.origins.get_mut(&origin(address)) else {
            return true;
        };
        failures.forgive(now);
        failures.count < FAILED_JOINS_MAX
    }

    /// A join from this address was refused.
    pub(crate) fn note_failure(&mut self, address: IpAddr, now: Duration) {
        let origin = origin(address);
        if self.origins.len() >= ORIGINS_MAX && !self.origins.contains_key(&origin) {
            let oldest = self.origins.iter().min_by_key(|(_, one)| one.since);
            if let Some(oldest) = oldest.map(|(origin, _)| *origin) {
                self.origins.remove(&oldest);
            }
        }
        let failures = self.origins.entry(origin).or_insert(Failures {
            count: 0,
            since: now,
        });
        failures.forgive(now);
        failures.count = failures.count.saturating_add(1).min(FAILED_JOINS_MAX);
    }
}

impl Failures {
    fn forgive(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.since).as_nanos() / FORGIVE_EVERY.as_nanos();
        let forgiven = u32::try_from(passed).unwrap_or(u32::MAX);
        if forgiven >= self.count {
            self.count = 0;
            self.since = now;
        } else {
            self.count -= forgiven;
            self.since += FORGIVE_EVERY * forgiven;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_of_ipv6_is_one_origin_and_mapped_addresses_are_ipv4() {
        for (address, stands_for) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            assert_eq!(origin(ip(address)), ip(stands_for));
        }
    }

    #[test]
    fn joins_that_fail_are_limited_for_their_origin_alone_and_forgiven() {
        let mut limiter = JoinLimiter::default();
        let start = Duration::from_secs(1000);
        let (bad, good) = (ip("192.0.2.1"), ip("192.0.2.2"));
        for n in 0..FAILED_JOINS_MAX {
            assert!(limiter.allows(bad, start), "{n}");
            limiter.note_failure(bad, start);
        }
        assert!(!limiter.allows(bad, start));
        assert!(limiter.allows(good, start));
        assert!(limiter.allows(bad, start + FORGIVE_EVERY));
        limiter.note_failure(bad, start + FORGIVE_EVERY);
        assert!(!limiter.allows(bad, start + FORGIVE_EVERY));
    }

    #[test]
    fn the_table_is_bounded_and_the_oldest_goes() {
        let mut limiter = JoinLimiter::default();
        for n in 0..2 * u32::try_from(ORIGINS_MAX).unwrap() {
            let address = IpAddr::from(n.to_be_bytes());
            limiter.note_failure(address, Duration::from_millis(n.into()));
        }
        assert_eq!(limiter.origins.len(), ORIGINS_MAX);
        assert!(!limiter.origins.contains_key(&ip("0.0.0.0")));
    }
}
