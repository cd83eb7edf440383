//! Sessions over links of a stated rate, with queues that overflow: what windows and timers do, by counts.
//!
//! ```text
//! target 0 -- nic 0 --\
//! target 1 -- nic 1 ---- switch -- port -- client (one session with each target)
//! ...                 /      \---- up ----/
//! ```
//!
//! A link sends one frame after the other, at its rate, and holds so many bytes that wait; more are dropped. Time is
//! simulated, so that rates are exact and the same on every machine. Stores answer at once.

use std::collections::BTreeMap;
use std::time::Duration;

use super::prng::Prng;
use crate::client::{ClientEvent, ClientSession};
use crate::command::{Attribute, Command, Outcome, Reply};
use crate::frame::FragmentHeader;
use crate::keys::Keys;
use crate::link::Settings;
use crate::pdu::Level;
use crate::target::{TargetEvent, TargetSession};
use crate::testing::{disk, terms};

const DEVICE: u16 = 3;
/// What Ethernet adds to what is behind its header: that, the preamble, the check sequence and the gap.
const FRAME_ADDED_BYTES: usize = 14 + 24;
const FRAME_LEAST_BYTES: usize = 84;
/// Foreign frames, in bytes behind the Ethernet header.
const FOREIGN_BYTES: usize = 498;

/// How frames are lost.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    None,
    /// So many in a thousand, each by itself.
    Even(u64),
    /// Of 10,000 good ones so many begin a burst, which each of its frames ends with a chance of a quarter.
    Bursts(u64),
}

/// One direction of a wire.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) bits_per_second: u64,
    /// What may wait, in bytes.
    pub(crate) queue_bytes: u64,
    /// What leaves at once after it was idle for as long as that takes, as a token bucket lets it.
    pub(crate) burst_bytes: u64,
    pub(crate) delay: Duration,
    /// Up to so much more, for each frame by itself: frames overtake each other.
    pub(crate) spread: Duration,
    /// So many in a thousand are overtaken by up to so many others.
    pub(crate) overtaken: (u64, u64),
    pub(crate) loss: Loss,
}

impl Link {
    /// Of this rate, in Mbit/s.
    pub(crate) const fn of(megabits: u64, queue_bytes: u64) -> Self {
        Self {
            bits_per_second: megabits * 1_000_000,
            queue_bytes,
            burst_bytes: 0,
            delay: Duration::from_micros(30),
            spread: Duration::ZERO,
            overtaken: (0, 1),
            loss: Loss::None,
        }
    }

    fn time(&self, bytes: u64) -> Duration {
        Duration::from_nanos(bytes * 8_000_000_000 / self.bits_per_second)
    }
}

/// A link at work.
#[derive(Debug)]
struct Hop {
    link: Link,
    busy_until: Duration,
    in_burst: bool,
    prng: Prng,
    /// Frames that came; that found the queue full; that were lost on the way, and those of them that are fragments.
    sent: u64,
    overflowed: u64,
    lost: u64,
    lost_fragments: u64,
    /// On the wire, of frames without a fragment.
    control_bytes: u64,
}

impl Hop {
    fn new(link: Link, seed: u64) -> Self {
        Self {
            link,
            busy_until: Duration::ZERO,
            in_burst: false,
            prng: Prng::new(seed),
            sent: 0,
            overflowed: 0,
            lost: 0,
            lost_fragments: 0,
            control_bytes: 0,
        }
    }

    /// When a frame of this length arrives, if it does.
    fn pass(&mut self, now: Duration, length: usize, is_fragment: bool) -> Option<Duration> {
        self.sent += 1;
        let bytes = (length + FRAME_ADDED_BYTES).max(FRAME_LEAST_BYTES) as u64;
        let earned = self.link.time(self.link.burst_bytes);
        let from = self.busy_until.max(now.saturating_sub(earned));
        let wait = from.saturating_sub(now);
        if wait > self.link.time(self.link.queue_bytes) {
            self.overflowed += 1;
            self.lost_fragments += u64::from(is_fragment);
            return None;
        }
        let took = self.link.time(bytes);
        self.busy_until = from + took;
        self.control_bytes += if is_fragment { 0 } else { bytes };
        if self.is_lost() {
            self.lost += 1;
            self.lost_fragments += u64::from(is_fragment);
            return None;
        }
        let (share, depth) = self.link.overtaken;
        let held = if self.prng.happens(share) {
            1 + self.prng.below(depth)
        } else {
            0
        };
        let spread = u64::try_from(self.link.spread.as_nanos()).unwrap();
        let spread = Duration::from_nanos(self.prng.below(spread + 1));
        let left_at = self.busy_until.max(now);
        Some(left_at + self.link.delay + spread + took * u32::try_from(held).unwrap())
    }

    fn is_lost(&mut self) -> bool {
        match self.link.loss {
            Loss::None => false,
            Loss::Even(share) => self.prng.happens(share),
            Loss::Bursts(begins) => {
                self.in_burst = match self.in_burst {
                    true => !self.prng.happens(250),
                    false => self.prng.below(10_000) < begins,
                };
                self.in_burst
            }
        }
    }
}

/// An end of a session.
#[derive(Clone, Copy, Debug)]
enum End {
    Client(usize),
    Target(usize),
}

/// What arrives, and where.
#[derive(Debug)]
enum Event {
    AtSwitch(usize, Vec<u8>),
    AtClient(usize, Vec<u8>),
    AtTarget(usize, Vec<u8>),
    /// The machine of an end does something else for a while.
    Stall(End),
    /// A client asks for its first data.
    Begin(usize),
    /// A frame of others begins its way to the client.
    Foreign,
}

/// What is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) is_write: bool,
    /// Of each command.
    pub(crate) bytes: u32,
    /// Commands of each session under way.
    pub(crate) depth: u64,
    /// Of the device.
    pub(crate) level: Level,
}

/// See above.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) now: Duration,
    work: Work,
    pub(crate) clients: Vec<ClientSession<Vec<u8>>>,
    pub(crate) targets: Vec<TargetSession<Vec<u8>>>,
    nics: Vec<Hop>,
    port: Hop,
    up: Hop,
    events: BTreeMap<(Duration, u64), Event>,
    number: u64,
    /// Bytes of commands that ended, of each session; of foreign frames that arrived.
    pub(crate) done: Vec<u64>,
    pub(crate) foreign_bytes: u64,
    foreign_every: Option<Duration>,
    /// Nothing gets through.
    pub(crate) dark: Option<(Duration, Duration)>,
    /// The client does nothing.
    pub(crate) asleep: Option<(Duration, Duration)>,
    /// Until when each end does nothing: what comes for it waits.
    stalled: (Vec<Duration>, Vec<Duration>),
    /// How often an end does nothing, and for how long at most.
    stalls: Option<(Duration, Duration)>,
    /// Clients begin so long after each other.
    pub(crate) apart: Duration,
    prng: Prng,
    next_token: u64,
    buffer: Vec<u8>,
}

/// Frames that were not delivered, as [`Rig::losses`] counts them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Losses {
    pub(crate) sent: u64,
    pub(crate) overflowed: u64,
    pub(crate) lost: u64,
    pub(crate) fragments: u64,
}

impl Rig {
    /// So many targets, each behind a link of its own, then the port of the client.
    pub(crate) fn new(
        targets: usize,
        (nic, port): (Link, Link),
        settings: Settings,
        work: Work,
    ) -> Self {
        let up = Link {
            queue_bytes: port.queue_bytes.max(200_000),
            ..port.clone()
        };
        let mut rig = Self {
            now: Duration::ZERO,
            work,
            clients: Vec::new(),
            targets: Vec::new(),
            nics: (0..targets)
                .map(|at| Hop::new(nic.clone(), 100 + at as u64))
                .collect(),
            port: Hop::new(port, 1),
            up: Hop::new(up, 2),
            events: BTreeMap::new(),
            number: 0,
            done: vec![0; targets],
            foreign_bytes: 0,
            foreign_every: None,
            dark: None,
            asleep: None,
            stalled: (vec![Duration::ZERO; targets], vec![Duration::ZERO; targets]),
            stalls: None,
            apart: Duration::ZERO,
            prng: Prng::new(3),
            next_token: 0,
            buffer: vec![0; 9100],
        };
        for at in 0..targets {
            let keys = Keys::new(&[u8::try_from(at).unwrap(); 32]);
            let terms = terms(&settings);
            let device = disk(DEVICE, work.level);
            let target = TargetSession::new(rig.now, &keys, terms, settings, vec![device]);
            let mut client = ClientSession::new(rig.now, &keys, terms, settings);
            client.open(rig.now, DEVICE, work.level);
            rig.clients.push(client);
            rig.targets.push(target);
        }
        (0..targets).for_each(|at| rig.pump(at));
        rig
    }

    /// Others send frames of 512 bytes to the client, so many in a hundred of what its port carries.
    pub(crate) fn mix(&mut self, percent: u32) {
        let took = self
            .port
            .link
            .time((FOREIGN_BYTES + FRAME_ADDED_BYTES) as u64);
        self.foreign_every = Some(took * 100 / percent);
        self.push(self.now, Event::Foreign);
    }

    /// The way of all clients, if it is another one than that to them.
    pub(crate) fn set_up(&mut self, link: Link) {
        self.up = Hop::new(link, 2);
    }

    /// From now on each end does nothing for up to `most`, about once in `every`, as on a machine that is busy.
    pub(crate) fn stall(&mut self, every: Duration, most: Duration) {
        self.stalls = Some((every, most));
        for at in 0..self.clients.len() {
            self.push(self.now, Event::Stall(End::Client(at)));
            self.push(self.now, Event::Stall(End::Target(at)));
        }
    }

    /// Until when an end does nothing.
    fn stalled(&self, end: End) -> Duration {
        match end {
            End::Client(at) => self.stalled.0[at],
            End::Target(at) => self.stalled.1[at],
        }
    }

    fn take_stall(&mut self, end: End) {
        let Some((every, most)) = self.stalls else {
            return;
        };
        let mut up_to = |time: Duration| {
            let nanos = u64::try_from(time.as_nanos()).unwrap();
            Duration::from_nanos(self.prng.below(nanos + 1))
        };
        let until = self.now + up_to(most);
        let next = until + up_to(every * 2);
        match end {
            End::Client(at) => self.stalled.0[at] = until,
            End::Target(at) => self.stalled.1[at] = until,
        }
        self.push(next, Event::Stall(end));
    }

    /// What comes for an end that does nothing, later.
    fn hold(&mut self, end: End, event: Event) -> Option<Event> {
        let until = self.stalled(end);
        if until <= self.now {
            return Some(event);
        }
        self.push(until, event);
        None
    }

    fn push(&mut self, at: Duration, event: Event) {
        self.number += 1;
        self.events.insert((at, self.number), event);
    }

    /// Goes on for so long. Gives the bytes that were moved in that time.
    pub(crate) fn run(&mut self, time: Duration) -> u64 {
        let (end, before) = (self.now + time, self.moved());
        while self.step(end) {}
        self.now = end;
        self.moved() - before
    }

    pub(crate) fn moved(&self) -> u64 {
        self.done.iter().sum()
    }

    fn is_in(span: Option<(Duration, Duration)>, now: Duration) -> bool {
        span.is_some_and(|(from, until)| (from..until).contains(&now))
    }

    /// When a client wants to be called: not while it sleeps.
    fn client_deadline(&self, at: usize) -> Option<Duration> {
        let deadline = self.clients[at].deadline()?;
        let deadline = deadline.max(self.stalled(End::Client(at)));
        match self.asleep {
            Some((from, until)) if (from..until).contains(&deadline.max(self.now)) => Some(until),
            Some(_) | None => Some(deadline),
        }
    }

    fn target_deadline(&self, at: usize) -> Option<Duration> {
        let deadline = self.targets[at].deadline()?;
        Some(deadline.max(self.stalled(End::Target(at))))
    }

    fn step(&mut self, end: Duration) -> bool {
        let ends = 0..self.clients.len();
        let clients = ends.clone().filter_map(|at| self.client_deadline(at));
        let targets = ends.clone().filter_map(|at| self.target_deadline(at));
        let events = self.events.keys().next().map(|&(at, _)| at);
        let Some(next) = clients.chain(targets).chain(events).min() else {
            return false;
        };
        if next > end {
            return false;
        }
        self.now = self.now.max(next);
        while let Some(first) = self
            .events
            .first_entry()
            .filter(|first| first.key().0 <= self.now)
        {
            let event = first.remove();
            let held = match &event {
                Event::AtClient(at, _) => self.hold(End::Client(*at), event),
                Event::AtTarget(at, _) => self.hold(End::Target(*at), event),
                Event::AtSwitch(..) | Event::Stall(_) | Event::Begin(_) | Event::Foreign => {
                    Some(event)
                }
            };
            if let Some(event) = held {
                self.take(event);
            }
        }
        let is_asleep = Self::is_in(self.asleep, self.now);
        for at in ends {
            let is_due = |deadline: Option<Duration>| deadline.is_some_and(|at| at <= self.now);
            let (client, target) = (
                is_due(self.client_deadline(at)),
                is_due(self.target_deadline(at)),
            );
            if client && !is_asleep {
                self.clients[at].handle_deadline(self.now);
            }
            if target {
                self.targets[at].handle_deadline(self.now);
            }
            if client || target {
                self.pump(at);
            }
        }
        true
    }

    fn take(&mut self, event: Event) {
        let is_dark = Self::is_in(self.dark, self.now);
        let is_asleep = Self::is_in(self.asleep, self.now);
        match event {
            Event::AtSwitch(at, frame) => {
                if let Some(when) = self.port.pass(self.now, frame.len(), is_fragment(&frame)) {
                    self.push(when, Event::AtClient(at, frame));
                }
            }
            Event::AtClient(at, frame) => {
                if !is_dark && !is_asleep {
                    self.clients[at].handle_frame(self.now, &frame);
                    self.pump(at);
                }
            }
            Event::AtTarget(at, frame) => {
                if !is_dark {
                    self.targets[at].handle_frame(self.now, &frame);
                    self.pump(at);
                }
            }
            Event::Stall(end) => self.take_stall(end),
            Event::Begin(at) => {
                (0..self.work.depth).for_each(|_| self.ask(at));
                self.pump(at);
            }
            Event::Foreign => {
                let arrives = self.port.pass(self.now, FOREIGN_BYTES, false);
                self.foreign_bytes += if arrives.is_some() {
                    FOREIGN_BYTES as u64
                } else {
                    0
                };
                if let Some(every) = self.foreign_every {
                    self.push(self.now + every, Event::Foreign);
                }
            }
        }
    }

    /// Does what has come up at both ends of a session, and sends what they have to send.
    fn pump(&mut self, at: usize) {
        let is_asleep = Self::is_in(self.asleep, self.now);
        if !is_asleep && self.stalled(End::Client(at)) <= self.now {
            self.take_client_events(at);
            while let Some(length) = self.clients[at].poll_frame(self.now, &mut self.buffer) {
                let frame = self.buffer[..length].to_vec();
                if let Some(when) = self.up.pass(self.now, length, is_fragment(&frame)) {
                    self.push(when, Event::AtTarget(at, frame));
                }
            }
        }
        if self.stalled(End::Target(at)) > self.now {
            return;
        }
        while let Some(event) = self.targets[at].poll_event() {
            match event {
                TargetEvent::Command { id, command, .. } => {
                    let data = vec![0; command.data_in_bytes as usize];
                    self.targets[at].respond(self.now, id, Reply::of(Outcome::Status(0)), data);
                }
                TargetEvent::Opened { .. } => {}
                TargetEvent::Management { .. } | TargetEvent::Ended(_) => panic!("{event:?}"),
            }
        }
        while let Some(length) = self.targets[at].poll_frame(self.now, &mut self.buffer) {
            let frame = self.buffer[..length].to_vec();
            if let Some(when) = self.nics[at].pass(self.now, length, is_fragment(&frame)) {
                self.push(when, Event::AtSwitch(at, frame));
            }
        }
    }

    fn take_client_events(&mut self, at: usize) {
        while let Some(event) = self.clients[at].poll_event() {
            match event {
                ClientEvent::Opening { .. } => {
                    let begins = self.now + self.apart * u32::try_from(at).unwrap();
                    self.push(begins, Event::Begin(at));
                }
                ClientEvent::Answer { reply, .. } => {
                    assert_eq!(reply.outcome, Outcome::Status(0));
                    self.done[at] += u64::from(self.work.bytes);
                    self.ask(at);
                }
                ClientEvent::Devices(_) => {}
                ClientEvent::Lost { .. } | ClientEvent::Ended(_) => {
                    panic!("{event:?} at {:?}", self.now)
                }
            }
        }
    }

    fn ask(&mut self, at: usize) {
        self.next_token += 1;
        let Work {
            is_write, bytes, ..
        } = self.work;
        let (data_in_bytes, data_out_bytes) = if is_write { (0, bytes) } else { (bytes, 0) };
        let command = Command {
            attribute: Attribute::Simple,
            cdb: vec![0; 16],
            data_in_bytes,
            data_out_bytes,
        };
        let data = vec![0; data_out_bytes as usize];
        self.clients[at]
            .submit(self.now, self.next_token, DEVICE, command, data)
            .unwrap();
    }

    /// The first client asks once more. Which of the frames that leave at once want an acknowledgement; they are lost.
    pub(crate) fn burst(&mut self) -> Vec<bool> {
        self.ask(0);
        let mut asked = Vec::new();
        while let Some(length) = self.clients[0].poll_frame(self.now, &mut self.buffer) {
            let head = self.buffer[..length].first_chunk().unwrap();
            asked.push(FragmentHeader::decode(*head).wants_ack);
        }
        asked
    }

    /// Of all links.
    pub(crate) fn losses(&self) -> Losses {
        let hops = self.nics.iter().chain([&self.port, &self.up]);
        let mut losses = Losses {
            sent: 0,
            overflowed: 0,
            lost: 0,
            fragments: 0,
        };
        for hop in hops {
            losses.overflowed += hop.overflowed;
            losses.lost += hop.lost;
            losses.fragments += hop.lost_fragments;
        }
        losses.sent = self.nics.iter().map(|hop| hop.sent).sum::<u64>() + self.up.sent;
        losses
    }

    /// What frames without a fragment took of the port to the clients, and of the way from them.
    pub(crate) fn control_bytes(&self) -> [u64; 2] {
        [&self.port, &self.up].map(|hop| hop.control_bytes)
    }

    /// Of all ends.
    pub(crate) fn probes(&self) -> u64 {
        let clients = self.clients.iter().map(ClientSession::counters);
        let counters = clients.chain(self.targets.iter().map(TargetSession::counters));
        counters.map(|one| one.probes).sum()
    }

    /// Of all ends: fragments sent again, and those of them that had not been lost.
    pub(crate) fn again(&self) -> (u64, u64) {
        let clients = self.clients.iter().map(ClientSession::counters);
        let counters = clients.chain(self.targets.iter().map(TargetSession::counters));
        counters.fold((0, 0), |(again, spurious), one| {
            (again + one.retransmitted, spurious + one.spurious)
        })
    }
}

/// Whether it carries a part of a request or a reply. The session has the tags from 1.
fn is_fragment(frame: &[u8]) -> bool {
    FragmentHeader::decode(*frame.first_chunk().unwrap()).tag > 1
}
