//! Carries a change out: everything that can fail first, then what cannot.
//!
//! 1. [`look`](super::look) has found all that is new, and [`take`](super::take) opens it. Nobody sees any of it;
//!    dropping it undoes it, and removes the files that were made for it. All that the ledger of identities must know
//!    of the change is in it from here on, beside what it knew before.
//! 2. The data plane takes the new units up, unseen.
//! 3. The document and its record are put on disk.
//! 4. Stores grow, and begin to write through or back; media of drives are exchanged.
//! 5. The rules switch: from here on there is no way back and none is needed. Sessions end that may
//!    no longer be there, the others are given what they see now.
//! 6. Units that are gone are flushed and closed (`settling`).

use std::sync::Arc;

use admin::NextEndpoints;
use plane::{
    Access, Confirmation, Handle, NoAnswer, PortalIndex, TargetIndex, UnitDescription, UnitIndex,
};
use reactor::Listener;
use store::{ComposeError, Member};

use super::attempts::{Patience, on_thread};
use super::caches::{self, CacheSwitch};
use super::exchange;
use super::hyperscsi::Sites;
use super::open::Leftovers;
use super::opened::OpenStore;
use super::quotas::Accounts;
use super::running::{NO_PORTAL, Running, RunningUnit, profile, settings, slow_command, unit_plan};
use super::settling::{Leaver, Unsettled};
use crate::administration::listen_at;
use crate::medium::Medium;
use crate::state::{State, Trouble};

/// A new configuration with everything it needs, of which nobody has seen anything yet.
pub(crate) struct Prepared {
    pub(super) running: Running,
    /// Positions of units that the data plane does not have yet.
    pub(super) added: Vec<usize>,
    /// Positions of units that get another medium.
    pub(super) exchanged: Vec<usize>,
    /// Units of the data plane that the new configuration does not have.
    pub(super) removed: Vec<UnitIndex>,
    pub(super) opened: Vec<Listener>,
    pub(super) closed: Vec<PortalIndex>,
    pub(super) sites: Sites,
    /// Sessions of HyperSCSI see what they are to see, or are over.
    pub(super) grouped: Option<Confirmation>,
    /// Positions of units whose store grows.
    pub(super) grown: Vec<(usize, Growth)>,
    pub(super) cached: Vec<CacheSwitch>,
    /// Where the administration listens then, if elsewhere.
    pub(super) administration: Option<NextEndpoints>,
    /// What goes again where it does not come into force.
    pub(super) made: Leftovers,
}

/// How a store grows.
pub(super) struct Growth {
    /// The sizes that its parts are to have, in bytes.
    pub(super) sizes: Vec<Option<u64>>,
    /// Members that come behind those.
    pub(super) added: Vec<Member>,
    /// What those are that come.
    pub(super) media: Vec<Option<Medium>>,
}

impl Growth {
    fn in_words(&self) -> String {
        match self.sizes.as_slice() {
            [Some(size_bytes)] => format!(" to {size_bytes} bytes"),
            _ => String::new(),
        }
    }
}

/// Makes what a store is on larger, as far as it is not.
fn grow_media(
    unit: &config::Unit,
    opened: &OpenStore,
    growth: &Growth,
    patience: &Patience<'_>,
) -> Result<(), String> {
    for ((part, store), size) in unit.parts().zip(opened.parts()).zip(&growth.sizes) {
        if let Some(size) = size.filter(|size| *size > store.capabilities().size_bytes) {
            let grown = on_thread(part, patience, move |_, _| store.grow(size));
            let grown = grown.map_err(|error| crate::error::chain(&error))?;
            grown.map_err(|error| error.to_string())?;
        }
    }
    Ok(())
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

impl Prepared {
    /// The first configuration of a run, whose stores and addresses were opened while that was allowed.
    pub(crate) fn first(
        mut running: Running,
        opened: Vec<Listener>,
        sites: Sites,
        made: Leftovers,
    ) -> Self {
        let nothing = Running::nothing(&running.model);
        number_targets(&mut running, &nothing);
        Self {
            added: (0..running.units.len()).collect(),
            exchanged: Vec::new(),
            removed: Vec::new(),
            opened,
            closed: Vec::new(),
            sites,
            grouped: None,
            grown: Vec::new(),
            cached: Vec::new(),
            administration: None,
            made,
            running,
        }
    }

    /// What it is the preparation of.
    pub(crate) fn running(&self) -> &Running {
        &self.running
    }

    /// Has a data plane that serves nothing serve it.
    pub(crate) fn start(
        mut self,
        plane: &Handle,
        accounts: &Accounts,
        state: &State,
    ) -> Result<Running, String> {
        let nothing = Running::nothing(&self.running.model);
        // A start that ends before has made nothing that the next one could miss.
        self.add_units(plane)?;
        self.note_media(state);
        accounts.admit(plane, &self.running, &self.added);
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

    /// Records what the media of its new units are, and how large those are that grew. One that cannot be recorded is
    /// served all the same: the next start may not know it.
    pub(super) fn note_media(&self, state: &State) {
        let grown = self.grown.iter().map(|(position, _)| position);
        let model = &self.running.model;
        let unit = |at: &usize| Some((model.units().get(*at)?, self.running.units.get(*at)?));
        let come = self.added.iter().chain(&self.exchanged);
        for (unit, served) in come.clone().chain(grown).filter_map(unit) {
            let Some(media) = served.opened.media_now(unit) else {
                continue;
            };
            if let Err(error) = served.identity.state.note_media(&media) {
                let naa = served.identity.naa.to_string();
                state.troubles().note(Trouble::of_medium(naa, &error));
            }
        }
        let added = come.filter_map(|at| self.running.units.get(*at));
        let served = added.filter(|unit| unit.opened.held.is_none());
        state.note_served(served.map(|unit| &unit.identity));
    }

    /// The positions of the units whose store it opened.
    pub(super) fn opened_positions(&self) -> Vec<usize> {
        [&*self.added, &*self.exchanged].concat()
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
        let failed = |position: usize, size: &str, error: &str| {
            let unit = self.running.unit_name(position);
            format!(
                "lun {unit} cannot grow{size}: {error}; files that this change lengthened before keep their new size"
            )
        };
        for (position, growth) in &self.grown {
            let unit = &self.running.model.units()[*position];
            let opened = &self.running.units[*position].opened;
            grow_media(unit, opened, growth, patience)
                .map_err(|error| failed(*position, &growth.in_words(), &error))?;
        }
        // All of them or none: what one has taken over stays with it.
        for is_check in [true, false] {
            for (position, growth) in &self.grown {
                let grown = self.grow_concat(*position, growth, is_check);
                grown.map_err(|error| failed(*position, "", &error.to_string()))?;
            }
        }
        Ok(())
    }

    /// Has stores write through or back, all of them or none.
    pub(super) fn switch_caches(&self, plane: &Handle) -> Result<(), String> {
        caches::switch(&self.cached, plane)
    }

    /// Exchanges the media of units, all of them or none.
    pub(super) fn exchange_media(&self, old: &Running, plane: &Handle) -> Result<(), String> {
        exchange::media(&self.exchanged, (old, &self.running), plane)
    }

    /// Gives a concat the sizes and members that it gets, or looks whether it can have them.
    fn grow_concat(
        &self,
        position: usize,
        growth: &Growth,
        is_check: bool,
    ) -> Result<(), ComposeError> {
        let (sizes, added) = (&growth.sizes, growth.added.clone());
        match (self.running.units[position].opened.concat(), is_check) {
            (None, _) => Ok(()),
            (Some(concat), true) => concat.grown_by(sizes, added).map(drop),
            (Some(concat), false) => concat.grow_by(sizes, added),
        }
    }

    /// Switches. Nothing here can be refused; a core that does not answer is the only trouble. It
    /// never keeps the rest from being switched: the revision counts, so its access rules hold.
    pub(super) fn switch(&mut self, old: &Running, plane: &Handle) -> Result<(), NoAnswer> {
        self.made.keep();
        plane.set_slow_command(slow_command(&self.running.model));
        let limited = self.set_limits(old, plane);
        let described = plane.describe_units(self.changed_units(old));
        let policy = Arc::new(self.running.policy());
        // The new listeners, in the order in which they were opened; those of NBD are the last.
        let new = self.running.listeners.iter();
        let new = new.filter(|one| one.index == NO_PORTAL);
        let mut sockets = std::mem::take(&mut self.opened).into_iter();
        let (mut open, mut open_nbd) = (Vec::new(), Vec::new());
        for (wanted, listener) in new.zip(&mut sockets) {
            if wanted.is_nbd {
                open_nbd.push((listener, wanted.wanted.to_string().into()));
            } else {
                open.push(listener);
            }
        }
        let new_sockets = self.running.sockets.iter();
        let new_sockets = new_sockets.filter(|one| one.index == NO_PORTAL);
        for (socket, listener) in new_sockets.zip(sockets) {
            open_nbd.push((listener, socket.path.display().to_string().into()));
        }
        self.set_modes(old);
        let (opened, switched) = plane.set_access(Access {
            policy: Arc::clone(&policy) as Arc<dyn plane::Policy>,
            targets: self.running.target_plans(),
            open,
            open_nbd,
            close: std::mem::take(&mut self.closed),
        });
        let listeners = self.running.listeners.iter_mut();
        let sockets = self.running.sockets.iter_mut().map(|one| &mut one.index);
        let indices = listeners.map(|one| &mut one.index).chain(sockets);
        for (index, given) in indices.filter(|one| **one == NO_PORTAL).zip(opened) {
            *index = given;
        }
        let sites = std::mem::take(&mut self.sites);
        let groups = self.running.hyperscsi.for_plane(&self.running, sites);
        if let Some(next) = self.administration.take() {
            listen_at(next);
        }
        self.grouped = groups.map(|groups| plane.set_hyperscsi(groups));
        described.and(limited).and(switched)
    }

    fn set_limits(&self, old: &Running, plane: &Handle) -> Result<(), NoAnswer> {
        let model = &self.running.model;
        if old.model.limits() == model.limits() {
            return Ok(());
        }
        // The number of cores stays, whatever is said of it here.
        plane.set_limits(settings(model, 1))
    }

    /// Sockets that stay may have another mode now.
    fn set_modes(&self, old: &Running) {
        for socket in &self.running.sockets {
            let before = old.sockets.iter().find(|one| one.path == socket.path);
            if before.is_some_and(|before| before.mode != socket.mode) {
                socket.set_mode();
            }
        }
    }

    /// What is left to do when it is in force.
    pub(super) fn rest(&mut self, old: &Running) -> Unsettled {
        let index = |(position, _): &(usize, Growth)| self.running.units[*position].index;
        // Their cores look at their stores again.
        let cached = self.cached.iter().map(|one| one.unit);
        let leaver = |&index: &UnitIndex| Leaver {
            index,
            name: old
                .unit_position(index)
                .map(|position| old.unit_name(position))
                .unwrap_or_default(),
        };
        Unsettled {
            grown: self.grown.iter().map(index).chain(cached).collect(),
            removed: self.removed.iter().map(leaver).collect(),
            grouped: self.grouped.take(),
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
