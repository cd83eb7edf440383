//! How two models differ, thing by thing. Knows what is the same thing, not what a difference
//! costs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use crate::admin::ADMIN;
use crate::confine::CONFINE;
use crate::keyed::{SERVER, keyed, of_unit};
use crate::keys::{
    Effective, SECTION_ADMIN, SECTION_CONFINE, SECTION_GROUP, SECTION_HYPERSCSI_GROUP,
    SECTION_LIMITS, SECTION_NBD, SECTION_PORTAL, SECTION_QUOTA, SECTION_SERVER, SECTION_STORE,
    SECTION_TARGET, SECTION_TARGET_LUN, SECTION_USER,
};
use crate::limits::LIMIT_VALUES;
use crate::notify::NOTIFY;
use crate::specs::Said;
use crate::value::{KeyOf, Keyed, values};
use crate::{
    GroupIndex, HyperScsiGroup, HyperScsiIndex, HyperScsiPassword, Model, NbdIndex, NbdServer,
    Notify, NotifyIndex, QuotaIndex, StoreIndex, TargetIndex, TargetLun, Unit, UnitIndex,
    UserIndex, specs,
};

/// A key whose value differs. The values are TOML on one line; one that is not there reads
/// `none`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyChange {
    /// The key. The options of a store are keys of their own: `size`, `blocksize`, `readonly`,
    /// `cache`, `thin` and `format`.
    pub key: &'static str,
    /// Its value in the old model.
    pub old: String,
    /// Its value in the new model.
    pub new: String,
}

impl fmt::Display for KeyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, old, new } = self;
        write!(f, "{key}: {old} -> {new}")
    }
}

/// A thing of a list that is not the same in both models.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Difference<I> {
    /// Only the new model has it.
    Added(I),
    /// Only the old model has it.
    Removed(I),
    /// Both have it, with other values.
    Changed {
        /// In the old model.
        old: I,
        /// In the new model.
        new: I,
        /// What differs, at least one.
        keys: Vec<KeyChange>,
    },
}

/// A unit that has another `id` in the new model and is the same in everything else.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Renamed {
    /// In the old model.
    pub old: UnitIndex,
    /// In the new model.
    pub new: UnitIndex,
}

/// Something that a target has, by its position in the target's list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InTarget {
    /// The target.
    pub target: TargetIndex,
    /// The position in [`Target::portals`](crate::Target::portals) or
    /// [`TargetLuns::entries`](crate::TargetLuns::entries).
    pub position: usize,
}

/// How two models differ. In each list what was removed comes first, in the order of the old
/// model, then what was added or changed, in the order of the new one.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Differences {
    /// Named stores, by `id`.
    pub stores: Vec<Difference<StoreIndex>>,
    /// Units, by `id`; those of a command line by their STORE.
    pub units: Vec<Difference<UnitIndex>>,
    /// Units that are neither added nor removed but have another `id`.
    pub renamed: Vec<Renamed>,
    /// Users, by name.
    pub users: Vec<Difference<UserIndex>>,
    /// Groups, by `id`.
    pub groups: Vec<Difference<GroupIndex>>,
    /// Targets, by name; their portals and units are in lists of their own.
    pub targets: Vec<Difference<TargetIndex>>,
    /// Servers of NBD, by the address they are bound to or the path of their socket.
    pub nbd: Vec<Difference<NbdIndex>>,
    /// Groups of HyperSCSI, by their name and place.
    pub hyperscsi: Vec<Difference<HyperScsiIndex>>,
    /// Quotas, by what they count.
    pub quotas: Vec<Difference<QuotaIndex>>,
    /// Those that get events, by their URL.
    pub notify: Vec<Difference<NotifyIndex>>,
    /// Portals of targets that both models have, by the address they are bound to.
    pub portals: Vec<Difference<InTarget>>,
    /// Units of targets that both models have, by their number, and by their groups where several have one number. A
    /// unit that was renamed is no other unit.
    pub target_luns: Vec<Difference<InTarget>>,
    /// Keys of `[server]`.
    pub server: Vec<KeyChange>,
    /// Keys of `[limits]`.
    pub limits: Vec<KeyChange>,
    /// Keys of `[admin]`.
    pub admin: Vec<KeyChange>,
    /// Keys of `[confine]`.
    pub confine: Vec<KeyChange>,
}

/// Keys of the process that are read when it starts and have another value now than then, one line each.
pub fn pending_keys(begun: &Model, now: &Model) -> Vec<String> {
    let of_notify = |model: &Model| -> Vec<_> {
        let all = model.notify.iter();
        all.map(|one| (one.to.clone(), one.events.clone()))
            .collect()
    };
    let is_other = of_notify(begun) != of_notify(now);
    let differences = diff(&begun.emptied(), &now.emptied());
    let sections = [
        (&SECTION_SERVER, &differences.server),
        (&SECTION_LIMITS, &differences.limits),
        (&SECTION_ADMIN, &differences.admin),
        (&SECTION_CONFINE, &differences.confine),
    ];
    let keys = sections.into_iter().flat_map(|(section, changes)| {
        let waits =
            move |change: &&KeyChange| Effective::of(section, change.key) == Effective::Restart;
        let waiting = changes.iter().filter(waits);
        waiting.map(move |change| format!("{} {change}", section.heading))
    });
    let notify = is_other.then(|| "[[notify]]".to_owned());
    keys.chain(notify).collect()
}

impl Differences {
    /// Whether the models are the same, save for what places and texts they were made from.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds what no model shows: groups of HyperSCSI, here by what they are called, that have another password.
    pub fn add_new_passwords(&mut self, old: &Model, new: &Model, is_new: impl Fn(&str) -> bool) {
        let written = |group: &HyperScsiGroup| match &group.password {
            HyperScsiPassword::Written { password, .. } => Some(password.clone()),
            HyperScsiPassword::File(_) | HyperScsiPassword::Open { .. } => None,
        };
        let kind = |group: &HyperScsiGroup| std::mem::discriminant(&group.password);
        for (position, group) in new.hyperscsi.iter().enumerate() {
            let name = group.to_string();
            let old_at = old.hyperscsi.iter().position(|one| one.to_string() == name);
            let Some((old_at, before)) = old_at.and_then(|at| Some((at, old.hyperscsi.get(at)?)))
            else {
                continue;
            };
            let is_same =
                kind(before) == kind(group) && written(before) == written(group) && !is_new(&name);
            if is_same {
                continue;
            }
            let index = HyperScsiIndex(position);
            let change = KeyChange {
                key: NEW_PASSWORD,
                old: "that of before".to_owned(),
                new: "another one".to_owned(),
            };
            let known = self.hyperscsi.iter_mut().find_map(|one| match one {
                Difference::Changed { new, keys, .. } if *new == index => Some(keys),
                Difference::Changed { .. } | Difference::Added(_) | Difference::Removed(_) => None,
            });
            match known {
                Some(keys) if keys.iter().any(|one| one.key.contains(NEW_PASSWORD)) => {}
                Some(keys) => keys.push(change),
                None => self.hyperscsi.push(Difference::Changed {
                    old: HyperScsiIndex(old_at),
                    new: index,
                    keys: vec![change],
                }),
            }
        }
    }
}

/// The key of a password that differs.
const NEW_PASSWORD: &str = "password";

/// How `new` differs from `old`.
pub fn diff(old: &Model, new: &Model) -> Differences {
    diff_with(old, new, None, |_| NewSecrets::default())
}

/// Which secrets of a user are not what they were, which no model knows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NewSecrets {
    /// That of the initiator.
    pub own: bool,
    /// That of the target, where the user had one before and has one now.
    pub mutual: bool,
}

/// As [`diff`], with what no model knows: the units that have another `id`, the new one and the one before, where
/// that is known and need not be guessed; and which secrets of the user of a name are not what they were.
pub fn diff_with(
    old: &Model,
    new: &Model,
    renames: Option<&BTreeMap<String, String>>,
    new_secrets: impl Fn(&str) -> NewSecrets,
) -> Differences {
    let both = Both { old, new };
    let mut differences = Differences {
        stores: both.list(
            &old.stores,
            &new.stores,
            |_, named| named.id.clone(),
            |_, named| keyed(&SECTION_STORE, &specs::store(named), &["id"]),
            StoreIndex,
        ),
        units: both.units(renames),
        users: both.list(
            &old.users,
            &new.users,
            |_, user| user.name.clone(),
            |_, user| keyed(&SECTION_USER, &specs::user(user, Said::Whole), &["name"]),
            UserIndex,
        ),
        groups: both.list(
            &old.groups,
            &new.groups,
            |_, group| group.id.clone(),
            |model, group| keyed(&SECTION_GROUP, &specs::group(model, group), &["id"]),
            GroupIndex,
        ),
        targets: both.list(
            &old.targets,
            &new.targets,
            |_, target| target.name.to_string(),
            |model, target| {
                let target = specs::target(model, target);
                keyed(&SECTION_TARGET, &target, &["name", "portals", "luns"])
            },
            TargetIndex,
        ),
        nbd: both.nbd(),
        hyperscsi: both.hyperscsi(),
        quotas: both.list(
            &old.quotas,
            &new.quotas,
            |_, quota| quota.of.to_string(),
            |_, quota| keyed(&SECTION_QUOTA, &specs::quota(quota), &["owner", "pool"]),
            QuotaIndex,
        ),
        notify: both.notify(),
        server: of_keys(SERVER, old, new),
        limits: of_keys(&LIMIT_VALUES, &old.limits, &new.limits),
        admin: of_keys(&ADMIN, &old.admin, &new.admin),
        confine: of_keys(&CONFINE, &old.confine, &new.confine),
        ..Differences::default()
    };
    both.add_new_secrets(&mut differences.users, new_secrets);
    differences.add_new_passwords(old, new, |_| false);
    match renames {
        Some(renames) => differences.renamed = both.renamed(renames),
        None => both.take_renamed(&mut differences),
    }
    both.compare_within_targets(&mut differences);
    differences
}

/// What a unit of a target is found by: its number, and the first of its groups where the number is shared.
fn lun_identity(model: &Model, entry: &TargetLun, is_shared: bool) -> String {
    let first = entry.groups.first().filter(|_| is_shared);
    let group = first.and_then(|group| model.groups.get(group.position()));
    let group = group.map_or("", |group| group.id.as_str());
    format!("{} {group}", entry.lun)
}

/// What a unit is apart from its name.
fn unit_substance(unit: &Unit) -> String {
    let keys = of_unit(unit).into_iter();
    let keys = keys.map(|(key, value)| format!("{key}={value:?}"));
    keys.collect::<Vec<_>>().join("\0")
}

/// The position of each thing by its identity. Where several have the same, as STOREs of a
/// command line may, the first of them is the first and so on.
fn positions<T>(things: &[T], identity: impl Fn(&T) -> String) -> HashMap<(String, usize), usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut positions = HashMap::new();
    for (position, thing) in things.iter().enumerate() {
        let name = identity(thing);
        let nth = seen.entry(name.clone()).or_default();
        positions.insert((name, *nth), position);
        *nth += 1;
    }
    positions
}

/// The keys that have another value.
fn changes(old: &Keyed, new: &Keyed) -> Vec<KeyChange> {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
    let both = old.iter().zip(new);
    let differ = both.filter(|((_, old), (_, new))| old != new);
    let change = |((key, old), (_, new)): (&(&'static str, _), &(_, _))| KeyChange {
        key,
        old: text(old),
        new: text(new),
    };
    differ.map(change).collect()
}

/// The two models, where one alone is not enough.
/// What differs between two things of a kind.
fn of_keys<T>(keys: &[KeyOf<T>], old: &T, new: &T) -> Vec<KeyChange> {
    changes(&values(keys, old), &values(keys, new))
}

struct Both<'a> {
    old: &'a Model,
    new: &'a Model,
}

impl Both<'_> {
    fn notify(&self) -> Vec<Difference<NotifyIndex>> {
        let name = |_: &Model, notify: &Notify| notify.whole().to_owned();
        self.list(
            &self.old.notify,
            &self.new.notify,
            name,
            |_, notify| values(NOTIFY, notify),
            NotifyIndex,
        )
    }

    fn list<T, I>(
        &self,
        old: &[T],
        new: &[T],
        identity: impl Fn(&Model, &T) -> String,
        keys: impl Fn(&Model, &T) -> Keyed,
        index: impl Fn(usize) -> I,
    ) -> Vec<Difference<I>> {
        let (of_old, of_new) = (
            |thing: &T| identity(self.old, thing),
            |thing: &T| identity(self.new, thing),
        );
        self.matched((old, of_old), (new, of_new), keys, index)
    }

    fn nbd(&self) -> Vec<Difference<NbdIndex>> {
        let name = |_: &Model, server: &NbdServer| server.at.to_string();
        let keys = |model: &Model, server: &NbdServer| {
            let server = specs::nbd(model, server);
            keyed(&SECTION_NBD, &server, &["bind", "socket"])
        };
        self.list(&self.old.nbd, &self.new.nbd, name, keys, NbdIndex)
    }

    fn hyperscsi(&self) -> Vec<Difference<HyperScsiIndex>> {
        let name = |_: &Model, group: &HyperScsiGroup| group.to_string();
        let (old, new) = (&self.old.hyperscsi, &self.new.hyperscsi);
        let keys = |_: &Model, group: &HyperScsiGroup| {
            let group = specs::hyperscsi(group, Said::Whole);
            keyed(
                &SECTION_HYPERSCSI_GROUP,
                &group,
                &["name", "interface", "udp"],
            )
        };
        self.list(old, new, name, keys, HyperScsiIndex)
    }

    /// The units. One that was renamed is found by the `id` it had, which no other unit is found by then.
    fn units(&self, renames: Option<&BTreeMap<String, String>>) -> Vec<Difference<UnitIndex>> {
        let none = BTreeMap::new();
        let renames = renames.unwrap_or(&none);
        let taken: HashSet<&String> = renames.values().collect();
        let before = |unit: &Unit| {
            let name = unit.to_string();
            match renames.get(&name) {
                Some(before) => before.clone(),
                // No `id` is empty.
                None if taken.contains(&name) => String::new(),
                None => name,
            }
        };
        let (old, new) = (&self.old.units, &self.new.units);
        let keys = |_: &Model, unit: &Unit| of_unit(unit);
        self.matched((old, Unit::to_string), (new, before), keys, UnitIndex)
    }

    /// The units of these names, where both models have them.
    fn renamed(&self, renames: &BTreeMap<String, String>) -> Vec<Renamed> {
        let find = |units: &[Unit], id: &str| {
            let at = units.iter().position(|unit| unit.id.as_deref() == Some(id));
            at.map(UnitIndex)
        };
        let found = renames.iter().filter_map(|(new, old)| {
            let (new, old) = (find(&self.new.units, new)?, find(&self.old.units, old)?);
            Some(Renamed { old, new })
        });
        let mut renamed: Vec<_> = found.collect();
        renamed.sort_by_key(|renamed| renamed.new);
        renamed
    }

    /// As [`Both::list`], with what the things of either model are found by.
    fn matched<T, I>(
        &self,
        (old, of_old): (&[T], impl Fn(&T) -> String),
        (new, of_new): (&[T], impl Fn(&T) -> String),
        keys: impl Fn(&Model, &T) -> Keyed,
        index: impl Fn(usize) -> I,
    ) -> Vec<Difference<I>> {
        let old_positions = positions(old, of_old);
        let mut partners: Vec<Option<usize>> = vec![None; new.len()];
        let mut is_kept = vec![false; old.len()];
        for (name, position) in positions(new, of_new) {
            let partner = old_positions.get(&name).copied();
            if let Some(kept) = partner.and_then(|partner| is_kept.get_mut(partner)) {
                *kept = true;
            }
            if let Some(slot) = partners.get_mut(position) {
                *slot = partner;
            }
        }
        let gone = (0..old.len()).zip(&is_kept).filter(|(_, kept)| !**kept);
        let mut differences: Vec<_> = gone
            .map(|(position, _)| Difference::Removed(index(position)))
            .collect();
        for ((position, thing), partner) in new.iter().enumerate().zip(partners) {
            let Some((partner, before)) = partner.and_then(|at| Some((at, old.get(at)?))) else {
                differences.push(Difference::Added(index(position)));
                continue;
            };
            let keys = changes(&keys(self.old, before), &keys(self.new, thing));
            if !keys.is_empty() {
                differences.push(Difference::Changed {
                    old: index(partner),
                    new: index(position),
                    keys,
                });
            }
        }
        differences
    }

    fn add_new_secrets(
        &self,
        users: &mut Vec<Difference<UserIndex>>,
        new_secrets: impl Fn(&str) -> NewSecrets,
    ) {
        let old_positions = positions(&self.old.users, |user| user.name.clone());
        for (position, user) in self.new.users.iter().enumerate() {
            let Some(old) = old_positions.get(&(user.name.clone(), 0)) else {
                continue;
            };
            let NewSecrets { own, mutual } = new_secrets(&user.name);
            let named = [(own, "secret"), (mutual, "mutual secret")];
            let changes: Vec<KeyChange> = named
                .into_iter()
                .filter(|(is_new, _)| *is_new)
                .map(|(_, key)| KeyChange {
                    key,
                    old: "that of before".to_owned(),
                    new: "another one".to_owned(),
                })
                .collect();
            if changes.is_empty() {
                continue;
            }
            let index = UserIndex(position);
            let known = users.iter_mut().find_map(|difference| match difference {
                Difference::Changed { new, keys, .. } if *new == index => Some(keys),
                Difference::Changed { .. } | Difference::Added(_) | Difference::Removed(_) => None,
            });
            match known {
                Some(keys) => keys.extend(changes),
                None => users.push(Difference::Changed {
                    old: UserIndex(*old),
                    new: index,
                    keys: changes,
                }),
            }
        }
    }

    /// Turns a removed and an added unit that are the same but for their name into a renamed one.
    /// Where several could be meant, none is.
    fn take_renamed(&self, differences: &mut Differences) {
        let mut candidates: HashMap<String, (Vec<UnitIndex>, Vec<UnitIndex>)> = HashMap::new();
        for difference in &differences.units {
            match difference {
                Difference::Removed(index) => {
                    if let Some(unit) = self.old.units.get(index.position()) {
                        let substance = unit_substance(unit);
                        candidates.entry(substance).or_default().0.push(*index);
                    }
                }
                Difference::Added(index) => {
                    if let Some(unit) = self.new.units.get(index.position()) {
                        let substance = unit_substance(unit);
                        candidates.entry(substance).or_default().1.push(*index);
                    }
                }
                Difference::Changed { .. } => {}
            }
        }
        for (removed, added) in candidates.into_values() {
            if let ([old], [new]) = (removed.as_slice(), added.as_slice()) {
                let (old, new) = (*old, *new);
                differences.renamed.push(Renamed { old, new });
            }
        }
        differences.renamed.sort_by_key(|renamed| renamed.new);
        let old_ones: HashMap<_, _> = differences.renamed.iter().map(|r| (r.old, r.new)).collect();
        let new_ones: HashMap<_, _> = differences.renamed.iter().map(|r| (r.new, r.old)).collect();
        differences.units.retain(|difference| match difference {
            Difference::Removed(index) => !old_ones.contains_key(index),
            Difference::Added(index) => !new_ones.contains_key(index),
            Difference::Changed { .. } => true,
        });
    }

    fn compare_within_targets(&self, differences: &mut Differences) {
        let renamed: HashMap<_, _> = differences.renamed.iter().map(|r| (r.old, r.new)).collect();
        for (position, target) in self.new.targets.iter().enumerate() {
            let new = TargetIndex(position);
            let Some(old) = self.old.target_names.get(target.name.as_str()).copied() else {
                continue;
            };
            let Some(before) = self.old.targets.get(old.position()) else {
                continue;
            };
            let portals = self.list(
                &before.portals,
                &target.portals,
                |_, portal| portal.bind.to_string(),
                |_, portal| keyed(&SECTION_PORTAL, &specs::portal(portal), &["bind"]),
                |position| position,
            );
            let placed = portals.into_iter().map(|portal| portal.within(old, new));
            differences.portals.extend(placed);

            let (old_luns, new_luns) = (before.luns.entries(), target.luns.entries());
            let luns = self.list(
                old_luns,
                new_luns,
                |model, entry| {
                    let luns = [&before.luns, &target.luns];
                    let is_shared = luns.iter().any(|luns| luns.count_of(entry.lun) > 1);
                    lun_identity(model, entry, is_shared)
                },
                |model, entry| {
                    keyed(
                        &SECTION_TARGET_LUN,
                        &specs::target_lun(model, entry),
                        &["lun"],
                    )
                },
                |position| position,
            );
            let is_same_unit = |old: usize, new: usize| {
                let old = old_luns.get(old);
                let old = old.and_then(|entry| renamed.get(&entry.unit));
                old.is_some() && old == new_luns.get(new).map(|entry| &entry.unit)
            };
            let real = luns
                .into_iter()
                .filter_map(|lun| lun.without_id(is_same_unit));
            let placed = real.map(|lun| lun.within(old, new));
            differences.target_luns.extend(placed);
        }
    }
}

impl Difference<usize> {
    /// The same with the targets that the positions belong to.
    fn within(self, old_target: TargetIndex, new_target: TargetIndex) -> Difference<InTarget> {
        let at = |target, position| InTarget { target, position };
        match self {
            Self::Added(new) => Difference::Added(at(new_target, new)),
            Self::Removed(old) => Difference::Removed(at(old_target, old)),
            Self::Changed { old, new, keys } => Difference::Changed {
                old: at(old_target, old),
                new: at(new_target, new),
                keys,
            },
        }
    }

    /// What is left when a new name of the same unit is no difference.
    fn without_id(self, is_same_unit: impl Fn(usize, usize) -> bool) -> Option<Self> {
        match self {
            Self::Changed { old, new, mut keys } if is_same_unit(old, new) => {
                keys.retain(|change| change.key != "id");
                (!keys.is_empty()).then_some(Self::Changed { old, new, keys })
            }
            Self::Changed { .. } | Self::Added(_) | Self::Removed(_) => Some(self),
        }
    }
}

#[cfg(test)]
mod tests;
