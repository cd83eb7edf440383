//! The disks of units, and where their states are saved.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use engine::{Save, SavedState, StateAuthority as _, UnitIndex};

use super::logs::Log;
use crate::authority::Authority;
use crate::disk::{Disk, Fate, Layout, RequestId};
use crate::prng::Prng;
use crate::sabotage::Sabotage;

/// The longest that a store is away.
pub(super) const OUTAGE_MAX_MS: u64 = 6000;

/// One of them.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) disk: Disk,
    pub(super) blocks: usize,
    pub(super) has_volatile_cache: bool,
    pub(super) requests: Vec<RequestId>,
    /// Requests that hang, and until when.
    hanging: Vec<(Duration, RequestId)>,
    pub(super) saves: VecDeque<Save>,
    pub(super) authority: Authority,
    /// Until when it is away, and whether requests wait for its return. If not, they fail.
    pub(super) away_until: Duration,
    pub(super) hangs_while_away: bool,
    /// Of 1000 requests that fail, and that hang, and of 1000 occasions for it to go away.
    failures: u32,
    hangs: u32,
    pub(super) outages: u32,
    /// The part that all that befalls, of one that lies on two. `None`: the whole.
    pub(super) faulty: Option<usize>,
    pub(super) log: Option<Log>,
    /// It is somewhere else, and its cache may go alone.
    pub(super) is_forgetful: bool,
}

impl Store {
    pub(super) fn draw(
        seed: u64,
        (unit, blocks): (UnitIndex, usize),
        sabotage: Option<Sabotage>,
    ) -> Self {
        let mut prng = Prng::stream(seed, &format!("store {}", unit.0));
        let has_volatile_cache = prng.chance(700);
        let queue = prng.pick(&[1, 4, 64]).unwrap_or(4);
        let stream = Prng::stream(seed, &format!("disk {}", unit.0));
        let disk = Disk::new(blocks, has_volatile_cache, queue, stream);
        if let Some(sabotage) = sabotage {
            disk.sabotage(sabotage);
        }
        let mut rate = |most: u64| match prng.chance(400) {
            true => u32::try_from(prng.within(1, most)).unwrap_or(0),
            false => 0,
        };
        let (failures, hangs, outages) = (rate(40), rate(60), rate(400));
        let layout = draw_layout(seed, (unit, blocks));
        disk.lay(layout);
        // The parts of a composition lose their caches apart, which is no matter of one disk.
        let is_whole = layout == Layout::Whole;
        let is_forgetful = has_volatile_cache && prng.chance(200) && is_whole;
        if is_forgetful {
            disk.be_forgetful();
        }
        let mut of_log = Prng::stream(seed, &format!("log {}", unit.0));
        let may_log = has_volatile_cache && !is_forgetful && sabotage.is_none();
        let has_log = of_log.chance(500) && may_log;
        let log = has_log.then(|| Log::draw(unit, &disk, &mut of_log));
        Self {
            log,
            is_forgetful,
            disk,
            blocks,
            has_volatile_cache,
            requests: Vec::new(),
            hanging: Vec::new(),
            saves: VecDeque::new(),
            authority: Authority::default(),
            away_until: Duration::ZERO,
            hangs_while_away: false,
            failures,
            hangs,
            outages,
            faulty: (!is_whole).then(|| prng.size(0, 1)),
        }
    }

    /// What of it may fail.
    pub(super) fn faults(&self) -> Faults {
        Faults {
            // A log fails writes to any part when a sync has failed.
            layout: match self.log {
                Some(_) => Layout::Whole,
                None => self.disk.layout(),
            },
            part: self.faulty.filter(|_| self.log.is_none()).unwrap_or(0),
            has_some: self.may_fail(),
        }
    }

    /// Its disk has all requests that it has taken.
    pub(super) fn is_plain(&self) -> bool {
        self.disk.layout() == Layout::Whole && self.log.is_none()
    }

    /// Its requests may end with errors.
    pub(super) const fn may_fail(&self) -> bool {
        self.failures > 0 || self.outages > 0 || self.is_forgetful
    }

    pub(super) fn has_requests(&self) -> bool {
        !self.requests.is_empty() || !self.hanging.is_empty() || self.has_log_requests()
    }

    /// Its log device is asked for something.
    pub(super) fn has_log_requests(&self) -> bool {
        let mut log = self.log.iter();
        log.any(|log| log.device.waiting() > 0)
    }

    /// Its disk is asked for nothing.
    pub(super) const fn is_idle(&self) -> bool {
        self.requests.is_empty() && self.hanging.is_empty()
    }

    /// It goes away for a while, and keeps requests until it comes back.
    pub(super) fn hang(&mut self, now: Duration, prng: &mut Prng) {
        self.hangs_while_away = true;
        self.away_until = now + Duration::from_millis(prng.within(1, OUTAGE_MAX_MS));
    }

    /// It keeps requests until it comes back.
    pub(super) fn hangs(&self, now: Duration) -> bool {
        self.hangs_while_away && now < self.away_until
    }

    /// When a request comes back.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.hanging.iter().map(|(until, _)| *until).min()
    }

    /// The machine stops. Gives what its successor has.
    pub(super) fn crash(&mut self, prng: &mut Prng) -> (Disk, Option<SavedState>) {
        self.disk.crash();
        if let Some(log) = &mut self.log {
            log.crash(prng);
            log.start(&self.disk);
        }
        if self.is_forgetful && prng.chance(300) {
            self.disk.lose_cache_before();
        }
        self.requests.clear();
        self.hanging.clear();
        self.saves.clear();
        // The authority of this world always answers.
        let saved = self.authority.load().ok().flatten();
        (self.disk.clone(), saved)
    }

    /// A request that ends now, unless it hangs from now on.
    pub(super) fn next_request(
        &mut self,
        (now, is_young): (Duration, bool),
        prng: &mut Prng,
    ) -> Option<(RequestId, Fate)> {
        let due = self.hanging.iter().position(|(until, _)| *until <= now);
        let is_away = is_young && now < self.away_until;
        let id = match due {
            Some(at) => self.hanging.swap_remove(at).1,
            None => {
                let last = self.requests.len().checked_sub(1)?;
                if is_away && self.hangs_while_away && self.faulty.is_none() {
                    return None;
                }
                let at = prng.size(0, last);
                if is_away && self.hangs_while_away && self.is_faulty(self.requests[at]) {
                    return None;
                }
                let id = self.requests.swap_remove(at);
                if is_young && prng.chance(self.hangs) && self.is_faulty(id) {
                    let until = now + Duration::from_millis(prng.within(1, 8000));
                    self.hanging.push((until, id));
                    return None;
                }
                id
            }
        };
        let is_faulty = self.is_faulty(id);
        let fate = match is_young && prng.chance(self.failures) {
            _ if !is_faulty => Fate::Good,
            _ if is_away => Fate::Away,
            false => Fate::Good,
            true => match prng.below(3) {
                0 => Fate::Failed,
                1 => Fate::Torn,
                _ => Fate::Away,
            },
        };
        Some((id, fate))
    }

    /// Whether what befalls the store may befall a request.
    fn is_faulty(&self, id: RequestId) -> bool {
        let part = self.disk.part_of(id);
        self.faulty.is_none_or(|faulty| part == Some(faulty))
    }
}

/// Which blocks of a store may fail.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    layout: Layout,
    /// The part, of one that lies on two.
    part: usize,
    has_some: bool,
}

impl Faults {
    /// Whether some request may fail.
    pub(super) const fn has_some(&self) -> bool {
        self.has_some
    }

    /// Whether a request for these blocks may fail.
    pub(super) fn may_befall(&self, mut blocks: Range<usize>) -> bool {
        self.has_some && blocks.any(|block| self.layout.part_of(block) == self.part)
    }
}

/// How the disk of a unit lies on its parts; mostly it is one.
fn draw_layout(seed: u64, (unit, blocks): (UnitIndex, usize)) -> Layout {
    let mut prng = Prng::stream(seed, &format!("layout {}", unit.0));
    match prng.below(10) {
        0 | 1 => Layout::Concat(prng.size(1, blocks - 1)),
        2 => Layout::Stripe(prng.pick(&[1, 2, 4]).unwrap_or(1)),
        _ => Layout::Whole,
    }
}
