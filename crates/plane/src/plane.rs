//! The whole plane: one thread per core, started together and stopped together.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use reactor::mail::{self, Mailbox, Post};
use reactor::{Reactor, SetupError, process};

use crate::accept::Acceptor;
use crate::core::{Core, Ending};
use crate::counters::{CoreCounters, Tally};
use crate::due::Due;
use crate::events::EventSink;
use crate::handle::Handle;
use crate::letter::Letter;
use crate::lines::LineLimits;
use crate::logins::{LoginCounts, LoginLog};
use crate::medium::{CoreMedia, Media};
use crate::outside::{ColdResets, Outside};
use crate::plan::Settings;
use crate::slow::SlowLimit;
use crate::times::Times;
use crate::trace::FrameTaps;
use crate::watchdog::Watchdog;
use engine::Engine;
use engine::table::ByUnit;
use front::Policy;
use front::iscsi::{Front, FrontSettings, Sessions, SharedLists};
use front::{hyperscsi, nbd};

/// Size of one receive chunk. Large enough for some thousand commands, small enough that a chunk
/// kept by one write does not weigh much.
const RECEIVE_CHUNK_BYTES: usize = 128 * 1024;

/// How much work on media that no initiator sends or gets a turn begins, in bytes: some tenths of a millisecond.
const TURN_BYTES: usize = 1024 * 1024;

/// Threads per core for what a ring cannot do to memory. They start when needed.
const HELPER_THREADS_MAX: usize = 4;

/// Sessions of HyperSCSI on one core: each may have 2 MiB that are not whole, and as much that waits.
const HYPERSCSI_SESSIONS_MAX: usize = 128;

/// Those of one host.
const HYPERSCSI_PER_HOST_MAX: usize = 32;

/// How long the end of the cores may take beyond the configured times: the kernel ends operations.
const END_MARGIN: Duration = Duration::from_secs(10);

/// How often it is checked whether the cores have ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Why a plane does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The ring of a core cannot be made.
    #[error(transparent)]
    Reactor(#[from] SetupError),
    /// No thread, no mailbox.
    #[error("cannot {action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A core ended before it was ready.
    #[error("a core ended while it was starting")]
    CoreLost,
}

/// A running data plane.
#[derive(Debug)]
pub struct DataPlane {
    posts: Vec<Post<Letter>>,
    handle: Arc<Handle>,
    /// Each gives the units whose last flush failed.
    threads: Vec<JoinHandle<Vec<Arc<str>>>>,
    watchdog: Option<Watchdog>,
}

/// How a plane ended.
#[derive(Debug, Default)]
#[must_use = "data may be lost"]
pub struct Stopped {
    /// A core had failed.
    pub is_core_lost: bool,
    /// Units whose last flush failed: data that was answered as written may be lost.
    pub unflushed: Vec<Arc<str>>,
}

/// What the cores are made from; every thread has a share.
#[derive(Debug)]
struct Parts {
    settings: Settings,
    counters: Vec<Arc<CoreCounters>>,
    logins: Arc<Mutex<LoginCounts>>,
    media: Arc<Media>,
    connection_count: Arc<AtomicUsize>,
    lists: Arc<SharedLists>,
    slow: Arc<SlowLimit>,
    events: Arc<dyn EventSink>,
    posts: Vec<Post<Letter>>,
    cold_resets: Arc<ColdResets>,
}

impl DataPlane {
    /// Starts all cores, which serve nothing yet: all else comes by [`DataPlane::handle`]. `policy` is in
    /// force until the first call of [`Handle::set_access`], `events` gets the events. No thread is left
    /// when a core does not start.
    ///
    /// # Errors
    ///
    /// The system refuses a thread, a mailbox or a ring.
    pub fn start(
        settings: Settings,
        policy: Arc<dyn Policy>,
        events: Arc<dyn EventSink>,
    ) -> Result<Self, StartError> {
        let core_count = settings.cores.max(1);
        let (posts, mailboxes): (Vec<_>, Vec<_>) = mailboxes(core_count)?.into_iter().unzip();
        let counters: Vec<Arc<CoreCounters>> = posts.iter().map(|_| Arc::default()).collect();
        let logins = Arc::default();
        let slow = Arc::new(SlowLimit::new(settings.slow_command));
        let handle = Handle::new(
            posts.clone(),
            counters.clone(),
            Arc::clone(&slow),
            Arc::clone(&logins),
            Arc::new(Times::of(&settings)),
        );
        let parts = Arc::new(Parts {
            settings,
            counters,
            logins,
            media: Arc::clone(&handle.media),
            connection_count: Arc::default(),
            lists: Arc::default(),
            slow,
            events,
            posts: posts.clone(),
            cold_resets: Arc::default(),
        });
        let mut plane = Self {
            posts,
            handle: Arc::new(handle),
            threads: Vec::new(),
            watchdog: None,
        };
        let started = plane
            .start_cores(&parts, mailboxes, policy)
            .and_then(|()| plane.start_watchdog(&parts));
        if let Err(error) = started {
            // Nothing was served.
            let _stopped = plane.stop();
            return Err(error);
        }
        Ok(plane)
    }

    fn start_cores(
        &mut self,
        parts: &Arc<Parts>,
        mailboxes: Vec<Mailbox<Letter>>,
        policy: Arc<dyn Policy>,
    ) -> Result<(), StartError> {
        let (report, reports) = mpsc::channel();
        // For the front, which the first core has.
        let mut policy = Some(policy);
        let expected = mailboxes.len();
        for (index, mailbox) in mailboxes.into_iter().enumerate() {
            let parts = Arc::clone(parts);
            let policy = policy.take();
            let report = report.clone();
            let run = move || {
                let made = Core::make(index, &parts, mailbox, policy);
                let (outcome, core) = match made {
                    Ok(core) => (Ok(()), Some(core)),
                    Err(error) => (Err(error), None),
                };
                // The starter is gone only if it has failed for another reason.
                drop(report.send(outcome));
                core.map_or_else(Vec::new, |core| run_or_end(index, core))
            };
            let thread = thread::Builder::new()
                .name(format!("core-{index}"))
                .spawn(run)
                .map_err(|source| StartError::System {
                    action: "start a thread",
                    source,
                })?;
            self.threads.push(thread);
        }
        drop(report);
        for _ in 0..expected {
            reports.recv().map_err(|_| StartError::CoreLost)??;
        }
        Ok(())
    }

    fn start_watchdog(&mut self, parts: &Parts) -> Result<(), StartError> {
        let cores = parts.counters.clone();
        let times = Arc::clone(self.handle.times());
        let started = Watchdog::start(cores, times, Arc::clone(&parts.events));
        self.watchdog = Some(started.map_err(|source| StartError::System {
            action: "start a thread",
            source,
        })?);
        Ok(())
    }

    /// To change what is served while it is.
    pub const fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Asks initiators to log out, ends what is left after the configured time, flushes all
    /// stores and ends the threads.
    pub fn stop(self) -> Stopped {
        // From here on cores end, each in its own time.
        drop(self.watchdog);
        for post in &self.posts {
            post.push(Letter::Stop);
        }
        let deadline = Instant::now() + self.handle.times().end_limit() + END_MARGIN;
        while self.threads.iter().any(|thread| !thread.is_finished()) {
            if Instant::now() >= deadline {
                process::end_at_once(
                    FAILED,
                    "tarn: a core does not end, the process ends without it",
                );
            }
            thread::park_timeout(LOOK_EVERY);
        }
        let mut stopped = Stopped::default();
        for thread in self.threads {
            // One that fails while it serves ends the process; see `run_or_end`.
            match thread.join() {
                Ok(unflushed) => stopped.unflushed.extend(unflushed),
                Err(_) => {
                    tracing::error!("a core panicked while it was starting or ending");
                    stopped.is_core_lost = true;
                }
            }
        }
        stopped
    }
}

/// What the engine of a core has to know.
const fn engine_settings(core: usize, cores: usize, settings: &Settings) -> engine::Settings {
    let limits = settings.of_engine();
    engine::Settings {
        core,
        cores,
        queue_depth: limits.queue_depth,
        abort_timeout: limits.abort_timeout,
        fence_timeout: limits.fence_timeout,
        turn_bytes: TURN_BYTES,
    }
}

/// What the front has to know.
fn front_settings(cores: usize, settings: &Settings) -> FrontSettings {
    FrontSettings {
        cores,
        sessions_max: settings.sessions_max,
        logins_max: settings.logins_max,
        discovery_max: settings.discovery_max,
        unproved_per_address_max: settings.unproved_per_address_max,
        connections_max: settings.connections_max,
        holding: settings.holding.clone(),
        login_timeout: settings.login_timeout,
    }
}

/// What the front of NBD has to know. Its handshakes have limits of their own, which are those of logins.
fn handshake_settings(settings: &Settings) -> nbd::FrontSettings {
    nbd::FrontSettings {
        handshakes_max: settings.logins_max,
        per_address_max: settings.unproved_per_address_max,
        timeout: settings.login_timeout,
        memory: Arc::clone(&settings.holding.logins),
    }
}

/// What sessions of NBD have to know.
const fn of_nbd(settings: &Settings) -> nbd::SessionSettings {
    nbd::SessionSettings {
        queue_depth: settings.queue_depth,
    }
}

/// The sessions of HyperSCSI of a core. The core with the front has their places.
fn hyperscsi_sessions(
    core: usize,
    cores: usize,
    settings: &Settings,
    has_front: bool,
) -> Result<hyperscsi::Sessions<Outside>, StartError> {
    let own = hyperscsi::SessionSettings {
        core,
        cores,
        queue_depth: settings.queue_depth,
        sessions_max: HYPERSCSI_SESSIONS_MAX,
        per_host_max: HYPERSCSI_PER_HOST_MAX,
    };
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| StartError::System {
        action: "get random bytes",
        source: io::Error::other(error.to_string()),
    })?;
    let places = has_front.then(hyperscsi::Places::default);
    Ok(hyperscsi::Sessions::new(own, &seed, places))
}

/// The two ends of a mailbox.
type Channel = (Post<Letter>, Mailbox<Letter>);

/// A mailbox for each core, and the way to put something in.
fn mailboxes(cores: usize) -> Result<Vec<Channel>, StartError> {
    let channels = (0..cores).map(|_| mail::channel());
    let channels: io::Result<Vec<_>> = channels.collect();
    channels.map_err(|source| StartError::System {
        action: "make a mailbox",
        source,
    })
}

/// The exit status of a process of which a core has failed.
const FAILED: u8 = 1;

/// Serves until [`Letter::Stop`], and returns the units whose last flush failed. A core that fails ends the
/// process: sessions, letters and units of the other cores depend on it and would wait for ever.
fn run_or_end(index: usize, mut core: Core) -> Vec<Arc<str>> {
    let why = match catch_unwind(AssertUnwindSafe(|| core.run())) {
        Ok(Ok(())) => return core.unflushed,
        Ok(Err(error)) => {
            let cause = error.source().map(|source| format!(": {source}"));
            format!("{error}{}", cause.unwrap_or_default())
        }
        Err(_) => "it panicked, as said above; please report this".to_owned(),
    };
    process::end_at_once(
        FAILED,
        &format!("tarn: core {index} failed, the process ends: {why}"),
    )
}

impl Core {
    /// Makes the core on its own thread, which its ring belongs to.
    fn make(
        index: usize,
        parts: &Parts,
        mailbox: Mailbox<Letter>,
        policy: Option<Arc<dyn Policy>>,
    ) -> Result<Self, StartError> {
        let settings = parts.settings.clone();
        let reactor = Reactor::new(&reactor::Settings {
            pool_bytes: settings.pool_bytes,
            receive_chunk_bytes: RECEIVE_CHUNK_BYTES,
            busy_poll: settings.busy_poll,
            helper_threads_max: HELPER_THREADS_MAX,
            ..reactor::Settings::default()
        })?;
        let pool = reactor.pool().clone();
        let core_count = parts.posts.len();
        let handshakes = policy
            .clone()
            .map(|policy| nbd::Front::new(&handshake_settings(&settings), policy));
        let front = policy.map(|policy| {
            let own = front_settings(core_count, &settings);
            Front::new(&own, policy, Arc::clone(&parts.lists))
        });
        let acceptor = front.is_some().then(Acceptor::new);
        let counters = parts.counters.get(index).cloned().unwrap_or_default();
        let tally = Tally::new(counters, pool.capacity_bytes(), Arc::clone(&parts.slow));
        let own = engine_settings(index, core_count, &settings);
        let outside = Outside {
            index,
            posts: parts.posts.clone(),
            own_letters: VecDeque::new(),
            reactor,
            units: ByUnit::default(),
            sockets: HashMap::new(),
            tally,
            events: Arc::clone(&parts.events),
            login_log: LoginLog::new(Arc::clone(&parts.logins)),
            line_limits: LineLimits::new(),
            connection_count: Arc::clone(&parts.connection_count),
            cold_resets: Arc::clone(&parts.cold_resets),
            traces: Vec::new(),
            frame_taps: FrameTaps::default(),
        };
        let lists = Arc::clone(&parts.lists);
        let sessions = Sessions::new(settings.of_sessions(), lists, front);
        let nbd = nbd::Sessions::new(of_nbd(&settings), handshakes);
        let hyperscsi = hyperscsi_sessions(index, core_count, &settings, acceptor.is_some())?;
        Ok(Self {
            index,
            settings,
            engine: Engine::new(own, pool, outside),
            mailbox,
            sessions,
            nbd,
            hyperscsi,
            sessions_most: 0,
            draining: Vec::new(),
            closing: Vec::new(),
            media: CoreMedia::new(&parts.media),
            acceptor,
            next_tick: Duration::ZERO,
            due: Due::default(),
            stop_at: None,
            ending: Ending::default(),
            unflushed: Vec::new(),
        })
    }

    /// Other limits from now on: [`Handle::set_limits`].
    pub(crate) fn handle_set_limits(&mut self, new: &Settings) {
        let settings = Settings {
            cores: self.settings.cores,
            pool_bytes: self.settings.pool_bytes,
            busy_poll: self.settings.busy_poll,
            coalescing: self.settings.coalescing,
            connections_max: self.settings.connections_max,
            slow_command: self.settings.slow_command,
            ..new.clone()
        };
        self.engine.set_limits(&settings.of_engine());
        let at_front = front_settings(settings.cores, &settings);
        self.sessions.set_limits(settings.of_sessions(), &at_front);
        self.nbd
            .set_limits(of_nbd(&settings), &handshake_settings(&settings));
        self.hyperscsi.set_queue_depth(settings.queue_depth);
        self.settings = settings;
    }
}
