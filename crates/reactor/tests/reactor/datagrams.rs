//! Datagrams: UDP over the loopback, and frames of a link.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::common::{HANG, event, events, expect_quiet, pattern, settings};
use memory::PIECE_BYTES;
use reactor::{Address, Datagram, DatagramSocket, Errno, Event, Reactor, Settings, Wait};

/// Beside it a frame has room for the address, so that it takes one piece of the pool.
const FRAME_BYTES: usize = 1514;

fn reactor() -> Reactor {
    Reactor::new(&Settings {
        frame_bytes: FRAME_BYTES,
        frames: 8,
        ..settings()
    })
    .unwrap()
}

/// Our socket, its address, and a peer of it.
fn pair() -> (DatagramSocket, SocketAddr, UdpSocket) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let ours = UdpSocket::bind(any).unwrap();
    let address = ours.local_addr().unwrap();
    let peer = UdpSocket::bind(any).unwrap();
    peer.set_read_timeout(Some(HANG)).unwrap();
    (
        DatagramSocket::new(OwnedFd::from(ours)).unwrap(),
        address,
        peer,
    )
}

/// Writes these bytes as a datagram.
fn put(bytes: &[u8]) -> impl FnOnce(&mut [u8]) -> Option<usize> {
    |room| {
        room.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(bytes.len())
    }
}

/// Until so many datagrams are over: how many were sent, and how many were not.
fn ends(reactor: &mut Reactor, count: u32) -> (u32, u32) {
    let (mut all_sent, mut all_lost) = (0, 0);
    while all_sent + all_lost < count {
        let until = reactor.clock() + Duration::from_millis(10);
        let mut events = Vec::new();
        reactor.turn(Wait::Until(until), &mut events).unwrap();
        for event in events {
            let Event::DatagramsSent { sent, lost, .. } = event else {
                panic!("{event:?}");
            };
            all_sent += sent;
            all_lost += lost;
        }
    }
    (all_sent, all_lost)
}

fn datagram(event: Event) -> Datagram {
    match event {
        Event::Datagram { result, .. } => result.unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The next `count` datagrams.
fn datagrams(reactor: &mut Reactor, count: usize) -> Vec<Datagram> {
    let mut all = Vec::new();
    while all.len() < count {
        all.extend(events(reactor).into_iter().map(datagram));
    }
    all
}

#[test]
fn each_datagram_comes_whole_with_its_sender() {
    let mut reactor = reactor();
    let (ours, address, peer) = pair();
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    reactor.receive_datagrams(&ours, 7);
    peer.send_to(b"one", address).unwrap();
    other.send_to(&[], address).unwrap();
    peer.send_to(&pattern(FRAME_BYTES), address).unwrap();
    let all = datagrams(&mut reactor, 3);
    let expected = [
        (&peer, b"one".to_vec()),
        (&other, Vec::new()),
        (&peer, pattern(FRAME_BYTES)),
    ];
    for (got, (sender, bytes)) in all.iter().zip(expected) {
        let from = Address::Inet(sender.local_addr().unwrap());
        assert_eq!((got.sender(), got.bytes()), (Some(from), &bytes[..]));
        assert!(!got.is_truncated);
    }
    let payload = all[2].clone().into_payload();
    assert_eq!(payload.to_vec(), pattern(FRAME_BYTES));
    assert_eq!(reactor.in_flight(), 1, "it goes on");
}

#[test]
fn frames_may_be_made_when_they_are_needed_first() {
    let mut reactor = Reactor::new(&settings()).unwrap();
    reactor.prepare_frames(8, FRAME_BYTES).unwrap();
    let free = reactor.pool().free_bytes();
    reactor.prepare_frames(8, FRAME_BYTES).unwrap();
    assert_eq!(reactor.pool().free_bytes(), free, "they are there");
    let (ours, address, peer) = pair();
    reactor.receive_datagrams(&ours, 7);
    for n in 0..20_u8 {
        peer.send_to(&[n], address).unwrap();
    }
    let all = datagrams(&mut reactor, 20);
    for (n, one) in (0..).zip(&all) {
        assert_eq!(one.bytes(), [n]);
    }
    let more = usize::MAX / 4;
    let mut reactor = Reactor::new(&settings()).unwrap();
    let error = reactor.prepare_frames(more, FRAME_BYTES).unwrap_err();
    assert!(
        error.to_string().contains("make the pool larger"),
        "{error}"
    );
}

#[test]
fn what_is_longer_than_a_frame_is_cut_and_says_so() {
    let mut reactor = reactor();
    let (ours, address, peer) = pair();
    reactor.receive_datagrams(&ours, 1);
    peer.send_to(&pattern(PIECE_BYTES), address).unwrap();
    peer.send_to(b"next", address).unwrap();
    let all = datagrams(&mut reactor, 2);
    assert!(all[0].is_truncated);
    assert_eq!(all[0].bytes(), &pattern(FRAME_BYTES)[..]);
    assert_eq!(all[1].bytes(), b"next");
}

#[test]
fn sends_of_one_turn_leave_together_each_to_its_address() {
    const COUNT: usize = 100;
    let mut reactor = reactor();
    let (ours, address, peer) = pair();
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    other.set_read_timeout(Some(HANG)).unwrap();
    let to = |n: usize| if n.is_multiple_of(2) { &peer } else { &other };
    for n in 0..COUNT {
        let to = Address::Inet(to(n).local_addr().unwrap());
        assert!(reactor.send_datagram(&ours, 7, Some(to), put(&pattern(n))));
    }
    assert!(!reactor.send_datagram(&ours, 7, None, |_| None), "nothing");
    assert_eq!(ends(&mut reactor, 100), (100, 0));
    for n in 0..COUNT {
        let mut bytes = [0; 2 * COUNT];
        let (len, from) = to(n).recv_from(&mut bytes).unwrap();
        assert_eq!((&bytes[..len], from), (&pattern(n)[..], address));
    }
    assert_eq!(reactor.in_flight(), 0);
}

#[test]
fn a_datagram_without_an_address_goes_where_the_socket_is_connected() {
    let mut reactor = reactor();
    let (_, _, peer) = pair();
    let ours = UdpSocket::bind("127.0.0.1:0").unwrap();
    ours.connect(peer.local_addr().unwrap()).unwrap();
    let ours = DatagramSocket::new(OwnedFd::from(ours)).unwrap();
    // The description of a send is used again: nothing of the address before may be left in it.
    let nowhere = Address::Inet(SocketAddr::from(([127, 0, 0, 1], 9)));
    for (to, bytes) in [(Some(nowhere), b"lost"), (None, b"here")] {
        reactor.send_datagram(&ours, 1, to, put(bytes));
        assert_eq!(ends(&mut reactor, 1), (1, 0));
    }
    let mut bytes = [0; 8];
    assert_eq!(peer.recv(&mut bytes).unwrap(), 4);
    assert_eq!(&bytes[..4], b"here");
}

#[test]
fn a_datagram_that_cannot_be_sent_counts_as_lost_and_others_leave() {
    let mut reactor = reactor();
    let (ours, _, peer) = pair();
    let there = Address::Inet(peer.local_addr().unwrap());
    // A UDP socket of IPv4 has no way to IPv6.
    let nowhere = Address::Inet("[::1]:9".parse().unwrap());
    for to in [there, nowhere, nowhere, there] {
        reactor.send_datagram(&ours, 4, Some(to), put(b"some"));
    }
    assert_eq!(ends(&mut reactor, 4), (2, 2));
    let mut bytes = [0; 8];
    assert_eq!(peer.recv(&mut bytes).unwrap(), 4);
    assert_eq!(peer.recv(&mut bytes).unwrap(), 4);
}

/// Without anything that happens, a turn sleeps as long as it may, although datagrams have left.
#[test]
fn datagrams_that_left_end_no_sleep() {
    let mut reactor = reactor();
    let (ours, _, peer) = pair();
    let to = Address::Inet(peer.local_addr().unwrap());
    reactor.send_datagram(&ours, 4, Some(to), put(b"some"));
    assert!(reactor.has_unwatched());
    let until = reactor.clock() + Duration::from_millis(30);
    let mut events = Vec::new();
    reactor.turn(Wait::Until(until), &mut events).unwrap();
    assert!(reactor.now() >= until, "{:?}", reactor.now());
    let [
        Event::DatagramsSent {
            token: 4,
            sent: 1,
            lost: 0,
        },
    ] = events[..]
    else {
        panic!("{events:?}");
    };
}

/// A socket that holds no more gives them back, and they wait for it.
#[test]
fn datagrams_that_find_their_socket_full_leave_when_it_has_room() {
    const COUNT: u32 = 400;
    let mut reactor = reactor();
    let (ours, peer) = UnixDatagram::pair().unwrap();
    let ours = DatagramSocket::new(OwnedFd::from(ours)).unwrap();
    peer.set_read_timeout(Some(HANG)).unwrap();
    for _ in 0..COUNT {
        reactor.send_datagram(&ours, 9, None, put(&pattern(2000)));
    }
    let (mut sent, mut read) = (0, 0);
    let mut room = [0; 4000];
    while read < COUNT {
        let until = reactor.clock() + Duration::from_millis(10);
        let mut events = Vec::new();
        reactor.turn(Wait::Until(until), &mut events).unwrap();
        for event in events {
            let Event::DatagramsSent {
                sent: more,
                lost: 0,
                ..
            } = event
            else {
                panic!("{event:?}");
            };
            sent += more;
        }
        if read == 0 {
            assert!(sent < COUNT, "the socket was never full");
        }
        while read < sent {
            assert_eq!(peer.recv(&mut room).unwrap(), 2000);
            read += 1;
        }
    }
    assert_eq!(reactor.in_flight(), 0);
}

/// With every frame held and the pool empty, datagrams wait in the socket, without an event and
/// without spinning; frames that are dropped bring them, in order and all.
#[test]
fn a_burst_beyond_the_frames_waits_for_them() {
    const COUNT: usize = 100;
    let mut reactor = reactor();
    let (ours, address, peer) = pair();
    let mut rest = Vec::new();
    while let Ok(buffer) = reactor.pool().allocate(PIECE_BYTES) {
        rest.push(buffer);
    }
    reactor.receive_datagrams(&ours, 1);
    for n in 0..COUNT {
        peer.send_to(&pattern(n), address).unwrap();
    }
    let mut held = datagrams(&mut reactor, 8);
    expect_quiet(&mut reactor);
    assert_eq!(reactor.in_flight(), 1);
    let mut next = 0;
    while next < COUNT {
        for got in held.drain(..) {
            assert_eq!(got.bytes(), pattern(next));
            next += 1;
        }
        if next < COUNT {
            held = datagrams(&mut reactor, 1);
        }
    }
}

#[test]
fn a_cancelled_receive_ends_once_and_another_goes_on() {
    let mut reactor = reactor();
    let (ours, address, peer) = pair();
    let id = reactor.receive_datagrams(&ours, 5);
    expect_quiet(&mut reactor);
    reactor.cancel(id);
    match event(&mut reactor) {
        Event::Datagram { token: 5, result } => assert_eq!(result.unwrap_err(), Errno::CANCELED),
        other => panic!("{other:?}"),
    }
    peer.send_to(b"after", address).unwrap();
    expect_quiet(&mut reactor);
    reactor.receive_datagrams(&ours, 6);
    assert_eq!(datagram(event(&mut reactor)).bytes(), b"after");

    // Also one that waits for a frame.
    let mut rest = Vec::new();
    while let Ok(buffer) = reactor.pool().allocate(PIECE_BYTES) {
        rest.push(buffer);
    }
    let waits = reactor.receive_datagrams(&ours, 8);
    for _ in 0..20 {
        peer.send_to(b"x", address).unwrap();
    }
    let _held = datagrams(&mut reactor, 8);
    expect_quiet(&mut reactor);
    reactor.cancel(waits);
    match event(&mut reactor) {
        Event::Datagram { token: 8, result } => assert_eq!(result.unwrap_err(), Errno::CANCELED),
        other => panic!("{other:?}"),
    }
}

#[test]
fn dropping_the_reactor_takes_the_frames_back_from_the_kernel() {
    let mut reactor = reactor();
    let pool = reactor.pool().clone();
    let (ours, address, peer) = pair();
    reactor.receive_datagrams(&ours, 1);
    expect_quiet(&mut reactor);
    peer.send_to(b"unread", address).unwrap();
    drop(reactor);
    assert_eq!(pool.free_bytes(), pool.capacity_bytes());
}

/// A protocol that is nobody's: local experimental (IEEE 802).
const ETHERTYPE: u16 = 0x88b5;

/// A raw socket of this protocol on the loopback; `None` without the right to make one.
fn link_socket() -> Option<OwnedFd> {
    let protocol = i32::from(ETHERTYPE.to_be());
    // SAFETY: the call names no memory.
    let fd = unsafe {
        libc::socket(
            libc::AF_PACKET,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            protocol,
        )
    };
    if fd < 0 {
        return None;
    }
    // SAFETY: a new descriptor, which nobody else has.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET).unwrap();
    address.sll_protocol = ETHERTYPE.to_be();
    address.sll_ifindex = loopback();
    let len = u32::try_from(size_of_val(&address)).unwrap();
    let raw = std::os::fd::AsRawFd::as_raw_fd(&fd);
    // SAFETY: the address lives through the call and is as long as is said.
    let bound = unsafe { libc::bind(raw, (&raw const address).cast(), len) };
    assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
    Some(fd)
}

fn loopback() -> i32 {
    // SAFETY: the name is static and ends with a zero.
    let index = unsafe { libc::if_nametoindex(c"lo".as_ptr()) };
    i32::try_from(index).unwrap()
}

#[test]
fn frames_of_a_link_come_and_go_with_their_headers() {
    let (Some(ours), Some(peer)) = (link_socket(), link_socket()) else {
        println!("skipped: no right to raw sockets (CAP_NET_RAW)");
        return;
    };
    let mut reactor = reactor();
    let ours = DatagramSocket::new(ours).unwrap();
    let peer = DatagramSocket::new(peer).unwrap();
    reactor.receive_datagrams(&ours, 1);
    let hardware = [2, 0, 0, 0, 0, 9];
    let frame = |n: u8| {
        let header = [&hardware[..], &[2, 0, 0, 0, 0, n], &ETHERTYPE.to_be_bytes()].concat();
        [&header[..], &pattern(usize::from(n) * 50)].concat()
    };
    let interface = loopback();
    for n in 0..20 {
        // To the bound interface, or to one that is named.
        let named = Address::Link {
            interface,
            hardware,
            protocol: 0,
        };
        let to = (n % 2 == 0).then_some(named);
        reactor.send_datagram(&peer, 100, to, put(&frame(n)));
    }
    let (mut sent, mut came) = (0, Vec::new());
    while sent < 20 || came.len() < 20 {
        for event in events(&mut reactor) {
            match event {
                Event::DatagramsSent {
                    sent: more, lost, ..
                } => {
                    assert_eq!(lost, 0);
                    sent += more;
                }
                other => came.push(datagram(other)),
            }
        }
    }
    for (n, got) in (0..).zip(&came) {
        assert_eq!(got.bytes(), frame(n));
        match got.sender() {
            Some(Address::Link { interface: at, .. }) => assert_eq!(at, interface),
            other => panic!("{other:?}"),
        }
    }
}
