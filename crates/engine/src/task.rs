//! A SCSI task under way on a core, what it waits for, and what waits for it.

use std::fmt::Debug;
use std::ops::Range;
use std::time::Duration;

use scsi::{ChangeKind, Nexus, NexusSlot, Outcome, PortName, Status, Task, WHOLE_MEDIUM};
use store::{IoRequest, IoTag};

use crate::carrier::Carrier;
use crate::keys::{ErrandKey, LeavingKey, NarrowingKey, SessionKey, TaskKey, WaitKey, tag_of};
use crate::life::{Life, Phase};
use crate::owed::Owed;
use crate::port::Port;
use crate::space::Look;
use crate::unit::Lien;
use crate::{TargetIndex, Ticket, UnitIndex};

/// A task that nobody waits for any longer, but which may still take effect.
#[derive(Clone, Copy, Debug)]
pub struct Orphan {
    /// Which.
    pub task: TaskKey,
    /// The request of it that the store has.
    pub request: IoTag,
    /// Its session, unless that is over or no longer sees the unit.
    pub session: Option<SessionKey>,
}

/// How a carrier's transport names its things.
pub(crate) type CommandId<C> = <<C as Carrier>::Port as Port>::CommandId;
pub(crate) type Command<C> = <<C as Carrier>::Port as Port>::Command;
pub(crate) type ManagementId<C> = <<C as Carrier>::Port as Port>::ManagementId;
pub(crate) type Farewell<C> = <<C as Carrier>::Port as Port>::Farewell;

/// What a task waits for.
#[derive(Debug)]
pub(crate) enum Stage<C: Carrier> {
    /// Nothing: it is being carried on right now.
    Active,
    /// Older tasks of its nexus (task attributes).
    Dormant(Box<Command<C>>),
    /// Data from the initiator.
    DataOut,
    /// The store, which has this request.
    Store(ErrandKey),
    /// The store had no room for the request.
    StoreFull(IoRequest),
    /// A fence of somebody else to be lowered.
    Parked(IoRequest),
    /// A buffer for the request.
    Memory(IoRequest),
    /// A buffer to answer from, because the data must not change any more.
    AnswerMemory(Outcome),
    /// A change of the unit's shared state.
    Owner,
    /// A fence of its own.
    Fence,
    /// A turn that may begin a piece of it, which costs so much.
    Turn { bytes: u32 },
}

/// What a command may wait for a buffer, before it is answered that it may try again.
const MEMORY_PATIENCE: Duration = Duration::from_secs(10);

/// What a command may wait for others of its unit, which the store takes first.
const STORE_FULL_PATIENCE: Duration = Duration::from_secs(20);

// Linux aborts a command after 30 s, if nobody says otherwise.
const _: () = assert!(MEMORY_PATIENCE.as_secs() < 30 && STORE_FULL_PATIENCE.as_secs() < 30);

impl<C: Carrier> Stage<C> {
    /// Whether the task is in a queue of its core.
    pub(crate) const fn is_queued(&self) -> bool {
        matches!(
            self,
            Self::Parked(_)
                | Self::StoreFull(_)
                | Self::Memory(_)
                | Self::AnswerMemory(_)
                | Self::Turn { .. }
        )
    }

    /// How long a task may stay in this stage, and the status it ends with then. Every wait has its
    /// line here; where there is none, something else bounds it.
    ///
    /// | Stage | Bounded by |
    /// | --- | --- |
    /// | `Active` | no wait |
    /// | `Dormant` | the tasks before it |
    /// | `DataOut` | its initiator: pings, and the time of its data; without a buffer for that, what its party has |
    /// | `Store` | nobody can take it back: an abort answers at its deadline, and what it may write is refused |
    /// | `Owner` | the deadline of the change at its owner; the watchdog, for the owner's core |
    /// | `Fence` | the deadline of its request |
    /// | `Turn` | the tasks before it, of which each turn carries on at least one |
    pub(crate) const fn patience(&self, fence: Duration) -> Option<(Duration, Status)> {
        match self {
            Self::Parked(_) => Some((fence, Status::Busy)),
            Self::Memory(_) => Some((MEMORY_PATIENCE, Status::TaskSetFull)),
            Self::AnswerMemory(_) => Some((MEMORY_PATIENCE, Status::Busy)),
            Self::StoreFull(_) => Some((STORE_FULL_PATIENCE, Status::TaskSetFull)),
            Self::Active
            | Self::Dormant(_)
            | Self::DataOut
            | Self::Store(_)
            | Self::Owner
            | Self::Fence
            | Self::Turn { .. } => None,
        }
    }

    /// Somebody else has the task's request, and its end comes by itself: from the store, or from
    /// the owner of the unit.
    pub(crate) const fn is_elsewhere(&self) -> bool {
        match self {
            Self::Store(_) | Self::Owner => true,
            Self::Active
            | Self::Dormant(_)
            | Self::DataOut
            | Self::StoreFull(_)
            | Self::Parked(_)
            | Self::Memory(_)
            | Self::AnswerMemory(_)
            | Self::Fence
            | Self::Turn { .. } => false,
        }
    }

    /// What it waits for, for those who ask where the time went. `None`: nothing.
    pub(crate) const fn phase(&self) -> Option<Phase> {
        match self {
            Self::Active => None,
            Self::Dormant(_) => Some(Phase::Order),
            Self::DataOut => Some(Phase::Data),
            Self::Store(_) | Self::StoreFull(_) | Self::Turn { .. } => Some(Phase::Store),
            Self::Parked(_) | Self::Fence => Some(Phase::Fence),
            Self::Memory(_) | Self::AnswerMemory(_) => Some(Phase::Memory),
            Self::Owner => Some(Phase::Owner),
        }
    }
}

/// What a task has to do with fences. The holder of one is stopped by none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fencing {
    /// Nothing.
    Free,
    /// It has asked for a fence by this ticket, or holds it.
    Own(Ticket),
    /// Fences of others keep its request from the store since then. Also while that waits for something else in
    /// between.
    Parked(Duration),
}

/// One task.
#[derive(Debug)]
pub(crate) struct Running<C: Carrier> {
    /// Its session, unless that has ended without waiting for the store any longer.
    pub(crate) session: Option<SessionKey>,
    pub(crate) id: CommandId<C>,
    /// The answer of the command; none when it was given.
    pub(crate) answer: Option<Owed<CommandId<C>>>,
    pub(crate) unit: UnitIndex,
    pub(crate) nexus: NexusSlot,
    pub(crate) account: C::Account,
    /// `None` while dormant.
    pub(crate) task: Option<Task>,
    /// Changed by [`Running::enter`] alone.
    pub(crate) stage: Stage<C>,
    pub(crate) life: Life,
    /// It was reported that it hangs.
    pub(crate) is_told: bool,
    /// What the store has of it.
    pub(crate) lien: Option<Lien>,
    pub(crate) fencing: Fencing,
    pub(crate) look: Look,
    /// How often the store had lost something when the first of its writes began that the store may still lose.
    pub(crate) written_since: u64,
    /// The request that the store has of it changes the medium.
    pub(crate) is_writing: bool,
    /// Something may be another than before it began: what it asked for was taken by the store, or
    /// was changed by the owner of the unit.
    pub(crate) has_altered: bool,
    /// It ends without an answer; those who wait for that go on.
    pub(crate) is_aborted: bool,
    pub(crate) waiters: Vec<WaitKey>,
    /// Nobody waits any longer, and access to what it may write is refused until it is over. The ports of its
    /// nexus, which may be gone by then.
    pub(crate) orphan: Option<PortName>,
}

impl<C: Carrier> Running<C> {
    /// A task whose turn it is now.
    pub(crate) fn new(
        (session, answer): (SessionKey, Owed<CommandId<C>>),
        id: CommandId<C>,
        (unit, nexus): (UnitIndex, NexusSlot),
        account: C::Account,
        life: Life,
    ) -> Self {
        Self {
            session: Some(session),
            id,
            answer: Some(answer),
            unit,
            nexus,
            account,
            task: None,
            stage: Stage::Active,
            life,
            is_told: false,
            lien: None,
            fencing: Fencing::Free,
            look: Look::None,
            written_since: u64::MAX,
            is_writing: false,
            has_altered: false,
            is_aborted: false,
            waiters: Vec::new(),
            orphan: None,
        }
    }

    /// Waits for something else from now on. Gives what it waited for.
    pub(crate) fn enter(&mut self, stage: Stage<C>, now: Duration) -> Stage<C> {
        debug_assert!(
            matches!(self.stage, Stage::Active) || matches!(stage, Stage::Active),
            "{:?} waits in {:?} and then in {stage:?}",
            self.id,
            self.stage
        );
        debug_assert_eq!(
            self.lien.is_some(),
            matches!(stage, Stage::Store(_)),
            "{:?} counts for a store in {stage:?}, or does not",
            self.id
        );
        self.life.leave(self.stage.phase(), now);
        std::mem::replace(&mut self.stage, stage)
    }

    /// It has been there for so long, and was not reported. One that is aborted is waited for by
    /// those who aborted it.
    pub(crate) fn hangs(&self, now: Duration, patience: Duration) -> bool {
        !self.is_told && !self.is_aborted && self.life.age(now) >= patience
    }

    /// The request that the store has of it.
    pub(crate) const fn request(&self) -> Option<IoTag> {
        if let Stage::Store(errand) = self.stage {
            Some(tag_of(errand))
        } else {
            None
        }
    }

    /// The blocks that it reads or writes. `None` when it touches none.
    pub(crate) fn blocks(&self) -> Option<Range<u64>> {
        self.task.as_ref().and_then(Task::blocks)
    }

    /// The blocks that the request in the store may still write, if there is one: those of the whole command.
    pub(crate) fn blocks_to_write(&self) -> Range<u64> {
        if self.is_in_store() && self.is_writing {
            self.blocks().unwrap_or(WHOLE_MEDIUM)
        } else {
            0..0
        }
    }

    /// It is over for all but its store, and can change nothing: what the store reads for it goes nowhere.
    pub(crate) fn is_idle_orphan(&self) -> bool {
        self.orphan.is_some() && self.is_aborted && self.blocks_to_write().is_empty()
    }

    /// True while the store may still act on the task's behalf.
    pub(crate) const fn is_in_store(&self) -> bool {
        matches!(self.stage, Stage::Store(_))
    }

    /// The ticket by which it asked for, or holds, a fence.
    pub(crate) const fn fence(&self) -> Option<Ticket> {
        match self.fencing {
            Fencing::Own(ticket) => Some(ticket),
            Fencing::Free | Fencing::Parked(_) => None,
        }
    }

    /// A fence keeps its request from the store.
    pub(crate) const fn is_parked(&self) -> bool {
        matches!(self.stage, Stage::Parked(_))
    }

    /// When it has waited in a queue for long enough, and the status it ends with then.
    pub(crate) fn deadline(&self, fence: Duration) -> Option<(Duration, Status)> {
        let (patience, status) = self.stage.patience(fence)?;
        let since = match self.fencing {
            Fencing::Parked(since) if self.is_parked() => since,
            Fencing::Parked(_) | Fencing::Free | Fencing::Own(_) => self.life.waits_since(),
        };
        Some((since + patience, status))
    }
}

/// Something that waits for tasks to end.
#[derive(Debug)]
pub(crate) struct Wait<C: Carrier> {
    /// How many tasks are still there.
    pub(crate) tasks_left: usize,
    /// When waiting ends anyway.
    pub(crate) deadline: Duration,
    /// The deadline has come once: what is left is in the store for good, and all that is waited
    /// for is that every core refuses access to what it may write.
    pub(crate) is_late: bool,
    pub(crate) then: Owed<Then<C>>,
}

/// What follows when the tasks have ended.
#[derive(Debug)]
pub(crate) enum Then<C: Carrier> {
    /// A task management request is answered.
    Management {
        session: SessionKey,
        id: ManagementId<C>,
    },
    /// The owner of the unit is notified that the update is installed.
    Installed { unit: UnitIndex },
    /// A part of a session is over.
    Farewell {
        session: SessionKey,
        farewell: Farewell<C>,
    },
    /// The session is gone.
    SessionEnd { session: SessionKey },
    /// A nexus leaves a unit: what has not ended by itself is aborted.
    Drained { leaving: LeavingKey },
    /// A nexus leaves a unit: it goes.
    Left { leaving: LeavingKey },
    /// A nexus may no longer write, and the store has nothing of it: the change is confirmed.
    Narrowed { narrowing: NarrowingKey },
    /// Nobody is interested any more.
    Nothing,
}

/// A nexus on its way out of a unit.
#[derive(Debug)]
pub(crate) struct Leaving<C: Carrier> {
    pub(crate) unit: UnitIndex,
    pub(crate) slot: NexusSlot,
    pub(crate) nexus: Nexus,
    /// Its session saw the unit by no other number.
    pub(crate) is_last: bool,
    pub(crate) receipt: C::Receipt,
}

/// A question to the owner of a unit that has not been answered.
#[derive(Debug)]
pub(crate) enum Request<C: Carrier> {
    /// A command that changes shared state.
    Task(TaskKey),
    /// A task that asked for a fence, or holds it.
    Fence {
        task: TaskKey,
        granted: bool,
        since: Duration,
    },
    /// Every core is to refuse access to what orphans of this one may write.
    Refusal { unit: UnitIndex },
    /// A reset by task management.
    Management {
        /// `None` when it was answered.
        asked: Option<(SessionKey, ManagementId<C>)>,
        kind: ChangeKind,
        /// The units that are not reset yet; `None` before the first turn of a target reset.
        rest: Option<Vec<UnitIndex>>,
        /// How many owners have not answered.
        left: usize,
        is_complete: bool,
        /// All sessions of this target end after it.
        cold: Option<TargetIndex>,
        since: Duration,
    },
    /// An administrator's change, who waits for the receipt.
    Administrator { _receipt: C::Receipt },
    /// An administrator moves a medium.
    Medium {
        unit: UnitIndex,
        step: MediumStep,
        since: Duration,
    },
}

/// How far a move is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum MediumStep {
    /// It waits for its fence.
    Fence { force: bool },
    /// It waits for its flush.
    Flush { force: bool },
    /// It waits for the owner.
    Change { is_fenced: bool },
    /// It waits for its fence, or has it, and is to be released before so long.
    Hold {
        limit: Duration,
        number: u64,
        is_up: bool,
    },
    /// A write cache: how far its order is.
    Cache(CacheStep),
}

/// How far the order of a write cache is. All of them wait for the owner but one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CacheStep {
    /// It is being switched off.
    Off { limit: Duration },
    /// It waits for its flush, for so long at most.
    Flush { limit: Duration },
    /// It is flushed, which is to be known.
    Flushed,
    /// It is put back. The order is answered.
    Restore,
}

impl MediumStep {
    /// Whether a fence was asked for that somebody has to lower.
    pub(crate) const fn has_fence(self) -> bool {
        match self {
            Self::Fence { .. } | Self::Flush { .. } | Self::Hold { .. } => true,
            Self::Change { is_fenced } => is_fenced,
            Self::Cache(_) => false,
        }
    }
}

/// How long questions may wait for their answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuestionPatience {
    pub(crate) fence: Duration,
    pub(crate) reset: Duration,
    pub(crate) flush: Duration,
}

impl<C: Carrier> Request<C> {
    /// When it is answered that it has taken too long. The question itself stays: its answer
    /// comes by itself.
    pub(crate) fn deadline(&self, patience: QuestionPatience) -> Option<Duration> {
        match self {
            Self::Fence {
                granted: false,
                since,
                ..
            } => Some(*since + patience.fence),
            Self::Management {
                asked: Some(_),
                since,
                ..
            } => Some(*since + patience.reset),
            Self::Medium {
                step: MediumStep::Fence { .. },
                since,
                ..
            } => Some(*since + patience.fence),
            Self::Medium {
                step: MediumStep::Flush { .. },
                since,
                ..
            } => Some(*since + patience.flush),
            Self::Medium {
                step: MediumStep::Hold { limit, .. } | MediumStep::Cache(CacheStep::Flush { limit }),
                since,
                ..
            } => Some(*since + *limit),
            // A change has its deadline at its owner.
            Self::Fence { .. }
            | Self::Task(_)
            | Self::Management { .. }
            | Self::Refusal { .. }
            | Self::Administrator { .. }
            | Self::Medium {
                step:
                    MediumStep::Change { .. }
                    | MediumStep::Cache(CacheStep::Off { .. } | CacheStep::Flushed | CacheStep::Restore),
                ..
            } => None,
        }
    }
}
