//! What the service manager is told, if there is one: `systemctl status` tells the truth, and a
//! reload ends when the change has taken effect.
//!
//! Spec: sd_notify(3).

use sd_notify::NotifyState;

/// Tells it. A manager that cannot be told is no reason to stop serving.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, states) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}

/// Tarn serves, as `status` says in one line.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Status(status), NotifyState::Ready]);
}

/// A change is being made; [`ready`] follows.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "the clock cannot be read"),
    }
}

/// Tarn ends.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}
