//! The rules hold, and notice what is wrong.

use super::{Planted, Report, run, run_noted};
use crate::sabotage::Sabotage;

#[test]
fn nothing_that_was_answered_is_lost_and_everybody_is_answered() {
    let mut all = Report::default();
    for seed in 0..60 {
        let report = run(seed, None).unwrap_or_else(|breach| {
            let (_, diary) = run_noted(seed, None);
            let last = diary.len().saturating_sub(60);
            panic!("seed {seed}: {breach:?}\n{}", diary[last..].join("\n"))
        });
        all.good += report.good;
        all.failed += report.failed;
        all.kept_out += report.kept_out;
        all.cut += report.cut;
        all.links += report.links;
    }
    assert!(all.good > 3000, "{all:?}");
    assert!(all.failed > 100, "{all:?}");
    assert!(all.kept_out > 50, "{all:?}");
    assert!(all.cut > 200, "{all:?}");
}

#[test]
fn what_is_planted_is_noticed() {
    let reads = "reads-give-what-was-written";
    for (planted, rules) in [
        (Planted::Disk(Sabotage::LoseWrites), &[reads][..]),
        (Planted::Disk(Sabotage::MisplaceReads), &[reads]),
        (Planted::Disk(Sabotage::FlushInVain), &[reads]),
        (Planted::LosesBytes, &["one-outcome", "clients-are-served"]),
        (Planted::NoReservations, &["reservations-hold"]),
    ] {
        let found = (0..60).find_map(|seed| run(seed, Some(planted)).err());
        assert!(
            found.as_ref().is_some_and(|it| rules.contains(&it.rule)),
            "{planted:?}: {found:?}"
        );
    }
}

#[test]
fn equal_seeds_give_equal_lives() {
    for seed in 0..10 {
        let noted = run_noted(seed, None);
        assert_eq!(noted, run_noted(seed, None));
        assert_eq!(noted.0, run(seed, None));
    }
}
