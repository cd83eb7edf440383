//! The handle of one core.
//!
//! A request is begun on the core and ends as mail. The library ends no request early: one that has begun waits for the
//! cluster as long as that takes, and a write among them may reach the medium at any time until then. So only requests
//! that change nothing are answered as not ready after the time of `retry`; their memory stays lent. A write is
//! answered when the library has ended it, and an initiator that gives it up is kept from its blocks by the engine.
//! What comes while nothing is answered is not begun.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use memory::{Buffer, Payload};
use rbd::{CallError, Completion, Image, Lent};
use store::{
    Backstore, Capabilities, Durability, IoAnswer, IoFailure, IoRequest, IoResult, IoTag, Outlet,
    Receiver, Sender, Submitted, Waker, channel, refuse,
};

use super::attendant;
use super::errno::{
    AGAIN, BLOCKLISTED, DIFFERENT, INPUT_OUTPUT, NO_BUFFER, NO_SPACE, NOT_CONNECTED, NOT_SUPPORTED,
    QUOTA, READ_ONLY, TIMED_OUT,
};
use super::options::RbdOptions;
use super::shared::{Mail, Standing, Users, Work};

/// How often requests under way are looked at.
const TICK: Duration = Duration::from_secs(1);
/// The only timer.
const TIMER: u64 = 0;
/// Requests that the library has at a time; more are returned.
const REQUESTS_MAX: usize = 256;
/// Requests that were answered, and that the library has nevertheless; with more, others are refused.
const ANSWERED_MAX: usize = 64;
/// Zeros are written in pieces of this size, so that others are served in between.
const ZEROS_BYTES_MAX: u64 = 64 << 20;

/// What the library compares at a time.
const SECTOR_BYTES: u64 = 512;

/// What a request has and what is left of it.
#[derive(Debug)]
enum Kind {
    Read(Lent<Buffer>),
    Write(Lent<Payload>),
    Zeros { rest: Range<u64>, keeps_space: bool },
    Flush,
    Extents,
}

/// A request that the library or the attendant has.
#[derive(Debug)]
struct Open {
    kind: Kind,
    offset: u64,
    /// Ticks since it began.
    age: u64,
    /// It was answered already.
    is_answered: bool,
    is_cancelled: bool,
}

/// An image as one core sees it.
#[derive(Debug)]
pub(super) struct RbdHandle {
    capabilities: Capabilities,
    number: usize,
    image: Option<Arc<Image>>,
    is_gone: bool,
    /// The image gets the data of a snapshot.
    is_closed: bool,
    is_held_elsewhere: bool,
    mail: Option<(Sender<Mail>, Receiver<Mail>)>,
    open: HashMap<IoTag, Open>,
    answered: usize,
    /// What came before the image was open.
    waiting: VecDeque<(IoTag, IoRequest)>,
    is_ticking: bool,
    /// Requests that nobody answers, as it was noted last.
    held: u64,
    /// Ticks since anything was answered while something could have been.
    silence: u64,
    is_reached: bool,
    /// Ticks until requests are answered as not ready.
    patience: u64,
    // The last one to be dropped: from then on nobody has the image.
    users: Arc<Users>,
}

impl RbdHandle {
    pub(super) fn new(users: Arc<Users>, number: usize) -> Self {
        let retry = users.common.options.retry.max(RbdOptions::RETRY_MIN);
        Self {
            capabilities: users.common.capabilities(),
            number,
            image: None,
            is_gone: false,
            is_closed: false,
            is_held_elsewhere: false,
            mail: None,
            open: HashMap::new(),
            answered: 0,
            waiting: VecDeque::new(),
            is_ticking: false,
            held: 0,
            silence: 0,
            is_reached: true,
            patience: retry.as_secs(),
            users,
        }
    }

    // ---- requests ----------------------------------------------------------------------------

    fn begin(&mut self, image: &Image, tag: IoTag, request: IoRequest) -> Result<(), CallError> {
        let Some((sender, _)) = &self.mail else {
            return Err(CallError {
                call: "start",
                errno: NOT_CONNECTED,
            });
        };
        let to = sender.clone();
        let done = move |completion| to.push(Mail::Ended { tag, completion });
        let (kind, offset) = match request {
            IoRequest::Read {
                offset,
                buffer: Some(buffer),
                ..
            } => (Kind::Read(image.read(offset, buffer, done)?), offset),
            // Nothing is read in place.
            IoRequest::Read { .. } => {
                return Err(CallError {
                    call: "rbd_aio_read",
                    errno: NO_BUFFER,
                });
            }
            IoRequest::Device(_) => {
                return Err(CallError {
                    call: "aio",
                    errno: NOT_SUPPORTED,
                });
            }
            IoRequest::Write { offset, data, .. } => (
                Kind::Write(image.write(offset, stable(data), done)?),
                offset,
            ),
            IoRequest::CompareAndWrite { offset, data, .. } => {
                let lent = image.compare_and_write(offset, stable(data), done)?;
                (Kind::Write(lent), offset)
            }
            IoRequest::Flush => {
                image.flush(done)?;
                (Kind::Flush, 0)
            }
            IoRequest::Unmap { range } => zeros(image, range, false, done)?,
            IoRequest::WriteZeros { range, .. } => zeros(image, range, true, done)?,
            IoRequest::Extents { range, count_max } => {
                let end = range.end.min(
                    range
                        .start
                        .saturating_add(self.users.common.found.walk_bytes),
                );
                let (to, offset) = (sender.clone(), range.start);
                self.users.ask(Work::Extents {
                    tag,
                    range: range.start..end,
                    count_max,
                    to,
                });
                (Kind::Extents, offset)
            }
        };
        let open = Open {
            kind,
            offset,
            age: 0,
            is_answered: false,
            is_cancelled: false,
        };
        self.open.insert(tag, open);
        Ok(())
    }

    /// The library has ended a request, or a piece of it.
    fn end(&mut self, tag: IoTag, completion: Completion, outlet: &mut Outlet) {
        self.note_life(outlet);
        let Some(mut open) = self.open.remove(&tag) else {
            debug_assert!(false, "{tag:?} has ended twice");
            return;
        };
        let is_over = open.is_cancelled || completion.result.is_err();
        if let Kind::Zeros { rest, keeps_space } = &open.kind
            && !is_over
            && !rest.is_empty()
            && let Some(image) = self.image.clone()
        {
            // A piece that comes after a rollback would be of data that nobody has seen.
            let again = match self.users.common.is_closed() {
                true => Err(CallError {
                    call: "rbd_aio_write_zeroes",
                    errno: AGAIN,
                }),
                false => self.begin_zeros(&image, tag, rest.clone(), *keeps_space),
            };
            match again {
                Ok(kind) => {
                    open.kind = kind;
                    self.open.insert(tag, open);
                }
                Err(error) => outlet.answer(tag, Err(self.failure(error.errno, open.offset))),
            }
            return;
        }
        let result = match completion.result {
            Ok(count) => ended(open.kind, count, open.offset, &completion),
            Err(errno) => {
                give_back(open.kind, &completion);
                match errno {
                    DIFFERENT => Err(IoFailure::Miscompare {
                        // The library counts from elsewhere where an object is not the first. The range is one sector.
                        offset: completion.mismatch % SECTOR_BYTES,
                    }),
                    errno => Err(self.failure(errno, open.offset)),
                }
            }
        };
        self.answer(tag, open.is_answered, open.is_cancelled, result, outlet);
    }

    fn begin_zeros(
        &self,
        image: &Image,
        tag: IoTag,
        range: Range<u64>,
        keeps_space: bool,
    ) -> Result<Kind, CallError> {
        let Some((sender, _)) = &self.mail else {
            return Ok(Kind::Flush);
        };
        let to = sender.clone();
        let done = move |completion| to.push(Mail::Ended { tag, completion });
        zeros(image, range, keeps_space, done).map(|(kind, _)| kind)
    }

    fn answer(
        &mut self,
        tag: IoTag,
        is_answered: bool,
        is_cancelled: bool,
        result: IoResult,
        outlet: &mut Outlet,
    ) {
        match (is_answered, is_cancelled) {
            (true, _) => {
                debug_assert!(self.answered > 0, "{tag:?} was not answered before");
                self.answered = self.answered.saturating_sub(1);
            }
            (false, true) => outlet.answer(tag, Err(IoFailure::Cancelled)),
            (false, false) => outlet.answer(tag, result),
        }
    }

    /// What an error number of the library means.
    fn failure(&self, errno: i32, offset: u64) -> IoFailure {
        match errno {
            BLOCKLISTED => {
                if let Some(image) = &self.image {
                    image.cluster().set_fenced();
                }
                self.users.ask(Work::Blocklisted);
                IoFailure::NotReady
            }
            NO_SPACE | QUOTA => IoFailure::NoSpace { offset },
            TIMED_OUT | NOT_CONNECTED | AGAIN => IoFailure::NotReady,
            READ_ONLY => {
                self.users.ask(Work::LockLost);
                IoFailure::NotReady
            }
            INPUT_OUTPUT => IoFailure::Medium { offset },
            errno => IoFailure::Hardware { errno },
        }
    }

    // ---- reach -------------------------------------------------------------------------------

    fn set_reach(&mut self, is_reached: bool, outlet: &mut Outlet) {
        if self.is_reached != is_reached {
            self.is_reached = is_reached;
            self.users.common.note_silence(self.number, !is_reached);
            outlet.report_reach(is_reached);
        }
    }

    /// Something was answered.
    fn note_life(&mut self, outlet: &mut Outlet) {
        self.silence = 0;
        if self.image.is_some() && !self.is_gone && !self.is_closed {
            self.set_reach(true, outlet);
        }
    }

    fn tick(&mut self, outlet: &mut Outlet) {
        self.silence += 1;
        if self.silence >= self.patience {
            self.set_reach(false, outlet);
        }
        for (tag, open) in &mut self.open {
            open.age += 1;
            let changes_nothing = match open.kind {
                Kind::Read(_) | Kind::Extents => true,
                Kind::Write(_) | Kind::Zeros { .. } | Kind::Flush => false,
            };
            if changes_nothing && open.age >= self.patience && !open.is_answered {
                open.is_answered = true;
                self.answered += 1;
                outlet.answer(*tag, Err(IoFailure::NotReady));
            }
        }
        if !self.is_reached {
            self.refuse_waiting(outlet);
        }
    }

    /// Why requests are not begun.
    const fn refusal(&self) -> IoFailure {
        match self.is_held_elsewhere {
            true => IoFailure::HeldElsewhere,
            false => IoFailure::NotReady,
        }
    }

    /// Nothing of what waits has begun.
    fn refuse_waiting(&mut self, outlet: &mut Outlet) {
        let failure = self.refusal();
        for (tag, _) in self.waiting.drain(..) {
            outlet.answer(tag, Err(failure.clone()));
        }
    }

    fn note_held(&mut self) {
        let silent = if self.silence > 0 { self.open.len() } else { 0 };
        let held = (self.waiting.len() + silent) as u64;
        if held != self.held {
            self.users.common.note_held(self.held, held);
            self.held = held;
        }
    }

    /// Ticks follow while anything is under way or waits.
    fn keep_ticking(&mut self, outlet: &mut Outlet) {
        self.note_held();
        let is_busy = !self.open.is_empty() || !self.waiting.is_empty();
        if is_busy && !self.is_ticking {
            self.is_ticking = true;
            outlet.set_timer(TIMER, TICK);
        }
        if !is_busy {
            self.silence = 0;
        }
    }

    /// The image has another standing or size.
    fn look(&mut self, outlet: &mut Outlet) {
        outlet.look_at_size();
        let is_held = self.users.common.is_held_elsewhere();
        if std::mem::replace(&mut self.is_held_elsewhere, is_held) != is_held {
            outlet.report_held_elsewhere(is_held);
        }
        let was_closed = std::mem::replace(&mut self.is_closed, self.users.common.is_closed());
        match self.users.common.standing() {
            Standing::Opening if is_held => self.refuse_waiting(outlet),
            Standing::Opening => {}
            Standing::Up(image) if self.image.is_none() => {
                self.image = Some(Arc::clone(&image));
                self.note_life(outlet);
                while let Some((tag, request)) = self.waiting.pop_front() {
                    if let Err(error) = self.begin(&image, tag, request) {
                        outlet.answer(tag, Err(self.failure(error.errno, 0)));
                    }
                }
            }
            Standing::Up(_) if self.is_closed => {
                self.set_reach(false, outlet);
                self.refuse_waiting(outlet);
            }
            Standing::Up(_) if was_closed => self.note_life(outlet),
            Standing::Up(_) => {}
            Standing::Gone => {
                self.is_gone = true;
                self.set_reach(false, outlet);
                self.refuse_waiting(outlet);
            }
        }
    }
}

/// Begins to write zeros: as many as go at a time.
fn zeros(
    image: &Image,
    range: Range<u64>,
    keeps_space: bool,
    done: impl FnOnce(Completion) + Send + 'static,
) -> Result<(Kind, u64), CallError> {
    let offset = range.start;
    let end = range.end.min(offset.saturating_add(ZEROS_BYTES_MAX));
    image.write_zeroes(offset..end, keeps_space, done)?;
    let rest = end..range.end;
    Ok((Kind::Zeros { rest, keeps_space }, offset))
}

/// The data where it does not change while the library has it.
fn stable(data: Payload) -> Payload {
    match data {
        Payload::Mapped(_) => Payload::Heap(data.to_vec()),
        Payload::Empty | Payload::Pool(_) | Payload::Received { .. } | Payload::Heap(_) => data,
    }
}

/// The answer to a request that went well.
fn ended(kind: Kind, count: u64, offset: u64, completion: &Completion) -> IoResult {
    match kind {
        Kind::Read(lent) => match lent.end(completion) {
            Some(buffer) if buffer.len() as u64 == count => {
                Ok(IoAnswer::Data(Payload::Pool(buffer)))
            }
            // The image has become smaller.
            Some(_) | None => Err(IoFailure::Truncated {
                offset: offset.saturating_add(count),
            }),
        },
        kind @ (Kind::Write(_) | Kind::Zeros { .. } | Kind::Flush | Kind::Extents) => {
            give_back(kind, completion);
            Ok(IoAnswer::Done)
        }
    }
}

/// The memory of a request that has ended.
fn give_back(kind: Kind, completion: &Completion) {
    match kind {
        Kind::Read(lent) => drop(lent.end(completion)),
        Kind::Write(lent) => drop(lent.end(completion)),
        Kind::Zeros { .. } | Kind::Flush | Kind::Extents => {}
    }
}

impl Backstore for RbdHandle {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn durability(&self) -> Durability {
        Durability::UNCOUNTED
    }

    fn start(&mut self, make_waker: &dyn Fn() -> Waker, outlet: &mut Outlet) {
        let (sender, receiver) = channel(make_waker());
        self.mail = Some((sender.clone(), receiver));
        if let Some(queue) = self.users.join(self.number, sender) {
            attendant::begin(&self.users.common, queue, self.users.work.clone());
        }
        self.look(outlet);
    }

    fn submit(&mut self, tag: IoTag, request: IoRequest, outlet: &mut Outlet) -> Submitted {
        if let Some(failure) = refuse(&self.capabilities, &request) {
            return Submitted::Done(Err(failure));
        }
        let is_refused = self.is_held_elsewhere || self.is_gone || !self.is_reached;
        if is_refused || self.answered >= ANSWERED_MAX {
            return Submitted::Done(Err(self.refusal()));
        }
        // Mail about that may be under way.
        if self.users.common.is_closed() {
            return Submitted::Done(Err(IoFailure::NotReady));
        }
        let Some(image) = self.image.clone() else {
            self.waiting.push_back((tag, request));
            self.keep_ticking(outlet);
            return Submitted::Taken;
        };
        if self.open.len() >= REQUESTS_MAX {
            outlet.give_back(request);
            return Submitted::Taken;
        }
        match self.begin(&image, tag, request) {
            Ok(()) => {
                self.keep_ticking(outlet);
                Submitted::Taken
            }
            Err(error) => Submitted::Done(Err(self.failure(error.errno, 0))),
        }
    }

    fn cancel(&mut self, tag: IoTag, outlet: &mut Outlet) {
        if let Some(at) = self.waiting.iter().position(|(one, _)| *one == tag) {
            self.waiting.remove(at);
            outlet.answer(tag, Err(IoFailure::Cancelled));
        }
        // What has begun cannot be ended; no more of it is begun.
        if let Some(open) = self.open.get_mut(&tag) {
            open.is_cancelled = true;
        }
    }

    fn handle_wake(&mut self, outlet: &mut Outlet) {
        let mail = self.mail.iter().flat_map(|(_, receiver)| receiver.take());
        for mail in mail.collect::<Vec<Mail>>() {
            match mail {
                Mail::Changed => self.look(outlet),
                Mail::Ended { tag, completion } => self.end(tag, completion, outlet),
                Mail::Mapped { tag, extents } => {
                    self.note_life(outlet);
                    let result = extents.map(IoAnswer::Extents);
                    if let Some(open) = self.open.remove(&tag) {
                        self.answer(tag, open.is_answered, open.is_cancelled, result, outlet);
                    }
                }
            }
        }
        self.keep_ticking(outlet);
    }

    fn handle_timer(&mut self, _number: u64, outlet: &mut Outlet) {
        self.is_ticking = false;
        if !self.open.is_empty() || !self.waiting.is_empty() {
            self.tick(outlet);
        }
        self.keep_ticking(outlet);
    }

    fn refresh_size(&mut self) -> Option<u64> {
        let size_bytes = self.users.common.capabilities().size_bytes;
        let before = std::mem::replace(&mut self.capabilities.size_bytes, size_bytes);
        (before != size_bytes).then_some(size_bytes)
    }
}

impl Drop for RbdHandle {
    fn drop(&mut self) {
        self.users.common.note_held(self.held, 0);
        self.users.leave(self.number);
    }
}
