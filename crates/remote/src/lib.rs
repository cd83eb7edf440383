//! Stores that another program or machine has, reached over a connection: exports of NBD servers ([`NbdOptions`]), and
//! images of Ceph clusters ([`RbdOptions`]).
//!
//! Each is a [`store::SharedStore`]: it never blocks a core, and what takes time goes through its outlet. An NBD
//! connection is a state machine between the bytes of the core's ring and the requests of the engine. An image is in
//! the hands of a library with threads of its own, whose completions come to the core as mail.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod nbd;
mod rbd;

pub use ::rbd::{ClusterOptions, Library, LoadError};

pub use self::nbd::{NbdFailure, NbdOptions, NbdServer, OpenError, TlsOptions};
pub use self::rbd::{Looks, RbdFailure, RbdOpenError, RbdOptions, wait_for_images};
