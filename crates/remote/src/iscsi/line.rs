//! One connection to a target, which is one session: made, logged in, and kept moving.
//!
//! No call blocks for longer than its host lets it. A host name is looked up and a connection made in a thread of its
//! own, which holds nothing of the store's; one that hangs there is left to itself when the store ends.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use iscsi::discovery::TargetAddress;
use iscsi::framing::{FramingError, PduBuffer};
use iscsi::initiator::{
    Command, Completion, Event, Management, Outcome, ReadBuffer, Session, SubmitError,
};
use iscsi::limits::LOGIN_SEGMENT_MAX_BYTES;
use iscsi::login::{
    InitiatorLoginAction, InitiatorLoginConfig, InitiatorLoginError, LoginInitiator, RANDOM_BYTES,
};
use iscsi::pdu::{
    Cid, InitiatorTaskTag, Isid, LoginStatus, LogoutReason, TaskAttribute, TaskManagementFunction,
};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::AsFd;

use super::options::IscsiOptions;
use crate::attendants::wait;
use crate::device::look::{self, Found};
use crate::scsi::command::{
    self, BUSY, CHECK_CONDITION, Cdb, Facts, GOOD, KEY_ATTENTION, Sense, TASK_SET_FULL,
};
use crate::scsi::host::{GivenUp, Host};
use crate::scsi::jobs::{Carries, Refused, TOKENS_MAX};
use crate::tcp;

/// The data of one command, at most.
const DATA_BYTES_MAX: u32 = 1 << 20;
/// The only connection of the session.
const CONNECTION: usize = 0;
/// Commands under way. What all have to write together is bounded by the handles.
const SLOTS: usize = 64;
/// What else a session has under way: task management, a ping, the logout.
const SLOTS_SPARE: usize = SLOTS + 4;
/// How often a login is sent to another address. A few portals of one target send to each other; more is a circle.
const REDIRECTIONS_MAX: usize = 4;
/// For a login.
const LOGIN_MAX: Duration = Duration::from_secs(5);
/// For a command before the first job.
const STEP_MAX: Duration = Duration::from_secs(5);
/// For the answer to a logout.
const LOGOUT_MAX: Duration = Duration::from_secs(1);
/// How often a command is tried where the disk has something else to say first.
const TRIES: usize = 16;
/// How much is received at a time, and how often in one turn before others get theirs.
const RECEIVE_BYTES: usize = 256 << 10;
const RECEIVES_MAX: usize = 16;
/// How much is put together for one send.
const SEND_BYTES: usize = 256 << 10;
/// LOGICAL UNIT NOT SUPPORTED.
const NO_LUN: u8 = 0x25;
/// Tags of requests that are no commands.
const PING: u64 = TOKENS_MAX;
const LOGOUT: u64 = TOKENS_MAX + 1;
const FUNCTION: u64 = TOKENS_MAX + 2;

/// When time began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn new() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now(self) -> Duration {
        self.0.elapsed()
    }
}

/// Why a step failed.
#[derive(Debug)]
pub(super) enum StepError {
    GivenUp,
    /// No connection.
    Connect(io::Error),
    Login(InitiatorLoginError),
    /// The target sends this side from one address to the next, and this one ends that.
    Lost(&'static str, TargetAddress),
    /// It is this program itself.
    Own,
    /// The connection is of no more use, for this reason.
    Broken(String),
    /// Nothing came in time.
    Silent,
    /// There is no such logical unit, as far as this initiator may know.
    NoLun,
    /// It is not ready, for this reason.
    NotReady(String),
    /// The system has no random bytes.
    NoRandom,
}

impl From<GivenUp> for StepError {
    fn from(_: GivenUp) -> Self {
        Self::GivenUp
    }
}

impl From<FramingError> for StepError {
    fn from(error: FramingError) -> Self {
        Self::Broken(format!("the target breaks the protocol: {error}"))
    }
}

/// Connects to a host. A thread does it, so that the host has its turns.
fn connect(
    clock: Clock,
    (name, port): (&str, u16),
    host: &mut impl Host,
) -> Result<TcpStream, StepError> {
    let (sender, receiver) = channel();
    let name = name.to_owned();
    let connecting = move || {
        // Nobody may be left to take it.
        let _taken = sender.send(tcp::connect(&name, port));
    };
    let thread = thread::Builder::new().name("tarn-iscsi-connect".to_owned());
    let thread = thread.spawn(connecting).map_err(StepError::Connect)?;
    loop {
        let now = clock.now();
        let next = host.turn(now)?;
        let pause = next.map_or(STEP_MAX, |next| next.saturating_sub(now));
        match receiver.recv_timeout(pause) {
            Ok(connected) => {
                // It has nothing more to do; a process that is confined next wants to be alone.
                let _ended = thread.join();
                return connected.map_err(StepError::Connect);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let error = io::Error::other("the thread that connects has failed");
                return Err(StepError::Connect(error));
            }
        }
    }
}

/// Connects and logs in, at the address that is configured or wherever that sends. Each session begins there
/// again, so nothing that a target has said once outlives it.
///
/// A target that redirects has not authenticated, so where it sends to is only an address: target, initiator and
/// secrets stay those of the configuration.
pub(super) fn establish(
    clock: Clock,
    options: &IscsiOptions,
    isid: Isid,
    host: &mut impl Host,
) -> Result<Line, StepError> {
    let mut places = vec![(options.host.clone(), options.port)];
    loop {
        let Some((name, port)) = places.last() else {
            return Err(StepError::Silent);
        };
        let stream = connect(clock, (name, *port), host)?;
        if tcp::is_own(&stream, &options.own.portals).map_err(StepError::Connect)? {
            return Err(StepError::Own);
        }
        let config = options.login_config(isid);
        let error = match log_in(clock, stream, config, options.lun, host) {
            Ok(mut line) => {
                let is_there = places.len() == 1;
                line.moved = (!is_there).then(|| portal((name, *port)));
                return Ok(line);
            }
            Err(StepError::Login(error)) => error,
            Err(error) => return Err(error),
        };
        let Some(address) = redirection(&error) else {
            return Err(StepError::Login(error));
        };
        places.push(next_place(&places, address)?);
    }
}

/// An address as people write it.
fn portal((host, port): (&str, u16)) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// Where the target sends this side, if it does.
fn redirection(error: &InitiatorLoginError) -> Option<&TargetAddress> {
    let moved = [
        LoginStatus::TargetMovedTemporarily,
        LoginStatus::TargetMovedPermanently,
    ];
    let InitiatorLoginError::Refused {
        address: Some(address),
        ..
    } = error
    else {
        return None;
    };
    let has_moved = error.status().is_some_and(|status| moved.contains(&status));
    has_moved.then_some(address)
}

/// Whether this side goes to an address, after all those where it was.
fn next_place(
    places: &[(String, u16)],
    address: &TargetAddress,
) -> Result<(String, u16), StepError> {
    let lost = |why| StepError::Lost(why, address.clone());
    let is_before = |(host, port): &(String, u16)| {
        host.eq_ignore_ascii_case(&address.host) && *port == address.port
    };
    if places.iter().any(is_before) {
        return Err(lost("in a circle"));
    }
    if places.len() > REDIRECTIONS_MAX {
        return Err(lost("on too often"));
    }
    if address.port == 0 {
        return Err(lost("to no port"));
    }
    Ok((address.host.clone(), address.port))
}

/// The bytes of a connection, both ways.
#[derive(Debug)]
struct Pipe {
    stream: TcpStream,
    output: Vec<u8>,
    /// How much of it is sent.
    sent: usize,
    input: Vec<u8>,
}

impl Pipe {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            output: Vec::new(),
            sent: 0,
            input: vec![0; RECEIVE_BYTES],
        })
    }

    fn has_output(&self) -> bool {
        self.sent < self.output.len()
    }

    /// Sends as much as the socket takes.
    fn flush(&mut self) -> Result<(), String> {
        while let Some(rest) = self.output.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(count) => self.sent = self.sent.saturating_add(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(broke(&error)),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    /// What has come; nothing: there is nothing now.
    fn receive(&mut self) -> Result<&[u8], String> {
        match self.stream.read(&mut self.input) {
            Ok(0) => Err("the target closed the connection".to_owned()),
            Ok(count) => Ok(self.input.get(..count).unwrap_or_default()),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(&[])
            }
            Err(error) => Err(broke(&error)),
        }
    }

    /// Waits for the socket, something else, or so long. True when the other is ready.
    fn wait(&self, left: Duration, other: Option<&impl AsFd>) -> bool {
        let mut wanted = PollFlags::IN;
        if self.has_output() {
            wanted |= PollFlags::OUT;
        }
        let mut places = vec![PollFd::new(&self.stream, wanted)];
        places.extend(other.map(|other| PollFd::new(other, PollFlags::IN)));
        wait(&mut places, left);
        let other = places.get(1);
        other.is_some_and(|other| other.revents().contains(PollFlags::IN))
    }
}

fn broke(error: &io::Error) -> String {
    format!("the connection broke: {}", crate::words(error))
}

/// A session in full-feature phase with its connection.
#[derive(Debug)]
pub(super) struct Line {
    pipe: Pipe,
    session: Session,
    lun: u64,
    /// Where the session is, when that is not where it was looked for.
    pub(super) moved: Option<String>,
    /// What the session calls the commands under way.
    tags: HashMap<u64, InitiatorTaskTag>,
}

/// Logs in.
fn log_in(
    clock: Clock,
    stream: TcpStream,
    config: InitiatorLoginConfig,
    lun: u16,
    host: &mut impl Host,
) -> Result<Line, StepError> {
    let mut random = [0; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(|_| StepError::NoRandom)?;
    let mut pipe = Pipe::new(stream).map_err(StepError::Connect)?;
    let login = LoginInitiator::new(config, clock.now(), LOGIN_MAX, random);
    let mut login = login.map_err(|error| StepError::Login(error.into()))?;
    let mut incoming = PduBuffer::new();
    loop {
        while let Some(action) = login.poll_action() {
            match action {
                InitiatorLoginAction::Send(pdu) => {
                    pipe.output.extend_from_slice(&pdu.to_bytes(false, false));
                }
                InitiatorLoginAction::Complete(done) => {
                    let mut session = Session::new(&done, Cid(0), SLOTS + SLOTS_SPARE);
                    session.handle_bytes(CONNECTION, &incoming.into_unread());
                    return Ok(Line {
                        pipe,
                        session,
                        lun: lun_field(lun),
                        moved: None,
                        tags: HashMap::new(),
                    });
                }
                InitiatorLoginAction::Failed(InitiatorLoginError::DeadlinePassed) => {
                    return Err(StepError::Silent);
                }
                InitiatorLoginAction::Failed(error) => return Err(StepError::Login(error)),
            }
        }
        // What comes behind the last answer is not of the login.
        if let Some(pdu) = incoming.next_pdu(LOGIN_SEGMENT_MAX_BYTES, false, false)? {
            login.handle_pdu(&pdu.header, &pdu.data);
            continue;
        }
        pipe.flush().map_err(StepError::Broken)?;
        let now = clock.now();
        let next = host.turn(now)?;
        let received = pipe.receive().map_err(StepError::Broken)?;
        if !received.is_empty() {
            incoming.push(received);
            continue;
        }
        let until = login.poll_timeout().into_iter().chain(next).min();
        let left = until.map_or(STEP_MAX, |until| until.saturating_sub(now));
        pipe.wait(left, None::<&TcpStream>);
        login.handle_timeout(clock.now());
    }
}

/// The eight bytes of the LUN field.
///
/// Spec: SAM-5 section 4.7: peripheral device addressing, and flat space addressing beyond it.
fn lun_field(lun: u16) -> u64 {
    let addressed = if lun < 256 { lun } else { lun | 0x4000 };
    u64::from(addressed) << 48
}

impl Line {
    /// Takes what has come. True when something has.
    pub(super) fn receive(&mut self) -> Result<bool, String> {
        for turn in 0..RECEIVES_MAX {
            let received = self.pipe.receive()?;
            if received.is_empty() {
                return Ok(turn > 0);
            }
            self.session.handle_bytes(CONNECTION, received);
        }
        Ok(true)
    }

    /// Sends as much as the socket takes.
    pub(super) fn flush(&mut self) -> Result<(), String> {
        loop {
            self.pipe.flush()?;
            if self.pipe.has_output() {
                return Ok(());
            }
            let Pipe { output, .. } = &mut self.pipe;
            self.session.transmit(CONNECTION, output, SEND_BYTES);
            if self.pipe.output.is_empty() {
                return Ok(());
            }
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        let event = self.session.poll_event();
        if let Some(Event::Completed(done)) = &event {
            self.tags.remove(&done.tag);
        }
        event
    }

    /// Waits for the connection, something else, or so long. True when the other is ready.
    pub(super) fn wait(&self, left: Duration, other: Option<&impl AsFd>) -> bool {
        self.pipe.wait(left, other)
    }

    /// How long the target wants to be left alone after the session.
    pub(super) fn time_to_wait(&self) -> Duration {
        Duration::from_secs(self.session.parameters().default_time2wait_s.into())
    }

    /// Asks the target whether it is there. It answers with [`Event::Pong`].
    pub(super) fn ping(&mut self) {
        // Where there is no room, much is under way, and that is answered.
        let _taken = self.session.ping(CONNECTION, PING, Vec::new());
    }

    /// Says goodbye. [`Event::LoggedOut`] follows.
    pub(super) fn begin_logout(&mut self) {
        let reason = LogoutReason::CloseSession;
        // Where that is not taken, the connection is closed without it.
        let _taken = self.session.logout(CONNECTION, LOGOUT, reason, CONNECTION);
    }

    /// Ends the session; waits a moment for the target's answer.
    pub(super) fn log_out(mut self, clock: Clock) {
        self.begin_logout();
        let until = clock.now() + LOGOUT_MAX;
        loop {
            let left = until.saturating_sub(clock.now());
            if left.is_zero() || self.flush().is_err() || self.receive().is_err() {
                return;
            }
            while let Some(event) = self.poll_event() {
                if matches!(event, Event::LoggedOut { .. } | Event::Failed { .. }) {
                    return;
                }
            }
            self.wait(left, None::<&TcpStream>);
        }
    }

    /// Looks at the disk.
    pub(super) fn look(
        &mut self,
        clock: Clock,
        host: &mut impl Host,
    ) -> Result<Option<Facts>, StepError> {
        self.ask(clock, &command::test_unit_ready(), host)?;
        host.begin_look();
        Facts::find(DATA_BYTES_MAX, |cdb| self.ask(clock, &cdb, host))
    }

    /// Looks at a device of any type, which may have no medium. `None`: it does not say what it is.
    pub(super) fn look_at_device(
        &mut self,
        clock: Clock,
        host: &mut impl Host,
    ) -> Result<Option<Found>, StepError> {
        // What it has to say first comes now.
        self.try_ask(clock, &command::test_unit_ready(), host)?;
        look::find(|cdb| self.ask(clock, &cdb, host))
    }

    /// One command, before the first job. The data that it brought; `None` where the device refuses it.
    fn ask(
        &mut self,
        clock: Clock,
        cdb: &Cdb,
        host: &mut impl Host,
    ) -> Result<Option<Vec<u8>>, StepError> {
        let is_test = cdb.bytes.first() == Some(&0);
        match self.try_ask(clock, cdb, host)? {
            Asked::Data(data) => Ok(Some(data)),
            Asked::Check(sense) if is_test => Err(StepError::NotReady(sense.not_ready())),
            Asked::Check(_) | Asked::Refused => Ok(None),
        }
    }

    fn try_ask(
        &mut self,
        clock: Clock,
        cdb: &Cdb,
        host: &mut impl Host,
    ) -> Result<Asked, StepError> {
        for token in 0..TRIES as u64 {
            let copy = Cdb {
                bytes: cdb.bytes.clone(),
                data: cdb.data.clone(),
                room: cdb.room,
            };
            let taken = self.submit(clock.now(), token, copy);
            taken.map_err(|_| StepError::Broken("the target takes no command".to_owned()))?;
            let done = self.complete(clock, token, host);
            let done = done.map_err(|error| {
                if matches!(error, StepError::Silent) {
                    StepError::Broken(format!("{cdb} is not answered"))
                } else {
                    error
                }
            })?;
            match done.outcome {
                Outcome::Status(GOOD) => return Ok(Asked::Data(data_of(done))),
                Outcome::Status(CHECK_CONDITION) => {
                    let sense = Sense::parse(&done.sense);
                    match sense.key {
                        KEY_ATTENTION => host.note_attention(sense),
                        _ if sense.code == NO_LUN => return Err(StepError::NoLun),
                        _ => return Ok(Asked::Check(sense)),
                    }
                }
                Outcome::Status(BUSY | TASK_SET_FULL) => {
                    self.pause(clock, host)?;
                }
                Outcome::Status(_) => return Ok(Asked::Refused),
                Outcome::TargetFailure | Outcome::Aborted | Outcome::Rejected(_) => {
                    return Err(StepError::Broken("the target fails a command".to_owned()));
                }
                Outcome::ConnectionLost => {
                    return Err(StepError::Broken("a command is lost".to_owned()));
                }
            }
        }
        Err(StepError::NotReady("the disk is busy".to_owned()))
    }

    /// Waits for a command.
    fn complete(
        &mut self,
        clock: Clock,
        token: u64,
        host: &mut impl Host,
    ) -> Result<Completion, StepError> {
        let until = clock.now() + STEP_MAX;
        loop {
            while let Some(event) = self.poll_event() {
                match event {
                    Event::Completed(done) if done.tag == token => {
                        // Why it was lost comes next.
                        if done.outcome != Outcome::ConnectionLost {
                            return Ok(done);
                        }
                    }
                    Event::Failed { violation, .. } => {
                        let reason = format!("the target breaks the protocol: {violation}");
                        return Err(StepError::Broken(reason));
                    }
                    Event::Completed(_)
                    | Event::ManagementDone { .. }
                    | Event::Pong { .. }
                    | Event::Text { .. }
                    | Event::LoggedOut { .. }
                    | Event::Async { .. }
                    | Event::Rejected { .. }
                    | Event::RequestLost { .. } => {}
                }
            }
            let now = clock.now();
            if now >= until {
                return Err(StepError::Silent);
            }
            let next = host.turn(now)?;
            self.flush().map_err(StepError::Broken)?;
            if !self.receive().map_err(StepError::Broken)? {
                let until = next.map_or(until, |next| next.min(until));
                self.wait(until.saturating_sub(now), None::<&TcpStream>);
            }
        }
    }

    /// Waits a moment.
    fn pause(&self, clock: Clock, host: &mut impl Host) -> Result<(), StepError> {
        let until = clock.now() + Duration::from_millis(100);
        loop {
            let now = clock.now();
            if now >= until {
                return Ok(());
            }
            let next = host.turn(now)?;
            let until = next.map_or(until, |next| next.min(until));
            wait(&mut [], until.saturating_sub(now));
        }
    }
}

/// What a command before the first job came to.
enum Asked {
    Data(Vec<u8>),
    Check(Sense),
    /// With another status.
    Refused,
}

/// The data that came for a command.
pub(super) fn data_of(done: Completion) -> Vec<u8> {
    let mut data = match done.read {
        ReadBuffer::Into(buffer) => buffer,
        ReadBuffer::None | ReadBuffer::Discard { .. } => Vec::new(),
    };
    data.truncate(usize::try_from(done.received_bytes).unwrap_or(usize::MAX));
    data
}

impl Carries for Line {
    fn slots(&self) -> usize {
        SLOTS
    }

    fn submit(&mut self, _now: Duration, token: u64, cdb: Cdb) -> Result<(), Refused> {
        let mut block = [0; 16];
        for (place, byte) in block.iter_mut().zip(&cdb.bytes) {
            *place = *byte;
        }
        let extended_cdb = cdb.bytes.get(block.len()..).unwrap_or_default().to_vec();
        let read = match cdb.room {
            0 => ReadBuffer::None,
            room => ReadBuffer::Into(vec![0; usize::try_from(room).unwrap_or_default()]),
        };
        let taken = self.session.submit(Command {
            tag: token,
            lun: self.lun,
            cdb: block,
            extended_cdb,
            attribute: TaskAttribute::Simple,
            write: (!cdb.data.is_empty()).then(|| cdb.data.shared()),
            read,
        });
        match taken {
            Ok(itt) => {
                self.tags.insert(token, itt);
                Ok(())
            }
            Err((SubmitError::Full { .. }, _)) => Err(Refused::Full),
            Err((SubmitError::TooLong, _)) => Err(Refused::Length),
            Err(_) => Err(Refused::Ended("the connection is lost")),
        }
    }

    fn abort(&mut self, _now: Duration, token: u64) {
        if let Some(itt) = self.tags.get(&token) {
            let management = Management {
                function: TaskManagementFunction::AbortTask,
                lun: self.lun,
                task: Some(*itt),
            };
            // Where there is no room, the command ends by itself.
            let _taken = self.session.manage(CONNECTION, FUNCTION, management);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_is_followed_to_a_place_that_is_new_and_not_for_ever() {
        let mut places = vec![("Host".to_owned(), 3260)];
        let next = |places: &[_], text| next_place(places, &TargetAddress::parse(text).unwrap());
        for text in ["host", "host:3260,1", "host:0", "[::1]:0"] {
            assert!(
                matches!(next(&places, text), Err(StepError::Lost(..))),
                "{text}"
            );
        }
        for text in ["host:3261", "[::1]", "192.0.2.1,1", "d"] {
            places.push(next(&places, text).unwrap());
        }
        assert_eq!(places.len(), REDIRECTIONS_MAX + 1);
        let lost = next(&places, "e").unwrap_err();
        assert!(
            matches!(lost, StepError::Lost("on too often", _)),
            "{lost:?}"
        );
        assert_eq!(portal(("::1", 3260)), "[::1]:3260");
        assert_eq!(portal(("h", 1)), "h:1");
    }

    #[test]
    fn only_a_target_that_has_moved_redirects() {
        let refused = |class, detail| InitiatorLoginError::Refused {
            class,
            detail,
            address: TargetAddress::parse("h"),
        };
        assert!(redirection(&refused(1, 1)).is_some());
        assert!(redirection(&refused(1, 2)).is_some());
        assert!(redirection(&refused(2, 3)).is_none());
        assert!(redirection(&refused(1, 9)).is_none());
        assert!(redirection(&InitiatorLoginError::DeadlinePassed).is_none());
    }

    #[test]
    fn numbers_of_units_are_addressed_as_the_standard_says() {
        for (lun, field) in [(0, 0), (5, 0x0005), (255, 0x00ff), (256, 0x4100)] {
            assert_eq!(lun_field(lun), field << 48);
        }
    }
}
