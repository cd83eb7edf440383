//! Who is at the other end, and whether a browser was led here by another site.

use std::net::SocketAddr;

use api::problem::{Problem, ProblemKind};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, header};

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    /// A process of root or of the daemon's own user.
    Unix {
        /// Its user.
        uid: u32,
    },
    /// Anybody.
    Tcp {
        /// Where it comes from.
        address: SocketAddr,
        /// The address it came to.
        local: SocketAddr,
        /// Nobody reads along.
        is_tls: bool,
    },
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix { .. } => f.write_str("the socket"),
            Self::Tcp { address, .. } => write!(f, "{}", address.ip().to_canonical()),
        }
    }
}

/// Checks that the request is meant for this server and, from a browser, made by its own console: a
/// foreign site that makes its name lead here (DNS rebinding) sends its own name as Host, one that
/// sends requests here its own as Origin.
///
/// # Errors
///
/// It is not.
pub(crate) fn check_site(
    peer: &Peer,
    headers: &HeaderMap,
    names: &[String],
) -> Result<(), Problem> {
    let Peer::Tcp { local, is_tls, .. } = peer else {
        // No browser reaches the socket.
        return Ok(());
    };
    let host = only(headers, header::HOST).unwrap_or_default();
    if !is_own_name(host, *local, names) {
        return Err(Problem::new(
            ProblemKind::Forbidden,
            format!(
                "Host {host:?} is no name of this server; reach it by its address, or give it the \
                 name with admin.names"
            ),
        ));
    }
    let scheme = if *is_tls { "https" } else { "http" };
    let own = format!("{scheme}://{host}");
    let is_own = |origin: &str| origin.eq_ignore_ascii_case(&own);
    let is_foreign =
        headers.contains_key(header::ORIGIN) && !only(headers, header::ORIGIN).is_some_and(is_own);
    if is_foreign {
        return Err(Problem::new(
            ProblemKind::Forbidden,
            format!("the request comes from another site than {own}"),
        ));
    }
    Ok(())
}

/// The value of a field that may stand there once.
fn only(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}

fn is_own_name(host: &str, local: SocketAddr, names: &[String]) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    let name = authority.host();
    if host.contains('@') {
        return false;
    }
    let local = local.ip().to_canonical();
    let literal = name.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = literal.parse::<std::net::IpAddr>() {
        return address.to_canonical() == local;
    }
    (name.eq_ignore_ascii_case("localhost") && local.is_loopback())
        || names.iter().any(|own| own.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(local: &str, is_tls: bool) -> Peer {
        Peer::Tcp {
            address: "192.0.2.9:5000".parse().unwrap(),
            local: local.parse().unwrap(),
            is_tls,
        }
    }

    fn headers(fields: &[(header::HeaderName, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn a_host_is_an_address_of_the_server_or_one_of_its_names() {
        let names = ["san.example".to_owned()];
        for (local, host, is_good) in [
            ("127.0.0.1:3500", "127.0.0.1:3500", true),
            ("127.0.0.1:3500", "localhost:3500", true),
            ("192.0.2.1:443", "localhost", false),
            ("192.0.2.1:443", "192.0.2.1", true),
            ("192.0.2.1:443", "192.0.2.2", false),
            ("[::1]:3500", "[::1]:3500", true),
            ("[::ffff:192.0.2.1]:443", "192.0.2.1", true),
            ("192.0.2.1:443", "SAN.example", true),
            ("192.0.2.1:443", "evil.example", false),
            ("192.0.2.1:443", "san.example.evil.example", false),
            ("192.0.2.1:443", "evil@192.0.2.1", false),
            ("192.0.2.1:443", "", false),
        ] {
            let fields = headers(&[(header::HOST, host)]);
            let outcome = check_site(&tcp(local, true), &fields, &names);
            assert_eq!(outcome.is_ok(), is_good, "{local} {host}");
        }
        let twice = headers(&[(header::HOST, "127.0.0.1"), (header::HOST, "evil.example")]);
        assert!(check_site(&tcp("127.0.0.1:1", true), &twice, &names).is_err());
        assert!(check_site(&tcp("127.0.0.1:1", true), &HeaderMap::new(), &names).is_err());
    }

    #[test]
    fn an_origin_is_the_server_itself() {
        for (origin, is_tls, is_good) in [
            ("http://127.0.0.1:3500", false, true),
            ("https://127.0.0.1:3500", true, true),
            ("http://127.0.0.1:3500", true, false),
            ("http://127.0.0.1:3501", false, false),
            ("http://evil.example", false, false),
            ("null", false, false),
        ] {
            let fields = headers(&[(header::HOST, "127.0.0.1:3500"), (header::ORIGIN, origin)]);
            let outcome = check_site(&tcp("127.0.0.1:3500", is_tls), &fields, &[]);
            assert_eq!(outcome.is_ok(), is_good, "{origin} {is_tls}");
        }
    }

    #[test]
    fn the_socket_asks_for_no_name() {
        let outcome = check_site(&Peer::Unix { uid: 0 }, &HeaderMap::new(), &[]);
        assert!(outcome.is_ok());
    }
}
