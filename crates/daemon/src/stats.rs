//! Counters of the data plane, in the words of the API.

use std::collections::BTreeMap;
use std::fs;
use std::time::SystemTime;

use api::stats::{Connections, Core, Hyperscsi, Logins, Operations, Series, Stats, StoreErrors};
use plane::{CoreCounts, HyperscsiReport, KindCounts, LoginCause, SeriesCounts};

use super::Running;
use super::calendar::milliseconds;
use super::daemon::Daemon;

/// How many sessions there are, without a question to the cores.
pub(super) fn sessions(daemon: &Daemon) -> u32 {
    sessions_of(&daemon.plane.counts())
}

fn sessions_of(counts: &[CoreCounts]) -> u32 {
    counts.iter().map(|core| small(core.sessions)).sum()
}

/// Everything that is counted, now.
pub(super) fn stats(daemon: &Daemon) -> Stats {
    let counts = daemon.plane.counts();
    let in_force = daemon.in_force();
    let running = &in_force.running;
    Stats {
        at_ms: milliseconds(SystemTime::now()),
        sessions: sessions_of(&counts),
        cores: (0..).zip(&counts).map(core).collect(),
        series: series(running, &counts),
        store_errors: store_errors(running, &counts),
        logins: logins(&daemon.plane.login_counts()),
        stores: running
            .model
            .units()
            .iter()
            .zip(&running.units)
            .filter_map(|(unit, served)| {
                let found = served.store.connections()?;
                Some(Connections {
                    lun: unit.to_string(),
                    up: found.up,
                    again: found.again,
                    held: found.held,
                })
            })
            .collect(),
    }
}

/// The commands of each initiator to each unit, of all cores together.
fn series(running: &Running, counts: &[CoreCounts]) -> Vec<Series> {
    let name = |series: &SeriesCounts| {
        let at = running.unit_position(series.unit)?;
        running.model.units().get(at).map(ToString::to_string)
    };
    let mut series: BTreeMap<(String, String), Series> = BTreeMap::new();
    for one in counts.iter().flat_map(|core| &core.series) {
        // A unit that is gone takes its figures with it.
        let Some(lun) = name(one) else { continue };
        let key = (lun.clone(), one.initiator.clone());
        let sum = series.entry(key).or_insert_with(|| Series {
            lun,
            initiator: one.initiator.clone(),
            depth: 0,
            slow: 0,
            read: Operations::default(),
            write: Operations::default(),
            other: Operations::default(),
        });
        sum.depth += one.depth;
        sum.slow += one.slow;
        let [read, write, other] = &one.kinds;
        add(&mut sum.read, read);
        add(&mut sum.write, write);
        add(&mut sum.other, other);
    }
    series.into_values().collect()
}

/// What HyperSCSI counts. Cores are asked only where there are groups.
pub(super) fn hyperscsi(daemon: &Daemon) -> Hyperscsi {
    let has_groups = !daemon.in_force().running.model.hyperscsi().is_empty();
    let reports = match has_groups {
        true => daemon.plane.hyperscsi().unwrap_or_default(),
        false => Vec::new(),
    };
    sum_of(&reports)
}

fn sum_of(reports: &[HyperscsiReport]) -> Hyperscsi {
    let mut all = Hyperscsi::default();
    for report in reports {
        let counts = &report.counts;
        let of = &counts.sessions;
        let frames = [
            ("received", counts.frames_in),
            ("sent", counts.frames_out),
            ("unsent", counts.unsent),
            ("misplaced", counts.misplaced),
            ("unknown_tag", counts.unknown_tag),
            ("strange", counts.strange.wrapping_add(of.strange)),
            ("forged", of.forged),
            ("stale", of.stale),
            ("corrupt", of.corrupt),
            ("no_room", of.no_room),
            ("joined", of.joined),
            ("retransmitted", of.retransmitted),
            ("spurious", of.spurious),
            ("probe", of.probes),
        ];
        let events = [
            ("question", counts.questions),
            ("answer", counts.answers),
            ("answer_dropped", counts.answers_dropped),
            ("login_step", counts.login_steps),
            ("authenticated", counts.proved),
            ("refused", counts.refused),
            ("unproved", counts.unproved),
            ("smaller_frames", of.fallbacks),
        ];
        sum_up(&mut all.frames, &frames);
        sum_up(&mut all.events, &events);
        for place in &report.places {
            let name = place.to_string();
            let away = u64::from(report.away.contains(place));
            match all.places.iter_mut().find(|(other, _)| *other == name) {
                Some((_, count)) => *count += away,
                None => all.places.push((name, away)),
            }
        }
    }
    all
}

fn sum_up(sums: &mut Vec<(&'static str, u64)>, more: &[(&'static str, u64)]) {
    if sums.is_empty() {
        sums.extend(more);
        return;
    }
    for ((_, sum), (_, count)) in sums.iter_mut().zip(more) {
        *sum = sum.wrapping_add(*count);
    }
}

/// Failures of stores by unit and cause. A unit that is gone takes its figures with it.
fn store_errors(running: &Running, counts: &[CoreCounts]) -> Vec<StoreErrors> {
    let mut sums: BTreeMap<(String, String), u64> = BTreeMap::new();
    for trouble in counts.iter().flat_map(|core| &core.troubles) {
        let at = running.unit_position(trouble.unit);
        let Some(unit) = at.and_then(|at| running.model.units().get(at)) else {
            continue;
        };
        for one in &trouble.failures {
            let key = (unit.to_string(), one.cause.label().into_owned());
            *sums.entry(key).or_insert(0) += one.count;
        }
    }
    let errors = |((lun, errno), count)| StoreErrors { lun, errno, count };
    sums.into_iter().map(errors).collect()
}

fn small(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn add(sum: &mut Operations, counts: &KindCounts) {
    if counts.count == 0 {
        return;
    }
    sum.count += counts.count;
    sum.bytes += counts.bytes;
    sum.errors += counts.errors;
    sum.latency_us += counts.latency_us;
    sum.latency.resize(counts.latency.len(), 0);
    for (sum, count) in sum.latency.iter_mut().zip(counts.latency) {
        *sum += count;
    }
}

fn core((number, counts): (u32, &CoreCounts)) -> Core {
    Core {
        core: number,
        busy_us: cpu_us(counts.thread),
        turns: counts.turns,
        sessions: small(counts.sessions),
        pool_bytes: counts.pool_bytes,
        pool_free_bytes: counts.pool_free_bytes,
        starved: counts.starved,
    }
}

/// The processor time of a thread of this process, from `/proc/self/task/N/schedstat`: its first
/// number, in nanoseconds. Zero where the kernel does not report it.
pub(super) fn cpu_us(thread: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat"));
    let first = text
        .ok()
        .and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    first.unwrap_or(0) / 1000
}

fn logins(counts: &plane::LoginCounts) -> Logins {
    let failure = |(cause, count): (&LoginCause, &u64)| api::stats::LoginFailures {
        cause: cause.as_str().to_owned(),
        count: *count,
    };
    Logins {
        accepted: counts.accepted,
        succeeded: counts.succeeded,
        failed: counts.failed.iter().map(failure).collect(),
    }
}

#[cfg(test)]
mod tests {
    use api::stats::LATENCY_BOUNDS_US;

    use std::time::Instant;

    use plane::{Cause, StoreFailing, StoreTrouble, UnitIndex};

    use super::*;
    use crate::serve::living::Living;

    /// Of each kind one more command than of the one before, and `first` of the first.
    fn kinds(first: u64) -> [KindCounts; 3] {
        [first, first + 1, first + 2].map(|count| KindCounts {
            count,
            bytes: 512 * count,
            errors: 0,
            latency_us: 10 * count,
            latency: [0; plane::LATENCY_BUCKETS],
        })
    }

    fn of_core(
        sessions: u64,
        series: Vec<SeriesCounts>,
        troubles: Vec<StoreTrouble>,
    ) -> CoreCounts {
        CoreCounts {
            thread: 0,
            turns: 7,
            starved: 8,
            sessions,
            pool_bytes: 9,
            pool_free_bytes: 10,
            series,
            troubles,
        }
    }

    fn one(unit: UnitIndex, initiator: &str, first: u32) -> SeriesCounts {
        SeriesCounts {
            unit,
            initiator: initiator.to_owned(),
            depth: first,
            slow: u64::from(first) * 100,
            kinds: kinds(first.into()),
        }
    }

    fn trouble(unit: UnitIndex, failures: &[(Cause, u64)]) -> StoreTrouble {
        let failing = |&(cause, count): &(Cause, u64)| StoreFailing {
            cause,
            count,
            last: Instant::now(),
        };
        StoreTrouble {
            unit,
            is_stuck: false,
            slow: None,
            shrunk: None,
            failures: failures.iter().map(failing).collect(),
            conflict: None,
        }
    }

    const TWO: &str = r#"
[[lun]]
id = "a"
store = "mem:1M"
[[lun]]
id = "b"
store = "mem:1M"
[server]
state = "{dir}/state"
cores = 2
[admin]
enabled = false
[limits]
pool_per_core_bytes = "16M"
"#;

    #[test]
    fn what_cores_have_counted_is_given_by_unit_and_initiator_and_goes_with_the_unit() {
        let living = Living::new(TWO);
        let in_force = living.daemon.in_force();
        let running = &in_force.running;
        let [a, b] = [0, 1].map(|at| running.units[at].index);
        let gone = UnitIndex(a.0 + b.0 + 1);
        let (space, medium) = (Cause::NoSpace, Cause::Medium);
        let of_gone = trouble(gone, &[(medium, 60)]);
        let counts = [
            of_core(
                1,
                vec![one(b, "y", 1), one(a, "y", 2), one(gone, "y", 50)],
                vec![trouble(b, &[(space, 1), (medium, 2)]), of_gone],
            ),
            of_core(
                2,
                vec![one(a, "y", 4), one(a, "x", 8)],
                vec![trouble(b, &[(space, 4)])],
            ),
        ];
        let all = series(running, &counts);
        let found = all.iter().map(|one| {
            let counts = [&one.read, &one.write, &one.other].map(|kind| kind.count);
            let who = (one.lun.as_str(), one.initiator.as_str());
            (who, one.depth, one.slow, counts, one.write.bytes)
        });
        let expected = [
            (("a", "x"), 8, 800, [8, 9, 10], 4608),
            (("a", "y"), 6, 600, [6, 8, 10], 4096),
            (("b", "y"), 1, 100, [1, 2, 3], 1024),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        let errors = store_errors(running, &counts);
        let errors = errors
            .iter()
            .map(|one| (one.lun.as_str(), one.errno.as_str(), one.count));
        let labels = [medium, space].map(|cause| cause.label().into_owned());
        let mut expected = [("b", labels[0].as_str(), 2), ("b", labels[1].as_str(), 5)];
        expected.sort_unstable();
        assert_eq!(errors.collect::<Vec<_>>(), expected);
        living.stop();
    }

    #[test]
    fn each_core_is_shown_with_what_it_has() {
        let living = Living::new(TWO);
        let counts = [1, 2].map(|sessions| of_core(sessions, Vec::new(), Vec::new()));
        let too_many = of_core(u64::from(u32::MAX) + 1, Vec::new(), Vec::new());
        assert_eq!(
            (sessions_of(&counts), sessions_of(&[too_many])),
            (3, u32::MAX)
        );
        let shown = core((5, &counts[1]));
        let pool = (shown.pool_bytes, shown.pool_free_bytes);
        assert_eq!((shown.core, shown.turns, shown.sessions), (5, 7, 2));
        assert_eq!((pool, shown.starved), ((9, 10), 8));
        let now = stats(&living.daemon);
        let cores: Vec<_> = now.cores.iter().map(|core| core.core).collect();
        assert_eq!(cores, [0, 1]);
        let is_live = |core: &Core| {
            let pool = 1..=core.pool_bytes;
            core.turns > 0 && pool.contains(&core.pool_free_bytes)
        };
        assert!(now.cores.iter().all(is_live), "{:?}", now.cores);
        assert_eq!((now.series.len(), now.stores.len()), (0, 0));
        assert_eq!((now.sessions, sessions(&living.daemon)), (0, 0));
        let none = hyperscsi(&living.daemon);
        assert_eq!(none, Hyperscsi::default(), "there is no group");
        living.stop();
    }

    #[test]
    fn logins_and_frames_are_counted_each_as_what_they_are() {
        let mut counts = plane::LoginCounts {
            accepted: 5,
            succeeded: 2,
            ..plane::LoginCounts::default()
        };
        counts.failed.insert(LoginCause::NotFound, 3);
        let all = logins(&counts);
        let failed = all.failed.iter().map(|one| (one.cause.as_str(), one.count));
        assert_eq!(
            failed.collect::<Vec<_>>(),
            [(LoginCause::NotFound.as_str(), 3)]
        );
        assert_eq!((all.accepted, all.succeeded), (5, 2));

        let places = ["eth0", "eth1"].map(|name| plane::Place::Interface(name.into()));
        let mut report = HyperscsiReport {
            core: 0,
            places: places.to_vec(),
            away: vec![places[1].clone()],
            counts: plane::HyperscsiCounts::default(),
        };
        let counts = &mut report.counts;
        (
            counts.frames_in,
            counts.frames_out,
            counts.unsent,
            counts.misplaced,
        ) = (1, 2, 3, 4);
        (
            counts.unknown_tag,
            counts.strange,
            counts.questions,
            counts.answers,
        ) = (5, 6, 20, 21);
        (counts.answers_dropped, counts.login_steps, counts.proved) = (22, 23, 24);
        (counts.refused, counts.unproved) = (25, 26);
        let of = &mut counts.sessions;
        (of.strange, of.forged, of.stale, of.corrupt, of.no_room) = (1, 8, 9, 10, 11);
        (
            of.joined,
            of.retransmitted,
            of.spurious,
            of.probes,
            of.fallbacks,
        ) = (12, 13, 14, 15, 27);
        let twice = sum_of(&[report.clone(), report]);
        let by_name = |all: &[(&'static str, u64)]| -> Vec<String> {
            all.iter()
                .map(|(name, count)| format!("{name} {count}"))
                .collect()
        };
        #[rustfmt::skip]
        assert_eq!(by_name(&twice.frames), [
            "received 2", "sent 4", "unsent 6", "misplaced 8", "unknown_tag 10", "strange 14", "forged 16", "stale 18",
            "corrupt 20", "no_room 22", "joined 24", "retransmitted 26", "spurious 28", "probe 30",
        ]);
        #[rustfmt::skip]
        assert_eq!(by_name(&twice.events), [
            "question 40", "answer 42", "answer_dropped 44", "login_step 46", "authenticated 48", "refused 50",
            "unproved 52", "smaller_frames 54",
        ]);
        let away: Vec<u64> = twice.places.iter().map(|(_, away)| *away).collect();
        assert_eq!(away, [0, 2]);
    }

    #[test]
    fn the_processor_time_of_a_thread_grows_and_one_that_is_not_there_has_none() {
        let own = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs();
        // Not every kernel reports it.
        if fs::exists(format!("/proc/self/task/{own}/schedstat")).unwrap() {
            let before = cpu_us(own);
            while cpu_us(own) == before {
                std::hint::spin_loop();
            }
        }
        assert_eq!(cpu_us(u32::MAX), 0);
    }

    #[test]
    fn what_cores_have_counted_is_added_and_of_nothing_there_are_no_buckets() {
        let (mut sum, latency) = (Operations::default(), [0; plane::LATENCY_BUCKETS]);
        let mut counts = KindCounts {
            count: 0,
            bytes: 4096,
            errors: 1,
            latency_us: 700,
            latency,
        };
        add(&mut sum, &counts);
        assert_eq!((sum.count, sum.latency.len()), (0, 0));
        counts.count = 3;
        (counts.latency[0], counts.latency[5]) = (1, 2);
        add(&mut sum, &counts);
        add(&mut sum, &counts);
        assert_eq!(
            (sum.count, sum.bytes, sum.errors, sum.latency_us),
            (6, 8192, 2, 1400)
        );
        assert_eq!(sum.latency.len(), plane::LATENCY_BUCKETS);
        assert_eq!((sum.latency[0], sum.latency[5]), (2, 4));
        assert_eq!(sum.latency.iter().sum::<u64>(), 6);
    }

    #[test]
    fn buckets_are_those_of_the_api() {
        assert_eq!(plane::LATENCY_BUCKETS, LATENCY_BOUNDS_US.len() + 1);
        for (bucket, bound) in LATENCY_BOUNDS_US.into_iter().enumerate() {
            assert_eq!(plane::latency_bucket(bound), bucket);
            assert_eq!(plane::latency_bucket(bound + 1), bucket + 1);
        }
    }
}
