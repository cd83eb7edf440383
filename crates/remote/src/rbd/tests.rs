//! The store over a cluster in memory.

mod gateways;
mod meter;
mod snapshots;

use std::cell::Cell;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use memory::{Payload, Pool};
use rbd::testing::{FakeCluster, Faults, Manner, library};
use store::{
    Backstore, Connections, Extent, IoAnswer, IoFailure, IoRequest, IoResult, IoTag, Note, Order,
    Outlet, SharedStore, Submitted, Waker,
};

use super::looks::Looks;
use super::options::RbdOptions;

/// How long a test waits for another thread.
const PATIENCE: Duration = Duration::from_secs(20);
const MIB: usize = 1 << 20;
const RETRY: u64 = 7;

/// How long one test waits for other threads in all, in pauses of a millisecond and turns.
const WAITS_MAX: u32 = 60_000;

thread_local! {
    static WAITS: Cell<u32> = const { Cell::new(0) };
}

/// Counts a wait of this test.
#[track_caller]
fn wait_once() {
    WAITS.set(WAITS.get() + 1);
    assert!(WAITS.get() < WAITS_MAX, "what this waits for never comes");
}

/// Lets other threads go on.
#[track_caller]
fn pause() {
    wait_once();
    std::thread::park_timeout(Duration::from_millis(1));
}

fn options(fake: &FakeCluster) -> RbdOptions {
    RbdOptions {
        cluster: fake.options(),
        pool: "rbd".to_owned(),
        namespace: String::new(),
        image: "disk".to_owned(),
        snapshot: None,
        size_bytes: None,
        waits_for_lock: false,
        retry: Duration::from_secs(RETRY),
        read_only: false,
        thin: true,
        block_bytes: 512,
    }
}

fn open(options: RbdOptions) -> Result<Arc<dyn SharedStore>, String> {
    open_over(&Looks::default(), options)
}

fn open_over(looks: &Looks, options: RbdOptions) -> Result<Arc<dyn SharedStore>, String> {
    let opened = options.open_with(Ok(library()), looks);
    opened.map_err(|error| error.to_string())
}

/// One handle on one core.
struct Rig {
    store: Box<dyn Backstore>,
    outlet: Outlet,
    woken: mpsc::Receiver<()>,
    pool: Pool,
    reach: Vec<bool>,
    held: Vec<bool>,
    sizes: usize,
    timers: usize,
}

impl Rig {
    fn new(disk: &dyn SharedStore) -> Self {
        let mut store = disk.handle().unwrap();
        let mut outlet = Outlet::default();
        let (wakes, woken) = mpsc::channel();
        let make_waker = || {
            let wakes = wakes.clone();
            Waker::new(move || wakes.send(()).unwrap_or_default())
        };
        store.start(&make_waker, &mut outlet);
        Self {
            store,
            outlet,
            woken,
            pool: Pool::new(0).unwrap(),
            reach: Vec::new(),
            held: Vec::new(),
            sizes: 0,
            timers: 0,
        }
    }

    fn submit(&mut self, tag: u64, request: IoRequest) -> Option<IoResult> {
        match self.store.submit(IoTag(tag), request, &mut self.outlet) {
            Submitted::Done(result) => Some(result),
            Submitted::Taken => None,
        }
    }

    fn begin(&mut self, tag: u64, request: IoRequest) {
        let done = self.submit(tag, request);
        assert!(done.is_none(), "{done:?}");
    }

    fn write(&mut self, offset: u64, byte: u8) -> IoRequest {
        let mut buffer = self.pool.allocate(4096).unwrap();
        buffer.fill(byte);
        let data = Payload::Pool(buffer);
        IoRequest::Write {
            offset,
            data,
            durable: false,
        }
    }

    fn read(&mut self, offset: u64) -> IoRequest {
        let (len, buffer) = (4096, Some(self.pool.allocate(4096).unwrap()));
        IoRequest::Read {
            offset,
            len,
            buffer,
        }
    }

    /// The outcome of a request, at once or later.
    fn ask(&mut self, tag: u64, request: IoRequest) -> IoResult {
        match self.submit(tag, request) {
            Some(done) => done,
            None => match self.answer() {
                (answered, result) if answered == tag => result,
                other => panic!("{other:?}"),
            },
        }
    }

    /// The next answer among the orders that there are.
    fn answered(&mut self) -> Option<(u64, IoResult)> {
        while let Some(order) = self.outlet.next_order() {
            match order {
                Order::Answer { tag, result } => return Some((tag.0, result)),
                Order::Reach { is_reached } => self.reach.push(is_reached),
                Order::HeldElsewhere { is_held } => self.held.push(is_held),
                Order::Size => self.sizes += 1,
                Order::Timer { .. } => self.timers += 1,
                other @ (Order::Ring { .. }
                | Order::Helper { .. }
                | Order::CancelParts(_)
                | Order::CancelPart(_)
                | Order::OpenSocket { .. }
                | Order::Socket { .. }
                | Order::CloseSocket(_)) => panic!("{other:?}"),
            }
        }
        None
    }

    /// Waits for mail.
    #[track_caller]
    fn turn(&mut self) {
        wait_once();
        self.woken.recv_timeout(PATIENCE).unwrap();
        self.store.handle_wake(&mut self.outlet);
    }

    /// The next answer, of another thread.
    fn answer(&mut self) -> (u64, IoResult) {
        loop {
            match self.answered() {
                Some(answer) => return answer,
                None => self.turn(),
            }
        }
    }

    fn tick(&mut self, count: u64) {
        for _ in 0..count {
            self.store.handle_timer(0, &mut self.outlet);
        }
    }

    fn is_whole(&self) -> bool {
        self.pool.free_bytes() == self.pool.capacity_bytes()
    }
}

#[test]
fn data_goes_there_and_back() {
    let fake = FakeCluster::new(MIB);
    let disk = open(options(&fake)).unwrap();
    let capabilities = disk.capabilities();
    assert!(!capabilities.volatile_cache && capabilities.thin && !capabilities.read_only);
    assert_eq!(capabilities.compare_and_write_bytes, 512);
    let mut rig = Rig::new(&*disk);
    let write = rig.write(8192, 7);
    rig.begin(1, write);
    assert!(matches!(rig.answer(), (1, Ok(IoAnswer::Done))));
    assert_eq!(
        (fake.byte(8191), fake.byte(8192), fake.byte(12287)),
        (0, 7, 7)
    );
    let read = rig.read(8192);
    rig.begin(2, read);
    match rig.answer() {
        (2, Ok(IoAnswer::Data(data))) => assert_eq!(data.to_vec(), [7; 4096]),
        other => panic!("{other:?}"),
    }
    let data = Payload::Heap([vec![7; 512], vec![8; 512]].concat());
    let compare = |data| IoRequest::CompareAndWrite {
        offset: 8192,
        data,
        durable: false,
    };
    rig.begin(3, compare(data));
    assert!(matches!(rig.answer(), (3, Ok(IoAnswer::Done))));
    rig.begin(
        4,
        compare(Payload::Heap([vec![8; 100], vec![7; 924]].concat())),
    );
    assert!(matches!(
        rig.answer(),
        (4, Err(IoFailure::Miscompare { offset: 100 }))
    ));
    let extents = |range| IoRequest::Extents {
        range,
        count_max: 8,
    };
    rig.begin(5, extents(0..MIB as u64));
    let extent = |range, mapped| Extent { range, mapped };
    match rig.answer() {
        (5, Ok(IoAnswer::Extents(found))) => {
            assert_eq!(
                found,
                [extent(0..65536, true), extent(65536..MIB as u64, false)]
            );
        }
        other => panic!("{other:?}"),
    }
    rig.begin(6, IoRequest::Unmap { range: 0..65536 });
    assert!(matches!(rig.answer(), (6, Ok(IoAnswer::Done))));
    assert_eq!(fake.byte(8192), 0);
    rig.begin(7, IoRequest::Flush);
    assert!(matches!(rig.answer(), (7, Ok(IoAnswer::Done))));
    assert!(rig.is_whole());
}

#[test]
fn zeros_are_written_in_pieces_and_a_cancel_ends_them() {
    let fake = FakeCluster::new(200 * MIB);
    let disk = open(options(&fake)).unwrap();
    let mut rig = Rig::new(&*disk);
    let write = rig.write(199 * MIB as u64, 9);
    rig.begin(1, write);
    assert_eq!(rig.answer().0, 1);
    let zeros = |durable| IoRequest::WriteZeros {
        range: 0..200 * MIB as u64,
        durable,
    };
    fake.treat_next([Manner::Held]);
    rig.begin(2, zeros(false));
    rig.store.cancel(IoTag(2), &mut rig.outlet);
    fake.release();
    assert!(matches!(rig.answer(), (2, Err(IoFailure::Cancelled))));
    assert_eq!(fake.byte(199 * MIB), 9, "no piece is begun after a cancel");
    rig.begin(3, zeros(true));
    assert!(matches!(rig.answer(), (3, Ok(IoAnswer::Done))));
    assert_eq!(fake.byte(199 * MIB), 0);
    fake.treat_next([Manner::Prompt, Manner::Fails(28)]);
    rig.begin(4, zeros(true));
    assert!(matches!(rig.answer(), (4, Err(IoFailure::NoSpace { .. }))));
}

#[test]
fn while_nothing_is_answered_only_writes_that_have_begun_wait() {
    let fake = FakeCluster::new(MIB);
    let disk = open(options(&fake)).unwrap();
    let mut rig = Rig::new(&*disk);
    rig.begin(1, IoRequest::Flush);
    assert_eq!(rig.answer().0, 1);
    fake.treat_next([Manner::Held, Manner::Held]);
    let (read, write) = (rig.read(0), rig.write(4096, 3));
    rig.begin(2, read);
    rig.begin(3, write);
    rig.tick(RETRY - 1);
    assert!(rig.answered().is_none() && disk.outage().is_none());
    let silent = Connections {
        up: 1,
        again: 0,
        held: 2,
    };
    assert_eq!(disk.connections(), Some(silent));
    rig.tick(1);
    assert!(matches!(
        rig.answered(),
        Some((2, Err(IoFailure::NotReady)))
    ));
    assert!(
        rig.answered().is_none(),
        "a write that may still land is not answered"
    );
    assert_eq!(rig.reach, [false]);
    assert!(
        disk.outage()
            .unwrap()
            .contains("rbd/disk: the cluster does not answer")
    );
    let write = rig.write(0, 4);
    let refused = rig.submit(4, write);
    assert!(matches!(refused, Some(Err(IoFailure::NotReady))));
    assert!(!rig.is_whole(), "the library has the buffers");
    fake.release();
    assert!(matches!(rig.answer(), (3, Ok(IoAnswer::Done))));
    while !rig.is_whole() {
        rig.turn();
    }
    assert_eq!(
        (rig.reach.as_slice(), disk.outage()),
        ([false, true].as_slice(), None)
    );
    assert_eq!((fake.byte(0), fake.byte(4096)), (0, 3));
    let write = rig.write(0, 4);
    rig.begin(5, write);
    assert!(matches!(rig.answer(), (5, Ok(IoAnswer::Done))));
}

#[test]
fn what_comes_before_the_image_is_open_waits_so_long() {
    let fake = FakeCluster::new(MIB);
    let disk = open(options(&fake)).unwrap();
    fake.set_faults(Faults {
        connect: Some(110),
        ..Faults::default()
    });
    let mut rig = Rig::new(&*disk);
    let (first, second) = (rig.read(0), rig.read(4096));
    rig.begin(1, first);
    rig.begin(2, second);
    rig.store.cancel(IoTag(2), &mut rig.outlet);
    assert!(matches!(
        rig.answered(),
        Some((2, Err(IoFailure::Cancelled)))
    ));
    rig.tick(RETRY);
    assert!(matches!(
        rig.answered(),
        Some((1, Err(IoFailure::NotReady)))
    ));
    assert!(rig.answered().is_none());
    assert_eq!(rig.reach, [false]);
    fake.set_faults(Faults::default());
    while rig.reach.len() < 2 {
        rig.turn();
        assert!(rig.answered().is_none());
    }
    assert_eq!(disk.outage(), None);
    let read = rig.read(0);
    rig.begin(3, read);
    assert!(matches!(rig.answer(), (3, Ok(IoAnswer::Data(_)))));
    assert!(rig.is_whole());
}

#[test]
fn a_client_that_was_blocklisted_serves_no_more() {
    let fake = FakeCluster::new(MIB);
    let disk = open(options(&fake)).unwrap();
    let mut rig = Rig::new(&*disk);
    rig.begin(1, IoRequest::Flush);
    assert_eq!(rig.answer().0, 1);
    fake.set_owner(Some(("192.0.2.1:0/77", true)));
    fake.treat_next([Manner::Fails(108)]);
    let write = rig.write(0, 1);
    rig.begin(2, write);
    assert!(matches!(rig.answer(), (2, Err(IoFailure::NotReady))));
    while rig.reach.is_empty() {
        rig.turn();
        assert!(rig.answered().is_none());
    }
    assert!(disk.outage().unwrap().contains("blocklisted"));
    let read = rig.read(0);
    let refused = rig.submit(3, read);
    assert!(matches!(refused, Some(Err(IoFailure::HeldElsewhere))));
    assert!(rig.is_whole());
}

#[test]
fn errors_of_the_cluster_are_told_apart() {
    let fake = FakeCluster::new(MIB);
    let disk = open(options(&fake)).unwrap();
    let mut rig = Rig::new(&*disk);
    rig.begin(0, IoRequest::Flush);
    assert_eq!(rig.answer().0, 0);
    let offset = 4096;
    for (tag, (errno, failure)) in (1..).zip([
        (28, IoFailure::NoSpace { offset }),
        (122, IoFailure::NoSpace { offset }),
        (5, IoFailure::Medium { offset }),
        (110, IoFailure::NotReady),
        (30, IoFailure::NotReady),
        (22, IoFailure::Hardware { errno: 22 }),
    ]) {
        fake.treat_next([Manner::Fails(errno)]);
        let write = rig.write(offset, 1);
        rig.begin(tag, write);
        let (got, result) = rig.answer();
        assert_eq!((got, result.unwrap_err()), (tag, failure));
    }
    assert!(rig.is_whole());
}

#[test]
fn another_size_is_told_to_the_core() {
    let fake = FakeCluster::new(MIB);
    let disk = open(options(&fake)).unwrap();
    let mut rig = Rig::new(&*disk);
    rig.begin(1, IoRequest::Flush);
    assert_eq!(rig.answer().0, 1);
    assert_eq!(rig.store.refresh_size(), None);
    let before = rig.sizes;
    fake.resize(2 * MIB);
    while rig.sizes == before {
        rig.turn();
        assert!(rig.answered().is_none());
    }
    assert_eq!(rig.store.refresh_size(), Some(2 * MIB as u64));
    assert_eq!(disk.capabilities().size_bytes, 2 * MIB as u64);
    fake.resize(MIB);
    while rig.store.refresh_size().is_none() {
        rig.turn();
    }
    let read = rig.read(MIB as u64);
    let refused = rig.submit(2, read);
    assert!(matches!(refused, Some(Err(IoFailure::Truncated { .. }))));
}

fn notes(disk: &Arc<dyn SharedStore>, note: Note) -> Option<String> {
    disk.notes().unwrap().read(note).unwrap()
}

/// A store whose image is open.
fn served(disk: &Arc<dyn SharedStore>) -> Rig {
    let mut rig = Rig::new(&**disk);
    rig.begin(1, IoRequest::Flush);
    assert_eq!(rig.answer().0, 1);
    rig
}

#[test]
fn texts_are_kept_in_the_image_and_are_not_those_of_a_copy() {
    let fake = FakeCluster::new(MIB);
    fake.set_metadata("tarn.identity", "of-another of a parent");
    fake.set_metadata("tarn.state", "of-another of a parent");
    let disk = open(options(&fake)).unwrap();
    assert_eq!(
        (notes(&disk, Note::Identity), notes(&disk, Note::State)),
        (None, None)
    );
    let kept = disk.notes().unwrap();
    kept.write(Note::Identity, "me").unwrap();
    let rig = Rig::new(&*disk);
    // This waits until the image is open.
    kept.write(Note::State, "state").unwrap();
    assert_eq!(fake.metadata("tarn.identity").unwrap(), "abc123 me");
    assert_eq!(fake.metadata("tarn.state").unwrap(), "abc123 state");
    fake.set_metadata("tarn.state", "abc123 other");
    assert_eq!(notes(&disk, Note::State).unwrap(), "other");
    drop((kept, rig, disk));
    while fake.counts().0 > 0 {
        pause();
    }
    let disk = open(options(&fake)).unwrap();
    assert_eq!(notes(&disk, Note::Identity).unwrap(), "me");
    assert_eq!(notes(&disk, Note::State).unwrap(), "other");
    drop(served(&disk));
    let read_only = RbdOptions {
        read_only: true,
        ..options(&fake)
    };
    drop(disk);
    while fake.counts().0 > 0 {
        pause();
    }
    assert!(open(read_only).unwrap().notes().is_none());
}

#[test]
fn a_text_is_not_waited_for_twice_while_the_cluster_hangs() {
    let fake = FakeCluster::new(MIB);
    let disk = open(options(&fake)).unwrap();
    let kept = disk.notes().unwrap();
    let _rig = served(&disk);
    kept.write(Note::State, "a").unwrap();
    let hang = fake.hang_metadata();
    let late = kept.write(Note::State, "b").unwrap_err();
    assert_eq!(late.kind(), std::io::ErrorKind::TimedOut);
    for _ in 0..100 {
        let refused = kept.write(Note::State, "c").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::NotConnected);
        assert!(refused.to_string().contains("no answer yet"), "{refused}");
        assert!(kept.read(Note::State).is_err());
    }
    drop(hang);
    while kept.write(Note::State, "d").is_err() {
        pause();
    }
    assert_eq!(fake.metadata("tarn.state").unwrap(), "abc123 d");
}

#[test]
fn an_image_that_another_tarn_has_served_meanwhile_is_opened_again() {
    let fake = FakeCluster::new(MIB);
    let disk = open(options(&fake)).unwrap();
    fake.set_metadata("tarn.state", "abc123 newer");
    let mut rig = Rig::new(&*disk);
    let refused = rig.ask(1, IoRequest::Flush);
    assert!(matches!(refused, Err(IoFailure::NotReady)));
    assert!(
        disk.outage()
            .unwrap()
            .contains("another Tarn has served it")
    );
    assert!(disk.is_outdated());
    let late = disk
        .notes()
        .unwrap()
        .write(Note::State, "older")
        .unwrap_err();
    assert!(late.to_string().contains("another Tarn"), "{late}");
    assert_eq!(fake.metadata("tarn.state").unwrap(), "abc123 newer");
    // Beside the one that is left.
    let again = open(options(&fake)).unwrap();
    assert_eq!(notes(&again, Note::State).unwrap(), "newer");
    drop(served(&again));
    assert!(!again.is_outdated());
}

#[test]
fn an_image_of_another_client_is_waited_for_if_asked() {
    let fake = FakeCluster::new(MIB);
    let has = |is_alive| Faults {
        owner: Some(("192.0.2.1:0/77".to_owned(), is_alive)),
        ..Faults::default()
    };
    fake.set_faults(has(true));
    let waits = RbdOptions {
        waits_for_lock: true,
        size_bytes: Some(2 << 20),
        ..options(&fake)
    };
    let disk = open(waits).unwrap();
    let size_bytes = disk.capabilities().size_bytes;
    assert_eq!(size_bytes, 1 << 20, "it is not this one's to grow");
    let mut rig = Rig::new(&*disk);
    while !disk.outage().is_some_and(|why| why.contains("192.0.2.1")) {
        pause();
    }
    while rig.held.is_empty() {
        assert!(rig.answered().is_none());
        if rig.held.is_empty() {
            rig.turn();
        }
    }
    let refused = rig.submit(1, IoRequest::Flush);
    assert!(matches!(refused, Some(Err(IoFailure::HeldElsewhere))));
    fake.set_faults(has(false));
    while disk.outage().is_some() {
        rig.turn();
        assert!(rig.answered().is_none());
    }
    assert_eq!(rig.held, [true, false]);
    rig.begin(2, IoRequest::Flush);
    assert!(matches!(rig.answer(), (2, Ok(IoAnswer::Done))));
}

#[test]
fn an_image_is_taken_from_a_client_that_has_it() {
    let fake = FakeCluster::new(MIB);
    let owner = Some(("192.0.2.1:0/77".to_owned(), true));
    fake.set_faults(Faults {
        owner,
        ..Faults::default()
    });
    let waits = RbdOptions {
        waits_for_lock: true,
        ..options(&fake)
    };
    let disk = open(waits).unwrap();
    let mut rig = Rig::new(&*disk);
    // Also if it came before anybody knew.
    let refused = rig.ask(1, IoRequest::Flush);
    assert!(matches!(refused, Err(IoFailure::HeldElsewhere)));
    disk.take_over().unwrap();
    while rig.held != [true, false] {
        rig.turn();
        assert!(rig.answered().is_none());
    }
    disk.take_over().unwrap();
    // Another one has taken it back.
    fake.treat_next([Manner::Fails(108)]);
    rig.begin(2, IoRequest::Flush);
    assert!(matches!(rig.answer(), (2, Err(IoFailure::NotReady))));
    while rig.reach.is_empty() {
        rig.turn();
        assert!(rig.answered().is_none());
    }
    assert_eq!(rig.held[..3], [true, false, true]);
    disk.take_over().unwrap();
    assert!(disk.is_outdated(), "it is opened again");
    let read_only = RbdOptions {
        read_only: true,
        ..options(&fake)
    };
    let unsupported = open(read_only).unwrap().take_over().unwrap_err();
    assert_eq!(unsupported.kind(), std::io::ErrorKind::Unsupported);
}

#[test]
fn a_user_who_may_not_write_metadata_is_served() {
    let fake = FakeCluster::new(MIB);
    let disk = open(options(&fake)).unwrap();
    let kept = disk.notes().unwrap();
    kept.write(Note::Identity, "me").unwrap();
    fake.set_faults(Faults {
        change: Some(1),
        ..Faults::default()
    });
    let _rig = served(&disk);
    assert_eq!(fake.metadata("tarn.identity"), None);
    let denied = kept.write(Note::State, "state").unwrap_err();
    assert_eq!(denied.kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn an_image_is_made_and_grows_to_its_size() {
    let fake = FakeCluster::new(MIB);
    let sized = |size_bytes| RbdOptions {
        size_bytes: Some(size_bytes),
        ..options(&fake)
    };
    fake.remove_image();
    let read_only = RbdOptions {
        read_only: true,
        ..options(&fake)
    };
    assert!(open(read_only).unwrap_err().contains("no such image"));
    for mib in [2, 2, 3] {
        let disk = open(sized(mib << 20)).unwrap();
        assert_eq!(disk.capabilities().size_bytes, mib << 20);
    }
    let disk = open(sized(3 << 20)).unwrap();
    disk.grow(4 << 20).unwrap();
    assert_eq!(disk.capabilities().size_bytes, 4 << 20, "before its thread");
    let mut rig = served(&disk);
    let before = rig.sizes;
    disk.grow(5 << 20).unwrap();
    while rig.sizes == before {
        rig.turn();
        assert!(rig.answered().is_none());
    }
    assert_eq!(rig.store.refresh_size(), Some(5 << 20));
    disk.grow(2 << 20).unwrap();
    assert_eq!(disk.capabilities().size_bytes, 5 << 20);
    fake.set_faults(Faults {
        change: Some(28),
        ..Faults::default()
    });
    assert!(disk.grow(6 << 20).is_err());
    assert_eq!(disk.capabilities().size_bytes, 5 << 20);
}

#[test]
fn stores_of_one_cluster_share_a_connection_and_all_is_closed_behind_them() {
    let fake = FakeCluster::new(MIB);
    let snapshot = RbdOptions {
        snapshot: Some("yesterday".to_owned()),
        ..options(&fake)
    };
    let looks = Looks::default();
    let disks = [options(&fake), snapshot].map(|options| open_over(&looks, options).unwrap());
    assert_eq!(fake.counts(), (1, 1, 0), "looks share a connection");
    drop(looks);
    assert_eq!(fake.counts(), (0, 1, 0), "nothing is left of the looks");
    assert!(disks[1].capabilities().read_only);
    let mut rigs = disks
        .each_ref()
        .map(|disk| [Rig::new(&**disk), Rig::new(&**disk)]);
    for rig in rigs.as_flattened_mut() {
        rig.begin(1, IoRequest::Flush);
        assert_eq!(rig.answer().0, 1);
    }
    assert_eq!(fake.counts(), (1, 2, 2));
    // One has memory that the library still uses.
    fake.treat_next([Manner::Held]);
    let rig = &mut rigs[0][0];
    let read = rig.read(0);
    rig.begin(2, read);
    let leaked = memory::leaked_bytes();
    drop((rigs, disks));
    assert!(memory::leaked_bytes() >= leaked + 4096);
    while fake.counts().2 > 0 || fake.counts().0 > 0 {
        pause();
    }
}

#[test]
fn the_looks_of_a_change_end_behind_it() {
    let fake = FakeCluster::new(MIB);
    let looks = Looks::ended_apart();
    for _ in 0..2 {
        open_over(&looks, options(&fake)).unwrap();
    }
    assert_eq!(fake.counts(), (1, 1, 0));
    drop(looks);
    while fake.counts().0 > 0 {
        pause();
    }
}

/// What is wrong, with the cluster or with what is asked, and what is said.
type Case<'a> = (&'a Faults, fn(&mut RbdOptions), &'a str);

#[test]
fn what_cannot_be_a_disk_says_why() {
    let fake = FakeCluster::new(MIB + 512);
    let owner = |is_alive| Faults {
        owner: Some(("192.0.2.1:0/77".to_owned(), is_alive)),
        ..Faults::default()
    };
    let refused = |faults: &Faults, change: fn(&mut RbdOptions)| {
        fake.set_faults(faults.clone());
        let mut options = options(&fake);
        change(&mut options);
        let error = open(options).err().unwrap_or_default();
        assert_eq!(fake.counts().0, 0, "a connection is left: {error}");
        error
    };
    let none = Faults::default();
    let cache = Faults {
        cache: "1",
        ..Faults::default()
    };
    let denied = |errno| Faults {
        connect: Some(errno),
        ..Faults::default()
    };
    #[rustfmt::skip]
    let cases: [Case<'_>; 12] = [
        (&none, |it| it.pool = "p".to_owned(), "image p/disk: there is no pool \"p\""),
        (&none, |it| it.image = "i".to_owned(), "image rbd/i: there is no such image; create it with rbd create"),
        (&none, |it| it.image = "i".to_owned(), "with rbd create or the option size=, or name"),
        (&none, |it| (it.size_bytes, it.read_only) = (Some(2 << 20), true), "it is opened readonly; leave size= out"),
        (&none, |it| it.snapshot = Some("s".to_owned()), "image rbd/disk@s: there is no such image, or it has no such snap"),
        (&none, |it| it.block_bytes = 4096, "1049088 bytes are not a whole number of blocks of 4096"),
        (&none, |it| it.cluster.keyring = Some("/nowhere".into()), "keyring /nowhere: No such file or directory; name the"),
        (&owner(true), |_| {}, "the client at 192.0.2.1:0/77 has its exclusive lock"),
        (&cache, |_| {}, "rbd_cache"),
        (&denied(2), |_| {}, "cannot connect as client.admin: no key of that user"),
        (&denied(13), |it| it.cluster.user = Some("u".to_owned()), "client.u: Permission denied; the key is not"),
        (&denied(110), |_| {}, "no monitor answers"),
    ];
    for (faults, change, words) in cases {
        let error = refused(faults, change);
        assert!(error.contains(words), "{words:?} is not in {error:?}");
    }
    assert_eq!(
        refused(&owner(false), |_| {}),
        "",
        "the lock of a client that is gone is broken"
    );
    assert_eq!(refused(&owner(true), |it| it.read_only = true), "");
    fake.set_faults(none);
    let first = open(options(&fake)).unwrap();
    let error = open(options(&fake)).unwrap_err();
    assert!(error.contains("another store of this Tarn"), "{error}");
    drop(first);
}

#[test]
fn any_word_but_no_turns_a_cache_on() {
    let fake = FakeCluster::new(MIB);
    for (cache, is_on) in [
        ("true", true),
        ("TRUE", true),
        ("on", true),
        ("42", true),
        ("False", false),
        ("0", false),
        ("off", false),
    ] {
        fake.set_faults(Faults {
            cache,
            ..Faults::default()
        });
        let opened = open(options(&fake));
        assert_eq!(opened.is_err(), is_on, "{cache}");
    }
}
