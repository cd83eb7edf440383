//! A layer that does to the requests for a store what the test says, as nbdkit's filters `delay` and `error` do.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use crate::{
    Backstore, Capabilities, Durability, HelperResult, IoFailure, IoRequest, IoTag, Outlet,
    PartTag, Receiver, RingOperation, Sender, SharedStore, SocketResult, SocketTag, Submitted,
    Waker, channel,
};

/// What becomes of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Fate {
    /// The store below gets it.
    Pass,
    /// It fails, without an effect.
    Fail(IoFailure),
    /// It hangs until the test ends it: see [`Faulty::new`].
    Hang,
    /// There is no room for it.
    Full,
}

type Rule = Box<dyn FnMut(&IoRequest) -> Fate + Send>;
type End = (IoTag, Result<(), IoFailure>);

/// What all cores share.
struct Shared {
    inner: Arc<dyn SharedStore>,
    rule: Mutex<Rule>,
    hung: Mutex<mpsc::Sender<Hung>>,
    /// How often its cache was lost.
    lost: AtomicU64,
    /// It has this size at most, in bytes.
    bytes_max: AtomicU64,
}

/// A request that hangs.
#[derive(Debug)]
pub struct Hung {
    tag: IoTag,
    ends: Sender<End>,
}

impl Hung {
    /// Passes the request on to the store below.
    pub fn pass(self) {
        self.ends.push((self.tag, Ok(())));
    }

    /// Has it fail.
    pub fn fail(self, failure: IoFailure) {
        self.ends.push((self.tag, Err(failure)));
    }
}

/// A store that fails as the test says. Clones are the same store.
#[derive(Clone)]
pub struct Faulty(Arc<Shared>);

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Faulty").field(&self.0.inner).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Faulty {
    /// A layer on a store, by this rule, and the requests that hang.
    pub fn new(
        inner: impl SharedStore + 'static,
        rule: impl FnMut(&IoRequest) -> Fate + Send + 'static,
    ) -> (Self, mpsc::Receiver<Hung>) {
        let (hung, all) = mpsc::channel();
        let shared = Shared {
            inner: Arc::new(inner),
            rule: Mutex::new(Box::new(rule)),
            hung: Mutex::new(hung),
            lost: AtomicU64::new(0),
            bytes_max: AtomicU64::new(u64::MAX),
        };
        (Self(Arc::new(shared)), all)
    }

    /// From now on another rule holds.
    pub fn set_rule(&self, rule: impl FnMut(&IoRequest) -> Fate + Send + 'static) {
        *lock(&self.0.rule) = Box::new(rule);
    }

    /// It has lost what it had answered and no flush had covered, and goes on.
    pub fn lose_cache(&self) {
        self.0.lost.fetch_add(1, Ordering::SeqCst);
    }

    /// It has so many bytes at most from now on.
    pub fn shrink(&self, bytes: u64) {
        self.0.bytes_max.store(bytes, Ordering::SeqCst);
    }
}

impl Shared {
    fn limited(&self, below: Capabilities) -> Capabilities {
        let size_bytes = below.size_bytes.min(self.bytes_max.load(Ordering::SeqCst));
        Capabilities {
            size_bytes,
            ..below
        }
    }
}

impl SharedStore for Faulty {
    fn inner(&self) -> &dyn SharedStore {
        &*self.0.inner
    }

    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        let inner = self.0.inner.handle()?;
        Ok(Box::new(Handle {
            capabilities: self.0.limited(inner.capabilities().clone()),
            inner,
            shared: Arc::clone(&self.0),
            hanging: HashMap::new(),
            ends: None,
        }))
    }

    fn capabilities(&self) -> Capabilities {
        self.0.limited(self.0.inner.capabilities())
    }
}

struct Handle {
    capabilities: Capabilities,
    inner: Box<dyn Backstore>,
    shared: Arc<Shared>,
    hanging: HashMap<IoTag, IoRequest>,
    ends: Option<(Sender<End>, Receiver<End>)>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Faulty").field(&self.inner).finish()
    }
}

#[deny(
    clippy::missing_trait_methods,
    reason = "what is not passed on is lost"
)]
impl Backstore for Handle {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn durability(&self) -> Durability {
        let lost = self.shared.lost.load(Ordering::SeqCst);
        let own = Durability {
            lost: (lost > 0).then_some(lost),
            ..Durability::NOTHING
        };
        self.inner.durability().with(own)
    }

    fn start(&mut self, make_waker: &dyn Fn() -> Waker, outlet: &mut Outlet) {
        self.ends = Some(channel(make_waker()));
        self.inner.start(make_waker, outlet);
    }

    fn submit(&mut self, tag: IoTag, request: IoRequest, outlet: &mut Outlet) -> Submitted {
        let fate = lock(&self.shared.rule)(&request);
        match (fate, &self.ends) {
            (Fate::Pass, _) => return self.inner.submit(tag, request, outlet),
            (Fate::Fail(failure), _) => return Submitted::Done(Err(failure)),
            (Fate::Hang, Some((ends, _))) => {
                let ends = ends.clone();
                // A test that has ended ends no request.
                drop(lock(&self.shared.hung).send(Hung { tag, ends }));
                self.hanging.insert(tag, request);
            }
            (Fate::Full | Fate::Hang, _) => outlet.give_back(request),
        }
        Submitted::Taken
    }

    fn cancel(&mut self, tag: IoTag, outlet: &mut Outlet) {
        if !self.hanging.contains_key(&tag) {
            self.inner.cancel(tag, outlet);
        }
    }

    fn handle_ring_result(
        &mut self,
        part: PartTag,
        operation: RingOperation,
        result: i32,
        outlet: &mut Outlet,
    ) {
        self.inner
            .handle_ring_result(part, operation, result, outlet);
    }

    fn handle_helper_result(&mut self, part: PartTag, result: HelperResult, outlet: &mut Outlet) {
        self.inner.handle_helper_result(part, result, outlet);
    }

    fn handle_socket(
        &mut self,
        socket: SocketTag,
        number: u64,
        result: SocketResult,
        outlet: &mut Outlet,
    ) {
        self.inner.handle_socket(socket, number, result, outlet);
    }

    fn handle_wake(&mut self, outlet: &mut Outlet) {
        let ends = self.ends.iter().flat_map(|(_, ends)| ends.take());
        for (tag, end) in ends.collect::<Vec<End>>() {
            let request = self.hanging.remove(&tag);
            let submitted = match (end, request) {
                (Ok(()), Some(request)) => self.inner.submit(tag, request, outlet),
                (Err(failure), Some(_)) => Submitted::Done(Err(failure)),
                (_, None) => Submitted::Taken,
            };
            if let Submitted::Done(result) = submitted {
                outlet.answer(tag, result);
            }
        }
        self.inner.handle_wake(outlet);
    }

    fn handle_timer(&mut self, number: u64, outlet: &mut Outlet) {
        self.inner.handle_timer(number, outlet);
    }

    #[cfg(test)]
    fn use_ring_only(&mut self, honours_dsync: bool) {
        self.inner.use_ring_only(honours_dsync);
    }

    fn probe(&mut self, outlet: &mut Outlet) {
        self.inner.probe(outlet);
        outlet.look_at_size();
    }

    fn refresh_size(&mut self) -> Option<u64> {
        self.inner.refresh_size();
        let now = self.shared.limited(self.inner.capabilities().clone());
        let before = std::mem::replace(&mut self.capabilities, now).size_bytes;
        let size = self.capabilities.size_bytes;
        (size != before).then_some(size)
    }
}
