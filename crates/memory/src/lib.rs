//! The audited memory of Tarn: the only safe way to bytes that the kernel, another core or a
//! peer's I/O may also touch.
//!
//! * [`Pool`] and [`Buffer`]: memory of one core for data in flight, bounded, handed out whole.
//! * [`Mapping`]: memory shared by all cores, only ever touched by raw copies.
//! * [`Payload`]: data of one command, wherever it lies; [`Message`]: what one send gathers,
//!   [`Piece`]: a stretch of it.
//! * [`Loan`]: memory that a library outside works on; it is leaked if the library never returns it.
//!
//! Mappings are the kernel's, and there are none but on Linux: elsewhere the pool comes from the
//! allocator, and no [`MappedRange`] exists. So whatever only works on buffers compiles everywhere.
//!
//! This crate knows nothing of SCSI, iSCSI, files or rings. All addresses it gives out stay valid
//! for as long as the owning value lives, so the code that lends memory to the kernel keeps the value
//! in a table until the kernel is done (see crate `reactor`).
#![warn(missing_docs)]

mod loan;
#[cfg(target_os = "linux")]
mod mapping;
mod message;
mod payload;
mod pool;
mod region;
mod shares;
mod trim;
#[cfg(not(target_os = "linux"))]
mod unmapped;

pub use loan::{Lendable, Loan, leaked_bytes};
#[cfg(target_os = "linux")]
pub use mapping::{CoreMapping, MappedRange, Mapping};
pub use message::{Message, PayloadIndex, Piece};
pub use payload::Payload;
pub use pool::{BUFFER_BYTES_MAX, Buffer, Crowd, CutBuffer, PIECE_BYTES, Party, Pool, PoolFull};
#[cfg(target_os = "linux")]
pub use region::HUGE_PAGE_BYTES;
pub use shares::{Held, Need, NoRoom, Shares};
pub use trim::give_back;
#[cfg(not(target_os = "linux"))]
pub use unmapped::MappedRange;
