//! What the end of a command is to a client.

use nbd::ServerError;
use scsi::{SenseCode, SenseKey, Status};

/// What is to be done about a command that did not end well.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// It had no effect, and may be given again: the protocol has no word for a unit attention, and clients give up
    /// at an error where initiators try again. If it cannot be, the client is answered this.
    Again(ServerError),
    /// The client is answered this.
    Fail(ServerError),
}

/// Key and code of sense data in either format.
fn key_and_code(sense: &[u8]) -> Option<(u8, SenseCode)> {
    let (key, asc, ascq) = match sense.first()? & 0x7f {
        0x72 | 0x73 => (sense.get(1)?, sense.get(2)?, sense.get(3)?),
        _ => (sense.get(2)?, sense.get(12)?, sense.get(13)?),
    };
    let (asc, ascq) = (*asc, *ascq);
    Some((key & 0x0f, SenseCode { asc, ascq }))
}

/// Whether sense data report that writes which were answered may be lost.
pub(super) fn is_report(sense: &[u8]) -> bool {
    let lost = (SenseKey::HardwareError as u8, SenseCode::WRITE_ERROR);
    key_and_code(sense) == Some(lost)
}

/// The one table from the end of a command to an error of the protocol.
pub(super) fn verdict(status: Status, sense: &[u8], changes: bool) -> Verdict {
    let error = match status {
        Status::Good | Status::ConditionMet | Status::AcaActive => ServerError::IO,
        // Another nexus holds a reservation.
        Status::ReservationConflict => ServerError::NOT_PERMITTED,
        Status::Busy | Status::TaskSetFull => return Verdict::Again(ServerError::NO_MEMORY),
        Status::TaskAborted => return Verdict::Again(ServerError::IO),
        Status::CheckCondition if is_report(sense) => ServerError::CACHE_LOST,
        Status::CheckCondition => match key_and_code(sense) {
            Some((key, _)) if key == SenseKey::UnitAttention as u8 => {
                return Verdict::Again(ServerError::IO);
            }
            Some((_, SenseCode::SPACE_ALLOCATION_FAILED_WRITE_PROTECT)) => ServerError::NO_SPACE,
            Some((_, SenseCode::LBA_OUT_OF_RANGE)) if changes => ServerError::NO_SPACE,
            Some((_, SenseCode::INVALID_COMMAND_OPERATION_CODE)) => ServerError::NOT_SUPPORTED,
            Some((key, _)) if key == SenseKey::DataProtect as u8 => ServerError::NOT_PERMITTED,
            Some((key, _)) if key == SenseKey::IllegalRequest as u8 => ServerError::INVALID,
            Some(_) | None => ServerError::IO,
        },
    };
    Verdict::Fail(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use scsi::Sense;

    #[test]
    fn each_end_of_a_command_has_its_error() {
        use SenseKey::{
            AbortedCommand, DataProtect, HardwareError, IllegalRequest, MediumError, NotReady,
            UnitAttention,
        };
        let (fail, again) = (Verdict::Fail, Verdict::Again);
        #[rustfmt::skip]
        let table = [
            (UnitAttention, SenseCode::POWER_ON_OCCURRED, again(ServerError::IO)),
            (UnitAttention, SenseCode::CAPACITY_DATA_HAS_CHANGED, again(ServerError::IO)),
            (NotReady, SenseCode::MEDIUM_NOT_PRESENT, fail(ServerError::IO)),
            (MediumError, SenseCode::UNRECOVERED_READ_ERROR, fail(ServerError::IO)),
            (HardwareError, SenseCode::INTERNAL_TARGET_FAILURE, fail(ServerError::IO)),
            (HardwareError, SenseCode::WRITE_ERROR, fail(ServerError::CACHE_LOST)),
            (MediumError, SenseCode::WRITE_ERROR, fail(ServerError::IO)),
            (AbortedCommand, SenseCode::NO_ADDITIONAL_SENSE_INFORMATION, fail(ServerError::IO)),
            (DataProtect, SenseCode::WRITE_PROTECTED, fail(ServerError::NOT_PERMITTED)),
            (DataProtect, SenseCode::SPACE_ALLOCATION_FAILED_WRITE_PROTECT, fail(ServerError::NO_SPACE)),
            (IllegalRequest, SenseCode::LBA_OUT_OF_RANGE, fail(ServerError::NO_SPACE)),
            (IllegalRequest, SenseCode::INVALID_FIELD_IN_CDB, fail(ServerError::INVALID)),
            (IllegalRequest, SenseCode::INVALID_COMMAND_OPERATION_CODE, fail(ServerError::NOT_SUPPORTED)),
        ];
        for (key, code, expected) in table {
            for descriptor in [false, true] {
                let sense = Sense::new(key, code).encode(descriptor);
                let got = verdict(Status::CheckCondition, &sense, true);
                assert_eq!(got, expected, "{key:?} {code:?}");
            }
        }
        let sense = Sense::illegal_request(SenseCode::LBA_OUT_OF_RANGE).encode(false);
        let read = verdict(Status::CheckCondition, &sense, false);
        assert_eq!(read, fail(ServerError::INVALID));
        for (status, expected) in [
            (
                Status::ReservationConflict,
                fail(ServerError::NOT_PERMITTED),
            ),
            (Status::Busy, again(ServerError::NO_MEMORY)),
            (Status::TaskSetFull, again(ServerError::NO_MEMORY)),
            (Status::TaskAborted, again(ServerError::IO)),
            (Status::CheckCondition, fail(ServerError::IO)),
        ] {
            assert_eq!(verdict(status, &[], true), expected, "{status:?}");
        }
    }
}
