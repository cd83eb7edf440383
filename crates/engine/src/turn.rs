//! Pieces of commands that work on more of the medium than their initiators send or get ([`scsi::Step::Turn`]): how
//! many of them a turn begins.
//!
//! A command of 48 bytes may have a core read or write hundreds of megabytes, and a store in memory does that at once.
//! When a turn has begun as much of it as it may, the tasks wait for the next turn, so that receiving, sending,
//! deadlines and the commands of others come between. Sessions take turns, one piece each, and so do the tasks of a
//! session ([`crate::pieces`]). Every turn begins at least one piece, so that nobody waits for ever.
//!
//! A reset is work of the same kind: one of a target with a thousand units notifies every nexus of each. So each unit
//! of it is a piece, and the resets of a session come one after the other. A change of what a session sees is, too
//! ([`crate::view_change`]).

use scsi::Input;

use crate::carrier::Carrier;
use crate::engine::Engine;
use crate::keys::TaskKey;
use crate::pieces::Piece;
use crate::task::Stage;

impl<C: Carrier> Engine<C> {
    /// Tasks, resets or changes wait for the next turn: it begins at once, and when it does they are carried on.
    pub fn has_pieces(&self) -> bool {
        self.pieces.is_waited_for()
    }

    /// How much of the medium this turn has begun to work on for commands whose initiators neither send nor get it,
    /// in bytes.
    pub const fn begun_bytes(&self) -> usize {
        self.pieces.begun_bytes()
    }

    /// A turn has begun.
    pub(crate) fn begin_pieces(&mut self) {
        self.pieces.begin_turn();
        self.carry_on_pieces();
    }

    /// Carries on what waits, as far as this turn may.
    pub(crate) fn carry_on_pieces(&mut self) {
        while self.may_begin_pieces()
            && let Some(piece) = self.pieces.pop()
        {
            match piece {
                Piece::Task(key) => self.retry(key),
                Piece::Reset(key) => self.reset_next_unit(key),
                Piece::ViewChange(key) => self.carry_on_view_change(key),
            }
        }
    }

    /// This turn has not begun all that it may.
    pub const fn may_begin_pieces(&self) -> bool {
        self.pieces.begun_bytes() < self.settings.turn_bytes
    }

    /// A task wants to begin a piece that costs so much. `None` when it waits for its turn.
    pub(crate) fn ask_turn(&mut self, key: TaskKey, bytes: u32) -> Option<Input> {
        if self.may_begin_pieces() && !self.pieces.is_waited_for() {
            return Some(self.take_turn(bytes));
        }
        self.enter(key, Stage::Turn { bytes });
        self.pieces.push(self.tasks[key].session, key);
        None
    }

    /// A piece begins.
    pub(crate) const fn take_turn(&mut self, bytes: u32) -> Input {
        self.pieces.note_begun(bytes as usize);
        Input::Turn
    }
}
