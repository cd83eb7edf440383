//! What a unit lost of what it had answered, by the initiators and nexuses of SCSI.

use std::sync::Arc;
use std::time::Duration;

use scsi::reservation::device_of;
use scsi::{NexusId, PortName, Principal};
use store::Party;

/// An initiator, whichever port and path it comes by: its principal, and the device of its ports.
pub type Initiator = Arc<(Principal, Box<[u8]>)>;

/// The losses of one unit, shared by the cores that have it.
pub type Losses = store::Losses<Initiator, NexusId>;

/// A nexus that does something.
pub(crate) fn party(
    nexus: NexusId,
    name: &PortName,
    now: Duration,
) -> Party<NexusId, impl Fn() -> Initiator> {
    Party {
        session: nexus,
        initiator: || Arc::new((name.principal.clone(), device_of(&name.transport_id).into())),
        now,
    }
}
