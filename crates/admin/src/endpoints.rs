//! The TCP listeners in use, which change while the administration runs.
//!
//! A new listener is open before an old one is closed. Where an old one stays, its socket is the same; only its TLS
//! may be another, for connections that begin from then on. What is connected to a listener that goes gets the
//! answers that are under way and is closed then; a stream that has no end is closed after the longest time that a
//! request may take.
//!
//! The list is shared by the thread of the administration, which serves what is in it, and by the thread that changes
//! the configuration, one at a time. Neither holds its lock for longer than it takes to read or replace it. When the
//! thread fails and starts again, it finds the list as it was left.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use tokio::sync::watch;

use crate::app::App;
use crate::settings::{Settings, StartError};
use crate::tls::Tls;

/// A TCP listener that is to be served.
#[derive(Debug)]
pub struct TcpEndpoint {
    wanted: SocketAddr,
    listener: TcpListener,
}

impl TcpEndpoint {
    /// One that was asked for by this address.
    pub const fn new(wanted: SocketAddr, listener: TcpListener) -> Self {
        Self { wanted, listener }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }
}

/// One that is served.
#[derive(Debug)]
pub(crate) struct Endpoint {
    wanted: SocketAddr,
    pub(crate) listener: Arc<TcpListener>,
    pub(crate) tls: Option<Tls>,
    /// True when it is closed.
    close: Arc<watch::Sender<bool>>,
}

impl Endpoint {
    /// True when it is closed.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.close.subscribe()
    }
}

type List = Arc<[Arc<Endpoint>]>;

/// All that are served.
#[derive(Debug)]
pub(crate) struct Endpoints {
    list: Mutex<List>,
    changed: watch::Sender<()>,
}

impl Endpoints {
    /// The first ones.
    ///
    /// # Errors
    ///
    /// As [`secure`].
    pub(crate) fn new(
        first: Vec<TcpEndpoint>,
        settings: &Settings,
    ) -> Result<(Self, Option<String>), StartError> {
        let mut opened = Vec::new();
        for endpoint in first {
            opened.push(opened_endpoint(endpoint)?);
        }
        let (list, fingerprint) = secure(opened, settings)?;
        let endpoints = Self {
            list: Mutex::new(list),
            changed: watch::Sender::new(()),
        };
        Ok((endpoints, fingerprint))
    }

    /// The list as it is now.
    pub(crate) fn list(&self) -> List {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&list)
    }

    /// Changes whenever the list is replaced.
    pub(crate) fn changed(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn replace(&self, next: &List) {
        let before = {
            let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *list, Arc::clone(next))
        };
        self.changed.send_replace(());
        let stays = |one: &Endpoint| next.iter().any(|it| Arc::ptr_eq(&it.close, &one.close));
        for gone in before.iter().filter(|one| !stays(one)) {
            gone.close.send_replace(true);
        }
    }
}

fn opened_endpoint(endpoint: TcpEndpoint) -> Result<Endpoint, StartError> {
    endpoint.listener.set_nonblocking(true)?;
    Ok(Endpoint {
        wanted: endpoint.wanted,
        listener: Arc::new(endpoint.listener),
        tls: None,
        close: Arc::new(watch::Sender::new(false)),
    })
}

/// Gives endpoints their TLS. Returns the fingerprint of the certificate, too.
///
/// # Errors
///
/// The certificate cannot be used, or there is none and an address is not of loopback.
fn secure(
    mut endpoints: Vec<Endpoint>,
    settings: &Settings,
) -> Result<(List, Option<String>), StartError> {
    let list = |endpoints: Vec<Endpoint>| endpoints.into_iter().map(Arc::new).collect();
    if endpoints.is_empty() {
        return Ok((list(endpoints), None));
    }
    let mut addresses = Vec::new();
    for endpoint in &endpoints {
        addresses.push(endpoint.listener.local_addr()?);
    }
    let Some(certificate) = &settings.certificate else {
        let foreign = addresses.iter().find(|own| !is_loopback(own.ip()));
        return match foreign {
            Some(address) => Err(StartError::PlainBeyondLoopback { address: *address }),
            None => Ok((list(endpoints), None)),
        };
    };
    let mut names = settings.names.clone();
    names.push("localhost".to_owned());
    let own = addresses.iter().map(SocketAddr::ip);
    names.extend(
        own.filter(|ip| !ip.is_unspecified())
            .map(|ip| ip.to_string()),
    );
    let tls = Tls::load(certificate, &names)?;
    for endpoint in &mut endpoints {
        endpoint.tls = Some(tls.clone());
    }
    Ok((list(endpoints), Some(tls.fingerprint)))
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Where the running administration listens.
#[derive(Clone, Debug)]
pub struct Listening {
    endpoints: Arc<Endpoints>,
    /// The administration has the daemon, which has this.
    app: Weak<App>,
}

impl Listening {
    pub(crate) fn new(endpoints: Arc<Endpoints>, app: &Arc<App>) -> Self {
        let app = Arc::downgrade(app);
        Self { endpoints, app }
    }

    /// SHA-256 of the certificate in use, hexadecimal; none without TLS.
    pub fn fingerprint(&self) -> Option<String> {
        let list = self.endpoints.list();
        let tls = list.first()?.tls.as_ref()?;
        Some(tls.fingerprint.clone())
    }

    /// When the certificate in use is valid no longer; `None` without TLS, and where it does not say.
    pub fn not_after(&self) -> Option<SystemTime> {
        let list = self.endpoints.list();
        list.first()?.tls.as_ref()?.not_after
    }

    /// The sockets, by the address that was asked for.
    pub fn listeners(&self) -> Vec<(SocketAddr, Arc<TcpListener>)> {
        let list = self.endpoints.list();
        let all = list.iter();
        all.map(|one| (one.wanted, Arc::clone(&one.listener)))
            .collect()
    }

    /// Gets ready to listen at these addresses and no others, with these settings. Nobody is answered there yet, and
    /// dropping it undoes all but a certificate of our own, which was made again if a name was missing in it. `bind`
    /// opens what is not open.
    ///
    /// # Errors
    ///
    /// An address cannot be had, or the certificate not be used.
    pub fn prepare<E: From<StartError>>(
        &self,
        wanted: &[SocketAddr],
        settings: &Settings,
        mut bind: impl FnMut(SocketAddr) -> Result<TcpListener, E>,
    ) -> Result<NextEndpoints, E> {
        let before = self.endpoints.list();
        let mut endpoints = Vec::new();
        for &wanted in wanted {
            let same = before.iter().find(|one| one.wanted == wanted);
            endpoints.push(match same {
                Some(same) => Endpoint {
                    wanted,
                    listener: Arc::clone(&same.listener),
                    tls: None,
                    close: Arc::clone(&same.close),
                },
                None => opened_endpoint(TcpEndpoint::new(wanted, bind(wanted)?))?,
            });
        }
        let (list, fingerprint) = secure(endpoints, settings)?;
        Ok(NextEndpoints {
            to: self.clone(),
            list,
            fingerprint,
            names: settings.names.clone(),
        })
    }
}

/// What is to be listened at: [`Listening::prepare`].
#[derive(Debug)]
#[must_use = "it is dropped unless it is put in force"]
pub struct NextEndpoints {
    to: Listening,
    list: List,
    fingerprint: Option<String>,
    names: Vec<String>,
}

impl NextEndpoints {
    /// The addresses, as they are bound.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let all = self.list.iter();
        all.filter_map(|one| one.listener.local_addr().ok())
            .collect()
    }

    /// SHA-256 of the certificate, hexadecimal; none without TLS.
    pub fn fingerprint(&self) -> Option<&str> {
        self.fingerprint.as_deref()
    }

    /// From now on.
    pub fn put_in_force(self) {
        if let Some(app) = self.to.app.upgrade() {
            app.set_names(self.names);
        }
        self.to.endpoints.replace(&self.list);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::path::Path;

    use durable::scratch::Scratch;

    use super::*;
    use crate::start::{Admin, Listeners};
    use crate::testing::Double;
    use crate::tls::Certificate;

    fn plain(directory: &Path) -> Settings {
        Settings {
            state: directory.to_owned(),
            names: Vec::new(),
            certificate: None,
        }
    }

    fn wanted() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
        Ok(TcpListener::bind(address)?)
    }

    fn first(address: &str) -> Vec<TcpEndpoint> {
        let listener = TcpListener::bind(address).unwrap();
        vec![TcpEndpoint::new(address.parse().unwrap(), listener)]
    }

    #[test]
    fn only_loopback_does_without_tls() {
        let scratch = Scratch::new();
        let settings = plain(scratch.path());
        let (_, fingerprint) = Endpoints::new(first("127.0.0.1:0"), &settings).unwrap();
        assert_eq!(fingerprint, None);
        let refused = Endpoints::new(first("0.0.0.0:0"), &settings).map(drop);
        assert!(matches!(
            refused,
            Err(StartError::PlainBeyondLoopback { .. })
        ));
        let directory = scratch.path().to_owned();
        let settings = Settings {
            certificate: Some(Certificate::Own { directory }),
            ..settings
        };
        let (endpoints, fingerprint) = Endpoints::new(first("0.0.0.0:0"), &settings).unwrap();
        assert!(fingerprint.is_some());
        assert!(endpoints.list()[0].tls.is_some());
    }

    /// A request without a token, and whether an answer comes on this connection.
    fn asks(stream: &mut TcpStream) -> bool {
        let request = b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let mut byte = [0];
        stream.write_all(request).is_ok() && stream.read(&mut byte).is_ok_and(|count| count == 1)
    }

    #[test]
    fn a_new_listener_answers_and_an_old_one_is_closed_with_its_idle_connections() {
        let scratch = Scratch::new();
        let settings = plain(scratch.path());
        let listeners = Listeners {
            unix: Vec::new(),
            tcp: first("127.0.0.1:0"),
        };
        let old = listeners.addresses()[0];
        let daemon = Arc::new(Double::default());
        let handle = Admin::start(listeners, daemon, settings.clone()).unwrap();
        let listening = handle.listening();
        let mut before = TcpStream::connect(old).unwrap();
        assert!(asks(&mut before));

        // The same address is the same socket.
        let next = listening.prepare(&[wanted()], &settings, bind).unwrap();
        assert_eq!(next.addresses(), [old]);
        next.put_in_force();
        assert!(asks(&mut TcpStream::connect(old).unwrap()));

        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let new = other.local_addr().unwrap();
        drop(other);
        let next = listening.prepare(&[new], &settings, bind).unwrap();
        assert!(asks(&mut TcpStream::connect(old).unwrap()), "not yet");
        next.put_in_force();
        assert!(asks(&mut TcpStream::connect(new).unwrap()));
        // What was answered goes, however much of it is left to read.
        let mut rest = Vec::new();
        before.read_to_end(&mut rest).unwrap();
        while TcpStream::connect(old).is_ok() {
            std::thread::yield_now();
        }

        let taken = listening.prepare(&[new, old], &settings, |_| {
            Err(StartError::System(std::io::ErrorKind::AddrInUse.into()))
        });
        assert!(taken.is_err());
        assert!(
            asks(&mut TcpStream::connect(new).unwrap()),
            "all is as before"
        );
        assert!(handle.stop());
    }
}
