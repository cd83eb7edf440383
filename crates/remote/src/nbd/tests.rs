//! Handles against a server in memory, step by step, in a time of its own.

use std::collections::HashMap;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use memory::{Payload, Pool};
use nbd::{Export, TransmissionFlags};
use store::{
    Backstore, Connections, Extent, IoAnswer, IoFailure, IoRequest, IoResult, IoTag, Order, Outlet,
    SharedStore, SocketResult, SocketTag, SocketWork, Submitted, Waker,
};

mod data;
mod flushes;
mod opening;
mod server;
mod tls;

use self::server::{Connection, Server};
use self::tls::TlsPair;
use super::disk::{LOSSES_MAX, NbdDisk};
use super::options::{NbdOptions, NbdServer};
use super::tls::Tls;

const SIZE: usize = 1 << 20;
/// Flush, FUA, trim, zeros.
const CAN_ALL: u16 = 0x6d;
const CAN_MULTI_CONN: u16 = 1 << 8;
/// No test has more without a timer.
const STEPS_MAX: u32 = 100_000;
const RETRY: Duration = Duration::from_secs(20);

#[derive(Debug)]
struct Core {
    handle: Box<dyn Backstore>,
    outlet: Outlet,
    connections: HashMap<SocketTag, Connection>,
    receives: HashMap<SocketTag, (u64, SocketWork)>,
    timers: Vec<(Duration, u64)>,
    wake: Arc<AtomicBool>,
    answers: HashMap<IoTag, IoResult>,
    reports: Vec<bool>,
}

/// Handles, the server, and what is between them.
struct World {
    disk: Arc<dyn SharedStore>,
    cores: Vec<Core>,
    server: Server,
    pool: Pool,
    path: PathBuf,
    listener: Option<UnixListener>,
    now: Duration,
    tags: u64,
}

impl Drop for World {
    fn drop(&mut self) {
        self.go_down();
    }
}

struct Wishes {
    cores: usize,
    flags: u16,
    has_chunks: bool,
    payload_max: u32,
    retry: Duration,
    tls: Option<TlsPair>,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            cores: 1,
            flags: CAN_ALL,
            has_chunks: true,
            payload_max: 1 << 25,
            retry: RETRY,
            tls: None,
        }
    }
}

impl World {
    fn new(wishes: Wishes) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tarn-nbd-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let Wishes {
            cores,
            flags,
            has_chunks,
            payload_max,
            retry,
            tls,
        } = wishes;
        let client_tls = tls.as_ref().map(|pair| Tls::new(&pair.options).unwrap());
        let options = NbdOptions {
            server: NbdServer::Unix(path.clone()),
            export: String::new(),
            tls: tls.as_ref().map(|pair| pair.options.clone()),
            connections: 2,
            cores,
            retry,
            read_only: false,
            thin: true,
            block_bytes: 512,
            own: Arc::default(),
        };
        let export = Export {
            size_bytes: SIZE as u64,
            flags: TransmissionFlags(flags),
            block_min_bytes: 512,
            block_preferred_bytes: 4096,
            payload_max_bytes: payload_max,
            has_structured_replies: has_chunks,
            allocation_context: has_chunks.then_some(1),
        };
        let mut world = Self {
            disk: Arc::new(NbdDisk::new(options, export, client_tls)),
            cores: Vec::new(),
            server: Server::new(flags, has_chunks, payload_max),
            pool: Pool::new(16 << 20).unwrap(),
            path,
            listener: None,
            now: Duration::ZERO,
            tags: 0,
        };
        world.server.tls = tls.as_ref().map(|pair| Arc::clone(&pair.server));
        world.come_up();
        for _ in 0..cores {
            let wake = Arc::new(AtomicBool::new(false));
            let mut core = Core {
                handle: world.disk.handle().unwrap(),
                outlet: Outlet::default(),
                connections: HashMap::new(),
                receives: HashMap::new(),
                timers: Vec::new(),
                wake: Arc::clone(&wake),
                answers: HashMap::new(),
                reports: Vec::new(),
            };
            let waker = move || {
                let wake = Arc::clone(&wake);
                Waker::new(move || wake.store(true, Ordering::SeqCst))
            };
            core.handle.start(&waker, &mut core.outlet);
            world.cores.push(core);
        }
        world
    }

    fn come_up(&mut self) {
        self.listener = Some(UnixListener::bind(&self.path).unwrap());
    }

    fn go_down(&mut self) {
        if self.listener.take().is_some() {
            std::fs::remove_file(&self.path).unwrap();
        }
    }

    fn submit(&mut self, core: usize, request: IoRequest) -> IoTag {
        self.tags += 1;
        let tag = IoTag(self.tags);
        let core = &mut self.cores[core];
        match core.handle.submit(tag, request, &mut core.outlet) {
            Submitted::Done(result) => drop(core.answers.insert(tag, result)),
            Submitted::Taken => {}
        }
        tag
    }

    /// Goes on until nothing happens any more.
    fn run(&mut self) {
        let mut steps = 0;
        while (0..self.cores.len()).any(|core| self.step(core)) {
            steps += 1;
            assert!(steps < STEPS_MAX, "there is no end to it");
        }
    }

    /// Lets time pass, timer by timer.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.run();
            let timers = self.cores.iter().enumerate();
            let timers =
                timers.flat_map(|(core, it)| it.timers.iter().map(move |t| (t.0, core, t.1)));
            let Some((at, core, number)) = timers.min().filter(|next| next.0 <= end) else {
                break;
            };
            self.now = at;
            let core = &mut self.cores[core];
            core.timers.retain(|timer| *timer != (at, number));
            core.handle.handle_timer(number, &mut core.outlet);
        }
        self.now = end;
    }

    fn step(&mut self, core: usize) -> bool {
        let core = &mut self.cores[core];
        let mut has_moved = false;
        if core.wake.swap(false, Ordering::SeqCst) {
            core.handle.handle_wake(&mut core.outlet);
            has_moved = true;
        }
        while let Some(order) = core.outlet.next_order() {
            core.carry_out(order, self.now);
            has_moved = true;
        }
        let sockets: Vec<SocketTag> = core.connections.keys().copied().collect();
        for socket in sockets {
            let connection = core.connections.get_mut(&socket).unwrap();
            has_moved |= self.server.step(connection);
            has_moved |= core.deliver(socket, &self.pool);
        }
        has_moved
    }

    fn answer(&mut self, core: usize, tag: IoTag) -> Option<IoResult> {
        self.run();
        self.cores[core].answers.remove(&tag)
    }

    fn write(&mut self, core: usize, offset: u64, byte: u8, len: usize, durable: bool) -> IoTag {
        let mut buffer = self.pool.allocate(len).unwrap();
        buffer.fill(byte);
        let data = Payload::Pool(buffer);
        let request = IoRequest::Write {
            offset,
            data,
            durable,
        };
        self.submit(core, request)
    }

    fn read(&mut self, core: usize, offset: u64, len: usize) -> IoTag {
        let buffer = Some(self.pool.allocate(len).unwrap());
        let request = IoRequest::Read {
            offset,
            len,
            buffer,
        };
        self.submit(core, request)
    }

    fn read_now(&mut self, core: usize, offset: u64, len: usize) -> Vec<u8> {
        let tag = self.read(core, offset, len);
        match self.answer(core, tag) {
            Some(Ok(IoAnswer::Data(data))) => data.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    fn flush_now(&mut self, core: usize) -> Result<(), IoFailure> {
        let tag = self.submit(core, IoRequest::Flush);
        self.answer(core, tag).unwrap().map(drop)
    }

    /// How often the store says that it may have lost something, and each core of it the same.
    fn lost(&self) -> u64 {
        let mut all = self
            .cores
            .iter()
            .map(|core| core.handle.durability().lost.unwrap());
        let lost = all.next().unwrap();
        assert!(all.all(|other| other == lost));
        lost
    }

    fn is_good(&mut self, core: usize, tag: IoTag) -> bool {
        matches!(self.answer(core, tag), Some(Ok(_)))
    }
}

impl Core {
    fn carry_out(&mut self, order: Order, now: Duration) {
        match order {
            Order::Answer { tag, result } => {
                let before = self.answers.insert(tag, result);
                assert!(before.is_none(), "{tag:?} is answered twice");
            }
            Order::Helper { part, operation } => {
                let result = (operation.work)();
                self.handle
                    .handle_helper_result(part, result, &mut self.outlet);
            }
            Order::OpenSocket { socket, .. } => {
                let before = self.connections.insert(socket, Connection::default());
                assert!(before.is_none());
            }
            Order::Socket {
                socket,
                number,
                work,
            } => match (self.connections.get_mut(&socket), work) {
                (None, work) => {
                    let result = work.fail(107);
                    self.handle
                        .handle_socket(socket, number, result, &mut self.outlet);
                }
                (Some(connection), SocketWork::Send(message)) => {
                    connection.receive(&message.to_vec());
                    let result = SocketResult::Sent {
                        message,
                        result: Ok(()),
                    };
                    self.handle
                        .handle_socket(socket, number, result, &mut self.outlet);
                }
                (Some(_), work) => {
                    let before = self.receives.insert(socket, (number, work));
                    assert!(before.is_none(), "two receives at a time");
                }
            },
            Order::CloseSocket(socket) => {
                self.connections.remove(&socket);
                self.end_receive(socket, 125);
            }
            Order::Timer { number, after } => self.timers.push((now + after, number)),
            Order::Size => drop(self.handle.refresh_size()),
            Order::Reach { is_reached } => self.reports.push(is_reached),
            other @ (Order::Ring { .. }
            | Order::HeldElsewhere { .. }
            | Order::CancelParts(_)
            | Order::CancelPart(_)) => {
                panic!("{other:?}")
            }
        }
    }

    fn end_receive(&mut self, socket: SocketTag, errno: i32) {
        if let Some((number, work)) = self.receives.remove(&socket) {
            let result = work.fail(errno);
            self.handle
                .handle_socket(socket, number, result, &mut self.outlet);
        }
    }

    /// Gives what the server sent, in pieces.
    fn deliver(&mut self, socket: SocketTag, pool: &Pool) -> bool {
        let Some(connection) = self.connections.get_mut(&socket) else {
            return false;
        };
        let output = &mut connection.line;
        let is_ready = |work: &SocketWork| match work {
            SocketWork::ReceiveExact { range, .. } => output.len() >= range.len(),
            SocketWork::Receive | SocketWork::Send(_) => !output.is_empty(),
        };
        if !self
            .receives
            .get(&socket)
            .is_some_and(|(_, work)| is_ready(work))
        {
            return false;
        }
        let (number, work) = self.receives.remove(&socket).unwrap();
        let result = match work {
            SocketWork::ReceiveExact { mut buffer, range } => {
                let count = range.len();
                let bytes: Vec<u8> = output.drain(..count).collect();
                buffer[range].copy_from_slice(&bytes);
                let result = Ok(count);
                SocketResult::ReceivedExact { buffer, result }
            }
            SocketWork::Receive => {
                let count = output.len().min(1000);
                let bytes: Vec<u8> = output.drain(..count).collect();
                let mut chunk = pool.allocate(4096).unwrap();
                chunk[..count].copy_from_slice(&bytes);
                SocketResult::Received(Ok((Rc::new(chunk), count)))
            }
            SocketWork::Send(_) => unreachable!(),
        };
        self.handle
            .handle_socket(socket, number, result, &mut self.outlet);
        true
    }
}

#[test]
fn every_request_does_what_it_says() {
    // The connection is that of core 0.
    for (has_chunks, core) in [(true, 0), (false, 0), (true, 1), (false, 1)] {
        let mut world = World::new(Wishes {
            cores: 2,
            has_chunks,
            ..Wishes::default()
        });
        let write = world.write(core, 4096, 7, 8192, false);
        assert!(world.is_good(core, write));
        assert_eq!(world.read_now(core, 4096, 8192), vec![7; 8192]);
        let range = 8192..12288;
        let unmap = world.submit(core, IoRequest::Unmap { range });
        assert!(world.is_good(core, unmap));
        let zeros = IoRequest::WriteZeros {
            range: 0..512,
            durable: true,
        };
        let zeros = world.submit(core, zeros);
        assert!(world.is_good(core, zeros));
        assert_eq!(world.read_now(core, 8192, 512), vec![0; 512]);
        assert_eq!(world.flush_now(core), Ok(()));
        assert_eq!(world.server.log, "wrzz!rf");
        let request = IoRequest::Extents {
            range: 0..16384,
            count_max: 3,
        };
        let tag = world.submit(core, request);
        let Some(Ok(IoAnswer::Extents(extents))) = world.answer(core, tag) else {
            panic!("extents were expected");
        };
        let extent = |range, mapped| Extent { range, mapped };
        let expected = match has_chunks {
            true => vec![
                extent(0..4096, false),
                extent(4096..8192, true),
                extent(8192..16384, false),
            ],
            false => vec![extent(0..16384, true)],
        };
        assert_eq!(extents, expected);
    }
}

#[test]
fn long_transfers_are_cut_and_go_straight_into_their_buffer() {
    for payload_max in [1 << 25, 32 << 10] {
        let mut world = World::new(Wishes {
            payload_max,
            ..Wishes::default()
        });
        for (block, byte) in (0..16).zip(1..) {
            let write = world.write(0, block * 16384, byte, 16384, false);
            assert!(world.is_good(0, write));
        }
        let write = world.write(0, 16 * 16384, 99, 200 << 10, true);
        assert!(world.is_good(0, write));
        let bytes = world.read_now(0, 512, 300 << 10);
        for (at, byte) in bytes.iter().enumerate() {
            let expected = match (at + 512) / 16384 {
                block @ 0..16 => u8::try_from(block + 1).unwrap(),
                _ => 99,
            };
            assert_eq!(*byte, expected, "at {at}");
        }
    }
}

#[test]
fn a_durable_write_is_flushed_where_the_server_cannot_write_so() {
    let mut world = World::new(Wishes {
        flags: CAN_ALL & !8,
        ..Wishes::default()
    });
    let write = world.write(0, 0, 1, 512, true);
    assert!(world.is_good(0, write));
    assert_eq!(world.server.log, "wf");
    assert_eq!(world.server.stable[0], 1);
}

#[test]
fn requests_outlast_a_lost_connection() {
    let mut world = World::new(Wishes::default());
    world.run();
    world.server.is_silent = true;
    let write = world.write(0, 0, 1, 65536, true);
    let read = world.read(0, 1 << 19, 32768);
    world.run();
    world.crash();
    let late = world.write(0, 1 << 18, 2, 512, true);
    world.pass(Duration::from_secs(10));
    assert!(world.cores[0].answers.is_empty());
    let away = Connections {
        up: 0,
        again: 0,
        held: 3,
    };
    assert_eq!(world.disk.connections(), Some(away));
    world.server.is_silent = false;
    world.come_up();
    world.pass(Duration::from_secs(2));
    for tag in [write, read, late] {
        assert!(world.is_good(0, tag));
    }
    assert_eq!(world.server.stable[65535], 1);
    assert_eq!(world.server.stable[1 << 18], 2);
    assert_eq!(world.flush_now(0), Ok(()), "nothing was lost");
    let back = world.disk.connections().unwrap();
    assert_eq!((back.up, back.held), (back.again, 0), "each was made again");
    assert!(back.up > 0);
}

#[test]
fn an_outage_that_lasts_too_long_fails_what_waits_and_what_comes() {
    for (retry, wait) in [(RETRY, RETRY), (Duration::ZERO, Duration::ZERO)] {
        let mut world = World::new(Wishes {
            retry,
            ..Wishes::default()
        });
        assert!(
            world
                .disk
                .outage()
                .unwrap()
                .ends_with("no connection was made yet")
        );
        world.run();
        assert_eq!(world.disk.outage(), None);
        world.server.is_silent = true;
        let sent = world.read(0, 0, 512);
        world.run();
        world.crash();
        let waits = world.read(0, 0, 512);
        world.pass(wait);
        let late = world.read(0, 0, 512);
        for tag in [sent, waits, late] {
            let answer = world.answer(0, tag);
            assert!(
                matches!(answer, Some(Err(IoFailure::NotReady))),
                "{answer:?}"
            );
        }
        world.pass(Duration::from_secs(1));
        let outage = world.disk.outage().unwrap();
        assert!(outage.ends_with("No such file or directory"), "{outage}");
        assert_eq!(world.cores[0].reports, [false]);
        world.server.is_silent = false;
        world.come_up();
        world.pass(Duration::from_secs(3));
        assert_eq!(world.read_now(0, 0, 512), vec![0; 512]);
        assert_eq!(world.disk.outage(), None);
        assert_eq!(world.cores[0].reports, [false, true]);
    }
}

#[test]
fn a_server_that_breaks_off_at_once_is_tried_once_a_second() {
    let mut world = World::new(Wishes {
        retry: Duration::ZERO,
        ..Wishes::default()
    });
    for _ in 0..30 {
        world.pass(Duration::from_millis(100));
        world.crash();
        world.come_up();
    }
    let reports = &world.cores[0].reports;
    assert!((2..=7).contains(&reports.len()), "{reports:?}");
    world.pass(Duration::from_secs(3));
    assert!(world.cores[0].reports.ends_with(&[true]));
}

#[test]
fn what_a_crash_may_have_dropped_is_counted() {
    let mut world = World::new(Wishes::default());
    let write = world.write(0, 0, 1, 512, false);
    assert!(world.is_good(0, write));
    assert_eq!(world.flush_now(0), Ok(()));
    world.crash();
    world.come_up();
    world.pass(Duration::from_secs(3));
    assert_eq!(world.flush_now(0), Ok(()));
    assert_eq!(world.lost(), 0, "it was flushed before");
    let write = world.write(0, 512, 2, 512, false);
    assert!(world.is_good(0, write));
    world.crash();
    world.come_up();
    world.pass(Duration::from_secs(3));
    assert_eq!(world.lost(), 1);
    assert_eq!(world.flush_now(0), Ok(()));
    world.crash();
    world.come_up();
    world.pass(Duration::from_secs(3));
    assert_eq!(world.lost(), 1, "nothing was written since");
}

#[test]
fn what_is_lost_under_a_flush_is_known_when_that_is_answered() {
    let mut world = World::new(Wishes::default());
    let write = world.write(0, 0, 1, 512, false);
    assert!(world.is_good(0, write));
    world.server.is_silent = true;
    let flush = world.submit(0, IoRequest::Flush);
    world.run();
    world.crash();
    world.server.is_silent = false;
    world.come_up();
    world.pass(Duration::from_secs(3));
    assert!(world.is_good(0, flush));
    assert_eq!(world.lost(), 1, "known when the flush is answered");
}

#[test]
fn cores_share_the_connection_of_a_server_that_allows_one() {
    for (flags, connections) in [(CAN_ALL, 1), (CAN_ALL | CAN_MULTI_CONN, 2)] {
        let mut world = World::new(Wishes {
            cores: 3,
            flags,
            ..Wishes::default()
        });
        for (core, byte) in (0..3).zip(1..) {
            let write = world.write(core, 4096 * core as u64, byte, 40_960, false);
            assert!(world.is_good(core, write));
        }
        for core in 0..3 {
            let bytes = world.read_now(core, 0, 32768);
            assert_eq!([bytes[0], bytes[4096], bytes[8192]], [1, 2, 3]);
            assert_eq!(world.flush_now(core), Ok(()));
        }
        assert_eq!(world.server.connections, connections);
    }
}

#[test]
fn a_core_that_is_gone_owes_nothing() {
    let mut world = World::new(Wishes {
        cores: 2,
        ..Wishes::default()
    });
    world.run();
    world.server.is_silent = true;
    let sent = world.read(1, 0, 512);
    world.run();
    let unread = world.read(1, 512, 512);
    let home = world.cores.remove(0);
    drop(home);
    let late = world.read(0, 1024, 512);
    let flush = world.submit(0, IoRequest::Flush);
    world.server.is_silent = false;
    world.pass(Duration::from_secs(1));
    for tag in [sent, unread, late, flush] {
        assert!(world.is_good(0, tag), "over a connection of its own");
    }
}

#[test]
fn a_lost_cache_is_known_when_a_flush_comes_back_from_a_core_that_is_gone() {
    let mut world = World::new(Wishes {
        cores: 2,
        ..Wishes::default()
    });
    let write = world.write(0, 0, 1, 512, false);
    assert!(world.is_good(0, write));
    world.crash();
    world.come_up();
    world.pass(Duration::from_secs(3));
    let flush = world.submit(1, IoRequest::Flush);
    let home = world.cores.remove(0);
    drop(home);
    world.pass(Duration::from_secs(1));
    assert!(world.is_good(0, flush));
    assert_eq!(world.lost(), 1);
}

#[test]
fn a_server_that_shuts_down_is_left_for_the_next() {
    let mut world = World::new(Wishes::default());
    world.run();
    world.server.error = 108;
    let write = world.write(0, 0, 1, 512, true);
    world.run();
    world.server.error = 0;
    world.pass(Duration::from_secs(2));
    assert!(world.is_good(0, write));
}

#[test]
fn a_request_that_every_connection_is_lost_for_ends() {
    let mut world = World::new(Wishes::default());
    world.run();
    world.server.error = 108;
    let write = world.write(0, 0, 1, 512, true);
    world.pass(Duration::from_secs(u64::from(LOSSES_MAX) - 2));
    assert!(!world.cores[0].answers.contains_key(&write));
    world.pass(Duration::from_secs(3));
    let answer = world.answer(0, write);
    assert!(
        matches!(answer, Some(Err(IoFailure::NotReady))),
        "{answer:?}"
    );
}

#[test]
fn what_is_lost_while_a_flush_waits_for_room_is_known_when_that_is_answered() {
    let mut world = World::new(Wishes::default());
    let write = world.write(0, 0, 1, 512, false);
    assert!(world.is_good(0, write));
    world.server.is_silent = true;
    for n in 0..128 {
        world.read(0, n * 512, 512);
    }
    let flush = world.submit(0, IoRequest::Flush);
    world.run();
    world.crash();
    world.server.is_silent = false;
    world.come_up();
    world.pass(Duration::from_secs(2));
    assert!(world.is_good(0, flush));
    assert_eq!(world.lost(), 1, "known when the flush is answered");
}

#[test]
fn a_larger_export_is_seen_by_all_cores_whichever_has_the_connection() {
    for flags in [CAN_ALL, CAN_ALL | CAN_MULTI_CONN] {
        let mut world = World::new(Wishes {
            cores: 3,
            flags,
            ..Wishes::default()
        });
        world.run();
        world.server.size += 4096;
        world.server.disk.resize(SIZE + 4096, 0);
        world.server.stable.resize(SIZE + 4096, 0);
        world.crash();
        world.come_up();
        world.pass(Duration::from_secs(2));
        for (number, core) in world.cores.iter().enumerate() {
            let size_bytes = core.handle.capabilities().size_bytes;
            assert_eq!(size_bytes, SIZE as u64 + 4096, "core {number}");
        }
    }
}

#[test]
fn a_size_that_only_some_connections_know_is_not_shown() {
    let mut world = World::new(Wishes {
        cores: 2,
        flags: CAN_ALL | CAN_MULTI_CONN,
        ..Wishes::default()
    });
    world.run();
    world.server.size += 4096;
    let size = |world: &World| world.disk.capabilities().size_bytes;
    let drop_link = |world: &mut World, core: usize| {
        let socket = *world.cores[core].connections.keys().next().unwrap();
        world.cores[core].connections.remove(&socket);
        world.cores[core].end_receive(socket, 104);
        world.pass(Duration::from_secs(2));
    };
    drop_link(&mut world, 0);
    assert_eq!(size(&world), SIZE as u64);
    drop_link(&mut world, 1);
    assert_eq!(size(&world), SIZE as u64 + 4096);
}

#[test]
fn a_cancelled_request_that_was_sent_ends_with_the_answer_of_the_server() {
    let mut world = World::new(Wishes::default());
    world.run();
    world.server.is_silent = true;
    let sent = world.write(0, 0, 1, 512, false);
    world.run();
    let core = &mut world.cores[0];
    core.handle.cancel(sent, &mut core.outlet);
    assert!(world.answer(0, sent).is_none());
    world.server.is_silent = false;
    let answer = world.answer(0, sent);
    assert!(
        matches!(answer, Some(Err(IoFailure::Cancelled))),
        "{answer:?}"
    );
    world.crash();
    let waits = world.write(0, 0, 1, 512, false);
    let core = &mut world.cores[0];
    core.handle.cancel(waits, &mut core.outlet);
    let answer = world.answer(0, waits);
    assert!(
        matches!(answer, Some(Err(IoFailure::Cancelled))),
        "{answer:?}"
    );
}

#[test]
fn errors_of_the_server_have_their_meaning() {
    for (error, failure) in [
        (5, IoFailure::Medium { offset: 4096 }),
        (28, IoFailure::NoSpace { offset: 4096 }),
        (1, IoFailure::ReadOnly),
        (22, IoFailure::Hardware { errno: 22 }),
    ] {
        let mut world = World::new(Wishes::default());
        world.server.error = error;
        let write = world.write(0, 4096, 1, 512, false);
        assert_eq!(world.answer(0, write).unwrap().unwrap_err(), failure);
    }
}

#[test]
fn a_flush_that_the_server_failed_is_remembered() {
    type Failing = fn(&mut World) -> IoTag;
    let ways: [Failing; 2] = [
        |world| world.submit(0, IoRequest::Flush),
        |world| world.write(0, 0, 1, 512, true),
    ];
    for begin in ways {
        let mut world = World::new(Wishes::default());
        world.server.error = 5;
        let failing = begin(&mut world);
        assert!(world.answer(0, failing).unwrap().is_err());
        world.server.error = 0;
        for _ in 0..2 {
            assert_eq!(world.flush_now(0), Err(IoFailure::FlushLatched));
            let durable = world.write(0, 0, 2, 512, true);
            let answer = world.answer(0, durable).unwrap();
            assert_eq!(answer.unwrap_err(), IoFailure::FlushLatched);
        }
        assert!(world.disk.is_flush_latched());
        let write = world.write(0, 0, 3, 512, false);
        assert!(world.is_good(0, write));
        assert_eq!(world.read_now(0, 0, 512), vec![3; 512]);
    }
}

#[test]
fn a_durable_write_that_the_server_refuses_costs_no_other() {
    let mut world = World::new(Wishes::default());
    world.server.error = 28;
    let write = world.write(0, 0, 1, 512, true);
    assert!(world.answer(0, write).unwrap().is_err());
    world.server.error = 0;
    assert_eq!(world.flush_now(0), Ok(()));
}

#[test]
fn an_export_that_changed_for_the_worse_is_not_used() {
    type Change = fn(&mut Server);
    let changes: [Change; 3] = [
        |server| server.size -= 512,
        |server| server.flags &= !4,
        |server| server.payload_max = 4096,
    ];
    for change in changes {
        let mut world = World::new(Wishes::default());
        world.run();
        world.crash();
        change(&mut world.server);
        world.come_up();
        let read = world.read(0, 0, 512);
        world.pass(RETRY);
        let answer = world.answer(0, read);
        assert!(
            matches!(answer, Some(Err(IoFailure::NotReady))),
            "{answer:?}"
        );
    }
}

#[test]
fn an_export_that_grew_shows_its_size_after_the_next_connection() {
    let mut world = World::new(Wishes::default());
    world.run();
    world.crash();
    world.server.size += 4096;
    world.come_up();
    world.pass(Duration::from_secs(3));
    let size_bytes = world.cores[0].handle.capabilities().size_bytes;
    assert_eq!(size_bytes, SIZE as u64 + 4096);
}

#[test]
fn a_server_that_says_nothing_is_left() {
    let mut world = World::new(Wishes::default());
    world.server.is_silent = true;
    let read = world.read(0, 0, 512);
    world.pass(Duration::from_secs(9));
    assert_eq!(world.cores[0].connections.len(), 1);
    world.pass(Duration::from_secs(1));
    assert!(world.cores[0].connections.is_empty());
    world.server.is_silent = false;
    world.pass(Duration::from_secs(2));
    assert!(world.is_good(0, read));
}

#[test]
fn a_server_that_dies_again_and_again_is_found_again() {
    for pause_ms in [300, 990, 1000, 1010, 2500] {
        let pause = Duration::from_millis(pause_ms);
        let mut world = World::new(Wishes::default());
        for byte in 1..6 {
            let write = world.write(0, 0, byte, 65536, true);
            world.pass(pause);
            world.crash();
            world.pass(pause);
            world.come_up();
            world.pass(Duration::from_secs(1));
            assert!(world.is_good(0, write), "{pause_ms} ms, {byte}");
        }
        assert_eq!(world.read_now(0, 0, 512), vec![5; 512]);
    }
}
