//! Programs of the kernel for sockets (classic BPF): which socket of a port gets a datagram, and which frames a socket
//! of a link takes. Here are the sockets of links, too, as far as making them takes a right and their filter makes them
//! what they are.

use std::ffi::{c_int, c_void};
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::io::Errno;

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
/// What the kernel knows of a frame: its type.
const FRAME_TYPE: u32 = 0xffff_f000;
/// What the kernel knows of a frame: whom it is for. An interface that listens to everything gets those of others.
const PACKET_TYPE: u32 = 0xffff_f000 + 4;
const FOR_OTHERS: u32 = 3;
/// What the kernel knows of a frame: the interface that it is for, by its index. That of a VLAN or a macvlan comes in
/// at the one below, too.
const INTERFACE: u32 = 0xffff_f000 + 8;

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

/// Has the sockets that share the port of this one get the datagrams of their cores.
pub(crate) fn share_port(
    first: BorrowedFd<'_>,
    address: SocketAddr,
    cores: u32,
) -> Result<(), Errno> {
    let sender = match address {
        SocketAddr::V4(_) => SENDER_OF_IPV4,
        SocketAddr::V6(_) => SENDER_OF_IPV6,
    };
    let program = [
        instruction(LOAD_WORD, sender),
        instruction(MODULO, cores),
        instruction(RETURN_NUMBER, 0),
    ];
    attach(first, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

/// A socket of a link. Needs CAP_NET_RAW. Without a protocol it is in nobody's way until it is bound.
pub(crate) fn link_socket() -> Result<OwnedFd, Errno> {
    // SAFETY: plain system call.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: the kernel has just given it, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Has a socket of a link take the frames of this type that are for this core of so many.
pub(crate) fn filter_core(
    fd: BorrowedFd<'_>,
    protocol: u16,
    (core, cores): (u32, u32),
) -> Result<(), Errno> {
    let is_equal = |jf, k| libc::sock_filter {
        code: JUMP_IF_EQUAL,
        jt: 0,
        jf,
        k,
    };
    // Each jump leads to the end, where nothing is taken.
    let program = [
        instruction(LOAD_WORD, PACKET_TYPE),
        libc::sock_filter {
            code: JUMP_IF_EQUAL,
            jt: 6,
            jf: 0,
            k: FOR_OTHERS,
        },
        instruction(LOAD_WORD, FRAME_TYPE),
        is_equal(4, u32::from(protocol)),
        instruction(LOAD_WORD, SENDER_OF_ETHERNET),
        instruction(MODULO, cores),
        is_equal(1, core),
        // All of the frame.
        instruction(RETURN, u32::MAX),
        instruction(RETURN, 0),
    ];
    attach(fd, libc::SO_ATTACH_FILTER, &program)
}

/// Nobody replaces or removes its filter any more.
///
/// Spec: socket(7), SO_LOCK_FILTER.
pub(crate) fn lock_filter(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let locked: c_int = 1;
    set_option(fd, (libc::SOL_SOCKET, libc::SO_LOCK_FILTER), &locked)
}

/// Has a socket of a link take what a filter lets through, or all that is for this host, of the interface of this
/// index.
pub(crate) fn filter_link(
    fd: BorrowedFd<'_>,
    index: i32,
    filter: Option<&FrameFilter>,
) -> io::Result<()> {
    let index = u32::try_from(index).map_err(|_| Errno::NODEV)?;
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
            jump_if_equal(3, 0, FOR_OTHERS),
            instruction(LOAD_WORD, INTERFACE),
            jump_if_equal(0, 1, index),
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
        jump_if_equal(13, 0, FOR_OTHERS),
        instruction(LOAD_WORD, INTERFACE),
        jump_if_equal(0, 11, index),
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

pub(crate) fn set_option<T>(
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
    Err(last_error())
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}
