//! How administrators reach the daemon: sockets that are bound before anything runs, and the
//! thread that serves them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use admin::{
    Admin, AdminHandle, Certificate, ListenError, Listeners, Listening, NextEndpoints, Settings,
    SocketFile, TcpEndpoint,
};
use api::control::Control;
use config::{AdminListener, Model};
use confine::inherited::Inherited;
use reactor::Occupant;
use reactor::net::{Bound, Families};

use crate::OwnSockets;
use crate::environment::SOCKET_NAME;
use crate::{Environment, StartError};

/// Connections that may wait to be accepted, per address.
const BACKLOG: i32 = 128;

/// Where the socket may be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum SocketPath {
    /// There and nowhere else: somebody has said so.
    Named(PathBuf),
    /// The first of these that is free.
    FirstOf(Vec<PathBuf>),
}

impl SocketPath {
    /// What the configuration says, else `TARN_SOCKET`, else where the verbs look by themselves,
    /// else beside the state.
    pub(crate) fn choose(environment: &Environment, model: &Model, state: &Path) -> Self {
        let named = model.admin().socket.as_ref();
        if let Some(path) = named.or(environment.socket.as_ref()) {
            return Self::Named(path.clone());
        }
        let mut places = environment.socket_directories();
        places.push(state.to_owned());
        Self::FirstOf(places.iter().map(|place| place.join(SOCKET_NAME)).collect())
    }
}

/// The sockets of the administration, bound.
#[derive(Debug)]
pub(crate) struct AdminSockets {
    listeners: Listeners,
    settings: Settings,
    host: String,
    socket: Option<SocketFile>,
}

impl AdminSockets {
    /// Binds all. Nobody is answered yet. `None` where the configuration wants none. `host` is the
    /// name of the machine.
    ///
    /// # Errors
    ///
    /// A socket that was asked for cannot be had.
    pub(crate) fn open(
        model: &Model,
        socket: &SocketPath,
        state: &Path,
        host: &str,
        inherited: &Inherited,
    ) -> Result<Option<Self>, StartError> {
        let admin = model.admin();
        if !admin.is_enabled {
            return Ok(None);
        }
        let mut listeners = Listeners::default();
        for listener in &admin.listen {
            let (own, place) = (OwnSockets::default(), &listener.place);
            let bound = own.bind((listener.bind, place), Families::Both, inherited)?;
            let bound = bound.listen(BACKLOG, &[]);
            let bound = bound.map_err(|source| own.refused(place.clone(), source))?;
            listeners.tcp.push(TcpEndpoint::new(listener.bind, bound));
        }
        let socket = match socket {
            SocketPath::Named(path) => Some(admin::unix(path, admin::PRIVATE)?),
            SocketPath::FirstOf(paths) => first_free(paths),
        };
        let socket = socket.map(|(listener, file)| {
            listeners.unix.push(listener);
            file
        });
        if let Some(error) = check_certificate(model).into_iter().next() {
            return Err(error);
        }
        Ok(Some(Self {
            listeners,
            settings: settings(model, state, host),
            host: host.to_owned(),
            socket,
        }))
    }

    /// Where the socket is.
    pub(crate) fn socket(&self) -> Option<&Path> {
        self.socket.as_ref().map(SocketFile::path)
    }

    /// Answers from now on.
    ///
    /// # Errors
    ///
    /// There are no tokens or no certificate to be read, or there is no thread.
    pub(crate) fn serve(self, control: Arc<dyn Control>) -> Result<Administration, StartError> {
        let addresses = self.listeners.addresses();
        let state = self.settings.state.clone();
        let handle = Admin::start(self.listeners, control, self.settings)?;
        log_addresses(&addresses, handle.fingerprint());
        if let Some(socket) = &self.socket {
            tracing::info!(socket = %socket.path().display(), "administration");
        }
        Ok(Administration {
            listening: AdminListening {
                listening: handle.listening(),
                state,
                host: self.host,
            },
            handle,
            _socket: self.socket,
        })
    }
}

/// What the administration is served with. `state` is the state directory, `host` the name of the machine.
fn settings(model: &Model, state: &Path, host: &str) -> Settings {
    let admin = model.admin();
    let own = || Certificate::Own {
        directory: state.to_owned(),
    };
    Settings {
        state: state.to_owned(),
        names: names(admin, host),
        certificate: admin
            .tls
            .then(|| named_certificate(model).unwrap_or_else(own)),
    }
}

fn log_addresses(addresses: &[SocketAddr], fingerprint: Option<&str>) {
    for address in addresses {
        match fingerprint {
            Some(certificate) => tracing::info!(%address, certificate, "administration over TLS"),
            None => tracing::info!(%address, "administration"),
        }
    }
}

/// Whether another configuration has the administration listen elsewhere, or otherwise.
pub(crate) fn listens_otherwise(old: &Model, new: &Model) -> bool {
    let of = |model: &Model| {
        let admin = model.admin();
        let listen: Vec<_> = admin.listen.iter().map(|one| one.bind).collect();
        let files = |one: &config::Certificate| (one.certificate.clone(), one.key.clone());
        let files = admin.certificate.as_ref().map(files);
        (listen, files, admin.tls, admin.names.clone())
    };
    of(old) != of(new)
}

/// Takes the addresses of a new configuration, beside those that the old one has; or says why they cannot be had.
pub(crate) fn bind_new(
    old: &Model,
    new: &Model,
    own: &OwnSockets,
    inherited: &Inherited,
) -> Vec<Result<(SocketAddr, Bound), StartError>> {
    let is_old = |one: &&AdminListener| old.admin().listen.iter().any(|it| it.bind == one.bind);
    let added = new.admin().listen.iter().filter(|one| !is_old(one));
    let bind = |one: &AdminListener| {
        let bound = own.bind((one.bind, &one.place), Families::Both, inherited)?;
        Ok((one.bind, bound))
    };
    added.map(bind).collect()
}

/// Where the running administration listens.
#[derive(Clone, Debug)]
pub(crate) struct AdminListening {
    listening: Listening,
    /// The state directory.
    state: PathBuf,
    /// The name of the machine.
    host: String,
}

impl AdminListening {
    /// Whether the file of the certificate has another one than is in use.
    pub(crate) fn is_renewed(&self, model: &Model) -> bool {
        let named = named_certificate(model).filter(|_| model.admin().tls);
        let found = named.and_then(|named| named.fingerprint());
        let in_use = self.listening.fingerprint();
        found
            .zip(in_use)
            .is_some_and(|(found, in_use)| found != in_use)
    }

    /// When the certificate in use is valid no longer.
    pub(crate) fn not_after(&self) -> Option<SystemTime> {
        self.listening.not_after()
    }

    /// Its sockets, by the address that was asked for, as far as the system says where they are.
    pub(crate) fn sockets(&self) -> Vec<(SocketAddr, Occupant)> {
        let sockets = self.listening.listeners().into_iter();
        let occupants = sockets.filter_map(|(wanted, listener)| {
            let address = listener.local_addr().ok()?;
            Some((wanted, Occupant::new(&listener, address)))
        });
        occupants.collect()
    }

    /// Gets ready to listen as a new configuration says, at addresses that it has already or at those that are `bound`
    /// for it. Nobody is answered there yet, and dropping it undoes it.
    ///
    /// # Errors
    ///
    /// An address cannot be had, or the certificate not be used.
    pub(crate) fn take(
        &self,
        new: &Model,
        own: &OwnSockets,
        bound: Vec<(SocketAddr, Bound)>,
    ) -> Result<NextEndpoints, StartError> {
        let listen = &new.admin().listen;
        let wanted: Vec<_> = listen.iter().map(|one| one.bind).collect();
        let mut bound: BTreeMap<_, _> = bound.into_iter().collect();
        let open = |address: SocketAddr| {
            let mut listen = listen.iter();
            let listener = listen.find(|one| one.bind == address);
            let found = listener.zip(bound.remove(&address));
            let (listener, bound) = found.ok_or(StartError::NoAdministration)?;
            let bound = bound.listen(BACKLOG, own.going());
            bound.map_err(|source| own.refused(listener.place.clone(), source))
        };
        let settings = settings(new, &self.state, &self.host);
        self.listening.prepare(&wanted, &settings, open)
    }
}

/// Has the administration listen there from now on.
pub(crate) fn listen_at(next: NextEndpoints) {
    log_addresses(&next.addresses(), next.fingerprint());
    next.put_in_force();
}

/// Names by which browsers may reach the console, besides the addresses: those that are configured,
/// else that of the machine, unless no certificate could bear it.
fn names(admin: &config::Admin, host: &str) -> Vec<String> {
    let machine = Some(host).filter(|host| admin.names.is_empty() && config::is_host(host));
    let machine = machine.map(str::to_ascii_lowercase);
    admin.names.iter().cloned().chain(machine).collect()
}

/// All that is wrong with the certificate that the configuration names and with its key, if they will be used: what
/// would keep the administration from starting with them.
pub(crate) fn check_certificate(model: &Model) -> Vec<StartError> {
    let admin = model.admin();
    let is_used = admin.is_enabled && admin.tls && !admin.listen.is_empty();
    let named = admin.certificate.as_ref().filter(|_| is_used);
    let Some((named, certificate)) = named.zip(named_certificate(model)) else {
        return Vec::new();
    };
    let wrong = certificate.check().err().unwrap_or_default();
    let error = |source| StartError::AdminCertificate {
        place: named.place.clone(),
        reason: Box::new(source),
    };
    wrong.into_iter().map(error).collect()
}

fn named_certificate(model: &Model) -> Option<Certificate> {
    let named = model.admin().certificate.as_ref()?;
    Some(Certificate::Files {
        certificate: named.certificate.clone(),
        key: named.key.clone(),
    })
}

/// The administration at work.
#[derive(Debug)]
pub(crate) struct Administration {
    handle: AdminHandle,
    listening: AdminListening,
    /// Removed when nobody is answered any more.
    _socket: Option<SocketFile>,
}

impl Administration {
    /// What it does without.
    pub(crate) fn problems(&self) -> &[String] {
        self.handle.problems()
    }

    /// Where it listens, to be changed.
    pub(crate) fn listening(&self) -> AdminListening {
        self.listening.clone()
    }

    /// Answers what was asked, and ends. Returns after some seconds in any case.
    pub(crate) fn stop(self) {
        if !self.handle.stop() {
            tracing::warn!("a call of the administration hangs; it is left behind");
        }
    }
}

/// Disks are served without an administration rather than not at all: several daemons may run as
/// one user, and nobody has asked for this socket.
fn first_free(paths: &[PathBuf]) -> Option<(std::os::unix::net::UnixListener, SocketFile)> {
    let mut told: Vec<ListenError> = Vec::new();
    for path in paths {
        match admin::unix(path, admin::PRIVATE) {
            Ok(bound) => return Some(bound),
            Err(error) => told.push(error),
        }
    }
    for error in told {
        tracing::warn!("no administration: {}", crate::error::chain(&error));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn model(text: &str) -> Model {
        Model::from_toml(text, Path::new("/etc/tarn/tarn.toml")).unwrap()
    }

    #[test]
    fn the_file_wins_over_the_environment_and_that_over_the_usual_places() {
        let usual = Environment {
            uid: 1000,
            runtime_directory: Some("/run/tarn".into()),
            xdg_runtime_dir: Some("/run/user/1000".into()),
            ..Environment::default()
        };
        let named = Environment {
            socket: Some("/a".into()),
            ..usual.clone()
        };
        let file = model("[admin]\nsocket = \"/b\"\n");
        let state = Path::new("/state");
        let choose = |environment: &Environment, model: &Model| {
            SocketPath::choose(environment, model, state)
        };
        assert_eq!(choose(&named, &file), SocketPath::Named("/b".into()));
        assert_eq!(choose(&named, &model("")), SocketPath::Named("/a".into()));
        assert_eq!(choose(&usual, &file), SocketPath::Named("/b".into()));
        let places = [
            "/run/tarn/tarn.sock",
            "/run/user/1000/tarn/tarn.sock",
            "/state/tarn.sock",
        ];
        let places = places.map(PathBuf::from).to_vec();
        assert_eq!(choose(&usual, &model("")), SocketPath::FirstOf(places));
    }

    #[test]
    fn a_socket_that_is_taken_is_an_error_only_where_it_was_asked_for() {
        let scratch = Scratch::new();
        let (first, second) = (scratch.path().join("a.sock"), scratch.path().join("b.sock"));
        let taken = admin::unix(&first, admin::PRIVATE).unwrap();
        let named = SocketPath::Named(first.clone());
        assert!(
            AdminSockets::open(
                &model(""),
                &named,
                scratch.path(),
                "vm",
                &Inherited::default()
            )
            .is_err()
        );
        let usual = SocketPath::FirstOf(vec![first, second.clone()]);
        let sockets = AdminSockets::open(
            &model(""),
            &usual,
            scratch.path(),
            "vm",
            &Inherited::default(),
        )
        .unwrap();
        assert!(second.exists());
        drop((sockets, taken));
        assert!(!second.exists());
    }

    #[test]
    fn a_console_is_reached_by_the_name_of_the_machine_unless_names_are_given() {
        let given = model("[admin]\nnames = [\"san.example\"]\n");
        for (model, host, expected) in [
            (&model(""), "VM", Some("vm")),
            (&model(""), "", None),
            (&model(""), "(none)", None),
            (&given, "vm", Some("san.example")),
        ] {
            let names = names(model.admin(), host);
            assert_eq!(names.first().map(String::as_str), expected, "{host}");
            assert!(names.len() < 2, "{names:?}");
        }
    }

    #[test]
    fn a_daemon_that_is_not_to_be_administered_opens_nothing() {
        let scratch = Scratch::new();
        let path = scratch.path().join("a.sock");
        let off = model("[admin]\nenabled = false\n");
        let sockets = AdminSockets::open(
            &off,
            &SocketPath::Named(path.clone()),
            scratch.path(),
            "vm",
            &Inherited::default(),
        );
        assert!(sockets.unwrap().is_none());
        assert!(!path.exists());
    }
}
