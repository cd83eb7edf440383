//! The frames of sessions of HyperSCSI, and the traces that follow them.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::hyperscsi::limits::{CDB_MAX_BYTES, ETHERTYPE};
use ::hyperscsi::{FragmentHeader, HEADER_BYTES, Opcode};
use front::SessionId;
use front::Station;
use front::hyperscsi::PlaceKey;
use pcap::Frame;

use super::Trace;

/// What is kept of a first fragment beside data: the headers of the fragment, of the PDU and of a reply or a request.
const FIRST_HEAD_BYTES: usize = 3 + HEADER_BYTES + 12;
/// Where the opcode of a PDU is, and in a request the length of its CDB.
const OPCODE_AT: usize = 4;
const CDB_LENGTH_AT: usize = 3 + HEADER_BYTES + 2;
/// The same of one that follows.
const HEAD_BYTES: usize = 3;

/// A session that a trace follows, on its core.
#[derive(Debug)]
pub(super) struct FrameTap {
    pub(super) trace: Arc<Trace>,
    pub(super) session: SessionId,
    pub(super) place: PlaceKey,
    pub(super) station: Station,
    /// Of the frames that are its own, those of this station.
    pub(super) tags: RangeInclusive<u16>,
    /// The station of this end.
    pub(super) own: [u8; 6],
}

/// Those of a core; mostly none. As many as there are traces, at most.
#[derive(Debug, Default)]
pub(crate) struct FrameTaps(Vec<FrameTap>);

impl FrameTaps {
    /// Follows a session for a trace.
    pub(super) fn start(&mut self, tap: FrameTap) {
        self.0.push(tap);
    }

    /// Follows nothing for this trace any more.
    pub(super) fn stop(&mut self, trace: &Arc<Trace>) {
        self.0.retain(|tap| !Arc::ptr_eq(&tap.trace, trace));
    }

    /// The session is over: its tags may be those of another one.
    pub(crate) fn end(&mut self, session: SessionId) {
        self.0.retain(|tap| tap.session != session);
    }

    /// A frame has come from a station, or goes there.
    #[inline]
    pub(crate) fn note(&self, place: PlaceKey, station: Station, came: bool, frame: &[u8]) {
        if !self.0.is_empty() {
            self.note_for(place, station, came, frame);
        }
    }

    fn note_for(&self, place: PlaceKey, station: Station, came: bool, frame: &[u8]) {
        let Some(head) = frame.first_chunk() else {
            return;
        };
        let FragmentHeader { tag, fragment, .. } = FragmentHeader::decode(*head);
        let head_bytes = match fragment {
            0 => FIRST_HEAD_BYTES + cdb_bytes(frame),
            _ => HEAD_BYTES,
        };
        let own = |tap: &&FrameTap| {
            tap.place == place && tap.station == station && tap.tags.contains(&tag)
        };
        for tap in self.0.iter().filter(own) {
            // A time before 1970 cannot be expressed.
            let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let at: Duration = at.unwrap_or_default();
            let theirs = hardware_of(station);
            let (from, to) = match came {
                true => (theirs, tap.own),
                false => (tap.own, theirs),
            };
            let kept = frame
                .len()
                .min(head_bytes.saturating_add(tap.trace.limits.data_bytes));
            tap.trace.note_frame(&Frame {
                at,
                to,
                from,
                ether_type: ETHERTYPE,
                whole_bytes: frame.len(),
                bytes: frame.get(..kept).unwrap_or_default(),
            });
        }
    }
}

/// The length of the CDB in the first fragment of a request.
fn cdb_bytes(frame: &[u8]) -> usize {
    let length = frame.get(CDB_LENGTH_AT..).and_then(<[u8]>::first_chunk);
    let is_request = frame.get(OPCODE_AT) == Some(&Opcode::Request.to_wire());
    match length.filter(|_| is_request) {
        Some(length) => usize::from(u16::from_be_bytes(*length)).min(CDB_MAX_BYTES),
        None => 0,
    }
}

/// The address of a station as one of Ethernet. For one of UDP it is made up, of the end of its IP address.
fn hardware_of(station: Station) -> [u8; 6] {
    match station {
        Station::Link(hardware) => hardware,
        Station::Inet(address) => made_up(address),
    }
}

/// An address that is given out locally, with the last four bytes of that of IP.
pub(super) fn made_up(address: SocketAddr) -> [u8; 6] {
    let [a, b, c, d] = match address.ip().to_canonical() {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(address) => {
            let [.., a, b, c, d] = address.octets();
            [a, b, c, d]
        }
    };
    [2, 0, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use engine::table::Table;
    use front::hyperscsi::PlaceKey;

    use super::*;
    use crate::trace::{Subject, TraceLimits};

    fn frame(tag: u16, length: usize) -> Vec<u8> {
        let head = FragmentHeader {
            tag,
            is_last: true,
            ..FragmentHeader::default()
        };
        let mut frame = head.encode().to_vec();
        // A reply.
        frame.resize(length, 0x01);
        frame
    }

    #[test]
    fn only_frames_of_the_session_are_noted_until_it_ends() {
        let mut table = Table::default();
        let (place, other): (PlaceKey, PlaceKey) = (table.insert(()), table.insert(()));
        let station = Station::Link([2, 0, 0, 0, 0, 1]);
        let limits = TraceLimits {
            data_bytes: 64,
            keep_bytes: 1 << 20,
        };
        let session = SessionId(7);
        let trace = Arc::new(Trace::new(Subject::Session(session), limits));
        let mut taps = FrameTaps::default();
        taps.start(FrameTap {
            trace: Arc::clone(&trace),
            session,
            place,
            station,
            tags: 5..=9,
            own: [2, 0, 0, 0, 0, 2],
        });
        for (place, station, tag) in [
            (place, station, 5),
            (place, station, 9),
            (place, station, 4),
            (place, station, 10),
            (place, station, 0),
            (other, station, 5),
            (place, Station::Link([2, 0, 0, 0, 0, 3]), 5),
        ] {
            taps.note(place, station, true, &frame(tag, 1500));
        }
        assert_eq!(trace.report().pdus, 2);
        taps.note(place, station, false, &frame(6, 46));
        let file = trace.file();
        // 24 of the file; each packet has 16 before it, 14 of Ethernet, its head and 64 bytes of data.
        assert_eq!(file.len(), 24 + 2 * (16 + 14 + 36 + 64) + 16 + 14 + 46);
        taps.end(SessionId(8));
        taps.note(place, station, true, &frame(6, 46));
        taps.end(session);
        taps.note(place, station, true, &frame(6, 46));
        assert_eq!(trace.report().pdus, 4);
    }

    #[test]
    fn stations_of_udp_have_made_up_addresses() {
        let at = |text: &str| hardware_of(Station::Inet(text.parse().unwrap()));
        assert_eq!(at("192.0.2.7:9"), [2, 0, 192, 0, 2, 7]);
        assert_eq!(at("[::ffff:192.0.2.7]:9"), [2, 0, 192, 0, 2, 7]);
        assert_eq!(at("[2001:db8::6]:1"), [2, 0, 0, 0, 0, 6]);
    }
}
