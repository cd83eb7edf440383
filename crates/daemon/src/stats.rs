//! Counters of the data plane, in the words of the API.

use std::collections::BTreeMap;
use std::fs;
use std::time::SystemTime;

use api::stats::{Connections, Core, Hyperscsi, Logins, Operations, Series, Stats, StoreErrors};
use plane::{CoreCounts, KindCounts, LoginCause, SeriesCounts};

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
    Stats {
        at_ms: milliseconds(SystemTime::now()),
        sessions: sessions_of(&counts),
        cores: (0..).zip(&counts).map(core).collect(),
        series: series.into_values().collect(),
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

/// What HyperSCSI counts. Cores are asked only where there are groups.
pub(super) fn hyperscsi(daemon: &Daemon) -> Hyperscsi {
    let has_groups = !daemon.in_force().running.model.hyperscsi().is_empty();
    let reports = match has_groups {
        true => daemon.plane.hyperscsi().unwrap_or_default(),
        false => Vec::new(),
    };
    let mut all = Hyperscsi::default();
    for report in &reports {
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

    use super::*;

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
