//! Commands and functions, their order and their data.

use std::time::Duration;

use ::hyperscsi::{ClientEvent, Function, Level, Outcome};
use engine::testing::disk::Take;

use super::super::sessions::port_of;
use super::bench::*;

const GOOD: Outcome = Outcome::Status(0);
const CHECK_CONDITION: Outcome = Outcome::Status(2);

fn under_way(bench: &mut Bench) -> u32 {
    let key = bench.engine.sessions().next().unwrap().0;
    port_of(&mut bench.engine, key).unwrap().under_way()
}

/// Outcomes by token.
fn outcomes(bench: &mut Bench, client: usize) -> Vec<(u64, Outcome)> {
    let answers = bench.answers(client).into_iter();
    answers
        .map(|(token, outcome, ..)| (token, outcome))
        .collect()
}

#[test]
fn no_more_commands_are_under_way_than_may_be_and_those_that_wait_follow() {
    let mut bench = Bench::new();
    let client = bench.ready(1);
    bench.disk.take(Take::Pending);
    let tokens: Vec<u64> = (0..20).map(|at| bench.read(client, at, 512)).collect();
    let mut done = Vec::new();
    while bench.disk.has_pending() {
        assert!(under_way(&mut bench) <= DEPTH);
        bench.finish_pending();
        done.extend(outcomes(&mut bench, client));
    }
    let wanted: Vec<_> = tokens.into_iter().map(|token| (token, GOOD)).collect();
    assert_eq!(done, wanted);
    bench.end_all();
}

/// Slots are those of the depth at the login, so a client has no more under way; a smaller limit holds some back here.
#[test]
fn a_changed_limit_is_used_at_once() {
    let mut bench = Bench::new();
    let client = bench.ready(1);
    bench.disk.take(Take::Pending);
    bench.limit(2);
    for at in 0..4 {
        bench.write(client, at, vec![1; 512]);
    }
    assert_eq!(under_way(&mut bench), 2);
    bench.limit(3);
    assert_eq!(under_way(&mut bench), 3);
    bench.disk.take(Take::Now);
    while bench.disk.has_pending() {
        bench.finish_pending();
    }
    assert_eq!(
        outcomes(&mut bench, client),
        [1, 2, 3, 4].map(|at| (at + 1, GOOD))
    );
    bench.end_all();
}

/// While commands wait the window of their client is shut; functions come all the same.
#[test]
fn commands_that_wait_are_ended_by_functions_as_those_under_way_are() {
    for function in [
        Function::AbortTaskSet,
        Function::ClearTaskSet,
        Function::LogicalUnitReset,
    ] {
        let mut bench = Bench::new();
        let client = bench.ready(1);
        bench.disk.take(Take::Pending);
        bench.limit(2);
        let tokens = [0, 1, 2].map(|at| bench.write(client, at, vec![1; 512]));
        let over = bench.manage(client, function);
        let mut done = outcomes(&mut bench, client);
        while bench.disk.has_pending() {
            bench.finish_pending();
        }
        done.extend(outcomes(&mut bench, client));
        done.sort_unstable_by_key(|(token, _)| *token);
        let mut wanted: Vec<_> = tokens.map(|token| (token, Outcome::Aborted)).into();
        wanted.push((over, Outcome::FunctionComplete));
        assert_eq!(done, wanted, "{function:?}");
        assert_eq!(under_way(&mut bench), 0);
        bench.disk.take(Take::Now);
        if function == Function::LogicalUnitReset {
            let told = bench.read(client, 0, 512);
            assert_eq!(bench.answer(client, told).0, CHECK_CONDITION);
        }
        let read = bench.read(client, 2, 512);
        let (outcome, data) = bench.answer(client, read);
        assert_eq!(
            (outcome, &data[..]),
            (GOOD, &[0; 512][..]),
            "it has not begun"
        );
        bench.end_all();
    }
}

#[test]
fn one_command_is_aborted_whether_it_waits_or_not() {
    let mut bench = Bench::new();
    let client = bench.ready(1);
    bench.disk.take(Take::Pending);
    bench.limit(1);
    let tokens = [0, 1, 2].map(|at| bench.write(client, at, vec![1; 512]));
    for token in [tokens[1], tokens[0]] {
        let name = bench.in_session(client).name_of(token).unwrap();
        bench.manage(client, Function::AbortTask(name));
    }
    let mut done = outcomes(&mut bench, client);
    assert_eq!(done[0], (tokens[1], Outcome::Aborted), "{done:?}");
    while bench.disk.has_pending() {
        bench.finish_pending();
    }
    done.extend(outcomes(&mut bench, client));
    let of = |token: u64| done.iter().find(|(one, _)| *one == token).unwrap().1;
    assert_eq!(of(tokens[1]), Outcome::Aborted);
    assert_eq!(of(tokens[0]), Outcome::Aborted);
    assert_eq!(of(tokens[2]), GOOD);
    assert_eq!(done.len(), 5, "{done:?}");
    bench.end_all();
}

#[test]
fn a_function_of_one_session_leaves_the_commands_of_another_alone() {
    let mut bench = Bench::new();
    let clients = [bench.ready(1), bench.ready(2)];
    bench.disk.take(Take::Pending);
    let mine = bench.write(clients[0], 0, vec![1; 512]);
    let other = bench.write(clients[1], 1, vec![2; 512]);
    let over = bench.manage(clients[0], Function::AbortTaskSet);
    while bench.disk.has_pending() {
        bench.finish_pending();
    }
    let wanted = [(mine, Outcome::Aborted), (over, Outcome::FunctionComplete)];
    assert_eq!(outcomes(&mut bench, clients[0]), wanted);
    assert_eq!(outcomes(&mut bench, clients[1]), [(other, GOOD)]);
    bench.end_all();
}

#[test]
fn data_that_are_more_or_less_than_a_command_takes_are_told() {
    let mut bench = Bench::new();
    let client = bench.ready(1);
    // One block of two that came.
    let cdb = vec![0x2a, 0, 0, 0, 0, 9, 0, 0, 1, 0];
    let more = bench.submit(client, cdb, 0, [[1; 512], [2; 512]].concat());
    let answers = bench.answers(client);
    assert_eq!(answers, [(more, GOOD, -512, vec![])]);
    assert_eq!((bench.disk.byte(9), bench.disk.byte(10)), (1, 0));
    // Two blocks of one and a half that came.
    let cdb = vec![0x2a, 0, 0, 0, 0, 20, 0, 0, 2, 0];
    let less = bench.submit(client, cdb, 0, vec![3; 700]);
    let (of, outcome, ..) = bench.answers(client).remove(0);
    let blocks = [20, 21].map(|at| bench.disk.byte(at));
    assert_eq!(
        (of, outcome, blocks),
        (less, CHECK_CONDITION, [0, 0]),
        "nothing of it"
    );
    // A list of which nothing came.
    let cdb = vec![0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    let none = bench.submit(client, cdb, 0, Vec::new());
    let answers = bench.answers(client);
    assert_eq!((answers[0].0, answers[0].1), (none, CHECK_CONDITION));
    // Room for less than is read, and for more.
    for (room, residual) in [(512, 512), (2048, -1024)] {
        let cdb = vec![0x28, 0, 0, 0, 0, 9, 0, 0, 2, 0];
        let token = bench.submit(client, cdb, room, Vec::new());
        let (of, outcome, rest, data) = bench.answers(client).remove(0);
        assert_eq!((of, outcome, rest), (token, GOOD, residual));
        assert_eq!(data.len(), usize::try_from(room).unwrap().min(1024));
    }
    bench.end_all();
}

#[test]
fn a_client_whose_data_wait_is_held_back_until_there_is_room() {
    let mut bench = Bench::new();
    let client = bench.ready(1);
    bench.disk.take(Take::Pending);
    bench.limit(1);
    let tokens = [0, 1, 2, 3].map(|at| bench.write(client, at * 2048, vec![1; 1 << 20]));
    bench.pass(Duration::from_secs(2));
    assert_eq!(outcomes(&mut bench, client), []);
    let mut done = Vec::new();
    for _ in 0..100 {
        if bench.disk.has_pending() {
            bench.finish_pending();
        }
        bench.pass(Duration::from_millis(100));
        done.extend(outcomes(&mut bench, client));
    }
    assert_eq!(done, tokens.map(|token| (token, GOOD)));
    bench.end_all();
}

#[test]
fn a_device_has_its_least_level_and_its_number() {
    let mut bench = Bench::new();
    let mut strict = device(7);
    strict.level = Level::Hash;
    let mut with_two = group();
    with_two.devices.push(strict);
    bench.serve(&[with_two]);
    let client = bench.log_in(station(1), 1);
    let mut opened = |device, level| bench.try_open(client, device, level);
    use ::hyperscsi::Opening::{Open, OtherLevel, TooLow, Unknown};
    assert_eq!(opened(7, Level::Crc), TooLow(Level::Hash));
    assert_eq!(opened(7, Level::Encrypt), Open(Level::Encrypt));
    assert_eq!(opened(7, Level::Hash), OtherLevel(Level::Encrypt));
    assert_eq!(opened(2, Level::Crc), Unknown);
    assert_eq!(opened(DEVICE, Level::Crc), Open(Level::Crc));
    assert_eq!(bench.hyperscsi.report(&bench.engine)[0].luns.len(), 2);
    bench.end_all();
}

/// What a device says of itself before it is opened.
#[test]
fn devices_are_listed_as_they_are() {
    let mut bench = Bench::new();
    let mut fixed = device(3);
    fixed.read_only = true;
    fixed.is_removable = true;
    fixed.peripheral_type = 5;
    let mut with_two = group();
    with_two.devices.push(fixed);
    bench.serve(&[with_two]);
    let client = bench.log_in(station(1), 1);
    let now = bench.now;
    bench.in_session(client).list(now, 0);
    bench.settle();
    let events = bench.events(client);
    let [ClientEvent::Devices(page)] = &events[..] else {
        panic!("{events:?}");
    };
    let devices = page.devices.iter().map(|one| {
        (
            one.handle,
            one.is_read_only,
            one.is_removable,
            one.peripheral_type,
            one.block_bytes,
            one.blocks,
        )
    });
    let blocks = engine::testing::disk::SIZE / 512;
    assert_eq!(
        devices.collect::<Vec<_>>(),
        [
            (DEVICE, false, false, 0, 512, blocks),
            (3, true, true, 5, 512, blocks),
        ]
    );
    bench.end_all();
}
