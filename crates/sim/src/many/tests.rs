//! The rules hold, and notice what is wrong.

use super::{Planted, Report, run, run_noted};
use crate::sabotage::Sabotage;

#[test]
fn more_than_one_of_each_thing_keeps_the_rules() {
    let mut all = Report::default();
    for seed in 0..60 {
        let report = run(seed, None).unwrap_or_else(|breach| {
            let (_, diary) = run_noted(seed, None);
            let last = diary.len().saturating_sub(60);
            panic!("seed {seed}: {breach:?}\n{}", diary[last..].join("\n"))
        });
        let (sum, one) = (&mut all.outcomes, report.outcomes);
        sum.good += one.good;
        sum.failed += one.failed;
        sum.kept_out += one.kept_out;
        sum.preempted += one.preempted;
        sum.lost += one.lost;
        sum.attentions += one.attentions;
        sum.resets += one.resets;
        sum.moved += one.moved;
        all.harmed += report.harmed;
        all.logins += report.logins;
        all.crashes += report.crashes;
        all.changes += report.changes;
        all.outages += report.outages;
        all.idle_wakes += report.idle_wakes;
    }
    let of = all.outcomes;
    assert!(
        of.good > 3000 && of.failed > 500 && of.lost > 200,
        "{all:?}"
    );
    assert!(of.kept_out > 20 && of.preempted > 0, "{all:?}");
    assert!(of.attentions > 500 && of.resets > 15, "{all:?}");
    assert!(of.moved > 20 && all.changes > 100, "{all:?}");
    assert!(all.harmed > 1000 && all.logins > 300, "{all:?}");
    assert!(all.crashes > 5 && all.outages > 50, "{all:?}");
    assert!(all.idle_wakes > 100, "{all:?}");
}

#[test]
fn what_is_planted_is_noticed() {
    // By whichever rule is first: some of what is planted shows in several. A client of HyperSCSI whose command is not
    // answered gives up and logs in again, as after a loss; the world of the target notices lost answers.
    let sabotages = Sabotage::ALL.into_iter().map(|(sabotage, _)| sabotage);
    let sabotages = sabotages.filter(|sabotage| *sabotage != Sabotage::ForgetAnswers);
    let others = [Planted::LosesBytes, Planted::NoReservations];
    for planted in sabotages.map(Planted::Target).chain(others) {
        let found = (0..60).find_map(|seed| run(seed, Some(planted)).err());
        assert!(found.is_some(), "{planted:?}");
    }
}

#[test]
fn equal_seeds_give_equal_lives() {
    for seed in 0..5 {
        let noted = run_noted(seed, None);
        assert_eq!(noted, run_noted(seed, None));
        assert_eq!(noted.0, run(seed, None));
    }
}
