//! What tests and simulated worlds have in place of sockets: lines and mail, and the carrier of a core with
//! sessions, which puts down what they ask for. For the tests of this crate, and for `sim` (feature `testing`).
#![allow(
    missing_docs,
    unreachable_pub,
    reason = "its names say what it does, and it is for tests"
)]

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use ::hyperscsi::limits::FRAME_MAX_BYTES;
use ::iscsi::framing::Pdu;
use ::iscsi::names::IscsiName;
use ::iscsi::negotiate::ConnectionParameters;
use ::iscsi::target::Receive;
use engine::testing::outside::{Hooks, Outside, UnitMail};
use engine::{Letter, TargetIndex, UnitIndex};
use memory::Message;

use crate::{Port, SendEnd, Station, hyperscsi, iscsi, nbd};

/// A connection.
#[derive(Clone, Copy, Debug)]
pub struct TestLine {
    pub number: usize,
    pub peer: SocketAddr,
    pub portal: SocketAddr,
    /// The other end acknowledges all at once.
    pub has_had_all: bool,
    /// What sessions of iSCSI have told it.
    pub noted: Noted,
}

/// What went over a line.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Noted {
    /// Requests of its login.
    pub logins: usize,
    /// It is in full-feature phase.
    pub has_entered: bool,
    /// In bytes, since then.
    pub received: usize,
    /// In bytes.
    pub sent: usize,
}

impl iscsi::Line for TestLine {
    type Context = ();

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn portal(&self) -> SocketAddr {
        self.portal
    }

    fn has_had_all(&self) -> bool {
        self.has_had_all
    }

    fn note_login(&mut self, _: &Pdu, _: Option<&IscsiName>, (): &()) {
        self.noted.logins += 1;
    }

    fn enter(&mut self, _: &iscsi::Detail, _: &ConnectionParameters, (): &()) {
        self.noted.has_entered = true;
    }

    fn note_received(&mut self, bytes: &[u8]) {
        self.noted.received += bytes.len();
    }

    fn note_sent(&mut self, message: &Message) {
        self.noted.sent += message.len();
    }
}

impl nbd::Line for TestLine {
    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn portal(&self) -> SocketAddr {
        self.portal
    }

    fn has_had_all(&self) -> bool {
        self.has_had_all
    }
}

/// What a line belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LineKey {
    Iscsi(iscsi::LineKey),
    Nbd(nbd::LineKey),
}

/// A message on its way out. It keeps its data alive until all of it is sent, as a reactor would.
#[derive(Debug)]
pub struct Sending {
    pub key: LineKey,
    pub message: Message,
    bytes: Vec<u8>,
    sent: usize,
}

impl Sending {
    fn new(key: LineKey, message: Message) -> Self {
        let bytes = message.to_vec();
        Self {
            key,
            message,
            bytes,
            sent: 0,
        }
    }

    /// The next bytes, up to so many.
    pub fn take(&mut self, len: usize) -> Vec<u8> {
        let left = &self.bytes[self.sent..];
        let taken = left[..len.min(left.len())].to_vec();
        self.sent += taken.len();
        taken
    }

    pub const fn is_over(&self) -> bool {
        self.sent == self.bytes.len()
    }
}

/// What is under way on a line: one receive and one send at most.
#[derive(Debug, Default)]
pub struct UnderWay {
    pub receiving: Option<(LineKey, Receive)>,
    pub sending: Option<Sending>,
    /// What the line has taken at once and has not carried yet.
    pub buffered: VecDeque<u8>,
    /// A send of which all is there. Its core learns of its end with its next turn.
    pub unwatched: Option<(LineKey, Message)>,
    /// Whether somebody waits for the end of the last send.
    pub last_end: Option<SendEnd>,
    /// What was sent at the very end of a login. It may be lost with the line, and is here.
    pub last_words: Vec<u8>,
    /// It was shut: whatever is under way has ended, and is to be said so.
    pub is_shut: bool,
}

/// What sessions have put down.
#[derive(Debug, Default)]
pub struct Lines {
    pub all: BTreeMap<usize, UnderWay>,
    /// Lines that were shut, in order.
    pub shut: Vec<usize>,
    /// Frames of HyperSCSI that are to leave.
    pub frames: Vec<(hyperscsi::PlaceKey, Station, Vec<u8>)>,
    /// Why sessions have ended, in order.
    pub ended: Vec<&'static str>,
    /// What the last one of NBD left: requests under way, and bytes that were not sent.
    pub left: (u32, usize),
    /// Why logins of iSCSI and handshakes of NBD have failed; logins and groups of HyperSCSI, each with why.
    pub failed: Vec<String>,
    /// How often each notice of iSCSI has come.
    pub notices: BTreeMap<&'static str, u32>,
    /// Users at whose secrets an initiator or a client guesses.
    pub guessed: Vec<String>,
}

impl Lines {
    pub fn of(&mut self, line: usize) -> &mut UnderWay {
        self.all.entry(line).or_default()
    }

    fn receive(&mut self, line: &TestLine, key: LineKey, how: Receive) {
        let before = self.of(line.number).receiving.replace((key, how));
        assert!(before.is_none(), "two receives on {line:?}");
    }

    fn send(
        &mut self,
        line: &TestLine,
        (key, message): (LineKey, Message),
        end: SendEnd,
        is_taken: bool,
    ) {
        let under_way = self.of(line.number);
        let is_free = under_way.sending.is_none() && under_way.unwatched.is_none();
        assert!(is_free, "two sends on {line:?}");
        under_way.last_end = Some(end);
        if is_taken {
            under_way.buffered.extend(message.to_vec());
            under_way.unwatched = Some((key, message));
        } else {
            under_way.sending = Some(Sending::new(key, message));
        }
    }

    fn shut(&mut self, line: &TestLine) {
        if !std::mem::replace(&mut self.of(line.number).is_shut, true) {
            self.shut.push(line.number);
        }
    }

    /// A line goes to another core.
    fn leave(&mut self, line: &TestLine) {
        let left = self.all.remove(&line.number).unwrap_or_default();
        let is_quiet = left.receiving.is_none() && left.sending.is_none();
        assert!(
            is_quiet && left.buffered.is_empty(),
            "{left:?} on a line that leaves"
        );
    }
}

/// Mail from core to core.
#[derive(Debug)]
pub enum Mail {
    Unit(UnitIndex, Box<Letter>),
    Iscsi(iscsi::FrontLetter<TestLine>),
    Nbd(nbd::Letter<TestLine>),
    Hyperscsi(hyperscsi::Letter),
}

impl From<UnitMail> for Mail {
    fn from((unit, letter): UnitMail) -> Self {
        Self::Unit(unit, Box::new(letter))
    }
}

/// Hooks of a core with sessions.
pub trait LineHooks: Hooks<Port = Port, Mail = Mail, Lines = Lines> {
    /// Whether a line takes all of a message at once, whose end nobody waits for.
    fn takes_all(&mut self) -> bool {
        false
    }

    /// Whether initiators may reset targets cold.
    fn takes_cold_reset(&self) -> bool {
        false
    }
}

/// A core whose test decides nothing.
#[derive(Debug, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {
    type Port = Port;
    type Mail = Mail;
    type Lines = Lines;
}

impl LineHooks for NoHooks {}

impl<H: LineHooks> iscsi::Wire for Outside<H> {
    type Line = TestLine;

    fn context(&self) -> &() {
        &()
    }

    fn receive(&mut self, line: &TestLine, key: iscsi::LineKey, how: Receive) {
        self.lines.receive(line, LineKey::Iscsi(key), how);
    }

    fn send(&mut self, line: &TestLine, key: iscsi::LineKey, message: Message, end: SendEnd) {
        let is_taken = end == SendEnd::Waits && self.hooks.takes_all();
        let what = (LineKey::Iscsi(key), message);
        self.lines.send(line, what, end, is_taken);
    }

    fn shut(&mut self, line: &TestLine) {
        self.lines.shut(line);
    }

    /// What is said is lost with the line, as it may be in life.
    fn send_last(&mut self, line: TestLine, message: &Message) {
        self.lines.of(line.number).last_words = message.to_vec();
        self.lines.shut(&line);
    }

    fn post_letter(&mut self, core: usize, letter: iscsi::FrontLetter<TestLine>) {
        if let iscsi::FrontLetter::Adopt(adoption) = &letter {
            self.lines.leave(&adoption.line);
        }
        self.posted.push_back((core, Mail::Iscsi(letter)));
    }

    fn takes_cold_reset(&self, _: TargetIndex) -> bool {
        self.hooks.takes_cold_reset()
    }

    fn note_send(&mut self, _: &iscsi::Detail, _: Duration, _: usize) {}

    fn report(&mut self, notice: iscsi::Notice<'_>) {
        let lines = &mut self.lines;
        let name = match notice {
            iscsi::Notice::SessionBegins { .. } => "session begins",
            iscsi::Notice::ConnectionOpens => "connection opens",
            iscsi::Notice::ConnectionJoins { replaces, .. } => match replaces {
                true => "connection replaces another",
                false => "connection joins",
            },
            iscsi::Notice::ConnectionIsGone => "connection is gone",
            iscsi::Notice::SessionEnds { reason, .. } => {
                lines.ended.push(reason);
                "session ends"
            }
            iscsi::Notice::TaskManagement { .. } => "task management",
            iscsi::Notice::Violation { .. } => "violation",
            iscsi::Notice::LoginSucceeded => "login succeeds",
            iscsi::Notice::LoginFailed { failure, .. } => {
                lines.failed.push(failure.to_string());
                "login fails"
            }
            iscsi::Notice::Guessing { user, .. } => {
                lines.guessed.push(user.to_owned());
                "guessing"
            }
            iscsi::Notice::Displaced => "displaced",
        };
        *lines.notices.entry(name).or_default() += 1;
    }
}

impl<H: LineHooks> nbd::Wire for Outside<H> {
    type NbdLine = TestLine;

    fn receive(&mut self, line: &TestLine, key: nbd::LineKey, how: nbd::Receive) {
        let how = match how {
            nbd::Receive::Chunk { limit_bytes } => Receive::Chunk { limit_bytes },
            nbd::Receive::Exact { buffer, range } => Receive::Exact { buffer, range },
        };
        self.lines.receive(line, LineKey::Nbd(key), how);
    }

    fn send(&mut self, line: &TestLine, key: nbd::LineKey, message: Message, end: SendEnd) {
        let is_taken = end == SendEnd::Waits && self.hooks.takes_all();
        let what = (LineKey::Nbd(key), message);
        self.lines.send(line, what, end, is_taken);
    }

    fn shut(&mut self, line: &TestLine) {
        self.lines.shut(line);
    }

    fn post_letter(&mut self, core: usize, letter: nbd::Letter<TestLine>) {
        let leaves = |line: TestLine| {
            self.lines.leave(&line);
            Some(line)
        };
        let letter = letter.with_line(leaves).map(Mail::Nbd);
        self.posted.extend(letter.map(|letter| (core, letter)));
    }

    fn report(&mut self, notice: nbd::Notice<'_>) {
        match notice {
            nbd::Notice::SessionEnds {
                reason,
                under_way,
                unsent_bytes,
                ..
            } => {
                self.lines.ended.push(reason);
                self.lines.left = (under_way, unsent_bytes);
            }
            nbd::Notice::HandshakeFailed { failure, .. } => {
                self.lines.failed.push(failure.to_string());
            }
            nbd::Notice::SessionBegins { .. } | nbd::Notice::ConnectionIsGone => {}
        }
    }
}

impl<H: LineHooks> hyperscsi::Wire for Outside<H> {
    type HyperscsiSocket = ();

    fn send_frame(
        &mut self,
        (): &(),
        key: hyperscsi::PlaceKey,
        to: Station,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let mut room = [0; FRAME_MAX_BYTES as usize];
        let Some(frame) = write(&mut room).and_then(|length| room.get(..length)) else {
            return false;
        };
        self.lines.frames.push((key, to, frame.to_vec()));
        true
    }

    fn post_letter(&mut self, core: usize, letter: hyperscsi::Letter) {
        self.posted.push_back((core, Mail::Hyperscsi(letter)));
    }

    fn report(&mut self, notice: hyperscsi::Notice<'_>) {
        let lines = &mut self.lines;
        match notice {
            hyperscsi::Notice::SessionBegins { .. } => {}
            hyperscsi::Notice::SessionEnds { reason, .. } => lines.ended.push(reason),
            hyperscsi::Notice::LoginRefused { group, reason, .. } => {
                lines.failed.push(format!("{group}: {reason}"));
            }
            hyperscsi::Notice::LoginUnproved { group, .. } => {
                lines.failed.push(format!("{group}: unproved"));
            }
            hyperscsi::Notice::Guessing { user, .. } => lines.guessed.push(user.to_owned()),
            hyperscsi::Notice::GroupAway { group, place } => {
                lines.failed.push(format!("{group}: no {place}"));
            }
        }
    }
}
