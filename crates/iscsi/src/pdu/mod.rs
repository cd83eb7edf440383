//! The wire: basic header segments as views cast in place, additional header segments, lengths.
//!
//! A basic header segment (BHS) is always 48 bytes. Each PDU type has one `#[repr(C)]` struct
//! whose fields lie exactly as on the wire, so that `&[u8; 48]` becomes `&ScsiCommandBhs` without
//! a copy ([`Bhs::view`]). A view proves the layout only: every value in it is still the peer's
//! word. This module knows no state and no rule beyond the shape of a PDU.
//!
//! Spec: RFC 7143 section 11.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

mod ahs;
mod codes;
mod request;
mod response;

pub use ahs::{
    AdditionalHeaders, AhsError, EXTENDED_CDB_MAX_BYTES, extended_cdb_ahs, read_length_ahs,
};
pub use codes::{
    AsyncEvent, IscsiResponse, LoginStage, LoginStatus, LogoutReason, LogoutResponseCode, Opcode,
    RejectReason, SnackType, TaskAttribute, TaskManagementFunction, TaskManagementResponse,
};
pub use request::{
    DataOutBhs, LoginRequestBhs, LogoutRequestBhs, NopOutBhs, RequestBhs, ScsiCommandBhs, SnackBhs,
    TaskManagementRequestBhs, TextRequestBhs,
};
pub use response::{
    AsyncMessageBhs, DataInBhs, LoginResponseBhs, LogoutResponseBhs, NopInBhs, R2tBhs, RejectBhs,
    ResponseBhs, ScsiResponseBhs, TaskManagementResponseBhs, TextResponseBhs,
};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size of a basic header segment.
pub const BHS_LENGTH_BYTES: usize = 48;

/// A basic header segment as raw bytes.
pub type BhsBytes = [u8; BHS_LENGTH_BYTES];

/// Bits of header byte 0 and 1, as far as several PDU types share them.
pub mod flags {
    /// Byte 0: immediate delivery.
    pub const IMMEDIATE: u8 = 0x40;
    /// Byte 0: the six bits that hold the opcode.
    pub const OPCODE_MASK: u8 = 0x3f;

    /// Byte 1: final PDU of a sequence or exchange.
    pub const FINAL: u8 = 0x80;

    /// SCSI Command, byte 1: data will flow to the initiator.
    pub const READ: u8 = 0x40;
    /// SCSI Command, byte 1: data will flow to the target.
    pub const WRITE: u8 = 0x20;
    /// SCSI Command, byte 1: task attribute, see [`super::TaskAttribute`].
    pub const ATTRIBUTE_MASK: u8 = 0x07;

    /// Data-In, byte 1: status and residual are valid in this PDU.
    pub const STATUS: u8 = 0x01;
    /// Data-In and SCSI Response, byte 1: more bytes were wanted than expected (O).
    pub const RESIDUAL_OVERFLOW: u8 = 0x04;
    /// Data-In and SCSI Response, byte 1: fewer bytes were moved than expected (U).
    pub const RESIDUAL_UNDERFLOW: u8 = 0x02;
    /// SCSI Response, byte 1: overflow of the read part of a bidirectional command (o).
    pub const BIDIRECTIONAL_READ_OVERFLOW: u8 = 0x10;
    /// SCSI Response, byte 1: underflow of the read part of a bidirectional command (u).
    pub const BIDIRECTIONAL_READ_UNDERFLOW: u8 = 0x08;

    /// Login, byte 1: ready to go to the next stage (T).
    pub const TRANSIT: u8 = 0x80;
    /// Login and Text, byte 1: the text goes on in the next PDU (C).
    pub const CONTINUE: u8 = 0x40;
    /// Login, byte 1: place of the current stage.
    pub const CURRENT_STAGE_SHIFT: u32 = 2;
    /// Login, byte 1: width of both stage fields.
    pub const STAGE_MASK: u8 = 0x03;

    /// Task management request, byte 1: the function.
    pub const FUNCTION_MASK: u8 = 0x7f;
    /// Logout request, byte 1: the reason.
    pub const REASON_MASK: u8 = 0x7f;
    /// SNACK, byte 1: the type.
    pub const SNACK_TYPE_MASK: u8 = 0x0f;
}

/// Task tag and transfer tag that mean "none".
///
/// Spec: RFC 7143 section 11.2.1.8.
pub const RESERVED_TAG: u32 = 0xffff_ffff;

/// Names one task of a session, chosen by the initiator.
///
/// Spec: RFC 7143 section 11.2.1.8.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct InitiatorTaskTag(pub u32);

impl InitiatorTaskTag {
    /// No task: an answer is not wanted, or the PDU belongs to none.
    pub const RESERVED: Self = Self(RESERVED_TAG);

    /// True for the value that names no task.
    #[must_use]
    pub const fn is_reserved(self) -> bool {
        self.0 == RESERVED_TAG
    }
}

/// The initiator's part of a session identifier; opaque to the target.
///
/// Spec: RFC 7143 section 11.12.5.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Eq,
    FromBytes,
    Hash,
    Immutable,
    IntoBytes,
    KnownLayout,
    Ord,
    PartialEq,
    PartialOrd,
    Unaligned,
)]
#[repr(transparent)]
pub struct Isid(pub [u8; 6]);

/// The target's part of a session identifier; zero while there is no session.
///
/// Spec: RFC 7143 section 11.12.6.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Tsih(pub u16);

impl Tsih {
    /// A leading login: the session is yet to be made.
    pub const NONE: Self = Self(0);

    /// True when no session is named.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Names a connection within its session; chosen by the initiator.
///
/// Spec: RFC 7143 section 11.12.7.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Cid(pub u16);

/// An unsigned integer of three bytes in network order.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Eq,
    FromBytes,
    Hash,
    Immutable,
    IntoBytes,
    KnownLayout,
    PartialEq,
    Unaligned,
)]
#[repr(transparent)]
pub struct U24([u8; 3]);

impl U24 {
    /// The largest value.
    pub const MAX: u32 = 0x00ff_ffff;

    /// Wraps `value`, or `None` when it needs more than 24 bits.
    #[must_use]
    pub const fn new(value: u32) -> Option<Self> {
        let [high, a, b, c] = value.to_be_bytes();
        if high == 0 {
            Some(Self([a, b, c]))
        } else {
            None
        }
    }

    /// The value.
    #[must_use]
    pub const fn get(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from_be_bytes([0, a, b, c])
    }

    /// The value as a buffer length.
    #[must_use]
    pub const fn as_usize(self) -> usize {
        self.get() as usize
    }
}

/// `length` rounded up to the next multiple of four, as every segment is padded on the wire.
///
/// Spec: RFC 7143 section 11.1.
#[must_use]
pub const fn padded_length(length: usize) -> usize {
    length.saturating_add(padding_length(length))
}

/// Number of fill bytes (0 to 3) that follow a segment of `length` bytes.
#[must_use]
pub const fn padding_length(length: usize) -> usize {
    length.wrapping_neg() & 3
}

/// A basic header segment seen as one PDU type.
///
/// Casting checks nothing but the size: look at the opcode first.
pub trait Bhs: Copy + FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned {
    /// The opcode that belongs to this layout.
    const OPCODE: Opcode;

    /// A header of zeroes with the opcode, and with the F bit where it is always one.
    #[must_use]
    fn new() -> Self;

    /// The same bytes, seen as this PDU type.
    #[must_use]
    fn view(bytes: &BhsBytes) -> &Self;

    /// The same bytes, seen as this PDU type and writable.
    #[must_use]
    fn view_mut(bytes: &mut BhsBytes) -> &mut Self;

    /// The header as it lies on the wire.
    #[must_use]
    fn as_bhs_bytes(&self) -> &BhsBytes;
}

/// Defines the layout of a header: its 8 common bytes, of which the documentation of the flags, bytes 2 and 3, and the
/// documentation of the data segment differ, and then its own fields, each with its offset.
macro_rules! bhs {
    (
        $(#[$meta:meta])*
        $name:ident($opcode:expr, $flags:expr):
        $flags_doc:literal, {
            $($(#[$byte_meta:meta])* $byte_vis:vis $byte:ident: $byte_type:ty $(= $byte_offset:literal)?),* $(,)?
        },
        $data_doc:literal, {
            $($(#[$field_meta:meta])* $vis:vis $field:ident: $type:ty $(= $offset:literal)?),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, Eq, zerocopy::FromBytes, zerocopy::Immutable, zerocopy::IntoBytes,
            zerocopy::KnownLayout, PartialEq, zerocopy::Unaligned,
        )]
        #[repr(C)]
        pub struct $name {
            /// The opcode; in a request also the immediate bit 0x40.
            pub opcode: u8,
            #[doc = $flags_doc]
            pub flags: u8,
            $($(#[$byte_meta])* $byte_vis $byte: $byte_type,)*
            /// In units of four bytes, padding included.
            pub total_ahs_length_words: u8,
            #[doc = $data_doc]
            pub data_segment_length: $crate::pdu::U24,
            $($(#[$field_meta])* $vis $field: $type,)*
        }

        const _: () = assert!(size_of::<$name>() == $crate::pdu::BHS_LENGTH_BYTES);
        const _: () = assert!(std::mem::offset_of!($name, opcode) == 0);
        const _: () = assert!(std::mem::offset_of!($name, flags) == 1);
        const _: () = assert!(std::mem::offset_of!($name, total_ahs_length_words) == 4);
        const _: () = assert!(std::mem::offset_of!($name, data_segment_length) == 5);
        $($(const _: () = assert!(std::mem::offset_of!($name, $byte) == $byte_offset);)?)*
        $($(const _: () = assert!(std::mem::offset_of!($name, $field) == $offset);)?)*

        impl $crate::pdu::Bhs for $name {
            const OPCODE: $crate::pdu::Opcode = $opcode;

            fn new() -> Self {
                let mut header = <Self as zerocopy::FromZeros>::new_zeroed();
                header.opcode = $opcode.code();
                header.flags = $flags;
                header
            }

            fn view(bytes: &$crate::pdu::BhsBytes) -> &Self {
                zerocopy::transmute_ref!(bytes)
            }

            fn view_mut(bytes: &mut $crate::pdu::BhsBytes) -> &mut Self {
                zerocopy::transmute_mut!(bytes)
            }

            fn as_bhs_bytes(&self) -> &$crate::pdu::BhsBytes {
                zerocopy::transmute_ref!(self)
            }
        }
    };
}
use bhs;

/// The opcode bits of byte 0, without the immediate bit.
#[must_use]
pub const fn opcode_bits(bhs: &BhsBytes) -> u8 {
    let [first, ..] = *bhs;
    first & flags::OPCODE_MASK
}

/// The opcode of a header, or `None` when RFC 7143 gives its value no meaning.
#[must_use]
pub fn opcode(bhs: &BhsBytes) -> Option<Opcode> {
    Opcode::from_code(opcode_bits(bhs))
}

/// What follows a basic header segment on the wire.
///
/// Every PDU is: BHS, AHS, header digest if negotiated, data, padding, data digest if negotiated
/// and the data segment is not empty.
///
/// Spec: RFC 7143 section 11.1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PduLayout {
    /// Additional header segments, a multiple of four.
    pub ahs_bytes: usize,
    /// Four when header digests are on, else zero.
    pub header_digest_bytes: usize,
    /// The data segment without its padding.
    pub data_bytes: usize,
    /// Fill bytes after the data segment, 0 to 3.
    pub padding_bytes: usize,
    /// Four when data digests are on and there is data, else zero.
    pub data_digest_bytes: usize,
}

impl PduLayout {
    /// Reads the lengths out of a header. `header_digest` and `data_digest` say what was
    /// negotiated; both are off during login.
    #[must_use]
    pub fn of(bhs: &BhsBytes, header_digest: bool, data_digest: bool) -> Self {
        let common = RequestBhs::view(bhs);
        let data_bytes = common.data_segment_length.as_usize();
        Self {
            ahs_bytes: usize::from(common.total_ahs_length_words).saturating_mul(4),
            header_digest_bytes: if header_digest { 4 } else { 0 },
            data_bytes,
            padding_bytes: padding_length(data_bytes),
            data_digest_bytes: if data_digest && data_bytes != 0 { 4 } else { 0 },
        }
    }

    /// BHS, AHS and header digest.
    #[must_use]
    pub const fn header_end(&self) -> usize {
        BHS_LENGTH_BYTES
            .saturating_add(self.ahs_bytes)
            .saturating_add(self.header_digest_bytes)
    }

    /// The whole PDU.
    #[must_use]
    pub const fn total_bytes(&self) -> usize {
        self.header_end()
            .saturating_add(self.data_bytes)
            .saturating_add(self.padding_bytes)
            .saturating_add(self.data_digest_bytes)
    }
}

#[cfg(test)]
mod tests;
