//! Measures one target at one point: opens the sessions, lets the generator threads run through
//! warm-up and window, and looks at the target's process at both ends of the window.

use std::num::NonZero;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use reactor::{Reactor, Settings};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::control::{Control, Gauge, Interrupt, Phase};
use crate::error::BenchError;
use crate::process::{CpuTime, Look, Process};
use crate::source::Source;
use crate::stream::{AddressStream, Prng, partition};
use crate::tally::{Sample, Tally};
use crate::transport::{Geometry, Lane, LaneSettings, Pattern};
use crate::verify::{BLOCKS_PER_IO_MIN, VERIFIED_BLOCKS_MAX, Verifier};
use crate::worker::{Seat, Worker};
use crate::workload::Point;

/// How often the measuring thread looks around.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// One receive: large enough for a whole batch of answers, small enough to stay in the cache.
const CHUNK_BYTES: usize = 256 * 1024;
const CHUNKS_MIN: usize = 2;
const CHUNKS_MAX: usize = 16;
/// Room in a reactor's pool beside receive chunks and the data under way.
const POOL_SPARE_BYTES: usize = 64 << 20;

/// How every point is measured.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The measured window.
    pub runtime: Duration,
    /// How long I/Os go before it.
    pub warmup: Duration,
    /// Write blocks that describe themselves, and check every byte read.
    pub is_verified: bool,
    /// The first bytes of the target that are used; all of it by default.
    pub span_bytes: Option<u64>,
    /// Generator threads at most; never more than sessions.
    pub threads: NonZero<usize>,
    /// CPUs that generator threads are pinned to, in turn; none to leave them alone.
    pub cpus: Vec<usize>,
}

/// One measurement.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) label: &'a str,
    pub(crate) point: &'a Point,
    pub(crate) conditions: &'a Conditions,
    pub(crate) process: Option<(&'a Process, u32)>,
    pub(crate) seed: u64,
    pub(crate) interrupt: &'a Interrupt,
}

/// One of the generator threads.
#[derive(Clone, Copy)]
struct Place<'a> {
    control: &'a Control,
    gauge: &'a Gauge,
    /// Its number, from 0.
    thread: usize,
    threads: usize,
}

/// What a generator thread has to say.
enum Notice {
    Ready,
    Ended,
}

impl Job<'_> {
    /// Measures; `show` gets the I/Os so far and their median in nanoseconds, now and then.
    ///
    /// # Errors
    ///
    /// Nothing was measured at all. What goes wrong later is in the sample.
    pub(crate) fn measure<L: Lane>(
        &self,
        connector: &L::Connector,
        show: &mut dyn FnMut(Duration, u64, u64),
    ) -> Result<Sample, BenchError> {
        let sessions = usize::try_from(self.point.sessions).unwrap_or(usize::MAX);
        let threads = self.conditions.threads.get().min(sessions);
        let control = Control::new(threads);
        let (notices, inbox) = mpsc::channel();
        thread::scope(|scope| {
            let mut workers = Vec::new();
            for (number, gauge) in control.gauges.iter().enumerate() {
                let notices = notices.clone();
                let place = Place {
                    control: &control,
                    gauge,
                    thread: number,
                    threads,
                };
                let work = move || self.generate::<L>(connector, place, &notices);
                let spawned = thread::Builder::new()
                    .name(format!("bench-{number}"))
                    .spawn_scoped(scope, work);
                match spawned {
                    Ok(worker) => workers.push(worker),
                    Err(error) => {
                        control.enter(Phase::Over);
                        return Err(BenchError::system("start a thread")(error));
                    }
                }
            }
            drop(notices);
            let target_cpu = self.conduct(&control, &inbox, threads, show);
            control.enter(Phase::Over);
            let mut tally = Tally::default();
            let mut failure = None;
            for worker in workers {
                let ended = worker.join();
                let (part, problem) =
                    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                tally.merge(part);
                failure = failure.or(problem);
            }
            Ok(Sample {
                tally,
                target_cpu: target_cpu?,
                failure: failure.map(|error| one_line(&error)),
            })
        })
    }

    /// Takes the threads through the phases.
    fn conduct(
        &self,
        control: &Control,
        inbox: &Receiver<Notice>,
        threads: usize,
        show: &mut dyn FnMut(Duration, u64, u64),
    ) -> Result<Option<CpuTime>, BenchError> {
        for _ in 0..threads {
            // A thread that fails to open its sessions says why when it is joined.
            match inbox.recv() {
                Ok(Notice::Ready) => {}
                Ok(Notice::Ended) | Err(_) => return Ok(None),
            }
        }
        if !self.pace(self.conditions.warmup, inbox, &mut |_| {}) {
            return Ok(None);
        }
        let before = self.look()?;
        control.enter(Phase::Measured);
        self.pace(self.conditions.runtime, inbox, &mut |elapsed| {
            let (ios, median_ns) = control.read();
            show(elapsed, ios, median_ns);
        });
        control.enter(Phase::Over);
        // A process that is gone ends the measurement by its own connection.
        let after = self.look().ok().flatten();
        let looks = self.process.zip(before.zip(after));
        Ok(looks.map(|((process, _), (before, after))| process.used(&before, &after)))
    }

    fn look(&self) -> Result<Option<Look>, BenchError> {
        let Some((process, pid)) = self.process else {
            return Ok(None);
        };
        let look = process.look();
        look.map(Some)
            .map_err(|source| BenchError::Process { pid, source })
    }

    /// Waits; false when it was cut short.
    fn pace(
        &self,
        time: Duration,
        inbox: &Receiver<Notice>,
        tick: &mut dyn FnMut(Duration),
    ) -> bool {
        let start = Instant::now();
        loop {
            let elapsed = start.elapsed();
            let left = time.saturating_sub(elapsed);
            if left.is_zero() {
                return true;
            }
            tick(elapsed);
            match inbox.recv_timeout(left.min(LOOK_EVERY)) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Notice::Ready | Notice::Ended) | Err(RecvTimeoutError::Disconnected) => {
                    return false;
                }
            }
            if self.interrupt.load(Ordering::Relaxed) {
                return false;
            }
        }
    }

    /// The whole life of one generator thread.
    fn generate<L: Lane>(
        &self,
        connector: &L::Connector,
        place: Place<'_>,
        notices: &Sender<Notice>,
    ) -> Result<(Tally, Option<BenchError>), BenchError> {
        let outcome = self.prepare::<L>(connector, place);
        // The receiver lives until all threads are joined.
        let ended = outcome.map(|worker| {
            let _heard = notices.send(Notice::Ready);
            worker.run()
        });
        let _heard = notices.send(Notice::Ended);
        ended
    }

    fn prepare<'a, L: Lane>(
        &'a self,
        connector: &L::Connector,
        place: Place<'a>,
    ) -> Result<Worker<'a, L>, BenchError> {
        self.pin(place.thread)?;
        let sessions = (0..self.point.sessions)
            .skip(place.thread)
            .step_by(place.threads);
        let reactor = self.reactor(sessions.len())?;
        let pattern = if self.point.access.writes() && !self.conditions.is_verified {
            Some(self.pattern(&reactor)?)
        } else {
            None
        };
        let mut seats = Vec::new();
        for (lane, session) in (0..).zip(sessions) {
            let lane = L::open(
                connector,
                LaneSettings {
                    lane,
                    session,
                    depth: self.point.depth,
                    pattern: pattern.clone(),
                },
            )?;
            let span = self.span(lane.geometry())?;
            self.check_length(lane.io_bytes_max())?;
            let source = self.source(span, session, pattern.as_ref());
            seats.push(Seat::new(lane, source, self.point.depth));
        }
        let block_bytes = self.point.block_bytes;
        Ok(Worker::new(
            self.label,
            place.control,
            place.gauge,
            reactor,
            seats,
            block_bytes,
        ))
    }

    fn pin(&self, thread: usize) -> Result<(), BenchError> {
        let cpus = &self.conditions.cpus;
        let Some(&cpu) = cpus.iter().cycle().nth(thread) else {
            return Ok(());
        };
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set).map_err(|error| {
            BenchError::system("pin a thread to a CPU of --cpus; name CPUs that are online")(
                error.into(),
            )
        })
    }

    fn reactor(&self, sessions: usize) -> Result<Reactor, BenchError> {
        let depth = usize::try_from(self.point.depth).unwrap_or(usize::MAX);
        let chunks = sessions.clamp(CHUNKS_MIN, CHUNKS_MAX);
        let data = usize::try_from(self.point.in_flight_bytes()).unwrap_or(usize::MAX);
        let settings = Settings {
            // Buffers are of powers of two, so that they may take twice the data.
            pool_bytes: chunks * CHUNK_BYTES + 2 * data + POOL_SPARE_BYTES,
            receive_chunk_bytes: CHUNK_BYTES,
            receive_chunks: chunks,
            in_flight_max: sessions * (depth + 2),
            ..Settings::default()
        };
        Ok(Reactor::new(&settings)?)
    }

    /// Bytes that no target can make smaller.
    fn pattern(&self, reactor: &Reactor) -> Result<Pattern, BenchError> {
        let length = usize::try_from(self.point.block_bytes).unwrap_or(usize::MAX);
        let no_room = |_| {
            BenchError::system("get memory for write data")(std::io::ErrorKind::OutOfMemory.into())
        };
        let mut buffer = reactor.pool().allocate(length).map_err(no_room)?;
        let mut prng = Prng::new(self.seed);
        for word in buffer.chunks_mut(8) {
            let bytes = prng.next_u64().to_le_bytes();
            word.copy_from_slice(bytes.get(..word.len()).unwrap_or_default());
        }
        Ok(Pattern {
            bytes: Arc::from(&buffer[..]),
            buffer: Rc::new(buffer),
        })
    }

    /// The bytes used of a target, checked against what it says of itself.
    fn span(&self, geometry: Geometry) -> Result<u64, BenchError> {
        let point = self.point;
        let target = || self.label.to_owned();
        if !point.block_bytes.is_multiple_of(geometry.block_bytes) {
            return Err(BenchError::BlockSize {
                target: target(),
                block_bytes: point.block_bytes,
                target_block_bytes: geometry.block_bytes,
            });
        }
        let span_bytes = match self.conditions.span_bytes {
            Some(span_bytes) if span_bytes > geometry.size_bytes => {
                return Err(BenchError::SpanTooLarge {
                    target: target(),
                    span_bytes,
                    size_bytes: geometry.size_bytes,
                });
            }
            Some(span_bytes) => span_bytes,
            None => geometry.size_bytes,
        };
        let per_session = if self.conditions.is_verified {
            u64::from(point.depth) * BLOCKS_PER_IO_MIN
        } else {
            1
        };
        let needed = u64::from(point.sessions) * per_session;
        if span_bytes / u64::from(point.block_bytes) < needed {
            return Err(BenchError::SpanTooSmall {
                target: target(),
                span_bytes,
                needed,
                block_bytes: point.block_bytes,
            });
        }
        Ok(span_bytes)
    }

    fn check_length(&self, io_bytes_max: Option<u32>) -> Result<(), BenchError> {
        match io_bytes_max {
            Some(limit) if self.point.block_bytes > limit => Err(BenchError::IoTooLong {
                target: self.label.to_owned(),
                block_bytes: self.point.block_bytes,
                limit,
            }),
            Some(_) | None => Ok(()),
        }
    }

    fn source(&self, span_bytes: u64, session: u32, pattern: Option<&Pattern>) -> Source {
        let point = self.point;
        if !self.conditions.is_verified {
            let data = pattern.map_or_else(|| Arc::from([]), |pattern| Arc::clone(&pattern.bytes));
            let stream = AddressStream::new(point, span_bytes, session, self.seed);
            return Source::Plain { stream, data };
        }
        let blocks = span_bytes / u64::from(point.block_bytes);
        let blocks = blocks.min(VERIFIED_BLOCKS_MAX);
        Source::Verified(Box::new(Verifier::new(
            partition(blocks, point.sessions, session),
            point.block_bytes,
            point.depth,
            point.read_percent,
            self.seed,
        )))
    }
}

/// An error with its causes.
pub(crate) fn one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
