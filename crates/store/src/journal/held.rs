//! A store that is not served until an administrator has decided about its log.

use std::io;

use crate::request::refuse;
use crate::{Backstore, Capabilities, IoFailure, IoRequest, IoTag, Outlet, SharedStore, Submitted};

/// A store that is not touched: every request ends as not ready.
#[derive(Debug)]
pub struct Held(Capabilities);

impl Held {
    /// In the place of a store that is this.
    pub const fn new(capabilities: Capabilities) -> Self {
        Self(Capabilities {
            reads_in_place: false,
            ..capabilities
        })
    }
}

impl SharedStore for Held {
    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        Ok(Box::new(Handle(self.0.clone())))
    }

    fn capabilities(&self) -> Capabilities {
        self.0.clone()
    }

    fn probe_size(&self) -> io::Result<()> {
        Ok(())
    }

    fn is_flush_latched(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct Handle(Capabilities);

impl Backstore for Handle {
    fn capabilities(&self) -> &Capabilities {
        &self.0
    }

    fn submit(&mut self, _: IoTag, request: IoRequest, _: &mut Outlet) -> Submitted {
        let failure = refuse(&self.0, &request);
        Submitted::Done(match (failure, request) {
            (Some(failure), _) => Err(failure),
            // Nothing was written that could be flushed.
            (None, IoRequest::Flush) => Ok(crate::IoAnswer::Done),
            (
                None,
                IoRequest::Read { .. }
                | IoRequest::Write { .. }
                | IoRequest::Unmap { .. }
                | IoRequest::WriteZeros { .. }
                | IoRequest::CompareAndWrite { .. }
                | IoRequest::Extents { .. },
            ) => Err(IoFailure::NotReady),
        })
    }

    fn refresh_size(&mut self) -> Option<u64> {
        None
    }
}
