//! CmdSN: the window, order, immediate delivery, and what a session may have under way.
//!
//! Spec: RFC 7143 section 4.2.2.1.

use super::*;
use crate::limits::{DRAINING_TASKS_MAX, IMMEDIATE_COMMANDS_MAX};

fn config_from(first: u32, queue_depth: u32) -> SessionConfig {
    SessionConfig {
        exp_cmd_sn: SerialNumber(first),
        queue_depth,
        ..config()
    }
}

#[test]
fn numbers_within_the_window_are_taken_and_others_dropped_in_silence() {
    for first in [1, 1000, 0x7fff_fffe, 0xffff_fffe, 0] {
        for (step, told) in [
            (u32::MAX, &["CmdSnOutsideWindow"][..]),
            (0, &["command 9"]),
            (1, &[]),
            (3, &[]),
            (4, &["CmdSnOutsideWindow"]),
            (0x8000_0000, &["CmdSnOutsideWindow"]),
        ] {
            let mut rig = Rig::new(config_from(first, 4));
            let events = rig.events(0, &[command(9, first.wrapping_add(step))]);
            assert_eq!(events, told, "{first:#x} + {step:#x}");
            assert_eq!(rig.answers(0), [""; 0], "{first:#x} + {step:#x}");
        }
    }
}

#[test]
fn a_number_counts_once() {
    let mut rig = Rig::new(config());
    assert_eq!(rig.events(0, &[command(1, 1)]), ["command 1"]);
    assert_eq!(rig.events(0, &[command(2, 1)]), ["CmdSnOutsideWindow"]);
    assert_eq!(rig.events(0, &[command(3, 3)]), [""; 0]);
    assert_eq!(
        rig.events(0, &[command(4, 3), nop(5, 3)]),
        ["CmdSnRepeated", "CmdSnRepeated"]
    );
    assert_eq!(rig.events(0, &[command(6, 2)]), ["command 6", "command 3"]);
    assert_eq!(rig.answers(0), [""; 0]);
}

#[test]
fn commands_come_out_in_their_order_whatever_connection_brought_them() {
    for first in [1, 0xffff_fffe] {
        let mut rig = Rig::with_connections(config_from(first, 8), &[connection(1), connection(2)]);
        let sn = |n: u32| first.wrapping_add(n);
        assert_eq!(
            rig.events(1, &[command(11, sn(1)), nop(14, sn(4))]),
            [""; 0]
        );
        assert_eq!(
            rig.events(0, &[command(13, sn(3)), command(12, sn(2))]),
            [""; 0]
        );
        assert_eq!(rig.answers(1), [""; 0]);
        let told = ["command 10", "command 11", "command 12", "command 13"];
        assert_eq!(rig.events(1, &[command(10, sn(0))]), told);
        assert_eq!(rig.session.window().0, SerialNumber(sn(5)));
        // The ping came last, and is answered where it came in.
        assert_eq!(
            (rig.answers(0), rig.answers(1)),
            (vec![], vec!["nop e".to_owned()])
        );
    }
}

#[test]
fn the_window_closes_under_load_and_reopens_with_each_answer() {
    for first in [1, 0xffff_ffff] {
        let mut rig = Rig::new(config_from(first, 2));
        let sn = |n: u32| SerialNumber(first.wrapping_add(n));
        let one = rig.start(0, command(1, sn(0).0));
        assert_eq!(rig.session.window(), (sn(1), sn(1)), "one more");
        let two = rig.start(0, command(2, sn(1).0));
        assert_eq!(rig.session.window(), (sn(2), sn(1)), "closed");
        assert_eq!(
            rig.events(0, &[command(3, sn(2).0)]),
            ["CmdSnOutsideWindow"]
        );

        rig.good(one);
        let answer = &rig.output(0)[0];
        let bhs: &ScsiResponseBhs = answer.view();
        assert_eq!(
            (bhs.exp_cmd_sn(), bhs.max_cmd_sn()),
            (sn(2), sn(2)),
            "open by one"
        );
        rig.start(0, command(3, sn(2).0));
        rig.session.abandon(two);
        assert_eq!(
            rig.session.window(),
            (sn(3), sn(3)),
            "an aborted task makes room too"
        );
    }
}

#[test]
fn requests_that_are_no_commands_do_not_fill_the_window() {
    let mut rig = Rig::new(config_from(1, 2));
    for sn in 1..20 {
        assert_eq!(rig.events(0, &[nop(sn, sn)]), [""; 0]);
        assert_eq!(
            rig.session.window(),
            (SerialNumber(sn + 1), SerialNumber(sn + 2))
        );
    }
    assert_eq!(rig.answers(0).len(), 19);
}

#[test]
fn a_lower_queue_limit_never_moves_the_window_back() {
    let mut rig = Rig::new(config_from(1, 4));
    rig.session.set_queue_limit(1);
    assert_eq!(rig.session.window(), (SerialNumber(1), SerialNumber(4)));
    let ids: Vec<_> = (1..=4).map(|n| rig.start(0, command(n, n))).collect();
    assert_eq!(rig.session.window(), (SerialNumber(5), SerialNumber(4)));
    for id in &ids[..3] {
        rig.good(*id);
        assert_eq!(rig.session.window(), (SerialNumber(5), SerialNumber(4)));
    }
    rig.good(ids[3]);
    assert_eq!(rig.session.window(), (SerialNumber(5), SerialNumber(5)));
    rig.session.set_queue_limit(3);
    assert_eq!(rig.session.window(), (SerialNumber(5), SerialNumber(7)));
    // One task is guaranteed, and the configured depth is the most.
    rig.session.set_queue_limit(0);
    assert_eq!(rig.session.window(), (SerialNumber(5), SerialNumber(7)));
    rig.session.set_queue_limit(1000);
    assert_eq!(rig.session.window(), (SerialNumber(5), SerialNumber(8)));
}

#[test]
fn another_queue_depth_opens_the_window_or_closes_it_as_answers_go_out() {
    let mut rig = Rig::new(config_from(1, 2));
    let set = |rig: &mut Rig, depth| {
        rig.session.set_queue_depth(depth);
        rig.session.set_queue_limit(depth);
    };
    let ids: Vec<_> = (1..=2).map(|n| rig.start(0, command(n, n))).collect();
    assert_eq!(rig.session.window(), (SerialNumber(3), SerialNumber(2)));
    set(&mut rig, 4);
    assert_eq!(rig.session.window(), (SerialNumber(3), SerialNumber(4)));
    set(&mut rig, 1);
    rig.good(ids[0]);
    rig.good(ids[1]);
    assert_eq!(rig.session.window(), (SerialNumber(3), SerialNumber(4)));
    rig.session.set_queue_limit(1000);
    assert_eq!(rig.session.window(), (SerialNumber(3), SerialNumber(4)));
}

#[test]
fn immediate_commands_come_at_once_and_take_no_number() {
    let mut rig = Rig::new(config_from(1, 1));
    rig.start(0, command(1, 1));
    assert_eq!(
        rig.session.window(),
        (SerialNumber(2), SerialNumber(1)),
        "closed"
    );
    // Whatever number it carries: the field is not looked at.
    assert_eq!(rig.events(0, &[command(2, 2).immediate()]), ["command 2"]);
    assert_eq!(rig.events(0, &[command(3, 77).immediate()]), ["command 3"]);
    assert_eq!(rig.session.window(), (SerialNumber(2), SerialNumber(1)));
}

#[test]
fn immediate_commands_overtake_those_that_wait() {
    let mut rig = Rig::new(config());
    assert_eq!(rig.events(0, &[command(1, 2)]), [""; 0]);
    assert_eq!(rig.events(0, &[command(2, 3).immediate()]), ["command 2"]);
    assert_eq!(rig.events(0, &[command(3, 1)]), ["command 3", "command 1"]);
}

#[test]
fn one_immediate_command_too_many_is_rejected_until_another_has_ended() {
    let mut rig = Rig::new(config());
    let limit = u32::try_from(IMMEDIATE_COMMANDS_MAX).unwrap();
    let ids: Vec<_> = (0..limit)
        .map(|n| rig.start(0, command(n, 1).immediate()))
        .collect();
    assert_eq!(
        rig.events(0, &[command(50, 1).immediate()]),
        ["TooManyImmediate"]
    );
    assert_eq!(rig.answers(0), ["reject 06"]);
    rig.good(ids[0]);
    assert_eq!(rig.events(0, &[command(51, 1).immediate()]), ["command 51"]);
}

#[test]
fn a_tag_in_use_is_rejected_and_its_number_stays_due() {
    let mut rig = Rig::new(config());
    let running = rig.start(0, command(1, 1));
    assert_eq!(rig.events(0, &[command(2, 3)]), [""; 0]);
    for taken in [1, 2] {
        assert_eq!(rig.events(0, &[command(taken, 2)]), ["TaskTagInUse"]);
        assert_eq!(rig.answers(0), ["reject 07"]);
    }
    rig.good(running);
    // Spec: RFC 7143 section 11.17; a rejected command leaves a gap, which must be plugged.
    assert_eq!(rig.events(0, &[command(1, 2)]), ["command 1", "command 2"]);
}

#[test]
fn the_tag_that_names_no_task_is_refused() {
    let mut rig = Rig::new(config());
    assert_eq!(rig.events(0, &[command(RESERVED_TAG, 1)]), ["InvalidField"]);
    assert_eq!(rig.answers(0), ["reject 09"]);
    assert_eq!(rig.events(0, &[command(1, 1)]), ["command 1"]);
}

/// Tasks that were answered while their initiator still owes data are not in the window. One that
/// never sends the data must not make the session grow.
#[test]
fn tasks_are_bounded_although_announced_data_never_comes() {
    let mut config = config();
    config.parameters.initial_r2t = false;
    let depth = config.queue_depth as usize;
    let mut rig = Rig::new(config);
    for n in 1..=1000 {
        let id = rig.start(0, write(n, n, 4096).not_final());
        rig.good(id);
    }
    let bound = depth + IMMEDIATE_COMMANDS_MAX + DRAINING_TASKS_MAX;
    assert!(
        rig.session.tasks.len() <= bound,
        "{} tasks",
        rig.session.tasks.len()
    );
    assert!(rig.session.is_idle());
    // The last ones are still remembered, so that their data does no harm.
    rig.answers(0);
    assert_eq!(
        rig.events(0, &[data_out(1000, RESERVED_TAG, 0, 0, &[1; 4096])]),
        [""; 0]
    );
    assert_eq!(rig.answers(0), [""; 0]);
}

/// Each free place is free once: two commands in one would be taken for each other.
#[track_caller]
fn assert_free_once(rig: &Rig) {
    let mut free = rig.session.free.clone();
    free.sort_unstable();
    free.dedup();
    assert_eq!(free.len(), rig.session.free.len(), "{:?}", rig.session.free);
}

/// The tag that stands for none is also what places without a task have. Beside any tag that is in use, it names none.
#[test]
fn the_reserved_tag_names_no_task_to_abort() {
    for in_use in 3..600 {
        let mut rig = Rig::new(config());
        let held = [command(in_use, 3), command(2, 2)];
        let abort = |tag, referenced| management(1, tag, 1, referenced, 2);
        rig.events(0, &held);
        rig.events(0, &[abort(900, 2)]);
        for n in 0..4 {
            rig.events(0, &[abort(901 + n, RESERVED_TAG)]);
            assert_free_once(&rig);
        }
        let started = rig.events(0, &[command(1, 1), command(1000, 4)]);
        assert_eq!(
            started,
            [
                "command 1".to_owned(),
                format!("command {in_use}"),
                "command 1000".to_owned()
            ]
        );
    }
}

/// The same for data: the place had a task whose initiator never sent them.
#[test]
fn the_reserved_tag_names_no_task_for_data() {
    let mut config = config();
    config.parameters.initial_r2t = false;
    let mut rig = Rig::new(config);
    let count = u32::try_from(DRAINING_TASKS_MAX).unwrap() + 8;
    for n in 1..=count {
        let id = rig.start(0, write(n, n, 4096).not_final());
        rig.good(id);
    }
    rig.answers(0);
    for _ in 0..4 {
        let empty = data_out(RESERVED_TAG, RESERVED_TAG, 0, 0, &[]);
        assert_eq!(rig.events(0, &[empty]), ["DataOutForUnknownTask"]);
        assert_free_once(&rig);
    }
}

#[test]
fn an_initiator_that_may_send_nothing_is_notified_when_it_may() {
    let mut rig = Rig::new(config_from(1, 1));
    let hanging = rig.start(0, command(1, 1));
    assert_eq!(rig.session.window(), (SerialNumber(2), SerialNumber(1)));
    rig.session.set_queue_depth(2);
    assert!(rig.session.set_queue_limit(2));
    let sent = rig.answers(0);
    assert_eq!(sent.len(), 1, "nothing else says it: {sent:?}");
    assert!(!rig.session.set_queue_limit(2), "it knows");

    let second = rig.start(0, command(2, 2));
    assert_eq!(rig.session.window(), (SerialNumber(3), SerialNumber(2)));
    rig.session.abandon(second);
    let sent = rig.answers(0);
    assert_eq!(sent.len(), 1, "what is aborted has no answer: {sent:?}");
    rig.good(hanging);
    assert_eq!(rig.answers(0).len(), 1, "an answer says it itself");
}
