//! An initiator of iSCSI: the login that ships, and the session that holds the target to the rules.

use std::collections::VecDeque;
use std::time::Duration;

use iscsi::SerialNumber;
use iscsi::framing::PduBuffer;
use iscsi::limits::LOGIN_SEGMENT_MAX_BYTES;
use iscsi::login::{InitiatorAuth, InitiatorLoginAction, InitiatorLoginConfig, LoginInitiator};
use iscsi::pdu::{
    Cid, InitiatorTaskTag, Isid, LogoutResponseCode, TaskManagementFunction,
    TaskManagementResponse, Tsih,
};

use super::book::Book;
use super::target::offer;
use crate::initiator::{Breach, Heard, Operation, Session};
use crate::plan::{TARGET, initiator_name, target_name};
use crate::prng::Prng;

/// Commands of one session under way.
const COMMANDS_MAX: usize = 12;
const LOGIN_MAX: Duration = Duration::from_secs(30);

#[derive(Debug)]
enum Stage {
    Away,
    LoggingIn(Box<(LoginInitiator, PduBuffer)>),
    In(Box<Session>),
}

/// See above.
#[derive(Debug)]
pub(super) struct Caller {
    player: usize,
    /// Its connection, while it has one.
    pub(super) link: Option<usize>,
    stage: Stage,
    /// What the login has to say.
    outbound: VecDeque<u8>,
    prng: Prng,
}

impl Caller {
    pub(super) const fn new(player: usize, prng: Prng) -> Self {
        Self {
            player,
            link: None,
            stage: Stage::Away,
            outbound: VecDeque::new(),
            prng,
        }
    }

    pub(super) const fn is_away(&self) -> bool {
        matches!(self.stage, Stage::Away)
    }

    /// It waits for answers that must come.
    pub(super) fn is_waiting(&self) -> bool {
        match &self.stage {
            Stage::In(session) => session.tasks().any(|(_, task)| !task.may_vanish),
            Stage::Away | Stage::LoggingIn(_) => false,
        }
    }

    /// The connection may end now.
    pub(super) fn is_leaving(&self) -> bool {
        match &self.stage {
            Stage::In(session) => session.is_leaving,
            Stage::Away | Stage::LoggingIn(_) => true,
        }
    }

    pub(super) fn state(&self) -> String {
        let tasks = match &self.stage {
            Stage::In(session) => session.tasks().map(|(_, task)| &task.operation).collect(),
            Stage::Away | Stage::LoggingIn(_) => Vec::new(),
        };
        format!("player {} waits for {tasks:?}", self.player)
    }

    // ---- sessions ----------------------------------------------------------------------------

    /// Begins to log in over a new link.
    pub(super) fn log_in(&mut self, now: Duration, link: usize) {
        let config = InitiatorLoginConfig {
            initiator_name: initiator_name(self.player),
            initiator_alias: None,
            target_name: Some(target_name(TARGET)),
            isid: Isid([0x80, 0, 0, 0, 0, u8::try_from(self.player).unwrap_or(0)]),
            tsih: Tsih::NONE,
            cid: Cid(0),
            cmd_sn: SerialNumber(self.prng.pick(&[0, 1, u32::MAX - 3]).unwrap_or(0)),
            initiator_task_tag: InitiatorTaskTag(0),
            auth: InitiatorAuth::None { skip_stage: true },
            preferences: offer(),
        };
        let random = std::array::from_fn(|_| self.prng.next_u64().to_be_bytes()[0]);
        if let Ok(login) = LoginInitiator::new(config, now, LOGIN_MAX, random) {
            self.link = Some(link);
            self.stage = Stage::LoggingIn(Box::new((login, PduBuffer::new())));
            self.follow();
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
                InitiatorLoginAction::Failed(_) => {
                    self.stage = Stage::Away;
                    return true;
                }
            }
        }
        false
    }

    /// The link is gone, and the session with it.
    pub(super) fn vanish(&mut self, book: &mut Book) {
        self.link = None;
        self.outbound.clear();
        if let Stage::In(mut session) = std::mem::replace(&mut self.stage, Stage::Away) {
            for task in session.take_tasks() {
                book.lose(task.handle);
            }
        }
    }

    pub(super) fn log_out(&mut self) {
        if let Stage::In(session) = &mut self.stage
            && !session.is_leaving
        {
            session.log_out(0);
        }
    }

    // ---- what it asks for --------------------------------------------------------------------

    pub(super) fn can_ask(&self) -> bool {
        match &self.stage {
            Stage::In(session) => session.may_send() && session.tasks().count() < COMMANDS_MAX,
            Stage::Away | Stage::LoggingIn(_) => false,
        }
    }

    pub(super) fn ask(&mut self, book: &mut Book, operation: Operation, may_vanish: bool) {
        let Stage::In(session) = &mut self.stage else {
            return;
        };
        let handle = book.begin(self.player, operation.clone());
        session.command(0, operation, handle, &mut self.prng);
        if may_vanish {
            session.allow_vanishing();
        }
    }

    /// Commands under way may end without an answer from now on.
    pub(super) fn allow_vanishing(&mut self) {
        if let Stage::In(session) = &mut self.stage {
            session.allow_vanishing();
        }
    }

    /// Asks for task management. True where commands of others may end by it.
    pub(super) fn manage(&mut self, book: &mut Book) -> bool {
        let Stage::In(session) = &mut self.stage else {
            return false;
        };
        if session.is_leaving {
            return false;
        }
        let tags: Vec<u32> = session.tasks().map(|(tag, _)| tag).collect();
        let (function, tag) = match (self.prng.below(10), self.prng.pick(&tags)) {
            (0..6, Some(tag)) => (TaskManagementFunction::AbortTask, Some(tag)),
            (6..8, _) => (TaskManagementFunction::AbortTaskSet, None),
            (8, _) => (TaskManagementFunction::ClearTaskSet, None),
            (_, _) => (TaskManagementFunction::LogicalUnitReset, None),
        };
        book.has_aborts = true;
        session.manage(0, function, tag);
        matches!(
            function,
            TaskManagementFunction::LogicalUnitReset | TaskManagementFunction::ClearTaskSet
        )
    }

    // ---- bytes -------------------------------------------------------------------------------

    pub(super) fn take_output(&mut self) -> Vec<u8> {
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

    /// Bytes have come. True when the session is over.
    pub(super) fn hear(&mut self, bytes: &[u8], book: &mut Book) -> Result<bool, Breach> {
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
            if matches!(self.stage, Stage::Away) {
                return Ok(true);
            }
            // A session of its port that was there before is over.
            book.rejoin(self.player);
            return self.hear(&[], book);
        }
        let Stage::In(session) = &mut self.stage else {
            return Ok(false);
        };
        let heard = session.handle_bytes(0, bytes)?;
        for heard in heard {
            if self.take_in(heard, book)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn take_in(&mut self, heard: Heard, book: &mut Book) -> Result<bool, Breach> {
        match heard {
            Heard::Ended { task, answer } => {
                let status = (answer.status, answer.sense);
                book.answer(task.handle, status, &answer.data)?;
                Ok(false)
            }
            Heard::Managed {
                response, vanished, ..
            } => {
                for task in vanished {
                    book.forget(task.handle);
                }
                if response == TaskManagementResponse::Rejected.code() {
                    // The store did not end them in time; they will end, but not be answered.
                    self.allow_vanishing();
                }
                Ok(false)
            }
            Heard::LoggedOut {
                code: Some(LogoutResponseCode::Success | LogoutResponseCode::CleanupFailed),
            } => Ok(true),
            Heard::Pong => Ok(false),
            other @ (Heard::LoggedOut { .. }
            | Heard::ConnectionClosed { .. }
            | Heard::Rejected { .. }
            | Heard::Asynchronous { .. }) => {
                Err(Breach::new("clients-are-served", format!("{other:?}")))
            }
        }
    }
}
