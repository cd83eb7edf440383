//! Removable media: an administrator ejects and loads them.

use std::sync::atomic::{AtomicUsize, Ordering};

use api::problem::{Problem, ProblemKind};
use config::StorePlace;
use plane::{MEDIUM_PATIENCE, MediumFailure, MediumOrder};

use super::daemon::Daemon;
use super::effect::preventers;
use super::held::Acceptance;

/// Orders at a time. Each takes a thread of the administration for as long as a store hangs; reads need the others.
const ORDERS_MAX: usize = 4;

static ORDERS: AtomicUsize = AtomicUsize::new(0);

/// The right to wait for a store. Ends with this value.
#[derive(Debug)]
pub(super) struct Permit<'a>(&'a AtomicUsize);

impl<'a> Permit<'a> {
    fn new(orders: &'a AtomicUsize) -> Option<Self> {
        Self::of(orders, ORDERS_MAX)
    }

    /// One of so many.
    pub(super) fn of(orders: &'a AtomicUsize, most: usize) -> Option<Self> {
        let more = |orders: usize| (orders < most).then(|| orders + 1);
        let taken = orders.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        taken.is_ok().then(|| Self(orders))
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Moves the medium of a unit.
pub(super) fn order(daemon: &Daemon, lun: &str, order: MediumOrder) -> Result<(), Problem> {
    let in_force = daemon.in_force();
    let (unit, served) = in_force.lun(lun)?;
    if !unit.store.removable {
        return Err(fixed(lun));
    }
    let Some(_permit) = Permit::new(&ORDERS) else {
        return Err(crowded(lun));
    };
    let is_load = matches!(order, MediumOrder::Load);
    if is_load && unit.store.at.place == StorePlace::Empty {
        return Err(empty(lun));
    }
    let (now, is_drive) = (daemon.plane.medium(served.index), !unit.store.is_disk());
    if is_load && is_drive && now.is_in && !now.prevented_by.is_empty() {
        let prevented = MediumFailure::Prevented;
        return Err(not_moved(lun, &prevented, &now.prevented_by));
    }
    // The file of a disc may have been written in place, which nothing shows: a load says that it was.
    let may_differ = is_load && (!now.is_in || is_drive);
    if may_differ && (daemon.is_replaced(unit, served)? || is_drive) {
        daemon.reopen(lun, served.index, Acceptance::Anything)?;
        daemon.note_reopened(lun);
    }
    // It may be another unit of the data plane now.
    let in_force = daemon.in_force();
    let (_, served) = in_force.lun(lun)?;
    match daemon.plane.move_medium(served.index, order) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(failure)) => {
            let names = daemon.plane.medium(served.index).prevented_by;
            Err(not_moved(lun, &failure, &names))
        }
        Err(no_answer) => {
            let seconds = MEDIUM_PATIENCE.as_secs();
            let detail = format!(
                "the medium of lun {lun:?} has not moved within {seconds} s and may still do so, \
                 see tarn lun show {lun}: {no_answer}"
            );
            Err(Problem::new(ProblemKind::Unavailable, detail))
        }
    }
}

/// Takes the medium of a unit from another client.
pub(super) fn take_over(daemon: &Daemon, lun: &str) -> Result<(), Problem> {
    let Some(_permit) = Permit::new(&ORDERS) else {
        return Err(crowded(lun));
    };
    daemon.take_over_medium(lun)
}

/// Serves a unit with what is at the place of its store.
pub(super) fn adopt(daemon: &Daemon, lun: &str) -> Result<(), Problem> {
    let in_force = daemon.in_force();
    let (_, served) = in_force.lun(lun)?;
    let Some(_permit) = Permit::new(&ORDERS) else {
        return Err(crowded(lun));
    };
    let refusal = match &served.opened.held {
        Some(reason) if reason.is_tried_again() => None,
        Some(reason) => Some(format!(
            "lun {lun:?} waits for something else: {}",
            reason.why
        )),
        None => Some(format!(
            "lun {lun:?} is served with what it was served with before"
        )),
    };
    if let Some(detail) = refusal {
        return Err(Problem::new(ProblemKind::Conflict, detail));
    }
    daemon.reopen(lun, served.index, Acceptance::Anything)?;
    tracing::warn!(
        lun,
        "an administrator has accepted what is at the place of the store"
    );
    Ok(())
}

fn crowded(lun: &str) -> Problem {
    let detail = format!(
        "{ORDERS_MAX} media are being moved, and lun {lun:?} was left as it is; try again in a moment"
    );
    Problem::new(ProblemKind::Unavailable, detail)
}

fn empty(lun: &str) -> Problem {
    let detail = format!("the drive {lun:?} is empty; name a file (tarn lun load {lun} FILE)");
    Problem::new(ProblemKind::Conflict, detail)
}

fn fixed(lun: &str) -> Problem {
    let detail =
        format!("the medium of lun {lun:?} is fixed: its STORE does not have the option removable");
    Problem::new(ProblemKind::Conflict, detail)
}

/// Why the medium is where it was, and what helps.
fn not_moved(lun: &str, failure: &MediumFailure, names: &[String]) -> Problem {
    let (kind, detail) = match failure {
        MediumFailure::Prevented => {
            let who = preventers(names);
            let detail = format!(
                "{who} the removal of the medium of lun {lun:?}: release it there (unmount, eject), \
                 or use force (tarn lun eject {lun} --force)"
            );
            (ProblemKind::Conflict, detail)
        }
        MediumFailure::Busy => {
            let detail = format!(
                "the medium of lun {lun:?} stays where it is: commands on it did not end in time, \
                 or it is being moved already; try again"
            );
            (ProblemKind::Conflict, detail)
        }
        MediumFailure::Unflushed(why) => {
            let detail = format!(
                "the medium of lun {lun:?} stays in, because it cannot be flushed: {why}; \
                 look at its store"
            );
            (ProblemKind::Failed, detail)
        }
        MediumFailure::Fixed => return fixed(lun),
        MediumFailure::Gone => {
            let detail = format!(
                "the medium of lun {lun:?} was not moved: the lun is being removed, or its state could not be kept; \
                 see tarn lun show {lun} and the log"
            );
            (ProblemKind::Conflict, detail)
        }
    };
    Problem::new(kind, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_orders_wait_for_stores_and_no_more() {
        let orders = AtomicUsize::new(0);
        let mut permits: Vec<_> = (0..ORDERS_MAX).map(|_| Permit::new(&orders)).collect();
        assert!(permits.iter().all(Option::is_some));
        // Who is refused takes and gives nothing.
        assert!((0..3).all(|_| Permit::new(&orders).is_none()));
        assert_eq!(orders.load(Ordering::SeqCst), ORDERS_MAX);
        permits.pop();
        assert!(Permit::new(&orders).is_some());
        permits.clear();
        assert_eq!(orders.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn only_a_fixed_medium_is_called_fixed() {
        for failure in [
            MediumFailure::Busy,
            MediumFailure::Gone,
            MediumFailure::Prevented,
        ] {
            let problem = not_moved("cd", &failure, &[]);
            assert!(!problem.detail.contains("is fixed"), "{}", problem.detail);
            assert_eq!(problem.status, 409);
        }
        let problem = not_moved("cd", &MediumFailure::Fixed, &[]);
        assert!(problem.detail.contains("is fixed"), "{}", problem.detail);
    }

    #[test]
    fn a_refusal_names_who_prevents_and_the_remedy() {
        let name = |name: &str| name.to_owned();
        for (names, expected) in [
            (vec![], "an initiator prevents the removal"),
            (vec![name("iqn.a")], "iqn.a prevents the removal"),
            (
                vec![name("iqn.a"), name("iqn.b")],
                "iqn.a, iqn.b prevent the removal",
            ),
        ] {
            let problem = not_moved("cd", &MediumFailure::Prevented, &names);
            assert!(problem.detail.starts_with(expected), "{}", problem.detail);
            assert!(problem.detail.contains("tarn lun eject cd --force"));
            assert_eq!(problem.status, 409);
        }
    }
}
