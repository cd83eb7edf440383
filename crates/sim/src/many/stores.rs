//! The disks of units, and where their states are saved.

use std::collections::VecDeque;
use std::time::Duration;

use engine::{Save, SavedState, StateAuthority as _, UnitIndex};

use super::World;
use crate::authority::Authority;
use crate::disk::{Disk, Fate, RequestId};
use crate::prng::Prng;
use crate::sabotage::Sabotage;

/// The longest that a store is away.
const OUTAGE_MAX_MS: u64 = 6000;

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
    authority: Authority,
    /// Until when it is away, and whether requests wait for its return. If not, they fail.
    away_until: Duration,
    hangs_while_away: bool,
    /// Of 1000 requests that fail, and that hang, and of 1000 occasions for it to go away.
    failures: u32,
    hangs: u32,
    outages: u32,
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
        Self {
            disk,
            blocks,
            has_volatile_cache,
            requests: Vec::new(),
            hanging: Vec::new(),
            saves: VecDeque::new(),
            authority: Authority::default(),
            away_until: Duration::ZERO,
            hangs_while_away: false,
            failures: rate(40),
            hangs: rate(60),
            outages: rate(400),
        }
    }

    /// Its requests may end with errors.
    pub(super) const fn may_fail(&self) -> bool {
        self.failures > 0 || self.outages > 0
    }

    pub(super) fn has_requests(&self) -> bool {
        !self.requests.is_empty() || !self.hanging.is_empty()
    }

    /// When a request comes back.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.hanging.iter().map(|(until, _)| *until).min()
    }

    /// The machine stops. Gives what its successor has.
    pub(super) fn crash(&mut self) -> (Disk, Option<SavedState>) {
        self.disk.crash();
        self.requests.clear();
        self.hanging.clear();
        self.saves.clear();
        // The authority of this world always answers.
        let saved = self.authority.load().ok().flatten();
        (self.disk.clone(), saved)
    }

    /// A request that ends now, unless it hangs from now on.
    fn next_request(
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

impl World {
    pub(super) fn has_requests(&self) -> bool {
        self.stores.iter().any(Store::has_requests)
    }

    fn draw_store(&mut self, is_meant: impl Fn(&Store) -> bool) -> Option<usize> {
        let stores = self.stores.iter().enumerate();
        let meant = stores.filter(|(_, store)| is_meant(store));
        let meant: Vec<usize> = meant.map(|(at, _)| at).collect();
        self.prng.pick(&meant)
    }

    /// A disk is done with a request, or keeps it for a while.
    pub(super) fn end_request(&mut self) {
        let Some(at) = self.draw_store(Store::has_requests) else {
            return;
        };
        let when = (self.now, self.is_young);
        let store = &mut self.stores[at];
        let Some((id, fate)) = store.next_request(when, &mut self.prng) else {
            return;
        };
        let what = self.stores[at].disk.describe(id);
        self.note(|| format!("disk {at}: {what} ends: {fate:?}"));
        if let Some(core) = self.stores[at].disk.complete(id, fate) {
            let unit = UnitIndex(u32::try_from(at).unwrap_or(0));
            self.host.wake_for_store(core, unit, self.now);
        }
    }

    /// A store goes away for a while, perhaps before it has come back.
    pub(super) fn begin_outage(&mut self) {
        let Some(at) = self.draw_store(|store| store.outages > 0) else {
            return;
        };
        let store = &mut self.stores[at];
        if self.prng.chance(store.outages) {
            self.report.outages += 1;
            store.hangs_while_away = self.prng.chance(500);
            store.away_until = self.now + Duration::from_millis(self.prng.within(1, OUTAGE_MAX_MS));
            let (until, hangs) = (store.away_until, store.hangs_while_away);
            self.note(|| format!("disk {at} is away until {until:?}, requests hang: {hangs}"));
        }
    }

    pub(super) fn end_save(&mut self) {
        let Some(at) = self.draw_store(|store| !store.saves.is_empty()) else {
            return;
        };
        let store = &mut self.stores[at];
        let Some(save) = store.saves.pop_front() else {
            return;
        };
        let fails = self.is_young && self.prng.chance(100);
        let outcome = match fails {
            false => store.authority.save(&save),
            true => store.authority.save_uncertainly(&save),
        };
        let unit = UnitIndex(u32::try_from(at).unwrap_or(0));
        self.host.handle_saved(unit, &outcome, self.now);
    }
}
