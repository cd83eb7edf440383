//! TCP connections to those who have the data of stores.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use rustix::net::sockopt;

/// For one address to accept.
const CONNECT_MAX: Duration = Duration::from_secs(4);
/// A peer that acknowledges nothing for so long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// When an idle connection is tried.
const IDLE_MAX: Duration = Duration::from_secs(15);

/// Resolves and connects. Blocks.
pub(crate) fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_MAX) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                sockopt::set_socket_keepalive(&stream, true)?;
                sockopt::set_tcp_keepidle(&stream, IDLE_MAX)?;
                sockopt::set_tcp_keepintvl(&stream, IDLE_MAX / 3)?;
                let silence_ms = u32::try_from(SILENCE_MAX.as_millis());
                sockopt::set_tcp_user_timeout(&stream, silence_ms.unwrap_or(u32::MAX))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Whether the other end is one of these sockets of this very program, by whatever name.
pub(crate) fn is_own(stream: &TcpStream, own: &[SocketAddr]) -> io::Result<bool> {
    let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
    let is_at = |one: &SocketAddr| {
        let ip = one.ip();
        one.port() == peer.port() && (ip.is_unspecified() || ip == peer.ip())
    };
    // Who connects to an address of this machine comes from the same one.
    Ok(peer.ip() == local.ip() && own.iter().any(is_at))
}
