//! One generator thread: a reactor, and the sessions it drives.

use std::time::{Duration, Instant};

use reactor::{Event, Reactor, Wait};

use crate::clock::{Clock, thread_cpu};
use crate::control::{Control, Gauge, Phase};
use crate::error::BenchError;
use crate::source::Source;
use crate::tally::Tally;
use crate::transport::{Finished, Lane, lane_of};

/// How long a thread sleeps at most, so that it sees the phase change.
const TICK: Duration = Duration::from_millis(10);
/// How long a target may be silent with I/Os under way.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long I/Os under way are waited for when a point is over.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// How long the goodbye of all sessions may take.
const GOODBYE_MAX: Duration = Duration::from_secs(1);
/// How often figures are shown: often enough for a rate over the time so far to be steady.
const SHOW_EVERY_NS: u64 = 20_000_000;
/// I/Os that fail until the point is given up: the target does not want them.
const ERRORS_MAX: u64 = 1000;

/// One I/O under way.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    submitted_ns: u64,
    is_read: bool,
}

/// One session and its I/Os.
#[derive(Debug)]
pub(crate) struct Seat<L> {
    pub(crate) lane: L,
    source: Source,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl<L: Lane> Seat<L> {
    pub(crate) fn new(lane: L, source: Source, depth: u32) -> Self {
        Self {
            lane,
            source,
            slots: (0..depth).map(|_| Slot::default()).collect(),
            free: (0..depth).rev().collect(),
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.len().saturating_sub(self.free.len())
    }

    /// Submits an I/O for every free slot.
    fn fill(&mut self, reactor: &mut Reactor, now_ns: u64, length: u32) {
        while let Some(tag) = self.free.pop() {
            let (operation, is_read) = self.source.next_io(tag, length);
            if let Some(slot) = usize::try_from(tag)
                .ok()
                .and_then(|n| self.slots.get_mut(n))
            {
                *slot = Slot {
                    submitted_ns: now_ns,
                    is_read,
                };
            }
            self.lane.submit(reactor, tag, operation);
        }
    }
}

/// The state of one generator thread.
pub(crate) struct Worker<'a, L> {
    pub(crate) label: &'a str,
    pub(crate) control: &'a Control,
    pub(crate) gauge: &'a Gauge,
    pub(crate) reactor: Reactor,
    pub(crate) seats: Vec<Seat<L>>,
    pub(crate) block_bytes: u32,
    events: Vec<Event>,
    /// With the number of the seat.
    finished: Vec<(usize, Finished)>,
    batch: Vec<Finished>,
    tally: Tally,
    clock: Clock,
    phase: Phase,
    window_start_ns: u64,
    cpu_start: Duration,
    last_progress_ns: u64,
    last_shown_ns: u64,
}

impl<'a, L: Lane> Worker<'a, L> {
    pub(crate) fn new(
        label: &'a str,
        control: &'a Control,
        gauge: &'a Gauge,
        reactor: Reactor,
        seats: Vec<Seat<L>>,
        block_bytes: u32,
    ) -> Self {
        Self {
            label,
            control,
            gauge,
            reactor,
            seats,
            block_bytes,
            events: Vec::new(),
            finished: Vec::new(),
            batch: Vec::new(),
            tally: Tally::default(),
            clock: Clock::start(),
            phase: Phase::WarmUp,
            window_start_ns: 0,
            cpu_start: thread_cpu(),
            last_progress_ns: 0,
            last_shown_ns: 0,
        }
    }

    /// Drives I/Os until the point is over. The counts are good whatever the end.
    pub(crate) fn run(mut self) -> (Tally, Option<BenchError>) {
        let failure = self.drive().err();
        self.enter(Phase::Over);
        if failure.is_none() {
            self.say_goodbye();
        }
        (self.tally, failure)
    }

    fn drive(&mut self) -> Result<(), BenchError> {
        let mut over_since_ns = None;
        loop {
            let now_ns = self.clock.now_ns();
            self.account(now_ns);
            let phase = self.control.phase();
            self.enter(phase);
            if phase == Phase::Over {
                let since = *over_since_ns.get_or_insert(now_ns);
                let is_late = Duration::from_nanos(now_ns - since) > DRAIN_MAX;
                if self.in_flight() == 0 || is_late {
                    return Ok(());
                }
            }
            if phase != Phase::Over {
                for seat in &mut self.seats {
                    seat.fill(&mut self.reactor, now_ns, self.block_bytes);
                }
            }
            self.flush();
            self.turn()?;
            self.check_limits(now_ns)?;
        }
    }

    /// Lets all lanes send.
    fn flush(&mut self) {
        for (number, seat) in self.seats.iter_mut().enumerate() {
            seat.lane.flush(&mut self.reactor, &mut self.batch);
            let batch = self.batch.drain(..);
            self.finished.extend(batch.map(|done| (number, done)));
        }
    }

    /// Waits for events, unless something is done already, and hands them to their lanes.
    fn turn(&mut self) -> Result<(), BenchError> {
        let wait = if self.finished.is_empty() {
            let now = Instant::now();
            let lanes = self.seats.iter().filter_map(|seat| seat.lane.deadline());
            let left = lanes.map(|at| at.saturating_duration_since(now)).min();
            Wait::Until(self.reactor.clock() + left.unwrap_or(TICK).min(TICK))
        } else {
            Wait::Poll
        };
        self.reactor.turn(wait, &mut self.events)?;
        for event in self.events.drain(..) {
            let Some((lane, part)) = lane_of(&event) else {
                continue;
            };
            let seat = usize::try_from(lane).unwrap_or(usize::MAX);
            let Some(state) = self.seats.get_mut(seat) else {
                continue;
            };
            state
                .lane
                .handle(&mut self.reactor, part, event, &mut self.batch)
                .map_err(|problem| BenchError::Lost {
                    target: self.label.to_owned(),
                    when: "during I/O",
                    problem,
                })?;
            let batch = self.batch.drain(..);
            self.finished.extend(batch.map(|done| (seat, done)));
        }
        Ok(())
    }

    /// Counts what has finished, all as of now.
    fn account(&mut self, now_ns: u64) {
        if !self.finished.is_empty() {
            self.last_progress_ns = now_ns;
        }
        let is_measured = self.phase == Phase::Measured;
        for (seat, done) in self.finished.drain(..) {
            let Some(state) = self.seats.get_mut(seat) else {
                continue;
            };
            let number = usize::try_from(done.tag).unwrap_or(usize::MAX);
            let Some(slot) = state.slots.get(number).copied() else {
                continue;
            };
            state.free.push(done.tag);
            let is_good = done.result.is_ok();
            if let Some(wrong) = state.source.finish(done.tag, is_good, done.data) {
                self.tally.note_miscompare(|| wrong.to_string());
            }
            match done.result {
                Ok(()) if is_measured => {
                    let latency = now_ns.saturating_sub(slot.submitted_ns);
                    self.tally.latency.record(latency);
                    let count = if slot.is_read {
                        &mut self.tally.reads
                    } else {
                        &mut self.tally.writes
                    };
                    *count += 1;
                }
                Ok(()) => {}
                Err(error) => self.tally.note_error(|| error.to_string()),
            }
        }
        if now_ns.saturating_sub(self.last_shown_ns) > SHOW_EVERY_NS {
            self.last_shown_ns = now_ns;
            let median_ns = self.tally.latency.percentile_ns(500_000);
            self.gauge.show(self.tally.ios(), median_ns);
        }
    }

    /// Follows the phase: opens and closes the measured window.
    fn enter(&mut self, phase: Phase) {
        if phase == self.phase {
            return;
        }
        let now_ns = self.clock.now_ns();
        match phase {
            Phase::WarmUp => {}
            Phase::Measured => {
                self.window_start_ns = now_ns;
                self.cpu_start = thread_cpu();
            }
            Phase::Over if self.phase == Phase::Measured => {
                let window = Duration::from_nanos(now_ns - self.window_start_ns);
                self.tally.window = window;
                self.tally.generator_cpu = thread_cpu().saturating_sub(self.cpu_start);
                self.tally.iops = self.tally.ios() as f64 / window.as_secs_f64().max(1e-9);
            }
            Phase::Over => {}
        }
        self.phase = phase;
    }

    fn check_limits(&self, now_ns: u64) -> Result<(), BenchError> {
        let silent = Duration::from_nanos(now_ns.saturating_sub(self.last_progress_ns));
        let in_flight = self.in_flight();
        if in_flight > 0 && silent > SILENCE_MAX {
            return Err(BenchError::Stalled {
                target: self.label.to_owned(),
                seconds: SILENCE_MAX.as_secs(),
                in_flight: u32::try_from(in_flight).unwrap_or(u32::MAX),
            });
        }
        if self.tally.errors > ERRORS_MAX {
            return Err(BenchError::Unfit {
                target: self.label.to_owned(),
                problem: format!("more than {ERRORS_MAX} I/Os failed; look at the first ones"),
            });
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.seats.iter().map(Seat::in_flight).sum()
    }

    /// Closes all sessions, for a bounded time. What goes wrong here concerns nobody any more.
    fn say_goodbye(&mut self) {
        for seat in &mut self.seats {
            seat.lane.close();
        }
        let deadline = self.reactor.now() + GOODBYE_MAX;
        let mut goes_on = true;
        while goes_on && self.reactor.now() < deadline {
            self.flush();
            goes_on = self.turn().is_ok() && !self.seats.iter().all(|seat| seat.lane.is_closed());
            self.finished.clear();
        }
    }
}
