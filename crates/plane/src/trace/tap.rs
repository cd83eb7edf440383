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

#[cfg(test)]
mod tests {
    use front::SessionId;

    use super::*;
    use crate::trace::{Subject, TraceLimits};

    const PEER: &str = "192.0.2.1:50000";
    const PORTAL: &str = "192.0.2.2:3260";
    const NAME: &str = "iqn.2026-11.example:host";
    const DATA_BYTES: usize = 64;
    const LOGIN_REQUEST: u8 = 0x43;
    const LOGIN_RESPONSE: u8 = 0x23;
    const NOP_OUT: u8 = 0x00;
    const NOP_IN: u8 = 0x20;

    fn taps() -> Taps {
        Taps::new(PEER.parse().unwrap(), PORTAL.parse().unwrap())
    }

    fn trace(subject: Subject) -> Arc<Trace> {
        let limits = TraceLimits {
            data_bytes: DATA_BYTES,
            keep_bytes: 1 << 20,
        };
        Arc::new(Trace::new(subject, limits))
    }

    fn of_initiator(name: &str) -> Arc<Trace> {
        trace(Subject::Initiator(name.to_owned()))
    }

    fn pdu(opcode: u8, data: &[u8]) -> Pdu {
        let mut header = [0; 48];
        header[0] = opcode;
        Pdu::new(&header, data.to_vec())
    }

    fn message(pdu: &Pdu) -> Message {
        let mut message = Message::default();
        message.push_bytes(&pdu.to_bytes(false, false));
        message
    }

    /// A PDU in the file of a trace: from whom, at which positions of both streams, the opcode, and how much of it is
    /// there and was there.
    type Noted = (bool, u32, u32, u8, usize, usize);

    fn noted(trace: &Trace) -> Vec<Noted> {
        let file = trace.file();
        let mut rest = &file[24..];
        let mut all = Vec::new();
        while !rest.is_empty() {
            let length = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
            let (kept, whole) = (length(8) as usize, length(12) as usize);
            let packet = &rest[16..16 + kept];
            let position =
                |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap()) - 1;
            let is_of_peer = packet[12..16] == [192, 0, 2, 1];
            assert_eq!(packet[16..20], [192, 0, 2, if is_of_peer { 2 } else { 1 }]);
            all.push((
                is_of_peer,
                position(24),
                position(28),
                packet[40],
                kept - 40,
                whole - 40,
            ));
            rest = &rest[16 + kept..];
        }
        all
    }

    #[test]
    fn a_login_is_followed_from_the_request_that_names_its_initiator() {
        let traces = [
            of_initiator(NAME),
            of_initiator("iqn.2026-11.example:other"),
        ];
        let name = IscsiName::parse(NAME).unwrap();
        let mut taps = taps();
        let request = pdu(LOGIN_REQUEST, &[b'x'; 200]);
        taps.receive_login(&request, Some(&name), &[]);
        taps.receive_login(&request, None, &traces);
        assert!(!taps.is_open());
        taps.receive_login(&request, Some(&name), &traces);
        assert!(taps.is_open());
        taps.send(&message(&pdu(LOGIN_RESPONSE, &[])));
        taps.receive_login(&request, Some(&name), &traces);
        let expected = [
            (true, 0, 0, LOGIN_REQUEST, 248, 248),
            (false, 0, 248, LOGIN_RESPONSE, 48, 48),
            (true, 248, 48, LOGIN_REQUEST, 248, 248),
        ];
        assert_eq!(noted(&traces[0]), expected);
        assert!(noted(&traces[1]).is_empty());
        taps.stop(&traces[1]);
        assert!(taps.is_open());
        taps.stop(&traces[0]);
        assert!(!taps.is_open());
    }

    #[test]
    fn a_session_has_the_traces_that_are_its_and_cuts_by_its_digests() {
        let (login, late) = (of_initiator(NAME), of_initiator(NAME));
        let session = trace(Subject::Session(SessionId(7)));
        let name = IscsiName::parse(NAME).unwrap();
        let mut taps = taps();
        let traces = [Arc::clone(&login), Arc::clone(&late)];
        let request = pdu(LOGIN_REQUEST, &[]);
        taps.receive_login(&request, Some(&name), &traces);
        let parameters = ConnectionParameters {
            header_digest: true,
            data_digest: true,
            ..ConnectionParameters::default()
        };
        taps.enter_session([&login, &session].into_iter(), &parameters);
        let ping = pdu(NOP_OUT, &[7; 100]).to_bytes(true, true);
        // One and a half, then the rest.
        let both = [&ping[..], &ping[..]].concat();
        let (most, rest) = both.split_at(ping.len() + 50);
        taps.receive(most);
        assert_eq!((noted(&login).len(), noted(&session).len()), (2, 1));
        taps.receive(rest);
        let mut pong = Message::default();
        pong.push_bytes(&pdu(NOP_IN, &[7; 8]).to_bytes(true, true));
        taps.send(&pong);
        let (kept, whole) = (48 + 4 + DATA_BYTES, 48 + 4 + 100 + 4);
        let of_session = [
            (true, 0, 0, NOP_OUT, kept, whole),
            (true, 156, 0, NOP_OUT, kept, whole),
            (false, 0, 312, NOP_IN, 64, 64),
        ];
        assert_eq!(noted(&session), of_session);
        let of_login = [
            (true, 0, 0, LOGIN_REQUEST, 48, 48),
            (true, 48, 0, NOP_OUT, kept, whole),
            (true, 204, 0, NOP_OUT, kept, whole),
            (false, 0, 360, NOP_IN, 64, 64),
        ];
        assert_eq!(noted(&login), of_login, "it goes on");
        assert_eq!(noted(&late).len(), 1, "it is not the session's");
    }

    #[test]
    fn a_connection_within_a_pdu_is_followed_from_the_next_one() {
        let trace = trace(Subject::Session(SessionId(7)));
        let ping = pdu(NOP_OUT, &[7; 8]).to_bytes(false, false);
        for (standing, rest) in [
            (
                Standing {
                    left_bytes: 3,
                    ..Standing::default()
                },
                &[7; 3][..],
            ),
            (
                Standing {
                    begun: &ping[..20],
                    ..Standing::default()
                },
                &ping[20..],
            ),
        ] {
            let before = noted(&trace).len();
            let mut taps = taps();
            taps.start(&trace, &standing);
            taps.receive(rest);
            taps.receive(&ping);
            taps.send(&message(&pdu(NOP_IN, &[])));
            let new = &noted(&trace)[before..];
            let whole = usize::from(standing.left_bytes == 0);
            assert_eq!(new.len(), 2 + whole);
            assert_eq!((new[whole].3, new[1 + whole].3), (NOP_OUT, NOP_IN));
        }
    }
}
