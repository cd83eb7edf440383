//! A socket of datagrams for a thread that has no ring: many datagrams with one system call.
//!
//! It belongs to one thread and is shared with nobody. The memory of its batches is its own: what was received stays
//! until the next receive, what is to be sent until it was sent. No call waits, but for a send whose socket is full,
//! which waits a moment and then drops what is left: datagrams may be lost on any way. A socket of an interface that
//! has gone says so once when it receives, and can be bound again; other sockets of the interface do not matter to it.

use std::ffi::c_int;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::datagram::{Address, NAME_BYTES, Name};
use crate::filter::{self, FrameFilter};
use crate::site::{Filtered, Interface, InterfaceError, InterfaceState, KeptSockets};

/// Datagrams of one system call.
const BATCH: usize = 32;
/// Room for one: the largest frame of Ethernet that is in use.
const ROOM_BYTES: usize = 9216;
/// How long a full socket is waited for.
const FULL_MAX: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// All senders are of the one core.
const WHOLE: (usize, usize) = (0, 1);

/// See above.
#[derive(Debug)]
pub struct FrameSocket {
    fd: Arc<OwnedFd>,
    link: Option<(Interface, InterfaceState)>,
    /// What it takes of the interface; `None` where nobody has said yet.
    filter: Option<Option<FrameFilter>>,
    incoming: Incoming,
    outgoing: Outgoing,
}

#[derive(Debug)]
struct Incoming {
    rooms: Vec<u8>,
    names: Vec<[u8; NAME_BYTES]>,
    /// Of the name and of the datagram.
    lengths: Vec<(usize, usize)>,
}

#[derive(Debug)]
struct Outgoing {
    rooms: Vec<u8>,
    names: Vec<Name>,
    lengths: Vec<usize>,
}

impl FrameSocket {
    /// Takes over a UDP socket that is bound.
    pub fn udp(socket: impl Into<OwnedFd>) -> Self {
        Self::new(Arc::new(socket.into()), None)
    }

    /// A socket for frames of this type of an interface. It needs CAP_NET_RAW now, or [`KeptSockets`], and no
    /// right later.
    ///
    /// # Errors
    ///
    /// There is no such interface, it is down, or there is no right.
    pub fn interface(name: &str, protocol: u16) -> Result<Self, InterfaceError> {
        let interface = Interface::new(name, protocol);
        let fd = interface.socket(WHOLE, Filtered::Now)?;
        let state = interface.bind_to(fd.as_fd());
        let state = state.map_err(|error| interface.explain(error))?;
        Ok(Self::new(fd, Some((interface, state))))
    }

    /// Whether [`FrameSocket::interface`] can do without CAP_NET_RAW.
    pub fn kept_sockets(name: &str, protocol: u16) -> KeptSockets {
        Interface::new(name, protocol).kept(WHOLE, Filtered::Now)
    }

    /// Sees to it that as many sockets of this interface can be had without CAP_NET_RAW, beside those in use.
    ///
    /// # Errors
    ///
    /// There is no right.
    pub fn keep_sockets(name: &str, protocol: u16, count: usize) -> Result<(), InterfaceError> {
        let interface = Interface::new(name, protocol);
        let all: Result<Vec<_>, _> = (0..count)
            .map(|_| interface.socket(WHOLE, Filtered::Now))
            .collect();
        all.map(drop)
    }

    fn new(fd: Arc<OwnedFd>, link: Option<(Interface, InterfaceState)>) -> Self {
        Self {
            fd,
            link,
            filter: None,
            incoming: Incoming {
                rooms: vec![0; BATCH * ROOM_BYTES],
                names: vec![[0; NAME_BYTES]; BATCH],
                lengths: Vec::with_capacity(BATCH),
            },
            outgoing: Outgoing {
                rooms: vec![0; BATCH * ROOM_BYTES],
                names: Vec::with_capacity(BATCH),
                lengths: Vec::with_capacity(BATCH),
            },
        }
    }

    /// The interface as it was when the socket was bound; `None` for UDP.
    pub fn state(&self) -> Option<InterfaceState> {
        self.link.as_ref().map(|(_, state)| *state)
    }

    /// Looks at its interface, of which the MTU may have changed.
    pub fn look(&mut self) {
        if let Some((interface, state)) = &mut self.link
            && let Some(now) = interface.look_by(self.fd.as_fd(), state.index)
        {
            state.mtu = now.mtu;
        }
    }

    /// Binds it to its interface again, which may have gone and come back.
    ///
    /// # Errors
    ///
    /// The interface is not there, or down.
    pub fn bind_again(&mut self) -> Result<(), InterfaceError> {
        let Some((interface, state)) = &mut self.link else {
            return Ok(());
        };
        let now = interface.bind_to(self.fd.as_fd());
        *state = now.map_err(|error| interface.explain(error))?;
        // The filter has the index of before.
        if let Some(filter) = &self.filter {
            let _filtered = filter::filter_link(self.fd.as_fd(), state.index, filter.as_ref());
        }
        // What the interface of before has left: the next receive would give it.
        let _of_before = rustix::net::sockopt::socket_error(&*self.fd);
        Ok(())
    }

    /// Has a socket of an interface take these frames only, or all again.
    ///
    /// # Errors
    ///
    /// The system does not take the filter; the one before holds.
    pub fn set_filter(&mut self, filter: Option<FrameFilter>) -> io::Result<()> {
        let Some((_, state)) = &self.link else {
            return Ok(());
        };
        filter::filter_link(self.fd.as_fd(), state.index, filter.as_ref())?;
        self.filter = Some(filter);
        Ok(())
    }

    /// The socket alone, for a ring.
    pub fn into_fd(self) -> Arc<OwnedFd> {
        self.fd
    }

    /// Where frames of a socket of an interface go to.
    pub fn station(&self, hardware: [u8; 6]) -> Option<Address> {
        self.link.as_ref().map(|(interface, state)| Address::Link {
            interface: state.index,
            hardware,
            protocol: interface.protocol(),
        })
    }

    /// Receives what is there, up to a bound, and gives how many datagrams that is. Those of before are gone.
    ///
    /// # Errors
    ///
    /// The interface is down or gone.
    pub fn receive(&mut self) -> io::Result<usize> {
        let Incoming {
            rooms,
            names,
            lengths,
        } = &mut self.incoming;
        lengths.clear();
        let mut pieces = empty_pieces();
        let mut headers = empty_headers();
        let places = rooms.chunks_exact_mut(ROOM_BYTES).zip(names);
        for ((room, name), (piece, header)) in places.zip(pieces.iter_mut().zip(&mut headers)) {
            piece.iov_base = room.as_mut_ptr().cast();
            piece.iov_len = room.len();
            header.msg_hdr.msg_name = name.as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = name_bytes(name.len());
            header.msg_hdr.msg_iov = ptr::from_mut(piece);
            header.msg_hdr.msg_iovlen = 1;
        }
        let flags = c_int::from(libc::MSG_DONTWAIT);
        // SAFETY: each header names memory of this socket with its length, which nobody else has until the call ends.
        let count = unsafe {
            libc::recvmmsg(
                self.fd.as_raw_fd(),
                headers.as_mut_ptr(),
                COUNT,
                flags as _,
                ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            // The last is what came back of a datagram that was sent to nobody.
            let is_nothing = matches!(
                error.kind(),
                io::ErrorKind::WouldBlock
                    | io::ErrorKind::Interrupted
                    | io::ErrorKind::ConnectionRefused
            );
            return if is_nothing { Ok(0) } else { Err(error) };
        };
        lengths.extend(headers.iter().take(count).map(|header| {
            let name = usize::try_from(header.msg_hdr.msg_namelen).unwrap_or(0);
            let is_whole = header.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
            let length = usize::try_from(header.msg_len).unwrap_or(0);
            // One that was cut is none.
            (name.min(NAME_BYTES), if is_whole { length } else { 0 })
        }));
        Ok(count)
    }

    /// A datagram of the last receive, with its sender; `None` where there is none, or one from nowhere, or of another
    /// interface: those of a VLAN or a macvlan come in at the one below, too.
    pub fn received(&self, at: usize) -> Option<(Address, &[u8])> {
        let Incoming {
            rooms,
            names,
            lengths,
        } = &self.incoming;
        let &(name, length) = lengths.get(at)?;
        let address = Address::decode(names.get(at)?.get(..name)?)?;
        let room = rooms.get(at * ROOM_BYTES..(at + 1) * ROOM_BYTES)?;
        let own = self.link.as_ref().map(|(_, state)| state.index);
        address.is_of(own).then_some((address, room.get(..length)?))
    }

    /// Room for the next datagram, for [`Self::push`]. Sends those that wait if there is none.
    pub fn room(&mut self) -> &mut [u8] {
        if self.outgoing.lengths.len() >= BATCH {
            self.flush();
        }
        let at = self.outgoing.lengths.len() * ROOM_BYTES;
        let end = at + ROOM_BYTES;
        self.outgoing.rooms.get_mut(at..end).unwrap_or_default()
    }

    /// The first bytes of the last [`Self::room`] are a datagram. It leaves with the next flush.
    pub fn push(&mut self, length: usize, to: Address) {
        if self.outgoing.lengths.len() < BATCH {
            self.outgoing.lengths.push(length.min(ROOM_BYTES));
            self.outgoing.names.push(to.encode());
        }
    }

    /// Sends what waits. What cannot be sent is lost.
    pub fn flush(&mut self) {
        let Outgoing {
            rooms,
            names,
            lengths,
        } = &mut self.outgoing;
        let mut pieces = empty_pieces();
        let mut headers = empty_headers();
        let places = rooms.chunks_exact_mut(ROOM_BYTES).zip(names.iter_mut());
        let places = places.zip(lengths.iter());
        for (((room, name), length), (piece, header)) in
            places.zip(pieces.iter_mut().zip(&mut headers))
        {
            piece.iov_base = room.as_mut_ptr().cast();
            piece.iov_len = *length;
            let (name, name_bytes) = name.parts();
            header.msg_hdr.msg_name = name;
            header.msg_hdr.msg_namelen = name_bytes;
            header.msg_hdr.msg_iov = ptr::from_mut(piece);
            header.msg_hdr.msg_iovlen = 1;
        }
        let count = lengths.len();
        send_all(
            self.fd.as_fd(),
            headers.get_mut(..count).unwrap_or_default(),
        );
        self.outgoing.names.clear();
        self.outgoing.lengths.clear();
    }
}

impl AsFd for FrameSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sends datagrams, whose headers name memory that lives on. One that the system refuses is left out; those behind a
/// full socket wait once for each batch.
fn send_all(fd: BorrowedFd<'_>, mut left: &mut [libc::mmsghdr]) {
    let mut has_waited = false;
    while !left.is_empty() {
        let count = libc::c_uint::try_from(left.len()).unwrap_or(0);
        let flags = c_int::from(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        // SAFETY: the headers name memory that the caller keeps, and the kernel only reads it.
        let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), left.as_mut_ptr(), count, flags as _) };
        let done = match usize::try_from(sent) {
            Ok(sent) => sent.max(1),
            Err(_) => {
                let kind = io::Error::last_os_error().kind();
                let is_full = kind == io::ErrorKind::WouldBlock;
                if is_full && has_waited {
                    return;
                }
                if is_full {
                    has_waited = true;
                    let mut places = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
                    // Ready or not, it is tried once more.
                    let _ready = poll(&mut places, Some(&FULL_MAX));
                }
                usize::from(!is_full && kind != io::ErrorKind::Interrupted)
            }
        };
        left = mem::take(&mut left).get_mut(done..).unwrap_or_default();
    }
}

const COUNT: libc::c_uint = 32;
const _: () = assert!(COUNT as usize == BATCH);

fn name_bytes(bytes: usize) -> libc::socklen_t {
    libc::socklen_t::try_from(bytes).unwrap_or(0)
}

const fn empty_pieces() -> [libc::iovec; BATCH] {
    [libc::iovec {
        iov_base: ptr::null_mut(),
        iov_len: 0,
    }; BATCH]
}

fn empty_headers() -> [libc::mmsghdr; BATCH] {
    // SAFETY: all zeros are valid headers: they name nothing.
    unsafe { mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::time::{Duration, Instant};

    use super::*;

    fn pair() -> (FrameSocket, FrameSocket, SocketAddr) {
        let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let address = sockets[1].local_addr().unwrap();
        let [from, to] = sockets.map(FrameSocket::udp);
        (from, to, address)
    }

    /// Longer than a frame is under way, however busy the machine is.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// How many frames came within this time; it ends with the first ones.
    fn arrivals(socket: &mut FrameSocket, patience: Duration) -> usize {
        let end = Instant::now() + patience;
        loop {
            match socket.receive().unwrap() {
                0 if Instant::now() < end => std::thread::park_timeout(Duration::from_millis(1)),
                count => return count,
            }
        }
    }

    fn await_one(socket: &mut FrameSocket) -> usize {
        let count = arrivals(socket, PATIENCE);
        assert!(count > 0, "no frame comes within {PATIENCE:?}");
        count
    }

    #[test]
    fn more_than_a_batch_arrives_in_order_with_its_sender() {
        let (mut from, mut to, address) = pair();
        // No more than the buffer of a socket has room for.
        let lengths: Vec<usize> = (1..=2 * BATCH + 1).map(|at| at * 10).collect();
        for &length in &lengths {
            from.room()[..length].fill(u8::try_from(length % 251).unwrap());
            from.push(length, Address::Inet(address));
        }
        from.flush();
        let mut seen = Vec::new();
        while seen.len() < lengths.len() {
            for at in 0..await_one(&mut to) {
                let (sender, bytes) = to.received(at).unwrap();
                assert!(matches!(sender, Address::Inet(from) if from.port() != address.port()));
                let byte = u8::try_from(bytes.len() % 251).unwrap();
                assert!(bytes.iter().all(|is| *is == byte));
                seen.push(bytes.len());
            }
        }
        assert_eq!(seen, lengths);
        assert!(to.received(BATCH).is_none());
    }

    #[test]
    fn what_cannot_be_sent_does_not_keep_back_the_rest() {
        let (mut from, mut to, address) = pair();
        // A UDP socket of IPv4 has no way to IPv6.
        let nowhere = Address::Inet("[::1]:9".parse().unwrap());
        for to in [
            nowhere,
            Address::Inet(address),
            nowhere,
            Address::Inet(address),
        ] {
            from.room()[..4].fill(1);
            from.push(4, to);
        }
        from.flush();
        let mut count = 0;
        while count < 2 {
            count += await_one(&mut to);
        }
        assert_eq!(to.receive().unwrap(), 0);
    }

    /// Set in the child, which has a network of its own.
    const INSIDE: &str = "TARN_TEST_INSIDE";
    const NAME: &str = "frames::tests::frames_come_and_go_at_an_interface_that_comes_back";
    const TYPE: u16 = 0x889a;

    fn ip(arguments: &str) {
        let status = std::process::Command::new("ip")
            .args(arguments.split(' '))
            .status();
        assert!(status.is_ok_and(|status| status.success()), "{arguments}");
    }

    fn make_pair() {
        ip(
            "link add tarn0 address 02:00:00:00:00:01 type veth peer name tarn1 address 02:00:00:00:00:02",
        );
        ip("link set tarn0 mtu 9000 up");
        ip("link set tarn1 mtu 9000 up");
    }

    /// Sends frames with these first bytes.
    fn send(from: &mut FrameSocket, to: [u8; 6], numbers: &[u16]) {
        for number in numbers {
            from.room()[..2].copy_from_slice(&number.to_be_bytes());
            from.room()[2..8000].fill(7);
            let to = from.station(to).unwrap();
            from.push(8000, to);
        }
        from.flush();
    }

    /// Sends until a frame comes through, and takes those that do: an interface that has just come up drops some.
    fn open_way(from: &mut FrameSocket, second: [u8; 6], to: &mut FrameSocket) {
        const LAST: u16 = 0xffff;
        let tries = (0..300).find(|_| {
            send(from, second, &[1]);
            arrivals(to, Duration::from_millis(100)) > 0
        });
        assert!(tries.is_some(), "every frame is lost");
        send(from, second, &[LAST]);
        while numbers(to, 1).last() != Some(&LAST) {}
    }

    fn numbers(socket: &mut FrameSocket, count: usize) -> Vec<u16> {
        let mut seen = Vec::new();
        while seen.len() < count {
            for at in 0..await_one(socket) {
                let (from, bytes) = socket.received(at).unwrap();
                assert!(matches!(from, Address::Link { protocol: TYPE, .. }));
                assert_eq!(bytes.len(), 8000);
                seen.push(u16::from_be_bytes([bytes[0], bytes[1]]));
            }
        }
        seen
    }

    fn a_filter_takes_its_numbers_of_its_sender(from: &mut FrameSocket, to: &mut FrameSocket) {
        let [first, second] = [1, 2].map(|end| [2, 0, 0, 0, 0, end]);
        // Tags 3 to 5 in bits 3 to 11, as well as 0, of this sender.
        let mut filter = FrameFilter {
            sender: first,
            field: (3, 0x1ff),
            numbers: 3..=5,
        };
        to.set_filter(Some(filter.clone())).unwrap();
        let all: Vec<u16> = (0..8).map(|tag| tag << 3).collect();
        send(from, second, &all);
        // What stands before and behind the tag does not matter.
        send(from, second, &[0xf000 | 4 << 3 | 7]);
        assert_eq!(numbers(to, 5), [0, 24, 32, 40, 0xf027]);
        filter.sender = [2, 0, 0, 0, 0, 9];
        to.set_filter(Some(filter.clone())).unwrap();
        send(from, second, &all);
        to.set_filter(None).unwrap();
        send(from, second, &[9]);
        assert_eq!(numbers(to, 1), [9]);
    }

    /// What is for an interface on top of another one comes in there, too: it is dropped by the interface that the
    /// kernel names, where the filter is another's, and by the filter.
    fn what_is_for_an_interface_on_top_is_none_of_this_one(
        from: &mut FrameSocket,
        to: &mut FrameSocket,
    ) {
        let [second, third] = [2, 3].map(|end| [2, 0, 0, 0, 0, end]);
        ip("link add link tarn1 name tarn2 address 02:00:00:00:00:03 type macvlan mode bridge");
        ip("link set tarn2 up");
        let mut above = FrameSocket::interface("tarn2", TYPE).unwrap();
        let mut open = FrameSocket::interface("tarn1", TYPE).unwrap();
        for (number, is_filtered) in [(24, false), (32, true)] {
            if is_filtered {
                open.set_filter(None).unwrap();
            }
            send(from, third, &[number]);
            assert_eq!(numbers(&mut above, 1), [number]);
            send(from, second, &[40]);
            let mut came = 0;
            let own = loop {
                let count = await_one(&mut open);
                came += count;
                if let Some((_, bytes)) = (0..count).find_map(|at| open.received(at)) {
                    break bytes[..2].to_vec();
                }
            };
            assert_eq!((own, came), (vec![0, 40], if is_filtered { 1 } else { 2 }));
        }
        assert_eq!(numbers(to, 2), [40, 40]);
        ip("link del tarn2");
    }

    #[test]
    fn frames_come_and_go_at_an_interface_that_comes_back() {
        if std::env::var_os(INSIDE).is_none() {
            let unshare = || std::process::Command::new("unshare");
            let can = unshare().args(["-Urn", "ip", "link"]).output();
            if !can.is_ok_and(|output| output.status.success()) {
                println!("skipped: `unshare -Urn ip link` does not work here");
                return;
            }
            let own = std::env::current_exe().unwrap();
            let mut child = unshare();
            child.arg("-Urn").arg(own);
            child
                .args(["--exact", NAME, "--nocapture"])
                .env(INSIDE, "1");
            assert!(child.status().unwrap().success());
            return;
        }
        let [first, second] = [1, 2].map(|end| [2, 0, 0, 0, 0, end]);
        // One that is down.
        ip("link add tarn9 type veth peer name tarn8");
        let error = FrameSocket::interface("tarn9", TYPE)
            .unwrap_err()
            .to_string();
        assert!(error.contains("ip link set tarn9 up"), "{error}");
        make_pair();
        let mut from = FrameSocket::interface("tarn0", TYPE).unwrap();
        let mut to = FrameSocket::interface("tarn1", TYPE).unwrap();
        assert_eq!(to.state().unwrap().mtu, 9000);
        open_way(&mut from, second, &mut to);
        send(&mut from, second, &[8, 16]);
        assert_eq!(numbers(&mut to, 2), [8, 16]);

        a_filter_takes_its_numbers_of_its_sender(&mut from, &mut to);
        what_is_for_an_interface_on_top_is_none_of_this_one(&mut from, &mut to);
        ip("link del tarn0");
        let end = Instant::now() + PATIENCE;
        let gone = loop {
            if let Err(error) = to.receive() {
                break error;
            }
            assert!(Instant::now() < end, "the interface is never gone");
        };
        assert_eq!(gone.raw_os_error(), Some(libc::ENETDOWN));
        assert!(matches!(
            to.bind_again(),
            Err(InterfaceError::Missing { .. })
        ));
        // Lost, as any frame may be.
        send(&mut to, first, &[1]);
        make_pair();
        from.bind_again().unwrap();
        to.bind_again().unwrap();
        open_way(&mut to, first, &mut from);
        send(&mut to, first, &[5]);
        assert_eq!(numbers(&mut from, 1), [5]);
    }
}
