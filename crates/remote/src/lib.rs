//! Stores that another program or machine has, reached over a connection: exports of NBD servers ([`NbdOptions`]).
//!
//! Each is a [`store::SharedStore`]: it never blocks a core, and what takes time goes through its outlet. Names are
//! resolved and connections are made by helper work; everything after that, TLS included, is a state machine between
//! the bytes of the core's ring and the requests of the engine.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod nbd;

pub use nbd::{NbdFailure, NbdOptions, NbdServer, OpenError, TlsOptions};
