//! What outlives a restart: registrations and reservation, while APTPL is on.
//!
//! Layout, all numbers big-endian: magic (6 bytes), version (2), checksum of all that follows
//! (8), APTPL (1), type code or zero (1), index of the holder or FFFFh (2), number of
//! registrations (2), then for each: key (8), target port (2), length (2) and bytes of the
//! TransportID. In version 2 each goes on with the user behind the initiator port: 0 for not known, 1
//! for nobody, 2 for a user, whose length (2) and name follow. Version 1 knows none.

use super::{
    Held, REGISTRATIONS_MAX, Registration, ReservationType, Reservations, TRANSPORT_ID_BYTES_MAX,
};
use crate::sam::nexus::{PortName, Principal};

const MAGIC: [u8; 6] = *b"TarnPR";
/// Of registrations of which no principal is known.
const VERSION_WITHOUT_PRINCIPALS: u16 = 1;
const VERSION: u16 = 2;
/// As index of the holder: there is none, or all registrants are.
const NO_HOLDER: u16 = 0xffff;

const _: () = assert!(REGISTRATIONS_MAX < NO_HOLDER as usize);

/// Why kept reservations cannot be used. The unit then starts from [`Reservations::lost`], or
/// from nothing if an administrator says so.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum KeptError {
    /// Too short, or it does not start as it must.
    #[error("not a record of reservations")]
    NotARecord,
    /// Written by a later version of this program.
    #[error("reservations are of version {got}, known is {known}")]
    Version {
        /// The version found.
        got: u16,
        /// The version this program writes.
        known: u16,
    },
    /// The checksum does not match.
    #[error(
        "the record of reservations is damaged: checksum {got:#018x}, computed {computed:#018x}"
    )]
    Checksum {
        /// The checksum in the record.
        got: u64,
        /// The checksum of its bytes.
        computed: u64,
    },
    /// The checksum matches, but no such state can exist.
    #[error("the record of reservations contradicts itself")]
    Inconsistent,
}

impl Reservations {
    /// What to keep over a restart. Nothing but the fact that APTPL is off, when it is off.
    ///
    /// Spec: SPC-4, Preserving persistent reservations and registrations through power loss.
    pub fn encode(&self) -> Vec<u8> {
        let nothing = Self::default();
        let kept = if self.is_kept { self } else { &nothing };
        let is_unknown = |one: &Registration| one.port.principal == Principal::Unknown;
        let version = if kept.registrations.iter().all(is_unknown) {
            VERSION_WITHOUT_PRINCIPALS
        } else {
            VERSION
        };
        let body = kept.encode_body(version);
        let mut record = MAGIC.to_vec();
        record.extend_from_slice(&version.to_be_bytes());
        record.extend_from_slice(&checksum(&body).to_be_bytes());
        record.extend_from_slice(&body);
        record
    }

    fn encode_body(&self, version: u16) -> Vec<u8> {
        let held = self.held.as_ref();
        let holder = held.and_then(|held| held.by.as_ref());
        let holder = holder.and_then(|holder| {
            let mut ports = self.registrations.iter().map(|one| &one.port);
            ports.position(|port| port == holder)
        });
        let mut body = vec![
            u8::from(self.is_kept),
            held.map_or(0, |held| held.kind as u8),
        ];
        body.extend_from_slice(&u16_of(holder.unwrap_or(usize::MAX)));
        body.extend_from_slice(&u16_of(self.registrations.len()));
        for Registration { port, key } in &self.registrations {
            body.extend_from_slice(&key.to_be_bytes());
            body.extend_from_slice(&port.target_port.to_be_bytes());
            body.extend_from_slice(&u16_of(port.transport_id.len()));
            body.extend_from_slice(&port.transport_id);
            if version == VERSION {
                append_principal(&mut body, &port.principal);
            }
        }
        body
    }

    /// The state after a restart: what [`Reservations::encode`] gave. PRgeneration starts at zero
    /// and an SPC-2 reservation is gone, as after every power cycle.
    pub fn decode(record: &[u8]) -> Result<Self, KeptError> {
        let mut reader = Reader(record);
        if reader.array() != Some(MAGIC) {
            return Err(KeptError::NotARecord);
        }
        let got = reader.u16().ok_or(KeptError::NotARecord)?;
        let version = got;
        if version != VERSION && version != VERSION_WITHOUT_PRINCIPALS {
            let known = VERSION;
            return Err(KeptError::Version { got, known });
        }
        let got = reader.u64().ok_or(KeptError::NotARecord)?;
        let computed = checksum(reader.0);
        if got != computed {
            return Err(KeptError::Checksum { got, computed });
        }
        Self::decode_body(&mut reader, version).ok_or(KeptError::Inconsistent)
    }

    /// The same with other target ports. Fails with a port for which there is none.
    pub(crate) fn with_ports(
        mut self,
        mut number: impl FnMut(u16) -> Option<u16>,
    ) -> Result<Self, u16> {
        let of_registrations = self.registrations.iter_mut().map(|one| &mut one.port);
        let of_holder = self.held.iter_mut().filter_map(|held| held.by.as_mut());
        for port in of_registrations.chain(of_holder) {
            port.target_port = number(port.target_port).ok_or(port.target_port)?;
        }
        Ok(self)
    }

    fn decode_body(reader: &mut Reader<'_>, version: u16) -> Option<Self> {
        let [is_kept, type_code] = reader.array()?;
        let holder = reader.u16()?;
        let count = reader.u16()?;
        let mut state = Self {
            is_kept: is_kept == 1,
            ..Self::default()
        };
        for _ in 0..count {
            let registration = reader.registration(version)?;
            let mut before = state.registrations.iter();
            let is_new = before.all(|one| one.port != registration.port);
            if !is_new || registration.key == 0 || state.registrations.len() == REGISTRATIONS_MAX {
                return None;
            }
            state.registrations.push(registration);
        }
        let holder = state.registrations.get(usize::from(holder));
        state.held = match (ReservationType::from_code(type_code), holder) {
            (None, None) if type_code == 0 => None,
            (Some(kind), None) if kind.is_all_registrants() && count > 0 => {
                Some(Held { kind, by: None })
            }
            (Some(kind), Some(by)) if !kind.is_all_registrants() => Some(Held::new(kind, &by.port)),
            (None | Some(_), _) => return None,
        };
        let is_whole = reader.0.is_empty() && is_kept <= 1;
        // Nothing is kept while APTPL is off.
        (is_whole && (state.is_kept || count == 0)).then_some(state)
    }
}

/// Takes values off the front of a record.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (&array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(array)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn registration(&mut self, version: u16) -> Option<Registration> {
        let key = self.u64()?;
        let target_port = self.u16()?;
        let length = usize::from(self.u16()?);
        let transport_id = self.bytes(length)?;
        let principal = match version {
            VERSION => self.principal()?,
            _ => Principal::Unknown,
        };
        (length <= TRANSPORT_ID_BYTES_MAX).then(|| Registration {
            port: PortName {
                transport_id: transport_id.into(),
                target_port,
                principal,
            },
            key,
        })
    }

    fn principal(&mut self) -> Option<Principal> {
        match self.array()? {
            [PRINCIPAL_UNKNOWN] => Some(Principal::Unknown),
            [PRINCIPAL_NOBODY] => Some(Principal::Nobody),
            [PRINCIPAL_USER] => {
                let length = usize::from(self.u16()?);
                let name = std::str::from_utf8(self.bytes(length)?).ok()?;
                Some(Principal::User(name.into()))
            }
            _ => None,
        }
    }
}

const PRINCIPAL_UNKNOWN: u8 = 0;
const PRINCIPAL_NOBODY: u8 = 1;
const PRINCIPAL_USER: u8 = 2;

fn append_principal(body: &mut Vec<u8>, principal: &Principal) {
    match principal {
        Principal::Unknown => body.push(PRINCIPAL_UNKNOWN),
        Principal::Nobody => body.push(PRINCIPAL_NOBODY),
        Principal::User(name) => {
            body.push(PRINCIPAL_USER);
            body.extend_from_slice(&u16_of(name.len()));
            body.extend_from_slice(name.as_bytes());
        }
    }
}

/// What is counted here fits, see the assertion above; what does not is [`NO_HOLDER`].
fn u16_of(number: usize) -> [u8; 2] {
    u16::try_from(number).unwrap_or(NO_HOLDER).to_be_bytes()
}

/// FNV-1a: against torn and rotten records, not against forgers.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
