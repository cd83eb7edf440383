//! Sends signed messages to a web server, one request for each. Knows nothing of events.
//!
//! | Module | What it has |
//! | --- | --- |
//! | `sign` | HMAC-SHA256 |
//! | `post` | one POST over TCP or TLS, within a limit of time |

mod post;
mod sign;

pub use post::{PostError, Webhook};
pub use sign::hmac_sha256;
