//! HyperSCSI: a client is an I_T nexus, and its commands go to the device server as they are.
//!
//! Each core has a socket of each place, and all clients whose addresses are its own ([`crate::Station::core`]): their
//! questions, logins and sessions. So no frame goes from core to core. Only places for sessions are given by one core.
//!
//! | Module | Owns |
//! | --- | --- |
//! | `keys`, `plan` | names of places; what is to be served, as it is given |
//! | `counts` | what is counted |
//! | `session`, `stock` | a session for the engine: commands out, replies in; memory for their data |
//! | `wire` | what leaves the core |
//! | `places` | the front's part: who has a session |
//! | `delayed`, `entry` | answers that wait; a place on a core |
//! | `sessions` | the sessions of a core: frames, time, beginning and end |
//! | `logins`, `change` | discovery and logins; what an administrator changes |

mod change;
mod counts;
mod delayed;
mod entry;
mod keys;
mod logins;
mod places;
mod plan;
mod session;
mod sessions;
mod stock;
#[cfg(test)]
mod tests;
mod wire;

pub use change::ChangedPlaces;
pub use counts::Counts;
pub use keys::PlaceKey;
pub use places::Places;
pub use plan::{FrameSizes, Group, GroupDevice, Place, Server};
pub use session::{Detail, SessionPort, transport_id};
pub use sessions::{SessionSettings, Sessions};
pub use wire::{Ask, Granted, Letter, Notice, Wire};
