//! A disk that is behind a server of NBD on a unix socket of this machine, for [`tree::Disk`].
//!
//! With the server, a process of its own, it shares one socket. When the server ends
//! nothing for `patience`, all ends with EIO, also what comes later: the disk is lost, and [`Client::wait_lost`]
//! returns. With the threads of the mount it shares `State`, for the time of a copy at most, and `Output` while a
//! request is sent. A thread that finds [`REQUESTS_MAX`] requests under way waits for the end of one, or for the loss.
//!
//! A thread reads answers, another one looks at the age of the oldest request once a second. Data is at most that of
//! [`REQUESTS_MAX`] requests of 2 MiB.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nbd::{
    Export, Handshake, Piece, Progress, ReadBuffer, Request, ServerError, SubmitError,
    TransmissionFlags, Work,
};
use tree::{Answer, Disk, DiskError, DiskShape};

/// Requests under way.
pub(super) const REQUESTS_MAX: u32 = 128;

/// Bytes that one request makes zero: an answer comes soon.
pub(super) const ZERO_BYTES_MAX: u32 = 1 << 30;

/// How long the server may take for its handshake: it runs on this machine.
const HANDSHAKE_MAX: Duration = Duration::from_secs(20);

/// Bytes that are received at once.
const RECEIVE_BYTES: usize = 256 << 10;

/// How often ages are looked at.
const LOOK: Duration = Duration::from_secs(1);

type Nbd = nbd::Client<Vec<u8>, Vec<u8>>;

/// Who waits for a request.
enum Waiter {
    Read(Answer<Vec<u8>>),
    /// All that brings no data.
    Done(Answer<()>),
}

impl Waiter {
    fn answer(self, result: Result<(), DiskError>, work: Work<Vec<u8>, Vec<u8>>) {
        match (self, work) {
            (
                Self::Read(answer),
                Work::Read {
                    buffer: ReadBuffer::Into(data),
                    ..
                },
            ) => answer(result.map(|()| data)),
            (Self::Read(answer), _) => answer(Err(DiskError::Io)),
            (Self::Done(answer), _) => answer(result),
        }
    }

    fn fail(self, error: DiskError) {
        match self {
            Self::Read(answer) => answer(Err(error)),
            Self::Done(answer) => answer(Err(error)),
        }
    }
}

/// Which writes the server answered and no flush has covered.
#[derive(Debug, Default)]
struct Writes {
    answered: u64,
    covered: u64,
    /// By the tag of a flush under way: what it covers.
    marks: BTreeMap<u64, u64>,
}

impl Writes {
    fn note_submitted(&mut self, tag: u64, is_flush: bool) {
        if is_flush {
            self.marks.insert(tag, self.answered);
        }
    }

    fn note_ended(&mut self, tag: u64, work: &Work<Vec<u8>, Vec<u8>>, is_done: bool) {
        let mark = self.marks.remove(&tag);
        match work {
            _ if !is_done => {}
            Work::Write { fua, .. } | Work::WriteZeroes { fua, .. } | Work::Trim { fua, .. } => {
                self.answered += u64::from(!fua);
            }
            Work::Flush => self.covered = self.covered.max(mark.unwrap_or_default()),
            Work::Read { .. } | Work::BlockStatus { .. } => {}
        }
    }

    const fn are_covered(&self) -> bool {
        self.covered == self.answered
    }
}

struct State {
    client: Nbd,
    writes: Writes,
    /// By tag; tags grow, so the first one is the oldest.
    waiting: BTreeMap<u64, (Instant, Waiter)>,
    next: u64,
    /// When a request ended last.
    heard: Instant,
    /// Why nothing reaches the disk any more.
    lost: Option<String>,
    is_closed: bool,
}

struct Shared {
    state: Mutex<State>,
    /// A request has ended, or the disk is lost.
    ended: Condvar,
    /// Held while requests are sent, so that they go out whole and in order.
    output: Mutex<UnixStream>,
    /// The same socket, to shut it down.
    control: UnixStream,
    patience: Duration,
    shape: DiskShape,
    flags: TransmissionFlags,
}

/// The disk.
pub(super) struct Client(Arc<Shared>);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    /// Finds the default export behind this socket. What the server holds for longer than `patience` is lost.
    ///
    /// # Errors
    ///
    /// There is none, or threads cannot be made.
    pub(super) fn open(mut stream: UnixStream, patience: Duration) -> io::Result<Self> {
        stream.set_read_timeout(Some(HANDSHAKE_MAX))?;
        stream.set_write_timeout(Some(HANDSHAKE_MAX))?;
        let (export, unread) = negotiate(&mut stream)?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(Some(patience))?;
        let mut client = Nbd::new(export, REQUESTS_MAX);
        client.handle_bytes(&unread).map_err(io::Error::other)?;
        let input = stream.try_clone()?;
        let shared = Arc::new(Shared {
            shape: DiskShape {
                size_bytes: export.size_bytes,
                block_bytes: export.block_min_bytes,
                is_read_only: export.flags.is_read_only(),
            },
            flags: export.flags,
            state: Mutex::new(State {
                client,
                writes: Writes::default(),
                waiting: BTreeMap::new(),
                next: 0,
                heard: Instant::now(),
                lost: None,
                is_closed: false,
            }),
            ended: Condvar::new(),
            control: stream.try_clone()?,
            output: Mutex::new(stream),
            patience,
        });
        let reader = Arc::clone(&shared);
        thread::Builder::new()
            .name("disk-answers".to_owned())
            .spawn(move || reader.receive(input))?;
        let watcher = Arc::clone(&shared);
        thread::Builder::new()
            .name("disk-ages".to_owned())
            .spawn(move || watcher.watch())?;
        Ok(Self(shared))
    }

    /// Waits until the disk is lost or closed; says why it is lost.
    pub(super) fn wait_lost(&self) -> Option<String> {
        let mut state = locked(&self.0.state);
        while state.lost.is_none() && !state.is_closed {
            state = self
                .0
                .ended
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.lost.clone()
    }

    /// Flushes, then takes no more requests. False where the flush failed, unless nothing was written since the one
    /// before.
    pub(super) fn close(&self) -> bool {
        let is_flushed = match self.0.shape.is_read_only {
            true => true,
            false => self.0.submit_and_wait(0, Work::Flush).is_ok(),
        };
        let mut state = locked(&self.0.state);
        state.is_closed = true;
        state.client.disconnect();
        let is_covered = state.writes.are_covered();
        drop(state);
        self.0.send();
        self.0.ended.notify_all();
        is_flushed || is_covered
    }

    pub(super) fn handle(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    /// Whether the server gives space back.
    pub(super) fn can_discard(&self) -> bool {
        self.0.flags.can_trim()
    }

    /// Whether the server makes zeros by itself.
    pub(super) fn can_zero(&self) -> bool {
        self.0.flags.can_write_zeroes()
    }

    /// Gives the space of so many bytes back; what they read then does not matter.
    pub(super) fn discard(&self, offset: u64, length: u32, answer: Answer<()>) {
        let fua = false;
        let work = Work::Trim { length, fua };
        self.0.submit(offset, work, Waiter::Done(answer));
    }
}

impl Shared {
    /// Hands a request over, when there is room for it.
    fn submit(&self, offset: u64, work: Work<Vec<u8>, Vec<u8>>, waiter: Waiter) {
        let mut work = work;
        let mut state = locked(&self.state);
        let refused = loop {
            if state.lost.is_some() || state.is_closed {
                break Some(DiskError::Io);
            }
            let tag = state.next;
            let is_flush = matches!(work, Work::Flush);
            match state.client.submit(Request { tag, offset, work }) {
                Ok(()) => {
                    state.writes.note_submitted(tag, is_flush);
                    break None;
                }
                Err((SubmitError::Full { .. }, request)) => {
                    work = request.work;
                    let waited = self.ended.wait(state);
                    state = waited.unwrap_or_else(PoisonError::into_inner);
                }
                Err((SubmitError::NotSupported, _)) => break Some(DiskError::NotSupported),
                Err(_) => break Some(DiskError::Io),
            }
        };
        match refused {
            Some(error) => {
                drop(state);
                waiter.fail(error);
            }
            None => {
                let tag = state.next;
                state.next += 1;
                state.waiting.insert(tag, (Instant::now(), waiter));
                drop(state);
                self.send();
            }
        }
    }

    /// Has a request without data done. It is answered at the latest when the disk is lost.
    fn submit_and_wait(&self, offset: u64, work: Work<Vec<u8>, Vec<u8>>) -> Result<(), DiskError> {
        let (sender, receiver) = channel();
        let answer = Box::new(move |result| {
            let _nobody_waits = sender.send(result);
        });
        self.submit(offset, work, Waiter::Done(answer));
        receiver.recv().unwrap_or(Err(DiskError::Io))
    }

    /// Sends what is to be sent. A request that arrives meanwhile waits, and may find that all has been sent.
    fn send(&self) {
        let mut output = locked(&self.output);
        let mut bytes = Vec::new();
        locked(&self.state)
            .client
            .transmit(usize::MAX, |piece| match piece {
                Piece::Header(header) => bytes.extend_from_slice(header),
                Piece::Data(data) => bytes.extend_from_slice(data),
            });
        if let Err(error) = output.write_all(&bytes) {
            drop(output);
            self.lose(&format!("its server takes no requests: {error}"));
        }
    }

    fn receive(&self, mut input: UnixStream) {
        let mut buffer = vec![0; RECEIVE_BYTES];
        let why = loop {
            let received = match input.read(&mut buffer) {
                Ok(0) => break "its server has ended".to_owned(),
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => break format!("its server is gone: {error}"),
            };
            let bytes = buffer.get(..received).unwrap_or_default();
            if let Err(violation) = self.take(bytes) {
                break violation.to_string();
            }
        };
        self.lose(&why);
    }

    fn take(&self, bytes: &[u8]) -> Result<(), nbd::Violation> {
        let mut done = Vec::new();
        let mut state = locked(&self.state);
        let taken = state.client.handle_bytes(bytes);
        while let Some(completion) = state.client.poll_completion() {
            let is_done = completion.result.is_ok();
            let tag = completion.tag;
            state.writes.note_ended(tag, &completion.work, is_done);
            if let Some((_, waiter)) = state.waiting.remove(&completion.tag) {
                done.push((completion.result, completion.work, waiter));
            }
        }
        if !done.is_empty() {
            state.heard = Instant::now();
        }
        drop(state);
        if !done.is_empty() {
            self.ended.notify_all();
        }
        for (result, work, waiter) in done {
            waiter.answer(result.map_err(error_of), work);
        }
        taken
    }

    /// Ends everything: nothing reaches the disk any more.
    fn lose(&self, why: &str) {
        let mut state = locked(&self.state);
        if state.lost.is_none() && !state.is_closed {
            state.lost = Some(why.to_owned());
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        // The threads that read and send end, too.
        let _gone = self.control.shutdown(Shutdown::Both);
        self.ended.notify_all();
        for (_, waiter) in waiting.into_values() {
            waiter.fail(DiskError::Io);
        }
    }

    fn watch(&self) {
        let mut state = locked(&self.state);
        while state.lost.is_none() && !state.is_closed {
            let oldest = state.waiting.first_key_value();
            // Many requests over a slow network are old and end one after the other. That each one ends is up to the
            // server, which has a time for it.
            let heard = state.heard;
            let is_hung =
                oldest.is_some_and(|(_, (since, _))| (*since).max(heard).elapsed() > self.patience);
            if is_hung {
                drop(state);
                let seconds = self.patience.as_secs();
                self.lose(&format!("its server has not answered for {seconds} s"));
                break;
            }
            let waited = self.ended.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Disk for Client {
    fn shape(&self) -> DiskShape {
        self.0.shape
    }

    fn read(&self, offset: u64, length: u32, answer: Answer<Vec<u8>>) {
        let bytes = usize::try_from(length).unwrap_or_default();
        let buffer = ReadBuffer::Into(vec![0; bytes]);
        let work = Work::Read { length, buffer };
        self.0.submit(offset, work, Waiter::Read(answer));
    }

    fn write(&self, offset: u64, data: Vec<u8>, is_durable: bool, answer: Answer<()>) {
        let work = Work::Write {
            length: u32::try_from(data.len()).unwrap_or_default(),
            data,
            fua: is_durable,
        };
        self.0.submit(offset, work, Waiter::Done(answer));
    }

    /// Waits for each part but the last: the thread that reads answers must not send.
    fn zero(&self, offset: u64, length: u64, keeps_space: bool, answer: Answer<()>) {
        let work = |part| Work::WriteZeroes {
            length: part,
            fua: false,
            no_hole: keeps_space,
            fast: false,
        };
        let (mut next, mut left) = (offset, length);
        while left > u64::from(ZERO_BYTES_MAX) {
            let result = self.0.submit_and_wait(next, work(ZERO_BYTES_MAX));
            if result.is_err() {
                return answer(result);
            }
            next += u64::from(ZERO_BYTES_MAX);
            left -= u64::from(ZERO_BYTES_MAX);
        }
        let last = u32::try_from(left).unwrap_or(ZERO_BYTES_MAX);
        self.0.submit(next, work(last), Waiter::Done(answer));
    }

    fn flush(&self, answer: Answer<()>) {
        self.0.submit(0, Work::Flush, Waiter::Done(answer));
    }
}

fn error_of(error: ServerError) -> DiskError {
    match error {
        ServerError::NO_SPACE => DiskError::NoSpace,
        ServerError::NOT_PERMITTED => DiskError::ReadOnly,
        ServerError::NOT_SUPPORTED => DiskError::NotSupported,
        _ => DiskError::Io,
    }
}

/// The default export, and what was received behind the handshake.
fn negotiate(stream: &mut UnixStream) -> io::Result<(Export, Vec<u8>)> {
    let mut handshake = Handshake::new("").map_err(io::Error::other)?;
    let mut buffer = [0; 4096];
    loop {
        let received = stream.read(&mut buffer)?;
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let bytes = buffer.get(..received).unwrap_or_default();
        let progress = handshake.handle_bytes(bytes).map_err(io::Error::other)?;
        stream.write_all(&handshake.take_output())?;
        match progress {
            Progress::Done(export) => return Ok((export, handshake.into_unread())),
            Progress::More => {}
            Progress::StartTls => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_covered_by_a_flush_that_begins_after_their_answers() {
        let write = |fua| Work::Write {
            length: 512,
            data: Vec::new(),
            fua,
        };
        let mut writes = Writes::default();
        assert!(writes.are_covered());
        writes.note_ended(0, &write(true), true);
        writes.note_ended(1, &write(false), false);
        assert!(writes.are_covered());
        writes.note_submitted(2, true);
        writes.note_ended(3, &write(false), true);
        writes.note_ended(2, &Work::Flush, true);
        assert!(!writes.are_covered());
        writes.note_submitted(4, true);
        writes.note_ended(4, &Work::Flush, false);
        assert!(!writes.are_covered());
        writes.note_submitted(5, true);
        writes.note_ended(5, &Work::Flush, true);
        assert!(writes.are_covered());
    }
}
