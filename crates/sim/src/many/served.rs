//! What is served: units, by targets, exports and a group of devices, and what an administrator makes of that.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use engine::{TargetIndex, UnitIndex, VisibleLun};
use front::VisibleExport;
use front::hyperscsi::{FrameSizes, Group, GroupDevice, Place, Server};
use hyperscsi::testing::record;
use hyperscsi::{Entropy, Level, OpaqueTarget, Profile, Retransmit};
use iscsi::negotiate::OperationalPreferences;

use super::seat::Seat;
use crate::plan::{Plan, export_name, initiator_name, read_only};
use crate::prng::Prng;
use crate::sabotage::Sabotage;
use crate::setup::{MANY, Settings};

pub(super) const GROUP: &str = "ABC";
pub(super) const PASSWORD: &[u8] = b"open sesame";
/// The highest LUN that targets show.
const LUN_MAX: u16 = 5;
/// Of those that show so many that a change of them takes more than one turn.
const LUN_MAX_OF_MANY: u16 = 60;

/// What cores have for data. The smallest is short of memory most of the time.
const POOL_BYTES: [usize; 5] = [32 << 10, 32 << 10, 64 << 10, 2560 << 10, 6 << 20];

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

/// The server of HyperSCSI and its group.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) server: Server,
    group: Group,
    pub(super) sizes: FrameSizes,
}

impl Served {
    pub(super) fn draw(prng: &mut Prng) -> Self {
        let (keys, record) = keys();
        let retransmit = match prng.chance(500) {
            true => Retransmit::Selective,
            false => Retransmit::Window,
        };
        let profile = match prng.chance(800) {
            true => Profile::WIRED,
            false => Profile::WIRELESS,
        };
        Self {
            server: Server {
                id: [5; 16],
                name: "sim".to_owned(),
                keys: Arc::clone(keys),
            },
            group: Group {
                name: GROUP.to_owned(),
                user: None,
                place: Place::Interface("sim0".into()),
                profile,
                retransmit,
                is_open: false,
                record: record.clone(),
                devices: Vec::new(),
            },
            sizes: FrameSizes {
                base: 1500,
                most: prng.pick(&[1500, 9000]).unwrap_or(1500),
            },
        }
    }

    pub(super) const fn place(&self) -> &Place {
        &self.group.place
    }

    /// The group with the devices of a plan.
    pub(super) fn groups(&self, plan: &Plan) -> Arc<[Group]> {
        let device = |lun: &VisibleLun| GroupDevice {
            handle: lun.lun,
            name: export_name(lun.unit),
            unit: lun.unit,
            level: Level::Crc,
            read_only: lun.read_only,
            is_removable: plan.removable[lun.unit.as_usize()],
            peripheral_type: 0,
            designator: [9; 16],
        };
        let devices = plan.devices.iter().map(device).collect();
        Arc::from([Group {
            devices,
            ..self.group.clone()
        }])
    }
}

/// Draws which units there are, and who shows them.
pub(super) fn draw_plan(prng: &mut Prng) -> Plan {
    let units = prng.size(2, 6);
    let mut plan = Plan {
        removable: (0..units).map(|_| prng.chance(600)).collect(),
        gone: std::collections::BTreeSet::new(),
        targets: vec![Vec::new(); prng.size(2, 3)],
        exports: Vec::new(),
        devices: Vec::new(),
        views: std::collections::BTreeMap::new(),
    };
    for at in 0..plan.targets.len() {
        plan.targets[at] = draw_luns(&plan, prng);
    }
    for unit in plan.units() {
        let number = u16::try_from(unit.0 + 1).unwrap_or(1);
        let (is_export, is_device) = (prng.chance(400), prng.chance(600));
        plan.exports.extend(is_export.then(|| export(unit, prng)));
        let device = || narrowed(unit, number, prng);
        plan.devices.extend(is_device.then(device));
    }
    plan
}

/// Units under some numbers, one of them under two now and then.
fn draw_luns(plan: &Plan, prng: &mut Prng) -> Vec<VisibleLun> {
    let units: Vec<UnitIndex> = plan.present_units().collect();
    let most = if prng.chance(30) {
        LUN_MAX_OF_MANY
    } else {
        LUN_MAX
    };
    let numbers = (0..=most).filter(|lun| *lun == 0 || prng.chance(500));
    let numbers: Vec<u16> = numbers.collect();
    let lun = |number| narrowed(prng.pick(&units).unwrap_or(UnitIndex(0)), number, prng);
    numbers.into_iter().map(lun).collect()
}

/// A unit by a number, which lets its sessions write, mostly.
fn narrowed(unit: UnitIndex, lun: u16, prng: &mut Prng) -> VisibleLun {
    let whole = VisibleLun {
        lun,
        unit,
        read_only: false,
    };
    match prng.chance(150) {
        true => read_only(whole),
        false => whole,
    }
}

fn export(unit: UnitIndex, prng: &mut Prng) -> VisibleExport {
    VisibleExport {
        name: export_name(unit),
        lun: narrowed(unit, 0, prng),
    }
}

/// Draws what an administrator changes.
pub(super) fn draw_change(plan: &Plan, seats: &[Seat], prng: &mut Prng) -> Plan {
    let mut plan = plan.clone();
    for _ in 0..prng.size(1, 3) {
        let at = prng.size(0, plan.targets.len() - 1);
        match prng.below(10) {
            0..3 => plan.targets[at] = draw_luns(&plan, prng),
            3..6 => move_number(&mut plan.targets[at], prng),
            6 => flip(&mut plan.targets[at], prng),
            7 => flip_or_drop(&mut plan, prng),
            _ => draw_view(&mut plan, seats, prng),
        }
    }
    plan
}

/// A unit gets another number, free or not.
fn move_number(luns: &mut Vec<VisibleLun>, prng: &mut Prng) {
    let (Some(from), to) = (prng.pick(luns), prng.within(0, u64::from(LUN_MAX))) else {
        return;
    };
    let to = u16::try_from(to).unwrap_or(0);
    luns.retain(|lun| lun.lun != from.lun && lun.lun != to);
    luns.push(VisibleLun { lun: to, ..from });
    luns.sort_unstable_by_key(|lun| lun.lun);
}

/// A view may write now, or not any more.
fn flip(luns: &mut [VisibleLun], prng: &mut Prng) {
    if let Some(last) = luns.len().checked_sub(1) {
        let lun = &mut luns[prng.size(0, last)];
        lun.read_only = !lun.read_only;
    }
}

/// The same of exports and devices, or they come and go.
fn flip_or_drop(plan: &mut Plan, prng: &mut Prng) {
    let units: Vec<UnitIndex> = plan.present_units().collect();
    let unit = prng.pick(&units).unwrap_or(UnitIndex(0));
    let number = u16::try_from(unit.0 + 1).unwrap_or(1);
    let new = narrowed(unit, number, prng);
    if prng.chance(500) {
        let before = plan.devices.len();
        plan.devices.retain(|lun| lun.unit != unit);
        if plan.devices.len() == before || prng.chance(500) {
            plan.devices.push(new);
            plan.devices.sort_unstable_by_key(|lun| lun.lun);
        }
        return;
    }
    let before = plan.exports.len();
    plan.exports.retain(|export| export.lun.unit != unit);
    if plan.exports.len() == before || prng.chance(500) {
        plan.exports.push(export(unit, prng));
    }
}

/// An initiator sees something else at its target from now on, or what all see.
fn draw_view(plan: &mut Plan, seats: &[Seat], prng: &mut Prng) {
    let Some(Seat::Iscsi { host, target }) = prng.pick(seats) else {
        return;
    };
    let who = (initiator_name(host), target);
    let whole = plan.targets[target.0 as usize].clone();
    let view = match prng.below(10) {
        0..4 => return drop(plan.views.remove(&who)),
        4..7 => Some(whole.into_iter().map(read_only).collect()),
        7 | 8 => Some(whole.into_iter().filter(|_| prng.chance(600)).collect()),
        _ => None,
    };
    plan.views.insert(who, view);
}

/// Draws who comes in, and how.
pub(super) fn draw_seats(plan: &Plan, prng: &mut Prng) -> Vec<Seat> {
    let targets: Vec<TargetIndex> = plan.target_indices().collect();
    let hosts = prng.size(1, 3);
    let mut seats = Vec::new();
    for _ in 0..prng.size(2, 5) {
        let (host, target) = (prng.size(0, hosts - 1), prng.pick(&targets));
        let target = target.unwrap_or(TargetIndex(0));
        seats.push(Seat::Iscsi { host, target });
    }
    for _ in 0..prng.size(0, 2) {
        seats.push(Seat::Hyperscsi);
    }
    for _ in 0..prng.size(0, 2) {
        let exports: Vec<String> = plan.exports.iter().map(|one| one.name.clone()).collect();
        seats.extend(prng.pick(&exports).map(|export| Seat::Nbd { export }));
    }
    seats
}

/// How the target is set up.
pub(super) fn settings(plan: Plan, prng: &mut Prng, sabotage: Option<Sabotage>) -> Settings {
    Settings {
        plan,
        cores: prng.size(1, 3),
        queue_depth: u32::try_from(prng.size(1, 8)).unwrap_or(8),
        preferences: offer(),
        abort_timeout: Duration::from_millis(prng.pick(&[50, 500, 2000]).unwrap_or(500)),
        fence_timeout: Duration::from_secs(3),
        fence_waits: 1,
        login_timeout: Duration::from_secs(15),
        nop_interval: Duration::from_secs(5),
        nop_timeout: Duration::from_secs(5),
        pool_bytes: prng.pick(&POOL_BYTES).unwrap_or(6 << 20),
        is_busy: false,
        logins_max: prng.pick(&[1, 2, MANY]).unwrap_or(MANY),
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
