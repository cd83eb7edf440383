//! The connections of first looks: one for each cluster and user, for as long as a start or a change looks at images.
//!
//! They are not those that serve: a look gives up after some seconds, and what serves never does. At the start they
//! end before the process is confined, which wants to be alone; a change cannot wait for a cluster that hangs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rbd::{CallError, Cluster, ClusterOptions, Library, Patience};

use crate::attendants::spawn;
use crate::lock;

/// For each step of a look. A change gives up later (`daemon::attempts`).
const LOOK_MAX: Duration = Duration::from_secs(4);

/// Connections that several looks share, until the last clone of this is dropped.
#[derive(Clone, Debug, Default)]
pub struct Looks(Arc<Connections>);

/// Others that want the same connection wait while it is made.
type Slot = Arc<Mutex<Option<Arc<Cluster>>>>;

#[derive(Debug, Default)]
struct Connections {
    slots: Mutex<HashMap<ClusterOptions, Slot>>,
    /// They end on a thread of their own.
    is_ended_apart: bool,
}

impl Looks {
    /// As the default, but who drops it does not wait for the end of the connections.
    pub fn ended_apart() -> Self {
        Self(Arc::new(Connections {
            is_ended_apart: true,
            slots: Mutex::default(),
        }))
    }

    /// Connects, or gives the connection that there is. Blocks.
    pub(super) fn connect(
        &self,
        library: Library,
        options: &ClusterOptions,
    ) -> Result<Arc<Cluster>, CallError> {
        let slot = Arc::clone(lock(&self.0.slots).entry(options.clone()).or_default());
        let mut held = lock(&slot);
        if let Some(cluster) = held.as_ref() {
            return Ok(Arc::clone(cluster));
        }
        let cluster = Cluster::connect(library, options, Patience::Within(LOOK_MAX))?;
        let cluster = Arc::new(cluster);
        *held = Some(Arc::clone(&cluster));
        Ok(cluster)
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        let slots = std::mem::take(&mut *lock(&self.slots));
        if self.is_ended_apart && !slots.is_empty() {
            // Without a thread what it was to drop is dropped here.
            let _thread = spawn("tarn-rbd", move || drop(slots));
        }
    }
}
