//! Stores that another program or machine has, reached over a connection: exports of NBD servers ([`NbdOptions`]),
//! devices of HyperSCSI servers ([`HyperscsiOptions`]), disks of iSCSI targets ([`IscsiOptions`]), images of
//! Ceph clusters ([`RbdOptions`]), SCSI devices ([`ScsiOptions`]), and devices that another process emulates
//! ([`HandlerOptions`]).
//!
//! Each is a [`store::SharedStore`]: it never blocks a core, and what takes time goes through its outlet. An NBD
//! connection is a state machine between the bytes of the core's ring and the requests of the engine. An image is in
//! the hands of a library with threads of its own, whose completions come to the core as mail. The
//! session of a store that speaks SCSI (HyperSCSI, iSCSI) is in the hands of a thread of its own, too.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

use std::sync::{Mutex, MutexGuard, PoisonError};

mod attendants;
mod device;
pub mod fuzz;
mod handler;
mod hyperscsi;
mod iscsi;
mod nbd;
mod rbd;
mod scsi;
mod sg;
mod tcp;

pub use ::hyperscsi::{Device, Level};
pub use ::rbd::{ClusterOptions, Library, LoadError};

pub use self::attendants::wait_for_images;
pub use self::handler::{HandlerFailure, HandlerOpenError, HandlerOptions};
pub use self::hyperscsi::{
    Carrier, HyperscsiConnection, HyperscsiFailure, HyperscsiOpenError, HyperscsiOptions, Password,
    ServerFound, discover,
};
pub use self::iscsi::{IscsiFailure, IscsiLogin, IscsiOpenError, IscsiOptions};
pub use self::nbd::{
    NbdFailure, NbdOptions, NbdServer, OpenError, OwnServers, TlsFailure, TlsOptions,
};
pub use self::rbd::{Looks, RbdFailure, RbdOpenError, RbdOptions};
pub use self::scsi::command::Unfit;
pub use self::scsi::job::Bytes;
pub use self::scsi::medium::InUse;
pub use self::sg::{ScsiFailure, ScsiOpenError, ScsiOptions};

/// What it guards is whole between any two calls.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error with its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// An error of the system, without its number.
fn words(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}
