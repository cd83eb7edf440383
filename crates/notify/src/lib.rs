//! Sends messages to a web server or a mail server, one at a time. Knows nothing of events.
//!
//! | Module | What it has |
//! | --- | --- |
//! | `server` | the connection to a server, with TLS and a limit of time |
//! | `sign` | HMAC-SHA256 |
//! | `post` | one signed POST |
//! | `smtp` | one mail |
//! | `letter` | the form of a mail |

mod letter;
mod post;
mod server;
mod sign;
mod smtp;

pub use letter::{Letter, date};
pub use post::{PostError, Webhook};
pub use server::ServerError;
pub use sign::hmac_sha256;
pub use smtp::{Mailer, Protection, SmtpError};
