//! Nothing new touches blocks that a request of the past may still write.
//!
//! A request that was to be aborted and is still in the store when its time is over (an orphan)
//! could land after newer data. So its core refuses commands on the blocks that it may write at once, and asks the
//! owner of the unit to have every core refuse them. Only when all have confirmed may the end of a
//! session, the answer to a task management request or a PREEMPT AND ABORT follow; until then the
//! wait goes on. What is decided about that is in [`crate::agree`].
//!
//! | Command | Beside an orphan that may write |
//! | --- | --- |
//! | reads, writes, compares or unmaps blocks (UNMAP: from its first to its last) | refused where they overlap |
//! | flushes the cache | served. It covers what was answered before; the data of the orphan was promised to nobody |
//! | ejects the medium | refused: the orphan would find none |
//! | reserves, changes mode pages, asks | served: touches no blocks |
//!
//! An orphan that only reads or flushes harms nobody. But a unit with too many orphans refuses everything
//! ([`crate::agree::ORPHANS_MAX`]), so that a store that gives nothing back is not given more and more.

use std::ops::Range;
use std::sync::Arc;

use marks::sometimes;
use scsi::{Outcome, PortName, Principal, Sense, SenseCode, SenseKey};

use crate::agree::{BlockSet, Round};
use crate::carrier::{Carrier, News};
use crate::engine::Engine;
use crate::keys::{TaskKey, WaitKey};
use crate::task::{Fencing, Request};
use crate::{Ticket, UnitIndex};

/// For an orphan whose nexus has left its unit already: no reservation is of that port.
fn unknown_port() -> PortName {
    PortName {
        transport_id: Arc::from([]),
        target_port: 0,
        principal: Principal::Unknown,
    }
}

/// Of a command on blocks that a request of the past may still write.
const REFUSED: Sense = Sense::new(SenseKey::NotReady, SenseCode::LOGICAL_UNIT_NOT_READY);

impl<C: Carrier> Engine<C> {
    /// Turns a task down that is about to touch blocks to which access is refused. True when it was.
    pub(crate) fn refuse_blocks(&mut self, key: TaskKey, blocks: Option<Range<u64>>) -> bool {
        let side = &self.units[self.tasks[key].unit].side;
        let is_refused = blocks.is_some_and(|it| side.refused().overlaps(&it));
        if is_refused {
            sometimes!("blocks are refused that a request of the past may write");
            self.turn_down(key, Outcome::check(REFUSED));
        }
        is_refused
    }

    /// The blocks that no command may touch on this core, because a request of the past may still write them.
    pub fn refused_blocks(&self, unit: UnitIndex) -> &[Range<u64>] {
        self.units[unit].side.refused().ranges()
    }

    /// Nobody waits for a task any longer that is in the store. [`Engine::name_orphans`] follows.
    pub(crate) fn make_orphan(&mut self, key: TaskKey) {
        let running = &mut self.tasks[key];
        debug_assert!(running.is_in_store(), "{key:?} could end, and is given up");
        let (unit, blocks) = (running.unit, running.blocks_to_write());
        let port = self.units[unit].view.port_of(running.nexus);
        sometimes!("a request becomes an orphan");
        running.orphan = Some(port.unwrap_or_else(unknown_port));
        self.carrier.notify(News::StoreStuck { unit });
        self.units[unit].side.add_orphan(key, blocks);
        self.settle_access(unit);
    }

    /// No fence need be there for an orphan that can change nothing, nor wait for it.
    pub(crate) fn spare_fences(&mut self, key: TaskKey) {
        let running = &mut self.tasks[key];
        if running.is_idle_orphan() {
            sometimes!("an orphan can change nothing");
            let unit = running.unit;
            if let Fencing::Own(ticket) = running.fencing {
                running.fencing = Fencing::Free;
                self.release_fence(unit, ticket);
            }
            self.leave_fences(unit, key);
        }
    }

    /// Has every core refuse what orphans of this one may write. `asks` where one was added that may.
    pub(crate) fn name_orphans(&mut self, unit: UnitIndex, asks: bool) {
        if asks || self.units[unit].side.has_news() {
            let ticket = asks.then(|| self.open_request(Request::Refusal { unit }));
            let message = self.units[unit].side.name(self.settings.core, ticket);
            self.ask_owner(unit, message);
        }
    }

    /// Whether the owner of the unit has been asked to have access refused, and has not answered.
    pub(crate) fn asks_to_refuse(&self, unit: UnitIndex) -> bool {
        let mut requests = self.requests.iter();
        requests.any(|(_, one)| matches!(one, Request::Refusal { unit: of } if *of == unit))
    }

    /// An orphan has come back.
    pub(crate) fn end_orphan(&mut self, unit: UnitIndex, key: TaskKey) {
        let waits = self.units[unit].side.end_orphan(key);
        if self.units[unit].side.orphans() == 0 {
            sometimes!("the last orphan of a core comes back");
            self.carrier.notify(News::StoreFreed { unit });
        }
        self.settle_access(unit);
        self.name_orphans(unit, false);
        for wait in waits {
            self.count_down(wait);
        }
    }

    /// A wait goes on until every core refuses access to what orphans of the unit may write. One thing more that it
    /// waits for, unless that is so already.
    pub(crate) fn await_refusal(&mut self, unit: UnitIndex, wait: WaitKey) {
        if self.units[unit].side.await_refusal(wait)
            && let Some(waiting) = self.waits.get_mut(wait)
        {
            sometimes!("a wait goes on until every core refuses");
            waiting.tasks_left += 1;
        }
    }

    /// A wait ends before that.
    pub(crate) fn leave_refusals(&mut self, wait: WaitKey) {
        for unit in self.units.values_mut() {
            unit.side.leave_refusal(wait);
        }
    }

    /// Where everything is refused, commands without blocks are, too.
    fn settle_access(&mut self, unit: UnitIndex) {
        let unit = &mut self.units[unit];
        unit.view.refuse_access(unit.side.refused().is_whole());
    }

    pub(crate) fn handle_set_access_refused(
        &mut self,
        unit: UnitIndex,
        blocks: Arc<BlockSet>,
        round: Round,
    ) {
        let core = self.settings.core;
        let confirmation = self.units[unit].side.set_refused(core, blocks, round);
        self.settle_access(unit);
        self.ask_owner(unit, confirmation);
    }

    /// The owner's answer: every core refuses access to what this one has named.
    pub(crate) fn handle_access_refused(&mut self, ticket: Ticket) {
        let Some(Request::Refusal { unit }) = self.request_mut(ticket) else {
            debug_assert!(false, "an answer nobody asked for");
            return;
        };
        let unit = *unit;
        self.close_request(ticket);
        for wait in self.units[unit].side.handle_access_refused(ticket) {
            self.count_down(wait);
        }
    }
}
