//! Traces begin and end on a core: which connections are followed.

use std::sync::Arc;

use front::hyperscsi::Place;

use super::frames::{FrameTap, made_up};
use super::{Subject, Trace};
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
        self.follow_frames(&trace);
        self.engine.carrier.traces.push(trace);
    }

    /// Follows the frames of a session of HyperSCSI, if it is the trace's and lives here.
    fn follow_frames(&mut self, trace: &Arc<Trace>) {
        let Subject::Session(session) = trace.subject else {
            return;
        };
        let Some((place, station, tags)) = self.hyperscsi.frames_of(&self.engine, session) else {
            return;
        };
        let door = self.hyperscsi.socket(place);
        let own = match (
            door.and_then(|door| door.hardware()),
            self.hyperscsi.place(place),
        ) {
            (Some(hardware), _) => hardware,
            (None, Some(Place::Udp(address))) => made_up(*address),
            (None, Some(Place::Interface(_)) | None) => [0; 6],
        };
        self.engine.carrier.frame_taps.start(FrameTap {
            trace: Arc::clone(trace),
            session,
            place,
            station,
            tags,
            own,
        });
    }

    /// Follows nothing for this trace any more.
    pub(crate) fn handle_stop_trace(&mut self, trace: &Arc<Trace>) {
        let traces = &mut self.engine.carrier.traces;
        traces.retain(|other| !Arc::ptr_eq(other, trace));
        for connection in self.sessions.connections_mut() {
            connection.line.taps.stop(trace);
        }
        self.engine.carrier.frame_taps.stop(trace);
        if let Some(front) = self.sessions.front.as_mut() {
            front.lines_mut().for_each(|line| line.taps.stop(trace));
        }
    }
}
