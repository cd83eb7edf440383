//! TCP connections that are slow, short, stuck, half closed or gone.
//!
//! A [`Link`] has two [`Side`]s. Bytes given to one side arrive at the other in order, in pieces
//! and after a delay. It knows nothing of PDUs, so faults fall on any byte.

use std::collections::VecDeque;
use std::time::Duration;

use crate::prng::Prng;

/// An end of a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// Where the initiator is.
    Initiator,
    /// Where the target is.
    Target,
}

impl Side {
    /// The other end.
    pub const fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Target,
            Self::Target => Self::Initiator,
        }
    }
}

/// How a network behaves; times are drawn up to these.
#[derive(Clone, Debug)]
pub struct NetworkHabits {
    /// The longest way of a piece.
    pub delay_max: Duration,
    /// The largest piece, in bytes: one receive never brings more.
    pub piece_max_bytes: usize,
    /// How much may be on the way in one direction, in bytes: more is not taken.
    pub window_bytes: usize,
}

/// What a receive brings.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Arrival {
    /// Bytes, at least one.
    Bytes(Vec<u8>),
    /// The peer sends no more.
    End,
    /// The connection is gone.
    Reset,
}

/// One direction of a link.
#[derive(Debug, Default)]
struct Pipe {
    on_the_way: VecDeque<(Duration, u8)>,
    last_arrival: Duration,
    is_shut: bool,
}

/// One TCP connection.
#[derive(Debug)]
pub struct Link {
    habits: NetworkHabits,
    prng: Prng,
    to_target: Pipe,
    to_initiator: Pipe,
    is_reset: bool,
    stuck_until: Duration,
    /// Which side can send nothing any more, because the other one takes nothing.
    closed_window: Option<Side>,
}

impl Link {
    /// A connection that has just been made.
    pub fn new(habits: NetworkHabits, prng: Prng) -> Self {
        Self {
            habits,
            prng,
            to_target: Pipe::default(),
            to_initiator: Pipe::default(),
            is_reset: false,
            stuck_until: Duration::ZERO,
            closed_window: None,
        }
    }

    const fn pipe(&mut self, receiver: Side) -> &mut Pipe {
        match receiver {
            Side::Initiator => &mut self.to_initiator,
            Side::Target => &mut self.to_target,
        }
    }

    /// Takes bytes from `from`, as many as fit, and returns how many and when the last of them
    /// arrives. `None`: the connection is gone.
    pub fn send(&mut self, from: Side, bytes: &[u8], now: Duration) -> Option<(usize, Duration)> {
        if self.is_reset {
            return None;
        }
        let window = self.habits.window_bytes;
        let room = window.saturating_sub(self.pipe(from.other()).on_the_way.len());
        let taken = bytes.len().min(room);
        let (now_or_later, delay_max) = (now.max(self.stuck_until), self.habits.delay_max);
        let mut sent = bytes.iter().take(taken).copied();
        let mut arrives = self.pipe(from.other()).last_arrival;
        while sent.len() > 0 {
            let piece = self.prng.size(1, self.habits.piece_max_bytes);
            let micros = u64::try_from(delay_max.as_micros()).unwrap_or(u64::MAX);
            let delay = Duration::from_micros(self.prng.within(0, micros));
            // In order: a piece does not overtake the one before.
            arrives = arrives.max(now_or_later + delay);
            let pipe = self.pipe(from.other());
            pipe.on_the_way
                .extend(sent.by_ref().take(piece).map(|byte| (arrives, byte)));
        }
        self.pipe(from.other()).last_arrival = arrives;
        Some((taken, arrives))
    }

    /// The same for bytes that are taken whole, whatever the window says: a socket's own buffer.
    pub fn send_all(&mut self, from: Side, bytes: &[u8], now: Duration) {
        let window = std::mem::replace(&mut self.habits.window_bytes, usize::MAX);
        self.send(from, bytes, now);
        self.habits.window_bytes = window;
    }

    /// What has arrived at a side, up to `len` bytes of it; `None` when nothing has.
    pub fn receive(&mut self, at: Side, len: usize, now: Duration) -> Option<Arrival> {
        if self.is_reset {
            return Some(Arrival::Reset);
        }
        let piece = self.habits.piece_max_bytes.min(len);
        let stuck = now < self.stuck_until;
        let short = self.prng.size(1, piece.max(1));
        let pipe = self.pipe(at);
        if pipe.on_the_way.is_empty() && pipe.is_shut {
            return Some(Arrival::End);
        }
        let mut bytes = Vec::new();
        while bytes.len() < short
            && !stuck
            && let Some(&(arrived, byte)) = pipe.on_the_way.front()
            && arrived <= now
        {
            bytes.push(byte);
            pipe.on_the_way.pop_front();
        }
        (!bytes.is_empty()).then_some(Arrival::Bytes(bytes))
    }

    /// When there is next something to receive at a side, if it is known.
    pub fn next_arrival(&mut self, at: Side, now: Duration) -> Option<Duration> {
        if self.is_reset {
            return Some(now);
        }
        let stuck_until = self.stuck_until;
        let pipe = self.pipe(at);
        match pipe.on_the_way.front() {
            Some(&(arrives, _)) => Some(arrives.max(stuck_until)),
            None if pipe.is_shut => Some(now),
            None => None,
        }
    }

    /// From now on a side can send nothing: the other one takes nothing.
    pub const fn close_window(&mut self, from: Side) {
        self.closed_window = Some(from);
    }

    /// How much a side may send now, in bytes.
    pub fn room(&mut self, from: Side) -> usize {
        if self.closed_window == Some(from) {
            return 0;
        }
        let window = self.habits.window_bytes;
        window.saturating_sub(self.pipe(from.other()).on_the_way.len())
    }

    /// `from` sends no more; it may go on receiving.
    pub fn shut(&mut self, from: Side) {
        self.pipe(from.other()).is_shut = true;
    }

    /// The connection is gone for both sides at once, with everything on the way. Bytes that one
    /// side has received before count as received, so this cuts between any two bytes.
    pub fn reset(&mut self) {
        self.is_reset = true;
        self.to_target.on_the_way.clear();
        self.to_initiator.on_the_way.clear();
    }

    /// True when nobody gets anything through any more.
    pub const fn is_reset(&self) -> bool {
        self.is_reset
    }

    /// Nothing moves until then.
    pub fn stall(&mut self, until: Duration) {
        self.stuck_until = self.stuck_until.max(until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(piece_max_bytes: usize) -> Link {
        let habits = NetworkHabits {
            delay_max: Duration::from_micros(100),
            piece_max_bytes,
            window_bytes: 1000,
        };
        Link::new(habits, Prng::new(3))
    }

    #[test]
    fn bytes_arrive_in_order_however_they_are_cut() {
        for piece in [1, 7, 1000] {
            let mut link = link(piece);
            let sent: Vec<u8> = (0..200).collect();
            let (taken, arrives) = link.send(Side::Initiator, &sent, Duration::ZERO).unwrap();
            assert_eq!(taken, 200);
            let mut got = Vec::new();
            while let Some(Arrival::Bytes(bytes)) = link.receive(Side::Target, 64, arrives) {
                assert!((1..=piece.min(64)).contains(&bytes.len()));
                got.extend(bytes);
            }
            assert_eq!(got, sent);
            assert_eq!(link.receive(Side::Initiator, 64, arrives), None);
        }
    }

    #[test]
    fn nothing_arrives_before_its_time_or_while_stalled() {
        let mut link = link(1000);
        link.stall(Duration::from_micros(500));
        let (_, arrives) = link.send(Side::Target, b"abc", Duration::ZERO).unwrap();
        assert!(arrives >= Duration::from_micros(500));
        let early = Duration::from_micros(499);
        assert_eq!(link.receive(Side::Initiator, 64, early), None);
        assert_eq!(link.next_arrival(Side::Initiator, early), Some(arrives));
        assert!(link.receive(Side::Initiator, 64, arrives).is_some());
    }

    #[test]
    fn what_does_not_fit_is_not_taken() {
        let mut link = link(1000);
        let (taken, arrives) = link.send(Side::Target, &[7; 1500], Duration::ZERO).unwrap();
        assert_eq!(taken, 1000);
        assert_eq!(link.room(Side::Target), 0);
        while link.receive(Side::Initiator, 1000, arrives).is_some() {}
        assert_eq!(link.room(Side::Target), 1000);
    }

    #[test]
    fn a_half_closed_side_still_receives() {
        let mut link = link(1000);
        link.send(Side::Initiator, b"bye", Duration::ZERO).unwrap();
        link.shut(Side::Initiator);
        let later = Duration::from_secs(1);
        assert!(matches!(
            link.receive(Side::Target, 64, later),
            Some(Arrival::Bytes(_))
        ));
        while let Some(Arrival::Bytes(_)) = link.receive(Side::Target, 64, later) {}
        assert_eq!(link.receive(Side::Target, 64, later), Some(Arrival::End));
        assert!(link.send(Side::Target, b"wait", later).is_some());
    }

    #[test]
    fn a_reset_reaches_both_sides_and_loses_what_is_on_the_way() {
        let mut link = link(1000);
        link.send(Side::Initiator, b"lost", Duration::ZERO).unwrap();
        link.reset();
        for side in [Side::Initiator, Side::Target] {
            assert_eq!(link.receive(side, 64, Duration::ZERO), Some(Arrival::Reset));
            assert_eq!(link.send(side, b"x", Duration::ZERO), None);
        }
    }
}
