//! HyperSCSI: a client is an I_T nexus.
//!
//! | Module | Owns |
//! | --- | --- |
//! | `plan` | what is to be served, as it is given; stations |

mod plan;

pub use plan::{FrameSizes, Group, GroupDevice, Place, Server, Station};
