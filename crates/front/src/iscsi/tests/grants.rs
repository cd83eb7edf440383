//! What a session sees changes while it runs.

use engine::VisibleLun;
use engine::testing::bench::visible;
use engine::testing::disk::Take;

use super::super::Grant;
use super::bench::{Answer, Bench, GOOD, NEW_HERE, Receipt, is_done};

const NO_UNIT: Answer = (2, Some((5, 0x25, 0)));
const LUNS_CHANGED: Answer = (2, Some((6, 0x3f, 0x0e)));
const MODE_CHANGED: Answer = (2, Some((6, 0x2a, 1)));
const PROTECTED: Answer = (2, Some((7, 0x27, 0)));

fn grant(bench: &mut Bench, line: usize, luns: &[VisibleLun]) -> Receipt {
    let receipt = Receipt::default();
    let grant = Grant {
        session: bench.id_of(line),
        core: 0,
        luns: luns.to_vec(),
        targets: Vec::new(),
    };
    bench.sessions.grant(&mut bench.engine, grant, &receipt);
    assert!(!bench.sessions.has_more(), "this turn has room for it");
    bench.settle();
    receipt
}

#[track_caller]
fn expect(bench: &mut Bench, line: usize, lun: u8, is_write: bool, answer: Answer) {
    bench.command(line, lun, is_write);
    assert_eq!(bench.answer(line), answer);
}

#[test]
fn a_lun_that_comes_is_seen_and_the_others_tell_of_it() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    let luns = [visible(0, 0), visible(1, 0)];
    assert!(is_done(&grant(&mut bench, line, &luns)));
    expect(&mut bench, line, 0, false, LUNS_CHANGED);
    expect(&mut bench, line, 1, false, NEW_HERE);
    expect(&mut bench, line, 1, false, GOOD);
    assert_eq!(bench.report()[0].luns, luns);
    bench.end_all();
}

#[test]
fn a_lun_that_goes_is_gone_when_its_commands_have_ended() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    bench.disk.take_next([Take::Pending]);
    bench.write(line);
    let receipt = grant(&mut bench, line, &[]);
    assert!(!is_done(&receipt), "the store has its write");
    expect(&mut bench, line, 0, false, NO_UNIT);
    bench.finish_pending();
    assert_eq!(bench.answer(line), GOOD);
    assert!(is_done(&receipt));
    bench.end_all();
}

#[test]
fn the_right_to_write_goes_and_comes() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    let reading = VisibleLun {
        read_only: true,
        ..visible(0, 0)
    };
    assert!(is_done(&grant(&mut bench, line, &[reading])));
    expect(&mut bench, line, 0, true, MODE_CHANGED);
    expect(&mut bench, line, 0, true, PROTECTED);
    assert!(is_done(&grant(&mut bench, line, &[visible(0, 0)])));
    expect(&mut bench, line, 0, true, MODE_CHANGED);
    expect(&mut bench, line, 0, true, GOOD);
    bench.end_all();
}

#[test]
fn what_is_granted_already_changes_nothing() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    assert!(is_done(&grant(&mut bench, line, &[visible(0, 0)])));
    expect(&mut bench, line, 0, true, GOOD);
    bench.end_all();
}

#[test]
fn a_session_that_ends_is_granted_nothing() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    bench.disk.take_next([Take::Pending]);
    bench.write(line);
    bench.hang_up(line);
    bench.settle();
    assert!(is_done(&grant(&mut bench, line, &[])));
    assert_eq!(bench.report()[0].luns, [visible(0, 0)]);
    bench.finish_pending();
    bench.end_all();
}

#[test]
fn grants_that_a_turn_has_no_room_for_begin_in_the_next_ones_in_their_order() {
    let mut bench = Bench::new();
    let line = bench.ready(1);
    let session = bench.id_of(line);
    let luns = |count: usize| -> Vec<VisibleLun> {
        let luns = (0..=u16::try_from(count % 2).unwrap()).map(|lun| visible(lun, 0));
        luns.collect()
    };
    let receipts: Vec<Receipt> = (1..=2000).map(|_| Receipt::default()).collect();
    for (count, receipt) in (1..).zip(&receipts) {
        let grant = Grant {
            session,
            core: 0,
            luns: luns(count),
            targets: Vec::new(),
        };
        bench.sessions.grant(&mut bench.engine, grant, receipt);
    }
    let waiting = |bench: &Bench| bench.sessions.grants.len();
    let left = waiting(&bench);
    assert!((1000..1900).contains(&left), "{left} wait");
    assert!(bench.sessions.has_more(), "the next turn begins at once");
    // Where a turn has no room at all, one begins.
    bench.sessions.carry_on_grants(&mut bench.engine);
    assert_eq!(waiting(&bench), left - 1);
    let now = bench.engine.now();
    bench.engine.begin_turn(now);
    bench.sessions.carry_on_grants(&mut bench.engine);
    assert!((1..left - 100).contains(&waiting(&bench)));
    assert!(!is_done(&receipts[1999]));
    while bench.sessions.has_grants() || bench.engine.has_pieces() {
        bench.engine.begin_turn(now);
        bench.settle();
    }
    assert!(receipts.iter().all(is_done));
    assert_eq!(bench.report()[0].luns, luns(2000));
    bench.end_all();
}
