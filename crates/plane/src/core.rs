//! One core: a thread with a reactor, the sessions that live on it, its view of every unit.
//!
//! A turn takes the events of the reactor, executes every command as far as possible, and sends what became
//! ready. Nothing here waits; a letter asks another core for what that core must do.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use engine::Engine;
use engine::deadlines::Moment;
use front::iscsi::{Beyond, ConnectionKey, FrontLetter, LoginKey, Sessions};
use front::{OtherSessions, Sent, SessionId, SessionReport, hyperscsi, nbd};
use memory::{Buffer, Message};
use reactor::mail::Mailbox;
use reactor::{Errno, Event, Received, Token, Wait as ReactorWait};
use store::SocketResult;

use crate::accept::Acceptor;
use crate::due::Due;
use crate::letter::Letter;
use crate::line::{Link, with_line};
use crate::medium::CoreMedia;
use crate::outside::Outside;
use crate::plan::{Settings, UnitIndex};
use crate::receipt::Receipt;
use crate::token::Purpose;

/// How often stores are looked at for a changed size, commands for whether they hang.
const TICK: Duration = Duration::from_secs(1);

/// From this number of sessions on, their memory is given back to the system.
const SESSIONS_MANY: usize = 256;

/// The kernel gives some twenty events at a time: after a turn with so many there are more.
const BUSY_EVENTS: usize = 16;

/// How many letters to itself a core reads at a time.
const OWN_LETTERS_MAX: usize = 1024;

/// What is left of the time that an end may take for the end of the process itself.
const END_SLACK: Duration = Duration::from_millis(200);

/// How far a core is on its way to its end.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    /// [`Letter::Quiet`] is sent: no session is left here.
    is_quiet: bool,
    /// How many cores have sent that.
    quiet_cores: usize,
    /// The last flushes have begun.
    pub(crate) is_flushed: bool,
    /// [`Letter::Flushed`] is sent.
    is_done_flushing: bool,
    /// How many cores have sent that.
    flushed_cores: usize,
}

/// Everything one core has. The fields are shared by the modules of this crate, each of which
/// adds the methods of one concern.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) index: usize,
    pub(crate) settings: Settings,
    /// Units, sessions and tasks; and by its carrier, all that leaves this core.
    pub(crate) engine: Engine<Outside>,
    pub(crate) mailbox: Mailbox<Letter>,
    /// iSCSI: the sessions of this core, and the front where it is.
    pub(crate) sessions: Sessions<Outside>,
    /// NBD: the same.
    pub(crate) nbd: nbd::Sessions<Outside>,
    /// HyperSCSI: the same, with its logins.
    pub(crate) hyperscsi: hyperscsi::Sessions<Outside>,
    /// The most sessions and logins since memory was given back.
    pub(crate) sessions_most: usize,
    /// Removed units whose commands are still ending, each with the receipt of the caller that waits.
    pub(crate) draining: Vec<(UnitIndex, Receipt)>,
    /// Removed units of this core that are closed when their last flush is over.
    pub(crate) closing: Vec<(UnitIndex, Receipt)>,
    pub(crate) media: CoreMedia,
    /// Accepts connections; one core has it.
    pub(crate) acceptor: Option<Acceptor>,
    pub(crate) next_tick: Duration,
    pub(crate) due: Due,
    /// Set by [`Letter::Stop`]: when sessions that are left are ended.
    pub(crate) stop_at: Option<Duration>,
    pub(crate) ending: Ending,
    /// Names of units whose data may not be on stable storage.
    pub(crate) unflushed: Vec<Arc<str>>,
}

impl Core {
    /// Serves until [`Letter::Stop`].
    pub(crate) fn run(&mut self) -> Result<(), reactor::TurnError> {
        self.engine
            .carrier
            .reactor
            .watch(&self.mailbox, Purpose::Mail.token());
        let mut events = Vec::new();
        while !self.is_finished() {
            let wait = self.next_wait();
            self.engine.carrier.reactor.turn(wait, &mut events)?;
            self.engine.begin_turn(self.now());
            let is_busy = events.len() >= BUSY_EVENTS;
            for event in events.drain(..) {
                self.handle_event(event);
                self.settle();
            }
            self.sessions.lose_some(&mut self.engine, is_busy);
            self.sessions.carry_on_grants(&mut self.engine);
            self.handle_own_letters();
            self.engine.handle_memory();
            self.handle_time();
            self.settle();
            self.handle_own_letters();
            self.check_draining();
            let mut others = OtherSessions {
                nbd: &mut self.nbd,
                hyperscsi: &mut self.hyperscsi,
            };
            self.sessions.flush(&mut self.engine, &mut others);
            self.nbd.flush(&mut self.engine);
            self.hyperscsi.flush(&mut self.engine);
            self.count_turn();
        }
        self.engine.carrier.line_limits.log_left_out(self.index);
        Ok(())
    }

    /// The time of this turn.
    pub(crate) const fn now(&self) -> Duration {
        self.engine.carrier.reactor.now()
    }

    /// Does what engine and sessions can go on with, until nothing is left.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if !self.sessions.is_settled(&self.engine) {
            self.settle_all();
        }
    }

    #[inline(never)]
    fn settle_all(&mut self) {
        loop {
            let mut others = OtherSessions {
                nbd: &mut self.nbd,
                hyperscsi: &mut self.hyperscsi,
            };
            let Some(beyond) = self.sessions.settle(&mut self.engine, &mut others) else {
                return;
            };
            match beyond {
                Beyond::TargetReset(target) => {
                    let letter = || Letter::Front(FrontLetter::EndTarget { target });
                    self.post_to_all(letter);
                }
                Beyond::Flushed { unit, failure } => self.handle_flushed(unit, failure.as_ref()),
                Beyond::MediumMoved { unit, outcome } => self.handle_medium_moved(unit, outcome),
                Beyond::StateChanged { unit } => self.publish_state(unit),
                // It is out of the directory; nothing in the plane refers to it.
                Beyond::SessionOver { .. } => {}
            }
        }
    }

    fn next_wait(&mut self) -> ReactorWait {
        let has_letters = !self.engine.carrier.own_letters.is_empty();
        let has_work = self.engine.has_more() || self.engine.has_pieces();
        let has_more = self.sessions.has_more() || self.nbd.has_more() || self.hyperscsi.has_more();
        // Who waits for memory does not wait for the next event of this core, too.
        let has_unwatched = self.engine.carrier.reactor.has_unwatched();
        let holds_memory = has_unwatched && self.engine.is_short_of_memory();
        // Nor who waits for frames to be over that leave as this turn ends.
        let holds_frames = has_unwatched && self.hyperscsi.waits_for_places();
        if has_letters || has_more || has_work || holds_memory || holds_frames {
            self.due.look_at_once();
            if self.soonest() == Moment::START {
                // A table is full of what is gone: the look clears that away.
                self.find_due();
            }
            return ReactorWait::Poll;
        }
        let now = self.now();
        let stands = self.due.stands(now, self.soonest());
        // Debug builds check that in one turn of eight: in each, they would clear away what release builds leave.
        let checks = cfg!(debug_assertions) && now.subsec_micros().is_multiple_of(8);
        if !stands || checks {
            let (before, due) = (self.due.at(), self.find_due());
            debug_assert!(
                !stands || due.is_none_or(|at| before <= at),
                "something is due at {due:?}, and the core sleeps until {before:?}"
            );
            if !stands {
                self.due.set(due, now);
            }
        }
        self.due.wait()
    }

    /// Before this moment nothing is due. It looks at no session and no command, and is never later than
    /// [`Self::find_due`]: each table lowers its part when a deadline is set.
    fn soonest(&self) -> Moment {
        let all = [
            self.engine.soonest(),
            self.sessions.soonest(&self.engine),
            self.nbd.soonest(),
            self.hyperscsi.soonest(),
            Moment::of(self.acceptor.as_ref().and_then(Acceptor::poll_timeout)),
            Moment::at(self.next_tick),
            // The moments of an end come one after the other.
            self.stop_at.map_or(Moment::NEVER, |_| Moment::START),
        ];
        all.into_iter().fold(Moment::NEVER, Moment::min)
    }

    /// When something is due.
    #[inline(never)]
    fn find_due(&mut self) -> Option<Duration> {
        let engine = self.engine.poll_timeout();
        let sessions = self.sessions.poll_timeout(&self.engine);
        let nbd = self.nbd.poll_timeout();
        let hyperscsi = self.hyperscsi.poll_timeout(&self.engine);
        let acceptor = self.acceptor.as_ref().and_then(Acceptor::poll_timeout);
        let tick = Some(self.next_tick);
        let stop = self.stop_at.and_then(|asked| {
            let moments = [asked, self.flush_at(asked), self.end_at(asked)];
            let now = self.now();
            moments.into_iter().find(|moment| now < *moment)
        });
        let all = [engine, sessions, nbd, hyperscsi, acceptor, tick, stop];
        all.into_iter().flatten().min()
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Received { token, result } => self.handle_received_event(token, result),
            Event::Sent {
                token,
                message,
                result,
                at_once,
            } => match Purpose::of(token) {
                Some(Purpose::Send(key)) => self.handle_sent(key, message, (result, at_once)),
                Some(Purpose::NbdSend(key)) => self.handle_nbd_sent(key, message, result),
                Some(Purpose::LoginSend(key)) => self.handle_login_sent(key, result),
                Some(Purpose::HandshakeSend(key)) => self.handle_handshake_sent(key, result),
                Some(Purpose::Store(part)) => {
                    let result = result.map_err(number_of);
                    self.engine
                        .handle_socket_result(part, SocketResult::Sent { message, result });
                }
                other => unexpected("sent", other),
            },
            Event::ReceivedExact {
                token,
                buffer,
                result,
            } => match Purpose::of(token) {
                Some(Purpose::Receive(key)) => self.handle_data(key, buffer, result),
                Some(Purpose::NbdReceive(key)) => self.handle_nbd_data(key, buffer, result),
                Some(Purpose::Store(part)) => {
                    let result = result.map_err(number_of);
                    self.engine
                        .handle_socket_result(part, SocketResult::ReceivedExact { buffer, result });
                }
                other => unexpected("received exactly", other),
            },
            Event::Store {
                token,
                operation,
                result,
            } => match Purpose::of(token) {
                Some(Purpose::Store(part)) => {
                    self.engine.handle_ring_result(part, operation, result);
                }
                other => unexpected("store operation", other),
            },
            Event::Helper { token, result } => match Purpose::of(token) {
                Some(Purpose::Store(part)) => self.engine.handle_helper_result(part, result),
                Some(Purpose::Keep(unit)) => self.handle_saved(unit),
                other => unexpected("helper work", other),
            },
            Event::Datagram { token, result } => match Purpose::of(token) {
                Some(Purpose::Frames(key)) => self.handle_datagram(key, result),
                other => unexpected("datagram", other),
            },
            Event::DatagramsSent { token, sent, lost } => match Purpose::of(token) {
                Some(Purpose::FrameSent(key)) => self.handle_frames_sent(key, sent, lost),
                other => unexpected("datagrams sent", other),
            },
            Event::Accepted { token, result } => match Purpose::of(token) {
                Some(Purpose::Accept(portal)) => self.handle_accepted(portal, result),
                other => unexpected("accepted", other),
            },
            Event::Mail { .. } => self.take_mail(),
        }
    }

    fn handle_received_event(&mut self, token: Token, result: Result<Received, Errno>) {
        match Purpose::of(token) {
            Some(Purpose::Receive(key)) => self.handle_received(key, result),
            Some(Purpose::NbdReceive(key)) => self.handle_nbd_received(key, result),
            Some(Purpose::LoginReceive(key)) => self.handle_login_received(key, result),
            Some(Purpose::HandshakeReceive(key)) => self.handle_handshake(key, result),
            Some(Purpose::Store(part)) => {
                let came = result.map(|came| (came.chunk, came.len));
                self.engine
                    .handle_socket_result(part, SocketResult::Received(came.map_err(number_of)));
            }
            other => unexpected("received", other),
        }
    }

    fn handle_data(&mut self, key: ConnectionKey, buffer: Buffer, result: Result<usize, Errno>) {
        let (engine, received) = (&mut self.engine, result.unwrap_or(0));
        self.sessions
            .handle_received_exact(engine, key, buffer, received);
    }

    fn handle_saved(&mut self, unit: UnitIndex) {
        let outcome = self.engine.carrier.take_saved(unit);
        self.engine.handle_saved(unit, &outcome);
    }

    fn handle_sent(
        &mut self,
        key: ConnectionKey,
        message: Message,
        (result, at_once): (Result<(), Errno>, bool),
    ) {
        let sent = match was_sent(result) {
            false => Sent::Not,
            true if at_once => Sent::AtOnce,
            true => Sent::Now,
        };
        let engine = &mut self.engine;
        self.sessions.handle_sent(engine, key, message, sent);
    }

    fn handle_login_sent(&mut self, key: LoginKey, result: Result<(), Errno>) {
        let (is_sent, clock) = (was_sent(result), SystemTime::now());
        self.sessions
            .handle_login_sent(&self.engine, key, is_sent, clock);
    }

    fn take_mail(&mut self) {
        for letter in self.mailbox.take() {
            // Letters stay in order: a change would not reach a session that is adopted after it.
            if self.engine.carrier.own_letters.is_empty() {
                self.handle_letter(letter);
            } else {
                self.engine.carrier.own_letters.push_back(letter);
            }
        }
    }

    fn handle_received(&mut self, key: ConnectionKey, result: Result<Received, Errno>) {
        let (sessions, engine) = (&mut self.sessions, &mut self.engine);
        match result {
            Ok(received) if received.len > 0 => {
                sessions.handle_received(engine, key, &received.chunk, received.more);
            }
            Ok(_) => sessions.handle_close(engine, key, "closed by the initiator"),
            Err(errno) => {
                tracing::debug!(%errno, "receive failed");
                sessions.handle_end(engine, key, "the connection failed");
            }
        }
    }

    fn handle_login_received(&mut self, key: LoginKey, result: Result<Received, Errno>) {
        let received = result.ok().filter(|received| received.len > 0);
        let bytes = received.as_ref().map(|received| &received.chunk[..]);
        self.sessions
            .handle_login_received(&self.engine, key, bytes, SystemTime::now());
    }

    /// Sends a letter; see [`Outside::send`].
    pub(crate) fn post(&mut self, core: usize, letter: Letter) {
        self.engine.carrier.send(core, letter);
    }

    /// Sends the same to every core.
    pub(crate) fn post_to_all(&mut self, letter: impl Fn() -> Letter) {
        for core in 0..self.cores() {
            self.post(core, letter());
        }
    }

    /// How many cores there are.
    pub(crate) const fn cores(&self) -> usize {
        self.engine.carrier.posts.len()
    }

    /// Reads letters of this core to itself. Those beyond the limit are read in the next turn, which begins
    /// at once, so that the end of a thousand sessions does not delay the commands of the others.
    #[inline]
    fn handle_own_letters(&mut self) {
        if !self.engine.carrier.own_letters.is_empty() {
            self.read_own_letters();
        }
    }

    #[inline(never)]
    fn read_own_letters(&mut self) {
        for _ in 0..OWN_LETTERS_MAX {
            let Some(letter) = self.engine.carrier.own_letters.pop_front() else {
                break;
            };
            self.handle_letter(letter);
            self.settle();
        }
    }

    fn handle_letter(&mut self, letter: Letter) {
        match letter {
            Letter::Front(letter) => {
                if let Some(letter) = with_line(letter, |line| Some(Link::from(line))) {
                    self.sessions.handle_letter(&mut self.engine, letter);
                }
            }
            Letter::Nbd(letter) => self.handle_nbd_letter(letter),
            Letter::Hyperscsi(letter) => self.handle_hyperscsi_letter(letter),
            Letter::Unit { unit, letter } => self.engine.handle_letter(unit, letter),
            Letter::StoreWake { unit } => self.engine.handle_store_wake(unit),
            Letter::Quiet => self.ending.quiet_cores += 1,
            Letter::Flushed => self.ending.flushed_cores += 1,
            Letter::AddUnit { unit, plan, report } => {
                // The caller may have given up waiting.
                drop(report.send(self.add_unit(unit, &plan)));
            }
            Letter::Exchange { exchange, report } => drop(report.send(self.exchange(&exchange))),
            Letter::DrainUnits { units, receipt } => self.handle_drain_units(&units, &receipt),
            Letter::CloseUnits { units, receipt } => self.handle_close_units(&units, &receipt),
            Letter::CloseStore { unit, receipt } => self.handle_close_store(unit, receipt),
            Letter::DescribeUnits { units, receipt } => self.describe_units(&units, receipt),
            Letter::SetLimits { settings, receipt } => {
                self.handle_set_limits(&settings);
                drop(receipt);
            }
            Letter::SetAccess { access, receipt } => {
                self.handle_set_access(*access);
                drop(receipt);
            }
            Letter::SetHyperscsi {
                server,
                groups,
                sockets,
                receipt,
            } => self.handle_set_hyperscsi((server, groups), sockets, &receipt),
            // The caller may have given up waiting.
            Letter::ReportHyperscsi(report) => drop(report.send(self.report_hyperscsi())),
            // The caller may have given up waiting.
            Letter::Report(report) => drop(report.send(self.report_sessions())),
            Letter::Grant { grant, receipt } => {
                self.sessions.grant(&mut self.engine, *grant, &receipt);
            }
            Letter::Dismiss {
                session,
                reason,
                receipt,
            } => self.handle_dismiss(session, reason, receipt),
            Letter::SetSpace { unit, space } => self.engine.set_space(unit, space),
            Letter::SizeChanged { unit, receipt } => {
                self.engine.handle_size_changed(unit, receipt);
            }
            Letter::MoveMedium {
                unit,
                order,
                answer,
            } => self.handle_move_medium(unit, order, answer),
            Letter::ReleaseMedium { hold, answer } => self.handle_release_medium(hold, &answer),
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

    fn report_sessions(&self) -> Vec<SessionReport> {
        let mut all = self.sessions.report(&self.engine);
        all.append(&mut self.nbd.report(&self.engine));
        all.append(&mut self.hyperscsi.report(&self.engine));
        all
    }

    fn handle_dismiss(&mut self, session: SessionId, reason: &'static str, receipt: Receipt) {
        let engine = &mut self.engine;
        if self.nbd.session(session).is_some() {
            self.nbd.dismiss(engine, session, reason, receipt);
        } else if self.hyperscsi.session(session).is_some() {
            self.hyperscsi.dismiss(engine, session, reason, receipt);
        } else {
            self.sessions.dismiss(engine, session, reason, receipt);
        }
    }

    // ---- time --------------------------------------------------------------------------------

    #[inline]
    fn handle_time(&mut self) {
        let now = self.now();
        if self.due.is_due(now) {
            self.handle_due(now);
        }
        // Its timers are short, and may be set for this turn.
        self.hyperscsi.handle_timeout(&mut self.engine);
        if self.stop_at.is_some_and(|deadline| now >= deadline) {
            self.sessions.end_all(&mut self.engine, "the target stops");
            self.nbd.end_all(&mut self.engine, "the target stops");
            self.hyperscsi.end_all(&mut self.engine, "the target stops");
        }
    }

    /// Something is due, or may be.
    #[inline(never)]
    fn handle_due(&mut self, now: Duration) {
        self.engine.handle_timeout(now);
        self.retry_listeners(now);
        self.sessions
            .handle_timeout(&mut self.engine, SystemTime::now);
        self.nbd.handle_timeout(&mut self.engine);
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.tick(now);
        }
    }

    fn tick(&mut self, now: Duration) {
        self.engine.probe_some();
        self.nbd.look(&mut self.engine);
        self.hyperscsi.look(&mut self.engine);
        self.retry_doors();
        self.report_hanging(now);
        self.give_back();
        self.engine.carrier.line_limits.log_left_out(self.index);
    }

    /// Gives memory back to the system after most of many sessions have ended.
    fn give_back(&mut self) {
        let beginning = self.sessions.logins() + self.nbd.handshakes();
        let sessions = self.engine.session_count() + beginning;
        self.sessions_most = self.sessions_most.max(sessions);
        let is_over = sessions < self.sessions_most / 4 && !self.sessions.has_more();
        if self.sessions_most < SESSIONS_MANY || !is_over {
            return;
        }
        self.sessions_most = sessions;
        self.engine.shrink();
        self.sessions.shrink();
        self.nbd.shrink();
        self.hyperscsi.shrink();
        self.engine.carrier.own_letters.shrink_to_fit();
        memory::give_back();
    }

    // ---- the end -----------------------------------------------------------------------------

    fn handle_stop(&mut self) {
        let seconds = u16::try_from(self.settings.stop_timeout.as_secs()).unwrap_or(u16::MAX);
        self.stop_at = Some(self.now() + self.settings.stop_timeout);
        self.stop_listening();
        self.sessions.request_logouts(&mut self.engine, seconds);
        self.nbd.stop(&mut self.engine);
        self.hyperscsi.stop(&mut self.engine);
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

    /// True after [`Letter::Stop`], when nothing is left to do. Writes whose end is not known after the
    /// deadline do not delay the end of the process.
    fn is_finished(&mut self) -> bool {
        let Some(deadline) = self.stop_at else {
            return false;
        };
        let late = self.now() >= self.end_at(deadline);
        // A store that hangs does not keep the others from their last flush.
        if !self.ending.is_flushed && self.now() >= self.flush_at(deadline) {
            self.ending.is_flushed = true;
            self.flush_stores();
        }
        let has_sessions =
            self.engine.session_count() > 0 || !self.sessions.is_quiet() || !self.nbd.is_quiet();
        // Those of HyperSCSI have nothing but what the engine counts.
        let is_over = late || !has_sessions;
        if is_over && !std::mem::replace(&mut self.ending.is_quiet, true) {
            self.post_to_all(|| Letter::Quiet);
        }
        if !is_over {
            return false;
        }
        // Others may still write to the units this core owns.
        if !late && self.ending.quiet_cores < self.cores() {
            return false;
        }
        if late || self.engine.has_orphans() {
            // An operation in the kernel does not end; it would not end while the ring is closed either.
            self.engine.carrier.reactor.set_drain_limit(Duration::ZERO);
        }
        if late {
            self.give_up_last_flushes();
            return true;
        }
        if !self.ending.is_flushed {
            self.ending.is_flushed = true;
            self.flush_stores();
        }
        if self.engine.flushing_units().next().is_some() {
            return false;
        }
        if !std::mem::replace(&mut self.ending.is_done_flushing, true) {
            self.post_to_all(|| Letter::Flushed);
        }
        // What others flush may need a connection of this core.
        self.ending.flushed_cores >= self.cores()
    }
}

/// The error number, for a store.
const fn number_of(errno: Errno) -> i32 {
    errno.raw_os_error()
}

pub(crate) fn was_sent(result: Result<(), Errno>) -> bool {
    if let Err(errno) = result {
        tracing::debug!(%errno, "send failed");
    }
    result.is_ok()
}

/// A completion whose token says something else than its kind: a bug of ours, never a peer's.
fn unexpected(what: &str, purpose: Option<Purpose>) {
    debug_assert!(false, "{what} for {purpose:?}");
    tracing::error!(?purpose, "{what} for an operation of another kind");
}
