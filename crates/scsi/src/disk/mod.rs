//! The block commands of SBC.

mod atomic;
mod provision;
mod transfer;
pub(crate) mod work;
