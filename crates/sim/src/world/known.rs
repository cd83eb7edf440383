//! What the world knows of requests of the past, of lost caches, of saves, and of what an administrator has done. The
//! modules beside this find it out, and check what must be true of it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use engine::MediumOrder;
use front::SessionReport;
use iscsi::pdu::Tsih;

use crate::ledger::{Handle, WriteId};
use crate::letter::Receipt;
use crate::prng::Prng;
use crate::setup::Rules;

/// What the world knows of requests of the past.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// What no core waits for any longer, when the last event was over.
    pub(super) orphans: BTreeSet<(usize, u64)>,
    /// Those of them of which somebody was told that they are over.
    pub(super) feared: BTreeSet<(usize, u64)>,
    /// What orphans might write, and when each was seen last.
    pub(super) written: BTreeMap<(usize, u64), (Range<usize>, Duration)>,
    /// From the first block to the last, of orphans too many to be noted one by one.
    pub(super) crowd: Option<(Range<usize>, Duration)>,
    /// Of all that was asked of the administrator.
    pub(super) receipts: Vec<Weak<()>>,
}

/// What an administrator has done to a session.
#[derive(Debug, Default)]
pub(super) struct Rights {
    /// Its LUN is taken from it.
    pub(super) is_taken: bool,
    /// It may not write.
    pub(super) is_narrow: bool,
    /// What is under way, until the receipt has gone.
    pub(super) pending: Vec<(Weak<()>, Pending)>,
    /// From this command on none may have written anything, as long as `is_narrow`.
    pub(super) writes_nothing_from: Option<Handle>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pending {
    Take,
    Narrow,
}

impl Past {
    /// An administrator waits for this.
    pub(super) fn note_receipt(&mut self, receipt: &Receipt) {
        self.receipts.push(Rc::downgrade(receipt));
    }
}

/// What one initiator has to learn.
#[derive(Debug, Default)]
pub(super) struct Creditor {
    /// Writes of it that have gone, and that it does not know of.
    pub(super) gone: BTreeSet<WriteId>,
    /// It has written since a flush that covers all.
    pub(super) has_written: bool,
    /// The last write that it sent.
    pub(super) last_write: Handle,
    /// It may get a report.
    pub(super) may_learn: bool,
    /// Writes of it that were under way when a cache went: each may be a report of its own.
    pub(super) late: BTreeSet<Handle>,
    /// It got one in its session.
    pub(super) has_learned: bool,
}

/// What the world knows of lost caches.
#[derive(Debug)]
pub(super) struct Losses {
    pub(super) prng: Prng,
    pub(super) creditors: BTreeMap<usize, Creditor>,
    /// Who sent each write, and since which handle it knows that it is done.
    pub(super) writes: BTreeMap<WriteId, (usize, Option<Handle>)>,
    /// What was sent before this was sent before the last loss.
    pub(super) since: Handle,
    /// Flushes that were sent while no write of their initiator was under way.
    pub(super) whole: BTreeSet<Handle>,
}

impl Losses {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            prng: Prng::stream(seed, "losses"),
            creditors: BTreeMap::new(),
            writes: BTreeMap::new(),
            since: 0,
            whole: BTreeSet::new(),
        }
    }

    /// Whether what this command did may have gone before it was answered.
    pub(super) const fn may_have_undone(&self, handle: Handle) -> bool {
        handle < self.since
    }

    /// The machine of the target has crashed, which everyone knows.
    pub(super) fn restart(&mut self) {
        self.creditors.clear();
        self.writes.clear();
        self.whole.clear();
    }

    /// A command will not be answered: nobody takes it for done.
    pub(super) fn note_unanswered(&mut self, handle: Handle) {
        self.whole.remove(&handle);
        for creditor in self.creditors.values_mut() {
            creditor.late.remove(&handle);
        }
        if let Some((initiator, _)) = self.writes.remove(&handle)
            && let Some(creditor) = self.creditors.get_mut(&initiator)
        {
            creditor.gone.remove(&handle);
        }
    }

    /// An initiator gives up its session. Its last report may be on its way, and then the next one brings it again.
    pub(super) fn note_lost_session(&mut self, initiator: usize) {
        let creditor = self.creditors.entry(initiator).or_default();
        creditor.may_learn |= std::mem::take(&mut creditor.has_learned);
    }
}

/// What becomes of a state that is to be saved.
#[derive(Clone, Copy, Debug)]
pub(super) enum SaveFate {
    Good,
    /// It cannot be written.
    Fails,
    /// It is written, and the answer is that this is not certain.
    Uncertain,
    /// Another target has saved before.
    Late,
}

/// What the world knows of saves.
#[derive(Debug)]
pub(super) struct Saving {
    /// The state of the unit at its first start.
    pub(super) first: Vec<u8>,
    /// A save is under way.
    pub(super) is_open: bool,
    /// It is of the state in force: of a change that was saved and had taken too long by then, nothing is to be left.
    pub(super) restores: bool,
    /// Saves that failed since one was uncertain, with that one.
    pub(super) failures: u32,
}

impl Saving {
    pub(super) const fn new(first: Vec<u8>) -> Self {
        Self {
            first,
            is_open: false,
            restores: false,
            failures: 0,
        }
    }

    /// The target starts again, with what is saved.
    pub(super) const fn restart(&mut self) {
        (self.is_open, self.failures) = (false, 0);
    }
}

/// What an administrator has under way, and what follows from what it has done.
#[derive(Debug)]
pub(super) struct Administrator {
    pub(super) prng: Prng,
    /// The medium is being moved: how, and the flush of that in the ledger.
    pub(super) moving: Option<(MediumOrder, Handle)>,
    pub(super) medium_is_out: bool,
    /// Commands under way that would load the medium.
    pub(super) loads: BTreeSet<Handle>,
    /// The medium is out for certain since the disk had been asked for this much.
    pub(super) left_alone: Option<u64>,
    /// Sessions that were dismissed.
    pub(super) dismissed: BTreeSet<Tsih>,
    /// Those of them that are not over yet.
    pub(super) leaving: Vec<(Weak<()>, Tsih)>,
    pub(super) rules: Arc<Rules>,
    pub(super) change: Option<(Weak<()>, Stage)>,
}

/// How far a change of the rules is; each stage ends with its receipt.
#[derive(Debug)]
pub(super) enum Stage {
    /// The front learns the rules.
    Access,
    /// Every core reports its sessions here.
    Report(Rc<RefCell<Vec<SessionReport>>>),
    /// Sessions end or see something else.
    Leave,
}

impl Administrator {
    /// One that has done nothing yet.
    pub(super) fn new(prng: Prng, rules: Rules) -> Self {
        Self {
            prng,
            moving: None,
            medium_is_out: false,
            loads: BTreeSet::new(),
            left_alone: None,
            dismissed: BTreeSet::new(),
            leaving: Vec::new(),
            rules: Arc::new(rules),
            change: None,
        }
    }

    /// A command that would load the medium is about to be sent.
    pub(super) fn note_load(&mut self, handle: Handle) {
        self.loads.insert(handle);
        self.left_alone = None;
    }
}
