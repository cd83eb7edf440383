//! Dates of the clock, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY_SECONDS: u64 = 86_400;

/// A second.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Moment {
    /// Year, month and day of the month.
    pub date: (u64, u64, u64),
    /// Hour, minute and second.
    pub time: (u64, u64, u64),
}

impl Moment {
    /// A second of the clock; the beginning of 1970 for a clock that is before that.
    pub fn at(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH);
        Self::of(since.map_or(0, |since| since.as_secs()))
    }

    /// So many seconds after the beginning of 1970.
    pub fn of(seconds: u64) -> Self {
        let time = seconds % DAY_SECONDS;
        Self {
            date: date(seconds / DAY_SECONDS),
            time: (time / 3600, time / 60 % 60, time % 60),
        }
    }
}

/// The date of a day since 1970-01-01. Years begin in March here, so that the leap day is the last
/// of its year and every month before it has a fixed place.
fn date(day: u64) -> (u64, u64, u64) {
    /// From 0000-03-01 to 1970-01-01.
    const EPOCH: u64 = 719_468;
    /// Days of 400, 100, 4 years and one.
    const ERA: u64 = 146_097;
    const CENTURY: u64 = 36_524;
    const OLYMPIAD: u64 = 1_461;
    const YEAR: u64 = 365;
    let day = day + EPOCH;
    let (era, day) = (day / ERA, day % ERA);
    let year = (day - day / (OLYMPIAD - 1) + day / CENTURY - day / (ERA - 1)) / YEAR;
    let day = day - (year * YEAR + year / 4 - year / 100);
    // Five months from March on have 153 days, and so have the next five.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

/// Since 1970-01-01 UTC; zero for a clock that is before that.
pub(crate) fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
