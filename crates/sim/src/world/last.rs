//! The end: everyone finishes, and nothing is left.

use std::time::Duration;

use super::{Event, World};
use crate::initiator::Breach;
use crate::trace::Actor;

/// How long everyone has to finish: longer than any timeout in the world.
const FINISH_TIME: Duration = Duration::from_secs(60);

impl World {
    /// No more actions and no more faults.
    pub(super) fn finish(&mut self) {
        if self.is_finishing {
            return;
        }
        self.is_finishing = true;
        self.note(Actor::World, format_args!("everyone is to finish"));
        // What hangs comes back by itself, before anybody is pushed out.
        self.agenda.after(FINISH_TIME, Event::PushOut);
    }

    /// Commands must have been answered by now; then the sessions end.
    pub(super) fn push_out(&mut self) -> Result<(), Breach> {
        let mut is_over = true;
        for initiator in 0..self.players.len() {
            if let Some(login) = self.players[initiator].logging_in.take() {
                self.lines[login.link].link.reset();
            }
            let Some(session) = &self.players[initiator].session else {
                continue;
            };
            is_over = false;
            let is_dismissed = self.is_dismissed(self.players[initiator].tsih);
            if session.is_leaving || session.is_suspect || is_dismissed {
                self.drop_session(initiator);
                continue;
            }
            let unanswered = session.tasks().find(|(_, task)| !task.may_vanish);
            if let Some((tag, task)) = unanswered {
                let detail = format!("task {tag} was never answered: {:?}", task.operation);
                return Err(Breach::new("one-outcome", detail));
            }
            if session.is_quiet() {
                self.log_out(initiator);
            } else {
                self.drop_session(initiator);
            }
        }
        if !is_over {
            self.agenda.after(FINISH_TIME, Event::PushOut);
        }
        Ok(())
    }

    /// Nothing happens any more: what is left is a leak, and what the disk holds must be right.
    pub(super) fn check_the_end(&mut self) -> Result<(), Breach> {
        if let Some(left) = self.host.leftovers() {
            return Err(Breach::new("nothing-is-left", left));
        }
        let receipts = self.receipts_left();
        if receipts > 0 {
            let detail = format!("{receipts} receipts of an administrator");
            return Err(Breach::new("nothing-is-left", detail));
        }
        if self.is_administered() {
            let detail = "an administrator waits".to_owned();
            return Err(Breach::new("nothing-is-left", detail));
        }
        if let Some(left) = self.host.disagreement() {
            return Err(Breach::new("cores-agree", left));
        }
        self.check_what_is_saved(true)?;
        if let Some(due) = self.host.poll_timeout() {
            let detail = format!("a timer for {due:?} without anyone to wait for");
            return Err(Breach::new("no-timer-without-owner", detail));
        }
        let waiting = self.disk.waiting();
        if waiting > 0 {
            let detail = format!("{waiting} requests wait in the disk");
            return Err(Breach::new("nothing-is-left", detail));
        }
        let content = self.disk.content();
        self.ledger.check_all(&content).map_err(|found| {
            let detail = format!("block {} holds {}", found.lba, found.got);
            Breach::new("the-disk-holds-what-was-written", detail)
        })
    }
}
