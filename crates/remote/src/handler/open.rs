//! The store.

use std::io;
use std::sync::Arc;

use store::{Backstore, Bottom, Capabilities, Connections, DeviceFacts, SharedStore};

use super::handle::HandlerHandle;
use super::options::{HandlerOpenError, HandlerOptions};
use super::shared::Shared;
use crate::device::handle::capabilities;

impl HandlerOptions {
    /// Connects, looks at the device and gives the store, which takes commands
    /// ([`IoRequest::Device`](store::IoRequest::Device)). Blocks.
    ///
    /// # Errors
    ///
    /// There is no handler, or it cannot be used.
    pub fn open(self) -> Result<Arc<dyn SharedStore>, HandlerOpenError> {
        let path = self.path.clone();
        match Shared::new(self) {
            Ok(shared) => Ok(Arc::new(HandlerStore(Arc::new(shared)))),
            Err(reason) => Err(HandlerOpenError {
                path,
                reason: Box::new(reason),
            }),
        }
    }
}

/// A handler as a store.
#[derive(Debug)]
struct HandlerStore(Arc<Shared>);

impl SharedStore for HandlerStore {
    fn inner(&self) -> &dyn SharedStore {
        &Bottom
    }

    fn identity(&self) -> Option<String> {
        let identity = self.0.link.identity.as_ref();
        identity.map(|identity| identity.best().to_owned())
    }

    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        Ok(Box::new(HandlerHandle::new(Arc::clone(&self.0))))
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn outage(&self) -> Option<String> {
        self.0.link.outage()
    }

    fn device(&self) -> Option<Arc<DeviceFacts>> {
        Some(self.0.known.facts())
    }

    fn connections(&self) -> Option<Connections> {
        Some(self.0.link.connections())
    }
}
