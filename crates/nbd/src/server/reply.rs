//! The headers of what is answered.

use super::ALLOCATION_CONTEXT;
use crate::wire::{
    CACHE_LOST_MESSAGE, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, ServerError, chunk,
};

/// The length of a simple reply, in bytes. The data of a read follows it.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// The length of the header of a chunk, in bytes.
pub const CHUNK_HEADER_BYTES: usize = 20;
/// The length of the header of a chunk of data with the offset, in bytes. The data follows it.
pub const DATA_CHUNK_BYTES: usize = CHUNK_HEADER_BYTES + 8;
/// The length of an error chunk, in bytes.
pub const ERROR_CHUNK_BYTES: usize = CHUNK_HEADER_BYTES + 6;

/// In the status of an extent: it is a hole, and reads zeros.
const HOLE_AND_ZERO: u32 = 0b11;

/// Writes one array behind another.
macro_rules! join {
    ($($part:expr),* $(,)?) => {{
        let mut all = [0; _];
        let mut rest: &mut [u8] = &mut all;
        $(
            let part = $part.to_be_bytes();
            if let Some((place, behind)) = std::mem::take(&mut rest).split_at_mut_checked(part.len()) {
                place.copy_from_slice(&part);
                rest = behind;
            }
        )*
        debug_assert!(rest.is_empty(), "a reply of another length");
        all
    }};
}

/// The answer to a request; the data of a read follows it where there is no error.
#[inline]
#[must_use]
pub fn simple_reply(cookie: u64, error: Option<ServerError>) -> [u8; SIMPLE_REPLY_BYTES] {
    let error = error.map_or(0, ServerError::number);
    join!(SIMPLE_REPLY_MAGIC, error, cookie)
}

const fn done(is_last: bool) -> u16 {
    if is_last { chunk::DONE } else { 0 }
}

/// A chunk of data that is to follow, so many bytes from this offset of the export on.
#[inline]
#[must_use]
pub fn data_chunk(cookie: u64, is_last: bool, offset: u64, length: u32) -> [u8; DATA_CHUNK_BYTES] {
    let length = length.saturating_add(8);
    join!(
        STRUCTURED_REPLY_MAGIC,
        done(is_last),
        chunk::OFFSET_DATA,
        cookie,
        length,
        offset
    )
}

/// The answer to a request that has no data to give.
#[must_use]
pub fn none_chunk(cookie: u64) -> [u8; CHUNK_HEADER_BYTES] {
    join!(
        STRUCTURED_REPLY_MAGIC,
        chunk::DONE,
        chunk::NONE,
        cookie,
        0_u32
    )
}

/// The last chunk of a request that failed.
#[must_use]
pub fn error_chunk(cookie: u64, error: ServerError) -> [u8; ERROR_CHUNK_BYTES] {
    join!(
        STRUCTURED_REPLY_MAGIC,
        chunk::DONE,
        chunk::ERROR,
        cookie,
        6_u32,
        error.number(),
        0_u16
    )
}

/// The last chunk of a request that failed with [`ServerError::CACHE_LOST`].
#[must_use]
pub fn cache_lost_chunk(cookie: u64) -> [u8; ERROR_CHUNK_BYTES + CACHE_LOST_MESSAGE.len()] {
    join!(
        STRUCTURED_REPLY_MAGIC,
        chunk::DONE,
        chunk::ERROR,
        cookie,
        6 + 16_u32,
        ServerError::CACHE_LOST.number(),
        16_u16,
        u128::from_be_bytes(*CACHE_LOST_MESSAGE)
    )
}

/// The answer to a block status: extents in their order, each with its length and whether it is a hole.
#[must_use]
pub fn block_status_chunk(cookie: u64, extents: &[(u32, bool)]) -> Vec<u8> {
    let length = extents.len().saturating_mul(8).saturating_add(4);
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    let header: [u8; CHUNK_HEADER_BYTES] = join!(
        STRUCTURED_REPLY_MAGIC,
        chunk::DONE,
        chunk::BLOCK_STATUS,
        cookie,
        length
    );
    let mut reply = header.to_vec();
    reply.extend_from_slice(&ALLOCATION_CONTEXT.to_be_bytes());
    for &(length, is_hole) in extents {
        let status = if is_hole { HOLE_AND_ZERO } else { 0 };
        reply.extend_from_slice(&length.to_be_bytes());
        reply.extend_from_slice(&status.to_be_bytes());
    }
    reply
}
