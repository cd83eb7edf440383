//! What every store asks of a request before it looks closer.

use std::ops::Range;

use crate::{Capabilities, IoFailure, IoRequest};

/// The answer to a request that the store cannot take, whatever kind of store it is.
pub(crate) fn refuse(capabilities: &Capabilities, request: &IoRequest) -> Option<IoFailure> {
    let (range, changes) = match request {
        IoRequest::Read { offset, len, .. } => (span(*offset, *len), false),
        IoRequest::Write { offset, data, .. } => (span(*offset, data.len()), true),
        IoRequest::CompareAndWrite { offset, data, .. } => (span(*offset, data.len() / 2), true),
        IoRequest::Flush => (0..0, false),
        IoRequest::Unmap { range } | IoRequest::WriteZeros { range, .. } => (range.clone(), true),
        IoRequest::Extents { range, .. } => (range.clone(), false),
    };
    if changes && capabilities.read_only {
        return Some(IoFailure::ReadOnly);
    }
    // The caller checks against the size it knows; the store may have shrunk since.
    (range.end > capabilities.size_bytes).then_some(IoFailure::Truncated {
        offset: capabilities.size_bytes,
    })
}

fn span(offset: u64, len: usize) -> Range<u64> {
    offset..offset.saturating_add(len as u64)
}
