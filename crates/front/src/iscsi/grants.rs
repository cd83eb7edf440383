//! What a session sees may change while it runs: an administrator's change, on the core of the session.
//!
//! Commands on a unit that a session no longer sees get the time to end by themselves; those that
//! do not are aborted. Only then does the nexus leave the unit.

use std::time::Duration;

use ::iscsi::discovery::{TargetRecord, TextRecords};
use engine::{Engine, SessionKey};

use super::port::{SessionPort, names_of};
use super::session::{Detail, Grant};
use super::sessions::{SessionEntry, Sessions};
use super::unproved::SharedLists;
use super::wire::{Line, Wire};
use crate::identity::SessionId;
use crate::policy::VisibleTarget;
use crate::report::{ConnectionReport, SessionReport, TransportDetails};

/// How long the peer of a session that an administrator ends has to take the message about it.
const DISMISSAL_PATIENCE: Duration = Duration::from_secs(1);

impl<C: Wire> Sessions<C> {
    /// Every session that lives here.
    pub fn report(&self, engine: &Engine<C>) -> Vec<SessionReport> {
        let report = |(_, entry): (SessionKey, &SessionEntry)| {
            let SessionPort {
                session, detail, ..
            } = entry.port.iscsi()?;
            let (exp_cmd_sn, max_cmd_sn) = session.window();
            let profile = &detail.profile;
            Some(SessionReport {
                id: detail.id,
                transport: TransportDetails::Iscsi {
                    tsih: detail.tsih,
                    isid: profile.isid,
                    portal_group_tag: profile.portal_group_tag,
                    connections: self.report_connections(detail),
                    violations: detail.violations,
                    reinstatements: detail.reinstatements,
                },
                core: engine.core(),
                initiator_name: profile.initiator_name.clone(),
                peer: profile.peer.into(),
                portal: profile.portal,
                user: profile.user.clone(),
                target: profile.target,
                since: profile.since,
                luns: profile.luns.clone(),
                commands: entry.waiting_commands(),
                window: max_cmd_sn.0.wrapping_sub(exp_cmd_sn.0).wrapping_add(1),
                is_ending: entry.is_ending(),
            })
        };
        engine.sessions().filter_map(report).collect()
    }

    fn report_connections(&self, detail: &Detail) -> Vec<ConnectionReport> {
        let keys = detail.connections.iter().flatten();
        let connections = keys.filter_map(|&key| self.connections.get(key));
        let report = connections.map(|connection| ConnectionReport {
            cid: connection.cid.0,
            peer: connection.line.peer(),
            portal: connection.line.portal(),
            header_digest: connection.digests.0,
            data_digest: connection.digests.1,
        });
        report.collect()
    }

    /// Ends a session for an administrator. Its tasks end at once; its connections close when an
    /// Async Message has said so, or after a second. The receipt is kept until it is gone.
    ///
    /// Spec: RFC 7143 section 11.9.1, AsyncEvent 3.
    pub fn dismiss(
        &mut self,
        engine: &mut Engine<C>,
        session: SessionId,
        reason: &'static str,
        receipt: C::Receipt,
    ) {
        let Some(&key) = self.by_id.get(&session) else {
            return;
        };
        let deadline = engine.now() + DISMISSAL_PATIENCE;
        let Some(entry) = engine.session_mut(key) else {
            return;
        };
        self.receipts.entry(session).or_default().push(receipt);
        let Some(SessionPort {
            session: protocol,
            detail,
            ..
        }) = entry.port.iscsi_mut()
        else {
            return;
        };
        if detail.end_reason.is_some() || detail.dismissal.is_some() {
            return;
        }
        detail.dismissal = Some((reason, deadline));
        let connections = detail.open_connections();
        protocol.announce_end();
        let tasks = names_of(protocol.tasks());
        self.close_when_sent(connections);
        self.look_soon(engine, key);
        engine.close_to_commands(key);
        engine.abort_commands(key, tasks);
        engine.note_ready(key, None);
    }

    /// Gives a session what it is to see, and takes what it is not. The receipt is kept until commands
    /// on what was taken are over. A thousand sessions may be granted something at once: what this turn has no room for
    /// waits for [`Self::carry_on_grants`].
    pub fn grant(&mut self, engine: &mut Engine<C>, grant: Grant, receipt: &C::Receipt) {
        if self.grants.is_empty() && engine.may_begin_pieces() {
            self.begin_grant(engine, grant, receipt.clone());
        } else {
            self.grants.push_back((grant, receipt.clone()));
        }
    }

    /// Begins grants that wait, as many as this turn may, and one in any case. To be called once in each turn.
    pub fn carry_on_grants(&mut self, engine: &mut Engine<C>) {
        while let Some((grant, receipt)) = self.grants.pop_front() {
            self.begin_grant(engine, grant, receipt);
            if !engine.may_begin_pieces() {
                return;
            }
        }
    }

    fn begin_grant(&mut self, engine: &mut Engine<C>, grant: Grant, receipt: C::Receipt) {
        let Some(&key) = self.by_id.get(&grant.session) else {
            return;
        };
        let Some(entry) = engine.session_mut(key) else {
            return;
        };
        if entry.is_ending() {
            return;
        }
        let Some(port) = entry.port.iscsi_mut() else {
            return;
        };
        let text = text_records(&port.detail, grant.targets, &self.lists);
        port.session.set_text(text);
        if let Some(held) = &port.detail.luns_held {
            held.change(grant.luns.len());
        }
        let luns = &mut port.detail.profile.luns;
        let before = std::mem::replace(luns, grant.luns.clone());
        engine.change_view(key, (before, grant.luns), receipt);
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
