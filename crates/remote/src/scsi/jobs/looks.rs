//! Another look at a disk that is in use, because it has said that something of it may be different now.
//!
//! What a disk was found to be is good until it says otherwise, by a unit attention, which comes once and in place of
//! a command, or until its session ends. From then on no job is sent until the disk has been asked all of it again:
//! in its session here, one command after the other, while those that are under way already come to their end, and
//! before a new session begins in the modules of the transports. Another disk, a smaller one, one with other blocks
//! and one that takes no writes any more lose the session, and are not used ([`super::Common::renew`]). Unit
//! attentions that come in the midst of a look begin it again; one that has no end within the patience of the store
//! loses the session, too.
//!
//! What is remembered of a disk, and what happens when it becomes false:
//!
//! * Its identity, blocks and write protection, and a size that shrinks: the session is lost, and requests wait and
//!   then end as not ready, until it is the disk of before. A size that grows is reported to all handles. A write that
//!   is refused as protected (27h) is an answer, and nothing is remembered of it.
//! * A cache is never taken for absent: a flush goes to the disk always, and each write that was not durable by itself
//!   is one that a flush has to cover. A disk that refuses the flush as a command it does not have has nothing to
//!   flush, unless it says in this very session that its cache is on. Initiators find that there is a cache.
//! * FUA: the attendant decides when it sends a write. One that goes out without is followed by a flush of its handle.
//! * The longest transfer and the most zeros of one command: handles cut by what is known now. A job that was cut
//!   before and has become too long ends as not ready; its initiator sends it again.
//! * That blocks which are given back read zeros (LBPRZ, LBPWS): looked at when the command is sent; otherwise it
//!   writes zeros. That a disk says which blocks hold data: one that refuses is taken to hold data everywhere.
//! * COMPARE AND WRITE: initiators learn once what a command may compare. A disk that does less refuses, and the
//!   request fails.
//! * The state of its ports (ALUA): never remembered. A disk that is not ready is asked again until the patience of
//!   the store ends.
//! * Physical blocks, granularity, rotation: as at the opening; they are a matter of speed only.

use std::time::Duration;

use super::super::command::{
    BUSY, CHECK_CONDITION, Cdb, Facts, GOOD, KEY_ABORTED, KEY_ATTENTION, KEY_NOT_READY,
    KEY_RECOVERED, Sense, TASK_ABORTED, TASK_SET_FULL, test_unit_ready,
};
use super::super::job::{Arrived, Job, Work};
use super::{BUSY_PAUSE, Carries, Ending, Jobs, Refused};

/// THIN PROVISIONING SOFT THRESHOLD REACHED says nothing of what the disk is.
const SPACE: u8 = 0x38;
/// LOGICAL UNIT NOT SUPPORTED.
const NO_LUN: u8 = 0x25;

/// A look under way, or one that has to begin.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// What the disk has answered so far, in the order of the questions; `None`: it refused.
    answers: Vec<Option<Vec<u8>>>,
    /// When its first question could be asked.
    since: Option<Duration>,
    /// Until then nothing is asked, as the disk was busy.
    again_at: Option<Duration>,
    is_asking: bool,
    /// The disk said in the midst of it that something may be different.
    is_stale: bool,
    /// Why it cannot come to an end.
    failure: Option<String>,
    /// Why it has no end yet.
    trouble: Option<String>,
}

enum Next {
    Ask(Cdb),
    /// `None`: the disk has no size.
    Found(Option<Facts>),
}

impl Look {
    pub(super) const fn since(&self) -> Option<Duration> {
        self.since
    }

    /// When something has to happen if the disk says nothing.
    pub(super) fn deadline(&self, patience: Duration) -> Option<Duration> {
        let ends = self.since.map(|since| since + patience);
        self.again_at.into_iter().chain(ends).min()
    }

    /// Goes through all questions with the answers that are there.
    fn next(&self, data_bytes_max: u32) -> Next {
        let mut answers = self.answers.iter();
        let mut ask = |cdb: Cdb| match answers.next() {
            Some(answer) => Ok(answer.as_deref()),
            None => Err(cdb),
        };
        let found = ask(test_unit_ready()).and_then(|_ready| Facts::find(data_bytes_max, ask));
        match found {
            Ok(facts) => Next::Found(facts),
            Err(cdb) => Next::Ask(cdb),
        }
    }

    fn wait(&mut self, now: Duration, trouble: String) {
        self.again_at = Some(now + BUSY_PAUSE);
        self.trouble = Some(trouble);
    }
}

impl Jobs {
    /// The disk has said this before a session was begun, or in it.
    pub(super) fn heed(&mut self, sense: Sense) {
        if sense.key != KEY_ATTENTION {
            return;
        }
        self.heed_power(sense);
        match &mut self.look {
            _ if sense.code == SPACE => {}
            // Nothing has been asked, so nothing has become false.
            Some(look) if look.answers.is_empty() => {}
            Some(look) => look.is_stale = true,
            None => self.look = Some(Look::default()),
        }
    }

    /// Asks what is to be asked next. True: jobs have to wait. An error: why the session is of no more use.
    pub(super) fn go_on_looking(
        &mut self,
        now: Duration,
        session: &mut impl Carries,
    ) -> Result<bool, String> {
        let patience = self.patience();
        let Some(look) = &mut self.look else {
            return Ok(false);
        };
        if let Some(reason) = look.failure.take() {
            return Err(reason);
        }
        let since = *look.since.get_or_insert(now);
        if now.saturating_sub(since) >= patience {
            let trouble = look.trouble.take();
            return Err(trouble.unwrap_or_else(|| "it does not say what the disk is".to_owned()));
        }
        if look.is_asking || look.again_at.is_some_and(|at| now < at) {
            return Ok(true);
        }
        look.again_at = None;
        if std::mem::take(&mut look.is_stale) {
            look.answers.clear();
        }
        match look.next(self.common.now().data_bytes_max) {
            Next::Ask(cdb) => self.ask(now, cdb, session),
            Next::Found(facts) => {
                self.look = None;
                self.common.renew(facts)?;
                Ok(false)
            }
        }
    }

    fn ask(&mut self, now: Duration, cdb: Cdb, session: &mut impl Carries) -> Result<bool, String> {
        if self.under_way.len() >= session.slots() {
            // One of those ends, and then there is room.
            return Ok(true);
        }
        let token = self.next;
        match session.submit(now, token, cdb) {
            Ok(()) => {
                self.note_submitted(now, token, Job::new(usize::MAX, 0, 0, Work::Look));
                if let Some(look) = &mut self.look {
                    look.is_asking = true;
                }
                Ok(true)
            }
            Err(Refused::Full) => Ok(true),
            Err(Refused::Ended(reason)) => Err(reason.to_owned()),
            Err(Refused::Length) => Err("it takes no question".to_owned()),
        }
    }

    /// A question was lost, without an answer.
    pub(super) const fn lose_question(&mut self) {
        if let Some(look) = &mut self.look {
            look.is_asking = false;
        }
    }

    pub(super) fn take_look_answer(&mut self, now: Duration, ending: Ending, data: &Arrived) {
        let Some(look) = &mut self.look else {
            return;
        };
        look.is_asking = false;
        match ending {
            Ending::Status(GOOD, _) => look.answers.push(Some(data.to_vec())),
            Ending::Status(CHECK_CONDITION, sense) => {
                self.take_look_sense(now, Sense::parse(&sense), data);
            }
            Ending::Status(BUSY | TASK_SET_FULL | TASK_ABORTED, _) | Ending::Aborted => {
                look.wait(now, "the disk is busy".to_owned());
            }
            Ending::Status(_, _) => look.answers.push(None),
            Ending::Closed => self.is_closed = true,
            Ending::Nonsense => look.failure = Some("it fails a command".to_owned()),
        }
    }

    fn take_look_sense(&mut self, now: Duration, sense: Sense, data: &Arrived) {
        if sense.key == KEY_ATTENTION {
            self.heed(sense);
            return;
        }
        let Some(look) = &mut self.look else {
            return;
        };
        let is_test = look.answers.is_empty();
        match sense.key {
            _ if sense.code == NO_LUN => {
                look.failure = Some("it does not have the LUN any more".to_owned());
            }
            0 | KEY_RECOVERED if sense.is_there => look.answers.push(Some(data.to_vec())),
            KEY_NOT_READY | KEY_ABORTED => look.wait(now, sense.not_ready()),
            _ if is_test => look.wait(now, sense.not_ready()),
            _ => look.answers.push(None),
        }
    }
}
