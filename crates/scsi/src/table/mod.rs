//! What is known of each command before it is executed: one row a command. The rows drive
//! dispatch, the checks of every CDB, reservations and REPORT SUPPORTED OPERATION CODES. Names
//! [`crate::sam`] only.

pub(crate) mod access;
pub(crate) mod commands;
pub(crate) mod describe;
pub(crate) mod field;
pub(crate) mod foreign;
pub(crate) mod row;
