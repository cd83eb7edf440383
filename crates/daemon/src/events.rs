//! The last events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use api::event::{CommandPhase, Event, Finding, Severity};
use api::request::EventQuestion;
use durable::Found;
use plane::{
    Cause, Ending, EventSink, FailedLogin, ReservationReport, SaveError, SlowCommand, Space, Who,
};
use store::IoFailure;

use super::calendar::milliseconds;
use super::effect::blame;
use super::notices::Receivers;
use super::quotas::Held;
use crate::state::Trouble;

/// How many are kept of what initiators and stores cause.
const EVENTS_MAX: usize = 4096;

/// How many are kept of what administrators do. Initiators cannot push these out, nor one administrator those of
/// another who did less.
const AUDIT_MAX: usize = 4096;

/// Kinds of events of which only administrators are the cause.
const AUDIT_KINDS: [&str; 4] = [
    "admin-change",
    "admin-read",
    "admin-refused",
    "config-applied",
];

/// Events of initiators and stores, and those of administrators, with one row of numbers. Noting one takes a moment, so
/// a core may do it.
#[derive(Debug, Default)]
pub(crate) struct Events {
    rings: Mutex<Rings>,
    receivers: OnceLock<Receivers>,
}

#[derive(Debug, Default)]
struct Rings {
    events: VecDeque<Event>,
    audit: Audit,
    last: u64,
}

/// Events of administrators, a row for each of them.
#[derive(Debug, Default)]
struct Audit {
    rows: BTreeMap<Option<String>, VecDeque<Event>>,
    count: usize,
}

impl Audit {
    /// Adds an event. When there are as many as are kept, the caller that has most loses its oldest.
    fn push(&mut self, event: Event) {
        if self.count >= AUDIT_MAX {
            self.drop_one();
        }
        let row = self.rows.entry(event.author.clone()).or_default();
        row.push_back(event);
        self.count += 1;
    }

    fn drop_one(&mut self) {
        let oldest = |row: &VecDeque<Event>| row.front().map(|event| event.number);
        let fullest = self.rows.iter_mut();
        let fullest = fullest.max_by_key(|(_, row)| (row.len(), Reverse(oldest(row))));
        let Some((author, row)) = fullest else {
            return;
        };
        self.count -= usize::from(row.pop_front().is_some());
        if row.is_empty() {
            let author = author.clone();
            self.rows.remove(&author);
        }
    }
}

/// Numbers that a run may give: more than there can be events in years.
const NUMBERS_RESERVED: u64 = 1 << 32;

/// The number that the next run begins with at least.
fn numbers_file(directory: &Path) -> PathBuf {
    directory.join("events.next")
}

impl Events {
    /// As [`Events::begin`], and beyond every number that a run with this directory has given, also
    /// when the clock was set back or the last run was killed.
    pub(crate) fn begin_after(directory: &Path, now: SystemTime) -> (Self, io::Result<()>) {
        let path = numbers_file(directory);
        let read = match durable::read(&path) {
            Ok(Found::Whole(text)) => text.trim().parse::<u64>().ok(),
            Ok(Found::Absent | Found::Damaged(_)) | Err(_) => None,
        };
        let events = Self::begin(now);
        let first = {
            let mut ring = events.lock();
            ring.last = ring.last.max(read.unwrap_or(0));
            ring.last
        };
        let next = first.saturating_add(NUMBERS_RESERVED);
        let kept = durable::write(&path, &format!("{next}\n"));
        (events, kept)
    }

    /// The run ends here: the next one need not leave out what this one might have given.
    pub(crate) fn end(&self, directory: &Path) {
        let last = self.lock().last;
        if let Err(error) = durable::write(&numbers_file(directory), &format!("{last}\n")) {
            tracing::warn!(%error, "numbers of events are left out at the next start");
        }
    }

    /// Numbers go on from the present in milliseconds, so that none is given again after a restart:
    /// who asks for those after a number misses nothing.
    pub(crate) fn begin(now: SystemTime) -> Self {
        let rings = Rings {
            last: milliseconds(now),
            ..Rings::default()
        };
        Self {
            rings: Mutex::new(rings),
            receivers: OnceLock::new(),
        }
    }

    /// A thread that panicked while it held the lock left whole rings behind.
    fn lock(&self) -> MutexGuard<'_, Rings> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands all that comes from now on to these, too. The first who are given stay.
    pub(crate) fn send_to(&self, receivers: Receivers) {
        drop(self.receivers.set(receivers));
    }

    /// Those that do not take what is sent, and why.
    pub(super) fn unsent(&self) -> Vec<(String, String)> {
        self.receivers
            .get()
            .map_or_else(Vec::new, Receivers::troubles)
    }

    /// Adds an event, with the number and the time it gets here.
    pub(crate) fn note(&self, mut event: Event) {
        let mut rings = self.lock();
        rings.last += 1;
        event.number = rings.last;
        event.at_ms = milliseconds(SystemTime::now());
        if let Some(receivers) = self.receivers.get() {
            receivers.offer(&event);
        }
        if AUDIT_KINDS.contains(&event.kind.as_str()) {
            rings.audit.push(event);
            return;
        }
        if rings.events.len() >= EVENTS_MAX {
            rings.events.pop_front();
        }
        rings.events.push_back(event);
    }

    /// Those that are asked for, the oldest first.
    pub(crate) fn find(&self, question: &EventQuestion) -> Vec<Event> {
        let rings = self.lock();
        let all = rings
            .events
            .iter()
            .chain(rings.audit.rows.values().flatten());
        let wanted = |event: &&Event| Some(event.number) > question.after && question.wants(event);
        let mut found: Vec<&Event> = all.filter(wanted).collect();
        found.sort_unstable_by_key(|event| event.number);
        let before = match question.after {
            Some(_) => 0,
            None => found.len().saturating_sub(question.most),
        };
        let found = found.into_iter().skip(before);
        found.take(question.most).cloned().collect()
    }
}

/// An event without number and time.
fn event(severity: Severity, kind: &str, message: String) -> Event {
    Event {
        number: 0,
        at_ms: 0,
        severity,
        kind: kind.to_owned(),
        message,
        lun: None,
        target: None,
        initiator: None,
        user: None,
        author: None,
        command: None,
    }
}

fn of_session(kind: &str, message: String, who: Who<'_>) -> Event {
    Event {
        initiator: Some(who.initiator.to_owned()),
        target: who.target.map(str::to_owned),
        user: who.user.map(str::to_owned),
        ..event(Severity::Info, kind, message)
    }
}

/// What is said of a session: who, to what, as whom, and from where.
fn about(who: &Who<'_>, verb: &str) -> String {
    let target = who.target.unwrap_or("discovery");
    let user = who
        .user
        .map_or_else(String::new, |user| format!(" as {user}"));
    format!("{} {verb} {target}{user} from {}", who.initiator, who.peer)
}

fn of_join(who: Who<'_>, cid: u16, replaces: bool) -> Event {
    let instead = if replaces {
        ", in place of an older one"
    } else {
        ""
    };
    let message = format!(
        "{}, CID {cid} of session {}{instead}",
        about(&who, "added a connection to"),
        who.session
    );
    of_session("connection-joined", message, who)
}

/// What is said of a unit names it in the message, too: most readers show that alone.
fn of_unit(severity: Severity, kind: &str, message: &str, unit: &str) -> Event {
    let message = format!("lun {unit}: {message}");
    Event {
        lun: Some(unit.to_owned()),
        ..event(severity, kind, message)
    }
}

fn of_login(failed: &FailedLogin<'_>) -> Event {
    let FailedLogin { peer, reason, .. } = failed;
    let initiator = failed.initiator.unwrap_or("an initiator without a name");
    let target = failed
        .target
        .map_or_else(String::new, |target| format!(" to {target}"));
    let cause = failed.cause.as_str();
    let mut message =
        format!("{initiator} could not log in{target} from {peer}: {reason} ({cause})");
    if failed.unreported > 0 {
        message += &format!("; {} more failed and are not listed", failed.unreported);
    }
    Event {
        initiator: failed.initiator.map(str::to_owned),
        target: failed.target.map(str::to_owned),
        ..event(Severity::Warning, "login-failed", message)
    }
}

/// A quota has come to another mark.
pub(super) fn of_quota(held: &Held) -> Event {
    let (severity, kind) = match held.space {
        Space::Free => (Severity::Info, "quota-free"),
        Space::Low => (Severity::Warning, "quota-soft"),
        Space::Full => (Severity::Error, "quota-full"),
    };
    event(severity, kind, held.in_words())
}

/// What was found wrong with the state.
pub(super) fn of_trouble(trouble: &Trouble) -> Event {
    let Trouble {
        severity,
        code,
        subject,
        is_of_unit,
        message,
        remedy: _,
    } = trouble;
    if *is_of_unit {
        return of_unit(*severity, code, message, subject);
    }
    let message = match subject.is_empty() {
        true => message.clone(),
        false => format!("{subject}: {message}"),
    };
    event(*severity, code, message)
}

/// A unit that has lost blocks has lost data.
fn of_size(unit: &str, before: u64, blocks: u64) -> Event {
    if blocks < before {
        let message = format!(
            "its store has shrunk from {before} to {blocks} blocks: what was behind them is lost"
        );
        return of_unit(Severity::Error, "lun-resized", &message, unit);
    }
    let message = format!("it has {blocks} blocks now, and had {before}");
    of_unit(Severity::Info, "lun-resized", &message, unit)
}

fn of_medium(unit: &str, is_in: bool) -> Event {
    let (kind, message) = if is_in {
        ("medium-loaded", "its medium is in")
    } else {
        ("medium-ejected", "its medium is out")
    };
    of_unit(Severity::Info, kind, message, unit)
}

/// A command failed because of its store.
fn of_failure(unit: &str, cause: Cause, failure: &IoFailure, unreported: u64) -> Event {
    let mut message = format!("its store failed a command: {failure} ({cause})");
    if unreported > 0 {
        message += &format!("; {unreported} more failed and are not listed");
    }
    of_unit(Severity::Error, "store-error", &message, unit)
}

/// A command was ended by a reservation of others, which is ordinary in clusters.
fn of_conflict(
    (unit, initiator): (&str, &str),
    reserved: &ReservationReport,
    unreported: u64,
) -> Event {
    let blame = blame(reserved);
    let mut message = format!("a command of {initiator} met a reservation conflict: {blame}");
    if unreported > 0 {
        message += &format!("; {unreported} more did and are not listed");
    }
    Event {
        initiator: Some(initiator.to_owned()),
        ..of_unit(Severity::Info, "reservation-conflict", &message, unit)
    }
}

/// A finding begins or is over.
pub(super) fn of_finding(finding: &Finding, begins: bool) -> Event {
    let Finding { code, subject, .. } = finding;
    let of = if subject.is_empty() { "" } else { " of " };
    let about = format!("finding {code}{of}{subject}");
    let found = if begins {
        let message = format!("{about}: {}; {}", finding.message, finding.remedy);
        event(finding.severity, "finding-began", message)
    } else {
        event(Severity::Info, "finding-ended", format!("{about} is over"))
    };
    Event {
        lun: finding.lun.clone(),
        ..found
    }
}

/// The life of a command, in one line and in parts.
fn of_reach(unit: &str, core: usize, is_reached: bool) -> Event {
    if is_reached {
        let message = format!("core {core} reaches who has its data again");
        return of_unit(Severity::Info, "store-reached", &message, unit);
    }
    let message = format!("core {core} cannot reach who has its data; commands end with NOT READY");
    of_unit(Severity::Error, "store-lost", &message, unit)
}

fn of_command(command: &SlowCommand<'_>) -> Event {
    let kind = match command.ending {
        Ending::Answered(_) | Ending::Aborted => "slow-command",
        Ending::Pending => "command-hangs",
    };
    let (unit, initiator) = (command.unit, command.initiator);
    let user = command
        .user
        .map_or_else(String::new, |user| format!(" as {user}"));
    let target = command
        .target
        .map_or_else(String::new, |target| format!(" through {target}"));
    let message = format!("{command}, from {initiator}{user}{target}");
    Event {
        target: command.target.map(str::to_owned),
        user: command.user.map(str::to_owned),
        initiator: Some(initiator.to_owned()),
        command: Some(command_in_parts(command)),
        ..of_unit(Severity::Warning, kind, &message, unit)
    }
}

fn command_in_parts(command: &SlowCommand<'_>) -> api::event::SlowCommand {
    let (lba, blocks) = command.description.extent.unzip();
    let phases = command.phases.iter().map(|one| CommandPhase {
        phase: one.phase.as_str().to_owned(),
        from_us: micros(one.from),
        us: micros(one.took),
    });
    api::event::SlowCommand {
        session: command.session.0,
        task_tag: command.task_tag,
        name: command.description.name.to_owned(),
        lba,
        blocks,
        bytes: command.bytes,
        took_us: micros(command.took),
        outcome: command.ending.name().map(str::to_owned),
        phases: phases.collect(),
        core_us: micros(command.on_core()),
        untold: command.unreported,
    }
}

fn of_send(who: Who<'_>, took: Duration, bytes: usize, unreported: u64) -> Event {
    let mut message = format!(
        "{} and took {:.3} s to take {bytes} bytes of answers, session {}",
        about(&who, "is logged in to"),
        took.as_secs_f64(),
        who.session
    );
    if unreported > 0 {
        message += &format!("; {unreported} more were slow and are not listed");
    }
    Event {
        severity: Severity::Warning,
        ..of_session("slow-send", message, who)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl EventSink for Events {
    fn turned(&self) {
        crate::service::alive();
    }

    fn emit(&self, emitted: &plane::Event<'_>) {
        self.note(match *emitted {
            // Anybody can begin thousands of these in a second: they are counted.
            plane::Event::SessionBegan { who } | plane::Event::SessionEnded { who, .. }
                if who.target.is_none() =>
            {
                return;
            }
            plane::Event::SessionBegan { who } => {
                let message = format!("{}, session {}", about(&who, "logged in to"), who.session);
                of_session("session-began", message, who)
            }
            plane::Event::ConnectionJoined { who, cid, replaces } => of_join(who, cid, replaces),
            plane::Event::SessionEnded { who, reason } => {
                let about = about(&who, "was logged out of");
                let message = format!("{about}, session {}: {reason}", who.session);
                of_session("session-ended", message, who)
            }
            plane::Event::LoginFailed(failed) => of_login(failed),
            plane::Event::UnitResized {
                unit,
                before,
                blocks,
            } => of_size(unit, before, blocks),
            plane::Event::MediumMoved { unit, is_in } => of_medium(unit, is_in),
            plane::Event::StoreStuck { unit } => {
                let message =
                    "its store does not give a request back; what that may write is refused until then";
                of_unit(Severity::Error, "store-stuck", message, unit)
            }
            plane::Event::StoreFreed { unit, core } => {
                let message = format!("its store has given back every request that core {core} waited for");
                of_unit(Severity::Info, "store-freed", &message, unit)
            }
            plane::Event::StoreFailed {
                unit,
                cause,
                failure,
                unreported,
            } => of_failure(unit, cause, failure, unreported),
            plane::Event::ReservationConflict {
                unit,
                initiator,
                reserved,
                unreported,
            } => of_conflict((unit, initiator), reserved, unreported),
            plane::Event::StoreReach {
                unit,
                core,
                is_reached,
            } => of_reach(unit, core, is_reached),
            plane::Event::SlowCommand(command) => of_command(command),
            plane::Event::SlowSend {
                who,
                took,
                bytes,
                unreported,
            } => of_send(who, took, bytes, unreported),
            plane::Event::CoreStalled { core, seconds } => {
                let message =
                    format!("core {core} has been stuck for {seconds} s; its sessions wait");
                event(Severity::Error, "core-stalled", message)
            }
            plane::Event::StateNotKept { unit, error } => {
                let (code, message) = of_save(error);
                of_unit(Severity::Error, code, &message, unit)
            }
        });
    }
}

/// Code and message of a state that was not saved.
fn of_save(error: &SaveError) -> (&'static str, String) {
    match error {
        SaveError::Conflict { .. } => ("state-conflict", error.to_string()),
        SaveError::Failed(_) | SaveError::Uncertain(_) => {
            let message = "its reservations or mode pages could not be kept; see the log";
            ("state-not-kept", message.to_owned())
        }
    }
}

#[cfg(test)]
mod said;

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn the_last_events_are_kept_and_numbered() {
        let events = Events::default();
        let event = event(Severity::Info, "test", String::new());
        for _ in 0..EVENTS_MAX + 2 {
            events.note(event.clone());
        }
        let all = events.find(&EventQuestion::after(0, usize::MAX));
        assert_eq!((all.len(), all[0].number), (EVENTS_MAX, 3));
        assert!(all[0].at_ms > 0);
        assert_eq!(events.find(&EventQuestion::after(4096, 1))[0].number, 4097);
    }

    #[test]
    fn what_initiators_do_pushes_no_audit_out() {
        let events = Events::default();
        events.note(event(Severity::Info, "admin-change", String::new()));
        for _ in 0..EVENTS_MAX + 2 {
            events.note(event(Severity::Info, "session-began", String::new()));
        }
        events.note(event(Severity::Info, "admin-refused", String::new()));
        let all = events.find(&EventQuestion::after(0, usize::MAX));
        assert_eq!(all.len(), EVENTS_MAX + 2);
        let kinds = |event: &Event| event.kind.starts_with("admin-");
        assert!(all.first().is_some_and(kinds) && all.last().is_some_and(kinds));
        assert!(all.is_sorted_by_key(|event| event.number));
    }

    #[test]
    fn who_does_much_pushes_nothing_out_of_who_did_less() {
        let events = Events::default();
        let note = |author: &str| {
            events.note(Event {
                author: Some(author.to_owned()),
                ..event(Severity::Info, "admin-change", String::new())
            });
        };
        note("root");
        (0..2 * AUDIT_MAX).for_each(|_| note("loud"));
        (0..9).for_each(|_| note("calm"));
        let all = events.find(&EventQuestion::after(0, usize::MAX));
        let count = |author: &str| {
            let has_author = |event: &&Event| event.author.as_deref() == Some(author);
            all.iter().filter(has_author).count()
        };
        assert_eq!(all.len(), AUDIT_MAX);
        assert_eq!((count("root"), count("calm")), (1, 9));
        assert!(all.is_sorted_by_key(|event| event.number));
    }

    #[test]
    fn what_is_said_of_a_unit_names_it_and_is_as_bad_as_it_is() {
        let (unit, failure, cause) = ("web", &IoFailure::NoSpace { offset: 512 }, Cause::NoSpace);
        let failed = |unreported| plane::Event::StoreFailed {
            unit,
            cause,
            failure,
            unreported,
        };
        let reach = |is_reached| plane::Event::StoreReach {
            unit,
            core: 3,
            is_reached,
        };
        let resized = |before, blocks| plane::Event::UnitResized {
            unit,
            before,
            blocks,
        };
        let moved = |is_in| plane::Event::MediumMoved { unit, is_in };
        let stuck = plane::Event::StoreStuck { unit };
        let freed = plane::Event::StoreFreed { unit, core: 3 };
        let error = SaveError::Failed(io::ErrorKind::StorageFull.into());
        let unkept = plane::Event::StateNotKept {
            unit,
            error: &error,
        };
        let why = format!("its store failed a command: {failure} ({cause})");
        let more = format!("{why}; 1 more failed and are not listed");
        let (bad, good) = (Severity::Error, Severity::Info);
        #[rustfmt::skip]
        let said = [
            (resized(4, 8), good, "lun-resized", "it has 8 blocks now, and had 4"),
            (resized(4, 4), good, "lun-resized", "it has 4 blocks now, and had 4"),
            (resized(4, 3), bad, "lun-resized", "its store has shrunk from 4 to 3 blocks: what was behind them is lost"),
            (moved(true), good, "medium-loaded", "its medium is in"),
            (moved(false), good, "medium-ejected", "its medium is out"),
            (stuck, bad, "store-stuck", "its store does not give a request back; what that may write is refused until then"),
            (freed, good, "store-freed", "its store has given back every request that core 3 waited for"),
            (failed(0), bad, "store-error", &why),
            (failed(1), bad, "store-error", &more),
            (reach(false), bad, "store-lost", "core 3 cannot reach who has its data; commands end with NOT READY"),
            (reach(true), good, "store-reached", "core 3 reaches who has its data again"),
            (unkept, bad, "state-not-kept", "its reservations or mode pages could not be kept; see the log"),
        ];
        for (emitted, severity, kind, message) in said {
            let events = Events::default();
            events.emit(&emitted);
            let said = events.find(&EventQuestion::after(0, 2)).swap_remove(0);
            assert_eq!((said.severity, said.kind.as_str()), (severity, kind));
            assert_eq!(said.message, format!("lun web: {message}"));
            assert_eq!(said.lun.as_deref(), Some(unit));
        }
    }

    #[test]
    fn a_quota_is_said_to_be_as_full_as_it_is() {
        let (good, bad) = (Severity::Info, Severity::Error);
        for (space, severity, kind, rest) in [
            (Space::Free, good, "quota-free", ""),
            (Space::Low, Severity::Warning, "quota-soft", ""),
            (
                Space::Full,
                bad,
                "quota-full",
                "; writes to blocks without space fail",
            ),
        ] {
            let said = of_quota(&Held {
                quota: "owner bob".to_owned(),
                bytes: 7,
                most_bytes: 8,
                space,
            });
            assert_eq!((said.severity, said.kind.as_str()), (severity, kind));
            let message = format!("the disks of owner bob take 7 bytes of 8{rest}");
            assert_eq!(said.message, message);
        }
    }

    #[test]
    fn without_a_number_the_newest_are_found() {
        let events = Events::default();
        for severity in [Severity::Error, Severity::Info, Severity::Warning] {
            events.note(event(severity, "test", String::new()));
        }
        for (after, most, severity, numbers) in [
            (None, 2, Severity::Info, vec![2, 3]),
            (None, 9, Severity::Warning, vec![1, 3]),
            (None, 1, Severity::Error, vec![1]),
            (Some(0), 1, Severity::Info, vec![1]),
            (Some(1), 9, Severity::Warning, vec![3]),
            (None, 0, Severity::Info, vec![]),
        ] {
            let found = events.find(&EventQuestion {
                after,
                most,
                severity,
                ..EventQuestion::default()
            });
            let found: Vec<_> = found.iter().map(|event| event.number).collect();
            assert_eq!(found, numbers, "{after:?} {most} {severity:?}");
        }
    }

    fn who(user: Option<&'static str>) -> Who<'static> {
        Who {
            session: plane::SessionId(7),
            initiator: "iqn.2026-11.acme:h1",
            peer: plane::Station::Inet("192.0.2.1:5000".parse().unwrap()),
            target: Some("iqn.2026-11.acme:disks"),
            user,
        }
    }

    #[test]
    fn events_of_sessions_are_sentences_with_initiator_target_user_and_cause() {
        let events = Events::default();
        let who = who(Some("alice"));
        events.emit(&plane::Event::SessionBegan { who });
        let reason = "the initiator broke the protocol";
        events.emit(&plane::Event::SessionEnded { who, reason });
        events.emit(&plane::Event::SessionBegan {
            who: self::who(None),
        });
        let found = events.find(&EventQuestion::after(0, 9));
        let messages: Vec<_> = found.iter().map(|event| event.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "iqn.2026-11.acme:h1 logged in to iqn.2026-11.acme:disks as alice from 192.0.2.1:5000, session 7",
                "iqn.2026-11.acme:h1 was logged out of iqn.2026-11.acme:disks as alice from 192.0.2.1:5000, session 7: \
                 the initiator broke the protocol",
                "iqn.2026-11.acme:h1 logged in to iqn.2026-11.acme:disks from 192.0.2.1:5000, session 7",
            ]
        );
        assert_eq!(found[0].user.as_deref(), Some("alice"));
        assert_eq!(found[2].user, None);
    }

    #[test]
    fn events_are_found_by_what_they_are_about() {
        let events = Events::default();
        events.emit(&plane::Event::SessionBegan {
            who: who(Some("alice")),
        });
        events.emit(&plane::Event::StoreStuck { unit: "web" });
        events.note(Event {
            author: Some("alice".to_owned()),
            ..event(Severity::Info, "admin-change", String::new())
        });
        let any = || EventQuestion::after(0, 9);
        let some = |text: &str| Some(text.to_owned());
        let with = |change: fn(&mut EventQuestion, Option<String>), text| {
            let mut question = any();
            change(&mut question, some(text));
            question
        };
        let cases = [
            (
                with(|one, kind| one.kinds = Vec::from_iter(kind), "store-stuck"),
                vec![2],
            ),
            (with(|one, lun| one.lun = lun, "web"), vec![2]),
            (with(|one, lun| one.lun = lun, "we"), vec![]),
            (
                with(|one, name| one.initiator = name, "iqn.2026-11.acme:h1"),
                vec![1],
            ),
            (
                with(|one, name| one.target = name, "iqn.2026-11.acme:disks"),
                vec![1],
            ),
            (with(|one, user| one.user = user, "alice"), vec![1, 3]),
            (with(|one, _| one.since_ms = Some(u64::MAX), ""), vec![]),
            (
                with(|one, _| (one.since_ms, one.most) = (Some(1), 2), ""),
                vec![1, 2],
            ),
        ];
        for (question, numbers) in cases {
            let found = events.find(&question);
            let found: Vec<_> = found.iter().map(|event| event.number).collect();
            assert_eq!(found, numbers, "{question:?}");
        }
    }

    #[test]
    fn numbers_rise_when_the_clock_is_set_back() {
        let scratch = crate::scratch::Scratch::new();
        let since = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let mut last = 0;
        for (days_back, is_killed) in [(0, false), (1, true), (2, false), (3, false)] {
            let now = since - Duration::from_secs(days_back * 86_400);
            let (events, kept) = Events::begin_after(scratch.path(), now);
            kept.unwrap();
            for _ in 0..3 {
                events.note(event(Severity::Info, "test", String::new()));
            }
            let found = events.find(&EventQuestion::after(0, usize::MAX));
            assert!(found[0].number > last, "{days_back} days back");
            last = found[2].number;
            if !is_killed {
                events.end(scratch.path());
            }
        }
    }

    #[test]
    fn numbers_rise_over_a_restart() {
        let since = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let (first, second) = (
            Events::begin(since),
            Events::begin(since + Duration::from_secs(1)),
        );
        let number = |events: &Events| {
            events.note(event(Severity::Info, "test", String::new()));
            events.find(&EventQuestion::after(0, 1))[0].number
        };
        assert!(number(&second) > number(&first));
    }
}
