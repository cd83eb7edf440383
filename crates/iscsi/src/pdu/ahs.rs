//! Additional header segments: the rest of a long CDB and the read length of a bidirectional
//! command.
//!
//! Spec: RFC 7143 section 11.2.2.

use super::padded_length;

/// AHS type of the rest of a CDB longer than 16 bytes.
const TYPE_EXTENDED_CDB: u8 = 1;
/// AHS type of the expected read length of a bidirectional command.
const TYPE_READ_LENGTH: u8 = 2;
/// Longest CDB of SAM-5.
const CDB_MAX_BYTES: usize = 260;
/// How much of a CDB lies in the basic header segment.
const CDB_IN_BHS_BYTES: usize = 16;
/// Longest rest of a CDB in an additional header segment.
pub const EXTENDED_CDB_MAX_BYTES: usize = CDB_MAX_BYTES - CDB_IN_BHS_BYTES;

/// Why a chain of additional header segments is not acceptable.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AhsError {
    /// The segment announces more bytes than the chain has.
    #[error("AHS of {needed_bytes} bytes where {left_bytes} are left")]
    Truncated {
        /// Announced, header and padding included.
        needed_bytes: usize,
        /// Left in the chain.
        left_bytes: usize,
    },
    /// The length does not fit the type.
    #[error("AHS type {ahs_type} with AHSLength {length}")]
    BadLength {
        /// AHSType.
        ahs_type: u8,
        /// AHSLength.
        length: u16,
    },
    /// The type is not known, or came twice.
    #[error("AHS type {ahs_type} is unknown or repeated")]
    UnexpectedType {
        /// AHSType.
        ahs_type: u8,
    },
}

/// The additional header segments of a SCSI Command, parsed in place.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AdditionalHeaders<'a> {
    /// Bytes 16 and up of the CDB; empty when the CDB fits the basic header segment.
    pub extended_cdb: &'a [u8],
    /// Read length of a bidirectional command, in bytes.
    pub expected_read_length: Option<u32>,
}

impl<'a> AdditionalHeaders<'a> {
    /// Parses a whole chain, whose length is a multiple of four.
    ///
    /// # Errors
    ///
    /// Any segment that is cut short, unknown or repeated; the PDU is then to be rejected.
    pub fn parse(mut chain: &'a [u8]) -> Result<Self, AhsError> {
        let mut parsed = Self::default();
        while let Some((&[high, low, ahs_type], body)) = chain.split_first_chunk::<3>() {
            let length = u16::from_be_bytes([high, low]);
            let needed_bytes = padded_length(usize::from(length).saturating_add(3));
            let truncated = AhsError::Truncated {
                needed_bytes,
                left_bytes: chain.len(),
            };
            let content = body.get(..usize::from(length)).ok_or(truncated)?;
            match (ahs_type, content) {
                (TYPE_EXTENDED_CDB, [_reserved, cdb @ ..])
                    if parsed.extended_cdb.is_empty()
                        && !cdb.is_empty()
                        && cdb.len() <= EXTENDED_CDB_MAX_BYTES =>
                {
                    parsed.extended_cdb = cdb;
                }
                (TYPE_READ_LENGTH, &[_reserved, a, b, c, d])
                    if parsed.expected_read_length.is_none() =>
                {
                    parsed.expected_read_length = Some(u32::from_be_bytes([a, b, c, d]));
                }
                (TYPE_EXTENDED_CDB, _) if parsed.extended_cdb.is_empty() => {
                    return Err(AhsError::BadLength { ahs_type, length });
                }
                (TYPE_READ_LENGTH, _) if parsed.expected_read_length.is_none() => {
                    return Err(AhsError::BadLength { ahs_type, length });
                }
                _ => return Err(AhsError::UnexpectedType { ahs_type }),
            }
            chain = chain.get(needed_bytes..).ok_or(truncated)?;
        }
        if chain.is_empty() {
            Ok(parsed)
        } else {
            Err(AhsError::Truncated {
                needed_bytes: 4,
                left_bytes: chain.len(),
            })
        }
    }
}

/// Builds the AHS for the bytes of a CDB beyond the sixteenth, padded; `None` when there are none
/// or more than SAM allows.
#[must_use]
pub fn extended_cdb_ahs(cdb: &[u8]) -> Option<Vec<u8>> {
    let rest = cdb
        .get(CDB_IN_BHS_BYTES..)
        .filter(|rest| !rest.is_empty())?;
    if cdb.len() > CDB_MAX_BYTES {
        return None;
    }
    let length = u16::try_from(rest.len().saturating_add(1)).ok()?;
    let mut ahs = Vec::with_capacity(padded_length(rest.len().saturating_add(4)));
    ahs.extend_from_slice(&length.to_be_bytes());
    ahs.extend_from_slice(&[TYPE_EXTENDED_CDB, 0]);
    ahs.extend_from_slice(rest);
    ahs.resize(padded_length(ahs.len()), 0);
    Some(ahs)
}

/// Builds the AHS with the read length of a bidirectional command.
#[must_use]
pub const fn read_length_ahs(expected_read_length: u32) -> [u8; 8] {
    let [a, b, c, d] = expected_read_length.to_be_bytes();
    [0, 5, TYPE_READ_LENGTH, 0, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_parse_in_either_order() {
        let cdb: Vec<u8> = (0..32).collect();
        let long = extended_cdb_ahs(&cdb).unwrap();
        assert_eq!(long[..4], [0x00, 0x11, 0x01, 0x00]);
        assert_eq!(long.len(), 20);
        let read = read_length_ahs(0x0102_0304);
        assert_eq!(read, [0x00, 0x05, 0x02, 0x00, 0x01, 0x02, 0x03, 0x04]);
        for chain in [
            [&long[..], &read[..]].concat(),
            [&read[..], &long[..]].concat(),
        ] {
            let parsed = AdditionalHeaders::parse(&chain).unwrap();
            assert_eq!(parsed.extended_cdb, &cdb[16..]);
            assert_eq!(parsed.expected_read_length, Some(0x0102_0304));
        }
        assert_eq!(
            AdditionalHeaders::parse(&[]),
            Ok(AdditionalHeaders::default())
        );
    }

    #[test]
    fn a_cdb_that_ends_within_a_word_is_padded_and_keeps_its_length() {
        let cdb = [0x7f; 18];
        let ahs = extended_cdb_ahs(&cdb).unwrap();
        assert_eq!(ahs, [0x00, 0x03, 0x01, 0x00, 0x7f, 0x7f, 0x00, 0x00]);
        assert_eq!(
            AdditionalHeaders::parse(&ahs).unwrap().extended_cdb,
            [0x7f; 2]
        );
        assert_eq!(extended_cdb_ahs(&[0; 16]), None);
        assert!(extended_cdb_ahs(&[0; 260]).is_some());
        assert_eq!(extended_cdb_ahs(&[0; 261]), None);
    }

    #[test]
    fn a_lying_chain_is_refused() {
        #[rustfmt::skip]
        let cases = [
            (&[0x00, 0x05, 0x02, 0x00][..], AhsError::Truncated { needed_bytes: 8, left_bytes: 4 }),
            (&[0xff, 0xff, 0x01, 0x00], AhsError::Truncated { needed_bytes: 65540, left_bytes: 4 }),
            (&[0x00, 0x01, 0x01, 0x00], AhsError::BadLength { ahs_type: 1, length: 1 }),
            (&[0x00, 0x00, 0x01, 0x00], AhsError::BadLength { ahs_type: 1, length: 0 }),
            (&[0x00, 0x01, 0x02, 0x00], AhsError::BadLength { ahs_type: 2, length: 1 }),
            (&[0x00, 0x01, 0x03, 0x00], AhsError::UnexpectedType { ahs_type: 3 }),
            (&[0, 5, 2, 0, 0, 0, 0, 1, 0, 5, 2, 0, 0, 0, 0, 1], AhsError::UnexpectedType { ahs_type: 2 }),
            (&[0, 1], AhsError::Truncated { needed_bytes: 4, left_bytes: 2 }),
        ];
        for (chain, error) in cases {
            assert_eq!(AdditionalHeaders::parse(chain), Err(error), "{chain:02x?}");
        }
    }
}
