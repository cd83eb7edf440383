//! Files, helper threads and mail.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use crate::common::{event, events, expect_quiet, pattern, reactor, settings};
use memory::Payload;
use reactor::{Event, Reactor, Settings, Wait, mail};
use store::{
    AllocateMode, DiskFile, FileHandle, HelperAnswer, HelperOperation, IoFailure, Place,
    RingOperation, StoreFile,
};

/// A file without a name, 1 MiB long.
fn file() -> (File, FileHandle) {
    let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let file = File::from(fd);
    file.set_len(1 << 20).unwrap();
    let fd = Arc::new(DiskFile::from(OwnedFd::from(file.try_clone().unwrap())));
    let handle = Rc::new(StoreFile::new(fd, Place::memory()));
    (file, handle)
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

#[test]
fn a_write_starts_at_what_is_done_and_a_read_finds_it() {
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
        let mut bytes = vec![1; 100_000];
        plain.read_exact_at(&mut bytes, offset).unwrap();
        assert!(bytes[..1_000].iter().all(|&byte| byte == 0));
        assert_eq!(bytes[1_000..], pattern(100_000)[1_000..]);

        let mut buffer = reactor.pool().allocate(100_000).unwrap();
        buffer.fill(0xaa);
        let read = RingOperation::Read {
            file: Rc::clone(&file),
            offset,
            buffer,
            done: 2_000,
        };
        match run(&mut reactor, read) {
            (RingOperation::Read { buffer, .. }, 98_000) => {
                assert!(buffer[..2_000].iter().all(|&byte| byte == 0xaa));
                assert_eq!(buffer[2_000..], pattern(100_000)[2_000..]);
            }
            other => panic!("{other:?}"),
        }
    }
    let sync = RingOperation::Sync { file };
    assert_eq!(run(&mut reactor, sync).1, 0);
}

#[test]
fn punched_ranges_read_zeros_and_the_size_stays() {
    let mut reactor = reactor();
    let (plain, file) = file();
    plain.write_all_at(&pattern(1 << 20), 0).unwrap();
    let punch = RingOperation::Allocate {
        file,
        mode: AllocateMode::PunchHole,
        range: 4096..12_288,
    };
    assert_eq!(run(&mut reactor, punch).1, 0);
    let mut bytes = vec![0; 1 << 20];
    plain.read_exact_at(&mut bytes, 0).unwrap();
    let mut expected = pattern(1 << 20);
    expected[4096..12_288].fill(0);
    assert!(bytes == expected);
}

#[test]
fn zeroed_ranges_read_zeros_or_the_file_system_says_no() {
    let mut reactor = reactor();
    let path = std::env::temp_dir().join(format!("tarn-reactor-zero-{}", std::process::id()));
    let plain = File::create_new(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    plain.write_all_at(&pattern(65_536), 0).unwrap();
    let zero = RingOperation::Allocate {
        file: Rc::new(StoreFile::new(
            Arc::new(OwnedFd::from(plain.try_clone().unwrap()).into()),
            Place::memory(),
        )),
        mode: AllocateMode::ZeroRange,
        // Past the end: the size must stay.
        range: 4096..1 << 20,
    };
    let result = run(&mut reactor, zero).1;
    assert!(
        result == 0 || result == -rustix::io::Errno::OPNOTSUPP.raw_os_error(),
        "{result}"
    );
    assert_eq!(plain.metadata().unwrap().len(), 65_536);
}

#[test]
fn errors_of_the_kernel_come_with_the_operation() {
    let mut reactor = reactor();
    let read_only = File::open("/dev/null").unwrap();
    let write = RingOperation::Write {
        file: Rc::new(StoreFile::new(
            Arc::new(OwnedFd::from(read_only).into()),
            Place::memory(),
        )),
        offset: 0,
        data: Payload::Heap(vec![1; 512]),
        done: 0,
        durable: false,
    };
    let (operation, result) = run(&mut reactor, write);
    assert_eq!(result, -rustix::io::Errno::BADF.raw_os_error());
    assert!(matches!(operation, RingOperation::Write { data, .. } if data.len() == 512));
}

fn helper(work: impl FnOnce() -> store::HelperResult + Send + 'static) -> HelperOperation {
    HelperOperation {
        name: "test",
        work: Box::new(work),
    }
}

#[test]
fn helper_work_runs_elsewhere_and_its_result_wakes_the_reactor() {
    let mut reactor = reactor();
    let here = thread::current().id();
    for token in 0..20 {
        reactor.submit_helper(
            token,
            helper(move || {
                assert_ne!(thread::current().id(), here);
                Ok(HelperAnswer::Done)
            }),
        );
    }
    assert_eq!(reactor.in_flight(), 20);
    let mut seen = 0u32;
    while seen != (1 << 20) - 1 {
        for event in events(&mut reactor) {
            match event {
                Event::Helper { token, result } => {
                    assert!(matches!(result, Ok(HelperAnswer::Done)), "{result:?}");
                    assert_eq!(seen & 1 << token, 0);
                    seen |= 1 << token;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(reactor.in_flight(), 0);
}

#[test]
fn helper_work_that_panics_is_a_failure_and_the_next_one_runs() {
    let mut reactor = Reactor::new(&Settings {
        helper_threads_max: 1,
        ..settings()
    })
    .unwrap();
    reactor.submit_helper(1, helper(|| panic!("on purpose")));
    match event(&mut reactor) {
        Event::Helper { result, .. } => {
            assert_eq!(result.unwrap_err(), IoFailure::Hardware { errno: 0 });
        }
        other => panic!("{other:?}"),
    }
    reactor.submit_helper(2, helper(|| Ok(HelperAnswer::Done)));
    assert!(matches!(
        event(&mut reactor),
        Event::Helper {
            token: 2,
            result: Ok(_)
        }
    ));
}

#[test]
fn queued_helper_work_can_be_cancelled_and_begun_work_cannot() {
    let mut reactor = Reactor::new(&Settings {
        helper_threads_max: 1,
        ..settings()
    })
    .unwrap();
    let (begun, has_begun) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let first = reactor.submit_helper(
        1,
        helper(move || {
            begun.send(()).unwrap();
            released.recv().unwrap();
            Ok(HelperAnswer::Done)
        }),
    );
    let second = reactor.submit_helper(2, helper(|| panic!("must not run")));
    has_begun.recv().unwrap();
    reactor.cancel(first);
    reactor.cancel(second);
    match event(&mut reactor) {
        Event::Helper { token: 2, result } => {
            assert_eq!(result.unwrap_err(), IoFailure::Cancelled);
        }
        other => panic!("{other:?}"),
    }
    release.send(()).unwrap();
    assert!(matches!(
        event(&mut reactor),
        Event::Helper {
            token: 1,
            result: Ok(_)
        }
    ));
}

/// The helper holds the reactor's end of nothing, so dropping does not wait for it.
#[test]
fn dropping_the_reactor_does_not_wait_for_helper_work() {
    let mut reactor = reactor();
    let (begun, has_begun) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    reactor.submit_helper(
        1,
        helper(move || {
            begun.send(()).unwrap();
            assert!(released.recv().is_ok());
            Ok(HelperAnswer::Done)
        }),
    );
    has_begun.recv().unwrap();
    drop(reactor);
    release.send(()).unwrap();
}

#[test]
fn mail_from_a_thread_wakes_a_sleeping_reactor_every_time() {
    let mut reactor = reactor();
    let (post, mailbox) = mail::channel().unwrap();
    let (answer, answered) = mpsc::channel();
    reactor.watch(&mailbox, 42);
    expect_quiet(&mut reactor);
    let sender = thread::spawn(move || {
        for n in 0..1_000 {
            post.push(n);
            answered.recv().unwrap();
        }
    });
    let mut events = Vec::new();
    for n in 0..1_000 {
        while events.is_empty() {
            reactor.turn(Wait::Forever, &mut events).unwrap();
        }
        assert!(matches!(events[..], [Event::Mail { token: 42 }]));
        events.clear();
        assert_eq!(mailbox.take(), [n]);
        answer.send(()).unwrap();
    }
    sender.join().unwrap();
}

#[test]
fn letters_of_many_threads_all_arrive_and_two_mailboxes_are_told_apart() {
    let mut reactor = reactor();
    let (post, mailbox) = mail::channel().unwrap();
    let (other_post, other_mailbox) = mail::channel().unwrap();
    // Posted before anyone watched: not lost either.
    other_post.push("early");
    reactor.watch(&mailbox, 1);
    reactor.watch(&other_mailbox, 2);
    assert!(matches!(event(&mut reactor), Event::Mail { token: 2 }));
    assert_eq!(other_mailbox.take(), ["early"]);

    let senders: Vec<_> = (0..4)
        .map(|_| {
            let post = post.clone();
            thread::spawn(move || (0..1_000).for_each(|_| post.push(1)))
        })
        .collect();
    let mut sum = 0;
    while sum < 4_000 {
        for event in events(&mut reactor) {
            assert!(matches!(event, Event::Mail { token: 1 }), "{event:?}");
            sum += mailbox.take().into_iter().sum::<i32>();
        }
    }
    senders
        .into_iter()
        .for_each(|sender| sender.join().unwrap());
    assert_eq!(sum, 4_000);
}
