//! One simulated core: engine and sessions that ship, and its turns.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use engine::{Engine, FlushFailure, MediumFailure, SessionKey, TaskKey, UnitIndex, Version};
use front::iscsi::{Beyond, FrontLetter, LineKey as IscsiKey, LoginRandom, Sessions};
use front::testing::{LineKey, Mail};
use front::{CommandId, OtherSessions, Sent, hyperscsi, nbd};
use iscsi::pdu::Tsih;
use iscsi::target::Receive;
use memory::{Buffer, Message, Pool};
use scsi::Owner;
use store::Backstore;

use super::carrier::{Chance, Outside};
use super::line;
use crate::network::Arrival;
use crate::prng::Prng;
use crate::sabotage::Sabotage;
use crate::setup::{self, Settings};

/// One core.
#[derive(Debug)]
pub(crate) struct Core {
    index: usize,
    cores: usize,
    pub(crate) engine: Engine<Outside>,
    pub(crate) sessions: Sessions<Outside>,
    pub(crate) nbd: nbd::Sessions<Outside>,
    pub(crate) hyperscsi: hyperscsi::Sessions<Outside>,
    /// What is received into.
    pub(crate) chunks: Pool,
    /// Letters of this core to itself.
    own_letters: VecDeque<Mail>,
    /// Letters to others, and to whom.
    pub(super) posted: Vec<(usize, Mail)>,
    /// Tasks that sessions have left behind, and whose they were.
    pub(crate) left: BTreeSet<(TaskKey, Tsih)>,
    /// What has come of orders of an administrator to move the medium.
    pub(super) moved: Vec<(UnitIndex, Result<(), MediumFailure>)>,
    /// Units that were flushed for the last time, and what went wrong.
    pub(super) flushed: Vec<(UnitIndex, Option<FlushFailure>)>,
    /// It never has time to lose more than one connection in a turn.
    is_busy: bool,
    prng: Prng,
    _ballast: Vec<Buffer>,
}

impl Core {
    pub(super) fn new(
        index: usize,
        settings: &Settings,
        units: Vec<(Owner, Option<Version>, Box<dyn Backstore>)>,
        prng: Prng,
    ) -> Self {
        let (pool, _ballast) = settings.pool();
        let chance = Chance::new(
            index,
            (
                settings.sabotage,
                settings.fence_timeout * settings.fence_waits,
            ),
            pool.clone(),
            &prng,
        );
        let outside = Outside::new(chance);
        let mut engine = Engine::new(settings.of_engine(index), pool, outside);
        for (owner, saved, store) in units {
            engine.add_unit(owner, saved, store);
        }
        let front = (index == 0).then(|| settings.front());
        let chunks = setup::smallest_pool();
        chunks.set_base();
        Self {
            index,
            cores: settings.cores,
            engine,
            sessions: Sessions::new(settings.of_sessions(), Arc::default(), front),
            nbd: settings.nbd(index),
            hyperscsi: settings.hyperscsi(index, &prng),
            chunks,
            own_letters: VecDeque::new(),
            posted: Vec::new(),
            left: BTreeSet::new(),
            moved: Vec::new(),
            flushed: Vec::new(),
            is_busy: settings.is_busy,
            prng,
            _ballast,
        }
    }

    /// The session of this number, if it lives here.
    pub(crate) fn session_of(&self, tsih: Tsih) -> Option<SessionKey> {
        let mut sessions = self.engine.sessions();
        let found = sessions.find(|(_, entry)| {
            let port = entry.port.iscsi();
            port.is_some_and(|port| port.detail.tsih == tsih)
        });
        found.map(|(key, _)| key)
    }

    /// Drops commands that wait, if that is what is to go wrong.
    fn forget_answers(&mut self) {
        let saboteur = &mut self.engine.carrier.hooks.saboteur;
        if !saboteur.strikes(Sabotage::ForgetAnswers) {
            return;
        }
        let sessions = self.engine.sessions();
        let waiting = sessions
            .filter_map(|(key, entry)| entry.port.iscsi().map(|port| (key, port.session.tasks())));
        let waiting: Vec<_> = waiting.filter(|(_, tasks)| !tasks.is_empty()).collect();
        for (session, tasks) in waiting {
            let commands = tasks.into_iter().map(CommandId::from).collect();
            self.engine.abort_commands(session, commands);
        }
    }

    // ---- the turn ----------------------------------------------------------------------------

    /// Something happens; then everything that can go on goes on, and what became ready is given to
    /// the links.
    pub(crate) fn turn<T>(&mut self, now: Duration, happen: impl FnOnce(&mut Self) -> T) -> T {
        self.engine.begin_turn(now);
        self.end_unwatched();
        let outcome = happen(self);
        self.settle();
        self.forget_answers();
        loop {
            while self.has_own_letters()
                && let Some(mail) = self.own_letters.pop_front()
            {
                self.handle_letter(Letter::Mail(mail));
                self.settle();
            }
            self.sessions.lose_some(&mut self.engine, self.is_busy);
            self.sessions.carry_on_grants(&mut self.engine);
            self.engine.handle_memory();
            self.settle();
            let mut beside = OtherSessions {
                nbd: &mut self.nbd,
                hyperscsi: &mut self.hyperscsi,
            };
            self.sessions.flush(&mut self.engine, &mut beside);
            self.settle();
            self.nbd.flush(&mut self.engine);
            self.settle();
            self.hyperscsi.flush(&mut self.engine);
            self.settle();
            let has_lost = self.sessions.has_more() && !self.is_busy;
            let has_others = self.nbd.has_more() || self.hyperscsi.has_more();
            let has_more = self.engine.has_more() || has_others;
            if !self.has_own_letters() && !has_lost && !has_more {
                return outcome;
            }
        }
    }

    /// Carries on what engine and sessions let go on, until there is nothing.
    fn settle(&mut self) {
        loop {
            let mut beside = OtherSessions {
                nbd: &mut self.nbd,
                hyperscsi: &mut self.hyperscsi,
            };
            match self.sessions.settle(&mut self.engine, &mut beside) {
                Some(Beyond::SessionOver { session, left }) => {
                    let left = left.into_iter().map(|task| (task, session.tsih));
                    self.left.extend(left);
                }
                // For those who look on.
                Some(Beyond::StateChanged { .. }) => {}
                Some(Beyond::MediumMoved { unit, outcome }) => {
                    if let Some(lost) = outcome.as_ref().err().and_then(MediumFailure::loss) {
                        self.engine.note_loss_delivered(unit, lost);
                    }
                    self.moved.push((unit, outcome));
                }
                Some(Beyond::TargetReset(target)) => {
                    for core in 0..self.cores {
                        let mail = Mail::Iscsi(FrontLetter::EndTarget { target });
                        self.engine.carrier.posted.push_back((core, mail));
                    }
                }
                Some(Beyond::Flushed { unit, failure }) => self.flushed.push((unit, failure)),
                None if self.end_shut() => {}
                None => return,
            }
        }
    }

    /// Sorts the mail that was posted. True where some of it is for this core.
    fn has_own_letters(&mut self) -> bool {
        while let Some((core, mail)) = self.engine.carrier.posted.pop_front() {
            if core == self.index {
                self.own_letters.push_back(mail);
            } else {
                self.posted.push((core, mail));
            }
        }
        !self.own_letters.is_empty()
    }

    pub(super) fn handle_letter(&mut self, letter: Letter) {
        let engine = &mut self.engine;
        match letter {
            Letter::Mail(Mail::Unit(unit, letter)) => engine.handle_letter(unit, *letter),
            Letter::Mail(Mail::Iscsi(letter)) => self.sessions.handle_letter(engine, letter),
            Letter::Mail(Mail::Nbd(letter)) => {
                let front = self.sessions.front.as_mut();
                self.nbd.handle_letter(engine, letter, front);
            }
            Letter::Mail(Mail::Hyperscsi(letter)) => {
                let clock = SystemTime::UNIX_EPOCH + engine.now();
                let front = self.sessions.front.as_mut();
                self.hyperscsi.handle_letter(engine, letter, front, clock);
            }
            Letter::Order(Order(act)) => act(self),
        }
    }

    pub(super) fn poll_timeout(&mut self) -> Option<Duration> {
        let engine = self.engine.poll_timeout();
        let sessions = self.sessions.poll_timeout(&self.engine);
        let has_more = self.sessions.has_more() || self.engine.has_pieces();
        let more = has_more.then(|| self.engine.now());
        let nbd = self.nbd.poll_timeout();
        let hyperscsi = self.hyperscsi.poll_timeout(&self.engine);
        let all = [engine, sessions, nbd, hyperscsi, more];
        all.into_iter().flatten().min()
    }

    pub(super) fn handle_time(&mut self) {
        self.engine.handle_timeout(self.engine.now());
        self.settle();
        let clock = self.clock();
        self.sessions.handle_timeout(&mut self.engine, || clock);
        self.settle();
        self.nbd.handle_timeout(&mut self.engine);
        self.nbd.look(&mut self.engine);
        self.settle();
        self.hyperscsi.handle_timeout(&mut self.engine);
    }

    fn clock(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.engine.now()
    }

    // ---- links -------------------------------------------------------------------------------

    pub(super) fn accept(&mut self, link: usize) {
        let mut byte = || self.prng.next_u64().to_be_bytes()[0];
        let random = LoginRandom {
            challenges: std::array::from_fn(|_| byte()),
            tsih: u16::from_be_bytes(std::array::from_fn(|_| byte())),
        };
        if let Some(front) = &mut self.sessions.front {
            front.accept(line::line(link), random, self.engine.now());
        }
    }

    pub(super) fn appetite(&self, link: usize) -> usize {
        let links = &self.engine.carrier.lines.all;
        links.get(&link).map_or(0, line::appetite)
    }

    pub(super) fn arrive(&mut self, link: usize, arrival: Arrival) {
        let outside = &mut self.engine.carrier;
        let under_way = outside.lines.all.get_mut(&link);
        let Some((key, how)) = under_way.and_then(|it| it.receiving.take()) else {
            return;
        };
        // Logins are left in peace.
        let hangs_up = matches!(key, LineKey::Iscsi(IscsiKey::Connection(_)))
            && outside.hooks.saboteur.strikes(Sabotage::HangUp);
        let bytes = match arrival {
            Arrival::Bytes(bytes) if !hangs_up => Some(bytes),
            Arrival::Bytes(_) | Arrival::End | Arrival::Reset => None,
        };
        self.handle_received(key, how, bytes.as_deref());
    }

    /// A receive has ended; `None`: with the end of the connection.
    fn handle_received(&mut self, key: LineKey, how: Receive, bytes: Option<&[u8]>) {
        let clock = self.clock();
        let (sessions, nbd, engine) = (&mut self.sessions, &mut self.nbd, &mut self.engine);
        match (key, how, bytes) {
            (LineKey::Iscsi(IscsiKey::Login(key)), _, bytes) => {
                sessions.handle_login_received(engine, key, bytes, clock);
            }
            (LineKey::Nbd(nbd::LineKey::Handshake(key)), _, bytes) => {
                nbd.handle_handshake_received(engine, key, bytes);
            }
            (LineKey::Iscsi(IscsiKey::Connection(key)), Receive::Exact { buffer, range }, _) => {
                let (buffer, len) = filled(buffer, range, bytes);
                sessions.handle_received_exact(engine, key, buffer, len);
            }
            (LineKey::Nbd(nbd::LineKey::Connection(key)), Receive::Exact { buffer, range }, _) => {
                let (buffer, len) = filled(buffer, range, bytes);
                nbd.handle_received_exact(engine, key, buffer, len);
            }
            (LineKey::Iscsi(IscsiKey::Connection(key)), Receive::Chunk { .. }, Some(bytes)) => {
                let chunk = chunk(&self.chunks, bytes);
                let more = self.prng.chance(300);
                sessions.handle_received(engine, key, &chunk, more);
            }
            (LineKey::Nbd(nbd::LineKey::Connection(key)), Receive::Chunk { .. }, Some(bytes)) => {
                nbd.handle_received(engine, key, &chunk(&self.chunks, bytes));
            }
            (LineKey::Iscsi(IscsiKey::Connection(key)), Receive::Chunk { .. }, None) => {
                sessions.handle_end(engine, key, "the link has ended");
            }
            (LineKey::Nbd(nbd::LineKey::Connection(key)), Receive::Chunk { .. }, None) => {
                nbd.handle_end(engine, key, "the link has ended");
            }
        }
    }

    pub(super) fn take_output(&mut self, link: usize, len: usize) -> Vec<u8> {
        let under_way = self.engine.carrier.lines.all.get_mut(&link);
        let Some(sending) = under_way.map(|under_way| &mut under_way.sending) else {
            return Vec::new();
        };
        let taken = sending.as_mut().map(|sending| sending.take(len));
        if let Some(sending) = sending.take_if(|sending| sending.is_over()) {
            self.handle_sent(sending.key, sending.message, Sent::Now);
        }
        taken.unwrap_or_default()
    }

    /// Bytes that a link holds already; the core does not notice.
    pub(super) fn take_buffered(&mut self, link: usize, len: usize) -> Vec<u8> {
        let under_way = self.engine.carrier.lines.all.get_mut(&link);
        under_way.map_or_else(Vec::new, |way| {
            let len = len.min(way.buffered.len());
            way.buffered.drain(..len).collect()
        })
    }

    /// What is being sent on a link fails.
    pub(crate) fn fail_output(&mut self, link: usize) {
        if let Some(under_way) = self.engine.carrier.lines.all.get_mut(&link) {
            under_way.buffered.clear();
            if let Some(sending) = under_way.sending.take() {
                self.handle_sent(sending.key, sending.message, Sent::Not);
            }
        }
    }

    /// Sends that nobody waited for have ended.
    fn end_unwatched(&mut self) {
        let links = self.engine.carrier.lines.all.values_mut();
        let over: Vec<_> = links.filter_map(|way| way.unwatched.take()).collect();
        for (key, message) in over {
            self.handle_sent(key, message, Sent::AtOnce);
        }
    }

    fn handle_sent(&mut self, key: LineKey, message: Message, sent: Sent) {
        let (clock, is_sent) = (self.clock(), sent != Sent::Not);
        let (sessions, engine) = (&mut self.sessions, &mut self.engine);
        match key {
            LineKey::Iscsi(IscsiKey::Login(key)) => {
                sessions.handle_login_sent(engine, key, is_sent, clock);
            }
            LineKey::Iscsi(IscsiKey::Connection(key)) => {
                sessions.handle_sent(engine, key, message, sent);
            }
            LineKey::Nbd(nbd::LineKey::Handshake(key)) => {
                let means = (sessions.front.as_mut(), clock);
                self.nbd.handle_handshake_sent(engine, key, is_sent, means);
            }
            LineKey::Nbd(nbd::LineKey::Connection(key)) => {
                self.nbd.handle_sent(engine, key, message, is_sent);
            }
        }
    }

    /// What was under way on a link that was shut ends. False when there is none.
    fn end_shut(&mut self) -> bool {
        let links = &mut self.engine.carrier.lines.all;
        let shut = links.iter().find(|(_, under_way)| under_way.is_shut);
        let Some(link) = shut.map(|(link, _)| *link) else {
            return false;
        };
        let under_way = links.remove(&link).unwrap_or_default();
        if let Some((key, how)) = under_way.receiving {
            self.handle_received(key, how, None);
        }
        if let Some(sending) = under_way.sending {
            self.handle_sent(sending.key, sending.message, Sent::Not);
        }
        if let Some((key, message)) = under_way.unwatched {
            self.handle_sent(key, message, Sent::AtOnce);
        }
        true
    }
}

/// What an administrator holds until what was asked for is done. The host drops it then.
pub type Receipt = Rc<()>;

/// What an administrator has a core do.
pub struct Order(pub(crate) Box<Act>);

type Act = dyn FnOnce(&mut Core);

impl Order {
    /// The core does this.
    pub(crate) fn new(act: impl FnOnce(&mut Core) + 'static) -> Self {
        Self(Box::new(act))
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Order")
    }
}

/// Mail to a core.
#[derive(Debug)]
pub enum Letter {
    /// Of a core.
    Mail(Mail),
    /// Of the administrator.
    Order(Order),
}

/// A buffer into which these bytes were received, and how many there are.
fn filled(mut buffer: Buffer, range: Range<usize>, bytes: Option<&[u8]>) -> (Buffer, usize) {
    let bytes = bytes.unwrap_or_default();
    buffer[range.start..range.start + bytes.len()].copy_from_slice(bytes);
    (buffer, bytes.len())
}

/// A chunk that was received.
fn chunk(chunks: &Pool, bytes: &[u8]) -> Rc<Buffer> {
    #[expect(
        clippy::expect_used,
        reason = "the world receives no more than it has room for"
    )]
    let mut buffer = chunks.allocate(bytes.len()).expect("room for a chunk");
    buffer.copy_from_slice(bytes);
    Rc::new(buffer)
}
