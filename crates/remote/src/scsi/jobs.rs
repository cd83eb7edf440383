//! The jobs of all handles, in the hands of the attendant.
//!
//! A job is in one place at a time: waiting here, or under way in the session. When a session is lost its jobs wait
//! again, as long as the outage may last, and are sent once more in the next. The device may have carried them out
//! before, which does no harm: each would write the same again, and nothing newer can have come in between, because the
//! new session is one of the same client, so its server ends the old one with its tasks first. The exception is a
//! COMPARE AND WRITE, which would meet its own data: one that was sent and lost ends as not ready. What a device may
//! have dropped with its cache are writes that it answered and no flush covered; the next flush reports those. When it
//! may have, [`Losses`] says.
//!
//! What is known of the device is looked at again when it says that something may be different ([`looks`]).

mod looks;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use store::IoFailure;

use super::command::{
    self, BUSY, CHECK_CONDITION, Cdb, GOOD, KEY_ABORTED, KEY_ATTENTION, KEY_ILLEGAL, KEY_NOT_READY,
    KEY_RECOVERED, RESERVATION_CONFLICT, Sense, TASK_ABORTED, TASK_SET_FULL,
};
use super::host::{GivenUp, Host};
use super::job::{Arrived, Brought, Job, Letter, Mail, Work};
use super::shared::{Common, Losses};

/// Between two attempts to log in. A session that was up for so long has settled: when it is lost, another attempt is
/// made at once.
pub(crate) const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 1000 });
/// For the first session.
pub(crate) const START_MAX: Duration = Duration::from_secs(10);
/// A server that does not answer for so long is away, whatever `retry` says: a frame may be lost.
pub(crate) const SILENCE_MIN: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 2 });
/// How often letters are looked for while there is no session.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// Until a command is tried again that the device did not take.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// A job that was under way in so many lost sessions is what they are lost for.
const LOSSES_MAX: u8 = 8;
/// So many unit attentions in a row mean that there is no end to them.
const ATTENTIONS_MAX: u8 = 32;
/// So many reports of a lost cache that one flush meets, too.
const REPORTS_MAX: u8 = 8;
/// `EREMOTEIO`: the server refuses a command as nonsense.
const REMOTE: i32 = 121;
/// Tokens of jobs are below it; what else a session has under way may have those above.
pub(crate) const TOKENS_MAX: u64 = 1 << 63;

/// A session that carries commands.
pub(crate) trait Carries {
    /// How many it takes at a time.
    fn slots(&self) -> usize;

    /// Takes one.
    fn submit(&mut self, now: Duration, token: u64, cdb: Cdb) -> Result<(), Refused>;

    /// Asks the device to end one, whose answer comes all the same.
    fn abort(&mut self, now: Duration, token: u64);
}

/// Why a session took no command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refused {
    /// There is no room now.
    Full,
    /// It is of no more use, for this reason.
    Ended(&'static str),
    /// Its data is too long.
    Length,
}

/// How a command ended, other than with its session.
#[derive(Debug)]
pub(crate) enum Ending {
    /// With this status, and sense data where there are any.
    Status(u8, Vec<u8>),
    /// Before its end. Another attempt may do.
    Aborted,
    /// The device is not open any more; it has not begun.
    Closed,
    /// It makes no sense to the server, or what the server says makes none.
    Nonsense,
}

/// The jobs of all handles.
pub(crate) struct Jobs {
    pub(crate) common: Arc<Common>,
    waiting: VecDeque<Job>,
    /// What the device did not take, with the time of the next attempt; all wait equally long.
    delayed: VecDeque<(Duration, Job)>,
    under_way: HashMap<u64, Job>,
    /// What a flush under way covers.
    marks: HashMap<u64, u64>,
    next: u64,
    /// Under way, and nobody needs the result any more.
    aborts: Vec<u64>,
    /// What is known of the device may be false, so nothing is sent until it has been looked at.
    look: Option<looks::Look>,
    /// Without a session: when what waits ends as not ready. `None`: there is a session.
    gives_up_at: Option<Duration>,
    /// That time has come; what comes fails at once.
    is_lost: bool,
    /// The device is not open any more.
    is_closed: bool,
    is_ended: bool,
    /// When something of the server last came, and since when it has had something to answer.
    heard_at: Duration,
    busy_since: Option<Duration>,
}

impl Jobs {
    pub(crate) fn new(common: &Arc<Common>, now: Duration) -> Self {
        Self {
            gives_up_at: Some(now + common.terms.retry.max(START_MAX)),
            common: Arc::clone(common),
            waiting: VecDeque::new(),
            delayed: VecDeque::new(),
            under_way: HashMap::new(),
            marks: HashMap::new(),
            next: 0,
            aborts: Vec::new(),
            look: None,
            is_lost: false,
            is_closed: false,
            is_ended: false,
            heard_at: now,
            busy_since: None,
        }
    }

    /// The last user is gone.
    pub(crate) const fn is_ended(&self) -> bool {
        self.is_ended
    }

    pub(crate) fn take_letters(&mut self) {
        for letter in self.common.take_letters() {
            match letter {
                Letter::Job(job) => self.waiting.push_back(job),
                Letter::Cancel { core, number } => self.cancel(core, number),
                Letter::End => self.is_ended = true,
            }
        }
        self.note_held();
    }

    /// What waits without a session, for the figures.
    fn note_held(&self) {
        let held = match self.gives_up_at {
            Some(_) => self.waiting.len() + self.delayed.len(),
            None => 0,
        };
        self.common.note_held(held as u64);
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

    pub(crate) fn begin_session(&mut self, now: Duration) {
        self.gives_up_at = None;
        self.heard_at = now;
        self.common.begin_session();
        if std::mem::take(&mut self.is_lost) {
            self.common.report_reach(true);
        }
    }

    /// What was under way waits for the next session.
    pub(crate) fn lose_session(&mut self, now: Duration, reason: &str) {
        if self.is_ended {
            self.common.end_session();
            return;
        }
        let common = Arc::clone(&self.common);
        common.lose_session(reason);
        if common.losses == Losses::WithSession {
            self.note_cache_lost();
        }
        let was_busy = self.busy_since.take();
        let since = was_busy.map_or(now, |since| since.max(self.heard_at));
        // Those that waited for a look have waited for the device since then.
        let looked = self.look.take().and_then(|look| look.since());
        let since = looked.map_or(since, |looked| looked.min(since));
        self.gives_up_at = Some(since + common.terms.retry);
        self.is_closed = false;
        self.aborts.clear();
        self.marks.clear();
        let mut jobs: Vec<(u64, Job)> = self.under_way.drain().collect();
        // The oldest ends up in front.
        jobs.sort_by_key(|(token, _)| std::cmp::Reverse(*token));
        for (_, job) in jobs {
            self.lose_job(job);
        }
        self.note_held();
    }

    /// What the device answered, and no flush has covered, may be lost.
    pub(crate) fn note_cache_lost(&self) {
        self.common.writes.note_lost();
    }

    fn heed_power(&self, sense: Sense) {
        if self.common.losses == Losses::AsTold && sense.is_about_power() {
            self.note_cache_lost();
        }
    }

    /// A job was sent, and nobody knows what became of it.
    fn lose_job(&mut self, mut job: Job) {
        job.losses = job.losses.saturating_add(1);
        if matches!(job.work, Work::Look) {
            self.lose_question();
        } else if job.is_cancelled {
            self.end(job, None, Err(IoFailure::Cancelled));
        } else if job.losses >= LOSSES_MAX || !job.work.may_be_repeated() {
            self.end(job, None, Err(IoFailure::NotReady));
        } else {
            self.waiting.push_front(job);
        }
    }

    /// Something of the server has come.
    pub(crate) const fn note_heard(&mut self, now: Duration) {
        self.heard_at = now;
    }

    /// How long a server may say nothing while it has something to answer.
    pub(crate) fn patience(&self) -> Duration {
        self.common.terms.retry.max(SILENCE_MIN)
    }

    /// The server has had something to answer, and has said nothing, for too long.
    pub(crate) fn is_silent(&self, now: Duration) -> bool {
        let since = self.busy_since.map(|since| since.max(self.heard_at));
        since.is_some_and(|since| now.saturating_sub(since) >= self.patience())
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        let silent_at = self
            .busy_since
            .map(|since| since.max(self.heard_at) + self.patience());
        let delayed = self.delayed.front().map(|(at, _)| *at);
        let patience = self.patience();
        let look = self.look.as_ref().and_then(|look| look.deadline(patience));
        silent_at.into_iter().chain(delayed).chain(look).min()
    }

    // ---- commands ----------------------------------------------------------------------------

    /// Keeps the session busy. Says why it is of no more use, if that is so.
    pub(crate) fn submit_all(
        &mut self,
        now: Duration,
        session: &mut impl Carries,
    ) -> Option<String> {
        if self.is_closed {
            self.is_closed = false;
            return Some("the server has closed the device".to_owned());
        }
        for token in std::mem::take(&mut self.aborts) {
            session.abort(now, token);
        }
        while self.delayed.front().is_some_and(|(at, _)| *at <= now) {
            let ready = self.delayed.pop_front();
            self.waiting.extend(ready.map(|(_, job)| job));
        }
        match self.go_on_looking(now, session) {
            Ok(false) => self.submit_waiting(now, session),
            Ok(true) => None,
            Err(reason) => Some(reason),
        }
    }

    /// Sends jobs to a device that is what it is known as.
    fn submit_waiting(&mut self, now: Duration, session: &mut impl Carries) -> Option<String> {
        let facts = self.common.now();
        let room = session.slots();
        while self.under_way.len() < room
            && let Some(mut job) = self.waiting.pop_front()
        {
            if self.is_refused(&job.work) {
                self.end(job, None, Err(IoFailure::FlushLatched));
                continue;
            }
            if !facts.takes(&job.work) {
                // It was cut for what the device did before.
                self.end(job, None, Err(IoFailure::NotReady));
                continue;
            }
            job.is_durable = job.work.wants_durable() && facts.has_fua;
            let cdb = command::command(&job, &facts);
            let token = self.next;
            match session.submit(now, token, cdb) {
                Ok(()) => self.note_submitted(now, token, job),
                Err(Refused::Full) => {
                    self.waiting.push_front(job);
                    break;
                }
                Err(Refused::Ended(reason)) => {
                    self.waiting.push_front(job);
                    return Some(reason.to_owned());
                }
                Err(Refused::Length) => {
                    self.end(job, None, Err(IoFailure::Hardware { errno: 0 }));
                }
            }
        }
        None
    }

    fn note_submitted(&mut self, now: Duration, token: u64, job: Job) {
        self.next = (token + 1) % TOKENS_MAX;
        if matches!(job.work, Work::Flush) {
            self.marks.insert(token, self.common.writes.mark());
        }
        if self.under_way.is_empty() {
            self.busy_since = Some(now);
        }
        self.under_way.insert(token, job);
    }

    /// Whether it cannot be said any more that all is durable: after a failed flush.
    fn is_refused(&self, work: &Work) -> bool {
        (work.wants_durable() || matches!(work, Work::Flush)) && self.common.writes.has_failed()
    }

    /// Whether the command of this token takes data to the device.
    pub(crate) fn sends_data(&self, token: u64) -> bool {
        let job = self.under_way.get(&token);
        job.is_some_and(|job| job.work.sends_data())
    }

    /// A command of the session was lost; `was_sent`: it may have been carried out.
    pub(crate) fn handle_loss(&mut self, token: u64, was_sent: bool) {
        self.marks.remove(&token);
        let job = self.under_way.remove(&token);
        if self.under_way.is_empty() {
            self.busy_since = None;
        }
        match job {
            Some(job) if was_sent => self.lose_job(job),
            Some(job) if matches!(job.work, Work::Look) => self.lose_question(),
            Some(job) if job.is_cancelled => self.end(job, None, Err(IoFailure::Cancelled)),
            Some(job) => self.waiting.push_front(job),
            None => {}
        }
    }

    /// A command of the session has ended.
    pub(crate) fn handle_ending(
        &mut self,
        now: Duration,
        token: u64,
        ending: Ending,
        data: Arrived,
    ) {
        let Some(job) = self.under_way.remove(&token) else {
            return;
        };
        let mark = self.marks.remove(&token);
        if self.under_way.is_empty() {
            self.busy_since = None;
        }
        if matches!(job.work, Work::Look) {
            self.take_look_answer(now, ending, &data);
            return;
        }
        match ending {
            Ending::Status(GOOD, _) => self.finish(job, mark, data),
            Ending::Status(CHECK_CONDITION, sense) => {
                self.handle_sense(now, job, mark, Sense::parse(&sense), data);
            }
            Ending::Status(BUSY | TASK_SET_FULL, _) => self.delay(now, job),
            // Others have reserved the device, for now.
            Ending::Status(RESERVATION_CONFLICT, _) => {
                self.end(job, None, Err(IoFailure::NotReady));
            }
            Ending::Aborted | Ending::Status(TASK_ABORTED, _) => self.delay_repeatable(now, job),
            Ending::Closed => {
                self.is_closed = true;
                self.waiting.push_front(job);
            }
            Ending::Status(_, _) | Ending::Nonsense => {
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
        data: Arrived,
    ) {
        if sense.is_deferred {
            self.common.writes.note_reported();
            self.delay_repeatable(now, job);
            return;
        }
        if matches!(job.work, Work::Flush) && sense.is_about_cache() && job.reports < REPORTS_MAX {
            // The next one is good, if that was all.
            job.reports += 1;
            self.common.writes.note_reported();
            self.waiting.push_front(job);
            return;
        }
        if job.is_durable && sense.is_about_cache() {
            // The device lost it on its way to the medium, and does the next one.
            self.end(job, None, Err(IoFailure::CacheLost));
            return;
        }
        match sense.key {
            0 | KEY_RECOVERED if sense.is_there => self.finish(job, mark, data),
            KEY_ATTENTION => {
                self.heed(sense);
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
                self.finish(job, mark, Arrived::default());
            }
            // One without a cache has nothing to flush.
            KEY_ILLEGAL if matches!(job.work, Work::Flush) && !self.common.now().says_cache => {
                self.finish(job, mark, Arrived::default());
            }
            _ => {
                let failure = sense.failure(job.offset, self.common.facts.block_bytes);
                self.end(job, None, Err(failure));
            }
        }
    }

    /// The device did not take it now.
    fn delay(&mut self, now: Duration, mut job: Job) {
        let since = *job.refused_at.get_or_insert(now);
        if job.is_cancelled {
            self.end(job, None, Err(IoFailure::Cancelled));
        } else if now.saturating_sub(since) >= self.patience() {
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
    fn finish(&mut self, job: Job, mark: Option<u64>, data: Arrived) {
        let facts = &self.common.facts;
        let result = match &job.work {
            Work::Read { bytes } => match data.len() as u64 == u64::from(*bytes) {
                true => Ok(Brought::Data(data)),
                false => Err(IoFailure::Hardware { errno: REMOTE }),
            },
            Work::Extents { range, count_max } => {
                let block_bytes = facts.block_bytes;
                let found = command::extents(&data, range.clone(), *count_max, block_bytes);
                Ok(Brought::Extents(found))
            }
            work @ (Work::Write { .. } | Work::Compare { .. }) => {
                match work.wants_durable() && !job.is_durable {
                    true => Ok(Brought::Volatile),
                    false => Ok(Brought::Nothing),
                }
            }
            Work::Look | Work::Flush | Work::Zeros { .. } => Ok(Brought::Nothing),
        };
        self.end(job, mark, result);
    }

    fn end(&mut self, job: Job, mark: Option<u64>, result: Result<Brought, IoFailure>) {
        let writes = &self.common.writes;
        match &result {
            Ok(_) => {
                if job.writes_volatile() {
                    writes.note_answered();
                }
                if let Some(mark) = mark {
                    writes.note_flushed(mark);
                }
            }
            // The kernel of a server with a file reports that once.
            Err(IoFailure::Medium { .. } | IoFailure::Hardware { .. }) if job.makes_durable() => {
                writes.note_failed();
            }
            Err(_) => {}
        }
        let number = job.number;
        self.common.answer(job.core, Mail::Done { number, result });
    }
}

impl Host for Jobs {
    fn note_attention(&mut self, sense: Sense) {
        self.heed(sense);
    }

    fn begin_look(&mut self) {
        self.look = None;
    }

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
            self.note_held();
        }
        Ok(Some(now + TICK))
    }
}
