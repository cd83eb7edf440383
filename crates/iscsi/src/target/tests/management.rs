//! Task management functions.
//!
//! Spec: RFC 7143 sections 4.2.3.3 and 11.5.

use super::*;
use crate::pdu::TaskManagementResponse;

const ABORT_TASK: u8 = 1;
const LOGICAL_UNIT_RESET: u8 = 5;

#[track_caller]
fn management_event(events: Vec<Event>) -> ManagementEvent {
    match &events[..] {
        [Event::TaskManagement(event)] => *event,
        other => panic!("{other:?}"),
    }
}

#[test]
fn abort_task_names_a_task_that_runs() {
    let mut rig = Rig::new(config());
    let id = rig.start(0, command(1, 1));
    let event = management_event(rig.send(0, &[management(ABORT_TASK, 9, 2, 1, 1)]));
    assert_eq!(
        (event.function, event.task),
        (TaskManagementFunction::AbortTask, Some(id))
    );
    assert_eq!(rig.answers(0), [""; 0], "not before the task has ended");
    rig.session.abandon(id);
    rig.session
        .respond_management(event.id, TaskManagementResponse::Complete);
    assert_eq!(rig.answers(0), ["management 9 0"]);
}

#[test]
fn abort_task_ends_a_task_that_waits_and_its_number_still_counts() {
    for step in [usize::MAX, 30] {
        let mut rig = Rig::new(config());
        rig.step = step;
        rig.send(0, &[write(2, 2, 512).with_data(&[1; 512])]);
        assert_eq!(
            rig.events(0, &[management(ABORT_TASK, 9, 3, 2, 2)]),
            [""; 0]
        );
        assert_eq!(rig.answers(0), ["management 9 0"]);
        assert_eq!(rig.events(0, &[command(1, 1)]), ["command 1"]);
        assert_eq!(rig.session.window().0, SerialNumber(3));
        assert_eq!(rig.events(0, &[command(2, 3)]), ["command 2"]);
        assert_eq!(rig.pool.free_bytes(), rig.pool.capacity_bytes());
    }
}

fn at(lun: u64, mut pdu: Pdu) -> Pdu {
    RequestBhs::view_mut(&mut pdu.bhs).lun = lun.into();
    pdu
}

/// Nor is such a task one that is missing, whatever number the request gives it: it is carried out, and so is what has
/// that number.
#[test]
fn a_task_of_another_unit_is_not_the_one_that_is_meant() {
    let mut rig = Rig::new(config());
    rig.start(0, command(1, 1));
    rig.send(0, &[command(3, 3)]);
    #[rustfmt::skip]
    let requests = [(1, 1, 1), (1, 3, 3), (4, 1, 1), (4, 1, 2), (4, 3, 3), (4, 3, 2)];
    for (cmd_sn, referenced, ref_cmd_sn) in requests {
        let abort = management(ABORT_TASK, 9, cmd_sn, referenced, ref_cmd_sn);
        assert_eq!(rig.events(0, &[at(1 << 48, abort)]), [""; 0]);
        assert_eq!(
            rig.answers(0),
            ["management 9 1"],
            "{cmd_sn} {referenced} {ref_cmd_sn}"
        );
    }
    assert_eq!(rig.events(0, &[command(2, 2)]), ["command 2", "command 3"]);
}

#[test]
fn a_unit_has_the_same_tasks_by_both_forms_of_its_number() {
    const FLAT: u64 = 1 << 62;
    for (lun, other_form) in [(0, FLAT), (FLAT, 0)] {
        let mut rig = Rig::new(config());
        let waiting = write(2, 2, 512).with_data(&[1; 512]);
        rig.send(0, &[at(lun, waiting)]);
        let abort = management(ABORT_TASK, 9, 3, 2, 2);
        assert_eq!(rig.events(0, &[at(other_form, abort)]), [""; 0]);
        assert_eq!(rig.answers(0), ["management 9 0"]);
        let id = rig.start(0, at(lun, command(1, 1)));
        assert_eq!(rig.session.window().0, SerialNumber(3), "2 still counts");
        let abort = management(ABORT_TASK, 8, 3, 1, 1);
        let event = management_event(rig.send(0, &[at(other_form, abort)]));
        assert_eq!(event.task, Some(id));
    }
}

#[test]
fn a_missing_task_is_judged_by_its_number() {
    // RefCmdSN and CmdSN against a window of 5..=12.
    for (ref_cmd_sn, cmd_sn, response) in [
        // Before the window: it came and is over.
        (4, 5, 1),
        // In the window and before the request: it counts as received.
        (5, 6, 0),
        (11, 12, 0),
        // In the window, but not before the request.
        (5, 5, 1),
        (7, 6, 1),
        // Beyond the window.
        (13, 14, 1),
    ] {
        let mut rig = Rig::new(SessionConfig {
            exp_cmd_sn: SerialNumber(5),
            ..config()
        });
        let pdu = management(ABORT_TASK, 9, cmd_sn, 77, ref_cmd_sn);
        assert_eq!(rig.events(0, &[pdu]), [""; 0]);
        assert_eq!(
            rig.answers(0),
            [format!("management 9 {response}")],
            "{ref_cmd_sn} {cmd_sn}"
        );
    }
}

/// Spec: RFC 7143 section 11.5.1: the target must consider the number received, so that the
/// command does not run when it comes after all, and those behind it do not wait for it.
#[test]
fn an_aborted_number_counts_as_received() {
    let mut rig = Rig::with_connections(config(), &[connection(1), connection(2)]);
    assert_eq!(rig.events(0, &[command(2, 2), command(4, 4)]), [""; 0]);
    assert_eq!(
        rig.events(0, &[management(ABORT_TASK, 9, 5, 1, 1)]),
        ["command 2"]
    );
    let pdus = rig.output(0);
    assert_eq!(pdus[0].story(), "management 9 0");
    assert_eq!(pdus[0].view::<ResponseBhs>().exp_cmd_sn.get(), 2);
    assert_eq!(rig.events(1, &[command(1, 1)]), ["CmdSnOutsideWindow"]);
    // In the middle of the window, and the same again.
    let mut rig = Rig::with_connections(config(), &[connection(1), connection(2)]);
    for _ in 0..2 {
        assert_eq!(
            rig.events(0, &[management(ABORT_TASK, 9, 3, 2, 2)]),
            [""; 0]
        );
        assert_eq!(rig.answers(0), ["management 9 0"]);
    }
    assert_eq!(rig.events(1, &[command(2, 2)]), ["CmdSnRepeated"]);
    assert_eq!(
        rig.events(1, &[command(3, 3), command(1, 1)]),
        ["command 1", "command 3"]
    );
    assert_eq!(rig.answers(1), [""; 0]);
}

#[test]
fn an_ended_task_does_not_exist() {
    let mut rig = Rig::new(config());
    let id = rig.start(0, command(1, 1));
    rig.good(id);
    rig.answers(0);
    assert_eq!(
        rig.events(0, &[management(ABORT_TASK, 9, 2, 1, 1)]),
        [""; 0]
    );
    assert_eq!(rig.answers(0), ["management 9 1"]);
}

#[test]
fn what_acts_on_many_tasks_waits_for_the_commands_before_it() {
    for function in [2, 4, LOGICAL_UNIT_RESET, 6, 7] {
        let mut rig = Rig::with_connections(config(), &[connection(1), connection(2)]);
        // It overtakes command 2 on the other connection.
        rig.send(0, &[command(1, 1)]);
        assert_eq!(
            rig.events(0, &[management(function, 9, 3, RESERVED_TAG, 0)]),
            [""; 0]
        );
        assert_eq!(rig.events(1, &[command(3, 3)]), [""; 0]);
        let events = rig.send(1, &[command(2, 2)]);
        let stories: Vec<_> = events.iter().map(|event| rig.story(event)).collect();
        let name = format!(
            "{:?} 9",
            TaskManagementFunction::from_code(function).unwrap()
        );
        assert_eq!(stories.len(), 4 - 1);
        assert!(stories.contains(&name), "{stories:?}");
        let Some(Event::TaskManagement(event)) = events
            .iter()
            .find(|event| matches!(event, Event::TaskManagement(_)))
        else {
            panic!()
        };
        // Command 3 is numbered after it, and goes on.
        let affected = rig.session.tasks_of_unit(0, Some(event.cmd_sn));
        let tags: Vec<_> = affected.iter().map(|id| rig.session.tag_of(*id)).collect();
        assert_eq!(tags, [1, 2]);
        assert_eq!(rig.session.tasks_of_unit(1, None), []);
        assert_eq!(rig.session.tasks_of_unit(0, None).len(), 3);
        rig.session
            .respond_management(event.id, TaskManagementResponse::Complete);
        assert_eq!(rig.answers(0), ["management 9 0"]);
    }
}

#[test]
fn one_that_is_numbered_itself_keeps_its_place() {
    let mut rig = Rig::new(config());
    let mut reset = management(LOGICAL_UNIT_RESET, 9, 2, RESERVED_TAG, 0);
    reset.bhs[0] &= !flags::IMMEDIATE;
    assert_eq!(rig.events(0, &[command(3, 3), reset]), [""; 0]);
    let stories = ["command 1", "LogicalUnitReset 9", "command 3"];
    assert_eq!(rig.events(0, &[command(1, 1)]), stories);
}

#[test]
fn too_many_that_wait_are_rejected() {
    let mut rig = Rig::new(config());
    let limit = crate::limits::IMMEDIATE_MANAGEMENT_MAX;
    for n in 0..u32::try_from(limit).unwrap() {
        let reset = management(LOGICAL_UNIT_RESET, n, 5, RESERVED_TAG, 0);
        assert_eq!(rig.events(0, &[reset]), [""; 0]);
    }
    let reset = management(LOGICAL_UNIT_RESET, 99, 5, RESERVED_TAG, 0);
    assert_eq!(rig.events(0, &[reset]), ["TooManyImmediate"]);
    assert_eq!(rig.answers(0), ["reject 06"]);
}

#[test]
fn what_is_not_done_says_so() {
    let answers = [
        (3, 5),
        (8, 4),
        (9, 5),
        (10, 5),
        (11, 5),
        (12, 5),
        (0, 5),
        (13, 5),
        (0x7f, 5),
    ];
    for (function, response) in answers {
        let mut rig = Rig::new(config());
        rig.start(0, command(1, 1));
        assert_eq!(rig.events(0, &[management(function, 9, 2, 1, 1)]), [""; 0]);
        assert_eq!(
            rig.answers(0),
            [format!("management 9 {response}")],
            "{function}"
        );
    }
}

#[test]
fn a_closed_connection_takes_its_waiting_requests_along() {
    let mut rig = Rig::with_connections(config(), &[connection(1), connection(2)]);
    rig.send(1, &[write(2, 2, 512).with_data(&[1; 512]), nop(3, 3)]);
    rig.send(1, &[management(LOGICAL_UNIT_RESET, 9, 3, RESERVED_TAG, 0)]);
    rig.send(1, &[write(5, 5, 512).with_data(&[1; 100])]);
    rig.session.remove_connection(1);
    assert_eq!(rig.pool.free_bytes(), rig.pool.capacity_bytes());
    // Its index goes to another connection, which must not get the answers.
    assert_eq!(rig.session.add_connection(&connection(3), rig.now), 1);
    // The numbers are free to be sent again, and so is the tag.
    let again = [command(1, 1), command(2, 2), command(3, 3)];
    assert_eq!(
        rig.events(0, &again),
        ["command 1", "command 2", "command 3"]
    );
    assert_eq!(rig.answers(1), [""; 0]);
}

#[test]
fn a_closed_connection_takes_owed_data_along() {
    let mut config = config();
    config.parameters.initial_r2t = false;
    let mut rig = Rig::with_connections(config, &[connection(1), connection(2)]);
    let id = rig.start(1, write(1, 1, 512).not_final());
    // In the middle of its immediate data.
    let half = write(2, 2, 512).with_data(&[1; 512]).to_wire(false, false);
    rig.feed(1, &half[..100]).unwrap();
    rig.session.abandon(id);
    rig.session.remove_connection(1);
    assert_eq!(rig.session.add_connection(&connection(3), rig.now), 1);
    let late = data_out(1, RESERVED_TAG, 0, 0, &[1; 512]);
    assert_eq!(rig.events(1, &[late]), ["DataOutForUnknownTask"]);
    assert_eq!(rig.events(0, &[command(2, 2)]), ["command 2"]);
}
