//! Carrying: bytes between sockets and network, letters, requests for the disk, alarms.

use std::time::Duration;

use crate::disk::Fate;
use crate::initiator::Breach;
use crate::network::{Arrival, Side};
use crate::trace::Actor;

use super::{Event, World};

/// The longest time of a letter to a slow core. The four letters of a refusal take less than an abort
/// waits for them (2 s), so that whoever is answered at a deadline can rely on it.
const SLOW_MAIL_MAX: Duration = Duration::from_millis(450);

/// How long a request hangs that is to come back for nobody: not for ever, or nothing could be checked in the end.
const NEVER_SECONDS: u64 = 40;

impl World {
    /// How long a request hangs. It comes back after a while; often after those who waited have given up, now and
    /// then not before everyone wants to finish.
    fn hang_time(&mut self) -> Duration {
        let now = self.agenda.now();
        if now < self.outage_until {
            let jitter = Duration::from_micros(self.disk_prng.within(0, 50_000));
            return self.outage_until - now + jitter;
        }
        let hang_max = self.scenario.disk_hang_max.as_secs();
        Duration::from_secs(match self.disk_prng.chance(100) {
            true => NEVER_SECONDS,
            false => self.disk_prng.within(1, hang_max),
        })
    }

    /// Puts down everything that follows from the last event.
    pub(super) fn carry(&mut self) -> Result<(), Breach> {
        let now = self.agenda.now();
        self.carry_bytes(now);
        for (from, to, letter) in self.host.take_letters() {
            let delay = self.draw_mail_delay(to);
            let cores = self.scenario.target.cores;
            let last = &mut self.last_mail[from * cores + to];
            *last = (*last).max(now + delay);
            let when = *last;
            if self.trace.is_on() {
                let text = format!("{letter:?}");
                let short: String = text.chars().take(100).collect();
                self.note(Actor::Core(from), format_args!("to core {to}: {short}"));
            }
            let letter = Box::new(letter);
            self.agenda.at(when, Event::Deliver { core: to, letter });
        }
        for request in self.disk.take_arrivals() {
            let fate = self.draw_fate();
            let delay = self.draw_delay(Who::Disk);
            if self.trace.is_on() {
                let what = self.disk.describe(request);
                self.note(Actor::Disk, format_args!("{request:?} {what}"));
            }
            if fate == Fate::Hangs {
                self.hanging.push(request);
                self.note(Actor::Disk, format_args!("{request:?} hangs"));
                let after = self.hang_time();
                let fate = Fate::Good;
                let event = Event::Disk { request, fate };
                self.agenda.after(after, event);
            } else {
                self.agenda.after(delay, Event::Disk { request, fate });
            }
        }
        self.begin_saves();
        let closed = self.host.take_closed();
        for link in closed {
            self.note(Actor::Link(link), format_args!("closed by the target"));
            self.lines[link].is_closed_by_target = true;
            self.lines[link].link.shut(Side::Target);
        }
        self.schedule_arrivals(now);
        let due = self.host.poll_timeout();
        if due != self.alarm.1 {
            self.alarm = (self.alarm.0 + 1, due);
            if let Some(due) = due {
                let number = self.alarm.0;
                self.agenda.at(due, Event::Alarm { number });
            }
        }
        Ok(())
    }

    fn carry_bytes(&mut self, now: Duration) {
        for link in self.host.links_with_output() {
            let line = &mut self.lines[link];
            let room = line.link.room(Side::Target);
            let bytes = self.host.take_output(link, room, now);
            if line.link.send(Side::Target, &bytes, now).is_some() && !bytes.is_empty() {
                self.note(Actor::Link(link), format_args!("< {} bytes", bytes.len()));
            }
        }
        for player in 0..self.players.len() {
            let Some(session) = &mut self.players[player].session else {
                continue;
            };
            for index in session.live_connections() {
                let Some(connection) = session.connection(index) else {
                    continue;
                };
                let line = &mut self.lines[connection.link];
                let room = line.link.room(Side::Initiator);
                let len = connection.outbound.len().min(room);
                let bytes: Vec<u8> = connection.outbound.drain(..len).collect();
                if line.is_closed_by_target {
                    continue;
                }
                if line.link.send(Side::Initiator, &bytes, now).is_some() && len > 0 {
                    let link = connection.link;
                    self.trace
                        .note(Actor::Link(link), format_args!("> {len} bytes"));
                }
            }
        }
    }

    fn schedule_arrivals(&mut self, now: Duration) {
        for link in 0..self.lines.len() {
            for side in [Side::Initiator, Side::Target] {
                let wants = match side {
                    Side::Initiator => self.initiator_listens(link),
                    Side::Target => {
                        !self.lines[link].is_closed_by_target && self.host.appetite(link) > 0
                    }
                };
                let line = &mut self.lines[link];
                let place = usize::from(side == Side::Target);
                let Some(when) = line.link.next_arrival(side, now).filter(|_| wants) else {
                    continue;
                };
                if line.scheduled[place].is_none_or(|other| other > when || other < now) {
                    line.scheduled[place] = Some(when);
                    self.agenda.at(when, Event::Arrive { link, side });
                }
            }
        }
    }

    /// Something may have arrived.
    pub(super) fn arrive(&mut self, link: usize, side: Side) -> Result<(), Breach> {
        let now = self.agenda.now();
        let place = usize::from(side == Side::Target);
        self.lines[link].scheduled[place] = None;
        match side {
            Side::Target => {
                let len = self.host.appetite(link);
                if len == 0 || self.lines[link].is_closed_by_target {
                    return Ok(());
                }
                if let Some(arrival) = self.lines[link].link.receive(side, len, now) {
                    if !matches!(arrival, Arrival::Bytes(_)) {
                        self.note(Actor::Link(link), format_args!("target sees {arrival:?}"));
                    }
                    self.host.arrive(link, arrival, now);
                }
                Ok(())
            }
            Side::Initiator => {
                if !self.initiator_listens(link) {
                    return Ok(());
                }
                match self.lines[link].link.receive(side, 65_536, now) {
                    Some(arrival) => self.hear(link, arrival),
                    None => Ok(()),
                }
            }
        }
    }

    fn draw_fate(&mut self) -> Fate {
        let prng = &mut self.disk_prng;
        if self.is_finishing {
            return Fate::Good;
        }
        if self.agenda.now() < self.outage_until || prng.chance(self.scenario.disk_hangs) {
            return Fate::Hangs;
        }
        if !prng.chance(self.scenario.disk_errors) {
            return Fate::Good;
        }
        match prng.below(8) {
            0 => Fate::Twice,
            1 => Fate::Away,
            2..=4 => Fate::Torn,
            _ => Fate::Failed,
        }
    }

    fn draw_mail_delay(&mut self, to: usize) -> Duration {
        if self.scenario.slow_core == Some(to) && !self.is_finishing {
            let longest = u64::try_from(SLOW_MAIL_MAX.as_micros()).unwrap_or(u64::MAX);
            Duration::from_micros(self.mail_prng.within(0, longest))
        } else {
            self.draw_delay(Who::Mail)
        }
    }

    pub(super) fn draw_delay(&mut self, who: Who) -> Duration {
        let (prng, longest) = match who {
            Who::Mail => (&mut self.mail_prng, self.scenario.mail_delay_max),
            Who::Disk => (&mut self.disk_prng, self.scenario.disk_delay_max),
            Who::Keeper => (&mut self.keeper_prng, self.scenario.keep_delay_max),
        };
        let micros = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(prng.within(0, micros))
    }
}

/// Whose delay.
#[derive(Clone, Copy)]
pub(super) enum Who {
    Mail,
    Disk,
    Keeper,
}
