//! Traces begin and end on a core: which connections are followed.

use std::sync::Arc;

use front::iscsi::SessionPort;

use super::Trace;
use crate::core::Core;

impl Core {
    /// Follows all connections that are the trace's, from here on.
    pub(crate) fn handle_start_trace(&mut self, trace: Arc<Trace>) {
        for (_, entry) in self.engine.sessions_mut() {
            let SessionPort {
                session, detail, ..
            } = &mut entry.port;
            if !trace.is_of_session(detail.id, &detail.profile.initiator_name) {
                continue;
            }
            detail.traces.push(Arc::clone(&trace));
            for key in detail.connections.iter().flatten() {
                if let Some(connection) = self.connections.get_mut(*key) {
                    let standing = session.standing(connection.index);
                    connection.taps.start(&trace, &standing);
                }
            }
        }
        self.traces.push(trace);
    }

    /// Follows nothing for this trace any more.
    pub(crate) fn handle_stop_trace(&mut self, trace: &Arc<Trace>) {
        self.traces.retain(|other| !Arc::ptr_eq(other, trace));
        for (_, entry) in self.engine.sessions_mut() {
            let traces = &mut entry.port.detail.traces;
            traces.retain(|other| !Arc::ptr_eq(other, trace));
        }
        for (_, connection) in self.connections.iter_mut() {
            connection.taps.stop(trace);
        }
        if let Some(entrance) = self.entrance.as_mut() {
            entrance.taps_of_logins().for_each(|taps| taps.stop(trace));
        }
    }

    /// The traces of a session that this initiator begins.
    pub(crate) fn traces_of(&self, initiator: &str) -> Vec<Arc<Trace>> {
        let own = |trace: &&Arc<Trace>| trace.is_of_initiator(initiator);
        self.traces.iter().filter(own).cloned().collect()
    }
}
