//! The one table from a failure of the store to the status and sense for the initiator.

use store::IoFailure;

use crate::sam::sense::{Sense, SenseCode, SenseKey};

/// What the failed request was for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    /// Data was to be read.
    Read,
    /// Data was to be written, zeroed or unmapped.
    Write,
    /// Earlier writes were to be made durable.
    Flush,
    /// What the command has written was to be made durable.
    FlushOwn,
}

/// Sense data for a failure. `block_bytes` turns its byte offset into the LBA of INFORMATION.
///
/// A latched flush is a deferred error without INFORMATION: writes that were answered GOOD are
/// lost and nobody knows which.
///
/// Spec: SBC-4, Error reporting; SPC-5, Deferred error reporting.
pub(crate) fn sense_of(failure: &IoFailure, purpose: Purpose, block_bytes: u32) -> Sense {
    let at = |offset: u64, sense: Sense| {
        sense.with_information(offset.checked_div(u64::from(block_bytes)).unwrap_or(0))
    };
    let medium = |code| Sense::new(SenseKey::MediumError, code);
    let hardware = |code| Sense::new(SenseKey::HardwareError, code);
    match failure {
        IoFailure::Medium { offset } => match purpose {
            Purpose::Read => at(*offset, medium(SenseCode::UNRECOVERED_READ_ERROR)),
            Purpose::Write => at(*offset, medium(SenseCode::WRITE_ERROR)),
            Purpose::Flush | Purpose::FlushOwn => medium(SenseCode::WRITE_ERROR),
        },
        // The blocks are gone with the end of the file: reading them again will not help.
        IoFailure::Truncated { offset } => match purpose {
            Purpose::Read => at(*offset, medium(SenseCode::UNRECOVERED_READ_ERROR)),
            Purpose::Write | Purpose::Flush | Purpose::FlushOwn => {
                at(*offset, medium(SenseCode::WRITE_ERROR))
            }
        },
        IoFailure::NoSpace { .. } => Sense::new(
            SenseKey::DataProtect,
            SenseCode::SPACE_ALLOCATION_FAILED_WRITE_PROTECT,
        ),
        IoFailure::FlushLatched => medium(SenseCode::WRITE_ERROR).deferred(),
        // Reported once, so it must reach the initiator: Linux repeats commands after a deferred error and
        // after a medium error, and the next flush is good.
        IoFailure::CacheLost => hardware(SenseCode::WRITE_ERROR),
        IoFailure::ReadOnly => Sense::new(SenseKey::DataProtect, SenseCode::WRITE_PROTECTED),
        // No effect yet, and not by the initiator's wish, else nobody would ask: it may retry.
        IoFailure::Cancelled => Sense::new(
            SenseKey::AbortedCommand,
            SenseCode::NO_ADDITIONAL_SENSE_INFORMATION,
        ),
        IoFailure::Hardware { .. } => hardware(SenseCode::INTERNAL_TARGET_FAILURE),
        // It passes, so the initiator is to try again: a medium error would make it give the blocks up.
        IoFailure::NotReady => {
            Sense::new(SenseKey::NotReady, SenseCode::LOGICAL_UNIT_BECOMING_READY)
        }
        IoFailure::HeldElsewhere => held_elsewhere(),
        // Spec: SBC-4, COMPARE AND WRITE: INFORMATION is the offset in the data.
        IoFailure::Miscompare { offset } => Sense::new(
            SenseKey::Miscompare,
            SenseCode::MISCOMPARE_DURING_VERIFY_OPERATION,
        )
        .with_information(*offset),
    }
}

/// Another client has the medium. No initiator repeats this by itself, as it does what becomes ready: Linux and its
/// multipath then take the path for failed and use another one. It is what arrays report on a path to a controller that
/// has the unit not. No state of target ports is claimed, which REPORT TARGET PORT GROUPS would have to report, too.
pub(crate) const fn held_elsewhere() -> Sense {
    Sense::new(SenseKey::NotReady, SenseCode::MANUAL_INTERVENTION_REQUIRED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(failure: &IoFailure, purpose: Purpose) -> [u8; 18] {
        let data = sense_of(failure, purpose, 512).encode(false);
        <[u8; 18]>::try_from(&data[..]).unwrap()
    }

    #[test]
    fn each_failure_has_its_sense() {
        use Purpose::{Flush, Read, Write};
        let medium = IoFailure::Medium { offset: 1024 };
        let truncated = IoFailure::Truncated { offset: 1024 };
        let no_space = IoFailure::NoSpace { offset: 1024 };
        let miscompare = IoFailure::Miscompare { offset: 7 };
        let table: &[(&IoFailure, Purpose, u8, [u8; 3])] = &[
            (&medium, Read, 0xf0, [0x03, 0x11, 0x00]),
            (&medium, Write, 0xf0, [0x03, 0x0c, 0x00]),
            (&medium, Flush, 0x70, [0x03, 0x0c, 0x00]),
            (&truncated, Read, 0xf0, [0x03, 0x11, 0x00]),
            (&truncated, Write, 0xf0, [0x03, 0x0c, 0x00]),
            (&no_space, Write, 0x70, [0x07, 0x27, 0x07]),
            (&IoFailure::FlushLatched, Flush, 0x71, [0x03, 0x0c, 0x00]),
            (&IoFailure::FlushLatched, Write, 0x71, [0x03, 0x0c, 0x00]),
            (&IoFailure::CacheLost, Flush, 0x70, [0x04, 0x0c, 0x00]),
            (&IoFailure::ReadOnly, Write, 0x70, [0x07, 0x27, 0x00]),
            (&IoFailure::Cancelled, Read, 0x70, [0x0b, 0x00, 0x00]),
            (&IoFailure::NotReady, Read, 0x70, [0x02, 0x04, 0x01]),
            (&IoFailure::NotReady, Write, 0x70, [0x02, 0x04, 0x01]),
            (&IoFailure::NotReady, Flush, 0x70, [0x02, 0x04, 0x01]),
            (&IoFailure::HeldElsewhere, Read, 0x70, [0x02, 0x04, 0x03]),
            (&IoFailure::HeldElsewhere, Flush, 0x70, [0x02, 0x04, 0x03]),
            (&miscompare, Write, 0xf0, [0x0e, 0x1d, 0x00]),
            (
                &IoFailure::Hardware { errno: 5 },
                Read,
                0x70,
                [0x04, 0x44, 0x00],
            ),
        ];
        for (failure, purpose, response, [key, asc, ascq]) in table {
            let sense = fixed(failure, *purpose);
            let got = [sense[0], sense[2], sense[12], sense[13]];
            assert_eq!(got, [*response, *key, *asc, *ascq], "{failure} {purpose:?}");
        }
    }

    #[test]
    fn information_is_the_block_of_the_failing_byte() {
        let sense = fixed(&IoFailure::Medium { offset: 1535 }, Purpose::Read);
        assert_eq!(sense[3..7], [0, 0, 0, 2]);
        let sense = fixed(&IoFailure::Miscompare { offset: 7 }, Purpose::Write);
        assert_eq!(sense[3..7], [0, 0, 0, 7]);
    }
}
