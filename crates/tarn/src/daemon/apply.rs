//! Carries a change out: everything that can fail first, then what cannot.
//!
//! 1. Secrets are read, identities looked up, new stores opened and new addresses bound. Nobody
//!    sees any of it; dropping it undoes it. All that the ledger of identities must know of the
//!    change is in it from here on, beside what it knew before.
//! 2. The data plane takes the new units up, unseen.
//! 3. The document and its record are put on disk.
//! 4. Stores grow.
//! 5. The rules switch: from here on there is no way back and none is needed. Sessions end that may
//!    no longer be there, the others are given what they see now.
//! 6. Units that are gone are flushed and closed (`settling`).

use std::path::PathBuf;
use std::sync::Arc;

use config::Model;
use confine::inherited::Inherited;
use plane::{
    Access, Asker, ConnectionReport, Grant, Handle, NoAnswer, PortalIndex, SessionReport,
    TargetIndex, UnitDescription, UnitIndex, VisibleLun,
};
use reactor::Listener;
use store::SharedStore;

use super::attempts::Patience;
use super::open::{bind, open_store};
use super::running::{
    NO_PORTAL, PortNumbers, Running, RunningListener, RunningUnit, profile, slow_command, unit_plan,
};
use super::settling::{Leaver, Unsettled};
use super::steps::Match;
use crate::access::ModelPolicy;
use crate::locate::{Location, check_uses, locate};
use crate::secret::Secrets;
use crate::state::{LedgerChange, Rename, State, path_of};
use crate::{StartError, headroom};

/// A new configuration with everything it needs, of which nobody has seen anything yet.
pub(crate) struct Prepared {
    pub(super) running: Running,
    /// Positions of units that the data plane does not have yet.
    added: Vec<usize>,
    /// Units of the data plane that the new configuration does not have.
    removed: Vec<UnitIndex>,
    opened: Vec<Listener>,
    closed: Vec<PortalIndex>,
    /// Positions of units whose store grows, each with its size in bytes.
    grown: Vec<(usize, u64)>,
}

/// Which session may stay, and what it sees then.
pub(super) struct Verdict {
    pub(super) ended: Vec<SessionReport>,
    pub(super) granted: Vec<Grant>,
}

/// What a change is made with.
pub(super) struct Means<'a> {
    pub(super) state: &'a State,
    pub(super) inherited: &'a Inherited,
    pub(super) patience: Patience<'a>,
    /// How many cores use a store.
    pub(super) cores: usize,
}

/// Opens and binds all that is new.
pub(super) fn prepare(
    old: &Running,
    model: Model,
    secrets: Arc<Secrets>,
    units: &Match,
    means: &Means<'_>,
) -> Result<Prepared, StartError> {
    let state = means.state;
    headroom::allow(&old.model, &model)?;
    let locations = locate_new(old, &model, units, &means.patience)?;
    let before = |position: usize| units.from.get(position).copied().flatten();
    let served: Vec<_> = old.units.iter().map(|unit| unit.identity.clone()).collect();
    let identities = state.identities_of_change(&LedgerChange {
        old: &old.model,
        new: &model,
        locations: &locations,
        served: &served,
        from: &units.from,
        renames: &renames(&old.model, &model, units),
    })?;
    let mut running = Running {
        units: Vec::new(),
        targets: Vec::new(),
        listeners: Vec::new(),
        secrets,
        next_target: old.next_target,
        ports: PortNumbers::of_model(&model, state)?,
        model: Arc::new(model),
    };
    let model = Arc::clone(&running.model);
    let mut prepared = Parts::default();
    for ((position, unit), identity) in model.units().iter().enumerate().zip(identities) {
        let from =
            before(position).and_then(|at| Some((old.units.get(at)?, &old.model.units()[at])));
        let unit = match from {
            Some((served, before)) if units.keeps(position, before, unit) => {
                if let Some(size) = unit.store.size_bytes
                    && size > served.store.capabilities().size_bytes
                {
                    prepared.grown.push((position, size));
                }
                served.clone()
            }
            Some(_) | None => {
                prepared.added.push(position);
                let (store, location) = open_new(unit, means)?;
                RunningUnit::new(store, identity, location)
            }
        };
        running.units.push(unit);
    }
    let stays = |unit: &&RunningUnit| running.units.iter().any(|one| one.index == unit.index);
    let removed = old
        .units
        .iter()
        .filter(|unit| !stays(unit))
        .map(|unit| unit.index)
        .collect();
    number_targets(&mut running, old);
    let (opened, closed) = open_listeners(&mut running, old, means.inherited)?;
    Ok(Prepared {
        added: prepared.added,
        grown: prepared.grown,
        running,
        removed,
        opened,
        closed,
    })
}

/// Where the units of a new configuration are. Only those that are not served are looked for: the
/// file system of one that is served may hang, which is no reason to refuse a change of another.
fn locate_new(
    old: &Running,
    new: &Model,
    units: &Match,
    patience: &Patience<'_>,
) -> Result<Vec<Option<Location>>, StartError> {
    let mut locations = Vec::new();
    for (position, (unit, from)) in new.units().iter().zip(&units.from).enumerate() {
        let served = from.and_then(|at| Some((old.units.get(at)?, old.model.units().get(at)?)));
        locations.push(match served {
            Some((served, before)) if units.keeps(position, before, unit) => {
                served.location.clone()
            }
            Some(_) | None => on_thread(unit, patience, locate)??,
        });
    }
    check_uses(new, &locations)?;
    Ok(locations)
}

/// The store of a unit, opened, and where it is then: opening may have made the file.
fn open_new(
    unit: &config::Unit,
    means: &Means<'_>,
) -> Result<(Arc<dyn SharedStore>, Option<Location>), StartError> {
    let cores = means.cores;
    on_thread(unit, &means.patience, move |unit| {
        let store = open_store(unit, cores)?;
        Ok((store, locate(unit)?))
    })?
}

/// What a call that touches the medium of a unit gives.
pub(super) fn on_thread<T: Send + 'static>(
    unit: &config::Unit,
    patience: &Patience<'_>,
    call: impl FnOnce(&config::Unit) -> T + Send + 'static,
) -> Result<T, StartError> {
    let Some(medium) = unit.store.at.medium() else {
        return Ok(call(unit));
    };
    let path = PathBuf::from(medium.to_string());
    let (unit, place) = (unit.clone(), unit.place.clone());
    let answer = patience.ask(&path, move || call(&unit));
    answer.map_err(|source| StartError::StoreHangs { place, source })
}

/// Units that are served and get another id.
fn renames(old: &Model, new: &Model, units: &Match) -> Vec<Rename> {
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

/// What is found while the units of a model are gone through.
#[derive(Default)]
struct Parts {
    added: Vec<usize>,
    grown: Vec<(usize, u64)>,
}

/// A target that stays keeps its index.
pub(super) fn number_targets(running: &mut Running, old: &Running) {
    let model = Arc::clone(&running.model);
    for target in model.targets() {
        let before = old.model.target_by_name(target.name.as_str());
        let before = before.and_then(|index| old.targets.get(index.position()));
        let index = before.copied().unwrap_or_else(|| {
            let next = TargetIndex(running.next_target);
            running.next_target += 1;
            next
        });
        running.targets.push(index);
    }
}

fn open_listeners(
    running: &mut Running,
    old: &Running,
    inherited: &Inherited,
) -> Result<(Vec<Listener>, Vec<PortalIndex>), StartError> {
    let mut opened = Vec::new();
    for wanted in running.model.listeners() {
        let same = |one: &&RunningListener| one.wanted == wanted.bind;
        let listener = match old.listeners.iter().find(same) {
            Some(same) => *same,
            None => {
                let listener = bind(&wanted, inherited)?;
                let bound = listener.local_address();
                opened.push(listener);
                RunningListener {
                    index: NO_PORTAL,
                    wanted: wanted.bind,
                    bound,
                }
            }
        };
        running.listeners.push(listener);
    }
    let stays = |one: &&RunningListener| running.listeners.iter().any(|it| it.wanted == one.wanted);
    let closed = old.listeners.iter().filter(|one| !stays(one));
    Ok((opened, closed.map(|one| one.index).collect()))
}

impl Prepared {
    /// The first configuration of a run, whose stores and addresses were opened while that was allowed.
    pub(crate) fn first(mut running: Running, opened: Vec<Listener>) -> Self {
        let nothing = Running::nothing(&running.model);
        number_targets(&mut running, &nothing);
        Self {
            added: (0..running.units.len()).collect(),
            removed: Vec::new(),
            opened,
            closed: Vec::new(),
            grown: Vec::new(),
            running,
        }
    }

    /// What it is the preparation of.
    pub(crate) fn running(&self) -> &Running {
        &self.running
    }

    /// Has a data plane that serves nothing serve it.
    pub(crate) fn start(mut self, plane: &Handle) -> Result<Running, String> {
        let nothing = Running::nothing(&self.running.model);
        self.add_units(plane)?;
        let switched = self.switch(&nothing, plane);
        switched.map_err(|error| error.to_string())?;
        Ok(self.running)
    }

    /// The data plane takes the new units up; nobody sees them.
    pub(super) fn add_units(&mut self, plane: &Handle) -> Result<(), String> {
        let running = &mut self.running;
        let mut plans = Vec::new();
        for &position in &self.added {
            let unit = &running.units[position];
            let (store, identity) = (&unit.store, &unit.identity);
            let plan = unit_plan(&running.model, position, store, identity, &running.ports);
            plans.push(plan.map_err(|error| format!("the kept state of a unit: {error}"))?);
        }
        let indices = plane
            .add_units(plans)
            .map_err(|error| crate::error::chain(&error))?;
        for (&position, index) in self.added.iter().zip(indices) {
            running.units[position].index = index;
        }
        Ok(())
    }

    /// The units that it added, to be taken out again.
    pub(super) fn added(&self) -> Vec<Leaver> {
        let leaver = |&position: &usize| Leaver {
            index: self.running.units[position].index,
            name: self.running.unit_name(position),
        };
        self.added.iter().map(leaver).collect()
    }

    /// Grows stores; initiators are notified with the rest.
    pub(super) fn grow(&self, patience: &Patience<'_>) -> Result<(), String> {
        for &(position, size_bytes) in &self.grown {
            let unit = &self.running.model.units()[position];
            let store = Arc::clone(&self.running.units[position].store);
            let grown = on_thread(unit, patience, move |_| store.grow(size_bytes));
            let failed =
                |error: &str| format!("lun {unit} cannot grow to {size_bytes} bytes: {error}");
            grown
                .map_err(|error| failed(&crate::error::chain(&error)))?
                .map_err(|error| failed(&error.to_string()))?;
        }
        Ok(())
    }

    /// Switches. Nothing here can be refused; a core that does not answer is the only trouble. It
    /// never keeps the rest from being switched: the revision counts, so its access rules hold.
    pub(super) fn switch(&mut self, old: &Running, plane: &Handle) -> Result<(), NoAnswer> {
        plane.set_slow_command(slow_command(&self.running.model));
        let described = plane.describe_units(self.changed_units(old));
        let policy = Arc::new(self.running.policy());
        let (opened, switched) = plane.set_access(Access {
            policy: Arc::clone(&policy) as Arc<dyn plane::Policy>,
            targets: self.running.target_plans(),
            open: std::mem::take(&mut self.opened),
            close: std::mem::take(&mut self.closed),
        });
        let new = self
            .running
            .listeners
            .iter_mut()
            .filter(|one| one.index == NO_PORTAL);
        for (listener, index) in new.zip(opened) {
            listener.index = index;
        }
        described.and(switched)
    }

    /// What is left to do when it is in force.
    pub(super) fn rest(&self, old: &Running) -> Unsettled {
        let index = |&(position, _): &(usize, u64)| self.running.units[position].index;
        let leaver = |&index: &UnitIndex| Leaver {
            index,
            name: old
                .unit_position(index)
                .map(|position| old.unit_name(position))
                .unwrap_or_default(),
        };
        Unsettled {
            grown: self.grown.iter().map(index).collect(),
            removed: self.removed.iter().map(leaver).collect(),
        }
    }

    /// What units are called and say of themselves, where either differs.
    fn changed_units(&self, old: &Running) -> Vec<UnitDescription> {
        let mut changed = Vec::new();
        for (position, unit) in self.running.units.iter().enumerate() {
            let Some(before) = old.unit_position(unit.index) else {
                continue;
            };
            let of = |running: &Running, position| {
                let RunningUnit {
                    store, identity, ..
                } = unit;
                profile(&running.model, position, store, identity, &running.ports)
            };
            let new = of(&self.running, position);
            let new_name = self.running.unit_name(position);
            if of(old, before).identity != new.identity || old.unit_name(before) != new_name {
                changed.push(UnitDescription {
                    unit: unit.index,
                    name: new_name.into(),
                    profile: Arc::new(new),
                });
            }
        }
        changed
    }
}

/// What the rules say of sessions that are there.
pub(super) fn judge(policy: &ModelPolicy, sessions: &[SessionReport]) -> Verdict {
    use plane::Policy as _;

    let (mut ended, mut granted) = (Vec::new(), Vec::new());
    // The caller that ends it waits for it.
    for session in sessions.iter().filter(|session| !session.is_ending) {
        let asker = session.asker();
        match luns_of(policy, session) {
            Some(luns) => granted.push(Grant {
                session: session.id,
                core: session.core,
                luns,
                targets: policy.targets(&asker, session.target),
            }),
            None => ended.push(session.clone()),
        }
    }
    Verdict { ended, granted }
}

/// What a session may see, if it may stay. Its first login says what that is, also when that
/// connection is gone; every connection it has now must be granted as much.
fn luns_of(policy: &ModelPolicy, session: &SessionReport) -> Option<Vec<VisibleLun>> {
    use plane::Policy as _;

    let Some(target) = session.target else {
        return policy.may_discover(&session.asker()).then(Vec::new);
    };
    let tag = session.portal_group_tag;
    let granted = |asker: Asker<'_>| {
        policy
            .is_reached(target, asker.portal, tag)
            .then(|| policy.luns(&asker, target).ok())
            .flatten()
    };
    let luns = granted(session.asker())?;
    let has_all = |connection: &ConnectionReport| {
        granted(session.asker_of(connection)).is_some_and(|own| VisibleLun::cover(&own, &luns))
    };
    session.connections.iter().all(has_all).then_some(luns)
}
