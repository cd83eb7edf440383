//! Which targets and units the simulated machine has, and who sees what by which number.

use std::collections::{BTreeMap, BTreeSet};

use engine::{TargetIndex, UnitIndex, VisibleLun};
use front::{PortPlan, TargetPlan, VisibleExport};
use scsi::TargetPort;

use crate::prng::Prng;

/// The first unit, the only one of [`Plan::one`].
pub const UNIT: UnitIndex = UnitIndex(0);

/// By which sessions see it there.
pub const LUN: VisibleLun = VisibleLun {
    lun: 0,
    unit: UNIT,
    read_only: false,
};

/// The first target.
pub const TARGET: TargetIndex = TargetIndex(0);

/// The only TargetPortalGroupTag.
pub const PORTAL_GROUP_TAG: u16 = 1;

/// See above.
#[derive(Clone, Debug)]
pub struct Plan {
    /// For each unit, whether its medium can be removed.
    pub removable: Vec<bool>,
    /// Units that were removed.
    pub gone: BTreeSet<UnitIndex>,
    /// What each target shows.
    pub targets: Vec<Vec<VisibleLun>>,
    /// What clients of NBD may have.
    pub exports: Vec<VisibleExport>,
    /// What clients of HyperSCSI see.
    pub devices: Vec<VisibleLun>,
    /// By InitiatorName: initiators that see something else at a target. `None`: they may not log in there.
    pub views: BTreeMap<(String, TargetIndex), Option<Vec<VisibleLun>>>,
}

impl Plan {
    /// One unit with a removable medium, which one target and one export show to everybody.
    pub fn one() -> Self {
        Self {
            removable: vec![true],
            gone: BTreeSet::new(),
            targets: vec![vec![LUN]],
            exports: vec![VisibleExport {
                name: export_name(UNIT),
                lun: LUN,
            }],
            devices: Vec::new(),
            views: BTreeMap::new(),
        }
    }

    /// All units.
    pub fn units(&self) -> impl Iterator<Item = UnitIndex> + use<> {
        (0..).map(UnitIndex).take(self.removable.len())
    }

    /// Those that were not removed.
    pub fn present_units(&self) -> impl Iterator<Item = UnitIndex> + '_ {
        self.units().filter(|unit| !self.gone.contains(unit))
    }

    /// The same without this unit.
    #[must_use]
    pub fn without(&self, unit: UnitIndex) -> Self {
        let mut plan = self.clone();
        plan.gone.insert(unit);
        let views = plan.views.values_mut().flatten();
        let lists = plan
            .targets
            .iter_mut()
            .chain([&mut plan.devices])
            .chain(views);
        lists.for_each(|luns| luns.retain(|lun| lun.unit != unit));
        plan.exports.retain(|export| export.lun.unit != unit);
        plan
    }

    /// All targets.
    pub fn target_indices(&self) -> impl Iterator<Item = TargetIndex> + use<> {
        (0..).map(TargetIndex).take(self.targets.len())
    }

    /// What an initiator sees at a target. `None`: it may not log in.
    pub fn luns(&self, initiator_name: &str, target: TargetIndex) -> Option<Vec<VisibleLun>> {
        match self.views.get(&(initiator_name.to_owned(), target)) {
            Some(view) => view.clone(),
            None => self.targets.get(target.0 as usize).cloned(),
        }
    }

    /// Draws what an initiator may do at the first target from now on.
    pub fn draw_view(&mut self, initiator: usize, prng: &mut Prng) {
        let whole = self.targets[0].iter();
        let view = match prng.below(10) {
            0..5 => return,
            5 | 6 => Some(whole.map(|lun| read_only(*lun)).collect()),
            7 => Some(Vec::new()),
            _ => None,
        };
        let who = (initiator_name(initiator), TARGET);
        self.views.insert(who, view);
    }

    /// The targets as the front has them. Initiators may reset them cold.
    pub fn target_plans(&self) -> impl Iterator<Item = (TargetIndex, TargetPlan)> {
        self.target_indices().map(|target| {
            let plan = TargetPlan {
                name: target_name(target),
                ports: vec![PortPlan {
                    portal_group_tag: PORTAL_GROUP_TAG,
                    relative_id: relative_id(target),
                }],
                cold_reset: true,
            };
            (target, plan)
        })
    }

    /// The target ports that show a unit.
    pub fn ports_of(&self, unit: UnitIndex) -> Vec<TargetPort> {
        let shows = |target: &TargetIndex| {
            let luns = &self.targets[target.0 as usize];
            luns.iter().any(|lun| lun.unit == unit)
        };
        let port = |target| TargetPort {
            relative_id: relative_id(target),
            group: 1,
            scsi_name: format!("{},t,0x{PORTAL_GROUP_TAG:04x}", target_name(target)),
            device_name: target_name(target),
            protocol_identifier: 5,
            protocol_version: 0x0960,
        };
        self.target_indices().filter(shows).map(port).collect()
    }
}

/// The same without the right to write.
pub const fn read_only(lun: VisibleLun) -> VisibleLun {
    VisibleLun {
        read_only: true,
        ..lun
    }
}

/// The InitiatorName of an initiator.
pub fn initiator_name(initiator: usize) -> String {
    format!("iqn.2026-11.example.sim:host{initiator}")
}

/// The TargetName of a target.
pub fn target_name(target: TargetIndex) -> String {
    format!("iqn.2026-11.example.tarn:sim{}", target.0)
}

/// The target of this name, whether it is there or not.
pub fn target_of(name: &str) -> Option<TargetIndex> {
    let number = name.strip_prefix("iqn.2026-11.example.tarn:sim")?;
    number.parse().ok().map(TargetIndex)
}

/// The name of a unit for clients of NBD.
pub fn export_name(unit: UnitIndex) -> String {
    format!("disk{}", unit.0)
}

/// The relative target port identifier of the only port of a target.
fn relative_id(target: TargetIndex) -> u16 {
    u16::try_from(target.0 + 1).unwrap_or(u16::MAX)
}
