//! The rule about reservations that nobody is left to release.

use api::event::{Finding, Severity};

use super::{Facts, of_lun};

/// A unit with a reservation in the way of others, and nobody of its holders is there.
#[derive(Clone, Debug)]
pub(super) struct Stranded {
    pub(super) lun: String,
    /// The initiator that met the last conflict.
    pub(super) initiator: String,
    /// Who holds it.
    pub(super) blame: String,
}

pub(super) fn stranded_reservations(facts: &Facts<'_>) -> Vec<Finding> {
    let findings = facts.stranded.iter().map(|one| {
        let Stranded { lun, initiator, blame } = one;
        let message = format!(
            "commands of {initiator} end with RESERVATION CONFLICT: {blame}, without a session that could release it"
        );
        let remedy = format!(
            "start that initiator, have another one preempt it, or end it with tarn lun reservation clear {lun}"
        );
        of_lun(Severity::Warning, "reservation-stranded", lun, message, remedy)
    });
    findings.collect()
}
