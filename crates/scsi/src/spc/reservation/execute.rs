//! PERSISTENT RESERVE OUT, carried out: a request and a state give another state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::parse::{self, Basic, Details, Move, Request, ServiceAction, field};
use super::transport_id::{Named, device_of, is_same_device};
use super::{
    Effects, Held, REGISTERED_PER_FREE_MAX, REGISTRATIONS_KEPT, REGISTRATIONS_MAX, Refusal,
    Registration, ReservationType, Reservations, Surroundings,
};
use crate::sam::attention::UnitAttention;
use crate::sam::nexus::{PortName, Principal};
use crate::sam::sense::{Sense, SenseCode};

impl Reservations {
    /// What a PERSISTENT RESERVE OUT leads to: the state after it, and what is left to do. This one
    /// stays as it is.
    ///
    /// Spec: SPC-4, PERSISTENT RESERVE OUT.
    pub(super) fn execute(
        &self,
        from: &PortName,
        request: &Request,
        surroundings: &Surroundings<'_>,
    ) -> Result<(Self, Effects), Refusal> {
        let mut next = self.clone();
        next.bind(from);
        let mut effects = Change {
            state: &mut next,
            from,
            surroundings,
            effects: Effects::default(),
        }
        .execute(request)?;
        effects.persist = self.is_lost || self.encode() != next.encode();
        Ok((next, effects))
    }
}

/// One command at work on a copy of the state.
struct Change<'a> {
    state: &'a mut Reservations,
    from: &'a PortName,
    surroundings: &'a Surroundings<'a>,
    effects: Effects,
}

impl Change<'_> {
    fn execute(mut self, request: &Request) -> Result<Effects, Refusal> {
        if let Some(sense) = self.state.lost_sense()
            && request.action != ServiceAction::ReplaceLostReservation
        {
            return Err(sense.into());
        }
        match (&request.details, request.action) {
            (Details::Move(details), _) => self.register_and_move(request, details)?,
            (Details::Basic(basic), ServiceAction::Register) => {
                self.register(request, basic, Some(request.key))?;
            }
            (Details::Basic(basic), ServiceAction::RegisterAndIgnoreExistingKey) => {
                self.register(request, basic, None)?;
            }
            (Details::Basic(_), ServiceAction::Reserve) => self.reserve(request)?,
            (Details::Basic(_), ServiceAction::Release) => self.release(request)?,
            (Details::Basic(_), ServiceAction::Clear) => self.clear(request)?,
            (Details::Basic(_), ServiceAction::Preempt | ServiceAction::PreemptAndAbort) => {
                self.preempt(request)?;
            }
            (Details::Basic(basic), ServiceAction::ReplaceLostReservation) => {
                self.replace_lost(request, basic)?;
            }
            // The parser makes no such pair.
            (Details::Basic(_), ServiceAction::RegisterAndMove) => {
                return Err(field::SERVICE_ACTION.into());
            }
        }
        Ok(self.effects)
    }

    /// REGISTER, and REGISTER AND IGNORE EXISTING KEY, which gives no key to compare with.
    ///
    /// Spec: SPC-4, Registering.
    fn register(
        &mut self,
        request: &Request,
        basic: &Basic,
        key: Option<u64>,
    ) -> Result<(), Refusal> {
        let registered = self.state.key_of(self.from);
        if key.is_some_and(|key| key != registered.unwrap_or(0)) {
            return Err(Refusal::Conflict);
        }
        if registered.is_some() && basic.spec_i_pt {
            return Err(field::SPEC_I_PT.into());
        }
        if basic.aptpl && !self.surroundings.can_persist {
            return Err(field::APTPL.into());
        }
        if registered.is_none() && request.action_key == 0 {
            return Ok(());
        }
        let own = self.at_target_ports(&self.from.transport_id, &self.from.principal, basic);
        own.iter().for_each(|port| self.state.bind(port));
        // As if the command had come through each target port: one wrong key spoils it.
        let is_foreign = |port: &PortName| {
            let there = self.state.key_of(port);
            key.is_some_and(|key| there.is_some_and(|there| there != key))
        };
        if own.iter().any(is_foreign) {
            return Err(Refusal::Conflict);
        }
        if request.action_key == 0 {
            self.unregister(&own);
        } else {
            let others = self.specified(basic)?;
            for port in own.iter().chain(&others) {
                self.set_key(port, request.action_key)?;
            }
        }
        self.state.is_kept = basic.aptpl;
        self.count_generation();
        Ok(())
    }

    /// RESERVE. Spec: SPC-4, Reserving.
    fn reserve(&mut self, request: &Request) -> Result<(), Refusal> {
        self.check_key(request)?;
        let kind = scope_and_type(request)?;
        match &self.state.held {
            None => self.state.held = Some(Held::new(kind, self.from)),
            Some(held) if held.kind == kind && self.state.is_holder(self.from) => {}
            Some(_) => return Err(Refusal::Conflict),
        }
        Ok(())
    }

    /// RELEASE. Spec: SPC-4, Releasing.
    fn release(&mut self, request: &Request) -> Result<(), Refusal> {
        self.check_key(request)?;
        let kind = scope_and_type(request)?;
        let Some(held) = self.state.held_type() else {
            return Ok(());
        };
        if !self.state.is_holder(self.from) {
            return Ok(());
        }
        if held != kind {
            return Err(invalid_release().into());
        }
        self.state.held = None;
        if kind.admits_registrants() {
            self.notify_registered(UnitAttention::ReservationsReleased);
        }
        Ok(())
    }

    /// CLEAR. Spec: SPC-4, Clearing.
    fn clear(&mut self, request: &Request) -> Result<(), Refusal> {
        self.check_key(request)?;
        self.notify_registered(UnitAttention::ReservationsPreempted);
        self.state.held = None;
        self.state.registrations.clear();
        self.count_generation();
        Ok(())
    }

    /// PREEMPT and PREEMPT AND ABORT.
    ///
    /// Spec: SPC-4, Preempting, Removing registrations, Preempting and aborting.
    fn preempt(&mut self, request: &Request) -> Result<(), Refusal> {
        self.check_key(request)?;
        let victim = request.action_key;
        match self.state.held.clone() {
            Some(held) => match held.by.and_then(|holder| self.state.key_of(&holder)) {
                // A single holder.
                Some(_) if victim == 0 => return Err(field::ACTION_KEY.into()),
                Some(key) if key == victim => self.take_over(request, held.kind)?,
                Some(_) => self.remove(request)?,
                // All registrants hold it.
                None if victim == 0 => self.take_over(request, held.kind)?,
                None => self.remove(request)?,
            },
            None => self.remove(request)?,
        }
        self.count_generation();
        Ok(())
    }

    /// The part of a preemption that replaces the reservation, whose type is `old`.
    fn take_over(&mut self, request: &Request, old: ReservationType) -> Result<(), Refusal> {
        let kind = scope_and_type(request)?;
        self.preempt_registrations(request, |registration, from| {
            registration.port != *from
                && (request.action_key == 0 || registration.key == request.action_key)
        });
        self.state.held = Some(Held::new(kind, self.from));
        if kind != old {
            self.notify_registered(UnitAttention::ReservationsReleased);
        }
        Ok(())
    }

    /// The part of a preemption that only removes registrations; the sender's own may be one.
    fn remove(&mut self, request: &Request) -> Result<(), Refusal> {
        let is_victim = |registration: &Registration| registration.key == request.action_key;
        if !self.state.registrations.iter().any(is_victim) {
            return Err(Refusal::Conflict);
        }
        self.preempt_registrations(request, |registration, _| is_victim(registration));
        if self.state.registrations.is_empty() {
            self.state.held = None;
        }
        Ok(())
    }

    /// Removes the registrations that `is_removed` picks and notifies their nexuses.
    fn preempt_registrations(
        &mut self,
        request: &Request,
        is_removed: impl Fn(&Registration, &PortName) -> bool,
    ) {
        let registrations = std::mem::take(&mut self.state.registrations);
        if request.action == ServiceAction::PreemptAndAbort {
            // Also the sender, if it carries the key: its other tasks end as well.
            let is_hit =
                |one: &&Registration| request.action_key == 0 || one.key == request.action_key;
            let hit = registrations.iter().filter(is_hit);
            self.effects.abort_tasks_of = hit.map(|one| one.port.clone()).collect();
        }
        for registration in registrations {
            if is_removed(&registration, self.from) {
                self.tell(registration.port, UnitAttention::RegistrationsPreempted);
            } else {
                self.state.registrations.push(registration);
            }
        }
    }

    /// REGISTER AND MOVE. Spec: SPC-4, Registering and moving the reservation.
    fn register_and_move(&mut self, request: &Request, details: &Move) -> Result<(), Refusal> {
        self.check_key(request)?;
        let Some(kind) = self.state.held_type() else {
            return Err(field::SERVICE_ACTION.into());
        };
        if kind.is_all_registrants() || !self.state.is_holder(self.from) {
            return Err(Refusal::Conflict);
        }
        if request.action_key == 0 {
            return Err(field::ACTION_KEY.into());
        }
        if details.aptpl && !self.surroundings.can_persist {
            return Err(field::MOVE_APTPL.into());
        }
        if !self
            .surroundings
            .target_ports
            .contains(&details.target_port)
        {
            return Err(field::TARGET_PORT.into());
        }
        let known = self.known_ports(std::slice::from_ref(&details.to));
        // A device with several ports does not say which of them shall hold the unit.
        let transport_id = match ports_of(&details.to, &known)[..] {
            [one] if *one != self.from.transport_id => Arc::clone(one),
            [..] => return Err(field::MOVE_TRANSPORT_ID.into()),
        };
        let mut to = PortName {
            transport_id,
            target_port: details.target_port,
            principal: Principal::Unknown,
        };
        if let Some(known) = self.state.registration_of_ports(&to) {
            to = known.port.clone();
        }
        self.set_key(&to, request.action_key)?;
        self.state.held = Some(Held::new(kind, &to));
        if details.unregister {
            self.unregister(std::slice::from_ref(self.from));
        }
        self.state.is_kept = details.aptpl;
        self.count_generation();
        Ok(())
    }

    /// REPLACE LOST RESERVATION. Spec: SPC-4, Replacing lost reservations.
    fn replace_lost(&mut self, request: &Request, basic: &Basic) -> Result<(), Refusal> {
        if self.state.lost_sense().is_none() {
            return Err(invalid_release().into());
        }
        if request.key != 0 {
            return Err(field::KEY.into());
        }
        if request.action_key == 0 {
            return Err(field::ACTION_KEY.into());
        }
        if basic.all_target_ports {
            return Err(field::ALL_TG_PT.into());
        }
        if basic.aptpl && !self.surroundings.can_persist {
            return Err(field::APTPL.into());
        }
        let kind = scope_and_type(request)?;
        *self.state = Reservations {
            held: Some(Held::new(kind, self.from)),
            is_kept: basic.aptpl,
            ..Reservations::default()
        };
        self.set_key(self.from, request.action_key)
    }

    /// The sender must be registered with the key it gives, whatever else the command says.
    fn check_key(&self, request: &Request) -> Result<(), Refusal> {
        if self.state.key_of(self.from) == Some(request.key) {
            Ok(())
        } else {
            Err(Refusal::Conflict)
        }
    }

    /// The nexuses of an initiator port that a registration concerns.
    fn at_target_ports(
        &self,
        initiator: &Arc<[u8]>,
        principal: &Principal,
        basic: &Basic,
    ) -> Vec<PortName> {
        let here = self.from.target_port;
        let all = self.surroundings.target_ports.iter().copied();
        std::iter::once(here)
            .chain(all.filter(|&port| basic.all_target_ports && port != here))
            .map(|target_port| PortName {
                transport_id: Arc::clone(initiator),
                target_port,
                principal: principal.clone(),
            })
            .collect()
    }

    /// The nexuses of SPEC_I_PT; none may be registered yet. The time it takes grows with what is named and known
    /// here, not with their product.
    fn specified(&self, basic: &Basic) -> Result<Vec<PortName>, Refusal> {
        let known = self.known_ports(&basic.initiators);
        let registered: BTreeSet<_> = self
            .state
            .registrations
            .iter()
            .map(|one| (&one.port.transport_id, one.port.target_port))
            .collect();
        let mut seen = BTreeSet::new();
        let mut specified = Vec::new();
        for named in &basic.initiators {
            let initiators = ports_of(named, &known);
            if initiators.is_empty() {
                return Err(field::SPEC_I_PT.into());
            }
            for initiator in initiators {
                let ports = self.at_target_ports(initiator, &Principal::Unknown, basic);
                for port in ports {
                    if registered.contains(&(&port.transport_id, port.target_port)) {
                        return Err(field::SPEC_I_PT.into());
                    }
                    // Only once each, so that the list stays bounded.
                    if !seen.insert((initiator, port.target_port)) {
                        continue;
                    }
                    if specified.len() == REGISTRATIONS_MAX {
                        return Err(parse::no_room().into());
                    }
                    specified.push(port);
                }
            }
        }
        Ok(specified)
    }

    /// The initiator ports of the devices that are named, those that are logged in or registered, by device.
    fn known_ports<'b>(&'b self, named: &'b [Named]) -> KnownPorts<'b> {
        let devices = named.iter().filter_map(|named| match named {
            Named::Port(_) => None,
            Named::Device(name) => Some((name.as_slice(), BTreeSet::new())),
        });
        let mut known: KnownPorts<'b> = devices.collect();
        if known.is_empty() {
            return known;
        }
        let registered = self.state.registrations.iter();
        let registered = registered.map(|registration| &registration.port.transport_id);
        for id in registered.chain(self.surroundings.initiator_ports) {
            if let Some(ports) = known.get_mut(device_of(id)) {
                ports.insert(id);
            }
        }
        known
    }

    fn set_key(&mut self, port: &PortName, key: u64) -> Result<(), Refusal> {
        let has_room = self.has_room(port);
        let registrations = &mut self.state.registrations;
        if let Some(known) = registrations.iter_mut().find(|one| one.port == *port) {
            known.key = key;
        } else if has_room {
            let port = port.clone();
            registrations.push(Registration { port, key });
        } else {
            return Err(parse::no_room().into());
        }
        Ok(())
    }

    /// Whether the sender may have one more registration, for itself or for a port that it names.
    fn has_room(&self, port: &PortName) -> bool {
        let registrations = &self.state.registrations;
        let free = REGISTRATIONS_MAX.saturating_sub(registrations.len());
        if port.transport_id != self.from.transport_id {
            return free > REGISTRATIONS_KEPT;
        }
        let is_its_own = |one: &&Registration| match (&one.port.principal, &port.principal) {
            (Principal::User(one), Principal::User(other)) => one == other,
            (Principal::User(_), _) | (_, Principal::User(_)) => false,
            (Principal::Unknown | Principal::Nobody, Principal::Unknown | Principal::Nobody) => {
                is_same_device(&one.port.transport_id, &port.transport_id)
            }
        };
        let held = registrations.iter().filter(is_its_own).count();
        held < free.saturating_mul(REGISTERED_PER_FREE_MAX)
    }

    /// Takes registrations away, and with the last one that holds it the reservation.
    ///
    /// Spec: SPC-4, Unregistering.
    fn unregister(&mut self, ports: &[PortName]) {
        let was_holder = ports.iter().any(|port| self.state.is_holder(port));
        self.state
            .registrations
            .retain(|one| !ports.contains(&one.port));
        let Some(kind) = self.state.held_type().filter(|_| was_holder) else {
            return;
        };
        if kind.is_all_registrants() && !self.state.registrations.is_empty() {
            return;
        }
        self.state.held = None;
        if kind.admits_registrants() {
            self.notify_registered(UnitAttention::ReservationsReleased);
        }
    }

    fn count_generation(&mut self) {
        self.state.generation = self.state.generation.wrapping_add(1);
    }

    /// Notifies every registered nexus, except the sender.
    fn notify_registered(&mut self, attention: UnitAttention) {
        for registration in &self.state.registrations {
            if registration.port != *self.from {
                let port = registration.port.clone();
                self.effects.attentions.push((port, attention));
            }
        }
    }

    fn tell(&mut self, port: PortName, attention: UnitAttention) {
        if port != *self.from {
            self.effects.attentions.push((port, attention));
        }
    }
}

/// Initiator ports by the device they are of.
type KnownPorts<'a> = BTreeMap<&'a [u8], BTreeSet<&'a Arc<[u8]>>>;

/// The initiator ports that a TransportID stands for.
fn ports_of<'a>(named: &'a Named, known: &KnownPorts<'a>) -> Vec<&'a Arc<[u8]>> {
    match named {
        Named::Port(port) => vec![port],
        Named::Device(name) => {
            let ports = known.get(name.as_slice());
            ports.into_iter().flatten().copied().collect()
        }
    }
}

fn scope_and_type(request: &Request) -> Result<ReservationType, Refusal> {
    const LU_SCOPE: u8 = 0x0;
    if request.scope != LU_SCOPE {
        return Err(field::SCOPE.into());
    }
    Ok(ReservationType::from_code(request.type_code).ok_or(field::TYPE)?)
}

const fn invalid_release() -> Sense {
    Sense::illegal_request(SenseCode::INVALID_RELEASE_OF_PERSISTENT_RESERVATION)
}
