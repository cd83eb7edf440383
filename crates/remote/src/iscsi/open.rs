//! Where a disk is, how it is reached, and what it is found to be when it is opened.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use iscsi::SerialNumber;
use iscsi::chap::{ChapAlgorithm, ChapError, Credentials, Secret};
use iscsi::discovery::TargetAddress;
use iscsi::login::{InitiatorAuth, InitiatorLoginConfig, InitiatorLoginError};
use iscsi::negotiate::OperationalPreferences;
use iscsi::pdu::{Cid, InitiatorTaskTag, Isid, LoginStatus, Tsih};
use store::SharedStore;

use super::attendant::{self, Known};
use super::line::{self, Clock, Line, StepError};
use crate::hyperscsi::Password;
use crate::nbd::OwnServers;
use crate::scsi::command::{self, Facts, Unfit};
use crate::scsi::host::{Host, LOOK_MAX, Until};
use crate::scsi::jobs::Losses;
use crate::scsi::medium::InUse;
use crate::scsi::shared::{NoDisk, ScsiDisk, Terms, Whose};
use crate::words;

/// Who logs in, where nothing else is configured.
const INITIATOR: &str = "iqn.2026-11.example.tarn:client";
/// The data of one command, at most.
const DATA_BYTES_MAX: u32 = 1 << 20;

/// Who one side is, and how it proves that (CHAP).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IscsiLogin {
    /// The name.
    pub user: String,
    /// The secret.
    pub password: Password,
}

impl IscsiLogin {
    fn credentials(&self) -> Credentials {
        Credentials {
            name: self.user.clone(),
            secret: Secret::new(self.password.bytes().to_vec()),
        }
    }
}

/// What to open and how.
#[derive(Clone, Debug)]
pub struct IscsiOptions {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The name of the target.
    pub target: String,
    /// The number of the logical unit.
    pub lun: u16,
    /// The name of this side; `None`: that of all Tarns.
    pub initiator: Option<String>,
    /// How this side proves who it is; `None`: it does not.
    pub login: Option<IscsiLogin>,
    /// What the target has to prove to be; `None`: nothing. Needs `login`.
    pub mutual: Option<IscsiLogin>,
    /// How long requests wait for a target that does not answer before they fail. Zero: they fail at once.
    pub retry: Duration,
    /// Refuse all writes.
    pub read_only: bool,
    /// Unmapped blocks release their space, if the disk can do that.
    pub thin: bool,
    /// Logical block length, 512 or 4096.
    pub block_bytes: u32,
    /// Where this process has portals of its own: what those serve is no store.
    pub own: Arc<OwnServers>,
}

impl fmt::Display for IscsiOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host,
            port,
            target,
            lun,
            ..
        } = self;
        match host.contains(':') {
            true => write!(f, "iscsi://[{host}]:{port}/{target}/{lun}"),
            false => write!(f, "iscsi://{host}:{port}/{target}/{lun}"),
        }
    }
}

/// Why a disk cannot be a store: the place, the reason, the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{disk}: {reason}")]
pub struct IscsiOpenError {
    disk: String,
    /// What was found.
    pub reason: Box<IscsiFailure>,
}

/// What keeps a disk from being a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IscsiFailure {
    /// No connection.
    #[error("cannot connect: {}; start the target, or check host and port", words(.0))]
    Connect(io::Error),
    /// The login failed; the text has the remedy.
    #[error("{0}")]
    Login(String),
    /// The connection broke off, or what came makes no sense.
    #[error("{0}; is this an iSCSI target, and does it let this initiator in?")]
    Broken(String),
    /// Nothing came in time.
    #[error("the target accepts, but does not answer; is this an iSCSI target, and does it work?")]
    Silent,
    /// There is no such logical unit.
    #[error(
        "the target has no such LUN for the initiator {initiator}; check the number, and who may use it"
    )]
    NoLun {
        /// The name of this side.
        initiator: String,
    },
    /// The target sends this side away, and never to where it is.
    #[error("{0}; check the portals of the target, or name the one that has it")]
    Lost(String),
    /// The disk is not ready.
    #[error("{0}; wait, or look at the target")]
    NotReady(String),
    /// It has no size.
    #[error("the disk does not say its size; such a disk cannot be a store")]
    NoSize,
    /// It cannot be a disk here.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// It would wait for itself.
    #[error(
        "it is a LUN of this Tarn itself, which serves when all stores are open; name the store of that lun, or a LUN \
         of another target"
    )]
    Own,
    /// Another store has the disk.
    #[error(transparent)]
    Twice(InUse),
    /// The system has no random bytes.
    #[error("the system gives no random bytes")]
    NoRandom,
}

impl From<NoDisk> for IscsiFailure {
    fn from(error: NoDisk) -> Self {
        match error {
            NoDisk::Twice(in_use) => Self::Twice(in_use),
            NoDisk::Host(error) => Self::Connect(error),
        }
    }
}

impl IscsiFailure {
    fn of(error: StepError, options: &IscsiOptions) -> Self {
        match error {
            StepError::Connect(error) => Self::Connect(error),
            StepError::Login(error) => Self::Login(refusal(&error, options)),
            StepError::Lost(how, address) => Self::Lost(lost(how, &address)),
            StepError::Own => Self::Own,
            StepError::Broken(reason) => Self::Broken(reason),
            // A first look is given up when it takes too long.
            StepError::Silent | StepError::GivenUp => Self::Silent,
            StepError::NoLun => Self::NoLun {
                initiator: options.initiator().to_owned(),
            },
            StepError::NotReady(reason) => Self::NotReady(reason),
            StepError::NoRandom => Self::NoRandom,
        }
    }
}

/// What redirections that lead nowhere are for a person.
pub(super) fn lost(how: &str, address: &TargetAddress) -> String {
    format!("the target sends the login {how}, last to {address}")
}

/// What a failed login means for a person, and the remedy.
pub(super) fn refusal(error: &InitiatorLoginError, options: &IscsiOptions) -> String {
    let remedy = match (error, error.status()) {
        (_, Some(LoginStatus::AuthenticationFailure)) => match options.login {
            Some(_) => "check user= and the secret in password_file=".to_owned(),
            None => "the target wants CHAP; add user= and password_file=".to_owned(),
        },
        (_, Some(LoginStatus::AuthorizationFailure)) => {
            let initiator = options.initiator();
            format!("let the initiator {initiator} in, or add initiator=NAME")
        }
        (_, Some(LoginStatus::NotFound | LoginStatus::TargetRemoved)) => {
            "there is no such target; check its name".to_owned()
        }
        (_, Some(LoginStatus::TargetMovedTemporarily | LoginStatus::TargetMovedPermanently)) => {
            "the target has moved and does not say where to; name a portal that has it".to_owned()
        }
        (_, Some(LoginStatus::ServiceUnavailable | LoginStatus::OutOfResources)) => {
            "the target has no room; end other sessions".to_owned()
        }
        (InitiatorLoginError::NoCommonAuthMethod, _) => match options.login {
            Some(_) => {
                "the target does no CHAP; leave user= out, or have it ask for CHAP".to_owned()
            }
            None => "the target wants CHAP; add user= and password_file=".to_owned(),
        },
        (InitiatorLoginError::Chap(ChapError::SharedSecret), _) => {
            "user and target have one secret; give each its own".to_owned()
        }
        (InitiatorLoginError::Chap(_) | InitiatorLoginError::AuthenticationSkipped, _) => {
            "check the secrets of both sides".to_owned()
        }
        (_, _) => "look at the log of the target".to_owned(),
    };
    format!("the login failed: {error}; {remedy}")
}

/// Says that a session is not where the configuration has it.
pub(super) fn warn_moved(options: &IscsiOptions, portal: &str) {
    tracing::warn!(disk = %options, portal, "an iSCSI target has sent its session to another portal");
}

/// Looks at the disk.
pub(super) fn look_at(
    line: &mut Line,
    clock: Clock,
    host: &mut impl Host,
) -> Result<Option<Facts>, StepError> {
    line.ask(clock, &command::test_unit_ready(), host)?;
    host.begin_look();
    Facts::find(DATA_BYTES_MAX, |cdb| line.ask(clock, &cdb, host))
}

impl IscsiOptions {
    /// Logs in, looks at the disk, and gives the store. Blocks.
    ///
    /// # Errors
    ///
    /// There is no such disk, it cannot be a store, or it cannot be reached.
    pub fn open(self) -> Result<Arc<dyn SharedStore>, IscsiOpenError> {
        match self.clone().open_inside() {
            Ok(disk) => Ok(Arc::new(disk)),
            Err(reason) => Err(IscsiOpenError {
                disk: self.to_string(),
                reason: Box::new(reason),
            }),
        }
    }

    fn open_inside(self) -> Result<ScsiDisk, IscsiFailure> {
        let clock = Clock::new();
        let isid = random_isid()?;
        let failed = |error| IscsiFailure::of(error, &self);
        let host = &mut Until(clock.now() + LOOK_MAX);
        let line = line::establish(clock, &self, isid, host);
        let mut line = line.map_err(failed)?;
        let moved = line.moved.take();
        let found = look_at(&mut line, clock, host);
        line.log_out(clock);
        let look = found.map_err(failed)?.ok_or(IscsiFailure::NoSize)?;
        look.check(self.block_bytes, self.read_only)?;
        let disk = self.clone().disk(clock, isid, look, moved.clone())?;
        if let Some(portal) = &moved {
            warn_moved(&self, portal);
        }
        Ok(disk)
    }

    fn disk(
        self,
        clock: Clock,
        isid: Isid,
        look: Facts,
        moved: Option<String>,
    ) -> Result<ScsiDisk, NoDisk> {
        let terms = Terms {
            retry: self.retry,
            read_only: self.read_only,
            thin: self.thin,
            block_bytes: self.block_bytes,
        };
        let whose = Whose {
            kind: "an iSCSI target",
            what: "disk of this LUN",
            server: format!("target {}", self.target),
            device: self.to_string(),
            store: self.to_string(),
            losses: Losses::AsTold,
        };
        let known = Known {
            options: self,
            isid,
            moved,
        };
        let begin = Box::new(move |common: &Arc<_>| attendant::begin(common, clock, known));
        ScsiDisk::new(terms, whose, look, begin)
    }

    fn initiator(&self) -> &str {
        self.initiator.as_deref().unwrap_or(INITIATOR)
    }

    /// What a session is logged in with.
    pub(super) fn login_config(&self, isid: Isid) -> InitiatorLoginConfig {
        let auth = match &self.login {
            None => InitiatorAuth::None { skip_stage: false },
            Some(login) => InitiatorAuth::Chap {
                own: login.credentials(),
                target: self.mutual.as_ref().map(IscsiLogin::credentials),
                algorithms: ChapAlgorithm::ALL.to_vec(),
                or_none: false,
            },
        };
        InitiatorLoginConfig {
            initiator_name: self.initiator().to_owned(),
            initiator_alias: None,
            target_name: Some(self.target.clone()),
            isid,
            tsih: Tsih::NONE,
            cid: Cid(0),
            cmd_sn: SerialNumber(1),
            initiator_task_tag: InitiatorTaskTag(1),
            auth,
            preferences: OperationalPreferences {
                max_connections: 1,
                default_time2wait_s: 0,
                default_time2retain_s: 0,
                ..OperationalPreferences::default()
            },
        }
    }
}

/// The same for all sessions of a store: a new one takes the place of the one before, and the target ends the tasks of
/// that first. Of two stores each has its own, at one target and under one name, too.
///
/// Spec: RFC 7143 sections 6.3.5 and 11.12.5, type 10b: random number and qualifier.
fn random_isid() -> Result<Isid, IscsiFailure> {
    let mut random = [0; 5];
    getrandom::fill(&mut random).map_err(|_| IscsiFailure::NoRandom)?;
    let [a, b, c, d, e] = random;
    Ok(Isid([0x80, a, b, c, d, e]))
}
