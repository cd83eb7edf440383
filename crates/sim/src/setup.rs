//! How the simulated target is set up: the configuration that Tarn would have read, and the memory that
//! its machine would have had. Nothing here has to do with what happens afterwards.

use std::sync::Arc;
use std::time::Duration;

use engine::{TargetIndex, UnitIndex, VisibleLun};
use front::iscsi::{Coalescing, Front, FrontSettings, Holding, SessionSettings};
use front::testing::TestLine;
use front::{Asker, Authorization, ExportAsker, Policy, VisibleExport, VisibleTarget};
use front::{hyperscsi, nbd};
use iscsi::login::{TargetAuth, TargetPolicy};
use iscsi::negotiate::OperationalPreferences;
use iscsi::pdu::LoginStatus;
use iscsi::target::Budget;
use memory::{Buffer, Pool};
use scsi::{DeviceType, Identity, Limits, Owner, Profile};

use crate::disk::Disk;
use crate::host::Outside;
use crate::plan::{PORTAL_GROUP_TAG, Plan, target_name, target_of};
use crate::prng::Prng;
use crate::sabotage::Sabotage;

/// More connections than any world has.
pub const MANY: usize = 10_000;

/// What a session may hold of requests before their turn, in bytes: so little that it is often
/// reached.
const HELD_MAX_BYTES: usize = 8 * 1024;

/// How much work that no initiator sends or gets a turn begins, in bytes: one piece.
const TURN_BYTES: usize = 1;

/// How the target is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What it serves at first.
    pub plan: Plan,
    /// How many cores it has.
    pub cores: usize,
    /// Commands a session may have under way.
    pub queue_depth: u32,
    /// Limits of negotiation.
    pub preferences: OperationalPreferences,
    /// How long an abort waits for the store.
    pub abort_timeout: Duration,
    /// How long a command waits for its fence.
    pub fence_timeout: Duration,
    /// How many requests of a command may wait so, one after the other: a write of a full unit first asks what has
    /// space.
    pub fence_waits: u32,
    /// How long a login may take.
    pub login_timeout: Duration,
    /// A connection silent for so long is pinged.
    pub nop_interval: Duration,
    /// A ping unanswered for so long ends the connection.
    pub nop_timeout: Duration,
    /// How much memory each core has for data, in bytes.
    pub pool_bytes: usize,
    /// No core has time to lose more than one connection in a turn.
    pub is_busy: bool,
    /// Logins at a time.
    pub logins_max: usize,
    /// Something it does wrong, to see whether that is noticed.
    pub sabotage: Option<Sabotage>,
}

impl Settings {
    /// Of the engine of a core.
    pub const fn of_engine(&self, core: usize) -> engine::Settings {
        engine::Settings {
            core,
            cores: self.cores,
            queue_depth: self.queue_depth,
            abort_timeout: self.abort_timeout,
            fence_timeout: self.fence_timeout,
            turn_bytes: TURN_BYTES,
        }
    }

    /// Of the sessions of a core.
    pub fn of_sessions(&self) -> SessionSettings {
        SessionSettings {
            queue_depth: self.queue_depth,
            nop_interval: Some(self.nop_interval),
            nop_timeout: self.nop_timeout,
            discovery_lifetime: Duration::MAX,
            gap_timeout: self.login_timeout,
            coalescing: Coalescing::Adaptive,
        }
    }

    /// A front that lets everybody in.
    pub fn front(&self) -> Front<TestLine> {
        let own = FrontSettings {
            cores: self.cores,
            sessions_max: MANY,
            logins_max: self.logins_max,
            discovery_max: MANY,
            unproved_per_address_max: MANY,
            connections_max: MANY,
            holding: Holding {
                logins: Arc::new(Budget::new(usize::MAX)),
                unproved: Arc::new(Budget::new(HELD_MAX_BYTES)),
                proved: Arc::new(Budget::new(HELD_MAX_BYTES)),
                unproved_luns: Arc::new(Budget::new(usize::MAX)),
                proved_luns: Arc::new(Budget::new(usize::MAX)),
            },
            login_timeout: self.login_timeout,
        };
        let rules = Arc::new(self.rules());
        let policy: Arc<dyn Policy> = Arc::<Rules>::clone(&rules);
        let mut front = Front::new(&own, policy, Arc::default());
        rules.put_in_force(&mut front);
        front
    }

    /// Sessions of NBD of a core. Every client may have the export.
    pub fn nbd(&self, core: usize) -> nbd::Sessions<Outside> {
        let settings = nbd::FrontSettings {
            handshakes_max: MANY,
            per_address_max: MANY,
            timeout: self.login_timeout,
            memory: Arc::new(Budget::new(usize::MAX)),
        };
        let policy: Arc<dyn Policy> = Arc::new(self.rules());
        let front = (core == 0).then(|| nbd::Front::new(&settings, policy));
        let queue_depth = self.queue_depth;
        nbd::Sessions::new(nbd::SessionSettings { queue_depth }, front)
    }

    /// Sessions of HyperSCSI of a core, which serves no group yet.
    pub fn hyperscsi(&self, core: usize, prng: &Prng) -> hyperscsi::Sessions<Outside> {
        let mut prng = Prng::stream(prng.clone().next_u64(), "hyperscsi");
        let seed = std::array::from_fn(|_| prng.next_u64().to_be_bytes()[0]);
        let settings = hyperscsi::SessionSettings {
            core,
            cores: self.cores,
            queue_depth: self.queue_depth,
            sessions_max: MANY,
            per_host_max: MANY,
        };
        let places = (core == 0).then(hyperscsi::Places::default);
        hyperscsi::Sessions::new(settings, &seed, places)
    }

    /// The rules at first.
    pub fn rules(&self) -> Rules {
        Rules {
            preferences: self.preferences.clone(),
            plan: self.plan.clone(),
        }
    }

    /// The data buffers of a core, of which as many are taken as the settings do not give.
    pub fn pool(&self) -> (Pool, Vec<Buffer>) {
        let pool = smallest_pool();
        let ballast = fill(&pool, self.pool_bytes);
        pool.set_base();
        (pool, ballast)
    }
}

/// The rules of access.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Limits of negotiation.
    pub preferences: OperationalPreferences,
    /// Who sees what.
    pub plan: Plan,
}

impl Rules {
    /// The front asks these rules from now on.
    pub fn put_in_force(self: &Arc<Self>, front: &mut Front<TestLine>) {
        let policy: Arc<dyn Policy> = Arc::<Self>::clone(self);
        front.set_access(policy, self.plan.target_plans());
    }
}

impl Policy for Rules {
    fn authorize(
        &self,
        asker: &Asker<'_>,
        name: Option<&str>,
    ) -> Result<Authorization, LoginStatus> {
        let known = name.and_then(target_of);
        let target = known.ok_or(LoginStatus::NotFound)?;
        self.luns(asker, target)?;
        Ok(Authorization {
            target: Some(target),
            policy: TargetPolicy {
                auth: TargetAuth::None,
                preferences: self.preferences.clone(),
                portal_group_tag: PORTAL_GROUP_TAG,
                target_alias: None,
            },
        })
    }

    fn luns(&self, asker: &Asker<'_>, target: TargetIndex) -> Result<Vec<VisibleLun>, LoginStatus> {
        let luns = self.plan.luns(asker.initiator_name, target);
        luns.ok_or(LoginStatus::AuthorizationFailure)
    }

    fn may_discover(&self, _: &Asker<'_>) -> bool {
        false
    }

    fn targets(&self, _: &Asker<'_>, only: Option<TargetIndex>) -> Vec<VisibleTarget> {
        let all = self.plan.target_indices();
        let wanted = all.filter(|target| only.is_none_or(|only| only == *target));
        let target = |target| VisibleTarget {
            name: target_name(target),
            addresses: Vec::new(),
        };
        wanted.map(target).collect()
    }

    fn exports(&self, _: &ExportAsker<'_>) -> Vec<VisibleExport> {
        self.plan.exports.clone()
    }
}

/// A unit as every core sees it first. `kept` is its state as it was kept before.
pub fn owner(plan: &Plan, unit: UnitIndex, disk: &Disk, kept: Option<&[u8]>) -> Owner {
    let [.., number] = (unit.0 + 1).to_be_bytes();
    let identity = Identity {
        vendor: "TARN".to_owned(),
        product: "SIMULATED".to_owned(),
        revision: "1".to_owned(),
        serial: format!("sim{number}"),
        naa: vec![0x30, 0, 0, 0, 0, 0, 0, number],
        eui: None,
        target_ports: plan.ports_of(unit),
        task_management: [0xf8, 0],
        removable: plan.removable[unit.as_usize()],
    };
    let profile = Profile {
        device_type: DeviceType::Disk,
        foreign: None,
        has_vendor_commands: false,
        identity,
        limits: Limits::default(),
        capabilities: disk.capabilities(),
        keeps_state: true,
    };
    #[expect(
        clippy::expect_used,
        reason = "what was kept is what this very program gave; the world damages no state"
    )]
    Owner::new(profile, kept).expect("a kept state that is whole")
}

/// The smallest pool there is.
#[expect(
    clippy::expect_used,
    reason = "a simulation without memory has nothing to tell"
)]
pub fn smallest_pool() -> Pool {
    Pool::new(0).expect("address space for a pool")
}

/// Takes all room of a pool but so much.
fn fill(pool: &Pool, left: usize) -> Vec<Buffer> {
    let mut ballast = Vec::new();
    let mut piece = memory::BUFFER_BYTES_MAX / 2;
    while pool.free_bytes() > left && piece >= memory::PIECE_BYTES {
        if pool.free_bytes() - piece >= left
            && let Ok(buffer) = pool.allocate(piece)
        {
            ballast.push(buffer);
        } else {
            piece /= 2;
        }
    }
    ballast
}
