//! `tarn serve`: opens the stores, binds the portals, runs the data plane until a signal asks it to
//! stop.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use api::control::Control;
use api::event::Severity;
use config::Model;
use confine::inherited::Inherited;
use confine::privileges::opening;
use hyperscsi::limits::ETHERTYPE;
use plane::{DataPlane, Settings};
use reactor::FrameSocket;
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::gettid;

use crate::administration::{AdminSockets, Administration};
use crate::asked::Asked;
use crate::banner::{BoundPortal, ServedUnit, banner, hyperscsi_banner, nbd_banner};
use crate::confinement::Confinement;
use crate::locate::OwnFiles;
use crate::log_device::attach;
use crate::logging::{Log, LogSwitch};
use crate::open::open_parts;
use crate::opened::OpenStore;
use crate::prepare::{Prepared, prepare};
use crate::running::{device_type, foreign, settings};
use crate::served::{Expected, open_expected};
use crate::signal::Signals;
use crate::snapshots::settle_rollbacks;
use crate::state::{Trouble, UnitIdentity, check_identities};
use crate::{
    Daemon, Events, Leftovers, Opener, OwnSockets, PortNumbers, Running, RunningUnit, close_logs,
    hyperscsi_places, nbd_places, open_hyperscsi, open_listeners, read_all_tls, stand_in, withheld,
};
use crate::{Environment, StartError, apply, headroom, interface, logging, say, service};

/// Serves what is asked for until SIGTERM or SIGINT.
///
/// # Errors
///
/// A [`StartError`] when something must be put right first; anything else when the machine fails.
pub fn run(asked: &Asked, environment: &Environment) -> anyhow::Result<()> {
    if !Path::new("/proc/self/task").exists() {
        return Err(StartError::NoProc.into());
    }
    let inherited = Inherited::take().map_err(StartError::Inherited)?;
    let prepared = prepare(asked, environment)?;
    let log = logging::start(&prepared.log)?;
    for warning in &prepared.warnings {
        tracing::warn!("{warning}");
    }
    let signals = Signals::catch_reload()?;
    serve(prepared, inherited, &log, signals)
}

/// Serves until SIGTERM or SIGINT.
///
/// The start has four phases, each with what only it may do. *Load*: with all rights, stores and addresses are opened
/// (and the libraries that stores need). *Confine*: rights are given up. *Connect*: threads begin; the data plane
/// starts empty and gets the first configuration in the same way as every later one; other machines may be contacted.
/// *Seal*: no more `connect`, where no store and no receiver needs it.
///
/// Where `signals` include those that end the program, one that comes while stores are opened ends the start, without
/// an error; else it ends the process in that phase.
///
/// # Errors
///
/// A [`StartError`] when something must be put right first; anything else when the machine fails.
pub fn serve(
    prepared: Prepared,
    inherited: Inherited,
    log: &Log,
    mut signals: Signals,
) -> anyhow::Result<()> {
    let (settings, note) = sized(&prepared.model)?;
    raise_descriptor_limit();
    let opened = open_all(prepared, inherited, settings.cores, &mut signals)?;
    let Some((prepared, inherited, Loaded { sockets, first })) = opened else {
        tracing::info!("stopped before the start was complete");
        return Ok(());
    };
    prepared.make_file()?;
    // Nothing that a signal could spoil has happened so far.
    signals.catch_end()?;
    tell_unused(&inherited, &prepared.model);
    let doctor = crate::Doctor::open(note.clone());
    let receivers = crate::Receivers::of(&prepared.model, prepared.uid, &prepared.host)?;
    service::connect();
    confine(&prepared, sockets.as_ref())?;
    // Not before: a thread has what it had when it began.
    let _last_lines = log.begin()?;
    let banner = notice(first.running(), note);
    let model = Arc::clone(&first.running().model);
    let (plane, daemon) = connect(prepared, inherited, first, settings, (doctor, log.switch()))?;
    receivers.start()?;
    daemon.events.send_to(receivers);
    let control = Arc::clone(&daemon) as Arc<dyn Control>;
    let administration = match sockets {
        Some(sockets) => administration(sockets, control, &daemon)?,
        None => None,
    };
    daemon.note_troubles();
    daemon.note_other_files();
    let reloads = Reloads::start(&daemon)?;
    let accountant = crate::Accountant::start(&daemon)?;
    let scheduler = crate::Scheduler::start(&daemon)?;
    let watcher = crate::Watcher::start(&daemon)?;
    let historian = crate::Historian::start(&daemon)?;
    Confinement::seal(&model)?;
    reactor::process::guard();
    say(io::stdout().lock(), &banner);
    service::ready(&daemon.in_words());
    let signal = signals.wait(|| reloads.ask());
    reloads.stop();
    drop((accountant, scheduler, watcher, historian));
    service::stopping();
    tracing::info!(signal, "stopping");
    end(plane, &daemon, administration)
}

/// What the data plane gets, and what there is to say of it.
fn sized(model: &Model) -> anyhow::Result<(Settings, Option<String>)> {
    let mut settings = settings(model, headroom::cores(model)?);
    settings.connections_max = connections_max(settings.cores, model.units().len());
    let sizing = headroom::size(model, settings.cores, headroom::at_start())?;
    settings.pool_bytes = usize::try_from(sizing.pool_bytes)?;
    let note = sizing.in_words();
    if let Some(note) = &note {
        tracing::warn!("{note}");
    }
    Ok((settings, note))
}

/// What the first phase opens.
struct Loaded {
    sockets: Option<AdminSockets>,
    first: apply::Prepared,
}

/// Phase 1: opens every store and every address, once, while that is allowed.
fn load(prepared: &Prepared, inherited: &Inherited, cores: usize) -> Result<Loaded, StartError> {
    let (model, state) = (&prepared.model, prepared.state.directory());
    let sockets = AdminSockets::open(model, &prepared.socket, state, &prepared.host, inherited)?;
    let first = open(prepared, inherited, cores)?;
    Ok(Loaded { sockets, first })
}

/// Phase 1 with what it needs, which it gives back. `None` where one of the `signals` ended it.
fn open_all(
    prepared: Prepared,
    inherited: Inherited,
    cores: usize,
    signals: &mut Signals,
) -> anyhow::Result<Option<(Prepared, Inherited, Loaded)>> {
    if !signals.has_end() {
        let loaded = opening(|| load(&prepared, &inherited, cores))?;
        return Ok(Some((prepared, inherited, loaded)));
    }
    // On another thread, as a signal does not wake a call that waits for a server.
    let (report, outcome) = sync_channel(1);
    let run = move || {
        let task = format!("/proc/self/task/{}", gettid().as_raw_nonzero());
        let loaded = opening(|| load(&prepared, &inherited, cores));
        // Nobody listens where the start was ended.
        drop(report.send((prepared, inherited, loaded, task)));
    };
    let thread = thread::Builder::new().name("open".to_owned()).spawn(run)?;
    let mut ends_at = None;
    loop {
        match outcome.recv_timeout(SIGNAL_PAUSE) {
            // What was opened is closed here.
            Ok(_) if ends_at.is_some() || signals.take_end() => return Ok(None),
            Ok((prepared, inherited, loaded, task)) => {
                // It would keep the rights that are given up next. It has nothing left to do.
                drop(thread.join());
                wait_until_gone(Path::new(&task));
                return Ok(Some((prepared, inherited, loaded?)));
            }
            Err(RecvTimeoutError::Disconnected) => {
                anyhow::bail!("opening the stores panicked, as said above; please report this")
            }
            Err(RecvTimeoutError::Timeout) if ends_at.is_none() => {
                ends_at = signals.take_end().then(|| Instant::now() + OPENING_MAX);
            }
            Err(RecvTimeoutError::Timeout) if ends_at <= Some(Instant::now()) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Waits for the end of a thread that was joined: the system wakes who joins it a little before it is gone.
#[expect(
    clippy::disallowed_methods,
    reason = "no core of the data plane runs yet"
)]
fn wait_until_gone(task: &Path) {
    let ends_at = Instant::now() + Duration::from_secs(5);
    while task.exists() && Instant::now() < ends_at {
        thread::sleep(Duration::from_millis(1));
    }
}

/// How often a start looks for signals while stores are opened.
const SIGNAL_PAUSE: Duration = Duration::from_millis(20);

/// How long a store may take to be opened after a signal: one whose server answers is opened by then, and its session
/// is ended well.
const OPENING_MAX: Duration = Duration::from_secs(2);

/// Phase 2: gives up what only the first phase needed.
fn confine(prepared: &Prepared, sockets: Option<&AdminSockets>) -> Result<(), StartError> {
    interface::note_right();
    let confinement = Confinement {
        model: &prepared.model,
        reach: &prepared.reach,
        is_other_user: prepared.is_other_user,
        file: prepared.file.as_deref(),
        state: prepared.state.directory(),
        socket: sockets.and_then(AdminSockets::socket),
    };
    confinement.give_up()
}

/// Phase 3: starts a data plane that serves nothing, and gives it the first configuration.
fn connect(
    prepared: Prepared,
    inherited: Inherited,
    first: apply::Prepared,
    settings: Settings,
    (doctor, log): (crate::Doctor, LogSwitch),
) -> anyhow::Result<(DataPlane, Arc<Daemon>)> {
    let model = Arc::clone(&first.running().model);
    let (file, text) = (prepared.file.as_deref(), prepared.text.as_str());
    let history = Daemon::open_history(&prepared.state, file, text, &model)?;
    let (events, kept) = Events::begin_after(history.directory(), SystemTime::now());
    let events = Arc::new(events);
    if let Err(error) = kept {
        tracing::warn!(%error, "numbers of events may go back at the next start");
    }
    let cores = settings.cores;
    let nobody = Arc::new(Running::nothing(&model).policy());
    let sink = Arc::clone(&events) as Arc<dyn plane::EventSink>;
    let plane = DataPlane::start(settings, nobody, sink)?;
    let accounts = crate::Accounts::default();
    let running = first
        .start(plane.handle(), &accounts, &prepared.state)
        .map_err(anyhow::Error::msg)?;
    // They hold the locks of units, which the units have themselves: one that is removed gives its own back.
    drop(prepared.identities);
    let daemon = Daemon::new(crate::Parts {
        plane: Arc::clone(plane.handle()),
        running,
        state: prepared.state,
        file: prepared.file,
        text: prepared.text,
        history,
        uid: prepared.uid,
        flags: prepared.flags,
        reach: prepared.reach,
        inherited,
        cores,
        events,
        doctor,
        accounts,
        log,
    })?;
    Ok((plane, Arc::new(daemon)))
}

/// What is printed at the start.
fn notice(running: &Running, note: Option<String>) -> String {
    let portals = bound_portals(&running.model, &running.bound());
    let units = served_units(running);
    let mut text = nbd_banner(&running.model, &units, &nbd_places(running));
    text += &hyperscsi_banner(&running.model, &units, &hyperscsi_places(running));
    text += &banner(&running.model, &units, &portals);
    if let Some(note) = note {
        // Writing to a String cannot fail.
        let _infallible = writeln!(text, "note: {note}");
    }
    text
}

/// Ends the data plane and the administration. Data that may be lost is an error.
fn end(
    plane: DataPlane,
    daemon: &Daemon,
    administration: Option<Administration>,
) -> anyhow::Result<()> {
    // Beside each other: a change that is under way may wait for a store that hangs.
    let mut stopped = thread::scope(|scope| {
        let ending = administration.map(|it| {
            let ending = thread::Builder::new().name("ending".to_owned());
            // Without a thread it is dropped, which ends it, too.
            ending.spawn_scoped(scope, move || it.stop())
        });
        let stopped = plane.stop();
        if let Some(Ok(ending)) = ending {
            // It ends in some seconds in any case; one that panicked has ended.
            let _is_over = ending.join();
        }
        stopped
    });
    close_logs(daemon);
    daemon.note_saved();
    daemon.end_events();
    if stopped.is_core_lost {
        anyhow::bail!("a core failed; see the log");
    }
    // Of changes whose outcome nobody has asked for; they may be named there already.
    for name in daemon.settlings().unflushed_at_end(&daemon.plane) {
        if !stopped.unflushed.iter().any(|one| **one == *name) {
            stopped.unflushed.push(name.into());
        }
    }
    if !stopped.unflushed.is_empty() {
        anyhow::bail!(
            "the last flush of {} failed, data that was answered as written may be lost; look at {}",
            stopped.unflushed.join(", "),
            daemon.where_to_look(&stopped.unflushed)
        );
    }
    tracing::info!("stopped");
    Ok(())
}

/// Disks are served without an administration rather than not at all.
fn administration(
    sockets: AdminSockets,
    control: Arc<dyn Control>,
    daemon: &Daemon,
) -> Result<Option<Administration>, StartError> {
    let trouble = |message: String| Trouble {
        severity: Severity::Error,
        code: "administration",
        subject: String::new(),
        is_of_unit: false,
        message,
        remedy:
            "put it right and restart Tarn; the socket is not concerned, unless it is named here"
                .to_owned(),
    };
    match sockets.serve(control) {
        Ok(administration) => {
            daemon.set_administration(administration.listening());
            for problem in administration.problems() {
                daemon.state.troubles().note(trouble(problem.clone()));
            }
            Ok(Some(administration))
        }
        // A rule of the configuration, which is to be changed.
        Err(error @ StartError::Admin(admin::StartError::PlainBeyondLoopback { .. })) => Err(error),
        Err(error) => {
            let error = crate::error::chain(&error);
            daemon
                .state
                .troubles()
                .note(trouble(format!("there is none: {error}")));
            Ok(None)
        }
    }
}

/// As many open files as the system lets this process have: a session is one at least, and the
/// soft limit is there for programs that wait with `select`.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// How often what changes have left to do is tried again.
const SETTLE_PAUSE: Duration = Duration::from_secs(1);

/// Reloads, on a thread of their own, one after the other: a signal that ends the program waits
/// for none.
struct Reloads {
    /// Has room for one: a request while the file is being applied causes one more reload, which
    /// sees what all of them changed.
    ask: Option<SyncSender<()>>,
    is_stopping: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

/// How long the end waits for the thread, which gives up what it has of the daemon, such as files of sockets.
const RELOAD_END_MAX: Duration = Duration::from_millis(500);

impl Drop for Reloads {
    #[expect(
        clippy::disallowed_methods,
        reason = "the end of a thread has no wait with a limit"
    )]
    fn drop(&mut self) {
        self.ask = None;
        let end = Instant::now() + RELOAD_END_MAX;
        while !self.thread.is_finished() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Reloads {
    fn start(daemon: &Arc<Daemon>) -> io::Result<Self> {
        let (ask, asked) = sync_channel(1);
        let is_stopping = Arc::new(AtomicBool::new(false));
        let (daemon, is_over) = (Arc::clone(daemon), Arc::clone(&is_stopping));
        let run = move || {
            loop {
                match asked.recv_timeout(SETTLE_PAUSE) {
                    Ok(()) => reload(&daemon, &is_over),
                    Err(RecvTimeoutError::Timeout) => {
                        daemon.settle_rest();
                        settle_rollbacks(&daemon);
                        daemon.reopen_outdated();
                        daemon.note_growth();
                        reactor::process::look_after_guardian();
                    }
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        };
        let thread = thread::Builder::new().name("reload".to_owned());
        Ok(Self {
            ask: Some(ask),
            is_stopping,
            thread: thread.spawn(run)?,
        })
    }

    fn ask(&self) {
        match self.ask.as_ref().map(|ask| ask.try_send(())) {
            // One that has not begun will see this change of the file, too.
            Some(Ok(()) | Err(TrySendError::Full(()))) => {}
            Some(Err(TrySendError::Disconnected(()))) | None => {
                tracing::error!("the reload thread has ended; nothing was changed");
            }
        }
    }

    /// None begins any more, and none reports to the service manager that Tarn is ready.
    fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
    }
}

/// Applies the configuration file as it is now.
fn reload(daemon: &Daemon, is_over: &AtomicBool) {
    if is_over.load(Ordering::SeqCst) {
        return;
    }
    service::reloading();
    match daemon.apply_file() {
        Ok(applied) => {
            let steps = applied.steps.len();
            tracing::info!(revision = applied.revision, steps, "configuration applied");
        }
        Err(problem) => tracing::error!(%problem, "nothing was changed"),
    }
    if !is_over.load(Ordering::SeqCst) {
        service::ready(&daemon.in_words());
    }
}

/// Opens every store and binds every address of the first configuration.
fn open(
    prepared: &Prepared,
    inherited: &Inherited,
    cores: usize,
) -> Result<apply::Prepared, StartError> {
    let model = &prepared.model;
    let (tls, wrong) = read_all_tls(model);
    if let Some((_, error)) = wrong.into_iter().next() {
        return Err(error);
    }
    let mut running = Running {
        model: Arc::new(model.clone()),
        secrets: Arc::clone(&prepared.secrets),
        ports: PortNumbers::of_start(model, &prepared.state)?,
        tls,
        ..Running::nothing(model)
    };
    let state = prepared.state.directory();
    let own_files = OwnFiles::of([model], prepared.file.as_deref(), Some(state));
    let opener = Opener::of_start(cores, model, own_files);
    let made = Leftovers::of(&opener);
    let identities = prepared.identities.iter().zip(&prepared.twice);
    for (unit, (identity, twice)) in model.units().iter().zip(identities) {
        let store = match twice {
            _ if identity.is_withheld => stand_in(unit, None)?,
            Some(error) => withheld(unit, None, error)?,
            None => open_first(unit, identity, &opener, prepared.holds_units())?,
        };
        let state = &prepared.state;
        let mut identity = state.settle_identity(unit, identity.clone(), &*store.store);
        // An image has its identity itself, and the one of the ledger may be another.
        identity.is_withheld |= store.held.is_some() && unit.store.at.image().is_some();
        running.units.push(RunningUnit::new(store, identity, None));
    }
    keep_sockets(&running);
    crate::check_quotas(model)?;
    check_identities(model, running.units.iter().map(|unit| &unit.identity))?;
    for (unit, location) in running.units.iter_mut().zip(prepared.note_files()?) {
        // What is at the place of one that is not served is not its own.
        unit.location = location.filter(|_| unit.opened.held.is_none());
    }
    let nothing = Running::nothing(model);
    let own = (&OwnSockets::default(), BTreeMap::new());
    let (opened, _) = open_listeners(&mut running, &nothing, own, inherited)?;
    let sites = open_hyperscsi(&mut running, &nothing, &prepared.state, cores)?;
    Ok(apply::Prepared::first(running, opened, sites, made))
}

/// Makes the sockets of interfaces with which the stores of units that are held are tried again: later there is no
/// right to make them.
fn keep_sockets(running: &Running) {
    let mut wanted: BTreeMap<&str, usize> = BTreeMap::new();
    let units = running.model.units().iter().zip(&running.units);
    let held = units.filter(|(_, served)| served.opened.held.is_some());
    for (spec, _) in held.flat_map(|(unit, _)| unit.parts()) {
        if let Some(name) = spec.at.device().and_then(config::GroupDevice::interface) {
            *wanted.entry(name).or_default() += 1;
        }
    }
    // Without the right they are held for that.
    for (name, count) in wanted.into_iter().filter(|_| interface::has_right()) {
        if let Err(error) = FrameSocket::keep_sockets(name, ETHERTYPE, count) {
            tracing::warn!(%error, "stores at an interface are not tried again");
        }
    }
}

/// A socket that nothing asks for is a slip of the finger, most likely in the port.
fn tell_unused(inherited: &Inherited, model: &Model) {
    let listeners = model.listeners();
    let portals = listeners.iter().map(|listener| listener.bind);
    let admin = model.admin().listen.iter().map(|listener| listener.bind);
    let used: Vec<SocketAddr> = portals.chain(admin).collect();
    for address in inherited.addresses().filter(|it| !used.contains(it)) {
        tracing::warn!(%address, "no portal has this socket of the service manager; name its very address");
    }
    let sockets: Vec<&Path> = model
        .nbd()
        .iter()
        .filter_map(|one| Some(one.at.socket()?.0))
        .collect();
    for path in inherited.paths().filter(|path| !sockets.contains(path)) {
        let path = path.display();
        tracing::warn!(%path, "no [[nbd]] has this socket of the service manager; name its very path");
    }
}

fn bound_portals(model: &Model, bound: &[Vec<SocketAddr>]) -> Vec<BoundPortal> {
    let mut portals = Vec::new();
    for ((index, target), addresses) in model.target_indices().zip(model.targets()).zip(bound) {
        for (portal, address) in target.portals.iter().zip(addresses) {
            let advertise = portal.advertise.clone();
            portals.push(BoundPortal {
                target: index,
                address: *address,
                advertise,
            });
        }
    }
    portals
}

fn served_units(running: &Running) -> Vec<ServedUnit> {
    let units = running.units.iter().zip(running.model.units());
    let served = units.map(|(served, unit)| {
        let foreign = foreign(Some(unit), &served.store);
        ServedUnit {
            size_bytes: served.store.capabilities().size_bytes,
            device: foreign.map(|facts| device_type(Some(unit), Some(&facts)).word()),
            serial: served.identity.serial.clone(),
            naa: served.identity.naa,
        }
    });
    served.collect()
}

/// How many connections leave descriptors for everything else: what the administration needs to be
/// Opens the store of a unit at the start. Where it `is_held` one that cannot be opened is not served, and the others
/// are.
///
/// # Errors
///
/// It cannot be opened, and is not held.
fn open_first(
    unit: &config::Unit,
    identity: &UnitIdentity,
    opener: &Opener,
    is_held: bool,
) -> Result<OpenStore, StartError> {
    match open_store(unit, identity, opener) {
        Err(error) if is_held => {
            let recorded = Expected::of(unit, identity).ok();
            withheld(unit, recorded.and_then(|it| it.size_bytes()), &error)
        }
        outcome => outcome,
    }
}

/// Opens the store of a unit, with its log. May take as long as a file system or a server lets it.
fn open_store(
    unit: &config::Unit,
    identity: &UnitIdentity,
    opener: &Opener,
) -> Result<OpenStore, StartError> {
    let expected = Expected::of(unit, identity)?;
    expected.check_form(unit)?;
    expected.note_unserved(unit, identity);
    let opened = open_parts(unit, |spec, place| {
        open_expected((spec, place), opener, &expected, None)
    })?;
    attach(unit, identity, opened, (opener, None))
}

/// reached, what each core has for itself, and every store on every core.
fn connections_max(cores: usize, units: usize) -> usize {
    const ADMINISTRATION: usize = 128;
    const PER_CORE: usize = 16;
    const STORES_ADDED_LATER: usize = 16;
    let kept = ADMINISTRATION + cores * PER_CORE + (cores + 1) * (units + STORES_ADDED_LATER);
    let most = getrlimit(Resource::Nofile).current;
    let most = most.and_then(|most| usize::try_from(most).ok());
    // At least half: with so few, there is not enough for anything.
    most.map_or(usize::MAX, |most| most.saturating_sub(kept).max(most / 2))
}

#[cfg(test)]
pub(crate) mod living;
#[cfg(test)]
mod returns;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod tests;
