//! The sessions of HyperSCSI on one core: which frames are whose, and when each is sent.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::hyperscsi::limits::{BEGUN_MAX_BYTES, FRAME_MIN_BYTES, PDU_MAX_BYTES, TAGS};
use ::hyperscsi::{EndReason, Entropy, FragmentHeader, TargetSession};
use engine::deadlines::{Deadlines, Moment};
use engine::table::Table;
use engine::{Engine, SessionKey};
use memory::{Crowd, Party, Pool};
use scsi::{
    Outcome as ScsiOutcome, PortName, Principal, Sense, SenseCode, SenseKey, UnitAttention,
};

use super::counts::{Counts, add};
use super::delayed::Delayed;
use super::entry::{Asked, PlaceEntry, Rate};
use super::keys::{OfPlace, PlaceKey};
use super::places::Places;
use super::plan::{Group, Place, Server};
use super::session::{Detail, ReplyData, SessionPort, Taken, transport_id};
use super::stock::Stock;
use super::wire::{Granted, Letter, Notice, Wire};
use crate::identity::SessionId;
use crate::iscsi::{FRONT_CORE, GuessLimiter, origin};
use crate::port::Port;
use crate::report::{SessionReport, TransportDetails};
use crate::station::Station;

/// The relative target port of all clients: none that SCSI initiators could name.
const NO_TARGET_PORT: u16 = 0;

/// Frames of a place that the system has and has not sent yet.
pub(super) const SENDING_MAX: usize = 256;

/// Frames of a session that are sent before others have their turn.
const ROUND_FRAMES: usize = 64;

/// The fewest slots that a session can have.
const SLOTS_MIN: u16 = 2;

/// Sizes of sessions.
#[derive(Clone, Copy, Debug)]
pub struct SessionSettings {
    /// This core, and how many there are.
    pub core: usize,
    /// See there.
    pub cores: usize,
    /// Commands of one session under way.
    pub queue_depth: u32,
    /// Sessions on this core. Each may hold 2 MiB of what has not come whole, and as much of what waits.
    pub sessions_max: usize,
    /// Sessions of one host.
    pub per_host_max: usize,
}

/// What a client may have begun to send, in bytes.
pub(super) const BEGUN_BYTES: u32 = 2 << 20;

const _: () = assert!(BEGUN_BYTES >= PDU_MAX_BYTES && BEGUN_BYTES <= BEGUN_MAX_BYTES);

/// Which tags of a station are those of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tags {
    pub(super) first: u16,
    pub(super) count: u16,
    pub(super) session: SessionKey,
}

/// The sessions of HyperSCSI on one core.
#[derive(Debug)]
pub struct Sessions<C: Wire> {
    pub(super) settings: SessionSettings,
    pub(super) entropy: Entropy,
    pub(super) server: Option<Server>,
    pub(super) groups: Arc<[Group]>,
    pub(super) sites: Table<PlaceEntry<C::HyperscsiSocket>, OfPlace>,
    pub(super) by_id: HashMap<SessionId, SessionKey>,
    pub(super) stations: HashMap<(PlaceKey, Station), Vec<Tags>>,
    /// Clients that have authenticated and wait for a place.
    pub(super) asked: HashMap<u64, Asked>,
    pub(super) next_ticket: u64,
    pub(super) delayed: Delayed,
    pub(super) unknown: Rate,
    deadlines: Deadlines<SessionKey>,
    /// Sessions with something to send, or commands to be given.
    dirty: Vec<SessionKey>,
    /// One of them had its turn, and has more.
    has_more: bool,
    /// Those who wait for the end of a session.
    pub(super) receipts: HashMap<SessionId, Vec<C::Receipt>>,
    /// All clients hold data in this part of the core's memory.
    crowd: Option<Crowd>,
    /// They share it by their hosts; how many sessions are from there.
    parties: HashMap<IpAddr, (Party, usize)>,
    pub(super) is_stopping: bool,
    /// Memory for data of replies of all sessions.
    stock: Rc<Stock>,
    /// Logins without a proof of the password.
    pub(super) guesses: GuessLimiter,
    pub(super) counts: Counts,
    /// Who has a place; one core has it.
    pub(super) places: Option<Places>,
}

impl<C: Wire> Sessions<C> {
    /// Nothing is served yet. `seed` are random bytes that nothing else is made of.
    pub fn new(settings: SessionSettings, seed: &[u8; 32], places: Option<Places>) -> Self {
        Self {
            settings,
            entropy: Entropy::new(seed),
            server: None,
            groups: Arc::default(),
            sites: Table::default(),
            by_id: HashMap::new(),
            stations: HashMap::new(),
            asked: HashMap::new(),
            next_ticket: 0,
            delayed: Delayed::default(),
            unknown: Rate::default(),
            deadlines: Deadlines::default(),
            dirty: Vec::new(),
            has_more: false,
            receipts: HashMap::new(),
            crowd: None,
            parties: HashMap::new(),
            is_stopping: false,
            stock: Rc::default(),
            guesses: GuessLimiter::default(),
            counts: Counts::default(),
            places,
        }
    }

    /// Commands of a session that begins from now on.
    pub const fn set_queue_depth(&mut self, commands: u32) {
        self.settings.queue_depth = commands;
    }

    /// The session that administrators call so.
    pub fn session(&self, id: SessionId) -> Option<SessionKey> {
        self.by_id.get(&id).copied()
    }

    /// Which frames are those of the session that administrators call so, if it lives here.
    pub fn frames_of(
        &self,
        engine: &Engine<C>,
        id: SessionId,
    ) -> Option<(PlaceKey, Station, RangeInclusive<u16>)> {
        let port = engine.session(self.session(id)?)?.port.hyperscsi()?;
        let (detail, terms) = (&port.detail, port.session.terms());
        let last = terms.first_tag.saturating_add(terms.slots);
        Some((detail.place, detail.station, terms.first_tag..=last))
    }

    /// No session is left.
    pub fn is_quiet(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Gives back what tables have room for beyond need.
    pub fn shrink(&mut self) {
        self.by_id.shrink_to_fit();
        self.stations.shrink_to_fit();
        self.parties.shrink_to_fit();
        self.asked.shrink_to_fit();
    }

    /// What was counted.
    pub fn counts(&self, engine: &Engine<C>) -> Counts {
        let mut counts = self.counts;
        let all = self.by_id.values().filter_map(|key| engine.session(*key));
        for port in all.filter_map(|entry| entry.port.hyperscsi()) {
            add(&mut counts.sessions, port.session.counters());
        }
        counts
    }

    // ---- frames ------------------------------------------------------------------------------

    /// A frame has come in at a place.
    pub fn handle_frame(
        &mut self,
        engine: &mut Engine<C>,
        place: PlaceKey,
        from: Station,
        frame: &[u8],
    ) {
        self.counts.frames_in = self.counts.frames_in.wrapping_add(1);
        if from.core(self.settings.cores) != self.settings.core {
            self.counts.misplaced = self.counts.misplaced.wrapping_add(1);
            return;
        }
        let Some(head) = frame.first_chunk() else {
            self.note_strange();
            return;
        };
        let tag = FragmentHeader::decode(*head).tag;
        if tag == 0 {
            self.handle_plain(engine, place, from, frame);
            return;
        }
        let Some(key) = self.session_of(place, from, tag) else {
            self.counts.unknown_tag = self.counts.unknown_tag.wrapping_add(1);
            // An answer is never larger than its question.
            if frame.len() >= FRAME_MIN_BYTES {
                self.answer_unknown(engine, place, from, tag);
            }
            return;
        };
        let now = engine.now();
        if let Some(port) = port_of(engine, key) {
            port.session.handle_lent_frame(now, frame);
            self.handle_events_of(engine, key, frame);
        }
    }

    /// A frame that is longer than any has come, or one of nobody.
    pub const fn note_strange(&mut self) {
        self.counts.strange = self.counts.strange.wrapping_add(1);
    }

    fn session_of(&self, place: PlaceKey, station: Station, tag: u16) -> Option<SessionKey> {
        let all = self.stations.get(&(place, station))?;
        let is_it = |tags: &&Tags| tag.wrapping_sub(tags.first) < tags.count;
        all.iter().find(is_it).map(|tags| tags.session)
    }

    /// Takes everything that happened in a session.
    pub fn handle_events(&mut self, engine: &mut Engine<C>, key: SessionKey) {
        self.handle_events_of(engine, key, &[]);
    }

    /// The same after this frame has come.
    fn handle_events_of(&mut self, engine: &mut Engine<C>, key: SessionKey, frame: &[u8]) {
        let now = engine.now();
        loop {
            let Some(entry) = engine.session_mut(key) else {
                return;
            };
            if entry.is_ending() {
                return;
            }
            let (port, pool) = entry.port_and_pool();
            let Some(port) = port.hyperscsi_mut() else {
                return;
            };
            match port.take(pool, now, frame) {
                Some(Taken::Command(id, command)) => {
                    engine.handle_command(key, id, command);
                }
                Some(Taken::TooShort(id)) => {
                    let code = SenseCode::NOT_ENOUGH_UNSOLICITED_DATA;
                    let sense = Sense::new(SenseKey::AbortedCommand, code);
                    engine.handle_data_fault(key, id, ScsiOutcome::check(sense));
                }
                Some(Taken::Management(id, request)) => {
                    engine.handle_management(key, id, request);
                }
                Some(Taken::Ended(reason)) => {
                    let has_had_all = port.is_idle();
                    if reason == EndReason::Disconnected && has_had_all {
                        entry.note_farewell();
                    }
                    self.end(engine, key, reason_of(reason));
                    return;
                }
                None => break,
            }
        }
        engine.note_starving(key);
        self.mark(engine, key);
    }

    fn mark(&mut self, engine: &mut Engine<C>, key: SessionKey) {
        if let Some(port) = port_of(engine, key)
            && !std::mem::replace(&mut port.is_dirty, true)
        {
            self.dirty.push(key);
        }
    }

    /// A session has replies.
    pub fn note_ready(&mut self, session: SessionKey) {
        // It may be there already, which costs a look.
        if self.dirty.last() != Some(&session) {
            self.dirty.push(session);
        }
    }

    /// So many frames have left, and so many the system did not take.
    pub fn handle_sent(&mut self, place: PlaceKey, sent: u32, lost: u32) {
        self.counts.unsent = self.counts.unsent.wrapping_add(u64::from(lost));
        if let Some(entry) = self.sites.get_mut(place) {
            let over = sent.saturating_add(lost);
            let over = usize::try_from(over).unwrap_or(usize::MAX);
            entry.sending = entry.sending.saturating_sub(over);
        }
    }

    /// Sends a frame; one that the place has no room for is lost.
    pub(super) fn send(
        &mut self,
        engine: &mut Engine<C>,
        place: PlaceKey,
        to: Station,
        frame: &[u8],
    ) {
        let Some(entry) = self.sites.get_mut(place) else {
            return;
        };
        if entry.sending >= SENDING_MAX {
            self.counts.unsent = self.counts.unsent.wrapping_add(1);
            return;
        }
        entry.sending = entry.sending.saturating_add(1);
        self.counts.frames_out = self.counts.frames_out.wrapping_add(1);
        let write = |room: &mut [u8]| {
            room.get_mut(..frame.len())?.copy_from_slice(frame);
            Some(frame.len())
        };
        engine.carrier.send_frame(&entry.socket, place, to, write);
    }

    /// Sends what became ready in this turn. Called at its end.
    pub fn flush(&mut self, engine: &mut Engine<C>) {
        if !self.delayed.is_empty() {
            self.send_delayed(engine);
        }
        self.has_more = false;
        if !self.dirty.is_empty() {
            self.flush_dirty(engine);
        }
    }

    fn flush_dirty(&mut self, engine: &mut Engine<C>) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for key in dirty.drain(..) {
            let has_event = port_of(engine, key).is_some_and(|port| {
                port.is_dirty = true;
                port.has_event()
            });
            if has_event {
                self.handle_events(engine, key);
            }
            self.flush_session(engine, key);
        }
        // Those that have more to send, behind the others.
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
    }

    fn flush_session(&mut self, engine: &mut Engine<C>, key: SessionKey) {
        let now = engine.now();
        let Some((entry, wire)) = engine.session_and_carrier(key) else {
            return;
        };
        let is_ending = entry.is_ending();
        let Some(port) = entry.port.hyperscsi_mut() else {
            return;
        };
        port.is_dirty = false;
        port.settle(now);
        let (place, to) = (port.detail.place, port.detail.station);
        let Some(site) = self.sites.get_mut(place) else {
            return;
        };
        let mut left = ROUND_FRAMES;
        let is_all = loop {
            if left == 0 || site.sending >= SENDING_MAX {
                break false;
            }
            let session = &mut port.session;
            let write = |room: &mut [u8]| session.poll_frame(now, room);
            if !wire.send_frame(&site.socket, place, to, write) {
                break true;
            }
            left = left.saturating_sub(1);
            site.sending = site.sending.saturating_add(1);
            self.counts.frames_out = self.counts.frames_out.wrapping_add(1);
        };
        if is_ending {
            return;
        }
        if is_all {
            let due = port.session.deadline();
            let is_sooner = due.is_some_and(|at| port.due.is_none_or(|was| at < was));
            port.due = due;
            if let Some(at) = due.filter(|_| is_sooner) {
                self.deadlines.set(key, at);
            }
        } else {
            // What waits for the place goes on when that has sent something.
            self.has_more |= left == 0;
            port.is_dirty = true;
            self.dirty.push(key);
        }
        if port.is_over() {
            self.end(engine, key, "the target stops");
        }
    }

    // ---- time --------------------------------------------------------------------------------

    /// Something waits for the next turn.
    pub const fn has_more(&self) -> bool {
        self.has_more
    }

    /// A session has frames for which its place has no room before others are over.
    pub const fn waits_for_places(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Before this moment [`Sessions::poll_timeout`] is not: found without a look at any session.
    #[inline]
    pub fn soonest(&self) -> Moment {
        self.deadlines
            .soonest(self.by_id.len())
            .min(Moment::of(self.delayed.next()))
    }

    /// When [`Sessions::handle_timeout`] is due, if ever.
    pub fn poll_timeout(&mut self, engine: &Engine<C>) -> Option<Duration> {
        let bound = self.soonest();
        let of = |key| engine.session(key)?.port.hyperscsi()?.due;
        let sessions = self.deadlines.next(self.by_id.len(), of);
        let delayed = self.delayed.next();
        let next = [sessions, delayed].into_iter().flatten().min();
        debug_assert!(
            bound <= Moment::of(next),
            "{bound:?} is later than {next:?}"
        );
        next
    }

    /// Time has come.
    pub fn handle_timeout(&mut self, engine: &mut Engine<C>) {
        let now = engine.now();
        loop {
            let of = |key| engine.session(key)?.port.hyperscsi()?.due;
            let Some(key) = self.deadlines.due(now, of) else {
                return;
            };
            if let Some(port) = port_of(engine, key) {
                port.due = None;
                port.session.handle_deadline(now);
                self.handle_events(engine, key);
            }
        }
    }

    // ---- from beginning to end ---------------------------------------------------------------

    /// A session begins, of a client that has authenticated.
    pub(super) fn begin(
        &mut self,
        engine: &mut Engine<C>,
        session: TargetSession<ReplyData>,
        detail: Detail,
        (granted, group): (&Granted, &Group),
    ) {
        let (first, count) = (session.terms().first_tag, session.terms().slots + 1);
        let (id, place, station) = (detail.id, detail.place, detail.station);
        let luns = detail.luns.clone();
        let name = PortName {
            transport_id: transport_id(&detail.client),
            target_port: NO_TARGET_PORT,
            // Who knows the password of another group is somebody else.
            principal: if group.is_open {
                Principal::Nobody
            } else {
                Principal::User(format!("hyperscsi:{}@{}", group.name, group.place).into())
            },
        };
        engine
            .carrier
            .report(Notice::SessionBegins { session: &detail });
        let pool = self.account(engine, station.ip());
        let (limit, stock) = (self.settings.queue_depth, Rc::clone(&self.stock));
        let mut port = SessionPort::new(detail, session, limit, stock);
        if self.is_stopping {
            port.stop();
        }
        let port = Port::Hyperscsi(Box::new(port));
        let attention = Some(UnitAttention::PowerOnOrReset);
        let key = engine.begin_session(port, pool, (granted.nexus, name), &luns, attention);
        self.by_id.insert(id, key);
        let tags = Tags {
            first,
            count,
            session: key,
        };
        self.stations
            .entry((place, station))
            .or_default()
            .push(tags);
        self.mark(engine, key);
    }

    /// Tags for a session of a client there, which has so many slots at most.
    pub(super) fn tags_for(
        &self,
        place: PlaceKey,
        station: Station,
        slots: u16,
    ) -> Option<(u16, u16)> {
        let taken = self.stations.get(&(place, station));
        let taken = taken.into_iter().flatten();
        free_tags(taken.map(|tags| (tags.first, tags.count)).collect(), slots)
    }

    /// A host may have one more session here.
    pub(super) fn has_room(&self, host: IpAddr) -> bool {
        let of_host = self
            .parties
            .get(&origin(host))
            .map_or(0, |(_, count)| *count);
        self.by_id.len() < self.settings.sessions_max && of_host < self.settings.per_host_max
    }

    /// An account for a client from there.
    fn account(&mut self, engine: &Engine<C>, host: IpAddr) -> Pool {
        let crowd = self.crowd.get_or_insert_with(|| engine.pool().crowd());
        let party = self.parties.entry(origin(host));
        let (party, sessions) = party.or_insert_with(|| (crowd.party(), 0));
        *sessions = sessions.saturating_add(1);
        party.account()
    }

    fn leave_party(&mut self, host: IpAddr) {
        if let Entry::Occupied(mut party) = self.parties.entry(origin(host)) {
            let sessions = &mut party.get_mut().1;
            debug_assert!(*sessions > 0, "a party without sessions");
            *sessions = sessions.saturating_sub(1);
            if *sessions == 0 {
                party.remove();
            }
        }
    }

    /// Begins the end of a session: its client gets a last word, its tasks end, then it is gone.
    pub(super) fn end(&mut self, engine: &mut Engine<C>, key: SessionKey, reason: &'static str) {
        let now = engine.now();
        let Some((entry, wire)) = engine.session_and_carrier(key) else {
            return;
        };
        if entry.is_ending() {
            return;
        }
        let Some(port) = entry.port.hyperscsi_mut() else {
            return;
        };
        wire.report(Notice::SessionEnds {
            session: &port.detail,
            reason,
        });
        port.session.close(EndReason::Closed);
        port.due = None;
        let (place, to) = (port.detail.place, port.detail.station);
        // Its last word, or the answer to that of the client. Nobody repeats it.
        if let Some(site) = self.sites.get_mut(place)
            && site.sending < SENDING_MAX
        {
            let session = &mut port.session;
            let write = |room: &mut [u8]| session.poll_frame(now, room);
            if wire.send_frame(&site.socket, place, to, write) {
                site.sending = site.sending.saturating_add(1);
                self.counts.frames_out = self.counts.frames_out.wrapping_add(1);
            }
        }
        if let Entry::Occupied(mut tags) = self.stations.entry((place, to)) {
            tags.get_mut().retain(|tags| tags.session != key);
            if tags.get().is_empty() {
                tags.remove();
            }
        }
        engine.close_to_commands(key);
        engine.end_session(key);
    }

    /// Ends all sessions.
    pub fn end_all(&mut self, engine: &mut Engine<C>, reason: &'static str) {
        let all: Vec<SessionKey> = self.by_id.values().copied().collect();
        for session in all {
            self.end(engine, session, reason);
        }
    }

    /// Ends a session for an administrator. The receipt is kept until it is gone.
    pub fn dismiss(
        &mut self,
        engine: &mut Engine<C>,
        id: SessionId,
        reason: &'static str,
        receipt: C::Receipt,
    ) {
        if let Some(&session) = self.by_id.get(&id) {
            self.receipts.entry(id).or_default().push(receipt);
            self.end(engine, session, reason);
        }
    }

    /// Refuses all further commands and logins; each session ends when its client has its last reply.
    pub fn stop(&mut self, engine: &mut Engine<C>) {
        self.is_stopping = true;
        let all: Vec<SessionKey> = self.by_id.values().copied().collect();
        for key in all {
            if let Some(port) = port_of(engine, key) {
                port.stop();
            }
            self.mark(engine, key);
        }
    }

    /// A session and its tasks are gone; this is left of it.
    pub fn handle_over(&mut self, engine: &mut Engine<C>, port: &SessionPort) {
        let id = port.detail.id;
        add(&mut self.counts.sessions, port.session.counters());
        self.by_id.remove(&id);
        self.leave_party(port.detail.station.ip());
        drop(self.receipts.remove(&id));
        engine
            .carrier
            .post_letter(FRONT_CORE, Letter::SessionEnded(id));
    }

    /// Every session that lives here.
    pub fn report(&self, engine: &Engine<C>) -> Vec<SessionReport> {
        let report = |(_, entry): (SessionKey, &engine::Session<Port>)| {
            let port = entry.port.hyperscsi()?;
            let detail = &port.detail;
            let place = self.sites.get(detail.place)?.place.clone();
            let portal = match &place {
                Place::Udp(address) => *address,
                Place::Interface(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
            };
            let peer = detail.station;
            Some(SessionReport {
                id: detail.id,
                transport: TransportDetails::Hyperscsi {
                    group: Arc::clone(&detail.group),
                    place,
                    levels: port.session.levels().collect(),
                },
                core: engine.core(),
                initiator_name: detail.name.clone(),
                peer,
                portal,
                user: None,
                target: None,
                since: detail.since,
                luns: detail.luns.clone(),
                commands: entry.waiting_commands(),
                window: port.limit().saturating_sub(port.under_way()),
                is_ending: entry.is_ending(),
            })
        };
        engine.sessions().filter_map(report).collect()
    }

    /// What is left although every session is over, as "so many of what".
    pub fn leftovers(&self) -> Vec<String> {
        let has_places = self
            .places
            .as_ref()
            .is_some_and(|places| !places.is_empty());
        let counts = [
            ("sessions by name", self.by_id.len()),
            ("stations", self.stations.len()),
            ("receipts", self.receipts.len()),
            ("hosts", self.parties.len()),
            ("logins that wait for a place", self.asked.len()),
            ("tables of places in use", usize::from(has_places)),
        ];
        let left = counts.iter().filter(|(_, count)| *count > 0);
        left.map(|(what, count)| format!("{count} {what}"))
            .collect()
    }
}

/// The first tag and the slots of a session, with these first tags and counts taken already: as many slots as there is
/// room for.
fn free_tags(mut taken: Vec<(u16, u16)>, slots: u16) -> Option<(u16, u16)> {
    taken.sort_unstable();
    taken.push((TAGS - 1, 1));
    let mut slots = slots.max(SLOTS_MIN);
    loop {
        let mut next = 1_u16;
        for &(first, count) in &taken {
            // One more is for what is not of a slot.
            if first.saturating_sub(next) > slots {
                return Some((next, slots));
            }
            next = first.saturating_add(count);
        }
        if slots == SLOTS_MIN {
            return None;
        }
        slots = (slots / 2).max(SLOTS_MIN);
    }
}

/// For people.
const fn reason_of(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Silent => "nothing came from the client for too long",
        EndReason::Disconnected => "the client has disconnected",
        EndReason::Closed => "it was ended here",
        EndReason::Unknown => "the client has no such session",
        EndReason::Forged => "too many frames were forged",
        EndReason::Replaced => "the client has logged in again",
    }
}

/// The session, as HyperSCSI has it.
pub(super) fn port_of<C: Wire>(
    engine: &mut Engine<C>,
    session: SessionKey,
) -> Option<&mut SessionPort> {
    engine.session_mut(session)?.port.hyperscsi_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_one_station_have_tags_of_their_own_until_none_are_left() {
        let mut taken: Vec<(u16, u16)> = Vec::new();
        let mut slots_of = Vec::new();
        while let Some((first, slots)) = free_tags(taken.clone(), 64) {
            assert!(first > 0 && first + slots < TAGS);
            let is_apart =
                |&(other, count): &(u16, u16)| first >= other + count || other > first + slots;
            assert!(taken.iter().all(is_apart), "{first} {slots} {taken:?}");
            taken.push((first, slots + 1));
            slots_of.push(slots);
        }
        assert_eq!(slots_of[..7], [64; 7]);
        assert_eq!(slots_of.len(), 10, "{slots_of:?}");
        taken.remove(3);
        assert_eq!(free_tags(taken, 256).map(|(_, slots)| slots), Some(64));
        assert_eq!(free_tags(Vec::new(), 256), Some((1, 256)));
        assert_eq!(free_tags(Vec::new(), 0), Some((1, 2)));
    }

    #[test]
    fn each_end_is_named_for_people() {
        let ends = [
            (
                EndReason::Silent,
                "nothing came from the client for too long",
            ),
            (EndReason::Disconnected, "the client has disconnected"),
            (EndReason::Closed, "it was ended here"),
            (EndReason::Unknown, "the client has no such session"),
            (EndReason::Forged, "too many frames were forged"),
            (EndReason::Replaced, "the client has logged in again"),
        ];
        for (reason, text) in ends {
            assert_eq!(reason_of(reason), text);
        }
    }
}
