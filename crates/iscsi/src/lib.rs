//! iSCSI (RFC 7143) as sans-I/O state machines, target and initiator role.
//!
//! The crate owns everything between a byte stream and a SCSI task: PDU layout, digests, text
//! negotiation, authentication, login, discovery and the full-feature phase. It knows no socket,
//! thread, clock or random source: bytes, time (`Duration` since start) and random numbers come
//! in as arguments, bytes and events go out.
//!
//! | Module | Owns |
//! | --- | --- |
//! | [`pdu`] | the wire: header views, code tables, additional header segments |
//! | [`digest`] | CRC32C of headers and data |
//! | [`serial`] | sequence numbers that wrap |
//! | [`text`] | `key=value` segments |
//! | [`names`] | iSCSI names |
//! | [`negotiate`] | the table of keys, and how two sides agree |
//! | [`chap`] | authentication |
//! | [`discovery`] | text exchanges and SendTargets |
//! | [`excerpt`] | the beginning of each PDU of a connection, without secrets, for traces |
//! | [`framing`] | PDUs out of a byte stream, where speed does not matter |
//! | [`login`] | login, both roles |
//! | [`target`] | the target in full-feature phase |
//! | [`initiator`] | the initiator in full-feature phase |
//! | [`fuzz`] | entry points for fuzzing |
//! | [`limits`] | every bound the crate puts on a peer |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod chap;
pub mod digest;
pub mod discovery;
pub mod excerpt;
pub mod framing;
pub mod fuzz;
pub mod initiator;
pub mod limits;
pub mod login;
pub mod names;
pub mod negotiate;
pub mod pdu;
pub mod serial;
pub mod target;
pub mod text;

pub use serial::SerialNumber;
