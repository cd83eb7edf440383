//! A core that waits for what its handle of a store does.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use memory::{Payload, Pool};
use store::{
    Backstore, IoAnswer, IoFailure, IoRequest, IoResult, IoTag, Order, Outlet, SharedStore,
    Submitted, Waker,
};

use super::BLOCK;

/// Longer than anything here takes.
const WAIT_MAX: Duration = Duration::from_secs(60);

type Woken = Arc<(Mutex<bool>, Condvar)>;

/// One core with its handle of a store.
pub(crate) struct Client {
    pub(crate) disk: Arc<dyn SharedStore>,
    pub(crate) handle: Box<dyn Backstore>,
    pub(crate) outlet: Outlet,
    woken: Woken,
    pool: Pool,
    next: u64,
    /// So many losses were reported.
    reported: u64,
    answers: HashMap<IoTag, IoResult>,
    pub(crate) reach: Vec<bool>,
}

impl Client {
    pub(crate) fn new(disk: Arc<dyn SharedStore>) -> Self {
        let mut handle = disk.handle().unwrap();
        let mut outlet = Outlet::default();
        let woken = Woken::default();
        let of_waker = Arc::clone(&woken);
        let make = move || {
            let woken = Arc::clone(&of_waker);
            Waker::new(move || {
                *woken.0.lock().unwrap() = true;
                woken.1.notify_all();
            })
        };
        handle.start(&make, &mut outlet);
        Self {
            disk,
            handle,
            outlet,
            woken,
            pool: Pool::new(64 << 20).unwrap(),
            next: 0,
            reported: 0,
            answers: HashMap::new(),
            reach: Vec::new(),
        }
    }

    pub(crate) fn submit(&mut self, request: IoRequest) -> IoTag {
        let tag = IoTag(self.next);
        self.next += 1;
        if let Submitted::Done(result) = self.handle.submit(tag, request, &mut self.outlet) {
            self.answers.insert(tag, result);
        }
        assert!(self.outlet.take_returned().is_none());
        tag
    }

    pub(crate) fn buffer(&self, length: usize) -> memory::Buffer {
        self.pool.allocate(length).unwrap()
    }

    fn take_orders(&mut self) {
        while let Some(order) = self.outlet.next_order() {
            match order {
                Order::Answer { tag, result } => {
                    assert!(self.answers.insert(tag, result).is_none(), "{tag:?} twice");
                }
                Order::Reach { is_reached } => self.reach.push(is_reached),
                Order::Size => {
                    self.handle.refresh_size();
                }
                other @ (Order::Ring { .. }
                | Order::Helper { .. }
                | Order::CancelParts(_)
                | Order::CancelPart(_)
                | Order::Timer { .. }
                | Order::HeldElsewhere { .. }
                | Order::OpenSocket { .. }
                | Order::Socket { .. }
                | Order::CloseSocket(_)) => panic!("{other:?}"),
            }
        }
    }

    /// Works until something is so.
    pub(crate) fn until<T>(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&mut Self) -> Option<T>,
    ) -> T {
        loop {
            self.take_orders();
            if let Some(found) = is_so(self) {
                return found;
            }
            let (lock, condition) = &*self.woken;
            let woken = lock.lock().unwrap();
            let waited = condition.wait_timeout_while(woken, WAIT_MAX, |woken| !*woken);
            let (mut woken, waited) = waited.unwrap();
            assert!(!waited.timed_out(), "{what} never comes");
            *woken = false;
            drop(woken);
            self.handle.handle_wake(&mut self.outlet);
        }
    }

    /// Works until the store says that its server is away, or that it is there.
    pub(crate) fn until_outage(&mut self, is_away: bool) {
        let ends = std::time::Instant::now() + WAIT_MAX;
        while self.disk.outage().is_some() != is_away {
            assert!(
                std::time::Instant::now() < ends,
                "is_away is never {is_away}"
            );
            self.look();
        }
    }

    /// Takes what has come, or waits a moment for it.
    fn look(&mut self) {
        let (lock, condition) = &*self.woken;
        let woken = lock.lock().unwrap();
        let moment = Duration::from_millis(10);
        let waited = condition.wait_timeout_while(woken, moment, |woken| !*woken);
        *waited.unwrap().0 = false;
        self.handle.handle_wake(&mut self.outlet);
        self.take_orders();
    }

    pub(crate) fn answer(&mut self, tag: IoTag) -> IoResult {
        self.until("an answer", |client| client.answers.remove(&tag))
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: Vec<u8>, durable: bool) -> IoTag {
        let data = Payload::from(bytes);
        self.submit(IoRequest::Write {
            offset,
            data,
            durable,
        })
    }

    /// One block, whose bytes are all the same.
    pub(crate) fn compare_and_write(&mut self, offset: u64, old: u8, new: u8) -> IoTag {
        let data = [vec![old; BLOCK], vec![new; BLOCK]].concat();
        self.submit(IoRequest::CompareAndWrite {
            offset,
            data: Payload::from(data),
            durable: false,
        })
    }

    pub(crate) fn write_now(&mut self, offset: u64, bytes: Vec<u8>) {
        let tag = self.write(offset, bytes, false);
        assert!(matches!(self.answer(tag), Ok(IoAnswer::Done)));
    }

    pub(crate) fn read(&mut self, offset: u64, len: usize) -> IoTag {
        let buffer = Some(self.pool.allocate(len).unwrap());
        self.submit(IoRequest::Read {
            offset,
            len,
            buffer,
        })
    }

    pub(crate) fn read_now(&mut self, offset: u64, len: usize) -> Vec<u8> {
        let tag = self.read(offset, len);
        match self.answer(tag) {
            Ok(IoAnswer::Data(data)) => data.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    /// Reports a loss once, as an engine does.
    pub(crate) fn flush_now(&mut self) -> Result<(), IoFailure> {
        let tag = self.submit(IoRequest::Flush);
        self.answer(tag)?;
        let lost = self.handle.durability().lost.unwrap();
        match std::mem::replace(&mut self.reported, lost) < lost {
            true => Err(IoFailure::CacheLost),
            false => Ok(()),
        }
    }
}

pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| u8::try_from(at / 7 % 251).unwrap())
        .collect()
}
