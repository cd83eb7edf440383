//! A store behind an NBD server.
//!
//! [`open`] looks at the export, [`shared`] is what all cores have in common, [`disk`] is the handle of a core, which
//! turns requests into jobs, and [`link`] one connection, which carries jobs out.

mod disk;
mod job;
mod link;
mod open;
mod request;
mod shared;
#[cfg(test)]
mod tests;

pub use open::{NbdFailure, NbdOptions, NbdServer, OpenError, OwnServers, TlsOptions};
