//! A store behind an NBD server.
//!
//! [`open`] looks at the export, [`shared`] is what all cores have in common, [`disk`] is the store and the handle of a
//! core, which turns requests into jobs, and [`link`] one connection, which carries jobs out.

mod disk;
mod job;
mod link;
mod open;
mod options;
mod request;
mod shared;
#[cfg(test)]
mod tests;
mod tls;

pub use open::{NbdFailure, OpenError};
pub(crate) use options::connect_unix;
pub use options::{NbdOptions, NbdServer, OwnServers};
pub use tls::{TlsFailure, TlsOptions};
