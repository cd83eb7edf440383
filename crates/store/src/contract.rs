//! The contract between a device server and a store. [`Backstore`] has its rules.

use std::fmt;
use std::io::{self, ErrorKind};
#[cfg(target_os = "linux")]
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use crate::device::DeviceFacts;
use crate::durability::Durability;
#[cfg(target_os = "linux")]
use crate::native::NativeSnapshots;
use crate::notes::Notes;
use crate::operation::{HelperResult, RingOperation};
use crate::outlet::{Outlet, PartTag, SocketResult, SocketTag};
use crate::request::{Capabilities, IoRequest, IoResult, IoTag};
use crate::wake::Waker;

/// How a store takes a request.
#[derive(Debug)]
#[must_use = "a request that is not carried on is a lost command"]
pub enum Submitted {
    /// It is done, in this very turn.
    Done(IoResult),
    /// The store has it, and completes it with [`Outlet::answer`]; or it returned it with [`Outlet::give_back`].
    Taken,
}

/// A store as one core sees it. Each core has a handle of its own, so nothing here is shared by reference between
/// cores; what must be common (the latch of a failed flush, the map of a memory disk) is inside the store.
///
/// # States of a request
///
/// ```text
/// submit -> Done(result)                                     over
///        -> Taken, given back                                not taken; comes again with another tag
///        -> Taken -> any number of parts -> answer           over
///                 -> cancel -> parts end -> answer           over, the result goes nowhere
/// ```
///
/// * **Once.** Every request that was taken is answered exactly once, in any order, also after
///   [`Backstore::cancel`]. The engine never gives a tag twice, so an answer that comes twice, or after `Done`, finds
///   no request: it is refused and reported as a fault of the store.
/// * **Never blocking.** No function here waits: not for a lock that is held for long, a peer, a thread or a file.
///   `submit` says `Done` only if it took no longer than copying the data of the request.
/// * **Parts.** A store may have any number of operations under way for a request, on the ring, on helper threads and
///   on sockets ([`PartTag`]). Each comes back exactly once. The engine holds the answer of a request until its parts
///   are back: an answered request has nothing under way that could still reach the medium. What a store does by
///   itself (a peer, a library) it must bring to its end before it answers.
/// * **Buffers.** A request owns its buffers. They go with `submit` to the store, with a part to the reactor and back
///   with its result, with [`Data`](crate::IoAnswer::Data) to the engine. Memory that is lent to a library outside is
///   wrapped in a [`memory::Loan`]: if the store is dropped before the library returns it, it is leaked and counted,
///   never freed.
/// * **Slow.** A store that takes long may hold as many requests as it has room for; the engine counts their data,
///   keeps a share free for other units, and does not submit more. It returns the rest with [`Outlet::give_back`].
/// * **Hung.** Nothing here ends a request by itself but the store. An initiator's abort calls `cancel` and is answered
///   at its deadline; from then on what it may write is refused on all cores until the answer comes. The store may set
///   deadlines of its own ([`Outlet::set_timer`]) and answer with [`NotReady`](crate::IoFailure::NotReady), if it can
///   prove that nothing of the request reaches the medium later.
/// * **Gone.** A handle may be dropped at any time after its unit is removed, or with its core. Operations under way
///   keep what they own, and end unseen. Other threads may use their [`Waker`] and [`Sender`](crate::Sender) as before.
/// * **Threads.** A handle is used on one core only. A library's threads push completions into a
///   [`channel`](crate::channel), which wakes the core; [`Backstore::handle_wake`] takes them there.
pub trait Backstore: fmt::Debug {
    /// What the store is; the size is that of the last [`Backstore::refresh_size`].
    fn capabilities(&self) -> &Capabilities;

    /// Called once, before the first request, on the core of the handle. A store that has threads or connections makes
    /// its [`Waker`] and begins to connect here. The requests that come before it is connected it holds or answers with
    /// [`IoFailure::NotReady`](crate::IoFailure::NotReady).
    fn start(&mut self, make_waker: &dyn Fn() -> Waker, outlet: &mut Outlet) {
        // Most stores are ready when they are opened.
        let _unused = (make_waker, outlet);
    }

    /// Takes a request over. No other request has or had this tag.
    fn submit(&mut self, tag: IoTag, request: IoRequest, outlet: &mut Outlet) -> Submitted;

    /// Nobody needs the result of this request, which is not answered yet. The store ends it as soon as it can, and
    /// still answers it; after [`Cancelled`](crate::IoFailure::Cancelled) the request may have had any part of its
    /// effect.
    fn cancel(&mut self, tag: IoTag, outlet: &mut Outlet) {
        outlet.cancel_parts(tag);
    }

    /// An operation of [`Outlet::ring`] is over. `result` is the kernel's: a count of bytes or zero, or a negative
    /// error number.
    fn handle_ring_result(
        &mut self,
        part: PartTag,
        operation: RingOperation,
        result: i32,
        outlet: &mut Outlet,
    ) {
        let _unused = outlet;
        debug_assert!(false, "{result} for {part:?}, {operation:?}");
    }

    /// Work of [`Outlet::help`] is over.
    fn handle_helper_result(&mut self, part: PartTag, result: HelperResult, outlet: &mut Outlet) {
        let _unused = outlet;
        debug_assert!(false, "{result:?} for {part:?}");
    }

    /// An operation of [`Outlet::on_socket`] is over.
    fn handle_socket(
        &mut self,
        socket: SocketTag,
        number: u64,
        result: SocketResult,
        outlet: &mut Outlet,
    ) {
        let _unused = outlet;
        debug_assert!(false, "{result:?} for {number} on {socket:?}");
    }

    /// The [`Waker`] was used. May be called more often than that.
    fn handle_wake(&mut self, outlet: &mut Outlet) {
        let _unused = outlet;
    }

    /// The time of a timer of [`Outlet::set_timer`] has come.
    fn handle_timer(&mut self, number: u64, outlet: &mut Outlet) {
        let _unused = outlet;
        debug_assert!(false, "timer {number}");
    }

    /// Has every read and write done by the ring, where a test can look at it and let it fail, and durable writes done
    /// as on a file system that honours `RWF_DSYNC`, or as elsewhere, whatever the tests run on.
    #[cfg(test)]
    fn use_ring_only(&mut self, honours_dsync: bool) {
        let _fixed = honours_dsync;
    }

    /// What has become of what was answered, on any core, since the store was opened.
    fn durability(&self) -> Durability;

    /// Looks how large the store is now, as [`SharedStore::probe_size`] does, without waiting. A store that needs an
    /// operation for that orders one, and calls [`Outlet::look_at_size`] when it is over.
    fn probe(&mut self, outlet: &mut Outlet) {
        let _unused = outlet;
    }

    /// Takes over the size that was found last. Answers the size in bytes when it differs from the one before.
    fn refresh_size(&mut self) -> Option<u64>;
}

/// How a store reaches those who have its data, now.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Connections {
    /// Connections that are up.
    pub up: u64,
    /// How often one was made again that was up before.
    pub again: u64,
    /// Requests that wait for one, or for an answer on one that is silent.
    pub held: u64,
}

impl Connections {
    /// Those of two stores together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self {
            up: self.up.saturating_add(other.up),
            again: self.again.saturating_add(other.again),
            held: self.held.saturating_add(other.held),
        }
    }
}

/// A store that was opened once, and of which every core takes its handle.
///
/// What a store does not define is what the store [below](Self::inner) it says: a layer names only what it changes.
pub trait SharedStore: Send + Sync + fmt::Debug {
    /// The store that this one is a layer of, or [`Bottom`].
    fn inner(&self) -> &dyn SharedStore;

    /// A handle for the calling core.
    fn handle(&self) -> io::Result<Box<dyn Backstore>>;

    /// What the store is, with the size it was found to have last.
    fn capabilities(&self) -> Capabilities;

    /// Looks how large the store is now; the handles learn of it by [`Backstore::refresh_size`].
    /// May block for as long as a file system is stuck, so no core calls it.
    fn probe_size(&self) -> io::Result<()> {
        self.inner().probe_size()
    }

    /// Makes the store larger, to this many bytes, which are a whole number of blocks; the new part
    /// reads zeros. Never makes one smaller. Looks at the size, too, as [`Self::probe_size`] does.
    ///
    /// # Errors
    ///
    /// It cannot grow at all (`Unsupported`), or not that far; it has the size it had.
    fn grow(&self, size_bytes: u64) -> io::Result<()> {
        self.inner().grow(size_bytes)
    }

    /// How much space it takes where it is, in bytes; `None` where that cannot be known. May block for as long as a
    /// file system is stuck, so no core calls it. A store of another machine does not block: it answers what was found
    /// last, and has somebody look again.
    ///
    /// # Errors
    ///
    /// It cannot be looked at; `WouldBlock`: nobody has looked yet.
    fn used_bytes(&self) -> io::Result<Option<u64>> {
        self.inner().used_bytes()
    }

    /// What the one who has the data calls the medium, whatever its name or place: an image by cluster and id, a disk
    /// by its designator. Does not block.
    fn identity(&self) -> Option<String> {
        self.inner().identity()
    }

    /// The file or device that has the data, if it is one of this machine.
    #[cfg(target_os = "linux")]
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner().descriptor()
    }

    /// Whether the path names the file or device that is open; true of a store of no path. May block for as long as a
    /// file system is stuck, so no core calls it.
    ///
    /// # Errors
    ///
    /// It names nothing (`NotFound`), or cannot be looked at.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.inner().is_at(path)
    }

    /// Whether a flush failed ([`IoFailure::FlushLatched`](crate::IoFailure::FlushLatched)).
    fn is_flush_latched(&self) -> bool {
        self.inner().is_flush_latched()
    }

    /// Whether what was found when it was opened does not hold any more, because somebody else has had the medium
    /// meanwhile. It serves nothing then, and has to be opened again, with its unit.
    fn is_outdated(&self) -> bool {
        self.inner().is_outdated()
    }

    /// Takes the medium from another client that has it: what that client sends from now on is refused. Returns when it
    /// may be opened here. May block for as long as the medium hangs, so no core calls it.
    ///
    /// # Errors
    ///
    /// The medium knows no such clients (`Unsupported`), or that one has it still.
    fn take_over(&self) -> io::Result<()> {
        self.inner().take_over()
    }

    /// The place for short texts that the medium has, if it has one and they may be written.
    fn notes(&self) -> Option<Arc<dyn Notes>> {
        self.inner().notes()
    }

    /// The snapshots that are made where the data is, if it is somewhere that makes them.
    #[cfg(target_os = "linux")]
    fn native_snapshots(&self) -> Option<Arc<dyn NativeSnapshots>> {
        self.inner().native_snapshots()
    }

    /// Why requests wait or end with [`IoFailure::NotReady`](crate::IoFailure::NotReady), in words, if that is so now:
    /// who has the data cannot be reached.
    fn outage(&self) -> Option<String> {
        self.inner().outage()
    }

    /// What the device is, of a store that is one: it takes [`IoRequest::Device`] and nothing else, and its
    /// capabilities say nothing.
    fn device(&self) -> Option<Arc<DeviceFacts>> {
        self.inner().device()
    }

    /// Its connections, if its data is behind some. Does not block: it is asked for each reading of the counters.
    fn connections(&self) -> Option<Connections> {
        self.inner().connections()
    }
}

/// What is below a store that is no layer: it has no data, cannot do anything, and nothing is wrong with it.
#[derive(Clone, Copy, Debug)]
pub struct Bottom;

#[deny(
    clippy::missing_trait_methods,
    reason = "it would ask itself without end"
)]
impl SharedStore for Bottom {
    fn inner(&self) -> &dyn SharedStore {
        self
    }

    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        Err(ErrorKind::Unsupported.into())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::plain(0, 512)
    }

    fn probe_size(&self) -> io::Result<()> {
        Ok(())
    }

    fn grow(&self, _: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn used_bytes(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    fn identity(&self) -> Option<String> {
        None
    }

    #[cfg(target_os = "linux")]
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_at(&self, _: &Path) -> io::Result<bool> {
        Ok(true)
    }

    fn is_flush_latched(&self) -> bool {
        false
    }

    fn is_outdated(&self) -> bool {
        false
    }

    fn take_over(&self) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn notes(&self) -> Option<Arc<dyn Notes>> {
        None
    }

    #[cfg(target_os = "linux")]
    fn native_snapshots(&self) -> Option<Arc<dyn NativeSnapshots>> {
        None
    }

    fn outage(&self) -> Option<String> {
        None
    }

    fn device(&self) -> Option<Arc<DeviceFacts>> {
        None
    }

    fn connections(&self) -> Option<Connections> {
        None
    }
}
