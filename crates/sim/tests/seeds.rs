//! Seeds, old and new, and proof that a bug would be noticed.

use sim::sabotage::Sabotage;
use sim::shrink::{examine, run};
use sim::world::World;

fn must_hold(seed: u64) {
    if let Err(failure) = examine(seed, usize::MAX) {
        panic!(
            "seed {seed} breaks {} after {} actions: {}\n\
             tell it with: cargo run -p sim -- --seed {seed} --actions {}\n{}",
            failure.breach.rule,
            failure.actions,
            failure.breach.detail,
            failure.actions,
            failure.trace[failure.trace.len().saturating_sub(40)..].join("\n")
        );
    }
}

#[test]
fn no_rule_is_broken_in_a_hundred_worlds() {
    (0..100).for_each(must_hold);
}

#[test]
fn seeds_that_once_failed_do_not_fail_again() {
    let listed = include_str!("../seeds/regressions");
    let seeds: Vec<u64> = listed
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(' ').next().unwrap().parse().unwrap())
        .collect();
    assert!(!seeds.is_empty());
    seeds.into_iter().for_each(must_hold);
}

#[test]
fn a_failed_flush_stays_known_in_the_store_that_ships() {
    for seed in 0..2000 {
        if let Err(breach) = sim::flush::run(seed) {
            panic!("{breach:?}");
        }
    }
}

#[test]
fn equal_seeds_give_equal_stories() {
    for seed in 0..20 {
        let (one, other) = (run(seed, usize::MAX, true), run(seed, usize::MAX, true));
        assert_eq!(one.trace.lines(), other.trace.lines(), "seed {seed}");
        let untold = run(seed, usize::MAX, false);
        assert_eq!(one.fingerprint, untold.fingerprint, "seed {seed} untold");
        assert_eq!(one.events, untold.events, "seed {seed} untold");
    }
}

#[test]
fn cores_serve_other_blocks_while_stores_keep_requests_of_the_past() {
    let late = (3..100).step_by(7);
    let beside = late.map(|seed| run(seed, usize::MAX, false).beside_orphans);
    let beside: usize = beside.sum();
    assert!(beside > 100, "{beside} requests");
}

#[test]
fn different_seeds_give_different_stories() {
    let mut fingerprints: Vec<u64> = (0..50)
        .map(|seed| run(seed, usize::MAX, false).fingerprint)
        .collect();
    fingerprints.sort_unstable();
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), 50);
}

/// Each bug that is put in on purpose is noticed in some of the first seeds, and by the rule that
/// it breaks.
#[test]
fn every_sabotage_is_noticed_by_its_rule() {
    for (sabotage, rule) in Sabotage::ALL {
        let noticed = (0..400).find(|&seed| {
            let breach = World::sabotaged(seed, sabotage).run().breach;
            breach.is_some_and(|breach| breach.rule == rule)
        });
        assert!(noticed.is_some(), "{sabotage:?} does not break {rule}");
    }
}
