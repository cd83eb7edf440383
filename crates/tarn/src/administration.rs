//! How administrators reach the daemon: sockets that are bound before anything runs, and the
//! thread that serves them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use admin::{Admin, AdminHandle, Certificate, ListenError, Listeners, Settings, SocketFile};
use api::control::Control;
use config::Model;
use confine::inherited::Inherited;

use crate::environment::SOCKET_NAME;
use crate::{Environment, StartError};

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
            let failed = |source| StartError::AdminAddress {
                place: listener.place.clone(),
                source,
            };
            let bound = match inherited.at(listener.bind).map_err(StartError::Inherited)? {
                Some(bound) => bound,
                None => admin::tcp(listener.bind).map_err(failed)?,
            };
            listeners.tcp.push(bound.into());
        }
        let socket = match socket {
            SocketPath::Named(path) => Some(admin::unix(path, admin::PRIVATE)?),
            SocketPath::FirstOf(paths) => first_free(paths),
        };
        let socket = socket.map(|(listener, file)| {
            listeners.unix.push(listener);
            file
        });
        let own = || Certificate::Own {
            directory: state.to_owned(),
        };
        if let Some(error) = check_certificate(model).into_iter().next() {
            return Err(error);
        }
        let certificate = admin
            .tls
            .then(|| named_certificate(model).unwrap_or_else(own));
        Ok(Some(Self {
            listeners,
            settings: Settings {
                state: state.to_owned(),
                names: names(admin, host),
                certificate,
            },
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
        let handle = Admin::start(self.listeners, control, self.settings)?;
        for address in addresses {
            match handle.fingerprint() {
                Some(certificate) => {
                    tracing::info!(%address, certificate, "administration over TLS")
                }
                None => tracing::info!(%address, "administration"),
            }
        }
        if let Some(socket) = &self.socket {
            tracing::info!(socket = %socket.path().display(), "administration");
        }
        Ok(Administration {
            handle,
            _socket: self.socket,
        })
    }
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
    /// Removed when nobody is answered any more.
    _socket: Option<SocketFile>,
}

impl Administration {
    /// What it does without.
    pub(crate) fn problems(&self) -> &[String] {
        self.handle.problems()
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
