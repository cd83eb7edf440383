//! What a change of the configuration costs: from the differences of two models to the steps of a
//! plan.

use std::collections::{BTreeMap, BTreeSet};

use api::access::Role;
use api::plan::{Action, Kind};
use config::keys::{self, Effective};
use config::{
    CacheMode, Difference, Differences, InTarget, InquiryNames, KeyChange, Model, NamedStore,
    Renamed, StoreIndex, StoreKind, StorePlace, StoreSpec, TargetIndex, Unit, UnitIndex,
};

use super::effect::{Consequence, PlannedStep};
use super::hyperscsi::has_higher_level;

/// Where each unit of the new configuration comes from.
pub(super) struct Match {
    /// By the position of the new unit: the position of the old one.
    pub(super) from: Vec<Option<usize>>,
    /// The position of a unit whose store is opened again though it is at the same place: what is at that place is not
    /// what is open.
    reopened: Option<usize>,
    /// The positions of those that clients of NBD have before or after, who learn of no other medium.
    nbd: BTreeSet<usize>,
}

impl Match {
    /// Of a configuration with itself.
    pub(super) fn itself(model: &Model, reopened: usize) -> Self {
        Self {
            from: (0..model.units().len()).map(Some).collect(),
            reopened: Some(reopened),
            nbd: of_nbd(model).collect(),
        }
    }

    /// Whether the open store of a unit serves for the new one at this position; steps that would need the same
    /// medium twice are refused.
    pub(super) fn keeps(&self, position: usize, before: &Unit, after: &Unit) -> bool {
        !self.is_reopened(position) && after.store.continues(&before.store)
    }

    /// Whether a unit stays what it is, and its store stands for another medium: sessions, reservations and modes stay.
    pub(super) fn exchanges(&self, position: usize, before: &Unit, after: &Unit) -> bool {
        !self.keeps(position, before, after)
            && !self.nbd.contains(&position)
            && may_exchange(before, after)
    }

    /// Whether the store of a unit is opened again.
    pub(super) fn is_reopened(&self, position: usize) -> bool {
        self.reopened == Some(position)
    }

    pub(super) fn of(old: &Model, new: &Model, differences: &Differences) -> Self {
        let names: BTreeMap<String, usize> = old
            .units()
            .iter()
            .map(ToString::to_string)
            .zip(0..)
            .collect();
        let renamed: BTreeMap<UnitIndex, UnitIndex> = differences
            .renamed
            .iter()
            .map(|one| (one.new, one.old))
            .collect();
        let renamed_at: BTreeMap<usize, usize> = renamed
            .iter()
            .map(|(new, old)| (new.position(), old.position()))
            .collect();
        let taken: BTreeSet<usize> = renamed_at.values().copied().collect();
        let from = new.units().iter().enumerate().map(|(position, unit)| {
            let same = || {
                names
                    .get(&unit.to_string())
                    .filter(|at| !taken.contains(at))
            };
            renamed_at.get(&position).or_else(same).copied()
        });
        let from: Vec<_> = from.collect();
        let was_of_nbd: BTreeSet<usize> = of_nbd(old).collect();
        let is_from_nbd = |at: &usize| from.get(*at).copied().flatten();
        let is_from_nbd = |at: &usize| is_from_nbd(at).is_some_and(|at| was_of_nbd.contains(&at));
        let nbd = (0..from.len()).filter(is_from_nbd).chain(of_nbd(new));
        Self {
            nbd: nbd.collect(),
            from,
            reopened: None,
        }
    }
}

/// The positions of the units that clients of NBD have.
fn of_nbd(model: &Model) -> impl Iterator<Item = usize> {
    let servers = model.nbd().iter();
    servers.flat_map(|server| server.luns.iter().map(|lun| lun.position()))
}

/// Whether both are one drive with different media: files or devices with nothing on them, that are used alike.
fn may_exchange(before: &Unit, after: &Unit) -> bool {
    let is_medium = |unit: &Unit| {
        let is_plain = matches!(unit.store.at.place, StorePlace::Path(_) | StorePlace::Empty);
        is_plain && unit.id.is_some() && unit.store.removable && unit.log.is_none()
    };
    let (old, new) = (&before.store, &after.store);
    is_medium(before)
        && is_medium(after)
        && old.is_disk() == new.is_disk()
        && old.block_size == new.block_size
        && old.read_only == new.read_only
        && old.cache == new.cache
        && old.thin == new.thin
}

/// The role that a change of these differences needs.
pub(super) fn needs(differences: &Differences) -> Role {
    let is_size = |one: &Difference<UnitIndex>| match one {
        Difference::Changed { keys, .. } => keys.iter().all(|change| change.key == "size"),
        Difference::Added(_) | Difference::Removed(_) => false,
    };
    let mut rest = differences.clone();
    rest.units.retain(|one| !is_size(one));
    rest.renamed.clear();
    if rest.is_empty() {
        Role::Operator
    } else {
        Role::Admin
    }
}

/// All steps from one configuration to another, in the order in which they make sense to a
/// reader. `sizes_of` returns the sizes of the stores that an old unit's data is on, in bytes, by position.
pub(super) fn steps(
    old: &Model,
    new: &Model,
    differences: &Differences,
    sizes_of: impl Fn(usize) -> Vec<u64>,
) -> Vec<PlannedStep> {
    let models = Models { old, new };
    let mut steps = Vec::new();
    steps.extend(differences.renamed.iter().map(|one| models.renamed(one)));
    for difference in &differences.units {
        let mut one = models.unit(difference, &sizes_of);
        if let Some(holder) = models.holder(difference) {
            one.consequence = Consequence::StoreHeld { holder };
        } else if one.action == Action::Add && models.has_id(&one.name) {
            one.consequence = Consequence::IdHeld {
                id: one.name.clone(),
            };
        }
        steps.push(one);
    }
    steps.extend(differences.stores.iter().map(|one| models.store(one)));
    for difference in &differences.groups {
        let name = |model: &Model, at: config::GroupIndex| {
            Some(model.groups().get(at.position())?.id.clone())
        };
        steps.push(models.plain(Kind::Group, difference, name));
    }
    for difference in &differences.users {
        let name = |model: &Model, at: config::UserIndex| {
            Some(model.users().get(at.position())?.name.clone())
        };
        steps.push(models.plain(Kind::User, difference, name));
    }
    for difference in &differences.targets {
        let mut one = models.plain(Kind::Target, difference, target_name);
        if one.action == Action::Remove {
            one.consequence = Consequence::SessionsEnd;
        }
        steps.push(one);
    }
    for difference in &differences.portals {
        let name = |model: &Model, at: InTarget| {
            let target = model.targets().get(at.target.position())?;
            let portal = target.portals.get(at.position)?;
            Some(format!("{} {}", target.name, portal.bind))
        };
        steps.push(models.plain(Kind::Portal, difference, name));
    }
    for difference in &differences.target_luns {
        let name = |model: &Model, at: InTarget| {
            let target = model.targets().get(at.target.position())?;
            let entry = target.luns.entries().get(at.position)?;
            let shown = unit(model, entry.unit);
            Some(format!("{} LUN {} ({shown})", target.name, entry.lun))
        };
        steps.push(models.plain(Kind::View, difference, name));
    }
    steps.extend(models.of_services(differences));
    for (kind, section, changes) in [
        (Kind::Server, &keys::SECTION_SERVER, &differences.server),
        (Kind::Limits, &keys::SECTION_LIMITS, &differences.limits),
        (Kind::Admin, &keys::SECTION_ADMIN, &differences.admin),
        (Kind::Confine, &keys::SECTION_CONFINE, &differences.confine),
    ] {
        let of_section = |change| key_step(kind, change, Effective::of(section, change.key));
        steps.extend(changes.iter().map(of_section));
    }
    steps
}

fn key_step(kind: Kind, change: &KeyChange, effective: Effective) -> PlannedStep {
    let name = change.key.to_owned();
    PlannedStep {
        consequence: match effective {
            Effective::Now => Consequence::Nothing,
            Effective::NextSessions => Consequence::NextSessions,
            Effective::Restart => Consequence::Restart,
        },
        ..PlannedStep::new(Action::Change, kind, name, change.to_string())
    }
}

fn unit(model: &Model, index: UnitIndex) -> String {
    let unit = model.units().get(index.position());
    unit.map(ToString::to_string).unwrap_or_default()
}

fn store_name(model: &Model, index: StoreIndex) -> Option<String> {
    let store = model.stores().get(index.position())?;
    Some(store.id.clone())
}

fn target_name(model: &Model, index: TargetIndex) -> Option<String> {
    let target = model.targets().get(index.position())?;
    Some(target.name.as_str().to_owned())
}

fn keys_text(keys: &[KeyChange]) -> String {
    let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
    keys.join(", ")
}

/// The two configurations.
struct Models<'a> {
    old: &'a Model,
    new: &'a Model,
}

impl Models<'_> {
    /// A step that nobody is hurt by.
    fn plain<I: Copy>(
        &self,
        kind: Kind,
        difference: &Difference<I>,
        name: impl Fn(&Model, I) -> Option<String>,
    ) -> PlannedStep {
        let (action, name, detail) = match difference {
            Difference::Added(index) => (Action::Add, name(self.new, *index), String::new()),
            Difference::Removed(index) => (Action::Remove, name(self.old, *index), String::new()),
            Difference::Changed { new, keys, .. } => {
                (Action::Change, name(self.new, *new), keys_text(keys))
            }
        };
        PlannedStep::new(action, kind, name.unwrap_or_default(), detail)
    }

    /// What is not iSCSI, quotas, and who gets events.
    fn of_services(&self, differences: &Differences) -> Vec<PlannedStep> {
        let nbd = differences.nbd.iter().map(|one| self.nbd(one));
        let hyperscsi = differences.hyperscsi.iter();
        let hyperscsi = hyperscsi.map(|one| self.hyperscsi(one));
        let quotas = differences.quotas.iter().map(|one| self.quota(one));
        let notify = differences.notify.iter().map(|one| self.notify(one));
        let others = nbd.chain(hyperscsi).chain(quotas);
        others.chain(notify).collect()
    }

    fn nbd(&self, difference: &Difference<config::NbdIndex>) -> PlannedStep {
        let name = |model: &Model, at: config::NbdIndex| {
            Some(model.nbd().get(at.position())?.at.to_string())
        };
        let mut one = self.plain(Kind::Nbd, difference, name);
        if one.action == Action::Remove {
            one.consequence = Consequence::SessionsEnd;
        }
        one
    }

    fn hyperscsi(&self, difference: &Difference<config::HyperScsiIndex>) -> PlannedStep {
        let name = |model: &Model, at: config::HyperScsiIndex| {
            Some(model.hyperscsi().get(at.position())?.to_string())
        };
        let mut one = self.plain(Kind::HyperScsi, difference, name);
        let is_of_logins = |change: &KeyChange| matches!(change.key, "retransmit" | "profile");
        one.consequence = match difference {
            Difference::Removed(_) => Consequence::SessionsEnd,
            Difference::Changed { keys, .. } if keys.iter().all(is_of_logins) => {
                Consequence::NextSessions
            }
            Difference::Changed { old, new, .. } => {
                let old = self.old.hyperscsi().get(old.position());
                let both = old.zip(self.new.hyperscsi().get(new.position()));
                match both.is_some_and(|(old, new)| has_higher_level(old, new)) {
                    true => Consequence::AccessEnds,
                    false => Consequence::Nothing,
                }
            }
            Difference::Added(_) => Consequence::Nothing,
        };
        one
    }

    fn store(&self, difference: &Difference<StoreIndex>) -> PlannedStep {
        self.plain(Kind::Store, difference, store_name)
    }

    fn quota(&self, difference: &Difference<config::QuotaIndex>) -> PlannedStep {
        let name = |model: &Model, at: config::QuotaIndex| {
            Some(model.quotas().get(at.position())?.of.to_string())
        };
        self.plain(Kind::Quota, difference, name)
    }

    /// Its secret and the way to it are out of reach once the start is over.
    fn notify(&self, difference: &Difference<config::NotifyIndex>) -> PlannedStep {
        let name = |model: &Model, at: config::NotifyIndex| {
            Some(model.notify().get(at.position())?.name().to_owned())
        };
        PlannedStep {
            consequence: Consequence::Restart,
            ..self.plain(Kind::Notify, difference, name)
        }
    }

    fn renamed(&self, renamed: &Renamed) -> PlannedStep {
        let (before, after) = (unit(self.old, renamed.old), unit(self.new, renamed.new));
        let detail = format!("id: {before:?} -> {after:?}");
        let mut one = PlannedStep::new(Action::Change, Kind::Lun, before, detail);
        if self.has_id(&after) {
            one.consequence = Consequence::IdHeld { id: after };
        }
        one
    }

    /// A unit of the old configuration has this `id`. One that is new, or gets it, is another: initiators and the
    /// ledger of identities know one unit by it until the change is made.
    fn has_id(&self, id: &str) -> bool {
        let mut units = self.old.units().iter();
        units.any(|unit| unit.id.as_deref() == Some(id))
    }

    /// The unit that has the store which another one is to get: it is open until the change is
    /// made, and a store is not opened twice.
    fn holder(&self, difference: &Difference<UnitIndex>) -> Option<String> {
        let (own, new) = match difference {
            Difference::Added(new) => (None, new),
            Difference::Removed(_) => return None,
            Difference::Changed { old, new, .. } => (Some(old.position()), new),
        };
        let wanted = self.new.units().get(new.position())?;
        let mut others = self.old.units().iter().enumerate();
        let holder =
            others.find(|(position, unit)| Some(*position) != own && share_medium(unit, wanted));
        holder.map(|(_, unit)| unit.to_string())
    }

    fn unit(
        &self,
        difference: &Difference<UnitIndex>,
        sizes_of: impl Fn(usize) -> Vec<u64>,
    ) -> PlannedStep {
        let mut one = self.plain(Kind::Lun, difference, |model, at| Some(unit(model, at)));
        match difference {
            Difference::Added(index) => {
                let added = self.new.units().get(index.position());
                one.detail = added.map(|unit| unit.store.to_string()).unwrap_or_default();
            }
            Difference::Removed(index) => {
                let removed = self.old.units().get(index.position());
                one.detail = removed
                    .map(|unit| unit.store.to_string())
                    .unwrap_or_default();
                one.consequence = Consequence::UnitGoes {
                    in_memory: removed.is_some_and(is_in_memory),
                };
            }
            Difference::Changed { old, new, keys } => {
                let units = self.old.units().get(old.position());
                let units = units.zip(self.new.units().get(new.position()));
                if let Some((before, after)) = units {
                    let sizes = sizes_of(old.position());
                    one.consequence = changed_unit(before, after, keys, &sizes);
                }
            }
        }
        one
    }
}

/// Whether the data of a unit is nowhere else than in the memory of this process.
fn is_in_memory(unit: &Unit) -> bool {
    unit.memory_bytes() > 0
}

/// Whether two units have a file, a device or an export in common.
fn share_medium(one: &Unit, other: &Unit) -> bool {
    one.media()
        .any(|medium| other.media().any(|it| it == medium))
}

/// What other keys of a unit cost, its parts having these sizes in bytes now.
fn changed_unit(before: &Unit, after: &Unit, keys: &[KeyChange], sizes: &[u64]) -> Consequence {
    let mut keys: BTreeSet<&str> = keys.iter().map(|change| change.key).collect();
    // Initiators do not know whose disk it is, nor when it is copied.
    keys.retain(|key| !matches!(*key, "owner" | "snapshots"));
    if keys.is_empty() {
        return Consequence::Nothing;
    }
    let (old_medium, new_medium) = (before.store.at.medium(), after.store.at.medium());
    if keys.contains("serial") || keys.contains("naa") {
        return Consequence::OtherIdentity;
    }
    // Of more than these the other keys say the cost.
    let is_named = InquiryNames::KEYS
        .map(|key| keys.remove(key))
        .contains(&true);
    if is_named && keys.is_empty() {
        return Consequence::OtherNames;
    }
    if !before.store.members().is_empty() || !after.store.members().is_empty() {
        return changed_composition(before, after, sizes);
    }
    if old_medium.is_none() && new_medium.is_none() {
        return Consequence::MemoryLost;
    }
    if old_medium != new_medium && before.log.is_some() {
        return Consequence::OpenTwice;
    }
    if old_medium != new_medium {
        return Consequence::OtherStore {
            in_memory: is_in_memory(before),
        };
    }
    let cache = keys
        .take("cache")
        .map(|_| changed_cache(before.store.cache, after.store.cache));
    let size = keys
        .take("size")
        .map(|_| changed_size(after.store.size_bytes, sizes.first()));
    if !keys.is_empty() {
        return Consequence::OpenTwice;
    }
    cache.or(size).unwrap_or(Consequence::Nothing)
}

/// What another write cache costs. Past the page cache a file is opened in another way.
const fn changed_cache(before: CacheMode, after: CacheMode) -> Consequence {
    match (before, after) {
        (CacheMode::Writeback, CacheMode::Writethrough) => Consequence::WritesThrough,
        (CacheMode::Writethrough, CacheMode::Writeback) => Consequence::WritesBack,
        (CacheMode::Direct, _) | (_, CacheMode::Direct) => Consequence::OpenTwice,
        (CacheMode::Writeback, CacheMode::Writeback)
        | (CacheMode::Writethrough, CacheMode::Writethrough) => Consequence::Nothing,
    }
}

/// What the size costs that is written for a store of another one: it is the least that the store has.
fn changed_size(wanted: Option<u64>, size: Option<&u64>) -> Consequence {
    match (wanted, size) {
        (Some(wanted_bytes), Some(&size_bytes)) if wanted_bytes < size_bytes => {
            Consequence::Keeps { size_bytes }
        }
        (Some(_) | None, _) => Consequence::Nothing,
    }
}

/// What another composition costs, or one in the place of something else.
fn changed_composition(before: &Unit, after: &Unit, sizes: &[u64]) -> Consequence {
    let (old, new) = (&before.store, &after.store);
    if !new.continues(old) {
        let has_media = before.media().chain(after.media()).next().is_some();
        return match (share_medium(before, after), has_media) {
            (true, _) => Consequence::OpenTwice,
            (false, true) => Consequence::OtherStore {
                in_memory: is_in_memory(before),
            },
            (false, false) => Consequence::MemoryLost,
        };
    }
    if (old.read_only, old.removable) != (new.read_only, new.removable) {
        return Consequence::OpenTwice;
    }
    let members = old.members().iter().zip(new.members()).enumerate();
    let last = old.members().len().saturating_sub(1);
    let is_concat = old.at.kind == StoreKind::Concat;
    let mut costs = members.map(|(position, both)| {
        let moves = is_concat && position != last;
        changed_member(both, (is_concat, moves), sizes.get(position))
    });
    let cost = costs.find(|cost| !cost.is_harmless());
    cost.unwrap_or(Consequence::Nothing)
}

/// What another member in the place of one with the same data costs. With `moves` other data of a concat lies behind
/// it.
fn changed_member(
    (before, after): (&NamedStore, &NamedStore),
    (is_concat, moves): (bool, bool),
    size: Option<&u64>,
) -> Consequence {
    let plain = |store: &StoreSpec| StoreSpec {
        text: String::new(),
        size_bytes: None,
        ..store.clone()
    };
    let (old, new) = (&before.store, &after.store);
    if plain(old) != plain(new) {
        return Consequence::OpenTwice;
    }
    if old.size_bytes == new.size_bytes {
        return Consequence::Nothing;
    }
    match (moves, new.size_bytes, size) {
        (true, _, _) => Consequence::MemberMoves {
            id: after.id.clone(),
        },
        // A concat has of its members what their sizes say.
        (false, Some(wanted_bytes), Some(&size_bytes))
            if is_concat && wanted_bytes < size_bytes =>
        {
            Consequence::Shrinks {
                size_bytes,
                wanted_bytes,
            }
        }
        (false, wanted, size) => changed_size(wanted, size),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use api::plan::Effect;

    use super::*;

    const BASE: &str = r#"
[[lun]]
id = "f"
store = "file:/srv/f.img?size=8M"
[[lun]]
id = "m"
store = "mem:8M"
[[lun]]
id = "n"
store = "nbd+unix:///a?socket=/run/s"
[[group]]
id = "g"
initiators = ["iqn.a:*"]
[[target]]
name = "iqn.2026-11.example:t"
luns = [{ lun = 0, id = "f" }, { lun = 1, id = "m", groups = ["g"] }]
[limits]
queue_depth = 32
"#;

    #[test]
    fn only_media_that_are_used_alike_are_exchanged() {
        let unit = |store: &str| {
            let text = format!("[[lun]]\nid = \"a\"\nstore = \"{store}\"\n");
            let model = Model::from_toml(&text, Path::new("/etc/t.toml")).unwrap();
            model.units()[0].clone()
        };
        let usual = "file:/a?removable";
        for (before, after, expected) in [
            ("cdrom:/a.iso", "cdrom:/b.iso", true),
            ("cdrom:", "cdrom:/b.iso", true),
            ("cdrom:/a.iso", "cdrom:", true),
            (usual, "file:/b?removable", true),
            (usual, "file:/b", false),
            (usual, "cdrom:/b.iso", false),
            (usual, "file:/b?removable&blocksize=4096", false),
            (usual, "file:/b?removable&readonly", false),
            (usual, "file:/b?removable&cache=writethrough", false),
            (usual, "file:/b?removable&thin=false", false),
            ("mem:1M?removable", "mem:1M?removable", false),
        ] {
            let (one, other) = (unit(before), unit(after));
            assert_eq!(may_exchange(&one, &other), expected, "{before} {after}");
            assert_eq!(may_exchange(&other, &one), expected, "{after} {before}");
        }
        let lun = |disc: &str| format!("[[lun]]\nid = \"a\"\nstore = \"cdrom:{disc}\"\n");
        let cost = effects(&lun("/a.iso"), &lun("/b.iso"));
        assert_eq!(cost, [(Action::Change, Kind::Lun, Effect::Drains)]);
    }

    /// Named stores and disks of them.
    const MEMBERS: &str = r#"
[[store]]
id = "a"
store = "file:/srv/a.img?size=1M"
[[store]]
id = "b"
store = "file:/srv/b.img?size=1M"
[[store]]
id = "u"
store = "file:/srv/u.img?size=1M"
[[store]]
id = "p"
store = "file:/srv/p.img?size=1M"
[[store]]
id = "q"
store = "file:/srv/q.img?size=1M"
[[lun]]
id = "c"
store = "concat:a,b"
[[lun]]
id = "s"
store = "stripe:p,q"
"#;

    /// The sizes that are configured, or 8 MiB.
    fn sizes_of(model: &Model, at: usize) -> Vec<u64> {
        let size = |(store, _): (&StoreSpec, _)| store.configured_size_bytes().unwrap_or(8 << 20);
        model.units()[at].parts().map(size).collect()
    }

    fn effects(old: &str, new: &str) -> Vec<(Action, Kind, Effect)> {
        let model = |text| Model::from_toml(text, Path::new("/etc/t.toml")).unwrap();
        let (old, new) = (model(old), model(new));
        let differences = config::diff(&old, &new);
        let steps = steps(&old, &new, &differences, |at| sizes_of(&old, at));
        steps
            .into_iter()
            .map(|one| (one.action, one.kind, api::plan::Step::from(one).effect))
            .collect()
    }

    #[test]
    fn a_store_that_another_lun_has_until_the_change_is_refused_with_that_reason() {
        let model = |text: &str| Model::from_toml(text, Path::new("/etc/t.toml")).unwrap();
        let second = "[[lun]]\nid = \"s\"\nstore = \"file:/srv/s.img?size=8M\"\n";
        let old = format!("{BASE}{second}");
        let swapped = old
            .replace("/srv/f.img", "/srv/x.img")
            .replace("/srv/s.img", "/srv/f.img")
            .replace("/srv/x.img", "/srv/s.img");
        let moved = BASE.replace("/srv/f.img", "/srv/s.img");
        for (new, reasons) in [(swapped, 2), (moved, 1)] {
            let (old, new) = (model(&old), model(&new));
            let steps = steps(&old, &new, &config::diff(&old, &new), |at| {
                sizes_of(&old, at)
            });
            let is_held =
                |step: &&PlannedStep| matches!(step.consequence, Consequence::StoreHeld { .. });
            let refused = steps.iter().filter(is_held);
            assert_eq!(refused.count(), reasons);
        }
    }

    /// What is replaced in the configuration, by what, the step that this is.
    #[rustfmt::skip]
    const COSTS: &[(&str, &str, (Action, Kind, Effect))] = &[
        ("size=8M", "size=16M", (Action::Change, Kind::Lun, Effect::Online)),
        ("size=8M", "size=4M", (Action::Change, Kind::Lun, Effect::Online)),
        ("size=8M", "size=8M&cache=direct", (Action::Change, Kind::Lun, Effect::Refused)),
        ("size=8M", "size=8M&cache=writethrough", (Action::Change, Kind::Lun, Effect::Online)),
        ("size=8M", "size=16M&cache=writethrough", (Action::Change, Kind::Lun, Effect::Online)),
        ("size=8M", "size=8M&cache=writethrough&thin=false", (Action::Change, Kind::Lun, Effect::Refused)),
        ("file:/srv/f.img", "file:/srv/other.img", (Action::Change, Kind::Lun, Effect::Drains)),
        ("size=8M", "size=8M\"\nlog = \"file:/srv/l.img?size=16M", (Action::Change, Kind::Lun, Effect::Refused)),
        ("size=8M", "size=8M\"\nsnapshots = { daily = 7 }\nowner = \"o", (Action::Change, Kind::Lun, Effect::Online)),
        ("/run/s", "/run/t", (Action::Change, Kind::Lun, Effect::Drains)),
        ("/run/s", "/run/s&retry=0", (Action::Change, Kind::Lun, Effect::Refused)),
        ("mem:8M", "mem:16M", (Action::Change, Kind::Lun, Effect::Refused)),
        ("mem:8M", "mem:8M?serial=x", (Action::Change, Kind::Lun, Effect::Refused)),
        ("size=8M", "size=8M\"\nvendor = \"IET", (Action::Change, Kind::Lun, Effect::Online)),
        ("iqn.a:*", "iqn.b:*", (Action::Change, Kind::Group, Effect::Online)),
        (", { lun = 1, id = \"m\", groups = [\"g\"] }", "", (Action::Remove, Kind::View, Effect::Online)),
        ("lun = 0, id", "lun = 0, readonly = true, id", (Action::Change, Kind::View, Effect::Online)),
        ("[limits]\nqueue_depth = 32", "[limits]\nqueue_depth = 64", (Action::Change, Kind::Limits, Effect::Online)),
        ("[limits]", "[limits]\nsessions_max = 9", (Action::Change, Kind::Limits, Effect::Online)),
        ("[limits]", "[limits]\npool_per_core_bytes = \"64M\"", (Action::Change, Kind::Limits, Effect::Pending)),
        ("queue_depth = 32", "queue_depth = 32\ninitial_r2t = true", (Action::Change, Kind::Limits, Effect::Online)),
        ("queue_depth = 32", "queue_depth = 32\nslow_command_ms = 5", (Action::Change, Kind::Limits, Effect::Online)),
        ("[limits]", "[server]\ncores = 3\n[limits]", (Action::Change, Kind::Server, Effect::Pending)),
        ("[limits]", "[server]\nlog = \"debug\"\n[limits]", (Action::Change, Kind::Server, Effect::Online)),
        ("[limits]", "[confine]\nseccomp = false\n[limits]", (Action::Change, Kind::Confine, Effect::Pending)),
        ("[limits]", "[[user]]\nname = \"u\"\nsecret_file = \"s\"\n[limits]", (Action::Add, Kind::User, Effect::Online)),
        ("luns = [", "portals = [\"127.0.0.1:3261\", \"127.0.0.1:3260\"]\nluns = [", (Action::Add, Kind::Portal, Effect::Online)),
        ("[limits]", "[[nbd]]\nluns = [\"m\"]\n[limits]", (Action::Add, Kind::Nbd, Effect::Online)),
        ("[limits]", "[[hyperscsi.group]]\nname = \"G\"\nudp = \"[::1]\"\nopen = true\ndevice = [{ id = \"m\" }]\n[limits]",
            (Action::Add, Kind::HyperScsi, Effect::Online)),
        ("[limits]", "[[target]]\nname = \"iqn.2026-11.example:n\"\n[limits]", (Action::Add, Kind::Target, Effect::Online)),
    ];

    /// The same, of disks of several stores.
    #[rustfmt::skip]
    const COSTS_OF_MEMBERS: &[(&str, &str, (Action, Kind, Effect))] = &[
        ("concat:a,b", "concat:a,b,u", (Action::Change, Kind::Lun, Effect::Online)),
        ("concat:a,b", "concat:b,a", (Action::Change, Kind::Lun, Effect::Refused)),
        ("concat:a,b", "concat:a", (Action::Change, Kind::Lun, Effect::Refused)),
        ("concat:a,b", "concat:u", (Action::Change, Kind::Lun, Effect::Drains)),
        ("concat:a,b", "mem:1M", (Action::Change, Kind::Lun, Effect::Drains)),
        ("concat:a,b", "concat:a,b?readonly", (Action::Change, Kind::Lun, Effect::Refused)),
        ("/srv/b.img?size=1M", "/srv/b.img?size=2M", (Action::Change, Kind::Lun, Effect::Online)),
        ("/srv/b.img?size=1M", "/srv/b.img", (Action::Change, Kind::Lun, Effect::Online)),
        ("/srv/b.img?size=1M", "/srv/b.img?size=512k", (Action::Change, Kind::Lun, Effect::Refused)),
        ("/srv/a.img?size=1M", "/srv/a.img?size=2M", (Action::Change, Kind::Lun, Effect::Refused)),
        ("/srv/b.img?size=1M", "/srv/b.img?size=1M&cache=writethrough", (Action::Change, Kind::Lun, Effect::Refused)),
        ("/srv/b.img?size=1M", "/srv/b.img?size=1M&cache=direct", (Action::Change, Kind::Lun, Effect::Refused)),
        ("/srv/u.img", "/srv/v.img", (Action::Change, Kind::Store, Effect::Online)),
        ("stripe:p,q", "stripe:p,q,u", (Action::Change, Kind::Lun, Effect::Refused)),
        ("stripe:p,q", "stripe:p,q?chunk=16k", (Action::Change, Kind::Lun, Effect::Refused)),
    ];

    /// The steps of edits that make the second configuration of the first, with these renames.
    fn after_renames(
        old: &str,
        new: &str,
        renames: &[(&str, &str)],
    ) -> (Vec<PlannedStep>, Match, Role) {
        let model = |text: &str| Model::from_toml(text, Path::new("/etc/t.toml")).unwrap();
        let (old, new) = (model(old), model(new));
        let text = |(new, old): &(&str, &str)| ((*new).to_owned(), (*old).to_owned());
        let renames = renames.iter().map(text).collect();
        let differences = config::diff_with(&old, &new, Some(&renames), |_| {
            config::NewSecrets::default()
        });
        let units = Match::of(&old, &new, &differences);
        let needs = needs(&differences);
        (
            steps(&old, &new, &differences, |at| sizes_of(&old, at)),
            units,
            needs,
        )
    }

    fn memory(ids: &[&str]) -> String {
        let lun = |id: &&str| format!("[[lun]]\nid = \"{id}\"\nstore = \"mem:8M\"\n");
        ids.iter().map(lun).collect()
    }

    #[test]
    fn luns_renamed_by_edits_are_what_they_were_though_they_are_all_the_same() {
        let renames = [("z", "a"), ("y", "b")];
        let (steps, units, needs) =
            after_renames(&memory(&["a", "b"]), &memory(&["z", "y"]), &renames);
        assert_eq!(units.from, [Some(0), Some(1)]);
        assert!(steps.iter().all(|one| one.consequence.is_harmless()) && steps.len() == 2);
        assert_eq!(needs, Role::Operator);
        let (grown, base) = (BASE.replace("f.img?size=8M", "f.img?size=16M"), BASE);
        let (steps, units, needs) =
            after_renames(base, &grown.replace("\"f\"", "\"g\""), &[("g", "f")]);
        assert_eq!(units.from, [Some(0), Some(1), Some(2)]);
        assert_eq!((steps.len(), needs), (2, Role::Operator));
        let lost = BASE.replace("mem:8M", "mem:16M").replace("\"m\"", "\"k\"");
        let (steps, ..) = after_renames(BASE, &lost, &[("k", "m")]);
        let refused = steps
            .iter()
            .filter(|one| one.consequence == Consequence::MemoryLost);
        assert_eq!(refused.count(), 1, "{steps:?}");
    }

    #[test]
    fn an_id_never_means_another_lun_after_a_change() {
        let two = memory(&["a", "b"]);
        for (new, renames) in [
            (memory(&["b", "a"]), &[("a", "b"), ("b", "a")][..]),
            (memory(&["t", "a"]), &[("t", "a"), ("a", "b")]),
            (memory(&["t", "b", "a"]), &[("t", "a")]),
            (memory(&["b"]), &[("b", "a")]),
        ] {
            let (steps, ..) = after_renames(&two, &new, renames);
            let is_held = |one: &PlannedStep| matches!(one.consequence, Consequence::IdHeld { .. });
            assert!(steps.iter().any(is_held), "{renames:?}: {steps:?}");
        }
    }

    #[test]
    fn what_edits_of_an_operator_cannot_cause_needs_an_admin() {
        for (from, to, expected) in [
            ("size=8M", "size=16M", Role::Operator),
            ("size=8M", "size=8M&cache=direct", Role::Admin),
            ("iqn.a:*", "iqn.b:*", Role::Admin),
            (
                ", { lun = 1, id = \"m\", groups = [\"g\"] }",
                "",
                Role::Admin,
            ),
        ] {
            assert_eq!(
                after_renames(BASE, &BASE.replace(from, to), &[]).2,
                expected,
                "{to}"
            );
        }
        assert_eq!(
            after_renames(&memory(&["a"]), &memory(&["b"]), &[]).2,
            Role::Admin
        );
    }

    #[test]
    fn the_loss_of_what_is_in_memory_is_told() {
        let told = |from: &str, to: &str| {
            let model = |text: &str| Model::from_toml(text, Path::new("/etc/t.toml")).unwrap();
            assert!(BASE.contains(from), "{from}");
            let (old, new) = (model(BASE), model(&BASE.replace(from, to)));
            let steps = steps(&old, &new, &config::diff(&old, &new), |at| {
                sizes_of(&old, at)
            });
            let is_told = |step: &PlannedStep| step.consequence.to_string().contains("in memory");
            steps.iter().any(is_told)
        };
        let unit = "[[lun]]\nid = \"m\"\nstore = \"mem:8M\"\n";
        let view = ", { lun = 1, id = \"m\", groups = [\"g\"] }";
        let gone = BASE.replace(unit, "").replace(view, "");
        assert!(told("mem:8M", "file:/srv/m.img?size=8M"));
        assert!(told(BASE, &gone));
        assert!(!told("file:/srv/f.img", "file:/srv/other.img"));
    }

    #[test]
    fn every_change_has_its_cost() {
        for &(from, to, expected) in COSTS {
            assert!(BASE.contains(from), "{from}");
            let found = effects(BASE, &BASE.replace(from, to));
            assert_eq!(found, [expected], "{from} -> {to}");
        }
        for &(from, to, expected) in COSTS_OF_MEMBERS {
            assert!(MEMBERS.contains(from), "{from}");
            let mut found = effects(MEMBERS, &MEMBERS.replace(from, to));
            // What another named store costs, the lun says that has it.
            found.retain(|(_, kind, _)| *kind != Kind::Store || expected.1 == Kind::Store);
            assert_eq!(found, [expected], "{from} -> {to}");
        }
        let renamed = BASE.replace("\"f\"", "\"better\"");
        assert_eq!(
            effects(BASE, &renamed),
            [(Action::Change, Kind::Lun, Effect::Online)]
        );
    }
}
