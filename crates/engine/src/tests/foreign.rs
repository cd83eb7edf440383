//! Stores that answer elsewhere: from another thread, late, never, twice, in parts, after a cancel; timers and
//! connections of stores.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use scsi::Owner;
use store::testing::{ForeignDisk, Manner};
use store::{
    Backstore, Capabilities, Durability, FileHandle, IoAnswer, IoFailure, IoRequest, IoTag, Outlet,
    PartTag, Place, RingOperation, SharedStore, SocketResult, SocketTag, SocketWork, StoreFile,
    Submitted, Waker,
};

use super::bench::{ABORT, Bench, MOMENT, UNIT, profile};
use super::cdb;
use super::disk::{Take, capabilities};
use super::outside::{GOOD, REFUSED};
use crate::{ManagementOutcome, News, StoreWork, UnitIndex};

/// How long a test waits for another thread.
const PATIENCE: Duration = Duration::from_secs(20);
/// NOT READY: the store cannot be reached.
const NOT_NOW: (scsi::Status, Option<(u8, u8, u8)>) =
    (scsi::Status::CheckCondition, Some((2, 4, 1)));

/// NOT READY, manual intervention required: another client has the medium.
const HELD: (scsi::Status, Option<(u8, u8, u8)>) = (scsi::Status::CheckCondition, Some((2, 4, 3)));

impl Bench {
    /// One core with one unit on a disk of another thread.
    fn with_foreign(disk: &ForeignDisk) -> Self {
        Self::on(disk.handle().unwrap(), disk.capabilities())
    }

    fn on(store: Box<dyn Backstore>, capabilities: Capabilities) -> Self {
        let mut bench = Self::with_units(1, 0);
        let owner = Owner::new(profile(capabilities), None).unwrap();
        bench.cores[0].add_unit(owner, None, store);
        bench
    }

    /// Waits until a store wants to be called, from whatever thread, and calls it.
    fn await_wake(&mut self) {
        let unit = self.cores[0].carrier.wakes.1.recv_timeout(PATIENCE);
        self.cores[0].handle_store_wake(unit.expect("the store wakes its core"));
        self.step(0);
        self.settle();
    }
}

fn foreign() -> ForeignDisk {
    ForeignDisk::new(1 << 20, 0)
}

#[test]
fn an_answer_of_another_thread_may_be_late_and_in_parts() {
    let disk = foreign();
    let mut bench = Bench::with_foreign(&disk);
    let who = bench.log_in(0);
    disk.treat_next([Manner::Late, Manner::InParts(4)]);
    let late = bench.send(who, cdb::write(0, 8, 1));
    let other = bench.send(who, cdb::write(8, 8, 2));
    bench.await_wake();
    while bench.port(who).answers.is_empty() {
        bench.await_wake();
    }
    assert_eq!(bench.answers(who)[0].0, other, "they overtake each other");
    bench.pass(ABORT * 10);
    assert_eq!(bench.answers(who), [], "nothing but the store ends it");
    disk.release();
    bench.await_wake();
    assert_eq!(bench.answers(who)[0].0, late);
    disk.treat_next([Manner::InParts(3)]);
    bench.send(who, cdb::read(7, 2));
    while bench.port(who).answers.is_empty() {
        bench.await_wake();
    }
    let data = bench.answer(who).data;
    assert_eq!((data[511], data[512]), (1, 2));
    bench.end();
}

#[test]
fn a_second_answer_is_refused_and_reported() {
    let disk = foreign();
    let mut bench = Bench::with_foreign(&disk);
    let who = bench.log_in(0);
    disk.treat_next([Manner::Twice]);
    bench.send(who, cdb::write(0, 1, 1));
    let mut news = Vec::new();
    while news.is_empty() {
        bench.await_wake();
        news = bench.news(0);
    }
    assert_eq!(news, [News::StoreConfused { unit: UNIT }]);
    assert_eq!(bench.answer(who).end(), GOOD);
    bench.end();
}

/// Every request has a tag of its own, also those of one command, and those that were done at once.
#[test]
fn a_second_answer_meets_no_later_request() {
    let mut bench = Bench::new(1);
    let who = bench.log_in(0);
    bench.disk(0).take(Take::Pending);
    bench.send(who, cdb::compare_and_write(0, 1, 0, 7));
    let read = bench.finish_pending(0);
    assert!(bench.disk(0).has_pending(), "the write of the same command");
    bench
        .disk(0)
        .answer(read, Err(IoFailure::Medium { offset: 0 }));
    bench.wake(0);
    assert_eq!(bench.news(0), [News::StoreConfused { unit: UNIT }]);
    assert_eq!(bench.answers(who), []);
    bench.finish_pending(0);
    assert_eq!(bench.answer(who).end(), GOOD);
    assert_eq!(bench.disk(0).byte(0), 7);

    bench.disk(0).take_next([Take::Now, Take::Pending]);
    bench.send(who, cdb::read(0, 1));
    assert_eq!(bench.answer(who).end(), GOOD);
    let done = bench.disk(0).last_tag();
    bench.send(who, cdb::read(0, 1));
    assert_ne!(bench.disk(0).last_tag(), done);
    for stray in [done, IoTag(u64::MAX), IoTag(0)] {
        bench.disk(0).answer(stray, Ok(IoAnswer::Done));
        bench.wake(0);
        assert_eq!(bench.news(0), [News::StoreConfused { unit: UNIT }]);
        assert_eq!(bench.answers(who), [], "{stray:?}");
    }
    bench.finish_pending(0);
    assert_eq!(bench.answer(who).end(), GOOD);
    bench.end();
}

#[test]
fn a_request_that_is_never_answered_makes_its_unit_refuse_access_and_keeps_its_memory() {
    let disk = foreign();
    let mut bench = Bench::with_foreign(&disk);
    let who = bench.log_in(0);
    disk.treat_next([Manner::Never]);
    let id = bench.send(who, cdb::write(0, 8, 1));
    bench.abort(who, id);
    bench.pass(ABORT - MOMENT);
    assert_eq!(bench.managed(who), []);
    bench.pass(MOMENT);
    assert_eq!(bench.managed(who), [(id, ManagementOutcome::Rejected)]);
    bench.send(who, cdb::read(0, 1));
    assert_eq!(bench.answer(who).end(), REFUSED);
    assert!(!bench.cores[0].is_unit_idle(UNIT));
    let pool = bench.cores[0].pool().clone();
    let (free, leaked) = (pool.free_bytes(), memory::leaked_bytes());
    drop(bench);
    assert_eq!(pool.free_bytes(), free, "the library may still read it");
    assert!(memory::leaked_bytes() > leaked);
}

#[test]
fn a_cancelled_request_is_answered_once_and_then_only_ends_its_abort() {
    let disk = foreign();
    let mut bench = Bench::with_foreign(&disk);
    let who = bench.log_in(0);
    disk.treat_next([Manner::WhenCancelled]);
    let id = bench.send(who, cdb::write(0, 1, 1));
    bench.abort(who, id);
    bench.await_wake();
    assert_eq!(bench.managed(who), [(id, ManagementOutcome::Complete)]);
    assert_eq!(bench.answers(who), []);
    assert_eq!(disk.byte(0), 0);
    bench.end();
}

#[test]
fn a_failure_that_passes_is_no_medium_error_and_passes() {
    let disk = foreign();
    let mut bench = Bench::with_foreign(&disk);
    let who = bench.log_in(0);
    for command in [cdb::read(0, 1), cdb::write(0, 1, 1), cdb::synchronize()] {
        disk.treat_next([Manner::Unreachable]);
        bench.send(who, command.clone());
        bench.await_wake();
        assert_eq!(bench.answer(who).end(), NOT_NOW);
        bench.send(who, command);
        bench.await_wake();
        assert_eq!(bench.answer(who).end(), GOOD);
    }
    bench.end();
}

/// Each core has it from its own handle.
#[test]
fn a_medium_that_another_client_has_is_refused_for_long_and_the_unit_describes_itself() {
    let mut bench = Bench::new(2);
    let who = [bench.log_in(0), bench.log_in(1)];
    bench.disk(0).take(Take::Pending);
    bench.send(who[0], cdb::read(0, 1));
    let begun = bench.disk(0).last_tag();
    for (core, who) in who.into_iter().enumerate() {
        bench.disk(core).hold_elsewhere(true);
        bench.wake(core);
        for command in [
            cdb::test_unit_ready(),
            cdb::read(0, 1),
            cdb::write(0, 1, 1),
            cdb::synchronize(),
        ] {
            bench.send(who, command);
            assert_eq!(bench.answer(who).end(), HELD);
        }
        for command in [cdb::inquiry(), cdb::read_capacity()] {
            bench.send(who, command);
            assert_eq!(bench.answer(who).end(), GOOD);
        }
    }
    bench.disk(0).answer(begun, Err(IoFailure::HeldElsewhere));
    bench.wake(0);
    assert_eq!(bench.answer(who[0]).end(), HELD, "one that had begun");
    bench.disk(0).take(Take::Now);
    bench.disk(0).hold_elsewhere(false);
    bench.wake(0);
    for (who, end) in [(who[0], GOOD), (who[1], HELD)] {
        bench.send(who, cdb::test_unit_ready());
        assert_eq!(bench.answer(who).end(), end);
        bench.send(who, cdb::read(0, 1));
        assert_eq!(bench.answer(who).end(), end);
    }
    bench.disk(0).log();
    bench.end();
}

#[test]
fn a_request_that_is_given_back_is_submitted_again_when_another_is_over() {
    let disk = foreign();
    let mut bench = Bench::with_foreign(&disk);
    let who = bench.log_in(0);
    disk.treat_next([Manner::Late, Manner::Full]);
    let first = bench.send(who, cdb::write(0, 1, 1));
    let second = bench.send(who, cdb::write(1, 1, 2));
    disk.release();
    let mut ended = Vec::new();
    while ended.len() < 2 {
        bench.await_wake();
        ended.extend(bench.answers(who).into_iter().map(|(id, _)| id));
    }
    assert_eq!(ended, [first, second]);
    assert_eq!(disk.byte(512), 2);
    bench.end();
}

#[test]
fn a_store_compares_and_writes_by_itself_where_it_can() {
    let mut bench = Bench::with_store(1, |store| store.compare_and_write_bytes = 1024);
    let who = bench.log_in(0);
    bench.send(who, cdb::compare_and_write(0, 2, 0, 7));
    assert_eq!(bench.answer(who).end(), GOOD);
    bench.send(who, cdb::compare_and_write(1, 1, 0, 8));
    assert_eq!(bench.answer(who).sense, Some((0x0e, 0x1d, 0)));
    assert_eq!(bench.disk(0).byte(1), 7);
    let one = "compare and write 0+2";
    assert_eq!(bench.disk(0).log(), [one, "compare and write 1+1"]);
    bench.send(who, cdb::compare_and_write(1, 2, 7, 9));
    assert_eq!(bench.answer(who).sense, Some((0x0e, 0x1d, 0)));
    assert_eq!(
        bench.disk(0).log(),
        ["read 1+2"],
        "across the end of a unit"
    );
    bench.end();
}

// ---- parts, timers, connections --------------------------------------------------------------

/// A store of two parts to a request, which answers at the first of them.
#[derive(Debug)]
struct HastyStore {
    capabilities: Capabilities,
    file: FileHandle,
    log: Rc<RefCell<Vec<String>>>,
}

impl HastyStore {
    fn bench() -> (Bench, Rc<RefCell<Vec<String>>>) {
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let log = Rc::default();
        let store = Self {
            capabilities: capabilities(),
            file: Rc::new(StoreFile::new(Arc::new(null.into()), Place::unknown())),
            log: Rc::clone(&log),
        };
        (Bench::on(Box::new(store), capabilities()), log)
    }

    fn note(&self, what: String) {
        self.log.borrow_mut().push(what);
    }
}

const WIRE: SocketTag = SocketTag(4);

impl Backstore for HastyStore {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn durability(&self) -> Durability {
        Durability::UNCOUNTED
    }

    fn start(&mut self, _: &dyn Fn() -> Waker, outlet: &mut Outlet) {
        outlet.set_timer(2, Duration::from_secs(2));
        outlet.set_timer(1, Duration::from_secs(1));
        outlet.on_socket(WIRE, 6, SocketWork::Receive);
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        outlet.open_socket(WIRE, null);
        outlet.on_socket(WIRE, 7, SocketWork::Receive);
    }

    fn submit(&mut self, tag: IoTag, _: IoRequest, outlet: &mut Outlet) -> Submitted {
        for number in 0..2 {
            let request = Some(tag);
            let file = Rc::clone(&self.file);
            outlet.ring(PartTag { request, number }, RingOperation::Sync { file });
        }
        Submitted::Taken
    }

    fn handle_ring_result(
        &mut self,
        part: PartTag,
        _: RingOperation,
        result: i32,
        outlet: &mut Outlet,
    ) {
        self.note(format!(
            "part {} of {:?}: {result}",
            part.number,
            part.request.is_some()
        ));
        if part.number == 1
            && let Some(tag) = part.request
        {
            outlet.answer(tag, Ok(IoAnswer::Done));
            // What is over can have nothing begun.
            let file = Rc::clone(&self.file);
            outlet.ring(part, RingOperation::Sync { file });
        }
    }

    fn handle_timer(&mut self, number: u64, outlet: &mut Outlet) {
        self.note(format!("timer {number}"));
        if number == 2 {
            outlet.close_socket(WIRE);
        }
    }

    fn handle_socket(
        &mut self,
        socket: SocketTag,
        number: u64,
        result: SocketResult,
        _: &mut Outlet,
    ) {
        let is_good = matches!(result, SocketResult::Received(Ok(_)));
        self.note(format!("{number} on {}: {is_good}", socket.0));
    }

    fn refresh_size(&mut self) -> Option<u64> {
        None
    }
}

/// A store that has begun nothing, and answers in the very call that cancels a request.
#[derive(Debug)]
struct IdleStore(Capabilities);

impl Backstore for IdleStore {
    fn capabilities(&self) -> &Capabilities {
        &self.0
    }

    fn durability(&self) -> Durability {
        Durability::UNCOUNTED
    }

    fn submit(&mut self, _: IoTag, _: IoRequest, _: &mut Outlet) -> Submitted {
        Submitted::Taken
    }

    fn cancel(&mut self, tag: IoTag, outlet: &mut Outlet) {
        outlet.answer(tag, Err(IoFailure::Cancelled));
    }

    fn refresh_size(&mut self) -> Option<u64> {
        None
    }
}

#[test]
fn the_end_of_a_session_leaves_no_answer_behind() {
    let mut bench = Bench::on(Box::new(IdleStore(capabilities())), capabilities());
    let who = bench.log_in(0);
    bench.send(who, cdb::write(0, 1, 1));
    let core = &mut bench.cores[0];
    core.end_session(who.key);
    // What comes next on a core looks whether everything is in order.
    core.handle_memory();
    bench.settle();
    bench.end();
}

#[test]
fn an_answer_is_held_until_all_parts_are_back() {
    let (mut bench, log) = HastyStore::bench();
    let who = bench.log_in(0);
    let wire = bench.under_way(0);
    bench.send(who, cdb::write(0, 1, 1));
    let parts: Vec<usize> = bench.under_way(0).into_iter().skip(wire.len()).collect();
    log.borrow_mut().clear();
    bench.finish(0, parts[1]);
    assert_eq!(bench.answers(who), [], "a part may still reach the medium");
    assert_eq!(bench.news(0), [News::StoreConfused { unit: UNIT }]);
    assert_eq!(bench.under_way(0).len(), wire.len() + 1);
    bench.finish(0, parts[0]);
    assert_eq!(bench.answer(who).end(), GOOD);
    assert_eq!(*log.borrow(), ["part 1 of true: 0", "part 0 of true: 0"]);

    // An abort cancels what is left of a request that is answered.
    let id = bench.send(who, cdb::write(0, 1, 1));
    let parts: Vec<usize> = bench.under_way(0).into_iter().skip(wire.len()).collect();
    bench.finish(0, parts[1]);
    bench.abort(who, id);
    assert_eq!(bench.cancelled(0), [parts[0]]);
    bench.finish_with(0, parts[0], -125);
    assert_eq!(bench.managed(who), [(id, ManagementOutcome::Complete)]);
}

#[test]
fn timers_come_in_their_order_and_once() {
    let (mut bench, log) = HastyStore::bench();
    log.borrow_mut().clear();
    assert_eq!(
        bench.cores[0].poll_timeout(),
        Some(bench.now + Duration::from_secs(1))
    );
    bench.pass(Duration::from_secs(1) - MOMENT);
    assert!(log.borrow().is_empty());
    bench.pass(MOMENT);
    assert_eq!(*log.borrow(), ["timer 1"]);
    bench.pass(Duration::from_secs(10));
    assert_eq!(*log.borrow(), ["timer 1", "timer 2"]);
    assert_eq!(bench.cores[0].poll_timeout(), None);
    assert_eq!(bench.cores[0].carrier.sockets, []);
}

#[test]
fn an_operation_on_a_connection_ends_with_its_result_or_at_once_where_there_is_none() {
    let (mut bench, log) = HastyStore::bench();
    assert_eq!(*log.borrow(), ["6 on 4: false"], "it was not open yet");
    assert_eq!(bench.cores[0].carrier.sockets, [(UNIT, WIRE)]);
    let begun = bench.under_way(0);
    assert_eq!(begun.len(), 1);
    let one = &mut bench.cores[0].carrier.begun[begun[0]];
    let (part, work) = (one.part, one.work.take());
    assert!(
        matches!(
            work,
            Some(StoreWork::Socket {
                unit: UNIT,
                socket: WIRE,
                ..
            })
        ),
        "{work:?}"
    );
    let chunk = Rc::new(bench.cores[0].pool().allocate(512).unwrap());
    let result = SocketResult::Received(Ok((chunk, 512)));
    bench.cores[0].handle_socket_result(part, result);
    assert_eq!(log.borrow().last().unwrap(), "7 on 4: true");
}

#[test]
fn what_a_store_has_under_way_when_its_unit_goes_ends_unseen() {
    let (mut bench, log) = HastyStore::bench();
    log.borrow_mut().clear();
    let begun = bench.under_way(0);
    assert!(
        bench.cores[0].is_unit_idle(UNIT),
        "a connection is no command"
    );
    bench.cores[0].flush_unit(UNIT);
    bench.pass(ABORT * 3);
    bench.reports.clear();
    log.borrow_mut().clear();
    let all = bench.under_way(0);
    bench.cores[0].close_unit(UNIT);
    assert_eq!(bench.cores[0].carrier.sockets, []);
    assert_eq!(bench.cores[0].poll_timeout(), None, "its timers are gone");
    let cancelled = bench.cancelled(0);
    assert!(all.iter().all(|number| cancelled.contains(number)));
    let socket = &mut bench.cores[0].carrier.begun[begun[0]];
    let part = socket.part;
    socket.work = None;
    let result = SocketResult::Received(Err(125));
    bench.cores[0].handle_socket_result(part, result);
    bench.finish_all(0);
    bench.cores[0].handle_store_wake(UNIT);
    bench.cores[0].handle_store_wake(UnitIndex(9));
    assert!(log.borrow().is_empty());
    assert_eq!(bench.news(0), []);
    bench.end();
}
