//! What waits for its turn, or for its end, is bounded; so is how long it waits.

use std::sync::Arc;

use super::*;
use crate::limits::{DISCOVERY_RECEIVE_BYTES, SESSION_HOLD_MAX_BYTES};

fn holding(session_max_bytes: usize, budget_bytes: usize) -> (SessionConfig, Arc<Budget>) {
    let budget = Arc::new(Budget::new(budget_bytes));
    let hold = HoldLimits {
        share: Arc::new(Share::whole(Arc::clone(&budget))),
        session_max_bytes,
        per_connection_bytes: 0,
        gap_timeout: Duration::from_secs(30),
    };
    let config = SessionConfig {
        hold,
        queue_depth: 64,
        ..config()
    };
    (config, budget)
}

/// A ping with this many bytes.
fn ping(cmd_sn: u32, length: usize) -> Pdu {
    nop(cmd_sn, cmd_sn).with_data(&vec![0x5a; length])
}

#[test]
fn pings_before_their_turn_are_held_up_to_the_session_limit_and_then_refused() {
    for step in [usize::MAX, 100] {
        let (config, budget) = holding(4 * (48 + 1000), SESSION_HOLD_MAX_BYTES);
        let mut rig = Rig::new(config);
        rig.step = step;
        let pings: Vec<Pdu> = (2..6).map(|cmd_sn| ping(cmd_sn, 1000)).collect();
        assert_eq!(rig.events(0, &pings), [""; 0]);
        assert_eq!(budget.used(), 4 * 1048);
        assert_eq!(rig.events(0, &[ping(6, 4)]), ["HoldBudget"]);
        assert_eq!(rig.answers(0), ["reject 0a"]);
        // Its turn: nothing is held any more, and what was refused may come again.
        assert_eq!(rig.events(0, &[nop(1, 1), ping(6, 1000)]), [""; 0]);
        assert_eq!(rig.answers(0).len(), 6);
        assert_eq!(budget.used(), 0);
    }
}

#[test]
fn a_body_that_is_not_whole_counts_and_goes_with_its_connection() {
    let (config, budget) = holding(10_000, 8000);
    let mut rig = Rig::with_connections(config, &[connection(1), connection(2)]);
    let wire = ping(1, 8000).immediate().to_wire(false, false);
    rig.feed(0, &wire[..100]).unwrap();
    assert_eq!(budget.used(), 8000);
    assert_eq!(
        rig.events(1, &[ping(1, 1).immediate()]),
        ["HoldBudget"],
        "the budget of all sessions"
    );
    rig.session.remove_connection(0);
    assert_eq!(budget.used(), 0);
    assert_eq!(rig.events(1, &[ping(1, 1).immediate()]), [""; 0]);
}

#[test]
fn a_held_command_without_room_for_its_data_ends_with_task_set_full() {
    for (length, outcome) in [(1000, "command 2"), (1001, "fault 2 NoMemory")] {
        let (config, budget) = holding(48 + 1000, SESSION_HOLD_MAX_BYTES);
        let mut rig = Rig::new(config);
        let data = vec![1; length];
        let late = write(2, 2, u32::try_from(length).unwrap()).with_data(&data);
        assert_eq!(rig.events(0, &[late]), [""; 0]);
        assert!(budget.used() >= 48 && budget.used() <= 1048);
        let events = rig.events(0, &[command(1, 1)]);
        assert_eq!(events, ["command 1", outcome], "{length}");
        assert_eq!(budget.used(), 0);
    }
}

#[test]
fn a_held_command_without_room_for_itself_ends_with_task_set_full() {
    let (config, budget) = holding(47, SESSION_HOLD_MAX_BYTES);
    let mut rig = Rig::new(config);
    let late = [command(2, 2), write(3, 3, 4).with_data(b"late")];
    assert_eq!(rig.events(0, &late), [""; 0]);
    assert_eq!(rig.answers(0), [""; 0]);
    assert_eq!(budget.used(), 0);
    let events = rig.events(0, &[command(1, 1), command(4, 4)]);
    let outcomes = [
        "command 1",
        "fault 2 NoMemory",
        "fault 3 NoMemory",
        "command 4",
    ];
    assert_eq!(events, outcomes);
}

#[test]
fn a_gap_ends_the_session_at_its_deadline_and_not_before() {
    let (config, budget) = holding(SESSION_HOLD_MAX_BYTES, SESSION_HOLD_MAX_BYTES);
    let mut rig = Rig::new(config);
    rig.now = Duration::from_secs(100);
    assert_eq!(rig.events(0, &[ping(2, 10), ping(4, 10)]), [""; 0]);
    rig.now = Duration::from_secs(110);
    // One gap is filled, the next begins.
    assert_eq!(rig.events(0, &[nop(1, 1)]), [""; 0]);
    let deadline = Duration::from_secs(140);
    assert_eq!(rig.session.poll_timeout(), Some(deadline));
    rig.session
        .handle_timeout(deadline - Duration::from_nanos(1));
    assert!(rig.session.poll_event().is_none());
    rig.session.handle_timeout(deadline);
    let mut stories = Vec::new();
    while let Some(event) = rig.session.poll_event() {
        stories.push(rig.story(&event));
    }
    assert_eq!(stories, ["CmdSnMissing", "broken 0"]);
    rig.session.remove_connection(0);
    assert_eq!(rig.session.poll_timeout(), None);
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_session_without_a_gap_has_no_deadline() {
    let (config, _) = holding(SESSION_HOLD_MAX_BYTES, SESSION_HOLD_MAX_BYTES);
    let mut rig = Rig::new(config);
    assert_eq!(rig.events(0, &[ping(2, 10), nop(1, 1)]), [""; 0]);
    assert_eq!(rig.session.poll_timeout(), None);
}

#[test]
fn text_under_way_is_paid_for_until_its_end() {
    // The text gathered so far, and the body that is added to it.
    let (config, budget) = holding(2700, SESSION_HOLD_MAX_BYTES);
    let mut rig = Rig::new(config);
    let mut part = text(3, 1, &"A".repeat(900)).immediate().not_final();
    part.bhs[1] |= flags::CONTINUE;
    assert_eq!(rig.events(0, &[part.clone()]), [""; 0]);
    assert_eq!(budget.used(), 900);
    let [answer] = &rig.output(0)[..] else {
        panic!("no answer");
    };
    let transfer = answer.view::<TextResponseBhs>().target_transfer_tag;
    TextRequestBhs::view_mut(&mut part.bhs).target_transfer_tag = transfer;
    assert_eq!(rig.events(0, &[part.clone()]), [""; 0]);
    assert_eq!(budget.used(), 1800);
    let [answer] = &rig.output(0)[..] else {
        panic!("no answer");
    };
    let transfer = answer.view::<TextResponseBhs>().target_transfer_tag;
    TextRequestBhs::view_mut(&mut part.bhs).target_transfer_tag = transfer;
    assert_eq!(rig.events(0, &[part]), ["HoldBudget"]);
    assert_eq!(rig.answers(0), ["reject 0a"]);
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_text_request_before_the_answer_to_the_last_is_sent_is_refused() {
    let mut rig = Rig::new(discovery());
    let ask = |tag| text(tag, 1, "SendTargets=All\0").immediate();
    assert_eq!(rig.events(0, &[ask(1), ask(2)]), ["TextOutstanding"]);
    assert_eq!(rig.answers(0), ["text 1 F", "reject 04"]);
    assert_eq!(rig.events(0, &[ask(3)]), [""; 0]);
    assert_eq!(rig.answers(0), ["text 3 F"]);
}

#[test]
fn a_discovery_session_is_received_from_in_small_pieces() {
    let mut rig = Rig::new(discovery());
    let Receive::Chunk { limit_bytes } = rig.session.poll_receive(0) else {
        panic!("no chunk");
    };
    assert_eq!(limit_bytes, DISCOVERY_RECEIVE_BYTES);
}

#[test]
fn a_holder_with_its_share_gets_no_more_although_some_is_free() {
    let budget = Arc::new(Budget::new(18));
    let [one, other] = [(); 2].map(|()| Share::new(Arc::clone(&budget)));
    while one.has_room() {
        one.count();
    }
    assert_eq!((one.held(), other.has_room()), (16, true));
}
