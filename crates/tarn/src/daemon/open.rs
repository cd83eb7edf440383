//! Opens stores and binds addresses, at the start and for changes.

use std::sync::Arc;
use std::time::Duration;

use config::StoreSpec;
use confine::inherited::Inherited;
use reactor::Listener;
use reactor::net::BindError;
use store::{OpenError, OpenFailure, OpenOptions, SharedStore};

use crate::StartError;

/// Connections that may wait to be accepted, per portal.
const BACKLOG: i32 = 4096;

/// Opens the store of a unit.
pub(crate) fn open_store(unit: &config::Unit) -> Result<Arc<dyn SharedStore>, StartError> {
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

fn options(spec: &StoreSpec) -> OpenOptions {
    let kind = match spec.at.kind {
        config::StoreKind::Path => store::StoreKind::Path,
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
