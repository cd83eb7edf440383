//! A SCSI device of any type as a store, for commands that others have made.
//!
//! [`shared`] has what all cores and the back end have in common, above all the commands that wait, in the order of
//! [`turns`]; [`handle`] is the store and the handle of a core; [`look`] asks a device what it is. Back ends: a session
//! with an iSCSI target (`iscsi/commands.rs`), and threads for a device of this machine ([`crate::sg`]). Handlers of
//! others ([`crate::handler`]) have no back end here, but the same rules.
//!
//! A command has one turn. It is handed to the device at most once, whatever becomes of its answer:
//!
//! * Before it is handed over it can be cancelled, and ends as not ready when the device cannot be reached for too
//!   long.
//! * After that it is waited for without a limit, cancelled or not: a tape may rewind for hours. Later commands wait
//!   behind it. If its session is lost, nobody knows what it did: it ends as a failure of the hardware
//!   ([`shared::LOST`]), which no initiator repeats by itself.
//!
//! Status, sense data, residual and Data-In are passed on as they come. A unit attention is passed on once, as the
//! answer to one command; what waits at that moment was sent in ignorance of it, by any initiator, so it ends with
//! BUSY. The initiators send it again when the device server has told them. A device in a new session may have lost
//! its position, mode and reservations, which is a unit attention, too: 29h/00h.

pub(crate) mod handle;
pub(crate) mod look;
pub(crate) mod shared;
pub(crate) mod telling;
pub(crate) mod turns;
