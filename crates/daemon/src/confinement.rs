//! What the process gives up, as `[confine]` says: the user before anything is made, the rest when all is
//! open. A change of the configuration is asked first whether it stays within reach.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use admin::ListenError;
use api::plan::{Action, Kind};
use api::problem::{Problem, ProblemKind};
use config::{FarLun, GroupDevice, Image, Model, Place, ServerAddress, StoreKind, StoreSpec, Unit};
use confine::account::Account;
use confine::calls::{Connections, Devices};
use confine::files::{Right, Rule};
use confine::inherited::Inherited;
use confine::roots::Roots;
use confine::{Enforced, calls, files, privileges};

use crate::StartError;
use crate::interface::{FrameUse, check_frames};
use crate::locate::{files_of_store, secrets_of};
use crate::{Consequence, PlannedStep};

/// The first port that anybody may listen at.
const PORT_OF_ALL_MIN: u16 = 1024;

/// What the kernel reports about this process, about locks on files, and about devices.
const SYSTEM: [&str; 3] = ["/proc/self", "/proc/locks", "/sys"];

/// Becomes the user that the configuration names. Gives the user this process then is.
///
/// # Errors
///
/// There is no such user, or only root could become it.
pub(crate) fn become_user(model: &Model, uid: u32) -> Result<u32, StartError> {
    let (Some(wanted), Some(account)) = (&model.confine().user, account(model)?) else {
        return Ok(uid);
    };
    if account.uid == uid {
        return Ok(uid);
    }
    if !privileges::is_root() {
        return Err(StartError::NotRoot {
            place: wanted.place.clone(),
            user: wanted.user.clone(),
        });
    }
    privileges::become_user(&account).map_err(StartError::Confine)?;
    Ok(account.uid)
}

/// The user that the configuration names, if it names one.
///
/// # Errors
///
/// There is no such user or group.
pub(crate) fn account(model: &Model) -> Result<Option<Account>, StartError> {
    let Some(wanted) = &model.confine().user else {
        return Ok(None);
    };
    let place = wanted.place.clone();
    Account::find(&wanted.user, wanted.group.as_deref())
        .map(Some)
        .map_err(|source| StartError::Account { place, source })
}

/// Whether this host leaves rings to those with `CAP_SYS_ADMIN`, of which no other user was named.
fn needs_right_to_rings() -> bool {
    let switch = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    let is_needed = privileges::is_root() && switch.is_ok_and(|text| text.trim() == "1");
    if is_needed {
        tracing::warn!(
            "kernel.io_uring_disabled is 1: CAP_SYS_ADMIN is kept to make rings; name a user of \
             kernel.io_uring_group in confine.user instead"
        );
    }
    is_needed
}

/// What the names of hosts are looked up in.
const RESOLVER: [&str; 6] = [
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/run/systemd/resolve",
];

/// Where the certificates are that this machine trusts.
const AUTHORITIES: [&str; 5] = [
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls",
    "/etc/ssl/certs",
    "/usr/local/share/ca-certificates",
    "/usr/share/ca-certificates",
];

/// What stays within reach.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// Stores below the roots and secrets where some are already; `None`: everything.
    files: Option<Within>,
    /// The servers that stores were behind at the start; `None`: all.
    servers: Option<Servers>,
    /// Whether no unix socket can be made any more ([`Confinement::seal`]).
    is_sealed: bool,
    /// Whether no SCSI device of this machine can be given commands any more.
    has_no_devices: bool,
}

#[derive(Debug)]
struct Within {
    stores: Roots,
    readable: Roots,
}

/// Whether a unit is a SCSI device of this machine.
fn is_device(unit: &Unit) -> bool {
    unit.store.at.local_device().is_some()
}

fn devices_of(model: &Model) -> Devices {
    match model.units().iter().any(is_device) {
        true => Devices::Some,
        false => Devices::None,
    }
}

/// Where Ceph looks for the configuration of a cluster and for keys.
const CEPH: &str = "/etc/ceph";

/// The servers and clusters that stores are behind, and those that get events.
#[derive(Debug, Default)]
struct Servers {
    are_any: bool,
    /// Images: their libraries are loaded, and parts of a cluster may be at any port.
    are_images: bool,
    /// Devices of HyperSCSI groups, over UDP.
    are_devices: bool,
    ports: BTreeSet<u16>,
    /// The certificates of one are checked against those that this machine trusts.
    needs_authorities: bool,
}

impl Servers {
    fn of(model: &Model) -> Self {
        let mut servers = Self::default();
        for (store, _) in model.units().iter().flat_map(Unit::parts) {
            if store.at.image().is_some() {
                servers.are_any = true;
                servers.are_images = true;
            }
            if store.at.device().is_some() {
                servers.are_any = true;
                servers.are_devices = true;
            }
            if let Some(lun) = store.at.target_lun() {
                servers.are_any = true;
                servers.ports.insert(lun.portal().port);
            }
            servers.are_any |= store.at.handler().is_some();
            let Some(export) = store.at.export() else {
                continue;
            };
            servers.are_any = true;
            if let ServerAddress::Tcp(server) = export.server() {
                servers.ports.insert(server.port);
            }
            servers.needs_authorities |= needs_authorities(store);
        }
        for one in model.notify() {
            servers.are_any = true;
            servers.ports.insert(one.port());
            servers.needs_authorities |= one.is_tls();
        }
        servers
    }

    fn connections(&self) -> Connections {
        match self.are_any {
            true => Connections::Kept,
            false => Connections::Ended,
        }
    }

    /// The ports that may be connected to; `None`: all.
    fn ports(&self) -> Option<Vec<u16>> {
        (!self.are_images).then(|| self.ports.iter().copied().collect())
    }

    /// What only connections to them read.
    fn read(&self) -> impl Iterator<Item = PathBuf> + use<> {
        let resolver =
            (!self.ports.is_empty() || self.are_images || self.are_devices).then_some(RESOLVER);
        let authorities = self.needs_authorities.then_some(AUTHORITIES);
        let of_clusters = self.are_images.then(files_of_ceph);
        let resolver = resolver.into_iter().flatten();
        let read = resolver.chain(authorities.into_iter().flatten());
        read.map(PathBuf::from)
            .chain(of_clusters.into_iter().flatten())
    }
}

/// What adding a unit comes to if a device of it is behind an interface that this process cannot take frames of now.
fn without_frames(unit: &Unit) -> Option<Consequence> {
    let error = unit.parts().find_map(|(store, place)| {
        let name = store.at.device()?.interface()?;
        check_frames(name, place, FrameUse::Store).err()
    })?;
    Some(match error.needs_restart() {
        true => Consequence::Restart,
        false => Consequence::OutOfReach(error.to_string()),
    })
}

/// Where Ceph looks by itself.
fn files_of_ceph() -> impl Iterator<Item = PathBuf> {
    let named = std::env::var_os("CEPH_CONF").map(|path| directory_of(Path::new(&path)));
    named.into_iter().chain([PathBuf::from(CEPH)])
}

fn needs_authorities(store: &StoreSpec) -> bool {
    store.at.kind == StoreKind::Nbds && store.ca.is_none()
}

impl Reach {
    /// What the configuration leaves; `file` is where it stands, `state` the state directory if it is known.
    ///
    /// # Errors
    ///
    /// A root that is not there, or a store that lies elsewhere.
    pub(crate) fn of(
        model: &Model,
        file: Option<&Path>,
        state: Option<&Path>,
    ) -> Result<Self, StartError> {
        let is_limited = model.confine().seccomp || model.confine().roots.is_some();
        let of_units = Servers::of(model);
        let is_sealed = model.confine().seccomp && !of_units.are_any;
        let servers = is_limited.then_some(of_units);
        let has_no_devices = model.confine().seccomp && devices_of(model) == Devices::None;
        let Some(roots) = &model.confine().roots else {
            return Ok(Self {
                files: None,
                servers,
                is_sealed,
                has_no_devices,
            });
        };
        let mut stores = Roots::default();
        for root in roots {
            stores
                .add(&root.path)
                .map_err(|source| StartError::RootMissing {
                    place: root.place.clone(),
                    path: root.path.clone(),
                    source,
                })?;
        }
        let secrets = secrets_of(model).map(|secret| directory_of(&secret.path));
        let stores_of_units = model.units().iter().flat_map(Unit::parts);
        let certificates = stores_of_units.flat_map(|(store, _)| files_of_store(store));
        let certificates = certificates.map(directory_of);
        let mut readable = stores.clone();
        for directory in secrets
            // Opening the store reports one that is not there.
            .chain(certificates.filter(|directory| directory.exists()))
            .chain(file.map(directory_of))
            .chain(state.map(Path::to_owned))
        {
            readable.add(&directory).map_err(StartError::Confine)?;
        }
        let files = Some(Within { stores, readable });
        let reach = Self {
            files,
            servers,
            is_sealed,
            has_no_devices,
        };
        match model.units().iter().find_map(|unit| reach.outside(unit)) {
            Some(error) => Err(error),
            None => Ok(reach),
        }
    }

    /// The error if a store of a unit lies elsewhere.
    fn outside(&self, unit: &Unit) -> Option<StartError> {
        let mut stores = unit.stores();
        stores.find_map(|(store, place)| self.store_outside(store, place))
    }

    fn store_outside(&self, store: &StoreSpec, place: &Place) -> Option<StartError> {
        if let Some(reason) = self.beyond(store) {
            return Some(StartError::ServerOutside {
                place: place.clone(),
                store: store.at.to_string(),
                reason,
            });
        }
        let path = store.at.node().map(|(path, _)| path);
        let path = path.or_else(|| store.at.local_device())?;
        let within = self.files.as_ref()?;
        (!within.stores.contain(path)).then(|| StartError::StoreOutside {
            place: place.clone(),
            path: path.to_owned(),
            roots: within.stores.to_string(),
        })
    }

    /// Why the cluster of an image cannot be reached.
    fn image_beyond(&self, image: &Image) -> Option<String> {
        if !self.servers.as_ref()?.are_images {
            return Some("no store was an image of a Ceph cluster at the start".to_owned());
        }
        let within = self.files.as_ref()?;
        let mut hidden = image.files().filter(|path| !within.readable.contain(path));
        hidden.next().map(|path| {
            format!(
                "no store had files of its cluster in the directory of {} at the start",
                path.display()
            )
        })
    }

    /// Why the servers of a group cannot be reached. Those of an interface take sockets of their own.
    fn device_beyond(&self, device: &GroupDevice) -> Option<String> {
        if device.interface().is_none() && !self.servers.as_ref()?.are_devices {
            return Some("no store was a device of a HyperSCSI group at the start".to_owned());
        }
        self.password_beyond(device.password_file.as_deref())
    }

    /// Why the first of these files of passwords that is out of reach is.
    fn password_beyond<'f>(&self, files: impl IntoIterator<Item = &'f Path>) -> Option<String> {
        let within = self.files.as_ref()?;
        let mut hidden = files
            .into_iter()
            .filter(|file| !within.readable.contain(file));
        hidden.next().map(|file| {
            format!(
                "no store had a password in the directory of {} at the start",
                file.display()
            )
        })
    }

    /// Why the target of a disk cannot be reached.
    fn lun_beyond(&self, lun: &FarLun) -> Option<String> {
        let servers = self.servers.as_ref()?;
        if !servers.are_any {
            return Some("no store was behind a server at the start".to_owned());
        }
        let port = lun.portal().port;
        if self.files.is_some() && !servers.are_images && !servers.ports.contains(&port) {
            return Some(format!("no store had port {port} at the start"));
        }
        self.password_beyond(lun.files())
    }

    /// Why the server of a store cannot be reached.
    fn beyond(&self, store: &StoreSpec) -> Option<String> {
        if let Some(image) = store.at.image() {
            return self.image_beyond(image);
        }
        if let Some(device) = store.at.device() {
            return self.device_beyond(device);
        }
        if let Some(lun) = store.at.target_lun() {
            return self.lun_beyond(lun);
        }
        let servers = self.servers.as_ref()?;
        let is_behind_server = store.at.export().is_some() || store.at.handler().is_some();
        if is_behind_server && !servers.are_any {
            return Some("no store was behind a server at the start".to_owned());
        }
        let (within, export) = (self.files.as_ref()?, store.at.export()?);
        if let ServerAddress::Tcp(server) = export.server()
            && !servers.ports.contains(&server.port)
        {
            return Some(format!("no store had port {} at the start", server.port));
        }
        match &store.ca {
            Some(ca) if !within.readable.contain(ca) => Some(format!(
                "no store had certificates in the directory of {} at the start",
                ca.display()
            )),
            None if needs_authorities(store) && !servers.needs_authorities => Some(
                "no store needed the certificates that this machine trusts at the start".to_owned(),
            ),
            Some(_) | None => None,
        }
    }

    /// Refuses the steps to stores that lie elsewhere, and to sockets that cannot be made any more; the service
    /// manager has made those of `inherited`.
    pub(crate) fn refuse(&self, steps: &mut [PlannedStep], model: &Model, inherited: &Inherited) {
        self.refuse_sockets(steps, model, inherited);
        for unit in model.units() {
            let name = unit.to_string();
            let is_its = |step: &&mut PlannedStep| step.kind == Kind::Lun && step.name == name;
            // What no step concerns is not looked at: its file system may hang.
            let Some(step) = steps.iter_mut().find(is_its) else {
                continue;
            };
            if let Some(outside) = self.outside(unit) {
                step.consequence = Consequence::OutOfReach(outside.to_string());
            } else if self.has_no_devices && is_device(unit) {
                step.consequence = Consequence::Restart;
            } else if step.action == Action::Add
                && let Some(consequence) = without_frames(unit)
            {
                step.consequence = consequence;
            }
        }
    }

    fn refuse_sockets(&self, steps: &mut [PlannedStep], model: &Model, inherited: &Inherited) {
        if !self.is_sealed {
            return;
        }
        let added = steps
            .iter_mut()
            .filter(|step| step.kind == Kind::Nbd && step.action == Action::Add);
        for step in added {
            let server = model
                .nbd()
                .iter()
                .find(|server| server.at.to_string() == step.name);
            let socket = server.and_then(|server| Some((server, server.at.socket()?.0)));
            if let Some((server, path)) = socket
                && !inherited.has_path(path)
            {
                let path = path.to_owned();
                let reason = format!("{}: {}", server.place, ListenError::Sealed { path });
                step.consequence = Consequence::OutOfReach(reason);
            }
        }
    }

    /// The problem if a secret lies where this process cannot read it.
    pub(crate) fn check_secrets(&self, model: &Model) -> Result<(), Problem> {
        let Some(within) = &self.files else {
            return Ok(());
        };
        match secrets_of(model).find(|secret| !within.readable.contain(&secret.path)) {
            None => Ok(()),
            Some(secret) => {
                let detail = format!(
                    "secret file {} is out of reach of the confined process; move it beside the configuration file, \
                     or put it into the file and restart Tarn",
                    secret.path.display()
                );
                let mut problem = Problem::new(ProblemKind::Refused, detail);
                problem.place = Some(secret.place.to_string());
                Err(problem)
            }
        }
    }
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory.to_owned(),
        Some(_) | None => PathBuf::from("."),
    }
}

/// What is left to be given up when all is open.
pub(crate) struct Confinement<'a> {
    pub(crate) model: &'a Model,
    pub(crate) reach: &'a Reach,
    /// Whether this process has become another user.
    pub(crate) is_other_user: bool,
    /// The configuration file.
    pub(crate) file: Option<&'a Path>,
    /// The state directory.
    pub(crate) state: &'a Path,
    /// The socket of the administration.
    pub(crate) socket: Option<&'a Path>,
}

impl Confinement<'_> {
    /// Gives it up. To be called before any other thread is started.
    ///
    /// # Errors
    ///
    /// The kernel cannot, and the configuration wants it; or what is needed later is out of reach.
    pub(crate) fn give_up(&self) -> Result<(), StartError> {
        if !confine::is_alone().map_err(StartError::Confine)? {
            let error = io::Error::other("other threads run already");
            return Err(StartError::Confine(error));
        }
        // Kernels before 6.4 report it in a file below /proc, which is out of reach from now on; once
        // asked for, it is remembered.
        rustix::param::page_size();
        privileges::no_new_privileges().map_err(StartError::Confine)?;
        if self.is_other_user {
            privileges::give_up(self.has_low_ports()).map_err(StartError::Confine)?;
            self.check_file()?;
        } else {
            privileges::keep_serving(needs_right_to_rings()).map_err(StartError::Confine)?;
        }
        if let Some(rules) = self.rules() {
            let servers = self.reach.servers.as_ref();
            let ports = servers.map_or_else(|| Some(Vec::new()), Servers::ports);
            let enforced =
                files::restrict(&rules, ports.as_deref()).map_err(StartError::ConfineFiles)?;
            self.tell("files (Landlock)", enforced)?;
        }
        if self.model.confine().seccomp {
            let enforced =
                calls::restrict(devices_of(self.model)).map_err(StartError::ConfineCalls)?;
            self.tell("system calls (seccomp)", enforced)?;
        }
        Ok(())
    }

    /// Gives up what only the start needed. To be called when all threads run that the start makes.
    ///
    /// # Errors
    ///
    /// The kernel cannot, and the configuration wants it.
    pub(crate) fn seal(model: &Model) -> Result<(), StartError> {
        if !model.confine().seccomp {
            return Ok(());
        }
        let enforced =
            calls::seal(Servers::of(model).connections()).map_err(StartError::ConfineCalls)?;
        match enforced {
            // It has been reported already.
            Enforced::Not if !model.confine().is_required => Ok(()),
            Enforced::Not => Err(StartError::Unconfined {
                what: "system calls of the start (seccomp)",
            }),
            Enforced::Fully | Enforced::Partly => Ok(()),
        }
    }

    fn has_low_ports(&self) -> bool {
        let portals = self.model.listeners();
        let portals = portals.iter().map(|listener| listener.bind);
        let admin = self.model.admin().listen.iter().map(|one| one.bind);
        let groups = self.model.hyperscsi().iter();
        let groups = groups.filter_map(|group| group.at.udp());
        portals
            .chain(admin)
            .chain(groups)
            .any(|bind| (1..PORT_OF_ALL_MIN).contains(&bind.port()))
    }

    /// It is read again at every reload.
    fn check_file(&self) -> Result<(), StartError> {
        let Some(file) = self.file else {
            return Ok(());
        };
        rustix::fs::access(file, rustix::fs::Access::READ_OK).map_err(|error| StartError::Hidden {
            path: file.to_owned(),
            source: error.into(),
        })
    }

    /// A rule for each path that is needed from now on; `None` where all paths are left.
    fn rules(&self) -> Option<Vec<Rule>> {
        let within = self.reach.files.as_ref()?;
        let admin = self.model.admin();
        let certificates = admin.certificate.iter();
        let of_nbd = self.model.nbd().iter().filter_map(|one| one.tls.as_ref());
        let authorities = of_nbd.clone().filter_map(|tls| tls.ca.as_ref());
        let certificates = certificates.chain(of_nbd.map(|tls| &tls.certificate));
        let certificates = certificates.flat_map(|pair| [&pair.certificate, &pair.key]);
        let certificates = certificates.chain(authorities);
        let servers = self.reach.servers.iter();
        let of_servers = servers.flat_map(Servers::read);
        let read = SYSTEM.map(PathBuf::from).into_iter();
        let read = read
            .chain(certificates.map(|path| directory_of(path)))
            .chain(within.readable.paths().iter().cloned())
            .chain(of_servers);
        let kept = [self.file.map(directory_of), self.socket.map(directory_of)];
        // What a link leads to is replaced where it lies.
        let linked = self.file.and_then(|file| std::fs::canonicalize(file).ok());
        let linked = linked.map(|file| directory_of(&file));
        let sockets = self.model.nbd().iter().filter_map(|one| one.at.socket());
        let sockets = sockets.map(|(path, _)| directory_of(path));
        let kept = kept.into_iter().flatten().chain(linked).chain(sockets);
        let kept = kept.chain([self.state.to_owned()]);
        let stores = within.stores.paths().iter().cloned();
        let rule = |right| move |path| Rule { path, right };
        Some(
            read.map(rule(Right::Read))
                .chain(kept.map(rule(Right::Keep)))
                .chain(stores.map(rule(Right::Store)))
                .collect(),
        )
    }

    fn tell(&self, what: &'static str, enforced: Enforced) -> Result<(), StartError> {
        match enforced {
            Enforced::Fully => tracing::info!(what, "confined"),
            Enforced::Partly => tracing::info!(what, "confined as far as this kernel can"),
            Enforced::Not if self.model.confine().is_required => {
                return Err(StartError::Unconfined { what });
            }
            Enforced::Not => tracing::warn!(what, "not confined: this kernel cannot, or may not"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::scratch::Scratch;

    fn model(scratch: &Scratch, text: &str) -> Model {
        Model::from_toml(text, &scratch.path().join("tarn.toml")).unwrap()
    }

    fn lun(store: &str) -> String {
        format!("[[lun]]\nid = \"a\"\nstore = \"{store}\"\n")
    }

    const ISCSI: &str = "iscsi://h/eui.0123456789abcdef/0";
    const HYPERSCSI: &str = "hyperscsi://g/d?udp=h&password_file=ca/p";
    const ROOTS: &str = "[confine]\nroots = [\"disks\"]\n";

    #[test]
    fn a_store_outside_the_roots_is_refused_with_place_and_remedy() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path().join("disks")).unwrap();
        let reach = |store: &str| {
            let model = model(&scratch, &format!("{}{ROOTS}", lun(store)));
            Reach::of(&model, None, None).map_err(|error| {
                let directory = fs::canonicalize(scratch.path()).unwrap();
                error.to_string().replace(directory.to_str().unwrap(), "D")
            })
        };
        for store in ["mem:1M", "disks/a.img?size=1M"] {
            assert!(reach(store).is_ok(), "{store}");
        }
        let directory = fs::canonicalize(scratch.path()).unwrap();
        let outside = format!("{}/a.img?size=1M", directory.display());
        let error = reach(&outside).unwrap_err();
        assert!(
            error.ends_with(
                "tarn.toml:3: lun[0].store: D/a.img is outside the roots (D/disks); move it there, or name its \
                 directory in confine.roots and restart Tarn"
            ),
            "{error}"
        );
    }

    #[test]
    fn a_root_that_is_not_there_is_refused() {
        let scratch = Scratch::new();
        let error = Reach::of(&model(&scratch, ROOTS), None, None).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("confine.roots[0]: cannot look at root"),
            "{error}"
        );
    }

    #[test]
    fn steps_and_secrets_out_of_reach_are_refused() {
        let scratch = Scratch::new();
        for directory in ["disks", "etc"] {
            fs::create_dir(scratch.path().join(directory)).unwrap();
        }
        let file = scratch.path().join("etc/tarn.toml");
        let reach = Reach::of(&model(&scratch, ROOTS), Some(&file), None).unwrap();
        let none = Inherited::default();
        let (action, name) = (Action::Add, "a".to_owned());
        let mut step = PlannedStep::new(action, Kind::Lun, name, String::new());
        let inside = model(&scratch, &lun("disks/a.img?size=1M"));
        reach.refuse(std::slice::from_mut(&mut step), &inside, &none);
        assert_eq!(step.consequence, Consequence::Nothing);
        let outside = model(&scratch, &lun("a.img?size=1M"));
        reach.refuse(std::slice::from_mut(&mut step), &outside, &none);
        assert!(matches!(step.consequence, Consequence::OutOfReach(_)));
        assert!(
            step.consequence
                .to_string()
                .contains("is outside the roots")
        );

        let device = model(&scratch, &lun("scsi:/dev/sg0"));
        for (start, expected) in [
            ("", Consequence::Restart),
            ("[confine]\nseccomp = false\n", Consequence::Nothing),
        ] {
            let reach = Reach::of(&model(&scratch, start), None, None).unwrap();
            step.consequence = Consequence::Nothing;
            reach.refuse(std::slice::from_mut(&mut step), &device, &none);
            assert_eq!(step.consequence, expected, "{start}");
        }

        let user = |path| format!("[[user]]\nname = \"u\"\nsecret_file = \"{path}\"\n");
        let beside = model(&scratch, &user("etc/secret"));
        assert!(reach.check_secrets(&beside).is_ok());
        let hidden = model(&scratch, &user("secret"));
        let problem = reach.check_secrets(&hidden).unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Refused);
        assert!(problem.place.unwrap().ends_with("user[0].secret_file"));
        let everywhere = Reach::default();
        assert!(everywhere.check_secrets(&hidden).is_ok());
    }

    #[test]
    fn a_server_that_the_start_did_not_know_is_out_of_reach() {
        let scratch = Scratch::new();
        for directory in ["disks", "ca"] {
            fs::create_dir(scratch.path().join(directory)).unwrap();
        }
        let reason = |confine: &str, before: &str, after: &str| {
            let start = model(&scratch, &format!("{}{confine}", lun(before)));
            let reach = Reach::of(&start, None, None).unwrap();
            let after = model(&scratch, &lun(after));
            let error = reach.outside(&after.units()[0]);
            error.map(|error| error.to_string())
        };
        let (all, calls, files) = ("[confine]\nseccomp = false\n", "", ROOTS);
        let none = "no store was behind a server at the start";
        #[rustfmt::skip]
        let cases = [
            (all, "mem:1M", "nbd://h", None),
            (calls, "mem:1M", "nbd://h", Some(none)),
            (calls, "mem:1M", "nbd+unix:///?socket=/s", Some(none)),
            (calls, "mem:1M", "handler:/s", Some(none)),
            (files, "handler:/s", "handler:/t", None),
            (calls, "mem:1M", "mem:2M", None),
            (calls, "nbd://h", "nbds://other:1", None),
            (calls, "nbd+unix:///?socket=/s", "nbd://h", None),
            (files, "mem:1M", "nbd://h", Some(none)),
            (files, "nbd://h", "nbd://other/a", None),
            (files, "nbd://h", "nbd://h:1", Some("no store had port 1 at the start")),
            (files, "nbd://h", "nbd+unix:///?socket=/s", None),
            (files, "nbd://h", "nbds://h", Some("no store needed the certificates")),
            (files, "nbds://h", "nbds://other", None),
            (files, "nbds://h?ca=ca/a", "nbds://other?ca=ca/b", None),
            (files, "nbds://h?ca=ca/a", "nbds://other?ca=/etc/ssl/b", Some("no store had certificates in")),
            (files, "nbds://h?ca=ca/a", "nbds://other", Some("no store needed the certificates")),
            (all, "mem:1M", "rbd:p/i", None),
            (calls, "nbd://h", "rbd:p/i", Some("no store was an image")),
            (calls, "rbd:p/a", "rbd:p/b?conf=/elsewhere/c", None),
            (files, "nbd://h", "rbd:p/i", Some("no store was an image")),
            (files, "rbd:p/a?conf=ca/c", "rbd:p/b?conf=ca/d&keyring=ca/e", None),
            (files, "rbd:p/a?conf=ca/c", "rbd:p/b?conf=/elsewhere/c", Some("files of its cluster in the directory of")),
            (calls, "mem:1M", ISCSI, Some(none)),
            (calls, "nbd://h", ISCSI, None),
            (calls, ISCSI, "nbd://h", None),
            (files, ISCSI, "iscsi://other/eui.0123456789abcdef/1", None),
            (files, ISCSI, "iscsi://h:1/eui.0123456789abcdef/0", Some("no store had port 1 at the start")),
            (files, "rbd:p/a?conf=ca/c", "iscsi://h:1/eui.0123456789abcdef/0", None),
            (calls, "nbd://h", "hyperscsi://g/d?udp=h&password_file=ca/p", Some("no store was a device of a HyperSCSI")),
            (files, "nbd://h", "hyperscsi://g/d?udp=h&password_file=ca/p", Some("no store was a device of a HyperSCSI")),
            (files, HYPERSCSI, "hyperscsi://g/d?udp=h&password_file=ca/q", None),
            (files, HYPERSCSI, "hyperscsi://g/d?udp=h&password_file=/elsewhere/q", Some("had a password in the directory of")),
            (calls, HYPERSCSI, "nbd://h", None),
        ];
        for (confine, before, after, expected) in cases {
            let got = reason(confine, before, after);
            assert_eq!(
                got.is_some(),
                expected.is_some(),
                "{before} {after}: {got:?}"
            );
            let (got, expected) = (got.unwrap_or_default(), expected.unwrap_or_default());
            assert!(got.contains(expected), "{before} {after}: {got}");
        }
        let said = reason(calls, "mem:1M", "nbd://h/a").unwrap();
        assert!(
            said.ends_with(
                "tarn.toml:3: lun[0].store: nbd://h:10809/a is out of reach of the confined process: no store was \
                 behind a server at the start; write it to the file and restart Tarn"
            ),
            "{said}"
        );
    }

    fn confinement<'a>(model: &'a Model, reach: &'a Reach) -> Confinement<'a> {
        Confinement {
            model,
            reach,
            is_other_user: false,
            file: Some(Path::new("/etc/tarn/tarn.toml")),
            state: Path::new("/var/lib/tarn"),
            socket: Some(Path::new("/run/tarn/tarn.sock")),
        }
    }

    #[test]
    fn what_is_needed_later_stays_within_reach_and_no_more() {
        let scratch = Scratch::new();
        for directory in ["disks", "ca"] {
            fs::create_dir(scratch.path().join(directory)).unwrap();
        }
        let nbd = "[[nbd]]\nsocket = \"/run/nbd/s\"\nluns = [\"a\"]\n\
                   [[nbd]]\nbind = \"127.0.0.1\"\nluns = [\"a\"]\ncertificate = \"/tls/c/c\"\nkey = \"/tls/k/k\"\n\
                   ca = \"/tls/a/a\"\n";
        let admin = "[admin]\nlisten = [\"127.0.0.1:1\"]\ncertificate = \"/admin/c/c\"\nkey = \"/admin/k/k\"\n";
        let rules = |store: &str, confine: &str| {
            let model = model(&scratch, &format!("{}{nbd}{admin}{confine}", lun(store)));
            let reach = Reach::of(&model, None, None).unwrap();
            let rules = confinement(&model, &reach).rules();
            let directory = fs::canonicalize(scratch.path()).unwrap();
            let shown = |rule: &Rule| {
                let path = rule.path.display().to_string();
                format!(
                    "{:?} {}",
                    rule.right,
                    path.replace(directory.to_str().unwrap(), "D")
                )
            };
            rules.map(|rules| rules.iter().map(shown).collect::<Vec<_>>())
        };
        assert_eq!(rules("mem:1M", ""), None);
        let system = SYSTEM.map(|path| format!("Read {path}"));
        let certificates = ["/admin/c", "/admin/k", "/tls/c", "/tls/k", "/tls/a"];
        let read = certificates.map(|path| format!("Read {path}"));
        let kept = [
            "Keep /etc/tarn",
            "Keep /run/tarn",
            "Keep /run/nbd",
            "Keep /var/lib/tarn",
        ];
        let kept = kept.map(str::to_owned);
        let disks = ["Read D/disks", "Store D/disks"].map(str::to_owned);
        let resolver = RESOLVER.map(|path| format!("Read {path}"));
        let authorities = AUTHORITIES.map(|path| format!("Read {path}"));
        let of = |servers: &[String]| {
            [&system[..], &read, &disks[..1], servers, &kept, &disks[1..]].concat()
        };
        assert_eq!(rules("mem:1M", ROOTS), Some(of(&[])));
        assert_eq!(rules("nbd://h", ROOTS), Some(of(&resolver)));
        let both = [&resolver[..], &authorities].concat();
        assert_eq!(rules("nbds://h", ROOTS), Some(of(&both)));
    }

    #[test]
    fn only_ports_below_1024_need_a_right() {
        let scratch = Scratch::new();
        let target = |port: u16| {
            format!("[[target]]\nname = \"iqn.2026-11.a:t\"\nportals = [\"127.0.0.1:{port}\"]\n")
        };
        let admin = |port: u16| format!("[admin]\nlisten = [\"127.0.0.1:{port}\"]\n");
        let group = |port: u16| {
            format!(
                "[[lun]]\nid = \"a\"\nstore = \"mem:1M\"\n[[hyperscsi.group]]\nname = \"G\"\n\
                 udp = \"127.0.0.1:{port}\"\nopen = true\ndevice = [{{ id = \"a\" }}]\n"
            )
        };
        for (port, is_low) in [(0, false), (1, true), (1023, true), (1024, false)] {
            for text in [target(port), admin(port), group(port)] {
                let (model, reach) = (model(&scratch, &text), Reach::default());
                assert_eq!(
                    confinement(&model, &reach).has_low_ports(),
                    is_low,
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn what_the_kernel_does_not_enforce_is_an_error_where_it_is_required() {
        let scratch = Scratch::new();
        for (required, enforced, is_good) in [
            (true, Enforced::Fully, true),
            (true, Enforced::Partly, true),
            (true, Enforced::Not, false),
            (false, Enforced::Not, true),
        ] {
            let text = format!("[confine]\nrequired = {required}\n");
            let (model, reach) = (model(&scratch, &text), Reach::default());
            let told = confinement(&model, &reach).tell("it", enforced);
            assert_eq!(told.is_ok(), is_good, "{required} {enforced:?}");
        }
    }

    #[test]
    fn only_root_becomes_another_user() {
        let scratch = Scratch::new();
        let text = "[confine]\nuser = \"nobody-of-that-name\"\n";
        let error = become_user(&model(&scratch, text), 1000).unwrap_err();
        assert!(matches!(error, StartError::Account { .. }), "{error}");
        let own = rustix::process::geteuid().as_raw();
        let text = format!("[confine]\nuser = \"{own}\"\ngroup = \"0\"\n");
        assert_eq!(become_user(&model(&scratch, &text), own).unwrap(), own);
    }
}
