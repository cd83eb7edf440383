//! The administration over HTTP: the API, the console, metrics, tokens.
//!
//! It runs on one thread of its own and a few that call the daemon, never on a core. It knows the
//! daemon as [`api::control::Control`] and nothing of iSCSI, SCSI or stores. On the unix socket
//! the kernel says who asks; on TCP a token does, always.
//!
//! [`routes`] is the table of what there is and who may; everything else serves it:
//! [`serve`] has the connections, [`guard`] lets the callers in, [`handle`] what is done, [`openapi`] the
//! document about it.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod answer;
#[cfg(test)]
mod answers;
mod app;
mod ask;
mod audit;
mod browser;
mod bucket;
mod call;
mod caller;
mod connections;
mod console;
mod endpoints;
mod expiry;
mod feed;
mod file;
mod guard;
mod handle;
mod limits;
mod listen;
mod live;
mod metrics;
mod openapi;
mod patient;
mod peer;
mod places;
mod plain;
mod random;
mod ready;
#[cfg(test)]
mod rights;
mod route;
mod routes;
mod serve;
mod settings;
mod start;
mod supervise;
#[cfg(test)]
mod testing;
mod tls;
mod tokens;

pub use endpoints::{Listening, NextEndpoints, TcpEndpoint};
pub use listen::{ListenError, PRIVATE, SocketFile, probe_unix, unix};
pub use routes::document;
pub use settings::{Settings, StartError};
pub use start::{Admin, AdminHandle, Listeners};
pub use tls::{Certificate, ServiceTls, TlsError, check_files, not_after, service_tls};
pub use tokens::TokensError;
