//! NBD: a client is an I_T nexus, and what it asks for goes to the device server as commands.
//!
//! | Module | Owns |
//! | --- | --- |
//! | `work` | a request as the commands it becomes |
//! | `source` | what a receive has brought |
//! | `answer` | what the end of a command is to a client |
//! | `session`, `port` | a session: bytes in, commands out, replies; for the engine |
//! | `keys`, `adoption` | names of connections; a session on its way to its core |
//! | `wire` | what leaves the core |
//! | `sessions`, `link` | the sessions of a core, and their connections |
//! | `tls` | TLS between a line and the protocol |
//! | `front` | handshakes, until a session begins |

mod adoption;
mod answer;
mod front;
mod keys;
mod link;
mod port;
mod session;
mod sessions;
mod source;
#[cfg(test)]
mod tests;
mod tls;
mod wire;
mod work;

pub use adoption::Adoption;
pub use front::{Front, FrontSettings};
pub use keys::{ConnectionKey, HandshakeKey};
pub use session::{Detail, SessionPort, transport_id};
pub use sessions::{SessionSettings, Sessions};
pub use tls::TlsConfig;
pub use wire::{Failure, Letter, Line, LineKey, Notice, Receive, Wire};
