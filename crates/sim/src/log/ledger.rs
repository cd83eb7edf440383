//! What each sector may hold after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::medium::{Medium, SECTOR};

/// What a sector holds that a change has made: its mark, its place, its mark again; zeros for the mark 0.
pub(super) fn sector_of(mark: u64, at: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    if mark > 0 {
        let words = [mark, at].into_iter().cycle();
        for (piece, word) in bytes.chunks_mut(8).zip(words) {
            piece.copy_from_slice(&word.to_le_bytes());
        }
    }
    bytes
}

/// A change of sectors.
#[derive(Clone, Debug)]
struct Change {
    sectors: Range<u64>,
    /// 0 for zeros.
    mark: u64,
    /// It is to be durable when it ends well.
    is_durable: bool,
    begun: u64,
    ended: Option<u64>,
    is_good: bool,
    /// A crash must not take it back.
    is_promised: bool,
}

impl Change {
    /// Whether a start has to find it. Where only the process ends, that is all that was answered.
    const fn is_kept(&self, is_killed: bool) -> bool {
        self.is_promised || is_killed && self.is_good
    }
}

/// How a life ended.
#[derive(Debug)]
pub(super) struct End<'a> {
    /// The store as it was then.
    pub lived: &'a Medium,
    /// The process was killed, and the machine went on.
    pub is_killed: bool,
    /// The marks of changes that ended as failed before the store had anything of them.
    pub given_up: &'a BTreeSet<u64>,
}

/// All changes since the last start, and what there was then.
#[derive(Debug)]
pub(super) struct Ledger {
    changes: Vec<Change>,
    /// By mark.
    marks: BTreeMap<u64, usize>,
    /// Which changes touch a sector.
    touching: Vec<Vec<usize>>,
    /// The mark of each sector at the start.
    base: Vec<u64>,
}

impl Ledger {
    /// Of a store that holds this.
    pub(super) fn new(store: &Medium) -> Self {
        let sectors = store.len() / SECTOR as u64;
        let base: Vec<u64> = (0..sectors).map(|at| mark_of(&store.sector(at))).collect();
        Self {
            changes: Vec::new(),
            marks: BTreeMap::new(),
            touching: base.iter().map(|_| Vec::new()).collect(),
            base,
        }
    }

    /// A change is asked for. Its number.
    pub(super) fn begin(
        &mut self,
        sectors: Range<u64>,
        mark: u64,
        is_durable: bool,
        now: u64,
    ) -> usize {
        let number = self.changes.len();
        for (touching, at) in self.touching.iter_mut().zip(0..) {
            if sectors.contains(&at) {
                touching.push(number);
            }
        }
        if mark > 0 {
            self.marks.insert(mark, number);
        }
        self.changes.push(Change {
            sectors,
            mark,
            is_durable,
            begun: now,
            ended: None,
            is_good: false,
            is_promised: false,
        });
        number
    }

    /// It is answered.
    pub(super) fn end(&mut self, number: usize, is_good: bool, now: u64) {
        if let Some(change) = self.changes.get_mut(number) {
            change.ended = Some(now);
            change.is_good = is_good;
            change.is_promised = is_good && change.is_durable;
        }
    }

    /// A flush that began then ended well.
    pub(super) fn flushed(&mut self, begun: u64) {
        for change in &mut self.changes {
            let is_before = change.ended.is_some_and(|ended| ended < begun);
            change.is_promised |= change.is_good && is_before;
        }
    }

    /// The mark of a change, if it is not zeros.
    pub(super) fn mark(&self, number: usize) -> Option<u64> {
        let mark = self.changes.get(number)?.mark;
        (mark > 0).then_some(mark)
    }

    /// What is wrong with what a start has found, if anything.
    pub(super) fn judge(&self, found: &Medium, end: &End<'_>) -> Option<(&'static str, String)> {
        (0..).zip(&self.base).find_map(|(at, base)| {
            let bytes = found.sector(at);
            let mark = mark_of(&bytes);
            if bytes != sector_of(mark, at) {
                let detail =
                    format!("sector {at} begins with mark {mark} and goes on with another");
                return Some(("sectors-are-whole", detail));
            }
            if end.given_up.contains(&mark) {
                let detail = format!("sector {at} has mark {mark}");
                return Some(("what-was-given-up-stays-away", detail));
            }
            self.judge_sector(at, mark, *base, end)
        })
    }

    fn judge_sector(
        &self,
        at: u64,
        mark: u64,
        base: u64,
        end: &End<'_>,
    ) -> Option<(&'static str, String)> {
        let rule = "what-was-answered-is-there";
        let touching = self
            .touching
            .get(usize::try_from(at).ok()?)
            .into_iter()
            .flatten();
        let touching: Vec<&Change> = touching.filter_map(|one| self.changes.get(*one)).collect();
        let past = end.lived.past(at);
        let promised = || touching.iter().filter(|one| one.is_kept(end.is_killed));
        if mark == base && promised().next().is_none() {
            return None;
        }
        let could_be = |one: &&&Change| one.mark == mark;
        let mut missing = None;
        for one in touching.iter().filter(could_be) {
            let later = promised().find(|other| is_before(one, other, &past));
            match later {
                None => return None,
                Some(other) => missing = Some(other),
            }
        }
        let Some(missing) = missing.or_else(|| promised().next_back()) else {
            let detail = format!("sector {at} has mark {mark}, had {base}, and nobody changed it");
            return Some((rule, detail));
        };
        let (begun, ended) = (missing.begun, missing.ended.unwrap_or_default());
        let detail = format!(
            "sector {at} has mark {mark}; that of {:?} to mark {}, {begun} to {ended}, was answered and came later",
            missing.sectors, missing.mark
        );
        Some((rule, detail))
    }
}

/// Whether a change was certainly over in this sector when the other, which was answered as good, took effect.
fn is_before(one: &Change, other: &Change, past: &[(u64, u64)]) -> bool {
    if std::ptr::eq(one, other) {
        return false;
    }
    if one.ended.is_some_and(|ended| ended < other.begun) {
        return true;
    }
    // Zeros may be those of another change that was under way then, so the doubt is in favour of the store: its own may
    // be yet to come.
    if one.mark == 0 && one.ended.is_none() {
        return false;
    }
    let is_of = |change: &Change, (when, mark): &(u64, u64)| {
        let is_within = *when >= change.begun && change.ended.is_none_or(|ended| *when <= ended);
        *mark == change.mark && is_within
    };
    let own = past.iter().rposition(|it| is_of(one, it));
    let others = past.iter().position(|it| is_of(other, it));
    own.zip(others).is_some_and(|(own, others)| own < others)
}

fn mark_of(bytes: &[u8; SECTOR]) -> u64 {
    u64::from_le_bytes(bytes.first_chunk().copied().unwrap_or_default())
}
