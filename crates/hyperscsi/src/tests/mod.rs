//! Both ends of sessions on a simulated wire.

mod bundles;
mod congestion;
mod hostile;
mod prng;
mod rig;
mod wire;
mod world;

use std::time::Duration;

use crate::planted::{Bug, plant};
use world::{Plan, World};

/// Runs seeds until one fails.
fn first_failure(seeds: std::ops::Range<u64>) -> Option<(u64, String)> {
    seeds.into_iter().find_map(|seed| {
        let failure = World::new(Plan::of(seed)).run().err();
        failure.map(|failure| (seed, failure))
    })
}

#[test]
fn no_byte_is_wrong_and_everything_ends_on_any_wire() {
    assert_eq!(first_failure(0..1000), None);
}

fn is_found(bug: Bug) {
    plant(Some(bug));
    let found = first_failure(0..1000);
    plant(None);
    assert!(found.is_some(), "{bug:?}");
}

#[test]
fn a_request_that_is_given_out_twice_is_found() {
    is_found(Bug::Duplicates);
}

#[test]
fn checksums_that_nobody_looks_at_are_found() {
    is_found(Bug::Checksum);
}

#[test]
fn a_lost_tail_that_is_not_asked_for_is_found() {
    is_found(Bug::Probe);
}

#[test]
fn a_wrong_pdu_that_is_not_sent_again_is_found() {
    is_found(Bug::Void);
}

#[test]
fn frames_that_stay_too_large_are_found() {
    is_found(Bug::FrameSize);
}

/// A wire without faults carries each fragment once.
#[test]
fn nothing_is_sent_twice_on_a_good_wire() {
    for seed in 0..50 {
        let mut world = World::new(Plan::good(seed));
        world.run().unwrap();
        let (client, target) = (world.client.counters(), world.target.counters());
        assert_eq!(
            (client.retransmitted, target.retransmitted),
            (0, 0),
            "seed {seed}"
        );
        assert_eq!((client.corrupt, target.corrupt), (0, 0), "seed {seed}");
    }
}

/// The last frame of a write is lost: it takes a probe and a round trip, not a timeout of TCP.
#[test]
fn a_lost_last_frame_costs_less_than_five_milliseconds() {
    let mut plan = Plan::good(1);
    plan.operations = 0;
    let mut world = World::new(plan);
    world.run_for(Duration::from_millis(100));
    (0..20).for_each(|at| {
        world.write(at, 1, 40);
        world.run_for(Duration::from_millis(20));
    });
    world.drop_last_of_next_write = true;
    let begin = world.now;
    world.write(7, 1, 40);
    let took = world.run_until_idle() - begin;
    assert!(
        world.client.counters().retransmitted == 1,
        "{:?}",
        world.client.counters()
    );
    assert!(took < Duration::from_millis(5), "{took:?}");
}

/// A target that has restarted says so; somebody who only claims it ends nothing.
#[test]
fn a_session_that_is_unknown_ends_only_while_its_target_is_silent() {
    let mut world = World::new(Plan::good(1));
    world.run_for(Duration::from_millis(100));
    let frame = crate::unknown_session(world.client.terms().first_tag);
    assert_eq!(frame.len(), crate::limits::FRAME_MIN_BYTES);
    let tag = crate::read_unknown_session(&frame).unwrap();
    world.client.handle_unknown(tag);
    assert_eq!(world.client.poll_event(), None);
    let mut buffer = vec![0; 9100];
    for _ in 0..8 {
        let at = world.client.deadline().unwrap();
        world.client.handle_deadline(at);
        while world.client.poll_frame(at, &mut buffer).is_some() {}
    }
    world.client.handle_unknown(tag + 500);
    assert_eq!(world.client.poll_event(), None, "another session");
    world.client.handle_unknown(tag);
    let ended = crate::ClientEvent::Ended(crate::EndReason::Unknown);
    assert!(std::iter::from_fn(|| world.client.poll_event()).any(|event| event == ended));
}
