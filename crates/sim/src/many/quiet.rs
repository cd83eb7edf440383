//! Nothing is under way: what must be true then, and that nothing happens.

use std::time::Duration;

use super::World;
use super::wire::Faults;
use crate::initiator::Breach;

/// Things that may happen until all is answered, and until nothing is under way.
const LAST_STEPS: usize = 60_000;
/// How long nothing happens.
const SPELL_MAX: u64 = 120;
/// Timers of one session in a second: pings, and that they were answered.
const WAKES_MAX: u64 = 4;
/// Timers that may be due one after the other at one moment.
const AT_ONCE_MAX: u32 = 8;
/// Until logs are empty.
const EMPTY_MAX: Duration = Duration::from_secs(20);
const IDLE: &str = "who-is-idle-does-nothing";

impl World {
    /// All that was asked is answered, and the faults stop until then.
    pub(super) fn come_to_rest(&mut self) -> Result<(), Breach> {
        self.note(|| "all are to finish".to_owned());
        self.is_young = false;
        let faults = self.wire.faults;
        self.wire.heal();
        self.finish()?;
        for player in 0..self.clients.len() {
            // Answers that it waits for may never come.
            if self.clients[player].has_open() {
                self.remove(player, true);
            }
        }
        self.become_quiet()?;
        for player in 0..self.clients.len() {
            if self.clients[player].is_away() {
                self.books.leave(player);
            }
        }
        self.books.settle();
        self.check_quiet()?;
        self.wire.faults = faults;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Breach> {
        for _ in 0..LAST_STEPS {
            self.step()?;
            if !self.clients.iter().any(|client| client.is_waiting()) {
                return Ok(());
            }
        }
        let open = self.clients.iter().filter(|client| client.is_waiting());
        let open: Vec<String> = open.map(|client| client.state()).collect();
        Err(Breach::new("one-outcome", open.join("; ")))
    }

    /// Goes on until nothing is under way.
    fn become_quiet(&mut self) -> Result<(), Breach> {
        for _ in 0..LAST_STEPS {
            self.step()?;
            if self.is_quiet() {
                return Ok(());
            }
        }
        let receipts = self.receipts.iter().filter(|one| one.strong_count() > 0);
        let detail = format!(
            "mail {}, requests {}, changing {}, {} receipts, {} sessions of {}, pipes {:?}",
            self.has_mail(),
            self.has_requests(),
            self.is_administered(),
            receipts.count(),
            self.host.session_count(),
            self.present(),
            self.pipes.keys()
        );
        Err(Breach::new("nothing-is-left", detail))
    }

    /// Clients that have a session, which the target knows.
    fn present(&self) -> usize {
        let clients = self.clients.iter();
        let present = clients.filter(|client| !client.is_away() && !client.is_bereft());
        present.count()
    }

    fn is_quiet(&self) -> bool {
        let has_saves = self.stores.iter().any(|store| !store.saves.is_empty());
        let has_bytes = |pipe: &super::Pipe| {
            pipe.is_cut
                || pipe.is_closed
                || !pipe.to_client.is_empty()
                || !pipe.to_target.is_empty()
        };
        let is_idle =
            !self.has_mail() && !self.has_requests() && !has_saves && self.wire.is_empty();
        is_idle
            && !self.is_administered()
            && !self.pipes.values().any(has_bytes)
            && self.host.links_with_output().is_empty()
            && self
                .pipes
                .keys()
                .all(|link| self.clients.iter().any(|one| one.link() == Some(*link)))
            && self.host.session_count() <= self.present()
            && self.host.task_count() == 0
            && self.receipts.iter().all(|one| one.strong_count() == 0)
    }

    fn check_quiet(&mut self) -> Result<(), Breach> {
        if let Some(what) = self.host.disagreement() {
            return Err(Breach::new("cores-agree", what));
        }
        for (store, book) in self.stores.iter().zip(&mut self.books.units) {
            book.check(&store.disk.content())?;
        }
        self.books.check_judges()
    }

    // ---- idle --------------------------------------------------------------------------------

    /// Logs empty themselves when nothing is under way.
    fn empty_logs(&mut self) -> Result<(), Breach> {
        let until = self.now + EMPTY_MAX;
        while self.stores.iter().any(|store| store.log.is_some()) && self.now < until {
            let next = self.next_deadline().unwrap_or(until);
            self.now = next.clamp(self.now, until);
            self.handle_time()?;
            while self.has_requests() {
                self.end_request();
                self.carry();
            }
            self.exchange()?;
        }
        Ok(())
    }

    /// Nobody asks for anything.
    pub(super) fn idle(&mut self) -> Result<(), Breach> {
        let faults = self.wire.faults;
        self.wire.faults = Faults {
            frame_bytes_max: faults.frame_bytes_max,
            ..Faults::default()
        };
        self.empty_logs()?;
        let seconds = self.prng.within(1, SPELL_MAX);
        self.note(|| format!("idle for {seconds} s"));
        let until = self.now + Duration::from_secs(seconds);
        let letters = self.letters;
        let sessions = u64::try_from(self.clients.len()).unwrap_or(u64::MAX);
        let most = (sessions + 1) * (seconds + 10) * WAKES_MAX;
        let (mut wakes, mut at_once) = (0, 0);
        while let Some(next) = self.next_deadline().filter(|at| *at < until) {
            self.now = next.max(self.now);
            self.handle_time()?;
            wakes += 1;
            self.exchange()?;
            let asked: usize = self.stores.iter().map(|store| store.requests.len()).sum();
            at_once = match self.host.poll_timeout() {
                Some(due) if due <= self.now => at_once + 1,
                Some(_) | None => 0,
            };
            if wakes > most || asked > 0 || at_once > AT_ONCE_MAX {
                let detail =
                    format!("{wakes} timers in {seconds} s, {at_once} at once, {asked} requests");
                return Err(Breach::new(IDLE, detail));
            }
        }
        if self.letters != letters {
            let detail = format!("{} letters", self.letters - letters);
            return Err(Breach::new(IDLE, detail));
        }
        self.report.idle_wakes += wakes;
        self.now = until;
        self.wire.faults = faults;
        self.is_young = true;
        Ok(())
    }

    /// All that is said arrives.
    fn exchange(&mut self) -> Result<(), Breach> {
        for _ in 0..LAST_STEPS {
            let mut has_moved = self.bring_frame()?;
            let links: Vec<usize> = self.pipes.keys().copied().collect();
            for link in links {
                has_moved |= self.bring_bytes_of(link)?;
            }
            self.carry();
            if !has_moved && self.wire.is_empty() {
                return Ok(());
            }
        }
        Err(Breach::new(IDLE, "it never stops talking".to_owned()))
    }

    // ---- the end -----------------------------------------------------------------------------

    /// All clients go, and nothing is left of them.
    pub(super) fn end(&mut self) -> Result<(), Breach> {
        self.is_young = false;
        self.wire.heal();
        for player in 0..self.clients.len() {
            self.remove(player, true);
        }
        self.pipes.values_mut().for_each(|pipe| pipe.is_cut = true);
        self.host.end_hyperscsi(self.now);
        self.host.end_nbd(self.now);
        let mut left = None;
        for _ in 0..LAST_STEPS {
            self.step()?;
            if !self.is_quiet() {
                continue;
            }
            left = self.host.leftovers();
            if left.is_none() {
                self.books.settle();
                return self.check_quiet();
            }
        }
        Err(Breach::new("nothing-is-left", format!("{left:?}")))
    }
}
