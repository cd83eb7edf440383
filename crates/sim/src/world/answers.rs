//! The answers that initiators get, and whether they can be right.

use std::time::Duration;

use iscsi::limits::LOGIN_SEGMENT_MAX_BYTES;
use iscsi::login::InitiatorLoginAction;
use iscsi::pdu::{LogoutResponseCode, TaskManagementFunction, TaskManagementResponse};

use super::known::Rights;
use super::{Event, LoggingIn, World, losses};
use crate::initiator::{Answer, Breach, Heard, Operation, Session, Task, is_refused};
use crate::ledger::{self, Ended, WrongData};
use crate::network::{Arrival, Side};
use crate::trace::Actor;

/// AsyncEvent: the target will drop all connections of the session.
///
/// Spec: RFC 7143 section 11.9.1.
const SESSION_DROP: u8 = 3;

impl World {
    /// Whether the initiator of a link takes what arrives now.
    pub(super) fn initiator_listens(&mut self, link: usize) -> bool {
        let player = &mut self.players[self.lines[link].initiator];
        if player
            .logging_in
            .as_ref()
            .is_some_and(|login| login.link == link)
        {
            return true;
        }
        let Some(session) = &mut player.session else {
            return false;
        };
        session.live_connections().into_iter().any(|index| {
            let connection = session.connection(index);
            connection.is_some_and(|state| state.link == link && !state.is_deaf)
        })
    }

    /// Something arrived at the initiator's side of a link.
    pub(super) fn hear(&mut self, link: usize, arrival: Arrival) -> Result<(), Breach> {
        let initiator = self.lines[link].initiator;
        let player = &mut self.players[initiator];
        if player
            .logging_in
            .as_ref()
            .is_some_and(|login| login.link == link)
        {
            return self.hear_login(initiator, arrival);
        }
        let Some(session) = &mut player.session else {
            return Ok(());
        };
        let mut live = session.live_connections().into_iter();
        let index = live.find(|&index| session.connection(index).is_some_and(|c| c.link == link));
        let Some(index) = index else {
            return Ok(());
        };
        match arrival {
            Arrival::Bytes(bytes) => {
                let heard = session.handle_bytes(index, &bytes)?;
                for heard in heard {
                    self.take_in(initiator, index, heard)?;
                }
                self.plan_bursts(initiator);
                Ok(())
            }
            Arrival::End | Arrival::Reset => self.lose_link(initiator, index, link),
        }
    }

    fn plan_bursts(&mut self, initiator: usize) {
        let player = &mut self.players[initiator];
        let owes = player
            .session
            .as_ref()
            .is_some_and(|s| !s.owing().is_empty());
        if owes && player.has_paid {
            player.has_paid = false;
            let delay = player.prng.pick(&[0, 0, 50, 5_000]).unwrap_or(0);
            let delay = Duration::from_micros(player.prng.within(0, delay));
            self.agenda.after(delay, Event::PayBursts { initiator });
        }
    }

    fn take_in(&mut self, initiator: usize, index: usize, heard: Heard) -> Result<(), Breach> {
        match heard {
            Heard::Ended { task, answer } => {
                let (status, sense) = (answer.status, answer.sense);
                let what = format_args!("{:?} ends: {status:#04x} {sense:x?}", task.operation);
                self.trace.note(Actor::Initiator(initiator), what);
                self.mark(u64::from(status) << 32 | task.handle);
                self.check_answer(initiator, &task, &answer)?;
                self.end(initiator, task, &answer)
            }
            Heard::Managed {
                tag: _,
                function,
                response,
                vanished,
            } => {
                self.note(
                    Actor::Initiator(initiator),
                    format_args!("{function:?} answered {response}"),
                );
                self.mark(u64::from(response));
                self.take_managed(initiator, index, function, response, vanished);
                self.note_managed(initiator, function, response)
            }
            Heard::LoggedOut { code } => {
                self.check_logout(initiator, code)?;
                self.note(Actor::Initiator(initiator), format_args!("is logged out"));
                self.note_logged_out(initiator, code == Some(LogoutResponseCode::Success))
            }
            Heard::ConnectionClosed { code } => {
                self.check_logout(initiator, code)?;
                self.note(
                    Actor::Initiator(initiator),
                    format_args!("has closed connection {index}"),
                );
                if let Some(session) = &mut self.players[initiator].session
                    && let Some(connection) = session.connection(index)
                {
                    self.lines[connection.link].link.shut(Side::Initiator);
                    session.lose_connection(index);
                }
                Ok(())
            }
            Heard::Rejected { reason } => {
                self.note(
                    Actor::Initiator(initiator),
                    format_args!("is rejected, reason {reason:#04x}"),
                );
                Ok(())
            }
            Heard::Pong => Ok(()),
            Heard::Asynchronous {
                event: SESSION_DROP,
            } if self.is_dismissed(self.players[initiator].tsih) => {
                self.note(Actor::Initiator(initiator), format_args!("is dismissed"));
                Ok(())
            }
            Heard::Asynchronous { event } => {
                let detail = format!("event {event} without a reason");
                Err(Breach::new("asynchronous-messages", detail))
            }
        }
    }

    /// What is still at work at the deadline of a logout must have a reason to be.
    fn check_logout(
        &self,
        initiator: usize,
        code: Option<LogoutResponseCode>,
    ) -> Result<(), Breach> {
        let is_dismissed = self.is_dismissed(self.players[initiator].tsih);
        let may_fail = self.scenario.keeps_slowly() || self.scenario.disk_hangs > 0 || is_dismissed;
        match code {
            Some(LogoutResponseCode::Success) => Ok(()),
            Some(LogoutResponseCode::CleanupFailed) if may_fail => Ok(()),
            other => Err(Breach::new("logout", format!("{other:?}"))),
        }
    }

    // ---- commands ----------------------------------------------------------------------------

    /// A status must have a reason in this world.
    fn check_answer(&self, initiator: usize, task: &Task, answer: &Answer) -> Result<(), Breach> {
        let scenario = &self.scenario;
        let session = self.players[initiator].session.as_ref();
        let is_suspect = session.is_some_and(|session| session.is_suspect);
        let takes = scenario.takes > 0 || scenario.changes_rules();
        let swaps = matches!(task.operation, Operation::CompareAndWrite { .. });
        let is_explained = match (answer.status, answer.sense) {
            (0x00, _) => true,
            (0x02, Some((6, 0x29, _))) => true,
            (0x02, Some((5, 0x25, 0) | (7, 0x27, 0))) => takes,
            (0x02, Some((6, 0x2a, 0x01))) => scenario.cache_switches > 0 || takes,
            (0x02, Some((6, 0x3f, 0x0e))) => scenario.changes_rules(),
            // A medium that is prevented from going can neither be ejected nor loaded.
            (0x02, Some((5, 0x53, 0x02))) => {
                let moves = matches!(task.operation, Operation::Eject | Operation::Load);
                moves && scenario.medium_moves > 0
            }
            (0x02, Some((6, 0x2a, 0x03..=0x05))) => scenario.reservations > 0,
            (0x02, Some((6, 0x2f, 0x00))) => scenario.management > 0,
            (0x02, Some((4, 0x44, 0))) if scenario.keep_failures + scenario.keep_conflicts > 0 => {
                true
            }
            // Its state took too long to be made safe, or the change before it did.
            (0x02, Some((4, 0x44, 0))) | (0x08, None) if scenario.keeps_slowly() => true,
            // A change came into force, but not all that had to end has ended.
            (0x02, Some((4, 0x44, 0))) if scenario.disk_hangs > 0 => true,
            // A write that began with the cache on and ends with it off has it flushed.
            (0x02, Some(losses::REPORT)) if scenario.losses > 0 => {
                let is_uncached = scenario.cache_switches > 0 && task.operation.writes();
                task.operation.flushes() || is_uncached
            }
            (0x02, Some((3 | 4, _, _))) => scenario.disk_errors > 0,
            (0x02, Some((2, 0x04, 0x00))) => self.is_refusal_explained(&task.operation),
            (0x02, Some((2, 0x04, 0x01))) => scenario.disk_errors > 0,
            // Stopped on its way: access was refused, or memory was short, for what it still had to do.
            (0x02, Some((0x0b, 0x00, 0x00))) => true,
            (0x02, Some((0x0b, 0x0c | 0x47, _))) => is_suspect,
            (0x02, Some((0x0e, 0x1d, 0x00))) => swaps,
            (0x18, None) => scenario.reservations > 0,
            (0x02, Some((2, 0x3a, 0x00) | (6, 0x28, 0x00))) => {
                scenario.ejects > 0 || scenario.medium_moves > 0
            }
            // Memory is short, or a fence is long in coming.
            (0x28, None) => true,
            (0x08, None) => {
                scenario.disk_hangs > 0 || scenario.management > 0 || scenario.has_many_fences()
            }
            (_, _) => false,
        };
        if is_explained {
            Ok(())
        } else {
            let (status, sense) = (answer.status, answer.sense);
            let detail = format!("{status:#04x} {sense:x?} for {:?}", task.operation);
            Err(Breach::new("every-status-has-a-reason", detail))
        }
    }

    /// Enters an answer into the book.
    fn end(&mut self, initiator: usize, task: Task, answer: &Answer) -> Result<(), Breach> {
        let is_good = answer.status == 0;
        self.good += usize::from(is_good);
        self.check_losses(initiator, &task, answer)?;
        let is_refused = is_refused(answer.status, answer.sense);
        let handle = task.handle;
        self.administrator.loads.remove(&handle);
        if is_good && task.operation.writes() {
            self.check_right_to_write(initiator, handle)?;
        }
        let ended = |durable| match (is_good, is_refused) {
            (true, _) => Ended::Good { durable },
            (false, true) => Ended::Refused,
            (false, false) => Ended::Uncertain,
        };
        // The cache was off, and nobody wanted it on, from the sending to the answer.
        let sent_uncached = self.sent_uncached.remove(&handle);
        let is_uncached = sent_uncached.is_some() && sent_uncached == self.cache_off;
        let always_durable = !self.scenario.volatile_cache || is_uncached;
        match task.operation {
            Operation::Read { .. } => {
                let data = is_good.then_some(answer.data.as_slice());
                self.ledger.end_read(handle, data).map_err(wrong)?;
            }
            Operation::Write { fua, .. } => {
                self.ledger.end_write(handle, ended(fua || always_durable));
            }
            Operation::Zero { .. } => self.ledger.end_write(handle, ended(always_durable)),
            Operation::CompareAndWrite { block, old, .. } => {
                let found = ledger::content(old, block..block + 1);
                let found = is_good.then_some(found.as_slice());
                self.ledger.end_read(handle, found).map_err(wrong)?;
                self.ledger.end_write(handle, ended(always_durable));
                let counts = is_good && old != 0 && !self.losses.may_have_undone(handle);
                if counts && !self.swapped.insert((block, old)) {
                    let detail = format!("block {block}: two found write {old} and replaced it");
                    return Err(Breach::new("compare-and-write-is-atomic", detail));
                }
            }
            // What was written before an eject is on the medium when that is out.
            Operation::Flush | Operation::Eject => self.ledger.end_flush(handle, is_good),
            Operation::SetWriteCache { on } => {
                if !on {
                    self.ledger.end_flush(handle, is_good);
                }
                self.cache_switches -= 1;
                let is_settled =
                    self.sole_switch == Some(handle) && self.resets == 0 && !self.reset_at_large;
                if is_good && !on && is_settled {
                    self.cache_times += 1;
                    self.cache_off = Some(self.cache_times);
                }
            }
            Operation::TestUnitReady
            | Operation::Inquiry
            | Operation::Reserve
            | Operation::Release
            | Operation::Load
            | Operation::Prevent { .. }
            | Operation::Register { .. }
            | Operation::PersistentReserve { .. }
            | Operation::PreemptAndAbort { .. }
            | Operation::Clear { .. } => {}
        }
        Ok(())
    }

    fn take_managed(
        &mut self,
        initiator: usize,
        index: usize,
        function: TaskManagementFunction,
        response: u8,
        vanished: Vec<Task>,
    ) {
        if function == TaskManagementFunction::LogicalUnitReset {
            self.resets = self.resets.saturating_sub(1);
        }
        let (over, on_their_way): (Vec<Task>, Vec<Task>) = vanished
            .into_iter()
            .partition(|task| task.connection == index);
        over.iter().for_each(|task| self.forget(task));
        let Some(session) = &mut self.players[initiator].session else {
            return;
        };
        // An answer may be on its way on another connection, where nothing keeps it behind this
        // one.
        on_their_way
            .into_iter()
            .for_each(|task| session.take_back(task));
        if response == TaskManagementResponse::Rejected.code() {
            // The store did not end them in time; they will end, but not be answered.
            session.allow_vanishing();
        }
    }

    /// A task ends without an answer, and nothing of it is left.
    pub(super) fn forget(&mut self, task: &Task) {
        self.administrator.loads.remove(&task.handle);
        self.losses.note_unanswered(task.handle);
        match task.operation {
            Operation::Read { .. } => drop(self.ledger.end_read(task.handle, None)),
            Operation::Write { .. } | Operation::Zero { .. } => {
                self.ledger.end_write(task.handle, Ended::Uncertain);
            }
            Operation::CompareAndWrite { .. } => {
                drop(self.ledger.end_read(task.handle, None));
                self.ledger.end_write(task.handle, Ended::Uncertain);
            }
            Operation::Flush | Operation::Eject | Operation::SetWriteCache { .. } => {
                self.ledger.end_flush(task.handle, false);
            }
            Operation::TestUnitReady
            | Operation::Inquiry
            | Operation::Reserve
            | Operation::Release
            | Operation::Load
            | Operation::Prevent { .. }
            | Operation::Register { .. }
            | Operation::PersistentReserve { .. }
            | Operation::PreemptAndAbort { .. }
            | Operation::Clear { .. } => {}
        }
    }

    // ---- links and sessions ------------------------------------------------------------------

    /// A link is gone: at ErrorRecoveryLevel 0 the session is, too.
    fn lose_link(&mut self, initiator: usize, index: usize, link: usize) -> Result<(), Breach> {
        let now = self.agenda.now();
        let is_dismissed = self.is_dismissed(self.players[initiator].tsih);
        let player = &mut self.players[initiator];
        let Some(session) = &mut player.session else {
            return Ok(());
        };
        let others = session.live_connections().into_iter();
        let others: Vec<usize> = others
            .filter_map(|index| session.connection(index).map(|state| state.link))
            .collect();
        let is_excused = session.is_suspect
            || session.is_leaving
            || is_dismissed
            || others.iter().any(|&link| self.lines[link].is_excused)
            || self.scenario.disk_hangs > 0;
        self.trace.note(
            Actor::Initiator(initiator),
            format_args!("loses link {link} at {now:?}"),
        );
        if !is_excused {
            let detail = format!("link {link} of connection {index} was closed");
            return Err(Breach::new("legal-initiators-are-not-hung-up-on", detail));
        }
        self.drop_session(initiator);
        Ok(())
    }

    /// The initiator gives its session up, whatever is under way.
    pub(super) fn drop_session(&mut self, initiator: usize) {
        let player = &mut self.players[initiator];
        let Some(mut session) = player.session.take() else {
            return;
        };
        for index in session.live_connections() {
            if let Some(connection) = session.connection(index) {
                let line = &mut self.lines[connection.link];
                line.is_excused = true;
                line.link.shut(Side::Initiator);
                line.link.reset();
            }
        }
        if session.awaits_reset() {
            self.reset_at_large = true;
            self.resets = 0;
        }
        // A login that would have joined is of no use any more.
        if let Some(login) = player.logging_in.take() {
            self.lines[login.link].is_excused = true;
            self.lines[login.link].link.reset();
        }
        let tasks = session.take_tasks();
        self.losses.note_lost_session(initiator);
        player.lost.push((player.tsih, tasks));
        player.rights = Rights::default();
        player.resets = 0;
    }

    /// Commands of lost sessions that the target has dropped have had all the effect they will.
    pub(super) fn settle_lost(&mut self) {
        for initiator in 0..self.players.len() {
            let lost = std::mem::take(&mut self.players[initiator].lost);
            for (tsih, tasks) in lost {
                if self.host.has_tasks_of(tsih) {
                    self.players[initiator].lost.push((tsih, tasks));
                } else {
                    tasks.iter().for_each(|task| self.forget(task));
                }
            }
        }
    }

    // ---- logins ------------------------------------------------------------------------------

    fn hear_login(&mut self, initiator: usize, arrival: Arrival) -> Result<(), Breach> {
        let Some(login) = &mut self.players[initiator].logging_in else {
            return Ok(());
        };
        let link = login.link;
        let Arrival::Bytes(bytes) = arrival else {
            self.players[initiator].logging_in = None;
            self.note(
                Actor::Initiator(initiator),
                format_args!("loses link {link} during login"),
            );
            // A login may be turned away while a session changes hands.
            return Ok(());
        };
        login.buffer.push(&bytes);
        loop {
            let Some(login) = &mut self.players[initiator].logging_in else {
                return Ok(());
            };
            match login.buffer.next_pdu(LOGIN_SEGMENT_MAX_BYTES, false, false) {
                Ok(Some(pdu)) => {
                    login.login.handle_pdu(&pdu.header, &pdu.data);
                    self.follow_login(initiator);
                    if self.players[initiator].logging_in.is_none() {
                        // If there was a session of its port, it is over.
                        self.fear_lost_sessions(initiator)?;
                        // What came behind the login belongs to the session.
                        return self.hear(link, Arrival::Bytes(Vec::new()));
                    }
                }
                Ok(None) => return Ok(()),
                Err(error) => return Err(Breach::new("framing", error.to_string())),
            }
        }
    }

    /// Does what the login machine says.
    pub(super) fn follow_login(&mut self, initiator: usize) {
        let now = self.agenda.now();
        let player = &mut self.players[initiator];
        while let Some(logging_in) = &mut player.logging_in
            && let Some(action) = logging_in.login.poll_action()
        {
            let link = logging_in.link;
            match action {
                InitiatorLoginAction::Send(pdu) => {
                    let bytes = pdu.to_bytes(false, false);
                    // A login fits in the window of every network here, or waits for ever, as a
                    // peer that stops reading does.
                    self.lines[link].link.send_all(Side::Initiator, &bytes, now);
                }
                InitiatorLoginAction::Complete(done) => {
                    let Some(LoggingIn { buffer, cid, .. }) = player.logging_in.take() else {
                        return;
                    };
                    let unread = buffer.into_unread();
                    let window = (done.exp_cmd_sn, done.max_cmd_sn);
                    let is_new = player.session.is_none();
                    player.tsih = done.tsih;
                    let session = player.session.get_or_insert_with(|| {
                        Session::new(done.session.clone(), done.cmd_sn, window)
                    });
                    let connection = done.connection;
                    session.add_connection(link, cid, connection, done.exp_stat_sn, &unread);
                    self.trace.note(
                        Actor::Initiator(initiator),
                        format_args!(
                            "is in, tsih {}{}",
                            done.tsih.0,
                            if is_new { "" } else { ", one more connection" }
                        ),
                    );
                }
                InitiatorLoginAction::Failed(error) => {
                    player.logging_in = None;
                    self.lines[link].link.reset();
                    self.trace.note(
                        Actor::Initiator(initiator),
                        format_args!("cannot log in: {error}"),
                    );
                }
            }
        }
    }
}

fn wrong(found: WrongData) -> Breach {
    let WrongData { lba, got, possible } = found;
    let detail = format!("block {lba} holds {got}, possible are {possible:?}");
    Breach::new("reads-give-what-was-written", detail)
}
