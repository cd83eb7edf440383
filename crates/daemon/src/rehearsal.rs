//! Finds out what would keep a change from being made by doing all of it that can be done without changing anything.
//! A plan shows what it finds, and a change begins with it, so the two say the same.
//!
//! Stores that are new are opened as far as nothing is made ([`super::open::probe_part`]), where they lead is compared,
//! sizes are tried on the file system, addresses are bound where nobody can connect, certificates are read, identities
//! looked up. All mistakes are named, not the first one only.
//!
//! It shares the attempts of all changes and plans ([`super::attempts`]): a path that hangs has one thread, and a plan
//! waits for all its calls together no longer than [`Attempts::begin_plan`](super::attempts::Attempts::begin_plan)
//! says. What it does not come to in that time is named as not looked at. A store that is being looked at is locked for
//! that moment: another program, or another change, that opens it then tries again. What is served is not opened a
//! second time.

mod directories;
mod together;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use api::plan::{Action, Kind, Step};
use api::problem::{Mistake, Problem, ProblemKind};
use config::{Model, Place, StoreSpec, Unit};
use store::{Form, SharedStore};

use super::apply::{Means, renames};
use super::attempts::on_thread;
use super::effect::{Consequence, PlannedStep};
use super::open::{
    OpenStore, check_tls, open_members, open_with, probe_bind, probe_part, probe_socket,
};
use super::own_sockets::OwnSockets;
use super::running::{Running, RunningUnit};
use super::steps::Match;
use super::{hyperscsi, log_device, next_start, quotas};
use crate::administration::{check_certificate, probe_addresses};
use crate::locate::{Location, double_uses, locate_store};
use crate::state::LedgerChange;
use crate::{StartError, headroom};

/// What a rehearsal has found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Everything that is wrong.
    pub(super) mistakes: Vec<StartError>,
    /// What there was no time to look at.
    pub(super) not_probed: Vec<String>,
    /// By the name of the unit: how large the medium is that it would get.
    pub(super) sizes: BTreeMap<String, u64>,
}

/// What is planned, and what it is made with.
pub(super) struct Rehearsal<'a> {
    pub(super) old: &'a Running,
    pub(super) model: &'a Model,
    pub(super) units: &'a Match,
    pub(super) steps: &'a mut Vec<PlannedStep>,
    pub(super) means: &'a Means<'a>,
    /// The configuration file.
    pub(super) file: &'a Path,
}

/// A unit of the new configuration, and what it has.
struct Seen {
    location: Option<Location>,
    /// Where its log is, if that is to be opened.
    log: Option<Location>,
    stores: Vec<Arc<dyn SharedStore>>,
}

impl Rehearsal<'_> {
    /// Does all that can be done. Steps that cannot be carried out are refused with the reason.
    pub(super) fn run(mut self, secrets: Vec<StartError>) -> Found {
        let mut found = Found::default();
        for error in secrets {
            self.wrong(&mut found, error, |_| false);
        }
        if let Err(error) = headroom::allow(&self.old.model, self.model) {
            let has_memory =
                |step: &PlannedStep| step.kind == Kind::Lun && step.detail.starts_with("mem:");
            self.wrong(&mut found, error, has_memory);
        }
        let seen: Vec<Seen> = (0..self.model.units().len())
            .map(|position| self.unit(position, &mut found))
            .collect();
        self.uses(&seen, &mut found);
        self.space(&mut found);
        self.schedules(&mut found);
        self.quotas(&seen, &mut found);
        self.directories(&mut found);
        self.identities(&seen, &mut found);
        self.certificates(&mut found);
        self.addresses(&mut found);
        self.process(&mut found);
        found
            .mistakes
            .sort_by_key(|error| line_of(&error.to_string()));
        found
    }

    /// Notes a mistake, and refuses the steps it is of.
    fn wrong(
        &mut self,
        found: &mut Found,
        error: StartError,
        is_its: impl Fn(&PlannedStep) -> bool,
    ) {
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
        found.mistakes.push(error);
    }

    fn wrong_unit(&mut self, found: &mut Found, unit: &Unit, error: StartError) {
        let name = unit.to_string();
        self.wrong(found, error, |step| {
            step.kind == Kind::Lun && step.name == name
        });
    }

    fn is_refused(&self, unit: &Unit) -> bool {
        let name = unit.to_string();
        let mut steps = self.steps.iter();
        steps.any(|step| {
            step.kind == Kind::Lun && step.name == name && step.consequence.is_refused_by_rule()
        })
    }

    /// Whether only the next start can open the unit.
    fn waits(&self, unit: &Unit) -> bool {
        let name = unit.to_string();
        let mut steps = self.steps.iter();
        steps.any(|step| {
            let is_its = step.kind == Kind::Lun && step.name == name;
            is_its && step.consequence == Consequence::Restart
        })
    }

    fn unit(&mut self, position: usize, found: &mut Found) -> Seen {
        let (model, old) = (self.model, self.old);
        let nothing = Seen {
            location: None,
            log: None,
            stores: Vec::new(),
        };
        let Some(unit) = model.units().get(position) else {
            return nothing;
        };
        let at = self.units.from.get(position).copied().flatten();
        let served = at.and_then(|at| Some((old.model.units().get(at)?, old.units.get(at)?)));
        if let Some((before, served)) = served
            && self.units.keeps(position, before, unit)
        {
            if !self.is_refused(unit) {
                self.growth(unit, served, found);
            }
            return Seen {
                location: served.location.clone(),
                log: None,
                stores: served.opened.counted(),
            };
        }
        if self.is_refused(unit) {
            return nothing;
        }
        if self.waits(unit) {
            let name = format!("the store of {unit}: the next start opens it");
            found.not_probed.push(name);
            return nothing;
        }
        let location = self.locate(unit, found);
        if let Some(holder) = location.as_ref().and_then(|it| self.holder(position, it)) {
            self.refuse(unit, Consequence::StoreHeld { holder });
            return Seen {
                location,
                ..nothing
            };
        }
        let own = served.and_then(|(_, served)| served.location.as_ref());
        if own
            .zip(location.as_ref())
            .is_some_and(|(own, location)| own.shares(location))
        {
            self.refuse(unit, Consequence::OpenTwice);
            return Seen {
                location,
                ..nothing
            };
        }
        let is_elsewhere = |it: &Location| self.holder_that_stays(position, it);
        if location.as_ref().is_some_and(is_elsewhere) {
            // To be named with its place, as all that is used twice.
            return Seen {
                location,
                ..nothing
            };
        }
        let log = self.locate_log(unit, found);
        let stores = self.open(unit, found);
        Seen {
            location,
            log,
            stores,
        }
    }

    /// Where a log is. What is wrong with it is found when it is opened.
    fn locate_log(&self, unit: &Unit, found: &mut Found) -> Option<Location> {
        let log = unit.log.as_ref()?;
        self.look((&log.store, &log.place), found, locate_store)?
            .ok()?
    }

    /// Refuses new schedules of snapshots where none can be taken.
    fn schedules(&mut self, found: &mut Found) {
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
                let probe = move |_: &StoreSpec, place: &Place| {
                    store::probe_reflinks(&path).map_err(|source| StartError::Schedule {
                        place: place.clone(),
                        source,
                    })
                };
                if let Some(Err(error)) = self.look(part, found, probe) {
                    self.wrong_unit(found, unit, error);
                }
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

    /// The unit that has the medium, by whatever path, until the change is made.
    fn holder(&self, position: usize, location: &Location) -> Option<String> {
        let mut others = self.others(position, location);
        let stays = |at: usize| self.units.from.contains(&Some(at));
        let (at, _) = others.find(|(at, _)| !stays(*at))?;
        Some(self.old.unit_name(at))
    }

    fn holder_that_stays(&self, position: usize, location: &Location) -> bool {
        self.others(position, location).next().is_some()
    }

    /// Units that run and have one of these media; but for the one that this one comes from.
    fn others<'s>(
        &'s self,
        position: usize,
        location: &'s Location,
    ) -> impl Iterator<Item = (usize, &'s RunningUnit)> {
        let own = self.units.from.get(position).copied().flatten();
        let others = self.old.units.iter().enumerate();
        others.filter(move |(at, unit)| {
            let theirs = unit.location.as_ref();
            Some(*at) != own && theirs.is_some_and(|theirs| theirs.shares(location))
        })
    }

    /// What a call gives that looks at a part, unless there is no time left for it.
    fn look<T: Send + 'static>(
        &self,
        part: (&StoreSpec, &Place),
        found: &mut Found,
        call: impl FnOnce(&StoreSpec, &Place) -> Result<T, StartError> + Send + 'static,
    ) -> Option<Result<T, StartError>> {
        let patience = &self.means.patience;
        if part.0.at.medium().is_some() && patience.is_over() {
            let name = format!(
                "{}: there was no time left to look at {}",
                part.1, part.0.at
            );
            if !found.not_probed.contains(&name) {
                found.not_probed.push(name);
            }
            return None;
        }
        Some(on_thread(part, patience, call).and_then(|outcome| outcome))
    }

    fn locate(&mut self, unit: &Unit, found: &mut Found) -> Option<Location> {
        let mut locations = Vec::new();
        for part in unit.parts() {
            match self.look(part, found, locate_store) {
                Some(Ok(location)) => locations.extend(location),
                Some(Err(error)) => self.wrong_unit(found, unit, error),
                None => {}
            }
        }
        Location::joined(None, locations)
    }

    /// Opens what the unit is to have. What could not be found is not looked for again.
    fn open(&mut self, unit: &Unit, found: &mut Found) -> Vec<Arc<dyn SharedStore>> {
        if self.is_wrong(unit) {
            return Vec::new();
        }
        if let Some(log) = &unit.log {
            let device = log.clone();
            let part = (&log.store, &log.place);
            let opener = self.means.opener.clone();
            let probe = move |_: &StoreSpec, _: &Place| log_device::probe_device(&device, &opener);
            let probed = self.look(part, found, probe);
            if let Some(Err(error)) = probed {
                self.wrong_unit(found, unit, error);
            }
        }
        let opened = open_with(unit, |spec, place| self.open_part(spec, place, found));
        match opened {
            Ok(opened) => {
                self.note_size(unit, &opened, found);
                opened.counted()
            }
            Err(Stopped::NoTime) => Vec::new(),
            Err(Stopped::Wrong(error)) => {
                self.wrong_unit(found, unit, *error);
                Vec::new()
            }
        }
    }

    fn is_wrong(&self, unit: &Unit) -> bool {
        let name = unit.to_string();
        let mut steps = self.steps.iter();
        steps.any(|step| {
            let is_its = step.kind == Kind::Lun && step.name == name;
            is_its && matches!(step.consequence, Consequence::Wrong(_))
        })
    }

    fn open_part(
        &self,
        spec: &StoreSpec,
        place: &Place,
        found: &mut Found,
    ) -> Result<Arc<dyn SharedStore>, Stopped> {
        let opener = self.means.opener.clone();
        let probe = move |spec: &StoreSpec, place: &Place| probe_part(spec, place, &opener);
        match self.look((spec, place), found, probe) {
            Some(opened) => opened.map_err(Stopped::from),
            None => Err(Stopped::NoTime),
        }
    }

    fn note_size(&self, unit: &Unit, opened: &OpenStore, found: &mut Found) {
        if unit.store.members().is_empty() {
            let size_bytes = opened.store.capabilities().size_bytes;
            found.sizes.insert(unit.to_string(), size_bytes);
        }
    }

    /// Whether a unit that is served can have the size that it is to have.
    fn growth(&mut self, unit: &Unit, served: &RunningUnit, found: &mut Found) {
        // That of one that is not served is looked at when its store is opened.
        if served.opened.held.is_some() {
            return;
        }
        let parts = served.opened.parts();
        for ((spec, place), store) in unit.parts().zip(&parts) {
            let now = store.capabilities().size_bytes;
            let wanted = spec.configured_size_bytes().filter(|wanted| *wanted > now);
            if let (Some(wanted), Some((path, _))) = (wanted, spec.at.node()) {
                let lun = unit.to_string();
                let (path, is_thin) = (path.to_owned(), spec.thin.unwrap_or(true));
                let grown = self.look((spec, place), found, move |_, place| {
                    grows(&path, (now, wanted), is_thin).map_err(|source| StartError::Growth {
                        place: place.clone(),
                        lun,
                        size_bytes: wanted,
                        source: Box::new(source),
                    })
                });
                if let Some(Err(error)) = grown {
                    self.wrong_unit(found, unit, error);
                }
            }
        }
        if let Some(composed) = &served.opened.composed {
            let members = unit.store.members();
            let open = composed.members().len();
            let is_concat = composed.form() == Form::Concat;
            let added = members.get(open..).unwrap_or_default();
            let added = open_members(added, is_concat, |spec, place| {
                self.open_part(spec, place, found)
            });
            let sizes = members.iter().map(|one| one.store.configured_size_bytes());
            let sizes: Vec<_> = sizes.take(open).collect();
            // Members that grow do so before the composition takes their sizes over.
            let mut both = sizes.iter().zip(&parts);
            let is_as_large = both.all(|(size, store)| {
                size.is_none_or(|size| size <= store.capabilities().size_bytes)
            });
            let grown = match added {
                Ok(added) if is_concat && is_as_large => composed.grown_by(&sizes, added).map(drop),
                Ok(_) | Err(Stopped::NoTime) => Ok(()),
                Err(Stopped::Wrong(error)) => return self.wrong_unit(found, unit, *error),
            };
            if let Err(source) = grown {
                let place = unit.place.clone();
                self.wrong_unit(found, unit, StartError::Members { place, source });
            }
        }
    }

    fn uses(&mut self, seen: &[Seen], found: &mut Found) {
        let locations: Vec<_> = seen.iter().map(|one| one.location.clone()).collect();
        let logs: Vec<_> = seen.iter().map(|one| one.log.clone()).collect();
        for (position, error) in double_uses(self.model, &locations, &logs) {
            if let Some(unit) = self.model.units().get(position) {
                self.wrong_unit(found, unit, error);
            }
        }
    }

    /// Quotas that are exceeded by sizes that only a look shows.
    fn quotas(&mut self, seen: &[Seen], found: &mut Found) {
        let stores = seen.iter().map(|one| one.stores.clone());
        for (quota, error) in quotas::excess(self.model, stores, Some(self.old)) {
            let mut steps = self.steps.iter();
            let is_known = steps.any(|step| {
                matches!(&step.consequence, Consequence::OverQuota { quota: known, .. } if *known == quota)
            });
            if !is_known {
                self.wrong(found, error, |step| {
                    step.kind == Kind::Quota && step.name == quota
                });
            }
        }
    }

    fn identities(&mut self, seen: &[Seen], found: &mut Found) {
        let locations: Vec<_> = seen.iter().map(|one| one.location.clone()).collect();
        let served: Vec<_> = self
            .old
            .units
            .iter()
            .map(|unit| unit.identity.clone())
            .collect();
        let wrong = self.means.state.foresee_identities(&LedgerChange {
            old: &self.old.model,
            new: self.model,
            locations: &locations,
            served: &served,
            from: &self.units.from,
            renames: &renames(&self.old.model, self.model, self.units),
        });
        for (position, error) in wrong {
            if let Some(unit) = self
                .model
                .units()
                .get(position)
                .filter(|unit| !self.is_refused(unit))
            {
                self.wrong_unit(found, unit, error);
            }
        }
    }

    fn certificates(&mut self, found: &mut Found) {
        for (server, error) in check_tls(self.model) {
            let name = server.at.to_string();
            self.wrong(found, error, |step| {
                step.kind == Kind::Nbd && step.name == name
            });
        }
    }

    fn addresses(&mut self, found: &mut Found) {
        let (old, model) = (self.old, self.model);
        let own = OwnSockets::tcp(old, model, self.means.administration);
        for wanted in model.listeners() {
            let is_nbd = wanted.nbd.is_some();
            let mut open = old.listeners.iter();
            if open.any(|one| one.wanted == wanted.bind && one.is_nbd == is_nbd) {
                continue;
            }
            if let Err(error) = probe_bind(&wanted, &own, self.means.inherited) {
                let bind = wanted.bind.to_string();
                let of_portal = |step: &PlannedStep| {
                    step.kind == Kind::Portal && step.name.ends_with(&format!(" {bind}"))
                };
                let of_server = |step: &PlannedStep| step.kind == Kind::Nbd && step.name == bind;
                let of_target = |step: &PlannedStep| {
                    let is_new = step.kind == Kind::Target && step.action == Action::Add;
                    is_new && is_at(model, &step.name, &bind)
                };
                let is_its = |step: &PlannedStep| match is_nbd {
                    true => of_server(step),
                    false => of_portal(step) || of_target(step),
                };
                self.wrong(found, error, is_its);
            }
        }
        for server in model.nbd() {
            let name = server.at.to_string();
            let mut steps = self.steps.iter();
            let is_refused = steps.any(|step| {
                step.kind == Kind::Nbd && step.name == name && step.consequence.is_refused_by_rule()
            });
            let Some((path, _)) = server.at.socket().filter(|_| !is_refused) else {
                continue;
            };
            if old.sockets.iter().any(|one| one.path == path) {
                continue;
            }
            if let Err(error) = probe_socket((&server.place, path), self.means.inherited) {
                self.wrong(found, error, |step| {
                    step.kind == Kind::Nbd && step.name == name
                });
            }
        }
        for (group, error) in hyperscsi::probe_places(old, model) {
            let name = group.to_string();
            self.wrong(found, error, |step| {
                step.kind == Kind::HyperScsi && step.name == name
            });
        }
    }
}

impl Rehearsal<'_> {
    /// What keys of the process meet, now or at the next start.
    fn process(&mut self, found: &mut Found) {
        let (old, model) = (self.old, self.model);
        let has =
            |rehearsal: &Self, kind: Kind| rehearsal.steps.iter().any(|step| step.kind == kind);
        if has(self, Kind::Admin) {
            for error in check_certificate(model) {
                let is_its = |step: &PlannedStep| {
                    step.kind == Kind::Admin && matches!(step.name.as_str(), "certificate" | "key")
                };
                self.wrong(found, error, is_its);
            }
            let own = OwnSockets::tcp(old, model, self.means.administration);
            for error in probe_addresses(&old.model, model, &own, self.means.inherited) {
                let is_its = |step: &PlannedStep| step.kind == Kind::Admin && step.name == "listen";
                self.wrong(found, error, is_its);
            }
        }
        for (error, is_its) in next_start::mistakes(self.steps, model, self.file) {
            self.wrong(found, error, is_its);
        }
        found.not_probed.extend(next_start::untried(self.steps));
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
