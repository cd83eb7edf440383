//! From a connection to a session that is ready for I/O, in blocking calls.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use iscsi::SerialNumber;
use iscsi::chap::{ChapAlgorithm, Credentials, Secret};
use iscsi::framing::PduBuffer;
use iscsi::initiator::{Command, Completion, Event as SessionEvent, ReadBuffer, Session};
use iscsi::limits::LOGIN_SEGMENT_MAX_BYTES;
use iscsi::login::{
    EstablishedInitiator, InitiatorAuth, InitiatorLoginAction, InitiatorLoginConfig,
    InitiatorLoginError, LoginInitiator, RANDOM_BYTES,
};
use iscsi::negotiate::{DigestPolicy, OperationalPreferences};
use iscsi::pdu::{Cid, InitiatorTaskTag, Isid, LoginStatus, TaskAttribute, Tsih};

use super::super::socket::{connect, words};
use super::super::{Data, Geometry, LaneSettings};
use super::{CONNECTION, IscsiConnector, finish};
use crate::entropy::random_bytes;
use crate::error::BenchError;
use crate::scsi;
use crate::url::{Login, host_port};

/// How long a login may take.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Unit attentions and other passing states after a login that are waited out.
const READY_TRIES_MAX: u32 = 16;
/// Requests beside I/Os: the logout.
const TASKS_SPARE: usize = 4;

/// A session before its first I/O: one exchange at a time, in blocking calls.
pub(super) struct Setup<'a> {
    connector: &'a IscsiConnector,
    pub(super) stream: TcpStream,
    pub(super) session: Session,
    pub(super) lun: u64,
    buffer: Vec<u8>,
}

impl<'a> Setup<'a> {
    pub(super) fn connect(
        connector: &'a IscsiConnector,
        settings: &LaneSettings,
    ) -> Result<Self, BenchError> {
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

    pub(super) fn lost_during(&self, when: &'static str) -> impl Fn(String) -> BenchError + use<> {
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
    pub(super) fn wait_until_ready(&mut self) -> Result<(), BenchError> {
        let mut last = None;
        for _ in 0..READY_TRIES_MAX {
            match finish(self.command(scsi::TEST_UNIT_READY, 0)?).result {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error),
            }
        }
        let (lun, initiator) = (self.connector.lun, &self.connector.initiator);
        let said = last.map_or_else(String::new, |error| error.to_string());
        Err(self.unfit(format!(
            "LUN {lun} is not ready ({said}); does the target have it, and may this initiator \
             ({initiator}) use it?"
        )))
    }

    pub(super) fn read_capacity(&mut self) -> Result<Geometry, BenchError> {
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
        initiator_name: connector.initiator.clone(),
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
            let initiator = &connector.initiator;
            format!("this initiator may not use the target; let {initiator} in, or use --initiator")
        }
        Some(LoginStatus::NotFound | LoginStatus::TargetRemoved) => {
            let place = host_port(&connector.host, connector.port);
            let (target, initiator) = (&connector.target, &connector.initiator);
            format!(
                "there is no target {target} at {place} for initiator {initiator}; check the name, or use --initiator"
            )
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
