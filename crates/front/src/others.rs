//! The sessions of other transports than iSCSI, for what the engine has of them.

use engine::{Engine, SessionKey};

use crate::{hyperscsi, nbd};

use crate::port::Port;

/// Takes what the engine has for sessions of other transports. iSCSI asks the engine, and hands this on.
pub trait Others<C: engine::Carrier<Port = Port>> {
    /// Something has happened in a session.
    fn handle_events(&mut self, engine: &mut Engine<C>, session: SessionKey);

    /// A session has something to send.
    fn note_ready(&mut self, engine: &Engine<C>, session: SessionKey);

    /// A session and its tasks are gone; this is left of it.
    fn handle_over(&mut self, engine: &mut Engine<C>, port: Port);
}

/// Those that a core has.
#[derive(Debug)]
pub struct OtherSessions<'a, C: nbd::Wire + hyperscsi::Wire> {
    /// NBD.
    pub nbd: &'a mut nbd::Sessions<C>,
    /// HyperSCSI.
    pub hyperscsi: &'a mut hyperscsi::Sessions<C>,
}

impl<C: nbd::Wire + hyperscsi::Wire> Others<C> for OtherSessions<'_, C> {
    fn handle_events(&mut self, engine: &mut Engine<C>, session: SessionKey) {
        match engine.session(session).map(|entry| &entry.port) {
            Some(Port::Nbd(_)) => self.nbd.handle_events(engine, session),
            Some(Port::Hyperscsi(_)) => self.hyperscsi.handle_events(engine, session),
            Some(Port::Iscsi(_)) | None => {}
        }
    }

    fn note_ready(&mut self, engine: &Engine<C>, session: SessionKey) {
        match engine.session(session).map(|entry| &entry.port) {
            Some(Port::Nbd(_)) => self.nbd.note_ready(engine, session),
            Some(Port::Hyperscsi(_)) => self.hyperscsi.note_ready(session),
            Some(Port::Iscsi(_)) | None => {}
        }
    }

    fn handle_over(&mut self, engine: &mut Engine<C>, port: Port) {
        match port {
            port @ Port::Nbd(_) => self.nbd.handle_over(engine, port),
            Port::Hyperscsi(port) => self.hyperscsi.handle_over(engine, &port),
            Port::Iscsi(_) => {}
        }
    }
}
