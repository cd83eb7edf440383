//! What a data plane is given: its settings, and units. Checked before it comes here; the plane itself
//! looks nothing up.

use std::sync::Arc;
use std::time::Duration;

use engine::{Losses, SavedState, StateAuthority};
pub use engine::{TargetIndex, UnitIndex};
pub use front::hyperscsi::{Group, GroupDevice, Place, Server};
pub use front::{PortPlan, TargetPlan};
use reactor::{Listener, Site};
use store::SharedStore;

use front::Policy;
use front::iscsi::{Coalescing, Holding, SessionSettings};

/// An address to listen on. An index names one listener for as long as the plane runs.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PortalIndex(pub u32);

/// A logical unit and its store.
#[derive(Debug)]
pub struct UnitPlan {
    /// For logs.
    pub name: String,
    /// What it reports to initiators.
    pub profile: scsi::Profile,
    /// Where the blocks are.
    pub store: Arc<dyn SharedStore>,
    /// What [`StateAuthority::load`] gave.
    pub restored: Restored,
    /// Where state that survives is kept.
    pub authority: Arc<dyn StateAuthority>,
    /// Whose writes no flush has covered: empty, and one for all cores.
    pub losses: Arc<Losses>,
}

/// What of a unit has survived the last restart.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Restored {
    /// Nothing was to.
    Nothing,
    /// This was saved.
    State(SavedState),
    /// Something was saved and cannot be read: reservations are lost.
    Damaged,
}

/// Another store for the medium of a unit.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The unit.
    pub unit: UnitIndex,
    /// For messages.
    pub name: String,
    /// What the unit reports to initiators then.
    pub profile: Arc<scsi::Profile>,
    /// Where the blocks are.
    pub store: Arc<dyn SharedStore>,
}

/// The name and profile of a unit, where they change while it is served.
#[derive(Clone, Debug)]
pub struct UnitDescription {
    /// The unit.
    pub unit: UnitIndex,
    /// For logs.
    pub name: Arc<str>,
    /// What it reports to initiators.
    pub profile: Arc<scsi::Profile>,
}

/// Rules, targets and portals, as they are from now on.
#[derive(Debug)]
pub struct Access {
    /// The rules.
    pub policy: Arc<dyn Policy>,
    /// All targets there are.
    pub targets: Vec<(TargetIndex, TargetPlan)>,
    /// New portals.
    pub open: Vec<Listener>,
    /// New places for clients of NBD, each with its name in the rules. They have the indices behind those.
    pub open_nbd: Vec<(Listener, Arc<str>)>,
    /// Portals to close.
    pub close: Vec<PortalIndex>,
}

/// What HyperSCSI serves from now on, as a whole: [`crate::Handle::set_hyperscsi`].
#[derive(Debug)]
pub struct Hyperscsi {
    /// What its clients see of the server. With other keys or another number, logins under way fail; sessions stay.
    pub server: Server,
    /// All groups. What is at a place without a group is over.
    pub groups: Vec<Group>,
    /// The sockets of places that have none yet, with one for each core: [`Settings::cores`]. Those of interfaces need
    /// CAP_NET_RAW while they are made, so before the process gives up its rights.
    pub open: Vec<(Place, Site)>,
}

/// Sizes and times of the plane. All are limits on what peers can make it do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many cores serve; each is one thread.
    pub cores: usize,
    /// Memory for data in flight, per core, in bytes.
    pub pool_bytes: usize,
    /// How long a core looks for new work before it sleeps.
    pub busy_poll: Duration,
    /// Whether answers wait for further ones.
    pub coalescing: Coalescing,
    /// Sessions in all.
    pub sessions_max: usize,
    /// Connections that have not finished their login. One more ends the oldest of the address that
    /// has the most.
    pub logins_max: usize,
    /// Discovery sessions. One more ends the oldest of the address that has the most.
    pub discovery_max: usize,
    /// How long a discovery session may last.
    pub discovery_lifetime: Duration,
    /// Connections in login and discovery sessions of one address. One more ends its oldest.
    pub unproved_per_address_max: usize,
    /// Connections in all; the descriptors beyond are for stores and the administration.
    pub connections_max: usize,
    /// Memory that requests of peers may use on all cores while they wait.
    pub holding: Holding,
    /// How long a CmdSN may be missing that later requests wait for.
    pub gap_timeout: Duration,
    /// From the first byte to full-feature phase.
    pub login_timeout: Duration,
    /// Commands of one session under way.
    pub queue_depth: u32,
    /// Silence after which an initiator is pinged.
    pub nop_interval: Option<Duration>,
    /// How long a ping may stay unanswered.
    pub nop_timeout: Duration,
    /// How long an abort, a reset or the end of a session waits for the store.
    pub abort_timeout: Duration,
    /// How long a command waits for others on the same blocks to end, when it must be atomic.
    pub fence_timeout: Duration,
    /// A core that takes no turn for so long ends the process.
    pub core_stall_limit: Duration,
    /// How long initiators get to log out when the plane stops.
    pub stop_timeout: Duration,
    /// Commands that take longer are reported; `None`: none are. Only the first value: see
    /// [`crate::Handle::set_slow_command`].
    pub slow_command: Option<Duration>,
}

impl Settings {
    /// What the engine of a core has to know of them while it serves.
    pub(crate) const fn of_engine(&self) -> engine::Limits {
        engine::Limits {
            queue_depth: self.queue_depth,
            abort_timeout: self.abort_timeout,
            fence_timeout: self.fence_timeout,
        }
    }

    /// What those of sessions are.
    pub(crate) fn of_sessions(&self) -> SessionSettings {
        SessionSettings {
            queue_depth: self.queue_depth,
            nop_interval: self.nop_interval,
            nop_timeout: self.nop_timeout,
            discovery_lifetime: self.discovery_lifetime,
            gap_timeout: self.gap_timeout,
            coalescing: self.coalescing,
        }
    }
}
