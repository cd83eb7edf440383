//! The store, and its handle for one core: that cuts requests into jobs for the attendant, and puts together what comes
//! back as mail.
//!
//! All cores share one session, so what one of them flushes covers the writes of all. Data is copied once on its way
//! between the core and the attendant.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memory::{Buffer, Payload};
use store::{
    Backstore, Bottom, Capabilities, Connections, Durability, Extent, IoAnswer, IoFailure,
    IoRequest, IoResult, IoTag, Outlet, OwnFlush, Receiver, SharedStore, Submitted, Waker, channel,
    refuse,
};

use super::command::{Facts, ZEROS_BYTES_MAX};
use super::job::{Brought, Bytes, Job, Letter, Mail, Work};
use super::shared::{Common, Users};

/// Requests that are taken at a time; more are returned.
const REQUESTS_MAX: usize = 256;
/// Jobs of one request that are under way at a time.
const JOBS_MAX: usize = 4;
/// Data of jobs under way for all requests. One job may always begin.
const BYTES_MAX: u64 = 8 << 20;
/// `EOPNOTSUPP`.
const NOT_SUPPORTED: i32 = 95;
/// Zeros that are sent, because the device cannot write them by itself.
const FIELD_BYTES: u64 = 64 << 10;

/// A device as a store.
#[derive(Debug)]
pub(crate) struct ScsiDisk {
    users: Arc<Users>,
    handles: AtomicUsize,
}

impl ScsiDisk {
    pub(crate) fn new(common: Common) -> Self {
        Self {
            users: Arc::new(Users(Arc::new(common))),
            handles: AtomicUsize::new(0),
        }
    }
}

impl SharedStore for ScsiDisk {
    fn inner(&self) -> &dyn SharedStore {
        &Bottom
    }

    fn identity(&self) -> Option<String> {
        let identity = self.users.0.facts.identity.as_ref();
        identity.map(|identity| identity.best().to_owned())
    }

    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        let number = self.handles.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(ScsiHandle::new(Arc::clone(&self.users), number)))
    }

    fn capabilities(&self) -> Capabilities {
        self.users.0.capabilities()
    }

    fn probe_size(&self) -> io::Result<()> {
        // The device reports a change to the attendant.
        Ok(())
    }

    fn is_flush_latched(&self) -> bool {
        self.users.0.writes.has_failed()
    }

    fn outage(&self) -> Option<String> {
        self.users.0.outage()
    }

    fn connections(&self) -> Option<Connections> {
        Some(self.users.0.connections())
    }
}

/// What the rest of a request is cut into.
#[derive(Debug)]
enum Cut {
    Reads,
    Writes {
        data: Payload,
        durable: bool,
    },
    Zeros {
        unmap: bool,
    },
    /// Zeros that are sent.
    Field,
    Compare {
        data: Payload,
        durable: bool,
    },
    Extents {
        count_max: usize,
    },
    Flush,
}

/// A request under way.
#[derive(Debug)]
struct Open {
    range: Range<u64>,
    /// What is not begun.
    rest: Range<u64>,
    cut: Option<Cut>,
    /// A flush follows at the end, as the device has written something that is to be durable and is not.
    needs_flush: bool,
    flushing: OwnFlush,
    jobs: Vec<u64>,
    buffer: Option<Buffer>,
    extents: Option<Vec<Extent>>,
    failure: Option<IoFailure>,
    is_cancelled: bool,
}

impl Open {
    fn new(request: IoRequest, facts: &Facts, flushing: OwnFlush) -> Self {
        let mut buffer = None;
        let mut failure = None;
        let mut needs_flush = false;
        let zeros = |unmap: bool| match facts.zeros_bytes_max {
            0 => Cut::Field,
            _ => Cut::Zeros { unmap },
        };
        let (range, cut) = match request {
            IoRequest::Read {
                offset,
                len,
                buffer: space,
            } => {
                buffer = space;
                (offset..offset + len as u64, Cut::Reads)
            }
            IoRequest::Write {
                offset,
                data,
                durable,
            } => {
                let range = offset..offset + data.len() as u64;
                (range, Cut::Writes { data, durable })
            }
            IoRequest::Flush => (0..1, Cut::Flush),
            IoRequest::Unmap { range } => (range, zeros(facts.can_unmap)),
            IoRequest::WriteZeros { range, durable } => {
                needs_flush = durable;
                (range, zeros(false))
            }
            IoRequest::CompareAndWrite {
                offset,
                data,
                durable,
            } => {
                let range = offset..offset + data.len() as u64 / 2;
                (range, Cut::Compare { data, durable })
            }
            IoRequest::Extents { range, count_max } => (range, Cut::Extents { count_max }),
            // No disk says that it is one.
            IoRequest::Device(_) => {
                failure = Some(IoFailure::Hardware {
                    errno: NOT_SUPPORTED,
                });
                (0..0, Cut::Flush)
            }
        };
        let mut open = Self {
            rest: range.clone(),
            range,
            cut: Some(cut),
            needs_flush,
            flushing,
            jobs: Vec::new(),
            buffer,
            extents: None,
            failure,
            is_cancelled: false,
        };
        if matches!(open.cut, Some(Cut::Extents { .. })) && !facts.has_status {
            // What the device does not say is taken for data.
            let mapped = true;
            let range = open.range.clone();
            open.extents = Some(vec![Extent { range, mapped }]);
            open.cut = None;
        }
        open
    }

    /// The next job, with its offset and how much data it moves, if one may begin now.
    fn take_job(&mut self, facts: &Facts) -> Option<(u64, u64, Work)> {
        if self.jobs.len() >= JOBS_MAX || self.failure.is_some() {
            return None;
        }
        if self.cut.is_none() && self.needs_flush && self.jobs.is_empty() {
            self.needs_flush = false;
            self.flushing.begin();
            return Some((0, 0, Work::Flush));
        }
        let longest = match self.cut.as_ref()? {
            Cut::Reads | Cut::Writes { .. } => u64::from(facts.transfer_bytes_max),
            Cut::Zeros { .. } => facts.zeros_bytes_max.min(ZEROS_BYTES_MAX),
            Cut::Field => FIELD_BYTES.min(facts.transfer_bytes_max.into()),
            Cut::Compare { .. } | Cut::Extents { .. } | Cut::Flush => u64::MAX,
        };
        let end = self.rest.start.saturating_add(longest).min(self.rest.end);
        let (offset, length) = (self.rest.start, end - self.rest.start);
        let job = self.piece(offset, length)?;
        self.rest.start = end;
        if self.rest.is_empty() {
            self.cut = None;
        }
        Some(job)
    }

    fn piece(&self, offset: u64, length: u64) -> Option<(u64, u64, Work)> {
        let part = |data: &Payload, from: u64, length: u64| {
            let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
            data.copy_to(usize::try_from(from).unwrap_or_default(), &mut bytes);
            Bytes::from(bytes)
        };
        Some(match self.cut.as_ref()? {
            Cut::Reads => {
                let bytes = u32::try_from(length).unwrap_or(u32::MAX);
                (offset, length, Work::Read { bytes })
            }
            Cut::Writes { data, durable } => {
                let data = part(data, offset - self.range.start, length);
                let durable = *durable;
                (offset, length, Work::Write { data, durable })
            }
            Cut::Zeros { unmap } => {
                let (bytes, unmap) = (length, *unmap);
                (offset, 0, Work::Zeros { bytes, unmap })
            }
            Cut::Field => {
                let data = vec![0; usize::try_from(length).unwrap_or_default()].into();
                let durable = false;
                (offset, length, Work::Write { data, durable })
            }
            Cut::Compare { data, durable } => {
                let both = part(data, 0, length * 2);
                let durable = *durable;
                (
                    offset,
                    length * 2,
                    Work::Compare {
                        data: both,
                        durable,
                    },
                )
            }
            Cut::Extents { count_max } => {
                let (range, count_max) = (self.range.clone(), *count_max);
                (offset, 0, Work::Extents { range, count_max })
            }
            Cut::Flush => (0, 0, Work::Flush),
        })
    }

    fn end_job(&mut self, number: u64, offset: u64, result: Result<Brought, IoFailure>) {
        self.jobs.retain(|job| *job != number);
        match result {
            Ok(Brought::Nothing) => {}
            // Nobody waits for a flush of one that is cancelled.
            Ok(Brought::Volatile) => self.needs_flush = !self.is_cancelled,
            Ok(Brought::Extents(found)) => self.extents = Some(found),
            Ok(Brought::Data(data)) => {
                let start = usize::try_from(offset - self.range.start).unwrap_or(usize::MAX);
                let end = start.saturating_add(data.len());
                let place = self.buffer.as_mut().and_then(|all| all.get_mut(start..end));
                if let Some(place) = place {
                    place.copy_from_slice(&data);
                }
            }
            Err(failure) => {
                self.failure.get_or_insert(failure);
            }
        }
    }

    /// The result, when nothing of it is under way or left.
    fn result(&mut self) -> Option<IoResult> {
        if !self.jobs.is_empty() {
            return None;
        }
        if self.is_cancelled {
            return Some(Err(IoFailure::Cancelled));
        }
        if let Some(failure) = self.failure.take() {
            return Some(Err(failure));
        }
        if self.cut.is_some() || self.needs_flush {
            return None;
        }
        Some(Ok(match (self.buffer.take(), self.extents.take()) {
            (Some(buffer), _) => IoAnswer::Data(buffer.into()),
            (None, Some(found)) => IoAnswer::Extents(found),
            (None, None) => IoAnswer::Done,
        }))
    }
}

/// A device as one core sees it.
#[derive(Debug)]
pub(crate) struct ScsiHandle {
    number: usize,
    capabilities: Capabilities,
    mail: Option<Receiver<Mail>>,
    open: HashMap<IoTag, Open>,
    /// Requests that are not begun whole, in the order in which they came.
    unfinished: VecDeque<IoTag>,
    /// Of each job: its request, its place, and its data.
    jobs: HashMap<u64, (IoTag, u64, u64)>,
    next: u64,
    bytes: u64,
    // The last one to be dropped: from then on nobody has the store.
    users: Arc<Users>,
}

impl ScsiHandle {
    pub(crate) fn new(users: Arc<Users>, number: usize) -> Self {
        Self {
            number,
            capabilities: users.0.capabilities(),
            mail: None,
            open: HashMap::new(),
            unfinished: VecDeque::new(),
            jobs: HashMap::new(),
            next: 0,
            bytes: 0,
            users,
        }
    }

    /// Begins as many jobs as there is room for, and answers what is over.
    fn settle(&mut self, outlet: &mut Outlet) {
        let facts = self.users.0.now();
        let tags = std::mem::take(&mut self.unfinished);
        for tag in tags {
            let Some(open) = self.open.get_mut(&tag) else {
                continue;
            };
            while (self.bytes < BYTES_MAX || self.jobs.is_empty())
                && let Some((offset, bytes, work)) = open.take_job(&facts)
            {
                let number = self.next;
                self.next += 1;
                self.bytes += bytes;
                self.jobs.insert(number, (tag, offset, bytes));
                open.jobs.push(number);
                let job = Job::new(self.number, number, offset, work);
                self.users.0.post(Letter::Job(job));
            }
            match open.result() {
                Some(result) => {
                    let result = open.flushing.settle(result, &self.users.0.writes);
                    self.open.remove(&tag);
                    outlet.answer(tag, result);
                }
                None => self.unfinished.push_back(tag),
            }
        }
    }
}

impl Backstore for ScsiHandle {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn durability(&self) -> Durability {
        self.users.0.writes.durability()
    }

    fn start(&mut self, make_waker: &dyn Fn() -> Waker, _outlet: &mut Outlet) {
        let (sender, receiver) = channel(make_waker());
        self.mail = Some(receiver);
        self.users.0.begin(self.number, sender);
    }

    fn submit(&mut self, tag: IoTag, request: IoRequest, outlet: &mut Outlet) -> Submitted {
        if let Some(failure) = refuse(&self.capabilities, &request) {
            return Submitted::Done(Err(failure));
        }
        if self.users.0.is_gone() {
            return Submitted::Done(Err(IoFailure::NotReady));
        }
        if self.open.len() >= REQUESTS_MAX {
            outlet.give_back(request);
            return Submitted::Taken;
        }
        let flushing = OwnFlush::new(&self.users.0.writes);
        let open = Open::new(request, &self.users.0.now(), flushing);
        self.open.insert(tag, open);
        self.unfinished.push_back(tag);
        self.settle(outlet);
        Submitted::Taken
    }

    fn cancel(&mut self, tag: IoTag, outlet: &mut Outlet) {
        if let Some(open) = self.open.get_mut(&tag) {
            open.is_cancelled = true;
            open.cut = None;
            open.needs_flush = false;
            let core = self.number;
            for &number in &open.jobs {
                self.users.0.post(Letter::Cancel { core, number });
            }
        }
        self.settle(outlet);
    }

    fn handle_wake(&mut self, outlet: &mut Outlet) {
        let mail = self.mail.iter().flat_map(Receiver::take);
        for mail in mail.collect::<Vec<Mail>>() {
            match mail {
                Mail::Done { number, result } => {
                    let Some((tag, offset, bytes)) = self.jobs.remove(&number) else {
                        continue;
                    };
                    self.bytes -= bytes;
                    if let Some(open) = self.open.get_mut(&tag) {
                        open.end_job(number, offset, result);
                    }
                }
                Mail::Size => outlet.look_at_size(),
                Mail::Reach { is_reached } => outlet.report_reach(is_reached),
            }
        }
        self.settle(outlet);
    }

    fn refresh_size(&mut self) -> Option<u64> {
        let size_bytes = self.users.0.capabilities().size_bytes;
        let before = std::mem::replace(&mut self.capabilities.size_bytes, size_bytes);
        (before != size_bytes).then_some(size_bytes)
    }
}

impl Drop for ScsiHandle {
    fn drop(&mut self) {
        self.users.0.end(self.number);
    }
}
