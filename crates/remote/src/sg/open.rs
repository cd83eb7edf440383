//! What a device is found to be when it is opened.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use store::SharedStore;

use super::attendant;
use super::node::Node;
use crate::device::handle::DeviceStore;
use crate::device::shared::Shared;
use crate::scsi::link::{NoDisk, Whose};
use crate::scsi::medium::InUse;
use crate::words;

/// Why a device cannot be a store: the place, the reason, the remedy.
#[derive(Debug, thiserror::Error)]
#[error("scsi:{}: {reason}", path.display())]
pub struct ScsiOpenError {
    path: PathBuf,
    /// What was found.
    pub reason: Box<ScsiFailure>,
}

/// What keeps a device from being a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScsiFailure {
    /// There is nothing at the path, or it cannot be looked at.
    #[error("{}; connect the device, or name another one", words(.0))]
    Unreachable(io::Error),
    /// It is no device.
    #[error("it is no device; name one, as below /dev/tape/by-id or /dev/disk/by-id, or /dev/sgN")]
    NoDevice,
    /// It is no SCSI device.
    #[error(
        "it is no SCSI device with a node of the generic driver; name a whole device, and load the module sg \
         (modprobe sg)"
    )]
    NoScsi,
    /// Its node cannot be opened.
    #[error(
        "cannot open {}: {}; let the user of Tarn read and write it (udev), or start Tarn as root",
        node.display(),
        words(source)
    )]
    Open {
        /// The node of the generic driver.
        node: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It does not answer.
    #[error("{}; check its power and its cables", words(.0))]
    Silent(io::Error),
    /// It does not say what it is.
    #[error("the device does not say what it is (INQUIRY); such a device cannot be a store")]
    NoInquiry,
    /// Another store has the device.
    #[error(transparent)]
    Twice(InUse),
}

impl From<NoDisk> for ScsiFailure {
    fn from(error: NoDisk) -> Self {
        match error {
            NoDisk::Twice(in_use) => Self::Twice(in_use),
            NoDisk::Host(error) => Self::Unreachable(error),
        }
    }
}

/// What to open and how.
#[derive(Clone, Debug)]
pub struct ScsiOptions {
    /// Any node of the device, or a link to one.
    pub path: PathBuf,
    /// How long commands wait for a device that is gone before they fail. Zero: they fail at once.
    pub retry: Duration,
}

impl ScsiOptions {
    /// Looks at the device and gives the store, which takes commands
    /// ([`IoRequest::Device`](store::IoRequest::Device)). Blocks.
    ///
    /// # Errors
    ///
    /// There is no such device, or it cannot be used.
    pub fn open(self) -> Result<Arc<dyn SharedStore>, ScsiOpenError> {
        let path = self.path.clone();
        match self.open_inside() {
            Ok(store) => Ok(Arc::new(store)),
            Err(reason) => Err(ScsiOpenError {
                path,
                reason: Box::new(reason),
            }),
        }
    }

    fn open_inside(self) -> Result<DeviceStore, ScsiFailure> {
        let node = Node::open(&self.path)?;
        let found = node.look().map_err(ScsiFailure::Silent)?;
        let found = found.ok_or(ScsiFailure::NoInquiry)?;
        let device = self.path.display().to_string();
        let whose = Whose {
            kind: "this machine",
            what: "device at this path",
            server: "this machine".to_owned(),
            store: format!("scsi:{device}"),
            device,
        };
        // A process that is confined next may not open it again.
        let begin = Box::new(move |shared: &Arc<Shared>| attendant::begin(shared, self, node));
        Ok(DeviceStore::new(Shared::of_threads(whose, found, begin)?))
    }
}
