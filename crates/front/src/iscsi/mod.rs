//! iSCSI.
//!
//! | Module | Owns |
//! | --- | --- |
//! | `action`, `profile` | what it wants done; what is known of a session when it begins |
//! | `front` | the front: carries logins to their end, knows where every session is |
//! | `directory`, `member` | which session is where; who may replace or join one |
//! | `unproved`, `throttle` | limits on peers that have proved nothing, and on what fails |
//! | `failure` | why logins fail |
//! | `port` | a session as the engine's [`engine::Port`] |

mod action;
mod directory;
mod failure;
mod front;
mod member;
mod port;
mod profile;
mod throttle;
mod unproved;

pub use self::front::{Descriptors, Front, FrontSettings, LoginRandom};
pub use action::{Action, Adoption, Entry, Line};
pub use directory::Placement;
pub use failure::{LoginCause, LoginFailure};
pub use port::{SessionPort, management_of, outcome_of};
pub use profile::{SessionProfile, transport_id};
pub use unproved::{Crowding, Holding, LoginKey, SharedLists, hold_limits};
