//! A device of others.

use std::collections::VecDeque;

use store::{DeviceAnswer, DeviceCommand, DeviceFacts, DeviceRequest};

use super::medium::prevent;
use super::*;

const TEST_UNIT_READY: [u8; 6] = [0; 6];
const REWIND: [u8; 6] = [0x01, 0, 0, 0, 0, 0];
const UNLOAD: [u8; 6] = [0x1b, 0, 0, 0, 0, 0];
const LOAD: [u8; 6] = [0x1b, 0, 0, 0, 1, 0];
const MODE_SELECT: [u8; 6] = [0x15, 0x10, 0, 0, 12, 0];
const PREVENTED: Codes = (5, 0x53, 0x02);
const CONFLICT: Status = Status::ReservationConflict;
/// UNIT ATTENTION, medium may have changed, as the device has it: with a byte that Tarn never sets.
const CHANGED: [u8; 18] = [
    0x70, 0, 0x06, 0, 0, 0, 0, 0x0a, 0, 0, 0, 0, 0x28, 0x00, 0x77, 0, 0, 0,
];

/// The device, as far as a store shows it: it answers from a list, and GOOD without one.
#[derive(Default)]
pub(super) struct Device {
    answers: VecDeque<DeviceAnswer>,
    /// CDB, Data-Out, room for Data-In.
    had: Vec<(Vec<u8>, Vec<u8>, usize)>,
}

impl Device {
    pub(super) fn take(&mut self, request: &DeviceRequest) -> IoAnswer {
        let data = request.data_out.to_vec();
        self.had
            .push((request.cdb.to_vec(), data, request.data_in_bytes));
        let answer = self.answers.pop_front();
        IoAnswer::Device(Box::new(answer.unwrap_or_else(|| answer_of(0, &[], &[]))))
    }

    fn opcodes(&mut self) -> Vec<u8> {
        self.had.drain(..).map(|(cdb, ..)| cdb[0]).collect()
    }
}

fn answer_of(status: u8, sense: &[u8], data: &[u8]) -> DeviceAnswer {
    DeviceAnswer {
        status,
        sense: sense.to_vec(),
        data: Payload::Heap(data.to_vec()),
        transfer_bytes: data.len() as u64,
    }
}

const fn listed(opcode: u8, service_action: Option<u16>) -> DeviceCommand {
    DeviceCommand {
        opcode,
        service_action,
        cdb_bytes: 6,
    }
}

fn facts(device_type: DeviceType) -> DeviceFacts {
    let mut inquiry = vec![device_type as u8, 0x80, 0x06, 0x32, 31, 0x09, 0x20, 0x82];
    inquiry.extend_from_slice(b"HP      Ultrium 5-SCSI  Z57D");
    DeviceFacts {
        inquiry,
        pages: [
            (0x00, vec![1, 0, 0, 3, 0x00, 0x83, 0xb0]),
            (0x83, vec![1, 0x83, 0, 1, 0xee]),
            (0xb0, vec![1, 0xb0, 0, 2, 0x01, 0x02]),
            (0x03, vec![1, 0x03, 0, 1, 0x09]),
        ]
        .into(),
        commands: Some([0x00, 0x01, 0x08].map(|opcode| listed(opcode, None)).into()),
    }
}

fn of_type(device_type: DeviceType) -> Profile {
    let mut profile = profile();
    let facts = facts(device_type);
    profile.device_type = device_type;
    profile.identity.removable = facts.is_removable();
    let [vendor, product, revision] = facts.names();
    profile.identity.vendor = vendor;
    profile.identity.product = product;
    profile.identity.revision = revision;
    profile.capabilities = Capabilities::plain(0, 512);
    profile.foreign = Some(Arc::new(facts));
    profile
}

/// A tape drive and three nexuses, the last one on another core.
fn tape() -> (Rig, [At; 3]) {
    let mut rig = Rig::new(of_type(DeviceType::Tape));
    let nexuses = [(0, 1), (0, 2), (1, 3)].map(|(core, number)| rig.attach(core, number));
    for number in 1..=3 {
        rig.change(Some(number), ChangeKind::NexusAttached);
    }
    (rig, nexuses)
}

fn run(rig: &mut Rig, at: At, cdb: &[u8]) -> Outcome {
    rig.run_with_room(at, cdb, &[], 0)
}

fn send(rig: &mut Rig, at: At, cdb: &[u8], data: &[u8]) -> Outcome {
    rig.run_with_room(at, cdb, data, 0)
}

#[test]
fn a_command_and_its_answer_pass_as_they_are() {
    let (mut rig, [at, ..]) = tape();
    let read = [0x08, 0x00, 0, 0x04, 0, 0];
    rig.device.answers.push_back(answer_of(0, &[], b"record"));
    let outcome = rig.run_with_room(at, &read, &[], 1024);
    assert_eq!(outcome.transfer_length, 6);
    assert_eq!(data(outcome), b"record");
    let write = [0x0a, 0x00, 0, 0, 4, 0];
    good(&send(&mut rig, at, &write, b"data"));
    assert_eq!(
        rig.device.had,
        [
            (read.to_vec(), vec![], 1024),
            (write.to_vec(), b"data".to_vec(), 0)
        ]
    );
    // A block that is shorter than asked for: sense data, a residual and data at once.
    let mut short = [0; 252];
    (short[0], short[2], short[251]) = (0xf0, 0x20, 0x99);
    rig.device.answers.push_back(answer_of(2, &short, b"rec"));
    let outcome = rig.run_with_room(at, &read, &[], 1024);
    assert_eq!(outcome.status, Status::CheckCondition);
    assert_eq!(outcome.sense, Some(SenseBytes::OfDevice(short.into())));
    assert_eq!(
        (&*outcome.data.to_vec(), outcome.transfer_length),
        (&b"rec"[..], 3)
    );
    for status in [0x08, 0x18, 0x28] {
        rig.device.answers.push_back(answer_of(status, &[], &[]));
        assert_eq!(run(&mut rig, at, &REWIND).status as u8, status);
    }
}

#[test]
fn what_is_no_answer_is_a_fault_of_hardware() {
    let (mut rig, [at, ..]) = tape();
    rig.device.answers.push_back(answer_of(0x77, &[], &[]));
    assert_eq!(sense(&run(&mut rig, at, &REWIND)), (4, 0x44, 0));
    rig.device.answers.push_back(answer_of(2, &[], &[]));
    assert_eq!(sense(&run(&mut rig, at, &REWIND)), (0x0b, 0, 0));
    rig.failure = Some(IoFailure::NotReady);
    assert_eq!(sense(&run(&mut rig, at, &REWIND)), (2, 0x04, 0x01));
}

#[test]
fn data_goes_one_way_and_not_beyond_the_limit() {
    let (mut rig, [at, ..]) = tape();
    let write = [0x0a, 0x00, 0, 0, 4, 0];
    let both = rig.run_with_room(at, &write, b"data", 4);
    assert_eq!(sense(&both), (5, 0x0e, 0x03));
    let long = vec![0; 512 * 1024 + 1];
    assert_eq!(sense(&send(&mut rig, at, &write, &long)), (5, 0x0e, 0x03));
    // Less room than the initiator has would be less data than the device says.
    let read = [0x08, 0, 0, 0, 4, 0];
    let outcome = rig.run_with_room(at, &read, &[], 512 * 1024 + 1);
    assert_eq!(sense(&outcome), (5, 0x0e, 0x03));
    good(&rig.run_with_room(at, &read, &[], 512 * 1024));
    assert_eq!(rig.device.had[0].2, 512 * 1024);
}

#[test]
fn a_unit_attention_of_the_device_reaches_every_nexus_once() {
    let (mut rig, [first, second, third]) = tape();
    rig.device.answers.push_back(answer_of(2, &CHANGED, &[]));
    let outcome = run(&mut rig, first, &TEST_UNIT_READY);
    assert_eq!(outcome.sense, Some(SenseBytes::OfDevice(CHANGED.into())));
    good(&run(&mut rig, first, &TEST_UNIT_READY));
    for other in [second, third] {
        assert_eq!(sense(&run(&mut rig, other, &TEST_UNIT_READY)), (6, 0x28, 0));
        good(&run(&mut rig, other, &TEST_UNIT_READY));
    }
    assert_eq!(rig.device.opcodes(), [0; 4]);
}

/// It may be of any nexus, and the command that got it was not carried out.
#[test]
fn a_deferred_error_reaches_every_nexus_once() {
    let mut fixed = CHANGED;
    (fixed[0], fixed[2], fixed[12], fixed[13]) = (0xf1, 0x03, 0x0c, 0x00);
    let described = [0x73, 0x0d, 0x00, 0x02, 0, 0, 0, 0];
    for (told, wanted) in [(&fixed[..], (3, 0x0c, 0)), (&described, (4, 0, 2))] {
        let (mut rig, [first, second, third]) = tape();
        rig.device.answers.push_back(answer_of(2, told, &[]));
        let outcome = send(&mut rig, first, &MODE_SELECT, &[0; 12]);
        assert_eq!(outcome.sense, Some(SenseBytes::OfDevice(told.into())));
        good(&run(&mut rig, first, &TEST_UNIT_READY));
        for other in [second, third] {
            let outcome = run(&mut rig, other, &TEST_UNIT_READY);
            assert!(outcome.own_sense().unwrap().is_deferred);
            assert_eq!(sense(&outcome), wanted);
            good(&run(&mut rig, other, &TEST_UNIT_READY));
        }
    }
    let (mut rig, [first, second, _]) = tape();
    (fixed[0], fixed[2]) = (0x71, 0x01);
    rig.device.answers.push_back(answer_of(2, &fixed, &[]));
    run(&mut rig, first, &REWIND);
    good(&run(&mut rig, second, &TEST_UNIT_READY));
}

#[test]
fn a_device_without_end_of_attentions_gets_no_memory() {
    let (mut rig, [first, second, _]) = tape();
    for ascq in 0..100 {
        let mut told = CHANGED;
        told[13] = ascq;
        rig.device.answers.push_back(answer_of(2, &told, &[]));
        run(&mut rig, first, &TEST_UNIT_READY);
    }
    let told: Vec<Codes> = std::iter::repeat_with(|| run(&mut rig, second, &TEST_UNIT_READY))
        .take_while(|outcome| outcome.status != Status::Good)
        .map(|outcome| sense(&outcome))
        .collect();
    assert!(told.len() <= 32, "{told:?}");
    assert_eq!(told[0], (6, 0x29, 0), "it stands for those before");
}

#[test]
fn what_one_nexus_changes_the_others_learn_of() {
    let (mut rig, [first, second, third]) = tape();
    let log_select = [0x4c, 0, 0, 0, 0, 0, 0, 0, 4, 0];
    let changes: [(&[u8], &[u8], Codes); 3] = [
        (&MODE_SELECT, &[0; 12], (6, 0x2a, 0x01)),
        (&log_select, &[0; 4], (6, 0x2a, 0x02)),
        (&LOAD, &[], (6, 0x28, 0x00)),
    ];
    for (cdb, list, told) in changes {
        // Not if the device refuses it.
        rig.device.answers.push_back(answer_of(0x08, &[], &[]));
        send(&mut rig, first, cdb, list);
        good(&run(&mut rig, second, &TEST_UNIT_READY));
        good(&send(&mut rig, first, cdb, list));
        for other in [second, third] {
            assert_eq!(sense(&run(&mut rig, other, &TEST_UNIT_READY)), told);
            good(&run(&mut rig, other, &TEST_UNIT_READY));
        }
        good(&run(&mut rig, first, &TEST_UNIT_READY));
    }
}

#[test]
fn the_removal_of_the_medium_is_prevented_until_all_allow_it() {
    let (mut rig, [first, second, third]) = tape();
    good(&run(&mut rig, first, &prevent(1)));
    good(&run(&mut rig, second, &prevent(1)));
    assert_eq!(rig.device.opcodes(), [0x1e, 0x1e]);
    assert_eq!(sense(&run(&mut rig, third, &UNLOAD)), PREVENTED);
    assert_eq!(sense(&run(&mut rig, first, &UNLOAD)), PREVENTED);
    good(&run(&mut rig, first, &LOAD));
    run(&mut rig, second, &TEST_UNIT_READY);
    run(&mut rig, third, &TEST_UNIT_READY);
    rig.device.had.clear();
    // Not for the device as long as another one prevents it.
    good(&run(&mut rig, first, &prevent(0)));
    assert_eq!(rig.device.opcodes(), []);
    assert_eq!(sense(&run(&mut rig, third, &UNLOAD)), PREVENTED);
    good(&run(&mut rig, second, &prevent(0)));
    assert_eq!(rig.device.opcodes(), [0x1e]);
    good(&run(&mut rig, third, &UNLOAD));
    assert_eq!(rig.device.opcodes(), [0x1e, 0x1b]);
}

/// The device has the command of the first nexus for a while, or refuses it in the end.
#[test]
fn a_prevention_that_the_device_still_carries_out_counts_until_it_is_refused() {
    let mut refused = CHANGED;
    (refused[2], refused[12], refused[13]) = (5, 0x24, 0);
    let unknown = Err(IoFailure::Hardware { errno: 5 });
    let of_device = |answer| Ok(IoAnswer::Device(Box::new(answer)));
    for (answer, is_held) in [
        (of_device(answer_of(0, &[], &[])), true),
        (of_device(answer_of(2, &refused, &[])), false),
        (of_device(answer_of(2, &CHANGED, &[])), false),
        (unknown, false),
    ] {
        let (mut rig, [first, second, _]) = tape();
        let is_good = matches!(&answer, Ok(IoAnswer::Device(answer)) if answer.status == 0);
        let (mut task, step) = rig.start(first, &prevent(1), &[]);
        let Step::Owner(change) = step else {
            panic!("{step:?}");
        };
        let reply = rig.apply(&change);
        let core = &mut rig.cores[first.0];
        let step = core.resume(&mut task, Input::Owner(reply));
        assert!(matches!(step, Step::Io(_)), "{step:?}");
        assert_eq!(sense(&run(&mut rig, second, &UNLOAD)), PREVENTED);
        let mut step = rig.cores[first.0].resume(&mut task, Input::Io(answer));
        while let Step::Owner(change) = step {
            let reply = rig.apply(&change);
            step = rig.cores[first.0].resume(&mut task, Input::Owner(reply));
        }
        let Step::Done(outcome) = step else {
            panic!("{step:?}");
        };
        assert_eq!(outcome.status == Status::Good, is_good, "{outcome:?}");
        assert_eq!(rig.cores[0].shared().preventing.is_empty(), !is_held);
        let is_told = outcome.sense == Some(SenseBytes::OfDevice(CHANGED.into()));
        let told = run(&mut rig, second, &TEST_UNIT_READY);
        assert_eq!(told.status != Status::Good, is_told, "{told:?}");
    }
}

/// Before it unloads, Tarn unlocks what a nexus that is gone has left. Another one prevents the removal meanwhile.
#[test]
fn a_prevention_stops_an_unload_that_has_only_unlocked_the_device() {
    let (mut rig, [first, second, _]) = tape();
    let (mut task, step) = rig.start(second, &UNLOAD, &[]);
    let Step::Io(request) = step else {
        panic!("{step:?}");
    };
    good(&run(&mut rig, first, &prevent(1)));
    let unlocked = rig.submit(request);
    assert_eq!(rig.device.opcodes(), [0x1e, 0x1e]);
    let step = rig.cores[second.0].resume(&mut task, Input::Io(unlocked));
    let Step::Done(outcome) = step else {
        panic!("{step:?}");
    };
    assert_eq!(sense(&outcome), PREVENTED);
}

#[test]
fn a_nexus_that_is_gone_leaves_no_medium_locked() {
    let (mut rig, [first, second, _]) = tape();
    good(&run(&mut rig, first, &prevent(1)));
    rig.change(Some(1), ChangeKind::NexusLost);
    rig.device.had.clear();
    good(&run(&mut rig, second, &UNLOAD));
    let had: Vec<Vec<u8>> = rig.device.had.drain(..).map(|(cdb, ..)| cdb).collect();
    assert_eq!(had, [prevent(0).to_vec(), UNLOAD.to_vec()]);
    // What the device has to say before it lets itself be told comes first.
    rig.device.answers.push_back(answer_of(2, &CHANGED, &[]));
    let outcome = run(&mut rig, second, &UNLOAD);
    assert_eq!(outcome.sense, Some(SenseBytes::OfDevice(CHANGED.into())));
    assert_eq!(rig.device.opcodes(), [0x1e]);
}

#[test]
fn a_nexus_that_unloads_what_only_itself_prevents_is_answered_by_the_device() {
    let (mut rig, [first, ..]) = tape();
    good(&run(&mut rig, first, &prevent(1)));
    rig.device.had.clear();
    let mut refused = CHANGED;
    (refused[2], refused[12], refused[13]) = (5, 0x53, 0x02);
    rig.device.answers.push_back(answer_of(2, &refused, &[]));
    let outcome = run(&mut rig, first, &UNLOAD);
    assert_eq!(outcome.sense, Some(SenseBytes::OfDevice(refused.into())));
    assert_eq!(rig.device.opcodes(), [0x1b]);
}

#[test]
fn reservations_are_of_tarn() {
    let (mut rig, [first, second, third]) = tape();
    let reserve = [0x16, 0, 0, 0, 0, 0];
    good(&run(&mut rig, first, &reserve));
    for other in [second, third] {
        assert_eq!(run(&mut rig, other, &REWIND).status, CONFLICT);
    }
    good(&run(&mut rig, first, &REWIND));
    assert_eq!(rig.device.opcodes(), [0x01]);
    // A device that was reset has no reservation of that kind any more.
    let mut reset = CHANGED;
    (reset[12], reset[13]) = (0x29, 0x01);
    rig.device.answers.push_back(answer_of(2, &reset, &[]));
    run(&mut rig, first, &REWIND);
    assert_eq!(sense(&run(&mut rig, second, &REWIND)), (6, 0x29, 0x01));
    good(&run(&mut rig, second, &REWIND));
    let mut register = vec![0; 24];
    register[15] = 7;
    let out = |action: u8, kind: u8| [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
    good(&send(&mut rig, first, &out(0, 0), &register));
    register.rotate_left(8);
    good(&send(&mut rig, first, &out(1, 3), &register));
    assert_eq!(run(&mut rig, second, &REWIND).status, CONFLICT);
    rig.device.had.clear();
    let read_keys = [0x5e, 0, 0, 0, 0, 0, 0, 0, 64, 0];
    assert_eq!(data(rig.run(second, &read_keys, &[]))[15], 7);
    assert_eq!(rig.device.opcodes(), []);
}

#[test]
fn a_view_that_may_only_read_cannot_write_nor_change_the_drive() {
    let (mut rig, [_, second, _]) = tape();
    rig.cores[second.0].set_read_only(second.1, true);
    let shut: [(&[u8], &[u8]); 6] = [
        (&[0x0a, 0, 0, 0, 4, 0], b"data"),
        (&[0x10, 0, 0, 0, 1, 0], b""),
        (&[0x19, 1, 0, 0, 0, 0], b""),
        (&MODE_SELECT, &[0; 12]),
        (&UNLOAD, b""),
        (&prevent(1), b""),
    ];
    for (cdb, list) in shut {
        let outcome = send(&mut rig, second, cdb, list);
        assert_eq!(sense(&outcome), (7, 0x27, 0), "{cdb:02x?}");
    }
    assert_eq!(rig.device.opcodes(), []);
    good(&run(&mut rig, second, &REWIND));
}

#[test]
fn what_has_no_row_is_refused_and_vendor_commands_only_pass_if_they_may() {
    let firmware = [0x3b, 0x05, 0, 0, 0, 0, 0, 0, 4, 0];
    let copy = [0x83; 16];
    let diagnostic = [0x1d, 0x10, 0, 0, 4, 0];
    let vendor = [0xc5, 1, 2, 3, 4, 5];
    let (mut rig, [at, ..]) = tape();
    for cdb in [&firmware[..], &copy, &vendor, &[0x42; 10]] {
        assert_eq!(sense(&send(&mut rig, at, cdb, &[0; 4])), (5, 0x20, 0));
    }
    assert_eq!(
        sense(&send(&mut rig, at, &diagnostic, &[0; 4])),
        INVALID_FIELD
    );
    assert_eq!(rig.device.opcodes(), []);
    let mut profile = of_type(DeviceType::Tape);
    profile.has_vendor_commands = true;
    let (mut rig, at) = Rig::ready(profile);
    good(&send(&mut rig, at, &vendor, &[0; 4]));
    assert_eq!(rig.device.opcodes(), [0xc5]);
    assert_eq!(sense(&send(&mut rig, at, &firmware, &[0; 4])), (5, 0x20, 0));
}

/// It counts as a processor, which has no REWIND.
#[test]
fn a_device_that_was_not_found_yet_has_all_commands_and_is_not_ready() {
    let mut profile = of_type(DeviceType::Processor);
    profile.foreign = Some(Arc::default());
    let (mut rig, at) = Rig::ready(profile);
    rig.cores[at.0].set_held_elsewhere(true);
    let read_capacity = [0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let long = [0x7f; 32];
    for cdb in [&TEST_UNIT_READY[..], &REWIND, &read_capacity, &long] {
        assert_eq!(
            sense(&run(&mut rig, at, cdb)),
            (2, 0x04, 0x03),
            "{cdb:02x?}"
        );
    }
    assert_eq!(data(rig.run(at, &[0x12, 0, 0, 0, 96, 0], &[])).len(), 36);
    data(rig.run(at, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0], &[]));
    assert_eq!(rig.device.opcodes(), []);
    rig.cores[at.0].set_held_elsewhere(false);
    assert_eq!(sense(&run(&mut rig, at, &REWIND)), (5, 0x20, 0));
}

#[test]
fn inquiry_is_of_the_device_with_what_is_of_tarn() {
    let (mut rig, [at, ..]) = tape();
    let inquiry = data(rig.run(at, &[0x12, 0, 0, 0, 96, 0], &[]));
    // Type, RMB and version; NormACA gone, 3PC and protection too; TPGS, MULTIP and CMDQUE of Tarn.
    assert_eq!(inquiry[..8], [0x01, 0x80, 0x06, 0x12, 31, 0x10, 0x10, 0x02]);
    assert_eq!(&inquiry[8..], b"HP      Ultrium 5-SCSI  Z57D");
    let page = |rig: &mut Rig, code| rig.run(at, &[0x12, 1, code, 0, 96, 0], &[]);
    let list = data(page(&mut rig, 0));
    assert_eq!(list[4..], [0x00, 0x03, 0x80, 0x83, 0x86, 0x87, 0xb0]);
    assert_eq!(data(page(&mut rig, 0xb0)), [1, 0xb0, 0, 2, 1, 2]);
    let identity = data(page(&mut rig, 0x83));
    assert_eq!(identity[8..16], [0x33, 0x33, 0x33, 0, 0, 0, 0xab, 0xcd]);
    assert_eq!(sense(&page(&mut rig, 0xb1)), INVALID_FIELD);
    assert_eq!(rig.device.opcodes(), []);
}

#[test]
fn the_list_of_commands_has_what_both_have() {
    let (mut rig, [at, ..]) = tape();
    let report = [0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0];
    let list = data(rig.run(at, &report, &[]));
    let opcodes: Vec<u8> = list[4..].chunks(8).map(|command| command[0]).collect();
    let mut once = opcodes.clone();
    once.dedup();
    assert_eq!(
        once,
        [
            0x00, 0x01, 0x03, 0x08, 0x12, 0x16, 0x17, 0x1e, 0x56, 0x57, 0x5e, 0x5f, 0xa0, 0xa3
        ]
    );
}

#[test]
fn vendor_commands_that_a_device_lists_are_listed_if_they_pass() {
    let mut known = facts(DeviceType::Tape);
    let odd = [0, 261].map(|cdb_bytes| DeviceCommand {
        cdb_bytes,
        ..listed(0xe0, None)
    });
    let vendor = [(0xd1, Some(2)), (0xc5, None), (0xd1, Some(1)), (0xc5, None)];
    let vendor = vendor.map(|(opcode, action)| listed(opcode, action));
    known
        .commands
        .as_mut()
        .unwrap()
        .extend(odd.into_iter().chain(vendor));
    let asked = |passes, options: [u8; 4]| {
        let mut profile = of_type(DeviceType::Tape);
        (profile.foreign, profile.has_vendor_commands) = (Some(Arc::new(known.clone())), passes);
        let (mut rig, at) = Rig::ready(profile);
        let [how, opcode, high, low] = options;
        let report = [0xa3, 0x0c, how, opcode, high, low, 0, 0, 1, 0, 0, 0];
        data(rig.run(at, &report, &[]))
    };
    let [without, with] = [false, true].map(|passes| asked(passes, [0; 4])[4..].to_vec());
    let (before, vendor) = with.split_at(without.len());
    assert_eq!(before, without);
    let wanted = [
        [0xc5, 0, 0, 0, 0, 0, 0, 6],
        [0xd1, 0, 0, 1, 0, 1, 0, 6],
        [0xd1, 0, 0, 2, 0, 1, 0, 6],
    ];
    assert_eq!(vendor, wanted.concat());
    let one = [0, 5, 0, 6, 0xc5, 0xff, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(asked(true, [1, 0xc5, 0, 0]), one);
    assert_eq!(asked(true, [2, 0xd1, 0, 2])[..2], [0, 5]);
    assert_eq!(asked(true, [2, 0xd1, 0, 3])[..2], [0, 1]);
    assert_eq!(asked(false, [1, 0xc5, 0, 0])[..2], [0, 1]);
}

#[test]
fn request_sense_is_answered_here_first() {
    let (mut rig, [first, second, _]) = tape();
    rig.notify(first, UnitAttention::ModeParametersChanged);
    let request = [0x03, 0, 0, 0, 96, 0];
    let own = data(rig.run_with_room(first, &request, &[], 96));
    assert_eq!((own[2], own[12], own[13]), (6, 0x2a, 1));
    assert_eq!(rig.device.opcodes(), []);
    rig.device.answers.push_back(answer_of(0, &[], &CHANGED));
    let outcome = rig.run_with_room(first, &request, &[], 96);
    assert_eq!(data(outcome), CHANGED);
    // One initiator has it as data, and the others are told.
    assert_eq!(
        sense(&run(&mut rig, second, &TEST_UNIT_READY)),
        (6, 0x28, 0)
    );
    good(&run(&mut rig, first, &TEST_UNIT_READY));
}

#[test]
fn a_command_with_a_recovered_error_was_carried_out() {
    let (mut rig, [first, second, _]) = tape();
    let rounded = [0x70, 0, 1, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x37, 0, 0, 0, 0, 0];
    rig.device.answers.push_back(answer_of(2, &rounded, &[]));
    let outcome = send(&mut rig, first, &MODE_SELECT, &[0; 12]);
    assert_eq!(outcome.sense, Some(SenseBytes::OfDevice(rounded.into())));
    assert_eq!(
        sense(&run(&mut rig, second, &TEST_UNIT_READY)),
        (6, 0x2a, 1)
    );
    // A unit attention that does not say why.
    let short = [0x70, 0, 6, 0, 0, 0, 0, 0];
    rig.device.answers.push_back(answer_of(2, &short, &[]));
    run(&mut rig, first, &TEST_UNIT_READY);
    assert_eq!(
        sense(&run(&mut rig, second, &TEST_UNIT_READY)),
        (6, 0x29, 0)
    );
}

/// Every operation code and service action, for each type: passed as it is, answered here, or refused.
#[test]
fn every_command_of_every_type_passes_is_answered_or_is_refused() {
    for device_type in DeviceType::ALL {
        let mut profile = of_type(device_type);
        let mut facts = facts(device_type);
        facts.commands = None;
        profile.foreign = Some(Arc::new(facts));
        let (mut rig, at) = Rig::ready(profile);
        let report = [0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0];
        let list = data(rig.run(at, &report, &[]));
        let listed: BTreeSet<(u8, Option<u8>)> = list[4..]
            .chunks(8)
            .map(|one| (one[0], (one[5] & 1 != 0).then_some(one[3])))
            .collect();
        rig.device.had.clear();
        for opcode in 0..=u8::MAX {
            let has = |action| listed.contains(&(opcode, action));
            for action in 0..0x20 {
                let has_actions = listed
                    .iter()
                    .any(|&(code, it)| code == opcode && it.is_some());
                let mut cdb = [0; 16];
                (cdb[0], cdb[1]) = (opcode, if has_actions { action } else { 0 });
                let outcome = rig.run_with_room(at, &cdb, &[], 64);
                let name = format!("{device_type:?} {cdb:02x?}");
                let is_listed = has(None) || has(Some(action)) && has_actions;
                let passed = rig.device.had.pop();
                rig.device.had.clear();
                if let Some((had, _, room)) = passed {
                    assert_eq!((&had[..], room), (&cdb[..], 64), "{name}");
                    assert!(is_listed, "{name}");
                    continue;
                }
                let codes = outcome.own_sense().map(|it| (it.code.asc, it.code.ascq));
                let is_unknown =
                    codes == Some((0x20, 0)) || has_actions && codes == Some((0x24, 0));
                assert!(is_listed || is_unknown, "{name}: {outcome:?}");
            }
        }
    }
}
