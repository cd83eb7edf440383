//! The thread of a store: it has the session and carries out the jobs of all handles.

use std::sync::Arc;
use std::time::Duration;

use hyperscsi::{
    Attribute, ClientEvent, Command, Device, EndReason, Function, LoginError, Outcome, Reply,
    SubmitError,
};

use super::options::HyperscsiOptions;
use super::station::{Connection, Session, Sessions, Station, StepError};
use crate::attendants::spawn;
use crate::scsi::command::{Cdb, Facts, GOOD};
use crate::scsi::host::NotConnected;
use crate::scsi::job::Arrived;
use crate::scsi::jobs::{Carries, Ending, Jobs, PAUSE, Refused, SILENCE_MIN, TOKENS_MAX};
use crate::scsi::shared::Common;

/// After a wrong password: a server counts attempts.
const PAUSE_REFUSED: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 15 });
/// To find the server again.
const SEARCH_MAX: Duration = Duration::from_secs(5);

/// What the first look has found, which a later one has to find again.
pub(super) struct Known {
    pub(super) options: HyperscsiOptions,
    /// The server that has the device, whatever its address is.
    pub(super) server: [u8; 16],
    /// As it was when the store was opened.
    pub(super) device: Device,
}

/// Starts the thread.
pub(super) fn begin(common: &Arc<Common>, station: Station, known: Known) {
    let attendant = Attendant {
        jobs: Jobs::new(common, station.now()),
        station,
        known,
    };
    if let Err(error) = spawn("tarn-hyperscsi", move || attendant.run()) {
        common.note_gone(&error);
    }
}

struct Attendant {
    station: Station,
    known: Known,
    jobs: Jobs,
}

/// The session in which the device is open, for the jobs.
struct Carrier<'a> {
    session: &'a mut Session,
    device: u16,
}

impl Carries for Carrier<'_> {
    fn slots(&self) -> usize {
        usize::from(self.session.terms().slots).saturating_sub(1)
    }

    fn submit(&mut self, now: Duration, token: u64, cdb: Cdb) -> Result<(), Refused> {
        let command = Command {
            attribute: Attribute::Simple,
            cdb: cdb.bytes,
            data_in_bytes: cdb.room,
            data_out_bytes: u32::try_from(cdb.data.len()).unwrap_or(u32::MAX),
        };
        let taken = self
            .session
            .submit(now, token, self.device, command, cdb.data);
        taken.map_err(|error| match error {
            SubmitError::Full | SubmitError::Ended => Refused::Full,
            SubmitError::NotOpen(_) => Refused::Ended("the device is not open"),
            SubmitError::Length(_) => Refused::Length,
        })
    }

    fn abort(&mut self, now: Duration, token: u64) {
        if let Some(name) = self.session.name_of(token) {
            // Where there is no room, the command ends by itself.
            let function = Function::AbortTask(name);
            let _taken = self
                .session
                .manage(now, TOKENS_MAX | token, self.device, function);
        }
    }
}

/// What a reply means for a job, which may be one that sends data.
fn ending(reply: Reply, is_write: bool) -> Ending {
    match reply.outcome {
        // It took less, or another amount, and calls that good.
        Outcome::Status(GOOD) if is_write && reply.residual != 0 => Ending::Nonsense,
        Outcome::Status(status) => Ending::Status(status, reply.sense),
        Outcome::Aborted => Ending::Aborted,
        Outcome::NotOpen => Ending::Closed,
        Outcome::Malformed | Outcome::FunctionComplete | Outcome::FunctionRejected => {
            Ending::Nonsense
        }
    }
}

/// Takes an event over. Says why the session is over, if it is.
fn handle_event(jobs: &mut Jobs, now: Duration, event: ClientEvent) -> Option<&'static str> {
    match event {
        ClientEvent::Answer { token, reply, data } => {
            let ending = ending(reply, jobs.sends_data(token));
            jobs.handle_ending(now, token, ending, Arrived::Pdu(data));
            None
        }
        ClientEvent::Lost { token, was_sent } => {
            jobs.handle_loss(token, was_sent);
            None
        }
        ClientEvent::Devices(_) | ClientEvent::Opening { .. } => None,
        ClientEvent::Ended(reason) => Some(match reason {
            EndReason::Silent => "it does not answer",
            EndReason::Disconnected => "it has ended the session",
            EndReason::Unknown => "it does not know the session any more",
            EndReason::Closed | EndReason::Replaced => "the session was closed",
            EndReason::Forged => "too many frames were forged",
        }),
    }
}

impl Attendant {
    fn run(mut self) {
        loop {
            let began = self.station.now();
            let pause = match self.connect() {
                Ok(mut connection) => {
                    let up_at = self.station.now();
                    let mut reason = self.serve(&mut connection);
                    self.station.close(connection);
                    if let Some(trouble) = self.station.wire.trouble() {
                        reason = format!("{reason}: {trouble}");
                    }
                    let now = self.station.now();
                    self.jobs.lose_session(now, &reason);
                    match now.saturating_sub(up_at) > PAUSE {
                        true => Duration::ZERO,
                        false => PAUSE,
                    }
                }
                Err(NotConnected::GivenUp) => break,
                Err(NotConnected::Reason(reason, pause)) => {
                    self.jobs.common.note_reason(reason);
                    pause
                }
            };
            let until = began.max(self.station.now()) + pause;
            if self.jobs.is_ended() || self.station.pause(until, &mut self.jobs).is_err() {
                break;
            }
        }
        // Nobody is left to be answered.
    }

    /// Finds the server, logs in, and opens the device, if it is the same. Its handle may be another one each time.
    fn connect(&mut self) -> Result<Connection, NotConnected> {
        let common = Arc::clone(&self.jobs.common);
        let known = &self.known;
        let (options, station, host) = (&known.options, &mut self.station, &mut self.jobs);
        let until = station.now() + SEARCH_MAX;
        let is_it = |found: &hyperscsi::Found| found.answer.server == known.server;
        let found = station.search(vec![options.group.clone()], until, host, is_it)?;
        let found = found.iter().find(|found| is_it(found));
        let found = found.ok_or_else(|| {
            let trouble = station.wire.trouble();
            NotConnected::Reason(trouble.unwrap_or("it does not answer").to_owned(), PAUSE)
        })?;
        let password = options.password.bytes();
        let who = (options.group.as_str(), options.user.as_deref(), password);
        let silence_max = hyperscsi::limits::SILENCE_RADIO;
        // The other half is for another session.
        let silence = (options.retry / 2).clamp(SILENCE_MIN * 3, silence_max);
        let mut sessions = Sessions::new(station);
        let (station, connection) = sessions.log_in(found, who, silence, host)?;
        let table = station.list(connection, host)?;
        let another = |reason| NotConnected::Reason(reason, PAUSE);
        let device = same(&table, &known.device, &common.facts).map_err(another)?;
        station.open(connection, device, options.level, host)?;
        let found = station.facts(connection, device, host)?;
        common.renew(Some(found)).map_err(another)?;
        let connection = sessions.keep_last()?;
        self.jobs.begin_session(self.station.now());
        Ok(connection)
    }

    /// Carries jobs out until the session is over. Says why it is.
    fn serve(&mut self, connection: &mut Connection) -> String {
        let device = connection.device;
        loop {
            self.jobs.take_letters();
            if self.jobs.is_ended() {
                return String::new();
            }
            let (taken, heard) = self.station.take_frames(connection);
            let now = self.station.now();
            if heard {
                self.jobs.note_heard(now);
            }
            let session = &mut connection.session;
            if session.deadline().is_some_and(|at| at <= now) {
                session.handle_deadline(now);
            }
            while let Some(event) = session.poll_event() {
                if let Some(reason) = handle_event(&mut self.jobs, now, event) {
                    return reason.to_owned();
                }
            }
            let broken = self.jobs.submit_all(now, &mut Carrier { session, device });
            self.station.send_all(connection);
            let is_silent = self.jobs.is_silent(now);
            let silent = is_silent.then(|| "it does not answer".to_owned());
            let wire = &mut self.station.wire;
            wire.look_at_mtu(now);
            let has_shrunk = connection.session.frame_bytes() > wire.frame_bytes().0;
            let narrow = has_shrunk.then(|| NARROW.to_owned());
            if let Some(reason) = broken.or(silent).or(narrow) {
                return reason;
            }
            if taken == 0 {
                let deadlines = [connection.session.deadline(), self.jobs.deadline()];
                let next = deadlines.into_iter().flatten().min();
                let until = next.unwrap_or(now + PAUSE);
                let common = &self.jobs.common;
                if self.station.wait(until, Some(&common.event)) {
                    common.note_woken();
                }
            }
        }
    }
}

impl From<StepError> for NotConnected {
    fn from(error: StepError) -> Self {
        match error {
            StepError::GivenUp => Self::GivenUp,
            StepError::Login(error @ LoginError::Password) => {
                Self::Reason(error.to_string(), PAUSE_REFUSED)
            }
            StepError::Login(error) => Self::Reason(error.to_string(), PAUSE),
            StepError::Broken(reason) => Self::Reason(reason.to_owned(), PAUSE),
            StepError::Unknown => Self::Reason(GONE.to_owned(), PAUSE),
        }
    }
}

const NARROW: &str = "the MTU of the interface has become smaller";
const GONE: &str = "it does not have the device any more";

/// The device of before in the table of a new session.
fn same<'a>(table: &'a [Device], known: &Device, facts: &Facts) -> Result<&'a Device, String> {
    let is_it = |device: &&Device| match known.designator == [0; 16] {
        true => device.designator == known.designator && device.name == known.name,
        false => device.designator == known.designator,
    };
    let Some(device) = table.iter().find(is_it) else {
        return Err(match table.iter().any(|device| device.name == known.name) {
            true => "the device of this name is another one now".to_owned(),
            false => GONE.to_owned(),
        });
    };
    let size_bytes = device.blocks.saturating_mul(device.block_bytes.into());
    if device.block_bytes != facts.block_bytes {
        return Err("the device has other blocks than before".to_owned());
    }
    if size_bytes < facts.size_bytes {
        let before = facts.size_bytes;
        return Err(format!(
            "the device had {before} bytes and has {size_bytes}"
        ));
    }
    if device.is_read_only && !known.is_read_only && !facts.is_read_only {
        return Err("the device is read-only now".to_owned());
    }
    Ok(device)
}
