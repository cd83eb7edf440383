//! How I/Os reach a target. A [`Lane`] is one session; its owner is one generator thread, which
//! drives it by the events of its reactor.
//!
//! A transport allocates nothing and takes no lock for an I/O in steady state: buffers go out
//! with an [`Operation`] and come back with its [`Finished`].

pub mod file;
pub mod hyperscsi;
pub mod iscsi;
pub mod nbd;
mod socket;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use reactor::{Event, Reactor};

use crate::error::BenchError;

/// What a target says it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Geometry {
    /// In bytes.
    pub size_bytes: u64,
    /// Logical block length: offsets and lengths are multiples of it.
    pub block_bytes: u32,
}

/// What one I/O moves.
#[derive(Debug)]
pub enum Data {
    /// Read, and nobody looks at it.
    Discard,
    /// Read into this buffer, which is as long as the I/O.
    Keep(Vec<u8>),
    /// Write these bytes.
    Write(Arc<[u8]>),
}

/// One I/O.
#[derive(Debug)]
pub struct Operation {
    /// Where it starts, in bytes.
    pub offset: u64,
    /// In bytes.
    pub length: u32,
    /// Which way, and what.
    pub data: Data,
}

/// The end of one I/O.
#[derive(Debug)]
pub struct Finished {
    /// As submitted.
    pub tag: u32,
    /// Good, or what went wrong.
    pub result: Result<(), IoError>,
    /// As submitted; filled, when it was read.
    pub data: Data,
}

/// Why an I/O failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum IoError {
    /// A SCSI status other than GOOD.
    Scsi {
        /// The status byte.
        status: u8,
        /// Sense key, additional sense code and its qualifier, where the target gave any.
        sense: Option<[u8; 3]>,
    },
    /// Anything else, in words.
    Other(String),
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scsi { status, sense } => {
                write!(f, "SCSI status {}", status_name(*status))?;
                match sense {
                    Some([key, asc, ascq]) => write!(f, ", sense {key:x}/{asc:02x}/{ascq:02x}"),
                    None => Ok(()),
                }
            }
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// Spec: SAM-5 section 5.3.
fn status_name(status: u8) -> String {
    const NAMES: [(u8, &str); 7] = [
        (0x00, "GOOD"),
        (0x02, "CHECK CONDITION"),
        (0x08, "BUSY"),
        (0x18, "RESERVATION CONFLICT"),
        (0x28, "TASK SET FULL"),
        (0x30, "ACA ACTIVE"),
        (0x40, "TASK ABORTED"),
    ];
    let known = NAMES.iter().find(|(code, _)| *code == status);
    known.map_or_else(|| format!("{status:#04x}"), |(_, name)| (*name).to_owned())
}

/// The bits of a token below the number of the lane; a lane uses them as it likes.
const LANE_SHIFT: u32 = 32;

/// The token of a lane's operation.
const fn token(lane: u32, part: u32) -> reactor::Token {
    (lane as u64) << LANE_SHIFT | part as u64
}

/// Which lane an event is for, and the lane's own part of the token. `None` for what no lane
/// asked for.
#[must_use]
pub fn lane_of(event: &Event) -> Option<(u32, u32)> {
    let token = match event {
        Event::Received { token, .. }
        | Event::ReceivedExact { token, .. }
        | Event::Datagram { token, .. }
        | Event::DatagramsSent { token, .. }
        | Event::Sent { token, .. }
        | Event::Store { token, .. }
        | Event::Helper { token, .. } => *token,
        Event::Accepted { .. } | Event::Mail { .. } => return None,
    };
    let [a, b, c, d, e, f, g, h] = token.to_be_bytes();
    let lane = u32::from_be_bytes([a, b, c, d]);
    Some((lane, u32::from_be_bytes([e, f, g, h])))
}

/// How a session is opened.
#[derive(Clone, Debug)]
pub struct LaneSettings {
    /// Its number on the thread, for tokens.
    pub lane: u32,
    /// Its number among all sessions of the point.
    pub session: u32,
    /// I/Os under way at most.
    pub depth: u32,
    /// What all writes of an unverified point carry, also as a buffer of the thread's reactor, so
    /// that a transport can send it from where it lies.
    pub pattern: Option<Pattern>,
}

/// Data that every write of a point carries.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// As it comes with an operation.
    pub bytes: Arc<[u8]>,
    /// The same bytes, where a ring can take them from.
    pub buffer: std::rc::Rc<memory::Buffer>,
}

/// One session with a target.
pub trait Lane: Sized {
    /// What is needed to open one: shared by all threads.
    type Connector: Sync;

    /// Connects and logs in, blocking, in bounded time.
    ///
    /// # Errors
    ///
    /// Everything that can go wrong before the first I/O.
    fn open(connector: &Self::Connector, settings: LaneSettings) -> Result<Self, BenchError>;

    /// What the target says it is.
    fn geometry(&self) -> Geometry;

    /// The longest I/O that it takes, in bytes; `None`: any.
    fn io_bytes_max(&self) -> Option<u32> {
        None
    }

    /// Takes an I/O over; it goes out with the next [`Lane::flush`]. The owner has at most as many
    /// under way as it reported at [`Lane::open`].
    fn submit(&mut self, reactor: &mut Reactor, tag: u32, operation: Operation);

    /// Sends what was submitted and makes sure that answers are waited for. What is done without
    /// waiting is added to `finished`.
    fn flush(&mut self, reactor: &mut Reactor, finished: &mut Vec<Finished>);

    /// Takes an event of this lane, whose part of the token is `part`.
    ///
    /// # Errors
    ///
    /// The connection is lost, in words. No I/O that is under way will finish.
    fn handle(
        &mut self,
        reactor: &mut Reactor,
        part: u32,
        event: Event,
        finished: &mut Vec<Finished>,
    ) -> Result<(), String>;

    /// When [`Lane::flush`] has something to do without any event, if that is known.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Says goodbye, with no I/O under way. The owner goes on with flush and handle until
    /// [`Lane::is_closed`] or for as long as it likes.
    fn close(&mut self);

    /// True when the goodbye was answered, or the connection is gone.
    fn is_closed(&self) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_back_to_its_lane() {
        let event = Event::Helper {
            token: token(7, 9),
            result: Ok(store::HelperAnswer::Done),
        };
        assert_eq!(lane_of(&event), Some((7, 9)));
        assert_eq!(lane_of(&Event::Mail { token: 1 }), None);
    }

    #[test]
    fn errors_are_told_in_words() {
        let error = |status, sense| IoError::Scsi { status, sense }.to_string();
        assert_eq!(
            error(2, Some([5, 0x24, 0])),
            "SCSI status CHECK CONDITION, sense 5/24/00"
        );
        assert_eq!(error(0x28, None), "SCSI status TASK SET FULL");
        assert_eq!(error(0x77, None), "SCSI status 0x77");
    }
}
