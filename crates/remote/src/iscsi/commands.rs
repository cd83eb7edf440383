//! The commands of a device, in the hands of the attendant: each is sent once, in the session that there is.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use iscsi::initiator::{Completion, Outcome, Residual};
use store::IoFailure;

use super::attendant::Errands;
use super::line::{Clock, Line, StepError, data_of};
use crate::device::shared::{BYTES_MAX, Command, Ended, LOST, Shared};
use crate::scsi::command::{Cdb, Sense};
use crate::scsi::host::{GivenUp, Host};
use crate::scsi::jobs::{Carries as _, Refused, START_MAX, TICK, TOKENS_MAX};
use crate::scsi::link::Link;

/// `E2BIG`: the CDB is longer than one may be.
const TOO_LONG: i32 = 7;

pub(super) struct Commands {
    shared: Arc<Shared>,
    /// How long commands wait for a session.
    retry: Duration,
    under_way: HashMap<u64, Command>,
    /// Data of those under way.
    bytes: u64,
    next: u64,
    /// Without a session: when what waits ends as not ready. `None`: there is a session.
    gives_up_at: Option<Duration>,
}

impl Commands {
    pub(super) fn new(shared: &Arc<Shared>, retry: Duration, now: Duration) -> Self {
        Self {
            shared: Arc::clone(shared),
            retry,
            under_way: HashMap::new(),
            bytes: 0,
            next: 0,
            gives_up_at: Some(now + retry.max(START_MAX)),
        }
    }
}

impl Host for Commands {
    fn turn(&mut self, now: Duration) -> Result<Option<Duration>, GivenUp> {
        if self.shared.is_ended() {
            return Err(GivenUp);
        }
        if self.gives_up_at.is_some_and(|at| at <= now) {
            self.shared.give_up();
        }
        self.shared.link.note_held(self.shared.waiting() as u64);
        Ok(Some(now + TICK))
    }

    fn note_attention(&mut self, sense: Sense) {
        self.shared.note_attention(sense);
    }
}

impl Errands for Commands {
    type Brought = Ended;

    fn link(&self) -> &Link<Ended> {
        &self.shared.link
    }

    fn is_ended(&self) -> bool {
        self.shared.is_ended()
    }

    fn look(&mut self, clock: Clock, line: &mut Line) -> Result<Result<(), String>, StepError> {
        let found = line.look_at_device(clock, self)?;
        Ok(self.shared.renew(found))
    }

    fn begin_session(&mut self, _now: Duration) {
        self.gives_up_at = None;
        self.shared.begin_session();
    }

    fn lose_session(&mut self, now: Duration, reason: &str) {
        self.gives_up_at = Some(now + self.retry);
        match self.is_ended() {
            true => self.shared.link.end_session(),
            false => self.shared.link.lose_session(reason),
        }
        self.bytes = 0;
        for (_, command) in self.under_way.drain() {
            self.shared.end(&command, Err(LOST));
        }
    }

    fn submit_all(&mut self, now: Duration, line: &mut Line) -> Option<String> {
        let depth = self.shared.depth().min(line.slots());
        while self.under_way.len() < depth {
            let left = BYTES_MAX.saturating_sub(self.bytes);
            let is_idle = self.under_way.is_empty();
            let has_room = |command: &Command| is_idle || command.bytes() <= left;
            let command = self.shared.take(has_room)?;
            let token = self.next;
            let cdb = Cdb {
                bytes: command.cdb.clone(),
                data: command.data.clone(),
                room: command.room,
            };
            match line.submit(now, token, cdb) {
                Ok(()) => {
                    self.next = (token + 1) % TOKENS_MAX;
                    self.bytes += command.bytes();
                    self.under_way.insert(token, command);
                }
                Err(Refused::Full) => {
                    self.shared.put_back(command);
                    return None;
                }
                Err(Refused::Ended(reason)) => {
                    self.shared.put_back(command);
                    return Some(reason.to_owned());
                }
                Err(Refused::Length) => {
                    let failure = IoFailure::Hardware { errno: TOO_LONG };
                    self.shared.end(&command, Err(failure));
                }
            }
        }
        None
    }

    fn handle_completion(&mut self, _now: Duration, done: Completion) {
        if let Some(command) = self.under_way.remove(&done.tag) {
            self.bytes -= command.bytes();
            self.shared.end(&command, ended(&command, done));
        }
    }
}

/// What a command came to.
fn ended(command: &Command, mut done: Completion) -> Result<Ended, IoFailure> {
    let status = match done.outcome {
        Outcome::Status(status) => status,
        // The target does not say what has become of it.
        Outcome::TargetFailure
        | Outcome::Aborted
        | Outcome::Rejected(_)
        | Outcome::ConnectionLost => return Err(LOST),
    };
    let sent = command.data.len() as u64;
    let transfer_bytes = match (done.residual, sent) {
        (Residual::Overflow(more), _) => command.bytes() + u64::from(more),
        // What has not come was not there.
        (Residual::None | Residual::Underflow(_), 0) => done.received_bytes.into(),
        (Residual::Underflow(less), _) => sent.saturating_sub(less.into()),
        (Residual::None, _) => sent,
    };
    Ok(Ended {
        status,
        sense: std::mem::take(&mut done.sense),
        data: data_of(done),
        transfer_bytes,
    })
}
