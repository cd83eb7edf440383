//! `tarn serve`: opens the stores, binds the portals, runs the data plane until it is told to
//! stop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use config::{Model, StoreSpec};
use reactor::Listener;
use reactor::net::BindError;
use scsi::{Identity, Profile, TargetPort};
use store::{OpenError, OpenFailure, OpenOptions, SharedStore};
use target::{
    Coalescing, DataPlane, Keeper, Plan, PortPlan, Settings, TargetPlan, UnitIndex, UnitPlan,
};

use crate::access::ModelPolicy;
use crate::banner::{BoundPortal, ServedUnit, banner};
use crate::prepare::Prepared;
use crate::signal::Signals;
use crate::state::{UnitIdentity, UnitState};
use crate::{StartError, say};

/// Connections that may wait to be accepted, per portal.
const BACKLOG: i32 = 4096;

/// PROTOCOL IDENTIFIER and version descriptor of iSCSI.
///
/// Spec: SPC-5, PROTOCOL IDENTIFIER values, version descriptor values.
const PROTOCOL_ISCSI: u8 = 0x05;
const VERSION_ISCSI: u16 = 0x0960;

/// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS: ABORT TASK, ABORT TASK SET, CLEAR TASK SET,
/// LOGICAL UNIT RESET, TARGET RESET.
///
/// Spec: SPC-5, REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS.
const TASK_MANAGEMENT: [u8; 2] = [0x80 | 0x40 | 0x10 | 0x08 | 0x02, 0x00];

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
///
/// A [`StartError`] when something must be put right first; anything else when the machine fails.
pub(crate) fn serve(prepared: Prepared) -> anyhow::Result<()> {
    let signals = Signals::catch()?;
    let stores = open_stores(&prepared.model)?;
    prepared.note_files()?;
    let (listeners, bound) = bind(&prepared.model)?;
    let served = served_units(&stores, &prepared.identities);
    let ports = ports_of(&prepared.model);
    let portals = bound_portals(&prepared.model, &bound);
    let text = banner(&prepared.model, &served, &portals);
    let units = unit_plans(&prepared, &stores, &ports)?;
    let targets = target_plans(&prepared.model, &ports);
    let settings = settings(&prepared.model)?;
    let keeper = StateKeeper(
        prepared
            .identities
            .iter()
            .map(|it| Arc::clone(&it.state))
            .collect(),
    );
    let policy = ModelPolicy::new(prepared.model.clone(), &prepared.secrets, bound);
    let plane = DataPlane::start(Plan {
        units,
        targets,
        portals: listeners,
        policy: Arc::new(policy),
        keeper: Arc::new(keeper),
        settings,
    })?;
    say(io::stdout().lock(), &text);
    let signal = signals.wait();
    tracing::info!(signal, "stopping");
    if plane.stop() {
        tracing::info!("stopped");
        Ok(())
    } else {
        anyhow::bail!("a core failed; see the log")
    }
}

/// Writes the state of units into the state directory.
#[derive(Debug)]
struct StateKeeper(Vec<Arc<UnitState>>);

impl Keeper for StateKeeper {
    fn save(&self, unit: UnitIndex, state: &[u8]) -> io::Result<()> {
        let kept = self.0.get(unit.0 as usize).ok_or(io::ErrorKind::NotFound)?;
        kept.save(state)
    }
}

fn open_stores(model: &Model) -> Result<Vec<Arc<dyn SharedStore>>, StartError> {
    let open = |unit: &config::Unit| {
        let is_in_use = |error: &OpenError| matches!(error.reason, OpenFailure::InUse);
        patiently(|| options(&unit.store).open(), is_in_use).map_err(|source| StartError::Store {
            place: unit.place.clone(),
            source,
        })
    };
    model.units().iter().map(open).collect()
}

fn options(spec: &StoreSpec) -> OpenOptions {
    let kind = match &spec.kind {
        config::StoreKind::Auto { .. } => store::StoreKind::Path,
        config::StoreKind::File { .. } => store::StoreKind::File,
        config::StoreKind::Block { .. } => store::StoreKind::Block,
        config::StoreKind::Memory { .. } => store::StoreKind::Memory,
        config::StoreKind::Null { .. } => store::StoreKind::Null,
    };
    let path = spec.kind.path().map(ToOwned::to_owned).unwrap_or_default();
    let mut options = OpenOptions::new(kind, path);
    options.size_bytes = match &spec.kind {
        config::StoreKind::Memory { size_bytes } | config::StoreKind::Null { size_bytes } => {
            Some(*size_bytes)
        }
        config::StoreKind::Auto { .. }
        | config::StoreKind::File { .. }
        | config::StoreKind::Block { .. } => spec.size_bytes,
    };
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
/// a program that was killed had on its rings.
fn patiently<T, E>(
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

#[expect(clippy::disallowed_methods, reason = "nothing is served yet")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Binds every address once. Gives the listeners, and the real address of each portal.
fn bind(model: &Model) -> Result<(Vec<Listener>, Vec<Vec<SocketAddr>>), StartError> {
    let mut bound: Vec<Vec<SocketAddr>> = model
        .targets()
        .iter()
        .map(|target| target.portals.iter().map(|portal| portal.bind).collect())
        .collect();
    let mut listeners = Vec::new();
    for wanted in model.listeners() {
        let is_in_use = |error: &BindError| matches!(error, BindError::InUse { .. });
        let bind = || Listener::bind(wanted.bind, BACKLOG);
        let listener = patiently(bind, is_in_use).map_err(|source| StartError::Bind {
            place: wanted.place.clone(),
            source,
        })?;
        for (target, portal) in &wanted.portals {
            let slot = bound
                .get_mut(target.position())
                .and_then(|all| all.get_mut(*portal));
            if let Some(slot) = slot {
                *slot = listener.local_address();
            }
        }
        listeners.push(listener);
    }
    Ok((listeners, bound))
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

fn served_units(stores: &[Arc<dyn SharedStore>], identities: &[UnitIdentity]) -> Vec<ServedUnit> {
    stores
        .iter()
        .zip(identities)
        .map(|(store, identity)| ServedUnit {
            size_bytes: store.capabilities().size_bytes,
            serial: identity.serial.clone(),
            naa: identity.naa,
        })
        .collect()
}

/// The target ports of each target: one for each portal group, numbered over all targets.
fn ports_of(model: &Model) -> Vec<Vec<PortPlan>> {
    let mut relative_id = 0;
    let mut ports = Vec::new();
    for target in model.targets() {
        let mut tags: Vec<u16> = target
            .portals
            .iter()
            .map(|portal| portal.group_tag)
            .collect();
        tags.sort_unstable();
        tags.dedup();
        let number = |portal_group_tag| {
            relative_id += 1;
            PortPlan {
                portal_group_tag,
                relative_id,
            }
        };
        ports.push(tags.into_iter().map(number).collect());
    }
    ports
}

fn target_plans(model: &Model, ports: &[Vec<PortPlan>]) -> Vec<TargetPlan> {
    let plan = |(target, ports): (&config::Target, &Vec<PortPlan>)| TargetPlan {
        name: target.name.as_str().to_owned(),
        ports: ports.clone(),
    };
    model.targets().iter().zip(ports).map(plan).collect()
}

fn unit_plans(
    prepared: &Prepared,
    stores: &[Arc<dyn SharedStore>],
    ports: &[Vec<PortPlan>],
) -> anyhow::Result<Vec<UnitPlan>> {
    let mut plans = Vec::new();
    for (position, unit) in prepared.model.units().iter().enumerate() {
        let (store, identity) = (&stores[position], &prepared.identities[position]);
        let capabilities = store.capabilities();
        let profile = Profile {
            identity: scsi_identity(&prepared.model, position, identity, ports),
            limits: scsi::Limits::default(),
            capabilities,
            keeps_state: identity.state.is_kept(),
        };
        let name = unit.id.clone().unwrap_or_else(|| unit.store.text.clone());
        let restored = identity.state.load()?;
        plans.push(UnitPlan {
            name,
            profile,
            store: Arc::clone(store),
            restored,
        });
    }
    Ok(plans)
}

/// What initiators are told of a unit, with every target port that shows it.
fn scsi_identity(
    model: &Model,
    position: usize,
    identity: &UnitIdentity,
    ports: &[Vec<PortPlan>],
) -> Identity {
    let mut target_ports = Vec::new();
    let mut device_name = String::new();
    for (target, ports) in model.targets().iter().zip(ports) {
        if !target
            .luns
            .iter()
            .any(|entry| entry.unit.position() == position)
        {
            continue;
        }
        if device_name.is_empty() {
            target.name.as_str().clone_into(&mut device_name);
        }
        for port in ports {
            target_ports.push(TargetPort {
                relative_id: port.relative_id,
                // All ports reach the store in the same way: one group, active/optimized.
                group: 1,
                scsi_name: format!("{},t,0x{:04x}", target.name, port.portal_group_tag),
            });
        }
    }
    Identity {
        vendor: "TARN".to_owned(),
        product: "DISK".to_owned(),
        revision: env!("CARGO_PKG_VERSION_MAJOR").to_owned()
            + "."
            + env!("CARGO_PKG_VERSION_MINOR"),
        serial: identity.serial.as_str().to_owned(),
        naa: identity.naa.as_bytes().to_vec(),
        eui: None,
        device_name,
        target_ports,
        protocol_identifier: PROTOCOL_ISCSI,
        protocol_version: VERSION_ISCSI,
        task_management: TASK_MANAGEMENT,
        removable: false,
    }
}

fn settings(model: &Model) -> anyhow::Result<Settings> {
    let (limits, server) = (model.limits(), model.server());
    let cores = match server.cores {
        Some(cores) => usize::from(cores.get()),
        None => reactor::cores::usable()?.len(),
    };
    let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
    Ok(Settings {
        cores,
        pin: false,
        pool_bytes: usize::try_from(limits.pool_per_core_bytes)?,
        busy_poll: Duration::from_micros(u64::from(server.busy_poll_us)),
        coalescing: match server.coalescing {
            config::Coalescing::Off => Coalescing::Off,
            config::Coalescing::Adaptive => Coalescing::Adaptive,
            config::Coalescing::Always => Coalescing::Always,
        },
        sessions_max: usize::try_from(limits.sessions_max)?,
        logins_max: usize::try_from(limits.connections_in_login_max)?,
        login_timeout: seconds(limits.login_timeout_seconds),
        queue_depth: u32::from(limits.queue_depth),
        nop_interval: (limits.nop_interval_seconds > 0)
            .then(|| seconds(limits.nop_interval_seconds)),
        nop_timeout: seconds(limits.nop_timeout_seconds),
        abort_timeout: seconds(limits.task_deadline_seconds),
        fence_timeout: seconds(limits.task_deadline_seconds),
        stop_timeout: seconds(limits.shutdown_timeout_seconds),
    })
}
