//! `snapshots` of a unit: how often snapshots of it are taken, and how many are kept. Knows no clock.

use api::spec;

use crate::error::{At as _, Broken as _};
use crate::keys::{DAILY_MAX, HOURLY_MAX, SECTION_SCHEDULE, WEEKLY_MAX};
use crate::reader::Section;
use crate::{ConfigError, StoreKind, StoreSpec};

/// Why a unit cannot have this schedule.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum ScheduleRule {
    /// A schedule for what has no snapshots.
    #[error(
        "store {store:?} has no snapshots that Tarn takes; remove snapshots, or put the data into a file on XFS or \
         btrfs"
    )]
    NotPossible {
        /// The store of the unit as written.
        store: String,
    },
    /// A schedule that takes nothing.
    #[error(
        "a schedule needs hourly, daily or weekly; give one of them the number of snapshots that are kept, or remove \
         snapshots"
    )]
    Empty,
    /// A time of day for runs that have none.
    #[error(
        "at is about daily and weekly runs, and there are none; add daily or weekly, or remove at"
    )]
    AtUnused,
    /// A time of day that is none.
    #[error("{text:?} is no time of day; write HH:MM in UTC, as 02:30")]
    Time {
        /// The time as written.
        text: String,
    },
}

/// How often snapshots of a unit are taken.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Schedule {
    /// How many are kept of those of each hour; 0: none are taken.
    pub hourly: u16,
    /// How many are kept of those of each day.
    pub daily: u16,
    /// How many are kept of those of each week.
    pub weekly: u16,
    /// When those of each day and each week are taken, in minutes after midnight in UTC.
    pub at_minutes: u16,
}

impl Schedule {
    /// As the API has it.
    pub fn to_spec(&self) -> spec::Schedule {
        let count = |count: u16| (count != 0).then_some(count);
        spec::Schedule {
            hourly: count(self.hourly),
            daily: count(self.daily),
            weekly: count(self.weekly),
            at: self.has_at().then(|| self.at()),
        }
    }

    const fn has_at(&self) -> bool {
        self.daily != 0 || self.weekly != 0
    }

    fn at(&self) -> String {
        format!("{:02}:{:02}", self.at_minutes / 60, self.at_minutes % 60)
    }
}

/// Whether Tarn can take snapshots of a store of this kind.
const fn has_snapshots(kind: StoreKind) -> bool {
    matches!(kind, StoreKind::Path | StoreKind::File | StoreKind::Rbd)
}

/// The schedule of a unit.
pub(crate) fn read(unit: &Section<'_>, store: &StoreSpec) -> Result<Option<Schedule>, ConfigError> {
    let Some(field) = unit.field("snapshots") else {
        return Ok(None);
    };
    if !has_snapshots(store.at.kind) {
        let store = store.text.clone();
        return Err(ScheduleRule::NotPossible { store }.at(field.place()));
    }
    let table = field.section(SECTION_SCHEDULE)?;
    let count = |key, max| match table.field(key) {
        Some(field) => Ok(u16::try_from(field.number(1, max)?).unwrap_or(u16::MAX)),
        None => Ok(0),
    };
    let mut schedule = Schedule {
        hourly: count("hourly", HOURLY_MAX)?,
        daily: count("daily", DAILY_MAX)?,
        weekly: count("weekly", WEEKLY_MAX)?,
        at_minutes: 0,
    };
    if schedule.hourly == 0 && !schedule.has_at() {
        return Err(ScheduleRule::Empty.at(field.place()));
    }
    if let Some(at) = table.field("at") {
        if !schedule.has_at() {
            return Err(ScheduleRule::AtUnused.at(at.place()));
        }
        schedule.at_minutes = minutes(at.text()?).at(|| at.place())?;
    }
    Ok(Some(schedule))
}

/// The minutes after midnight of `HH:MM`.
fn minutes(text: &str) -> Result<u16, ScheduleRule> {
    let number = |text: &str, below: u16| {
        let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        let number: Option<u16> = text.parse().ok().filter(|_| digits);
        number.filter(|number| *number < below)
    };
    let read = text.split_once(':').and_then(|(hour, minute)| {
        Some(
            number(hour, 24)?
                .saturating_mul(60)
                .saturating_add(number(minute, 60)?),
        )
    });
    read.ok_or_else(|| ScheduleRule::Time {
        text: text.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Model;

    fn read(snapshots: &str) -> Result<Model, ConfigError> {
        let text =
            format!("[[lun]]\nid = \"a\"\nstore = \"file:a.img\"\nsnapshots = {snapshots}\n");
        Model::from_toml(&text, Path::new("/srv/t.toml"))
    }

    #[test]
    fn a_schedule_is_read_shown_and_read_again() {
        for (text, counts, minutes, at) in [
            (
                "{ hourly = 24, daily = 7, weekly = 4, at = \"02:30\" }",
                (24, 7, 4),
                150,
                Some("02:30"),
            ),
            ("{ hourly = 168 }", (168, 0, 0), 0, None),
            (
                "{ daily = 180, at = \"23:59\" }",
                (0, 180, 0),
                1439,
                Some("23:59"),
            ),
            ("{ weekly = 104 }", (0, 0, 104), 0, Some("00:00")),
        ] {
            let model = read(text).unwrap();
            let schedule = model.units()[0].snapshots.unwrap();
            assert_eq!(
                (schedule.hourly, schedule.daily, schedule.weekly),
                counts,
                "{text}"
            );
            assert_eq!(schedule.at_minutes, minutes, "{text}");
            let spec = model.to_specs().luns[0].snapshots.clone().unwrap();
            assert_eq!(spec.at.as_deref(), at, "{text}");
            let again = Model::from_toml(&model.effective(), Path::new("x")).unwrap();
            assert!(crate::diff(&model, &again).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_schedule_that_takes_nothing_or_names_no_time_is_refused() {
        for (text, error) in [
            ("{}", "a schedule needs hourly, daily or weekly"),
            ("{ at = \"02:30\" }", "a schedule needs"),
            ("{ hourly = 1, at = \"02:30\" }", "at is about"),
            ("{ hourly = 0 }", "1"),
            ("{ hourly = 169 }", "168"),
            ("{ daily = 181 }", "180"),
            ("{ weekly = 105 }", "104"),
            ("{ daily = 1, at = \"24:00\" }", "is no time of day"),
            ("{ daily = 1, at = \"02:60\" }", "is no time of day"),
            ("{ daily = 1, at = \"2:30\" }", "is no time of day"),
            ("{ daily = 1, at = \"+2:30\" }", "is no time of day"),
            ("{ daily = 1, monthly = 1 }", "monthly"),
            ("\"daily\"", "a table"),
        ] {
            let found = read(text).unwrap_err().to_string();
            assert!(
                found.starts_with("/srv/t.toml:4: lun[0].snapshots"),
                "{found}"
            );
            assert!(found.contains(error), "{text}: {found}");
        }
        let memory = "[[lun]]\nid = \"a\"\nstore = \"mem:1M\"\nsnapshots = { daily = 1 }\n";
        let found = Model::from_toml(memory, Path::new("t.toml")).unwrap_err();
        assert!(found.to_string().contains("has no snapshots"), "{found}");
    }
}
