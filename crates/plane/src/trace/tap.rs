//! One connection, and the traces it is followed for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use iscsi::excerpt::{Cutter, Standing};
use iscsi::framing::Pdu;
use iscsi::names::IscsiName;
use iscsi::negotiate::ConnectionParameters;
use memory::{Message, Piece};
use pcap::Segment;

use super::Trace;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
struct Ends {
    /// The initiator's.
    peer: SocketAddr,
    /// Ours.
    portal: SocketAddr,
}

/// The traces that follow a connection; mostly none.
#[derive(Debug)]
pub(crate) struct Taps {
    ends: Ends,
    taps: Vec<Tap>,
}

impl Taps {
    /// No trace follows this connection.
    pub(crate) const fn new(peer: SocketAddr, portal: SocketAddr) -> Self {
        Self {
            ends: Ends { peer, portal },
            taps: Vec::new(),
        }
    }

    /// Where the connection comes from.
    pub(crate) const fn peer(&self) -> SocketAddr {
        self.ends.peer
    }

    /// The address of ours that it reached.
    pub(crate) const fn portal(&self) -> SocketAddr {
        self.ends.portal
    }

    /// Follows it for this trace, from where the connection stands.
    pub(super) fn start(&mut self, trace: &Arc<Trace>, standing: &Standing<'_>) {
        self.taps.push(Tap::new(trace, standing));
    }

    /// Follows it no more for this trace.
    pub(super) fn stop(&mut self, trace: &Arc<Trace>) {
        self.taps.retain(|tap| !Arc::ptr_eq(&tap.trace, trace));
    }

    /// A login request has been read. Of the initiator's traces none misses it that is there when
    /// the initiator sends its name.
    pub(crate) fn receive_login(
        &mut self,
        pdu: &Pdu,
        initiator: Option<&IscsiName>,
        traces: &[Arc<Trace>],
    ) {
        if traces.is_empty() {
            return;
        }
        if self.taps.is_empty()
            && let Some(name) = initiator
        {
            let own = |trace: &&Arc<Trace>| trace.is_of_initiator(name.as_str());
            for trace in traces.iter().filter(own) {
                self.start(trace, &Standing::default());
            }
        }
        self.receive(&pdu.to_bytes(false, false));
    }

    /// The login is over and the session has these traces: those that followed the login go on.
    pub(crate) fn enter_session<'a>(
        &mut self,
        traces: impl Iterator<Item = &'a Arc<Trace>> + Clone,
        parameters: &ConnectionParameters,
    ) {
        let is_for = |tap: &Tap, trace: &Arc<Trace>| Arc::ptr_eq(&tap.trace, trace);
        self.taps
            .retain(|tap| traces.clone().any(|trace| is_for(tap, trace)));
        for trace in traces {
            if !self.taps.iter().any(|tap| is_for(tap, trace)) {
                self.start(trace, &Standing::default());
            }
        }
        for tap in &mut self.taps {
            for way in [&mut tap.received, &mut tap.sent] {
                let cutter = &mut way.cutter;
                cutter.set_digests(parameters.header_digest, parameters.data_digest);
            }
        }
    }

    /// A trace follows it.
    pub(crate) const fn is_open(&self) -> bool {
        !self.taps.is_empty()
    }

    /// These bytes came from the initiator.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        for tap in &mut self.taps {
            tap.receive(self.ends, Piece::from(bytes));
        }
    }

    /// These bytes go to the initiator.
    pub(crate) fn send(&mut self, message: &Message) {
        for tap in &mut self.taps {
            message
                .pieces()
                .for_each(|piece| tap.send(self.ends, piece));
        }
    }
}

/// One direction.
#[derive(Debug)]
struct Way {
    cutter: Cutter,
    /// How much has passed in PDUs that were noted, in bytes.
    position: u64,
}

impl Way {
    /// Notes the PDUs that end in these bytes; `others` is how much passed the other way.
    fn pass(
        &mut self,
        trace: &Trace,
        piece: Piece<'_>,
        (from, to): (SocketAddr, SocketAddr),
        others: u64,
    ) {
        // A time before 1970 cannot be expressed.
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let at: Duration = at.unwrap_or_default();
        let position = &mut self.position;
        self.cutter.push(piece, |pdu| {
            trace.note(&Segment {
                at,
                from,
                to,
                position: *position,
                acknowledged: others,
                whole_bytes: pdu.whole_bytes,
                bytes: pdu.bytes,
            });
            *position += pdu.whole_bytes as u64;
        });
    }
}

/// One trace that follows a connection.
#[derive(Debug)]
struct Tap {
    trace: Arc<Trace>,
    received: Way,
    sent: Way,
}

impl Tap {
    /// For a connection that is at `standing` in what it receives, and between two PDUs in what it
    /// sends.
    fn new(trace: &Arc<Trace>, standing: &Standing<'_>) -> Self {
        let data_bytes = trace.limits.data_bytes;
        let way = |standing: &Standing<'_>| Way {
            cutter: Cutter::new(standing, data_bytes),
            position: 0,
        };
        Self {
            trace: Arc::clone(trace),
            received: way(standing),
            sent: way(&Standing {
                begun: &[],
                left_bytes: 0,
                ..*standing
            }),
        }
    }

    fn receive(&mut self, Ends { peer, portal }: Ends, piece: Piece<'_>) {
        let others = self.sent.position;
        self.received
            .pass(&self.trace, piece, (peer, portal), others);
    }

    fn send(&mut self, Ends { peer, portal }: Ends, piece: Piece<'_>) {
        let others = self.received.position;
        self.sent.pass(&self.trace, piece, (portal, peer), others);
    }
}
