//! Bodies of requests and replies.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use crate::bytes::{Reader, long, short, size};
use crate::limits::{CDB_MAX_BYTES, DATA_MAX_BYTES, SENSE_MAX_BYTES};

/// The bytes of a request before its CDB.
const REQUEST_BYTES: usize = 12;
/// The bytes of a reply before its sense data.
const REPLY_BYTES: usize = 12;

/// A task attribute.
///
/// Spec: SAM-6, task attributes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Attribute {
    /// SIMPLE.
    Simple,
    /// ORDERED.
    Ordered,
    /// HEAD OF QUEUE.
    HeadOfQueue,
}

/// A command as it stands in a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Command {
    /// Its place among others.
    pub attribute: Attribute,
    /// From 6 to 260 bytes.
    pub cdb: Vec<u8>,
    /// The data that the client has room for, in bytes.
    pub data_in_bytes: u32,
    /// The data that follows the CDB, in bytes.
    pub data_out_bytes: u32,
}

/// A command or task as its client names it: the tag, and how often it was used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TaskName {
    /// The tag.
    pub tag: u16,
    /// The lower 32 bits of the tag's sequence number.
    pub sequence: u32,
}

/// A task management function.
///
/// Spec: SAM-6, task management functions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Function {
    /// ABORT TASK.
    AbortTask(TaskName),
    /// ABORT TASK SET.
    AbortTaskSet,
    /// CLEAR TASK SET.
    ClearTaskSet,
    /// LOGICAL UNIT RESET.
    LogicalUnitReset,
}

/// The body of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Request {
    /// A command. Its data are the rest of the body.
    Command(Command),
    /// A task management function.
    Management(Function),
}

impl Request {
    /// The body up to the data.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(REQUEST_BYTES.saturating_add(16));
        self.encode_to(&mut body);
        body
    }

    /// Writes the body up to the data behind what is there.
    pub(crate) fn encode_to(&self, body: &mut Vec<u8>) {
        match self {
            Self::Command(command) => {
                let attribute = match command.attribute {
                    Attribute::Simple => 0,
                    Attribute::Ordered => 1,
                    Attribute::HeadOfQueue => 2,
                };
                body.extend([0, attribute]);
                body.extend(short(command.cdb.len()).to_be_bytes());
                body.extend(command.data_in_bytes.to_be_bytes());
                body.extend(command.data_out_bytes.to_be_bytes());
                body.extend(&command.cdb);
            }
            Self::Management(function) => {
                let (code, name) = match *function {
                    Function::AbortTask(name) => (1, name),
                    Function::AbortTaskSet => (2, TaskName::none()),
                    Function::ClearTaskSet => (4, TaskName::none()),
                    Function::LogicalUnitReset => (5, TaskName::none()),
                };
                body.extend([1, code]);
                body.extend(name.tag.to_be_bytes());
                body.extend(name.sequence.to_be_bytes());
                body.extend([0; 4]);
            }
        }
    }

    /// Reads a body. Gives the data, too, which are as long as the command says.
    #[must_use]
    pub fn decode(body: &[u8]) -> Option<(Self, &[u8])> {
        let mut reader = Reader::new(body);
        let (kind, code) = (reader.u8()?, reader.u8()?);
        if kind == 1 {
            let (tag, sequence) = (reader.u16()?, reader.u32()?);
            let function = match code {
                1 => Function::AbortTask(TaskName { tag, sequence }),
                2 => Function::AbortTaskSet,
                4 => Function::ClearTaskSet,
                5 => Function::LogicalUnitReset,
                _ => return None,
            };
            reader.u32()?;
            return reader
                .rest()
                .is_empty()
                .then_some((Self::Management(function), &[][..]));
        }
        let attribute = match (kind, code) {
            (0, 0) => Attribute::Simple,
            (0, 1) => Attribute::Ordered,
            (0, 2) => Attribute::HeadOfQueue,
            _ => return None,
        };
        let cdb_bytes = usize::from(reader.u16()?);
        let (data_in_bytes, data_out_bytes) = (reader.u32()?, reader.u32()?);
        let cdb = reader.bytes(cdb_bytes)?.to_vec();
        let data = reader.rest();
        let is_sound = (6..=CDB_MAX_BYTES).contains(&cdb_bytes)
            && data_in_bytes <= DATA_MAX_BYTES
            && data_out_bytes <= DATA_MAX_BYTES
            && data.len() == size(data_out_bytes);
        let command = Command {
            attribute,
            cdb,
            data_in_bytes,
            data_out_bytes,
        };
        is_sound.then_some((Self::Command(command), data))
    }
}

impl TaskName {
    const fn none() -> Self {
        Self {
            tag: 0,
            sequence: 0,
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// A command with this SCSI status.
    Status(u8),
    /// A command that was aborted: it has no status.
    Aborted,
    /// The device is not open, or at another level. Nothing was done.
    NotOpen,
    /// The body made no sense. Nothing was done.
    Malformed,
    /// FUNCTION COMPLETE.
    FunctionComplete,
    /// FUNCTION REJECTED.
    FunctionRejected,
}

impl Outcome {
    const fn to_wire(self) -> [u8; 2] {
        match self {
            Self::Status(status) => [0, status],
            Self::Aborted => [1, 0],
            Self::NotOpen => [2, 0],
            Self::Malformed => [3, 0],
            Self::FunctionComplete => [4, 0],
            Self::FunctionRejected => [5, 0],
        }
    }

    const fn of(bytes: [u8; 2]) -> Option<Self> {
        Some(match bytes {
            [0, status] => Self::Status(status),
            [1, 0] => Self::Aborted,
            [2, 0] => Self::NotOpen,
            [3, 0] => Self::Malformed,
            [4, 0] => Self::FunctionComplete,
            [5, 0] => Self::FunctionRejected,
            _ => return None,
        })
    }
}

/// The body of a reply. The data are its rest.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reply {
    /// How it ended.
    pub outcome: Outcome,
    /// What the command moves, less the room or data that its client gave: negative where that was too much.
    pub residual: i32,
    /// Sense data.
    pub sense: Vec<u8>,
}

impl Reply {
    /// A reply without data or sense.
    #[must_use]
    pub const fn of(outcome: Outcome) -> Self {
        Self {
            outcome,
            residual: 0,
            sense: Vec::new(),
        }
    }

    /// The body up to the data.
    #[must_use]
    pub fn encode(&self, data_bytes: usize) -> Vec<u8> {
        let mut body = Vec::with_capacity(REPLY_BYTES.saturating_add(self.sense.len()));
        self.encode_to(data_bytes, &mut body);
        body
    }

    /// Writes the body up to the data behind what is there.
    pub(crate) fn encode_to(&self, data_bytes: usize, body: &mut Vec<u8>) {
        let sense = self
            .sense
            .get(..SENSE_MAX_BYTES)
            .unwrap_or(self.sense.as_slice());
        body.extend(self.outcome.to_wire());
        body.extend(short(sense.len()).to_be_bytes());
        body.extend(self.residual.to_be_bytes());
        body.extend(long(data_bytes).to_be_bytes());
        body.extend(sense);
    }

    /// Reads a body. Gives the data, too.
    #[must_use]
    pub fn decode(body: &[u8]) -> Option<(Self, &[u8])> {
        let mut reader = Reader::new(body);
        let outcome = Outcome::of(reader.array()?)?;
        let sense_bytes = usize::from(reader.u16()?);
        let residual = reader.array().map(i32::from_be_bytes)?;
        let data_bytes = reader.u32()?;
        let sense = reader.bytes(sense_bytes)?.to_vec();
        let data = reader.rest();
        let is_sound = sense_bytes <= SENSE_MAX_BYTES
            && data_bytes <= DATA_MAX_BYTES
            && data.len() == size(data_bytes);
        let reply = Self {
            outcome,
            residual,
            sense,
        };
        is_sound.then_some((reply, data))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_write_is_laid_out_as_documented() {
        let command = Command {
            attribute: Attribute::Ordered,
            cdb: vec![0x2a, 0, 0, 0, 0, 8, 0, 0, 1, 0],
            data_in_bytes: 0,
            data_out_bytes: 2,
        };
        let mut body = Request::Command(command.clone()).encode();
        body.extend([0xaa, 0xbb]);
        assert_eq!(body[..12], [0, 1, 0, 10, 0, 0, 0, 0, 0, 0, 0, 2]);
        let expected = (Request::Command(command), &[0xaa, 0xbb][..]);
        assert_eq!(Request::decode(&body), Some(expected));
        assert_eq!(Request::decode(&body[..23]), None, "a byte is missing");
        body.push(0);
        assert_eq!(Request::decode(&body), None, "a byte too many");
    }

    #[test]
    fn functions_and_replies_come_back() {
        let name = TaskName {
            tag: 7,
            sequence: 9,
        };
        for function in [
            Function::AbortTask(name),
            Function::AbortTaskSet,
            Function::ClearTaskSet,
            Function::LogicalUnitReset,
        ] {
            let body = Request::Management(function).encode();
            assert_eq!(body.len(), REQUEST_BYTES);
            let read = Request::decode(&body);
            assert_eq!(read, Some((Request::Management(function), &[][..])));
        }
        let reply = Reply {
            outcome: Outcome::Status(2),
            residual: -5,
            sense: vec![0x70, 0, 6],
        };
        let mut body = reply.encode(1);
        body.push(0xcc);
        assert_eq!(body[..12], [0, 2, 0, 3, 0xff, 0xff, 0xff, 0xfb, 0, 0, 0, 1]);
        assert_eq!(Reply::decode(&body), Some((reply, &[0xcc][..])));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some((request, data)) = Request::decode(&bytes) {
                let again = [&request.encode()[..], data].concat();
                prop_assert_eq!(Request::decode(&again), Some((request, data)));
            }
            if let Some((reply, data)) = Reply::decode(&bytes) {
                prop_assert_eq!([&reply.encode(data.len())[..], data].concat(), bytes.clone());
            }
        }
    }
}
