//! Quotas: what the disks of an owner, or of a place, may be large together and may take together.
//!
//! Sizes are known, so a change beyond `provisioned` is refused: by its plan, as far as the sizes are in the document
//! or are those of disks that are served, and for the rest before anything is switched. What disks take is asked of
//! their stores every [`PAUSE`], and when the configuration has changed; what they take in between is not seen before.
//! A disk that is added is asked before anybody sees it. A store that does not answer counts with what it took last, so
//! that a file that hangs is nobody else's trouble. Stores are asked beside the changes of the configuration, so that
//! the one never finds a store that is being asked by the other.

mod accountant;

pub(super) use self::accountant::{Accountant, views};

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::plan::Kind;
use config::{Model, Quota, QuotaOf, Unit};
use plane::{Handle, Space, UnitIndex};
use store::SharedStore;

use super::attempts::{Attempts, Patience, on_thread, pause};
use super::effect::{Consequence, PlannedStep};
use super::running::{Running, RunningUnit};
use super::steps::Match;
use crate::StartError;

/// Between two looks at what disks take.
const PAUSE: Duration = Duration::from_secs(5);

/// How long a disk that is added is waited for that nobody has looked at yet, and between two questions.
const FIRST_MAX: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(10);

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

/// Refuses the first configuration whose disks are larger than its quotas allow, by the sizes that it says. What has
/// grown by itself is no reason not to serve it: that is a finding.
pub(crate) fn check_first(model: &Model) -> Result<(), StartError> {
    let found = model.units().iter().map(|_| Vec::new());
    let mut excess = excess(model, found, None).into_iter();
    excess.next().map_or(Ok(()), |(_, error)| Err(error))
}

/// The quotas that what runs exceeds, with what they count.
pub(super) fn exceeded(running: &Running) -> Vec<(String, StartError)> {
    let found = running.units.iter().map(|served| served.opened.counted());
    excess(&running.model, found, None)
}

/// What the disks of a quota had before a change, where the change leaves the quota as it is: disks that have grown by
/// themselves hold up nothing that makes them no larger together. Otherwise nothing.
fn had_before(quota: &Quota, old: &Running) -> u64 {
    let mut before = old.model.quotas().iter();
    let same =
        before.find(|one| one.of == quota.of && one.provisioned_bytes == quota.provisioned_bytes);
    let Some(same) = same else {
        return 0;
    };
    let units = old.model.units().iter().zip(&old.units);
    let sizes: Vec<_> = units
        .map(|(unit, served)| part_sizes(unit, Some(served)))
        .collect();
    counted(same, &old.model, &sizes)
}

/// The limit that so many bytes of a quota exceed.
fn exceeds(quota: &Quota, wanted_bytes: u64, old: Option<&Running>) -> Option<u64> {
    let most = quota
        .provisioned_bytes
        .filter(|most| wanted_bytes > *most)?;
    let had = old.map_or(0, |old| had_before(quota, old));
    (wanted_bytes > had).then_some(most)
}

/// The quotas that disks exceed, with what they count. `found` has the stores of each unit, as far as they are known;
/// `old` is what runs before a change.
pub(super) fn excess(
    model: &Model,
    found: impl Iterator<Item = Vec<Arc<dyn SharedStore>>>,
    old: Option<&Running>,
) -> Vec<(String, StartError)> {
    let sizes: Vec<_> = model
        .units()
        .iter()
        .zip(found)
        .map(|(unit, found)| sizes_with(unit, found))
        .collect();
    let over = model.quotas().iter().filter_map(|quota| {
        let wanted_bytes = counted(quota, model, &sizes);
        let error = StartError::OverQuota {
            place: quota.place.clone(),
            quota: quota.of.to_string(),
            wanted_bytes,
            allowed_bytes: exceeds(quota, wanted_bytes, old)?,
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
        let Some(allowed_bytes) = exceeds(quota, wanted_bytes, Some(old)) else {
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

/// What each part takes, by unit and position.
type Parts = HashMap<(UnitIndex, usize), u64>;

/// What was found last.
#[derive(Debug, Default)]
struct Found {
    parts: Parts,
    /// By what the quota counts.
    held: BTreeMap<QuotaOf, Held>,
    /// What the data plane knows; units that are not here may take what there is.
    spaces: HashMap<UnitIndex, Space>,
    /// Of them, those of a change that is not in force yet: who looks meanwhile does not know them.
    admitted: HashSet<UnitIndex>,
}

/// The accounts of all quotas.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    found: Mutex<Found>,
    /// Stores that are being asked.
    attempts: Attempts,
}

impl Accounts {
    fn lock(&self) -> std::sync::MutexGuard<'_, Found> {
        // One that panicked has left older figures.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the quotas were found to hold.
    pub(super) fn held(&self) -> Vec<Held> {
        self.lock().held.values().cloned().collect()
    }

    /// Looks what new units take, which nobody sees yet, and has the data plane keep them within their quotas. Those
    /// that do not answer count from the next look on.
    pub(super) fn admit(&self, plane: &Handle, running: &Running, added: &[usize]) {
        let limited = limited(&running.model);
        if limited.is_empty() || added.is_empty() {
            return;
        }
        let patience = self.attempts.begin_look();
        let until = Instant::now() + FIRST_MAX;
        let mut parts = self.lock().parts.clone();
        let mut asked = Parts::new();
        for part in counted_parts(running, &limited) {
            if !added.contains(&part.position) {
                continue;
            }
            let mut bytes = ask(&part, &patience);
            while matches!(&bytes, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
                && Instant::now() < until
            {
                pause(FIRST_PAUSE);
                bytes = ask(&part, &patience);
            }
            asked.extend(bytes.ok().map(|bytes| (part.key, bytes)));
        }
        parts.extend(&asked);
        let (_, spaces) = reckon(running, &limited, &parts);
        let mut found = self.lock();
        for &position in added {
            let index = running.units.get(position).map(|unit| unit.index);
            let space = index.and_then(|index| Some((index, *spaces.get(&index)?)));
            let Some((index, space)) = space.filter(|(_, space)| *space != Space::Free) else {
                continue;
            };
            plane.set_space(index, space);
            found.spaces.insert(index, space);
            found.admitted.insert(index);
        }
        found.parts.extend(asked);
    }

    /// Units of a change that is not made.
    pub(super) fn dismiss(&self, units: &[UnitIndex]) {
        let mut found = self.lock();
        for unit in units {
            found.admitted.remove(unit);
            found.spaces.remove(unit);
        }
    }
}

/// The quotas that limit what disks take.
fn limited(model: &Model) -> Vec<&Quota> {
    let quotas = model.quotas().iter();
    quotas.filter(|quota| quota.used_bytes.is_some()).collect()
}

/// A part of a unit that a quota counts.
struct CountedPart<'a> {
    key: (UnitIndex, usize),
    /// Of the unit.
    position: usize,
    unit: &'a Unit,
    spec: &'a config::StoreSpec,
    store: Arc<dyn SharedStore>,
}

/// The parts that any of these quotas counts.
fn counted_parts<'a>(
    running: &'a Running,
    quotas: &'a [&'a Quota],
) -> impl Iterator<Item = CountedPart<'a>> {
    let units = running.model.units().iter().zip(&running.units).enumerate();
    let parts = units.flat_map(|(position, (unit, served))| {
        let parts = unit.counted().zip(served.opened.counted()).enumerate();
        parts.map(move |(number, (spec, store))| CountedPart {
            key: (served.index, number),
            position,
            unit,
            spec,
            store,
        })
    });
    parts.filter(|part| {
        let mut quotas = quotas.iter();
        quotas.any(|quota| quota.counts(part.unit, part.spec))
    })
}

/// What a part takes. One that cannot say it takes all of its size.
fn ask(part: &CountedPart<'_>, patience: &Patience<'_>) -> io::Result<u64> {
    let size_bytes = part.store.capabilities().size_bytes;
    let store = Arc::clone(&part.store);
    let asked = match part.spec.at.image() {
        // It answers at once.
        Some(_) => store.used_bytes(),
        None => on_thread((part.spec, &part.unit.place), patience, move |_, _| {
            store.used_bytes()
        })
        .map_err(io::Error::other)?,
    };
    Ok(asked?.unwrap_or(size_bytes))
}

/// What quotas hold, and what that leaves to units, by what their parts take.
fn reckon(
    running: &Running,
    quotas: &[&Quota],
    parts: &Parts,
) -> (BTreeMap<QuotaOf, Held>, HashMap<UnitIndex, Space>) {
    let (mut held, mut spaces) = (BTreeMap::new(), HashMap::new());
    for quota in quotas {
        let mut bytes = 0_u64;
        let mut counted = Vec::new();
        for (unit, served) in running.model.units().iter().zip(&running.units) {
            let of_data = unit.parts().count();
            let stores = served.opened.counted();
            for (number, part) in unit.counted().enumerate() {
                if quota.counts(unit, part) {
                    let taken = parts.get(&(served.index, number)).copied();
                    bytes = bytes.saturating_add(taken.unwrap_or_default());
                    // A log, and a store that reserves its space, have it from the start: writes take no more.
                    let is_thin = |store: &Arc<dyn SharedStore>| store.capabilities().thin;
                    let grows = number < of_data && stores.get(number).is_none_or(is_thin);
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
    (held, spaces)
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

/// Has the accountant look again, or end.
#[derive(Debug, Default)]
pub(super) struct Summons {
    state: Mutex<Called>,
    called: Condvar,
}

#[derive(Debug, Default)]
struct Called {
    looks: bool,
    ends: bool,
}

impl Summons {
    fn call(&self, change: impl FnOnce(&mut Called)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.called.notify_all();
    }

    /// The configuration has changed: others may be counted, and by other quotas.
    pub(super) fn look(&self) {
        self.call(|called| called.looks = true);
    }

    /// Waits for the next look. False when there is none.
    fn wait(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_idle = |called: &mut Called| !called.looks && !called.ends;
        let waited = self.called.wait_timeout_while(state, PAUSE, is_idle);
        let (mut called, _) = waited.unwrap_or_else(PoisonError::into_inner);
        called.looks = false;
        !called.ends
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
