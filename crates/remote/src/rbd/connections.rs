//! The connections that serve: one for each cluster and user, while some image has it, and a thread that watches it.
//!
//! A cluster refuses what a blocklisted client sends, and does not notify it. So the thread makes one small request a
//! second, whatever the number of images: it asks which image has the name of one of them, each in its turn. That
//! shows as well that the image was renamed, and that another one has its name. Where the cluster hangs the thread
//! waits for it, as everybody does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak, mpsc};
use std::thread;
use std::time::Duration;

use rbd::{CallError, Cluster, ClusterOptions, Patience, Pool};

use super::options::RbdOptions;
use super::shared::{Common, Work};
use crate::attendants::{Counted, STACK_BYTES};
use crate::lock;

/// Between two requests of the thread.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// For a monitor to answer; another attempt follows.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// A connection and its images.
#[derive(Debug)]
pub(super) struct Connection {
    cluster: Arc<Cluster>,
    members: Mutex<Vec<Member>>,
    /// All images know that it is of no more use.
    is_spread: AtomicBool,
}

#[derive(Debug)]
struct Member {
    common: Weak<Common>,
    work: mpsc::Sender<Work>,
}

/// Others that want the same connection wait while it is made.
type Slot = Arc<Mutex<Weak<Connection>>>;

fn slots() -> MutexGuard<'static, HashMap<ClusterOptions, Slot>> {
    static SLOTS: OnceLock<Mutex<HashMap<ClusterOptions, Slot>>> = OnceLock::new();
    lock(SLOTS.get_or_init(Mutex::default))
}

impl Connection {
    /// Connects, or gives the connection that there is, for an image. One that was blocklisted is not given. Blocks.
    pub(super) fn of(
        common: &Arc<Common>,
        work: &mpsc::Sender<Work>,
    ) -> Result<Arc<Self>, CallError> {
        let options = &common.options.cluster;
        let slot = Arc::clone(slots().entry(options.clone()).or_default());
        let mut held = lock(&slot);
        let connection = match held.upgrade().filter(|one| !one.is_fenced()) {
            Some(connection) => connection,
            None => {
                let patience = Patience::Endless {
                    connect: CONNECT_MAX,
                };
                let cluster = Cluster::connect(common.library, options, patience)?;
                let connection = Arc::new(Self {
                    cluster: Arc::new(cluster),
                    members: Mutex::default(),
                    is_spread: AtomicBool::new(false),
                });
                *held = Arc::downgrade(&connection);
                begin(Weak::clone(&held));
                connection
            }
        };
        drop(held);
        let mut members = lock(&connection.members);
        members.retain(|one| one.common.strong_count() > 0);
        if !members
            .iter()
            .any(|one| one.common.as_ptr() == Arc::as_ptr(common))
        {
            members.push(Member {
                common: Arc::downgrade(common),
                work: work.clone(),
            });
        }
        drop(members);
        Ok(connection)
    }

    /// The pool of an image.
    pub(super) fn pool(&self, options: &RbdOptions) -> Result<Pool, CallError> {
        self.cluster.pool(&options.pool, &options.namespace)
    }

    pub(super) fn is_fenced(&self) -> bool {
        self.cluster.is_fenced()
    }

    /// Has all images know that the client was blocklisted.
    pub(super) fn spread(&self) {
        if !self.is_spread.swap(true, Ordering::SeqCst) {
            for member in lock(&self.members).iter() {
                // Where it has ended nobody wants to know.
                drop(member.work.send(Work::Blocklisted));
            }
        }
    }

    /// Sees which image has the name of one of them.
    fn look(&self, turn: usize) {
        let member = {
            let members = lock(&self.members);
            let at = turn.checked_rem(members.len());
            at.and_then(|at| members.get(at)?.common.upgrade())
        };
        if let Some(common) = member {
            let pool = self.pool(&common.options);
            common.note_named(pool.and_then(|pool| pool.image_id(&common.options.image)));
        }
    }
}

fn begin(connection: Weak<Connection>) {
    let thread = thread::Builder::new().name("tarn-rbd".to_owned());
    let watch = move || watch(&connection);
    if let Err(error) = thread.stack_size(STACK_BYTES).spawn(watch) {
        tracing::warn!(%error, "there is no thread to watch a connection to a Ceph cluster");
    }
}

fn watch(watched: &Weak<Connection>) {
    for turn in 0.. {
        thread::park_timeout(LOOK_EVERY);
        let Some(connection) = watched.upgrade() else {
            return;
        };
        // It may be the last one that has the connection, which then ends here.
        let counted = Counted::new();
        connection.look(turn);
        let is_fenced = connection.is_fenced();
        if is_fenced {
            connection.spread();
        }
        drop(connection);
        drop(counted);
        if is_fenced {
            return;
        }
    }
}
