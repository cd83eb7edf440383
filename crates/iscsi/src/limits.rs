//! Every bound this crate puts on a peer, in one place.
//!
//! Relations between limits are checked at compile time. What happens at a limit is written at
//! the limit.

/// Longest data segment a 24-bit length field can announce, in bytes.
pub const DATA_SEGMENT_MAX_BYTES: u32 = (1 << 24) - 1;

/// Longest chain of additional header segments: the length field counts 4-byte words in 8 bits.
pub const AHS_MAX_BYTES: usize = 255 * 4;

const _: () = assert!(DATA_SEGMENT_MAX_BYTES == 0x00ff_ffff);
