//! What is under way in a session, and the tags that name it.

use std::sync::Arc;

use super::{Command, Completion, Outcome, ReadBuffer, Residual};
use crate::pdu::InitiatorTaskTag;
use crate::serial::SerialNumber;

/// A SCSI command, from submission to completion.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) command: Command,
    /// Set once it is sent.
    pub(super) issued: Option<Issued>,
    /// Data-In and R2T PDUs so far.
    pub(super) data_sn: u32,
    /// Bytes of Data-In so far.
    pub(super) received: u32,
    /// Bytes of write data that were handed to the connection.
    pub(super) sent: u32,
    /// First byte of write data that is neither sent unasked nor asked for.
    pub(super) next_solicited: u32,
    /// R2Ts whose data is not sent completely.
    pub(super) open_r2t: u16,
}

/// Where and as what a command was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Issued {
    pub(super) connection: usize,
    pub(super) cmd_sn: SerialNumber,
}

impl Task {
    pub(super) fn new(command: Command) -> Self {
        Self {
            command,
            issued: None,
            data_sn: 0,
            received: 0,
            sent: 0,
            next_solicited: 0,
            open_r2t: 0,
        }
    }

    pub(super) fn complete(
        self,
        outcome: Outcome,
        residual: Residual,
        read_residual: Residual,
        sense: Vec<u8>,
    ) -> Completion {
        Completion {
            tag: self.command.tag,
            outcome,
            received_bytes: self.received,
            residual,
            read_residual,
            sense,
            write: self.command.write,
            read: self.command.read,
        }
    }

    /// Ends without an answer of the target.
    pub(super) fn abandon(self, outcome: Outcome) -> Completion {
        self.complete(outcome, Residual::None, Residual::None, Vec::new())
    }

    pub(super) fn write_length(&self) -> u32 {
        length_of(self.command.write.as_ref().map_or(0, |data| data.len()))
    }

    pub(super) fn read_length(&self) -> u32 {
        match &self.command.read {
            ReadBuffer::None => 0,
            ReadBuffer::Into(buffer) => length_of(buffer.len()),
            ReadBuffer::Discard { length_bytes } => *length_bytes,
        }
    }

    pub(super) fn write_data(&self) -> Option<Arc<[u8]>> {
        self.command.write.clone()
    }
}

/// A length as it goes into a header field. `Session::submit` refuses what does not fit.
pub(super) fn length_of(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// A request that is not a SCSI command.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) tag: u64,
    pub(super) connection: usize,
    pub(super) kind: RequestKind,
}

#[derive(Debug)]
pub(super) enum RequestKind {
    Ping,
    Management(super::Management, SerialNumber),
    Text { answer: Vec<u8> },
    Logout,
}

#[derive(Debug)]
pub(super) enum Entry {
    Task(Task),
    Request(Request),
}

impl Entry {
    pub(super) fn connection(&self) -> Option<usize> {
        match self {
            Self::Task(task) => task.issued.map(|issued| issued.connection),
            Self::Request(request) => Some(request.connection),
        }
    }
}

#[derive(Debug)]
struct Slot {
    /// Changes with each use, so that a tag of the past names nothing.
    generation: u16,
    entry: Option<Entry>,
}

/// Everything under way, by task tag.
#[derive(Debug)]
pub(super) struct Entries {
    slots: Vec<Slot>,
    free: Vec<u16>,
    limit: usize,
}

impl Entries {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            limit,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() >= self.limit
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len().saturating_sub(self.free.len())
    }

    /// Finds a place; `None` when [`Entries::is_full`].
    pub(super) fn insert(&mut self, entry: Entry) -> Option<InitiatorTaskTag> {
        if self.is_full() {
            return None;
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u16::try_from(self.slots.len()).ok()?;
                self.slots.push(Slot {
                    generation: 0,
                    entry: None,
                });
                index
            }
        };
        let slot = self.slots.get_mut(usize::from(index))?;
        slot.entry = Some(entry);
        Some(InitiatorTaskTag(
            u32::from(slot.generation) << 16 | u32::from(index),
        ))
    }

    fn slot(&mut self, itt: InitiatorTaskTag) -> Option<(u16, &mut Slot)> {
        let [a, b, c, d] = itt.0.to_be_bytes();
        let (generation, index) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let slot = self.slots.get_mut(usize::from(index))?;
        (slot.generation == generation).then_some((index, slot))
    }

    pub(super) fn get_mut(&mut self, itt: InitiatorTaskTag) -> Option<&mut Entry> {
        self.slot(itt)?.1.entry.as_mut()
    }

    pub(super) fn task_mut(&mut self, itt: InitiatorTaskTag) -> Option<&mut Task> {
        match self.get_mut(itt)? {
            Entry::Task(task) => Some(task),
            Entry::Request(_) => None,
        }
    }

    pub(super) fn remove(&mut self, itt: InitiatorTaskTag) -> Option<Entry> {
        let (index, slot) = self.slot(itt)?;
        let entry = slot.entry.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(entry)
    }

    /// Tags of all entries that `which` is true of.
    pub(super) fn select(&self, which: impl Fn(&Entry) -> bool) -> Vec<InitiatorTaskTag> {
        self.slots
            .iter()
            .zip(0_u32..)
            .filter(|(slot, _)| slot.entry.as_ref().is_some_and(&which))
            .map(|(slot, index)| InitiatorTaskTag(u32::from(slot.generation) << 16 | index))
            .collect()
    }
}
