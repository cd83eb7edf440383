//! Files: short transfers, failures and where they are, the latch of a failed flush.

use std::sync::Arc;

use memory::Payload;
use rustix::io::Errno;

use crate::next::Next;
use crate::testing::{Bench, Fault, Scratch, pattern};
use crate::{
    CacheMode, IoAnswer, IoFailure, IoRequest, IoTag, OpenOptions, Outlet, RingOperation,
    SharedStore, StoreKind, Submitted,
};

const SIZE: u64 = 1 << 20;

fn open(scratch: &Scratch, cache: CacheMode) -> Arc<dyn SharedStore> {
    let mut options = OpenOptions::new(StoreKind::File, scratch.path("disk"));
    options.size_bytes = Some(SIZE);
    options.cache = cache;
    options.open().unwrap()
}

fn bench(scratch: &Scratch) -> Bench {
    Bench::new(&*open(scratch, CacheMode::WriteBack))
}

fn answer(errno: Errno) -> Fault {
    Fault::Answer(-errno.raw_os_error())
}

#[test]
fn short_transfers_go_on_where_they_stopped() {
    let scratch = Scratch::new();
    let mut bench = bench(&scratch);
    bench.plan([Fault::Short(1_000), Fault::Short(5_000)]);
    bench.write(512, &pattern(65_536)).unwrap();
    assert_eq!(
        bench.trace,
        ["write 512..66048", "write 1512..66048", "write 6512..66048"]
    );
    bench.plan([Fault::Short(1), Fault::Short(60_000)]);
    assert_eq!(bench.read(512, 65_536).unwrap(), pattern(65_536));
    assert_eq!(bench.trace.len(), 3);
}

#[test]
fn a_file_that_was_cut_off_says_where_it_ends() {
    let scratch = Scratch::new();
    for cache in [CacheMode::WriteBack, CacheMode::Direct] {
        let mut options = OpenOptions::new(StoreKind::File, scratch.path("disk"));
        options.size_bytes = Some(SIZE);
        options.cache = cache;
        let Ok(shared) = options.open() else {
            continue; // no direct I/O here
        };
        let mut bench = Bench::new(&*shared);
        let file = std::fs::File::options()
            .write(true)
            .open(scratch.path("disk"))
            .unwrap();
        file.set_len(10_240).unwrap();
        let end = IoFailure::Truncated { offset: 10_240 };
        assert_eq!(bench.read(8_192, 8_192), Err(end));
        let far = IoFailure::Truncated { offset: 16_384 };
        assert_eq!(bench.read(16_384, 512), Err(far));
        shared.probe_size().unwrap();
        assert_eq!(bench.store.refresh_size(), Some(10_240));
        assert_eq!(bench.store.refresh_size(), None);
        assert_eq!(bench.read(8_192, 2_048).unwrap(), [0; 2_048]);
    }
}

#[test]
fn a_file_that_was_cut_does_not_become_longer_by_what_is_written() {
    for durable in [false, true] {
        let scratch = Scratch::new();
        let shared = open(&scratch, CacheMode::WriteBack);
        let mut bench = Bench::new(&*shared);
        let file = std::fs::File::options()
            .write(true)
            .open(scratch.path("disk"))
            .unwrap();
        file.set_len(10_240).unwrap();
        let write = |offset| IoRequest::Write {
            offset,
            data: Payload::Heap(pattern(512)),
            durable,
        };
        for offset in [10_240, SIZE - 512] {
            let end = Err(IoFailure::Truncated { offset });
            assert_eq!(bench.run(write(offset)).map(drop), end);
        }
        let range = 8_192..12_288;
        let end = Err(IoFailure::Truncated { offset: 8_192 });
        let zeros = IoRequest::WriteZeros { range, durable };
        assert_eq!(bench.run(zeros).map(drop), end);
        assert_eq!(file.metadata().unwrap().len(), 10_240);
        assert!(bench.run(write(9_728)).is_ok(), "in front of the end");
        assert!(bench.run(IoRequest::Flush).is_ok(), "no latch");
    }
}

/// What a longer file has behind its former end is zeros, and not what was written there.
#[test]
fn a_file_that_was_seen_short_stays_short_until_it_is_opened_again() {
    for is_read in [false, true] {
        let scratch = Scratch::new();
        let shared = open(&scratch, CacheMode::WriteBack);
        let mut bench = Bench::new(&*shared);
        let file = std::fs::File::options()
            .write(true)
            .open(scratch.path("disk"))
            .unwrap();
        file.set_len(10_240).unwrap();
        match is_read {
            true => assert!(bench.read(9_728, 1_024).is_err()),
            false => shared.probe_size().unwrap(),
        }
        file.set_len(2 * SIZE).unwrap();
        shared.probe_size().unwrap();
        assert_eq!(bench.store.refresh_size(), Some(10_240));
        assert!(bench.write(10_240, &pattern(512)).is_err());
        assert!(shared.grow(2 * SIZE).is_err(), "it has what it lost");
        drop((bench, shared));
        let opened = OpenOptions::new(StoreKind::File, scratch.path("disk")).open();
        assert_eq!(opened.unwrap().capabilities().size_bytes, 2 * SIZE);
    }
}

#[test]
fn growth_is_seen() {
    let scratch = Scratch::new();
    let shared = open(&scratch, CacheMode::WriteBack);
    let mut bench = Bench::new(&*shared);
    // One that is as it was is not short.
    shared.probe_size().unwrap();
    assert_eq!(bench.store.refresh_size(), None);
    let file = std::fs::File::options()
        .write(true)
        .open(scratch.path("disk"))
        .unwrap();
    // Half a block does not count.
    file.set_len(2 * SIZE + 256).unwrap();
    assert_eq!(bench.store.refresh_size(), None, "nobody has looked");
    shared.probe_size().unwrap();
    assert_eq!(shared.capabilities().size_bytes, 2 * SIZE);
    assert_eq!(bench.store.refresh_size(), Some(2 * SIZE));
    bench.write(2 * SIZE - 512, &pattern(512)).unwrap();
}

#[test]
fn the_first_bad_block_is_found_wherever_it_is() {
    let scratch = Scratch::new();
    let mut bench = bench(&scratch);
    bench.write(0, &pattern(65_536)).unwrap();
    for block in [0, 1, 2, 63, 64, 100, 126, 127] {
        let offset = block * 512;
        bench.make_bad(offset..offset + 1);
        assert_eq!(
            bench.read(0, 65_536),
            Err(IoFailure::Medium { offset }),
            "{block}"
        );
        assert!(bench.trace.len() < 20, "{:?}", bench.trace);
        assert_eq!(bench.read(offset, 512), Err(IoFailure::Medium { offset }));
    }
    // Around it everything can be read.
    assert_eq!(bench.read(0, 127 * 512).unwrap(), pattern(127 * 512));
}

#[test]
fn a_read_that_fails_once_is_read_in_pieces() {
    let scratch = Scratch::new();
    let mut bench = bench(&scratch);
    bench.write(0, &pattern(65_536)).unwrap();
    bench.plan([answer(Errno::IO), answer(Errno::NODATA)]);
    assert_eq!(bench.read(0, 65_536).unwrap(), pattern(65_536));
    assert_eq!(
        bench.trace,
        [
            "read 0..65536",
            "read 0..32768",
            "read 0..16384",
            "read 16384..24576",
            "read 24576..28672",
            "read 28672..30720",
            "read 30720..31744",
            "read 31744..32256",
            "read 32256..32768",
            "read 32768..65536",
        ]
    );
}

#[test]
fn write_failures_have_the_right_kind_and_place() {
    let scratch = Scratch::new();
    let mut bench = bench(&scratch);
    for (errno, expected) in [
        (Errno::NOSPC, IoFailure::NoSpace { offset: 3_072 }),
        (Errno::DQUOT, IoFailure::NoSpace { offset: 3_072 }),
        (Errno::IO, IoFailure::Medium { offset: 3_072 }),
        (Errno::NODATA, IoFailure::Medium { offset: 3_072 }),
        (
            Errno::NODEV,
            IoFailure::Hardware {
                errno: Errno::NODEV.raw_os_error(),
            },
        ),
        (Errno::CANCELED, IoFailure::Cancelled),
    ] {
        bench.plan([Fault::Short(2_048), answer(errno)]);
        assert_eq!(bench.write(1_024, &pattern(8_192)), Err(expected));
    }
    assert_eq!(bench.read(1_024, 2_048).unwrap(), pattern(2_048));
}

#[test]
fn a_failed_flush_is_remembered_by_all_cores_until_it_is_cleared() {
    let scratch = Scratch::new();
    let shared = open(&scratch, CacheMode::WriteBack);
    let (mut first, mut second) = (Bench::new(&*shared), Bench::new(&*shared));
    first.flush().unwrap();
    first.plan([answer(Errno::IO)]);
    let errno = Errno::IO.raw_os_error();
    assert_eq!(first.flush(), Err(IoFailure::Hardware { errno }));
    assert!(shared.is_flush_latched());
    for bench in [&mut first, &mut second] {
        assert_eq!(bench.flush(), Err(IoFailure::FlushLatched));
        assert_eq!(
            bench.write_durably(0, &pattern(512)),
            Err(IoFailure::FlushLatched)
        );
        assert!(bench.trace.is_empty(), "nothing reaches the file");
        bench.write(0, &pattern(512)).unwrap();
        assert_eq!(bench.read(0, 512).unwrap(), pattern(512));
    }
}

#[test]
fn a_cancelled_flush_latches_nothing() {
    let scratch = Scratch::new();
    let shared = open(&scratch, CacheMode::WriteBack);
    let mut bench = Bench::new(&*shared);
    bench.plan([answer(Errno::CANCELED)]);
    assert_eq!(bench.flush(), Err(IoFailure::Cancelled));
    assert!(!shared.is_flush_latched());
}

/// A durable write has two halves; only the failure of the second one may have lost more.
#[test]
fn a_durable_write_latches_when_its_flush_failed_and_not_when_the_write_did() {
    let scratch = Scratch::new();
    let shared = open(&scratch, CacheMode::WriteBack);
    let mut bench = Bench::new(&*shared);
    bench.plan([answer(Errno::NOSPC), answer(Errno::NOSPC)]);
    assert_eq!(
        bench.write_durably(4096, &pattern(4096)),
        Err(IoFailure::NoSpace { offset: 4096 })
    );
    assert_eq!(
        bench.trace,
        ["write durably 4096..8192", "write 4096..8192"]
    );
    assert!(!shared.is_flush_latched());

    bench.plan([answer(Errno::NOSPC)]);
    assert_eq!(
        bench.write_durably(4096, &pattern(4096)),
        Err(IoFailure::FlushLatched)
    );
    assert!(shared.is_flush_latched());
}

/// Begins a durable write whose first try fails with this; gives the second try.
fn failed_durable_write(bench: &mut Bench, first: Errno) -> RingOperation {
    let mut buffer = bench.pool.allocate(4096).unwrap();
    buffer.copy_from_slice(&pattern(4096));
    let request = IoRequest::Write {
        offset: 0,
        data: Payload::Pool(buffer),
        durable: true,
    };
    let Next::Ring(operation) = bench.submit(request) else {
        panic!("a durable write is not submitted");
    };
    match bench.end(operation, -first.raw_os_error()) {
        Next::Ring(again @ RingOperation::Write { durable: false, .. }) => again,
        other @ (Next::Done(_) | Next::Ring(_) | Next::Helper(_)) => panic!("{other:?}"),
    }
}

/// However the second try ends that is no proof of a failing medium.
#[test]
fn a_durable_write_that_failed_latches_at_once_and_however_its_second_try_ends() {
    type End = fn(&mut Bench, RingOperation);
    let ends: [(&str, End); 5] = [
        ("it never ends", |_, _| {}),
        ("it is cancelled and was short", |bench, again| {
            bench.cancel();
            let next = bench.end(again, 512);
            assert!(
                matches!(next, Next::Done(Err(IoFailure::Cancelled))),
                "{next:?}"
            );
        }),
        ("it is cancelled", |bench, again| {
            let result = -Errno::CANCELED.raw_os_error();
            let _failed = bench.end(again, result);
        }),
        ("it fails in another way", |bench, again| {
            let result = -Errno::ROFS.raw_os_error();
            let _failed = bench.end(again, result);
        }),
        ("it fails farther on", |bench, again| {
            let Next::Ring(rest) = bench.end(again, 512) else {
                panic!("the rest is not written");
            };
            let result = -Errno::IO.raw_os_error();
            let _failed = bench.end(rest, result);
        }),
    ];
    for (name, end) in ends {
        let scratch = Scratch::new();
        let shared = open(&scratch, CacheMode::WriteBack);
        let (mut first, mut second) = (Bench::new(&*shared), Bench::new(&*shared));
        let again = failed_durable_write(&mut first, Errno::IO);
        assert!(shared.is_flush_latched(), "{name}: at once");
        end(&mut first, again);
        assert!(shared.is_flush_latched(), "{name}");
        for bench in [&mut first, &mut second] {
            assert_eq!(bench.flush(), Err(IoFailure::FlushLatched), "{name}");
            let durable = bench.write_durably(0, &pattern(512));
            assert_eq!(durable, Err(IoFailure::FlushLatched), "{name}");
        }
    }
}

#[test]
fn past_the_page_cache_only_a_lack_of_space_proves_that_no_flush_failed() {
    for (errno, is_latched) in [(Errno::IO, true), (Errno::NOSPC, false)] {
        let scratch = Scratch::new();
        let mut options = OpenOptions::new(StoreKind::File, scratch.path("disk"));
        options.size_bytes = Some(SIZE);
        options.cache = CacheMode::Direct;
        let Ok(shared) = options.open() else {
            return; // no direct I/O here
        };
        let mut bench = Bench::new(&*shared);
        bench.plan([answer(errno), answer(errno)]);
        assert!(bench.write_durably(0, &pattern(4096)).is_err());
        assert_eq!(shared.is_flush_latched(), is_latched, "{errno}");
    }
}

/// A flush and a durable write that end well while a failed one is under suspicion: the kernel may
/// have given it the failure that was theirs.
#[test]
fn what_ends_well_beside_a_failed_flush_is_not_answered_good() {
    let scratch = Scratch::new();
    let shared = open(&scratch, CacheMode::WriteBack);
    let (mut first, mut second) = (Bench::new(&*shared), Bench::new(&*shared));
    let buffer = second.pool.allocate(4096).unwrap();
    let write = IoRequest::Write {
        offset: 8192,
        data: Payload::Pool(buffer),
        durable: true,
    };
    for (request, result) in [(IoRequest::Flush, 0), (write, 4096)] {
        let Next::Ring(operation) = second.submit(request) else {
            panic!("not submitted");
        };
        let again = failed_durable_write(&mut first, Errno::IO);
        let ended = second.end(operation, result);
        assert!(
            matches!(ended, Next::Done(Err(IoFailure::FlushLatched))),
            "{ended:?}"
        );
        // It was the medium: nothing was lost.
        let result = -Errno::IO.raw_os_error();
        let _failed = first.end(again, result);
        assert!(!shared.is_flush_latched());
        second.flush().unwrap();
    }
}

#[test]
fn where_dsync_may_be_ignored_a_durable_write_is_a_write_and_a_sync() {
    let scratch = Scratch::new();
    let shared = open(&scratch, CacheMode::WriteBack);
    let mut bench = Bench::new(&*shared);
    bench.store.use_ring_only(false);
    bench.plan([Fault::Short(512)]);
    bench.write_durably(0, &pattern(4096)).unwrap();
    assert_eq!(bench.trace, ["write 0..4096", "write 512..4096", "sync"]);
    bench.write(0, &pattern(4096)).unwrap();
    assert_eq!(bench.trace, ["write 0..4096"]);

    // A write that fails is no flush that failed.
    bench.plan([answer(Errno::IO)]);
    let failed = bench.write_durably(0, &pattern(4096));
    assert_eq!(failed, Err(IoFailure::Medium { offset: 0 }));
    assert!(!shared.is_flush_latched());

    bench.plan([Fault::None, answer(Errno::IO)]);
    assert!(bench.write_durably(0, &pattern(4096)).is_err());
    assert!(shared.is_flush_latched());
    assert_eq!(bench.flush(), Err(IoFailure::FlushLatched));
}

#[test]
fn where_ranges_cannot_be_zeroed_at_once_zeros_are_written_in_pieces() {
    let scratch = Scratch::new();
    let mut options = OpenOptions::new(StoreKind::File, scratch.path("disk"));
    options.size_bytes = Some(64 << 20);
    let mut bench = Bench::new(&*options.open().unwrap());
    bench.write(0, &pattern(65_536)).unwrap();
    bench.write((40 << 20) - 512, &pattern(1024)).unwrap();
    bench.plan([answer(Errno::OPNOTSUPP), Fault::Short(100_000)]);
    bench.write_zeros(512..40 << 20).unwrap();
    assert_eq!(
        bench.trace,
        [
            "ZeroRange 512..41943040",
            "write 512..16777728",
            "write 100512..16777728",
            "write 16777728..33554944",
            "write 33554944..41943040",
        ]
    );
    assert_eq!(bench.read(0, 512).unwrap(), pattern(512));
    assert!(bench.read(512, 65_536).unwrap().iter().all(|&b| b == 0));
    assert_eq!(bench.read((40 << 20) - 512, 512).unwrap(), [0; 512]);
    assert_eq!(bench.read(40 << 20, 512).unwrap(), pattern(1024)[512..]);

    bench.plan([answer(Errno::OPNOTSUPP), Fault::None, answer(Errno::NOSPC)]);
    assert_eq!(
        bench.unmap(0..40 << 20),
        Err(IoFailure::NoSpace { offset: 16 << 20 })
    );
}

#[test]
fn a_thick_file_keeps_its_space_when_a_range_is_unmapped() {
    let scratch = Scratch::new();
    let mut options = OpenOptions::new(StoreKind::File, scratch.path("disk"));
    options.size_bytes = Some(SIZE);
    options.thin = false;
    let mut bench = Bench::new(&*options.open().unwrap());
    assert!(!bench.store.capabilities().thin);
    bench.write(0, &pattern(8192)).unwrap();
    bench.unmap(0..8192).unwrap();
    assert!(bench.trace[0].starts_with("ZeroRange"), "{:?}", bench.trace);
    assert_eq!(bench.read(0, 8192).unwrap(), [0; 8192]);
}

#[test]
fn a_read_only_file_refuses_every_change_and_flushes_nothing() {
    let scratch = Scratch::new();
    let mut options = OpenOptions::new(StoreKind::File, scratch.file(SIZE));
    options.read_only = true;
    let mut bench = Bench::new(&*options.open().unwrap());
    assert_eq!(bench.write(0, &pattern(512)), Err(IoFailure::ReadOnly));
    assert_eq!(bench.unmap(0..512), Err(IoFailure::ReadOnly));
    bench.flush().unwrap();
    assert!(bench.trace.is_empty());
    assert_eq!(bench.read(0, 512).unwrap(), [0; 512]);
}

/// The other tests let the ring do everything; here reads may be answered from the page cache.
#[test]
fn a_read_of_what_is_cached_is_answered_at_once_and_the_rest_is_left_to_the_ring() {
    let scratch = Scratch::new();
    let disk = open(&scratch, CacheMode::WriteBack);
    let mut bench = Bench::new(&*disk);
    bench.write(8192, &[7; 8192]).unwrap();
    let mut store = disk.handle().unwrap();
    let mut outlet = Outlet::default();
    let mut read = |offset, len: usize| {
        let buffer = bench.pool.allocate(len).unwrap();
        let request = IoRequest::Read {
            offset,
            len,
            buffer: Some(buffer),
        };
        store.submit(IoTag(1), request, &mut outlet)
    };
    match read(8192, 8192) {
        Submitted::Done(Ok(IoAnswer::Data(data))) => assert_eq!(data.to_vec(), [7; 8192]),
        // A file system that cannot report it.
        Submitted::Taken => {}
        other @ Submitted::Done(_) => panic!("{other:?}"),
    }
    // More than is copied in a moment.
    assert!(matches!(read(0, 1 << 20), Submitted::Taken));
    // Cut short behind our back: the ring finds out.
    std::fs::File::options()
        .write(true)
        .open(scratch.path("disk"))
        .unwrap()
        .set_len(10_000)
        .unwrap();
    assert!(matches!(read(8192, 8192), Submitted::Taken));
}
