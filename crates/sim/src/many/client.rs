//! What the clients of all transports have in common.

use std::fmt::Debug;
use std::time::Duration;

use front::Station;

use super::books::Books;
use crate::initiator::{Breach, Operation};

/// The rule that is broken where a target does not serve a client, or hangs up on it.
pub(super) const FAIR: &str = "clients-are-served";

/// Commands of one client under way.
pub(super) const COMMANDS_MAX: usize = 12;

/// A client, with at most one session.
pub(super) trait Client: Debug {
    /// It has no session and logs in to none.
    fn is_away(&self) -> bool;

    /// It waits for answers that must come.
    fn is_waiting(&self) -> bool;

    /// It waits for answers, and some of them may never come.
    fn has_open(&self) -> bool;

    /// What it waits for.
    fn state(&self) -> String;

    /// Begins to log in, over this link if it needs one.
    fn connect(&mut self, now: Duration, link: usize) -> Result<(), Breach>;

    fn can_ask(&self) -> bool;

    fn ask(&mut self, now: Duration, books: &mut Books, number: u16, operation: Operation);

    /// Asks for task management. Gives what, if it does.
    fn manage(&mut self, now: Duration, books: &mut Books, number: u16) -> Option<String>;

    /// Takes leave.
    fn leave(&mut self, now: Duration, books: &mut Books) -> Result<(), Breach>;

    /// It is gone, without a word.
    fn vanish(&mut self, books: &mut Books);

    /// Commands under way may end without an answer from now on, if the books say so.
    fn allow_vanishing(&mut self, _: &Books) {}

    // ---- those that come by TCP --------------------------------------------------------------

    fn link(&self) -> Option<usize> {
        None
    }

    /// What it has to say.
    fn take_output(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Bytes have come. True when the session is over.
    fn hear(&mut self, _: &[u8], _: &mut Books) -> Result<bool, Breach> {
        Ok(false)
    }

    /// The connection may end now.
    fn is_leaving(&self) -> bool {
        false
    }

    /// Whether it is a client of NBD, which its server receives otherwise.
    fn is_nbd(&self) -> bool {
        false
    }

    /// The machine of the target stops. Who has no connection does not notice.
    fn note_crash(&mut self) {}

    /// Its session was one of a machine that has stopped, which it has not noticed.
    fn is_bereft(&self) -> bool {
        false
    }

    // ---- those that send frames --------------------------------------------------------------

    fn station(&self) -> Option<Station> {
        None
    }

    fn take_frames(&mut self, _: Duration) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn handle_frame(&mut self, _: Duration, _: &[u8], _: &mut Books) -> Result<(), Breach> {
        Ok(())
    }

    fn deadline(&self) -> Option<Duration> {
        None
    }

    fn handle_time(&mut self, _: Duration, _: &mut Books) -> Result<(), Breach> {
        Ok(())
    }
}

/// Sense key, ASC and ASCQ.
pub(super) fn sense_of(sense: &[u8]) -> Option<(u8, u8, u8)> {
    match sense.first()? & 0x7f {
        0x70 | 0x71 => Some((sense.get(2)? & 0x0f, *sense.get(12)?, *sense.get(13)?)),
        0x72 | 0x73 => Some((sense.get(1)? & 0x0f, *sense.get(2)?, *sense.get(3)?)),
        _ => None,
    }
}
