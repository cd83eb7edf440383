//! What is known of each command before it is executed. Names [`crate::sam`] only.

pub(crate) mod access;
pub(crate) mod commands;
pub(crate) mod describe;
pub(crate) mod row;
