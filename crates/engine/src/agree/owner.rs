//! The owner's side of a unit: changes happen one after the other.
//!
//! A change is proposed, made safe if it must survive, committed, sent to every core, and answered
//! when every core has it and the tasks that had to end have ended. A proposal that could not be
//! made safe is dropped: nobody has seen it. Where it may have been made safe all the same, the state in force is made
//! safe again, because what was answered as failed must not be there after the next start.
//!
//! What is made safe replaces the version that it was computed from. Where somebody else has saved meanwhile, that
//! proposal and all later ones that must survive are refused, until the unit is started again: a state that this
//! owner does not know is not replaced. All else goes on with the state in force.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use marks::sometimes;
use scsi::{
    Change, ChangeKind, Owner, PortName, Profile, Proposal, Reply, Sense, SenseCode, SenseKey,
    Shared, Status,
};

use super::refusal::{Refusal, Verdict};
use super::{FenceNumber, ToCore, ToOwner, Update, overlap};
use crate::Ticket;
use crate::authority::{Save, SaveError, Version};

/// A change whose new state could not be kept safely; it has not happened.
pub(super) const NOT_KEPT: Sense =
    Sense::new(SenseKey::HardwareError, SenseCode::INTERNAL_TARGET_FAILURE);

/// How long after a save of the state in force that has failed the next one begins.
pub(super) const RESTORE_PAUSE: Duration = Duration::from_secs(30);

/// A change that has not begun, because one before it takes too long.
const BUSY: Reply = Reply {
    status: Status::Busy,
    sense: None,
    transfer_length: 0,
};

/// How long an owner waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Patience {
    /// A command's change for its turn, and the keeping of its state.
    pub change: Duration,
}

/// What an owner wants done.
#[derive(Debug)]
pub enum Order {
    /// Send this to one core.
    Post {
        /// Which.
        core: usize,
        /// What.
        message: ToCore,
    },
    /// Send this to every core.
    PostToAll(ToCore),
    /// Make this safe, then call [`UnitOwner::handle_saved`]. There is one at a time.
    Save(Save),
}

/// The owner's side of one unit.
#[derive(Debug)]
pub struct UnitOwner {
    owner: Owner,
    last_save: LastSave,
    /// What is saved may not be the state in force, which is saved again then.
    restore_at: Option<Duration>,
    cores: usize,
    patience: Patience,
    /// Changes that wait for the current one.
    queue: VecDeque<Queued>,
    current: Option<Current>,
    /// In the order they were asked for.
    fences: Vec<OwnedFence>,
    next_fence: u64,
    refusal: Refusal,
    orders: VecDeque<Order>,
}

/// Whose the state is that was saved last.
#[derive(Clone, Copy, Debug)]
enum LastSave {
    /// Of this owner, which loaded it or saved it; `None` if nothing was saved yet.
    Own(Option<Version>),
    /// Of somebody else.
    Foreign,
}

/// A change that waits for its turn.
#[derive(Debug)]
struct Queued {
    ticket: Ticket,
    change: Change,
    since: Duration,
}

/// A change on its way.
#[derive(Debug)]
enum Current {
    /// Its state is being made safe; nobody has seen it.
    Keeping {
        ticket: Ticket,
        proposal: Proposal,
        since: Duration,
    },
    /// The same, but it took too long and was answered as failed: it never happens.
    GivenUp,
    /// What was made safe of a change that has failed, or may have been, is replaced by the state in force.
    Restoring {
        /// Who is answered when that is done or has failed, and since when that change has been on its way.
        asker: Option<(Ticket, Duration)>,
    },
    /// It is in force, and sent to every core.
    Installing {
        ticket: Ticket,
        reply: Reply,
        /// Cores that have not confirmed.
        left: usize,
        is_complete: bool,
    },
}

/// Where a fence stands.
#[derive(Debug)]
struct OwnedFence {
    number: FenceNumber,
    holder: Ticket,
    blocks: Range<u64>,
    /// How many cores have not confirmed; `None` while earlier fences are in the way.
    raising: Option<usize>,
}

impl UnitOwner {
    /// Of a unit that so many cores have a view of; `saved` is the version that `owner` was loaded from.
    pub fn new(owner: Owner, saved: Option<Version>, cores: usize, patience: Patience) -> Self {
        Self {
            owner,
            last_save: LastSave::Own(saved),
            restore_at: None,
            cores,
            patience,
            queue: VecDeque::new(),
            current: None,
            fences: Vec::new(),
            next_fence: 0,
            refusal: Refusal::new(cores),
            orders: VecDeque::new(),
        }
    }

    /// It waits so long from now on.
    pub const fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// The state in force.
    pub const fn shared(&self) -> &Arc<Shared> {
        self.owner.shared()
    }

    /// The medium, where it can be ejected.
    pub fn medium(&self) -> Option<scsi::Medium> {
        self.owner.medium()
    }

    /// The holder of the SPC-2 reservation in force.
    pub fn reserved_by(&self) -> Option<&PortName> {
        self.owner.reserved_by()
    }

    /// The state in force as it is kept.
    pub fn kept_state(&self) -> Vec<u8> {
        self.owner.kept_state()
    }

    /// The unit says something else of itself from now on.
    pub fn set_profile(&mut self, profile: Arc<Profile>) {
        self.owner.set_profile(profile);
    }

    /// Nothing is under way: no change, no fence.
    pub fn is_idle(&self) -> bool {
        self.current.is_none() && self.queue.is_empty() && self.fences.is_empty()
    }

    /// What is in force is being sent to every core.
    pub fn is_installing(&self) -> bool {
        matches!(self.current, Some(Current::Installing { .. }))
    }

    /// Nobody needs the unit any more: who waits for a change of it, which some event of the last moment asked for,
    /// gets an answer.
    pub(crate) fn into_answers(self) -> impl Iterator<Item = (usize, ToCore)> {
        debug_assert!(self.fences.is_empty(), "{:?} are held", self.fences);
        let current = match self.current {
            Some(
                Current::Keeping { ticket, .. }
                | Current::Installing { ticket, .. }
                | Current::Restoring {
                    asker: Some((ticket, _)),
                },
            ) => Some(ticket),
            Some(Current::GivenUp | Current::Restoring { asker: None }) | None => None,
        };
        let queue = self.queue.into_iter().map(|queued| queued.ticket);
        current
            .into_iter()
            .chain(queue)
            .filter_map(ToCore::of_the_gone)
    }

    /// No core has a request of the past in its store that may still write.
    pub fn allows_access(&self) -> bool {
        self.refusal.is_idle()
    }

    /// Takes what is to be done next. To be called after every other call until it gives `None`.
    pub fn poll_order(&mut self) -> Option<Order> {
        debug_assert!(
            self.current.is_some() || self.queue.is_empty(),
            "changes wait and none is under way"
        );
        self.orders.pop_front()
    }

    /// Something that a core has sent.
    pub fn handle(&mut self, message: ToOwner, now: Duration) {
        debug_assert!(self.orders.is_empty(), "orders were left");
        match message {
            ToOwner::Change { ticket, change } => {
                self.queue.push_back(Queued {
                    ticket,
                    change,
                    since: now,
                });
                self.next_change(now);
            }
            ToOwner::Installed { is_complete } => self.handle_installed(is_complete, now),
            ToOwner::RefuseAccess {
                core,
                blocks,
                ticket,
            } => {
                let verdict = self.refusal.name(core, blocks, ticket);
                self.carry_out(verdict);
            }
            ToOwner::RefusalConfirmed { core, round } => {
                let verdict = self.refusal.confirm(core, round);
                self.carry_out(verdict);
            }
            ToOwner::FenceWanted { ticket, blocks } => {
                debug_assert!(
                    self.fences.iter().all(|fence| fence.holder != ticket),
                    "{ticket:?} wants two fences"
                );
                debug_assert!(!blocks.is_empty(), "{ticket:?} wants no blocks");
                let number = FenceNumber(self.next_fence);
                self.next_fence += 1;
                self.fences.push(OwnedFence {
                    number,
                    holder: ticket,
                    blocks,
                    raising: None,
                });
                self.raise_fences();
            }
            ToOwner::FenceRaised { fence } => self.handle_fence_raised(fence),
            ToOwner::FenceDone { ticket } => self.handle_fence_done(ticket),
        }
    }

    /// What became of the state of [`Order::Save`].
    pub fn handle_saved(&mut self, outcome: &Result<Version, SaveError>, now: Duration) {
        debug_assert!(
            matches!(self.last_save, LastSave::Own(_)),
            "something was to be saved in the place of what is somebody else's"
        );
        match outcome {
            Ok(version) => {
                (self.last_save, self.restore_at) = (LastSave::Own(Some(*version)), None)
            }
            Err(SaveError::Conflict { .. }) => {
                (self.last_save, self.restore_at) = (LastSave::Foreign, None);
                sometimes!("somebody else has saved the state of a unit");
            }
            Err(SaveError::Failed(_) | SaveError::Uncertain(_)) => {}
        }
        match (self.current.take(), outcome) {
            (
                Some(Current::Keeping {
                    ticket, proposal, ..
                }),
                Ok(_),
            ) => self.put_in_force(ticket, proposal),
            (
                Some(Current::Keeping { ticket, .. }),
                Err(SaveError::Conflict { .. } | SaveError::Failed(_)),
            ) => self.answer(ticket, Reply::check(NOT_KEPT), true),
            (Some(Current::Keeping { ticket, since, .. }), Err(SaveError::Uncertain(_))) => {
                sometimes!("it is not known whether a state was saved");
                self.restore(Some((ticket, since)), now);
            }
            // It was answered as failed, so that it must not come back with the next start.
            (Some(Current::GivenUp), Ok(_) | Err(SaveError::Uncertain(_))) => {
                sometimes!("a state is saved after its change was answered as failed");
                self.restore(None, now);
            }
            (Some(Current::GivenUp), Err(SaveError::Conflict { .. } | SaveError::Failed(_))) => {}
            (Some(Current::Restoring { asker }), _) => self.answer_failed(asker),
            (installing @ Some(Current::Installing { .. }), _) => {
                debug_assert!(false, "saved twice");
                self.current = installing;
            }
            (None, _) => debug_assert!(false, "nothing was to be saved"),
        }
        self.next_change(now);
    }

    /// When [`UnitOwner::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let keeping = match &self.current {
            Some(
                Current::Keeping { since, .. }
                | Current::Restoring {
                    asker: Some((_, since)),
                },
            ) => Some(*since),
            Some(Current::GivenUp | Current::Restoring { asker: None })
            | Some(Current::Installing { .. })
            | None => None,
        };
        let commands = self.queue.iter().filter(|queued| queued.may_be_refused());
        let first = commands.map(|queued| queued.since).next();
        let first = keeping.into_iter().chain(first).min();
        let answer_at = first.map(|first| first + self.patience.change);
        // While something is under way, its end begins what is due.
        let restore_at = self.restore_at.filter(|_| self.current.is_none());
        answer_at.into_iter().chain(restore_at).min()
    }

    /// Answers commands that have waited too long: one that has not begun is taken out of the queue,
    /// one whose state is still being made safe has failed. Saves the state in force again where that is due.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        let patience = self.patience.change;
        let is_overdue = |since: Duration| now.saturating_sub(since) >= patience;
        match &mut self.current {
            Some(Current::Keeping { ticket, since, .. }) if is_overdue(*since) => {
                sometimes!("a change waits too long for its state to be saved");
                let asker = (*ticket, *since);
                self.current = Some(Current::GivenUp);
                self.answer_failed(Some(asker));
            }
            Some(Current::Restoring { asker })
                if asker.is_some_and(|(_, since)| is_overdue(since)) =>
            {
                let asker = asker.take();
                self.answer_failed(asker);
            }
            Some(
                Current::Keeping { .. }
                | Current::GivenUp
                | Current::Restoring { .. }
                | Current::Installing { .. },
            )
            | None => {}
        }
        for queued in std::mem::take(&mut self.queue) {
            if queued.may_be_refused() && is_overdue(queued.since) {
                sometimes!("a change waits too long for its turn");
                self.answer(queued.ticket, BUSY, true);
            } else {
                self.queue.push_back(queued);
            }
        }
        self.next_change(now);
        debug_assert!(
            self.poll_timeout().is_none_or(|due| now < due),
            "what is due at {now:?} stays due"
        );
    }

    // ---- changes -----------------------------------------------------------------------------

    fn next_change(&mut self, now: Duration) {
        while self.current.is_none() {
            if self.restore_at.is_some_and(|at| at <= now) {
                sometimes!("the state in force is saved again");
                self.restore(None, now);
                return;
            }
            let Some(Queued { ticket, change, .. }) = self.queue.pop_front() else {
                return;
            };
            let proposal = self.owner.propose(&change);
            let is_in_doubt = self.restore_at.is_some() && proposal.relies_on_kept_state();
            let in_force = || is_in_doubt.then(|| self.owner.kept_state());
            let Some(state) = proposal.state_to_keep().or_else(in_force) else {
                self.put_in_force(ticket, proposal);
                continue;
            };
            match self.last_save {
                LastSave::Own(replaces) => {
                    self.orders.push_back(Order::Save(Save { state, replaces }));
                    self.current = Some(Current::Keeping {
                        ticket,
                        proposal,
                        since: now,
                    });
                }
                LastSave::Foreign => self.answer(ticket, Reply::check(NOT_KEPT), true),
            }
        }
    }

    /// Makes the state in force safe in the place of what a change that failed has left, or may have left.
    fn restore(&mut self, asker: Option<(Ticket, Duration)>, now: Duration) {
        let LastSave::Own(replaces) = self.last_save else {
            debug_assert!(false, "what somebody else has saved stays");
            return self.answer_failed(asker);
        };
        let state = self.owner.kept_state();
        self.orders.push_back(Order::Save(Save { state, replaces }));
        self.current = Some(Current::Restoring { asker });
        self.restore_at = Some(now + RESTORE_PAUSE);
    }

    fn answer_failed(&mut self, asker: Option<(Ticket, Duration)>) {
        if let Some((ticket, _)) = asker {
            self.answer(ticket, Reply::check(NOT_KEPT), true);
        }
    }

    /// Sends a change to every core, or answers it when it concerns none.
    fn put_in_force(&mut self, ticket: Ticket, proposal: Proposal) {
        debug_assert!(self.current.is_none(), "changes come one after the other");
        let applied = self.owner.commit(proposal);
        debug_assert!(
            applied
                .shared
                .as_ref()
                .is_none_or(|shared| Arc::ptr_eq(shared, self.owner.shared())),
            "cores would get another state than the one in force"
        );
        let update = Update {
            ticket,
            changes_state: applied.shared.is_some(),
            notices: applied.notices,
            abort: applied.abort,
        };
        if !update.changes_state && update.notices.is_empty() && update.abort.is_empty() {
            self.answer(ticket, applied.reply, true);
            return;
        }
        self.current = Some(Current::Installing {
            ticket,
            reply: applied.reply,
            left: self.cores,
            is_complete: true,
        });
        self.orders.push_back(Order::PostToAll(ToCore::Install {
            shared: Arc::clone(self.owner.shared()),
            update: Arc::new(update),
        }));
    }

    fn handle_installed(&mut self, is_complete: bool, now: Duration) {
        let Some(Current::Installing {
            ticket,
            reply,
            left,
            is_complete: all,
        }) = &mut self.current
        else {
            debug_assert!(false, "nothing is being installed");
            return;
        };
        debug_assert!(*left > 0, "a core confirms an update twice");
        *all &= is_complete;
        *left -= 1;
        if *left == 0 {
            let (ticket, reply, all) = (*ticket, *reply, *all);
            self.current = None;
            self.answer(ticket, reply, all);
            self.next_change(now);
        }
    }

    fn answer(&mut self, ticket: Ticket, reply: Reply, is_complete: bool) {
        if ticket == Ticket::NOBODY {
            return;
        }
        self.orders.push_back(Order::Post {
            core: ticket.core,
            message: ToCore::Changed {
                ticket,
                reply,
                is_complete,
            },
        });
    }

    // ---- access ------------------------------------------------------------------------------

    fn carry_out(&mut self, verdict: Verdict) {
        if let Some((blocks, round)) = verdict.announce {
            let message = ToCore::SetAccessRefused { blocks, round };
            self.orders.push_back(Order::PostToAll(message));
        }
        let answer = |ticket: Ticket| Order::Post {
            core: ticket.core,
            message: ToCore::AccessRefused { ticket },
        };
        self.orders.extend(verdict.answer.into_iter().map(answer));
    }

    // ---- fences ------------------------------------------------------------------------------

    /// Raises every fence that no earlier one is in the way of.
    fn raise_fences(&mut self) {
        for at in 0..self.fences.len() {
            let (earlier, rest) = self.fences.split_at_mut(at);
            let Some(fence) = rest.first_mut() else { break };
            let is_free = !earlier
                .iter()
                .any(|other| overlap(&other.blocks, &fence.blocks));
            if fence.raising.is_none() && is_free {
                fence.raising = Some(self.cores);
                self.orders.push_back(Order::PostToAll(ToCore::FenceRaise {
                    fence: fence.number,
                    holder: fence.holder,
                    blocks: fence.blocks.clone(),
                }));
            }
        }
    }

    fn handle_fence_raised(&mut self, number: FenceNumber) {
        // Its holder may be done with it by now.
        let fence = self.fences.iter_mut().find(|fence| fence.number == number);
        let Some(OwnedFence {
            holder: ticket,
            raising: Some(left),
            ..
        }) = fence
        else {
            return;
        };
        debug_assert!(*left > 0, "a core confirms a fence twice");
        *left = left.saturating_sub(1);
        if *left == 0 {
            let ticket = *ticket;
            self.orders.push_back(Order::Post {
                core: ticket.core,
                message: ToCore::FenceGranted { ticket },
            });
        }
    }

    fn handle_fence_done(&mut self, holder: Ticket) {
        let Some(at) = self.fences.iter().position(|fence| fence.holder == holder) else {
            debug_assert!(false, "a fence is given back twice");
            return;
        };
        let fence = self.fences.remove(at);
        if fence.raising.is_some() {
            let message = ToCore::FenceLower {
                fence: fence.number,
            };
            self.orders.push_back(Order::PostToAll(message));
        }
        self.raise_fences();
    }
}

impl Queued {
    /// What says who is there must be carried out in any case, as must resets.
    const fn may_be_refused(&self) -> bool {
        matches!(
            self.change.kind,
            ChangeKind::Command { .. } | ChangeKind::Flushed { .. } | ChangeKind::ClearReservations
        )
    }
}

#[cfg(test)]
mod tests;
