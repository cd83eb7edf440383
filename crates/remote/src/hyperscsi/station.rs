//! What a client does before it has a device, step by step, in blocking calls: find servers, log in, list, open.
//!
//! The caller has something else to look after while it waits ([`Host`]), and may want it to end.

use std::time::{Duration, Instant};

use hyperscsi::{
    Attribute, ClientEvent, ClientSession, Command, Data, Device, Entropy, Found, FragmentHeader,
    Level, Login, LoginError, LoginProgress, OpaqueClient, Opening, Outcome, Reply, Search,
    Settings, Wish,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;

use super::wire::{Place, Wire, of_bytes, to_bytes};
use crate::scsi::command::{
    self, BUSY, CHECK_CONDITION, Cdb, Facts, GOOD, KEY_ATTENTION, Sense, TASK_SET_FULL,
};
use crate::scsi::host::{GivenUp, Host};
use crate::scsi::job::Bytes;
use crate::scsi::medium::Identity;

/// For one step: a login, a part of the table, an opening.
const STEP_MAX: Duration = Duration::from_secs(10);
/// The table of a server is read in so many parts at most: it has 1024 devices at most, and a part at least one.
const PARTS_MAX: usize = 1024;
/// Commands under way. What all have to write together is bounded by the handles.
const SLOTS: u16 = 64;
/// How often a command is tried where the device has something else to say first.
const TRIES: usize = 16;
/// Frames that are taken in one turn before others get theirs.
const FRAMES_MAX: usize = 128;

/// Why a step failed.
#[derive(Debug)]
pub(super) enum StepError {
    GivenUp,
    Login(LoginError),
    /// The session has ended, or has no answer.
    Broken(&'static str),
    /// The device has left.
    Unknown,
}

impl From<GivenUp> for StepError {
    fn from(_: GivenUp) -> Self {
        Self::GivenUp
    }
}

pub(super) type Session = ClientSession<Bytes>;

/// A session, and where its server is.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) session: Box<Session>,
    pub(super) place: Place,
    /// That is open; 0 while none is.
    pub(super) device: u16,
}

/// The end of a store on the network.
#[derive(Debug)]
pub(super) struct Station {
    pub(super) wire: Wire,
    began: Instant,
    entropy: Entropy,
    client: [u8; 16],
}

impl Station {
    pub(super) fn new(wire: Wire, seed: &[u8; 32]) -> Self {
        let mut entropy = Entropy::new(seed);
        Self {
            wire,
            began: Instant::now(),
            client: entropy.bytes(),
            entropy,
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// When its time was zero.
    pub(super) const fn began(&self) -> Instant {
        self.began
    }

    fn seed(&mut self) -> Entropy {
        Entropy::new(&self.entropy.bytes())
    }

    /// Waits for a frame or this moment; `take` gets the frame.
    fn receive<T>(
        &mut self,
        until: Duration,
        host: &mut impl Host,
        take: impl FnOnce(Place, &[u8]) -> T,
    ) -> Result<Option<T>, GivenUp> {
        let next = host.turn(self.now())?;
        if let Some((from, frame)) = self.wire.receive() {
            return Ok(Some(take(from, frame)));
        }
        let until = next.map_or(until, |next| next.min(until));
        self.wait(until, None::<&Wire>);
        Ok(self.wire.receive().map(|(from, frame)| take(from, frame)))
    }

    /// Waits for the wire, something else, or this moment. Looks for an interface that is away. True when the other is
    /// ready.
    pub(super) fn wait(&mut self, until: Duration, other: Option<&impl AsFd>) -> bool {
        self.wire.look(self.now());
        let until = self.wire.look_at().map_or(until, |at| at.min(until));
        let left = until.saturating_sub(self.now());
        // Rounded up: a turn too early would find nothing to do.
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let wire = PollFd::new(&self.wire, PollFlags::IN);
        // An interrupted wait is a short one.
        let Some(other) = other else {
            let _ready = poll(&mut [wire], Some(&left));
            return false;
        };
        let mut places = [wire, PollFd::new(other, PollFlags::IN)];
        let _ready = poll(&mut places, Some(&left));
        let [_, other] = places;
        other.revents().contains(PollFlags::IN)
    }

    /// Asks for servers until this moment, or until `is_enough`, which sees each new one.
    pub(super) fn search(
        &mut self,
        groups: Vec<String>,
        until: Duration,
        host: &mut impl Host,
        mut is_enough: impl FnMut(&Found) -> bool,
    ) -> Result<Vec<Found>, GivenUp> {
        let entropy = self.seed();
        let mut search = Search::new(self.now(), self.client, groups, entropy);
        loop {
            let now = self.now();
            if now >= until {
                break;
            }
            if let Some(frame) = search.poll_frame(now) {
                self.wire.ask(&frame);
            }
            let deadline = until.min(search.deadline());
            let taken = self.receive(deadline, host, |from, frame| {
                let found = search.handle_frame(&to_bytes(&from), frame);
                found.is_some_and(&mut is_enough)
            })?;
            if taken == Some(true) {
                break;
            }
        }
        Ok(search.found().cloned().collect())
    }

    /// Logs in at a server. What comes of it is in the hands of [`Sessions`].
    fn log_in(
        &mut self,
        found: &Found,
        (group, user, password): (&str, Option<&str>, &[u8]),
        silence: Duration,
        host: &mut impl Host,
    ) -> Result<Connection, StepError> {
        let place = of_bytes(&found.address).ok_or(StepError::Broken("it has no address"))?;
        let now = self.now();
        self.wire.look_at_mtu(now);
        let (frame_bytes, frame_bytes_max) = self.wire.frame_bytes();
        let settings = Settings {
            frame_bytes,
            frame_bytes_max,
            silence,
            ..Settings::default()
        };
        let wish = Wish {
            client: self.client,
            group: group.to_owned(),
            user: user.map(str::to_owned),
            slots: SLOTS,
            window: settings.window,
            begun_bytes: settings.begun_bytes,
            frame_bytes_max: settings.frame_bytes_max,
            bundles: true,
        };
        let exchange = OpaqueClient::new(password, &mut self.entropy)
            .ok_or(StepError::Broken("the random bytes are of no use"))?;
        let (now, entropy) = (self.now(), self.seed());
        self.wire.set_session(None);
        let mut login = Login::new(
            now,
            now + STEP_MAX,
            wish,
            settings,
            found.answer.cookie,
            exchange,
            entropy,
        );
        loop {
            let now = self.now();
            if let Some(frame) = login.poll_frame(now) {
                self.wire.send(place, &frame);
            }
            let mut progress = login.handle_deadline(now);
            if matches!(progress, LoginProgress::Going) {
                let (until, began) = (login.deadline(), self.began);
                let taken = self.receive(until, host, |from, frame| {
                    (from == place && tag_of(frame) == Some(0))
                        .then(|| login.handle_frame(began.elapsed(), frame))
                })?;
                progress = taken.flatten().unwrap_or(progress);
            }
            match progress {
                LoginProgress::Going => {}
                LoginProgress::Done(session) => {
                    let terms = session.terms();
                    let last = terms.first_tag.saturating_add(terms.slots);
                    self.wire.set_session(Some((place, terms.first_tag, last)));
                    return Ok(Connection {
                        session,
                        place,
                        device: 0,
                    });
                }
                LoginProgress::Failed(error) => return Err(StepError::Login(error)),
            }
        }
    }

    /// The table of devices.
    pub(super) fn list(
        &mut self,
        connection: &mut Connection,
        host: &mut impl Host,
    ) -> Result<Vec<Device>, StepError> {
        let mut table: Vec<Device> = Vec::new();
        for _ in 0..PARTS_MAX {
            let now = self.now();
            let first = u16::try_from(table.len()).unwrap_or(u16::MAX);
            connection.session.list(now, first);
            let page = self.event(connection, host, |event| match event {
                ClientEvent::Devices(page) => Some(page),
                ClientEvent::Answer { .. }
                | ClientEvent::Lost { .. }
                | ClientEvent::Opening { .. }
                | ClientEvent::Ended(_) => None,
            })?;
            let is_last = page.devices.is_empty();
            table.extend(page.devices);
            if is_last || table.len() >= usize::from(page.total) {
                return Ok(table);
            }
        }
        Err(StepError::Broken("its table of devices has no end"))
    }

    /// Opens a device at its level, or at a higher one that is asked for. Gives the level.
    pub(super) fn open(
        &mut self,
        connection: &mut Connection,
        device: &Device,
        level: Option<Level>,
        host: &mut impl Host,
    ) -> Result<Level, StepError> {
        let mut level = level.map_or(device.level, |level| level.max(device.level));
        // Each time a server asks for more there is less above it.
        for _ in Level::ALL {
            let now = self.now();
            connection.session.open(now, device.handle, level);
            let opening = self.event(connection, host, |event| match event {
                ClientEvent::Opening { opening, .. } => Some(opening),
                ClientEvent::Answer { .. }
                | ClientEvent::Lost { .. }
                | ClientEvent::Devices(_)
                | ClientEvent::Ended(_) => None,
            })?;
            match opening {
                Opening::Open(level) => {
                    connection.device = device.handle;
                    return Ok(level);
                }
                Opening::TooLow(least) if least > level => level = least,
                Opening::TooLow(_) | Opening::OtherLevel(_) => break,
                Opening::Unknown => return Err(StepError::Unknown),
            }
        }
        Err(StepError::Broken(
            "it refuses to open the device at the level that it asks for",
        ))
    }

    /// Waits for an event of this kind.
    pub(super) fn event<T>(
        &mut self,
        connection: &mut Connection,
        host: &mut impl Host,
        mut take: impl FnMut(ClientEvent) -> Option<T>,
    ) -> Result<T, StepError> {
        let until = self.now() + STEP_MAX;
        loop {
            while let Some(event) = connection.session.poll_event() {
                if let ClientEvent::Ended(_) = event {
                    return Err(StepError::Broken("the session has ended"));
                }
                if let Some(found) = take(event) {
                    return Ok(found);
                }
            }
            let now = self.now();
            if now >= until {
                return Err(StepError::Broken("it does not answer in its session"));
            }
            self.send_all(connection);
            let deadline = connection.session.deadline().unwrap_or(until).min(until);
            let began = self.began;
            self.receive(deadline, host, |from, frame| {
                hand_over(began.elapsed(), connection, from, frame)
            })?;
            let now = self.now();
            if connection.session.deadline().is_some_and(|at| at <= now) {
                connection.session.handle_deadline(now);
            }
        }
    }

    /// Asks a device what it is.
    pub(super) fn facts(
        &mut self,
        connection: &mut Connection,
        device: &Device,
        host: &mut impl Host,
    ) -> Result<Facts, StepError> {
        let handle = device.handle;
        let data_bytes_max = device
            .data_max_bytes
            .clamp(4096, hyperscsi::limits::DATA_MAX_BYTES);
        // What it has to say by itself comes first.
        self.ask(connection, handle, &command::test_unit_ready(), host)?;
        host.begin_look();
        let ask = |cdb: Cdb| self.ask(connection, handle, &cdb, host);
        let found = Facts::find(data_bytes_max, ask)?;
        let mut facts = found.ok_or(StepError::Broken("the device has no size"))?;
        facts.identity = Identity::with_naa(facts.identity, &device.designator);
        Ok(facts)
    }

    /// One command. `None` where the device refuses it.
    fn ask(
        &mut self,
        connection: &mut Connection,
        device: u16,
        cdb: &Cdb,
        host: &mut impl Host,
    ) -> Result<Option<Data>, StepError> {
        for token in 0..TRIES as u64 {
            let command = Command {
                attribute: Attribute::Simple,
                cdb: cdb.bytes.clone(),
                data_in_bytes: cdb.room,
                data_out_bytes: 0,
            };
            let now = self.now();
            let submitted =
                connection
                    .session
                    .submit(now, token, device, command, cdb.data.clone());
            submitted.map_err(|_| StepError::Broken("it takes no command"))?;
            let answer = self.event(connection, host, |event| match event {
                ClientEvent::Answer {
                    token: of,
                    reply,
                    data,
                } if of == token => Some(Some((reply, data))),
                ClientEvent::Lost { token: of, .. } if of == token => Some(None),
                ClientEvent::Answer { .. }
                | ClientEvent::Lost { .. }
                | ClientEvent::Devices(_)
                | ClientEvent::Opening { .. }
                | ClientEvent::Ended(_) => None,
            })?;
            let Some((reply, data)) = answer else {
                return Err(StepError::Broken("a command is lost"));
            };
            match verdict(&reply) {
                Verdict::Good => return Ok(Some(data)),
                Verdict::Refused => return Ok(None),
                Verdict::Again => host.note_attention(Sense::parse(&reply.sense)),
            }
        }
        Err(StepError::Broken("the device is busy"))
    }

    /// Takes what has come for a session: how many frames came, and whether one was of its server.
    pub(super) fn take_frames(&mut self, connection: &mut Connection) -> (usize, bool) {
        let (mut taken, mut heard) = (0, false);
        let now = self.now();
        while taken < FRAMES_MAX
            && let Some((from, frame)) = self.wire.receive()
        {
            heard |= hand_over(now, connection, from, frame);
            taken += 1;
        }
        (taken, heard)
    }

    /// Sends what a session has to send.
    pub(super) fn send_all(&mut self, connection: &mut Connection) {
        let now = self.now();
        while let Some(count) = connection.session.poll_frame(now, self.wire.room()) {
            self.wire.push(count, connection.place);
        }
        self.wire.flush();
    }

    /// Ends a session that is not needed any more; its server gets a frame, once.
    pub(super) fn close(&mut self, mut connection: Connection) {
        connection.session.close();
        self.send_all(&mut connection);
        self.wire.set_session(None);
    }

    /// Waits until this moment.
    pub(super) fn pause(&mut self, until: Duration, host: &mut impl Host) -> Result<(), GivenUp> {
        while self.now() < until {
            // What comes now is for nobody.
            let _frame = self.receive(until, host, |_, _| ())?;
        }
        Ok(())
    }
}

/// Sessions that are begun to look at servers. When this goes, whatever the reason, those that nobody has kept are
/// logged out: else a server would have each of them until its keep-alive ends.
#[derive(Debug)]
pub(super) struct Sessions<'a> {
    station: &'a mut Station,
    open: Vec<Connection>,
}

impl<'a> Sessions<'a> {
    pub(super) const fn new(station: &'a mut Station) -> Self {
        let open = Vec::new();
        Self { station, open }
    }

    /// Logs in at a server.
    pub(super) fn log_in(
        &mut self,
        found: &Found,
        who: (&str, Option<&str>, &[u8]),
        silence: Duration,
        host: &mut impl Host,
    ) -> Result<(&mut Station, &mut Connection), StepError> {
        let connection = self.station.log_in(found, who, silence, host)?;
        self.open.push(connection);
        self.last()
    }

    /// The session that was begun last, of those that there are.
    pub(super) fn last(&mut self) -> Result<(&mut Station, &mut Connection), StepError> {
        let last = self.open.last_mut();
        Ok((self.station, last.ok_or(NO_SESSION)?))
    }

    /// Logs out of the one that was begun last.
    pub(super) fn end_last(&mut self) {
        if let Some(connection) = self.open.pop() {
            self.station.close(connection);
        }
    }

    /// The one that was begun last, which is the caller's from now on.
    pub(super) fn keep_last(mut self) -> Result<Connection, StepError> {
        self.open.pop().ok_or(NO_SESSION)
    }
}

impl Drop for Sessions<'_> {
    fn drop(&mut self) {
        while !self.open.is_empty() {
            self.end_last();
        }
    }
}

const NO_SESSION: StepError = StepError::Broken("there is no session");

/// Whether it was a frame of the server of this session. One with tag 0 may be anybody's.
fn hand_over(now: Duration, connection: &mut Connection, from: Place, frame: &[u8]) -> bool {
    if from != connection.place {
        return false;
    }
    match tag_of(frame) {
        Some(0) => {
            if let Some(tag) = hyperscsi::read_unknown_session(frame) {
                connection.session.handle_unknown(tag);
            }
            false
        }
        // Another session of this machine may have its frames here, too.
        Some(tag) if connection.session.has_tag(tag) => {
            connection.session.handle_frame(now, frame);
            true
        }
        Some(_) | None => false,
    }
}

fn tag_of(frame: &[u8]) -> Option<u16> {
    let head = frame.first_chunk::<3>()?;
    Some(FragmentHeader::decode(*head).tag)
}

enum Verdict {
    Good,
    Refused,
    Again,
}

fn verdict(reply: &Reply) -> Verdict {
    match reply.outcome {
        Outcome::Status(GOOD) => Verdict::Good,
        Outcome::Status(CHECK_CONDITION) if Sense::parse(&reply.sense).key == KEY_ATTENTION => {
            Verdict::Again
        }
        Outcome::Status(BUSY | TASK_SET_FULL) => Verdict::Again,
        Outcome::Status(_)
        | Outcome::Aborted
        | Outcome::NotOpen
        | Outcome::Malformed
        | Outcome::FunctionComplete
        | Outcome::FunctionRejected => Verdict::Refused,
    }
}
