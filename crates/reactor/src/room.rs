//! Room for a socket at an address that another socket of this process has yet.
//!
//! One address can become another of the same port, such as 127.0.0.1:3260 and 0.0.0.0:3260, without a moment in which
//! nobody listens and without a step that cannot be taken back: the new socket is bound while the old one is open, and
//! the old one is closed when the change is in force. The kernel allows that to sockets that both say so, so the old
//! one says so for the moment of the bind, and no longer: before and after it, another program that asks for the port
//! is refused. (The kernel remembers that such sockets had the port, and lets a socket of the same user have it that
//! asks for `SO_REUSEPORT`. A program of the same user could as well end this one.) A socket at a single address gets
//! what comes to it, also beside one at all addresses.
//!
//! An [`Occupant`] does not keep its socket open. One that is closed meanwhile is in nobody's way.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use rustix::io::Errno;
use rustix::net::sockopt;

/// A socket of this process, and where it is.
#[derive(Clone)]
pub struct Occupant {
    socket: Weak<dyn AsFd + Send + Sync>,
    address: SocketAddr,
}

impl Occupant {
    /// This socket, bound to this address.
    pub fn new<T: AsFd + Send + Sync + 'static>(socket: &Arc<T>, address: SocketAddr) -> Self {
        let socket = Arc::downgrade(socket);
        Self { socket, address }
    }

    /// Where it is.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it can make room: a socket that another user has made, such as one that the service manager has passed
    /// on, lets no socket of this user listen beside it.
    pub fn can_make_room(&self) -> bool {
        let user = rustix::process::geteuid().as_raw();
        let socket = self.socket.upgrade();
        let found = socket.and_then(|socket| rustix::fs::fstat(&*socket).ok());
        found.is_none_or(|found| found.st_uid == user)
    }

    /// Whether it takes an address, in part at least.
    pub fn takes(&self, address: SocketAddr) -> bool {
        let (own, other) = (self.address.ip(), address.ip());
        self.address.port() == address.port()
            && (own == other || own.is_unspecified() || other.is_unspecified())
    }
}

impl fmt::Debug for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// How sockets say that they make room.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Way {
    /// `SO_REUSEPORT`: the only way for sockets that listen.
    Port,
    /// `SO_REUSEADDR`, for datagrams, whose sockets share a port in the other way among themselves.
    Address,
}

impl Way {
    pub(crate) fn set(self, socket: impl AsFd, makes_room: bool) -> Result<(), Errno> {
        match self {
            Self::Port => sockopt::set_socket_reuseport(&socket, makes_room),
            Self::Address => sockopt::set_socket_reuseaddr(&socket, makes_room),
        }
    }
}

/// What this gives at an address. Where the address is in use, it is run again while those make room that leave; it is
/// told whether they do.
pub(crate) fn with_room<T>(
    address: SocketAddr,
    leaving: &[Occupant],
    way: Way,
    bind: impl Fn(bool) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let in_the_way = || leaving.iter().filter(|one| one.takes(address));
    let sockets = || in_the_way().filter_map(|one| one.socket.upgrade());
    let sockets: Vec<_> = match bind(false) {
        Err(Errno::ADDRINUSE) => sockets().collect(),
        bound => return bound,
    };
    if sockets.is_empty() {
        return Err(Errno::ADDRINUSE);
    }
    let set = |makes_room| {
        let mut sockets = sockets.iter();
        sockets.try_for_each(|socket| way.set(&**socket, makes_room))
    };
    let bound = set(true).and_then(|()| bind(true));
    // An option that could be set can be unset.
    set(false).and(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_by_the_same_one_and_by_all_of_its_port() {
        let socket = Arc::new(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        for (own, other, expected) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "127.0.0.1:2", false),
            ("127.0.0.1:1", "127.0.0.2:1", false),
            ("0.0.0.0:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "[::]:1", true),
            ("0.0.0.0:1", "[::]:2", false),
        ] {
            let occupant = Occupant::new(&socket, own.parse().unwrap());
            assert_eq!(occupant.address(), own.parse().unwrap());
            assert_eq!(
                occupant.takes(other.parse().unwrap()),
                expected,
                "{own} {other}"
            );
            assert!(occupant.can_make_room());
        }
    }

    #[test]
    fn a_bind_is_tried_again_only_where_a_socket_in_the_way_makes_room() {
        let socket = Arc::new(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let address = socket.local_addr().unwrap();
        let (here, elsewhere) = (
            Occupant::new(&socket, address),
            Occupant::new(&socket, "127.0.0.1:1".parse().unwrap()),
        );
        let makes_room = || sockopt::socket_reuseaddr(&*socket).unwrap();
        let with = |leaving: &[Occupant], answers: [Result<(), Errno>; 2]| {
            let tried = std::cell::RefCell::new(Vec::new());
            let bound = with_room(address, leaving, Way::Address, |again| {
                assert_eq!(makes_room(), again);
                tried.borrow_mut().push(again);
                answers[usize::from(again)]
            });
            assert!(!makes_room(), "for the moment of the bind");
            (bound, tried.into_inner().len())
        };
        let (used, denied) = (Err(Errno::ADDRINUSE), Err(Errno::ACCESS));
        let leaving = [elsewhere.clone(), here];
        assert_eq!(with(&leaving, [Ok(()), denied]), (Ok(()), 1));
        assert_eq!(with(&leaving, [denied, Ok(())]), (denied, 1));
        assert_eq!(with(&leaving, [used, Ok(())]), (Ok(()), 2));
        assert_eq!(with(&leaving, [used, denied]), (denied, 2));
        assert_eq!(with(&[elsewhere], [used, Ok(())]), (used, 1));
    }
}
