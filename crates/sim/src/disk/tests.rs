//! The disk does what it says.

use store::Order;

use super::*;

/// Writes `byte` to one block and waits for nothing.
fn write(disk: &Disk, block: usize, byte: u8, durable: bool) -> RequestId {
    let mut handle = disk.handle(0);
    loop {
        let request = IoRequest::Write {
            offset: (block * BLOCK_BYTES) as u64,
            data: Payload::Heap(vec![byte; BLOCK_BYTES]),
            durable,
        };
        if let Submitted::Taken = handle.submit(IoTag(0), request, &mut Outlet::default()) {
            return *disk.take_arrivals().last().unwrap();
        }
    }
}

fn flush(disk: &Disk) -> RequestId {
    let outlet = &mut Outlet::default();
    let submitted = disk.handle(0).submit(IoTag(1), IoRequest::Flush, outlet);
    assert!(matches!(submitted, Submitted::Taken));
    *disk.take_arrivals().last().unwrap()
}

/// The request ends, and these are its answers.
fn end(disk: &Disk, id: RequestId, fate: Fate) -> Vec<IoResult> {
    let core = disk.complete(id, fate).unwrap();
    let mut outlet = Outlet::default();
    disk.handle(core).handle_wake(&mut outlet);
    let orders = std::iter::from_fn(|| outlet.next_order());
    let answer = |order| {
        let Order::Answer { result, .. } = order else {
            panic!("{order:?}")
        };
        result
    };
    orders.map(answer).collect()
}

fn disk(volatile_cache: bool) -> Disk {
    Disk::new(8, volatile_cache, 64, Prng::new(5))
}

#[test]
fn a_request_takes_effect_when_it_ends_and_not_before() {
    let disk = disk(true);
    let first = write(&disk, 0, 1, false);
    let second = write(&disk, 0, 2, false);
    assert!(disk.complete(second, Fate::Hangs).is_none());
    assert!(matches!(end(&disk, second, Fate::Good)[..], [Ok(_)]));
    assert_eq!(disk.content()[0], 2);
    assert!(disk.complete(first, Fate::Good).is_some());
    assert_eq!(disk.content()[0], 1);
    assert!(disk.complete(first, Fate::Good).is_none());
    assert_eq!(disk.waiting(), 0);
}

#[test]
fn a_crash_spares_what_was_durable_and_nothing_else_for_certain() {
    let mut survived = [0, 0];
    for seed in 0..50 {
        let disk = Disk::new(8, true, 64, Prng::new(seed));
        for (block, durable) in [(0, true), (1, false)] {
            let id = write(&disk, block, 7, durable);
            disk.complete(id, Fate::Good);
        }
        disk.crash();
        for (block, count) in survived.iter_mut().enumerate() {
            *count += usize::from(disk.content()[block * BLOCK_BYTES] == 7);
        }
    }
    assert_eq!(survived[0], 50);
    assert!((1..50).contains(&survived[1]), "{survived:?}");
}

#[test]
fn a_flush_makes_durable_what_ended_before_it() {
    let disk = disk(true);
    let id = write(&disk, 3, 9, false);
    assert!(matches!(end(&disk, id, Fate::Good)[..], [Ok(_)]));
    let id = flush(&disk);
    assert!(matches!(end(&disk, id, Fate::Good)[..], [Ok(_)]));
    disk.crash();
    assert_eq!(disk.content()[3 * BLOCK_BYTES], 9);
}

#[test]
fn a_forgetful_disk_counts_what_goes_with_its_cache() {
    let mut survived = 0;
    for seed in 0..50 {
        let disk = Disk::new(8, true, 64, Prng::new(seed));
        disk.be_forgetful();
        let handle = disk.handle(0);
        disk.lose_cache();
        let found = || handle.durability();
        assert_eq!(found().lost, Some(0), "there was nothing to lose");
        let id = write(&disk, 1, 7, false);
        disk.complete(id, Fate::Good);
        let waits = write(&disk, 2, 8, false);
        disk.lose_cache();
        assert!(found().lost == Some(1) && !found().may_have_unflushed);
        survived += usize::from(disk.content()[BLOCK_BYTES] == 7);
        assert!(disk.complete(waits, Fate::Good).is_some());
        assert_eq!(disk.content()[2 * BLOCK_BYTES], 8);
    }
    assert!((1..50).contains(&survived), "{survived}");
}

#[test]
fn a_failed_flush_is_remembered() {
    let disk = disk(true);
    let id = flush(&disk);
    assert!(matches!(end(&disk, id, Fate::Failed)[..], [Err(_)]));
    let id = flush(&disk);
    let ended = end(&disk, id, Fate::Good);
    assert!(matches!(ended[..], [Err(IoFailure::FlushLatched)]));
    let id = write(&disk, 0, 1, true);
    assert!(matches!(end(&disk, id, Fate::Good)[..], [Err(_)]));
}

#[test]
fn an_answer_that_comes_twice_says_something_else_the_second_time() {
    let disk = disk(true);
    let id = write(&disk, 0, 1, false);
    assert!(matches!(end(&disk, id, Fate::Twice)[..], [Ok(_), Err(_)]));
    let id = write(&disk, 0, 2, false);
    let ended = end(&disk, id, Fate::Away);
    assert!(matches!(ended[..], [Err(IoFailure::NotReady)]));
}

#[test]
fn a_cancelled_request_is_answered_either_way() {
    let mut counts = [0, 0];
    for seed in 0..50 {
        let disk = Disk::new(8, true, 64, Prng::new(seed));
        let id = write(&disk, 0, 1, false);
        disk.handle(0).cancel(IoTag(0), &mut Outlet::default());
        let ended = end(&disk, id, Fate::Good);
        counts[usize::from(matches!(ended[..], [Ok(_)]))] += 1;
    }
    assert!(counts.iter().all(|count| *count > 5), "{counts:?}");
}

#[test]
fn a_composition_has_each_block_where_the_disk_counts_it() {
    for layout in [Layout::Concat(3), Layout::Stripe(1), Layout::Stripe(2)] {
        let disk = disk(true);
        disk.lay(layout);
        assert_eq!(disk.capabilities().size_bytes, 8 * 512);
        for block in 0..8 {
            let id = write(&disk, block, 1 + u8::try_from(block).unwrap(), false);
            assert_eq!(disk.part_of(id), Some(layout.part_of(block)));
            disk.complete(id, Fate::Good);
        }
        let content = disk.content();
        let found = content.chunks(BLOCK_BYTES).map(|block| block[0]);
        assert!(found.eq(1..=8), "{layout:?}");
        disk.limit(&[]);
        assert_eq!(disk.taken(), 8);
    }
}

#[test]
fn a_flush_of_one_part_leaves_the_other_alone() {
    let disk = disk(true);
    disk.lay(Layout::Concat(4));
    for block in [0, 7] {
        let id = write(&disk, block, 9, false);
        disk.complete(id, Fate::Good);
    }
    let submitted = disk
        .handle(0)
        .submit(IoTag(1), IoRequest::Flush, &mut Outlet::default());
    assert!(matches!(submitted, Submitted::Taken));
    let both = disk.take_arrivals();
    disk.complete(both[0], Fate::Good);
    disk.complete(both[1], Fate::Failed);
    let state = disk.0.borrow();
    assert_eq!(
        (&state.dirty, state.is_latched),
        (&BTreeSet::from([7]), [false, true])
    );
}

#[test]
fn what_gets_space_in_spite_of_a_limit_is_noted() {
    let disk = disk(true);
    let early = write(&disk, 2, 1, false);
    disk.limit(&[]);
    disk.complete(early, Fate::Good);
    assert_eq!(disk.beyond(), None, "it waited before");
    let late = write(&disk, 3, 1, false);
    disk.complete(late, Fate::Good);
    assert_eq!(disk.beyond(), Some(3));
}

#[test]
fn without_a_cache_every_write_is_durable() {
    let disk = disk(false);
    let id = write(&disk, 2, 4, false);
    disk.complete(id, Fate::Good);
    disk.crash();
    assert_eq!(disk.content()[2 * BLOCK_BYTES], 4);
}

#[test]
fn a_full_queue_gives_the_request_back() {
    let disk = Disk::new(8, true, 1, Prng::new(5));
    write(&disk, 0, 1, false);
    for (core, is_full) in [(0, true), (1, false)] {
        let mut outlet = Outlet::default();
        let mut handle = disk.handle(core);
        let submitted = handle.submit(IoTag(2), IoRequest::Flush, &mut outlet);
        assert!(matches!(submitted, Submitted::Taken));
        assert_eq!(outlet.take_returned().is_some(), is_full);
    }
}
