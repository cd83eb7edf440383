//! Takes up what a look has: the second half of a change.
//!
//! It makes and lengthens files, takes locks, opens logs and replays them, writes identities, and listens. Each step is
//! undone when [`Prepared`] is dropped, except that a file which was there before keeps its new length. Nothing is
//! located or compared a second time: what is opened is what the look had open, or the change is refused.

use std::net::SocketAddr;
use std::sync::Arc;

use admin::NextEndpoints;
use config::{Model, Place, StoreSpec};
use confine::inherited::Inherited;
use plane::{PortalIndex, UnitIndex};
use reactor::Listener;
use reactor::net::{Bound, Families};
use store::SharedStore;

use super::apply::{Growth, Prepared, number_targets};
use super::attempts::on_thread;
use super::caches::CacheSwitch;
use super::hyperscsi::{Served, Sites};
use super::log_device::attach;
use super::look::{BoundAddresses, Kept, LookedUnit, Means, ledger_change};
use super::open::{Found, Leftovers, bind_socket, open_members, open_parts};
use super::opened::{OpenStore, Part, withheld};
use super::own_sockets::OwnSockets;
use super::running::{
    NO_PORTAL, PortNumbers, Running, RunningListener, RunningSocket, RunningUnit,
};
use super::served::{Expected, open_expected};
use super::steps::Match;
use crate::StartError;
use crate::administration::{AdminListening, listens_otherwise};
use crate::error::Unanswered;
use crate::locate::Location;
use crate::secret::Secrets;
use crate::state::{State, UnitIdentity, check_identities};

/// Connections that may wait to be accepted, per portal.
const BACKLOG: i32 = 4096;

/// Opens all that is new, and listens.
///
/// # Errors
///
/// What a look cannot find, or what has changed since.
pub(super) fn take(
    old: &Running,
    (model, secrets): (Model, Arc<Secrets>),
    units: &Match,
    kept: Kept,
    means: &Means<'_>,
) -> Result<Prepared, StartError> {
    let (state, made) = (means.state, Leftovers::of(&means.opener));
    let locations = kept.locations();
    let change = ledger_change(old, (&model, units), &locations);
    let identities = state.identities_of_change(&change)?;
    let model = Arc::new(model);
    let mut running = Running {
        tls: kept.tls,
        secrets,
        next_target: old.next_target,
        ports: PortNumbers::of_model(&model, state)?,
        model: Arc::clone(&model),
        ..Running::nothing(&model)
    };
    let (mut grown, mut cached) = (Vec::new(), Vec::new());
    let mut looked = kept.units.into_iter();
    for ((position, unit), identity) in model.units().iter().enumerate().zip(identities) {
        let looked = looked.next().unwrap_or_default();
        let from = units.from.get(position).copied().flatten();
        let from = from.and_then(|at| Some((old.units.get(at)?, old.model.units().get(at)?)));
        let unit = match from {
            Some((served, before)) if units.keeps(position, before, unit) => {
                let (growth, location) = growth(served, unit, looked, means)?;
                let mut served = served.clone();
                if let Some(growth) = growth {
                    served.opened.media.extend(growth.media.iter().cloned());
                    grown.push((position, growth));
                }
                cached.extend(CacheSwitch::of(served.index, before, unit));
                served.at(location)
            }
            before => {
                let is_new = !units.is_reopened(position);
                let opened = open_unit(unit, (identity, is_new), looked, means)?;
                let served = before.filter(|(_, before)| units.exchanges(position, before, unit));
                opened.in_place_of(served.map(|(served, _)| served))
            }
        };
        running.units.push(unit);
    }
    check_identities(&model, running.units.iter().map(|unit| &unit.identity))?;
    number_targets(&mut running, old);
    let own = OwnSockets::tcp(old, &model, means.administration);
    let bound = (&own, kept.addresses);
    let (opened, closed) = open_listeners(&mut running, old, bound, means.inherited)?;
    let sites = open_hyperscsi(&mut running, old, state, means.opener.cores)?;
    let bound = kept.administration;
    let administration = open_administration(old, &model, (&own, bound), means)?;
    let (added, exchanged) = opened_units(&running, old);
    Ok(Prepared {
        administration,
        added,
        exchanged,
        grown,
        cached,
        removed: leaving(&running, old),
        running,
        opened,
        closed,
        sites,
        grouped: None,
        made,
    })
}

/// Listens for administrators where nobody does yet, if they are to come elsewhere. Where none may come at all, there
/// is nothing to open: the next start sees to it.
fn open_administration(
    old: &Running,
    model: &Model,
    (own, bound): (&OwnSockets, Vec<(SocketAddr, Bound)>),
    means: &Means<'_>,
) -> Result<Option<NextEndpoints>, StartError> {
    let is_renewed = |one: &AdminListening| one.is_renewed(model);
    if !listens_otherwise(&old.model, model) && !means.administration.is_some_and(is_renewed) {
        return Ok(None);
    }
    match means.administration {
        Some(administration) => administration.take(model, own, bound).map(Some),
        None if !means.begun.admin().is_enabled => Ok(None),
        None => Err(StartError::NoAdministration),
    }
}

/// The positions of the units that the data plane does not have, and of those that it has with another medium.
fn opened_units(running: &Running, old: &Running) -> (Vec<usize>, Vec<usize>) {
    let (mut added, mut exchanged) = (Vec::new(), Vec::new());
    for (position, unit) in running.units.iter().enumerate() {
        let before = old
            .unit_position(unit.index)
            .and_then(|at| old.units.get(at));
        match before {
            None => added.push(position),
            Some(before) if !Arc::ptr_eq(&before.store, &unit.store) => exchanged.push(position),
            Some(_) => {}
        }
    }
    (added, exchanged)
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
    mut looked: LookedUnit,
    means: &Means<'_>,
) -> Result<(Option<Growth>, Option<Location>), StartError> {
    let location = served.location.clone();
    let Some(sizes) = looked.grows.take() else {
        return Ok((None, location));
    };
    let (mut parts, mut media) = (Parts::of(looked, means), Vec::new());
    let added = unit.store.members().get(sizes.len()..).unwrap_or_default();
    let is_concat = served.opened.concat().is_some();
    let added = open_members(added, is_concat, |spec, place| {
        let part = parts.open(spec, place)?;
        media.push(part.medium);
        Ok(part.store)
    })?;
    let location = Location::joined(location, parts.locations);
    let growth = Growth {
        sizes,
        added,
        media,
    };
    Ok((Some(growth), location))
}

/// A unit that the data plane does not have yet, with its store.
fn open_unit(
    unit: &config::Unit,
    (identity, is_new): (UnitIdentity, bool),
    mut looked: LookedUnit,
    means: &Means<'_>,
) -> Result<RunningUnit, StartError> {
    looked.expected.note_unserved(unit, &identity);
    let (log, whole) = (looked.log.take(), looked.location.take());
    let mut parts = Parts::of(looked, means);
    let store = match open_parts(unit, |spec, place| parts.open(spec, place)) {
        // The next start opens it.
        Err(error) if is_new && error.needs_restart() => {
            let store = withheld(unit, None, &error)?;
            return Ok(RunningUnit::new(store, identity, None));
        }
        opened => opened?,
    };
    let location = Location::joined(None, parts.locations).or(whole);
    let mut identity = means.state.settle_identity(unit, identity, &*store.store);
    // That of an image is known now; one that is kept nowhere never is.
    identity.is_withheld &= !identity.state.is_kept();
    let store = attach_new(unit, &identity, store, (log, means))?;
    Ok(RunningUnit::new(store, identity, location))
}

/// The parts of a unit that are yet to be opened, one after the other.
struct Parts<'a> {
    looked: std::vec::IntoIter<(Found, Option<Location>)>,
    expected: Expected,
    waits: bool,
    means: &'a Means<'a>,
    /// Where those are that were opened.
    locations: Vec<Location>,
}

impl<'a> Parts<'a> {
    fn of(looked: LookedUnit, means: &'a Means<'a>) -> Self {
        Self {
            looked: looked.parts.into_iter(),
            expected: looked.expected,
            waits: looked.waits,
            means,
            locations: Vec::new(),
        }
    }

    /// Opens the next one.
    fn open(&mut self, spec: &StoreSpec, place: &Place) -> Result<Part, StartError> {
        let (found, location) = match self.looked.next() {
            Some((found, location)) => (Some(found), location),
            None if self.waits => (None, None),
            None => {
                return Err(StartError::StoreHangs {
                    place: place.clone(),
                    source: Unanswered::NoTime {
                        path: spec.at.to_string().into(),
                    },
                });
            }
        };
        let (opener, expected) = (self.means.opener.clone(), self.expected.clone());
        let patience = &self.means.patience;
        let part = on_thread((spec, place), patience, move |spec, place| {
            open_expected((spec, place), &opener, &expected, found.as_ref())
        })??;
        let location = location.map(|location| location.made(&*part.store));
        self.locations.extend(location);
        Ok(part)
    }
}

/// The open store of a unit with its log, which may be a file on a file system that hangs.
fn attach_new(
    unit: &config::Unit,
    identity: &UnitIdentity,
    opened: OpenStore,
    (found, means): (Option<Arc<dyn SharedStore>>, &Means<'_>),
) -> Result<OpenStore, StartError> {
    let Some(log) = &unit.log else {
        return attach(unit, identity, opened, (&means.opener, None));
    };
    let (unit, identity, opener) = (unit.clone(), identity.clone(), means.opener.clone());
    on_thread((&log.store, &log.place), &means.patience, move |_, _| {
        attach(&unit, &identity, opened, (&opener, found.as_deref()))
    })?
}

/// Listens where nobody of `old` does: at addresses, those of NBD last, then at unix sockets. Addresses that are not
/// `bound` are bound here.
pub(crate) fn open_listeners(
    running: &mut Running,
    old: &Running,
    (own, mut bound): (&OwnSockets, BoundAddresses),
    inherited: &Inherited,
) -> Result<(Vec<Listener>, Vec<PortalIndex>), StartError> {
    let mut opened = Vec::new();
    for wanted in running.model.listeners() {
        let is_nbd = wanted.nbd.is_some();
        let same = |one: &&RunningListener| one.wanted == wanted.bind && one.is_nbd == is_nbd;
        let listener = match old.listeners.iter().find(same) {
            Some(same) => same.clone(),
            None => {
                let bound = match bound.remove(&(wanted.bind, is_nbd)) {
                    Some(bound) => bound,
                    None => own.bind((wanted.bind, &wanted.place), Families::One, inherited)?,
                };
                let listener = bound.listener(BACKLOG, own.going());
                let listener =
                    listener.map_err(|source| own.refused(wanted.place.clone(), source))?;
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

/// Makes what HyperSCSI needs, and opens the places that `old` does not have, for this number of cores.
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
