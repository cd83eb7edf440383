//! A load generator and what it measures: I/Os a second, latency, and the CPU time of both sides.
//!
//! The crate drives targets over [`transport`]s and gives back figures; it prints nothing, and
//! reads no command line. It reports progress to an [`Observer`].
//!
//! | Module | Owns |
//! | --- | --- |
//! | [`url`] | addresses of targets |
//! | [`workload`], [`suite`], [`stream`] | points of a sweep, and where each I/O goes |
//! | [`verify`] | blocks that describe themselves |
//! | [`transport`] | sessions over iSCSI and NBD, and local files |
//! | [`histogram`], [`tally`], [`process`], [`host`] | what is counted, and where |
//! | [`result`], [`report`] | medians, spreads and ratios, and their forms |
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod clock;
mod control;
mod engine;
mod entropy;
mod error;
pub mod histogram;
pub mod host;
pub mod process;
pub mod report;
pub mod result;
mod run;
mod scsi;
mod source;
pub mod stream;
pub mod suite;
pub mod tally;
pub mod transport;
pub mod url;
pub mod verify;
mod worker;
pub mod workload;

pub use control::Interrupt;
pub use engine::Conditions;
pub use error::BenchError;
pub use run::{Observer, Outcome, Plan, Progress, TargetPlan, run};
