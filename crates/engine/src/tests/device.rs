//! A device of others, whose commands are passed.

use scsi::{DeviceType, Status};

use super::bench::{ABORT, Bench, MOMENT, UNIT};
use super::cdb;
use super::disk::Take;
use super::outside::{GOOD, REFUSED};
use crate::ManagementOutcome;

const READ_6: [u8; 6] = [0x08, 0, 0, 4, 0, 0];
const WRITE_6: [u8; 6] = [0x0a, 0, 0, 0, 4, 0];
const REWIND: [u8; 6] = [0x01, 0, 0, 0, 0, 0];
const SPACE: [u8; 6] = [0x11, 0, 0, 0, 1, 0];

#[test]
fn data_sense_and_residual_come_with_check_condition() {
    let mut bench = Bench::with_device(1, DeviceType::Tape);
    let reader = bench.log_in(0);
    bench.send(reader, cdb::of_bytes(&READ_6, 1024));
    let answer = bench.answer(reader);
    assert_eq!(answer.end(), (Status::CheckCondition, Some((0, 0, 0))));
    assert_eq!(answer.data, [0x08; 512]);
    assert_eq!(answer.transfer_length, 512);
    bench.send(reader, cdb::with_data(&WRITE_6, vec![7; 4]));
    assert_eq!(bench.answer(reader).end(), GOOD);
    bench.end();
}

#[test]
fn commands_of_a_nexus_for_a_tape_are_carried_out_one_after_the_other() {
    let mut bench = Bench::with_device(2, DeviceType::Tape);
    let (writer, other) = (bench.log_in(1), bench.log_in(1));
    bench.disk(1).take(Take::Pending);
    // The data of the first is late: the second does not overtake it.
    let write = cdb::with_data(&WRITE_6, vec![7; 4]).coming(cdb::Came::Later);
    let id = bench.send(writer, write);
    bench.send(writer, cdb::of_bytes(&REWIND, 0));
    bench.send(other, cdb::of_bytes(&SPACE, 0));
    assert_eq!(bench.disk(1).log(), ["device 11"]);
    bench.bring_data(writer, id, &[7; 4]);
    assert_eq!(bench.disk(1).log(), ["device 0a"]);
    bench.finish_pending(1);
    bench.finish_pending(1);
    assert_eq!(bench.answer(writer).end(), GOOD);
    assert_eq!(bench.disk(1).log(), ["device 01"]);
    bench.finish_pending(1);
    assert_eq!(bench.answer(writer).end(), GOOD);
    bench.end();
}

#[test]
fn commands_for_a_disk_of_others_overtake_each_other() {
    let mut bench = Bench::with_device(1, DeviceType::Disk);
    let reader = bench.log_in(0);
    bench.disk(0).take(Take::Pending);
    let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0];
    bench.send(reader, cdb::of_bytes(&read, 4096));
    bench.send(reader, cdb::of_bytes(&read, 4096));
    assert_eq!(bench.disk(0).log(), ["device 28", "device 28"]);
    bench.finish_pending(0);
    bench.finish_pending(0);
    assert_eq!(bench.answers(reader).len(), 2);
    bench.end();
}

#[test]
fn an_abort_ends_the_wait_and_not_what_the_device_does() {
    let mut bench = Bench::with_device(2, DeviceType::Tape);
    let (first, second) = (bench.log_in(1), bench.log_in(1));
    bench.disk(1).take_next([Take::Pending]);
    let id = bench.send(first, cdb::of_bytes(&REWIND, 0));
    bench.abort(first, id);
    assert_eq!(bench.managed(first), [], "the device rewinds");
    bench.pass(ABORT);
    assert_eq!(bench.managed(first).len(), 1);
    // What it does by then is not known, so nobody begins anything.
    bench.send(second, cdb::of_bytes(&SPACE, 0));
    assert_eq!(bench.answer(second).end(), REFUSED);
    bench.finish_pending(1);
    bench.send(second, cdb::of_bytes(&SPACE, 0));
    assert_eq!(bench.answer(second).end(), GOOD);
    assert_eq!(bench.disk(1).log(), ["device 01", "device 11"]);
    bench.end();
}

#[test]
fn an_abort_that_the_device_ends_in_time_is_complete() {
    let mut bench = Bench::with_device(2, DeviceType::Tape);
    let first = bench.log_in(1);
    bench.disk(1).take_next([Take::Pending]);
    let id = bench.send(first, cdb::of_bytes(&REWIND, 0));
    bench.abort(first, id);
    bench.pass(ABORT - MOMENT);
    bench.finish_pending(1);
    let [(_, outcome)] = bench.managed(first)[..] else {
        panic!("no answer, or two");
    };
    assert_eq!(outcome, ManagementOutcome::Complete);
    assert_eq!(bench.answers(first), []);
    bench.end();
}

#[test]
fn data_of_a_device_waits_for_memory_like_a_read() {
    let mut bench = Bench::with_device(1, DeviceType::Disk);
    let reader = bench.log_in(0);
    bench.leave_memory(0, 0);
    let read = [0x28, 0, 0, 0, 0, 0, 0, 1, 0, 0];
    bench.send(reader, cdb::of_bytes(&read, 128 << 10));
    assert_eq!(bench.answers(reader), []);
    assert!(bench.cores[0].is_short_of_memory());
    bench.give_memory_back();
    bench.turn(0);
    assert_eq!(bench.answer(reader).data.len(), 64 << 10);
    bench.end();
}

#[test]
fn a_view_that_may_only_read_reads_a_tape() {
    let mut bench = Bench::with_device(1, DeviceType::Tape);
    let reader = bench.log_in(0);
    bench.cores[0].set_read_only(reader.key, 0, true, std::rc::Rc::new(()));
    bench.send(reader, cdb::test_unit_ready());
    let told = (Status::CheckCondition, Some((6, 0x2a, 1)));
    assert_eq!(bench.answer(reader).end(), told);
    bench.send(reader, cdb::of_bytes(&READ_6, 1024));
    assert_eq!(bench.answer(reader).data.len(), 512);
    bench.send(reader, cdb::with_data(&WRITE_6, vec![7; 4]));
    let protected = (Status::CheckCondition, Some((7, 0x27, 0)));
    assert_eq!(bench.answer(reader).end(), protected);
    bench.end();
}

/// What another nexus has to learn of comes before the answer.
#[test]
fn a_change_of_modes_is_known_to_all_before_it_is_answered() {
    let mut bench = Bench::with_device(2, DeviceType::Tape);
    let (first, second) = (bench.log_in(1), bench.log_in(0));
    let select = [0x15, 0x10, 0, 0, 12, 0];
    bench.send(first, cdb::with_data(&select, vec![0; 12]));
    assert_eq!(bench.answer(first).end(), GOOD);
    bench.send(second, cdb::test_unit_ready());
    let told = (Status::CheckCondition, Some((6, 0x2a, 1)));
    assert_eq!(bench.answer(second).end(), told);
    assert_eq!(bench.cores[0].refused_blocks(UNIT), []);
    bench.end();
}
