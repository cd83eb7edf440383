//! What a session sees changes while it runs, as far as each turn may go.
//!
//! One change of the configuration may give or take a unit in a thousand sessions that see thousands of units each,
//! and each of those has to learn of it. So the change of a session is made of pieces ([`crate::pieces`]), and sessions
//! take turns. Both lists are walked side by side, in the order of their numbers: first for what is taken, then for
//! what is given, and at last for the notices, since an initiator looks when it has one.

use crate::keys::SessionKey;
use crate::luns::VisibleLun;

/// Which way of the lists it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Pass {
    Take,
    Give,
    Notify,
}

/// What a session sees is being changed.
#[derive(Debug)]
pub(crate) struct ViewChange<R> {
    pub(crate) session: SessionKey,
    before: Vec<VisibleLun>,
    now: Vec<VisibleLun>,
    pass: Pass,
    /// How much of each list this pass has behind it.
    at: (usize, usize),
    /// A unit came or went.
    is_other: bool,
    pub(crate) receipt: R,
}

/// What is to be done for one number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Nothing.
    Look,
    /// It leads nowhere from now on, or elsewhere.
    Take(VisibleLun),
    /// It leads there.
    Give(VisibleLun),
    /// The session may write there, or not.
    SetReadOnly(VisibleLun),
    /// Others came or went.
    Notify(VisibleLun),
}

impl<R> ViewChange<R> {
    /// From all that a session saw before to all that it sees now.
    pub(crate) fn new(
        session: SessionKey,
        (mut before, mut now): (Vec<VisibleLun>, Vec<VisibleLun>),
        receipt: R,
    ) -> Self {
        for luns in [&mut before, &mut now] {
            luns.sort_unstable_by_key(|one| one.lun);
            debug_assert!(
                luns.is_sorted_by(|a, b| a.lun < b.lun),
                "a number leads to two units: {luns:?}"
            );
        }
        Self {
            session,
            before,
            now,
            pass: Pass::Take,
            at: (0, 0),
            is_other: false,
            receipt,
        }
    }

    /// What is to be done for the next number, if any is left.
    pub(crate) fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(pair) = self.next_pair() {
                return Some(self.step(pair));
            }
            self.at = (0, 0);
            self.pass = match self.pass {
                Pass::Take => Pass::Give,
                // A unit that stays says that others came or went.
                Pass::Give if self.is_other => Pass::Notify,
                Pass::Give | Pass::Notify => return None,
            };
        }
    }

    fn next_pair(&mut self) -> Option<(Option<VisibleLun>, Option<VisibleLun>)> {
        let old = self.before.get(self.at.0).copied();
        let new = self.now.get(self.at.1).copied();
        let first = old.into_iter().chain(new).map(|one| one.lun).min()?;
        let is_first = |one: &VisibleLun| one.lun == first;
        let (old, new) = (old.filter(is_first), new.filter(is_first));
        self.at.0 += usize::from(old.is_some());
        self.at.1 += usize::from(new.is_some());
        Some((old, new))
    }

    fn step(&mut self, (old, new): (Option<VisibleLun>, Option<VisibleLun>)) -> Step {
        let stays = matches!((old, new), (Some(old), Some(new)) if old.unit == new.unit);
        self.is_other |= !stays;
        match (self.pass, old, new) {
            (Pass::Take, Some(old), _) if !stays => Step::Take(old),
            (Pass::Give, _, Some(new)) if !stays => Step::Give(new),
            (Pass::Take, Some(old), Some(new)) if old.read_only != new.read_only => {
                Step::SetReadOnly(new)
            }
            (Pass::Notify, Some(_), Some(new)) if stays => Step::Notify(new),
            (Pass::Take | Pass::Give | Pass::Notify, _, _) => Step::Look,
        }
    }
}
