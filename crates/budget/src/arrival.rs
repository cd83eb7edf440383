//! What the initiator sends, as the reactor would bring it.

use std::rc::Rc;

use anyhow::Result;
use iscsi::framing::Pdu;
use memory::{Buffer, Pool};

/// One receive.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// Bytes in a chunk.
    Chunk(Rc<Buffer>),
    /// So many bytes, straight in the place they were asked for. The kernel would have written
    /// them, so nobody does it here: what they are makes no difference to the count.
    Exact(usize),
}

/// What arrives before the target next sends what became ready.
pub(crate) type Turn = Vec<Arrival>;

/// These PDUs in one chunk.
pub(crate) fn chunk(pool: &Pool, pdus: &[Pdu], has_digests: bool) -> Result<Arrival> {
    let bytes: Vec<u8> = pdus
        .iter()
        .flat_map(|pdu| pdu.to_bytes(has_digests, has_digests))
        .collect();
    let buffer = pool.allocate(bytes.len());
    let mut buffer = buffer.map_err(|_| anyhow::anyhow!("no room for the commands"))?;
    buffer.copy_from_slice(&bytes);
    Ok(Arrival::Chunk(Rc::new(buffer)))
}
