//! What is mounted by FUSE: the running state as a file tree (`tarn mount DIR`), and a disk as a file (`tarn attach
//! --as fuse:DIR`).
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
//! | `failed_flushes` | to which open files a failed flush was reported |
//! | `disk` | a directory with one file, the bytes of a disk |
//! | `mount` | the life of a mount |
//! | `walk` | the tree without a mount, for a program that walks through it |
//!
//! Only `tree`, `filesystem`, `disk` and `mount` know FUSE. Nothing here knows a command line or prints.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod attribute;
mod call;
mod disk;
mod failed_flushes;
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

pub use disk::{Answer, Disk, DiskError, DiskShape};
pub use mount::{LIMITS, MountError, Mounted, Stopper, usable};
pub use walk::{Entry, EntryKind, Spot, Subject, WalkError, Walker};
