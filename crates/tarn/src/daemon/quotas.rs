//! Quotas: what the disks of an owner, or of a place, may be large together and may take together.
//!
//! Sizes are known, so a change beyond `provisioned` is refused: by its plan, as far as the sizes are in the document
//! or are those of disks that are served, and for the rest before anything is switched. What disks take is asked of
//! their stores every [`PAUSE`]; what they take in between is not seen before. A store that does not answer counts with
//! what it took last, so that a file that hangs is nobody else's trouble.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use api::plan::Kind;
use api::{spec, view};
use config::{Model, Quota, QuotaOf, Unit};
use plane::{Space, UnitIndex};
use store::SharedStore;

use super::apply::on_thread;
use super::control::Daemon;
use super::effect::{Consequence, PlannedStep};
use super::running::{Running, RunningUnit};
use super::steps::Match;
use crate::StartError;

/// Between two looks at what disks take.
const PAUSE: Duration = Duration::from_secs(5);

/// The sizes of what quotas count of a unit, in bytes; those of stores that have grown beyond their configured size,
/// too.
fn part_sizes(unit: &Unit, served: Option<&RunningUnit>) -> Vec<u64> {
    let found = served.map(|served| served.opened.counted());
    sizes_with(unit, found.unwrap_or_default())
}

/// The same, of stores that were found.
fn sizes_with(unit: &Unit, found: Vec<Arc<dyn SharedStore>>) -> Vec<u64> {
    let mut found = found.into_iter();
    let size = |part: &config::StoreSpec| {
        let found = found.next().map(|store| store.capabilities().size_bytes);
        let configured = part.configured_size_bytes();
        configured
            .unwrap_or_default()
            .max(found.unwrap_or_default())
    };
    unit.counted().map(size).collect()
}

/// How many bytes all units have that a quota counts. `sizes` has those of their parts.
fn counted(quota: &Quota, model: &Model, sizes: &[Vec<u64>]) -> u64 {
    let units = model.units().iter().zip(sizes);
    let of_unit = units.flat_map(|(unit, sizes)| {
        let parts = unit.counted().zip(sizes);
        parts.filter_map(|(part, size)| quota.counts(unit, part).then_some(*size))
    });
    of_unit.fold(0, u64::saturating_add)
}

/// Refuses a configuration with disks that are larger than its quotas allow.
pub(crate) fn check(model: &Model, served: &[RunningUnit]) -> Result<(), StartError> {
    let found = served.iter().map(|served| served.opened.counted());
    let mut excess = excess(model, found).into_iter();
    excess.next().map_or(Ok(()), |(_, error)| Err(error))
}

/// The quotas that disks exceed, with what they count. `found` has the stores of each unit, as far as they are known.
pub(super) fn excess(
    model: &Model,
    found: impl Iterator<Item = Vec<Arc<dyn SharedStore>>>,
) -> Vec<(String, StartError)> {
    let sizes: Vec<_> = model
        .units()
        .iter()
        .zip(found)
        .map(|(unit, found)| sizes_with(unit, found))
        .collect();
    let over = model.quotas().iter().filter_map(|quota| {
        let wanted_bytes = counted(quota, model, &sizes);
        let allowed_bytes = quota
            .provisioned_bytes
            .filter(|most| wanted_bytes > *most)?;
        let error = StartError::OverQuota {
            place: quota.place.clone(),
            quota: quota.of.to_string(),
            wanted_bytes,
            allowed_bytes,
        };
        Some((quota.of.to_string(), error))
    });
    over.collect()
}

/// Refuses the steps of a plan after which disks are larger than a quota allows.
pub(super) fn refuse(steps: &mut [PlannedStep], old: &Running, model: &Model, units: &Match) {
    let sizes = model.units().iter().zip(&units.from).enumerate();
    let sizes: Vec<_> = sizes
        .map(|(position, (unit, from))| {
            let before = from.and_then(|at| Some((old.model.units().get(at)?, old.units.get(at)?)));
            let kept = before.filter(|(before, _)| units.keeps(position, before, unit));
            part_sizes(unit, kept.map(|(_, served)| served))
        })
        .collect();
    for quota in model.quotas() {
        let wanted_bytes = counted(quota, model, &sizes);
        let over = quota.provisioned_bytes.filter(|most| wanted_bytes > *most);
        let Some(allowed_bytes) = over else {
            continue;
        };
        let counts = |step: &&mut PlannedStep| match step.kind {
            Kind::Lun => {
                let unit = model
                    .units()
                    .iter()
                    .find(|one| one.to_string() == step.name);
                unit.is_some_and(|unit| unit.counted().any(|part| quota.counts(unit, part)))
            }
            Kind::Quota => step.name == quota.of.to_string(),
            Kind::Store => true,
            Kind::Target
            | Kind::Portal
            | Kind::View
            | Kind::Group
            | Kind::User
            | Kind::Nbd
            | Kind::HyperScsi
            | Kind::Notify
            | Kind::Server
            | Kind::Limits
            | Kind::Admin
            | Kind::Confine => false,
        };
        for step in steps.iter_mut().filter(counts) {
            if step.consequence.is_harmless() {
                step.consequence = Consequence::OverQuota {
                    quota: quota.of.to_string(),
                    wanted_bytes,
                    allowed_bytes,
                };
            }
        }
    }
}

/// What a quota was found to hold.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Held {
    /// What it counts.
    pub(super) quota: String,
    /// Bytes that its disks take.
    pub(super) bytes: u64,
    /// Bytes that they may take.
    pub(super) most_bytes: u64,
    /// What that leaves.
    pub(super) space: Space,
}

/// What was found last.
#[derive(Debug, Default)]
struct Found {
    /// What each part takes, by unit and position.
    parts: HashMap<(UnitIndex, usize), u64>,
    /// By what the quota counts.
    held: BTreeMap<QuotaOf, Held>,
    /// What the data plane knows; units that are not here may take what there is.
    spaces: HashMap<UnitIndex, Space>,
}

/// The accounts of all quotas.
#[derive(Debug, Default)]
pub(super) struct Accounts(Mutex<Found>);

impl Accounts {
    fn lock(&self) -> std::sync::MutexGuard<'_, Found> {
        // One that panicked has left older figures.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the quotas were found to hold.
    pub(super) fn held(&self) -> Vec<Held> {
        self.lock().held.values().cloned().collect()
    }
}

/// What a number of bytes leaves of a quota.
fn space_left(quota: &Quota, bytes: u64) -> Space {
    let reaches = |limit: Option<u64>| limit.is_some_and(|limit| bytes >= limit);
    if reaches(quota.used_bytes) {
        Space::Full
    } else if reaches(quota.soft_bytes()) {
        Space::Low
    } else {
        Space::Free
    }
}

/// The one that leaves less.
const fn tighter(one: Space, other: Space) -> Space {
    match (one, other) {
        (Space::Full, _) | (_, Space::Full) => Space::Full,
        (Space::Low, _) | (_, Space::Low) => Space::Low,
        (Space::Free, Space::Free) => Space::Free,
    }
}

impl Daemon {
    /// Looks what disks take, and has the data plane keep those within their quotas that have one.
    pub(crate) fn account(&self) {
        let in_force = self.in_force();
        let running = &in_force.running;
        let limited: Vec<&Quota> = {
            let quotas = running.model.quotas().iter();
            quotas.filter(|quota| quota.used_bytes.is_some()).collect()
        };
        let (mut held, mut spaces) = (BTreeMap::new(), HashMap::new());
        let parts = match limited.is_empty() {
            true => HashMap::new(),
            false => self.look_at_parts(running, &limited),
        };
        for quota in limited {
            let mut bytes = 0_u64;
            let mut counted = Vec::new();
            for (unit, served) in running.model.units().iter().zip(&running.units) {
                let of_data = unit.parts().count();
                for (number, part) in unit.counted().enumerate() {
                    if quota.counts(unit, part) {
                        let taken = parts.get(&(served.index, number)).copied();
                        bytes = bytes.saturating_add(taken.unwrap_or_default());
                        // A log has its space from the start: writes to it take no more.
                        let grows = number < of_data;
                        counted.extend(grows.then_some(served.index));
                    }
                }
            }
            let space = space_left(quota, bytes);
            for unit in counted {
                let before = spaces.get(&unit).copied().unwrap_or_default();
                spaces.insert(unit, tighter(before, space));
            }
            let most_bytes = quota.used_bytes.unwrap_or_default();
            let name = quota.of.to_string();
            held.insert(
                quota.of.clone(),
                Held {
                    quota: name,
                    bytes,
                    most_bytes,
                    space,
                },
            );
        }
        let mut found = self.accounts.lock();
        for unit in spaces.keys().chain(found.spaces.keys()) {
            let of = |spaces: &HashMap<_, Space>| spaces.get(unit).copied().unwrap_or_default();
            if of(&spaces) != of(&found.spaces) {
                self.plane.set_space(*unit, of(&spaces));
            }
        }
        for (of, now) in &held {
            let before = found.held.get(of).map(|before| before.space);
            if before.unwrap_or_default() != now.space {
                self.events.note(super::events::of_quota(now));
            }
        }
        *found = Found {
            parts,
            held,
            spaces,
        };
    }

    /// What the parts take that these quotas count.
    fn look_at_parts(
        &self,
        running: &Running,
        quotas: &[&Quota],
    ) -> HashMap<(UnitIndex, usize), u64> {
        let patience = self.attempts.begin();
        let last = self.accounts.lock().parts.clone();
        let mut taken = HashMap::new();
        for (unit, served) in running.model.units().iter().zip(&running.units) {
            let parts = unit.counted().zip(served.opened.counted()).enumerate();
            for (number, (part, store)) in parts {
                if !quotas.iter().any(|quota| quota.counts(unit, part)) {
                    continue;
                }
                let size_bytes = store.capabilities().size_bytes;
                let asked = on_thread((part, &unit.place), &patience, move |_, _| {
                    store.used_bytes()
                });
                let key = (served.index, number);
                let bytes = match asked {
                    // One that cannot say it takes all of its size.
                    Ok(Ok(bytes)) => bytes.unwrap_or(size_bytes),
                    Ok(Err(_)) | Err(_) => last.get(&key).copied().unwrap_or_default(),
                };
                taken.insert(key, bytes);
            }
        }
        taken
    }
}

/// All quotas with what they hold, in the order of the file.
pub(super) fn views(daemon: &Daemon) -> Vec<view::Quota> {
    let in_force = daemon.in_force();
    let model = &in_force.running.model;
    let units = || model.units().iter().zip(&in_force.running.units);
    let sizes: Vec<_> = units()
        .map(|(unit, served)| part_sizes(unit, Some(served)))
        .collect();
    let found = daemon.accounts.lock();
    let draft = config::Draft::parse(&in_force.document.text);
    // What runs was read from it.
    let specs = draft.map(|draft| draft.quotas()).unwrap_or_default();
    let view = |(spec, quota): (spec::Quota, &Quota)| {
        let held = found.held.get(&quota.of);
        let counts = |unit: &&Unit| unit.counted().any(|part| quota.counts(unit, part));
        view::Quota {
            name: spec.name(),
            spec,
            luns: model
                .units()
                .iter()
                .filter(counts)
                .map(Unit::to_string)
                .collect(),
            provisioned_bytes: counted(quota, model, &sizes),
            provisioned_max_bytes: quota.provisioned_bytes,
            used_bytes: held.map(|held| held.bytes),
            used_max_bytes: quota.used_bytes,
            space: word(held.map(|held| held.space).unwrap_or_default()).to_owned(),
        }
    };
    specs.into_iter().zip(model.quotas()).map(view).collect()
}

const fn word(space: Space) -> &'static str {
    match space {
        Space::Free => "free",
        Space::Low => "low",
        Space::Full => "full",
    }
}

/// The thread that keeps the accounts, until this is dropped.
pub(crate) struct Accountant {
    _ends: SyncSender<()>,
}

impl Accountant {
    pub(crate) fn start(daemon: &Arc<Daemon>) -> io::Result<Self> {
        let (ends, ended) = sync_channel::<()>(0);
        let daemon = Arc::downgrade(daemon);
        let run = move || {
            while let Some(daemon) = daemon.upgrade() {
                daemon.account();
                drop(daemon);
                if ended.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
        };
        thread::Builder::new()
            .name("quotas".to_owned())
            .spawn(run)?;
        Ok(Self { _ends: ends })
    }
}

impl Held {
    /// In one line.
    pub(super) fn in_words(&self) -> String {
        let Self {
            quota,
            bytes,
            most_bytes,
            space,
        } = self;
        let then = match space {
            Space::Full => "; writes to blocks without space fail",
            Space::Low | Space::Free => "",
        };
        format!("the disks of {quota} take {bytes} bytes of {most_bytes}{then}")
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn quota(text: &str) -> Quota {
        let text = format!("[[quota]]\nowner = \"a\"\n{text}");
        let model = Model::from_toml(&text, Path::new("t.toml")).unwrap();
        model.quotas()[0].clone()
    }

    #[test]
    fn what_is_left_follows_from_what_is_taken() {
        let limited = quota("used = 1000\nsoft = 80\n");
        for (bytes, space) in [
            (0, Space::Free),
            (799, Space::Free),
            (800, Space::Low),
            (999, Space::Low),
            (1000, Space::Full),
            (5000, Space::Full),
        ] {
            assert_eq!(space_left(&limited, bytes), space, "{bytes}");
        }
        let promised = quota("provisioned = 1000\n");
        assert_eq!(space_left(&promised, u64::MAX), Space::Free);
    }

    #[test]
    fn all_quotas_of_a_disk_hold() {
        assert_eq!(tighter(Space::Free, Space::Low), Space::Low);
        assert_eq!(tighter(Space::Full, Space::Low), Space::Full);
        assert_eq!(tighter(Space::Free, Space::Free), Space::Free);
    }
}
