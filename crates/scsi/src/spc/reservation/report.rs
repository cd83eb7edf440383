//! PERSISTENT RESERVE IN.

use super::parse::field;
use super::{Held, Refusal, Registration, ReservationType, Reservations, Surroundings};
use crate::sam::nexus::PortName;

/// Spec: SPC-4, PERSISTENT RESERVE IN service actions.
mod service_action {
    pub(super) const READ_KEYS: u16 = 0x00;
    pub(super) const READ_RESERVATION: u16 = 0x01;
    pub(super) const REPORT_CAPABILITIES: u16 = 0x02;
    pub(super) const READ_FULL_STATUS: u16 = 0x03;
}

/// ALLOW COMMANDS: TEST UNIT READY goes through every persistent reservation; MODE SENSE, READ
/// BUFFER, REPORT SUPPORTED OPERATION CODES and the like go through Write Exclusive ones. The
/// access classes of the command table say the same.
const ALLOW_COMMANDS: u8 = 0b011;

impl Reservations {
    /// Answers a PERSISTENT RESERVE IN: the whole parameter data, which the caller truncates to
    /// the ALLOCATION LENGTH.
    ///
    /// Spec: SPC-4, PERSISTENT RESERVE IN.
    pub fn persistent_reserve_in(
        &self,
        service_action: Option<u16>,
        surroundings: &Surroundings<'_>,
    ) -> Result<Vec<u8>, Refusal> {
        // SPC-2, Reservations overview: this conflicts even for the holder.
        if self.reserved_by.is_some() {
            return Err(Refusal::Conflict);
        }
        let data = match service_action {
            Some(service_action::READ_KEYS) => self.keys(),
            Some(service_action::READ_RESERVATION) => self.reservation(),
            Some(service_action::REPORT_CAPABILITIES) => self.capabilities(surroundings),
            Some(service_action::READ_FULL_STATUS) => self.full_status(),
            Some(_) | None => return Err(field::SERVICE_ACTION.into()),
        };
        match self.lost_sense() {
            Some(sense) => Err(sense.into()),
            None => Ok(data),
        }
    }

    fn keys(&self) -> Vec<u8> {
        let keys = self.registrations.iter();
        self.with_header(keys.flat_map(|one| one.key.to_be_bytes()).collect())
    }

    fn reservation(&self) -> Vec<u8> {
        let Some(held) = &self.held else {
            return self.with_header(Vec::new());
        };
        // All registrants hold it with key zero.
        let holder = held.by.as_ref();
        let key = holder.and_then(|port| self.key_of(port)).unwrap_or(0);
        let mut descriptor = key.to_be_bytes().to_vec();
        descriptor.extend_from_slice(&[0, 0, 0, 0, 0, held.kind as u8, 0, 0]);
        self.with_header(descriptor)
    }

    fn capabilities(&self, surroundings: &Surroundings<'_>) -> Vec<u8> {
        const RLR_C: u8 = 0x80;
        const CRH: u8 = 0x10;
        const SIP_C: u8 = 0x08;
        const ATP_C: u8 = 0x04;
        const TMV: u8 = 0x80;
        let ptpl_c = u8::from(surroundings.can_persist);
        let ptpl_a = u8::from(self.is_kept);
        // One bit per type code, eight of them to the byte, from the right.
        let (low, high) = ReservationType::ALL
            .iter()
            .fold((0, 0), |(low, high), kind| {
                match 1u16.wrapping_shl(u32::from(*kind as u8)).to_be_bytes() {
                    [for_high, for_low] => (low | for_low, high | for_high),
                }
            });
        vec![
            0x00,
            0x08,
            RLR_C | CRH | SIP_C | ATP_C | ptpl_c,
            TMV | ALLOW_COMMANDS << 4 | ptpl_a,
            low,
            high,
            0x00,
            0x00,
        ]
    }

    fn full_status(&self) -> Vec<u8> {
        let mut descriptors = Vec::new();
        for Registration { port, key } in &self.registrations {
            let held = self.held.as_ref().filter(|_| self.is_holder(port));
            append_full_status(&mut descriptors, port, *key, held);
        }
        self.with_header(descriptors)
    }

    /// PRGENERATION and ADDITIONAL LENGTH, then what is given.
    fn with_header(&self, rest: Vec<u8>) -> Vec<u8> {
        // Registrations and their names are bounded far below 4 GiB.
        let additional_length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        [
            self.generation.to_be_bytes().as_slice(),
            &additional_length.to_be_bytes(),
            &rest,
        ]
        .concat()
    }
}

/// One full status descriptor; `held` is the reservation if this nexus is a holder.
///
/// ALL_TG_PT is zero in all: every target port has a registration of its own here.
fn append_full_status(data: &mut Vec<u8>, port: &PortName, key: u64, held: Option<&Held>) {
    let id_length = u32::try_from(port.transport_id.len()).unwrap_or(u32::MAX);
    data.extend_from_slice(&key.to_be_bytes());
    data.extend_from_slice(&[0; 4]);
    data.push(u8::from(held.is_some()));
    data.push(held.map_or(0, |held| held.kind as u8));
    data.extend_from_slice(&[0; 4]);
    data.extend_from_slice(&port.target_port.to_be_bytes());
    data.extend_from_slice(&id_length.to_be_bytes());
    data.extend_from_slice(&port.transport_id);
}
