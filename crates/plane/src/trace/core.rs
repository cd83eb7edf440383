//! Traces begin and end on a core: which connections are followed.

use std::sync::Arc;

use super::Trace;
use crate::core::Core;

impl Core {
    /// Follows all connections that are the trace's, from here on.
    pub(crate) fn handle_start_trace(&mut self, trace: Arc<Trace>) {
        for connection in self.sessions.connections_mut() {
            let Some(entry) = self.engine.session(connection.session) else {
                continue;
            };
            let Some(port) = entry.port.iscsi() else {
                continue;
            };
            let detail = &port.detail;
            if trace.is_of_session(detail.id, &detail.profile.initiator_name) {
                let standing = port.session.standing(connection.index);
                connection.line.taps.start(&trace, &standing);
            }
        }
        self.engine.carrier.traces.push(trace);
    }

    /// Follows nothing for this trace any more.
    pub(crate) fn handle_stop_trace(&mut self, trace: &Arc<Trace>) {
        let traces = &mut self.engine.carrier.traces;
        traces.retain(|other| !Arc::ptr_eq(other, trace));
        for connection in self.sessions.connections_mut() {
            connection.line.taps.stop(trace);
        }
        if let Some(front) = self.sessions.front.as_mut() {
            front.lines_mut().for_each(|line| line.taps.stop(trace));
        }
    }
}
