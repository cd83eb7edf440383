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

use std::time::{Duration, Instant};

/// Longer than anything here takes, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// So many unit attentions come before an answer at most.
pub(crate) const ATTENTIONS_MAX: usize = 100;

/// Waits for what another thread does; `pause` lets it go on.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool, mut pause: impl FnMut()) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        pause();
    }
}
