//! Reservations of units: what administrators see of them, and how they end them.

use std::collections::BTreeSet;
use std::time::SystemTime;

use api::problem::{Problem, ProblemKind};
use api::view;
use plane::{
    MEDIUM_PATIENCE, MediumFailure, MediumOrder, NexusReport, ReservationReport, SessionReport,
    UnitIndex,
};

use super::calendar::milliseconds;
use super::daemon::Daemon;

/// What the reservations of a unit are, where there is one or somebody is registered.
pub(super) fn summary(report: &ReservationReport) -> Option<view::Reservations> {
    let is_none =
        report.registrations.is_empty() && report.reserved_by.is_none() && !report.is_lost;
    (!is_none).then(|| view::Reservations {
        registrations: Vec::new(),
        ..describe(report, None)
    })
}

/// With all registrations. `here` are the initiators that have a session, where that is known.
fn describe(report: &ReservationReport, here: Option<&BTreeSet<String>>) -> view::Reservations {
    let nexus = |nexus: &NexusReport| {
        let port = &nexus.initiator;
        view::ReservationNexus {
            transport: port.transport.to_owned(),
            initiator: port.name.clone(),
            isid: Some(port.isid.clone()).filter(|isid| !isid.is_empty()),
            target_port: nexus.target_port,
            has_session: here.map(|here| here.contains(&port.name)),
        }
    };
    let ms = |since: Option<SystemTime>| since.map(milliseconds);
    view::Reservations {
        kind: report.kind.map(|kind| kind.word().to_owned()),
        holder: report.holder.as_ref().map(nexus),
        since_ms: ms(report.since),
        registered: u32::try_from(report.registrations.len()).unwrap_or(u32::MAX),
        aptpl: report.is_kept,
        lost: report.is_lost,
        reserved_by: report.reserved_by.as_ref().map(|(holder, _)| nexus(holder)),
        registrations: report
            .registrations
            .iter()
            .map(|one| view::Registration {
                nexus: nexus(&one.nexus),
                key: format!("{:#018x}", one.key),
                holder: report.kind.is_some()
                    && report.holder.as_ref().is_none_or(|it| *it == one.nexus),
                since_ms: ms(one.since),
            })
            .collect(),
    }
}

/// The reservations of a unit, with all registrations.
pub(super) fn view(daemon: &Daemon, lun: &str) -> Result<view::Reservations, Problem> {
    let unit = index(daemon, lun)?;
    let report = daemon.plane.reservations(unit);
    // Cores that do not answer are no reason to show nothing.
    let sessions = daemon.sessions_now().ok();
    let here = sessions.map(|sessions| initiators_of(&sessions, unit));
    Ok(describe(&report, here.as_ref()))
}

/// The initiators with a session that sees a unit.
pub(super) fn initiators_of(sessions: &[SessionReport], unit: UnitIndex) -> BTreeSet<String> {
    let sees = |one: &&SessionReport| !one.is_ending && one.luns.iter().any(|lun| lun.unit == unit);
    let names = sessions.iter().filter(sees);
    // As TransportIDs have them.
    names
        .map(|one| one.initiator_name.to_ascii_lowercase())
        .collect()
}

/// Ends all reservations of a unit.
pub(super) fn clear(daemon: &Daemon, lun: &str) -> Result<(), Problem> {
    let unit = index(daemon, lun)?;
    let cleared = daemon
        .plane
        .move_medium(unit, MediumOrder::ClearReservations);
    let (kind, why) = match cleared {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(MediumFailure::Busy)) => (
            ProblemKind::Unavailable,
            "were not cleared: another change of the lun is under way; try again".to_owned(),
        ),
        Ok(Err(
            failure @ (MediumFailure::Gone
            | MediumFailure::Prevented
            | MediumFailure::Unflushed(_)
            | MediumFailure::Fixed),
        )) => (
            ProblemKind::Failed,
            format!("were not cleared: {failure}; see tarn doctor and the log"),
        ),
        Err(no_answer) => (
            ProblemKind::Unavailable,
            format!(
                "are not known to be cleared after {} s, and may still be; see tarn lun show {lun}: {no_answer}",
                MEDIUM_PATIENCE.as_secs()
            ),
        ),
    };
    let detail = format!("the reservations of lun {lun:?} {why}");
    Err(Problem::new(kind, detail))
}

fn index(daemon: &Daemon, lun: &str) -> Result<UnitIndex, Problem> {
    let in_force = daemon.in_force();
    in_force.lun(lun).map(|(_, served)| served.index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::blame;
    use plane::{InitiatorPort, RegistrationReport, ReservationType};

    fn nexus(name: &str) -> NexusReport {
        NexusReport {
            initiator: InitiatorPort {
                transport: "iscsi",
                name: name.to_owned(),
                isid: "400000000000".to_owned(),
            },
            target_port: 1,
        }
    }

    fn registered(names: &[&str]) -> ReservationReport {
        let registration = |name: &&str| RegistrationReport {
            nexus: nexus(name),
            key: 0xab,
            since: None,
        };
        ReservationReport {
            registrations: names.iter().map(registration).collect(),
            ..ReservationReport::default()
        }
    }

    #[test]
    fn who_is_to_blame_is_said_by_name_and_type() {
        let kind = Some(ReservationType::WriteExclusive);
        let all = Some(ReservationType::ExclusiveAccessAllRegistrants);
        let two = registered(&["iqn.a", "iqn.b"]);
        let holder = Some(nexus("iqn.b"));
        for (report, expected) in [
            (registered(&[]), "nobody holds it or is registered"),
            (
                two.clone(),
                "nobody holds it, and iqn.a, iqn.b are registered",
            ),
            (
                ReservationReport {
                    kind,
                    holder,
                    ..two.clone()
                },
                "iqn.b holds it (write-exclusive)",
            ),
            (
                ReservationReport {
                    kind: all,
                    ..registered(&["iqn.a", "iqn.b", "iqn.c", "iqn.d", "iqn.a"])
                },
                "iqn.a, iqn.b, iqn.c and 1 more hold it (exclusive-access-all-registrants)",
            ),
            (
                ReservationReport {
                    reserved_by: Some((nexus("iqn.c"), None)),
                    ..registered(&[])
                },
                "iqn.c holds it (SPC-2 RESERVE)",
            ),
        ] {
            assert_eq!(blame(&report), expected);
        }
    }

    #[test]
    fn a_unit_without_reservations_has_none_to_show_and_holders_are_marked() {
        assert_eq!(summary(&registered(&[])), None);
        let report = ReservationReport {
            kind: Some(ReservationType::WriteExclusive),
            holder: Some(nexus("iqn.b")),
            is_kept: true,
            ..registered(&["iqn.a", "iqn.b"])
        };
        let shown = summary(&report).unwrap();
        assert_eq!((shown.registered, shown.registrations.len()), (2, 0));
        assert_eq!(shown.holder.unwrap().has_session, None);
        let here = BTreeSet::from(["iqn.a".to_owned()]);
        let shown = describe(&report, Some(&here));
        let row = |one: &view::Registration| (one.key.clone(), one.holder, one.nexus.has_session);
        let key = || "0x00000000000000ab".to_owned();
        assert_eq!(
            shown.registrations.iter().map(row).collect::<Vec<_>>(),
            [(key(), false, Some(true)), (key(), true, Some(false))]
        );
    }
}
