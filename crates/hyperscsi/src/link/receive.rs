//! Frames that come.

use std::ops::Range;
use std::time::Duration;

use super::{EndReason, Link, generation, low};
use crate::assembly::{Assembly, Taken};
use crate::bytes::size;
use crate::control::{Ack, Probe, SHORT_ACK};
use crate::data::Data;
use crate::frame::FragmentHeader;
use crate::keys::{FORGERIES_MAX, SealError};
use crate::limits::{ACK_DELAY, FRAGMENT_HEADER_BYTES};
use crate::pdu::{Header, Level, Opcode, is_intact};
use crate::planted::{self, Bug};

/// Behind a PDU that is whole: no other follows.
const PADDING: [u8; FRAGMENT_HEADER_BYTES] = [0; FRAGMENT_HEADER_BYTES];

/// Where a PDU is that has arrived.
#[derive(Debug)]
pub(crate) enum Held {
    /// In memory of its own.
    Own(Vec<u8>),
    /// In the frame, which had all of it in the clear.
    InFrame(Range<usize>),
}

/// A frame that is handled, and whether its bytes are there until the data that came in it are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) bytes: &'a [u8],
    is_lent: bool,
}

/// A PDU that has arrived whole and right.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// Under the tag of a slot.
    Pdu {
        slot: u16,
        sequence: u64,
        header: Header,
        level: Level,
        pdu: Held,
    },
    /// A control PDU that is not of this layer: its opcode and body.
    Control(Opcode, Vec<u8>),
}

impl<'a> Frame<'a> {
    /// One that may be gone when its events are taken.
    pub(crate) const fn passing(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            is_lent: false,
        }
    }

    /// One that is there until then.
    pub(crate) const fn lent(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            is_lent: true,
        }
    }

    /// The bytes of a PDU that may be in it.
    pub(crate) fn pdu(self, held: &'a Held) -> &'a [u8] {
        match held {
            Held::Own(pdu) => pdu,
            Held::InFrame(range) => self.bytes.get(range.clone()).unwrap_or_default(),
        }
    }
}

/// What a fragment came in.
#[derive(Clone, Copy, Debug)]
enum Origin {
    /// In the clear, from this byte of its frame on.
    Clear(usize),
    /// Under a seal, with the sequence number of its PDU.
    Seal(u32),
}

impl<D: AsRef<[u8]>> Link<D> {
    /// Takes a frame from behind its Ethernet header, of the peer's address. Gives the PDUs that it completes.
    ///
    /// Behind a PDU that is whole another fragment may follow, so what is read of a frame is bounded by its length. The
    /// rest is dropped behind one that is wrong: where the next one begins is not known then.
    pub(crate) fn receive(&mut self, now: Duration, frame: &[u8], arrivals: &mut Vec<Arrival>) {
        self.counters.frames_in += 1;
        let mut rest = frame;
        let mut all_sealed = None;
        while let Some((head, body)) = rest.split_first_chunk::<FRAGMENT_HEADER_BYTES>() {
            if *head == PADDING && rest.len() < frame.len() {
                return;
            }
            let head = FragmentHeader::decode(*head);
            if head.is_sealed {
                self.receive_sealed(now, head, rest, arrivals);
                return;
            }
            let slot = self.slot_of(head.tag);
            let all_sealed = *all_sealed
                .get_or_insert_with(|| self.levels.values().all(|&level| super::is_sealed(level)));
            // Where no device is open for what anybody could send, that takes no memory here.
            let Some(slot) = slot.filter(|_| !all_sealed) else {
                self.counters.strange += 1;
                return;
            };
            let (payload, behind) = self.split(head, body, false);
            let wrong = self.counters.corrupt;
            let at = frame.len() - body.len();
            arrivals.extend(self.take_fragment(now, slot, head, Origin::Clear(at), payload));
            if behind.is_empty() || self.counters.corrupt != wrong {
                return;
            }
            rest = behind;
        }
        // Less than a header is padding behind a PDU.
        if rest.len() == frame.len() {
            self.counters.strange += 1;
        }
    }

    /// A fragment, and what follows it in its frame.
    fn split<'a>(
        &self,
        head: FragmentHeader,
        body: &'a [u8],
        is_sealed: bool,
    ) -> (&'a [u8], &'a [u8]) {
        let is_whole = self.terms.bundles && head.fragment == 0 && head.is_last;
        let header = is_whole.then(|| Header::decode(body)).flatten();
        let parts = header.and_then(|header| body.split_at_checked(header.whole_bytes(is_sealed)));
        parts.unwrap_or((body, &[]))
    }

    /// Takes what is sealed of a frame, which is the rest of it.
    fn receive_sealed(
        &mut self,
        now: Duration,
        head: FragmentHeader,
        frame: &[u8],
        arrivals: &mut Vec<Arrival>,
    ) {
        let mut room = std::mem::take(&mut self.room);
        match self.opener.open(frame, &mut room) {
            Ok(opened) => {
                self.last_heard = now;
                let (number, text) = (opened.number, opened.text);
                if frame.get(FRAGMENT_HEADER_BYTES + 1) == Some(&SHORT_ACK) {
                    self.take_short_ack(now, head, number, text);
                } else {
                    self.take_text(now, head, (number, opened.sequence), text, arrivals);
                }
            }
            Err(error) => self.count_seal_error(error),
        }
        self.room = room;
    }

    /// Takes the fragments under a seal.
    fn take_text(
        &mut self,
        now: Duration,
        mut head: FragmentHeader,
        (number, mut sequence): (u64, u32),
        mut text: &[u8],
        arrivals: &mut Vec<Arrival>,
    ) {
        let mut has_ack = false;
        loop {
            let (payload, behind) = self.split(head, text, true);
            let wrong = self.counters.corrupt;
            if head.tag == self.terms.first_tag {
                // One for each frame: so the work for a frame is bounded by what is under way.
                let is_ack = payload.get(1) == Some(&Opcode::Ack.to_wire());
                if is_ack && std::mem::replace(&mut has_ack, true) {
                    self.counters.strange += 1;
                    return;
                }
                arrivals.extend(self.take_control(now, number, payload));
            } else if let Some(slot) = self.slot_of(head.tag) {
                arrivals.extend(self.take_fragment(
                    now,
                    slot,
                    head,
                    Origin::Seal(sequence),
                    payload,
                ));
            } else {
                self.counters.strange += 1;
                return;
            }
            let Some((next, after)) = behind.split_first_chunk::<FRAGMENT_HEADER_BYTES>() else {
                return;
            };
            if *next == PADDING || self.counters.corrupt != wrong {
                return;
            }
            head = FragmentHeader::decode(*next);
            let Some((number, after)) = after.split_first_chunk().filter(|_| head.is_sealed) else {
                self.counters.strange += 1;
                return;
            };
            sequence = u32::from_be_bytes(*number);
            text = after;
        }
    }

    fn count_seal_error(&mut self, error: SealError) {
        match error {
            SealError::Replayed => self.counters.stale += 1,
            SealError::Short => self.counters.strange += 1,
            SealError::Forged => self.counters.forged += 1,
        }
        if self.counters.forged >= FORGERIES_MAX {
            self.end(EndReason::Forged);
        }
    }

    fn take_control(&mut self, now: Duration, number: u64, pdu: &[u8]) -> Option<Arrival> {
        let header = Header::decode(pdu)?;
        let body = header.body(pdu)?;
        match header.opcode {
            Opcode::Probe => {
                let probe = Probe::decode(body)?;
                for tag in &probe.tags {
                    let slot = self.slot_of(*tag).map(usize::from);
                    if let Some(incoming) = slot.and_then(|slot| self.incoming.get_mut(slot)) {
                        incoming.is_owed = true;
                    }
                }
                self.owed.probe = probe.id;
                self.owed.now = true;
                self.owed.newest = now;
                None
            }
            Opcode::Ack => {
                self.take_ack(now, number, &Ack::decode(body)?);
                None
            }
            Opcode::Request | Opcode::Reply | Opcode::Discovery | Opcode::DiscoveryAnswer => {
                self.counters.strange += 1;
                None
            }
            Opcode::Negotiation
            | Opcode::NegotiationAnswer
            | Opcode::Disconnect
            | Opcode::DisconnectAnswer => Some(Arrival::Control(header.opcode, body.to_vec())),
        }
    }

    /// Takes the text of a frame that says to be a short acknowledgement.
    fn take_short_ack(&mut self, now: Duration, head: FragmentHeader, number: u64, text: &[u8]) {
        let is_control = head.tag == self.terms.first_tag && head.is_last && head.fragment == 0;
        let ack = Ack::decode_short(text).filter(|_| is_control && self.terms.bundles);
        match ack {
            Some(ack) => self.take_ack(now, number, &ack),
            None => self.counters.strange += 1,
        }
    }

    fn take_ack(&mut self, now: Duration, number: u64, ack: &Ack) {
        let is_newest = self.newest_ack.is_none_or(|newest| number > newest);
        if is_newest {
            self.newest_ack = Some(number);
        }
        self.handle_ack(now, ack, is_newest);
    }

    fn take_fragment(
        &mut self,
        now: Duration,
        slot: u16,
        head: FragmentHeader,
        origin: Origin,
        payload: &[u8],
    ) -> Option<Arrival> {
        let incoming = self.incoming.get_mut(usize::from(slot))?;
        let (done, next) = (incoming.done, incoming.done + 1);
        let is_of = |whole: u64| match origin {
            Origin::Seal(sequence) => sequence == low(whole),
            Origin::Clear(_) => head.generation == generation(whole),
        };
        let twice = planted::has(Bug::Duplicates);
        if is_of(done) && done > 0 && !twice {
            // It has come before: its sender does not know.
            self.counters.stale += 1;
            incoming.is_owed = true;
            self.owe(now, head.wants_ack);
            return None;
        }
        if !(incoming.expects && is_of(next) || twice) {
            self.counters.stale += 1;
            return None;
        }
        let is_sealed = matches!(origin, Origin::Seal(_));
        if head.fragment == 0
            && head.is_last
            && incoming.assembly.is_none()
            && let Some(arrival) = self.take_whole(now, slot, head, origin, payload)
        {
            return Some(arrival);
        }
        let incoming = self.incoming.get_mut(usize::from(slot))?;
        let guess = usize::from(self.sizes_seen[usize::from(is_sealed)]);
        let held = incoming.assembly.as_ref().map_or(0, Assembly::held_bytes);
        let others = self.held_bytes.saturating_sub(held);
        if let Some(assembly) = &incoming.assembly
            && assembly.is_sealed() != is_sealed
        {
            // Anybody may send what is not sealed; what is sealed comes from the peer.
            if !is_sealed {
                self.counters.stale += 1;
                return None;
            }
            incoming.assembly = None;
            self.held_bytes = others;
        }
        let session = self.terms.session;
        let budget = size(self.settings.begun_bytes);
        let assembly = incoming
            .assembly
            .get_or_insert_with(|| Assembly::new(is_sealed, guess, (session, low(next))));
        let room = budget
            .saturating_sub(others)
            .saturating_sub(assembly.held_bytes());
        let taken = assembly.take(head.fragment, head.is_last, payload, room);
        self.held_bytes = others + assembly.held_bytes();
        self.settle_fragment(now, slot, head, taken)
    }

    /// A PDU in one fragment, if it is right. One in the clear stays in the frame, one that was sealed is copied. What
    /// is wrong with any other one is found when it is put together.
    fn take_whole(
        &mut self,
        now: Duration,
        slot: u16,
        head: FragmentHeader,
        origin: Origin,
        payload: &[u8],
    ) -> Option<Arrival> {
        let is_sealed = matches!(origin, Origin::Seal(_));
        let header = Header::decode(payload)?;
        let pdu = payload.get(..header.whole_bytes(is_sealed))?;
        let budget = size(self.settings.begun_bytes);
        if pdu.len() > budget.saturating_sub(self.held_bytes) {
            return None;
        }
        let (sequence, level) = self.next_of(slot, &header, is_sealed, pdu)?;
        let incoming = self.incoming.get_mut(usize::from(slot))?;
        incoming.done = sequence;
        incoming.expects = false;
        incoming.is_owed = true;
        incoming.is_void = false;
        self.last_heard = now;
        self.owe(now, head.wants_ack);
        let pdu = match origin {
            Origin::Clear(at) => Held::InFrame(at..at + pdu.len()),
            Origin::Seal(_) => Held::Own(self.copied(pdu)),
        };
        Some(Arrival::Pdu {
            slot,
            sequence,
            header,
            level,
            pdu,
        })
    }

    /// These bytes in memory that is used again.
    pub(crate) fn copied(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut room = self.spare.pop().unwrap_or_default();
        room.clear();
        room.extend_from_slice(bytes);
        room
    }

    /// The data of a PDU, which are the last of it, so many bytes. Those in a frame that is lent stay there.
    pub(crate) fn data(
        &mut self,
        frame: Frame<'_>,
        pdu: Held,
        header: &Header,
        length: usize,
    ) -> Data {
        match pdu {
            Held::Own(pdu) => Data::before(pdu, size(header.length), length),
            // Without data no memory is needed.
            Held::InFrame(_) if length == 0 => Data::default(),
            Held::InFrame(range) => {
                let end = range.start + size(header.length);
                let data = Data::in_frame(end.saturating_sub(length)..end);
                if frame.is_lent {
                    return data;
                }
                Data::before(self.copied(data.within(frame.bytes)), length, length)
            }
        }
    }

    /// The number and the level of a PDU, if it is the next under the tag of this slot, and what the peer sent.
    fn next_of(
        &self,
        slot: u16,
        header: &Header,
        is_sealed: bool,
        pdu: &[u8],
    ) -> Option<(u64, Level)> {
        let sequence = self.incoming.get(usize::from(slot))?.done + 1;
        let level = header.level(is_sealed);
        let opcode = match self.side {
            crate::keys::Side::Client => Opcode::Reply,
            crate::keys::Side::Target => Opcode::Request,
        };
        let tag = self.tag_of(slot);
        let is_right = header.session == self.terms.session
            && (header.sequence == low(sequence) || planted::has(Bug::Duplicates))
            && header.opcode == opcode
            // Before the sequence number is used up: anybody could send what is not protected.
            && self.levels.get(&header.device) == Some(&level)
            && (is_intact(level, &self.mac_in, tag, sequence, pdu) || planted::has(Bug::Checksum));
        is_right.then_some((sequence, level))
    }

    /// Counts a fragment, and gives the PDU that it completes.
    fn settle_fragment(
        &mut self,
        now: Duration,
        slot: u16,
        head: FragmentHeader,
        taken: Taken,
    ) -> Option<Arrival> {
        let incoming = self.incoming.get_mut(usize::from(slot))?;
        match taken {
            Taken::Placed { after_gap } => {
                incoming.is_owed = true;
                incoming.is_void = false;
                if let Some(assembly) = &incoming.assembly
                    && !head.is_last
                {
                    self.sizes_seen[usize::from(head.is_sealed)] = assembly.fragment_bytes();
                }
                if incoming.assembly.as_ref().is_some_and(Assembly::is_whole) {
                    let arrival = self.complete(slot);
                    self.owe(now, head.wants_ack || arrival.is_none());
                    if arrival.is_some() {
                        self.last_heard = now;
                    }
                    return arrival;
                }
                self.owe(now, head.wants_ack || after_gap);
            }
            Taken::Again => {
                self.counters.stale += 1;
                incoming.is_owed = true;
                self.owe(now, true);
            }
            Taken::Strange => {
                self.counters.corrupt += 1;
                // Should what is there be wrong, it would refuse what is right for ever.
                if let Some(wrong) = incoming.assembly.take() {
                    self.held_bytes = self.held_bytes.saturating_sub(wrong.held_bytes());
                }
                incoming.is_void = true;
                incoming.is_owed = true;
                self.owe(now, true);
            }
            Taken::NoRoom => {
                self.counters.no_room += 1;
                self.owe(now, head.wants_ack);
            }
        }
        None
    }

    /// All fragments are there: is it what the peer sent?
    fn complete(&mut self, slot: u16) -> Option<Arrival> {
        let incoming = self.incoming.get_mut(usize::from(slot))?;
        let assembly = incoming.assembly.take()?;
        self.held_bytes = self.held_bytes.saturating_sub(assembly.held_bytes());
        let is_sealed = assembly.is_sealed();
        let whole = assembly.finish();
        let right = whole.and_then(|(header, pdu)| {
            let (sequence, level) = self.next_of(slot, &header, is_sealed, &pdu)?;
            Some(Arrival::Pdu {
                slot,
                sequence,
                header,
                level,
                pdu: Held::Own(pdu),
            })
        });
        let incoming = self.incoming.get_mut(usize::from(slot))?;
        if let Some(Arrival::Pdu { sequence, .. }) = &right {
            incoming.done = *sequence;
            incoming.expects = false;
        } else {
            self.counters.corrupt += 1;
            incoming.is_void = true;
        }
        right
    }

    /// An acknowledgement is to be sent, now or soon.
    fn owe(&mut self, now: Duration, at_once: bool) {
        self.owed.newest = now;
        self.owed.frames = self.owed.frames.saturating_add(1);
        self.owed.due.get_or_insert(now + ACK_DELAY);
        if at_once || self.owed.frames >= (self.settings.window / 4).max(1) {
            self.owed.now = true;
        }
    }
}
