//! What disks have is answered, states are saved, stores go away.

use std::time::Duration;

use engine::{StateAuthority as _, UnitIndex};

use super::World;
use super::stores::{OUTAGE_MAX_MS, Store};

impl World {
    pub(super) fn has_requests(&self) -> bool {
        self.stores.iter().any(Store::has_requests)
    }

    pub(super) fn draw_store(&mut self, is_meant: impl Fn(&Store) -> bool) -> Option<usize> {
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
        if store.has_log_requests() && (store.is_idle() || self.prng.chance(500)) {
            self.end_request_of_log(at);
            return;
        }
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

    fn end_request_of_log(&mut self, at: usize) {
        let when = (self.now, self.is_young);
        let log = self.stores[at].log.as_ref();
        if let Some((what, core)) = log.and_then(|log| log.end_request(when, &mut self.prng)) {
            self.note(|| format!("log {at}: {what}"));
            let unit = UnitIndex(u32::try_from(at).unwrap_or(0));
            self.host.wake_for_store(core, unit, self.now);
        }
    }

    /// What stores have ordered outside is done, and cores look after stores that other cores have woken.
    pub(super) fn help_stores(&mut self) {
        loop {
            while self.host.help_store(self.now) {}
            let wakes = self.host.take_wakes();
            if wakes.is_empty() {
                return;
            }
            for (core, unit) in wakes {
                self.host.wake_for_store(core, unit, self.now);
            }
        }
    }

    /// A store goes away for a while, perhaps before it has come back.
    pub(super) fn begin_outage(&mut self) {
        if self.prng.chance(200) {
            self.lose_cache();
        }
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
