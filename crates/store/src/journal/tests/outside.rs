//! What the store and the log device of a handle order: each under names of its own, which meet outside.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use memory::Payload;

use super::disk::Disk;
use crate::journal::books::Bias;
use crate::journal::format::{BLOCK_BYTES, RING_OFFSET};
use crate::journal::start::{LogOptions, Shape};
use crate::journal::{Binding, Journal, Limits, Noted, Use};
use crate::{
    Backstore, Capabilities, DiskFile, Durability, FileHandle, HelperAnswer, HelperOperation,
    HelperResult, IoAnswer, IoFailure, IoRequest, IoTag, Order, Outlet, PartTag, Place,
    RingOperation, SocketResult, SocketTag, SocketWork, StoreFile, Submitted, Waker,
};

const SIZE: u64 = 1 << 20;
const RECORD_BYTES: usize = 4 * BLOCK_BYTES;
const RING_BYTES: u64 = 8 * RECORD_BYTES as u64;
const SOCKET: SocketTag = SocketTag(3);
/// Of the operations of a request on the ring and with a helper.
const RING: u64 = 0;
const HELP: u64 = 1;

/// What the two were told, in order.
type Told = Rc<RefCell<Vec<String>>>;

/// Has each request done on the ring, and a read by a helper, too.
#[derive(Debug)]
struct Orders {
    name: &'static str,
    capabilities: Capabilities,
    file: FileHandle,
    told: Told,
}

impl Orders {
    fn boxed(name: &'static str, told: &Told) -> Box<dyn Backstore> {
        let fd = rustix::fs::memfd_create("log", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        Box::new(Self {
            name,
            capabilities: Capabilities {
                volatile_cache: true,
                ..Capabilities::plain(SIZE, 512)
            },
            file: Rc::new(StoreFile::new(
                Arc::new(DiskFile::memory(fd)),
                Place::memory(),
            )),
            told: Rc::clone(told),
        })
    }

    fn note(&self, what: &str) {
        self.told
            .borrow_mut()
            .push(format!("{}: {what}", self.name));
    }
}

impl Backstore for Orders {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn durability(&self) -> Durability {
        Durability::UNCOUNTED
    }

    fn submit(&mut self, tag: IoTag, request: IoRequest, outlet: &mut Outlet) -> Submitted {
        let part = |number| PartTag {
            request: Some(tag),
            number,
        };
        let file = Rc::clone(&self.file);
        outlet.ring(part(RING), RingOperation::Sync { file });
        if matches!(request, IoRequest::Read { .. }) {
            let work = Box::new(|| Ok(HelperAnswer::Done));
            let name = "help";
            outlet.help(part(HELP), HelperOperation { name, work });
        }
        Submitted::Taken
    }

    fn cancel(&mut self, tag: IoTag, outlet: &mut Outlet) {
        self.note("cancel");
        outlet.cancel_part(PartTag {
            request: Some(tag),
            number: HELP,
        });
        outlet.cancel_parts(tag);
    }

    fn handle_ring_result(
        &mut self,
        part: PartTag,
        _: RingOperation,
        result: i32,
        outlet: &mut Outlet,
    ) {
        assert_eq!(part.number, RING);
        self.note(&format!("ring {result}"));
        outlet.answer(part.request.unwrap(), Ok(IoAnswer::Done));
    }

    fn handle_helper_result(&mut self, part: PartTag, result: HelperResult, _: &mut Outlet) {
        assert_eq!(part.number, HELP);
        self.note(&format!("help {result:?}"));
    }

    fn handle_socket(&mut self, socket: SocketTag, number: u64, _: SocketResult, _: &mut Outlet) {
        assert_eq!((socket, number), (SOCKET, 9));
        self.note("socket");
    }

    fn handle_timer(&mut self, number: u64, _: &mut Outlet) {
        assert_eq!(number, 4);
        self.note("timer");
    }

    /// Orders all that is for no request.
    fn handle_wake(&mut self, outlet: &mut Outlet) {
        outlet.set_timer(4, Duration::from_secs(5));
        outlet.look_at_size();
        outlet.report_reach(false);
        outlet.report_held_elsewhere(true);
        if self.name == "store" {
            let file = rustix::fs::memfd_create("socket", rustix::fs::MemfdFlags::CLOEXEC);
            outlet.open_socket(SOCKET, file.unwrap());
            outlet.on_socket(SOCKET, 9, SocketWork::Receive);
            outlet.close_socket(SOCKET);
        }
    }

    fn refresh_size(&mut self) -> Option<u64> {
        None
    }
}

#[derive(Debug)]
struct NotNoted;

impl Noted for NotNoted {
    fn note(&self, _: Binding, _: Use) -> std::io::Result<()> {
        Ok(())
    }
}

struct Bench {
    store: Box<dyn Backstore>,
    outlet: Outlet,
    told: Told,
}

impl Bench {
    fn new() -> Self {
        let log_bytes = RING_OFFSET + RING_BYTES;
        let options = LogOptions {
            unit: *b"unit of the test",
            known: None,
            new_id: [1; 16],
            bias: Bias::Latency,
            medium: Vec::new(),
            noted: Arc::new(NotNoted),
        };
        let shape = Shape {
            ring_bytes: RING_BYTES,
            record_bytes: RECORD_BYTES,
            limits: Limits::default(),
        };
        let (disk, log) = (Disk::new(SIZE), Disk::new(log_bytes));
        let (journal, _) = Journal::start(&log, log_bytes, &disk, SIZE, &options, shape).unwrap();
        let told = Told::default();
        let [store, log] = ["store", "log"].map(|name| Orders::boxed(name, &told));
        let mut bench = Self {
            store: journal.handle(store, log),
            outlet: Outlet::default(),
            told,
        };
        bench.store.start(&|| Waker::new(|| {}), &mut bench.outlet);
        // The log is emptied now and then.
        assert!(matches!(bench.orders()[..], [Order::Timer { .. }]));
        bench
    }

    fn orders(&mut self) -> Vec<Order> {
        std::iter::from_fn(|| self.outlet.next_order()).collect()
    }

    fn told(&self) -> Vec<String> {
        self.told.take()
    }

    /// The parts that a request leads to.
    fn submit(&mut self, tag: u64, request: IoRequest) -> Vec<(PartTag, Order)> {
        let submitted = self.store.submit(IoTag(tag), request, &mut self.outlet);
        assert!(matches!(submitted, Submitted::Taken), "{submitted:?}");
        self.parts()
    }

    fn parts(&mut self) -> Vec<(PartTag, Order)> {
        let part = |order| {
            let (Order::Ring { part, .. } | Order::Helper { part, .. }) = order else {
                panic!("{order:?}");
            };
            (part, order)
        };
        self.orders().into_iter().map(part).collect()
    }

    fn end(&mut self, (part, order): (PartTag, Order)) {
        let outlet = &mut self.outlet;
        if let Order::Ring { operation, .. } = order {
            self.store.handle_ring_result(part, operation, 0, outlet);
        } else if let Order::Helper { operation, .. } = order {
            let result = (operation.work)();
            self.store.handle_helper_result(part, result, outlet);
        } else {
            panic!("{order:?}");
        }
    }
}

fn write(offset: u64, durable: bool) -> IoRequest {
    IoRequest::Write {
        offset,
        data: Payload::Heap(vec![7; 512]),
        durable,
    }
}

const READ: IoRequest = IoRequest::Read {
    offset: 0,
    len: 512,
    buffer: None,
};

fn only(mut parts: Vec<(PartTag, Order)>) -> (PartTag, Order) {
    assert_eq!(parts.len(), 1, "{parts:?}");
    parts.remove(0)
}

#[test]
fn operations_of_store_and_log_do_not_share_a_name_and_end_where_they_began() {
    let mut bench = Bench::new();
    let first = only(bench.submit(1, write(0, true)));
    let second = only(bench.submit(2, write(4096, true)));
    assert_eq!(first.0.request, Some(IoTag(1)));
    assert_eq!(second.0.request, Some(IoTag(2)));
    assert_ne!(first.0.number, second.0.number);
    let first_name = first.0;
    bench.end(second);
    assert_eq!(bench.told(), ["store: ring 0"]);
    // A record is that of no request: it outlives those that are cancelled.
    let record = only(bench.parts());
    assert_eq!(record.0.request, None);
    assert_ne!(record.0.number, first_name.number);
    bench.end(record);
    assert_eq!(bench.told(), ["log: ring 0"]);
    let answers = bench.orders();
    assert!(
        matches!(
            answers[..],
            [Order::Answer {
                tag: IoTag(2),
                result: Ok(IoAnswer::Done)
            }]
        ),
        "{answers:?}"
    );
    bench.end(first);
    assert_eq!(bench.told(), ["store: ring 0"]);
    assert_eq!(only(bench.parts()).0.request, None);
}

#[test]
fn a_read_is_cancelled_with_all_its_parts_and_no_others() {
    let mut bench = Bench::new();
    let mut parts = bench.submit(1, READ);
    let others = bench.submit(2, READ);
    assert_eq!((parts.len(), others.len()), (2, 2));
    assert!(parts.iter().all(|one| one.0.request == Some(IoTag(1))));
    let [ring, help] = [parts[0].0, parts[1].0];
    bench.store.cancel(IoTag(1), &mut bench.outlet);
    assert_eq!(bench.told(), ["store: cancel"]);
    let cancelled = bench.orders().into_iter().map(|order| {
        let Order::CancelPart(part) = order else {
            panic!("{order:?}");
        };
        part
    });
    let mut cancelled: Vec<PartTag> = cancelled.collect();
    assert_eq!(cancelled[0], help, "the one alone");
    cancelled.remove(0);
    cancelled.sort_by_key(|part| part.number != ring.number);
    assert_eq!(cancelled, [ring, help], "then both");
    bench.end(parts.remove(1));
    assert_eq!(bench.told(), ["store: help Ok(Done)"]);
    assert!(bench.orders().is_empty(), "the other part is under way");
    bench.end(parts.remove(0));
    let answers = bench.orders();
    assert!(matches!(answers[..], [Order::Answer { tag: IoTag(1), .. }]));
}

#[test]
fn what_is_for_no_request_passes_and_of_the_log_only_what_concerns_it() {
    let mut bench = Bench::new();
    bench.store.handle_wake(&mut bench.outlet);
    let orders = bench.orders();
    let [
        Order::Timer {
            number: of_store,
            after,
        },
        Order::Size,
        Order::Reach { is_reached: false },
        Order::HeldElsewhere { is_held: true },
        Order::OpenSocket { socket: SOCKET, .. },
        Order::Socket {
            socket: SOCKET,
            number: 9,
            work: SocketWork::Receive,
        },
        Order::CloseSocket(SOCKET),
        Order::Timer { number: of_log, .. },
        Order::Reach { is_reached: false },
    ] = orders[..]
    else {
        panic!("{orders:?}");
    };
    assert_eq!(after, Duration::from_secs(5));
    assert_ne!(of_store, of_log);
    bench.store.handle_timer(of_log, &mut bench.outlet);
    bench.store.handle_timer(of_store, &mut bench.outlet);
    let result = SocketResult::Received(Err(104));
    bench
        .store
        .handle_socket(SOCKET, 9, result, &mut bench.outlet);
    assert_eq!(
        bench.told(),
        ["log: timer", "store: timer", "store: socket"]
    );
}

#[test]
fn what_asks_for_nothing_or_cannot_be_logged_is_answered_at_once() {
    let mut bench = Bench::new();
    let compare = IoRequest::CompareAndWrite {
        offset: 0,
        data: Payload::Heap(vec![7; 1024]),
        durable: false,
    };
    let zeros = IoRequest::WriteZeros {
        range: 512..512,
        durable: true,
    };
    let behind = write(SIZE, false);
    for (request, expected) in [
        (compare, Err(IoFailure::Hardware { errno: 95 })),
        (zeros, Ok(())),
        (IoRequest::Flush, Ok(())),
        (behind, Err(IoFailure::Truncated { offset: SIZE })),
    ] {
        let submitted = bench.store.submit(IoTag(1), request, &mut bench.outlet);
        let Submitted::Done(result) = submitted else {
            panic!("{submitted:?}");
        };
        assert_eq!(result.map(drop), expected);
        assert!(bench.orders().is_empty());
    }
}
