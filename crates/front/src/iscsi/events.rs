//! What happens in a session, and what of it has come to an end.

use ::iscsi::pdu::{LogoutResponseCode, TaskManagementFunction, TaskManagementResponse};
use ::iscsi::target::{Event, LogoutEvent, ManagementEvent, Violation};
use engine::{Engine, Report, SessionKey, UnitIndex};
use marks::sometimes;

use super::front::Front;
use super::port::{SessionPort, management_of, names_of, outcome_of};
use super::session::{ConnectionKey, Detail};
use super::sessions::Sessions;
use super::wire::{FRONT_CORE, FrontLetter, Notice, Wire};
use crate::others::Others;
use crate::port::{Farewell, Port};

/// How many violations of one session are reported.
const VIOLATIONS_TOLD_MAX: u32 = 10;

/// What is not for the sessions to deal with.
#[derive(Debug)]
pub enum Beyond {
    /// Something has reset a target cold: all cores are to be notified.
    TargetReset(engine::TargetIndex),
    /// The last flush of a unit is over.
    Flushed {
        /// Which.
        unit: UnitIndex,
        /// Why data may be lost, if so.
        failure: Option<engine::FlushFailure>,
    },
    /// What an administrator wanted of a medium is done, or not.
    MediumMoved {
        /// Of which unit.
        unit: UnitIndex,
        /// Why not.
        outcome: Result<(), engine::MediumFailure>,
    },
    /// As [`Report::StateChanged`].
    StateChanged {
        /// Of which unit.
        unit: UnitIndex,
    },
    /// A session of iSCSI is gone, with these tasks left in stores.
    SessionOver {
        /// It.
        session: Box<Detail>,
        /// What is left.
        left: Vec<engine::TaskKey>,
    },
}

impl<C: Wire> Sessions<C> {
    /// Takes everything that happened in a session.
    pub fn handle_events(&mut self, engine: &mut Engine<C>, key: SessionKey) {
        while let Some(entry) = engine.session_mut(key)
            && let Some(port) = entry.port.iscsi_mut()
            && let Some(event) = port.session.poll_event()
        {
            match event {
                Event::Command(id, command) => {
                    engine.handle_command(key, id.into(), command);
                }
                Event::DataOut(id, data) => engine.handle_data_out(key, id.into(), data),
                Event::DataFault(id, fault) => {
                    engine.handle_data_fault(key, id.into(), outcome_of(fault));
                }
                Event::TaskManagement(event) => handle_management(engine, key, &event),
                Event::Logout(event) => handle_logout(engine, key, event),
                Event::PeerSilent { connection } => {
                    sometimes!("an initiator is silent");
                    self.lose_connection_of(engine, key, connection, "no answer to a ping");
                }
                Event::Broken { connection } => {
                    let reason = "the initiator broke the protocol";
                    self.lose_connection_of(engine, key, connection, reason);
                }
                Event::Violation { violation, .. } => note_violation(engine, key, &violation),
            }
        }
    }

    fn lose_connection_of(
        &mut self,
        engine: &mut Engine<C>,
        key: SessionKey,
        index: usize,
        reason: &'static str,
    ) {
        let port = engine.session(key).and_then(|entry| entry.port.iscsi());
        if let Some(connection) = port.and_then(|port| port.detail.connection(index)) {
            self.lose_connection(engine, connection, reason);
        }
    }

    /// [`Self::settle`] would find nothing.
    #[inline]
    pub fn is_settled(&self, engine: &Engine<C>) -> bool {
        let has_actions = |front: &Front<C::Line>| front.has_actions();
        engine.is_settled() && !self.front.as_ref().is_some_and(has_actions)
    }

    /// Carries on what engine and front let go on, until there is nothing. Gives what is not for the
    /// sessions; to be called until it gives `None`. What is for sessions of other transports goes to `others`.
    pub fn settle(
        &mut self,
        engine: &mut Engine<C>,
        others: &mut impl Others<C>,
    ) -> Option<Beyond> {
        loop {
            engine.start_waiting();
            if let Some(report) = engine.poll_report() {
                if let Some(beyond) = self.handle_report(engine, report, others) {
                    return Some(beyond);
                }
            } else if let Some(session) = engine.poll_eventful() {
                if is_own(engine, session) {
                    self.handle_events(engine, session);
                } else {
                    others.handle_events(engine, session);
                }
            } else if !self.carry_front(engine) {
                return None;
            }
        }
    }

    fn handle_report(
        &mut self,
        engine: &mut Engine<C>,
        report: Report<Port>,
        others: &mut impl Others<C>,
    ) -> Option<Beyond> {
        match report {
            Report::Farewell {
                session,
                farewell,
                is_complete,
            } => {
                let Farewell::Iscsi(logout) = farewell;
                self.answer_logout(engine, session, logout, is_complete);
                None
            }
            Report::SessionOver { session, left, .. } => {
                let port = match session.port {
                    Port::Iscsi(port) => port,
                    other @ (Port::Nbd(_) | Port::Hyperscsi(_)) => {
                        others.handle_over(engine, other);
                        return None;
                    }
                };
                let session = Box::new(port.detail);
                self.forget_session(engine, &session);
                Some(Beyond::SessionOver { session, left })
            }
            Report::TargetReset(target) => Some(Beyond::TargetReset(target)),
            Report::Flushed { unit, failure } => Some(Beyond::Flushed { unit, failure }),
            Report::MediumMoved { unit, outcome } => Some(Beyond::MediumMoved { unit, outcome }),
            Report::StateChanged { unit } => Some(Beyond::StateChanged { unit }),
        }
    }

    fn answer_logout(
        &mut self,
        engine: &mut Engine<C>,
        key: SessionKey,
        event: LogoutEvent,
        is_complete: bool,
    ) {
        let Some(entry) = engine.session_mut(key) else {
            return;
        };
        let code = if is_complete {
            LogoutResponseCode::Success
        } else {
            sometimes!("a logout leaves a request behind");
            LogoutResponseCode::CleanupFailed
        };
        let Some(SessionPort {
            session, detail, ..
        }) = entry.port.iscsi_mut()
        else {
            return;
        };
        session.respond_logout(event.id, code);
        // After the answer is sent, the connections that it concerns are closed.
        let answered = detail.connection(event.id.connection);
        let closing: Vec<ConnectionKey> = match event.closing {
            Some(index) => detail.connection(index).into_iter().collect(),
            None => detail.open_connections(),
        };
        for key in closing {
            if Some(key) == answered {
                self.close_when_sent(vec![key]);
            } else {
                sometimes!("a logout closes another connection of its session");
                self.close_connection(engine, key);
            }
        }
        engine.note_ready(key, Some(event.id.connection));
    }

    /// A session and its tasks are gone: it leaves the directory.
    fn forget_session(&mut self, engine: &mut Engine<C>, detail: &Detail) {
        self.by_id.remove(&detail.id);
        self.by_tsih.remove(&detail.tsih);
        drop(self.receipts.remove(&detail.id));
        let tsih = detail.tsih;
        let letter = FrontLetter::SessionEnded { tsih };
        engine.carrier.post_letter(FRONT_CORE, letter);
    }
}

/// Whether a session is one of iSCSI.
pub(super) fn is_own<C: Wire>(engine: &Engine<C>, key: SessionKey) -> bool {
    let entry = engine.session(key);
    entry.is_none_or(|entry| entry.port.iscsi().is_some())
}

/// A task management request.
fn handle_management<C: Wire>(engine: &mut Engine<C>, key: SessionKey, event: &ManagementEvent) {
    let Some((entry, wire)) = engine.session_and_carrier(key) else {
        return;
    };
    let Some(SessionPort {
        session, detail, ..
    }) = entry.port.iscsi_mut()
    else {
        return;
    };
    wire.report(Notice::TaskManagement {
        session: detail,
        function: event.function,
        lun: event.lun,
    });
    let target = detail.profile.target;
    let is_cold = event.function == TaskManagementFunction::TargetColdReset;
    let is_allowed = !is_cold || target.is_some_and(|one| wire.takes_cold_reset(one));
    let refusal = match management_of(session, event, target) {
        Some(request) if is_allowed => {
            engine.handle_management(key, event.id.into(), request);
            return;
        }
        Some(_) => TaskManagementResponse::AuthorizationFailed,
        None => TaskManagementResponse::NotSupported,
    };
    session.respond_management(event.id, refusal);
    engine.note_ready(key, Some(event.id.connection));
}

/// A logout request: the tasks it concerns end first.
fn handle_logout<C: Wire>(engine: &mut Engine<C>, key: SessionKey, event: LogoutEvent) {
    let Some(entry) = engine.session_mut(key) else {
        return;
    };
    let Some(SessionPort {
        session, detail, ..
    }) = entry.port.iscsi()
    else {
        return;
    };
    let tasks = match event.closing {
        Some(connection) => session.tasks_of_connection(connection),
        None => session.tasks(),
    };
    if event.closing.is_none() || detail.open_connections().len() == 1 {
        entry.note_farewell();
    }
    if event.closing.is_none() {
        engine.close_to_commands(key);
    }
    engine.abort_before(key, names_of(tasks), Farewell::Iscsi(event));
}

/// Counts a violation, and tells of it unless too many were told.
pub(super) fn note_violation<C: Wire>(
    engine: &mut Engine<C>,
    session: SessionKey,
    violation: &Violation,
) {
    let Some((entry, wire)) = engine.session_and_carrier(session) else {
        return;
    };
    let Some(SessionPort { detail, .. }) = entry.port.iscsi_mut() else {
        return;
    };
    detail.violations = detail.violations.saturating_add(1);
    if detail.violations <= VIOLATIONS_TOLD_MAX {
        wire.report(Notice::Violation {
            session: detail,
            violation,
        });
    }
}
