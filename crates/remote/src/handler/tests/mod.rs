//! Handles against a handler, in a time of their own.

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use memory::{Payload, Pool};
use rustix::event::{PollFd, PollFlags};
use store::{
    Backstore, DeviceAnswer, DeviceRequest, IoAnswer, IoFailure, IoRequest, IoResult, IoTag, Order,
    Outlet, SharedStore, SocketResult, SocketTag, SocketWork, Submitted, Waker,
};

mod emulator;

use self::emulator::Emulator;
use super::{HandlerFailure, HandlerOptions};
use crate::attendants::wait;

const RETRY: Duration = Duration::from_secs(20);
const SECOND: Duration = Duration::from_secs(1);
/// A test that waits for so long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Core {
    handle: Box<dyn Backstore>,
    outlet: Outlet,
    sockets: HashMap<SocketTag, UnixStream>,
    receives: Vec<(SocketTag, u64)>,
    timers: Vec<(Duration, u64)>,
    wake: Arc<AtomicBool>,
    answers: HashMap<IoTag, IoResult>,
    reports: Vec<bool>,
}

struct World {
    store: Arc<dyn SharedStore>,
    cores: Vec<Core>,
    emulator: Emulator,
    pool: Pool,
    now: Duration,
    tags: u64,
}

fn emulator() -> Emulator {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("tarn-handler-{}-{count}", std::process::id());
    Emulator::new(&std::env::temp_dir().join(name), &format!("S{count:03}"))
}

fn open(emulator: &Emulator, retry: Duration) -> Result<Arc<dyn SharedStore>, HandlerFailure> {
    let path = emulator.path.clone();
    let opened = HandlerOptions { path, retry }.open();
    opened.map_err(|error| *error.reason)
}

impl World {
    fn new(cores: usize) -> Self {
        Self::of(cores, RETRY, 0)
    }

    fn of(cores: usize, retry: Duration, device_type: u8) -> Self {
        let emulator = emulator();
        emulator.with(|rules| rules.device_type = device_type);
        let mut world = Self {
            store: open(&emulator, retry).unwrap(),
            cores: Vec::new(),
            emulator,
            pool: Pool::new(32 << 20).unwrap(),
            now: Duration::ZERO,
            tags: 0,
        };
        for _ in 0..cores {
            let wake = Arc::new(AtomicBool::new(false));
            let mut core = Core {
                handle: world.store.handle().unwrap(),
                outlet: Outlet::default(),
                sockets: HashMap::new(),
                receives: Vec::new(),
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
        world.run();
        world
    }

    /// Goes on until nothing is left to be done, unless the handler still works.
    fn run(&mut self) {
        while self
            .cores
            .iter_mut()
            .any(|core| core.step(self.now, &self.pool))
        {}
    }

    /// Goes on until this is so.
    fn until(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            self.run();
            if is_so(self) {
                return;
            }
            assert!(Instant::now() < end, "it does not happen");
            let sockets = self.cores.iter().flat_map(|core| core.sockets.values());
            let mut places: Vec<_> = sockets.map(|one| PollFd::new(one, PollFlags::IN)).collect();
            wait(&mut places, Duration::from_millis(10));
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

    /// A command of a nexus, whose last byte is this.
    fn submit(&mut self, core: usize, nexus: u64, last: u8, out: &[u8], room: usize) -> IoTag {
        self.tags += 1;
        let tag = IoTag(self.tags);
        let buffer = (room > 0).then(|| self.pool.allocate(room).unwrap());
        let request = IoRequest::Device(Box::new(DeviceRequest {
            cdb: [0xc0, 0, 0, 0, 0, last].into(),
            data_out: Payload::from(out.to_vec()),
            data_in_bytes: room,
            buffer,
            nexus,
            alters: true,
        }));
        let core = &mut self.cores[core];
        match core.handle.submit(tag, request, &mut core.outlet) {
            Submitted::Done(result) => drop(core.answers.insert(tag, result)),
            Submitted::Taken => {
                assert!(core.outlet.take_returned().is_none(), "it is given back");
            }
        }
        tag
    }

    fn result(&mut self, core: usize, tag: IoTag) -> IoResult {
        self.until(|world| world.cores[core].answers.contains_key(&tag));
        self.cores[core].answers.remove(&tag).unwrap()
    }

    fn answer(&mut self, core: usize, tag: IoTag) -> DeviceAnswer {
        match self.result(core, tag) {
            Ok(IoAnswer::Device(answer)) => *answer,
            other => panic!("{other:?}"),
        }
    }

    /// Status and sense of the end of a command.
    fn said(&mut self, core: usize, tag: IoTag) -> (u8, [u8; 3]) {
        let DeviceAnswer { status, sense, .. } = self.answer(core, tag);
        let code = match sense.is_empty() {
            true => [0; 3],
            false => [sense[2], sense[12], sense[13]],
        };
        (status, code)
    }

    fn is_open(&mut self, core: usize, tag: IoTag) -> bool {
        self.run();
        !self.cores[core].answers.contains_key(&tag)
    }

    fn held(&mut self, count: usize) {
        self.until(|world| world.emulator.with(|rules| rules.held.len()) == count);
    }

    fn is_up(&mut self) {
        self.until(|world| world.cores.iter().all(|core| core.sockets.len() == 1));
    }
}

impl Core {
    fn step(&mut self, now: Duration, pool: &Pool) -> bool {
        let mut has_moved = self.wake.swap(false, Ordering::SeqCst);
        if has_moved {
            self.handle.handle_wake(&mut self.outlet);
        }
        while let Some(order) = self.outlet.next_order() {
            self.carry_out(order, now);
            has_moved = true;
        }
        for (socket, number) in std::mem::take(&mut self.receives) {
            let mut buffer = pool.allocate(4096).unwrap();
            let result = match self
                .sockets
                .get(&socket)
                .map(|mut one| one.read(&mut buffer))
            {
                Some(Err(error)) if error.kind() == ErrorKind::WouldBlock => {
                    self.receives.push((socket, number));
                    continue;
                }
                Some(Ok(count)) => Ok((Rc::new(buffer), count)),
                Some(Err(_)) => Err(104),
                None => Err(125),
            };
            let result = SocketResult::Received(result);
            self.handle
                .handle_socket(socket, number, result, &mut self.outlet);
            has_moved = true;
        }
        has_moved
    }

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
            Order::OpenSocket { socket, descriptor } => {
                let stream = UnixStream::from(descriptor);
                stream.set_nonblocking(true).unwrap();
                self.sockets.insert(socket, stream);
            }
            Order::Socket {
                socket,
                number,
                work: SocketWork::Send(message),
            } => {
                let mut stream = self.sockets.get(&socket);
                let sent = stream.as_mut().map(|one| one.write_all(&message.to_vec()));
                let result = match sent {
                    Some(Ok(())) => Ok(()),
                    Some(Err(_)) | None => Err(32),
                };
                let result = SocketResult::Sent { message, result };
                self.handle
                    .handle_socket(socket, number, result, &mut self.outlet);
            }
            Order::Socket { socket, number, .. } => self.receives.push((socket, number)),
            Order::CloseSocket(socket) => drop(self.sockets.remove(&socket)),
            Order::Timer { number, after } => self.timers.push((now + after, number)),
            Order::Reach { is_reached } => self.reports.push(is_reached),
            other @ (Order::Ring { .. }
            | Order::CancelParts(_)
            | Order::CancelPart(_)
            | Order::Size
            | Order::HeldElsewhere { .. }) => panic!("{other:?}"),
        }
    }
}

const GOOD: (u8, [u8; 3]) = (0, [0; 3]);
const BUSY: (u8, [u8; 3]) = (8, [0; 3]);
const ABORTED: (u8, [u8; 3]) = (2, [0x0b, 0x00, 0x06]);
const RESET: (u8, [u8; 3]) = (2, [0x06, 0x29, 0x04]);

#[test]
fn commands_go_to_the_handler_and_come_back_as_it_ends_them() {
    let mut world = World::new(2);
    let tag = world.submit(0, 1, 7, &[], 512);
    let answer = world.answer(0, tag);
    assert_eq!((answer.status, answer.transfer_bytes), (0, 512));
    assert_eq!(answer.data.to_vec(), [7; 512]);
    world.emulator.with(|rules| rules.holds = true);
    let write = world.submit(1, 2, 8, b"data out", 0);
    let read = world.submit(1, 2, 9, &[], 512);
    world.held(2);
    let held = world.emulator.with(|rules| rules.held.clone());
    assert_eq!(held[0].data_out, b"data out");
    let sense = [0x72, 3, 0x11, 0];
    held[1].end(2, &[5; 700], &sense);
    let answer = world.answer(1, read);
    // It had more to give, and sense data come as they are.
    assert_eq!((answer.status, answer.transfer_bytes), (2, 700));
    assert_eq!(
        (answer.sense, answer.data.to_vec()),
        (sense.to_vec(), vec![5; 512])
    );
    held[0].end(0x18, &[], &[]);
    assert_eq!(world.answer(1, write).status, 0x18);
    assert_eq!(world.store.device().unwrap().device_type(), 0);
    let identity = world
        .emulator
        .with(|rules| format!("serial..{}", rules.serial));
    assert_eq!(world.store.identity().unwrap(), identity);
    assert_eq!(
        (world.store.outage(), world.store.connections().unwrap().up),
        (None, 1)
    );
}

#[test]
fn a_handler_that_dies_has_no_command_twice_and_is_reported_once() {
    let mut world = World::new(2);
    world.emulator.with(|rules| rules.holds = true);
    let tags = [
        world.submit(0, 1, 1, &[], 64),
        world.submit(1, 2, 2, b"w", 0),
    ];
    world.held(2);
    world.emulator.die();
    for (core, tag) in tags.into_iter().enumerate() {
        assert_eq!(world.said(core, tag), ABORTED, "{core}");
    }
    // What comes now waits; what waits when it is back comes again, with the loss in mind.
    let late = [
        world.submit(0, 1, 3, &[], 64),
        world.submit(0, 3, 4, &[], 64),
    ];
    world.pass(3 * SECOND);
    assert!(late.into_iter().all(|tag| world.is_open(0, tag)));
    assert_eq!(world.store.connections().unwrap().held, 2);
    assert!(world.store.outage().unwrap().contains("cannot connect"));
    world.emulator.with(|rules| rules.holds = false);
    world.emulator.listen();
    world.pass(SECOND);
    world.is_up();
    assert_eq!(late.map(|tag| world.said(0, tag)), [RESET, BUSY]);
    // The device server tells the others; until then they come again.
    for (core, nexus) in [(0, 1), (1, 2)] {
        let mut said = BUSY;
        while said == BUSY {
            let tag = world.submit(core, nexus, 5, &[], 64);
            said = world.said(core, tag);
        }
        assert_eq!(said, GOOD);
    }
    let log = world.emulator.with(|rules| rules.log.clone());
    let mut last: Vec<_> = log.iter().map(|cdb| cdb[5]).collect();
    last.sort_unstable();
    assert_eq!(last, [1, 2, 5, 5]);
    let connections = world.store.connections().unwrap();
    assert_eq!((connections.again, connections.held), (1, 0));
    assert_eq!(world.store.outage(), None);
}

#[test]
fn commands_that_wait_for_too_long_end_as_not_ready() {
    let mut world = World::new(1);
    world.emulator.die();
    world.until(|world| world.cores[0].sockets.is_empty());
    let tag = world.submit(0, 1, 1, &[], 0);
    world.pass(RETRY - SECOND);
    assert!(world.is_open(0, tag));
    world.pass(SECOND);
    assert!(matches!(world.result(0, tag), Err(IoFailure::NotReady)));
    let tag = world.submit(0, 1, 2, &[], 0);
    assert!(matches!(world.result(0, tag), Err(IoFailure::NotReady)));
    world.emulator.listen();
    world.pass(SECOND);
    world.is_up();
    assert_eq!(world.cores[0].reports, [false, true]);
    let tag = world.submit(0, 1, 3, &[], 0);
    assert_eq!(world.said(0, tag), RESET);
    // Without a time to wait, at once.
    let mut world = World::of(1, Duration::ZERO, 0);
    world.emulator.die();
    world.until(|world| world.cores[0].sockets.is_empty());
    let tag = world.submit(0, 1, 1, &[], 0);
    assert!(matches!(world.result(0, tag), Err(IoFailure::NotReady)));
}

#[test]
fn another_device_behind_the_socket_is_refused() {
    let mut world = World::new(1);
    world.emulator.die();
    let serial = world
        .emulator
        .with(|rules| std::mem::replace(&mut rules.serial, "X000".to_owned()));
    world.emulator.listen();
    let outage = |world: &mut World| {
        world.until(|world| world.cores[0].sockets.is_empty());
        world.pass(SECOND);
        world.store.outage().unwrap()
    };
    assert!(outage(&mut world).contains("is another one now"));
    world
        .emulator
        .with(|rules| (rules.serial, rules.device_type) = (serial, 1));
    assert!(outage(&mut world).contains("is of another type now"));
    world.emulator.with(|rules| rules.device_type = 0);
    world.pass(SECOND);
    world.is_up();
    assert_eq!(world.store.outage(), None);
}

#[test]
fn a_handler_that_lies_loses_all_its_connections() {
    let mut world = World::new(2);
    world.emulator.with(|rules| rules.holds = true);
    let tags = [
        world.submit(0, 1, 1, &[], 8),
        world.submit(0, 1, 2, &[], 8),
        world.submit(1, 2, 3, &[], 8),
    ];
    world.held(3);
    let held = world.emulator.with(|rules| std::mem::take(&mut rules.held));
    let first = held.iter().find(|taken| taken.cdb[5] == 1).unwrap();
    first.end(0, &[1; 8], &[]);
    assert_eq!(world.said(0, tags[0]), GOOD);
    first.end(0, &[1; 8], &[]);
    assert_eq!(world.said(0, tags[1]), ABORTED);
    let outage = world.store.outage().unwrap();
    assert!(outage.contains("it ends the command in slot"), "{outage}");
    assert_eq!(world.said(1, tags[2]), ABORTED);
    world.emulator.with(|rules| rules.holds = false);
    world.pass(SECOND);
    world.is_up();
    let tag = world.submit(1, 2, 4, &[], 8);
    assert_eq!(world.said(1, tag), RESET);
}

#[test]
fn a_handler_that_hangs_holds_no_more_than_the_share_of_each() {
    let mut world = World::new(1);
    world.emulator.with(|rules| rules.holds = true);
    let first: Vec<_> = (0..128).map(|_| world.submit(0, 1, 1, &[], 0)).collect();
    let busy = world.submit(0, 1, 2, &[], 0);
    assert_eq!(world.said(0, busy), BUSY);
    let other = world.submit(0, 2, 3, &[], 0);
    assert!(world.is_open(0, other));
    // One that waits can be cancelled; one that the handler has is waited for.
    let core = &mut world.cores[0];
    for tag in [first[100], first[3]] {
        core.handle.cancel(tag, &mut core.outlet);
    }
    assert!(matches!(
        world.result(0, first[100]),
        Err(IoFailure::Cancelled)
    ));
    assert!(world.is_open(0, first[3]));
    world.held(64);
    let held = world.emulator.with(|rules| {
        rules.holds = false;
        std::mem::take(&mut rules.held)
    });
    // The nexus that waits longest has its turn: of two, each gets one.
    held[0].end(0, &[], &[]);
    held[1].end(0, &[], &[]);
    assert_eq!(world.said(0, other), GOOD);
    for taken in &held[2..] {
        taken.end(0, &[], &[]);
    }
    for (number, tag) in first
        .into_iter()
        .enumerate()
        .filter(|(number, _)| *number != 100)
    {
        assert_eq!(world.said(0, tag), GOOD, "{number}");
    }
}

#[test]
fn a_tape_has_one_command_at_a_time() {
    let mut world = World::of(1, RETRY, 1);
    world.emulator.with(|rules| rules.holds = true);
    let tags: Vec<_> = (0..3)
        .map(|last| world.submit(0, 1, last, &[], 0))
        .collect();
    for (count, tag) in tags.into_iter().enumerate() {
        world.held(1);
        assert_eq!(world.emulator.with(|rules| rules.log.len()), count + 1);
        let held = world.emulator.with(|rules| rules.held.remove(0));
        held.end(0, &[], &[]);
        assert_eq!(world.said(0, tag), GOOD);
    }
}

#[test]
fn what_is_no_handler_is_no_store() {
    let emulator = emulator();
    let greeted = |answer: &[u8; 16]| {
        emulator.with(|rules| rules.answer = *answer);
        open(&emulator, RETRY).unwrap_err().to_string()
    };
    assert!(greeted(b"NBDMAGICIHAVEOPT").contains("no handler"));
    assert!(greeted(b"TARNHDLR\x02\0\0\0\0\0\0\0").contains("version 2"));
    emulator.with(|rules| rules.answer = *b"TARNHDLR\x01\0\0\0\0\0\0\0");
    emulator.with(|rules| rules.device_type = 0x7f);
    assert!(matches!(
        open(&emulator, RETRY),
        Err(HandlerFailure::NoInquiry)
    ));
    emulator.with(|rules| (rules.device_type, rules.status) = (5, 0x102));
    let said = open(&emulator, RETRY).unwrap_err().to_string();
    let wanted = "INQUIRY of page 80h: the handler broke the protocol: ";
    assert!(said.starts_with(wanted), "{said}");
    emulator.with(|rules| rules.status = 0);
    let store = open(&emulator, RETRY).unwrap();
    assert!(matches!(
        open(&emulator, RETRY),
        Err(HandlerFailure::Twice(_))
    ));
    drop(store);
    emulator.die();
    assert!(matches!(
        open(&emulator, RETRY),
        Err(HandlerFailure::Connect(_))
    ));
}
