//! An image as a store: it gives each core its handle.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rbd::{Image, Library, Lock};
use store::{Backstore, Bottom, Capabilities, Connections, NativeSnapshots, Notes, SharedStore};

use super::connections::Connection;
use super::count;
use super::handle::RbdHandle;
use super::notes::ImageNotes;
use super::options::{RbdFailure, RbdOptions};
use super::shared::{Found, Named, Standing, Users, Work};
use super::snapshots::ImageSnapshots;

/// How long somebody waits who wants an image to be taken over. The call of a change may take a little longer.
const TAKE_OVER_MAX: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 8 });

/// An image as a store.
#[derive(Debug)]
pub(super) struct RbdDisk {
    users: Arc<Users>,
    handles: AtomicUsize,
}

impl RbdDisk {
    pub(super) fn new(options: RbdOptions, library: Library, found: Found) -> Self {
        Self {
            users: Users::new(options, library, found),
            handles: AtomicUsize::new(0),
        }
    }

    /// The image, for a moment, before its attendant begins. A client that has its exclusive lock may resize it, and
    /// this one may not.
    fn open_to_grow(&self) -> io::Result<Image> {
        let common = &self.users.common;
        let options = &common.options;
        let failed = |error| io::Error::other(options.failed(error));
        let connection = Connection::of(common, &self.users.work).map_err(failed)?;
        let pool = connection.pool(options).map_err(failed)?;
        let image = Image::open_by_id(pool, &common.found.id, &options.mode());
        let image = image.map_err(failed)?;
        match image.lock().map_err(failed)? {
            Lock::Held {
                holder,
                is_alive: true,
            } => {
                let address = holder.to_string();
                Err(io::Error::other(RbdFailure::Locked { address }))
            }
            Lock::Held { .. } | Lock::Own { .. } | Lock::Free => Ok(image),
        }
    }
}

impl SharedStore for RbdDisk {
    fn inner(&self) -> &dyn SharedStore {
        &Bottom
    }

    fn identity(&self) -> Option<String> {
        Some(self.users.common.medium_text())
    }

    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        let number = self.handles.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(RbdHandle::new(Arc::clone(&self.users), number)))
    }

    fn capabilities(&self) -> Capabilities {
        self.users.common.capabilities()
    }

    fn probe_size(&self) -> io::Result<()> {
        // A watch of the image reports every change.
        Ok(())
    }

    fn grow(&self, size_bytes: u64) -> io::Result<()> {
        let common = &self.users.common;
        if common.options.is_read_only() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let image = match common.standing() {
            Standing::Up(image) if !common.is_closed() => image,
            // Nobody uses it yet.
            Standing::Opening if !self.users.has_begun() => Arc::new(self.open_to_grow()?),
            Standing::Up(_) | Standing::Opening | Standing::Gone => {
                let why = common.outage().unwrap_or_default();
                return Err(io::Error::new(io::ErrorKind::NotConnected, why));
            }
        };
        if image.size_bytes().map_err(io::Error::other)? < size_bytes {
            image.grow(size_bytes).map_err(io::Error::other)?;
        }
        common.note_size(image.size_bytes().map_err(io::Error::other)?);
        Ok(())
    }

    fn used_bytes(&self) -> io::Result<Option<u64>> {
        count::used_bytes(&self.users.common).map(Some)
    }

    fn take_over(&self) -> io::Result<()> {
        let common = &self.users.common;
        if common.options.is_read_only() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (to, answer) = mpsc::sync_channel(1);
        let until = Instant::now() + TAKE_OVER_MAX;
        self.users.ask(Work::TakeOver { until, to });
        match answer.recv_timeout(TAKE_OVER_MAX) {
            Ok(taken) => taken.map_err(io::Error::other),
            Err(_) => {
                let why = common.outage();
                let why = why.unwrap_or_else(|| format!("image {}: no answer yet", common.options));
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
        }
    }

    fn is_at(&self, _: &Path) -> io::Result<bool> {
        // A connection sees every second what has the name of one of its images.
        match self.users.common.named() {
            Named::Own => Ok(true),
            Named::Other(_) => Ok(false),
            Named::Nothing | Named::NoPool => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn is_outdated(&self) -> bool {
        self.users.common.is_outdated()
    }

    fn notes(&self) -> Option<Arc<dyn Notes>> {
        let common = Arc::clone(&self.users.common);
        let texts = Arc::clone(common.found.texts.as_ref()?);
        let work = self.users.work.clone();
        Some(Arc::new(ImageNotes {
            common,
            texts,
            work,
        }))
    }

    fn native_snapshots(&self) -> Option<Arc<dyn NativeSnapshots>> {
        let common = Arc::clone(&self.users.common);
        // One that is a snapshot itself has none.
        let has_some = common.options.snapshot.is_none();
        has_some.then(|| Arc::new(ImageSnapshots { common }) as Arc<dyn NativeSnapshots>)
    }

    fn outage(&self) -> Option<String> {
        self.users.common.outage()
    }

    fn connections(&self) -> Option<Connections> {
        Some(self.users.common.connections())
    }
}
