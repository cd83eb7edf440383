//! The thread of a store: it has the session and carries out the jobs of all handles.
//!
//! A job is in one place at a time: waiting here, or under way in the session. When a session is lost its jobs wait
//! again, as long as the outage may last, and are sent once more in the next. The device may have carried them out
//! before, which does no harm: each would write the same again, and nothing newer can have come in between, because the
//! new session is one of the same client, so its server ends the old one with its tasks first. The exception is a
//! COMPARE AND WRITE, which would meet its own data: one that was sent and lost ends as not ready. What the server may
//! have dropped, with its cache, are writes that it answered and no flush covered; the next flush reports those.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use hyperscsi::{
    Attribute, ClientEvent, Command, Data, Device, EndReason, Function, LoginError, Outcome, Reply,
    SubmitError,
};
use store::IoFailure;

use super::job::{Brought, Job, Letter, Mail, Work};
use super::scsi::{
    self, BUSY, CHECK_CONDITION, Facts, GOOD, KEY_ABORTED, KEY_ATTENTION, KEY_ILLEGAL,
    KEY_NOT_READY, KEY_RECOVERED, RESERVATION_CONFLICT, Sense, TASK_SET_FULL,
};
use super::shared::Common;
use super::station::{Connection, GivenUp, Host, Session, Station, StepError};
use crate::attendants::Counted;

/// Between two attempts to log in. A session that was up for so long has settled: when it is lost, another attempt is
/// made at once.
const PAUSE: Duration = Duration::from_secs(1);
/// After a wrong password: a server counts attempts.
const PAUSE_REFUSED: Duration = Duration::from_secs(15);
/// For the first session.
const START_MAX: Duration = Duration::from_secs(10);
/// A server that does not answer for so long is away, whatever `retry` says: a frame may be lost.
const SILENCE_MIN: Duration = Duration::from_secs(2);
/// To find the server again.
const SEARCH_MAX: Duration = Duration::from_secs(5);
/// How often letters are looked for while there is no session.
const TICK: Duration = Duration::from_millis(100);
/// Until a command is tried again that the device did not take.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// A job that was under way in so many lost sessions is what they are lost for.
const LOSSES_MAX: u8 = 8;
/// So many unit attentions in a row mean that there is no end to them.
const ATTENTIONS_MAX: u8 = 32;
/// Tokens of task management functions have this bit, those of jobs do not.
const FUNCTION: u64 = 1 << 63;
/// `EREMOTEIO`: the server refuses a command as nonsense.
const REMOTE: i32 = 121;

/// Starts the thread.
pub(super) fn begin(common: &Arc<Common>, station: Station) {
    let counted = Counted::new();
    let now = station.now();
    let attendant = Attendant {
        station,
        jobs: Jobs {
            gives_up_at: Some(now + common.options.retry.max(START_MAX)),
            common: Arc::clone(common),
            waiting: VecDeque::new(),
            delayed: VecDeque::new(),
            under_way: HashMap::new(),
            marks: HashMap::new(),
            next: 0,
            aborts: Vec::new(),
            is_lost: false,
            is_closed: false,
            is_ended: false,
            heard_at: now,
            busy_since: None,
        },
    };
    let run = move || {
        attendant.run();
        drop(counted);
    };
    let thread = thread::Builder::new().name("tarn-hyperscsi".to_owned());
    if let Err(error) = thread.spawn(run) {
        common.set_outage(Some(format!("there is no thread for it: {error}")));
        common.is_gone.store(true, Ordering::SeqCst);
    }
}

struct Attendant {
    station: Station,
    jobs: Jobs,
}

/// The jobs of all handles.
struct Jobs {
    common: Arc<Common>,
    waiting: VecDeque<Job>,
    /// What the device did not take, with the time of the next attempt; all wait equally long.
    delayed: VecDeque<(Duration, Job)>,
    under_way: HashMap<u64, Job>,
    /// What a flush under way covers.
    marks: HashMap<u64, u64>,
    next: u64,
    /// Under way, and nobody needs the result any more.
    aborts: Vec<u64>,
    /// Without a session: when what waits ends as not ready. `None`: there is a session.
    gives_up_at: Option<Duration>,
    /// That time has come; what comes fails at once.
    is_lost: bool,
    /// The device is not open any more.
    is_closed: bool,
    is_ended: bool,
    /// When a frame of the server last came, and since when it has had something to answer.
    heard_at: Duration,
    busy_since: Option<Duration>,
}

impl Attendant {
    fn run(mut self) {
        loop {
            let began = self.station.now();
            let pause = match self.connect() {
                Ok(connection) => {
                    let up_at = self.station.now();
                    let mut reason = self.serve(connection);
                    self.station.wire.set_session(None);
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
                    self.jobs.note_reason(reason);
                    pause
                }
            };
            let until = began.max(self.station.now()) + pause;
            if self.jobs.is_ended || self.station.pause(until, &mut self.jobs).is_err() {
                break;
            }
        }
        // Nobody is left to be answered.
    }

    /// Finds the server, logs in, and opens the device, if it is the same. Its handle may be another one each time.
    fn connect(&mut self) -> Result<Connection, NotConnected> {
        let common = Arc::clone(&self.jobs.common);
        let (options, station, host) = (&common.options, &mut self.station, &mut self.jobs);
        let until = station.now() + SEARCH_MAX;
        let is_it = |found: &hyperscsi::Found| found.answer.server == common.server;
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
        let mut connection = station.log_in(found, who, silence, host)?;
        let table = station.list(&mut connection, host)?;
        let device = match same(&table, &common.device, &common.facts) {
            Ok(device) => device.clone(),
            Err(reason) => {
                station.close(connection);
                return Err(NotConnected::Reason(reason, PAUSE));
            }
        };
        station.open(&mut connection, &device, options.level, host)?;
        common.note_size(device.blocks.saturating_mul(device.block_bytes.into()));
        let now = station.now();
        self.jobs.begin_session(now);
        Ok(connection)
    }

    /// Carries jobs out until the session is over. Says why it is.
    fn serve(&mut self, mut connection: Connection) -> String {
        let device = connection.device;
        loop {
            self.jobs.take_letters();
            if self.jobs.is_ended {
                self.station.close(connection);
                return String::new();
            }
            let (taken, heard) = self.station.take_frames(&mut connection);
            let now = self.station.now();
            if heard {
                self.jobs.heard_at = now;
            }
            let session = &mut connection.session;
            if session.deadline().is_some_and(|at| at <= now) {
                session.handle_deadline(now);
            }
            while let Some(event) = session.poll_event() {
                if let Some(reason) = self.jobs.handle_event(now, event) {
                    return reason.to_owned();
                }
            }
            let broken = self.jobs.submit_all(now, session, device);
            self.station.send_all(&mut connection);
            let silent = self.jobs.is_silent(now).then_some("it does not answer");
            if let Some(reason) = broken.or(silent) {
                self.station.close(connection);
                return reason.to_owned();
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

/// Why there is no session.
enum NotConnected {
    GivenUp,
    /// A reason, and how long to wait before the next attempt.
    Reason(String, Duration),
}

impl From<GivenUp> for NotConnected {
    fn from(_: GivenUp) -> Self {
        Self::GivenUp
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

impl Host for Jobs {
    fn turn(&mut self, now: Duration) -> Result<Option<Duration>, GivenUp> {
        self.take_letters();
        if self.is_ended {
            return Err(GivenUp);
        }
        if !self.is_lost && self.gives_up_at.is_some_and(|at| at <= now) {
            self.is_lost = true;
            self.common.report_reach(false);
        }
        if self.is_lost {
            let delayed = self.delayed.drain(..).map(|(_, job)| job);
            let all: Vec<Job> = self.waiting.drain(..).chain(delayed).collect();
            for job in all {
                self.end(job, None, Err(IoFailure::NotReady));
            }
        }
        Ok(Some(now + TICK))
    }
}

impl Jobs {
    fn take_letters(&mut self) {
        for letter in self.common.take_letters() {
            match letter {
                Letter::Job(job) => self.waiting.push_back(job),
                Letter::Cancel { core, number } => self.cancel(core, number),
                Letter::End => self.is_ended = true,
            }
        }
    }

    fn cancel(&mut self, core: usize, number: u64) {
        let is_it = |job: &Job| job.core == core && job.number == number;
        let found = self.under_way.iter_mut().find(|(_, job)| is_it(job));
        if let Some((token, job)) = found {
            job.is_cancelled = true;
            self.aborts.push(*token);
            return;
        }
        let waiting = self.waiting.iter().position(is_it);
        let waiting = waiting.and_then(|at| self.waiting.remove(at));
        let delayed = self.delayed.iter().position(|(_, job)| is_it(job));
        let delayed = delayed.and_then(|at| self.delayed.remove(at));
        if let Some(job) = waiting.or_else(|| delayed.map(|(_, job)| job)) {
            self.end(job, None, Err(IoFailure::Cancelled));
        }
    }

    // ---- sessions ----------------------------------------------------------------------------

    fn note_reason(&self, reason: String) {
        let common = &self.common;
        // Once for each reason: what is waited for may take days.
        if common.set_outage(Some(reason.clone())) {
            let (server, device) = (&common.server_name, &common.options.device);
            tracing::warn!(%server, %device, reason, "a HyperSCSI server cannot be used, it is tried again");
        }
    }

    fn begin_session(&mut self, now: Duration) {
        self.gives_up_at = None;
        self.heard_at = now;
        self.common.set_outage(None);
        if std::mem::take(&mut self.is_lost) {
            self.common.report_reach(true);
        }
    }

    /// What was under way waits for the next session.
    fn lose_session(&mut self, now: Duration, reason: &str) {
        if self.is_ended {
            return;
        }
        let common = Arc::clone(&self.common);
        let (server, device) = (&common.server_name, &common.options.device);
        tracing::warn!(%server, %device, reason, "a HyperSCSI session is lost");
        common.set_outage(Some(reason.to_owned()));
        if common.facts.has_cache {
            common.writes.note_lost();
        }
        let was_busy = self.busy_since.take();
        let since = was_busy.map_or(now, |since| since.max(self.heard_at));
        self.gives_up_at = Some(since + common.options.retry);
        self.aborts.clear();
        self.marks.clear();
        let mut jobs: Vec<(u64, Job)> = self.under_way.drain().collect();
        // The oldest ends up in front.
        jobs.sort_by_key(|(token, _)| std::cmp::Reverse(*token));
        for (_, job) in jobs {
            self.lose_job(job);
        }
    }

    /// A job was sent, and nobody knows what became of it.
    fn lose_job(&mut self, mut job: Job) {
        job.losses = job.losses.saturating_add(1);
        if job.is_cancelled {
            self.end(job, None, Err(IoFailure::Cancelled));
        } else if job.losses >= LOSSES_MAX || !job.work.may_be_repeated() {
            self.end(job, None, Err(IoFailure::NotReady));
        } else {
            self.waiting.push_front(job);
        }
    }

    /// The server has had something to answer, and has said nothing, for too long.
    fn is_silent(&self, now: Duration) -> bool {
        let patience = self.common.options.retry.max(SILENCE_MIN);
        let since = self.busy_since.map(|since| since.max(self.heard_at));
        since.is_some_and(|since| now.saturating_sub(since) >= patience)
    }

    fn deadline(&self) -> Option<Duration> {
        let patience = self.common.options.retry.max(SILENCE_MIN);
        let silent_at = self
            .busy_since
            .map(|since| since.max(self.heard_at) + patience);
        let delayed = self.delayed.front().map(|(at, _)| *at);
        silent_at.into_iter().chain(delayed).min()
    }

    // ---- commands ----------------------------------------------------------------------------

    /// Keeps the session busy. Says why it is of no more use, if that is so.
    fn submit_all(
        &mut self,
        now: Duration,
        session: &mut Session,
        device: u16,
    ) -> Option<&'static str> {
        if self.is_closed {
            self.is_closed = false;
            return Some("the server has closed the device");
        }
        for token in std::mem::take(&mut self.aborts) {
            if let Some(name) = session.name_of(token) {
                // Where there is no room, the command ends by itself.
                let function = Function::AbortTask(name);
                let _taken = session.manage(now, FUNCTION | token, device, function);
            }
        }
        while self.delayed.front().is_some_and(|(at, _)| *at <= now) {
            let ready = self.delayed.pop_front();
            self.waiting.extend(ready.map(|(_, job)| job));
        }
        let room = usize::from(session.terms().slots).saturating_sub(1);
        while self.under_way.len() < room
            && let Some(job) = self.waiting.pop_front()
        {
            if self.is_refused(&job.work) {
                self.end(job, None, Err(IoFailure::FlushLatched));
                continue;
            }
            let cdb = scsi::command(&job, &self.common.facts);
            let command = Command {
                attribute: Attribute::Simple,
                cdb: cdb.bytes,
                data_in_bytes: cdb.room,
                data_out_bytes: u32::try_from(cdb.data.len()).unwrap_or(u32::MAX),
            };
            let token = self.next;
            self.next = (self.next + 1) & !FUNCTION;
            match session.submit(now, token, device, command, cdb.data) {
                Ok(()) => {
                    if matches!(job.work, Work::Flush) {
                        self.marks.insert(token, self.common.writes.mark());
                    }
                    if self.under_way.is_empty() {
                        self.busy_since = Some(now);
                    }
                    self.under_way.insert(token, job);
                }
                Err(SubmitError::Full | SubmitError::Ended) => {
                    self.waiting.push_front(job);
                    break;
                }
                Err(SubmitError::NotOpen(_)) => {
                    self.waiting.push_front(job);
                    return Some("the device is not open");
                }
                Err(SubmitError::Length(_)) => {
                    self.end(job, None, Err(IoFailure::Hardware { errno: 0 }));
                }
            }
        }
        None
    }

    /// Whether it cannot be said any more that all is durable: after a failed flush for good, after a lost session
    /// once.
    fn is_refused(&self, work: &Work) -> bool {
        let writes = &self.common.writes;
        work.makes_durable() && writes.has_failed()
            || matches!(work, Work::Flush) && writes.take_lost()
    }

    /// Says why the session is over, if it is.
    fn handle_event(&mut self, now: Duration, event: ClientEvent) -> Option<&'static str> {
        match event {
            ClientEvent::Answer { token, reply, data } => {
                if let Some(job) = self.under_way.remove(&token) {
                    let mark = self.marks.remove(&token);
                    if self.under_way.is_empty() {
                        self.busy_since = None;
                    }
                    self.handle_answer(now, job, mark, &reply, data);
                }
                None
            }
            ClientEvent::Lost { token, was_sent } => {
                self.marks.remove(&token);
                match self.under_way.remove(&token) {
                    Some(job) if was_sent => self.lose_job(job),
                    Some(job) if job.is_cancelled => self.end(job, None, Err(IoFailure::Cancelled)),
                    Some(job) => self.waiting.push_front(job),
                    None => {}
                }
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

    fn handle_answer(
        &mut self,
        now: Duration,
        job: Job,
        mark: Option<u64>,
        reply: &Reply,
        data: Data,
    ) {
        match reply.outcome {
            Outcome::Status(GOOD) => self.finish(job, mark, data),
            Outcome::Status(CHECK_CONDITION) => {
                let sense = Sense::parse(&reply.sense);
                self.handle_sense(now, job, mark, sense, data);
            }
            Outcome::Status(BUSY | TASK_SET_FULL) => self.delay(now, job),
            // Others have reserved the device, for now.
            Outcome::Status(RESERVATION_CONFLICT) => self.end(job, None, Err(IoFailure::NotReady)),
            Outcome::Aborted => self.delay_repeatable(now, job),
            Outcome::NotOpen => {
                self.is_closed = true;
                self.waiting.push_front(job);
            }
            Outcome::Status(_)
            | Outcome::Malformed
            | Outcome::FunctionComplete
            | Outcome::FunctionRejected => {
                self.end(job, None, Err(IoFailure::Hardware { errno: REMOTE }));
            }
        }
    }

    fn handle_sense(
        &mut self,
        now: Duration,
        mut job: Job,
        mark: Option<u64>,
        sense: Sense,
        data: Data,
    ) {
        match sense.key {
            0 | KEY_RECOVERED => self.finish(job, mark, data),
            KEY_ATTENTION => {
                if sense.is_about_size() {
                    self.look_at_size();
                }
                // The command has not begun.
                job.attentions = job.attentions.saturating_add(1);
                match job.attentions {
                    ..ATTENTIONS_MAX => self.waiting.push_front(job),
                    _ => self.end(job, None, Err(IoFailure::NotReady)),
                }
            }
            // Without a medium it takes a person.
            KEY_NOT_READY if sense.code != 0x3a => self.delay(now, job),
            KEY_ABORTED => self.delay_repeatable(now, job),
            KEY_ILLEGAL if matches!(job.work, Work::Extents { .. }) => {
                self.finish(job, mark, Data::default());
            }
            _ => {
                let failure = sense.failure(job.offset, self.common.facts.block_bytes);
                self.end(job, None, Err(failure));
            }
        }
    }

    /// Asks how large the device is, unless that is asked already.
    fn look_at_size(&mut self) {
        let is_asking = |job: &Job| matches!(job.work, Work::Capacity);
        if !self.waiting.iter().any(is_asking) && !self.under_way.values().any(is_asking) {
            self.waiting
                .push_front(Job::new(usize::MAX, 0, 0, Work::Capacity));
        }
    }

    /// The device did not take it now.
    fn delay(&mut self, now: Duration, mut job: Job) {
        let patience = self.common.options.retry.max(SILENCE_MIN);
        let since = *job.refused_at.get_or_insert(now);
        if job.is_cancelled {
            self.end(job, None, Err(IoFailure::Cancelled));
        } else if now.saturating_sub(since) >= patience {
            self.end(job, None, Err(IoFailure::NotReady));
        } else {
            self.delayed.push_back((now + BUSY_PAUSE, job));
        }
    }

    /// It was ended before its end.
    fn delay_repeatable(&mut self, now: Duration, job: Job) {
        match job.work.may_be_repeated() || job.is_cancelled {
            true => self.delay(now, job),
            false => self.end(job, None, Err(IoFailure::NotReady)),
        }
    }

    /// The device has carried it out.
    fn finish(&mut self, job: Job, mark: Option<u64>, data: Data) {
        let facts = &self.common.facts;
        let result = match &job.work {
            Work::Read { bytes } => match data.len() as u64 == u64::from(*bytes) {
                true => Ok(Brought::Data(data)),
                false => Err(IoFailure::Hardware { errno: REMOTE }),
            },
            Work::Extents { range, count_max } => {
                let block_bytes = facts.block_bytes;
                let found = scsi::extents(&data, range.clone(), *count_max, block_bytes);
                Ok(Brought::Extents(found))
            }
            Work::Capacity => {
                let mut now = Facts::default();
                let is_same =
                    now.take_capacity(&data).is_some() && now.block_bytes == facts.block_bytes;
                if is_same {
                    self.common.note_size(now.size_bytes);
                }
                Ok(Brought::Nothing)
            }
            Work::Write { .. } | Work::Flush | Work::Zeros { .. } | Work::Compare { .. } => {
                Ok(Brought::Nothing)
            }
        };
        self.end(job, mark, result);
    }

    fn end(&mut self, job: Job, mark: Option<u64>, result: Result<Brought, IoFailure>) {
        let (writes, work) = (&self.common.writes, &job.work);
        match &result {
            Ok(_) => {
                if work.writes_volatile() {
                    writes.note_answered();
                }
                if let Some(mark) = mark {
                    writes.note_flushed(mark);
                }
            }
            // The kernel of a server with a file reports that once.
            Err(IoFailure::Medium { .. } | IoFailure::Hardware { .. }) if work.makes_durable() => {
                writes.note_failed();
            }
            Err(_) => {}
        }
        let number = job.number;
        self.common.answer(job.core, Mail::Done { number, result });
    }
}
