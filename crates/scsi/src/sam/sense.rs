//! Sense data: what a logical unit says beside CHECK CONDITION.
//!
//! Knows the two formats and the codes this project uses. It does not know which failure leads
//! to which code; that is one table, in `failure.rs`.

use std::ops::Deref;

/// The class of a condition.
///
/// Spec: SPC-5, Sense key and additional sense code definitions.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum SenseKey {
    /// Nothing to report.
    NoSense = 0x0,
    /// It went well after some effort.
    RecoveredError = 0x1,
    /// The unit cannot be accessed now.
    NotReady = 0x2,
    /// The medium is bad.
    MediumError = 0x3,
    /// Something that no retry will repair.
    HardwareError = 0x4,
    /// The command or its parameters are wrong.
    IllegalRequest = 0x5,
    /// Something changed that the initiator must know of.
    UnitAttention = 0x6,
    /// The access is not permitted on these blocks.
    DataProtect = 0x7,
    /// The unit gave the command up; the initiator may retry it.
    AbortedCommand = 0xb,
    /// Compared data differ.
    Miscompare = 0xe,
}

/// An additional sense code with its qualifier.
///
/// Spec: SPC-5, ASC and ASCQ assignments.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SenseCode {
    /// ADDITIONAL SENSE CODE.
    pub asc: u8,
    /// ADDITIONAL SENSE CODE QUALIFIER.
    pub ascq: u8,
}

macro_rules! sense_codes {
    ($($name:ident = $asc:literal / $ascq:literal;)*) => {
        impl SenseCode {
            $(
                #[doc = concat!("`", stringify!($asc), "/", stringify!($ascq), "`.")]
                pub const $name: Self = Self { asc: $asc, ascq: $ascq };
            )*
        }

        /// Every code with its name, for the test against the published list.
        #[cfg(test)]
        const ALL_CODES: &[(&str, SenseCode)] =
            &[$((stringify!($name), SenseCode::$name)),*];
    };
}

sense_codes! {
    NO_ADDITIONAL_SENSE_INFORMATION = 0x00 / 0x00;
    LOGICAL_UNIT_NOT_READY = 0x04 / 0x00;
    LOGICAL_UNIT_BECOMING_READY = 0x04 / 0x01;
    INITIALIZING_COMMAND_REQUIRED = 0x04 / 0x02;
    MANUAL_INTERVENTION_REQUIRED = 0x04 / 0x03;
    WRITE_ERROR = 0x0c / 0x00;
    UNEXPECTED_UNSOLICITED_DATA = 0x0c / 0x0c;
    NOT_ENOUGH_UNSOLICITED_DATA = 0x0c / 0x0d;
    INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT = 0x0e / 0x03;
    UNRECOVERED_READ_ERROR = 0x11 / 0x00;
    PARAMETER_LIST_LENGTH_ERROR = 0x1a / 0x00;
    MISCOMPARE_DURING_VERIFY_OPERATION = 0x1d / 0x00;
    INVALID_COMMAND_OPERATION_CODE = 0x20 / 0x00;
    LBA_OUT_OF_RANGE = 0x21 / 0x00;
    INVALID_FIELD_IN_CDB = 0x24 / 0x00;
    LOGICAL_UNIT_NOT_SUPPORTED = 0x25 / 0x00;
    INVALID_FIELD_IN_PARAMETER_LIST = 0x26 / 0x00;
    INVALID_RELEASE_OF_PERSISTENT_RESERVATION = 0x26 / 0x04;
    WRITE_PROTECTED = 0x27 / 0x00;
    LOGICAL_UNIT_SOFTWARE_WRITE_PROTECTED = 0x27 / 0x02;
    SPACE_ALLOCATION_FAILED_WRITE_PROTECT = 0x27 / 0x07;
    NOT_READY_TO_READY_CHANGE = 0x28 / 0x00;
    POWER_ON_RESET_OR_BUS_DEVICE_RESET = 0x29 / 0x00;
    POWER_ON_OCCURRED = 0x29 / 0x01;
    SCSI_BUS_RESET_OCCURRED = 0x29 / 0x02;
    BUS_DEVICE_RESET_FUNCTION_OCCURRED = 0x29 / 0x03;
    I_T_NEXUS_LOSS_OCCURRED = 0x29 / 0x07;
    MODE_PARAMETERS_CHANGED = 0x2a / 0x01;
    LOG_PARAMETERS_CHANGED = 0x2a / 0x02;
    RESERVATIONS_PREEMPTED = 0x2a / 0x03;
    RESERVATIONS_RELEASED = 0x2a / 0x04;
    REGISTRATIONS_PREEMPTED = 0x2a / 0x05;
    CAPACITY_DATA_HAS_CHANGED = 0x2a / 0x09;
    CANNOT_READ_MEDIUM_INCOMPATIBLE_FORMAT = 0x30 / 0x02;
    THIN_PROVISIONING_SOFT_THRESHOLD_REACHED = 0x38 / 0x07;
    SAVING_PARAMETERS_NOT_SUPPORTED = 0x39 / 0x00;
    MEDIUM_NOT_PRESENT = 0x3a / 0x00;
    MEDIUM_NOT_PRESENT_TRAY_CLOSED = 0x3a / 0x01;
    MEDIUM_NOT_PRESENT_TRAY_OPEN = 0x3a / 0x02;
    INQUIRY_DATA_HAS_CHANGED = 0x3f / 0x03;
    REPORTED_LUNS_DATA_HAS_CHANGED = 0x3f / 0x0e;
    INTERNAL_TARGET_FAILURE = 0x44 / 0x00;
    PROTOCOL_SERVICE_CRC_ERROR = 0x47 / 0x05;
    INVALID_MESSAGE_ERROR = 0x49 / 0x00;
    MEDIUM_REMOVAL_PREVENTED = 0x53 / 0x02;
    INSUFFICIENT_REGISTRATION_RESOURCES = 0x55 / 0x04;
    OPERATOR_MEDIUM_REMOVAL_REQUEST = 0x5a / 0x01;
    ILLEGAL_MODE_FOR_THIS_TRACK = 0x64 / 0x00;
    COPY_PROTECTION_KEY_NOT_PRESENT = 0x6f / 0x01;
}

/// The sense-key-specific field, where this project uses it.
///
/// Spec: SPC-5, Sense key specific sense data descriptor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SenseKeySpecific {
    /// The field of the CDB or of the parameter list that is wrong (ILLEGAL REQUEST).
    FieldPointer {
        /// True for a byte of the CDB, false for one of the parameter list.
        in_cdb: bool,
        /// The byte where the field starts.
        byte: u16,
        /// The most significant bit of the field in that byte, when it is not the whole byte.
        bit: Option<u8>,
    },
}

/// What is wrong, as a value; [`Sense::encode`] lays it out for the wire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sense {
    /// The class.
    pub key: SenseKey,
    /// The reason.
    pub code: SenseCode,
    /// About an earlier command that was answered GOOD, not about this one.
    pub is_deferred: bool,
    /// INFORMATION: for a medium error or a miscompare, what the command set says.
    pub information: Option<u64>,
    /// More about the key.
    pub specific: Option<SenseKeySpecific>,
}

/// Response codes; spec: SPC-5, Sense data overview.
const FIXED_CURRENT: u8 = 0x70;
const FIXED_DEFERRED: u8 = 0x71;
const DESCRIPTOR_CURRENT: u8 = 0x72;
const DESCRIPTOR_DEFERRED: u8 = 0x73;

const FIXED_LENGTH: usize = 18;
const INFORMATION_DESCRIPTOR: [u8; 4] = [0x00, 0x0a, 0x80, 0x00];
const SPECIFIC_DESCRIPTOR: [u8; 4] = [0x02, 0x06, 0x00, 0x00];
/// Header, information descriptor, sense-key-specific descriptor.
const ENCODED_MAX: usize = 8 + 12 + 8;

impl Sense {
    /// Sense data with key and code only.
    pub const fn new(key: SenseKey, code: SenseCode) -> Self {
        Self {
            key,
            code,
            is_deferred: false,
            information: None,
            specific: None,
        }
    }

    /// ILLEGAL REQUEST with this code.
    pub const fn illegal_request(code: SenseCode) -> Self {
        Self::new(SenseKey::IllegalRequest, code)
    }

    /// 5/24/00 that points at the bit (7 is the most significant) of the CDB.
    pub const fn invalid_field_in_cdb(byte: u16, bit: u8) -> Self {
        Self::pointing(SenseCode::INVALID_FIELD_IN_CDB, true, byte, Some(bit))
    }

    /// 5/24/00 that points at a field of the CDB which starts a byte.
    pub const fn invalid_byte_in_cdb(byte: u16) -> Self {
        Self::pointing(SenseCode::INVALID_FIELD_IN_CDB, true, byte, None)
    }

    /// 5/26/00 that points at the bit (7 is the most significant) of the parameter list.
    pub const fn invalid_field_in_parameters(byte: u16, bit: u8) -> Self {
        let code = SenseCode::INVALID_FIELD_IN_PARAMETER_LIST;
        Self::pointing(code, false, byte, Some(bit))
    }

    /// 5/26/00 that points at a field of the parameter list which starts a byte.
    pub const fn invalid_byte_in_parameters(byte: u16) -> Self {
        let code = SenseCode::INVALID_FIELD_IN_PARAMETER_LIST;
        Self::pointing(code, false, byte, None)
    }

    const fn pointing(code: SenseCode, in_cdb: bool, byte: u16, bit: Option<u8>) -> Self {
        let mut sense = Self::illegal_request(code);
        sense.specific = Some(SenseKeySpecific::FieldPointer { in_cdb, byte, bit });
        sense
    }

    /// The same with an INFORMATION field.
    pub const fn with_information(mut self, information: u64) -> Self {
        self.information = Some(information);
        self
    }

    /// The same about an earlier command.
    pub const fn deferred(mut self) -> Self {
        self.is_deferred = true;
        self
    }

    /// Lays the sense data out, in descriptor format (D_SENSE, or DESC of REQUEST SENSE) or fixed.
    ///
    /// The fixed format has 32 bits for INFORMATION; a larger value is left out there, as the
    /// VALID bit allows.
    ///
    /// Spec: SPC-5, Fixed format sense data, and Descriptor format sense data.
    pub fn encode(&self, descriptor: bool) -> SenseData {
        let mut data = SenseData {
            bytes: [0; ENCODED_MAX],
            len: 0,
        };
        if descriptor {
            self.encode_descriptors(&mut data);
        } else {
            self.encode_fixed(&mut data);
        }
        data
    }

    fn encode_fixed(&self, data: &mut SenseData) {
        let response = if self.is_deferred {
            FIXED_DEFERRED
        } else {
            FIXED_CURRENT
        };
        let information = self.information.and_then(|lba| u32::try_from(lba).ok());
        let valid = if information.is_some() { 0x80 } else { 0x00 };
        data.push(&[response | valid, 0x00, self.key as u8]);
        data.push(&information.unwrap_or(0).to_be_bytes());
        // ADDITIONAL SENSE LENGTH counts what follows it.
        data.push(&[0x0a, 0, 0, 0, 0, self.code.asc, self.code.ascq, 0x00]);
        data.push(&self.specific.map_or([0; 3], SenseKeySpecific::bytes));
        debug_assert_eq!(data.len, FIXED_LENGTH);
    }

    fn encode_descriptors(&self, data: &mut SenseData) {
        let response = if self.is_deferred {
            DESCRIPTOR_DEFERRED
        } else {
            DESCRIPTOR_CURRENT
        };
        let additional =
            12 * u8::from(self.information.is_some()) + 8 * u8::from(self.specific.is_some());
        let SenseCode { asc, ascq } = self.code;
        data.push(&[response, self.key as u8, asc, ascq, 0, 0, 0, additional]);
        if let Some(information) = self.information {
            data.push(&INFORMATION_DESCRIPTOR);
            data.push(&information.to_be_bytes());
        }
        if let Some(specific) = self.specific {
            data.push(&SPECIFIC_DESCRIPTOR);
            data.push(&specific.bytes());
            data.push(&[0]);
        }
    }
}

impl SenseKeySpecific {
    fn bytes(self) -> [u8; 3] {
        const SKSV: u8 = 0x80;
        const COMMAND_DATA: u8 = 0x40;
        const BIT_POINTER_VALID: u8 = 0x08;
        let Self::FieldPointer { in_cdb, byte, bit } = self;
        let place = if in_cdb { COMMAND_DATA } else { 0 };
        let bit = bit.map_or(0, |bit| BIT_POINTER_VALID | (bit & 0x07));
        let [high, low] = byte.to_be_bytes();
        [SKSV | place | bit, high, low]
    }
}

/// Sense data as it goes over the wire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SenseData {
    bytes: [u8; ENCODED_MAX],
    len: usize,
}

impl SenseData {
    /// Everything that is pushed fits: the largest layout is [`ENCODED_MAX`].
    fn push(&mut self, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            room.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }
}

impl Deref for SenseData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_names_share_a_code() {
        for (n, (name, code)) in ALL_CODES.iter().enumerate() {
            for (other, same) in &ALL_CODES[n + 1..] {
                assert_ne!(code, same, "{name} and {other}");
            }
        }
    }

    /// Typed from the published list, not from the table above.
    #[test]
    fn codes_match_the_published_list() {
        let listed = [
            ("04/02", SenseCode::INITIALIZING_COMMAND_REQUIRED),
            ("0c/00", SenseCode::WRITE_ERROR),
            ("11/00", SenseCode::UNRECOVERED_READ_ERROR),
            ("1a/00", SenseCode::PARAMETER_LIST_LENGTH_ERROR),
            ("1d/00", SenseCode::MISCOMPARE_DURING_VERIFY_OPERATION),
            ("20/00", SenseCode::INVALID_COMMAND_OPERATION_CODE),
            ("21/00", SenseCode::LBA_OUT_OF_RANGE),
            ("24/00", SenseCode::INVALID_FIELD_IN_CDB),
            ("25/00", SenseCode::LOGICAL_UNIT_NOT_SUPPORTED),
            (
                "26/04",
                SenseCode::INVALID_RELEASE_OF_PERSISTENT_RESERVATION,
            ),
            ("27/07", SenseCode::SPACE_ALLOCATION_FAILED_WRITE_PROTECT),
            ("2a/09", SenseCode::CAPACITY_DATA_HAS_CHANGED),
            ("3f/0e", SenseCode::REPORTED_LUNS_DATA_HAS_CHANGED),
            ("53/02", SenseCode::MEDIUM_REMOVAL_PREVENTED),
        ];
        for (text, code) in listed {
            assert_eq!(format!("{:02x}/{:02x}", code.asc, code.ascq), text);
        }
    }

    #[test]
    fn fixed_format_names_the_bit_of_the_cdb() {
        let sense = Sense::invalid_field_in_cdb(1, 5);
        assert_eq!(
            &*sense.encode(false),
            &[
                0x70, 0, 0x05, 0, 0, 0, 0, 0x0a, 0, 0, 0, 0, 0x24, 0x00, 0, 0xcd, 0x00, 0x01
            ]
        );
    }

    #[test]
    fn descriptor_format_carries_information_and_field_pointer() {
        let sense = Sense::invalid_byte_in_parameters(0x0102).with_information(0x1_0000_0002);
        assert_eq!(
            &*sense.encode(true),
            &[
                0x72, 0x05, 0x26, 0x00, 0, 0, 0, 20, //
                0x00, 0x0a, 0x80, 0x00, 0, 0, 0, 1, 0, 0, 0, 2, //
                0x02, 0x06, 0, 0, 0x80, 0x01, 0x02, 0
            ]
        );
    }

    #[test]
    fn information_is_valid_in_fixed_format_up_to_32_bits() {
        let sense = Sense::new(SenseKey::MediumError, SenseCode::UNRECOVERED_READ_ERROR);
        let fits = sense.with_information(0xffff_ffff).encode(false);
        assert_eq!(&fits[..7], &[0xf0, 0, 3, 0xff, 0xff, 0xff, 0xff]);
        let too_large = sense.with_information(0x1_0000_0000).encode(false);
        assert_eq!(&too_large[..7], &[0x70, 0, 3, 0, 0, 0, 0]);
    }

    #[test]
    fn deferred_errors_have_their_own_response_codes() {
        let sense = Sense::new(SenseKey::MediumError, SenseCode::WRITE_ERROR).deferred();
        assert_eq!(sense.encode(false)[0], 0x71);
        assert_eq!(sense.encode(true)[0], 0x73);
    }
}
