//! The disks of units, and where their states are saved.

use std::collections::VecDeque;
use std::time::Duration;

use engine::{Save, SavedState, StateAuthority as _, UnitIndex};

use crate::authority::Authority;
use crate::disk::{Disk, Fate, RequestId};
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
        let is_forgetful = has_volatile_cache && prng.chance(200);
        if is_forgetful {
            disk.be_forgetful();
        }
        Self {
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
        }
    }

    /// Its requests may end with errors.
    pub(super) const fn may_fail(&self) -> bool {
        self.failures > 0 || self.outages > 0 || self.is_forgetful
    }

    pub(super) fn has_requests(&self) -> bool {
        !self.requests.is_empty() || !self.hanging.is_empty()
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
                if is_away && self.hangs_while_away {
                    return None;
                }
                let id = self.requests.swap_remove(prng.size(0, last));
                if is_young && prng.chance(self.hangs) {
                    let until = now + Duration::from_millis(prng.within(1, 8000));
                    self.hanging.push((until, id));
                    return None;
                }
                id
            }
        };
        let fate = match is_young && prng.chance(self.failures) {
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
}
