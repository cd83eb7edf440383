//! The place of an export: a server and the name that the server has for the data.
//!
//! Spec: the NBD URI specification (`nbd://`, `nbds://`, `nbd+unix://`).

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use super::escape::{Escapes, escape, unescape};
use super::rule::StoreRule;
use crate::{HostPort, is_host};

/// The port of NBD.
const PORT: u16 = 10809;
/// Longest name of an export in bytes.
///
/// Spec: the NBD protocol, conventions: strings.
const NAME_BYTES_MAX: usize = 4096;
/// What has a meaning of its own in the name of an export.
const IN_NAME: Escapes = &[('%', "25"), ('?', "3F")];
/// The same in a path that is the value of an option.
const IN_OPTION: Escapes = &[('%', "25"), ('&', "26")];

/// What a server exports under a name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Export {
    server: ServerAddress,
    name: String,
    /// Both in their one form.
    text: String,
}

/// Where a server listens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ServerAddress {
    /// On a TCP port.
    Tcp(HostPort),
    /// On a socket of this machine.
    Unix(PathBuf),
}

impl Export {
    /// Reads `//HOST[:PORT][/EXPORT]`, or gives what is wrong with it.
    pub(super) fn of_server(place: &str) -> Result<Self, &'static str> {
        let rest = place
            .strip_prefix("//")
            .ok_or("has no // before its server")?;
        let (authority, name) = rest.split_once('/').unwrap_or((rest, ""));
        Self::new(ServerAddress::Tcp(host_port(authority, PORT)?), name)
    }

    /// Reads `//[/EXPORT]`, or gives what is wrong with it. The socket is an option.
    pub(super) fn of_socket(place: &str) -> Result<Self, &'static str> {
        let rest = place.strip_prefix("//").ok_or("has no //")?;
        match rest.split_once('/') {
            Some(("", name)) => Self::new(ServerAddress::Unix(PathBuf::new()), name),
            None if rest.is_empty() => Self::new(ServerAddress::Unix(PathBuf::new()), ""),
            Some(_) | None => Err("names a host, which a unix socket does not have"),
        }
    }

    fn new(server: ServerAddress, name: &str) -> Result<Self, &'static str> {
        let name = unescape(name, IN_NAME);
        if name.contains('\0') {
            return Err("has a NUL character in the name of its export");
        }
        if name.len() > NAME_BYTES_MAX {
            return Err("has a name of an export longer than 4096 bytes");
        }
        let text = String::new();
        let mut export = Self { server, name, text };
        export.set_text();
        Ok(export)
    }

    fn set_text(&mut self) {
        self.text = self.before_options();
        if let Some(socket) = self.socket() {
            self.text = format!("{}?socket={socket}", self.text);
        }
    }

    /// Where the server is.
    pub const fn server(&self) -> &ServerAddress {
        &self.server
    }

    /// What the server calls it; empty for the server's default.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Server and name in their one form: what distinguishes one export from another.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// What stands before the question mark.
    pub(super) fn before_options(&self) -> String {
        let name = escape(&self.name, IN_NAME);
        match &self.server {
            ServerAddress::Tcp(server) if name.is_empty() => format!("//{server}"),
            ServerAddress::Tcp(server) => format!("//{server}/{name}"),
            ServerAddress::Unix(_) => format!("///{name}"),
        }
    }

    /// The socket as the value of an option.
    pub(super) fn socket(&self) -> Option<String> {
        match &self.server {
            ServerAddress::Tcp(_) => None,
            ServerAddress::Unix(path) => Some(option_of_path(path)),
        }
    }

    /// The server listens on this socket.
    pub(super) fn set_socket(&mut self, socket: PathBuf) {
        self.server = ServerAddress::Unix(socket);
        self.set_text();
    }

    /// Makes a relative path of a socket one below `directory`.
    pub(super) fn below(&mut self, directory: &Path) {
        if let ServerAddress::Unix(socket) = &self.server {
            self.set_socket(directory.join(socket).components().collect());
        }
    }
}

impl fmt::Display for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reads `HOST[:PORT]`, or gives what is wrong with it.
pub(super) fn host_port(authority: &str, port_default: u16) -> Result<HostPort, &'static str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest
                .split_once(']')
                .ok_or("has a bracket that is not closed")?;
            let address: Ipv6Addr = host
                .parse()
                .map_err(|_| "has no IPv6 address in its brackets")?;
            let port = match behind {
                "" => None,
                behind => Some(
                    behind
                        .strip_prefix(':')
                        .ok_or("has something other than a port behind its brackets")?,
                ),
            };
            (address.to_string(), port)
        }
        None => {
            let (host, port) = match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            };
            if host.is_empty() && port.is_none() {
                return Err("names no server");
            }
            if !is_host(host) || port.is_some_and(|port| port.contains(':')) {
                return Err("has a server that is no name or address (IPv6 in brackets)");
            }
            (host.to_ascii_lowercase(), port)
        }
    };
    let port = match port {
        None => port_default,
        Some(port) => port
            .parse()
            .ok()
            .filter(|&number: &u16| number != 0 && !port.starts_with('+'))
            .ok_or("has a port that is no number from 1 to 65535")?,
    };
    // Each address has one form.
    let host = host
        .parse::<IpAddr>()
        .map_or(host, |address| address.to_string());
    Ok(HostPort { host, port })
}

/// A path as the value of an option.
pub(super) fn option_of_path(path: &Path) -> String {
    escape(&path.display().to_string(), IN_OPTION)
}

/// The path that is the value of an option.
pub(super) fn path_of_option(option: &'static str, value: &str) -> Result<PathBuf, StoreRule> {
    if value.is_empty() || value.contains('\0') {
        return Err(StoreRule::OptionValue {
            option,
            value: value.to_owned(),
            wanted: "a path".to_owned(),
        });
    }
    Ok(PathBuf::from(unescape(value, IN_OPTION)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_server_has_one_text() {
        for (place, text) in [
            ("//host", "//host:10809"),
            ("//HOST/", "//host:10809"),
            ("//host:1/a", "//host:1/a"),
            ("//host//srv/a:b", "//host:10809//srv/a:b"),
            ("//192.0.2.1:10809/x", "//192.0.2.1:10809/x"),
            ("//[::1]", "//[::1]:10809"),
            ("//[2001:DB8:0::1]:7/x", "//[2001:db8::1]:7/x"),
            ("//host/a%3Fb%25%2F", "//host:10809/a%3Fb%25%252F"),
        ] {
            let export = Export::of_server(place).unwrap();
            assert_eq!(export.text(), text, "{place}");
            assert_eq!(Export::of_server(text).as_ref(), Ok(&export), "{place}");
        }
        assert_eq!(Export::of_server("//h/a%3Fb%25").unwrap().name(), "a?b%");
    }

    #[test]
    fn what_is_no_server_says_what_is_wrong() {
        let long = format!("//h/{}", "a".repeat(4097));
        for (place, problem) in [
            ("host", "has no // before its server"),
            ("/host", "has no // before its server"),
            ("//", "names no server"),
            ("///a", "names no server"),
            ("//:1", "no name or address"),
            ("//a b", "no name or address"),
            ("//::1", "no name or address"),
            ("//fe80::1:10809/x", "no name or address"),
            ("//[::1", "a bracket that is not closed"),
            ("//[192.0.2.1]", "no IPv6 address in its brackets"),
            ("//[::1]1", "something other than a port"),
            ("//h:0", "a port that is no number from 1 to 65535"),
            ("//h:+1", "a port that is no number from 1 to 65535"),
            ("//h:65536", "a port that is no number from 1 to 65535"),
            ("//h:", "a port that is no number from 1 to 65535"),
            ("//h/a\0", "has a NUL character"),
            (&long, "longer than 4096 bytes"),
        ] {
            let got = Export::of_server(place).unwrap_err();
            assert!(got.contains(problem), "{place:?}: {got}");
        }
        assert!(Export::of_server(&long[..long.len() - 1]).is_ok());
        assert!(Export::of_server("//h:65535").is_ok());
        for (place, problem) in [
            ("", "has no //"),
            ("//h/a", "names a host"),
            ("//h", "names a host"),
        ] {
            let got = Export::of_socket(place).unwrap_err();
            assert!(got.contains(problem), "{place:?}: {got}");
        }
        assert_eq!(Export::of_socket("//"), Export::of_socket("///"));
    }
}
