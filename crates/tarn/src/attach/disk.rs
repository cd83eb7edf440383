//! A disk that is behind a server of NBD on a unix socket of this machine.
//!
//! With the server, a process of its own, it shares one socket. When the server ends
//! nothing for `patience`, all ends with EIO, also what comes later: the disk is lost, and [`Client::wait_lost`]
//! returns. With the thread of the block device it shares `State`, for the time of a copy at most, and `Output` while a
//! request is sent. A request that exceeds [`REQUESTS_MAX`] ends with EIO.
//!
//! A thread reads answers, another one checks the age of the oldest request once a second.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nbd::{
    Export, Handshake, Piece, Progress, ReadBuffer, Request, ServerError, SubmitError, Work,
};
use reactor::Errno;
use reactor::ublk::{BlockShape, QUEUE_DEPTH};

/// Requests under way: those of the device, and the flush of the end.
const REQUESTS_MAX: u32 = QUEUE_DEPTH as u32 + 1;

/// How long the server may take for its handshake: it runs on this machine.
const HANDSHAKE_MAX: Duration = Duration::from_secs(20);

/// Bytes that are received at once.
const RECEIVE_BYTES: usize = 256 << 10;

/// How often ages are looked at.
const LOOK: Duration = Duration::from_secs(1);

type Nbd = nbd::Client<Vec<u8>, Vec<u8>>;

/// Called once with how a request ended, from any thread; the bytes of a read.
pub(super) type Answer = Box<dyn FnOnce(Result<Vec<u8>, Errno>) + Send>;

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
    waiting: BTreeMap<u64, (Instant, Answer)>,
    next: u64,
    /// When a request ended last.
    heard: Instant,
    /// Why nothing reaches the disk any more.
    lost: Option<String>,
    is_closed: bool,
}

struct Shared {
    state: Mutex<State>,
    /// The disk is lost or closed.
    ended: Condvar,
    /// Held while requests are sent, so that they go out whole and in order.
    output: Mutex<UnixStream>,
    /// The same socket, to shut it down.
    control: UnixStream,
    patience: Duration,
    shape: BlockShape,
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
            shape: BlockShape {
                size_bytes: export.size_bytes,
                block_bytes: export.block_min_bytes,
                is_read_only: export.flags.is_read_only(),
                can_discard: export.flags.can_trim(),
                can_zero: export.flags.can_write_zeroes(),
            },
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
            false => self.flush_and_wait().is_ok(),
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

    pub(super) fn shape(&self) -> BlockShape {
        self.0.shape
    }

    pub(super) fn read(&self, offset: u64, length: u32, answer: Answer) {
        let bytes = usize::try_from(length).unwrap_or_default();
        let buffer = ReadBuffer::Into(vec![0; bytes]);
        self.0.submit(offset, Work::Read { length, buffer }, answer);
    }

    /// Writes; `is_durable`: on stable storage before it is answered.
    pub(super) fn write(&self, offset: u64, data: Vec<u8>, is_durable: bool, answer: Answer) {
        let work = Work::Write {
            length: u32::try_from(data.len()).unwrap_or_default(),
            data,
            fua: is_durable,
        };
        self.0.submit(offset, work, answer);
    }

    /// Makes bytes read zeros; gives their space back, unless it is to be kept.
    pub(super) fn zero(&self, offset: u64, length: u32, keeps_space: bool, answer: Answer) {
        let work = Work::WriteZeroes {
            length,
            fua: false,
            no_hole: keeps_space,
            fast: false,
        };
        self.0.submit(offset, work, answer);
    }

    /// Gives the space of so many bytes back; what they read then does not matter.
    pub(super) fn discard(&self, offset: u64, length: u32, answer: Answer) {
        let fua = false;
        self.0.submit(offset, Work::Trim { length, fua }, answer);
    }

    /// Puts all that was answered on stable storage.
    pub(super) fn flush(&self, answer: Answer) {
        self.0.submit(0, Work::Flush, answer);
    }

    /// A flush is answered at the latest when the disk is lost.
    fn flush_and_wait(&self) -> Result<Vec<u8>, Errno> {
        let (sender, receiver) = channel();
        self.flush(Box::new(move |result| {
            let _nobody_waits = sender.send(result);
        }));
        receiver.recv().unwrap_or(Err(Errno::IO))
    }
}

impl Shared {
    /// Hands a request over.
    fn submit(&self, offset: u64, work: Work<Vec<u8>, Vec<u8>>, answer: Answer) {
        let mut state = locked(&self.state);
        let tag = state.next;
        let is_flush = matches!(work, Work::Flush);
        let submitted = match state.lost.is_some() || state.is_closed {
            true => Err(Errno::IO),
            false => {
                let submitted = state.client.submit(Request { tag, offset, work });
                submitted.map_err(|(error, _)| {
                    let is_unknown = matches!(error, SubmitError::NotSupported);
                    if is_unknown {
                        Errno::OPNOTSUPP
                    } else {
                        Errno::IO
                    }
                })
            }
        };
        if let Err(error) = submitted {
            drop(state);
            return answer(Err(error));
        }
        state.writes.note_submitted(tag, is_flush);
        state.next += 1;
        state.waiting.insert(tag, (Instant::now(), answer));
        drop(state);
        self.send();
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
            if let Some((_, answer)) = state.waiting.remove(&tag) {
                done.push((completion.result, completion.work, answer));
            }
        }
        if !done.is_empty() {
            state.heard = Instant::now();
        }
        drop(state);
        for (result, work, answer) in done {
            let data = if let Work::Read {
                buffer: ReadBuffer::Into(data),
                ..
            } = work
            {
                data
            } else {
                Vec::new()
            };
            answer(result.map(|()| data).map_err(error_of));
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
        for (_, answer) in waiting.into_values() {
            answer(Err(Errno::IO));
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

const fn error_of(error: ServerError) -> Errno {
    match error {
        ServerError::NO_SPACE => Errno::NOSPC,
        ServerError::NOT_PERMITTED => Errno::ROFS,
        ServerError::NOT_SUPPORTED => Errno::OPNOTSUPP,
        _ => Errno::IO,
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
    use std::sync::mpsc::Receiver;

    use nbd::TransmissionFlags;
    use nbd::server::{self, Exports, Offer};

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

    /// One export that can do this.
    struct One(TransmissionFlags);

    impl Exports for One {
        fn names(&self) -> Vec<String> {
            Vec::new()
        }

        fn find(&self, _: &str) -> Option<Offer> {
            Some(Offer {
                name: "disk".to_owned(),
                size_bytes: 1 << 20,
                flags: self.0.with(TransmissionFlags::HAS_FLAGS),
                block_min_bytes: 512,
                block_preferred_bytes: 4096,
            })
        }
    }

    const ALL: TransmissionFlags = TransmissionFlags::SEND_FLUSH
        .with(TransmissionFlags::SEND_FUA)
        .with(TransmissionFlags::SEND_TRIM)
        .with(TransmissionFlags::SEND_WRITE_ZEROES);

    /// The side of the server after the handshake.
    struct Server(UnixStream);

    impl Server {
        fn agreed(mut stream: UnixStream, flags: TransmissionFlags) -> Self {
            let mut handshake = server::Handshake::new(server::Tls::Off);
            let mut buffer = [0; 4096];
            loop {
                stream.write_all(&handshake.take_output()).unwrap();
                let received = stream.read(&mut buffer).unwrap();
                let progress = handshake.handle_bytes(&buffer[..received], &One(flags));
                if let server::Progress::Done(_) = progress.unwrap() {
                    stream.write_all(&handshake.take_output()).unwrap();
                    return Self(stream);
                }
            }
        }

        /// The next request, and its data.
        fn next(&mut self) -> (server::Request, Vec<u8>) {
            let mut header = [0; server::REQUEST_BYTES];
            self.0.read_exact(&mut header).unwrap();
            let request = server::Request::parse(&header).unwrap();
            let mut data = vec![0; request.data_bytes() as usize];
            self.0.read_exact(&mut data).unwrap();
            (request, data)
        }

        /// Takes the next request, and answers it: with this error, or with sevens.
        fn answer(&mut self, error: Option<ServerError>) -> (server::Request, Vec<u8>) {
            let (request, data) = self.next();
            let cookie = request.cookie;
            let reply = match (error, request.command) {
                (Some(error), _) => server::error_chunk(cookie, error).to_vec(),
                (None, server::Command::Read) => {
                    let (offset, length) = (request.offset, request.length);
                    let head = server::data_chunk(cookie, true, offset, length);
                    [&head[..], &vec![7; length as usize]].concat()
                }
                (None, _) => server::none_chunk(cookie).to_vec(),
            };
            self.0.write_all(&reply).unwrap();
            (request, data)
        }
    }

    fn served_for(flags: TransmissionFlags, patience: Duration) -> (Client, Server) {
        let (near, far) = UnixStream::pair().unwrap();
        let server = thread::spawn(move || Server::agreed(far, flags));
        let disk = Client::open(near, patience).unwrap();
        (disk, server.join().unwrap())
    }

    fn served(flags: TransmissionFlags) -> (Client, Server) {
        served_for(flags, Duration::from_secs(600))
    }

    type Outcome = Result<Vec<u8>, Errno>;

    /// What takes an answer, and where it arrives.
    fn awaited() -> (Answer, Receiver<Outcome>) {
        let (sender, receiver) = channel();
        (
            Box::new(move |result| sender.send(result).unwrap()),
            receiver,
        )
    }

    #[test]
    fn requests_reach_the_server_as_they_are_and_its_answers_the_caller() {
        use server::Command::{Flush, Read, Trim, Write, WriteZeroes};
        let (disk, mut server) = served(ALL);
        let zeroes = |no_hole| WriteZeroes {
            no_hole,
            fast: false,
        };
        type Submit = fn(&Client, Answer);
        let end = (1 << 20) - 512;
        let none = || Ok(Vec::new());
        #[rustfmt::skip]
        let rows: [(Submit, _, Option<ServerError>, Outcome); 9] = [
            (|disk, answer| disk.read(512, 1024, answer), (Read, 512, 1024, false), None, Ok(vec![7; 1024])),
            (|disk, answer| disk.write(1024, vec![5; 512], true, answer), (Write, 1024, 512, true), None, none()),
            (|disk, answer| disk.write(0, vec![5; 512], false, answer), (Write, 0, 512, false), Some(ServerError::NO_SPACE), Err(Errno::NOSPC)),
            (|disk, answer| disk.zero(512, 512, true, answer), (zeroes(true), 512, 512, false), Some(ServerError::NOT_PERMITTED), Err(Errno::ROFS)),
            (|disk, answer| disk.zero(0, 1024, false, answer), (zeroes(false), 0, 1024, false), None, none()),
            (|disk, answer| disk.discard(512, 2048, answer), (Trim, 512, 2048, false), Some(ServerError::NOT_SUPPORTED), Err(Errno::OPNOTSUPP)),
            (|disk, answer| disk.flush(answer), (Flush, 0, 0, false), Some(ServerError::IO), Err(Errno::IO)),
            (|disk, answer| disk.flush(answer), (Flush, 0, 0, false), None, none()),
            (|disk, answer| disk.read((1 << 20) - 512, 512, answer), (Read, end, 512, false), Some(ServerError::INVALID), Err(Errno::IO)),
        ];
        for (submit, expected, error, outcome) in rows {
            let (answer, arrived) = awaited();
            submit(&disk, answer);
            let (request, data) = server.answer(error);
            let seen = (request.command, request.offset, request.length, request.fua);
            assert_eq!(seen, expected);
            assert!(data.iter().all(|byte| *byte == 5));
            assert_eq!(arrived.recv().unwrap(), outcome, "{expected:?}");
        }
        // What is behind the end or no block is not sent.
        for (offset, length) in [(1 << 20, 512), (0, 511), (1, 512)] {
            let (answer, arrived) = awaited();
            disk.read(offset, length, answer);
            assert_eq!(arrived.recv().unwrap(), Err(Errno::IO), "{offset} {length}");
        }
    }

    #[test]
    fn a_disk_can_what_its_export_can() {
        for (flags, expected) in [
            (TransmissionFlags::SEND_FLUSH, [false, false, false]),
            (TransmissionFlags::READ_ONLY, [true, false, false]),
            (TransmissionFlags::SEND_TRIM, [false, true, false]),
            (TransmissionFlags::SEND_WRITE_ZEROES, [false, false, true]),
        ] {
            let (disk, _server) = served(flags);
            let shape = disk.shape();
            assert_eq!((shape.size_bytes, shape.block_bytes), (1 << 20, 512));
            let can = [shape.is_read_only, shape.can_discard, shape.can_zero];
            assert_eq!(can, expected);
            if !shape.can_discard {
                let (answer, arrived) = awaited();
                disk.discard(0, 512, answer);
                assert_eq!(arrived.recv().unwrap(), Err(Errno::OPNOTSUPP));
            }
        }
    }

    #[test]
    fn a_disk_that_is_closed_is_flushed_and_tells_whether_that_covers_all_writes() {
        let failed = Some(ServerError::IO);
        for (write, flush, is_good) in [
            (None, None, true),
            (None, failed, true),
            (Some(true), failed, true),
            (Some(false), failed, false),
            (Some(false), None, true),
        ] {
            let (disk, mut server) = served(ALL);
            let far = thread::spawn(move || {
                if write.is_some() {
                    server.answer(None);
                }
                let (flushed, _) = server.answer(flush);
                assert_eq!(flushed.command, server::Command::Flush);
                server.next().0.command
            });
            if let Some(is_durable) = write {
                let (answer, arrived) = awaited();
                disk.write(0, vec![0; 512], is_durable, answer);
                assert_eq!(arrived.recv().unwrap(), Ok(vec![]));
            }
            assert_eq!(disk.close(), is_good, "{write:?} {flush:?}");
            assert_eq!(far.join().unwrap(), server::Command::Disconnect);
            let (answer, arrived) = awaited();
            disk.read(0, 512, answer);
            assert_eq!(arrived.recv().unwrap(), Err(Errno::IO));
            // It is not lost, also when its server ends then.
            assert_eq!(disk.wait_lost(), None);
        }
        let (disk, mut server) = served(TransmissionFlags::READ_ONLY);
        assert!(disk.close());
        assert_eq!(server.next().0.command, server::Command::Disconnect);
    }

    #[test]
    fn a_server_that_ends_ends_all_requests_and_those_that_come_later() {
        let (disk, server) = served(ALL);
        let read = || {
            let (answer, arrived) = awaited();
            disk.read(0, 512, answer);
            arrived
        };
        let before = read();
        drop(server);
        assert_eq!(before.recv().unwrap(), Err(Errno::IO));
        assert!(disk.wait_lost().is_some());
        assert_eq!(read().recv().unwrap(), Err(Errno::IO));
        // Nothing was written.
        assert!(disk.close());
    }

    #[test]
    fn what_is_wrong_with_a_server_is_said() {
        let (disk, server) = served(ALL);
        server.0.shutdown(Shutdown::Write).unwrap();
        assert_eq!(disk.wait_lost().as_deref(), Some("its server has ended"));
        let (disk, mut server) = served(ALL);
        server.0.write_all(&[1; 20]).unwrap();
        let why = disk.wait_lost().unwrap();
        assert!(why.contains("0x01010101"), "{why}");
        let (disk, mut server) = served_for(ALL, Duration::from_millis(1));
        let (answer, arrived) = awaited();
        disk.flush(answer);
        server.next();
        let why = disk.wait_lost();
        assert_eq!(why.as_deref(), Some("its server has not answered for 0 s"));
        assert_eq!(arrived.recv().unwrap(), Err(Errno::IO));
        let (near, far) = UnixStream::pair().unwrap();
        drop(far);
        let error = Client::open(near, LOOK).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_request_beyond_the_most_fails_and_none_before_it() {
        let (disk, _server) = served(ALL);
        let (sender, receiver) = channel();
        for number in 0..=REQUESTS_MAX {
            let sender = sender.clone();
            disk.flush(Box::new(move |result| {
                sender.send((number, result)).unwrap();
            }));
        }
        assert_eq!(receiver.recv().unwrap(), (REQUESTS_MAX, Err(Errno::IO)));
        assert!(receiver.try_recv().is_err());
    }
}
