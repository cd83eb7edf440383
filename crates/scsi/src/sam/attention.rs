//! Unit attentions: what a logical unit must report to each I_T nexus before it goes on.

use crate::sam::sense::{Sense, SenseCode, SenseKey};

/// A condition that every I_T nexus it concerns learns of once.
///
/// Spec: SAM-6, Unit attention conditions; SPC-5, UNIT ATTENTION sense key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum UnitAttention {
    /// 29/00: the nexus is new to this unit.
    PowerOnOrReset,
    /// 29/01: the target has started.
    PowerOn,
    /// 29/02: a target reset.
    TargetReset,
    /// 29/03: a logical unit reset.
    LogicalUnitReset,
    /// 29/07: the session of this nexus was lost or reinstated.
    NexusLoss,
    /// 28/00: a medium is there, or the unit was started.
    NotReadyToReady,
    /// 2A/01: another nexus changed mode parameters.
    ModeParametersChanged,
    /// 2A/03: another nexus cleared all registrations.
    ReservationsPreempted,
    /// 2A/04: the reservation this nexus took part in was released.
    ReservationsReleased,
    /// 2A/05: the registration of this nexus was removed.
    RegistrationsPreempted,
    /// 2A/09: the unit grew or shrank.
    CapacityChanged,
    /// 38/07: little is left of the space that the unit may take.
    ///
    /// Spec: SBC-4, Thin provisioning soft threshold notification.
    SpaceLow,
    /// 3F/03: vendor, product or revision are others.
    InquiryDataChanged,
    /// 5A/01: an administrator wants the medium, whose removal the nexus prevents.
    MediumRemovalRequest,
    /// 3F/0E: units came or went.
    ReportedLunsChanged,
    /// A device of others has said so to another nexus.
    OfDevice(SenseCode),
    /// It has said so of an earlier command, in answer to one of another nexus. Reported as a deferred error.
    ///
    /// Spec: SPC-5, Deferred errors.
    Deferred(SenseKey, SenseCode),
}

/// More conditions than wait for one nexus, unless a device has no end of them: it gets a power on instead of them all.
const QUEUE_MAX: usize = 32;

impl UnitAttention {
    /// Its sense code.
    pub const fn code(self) -> SenseCode {
        match self {
            Self::PowerOnOrReset => SenseCode::POWER_ON_RESET_OR_BUS_DEVICE_RESET,
            Self::PowerOn => SenseCode::POWER_ON_OCCURRED,
            Self::TargetReset => SenseCode::SCSI_BUS_RESET_OCCURRED,
            Self::LogicalUnitReset => SenseCode::BUS_DEVICE_RESET_FUNCTION_OCCURRED,
            Self::NexusLoss => SenseCode::I_T_NEXUS_LOSS_OCCURRED,
            Self::NotReadyToReady => SenseCode::NOT_READY_TO_READY_CHANGE,
            Self::ModeParametersChanged => SenseCode::MODE_PARAMETERS_CHANGED,
            Self::ReservationsPreempted => SenseCode::RESERVATIONS_PREEMPTED,
            Self::ReservationsReleased => SenseCode::RESERVATIONS_RELEASED,
            Self::RegistrationsPreempted => SenseCode::REGISTRATIONS_PREEMPTED,
            Self::CapacityChanged => SenseCode::CAPACITY_DATA_HAS_CHANGED,
            Self::SpaceLow => SenseCode::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED,
            Self::InquiryDataChanged => SenseCode::INQUIRY_DATA_HAS_CHANGED,
            Self::MediumRemovalRequest => SenseCode::OPERATOR_MEDIUM_REMOVAL_REQUEST,
            Self::ReportedLunsChanged => SenseCode::REPORTED_LUNS_DATA_HAS_CHANGED,
            Self::OfDevice(code) | Self::Deferred(_, code) => code,
        }
    }

    /// Its sense data.
    pub const fn sense(self) -> Sense {
        if let Self::Deferred(key, code) = self {
            return Sense::new(key, code).deferred();
        }
        Sense::new(SenseKey::UnitAttention, self.code())
    }

    /// True for the 29/xx class: it makes everything older moot.
    pub const fn is_reset(self) -> bool {
        self.code().asc == 0x29 && !matches!(self, Self::Deferred(..))
    }

    /// Among resets the smaller rank wins.
    ///
    /// Spec: SAM-6, Unit attention condition precedence.
    const fn reset_rank(self) -> u8 {
        match self {
            Self::PowerOnOrReset | Self::PowerOn | Self::OfDevice(_) => 0,
            Self::TargetReset => 1,
            Self::LogicalUnitReset => 2,
            Self::NexusLoss => 3,
            Self::NotReadyToReady
            | Self::ModeParametersChanged
            | Self::ReservationsPreempted
            | Self::ReservationsReleased
            | Self::RegistrationsPreempted
            | Self::CapacityChanged
            | Self::SpaceLow
            | Self::InquiryDataChanged
            | Self::MediumRemovalRequest
            | Self::ReportedLunsChanged
            | Self::Deferred(..) => u8::MAX,
        }
    }
}

/// The conditions that are still to be reported to one I_T nexus, in that order.
///
/// Holds each condition at most once and at most one reset, so its size is bounded by the number
/// of conditions there are.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AttentionQueue(Vec<UnitAttention>);

impl AttentionQueue {
    /// Adds a condition. A reset drops what is older, unless it is a stronger reset that already
    /// waits; a repeated condition keeps its place.
    ///
    /// Spec: SAM-6, Unit attention condition precedence and queuing.
    pub fn push(&mut self, attention: UnitAttention) {
        if self.0.contains(&attention) && !attention.is_reset() {
            return;
        }
        if !attention.is_reset() && self.0.len() < QUEUE_MAX {
            self.0.push(attention);
            return;
        }
        let attention = match attention.is_reset() {
            true => attention,
            false => UnitAttention::PowerOnOrReset,
        };
        let waiting = self.0.first().copied().filter(|first| first.is_reset());
        let strongest = match waiting {
            Some(waiting) if waiting.reset_rank() <= attention.reset_rank() => waiting,
            Some(_) | None => attention,
        };
        self.0.clear();
        self.0.push(strongest);
    }

    /// Takes the condition that is to be reported next.
    pub fn pop(&mut self) -> Option<UnitAttention> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    /// Takes one condition out, wherever it stands: something else has reported it.
    pub fn remove(&mut self, attention: UnitAttention) {
        self.0.retain(|&waiting| waiting != attention);
    }

    /// The condition that is to be reported next.
    pub fn first(&self) -> Option<UnitAttention> {
        self.0.first().copied()
    }

    /// True when nothing waits.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::UnitAttention as Ua;
    use super::*;

    fn told(pushed: &[Ua]) -> Vec<Ua> {
        let mut queue = AttentionQueue::default();
        pushed.iter().for_each(|&ua| queue.push(ua));
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn conditions_are_told_in_order_of_arrival_and_once() {
        assert_eq!(
            told(&[
                Ua::CapacityChanged,
                Ua::ModeParametersChanged,
                Ua::CapacityChanged
            ]),
            [Ua::CapacityChanged, Ua::ModeParametersChanged]
        );
    }

    #[test]
    fn a_reset_drops_what_is_older_and_keeps_what_comes_later() {
        assert_eq!(
            told(&[
                Ua::ModeParametersChanged,
                Ua::LogicalUnitReset,
                Ua::CapacityChanged
            ]),
            [Ua::LogicalUnitReset, Ua::CapacityChanged]
        );
    }

    #[test]
    fn the_stronger_reset_wins_whichever_comes_first() {
        let by_strength = [
            Ua::PowerOn,
            Ua::TargetReset,
            Ua::LogicalUnitReset,
            Ua::NexusLoss,
        ];
        for (n, &strong) in by_strength.iter().enumerate() {
            for &weak in &by_strength[n + 1..] {
                assert_eq!(told(&[strong, weak]), [strong], "{strong:?} then {weak:?}");
                assert_eq!(told(&[weak, strong]), [strong], "{weak:?} then {strong:?}");
            }
        }
    }

    #[test]
    fn sense_is_unit_attention_with_the_code_of_the_condition() {
        let sense = Ua::ReportedLunsChanged.sense();
        assert_eq!(&sense.encode(false)[2..3], &[0x06]);
        assert_eq!(&sense.encode(false)[12..14], &[0x3f, 0x0e]);
    }
}
