//! A store that is an image of a Ceph cluster.
//!
//! [`open`] looks at the image over a connection of [`looks`], which ends again: the process may have one thread only
//! until it is confined, and the libraries start several. [`disk`] is the store, and [`attendant`] its thread, which
//! connects, opens and closes, and makes all calls that block, over one of the [`connections`] that the images share.
//! [`shared`] is what it and the handles of all cores have in common, and [`handle`] is the handle of a core, which
//! begins requests and takes their ends as mail. [`snapshots`] is what administrators do with snapshots of the image,
//! on threads of theirs; what takes long is a [`job`]. [`count`] counts what the image takes, for quotas.

mod attendant;
mod connections;
mod count;
mod disk;
mod errno;
mod handle;
mod job;
mod looks;
mod meter;
mod notes;
mod open;
mod options;
mod shared;
mod snapshots;
#[cfg(test)]
mod tests;
mod texts;

pub use looks::Looks;
pub use options::{RbdFailure, RbdOpenError, RbdOptions};
