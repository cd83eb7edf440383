//! Meeting a handler: the connection, the greeting, and the look at its device.

use std::io::{self, ErrorKind, IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use handler::{ANSWER_BYTES, Command, Completion, MEMORY_BYTES, Memory, Ring, check_answer, hello};
use memory::Mapping;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg};

use super::options::{HandlerFailure, MEET_MAX};
use crate::attendants::wait;
use crate::device::look::{self, Found};
use crate::nbd::connect_unix;
use crate::scsi::command::{
    BUSY, CHECK_CONDITION, Cdb, GOOD, KEY_ATTENTION, Sense, TASK_SET_FULL, test_unit_ready,
};

/// How often a command is tried where the device has something else to say first, or is busy.
const TRIES: usize = 16;
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// The memory of a ring.
#[derive(Debug)]
pub(super) struct Area(Mapping);

impl Drop for Area {
    fn drop(&mut self) {
        // A handler may keep its own mapping.
        self.0.give_back();
    }
}

impl Memory for Area {
    fn load(&self, offset: usize) -> u32 {
        u32::from_le(self.0.load(offset))
    }

    fn store(&self, offset: usize, value: u32) {
        self.0.store(offset, value.to_le());
    }

    fn swap(&self, offset: usize, value: u32) -> u32 {
        u32::from_le(self.0.swap(offset, value.to_le()))
    }

    fn copy_in(&self, offset: usize, bytes: &[u8]) {
        self.0.copy_in(offset, bytes);
    }

    fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        self.0.copy_out(offset, bytes);
    }
}

/// A connection that takes commands.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) stream: UnixStream,
    pub(super) ring: Ring<Area>,
    /// It had a unit attention to report, which nobody else has seen.
    pub(super) had_attention: bool,
    until: Instant,
}

impl Met {
    /// Connects, and finds out whether a handler is there. Blocks, as do all functions here.
    pub(super) fn new(path: &Path) -> Result<Self, HandlerFailure> {
        let until = Instant::now() + MEET_MAX;
        let stream = connect_unix(path).map_err(HandlerFailure::Connect)?;
        let memory = Mapping::sealed(MEMORY_BYTES).map_err(HandlerFailure::Memory)?;
        send_hello(&stream, &memory).map_err(HandlerFailure::BrokenOff)?;
        let ring = Ring::new(Area(memory));
        let met = Self {
            stream,
            ring,
            had_attention: false,
            until,
        };
        let mut answer = [0; ANSWER_BYTES];
        let mut rest = &mut answer[..];
        while !rest.is_empty() {
            let count = met.receive(rest)?;
            rest = rest.get_mut(count..).unwrap_or_default();
        }
        check_answer(&answer)?;
        Ok(met)
    }

    /// What the device says of itself; `None`: nothing.
    pub(super) fn look(&mut self) -> Result<Option<Found>, HandlerFailure> {
        // What it has to say first comes now.
        self.ask(&test_unit_ready())?;
        look::find(|cdb| self.ask(&cdb))
    }

    /// One command, whose data it gives; `None` where the device refuses it.
    fn ask(&mut self, cdb: &Cdb) -> Result<Option<Vec<u8>>, HandlerFailure> {
        let asked = self.try_ask(cdb);
        asked.map_err(|reason| HandlerFailure::Unanswered(cdb.to_string(), Box::new(reason)))
    }

    fn try_ask(&mut self, cdb: &Cdb) -> Result<Option<Vec<u8>>, HandlerFailure> {
        for _ in 0..TRIES {
            let mut data = vec![0; usize::try_from(cdb.room).unwrap_or_default()];
            let ended = self.carry_out(cdb)?;
            let length = self.ring.end(&ended, &mut data);
            match ended.status {
                GOOD => {
                    data.truncate(length);
                    return Ok(Some(data));
                }
                CHECK_CONDITION if Sense::parse(&ended.sense).key == KEY_ATTENTION => {
                    self.had_attention = true;
                }
                BUSY | TASK_SET_FULL => wait(&mut [], BUSY_PAUSE),
                _ => return Ok(None),
            }
        }
        Err(HandlerFailure::Busy)
    }

    fn carry_out(&mut self, cdb: &Cdb) -> Result<Completion, HandlerFailure> {
        let command = Command {
            cdb: &cdb.bytes,
            nexus: 0,
            data_out: &cdb.data,
            data_in_bytes: cdb.room,
        };
        self.ring.put(&command).ok_or(HandlerFailure::Busy)?;
        if self.ring.must_wake() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.stream, &[0], flags) {
                // Bytes that it has not read wake it as well.
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(error) => return Err(HandlerFailure::BrokenOff(error.into())),
            }
        }
        loop {
            self.check_time()?;
            if let Some(ended) = self.ring.take()? {
                return Ok(ended);
            }
            if self.ring.sleep() {
                self.receive(&mut [0; 64])?;
            }
        }
    }

    /// How long it may still take.
    fn check_time(&self) -> Result<Duration, HandlerFailure> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(HandlerFailure::Silent),
            false => Ok(left),
        }
    }

    /// Waits for bytes, of which there is at least one then.
    fn receive(&self, bytes: &mut [u8]) -> Result<usize, HandlerFailure> {
        loop {
            let left = self.check_time()?;
            let mut places = [PollFd::new(&self.stream, PollFlags::IN)];
            wait(&mut places, left);
            let [place] = places;
            if place.revents().is_empty() {
                continue;
            }
            match (&self.stream).read(bytes) {
                Ok(0) => return Err(HandlerFailure::BrokenOff(ErrorKind::UnexpectedEof.into())),
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(HandlerFailure::BrokenOff(error)),
            }
        }
    }
}

/// The first bytes, with the descriptor of the memory.
fn send_hello(stream: &UnixStream, memory: &Mapping) -> io::Result<()> {
    let descriptor = memory.file().ok_or(ErrorKind::InvalidInput)?;
    let descriptors = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let hello = hello();
    // A new connection has room for that.
    let sent = sendmsg(
        stream,
        &[IoSlice::new(&hello)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    match sent == hello.len() {
        true => Ok(()),
        false => Err(ErrorKind::WriteZero.into()),
    }
}
