//! HyperSCSI against a data plane: real cores, real sockets.
#![expect(
    clippy::unwrap_used,
    clippy::result_large_err,
    clippy::wildcard_enum_match_arm,
    clippy::panic,
    reason = "helpers of tests, outside of #[test] functions"
)]

mod alike;
mod client;
mod edges;
mod host;
mod initiator;
mod link;
mod udp;

use std::time::Duration;

/// Longer than anything here takes, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
