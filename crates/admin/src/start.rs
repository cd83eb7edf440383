//! Starts the thread, and stops it.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use api::control::Control;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::app::{App, stopped};
use crate::endpoints::{Endpoints, Listening, TcpEndpoint};
use crate::settings::{Settings, StartError};
use crate::tokens::Tokens;
use crate::{limits, serve, supervise};

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
        self.tcp.iter().filter_map(TcpEndpoint::address).collect()
    }
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
        listeners: Listeners,
        control: Arc<dyn Control>,
        settings: Settings,
    ) -> Result<AdminHandle, StartError> {
        let (tokens, damage) = Tokens::open(&settings.state.join("tokens.toml"))?;
        let mut problems: Vec<String> = damage.into_iter().collect();
        let (endpoints, fingerprint) = match Endpoints::new(listeners.tcp, &settings) {
            Err(StartError::Tls(error)) if settings.makes_certificate() => {
                problems.push(format!(
                    "no address is served, for Tarn's own certificate cannot be used: {error}; move \
                     admin-cert.pem and admin-key.pem out of the state directory and restart Tarn, which makes new ones"
                ));
                Endpoints::new(Vec::new(), &settings)?
            }
            secured => secured?,
        };
        let (unix, endpoints) = (listeners.unix, Arc::new(endpoints));
        for listener in &unix {
            listener.set_nonblocking(true)?;
        }
        let (stop, stopping) = watch::channel(false);
        let (ended_sender, ended) = mpsc::channel();
        let app = Arc::new(App::new(control, tokens, settings.names, stopping.clone()));
        let listening = Listening::new(Arc::clone(&endpoints), &app);
        let live = move || {
            supervise::supervise(
                || life(&app, &unix, &endpoints),
                |pause| wait(&stopping, pause),
            );
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
            listening,
        })
    }
}

/// One life of the thread.
fn life(app: &Arc<App>, unix: &[UnixListener], endpoints: &Arc<Endpoints>) -> Result<(), String> {
    let runtime = runtime().map_err(|error| format!("no runtime: {error}"))?;
    let outcome = runtime.block_on(serve::serve(Arc::clone(app), unix, endpoints));
    runtime.shutdown_timeout(limits::STOP_TIME_MAX);
    outcome.map_err(|error| format!("listeners: {error}"))
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(limits::THREADS_MAX)
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
    listening: Listening,
}

impl AdminHandle {
    /// What it does without, one line each with the remedy.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Where it listens, to be changed.
    pub fn listening(&self) -> Listening {
        self.listening.clone()
    }

    /// SHA-256 of the certificate of the start, hexadecimal; none without TLS.
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
