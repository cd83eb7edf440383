//! The sessions of a core that are not of iSCSI.

use std::net::SocketAddr;

use engine::{Engine, SessionKey};
use front::{OtherSessions, Others, Port, hyperscsi, nbd};

use super::carrier::Outside;

/// As the product has them; where clients of NBD came from whose sessions are over is put down.
pub(super) struct Beside<'a> {
    all: OtherSessions<'a, Outside>,
    over: &'a mut Vec<SocketAddr>,
}

impl<'a> Beside<'a> {
    pub(super) const fn new(
        nbd: &'a mut nbd::Sessions<Outside>,
        hyperscsi: &'a mut hyperscsi::Sessions<Outside>,
        over: &'a mut Vec<SocketAddr>,
    ) -> Self {
        let all = OtherSessions { nbd, hyperscsi };
        Self { all, over }
    }
}

impl Others<Outside> for Beside<'_> {
    fn handle_events(&mut self, engine: &mut Engine<Outside>, session: SessionKey) {
        self.all.handle_events(engine, session);
    }

    fn note_ready(&mut self, engine: &Engine<Outside>, session: SessionKey) {
        self.all.note_ready(engine, session);
    }

    fn handle_over(&mut self, engine: &mut Engine<Outside>, port: Port) {
        self.over.extend(port.nbd().map(|port| port.detail.peer));
        self.all.handle_over(engine, port);
    }
}
