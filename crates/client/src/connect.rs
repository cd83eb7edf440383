//! From an endpoint to a connection that speaks HTTP.

use std::io::{self, ErrorKind};
use std::path::Path;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{ClientError, Endpoint, Remote};

/// What sends a request over a connection.
type Sender = SendRequest<Full<Bytes>>;

/// Connects. The connection is driven by the runtime and ends with the sender or with the answer,
/// whichever lives longer.
pub(crate) async fn connect(endpoint: &Endpoint) -> Result<Sender, ClientError> {
    match endpoint {
        Endpoint::Socket(path) => {
            let stream = UnixStream::connect(path).await;
            let stream = stream.map_err(|source| of_socket(path, source))?;
            speak(endpoint, stream).await
        }
        Endpoint::Remote(remote) => speak(endpoint, secured(remote).await?).await,
    }
}

async fn secured(remote: &Remote) -> Result<TlsStream<TcpStream>, ClientError> {
    let unreachable = |source| ClientError::Unreachable {
        host: remote.host.clone(),
        port: remote.port,
        source,
    };
    let stream = TcpStream::connect((remote.host.as_str(), remote.port))
        .await
        .map_err(unreachable)?;
    TlsConnector::from(remote.tls.clone())
        .connect(remote.name.clone(), stream)
        .await
        .map_err(|source| ClientError::Untrusted {
            host: remote.host.clone(),
            source,
        })
}

async fn speak<S>(endpoint: &Endpoint, stream: S) -> Result<Sender, ClientError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) =
        handshake(TokioIo::new(stream))
            .await
            .map_err(|source| ClientError::Broken {
                peer: endpoint.to_string(),
                source: source.into(),
            })?;
    // Its errors are reported to the caller that waits for the answer.
    tokio::spawn(async { drop(connection.await) });
    Ok(sender)
}

/// The one table from what the system says about a socket to what is the matter.
fn of_socket(path: &Path, source: io::Error) -> ClientError {
    let path = path.to_owned();
    let kind = source.kind();
    if kind == ErrorKind::NotFound {
        ClientError::NoSocket { path }
    } else if kind == ErrorKind::ConnectionRefused {
        ClientError::NobodyListens { path }
    } else if kind == ErrorKind::PermissionDenied {
        ClientError::SocketDenied { path }
    } else {
        ClientError::Socket { path, source }
    }
}
