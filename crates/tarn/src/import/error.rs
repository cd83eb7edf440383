//! Why nothing is imported.

use std::io;
use std::path::PathBuf;

use config::ConfigError;

/// What keeps another target's configuration from being imported, each with its remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImportError {
    /// The files of the other target cannot be read as what they are meant to be.
    #[error(transparent)]
    Read(#[from] ::import::ReadError),
    /// A format and nothing to read.
    #[error("import {format} names no file; name the configuration of the other target")]
    NoFile {
        /// The format.
        format: &'static str,
    },
    /// No address to listen on.
    #[error(
        "--listen {text:?} is not an address with a port; write it as 192.0.2.1:3260; 0.0.0.0:3260 stands for all IPv4 \
         addresses, [::]:3260 for all IPv6 addresses"
    )]
    Listen {
        /// What was given.
        text: String,
    },
    /// A file of the other target cannot be read.
    #[error("cannot read {}, name a file that exists and is readable", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A pipe, a device or a directory in place of a file.
    #[error("{} is not a regular file; put what it gives into a file, and name that", path.display())]
    NoRegularFile {
        /// What was named.
        path: PathBuf,
    },
    /// Files that include files without an end.
    #[error("more than {max} files; name the files themselves, without those that include others")]
    Files {
        /// How many there may be.
        max: usize,
    },
    /// An include that means no files of one directory.
    #[error(
        "{place}: include {pattern:?} has a pattern elsewhere than in the name of a file; name the files on the \
         command line"
    )]
    Include {
        /// Where it stands.
        place: String,
        /// What it says.
        pattern: String,
    },
    /// A file of the result is there already, or cannot be made.
    #[error("cannot make {}, name a place where it is not there yet", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The result breaks a rule of the configuration: a fault of this program.
    #[error(
        "the result would be wrong, which is a fault of this program; report it with the files"
    )]
    Wrong {
        /// The rule.
        source: ConfigError,
    },
}
