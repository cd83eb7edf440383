//! Which snapshots a schedule wants at a moment, and which it no longer keeps. Knows no clock and no file system.
//!
//! A run has the time for which it stands, so it has one name, and what has that name is not made again. Names of one
//! period are of one length, so they are in the order of their times.

use config::Schedule;
use store::SnapshotName;

use crate::calendar::Moment;

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
const WEEK: u64 = 7 * DAY;

/// The first Sunday after the beginning of 1970, which was a Thursday.
const SUNDAY: u64 = 3 * DAY;

/// How often.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Period {
    Hourly,
    Daily,
    Weekly,
}

impl Period {
    const ALL: [Self; 3] = [Self::Hourly, Self::Daily, Self::Weekly];

    const fn word(self) -> &'static str {
        match self {
            Self::Hourly => "hourly",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
        }
    }

    /// How many a schedule keeps.
    pub(super) fn kept(self, schedule: &Schedule) -> usize {
        usize::from(match self {
            Self::Hourly => schedule.hourly,
            Self::Daily => schedule.daily,
            Self::Weekly => schedule.weekly,
        })
    }

    /// How long it is, and when the first one of it begins, in seconds.
    fn grid(self, schedule: &Schedule) -> (u64, u64) {
        let at = u64::from(schedule.at_minutes) * 60;
        match self {
            Self::Hourly => (HOUR, 0),
            Self::Daily => (DAY, at),
            Self::Weekly => (WEEK, SUNDAY + at),
        }
    }

    /// Whose run has this name: a word, then a time as in `hourly-2026-11-24T02.00Z`. No other snapshot is of a
    /// schedule.
    pub(crate) fn of(name: &SnapshotName) -> Option<Self> {
        const TIME: &str = "-0000-00-00T00.00Z";
        let is_time = |text: &str| {
            let mut pairs = text.bytes().zip(TIME.bytes());
            let fits = |(byte, form): (u8, u8)| match form {
                b'0' => byte.is_ascii_digit(),
                _ => byte == form,
            };
            text.len() == TIME.len() && pairs.all(fits)
        };
        let is_of = |period: &Self| {
            let time = name.as_str().strip_prefix(period.word());
            time.is_some_and(is_time)
        };
        Self::ALL.into_iter().find(is_of)
    }
}

/// A snapshot that a schedule wants.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Run {
    pub(super) period: Period,
    /// What it is called.
    pub(super) name: SnapshotName,
}

impl Run {
    fn at(period: Period, seconds: u64) -> Option<Self> {
        let Moment { date, time } = Moment::of(seconds);
        let ((year, month, day), (hour, minute, _)) = (date, time);
        let word = period.word();
        let name = format!("{word}-{year:04}-{month:02}-{day:02}T{hour:02}.{minute:02}Z");
        let name = SnapshotName::parse(&name)?;
        Some(Self { period, name })
    }
}

/// The last run of each period until `now`, in seconds since the beginning of 1970. Those before it are not caught up.
pub(super) fn wanted(schedule: &Schedule, now: u64) -> Vec<Run> {
    let periods = Period::ALL.into_iter();
    let periods = periods.filter(|period| period.kept(schedule) != 0);
    periods
        .filter_map(|period| {
            let (length, first) = period.grid(schedule);
            let since = now.checked_sub(first)?;
            Run::at(period, first + since / length * length)
        })
        .collect()
}

/// The snapshots that are kept no longer, once there is that of this run: all of its period but the last `kept`. Those
/// of a time that is to come are of a clock that was set back. As many of them are kept, beside the others: they are
/// not in the way of what is taken by the right time, and are not gone if the wrong one is set for a moment only.
pub(super) fn expired<'a>(
    run: &Run,
    kept: usize,
    there: impl Iterator<Item = &'a SnapshotName>,
) -> Vec<SnapshotName> {
    let same = there.filter(|name| Period::of(name) == Some(run.period));
    let (mut past, mut to_come): (Vec<_>, Vec<_>) = same.partition(|name| **name <= run.name);
    past.sort();
    past.reverse();
    to_come.sort();
    let past = past.into_iter().skip(kept);
    past.chain(to_come.into_iter().skip(kept))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-24T02:29:59Z, a Tuesday.
    const TUESDAY: u64 = 1_795_487_399;

    const ALL: Schedule = Schedule {
        hourly: 24,
        daily: 7,
        weekly: 4,
        at_minutes: 150,
    };

    fn names(schedule: &Schedule, now: u64) -> Vec<String> {
        let runs = wanted(schedule, now).into_iter();
        runs.map(|run| run.name.to_string()).collect()
    }

    fn name(text: &str) -> SnapshotName {
        SnapshotName::parse(text).unwrap()
    }

    #[test]
    fn a_run_stands_for_the_last_time_of_its_period() {
        let before = names(&ALL, TUESDAY);
        let wanted = [
            "hourly-2026-11-24T02.00Z",
            "daily-2026-11-23T02.30Z",
            "weekly-2026-11-22T02.30Z",
        ];
        assert_eq!(before, wanted);
        let at = names(&ALL, TUESDAY + 1);
        assert_eq!(at[1], "daily-2026-11-24T02.30Z");
        let sunday = TUESDAY + 1 + 5 * DAY;
        assert_eq!(names(&ALL, sunday - 1)[2], "weekly-2026-11-22T02.30Z");
        assert_eq!(names(&ALL, sunday)[2], "weekly-2026-11-29T02.30Z");
        let hour = TUESDAY + 1 + HOUR / 2;
        assert_eq!(names(&ALL, hour - 1)[0], "hourly-2026-11-24T02.00Z");
        assert_eq!(names(&ALL, hour)[0], "hourly-2026-11-24T03.00Z");
    }

    #[test]
    fn what_was_missed_is_caught_up_once_however_long_it_was() {
        for years in [0, 1, 10, 1000] {
            assert_eq!(names(&ALL, TUESDAY + years * 365 * DAY).len(), 3);
        }
        let daily = Schedule {
            hourly: 0,
            weekly: 0,
            ..ALL
        };
        assert_eq!(names(&daily, TUESDAY), ["daily-2026-11-23T02.30Z"]);
        // A clock that begins in 1970 has no run before its first.
        assert_eq!(names(&daily, 150 * 60 - 1), Vec::<String>::new());
        assert_eq!(names(&daily, 150 * 60), ["daily-1970-01-01T02.30Z"]);
    }

    #[test]
    fn only_names_of_runs_are_of_a_schedule() {
        for run in wanted(&ALL, TUESDAY) {
            assert_eq!(Period::of(&run.name), Some(run.period));
        }
        for text in [
            "hourly",
            "hourly-2026-11-24T02.00",
            "hourly-2026-11-24T02.00Z1",
            "hourly-2026-11-24T02-00Z",
            "hourly-2026-11-24T02.00Z-kept",
            "Hourly-2026-11-24T02.00Z",
            "2026-11-24T02.00Z",
            "2026-11-21T10-03-36Z",
            "monthly-2026-11-24T02.00Z",
            "hourlydaily-2026-11-24T02.00Z",
            "before-upgrade",
        ] {
            assert_eq!(Period::of(&name(text)), None, "{text}");
        }
    }

    #[test]
    fn the_last_ones_of_the_period_are_kept_and_all_of_others() {
        let there: Vec<SnapshotName> = [
            "hourly-2026-11-24T01.00Z",
            "hourly-2026-11-23T23.00Z",
            "hourly-2026-11-24T02.00Z",
            "hourly-2026-11-24T00.00Z",
            "daily-2026-11-01T02.30Z",
            "before-upgrade",
            "hourly-2026-11-20T00.00Z.kept",
        ]
        .map(name)
        .to_vec();
        let run = wanted(&ALL, TUESDAY).remove(0);
        let gone = |kept| {
            let gone = expired(&run, kept, there.iter()).into_iter();
            gone.map(|name| name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(gone(4), Vec::<String>::new());
        assert_eq!(gone(3), ["hourly-2026-11-23T23.00Z"]);
        let wanted = [
            "hourly-2026-11-24T01.00Z",
            "hourly-2026-11-24T00.00Z",
            "hourly-2026-11-23T23.00Z",
        ];
        assert_eq!(gone(1), wanted);
    }

    #[test]
    fn a_clock_that_was_set_back_loses_nothing_new_and_piles_up_nothing() {
        let mut there: Vec<SnapshotName> = Vec::new();
        let hourly = Schedule {
            hourly: 3,
            daily: 0,
            weekly: 0,
            at_minutes: 0,
        };
        let mut take = |now: u64| {
            for run in wanted(&hourly, now) {
                if !there.contains(&run.name) {
                    there.push(run.name.clone());
                }
                let gone = expired(&run, 3, there.iter());
                assert!(!gone.contains(&run.name), "{gone:?}");
                there.retain(|name| !gone.contains(name));
            }
            there.len()
        };
        for hour in 0..9 {
            assert!(take(TUESDAY + 3650 * DAY + hour * HOUR) <= 3);
        }
        for hour in 0..9 {
            assert!(take(TUESDAY + hour * HOUR) <= 6);
        }
        // An hour back, and again: nothing is made twice.
        let now = take(TUESDAY + 8 * HOUR);
        assert!(take(TUESDAY + 7 * HOUR) <= now);
        assert!(take(TUESDAY + 8 * HOUR) <= now);
    }
}
