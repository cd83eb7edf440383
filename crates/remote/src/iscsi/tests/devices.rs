//! A tape drive of a target as a store.

use std::sync::Arc;
use std::time::Duration;

use memory::Payload;
use store::{DeviceAnswer, DeviceRequest, IoAnswer, IoFailure, IoRequest, IoTag};

use super::target::Target;
use super::{IscsiFailure, cut, options, until};
use crate::scsi::testing::{Answer, Client, Tape, pattern};

const REWIND: [u8; 6] = [0x01, 0, 0, 0, 0, 0];
const TEST: [u8; 6] = [0; 6];
const NO_MEDIUM: [u8; 3] = [2, 0x3a, 0];

fn tape() -> Target {
    let target = Target::new(0);
    target.medium().tape = Some(Tape::default());
    target
}

fn client(target: &Target, retry: u64) -> Client {
    Client::new(options(target, retry).open_device().unwrap())
}

fn with_tape<T>(target: &Target, f: impl FnOnce(&mut Tape) -> T) -> T {
    f(target.medium().tape.as_mut().unwrap())
}

/// What the tape was given, by its operation codes.
fn seen(target: &Target) -> Vec<u8> {
    with_tape(target, |tape| tape.seen.iter().map(|cdb| cdb[0]).collect())
}

/// Of READ(6) and WRITE(6).
fn sized(opcode: u8, length: usize) -> [u8; 6] {
    let [_, a, b, c] = u32::try_from(length).unwrap().to_be_bytes();
    [opcode, 0, a, b, c, 0]
}

impl Client {
    fn command(&mut self, nexus: u64, cdb: &[u8], data: Vec<u8>, room: usize) -> IoTag {
        let buffer = (room > 0).then(|| self.buffer(room));
        self.submit(IoRequest::Device(Box::new(DeviceRequest {
            cdb: cdb.into(),
            data_out: Payload::from(data),
            data_in_bytes: room,
            buffer,
            nexus,
            alters: true,
        })))
    }

    fn device_answer(&mut self, tag: IoTag) -> DeviceAnswer {
        match self.answer(tag) {
            Ok(IoAnswer::Device(answer)) => *answer,
            other => panic!("{other:?}"),
        }
    }

    fn now(&mut self, cdb: &[u8]) -> DeviceAnswer {
        let tag = self.command(1, cdb, Vec::new(), 0);
        self.device_answer(tag)
    }

    fn write_record(&mut self, nexus: u64, bytes: &[u8]) -> IoTag {
        self.command(nexus, &sized(0x0a, bytes.len()), bytes.to_vec(), 0)
    }

    /// Ends a unit attention that somebody has to be told.
    fn expect_reset(&mut self) {
        let answer = self.now(&TEST);
        assert_eq!((answer.status, code(&answer)), (2, [6, 0x29, 0]));
        assert_eq!((answer.sense[0], answer.sense.len()), (0x70, 18));
    }
}

fn code(answer: &DeviceAnswer) -> [u8; 3] {
    [answer.sense[2] & 0x0f, answer.sense[12], answer.sense[13]]
}

#[test]
fn a_device_is_what_it_says() {
    let target = tape();
    let client = client(&target, 20);
    let facts = client.disk.device().unwrap();
    assert_eq!((facts.device_type(), facts.is_removable()), (1, true));
    assert_eq!(facts.names(), ["TARN", "TAPE OF A TEST", "0001"]);
    assert_eq!(facts.pages.keys().collect::<Vec<_>>(), [&0, &0x83]);
    assert!(facts.has_command(0xa3, Some(0x0c)) && !facts.has_command(0x0a, None));
    assert!(client.disk.identity().unwrap().starts_with("naa.05"));
    assert_eq!(client.disk.capabilities().size_bytes, 0);
    // A disk is a device, too, and the same is not two stores.
    let failure = *options(&target, 0).open_device().unwrap_err().reason;
    assert!(matches!(failure, IscsiFailure::Twice(_)), "{failure}");
    assert!(options(&Target::new(4096), 0).open_device().is_ok());
    let failure = *options(&target, 0).open().unwrap_err().reason;
    assert!(matches!(failure, IscsiFailure::NotReady(_)), "{failure}");
    target.set(|rules| &rules.has_no_lun, true);
    let failure = *options(&target, 0).open_device().unwrap_err().reason;
    assert!(matches!(failure, IscsiFailure::NoLun { .. }), "{failure}");
}

#[test]
fn status_sense_residual_and_data_come_unchanged() {
    let target = tape();
    let mut client = client(&target, 20);
    let record = pattern(70_000);
    let write = client.write_record(1, &record);
    let answer = client.device_answer(write);
    assert_eq!((answer.status, answer.transfer_bytes), (0, 70_000));
    assert_eq!(
        with_tape(&target, |tape| tape.records.clone()),
        std::slice::from_ref(&record)
    );
    let mut read = |room: usize| {
        client.now(&REWIND);
        let tag = client.command(1, &sized(0x08, room), Vec::new(), room);
        client.device_answer(tag)
    };
    let exact = read(70_000);
    assert_eq!((exact.status, exact.data.to_vec()), (0, record.clone()));
    // CHECK CONDITION with data: the record is shorter, or longer.
    let long = read(80_000);
    assert_eq!((long.status, long.sense[2]), (2, 0x20));
    assert_eq!(long.data.to_vec(), record);
    assert_eq!(long.transfer_bytes, 70_000);
    let short = read(4096);
    assert_eq!(
        (short.status, &short.sense[3..7]),
        (2, &(-65_904_i32).to_be_bytes()[..])
    );
    assert_eq!(short.data.to_vec(), record[..4096]);
    assert_eq!(short.transfer_bytes, 70_000);
    let blank = client.command(1, &sized(0x08, 512), Vec::new(), 512);
    let blank = client.device_answer(blank);
    assert_eq!((code(&blank), blank.transfer_bytes), ([8, 0, 5], 0));
    // A status of the device is nobody else's.
    for status in [0x04, 0x08, 0x18, 0x28, 0x40] {
        let sense = vec![7; usize::from(status) * 4];
        let expected = sense.get(..252).unwrap_or(&sense).to_vec();
        let says = Answer {
            status,
            sense,
            data: Vec::new(),
        };
        with_tape(&target, |tape| tape.says = Some(says));
        let answer = client.now(&REWIND);
        assert_eq!((answer.status, answer.sense), (status, expected));
    }
}

/// Both give their requests the same tags.
#[test]
fn each_core_is_answered_what_it_has_asked() {
    let target = tape();
    let mut one = client(&target, 20);
    let mut two = Client::new(Arc::clone(&one.disk));
    let first = one.write_record(1, &[1; 512]);
    one.device_answer(first);
    let second = two.write_record(2, &[2; 512]);
    two.device_answer(second);
    one.now(&REWIND);
    for (core, nexus, fill) in [(&mut one, 1, 1), (&mut two, 2, 2)] {
        let read = core.command(nexus, &sized(0x08, 512), Vec::new(), 512);
        assert_eq!(core.device_answer(read).data.to_vec(), [fill; 512]);
    }
    drop(one);
    assert_eq!(two.now(&REWIND).status, 0, "the other core has ended");
}

#[test]
fn a_tape_gets_one_command_at_a_time_each_nexus_in_turn() {
    let target = tape();
    let mut client = client(&target, 20);
    client.now(&TEST);
    with_tape(&target, |tape| tape.holds = true);
    let mut tags = vec![client.write_record(1, b"a1")];
    until("the first", || target.is_holding());
    for record in [b"a2", b"a3"] {
        tags.push(client.write_record(1, record));
    }
    for (nexus, record) in [(2, b"b1"), (3, b"c1"), (2, b"b2")] {
        tags.push(client.write_record(nexus, record));
    }
    with_tape(&target, |tape| tape.holds = false);
    for tag in tags {
        assert_eq!(client.device_answer(tag).status, 0);
    }
    let records = with_tape(&target, |tape| tape.records.concat());
    let order = String::from_utf8(records).unwrap();
    assert_eq!(order, "a1a2b1c1a3b2");
}

#[test]
fn a_nexus_that_sends_too_much_finds_the_device_busy() {
    let target = tape();
    let mut client = client(&target, 20);
    client.now(&TEST);
    with_tape(&target, |tape| tape.holds = true);
    let sent = client.command(1, &REWIND, Vec::new(), 0);
    until("the first", || target.is_holding());
    let waiting: Vec<_> = (0..65)
        .map(|_| client.command(1, &REWIND, Vec::new(), 0))
        .collect();
    let other = client.command(2, &REWIND, Vec::new(), 0);
    with_tape(&target, |tape| tape.holds = false);
    for tag in [sent, other] {
        assert_eq!(client.device_answer(tag).status, 0);
    }
    let mut statuses: Vec<u8> = waiting
        .into_iter()
        .map(|tag| client.device_answer(tag).status)
        .collect();
    assert_eq!(statuses.pop(), Some(8));
    assert_eq!(statuses, [0; 64]);
}

#[test]
fn what_the_device_has_is_waited_for_and_what_it_has_not_is_cancelled() {
    let target = tape();
    let mut client = client(&target, 20);
    client.now(&TEST);
    with_tape(&target, |tape| tape.holds = true);
    let sent = client.write_record(1, b"sent");
    until("the command", || target.is_holding());
    let waiting = client.write_record(1, b"waiting");
    let last = client.write_record(2, b"last");
    for tag in [sent, waiting] {
        client.handle.cancel(tag, &mut client.outlet);
    }
    assert_eq!(client.answer(waiting).unwrap_err(), IoFailure::Cancelled);
    assert!(with_tape(&target, |tape| tape.records.is_empty()));
    with_tape(&target, |tape| tape.holds = false);
    assert!(client.answer(sent).is_ok());
    assert!(client.answer(last).is_ok());
    let records = with_tape(&target, |tape| tape.records.concat());
    assert_eq!(records, b"sentlast");
    assert_eq!(target.medium().aborted, 0);
}

#[test]
fn a_command_of_a_lost_session_is_not_sent_again() {
    let target = tape();
    let mut client = client(&target, 60);
    client.now(&TEST);
    with_tape(&target, |tape| tape.holds = true);
    let sent = client.write_record(1, b"sent");
    until("the command", || target.is_holding());
    let waiting = [
        client.write_record(1, b"more"),
        client.write_record(2, b"other"),
    ];
    cut(&mut client, &target);
    with_tape(&target, |tape| tape.holds = false);
    let failure = client.answer(sent).unwrap_err();
    assert_eq!(failure, IoFailure::Hardware { errno: 103 });
    // The first one hears of it, and what else waited is to be sent again.
    let [first, other] = waiting.map(|tag| client.device_answer(tag));
    assert_eq!((code(&first), other.status), ([6, 0x29, 0], 8));
    assert!(with_tape(&target, |tape| tape.records.is_empty()));
    assert_eq!(client.now(&REWIND).status, 0);
}

#[test]
fn a_session_that_is_lost_and_back_is_a_reset_once() {
    let mut target = tape();
    let mut client = client(&target, 60);
    // The first session is no news.
    assert_eq!(code(&client.now(&TEST)), NO_MEDIUM);
    cut(&mut client, &target);
    // INQUIRY, REPORT LUNS and REQUEST SENSE report nothing.
    let inquiry = client.command(1, &[0x12, 0, 0, 0, 36, 0], Vec::new(), 36);
    assert_eq!(client.device_answer(inquiry).data.len(), 36);
    for opcode in [0xa0, 0x03] {
        assert_eq!(code(&client.now(&[opcode; 12])), [5, 0x20, 0]);
    }
    client.expect_reset();
    assert_eq!(code(&client.now(&TEST)), NO_MEDIUM);
    // What the device says at the start of a session comes after it.
    target.kill();
    client.until_outage(true);
    let attentions = [(0x29, 1), (0x28, 0), (0x29, 0), (0x28, 0)];
    target.medium().attentions.extend(attentions);
    target.start();
    client.until_outage(false);
    client.expect_reset();
    assert_eq!(code(&client.now(&TEST)), [6, 0x28, 0]);
    assert_eq!(code(&client.now(&TEST)), NO_MEDIUM);
}

#[test]
fn a_unit_attention_that_answers_a_cancelled_command_is_told_to_the_next() {
    let target = tape();
    let mut client = client(&target, 20);
    client.now(&TEST);
    with_tape(&target, |tape| tape.holds = true);
    let first = client.command(1, &REWIND, Vec::new(), 0);
    until("the command", || target.is_holding());
    client.handle.cancel(first, &mut client.outlet);
    let says = Answer {
        status: 2,
        sense: vec![0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x28, 0, 0, 0, 0, 0],
        data: Vec::new(),
    };
    with_tape(&target, |tape| {
        tape.says = Some(says);
        tape.holds = false;
    });
    client.answer(first).unwrap();
    assert_eq!(code(&client.now(&TEST)), [6, 0x28, 0]);
    assert_eq!(code(&client.now(&TEST)), NO_MEDIUM);
}

#[test]
fn a_unit_attention_of_the_device_stops_what_waits() {
    let target = tape();
    let mut client = client(&target, 20);
    client.now(&TEST);
    with_tape(&target, |tape| tape.holds = true);
    let first = client.write_record(1, b"first");
    until("the command", || target.is_holding());
    let others = [
        client.write_record(1, b"more"),
        client.write_record(2, b"other"),
    ];
    let says = Answer {
        status: 2,
        sense: vec![0x72, 6, 0x29, 2],
        data: Vec::new(),
    };
    with_tape(&target, |tape| {
        tape.says = Some(says);
        tape.holds = false;
    });
    assert_eq!(client.device_answer(first).sense, [0x72, 6, 0x29, 2]);
    for other in others {
        assert_eq!(client.device_answer(other).status, 8);
    }
    assert!(with_tape(&target, |tape| tape.records.is_empty()));
}

#[test]
fn commands_wait_for_a_device_that_is_away_and_then_fail() {
    let mut target = tape();
    let retry = Duration::from_millis(300);
    let options = super::IscsiOptions {
        retry,
        ..options(&target, 0)
    };
    let mut client = Client::new(options.open_device().unwrap());
    client.now(&TEST);
    target.kill();
    client.until_outage(true);
    let waits = client.command(1, &TEST, Vec::new(), 0);
    assert_eq!(client.answer(waits).unwrap_err(), IoFailure::NotReady);
    client.until("a report", |client| (client.reach == [false]).then_some(()));
    let fails = client.command(1, &TEST, Vec::new(), 0);
    assert_eq!(client.answer(fails).unwrap_err(), IoFailure::NotReady);
    target.start();
    client.until("a report", |client| {
        (client.reach == [false, true]).then_some(())
    });
    client.expect_reset();
    assert_eq!(seen(&target).last(), Some(&0xa3));
}

#[test]
fn a_device_that_is_another_one_is_not_used() {
    for is_other_type in [false, true] {
        let mut target = tape();
        let mut client = client(&target, 0);
        client.now(&TEST);
        target.kill();
        match is_other_type {
            true => with_tape(&target, |tape| tape.other_type = Some(8)),
            false => target.medium().designator = [6; 16],
        }
        target.start();
        let why = match is_other_type {
            true => "the device of this LUN is of another type now",
            false => "the device of this LUN is another one now",
        };
        until("an outage", || {
            let outage = client.disk.outage();
            outage.is_some_and(|outage| outage.ends_with(why))
        });
        let fails = client.command(1, &REWIND, Vec::new(), 0);
        assert_eq!(client.answer(fails).unwrap_err(), IoFailure::NotReady);
        assert!(!seen(&target).contains(&0x01));
    }
}

#[test]
fn a_command_may_take_longer_than_a_target_may_say_nothing() {
    let target = tape();
    let mut client = client(&target, 0);
    client.now(&TEST);
    let before = client.disk.connections().unwrap().again;
    with_tape(&target, |tape| tape.holds = true);
    let rewind = client.command(1, &REWIND, Vec::new(), 0);
    let pings = target.pings();
    until("pings", || target.pings() >= pings + 6);
    with_tape(&target, |tape| tape.holds = false);
    assert_eq!(client.device_answer(rewind).status, 0);
    assert_eq!(client.disk.connections().unwrap().again, before);
}

#[test]
fn other_requests_than_commands_are_refused() {
    let target = tape();
    let mut client = client(&target, 20);
    let flush = client.submit(IoRequest::Flush);
    assert!(matches!(client.answer(flush), Ok(IoAnswer::Done)));
    for request in [
        IoRequest::Unmap { range: 0..512 },
        IoRequest::Read {
            offset: 0,
            len: 0,
            buffer: None,
        },
    ] {
        let tag = client.submit(request);
        let failure = client.answer(tag).unwrap_err();
        assert_eq!(failure, IoFailure::Hardware { errno: 95 });
    }
}

#[test]
fn a_disk_takes_no_commands_for_devices() {
    let target = Target::new(4 << 20);
    let mut client = Client::new(options(&target, 20).open().unwrap());
    assert_eq!(client.disk.device(), None);
    let tag = client.command(1, &TEST, Vec::new(), 0);
    let failure = client.answer(tag).unwrap_err();
    assert_eq!(failure, IoFailure::Hardware { errno: 95 });
}
