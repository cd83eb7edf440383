//! Changes of the unit's shared state, and fences: the owner's side and every core's.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use scsi::{Change, Input, Nexus, Outcome, Owner, Reply, Status, Step};

use super::core::{Core, Fence, Request, Stage, Then};
use super::{Letter, Ticket, Update};
use crate::sabotage::Sabotage;

/// What the owner keeps.
#[derive(Debug)]
pub(super) struct Owned {
    owner: Owner,
    queue: VecDeque<(Ticket, Change)>,
    current: Option<Current>,
    fences: Vec<OwnedFence>,
    /// How many cores have requests that are not accounted for.
    refusing: usize,
}

#[derive(Debug)]
struct Current {
    ticket: Ticket,
    reply: Reply,
    left: usize,
    is_complete: bool,
}

#[derive(Debug)]
struct OwnedFence {
    holder: Ticket,
    blocks: Range<u64>,
    /// How many cores have not confirmed; `None` while an older one is in the way.
    raising: Option<usize>,
}

impl Owned {
    pub(super) const fn new(owner: Owner) -> Self {
        Self {
            owner,
            queue: VecDeque::new(),
            current: None,
            fences: Vec::new(),
            refusing: 0,
        }
    }
}

impl Core {
    pub(super) fn queue_change(&mut self, ticket: Ticket, change: Change) {
        if let Some(owned) = &mut self.owned {
            owned.queue.push_back((ticket, change));
            self.next_change();
        }
    }

    pub(super) fn handle_refuse_access(&mut self, refuse: bool) {
        if let Some(owned) = &mut self.owned {
            owned.refusing = if refuse {
                owned.refusing + 1
            } else {
                owned.refusing - 1
            };
            if owned.refusing == usize::from(refuse) {
                self.post_to_all(|| Letter::SetAccessRefused { refuse });
            }
        }
    }

    fn next_change(&mut self) {
        let Some(owned) = &mut self.owned else {
            return;
        };
        if owned.current.is_some() {
            return;
        }
        let Some((ticket, change)) = owned.queue.pop_front() else {
            return;
        };
        let applied = owned.owner.apply(&change);
        if applied.persist.is_some() {
            self.kept = applied.persist;
        }
        owned.current = Some(Current {
            ticket,
            reply: applied.reply,
            left: self.settings.cores,
            is_complete: true,
        });
        let update = Rc::new(Update {
            ticket,
            shared: applied.shared,
            notices: applied.notices,
            abort: applied.abort,
        });
        self.post_to_all(|| Letter::Install(Rc::clone(&update)));
    }

    pub(super) fn handle_installed(&mut self, is_complete: bool) {
        let Some(owned) = &mut self.owned else {
            return;
        };
        let Some(current) = &mut owned.current else {
            return;
        };
        current.is_complete &= is_complete;
        current.left -= 1;
        if current.left == 0 {
            let (ticket, reply) = (current.ticket, current.reply);
            let is_complete = current.is_complete;
            owned.current = None;
            let letter = Letter::Changed {
                ticket,
                reply,
                is_complete,
            };
            self.post(ticket.core, letter);
            self.next_change();
        }
    }

    pub(super) fn install(&mut self, update: &Update) {
        if let Some(shared) = &update.shared {
            self.view.install(shared, &update.notices);
        }
        let nexuses: Vec<Nexus> = self
            .view
            .nexuses()
            .map(|(_, nexus)| nexus.clone())
            .collect();
        let is_meant = |id| {
            let nexus = nexuses.iter().find(|nexus| nexus.id == id);
            nexus.is_some_and(|nexus| update.abort.iter().any(|who| who.is(nexus)))
        };
        let mut keys = Vec::new();
        for (&key, running) in &mut self.tasks {
            if !is_meant(running.nexus) {
                continue;
            }
            match running.stage {
                // The change itself, which goes on, and those behind it in the queue of the owner:
                // it cannot wait for them, but they will not be answered.
                Stage::Owner(ticket) => running.is_aborted |= ticket != update.ticket,
                Stage::Active
                | Stage::Dormant(_)
                | Stage::DataOut
                | Stage::Store
                | Stage::StoreFull(_)
                | Stage::Parked(_)
                | Stage::Memory(_)
                | Stage::Fence => keys.push(key),
            }
        }
        self.abort_tasks(&keys, Then::Installed);
    }

    pub(super) fn handle_changed(&mut self, ticket: Ticket, reply: Reply, is_complete: bool) {
        match self.requests.remove(&ticket.request) {
            Some(Request::Task(key)) => {
                let is_aborted = self.tasks.get(&key).is_some_and(|task| task.is_aborted);
                if is_aborted {
                    self.close_task(key);
                } else if self.tasks.contains_key(&key) {
                    let step = if is_complete {
                        self.resume(key, Input::Owner(reply))
                    } else {
                        Step::Done(Outcome::status(Status::Busy))
                    };
                    self.drive(key, step);
                }
            }
            Some(Request::Management(tsih, id)) => self.answer_management(tsih, id, is_complete),
            Some(Request::Nobody | Request::Fence { .. }) | None => {}
        }
    }

    // ---- fences ------------------------------------------------------------------------------

    pub(super) fn ask_fence(&mut self, key: u64, blocks: Range<u64>) {
        let request = Request::Fence {
            task: key,
            is_granted: false,
            since: self.now,
        };
        let ticket = self.open_request(request);
        self.set_stage(key, Stage::Fence);
        if let Some(running) = self.tasks.get_mut(&key) {
            running.fence = Some(ticket);
        }
        if self.settings.sabotage == Some(Sabotage::GrantFencesUnseen) {
            self.handle_fence_granted(ticket);
            return;
        }
        self.post(0, Letter::FenceWanted { ticket, blocks });
    }

    pub(super) fn handle_fence_wanted(&mut self, holder: Ticket, blocks: Range<u64>) {
        if let Some(owned) = &mut self.owned {
            owned.fences.push(OwnedFence {
                holder,
                blocks,
                raising: None,
            });
            self.raise_fences();
        }
    }

    fn raise_fences(&mut self) {
        let cores = self.settings.cores;
        let Some(owned) = &mut self.owned else {
            return;
        };
        let mut raised = Vec::new();
        for at in 0..owned.fences.len() {
            let (older, rest) = owned.fences.split_at_mut(at);
            let Some(fence) = rest.first_mut() else {
                break;
            };
            let is_free = !older
                .iter()
                .any(|other| overlap(&other.blocks, &fence.blocks));
            if fence.raising.is_none() && is_free {
                fence.raising = Some(cores);
                raised.push((fence.holder, fence.blocks.clone()));
            }
        }
        for (ticket, blocks) in raised {
            self.post_to_all(|| Letter::FenceRaise {
                ticket,
                blocks: blocks.clone(),
            });
        }
    }

    pub(super) fn raise_fence(&mut self, holder: Ticket, blocks: Range<u64>) {
        let at_work = |running: &super::core::Running| {
            let range = running.task.as_ref().and_then(scsi::Task::blocks);
            matches!(running.stage, Stage::Store)
                && running.fence != Some(holder)
                && range.is_some_and(|range| overlap(&range, &blocks))
        };
        let busy = self.tasks.iter().filter(|(_, running)| at_work(running));
        let waiting_for: Vec<u64> = busy.map(|(&key, _)| key).collect();
        if waiting_for.is_empty() {
            self.post(0, Letter::FenceRaised { ticket: holder });
        }
        self.fences.push(Fence {
            holder,
            blocks,
            waiting_for,
        });
    }

    pub(super) fn handle_fence_raised(&mut self, holder: Ticket) {
        let Some(owned) = &mut self.owned else {
            return;
        };
        let fence = owned.fences.iter_mut().find(|fence| fence.holder == holder);
        if let Some(left) = fence.and_then(|fence| fence.raising.as_mut()) {
            *left -= 1;
            if *left == 0 {
                self.post(holder.core, Letter::FenceGranted { ticket: holder });
            }
        }
    }

    pub(super) fn handle_fence_granted(&mut self, ticket: Ticket) {
        if let Some(Request::Fence {
            task, is_granted, ..
        }) = self.requests.get_mut(&ticket.request)
        {
            *is_granted = true;
            let key = *task;
            let step = self.resume(key, Input::FenceGranted);
            self.drive(key, step);
        }
    }

    pub(super) fn handle_fence_done(&mut self, holder: Ticket) {
        let Some(owned) = &mut self.owned else {
            return;
        };
        let at = owned.fences.iter().position(|fence| fence.holder == holder);
        if let Some(at) = at {
            let fence = owned.fences.remove(at);
            if fence.raising.is_some() {
                self.post_to_all(|| Letter::FenceLower { ticket: holder });
            }
            self.raise_fences();
        }
    }

    pub(super) fn lower_fence(&mut self, holder: Ticket) {
        self.fences.retain(|fence| fence.holder != holder);
        for key in std::mem::take(&mut self.parked) {
            self.retry(key);
        }
    }

    /// Whether a task may not start on its blocks now.
    pub(super) fn is_fenced(&self, key: u64) -> bool {
        let Some(running) = self.tasks.get(&key) else {
            return false;
        };
        let Some(blocks) = running.task.as_ref().and_then(scsi::Task::blocks) else {
            return false;
        };
        // Who was at work when the fence was raised goes on to its end: the fence waits for it.
        self.fences.iter().any(|fence| {
            running.fence != Some(fence.holder)
                && !fence.waiting_for.contains(&key)
                && overlap(&fence.blocks, &blocks)
        })
    }

    /// A task is over: fences that waited for it may be up.
    pub(super) fn leave_fences(&mut self, key: u64) {
        let mut up = Vec::new();
        for fence in &mut self.fences {
            let before = fence.waiting_for.len();
            fence.waiting_for.retain(|&other| other != key);
            if before > 0 && fence.waiting_for.is_empty() {
                up.push(fence.holder);
            }
        }
        for ticket in up {
            self.post(0, Letter::FenceRaised { ticket });
        }
    }

    pub(super) fn time_out_fences(&mut self) {
        let (now, timeout) = (self.now, self.settings.fence_timeout);
        let late = self.requests.values().filter_map(|request| match request {
            Request::Fence {
                task,
                is_granted: false,
                since,
            } if now >= *since + timeout => Some(*task),
            Request::Fence { .. }
            | Request::Task(_)
            | Request::Management(..)
            | Request::Nobody => None,
        });
        let late: Vec<u64> = late.collect();
        for key in late {
            self.drive(key, Step::Done(Outcome::status(Status::Busy)));
        }
    }
}

/// True when the ranges have a block in common.
const fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}
