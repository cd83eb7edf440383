//! What SPC asks of every device server, of whatever type. Names [`crate::sam`] and [`crate::table`].

pub(crate) mod inquiry;
pub mod missing;
pub(crate) mod mode;
pub(crate) mod report;
pub mod reservation;
pub(crate) mod shared;
