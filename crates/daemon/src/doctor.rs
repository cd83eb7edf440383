//! What limits or endangers the service, in words: one rule per function, all in [`RULES`].
//!
//! | Module | What it has |
//! | --- | --- |
//! | `checks` | what all rules look for, in words |
//! | `service` | rules about the configuration, the cores, the sessions, the machine |
//! | `network` | rules about the way to the initiators |
//! | `document` | the rule about the configuration file |
//! | `examination` | what the rules are given |
//! | `space` | the rules about files of units and the file systems they grow on, and the look at them |
//! | `keep` | the rule about room in the state directory, and the look at it |
//! | `stores` | the rules about stores that fail, hang or are short |
//! | `reservations` | the rule about reservations without a holder |
//! | `looks` | the machine, and the load of the cores between two looks |
//! | `hosts`, `tcp` | what the kernel reports about the connections, summed up by host |
//! | `frames` | what cores count of frames of HyperSCSI, between two looks |

mod checks;
mod document;
mod examination;
mod frames;
mod hosts;
mod keep;
mod looks;
mod network;
mod reservations;
mod service;
mod space;
mod stores;
mod tcp;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use api::event::{Finding, Severity};
use api::stats::Stats;
use api::view::{Session, Trace};
use config::Model;
use plane::Guessing;

pub(super) use checks::checks;
use frames::{FrameCounts, FrameLooks};
use hosts::{Host, Network};
use keep::{KeepLooks, Kept};
use looks::{Looks, Machine, Share};
use reservations::Stranded;
use space::{Room, Space};
use stores::Troubled;

use super::file::Stamp;
use super::held::Withheld;
use super::opened::{LogUse, OpenStore};
use super::paced::Paced;
use super::quotas::Held;
use crate::medium::Medium;
use crate::{StartError, interface};

/// What the doctor examines with, and what it saw when it last did.
pub(crate) struct Doctor {
    machine: Machine,
    looks: Mutex<Looks>,
    network: Mutex<Network>,
    frames: Mutex<FrameLooks>,
    space: Mutex<Space>,
    keep: Mutex<KeepLooks>,
    document: DocumentLooks,
    /// That there is less memory than the defaults want.
    memory: Option<String>,
    /// The start, by the clock of the day and by the clock that nobody sets.
    started: (SystemTime, Instant),
}

impl Doctor {
    /// To be called before the process gives up what it may.
    pub(crate) fn open(memory: Option<String>) -> Self {
        let began = Instant::now();
        Self {
            machine: Machine::look(),
            looks: Mutex::new(Looks::new(began)),
            network: Mutex::new(Network::open()),
            frames: Mutex::default(),
            space: Mutex::default(),
            keep: Mutex::default(),
            document: DocumentLooks::default(),
            memory,
            started: (SystemTime::now(), began),
        }
    }
}

/// Between two looks, however many want to know.
const LOOKS_PAUSE: Duration = Duration::from_millis(20);

/// What was said of the file when it was last read.
#[derive(Clone, Debug)]
struct DocumentVerdict {
    /// `None` where another text might have the same.
    stamp: Option<Stamp>,
    /// The revision that ran.
    revision: u64,
    finding: Option<Finding>,
}

/// Looks at the file: those who want to know at once share one, and a text that is known is not read again.
#[derive(Debug)]
struct DocumentLooks {
    looks: Paced<Option<Finding>>,
    last: Mutex<Option<DocumentVerdict>>,
}

impl Default for DocumentLooks {
    fn default() -> Self {
        Self {
            looks: Paced::new(LOOKS_PAUSE),
            last: Mutex::default(),
        }
    }
}

/// Who wants to know what is wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Inquirer {
    Administrator,
    /// The daemon itself, all the time. It does without what sessions say about themselves, for which cores would have
    /// to be asked, and looks rarely at what costs more on a machine with more connections.
    Watch,
}

/// A look that panicked has left the one before it.
fn locked<T>(looks: &Mutex<T>) -> MutexGuard<'_, T> {
    looks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is wrong with how a unit is served.
pub(super) enum Hindrance {
    /// It is not served.
    Held(Withheld),
    /// It is served without its log.
    LogUnused(&'static str),
    /// Only path and size would show that its store is another one.
    KnownByPath,
}

pub(super) fn hindrance(opened: &OpenStore) -> Option<Hindrance> {
    if let Some(reason) = &opened.held {
        return Some(Hindrance::Held(reason.clone()));
    }
    let log = match &opened.log {
        LogUse::None => None,
        LogUse::InUse(logged) => logged.trouble().map(Hindrance::LogUnused),
    };
    let by_path = || opened.media.iter().flatten().any(Medium::is_unmarked);
    log.or_else(|| by_path().then_some(Hindrance::KnownByPath))
}

/// Everything the rules look at.
struct Facts<'a> {
    model: &'a Model,
    /// Units with a failed flush behind them.
    failed: &'a [String],
    /// Units whose stores fail, hang or are slow.
    troubled: &'a [Troubled],
    now: Instant,
    /// Web servers that do not take events, and why.
    unsent: &'a [(String, String)],
    /// Units whose data cannot be reached, and why.
    outages: &'a [(String, String)],
    /// Units whose state another program has saved, and what was found.
    conflicts: &'a [(String, String)],
    /// Units that are reserved for initiators without a session, in the way of others.
    stranded: &'a [Stranded],
    /// Certificates in use, and when they are valid no longer.
    certificates: &'a [(String, SystemTime)],
    /// What quotas hold.
    quotas: &'a [Held],
    /// The quotas whose disks are larger together than they allow, with what that says.
    exceeded: &'a [(String, StartError)],
    /// Units that are not served, or not as they should be, and why.
    hindered: &'a [(String, Hindrance)],
    /// Units whose schedule has missed a snapshot, and why.
    missed: &'a [(String, String)],
    /// Interfaces that groups of HyperSCSI are on, with what is wrong with them now.
    interfaces: &'a [(String, interface::Problem)],
    /// What is wrong with the process that opens their sockets.
    sessions: &'a [Session],
    stats: &'a Stats,
    shares: &'a [Share],
    machine: &'a Machine,
    /// That there is less memory than the defaults want.
    memory: Option<&'a str>,
    hosts: &'a [Host],
    /// Of HyperSCSI, in the last seconds.
    frames: FrameCounts,
    room: &'a Room,
    kept: &'a Option<Kept>,
    traces: &'a [Trace],
    /// The last times that somebody seemed to guess a secret.
    guessing: &'a [Guessing],
    /// How far the clock of the day went since the start, and how much time passed.
    clock: (Duration, Duration),
}

/// All rules, the gravest first.
const RULES: &[fn(&Facts<'_>) -> Vec<Finding>] = &[
    service::failed_flushes,
    service::lost_stores,
    service::hindered_units,
    network::silent_interfaces,
    stores::store_errors,
    stores::stuck_stores,
    space::replaced_files,
    stores::short_stores,
    space::cut_discs,
    service::states_of_others,
    reservations::stranded_reservations,
    keep::full_state,
    space::scarce_space,
    space::reached_quotas,
    space::exceeded_quotas,
    space::missed_snapshots,
    service::unsent_events,
    service::guessed_secrets,
    service::old_certificates,
    service::warnings_of_the_configuration,
    network::black_holes,
    network::lossy_paths,
    network::lost_frames,
    network::corrupt_frames,
    service::busy_cores,
    service::short_buffers,
    stores::slow_stores,
    service::little_memory,
    service::full_windows,
    network::held_back,
    network::different_mtus,
    service::slow_writes,
    service::few_descriptors,
    service::limits_reached,
    service::small_socket_buffers,
    service::broken_rules_and_digests,
    service::clock_that_was_set,
    service::running_traces,
];

/// What they find.
fn examine(facts: &Facts<'_>) -> Vec<Finding> {
    RULES.iter().flat_map(|rule| rule(facts)).collect()
}

fn finding(
    severity: Severity,
    code: &str,
    subject: impl Into<String>,
    message: impl Into<String>,
    remedy: impl Into<String>,
) -> Finding {
    Finding {
        severity,
        code: code.to_owned(),
        subject: subject.into(),
        lun: None,
        message: message.into(),
        remedy: remedy.into(),
    }
}

/// What was found about a unit.
fn of_lun(
    severity: Severity,
    code: &str,
    lun: &str,
    message: impl Into<String>,
    remedy: impl Into<String>,
) -> Finding {
    Finding {
        lun: Some(lun.to_owned()),
        ..finding(severity, code, lun, message, remedy)
    }
}
