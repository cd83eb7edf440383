//! Rules about the service and its configuration, load and machine.

use std::time::{Duration, SystemTime};

use api::event::{Finding, Severity};
use config::CacheMode;
use plane::{GUESSING_KEPT, Guessing};

use super::{Facts, Hindrance, finding, of_lun};
use crate::expiry;
use crate::state::CONFLICT_REMEDY;

/// A core is busy that works for so much of the time.
const BUSY: f64 = 0.9;

/// A core has time left that works for no more than this.
const IDLE: f64 = 0.5;

/// Writes that take longer than this in the mean wait for a medium, not for a processor.
const SLOW_WRITE_US: u64 = 1000;

/// Fewer writes than these are not significant.
const WRITES_MIN: u64 = 100;

/// What the kernel may give a socket at most, so that one connection fills 10 Gbit/s at 1 ms.
const SOCKET_BYTES_WANTED: u64 = 2 << 20;

/// The clock of the day and the time that passed may differ by so much.
const CLOCK_STEP: Duration = Duration::from_secs(5);

pub(super) fn failed_flushes(facts: &Facts<'_>) -> Vec<Finding> {
    let findings = facts.failed.iter().map(|unit| {
        of_lun(
            Severity::Error,
            "flush-failed",
            unit,
            "a flush of its store failed: data that initiators believe to be written may be lost",
            "check the disk or the server that has it, the kernel log and the data; then remove the lun and add it \
             again, or restart Tarn or tarn attach",
        )
    });
    findings.collect()
}

pub(super) fn lost_stores(facts: &Facts<'_>) -> Vec<Finding> {
    let findings = facts.outages.iter().map(|(unit, why)| {
        let message = format!("its data cannot be reached: {why}");
        let remedy = "check the server, cluster, handler or device that has it, and the way there; Tarn tries every \
                      second";
        of_lun(Severity::Error, "store-lost", unit, message, remedy)
    });
    findings.collect()
}

pub(super) fn unsent_events(facts: &Facts<'_>) -> Vec<Finding> {
    let findings = facts.unsent.iter().map(|(server, why)| {
        let message = format!("events are not taken there: {why}");
        let remedy =
            "check the server, its certificate and the network; Tarn tries every minute at least";
        finding(Severity::Warning, "notify-failed", server, message, remedy)
    });
    findings.collect()
}

pub(super) fn hindered_units(facts: &Facts<'_>) -> Vec<Finding> {
    let findings = facts
        .hindered
        .iter()
        .map(|(unit, hindrance)| match hindrance {
            Hindrance::Held(reason) => {
                let message = format!("it is not ready: {}", reason.why);
                of_lun(
                    Severity::Error,
                    reason.code(),
                    unit,
                    message,
                    reason.remedy(),
                )
            }
            Hindrance::LogUnused(why) => {
                let remedy =
                    "look at the log device and the kernel log; see docs/guide/log-devices.md";
                of_lun(Severity::Error, "log-failed", unit, *why, remedy)
            }
            Hindrance::KnownByPath => {
                let message = "its store is recognised by path and size only";
                let remedy = "see that nothing else can be at that path when Tarn starts";
                of_lun(Severity::Info, "medium-unmarked", unit, message, remedy)
            }
        });
    findings.collect()
}

pub(super) fn states_of_others(facts: &Facts<'_>) -> Vec<Finding> {
    let findings = facts.conflicts.iter().map(|(unit, what)| {
        let message = format!(
            "its reservations and saved mode pages cannot be changed, as another program has saved them: {what}"
        );
        of_lun(Severity::Error, "state-conflict", unit, message, CONFLICT_REMEDY)
    });
    findings.collect()
}

pub(super) fn warnings_of_the_configuration(facts: &Facts<'_>) -> Vec<Finding> {
    let warnings = facts.model.warnings();
    let findings = warnings.iter().map(|warning| {
        finding(
            Severity::Warning,
            "config",
            "",
            warning.to_string(),
            "change the configuration if this is a mistake",
        )
    });
    findings.collect()
}

/// A session stays on its core: one that is busy while others are not has the wrong sessions.
pub(super) fn busy_cores(facts: &Facts<'_>) -> Vec<Finding> {
    let is_full = facts.shares.iter().all(|share| share.busy >= BUSY);
    if is_full && !facts.shares.is_empty() {
        return vec![finding(
            Severity::Warning,
            "cores-busy",
            "",
            format!("all {} cores are busy all the time", facts.shares.len()),
            "give Tarn more cores ([server] cores), or another machine",
        )];
    }
    let is_somewhere_idle = facts.shares.iter().any(|share| share.busy <= IDLE);
    let busy = facts.shares.iter().filter(|share| share.busy >= BUSY);
    let findings = busy.filter(|_| is_somewhere_idle).map(|share| {
        let percent = share.busy * 100.0;
        let (code, what, remedy) = if share.sessions <= 1 {
            (
                "one-session",
                "one session".to_owned(),
                "let the initiator open several sessions (node.session.nr_sessions, multipath)",
            )
        } else {
            (
                "core-busy",
                format!("{} sessions", share.sessions),
                "end one of them (tarn session rm): it logs in again on a core with fewer",
            )
        };
        finding(
            Severity::Warning,
            code,
            format!("core {}", share.core),
            format!("it is busy {percent:.0} % of the time with {what}, and other cores are not"),
            remedy,
        )
    });
    findings.collect()
}

pub(super) fn short_buffers(facts: &Facts<'_>) -> Vec<Finding> {
    let starved = facts.shares.iter().filter(|share| share.starved > 0);
    let findings = starved.map(|share| {
        finding(
            Severity::Warning,
            "buffers-short",
            format!("core {}", share.core),
            format!(
                "{} commands had to wait for buffers in the last seconds",
                share.starved
            ),
            "raise pool_per_core_bytes in [limits] and restart Tarn, or lower queue_depth",
        )
    });
    findings.collect()
}

/// An initiator that has as much under way as it may waits for us, not for its own work.
pub(super) fn full_windows(facts: &Facts<'_>) -> Vec<Finding> {
    let full = facts
        .sessions
        .iter()
        .filter(|session| session.window > 1 && session.commands >= session.window);
    let findings = full.map(|session| {
        finding(
            Severity::Info,
            "window-full",
            session.initiator.clone(),
            format!(
                "session {} has {} commands under way, which is its limit",
                session.id, session.commands
            ),
            "raise queue_depth in [limits] if the disks are fast enough, or lower the queue depth of the initiator",
        )
    });
    findings.collect()
}

pub(super) fn slow_writes(facts: &Facts<'_>) -> Vec<Finding> {
    let uncached = facts
        .model
        .units()
        .iter()
        .filter(|unit| unit.store.cache != CacheMode::Writeback);
    let findings = uncached.filter_map(|unit| {
        let name = unit.to_string();
        let series = facts.stats.series.iter().filter(|one| one.lun == name);
        let (count, latency_us) = series.fold((0, 0), |(count, latency_us), one| {
            (count + one.write.count, latency_us + one.write.latency_us)
        });
        let mean_us = (count >= WRITES_MIN).then(|| latency_us / count)?;
        (mean_us > SLOW_WRITE_US).then(|| {
            of_lun(
                Severity::Info,
                "write-cache",
                &name,
                format!(
                    "a write takes {}.{} ms on average, because cache = {} waits for the medium",
                    mean_us / 1000,
                    mean_us % 1000 / 100,
                    unit.store.cache.as_str()
                ),
                "cache = writeback, if its initiators flush what must not be lost (most do)",
            )
        })
    });
    findings.collect()
}

pub(super) fn little_memory(facts: &Facts<'_>) -> Vec<Finding> {
    let found = |words: &str| {
        finding(
            Severity::Warning,
            "little-memory",
            "",
            words,
            "give the service more memory (MemoryMax, MemoryHigh), or set pool_per_core_bytes in [limits] to the \
             size that it may have",
        )
    };
    facts.memory.map(found).into_iter().collect()
}

pub(super) fn few_descriptors(facts: &Facts<'_>) -> Vec<Finding> {
    let limits = facts.model.limits();
    let of_session = u64::from(limits.connections_per_session_max);
    let connections = u64::from(limits.sessions_max) * of_session;
    // Rings, stores and the administration have theirs.
    let wanted = connections + facts.model.units().len() as u64 + 512;
    let Some(most) = facts.machine.descriptors_max.filter(|most| *most < wanted) else {
        return Vec::new();
    };
    vec![finding(
        Severity::Warning,
        "descriptors",
        "",
        format!(
            "this process may open {most} files, but sessions_max and connections_per_session_max need {wanted}"
        ),
        "raise LimitNOFILE of the service (ulimit -n), or lower one of the two",
    )]
}

/// Who came too much has been refused or displaced, and honest initiators perhaps with them.
pub(super) fn limits_reached(facts: &Facts<'_>) -> Vec<Finding> {
    let cause = plane::LoginCause::OutOfResources.as_str();
    let failed = facts.stats.logins.failed.iter();
    let count: u64 = failed
        .filter(|one| one.cause == cause)
        .map(|one| one.count)
        .sum();
    if count == 0 {
        return Vec::new();
    }
    vec![finding(
        Severity::Warning,
        "strangers",
        "",
        format!(
            "{count} logins and discovery sessions were refused or closed at a limit since the start"
        ),
        "tarn events shows where they come from; if they are legitimate, raise sessions_max, \
         connections_in_login_max, discovery_sessions_max or unproved_per_address_max in [limits]",
    )]
}

pub(super) fn small_socket_buffers(facts: &Facts<'_>) -> Vec<Finding> {
    let sides = [
        ("net.ipv4.tcp_rmem", facts.machine.receive_max_bytes),
        ("net.ipv4.tcp_wmem", facts.machine.send_max_bytes),
    ];
    let small = sides.into_iter().filter_map(|(name, bytes)| {
        let bytes = bytes.filter(|bytes| *bytes < SOCKET_BYTES_WANTED)?;
        Some(finding(
            Severity::Warning,
            "socket-buffers",
            name,
            format!(
                "the kernel gives a connection {} KiB at most; fast or long networks need more",
                bytes / 1024
            ),
            format!("sysctl -w {name}='4096 131072 16777216'"),
        ))
    });
    small.collect()
}

pub(super) fn broken_rules_and_digests(facts: &Facts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for session in facts.sessions {
        let Some(iscsi) = session.iscsi() else {
            continue;
        };
        if iscsi.violations > 0 {
            findings.push(finding(
                Severity::Warning,
                "violations",
                session.initiator.clone(),
                format!(
                    "it violated the protocol {} times in session {}",
                    iscsi.violations, session.id
                ),
                "see the log, and update the initiator",
            ));
        }
        if iscsi.connections.iter().any(|one| one.data_digest) {
            findings.push(finding(
                Severity::Info,
                "digests",
                session.initiator.clone(),
                format!(
                    "session {} has data digests: a 4 KiB read takes some three times the instructions",
                    session.id
                ),
                "use them only on networks that may corrupt data",
            ));
        }
    }
    findings
}

pub(super) fn clock_that_was_set(facts: &Facts<'_>) -> Vec<Finding> {
    let (clock, passed) = facts.clock;
    let off = clock.abs_diff(passed);
    if off < CLOCK_STEP {
        return Vec::new();
    }
    vec![finding(
        Severity::Info,
        "clock",
        "",
        format!(
            "the clock was set by {} s since Tarn started, so times of events and revisions jump",
            off.as_secs()
        ),
        "use NTP for the clock; schedules of snapshots and the figures of the past follow it, nothing else does",
    )]
}

/// Logins without a right proof of the secret come again and again, and did so not long ago.
pub(super) fn guessed_secrets(facts: &Facts<'_>) -> Vec<Finding> {
    let is_recent = |one: &&Guessing| one.at.elapsed().unwrap_or_default() < GUESSING_KEPT;
    let findings = facts.guessing.iter().filter(is_recent).map(|one| {
        let whose = match one.user.as_str() {
            "" => "others, the last one",
            _ => "this user",
        };
        finding(
            Severity::Warning,
            "guessed-secret",
            one.user.clone(),
            format!(
                "many logins of {whose} from {} had no right proof of the secret",
                one.address
            ),
            "correct the secret there, or block the address; use long random secrets",
        )
    });
    findings.collect()
}

/// Certificates that are valid for a short time yet, or no longer.
pub(super) fn old_certificates(facts: &Facts<'_>) -> Vec<Finding> {
    let now = SystemTime::now();
    let findings = facts.certificates.iter().filter_map(|(of, not_after)| {
        let (severity, code, message) = expiry::verdict(*not_after, now)?;
        let remedy = "put a new certificate in the place of its file, then run tarn apply";
        Some(finding(severity, code, of, message, remedy))
    });
    findings.collect()
}

/// A trace runs that may no longer be needed.
pub(super) fn running_traces(facts: &Facts<'_>) -> Vec<Finding> {
    let findings = facts.traces.iter().map(|trace| {
        finding(
            Severity::Info,
            "trace",
            trace.subject.clone(),
            format!("it is traced, {} PDUs are kept", trace.pdus),
            "run tarn trace stop when it is no longer needed: traced commands take more time",
        )
    });
    findings.collect()
}
