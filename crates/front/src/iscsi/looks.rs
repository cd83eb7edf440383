//! Time: pings, data that does not come, discovery sessions that last too long.
//!
//! Every session is looked at when something of it is due. While it has commands under way, or bytes of
//! it have just come, that is the next whole second: what they wait for has deadlines of its own, which
//! change with every PDU. A quiet session sleeps until its next ping.

use std::iter;
use std::time::{Duration, SystemTime};

use engine::deadlines::Moment;
use engine::{Engine, SessionKey};

use super::front::Front;
use super::port::SessionPort;
use super::session::Detail;
use super::sessions::Sessions;
use super::wire::Wire;

/// How long an answer in a discovery session may wait to be read.
const DISCOVERY_READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The first moment of looking that is not before `at`: a whole second, so that thousands of sessions
/// cost one waking.
const fn round_up(at: Duration) -> Duration {
    if at.subsec_nanos() == 0 {
        at
    } else {
        after(at)
    }
}

/// The first moment of looking after `now`.
const fn after(now: Duration) -> Duration {
    Duration::from_secs(now.as_secs().saturating_add(1))
}

impl Detail {
    /// It is looked at in the next second anyway.
    #[inline]
    pub(super) fn is_looked_at_soon(&self, now: Duration) -> bool {
        self.look_at.is_some_and(|at| at <= after(now))
    }
}

impl<C: Wire> Sessions<C> {
    /// Before this moment [`Sessions::poll_timeout`] is not: found without a look at any session.
    #[inline]
    pub fn soonest(&self, engine: &Engine<C>) -> Moment {
        let front = self.front.as_ref().map_or(Moment::NEVER, Front::soonest);
        let held = Moment::of(self.held_until());
        self.looks
            .soonest(engine.session_count())
            .min(front)
            .min(held)
    }

    /// When [`Sessions::handle_timeout`] is due, if ever.
    pub fn poll_timeout(&mut self, engine: &Engine<C>) -> Option<Duration> {
        let bound = self.soonest(engine);
        let of = |key| engine.session(key)?.port.iscsi()?.detail.look_at;
        let look = self.looks.next(engine.session_count(), of);
        let front = self.front.as_mut().and_then(|front| front.poll_timeout());
        let held = self.held_until();
        let next = look.into_iter().chain(front).chain(held).min();
        debug_assert!(
            bound <= Moment::of(next),
            "{bound:?} is later than {next:?}"
        );
        next
    }

    /// Time has come.
    pub fn handle_timeout(&mut self, engine: &mut Engine<C>, clock: impl FnOnce() -> SystemTime) {
        let now = engine.now();
        if let Some(front) = &mut self.front
            && front.poll_timeout().is_some_and(|at| now >= at)
        {
            front.handle_timeout((now, clock()));
        }
        let of = |key| engine.session(key)?.port.iscsi()?.detail.look_at;
        let due: Vec<SessionKey> = iter::from_fn(|| self.looks.due(now, of)).collect();
        for key in due {
            self.look(engine, key);
            self.look_again(engine, key);
        }
    }

    /// Something has begun in a session: it is looked at in the next second.
    pub(super) fn look_soon(&mut self, engine: &mut Engine<C>, key: SessionKey) {
        let now = engine.now();
        if let Some(entry) = engine.session_mut(key)
            && let Some(SessionPort { detail, .. }) = entry.port.iscsi_mut()
            && !detail.is_looked_at_soon(now)
        {
            self.set_look(detail, key, after(now));
        }
    }

    fn set_look(&mut self, detail: &mut Detail, key: SessionKey, at: Duration) {
        detail.look_at = Some(at);
        self.looks.set(key, at);
    }

    /// After a look: when is the next?
    fn look_again(&mut self, engine: &mut Engine<C>, key: SessionKey) {
        let now = engine.now();
        let Some(entry) = engine.session_mut(key) else {
            return;
        };
        let waiting = entry.waiting_commands();
        let Some(SessionPort {
            session: protocol,
            detail,
            ..
        }) = entry.port.iscsi_mut()
        else {
            return;
        };
        let is_discovery = detail.profile.target.is_none();
        let is_busy = waiting > 0 || is_discovery || detail.dismissal.is_some();
        let next = is_busy.then(|| after(now));
        let due = protocol.poll_timeout().map(round_up);
        let next = next.into_iter().chain(due);
        match next.min() {
            // What is overdue is not done more often for that.
            Some(at) if detail.end_reason.is_none() => {
                self.set_look(detail, key, at.max(after(now)));
            }
            _ => detail.look_at = None,
        }
    }

    fn look(&mut self, engine: &mut Engine<C>, key: SessionKey) {
        let now = engine.now();
        let Some(entry) = engine.session_mut(key) else {
            return;
        };
        let Some(port) = entry.port.iscsi_mut() else {
            return;
        };
        if port.session.poll_timeout().is_some_and(|at| at <= now) {
            port.session.handle_timeout(now);
            self.handle_events(engine, key);
            engine.note_ready(key, None);
        }
        if let Some(reason) = self.overdue(engine, key) {
            self.end_session(engine, key, reason);
        }
    }

    /// Why a session must end now: it was dismissed and its peer does not take what is sent to it, or
    /// is a discovery session that has lasted long enough, or whose answers nobody reads.
    fn overdue(&self, engine: &Engine<C>, key: SessionKey) -> Option<&'static str> {
        let now = engine.now();
        let entry = engine.session(key)?;
        let detail = &entry.port.iscsi()?.detail;
        if let Some((reason, at)) = detail.dismissal
            && now >= at
        {
            return Some(reason);
        }
        if detail.profile.target.is_some() || entry.is_ending() {
            return None;
        }
        let connections = detail.connections.iter().copied().flatten();
        let is_unread = connections
            .filter_map(|key| self.connections.get(key))
            .any(|c| c.is_sending && now.saturating_sub(c.sending_since) >= DISCOVERY_READ_TIMEOUT);
        if now >= detail.discovery_ends {
            Some("a discovery session lasts no longer")
        } else {
            is_unread.then_some("the initiator does not read its answers")
        }
    }
}
