//! The sockets of a place where datagrams come in: one for each core, and the kernel gives each datagram to the core of
//! its sender.
//!
//! The core of a sender is a number of 32 bits, the last of its IP address or MAC address, modulo the cores. UDP
//! sockets share their port (`SO_REUSEPORT`), and a program of the kernel says which of them gets a datagram;
//! broadcasts come to all of them. Sockets of a link have a filter each, which takes what is for its core: unlike those
//! of a fanout group, they can be bound once more, to an interface that has come back. Only making them needs a right
//! (CAP_NET_RAW).

use std::ffi::{c_int, c_ulong, c_void};
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::DatagramSocket;
use crate::net::BindError;
use crate::room::{self, Occupant, Way};

/// Room for datagrams that a core has not taken yet, in bytes; the system may give less.
const RECEIVE_BYTES: usize = 4 << 20;

/// Datagrams are sent whole or not at all: a fragment of one that is lost would make all of it useless.
///
/// Spec: ip(7), IP_PMTUDISC_PROBE.
const NEVER_CUT: c_int = 3;

// Spec: linux/bpf_common.h, linux/filter.h.
const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const MODULO: u16 = 0x94;
const SHIFT_RIGHT: u16 = 0x74;
const AND: u16 = 0x54;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_MORE: u16 = 0x25;
const JUMP_IF_NOT_LESS: u16 = 0x35;
const RETURN: u16 = 0x06;
const RETURN_NUMBER: u16 = 0x16;
/// Offsets from the head of the network layer.
const NETWORK: u32 = 0xfff0_0000;
/// Offsets from the head of the link layer.
const LINK: u32 = 0xffe0_0000;

/// Where the last four bytes of the sender's address are.
const SENDER_OF_IPV4: u32 = NETWORK + 12;
const SENDER_OF_IPV6: u32 = NETWORK + 20;
const SENDER_OF_ETHERNET: u32 = LINK + 8;
/// What the kernel knows of a frame: whom it is for. An interface that listens to everything gets those of others.
const PACKET_TYPE: u32 = 0xffff_f000 + 4;
const FOR_OTHERS: u32 = 3;

/// Why an interface cannot be used. Each message names the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterfaceError {
    /// `EPERM`.
    #[error(
        "frames of interface {name} are not allowed to this user: grant CAP_NET_RAW (AmbientCapabilities= in a service \
         file); Tarn gives it up after its start, so that an interface which is added later needs a restart"
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

/// Which frames of an interface a socket takes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FrameFilter {
    /// The station that they come from.
    pub sender: [u8; 6],
    /// What the first two bytes are shifted by, to the right, and the bits that are looked at then.
    pub field: (u32, u32),
    /// The numbers there that are taken, beside 0.
    pub numbers: RangeInclusive<u16>,
}

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
        let made = with_room(address, leaving, |makes_room| {
            Self::try_udp(address, cores, makes_room)
        });
        made.map_err(|errno| BindError::new(address, errno))
    }

    /// Whether an address could be had.
    ///
    /// # Errors
    ///
    /// As [`Site::udp`].
    pub fn probe_udp(address: SocketAddr, leaving: &[Occupant]) -> Result<(), BindError> {
        let socket = with_room(address, leaving, |makes_room| {
            udp_socket(address, false, makes_room)
        });
        socket
            .map(drop)
            .map_err(|errno| BindError::new(address, errno))
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
            let sender = match address {
                SocketAddr::V4(_) => SENDER_OF_IPV4,
                SocketAddr::V6(_) => SENDER_OF_IPV6,
            };
            let program = [
                instruction(LOAD_WORD, sender),
                instruction(MODULO, count),
                instruction(RETURN_NUMBER, 0),
            ];
            attach(first.as_fd(), libc::SO_ATTACH_REUSEPORT_CBPF, &program)?;
        }
        Ok(Self {
            sockets: sockets.into_iter().map(Arc::new).collect(),
            address: Some(address),
            interface: None,
        })
    }

    /// Sockets for frames of this type that come in at an interface. They need CAP_NET_RAW now, and no right later.
    ///
    /// # Errors
    ///
    /// There is no such interface, or no right.
    pub fn interface(name: &str, protocol: u16, cores: usize) -> Result<Self, InterfaceError> {
        let interface = Interface::new(name, protocol);
        let explain = |source: io::Error| interface.explain(source);
        let count = cores.max(1);
        let sockets = (0..count).map(|core| link_socket(core, count));
        let sockets: io::Result<Vec<OwnedFd>> = sockets.collect();
        let sockets = sockets.map_err(explain)?;
        if let Some(socket) = sockets.first() {
            interface.state(socket.as_fd()).map_err(explain)?;
        }
        Ok(Self {
            sockets: sockets.into_iter().map(Arc::new).collect(),
            address: None,
            interface: Some(interface),
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

    /// The same for any socket of frames.
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
        if self.name.is_empty() || self.name.len() > room {
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

/// What this gives, which is run again where sockets that are to be closed have to make room.
fn with_room<T>(
    address: SocketAddr,
    leaving: &[Occupant],
    bind: impl Fn(bool) -> Result<T, Errno>,
) -> Result<T, Errno> {
    match bind(false) {
        Err(Errno::ADDRINUSE) => room::beside(address, leaving, Way::Address, || bind(true))
            .unwrap_or(Err(Errno::ADDRINUSE)),
        bound => bound,
    }
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
    set_option(fd.as_fd(), (level, option), &NEVER_CUT)?;
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

/// A socket that receives nothing before it is bound, and then what is for this core.
pub(crate) fn link_socket(core: usize, cores: usize) -> io::Result<OwnedFd> {
    // Without a protocol it is in nobody's way until it is bound.
    // SAFETY: plain system call.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given it, and nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    sockopt::set_socket_recv_buffer_size(&fd, RECEIVE_BYTES)?;
    let (Ok(core), Ok(cores)) = (u32::try_from(core), u32::try_from(cores)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // Each jump leads to the end, where nothing is taken.
    let program = [
        instruction(LOAD_WORD, PACKET_TYPE),
        libc::sock_filter {
            code: JUMP_IF_EQUAL,
            jt: 4,
            jf: 0,
            k: FOR_OTHERS,
        },
        instruction(LOAD_WORD, SENDER_OF_ETHERNET),
        instruction(MODULO, cores),
        libc::sock_filter {
            code: JUMP_IF_EQUAL,
            jt: 0,
            jf: 1,
            k: core,
        },
        // All of the frame.
        instruction(RETURN, u32::MAX),
        instruction(RETURN, 0),
    ];
    attach(fd.as_fd(), libc::SO_ATTACH_FILTER, &program)?;
    Ok(fd)
}

/// Has a socket of a link take what a filter lets through, or all that is for this host.
pub(crate) fn filter_link(fd: BorrowedFd<'_>, filter: Option<&FrameFilter>) -> io::Result<()> {
    // Each jump leads to the end, where nothing is taken.
    let jump_if_equal = |jt, jf, k| libc::sock_filter {
        code: JUMP_IF_EQUAL,
        jt,
        jf,
        k,
    };
    let Some(filter) = filter else {
        let program = [
            instruction(LOAD_WORD, PACKET_TYPE),
            jump_if_equal(1, 0, FOR_OTHERS),
            instruction(RETURN, u32::MAX),
            instruction(RETURN, 0),
        ];
        return Ok(attach(fd, libc::SO_ATTACH_FILTER, &program)?);
    };
    let [a, b, c, d, e, f] = filter.sender;
    let (shift, mask) = filter.field;
    let (first, last) = (*filter.numbers.start(), *filter.numbers.end());
    let program = [
        instruction(LOAD_WORD, PACKET_TYPE),
        jump_if_equal(11, 0, FOR_OTHERS),
        instruction(LOAD_WORD, SENDER_OF_ETHERNET),
        jump_if_equal(0, 9, u32::from_be_bytes([c, d, e, f])),
        instruction(LOAD_HALF, SENDER_OF_ETHERNET - 2),
        jump_if_equal(0, 7, u32::from_be_bytes([0, 0, a, b])),
        instruction(LOAD_HALF, NETWORK),
        instruction(SHIFT_RIGHT, shift),
        instruction(AND, mask),
        jump_if_equal(2, 0, 0),
        libc::sock_filter {
            code: JUMP_IF_NOT_LESS,
            jt: 0,
            jf: 2,
            k: u32::from(first),
        },
        libc::sock_filter {
            code: JUMP_IF_MORE,
            jt: 1,
            jf: 0,
            k: u32::from(last),
        },
        instruction(RETURN, u32::MAX),
        instruction(RETURN, 0),
    ];
    Ok(attach(fd, libc::SO_ATTACH_FILTER, &program)?)
}

const fn instruction(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

fn attach(fd: BorrowedFd<'_>, option: c_int, program: &[libc::sock_filter]) -> Result<(), Errno> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap_or_default(),
        // The kernel reads it only.
        filter: program.as_ptr().cast_mut(),
    };
    set_option(fd, (libc::SOL_SOCKET, option), &program)
}

fn set_option<T>(
    fd: BorrowedFd<'_>,
    (level, option): (c_int, c_int),
    value: &T,
) -> Result<(), Errno> {
    let bytes = libc::socklen_t::try_from(size_of::<T>()).unwrap_or_default();
    let value: *const c_void = (&raw const *value).cast();
    // SAFETY: the value is valid for so many bytes, with all that it points to, and is only read.
    let set = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value, bytes) };
    if set == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

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
            Site::probe_udp(all, &going).unwrap();
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
        for name in ["nowhere0", "", "a-name-that-is-longer-than-any"] {
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
}
