//! A client that knows the password and keeps to nothing: what its target gives out, holds and says all the same.
#![expect(
    clippy::cast_possible_truncation,
    reason = "random numbers, and numbers as they stand on the wire"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use super::prng::Prng;
use crate::command::{Attribute, Command, Function, Outcome, Reply, Request, TaskName};
use crate::control::{Ack, Entry, Probe, SHORT_ACK};
use crate::data::{Data, LEAD_MAX_BYTES};
use crate::device::Inquiry;
use crate::frame::FragmentHeader;
use crate::keys::{Keys, MacKey, Sealer, Side};
use crate::limits::VERSION;
use crate::link::{Settings, Terms};
use crate::pdu::{HEADER_BYTES, Header, Level, Opcode, trailer};
use crate::target::{TargetEvent, TargetSession, TaskId};
use crate::testing::{disk, terms};

const SESSION: u32 = 77;
const SLOTS: u16 = 8;
const FIRST_TAG: u16 = 20;
/// The devices; each asks for the level before it in the list of all, and is opened at that.
const DEVICES: u16 = 4;
const BEGUN_BYTES: u32 = 2 << 20;
/// The one at level CRC, and where the place of the body stands in a header.
const CRC_DEVICE: u16 = 2;
const BODY_AT: usize = 17;
/// Of a PDU at level CRC in a frame of 1500 bytes.
const FRAGMENT_BYTES: u16 = 1497;

fn level_of(device: u16) -> Level {
    Level::ALL[usize::from((device + 3) % 4)]
}

/// A request as it was made: under which slot and number, for which device, at which level.
type Made = (u16, u32, u16, Level);

/// See above.
struct Rogue {
    now: Duration,
    prng: Prng,
    sealer: Sealer,
    mac: MacKey,
    target: TargetSession<Vec<u8>>,
    /// Of all requests that it made.
    made: BTreeMap<Made, Vec<Vec<u8>>>,
    /// The last number that was given out, of each slot.
    given: BTreeMap<u16, u64>,
    /// Commands that wait for their reply.
    open: Vec<(TaskId, u32)>,
    /// Frames of before.
    old: Vec<Vec<u8>>,
    frames_out: usize,
    /// Of each reply.
    fragments: usize,
}

impl Rogue {
    fn new(seed: u64, peer_window: u16) -> Self {
        let keys = Keys::new(b"rogue");
        let settings = Settings {
            begun_bytes: BEGUN_BYTES,
            ..Settings::default()
        };
        let terms = Terms {
            session: SESSION,
            first_tag: FIRST_TAG,
            slots: SLOTS,
            peer_window,
            peer_begun_bytes: u32::MAX,
            frame_bytes_max: 9000,
            ..terms(&settings)
        };
        let (sealer, mac) = keys.sending(Side::Client, SESSION);
        let devices = (1..=DEVICES).map(|at| disk(at, level_of(at))).collect();
        let mut rogue = Self {
            now: Duration::ZERO,
            prng: Prng::new(seed),
            sealer,
            mac,
            target: TargetSession::new(Duration::ZERO, &keys, terms, settings, devices),
            made: BTreeMap::new(),
            given: BTreeMap::new(),
            open: Vec::new(),
            old: Vec::new(),
            frames_out: 0,
            fragments: 0,
        };
        for handle in 1..=DEVICES {
            let level = level_of(handle);
            let open = Inquiry::Open {
                id: 1,
                handle,
                level,
            };
            rogue.control(Opcode::Negotiation, &open.encode());
        }
        assert_eq!(rogue.target.levels().count(), usize::from(DEVICES));
        rogue
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.prng.below(bound as u64)).unwrap()
    }

    fn short(&mut self, bound: u16) -> u16 {
        u16::try_from(self.prng.below(bound.into())).unwrap()
    }

    fn seal(
        &mut self,
        head: FragmentHeader,
        opcode: u8,
        sequence: u32,
        pieces: &[&[u8]],
    ) -> Vec<u8> {
        let mut room = vec![0; 20_000];
        let [a, b, c] = head.encode();
        let length = self
            .sealer
            .seal([a, b, c, VERSION, opcode], sequence, pieces, &mut room);
        room.truncate(length.unwrap());
        room
    }

    fn control_head() -> FragmentHeader {
        FragmentHeader {
            is_sealed: true,
            tag: FIRST_TAG,
            is_last: true,
            ..FragmentHeader::default()
        }
    }

    fn control(&mut self, opcode: Opcode, body: &[u8]) {
        let mut header = Header::new(opcode, body.len());
        header.session = SESSION;
        let header = header.encode();
        let frame = self.seal(Self::control_head(), opcode.to_wire(), 0, &[&header, body]);
        self.send(&frame);
    }

    /// What says to be a short acknowledgement.
    fn short_ack(&mut self, head: FragmentHeader, text: &[u8]) {
        let frame = self.seal(head, SHORT_ACK, 0, &[text]);
        self.send(&frame);
    }

    /// The same as a short one, most often sound.
    fn any_short_ack(&mut self, mut ack: Ack) {
        (ack.probe, ack.delay_us) = (0, ack.delay_us & 0xffff);
        for entry in &mut ack.entries {
            entry.contiguous = None;
        }
        let mut text = ack.encode_short().unwrap();
        let mut head = Self::control_head();
        match self.below(8) {
            0 => text.truncate(self.below(text.len() + 1)),
            1 => head.tag = self.short(512),
            2 => head.fragment = self.short(1024),
            3 => text.resize(self.below(8000), 7),
            _ => {}
        }
        self.short_ack(head, &text);
    }

    /// A control PDU as it stands behind another one in a seal.
    fn joined(opcode: Opcode, body: &[u8]) -> Vec<u8> {
        let mut header = Header::new(opcode, body.len());
        header.session = SESSION;
        let head = Self::control_head().encode();
        [&head[..], &[0; 4], &header.encode(), body].concat()
    }

    fn send(&mut self, frame: &[u8]) {
        self.target.handle_frame(self.now, frame);
        self.settle();
    }

    /// What holds whatever came.
    fn settle(&mut self) {
        while let Some(event) = self.target.poll_event() {
            match event {
                TargetEvent::Command {
                    id,
                    device,
                    command,
                    data,
                } => {
                    self.note(id);
                    let level = level_of(device);
                    let name = (id.slot, id.sequence as u32, device, level);
                    let mut body = Request::Command(command.clone()).encode();
                    body.extend_from_slice(&data);
                    if level > Level::None {
                        let made = self.made.get(&name);
                        assert!(made.is_some_and(|made| made.contains(&body)), "{name:?}");
                    }
                    self.open.push((id, command.data_in_bytes));
                }
                TargetEvent::Management { id, task, .. } => {
                    self.note(id);
                    assert!(task.is_none_or(|task| {
                        task == id || self.open.iter().any(|(open, _)| *open == task)
                    }));
                    self.open.push((id, 0));
                }
                TargetEvent::Opened { device, level } => assert!(level >= level_of(device)),
                TargetEvent::Ended(_) => {}
            }
        }
        let held = self.target.check();
        assert!(held <= BEGUN_BYTES as usize, "{held} bytes");
    }

    /// Numbers of a slot rise, and none comes before the last was answered.
    fn note(&mut self, id: TaskId) {
        let last = self.given.insert(id.slot, id.sequence).unwrap_or(0);
        assert!(id.sequence > last, "{id:?} after {last}");
        assert!(
            self.open.iter().all(|(open, _)| open.slot != id.slot),
            "{id:?}"
        );
    }

    fn poll(&mut self) {
        let mut room = vec![0; 9100];
        for _ in 0..5000 {
            if self.target.poll_frame(self.now, &mut room).is_none() {
                self.target.check();
                return;
            }
            self.frames_out += 1;
        }
        panic!("frames without end");
    }

    /// The number that the target expects, or one near it.
    fn sequence(&mut self, slot: u16) -> u64 {
        let next = self.given.get(&slot).map_or(1, |last| last + 1);
        match self.below(12) {
            0 => next.wrapping_sub(1),
            1 => next + 1,
            2 => next + 4,
            3 => next + (1 << 32),
            _ => next,
        }
    }

    fn body(&mut self) -> Vec<u8> {
        if self.below(6) == 0 {
            let name = TaskName {
                tag: FIRST_TAG + self.short(SLOTS + 3),
                sequence: self.below(5) as u32,
            };
            let function = [
                Function::AbortTask(name),
                Function::AbortTaskSet,
                Function::ClearTaskSet,
                Function::LogicalUnitReset,
            ][self.below(4)];
            return Request::Management(function).encode();
        }
        let length = match self.below(8) {
            0 => self.below(1 << 20),
            1 => self.below(100_000),
            2..5 => 0,
            _ => self.below(4000),
        };
        let room = [0, 1, 512, 100_000, 1 << 20][self.below(5)];
        let command = Command {
            attribute: [
                Attribute::Simple,
                Attribute::Ordered,
                Attribute::HeadOfQueue,
            ][self.below(3)],
            cdb: vec![self.prng.next() as u8; 6 + self.below(255)],
            data_in_bytes: room,
            data_out_bytes: length as u32,
        };
        let mut body = Request::Command(command).encode();
        let seed = self.prng.next() as u8;
        body.extend((0..length).map(|at| seed.wrapping_add(at as u8)));
        if self.below(10) == 0 {
            let at = self.below(body.len());
            body[at] ^= 1 << self.below(8);
        }
        body
    }

    /// A PDU with its trailer, and what is wrong with it.
    fn pdu(&mut self, slot: u16, sequence: u64, each: usize) -> (Level, Vec<u8>) {
        let device = self.short(DEVICES + 2);
        let level = match self.below(10) {
            0 => Level::ALL[self.below(4)],
            _ => level_of(device.max(1)),
        };
        let body = self.body();
        let mut header = Header::new(Opcode::Request, body.len()).at(level);
        header.device = device;
        header.session = SESSION;
        header.sequence = sequence as u32;
        header.fragment_bytes = u16::try_from(each).unwrap_or(u16::MAX);
        match self.below(30) {
            0 => header.opcode = Opcode::Reply,
            1 => header.session ^= 1,
            2 => header.length = header.length.wrapping_add(self.short(3000).into()),
            3 => header.length = header.length.saturating_sub(self.short(3000).into()),
            4 => header.length = u32::MAX,
            5 => header.fragment_bytes = self.short(9000),
            6 => header.device = self.short(u16::MAX),
            _ => {}
        }
        let head = header.encode();
        let tag = FIRST_TAG + 1 + slot;
        let end = trailer(level, &self.mac, tag, sequence, &[&head, &body]);
        let whole = [&head[..], &body, &end].concat();
        let made = self.made.entry((slot, sequence as u32, device, level));
        made.or_default().push(body);
        (level, whole)
    }

    /// A request in fragments, some of which are left out, changed or mixed with those of another one.
    fn request(&mut self) {
        let slot = self.short(SLOTS);
        let sequence = self.sequence(slot);
        let each = [1471, 1497, 4000, 8971, 1200, 60][self.below(6)];
        let (level, whole) = self.pdu(slot, sequence, each);
        let mut pieces: Vec<_> = whole.chunks(each).map(<[u8]>::to_vec).enumerate().collect();
        let last = pieces.len() - 1;
        if self.below(3) == 0 {
            let (a, b) = (self.below(last + 1), self.below(last + 1));
            pieces.swap(a, b);
        }
        if self.below(4) == 0 {
            pieces.truncate(self.below(last + 2));
        }
        let faulty = self.below(3) == 0;
        for (at, mut piece) in pieces {
            let mut head = FragmentHeader {
                is_sealed: level == Level::Encrypt,
                generation: (sequence & 3) as u8,
                wants_ack: self.prng.happens(100),
                tag: FIRST_TAG + 1 + slot,
                is_last: at == last,
                fragment: (at as u16) & 1023,
            };
            if faulty && self.prng.happens(60) {
                match self.below(7) {
                    0 => head.is_last = !head.is_last,
                    1 => head.fragment = self.short(1024),
                    2 => head.generation ^= 1,
                    3 => head.tag = FIRST_TAG + self.short(SLOTS + 4),
                    4 => piece.truncate(self.below(piece.len() + 1)),
                    5 => piece.resize(self.below(9000), 7),
                    _ => head.is_sealed = !head.is_sealed,
                }
            }
            let frame = if head.is_sealed {
                self.seal(head, 0, sequence as u32, &[&piece])
            } else {
                [&head.encode()[..], &piece].concat()
            };
            if self.old.len() < 200 {
                self.old.push(frame.clone());
            }
            self.send(&frame);
        }
    }

    /// Several PDUs in a frame, with what stands between them.
    fn bundle(&mut self) {
        let mut clear = Vec::new();
        let mut text = Vec::new();
        for _ in 0..=self.below(12) {
            let slot = self.short(SLOTS);
            let sequence = self.sequence(slot);
            let (level, whole) = self.pdu(slot, sequence, 1497);
            let head = FragmentHeader {
                is_sealed: level == Level::Encrypt,
                generation: (sequence & 3) as u8,
                tag: FIRST_TAG + 1 + slot,
                is_last: self.below(9) > 0,
                ..FragmentHeader::default()
            };
            if clear.len() + text.len() + whole.len() > 8000 {
                continue;
            }
            if head.is_sealed {
                text.extend(head.encode());
                text.extend((sequence as u32).to_be_bytes());
                text.extend(whole);
            } else {
                clear.extend(head.encode());
                clear.extend(whole);
            }
        }
        if !text.is_empty() {
            let head = FragmentHeader::decode([text[0], text[1], text[2]]);
            let sequence = u32::from_be_bytes([text[3], text[4], text[5], text[6]]);
            let sealed = self.seal(head, 0, sequence, &[&text[7..]]);
            clear.extend(sealed);
        }
        self.send(&clear);
    }

    fn entry(&mut self) -> Entry {
        let slot = self.short(SLOTS + 2);
        Entry {
            tag: FIRST_TAG + 1 + slot,
            sequence: self.given.get(&slot).map_or(0, |last| *last as u32),
            fragment_bytes: [0, 1497, 1471, 8997, 3][self.below(5)],
            contiguous: [None, Some(0), Some(5), Some(1023), Some(60_000)][self.below(5)],
            bitmap: vec![self.prng.next() as u8; self.below(100)],
        }
    }

    fn step(&mut self) {
        match self.below(20) {
            0..6 => self.request(),
            6 | 7 => self.bundle(),
            8..11 => {
                let entries = (0..self.below(40)).map(|_| self.entry()).collect();
                let ack = Ack {
                    probe: self.below(30) as u32,
                    window: [0, 1, 64, u16::MAX][self.below(4)],
                    delay_us: [0, 7, u32::MAX][self.below(3)],
                    entries,
                };
                self.control(Opcode::Ack, &ack.encode());
                self.any_short_ack(ack);
            }
            11 => {
                let tags = (0..self.below(64)).map(|_| self.short(512)).collect();
                let probe = Probe {
                    id: 1 + self.below(9) as u32,
                    tags,
                };
                self.control(Opcode::Probe, &probe.encode());
            }
            12 => {
                let (handle, level) = (self.short(DEVICES + 2), Level::ALL[self.below(4)]);
                let id = self.prng.next() as u32;
                let question = match self.below(2) {
                    0 => Inquiry::Open { id, handle, level },
                    _ => Inquiry::List {
                        id,
                        first: self.short(u16::MAX),
                    },
                };
                self.control(Opcode::Negotiation, &question.encode());
            }
            13 if !self.old.is_empty() => {
                let at = self.below(self.old.len());
                let frame = self.old[at].clone();
                self.send(&frame);
            }
            14 => {
                let length = self.below(300);
                let frame: Vec<u8> = (0..length).map(|_| self.prng.next() as u8).collect();
                self.send(&frame);
                let opcode =
                    [Opcode::Reply, Opcode::DisconnectAnswer, Opcode::Discovery][self.below(3)];
                self.control(opcode, &frame);
            }
            15..18 => {
                if !self.open.is_empty() {
                    let at = self.below(self.open.len());
                    let (id, room) = self.open.swap_remove(at);
                    let reply = Reply::of(Outcome::Status(0));
                    let length = [0, room as usize][self.below(2)];
                    self.target.respond(self.now, id, reply, vec![0xee; length]);
                    self.target.check();
                }
            }
            _ => self.pass(),
        }
        if self.below(4) == 0 {
            self.poll();
        }
    }

    /// Time passes, and is never asked for again before it has.
    fn pass(&mut self) {
        let steps = [1, 20, 700, 20_000][self.below(4)];
        self.now += Duration::from_micros(100) * steps;
        self.target.handle_deadline(self.now);
        self.settle();
        self.poll();
        let due = self.target.deadline();
        assert!(
            due.is_none_or(|due| due > self.now),
            "{}",
            self.target.state()
        );
    }
}

#[test]
fn whatever_a_client_does_each_request_is_given_out_once_and_as_it_was_made() {
    for seed in 0..300 {
        let mut rogue = Rogue::new(seed, 64);
        for _ in 0..300 {
            rogue.step();
        }
        let given: u64 = rogue.given.values().sum();
        assert!(given > 0, "seed {seed}");
    }
}

impl Rogue {
    /// A request as it should be, at level CRC.
    fn ask(&mut self, slot: u16, sequence: u32, request: Request, lead: usize) -> bool {
        let body = request.encode();
        let mut header = Header::new(Opcode::Request, body.len()).at(Level::Crc);
        header.device = CRC_DEVICE;
        header.session = SESSION;
        header.sequence = sequence;
        header.length += u32::try_from(lead).unwrap();
        let mut head = header.encode();
        let body_at = u16::try_from(HEADER_BYTES + lead).unwrap();
        head[BODY_AT..BODY_AT + 2].copy_from_slice(&body_at.to_be_bytes());
        let tag = FIRST_TAG + 1 + slot;
        let pdu = [&head[..], &vec![7; lead], &body].concat();
        let end = trailer(Level::Crc, &self.mac, tag, sequence.into(), &[&pdu]);
        let name = FragmentHeader {
            tag,
            generation: u8::try_from(sequence & 3).unwrap(),
            is_last: true,
            ..FragmentHeader::default()
        };
        let made = self.made.entry((slot, sequence, CRC_DEVICE, Level::Crc));
        made.or_default().push(body);
        let before = self.open.len();
        self.send(&[&name.encode()[..], &pdu, &end].concat());
        self.open.len() > before
    }

    fn answer_all(&mut self, length: usize) {
        let whole = HEADER_BYTES + 12 + length + 4;
        self.fragments = whole.div_ceil(FRAGMENT_BYTES.into());
        for (id, _) in std::mem::take(&mut self.open) {
            let reply = Reply::of(Outcome::Status(0));
            self.target.respond(self.now, id, reply, vec![0xee; length]);
        }
        self.target.check();
    }

    /// Says of these PDUs that all of their fragments have arrived but one, or none.
    fn acknowledge(&mut self, window: u16, entries: impl Iterator<Item = (u16, bool)>) {
        let most = u16::try_from(self.fragments - 1).unwrap();
        let entries = entries.map(|(slot, has_most)| Entry {
            tag: FIRST_TAG + 1 + slot,
            sequence: 1,
            fragment_bytes: if has_most { FRAGMENT_BYTES } else { 0 },
            contiguous: Some(if has_most { most } else { 0 }),
            bitmap: Vec::new(),
        });
        let ack = Ack {
            probe: 0,
            window,
            delay_us: 0,
            entries: entries.collect(),
        };
        self.control(Opcode::Ack, &ack.encode());
    }

    fn sent(&mut self) -> usize {
        let before = self.frames_out;
        self.poll();
        self.frames_out - before
    }

    /// All replies are under way, and the client has all of their fragments, but one.
    fn with_replies(length: usize) -> Self {
        let mut rogue = Self::new(1, u16::MAX);
        (0..SLOTS).for_each(|slot| assert!(rogue.ask(slot, 1, read(1 << 20), 0)));
        rogue.answer_all(length);
        while rogue.sent() > 0 {
            rogue.acknowledge(u16::MAX, (0..SLOTS).map(|slot| (slot, true)));
        }
        rogue
    }
}

fn read(room: u32) -> Request {
    Request::Command(Command {
        attribute: Attribute::Simple,
        cdb: vec![0; 10],
        data_in_bytes: room,
        data_out_bytes: 0,
    })
}

#[test]
fn a_client_with_a_shut_window_costs_no_memory_however_often_it_asks() {
    let mut rogue = Rogue::new(1, 0);
    for sequence in 1..1000 {
        (0..SLOTS).for_each(|slot| assert!(rogue.ask(slot, sequence, read(64), 0)));
        rogue.answer_all(64);
        rogue.poll();
    }
}

#[test]
fn a_client_that_grants_everything_has_no_more_begun_for_it_than_others() {
    let mut rogue = Rogue::new(1, u16::MAX);
    (0..SLOTS).for_each(|slot| assert!(rogue.ask(slot, 1, read(1 << 20), 0)));
    rogue.answer_all(1 << 20);
    // It holds the last fragment of each back.
    for _ in 0..1000 {
        rogue.poll();
        rogue.acknowledge(u16::MAX, (0..SLOTS).map(|slot| (slot, true)));
    }
    assert!(rogue.target.state().contains("waiting [3, 4, 5, 6, 7]"));
}

#[test]
fn an_acknowledgement_says_one_thing_of_each_tag() {
    let mut rogue = Rogue::with_replies(5000);
    rogue.now += Duration::from_millis(5);
    // What has become late by that is sent again first.
    rogue.acknowledge(u16::MAX, (0..SLOTS).map(|slot| (slot, true)));
    rogue.sent();
    let before = rogue.target.counters().retransmitted;
    // The first counts, in the order of tags: nothing has to be sent again.
    let both = [(0, true), (0, false), (2, true), (1, false), (2, false)];
    rogue.acknowledge(u16::MAX, both.into_iter());
    rogue.sent();
    assert_eq!(rogue.target.counters().retransmitted, before);
    rogue.acknowledge(u16::MAX, [(1, false)].into_iter());
    rogue.sent();
    assert!(rogue.target.counters().retransmitted > before);
}

#[test]
fn a_client_that_takes_back_what_it_said_is_heard_once_in_a_millisecond() {
    let mut rogue = Rogue::with_replies(5000);
    rogue.now += Duration::from_millis(5);
    for round in 1..=3 {
        for _ in 0..100 {
            rogue.acknowledge(u16::MAX, (0..SLOTS).map(|slot| (slot, false)));
            rogue.sent();
            rogue.acknowledge(u16::MAX, (0..SLOTS).map(|slot| (slot, true)));
        }
        let again = rogue.target.counters().retransmitted;
        // The last fragment of each is not taken back, and may be lost.
        let most = round * 4 * u64::from(SLOTS);
        assert!((1..=most).contains(&again), "{again} of {most}");
        rogue.now += Duration::from_millis(1);
    }
}

#[test]
fn of_many_questions_in_a_frame_the_last_is_answered() {
    let mut rogue = Rogue::new(1, 64);
    rogue.poll();
    let mut text = Vec::new();
    for id in 0..200 {
        let question = Inquiry::List { id, first: 0 }.encode();
        text.extend(Rogue::joined(Opcode::Negotiation, &question));
    }
    let opcode = Opcode::Negotiation.to_wire();
    let frame = rogue.seal(Rogue::control_head(), opcode, 0, &[&text[7..]]);
    rogue.send(&frame);
    assert_eq!(rogue.sent(), 1, "one answer");
}

#[test]
fn a_device_that_asks_for_more_than_it_is_open_at_is_not_used() {
    let mut rogue = Rogue::new(1, 64);
    assert!(rogue.ask(0, 1, read(0), 0));
    rogue.answer_all(0);
    rogue
        .target
        .set_devices(vec![disk(CRC_DEVICE, Level::Hash)]);
    assert!(!rogue.ask(0, 2, read(0), 0), "it is given out at CRC");
    assert!(rogue.target.is_idle() || rogue.sent() > 0, "it is answered");
}

#[test]
fn what_stands_before_a_body_is_not_kept_if_it_is_long() {
    let most = LEAD_MAX_BYTES;
    for (lead, kept) in [(0, 7), (most, most + 7), (most + 1, 4)] {
        let pdu = [&vec![1; lead][..], &[2, 3, 4, 5], &[9; 3]].concat();
        let data = Data::before(pdu, lead + 4, 4);
        assert_eq!(data[..], [2, 3, 4, 5]);
        assert_eq!(data.into_room().len(), kept, "a lead of {lead}");
    }
    let mut rogue = Rogue::new(1, 64);
    assert!(rogue.ask(0, 1, read(0), 1400), "it is ignored");
}

#[test]
fn what_only_says_to_be_a_short_acknowledgement_is_dropped() {
    let mut rogue = Rogue::with_replies(5000);
    let mut text = [0, 64, 0, 0].to_vec();
    for slot in 0..SLOTS {
        text.extend((FIRST_TAG + 1 + slot).to_be_bytes());
        text.extend([0, 0, 0, 1]);
    }
    let head = Rogue::control_head();
    let slot = FragmentHeader {
        tag: FIRST_TAG + 1,
        ..head
    };
    let (second, open) = (
        FragmentHeader {
            fragment: 1,
            ..head
        },
        FragmentHeader {
            is_last: false,
            ..head
        },
    );
    let wrong = [
        ("of a slot", slot, &text[..]),
        ("not the first fragment", second, &text),
        ("not the last", open, &text),
        ("half an entry", head, &text[..text.len() - 1]),
    ];
    for (what, head, text) in wrong {
        let strange = rogue.target.counters().strange;
        rogue.short_ack(head, text);
        assert_eq!(rogue.target.counters().strange, strange + 1, "{what}");
        assert!(!rogue.target.is_idle(), "{what}");
    }
    rogue.short_ack(head, &text);
    assert!(rogue.target.is_idle(), "the client has all replies");
}

#[test]
fn of_many_acknowledgements_in_a_frame_the_first_counts() {
    let mut rogue = Rogue::with_replies(5000);
    rogue.now += Duration::from_millis(5);
    rogue.acknowledge(u16::MAX, (0..SLOTS).map(|slot| (slot, true)));
    rogue.sent();
    let before = rogue.target.counters().retransmitted;
    let mut text = Vec::new();
    for slot in 0..SLOTS {
        let ack = Ack {
            probe: 0,
            window: u16::MAX,
            delay_us: 0,
            entries: vec![Entry {
                tag: FIRST_TAG + 1 + slot,
                sequence: 1,
                fragment_bytes: 0,
                contiguous: Some(0),
                bitmap: Vec::new(),
            }],
        };
        text.extend(Rogue::joined(Opcode::Ack, &ack.encode()));
    }
    let opcode = Opcode::Ack.to_wire();
    let frame = rogue.seal(Rogue::control_head(), opcode, 0, &[&text[7..]]);
    let strange = rogue.target.counters().strange;
    rogue.send(&frame);
    assert_eq!(rogue.target.counters().strange, strange + 1);
    rogue.sent();
    let again = rogue.target.counters().retransmitted - before;
    assert!((1..=4).contains(&again), "{again}");
}
