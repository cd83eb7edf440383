//! What a disk is found to be when it is opened.

use std::io;
use std::sync::Arc;

use iscsi::pdu::Isid;
use store::SharedStore;

use super::attendant::{self, Known};
use super::commands::Commands;
use super::line::{self, Clock, Line, StepError};
use super::options::{IscsiOptions, lost, refusal, warn_moved};
use crate::device::handle::DeviceStore;
use crate::device::shared::Shared;
use crate::scsi::command::Unfit;
use crate::scsi::handle::ScsiDisk;
use crate::scsi::host::{LOOK_MAX, Until};
use crate::scsi::jobs::Jobs;
use crate::scsi::link::{NoDisk, Whose};
use crate::scsi::medium::InUse;
use crate::scsi::shared::{Common, Losses, Terms};
use crate::words;

/// Why a disk cannot be a store: the place, the reason, the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{disk}: {reason}")]
pub struct IscsiOpenError {
    disk: String,
    /// What was found.
    pub reason: Box<IscsiFailure>,
}

/// What keeps a disk from being a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IscsiFailure {
    /// No connection.
    #[error("cannot connect: {}; start the target, or check host and port", words(.0))]
    Connect(io::Error),
    /// The login failed; the text has the remedy.
    #[error("{0}")]
    Login(String),
    /// The connection broke off, or what came makes no sense.
    #[error("{0}; is this an iSCSI target, and does it let this initiator in?")]
    Broken(String),
    /// Nothing came in time.
    #[error("the target accepts, but does not answer; is this an iSCSI target, and does it work?")]
    Silent,
    /// There is no such logical unit.
    #[error(
        "the target has no such LUN for the initiator {initiator}; check the number, and who may use it"
    )]
    NoLun {
        /// The name of this side.
        initiator: String,
    },
    /// The target sends this side away, and never to where it is.
    #[error("{0}; check the portals of the target, or name the one that has it")]
    Lost(String),
    /// The disk is not ready.
    #[error("{0}; wait, or look at the target")]
    NotReady(String),
    /// It has no size.
    #[error("the disk does not say its size; such a disk cannot be a store")]
    NoSize,
    /// It does not say what it is.
    #[error(
        "the device does not say what it is (INQUIRY), or it is not connected; such a device cannot be a store"
    )]
    NoInquiry,
    /// It cannot be a disk here.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// It would wait for itself.
    #[error(
        "it is a LUN of this Tarn itself, which serves when all stores are open; name the store of that lun, or a LUN \
         of another target"
    )]
    Own,
    /// Another store has the disk.
    #[error(transparent)]
    Twice(InUse),
    /// The system has no random bytes.
    #[error("the system gives no random bytes")]
    NoRandom,
}

impl From<NoDisk> for IscsiFailure {
    fn from(error: NoDisk) -> Self {
        match error {
            NoDisk::Twice(in_use) => Self::Twice(in_use),
            NoDisk::Host(error) => Self::Connect(error),
        }
    }
}

impl IscsiFailure {
    fn of(error: StepError, options: &IscsiOptions) -> Self {
        match error {
            StepError::Connect(error) => Self::Connect(error),
            StepError::Login(error) => Self::Login(refusal(&error, options)),
            StepError::Lost(how, address) => Self::Lost(lost(how, &address)),
            StepError::Own => Self::Own,
            StepError::Broken(reason) => Self::Broken(reason),
            // A first look is given up when it takes too long.
            StepError::Silent | StepError::GivenUp => Self::Silent,
            StepError::NoLun => Self::NoLun {
                initiator: options.initiator().to_owned(),
            },
            StepError::NotReady(reason) => Self::NotReady(reason),
            StepError::NoRandom => Self::NoRandom,
        }
    }
}

impl IscsiOptions {
    /// Logs in, looks at the disk, and gives the store. Blocks.
    ///
    /// # Errors
    ///
    /// There is no such disk, it cannot be a store, or it cannot be reached.
    pub fn open(self) -> Result<Arc<dyn SharedStore>, IscsiOpenError> {
        let name = self.to_string();
        let disk = self.open_disk();
        Ok(Arc::new(disk.map_err(|reason| refused(name, reason))?))
    }

    /// The same for a SCSI device of any type, which becomes a store for commands
    /// ([`IoRequest::Device`](store::IoRequest::Device)). `read_only`, `thin` and `block_bytes` mean nothing.
    ///
    /// # Errors
    ///
    /// There is no such device, or it cannot be reached.
    pub fn open_device(self) -> Result<Arc<dyn SharedStore>, IscsiOpenError> {
        let name = format!("scsi:{self}");
        let device = self.open_any();
        Ok(Arc::new(device.map_err(|reason| refused(name, reason))?))
    }

    fn open_disk(self) -> Result<ScsiDisk, IscsiFailure> {
        let (clock, known, found) = self.first_look(Line::look)?;
        let (found, options) = (found.ok_or(IscsiFailure::NoSize)?, &known.options);
        found.check(options.block_bytes, options.read_only)?;
        let terms = Terms {
            retry: options.retry,
            read_only: options.read_only,
            thin: options.thin,
            block_bytes: options.block_bytes,
        };
        let whose = whose("disk of this LUN", options, options.to_string());
        let begin = Box::new(move |common: &Arc<Common>| {
            let jobs = Jobs::new(common, clock.now());
            if let Err(error) = attendant::begin(jobs, clock, known) {
                common.note_gone(&error);
            }
        });
        let common = Common::new(terms, whose, Losses::AsTold, found, begin)?;
        Ok(ScsiDisk::new(common))
    }

    fn open_any(self) -> Result<DeviceStore, IscsiFailure> {
        let (clock, known, found) = self.first_look(Line::look_at_device)?;
        let (found, options) = (found.ok_or(IscsiFailure::NoInquiry)?, &known.options);
        let retry = options.retry;
        let whose = whose("device of this LUN", options, format!("scsi:{options}"));
        let begin = Box::new(move |shared: &Arc<Shared>| {
            let commands = Commands::new(shared, retry, clock.now());
            if let Err(error) = attendant::begin(commands, clock, known) {
                shared.link.note_gone(&error);
            }
        });
        Ok(DeviceStore::new(Shared::new(whose, found, begin)?))
    }

    /// What is found in a session of its own.
    fn first_look<F>(
        self,
        look: impl FnOnce(&mut Line, Clock, &mut Until) -> Result<F, StepError>,
    ) -> Result<(Clock, Known, F), IscsiFailure> {
        let clock = Clock::new();
        let isid = random_isid()?;
        let failed = |error| IscsiFailure::of(error, &self);
        let host = &mut Until(clock.now() + LOOK_MAX);
        let line = line::establish(clock, &self, isid, host);
        let mut line = line.map_err(failed)?;
        let moved = line.moved.take();
        let found = look(&mut line, clock, host);
        line.log_out(clock);
        let found = found.map_err(failed)?;
        if let Some(portal) = &moved {
            warn_moved(&self, portal);
        }
        let known = Known {
            options: self,
            isid,
            moved,
        };
        Ok((clock, known, found))
    }
}

fn refused(disk: String, reason: IscsiFailure) -> IscsiOpenError {
    let reason = Box::new(reason);
    IscsiOpenError { disk, reason }
}

fn whose(what: &'static str, options: &IscsiOptions, store: String) -> Whose {
    Whose {
        kind: "an iSCSI target",
        what,
        server: format!("target {}", options.target),
        device: options.to_string(),
        store,
    }
}

/// The same for all sessions of a store: a new one takes the place of the one before, and the target ends the tasks of
/// that first. Of two stores each has its own, at one target and under one name, too.
///
/// Spec: RFC 7143 sections 6.3.5 and 11.12.5, type 10b: random number and qualifier.
fn random_isid() -> Result<Isid, IscsiFailure> {
    let mut random = [0; 5];
    getrandom::fill(&mut random).map_err(|_| IscsiFailure::NoRandom)?;
    let [a, b, c, d, e] = random;
    Ok(Isid([0x80, a, b, c, d, e]))
}
