//! Saving: what becomes of a state of the unit that is to be there after a restart, and what must be true of it.

use std::io;
use std::time::Duration;

use engine::{Save, SaveError, StateAuthority as _, Version};

use super::carry::Who;
use super::known::SaveFate;
use super::{Event, World};
use crate::initiator::Breach;
use crate::plan::UNIT;
use crate::trace::Actor;

impl World {
    /// Takes what the target wants saved. Writing it and answering take their time.
    pub(super) fn begin_saves(&mut self) {
        for (_, save) in self.host.take_saves() {
            let delay = self.draw_delay(Who::Keeper);
            let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
            let written = Duration::from_micros(self.keeper_prng.within(0, micros));
            let (fate, answer_after) = (self.draw_save_fate(), delay - written);
            self.saving.is_open = true;
            self.saving.restores = self.host.state_in_force(UNIT).as_ref() == Some(&save.state);
            let event = Event::Save {
                save,
                fate,
                answer_after,
            };
            self.agenda.after(written, event);
        }
    }

    fn draw_save_fate(&mut self) -> SaveFate {
        let prng = &mut self.keeper_prng;
        if self.is_finishing {
            SaveFate::Good
        } else if prng.chance(self.scenario.keep_failures) {
            match prng.chance(500) {
                true => SaveFate::Uncertain,
                false => SaveFate::Fails,
            }
        } else if prng.chance(self.scenario.keep_conflicts) {
            SaveFate::Late
        } else {
            SaveFate::Good
        }
    }

    /// The authority saves a state, or does not.
    pub(super) fn save(
        &mut self,
        save: &Save,
        fate: SaveFate,
        answer_after: Duration,
    ) -> Result<(), Breach> {
        let outcome = match fate {
            SaveFate::Good => self.authority.save(save),
            SaveFate::Fails => Err(SaveError::Failed(io::Error::other("full"))),
            SaveFate::Uncertain => self.authority.save_uncertainly(save),
            SaveFate::Late => {
                let state = self.host.state_in_force(UNIT).unwrap_or_default();
                self.authority.save_of_another(state);
                self.authority.save(save)
            }
        };
        self.note(Actor::World, format_args!("saved: {outcome:?}"));
        if self.authority.is_overwritten() {
            let detail = format!("{outcome:?} replaces what the target did not know");
            return Err(Breach::new("what-another-has-saved-stays", detail));
        }
        self.agenda.after(answer_after, Event::Saved { outcome });
        Ok(())
    }

    /// The target has the answer.
    pub(super) fn answer_save(&mut self, outcome: &Result<Version, SaveError>) {
        let saving = &mut self.saving;
        saving.is_open = false;
        saving.failures = match outcome {
            Ok(_) | Err(SaveError::Conflict { .. }) => 0,
            Err(SaveError::Failed(_)) if saving.failures == 0 && !saving.restores => 0,
            Err(SaveError::Failed(_)) if saving.restores => saving.failures + 2,
            Err(SaveError::Failed(_) | SaveError::Uncertain(_)) => saving.failures + 1,
        };
        self.host.handle_saved(UNIT, outcome, self.agenda.now());
    }

    /// What is saved is the state in force, whenever the machine may stop. It need not be while a change is being saved
    /// or its state replaced by that in force, nor after that has failed, as long as the world goes on.
    pub(super) fn check_what_is_saved(&self, is_over: bool) -> Result<(), Breach> {
        let is_excused = self.saving.is_open || self.saving.failures > 1;
        if is_excused && !is_over || self.authority.is_foreign() {
            return Ok(());
        }
        let in_force = self.host.state_in_force(UNIT);
        let saved = self.authority.saved().map(|saved| saved.state);
        let saved = saved.as_ref().unwrap_or(&self.saving.first);
        let Some(in_force) = in_force.filter(|in_force| in_force != saved) else {
            return Ok(());
        };
        let detail = format!(
            "in force {in_force:02x?}, saved {saved:02x?}, {:?}, over: {is_over}",
            self.saving
        );
        Err(Breach::new("what-is-saved-is-in-force", detail))
    }
}
