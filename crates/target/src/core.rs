//! One core: a thread with a reactor, the sessions that live on it, its view of every unit.
//!
//! A turn takes what the reactor brings, carries every command as far as it gets, and sends what
//! became ready. Nothing here waits; what another core must do is asked for by letter.

use std::collections::{HashMap, VecDeque};
use std::iter;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use engine::{RequestNumber, Ticket};
use iscsi::pdu::Tsih;
use memory::Pool;
use reactor::mail::{Mailbox, Post};
use reactor::{Event, Reactor, Wait as ReactorWait};

use crate::counters::Tally;
use crate::front::Front;
use crate::grant::Leaving;
use crate::handle::Receipt;
use crate::identity::SessionId;
use crate::letter::Letter;
use crate::lines::LineLimits;
use crate::logins::LoginLog;
use crate::plan::{ColdResets, Settings, UnitIndex};
use crate::running::{Request, RequestKey, Running, TaskKey, Wait, WaitKey};
use crate::session::{Connection, ConnectionKey, SessionEntry, SessionKey};
use crate::stop::LastFlushes;
use crate::token::Purpose;
use crate::trace::Trace;
use crate::unit::{Owned, Unit};
use crate::unproved::SharedLists;
use crate::watcher::Watcher;
use engine::deadlines::Deadlines;
use engine::table::{ByUnit, Table};

/// How often sessions are looked at for silence, and stores for a changed size.
const TICK: Duration = Duration::from_secs(1);

/// With so many sessions and more it pays to give their memory back.
const SESSIONS_MANY: usize = 256;

/// The kernel gives some twenty events at a time: with so many in a turn there are more.
const BUSY_EVENTS: usize = 16;

/// How many letters to itself a core reads at a time.
const OWN_LETTERS_MAX: usize = 1024;

/// What is left of the time that an end may take for the end of the process itself.
const END_SLACK: Duration = Duration::from_millis(200);

/// Everything one core has. The fields are shared by the modules of this crate, each of which
/// adds the methods of one concern.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) index: usize,
    pub(crate) settings: Settings,
    pub(crate) posts: Vec<Post<Letter>>,
    pub(crate) mailbox: Mailbox<Letter>,
    /// Letters of this core to itself.
    pub(crate) own_letters: VecDeque<Letter>,
    /// The most sessions and logins since memory was given back.
    pub(crate) sessions_most: usize,
    /// Output on the heap that waits for peers, in bytes.
    pub(crate) output_heap: usize,
    /// Connections whose peers are gone, oldest first; one may have been closed meanwhile.
    pub(crate) lost: VecDeque<ConnectionKey>,
    pub(crate) reactor: Reactor,
    pub(crate) pool: Pool,
    /// All units, by index.
    pub(crate) units: ByUnit<Unit>,
    /// What this core owns of them.
    pub(crate) owned: ByUnit<Option<Owned>>,
    /// Units that are to go, each with the receipt of who waits for that.
    pub(crate) retiring: Vec<(UnitIndex, Receipt)>,
    /// Units of this core that go when their last flush is over.
    pub(crate) forgetting: Vec<(UnitIndex, Receipt)>,
    /// Nexuses on their way out of a unit.
    pub(crate) leaving: Table<Leaving>,
    /// Changes that take from a nexus the right to write.
    pub(crate) narrowing: Table<Receipt>,
    pub(crate) sessions: Table<SessionEntry>,
    pub(crate) by_id: HashMap<SessionId, SessionKey>,
    /// As the front desk names sessions.
    pub(crate) by_tsih: HashMap<Tsih, SessionKey>,
    pub(crate) connections: Table<Connection>,
    pub(crate) tasks: Table<Running>,
    pub(crate) waits: Table<Wait>,
    pub(crate) wait_deadlines: Deadlines<Wait>,
    /// Questions to other cores.
    pub(crate) requests: Table<Request>,
    /// Of those that ask for a fence.
    pub(crate) fence_deadlines: Deadlines<Request>,
    /// Connections with output that is not being sent.
    pub(crate) dirty: Vec<ConnectionKey>,
    /// Room for connections whose output is held; empty between turns.
    pub(crate) held: Vec<ConnectionKey>,
    /// When held output must go.
    pub(crate) hold_until: Option<Duration>,
    /// Connections whose output was sent after receiving had waited for that.
    pub(crate) throttled: Vec<ConnectionKey>,
    /// Sessions in which something happened while one of their tasks was carried on.
    pub(crate) eventful: Vec<SessionKey>,
    /// Tasks that older ones of their nexus let start now.
    pub(crate) startable: VecDeque<TaskKey>,
    /// Tasks that wait for memory, first come first.
    pub(crate) starved: VecDeque<TaskKey>,
    /// Sessions that wait for memory for Data-Out.
    pub(crate) starved_sessions: Vec<SessionKey>,
    /// Those stand before the tasks that wait for memory.
    pub(crate) sessions_first: bool,
    /// Sessions with tasks that wait because they have their share.
    pub(crate) sharing: VecDeque<SessionKey>,
    /// The sessions' windows are kept small because memory is short.
    pub(crate) is_short_of_memory: bool,
    pub(crate) tally: Tally,
    pub(crate) login_log: LoginLog,
    pub(crate) line_limits: LineLimits,
    /// Sockets in full-feature phase, on all cores.
    pub(crate) connection_count: Arc<AtomicUsize>,
    pub(crate) lists: Arc<SharedLists>,
    pub(crate) watcher: Arc<dyn Watcher>,
    pub(crate) traces: Vec<Arc<Trace>>,
    pub(crate) cold_resets: Arc<ColdResets>,
    /// Accepts and logs in; one core has it.
    pub(crate) front: Option<Front>,
    pub(crate) next_tick: Duration,
    /// The next unit whose store is looked at.
    pub(crate) next_probe: UnitIndex,
    /// Set by [`Letter::Stop`]: when sessions that are left are ended.
    pub(crate) stop_at: Option<Duration>,
    /// It has told the others that it has no session left.
    pub(crate) is_quiet: bool,
    /// How many cores have told that.
    pub(crate) quiet_cores: usize,
    pub(crate) is_flushed: bool,
    pub(crate) last_flushes: LastFlushes,
}

/// Changes wait and are kept for this many times what an abort may take.
pub(crate) const CHANGE_PATIENCE: u32 = 3;

/// A question as others name it.
pub(crate) const fn request_number(key: RequestKey) -> RequestNumber {
    RequestNumber(key.to_bits())
}

/// The question that a ticket of this core stands for.
pub(crate) const fn request_key(ticket: Ticket) -> RequestKey {
    RequestKey::from_bits(ticket.request.0)
}

impl Core {
    /// Serves until it is told to stop.
    pub(crate) fn run(&mut self) -> Result<(), reactor::TurnError> {
        self.reactor.watch(&self.mailbox, Purpose::Mail.token());
        let mut events = Vec::new();
        while !self.is_finished() {
            let wait = self.next_wait();
            self.reactor.turn(wait, &mut events)?;
            let is_busy = events.len() >= BUSY_EVENTS;
            for event in events.drain(..) {
                self.handle_event(event);
                self.start_waiting();
            }
            self.lose_some(is_busy);
            self.handle_own_letters();
            self.handle_memory();
            self.handle_time();
            self.start_waiting();
            self.handle_own_letters();
            self.check_retiring();
            self.flush_output();
            self.count_turn();
        }
        self.line_limits.log_left_out(self.index);
        Ok(())
    }

    fn next_wait(&mut self) -> ReactorWait {
        if !self.own_letters.is_empty() || !self.lost.is_empty() {
            return ReactorWait::Poll;
        }
        let waits = &self.waits;
        let waits = self
            .wait_deadlines
            .next(waits.len(), |key| Some(waits.get(key)?.deadline));
        let (requests, patience) = (&self.requests, self.settings.fence_timeout);
        let fences = self.fence_deadlines.next(requests.len(), |key| {
            Some(requests.get(key)?.fence_wanted_since()? + patience)
        });
        let logins = self.front.as_mut().and_then(Front::next_deadline);
        let tick = Some(self.next_tick);
        let stop = self.stop_at.and_then(|asked| {
            let moments = [asked, self.flush_at(asked), self.end_at(asked)];
            let now = self.reactor.now();
            moments.into_iter().find(|moment| now < *moment)
        });
        let flushes = self.last_flushes.deadline();
        let all = [waits, fences, logins, tick, stop, self.hold_until, flushes];
        let soonest = all.into_iter().flatten().min();
        soonest.map_or(ReactorWait::Forever, ReactorWait::Until)
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Received { token, result } => match Purpose::of(token) {
                Some(Purpose::Receive(key)) => self.handle_received(key, result),
                Some(Purpose::LoginReceive(key)) => self.handle_login_bytes(key, result),
                other => unexpected("received", other),
            },
            Event::Sent {
                token,
                message,
                result,
            } => match Purpose::of(token) {
                Some(Purpose::Send(key)) => self.handle_sent(key, message, result),
                Some(Purpose::LoginSend(key)) => self.handle_login_sent(key, message, result),
                other => unexpected("sent", other),
            },
            Event::ReceivedExact {
                token,
                buffer,
                result,
            } => match Purpose::of(token) {
                Some(Purpose::Receive(key)) => self.handle_received_exact(key, buffer, result),
                other => unexpected("received exactly", other),
            },
            Event::Store {
                token,
                operation,
                result,
            } => match Purpose::of(token) {
                Some(Purpose::Task(key)) => self.handle_ring_result(key, operation, result),
                Some(Purpose::Flush(unit)) => self.handle_flush_result(unit, operation, result),
                Some(Purpose::Probe(unit)) => self.handle_probed(unit, operation, result),
                other => unexpected("store operation", other),
            },
            Event::Helper { token, result } => match Purpose::of(token) {
                Some(Purpose::Task(key)) => self.handle_helper_result(key, result),
                Some(Purpose::Keep(unit)) => self.handle_kept(unit, result.is_ok()),
                Some(Purpose::Flush(unit)) => self.handle_flush_helped(unit, result),
                other => unexpected("helper work", other),
            },
            Event::Accepted { token, result } => match Purpose::of(token) {
                Some(Purpose::Accept(portal)) => self.handle_accepted(portal, result),
                other => unexpected("accepted", other),
            },
            Event::Mail { .. } => {
                for letter in self.mailbox.take() {
                    // None overtakes what was sent before it: a session that is adopted late would
                    // not be seen by the change that takes its rights.
                    if self.own_letters.is_empty() {
                        self.handle_letter(letter);
                    } else {
                        self.own_letters.push_back(letter);
                    }
                }
            }
        }
    }

    /// Sends a letter; one to itself is read before the turn ends, unless there are very many.
    pub(crate) fn post(&mut self, core: usize, letter: Letter) {
        if core == self.index {
            self.own_letters.push_back(letter);
        } else if let Some(post) = self.posts.get(core) {
            post.push(letter);
        }
    }

    /// Sends the same to every core.
    pub(crate) fn post_to_all(&mut self, letter: impl Fn() -> Letter) {
        for core in 0..self.posts.len() {
            self.post(core, letter());
        }
    }

    /// Notes a question; the answer comes with the ticket.
    pub(crate) fn open_request(&mut self, request: Request) -> Ticket {
        Ticket {
            core: self.index,
            request: request_number(self.requests.insert(request)),
        }
    }

    pub(crate) fn request_mut(&mut self, ticket: Ticket) -> Option<&mut Request> {
        self.requests.get_mut(request_key(ticket))
    }

    pub(crate) fn close_request(&mut self, ticket: Ticket) {
        if self.requests.remove(request_key(ticket)).is_some() && self.requests.is_empty() {
            // A login asks one question for each of its units, and every turn walks the whole table,
            // vacant places too.
            self.requests.forget_places();
        }
    }

    /// Those that are left are read in the next turn, which begins at once: the end of a thousand
    /// sessions leaves room for the pings and commands of the others.
    fn handle_own_letters(&mut self) {
        for _ in 0..OWN_LETTERS_MAX {
            let Some(letter) = self.own_letters.pop_front() else {
                break;
            };
            self.handle_letter(letter);
            self.start_waiting();
        }
    }

    fn handle_letter(&mut self, letter: Letter) {
        match letter {
            Letter::Go => self.handle_go(),
            Letter::Adopt(adoption) => self.handle_adoption(*adoption),
            Letter::EndSession { tsih } => match self.by_tsih.get(&tsih) {
                Some(&key) => self.end_session(key, "another session of the same port begins"),
                None => self.post(crate::FRONT_CORE, Letter::SessionEnded { tsih }),
            },
            Letter::EndDiscovery { tsih } => {
                if let Some(&key) = self.by_tsih.get(&tsih) {
                    self.end_session(key, "displaced by other discovery sessions");
                }
            }
            Letter::SessionEnded { tsih } => self.handle_session_ended(tsih),
            Letter::ToOwner { unit, message } => self.handle_to_owner(unit, message),
            Letter::FromOwner { unit, message } => self.handle_from_owner(unit, message),
            Letter::EndTarget { target } => self.end_target(target),
            Letter::Quiet => self.quiet_cores += 1,
            Letter::AddUnits { units, report } => self.handle_add_units(&units, &report),
            Letter::RetireUnits { units, receipt } => self.handle_retire_units(&units, &receipt),
            Letter::ForgetUnits { units, receipt } => self.handle_forget_units(&units, &receipt),
            Letter::DescribeUnits { units, receipt } => {
                self.handle_describe_units(&units);
                drop(receipt);
            }
            Letter::SetAccess { access, receipt } => {
                self.handle_set_access(*access);
                drop(receipt);
            }
            // Whoever asked may have lost patience.
            Letter::Report(report) => drop(report.send(self.report_sessions())),
            Letter::Grant { grant, receipt } => self.handle_grant(*grant, &receipt),
            Letter::Dismiss {
                session,
                reason,
                receipt,
            } => self.dismiss(session, reason, receipt),
            Letter::SizeChanged { unit, receipt } => self.handle_size_changed(unit, receipt),
            Letter::StartTrace { trace, receipt } => {
                self.handle_start_trace(trace);
                drop(receipt);
            }
            Letter::StopTrace { trace, receipt } => {
                self.handle_stop_trace(&trace);
                drop(receipt);
            }
            Letter::Stop => self.handle_stop(),
        }
    }

    /// The core that owns a unit.
    pub(crate) fn owner_of(&self, unit: UnitIndex) -> usize {
        unit.as_usize() % self.posts.len()
    }

    // ---- time --------------------------------------------------------------------------------

    fn handle_time(&mut self) {
        let now = self.reactor.now();
        let waits = &self.waits;
        let of = |key| Some(waits.get(key)?.deadline);
        let due: Vec<WaitKey> = iter::from_fn(|| self.wait_deadlines.due(now, of)).collect();
        for wait in due {
            self.give_up_waiting(wait);
        }
        self.handle_fence_timeouts(now);
        self.handle_reset_timeouts(now);
        self.handle_login_timeouts(now);
        self.retry_last_flushes(now);
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.tick(now);
        }
        if self.stop_at.is_some_and(|deadline| now >= deadline) {
            self.stop_now();
        }
    }

    fn tick(&mut self, now: Duration) {
        let due = |entry: &SessionEntry| entry.session.poll_timeout().is_some_and(|at| at <= now);
        let sessions: Vec<SessionKey> = self
            .sessions
            .iter()
            .filter(|(_, entry)| due(entry))
            .map(|(key, _)| key)
            .collect();
        for key in sessions {
            if let Some(entry) = self.sessions.get_mut(key) {
                entry.session.handle_timeout(now);
            }
            self.handle_session_events(key);
            self.mark_session_dirty(key);
        }
        self.end_dismissed(now);
        self.end_old_discovery(now);
        self.probe_some();
        self.end_overdue(now);
        self.end_overdue_waiting(now);
        self.end_overdue_changes(now);
        self.tell_hanging(now);
        self.give_back();
        self.line_limits.log_left_out(self.index);
    }

    /// After most of many sessions have gone, the memory that they had goes back to the system.
    fn give_back(&mut self) {
        let logins = self.front.as_ref().map_or(0, Front::logins);
        let sessions = self.sessions.len() + logins;
        self.sessions_most = self.sessions_most.max(sessions);
        let is_over = sessions < self.sessions_most / 4 && self.lost.is_empty();
        if self.sessions_most < SESSIONS_MANY || !is_over {
            return;
        }
        self.sessions_most = sessions;
        self.sessions.shrink_to_fit();
        self.connections.shrink_to_fit();
        self.by_id.shrink_to_fit();
        self.by_tsih.shrink_to_fit();
        self.waits.shrink_to_fit();
        self.requests.shrink_to_fit();
        self.own_letters.shrink_to_fit();
        self.lost.shrink_to_fit();
        if let Some(front) = &mut self.front {
            front.shrink();
        }
        memory::give_back();
    }

    // ---- the end -----------------------------------------------------------------------------

    fn handle_stop(&mut self) {
        let seconds = u16::try_from(self.settings.stop_timeout.as_secs()).unwrap_or(u16::MAX);
        self.stop_at = Some(self.reactor.now() + self.settings.stop_timeout);
        self.stop_listening();
        let sessions: Vec<SessionKey> = self.sessions.keys().collect();
        for key in sessions {
            if let Some(entry) = self.sessions.get_mut(key) {
                entry.session.request_logout(seconds);
            }
            self.mark_session_dirty(key);
        }
    }

    fn stop_now(&mut self) {
        let sessions: Vec<SessionKey> = self.sessions.keys().collect();
        for key in sessions {
            self.end_session(key, "the target stops");
        }
    }

    /// When the core ends whatever is left, given when sessions were to be gone.
    fn end_at(&self, asked: Duration) -> Duration {
        asked + self.settings.abort_timeout.saturating_sub(END_SLACK)
    }

    /// When stores are flushed although commands are under way. All sessions have ended by then, and
    /// what can be aborted has been: what is left is in stores that do not give it back.
    fn flush_at(&self, asked: Duration) -> Duration {
        asked + self.settings.abort_timeout / 2
    }

    /// True when it was told to stop and nothing is left to do. Writes whose end is not known
    /// after the deadline do not hold the process.
    fn is_finished(&mut self) -> bool {
        let Some(deadline) = self.stop_at else {
            return false;
        };
        let late = self.reactor.now() >= self.end_at(deadline);
        // What one store does not give back costs no other its last flush.
        if !self.is_flushed && self.reactor.now() >= self.flush_at(deadline) {
            self.is_flushed = true;
            self.flush_stores();
        }
        let is_over = late || (self.sessions.is_empty() && self.connections.is_empty());
        if is_over && !std::mem::replace(&mut self.is_quiet, true) {
            self.post_to_all(|| Letter::Quiet);
        }
        if !is_over {
            return false;
        }
        // Others may still write to the units this core owns.
        if !late && self.quiet_cores < self.posts.len() {
            return false;
        }
        if late || self.units.values().any(|unit| unit.side.orphans() > 0) {
            // Something in the kernel does not come back; neither would it for the ring's end.
            self.reactor.set_drain_limit(Duration::ZERO);
        }
        if late {
            self.give_up_last_flushes();
            return true;
        }
        if !self.is_flushed {
            self.is_flushed = true;
            self.flush_stores();
        }
        self.last_flushes.are_over()
    }
}

/// A completion whose token says something else than its kind: a bug of ours, never a peer's.
fn unexpected(what: &str, purpose: Option<Purpose>) {
    debug_assert!(false, "{what} for {purpose:?}");
    tracing::error!(?purpose, "{what} for an operation of another kind");
}
