//! Looks at stores and opens them, at the start and for changes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use admin::{ListenError, ServiceTls, SocketFile};
use config::{
    Export, FarLun, GroupDevice, HostPort, Image, Model, NamedStore, Place, ServerAddress,
    StorePlace, StoreSpec,
};
use confine::inherited::Inherited;
use confine::privileges::opening;
use reactor::Listener;
use remote::{
    Carrier, ClusterOptions, HandlerOptions, HyperscsiOptions, IscsiLogin, IscsiOptions, Level,
    Looks, NbdOptions, NbdServer, OwnServers, Password, RbdFailure, RbdOpenError, RbdOptions,
    ScsiOptions, TlsOptions,
};
use store::{
    ComposeError, Composed, Form, Logged, MadeFiles, Member, OpenError, OpenFailure, OpenOptions,
    SharedStore,
};

use super::attempts::retry_while_in_use;
use super::held::Acceptance;
use super::opened::{OpenStore, Part};
use crate::interface::{FrameUse, check_frames};
use crate::locate::{OwnFiles, snapshot_at};
use crate::{StartError, password};

/// The most connections to a server that a store has, unless its options say how many.
const CONNECTIONS_MAX: usize = 16;

/// Logs in files that were made for them, and where these are.
type NewLogs = Vec<(PathBuf, Arc<Logged>)>;

/// What stores are opened with.
#[derive(Clone, Debug)]
pub(crate) struct Opener {
    /// How many cores use a store.
    pub(crate) cores: usize,
    /// Connections to look at images over.
    pub(crate) looks: Looks,
    /// What a unit that is opened again may be.
    pub(super) acceptance: Acceptance,
    /// Where this process serves what could be a store.
    own: Arc<OwnServers>,
    made: Made,
    /// Files that may have snapshots, which nobody may write.
    files: Arc<[PathBuf]>,
    /// Files that are no stores.
    own_files: Arc<OwnFiles>,
}

/// What was made by opening.
#[derive(Clone, Debug, Default)]
struct Made {
    files: MadeFiles,
    /// The logs in some of them.
    logs: Arc<Mutex<NewLogs>>,
}

impl Made {
    fn note_log(&self, path: &Path, logged: &Arc<Logged>) {
        let log = (path.to_owned(), Arc::clone(logged));
        self.logs().push(log);
        if self.files.is_refused() {
            self.abandon_logs();
        }
    }

    fn logs(&self) -> MutexGuard<'_, NewLogs> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_logs(&self) -> NewLogs {
        std::mem::take(&mut *self.logs())
    }

    fn abandon_logs(&self) {
        for (path, logged) in self.take_logs() {
            if let Err(error) = logged.abandon() {
                let shown = path.display();
                tracing::warn!(path = %shown, %error, "a log that was made for what was refused then stays");
                self.files.disown(&path);
            }
        }
    }
}

/// Files that an attempt has made. They go with it, unless they are kept.
///
/// A unit whose log goes has to be known as one that needs none, or it would not be served without it. So that is saved
/// first, and the log stays where it cannot be.
#[must_use = "the files are removed when it is dropped"]
pub(crate) struct Leftovers(Made);

impl Leftovers {
    /// What this opener makes from now on.
    pub(crate) fn of(opener: &Opener) -> Self {
        Self(opener.made.clone())
    }

    /// What they were made for is in force.
    pub(super) fn keep(&self) {
        self.0.files.keep();
        self.0.take_logs();
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        self.0.abandon_logs();
        for (path, error) in opening(|| self.0.files.remove()) {
            let path = path.display();
            tracing::warn!(%path, %error, "a file that was made for what was refused then stays; remove it");
        }
        // Of a call that has answered meanwhile.
        self.0.abandon_logs();
    }
}

impl Opener {
    /// For a start. To be dropped before the process is confined.
    pub(crate) fn of_start(cores: usize, model: &Model, own_files: OwnFiles) -> Self {
        let looks = Looks::default();
        Self {
            cores,
            looks,
            acceptance: Acceptance::AsServed,
            own: Arc::default(),
            made: Made::default(),
            files: files_of([model]),
            own_files: Arc::new(own_files),
        }
    }

    /// Refuses a file that is Tarn's own, and to write a snapshot, which a user who may do everything may, whatever its
    /// mode says.
    pub(super) fn check_file(&self, spec: &StoreSpec, place: &Place) -> Result<(), StartError> {
        if let Some((path, _)) = spec.at.node()
            && self.own_files.has(path)
        {
            return Err(StartError::OwnFile {
                place: place.clone(),
                path: path.to_owned(),
            });
        }
        let node = spec.at.node().filter(|_| !spec.read_only);
        let snapshot = node.and_then(|(path, _)| Some((path, snapshot_at(path, &self.files)?)));
        match snapshot {
            None => Ok(()),
            Some((path, of)) => Err(StartError::SnapshotWritable {
                place: place.clone(),
                path: path.to_owned(),
                of,
            }),
        }
    }

    /// Notes a log in a file that was made for it, at this path.
    pub(super) fn note_log(&self, path: &Path, logged: &Arc<Logged>) {
        self.made.note_log(path, logged);
    }

    /// Has files noted that these options make.
    pub(super) fn note_made(&self, options: &mut OpenOptions) {
        options.made = self.made.files.clone();
    }

    /// For a change of this configuration, which does not wait for the end of its looks: a cluster may hang.
    ///
    /// Snapshots of its files and of those of the `next` one are known.
    pub(crate) fn of_change(
        cores: usize,
        (model, next): (&Model, &Model),
        own_files: OwnFiles,
    ) -> Self {
        let places = || model.nbd().iter().map(|one| &one.at);
        let sockets = places().filter_map(|at| Some(at.socket()?.0.to_owned()));
        let portals = model.targets().iter().flat_map(|target| &target.portals);
        let own = OwnServers {
            portals: portals.map(|portal| portal.bind).collect(),
            addresses: places().filter_map(|at| at.address()).collect(),
            sockets: sockets.collect(),
        };
        Self {
            cores,
            looks: Looks::ended_apart(),
            acceptance: Acceptance::AsServed,
            own: Arc::new(own),
            made: Made::default(),
            files: files_of([model, next]),
            own_files: Arc::new(own_files),
        }
    }
}

/// The paths of all files and devices of these models.
fn files_of<'a>(models: impl IntoIterator<Item = &'a Model>) -> Arc<[PathBuf]> {
    let units = models.into_iter().flat_map(|model| model.units());
    let parts = units.flat_map(config::Unit::parts);
    let paths = parts.filter_map(|(spec, _)| Some(spec.at.node()?.0.to_owned()));
    paths.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Opens the store of a unit, of which `open` opens each part.
pub(super) fn open_parts(
    unit: &config::Unit,
    mut open: impl FnMut(&StoreSpec, &Place) -> Result<Part, StartError>,
) -> Result<OpenStore, StartError> {
    let (mut media, mut has_other_file) = (Vec::new(), false);
    let mut opened = open_with(unit, |spec, place| {
        let part = open(spec, place)?;
        media.push(part.medium);
        has_other_file |= part.is_other_file;
        Ok(part.store)
    })?;
    opened.media = media;
    opened.has_other_file = has_other_file;
    Ok(opened)
}

/// Opens the store of a unit, of which `open` opens each part.
pub(super) fn open_with(
    unit: &config::Unit,
    mut open: impl FnMut(&StoreSpec, &Place) -> Result<Arc<dyn SharedStore>, StartError>,
) -> Result<OpenStore, StartError> {
    let spec = &unit.store;
    let form = match spec.at.kind {
        config::StoreKind::Stripe => Form::Stripe {
            chunk_bytes: spec.chunk_bytes,
        },
        config::StoreKind::Concat => Form::Concat,
        config::StoreKind::Path
        | config::StoreKind::File
        | config::StoreKind::Block
        | config::StoreKind::Memory
        | config::StoreKind::Null
        | config::StoreKind::Nbd
        | config::StoreKind::Nbds
        | config::StoreKind::NbdUnix
        | config::StoreKind::Snapshot
        | config::StoreKind::Hyperscsi
        | config::StoreKind::Iscsi
        | config::StoreKind::Scsi
        | config::StoreKind::Handler
        | config::StoreKind::Cdrom
        | config::StoreKind::Rbd => {
            return open(spec, &unit.place).map(OpenStore::plain);
        }
    };
    let members = open_members(spec.members(), form == Form::Concat, open)?;
    let composed = Composed::new(form, members, spec.read_only).map_err(|source| {
        let place = unit.place.clone();
        StartError::Members { place, source }
    })?;
    let composed = Arc::new(composed);
    let store = Arc::clone(&composed) as Arc<dyn SharedStore>;
    let mut opened = OpenStore::plain(store);
    opened.composed = Some(composed);
    Ok(opened)
}

/// Opens members of a composition; those of a concat take the size that the configuration gives them.
///
/// Nothing of a store is left out of a concat: what lies behind it would be elsewhere than before.
pub(super) fn open_members(
    members: &[NamedStore],
    is_concat: bool,
    mut open: impl FnMut(&StoreSpec, &Place) -> Result<Arc<dyn SharedStore>, StartError>,
) -> Result<Vec<Member>, StartError> {
    let last = members.len().saturating_sub(1);
    let open = |(at, one): (usize, &NamedStore)| {
        let bytes = one.store.configured_size_bytes().filter(|_| is_concat);
        let (name, store) = (format!("store {:?}", one.id), open(&one.store, &one.place)?);
        let now_bytes = store.capabilities().size_bytes;
        // Nothing lies behind the last one: a change that was undone may have left it longer.
        if at != last && bytes.is_some_and(|bytes| bytes < now_bytes) {
            let (place, source) = (one.place.clone(), ComposeError::Moves { name, now_bytes });
            return Err(StartError::Members { place, source });
        }
        Ok(Member { name, store, bytes })
    };
    members.iter().enumerate().map(open).collect()
}

/// A store that has data, as a look has found it.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Open, or something that stands for what will be made.
    pub(super) store: Arc<dyn SharedStore>,
    /// It serves as it is.
    is_ready: bool,
    /// It is another file than the one that was served last.
    pub(super) is_other_file: bool,
}

impl Found {
    /// One that serves as it is.
    pub(super) const fn ready(store: Arc<dyn SharedStore>) -> Self {
        Self {
            store,
            is_ready: true,
            is_other_file: false,
        }
    }

    fn seen(store: Arc<dyn SharedStore>) -> Self {
        Self {
            is_ready: false,
            ..Self::ready(store)
        }
    }
}

/// Finds out whether a store that has data can be opened, and what it is then; makes, locks and changes nothing.
pub(super) fn look_at_part(
    spec: &StoreSpec,
    place: &Place,
    opener: &Opener,
) -> Result<Found, StartError> {
    match &spec.at.place {
        StorePlace::Image(image) => {
            let look = || image_options(spec, image).probe(&opener.looks);
            match open_image(look, place)? {
                Some(store) => Ok(Found::ready(store)),
                None => to_be_made(spec, place).map(Found::seen),
            }
        }
        StorePlace::Export(_) | StorePlace::Device(_) | StorePlace::Lun(_) => {
            open_part(spec, place, opener, None).map(Found::ready)
        }
        StorePlace::Snapshot(_) => {
            let opened = spec.opened();
            match opened.snapshot() {
                None => look_at_part(&opened, place, opener),
                Some(_) => look_at_node(&opened, place, opener).map(Found::seen),
            }
        }
        StorePlace::Path(_)
            if spec
                .at
                .local_device()
                .or_else(|| spec.at.handler())
                .is_some() =>
        {
            open_part(spec, place, opener, None).map(Found::ready)
        }
        StorePlace::Path(_) => look_at_node(spec, place, opener).map(Found::seen),
        StorePlace::Size(_) | StorePlace::Members(_) | StorePlace::Empty => {
            look_at_node(spec, place, opener).map(Found::ready)
        }
    }
}

/// Opens a store that has data. Where a look has `found` it, nothing else is opened in its place.
pub(super) fn open_part(
    spec: &StoreSpec,
    place: &Place,
    opener: &Opener,
    found: Option<&Found>,
) -> Result<Arc<dyn SharedStore>, StartError> {
    if let Some(found) = found.filter(|found| found.is_ready) {
        return Ok(Arc::clone(&found.store));
    }
    match &spec.at.place {
        StorePlace::Export(export) => {
            let opened = export_options(spec, export, opener).open();
            opened.map_err(|source| StartError::Export {
                place: place.clone(),
                source: Box::new(source),
            })
        }
        StorePlace::Image(image) => {
            open_image(|| image_options(spec, image).open(&opener.looks), place)
        }
        StorePlace::Device(device) => {
            let opened = device_options(spec, device, place)?.open();
            opened.map_err(|source| StartError::Device {
                place: place.clone(),
                source: Box::new(source),
            })
        }
        StorePlace::Lun(lun) => {
            let options = lun_options(spec, lun, place, opener)?;
            let opened = match spec.is_disk() {
                true => options.open(),
                false => options.open_device(),
            };
            opened.map_err(|source| StartError::Lun {
                place: place.clone(),
                source: Box::new(source),
            })
        }
        StorePlace::Path(path) if spec.at.local_device().is_some() => {
            let options = ScsiOptions {
                path: path.clone(),
                retry: Duration::from_secs(spec.retry_seconds.into()),
            };
            options.open().map_err(|source| StartError::ScsiDevice {
                place: place.clone(),
                source: Box::new(source),
            })
        }
        StorePlace::Path(path) if spec.at.handler().is_some() => {
            let options = HandlerOptions {
                path: path.clone(),
                retry: Duration::from_secs(spec.retry_seconds.into()),
            };
            options.open().map_err(|source| StartError::Handler {
                place: place.clone(),
                source: Box::new(source),
            })
        }
        StorePlace::Snapshot(_) => {
            let opened = spec.opened();
            match opened.snapshot() {
                None => open_part(&opened, place, opener, found),
                Some(_) => open_node(&opened, place, opener, found),
            }
        }
        StorePlace::Path(_) | StorePlace::Size(_) | StorePlace::Members(_) | StorePlace::Empty => {
            open_node(spec, place, opener, found)
        }
    }
}

/// What opening an image gives. One that was closed just now takes a moment.
fn open_image<T>(
    open: impl Fn() -> Result<T, RbdOpenError>,
    place: &Place,
) -> Result<T, StartError> {
    let is_in_use = |error: &RbdOpenError| matches!(error.reason, RbdFailure::Twice);
    retry_while_in_use(open, is_in_use).map_err(|source| StartError::Image {
        place: place.clone(),
        source: Box::new(source),
    })
}

/// Opens a file, a device or memory.
fn open_node(
    spec: &StoreSpec,
    place: &Place,
    opener: &Opener,
    found: Option<&Found>,
) -> Result<Arc<dyn SharedStore>, StartError> {
    opener.check_file(spec, place)?;
    let mut options = options(spec);
    opener.note_made(&mut options);
    options.seen = found.map(|found| store::seen(&*found.store));
    retry_while_in_use(|| options.open(), is_in_use).map_err(|source| StartError::Store {
        place: place.clone(),
        source,
    })
}

fn look_at_node(
    spec: &StoreSpec,
    place: &Place,
    opener: &Opener,
) -> Result<Arc<dyn SharedStore>, StartError> {
    opener.check_file(spec, place)?;
    retry_while_in_use(|| options(spec).probe(), is_in_use).map_err(|source| StartError::Store {
        place: place.clone(),
        source,
    })
}

/// What stands for a store that opening would make.
fn to_be_made(spec: &StoreSpec, place: &Place) -> Result<Arc<dyn SharedStore>, StartError> {
    let mut options = OpenOptions::new(store::StoreKind::Null, PathBuf::new());
    options.size_bytes = spec.configured_size_bytes();
    options.block_bytes = Some(spec.block_size.bytes());
    options.open().map_err(|source| StartError::Store {
        place: place.clone(),
        source,
    })
}

/// Whether a file that is not there yet can become a store, and whether one that is there is a snapshot, which may not
/// be written. Else nothing is said of what is there: it may be in use rightly.
pub(crate) fn look_at_new(
    spec: &StoreSpec,
    place: &Place,
    opener: &Opener,
) -> Result<(), StartError> {
    let is_new = |path: &Path| !path.exists() && !spec.read_only;
    match spec.at.node() {
        Some((path, _)) if is_new(path) && spec.snapshot().is_none() => {
            look_at_node(spec, place, opener).map(drop)
        }
        Some(_) if spec.snapshot().is_none() => opener.check_file(spec, place),
        Some(_) | None => Ok(()),
    }
}

/// The kernel calls its own use what a worker of a closed store still has open.
pub(super) const fn is_in_use(error: &OpenError) -> bool {
    matches!(
        error.reason,
        OpenFailure::InUse | OpenFailure::InUseByKernel | OpenFailure::BackingInUse { .. }
    )
}

/// Reads certificates and keys of the servers of NBD, with all that is wrong with them.
pub(crate) fn read_all_tls(
    model: &Model,
) -> (
    Vec<Option<ServiceTls>>,
    Vec<(&config::NbdServer, StartError)>,
) {
    let mut wrong = Vec::new();
    let read = model.nbd().iter().map(|server| {
        let tls = read_tls(server);
        tls.map_err(|errors| wrong.extend(errors.into_iter().map(|error| (server, error))))
    });
    let read = read.map(Result::unwrap_or_default).collect();
    (read, wrong)
}

/// Reads certificate and key of a server of NBD.
///
/// # Errors
///
/// All that is wrong with them.
pub(super) fn read_tls(server: &config::NbdServer) -> Result<Option<ServiceTls>, Vec<StartError>> {
    let Some(tls) = &server.tls else {
        return Ok(None);
    };
    let files = &tls.certificate;
    let error = |source| StartError::NbdCertificate {
        place: files.place.clone(),
        reason: Box::new(source),
    };
    let (certificate, key, ca) = (&files.certificate, &files.key, tls.ca.as_deref());
    admin::check_files(certificate, key, ca)
        .map_err(|wrong| wrong.into_iter().map(error).collect::<Vec<_>>())?;
    let read = admin::service_tls(certificate, key, ca);
    read.map(Some).map_err(|source| vec![error(source)])
}

/// Whether a unix socket for clients of NBD could be made.
pub(super) fn look_at_socket(
    (place, path): (&Place, &Path),
    inherited: &Inherited,
) -> Result<(), StartError> {
    if inherited.has_path(path) {
        return Ok(());
    }
    let is_in_use = |error: &ListenError| matches!(error, ListenError::InUse { .. });
    let probe = || admin::probe_unix(path, |lock| store::is_locked(lock, true));
    let looked = retry_while_in_use(probe, is_in_use);
    looked.map_err(|source| StartError::NbdSocket {
        place: place.clone(),
        source,
    })
}

/// Makes a unix socket for clients of NBD.
///
/// One that the service manager has made is taken over, with its file.
pub(crate) fn bind_socket(
    place: &Place,
    (path, mode): (&Path, u32),
    inherited: &Inherited,
) -> Result<(Listener, Option<SocketFile>), StartError> {
    let failed = StartError::Inherited;
    if let Some(passed) = inherited.at_path(path).map_err(failed)? {
        return Ok((Listener::try_from(passed).map_err(failed)?, None));
    }
    let is_in_use = |error: &ListenError| matches!(error, ListenError::InUse { .. });
    let made = retry_while_in_use(|| admin::unix(path, mode), is_in_use);
    let (listener, file) = made.map_err(|source| StartError::NbdSocket {
        place: place.clone(),
        source,
    })?;
    Ok((Listener::try_from(listener).map_err(failed)?, Some(file)))
}

fn export_options(spec: &StoreSpec, export: &Export, opener: &Opener) -> NbdOptions {
    let cores = opener.cores;
    let (server, host) = match export.server() {
        ServerAddress::Tcp(HostPort { host, port }) => {
            (NbdServer::tcp(host.clone(), Some(*port)), host.as_str())
        }
        ServerAddress::Unix(path) => (NbdServer::Unix(path.clone()), ""),
    };
    let tls = TlsOptions {
        ca: spec.ca.clone(),
        name: host.to_owned(),
    };
    NbdOptions {
        server,
        export: export.name().to_owned(),
        tls: (spec.at.kind == config::StoreKind::Nbds).then_some(tls),
        connections: spec
            .connections
            .map_or_else(|| cores.min(CONNECTIONS_MAX), usize::from),
        cores,
        retry: Duration::from_secs(spec.retry_seconds.into()),
        read_only: spec.read_only,
        thin: spec.thin.unwrap_or(true),
        block_bytes: spec.block_size.bytes(),
        own: Arc::clone(&opener.own),
    }
}

/// The options of a device. Reads the file of its password.
pub fn device_options(
    spec: &StoreSpec,
    device: &GroupDevice,
    place: &Place,
) -> Result<HyperscsiOptions, StartError> {
    let password = match &device.password_file {
        Some(path) => password::from_file(path, place)?,
        None => Password::default(),
    };
    let carrier = match (device.udp(), device.interface()) {
        (_, Some(name)) => {
            check_frames(name, place, FrameUse::Store)?;
            Carrier::interface(name)
        }
        (Some(HostPort { host, port }), None) => Carrier::udp(host.clone(), Some(*port)),
        // The reader of the configuration refuses that.
        (None, None) => Carrier::udp("localhost", None),
    };
    let level = |word: &String| match word.as_str() {
        "none" => Level::None,
        "crc" => Level::Crc,
        "hash" => Level::Hash,
        _ => Level::Encrypt,
    };
    Ok(HyperscsiOptions {
        carrier,
        group: device.group().to_owned(),
        device: device.device().to_owned(),
        server: device.server().map(str::to_owned),
        user: device.user.clone(),
        password,
        level: device.level.as_ref().map(level),
        retry: Duration::from_secs(spec.retry_seconds.into()),
        read_only: spec.read_only,
        thin: spec.thin.unwrap_or(true),
        block_bytes: spec.block_size.bytes(),
    })
}

/// The options of a disk of a target. Reads the files of its secrets.
fn lun_options(
    spec: &StoreSpec,
    lun: &FarLun,
    place: &Place,
    opener: &Opener,
) -> Result<IscsiOptions, StartError> {
    let login = |user: &Option<String>, file: &Option<PathBuf>| {
        // The reader of the configuration wants both, or none.
        let (Some(user), Some(file)) = (user, file) else {
            return Ok::<_, StartError>(None);
        };
        Ok(Some(IscsiLogin {
            user: user.clone(),
            password: password::from_file(file, place)?,
        }))
    };
    let HostPort { host, port } = lun.portal();
    Ok(IscsiOptions {
        host: host.clone(),
        port: *port,
        target: lun.target().to_string(),
        lun: lun.lun(),
        initiator: lun.initiator.as_ref().map(ToString::to_string),
        login: login(&lun.user, &lun.password_file)?,
        mutual: login(&lun.mutual_user, &lun.mutual_password_file)?,
        retry: Duration::from_secs(spec.retry_seconds.into()),
        read_only: spec.read_only,
        thin: spec.thin.unwrap_or(true),
        block_bytes: spec.block_size.bytes(),
        own: Arc::clone(&opener.own),
    })
}

fn image_options(spec: &StoreSpec, image: &Image) -> RbdOptions {
    RbdOptions {
        cluster: ClusterOptions {
            conf: image.conf().map(Path::to_owned),
            user: image.user.clone(),
            keyring: image.keyring.clone(),
        },
        pool: image.pool().to_owned(),
        namespace: image.namespace().to_owned(),
        image: image.name().to_owned(),
        snapshot: image.snapshot().map(str::to_owned),
        size_bytes: spec.size_bytes,
        waits_for_lock: spec.waits_for_lock,
        retry: Duration::from_secs(spec.retry_seconds.into()),
        read_only: spec.read_only,
        thin: spec.thin.unwrap_or(true),
        block_bytes: spec.block_size.bytes(),
    }
}

pub(super) fn options(spec: &StoreSpec) -> OpenOptions {
    let kind = match spec.at.kind {
        config::StoreKind::Rbd
        | config::StoreKind::Hyperscsi
        | config::StoreKind::Iscsi
        | config::StoreKind::Scsi
        | config::StoreKind::Handler
        | config::StoreKind::Nbd
        | config::StoreKind::Nbds
        | config::StoreKind::NbdUnix
        | config::StoreKind::Stripe
        | config::StoreKind::Concat
        | config::StoreKind::Path => store::StoreKind::Path,
        config::StoreKind::File | config::StoreKind::Snapshot => store::StoreKind::File,
        config::StoreKind::Block => store::StoreKind::Block,
        config::StoreKind::Memory => store::StoreKind::Memory,
        config::StoreKind::Null => store::StoreKind::Null,
        config::StoreKind::Cdrom => store::StoreKind::Disc,
    };
    let path = spec.at.node().map(|(path, _)| path.to_owned());
    let mut options = OpenOptions::new(kind, path.unwrap_or_default());
    options.size_bytes = spec.configured_size_bytes();
    options.block_bytes = Some(spec.block_size.bytes());
    options.read_only = spec.read_only;
    options.cache = match spec.cache {
        config::CacheMode::Writeback => store::CacheMode::WriteBack,
        config::CacheMode::Writethrough => store::CacheMode::WriteThrough,
        config::CacheMode::Direct => store::CacheMode::Direct,
    };
    options.thin = spec.thin.unwrap_or(true);
    options.force_raw = spec.format_raw;
    options
}
