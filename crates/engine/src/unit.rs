//! A logical unit as one core sees it, and, on one core, as its owner.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use scsi::{LogicalUnit, NexusId, NexusSlot};
use store::{
    Backstore, Capabilities, Departure, Durability, HelperResult, IoFailure, IoRequest, IoTag,
    Outlet, PartTag, RingOperation, SocketResult, SocketTag, Submitted,
};

use crate::agree::{CoreSide, UnitOwner};
use crate::keys::{TaskKey, WaitKey};
use crate::losses::Losses;
use crate::space::Space;

/// Whether a store has memory of its own for reads, and keeps nothing of ours: see [`Capabilities::reads_in_place`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum InPlace {
    Never,
    /// Within a multiple of so many bytes.
    Within(u64),
    Always,
}

impl InPlace {
    fn of(store: &Capabilities) -> Self {
        debug_assert!(
            store.in_place_unit_bytes == 0 || store.in_place_unit_bytes.is_power_of_two(),
            "{} bytes cannot be crossed",
            store.in_place_unit_bytes
        );
        match (store.reads_in_place, store.in_place_unit_bytes) {
            (false, _) => Self::Never,
            (true, 0) => Self::Always,
            (true, unit) => Self::Within(unit),
        }
    }
}

/// The unit on this core: its view of the state, its handle of the store, its fences.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) view: LogicalUnit,
    pub(crate) store: Box<dyn Backstore>,
    /// Asked for with every request.
    pub(crate) in_place: InPlace,
    /// What the store has ordered or answered; empty between events.
    pub(crate) outlet: Outlet,
    /// How much its store may take.
    pub(crate) space: Space,
    /// Its store may lose what it has answered, and go on. It begins to when a part is added that does.
    is_forgetful: bool,
    /// Who gets a report of what its store has lost; see [`Unit::losses`].
    losses: Arc<Losses>,
    pub(crate) side: CoreSide<TaskKey, WaitKey>,
    /// Tasks that wait for fences to be lowered.
    pub(crate) parked: Vec<TaskKey>,
    /// Tasks that wait for room in the store.
    pub(crate) full: VecDeque<TaskKey>,
    /// How much data its store works on; see [`Lien`].
    pub(crate) held_bytes: Rc<Cell<usize>>,
    /// What its owner keeps, on the core that owns it.
    pub(crate) owner: Option<UnitOwner>,
    /// The size in blocks that the owner was asked for last, which it has or will have.
    pub(crate) blocks_asked: u64,
    /// It is being removed: administrators get no order of it through any more.
    pub(crate) is_leaving: bool,
}

impl Unit {
    pub(crate) fn new(
        view: LogicalUnit,
        store: Box<dyn Backstore>,
        owner: Option<UnitOwner>,
    ) -> Self {
        debug_assert!(
            owner
                .as_ref()
                .is_none_or(|owner| Arc::ptr_eq(owner.shared(), view.shared())),
            "the owner begins with another state"
        );
        debug_assert_eq!(
            store.capabilities().block_bytes,
            view.profile().capabilities.block_bytes,
            "the store has other blocks"
        );
        Self {
            blocks_asked: view.shared().blocks,
            view,
            in_place: InPlace::of(store.capabilities()),
            is_forgetful: store.durability().lost.is_some(),
            losses: Arc::default(),
            store,
            outlet: Outlet::default(),
            space: Space::Free,
            side: CoreSide::default(),
            parked: Vec::new(),
            full: VecDeque::new(),
            held_bytes: Rc::default(),
            owner,
            is_leaving: false,
        }
    }
}

impl Unit {
    /// Takes over the size that the store was found to have, and what changes with it.
    pub(crate) fn refresh_size(&mut self) {
        self.store.refresh_size();
        self.in_place = InPlace::of(self.store.capabilities());
        self.is_forgetful = self.store.durability().lost.is_some();
        debug_assert_eq!(
            self.store.capabilities().block_bytes,
            self.view.profile().capabilities.block_bytes,
            "the store has other blocks"
        );
    }

    /// Who gets reports of losses, where the store may lose what it has answered.
    #[inline]
    pub(crate) fn losses(&self) -> Option<&Losses> {
        self.is_forgetful.then_some(&*self.losses)
    }

    /// The same for all cores that have the unit.
    pub(crate) fn share_losses(&mut self, losses: &Arc<Losses>) {
        self.losses = Arc::clone(losses);
    }

    /// Another store stands in the place of its own, which is closed.
    pub(crate) fn exchange(&mut self, store: Box<dyn Backstore>) {
        debug_assert_eq!(self.held_bytes.get(), 0, "the store works");
        self.store = store;
        self.refresh_size();
        // Who loads it asks for these.
        let capabilities = self.store.capabilities();
        self.blocks_asked = capabilities.size_bytes / u64::from(capabilities.block_bytes);
    }

    /// Its store is closed.
    pub(crate) fn close(&mut self) {
        debug_assert_eq!(self.held_bytes.get(), 0, "the store works");
        debug_assert_eq!(self.side.orphans(), 0, "requests may land");
        self.owner = None;
        self.is_forgetful = false;
        self.store = Box::new(NoStore(self.store.capabilities().clone()));
    }

    /// How often its store has lost what it had answered.
    pub(crate) fn lost(&self) -> u64 {
        let durability = self.store.durability();
        let lost = durability.lost.unwrap_or_default();
        if durability.lost_before > 0 {
            self.losses.note_earlier(durability.lost_before, lost);
        }
        lost
    }

    /// Whether its store may hold something in a cache: not where all was written through, nor where the store knows
    /// that a flush has covered everything.
    pub(crate) fn may_hold(&self) -> bool {
        self.view.shared().cache.may_hold() && self.store.durability().may_have_unflushed
    }

    /// Whether a loss is still to be reported to an initiator, and was to no administrator.
    pub(crate) fn owes(&self) -> bool {
        let losses = self.losses();
        losses.is_some_and(|losses| losses.is_owed(self.lost()))
    }

    /// A nexus has left it. `is_farewell`: its initiator has had all answers.
    pub(crate) fn note_departure(&self, nexus: NexusId, is_farewell: bool, now: Duration) {
        if let Some(losses) = self.losses() {
            let departure = Departure {
                is_covered: !self.store.durability().may_have_unflushed,
                lost: self.lost(),
                is_logout: is_farewell,
                now,
            };
            losses.depart(nexus, departure);
        }
    }

    /// Whether a SIMPLE command of this nexus need neither wait nor keep others waiting.
    #[inline]
    pub(crate) fn lets_simple_pass(&mut self, nexus: NexusSlot) -> bool {
        let set = self.view.task_set(nexus);
        set.is_some_and(|set| set.lets_simple_pass()) && self.side.is_open()
    }
}

/// What a unit's store works on for one task; ends with the task's wait, or with the task.
#[derive(Debug)]
pub(crate) struct Lien {
    held: Rc<Cell<usize>>,
    bytes: usize,
}

impl Lien {
    pub(crate) fn new(held: &Rc<Cell<usize>>, bytes: usize) -> Self {
        held.set(held.get() + bytes);
        Self {
            held: Rc::clone(held),
            bytes,
        }
    }

    /// How much it is.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Lien {
    fn drop(&mut self) {
        debug_assert!(
            self.held.get() >= self.bytes,
            "more comes back than was held"
        );
        self.held.set(self.held.get() - self.bytes);
    }
}

/// What stands where a store was, or could not be had: it takes nothing.
#[derive(Debug)]
pub struct NoStore(pub Capabilities);

impl Backstore for NoStore {
    fn capabilities(&self) -> &Capabilities {
        &self.0
    }

    fn durability(&self) -> Durability {
        Durability::UNCOUNTED
    }

    fn submit(&mut self, _: IoTag, _: IoRequest, _: &mut Outlet) -> Submitted {
        Submitted::Done(Err(IoFailure::Hardware { errno: 0 }))
    }

    // What the store that stood here had ordered ends here.

    fn handle_ring_result(&mut self, _: PartTag, _: RingOperation, _: i32, _: &mut Outlet) {}

    fn handle_helper_result(&mut self, _: PartTag, _: HelperResult, _: &mut Outlet) {}

    fn handle_socket(&mut self, _: SocketTag, _: u64, _: SocketResult, _: &mut Outlet) {}

    fn handle_timer(&mut self, _: u64, _: &mut Outlet) {}

    fn refresh_size(&mut self) -> Option<u64> {
        None
    }
}
