//! The state directory: what must survive a restart.
//!
//! ```text
//! identities.toml[.last]     serial number and NAA designator of each unit, and the number of each
//!                            target port, made once
//! lock                       held while identities.toml is read, changed and written
//! history/NAME/NNNNNN.toml   the revisions of a configuration file
//! secrets/NAME/HEX.secret    secrets that its administration has set
//! hyperscsi.toml[.last]      the key and the number of the server of HyperSCSI, made once
//! units/NAA/lock             held as long as a process serves the unit
//! units/NAA/saved[.last]     registrations with APTPL and saved mode pages, in a form of the
//!                            device server's own, with a version that counts the saves
//! units/NAA/log              which log device the unit has, and whether that may have what the store has not
//! units/NAA/medium           what the medium of the unit was when it was served last (crate::medium)
//! ```
//!
//! Several processes may share a directory: `identities.toml` is read again under the lock before
//! each change, and a unit has one owner at a time. Every file is replaced as a whole, so that a
//! reader finds the old content or the new, also after a power cut. Each begins with its length
//! and its checksum, so that damage is known; the files named `.last` are copies of the last good
//! version. A unit whose identity is not known because of damage is withheld: no identity is made
//! for it, and it is not served. See `tarn state`.
//!
//! A medium that has a place for it keeps identity and state of its unit itself (`medium`).

mod directory;
mod hyperscsi;
mod identities;
mod ledger;
mod log;
mod media;
mod medium;
mod ports;
mod prune;
mod renames;
mod repair;
mod troubles;
mod unit;

pub use directory::State;
pub(crate) use hyperscsi::entropy;
pub use identities::UnitIdentity;
pub(crate) use identities::{LedgerChange, check_identities};
pub(crate) use log::{LogNote, LogNotes};
pub(crate) use ports::PortName;
pub use prune::Pruned;
pub(crate) use renames::{Rename, path_of};
pub(crate) use troubles::Trouble;
pub(crate) use unit::CONFLICT_REMEDY;
pub use unit::UnitState;

#[cfg(test)]
mod tests;
