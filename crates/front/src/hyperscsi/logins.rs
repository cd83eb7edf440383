//! Discovery and logins: what comes with tag 0, up to a session.

use std::sync::Arc;
use std::time::SystemTime;

use ::hyperscsi::limits::{DATA_MAX_BYTES, SLOTS_DEFAULT, SLOTS_MAX};
use ::hyperscsi::{Accepted, Device, Opcode, Proved, Settings, Unproved, unknown_session};
use engine::Engine;

use super::entry::Asked;
use super::keys::PlaceKey;
use super::plan::{Group, GroupDevice};
use super::session::{Detail, ReplyData};
use super::sessions::{BEGUN_BYTES, Sessions};
use super::wire::{Ask, Granted, Letter, Notice, Wire};
use crate::iscsi::{FRONT_CORE, Front as IscsiFront, Line as IscsiLine};
use crate::station::Station;

/// Where the opcode stands in a frame that is not sealed: behind its header and the version.
const OPCODE_AT: usize = 4;

/// Why a client that has authenticated gets no session.
const NO_PLACE: &str = "there are as many sessions as there may be";
const NO_GROUP: &str = "its group is gone";
const NO_LOGIN: &str = "its login is too old";

impl<C: Wire> Sessions<C> {
    /// A frame with tag 0.
    pub(super) fn handle_plain(
        &mut self,
        engine: &mut Engine<C>,
        place: PlaceKey,
        from: Station,
        frame: &[u8],
    ) {
        let now = engine.now();
        let Some(site) = self.sites.get_mut(place).filter(|_| !self.is_stopping) else {
            return;
        };
        let host = from.host();
        let opcode = frame.get(OPCODE_AT).copied();
        if opcode == Some(Opcode::Discovery.to_wire()) {
            self.counts.questions = self.counts.questions.wrapping_add(1);
            let answer = site
                .responder
                .handle_frame(now, &site.cookies, &host, frame);
            if let Some((wait, answer)) = answer {
                let is_kept = self.delayed.push(now + wait, (place, from, answer));
                let dropped = u64::from(!is_kept);
                self.counts.answers_dropped = self.counts.answers_dropped.wrapping_add(dropped);
            }
            return;
        }
        self.counts.login_steps = self.counts.login_steps.wrapping_add(1);
        let who = (&host[..], from);
        let (answer, proved) = site.gate.handle_frame(now, &site.cookies, who, frame);
        if let Some(answer) = answer {
            self.send(engine, place, from, &answer);
        }
        if let Some(proved) = proved {
            self.ask(engine, place, from, proved);
        }
    }

    /// To be called every second: reports logins that have ended without a proof of the password.
    pub fn look(&mut self, engine: &mut Engine<C>) {
        let now = engine.now();
        for (_, site) in self.sites.iter_mut() {
            for Unproved { from, wish } in site.gate.take_unproved(now) {
                self.counts.unproved = self.counts.unproved.wrapping_add(1);
                let (station, group) = (from, &*wish.group);
                engine
                    .carrier
                    .report(Notice::LoginUnproved { station, group });
                let user = wish.user.unwrap_or_else(|| format!("hyperscsi:{group}"));
                if self.guesses.note(station.ip(), &user, now).is_guessing {
                    let user = &*user;
                    engine.carrier.report(Notice::Guessing { station, user });
                }
            }
        }
    }

    /// Sends answers whose time has come.
    pub(super) fn send_delayed(&mut self, engine: &mut Engine<C>) {
        let now = engine.now();
        while let Some((place, to, answer)) = self.delayed.take(now) {
            self.counts.answers = self.counts.answers.wrapping_add(1);
            self.send(engine, place, to, &answer);
        }
    }

    /// A frame with the tag of no session, which may be that of one before a restart.
    pub(super) fn answer_unknown(
        &mut self,
        engine: &mut Engine<C>,
        place: PlaceKey,
        to: Station,
        tag: u16,
    ) {
        if self.unknown.take(engine.now()) {
            self.send(engine, place, to, &unknown_session(tag));
        }
    }

    /// Asks the front for a place. What waits for it is bounded by the logins that a gate keeps.
    fn ask(&mut self, engine: &mut Engine<C>, place: PlaceKey, station: Station, proved: Proved) {
        self.counts.proved = self.counts.proved.wrapping_add(1);
        let Some(site) = self.sites.get(place) else {
            return;
        };
        self.next_ticket = self.next_ticket.wrapping_add(1);
        let ticket = self.next_ticket;
        let ask = Ask {
            core: self.settings.core,
            ticket,
            client: proved.wish.client,
            group: site.in_full(&proved.wish.group).into(),
            station,
        };
        let asked = Asked {
            place,
            login: proved.login,
            station,
            wish: proved.wish,
        };
        self.asked.insert(ticket, asked);
        engine
            .carrier
            .post_letter(FRONT_CORE, Letter::Ask(Box::new(ask)));
    }

    /// A letter has come.
    pub fn handle_letter(
        &mut self,
        engine: &mut Engine<C>,
        letter: Letter,
        front: Option<&mut IscsiFront<impl IscsiLine>>,
        clock: SystemTime,
    ) {
        match letter {
            Letter::Ask(ask) => {
                if let (Some(places), Some(front)) = (&mut self.places, front) {
                    places.handle_ask(&mut engine.carrier, front, *ask);
                }
            }
            Letter::Placed { ticket, granted } => {
                self.handle_placed(engine, ticket, granted, clock);
            }
            Letter::Replace(id) => {
                if let Some(key) = self.session(id) {
                    self.end(engine, key, "its client has logged in again");
                }
            }
            Letter::SessionEnded(id) => {
                if let (Some(places), Some(front)) = (&mut self.places, front) {
                    places.handle_ended(&mut engine.carrier, front, id);
                }
            }
        }
    }

    fn handle_placed(
        &mut self,
        engine: &mut Engine<C>,
        ticket: u64,
        granted: Option<Granted>,
        clock: SystemTime,
    ) {
        let Some(asked) = self.asked.remove(&ticket) else {
            return;
        };
        let id = granted.as_ref().map(|granted| granted.id);
        let Err(reason) = self.accept(engine, &asked, granted, clock) else {
            return;
        };
        if let Some(id) = id {
            let letter = Letter::SessionEnded(id);
            engine.carrier.post_letter(FRONT_CORE, letter);
        }
        self.counts.refused = self.counts.refused.wrapping_add(1);
        engine.carrier.report(Notice::LoginRefused {
            station: asked.station,
            group: &asked.wish.group,
            reason,
        });
        let site = self.sites.get_mut(asked.place);
        if let Some(frame) = site.and_then(|site| site.gate.refuse(asked.login)) {
            self.send(engine, asked.place, asked.station, &frame);
        }
    }

    /// A session begins, unless there is a reason against it.
    fn accept(
        &mut self,
        engine: &mut Engine<C>,
        asked: &Asked,
        granted: Option<Granted>,
        clock: SystemTime,
    ) -> Result<(), &'static str> {
        let granted = granted
            .filter(|_| self.has_room(asked.station.ip()) && !self.is_stopping)
            .ok_or(NO_PLACE)?;
        let site = self.sites.get(asked.place).ok_or(NO_GROUP)?;
        let groups = Arc::clone(&self.groups);
        let is_it = |group: &&Group| group.name == asked.wish.group && group.place == site.place;
        let group = groups.iter().find(is_it).ok_or(NO_GROUP)?;
        let slots = match asked.wish.slots {
            0 => SLOTS_DEFAULT,
            wished => wished.min(SLOTS_MAX),
        };
        // The last one is for functions.
        let most = self.settings.queue_depth.saturating_add(1);
        let slots = slots.min(u16::try_from(most).unwrap_or(SLOTS_MAX));
        let tags = self.tags_for(asked.place, asked.station, slots);
        let (first_tag, slots) = tags.ok_or(NO_PLACE)?;
        let session = u32::from_be_bytes(self.entropy.bytes());
        let devices = devices_of(engine, group);
        let site = self.sites.get_mut(asked.place).ok_or(NO_GROUP)?;
        site.gate.set_session(Settings {
            profile: group.profile,
            retransmit: group.retransmit,
            frame_bytes: site.sizes.base,
            frame_bytes_max: site.sizes.most,
            begun_bytes: BEGUN_BYTES,
            ..Settings::default()
        });
        let names = (session, first_tag, slots);
        let now = engine.now();
        let accepted = site.gate.accept(now, asked.login, names, devices);
        let Accepted::<ReplyData> { frame, session } = accepted.ok_or(NO_LOGIN)?;
        let client: String = asked
            .wish
            .client
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let detail = Detail {
            id: granted.id,
            group: group.name.as_str().into(),
            client: asked.wish.client,
            name: format!("hyperscsi:{client}"),
            station: asked.station,
            place: asked.place,
            since: clock,
            luns: group.luns(),
            shares: granted.shares.clone(),
        };
        self.send(engine, asked.place, asked.station, &frame);
        self.begin(engine, session, detail, (&granted, group));
        Ok(())
    }
}

/// The devices of a group, as clients see them.
pub(super) fn devices_of<C: Wire>(engine: &Engine<C>, group: &Group) -> Vec<Device> {
    let device = |device: &GroupDevice| {
        let store = engine.capabilities(device.unit)?;
        let block_bytes = u64::from(store.block_bytes.max(1));
        Some(Device {
            handle: device.handle,
            level: device.level,
            is_read_only: device.read_only || store.read_only,
            is_removable: device.is_removable,
            peripheral_type: device.peripheral_type,
            block_bytes: store.block_bytes,
            blocks: store.size_bytes / block_bytes,
            data_max_bytes: DATA_MAX_BYTES,
            designator: device.designator,
            name: device.name.clone(),
        })
    };
    group.devices.iter().filter_map(device).collect()
}
