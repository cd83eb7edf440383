//! The write caches of units that stay served: they begin to write through, or may write back again.
//!
//! What begins to write through is flushed, which may hang, for [`FLUSH_LIMIT`] at most; all units of a change are
//! flushed at the same time. Where one cannot be, all of them are as before, and the change is not made. Commands go
//! on meanwhile, of these units and of all others. See `engine::cache` for what initiators see.
//!
//! Stores know nothing of it: cores ask for what is to be durable with each request.

use std::fmt;
use std::time::Duration;

use plane::{Handle, MEDIUM_PATIENCE, MediumFailure, MediumOrder, NoAnswer, UnitIndex};

/// How long a flush may take, as long as any other look at a store.
const FLUSH_LIMIT: Duration = Duration::from_secs(10);

/// A unit whose write cache changes.
#[derive(Clone, Debug)]
pub(super) struct CacheSwitch {
    pub(super) unit: UnitIndex,
    /// What it is called.
    name: String,
    /// What it becomes.
    writes_through: bool,
}

impl CacheSwitch {
    /// Of a unit that is served, if the new one has another write cache.
    pub(super) fn of(
        served: UnitIndex,
        before: &config::Unit,
        after: &config::Unit,
    ) -> Option<Self> {
        let writes_through =
            |unit: &config::Unit| unit.store.cache == config::CacheMode::Writethrough;
        (writes_through(before) != writes_through(after)).then(|| Self {
            unit: served,
            name: after.to_string(),
            writes_through: writes_through(after),
        })
    }
}

/// Why a write cache is as it was.
#[derive(Debug)]
enum Failure {
    /// The core that owns it says so.
    Refused(MediumFailure),
    /// That core does not answer.
    NoAnswer(NoAnswer),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(MediumFailure::Unflushed(why)) => {
                write!(f, "it cannot be flushed: {why}; look at its store, then apply it again")
            }
            Self::Refused(MediumFailure::Busy) => f.write_str(
                "an earlier flush of it has not ended, or its medium is being moved; apply it again in a moment",
            ),
            Self::Refused(
                failure @ (MediumFailure::Prevented | MediumFailure::Fixed | MediumFailure::Gone),
            ) => write!(f, "{failure}; see the log"),
            Self::NoAnswer(no_answer) => write!(
                f,
                "{no_answer}; it may still happen, and then writes are slower than before until this is applied again"
            ),
        }
    }
}

type Outcome<'a> = (&'a CacheSwitch, Result<(), Failure>);

/// Switches all or none.
///
/// # Errors
///
/// The first that stays as it was, and why.
pub(super) fn switch(all: &[CacheSwitch], plane: &Handle) -> Result<(), String> {
    let (through, back): (Vec<_>, Vec<_>) = all.iter().partition(|one| one.writes_through);
    let write_through = MediumOrder::WriteThrough { limit: FLUSH_LIMIT };
    all_or_none(order(&through, write_through, plane), |done| {
        take_back(done, plane);
    })?;
    all_or_none(order(&back, MediumOrder::WriteBack, plane), |done| {
        drop(order(done, write_through, plane));
        take_back(&through, plane);
    })
}

/// Has those undone that succeeded, where another has not.
fn all_or_none<'a>(
    outcomes: Vec<Outcome<'a>>,
    undo: impl FnOnce(&[&'a CacheSwitch]),
) -> Result<(), String> {
    let (mut done, mut first) = (Vec::new(), None);
    for (switch, outcome) in outcomes {
        match outcome {
            Ok(()) => done.push(switch),
            Err(failure) => {
                first.get_or_insert_with(|| {
                    format!(
                        "lun {} keeps its write cache as it was: {failure}",
                        switch.name
                    )
                });
            }
        }
    }
    match first {
        None => Ok(()),
        Some(first) => {
            undo(&done);
            Err(first)
        }
    }
}

fn take_back(all: &[&CacheSwitch], plane: &Handle) {
    for (one, outcome) in order(all, MediumOrder::NotWriteThrough, plane) {
        if let Err(failure) = outcome {
            let (lun, failure) = (&one.name, failure.to_string());
            tracing::warn!(
                lun,
                failure,
                "it writes through, although the change was not made"
            );
        }
    }
}

fn order<'a>(all: &[&'a CacheSwitch], order: MediumOrder, plane: &Handle) -> Vec<Outcome<'a>> {
    let orders: Vec<_> = all.iter().map(|one| (one.unit, order)).collect();
    let answers = plane.move_media(&orders, MEDIUM_PATIENCE).into_iter();
    let outcome = |answer| match answer {
        Ok(Ok(())) => Ok(()),
        Ok(Err(failure)) => Err(Failure::Refused(failure)),
        Err(no_answer) => Err(Failure::NoAnswer(no_answer)),
    };
    all.iter().copied().zip(answers.map(outcome)).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use config::Model;

    use super::*;

    fn named(name: &str) -> CacheSwitch {
        CacheSwitch {
            unit: UnitIndex(0),
            name: name.to_owned(),
            writes_through: true,
        }
    }

    #[test]
    fn where_one_fails_those_that_succeeded_are_undone_and_it_is_named() {
        let (a, b, c) = (named("a"), named("b"), named("c"));
        let mut undone = Vec::new();
        let failed = || Err(Failure::Refused(MediumFailure::Busy));
        let outcomes = vec![(&a, Ok(())), (&b, failed()), (&c, failed())];
        let error = all_or_none(outcomes, |done| {
            undone = done.iter().map(|one| one.name.clone()).collect();
        });
        let error = error.unwrap_err();
        assert!(error.starts_with("lun b keeps its write cache"), "{error}");
        assert_eq!(undone, ["a"]);
        let all = vec![(&a, Ok(())), (&b, Ok(()))];
        assert_eq!(all_or_none(all, |_| panic!("nothing to undo")), Ok(()));
    }

    #[test]
    fn only_writing_through_or_not_is_switched() {
        let modes = ["writeback", "writethrough"];
        let unit = |mode: &str| {
            let text =
                format!("[[lun]]\nid = \"a\"\nstore = \"file:/srv/a?size=8M&cache={mode}\"\n");
            let model = Model::from_toml(&text, Path::new("/etc/t.toml")).unwrap();
            model.units()[0].clone()
        };
        for before in modes {
            for after in modes {
                let (before, after) = (unit(before), unit(after));
                let found = CacheSwitch::of(UnitIndex(0), &before, &after);
                let expected = (before.store.cache != after.store.cache)
                    .then_some(after.store.cache == config::CacheMode::Writethrough);
                assert_eq!(found.map(|one| one.writes_through), expected);
            }
        }
    }
}
