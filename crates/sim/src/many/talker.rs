//! A client of HyperSCSI: discovery, login and session that ship, and what it asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use front::Station;
use hyperscsi::limits::FRAME_MAX_BYTES;
use hyperscsi::testing::UnstretchedClient;
use hyperscsi::{
    Attribute, ClientEvent, ClientSession, Command, EndReason, Entropy, FragmentHeader, Function,
    Level, Login, LoginError, LoginProgress, Opening, Outcome, Reply, Retransmit, Search, Settings,
    Wish, read_unknown_session,
};

use super::books::Books;
use super::client::{COMMANDS_MAX, Client, FAIR, sense_of};
use super::served::{GROUP, PASSWORD};
use crate::disk::BLOCK_BYTES;
use crate::initiator::{Breach, Operation};
use crate::ledger::Handle;
use crate::prng::Prng;

/// A login that takes longer is given up.
const LOGIN_MAX: Duration = Duration::from_secs(20);

/// Whether the data of a command are as long as it takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fit {
    Exact,
    /// There are more of them.
    Longer,
    /// There are fewer.
    Shorter,
}

/// A command that has no answer yet.
#[derive(Debug)]
struct Asked {
    handle: Handle,
    operation: Operation,
    fit: Fit,
}

#[derive(Debug)]
enum Stage {
    Away,
    Searching(Box<Search>),
    LoggingIn(Box<Login<UnstretchedClient>>),
    In(Box<ClientSession<Vec<u8>>>),
}

/// See above.
#[derive(Debug)]
pub(super) struct Talker {
    player: usize,
    station: Station,
    id: [u8; 16],
    level: Level,
    settings: Settings,
    slots: u16,
    stage: Stage,
    /// See [`Client::is_bereft`].
    is_bereft: bool,
    /// Its open devices.
    devices: BTreeSet<u16>,
    asked: BTreeMap<u64, Asked>,
    /// Functions that have no answer yet, and their devices; of a reset, the books' name of it.
    functions: BTreeMap<u64, (u16, Option<Handle>)>,
    next_token: u64,
    prng: Prng,
    buffer: Vec<u8>,
    /// Last frames of a session that is over.
    parting: Vec<Vec<u8>>,
}

impl Talker {
    pub(super) fn new(player: usize, mut prng: Prng) -> Self {
        let byte = u8::try_from(player).unwrap_or(u8::MAX);
        let settings = Settings {
            retransmit: match prng.chance(500) {
                true => Retransmit::Selective,
                false => Retransmit::Window,
            },
            window: prng.pick(&[8, 64, 256]).unwrap_or(64),
            ..Settings::default()
        };
        Self {
            player,
            station: Station::Link([2, 0, 0, 0, 1, byte]),
            id: [byte; 16],
            level: prng
                .pick(&[Level::Crc, Level::Hash, Level::Encrypt])
                .unwrap_or(Level::Crc),
            settings,
            slots: prng.pick(&[3, 8, 32]).unwrap_or(8),
            stage: Stage::Away,
            is_bereft: false,
            devices: BTreeSet::new(),
            asked: BTreeMap::new(),
            functions: BTreeMap::new(),
            next_token: 1,
            prng,
            buffer: vec![0; usize::from(FRAME_MAX_BYTES)],
            parting: Vec::new(),
        }
    }

    fn entropy(&mut self) -> Entropy {
        Entropy::new(&std::array::from_fn(|_| {
            self.prng.next_u64().to_be_bytes()[0]
        }))
    }

    // ---- sessions ----------------------------------------------------------------------------

    fn log_in(&mut self, now: Duration, cookie: [u8; 16]) {
        let mut entropy = self.entropy();
        let Some(exchange) = UnstretchedClient::new(PASSWORD, &mut entropy) else {
            return;
        };
        let wish = Wish {
            client: self.id,
            group: GROUP.to_owned(),
            user: None,
            slots: self.slots,
            window: self.settings.window,
            begun_bytes: self.settings.begun_bytes,
            frame_bytes_max: self.settings.frame_bytes_max,
            // Some are as old as frames with one PDU each.
            bundles: self.player % 3 != 2,
        };
        let until = now + LOGIN_MAX;
        let login = Login::new(now, until, wish, self.settings, cookie, exchange, entropy);
        self.stage = Stage::LoggingIn(Box::new(login));
    }

    fn follow(
        &mut self,
        now: Duration,
        progress: LoginProgress<Vec<u8>>,
        books: &mut Books,
    ) -> Result<(), Breach> {
        match progress {
            LoginProgress::Going => Ok(()),
            LoginProgress::Failed(error @ LoginError::Password) => {
                Err(Breach::new(FAIR, format!("a login ends: {error}")))
            }
            LoginProgress::Failed(LoginError::NoPlace | LoginError::Silent) => {
                self.stage = Stage::Away;
                Ok(())
            }
            LoginProgress::Done(mut session) => {
                books.rejoin(self.player);
                self.devices.clear();
                for device in books.numbers(self.player) {
                    session.open(now, device, self.level);
                }
                self.stage = Stage::In(session);
                self.is_bereft = false;
                Ok(())
            }
        }
    }

    fn take_events(&mut self, books: &mut Books) -> Result<(), Breach> {
        while let Stage::In(session) = &mut self.stage
            && let Some(event) = session.poll_event()
        {
            match event {
                ClientEvent::Answer { token, reply, data } => {
                    self.handle_answer(token, &reply, &data, books)?;
                }
                ClientEvent::Lost { token, was_sent } => {
                    self.functions.remove(&token);
                    match self.asked.remove(&token) {
                        Some(asked) if was_sent => books.lose(asked.handle),
                        Some(asked) => books.refuse(asked.handle),
                        None => {}
                    }
                }
                ClientEvent::Devices(_) => {}
                ClientEvent::Opening { device, opening } => match opening {
                    Opening::Open(_) => {
                        self.devices.insert(device);
                        books.note_opened((self.player, device));
                    }
                    // It is not there now.
                    Opening::Unknown => drop(self.devices.remove(&device)),
                    Opening::TooLow(_) | Opening::OtherLevel(_) => {
                        return Err(Breach::new(FAIR, format!("{opening:?}")));
                    }
                },
                ClientEvent::Ended(EndReason::Forged) => {
                    return Err(Breach::new(FAIR, "too many frames are forged".to_owned()));
                }
                ClientEvent::Ended(_) => self.vanish(books),
            }
        }
        Ok(())
    }

    fn handle_answer(
        &mut self,
        token: u64,
        reply: &Reply,
        data: &[u8],
        books: &mut Books,
    ) -> Result<(), Breach> {
        if let Some((_, reset)) = self.functions.remove(&token) {
            if let Some(reset) = reset {
                books.end_reset(reset, reply.outcome == Outcome::FunctionComplete);
            }
            let is_of_one = matches!(
                reply.outcome,
                Outcome::FunctionComplete | Outcome::FunctionRejected | Outcome::NotOpen
            );
            return match is_of_one {
                true => Ok(()),
                false => Err(Breach::new(FAIR, format!("a function ends with {reply:?}"))),
            };
        }
        let Some(asked) = self.asked.remove(&token) else {
            return Err(Breach::new("one-outcome", format!("{token} ends twice")));
        };
        match reply.outcome {
            Outcome::Status(status) => {
                let sense = sense_of(&reply.sense);
                let too_short = sense == Some((0x0b, 0x0c, 0x0d));
                // The device server takes what is announced, and ends what needs another amount whole.
                let is_wrong_length = sense == Some((0x05, 0x0e, 0x03));
                let is_misfit = asked.fit != Fit::Exact && is_wrong_length;
                if is_misfit || asked.fit == Fit::Shorter && too_short {
                    books.refuse(asked.handle);
                    return Ok(());
                }
                check(&asked, status, reply, data)?;
                books.answer(asked.handle, (status, sense), data)
            }
            Outcome::Aborted if books.may_vanish(asked.handle) => {
                books.forget(asked.handle);
                Ok(())
            }
            Outcome::NotOpen if books.may_miss(asked.handle) => {
                self.devices.clear();
                books.refuse(asked.handle);
                Ok(())
            }
            Outcome::Aborted
            | Outcome::NotOpen
            | Outcome::Malformed
            | Outcome::FunctionComplete
            | Outcome::FunctionRejected => {
                let detail = format!("{:?} ends with {:?}", asked.operation, reply.outcome);
                Err(Breach::new("every-status-has-a-reason", detail))
            }
        }
    }
}

impl Client for Talker {
    fn is_away(&self) -> bool {
        matches!(self.stage, Stage::Away)
    }

    fn is_waiting(&self) -> bool {
        !self.asked.is_empty() || !self.functions.is_empty()
    }

    fn has_open(&self) -> bool {
        let is_coming = matches!(self.stage, Stage::Searching(_) | Stage::LoggingIn(_));
        is_coming || self.is_waiting()
    }

    fn state(&self) -> String {
        let asked = self.asked.values().map(|asked| &asked.operation);
        let (asked, functions) = (asked.collect::<Vec<_>>(), self.functions.len());
        format!(
            "player {} waits for {asked:?} and {functions} functions",
            self.player
        )
    }

    /// Looks for the server first, or knows it.
    fn connect(&mut self, now: Duration, _: usize) -> Result<(), Breach> {
        if self.prng.chance(300) {
            let groups = vec![GROUP.to_owned()];
            let search = Search::new(now, self.id, groups, self.entropy());
            self.stage = Stage::Searching(Box::new(search));
        } else {
            self.log_in(now, [0; 16]);
        }
        Ok(())
    }

    fn can_ask(&self) -> bool {
        matches!(self.stage, Stage::In(_)) && self.asked.len() < COMMANDS_MAX
    }

    fn ask(&mut self, now: Duration, books: &mut Books, number: u16, operation: Operation) {
        let Stage::In(session) = &mut self.stage else {
            return;
        };
        if !self.devices.contains(&number) {
            session.open(now, number, self.level);
            return;
        }
        let mut data = operation.data_out();
        let is_plain = matches!(operation, Operation::Write { .. });
        let fit = match self.prng.below(if is_plain { 40 } else { 1 }) {
            1 => Fit::Longer,
            2 => Fit::Shorter,
            _ => Fit::Exact,
        };
        match fit {
            Fit::Exact => {}
            Fit::Longer => data.resize(data.len() + self.prng.size(1, 2 * BLOCK_BYTES), 0xee),
            // It ends inside a block: the device server writes whole ones that come, and answers GOOD.
            Fit::Shorter => data.truncate(self.prng.size(0, data.len() - 1) | 1),
        }
        let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let command = Command {
            attribute: match self.prng.below(8) {
                0 => Attribute::Ordered,
                1 => Attribute::HeadOfQueue,
                _ => Attribute::Simple,
            },
            cdb: operation.cdb().to_vec(),
            data_in_bytes: length(operation.room_bytes()),
            data_out_bytes: length(data.len()),
        };
        let token = self.next_token;
        self.next_token += 1;
        let handle = books.begin((self.player, number), operation.clone());
        // What was sent first may come last.
        if self.functions.values().any(|(device, _)| *device == number) {
            books.excuse_one(handle);
        }
        let asked = Asked {
            handle,
            operation,
            fit,
        };
        match session.submit(now, token, number, command, data) {
            Ok(()) => drop(self.asked.insert(token, asked)),
            Err(_) => books.refuse(handle),
        }
    }

    fn manage(&mut self, now: Duration, books: &mut Books, number: u16) -> Option<String> {
        let Stage::In(session) = &mut self.stage else {
            return None;
        };
        if !self.devices.contains(&number) {
            return None;
        }
        let tokens: Vec<u64> = self.asked.keys().copied().collect();
        let token = self.prng.pick(&tokens);
        let (function, meant) = match self.prng.below(10) {
            0..6 => {
                let name = session.name_of(token?)?;
                let asked = self.asked.get(&token?);
                (Function::AbortTask(name), asked.map(|asked| asked.handle))
            }
            6..8 => (Function::AbortTaskSet, None),
            8 => (Function::ClearTaskSet, None),
            _ => (Function::LogicalUnitReset, None),
        };
        match meant {
            Some(handle) => books.excuse_one(handle),
            None => books.excuse_by((self.player, number)),
        }
        let is_reset = function == Function::LogicalUnitReset;
        let words = format!("{function:?} {number} {meant:?}");
        let token = self.next_token;
        self.next_token += 1;
        session.manage(now, token, number, function).ok()?;
        let reset = is_reset.then(|| books.begin_reset(self.player, Some(number)));
        self.functions.insert(token, (number, reset));
        Some(words)
    }

    fn leave(&mut self, now: Duration, books: &mut Books) -> Result<(), Breach> {
        let Stage::In(session) = &mut self.stage else {
            self.vanish(books);
            return Ok(());
        };
        session.close();
        while let Some(length) = session.poll_frame(now, &mut self.buffer) {
            self.parting.push(self.buffer[..length].to_vec());
        }
        self.take_events(books)
    }

    fn note_crash(&mut self) {
        self.is_bereft = matches!(self.stage, Stage::In(_));
    }

    fn is_bereft(&self) -> bool {
        self.is_bereft
    }

    fn vanish(&mut self, books: &mut Books) {
        self.stage = Stage::Away;
        self.is_bereft = false;
        self.functions.clear();
        books.leave(self.player);
        for asked in std::mem::take(&mut self.asked).into_values() {
            books.lose(asked.handle);
        }
    }

    fn station(&self) -> Option<Station> {
        Some(self.station)
    }

    fn take_frames(&mut self, now: Duration) -> Vec<Vec<u8>> {
        let mut frames = std::mem::take(&mut self.parting);
        match &mut self.stage {
            Stage::Away => {}
            Stage::Searching(search) => frames.extend(search.poll_frame(now)),
            Stage::LoggingIn(login) => frames.extend(login.poll_frame(now)),
            Stage::In(session) => {
                while let Some(length) = session.poll_frame(now, &mut self.buffer) {
                    frames.push(self.buffer[..length].to_vec());
                }
            }
        }
        frames
    }

    fn deadline(&self) -> Option<Duration> {
        match &self.stage {
            Stage::Away => None,
            Stage::Searching(search) => Some(search.deadline()),
            Stage::LoggingIn(login) => Some(login.deadline()),
            Stage::In(session) => session.deadline(),
        }
    }

    fn handle_frame(
        &mut self,
        now: Duration,
        frame: &[u8],
        books: &mut Books,
    ) -> Result<(), Breach> {
        let Some(head) = frame.first_chunk() else {
            return Ok(());
        };
        let is_plain = FragmentHeader::decode(*head).tag == 0;
        match &mut self.stage {
            Stage::Away => {}
            Stage::Searching(search) => {
                let found = search.handle_frame(b"target", frame);
                if let Some(cookie) = found.map(|found| found.answer.cookie) {
                    self.log_in(now, cookie);
                }
            }
            Stage::LoggingIn(login) if is_plain => {
                let progress = login.handle_frame(now, frame);
                self.follow(now, progress, books)?;
            }
            Stage::LoggingIn(_) => {}
            Stage::In(session) => {
                match read_unknown_session(frame) {
                    Some(tag) if is_plain => session.handle_unknown(tag),
                    Some(_) | None => session.handle_frame(now, frame),
                }
                self.take_events(books)?;
            }
        }
        Ok(())
    }

    fn handle_time(&mut self, now: Duration, books: &mut Books) -> Result<(), Breach> {
        match &mut self.stage {
            Stage::Away | Stage::Searching(_) => Ok(()),
            Stage::LoggingIn(login) => {
                let progress = login.handle_deadline(now);
                self.follow(now, progress, books)
            }
            Stage::In(session) => {
                session.handle_deadline(now);
                self.take_events(books)
            }
        }
    }
}

/// Data and residual of a command that ended well.
fn check(asked: &Asked, status: u8, reply: &Reply, data: &[u8]) -> Result<(), Breach> {
    if status != 0 {
        return Ok(());
    }
    let wrong = |what: &str| {
        let detail = format!(
            "{what}: {asked:?} ends with {reply:?}, {} bytes",
            data.len()
        );
        Err(Breach::new("residuals-and-data-fit", detail))
    };
    let signed = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
    if let Operation::Read { blocks, room } = &asked.operation {
        let (moved, room) = (blocks.len() * BLOCK_BYTES, room * BLOCK_BYTES);
        let residual = signed(moved) - signed(room);
        if data.len() != moved.min(room) || i64::from(reply.residual) != residual {
            return wrong("a read");
        }
    }
    if let Operation::Write { .. } = &asked.operation {
        let is_exact = reply.residual == 0;
        if asked.fit == Fit::Shorter || is_exact == (asked.fit == Fit::Longer) {
            return wrong("a write");
        }
    }
    Ok(())
}
