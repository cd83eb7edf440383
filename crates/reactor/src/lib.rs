//! One io_uring per core: sockets, files, helper work and mail, run to completion on one thread.
//!
//! A [`Reactor`] belongs to the thread that made it. Its owner queues operations, each with a
//! [`Token`] of its choice, and calls [`Reactor::turn`]: that submits everything queued with one
//! system call, waits if asked to, and answers with [`Event`]s. Every operation ends in exactly
//! one event, also when it was cancelled; until then the reactor owns the memory, the messages
//! and the descriptors that the kernel works on. [`Reactor::receive_datagrams`] has events before
//! its last, one for each datagram; the ends of several [`Reactor::send_datagram`] share an event.
//!
//! An operation of a store that may wait in the kernel goes to the *lane* of its file: workers of its own, so that
//! no store can keep the reactor or another store waiting.
//!
//! [`ublk`] stands apart: a block device of this machine, with a thread and a ring of its own.
//!
//! The reactor knows nothing of iSCSI or SCSI, and of stores only their
//! [`store::RingOperation`]s and [`store::HelperOperation`]s.
#![warn(missing_docs)]

mod again;
mod cache;
mod chunks;
mod clock;
pub mod cores;
mod datagram;
mod event;
pub mod filesystem;
mod filter;
mod frames;
mod helper;
mod in_flight;
mod lane;
pub mod mail;
pub mod net;
mod operation;
pub mod process;
mod reactor;
mod ring;
mod room;
mod sent;
mod settings;
pub mod sg;
mod site;
mod socket;
pub mod ublk;

pub use datagram::{Address, Datagram, DatagramSocket};
pub use event::{Event, OperationId, Received, SendEnd, Token, Wait};
pub use filter::FrameFilter;
pub use frames::FrameSocket;
pub use net::Listener;
pub use reactor::Reactor;
pub use room::Occupant;
/// The error numbers of the kernel, as events report them.
pub use rustix::io::Errno;
pub use settings::{Settings, SetupError, TurnError};
pub use site::{Interface, InterfaceError, InterfaceState, KeptSockets, Site, SiteSocket};
pub use socket::{ParkedSocket, Socket};
