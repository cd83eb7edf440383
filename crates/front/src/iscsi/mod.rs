//! iSCSI.
//!
//! | Module | Owns |
//! | --- | --- |
//! | `front`, `action` | the front: carries logins to their end, knows where every session is; what it wants done |
//! | `directory`, `member`, `profile` | which session is where; who may replace or join one; what is known of one |
//! | `unproved`, `throttle` | limits on peers that have proved nothing, and on what fails |
//! | `holder` | what each user or address has of what sessions share |
//! | `failure` | why logins fail |
//! | `sessions`, `session` | the sessions of a core, from login to end; one of them |
//! | `link`, `events` | its connections; what happens in it |
//! | `grants`, `looks` | what an administrator changes; time |
//! | `port` | a session as the engine's [`engine::Port`] |
//! | `wire` | what leaves the core |

mod action;
mod directory;
mod events;
mod failure;
mod front;
mod grants;
mod holder;
mod link;
mod looks;
mod member;
mod port;
mod profile;
mod session;
mod sessions;
#[cfg(test)]
mod tests;
mod throttle;
mod unproved;
mod wire;

pub use self::front::{Descriptors, Front, FrontSettings, LoginRandom};
pub use action::{Action, Adoption, Entry};
pub use directory::{OtherPlace, Placement};
pub use events::Beyond;
pub use failure::{LoginCause, LoginFailure};
pub(crate) use holder::ConnectionPlace;
pub use holder::{Holding, LunsHeld, Shares};
pub use port::SessionPort;
pub use profile::{SessionProfile, initiator_name, transport_id};
pub use session::{Connection, ConnectionKey, Detail, Grant, Who};
pub use sessions::{Coalescing, SessionSettings, Sessions};
pub(crate) use throttle::{GuessLimiter, origin};
pub use unproved::{Crowding, LoginKey, SharedLists};
pub(crate) use unproved::{OfLogin, Peer, Unproved, UnprovedLimits};
pub use wire::{FRONT_CORE, FrontLetter, Line, LineKey, Notice, Wire};
