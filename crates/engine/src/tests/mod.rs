//! What one core does, and several do together, by claim.

use crate::testing::{bench, cdb, disk, outside};

mod abort;
mod cache;
mod change;
mod device;
mod execute;
mod fence;
mod flush;
mod foreign;
mod grant;
mod hold;
mod losses;
mod management;
mod medium;
mod parked;
mod refusal;
mod room;
mod space;
mod turn;
mod view_change;
