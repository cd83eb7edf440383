//! An initiator of iSCSI: the login that ships, and the session that holds the target to the rules.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use iscsi::SerialNumber;
use iscsi::framing::PduBuffer;
use iscsi::limits::LOGIN_SEGMENT_MAX_BYTES;
use iscsi::login::{InitiatorAuth, InitiatorLoginAction, InitiatorLoginConfig, LoginInitiator};
use iscsi::pdu::{
    Cid, InitiatorTaskTag, Isid, LogoutResponseCode, TaskManagementFunction,
    TaskManagementResponse, Tsih,
};

use engine::TargetIndex;

use super::books::Books;
use super::client::{COMMANDS_MAX, Client, FAIR};
use super::served::offer;
use crate::initiator::{Breach, Heard, Operation, Session};
use crate::ledger::Handle;
use crate::plan::{initiator_name, target_name};
use crate::prng::Prng;

const LOGIN_MAX: Duration = Duration::from_secs(30);

#[derive(Debug)]
enum Stage {
    Away,
    /// The login has failed, for this reason.
    Failed(String),
    LoggingIn(Box<(LoginInitiator, PduBuffer)>),
    In(Box<Session>),
}

/// See above.
#[derive(Debug)]
pub(super) struct Caller {
    player: usize,
    host: usize,
    target: TargetIndex,
    /// Otherwise it registers where it should reserve: a bug on purpose.
    reserves: bool,
    /// Its connection, while it has one.
    link: Option<usize>,
    stage: Stage,
    /// What the login has to say.
    outbound: VecDeque<u8>,
    /// Resets that have no answer yet: their tags, and the books' names of them.
    resets: BTreeMap<u32, Handle>,
    prng: Prng,
}

impl Caller {
    pub(super) const fn new(
        player: usize,
        (host, target): (usize, TargetIndex),
        reserves: bool,
        prng: Prng,
    ) -> Self {
        Self {
            player,
            host,
            target,
            reserves,
            link: None,
            stage: Stage::Away,
            outbound: VecDeque::new(),
            resets: BTreeMap::new(),
            prng,
        }
    }

    /// Does what the login says. True when it is over, either way.
    fn follow(&mut self) -> bool {
        let Some(link) = self.link else {
            return true;
        };
        while let Stage::LoggingIn(inner) = &mut self.stage
            && let Some(action) = inner.0.poll_action()
        {
            match action {
                InitiatorLoginAction::Send(pdu) => {
                    self.outbound.extend(pdu.to_bytes(false, false));
                }
                InitiatorLoginAction::Complete(done) => {
                    let buffer = std::mem::replace(&mut inner.1, PduBuffer::new());
                    let window = (done.exp_cmd_sn, done.max_cmd_sn);
                    let mut session = Session::new(done.session.clone(), done.cmd_sn, window);
                    let (unread, stat_sn) = (buffer.into_unread(), done.exp_stat_sn);
                    session.add_connection(link, Cid(0), done.connection, stat_sn, &unread);
                    self.stage = Stage::In(Box::new(session));
                    return true;
                }
                InitiatorLoginAction::Failed(error) => {
                    self.stage = Stage::Failed(error.to_string());
                    return true;
                }
            }
        }
        false
    }

    /// Reads on as the session that has just begun.
    fn begin(&mut self, books: &mut Books) -> Result<bool, Breach> {
        if let Stage::Failed(why) = &self.stage {
            let why = format!("player {} is refused: {why}", self.player);
            self.stage = Stage::Away;
            return match books.may_end(self.player) {
                true => Ok(true),
                false => Err(Breach::new(FAIR, why)),
            };
        }
        // A session of its port that was there before is over.
        books.rejoin(self.player);
        self.hear(&[], books)
    }

    fn take_in(&mut self, heard: Heard, books: &mut Books) -> Result<bool, Breach> {
        match heard {
            Heard::Ended { task, answer } => {
                let status = (answer.status, answer.sense);
                books.answer(task.handle, status, &answer.data)?;
                Ok(false)
            }
            Heard::Managed {
                tag,
                response,
                vanished,
                ..
            } => {
                for task in vanished {
                    // It may have come to a unit that this number leads to no more.
                    if books.has_moved(task.handle)
                        && let Stage::In(session) = &mut self.stage
                    {
                        session.take_back(task);
                    } else {
                        books.forget(task.handle);
                    }
                }
                if let Some(reset) = self.resets.remove(&tag) {
                    books.end_reset(reset, response == TaskManagementResponse::Complete.code());
                }
                // One that is not complete may have ended what waits all the same.
                self.allow_vanishing(books);
                Ok(false)
            }
            Heard::LoggedOut {
                code: Some(LogoutResponseCode::Success | LogoutResponseCode::CleanupFailed),
            } => Ok(true),
            Heard::Pong => Ok(false),
            Heard::Asynchronous { .. } if books.may_end(self.player) => Ok(false),
            other @ (Heard::LoggedOut { .. }
            | Heard::ConnectionClosed { .. }
            | Heard::Rejected { .. }
            | Heard::Asynchronous { .. }) => Err(Breach::new(FAIR, format!("{other:?}"))),
        }
    }
}

impl Client for Caller {
    fn is_away(&self) -> bool {
        matches!(self.stage, Stage::Away | Stage::Failed(_))
    }

    fn is_waiting(&self) -> bool {
        match &self.stage {
            Stage::In(session) => session.tasks().any(|(_, task)| !task.may_vanish),
            Stage::Away | Stage::Failed(_) | Stage::LoggingIn(_) => false,
        }
    }

    fn has_open(&self) -> bool {
        match &self.stage {
            Stage::In(session) => !session.is_quiet(),
            Stage::LoggingIn(_) => true,
            Stage::Away | Stage::Failed(_) => false,
        }
    }

    fn state(&self) -> String {
        let tasks: Vec<_> = match &self.stage {
            Stage::In(session) => session.tasks().map(|(_, task)| &task.operation).collect(),
            Stage::Away | Stage::Failed(_) | Stage::LoggingIn(_) => Vec::new(),
        };
        format!("player {} waits for {tasks:?}", self.player)
    }

    fn connect(&mut self, now: Duration, link: usize) -> Result<(), Breach> {
        let config = InitiatorLoginConfig {
            initiator_name: initiator_name(self.host),
            initiator_alias: None,
            target_name: Some(target_name(self.target)),
            isid: Isid([0x80, 0, 0, 0, 0, u8::try_from(self.player).unwrap_or(0)]),
            tsih: Tsih::NONE,
            cid: Cid(0),
            cmd_sn: SerialNumber(self.prng.pick(&[0, 1, u32::MAX - 3]).unwrap_or(0)),
            initiator_task_tag: InitiatorTaskTag(0),
            auth: InitiatorAuth::None { skip_stage: true },
            preferences: offer(),
        };
        let random = std::array::from_fn(|_| self.prng.next_u64().to_be_bytes()[0]);
        let login = LoginInitiator::new(config, now, LOGIN_MAX, random);
        let login = login.map_err(|error| Breach::new(FAIR, error.to_string()))?;
        self.link = Some(link);
        self.stage = Stage::LoggingIn(Box::new((login, PduBuffer::new())));
        self.follow();
        Ok(())
    }

    fn can_ask(&self) -> bool {
        match &self.stage {
            Stage::In(session) => session.may_send() && session.tasks().count() < COMMANDS_MAX,
            Stage::Away | Stage::Failed(_) | Stage::LoggingIn(_) => false,
        }
    }

    fn ask(&mut self, _: Duration, books: &mut Books, number: u16, operation: Operation) {
        if let Stage::In(session) = &mut self.stage {
            let handle = books.begin((self.player, number), operation.clone());
            session.lun = number;
            let mut sent = operation;
            if let Operation::PersistentReserve { key, .. } = sent
                && !self.reserves
            {
                sent = Operation::Register { key, aptpl: false };
            }
            session.command(0, sent, handle, &mut self.prng);
        }
    }

    fn manage(&mut self, _: Duration, books: &mut Books, number: u16) -> Option<String> {
        use TaskManagementFunction as Function;
        let Stage::In(session) = &mut self.stage else {
            return None;
        };
        if session.is_leaving {
            return None;
        }
        let tasks: Vec<_> = session
            .tasks()
            .map(|(tag, task)| (tag, task.handle))
            .collect();
        session.lun = number;
        let (function, task) = match (self.prng.below(16), self.prng.pick(&tasks)) {
            (0..6, Some(task)) => (Function::AbortTask, Some(task)),
            (6..8, _) => (Function::AbortTaskSet, None),
            (8, _) => (Function::ClearTaskSet, None),
            (9 | 10, _) => (Function::TargetWarmReset, None),
            (11, _) => (Function::TargetColdReset, None),
            (_, _) => (Function::LogicalUnitReset, None),
        };
        let is_of_all = matches!(
            function,
            Function::TargetWarmReset | Function::TargetColdReset
        );
        let is_reset = is_of_all || function == Function::LogicalUnitReset;
        let unit = (!is_of_all).then_some(number);
        let reset = is_reset.then(|| books.begin_reset(self.player, unit));
        if function == Function::TargetColdReset {
            books.note_cold(self.player);
        }
        match task {
            Some((_, handle)) => books.excuse_one(handle),
            None => books.excuse_by((self.player, number)),
        }
        let tag = session.manage(0, function, task.map(|(tag, _)| tag));
        self.resets.extend(reset.map(|reset| (tag, reset)));
        Some(format!("{function:?} {number} {task:?}"))
    }

    fn leave(&mut self, _: Duration, books: &mut Books) -> Result<(), Breach> {
        if let Stage::In(session) = &mut self.stage
            && !session.is_leaving
        {
            session.log_out(0);
            books.note_leaving(self.player);
        }
        Ok(())
    }

    fn vanish(&mut self, books: &mut Books) {
        self.link = None;
        self.outbound.clear();
        self.resets.clear();
        books.leave(self.player);
        if let Stage::In(mut session) = std::mem::replace(&mut self.stage, Stage::Away) {
            for task in session.take_tasks() {
                books.lose(task.handle);
            }
        }
    }

    fn allow_vanishing(&mut self, books: &Books) {
        if let Stage::In(session) = &mut self.stage {
            session.allow_vanishing_where(|handle| books.may_vanish(handle));
        }
    }

    fn link(&self) -> Option<usize> {
        self.link
    }

    fn take_output(&mut self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.outbound.drain(..).collect();
        if let Stage::In(session) = &mut self.stage {
            for tag in session.owing() {
                session.send_bursts(tag, &mut self.prng);
            }
            if let Some(connection) = session.connection(0) {
                bytes.extend(connection.outbound.drain(..));
            }
        }
        bytes
    }

    fn hear(&mut self, bytes: &[u8], books: &mut Books) -> Result<bool, Breach> {
        if let Stage::LoggingIn(inner) = &mut self.stage {
            inner.1.push(bytes);
            while let Stage::LoggingIn(inner) = &mut self.stage {
                match inner.1.next_pdu(LOGIN_SEGMENT_MAX_BYTES, false, false) {
                    Ok(Some(pdu)) => inner.0.handle_pdu(&pdu.header, &pdu.data),
                    Ok(None) => return Ok(false),
                    Err(error) => return Err(Breach::new("framing", error.to_string())),
                }
                self.follow();
            }
            return self.begin(books);
        }
        let Stage::In(session) = &mut self.stage else {
            return Ok(false);
        };
        session.allow_vanishing_where(|handle| books.may_vanish(handle));
        session.take_bytes(0, bytes);
        // What a reset has ended perhaps, and has not, is taken back before its answer is read.
        while let Stage::In(session) = &mut self.stage
            && let Some(heard) = session.next_heard(0)?
        {
            if self.take_in(heard, books)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_leaving(&self) -> bool {
        match &self.stage {
            Stage::In(session) => session.is_leaving,
            Stage::Away | Stage::Failed(_) | Stage::LoggingIn(_) => true,
        }
    }
}
