//! PERSISTENT RESERVE OUT, read: CDB and parameter list give a typed request, or say what is wrong with
//! them. Knows no state.

use std::collections::BTreeSet;

use super::transport_id::{self, Named};
use super::{REGISTRATIONS_MAX, Refusal};
use crate::sam::sense::{Sense, SenseCode};

/// Spec: SPC-4, PERSISTENT RESERVE OUT service actions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum ServiceAction {
    Register = 0x00,
    Reserve = 0x01,
    Release = 0x02,
    Clear = 0x03,
    Preempt = 0x04,
    PreemptAndAbort = 0x05,
    RegisterAndIgnoreExistingKey = 0x06,
    RegisterAndMove = 0x07,
    ReplaceLostReservation = 0x08,
}

impl ServiceAction {
    fn from_code(code: u8) -> Option<Self> {
        [
            Self::Register,
            Self::Reserve,
            Self::Release,
            Self::Clear,
            Self::Preempt,
            Self::PreemptAndAbort,
            Self::RegisterAndIgnoreExistingKey,
            Self::RegisterAndMove,
            Self::ReplaceLostReservation,
        ]
        .into_iter()
        .find(|action| *action as u8 == code)
    }
}

/// Bytes of both parameter lists before TransportIDs and their length. Without TransportIDs a list has this length.
pub(crate) const BASIC_BYTES: usize = 24;
/// SPEC_I_PT puts the length of the TransportIDs behind the basic list, REGISTER AND MOVE into it.
const SPEC_I_PT_IDS_AT: usize = 28;

/// Where fields lie, for field pointers.
pub(super) mod field {
    use crate::sam::sense::Sense;

    pub(in super::super) const SERVICE_ACTION: Sense = Sense::invalid_field_in_cdb(1, 4);
    pub(in super::super) const SCOPE: Sense = Sense::invalid_field_in_cdb(2, 7);
    pub(in super::super) const TYPE: Sense = Sense::invalid_field_in_cdb(2, 3);
    pub(in super::super) const KEY: Sense = Sense::invalid_byte_in_parameters(0);
    pub(in super::super) const ACTION_KEY: Sense = Sense::invalid_byte_in_parameters(8);
    pub(in super::super) const MOVE_APTPL: Sense = Sense::invalid_field_in_parameters(17, 0);
    pub(in super::super) const TARGET_PORT: Sense = Sense::invalid_byte_in_parameters(18);
    pub(in super::super) const SPEC_I_PT: Sense = Sense::invalid_field_in_parameters(20, 3);
    pub(in super::super) const ALL_TG_PT: Sense = Sense::invalid_field_in_parameters(20, 2);
    pub(in super::super) const APTPL: Sense = Sense::invalid_field_in_parameters(20, 0);
    pub(in super::super) const MOVE_TRANSPORT_ID: Sense = Sense::invalid_byte_in_parameters(24);
}

/// A PERSISTENT RESERVE OUT whose layout is right.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) action: ServiceAction,
    pub(super) scope: u8,
    pub(super) type_code: u8,
    pub(super) key: u64,
    /// SERVICE ACTION RESERVATION KEY.
    pub(super) action_key: u64,
    pub(super) details: Details,
}

/// What the two parameter lists do not share.
#[derive(Debug)]
pub(super) enum Details {
    Basic(Basic),
    Move(Move),
}

/// Flags of the basic parameter list, and the initiator ports of SPEC_I_PT.
#[derive(Debug, Default)]
pub(super) struct Basic {
    pub(super) all_target_ports: bool,
    pub(super) aptpl: bool,
    pub(super) spec_i_pt: bool,
    pub(super) initiators: Vec<Named>,
}

/// The parameter list of REGISTER AND MOVE.
#[derive(Debug)]
pub(super) struct Move {
    pub(super) unregister: bool,
    pub(super) aptpl: bool,
    pub(super) target_port: u16,
    pub(super) to: Named,
}

impl Request {
    /// Reads the command. `sender` is the TransportID the command came from: a list may only name
    /// ports of the same protocol.
    ///
    /// Spec: SPC-4, Basic PERSISTENT RESERVE OUT parameter list, and the one of REGISTER AND MOVE.
    pub(super) fn parse(cdb: &[u8], parameters: &[u8], sender: &[u8]) -> Result<Self, Refusal> {
        let &[_, action, scope_type, _, _, l0, l1, l2, l3, ..] = cdb else {
            return Err(Sense::illegal_request(SenseCode::INVALID_FIELD_IN_CDB).into());
        };
        let action = ServiceAction::from_code(action & 0x1f).ok_or(field::SERVICE_ACTION)?;
        let length = usize::try_from(u32::from_be_bytes([l0, l1, l2, l3])).unwrap_or(usize::MAX);
        // Fewer bytes than the CDB announces is the initiator's slip as much as a wrong length.
        let list = parameters.get(..length).ok_or_else(length_error)?;
        let basic: &[u8; BASIC_BYTES] = list.first_chunk().ok_or_else(length_error)?;
        Ok(Self {
            action,
            scope: scope_type >> 4,
            type_code: scope_type & 0x0f,
            key: u64_at(basic, 0),
            action_key: u64_at(basic, 8),
            details: if action == ServiceAction::RegisterAndMove {
                Details::Move(Move::parse(basic, list, sender)?)
            } else {
                Details::Basic(Basic::parse(action, basic, list, sender)?)
            },
        })
    }
}

impl Basic {
    fn parse(
        action: ServiceAction,
        basic: &[u8; BASIC_BYTES],
        list: &[u8],
        sender: &[u8],
    ) -> Result<Self, Refusal> {
        let flags = basic[20];
        let spec_i_pt = flags & 0x08 != 0;
        if spec_i_pt && action != ServiceAction::Register {
            return Err(field::SPEC_I_PT.into());
        }
        let initiators = if spec_i_pt {
            let (lengths, ids) = list
                .split_at_checked(SPEC_I_PT_IDS_AT)
                .ok_or_else(length_error)?;
            check_ids_length(lengths.last_chunk(), ids)?;
            parse_ids(ids, sender)?
        } else if list.len() == BASIC_BYTES {
            Vec::new()
        } else {
            return Err(length_error().into());
        };
        Ok(Self {
            all_target_ports: flags & 0x04 != 0,
            aptpl: flags & 0x01 != 0,
            spec_i_pt,
            initiators,
        })
    }
}

impl Move {
    fn parse(basic: &[u8; BASIC_BYTES], list: &[u8], sender: &[u8]) -> Result<Self, Refusal> {
        let ids = list.get(BASIC_BYTES..).unwrap_or(&[]);
        check_ids_length(basic.last_chunk(), ids)?;
        let to = match transport_id::split_first(ids) {
            Some((named, [])) if transport_id::same_protocol(ids, sender) => named,
            Some((Named::Port(_) | Named::Device(_), _)) | None => {
                return Err(field::MOVE_TRANSPORT_ID.into());
            }
        };
        Ok(Self {
            unregister: basic[17] & 0x02 != 0,
            aptpl: basic[17] & 0x01 != 0,
            target_port: u16::from_be_bytes([basic[18], basic[19]]),
            to,
        })
    }
}

/// TRANSPORTID PARAMETER DATA LENGTH must count exactly the bytes that are there.
fn check_ids_length(length: Option<&[u8; 4]>, ids: &[u8]) -> Result<(), Refusal> {
    let announced = length.map(|&bytes| u32::from_be_bytes(bytes));
    if announced == u32::try_from(ids.len()).ok() {
        Ok(())
    } else {
        Err(length_error().into())
    }
}

fn parse_ids(ids: &[u8], sender: &[u8]) -> Result<Vec<Named>, Refusal> {
    let mut named = Vec::new();
    let mut seen = BTreeSet::new();
    let mut rest = ids;
    while !rest.is_empty() {
        // The list is bounded by what can be registered at all.
        if named.len() == REGISTRATIONS_MAX {
            return Err(no_room().into());
        }
        let at = ids.len().saturating_sub(rest.len());
        let (first, left) = transport_id::split_first(rest)
            .filter(|_| transport_id::same_protocol(rest, sender))
            .ok_or_else(|| bad_id(at))?;
        // Each once, so that nothing that follows is done more often than there are names.
        if seen.insert(first.clone()) {
            named.push(first);
        }
        rest = left;
    }
    Ok(named)
}

/// Points at a TransportID of a SPEC_I_PT list, `at` bytes behind the start of the first.
fn bad_id(at: usize) -> Sense {
    let byte = at.saturating_add(SPEC_I_PT_IDS_AT);
    Sense::invalid_byte_in_parameters(u16::try_from(byte).unwrap_or(u16::MAX))
}

pub(super) const fn length_error() -> Sense {
    Sense::illegal_request(SenseCode::PARAMETER_LIST_LENGTH_ERROR)
}

pub(super) const fn no_room() -> Sense {
    Sense::illegal_request(SenseCode::INSUFFICIENT_REGISTRATION_RESOURCES)
}

fn u64_at(list: &[u8; BASIC_BYTES], at: usize) -> u64 {
    list.get(at..)
        .and_then(|bytes| bytes.first_chunk())
        .map_or(0, |&bytes| u64::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_named_more_than_once_counts_once() {
        let name = b"iqn.a:b\0\0\0\0\0\0\0\0\0\0\0\0\0";
        let device = [&[0x05, 0, 0, 20], &name[..]].concat();
        let named = parse_ids(&device.repeat(REGISTRATIONS_MAX * 2), &device).unwrap();
        assert_eq!(named, [Named::Device(b"iqn.a:b".to_vec())]);
    }
}
