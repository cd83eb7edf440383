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
pub(super) struct JoinLimiter {
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
    pub(super) fn allows(&mut self, address: IpAddr, now: Duration) -> bool {
        let Some(failures) = self.origins.get_mut(&origin(address)) else {
            return true;
        };
        failures.forgive(now);
        failures.count < FAILED_JOINS_MAX
    }

    /// A join from this address was refused.
    pub(super) fn note_failure(&mut self, address: IpAddr, now: Duration) {
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
        (self.count, self.since) = forgiven(self.count, self.since, now, FORGIVE_EVERY);
    }
}

/// Wrong proofs of CHAP, by origin and user: what each costs who guesses.
#[derive(Debug, Default)]
pub(crate) struct GuessLimiter {
    pairs: HashMap<(IpAddr, String), Guesses>,
    /// Of all pairs that have no place.
    others: Guesses,
}

#[derive(Clone, Copy, Debug, Default)]
struct Guesses {
    /// How many wrong proofs count at the moment.
    count: u32,
    /// When that was last counted down, or up from zero.
    since: Duration,
}

/// How many pairs of origin and user are remembered. Those that are forgiven make room for more; while there is none,
/// all others count as one pair, so that a flood of names pushes none out that is guessed at, and hides no guesses.
const PAIRS_MAX: usize = 2048;

/// How much of a user's name distinguishes it from others, in bytes.
const USER_BYTES_MAX: usize = 64;

/// So many wrong proofs are answered at once: somebody has mistyped a secret.
const GUESSES_FREE: u32 = 3;

/// What the next one waits for its answer; each after it waits twice as long.
const DELAY_FIRST: Duration = Duration::from_millis(500);

/// The longest delay.
const DELAY_MAX: Duration = Duration::from_secs(8);

/// One wrong proof less counts after each of these.
const GUESS_FORGIVEN_EVERY: Duration = Duration::from_secs(30);

/// More of them never count, so that a pair is forgiven within half an hour.
const GUESSES_MAX: u32 = 60;

/// So many wrong proofs of a pair are a finding.
const GUESSES_REPORTED: u32 = 8;

const _: () = assert!(DELAY_FIRST.as_millis() < DELAY_MAX.as_millis());
const _: () = assert!(GUESSES_FREE < GUESSES_REPORTED && GUESSES_REPORTED <= GUESSES_MAX);

/// What follows from a wrong proof.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct WrongProof {
    /// How long its refusal waits.
    pub(crate) delay: Duration,
    /// There were so many of this pair that an administrator should know.
    pub(crate) is_guessing: bool,
}

impl GuessLimiter {
    /// Counts a wrong proof. Right ones are never looked up here.
    pub(crate) fn note(&mut self, address: IpAddr, user: &str, now: Duration) -> WrongProof {
        let mut end = user.len().min(USER_BYTES_MAX);
        while !user.is_char_boundary(end) {
            end -= 1;
        }
        let pair = (origin(address), user[..end].to_owned());
        if self.pairs.len() >= PAIRS_MAX && !self.pairs.contains_key(&pair) {
            self.pairs.retain(|_, one| one.at(now).count > 0);
        }
        let has_place = self.pairs.len() < PAIRS_MAX || self.pairs.contains_key(&pair);
        let guesses = match has_place {
            true => self.pairs.entry(pair).or_default(),
            false => &mut self.others,
        };
        let before = guesses.at(now);
        *guesses = Guesses {
            count: before.count.saturating_add(1).min(GUESSES_MAX),
            ..before
        };
        let doublings = guesses.count.saturating_sub(GUESSES_FREE + 1).min(8);
        WrongProof {
            delay: if guesses.count <= GUESSES_FREE {
                Duration::ZERO
            } else {
                (DELAY_FIRST * (1 << doublings)).min(DELAY_MAX)
            },
            is_guessing: guesses.count >= GUESSES_REPORTED,
        }
    }
}

impl Guesses {
    /// What is left of them.
    fn at(self, now: Duration) -> Self {
        let (count, since) = forgiven(self.count, self.since, now, GUESS_FORGIVEN_EVERY);
        Self { count, since }
    }
}

/// What is left of a count of which one is forgiven in each `every`, and since when that counts.
fn forgiven(count: u32, since: Duration, now: Duration, every: Duration) -> (u32, Duration) {
    let passed = now.saturating_sub(since).as_nanos() / every.as_nanos();
    let less = u32::try_from(passed).unwrap_or(u32::MAX);
    if less >= count {
        (0, now)
    } else {
        (count - less, since + every * less)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_bytes_of_a_name_are_kept() {
        let mut limiter = GuessLimiter::default();
        // The last of the 64 bytes would be half of a letter.
        let name = "a".repeat(USER_BYTES_MAX - 1) + "\u{e9}";
        for end in ["", "x", "y"] {
            limiter.note(ip("192.0.2.1"), &format!("{name}{end}"), Duration::ZERO);
        }
        let kept: Vec<_> = limiter.pairs.keys().map(|(_, user)| user.len()).collect();
        assert_eq!(kept, [USER_BYTES_MAX - 1]);
    }

    #[test]
    fn wrong_proofs_wait_longer_and_longer_each_pair_for_itself() {
        let mut limiter = GuessLimiter::default();
        let start = Duration::from_secs(1000);
        let (here, there) = (ip("192.0.2.1"), ip("192.0.2.2"));
        let mut delay = |address, user, now| limiter.note(address, user, now).delay.as_millis();
        for wait in [0, 0, 0, 500, 1000, 2000, 4000, 8000, 8000] {
            assert_eq!(delay(here, "alice", start), wait);
        }
        assert_eq!(delay(here, "bob", start), 0);
        assert_eq!(delay(there, "alice", start), 0);
        // Nine count, six are forgiven: this is the fourth.
        assert_eq!(delay(here, "alice", start + GUESS_FORGIVEN_EVERY * 6), 500);
        assert_eq!(delay(here, "alice", start + GUESS_FORGIVEN_EVERY * 600), 0);
    }

    #[test]
    fn many_wrong_proofs_are_reported() {
        let mut limiter = GuessLimiter::default();
        for n in 1..=GUESSES_REPORTED {
            let wrong = limiter.note(ip("::1"), "alice", Duration::ZERO);
            assert_eq!(wrong.is_guessing, n == GUESSES_REPORTED, "{n}");
        }
    }

    #[test]
    fn a_flood_of_names_pushes_no_guessed_pair_out() {
        let mut limiter = GuessLimiter::default();
        let address = ip("192.0.2.1");
        for _ in 0..9 {
            limiter.note(address, "alice", Duration::ZERO);
        }
        for n in 0..2 * PAIRS_MAX {
            let now = Duration::from_millis(u64::try_from(n).unwrap());
            limiter.note(address, &format!("{n}{}", "\u{e9}".repeat(99)), now);
        }
        assert_eq!(limiter.pairs.len(), PAIRS_MAX);
        let wrong = limiter.note(address, "alice", Duration::from_secs(1));
        assert_eq!(wrong.delay, DELAY_MAX);
    }

    #[test]
    fn pairs_without_a_place_count_as_one_until_others_are_forgiven() {
        let mut limiter = GuessLimiter::default();
        let (flood, address) = (ip("192.0.2.1"), ip("192.0.2.2"));
        for n in 0..PAIRS_MAX {
            for _ in 0..2 {
                limiter.note(flood, &n.to_string(), Duration::ZERO);
            }
        }
        let mut last = WrongProof {
            delay: Duration::ZERO,
            is_guessing: false,
        };
        for n in 0..10 {
            last = limiter.note(address, &format!("user {}", n % 2), Duration::from_secs(1));
        }
        assert_eq!(last.delay, DELAY_MAX);
        assert!(last.is_guessing);
        // The flood is forgiven, and there is room again.
        let later = GUESS_FORGIVEN_EVERY * 3;
        let wrong = limiter.note(address, "user 0", later);
        assert_eq!(wrong.delay, Duration::ZERO);
        assert_eq!(limiter.pairs.len(), 1);
    }

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

    #[test]
    fn one_is_forgiven_in_each_span_and_what_is_left_of_a_span_counts_on() {
        let [every, moment] = [Duration::from_secs(30), Duration::from_nanos(1)];
        let since = Duration::from_secs(100);
        for (count, passed, expected) in [
            (0, Duration::ZERO, (0, Duration::ZERO)),
            (1, Duration::ZERO, (1, Duration::ZERO)),
            (1, every - moment, (1, Duration::ZERO)),
            (1, every, (0, every)),
            (2, every - moment, (2, Duration::ZERO)),
            (2, every, (1, every)),
            (2, every * 2 - moment, (1, every)),
            (2, every * 2, (0, every * 2)),
            (60, every * 59 + moment, (1, every * 59)),
            (60, every * 99 + moment, (0, every * 99 + moment)),
        ] {
            let (left, from) = forgiven(count, since, since + passed, every);
            assert_eq!((left, from - since), expected, "{count} after {passed:?}");
        }
        // A clock that goes back forgives nothing.
        assert_eq!(forgiven(3, since, since - every, every), (3, since));
    }

    #[test]
    fn no_more_wrong_proofs_count_than_are_forgiven_within_half_an_hour() {
        let mut limiter = GuessLimiter::default();
        let address = ip("192.0.2.1");
        for n in 1..=2 * GUESSES_MAX {
            let wrong = limiter.note(address, "alice", Duration::ZERO);
            assert_eq!(wrong.is_guessing, n >= GUESSES_REPORTED, "{n}");
            let count = limiter.pairs.values().next().unwrap().count;
            assert_eq!(count, n.min(GUESSES_MAX));
        }
        // The next one counts for itself.
        let later = GUESS_FORGIVEN_EVERY * (GUESSES_MAX - GUESSES_FREE);
        let [soon, late] = [later - Duration::from_nanos(1), later];
        assert_eq!(limiter.note(address, "alice", soon).delay, DELAY_FIRST * 2);
        let mut other = GuessLimiter::default();
        for _ in 0..GUESSES_MAX {
            other.note(address, "alice", Duration::ZERO);
        }
        assert_eq!(other.note(address, "alice", late).delay, DELAY_FIRST);
    }

    #[test]
    fn a_full_table_of_pairs_keeps_all_that_count() {
        let mut limiter = GuessLimiter::default();
        let address = ip("192.0.2.1");
        let note =
            |limiter: &mut GuessLimiter, n: usize, now| limiter.note(address, &n.to_string(), now);
        for n in 0..PAIRS_MAX - 1 {
            note(&mut limiter, n, Duration::ZERO);
        }
        // The last place, and then there is none: the first of these is known, the other is not.
        note(&mut limiter, PAIRS_MAX - 1, Duration::from_nanos(1));
        for _ in 0..GUESSES_FREE {
            note(&mut limiter, 0, Duration::ZERO);
            note(&mut limiter, PAIRS_MAX, Duration::ZERO);
        }
        assert_eq!(
            (limiter.pairs.len(), limiter.others.count),
            (PAIRS_MAX, GUESSES_FREE)
        );
        assert_eq!(
            limiter.pairs[&(address, "0".to_owned())].count,
            GUESSES_FREE + 1
        );
        // All but three pairs are forgiven.
        let now = GUESS_FORGIVEN_EVERY;
        note(&mut limiter, PAIRS_MAX, now);
        let mut kept: Vec<_> = limiter
            .pairs
            .keys()
            .map(|(_, user)| user.as_str())
            .collect();
        kept.sort_unstable();
        assert_eq!(kept, ["0", "2047", "2048"]);
    }

    /// One that is there already displaces none, and failures of it make it no newer.
    #[test]
    fn a_new_origin_displaces_the_one_whose_failures_are_oldest() {
        let mut limiter = JoinLimiter::default();
        let many = u32::try_from(ORIGINS_MAX).unwrap();
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        for n in 0..many {
            limiter.note_failure(address(n), Duration::from_millis((n + 1).into()));
        }
        let now = Duration::from_millis((many + 1).into());
        limiter.note_failure(address(0), now);
        assert_eq!(limiter.origins[&address(0)].count, 2);
        assert_eq!(limiter.origins.len(), ORIGINS_MAX);
        limiter.note_failure(address(many), now);
        let has = |n| limiter.origins.contains_key(&address(n));
        assert_eq!(
            [0, 1, 2, many - 1, many].map(has),
            [false, true, true, true, true]
        );
        assert_eq!(limiter.origins.len(), ORIGINS_MAX);
    }

    #[test]
    fn no_more_failed_joins_count_than_are_refused() {
        let mut limiter = JoinLimiter::default();
        let bad = ip("192.0.2.1");
        for n in 1..=2 * FAILED_JOINS_MAX {
            limiter.note_failure(bad, Duration::ZERO);
            assert_eq!(limiter.origins[&bad].count, n.min(FAILED_JOINS_MAX));
        }
        assert!(!limiter.allows(bad, FORGIVE_EVERY - Duration::from_nanos(1)));
        assert!(limiter.allows(bad, FORGIVE_EVERY));
        // What is forgiven until then does not count beside a new one.
        limiter.note_failure(bad, FORGIVE_EVERY * 11);
        assert_eq!(limiter.origins[&bad].count, FAILED_JOINS_MAX - 10);
    }
}
