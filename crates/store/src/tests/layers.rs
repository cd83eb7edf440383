//! Every question of the contract through every layer: it reaches the store below, or the layer answers it by itself.

use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::testing::{Fate, Faulty};
use crate::{
    Backstore, Bias, Binding, Capabilities, Composed, Connections, DeviceFacts, Durability, Form,
    HelperResult, IoFailure, IoRequest, IoResult, IoTag, LOG_BYTES_MIN, LogOptions, Logged, Member,
    MemoryDisk, NativeSnapshots, Noted, Notes, Order, Outlet, PartTag, RingOperation, SharedStore,
    SocketResult, SocketTag, Submitted, Use, Waker,
};

type Asked = Arc<Mutex<Vec<&'static str>>>;

const DURABILITY: Durability = Durability {
    may_have_unflushed: false,
    lost: Some(5),
    lost_before: 2,
};

/// A disk in memory that notes what it is asked.
#[derive(Debug)]
struct Probe {
    disk: MemoryDisk,
    asked: Asked,
    durability: Arc<Mutex<Durability>>,
}

impl Probe {
    fn new(durability: Durability) -> Self {
        Self {
            disk: MemoryDisk::new(1 << 20, 512, false, true).unwrap(),
            asked: Asked::default(),
            durability: Arc::new(Mutex::new(durability)),
        }
    }

    fn note(&self, what: &'static str) {
        self.asked.lock().unwrap().push(what);
    }
}

#[deny(clippy::missing_trait_methods, reason = "each question is noted")]
impl SharedStore for Probe {
    fn inner(&self) -> &dyn SharedStore {
        unreachable!("it answers everything by itself")
    }

    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        self.note("handle");
        Ok(Box::new(ProbeHandle {
            disk: self.disk.handle()?,
            asked: Arc::clone(&self.asked),
            durability: Arc::clone(&self.durability),
        }))
    }

    fn capabilities(&self) -> Capabilities {
        self.note("capabilities");
        Capabilities {
            volatile_cache: true,
            ..self.disk.capabilities()
        }
    }

    fn probe_size(&self) -> io::Result<()> {
        self.note("probe_size");
        Ok(())
    }

    fn grow(&self, _: u64) -> io::Result<()> {
        self.note("grow");
        Ok(())
    }

    fn used_bytes(&self) -> io::Result<Option<u64>> {
        self.note("used_bytes");
        Ok(None)
    }

    fn identity(&self) -> Option<String> {
        self.note("identity");
        None
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.note("descriptor");
        None
    }

    fn is_at(&self, _: &Path) -> io::Result<bool> {
        self.note("is_at");
        Ok(true)
    }

    fn is_flush_latched(&self) -> bool {
        self.note("is_flush_latched");
        true
    }

    fn is_outdated(&self) -> bool {
        self.note("is_outdated");
        true
    }

    fn take_over(&self) -> io::Result<()> {
        self.note("take_over");
        Ok(())
    }

    fn notes(&self) -> Option<Arc<dyn Notes>> {
        self.note("notes");
        None
    }

    fn native_snapshots(&self) -> Option<Arc<dyn NativeSnapshots>> {
        self.note("native_snapshots");
        None
    }

    fn device(&self) -> Option<Arc<DeviceFacts>> {
        self.note("device");
        None
    }

    fn outage(&self) -> Option<String> {
        self.note("outage");
        Some("out of reach".to_owned())
    }

    fn connections(&self) -> Option<Connections> {
        self.note("connections");
        Some(Connections {
            up: 3,
            ..Connections::default()
        })
    }
}

#[derive(Debug)]
struct ProbeHandle {
    disk: Box<dyn Backstore>,
    asked: Asked,
    durability: Arc<Mutex<Durability>>,
}

impl ProbeHandle {
    fn note(&self, what: &'static str) {
        self.asked.lock().unwrap().push(what);
    }
}

#[deny(clippy::missing_trait_methods, reason = "each call is noted")]
impl Backstore for ProbeHandle {
    fn capabilities(&self) -> &Capabilities {
        self.disk.capabilities()
    }

    fn durability(&self) -> Durability {
        *self.durability.lock().unwrap()
    }

    fn start(&mut self, _: &dyn Fn() -> Waker, outlet: &mut Outlet) {
        self.note("start");
        // All that a store orders under a name of its own.
        outlet.set_timer(4, std::time::Duration::ZERO);
    }

    fn submit(&mut self, tag: IoTag, request: IoRequest, outlet: &mut Outlet) -> Submitted {
        self.note("submit");
        self.disk.submit(tag, request, outlet)
    }

    fn cancel(&mut self, tag: IoTag, outlet: &mut Outlet) {
        self.note("cancel");
        self.disk.cancel(tag, outlet);
    }

    fn handle_ring_result(
        &mut self,
        part: PartTag,
        operation: RingOperation,
        result: i32,
        outlet: &mut Outlet,
    ) {
        self.note("handle_ring_result");
        self.disk
            .handle_ring_result(part, operation, result, outlet);
    }

    fn handle_helper_result(&mut self, _: PartTag, _: HelperResult, _: &mut Outlet) {
        self.note("handle_helper_result");
    }

    fn handle_socket(&mut self, _: SocketTag, _: u64, _: SocketResult, _: &mut Outlet) {
        self.note("handle_socket");
    }

    fn handle_wake(&mut self, _: &mut Outlet) {
        self.note("handle_wake");
    }

    fn handle_timer(&mut self, number: u64, _: &mut Outlet) {
        assert_eq!(number, 4);
        self.note("handle_timer");
    }

    fn use_ring_only(&mut self, _: bool) {
        self.note("use_ring_only");
    }

    fn probe(&mut self, _: &mut Outlet) {
        self.note("probe");
    }

    fn refresh_size(&mut self) -> Option<u64> {
        self.note("refresh_size");
        None
    }
}

/// How often a log was noted as closed.
#[derive(Debug, Default)]
struct Closes(AtomicUsize);

impl Noted for Closes {
    fn note(&self, _: Binding, how: Use) -> io::Result<()> {
        self.0
            .fetch_add(usize::from(matches!(how, Use::Closed)), Ordering::SeqCst);
        Ok(())
    }
}

fn logged(store: impl SharedStore + 'static) -> Logged {
    logged_with(store, Arc::default())
}

fn logged_with(store: impl SharedStore + 'static, noted: Arc<Closes>) -> Logged {
    logged_on(store, log_device(), noted)
}

fn log_device() -> MemoryDisk {
    MemoryDisk::new(LOG_BYTES_MIN, 512, false, true).unwrap()
}

fn logged_on(
    store: impl SharedStore + 'static,
    log: impl SharedStore + 'static,
    noted: Arc<Closes>,
) -> Logged {
    let options = LogOptions {
        unit: *b"unit of the test",
        known: None,
        new_id: [1; 16],
        bias: Bias::Latency,
        medium: Vec::new(),
        noted,
    };
    Logged::open(Arc::new(store), Arc::new(log), &options).unwrap()
}

fn composed(store: impl SharedStore + 'static) -> Composed {
    let member = Member {
        name: "a".to_owned(),
        store: Arc::new(store),
        bytes: None,
    };
    Composed::new(Form::Concat, vec![member], false).unwrap()
}

/// What a store that begins has ordered.
fn timers(outlet: &mut Outlet) -> Vec<u64> {
    let orders = std::iter::from_fn(|| outlet.next_order());
    let number = |order| {
        let Order::Timer { number, .. } = order else {
            panic!("{order:?}");
        };
        number
    };
    orders.map(number).collect()
}

fn taken(asked: &Asked) -> Vec<&'static str> {
    let mut asked = std::mem::take(&mut *asked.lock().unwrap());
    asked.sort_unstable();
    asked.dedup();
    asked
}

/// What reaches the store below of all that is asked of a layer.
fn asked_below(layer: &dyn SharedStore, asked: &Asked) -> Vec<&'static str> {
    taken(asked);
    drop(layer.handle().unwrap());
    assert!(layer.capabilities().volatile_cache);
    layer.probe_size().unwrap();
    layer.grow(1 << 21).unwrap_or_default();
    drop((layer.used_bytes(), layer.identity(), layer.descriptor()));
    assert!(layer.is_at(Path::new("/")).unwrap() && layer.is_flush_latched());
    assert!(layer.is_outdated());
    drop((layer.take_over(), layer.notes(), layer.native_snapshots()));
    assert_eq!(layer.device(), None);
    assert!(layer.outage().unwrap().contains("out of reach"));
    assert_eq!(layer.connections().unwrap().up, 3);
    taken(asked)
}

const SHARED: [&str; 15] = [
    "capabilities",
    "connections",
    "descriptor",
    "device",
    "grow",
    "handle",
    "identity",
    "is_at",
    "is_flush_latched",
    "is_outdated",
    "native_snapshots",
    "notes",
    "outage",
    "probe_size",
    "take_over",
];

#[test]
fn a_layer_answers_what_it_changes_and_has_the_store_below_answer_the_rest() {
    let expected = |but: &[&str]| {
        let all = SHARED.into_iter().chain(["used_bytes"]);
        all.filter(|one| !but.contains(one)).collect::<Vec<_>>()
    };
    let probe = Probe::new(DURABILITY);
    let asked = Arc::clone(&probe.asked);
    // A snapshot of the store lacks what only its log has.
    let of_store = ["native_snapshots"];
    assert_eq!(asked_below(&logged(probe), &asked), expected(&of_store));
    let probe = Probe::new(DURABILITY);
    let asked = Arc::clone(&probe.asked);
    let (faulty, _) = Faulty::new(probe, |_| Fate::Pass);
    assert_eq!(asked_below(&faulty, &asked), expected(&[]));
    // What is one thing of one store cannot be that of several.
    let probe = Probe::new(DURABILITY);
    let asked = Arc::clone(&probe.asked);
    let of_one = [
        "descriptor",
        "device",
        "grow",
        "identity",
        "is_at",
        "native_snapshots",
        "notes",
        "take_over",
        "used_bytes",
    ];
    assert_eq!(asked_below(&composed(probe), &asked), expected(&of_one));
}

#[test]
fn below_all_layers_is_nothing_and_nothing_is_wrong() {
    let bottom = crate::Bottom;
    let unsupported =
        |outcome: io::Result<()>| outcome.unwrap_err().kind() == ErrorKind::Unsupported;
    assert!(unsupported(bottom.handle().map(drop)));
    assert!(unsupported(bottom.grow(1)) && unsupported(bottom.take_over()));
    assert_eq!(bottom.capabilities(), Capabilities::plain(0, 512));
    bottom.inner().probe_size().unwrap();
    assert_eq!(bottom.used_bytes().unwrap(), None);
    assert!(bottom.is_at(Path::new("/nothing")).unwrap());
    assert!(!bottom.is_flush_latched() && !bottom.is_outdated());
    assert_eq!((bottom.identity(), bottom.outage()), (None, None));
    assert!(bottom.descriptor().is_none() && bottom.notes().is_none());
    assert!(bottom.native_snapshots().is_none() && bottom.device().is_none());
    assert!(bottom.connections().is_none());
    let some = |up, again, held| Connections { up, again, held };
    let sum = some(1, u64::MAX, 3).with(some(10, 1, 30));
    assert_eq!(sum, some(11, u64::MAX, 33));
}

#[test]
fn what_a_handle_of_a_layer_is_told_reaches_the_handle_below() {
    let (of_log, of_composition, of_fault) = (
        Probe::new(DURABILITY),
        Probe::new(DURABILITY),
        Probe::new(DURABILITY),
    );
    let asked = [&of_log, &of_composition, &of_fault].map(|one| Arc::clone(&one.asked));
    let layers: [Box<dyn SharedStore>; 3] = [
        Box::new(logged(of_log)),
        Box::new(composed(of_composition)),
        Box::new(Faulty::new(of_fault, |_| Fate::Pass).0),
    ];
    for (layer, asked) in layers.iter().zip(&asked) {
        let (mut store, mut outlet) = (layer.handle().unwrap(), Outlet::default());
        taken(asked);
        assert_eq!(store.durability(), DURABILITY);
        store.start(&|| Waker::new(|| {}), &mut outlet);
        for number in timers(&mut outlet) {
            store.handle_timer(number, &mut outlet);
        }
        store.handle_wake(&mut outlet);
        store.probe(&mut outlet);
        store.use_ring_only(true);
        assert_eq!(store.refresh_size(), None);
        let request = IoRequest::Read {
            offset: 0,
            len: 512,
            buffer: None,
        };
        let read = store.submit(IoTag(1), request, &mut outlet);
        assert!(matches!(read, Submitted::Done(Ok(_))), "{read:?}");
        let calls = [
            "handle_timer",
            "handle_wake",
            "probe",
            "refresh_size",
            "start",
            "submit",
            "use_ring_only",
        ];
        assert_eq!(taken(asked), calls, "{layer:?}");
    }
}

#[test]
fn a_log_is_closed_once_and_not_while_a_core_has_it() {
    let closes = Arc::new(Closes::default());
    let logged = logged_with(Probe::new(Durability::UNCOUNTED), Arc::clone(&closes));
    let handle = logged.handle().unwrap();
    logged.close();
    assert_eq!(closes.0.load(Ordering::SeqCst), 0);
    drop(handle);
    logged.close();
    assert_eq!(closes.0.load(Ordering::SeqCst), 1);
    logged.close();
    assert_eq!(closes.0.load(Ordering::SeqCst), 1);
}

/// The next start would not replay what it has.
#[test]
fn a_log_is_not_noted_as_closed_where_its_store_or_its_device_fails() {
    type Which = fn(&IoRequest) -> bool;
    let flush: Which = |request| matches!(request, IoRequest::Flush);
    let write: Which = |request| matches!(request, IoRequest::Write { .. });
    let none: Which = |_| false;
    for (of_store, of_log, closed) in [
        (none, none, 1),
        (flush, none, 0),
        (none, flush, 0),
        (none, write, 0),
    ] {
        let fails = Arc::new(AtomicBool::new(false));
        let faulty = |which: Which| {
            let fails = Arc::clone(&fails);
            let rule = move |request: &IoRequest| match fails.load(Ordering::SeqCst) {
                true if which(request) => Fate::Fail(IoFailure::NotReady),
                true | false => Fate::Pass,
            };
            Faulty::new(log_device(), rule).0
        };
        let closes = Arc::new(Closes::default());
        let logged = logged_on(faulty(of_store), faulty(of_log), Arc::clone(&closes));
        fails.store(true, Ordering::SeqCst);
        logged.close();
        assert_eq!(closes.0.load(Ordering::SeqCst), closed);
    }
}

/// A write that its log has, and what a flush then gets.
fn flushed_after_a_loss(has_lost: bool) -> IoResult {
    let (disk, _) = Faulty::new(Probe::new(Durability::UNCOUNTED), |_| Fate::Pass);
    let logged = logged(disk.clone());
    let (mut store, mut outlet) = (logged.handle().unwrap(), Outlet::default());
    store.start(&|| Waker::new(|| {}), &mut outlet);
    let write = |store: &mut Box<dyn Backstore>, outlet: &mut Outlet| {
        let request = IoRequest::Write {
            offset: 0,
            data: memory::Payload::Heap(vec![7; 512]),
            durable: true,
        };
        store.submit(IoTag(1), request, outlet)
    };
    let written = write(&mut store, &mut outlet);
    assert!(matches!(written, Submitted::Done(Ok(_))), "{written:?}");
    if has_lost {
        disk.lose_cache();
    }
    // The log is emptied now and then.
    for number in timers(&mut outlet) {
        store.handle_timer(number, &mut outlet);
    }
    assert_eq!(logged.trouble().is_some(), has_lost);
    match store.submit(IoTag(2), IoRequest::Flush, &mut outlet) {
        Submitted::Done(result) => result,
        Submitted::Taken => panic!("it hangs"),
    }
}

#[test]
fn a_log_keeps_what_its_store_has_lost_whatever_a_later_sync_says() {
    assert!(flushed_after_a_loss(false).is_ok());
    let failed = flushed_after_a_loss(true);
    assert!(matches!(failed, Err(IoFailure::FlushLatched)));
}

#[test]
fn a_faulty_store_fails_hangs_is_full_and_shrinks_as_it_is_told() {
    let (disk, hung) = Faulty::new(Probe::new(DURABILITY), |_| Fate::Hang);
    let (mut store, mut outlet) = (disk.handle().unwrap(), Outlet::default());
    store.start(&|| Waker::new(|| {}), &mut outlet);
    assert_eq!(timers(&mut outlet), [4]);
    for tag in [1, 2] {
        let taken = store.submit(IoTag(tag), IoRequest::Flush, &mut outlet);
        assert!(matches!(taken, Submitted::Taken) && outlet.is_empty());
    }
    let lost = IoFailure::CacheLost;
    hung.recv().unwrap().fail(lost.clone());
    hung.recv().unwrap().pass();
    store.handle_wake(&mut outlet);
    let mut answer = || match outlet.next_order() {
        Some(Order::Answer { tag, result }) => (tag.0, result.is_ok()),
        other => panic!("{other:?}"),
    };
    assert_eq!([answer(), answer()], [(1, false), (2, true)]);
    disk.set_rule(move |_| Fate::Fail(lost.clone()));
    let failed = store.submit(IoTag(3), IoRequest::Flush, &mut outlet);
    assert!(matches!(failed, Submitted::Done(Err(_))));
    disk.set_rule(|_| Fate::Full);
    drop(store.submit(IoTag(4), IoRequest::Flush, &mut outlet));
    assert!(outlet.take_returned().is_some());
    disk.shrink(4096);
    assert_eq!(store.refresh_size(), Some(4096));
    assert_eq!(disk.capabilities().size_bytes, 4096);
    disk.lose_cache();
    assert_eq!(store.durability().lost, Some(6));
}
