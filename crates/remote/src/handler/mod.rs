//! A device that a process of somebody else emulates, as a store (docs/internals/handler.md).
//!
//! [`open`] is the store; [`meet`] connects and looks at the device, in blocking calls; [`shared`] is what the cores
//! have in common; [`handle`] is the store as one core sees it, with a connection and a ring of its own
//! ([`handler::Ring`]). No thread is between: a core writes a command into its ring, and what the handler has written
//! there it reads when a byte has come.
//!
//! The rules of a command are those of [`crate::device`], but for the end of a connection: what the handler had then
//! ends with ABORTED COMMAND. The connections of all cores live and end together. After a loss each is made again and
//! looked at again, and the first command after it reports 29h/04h.

mod handle;
mod meet;
mod open;
mod options;
mod shared;
#[cfg(test)]
mod tests;

pub use options::{HandlerFailure, HandlerOpenError, HandlerOptions};
