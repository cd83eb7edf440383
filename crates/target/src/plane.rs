//! The whole plane: one thread per core, started together and stopped together.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use reactor::mail::{self, Mailbox, Post};
use reactor::{Listener, Reactor, SetupError, TurnError};
use slab::Slab;

use crate::core::Core;
use crate::counters::{CoreCounters, Tally};
use crate::front::Front;
use crate::handle::Handle;
use crate::letter::Letter;
use crate::logins::{LoginCounts, LoginLog};
use crate::plan::{Plan, Settings, TargetPlan, UnitIndex, UnitPlan};
use crate::policy::Policy;
use crate::slow::SlowLimit;
use crate::unproved::SharedLists;
use crate::watcher::Watcher;

/// Size of one receive chunk. Large enough for some thousand commands, small enough that a chunk
/// kept by one write does not weigh much.
const RECEIVE_CHUNK_BYTES: usize = 128 * 1024;

/// Threads per core for what a ring cannot do. They start when needed; some may be stuck with a
/// file system.
const HELPER_THREADS_MAX: usize = 16;

/// Why a plane does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The ring of a core cannot be made.
    #[error(transparent)]
    Reactor(#[from] SetupError),
    /// A store gives no handle to a core.
    #[error("store of unit {name}")]
    Store {
        /// The unit.
        name: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
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
    threads: Vec<JoinHandle<Result<(), TurnError>>>,
}

/// What the front desk is made from, on the core that has it.
#[derive(Debug)]
struct FrontParts {
    policy: Arc<dyn Policy>,
    targets: Vec<TargetPlan>,
    portals: Vec<Listener>,
}

/// What the cores are made from; every thread has a share.
#[derive(Debug)]
struct Parts {
    settings: Settings,
    units: Vec<(UnitIndex, UnitPlan)>,
    counters: Vec<Arc<CoreCounters>>,
    logins: Arc<Mutex<LoginCounts>>,
    connection_count: Arc<AtomicUsize>,
    lists: Arc<SharedLists>,
    slow: Arc<SlowLimit>,
    watcher: Arc<dyn Watcher>,
    posts: Vec<Post<Letter>>,
}

impl DataPlane {
    /// Starts all cores. Nothing is served before all of them are ready, and nothing is left
    /// behind if one is not.
    pub fn start(plan: Plan) -> Result<Self, StartError> {
        let Plan {
            units,
            targets,
            portals,
            policy,
            watcher,
            settings,
        } = plan;
        let core_count = settings.cores.max(1);
        let mut posts = Vec::new();
        let mut mailboxes = Vec::new();
        for _ in 0..core_count {
            let (post, mailbox) = mail::channel().map_err(|source| StartError::System {
                action: "make a mailbox",
                source,
            })?;
            posts.push(post);
            mailboxes.push(mailbox);
        }
        let front = FrontParts {
            policy,
            targets,
            portals,
        };
        let counters: Vec<Arc<CoreCounters>> = posts.iter().map(|_| Arc::default()).collect();
        let logins = Arc::default();
        let slow = Arc::new(SlowLimit::new(settings.slow_command));
        let handle = Handle::new(
            posts.clone(),
            counters.clone(),
            Arc::clone(&slow),
            Arc::clone(&logins),
            settings.abort_timeout,
            units.len(),
            front.portals.len(),
        );
        let parts = Arc::new(Parts {
            settings,
            units: (0..).map(UnitIndex).zip(units).collect(),
            counters,
            logins,
            connection_count: Arc::default(),
            lists: Arc::default(),
            slow,
            watcher,
            posts: posts.clone(),
        });
        let mut plane = Self {
            posts,
            handle: Arc::new(handle),
            threads: Vec::new(),
        };
        let started = plane.start_cores(&parts, mailboxes, front);
        if let Err(error) = started {
            plane.stop();
            return Err(error);
        }
        if let Some(first) = plane.posts.first() {
            first.push(Letter::Go);
        }
        Ok(plane)
    }

    fn start_cores(
        &mut self,
        parts: &Arc<Parts>,
        mailboxes: Vec<Mailbox<Letter>>,
        front: FrontParts,
    ) -> Result<(), StartError> {
        let (report, reports) = mpsc::channel();
        let mut front = Some(front);
        let expected = mailboxes.len();
        for (index, mailbox) in mailboxes.into_iter().enumerate() {
            let parts = Arc::clone(parts);
            let front = front.take();
            let report = report.clone();
            let run = move || {
                let made = Core::make(index, &parts, mailbox, front);
                let (outcome, core) = match made {
                    Ok(core) => (Ok(()), Some(core)),
                    Err(error) => (Err(error), None),
                };
                // The starter is gone only if it has failed for another reason.
                drop(report.send(outcome));
                core.map_or(Ok(()), |mut core| core.run())
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

    /// To change what is served while it is.
    pub const fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Asks initiators to log out, ends what is left after the configured time, flushes all
    /// stores and ends the threads. False when a core had failed.
    pub fn stop(self) -> bool {
        for post in &self.posts {
            post.push(Letter::Stop);
        }
        let mut all_good = true;
        for thread in self.threads {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::error!(%error, "a core failed");
                    all_good = false;
                }
                Err(_) => {
                    tracing::error!("a core panicked");
                    all_good = false;
                }
            }
        }
        all_good
    }
}

impl Core {
    /// Makes the core on its own thread, which its ring belongs to.
    fn make(
        index: usize,
        parts: &Parts,
        mailbox: Mailbox<Letter>,
        front: Option<FrontParts>,
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
        let front = front
            .map(|front| {
                Front::new(
                    front.policy,
                    front.targets,
                    front.portals,
                    &settings,
                    core_count,
                    Arc::clone(&parts.lists),
                )
            })
            .transpose()?;
        let counters = parts.counters.get(index).cloned().unwrap_or_default();
        let tally = Tally::new(counters, pool.capacity_bytes(), Arc::clone(&parts.slow));
        let mut core = Self {
            index,
            settings,
            posts: parts.posts.clone(),
            mailbox,
            own_letters: VecDeque::new(),
            reactor,
            pool,
            units: Vec::with_capacity(parts.units.len()),
            owned: Vec::with_capacity(parts.units.len()),
            retiring: Vec::new(),
            forgetting: Vec::new(),
            leaving: Slab::new(),
            sessions: Slab::new(),
            by_tsih: HashMap::new(),
            connections: Slab::new(),
            tasks: Slab::new(),
            waits: Slab::new(),
            requests: Slab::new(),
            next_request: 0,
            dirty: Vec::new(),
            held: Vec::new(),
            hold_until: None,
            throttled: Vec::new(),
            startable: VecDeque::new(),
            starved: VecDeque::new(),
            starved_sessions: Vec::new(),
            is_short_of_memory: false,
            tally,
            login_log: LoginLog::new(Arc::clone(&parts.logins)),
            connection_count: Arc::clone(&parts.connection_count),
            lists: Arc::clone(&parts.lists),
            watcher: Arc::clone(&parts.watcher),
            traces: Vec::new(),
            front,
            next_tick: Duration::ZERO,
            probes_in_flight: 0,
            next_probe: 0,
            stop_at: None,
            is_quiet: false,
            quiet_cores: 0,
            is_flushed: false,
            flushes: 0,
        };
        core.add_units(&parts.units)?;
        Ok(core)
    }
}
