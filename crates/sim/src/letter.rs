//! Mail between the simulated cores, and from the administrator to one.

pub use crate::host::{Letter, Order, Receipt};
