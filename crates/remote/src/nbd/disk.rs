//! The store, and its handle for one core.
//!
//! The connections of a store are dealt out to the cores. A core that gets none sends its jobs to one that has some,
//! copied; so a server that allows one connection has one, whatever the number of cores.
//!
//! A job is in one place at a time: waiting here, under way on a link, or away at another core. When a link is lost its
//! jobs wait again, as long as the outage may last, and are sent once more on the next connection. The server may have
//! carried them out before, which does no harm: each would write the same again. What it may have dropped, with its
//! cache, are writes that it answered and no flush covered; the next flush reports those.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use nbd::{Export, ServerError, Work};
use store::{
    Backstore, Bottom, Capabilities, Connections, Descriptor, Durability, HelperAnswer,
    HelperOperation, HelperResult, IoFailure, IoRequest, IoTag, Outlet, OwnFlush, PartTag,
    Receiver, SharedStore, SocketResult, SocketTag, Submitted, Waker, channel, refuse,
};

use super::job::{self, Brought, Job, JobWork};
use super::link::{Happened, Link};
use super::options::NbdOptions;
use super::request::{self, Open};
use super::shared::{Mail, Mailbox, Posted, Shared};
use super::tls::Tls;
use crate::words;

/// Between two attempts to connect. A connection that was up for so long has settled: when it is lost, another attempt
/// is made at once.
const PAUSE: Duration = Duration::from_secs(1);
/// For a connection to find the export.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// In the number of a timer: what it is for. The rest of the number says of what.
const TIMER_KIND: u64 = 3 << 62;
/// A request that was under way on so many lost connections is what they are lost for.
pub(super) const LOSSES_MAX: u8 = 8;
const TIMER_CONNECT: u64 = 0;
const TIMER_HANDSHAKE: u64 = 1 << 62;
const TIMER_OUTAGE: u64 = 2 << 62;
const TIMER_SETTLED: u64 = 3 << 62;

/// An export as a store.
#[derive(Debug)]
pub(super) struct NbdDisk(Arc<Shared>);

impl NbdDisk {
    pub(super) fn new(options: NbdOptions, export: Export, tls: Option<Tls>) -> Self {
        Self(Arc::new(Shared::new(options, export, tls)))
    }
}

impl SharedStore for NbdDisk {
    fn inner(&self) -> &dyn SharedStore {
        &Bottom
    }

    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        let number = self.0.next_number();
        Ok(Box::new(NbdHandle::new(Arc::clone(&self.0), number)))
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn probe_size(&self) -> io::Result<()> {
        // The protocol says the size at the start of a connection only.
        Ok(())
    }

    fn is_flush_latched(&self) -> bool {
        self.0.writes.has_failed()
    }

    fn connections(&self) -> Option<Connections> {
        Some(self.0.connections_now())
    }

    fn outage(&self) -> Option<String> {
        self.0.outage()
    }
}

/// Who gets the end of a job.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Request(IoTag),
    /// Another core, which calls it so.
    Peer {
        core: usize,
        number: u64,
    },
}

/// One of the connections of this core.
#[derive(Debug)]
enum Slot {
    /// Until a timer.
    Down,
    Connecting,
    Linked(Box<Link>),
}

/// How long nothing has been reachable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Reach {
    /// There is a connection.
    Up,
    /// There was none since the outage of this number began; what comes waits.
    Outage(u64),
    /// For too long; what comes fails.
    Lost,
}

/// Where a job goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Route {
    /// To this connection.
    Slot(usize),
    /// To this core.
    Away(usize),
    /// Back to the core that it came from.
    Back,
    /// Where it has to go has no room now.
    Aside,
    /// There is no connection with room.
    Nowhere,
}

/// A store behind an NBD server as one core sees it.
#[derive(Debug)]
pub(super) struct NbdHandle {
    shared: Arc<Shared>,
    number: usize,
    capabilities: Capabilities,
    slots: Vec<Slot>,
    sockets: u64,
    reach: Reach,
    outages: u64,
    mail: Option<Receiver<Mail>>,
    open: HashMap<IoTag, Open>,
    /// The jobs that are not over, by their tags.
    owners: HashMap<u64, Owner>,
    jobs: u64,
    waiting: VecDeque<Job>,
    away: HashMap<u64, Job>,
    /// What a flush under way covers.
    marks: HashMap<u64, u64>,
    /// On how many lost connections a job was under way.
    losses: HashMap<u64, u8>,
    /// How many connections had come up when a write began that is under way and will not be durable.
    begun: HashMap<u64, u64>,
    /// The core with connections is gone.
    is_left: bool,
    /// Jobs that wait, as it was noted last.
    held: u64,
    /// Jobs that are over and were not looked at yet.
    over: VecDeque<(Job, Result<(), IoFailure>)>,
}

impl NbdHandle {
    pub(super) fn new(shared: Arc<Shared>, number: usize) -> Self {
        let cores = shared.options.cores.max(1);
        let slots = (0..shared.connections).filter(|slot| slot % cores == number);
        Self {
            number,
            capabilities: shared.capabilities(),
            slots: slots.map(|_| Slot::Down).collect(),
            sockets: 0,
            reach: Reach::Up,
            outages: 0,
            mail: None,
            open: HashMap::new(),
            owners: HashMap::new(),
            jobs: 0,
            waiting: VecDeque::new(),
            away: HashMap::new(),
            marks: HashMap::new(),
            losses: HashMap::new(),
            begun: HashMap::new(),
            is_left: false,
            held: 0,
            over: VecDeque::new(),
            shared,
        }
    }

    // ---- jobs --------------------------------------------------------------------------------

    fn begin(&mut self, owner: Owner, offset: u64, work: JobWork) {
        let tag = self.jobs;
        self.jobs += 1;
        self.owners.insert(tag, owner);
        let job = Job { tag, offset, work };
        if self.is_refused(&job.work) {
            self.over.push_back((job, Err(IoFailure::FlushLatched)));
            return;
        }
        if matches!(job.work, Work::Flush) && !self.slots.is_empty() {
            self.marks.insert(tag, self.shared.writes.mark());
        }
        self.waiting.push_back(job);
    }

    /// Whether it cannot be said any more that all is durable: after a failed flush.
    fn is_refused(&self, work: &JobWork) -> bool {
        makes_durable(work) && self.shared.writes.has_failed()
    }

    /// Hands out what waits.
    fn hand_out(&mut self) {
        // Flushes that wait for room on a connection that covers everything: what is behind them need not.
        let mut aside = Vec::new();
        while let Some(job) = self.waiting.pop_front() {
            match self.route(&job) {
                Route::Away(core) => {
                    let Err((job, posted)) = self.send_away(job, core) else {
                        continue;
                    };
                    self.waiting.push_front(*job);
                    // A core that is gone has no connection any more.
                    if posted == Posted::NotYet || self.slots.is_empty() {
                        break;
                    }
                }
                Route::Back => self.send_back(&job, false),
                Route::Aside => aside.push(job),
                Route::Nowhere if self.reach == Reach::Lost => {
                    self.over.push_back((job, Err(IoFailure::NotReady)));
                }
                Route::Nowhere => {
                    self.waiting.push_front(job);
                    break;
                }
                // Between its beginning and now a flush may have failed.
                Route::Slot(_) if self.is_refused(&job.work) => {
                    self.over.push_back((job, Err(IoFailure::FlushLatched)));
                }
                Route::Slot(slot) => self.hand_to(slot, job),
            }
        }
        for job in aside.into_iter().rev() {
            self.waiting.push_front(job);
        }
    }

    fn hand_to(&mut self, slot: usize, job: Job) {
        let Some(Slot::Linked(link)) = self.slots.get_mut(slot) else {
            self.waiting.push_front(job);
            return;
        };
        if writes_volatile(&job.work) {
            self.begun.insert(job.tag, self.shared.count_ups());
        }
        if let Err(job) = link.submit(job) {
            // There is room, so the server does not take such a request.
            let failure = Err(IoFailure::Hardware { errno: 0 });
            self.over.push_back((*job, failure));
        }
    }

    /// The room of a connection for jobs.
    fn room_of(&self, slot: usize) -> usize {
        match self.slots.get(slot) {
            Some(Slot::Linked(link)) => link.room(),
            Some(Slot::Down | Slot::Connecting) | None => 0,
        }
    }

    /// Where a job goes now.
    fn route(&self, job: &Job) -> Route {
        let is_flush = matches!(job.work, Work::Flush) && self.capabilities.volatile_cache;
        if self.slots.is_empty() {
            // A core that has a connection, but none for a flush, would give it back.
            let fit = is_flush.then(|| self.shared.flushers());
            let fit = fit.and_then(|fit| fit.first().map(|(core, _)| *core));
            return Route::Away(fit.unwrap_or(self.number % self.shared.connections));
        }
        let emptiest = |slots: &mut dyn Iterator<Item = usize>| {
            let rooms = slots.map(|slot| (self.room_of(slot), slot));
            let best = rooms.max().filter(|(room, _)| *room > 0);
            best.map(|(_, slot)| slot)
        };
        if is_flush {
            let fit = self.shared.flushers();
            let mut own = fit.iter().filter(|(core, _)| *core == self.number);
            if own.clone().next().is_some() {
                let slot = emptiest(&mut own.by_ref().map(|(_, slot)| *slot));
                return slot.map_or(Route::Aside, Route::Slot);
            }
            let is_of_peer = matches!(self.owners.get(&job.tag), Some(Owner::Peer { .. }));
            match fit.first() {
                // It has come once from a core that may know better now.
                Some(_) if is_of_peer => return Route::Back,
                Some((core, _)) => return Route::Away(*core),
                None => {}
            }
        }
        let slot = emptiest(&mut (0..self.slots.len()));
        if slot.is_some() && matches!(job.work, Work::Flush) {
            // What is not covered was answered on connections that were closed.
            self.shared.writes.note_lost();
        }
        slot.map_or(Route::Nowhere, Route::Slot)
    }

    /// Gives a job of another core back to it.
    fn send_back(&mut self, job: &Job, is_lost: bool) {
        self.marks.remove(&job.tag);
        self.losses.remove(&job.tag);
        if let Some(Owner::Peer { core, number }) = self.owners.remove(&job.tag) {
            // A core that is gone needs none.
            let _posted = self.shared.post(core, Mail::Back { number, is_lost });
        }
    }

    /// Sends a job to a core that has connections; it comes back if that cannot be asked.
    fn send_away(&mut self, job: Job, home: usize) -> Result<(), (Box<Job>, Posted)> {
        let mail = Mail::Job {
            from: self.number,
            number: job.tag,
            offset: job.offset,
            work: job::to_foreign(&job.work),
        };
        match self.shared.post(home, mail) {
            Posted::Sent => {
                self.away.insert(job.tag, job);
                Ok(())
            }
            posted @ (Posted::NotYet | Posted::Gone) => {
                self.is_left = posted == Posted::Gone && self.slots.is_empty();
                Err((Box::new(job), posted))
            }
        }
    }

    /// Looks at what is over until nothing is, and keeps the links busy.
    fn settle(&mut self, outlet: &mut Outlet) {
        loop {
            self.hand_out();
            if self.is_left && self.slots.is_empty() {
                self.connect_alone(outlet);
            }
            let Some((job, result)) = self.over.pop_front() else {
                break;
            };
            self.end_job(job, result, outlet);
        }
        for slot in &mut self.slots {
            if let Slot::Linked(link) = slot {
                link.pump(outlet);
            }
        }
        let held = self.waiting.len() as u64;
        if held != self.held {
            self.shared.note_held(self.held, held);
            self.held = held;
        }
    }

    fn end_job(&mut self, job: Job, result: Result<(), IoFailure>, outlet: &mut Outlet) {
        let Job { tag, offset, work } = job;
        self.losses.remove(&tag);
        self.begun.remove(&tag);
        if let Some(mark) = self.marks.remove(&tag)
            && result.is_ok()
        {
            self.shared.writes.note_flushed(mark);
        }
        match self.owners.remove(&tag) {
            Some(Owner::Request(request)) => {
                if let Some(open) = self.open.get_mut(&request) {
                    open.end_job(offset, work, result);
                }
                self.carry_on(request, outlet);
            }
            Some(Owner::Peer { core, number }) => {
                let brought = Brought::from(work);
                let mail = Mail::Done {
                    number,
                    result,
                    brought,
                };
                // A core that is gone needs no answer.
                let _posted = self.shared.post(core, mail);
            }
            None => debug_assert!(false, "job {tag} is over twice"),
        }
    }

    /// Begins more of a request, or answers it.
    fn carry_on(&mut self, tag: IoTag, outlet: &mut Outlet) {
        while let Some((offset, work)) = self.open.get_mut(&tag).and_then(Open::take_job) {
            self.begin(Owner::Request(tag), offset, work);
        }
        let writes = &self.shared.writes;
        let open = self.open.get_mut(&tag);
        if let Some(result) = open.and_then(|open| open.result(writes)) {
            self.open.remove(&tag);
            outlet.answer(tag, result);
        }
    }

    fn is_cancelled(&self, job: &Job) -> bool {
        match self.owners.get(&job.tag) {
            Some(Owner::Request(tag)) => self.open.get(tag).is_some_and(Open::is_cancelled),
            Some(Owner::Peer { .. }) | None => false,
        }
    }

    // ---- links -------------------------------------------------------------------------------

    /// The core that had connections has closed them, as at the end of a unit. What is left, as the last flush, needs
    /// one.
    fn connect_alone(&mut self, outlet: &mut Outlet) {
        self.slots.push(Slot::Down);
        self.look_for_outage(self.shared.options.retry.max(HANDSHAKE_MAX), outlet);
        self.connect(0, outlet);
    }

    fn connect(&mut self, slot: usize, outlet: &mut Outlet) {
        if let Some(place @ Slot::Down) = self.slots.get_mut(slot) {
            *place = Slot::Connecting;
            let shared = Arc::clone(&self.shared);
            let work = Box::new(move || match shared.options.server.connect() {
                Ok(stream) => Ok(HelperAnswer::Socket(Descriptor::from(stream))),
                Err(error) => {
                    shared.note_reason(words(&error));
                    Err(IoFailure::NotReady)
                }
            });
            let name = "connect to an NBD server";
            outlet.help(PartTag::own(slot as u64), HelperOperation { name, work });
        }
    }

    fn link(&mut self, slot: usize, descriptor: Descriptor, outlet: &mut Outlet) {
        let socket = SocketTag(self.sockets);
        self.sockets += 1;
        // The name was good when the store was opened.
        let Ok(handshake) = self.shared.options.handshake() else {
            return;
        };
        outlet.open_socket(socket, descriptor);
        outlet.set_timer(TIMER_HANDSHAKE | socket.0, HANDSHAKE_MAX);
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Slot::Linked(Box::new(Link::new(socket, handshake, outlet)));
        }
    }

    fn slot_of(&mut self, socket: SocketTag) -> Option<(usize, &mut Link)> {
        let links = self.slots.iter_mut().enumerate();
        let mut links = links.filter_map(|(slot, place)| match place {
            Slot::Linked(link) => Some((slot, &mut **link)),
            Slot::Down | Slot::Connecting => None,
        });
        links.find(|(_, link)| link.socket() == socket)
    }

    /// Takes the jobs that a link is done with. True when the server shuts down: what it refuses for that is sent
    /// again, to the next one.
    fn collect(&mut self, slot: usize) -> bool {
        let mut is_ending = false;
        let Some(Slot::Linked(link)) = self.slots.get_mut(slot) else {
            return false;
        };
        let mut refused = Vec::new();
        while let Some(done) = link.poll() {
            if done.result.is_ok() && writes_volatile(&done.work) {
                let begun = self.begun.get(&done.tag).copied();
                self.shared.note_answered(begun.unwrap_or(0));
            }
            let job = Job {
                tag: done.tag,
                offset: done.offset,
                work: done.work,
            };
            if done.result == Err(ServerError::SHUTTING_DOWN) {
                is_ending = true;
                refused.push(job);
                continue;
            }
            if done.result == Err(ServerError::CACHE_LOST) && matches!(job.work, Work::Flush) {
                // Each connection has the report once, and the next flush is good.
                match self.losses.contains_key(&job.tag) {
                    true => self.shared.writes.note_lost(),
                    false => self.shared.writes.note_reported(),
                }
                refused.push(job);
                continue;
            }
            if done
                .result
                .is_err_and(|error| leaves_doubt(&job.work, error))
            {
                self.shared.writes.note_failed();
            }
            let failed = |error| request::failure_of(error, done.offset);
            self.over.push_back((job, done.result.map_err(failed)));
        }
        for job in refused {
            self.put_back(job);
        }
        is_ending
    }

    /// A job whose connection is lost waits for the next one.
    fn put_back(&mut self, job: Job) {
        let is_of_peer = matches!(self.owners.get(&job.tag), Some(Owner::Peer { .. }));
        if is_of_peer && matches!(job.work, Work::Flush) {
            // Its core counts what it was lost with, wherever it goes next.
            self.send_back(&job, true);
            return;
        }
        let losses = self.losses.entry(job.tag).or_default();
        *losses += 1;
        let is_cause = *losses >= LOSSES_MAX;
        if self.is_cancelled(&job) {
            self.over.push_back((job, Err(IoFailure::Cancelled)));
        } else if is_cause {
            self.over.push_back((job, Err(IoFailure::NotReady)));
        } else {
            self.waiting.push_back(job);
        }
    }

    /// A new connection found the export.
    fn take_export(&mut self, slot: usize, export: Export, outlet: &mut Outlet) -> Happened {
        if let Err(reason) = self.shared.check(&export) {
            return Happened::Broken(reason);
        }
        let Some(Slot::Linked(link)) = self.slots.get_mut(slot) else {
            return Happened::Progress;
        };
        let place = (self.number, slot);
        self.shared.note_up(place);
        self.shared.note_size(place, Some(export.size_bytes));
        let happened = link.begin_jobs(export);
        outlet.set_timer(TIMER_SETTLED | link.socket().0, PAUSE);
        self.set_reach(Reach::Up, outlet);
        happened
    }

    /// A connection is of no more use.
    fn lose(&mut self, slot: usize, reason: &str, outlet: &mut Outlet) {
        self.shared.note_reason(reason.to_owned());
        // A server that shuts down is lost all the same.
        let _is_ending = self.collect(slot);
        let Some(Slot::Linked(link)) = self.slots.get_mut(slot) else {
            return;
        };
        let was_up = link.is_up();
        link.close(outlet);
        if was_up {
            let server = &self.shared.options.server;
            let export = &self.shared.options.export;
            tracing::warn!(%server, export, reason, "a connection to an NBD server is lost");
            if self.capabilities.volatile_cache {
                self.shared.writes.note_lost();
            }
            self.shared.note_down((self.number, slot));
            self.look_for_outage(self.shared.options.retry, outlet);
        }
        self.clear_closed(slot, outlet);
    }

    /// Begins an outage when no link is left. What comes waits so long.
    fn look_for_outage(&mut self, retry: Duration, outlet: &mut Outlet) {
        let is_up = |slot: &Slot| matches!(slot, Slot::Linked(link) if link.is_up());
        if self.slots.is_empty() || self.slots.iter().any(is_up) {
            return;
        }
        if retry.is_zero() {
            self.set_reach(Reach::Lost, outlet);
            return;
        }
        self.outages += 1;
        self.set_reach(Reach::Outage(self.outages), outlet);
        outlet.set_timer(TIMER_OUTAGE | self.outages, retry);
    }

    fn set_reach(&mut self, reach: Reach, outlet: &mut Outlet) {
        let before = std::mem::replace(&mut self.reach, reach);
        self.shared.note_outage(self.number, reach != Reach::Up);
        let was_lost = before == Reach::Lost;
        let is_lost = reach == Reach::Lost;
        if was_lost != is_lost {
            outlet.report_reach(was_lost);
        }
    }

    /// When nothing is under way on a closed link, its jobs wait again, and a new connection is made.
    fn clear_closed(&mut self, slot: usize, outlet: &mut Outlet) {
        match self.slots.get_mut(slot) {
            Some(Slot::Linked(link)) if link.is_idle() => {}
            Some(_) | None => return,
        }
        let Some(place) = self.slots.get_mut(slot) else {
            return;
        };
        let Slot::Linked(link) = std::mem::replace(place, Slot::Down) else {
            return;
        };
        let has_settled = link.has_settled();
        for job in link.into_jobs() {
            self.put_back(job);
        }
        if has_settled {
            self.connect(slot, outlet);
        } else {
            outlet.set_timer(TIMER_CONNECT | slot as u64, PAUSE);
        }
    }

    // ---- other cores -------------------------------------------------------------------------

    fn handle_mail(&mut self, mail: Mail, outlet: &mut Outlet) {
        match mail {
            Mail::Hello => {}
            Mail::Size => outlet.look_at_size(),
            Mail::Job {
                from,
                number,
                offset,
                work,
            } => {
                let owner = Owner::Peer { core: from, number };
                self.begin(owner, offset, job::from_foreign(work));
            }
            Mail::Done {
                number,
                result,
                brought,
            } => {
                if let Some(mut job) = self.away.remove(&number) {
                    brought.put(&mut job.work);
                    self.over.push_back((job, result));
                }
            }
            Mail::Back { number, is_lost } => {
                let Some(job) = self.away.remove(&number) else {
                    return;
                };
                match is_lost || self.is_cancelled(&job) {
                    true => self.put_back(job),
                    false => self.waiting.push_back(job),
                }
            }
        }
    }
}

/// The server answered it, and may still lose it with its cache.
const fn writes_volatile(work: &JobWork) -> bool {
    match work {
        Work::Write { fua, .. } | Work::WriteZeroes { fua, .. } | Work::Trim { fua, .. } => !*fua,
        Work::Read { .. } | Work::Flush | Work::BlockStatus { .. } => false,
    }
}

/// What it has written, or all that was written before, is durable when it succeeds.
const fn makes_durable(work: &JobWork) -> bool {
    match work {
        Work::Flush => true,
        Work::Write { fua, .. } | Work::WriteZeroes { fua, .. } | Work::Trim { fua, .. } => *fua,
        Work::Read { .. } | Work::BlockStatus { .. } => false,
    }
}

/// Whether writes that the server answered before may be lost. The kernel of a server with a file reports that once.
fn leaves_doubt(work: &JobWork, error: ServerError) -> bool {
    match work {
        Work::Flush => true,
        // It does not say whether the data failed or its way to the medium; one that was refused did not begin.
        Work::Write { .. } | Work::WriteZeroes { .. } | Work::Trim { .. } => {
            makes_durable(work) && error == ServerError::IO
        }
        Work::Read { .. } | Work::BlockStatus { .. } => false,
    }
}

impl Backstore for NbdHandle {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn durability(&self) -> Durability {
        self.shared.writes.durability()
    }

    fn start(&mut self, make_waker: &dyn Fn() -> Waker, outlet: &mut Outlet) {
        let (sender, receiver) = channel(make_waker());
        self.mail = Some(receiver);
        // It was reached when it was opened.
        self.look_for_outage(self.shared.options.retry.max(HANDSHAKE_MAX), outlet);
        for slot in 0..self.slots.len() {
            self.connect(slot, outlet);
        }
        self.shared.set_mailbox(self.number, Mailbox::Here(sender));
    }

    fn submit(&mut self, tag: IoTag, request: IoRequest, outlet: &mut Outlet) -> Submitted {
        if let Some(failure) = refuse(&self.capabilities, &request) {
            return Submitted::Done(Err(failure));
        }
        if matches!(request, IoRequest::Flush) && !self.capabilities.volatile_cache {
            return Submitted::Done(Ok(store::IoAnswer::Done));
        }
        let flushing = OwnFlush::new(&self.shared.writes);
        let open = Open::new(request, &self.shared.export, flushing);
        self.open.insert(tag, open);
        self.carry_on(tag, outlet);
        self.settle(outlet);
        Submitted::Taken
    }

    fn cancel(&mut self, tag: IoTag, outlet: &mut Outlet) {
        if let Some(open) = self.open.get_mut(&tag) {
            open.cancel();
        }
        // What was sent comes back by the server's answer; the rest is over.
        let waiting = std::mem::take(&mut self.waiting);
        for job in waiting {
            if self.is_cancelled(&job) {
                self.over.push_back((job, Err(IoFailure::Cancelled)));
            } else {
                self.waiting.push_back(job);
            }
        }
        self.carry_on(tag, outlet);
        self.settle(outlet);
    }

    fn handle_helper_result(&mut self, part: PartTag, result: HelperResult, outlet: &mut Outlet) {
        let slot = usize::try_from(part.number).unwrap_or(usize::MAX);
        if let Ok(HelperAnswer::Socket(descriptor)) = result {
            self.link(slot, descriptor, outlet);
        } else {
            if let Some(place) = self.slots.get_mut(slot) {
                *place = Slot::Down;
            }
            outlet.set_timer(TIMER_CONNECT | part.number, PAUSE);
        }
        self.settle(outlet);
    }

    fn handle_socket(
        &mut self,
        socket: SocketTag,
        _number: u64,
        result: SocketResult,
        outlet: &mut Outlet,
    ) {
        let shared = Arc::clone(&self.shared);
        let Some((slot, link)) = self.slot_of(socket) else {
            return;
        };
        let mut happened = link.handle(result, shared.tls.as_ref());
        if let Happened::Found(export) = happened {
            happened = self.take_export(slot, export, outlet);
        }
        if self.collect(slot) && !matches!(happened, Happened::Broken(_)) {
            happened = Happened::Broken("the server shuts down".to_owned());
        }
        match happened {
            Happened::Broken(reason) => self.lose(slot, &reason, outlet),
            Happened::Progress | Happened::Found(_) => self.clear_closed(slot, outlet),
        }
        self.settle(outlet);
    }

    fn handle_wake(&mut self, outlet: &mut Outlet) {
        let mail = self.mail.iter().flat_map(Receiver::take);
        for mail in mail.collect::<Vec<Mail>>() {
            self.handle_mail(mail, outlet);
        }
        self.settle(outlet);
    }

    fn handle_timer(&mut self, number: u64, outlet: &mut Outlet) {
        let of = number & !TIMER_KIND;
        match number & TIMER_KIND {
            TIMER_CONNECT => self.connect(usize::try_from(of).unwrap_or(usize::MAX), outlet),
            TIMER_HANDSHAKE => {
                let found = self.slot_of(SocketTag(of));
                let late = found.filter(|(_, link)| link.is_shaking());
                if let Some((slot, _)) = late {
                    self.lose(slot, "the server does not answer", outlet);
                }
            }
            TIMER_SETTLED => {
                if let Some((_, link)) = self.slot_of(SocketTag(of)) {
                    link.settle();
                }
            }
            _ if self.reach == Reach::Outage(of) => self.set_reach(Reach::Lost, outlet),
            _ => {}
        }
        self.settle(outlet);
    }

    fn refresh_size(&mut self) -> Option<u64> {
        let size_bytes = self.shared.capabilities().size_bytes;
        let before = std::mem::replace(&mut self.capabilities.size_bytes, size_bytes);
        (before != size_bytes).then_some(size_bytes)
    }
}

impl Drop for NbdHandle {
    /// Other cores get their jobs back.
    fn drop(&mut self) {
        // Before its mailbox goes: who finds that gone looks for another connection.
        for slot in 0..self.slots.len() {
            self.shared.note_down((self.number, slot));
        }
        self.shared.set_mailbox(self.number, Mailbox::Gone);
        self.shared.note_outage(self.number, false);
        self.shared.note_held(self.held, 0);
        let unread = self.mail.take();
        let unread = unread.iter().flat_map(Receiver::take);
        // Not begun here: a flush would use up the report of a lost cache, and nobody would get it.
        let unread = unread.filter_map(|mail| match mail {
            Mail::Job { from, number, .. } => Some((from, number)),
            Mail::Hello | Mail::Size | Mail::Done { .. } | Mail::Back { .. } => None,
        });
        let begun = self.owners.values().filter_map(|owner| match *owner {
            Owner::Peer { core, number } => Some((core, number)),
            Owner::Request(_) => None,
        });
        for (core, number) in unread.chain(begun) {
            let is_lost = false;
            let _posted = self.shared.post(core, Mail::Back { number, is_lost });
        }
    }
}
