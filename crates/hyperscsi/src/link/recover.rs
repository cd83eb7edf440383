//! Acknowledgements, what is lost, timers.

use std::time::Duration;

use super::{EndReason, Flight, Link, Retransmit, low, payload_bytes};
use crate::control::{Ack, Entry};
use crate::limits::KEEP_ALIVE;
use crate::outgoing::{Fragment, State};
use crate::planted::{self, Bug};

/// Probes that are answered while no large fragment arrives, until frames become smaller.
const BARREN_MAX: u8 = 2;
/// Round trips in which large frames are lost and none arrives, until frames become smaller. So many losses in a row
/// are no accident; and where small frames always arrive, no probe would ask.
const STARVED_MAX: u8 = 8;
/// How often a size of frames is tried.
const TRIES_MAX: u8 = 3;
/// A size between the largest and the base, for networks of that kind.
const FRAME_MIDDLE_BYTES: u16 = 4096;
/// How long a size that did not get through is not tried again.
const TRIAL_PAUSE: Duration = Duration::from_secs(60);
/// How often a peer may say that it has not what it had: each time costs work, and sending again what it says. What is
/// left out of that comes again, at the latest when the peer is asked.
const TAKEN_BACK_EVERY: Duration = Duration::from_millis(1);

/// What an acknowledgement brought.
#[derive(Default)]
struct News {
    /// Fragments that have arrived.
    count: u64,
    /// The newest of them that was sent once: its number, and when.
    newest: Option<(u64, Duration)>,
    /// One of them was in a frame that is longer than the base.
    large: bool,
    /// The peer may say that it has not what it had, and does.
    may_take_back: bool,
    takes_back: bool,
}

impl<D: AsRef<[u8]>> Link<D> {
    /// Of one that a newer one has overtaken holds only what has arrived: the newer one does not say that again.
    pub(super) fn handle_ack(&mut self, now: Duration, ack: &Ack, is_newest: bool) {
        if is_newest {
            self.peer_window = ack.window;
        }
        let before = self.in_flight;
        let last = self.taken_back_at;
        let mut news = News {
            may_take_back: is_newest && last.is_none_or(|last| now >= last + TAKEN_BACK_EVERY),
            ..News::default()
        };
        let mut last_tag = 0;
        for entry in &ack.entries {
            // One for each tag: so the work is bounded by what is under way.
            if entry.tag > last_tag {
                last_tag = entry.tag;
                self.handle_entry(now, entry, &mut news);
            }
        }
        if news.takes_back {
            self.taken_back_at = Some(now);
        }
        let probe = self
            .probe
            .filter(|&(id, _, _)| ack.probe != 0 && id == ack.probe);
        if let Some((_, order, sent_at)) = probe {
            self.probe = None;
            self.path.arrived_order = self.path.arrived_order.max(Some(order));
            news.newest = news.newest.max(Some((order, sent_at)));
            self.path.backoff = 0;
        }
        if let Some((order, sent_at)) = news.newest {
            let took = now.saturating_sub(sent_at).saturating_sub(ack.delay());
            self.path.sample(now, order, took);
        }
        if news.count > 0 {
            self.path.backoff = 0;
            self.path.arrive(news.count, before);
        }
        if news.count > 0 || probe.is_some() {
            self.timer_from = now;
        }
        self.handle_trial(now, ack.probe);
        if news.large {
            self.frame_size.barren = 0;
            self.frame_size.starved = 0;
        }
        self.detect_losses(now);
        if let Some((_, order, _)) = probe
            && is_newest
            && news.count == 0
            && self.misses_large(order)
        {
            self.note_barren(now);
        }
    }

    fn handle_entry(&mut self, now: Duration, entry: &Entry, news: &mut News) {
        let Some(slot) = self.slot_of(entry.tag) else {
            return;
        };
        let min_rtt = self.path.min_rtt();
        let Some(pdu) = self
            .outgoing
            .get_mut(usize::from(slot))
            .and_then(Option::as_mut)
        else {
            return;
        };
        let is_whole = entry.contiguous.is_none();
        let size = usize::from(entry.fragment_bytes);
        // Of fragments of another size none counts: the receiver has to begin again.
        let counts_alike = is_whole || size == 0 || size == pdu.fragment_bytes();
        if low(pdu.sequence) != entry.sequence || !pdu.is_begun() {
            return;
        }
        for (at, fragment) in (0_u16..).zip(&mut pdu.fragments) {
            match (fragment.state, counts_alike && entry.has(at)) {
                (State::Flying | State::Lost, true) => {
                    if fragment.state == State::Flying {
                        self.in_flight -= 1;
                        self.path.arrived_order = self.path.arrived_order.max(Some(fragment.order));
                    }
                    if fragment.transmissions == 1 {
                        news.newest = news.newest.max(Some((fragment.order, fragment.sent_at)));
                    } else if fragment.state == State::Lost
                        || now.saturating_sub(fragment.sent_at) < min_rtt
                    {
                        self.counters.spurious += 1;
                        self.path.note_spurious(fragment.order);
                    }
                    fragment.state = State::Arrived;
                    news.count += 1;
                    news.large |= fragment.is_large;
                }
                // What had arrived was wrong, and was dropped.
                (State::Arrived, false) if news.may_take_back && !planted::has(Bug::Void) => {
                    news.takes_back = true;
                    fragment.state = State::Lost;
                    self.lost.insert((slot, at));
                }
                (State::Waiting, _)
                | (State::Flying | State::Lost, false)
                | (State::Arrived, _) => {}
            }
        }
        if is_whole {
            self.drop_outgoing(slot);
            return;
        }
        let is_all = pdu.fragments.iter().all(|at| at.state == State::Arrived);
        if is_all && news.may_take_back && !planted::has(Bug::Void) {
            news.takes_back = true;
            // The peer has all and is not content: what it has is not what was sent.
            for (at, fragment) in (0_u16..).zip(&mut pdu.fragments) {
                fragment.state = State::Lost;
                self.lost.insert((slot, at));
            }
        }
    }

    /// Finds fragments that others have overtaken by too much, or too long ago. Only those that were sent before the
    /// newest that has arrived are looked at: transmissions are remembered in their order.
    fn detect_losses(&mut self, now: Duration) {
        self.loss_at = None;
        let Some(arrived) = self.path.arrived_order else {
            return;
        };
        let delay = self.path.loss_delay();
        let mut all_lost = false;
        let mut newest_lost = None;
        let mut kept = std::mem::take(&mut self.kept);
        while let Some(&flight) = self.flights.front()
            && (flight.order <= arrived || all_lost)
        {
            self.flights.pop_front();
            let Some(fragment) = self.flying(&flight) else {
                continue;
            };
            let due = fragment.sent_at + delay;
            let is_lost =
                flight.order < arrived && (self.path.is_overtaken(flight.order) || due <= now);
            if is_lost || all_lost {
                let is_starved = is_lost && fragment.is_large;
                if let Some(fragment) = self.flying_mut(&flight) {
                    fragment.state = State::Lost;
                }
                self.lost.insert((flight.slot, flight.fragment));
                self.in_flight -= 1;
                // What was in one frame is one loss.
                if newest_lost.replace(flight.order) != Some(flight.order) {
                    self.path.lose(flight.order);
                }
                if is_starved && flight.order >= self.frame_size.starved_from {
                    self.frame_size.starved_from = self.path.next_order;
                    self.frame_size.starved = self.frame_size.starved.saturating_add(1);
                }
                all_lost |= self.settings.retransmit == Retransmit::Window;
                continue;
            }
            if flight.order < arrived {
                self.loss_at = Some(self.loss_at.map_or(due, |at| at.min(due)));
            }
            kept.push(flight);
        }
        for flight in kept.drain(..).rev() {
            self.flights.push_front(flight);
        }
        self.kept = kept;
        if self.frame_size.starved >= STARVED_MAX {
            self.frame_size.starved = 0;
            self.fall_back(now);
        }
    }

    /// The fragment of a transmission that is under way.
    fn flying(&self, flight: &Flight) -> Option<&Fragment> {
        let pdu = self.outgoing.get(usize::from(flight.slot))?.as_ref()?;
        let fragment = pdu.fragments.get(usize::from(flight.fragment))?;
        let is_it = pdu.sequence == flight.sequence
            && fragment.state == State::Flying
            && fragment.order == flight.order;
        is_it.then_some(fragment)
    }

    pub(super) fn flying_mut(&mut self, flight: &Flight) -> Option<&mut Fragment> {
        let pdu = self.outgoing.get_mut(usize::from(flight.slot))?.as_mut()?;
        pdu.fragments.get_mut(usize::from(flight.fragment))
    }

    /// Drops what is remembered of transmissions that are not under way any more.
    pub(super) fn drop_landed(&mut self) {
        let flights = std::mem::take(&mut self.flights);
        let flying = flights.into_iter();
        self.flights = flying
            .filter(|flight| self.flying(flight).is_some())
            .collect();
    }

    /// A fragment was sent before this transmission in a frame that not every path carries, and has not arrived.
    fn misses_large(&self, before: u64) -> bool {
        let fragments = self
            .outgoing
            .iter()
            .flatten()
            .flat_map(|pdu| &pdu.fragments);
        fragments
            .filter(|fragment| matches!(fragment.state, State::Flying | State::Lost))
            .any(|fragment| fragment.is_large && fragment.order < before)
    }

    /// The peer answers, but what is sent does not arrive: are frames too large for the path?
    fn note_barren(&mut self, now: Duration) {
        let size = &mut self.frame_size;
        if size.now <= size.base {
            return;
        }
        size.barren = size.barren.saturating_add(1);
        if size.barren >= BARREN_MAX {
            self.fall_back(now);
        }
    }

    /// Frames become as small as every path carries.
    fn fall_back(&mut self, now: Duration) {
        let size = &mut self.frame_size;
        if size.now <= size.base || planted::has(Bug::FrameSize) {
            return;
        }
        size.barren = 0;
        size.starved = 0;
        size.now = size.base;
        size.trial = None;
        size.next_trial = Some(now + TRIAL_PAUSE);
        self.counters.fallbacks += 1;
        self.cut_again();
    }

    /// All that is begun is cut into frames of the size of now.
    fn cut_again(&mut self) {
        for slot in 0..self.terms.slots {
            let tag = self.tag_of(slot);
            let size = self.frame_size.now;
            let place = self
                .outgoing
                .get_mut(usize::from(slot))
                .and_then(Option::as_mut);
            let Some(pdu) = place.filter(|pdu| pdu.is_begun()) else {
                continue;
            };
            let payload = payload_bytes(size, super::is_sealed(pdu.level));
            if pdu.fragment_bytes() > usize::from(payload) {
                self.in_flight -= pdu.flying();
                pdu.cut(payload, tag, &self.mac_out);
                self.lost.retain(|&(of, _)| of != slot);
                self.wait(slot);
            }
        }
    }

    /// The peer has answered a long probe: frames may be as long.
    fn handle_trial(&mut self, now: Duration, answered: u32) {
        if let Some((size, id, _)) = self.frame_size.trial
            && id != 0
            && id == answered
        {
            self.frame_size.now = size;
            self.frame_size.trial = None;
            self.frame_size.next_trial = (size < self.frame_size.max).then_some(now + TRIAL_PAUSE);
        }
    }

    /// When [`Self::handle_deadline`] wants to be called; earlier does no harm.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        if self.ended.is_some() {
            return None;
        }
        [
            Some(self.last_heard + self.silence()),
            self.owed.due,
            self.loss_at,
            self.probe_at(),
            self.frame_size.next_trial,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// When the peer is asked what has arrived, or whether it is there.
    fn probe_at(&self) -> Option<Duration> {
        if self.probe_wanted || planted::has(Bug::Probe) {
            return None;
        }
        if self.is_idle() && self.probe.is_none() {
            return Some(self.last_heard.max(self.timer_from) + KEEP_ALIVE);
        }
        Some(self.timer_from + self.path.probe_delay())
    }

    /// Time has passed.
    pub(crate) fn handle_deadline(&mut self, now: Duration) {
        if now >= self.last_heard + self.silence() {
            self.end(EndReason::Silent);
        }
        if self.loss_at.is_some_and(|at| at <= now) {
            self.detect_losses(now);
        }
        if self.probe_at().is_some_and(|at| at <= now) {
            if self.probe.is_some() {
                self.path.backoff += 1;
            }
            self.probe_wanted = true;
            self.timer_from = now;
        }
        if self.frame_size.next_trial.is_some_and(|at| at <= now) {
            self.next_trial(now);
        }
    }

    /// Tries the next size of frames, or the same again.
    fn next_trial(&mut self, now: Duration) {
        let size = &mut self.frame_size;
        size.next_trial = None;
        let next = match size.trial {
            None => size.max,
            Some((tried, _, tries)) if tries < TRIES_MAX => tried,
            Some((tried, _, _)) if tried > FRAME_MIDDLE_BYTES => FRAME_MIDDLE_BYTES,
            Some(_) => 0,
        };
        let tries = size
            .trial
            .filter(|trial| trial.0 == next)
            .map_or(0, |trial| trial.2);
        size.trial = (next > size.now).then_some((next, 0, tries));
        if size.trial.is_some() {
            size.next_trial = Some(now + self.path.probe_delay().max(Duration::from_millis(50)));
        } else if size.now < size.max {
            size.next_trial = Some(now + TRIAL_PAUSE);
        }
    }
}
