//! Images of Ceph clusters (RBD): a thin layer over the C libraries librados and librbd, which are loaded at run time.
//!
//! [`Library`] finds the libraries; nothing else of the program needs them. A [`Cluster`] is a connection, an [`Image`]
//! one open image. Requests end by a callback on a thread of the library, which gets a [`Completion`]. Memory of
//! requests is [`Lent`]: it comes back with its own completion only, and is leaked if that is never shown to it.
//!
//! `unsafe` is where a function of the libraries is called, and where one of their callbacks begins. What the callers
//! have to keep to is kept by types: a handle is closed once, when its last user drops it, and what the library refers
//! to is kept until it says that it is done.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

mod calls;
mod cluster;
mod completion;
mod image;
mod own;
mod snapshot;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use calls::{Library, LoadError};
pub use cluster::{Cluster, ClusterOptions, Patience, Pool};
pub use completion::{Completion, Lent};
pub use image::{Holder, Image, Lock, Mode, Watch};
pub use snapshot::{ImageSnapshot, Progress};

/// A function of the libraries failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{call}: {}", words(*.errno))]
pub struct CallError {
    /// Its name.
    pub call: &'static str,
    /// The error number of the system, positive.
    pub errno: i32,
}

/// An error number in words.
pub fn words(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

/// The result of a call that answers zero, or a count, or a negative error number.
fn check(call: &'static str, answer: i32) -> Result<u32, CallError> {
    u32::try_from(answer).map_err(|_| CallError {
        call,
        errno: answer.saturating_neg(),
    })
}
