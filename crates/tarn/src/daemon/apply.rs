//! Carries a change out: everything that can fail first, then what cannot.
//!
//! 1. Secrets are read, identities looked up, new stores opened and new addresses bound. Nobody
//!    sees any of it; dropping it undoes it.
//! 2. The data plane takes the new units up, unseen.
//! 3. The document and its record are put on disk.
//! 4. Stores grow.
//! 5. The rules switch: from here on there is no way back and none is needed. Sessions end that may
//!    no longer be there, the others are given what they see now.
//! 6. Units that are gone are flushed and closed.

use std::sync::Arc;

use config::Model;
use confine::inherited::Inherited;
use reactor::Listener;
use target::{
    Access, Grant, Handle, NoAnswer, PortalIndex, SessionReport, TargetIndex, UnitDescription,
    UnitIndex,
};

use super::open::{bind, open_store};
use super::running::{
    PortNumbers, Running, RunningListener, RunningUnit, profile, slow_command, unit_plan,
};
use super::steps::Match;
use crate::StartError;
use crate::access::ModelPolicy;
use crate::locate::locate_all;
use crate::secret::Secrets;
use crate::state::State;

/// A new configuration with everything it needs, of which nobody has seen anything yet.
pub(super) struct Prepared {
    pub(super) running: Running,
    /// Positions of units that the data plane does not have yet.
    added: Vec<usize>,
    /// Units of the data plane that the new configuration does not have.
    removed: Vec<UnitIndex>,
    opened: Vec<Listener>,
    closed: Vec<PortalIndex>,
    /// Positions of units whose store grows, each with its size in bytes.
    grown: Vec<(usize, u64)>,
    /// Units that have another id, old and new.
    pub(super) renamed: Vec<(String, String)>,
}

/// Which session may stay, and what it sees then.
pub(super) struct Verdict {
    pub(super) ended: Vec<SessionReport>,
    granted: Vec<Grant>,
}

/// Opens and binds all that is new.
pub(super) fn prepare(
    old: &Running,
    model: Model,
    units: &Match,
    state: &State,
    uid: u32,
    inherited: &Inherited,
) -> Result<Prepared, StartError> {
    let secrets = Secrets::read(&model, uid)?;
    let locations = locate_all(&model)?;
    let before = |position: usize| units.from.get(position).copied().flatten();
    let served = |position| Some(old.units.get(before(position)?)?.identity.clone());
    let identities = state.identities(&model, &locations, served)?;
    let mut running = Running {
        units: Vec::new(),
        targets: Vec::new(),
        listeners: Vec::new(),
        secrets: Arc::new(secrets),
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
            Some((served, before)) if same_medium(before, unit) => {
                if let Some(size) = unit.store.size_bytes
                    && size > served.store.capabilities().size_bytes
                {
                    prepared.grown.push((position, size));
                }
                if before.to_string() != unit.to_string() {
                    prepared
                        .renamed
                        .push((before.to_string(), unit.to_string()));
                }
                served.clone()
            }
            Some(_) | None => {
                prepared.added.push(position);
                RunningUnit {
                    // Given by the data plane when it takes the unit up.
                    index: UnitIndex(u32::MAX),
                    store: open_store(unit)?,
                    identity,
                }
            }
        };
        running.units.push(unit);
    }
    state.note_files(&model, &locate_all(&model)?)?;
    let stays = |unit: &&RunningUnit| running.units.iter().any(|one| one.index == unit.index);
    let removed = old
        .units
        .iter()
        .filter(|unit| !stays(unit))
        .map(|unit| unit.index)
        .collect();
    number_targets(&mut running, old);
    let (opened, closed) = open_listeners(&mut running, old, inherited)?;
    Ok(Prepared {
        added: prepared.added,
        grown: prepared.grown,
        renamed: prepared.renamed,
        running,
        removed,
        opened,
        closed,
    })
}

/// What is found while the units of a model are gone through.
#[derive(Default)]
struct Parts {
    added: Vec<usize>,
    grown: Vec<(usize, u64)>,
    renamed: Vec<(String, String)>,
}

/// Whether the open store of the one serves for the other; steps that would need the same medium
/// twice were refused before.
fn same_medium(a: &config::Unit, b: &config::Unit) -> bool {
    let memory = |kind: &config::StoreKind| kind.path().is_none();
    match (a.store.kind.path(), b.store.kind.path()) {
        (Some(a), Some(b)) => a == b,
        (None, None) => memory(&a.store.kind) && memory(&b.store.kind),
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// A target that stays keeps its index.
fn number_targets(running: &mut Running, old: &Running) {
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
                    // Given by the data plane when it listens.
                    index: PortalIndex(u32::MAX),
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

    /// Takes them out again.
    pub(super) fn drop_units(&self, plane: &Handle) {
        let added = self
            .added
            .iter()
            .map(|&position| self.running.units[position].index);
        let added: Vec<UnitIndex> = added.collect();
        if let Err(error) = plane.remove_units(&added) {
            tracing::error!(%error, "units of a change that failed are still there, unseen");
        }
    }

    /// Makes stores larger; initiators are told with the rest.
    pub(super) fn grow(&self) -> Result<(), String> {
        for (position, size_bytes) in &self.grown {
            let store = &self.running.units[*position].store;
            store.grow(*size_bytes).map_err(|error| {
                let unit = &self.running.model.units()[*position];
                format!("lun {unit} cannot grow to {size_bytes} bytes: {error}")
            })?;
        }
        Ok(())
    }

    /// Switches. Nothing here can be refused; a core that does not answer is the only trouble. It
    /// never keeps the rest from being switched: the revision counts, so its access rules hold.
    pub(super) fn switch(&mut self, old: &Running, plane: &Handle) -> Result<Verdict, NoAnswer> {
        plane.set_slow_command(slow_command(&self.running.model));
        let described = plane.describe_units(self.changed_units(old));
        let policy = Arc::new(self.running.policy());
        let (opened, switched) = plane.set_access(Access {
            policy: Arc::clone(&policy) as Arc<dyn target::Policy>,
            targets: self.running.target_plans(),
            open: std::mem::take(&mut self.opened),
            close: std::mem::take(&mut self.closed),
        });
        let new = self
            .running
            .listeners
            .iter_mut()
            .filter(|one| one.index == PortalIndex(u32::MAX));
        for (listener, index) in new.zip(opened) {
            listener.index = index;
        }
        described.and(switched)?;
        Ok(judge(&policy, &plane.sessions()?))
    }

    /// Tells sessions and closes what is gone. Gives the units whose last flush failed.
    pub(super) fn settle(
        &self,
        verdict: Verdict,
        plane: &Handle,
    ) -> Result<Vec<UnitIndex>, NoAnswer> {
        let ended: Vec<(usize, u16)> = verdict
            .ended
            .iter()
            .map(|session| (session.core, session.tsih))
            .collect();
        plane.end_sessions(&ended, "the configuration lets it in no longer")?;
        plane.grant(verdict.granted)?;
        for (position, _) in &self.grown {
            plane.announce_size(self.running.units[*position].index)?;
        }
        plane.remove_units(&self.removed)
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
            let name = |running: &Running, position| {
                let unit = running.model.units().get(position);
                unit.map(ToString::to_string).unwrap_or_default()
            };
            let (new, new_name) = (of(&self.running, position), name(&self.running, position));
            if of(old, before).identity != new.identity || name(old, before) != new_name {
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
    use target::Policy as _;

    let (mut ended, mut granted) = (Vec::new(), Vec::new());
    for session in sessions {
        let asker = session.asker();
        let luns = match session.target {
            None => Some(Vec::new()),
            Some(target) => policy
                .is_reached(target, session.portal, session.portal_group_tag)
                .then(|| policy.luns(&asker, target).ok())
                .flatten(),
        };
        match luns {
            Some(luns) => granted.push(Grant {
                session: session.tsih,
                core: session.core,
                luns,
                targets: policy.targets(&asker, session.target),
            }),
            None => ended.push(session.clone()),
        }
    }
    Verdict { ended, granted }
}
