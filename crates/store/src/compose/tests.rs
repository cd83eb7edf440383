//! Compositions of stores that do what the test says.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::Duration;

use memory::{Payload, Pool};
use rustix::io::Errno;

use super::*;
use crate::testing::{Bench, ForeignDisk, Manner, Scratch, pattern};
use crate::{
    Durability, HelperAnswer, HelperOperation, IoAnswer, IoFailure, IoRequest, IoResult, IoTag,
    MemoryDisk, OpenOptions, Order, Outlet, PartTag, SocketResult, SocketTag, SocketWork,
    StoreKind, Submitted, Waker,
};

const CHUNK: usize = 4096;
const STRIPE: Form = Form::Stripe {
    chunk_bytes: CHUNK as u64,
};

/// How long a test waits for another thread.
const PATIENCE: Duration = Duration::from_secs(20);

fn member(name: &str, store: impl SharedStore + 'static) -> Member {
    Member {
        name: name.to_owned(),
        store: Arc::new(store),
        bytes: None,
    }
}

fn memory_of(size_bytes: u64) -> MemoryDisk {
    MemoryDisk::new(size_bytes, 512, false, true).unwrap()
}

/// Adds members, and leaves those that are there as they are.
fn grow(composed: &Composed, added: Vec<Member>) -> Result<(), ComposeError> {
    let size = |one: &Member| {
        Some(
            one.bytes
                .unwrap_or_else(|| one.store.capabilities().size_bytes),
        )
    };
    let sizes: Vec<Option<u64>> = composed.members().iter().map(size).collect();
    composed.grow_by(&sizes, added)
}

/// A composition of disks behind libraries, with any number of requests under way.
struct Rig {
    disks: Vec<ForeignDisk>,
    composed: Composed,
    store: Handle,
    outlet: Outlet,
    woken: mpsc::Receiver<()>,
    pool: Pool,
    next: u64,
    answers: HashMap<u64, IoResult>,
}

impl Rig {
    fn new(form: Form, disks: usize) -> Self {
        let disks: Vec<ForeignDisk> = (0..disks)
            .map(|_| ForeignDisk::new(1 << 20, 4096))
            .collect();
        let members = disks.iter().map(|disk| member("m", disk.clone())).collect();
        let composed = Composed::new(form, members, false).unwrap();
        let mut store = Handle::new(Arc::clone(&composed.0)).unwrap();
        let mut outlet = Outlet::default();
        let (wakes, woken) = mpsc::channel();
        let make_waker = || {
            let wakes = wakes.clone();
            Waker::new(move || wakes.send(()).unwrap_or_default())
        };
        store.start(&make_waker, &mut outlet);
        Self {
            disks,
            composed,
            store,
            outlet,
            woken,
            pool: Pool::new(64 << 20).unwrap(),
            next: 0,
            answers: HashMap::new(),
        }
    }

    fn submit(&mut self, request: IoRequest) -> u64 {
        self.next += 1;
        let tag = self.next;
        match self.store.submit(IoTag(tag), request, &mut self.outlet) {
            Submitted::Done(result) => drop(self.answers.insert(tag, result)),
            Submitted::Taken => {}
        }
        assert!(self.outlet.take_returned().is_none(), "it holds what waits");
        tag
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) -> u64 {
        let mut buffer = self.pool.allocate(bytes.len()).unwrap();
        buffer.copy_from_slice(bytes);
        self.submit(IoRequest::Write {
            offset: offset as u64,
            data: Payload::Pool(buffer),
            durable: false,
        })
    }

    fn read(&mut self, offset: usize, len: usize) -> u64 {
        let buffer = Some(self.pool.allocate(len).unwrap());
        self.submit(IoRequest::Read {
            offset: offset as u64,
            len,
            buffer,
        })
    }

    fn cancel(&mut self, tag: u64) {
        self.store.cancel(IoTag(tag), &mut self.outlet);
    }

    fn take_orders(&mut self) {
        while let Some(order) = self.outlet.next_order() {
            match order {
                Order::Answer { tag, result } => {
                    let before = self.answers.insert(tag.0, result);
                    assert!(before.is_none(), "{tag:?} is answered twice");
                }
                other @ (Order::Ring { .. }
                | Order::Helper { .. }
                | Order::CancelParts(_)
                | Order::CancelPart(_)
                | Order::Timer { .. }
                | Order::Size
                | Order::Reach { .. }
                | Order::HeldElsewhere { .. }
                | Order::OpenSocket { .. }
                | Order::Socket { .. }
                | Order::CloseSocket(_)) => panic!("{other:?}"),
            }
        }
    }

    /// Its answer, of other threads.
    fn answer(&mut self, tag: u64) -> IoResult {
        loop {
            self.take_orders();
            if let Some(result) = self.answers.remove(&tag) {
                return result;
            }
            self.woken.recv_timeout(PATIENCE).unwrap();
            self.store.handle_wake(&mut self.outlet);
        }
    }

    fn is_open(&mut self, tag: u64) -> bool {
        self.store.handle_wake(&mut self.outlet);
        self.take_orders();
        !self.answers.contains_key(&tag)
    }

    /// Everything came back.
    fn check_idle(&self) {
        assert_eq!(self.pool.free_bytes(), self.pool.capacity_bytes());
        assert_eq!(self.store.wholes.iter().count(), 0);
        assert_eq!(self.store.parts.iter().count(), 0);
        assert_eq!(self.store.outside.iter().count(), 0);
        assert!(self.answers.is_empty(), "{:?}", self.answers);
    }
}

fn bytes_of(result: IoResult) -> Vec<u8> {
    match result.unwrap() {
        IoAnswer::Data(data) => data.to_vec(),
        other @ (IoAnswer::Done | IoAnswer::Extents(_) | IoAnswer::Device(_)) => {
            panic!("{other:?}")
        }
    }
}

#[test]
fn a_request_of_several_members_is_answered_when_all_are_done() {
    let mut rig = Rig::new(STRIPE, 3);
    let bytes = pattern(10 * CHUNK + 1024);
    rig.disks[1].treat_next([Manner::Late]);
    let write = rig.write(512, &bytes);
    let other = rig.write(30 * CHUNK, &[7; 512]);
    rig.answer(other).unwrap();
    assert!(rig.is_open(write), "one part is late");
    rig.disks[1].release();
    rig.answer(write).unwrap();
    rig.check_idle();
}

#[test]
fn what_was_written_over_members_is_read_over_members() {
    for form in [STRIPE, Form::Concat] {
        let mut rig = Rig::new(form, 3);
        let bytes = pattern(10 * CHUNK + 1024);
        for start in [512, (1 << 20) - 4 * CHUNK] {
            let write = rig.write(start, &bytes);
            rig.answer(write).unwrap();
            rig.disks[0].treat_next([Manner::InParts(3)]);
            let read = rig.read(start, bytes.len());
            assert!(bytes_of(rig.answer(read)) == bytes, "{form:?}, {start}");
        }
        rig.check_idle();
    }
}

#[test]
fn one_member_that_cannot_be_reached_fails_what_touches_it_and_nothing_else() {
    let mut rig = Rig::new(STRIPE, 2);
    rig.disks[1].treat_next([Manner::Unreachable; 3]);
    let both = rig.write(0, &[1; 2 * CHUNK]);
    assert_eq!(rig.answer(both).unwrap_err(), IoFailure::NotReady);
    let flush = rig.submit(IoRequest::Flush);
    assert_eq!(rig.answer(flush).unwrap_err(), IoFailure::NotReady);
    let zeros = rig.submit(IoRequest::Unmap { range: 0..1 << 21 });
    assert_eq!(rig.answer(zeros).unwrap_err(), IoFailure::NotReady);
    let first = rig.read(0, CHUNK);
    assert_eq!(bytes_of(rig.answer(first)), [0; CHUNK]);
    rig.check_idle();
}

#[test]
fn a_member_that_hangs_holds_up_what_touches_it_and_nothing_else() {
    let mut rig = Rig::new(STRIPE, 2);
    rig.disks[1].treat_next([Manner::Late; 2]);
    let held = rig.read(0, 2 * CHUNK);
    let flush = rig.submit(IoRequest::Flush);
    for n in 0..5 {
        let write = rig.write(2 * n * CHUNK, &[9; CHUNK]);
        rig.answer(write).unwrap();
    }
    assert!(rig.is_open(held) && rig.is_open(flush));
    rig.disks[1].release();
    rig.answer(held).unwrap();
    rig.answer(flush).unwrap();
    rig.check_idle();
}

#[test]
fn a_cancel_goes_to_every_part_and_is_answered_once() {
    let mut rig = Rig::new(STRIPE, 3);
    rig.disks[0].treat_next([Manner::WhenCancelled]);
    rig.disks[1].treat_next([Manner::WhenCancelled]);
    rig.disks[2].treat_next([Manner::Late]);
    let write = rig.write(0, &[1; 3 * CHUNK]);
    rig.cancel(write);
    assert!(rig.is_open(write), "one part may still reach the medium");
    rig.disks[2].release();
    assert_eq!(rig.answer(write).unwrap_err(), IoFailure::Cancelled);
    rig.check_idle();
}

#[test]
fn a_full_member_keeps_the_order_of_its_parts_and_others_pass() {
    let mut rig = Rig::new(STRIPE, 2);
    rig.disks[0].treat_next([Manner::Full, Manner::Full]);
    let first = rig.write(0, &[2; 512]);
    let second = rig.write(0, &[3; CHUNK * 2]);
    assert!(rig.is_open(first));
    let other = rig.write(CHUNK, &[4; 512]);
    for write in [other, first, second] {
        rig.answer(write).unwrap();
    }
    assert_eq!(rig.disks[0].byte(0), 3);
    // One that waits is cancelled without its member.
    rig.disks[0].treat_next([Manner::Late, Manner::Full]);
    let held = rig.write(0, &[5; 512]);
    let waiting = rig.write(0, &[6; 512]);
    rig.cancel(waiting);
    assert_eq!(rig.answer(waiting).unwrap_err(), IoFailure::Cancelled);
    rig.disks[0].release();
    rig.answer(held).unwrap();
    assert_eq!(rig.disks[0].byte(0), 5);
    rig.check_idle();
}

#[test]
fn a_long_request_has_a_bounded_number_of_parts_under_way() {
    let mut rig = Rig::new(STRIPE, 2);
    let late = vec![Manner::Late; 1000];
    for disk in &rig.disks {
        disk.treat_next(late.clone());
    }
    let bytes = pattern(200 * CHUNK);
    let write = rig.write(0, &bytes);
    assert_eq!(rig.store.parts.iter().count(), 64);
    while rig.is_open(write) {
        assert!(rig.store.parts.iter().count() <= 64);
        for disk in &rig.disks {
            disk.release();
        }
        rig.woken.recv_timeout(PATIENCE).unwrap();
    }
    rig.answer(write).unwrap();
    // Ranges without data have one part for each member, however long they are.
    let zeros = rig.submit(IoRequest::WriteZeros {
        range: 0..1 << 21,
        durable: false,
    });
    assert_eq!(rig.store.parts.iter().count(), 2);
    rig.cancel(zeros);
    for disk in &rig.disks {
        disk.release();
    }
    assert_eq!(rig.answer(zeros).unwrap_err(), IoFailure::Cancelled);
    rig.check_idle();
}

#[test]
fn what_compares_by_itself_lies_on_one_member() {
    let mut rig = Rig::new(STRIPE, 2);
    assert_eq!(rig.store.capabilities().compare_and_write_bytes, 4096);
    let compare = |offset: usize, old: u8| IoRequest::CompareAndWrite {
        offset: offset as u64,
        data: Payload::Heap([vec![old; 512], vec![8; 512]].concat()),
        durable: false,
    };
    let right = rig.submit(compare(CHUNK, 0));
    rig.answer(right).unwrap();
    assert_eq!(rig.disks[1].byte(0), 8);
    let wrong = rig.submit(compare(CHUNK, 0));
    let offset = 0;
    assert_eq!(
        rig.answer(wrong).unwrap_err(),
        IoFailure::Miscompare { offset }
    );
    let members = vec![
        member("a", ForeignDisk::new(1 << 20, 4096)),
        member("b", memory_of(1 << 20)),
    ];
    let mixed = Composed::new(STRIPE, members, false).unwrap();
    assert_eq!(mixed.capabilities().compare_and_write_bytes, 0);
}

#[test]
fn the_worst_failure_wins_and_of_two_alike_the_first_on_the_medium() {
    let worst = |failures: &[IoFailure]| {
        let mut rig = Rig::new(STRIPE, 1);
        rig.disks[0].treat_next([Manner::Never]);
        let tag = rig.write(0, &[0; 512]);
        let key = rig.store.wholes.iter().next().unwrap().0;
        let whole = rig.store.wholes.get_mut(key).unwrap();
        assert_eq!(whole.tag, IoTag(tag));
        for failure in failures {
            whole.fail(failure.clone());
        }
        whole.failure.clone().unwrap()
    };
    let (near, far) = (
        IoFailure::Medium { offset: 4 },
        IoFailure::Medium { offset: 9 },
    );
    let hardware = IoFailure::Hardware { errno: 5 };
    assert_eq!(
        worst(&[IoFailure::Cancelled, IoFailure::NotReady]),
        IoFailure::NotReady
    );
    assert_eq!(
        worst(&[far.clone(), IoFailure::NotReady, near.clone()]),
        near
    );
    assert_eq!(worst(&[hardware.clone(), near]), hardware);
    assert_eq!(
        worst(&[IoFailure::FlushLatched, hardware]),
        IoFailure::FlushLatched
    );
}

#[test]
fn failures_name_bytes_of_the_composition() {
    let scratch = Scratch::new();
    let mut options = OpenOptions::new(StoreKind::File, scratch.path("disk"));
    options.size_bytes = Some(1 << 20);
    let store = options.open().unwrap();
    let file = Member {
        name: "file".to_owned(),
        store,
        bytes: None,
    };
    let members = vec![member("memory", memory_of(1 << 20)), file];
    let composed = Composed::new(STRIPE, members, false).unwrap();
    let mut bench = Bench::new(&composed);
    let no_space = -Errno::NOSPC.raw_os_error();
    for (offset, len, failed) in [
        (CHUNK, 512, CHUNK),
        (0, 4 * CHUNK, CHUNK),
        (7 * CHUNK + 512, 512, 7 * CHUNK + 512),
    ] {
        bench.fail_next(no_space);
        let offset_bytes = failed as u64;
        assert_eq!(
            bench.write(offset as u64, &vec![1; len]),
            Err(IoFailure::NoSpace {
                offset: offset_bytes
            })
        );
    }
}

#[test]
fn a_failed_flush_of_one_member_stays_and_the_others_write_durably() {
    let scratch = [Scratch::new(), Scratch::new()];
    let files = scratch.each_ref().map(|scratch| {
        let mut options = OpenOptions::new(StoreKind::File, scratch.path("disk"));
        options.size_bytes = Some(1 << 20);
        Member {
            name: "file".to_owned(),
            store: options.open().unwrap(),
            bytes: None,
        }
    });
    let composed = Composed::new(STRIPE, files.into(), false).unwrap();
    let mut bench = Bench::new(&composed);
    bench.flush().unwrap();
    assert_eq!(bench.trace, ["sync", "sync"]);
    let errno = Errno::IO.raw_os_error();
    bench.fail_next(-errno);
    assert_eq!(bench.flush(), Err(IoFailure::Hardware { errno }));
    assert!(composed.is_flush_latched());
    assert_eq!(bench.flush(), Err(IoFailure::FlushLatched));
    assert_eq!(
        bench.write_durably(0, &[1; 512]),
        Err(IoFailure::FlushLatched)
    );
    bench.write_durably(CHUNK as u64, &[1; 512]).unwrap();
    assert_eq!(Bench::new(&composed).flush(), Err(IoFailure::FlushLatched));
}

#[test]
fn a_stripe_uses_whole_chunks_of_its_smallest_member() {
    let sizes = [10 * CHUNK as u64 + 512, 12 * CHUNK as u64];
    let members = sizes.map(|size| member("m", memory_of(size))).into();
    let composed = Composed::new(STRIPE, members, false).unwrap();
    assert_eq!(composed.capabilities().size_bytes, 20 * CHUNK as u64);
    assert_eq!(composed.capabilities().in_place_unit_bytes, CHUNK as u64);
}

#[test]
fn stores_that_do_not_fit_are_refused_with_their_names() {
    let large = || MemoryDisk::new(1 << 20, 4096, false, true).unwrap();
    let refused = |form, members| Composed::new(form, members, false).unwrap_err().to_string();
    let message = refused(
        Form::Concat,
        vec![member("a", memory_of(1 << 20)), member("b", large())],
    );
    assert_eq!(
        message,
        "b has blocks of 4096 bytes and a has 512; give all members one blocksize="
    );
    let message = refused(
        STRIPE,
        vec![
            member("a", memory_of(1 << 20)),
            member("b", memory_of(3584)),
        ],
    );
    assert!(
        message.starts_with("b has 3584 bytes, less than a chunk of 4096"),
        "{message}"
    );
    let mut small = member("a", memory_of(1 << 20));
    small.bytes = Some(2 << 20);
    let message = refused(Form::Concat, vec![small]);
    assert!(
        message.starts_with("a has 1048576 bytes and not the 2097152"),
        "{message}"
    );
}

#[test]
fn a_member_that_is_read_only_or_the_word_makes_all_read_only() {
    let members = |read_only| {
        let other = MemoryDisk::new(1 << 20, 512, read_only, true).unwrap();
        vec![member("a", memory_of(1 << 20)), member("b", other)]
    };
    for (of_member, of_all) in [(true, false), (false, true)] {
        let composed = Composed::new(STRIPE, members(of_member), of_all).unwrap();
        let mut bench = Bench::new(&composed);
        assert_eq!(bench.write(0, &[1; 512]), Err(IoFailure::ReadOnly));
        bench.flush().unwrap();
    }
}

#[test]
fn a_concat_grows_by_a_member_while_it_is_used() {
    let mut rig = Rig::new(Form::Concat, 1);
    let before = rig.write(0, &[1; 512]);
    rig.answer(before).unwrap();
    assert_eq!(rig.store.refresh_size(), None);
    let added = ForeignDisk::new(1 << 20, 4096);
    grow(&rig.composed, vec![member("n", added.clone())]).unwrap();
    assert_eq!(rig.composed.capabilities().size_bytes, 2 << 20);
    let early = rig.read(1 << 20, 512);
    assert!(
        matches!(rig.answer(early), Err(IoFailure::Truncated { .. })),
        "this core has not looked"
    );
    assert_eq!(rig.store.refresh_size(), Some(2 << 20));
    let across = rig.write((1 << 20) - 512, &[2; 1024]);
    rig.answer(across).unwrap();
    assert_eq!(
        (
            rig.disks[0].byte((1 << 20) - 1),
            added.byte(0),
            added.byte(512)
        ),
        (2, 2, 0)
    );
    rig.check_idle();
}

#[test]
fn nothing_is_put_behind_a_stripe_nor_what_would_make_another_disk_of_it() {
    let stripe = Composed::new(STRIPE, vec![member("a", memory_of(1 << 20))], false).unwrap();
    let added = || vec![member("n", memory_of(1 << 20))];
    assert_eq!(grow(&stripe, added()), Err(ComposeError::Stripe));
    let concat = Composed::new(Form::Concat, added(), false).unwrap();
    grow(&concat, added()).unwrap();
    let unlike = vec![member("foreign", ForeignDisk::new(1 << 20, 0))];
    let message = grow(&concat, unlike).unwrap_err().to_string();
    assert!(
        message.starts_with("foreign differs from the other members in whether it has a volatile"),
        "{message}"
    );
    assert_eq!(concat.capabilities().size_bytes, 2 << 20);
}

/// What lies behind a member of a concat never moves; the last one may grow.
#[test]
fn only_the_last_member_of_a_concat_grows_by_itself() {
    let scratch = [Scratch::new(), Scratch::new()];
    let files = scratch.each_ref().map(|scratch| {
        let mut options = OpenOptions::new(StoreKind::File, scratch.path("disk"));
        options.size_bytes = Some(1 << 20);
        options.open().unwrap()
    });
    let members = files.clone().map(|store| Member {
        name: "f".to_owned(),
        store,
        bytes: None,
    });
    let composed = Composed::new(Form::Concat, members.into(), false).unwrap();
    let mut bench = Bench::new(&composed);
    bench.write(1 << 20, &[7; 512]).unwrap();
    files[0].grow(3 << 20).unwrap();
    assert_eq!(bench.store.refresh_size(), None);
    assert_eq!(bench.read(1 << 20, 512).unwrap(), [7; 512]);
    files[1].grow(3 << 20).unwrap();
    assert_eq!(bench.store.refresh_size(), Some(4 << 20));
    assert_eq!(bench.read(1 << 20, 512).unwrap(), [7; 512]);
}

#[test]
fn a_size_says_how_much_of_the_last_member_is_used_and_may_rise() {
    let sized = |bytes| Member {
        bytes: Some(bytes),
        ..member("m", memory_of(1 << 20))
    };
    let concat = Composed::new(Form::Concat, vec![sized(4096), sized(8192)], false).unwrap();
    let mut bench = Bench::new(&concat);
    assert_eq!(bench.store.capabilities().size_bytes, 12_288);
    concat
        .grow_by(&[Some(4096), Some(16_384)], vec![sized(512)])
        .unwrap();
    assert_eq!(bench.store.refresh_size(), Some(4096 + 16_384 + 512));
    for sizes in [
        [Some(8192), Some(16_384), None],
        [Some(4096), Some(8192), None],
        [None, None, Some(0)],
    ] {
        let message = concat.grow_by(&sizes, Vec::new()).unwrap_err().to_string();
        assert!(
            message.contains("what lies behind it would move"),
            "{message}"
        );
    }
    let small = concat.grow_by(&[Some(4096), Some(16_384), Some(2 << 20)], Vec::new());
    assert!(
        matches!(small, Err(ComposeError::Small { .. })),
        "{small:?}"
    );
    assert_eq!(bench.store.refresh_size(), None);
    // Without a size the last one has all that its store has.
    let open = [Some(4096), Some(16_384), None];
    concat.grow_by(&open, Vec::new()).unwrap();
    assert_eq!(bench.store.refresh_size(), Some(4096 + 16_384 + (1 << 20)));
}

/// Random requests against a vector of bytes.
#[test]
fn a_composition_holds_what_a_vector_holds() {
    let sizes = [40_960 + 512, 49_152, 40_960];
    for form in [
        STRIPE,
        Form::Stripe {
            chunk_bytes: 16_384,
        },
        Form::Concat,
    ] {
        let members = sizes.map(|size| member("m", memory_of(size))).into();
        let composed = Composed::new(form, members, false).unwrap();
        let mut bench = Bench::new(&composed);
        let blocks = usize::try_from(composed.capabilities().size_bytes / 512).unwrap();
        let mut model = vec![0; blocks * 512];
        let mut seed: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut random = |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            usize::try_from(seed % below as u64).unwrap()
        };
        for step in 0..3_000_usize {
            let start = random(blocks);
            let len = 1 + random((blocks - start).min(96));
            let range = start * 512..(start + len) * 512;
            let bytes = range.start as u64..range.end as u64;
            let read = |bench: &mut Bench| bench.read(bytes.start, len * 512).unwrap();
            match random(4) {
                0 => {
                    bench.unmap(bytes.clone()).unwrap();
                    model[range.clone()].fill(0);
                }
                1 => assert!(
                    read(&mut bench) == model[range.clone()],
                    "{form:?}, step {step}"
                ),
                _ => {
                    let data: Vec<u8> = pattern(len * 512)
                        .iter()
                        .map(|byte| byte ^ u8::try_from(step % 251).unwrap())
                        .collect();
                    bench.write(bytes.start, &data).unwrap();
                    model[range.clone()].copy_from_slice(&data);
                }
            }
            let extents = bench.extents(bytes.clone(), 1_000).unwrap();
            assert_eq!(extents.last().unwrap().range.end, bytes.end);
            for hole in extents.iter().filter(|extent| !extent.mapped) {
                let range = usize::try_from(hole.range.start).unwrap()
                    ..usize::try_from(hole.range.end).unwrap();
                assert!(
                    model[range].iter().all(|&byte| byte == 0),
                    "{hole:?} of step {step}"
                );
            }
        }
        assert!(bench.read(0, model.len()).unwrap() == model, "{form:?}");
    }
}

/// A store that orders everything there is, under the same names as every other of its kind.
#[derive(Debug)]
struct Busy {
    seen: mpsc::Sender<String>,
    name: &'static str,
}

#[derive(Debug)]
struct BusyShared(Mutex<mpsc::Sender<String>>, &'static str);

impl SharedStore for BusyShared {
    fn inner(&self) -> &dyn SharedStore {
        &Bottom
    }

    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        Ok(Box::new(Busy {
            seen: self.0.lock().unwrap().clone(),
            name: self.1,
        }))
    }

    fn capabilities(&self) -> Capabilities {
        ForeignDisk::new(1 << 20, 0).capabilities()
    }

    fn outage(&self) -> Option<String> {
        (self.1 == "b").then(|| "no answer".to_owned())
    }
}

impl Busy {
    fn note(&self, what: &str) {
        self.seen.send(format!("{} {what}", self.name)).unwrap();
    }
}

impl Backstore for Busy {
    fn capabilities(&self) -> &Capabilities {
        static CAPABILITIES: std::sync::OnceLock<Capabilities> = std::sync::OnceLock::new();
        CAPABILITIES.get_or_init(|| ForeignDisk::new(1 << 20, 0).capabilities())
    }

    fn durability(&self) -> Durability {
        Durability::UNCOUNTED
    }

    fn submit(&mut self, tag: IoTag, _: IoRequest, outlet: &mut Outlet) -> Submitted {
        let work = Box::new(|| Ok(HelperAnswer::Done));
        let operation = HelperOperation { name: "work", work };
        let number = 7;
        let request = Some(tag);
        outlet.help(PartTag { request, number }, operation);
        outlet.set_timer(u64::MAX, Duration::from_secs(1));
        let file = std::fs::File::open("/dev/null").unwrap();
        outlet.open_socket(SocketTag(3), OwnedFd::from(file));
        outlet.on_socket(SocketTag(3), 5, SocketWork::Receive);
        outlet.close_socket(SocketTag(3));
        outlet.on_socket(SocketTag(3), 6, SocketWork::Receive);
        outlet.cancel_part(PartTag::own(6));
        outlet.cancel_parts(tag);
        outlet.look_at_size();
        outlet.report_reach(false);
        outlet.report_held_elsewhere(true);
        Submitted::Taken
    }

    fn handle_helper_result(&mut self, part: PartTag, _: crate::HelperResult, outlet: &mut Outlet) {
        assert_eq!(part.number, 7);
        self.note("helper");
        outlet.answer(part.request.unwrap(), Ok(IoAnswer::Done));
    }

    fn handle_socket(&mut self, socket: SocketTag, number: u64, _: SocketResult, _: &mut Outlet) {
        self.note(&format!("socket {} {number}", socket.0));
    }

    fn handle_timer(&mut self, number: u64, outlet: &mut Outlet) {
        assert_eq!(number, u64::MAX);
        outlet.report_reach(true);
        outlet.report_held_elsewhere(false);
        self.note("timer");
    }

    fn refresh_size(&mut self) -> Option<u64> {
        None
    }
}

#[track_caller]
fn assert_reached_again(outlet: &mut Outlet) {
    let reports = [outlet.next_order(), outlet.next_order()];
    assert!(matches!(
        reports,
        [
            Some(Order::Reach { is_reached: true }),
            Some(Order::HeldElsewhere { is_held: false })
        ]
    ));
}

#[test]
fn names_of_two_members_are_kept_apart_and_come_back_as_they_were() {
    let (seen, notes) = mpsc::channel();
    let busy = |name| member(name, BusyShared(Mutex::new(seen.clone()), name));
    let composed = Composed::new(STRIPE, vec![busy("a"), busy("b")], false).unwrap();
    let mut store = composed.handle().unwrap();
    let mut outlet = Outlet::default();
    let taken = store.submit(IoTag(1), IoRequest::Flush, &mut outlet);
    assert!(matches!(taken, Submitted::Taken));
    let orders: Vec<Order> = std::iter::from_fn(|| outlet.next_order()).collect();
    let (mut open, mut parts, mut cancelled) = (Vec::new(), Vec::new(), Vec::new());
    let (mut works, mut reports, mut held, mut timers) = (vec![], vec![], vec![], vec![]);
    for order in orders {
        match order {
            Order::OpenSocket { socket, .. } => open.push(socket),
            Order::CloseSocket(socket) => open.retain(|one| *one != socket),
            Order::Helper { part, .. } => parts.push(part),
            Order::CancelPart(part) => cancelled.push(part),
            Order::Timer { number, .. } => timers.push(number),
            Order::Socket { socket, number, .. } => {
                works.push((socket, number, open.contains(&socket)))
            }
            Order::Size => {}
            Order::Reach { is_reached } => reports.push(is_reached),
            Order::HeldElsewhere { is_held } => held.push(is_held),
            other @ (Order::Answer { .. } | Order::Ring { .. } | Order::CancelParts(_)) => {
                panic!("{other:?}")
            }
        }
    }
    assert!(open.is_empty());
    assert_eq!(reports, [false], "both are out of reach");
    assert_eq!(held, [true], "another client has both");
    assert_eq!(composed.outage().unwrap(), "b: no answer");
    assert!(parts.iter().all(|part| part.request == Some(IoTag(1))));
    let on_open: Vec<bool> = works.iter().map(|work| work.2).collect();
    assert_eq!(on_open, [true, false, true, false]);
    let own = |number| PartTag::own(number);
    assert_eq!(
        cancelled,
        [own(works[1].1), parts[0], own(works[3].1), parts[1]]
    );
    // The other way round than they were ordered.
    for (socket, number, _) in works.into_iter().rev() {
        let result = SocketWork::Receive.fail(5);
        store.handle_socket(socket, number, result, &mut outlet);
    }
    for number in timers.into_iter().rev() {
        assert!(outlet.is_empty(), "one is still out of reach");
        store.handle_timer(number, &mut outlet);
    }
    assert_reached_again(&mut outlet);
    for part in parts.into_iter().rev() {
        assert!(outlet.is_empty(), "not answered before the last");
        store.handle_helper_result(part, Ok(HelperAnswer::Done), &mut outlet);
    }
    let answer = outlet.next_order();
    assert!(
        matches!(
            answer,
            Some(Order::Answer {
                tag: IoTag(1),
                result: Ok(_)
            })
        ),
        "{answer:?}"
    );
    let notes: Vec<String> = notes.try_iter().collect();
    let expected = "b socket 3 6, b socket 3 5, a socket 3 6, a socket 3 5, b timer, a timer, b helper, a helper";
    assert_eq!(notes.join(", "), expected);
}
