//! What a change needs, looked at before anything is changed: the first half of a change. A plan is a look that is
//! dropped; a change keeps what the look has ([`Kept`]) and goes on with [`take`](super::take). So the two say the
//! same.
//!
//! A look locates stores and opens what is there for reading, compares where they lead and what they are with what is
//! wanted and with what was served, reads certificates, and binds addresses at which nobody listens yet. It makes,
//! lengthens, writes and locks nothing, replays no log, and dropping it leaves nothing behind. All mistakes are named,
//! not the first one only. Servers that have stores are connected to, and these connections serve the change.
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
use reactor::net::{Bound, Families};
use store::{Member, SharedStore};

use super::attempts::{Patience, on_thread};
use super::effect::{Consequence, PlannedStep};
use super::held::Acceptance;
use super::held::Withheld;
use super::hyperscsi::look_at_places;
use super::log_device::look_at_device;
use super::open::{Found, Opener, look_at_socket, open_members, open_with, read_all_tls};
use super::own_sockets::OwnSockets;
use super::running::{Running, RunningListener, RunningUnit};
use super::served::{Expected, look_expected};
use super::steps::Match;
use super::{next_start, quotas};
use crate::administration::{AdminListening, bind_new, check_certificate};
use crate::error::{MediumError, Unanswered};
use crate::locate::{Location, double_uses, locate_store};
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
    pub(super) administration: Vec<(SocketAddr, Bound)>,
}

/// Addresses where nobody listens yet, and whether clients of NBD are to come in there.
pub(crate) type BoundAddresses = BTreeMap<(SocketAddr, bool), Bound>;

/// A unit of the new configuration, as it was found.
#[derive(Debug, Default)]
pub(super) struct LookedUnit {
    /// Where it is, or will be.
    pub(super) location: Option<Location>,
    /// What its parts have to be.
    pub(super) expected: Expected,
    /// The parts that it does not have yet, in their order; fewer, where there was no time for all.
    pub(super) parts: Vec<(Found, Option<Location>)>,
    /// The sizes that those are to have that it has, if it becomes larger, in bytes.
    pub(super) grows: Option<Vec<Option<u64>>>,
    /// Its log device, if that is new.
    pub(super) log: Option<Arc<dyn SharedStore>>,
    /// It can be opened by the next start only, and was not looked at.
    pub(super) waits: bool,
    log_location: Option<Location>,
    /// The stores that quotas count, as far as they are known.
    counted: Vec<Arc<dyn SharedStore>>,
}

impl Kept {
    /// Where the units are.
    pub(super) fn locations(&self) -> Vec<Option<Location>> {
        self.units.iter().map(|one| one.location.clone()).collect()
    }
}

impl LookedUnit {
    /// One that goes on to be served as it is.
    fn served(served: &RunningUnit) -> Self {
        Self {
            location: served.location.clone(),
            ..Self::default()
        }
    }
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
        let units = model.units().iter().enumerate();
        let units = units.map(|(position, unit)| self.unit(position, unit));
        self.looked.kept.units = units.collect();
        let locations = self.looked.kept.locations();
        self.uses(&locations);
        self.space();
        self.schedules();
        self.quotas();
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
        if is_of_time(&error) {
            return;
        }
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

    fn wrong_step(&mut self, kind: Kind, name: &str, error: StartError) {
        self.wrong(error, |step| step.kind == kind && step.name == name);
    }

    fn wrong_unit(&mut self, unit: &Unit, error: StartError) {
        self.wrong_step(Kind::Lun, &unit.to_string(), error);
    }

    /// Whether a step comes to something.
    fn comes_to(&self, kind: Kind, name: &str, what: impl Fn(&Consequence) -> bool) -> bool {
        let mut steps = self.steps.iter();
        steps.any(|step| step.kind == kind && step.name == name && what(&step.consequence))
    }

    fn is_refused(&self, unit: &Unit) -> bool {
        let name = unit.to_string();
        self.comes_to(Kind::Lun, &name, Consequence::is_refused_by_rule)
    }

    fn is_wrong(&self, unit: &Unit) -> bool {
        let is_wrong = |it: &Consequence| matches!(it, Consequence::Wrong(_));
        self.comes_to(Kind::Lun, &unit.to_string(), is_wrong)
    }

    fn unit(&mut self, position: usize, unit: &Unit) -> LookedUnit {
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
            return looked;
        }
        let waits = |it: &Consequence| *it == Consequence::Restart;
        looked.waits = self.comes_to(Kind::Lun, &unit.to_string(), waits);
        let locations = self.locate(unit, unit.parts(), &mut looked);
        if looked.waits {
            let name = format!("the store of {unit}: the next start opens it");
            self.looked.not_probed.push(name);
            return looked;
        }
        let served = served.map(|(_, served)| served);
        let location = looked.location.as_ref();
        if location.is_some_and(|location| self.is_in_use(unit, (at, served), location)) {
            return looked;
        }
        self.open(unit, locations, &mut looked);
        looked
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
    fn kept_unit(&mut self, unit: &Unit, served: &RunningUnit) -> LookedUnit {
        let mut looked = LookedUnit {
            counted: served.opened.counted(),
            ..LookedUnit::served(served)
        };
        // That of one that is not served is looked at when its store is opened.
        if !self.is_refused(unit) && served.opened.held.is_none() {
            let parts = served.opened.parts();
            let sizes = unit.parts().map(|(spec, _)| spec.configured_size_bytes());
            let sizes: Vec<_> = sizes.take(parts.len()).collect();
            let mut both = sizes.iter().zip(&parts);
            let is_larger = both.any(|(size, store)| *size > Some(store.capabilities().size_bytes));
            let has_other_sizes = served.opened.concat().map_or(is_larger, |concat| {
                let members = concat.members();
                sizes
                    .iter()
                    .zip(&*members)
                    .any(|(size, one)| one.bytes != *size)
            });
            self.growth(unit, &parts);
            let added = self.members(unit, served, &mut looked);
            // Members that grow do so before the composition takes their sizes over.
            if !is_larger
                && !self.is_wrong(unit)
                && let Some(concat) = served.opened.concat()
                && let Err(source) = concat.grown_by(&sizes, added.clone())
            {
                let place = unit.place.clone();
                self.wrong_unit(unit, StartError::Members { place, source });
            }
            looked.grows = (has_other_sizes || !added.is_empty()).then_some(sizes);
            let added = added.into_iter().map(|one| one.store);
            looked.counted.splice(parts.len()..parts.len(), added);
        }
        looked
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
                store::probe_growth(&path, now, wanted, is_thin).map_err(|source| {
                    StartError::Growth {
                        place: place.clone(),
                        lun,
                        size_bytes: wanted,
                        source: Box::new(source),
                    }
                })
            });
            self.noted(unit, grown);
        }
    }

    /// Looks at the members that come behind those of a composition that stays open.
    fn members(
        &mut self,
        unit: &Unit,
        served: &RunningUnit,
        looked: &mut LookedUnit,
    ) -> Vec<Member> {
        let is_concat = served.opened.concat().is_some();
        let open = served.opened.parts().len();
        let added = unit.store.members().get(open..).unwrap_or_default();
        let parts = added.iter().map(|one| (&one.store, &one.place));
        let mut locations = self.locate(unit, parts, looked).into_iter();
        if self.is_wrong(unit) {
            return Vec::new();
        }
        let added = open_members(added, is_concat, |spec, place| {
            self.part((spec, place), locations.next().flatten(), looked)
        });
        self.noted(unit, added).unwrap_or_default()
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
            let located = self.ask(part, locate_store);
            locations.push(self.noted(unit, located).flatten());
        }
        let found = locations.iter().flatten().cloned().collect();
        looked.location = Location::joined(looked.location.take(), found);
        locations
    }

    /// Opens what the unit is to have, to look at it. What could not be found is not looked for again.
    fn open(&mut self, unit: &Unit, locations: Vec<Option<Location>>, looked: &mut LookedUnit) {
        if let Some(log) = &unit.log {
            let part = (&log.store, &log.place);
            // What is wrong with it is found when it is opened.
            looked.log_location = self.ask(part, locate_store).ok().flatten();
            if !self.is_wrong(unit) {
                let (device, opener) = (log.clone(), self.means.opener.clone());
                let found = self.ask(part, move |_, _| look_at_device(&device, &opener));
                looked.log = self.noted(unit, found);
            }
        }
        if self.is_wrong(unit) {
            return;
        }
        let mut locations = locations.into_iter();
        let opened = open_with(unit, |spec, place| {
            self.part((spec, place), locations.next().flatten(), looked)
        });
        if let Some(opened) = self.noted(unit, opened) {
            if unit.store.members().is_empty() {
                let size_bytes = opened.store.capabilities().size_bytes;
                self.looked.sizes.insert(unit.to_string(), size_bytes);
            }
            looked.counted = opened.counted();
        }
    }

    fn part(
        &mut self,
        part: (&StoreSpec, &Place),
        location: Option<Location>,
        looked: &mut LookedUnit,
    ) -> Result<Arc<dyn SharedStore>, StartError> {
        let (opener, expected) = (self.means.opener.clone(), looked.expected.clone());
        let found = self.ask(part, move |spec, place| {
            look_expected(spec, place, &opener, &expected)
        })?;
        let store = Arc::clone(&found.store);
        looked.parts.push((found, location));
        Ok(store)
    }

    /// What was found of a unit. What is wrong is noted.
    fn noted<T>(&mut self, unit: &Unit, found: Result<T, StartError>) -> Option<T> {
        found.map_err(|error| self.wrong_unit(unit, error)).ok()
    }

    /// What a call gives that looks at a part. That there is no time left for it is noted.
    fn ask<T: Send + 'static>(
        &mut self,
        part: (&StoreSpec, &Place),
        call: impl FnOnce(&StoreSpec, &Place) -> Result<T, StartError> + Send + 'static,
    ) -> Result<T, StartError> {
        let asked = on_thread(part, &self.means.patience, call);
        let asked = asked.and_then(|outcome| outcome);
        asked.inspect_err(|error| self.note_time(error))
    }

    fn note_time(&mut self, error: &StartError) {
        let (text, not_probed) = (crate::error::chain(error), &mut self.looked.not_probed);
        if is_of_time(error) && !not_probed.contains(&text) {
            not_probed.push(text);
        }
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
                let looked = self.ask(part, look);
                self.noted(unit, looked);
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

    fn uses(&mut self, locations: &[Option<Location>]) {
        let units = self.looked.kept.units.iter();
        let logs: Vec<_> = units.map(|one| one.log_location.clone()).collect();
        for (position, error) in double_uses(self.model, locations, &logs) {
            if let Some(unit) = self.model.units().get(position) {
                self.wrong_unit(unit, error);
            }
        }
    }

    /// Quotas that are exceeded by sizes that only a look shows.
    fn quotas(&mut self) {
        let units = self.looked.kept.units.iter_mut();
        let stores = units.map(|one| std::mem::take(&mut one.counted));
        for (quota, error) in quotas::excess(self.model, stores, Some(self.old)) {
            let mut steps = self.steps.iter();
            let is_known = steps.any(|step| {
                matches!(&step.consequence, Consequence::OverQuota { quota: known, .. } if *known == quota)
            });
            if !is_known {
                self.wrong_step(Kind::Quota, &quota, error);
            }
        }
    }

    fn identities(&mut self, locations: &[Option<Location>]) {
        let model = self.model;
        let change = ledger_change(self.old, (model, self.units), locations);
        for (position, error) in self.means.state.foresee_identities(&change) {
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
            self.wrong_step(Kind::Nbd, &server.at.to_string(), error);
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
        for (group, error) in look_at_places(old, model, self.means.opener.cores) {
            self.wrong_step(Kind::HyperScsi, &group.to_string(), error);
        }
    }

    fn wrong_address(&mut self, wanted: &config::Listener, error: StartError) {
        let (model, bind) = (self.model, wanted.bind.to_string());
        if wanted.nbd.is_some() {
            return self.wrong_step(Kind::Nbd, &bind, error);
        }
        let at_bind = format!(" {bind}");
        self.wrong(error, |step| match (step.kind, step.action) {
            (Kind::Portal, _) => step.name.ends_with(&at_bind),
            (Kind::Target, Action::Add) => is_at(model, &step.name, &bind),
            _ => false,
        });
    }

    /// Whether the unix sockets of servers of NBD can be made. They are made with the change.
    fn sockets(&mut self) {
        let (old, model) = (self.old, self.model);
        for server in model.nbd() {
            let name = server.at.to_string();
            let Some((path, _)) = server.at.socket() else {
                continue;
            };
            let is_open = old.sockets.iter().any(|one| one.path == path);
            if is_open || self.comes_to(Kind::Nbd, &name, Consequence::is_refused_by_rule) {
                continue;
            }
            if let Err(error) = look_at_socket((&server.place, path), self.means.inherited) {
                self.wrong_step(Kind::Nbd, &name, error);
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
                    Err(error) => self.wrong_step(Kind::Admin, "listen", error),
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

/// Looks at a unit that is opened again, where all else stays as it is. A part that is open and still at its place is
/// not opened a second time.
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
        false => Ok(LookedUnit::served(served)),
    });
    let kept = Kept {
        units: units.collect::<Result<_, _>>()?,
        tls: old.tls.clone(),
        ..Kept::default()
    };
    let twice = double_uses(&old.model, &kept.locations(), &[]);
    twice
        .into_iter()
        .next()
        .map_or(Ok(kept), |(_, error)| Err(error))
}

/// Whether an open store is what its place leads to, and stays open. A disc that an administrator loads is opened
/// again: the same file may have another size and other contents.
///
/// # Errors
///
/// That is not known, and what is there is wanted, whatever it is. Otherwise the open one stays.
fn stays_open(
    store: &dyn SharedStore,
    (spec, place): (&StoreSpec, &Place),
    opener: &Opener,
) -> Result<bool, StartError> {
    if !spec.is_disk() && opener.acceptance == Acceptance::Anything {
        return Ok(false);
    }
    let Some((path, _)) = spec.at.node() else {
        return Ok(!store.is_outdated());
    };
    match (store.is_at(path), opener.acceptance) {
        (Ok(is_at), _) => Ok(is_at),
        (Err(_), Acceptance::AsServed) => Ok(true),
        (Err(source), Acceptance::Anything | Acceptance::AnythingForLog) => {
            let place = place.clone();
            Err(MediumError::Unseen { place, source }.into())
        }
    }
}

/// Looks at the stores of a unit that is opened again.
pub(super) fn look_at_reopened(
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
            let found = match open {
                Some(store) if stays_open(&*store, (spec, place), &opener)? => Found::ready(store),
                Some(_) | None => look_expected(spec, place, &opener, &expected)?,
            };
            Ok((found, locate_store(spec, place)?))
        })?
    });
    let parts = parts.collect::<Result<Vec<_>, StartError>>()?;
    let locations = parts.iter().filter_map(|(_, location)| location.clone());
    Ok(LookedUnit {
        location: Location::joined(None, locations.collect()),
        expected,
        parts,
        ..LookedUnit::default()
    })
}

/// Whether there was no time to find anything out.
fn is_of_time(error: &StartError) -> bool {
    let StartError::StoreHangs { source, .. } = error else {
        return false;
    };
    matches!(source, Unanswered::NoTime { .. })
}

/// What a change asks of the ledger of identities.
pub(super) fn ledger_change<'a>(
    old: &'a Running,
    (new, units): (&'a Model, &'a Match),
    locations: &'a [Option<Location>],
) -> LedgerChange<'a> {
    let matched = new.units().iter().zip(&units.from);
    let renames = matched.filter_map(|(unit, from)| {
        let before = old.model.units().get((*from)?)?;
        let (before, after) = (before.id.clone()?, unit.id.clone()?);
        (before != after).then(|| Rename {
            old: before,
            new: after,
            path: path_of(unit),
        })
    });
    LedgerChange {
        old: &old.model,
        new,
        locations,
        served: old.units.iter().map(|unit| unit.identity.clone()).collect(),
        from: &units.from,
        renames: renames.collect(),
    }
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

impl OwnSockets {
    /// Those of TCP, when this model replaces what runs.
    pub(super) fn tcp(
        old: &Running,
        model: &Model,
        administration: Option<&AdminListening>,
    ) -> Self {
        let mut own = Self::default();
        let wanted = model.listeners();
        let stays = |one: &RunningListener| {
            let mut wanted = wanted.iter();
            wanted.any(|it| it.bind == one.wanted && it.nbd.is_some() == one.is_nbd)
        };
        for one in &old.listeners {
            own.note(one.socket.clone(), stays(one));
        }
        let sockets = administration.map(AdminListening::sockets);
        for (at, socket) in sockets.into_iter().flatten() {
            let mut listen = model.admin().listen.iter();
            own.note(socket, listen.any(|one| one.bind == at));
        }
        own
    }
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
