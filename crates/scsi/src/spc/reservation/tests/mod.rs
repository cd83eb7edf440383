//! A unit, some nexuses, and bytes in and bytes out.
#![expect(
    clippy::arithmetic_side_effects,
    reason = "an overflow in a test is a failed test"
)]

mod access;
mod hold;
mod kept;
mod moving;
mod old_style;
mod preempt;
mod principal;
mod random;
mod register;
mod report;

use std::sync::Arc;

use super::*;
use crate::sam::nexus::Principal;
use crate::sam::sense::SenseKeySpecific;
use UnitAttention::{RegistrationsPreempted, ReservationsPreempted, ReservationsReleased};

const TARGET_PORTS: &[u16] = &[1, 2];

const REGISTER: u8 = 0x00;
const RESERVE: u8 = 0x01;
const RELEASE: u8 = 0x02;
const CLEAR: u8 = 0x03;
const PREEMPT: u8 = 0x04;
const PREEMPT_AND_ABORT: u8 = 0x05;
const REGISTER_AND_IGNORE: u8 = 0x06;
const REGISTER_AND_MOVE: u8 = 0x07;
const REPLACE_LOST: u8 = 0x08;

const WE: u8 = 0x1;
const EA: u8 = 0x3;
const WERO: u8 = 0x5;
const EARO: u8 = 0x6;
const WEAR: u8 = 0x7;
const EAAR: u8 = 0x8;
const TYPES: [u8; 6] = [WE, EA, WERO, EARO, WEAR, EAAR];

const APTPL: u8 = 0x01;
const ALL_TG_PT: u8 = 0x04;
const SPEC_I_PT: u8 = 0x08;

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

/// The TransportID of a port with a text name.
fn id(text: &str) -> Arc<[u8]> {
    let format = if text.contains(",i,0x") { 0x45 } else { 0x05 };
    let additional = (text.len() + 1).next_multiple_of(4).max(20);
    let mut id = vec![format, 0, 0, u8::try_from(additional).unwrap()];
    id.extend_from_slice(text.as_bytes());
    id.resize(4 + additional, 0);
    id.into()
}

/// The initiator port with this number.
fn initiator(number: usize) -> Arc<[u8]> {
    id(&format!(
        "iqn.2026-11.example:host{number},i,0x0000000000{number:02x}"
    ))
}

/// The nexus of an initiator port with target port 1.
fn nexus(number: usize) -> PortName {
    through(number, 1)
}

fn through(number: usize, target_port: u16) -> PortName {
    PortName {
        transport_id: initiator(number),
        target_port,
        principal: Principal::Unknown,
    }
}

/// A PERSISTENT RESERVE OUT to be sent.
#[derive(Clone, Debug)]
struct Out {
    action: u8,
    scope: u8,
    kind: u8,
    key: u64,
    action_key: u64,
    flags: u8,
    ids: Vec<u8>,
    list_length: Option<u32>,
}

fn out(action: u8, key: u64, action_key: u64) -> Out {
    Out {
        action,
        scope: 0,
        kind: 0,
        key,
        action_key,
        flags: 0,
        ids: Vec::new(),
        list_length: None,
    }
}

impl Out {
    fn kind(self, kind: u8) -> Self {
        Self { kind, ..self }
    }

    fn flags(self, flags: u8) -> Self {
        Self { flags, ..self }
    }

    fn ids(self, ids: &[&[u8]]) -> Self {
        let flags = self.flags | SPEC_I_PT;
        let ids = ids.concat();
        Self { flags, ids, ..self }
    }

    fn list(&self) -> Vec<u8> {
        let mut list = [self.key.to_be_bytes(), self.action_key.to_be_bytes()].concat();
        list.extend_from_slice(&[0, 0, 0, 0, self.flags, 0, 0, 0]);
        if self.flags & SPEC_I_PT != 0 {
            list.extend_from_slice(&u32::try_from(self.ids.len()).unwrap().to_be_bytes());
            list.extend_from_slice(&self.ids);
        }
        list
    }
}

fn cdb(action: u8, scope: u8, kind: u8, list_length: usize) -> Vec<u8> {
    let mut cdb = vec![0x5f, action, scope << 4 | kind, 0, 0];
    cdb.extend_from_slice(&u32::try_from(list_length).unwrap().to_be_bytes());
    cdb.push(0);
    cdb
}

/// A unit under test.
#[derive(Clone, Debug, Default)]
struct Unit {
    state: Reservations,
    logged_in: Vec<Arc<[u8]>>,
    cannot_persist: bool,
}

impl Unit {
    /// A unit where the first nexuses are registered with these keys.
    fn with_keys(keys: &[u64]) -> Self {
        let mut unit = Self::default();
        for (number, &key) in keys.iter().enumerate() {
            unit.good(number, &out(REGISTER, 0, key));
        }
        unit
    }

    /// A unit where nexus A has key A1h and holds it, B has B1h, and C is not registered.
    fn held_by_a(kind: u8) -> Self {
        let mut unit = Self::with_keys(&[0xa1, 0xb1]);
        unit.good(A, &out(RESERVE, 0xa1, 0).kind(kind));
        unit
    }

    fn surroundings(&self) -> Surroundings<'_> {
        Surroundings {
            target_ports: TARGET_PORTS,
            initiator_ports: &self.logged_in,
            can_persist: !self.cannot_persist,
        }
    }

    fn raw(&mut self, from: &PortName, cdb: &[u8], list: &[u8]) -> Result<Effects, Refusal> {
        let mut state = self.state.clone();
        let result = state.persistent_reserve_out(from, cdb, list, &self.surroundings());
        if result.is_err() {
            assert_eq!(state, self.state, "a refused command changed something");
        }
        self.state = state;
        result
    }

    fn send_as(&mut self, from: &PortName, out: &Out) -> Result<Effects, Refusal> {
        let list = out.list();
        let length = out
            .list_length
            .map_or(list.len(), |length| usize::try_from(length).unwrap());
        let cdb = cdb(out.action, out.scope, out.kind, length);
        self.raw(from, &cdb, &list)
    }

    fn send(&mut self, from: usize, out: &Out) -> Result<Effects, Refusal> {
        self.send_as(&nexus(from), out)
    }

    fn good(&mut self, from: usize, out: &Out) -> Effects {
        self.send(from, out)
            .unwrap_or_else(|refusal| panic!("{out:?}: {refusal:?}"))
    }

    fn read(&self, action: u8) -> Vec<u8> {
        self.state
            .persistent_reserve_in(Some(action.into()), &self.surroundings())
            .unwrap()
    }

    fn generation(&self) -> u32 {
        u32::from_be_bytes(self.read(0)[..4].try_into().unwrap())
    }

    fn keys(&self) -> Vec<u64> {
        self.read(0)[8..]
            .chunks(8)
            .map(|key| u64::from_be_bytes(key.try_into().unwrap()))
            .collect()
    }

    /// Key and type of the reservation.
    fn reservation(&self) -> Option<(u64, u8)> {
        let data = self.read(1);
        let key = data.get(8..16)?;
        Some((u64::from_be_bytes(key.try_into().unwrap()), data[21]))
    }

    fn blocked(&self, number: usize) -> Blocked {
        self.state
            .blocked(NexusId(u32::try_from(number).unwrap()), &nexus(number))
    }
}

/// Key, code and field of a refusal: ("5/24/00", in the CDB, byte, bit).
fn told(refusal: Refusal) -> (String, Option<(bool, u16, Option<u8>)>) {
    match refusal {
        Refusal::Conflict => ("conflict".to_owned(), None),
        Refusal::Check(sense) => {
            let field = sense
                .specific
                .map(|SenseKeySpecific::FieldPointer { in_cdb, byte, bit }| (in_cdb, byte, bit));
            let SenseCode { asc, ascq } = sense.code;
            (format!("{:x}/{asc:02x}/{ascq:02x}", sense.key as u8), field)
        }
    }
}

/// The code of a refusal.
fn code(result: Result<Effects, Refusal>) -> String {
    told(result.unwrap_err()).0
}

/// Byte and bit of a wrong field in the parameter list.
fn wrong_parameter(
    byte: u16,
    bit: impl Into<Option<u8>>,
) -> (String, Option<(bool, u16, Option<u8>)>) {
    ("5/26/00".to_owned(), Some((false, byte, bit.into())))
}

/// Byte and bit of a wrong field in the CDB.
fn wrong_cdb(byte: u16, bit: u8) -> (String, Option<(bool, u16, Option<u8>)>) {
    ("5/24/00".to_owned(), Some((true, byte, Some(bit))))
}
