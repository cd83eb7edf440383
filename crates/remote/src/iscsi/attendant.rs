//! The thread of a store: it has the session and carries out the jobs of all handles.
//!
//! A session is one TCP connection. All of a store have one ISID, so a new session takes the place of the one before:
//! the target ends the tasks of that before it lets this one in. So what was under way can be sent again, and no write
//! of before comes after one of now.

use std::io;
use std::time::Duration;

use iscsi::initiator::{AsyncNotice, Completion, Event, Outcome, Residual};
use iscsi::login::InitiatorLoginError;
use iscsi::pdu::{AsyncEvent, Isid, LoginStatus};
use rustix::event::{PollFd, PollFlags};

use super::line::{self, Clock, Line, StepError, data_of};
use super::options::{IscsiOptions, lost, refusal, warn_moved};
use crate::attendants::{spawn, wait};
use crate::scsi::command::{GOOD, Sense};
use crate::scsi::host::{GivenUp, Host, NotConnected};
use crate::scsi::job::{Arrived, Brought};
use crate::scsi::jobs::{Ending, Jobs, PAUSE, SILENCE_MIN};
use crate::scsi::link::Link;

/// After a wrong secret: a target may count attempts.
const PAUSE_REFUSED: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 15 });
/// A target that has said nothing for so long is asked whether it is there; sooner where its store has less patience.
const QUIET_MAX: Duration = Duration::from_secs(5);
/// How long a target that wants the session to end is waited for.
const LEAVE_MAX: Duration = Duration::from_secs(5);
/// The longest time between two sessions that a target may ask for.
const TIME_TO_WAIT_MAX: Duration = Duration::from_secs(60);
/// Spec: RFC 7143 section 11.17.1: a digest, too many immediate commands, a task in progress, no resources, and a
/// session that the target wants to end. All of them pass.
const REJECTIONS_THAT_PASS: [u8; 5] = [0x02, 0x06, 0x07, 0x0a, 0x0c];

/// What the first look has found, which a later one has to find again.
pub(super) struct Known {
    pub(super) options: IscsiOptions,
    pub(super) isid: Isid,
    /// Where the target has sent the session of before, if it has.
    pub(super) moved: Option<String>,
}

/// What sessions are for: the jobs of a disk, or the commands of a device.
pub(super) trait Errands: Host + Send + 'static {
    /// What a job brings.
    type Brought: Send;

    fn link(&self) -> &Link<Self::Brought>;

    /// The last user is gone.
    fn is_ended(&self) -> bool;

    /// Takes what the handles have left.
    fn take_letters(&mut self) {}

    /// Looks at the device in a new session. The inner error: why it must not be used.
    fn look(&mut self, clock: Clock, line: &mut Line) -> Result<Result<(), String>, StepError>;

    fn begin_session(&mut self, now: Duration);

    fn lose_session(&mut self, now: Duration, reason: &str);

    /// Something of the target has come.
    fn note_heard(&mut self, _now: Duration) {}

    /// The target has had something to answer, and has said nothing, for too long. One that answers pings may think
    /// about a command as long as it wants.
    fn is_silent(&self, _now: Duration) -> bool {
        false
    }

    /// When something is to be done if nothing comes.
    fn deadline(&self) -> Option<Duration> {
        None
    }

    /// Keeps the session busy. Says why it is of no more use, if that is so.
    fn submit_all(&mut self, now: Duration, line: &mut Line) -> Option<String>;

    /// A command has ended, other than with its session.
    fn handle_completion(&mut self, now: Duration, done: Completion);
}

/// Starts the thread.
pub(super) fn begin<J: Errands>(jobs: J, clock: Clock, known: Known) -> io::Result<()> {
    let patience = known.options.retry.max(SILENCE_MIN);
    let attendant = Attendant {
        jobs,
        clock,
        known,
        patience,
    };
    spawn("tarn-iscsi", move || attendant.run())
}

struct Attendant<J> {
    clock: Clock,
    known: Known,
    jobs: J,
    /// How long a target that was asked whether it is there may say nothing.
    patience: Duration,
}

/// What is asked of a target that says nothing, and whether it wants the session to end.
struct Watch {
    /// When something of the target last came.
    heard_at: Duration,
    /// Since when a ping is under way.
    pinged_at: Option<Duration>,
    /// A logout is under way; until then it is waited for.
    leaves_at: Option<Duration>,
}

impl<J: Errands> Attendant<J> {
    fn run(mut self) {
        loop {
            let began = self.clock.now();
            let pause = match self.connect() {
                Ok(mut line) => {
                    let up_at = self.clock.now();
                    let reason = self.serve(&mut line);
                    if self.jobs.is_ended() {
                        line.log_out(self.clock);
                        self.jobs.lose_session(up_at, &reason);
                        break;
                    }
                    let wanted = line.time_to_wait().min(TIME_TO_WAIT_MAX);
                    // Closed before another one is made.
                    drop(line);
                    let now = self.clock.now();
                    self.jobs.lose_session(now, &reason);
                    match now.saturating_sub(up_at) > PAUSE {
                        true => wanted,
                        false => wanted.max(PAUSE),
                    }
                }
                Err(NotConnected::GivenUp) => break,
                Err(NotConnected::Reason(reason, pause)) => {
                    self.jobs.link().note_reason(reason);
                    pause
                }
            };
            let until = began.max(self.clock.now()) + pause;
            if self.jobs.is_ended() || self.pause(until).is_err() {
                break;
            }
        }
        // Nobody is left to be answered; the disk may have another store when this thread has ended.
    }

    /// Logs in, and looks whether the disk is the same.
    fn connect(&mut self) -> Result<Line, NotConnected> {
        let (clock, known, jobs) = (self.clock, &self.known, &mut self.jobs);
        let options = &known.options;
        let not_connected = |error| not_connected(error, options);
        let line = line::establish(clock, options, known.isid, jobs);
        let mut line = line.map_err(not_connected)?;
        if let Err(reason) = jobs.look(clock, &mut line).map_err(not_connected)? {
            line.log_out(clock);
            return Err(NotConnected::Reason(reason, PAUSE));
        }
        jobs.begin_session(clock.now());
        let moved = line.moved.take();
        if let Some(portal) = moved.as_ref().filter(|_| moved != known.moved) {
            warn_moved(options, portal);
        }
        self.known.moved = moved;
        Ok(line)
    }

    /// Carries jobs out until the session is over. Says why it is.
    fn serve(&mut self, line: &mut Line) -> String {
        let mut watch = Watch {
            heard_at: self.clock.now(),
            pinged_at: None,
            leaves_at: None,
        };
        loop {
            self.jobs.take_letters();
            if self.jobs.is_ended() {
                return String::new();
            }
            let received = line.receive();
            let now = self.clock.now();
            if received == Ok(true) {
                watch.heard_at = now;
                self.jobs.note_heard(now);
            }
            while let Some(event) = line.poll_event() {
                if let Some(reason) = self.handle_event(now, line, event, &mut watch) {
                    return reason;
                }
            }
            let taken = match received {
                Ok(taken) => taken,
                Err(reason) => return reason,
            };
            if let Some(reason) = self.move_on(now, line, &mut watch) {
                return reason;
            }
            if !taken {
                let left = self.deadline(&watch).saturating_sub(now);
                let link = self.jobs.link();
                if line.wait(left, Some(&link.event)) {
                    link.note_woken();
                }
            }
        }
    }

    /// Sends what there is to be sent. Says why the session is over, if it is.
    fn move_on(&mut self, now: Duration, line: &mut Line, watch: &mut Watch) -> Option<String> {
        if watch.leaves_at.is_some_and(|at| at <= now) {
            return Some(ASKED_TO_END.to_owned());
        }
        if watch.leaves_at.is_none() {
            if let Some(reason) = self.jobs.submit_all(now, line) {
                return Some(reason);
            }
            if watch.pinged_at.is_none() && now >= watch.heard_at + self.quiet() {
                line.ping();
                watch.pinged_at = Some(now);
            }
        }
        if let Err(reason) = line.flush() {
            return Some(reason);
        }
        let is_silent =
            self.jobs.is_silent(now) || self.silent_at(watch).is_some_and(|at| at <= now);
        is_silent.then(|| "it does not answer".to_owned())
    }

    /// How long a target may say nothing before it is asked.
    fn quiet(&self) -> Duration {
        (self.patience / 4).min(QUIET_MAX)
    }

    /// When a ping has had no answer for too long.
    fn silent_at(&self, watch: &Watch) -> Option<Duration> {
        let since = watch.pinged_at?.max(watch.heard_at);
        Some(since + self.patience)
    }

    fn deadline(&self, watch: &Watch) -> Duration {
        let ping_at = match watch.pinged_at {
            None => watch.heard_at + self.quiet(),
            Some(_) => Duration::MAX,
        };
        let others = [self.jobs.deadline(), self.silent_at(watch), watch.leaves_at];
        others.into_iter().flatten().fold(ping_at, Duration::min)
    }

    /// Says why the session is over, if it is.
    fn handle_event(
        &mut self,
        now: Duration,
        line: &mut Line,
        event: Event,
        watch: &mut Watch,
    ) -> Option<String> {
        match event {
            Event::Completed(done) => {
                // A lost one is lost with its session, whose end follows.
                if done.outcome != Outcome::ConnectionLost {
                    self.jobs.handle_completion(now, done);
                }
                None
            }
            // One that the target rejects is an answer, too.
            Event::Pong { .. } | Event::Rejected { .. } => {
                watch.pinged_at = None;
                None
            }
            Event::Async { notice, .. } => self.handle_notice(now, line, &notice, watch),
            Event::LoggedOut { .. } => Some(ASKED_TO_END.to_owned()),
            Event::Failed { violation, .. } => Some(format!("it breaks the protocol: {violation}")),
            Event::ManagementDone { .. } | Event::Text { .. } | Event::RequestLost { .. } => None,
        }
    }

    /// The target has something to say by itself.
    fn handle_notice(
        &mut self,
        now: Duration,
        line: &mut Line,
        notice: &AsyncNotice,
        watch: &mut Watch,
    ) -> Option<String> {
        match notice.event {
            AsyncEvent::ScsiEvent => {
                self.jobs.note_attention(Sense::parse(&notice.sense));
                None
            }
            AsyncEvent::LogoutRequest | AsyncEvent::NegotiationRequest => {
                if watch.leaves_at.is_none() {
                    let [_, _, seconds] = notice.parameters;
                    let limit = Duration::from_secs(seconds.into()).min(LEAVE_MAX);
                    line.begin_logout();
                    watch.leaves_at = Some(now + limit.max(PAUSE));
                }
                None
            }
            AsyncEvent::ConnectionDrop | AsyncEvent::SessionDrop => {
                Some("it has dropped the session".to_owned())
            }
            // They get no answers any more.
            AsyncEvent::TaskTermination => Some("it has ended all commands".to_owned()),
            AsyncEvent::VendorSpecific => None,
        }
    }

    /// Waits until this moment.
    fn pause(&mut self, until: Duration) -> Result<(), GivenUp> {
        loop {
            let now = self.clock.now();
            if now >= until {
                return Ok(());
            }
            let next = self.jobs.turn(now)?;
            let until = next.map_or(until, |next| next.min(until));
            let link = self.jobs.link();
            let mut event = [PollFd::new(&link.event, PollFlags::IN)];
            wait(&mut event, until.saturating_sub(now));
            let [event] = event;
            if event.revents().contains(PollFlags::IN) {
                link.note_woken();
            }
        }
    }
}

impl Errands for Jobs {
    type Brought = Brought;

    fn link(&self) -> &Link<Brought> {
        &self.common
    }

    fn is_ended(&self) -> bool {
        Self::is_ended(self)
    }

    fn take_letters(&mut self) {
        Self::take_letters(self);
    }

    fn look(&mut self, clock: Clock, line: &mut Line) -> Result<Result<(), String>, StepError> {
        let found = line.look(clock, self);
        if matches!(found, Err(StepError::Broken(_) | StepError::Silent)) {
            // What broke off may have been the unit attention that says so, and it comes once.
            self.note_cache_lost();
        }
        Ok(self.common.renew(found?))
    }

    fn begin_session(&mut self, now: Duration) {
        Self::begin_session(self, now);
    }

    fn lose_session(&mut self, now: Duration, reason: &str) {
        Self::lose_session(self, now, reason);
    }

    fn note_heard(&mut self, now: Duration) {
        Self::note_heard(self, now);
    }

    fn is_silent(&self, now: Duration) -> bool {
        Self::is_silent(self, now)
    }

    fn deadline(&self) -> Option<Duration> {
        Self::deadline(self)
    }

    fn submit_all(&mut self, now: Duration, line: &mut Line) -> Option<String> {
        Self::submit_all(self, now, line)
    }

    fn handle_completion(&mut self, now: Duration, done: Completion) {
        let is_write = done.write.is_some();
        let ending = match done.outcome {
            // It took less, or another amount, and calls that good.
            Outcome::Status(GOOD) if is_write && done.residual != Residual::None => {
                Ending::Nonsense
            }
            Outcome::Status(status) => Ending::Status(status, done.sense.clone()),
            Outcome::Rejected(reason) if !REJECTIONS_THAT_PASS.contains(&reason) => {
                Ending::Nonsense
            }
            Outcome::TargetFailure
            | Outcome::Aborted
            | Outcome::Rejected(_)
            | Outcome::ConnectionLost => Ending::Aborted,
        };
        let token = done.tag;
        let data = Arrived::Own(data_of(done));
        self.handle_ending(now, token, ending, data);
    }
}

const ASKED_TO_END: &str = "it has asked for the end of the session";

fn not_connected(error: StepError, options: &IscsiOptions) -> NotConnected {
    let reason = match error {
        StepError::GivenUp => return NotConnected::GivenUp,
        StepError::Connect(error) => format!("cannot connect: {}", crate::words(&error)),
        StepError::Login(error) => {
            let reason = refusal(&error, options);
            return NotConnected::Reason(reason, pause_after(&error));
        }
        StepError::Lost(how, address) => lost(how, &address),
        StepError::Own => "it is a LUN of this Tarn itself".to_owned(),
        StepError::Broken(reason) | StepError::NotReady(reason) => reason,
        StepError::Silent => "it does not answer".to_owned(),
        StepError::NoLun => "it does not have the LUN any more".to_owned(),
        StepError::NoRandom => "the system gives no random bytes".to_owned(),
    };
    NotConnected::Reason(reason, PAUSE)
}

fn pause_after(error: &InitiatorLoginError) -> Duration {
    match error.status() {
        Some(LoginStatus::AuthenticationFailure | LoginStatus::AuthorizationFailure) => {
            PAUSE_REFUSED
        }
        Some(_) | None => PAUSE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guesses of a password are what a target counts.
    #[test]
    fn a_login_that_was_refused_for_its_user_is_tried_again_later_than_others() {
        for (class, detail, pause) in [
            (2, 1, PAUSE_REFUSED),
            (2, 2, PAUSE_REFUSED),
            (2, 3, PAUSE),
            (3, 0, PAUSE),
        ] {
            let error = InitiatorLoginError::Refused {
                class,
                detail,
                address: None,
            };
            assert_eq!(pause_after(&error), pause, "{class}/{detail}");
        }
        let error = InitiatorLoginError::DeadlinePassed;
        assert_eq!(pause_after(&error), PAUSE);
    }
}
