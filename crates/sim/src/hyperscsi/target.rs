//! What is served: one unit, as a LUN of iSCSI and as the device of a group.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use front::hyperscsi::{FrameSizes, Group, GroupDevice, Place, Server};
use hyperscsi::testing::record;
use hyperscsi::{Entropy, Level, OpaqueTarget, Profile, Retransmit};
use iscsi::negotiate::OperationalPreferences;

use crate::plan::{Plan, UNIT};
use crate::prng::Prng;
use crate::sabotage::Sabotage;
use crate::setup::Settings;

pub(super) const GROUP: &str = "ABC";
pub(super) const PASSWORD: &[u8] = b"open sesame";
/// The only device of the group.
pub(super) const DEVICE: u16 = 1;

/// Key and record are the same in all lives: they take their time to make.
static KEYS: OnceLock<(Arc<OpaqueTarget>, Vec<u8>)> = OnceLock::new();

fn keys() -> &'static (Arc<OpaqueTarget>, Vec<u8>) {
    KEYS.get_or_init(|| {
        let mut entropy = Entropy::new(&[7; 32]);
        let target = OpaqueTarget::new(&mut entropy);
        let name = Group::credential(GROUP, None);
        let record = record(&target, &name, PASSWORD, &mut entropy);
        (Arc::new(target), record.unwrap_or_default())
    })
}

/// The server and its groups, now and with the device away.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) server: Server,
    pub(super) whole: Arc<[Group]>,
    pub(super) empty: Arc<[Group]>,
    pub(super) place: Place,
    pub(super) sizes: FrameSizes,
}

impl Served {
    pub(super) fn draw(prng: &mut Prng) -> Self {
        let (keys, record) = keys();
        let place = Place::Interface("sim0".into());
        let device = GroupDevice {
            handle: DEVICE,
            name: "disk".to_owned(),
            unit: UNIT,
            level: Level::Crc,
            read_only: false,
            is_removable: false,
            peripheral_type: 0,
            designator: [9; 16],
        };
        let retransmit = match prng.chance(500) {
            true => Retransmit::Selective,
            false => Retransmit::Window,
        };
        let profile = match prng.chance(800) {
            true => Profile::WIRED,
            false => Profile::WIRELESS,
        };
        let group = |devices| {
            let group = Group {
                name: GROUP.to_owned(),
                user: None,
                place: place.clone(),
                profile,
                retransmit,
                is_open: false,
                record: record.clone(),
                devices,
            };
            Arc::from([group])
        };
        Self {
            server: Server {
                id: [5; 16],
                name: "sim".to_owned(),
                keys: Arc::clone(keys),
            },
            whole: group(vec![device]),
            empty: group(Vec::new()),
            place: place.clone(),
            sizes: FrameSizes {
                base: 1500,
                most: prng.pick(&[1500, 9000]).unwrap_or(1500),
            },
        }
    }
}

/// How the target is set up.
pub(super) fn settings(prng: &mut Prng, sabotage: Option<Sabotage>) -> Settings {
    Settings {
        plan: Plan::one(),
        cores: prng.size(1, 3),
        queue_depth: u32::try_from(prng.size(1, 8)).unwrap_or(8),
        preferences: offer(),
        abort_timeout: Duration::from_millis(prng.pick(&[50, 500, 2000]).unwrap_or(500)),
        fence_timeout: Duration::from_secs(3),
        login_timeout: Duration::from_secs(15),
        nop_interval: Duration::from_secs(5),
        nop_timeout: Duration::from_secs(5),
        pool_bytes: prng.pick(&[512 << 10, 4 << 20]).unwrap_or(4 << 20),
        is_busy: false,
        sabotage,
    }
}

/// What an initiator offers.
pub(super) fn offer() -> OperationalPreferences {
    OperationalPreferences {
        max_connections: 1,
        ..OperationalPreferences::default()
    }
}
