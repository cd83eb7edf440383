//! Reservations of units, as the administration sees them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use engine::UnitIndex;
use engine::agree::UnitOwner;
use front::InitiatorPort;
use scsi::PortName;
use scsi::reservation::{ReservationType, Reservations};

/// The reservations of a unit at one moment. A time is `None` where it is before this process.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ReservationReport {
    /// The type of the persistent reservation, if there is one.
    pub kind: Option<ReservationType>,
    /// Who holds it; `None` where all that are registered do.
    pub holder: Option<NexusReport>,
    /// Since when.
    pub since: Option<SystemTime>,
    /// Who is registered, in the order of registration.
    pub registrations: Vec<RegistrationReport>,
    /// Registrations and reservation outlive a restart.
    pub is_kept: bool,
    /// They could not be read, and commands that they could forbid are refused.
    pub is_lost: bool,
    /// Who holds the unit by RESERVE, and since when.
    pub reserved_by: Option<(NexusReport, Option<SystemTime>)>,
}

/// Both ends of an I_T nexus.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct NexusReport {
    /// The initiator port.
    pub initiator: InitiatorPort,
    /// The relative target port identifier.
    pub target_port: u16,
}

/// A registered I_T nexus.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RegistrationReport {
    /// Which.
    pub nexus: NexusReport,
    /// Its key.
    pub key: u64,
    /// Since when.
    pub since: Option<SystemTime>,
}

impl From<&PortName> for NexusReport {
    fn from(port: &PortName) -> Self {
        Self {
            initiator: InitiatorPort::of(&port.transport_id),
            target_port: port.target_port,
        }
    }
}

impl ReservationReport {
    /// What is in force. What was there `before` is as old as it was then.
    fn of(
        (reservations, reserved_by): (&Reservations, Option<&PortName>),
        before: Option<&Self>,
        now: SystemTime,
    ) -> Self {
        let now = before.map(|_| now);
        let before = before.cloned().unwrap_or_default();
        let kind = reservations.held_type();
        let holder: Option<NexusReport> = reservations.holder().map(Into::into);
        let is_as_before = (kind, &holder) == (before.kind, &before.holder);
        let since = if is_as_before { before.since } else { now };
        let known = before.registrations.iter();
        let known: HashMap<_, _> = known.map(|one| (&one.nexus, one.since)).collect();
        let registrations = reservations.registrations().iter().map(|one| {
            let nexus = NexusReport::from(&one.port);
            RegistrationReport {
                since: known.get(&nexus).map_or(now, |since| *since),
                key: one.key,
                nexus,
            }
        });
        let reserved_by = reserved_by.map(|port| {
            let nexus = NexusReport::from(port);
            let known = before.reserved_by.as_ref();
            let known = known.filter(|(known, _)| *known == nexus);
            let since = known.map_or(now, |(_, since)| *since);
            (nexus, since)
        });
        Self {
            since: since.filter(|_| kind.is_some()),
            registrations: registrations.collect(),
            is_kept: reservations.is_kept(),
            is_lost: reservations.lost_sense().is_some(),
            kind,
            holder,
            reserved_by,
        }
    }

    /// Who stands in the way of others: those who hold a reservation; without one all that are registered.
    pub fn holders(&self) -> Vec<&NexusReport> {
        let one = self.reserved_by.as_ref().map(|(nexus, _)| nexus);
        match one.or(self.holder.as_ref()) {
            Some(holder) => vec![holder],
            None => self.registrations.iter().map(|one| &one.nexus).collect(),
        }
    }
}

/// The reservations of all units. Each has one writer, the core that owns its unit, and is read without asking that
/// core.
#[derive(Debug, Default)]
pub(crate) struct Reserved(Mutex<HashMap<UnitIndex, Arc<ReservationReport>>>);

impl Reserved {
    /// Every entry is whole even if a thread panicked: it is changed in one step.
    fn lock(&self) -> MutexGuard<'_, HashMap<UnitIndex, Arc<ReservationReport>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn publish(&self, unit: UnitIndex, owner: &UnitOwner, now: SystemTime) {
        let before = self.lock().get(&unit).cloned();
        let of = (&owner.shared().reservations, owner.reserved_by());
        let report = ReservationReport::of(of, before.as_deref(), now);
        self.lock().insert(unit, Arc::new(report));
    }

    pub(crate) fn get(&self, unit: UnitIndex) -> Arc<ReservationReport> {
        self.lock().get(&unit).cloned().unwrap_or_default()
    }

    pub(crate) fn remove(&self, unit: UnitIndex) {
        self.lock().remove(&unit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use front::iscsi::transport_id;
    use iscsi::pdu::Isid;
    use scsi::Principal;
    use scsi::reservation::Surroundings;
    use std::time::Duration;

    fn port(name: &str) -> PortName {
        PortName {
            transport_id: transport_id(name, Isid([0x40, 0, 0, 0, 0, 1])),
            target_port: 1,
            principal: Principal::Nobody,
        }
    }

    /// PERSISTENT RESERVE OUT.
    fn out(to: &mut Reservations, from: &PortName, action: u8, keys: (u8, u8)) {
        let mut parameters = [0; 24];
        (parameters[7], parameters[15]) = keys;
        let surroundings = Surroundings {
            target_ports: &[1],
            initiator_ports: &[],
            can_persist: true,
        };
        let cdb = [0x5f, action, 0x01, 0, 0, 0, 0, 0, 24, 0];
        let done = to.persistent_reserve_out(from, &cdb, &parameters, &surroundings);
        assert!(done.is_ok(), "{done:?}");
    }

    #[test]
    fn what_was_there_keeps_its_time_and_of_what_was_restored_none_is_known() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let (a, b) = (port("iqn.a"), port("iqn.b"));
        let mut all = Reservations::default();
        out(&mut all, &a, 0, (0, 1));
        let restored = ReservationReport::of((&all, None), None, at(1));
        assert_eq!(restored.registrations[0].since, None);
        out(&mut all, &b, 0, (0, 2));
        out(&mut all, &a, 1, (1, 0));
        let held = ReservationReport::of((&all, None), Some(&restored), at(2));
        out(&mut all, &b, 6, (0, 3));
        let later = ReservationReport::of((&all, Some(&b)), Some(&held), at(3));
        let since = |report: &ReservationReport| {
            let registered = report.registrations.iter().map(|one| one.since);
            (report.since, registered.collect::<Vec<_>>())
        };
        assert_eq!(since(&held), (Some(at(2)), vec![None, Some(at(2))]));
        assert_eq!(
            since(&later),
            since(&held),
            "another key is no other registration"
        );
        assert_eq!(later.registrations[1].key, 3);
        assert_eq!(
            later.holder.as_ref().map(|it| &*it.initiator.name),
            Some("iqn.a")
        );
        assert_eq!(
            later.reserved_by,
            Some((NexusReport::from(&b), Some(at(3))))
        );
        // Another type, by way of a preemption by the other one.
        out(&mut all, &b, 4, (3, 1));
        let taken = ReservationReport::of((&all, None), Some(&later), at(4));
        assert_eq!(since(&taken), (Some(at(4)), vec![Some(at(2))]));
    }
}
