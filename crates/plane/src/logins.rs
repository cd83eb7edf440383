//! How logins end. All are counted, and those that fail are reported, wherever that happens;
//! how many are reported is limited, because any peer that can connect can make a login fail.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use front::Station;
use front::iscsi::{LoginCause, LoginFailure};

use crate::bucket::Bucket;
use crate::events::{Event, EventSink, FailedLogin};

/// How many failed logins are reported at once, on each core.
const REPORTS_MAX: u32 = 16;

/// One more may be reported after each of these: it takes hours to fill a list of some thousand events.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// Logins since the plane began.
#[derive(Clone, Debug, Default)]
pub struct LoginCounts {
    /// Connections that were accepted.
    pub accepted: u64,
    /// Logins that found or made their session.
    pub succeeded: u64,
    /// Logins that failed, by cause.
    pub failed: BTreeMap<LoginCause, u64>,
    /// Users whose secret seems to be guessed.
    pub guessing: Vec<Guessing>,
}

/// Many logins of one user from one address without a right proof of the secret.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Guessing {
    /// Where the last one came from: an address of IP, or of Ethernet.
    pub address: String,
    /// The user, who need not exist; empty for all others together. A group of HyperSCSI without one is
    /// `hyperscsi:GROUP`.
    pub user: String,
    /// When that was.
    pub at: SystemTime,
}

/// How long after its last wrong proof a pair of [`Guessing`] is kept.
pub const GUESSING_KEPT: Duration = Duration::from_secs(60 * 60);

/// The reports of logins of one core; the counts are those of all cores.
#[derive(Debug)]
pub(crate) struct LoginLog {
    counts: Arc<Mutex<LoginCounts>>,
    reports: Bucket,
}

impl LoginLog {
    pub(crate) const fn new(counts: Arc<Mutex<LoginCounts>>) -> Self {
        Self {
            counts,
            reports: Bucket::new(REPORTS_MAX, REPORT_EVERY),
        }
    }

    /// A thread that panicked while it held the lock has added or not.
    fn counts(&self) -> MutexGuard<'_, LoginCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection was accepted.
    pub(crate) fn accept(&self) {
        self.counts().accepted += 1;
    }

    /// A discovery session was displaced, or a connection closed before its login: both count as a
    /// login that found no resources.
    pub(crate) fn displace(&self) {
        let cause = LoginCause::OutOfResources;
        *self.counts().failed.entry(cause).or_default() += 1;
    }

    /// The session has the connection.
    pub(crate) fn succeed(&self) {
        self.counts().succeeded += 1;
    }

    /// Wrong proofs for a user come from an address again and again. Pairs beyond some are one, without a user, so that
    /// made-up names and addresses neither displace what is known nor are a report each.
    pub(crate) fn note_guessing(&self, from: Station, user: &str) {
        const USER_CHARS_MAX: usize = 64;
        const GUESSING_MAX: usize = 16;
        let user: String = user.chars().take(USER_CHARS_MAX).collect();
        let address = match from {
            Station::Inet(address) => address.ip().to_string(),
            Station::Link(_) => from.to_string(),
        };
        let at = SystemTime::now();
        let guessing = &mut self.counts().guessing;
        guessing.retain(|one| one.at.elapsed().unwrap_or_default() < GUESSING_KEPT);
        let same = |one: &&mut Guessing| (&one.address, &one.user) == (&address, &user);
        if let Some(known) = guessing.iter_mut().find(same) {
            known.at = at;
            return;
        }
        let named = guessing.iter().filter(|one| !one.user.is_empty()).count();
        let is_one_more = named >= GUESSING_MAX;
        if is_one_more {
            guessing.retain(|one| !one.user.is_empty());
        }
        let user = if is_one_more { String::new() } else { user };
        guessing.push(Guessing { address, user, at });
    }

    /// Counts a failed login, and reports it unless too many were reported. Given are where it came from, and
    /// the names of initiator and target as they were claimed.
    pub(crate) fn fail(
        &mut self,
        events: &dyn EventSink,
        now: Duration,
        (peer, initiator, target): (Station, Option<&str>, Option<&str>),
        failure: &LoginFailure,
    ) {
        let cause = failure.cause();
        *self.counts().failed.entry(cause).or_default() += 1;
        let Some(unreported) = self.reports.take(now) else {
            return;
        };
        let failed = FailedLogin {
            peer,
            initiator,
            target,
            cause,
            reason: &failure.to_string(),
            unreported,
        };
        let FailedLogin {
            initiator,
            target,
            reason,
            ..
        } = failed;
        let cause = cause.as_str();
        tracing::info!(initiator, target, %peer, cause, unreported, "login failed: {reason}");
        events.emit(&Event::LoginFailed(&failed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iscsi::login::LoginViolation;

    /// Keeps the number of those that were not reported.
    #[derive(Debug, Default)]
    struct Recorder(Mutex<Vec<(LoginCause, u64)>>);

    impl EventSink for Recorder {
        fn emit(&self, event: &Event<'_>) {
            if let Event::LoginFailed(failed) = event {
                self.0
                    .lock()
                    .unwrap()
                    .push((failed.cause, failed.unreported));
            }
        }
    }

    #[test]
    fn all_failures_are_counted_and_a_burst_of_them_is_reported() {
        let start = Duration::from_secs(1000);
        let recorder = Recorder::default();
        let mut log = LoginLog::new(Arc::default());
        let peer = Station::Inet(([192, 0, 2, 1], 1).into());
        let mut fail = |now, failure: LoginFailure| {
            log.fail(&recorder, now, (peer, None, None), &failure);
        };
        for _ in 0..REPORTS_MAX + 3 {
            fail(start, LoginViolation::DeadlinePassed.into());
        }
        fail(start + REPORT_EVERY, LoginFailure::Abandoned);
        let counts = log.counts().clone();
        let reported = u64::from(REPORTS_MAX);
        assert_eq!(
            counts.failed,
            BTreeMap::from([
                (LoginCause::Timeout, reported + 3),
                (LoginCause::Abandoned, 1)
            ])
        );
        let emitted = recorder.0.into_inner().unwrap();
        assert_eq!(emitted.len(), REPORTS_MAX as usize + 1);
        assert_eq!(emitted.last(), Some(&(LoginCause::Abandoned, 3)));
    }

    #[test]
    fn names_that_are_made_up_displace_no_guesses_and_are_one() {
        let log = LoginLog::new(Arc::default());
        let from = |n: u8| Station::Inet(([192, 0, 2, n], 1).into());
        for n in 0..200 {
            log.note_guessing(from(n), &format!("user {}", n % 50));
            log.note_guessing(from(0), "user 0");
        }
        let guessing = log.counts().guessing.clone();
        let named = guessing.iter().filter(|one| !one.user.is_empty());
        let users: Vec<String> = named.map(|one| one.user.clone()).collect();
        assert_eq!(
            users,
            (0..16).map(|n| format!("user {n}")).collect::<Vec<_>>()
        );
        let [others] = &guessing[16..] else {
            panic!("{guessing:?}");
        };
        assert_eq!(
            (others.user.as_str(), others.address.as_str()),
            ("", "192.0.2.199")
        );
    }

    /// The document has a row for each cause, in their order, and no other.
    #[test]
    fn the_document_lists_the_causes() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/metrics.md"
        );
        let document = std::fs::read_to_string(path).unwrap();
        let rows = document
            .lines()
            .skip_while(|line| *line != "| cause | says |");
        let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
        let listed: Vec<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
        assert_eq!(listed, LoginCause::ALL.map(LoginCause::as_str));
    }

    /// Alerts are tested with what Tarn reports.
    #[test]
    fn alerts_are_tested_with_causes_that_exist() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/monitoring/rules_test.yml"
        );
        let rules = std::fs::read_to_string(path).unwrap();
        let causes = rules.split("cause=\"").skip(1);
        let causes: Vec<&str> = causes.filter_map(|rest| rest.split('"').next()).collect();
        assert!(!causes.is_empty());
        for cause in causes {
            let known = LoginCause::ALL.iter().any(|one| one.as_str() == cause);
            assert!(known, "{cause}");
        }
    }
}
