//! What a session sees may change while it runs: the core's side of an administrator's change.
//!
//! Commands on a unit that a session no longer sees get the time to end by themselves; those that
//! do not are aborted. Only then does the nexus leave the unit.

use std::time::Duration;

use engine::SessionKey;
use iscsi::discovery::{TargetRecord, TextRecords};

use crate::core::Core;
use crate::handle::{Grant, Receipt};
use crate::report::{ConnectionReport, SessionReport};
use crate::session::{Connection, Detail, SessionEntry};
use engine::VisibleLun;
use front::VisibleTarget;
use front::iscsi::SharedLists;
use front::{SessionId, TransportDetails};

/// How long the peer of a session that an administrator ends has to take the message about it.
const DISMISSAL_PATIENCE: Duration = Duration::from_secs(1);

impl Core {
    /// Every session that lives here.
    pub(crate) fn report_sessions(&self) -> Vec<SessionReport> {
        let report = |(_, entry): (SessionKey, &SessionEntry)| {
            let (exp_cmd_sn, max_cmd_sn) = entry.port.session.window();
            let detail = &entry.port.detail;
            let profile = &detail.profile;
            SessionReport {
                id: detail.id,
                transport: TransportDetails::Iscsi {
                    tsih: detail.tsih,
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
                connections: self.report_connections(detail),
                header_digest: detail.digests.0,
                data_digest: detail.digests.1,
                commands: entry.waiting_commands(),
                window: max_cmd_sn.0.wrapping_sub(exp_cmd_sn.0).wrapping_add(1),
                violations: detail.violations,
                is_ending: entry.is_ending(),
                reinstatements: detail.reinstatements,
            }
        };
        self.engine.sessions().map(report).collect()
    }

    fn report_connections(&self, detail: &Detail) -> Vec<ConnectionReport> {
        let keys = detail.connections.iter().flatten();
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
        let deadline = self.now() + DISMISSAL_PATIENCE;
        let Some(entry) = self.engine.session_mut(key) else {
            return;
        };
        let detail = &mut entry.port.detail;
        detail.receipts.push(receipt);
        if detail.end_reason.is_some() || detail.dismissal.is_some() {
            return;
        }
        detail.dismissal = Some((reason, deadline));
        let connections = detail.open_connections();
        entry.port.session.announce_end();
        let tasks = entry.port.session.tasks();
        self.close_when_sent(connections);
        self.engine.close_to_commands(key);
        self.engine.abort_commands(key, tasks);
        self.engine.note_ready(key, None);
    }

    /// Ends dismissed sessions whose peers do not take what is sent to them.
    pub(crate) fn end_dismissed(&mut self, now: Duration) {
        let late = |entry: &SessionEntry| {
            let dismissal = entry.port.detail.dismissal;
            dismissal.filter(|(_, deadline)| now >= *deadline)
        };
        let sessions = self.engine.sessions();
        let late: Vec<(SessionKey, &'static str)> = sessions
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
        let Some(entry) = self.engine.session_mut(key) else {
            return;
        };
        if entry.is_ending() {
            return;
        }
        let text = text_records(&entry.port.detail, grant.targets, &self.lists);
        entry.port.session.set_text(text);
        let luns = &mut entry.port.detail.profile.luns;
        let before = std::mem::replace(luns, grant.luns.clone());
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
            let Some(new) = is_in(&grant.luns, old) else {
                continue;
            };
            // A unit that stays tells that others came or went, and whether it may be written to.
            if luns_differ {
                self.engine.notify_luns_changed(key, new.lun);
            }
            if old.read_only != new.read_only {
                let receipt = receipt.clone();
                self.engine
                    .set_read_only(key, new.lun, new.read_only, receipt);
            }
        }
        for lun in gone {
            self.engine.take_lun(key, lun.lun, receipt.clone());
        }
        for lun in come {
            self.engine.give_lun(key, lun, receipt.clone());
        }
    }
}

/// What SendTargets tells in this session.
fn text_records(detail: &Detail, targets: Vec<VisibleTarget>, lists: &SharedLists) -> TextRecords {
    let mut records = targets.into_iter().map(|target| TargetRecord {
        name: target.name,
        addresses: target.addresses,
    });
    if detail.profile.target.is_none() {
        return TextRecords::for_discovery_shared(lists.share(records.collect()));
    }
    records
        .next()
        .map_or_else(|| detail.profile.text.clone(), TextRecords::for_target)
}
