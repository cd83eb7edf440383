//! Rights that a process gives up before it serves, so that an attacker who takes it over gains little.
//!
//! | Module | Gives up |
//! | --- | --- |
//! | [`account`] | nothing; finds the user to become |
//! | [`privileges`] | the user, its groups, capabilities |
//! | [`roots`] | nothing; says which paths lie within those that are kept |
//! | [`files`] | all files but those, and connections (Landlock) |
//! | [`calls`] | all system calls but those of a table (seccomp) |
//! | [`inherited`] | nothing; takes sockets over from a service manager |
//!
//! Most of it holds for the calling thread and those that it starts: it is done while there is no other
//! ([`is_alone`]). None of it can be taken back.
//!
//! This crate knows nothing of configurations, stores or iSCSI.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod account;
pub mod calls;
pub mod files;
pub mod inherited;
pub mod privileges;
pub mod roots;

use std::{fs, io};

/// Whether the calling thread is the only one of its process.
///
/// # Errors
///
/// `/proc` cannot be read.
pub fn is_alone() -> io::Result<bool> {
    Ok(fs::read_dir("/proc/self/task")?.count() == 1)
}

/// How far the kernel went along.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Enforced {
    /// All of it.
    Fully,
    /// As far as it knows the rights; newer kernels know more.
    Partly,
    /// It does not have the feature, or it is turned off.
    Not,
}
