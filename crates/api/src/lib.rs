//! What the daemon and its administrators say to each other: the types of `/api/v1`, as JSON.
//!
//! The command line, the web console, the file tree and the metrics use these and nothing else.
//! Types only: no socket, no file, no rule of the configuration.
//!
//! There is one configuration, a document in the form of `tarn.toml`, with a revision number that
//! grows by one with each change. Every change of the configuration, whatever way it comes, is a new
//! document that is planned and then applied as a whole or not at all. The revision is the ETag of
//! everything that is configured.
//!
//! | Module | Says |
//! | --- | --- |
//! | [`spec`] | what is configured: the keys of the file, section by section |
//! | [`view`] | what runs: units, targets, sessions, who sees what |
//! | [`edit`] | single changes of what is configured |
//! | [`patch`] | single keys of a thing |
//! | [`plan`] | what a change would do, has done, and was |
//! | [`stats`] | counters and latencies |
//! | [`figures`] | rates and latencies of the past |
//! | [`event`] | what happened, what an administrator should know |
//! | [`access`] | tokens, roles |
//! | [`problem`] | why not |
//! | [`request`] | small bodies of requests, who asks |
//! | [`control`] | what the administration asks of its daemon |
//!
//! Times are milliseconds since 1970-01-01 UTC (`_ms`), durations milliseconds or microseconds as
//! the name says, sizes bytes. Field names are those of the file where both have them.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod access;
pub mod control;
pub mod edit;
pub mod event;
pub mod figures;
pub mod patch;
pub mod plan;
pub mod problem;
pub mod request;
pub mod spec;
pub mod stats;
pub mod view;

/// Where the paths of this version begin.
pub const PREFIX: &str = "/api/v1";
