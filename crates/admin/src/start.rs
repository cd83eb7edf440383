//! Starts the thread, and stops it.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use api::control::Control;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::app::{App, stopped};
use crate::tls::{Certificate, Tls, TlsError};
use crate::tokens::{Tokens, TokensError};
use crate::{limits, serve, supervise};

/// Settings of the administration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The state directory: `tokens.toml`, and the certificate if it is made here.
    pub state: PathBuf,
    /// Names this server is reached by, beside its addresses: for Host, and for a certificate that
    /// is made here.
    pub names: Vec<String>,
    /// The certificate of TCP; none is no TLS, which only loopback may do without.
    pub certificate: Option<Certificate>,
}

impl Settings {
    /// Whether the certificate is one that is made here.
    const fn makes_certificate(&self) -> bool {
        matches!(self.certificate, Some(Certificate::Own { .. }))
    }
}

/// Sockets that are bound already.
#[derive(Debug, Default)]
pub struct Listeners {
    /// Who connects must be root or the daemon's own user.
    pub unix: Vec<UnixListener>,
    /// Who connects needs a token.
    pub tcp: Vec<TcpEndpoint>,
}

impl Listeners {
    /// The addresses of TCP, as they were bound.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let addresses = self
            .tcp
            .iter()
            .map(|endpoint| endpoint.listener.local_addr());
        addresses.filter_map(Result::ok).collect()
    }
}

/// A TCP listener.
#[derive(Debug)]
pub struct TcpEndpoint {
    /// The listener.
    pub(crate) listener: TcpListener,
    /// Its TLS; the start sets it from the settings.
    pub(crate) tls: Option<Tls>,
}

impl From<TcpListener> for TcpEndpoint {
    fn from(listener: TcpListener) -> Self {
        Self {
            listener,
            tls: None,
        }
    }
}

/// Why the administration cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The tokens cannot be read.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// There is no certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Tokens would go over the network for everybody to read.
    #[error(
        "{address}: the administration needs TLS on an address that others reach; \
         leave out tls = false, or listen on 127.0.0.1"
    )]
    PlainBeyondLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// The system refuses something.
    #[error("the administration cannot start: {0}")]
    System(#[from] io::Error),
}

/// The administration.
#[derive(Debug)]
pub struct Admin;

impl Admin {
    /// Starts the thread. It serves these listeners until it is stopped; when it panics, it starts
    /// again with the same.
    ///
    /// # Errors
    ///
    /// Tokens or certificate cannot be read, or the system refuses the thread.
    pub fn start(
        mut listeners: Listeners,
        control: Arc<dyn Control>,
        settings: Settings,
    ) -> Result<AdminHandle, StartError> {
        let (tokens, damage) = Tokens::open(&settings.state.join("tokens.toml"))?;
        let mut problems: Vec<String> = damage.into_iter().collect();
        let fingerprint = match secure(&mut listeners, &settings) {
            Err(StartError::Tls(error)) if settings.makes_certificate() => {
                problems.push(format!(
                    "no address is served, for Tarn's own certificate cannot be used: {error}; move \
                     admin-cert.pem and admin-key.pem out of the state directory and restart Tarn, which makes new ones"
                ));
                listeners.tcp.clear();
                None
            }
            secured => secured?,
        };
        for listener in &listeners.unix {
            listener.set_nonblocking(true)?;
        }
        for endpoint in &listeners.tcp {
            endpoint.listener.set_nonblocking(true)?;
        }
        let (stop, stopping) = watch::channel(false);
        let (ended_sender, ended) = mpsc::channel();
        let app = Arc::new(App::new(control, tokens, settings.names, stopping.clone()));
        let live = move || {
            supervise::supervise(|| life(&app, &listeners), |pause| wait(&stopping, pause));
            // Nobody may wait any more.
            ended_sender.send(()).ok();
        };
        thread::Builder::new()
            .name("admin".to_owned())
            .spawn(live)?;
        Ok(AdminHandle {
            problems,
            stop,
            ended,
            fingerprint,
        })
    }
}

/// Gives the TCP listeners their TLS. Returns the fingerprint of the certificate.
fn secure(listeners: &mut Listeners, settings: &Settings) -> Result<Option<String>, StartError> {
    if listeners.tcp.is_empty() {
        return Ok(None);
    }
    let mut addresses = Vec::new();
    for endpoint in &listeners.tcp {
        addresses.push(endpoint.listener.local_addr()?);
    }
    let Some(certificate) = &settings.certificate else {
        let foreign = addresses.iter().find(|own| !is_loopback(own.ip()));
        return foreign.map_or(Ok(None), |address| {
            Err(StartError::PlainBeyondLoopback { address: *address })
        });
    };
    let mut names = settings.names.clone();
    names.push("localhost".to_owned());
    let own = addresses.iter().map(SocketAddr::ip);
    names.extend(
        own.filter(|ip| !ip.is_unspecified())
            .map(|ip| ip.to_string()),
    );
    let tls = Tls::load(certificate, &names)?;
    for endpoint in &mut listeners.tcp {
        endpoint.tls = Some(tls.clone());
    }
    Ok(Some(tls.fingerprint))
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// One life of the thread.
fn life(app: &Arc<App>, listeners: &Listeners) {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => panic!("no runtime: {error}"),
    };
    let outcome = runtime.block_on(serve::serve(Arc::clone(app), listeners));
    runtime.shutdown_timeout(limits::STOP_TIME_MAX);
    if let Err(error) = outcome {
        panic!("listeners: {error}");
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(limits::CALL_THREADS_MAX + 1)
        .thread_name("admin-call")
        .build()
}

/// Waits between two lives. False when all has to end.
fn wait(stopping: &watch::Receiver<bool>, pause: Duration) -> bool {
    let mut stopping = stopping.clone();
    let Ok(runtime) = Builder::new_current_thread().enable_time().build() else {
        return false;
    };
    let is_stopped = async {
        let stop = stopped(&mut stopping);
        tokio::time::timeout(pause, stop).await.is_ok()
    };
    !runtime.block_on(is_stopped)
}

/// The running administration. It stops when this is gone.
#[derive(Debug)]
pub struct AdminHandle {
    problems: Vec<String>,
    stop: watch::Sender<bool>,
    ended: mpsc::Receiver<()>,
    fingerprint: Option<String>,
}

impl AdminHandle {
    /// What it does without, one line each with the remedy.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// SHA-256 of the certificate, hexadecimal; none without TLS.
    pub fn fingerprint(&self) -> Option<&str> {
        self.fingerprint.as_deref()
    }

    /// Answers what is under way, and ends. Returns after some seconds in any case; false when a
    /// call of the daemon still hangs then, on a thread that nobody waits for.
    pub fn stop(self) -> bool {
        self.stop.send_replace(true);
        // Once for the answers, once for the calls, and some for the rest.
        self.ended.recv_timeout(limits::STOP_TIME_MAX * 3).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use durable::scratch::Scratch;

    fn settings(scratch: &Scratch, certificate: Option<Certificate>) -> Settings {
        Settings {
            state: scratch.path().to_owned(),
            names: Vec::new(),
            certificate,
        }
    }

    fn tcp(address: &str) -> Listeners {
        let listener = TcpListener::bind(address).unwrap();
        Listeners {
            unix: Vec::new(),
            tcp: vec![listener.into()],
        }
    }

    #[test]
    fn only_loopback_does_without_tls() {
        let scratch = Scratch::new();
        let plain = settings(&scratch, None);
        assert_eq!(secure(&mut tcp("127.0.0.1:0"), &plain).unwrap(), None);
        let refused = secure(&mut tcp("0.0.0.0:0"), &plain);
        assert!(matches!(
            refused,
            Err(StartError::PlainBeyondLoopback { .. })
        ));
        let directory = scratch.path().to_owned();
        let own = settings(&scratch, Some(Certificate::Own { directory }));
        let mut listeners = tcp("0.0.0.0:0");
        assert!(secure(&mut listeners, &own).unwrap().is_some());
        assert!(listeners.tcp[0].tls.is_some());
    }
}
