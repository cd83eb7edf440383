//! One life of the thread: accepts connections and answers what they ask, until it is stopped.

use std::convert::Infallible;
use std::io;
use std::os::unix::net::UnixListener as UnixSocket;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::{Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::Service as _;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::app::{App, stopped};
use crate::call::Request as Placed;
use crate::connections::{Connections, Place};
use crate::endpoints::{Endpoint, Endpoints};
use crate::handle::live;
use crate::patient::Patient;
use crate::peer::Peer;
use crate::{guard, limits, plain};

/// How long nothing is accepted after an accept failed, as for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// One line of the log for so many attempts that fail one after the other: one a minute.
const FAILURES_PER_LINE: u32 = 600;

/// What connections share.
#[derive(Clone)]
struct Shared {
    router: Router,
    /// For those who speak HTTP where HTTPS is spoken.
    plain: Router,
    connections: Arc<Connections>,
    stopping: watch::Receiver<bool>,
    /// True when the listener is closed.
    closing: watch::Receiver<bool>,
}

/// Serves until all has to end.
///
/// # Errors
///
/// The listeners cannot be used.
///
/// # Panics
///
/// One of its tasks did: it passes the panic on, to be started again.
pub(crate) async fn serve(
    app: Arc<App>,
    unix: &[UnixSocket],
    endpoints: &Endpoints,
) -> io::Result<()> {
    let mut stopping = app.stopping.clone();
    // Clients of the TCP ports must not keep root from the socket, so each kind has its own.
    let local = Shared {
        router: guard::router(&app),
        plain: plain::router(),
        connections: Connections::new(limits::CONNECTIONS_MAX, limits::CONNECTIONS_MAX),
        stopping: stopping.clone(),
        closing: stopping.clone(),
    };
    let remote = Shared {
        connections: Connections::new(limits::CONNECTIONS_MAX, limits::CONNECTIONS_OF_ADDRESS_MAX),
        ..local.clone()
    };
    let mut tasks = JoinSet::new();
    for listener in unix {
        let listener = UnixListener::from_std(listener.try_clone()?)?;
        tasks.spawn(accept_unix(listener, local.clone()));
    }
    tasks.spawn(live::watch_daemon(app));
    let (mut accepting, mut changed) = (Vec::new(), endpoints.changed());
    loop {
        changed.mark_unchanged();
        accepting = accept_at(&endpoints.list(), accepting, &mut tasks, &remote)?;
        tokio::select! {
            ended = tasks.join_next() => {
                let is_of_closed = matches!(&ended, Some(Err(error)) if error.is_cancelled());
                if !is_of_closed {
                    pass_on(ended);
                    break;
                }
            }
            () = stopped(&mut stopping) => break,
            Ok(()) = changed.changed() => {}
        }
    }
    tasks.shutdown().await;
    // Connections hold a receiver each, and end by it.
    let all_ended = async {
        for shared in [&local, &remote] {
            while Arc::strong_count(&shared.connections) > 1 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    };
    tokio::time::timeout(limits::STOP_TIME_MAX, all_ended)
        .await
        .ok();
    Ok(())
}

/// Accepts at these endpoints and no others. Gives what it accepts at, each with its task.
fn accept_at(
    list: &[Arc<Endpoint>],
    before: Vec<(Arc<Endpoint>, AbortHandle)>,
    tasks: &mut JoinSet<()>,
    shared: &Shared,
) -> io::Result<Vec<(Arc<Endpoint>, AbortHandle)>> {
    let (mut accepting, gone): (Vec<_>, Vec<_>) = before
        .into_iter()
        .partition(|(one, _)| list.iter().any(|it| Arc::ptr_eq(it, one)));
    // Its socket goes with the last that has it.
    gone.iter().for_each(|(_, task)| task.abort());
    for endpoint in list {
        if accepting.iter().any(|(one, _)| Arc::ptr_eq(one, endpoint)) {
            continue;
        }
        let listener = TcpListener::from_std(endpoint.listener.try_clone()?)?;
        let tls = endpoint.tls.as_ref();
        let tls = tls.map(|tls| TlsAcceptor::from(Arc::clone(&tls.config)));
        let closing = endpoint.closing();
        let shared = Shared {
            closing,
            ..shared.clone()
        };
        let task = tasks.spawn(accept_tcp(listener, tls, shared));
        accepting.push((Arc::clone(endpoint), task));
    }
    Ok(accepting)
}

/// A task that should go on for ever has ended.
fn pass_on(ended: Option<Result<(), JoinError>>) {
    if let Some(Err(error)) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

async fn accept_unix(listener: UnixListener, shared: Shared) {
    let own = rustix::process::geteuid().as_raw();
    let mut failures = 0;
    loop {
        let Some((stream, _)) = accepted(listener.accept().await, &mut failures).await else {
            continue;
        };
        match stream.peer_cred().map(|peer| peer.uid()) {
            Ok(uid) if uid == 0 || uid == own => {
                if let Some(place) = shared.connections.admit(Instant::now(), None) {
                    tokio::spawn(converse(stream, Peer::Unix { uid }, place, shared.clone()));
                }
            }
            Ok(uid) => tracing::warn!(target: "audit", uid, "refused at the socket"),
            Err(error) => tracing::warn!(%error, "the peer of the socket is not known"),
        }
    }
}

async fn accept_tcp(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Shared) {
    let mut failures = 0;
    loop {
        let Some((stream, address)) = accepted(listener.accept().await, &mut failures).await else {
            continue;
        };
        let (Ok(local), Some(place)) = (
            stream.local_addr(),
            shared.connections.admit(Instant::now(), Some(address.ip())),
        ) else {
            continue;
        };
        // Answers are whole; waiting for more would only delay them.
        stream.set_nodelay(true).ok();
        let peer = Peer::Tcp {
            address,
            local,
            is_tls: tls.is_some(),
        };
        let shared = shared.clone();
        match &tls {
            Some(tls) => tokio::spawn(converse_tls(stream, tls.clone(), peer, place, shared)),
            None => tokio::spawn(converse(stream, peer, place, shared)),
        };
    }
}

/// `failures` counts those since a connection was last accepted.
async fn accepted<T>(outcome: io::Result<T>, failures: &mut u32) -> Option<T> {
    match outcome {
        Ok(connection) => {
            *failures = 0;
            Some(connection)
        }
        Err(error) => {
            if failures.is_multiple_of(FAILURES_PER_LINE) {
                tracing::warn!(%error, failures, "a connection cannot be accepted");
            }
            *failures = failures.wrapping_add(1);
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// How a client of a TLS port has begun.
enum Begun {
    Tls(Box<TlsStream<TcpStream>>),
    Plain(TcpStream),
}

async fn converse_tls(
    stream: TcpStream,
    tls: TlsAcceptor,
    peer: Peer,
    place: Place,
    shared: Shared,
) {
    let begin = async {
        if plain::is_spoken(&stream).await? {
            return Ok::<_, io::Error>(Begun::Plain(stream));
        }
        let stream = tls.accept(stream).await?;
        Ok(Begun::Tls(Box::new(stream)))
    };
    let begun = tokio::select! {
        done = tokio::time::timeout(limits::HANDSHAKE_TIME_MAX, begin) => done,
        () = place.taken() => return,
    };
    match begun {
        Ok(Ok(Begun::Plain(stream))) => {
            let router = shared.plain.clone();
            converse(stream, peer, place, Shared { router, ..shared }).await;
        }
        Ok(Ok(Begun::Tls(stream))) => converse(*stream, peer, place, shared).await,
        Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS"),
        Err(_) => tracing::debug!(%peer, "no TLS in time"),
    }
}

/// Answers the requests of a connection, one after the other.
async fn converse<S>(stream: S, peer: Peer, place: Place, shared: Shared)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Shared {
        router,
        plain: _,
        connections: _connections,
        mut stopping,
        mut closing,
    } = shared;
    let router = TowerToHyperService::new(router);
    let service = hyper::service::service_fn(|mut request: Request<Incoming>| {
        let extensions = request.extensions_mut();
        extensions.insert(peer);
        extensions.insert(place.link());
        let answer = router.call(request.map(Body::new));
        async move {
            let mut response = answer.await?;
            let request = response.extensions_mut().remove();
            Ok::<_, Infallible>(response.map(|body| Tracked::new(body, request)))
        }
    });
    let stream = TokioIo::new(Patient::new(stream, limits::WRITE_STALL_MAX));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::HEAD_TIME_MAX)
        .max_headers(limits::HEADERS_MAX)
        .max_buf_size(limits::HEAD_BYTES_MAX)
        .serve_connection(stream, service);
    tokio::pin!(connection);
    let outcome = tokio::select! {
        outcome = &mut connection => outcome,
        () = place.taken() => return,
        () = stopped(&mut stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = stopped(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            let ended = tokio::time::timeout(limits::CHANGE_TIME_MAX, connection.as_mut());
            tokio::select! {
                outcome = ended => match outcome {
                    Ok(outcome) => outcome,
                    Err(_) => return,
                },
                () = stopped(&mut stopping) => connection.await,
            }
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%peer, %error, "a connection broke off");
    }
}

/// The body of an answer; its request keeps what it holds until that has been sent.
#[derive(Debug)]
struct Tracked {
    body: Body,
    _request: Option<Arc<Placed>>,
}

impl Tracked {
    /// Of this request.
    const fn new(body: Body, request: Option<Arc<Placed>>) -> Self {
        Self {
            body,
            _request: request,
        }
    }
}

impl hyper::body::Body for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
