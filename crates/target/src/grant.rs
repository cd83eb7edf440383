//! What a session sees may change while it runs: the core's side of an administrator's change.
//!
//! Commands on a unit that a session no longer sees get the time to end by themselves; those that
//! do not are aborted. Only then does the nexus leave the unit.

use std::time::Duration;

use iscsi::discovery::{TargetRecord, TextRecords};
use scsi::{Change, ChangeKind, Nexus, NexusSlot, UnitAttention};

use crate::core::Core;
use crate::counters::NO_SERIES;
use crate::handle::{Grant, Receipt};
use crate::identity::{SessionId, TransportDetails};
use crate::plan::UnitIndex;
use crate::policy::{VisibleLun, VisibleTarget};
use crate::report::{ConnectionReport, SessionReport};
use crate::running::{Request, TaskKey, Then, Wait};
use crate::session::{Connection, MappedLun, SessionEntry, SessionKey};
use crate::unproved::SharedLists;
use engine::table::Key;

/// How long the peer of a session that an administrator ends has to take the message about it.
const DISMISSAL_PATIENCE: Duration = Duration::from_secs(1);

/// Names a change that takes from a nexus the right to write.
pub(crate) type NarrowingKey = Key<Receipt>;

/// Names a nexus on its way out of a unit.
pub(crate) type LeavingKey = Key<Leaving>;

/// A nexus on its way out of a unit.
#[derive(Debug)]
pub(crate) struct Leaving {
    unit: UnitIndex,
    slot: NexusSlot,
    nexus: Nexus,
    receipt: Receipt,
}

impl Core {
    /// Every session that lives here.
    pub(crate) fn report_sessions(&self) -> Vec<SessionReport> {
        let report = |(_, entry): (SessionKey, &SessionEntry)| {
            let (exp_cmd_sn, max_cmd_sn) = entry.session.window();
            let profile = &entry.profile;
            SessionReport {
                id: entry.id,
                transport: TransportDetails::Iscsi {
                    tsih: entry.tsih,
                    isid: profile.isid,
                },
                core: self.index,
                initiator_name: profile.initiator_name.clone(),
                peer: profile.peer,
                portal: profile.portal,
                user: profile.user.clone(),
                target: profile.target,
                portal_group_tag: profile.portal_group_tag,
                since: profile.since,
                luns: profile.luns.clone(),
                connections: self.report_connections(entry),
                header_digest: entry.digests.0,
                data_digest: entry.digests.1,
                commands: entry.tasks.iter().flatten().count(),
                window: max_cmd_sn.0.wrapping_sub(exp_cmd_sn.0).wrapping_add(1),
                violations: entry.violations,
                is_ending: entry.is_ending,
                reinstatements: entry.reinstatements,
            }
        };
        self.sessions.iter().map(report).collect()
    }

    fn report_connections(&self, entry: &SessionEntry) -> Vec<ConnectionReport> {
        let keys = entry.connections.iter().flatten();
        let report = |connection: &Connection| ConnectionReport {
            cid: connection.cid.0,
            peer: connection.taps.peer(),
            portal: connection.portal,
        };
        keys.filter_map(|&key| self.connections.get(key).map(report))
            .collect()
    }

    /// Ends a session for an administrator. Its tasks end at once; its connections close when an
    /// Async Message has said so, or after [`DISMISSAL_PATIENCE`].
    ///
    /// Spec: RFC 7143 section 11.9.1, AsyncEvent 3.
    pub(crate) fn dismiss(&mut self, session: SessionId, reason: &'static str, receipt: Receipt) {
        let Some(&key) = self.by_id.get(&session) else {
            return;
        };
        let deadline = self.reactor.now() + DISMISSAL_PATIENCE;
        let Some(entry) = self.sessions.get_mut(key) else {
            return;
        };
        entry.receipts.push(receipt);
        if entry.end_reason.is_some() || entry.dismissal.is_some() {
            return;
        }
        entry.dismissal = Some((reason, deadline));
        entry.is_ending = true;
        entry.session.announce_end();
        let tasks = entry.session.tasks().into_iter();
        let tasks: Vec<TaskKey> = tasks.filter_map(|task| entry.task_key(task)).collect();
        for key in entry.connections.clone().into_iter().flatten() {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.close_when_sent = true;
            }
        }
        self.abort_tasks(&tasks, Then::Nothing);
        self.mark_session_dirty(key);
    }

    /// Ends dismissed sessions whose peers do not take what is sent to them.
    pub(crate) fn end_dismissed(&mut self, now: Duration) {
        let late = |entry: &SessionEntry| entry.dismissal.filter(|(_, deadline)| now >= *deadline);
        let late: Vec<(SessionKey, &'static str)> = self
            .sessions
            .iter()
            .filter_map(|(key, entry)| Some((key, late(entry)?.0)))
            .collect();
        for (key, reason) in late {
            self.end_session(key, reason);
        }
    }

    /// Gives a session what it is to see, and takes what it is not.
    pub(crate) fn handle_grant(&mut self, grant: Grant, receipt: &Receipt) {
        let Some(&key) = self.by_id.get(&grant.session) else {
            return;
        };
        let Some(entry) = self.sessions.get_mut(key) else {
            return;
        };
        if entry.is_ending {
            return;
        }
        let text = text_records(entry, grant.targets, &self.lists);
        entry.session.set_text(text);
        let before = std::mem::replace(&mut entry.profile.luns, grant.luns.clone());
        if before == grant.luns {
            return;
        }
        let is_in = |all: &[VisibleLun], one: &VisibleLun| {
            let same = |other: &&VisibleLun| other.lun == one.lun && other.unit == one.unit;
            all.iter().find(same).copied()
        };
        let gone = before
            .iter()
            .filter(|old| is_in(&grant.luns, old).is_none());
        let gone: Vec<VisibleLun> = gone.copied().collect();
        let come = grant
            .luns
            .iter()
            .filter(|new| is_in(&before, new).is_none());
        let come: Vec<VisibleLun> = come.copied().collect();
        let luns_differ = !(gone.is_empty() && come.is_empty());
        for old in &before {
            if let Some(new) = is_in(&grant.luns, old) {
                self.keep_lun(key, (*old, new), luns_differ, receipt);
            }
        }
        for lun in gone {
            self.take_lun(key, lun, receipt);
        }
        for lun in come {
            self.give_lun(key, lun, receipt);
        }
    }

    /// A unit that stays: its initiator is told that others came or went, and whether it may write,
    /// which the mode parameter header says.
    ///
    /// Spec: SPC-4, REPORTED LUNS DATA HAS CHANGED; SBC-4, the WP bit.
    fn keep_lun(
        &mut self,
        session: SessionKey,
        (old, new): (VisibleLun, VisibleLun),
        luns_differ: bool,
        receipt: &Receipt,
    ) {
        let Some(mapped) = self.sessions[session].luns.get(new.lun) else {
            return;
        };
        let view = &mut self.units[mapped.unit].view;
        if old.read_only != new.read_only {
            view.set_read_only(mapped.nexus, new.read_only);
            view.notify(mapped.nexus, UnitAttention::ModeParametersChanged);
        }
        if luns_differ {
            view.notify(mapped.nexus, UnitAttention::ReportedLunsChanged);
        }
        if new.read_only && !old.read_only {
            self.await_narrowed(mapped, receipt);
        }
    }

    /// A nexus may no longer write. What has not reached the store is refused there
    /// ([`Core::submit`]); the change is confirmed when the store has nothing more of it, or when
    /// every core refuses access because it does not give it back.
    fn await_narrowed(&mut self, mapped: MappedLun, receipt: &Receipt) {
        let in_store = self.tasks.iter().filter(|(_, running)| {
            running.unit == mapped.unit && running.nexus == mapped.nexus && running.is_in_store()
        });
        let tasks: Vec<TaskKey> = in_store.map(|(key, _)| key).collect();
        if tasks.is_empty() {
            return;
        }
        let narrowing = self.narrowing.insert(receipt.clone());
        self.await_tasks(&tasks, Then::Narrowed { narrowing });
    }

    fn give_lun(&mut self, session: SessionKey, lun: VisibleLun, receipt: &Receipt) {
        let nexus = Nexus {
            read_only: lun.read_only,
            ..self.sessions[session].nexus()
        };
        let Some(unit) = self.units.get_mut(lun.unit) else {
            return;
        };
        let attention = Some(UnitAttention::PowerOnOrReset);
        let slot = unit.view.attach(nexus.clone(), attention);
        let mapped = MappedLun {
            unit: lun.unit,
            nexus: slot,
            series: NO_SERIES,
        };
        self.sessions[session].luns.insert(lun.lun, mapped);
        let ticket = self.open_request(Request::Administrator {
            _receipt: receipt.clone(),
        });
        let change = Change {
            from: Some(nexus),
            kind: ChangeKind::NexusAttached,
        };
        self.ask_change(lun.unit, ticket, change);
    }

    fn take_lun(&mut self, session: SessionKey, lun: VisibleLun, receipt: &Receipt) {
        let entry = &mut self.sessions[session];
        let Some(mapped) = entry.luns.remove(lun.lun) else {
            return;
        };
        let leaving = self.leaving.insert(Leaving {
            unit: mapped.unit,
            slot: mapped.nexus,
            nexus: entry.nexus(),
            receipt: receipt.clone(),
        });
        let tasks = self.tasks_of_leaving(leaving);
        self.await_tasks(&tasks, Then::Drained { leaving });
    }

    /// `then` happens when these tasks have ended by themselves, or at the deadline of an abort.
    fn await_tasks(&mut self, tasks: &[TaskKey], then: Then) {
        let deadline = self.reactor.now() + self.settings.abort_timeout;
        let wait = self.waits.insert(Wait {
            tasks_left: tasks.len() + 1,
            deadline,
            is_late: false,
            then,
        });
        self.wait_deadlines.set(wait, deadline);
        for &key in tasks {
            self.tasks[key].waiters.push(wait);
        }
        self.count_down(wait);
    }

    fn tasks_of_leaving(&self, leaving: LeavingKey) -> Vec<TaskKey> {
        let Some(leaving) = self.leaving.get(leaving) else {
            return Vec::new();
        };
        self.tasks
            .iter()
            .filter(|(_, running)| {
                running.session.is_some()
                    && running.unit == leaving.unit
                    && running.nexus == leaving.slot
            })
            .map(|(key, _)| key)
            .collect()
    }

    /// The commands of a nexus that leaves have ended, or have had their time.
    pub(crate) fn handle_drained(&mut self, leaving: LeavingKey) {
        let left = self.tasks_of_leaving(leaving);
        self.abort_tasks(&left, Then::Left { leaving });
    }

    /// None of them is left, or what is left is the unit's trouble: the nexus goes.
    pub(crate) fn handle_left(&mut self, leaving: LeavingKey) {
        let Some(Leaving {
            unit,
            slot,
            nexus,
            receipt,
        }) = self.leaving.remove(leaving)
        else {
            return;
        };
        for (_, running) in self.tasks.iter_mut() {
            if running.unit == unit && running.nexus == slot {
                // The slot may be given to another nexus.
                running.session = None;
            }
        }
        self.units[unit].view.detach(slot);
        if self.units[unit].view.slot_of(nexus.id).is_some() {
            // The session sees the unit by another number.
            return;
        }
        let ticket = self.open_request(Request::Administrator { _receipt: receipt });
        let change = Change {
            from: Some(nexus),
            kind: ChangeKind::NexusLost,
        };
        self.ask_change(unit, ticket, change);
    }
}

/// What SendTargets tells in this session.
fn text_records(
    entry: &SessionEntry,
    targets: Vec<VisibleTarget>,
    lists: &SharedLists,
) -> TextRecords {
    let mut records = targets.into_iter().map(|target| TargetRecord {
        name: target.name,
        addresses: target.addresses,
    });
    if entry.profile.target.is_none() {
        return TextRecords::for_discovery_shared(lists.share(records.collect()));
    }
    records
        .next()
        .map_or_else(|| entry.profile.text.clone(), TextRecords::for_target)
}
