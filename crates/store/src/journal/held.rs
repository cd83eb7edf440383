//! What stands in for a store that is not served: it cannot be opened, is not what was served, or waits until an
//! administrator has decided about its log.

use std::io;

use crate::request::refuse;
use crate::{
    Backstore, Bottom, Capabilities, Durability, IoFailure, IoRequest, IoTag, Outlet, SharedStore,
    Submitted, Waker,
};

/// A store that is not touched: every command that needs the medium ends as NOT READY, MANUAL INTERVENTION REQUIRED.
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
    fn inner(&self) -> &dyn SharedStore {
        &Bottom
    }

    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        Ok(Box::new(Handle(self.0.clone())))
    }

    fn capabilities(&self) -> Capabilities {
        self.0.clone()
    }
}

#[derive(Debug)]
struct Handle(Capabilities);

impl Backstore for Handle {
    fn capabilities(&self) -> &Capabilities {
        &self.0
    }

    fn durability(&self) -> Durability {
        Durability::NOTHING
    }

    fn start(&mut self, _: &dyn Fn() -> Waker, outlet: &mut Outlet) {
        outlet.report_held_elsewhere(true);
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
                | IoRequest::Extents { .. }
                | IoRequest::Device(_),
            ) => Err(IoFailure::HeldElsewhere),
        })
    }

    fn refresh_size(&mut self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IoAnswer, Order};

    #[test]
    fn nothing_of_a_store_that_is_held_is_read_or_written() {
        let held = Held::new(Capabilities {
            reads_in_place: true,
            ..Capabilities::plain(1 << 20, 512)
        });
        assert_eq!(held.capabilities(), Capabilities::plain(1 << 20, 512));
        let (mut store, mut outlet) = (held.handle().unwrap(), Outlet::default());
        store.start(&|| Waker::new(|| {}), &mut outlet);
        let order = outlet.next_order();
        assert!(matches!(
            order,
            Some(Order::HeldElsewhere { is_held: true })
        ));
        assert_eq!(store.durability(), Durability::NOTHING);
        assert_eq!(store.refresh_size(), None);
        let mut ask = |request| match store.submit(IoTag(1), request, &mut outlet) {
            Submitted::Done(result) => result.map(|answer| matches!(answer, IoAnswer::Done)),
            Submitted::Taken => panic!("it has nothing to wait for"),
        };
        assert_eq!(ask(IoRequest::Flush), Ok(true));
        let (offset, range) = (0, 0..512);
        let data = memory::Payload::Heap(vec![0; 512]);
        for request in [
            IoRequest::Read {
                offset,
                len: 512,
                buffer: None,
            },
            IoRequest::Write {
                offset,
                data,
                durable: false,
            },
            IoRequest::Unmap {
                range: range.clone(),
            },
            IoRequest::WriteZeros {
                range: range.clone(),
                durable: false,
            },
            IoRequest::Extents {
                range,
                count_max: 1,
            },
        ] {
            assert_eq!(ask(request), Err(IoFailure::HeldElsewhere));
        }
    }
}
