//! A data plane with disks in memory, and groups of them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyperscsi::{Level, OpaqueTarget, Profile, Retransmit};
use iscsi::login::{TargetAuth, TargetPolicy};
use iscsi::negotiate::OperationalPreferences;
use iscsi::pdu::LoginStatus;
use plane::{
    Access, Asker, Authorization, Coalescing, DataPlane, Event, EventSink, Group, GroupDevice,
    Holding, Hyperscsi, HyperscsiCounts, Place, Policy, PortPlan, Restored, Save, SaveError,
    SavedState, Server, Settings, StateAuthority, TargetIndex, TargetPlan, UnitIndex, UnitPlan,
    Version, VisibleLun, VisibleTarget,
};
use reactor::{Listener, Site};
use scsi::{DeviceType, Identity, Limits, TargetPort};
use store::{MemoryDisk, SharedStore};

use crate::PATIENCE;
use crate::client::entropy;

pub(crate) const TARGET: &str = "iqn.2026-11.example:disks";
pub(crate) const BLOCK_BYTES: usize = 512;

#[derive(Debug)]
struct Nowhere;

impl StateAuthority for Nowhere {
    fn load(&self) -> io::Result<Option<SavedState>> {
        Ok(None)
    }

    fn save(&self, _: &Save) -> Result<Version, SaveError> {
        Ok(Version(1))
    }
}

#[derive(Debug)]
struct NoEvents;

impl EventSink for NoEvents {
    fn emit(&self, _: &Event<'_>) {}
}

/// Gives everybody the first unit as LUN 0.
#[derive(Debug)]
struct Everybody;

impl Policy for Everybody {
    fn authorize(&self, _: &Asker<'_>, name: Option<&str>) -> Result<Authorization, LoginStatus> {
        Ok(Authorization {
            target: name.map(|_| TargetIndex(0)),
            policy: TargetPolicy {
                auth: TargetAuth::None,
                preferences: OperationalPreferences::default(),
                portal_group_tag: 1,
                target_alias: None,
            },
        })
    }

    fn luns(&self, _: &Asker<'_>, _: TargetIndex) -> Result<Vec<VisibleLun>, LoginStatus> {
        Ok(vec![VisibleLun {
            lun: 0,
            unit: UnitIndex(0),
            read_only: false,
        }])
    }

    fn may_discover(&self, _: &Asker<'_>) -> bool {
        true
    }

    fn targets(&self, _: &Asker<'_>, _: Option<TargetIndex>) -> Vec<VisibleTarget> {
        vec![VisibleTarget {
            name: TARGET.to_owned(),
            addresses: Vec::new(),
        }]
    }
}

fn unit(name: &str, store: Arc<dyn SharedStore>) -> UnitPlan {
    let identity = Identity {
        vendor: "TARN".to_owned(),
        product: name.to_owned(),
        revision: String::new(),
        serial: name.to_owned(),
        naa: vec![0x30; 8],
        eui: None,
        target_ports: vec![TargetPort {
            relative_id: 1,
            group: 1,
            scsi_name: format!("{TARGET},t,0x0001"),
            device_name: TARGET.to_owned(),
            protocol_identifier: 5,
            protocol_version: 0x0960,
        }],
        task_management: [0; 2],
        removable: false,
    };
    UnitPlan {
        name: name.to_owned(),
        profile: scsi::Profile {
            device_type: DeviceType::Disk,
            identity,
            limits: Limits::default(),
            capabilities: store.capabilities(),
            keeps_state: false,
        },
        store,
        restored: Restored::Nothing,
        authority: Arc::new(Nowhere),
        losses: Arc::default(),
    }
}

/// The keys of a server, which stay over a restart.
pub(crate) struct Keys(pub(crate) Server);

impl Keys {
    pub(crate) fn new() -> Self {
        Self(Server {
            id: entropy().bytes(),
            name: "tarn".to_owned(),
            keys: Arc::new(OpaqueTarget::new(&mut entropy())),
        })
    }

    /// A group with the devices 1 and 2, of the units 0 and 1.
    pub(crate) fn group(&self, name: &str, password: &str, place: &Place) -> Group {
        let credential = Group::credential(name, None);
        let record = self
            .0
            .keys
            .record(&credential, password.as_bytes(), &mut entropy());
        Group {
            name: name.to_owned(),
            user: None,
            place: place.clone(),
            profile: Profile::WIRED,
            retransmit: Retransmit::Selective,
            is_open: password.is_empty(),
            record: record.unwrap(),
            devices: vec![device(1, 0, Level::Crc), device(2, 1, Level::Encrypt)],
        }
    }
}

pub(crate) fn device(handle: u16, unit: u32, level: Level) -> GroupDevice {
    GroupDevice {
        handle,
        name: format!("disk{handle}"),
        unit: UnitIndex(unit),
        level,
        read_only: false,
        is_removable: false,
        peripheral_type: 0,
        designator: [7; 16],
    }
}

pub(crate) fn memory_disk() -> Arc<dyn SharedStore> {
    Arc::new(MemoryDisk::new(4 << 20, 512, false, true).unwrap())
}

/// Two cores with two disks of 4 MiB.
pub(crate) fn start() -> DataPlane {
    start_with(memory_disk(), 2 * PATIENCE)
}

/// The same with another first disk. An abort waits so long for a store.
pub(crate) fn start_with(first: Arc<dyn SharedStore>, abort_timeout: Duration) -> DataPlane {
    let settings = Settings {
        cores: 2,
        pool_bytes: 32 << 20,
        busy_poll: Duration::ZERO,
        coalescing: Coalescing::Adaptive,
        sessions_max: 64,
        logins_max: 8,
        discovery_max: 8,
        discovery_lifetime: PATIENCE,
        unproved_per_address_max: 8,
        connections_max: 64,
        holding: Holding::new(1 << 20),
        gap_timeout: PATIENCE,
        login_timeout: PATIENCE,
        queue_depth: 32,
        nop_interval: None,
        nop_timeout: PATIENCE,
        abort_timeout,
        fence_timeout: PATIENCE,
        core_stall_limit: 3 * PATIENCE,
        stop_timeout: Duration::from_secs(1),
        slow_command: None,
    };
    let plane = DataPlane::start(settings, Arc::new(Everybody), Arc::new(NoEvents)).unwrap();
    let units = vec![unit("first", first), unit("second", memory_disk())];
    plane.handle().add_units(units).unwrap();
    plane
}

/// Serves these groups, with sockets for a new place.
pub(crate) fn serve(plane: &DataPlane, keys: &Keys, groups: Vec<Group>, open: Vec<(Place, Site)>) {
    let mut done = plane.handle().set_hyperscsi(Hyperscsi {
        server: keys.0.clone(),
        groups,
        open,
    });
    assert!(done.wait_until(Instant::now() + PATIENCE));
}

/// UDP sockets for both cores.
pub(crate) fn udp(address: SocketAddr) -> (SocketAddr, Place, Site) {
    let site = Site::udp(address, 2, &[]).unwrap();
    let address = site.address().unwrap();
    (address, Place::Udp(address), site)
}

/// A portal for iSCSI.
pub(crate) fn listen(plane: &DataPlane) -> SocketAddr {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), 8).unwrap();
    let address = listener.local_address();
    let port = PortPlan {
        portal_group_tag: 1,
        relative_id: 1,
    };
    let target = TargetPlan {
        name: TARGET.to_owned(),
        ports: vec![port],
        cold_reset: false,
    };
    let (_, confirmed) = plane.handle().set_access(Access {
        policy: Arc::new(Everybody),
        targets: vec![(TargetIndex(0), target)],
        open: vec![listener],
        open_nbd: Vec::new(),
        close: Vec::new(),
    });
    assert_eq!(confirmed, Ok(()));
    address
}

/// What both cores have counted together.
pub(crate) fn total(plane: &DataPlane, of: impl Fn(&HyperscsiCounts) -> u64) -> u64 {
    let reports = plane.handle().hyperscsi().unwrap();
    reports.iter().map(|report| of(&report.counts)).sum()
}
