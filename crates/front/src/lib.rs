//! Where initiators come in: what each transport does for the engine. Pure: no socket, thread or
//! clock.
//!
//! | Module | Owns |
//! | --- | --- |
//! | `iscsi` | iSCSI: a session as the engine's [`engine::Port`] |
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod iscsi;
