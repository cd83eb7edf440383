//! iSCSI: one session of one connection for each lane.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iscsi::SerialNumber;
use iscsi::chap::{ChapAlgorithm, Credentials, Secret};
use iscsi::framing::PduBuffer;
use iscsi::initiator::{
    Command, Completion, Event as SessionEvent, Outcome, Output, ReadBuffer, Session,
};
use iscsi::limits::LOGIN_SEGMENT_MAX_BYTES;
use iscsi::login::{
    EstablishedInitiator, InitiatorAuth, InitiatorLoginAction, InitiatorLoginConfig,
    InitiatorLoginError, LoginInitiator, RANDOM_BYTES,
};
use iscsi::negotiate::{DigestPolicy, OperationalPreferences};
use iscsi::pdu::{Cid, InitiatorTaskTag, Isid, LoginStatus, LogoutReason, TaskAttribute, Tsih};
use memory::Message;
use reactor::{Event, Reactor};

use super::socket::{Gather, Heard, Pipe, SEND_BYTES_MAX, connect, words};
use super::{Data, Finished, Geometry, IoError, Lane, LaneSettings, Operation, Pattern};
use crate::entropy::random_bytes;
use crate::error::BenchError;
use crate::scsi;
use crate::url::{Login, host_port};

/// The name this generator goes by.
pub const INITIATOR_NAME: &str = "iqn.2026-11.example.tarn:bench";
/// How long a login may take.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Unit attentions and other passing states after a login that are waited out.
const READY_TRIES_MAX: u32 = 16;
/// Requests beside I/Os: the logout.
const TASKS_SPARE: usize = 4;
/// The first session and its only connection.
const CONNECTION: usize = 0;

/// Everything needed to log in.
#[expect(
    missing_debug_implementations,
    reason = "secrets are not to reach a log"
)]
pub struct IscsiConnector {
    /// What reports call the target.
    pub label: String,
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// TargetName.
    pub target: String,
    /// Flat logical unit number.
    pub lun: u16,
    /// For CHAP.
    pub login: Option<Login>,
    /// Insist on CRC32C over headers.
    pub header_digest: bool,
    /// Insist on CRC32C over data.
    pub data_digest: bool,
    /// Part of every ISID, so that two generators do not replace each other's sessions.
    pub isid: [u8; 3],
}

/// One session.
#[derive(Debug)]
pub struct IscsiLane {
    session: Session,
    pipe: Pipe,
    pattern: Option<Pattern>,
    lun: u64,
    geometry: Geometry,
    block_shift: u32,
    is_closed: bool,
}

impl Lane for IscsiLane {
    type Connector = IscsiConnector;

    fn open(connector: &IscsiConnector, settings: LaneSettings) -> Result<Self, BenchError> {
        let mut setup = Setup::connect(connector, &settings)?;
        setup.wait_until_ready()?;
        let geometry = setup.read_capacity()?;
        let lost = setup.lost_during("set-up");
        let Setup {
            stream,
            session,
            lun,
            ..
        } = setup;
        let pipe = Pipe::new(stream, settings.lane).map_err(|error| lost(error.to_string()))?;
        Ok(Self {
            session,
            pipe,
            pattern: settings.pattern,
            lun,
            geometry,
            block_shift: geometry.block_bytes.trailing_zeros(),
            is_closed: false,
        })
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, _reactor: &mut Reactor, tag: u32, operation: Operation) {
        let Operation {
            offset,
            length,
            data,
        } = operation;
        let (is_write, read, write) = match data {
            Data::Discard => (
                false,
                ReadBuffer::Discard {
                    length_bytes: length,
                },
                None,
            ),
            Data::Keep(buffer) => (false, ReadBuffer::Into(buffer), None),
            Data::Write(data) => (true, ReadBuffer::None, Some(data)),
        };
        let (lba, blocks) = (offset >> self.block_shift, length >> self.block_shift);
        let taken = self.session.submit(Command {
            tag: tag.into(),
            lun: self.lun,
            cdb: scsi::transfer_cdb(is_write, lba, blocks),
            extended_cdb: Vec::new(),
            attribute: TaskAttribute::Simple,
            write,
            read,
        });
        // A lost connection was told by `handle`; the depth is within the table of tasks.
        debug_assert!(taken.is_ok() || !self.session.is_alive());
    }

    fn flush(&mut self, reactor: &mut Reactor, _finished: &mut Vec<Finished>) {
        let (session, pattern) = (&mut self.session, self.pattern.as_ref());
        self.pipe.flush(reactor, |message: &mut Message| {
            session.transmit(CONNECTION, &mut Gather { message, pattern }, SEND_BYTES_MAX);
        });
    }

    fn handle(
        &mut self,
        _reactor: &mut Reactor,
        _part: u32,
        event: Event,
        finished: &mut Vec<Finished>,
    ) -> Result<(), String> {
        match self.pipe.handle(event) {
            Ok(Heard::Bytes { chunk, len }) => {
                let bytes = chunk.get(..len).unwrap_or_default();
                self.session.handle_bytes(CONNECTION, bytes);
            }
            Ok(Heard::Sent) => return Ok(()),
            Err(_) if self.is_closed => return Ok(()),
            Err(problem) => return Err(problem),
        }
        while let Some(event) = self.session.poll_event() {
            match event {
                SessionEvent::Completed(done) => finished.push(finish(done)),
                SessionEvent::LoggedOut { .. } => self.is_closed = true,
                SessionEvent::Failed { violation, .. } => return Err(violation.to_string()),
                // Nothing that these concern was asked for.
                SessionEvent::ManagementDone { .. }
                | SessionEvent::Pong { .. }
                | SessionEvent::Text { .. }
                | SessionEvent::Async { .. }
                | SessionEvent::Rejected { .. }
                | SessionEvent::RequestLost { .. } => {}
            }
        }
        Ok(())
    }

    fn close(&mut self) {
        let asked = self
            .session
            .logout(CONNECTION, 0, LogoutReason::CloseSession, CONNECTION);
        self.is_closed = asked.is_err();
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}

impl Output for Gather<'_> {
    fn len(&self) -> usize {
        self.message.len()
    }

    fn put(&mut self, bytes: &[u8]) {
        self.message.push_bytes(bytes);
    }

    fn put_shared(&mut self, data: &Arc<[u8]>, range: Range<usize>) {
        if !self.refer(data, &range) {
            self.put(data.get(range).unwrap_or_default());
        }
    }
}

fn finish(done: Completion) -> Finished {
    let result = match done.outcome {
        Outcome::Status(0) => Ok(()),
        Outcome::Status(status) => Err(IoError::Scsi {
            status,
            sense: scsi::sense_code(&done.sense),
        }),
        Outcome::TargetFailure => Err(IoError::Other("target failure".to_owned())),
        Outcome::Aborted => Err(IoError::Other("aborted".to_owned())),
        Outcome::Rejected(reason) => Err(IoError::Other(format!(
            "rejected for reason {reason:#04x} (RFC 7143 section 11.17.1)"
        ))),
        Outcome::ConnectionLost => Err(IoError::Other("connection lost".to_owned())),
    };
    let data = match (done.read, done.write) {
        (ReadBuffer::Into(buffer), _) => Data::Keep(buffer),
        (_, Some(data)) => Data::Write(data),
        (ReadBuffer::None | ReadBuffer::Discard { .. }, None) => Data::Discard,
    };
    Finished {
        // Tags are given out by `submit`, from 32 bits.
        tag: u32::try_from(done.tag).unwrap_or(u32::MAX),
        result,
        data,
    }
}

/// A session before its first I/O: one exchange at a time, in blocking calls.
struct Setup<'a> {
    connector: &'a IscsiConnector,
    stream: TcpStream,
    session: Session,
    lun: u64,
    buffer: Vec<u8>,
}

impl<'a> Setup<'a> {
    fn connect(connector: &'a IscsiConnector, settings: &LaneSettings) -> Result<Self, BenchError> {
        let mut stream = connect(&connector.label, &connector.host, connector.port)?;
        let (established, unread) = log_in(connector, &mut stream, settings.session)?;
        let depth = usize::try_from(settings.depth).unwrap_or(usize::MAX);
        let tasks_max = depth.saturating_add(TASKS_SPARE);
        let mut session = Session::new(&established, Cid(0), tasks_max);
        session.handle_bytes(CONNECTION, &unread);
        Ok(Self {
            connector,
            stream,
            session,
            lun: scsi::lun_field(connector.lun),
            buffer: vec![0; 64 * 1024],
        })
    }

    fn lost_during(&self, when: &'static str) -> impl Fn(String) -> BenchError + use<> {
        let target = self.connector.label.clone();
        move |problem| BenchError::Lost {
            target: target.clone(),
            when,
            problem,
        }
    }

    fn unfit(&self, problem: String) -> BenchError {
        BenchError::Unfit {
            target: self.connector.label.clone(),
            problem,
        }
    }

    /// Sends one command and waits for its end.
    fn command(&mut self, cdb: [u8; 16], read_bytes: usize) -> Result<Completion, BenchError> {
        let lost = self.lost_during("before the first I/O");
        let read = match read_bytes {
            0 => ReadBuffer::None,
            length => ReadBuffer::Into(vec![0; length]),
        };
        self.session
            .submit(Command {
                tag: 0,
                lun: self.lun,
                cdb,
                extended_cdb: Vec::new(),
                attribute: TaskAttribute::Simple,
                write: None,
                read,
            })
            .map_err(|(error, _)| lost(error.to_string()))?;
        loop {
            let mut out = Vec::new();
            self.session.transmit(CONNECTION, &mut out, usize::MAX);
            self.stream
                .write_all(&out)
                .map_err(|error| lost(words(&error)))?;
            let received = self.stream.read(&mut self.buffer);
            let received = received.map_err(|error| lost(words(&error)))?;
            if received == 0 {
                return Err(lost("the target closed it".to_owned()));
            }
            let bytes = self.buffer.get(..received).unwrap_or_default();
            self.session.handle_bytes(CONNECTION, bytes);
            while let Some(event) = self.session.poll_event() {
                match event {
                    SessionEvent::Completed(done) => return Ok(done),
                    SessionEvent::Failed { violation, .. } => {
                        return Err(lost(violation.to_string()));
                    }
                    SessionEvent::ManagementDone { .. }
                    | SessionEvent::Pong { .. }
                    | SessionEvent::Text { .. }
                    | SessionEvent::LoggedOut { .. }
                    | SessionEvent::Async { .. }
                    | SessionEvent::Rejected { .. }
                    | SessionEvent::RequestLost { .. } => {}
                }
            }
        }
    }

    /// Takes the unit attentions that follow a login.
    fn wait_until_ready(&mut self) -> Result<(), BenchError> {
        let mut last = None;
        for _ in 0..READY_TRIES_MAX {
            match finish(self.command(scsi::TEST_UNIT_READY, 0)?).result {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error),
            }
        }
        let lun = self.connector.lun;
        let said = last.map_or_else(String::new, |error| error.to_string());
        Err(self.unfit(format!(
            "LUN {lun} is not ready ({said}); does the target have it, and may this initiator \
             ({INITIATOR_NAME}) use it?"
        )))
    }

    fn read_capacity(&mut self) -> Result<Geometry, BenchError> {
        let mut said = String::new();
        for (cdb, length, parse) in scsi::READ_CAPACITY {
            let done = self.command(cdb, length)?;
            let received = usize::try_from(done.received_bytes).unwrap_or(0);
            let done = finish(done);
            if let (Ok(()), Data::Keep(data)) = (&done.result, &done.data)
                && let Some(geometry) = parse(data.get(..received).unwrap_or_default())
            {
                return Ok(geometry);
            }
            said = done
                .result
                .err()
                .map_or_else(|| "bad data".to_owned(), |e| e.to_string());
        }
        Err(self.unfit(format!(
            "READ CAPACITY gives no size ({said}); name a LUN that is a disk"
        )))
    }
}

/// Logs in; gives the session and what was received behind the last response.
fn log_in(
    connector: &IscsiConnector,
    stream: &mut TcpStream,
    session: u32,
) -> Result<(EstablishedInitiator, Vec<u8>), BenchError> {
    let failed = |problem| BenchError::Login {
        target: connector.label.clone(),
        problem,
    };
    let random: [u8; RANDOM_BYTES] = random_bytes()?;
    let start = Instant::now();
    let mut login = LoginInitiator::new(
        login_config(connector, session),
        Duration::ZERO,
        LOGIN_TIMEOUT,
        random,
    )
    .map_err(|error| failed(error.to_string()))?;
    let mut incoming = PduBuffer::new();
    let mut buffer = vec![0; 16 * 1024];
    let broken = |error: std::io::Error| failed(format!("login broken off: {}", words(&error)));
    loop {
        while let Some(action) = login.poll_action() {
            match action {
                InitiatorLoginAction::Send(pdu) => {
                    let bytes = pdu.to_bytes(false, false);
                    stream.write_all(&bytes).map_err(broken)?;
                }
                InitiatorLoginAction::Complete(done) => return Ok((*done, incoming.into_unread())),
                InitiatorLoginAction::Failed(error) => {
                    return Err(failed(refusal(connector, &error)));
                }
            }
        }
        let received = stream.read(&mut buffer).map_err(broken)?;
        if received == 0 {
            return Err(failed("the target closed the connection".to_owned()));
        }
        incoming.push(buffer.get(..received).unwrap_or_default());
        while let Some(pdu) = incoming
            .next_pdu(LOGIN_SEGMENT_MAX_BYTES, false, false)
            .map_err(|error| failed(error.to_string()))?
        {
            login.handle_pdu(&pdu.header, &pdu.data);
        }
        login.handle_timeout(start.elapsed());
    }
}

fn login_config(connector: &IscsiConnector, session: u32) -> InitiatorLoginConfig {
    let digest = |wanted| match wanted {
        true => DigestPolicy::Required,
        false => DigestPolicy::Allowed,
    };
    let auth = match &connector.login {
        None => InitiatorAuth::None { skip_stage: false },
        Some(Login { user, password }) => InitiatorAuth::Chap {
            own: Credentials {
                name: user.clone(),
                secret: Secret::new(password.as_bytes().to_vec()),
            },
            target: None,
            algorithms: ChapAlgorithm::ALL.to_vec(),
            or_none: false,
        },
    };
    let [a, b, c] = connector.isid;
    let [.., high, low] = session.to_be_bytes();
    InitiatorLoginConfig {
        initiator_name: INITIATOR_NAME.to_owned(),
        initiator_alias: None,
        target_name: Some(connector.target.clone()),
        // Spec: RFC 7143 section 11.12.5, type 10b: random number and qualifier.
        isid: Isid([0x80, a, b, c, high, low]),
        tsih: Tsih::NONE,
        cid: Cid(0),
        cmd_sn: SerialNumber(1),
        initiator_task_tag: InitiatorTaskTag(1),
        auth,
        preferences: OperationalPreferences {
            header_digest: digest(connector.header_digest),
            data_digest: digest(connector.data_digest),
            max_connections: 1,
            default_time2retain_s: 0,
            ..OperationalPreferences::default()
        },
    }
}

/// What a failed login means for a person, and the remedy.
fn refusal(connector: &IscsiConnector, error: &InitiatorLoginError) -> String {
    let remedy = match error.status() {
        Some(LoginStatus::AuthenticationFailure) => {
            "authentication failed; check user and secret".to_owned()
        }
        Some(LoginStatus::AuthorizationFailure) => {
            format!("this initiator may not use the target; let {INITIATOR_NAME} in")
        }
        Some(LoginStatus::NotFound | LoginStatus::TargetRemoved) => {
            let place = host_port(&connector.host, connector.port);
            let target = &connector.target;
            format!("there is no target {target} at {place}; check the name")
        }
        Some(LoginStatus::TargetMovedTemporarily | LoginStatus::TargetMovedPermanently) => {
            "the target has moved; use its new address".to_owned()
        }
        Some(LoginStatus::ServiceUnavailable | LoginStatus::OutOfResources) => {
            "the target has no room; end other sessions or ask for fewer".to_owned()
        }
        Some(
            LoginStatus::Success
            | LoginStatus::InitiatorError
            | LoginStatus::UnsupportedVersion
            | LoginStatus::TooManyConnections
            | LoginStatus::MissingParameter
            | LoginStatus::CannotIncludeInSession
            | LoginStatus::SessionTypeNotSupported
            | LoginStatus::SessionDoesNotExist
            | LoginStatus::InvalidRequestDuringLogin
            | LoginStatus::TargetError,
        )
        | None => return format!("login failed: {error}; look at the target's log"),
    };
    format!("login refused: {remedy} ({error})")
}
