//! What is to be opened, and why it cannot be.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::scsi::link::NoDisk;
use crate::scsi::medium::InUse;
use crate::words;

/// Why a device cannot be a store: the place, the reason, the remedy.
#[derive(Debug, thiserror::Error)]
#[error("scsi:{}: {reason}", path.display())]
pub struct ScsiOpenError {
    pub(super) path: PathBuf,
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
    /// The disk or drive is in use.
    #[error(
        "it is in use by this host, another program or another LUN: unmount it, take it out of its array or volume, or \
         end that other use"
    )]
    InUse,
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
