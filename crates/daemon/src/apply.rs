//! Carries a change out: everything that can fail first, then what cannot.
//!
//! 1. Secrets are read, identities looked up, new stores opened and new addresses bound. Nobody
//!    sees any of it; dropping it undoes it, and removes the files that were made for it. All that
//!    the ledger of identities must know of the change is in it from here on, beside what it knew
//!    before.
//! 2. The data plane takes the new units up, unseen.
//! 3. The document and its record are put on disk.
//! 4. Stores grow, and begin to write through or back.
//! 5. The rules switch: from here on there is no way back and none is needed. Sessions end that may
//!    no longer be there, the others are given what they see now.
//! 6. Units that are gone are flushed and closed (`settling`).

use std::sync::Arc;

use admin::NextEndpoints;
use config::{Model, Place, StoreSpec};
use confine::inherited::Inherited;
use plane::{
    Access, Confirmation, Handle, NoAnswer, PortalIndex, TargetIndex, UnitDescription, UnitIndex,
};
use reactor::Listener;
use store::{ComposeError, Form, Member, SharedStore};

use super::attempts::Patience;
use super::attempts::on_thread;
use super::caches::{self, CacheSwitch};
use super::held::Acceptance;
use super::held::{Withheld, withheld};
use super::hyperscsi::{Served, Sites};
use super::log_device::attach;
use super::open::{
    Leftovers, OpenStore, Opener, bind, bind_socket, open_members, open_parts, open_tls,
};
use super::own_sockets::OwnSockets;
use super::quotas::Accounts;
use super::running::{
    NO_PORTAL, PortNumbers, Running, RunningListener, RunningSocket, RunningUnit, profile,
    settings, slow_command, unit_plan,
};
use super::served::{Expected, Part, open_expected};
use super::settling::{Leaver, Unsettled};
use super::steps::Match;
use crate::administration::{AdminListening, listen_at, listens_otherwise};
use crate::locate::{Location, check_uses, locate_store};
use crate::medium::Medium;
use crate::secret::Secrets;
use crate::state::{LedgerChange, Rename, State, Trouble, UnitIdentity, check_identities, path_of};
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
    sites: Sites,
    /// Sessions of HyperSCSI see what they are to see, or are over.
    grouped: Option<Confirmation>,
    /// Positions of units whose store grows.
    grown: Vec<(usize, Growth)>,
    cached: Vec<CacheSwitch>,
    /// Where the administration listens then, if elsewhere.
    administration: Option<NextEndpoints>,
    /// What goes again where it does not come into force.
    made: Leftovers,
}

/// How a store grows.
enum Growth {
    /// To a size in bytes.
    To(u64),
    /// A composition: the sizes of the members that it has, in bytes, and what comes behind them.
    Members {
        sizes: Vec<Option<u64>>,
        added: Vec<Member>,
        /// What those are that come.
        media: Vec<Option<Medium>>,
    },
}

impl Growth {
    fn in_words(&self) -> String {
        match self {
            Self::To(size_bytes) => format!(" to {size_bytes} bytes"),
            Self::Members { .. } => String::new(),
        }
    }
}

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

/// Opens and binds all that is new.
pub(super) fn prepare(
    old: &Running,
    model: Model,
    secrets: Arc<Secrets>,
    units: &Match,
    means: &Means<'_>,
) -> Result<Prepared, StartError> {
    let (state, made) = (means.state, Leftovers::of(&means.opener));
    headroom::allow(&old.model, &model)?;
    let locations = locate_new(old, &model, units, &means.patience)?;
    let before = |position: usize| units.from.get(position).copied().flatten();
    let identities = identities(old, &model, units, &locations, state)?;
    let model = Arc::new(model);
    let mut running = Running {
        tls: open_tls(&model)?,
        secrets,
        next_target: old.next_target,
        ports: PortNumbers::of_model(&model, state)?,
        model: Arc::clone(&model),
        ..Running::nothing(&model)
    };
    let mut prepared = Parts::default();
    for ((position, unit), identity) in model.units().iter().enumerate().zip(identities) {
        let from =
            before(position).and_then(|at| Some((old.units.get(at)?, &old.model.units()[at])));
        let unit = match from {
            Some((served, before)) if units.keeps(position, before, unit) => {
                let (growth, location) = growth(served, unit, means)?;
                let mut served = served.clone();
                if let Some(Growth::Members { media, .. }) = &growth {
                    served.opened.media.extend(media.iter().cloned());
                }
                let grown = growth.map(|growth| (position, growth));
                prepared.grown.extend(grown);
                prepared
                    .cached
                    .extend(CacheSwitch::of(served.index, before, unit));
                served.at(location)
            }
            Some(_) | None => {
                prepared.added.push(position);
                let open = from.filter(|_| units.is_reopened(position));
                open_unit(unit, identity, open.map(|(served, _)| served), means)?
            }
        };
        running.units.push(unit);
    }
    super::quotas::check(&model, &running.units, old)?;
    check_identities(&model, running.units.iter().map(|unit| &unit.identity))?;
    number_targets(&mut running, old);
    let own = OwnSockets::tcp(old, &model, means.administration);
    let (opened, closed) = open_listeners(&mut running, old, &own, means.inherited)?;
    let sites = open_hyperscsi(&mut running, old, state, means.opener.cores)?;
    let administration = open_administration(old, &running.model, &own, means)?;
    Ok(Prepared {
        administration,
        added: prepared.added,
        grown: prepared.grown,
        cached: prepared.cached,
        removed: leaving(&running, old),
        running,
        opened,
        closed,
        sites,
        grouped: None,
        made,
    })
}

/// The identities of the units of a new configuration, which are in the ledger from now on.
fn identities(
    old: &Running,
    model: &Model,
    units: &Match,
    locations: &[Option<Location>],
    state: &State,
) -> Result<Vec<UnitIdentity>, StartError> {
    let served: Vec<_> = old.units.iter().map(|unit| unit.identity.clone()).collect();
    state.identities_of_change(&LedgerChange {
        old: &old.model,
        new: model,
        locations,
        served: &served,
        from: &units.from,
        renames: &renames(&old.model, model, units),
    })
}

/// Listens for administrators where nobody does yet, if they are to come elsewhere. Where none may come at all, there
/// is nothing to open: the next start sees to it.
fn open_administration(
    old: &Running,
    model: &Model,
    own: &OwnSockets,
    means: &Means<'_>,
) -> Result<Option<NextEndpoints>, StartError> {
    let is_renewed = |one: &AdminListening| one.is_renewed(model);
    if !listens_otherwise(&old.model, model) && !means.administration.is_some_and(is_renewed) {
        return Ok(None);
    }
    match means.administration {
        Some(administration) => administration
            .prepare(model, own, means.inherited)
            .map(Some),
        None if !means.begun.admin().is_enabled => Ok(None),
        None => Err(StartError::NoAdministration),
    }
}

/// The units that the data plane has, and the new configuration does not.
fn leaving(running: &Running, old: &Running) -> Vec<UnitIndex> {
    let stays = |unit: &&RunningUnit| running.units.iter().any(|one| one.index == unit.index);
    let removed = old.units.iter().filter(|unit| !stays(unit));
    removed.map(|unit| unit.index).collect()
}

/// What a store that is open has to become for a unit, and where all of it is then.
fn growth(
    served: &RunningUnit,
    unit: &config::Unit,
    means: &Means<'_>,
) -> Result<(Option<Growth>, Option<Location>), StartError> {
    let location = served.location.clone();
    // A unit that is not served gets its size when its store is opened.
    if served.opened.held.is_some() {
        return Ok((None, location));
    }
    let Some(composed) = &served.opened.composed else {
        let size = unit.store.size_bytes;
        let grown = size.filter(|size| *size > served.store.capabilities().size_bytes);
        return Ok((grown.map(Growth::To), location));
    };
    let (members, open) = (unit.store.members(), composed.members());
    let sizes = members.iter().map(|one| one.store.configured_size_bytes());
    let sizes: Vec<Option<u64>> = sizes.take(open.len()).collect();
    let is_concat = composed.form() == Form::Concat;
    let differs = |(one, size): (&Member, &Option<u64>)| match is_concat {
        true => one.bytes != *size,
        false => size.is_some_and(|size| size > one.store.capabilities().size_bytes),
    };
    if members.len() == open.len() && !open.iter().zip(&sizes).any(differs) {
        return Ok((None, location));
    }
    let (mut found, mut media) = (Vec::new(), Vec::new());
    let added = members.get(open.len()..).unwrap_or_default();
    let added = open_members(added, is_concat, |spec, place| {
        let (part, location) = open_new_part((spec, place), None, &Expected::Anything, means)?;
        found.extend(location);
        media.push(part.medium);
        Ok::<_, StartError>(part.store)
    })?;
    let location = Location::joined(location, found);
    let growth = Growth::Members {
        sizes,
        added,
        media,
    };
    Ok((Some(growth), location))
}

/// Makes what a store is on larger, as far as it is not.
fn grow_media(
    unit: &config::Unit,
    opened: &OpenStore,
    growth: &Growth,
    patience: &Patience<'_>,
) -> Result<(), String> {
    let sizes = match growth {
        Growth::To(size_bytes) => vec![Some(*size_bytes)],
        Growth::Members { sizes, .. } => sizes.clone(),
    };
    for ((part, store), size) in unit.parts().zip(opened.parts()).zip(sizes) {
        if let Some(size) = size.filter(|size| *size > store.capabilities().size_bytes) {
            let grown = on_thread(part, patience, move |_, _| store.grow(size));
            let grown = grown.map_err(|error| crate::error::chain(&error))?;
            grown.map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// Where the units of a new configuration are. Only parts that are not served are looked for: the
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
        let (location, count) = match served {
            Some((served, before)) if units.keeps(position, before, unit) => {
                (served.location.clone(), before.parts().count())
            }
            Some(_) | None => (None, 0),
        };
        let found = unit.parts().skip(count);
        let found = found.map(|part| on_thread(part, patience, locate_store)?);
        let found = found.collect::<Result<Vec<_>, _>>()?;
        let found = found.into_iter().flatten().collect();
        locations.push(Location::joined(location, found));
    }
    // The plan has compared logs.
    check_uses(new, &locations, &[])?;
    Ok(locations)
}

/// The store of a unit, opened, and where it is then. `open` are its parts, where they are open.
fn open_new(
    unit: &config::Unit,
    open: Vec<Arc<dyn SharedStore>>,
    expected: &Expected,
    means: &Means<'_>,
) -> Result<(OpenStore, Option<Location>), StartError> {
    let (mut open, mut found) = (open.into_iter(), Vec::new());
    let store = open_parts(unit, |spec, place| {
        let (part, location) = open_new_part((spec, place), open.next(), expected, means)?;
        found.extend(location);
        Ok(part)
    })?;
    Ok((store, Location::joined(None, found)))
}

/// A unit that the data plane does not have yet, with its store. `open` has its parts, where they are open.
fn open_unit(
    unit: &config::Unit,
    identity: UnitIdentity,
    open: Option<&RunningUnit>,
    means: &Means<'_>,
) -> Result<RunningUnit, StartError> {
    let expected = match open {
        Some(_) if means.opener.acceptance == Acceptance::AsServed => {
            Expected::of(unit, &identity)?
        }
        // Whatever is there, but nothing is made in its place.
        Some(_) => Expected::Present,
        None => Expected::Anything,
    };
    expected.check_form(unit)?;
    expected.note_unserved(unit, &identity);
    // One whose store is not open has stand-ins.
    let is_open = |open: &&RunningUnit| {
        !open
            .opened
            .held
            .as_ref()
            .is_some_and(Withheld::is_tried_again)
    };
    let is_new = open.is_none();
    let open = open.filter(is_open);
    let open = open.map(|open| open.opened.parts()).unwrap_or_default();
    let (store, location) = match open_new(unit, open, &expected, means) {
        // The next start opens it.
        Err(error) if is_new && error.needs_restart() => {
            let store = withheld(unit, None, &error)?;
            return Ok(RunningUnit::new(store, identity, None));
        }
        opened => opened?,
    };
    let mut identity = means.state.settle_identity(unit, identity, &*store.store);
    // That of an image is known now; one that is kept nowhere never is.
    identity.is_withheld &= !identity.state.is_kept();
    let store = attach_new(unit, &identity, store, means)?;
    Ok(RunningUnit::new(store, identity, location))
}

/// The open store of a unit with its log, which may be a file on a file system that hangs.
fn attach_new(
    unit: &config::Unit,
    identity: &UnitIdentity,
    opened: OpenStore,
    means: &Means<'_>,
) -> Result<OpenStore, StartError> {
    let Some(log) = &unit.log else {
        return attach(unit, identity, opened, &means.opener);
    };
    let (unit, identity, opener) = (unit.clone(), identity.clone(), means.opener.clone());
    on_thread((&log.store, &log.place), &means.patience, move |_, _| {
        attach(&unit, &identity, opened, &opener)
    })?
}

/// A part of a unit, opened, and where it is then: opening may have made the file. One that is open and still at its
/// place is not opened a second time.
fn open_new_part(
    part: (&StoreSpec, &Place),
    open: Option<Arc<dyn SharedStore>>,
    expected: &Expected,
    means: &Means<'_>,
) -> Result<(Part, Option<Location>), StartError> {
    let (opener, expected) = (means.opener.clone(), expected.clone());
    on_thread(part, &means.patience, move |spec, place| {
        let is_at_place = |store: &Arc<dyn SharedStore>| match spec.at.node() {
            Some((path, _)) => !matches!(store.is_at(path), Ok(false)),
            None => !store.is_outdated(),
        };
        let part = match open.filter(is_at_place) {
            Some(store) => Part::of_open(spec, store),
            None => open_expected(spec, place, &opener, &expected)?,
        };
        Ok((part, locate_store(spec, place)?))
    })?
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

/// What is found while the units of a model are gone through.
#[derive(Default)]
struct Parts {
    added: Vec<usize>,
    grown: Vec<(usize, Growth)>,
    cached: Vec<CacheSwitch>,
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

/// Listens where nobody of `old` does: at addresses, those of NBD last, then at unix sockets.
pub(crate) fn open_listeners(
    running: &mut Running,
    old: &Running,
    own: &OwnSockets,
    inherited: &Inherited,
) -> Result<(Vec<Listener>, Vec<PortalIndex>), StartError> {
    let mut opened = Vec::new();
    for wanted in running.model.listeners() {
        let is_nbd = wanted.nbd.is_some();
        let same = |one: &&RunningListener| one.wanted == wanted.bind && one.is_nbd == is_nbd;
        let listener = match old.listeners.iter().find(same) {
            Some(same) => same.clone(),
            None => {
                let listener = bind(&wanted, own, inherited)?;
                let (bound, socket) = (listener.local_address(), listener.occupant());
                opened.push(listener);
                RunningListener {
                    index: NO_PORTAL,
                    wanted: wanted.bind,
                    bound,
                    is_nbd,
                    socket,
                }
            }
        };
        running.listeners.push(listener);
    }
    let stays = |one: &&RunningListener| {
        let is_it = |it: &RunningListener| it.wanted == one.wanted && it.is_nbd == one.is_nbd;
        running.listeners.iter().any(is_it)
    };
    let closed = old.listeners.iter().filter(|one| !stays(one));
    let mut closed: Vec<PortalIndex> = closed.map(|one| one.index).collect();
    open_sockets(running, old, inherited, &mut opened)?;
    let stays = |one: &&RunningSocket| running.sockets.iter().any(|it| it.path == one.path);
    let gone = old.sockets.iter().filter(|one| !stays(one));
    closed.extend(gone.map(|one| one.index));
    Ok((opened, closed))
}

/// Makes what HyperSCSI needs, and opens places where nobody of `old` is.
pub(crate) fn open_hyperscsi(
    running: &mut Running,
    old: &Running,
    state: &State,
    cores: usize,
) -> Result<Sites, StartError> {
    let model = Arc::clone(&running.model);
    let mut served = Served::of((&model, &running.secrets), &running.units, old, state)?;
    let sites = served.open_sites(&model, old, cores)?;
    running.hyperscsi = served;
    Ok(sites)
}

fn open_sockets(
    running: &mut Running,
    old: &Running,
    inherited: &Inherited,
    opened: &mut Vec<Listener>,
) -> Result<(), StartError> {
    let model = Arc::clone(&running.model);
    for server in model.nbd() {
        let Some((path, mode)) = server.at.socket() else {
            continue;
        };
        let socket = match old.sockets.iter().find(|one| one.path == path) {
            Some(same) => RunningSocket {
                mode,
                ..same.clone()
            },
            None => {
                let (listener, file) = bind_socket(&server.place, (path, mode), inherited)?;
                opened.push(listener);
                RunningSocket {
                    index: NO_PORTAL,
                    path: path.to_owned(),
                    mode,
                    file: file.map(Arc::new),
                }
            }
        };
        running.sockets.push(socket);
    }
    Ok(())
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
        self.note_media(state);
        self.add_units(plane)?;
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
        for (unit, served) in self.added.iter().chain(grown).filter_map(unit) {
            let Some(media) = served.opened.media_now(unit) else {
                continue;
            };
            if let Err(error) = served.identity.state.note_media(&media) {
                let naa = served.identity.naa.to_string();
                state.troubles().note(Trouble::of_medium(naa, &error));
            }
        }
    }

    /// The positions of the units that it added.
    pub(super) fn added_positions(&self) -> &[usize] {
        &self.added
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
            format!("lun {unit} cannot grow{size}: {error}")
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

    /// Gives a concat the sizes and members that it gets, or looks whether it can have them.
    fn grow_concat(
        &self,
        position: usize,
        growth: &Growth,
        is_check: bool,
    ) -> Result<(), ComposeError> {
        let composed = self.running.units[position].opened.composed.as_ref();
        match (growth, composed) {
            (Growth::Members { sizes, added, .. }, Some(composed))
                if composed.form() == Form::Concat =>
            {
                match is_check {
                    true => composed.grown_by(sizes, added.clone()).map(drop),
                    false => composed.grow_by(sizes, added.clone()),
                }
            }
            (Growth::To(_) | Growth::Members { .. }, _) => Ok(()),
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
