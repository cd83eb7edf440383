//! Connections: accepting, receiving, sending, cancelling, and running out of chunks.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::{HANG, event, events, expect_quiet, pattern, reactor, settings};
use memory::{Message, PIECE_BYTES, Payload};
use reactor::{Errno, Event, Listener, Reactor, Received, SendEnd, Settings, Socket, Wait};

/// A connection over the loopback: our end, and the peer's.
fn connection() -> (Socket, TcpStream) {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    // What the reactor loses, the peer would wait for.
    peer.set_read_timeout(Some(HANG)).unwrap();
    peer.set_write_timeout(Some(HANG)).unwrap();
    let (ours, _) = listener.accept().unwrap();
    (Socket::new(ours.into()).unwrap(), peer)
}

fn received(event: Event) -> Received {
    match event {
        Event::Received { result, .. } => result.unwrap(),
        other => panic!("{other:?}"),
    }
}

fn message(bytes: &[u8]) -> Message {
    let mut message = Message::default();
    message.push_bytes(bytes);
    message
}

#[test]
fn a_connection_is_accepted_with_its_peer_and_the_listener_can_be_armed_again() {
    let mut reactor = reactor();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Listener::bind(any, 8).unwrap();
    for token in [5, 6] {
        reactor.accept(&listener, token);
        let peer = TcpStream::connect(listener.local_address()).unwrap();
        match event(&mut reactor) {
            Event::Accepted { token: t, result } => {
                let (fd, address) = result.unwrap();
                assert_eq!((t, address), (token, peer.local_addr().unwrap()));
                let socket = Socket::new(fd).unwrap();
                assert_eq!(socket.local_address().unwrap(), listener.local_address());
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The peer sends more than any socket buffer holds before it reads, so sends come up short and
/// receives come in pieces.
#[test]
fn a_long_stream_is_echoed_unchanged() {
    const LEN: usize = 24 << 20;
    for busy_poll in [Duration::ZERO, Duration::from_millis(2)] {
        let mut reactor = Reactor::new(&Settings {
            busy_poll,
            ..settings()
        })
        .unwrap();
        let (socket, mut peer) = connection();
        let mut writer = peer.try_clone().unwrap();
        let write = thread::spawn(move || writer.write_all(&pattern(LEN)).unwrap());
        let mut echoed = 0;
        let mut back = Message::default();
        let (all_received, go) = mpsc::channel();
        let read = thread::spawn(move || {
            let mut bytes = vec![0; LEN];
            go.recv().unwrap();
            peer.read_exact(&mut bytes).unwrap();
            assert!(bytes == pattern(LEN), "the echo differs");
        });
        while echoed < LEN {
            reactor.receive(&socket, 1);
            let Received { chunk, len, .. } = received(event(&mut reactor));
            assert!(len > 0 && len == chunk.len());
            // Some parts are referred to and some copied; the chunks run short on the way.
            if echoed % 2 == 0 {
                let payload = back.push_payload(Payload::Received {
                    chunk,
                    offset: 0,
                    len,
                });
                back.push_part(payload, 0, len);
            } else {
                back.push_bytes(&chunk);
            }
            echoed += len;
            if back.len() > 6 << 20 {
                reactor.send(&socket, 2, std::mem::take(&mut back), SendEnd::Wakes);
                all_received.send(()).unwrap();
                assert!(matches!(
                    event(&mut reactor),
                    Event::Sent {
                        token: 2,
                        result: Ok(()),
                        ..
                    }
                ));
            }
        }
        reactor.send(&socket, 2, back, SendEnd::Wakes);
        all_received.send(()).unwrap();
        assert!(matches!(
            event(&mut reactor),
            Event::Sent { result: Ok(()), .. }
        ));
        write.join().unwrap();
        read.join().unwrap();
        assert_eq!(reactor.in_flight(), 0);
    }
}

#[test]
fn a_message_of_more_parts_than_one_call_takes_arrives_in_order() {
    let mut reactor = reactor();
    let (socket, mut peer) = connection();
    let mut long = Message::default();
    let data = long.push_payload(pattern(10_000).into());
    for n in 0..2_500 {
        long.push_bytes(&[0xee]);
        long.push_part(data, n * 4, 3);
    }
    assert_eq!(long.part_count(), 5_000);
    let expected = long.to_vec();
    reactor.send(&socket, 7, long, SendEnd::Wakes);
    match event(&mut reactor) {
        Event::Sent {
            token: 7,
            message,
            result,
            ..
        } => {
            result.unwrap();
            assert_eq!(message.to_vec(), expected, "the message comes back whole");
        }
        other => panic!("{other:?}"),
    }
    let mut got = vec![0; expected.len()];
    peer.read_exact(&mut got).unwrap();
    assert!(got == expected);
}

#[test]
fn receive_exact_fills_its_range_and_nothing_else() {
    let mut reactor = reactor();
    let (socket, mut peer) = connection();
    let mut buffer = reactor.pool().allocate(100).unwrap();
    buffer.fill(0xff);
    reactor.receive_exact(&socket, 3, buffer, 10..20);
    peer.write_all(b"01234").unwrap();
    expect_quiet(&mut reactor);
    peer.write_all(b"56789next").unwrap();
    match event(&mut reactor) {
        Event::ReceivedExact {
            token: 3,
            buffer,
            result: Ok(10),
        } => {
            assert_eq!(&buffer[10..20], b"0123456789");
            assert!(buffer[..10].iter().chain(&buffer[20..]).all(|&b| b == 0xff));
        }
        other => panic!("{other:?}"),
    }
    reactor.receive(&socket, 4);
    assert_eq!(&received(event(&mut reactor)).chunk[..], b"next");
}

/// Threads by which the kernel waits for what is under way on the ring of this thread.
fn kernel_threads() -> usize {
    let name = format!("iou-wrk-{}", rustix::thread::gettid().as_raw_nonzero());
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
    names
        .filter(|one| one.as_ref().is_ok_and(|one| one.trim_end() == name))
        .count()
}

#[test]
fn what_comes_in_many_pieces_takes_no_thread_of_the_kernel() {
    const LEN: usize = 2000;
    let mut reactor = reactor();
    let (socket, mut peer) = connection();
    peer.set_nodelay(true).unwrap();
    let buffer = reactor.pool().allocate(LEN).unwrap();
    reactor.receive_exact(&socket, 3, buffer, 0..LEN);
    let (sent, mut events) = (pattern(LEN), Vec::new());
    for byte in &sent {
        assert!(events.is_empty(), "{events:?}");
        peer.write_all(&[*byte]).unwrap();
        reactor.turn(Wait::Poll, &mut events).unwrap();
    }
    if events.is_empty() {
        events.push(event(&mut reactor));
    }
    // Now one that had waited for the rest would have its name.
    assert_eq!(kernel_threads(), 0);
    match &events[..] {
        [
            Event::ReceivedExact {
                buffer,
                result: Ok(LEN),
                ..
            },
        ] => assert_eq!(buffer[..], sent),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_taken_in_many_pieces_takes_no_thread_of_the_kernel() {
    const LEN: usize = 1 << 20;
    let mut reactor = reactor();
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    // The connection gets a small window from it.
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 1).unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&ours, 1).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    peer.set_nonblocking(true).unwrap();
    let socket = Socket::new(ours.into()).unwrap();
    let mut message = Message::default();
    message.push_bytes(&pattern(LEN));
    reactor.send(&socket, 1, message, SendEnd::Wakes);
    let (mut got, mut events) = (vec![0; LEN], Vec::new());
    let deadline = reactor.now() + HANG;
    let mut at = 0;
    while at < LEN {
        reactor.turn(Wait::Poll, &mut events).unwrap();
        match peer.read(&mut got[at..LEN.min(at + 1024)]) {
            Ok(len) => at += len,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert_eq!(kernel_threads(), 0, "after {at} bytes");
        assert!(
            reactor.now() < deadline,
            "nothing more comes after {at} bytes"
        );
    }
    assert!(got == pattern(LEN));
}

#[test]
fn receive_exact_is_short_when_the_stream_ends_and_at_once_when_nothing_is_asked() {
    let mut reactor = reactor();
    let (socket, mut peer) = connection();
    for (range, came) in [(0..0, 0), (0..10, 3)] {
        let buffer = reactor.pool().allocate(10).unwrap();
        reactor.receive_exact(&socket, 3, buffer, range);
        if came > 0 {
            peer.write_all(b"abc").unwrap();
            peer.shutdown(std::net::Shutdown::Write).unwrap();
        }
        match event(&mut reactor) {
            Event::ReceivedExact { result, .. } => assert_eq!(result, Ok(came)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_end_of_the_stream_is_a_receive_of_nothing() {
    let mut reactor = reactor();
    let (socket, mut peer) = connection();
    reactor.receive(&socket, 1);
    peer.write_all(b"last words").unwrap();
    drop(peer);
    assert_eq!(&received(event(&mut reactor)).chunk[..], b"last words");
    for _ in 0..20 {
        reactor.receive(&socket, 1);
        let Received { chunk, len, more } = received(event(&mut reactor));
        assert_eq!((len, chunk.len(), more), (0, 0, false));
    }
}

#[test]
fn a_reset_is_an_error_of_receive_and_of_send() {
    let mut reactor = reactor();
    let (socket, peer) = connection();
    // Closing with unread data resets the connection.
    reactor.send(&socket, 1, message(b"unread"), SendEnd::Wakes);
    assert!(matches!(
        event(&mut reactor),
        Event::Sent { result: Ok(()), .. }
    ));
    reactor.receive(&socket, 2);
    expect_quiet(&mut reactor);
    drop(peer);
    match event(&mut reactor) {
        Event::Received { result, .. } => assert_eq!(result.unwrap_err(), Errno::CONNRESET),
        other => panic!("{other:?}"),
    }
    reactor.send(&socket, 3, message(b"too late"), SendEnd::Wakes);
    match event(&mut reactor) {
        Event::Sent {
            message, result, ..
        } => {
            assert_eq!(result, Err(Errno::PIPE));
            assert_eq!(message.to_vec(), b"too late");
        }
        other => panic!("{other:?}"),
    }
}

/// Only the next event brings the end of a send that nobody waits for, and it comes first.
#[test]
fn an_end_that_nobody_waits_for_wakes_nobody() {
    let mut reactor = reactor();
    let (socket, mut peer) = connection();
    for n in 0..20 {
        let text = [n; 100];
        reactor.receive(&socket, 2);
        reactor.send(&socket, 1, message(&text), SendEnd::Waits);
        let mut came = [0; 100];
        let reader = thread::spawn({
            let mut peer = peer.try_clone().unwrap();
            move || {
                peer.read_exact(&mut came).unwrap();
                peer.write_all(b"go on").unwrap();
                came
            }
        });
        let mut came = events(&mut reactor).into_iter();
        match came.next() {
            Some(Event::Sent {
                token: 1,
                message,
                result: Ok(()),
                at_once: true,
            }) => assert_eq!(message.to_vec(), text),
            other => panic!("{other:?}"),
        }
        let answer = came.next().unwrap_or_else(|| event(&mut reactor));
        assert_eq!(received(answer).len, 5);
        assert_eq!(reader.join().unwrap(), text);
        assert_eq!(reactor.in_flight(), 0);
    }
    // No event of its own, while nothing else happens.
    reactor.send(&socket, 1, message(b"last"), SendEnd::Waits);
    let soon = reactor.clock() + Duration::from_millis(50);
    let mut events = Vec::new();
    reactor.turn(Wait::Until(soon), &mut events).unwrap();
    assert!(reactor.now() >= soon, "nothing has woken it: {events:?}");
    assert_eq!(events.len(), 1);
    peer.read_exact(&mut [0; 4]).unwrap();
}

/// The socket has not room for all of it, so the rest is sent as any message is.
#[test]
fn a_message_without_room_is_sent_whole_and_its_end_wakes() {
    let mut reactor = reactor();
    for parts in [1, 4_000] {
        let (socket, mut peer) = connection();
        let mut long = Message::default();
        let data = long.push_payload(pattern(16 << 20).into());
        let len = (16 << 20) / parts;
        for n in 0..parts {
            long.push_part(data, n * len, len);
        }
        let expected = long.to_vec();
        reactor.send(&socket, 1, long, SendEnd::Waits);
        expect_quiet(&mut reactor);
        let reader = thread::spawn(move || {
            let mut came = vec![0; expected.len()];
            peer.read_exact(&mut came).unwrap();
            assert_eq!(came, expected);
            peer
        });
        match event(&mut reactor) {
            Event::Sent {
                result, at_once, ..
            } => assert_eq!((result, at_once), (Ok(()), false)),
            other => panic!("{other:?}"),
        }
        drop(reader.join().unwrap());
        assert_eq!(reactor.in_flight(), 0);
    }
}

#[test]
fn a_send_that_fails_wakes_even_where_nobody_waits_for_its_end() {
    let mut reactor = reactor();
    let (socket, _peer) = connection();
    socket.shutdown();
    reactor.send(&socket, 3, message(b"too late"), SendEnd::Waits);
    match event(&mut reactor) {
        Event::Sent {
            message, result, ..
        } => {
            assert_eq!(result, Err(Errno::PIPE));
            assert_eq!(message.to_vec(), b"too late");
        }
        other => panic!("{other:?}"),
    }
    // A reactor that ends has it all back.
    let (socket, _peer) = connection();
    reactor.send(&socket, 4, message(b"the end"), SendEnd::Waits);
    drop(reactor);
    assert!(socket.park().is_ok());
}

#[test]
fn more_is_said_when_a_chunk_left_something_behind() {
    let mut reactor = Reactor::new(&Settings {
        receive_chunk_bytes: 8192,
        ..settings()
    })
    .unwrap();
    let (socket, mut peer) = connection();
    peer.write_all(&pattern(8193)).unwrap();
    let mut got = Vec::new();
    // The loopback delivers in one piece or in two; either way the last says there is no more.
    loop {
        reactor.receive(&socket, 1);
        let Received { chunk, more, .. } = received(event(&mut reactor));
        got.extend_from_slice(&chunk);
        if got.len() == 8193 {
            assert!(!more);
            break;
        }
        assert!(got.len() < 8192 || more);
    }
    assert_eq!(got, pattern(8193));
    // Armed on an empty socket that said so, and data comes later.
    reactor.receive(&socket, 2);
    expect_quiet(&mut reactor);
    peer.write_all(b"x").unwrap();
    assert_eq!(received(event(&mut reactor)).len, 1);
}

#[test]
fn a_cancelled_receive_ends_and_loses_nothing() {
    let mut reactor = reactor();
    let (socket, mut peer) = connection();
    let id = reactor.receive(&socket, 9);
    expect_quiet(&mut reactor);
    reactor.cancel(id);
    reactor.cancel(id);
    match event(&mut reactor) {
        Event::Received { token: 9, result } => {
            assert_eq!(result.unwrap_err(), Errno::CANCELED);
        }
        other => panic!("{other:?}"),
    }
    reactor.cancel(id);
    expect_quiet(&mut reactor);

    peer.write_all(b"after").unwrap();
    reactor.receive(&socket, 10);
    assert_eq!(&received(event(&mut reactor)).chunk[..], b"after");
    assert!(socket.park().is_ok(), "the reactor no longer uses it");
}

#[test]
fn a_cancelled_receive_exact_and_send_give_their_memory_back() {
    let mut reactor = reactor();
    let (socket, mut peer) = connection();
    let free = reactor.pool().free_bytes();
    let buffer = reactor.pool().allocate(1 << 20).unwrap();
    let receive = reactor.receive_exact(&socket, 1, buffer, 0..1 << 20);
    peer.write_all(b"some").unwrap();
    let mut long = Message::default();
    long.push_zeros(64 << 20);
    let send = reactor.send(&socket, 2, long, SendEnd::Wakes);
    expect_quiet(&mut reactor);
    reactor.cancel(receive);
    reactor.cancel(send);
    let mut ended = 0;
    while ended < 2 {
        for event in events(&mut reactor) {
            match event {
                Event::ReceivedExact { result, .. } => {
                    // The kernel may report the bytes that came, or the cancel.
                    assert!(matches!(result, Ok(4) | Err(Errno::CANCELED)), "{result:?}");
                }
                Event::Sent {
                    result, message, ..
                } => {
                    assert_eq!(result, Err(Errno::CANCELED));
                    assert_eq!(message.len(), 64 << 20);
                }
                other => panic!("{other:?}"),
            }
            ended += 1;
        }
    }
    assert_eq!(reactor.pool().free_bytes(), free);
}

#[test]
fn shutdown_ends_what_is_under_way() {
    let mut reactor = reactor();
    let (socket, _peer) = connection();
    reactor.receive(&socket, 1);
    expect_quiet(&mut reactor);
    socket.shutdown();
    assert_eq!(received(event(&mut reactor)).len, 0);
}

/// With every chunk held and the pool empty, data waits in the socket, no event and no spinning;
/// one chunk dropped brings it.
#[test]
fn receives_without_a_chunk_wait_for_one_and_can_be_cancelled_meanwhile() {
    let mut reactor = reactor();
    let (socket, mut peer) = connection();
    let (other, mut other_peer) = connection();
    let mut rest = Vec::new();
    while let Ok(buffer) = reactor.pool().allocate(PIECE_BYTES) {
        rest.push(buffer);
    }
    let mut held = Vec::new();
    for n in 0..4u8 {
        peer.write_all(&[n]).unwrap();
        reactor.receive(&socket, 1);
        held.push(received(event(&mut reactor)).chunk);
    }
    peer.write_all(b"waits").unwrap();
    other_peer.write_all(b"waits too").unwrap();
    reactor.receive(&socket, 2);
    let second = reactor.receive(&other, 3);
    expect_quiet(&mut reactor);
    assert_eq!(reactor.in_flight(), 2);
    assert!(held.iter().zip(0..).all(|(chunk, n)| chunk[..] == [n]));

    reactor.cancel(second);
    match event(&mut reactor) {
        Event::Received { token: 3, result } => {
            assert_eq!(result.unwrap_err(), Errno::CANCELED);
        }
        other => panic!("{other:?}"),
    }
    held.pop();
    assert_eq!(&received(event(&mut reactor)).chunk[..], b"waits");

    // Or room in the pool brings it, while chunks are still held.
    rest.clear();
    reactor.receive(&other, 4);
    assert_eq!(&received(event(&mut reactor)).chunk[..], b"waits too");
}

#[test]
fn far_more_operations_than_the_ring_holds_all_end() {
    let mut reactor = reactor();
    let mut connections: Vec<_> = (0..200).map(|_| connection()).collect();
    for (token, (socket, _)) in (0..).zip(&connections) {
        reactor.receive(socket, token);
    }
    expect_quiet(&mut reactor);
    for (_, peer) in &mut connections {
        peer.write_all(b"!").unwrap();
    }
    let mut seen = vec![false; connections.len()];
    while seen.contains(&false) {
        for event in events(&mut reactor) {
            match event {
                Event::Received { token, result } => {
                    assert_eq!(result.unwrap().len, 1);
                    let first =
                        !std::mem::replace(&mut seen[usize::try_from(token).unwrap()], true);
                    assert!(first, "{token} came twice");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(reactor.in_flight(), 0);
}

#[test]
fn dropping_the_reactor_takes_all_memory_back_from_the_kernel() {
    let mut reactor = reactor();
    let pool = reactor.pool().clone();
    let (socket, mut peer) = connection();
    reactor.receive(&socket, 1);
    let (exact, _peer) = connection();
    let buffer = pool.allocate(1 << 20).unwrap();
    reactor.receive_exact(&exact, 2, buffer, 0..1 << 20);
    expect_quiet(&mut reactor);
    reactor.receive(&socket, 3); // not even submitted yet
    drop(reactor);
    assert_eq!(pool.free_bytes(), pool.capacity_bytes());

    // The socket is still its owner's.
    assert!(socket.park().is_ok());
    assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_turn_comes_back_at_its_deadline_and_not_before() {
    let mut reactor = reactor();
    let (socket, _peer) = connection();
    reactor.receive(&socket, 1);
    let mut events = Vec::new();
    reactor
        .turn(Wait::Until(Duration::ZERO), &mut events)
        .unwrap();
    let deadline = reactor.now() + Duration::from_millis(20);
    // Early returns without an event are allowed, so ask until the time has come.
    while reactor.now() < deadline {
        reactor.turn(Wait::Until(deadline), &mut events).unwrap();
    }
    assert!(events.is_empty(), "{events:?}");
}

#[test]
fn what_waits_for_a_window_or_was_dropped_by_a_reset_is_not_acknowledged() {
    const LEN: usize = 8 << 20;
    let mut reactor = reactor();
    let (socket, mut peer) = connection();
    assert!(socket.is_acknowledged(), "nothing was sent");
    let mut long = Message::default();
    long.push_bytes(&pattern(LEN));
    reactor.send(&socket, 1, long, SendEnd::Wakes);
    let (mut got, mut events) = (vec![0; LEN], Vec::new());
    reactor.turn(Wait::Poll, &mut events).unwrap();
    assert!(!socket.is_acknowledged(), "no window is so large");
    let reader = thread::spawn(move || {
        peer.read_exact(&mut got).unwrap();
        peer
    });
    let sent = events.pop().unwrap_or_else(|| event(&mut reactor));
    assert!(matches!(sent, Event::Sent { .. }), "{sent:?}");
    let peer = reader.join().unwrap();
    let deadline = reactor.now() + HANG;
    while !socket.is_acknowledged() {
        assert!(reactor.now() < deadline, "the peer has had all");
        thread::yield_now();
        reactor.turn(Wait::Poll, &mut events).unwrap();
    }
    // It is gone, so that what comes now is answered by a reset.
    drop(peer);
    reactor.send(&socket, 1, message(b"late"), SendEnd::Wakes);
    let sent = event(&mut reactor);
    assert!(matches!(sent, Event::Sent { .. }), "{sent:?}");
    reactor.receive(&socket, 2);
    event(&mut reactor);
    assert!(!socket.is_acknowledged(), "nobody has had it");
}
