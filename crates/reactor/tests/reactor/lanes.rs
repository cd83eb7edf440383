//! Operations of files that may block.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::iter;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{HANG, event, events, pattern, reactor, settings};
use memory::Payload;
use reactor::{Event, Listener, Reactor, Settings, Wait};
use store::{AllocateMode, DiskFile, Extent, FileHandle, Place, RingOperation, StoreFile};

/// A file without a name, 1 MiB long, of whose place nothing is known.
fn file() -> (File, FileHandle) {
    let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let file = File::from(fd);
    file.set_len(1 << 20).unwrap();
    let fd = Arc::new(DiskFile::from(OwnedFd::from(file.try_clone().unwrap())));
    (file, Rc::new(StoreFile::new(fd, Place::unknown())))
}

fn run(reactor: &mut Reactor, operation: RingOperation) -> (RingOperation, i32) {
    reactor.submit_store(77, operation);
    match event(reactor) {
        Event::Store {
            token: 77,
            operation,
            result,
        } => (operation, result),
        other => panic!("{other:?}"),
    }
}

fn read(reactor: &Reactor, file: &FileHandle, offset: u64) -> RingOperation {
    RingOperation::Read {
        file: Rc::clone(file),
        offset,
        buffer: reactor.pool().allocate(4096).unwrap(),
        done: 0,
    }
}

/// The workers that this thread has started.
fn children() -> HashSet<u32> {
    let path = format!("/proc/self/task/{}/children", reactor::cores::thread_id());
    let text = fs::read_to_string(path).unwrap_or_default();
    let is_worker = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim() == "tarn-lane"
    };
    text.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .filter(is_worker)
        .collect()
}

#[test]
fn every_operation_does_on_a_lane_what_it_does_on_the_ring() {
    let mut reactor = reactor();
    let (plain, file) = file();
    for (offset, durable) in [(0, false), (512 << 10, true)] {
        let write = RingOperation::Write {
            file: Rc::clone(&file),
            offset,
            data: Payload::Heap(pattern(100_000)),
            done: 1_000,
            durable,
        };
        assert_eq!(run(&mut reactor, write).1, 99_000);
        let operation = read(&reactor, &file, offset + 8192);
        let (operation, result) = run(&mut reactor, operation);
        assert_eq!(result, 4096);
        let RingOperation::Read { buffer, .. } = operation else {
            panic!("{operation:?}");
        };
        assert_eq!(buffer[..], pattern(100_000)[8192..8192 + 4096]);
    }
    let sync = RingOperation::Sync {
        file: Rc::clone(&file),
    };
    assert_eq!(run(&mut reactor, sync).1, 0);
    let punch = RingOperation::Allocate {
        file: Rc::clone(&file),
        mode: AllocateMode::PunchHole,
        range: 0..512 << 10,
    };
    assert_eq!(run(&mut reactor, punch).1, 0);
    let mut bytes = [1; 4096];
    plain.read_exact_at(&mut bytes, 8192).unwrap();
    assert_eq!(bytes, [0; 4096]);

    let extents = RingOperation::Extents {
        file: Rc::clone(&file),
        range: 0..1 << 20,
        block_bytes: 4096,
        found: vec![Extent::default(); 8],
    };
    let (operation, result) = run(&mut reactor, extents);
    let RingOperation::Extents { found, .. } = operation else {
        panic!("{operation:?}");
    };
    assert!(result >= 2, "{result}");
    let hole = Extent {
        range: 0..512 << 10,
        mapped: false,
    };
    assert_eq!(found[0], hole);
    let size = RingOperation::Size {
        file: Rc::clone(&file),
        is_block_device: false,
        bytes: 0,
    };
    let (operation, result) = run(&mut reactor, size);
    assert_eq!(result, 1 << 20);
    assert!(matches!(
        operation,
        RingOperation::Size {
            bytes: 0x10_0000,
            ..
        }
    ));
}

#[test]
fn an_error_of_the_kernel_comes_back_as_one() {
    let mut reactor = reactor();
    let fd = File::open("/proc/self/exe").unwrap();
    let file = Rc::new(StoreFile::new(
        Arc::new(OwnedFd::from(fd).into()),
        Place::unknown(),
    ));
    let write = RingOperation::Write {
        file,
        offset: 0,
        data: Payload::Heap(vec![1; 512]),
        done: 0,
        durable: false,
    };
    assert_eq!(run(&mut reactor, write).1, -libc::EBADF);
}

/// Nothing looks after the lanes, so that a wake-up that is lost is never made good.
#[test]
fn more_operations_than_a_lane_has_places_for_all_end() {
    let mut reactor = Reactor::new(&Settings {
        look_after_lanes: Duration::from_secs(24 * 3600),
        ..settings()
    })
    .unwrap();
    let (_plain, file) = file();
    let (mut turns, mut all) = (0, Vec::new());
    // Many at once, and then each by itself.
    for (first, count) in [(0, 200)].into_iter().chain((200..300).map(|n| (n, 1))) {
        let mut under_way: HashSet<u64> = (first..first + count).collect();
        for &n in &under_way {
            let operation = read(&reactor, &file, n % 200 * 4096);
            reactor.submit_store(n, operation);
        }
        let deadline = reactor.now() + HANG;
        while !under_way.is_empty() {
            assert!(reactor.now() < deadline, "left: {under_way:?}");
            reactor.turn(Wait::Until(deadline), &mut all).unwrap();
            turns += 1;
            for event in all.drain(..) {
                match event {
                    Event::Store { token, result, .. } => {
                        assert_eq!(result, 4096);
                        assert!(under_way.remove(&token));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    // Each operation may wake once, and once more where it was taken with another one before.
    assert!(turns <= 600, "{turns} turns");
    assert!(children().len() <= 32, "{:?}", children());
}

#[test]
fn what_no_worker_has_begun_is_taken_back_at_once() {
    let mut reactor = reactor();
    let (_plain, file) = file();
    let operation = read(&reactor, &file, 0);
    // Workers see it only with the next turn.
    let id = reactor.submit_store(5, operation);
    reactor.cancel(id);
    match event(&mut reactor) {
        Event::Store {
            token: 5, result, ..
        } => assert_eq!(result, -libc::ECANCELED),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_worker_shares_our_open_files_and_ends_when_its_file_is_closed() {
    let mut reactor = reactor();
    let (_plain, file) = file();
    let operation = read(&reactor, &file, 0);
    drop(run(&mut reactor, operation));
    let started = children();
    assert_eq!(started.len(), 1);
    // A socket that we close is closed: no worker has a copy.
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let operation = read(&reactor, &file, 0);
    drop(run(&mut reactor, operation));
    drop(ours);
    assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
    drop(file);
    // Ended workers are taken away some turns later.
    let (_plain, other) = self::file();
    while !started.is_disjoint(&children()) {
        let sync = RingOperation::Sync {
            file: Rc::clone(&other),
        };
        drop(run(&mut reactor, sync));
    }
}

#[test]
fn no_worker_that_is_killed_takes_an_operation_with_it() {
    let mut reactor = reactor();
    let (_plain, file) = file();
    let path = format!("/proc/self/task/{}/children", reactor::cores::thread_id());
    let (is_over, seen) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let killer = std::thread::spawn({
        let (is_over, seen) = (Arc::clone(&is_over), Arc::clone(&seen));
        move || {
            while !is_over.load(Ordering::Relaxed) {
                for pid in fs::read_to_string(&path)
                    .unwrap_or_default()
                    .split_whitespace()
                {
                    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
                    // It may have ended.
                    let _killed = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                    seen.store(true, Ordering::Relaxed);
                }
                std::thread::park_timeout(Duration::from_micros(300));
            }
        }
    });
    let begin = Instant::now();
    let mut under_way = 0;
    while under_way > 0 || !is_over.load(Ordering::Relaxed) {
        is_over.store(begin.elapsed() > Duration::from_secs(3), Ordering::Relaxed);
        while under_way < 64 && !is_over.load(Ordering::Relaxed) {
            let operation = read(&reactor, &file, 0);
            reactor.submit_store(1, operation);
            under_way += 1;
        }
        under_way -= events(&mut reactor).len();
    }
    killer.join().unwrap();
    assert!(seen.load(Ordering::Relaxed), "a worker was killed");
}

#[test]
fn whatever_is_at_a_path_its_file_system_answers() {
    let paths = [
        "/proc/self/exe",
        "/nonexistent/file",
        "/proc/self/exe/below",
        "",
        "a\0b",
    ];
    reactor::process::wait_for(paths.iter().map(Path::new)).unwrap();
}

#[test]
fn files_are_exchanged_or_left_alone() {
    let directory = std::env::temp_dir().join(format!("tarn-exchange.{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    let [one, two, none] = ["one", "two", "none"].map(|name| directory.join(name));
    fs::write(&one, "1").unwrap();
    fs::write(&two, "2").unwrap();
    reactor::process::exchange(&one, &two).unwrap();
    let missing = reactor::process::exchange(&one, &none).unwrap_err();
    let found = [&one, &two].map(|path| fs::read_to_string(path).unwrap());
    fs::remove_dir_all(directory).unwrap();
    assert_eq!(found, ["2", "1"]);
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn a_thread_that_waits_for_a_file_system_has_its_files_closed_when_it_goes_on() {
    let _reactor = reactor();
    let path = std::env::temp_dir().join(format!("tarn-closed.{}", std::process::id()));
    fs::write(&path, "").unwrap();
    // A lock would outlive it in processes that other tests begin meanwhile.
    let is_open = || {
        let mut files = fs::read_dir("/proc/self/fd").unwrap();
        files.any(|file| fs::read_link(file.unwrap().path()).is_ok_and(|to| to == path))
    };
    let close = || {
        reactor::process::wait_for(iter::once(&*path)).unwrap();
        (0..100).all(|_| {
            drop(DiskFile::from(OwnedFd::from(File::open(&path).unwrap())));
            !is_open()
        })
    };
    let are_closed = std::thread::scope(|scope| scope.spawn(close).join().unwrap());
    fs::remove_file(&path).unwrap();
    assert!(are_closed, "a file that was given back");
}

/// Set for the process that ends beside its workers.
const CHILD: &str = "TARN_TEST_ENDING_REACTOR";

/// In the process that is to end: a reactor with a worker, and the file that keeps it. `None` in any other.
fn in_child_with_a_worker() -> Option<(Reactor, impl Sized)> {
    std::env::vars_os().find(|(name, _)| name == CHILD)?;
    reactor::process::guard();
    let mut reactor = reactor();
    let files = file();
    let operation = read(&reactor, &files.1, 0);
    drop(run(&mut reactor, operation));
    assert_eq!(children().len(), 1);
    Some((reactor, files))
}

#[test]
fn ends_at_once_beside_its_workers() {
    let Some((mut reactor, _files)) = in_child_with_a_worker() else {
        return;
    };
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), 1).unwrap();
    // The ring has the socket as well, and workers the memory of the ring.
    reactor.accept(&listener, 1);
    println!("at {}", listener.local_address());
    let mut events = Vec::new();
    reactor.turn(Wait::Poll, &mut events).unwrap();
    let fail = move || panic!("a fault of ours");
    drop(std::thread::spawn(fail).join());
    reactor::process::end_at_once(9, "the end");
}

#[test]
fn ends_at_once_while_a_library_aborts() {
    let Some(_kept) = in_child_with_a_worker() else {
        return;
    };
    let library = || {
        while !reactor::process::is_ending() {
            std::hint::spin_loop();
        }
        std::process::abort();
    };
    drop(std::thread::spawn(library));
    reactor::process::end_at_once(9, "the end");
}

/// What a library does that finds its files closed is no other end.
#[test]
fn a_process_that_ends_at_once_does_so_with_its_status_whoever_aborts() {
    for _ in 0..10 {
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "lanes::ends_at_once_while_a_library_aborts"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert_eq!(ended.status.code(), Some(9), "{:?}", ended.status);
    }
}

#[test]
fn a_process_that_ends_at_once_beside_its_workers_gives_its_port_back() {
    let ended = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "lanes::ends_at_once_beside_its_workers",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(9), "{said}{errors}");
    let (_, address) = said.split_once("at 127").unwrap();
    let address = format!("127{}", address.lines().next().unwrap());
    drop(Listener::bind(address.parse().unwrap(), 1).unwrap());
}
