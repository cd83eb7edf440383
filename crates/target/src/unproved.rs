//! Peers that have not proved who they are: what all of them may hold together.

use iscsi::limits::{DISCOVERY_HOLD_MAX_BYTES, SESSION_HOLD_MAX_BYTES};
use iscsi::negotiate::SessionParameters;
use iscsi::target::HoldLimits;
use std::sync::Arc;

use crate::plan::Settings;

/// What a session may hold of requests that are not whole or came before their turn.
///
/// Commands of several connections may overtake each other by a burst each: a session whose user is
/// proved has room for that.
pub(crate) fn hold_limits(
    settings: &Settings,
    is_discovery: bool,
    is_proved: bool,
    parameters: &SessionParameters,
) -> HoldLimits {
    let overtaking = match usize::from(parameters.max_connections) {
        connections if is_proved && connections > 1 => {
            connections.saturating_mul(parameters.first_burst_length_bytes as usize)
        }
        _ => 0,
    };
    HoldLimits {
        budget: Arc::clone(if is_proved && !is_discovery {
            &settings.proved
        } else {
            &settings.unproved
        }),
        session_max_bytes: if is_discovery {
            DISCOVERY_HOLD_MAX_BYTES
        } else {
            SESSION_HOLD_MAX_BYTES.saturating_add(overtaking)
        },
        gap_timeout: settings.gap_timeout,
    }
}
