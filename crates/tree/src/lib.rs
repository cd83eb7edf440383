//! The running state as a file tree, mounted by FUSE (`tarn mount DIR`).
//!
//! What the API reports about the daemon, its units, targets, sessions, groups and users is shown as
//! directories with a small file for each value; what a verb of the API changes can be written. A
//! tree is never older than a second, and keeps nothing but that.
//!
//! | Module | Owns |
//! | --- | --- |
//! | `place` | names of places: directories, files, links |
//! | `attribute` | what a file is: a row with its name, how it is read, how it is written |
//! | `table` | the files of each directory, row by row |
//! | `model` | what is at a place; pure |
//! | `call` | what a write asks of the daemon |
//! | `view` | what the model looks at, and how the daemon is asked for it once a second |
//! | `refusal` | why not: text and error number |
//! | `inode`, `handle` | what the kernel holds: numbers of places, open files |
//! | `tree` | what a request asks for: from numbers to places, from refusals to error numbers |
//! | `filesystem` | requests of the kernel and their answers |
//! | `mount` | the life of a mount |
//! | `walk` | the tree without a mount, for a program that walks through it |
//!
//! Only `tree`, `filesystem` and `mount` know FUSE. Nothing here knows a command line or prints.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod attribute;
mod call;
mod filesystem;
mod handle;
mod inode;
mod model;
mod mount;
mod place;
mod refusal;
mod table;
#[cfg(test)]
mod testing;
mod tree;
mod view;
mod walk;

pub use mount::{LIMITS, MountError, Mounted, Stopper};
pub use walk::{Entry, EntryKind, Spot, Subject, WalkError, Walker};
