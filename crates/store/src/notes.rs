//! Short texts that are kept beside the data, where the medium has a place for them.

use std::fmt;
use std::io;

/// Which text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Note {
    /// What the disk is known by.
    Identity,
    /// What the device server keeps over a restart.
    State,
}

/// A place for texts that goes with the medium, so that another machine that serves it finds them. A copy of the medium
/// does not have them. All calls may block for as long as the medium hangs, so they belong on threads for that.
pub trait Notes: Send + Sync + fmt::Debug {
    /// A text, if there is one. Before the medium is in use it is the one of the first look.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    fn read(&self, note: Note) -> io::Result<Option<String>>;

    /// Replaces a text, which has no NUL. It is on stable storage when this returns; an identity that is written before
    /// the medium is in use is there when it is.
    ///
    /// # Errors
    ///
    /// It may be there or not. Where nobody may write texts here (`PermissionDenied`) it is not.
    fn write(&self, note: Note, text: &str) -> io::Result<()>;
}
