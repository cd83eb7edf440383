//! Sockets that a service manager has bound and passes on: a program without any right listens at a port
//! below 1024 this way.
//!
//! Spec: sd_listen_fds(3).
#![expect(unsafe_code, reason = "descriptors come as numbers")]

use std::ffi::OsStr;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::{env, io};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, sockopt};

/// The first descriptor that is passed on.
const FIRST: RawFd = 3;

/// Most sockets that are taken over; a target has few portals.
const SOCKETS_MAX: RawFd = 256;

/// Sockets that were passed on and listen, for TCP connections or as unix sockets.
#[derive(Debug, Default)]
pub struct Inherited {
    tcp: Vec<(SocketAddr, TcpListener)>,
    unix: Vec<(PathBuf, UnixListener)>,
}

impl Inherited {
    /// Takes over what this process was started with. To be called once, before anything is opened.
    ///
    /// # Errors
    ///
    /// A descriptor that is none, or no socket that listens.
    pub fn take() -> io::Result<Self> {
        let mut inherited = Self::default();
        let (count, pid) = (env::var_os("LISTEN_FDS"), env::var_os("LISTEN_PID"));
        for descriptor in passed(count.as_deref(), pid.as_deref(), std::process::id()) {
            inherited.add(take_one(descriptor)?)?;
        }
        Ok(inherited)
    }

    fn add(&mut self, socket: OwnedFd) -> io::Result<()> {
        if rustix::net::getsockname(&socket)?.address_family() != AddressFamily::UNIX {
            let listener = TcpListener::from(socket);
            self.tcp.push((listener.local_addr()?, listener));
            return Ok(());
        }
        let listener = UnixListener::from(socket);
        let address = listener.local_addr()?;
        let path = address.as_pathname();
        let path = path.ok_or_else(|| io::Error::other("a unix socket without a path"))?;
        self.unix.push((path.to_owned(), listener));
        Ok(())
    }

    /// The addresses of those for TCP.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.tcp.iter().map(|(address, _)| *address)
    }

    /// The paths of those that are unix sockets.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.unix.iter().map(|(path, _)| path.as_path())
    }

    /// The unix socket of this path. It is kept, for a place that goes and comes back.
    ///
    /// # Errors
    ///
    /// There are no descriptors left.
    pub fn at_path(&self, path: &Path) -> io::Result<Option<UnixListener>> {
        let found = self.unix.iter().find(|(bound, _)| bound == path);
        found.map(|(_, listener)| listener.try_clone()).transpose()
    }

    /// Whether a unix socket was passed on that listens at a path.
    pub fn has_path(&self, path: &Path) -> bool {
        self.unix.iter().any(|(bound, _)| bound == path)
    }

    /// The socket that listens there. It is kept, for a portal that goes and comes back.
    ///
    /// # Errors
    ///
    /// There are no descriptors left.
    pub fn at(&self, address: SocketAddr) -> io::Result<Option<TcpListener>> {
        let found = self.tcp.iter().find(|(bound, _)| *bound == address);
        found.map(|(_, listener)| listener.try_clone()).transpose()
    }
}

/// The descriptors that are meant for this process.
fn passed(count: Option<&OsStr>, meant_for: Option<&OsStr>, pid: u32) -> std::ops::Range<RawFd> {
    let number = |text: Option<&OsStr>| text?.to_str()?.parse::<u32>().ok();
    let count = number(count).filter(|_| number(meant_for) == Some(pid));
    let count = count.and_then(|count| RawFd::try_from(count).ok());
    FIRST..FIRST + count.unwrap_or(0).min(SOCKETS_MAX)
}

fn take_one(descriptor: RawFd) -> io::Result<OwnedFd> {
    let other = |what| io::Error::other(format!("descriptor {descriptor} {what}"));
    // SAFETY: the descriptor is only asked what it is, and nothing closes it meanwhile: who started
    // this process has opened it for us, and `take` runs before anything else is opened.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    fcntl_setfd(borrowed, FdFlags::CLOEXEC).map_err(|_| other("is not open"))?;
    let is_listening = sockopt::socket_acceptconn(borrowed).unwrap_or(false);
    let address = rustix::net::getsockname(borrowed).ok();
    let is_known = address.is_some_and(|address| {
        address.address_family() == AddressFamily::UNIX || SocketAddr::try_from(address).is_ok()
    });
    if !(is_listening && is_known) {
        return Err(other(
            "is no socket that listens for TCP connections or on a path",
        ));
    }
    // SAFETY: it is open, as was seen just now, and by the protocol it is ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_meant_for_this_process_is_taken() {
        let passed = |count: &str, pid: &str| passed(Some(count.as_ref()), Some(pid.as_ref()), 42);
        assert_eq!(passed("2", "42"), 3..5);
        assert_eq!(passed("2", "43"), 3..3);
        assert_eq!(passed("x", "42"), 3..3);
        assert_eq!(passed("-1", "42"), 3..3);
        assert_eq!(passed("4294967295", "42"), 3..3);
        assert_eq!(passed("100000", "42"), 3..259);
        assert_eq!(super::passed(None, None, 42), 3..3);
    }

    #[test]
    fn a_socket_is_found_by_its_address_more_than_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut inherited = Inherited::default();
        inherited.add(listener.into()).unwrap();
        assert!(inherited.addresses().eq([address]));
        for _ in 0..2 {
            let found = inherited.at(address).unwrap().unwrap();
            assert_eq!(found.local_addr().unwrap(), address);
        }
        assert!(
            inherited
                .at("127.0.0.1:1".parse().unwrap())
                .unwrap()
                .is_none()
        );
    }
}
