//! What both ends of a session do alike: PDUs go out in fragments and come in whole, once each.
//!
//! | Module | Owns |
//! | --- | --- |
//! | `receive` | frames that come: seals, sequence numbers, PDUs that are put together |
//! | `transmit` | frames that leave, and which of them next |
//! | `recover` | acknowledgements, what is lost, timers |

mod receive;
mod recover;
mod transmit;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::assembly::Assembly;
use crate::keys::{Keys, MacKey, Opener, SEAL_BYTES, Sealer, Side};
use crate::limits::{BEGUN_MAX_BYTES, FRAGMENT_HEADER_BYTES, SILENCE_RADIO, WINDOW_DEFAULT};
use crate::outgoing::Outgoing;
use crate::path::{Path, Profile};
use crate::pdu::{HEADER_BYTES, Header, Level, Opcode};

pub(crate) use receive::{Arrival, Frame, Held};

/// Memory that is kept for PDUs that come: what those of one frame need, and no more than so much for each.
const SPARE_MAX: usize = 8;
const SPARE_BYTES_MAX: usize = 16 << 10;

/// Memory that is kept for heads of PDUs that leave.
const HEADS_MAX: usize = 64;

/// What is sent again after a loss.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Retransmit {
    /// What is missing.
    Selective,
    /// All that was sent after it, too.
    Window,
}

/// What the ends of a session agreed on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Terms {
    /// Its number.
    pub session: u32,
    /// The tag of its control PDUs. Those of commands follow.
    pub first_tag: u16,
    /// Commands under way, at most.
    pub slots: u16,
    /// Frames that the peer lets be under way.
    pub peer_window: u16,
    /// PDUs that may be begun, in bytes.
    pub peer_begun_bytes: u32,
    /// The largest frame that both ends have, in bytes after the Ethernet header.
    pub frame_bytes_max: u16,
    /// What kind of network it is, as the target has it.
    pub profile: Profile,
    /// A frame may carry several PDUs, and acknowledgements may be short.
    pub bundles: bool,
}

/// What an end decides for itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Settings {
    /// What kind of network it is. A client takes what its target says.
    pub profile: Profile,
    /// What is sent again after a loss.
    pub retransmit: Retransmit,
    /// The frame that every path carries, in bytes after the Ethernet header.
    pub frame_bytes: u16,
    /// The largest frame to try, in bytes after the Ethernet header.
    pub frame_bytes_max: u16,
    /// Frames that the peer may have under way.
    pub window: u16,
    /// Memory for PDUs that have not arrived whole, in bytes.
    pub begun_bytes: u32,
    /// How long a session survives silence, if its profile does not allow less.
    pub silence: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            profile: Profile::WIRED,
            retransmit: Retransmit::Selective,
            frame_bytes: crate::limits::FRAME_BASE_BYTES,
            frame_bytes_max: crate::limits::FRAME_MAX_BYTES,
            window: WINDOW_DEFAULT,
            begun_bytes: BEGUN_MAX_BYTES,
            silence: SILENCE_RADIO,
        }
    }
}

/// What was dropped, and why; what was sent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Frames that came.
    pub frames_in: u64,
    /// Frames that left.
    pub frames_out: u64,
    /// PDUs that left behind others, in the same frame.
    pub joined: u64,
    /// Fragments that had been sent before.
    pub retransmitted: u64,
    /// Fragments that were sent again and had not been lost.
    pub spurious: u64,
    /// Probes.
    pub probes: u64,
    /// Frames too short to be one, or of a tag that is not the session's.
    pub strange: u64,
    /// Frames whose seal is wrong.
    pub forged: u64,
    /// Frames that had come before, or that belong to a PDU of before.
    pub stale: u64,
    /// PDUs whose checksum, hash, session or sequence number is wrong.
    pub corrupt: u64,
    /// Fragments for which there was no memory.
    pub no_room: u64,
    /// Frames became smaller because large ones did not arrive.
    pub fallbacks: u64,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EndReason {
    /// Nothing came from the peer for too long.
    Silent,
    /// The peer ended it.
    Disconnected,
    /// This side ended it.
    Closed,
    /// The peer has no such session, and nothing else came from it.
    Unknown,
    /// Too many frames of others.
    Forged,
    /// The client has logged in again.
    Replaced,
}

/// A place for PDUs that come under one tag.
#[derive(Debug, Default)]
struct Incoming {
    /// The last that arrived whole.
    done: u64,
    /// Another may come.
    expects: bool,
    /// What has arrived of it.
    assembly: Option<Assembly>,
    /// What had arrived of it was wrong.
    is_void: bool,
    /// The next acknowledgement says what has arrived.
    is_owed: bool,
}

/// A fragment that was sent.
#[derive(Clone, Copy, Debug)]
struct Flight {
    order: u64,
    slot: u16,
    sequence: u64,
    fragment: u16,
}

/// How large frames may be, and what is tried.
#[derive(Debug)]
struct FrameSize {
    base: u16,
    now: u16,
    max: u16,
    /// What is tried now: size, probe, tries so far.
    trial: Option<(u16, u32, u8)>,
    /// When to try again.
    next_trial: Option<Duration>,
    /// Probes that were answered in a row, while no fragment of the larger size arrived.
    barren: u8,
    /// Round trips in a row in which larger frames were lost and none arrived, and the first transmission that counts
    /// for the next one.
    starved: u8,
    starved_from: u64,
}

/// Acknowledgements that are to be sent.
#[derive(Debug, Default)]
struct Owed {
    now: bool,
    due: Option<Duration>,
    frames: u16,
    /// The newest probe that was not answered.
    probe: u32,
    /// When the newest frame came.
    newest: Duration,
}

/// A session's end, without what it means.
#[derive(Debug)]
pub(crate) struct Link<D> {
    side: Side,
    pub(crate) terms: Terms,
    settings: Settings,
    sealer: Sealer,
    opener: Opener,
    mac_out: MacKey,
    mac_in: MacKey,
    incoming: Vec<Incoming>,
    /// The devices that are open, each with the level of all its PDUs. At most those of the group.
    pub(crate) levels: BTreeMap<u16, Level>,
    /// Of sealed and of other PDUs: the size of the fragments that came last.
    sizes_seen: [u16; 2],
    held_bytes: usize,
    outgoing: Vec<Option<Outgoing<D>>>,
    /// How many PDUs there are, and how long those are together that are begun.
    outgoing_count: usize,
    begun_bytes: usize,
    /// Slots whose PDU has fragments that were not sent.
    waiting: VecDeque<u16>,
    /// Slots and fragments to be sent again, all of PDUs that are under way.
    lost: BTreeSet<(u16, u16)>,
    /// In the order in which they were sent.
    flights: VecDeque<Flight>,
    /// Room for those that are looked at, empty.
    kept: Vec<Flight>,
    in_flight: usize,
    path: Path,
    peer_window: u16,
    /// Frames since the peer was asked for an acknowledgement.
    unasked: usize,
    /// The newest acknowledgement.
    newest_ack: Option<u64>,
    /// When the peer last said that it has not what it had.
    taken_back_at: Option<Duration>,
    owed: Owed,
    /// The probe under way: its number, its place among transmissions, and when it left.
    probe: Option<(u32, u64, Duration)>,
    next_probe: u32,
    probe_wanted: bool,
    /// When something was sent or arrived that starts the timer again.
    timer_from: Duration,
    /// When a fragment will be lost that later ones have overtaken.
    loss_at: Option<Duration>,
    last_heard: Duration,
    frame_size: FrameSize,
    /// Control PDUs of the session, at most a few.
    pub(crate) control: VecDeque<(Opcode, Vec<u8>)>,
    room: Vec<u8>,
    /// Memory of PDUs that nobody needs any more, for the next ones.
    spare: Vec<Vec<u8>>,
    /// The same for heads of PDUs that leave.
    heads: Vec<Vec<u8>>,
    #[cfg(test)]
    pub(crate) heads_made: usize,
    pub(crate) counters: Counters,
    pub(crate) ended: Option<EndReason>,
}

impl FrameSize {
    /// Of a path that carries `base` bytes, and at most `max`.
    fn new(now: Duration, base: u16, max: u16) -> Self {
        Self {
            base,
            now: base,
            max: max.max(base),
            trial: None,
            next_trial: Some(now),
            barren: 0,
            starved: 0,
            starved_from: 0,
        }
    }
}

impl<D: AsRef<[u8]>> Link<D> {
    pub(crate) fn new(
        now: Duration,
        side: Side,
        keys: &Keys,
        mut terms: Terms,
        settings: Settings,
    ) -> Self {
        // What is begun costs time with each acknowledgement, whatever its receiver has room for.
        terms.peer_begun_bytes = terms.peer_begun_bytes.min(BEGUN_MAX_BYTES);
        let (sealer, mac_out) = keys.sending(side, terms.session);
        let (opener, mac_in) = keys.receiving(side, terms.session);
        let slots = usize::from(terms.slots);
        // A path carries what both ends have, also where one of them has less than every path carries.
        let base = settings.frame_bytes.min(terms.frame_bytes_max);
        Self {
            side,
            terms,
            settings,
            sealer,
            opener,
            mac_out,
            mac_in,
            incoming: (0..slots)
                .map(|_| Incoming {
                    expects: side == Side::Target,
                    ..Incoming::default()
                })
                .collect(),
            levels: BTreeMap::new(),
            sizes_seen: [payload_bytes(base, false), payload_bytes(base, true)],
            held_bytes: 0,
            outgoing: (0..slots).map(|_| None).collect(),
            outgoing_count: 0,
            begun_bytes: 0,
            waiting: VecDeque::new(),
            lost: BTreeSet::new(),
            flights: VecDeque::new(),
            kept: Vec::new(),
            in_flight: 0,
            path: Path::new(terms.profile),
            peer_window: terms.peer_window,
            unasked: 0,
            newest_ack: None,
            taken_back_at: None,
            owed: Owed::default(),
            probe: None,
            next_probe: 1,
            probe_wanted: false,
            timer_from: now,
            loss_at: None,
            last_heard: now,
            frame_size: FrameSize::new(now, base, terms.frame_bytes_max),
            control: VecDeque::new(),
            room: Vec::new(),
            spare: Vec::new(),
            heads: Vec::new(),
            #[cfg(test)]
            heads_made: 0,
            counters: Counters::default(),
            ended: None,
        }
    }

    /// Takes a PDU to send. The slot has none: its last one has arrived, or is not needed any more.
    pub(crate) fn submit(&mut self, now: Duration, slot: u16, pdu: Outgoing<D>) {
        self.drop_outgoing(slot);
        if self.is_idle() {
            self.timer_from = now;
        }
        if let Some(place) = self.outgoing.get_mut(usize::from(slot)) {
            *place = Some(pdu);
            self.outgoing_count += 1;
            self.wait(slot);
        }
    }

    /// The PDU of this slot has fragments to be sent. What stands there of PDUs that are gone goes before it is more
    /// than there are slots: a peer whose window is shut may ask again and again.
    fn wait(&mut self, slot: u16) {
        if self.waiting.len() >= self.outgoing.len() {
            let mut seen = BTreeSet::new();
            let outgoing = &self.outgoing;
            let is_there = |slot: u16| outgoing.get(usize::from(slot)).is_some_and(Option::is_some);
            self.waiting
                .retain(|&one| one != slot && is_there(one) && seen.insert(one));
        }
        self.waiting.push_back(slot);
    }

    /// Room for the head of a PDU: a header, behind which its body is to be written.
    pub(crate) fn head(&mut self) -> Vec<u8> {
        let mut head = self.heads.pop().unwrap_or_else(|| {
            #[cfg(test)]
            {
                self.heads_made += 1;
            }
            Vec::with_capacity(2 * HEADER_BYTES + crate::limits::CDB_MAX_BYTES)
        });
        head.clear();
        head.extend([0; HEADER_BYTES]);
        head
    }

    /// The header of a PDU of this session.
    pub(crate) fn header(
        &self,
        opcode: Opcode,
        device: u16,
        sequence: u64,
        body_bytes: usize,
    ) -> Header {
        let mut header = Header::new(opcode, body_bytes);
        header.device = device;
        header.session = self.terms.session;
        header.sequence = low(sequence);
        header
    }

    /// The peer has this PDU, or does not need it any more.
    pub(crate) fn drop_outgoing(&mut self, slot: u16) {
        let place = self.outgoing.get_mut(usize::from(slot));
        if let Some(pdu) = place.and_then(Option::take) {
            self.outgoing_count = self.outgoing_count.saturating_sub(1);
            if pdu.is_begun() {
                self.begun_bytes = self.begun_bytes.saturating_sub(pdu.whole_bytes());
                self.in_flight = self.in_flight.saturating_sub(pdu.flying());
            }
            if !self.lost.is_empty() {
                self.lost.retain(|&(of, _)| of != slot);
            }
            if self.heads.len() < HEADS_MAX {
                self.heads.push(pdu.into_head());
            }
        }
    }

    /// Takes memory for PDUs that come, if there is not enough of it.
    pub(crate) fn recycle(&mut self, room: Vec<u8>) {
        let is_fit = (1..=SPARE_BYTES_MAX).contains(&room.capacity());
        if is_fit && self.spare.len() < SPARE_MAX {
            self.spare.push(room);
        }
    }

    /// Another PDU may come under the tag of this slot.
    pub(crate) fn expect(&mut self, slot: u16) {
        if let Some(incoming) = self.incoming.get_mut(usize::from(slot)) {
            incoming.expects = true;
        }
    }

    /// What is under way, for messages of tests.
    #[cfg(test)]
    pub(crate) fn state(&self) -> String {
        let outgoing: Vec<_> = self
            .outgoing
            .iter()
            .enumerate()
            .filter_map(|(slot, pdu)| {
                let pdu = pdu.as_ref()?;
                let states: Vec<_> = pdu.fragments.iter().map(|at| at.state).collect();
                Some((slot, pdu.sequence, pdu.fragment_bytes(), pdu.next, states))
            })
            .collect();
        let incoming: Vec<_> = self
            .incoming
            .iter()
            .enumerate()
            .filter(|(_, at)| at.assembly.is_some() || at.is_void)
            .map(|(slot, at)| {
                let parts = at.assembly.as_ref();
                let parts = parts
                    .map(|parts| (parts.fragment_bytes(), parts.contiguous(), parts.bitmap(0)));
                (slot, at.done, at.expects, at.is_void, parts)
            })
            .collect();
        format!(
            "in flight {} of {}, {} flights, lost {:?}, waiting {:?}, {outgoing:?}, {incoming:?}, {:?}",
            self.in_flight,
            self.limit(),
            self.flights.len(),
            self.lost,
            self.waiting,
            self.frame_size,
        )
    }

    /// What must hold whatever came. Gives the memory that PDUs hold which have not arrived whole.
    #[cfg(test)]
    pub(crate) fn check(&self) -> usize {
        let all = || self.outgoing.iter().flatten();
        let flying: usize = all().map(Outgoing::flying).sum();
        assert_eq!(self.in_flight, flying, "{}", self.state());
        let begun = all().filter(|pdu| pdu.is_begun());
        let begun: usize = begun.map(Outgoing::whole_bytes).sum();
        assert_eq!(self.begun_bytes, begun, "{}", self.state());
        assert_eq!(self.outgoing_count, all().count());
        let held = self.incoming.iter().filter_map(|at| at.assembly.as_ref());
        let held: usize = held.map(Assembly::held_bytes).sum();
        assert_eq!(self.held_bytes, held, "{}", self.state());
        assert!(self.control.len() <= 1 && self.spare.len() <= SPARE_MAX);
        assert!(self.waiting.len() <= self.outgoing.len());
        let is_one = all().filter(|pdu| pdu.is_begun()).count() == 1;
        assert!(begun <= crate::bytes::size(BEGUN_MAX_BYTES) || is_one);
        held
    }

    /// The frame that is sent without trying.
    pub(crate) const fn base_bytes(&self) -> u16 {
        self.frame_size.base
    }

    /// Nothing is under way.
    pub(crate) const fn is_idle(&self) -> bool {
        self.outgoing_count == 0
    }

    /// The peer was asked three times, and did not answer.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.probe.is_some() && self.path.backoff >= 2
    }

    pub(crate) fn has_tag(&self, tag: u16) -> bool {
        tag == self.terms.first_tag || self.slot_of(tag).is_some()
    }

    /// Grants so many frames from now on.
    pub(crate) fn set_window(&mut self, frames: u16) {
        self.settings.window = frames;
        self.owed.now = true;
    }

    fn tag_of(&self, slot: u16) -> u16 {
        self.terms.first_tag + 1 + slot
    }

    fn slot_of(&self, tag: u16) -> Option<u16> {
        let slot = tag.checked_sub(self.terms.first_tag)?.checked_sub(1)?;
        (slot < self.terms.slots).then_some(slot)
    }

    pub(crate) fn task_name(&self, slot: u16, sequence: u64) -> crate::command::TaskName {
        crate::command::TaskName {
            tag: self.tag_of(slot),
            sequence: low(sequence),
        }
    }

    pub(crate) fn slot_of_task(&self, name: crate::command::TaskName) -> Option<u16> {
        self.slot_of(name.tag)
    }

    /// How long nothing may come from the peer.
    fn silence(&self) -> Duration {
        self.settings.silence.min(self.terms.profile.silence)
    }

    /// Frames that the other end has under way may be so many.
    fn limit(&self) -> usize {
        usize::from(self.peer_window).min(self.path.frames())
    }

    /// Ends the session. Nothing more is sent but what is in `control`.
    pub(crate) fn end(&mut self, reason: EndReason) {
        self.ended.get_or_insert(reason);
    }
}

/// A sequence number as it stands on the wire.
pub(crate) fn low(sequence: u64) -> u32 {
    u32::try_from(sequence & 0xffff_ffff).unwrap_or_default()
}

/// How often a tag has been used, as it stands in a frame.
fn generation(sequence: u64) -> u8 {
    u8::try_from(sequence & 3).unwrap_or_default()
}

/// What a frame of this size carries of a PDU.
fn payload_bytes(frame_bytes: u16, is_sealed: bool) -> u16 {
    let head = if is_sealed {
        SEAL_BYTES
    } else {
        FRAGMENT_HEADER_BYTES
    };
    frame_bytes.saturating_sub(crate::bytes::short(head))
}

const fn is_sealed(level: Level) -> bool {
    match level {
        Level::None | Level::Crc | Level::Hash => false,
        Level::Encrypt => true,
    }
}
