//! Where a disk is, how it is reached, and what a person is told of its target.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use iscsi::SerialNumber;
use iscsi::chap::{ChapAlgorithm, ChapError, Credentials, Secret};
use iscsi::discovery::TargetAddress;
use iscsi::login::{InitiatorAuth, InitiatorLoginConfig, InitiatorLoginError};
use iscsi::negotiate::OperationalPreferences;
use iscsi::pdu::{Cid, InitiatorTaskTag, Isid, LoginStatus, Tsih};

use crate::hyperscsi::Password;
use crate::nbd::OwnServers;

/// Who logs in, where nothing else is configured.
const INITIATOR: &str = "iqn.2026-11.example.tarn:client";

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

impl IscsiOptions {
    pub(super) fn initiator(&self) -> &str {
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
