//! What a device is found to be when it is opened.

use std::sync::Arc;

use store::SharedStore;

use super::attendant;
use super::node::Node;
use super::options::{ScsiFailure, ScsiOpenError, ScsiOptions};
use crate::device::handle::DeviceStore;
use crate::device::shared::Shared;
use crate::scsi::link::Whose;

impl ScsiOptions {
    /// Looks at the device and gives the store, which takes commands
    /// ([`IoRequest::Device`](store::IoRequest::Device)). Blocks.
    ///
    /// # Errors
    ///
    /// There is no such device, or it cannot be used.
    pub fn open(self) -> Result<Arc<dyn SharedStore>, ScsiOpenError> {
        let path = self.path.clone();
        match self.open_inside() {
            Ok(store) => Ok(Arc::new(store)),
            Err(reason) => Err(ScsiOpenError {
                path,
                reason: Box::new(reason),
            }),
        }
    }

    fn open_inside(self) -> Result<DeviceStore, ScsiFailure> {
        let node = Node::open(&self.path)?;
        let found = node.look().map_err(ScsiFailure::Silent)?;
        let found = found.ok_or(ScsiFailure::NoInquiry)?;
        // By whatever link it was named.
        let device = std::fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let device = device.display().to_string();
        let whose = Whose {
            kind: "this machine",
            what: "device at this path",
            server: "this machine".to_owned(),
            store: format!("scsi:{device}"),
            device,
        };
        // A process that is confined next may not open it again.
        let begin = Box::new(move |shared: &Arc<Shared>| attendant::begin(shared, self, node));
        Ok(DeviceStore::new(Shared::of_threads(whose, found, begin)?))
    }
}
