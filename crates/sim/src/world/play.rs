//! What the initiators do, and what befalls them.

use std::time::Duration;

use engine::StateAuthority as _;
use iscsi::SerialNumber;
use iscsi::framing::PduBuffer;
use iscsi::login::{InitiatorAuth, InitiatorLoginConfig, LoginInitiator};
use iscsi::pdu::{Cid, InitiatorTaskTag, Isid, TaskManagementFunction, Tsih};

use super::{Event, Line, LoggingIn, World};
use crate::host::Host;
use crate::initiator::{Operation, Session};
use crate::network::{Link, Side};
use crate::plan::{TARGET, initiator_name, target_name};
use crate::prng::Prng;
use crate::trace::Actor;

/// Times of 1000 that an initiator waits long while a request hangs, and that it does something
/// about it.
const PATIENT: u32 = 250;
const IMPATIENT: u32 = 200;

impl World {
    /// One action of an initiator, and a date for its next one.
    pub(super) fn act(&mut self, initiator: usize) {
        if self.is_finishing {
            return;
        }
        if self.actions_left == 0 {
            self.agenda.after(Duration::ZERO, Event::Finish);
            return;
        }
        self.actions_left -= 1;
        self.actions += 1;
        let prng = &mut self.players[initiator].prng;
        let pause = prng.pick(self.scenario.pauses).unwrap_or(0);
        let mut pause = Duration::from_micros(prng.within(0, pause));
        // Long enough for those who wait to give up, as nothing else here takes.
        let is_hanging = !self.hanging.is_empty();
        if is_hanging && self.patience_prng.chance(PATIENT) {
            pause = Duration::from_millis(self.patience_prng.within(100, 4_000));
        }
        self.agenda.after(pause, Event::Act { initiator });
        let scenario = &self.scenario;
        if prng.chance(scenario.crashes) {
            self.crash();
            return;
        }
        self.lose_cache_now_and_then();
        if self.past_prng.chance(self.scenario.outages) {
            self.begin_outage();
        }
        if self.past_prng.chance(self.scenario.takes) {
            self.administer(initiator);
        }
        self.administrate(initiator);
        let player = &mut self.players[initiator];
        let Some(session) = &mut player.session else {
            if player.logging_in.is_none() {
                self.log_in(initiator, false);
            }
            return;
        };
        let live = session.open_connections();
        let Some(connection) = player.prng.pick(&live) else {
            return;
        };
        if is_hanging && self.patience_prng.chance(IMPATIENT) {
            self.lose_patience(initiator, connection);
        } else if player.prng.chance(self.scenario.network_faults) {
            self.break_something(initiator, connection);
        } else if player.prng.chance(self.scenario.management) {
            self.manage(initiator, connection);
        } else if initiator == 0 && player.prng.chance(100) && !self.scenario.mischief.is_empty() {
            self.misbehave(initiator, connection);
        } else {
            match player.prng.below(100) {
                0..3 => {
                    session.ping(connection, &mut player.prng);
                    self.note(Actor::Initiator(initiator), format_args!("pings"));
                }
                3..6 if player.logging_in.is_none() => self.log_in(initiator, true),
                6 => self.log_out(initiator),
                7..12 if session.log_out_connection(connection) => {
                    self.note(
                        Actor::Initiator(initiator),
                        format_args!("closes connection {connection}"),
                    );
                }
                _ => self.command(initiator, connection),
            }
        }
    }

    /// The disk takes requests and does nothing for a while.
    fn begin_outage(&mut self) {
        let millis = self.past_prng.within(500, 9_000);
        self.outage_until = self.agenda.now() + Duration::from_millis(millis);
        self.note(Actor::Disk, format_args!("does nothing for {millis} ms"));
    }

    /// Something hangs, and the initiator does what real ones do then.
    fn lose_patience(&mut self, initiator: usize, connection: usize) {
        match self.patience_prng.below(4) {
            0 => self.drop_session(initiator),
            1 if self.players[initiator].logging_in.is_none() => self.log_in(initiator, true),
            _ if self.scenario.management > 0 => self.manage(initiator, connection),
            _ => {}
        }
    }

    // ---- commands ----------------------------------------------------------------------------

    fn command(&mut self, initiator: usize, connection: usize) {
        let burst = self.players[initiator].prng.size(1, 4);
        for _ in 0..burst {
            let operation = self.draw_operation(initiator);
            self.send_command(initiator, connection, operation);
        }
    }

    fn send_command(&mut self, initiator: usize, connection: usize, operation: Operation) {
        let may_send = |session: &mut Session| session.may_send();
        if !self.players[initiator]
            .session
            .as_mut()
            .is_some_and(may_send)
        {
            return;
        }
        let handle = self.new_handle();
        if let Some(time) = self.cache_off {
            self.sent_uncached.insert(handle, time);
        }
        match &operation {
            Operation::Read { blocks, room } => {
                let seen = blocks.start..blocks.start + (*room).min(blocks.len());
                self.ledger.begin_read(handle, seen);
            }
            Operation::Write { blocks, id, .. } => {
                self.ledger.begin_write(handle, *id, blocks.clone());
            }
            Operation::Zero { blocks, .. } => self.ledger.begin_write(handle, 0, blocks.clone()),
            Operation::CompareAndWrite { block, id, .. } => {
                self.ledger.begin_read(handle, *block..*block + 1);
                self.ledger.begin_write(handle, *id, *block..*block + 1);
            }
            Operation::Flush | Operation::Eject => self.ledger.begin_flush(handle),
            Operation::SetWriteCache { on } => {
                self.cache_off = None;
                self.sole_switch = (self.cache_switches == 0).then_some(handle);
                self.cache_switches += 1;
                if !on {
                    self.ledger.begin_flush(handle);
                }
            }
            Operation::Load => self.administrator.note_load(handle),
            Operation::TestUnitReady
            | Operation::Inquiry
            | Operation::Reserve
            | Operation::Release
            | Operation::Prevent { .. }
            | Operation::Register { .. }
            | Operation::PersistentReserve { .. }
            | Operation::PreemptAndAbort { .. }
            | Operation::Clear { .. } => {}
        }
        self.note_for_losses(initiator, handle, &operation);
        let player = &mut self.players[initiator];
        let Some(session) = &mut player.session else {
            return;
        };
        let tag = session.command(connection, operation.clone(), handle, &mut player.prng);
        if self.resets > 0 || self.reset_at_large {
            session.allow_vanishing();
        }
        self.note(
            Actor::Initiator(initiator),
            format_args!("task {tag}: {operation:?}"),
        );
    }

    fn draw_operation(&mut self, initiator: usize) -> Operation {
        let fresh = self.next_handle;
        let player = &mut self.players[initiator];
        let prng = &mut player.prng;
        let all = self.scenario.blocks;
        if prng.chance(self.scenario.reservations) {
            return draw_reservation(player.key, self.scenario.kept_registrations, prng);
        }
        // Seeds without it play as they did before there was any.
        if self.scenario.ejects > 0 && prng.chance(self.scenario.ejects) {
            let is_out = prng.chance(400);
            return if is_out {
                Operation::Eject
            } else {
                Operation::Load
            };
        }
        if self.scenario.medium_moves > 0 && prng.chance(30) {
            let on = prng.chance(600);
            return Operation::Prevent { on };
        }
        if prng.chance(self.scenario.cache_switches) {
            let on = self.scenario.volatile_cache && prng.chance(500);
            return Operation::SetWriteCache { on };
        }
        if prng.chance(self.scenario.contests) {
            let block = self.scenario.contested_block(prng);
            return Operation::CompareAndWrite {
                block,
                old: self.ledger.guess(block),
                id: fresh,
            };
        }
        let start = prng.size(0, all - 1);
        let longest = if prng.chance(100) { all } else { 8 };
        let blocks = start..start + prng.size(1, (all - start).min(longest));
        match prng.below(100) {
            0..40 => {
                let len = blocks.len();
                let room = if prng.chance(50) {
                    prng.size(1, len + 2)
                } else {
                    len
                };
                Operation::Read { blocks, room }
            }
            40..80 => Operation::Write {
                blocks,
                id: fresh,
                fua: prng.chance(150),
            },
            80..86 => Operation::Zero {
                blocks,
                unmap: prng.chance(500),
            },
            86..92 => {
                let block = prng.size(0, all.min(4) - 1);
                Operation::CompareAndWrite {
                    block,
                    old: self.ledger.guess(block),
                    id: fresh,
                }
            }
            92..96 => Operation::Flush,
            96..98 => Operation::Inquiry,
            _ => Operation::TestUnitReady,
        }
    }

    /// Sends data that R2Ts have asked for.
    pub(super) fn pay_bursts(&mut self, initiator: usize) {
        let player = &mut self.players[initiator];
        player.has_paid = true;
        let Some(session) = &mut player.session else {
            return;
        };
        for tag in session.owing() {
            session.send_bursts(tag, &mut player.prng);
        }
    }

    fn manage(&mut self, initiator: usize, connection: usize) {
        let player = &mut self.players[initiator];
        let Some(session) = &mut player.session else {
            return;
        };
        let tags: Vec<(u32, usize)> = session
            .tasks()
            .map(|(tag, task)| (tag, task.connection))
            .collect();
        let (function, connection, tag) = match (player.prng.below(10), player.prng.pick(&tags)) {
            (0..6, Some((tag, own))) => (TaskManagementFunction::AbortTask, own, Some(tag)),
            (6..8, _) => (TaskManagementFunction::AbortTaskSet, connection, None),
            (8, _) => (TaskManagementFunction::ClearTaskSet, connection, None),
            (_, _) => (TaskManagementFunction::LogicalUnitReset, connection, None),
        };
        session.manage(connection, function, tag);
        self.note_managing(initiator, function);
        self.note(
            Actor::Initiator(initiator),
            format_args!("{function:?} {tag:?}"),
        );
        if function == TaskManagementFunction::LogicalUnitReset {
            self.resets += 1;
            // The cache goes back to what was saved.
            self.cache_off = None;
            for player in &mut self.players {
                if let Some(session) = &mut player.session {
                    session.allow_vanishing();
                }
            }
        }
    }

    fn misbehave(&mut self, initiator: usize, connection: usize) {
        let player = &mut self.players[initiator];
        let (Some(session), Some(mischief)) = (
            &mut player.session,
            player.prng.pick(&self.scenario.mischief),
        ) else {
            return;
        };
        if session.misbehave(connection, mischief, &mut player.prng) {
            self.note(
                Actor::Initiator(initiator),
                format_args!("does wrong: {mischief:?}"),
            );
        }
    }

    // ---- sessions ----------------------------------------------------------------------------

    /// Connects and begins to log in, for a new session or into the one there is.
    pub(super) fn log_in(&mut self, initiator: usize, joining: bool) {
        let now = self.agenda.now();
        let player = &mut self.players[initiator];
        let mut cid = Cid(player.next_cid);
        // One that joins now and then takes the place of another connection, which goes, and the session with it.
        if joining
            && player.prng.chance(50)
            && let Some(session) = &mut player.session
            && session.may_join()
            && let Some(index) = player.prng.pick(&session.live_connections())
            && let Some(connection) = session.connection(index)
        {
            cid = connection.cid;
            self.lines[connection.link].is_excused = true;
        }
        let (tsih, cmd_sn) = match &player.session {
            Some(session) if joining && session.may_join() => (player.tsih, session.next_cmd_sn()),
            Some(_) => return,
            None => {
                let first = player.prng.pick(&[0, 1, u32::MAX - 3]).unwrap_or(0);
                (Tsih::NONE, SerialNumber(first))
            }
        };
        player.next_cid = player.next_cid.wrapping_add(1);
        let config = InitiatorLoginConfig {
            initiator_name: initiator_name(initiator),
            initiator_alias: None,
            target_name: Some(target_name(TARGET)),
            isid: Isid([0x80, 0, 0, 0, 0, u8::try_from(initiator).unwrap_or(0)]),
            tsih,
            cid,
            cmd_sn,
            initiator_task_tag: InitiatorTaskTag(0),
            auth: InitiatorAuth::None {
                skip_stage: player.prng.chance(500),
            },
            preferences: self.scenario.offers[initiator].clone(),
        };
        let random = std::array::from_fn(|_| player.prng.next_u64().to_be_bytes()[0]);
        let timeout = Duration::from_secs(30);
        let Ok(login) = LoginInitiator::new(config, now, timeout, random) else {
            return;
        };
        let link = self.connect(initiator);
        self.players[initiator].logging_in = Some(LoggingIn {
            login,
            link,
            buffer: PduBuffer::new(),
            cid,
        });
        self.note(
            Actor::Initiator(initiator),
            format_args!("logs in on link {link}, tsih {}", tsih.0),
        );
        self.follow_login(initiator);
    }

    fn connect(&mut self, initiator: usize) -> usize {
        let now = self.agenda.now();
        let link = self.lines.len();
        let prng = Prng::stream(self.network_prng.next_u64(), "link");
        self.lines.push(Line {
            link: Link::new(self.scenario.network.clone(), prng),
            initiator,
            is_excused: false,
            is_closed_by_target: false,
            scheduled: [None; 2],
        });
        self.host.accept(link, now);
        link
    }

    pub(super) fn log_out(&mut self, initiator: usize) {
        let player = &mut self.players[initiator];
        if let Some(session) = &mut player.session
            && !session.is_leaving
            && let Some(connection) = player.prng.pick(&session.open_connections())
        {
            session.log_out(connection);
            self.note(Actor::Initiator(initiator), format_args!("logs out"));
        }
    }

    // ---- faults ------------------------------------------------------------------------------

    fn break_something(&mut self, initiator: usize, connection: usize) {
        let now = self.agenda.now();
        let player = &mut self.players[initiator];
        let Some(session) = &mut player.session else {
            return;
        };
        let Some(state) = session.connection(connection) else {
            return;
        };
        let line = &mut self.lines[state.link];
        let link = state.link;
        match player.prng.below(4) {
            0 => {
                line.is_excused = true;
                line.link.reset();
                self.note(Actor::Link(link), format_args!("reset"));
            }
            1 => {
                line.is_excused = true;
                line.link.shut(Side::Initiator);
                self.note(Actor::Link(link), format_args!("half closed"));
            }
            2 => {
                // Shorter or longer than the target's patience.
                let millis = player.prng.within(1, 15_000);
                line.is_excused |= millis > 4_000;
                line.link.stall(now + Duration::from_millis(millis));
                self.note(Actor::Link(link), format_args!("stalls for {millis} ms"));
            }
            _ => {
                let millis = player.prng.within(1, 15_000);
                line.is_excused |= millis > 4_000;
                state.is_deaf = true;
                let after = Duration::from_millis(millis);
                self.agenda.after(after, Event::Listen { link });
                self.note(Actor::Link(link), format_args!("deaf for {millis} ms"));
            }
        }
    }

    pub(super) fn listen(&mut self, link: usize) {
        let player = &mut self.players[self.lines[link].initiator];
        if let Some(session) = &mut player.session {
            for index in session.live_connections() {
                if let Some(connection) = session.connection(index)
                    && connection.link == link
                {
                    connection.is_deaf = false;
                }
            }
        }
    }

    /// The machine of the target stops and starts again.
    fn crash(&mut self) {
        self.note(Actor::World, format_args!("the target's machine crashes"));
        // The authority of this world always answers.
        let saved = self.authority.load().ok().flatten();
        for line in &mut self.lines {
            line.is_excused = true;
            line.link.reset();
        }
        self.disk.crash();
        self.hanging.clear();
        self.boots += 1;
        let prng = Prng::stream(self.seed, &format!("host {}", self.boots));
        self.host = Host::new(&self.scenario.target, &[(self.disk.clone(), saved)], &prng);
        self.agenda.strike(|event| {
            matches!(
                event,
                Event::Deliver { .. }
                    | Event::Disk { .. }
                    | Event::Save { .. }
                    | Event::Saved { .. }
                    | Event::Alarm { .. }
            )
        });
        self.alarm.1 = None;
        self.cache_off = None;
        self.cache_switches = 0;
        self.sent_uncached.clear();
        self.resets = 0;
        self.reset_at_large = false;
        self.swapped.clear();
        self.losses.restart();
        self.forget_the_past();
        self.saving.restart();
        for initiator in 0..self.players.len() {
            let player = &mut self.players[initiator];
            player.logging_in = None;
            player.lost.clear();
            player.session = None;
        }
        self.ledger.crash();
    }
}

/// A command about reservations, of an initiator with this key.
fn draw_reservation(key: u64, kept_registrations: u32, prng: &mut Prng) -> Operation {
    let aptpl = prng.chance(kept_registrations);
    let kind = prng.pick(&[1, 3, 5, 6, 7, 8]).unwrap_or(1);
    match prng.below(6) {
        0 => Operation::Register { key, aptpl },
        1 => Operation::Register { key: 0, aptpl },
        2 => Operation::PersistentReserve { key, kind },
        3 => Operation::Clear { key },
        4 => Operation::Reserve,
        _ => Operation::Release,
    }
}
