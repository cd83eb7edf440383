//! Opens stores and binds addresses, at the start and for changes.

use std::sync::Arc;
use std::time::Duration;

use config::{Export, HostPort, ServerAddress, StorePlace, StoreSpec};
use confine::inherited::Inherited;
use reactor::Listener;
use reactor::net::BindError;
use remote::{NbdOptions, NbdServer, TlsOptions};
use store::{OpenError, OpenFailure, OpenOptions, SharedStore};

use crate::StartError;

/// Connections that may wait to be accepted, per portal.
const BACKLOG: i32 = 4096;

/// The most connections to a server that a store has, unless its options say how many.
const CONNECTIONS_MAX: usize = 16;

/// Opens the store of a unit, which so many cores use. May take as long as a file system or a server lets it.
pub(crate) fn open_store(
    unit: &config::Unit,
    cores: usize,
) -> Result<Arc<dyn SharedStore>, StartError> {
    match &unit.store.at.place {
        StorePlace::Export(export) => {
            let opened = export_options(&unit.store, export, cores).open();
            opened.map_err(|source| StartError::Export {
                place: unit.place.clone(),
                source: Box::new(source),
            })
        }
        StorePlace::Path(_) | StorePlace::Size(_) => open_local(unit),
    }
}

fn open_local(unit: &config::Unit) -> Result<Arc<dyn SharedStore>, StartError> {
    let is_in_use = |error: &OpenError| {
        // The kernel calls its own use what a worker of a closed store still has open.
        matches!(
            error.reason,
            OpenFailure::InUse | OpenFailure::InUseByKernel
        )
    };
    retry_while_in_use(|| options(&unit.store).open(), is_in_use).map_err(|source| {
        StartError::Store {
            place: unit.place.clone(),
            source,
        }
    })
}

/// What stands in for the store of a unit that is not served, whose own is not touched.
pub(crate) fn stand_in(unit: &config::Unit) -> Result<Arc<dyn SharedStore>, StartError> {
    let mut options = OpenOptions::new(store::StoreKind::Null, std::path::PathBuf::new());
    options.size_bytes = Some(1 << 20);
    options.block_bytes = Some(unit.store.block_size.bytes());
    options.read_only = true;
    options.open().map_err(|source| StartError::Store {
        place: unit.place.clone(),
        source,
    })
}

/// Binds an address.
///
/// One that the service manager has bound is taken over.
pub(crate) fn bind(
    wanted: &config::Listener,
    inherited: &Inherited,
) -> Result<Listener, StartError> {
    let passed = inherited
        .at(wanted.bind)
        .and_then(|socket| socket.map(Listener::try_from).transpose());
    if let Some(listener) = passed.map_err(StartError::Inherited)? {
        return Ok(listener);
    }
    let is_in_use = |error: &BindError| matches!(error, BindError::InUse { .. });
    let bind = || Listener::bind(wanted.bind, BACKLOG);
    retry_while_in_use(bind, is_in_use).map_err(|source| StartError::Bind {
        place: wanted.place.clone(),
        source,
    })
}

fn export_options(spec: &StoreSpec, export: &Export, cores: usize) -> NbdOptions {
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
    }
}

fn options(spec: &StoreSpec) -> OpenOptions {
    let kind = match spec.at.kind {
        config::StoreKind::Nbd
        | config::StoreKind::Nbds
        | config::StoreKind::NbdUnix
        | config::StoreKind::Path => store::StoreKind::Path,
        config::StoreKind::File => store::StoreKind::File,
        config::StoreKind::Block => store::StoreKind::Block,
        config::StoreKind::Memory => store::StoreKind::Memory,
        config::StoreKind::Null => store::StoreKind::Null,
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

/// Tries again for a moment when something is in use: the kernel takes a while to give back what
/// a program that was killed, or a listener that was closed, had on its rings, and so does the
/// guardian of a program that was killed (`reactor::process`).
pub(crate) fn retry_while_in_use<T, E>(
    mut attempt: impl FnMut() -> Result<T, E>,
    is_in_use: impl Fn(&E) -> bool,
) -> Result<T, E> {
    const ATTEMPTS: u32 = 20;
    const PAUSE: Duration = Duration::from_millis(50);
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(error) if is_in_use(&error) => pause(PAUSE),
            outcome => return outcome,
        }
    }
    attempt()
}

/// Waits a moment.
#[expect(
    clippy::disallowed_methods,
    reason = "no core of the data plane waits here"
)]
pub(super) fn pause(time: Duration) {
    std::thread::sleep(time);
}
