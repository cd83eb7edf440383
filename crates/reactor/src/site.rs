//! The sockets of a place where datagrams come in: one for each core, and the kernel gives each datagram to the core of
//! its sender.
//!
//! The core of a sender is a number of 32 bits, the last of its IP address or MAC address, modulo the cores. UDP
//! sockets share their port (`SO_REUSEPORT`), and a program of the kernel says which of them gets a datagram;
//! broadcasts come to all of them. Sockets of a link have a filter each, which takes what is for its core: unlike those
//! of a fanout group, they can be bound once more, to an interface that has come back. Only making them needs a right
//! (CAP_NET_RAW), which a process gives up when it serves: so each stays open, and serves again at the same interface
//! when nobody uses it any more. The filter takes frames
//! of one type and cannot be changed any more: bound to all types, the socket still gives no other frames.

use std::ffi::{c_int, c_ulong};
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, sockopt};

use crate::DatagramSocket;
use crate::filter;
use crate::net::BindError;
use crate::room::{self, Occupant, Way};

/// Room for datagrams that a core has not taken yet, in bytes; the system may give less.
const RECEIVE_BYTES: usize = 4 << 20;

/// Datagrams are sent whole or not at all: a fragment of one that is lost would make all of it useless.
///
/// Spec: ip(7), IP_PMTUDISC_PROBE.
const NEVER_CUT: c_int = 3;

/// Why an interface cannot be used. Each message names the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterfaceError {
    /// `EPERM`.
    #[error(
        "frames of interface {name} are not allowed to this user: grant CAP_NET_RAW (AmbientCapabilities= in a service \
         file) and restart Tarn, which needs it when it starts"
    )]
    Denied {
        /// What was asked for.
        name: Arc<str>,
    },
    /// `ENODEV`.
    #[error("there is no network interface {name}: see `ip link`")]
    Missing {
        /// What was asked for.
        name: Arc<str>,
    },
    /// `ENETDOWN`.
    #[error("network interface {name} is down: run `ip link set {name} up`")]
    Down {
        /// What was asked for.
        name: Arc<str>,
    },
    /// Anything else.
    #[error("cannot use network interface {name}")]
    Other {
        /// What was asked for.
        name: Arc<str>,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// A network interface, by its name.
#[derive(Clone, Debug)]
pub struct Interface {
    name: Arc<str>,
    /// The type of its frames that are received.
    protocol: u16,
}

/// An interface as it is now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InterfaceState {
    /// Its index; another one when it comes back.
    pub index: i32,
    /// What a frame carries behind its Ethernet header, in bytes.
    pub mtu: u32,
    /// Its address.
    pub hardware: [u8; 6],
}

/// Whether sockets of an interface can be had without the right to make them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeptSockets {
    /// This process has made them, and nobody uses them.
    Free,
    /// It has made them, and somebody uses them, or has just given them up.
    InUse,
    /// It never made as many.
    None,
}

/// A socket of frames that this process has made.
struct Made {
    interface: Interface,
    part: (usize, usize),
    filtered: Filtered,
    /// Nobody uses it where this is the only owner.
    fd: Arc<OwnedFd>,
}

impl Made {
    fn is_for(&self, interface: &Interface, part: (usize, usize), filtered: Filtered) -> bool {
        let is_same =
            self.interface.name == interface.name && self.interface.protocol == interface.protocol;
        is_same && self.part == part && self.filtered == filtered
    }

    fn is_free(&self) -> bool {
        Arc::strong_count(&self.fd) == 1
    }
}

/// All sockets of frames that this process has made. They are as many as were in use at once.
static MADE: Mutex<Vec<Made>> = Mutex::new(Vec::new());

/// Most frames that are dropped when a socket serves again: more than it has room for.
const LEFT_MAX: usize = RECEIVE_BYTES / 64;

/// The sockets of a place, in the order of the cores.
#[derive(Debug)]
pub struct Site {
    sockets: Vec<Arc<OwnedFd>>,
    address: Option<SocketAddr>,
    interface: Option<Interface>,
}

/// The socket of one core, on its way there.
#[derive(Debug)]
pub struct SiteSocket {
    fd: Arc<OwnedFd>,
    /// Of a link.
    pub interface: Option<Interface>,
}

impl SiteSocket {
    /// The socket, on its core.
    ///
    /// # Errors
    ///
    /// The system does not let it be changed.
    pub fn open(self) -> io::Result<DatagramSocket> {
        DatagramSocket::new(self.fd)
    }
}

impl Site {
    /// UDP sockets at `address`; port 0 takes a free one. An IPv6 wildcard takes nothing of IPv4. Sockets of this
    /// process that are to be closed may have the port yet.
    ///
    /// # Errors
    ///
    /// The address cannot be listened on.
    pub fn udp(address: SocketAddr, cores: usize, leaving: &[Occupant]) -> Result<Self, BindError> {
        let cores = cores.max(1);
        let made = room::with_room(address, leaving, Way::Address, |makes_room| {
            Self::try_udp(address, cores, makes_room)
        });
        made.map_err(|errno| BindError::new(address, errno))
    }

    fn try_udp(address: SocketAddr, cores: usize, makes_room: bool) -> Result<Self, Errno> {
        if cores > 1 && address.port() != 0 {
            // Sockets that share a port would share it with another program of this user, too.
            drop(udp_socket(address, false, makes_room)?);
        }
        let first = udp_socket(address, cores > 1, makes_room)?;
        let address = SocketAddr::try_from(rustix::net::getsockname(&first)?)?;
        let mut sockets = vec![first];
        for _ in 1..cores {
            sockets.push(udp_socket(address, true, makes_room)?);
        }
        if let ([first, _, ..], Ok(count)) = (&sockets[..], u32::try_from(cores)) {
            filter::share_port(first.as_fd(), address, count)?;
        }
        Ok(Self {
            sockets: sockets.into_iter().map(Arc::new).collect(),
            address: Some(address),
            interface: None,
        })
    }

    /// Sockets for frames of this type that come in at an interface. They need CAP_NET_RAW now, or [`KeptSockets`], and
    /// no right later.
    ///
    /// # Errors
    ///
    /// There is no such interface, or no right.
    pub fn interface(name: &str, protocol: u16, cores: usize) -> Result<Self, InterfaceError> {
        let interface = Interface::new(name, protocol);
        let explain = |source: io::Error| interface.explain(source);
        let count = cores.max(1);
        let sockets = (0..count).map(|core| interface.socket((core, count), Filtered::ForEver));
        let sockets: Vec<Arc<OwnedFd>> = sockets.collect::<Result<_, _>>()?;
        if let Some(socket) = sockets.first() {
            interface.state(socket.as_fd()).map_err(explain)?;
        }
        Ok(Self {
            sockets,
            address: None,
            interface: Some(interface),
        })
    }

    /// Whether [`Site::interface`] can do without CAP_NET_RAW.
    pub fn kept_sockets(name: &str, protocol: u16, cores: usize) -> KeptSockets {
        let (interface, count) = (Interface::new(name, protocol), cores.max(1));
        let parts = (0..count).map(|core| interface.kept((core, count), Filtered::ForEver));
        parts.fold(KeptSockets::Free, |all, one| match (all, one) {
            (KeptSockets::None, _) | (_, KeptSockets::None) => KeptSockets::None,
            (KeptSockets::InUse, _) | (_, KeptSockets::InUse) => KeptSockets::InUse,
            (KeptSockets::Free, KeptSockets::Free) => KeptSockets::Free,
        })
    }

    /// What is in the way of others at its address.
    pub fn occupants(&self) -> Vec<Occupant> {
        let sockets = self.address.map(|address| {
            let sockets = self.sockets.iter();
            sockets.map(move |fd| Occupant::new(fd, address))
        });
        sockets.into_iter().flatten().collect()
    }

    /// Where UDP sockets are, with the port that the system chose.
    pub const fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// One for each core.
    pub fn into_sockets(self) -> impl Iterator<Item = SiteSocket> {
        let interface = self.interface;
        self.sockets.into_iter().map(move |fd| SiteSocket {
            fd,
            interface: interface.clone(),
        })
    }
}

impl Interface {
    /// Of this name, with frames of this type. Nothing is looked at.
    pub(crate) fn new(name: &str, protocol: u16) -> Self {
        Self {
            name: name.into(),
            protocol,
        }
    }

    /// The interface of this name as it is now, without its address. Takes no right.
    ///
    /// # Errors
    ///
    /// It is not there, or down.
    pub fn look(name: &str) -> Result<InterfaceState, InterfaceError> {
        let interface = Self::new(name, 0);
        let any = |family| rustix::net::socket(family, SocketType::DGRAM, None);
        let any = any(AddressFamily::INET).or_else(|_| any(AddressFamily::UNIX));
        let state = any.map_err(io::Error::from);
        let state = state.and_then(|socket| interface.state(socket.as_fd()));
        state.map_err(|error| interface.explain(error))
    }

    /// A socket that receives what is for this core of so many when it is bound. One that nobody uses any more is still
    /// bound; what has come in there meanwhile is dropped.
    pub(crate) fn socket(
        &self,
        part: (usize, usize),
        filtered: Filtered,
    ) -> Result<Arc<OwnedFd>, InterfaceError> {
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = made.iter();
        let free = known.find(|one| one.is_for(self, part, filtered) && one.is_free());
        let outcome = match free {
            Some(free) => self.use_again(free).map(|()| Arc::clone(&free.fd)),
            None => self.make(part, filtered).map(|fd| {
                let fd = Arc::new(fd);
                made.push(Made {
                    interface: self.clone(),
                    part,
                    filtered,
                    fd: Arc::clone(&fd),
                });
                fd
            }),
        };
        outcome.map_err(|errno| self.explain(errno.into()))
    }

    fn make(&self, part: (usize, usize), filtered: Filtered) -> Result<OwnedFd, Errno> {
        let fd = filter::link_socket()?;
        filter::filter_core(fd.as_fd(), self.protocol, numbers(part)?)?;
        if filtered == Filtered::ForEver {
            filter::lock_filter(fd.as_fd())?;
        }
        sockopt::set_socket_recv_buffer_size(&fd, RECEIVE_BYTES)?;
        Ok(fd)
    }

    fn use_again(&self, free: &Made) -> Result<(), Errno> {
        if free.filtered == Filtered::Now {
            filter::filter_core(free.fd.as_fd(), self.protocol, numbers(free.part)?)?;
        }
        let mut byte = [0];
        // An interface that has gone is reported once.
        let mut left =
            (0..LEFT_MAX).map(|_| rustix::net::recv(&*free.fd, &mut byte, RecvFlags::DONTWAIT));
        let _emptied = left.find(|received| matches!(received, Err(Errno::AGAIN)));
        Ok(())
    }

    /// Whether [`Interface::socket`] can do without the right.
    pub(crate) fn kept(&self, part: (usize, usize), filtered: Filtered) -> KeptSockets {
        let made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = made
            .iter()
            .filter(|one| one.is_for(self, part, filtered))
            .peekable();
        match known.peek().is_some() {
            true if known.any(Made::is_free) => KeptSockets::Free,
            true => KeptSockets::InUse,
            false => KeptSockets::None,
        }
    }

    /// What an error of the system means.
    pub(crate) fn explain(&self, source: io::Error) -> InterfaceError {
        let name = Arc::clone(&self.name);
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => InterfaceError::Denied { name },
            Some(libc::ENODEV | libc::ENXIO) => InterfaceError::Missing { name },
            Some(libc::ENETDOWN) => InterfaceError::Down { name },
            _ => InterfaceError::Other { name, source },
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of its frames that are received.
    pub const fn protocol(&self) -> u16 {
        self.protocol
    }

    /// Has the socket receive what comes in there, again if it did already.
    ///
    /// # Errors
    ///
    /// It is not there, or down.
    pub fn bind(&self, socket: &DatagramSocket) -> io::Result<InterfaceState> {
        self.bind_to(socket.as_fd())
    }

    /// The interface as it is now, where the socket has been bound to it; `None` where this is not known, or where it
    /// is another one by now. Its address is not looked at.
    pub fn look_at(&self, socket: &DatagramSocket, index: i32) -> Option<InterfaceState> {
        self.look_by(socket.as_fd(), index)
    }

    /// The same for any socket of frames.
    pub(crate) fn look_by(&self, fd: BorrowedFd<'_>, index: i32) -> Option<InterfaceState> {
        let state = self.state(fd).ok();
        state.filter(|state| state.index == index)
    }

    /// As [`Interface::bind`], for any socket of frames.
    pub(crate) fn bind_to(&self, fd: BorrowedFd<'_>) -> io::Result<InterfaceState> {
        let state = self.state(fd)?;
        // SAFETY: all zeros is a valid `sockaddr_ll`.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::sa_family_t::try_from(libc::AF_PACKET).unwrap_or_default();
        address.sll_protocol = self.protocol.to_be();
        address.sll_ifindex = state.index;
        let bytes = libc::socklen_t::try_from(size_of_val(&address)).unwrap_or_default();
        // SAFETY: the address is valid for so many bytes, and is only read.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), bytes) };
        if bound != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut bytes = bytes;
        // SAFETY: there is room for so many bytes, which the kernel writes.
        let named =
            unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut bytes) };
        if named != 0 {
            return Err(io::Error::last_os_error());
        }
        let hardware = address.sll_addr.first_chunk().copied().unwrap_or_default();
        Ok(InterfaceState { hardware, ..state })
    }

    /// As it is now.
    fn state(&self, socket: BorrowedFd<'_>) -> io::Result<InterfaceState> {
        // What stands in the union depends on the question.
        let index = self.ask(socket, libc::SIOCGIFINDEX)?;
        // SAFETY: the kernel has answered with a number.
        let index = unsafe { index.ifr_ifru.ifru_ifindex };
        let flags = self.ask(socket, libc::SIOCGIFFLAGS)?;
        // SAFETY: the kernel has answered with flags.
        let flags = unsafe { flags.ifr_ifru.ifru_flags };
        if c_int::from(flags) & libc::IFF_UP == 0 {
            return Err(io::Error::from_raw_os_error(libc::ENETDOWN));
        }
        let mtu = self.ask(socket, libc::SIOCGIFMTU)?;
        // SAFETY: the kernel has answered with a number.
        let mtu = unsafe { mtu.ifr_ifru.ifru_mtu };
        Ok(InterfaceState {
            index,
            mtu: u32::try_from(mtu).unwrap_or_default(),
            hardware: [0; 6],
        })
    }

    fn ask(&self, socket: BorrowedFd<'_>, question: c_ulong) -> io::Result<libc::ifreq> {
        // SAFETY: all zeros is a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        let room = request.ifr_name.len().saturating_sub(1);
        // The kernel would read the name up to a zero.
        let is_name = self.name.bytes().all(|byte| byte != 0 && byte != b'/');
        if self.name.is_empty() || self.name.len() > room || !is_name {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        for (place, byte) in request.ifr_name.iter_mut().zip(self.name.bytes()) {
            *place = libc::c_char::from_ne_bytes([byte]);
        }
        // An int in musl, a long elsewhere; the numbers have 16 bits.
        // SAFETY: these questions read and write one `ifreq`.
        let asked = unsafe { libc::ioctl(socket.as_raw_fd(), question as _, &raw mut request) };
        if asked == 0 {
            Ok(request)
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

/// A core of so many, as filters have them.
fn numbers((core, cores): (usize, usize)) -> Result<(u32, u32), Errno> {
    let number = |count: usize| u32::try_from(count).map_err(|_| Errno::INVAL);
    Ok((number(core)?, number(cores)?))
}

/// How long a filter stays.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Filtered {
    /// It can be replaced, which a process without any right may do.
    Now,
    /// As long as the socket.
    ForEver,
}

/// One that makes room does so until it is bound. A further socket of its site needs no room of it, as they share the
/// port.
fn udp_socket(address: SocketAddr, is_shared: bool, makes_room: bool) -> Result<OwnedFd, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let fd = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let (level, option) = match address {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
        SocketAddr::V6(_) => {
            sockopt::set_ipv6_v6only(&fd, true)?;
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER)
        }
    };
    filter::set_option(fd.as_fd(), (level, option), &NEVER_CUT)?;
    sockopt::set_socket_reuseport(&fd, is_shared)?;
    sockopt::set_socket_recv_buffer_size(&fd, RECEIVE_BYTES)?;
    if makes_room {
        Way::Address.set(&fd, true)?;
    }
    rustix::net::bind(&fd, &address)?;
    if makes_room {
        Way::Address.set(&fd, false)?;
    }
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use rustix::net::RecvFlags;

    use super::*;

    fn sockets(site: Site) -> Vec<UdpSocket> {
        let sockets = site
            .into_sockets()
            .map(|one| UdpSocket::from(one.fd.try_clone().unwrap()));
        sockets.collect()
    }

    #[test]
    fn a_datagram_comes_to_the_core_of_its_sender_whatever_the_port() {
        let site = Site::udp("127.0.0.1:0".parse().unwrap(), 3, &[]).unwrap();
        let address = site.address().unwrap();
        let sockets = sockets(site);
        for host in 1..=6_u8 {
            for _ in 0..4 {
                let client = UdpSocket::bind(SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
                client.send_to(&[host], address).unwrap();
                let number = u32::from_be_bytes([127, 0, 0, host]);
                let socket = &sockets[usize::try_from(number % 3).unwrap()];
                socket
                    .set_read_timeout(Some(Duration::from_secs(20)))
                    .unwrap();
                let mut byte = [0];
                let (_, from) = socket.recv_from(&mut byte).unwrap();
                assert_eq!((byte, from), ([host], client.local_addr().unwrap()));
            }
        }
    }

    #[test]
    fn a_port_in_use_is_not_shared_with_others() {
        let first = Site::udp("127.0.0.1:0".parse().unwrap(), 2, &[]).unwrap();
        let address = first.address().unwrap();
        for cores in [1, 2] {
            let error = Site::udp(address, cores, &[]).unwrap_err();
            assert!(matches!(error, BindError::InUse { .. }), "{error}");
        }
        drop(first);
        Site::udp(address, 2, &[]).unwrap();
    }

    #[test]
    fn all_addresses_of_a_port_are_had_beside_one_that_goes_and_not_beside_another_program() {
        for cores in [1, 2] {
            let first = Site::udp("127.0.0.1:0".parse().unwrap(), cores, &[]).unwrap();
            let all = SocketAddr::from(([0; 4], first.address().unwrap().port()));
            Site::udp(all, cores, &[]).unwrap_err();
            let going = first.occupants();
            let second = Site::udp(all, cores, &going).unwrap();
            UdpSocket::bind(all).unwrap_err();
            let one = first.address().unwrap();
            drop(first);
            Site::udp(one, cores, &[]).unwrap_err();
            Site::udp(one, cores, &second.occupants()).unwrap();
            let other = UdpSocket::bind("127.0.0.2:0").unwrap();
            let port = other.local_addr().unwrap().port();
            let own = Site::udp(SocketAddr::from(([127, 0, 0, 1], port)), cores, &[]).unwrap();
            let all = SocketAddr::from(([0; 4], port));
            Site::udp(all, cores, &own.occupants()).unwrap_err();
        }
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        for name in [
            "nowhere0",
            "",
            "a-name-that-is-longer-than-any",
            "lo\0",
            "lo/",
            "../lo",
            "lo\0nowhere",
        ] {
            match Site::interface(name, 0x889a, 2).unwrap_err() {
                InterfaceError::Missing { name: named } => assert_eq!(&*named, name),
                error @ InterfaceError::Denied { .. } => {
                    assert!(error.to_string().contains("CAP_NET_RAW"));
                    println!("skipped: no right to frames (CAP_NET_RAW)");
                }
                error @ (InterfaceError::Down { .. } | InterfaceError::Other { .. }) => {
                    panic!("{error}")
                }
            }
        }
    }

    #[test]
    fn what_the_system_says_of_an_interface_has_a_remedy() {
        let interface = Interface::new("eth9", 7);
        assert_eq!((interface.name(), interface.protocol()), ("eth9", 7));
        for (errno, expected) in [
            (libc::EPERM, "frames of interface eth9 are not allowed"),
            (libc::EACCES, "frames of interface eth9 are not allowed"),
            (libc::ENODEV, "there is no network interface eth9"),
            (libc::ENXIO, "there is no network interface eth9"),
            (libc::ENETDOWN, "network interface eth9 is down"),
            (libc::EIO, "cannot use network interface eth9"),
        ] {
            let error = interface.explain(io::Error::from_raw_os_error(errno));
            assert!(error.to_string().starts_with(expected), "{error}");
        }
        let state = Interface::look("lo").unwrap();
        assert!(state.index > 0 && state.mtu >= 1500, "{state:?}");
        let missing = Interface::look("nowhere0").unwrap_err();
        assert!(
            matches!(missing, InterfaceError::Missing { .. }),
            "{missing}"
        );
    }

    /// Sends a frame of this type on the loopback interface.
    fn send_frame(from: &OwnedFd, index: i32, protocol: u16) {
        // SAFETY: all zeros is a valid `sockaddr_ll`.
        let mut to: libc::sockaddr_ll = unsafe { mem::zeroed() };
        to.sll_family = libc::sa_family_t::try_from(libc::AF_PACKET).unwrap();
        to.sll_protocol = protocol.to_be();
        to.sll_ifindex = index;
        to.sll_halen = 6;
        let bytes = libc::socklen_t::try_from(size_of_val(&to)).unwrap();
        let (data, length) = (b"frame".as_ptr().cast(), 5);
        let to = (&raw const to).cast();
        // SAFETY: data and address are valid for so many bytes and are only read.
        let sent = unsafe { libc::sendto(from.as_raw_fd(), data, length, 0, to, bytes) };
        assert_eq!(sent, 5, "{}", io::Error::last_os_error());
    }

    /// One of the types for experiments, which nobody else uses here.
    const EXPERIMENT: u16 = 0x88b5;

    #[test]
    fn a_socket_that_nobody_uses_serves_again_at_its_interface() {
        let (name, protocol) = ("lo", EXPERIMENT + 1);
        let kept = |cores| Site::kept_sockets(name, protocol, cores);
        assert_eq!(kept(1), KeptSockets::None);
        let site = match Site::interface(name, protocol, 1) {
            Ok(site) => site,
            Err(error) => {
                println!("skipped: {error}");
                return;
            }
        };
        let first = Arc::as_ptr(&site.sockets[0]);
        assert_eq!((kept(1), kept(2)), (KeptSockets::InUse, KeptSockets::None));
        drop(site);
        assert_eq!(kept(1), KeptSockets::Free);
        let again = Site::interface(name, protocol, 1).unwrap();
        assert_eq!(Arc::as_ptr(&again.sockets[0]), first);
        let beside = Site::interface(name, protocol, 1).unwrap();
        assert_ne!(Arc::as_ptr(&beside.sockets[0]), first);
        assert_eq!(kept(1), KeptSockets::InUse);
    }

    #[test]
    fn a_socket_that_serves_again_has_nothing_of_before() {
        let interface = Interface::new("lo", EXPERIMENT + 2);
        let socket = || interface.socket((0, 1), Filtered::Now);
        let first = match socket() {
            Ok(first) => first,
            Err(error) => {
                println!("skipped: {error}");
                return;
            }
        };
        let state = interface.bind_to(first.as_fd()).unwrap();
        let other = socket().unwrap();
        send_frame(&other, state.index, EXPERIMENT + 2);
        let peek = RecvFlags::PEEK;
        assert_eq!(rustix::net::recv(&*first, &mut [0; 64], peek).unwrap().1, 5);
        drop(first);
        let again = socket().unwrap();
        let left = rustix::net::recv(&*again, &mut [0; 64], RecvFlags::DONTWAIT);
        assert_eq!(left.map(|(_, length)| length), Err(Errno::AGAIN));
        send_frame(&other, state.index, EXPERIMENT + 2);
        assert_eq!(rustix::net::recv(&*again, &mut [0; 64], peek).unwrap().1, 5);
    }

    #[test]
    fn a_socket_of_frames_gives_no_others_whatever_is_done_to_it() {
        let name = "lo";
        let site = match Site::interface(name, EXPERIMENT, 1) {
            Ok(site) => site,
            Err(error) => {
                println!("skipped: {error}");
                return;
            }
        };
        let fd = Arc::clone(&site.sockets[0]);
        let not_permitted = Err(Errno::PERM);
        let replaced = filter::filter_link(fd.as_fd(), 1, None).unwrap_err();
        assert_eq!(replaced.kind(), io::ErrorKind::PermissionDenied);
        let nothing: c_int = 0;
        for option in [libc::SO_DETACH_FILTER, libc::SO_LOCK_FILTER] {
            let option = (libc::SOL_SOCKET, option);
            assert_eq!(
                filter::set_option(fd.as_fd(), option, &nothing),
                not_permitted
            );
        }
        // Bound to all types, as no right is needed for.
        let all_types = Interface::new(name, u16::try_from(libc::ETH_P_ALL).unwrap());
        let state = all_types.bind_to(fd.as_fd()).unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let other = Interface::new(name, EXPERIMENT);
        let other = other.socket((0, 1), Filtered::Now).unwrap();
        for _ in 0..8 {
            udp.send_to(b"other", udp.local_addr().unwrap()).unwrap();
            send_frame(&other, state.index, EXPERIMENT + 3);
        }
        send_frame(&other, state.index, EXPERIMENT);
        let mut bytes = [0; 64];
        let (got, _) = rustix::net::recv(&*fd, &mut bytes, RecvFlags::empty()).unwrap();
        assert_eq!(&bytes[..got], b"frame");
        // The frame leaves, and comes in; nothing else does.
        while let Ok((got, _)) = rustix::net::recv(&*fd, &mut bytes, RecvFlags::DONTWAIT) {
            assert_eq!(&bytes[..got], b"frame");
        }
    }
}
