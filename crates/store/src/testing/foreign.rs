//! A disk behind a library: another thread has the medium, and completes requests when and as the test says.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use memory::{Buffer, Loan, Payload};

use crate::request::refuse;
use crate::{
    Backstore, Bottom, Capabilities, Durability, Extent, IoAnswer, IoFailure, IoRequest, IoTag,
    Outlet, Receiver, Sender, SharedStore, Submitted, Waker, channel,
};

/// How the library treats a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Manner {
    /// It carries it out and completes it.
    Prompt,
    /// It carries it out and completes it after [`ForeignDisk::release`].
    Late,
    /// It never completes it, and keeps its memory.
    Never,
    /// It completes it twice.
    Twice,
    /// It completes it as cancelled, once it is cancelled.
    WhenCancelled,
    /// It carries it out in so many pieces, each of which it completes by itself.
    InParts(usize),
    /// It cannot be reached.
    Unreachable,
    /// It has no room for it.
    Full,
}

/// What the library does to the medium.
#[derive(Debug)]
enum Deed {
    Read { offset: usize, len: usize },
    Write { offset: usize, bytes: Vec<u8> },
    CompareAndWrite { offset: usize, bytes: Vec<u8> },
    Nothing,
}

#[derive(Debug)]
struct Job {
    tag: IoTag,
    manner: Manner,
    deeds: Vec<Deed>,
    completions: Sender<Completion>,
}

/// One piece of a request is over: where its bytes go in the buffer, and these.
#[derive(Debug)]
struct Completion {
    tag: IoTag,
    result: Result<(usize, Vec<u8>), IoFailure>,
}

#[derive(Debug)]
enum Call {
    Job(Job),
    Cancel(IoTag),
    Release,
}

/// What the test sees.
#[derive(Debug)]
struct Shared {
    capabilities: Capabilities,
    medium: Mutex<Vec<u8>>,
    manners: Mutex<VecDeque<Manner>>,
    calls: Mutex<mpsc::Sender<Call>>,
}

/// A disk whose medium belongs to another thread. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct ForeignDisk(Arc<Shared>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ForeignDisk {
    /// A disk of zeros, in blocks of 512 bytes, which compares and writes by itself within a unit of so many bytes.
    pub fn new(size_bytes: usize, compare_and_write_bytes: u32) -> Self {
        let (calls, queue) = mpsc::channel();
        let shared = Arc::new(Shared {
            capabilities: Capabilities {
                thin: true,
                volatile_cache: true,
                compare_and_write_bytes,
                ..Capabilities::plain(size_bytes as u64, 512)
            },
            medium: Mutex::new(vec![0; size_bytes]),
            manners: Mutex::default(),
            calls: Mutex::new(calls),
        });
        // The thread ends with the disk: the last sender of calls is in it.
        let library = Arc::downgrade(&shared);
        thread::spawn(move || {
            let mut held = Vec::new();
            while let Ok(call) = queue.recv() {
                let Some(shared) = library.upgrade() else {
                    return;
                };
                shared.serve(call, &mut held);
            }
        });
        Self(shared)
    }

    /// How the library treats the next requests; those after them it carries out promptly.
    pub fn treat_next(&self, manners: impl IntoIterator<Item = Manner>) {
        lock(&self.0.manners).extend(manners);
    }

    /// The library completes what it kept for later.
    pub fn release(&self) {
        self.0.call(Call::Release);
    }

    /// A byte of the medium.
    pub fn byte(&self, at: usize) -> u8 {
        lock(&self.0.medium)[at]
    }
}

impl SharedStore for ForeignDisk {
    fn inner(&self) -> &dyn SharedStore {
        &Bottom
    }

    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        Ok(Box::new(ForeignHandle {
            shared: Arc::clone(&self.0),
            queue: None,
            open: HashMap::new(),
        }))
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities.clone()
    }
}

impl Shared {
    fn call(&self, call: Call) {
        // Without its thread the library completes nothing, as a hung one would.
        drop(lock(&self.calls).send(call));
    }

    // ---- the other thread --------------------------------------------------------------------

    fn serve(&self, call: Call, held: &mut Vec<Job>) {
        match call {
            Call::Job(job) => match job.manner {
                Manner::Late | Manner::Never | Manner::WhenCancelled => held.push(job),
                Manner::Prompt
                | Manner::Twice
                | Manner::InParts(_)
                | Manner::Unreachable
                | Manner::Full => self.complete(job),
            },
            Call::Cancel(tag) => {
                let is_meant = |job: &Job| job.tag == tag && job.manner == Manner::WhenCancelled;
                if let Some(at) = held.iter().position(is_meant) {
                    let job = held.swap_remove(at);
                    let result = Err(IoFailure::Cancelled);
                    job.completions.push(Completion { tag, result });
                }
            }
            Call::Release => {
                let is_late = |job: &Job| job.manner == Manner::Late;
                while let Some(at) = held.iter().position(is_late) {
                    let job = held.remove(at);
                    self.complete(job);
                }
            }
        }
    }

    fn complete(&self, job: Job) {
        let tag = job.tag;
        if job.manner == Manner::Unreachable {
            let result = Err(IoFailure::NotReady);
            job.completions.push(Completion { tag, result });
            return;
        }
        let mut at = 0;
        for deed in job.deeds {
            let result = self.carry_out(deed);
            let len = result.as_ref().map_or(0, Vec::len);
            let result = result.map(|bytes| (at, bytes));
            at += len;
            if job.manner == Manner::Twice {
                let result = result.clone();
                job.completions.push(Completion { tag, result });
            }
            job.completions.push(Completion { tag, result });
        }
    }

    fn carry_out(&self, deed: Deed) -> Result<Vec<u8>, IoFailure> {
        let mut medium = lock(&self.medium);
        match deed {
            Deed::Read { offset, len } => return Ok(medium[offset..offset + len].to_vec()),
            Deed::Write { offset, bytes } => {
                medium[offset..offset + bytes.len()].copy_from_slice(&bytes);
            }
            Deed::CompareAndWrite { offset, bytes } => {
                let (old, new) = bytes.split_at(bytes.len() / 2);
                let there = &mut medium[offset..offset + old.len()];
                if let Some(at) = (0..old.len()).find(|&at| there[at] != old[at]) {
                    return Err(IoFailure::Miscompare { offset: at as u64 });
                }
                there.copy_from_slice(new);
            }
            Deed::Nothing => {}
        }
        Ok(Vec::new())
    }
}

/// A request that the library has.
#[derive(Debug)]
struct Open {
    /// For a read.
    buffer: Option<Loan<Buffer>>,
    /// For a write.
    data: Option<Loan<Payload>>,
    parts_left: usize,
    failure: Option<IoFailure>,
}

#[derive(Debug)]
struct ForeignHandle {
    shared: Arc<Shared>,
    /// From the library's thread.
    queue: Option<(Sender<Completion>, Receiver<Completion>)>,
    open: HashMap<IoTag, Open>,
}

impl Backstore for ForeignHandle {
    fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    fn durability(&self) -> Durability {
        Durability::UNCOUNTED
    }

    fn start(&mut self, make_waker: &dyn Fn() -> Waker, _: &mut Outlet) {
        self.queue = Some(channel(make_waker()));
    }

    fn submit(&mut self, tag: IoTag, request: IoRequest, outlet: &mut Outlet) -> Submitted {
        if let Some(failure) = refuse(&self.shared.capabilities, &request) {
            return Submitted::Done(Err(failure));
        }
        let manner = lock(&self.shared.manners).pop_front();
        let manner = manner.unwrap_or(Manner::Prompt);
        if manner == Manner::Full {
            outlet.give_back(request);
            return Submitted::Taken;
        }
        let Some((completions, _)) = &self.queue else {
            return Submitted::Done(Err(IoFailure::NotReady));
        };
        if let IoRequest::Extents { range, .. } = request {
            let mapped = true;
            return Submitted::Done(Ok(IoAnswer::Extents(vec![Extent { range, mapped }])));
        }
        let parts = match manner {
            Manner::InParts(parts) => parts,
            Manner::Prompt
            | Manner::Late
            | Manner::Never
            | Manner::Twice
            | Manner::WhenCancelled
            | Manner::Unreachable
            | Manner::Full => 1,
        };
        let deeds = deeds(&request, parts);
        let parts_left = if manner == Manner::Unreachable {
            1
        } else {
            deeds.len()
        };
        let (buffer, data) = match request {
            IoRequest::Read { buffer, .. } => (buffer, None),
            IoRequest::Write { data, .. } | IoRequest::CompareAndWrite { data, .. } => {
                (None, Some(data))
            }
            IoRequest::Flush
            | IoRequest::Unmap { .. }
            | IoRequest::WriteZeros { .. }
            | IoRequest::Extents { .. }
            | IoRequest::Device(_) => (None, None),
        };
        let open = Open {
            buffer: buffer.map(Loan::new),
            data: data.map(Loan::new),
            parts_left,
            failure: None,
        };
        let before = self.open.insert(tag, open);
        assert!(before.is_none(), "{tag:?} is the name of two requests");
        self.shared.call(Call::Job(Job {
            tag,
            manner,
            deeds,
            completions: completions.clone(),
        }));
        Submitted::Taken
    }

    fn cancel(&mut self, tag: IoTag, _: &mut Outlet) {
        assert!(
            self.open.contains_key(&tag),
            "{tag:?} is cancelled and over"
        );
        self.shared.call(Call::Cancel(tag));
    }

    fn handle_wake(&mut self, outlet: &mut Outlet) {
        let completions = self.queue.iter().flat_map(|(_, queue)| queue.take());
        let completions: Vec<Completion> = completions.collect();
        for Completion { tag, result } in completions {
            let Some(open) = self.open.get_mut(&tag) else {
                // The library repeats itself, and this store passes that on.
                outlet.answer(tag, Ok(IoAnswer::Done));
                continue;
            };
            match result {
                Ok((at, bytes)) => {
                    if let Some(loan) = open.buffer.take() {
                        let mut buffer = loan.end();
                        buffer[at..at + bytes.len()].copy_from_slice(&bytes);
                        open.buffer = Some(Loan::new(buffer));
                    }
                }
                Err(failure) => open.failure = Some(failure),
            }
            open.parts_left -= 1;
            if open.parts_left == 0
                && let Some(open) = self.open.remove(&tag)
            {
                outlet.answer(tag, open.end());
            }
        }
    }

    fn refresh_size(&mut self) -> Option<u64> {
        None
    }
}

impl Open {
    /// The library is done with the memory.
    fn end(self) -> Result<IoAnswer, IoFailure> {
        let buffer = self.buffer.map(Loan::end);
        drop(self.data.map(Loan::end));
        match (self.failure, buffer) {
            (Some(failure), _) => Err(failure),
            (None, Some(buffer)) => Ok(IoAnswer::Data(Payload::Pool(buffer))),
            (None, None) => Ok(IoAnswer::Done),
        }
    }
}

/// What the library does for a request, in so many pieces where it can be cut.
fn deeds(request: &IoRequest, parts: usize) -> Vec<Deed> {
    let start = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    let cut = |len: usize| len.div_ceil(parts.max(1)).max(1);
    let write = |offset: usize, bytes: &[u8]| {
        let pieces = bytes.chunks(cut(bytes.len())).zip(0..);
        let piece = |(piece, number): (&[u8], usize)| Deed::Write {
            offset: offset + number * cut(bytes.len()),
            bytes: piece.to_vec(),
        };
        pieces.map(piece).collect()
    };
    match request {
        IoRequest::Read { offset, len, .. } => (0..*len)
            .step_by(cut(*len))
            .map(|at| Deed::Read {
                offset: start(*offset) + at,
                len: cut(*len).min(len - at),
            })
            .collect(),
        IoRequest::Write { offset, data, .. } => write(start(*offset), &data.to_vec()),
        IoRequest::Unmap { range } | IoRequest::WriteZeros { range, .. } => {
            write(start(range.start), &vec![0; start(range.end - range.start)])
        }
        IoRequest::CompareAndWrite { offset, data, .. } => vec![Deed::CompareAndWrite {
            offset: start(*offset),
            bytes: data.to_vec(),
        }],
        IoRequest::Flush | IoRequest::Extents { .. } | IoRequest::Device(_) => vec![Deed::Nothing],
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memory::Pool;

    use super::*;
    use crate::Order;

    /// How long a test waits for the library.
    const PATIENCE: Duration = Duration::from_secs(20);

    struct Rig {
        disk: ForeignDisk,
        store: Box<dyn Backstore>,
        outlet: Outlet,
        woken: mpsc::Receiver<()>,
        pool: Pool,
    }

    impl Rig {
        fn new() -> Self {
            let disk = ForeignDisk::new(1 << 20, 4096);
            let mut store = disk.handle().unwrap();
            let mut outlet = Outlet::default();
            let (wakes, woken) = mpsc::channel();
            let make_waker = || {
                let wakes = wakes.clone();
                Waker::new(move || wakes.send(()).unwrap_or_default())
            };
            store.start(&make_waker, &mut outlet);
            Self {
                disk,
                store,
                outlet,
                woken,
                pool: Pool::new(0).unwrap(),
            }
        }

        fn write(&mut self, tag: u64, byte: u8) {
            let mut buffer = self.pool.allocate(4096).unwrap();
            buffer.fill(byte);
            let request = IoRequest::Write {
                offset: 0,
                data: Payload::Pool(buffer),
                durable: false,
            };
            self.submit(tag, request);
        }

        fn submit(&mut self, tag: u64, request: IoRequest) {
            let submitted = self.store.submit(IoTag(tag), request, &mut self.outlet);
            assert!(matches!(submitted, Submitted::Taken), "{submitted:?}");
        }

        /// The next answer, of another thread.
        fn answer(&mut self) -> (u64, Result<IoAnswer, IoFailure>) {
            loop {
                match self.outlet.next_order() {
                    Some(Order::Answer { tag, result }) => return (tag.0, result),
                    Some(other) => panic!("{other:?}"),
                    None => {
                        self.woken.recv_timeout(PATIENCE).unwrap();
                        self.store.handle_wake(&mut self.outlet);
                    }
                }
            }
        }
    }

    #[test]
    fn requests_are_answered_by_another_thread_in_any_order() {
        let mut rig = Rig::new();
        rig.disk.treat_next([Manner::Late, Manner::InParts(8)]);
        rig.write(1, 1);
        rig.write(2, 2);
        let (tag, result) = rig.answer();
        assert_eq!((tag, result.is_ok()), (2, true));
        assert_eq!(rig.disk.byte(4095), 2);
        rig.disk.release();
        assert_eq!(rig.answer().0, 1);
        assert_eq!(rig.disk.byte(0), 1);
        let buffer = rig.pool.allocate(4096).unwrap();
        rig.disk.treat_next([Manner::InParts(3)]);
        let request = IoRequest::Read {
            offset: 0,
            len: 4096,
            buffer: Some(buffer),
        };
        rig.submit(3, request);
        match rig.answer() {
            (3, Ok(IoAnswer::Data(data))) => assert_eq!(data.to_vec(), [1; 4096]),
            other => panic!("{other:?}"),
        }
        assert_eq!(rig.pool.free_bytes(), rig.pool.capacity_bytes());
    }

    #[test]
    fn a_failure_that_passes_a_cancel_and_a_repetition_arrive_as_they_are() {
        let mut rig = Rig::new();
        rig.disk
            .treat_next([Manner::Unreachable, Manner::WhenCancelled, Manner::Twice]);
        rig.write(1, 1);
        assert!(matches!(rig.answer(), (1, Err(IoFailure::NotReady))));
        rig.write(2, 1);
        rig.store.cancel(IoTag(2), &mut rig.outlet);
        assert!(matches!(rig.answer(), (2, Err(IoFailure::Cancelled))));
        assert_eq!(rig.disk.byte(0), 0);
        rig.write(3, 3);
        assert_eq!(rig.answer().0, 3);
        assert_eq!(rig.answer().0, 3);
        rig.disk.treat_next([Manner::Full]);
        rig.submit(4, IoRequest::Flush);
        let returned = rig.outlet.take_returned();
        assert!(matches!(returned, Some(IoRequest::Flush)));
    }

    #[test]
    fn memory_that_the_library_holds_at_the_end_is_leaked() {
        let mut rig = Rig::new();
        rig.disk.treat_next([Manner::Never]);
        rig.write(1, 1);
        let Rig { store, pool, .. } = rig;
        let (free, leaked) = (pool.free_bytes(), memory::leaked_bytes());
        drop(store);
        assert_eq!(pool.free_bytes(), free, "it is not given to anybody");
        assert!(memory::leaked_bytes() >= leaked + 4096);
    }
}
