//! What SPC asks of every device server, of whatever type. Names [`crate::sam`] and
//! [`crate::table`]; what a device type has to say comes in as a [`peripheral::Peripheral`].

pub(crate) mod gate;
pub(crate) mod inquiry;
pub mod missing;
pub(crate) mod mode;
pub(crate) mod parameters;
pub(crate) mod peripheral;
pub(crate) mod report;
pub mod reservation;
pub(crate) mod shared;
