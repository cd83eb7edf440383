//! Frames that leave, and which of them next.
//!
//! PDUs that are ready and short share a frame, and an acknowledgement rides behind them: nothing waits for that. A
//! frame has one number among transmissions, whatever is in it; each fragment counts for the window by itself. What is
//! sent again goes in frames that every path carries, so a path that has become narrow holds up none of it.

use std::time::Duration;

use super::{Flight, Link, generation, is_sealed, low, payload_bytes};
use crate::bytes::size;
use crate::control::{ACK_BYTES, Ack, Entry, Probe, SHORT_ACK, TAGS_ASKED_MAX};
use crate::frame::FragmentHeader;
use crate::keys::{CLEAR_BYTES, SEAL_BYTES, Side, TAG_BYTES};
use crate::limits::{CONTROL_MAX_BYTES, FRAGMENT_HEADER_BYTES, FRAME_MIN_BYTES, VERSION};
use crate::outgoing::State;
use crate::pdu::{HEADER_BYTES, Opcode};

/// Transmissions that are remembered, with those of PDUs that are not under way any more; then these are dropped. More
/// than a sender may have under way, so that it does not happen often.
const FLIGHTS_MAX: usize = 16 * 1024;

/// Frames until the peer is asked for an acknowledgement, at least, where the window is hardly used, or twice as large.
const ASK_FEW: usize = 8;

/// Before a further fragment in a seal: its header, and the sequence number of its PDU.
const JOINED_BYTES: usize = FRAGMENT_HEADER_BYTES + 4;

/// A fragment that may leave now.
#[derive(Clone, Copy, Debug)]
struct Piece {
    slot: u16,
    fragment: u16,
    /// It was sent before.
    is_again: bool,
    /// It is the whole PDU.
    is_whole: bool,
    is_sealed: bool,
    bytes: usize,
}

/// A frame that is being written: first what is in the clear, then what one seal covers.
#[derive(Debug)]
struct Draft<'a> {
    to: &'a mut [u8],
    length: usize,
    /// Where the seal begins, and what stands before it.
    seal: Option<(usize, [u8; 5])>,
    /// A frame of several PDUs is no longer.
    bound: usize,
    pieces: usize,
}

impl Draft<'_> {
    /// The length of the frame with so many bytes more; `None` where they cannot follow.
    const fn with(&self, is_sealed: bool, bytes: usize) -> Option<usize> {
        let added = match (is_sealed, self.seal) {
            (false, None) => FRAGMENT_HEADER_BYTES,
            (false, Some(_)) => return None,
            (true, None) => SEAL_BYTES,
            // What is there has the tag of the seal still to come.
            (true, Some(_)) => JOINED_BYTES + TAG_BYTES,
        };
        Some(self.length + added + bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.length + bytes.len();
        self.to.get_mut(self.length..end)?.copy_from_slice(bytes);
        self.length = end;
        Some(())
    }

    /// Begins a fragment; with the opcode and sequence number of its PDU, where it is sealed.
    fn begin(&mut self, head: [u8; 3], sealed: Option<(Opcode, u32)>) -> Option<()> {
        self.pieces += 1;
        let Some((opcode, sequence)) = sealed else {
            return self.put(&head);
        };
        if self.seal.is_none() {
            let [a, b, c] = head;
            self.seal = Some((self.length, [a, b, c, VERSION, opcode.to_wire()]));
            self.length += CLEAR_BYTES;
        } else {
            self.put(&head)?;
        }
        self.put(&sequence.to_be_bytes())
    }
}

impl<D: AsRef<[u8]>> Link<D> {
    /// Writes the next frame, from behind its Ethernet header. Gives its length; `None` while there is none to send.
    /// `to` has room for the largest frame.
    pub(crate) fn poll_frame(&mut self, now: Duration, to: &mut [u8]) -> Option<usize> {
        let length = if let Some((opcode, body)) = self.control.pop_front() {
            self.write_control(opcode, &body, 0, to)
        } else if self.ended.is_some() {
            None
        } else if self.owed.now || self.owed.due.is_some_and(|due| due <= now) {
            let ack = self.make_ack(now);
            self.write_fragments(now, Some(&ack), to)
        } else if self.probe_wanted {
            self.write_probe(now, to)
        } else if let Some(length) = self.write_trial(to) {
            Some(length)
        } else {
            self.write_fragments(now, None, to)
        }?;
        self.counters.frames_out += 1;
        let padded = length.max(FRAME_MIN_BYTES);
        to.get_mut(length..padded)?.fill(0);
        Some(padded)
    }

    /// A control PDU in a frame of its own, which is at least so long.
    fn write_control(
        &mut self,
        opcode: Opcode,
        body: &[u8],
        frame_bytes: u16,
        to: &mut [u8],
    ) -> Option<usize> {
        debug_assert!(body.len() <= CONTROL_MAX_BYTES);
        let bare = SEAL_BYTES + HEADER_BYTES + body.len();
        let padding = vec![0; usize::from(frame_bytes).saturating_sub(bare).min(to.len())];
        let header = self
            .header(opcode, 0, 0, body.len() + padding.len())
            .encode();
        let [a, b, c] = self.control_head();
        let clear = [a, b, c, VERSION, opcode.to_wire()];
        self.sealer.seal(clear, 0, &[&header, body, &padding], to)
    }

    /// The header of the only fragment of a control PDU.
    fn control_head(&self) -> [u8; 3] {
        FragmentHeader {
            is_sealed: true,
            tag: self.terms.first_tag,
            is_last: true,
            ..FragmentHeader::default()
        }
        .encode()
    }

    /// An acknowledgement in a frame of its own: short, where it can be.
    fn write_ack(&mut self, ack: &Ack, to: &mut [u8]) -> Option<usize> {
        let short = ack.encode_short().filter(|_| self.terms.bundles);
        let Some(body) = short else {
            return self.write_control(Opcode::Ack, &ack.encode(), 0, to);
        };
        let [a, b, c] = self.control_head();
        let clear = [a, b, c, VERSION, SHORT_ACK];
        self.sealer.seal(clear, 0, &[&body], to)
    }

    /// The acknowledgement that is due. It has to be sent.
    fn make_ack(&mut self, now: Duration) -> Ack {
        let mut entries = Vec::new();
        let mut left = CONTROL_MAX_BYTES - ACK_BYTES;
        let mut is_all = true;
        for slot in 0..self.terms.slots {
            let tag = self.tag_of(slot);
            let Some(incoming) = self.incoming.get_mut(usize::from(slot)) else {
                continue;
            };
            if !incoming.is_owed {
                continue;
            }
            let entry = entry_of(tag, incoming);
            if entry.encoded_bytes() > left {
                is_all = false;
                break;
            }
            left -= entry.encoded_bytes();
            incoming.is_owed = false;
            entries.push(entry);
        }
        let waited = now.saturating_sub(self.owed.newest);
        self.owed.now = !is_all;
        self.owed.due = None;
        self.owed.frames = 0;
        Ack {
            probe: std::mem::take(&mut self.owed.probe),
            window: self.settings.window,
            delay_us: u32::try_from(waited.as_micros()).unwrap_or(u32::MAX),
            entries,
        }
    }

    fn write_probe(&mut self, now: Duration, to: &mut [u8]) -> Option<usize> {
        let tags = (0..self.terms.slots)
            .filter(|&slot| {
                let pdu = self
                    .outgoing
                    .get(usize::from(slot))
                    .and_then(Option::as_ref);
                pdu.is_some_and(super::Outgoing::is_begun)
            })
            .take(TAGS_ASKED_MAX)
            .map(|slot| self.tag_of(slot))
            .collect();
        let id = self.take_probe_id();
        let order = self.path.next_order;
        self.path.next_order += 1;
        self.probe = Some((id, order, now));
        self.probe_wanted = false;
        self.counters.probes += 1;
        self.write_control(Opcode::Probe, &Probe { id, tags }.encode(), 0, to)
    }

    fn take_probe_id(&mut self) -> u32 {
        let id = self.next_probe;
        self.next_probe = self.next_probe.wrapping_add(1).max(1);
        id
    }

    /// A probe as long as a frame that may get through.
    fn write_trial(&mut self, to: &mut [u8]) -> Option<usize> {
        let (size, _, tries) = self.frame_size.trial.filter(|&(_, id, _)| id == 0)?;
        let id = self.take_probe_id();
        self.frame_size.trial = Some((size, id, tries + 1));
        let probe = Probe {
            id,
            tags: Vec::new(),
        };
        self.write_control(Opcode::Probe, &probe.encode(), size, to)
    }

    /// A frame with a fragment: first what was lost, then what is new. PDUs that fit as a whole follow each other, and
    /// the acknowledgement, if one is due, is behind them, or alone.
    fn write_fragments(
        &mut self,
        now: Duration,
        ack: Option<&Ack>,
        to: &mut [u8],
    ) -> Option<usize> {
        let base = usize::from(self.frame_size.base);
        let ack_bytes = ack.map_or(0, |ack| SEAL_BYTES + HEADER_BYTES + ack.encoded_bytes());
        let mut draft = Draft {
            to,
            length: 0,
            seal: None,
            bound: usize::from(self.frame_size.now),
            pieces: 0,
        };
        while let Some(piece) = self.next_piece() {
            if piece.is_again {
                draft.bound = draft.bound.min(base);
            }
            let Some(length) = draft.with(piece.is_sealed, piece.bytes) else {
                break;
            };
            let joins = piece.is_whole && self.terms.bundles;
            let fits = joins && length + ack_bytes <= draft.bound;
            if !fits && (draft.pieces > 0 || ack.is_some()) {
                break;
            }
            self.write_piece(now, &piece, &mut draft)?;
            if !joins {
                break;
            }
        }
        let count = draft.pieces;
        match ack {
            Some(ack) if count == 0 => return self.write_ack(ack, draft.to),
            Some(ack) => {
                let body = ack.encode();
                let header = self.header(Opcode::Ack, 0, 0, body.len()).encode();
                draft.begin(self.control_head(), Some((Opcode::Ack, 0)))?;
                draft.put(&header)?;
                draft.put(&body)?;
            }
            None if count == 0 => return None,
            None => {}
        }
        let joined = draft.pieces.saturating_sub(1);
        self.counters.joined += u64::try_from(joined).unwrap_or_default();
        let length = match draft.seal {
            None => draft.length,
            Some((at, clear)) => {
                let text_bytes = draft.length - at - CLEAR_BYTES;
                let sealed = draft.to.get_mut(at..)?;
                at + self.sealer.seal_text(clear, text_bytes, sealed)?
            }
        };
        self.note_sent(now, count, length > base);
        Some(length)
    }

    /// A frame with so many fragments has been written.
    fn note_sent(&mut self, now: Duration, count: usize, is_large: bool) {
        self.path.next_order += 1;
        self.timer_from = now;
        let first = self.flights.len().saturating_sub(count);
        for at in first..self.flights.len() {
            let flight = self.flights.get(at).copied();
            if let Some(fragment) = flight.and_then(|flight| self.flying_mut(&flight)) {
                fragment.is_large = is_large;
            }
        }
    }

    /// The next fragment to send, if there is one and the window has room for it.
    fn next_piece(&mut self) -> Option<Piece> {
        if self.in_flight >= self.limit() {
            return self.next_function();
        }
        while let Some(&(slot, fragment)) = self.lost.first() {
            let piece = self.piece(slot, fragment, State::Lost);
            if piece.is_some() {
                return piece;
            }
            self.lost.pop_first();
        }
        let (slot, fragment) = self.next_new()?;
        self.piece(slot, fragment, State::Waiting)
    }

    /// What a client sends although the window of its target is shut: a function, which is there to end what keeps it
    /// shut. It has a slot of its own, and is one fragment.
    fn next_function(&mut self) -> Option<Piece> {
        let slot = self.terms.slots.checked_sub(1)?;
        if self.side == Side::Target || self.in_flight >= self.path.frames() {
            return None;
        }
        if let Some(piece) = self.piece(slot, 0, State::Lost) {
            return Some(piece);
        }
        let pdu = self.outgoing.get(usize::from(slot))?.as_ref()?;
        let at = self.waiting.iter().position(|one| *one == slot)?;
        if pdu.is_begun() && pdu.fragments.first()?.state != State::Waiting {
            return None;
        }
        let function = self.waiting.remove(at)?;
        self.waiting.push_front(function);
        let (slot, fragment) = self.next_new()?;
        self.piece(slot, fragment, State::Waiting)
    }

    /// A fragment, if it is in this state.
    fn piece(&self, slot: u16, fragment: u16, state: State) -> Option<Piece> {
        let pdu = self.outgoing.get(usize::from(slot))?.as_ref()?;
        let at = usize::from(fragment);
        (pdu.fragments.get(at)?.state == state).then(|| Piece {
            slot,
            fragment,
            is_again: state == State::Lost,
            is_whole: pdu.fragments.len() == 1,
            is_sealed: is_sealed(pdu.level),
            bytes: pdu.length_of(at),
        })
    }

    /// The next fragment that was not sent, if its PDU may be begun.
    fn next_new(&mut self) -> Option<(u16, u16)> {
        loop {
            let slot = *self.waiting.front()?;
            let tag = self.tag_of(slot);
            let begun = self.begun_bytes;
            let size_now = self.frame_size.now;
            let place = self
                .outgoing
                .get_mut(usize::from(slot))
                .and_then(Option::as_mut);
            let Some(pdu) = place else {
                self.waiting.pop_front();
                continue;
            };
            if !pdu.is_begun() {
                if begun > 0 && begun + pdu.whole_bytes() > size(self.terms.peer_begun_bytes) {
                    return None;
                }
                pdu.cut(
                    payload_bytes(size_now, is_sealed(pdu.level)),
                    tag,
                    &self.mac_out,
                );
                self.begun_bytes += pdu.whole_bytes();
            }
            let left = pdu.fragments.get(pdu.next..).unwrap_or_default();
            let skipped = left
                .iter()
                .take_while(|fragment| fragment.state != State::Waiting)
                .count();
            pdu.next += skipped;
            if pdu.next < pdu.fragments.len() {
                return Some((slot, crate::bytes::short(pdu.next)));
            }
            self.waiting.pop_front();
        }
    }

    /// Frames until the peer is asked for an acknowledgement: a quarter of what may be under way, so that the window
    /// moves on; no few where that is more than a small window, or hardly used: an acknowledgement costs a frame.
    fn ask_every(&self) -> usize {
        let limit = self.limit();
        let is_used = (self.in_flight + 1) * 2 >= limit;
        let is_small = limit < 2 * ASK_FEW;
        (limit / 4).max(if is_used && is_small { 1 } else { ASK_FEW })
    }

    fn write_piece(&mut self, now: Duration, piece: &Piece, draft: &mut Draft<'_>) -> Option<()> {
        let &Piece { slot, fragment, .. } = piece;
        let wants_ack = if piece.is_again {
            self.lost.remove(&(slot, fragment));
            self.counters.retransmitted += 1;
            true
        } else {
            self.unasked += 1;
            self.unasked >= self.ask_every()
        };
        let tag = self.tag_of(slot);
        let order = self.path.next_order;
        let pdu = self
            .outgoing
            .get_mut(usize::from(slot))
            .and_then(Option::as_mut)?;
        let sequence = pdu.sequence;
        let head = FragmentHeader {
            is_sealed: piece.is_sealed,
            generation: generation(sequence),
            wants_ack,
            tag,
            is_last: usize::from(fragment) + 1 == pdu.fragments.len(),
            fragment,
        };
        let state = pdu.fragments.get_mut(usize::from(fragment))?;
        state.state = State::Flying;
        state.order = order;
        state.sent_at = now;
        state.transmissions += 1;
        let sealed = piece
            .is_sealed
            .then_some((pdu.header.opcode, low(sequence)));
        draft.begin(head.encode(), sealed)?;
        for part in pdu.pieces(usize::from(fragment)) {
            draft.put(part)?;
        }
        self.in_flight += 1;
        if self.flights.len() >= FLIGHTS_MAX {
            self.drop_landed();
        }
        self.flights.push_back(Flight {
            order,
            slot,
            sequence,
            fragment,
        });
        if wants_ack {
            self.unasked = 0;
        }
        Some(())
    }
}

/// What has arrived under a tag. All of it: what an entry leaves out has not arrived.
fn entry_of(tag: u16, incoming: &super::Incoming) -> Entry {
    let next = low(incoming.done + 1);
    match &incoming.assembly {
        Some(assembly) => {
            let contiguous = assembly.contiguous();
            Entry {
                tag,
                sequence: next,
                fragment_bytes: assembly.fragment_bytes(),
                contiguous: Some(contiguous),
                bitmap: assembly.bitmap(contiguous),
            }
        }
        None if incoming.is_void => Entry {
            tag,
            sequence: next,
            fragment_bytes: 0,
            contiguous: Some(0),
            bitmap: Vec::new(),
        },
        None => Entry {
            tag,
            sequence: low(incoming.done),
            fragment_bytes: 0,
            contiguous: None,
            bitmap: Vec::new(),
        },
    }
}
