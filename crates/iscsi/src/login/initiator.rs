//! The initiator's side of one login.

use std::collections::VecDeque;
use std::time::Duration;

use super::{RANDOM_BYTES, is_forward, split_random};
use crate::chap::{ChapAlgorithm, ChapError, ChapInitiator, ChapKeys, Credentials};
use crate::discovery::TargetAddress;
use crate::framing::Pdu;
use crate::limits::{LOGIN_REQUESTS_MAX, LOGIN_SEGMENT_MAX_BYTES};
use crate::negotiate::{
    ConnectionParameters, Key, Negotiation, NegotiationViolation, OperationalPreferences, Phase,
    Role, SessionParameters, SessionType, parse_number,
};
use crate::pdu::{
    Bhs, BhsBytes, Cid, InitiatorTaskTag, Isid, LoginRequestBhs, LoginResponseBhs, LoginStage,
    LoginStatus, Opcode, Tsih, flags, opcode_bits,
};
use crate::serial::SerialNumber;
use crate::text::{TextAccumulator, TextError, TextWriter, parse};

/// How the initiator proves who it is.
#[derive(Clone, Debug)]
pub enum InitiatorAuth {
    /// Not at all; without even a security stage if `skip_stage` is set.
    None {
        /// Begin with operational negotiation.
        skip_stage: bool,
    },
    /// By CHAP.
    Chap {
        /// This side's name and secret.
        own: Credentials,
        /// Whom the target has to prove to be; `None` for one-way CHAP.
        target: Option<Credentials>,
        /// Algorithms offered, best first.
        algorithms: Vec<ChapAlgorithm>,
        /// Go on without authentication if the target wants none. Refused for mutual CHAP.
        or_none: bool,
    },
}

/// What to log in with.
#[derive(Clone, Debug)]
pub struct InitiatorLoginConfig {
    /// InitiatorName.
    pub initiator_name: String,
    /// InitiatorAlias, if there is one.
    pub initiator_alias: Option<String>,
    /// TargetName; `None` makes a discovery session.
    pub target_name: Option<String>,
    /// This side's part of the session identifier.
    pub isid: Isid,
    /// The session to join; [`Tsih::NONE`] for a new one.
    pub tsih: Tsih,
    /// The connection.
    pub cid: Cid,
    /// CmdSN of the first command of a new session, or the next one of the session to join.
    pub cmd_sn: SerialNumber,
    /// Tag of all requests of this login.
    pub initiator_task_tag: InitiatorTaskTag,
    /// Proof offered.
    pub auth: InitiatorAuth,
    /// What to offer.
    pub preferences: OperationalPreferences,
}

/// A login that is done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EstablishedInitiator {
    /// The session, as the target named it.
    pub tsih: Tsih,
    /// What was negotiated for the session; defaults and meaningless when joining one.
    pub session: SessionParameters,
    /// What was negotiated for the connection.
    pub connection: ConnectionParameters,
    /// CmdSN of the next command, as configured: a login takes none.
    pub cmd_sn: SerialNumber,
    /// Next StatSN of the connection.
    pub exp_stat_sn: SerialNumber,
    /// ExpCmdSN of the target.
    pub exp_cmd_sn: SerialNumber,
    /// MaxCmdSN of the target.
    pub max_cmd_sn: SerialNumber,
    /// TargetPortalGroupTag, if it was sent.
    pub portal_group_tag: Option<u16>,
    /// TargetAlias, if it was sent.
    pub target_alias: Option<String>,
}

/// Why a login did not succeed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InitiatorLoginError {
    /// The target refused.
    #[error("target refused the login with status {class:#04x}/{detail:#04x}")]
    Refused {
        /// Status-Class.
        class: u8,
        /// Status-Detail.
        detail: u8,
        /// Where to go instead, with a redirection.
        address: Option<TargetAddress>,
    },
    /// The response is no proper answer to the request.
    #[error("login response breaks a rule: {0}")]
    Malformed(&'static str),
    /// The text is malformed or too long.
    #[error(transparent)]
    Form(#[from] TextError),
    /// A key was used against the rules.
    #[error(transparent)]
    Negotiation(#[from] NegotiationViolation),
    /// Authentication failed.
    #[error(transparent)]
    Chap(#[from] ChapError),
    /// The target chose a method that was not offered, or none.
    #[error("target does not take the offered AuthMethod")]
    NoCommonAuthMethod,
    /// The target left the security stage without having authenticated as configured.
    #[error("target skipped authentication")]
    AuthenticationSkipped,
    /// A result is outside what this side can live with.
    #[error("no acceptable value of {}", .0.name())]
    Unacceptable(Key),
    /// The target never comes to an end.
    #[error("login takes more than {limit} requests")]
    TooManyRequests {
        /// The limit.
        limit: u32,
    },
    /// Time is up.
    #[error("login not complete in time")]
    DeadlinePassed,
}

impl InitiatorLoginError {
    /// The status of a refusal, if it is one that the standard lists.
    #[must_use]
    pub const fn status(&self) -> Option<LoginStatus> {
        if let Self::Refused { class, detail, .. } = self {
            LoginStatus::from_class_and_detail(*class, *detail)
        } else {
            None
        }
    }
}

/// What the owner has to do, in this order.
#[derive(Debug)]
pub enum InitiatorLoginAction {
    /// Send this PDU, without digests.
    Send(Pdu),
    /// The full-feature phase begins.
    Complete(Box<EstablishedInitiator>),
    /// Close the connection.
    Failed(InitiatorLoginError),
}

#[derive(Debug)]
enum AuthState {
    /// Nothing agreed yet.
    Offered,
    /// CHAP is under way or done.
    Chap,
    /// Agreed on `None`, or on no security stage at all.
    Nobody,
}

/// The initiator's side of one login, for one connection.
#[derive(Debug)]
pub struct LoginInitiator {
    config: InitiatorLoginConfig,
    deadline: Duration,
    is_over: bool,
    actions: VecDeque<InitiatorLoginAction>,
    requests: u32,
    stage: LoginStage,
    /// The next stage asked for in the request that is open, if any.
    asked: Option<LoginStage>,
    /// The text of the next request.
    request: TextWriter,
    /// The text of the request that is open goes on in the next one.
    is_continuing: bool,
    gathered: TextAccumulator,
    negotiation: Negotiation,
    auth: AuthState,
    chap: Option<ChapInitiator>,
    exp_stat_sn: SerialNumber,
    portal_group_tag: Option<u16>,
    target_alias: Option<String>,
}

impl LoginInitiator {
    /// A login that begins at `now`; the first request is queued at once.
    ///
    /// # Errors
    ///
    /// One CHAP secret is configured for both directions.
    pub fn new(
        config: InitiatorLoginConfig,
        now: Duration,
        timeout: Duration,
        random: [u8; RANDOM_BYTES],
    ) -> Result<Self, ChapError> {
        let (challenge, _) = split_random(random);
        let chap = match &config.auth {
            InitiatorAuth::None { .. } => None,
            InitiatorAuth::Chap {
                own,
                target,
                algorithms,
                ..
            } => Some(ChapInitiator::new(
                own.clone(),
                target.clone(),
                algorithms.clone(),
                challenge,
            )?),
        };
        let session_type = if config.target_name.is_some() {
            SessionType::Normal
        } else {
            SessionType::Discovery
        };
        let phase = if config.tsih.is_none() {
            Phase::LeadingLogin
        } else {
            Phase::JoiningLogin
        };
        let negotiation = Negotiation::new(
            Role::Initiator,
            phase,
            session_type,
            config.preferences.clone(),
        );
        let mut login = Self {
            config,
            deadline: now.saturating_add(timeout),
            is_over: false,
            actions: VecDeque::new(),
            requests: 0,
            stage: LoginStage::SecurityNegotiation,
            asked: None,
            request: TextWriter::new(),
            is_continuing: false,
            gathered: TextAccumulator::default(),
            negotiation,
            auth: AuthState::Offered,
            chap,
            exp_stat_sn: SerialNumber(0),
            portal_group_tag: None,
            target_alias: None,
        };
        login.start(session_type);
        Ok(login)
    }

    /// What the owner has to do next.
    pub fn poll_action(&mut self) -> Option<InitiatorLoginAction> {
        self.actions.pop_front()
    }

    /// When [`LoginInitiator::handle_timeout`] is due, if ever.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        (!self.is_over).then_some(self.deadline)
    }

    /// Gives up if the time is over.
    pub fn handle_timeout(&mut self, now: Duration) {
        if !self.is_over && now >= self.deadline {
            self.fail(InitiatorLoginError::DeadlinePassed);
        }
    }

    /// Takes one PDU: header and complete data segment.
    pub fn handle_pdu(&mut self, header: &BhsBytes, data: &[u8]) {
        if self.is_over {
            return;
        }
        if let Err(error) = self.handle_response(header, data) {
            self.fail(error);
        }
    }

    fn fail(&mut self, error: InitiatorLoginError) {
        self.is_over = true;
        self.actions.push_back(InitiatorLoginAction::Failed(error));
    }

    fn start(&mut self, session_type: SessionType) {
        let text = &mut self.request;
        text.push(Key::InitiatorName.name(), &self.config.initiator_name);
        if let Some(alias) = &self.config.initiator_alias {
            text.push(Key::InitiatorAlias.name(), alias);
        }
        if let Some(target) = &self.config.target_name {
            text.push(Key::TargetName.name(), target);
        }
        if self.config.tsih.is_none() {
            text.push(Key::SessionType.name(), session_type.text());
        }
        match &self.config.auth {
            InitiatorAuth::None { skip_stage: true } => {
                self.auth = AuthState::Nobody;
                self.stage = LoginStage::OperationalNegotiation;
                self.negotiation.offer_all(&mut self.request);
                self.send(Some(LoginStage::FullFeaturePhase));
            }
            InitiatorAuth::None { skip_stage: false } => {
                text.push(Key::AuthMethod.name(), "None");
                self.send(Some(LoginStage::OperationalNegotiation));
            }
            InitiatorAuth::Chap { or_none, .. } => {
                let offer = if *or_none { "CHAP,None" } else { "CHAP" };
                text.push(Key::AuthMethod.name(), offer);
                self.send(None);
            }
        }
    }

    /// Sends what is written, and asks for the next stage if it all fits.
    fn send(&mut self, ask: Option<LoginStage>) {
        self.requests = self.requests.saturating_add(1);
        if self.requests > LOGIN_REQUESTS_MAX {
            self.fail(InitiatorLoginError::TooManyRequests {
                limit: LOGIN_REQUESTS_MAX,
            });
            return;
        }
        let (segment, more) = self.request.next_segment(LOGIN_SEGMENT_MAX_BYTES);
        self.is_continuing = more;
        self.asked = ask.filter(|_| !more);
        let mut header = LoginRequestBhs::new();
        header.opcode |= flags::IMMEDIATE;
        header.flags = self.stage.code() << flags::CURRENT_STAGE_SHIFT;
        if let Some(next) = self.asked {
            header.flags |= flags::TRANSIT | next.code();
        }
        if more {
            header.flags |= flags::CONTINUE;
        }
        header.isid = self.config.isid;
        header.tsih = self.config.tsih.0.into();
        header.initiator_task_tag = self.config.initiator_task_tag.0.into();
        header.cid = self.config.cid.0.into();
        header.cmd_sn = self.config.cmd_sn.into();
        header.exp_stat_sn = self.exp_stat_sn.into();
        self.actions.push_back(InitiatorLoginAction::Send(Pdu::new(
            header.as_bhs_bytes(),
            segment,
        )));
    }

    fn handle_response(
        &mut self,
        header: &BhsBytes,
        data: &[u8],
    ) -> Result<(), InitiatorLoginError> {
        use InitiatorLoginError::Malformed;
        if opcode_bits(header) != Opcode::LoginResponse.code() {
            return Err(Malformed("another PDU came instead"));
        }
        let response = LoginResponseBhs::view(header);
        if response.itt() != self.config.initiator_task_tag || response.isid != self.config.isid {
            return Err(Malformed("task tag or ISID differ from the request"));
        }
        if data.len() > LOGIN_SEGMENT_MAX_BYTES {
            return Err(Malformed("data segment too long"));
        }
        if response.status_class != 0 {
            return Err(refusal(response, data));
        }
        self.exp_stat_sn = response.stat_sn().next();
        if response.version_active != 0 {
            return Err(Malformed("unknown version"));
        }
        if response.current_stage() != Some(self.stage) {
            return Err(Malformed("CSG is not the stage of the request"));
        }
        self.gathered.push(data)?;
        if self.is_continuing {
            if response.is_transit() || !data.is_empty() {
                return Err(Malformed("answer before the request is complete"));
            }
            self.send(self.natural_next());
            return Ok(());
        }
        if response.is_continued() {
            if response.is_transit() {
                return Err(Malformed("T and C are both set"));
            }
            self.send(None);
            return Ok(());
        }
        let text = self.gathered.take();
        self.take_keys(&text)?;
        if response.is_transit() {
            return self.enter(response);
        }
        // The target stays in the stage: say what is left to say, and ask again.
        self.send(self.natural_next());
        Ok(())
    }

    fn take_keys(&mut self, text: &[u8]) -> Result<(), InitiatorLoginError> {
        let pairs = parse(text)?;
        let mut keys = ChapKeys::default();
        let mut method = None;
        for (key, value) in self.negotiation.handle_text(&pairs, &mut self.request)? {
            if keys.take(key, value) {
                continue;
            }
            if key == Key::AuthMethod {
                method = Some(value);
            } else if key == Key::TargetPortalGroupTag {
                let tag = parse_number(value).and_then(|tag| u16::try_from(tag).ok());
                self.portal_group_tag =
                    Some(tag.ok_or(InitiatorLoginError::Malformed("TargetPortalGroupTag"))?);
            } else if key == Key::TargetAlias {
                self.target_alias = Some(value.to_owned());
            }
        }
        if let Some(method) = method {
            self.take_method(method)?;
        }
        if !keys.is_empty() {
            let chap = self
                .chap
                .as_mut()
                .filter(|_| matches!(self.auth, AuthState::Chap))
                .ok_or(ChapError::OutOfTurn(Key::ChapAlgorithm))?;
            chap.handle(&keys, &mut self.request)?;
        }
        Ok(())
    }

    fn take_method(&mut self, method: &str) -> Result<(), InitiatorLoginError> {
        if self.stage != LoginStage::SecurityNegotiation || !matches!(self.auth, AuthState::Offered)
        {
            return Err(InitiatorLoginError::Malformed("AuthMethod out of turn"));
        }
        match (method, &self.config.auth, &mut self.chap) {
            ("CHAP", InitiatorAuth::Chap { .. }, Some(chap)) => {
                chap.start(&mut self.request);
                self.auth = AuthState::Chap;
            }
            ("None", InitiatorAuth::None { .. }, _)
            | (
                "None",
                InitiatorAuth::Chap {
                    or_none: true,
                    target: None,
                    ..
                },
                _,
            ) => self.auth = AuthState::Nobody,
            _ => return Err(InitiatorLoginError::NoCommonAuthMethod),
        }
        Ok(())
    }

    /// The target has ended the stage.
    fn enter(&mut self, response: &LoginResponseBhs) -> Result<(), InitiatorLoginError> {
        use InitiatorLoginError::Malformed;
        let next = response
            .next_stage()
            .filter(|&next| is_forward(self.stage, next))
            .ok_or(Malformed("NSG does not follow CSG"))?;
        if self.asked.is_none_or(|asked| asked.code() < next.code()) {
            return Err(Malformed("transition that was not asked for"));
        }
        if self.stage == LoginStage::SecurityNegotiation {
            let is_proved = match (&self.auth, &self.config.auth) {
                (AuthState::Nobody, _)
                | (AuthState::Offered, InitiatorAuth::None { .. })
                | (
                    AuthState::Offered,
                    InitiatorAuth::Chap {
                        or_none: true,
                        target: None,
                        ..
                    },
                ) => true,
                (AuthState::Chap, _) => self.chap.as_ref().is_some_and(ChapInitiator::is_done),
                (AuthState::Offered, InitiatorAuth::Chap { .. }) => false,
            };
            if !is_proved {
                return Err(InitiatorLoginError::AuthenticationSkipped);
            }
        }
        self.stage = next;
        if next == LoginStage::FullFeaturePhase {
            return self.complete(response);
        }
        self.negotiation.offer_all(&mut self.request);
        self.send(Some(LoginStage::FullFeaturePhase));
        Ok(())
    }

    /// The stage to ask for, given where this side stands.
    fn natural_next(&self) -> Option<LoginStage> {
        if self.stage == LoginStage::OperationalNegotiation {
            return Some(LoginStage::FullFeaturePhase);
        }
        let is_ready = match self.auth {
            AuthState::Nobody => true,
            // Once this side has answered, nothing is left but the target's own proof.
            AuthState::Chap => self.chap.as_ref().is_some_and(ChapInitiator::has_answered),
            AuthState::Offered => matches!(self.config.auth, InitiatorAuth::None { .. }),
        };
        is_ready.then_some(LoginStage::OperationalNegotiation)
    }

    fn complete(&mut self, response: &LoginResponseBhs) -> Result<(), InitiatorLoginError> {
        use InitiatorLoginError::{Malformed, Unacceptable};
        let is_joined = response.tsih() == self.config.tsih;
        if response.tsih().is_none() || !(self.config.tsih.is_none() || is_joined) {
            return Err(Malformed("TSIH"));
        }
        if let Some(key) = self.negotiation.unanswered() {
            return Err(Unacceptable(key));
        }
        if !self.request.is_empty() {
            return Err(Malformed("offer in the final response"));
        }
        if let Some(key) = self.negotiation.unacceptable() {
            return Err(Unacceptable(key));
        }
        self.is_over = true;
        let established = EstablishedInitiator {
            tsih: response.tsih(),
            session: self.negotiation.session_parameters(),
            connection: self.negotiation.connection_parameters(),
            cmd_sn: self.config.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            exp_cmd_sn: response.exp_cmd_sn(),
            max_cmd_sn: response.max_cmd_sn(),
            portal_group_tag: self.portal_group_tag,
            target_alias: self.target_alias.take(),
        };
        self.actions
            .push_back(InitiatorLoginAction::Complete(Box::new(established)));
        Ok(())
    }
}

/// Reads a refusal, and where it sends us.
fn refusal(response: &LoginResponseBhs, data: &[u8]) -> InitiatorLoginError {
    let address = parse(data).ok().and_then(|pairs| {
        pairs
            .iter()
            .find(|pair| pair.key == Key::TargetAddress.name())
            .and_then(|pair| TargetAddress::parse(pair.value))
    });
    InitiatorLoginError::Refused {
        class: response.status_class,
        detail: response.status_detail,
        address,
    }
}
