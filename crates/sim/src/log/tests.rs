//! The rules hold, and notice what is wrong.

use super::{Planted, Report, Wrong, run, run_noted};

#[test]
fn nothing_that_was_acknowledged_is_lost_at_any_step() {
    let mut all = Report::default();
    for seed in 0..60 {
        let report = run(seed, Planted::default()).unwrap_or_else(|breach| {
            let (_, diary) = run_noted(seed, Planted::default());
            let last = diary.len().saturating_sub(60);
            panic!("{breach:?}\n{}", diary[last..].join("\n"))
        });
        all.crashes += report.crashes;
        all.kills += report.kills;
        all.records += report.records;
        all.good += report.good;
        all.laps = all.laps.max(report.laps);
        all.left += report.left;
        all.unsynced += report.unsynced;
    }
    assert!(all.crashes > 5000, "{all:?}");
    assert!(all.kills > 1000, "{all:?}");
    assert!(all.records > 5000, "{all:?}");
    assert!(all.good > 1000, "{all:?}");
    assert!(all.laps > 1, "the rings were not wrapped: {all:?}");
    assert!(all.left > 0, "no log was left: {all:?}");
    assert!(all.unsynced > 0, "no sync failed: {all:?}");
}

#[test]
fn media_that_lie_are_noticed() {
    let lies = |store, log| Planted { store, log };
    let (lost, damaged) = ("what-was-answered-is-there", "the-log-is-found");
    for (planted, rules) in [
        (lies(Some(Wrong::SyncsInVain), None), &[lost][..]),
        (lies(None, Some(Wrong::SyncsInVain)), &[lost, damaged]),
        // Records behind the lost one show it, and the unit is not served.
        (lies(None, Some(Wrong::LosesWrites)), &[lost, damaged]),
    ] {
        let found = (0..40).find_map(|seed| run(seed, planted).err());
        assert!(
            found.as_ref().is_some_and(|it| rules.contains(&it.rule)),
            "{planted:?}: {found:?}"
        );
    }
}

#[test]
fn equal_seeds_give_equal_lives() {
    for seed in 0..10 {
        let noted = run_noted(seed, Planted::default());
        assert_eq!(noted, run_noted(seed, Planted::default()));
        assert_eq!(noted.0, run(seed, Planted::default()));
    }
}
