//! Frames that leave, and which of them next.

use std::time::Duration;

use super::{Flight, Link, generation, is_sealed, low, payload_bytes};
use crate::bytes::size;
use crate::control::{Ack, Entry, Probe, TAGS_ASKED_MAX};
use crate::frame::FragmentHeader;
use crate::keys::SEAL_BYTES;
use crate::limits::{CONTROL_MAX_BYTES, FRAME_MIN_BYTES, VERSION};
use crate::outgoing::State;
use crate::pdu::{HEADER_BYTES, Opcode};

/// Transmissions that are remembered, with those of PDUs that are not under way any more; then these are dropped. More
/// than a sender may have under way, so that it does not happen often.
const FLIGHTS_MAX: usize = 16 * 1024;

impl<D: AsRef<[u8]>> Link<D> {
    /// Writes the next frame, from behind its Ethernet header. Gives its length; `None` while there is none to send.
    /// `to` has room for the largest frame.
    pub(crate) fn poll_frame(&mut self, now: Duration, to: &mut [u8]) -> Option<usize> {
        let length = if let Some((opcode, body)) = self.control.pop_front() {
            self.write_control(opcode, &body, 0, to)
        } else if self.ended.is_some() {
            None
        } else if self.owed.now || self.owed.due.is_some_and(|due| due <= now) {
            self.write_ack(now, to)
        } else if self.probe_wanted {
            self.write_probe(now, to)
        } else if let Some(length) = self.write_trial(to) {
            Some(length)
        } else {
            self.write_fragment(now, to)
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
        let head = FragmentHeader {
            is_sealed: true,
            tag: self.terms.first_tag,
            is_last: true,
            ..FragmentHeader::default()
        };
        let [a, b, c] = head.encode();
        let clear = [a, b, c, VERSION, opcode.to_wire()];
        self.sealer.seal(clear, 0, &[&header, body, &padding], to)
    }

    fn write_ack(&mut self, now: Duration, to: &mut [u8]) -> Option<usize> {
        let mut entries = Vec::new();
        let mut left = CONTROL_MAX_BYTES - 12;
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
        let ack = Ack {
            probe: std::mem::take(&mut self.owed.probe),
            window: self.settings.window,
            delay_us: u32::try_from(waited.as_micros()).unwrap_or(u32::MAX),
            entries,
        };
        self.owed.now = !is_all;
        self.owed.due = None;
        self.owed.frames = 0;
        self.write_control(Opcode::Ack, &ack.encode(), 0, to)
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

    /// A fragment: first what was lost, then what is new.
    fn write_fragment(&mut self, now: Duration, to: &mut [u8]) -> Option<usize> {
        let limit = self.limit();
        if self.in_flight >= limit {
            return None;
        }
        while let Some((slot, fragment)) = self.lost.pop_first() {
            let pdu = self
                .outgoing
                .get(usize::from(slot))
                .and_then(Option::as_ref);
            let state = pdu.and_then(|pdu| pdu.fragments.get(usize::from(fragment)));
            let is_lost = state.is_some_and(|state| state.state == State::Lost);
            if is_lost {
                self.counters.retransmitted += 1;
                return self.write(now, slot, fragment, true, to);
            }
        }
        let (slot, fragment) = self.next_new()?;
        self.unasked += 1;
        let wants_ack = self.unasked >= (limit / 4).max(1);
        self.write(now, slot, fragment, wants_ack, to)
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

    fn write(
        &mut self,
        now: Duration,
        slot: u16,
        fragment: u16,
        wants_ack: bool,
        to: &mut [u8],
    ) -> Option<usize> {
        let tag = self.tag_of(slot);
        let order = self.path.next_order;
        let pdu = self
            .outgoing
            .get_mut(usize::from(slot))
            .and_then(Option::as_mut)?;
        let sequence = pdu.sequence;
        let is_last = usize::from(fragment) + 1 == pdu.fragments.len();
        let sealed = is_sealed(pdu.level);
        let head = FragmentHeader {
            is_sealed: sealed,
            generation: generation(sequence),
            wants_ack,
            tag,
            is_last,
            fragment,
        };
        let state = pdu.fragments.get_mut(usize::from(fragment))?;
        state.state = State::Flying;
        state.order = order;
        state.sent_at = now;
        state.transmissions += 1;
        let [a, b, c] = head.encode();
        let pieces = pdu.pieces(usize::from(fragment));
        let length = if sealed {
            let clear = [a, b, c, VERSION, pdu.header.opcode.to_wire()];
            self.sealer.seal(clear, low(sequence), &pieces, to)?
        } else {
            let mut length = 3;
            to.get_mut(..3)?.copy_from_slice(&[a, b, c]);
            for piece in pieces {
                to.get_mut(length..length + piece.len())?
                    .copy_from_slice(piece);
                length += piece.len();
            }
            length
        };
        self.path.next_order += 1;
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
        self.timer_from = now;
        if wants_ack {
            self.unasked = 0;
        }
        Some(length)
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
