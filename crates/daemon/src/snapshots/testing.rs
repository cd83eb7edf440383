//! For tests: images whose cluster is in this process, and a daemon that serves them.

use std::fmt;
use std::mem;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use api::control::Control as _;
use api::request::EventQuestion;
use store::{Backstore, Capabilities, ClonePlace, Ended, NativeError, NativeSnapshot, Progress};

use super::*;
use crate::opened::OpenStore;
use crate::serve::living::Living;

/// The snapshots of one image. Remembers what it is called for.
pub(crate) struct Cluster {
    snapshots: Mutex<Vec<NativeSnapshot>>,
    calls: Mutex<Vec<String>>,
    failing: Mutex<Option<&'static str>>,
    /// How far what takes long comes while somebody waits.
    pub(crate) progress: Mutex<Progress>,
    /// Of what goes on.
    ended: Mutex<Option<Ended>>,
    pub(crate) resumed: Mutex<Option<(String, Result<(), NativeError>)>>,
    /// Why another client keeps the image.
    pub(crate) kept_by_others: Mutex<Option<ErrorKind>>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

fn failed(action: &'static str) -> NativeError {
    let reason = "it fails".to_owned();
    NativeError::Call { action, reason }
}

impl Cluster {
    fn new() -> Self {
        Self {
            snapshots: Mutex::default(),
            calls: Mutex::default(),
            failing: Mutex::default(),
            progress: Mutex::new(Progress::Done),
            ended: Mutex::default(),
            resumed: Mutex::default(),
            kept_by_others: Mutex::default(),
        }
    }

    /// What it was called for since this was asked last.
    pub(crate) fn calls(&self) -> Vec<String> {
        mem::take(&mut *self.calls.lock().unwrap())
    }

    /// From now on such calls fail, and no others.
    pub(crate) fn fail(&self, call: Option<&'static str>) {
        *self.failing.lock().unwrap() = call;
    }

    /// Ends what goes on.
    pub(crate) fn end(&self, outcome: &Result<(), NativeError>) {
        self.ended.lock().unwrap().take().unwrap()(outcome);
    }

    fn call(&self, call: &'static str, rest: &str) -> Result<(), NativeError> {
        self.calls.lock().unwrap().push(format!("{call} {rest}"));
        match *self.failing.lock().unwrap() == Some(call) {
            true => Err(failed(call)),
            false => Ok(()),
        }
    }

    fn position(&self, name: &SnapshotName) -> Option<usize> {
        let snapshots = self.snapshots.lock().unwrap();
        snapshots.iter().position(|one| one.name == *name)
    }

    fn begin_long(
        &self,
        call: &'static str,
        limit: Duration,
        ended: Ended,
    ) -> Result<Progress, NativeError> {
        let outcome = self.call(call, &format!("{limit:?}"));
        let progress = *self.progress.lock().unwrap();
        match progress {
            Progress::UnderWay { .. } if outcome.is_ok() => {
                *self.ended.lock().unwrap() = Some(ended);
            }
            Progress::Done | Progress::UnderWay { .. } => ended(&outcome),
        }
        outcome.map(|()| progress)
    }
}

impl NativeSnapshots for Cluster {
    fn list(&self) -> Result<Vec<NativeSnapshot>, NativeError> {
        match *self.failing.lock().unwrap() {
            Some("list") => Err(failed("list")),
            Some("reach") => Err(NativeError::Unreached("nobody answers".to_owned())),
            _ => Ok(self.snapshots.lock().unwrap().clone()),
        }
    }

    fn begin(&self, name: &SnapshotName) -> Result<(), NativeError> {
        self.call("begin", name.as_str())?;
        let name = name.clone();
        match self.position(&name) {
            None => Ok(()),
            Some(_) => Err(NativeError::Exists { name }),
        }
    }

    fn take(&self, name: &SnapshotName) -> Result<(), NativeError> {
        self.call("take", name.as_str())
    }

    fn keep(&self, name: &SnapshotName) -> Result<NativeSnapshot, NativeError> {
        self.call("keep", name.as_str())?;
        let kept = NativeSnapshot {
            name: name.clone(),
            place: format!("rbd:pool/i@{name}"),
            taken: SystemTime::UNIX_EPOCH + Duration::from_secs(1),
            size_bytes: 4096,
        };
        self.snapshots.lock().unwrap().push(kept.clone());
        Ok(kept)
    }

    fn discard(&self, name: &SnapshotName) {
        let _outcome = self.call("discard", name.as_str());
    }

    fn remove(&self, name: &SnapshotName) -> Result<(), NativeError> {
        self.call("remove", name.as_str())?;
        let missing = NativeError::Missing { name: name.clone() };
        let position = self.position(name).ok_or(missing)?;
        self.snapshots.lock().unwrap().remove(position);
        Ok(())
    }

    fn close_for_rollback(&self, name: &SnapshotName) -> Result<(), NativeError> {
        self.call("close", name.as_str())
    }

    fn open_again(&self) {
        let _outcome = self.call("open", "again");
    }

    fn roll_back(&self, limit: Duration, ended: Ended) -> Result<Progress, NativeError> {
        self.begin_long("roll back", limit, ended)
    }

    fn take_resumed(&self) -> Option<(String, Result<(), NativeError>)> {
        self.resumed.lock().unwrap().take()
    }

    fn clone_to(&self, name: &SnapshotName, place: &ClonePlace) -> Result<(), NativeError> {
        let ClonePlace {
            pool,
            namespace,
            name: image,
        } = place;
        self.call("clone", &format!("{name} to {pool}/{namespace}/{image}"))
    }

    fn remove_clone(&self, place: &ClonePlace) -> Result<(), NativeError> {
        self.call("unmake", &place.name)
    }

    fn flatten(&self, limit: Duration, ended: Ended) -> Result<Progress, NativeError> {
        self.begin_long("flatten", limit, ended)
    }
}

/// The store of an image.
#[derive(Debug)]
struct Imaged {
    inner: Arc<dyn SharedStore>,
    cluster: Option<Arc<Cluster>>,
    is_latched: Arc<AtomicBool>,
}

impl SharedStore for Imaged {
    fn inner(&self) -> &dyn SharedStore {
        &*self.inner
    }

    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        self.inner.handle()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn is_flush_latched(&self) -> bool {
        self.is_latched.load(Ordering::Relaxed)
    }

    fn take_over(&self) -> io::Result<()> {
        let Some(cluster) = &self.cluster else {
            return self.inner.take_over();
        };
        let kept = *cluster.kept_by_others.lock().unwrap();
        kept.map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn native_snapshots(&self) -> Option<Arc<dyn NativeSnapshots>> {
        let cluster = self.cluster.clone()?;
        Some(cluster)
    }
}

/// What is really served: files and memory.
const SERVED: &str = r#"
[[lun]]
id = "a"
store = "mem:1M"
[[lun]]
id = "b"
store = "mem:1M"
[[lun]]
id = "n"
store = "mem:1M"
[[lun]]
id = "f"
store = "file:{dir}/f.img?size=1M"
[[nbd]]
bind = "127.0.0.1:0"
luns = ["a", "b"]
[server]
state = "{dir}/state"
cores = 2
[admin]
enabled = false
[limits]
pool_per_core_bytes = "16M"
"#;

/// What the daemon takes it for. Of `n` others have the snapshots, as it is one itself; `s` serves one of `f`.
const CONFIGURED: &str = r#"
[[lun]]
id = "a"
store = "rbd:pool/a"
snapshots = { hourly = 2, daily = 1, at = "02:30" }
[[lun]]
id = "b"
store = "rbd:pool/b?conf=/etc/ceph/other.conf"
[[lun]]
id = "n"
store = "rbd:pool/n"
[[lun]]
id = "f"
store = "file:{dir}/f.img?size=1M"
[[lun]]
id = "s"
store = "snap:f@used"
"#;

/// A daemon with images.
pub(crate) struct Images {
    pub(crate) living: Living,
    pub(crate) a: Arc<Cluster>,
    pub(crate) b: Arc<Cluster>,
    /// A flush of `b` has failed.
    pub(crate) is_latched: Arc<AtomicBool>,
    /// Where the exports are served.
    pub(crate) nbd: String,
    seen: Mutex<u64>,
}

impl Images {
    pub(crate) fn new() -> Self {
        let living = Living::new(SERVED);
        let nbd = crate::nbd_places(&living.daemon.in_force().running)[0].clone();
        let [a, b] = [0, 1].map(|_| Arc::new(Cluster::new()));
        let is_latched = Arc::new(AtomicBool::new(false));
        let images = Self {
            living,
            a,
            b,
            is_latched,
            nbd,
            seen: Mutex::new(0),
        };
        images.configure(CONFIGURED);
        images.noted();
        images
    }

    pub(crate) fn configure_with(&self, old: &str, new: &str) {
        assert_eq!(CONFIGURED.matches(old).count(), 1, "{old}");
        self.configure(&CONFIGURED.replace(old, new));
    }

    fn configure(&self, text: &str) {
        let latches = [Arc::default(), Arc::clone(&self.is_latched), Arc::default()];
        let clusters = [Some(&self.a), Some(&self.b), None].map(Option::<&Arc<Cluster>>::cloned);
        self.living.pretend(text, |running| {
            let units = running.units.iter_mut().zip(clusters).zip(latches);
            for ((unit, cluster), is_latched) in units {
                let inner = Arc::clone(&unit.opened.store);
                let store: Arc<dyn SharedStore> = Arc::new(Imaged {
                    inner,
                    cluster,
                    is_latched,
                });
                unit.opened = OpenStore::plain(Arc::clone(&store));
                unit.store = store;
            }
        });
    }

    /// What has happened since this was asked last: kind, severity, message.
    pub(crate) fn noted(&self) -> Vec<String> {
        let mut seen = self.seen.lock().unwrap();
        let events = self.living.daemon.events(EventQuestion::after(*seen, 1000));
        *seen = events.last().map_or(*seen, |event| event.number);
        let of_units = events.iter().filter(|event| event.lun.is_some());
        of_units
            .map(|event| {
                let message = event.message.split("; commands waited").next().unwrap();
                format!("{} {:?} {message}", event.kind, event.severity)
            })
            .collect()
    }
}
