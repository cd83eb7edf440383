//! What a change needs, looked at before anything is changed: the first half of a change. A plan is a look that is
//! dropped; a change keeps what the look has ([`Kept`]) and goes on with [`take`](super::take). So the two say the same.
//!
//! A look locates stores and opens what is there for reading, compares where they lead and what they are with what is
//! wanted and with what was served, reads certificates, and binds addresses at which nobody listens yet. It makes,
//! lengthens, writes and locks nothing, opens no log, and dropping it leaves nothing behind. All mistakes are named, not
//! the first one only. Servers that have stores are connected to, and these connections serve the change.
//!
//! It shares the attempts of all changes and plans ([`super::attempts`]): a path that hangs has one thread, and a plan
//! waits for all its calls together no longer than [`Attempts::begin_plan`](super::attempts::Attempts::begin_plan)
//! says. What it does not come to in that time is named as not looked at, and no change takes it. What is served is not
//! opened a second time.

mod directories;
mod together;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use admin::ServiceTls;
use api::plan::{Action, Kind, Step};
use api::problem::{Mistake, Problem, ProblemKind};
use config::{Model, Place, StoreSpec, Unit};
use confine::inherited::Inherited;
use reactor::net::Families;
use store::{Form, SharedStore};

use super::attempts::{Patience, on_thread};
use super::control::Acceptance;
use super::effect::{Consequence, PlannedStep};
use super::held::Withheld;
use super::hyperscsi::{BoundSites, look_at_places};
use super::log_device::look_at_device;
use super::open::{OpenStore, Opener, look_at_socket, open_members, open_with, read_all_tls};
use super::own_sockets::{BoundAddress, OwnSockets};
use super::running::{Running, RunningUnit};
use super::served::{Expected, FoundPart, look_expected};
use super::steps::Match;
use super::{next_start, quotas};
use crate::administration::{AdminListening, bind_new, check_certificate};
use crate::locate::{Location, check_uses, double_uses, locate_store};
use crate::state::{LedgerChange, Rename, State, path_of};
use crate::{StartError, headroom};

/// What a change is made with.
pub(super) struct Means<'a> {
    pub(super) state: &'a State,
    pub(super) inherited: &'a Inherited,
    pub(super) patience: Patience<'a>,
    /// What opens new stores.
    pub(super) opener: Opener,
    /// The settings of the process that it was started with.
    pub(super) begun: &'a Model,
    /// Where the administration listens, if there is one.
    pub(super) administration: Option<&'a AdminListening>,
}

/// What a look has found.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// Everything that is wrong.
    pub(super) mistakes: Vec<StartError>,
    /// What there was no time to look at.
    pub(super) not_probed: Vec<String>,
    /// By the name of the unit: how large the medium is that it would get.
    pub(super) sizes: BTreeMap<String, u64>,
    pub(super) kept: Kept,
}

/// What a look has, for a change that takes it up.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// By the position of the unit in the new configuration.
    pub(super) units: Vec<LookedUnit>,
    /// By the position of the server of NBD.
    pub(super) tls: Vec<Option<ServiceTls>>,
    pub(super) addresses: BoundAddresses,
    /// Addresses of the administration.
    pub(super) administration: Vec<(SocketAddr, BoundAddress)>,
    pub(super) sites: BoundSites,
}

/// Addresses where nobody listens yet, and whether clients of NBD are to come in there.
pub(crate) type BoundAddresses = BTreeMap<(SocketAddr, bool), BoundAddress>;

/// A unit of the new configuration, as it was found.
#[derive(Debug, Default)]
pub(super) struct LookedUnit {
    /// Where it is, or will be.
    pub(super) location: Option<Location>,
    /// What its parts have to be.
    pub(super) expected: Expected,
    /// The parts that it does not have yet, in their order; fewer, where there was no time for all.
    pub(super) parts: Vec<LookedPart>,
    /// Its log device, if that is new.
    pub(super) log: Option<Arc<dyn SharedStore>>,
    /// It can be opened by the next start only, and was not looked at.
    pub(super) waits: bool,
}

/// A part of a unit.
#[derive(Debug)]
pub(super) struct LookedPart {
    pub(super) found: FoundPart,
    pub(super) location: Option<Location>,
}

/// What is planned, and what it is made with.
pub(super) struct Look<'a> {
    pub(super) old: &'a Running,
    pub(super) model: &'a Model,
    pub(super) units: &'a Match,
    pub(super) steps: &'a mut Vec<PlannedStep>,
    pub(super) means: &'a Means<'a>,
    /// The configuration file.
    pub(super) file: &'a Path,
    pub(super) looked: Looked,
}

/// What is compared of a unit with others.
#[derive(Default)]
struct Uses {
    /// Where its log is, if that is to be opened.
    log: Option<Location>,
    /// The stores that quotas count, as far as they are known.
    counted: Vec<Arc<dyn SharedStore>>,
}

impl Look<'_> {
    /// Looks at everything. Steps that cannot be carried out are refused with the reason.
    pub(super) fn run(mut self, secrets: Vec<StartError>) -> Looked {
        for error in secrets {
            self.wrong(error, |_| false);
        }
        if let Err(error) = headroom::allow(&self.old.model, self.model) {
            let has_memory =
                |step: &PlannedStep| step.kind == Kind::Lun && step.detail.starts_with("mem:");
            self.wrong(error, has_memory);
        }
        let model = self.model;
        let seen = model.units().iter().enumerate();
        let (units, uses): (Vec<_>, Vec<_>) = seen
            .map(|(position, unit)| self.unit(position, unit))
            .unzip();
        let locations: Vec<_> = units.iter().map(|one| one.location.clone()).collect();
        self.looked.kept.units = units;
        self.uses(&locations, &uses);
        self.space();
        self.schedules();
        self.quotas(uses);
        self.directories();
        self.identities(&locations);
        self.certificates();
        self.process();
        self.addresses();
        let mistakes = &mut self.looked.mistakes;
        mistakes.sort_by_key(|error| line_of(&error.to_string()));
        self.looked
    }

    /// Notes a mistake, and refuses the steps it is of.
    fn wrong(&mut self, error: StartError, is_its: impl Fn(&PlannedStep) -> bool) {
        let text = crate::error::chain(&error);
        for step in self.steps.iter_mut().filter(|step| is_its(step)) {
            if let Consequence::Wrong(before) = &mut step.consequence {
                if !before.contains(&text) {
                    before.push_str("; ");
                    before.push_str(&text);
                }
            } else if !step.consequence.is_refused_by_rule() {
                step.consequence = Consequence::Wrong(text.clone());
            }
        }
        self.looked.mistakes.push(error);
    }

    fn wrong_unit(&mut self, unit: &Unit, error: StartError) {
        let name = unit.to_string();
        self.wrong(error, |step| step.kind == Kind::Lun && step.name == name);
    }

    /// Whether a step of the unit comes to something.
    fn comes_to(&self, unit: &Unit, what: impl Fn(&Consequence) -> bool) -> bool {
        let name = unit.to_string();
        let mut steps = self.steps.iter();
        steps.any(|step| step.kind == Kind::Lun && step.name == name && what(&step.consequence))
    }

    fn is_refused(&self, unit: &Unit) -> bool {
        self.comes_to(unit, Consequence::is_refused_by_rule)
    }

    fn is_wrong(&self, unit: &Unit) -> bool {
        self.comes_to(unit, |it| matches!(it, Consequence::Wrong(_)))
    }

    fn unit(&mut self, position: usize, unit: &Unit) -> (LookedUnit, Uses) {
        let (old, units) = (self.old, self.units);
        let at = units.from.get(position).copied().flatten();
        let served = at.and_then(|at| Some((old.model.units().get(at)?, old.units.get(at)?)));
        if let Some((before, served)) = served
            && units.keeps(position, before, unit)
        {
            return self.kept_unit(unit, served);
        }
        let mut looked = LookedUnit::default();
        if self.is_refused(unit) {
            return (looked, Uses::default());
        }
        looked.waits = self.comes_to(unit, |it| *it == Consequence::Restart);
        let locations = self.locate(unit, unit.parts(), &mut looked);
        if looked.waits {
            let name = format!("the store of {unit}: the next start opens it");
            self.looked.not_probed.push(name);
            return (looked, Uses::default());
        }
        let served = served.map(|(_, served)| served);
        let location = looked.location.as_ref();
        if location.is_some_and(|location| self.is_in_use(unit, (at, served), location)) {
            return (looked, Uses::default());
        }
        let log = self.locate_log(unit);
        let counted = self.open(unit, locations, &mut looked);
        (looked, Uses { log, counted })
    }

    /// Whether what a unit is to have is in use until the change is made, by the unit that it comes from or by another
    /// one. Its step is refused for that, unless the use is to be named with its place, as all that is used twice.
    fn is_in_use(
        &mut self,
        unit: &Unit,
        (own, served): (Option<usize>, Option<&RunningUnit>),
        location: &Location,
    ) -> bool {
        let (old, units) = (self.old, self.units);
        let has_it = |unit: &RunningUnit| {
            let theirs = unit.location.as_ref();
            theirs.is_some_and(|theirs| theirs.shares(location))
        };
        let others = (0..).zip(&old.units);
        let others = others.filter(|(at, unit)| Some(*at) != own && has_it(unit));
        let others: Vec<usize> = others.map(|(at, _)| at).collect();
        let mut going = others.iter().filter(|at| !units.from.contains(&Some(**at)));
        let consequence = match going.next() {
            Some(at) => Consequence::StoreHeld {
                holder: old.unit_name(*at),
            },
            None if served.is_some_and(has_it) => Consequence::OpenTwice,
            None => return !others.is_empty(),
        };
        self.refuse(unit, consequence);
        true
    }

    /// A unit whose store stays open: whether it can have the size that it is to have, and the members that come.
    fn kept_unit(&mut self, unit: &Unit, served: &RunningUnit) -> (LookedUnit, Uses) {
        let mut looked = LookedUnit {
            location: served.location.clone(),
            ..LookedUnit::default()
        };
        let (mut counted, parts) = (served.opened.counted(), served.opened.parts());
        // That of one that is not served is looked at when its store is opened.
        if !self.is_refused(unit) && served.opened.held.is_none() {
            self.growth(unit, &parts);
            let added = self.members(unit, served, &mut looked);
            counted.splice(parts.len()..parts.len(), added);
        }
        let log = None;
        (looked, Uses { log, counted })
    }

    /// Whether stores that are open can have the sizes that they are to have.
    fn growth(&mut self, unit: &Unit, open: &[Arc<dyn SharedStore>]) {
        for ((spec, place), store) in unit.parts().zip(open) {
            let now = store.capabilities().size_bytes;
            let wanted = spec.configured_size_bytes().filter(|wanted| *wanted > now);
            let (Some(wanted), Some((path, _))) = (wanted, spec.at.node()) else {
                continue;
            };
            let lun = unit.to_string();
            let (path, is_thin) = (path.to_owned(), spec.thin.unwrap_or(true));
            let grown = self.ask((spec, place), move |_, place| {
                grows(&path, (now, wanted), is_thin).map_err(|source| StartError::Growth {
                    place: place.clone(),
                    lun,
                    size_bytes: wanted,
                    source: Box::new(source),
                })
            });
            if let Some(Err(error)) = grown {
                self.wrong_unit(unit, error);
            }
        }
    }

    /// Looks at the members that come behind those of a composition that stays open.
    fn members(
        &mut self,
        unit: &Unit,
        served: &RunningUnit,
        looked: &mut LookedUnit,
    ) -> Vec<Arc<dyn SharedStore>> {
        let Some(composed) = &served.opened.composed else {
            return Vec::new();
        };
        let (members, open) = (unit.store.members(), composed.members());
        let is_concat = composed.form() == Form::Concat;
        let added = members.get(open.len()..).unwrap_or_default();
        let parts = added.iter().map(|one| (&one.store, &one.place));
        let mut locations = self.locate(unit, parts, looked).into_iter();
        if self.is_wrong(unit) {
            return Vec::new();
        }
        let added = open_members(added, is_concat, |spec, place| {
            self.part((spec, place), locations.next().flatten(), looked)
        });
        let Some(added) = self.found(unit, added) else {
            return Vec::new();
        };
        let sizes = members.iter().map(|one| one.store.configured_size_bytes());
        let sizes: Vec<_> = sizes.take(open.len()).collect();
        // Members that grow do so before the composition takes their sizes over.
        let is_as_large = sizes.iter().zip(open.iter()).all(|(size, member)| {
            size.is_none_or(|size| size <= member.store.capabilities().size_bytes)
        });
        let stores = added.iter().map(|one| Arc::clone(&one.store)).collect();
        if is_concat
            && is_as_large
            && let Err(source) = composed.grown_by(&sizes, added)
        {
            let place = unit.place.clone();
            self.wrong_unit(unit, StartError::Members { place, source });
        }
        stores
    }

    /// Where parts of a unit are. What is wrong with them is noted.
    fn locate<'u>(
        &mut self,
        unit: &Unit,
        parts: impl Iterator<Item = (&'u StoreSpec, &'u Place)>,
        looked: &mut LookedUnit,
    ) -> Vec<Option<Location>> {
        let mut locations = Vec::new();
        for part in parts {
            let located = self.ask(part, locate_store).transpose();
            locations.push(self.found(unit, located).flatten().flatten());
        }
        let found = locations.iter().flatten().cloned().collect();
        looked.location = Location::joined(looked.location.take(), found);
        locations
    }

    /// Where a log is. What is wrong with it is found when it is opened.
    fn locate_log(&mut self, unit: &Unit) -> Option<Location> {
        let log = unit.log.as_ref()?;
        self.ask((&log.store, &log.place), locate_store)?.ok()?
    }

    /// Opens what the unit is to have, to look at it. What could not be found is not looked for again.
    fn open(
        &mut self,
        unit: &Unit,
        locations: Vec<Option<Location>>,
        looked: &mut LookedUnit,
    ) -> Vec<Arc<dyn SharedStore>> {
        if self.is_wrong(unit) {
            return Vec::new();
        }
        if let Some(log) = &unit.log {
            let (device, opener) = (log.clone(), self.means.opener.clone());
            let look = move |_: &StoreSpec, _: &Place| look_at_device(&device, &opener);
            let found = self.ask((&log.store, &log.place), look).transpose();
            looked.log = self.found(unit, found).flatten();
        }
        let mut locations = locations.into_iter();
        let opened = open_with(unit, |spec, place| {
            self.part((spec, place), locations.next().flatten(), looked)
        });
        let Some(opened) = self.found(unit, opened) else {
            return Vec::new();
        };
        self.note_size(unit, &opened);
        opened.counted()
    }

    fn part(
        &mut self,
        part: (&StoreSpec, &Place),
        location: Option<Location>,
        looked: &mut LookedUnit,
    ) -> Result<Arc<dyn SharedStore>, Stopped> {
        let (opener, expected) = (self.means.opener.clone(), looked.expected.clone());
        let look =
            move |spec: &StoreSpec, place: &Place| look_expected(spec, place, &opener, &expected);
        let found = self.ask(part, look).ok_or(Stopped::NoTime)??;
        let store = Arc::clone(found.found.store());
        looked.parts.push(LookedPart { found, location });
        Ok(store)
    }

    /// What was found of a unit. What is wrong is noted.
    fn found<T>(&mut self, unit: &Unit, found: Result<T, impl Into<Stopped>>) -> Option<T> {
        match found.map_err(Into::into) {
            Ok(found) => Some(found),
            Err(Stopped::NoTime) => None,
            Err(Stopped::Wrong(error)) => {
                self.wrong_unit(unit, *error);
                None
            }
        }
    }

    /// What a call gives that looks at a part, unless there is no time left for it.
    fn ask<T: Send + 'static>(
        &mut self,
        part: (&StoreSpec, &Place),
        call: impl FnOnce(&StoreSpec, &Place) -> Result<T, StartError> + Send + 'static,
    ) -> Option<Result<T, StartError>> {
        let patience = &self.means.patience;
        if part.0.at.medium().is_some() && patience.is_over() {
            let name = format!(
                "{}: there was no time left to look at {}",
                part.1, part.0.at
            );
            let not_probed = &mut self.looked.not_probed;
            if !not_probed.contains(&name) {
                not_probed.push(name);
            }
            return None;
        }
        Some(on_thread(part, patience, call).and_then(|outcome| outcome))
    }

    /// Refuses new schedules of snapshots where none can be taken.
    fn schedules(&mut self) {
        let model = self.model;
        for (position, unit) in model.units().iter().enumerate() {
            let at = self.units.from.get(position).copied().flatten();
            let before = at.and_then(|at| self.old.model.units().get(at));
            let is_new = before.is_none_or(|before| {
                before.snapshots.is_none() || !self.units.keeps(position, before, unit)
            });
            if unit.snapshots.is_none() || !is_new || self.is_refused(unit) || self.is_wrong(unit) {
                continue;
            }
            for part in unit.parts() {
                let Some((path, _)) = part.0.at.node() else {
                    continue;
                };
                let path = path.to_owned();
                let look = move |_: &StoreSpec, place: &Place| {
                    store::probe_reflinks(&path).map_err(|source| StartError::Schedule {
                        place: place.clone(),
                        source,
                    })
                };
                let looked = self.ask(part, look).transpose();
                self.found(unit, looked);
            }
        }
    }

    fn refuse(&mut self, unit: &Unit, consequence: Consequence) {
        let name = unit.to_string();
        let mut steps = self.steps.iter_mut();
        if let Some(step) = steps.find(|step| step.kind == Kind::Lun && step.name == name) {
            step.consequence = consequence;
        }
    }

    fn note_size(&mut self, unit: &Unit, opened: &OpenStore) {
        if unit.store.members().is_empty() {
            let size_bytes = opened.store.capabilities().size_bytes;
            self.looked.sizes.insert(unit.to_string(), size_bytes);
        }
    }

    fn uses(&mut self, locations: &[Option<Location>], uses: &[Uses]) {
        let logs: Vec<_> = uses.iter().map(|one| one.log.clone()).collect();
        for (position, error) in double_uses(self.model, locations, &logs) {
            if let Some(unit) = self.model.units().get(position) {
                self.wrong_unit(unit, error);
            }
        }
    }

    /// Quotas that are exceeded by sizes that only a look shows.
    fn quotas(&mut self, uses: Vec<Uses>) {
        let stores = uses.into_iter().map(|one| one.counted);
        for (quota, error) in quotas::excess(self.model, stores, Some(self.old)) {
            let mut steps = self.steps.iter();
            let is_known = steps.any(|step| {
                matches!(&step.consequence, Consequence::OverQuota { quota: known, .. } if *known == quota)
            });
            if !is_known {
                self.wrong(error, |step| step.kind == Kind::Quota && step.name == quota);
            }
        }
    }

    fn identities(&mut self, locations: &[Option<Location>]) {
        let model = self.model;
        let served = self.old.units.iter().map(|unit| unit.identity.clone());
        let served: Vec<_> = served.collect();
        let wrong = self.means.state.foresee_identities(&LedgerChange {
            old: &self.old.model,
            new: model,
            locations,
            served: &served,
            from: &self.units.from,
            renames: &renames(&self.old.model, model, self.units),
        });
        for (position, error) in wrong {
            let unit = model.units().get(position);
            if let Some(unit) = unit.filter(|unit| !self.is_refused(unit)) {
                self.wrong_unit(unit, error);
            }
        }
    }

    fn certificates(&mut self) {
        let (tls, wrong) = read_all_tls(self.model);
        self.looked.kept.tls = tls;
        for (server, error) in wrong {
            let name = server.at.to_string();
            self.wrong(error, |step| step.kind == Kind::Nbd && step.name == name);
        }
    }

    /// Binds addresses where nobody listens.
    fn addresses(&mut self) {
        let (old, model) = (self.old, self.model);
        let own = OwnSockets::tcp(old, model, self.means.administration);
        for wanted in model.listeners() {
            let is_nbd = wanted.nbd.is_some();
            let mut open = old.listeners.iter();
            if open.any(|one| one.wanted == wanted.bind && one.is_nbd == is_nbd) {
                continue;
            }
            let (address, inherited) = ((wanted.bind, &wanted.place), self.means.inherited);
            match own.bind(address, Families::One, inherited) {
                Ok(bound) => {
                    let addresses = &mut self.looked.kept.addresses;
                    addresses.insert((wanted.bind, is_nbd), bound);
                }
                Err(error) => self.wrong_address(&wanted, error),
            }
        }
        self.sockets();
        let (sites, wrong) = look_at_places(old, model, self.means.opener.cores);
        self.looked.kept.sites = sites;
        for (group, error) in wrong {
            let name = group.to_string();
            self.wrong(error, |step| {
                step.kind == Kind::HyperScsi && step.name == name
            });
        }
    }

    fn wrong_address(&mut self, wanted: &config::Listener, error: StartError) {
        let (model, bind) = (self.model, wanted.bind.to_string());
        let of_portal = |step: &PlannedStep| {
            step.kind == Kind::Portal && step.name.ends_with(&format!(" {bind}"))
        };
        let of_server = |step: &PlannedStep| step.kind == Kind::Nbd && step.name == bind;
        let of_target = |step: &PlannedStep| {
            let is_new = step.kind == Kind::Target && step.action == Action::Add;
            is_new && is_at(model, &step.name, &bind)
        };
        self.wrong(error, |step| match wanted.nbd.is_some() {
            true => of_server(step),
            false => of_portal(step) || of_target(step),
        });
    }

    /// Whether the unix sockets of servers of NBD can be made. They are made with the change.
    fn sockets(&mut self) {
        let (old, model) = (self.old, self.model);
        for server in model.nbd() {
            let name = server.at.to_string();
            let is_its = |step: &PlannedStep| step.kind == Kind::Nbd && step.name == name;
            let mut steps = self.steps.iter();
            let is_refused =
                steps.any(|step| is_its(step) && step.consequence.is_refused_by_rule());
            let Some((path, _)) = server.at.socket().filter(|_| !is_refused) else {
                continue;
            };
            if old.sockets.iter().any(|one| one.path == path) {
                continue;
            }
            if let Err(error) = look_at_socket((&server.place, path), self.means.inherited) {
                self.wrong(error, is_its);
            }
        }
    }

    /// What keys of the process meet, now or at the next start.
    fn process(&mut self) {
        let (old, model) = (self.old, self.model);
        if self.steps.iter().any(|step| step.kind == Kind::Admin) {
            for error in check_certificate(model) {
                self.wrong(error, |step| {
                    step.kind == Kind::Admin && matches!(step.name.as_str(), "certificate" | "key")
                });
            }
            let own = OwnSockets::tcp(old, model, self.means.administration);
            for bound in bind_new(&old.model, model, &own, self.means.inherited) {
                match bound {
                    Ok(bound) => self.looked.kept.administration.push(bound),
                    Err(error) => self.wrong(error, |step| {
                        step.kind == Kind::Admin && step.name == "listen"
                    }),
                }
            }
        }
        for (error, is_its) in next_start::mistakes(self.steps, model, self.file) {
            self.wrong(error, is_its);
        }
        self.looked
            .not_probed
            .extend(next_start::untried(self.steps));
    }
}

/// Why a part is not open.
enum Stopped {
    NoTime,
    Wrong(Box<StartError>),
}

impl From<StartError> for Stopped {
    fn from(error: StartError) -> Self {
        Self::Wrong(Box::new(error))
    }
}

/// Looks at a unit that is opened again, where all else stays as it is. A part that is open and still at its place is not
/// opened a second time.
///
/// # Errors
///
/// The first thing that is wrong.
pub(super) fn look_again(
    old: &Running,
    position: usize,
    means: &Means<'_>,
) -> Result<Kept, StartError> {
    let units = old.model.units().iter().zip(&old.units).enumerate();
    let units = units.map(|(at, (unit, served))| match at == position {
        true => look_at_reopened(unit, served, means),
        false => Ok(LookedUnit {
            location: served.location.clone(),
            ..LookedUnit::default()
        }),
    });
    let units = units.collect::<Result<Vec<_>, _>>()?;
    let locations: Vec<_> = units.iter().map(|one| one.location.clone()).collect();
    check_uses(&old.model, &locations, &[])?;
    Ok(Kept {
        units,
        tls: old.tls.clone(),
        ..Kept::default()
    })
}

fn look_at_reopened(
    unit: &Unit,
    served: &RunningUnit,
    means: &Means<'_>,
) -> Result<LookedUnit, StartError> {
    let expected = match means.opener.acceptance {
        Acceptance::AsServed => Expected::of(unit, &served.identity)?,
        // Whatever is there, but nothing is made in its place.
        Acceptance::Anything | Acceptance::AnythingForLog => Expected::Present,
    };
    expected.check_form(unit)?;
    // One whose store is not open has stand-ins.
    let held = served.opened.held.as_ref();
    let is_open = !held.is_some_and(Withheld::is_tried_again);
    let open = is_open.then(|| served.opened.parts());
    let mut open = open.unwrap_or_default().into_iter();
    let parts = unit.parts().map(|part| {
        let (opener, expected, open) = (means.opener.clone(), expected.clone(), open.next());
        on_thread(part, &means.patience, move |spec, place| {
            let is_at_place = |store: &Arc<dyn SharedStore>| match spec.at.node() {
                Some((path, _)) => !matches!(store.is_at(path), Ok(false)),
                None => !store.is_outdated(),
            };
            let found = match open.filter(is_at_place) {
                Some(store) => FoundPart::open(store),
                None => look_expected(spec, place, &opener, &expected)?,
            };
            let location = locate_store(spec, place)?;
            Ok(LookedPart { found, location })
        })?
    });
    let parts = parts.collect::<Result<Vec<_>, StartError>>()?;
    let locations = parts.iter().filter_map(|part| part.location.clone());
    Ok(LookedUnit {
        location: Location::joined(None, locations.collect()),
        expected,
        parts,
        ..LookedUnit::default()
    })
}

/// Units that are served and get another id.
pub(super) fn renames(old: &Model, new: &Model, units: &Match) -> Vec<Rename> {
    let matched = new.units().iter().zip(&units.from);
    let renames = matched.filter_map(|(unit, from)| {
        let before = old.units().get((*from)?)?;
        let (before, after) = (before.id.clone()?, unit.id.clone()?);
        (before != after).then(|| Rename {
            old: before,
            new: after,
            path: path_of(unit),
        })
    });
    renames.collect()
}

/// Whether the file of a store that is served can be made larger. A block device has the size that it has.
fn grows(path: &Path, (now, wanted): (u64, u64), is_thin: bool) -> Result<(), store::OpenFailure> {
    use std::os::unix::fs::FileTypeExt as _;

    let found = std::fs::metadata(path);
    if found.is_ok_and(|found| found.file_type().is_block_device()) {
        let actual = now;
        return Err(store::OpenFailure::CannotGrow { actual, wanted });
    }
    store::probe_growth(path, now, wanted, is_thin)
}

fn is_at(model: &Model, target: &str, bind: &str) -> bool {
    let index = model.target_by_name(target);
    let target = index.and_then(|index| model.targets().get(index.position()));
    target.is_some_and(|target| {
        let mut portals = target.portals.iter();
        portals.any(|portal| portal.bind.to_string() == bind)
    })
}

/// The number of the line that a message begins with.
fn line_of(text: &str) -> u64 {
    let (place, _) = text.split_once(": ").unwrap_or((text, ""));
    let line = place
        .rsplit_once(':')
        .and_then(|(_, line)| line.parse().ok());
    line.unwrap_or_default()
}

/// A message as a mistake: where, and what.
pub(super) fn mistake(text: &str, file: &Path) -> Mistake {
    let whole = || Mistake {
        place: None,
        detail: text.to_owned(),
    };
    let file = file.display().to_string();
    let Some(rest) = text
        .strip_prefix(&file)
        .and_then(|rest| rest.strip_prefix(':'))
    else {
        return whole();
    };
    let Some((line, rest)) = rest.split_once(": ") else {
        return whole();
    };
    let is_key = |text: &str| {
        let mut all = text.bytes();
        all.all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.[]".contains(&byte)
        })
    };
    match rest.split_once(": ").filter(|(key, _)| is_key(key)) {
        Some((key, detail)) => Mistake {
            place: Some(format!("{file}:{line}: {key}")),
            detail: detail.to_owned(),
        },
        None => Mistake {
            place: Some(format!("{file}:{line}")),
            detail: rest.to_owned(),
        },
    }
}

/// What a change is answered with that has these steps and mistakes; `None` if nothing is in its way.
pub(super) fn refusal(
    steps: &[PlannedStep],
    errors: &[StartError],
    mistakes: &[Mistake],
) -> Option<Problem> {
    let refused = steps
        .iter()
        .filter(|step| step.consequence.is_refused_by_rule());
    let refused = refused.map(|step| Mistake {
        place: None,
        detail: format!(
            "{}: {}",
            super::views::step_line(&Step::from(step.clone())),
            step.consequence
        ),
    });
    let mut all: Vec<Mistake> = refused.collect();
    let kind = match (all.is_empty(), errors) {
        (false, _) => ProblemKind::Refused,
        (true, []) => return None,
        (true, errors) if errors.iter().any(StartError::is_of_configuration) => {
            ProblemKind::InvalidConfig
        }
        (true, _) => ProblemKind::ApplyFailed,
    };
    all.extend(mistakes.iter().cloned());
    Some(Problem::of_mistakes(kind, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_taken_apart_into_its_place_and_the_rest() {
        let file = Path::new("/etc/t.toml");
        for (text, place, detail) in [
            (
                "/etc/t.toml:3: lun[0].store: gone: b",
                Some("/etc/t.toml:3: lun[0].store"),
                "gone: b",
            ),
            (
                "/etc/t.toml:3: Not there",
                Some("/etc/t.toml:3"),
                "Not there",
            ),
            ("memory disks: too large", None, "memory disks: too large"),
            ("/etc/t.toml", None, "/etc/t.toml"),
        ] {
            let found = mistake(text, file);
            assert_eq!(
                (found.place.as_deref(), found.detail.as_str()),
                (place, detail)
            );
        }
    }

    #[test]
    fn mistakes_are_in_the_order_of_their_lines() {
        assert_eq!(line_of("/etc/t.toml:12: lun[0].store: gone"), 12);
        assert_eq!(line_of("memory: 3 GiB"), 0);
    }
}
