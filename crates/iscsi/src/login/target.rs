//! The target's side of one login.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::violation::LoginViolation;
use super::{RANDOM_BYTES, is_forward, split_random};
use crate::chap::{Challenge, ChapAccount, ChapAlgorithm, ChapKeys, ChapTarget};
use crate::discovery::TargetAddress;
use crate::framing::Pdu;
use crate::limits::{LOGIN_REQUESTS_MAX, LOGIN_SEGMENT_MAX_BYTES};
use crate::names::IscsiName;
use crate::negotiate::{
    ConnectionParameters, Key, Negotiation, OperationalPreferences, Phase, ReservedAnswer, Role,
    SessionParameters, SessionType,
};
use crate::pdu::{
    Bhs, BhsBytes, Cid, Isid, LoginRequestBhs, LoginResponseBhs, LoginStage, LoginStatus, Opcode,
    Tsih, flags, opcode_bits,
};
use crate::serial::SerialNumber;
use crate::text::{Pair, TextAccumulator, TextWriter, parse};

/// How an initiator has to prove who it is.
#[derive(Clone, Debug)]
pub enum TargetAuth {
    /// Not at all.
    None,
    /// By CHAP.
    Chap {
        /// False when an initiator may come without proof, too, and is nobody then.
        is_required: bool,
        /// Algorithms that will do.
        algorithms: Vec<ChapAlgorithm>,
        /// Who may log in.
        accounts: Arc<[ChapAccount]>,
    },
}

/// What the owner says about a target, or about discovery, when a login asks for it.
#[derive(Clone, Debug)]
pub struct TargetPolicy {
    /// Proof wanted.
    pub auth: TargetAuth,
    /// Limits of negotiation.
    pub preferences: OperationalPreferences,
    /// TargetPortalGroupTag of the portal the connection came in by.
    pub portal_group_tag: u16,
    /// TargetAlias, if the target has one.
    pub target_alias: Option<String>,
}

/// The owner's no.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoginRefusal {
    /// Goes to the initiator.
    pub status: LoginStatus,
    /// Where to go instead; needed with the two redirections.
    pub target_address: Option<TargetAddress>,
}

impl From<LoginStatus> for LoginRefusal {
    fn from(status: LoginStatus) -> Self {
        Self {
            status,
            target_address: None,
        }
    }
}

/// Who wants to log in to what. Answer with [`LoginTarget::authorize_reply`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuthorizeRequest {
    /// Claimed, not proved.
    pub initiator_name: IscsiName,
    /// Always there unless the session is for discovery.
    pub target_name: Option<IscsiName>,
    /// Normal or discovery.
    pub session_type: SessionType,
}

/// A login that lacks nothing but its session. Answer with [`LoginTarget::admit_reply`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NegotiatedLogin {
    /// Proved as far as the policy asked for it.
    pub initiator_name: IscsiName,
    /// InitiatorAlias, if given.
    pub initiator_alias: Option<String>,
    /// Always there unless the session is for discovery.
    pub target_name: Option<IscsiName>,
    /// Normal or discovery.
    pub session_type: SessionType,
    /// The user that CHAP has proved.
    pub chap_user: Option<String>,
    /// The initiator's part of the session identifier.
    pub isid: Isid,
    /// The session to join; [`Tsih::NONE`] for a leading login.
    pub tsih: Tsih,
    /// The connection.
    pub cid: Cid,
    /// TargetPortalGroupTag, as the policy had it.
    pub portal_group_tag: u16,
    /// What was negotiated for the session; defaults and meaningless when joining one.
    pub session: SessionParameters,
    /// What was negotiated for the connection.
    pub connection: ConnectionParameters,
    /// CmdSN of the login: the first command of a new session has the same.
    pub cmd_sn: SerialNumber,
    /// StatSN of the first response after the login.
    pub next_stat_sn: SerialNumber,
}

/// The owner's yes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Admission {
    /// The session; never [`Tsih::NONE`].
    pub tsih: Tsih,
    /// Next CmdSN the session expects; the login's own CmdSN when the session is new.
    pub exp_cmd_sn: SerialNumber,
    /// Last CmdSN the session takes.
    pub max_cmd_sn: SerialNumber,
}

/// A login that is done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EstablishedLogin {
    /// As it was admitted.
    pub login: NegotiatedLogin,
    /// The session.
    pub tsih: Tsih,
}

/// What the owner has to do, in this order.
#[derive(Debug)]
pub enum LoginAction {
    /// Send this PDU, without digests.
    Send(Pdu),
    /// Say whether this may go on.
    Authorize(AuthorizeRequest),
    /// Find or make the session.
    Admit(Box<NegotiatedLogin>),
    /// The final response is queued before this: the full-feature phase begins.
    Complete(Box<EstablishedLogin>),
    /// Send what is queued before this, then close.
    Close(LoginViolation),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// It is the initiator's turn.
    AwaitRequest,
    /// It is the owner's turn to authorize.
    Authorizing,
    /// It is the owner's turn to admit.
    Admitting,
    /// Complete or closed.
    Over,
}

/// Fields that all requests of a login share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Identity {
    isid: Isid,
    tsih: Tsih,
    cid: Cid,
    initiator_task_tag: u32,
}

impl Identity {
    fn of(request: &LoginRequestBhs) -> Self {
        Self {
            isid: request.isid,
            tsih: request.tsih(),
            cid: request.cid(),
            initiator_task_tag: request.initiator_task_tag.get(),
        }
    }
}

#[derive(Debug)]
enum AuthState {
    /// AuthMethod was not negotiated.
    Open,
    /// CHAP is under way.
    Chap(ChapTarget),
    /// The initiator has proved to be this user.
    Proved(String),
    /// Agreed on `None`.
    Nobody,
}

/// The target's side of one login, for one connection.
///
/// It may be moved to another thread between any two calls. After each call take all actions
/// with [`LoginTarget::poll_action`].
#[derive(Debug)]
pub struct LoginTarget {
    state: State,
    deadline: Duration,
    actions: VecDeque<LoginAction>,
    requests: u32,
    identity: Option<Identity>,
    cmd_sn: SerialNumber,
    stat_sn: SerialNumber,
    stage: LoginStage,
    /// Byte 1 of the request that is being answered.
    request_flags: u8,
    gathered: TextAccumulator,
    /// Text that waits for authorization.
    first_text: Vec<u8>,
    answer: TextWriter,
    negotiation: Negotiation,
    names: Option<AuthorizeRequest>,
    initiator_alias: Option<String>,
    /// AuthMethod as it was offered, once one was chosen.
    auth_offer: Option<String>,
    policy: Option<TargetPolicy>,
    auth: AuthState,
    /// CHAP_N as it came with a response, right or wrong.
    claimed_user: Option<String>,
    challenge: Challenge,
    alias_is_sent: bool,
    admitted: Option<Box<NegotiatedLogin>>,
}

impl LoginTarget {
    /// A connection that was accepted at `now` and has `timeout` to log in.
    #[must_use]
    pub fn new(now: Duration, timeout: Duration, random: [u8; RANDOM_BYTES]) -> Self {
        let (challenge, stat_sn) = split_random(random);
        Self {
            state: State::AwaitRequest,
            deadline: now.saturating_add(timeout),
            actions: VecDeque::new(),
            requests: 0,
            identity: None,
            cmd_sn: SerialNumber(0),
            stat_sn,
            stage: LoginStage::SecurityNegotiation,
            request_flags: 0,
            gathered: TextAccumulator::default(),
            first_text: Vec::new(),
            answer: TextWriter::new(),
            negotiation: Negotiation::new(
                Role::Target,
                Phase::LeadingLogin,
                SessionType::Normal,
                OperationalPreferences::default(),
            ),
            names: None,
            initiator_alias: None,
            auth_offer: None,
            claimed_user: None,
            policy: None,
            auth: AuthState::Open,
            challenge,
            alias_is_sent: false,
            admitted: None,
        }
    }

    /// What the owner has to do next.
    pub fn poll_action(&mut self) -> Option<LoginAction> {
        self.actions.pop_front()
    }

    /// Who wants to log in, as soon as it has said so. Claimed, not proved.
    #[must_use]
    pub fn initiator_name(&self) -> Option<&IscsiName> {
        self.names.as_ref().map(|names| &names.initiator_name)
    }

    /// The user that it claims to be, as soon as it has sent a proof, right or wrong.
    #[must_use]
    pub fn claimed_user(&self) -> Option<&str> {
        self.claimed_user.as_deref()
    }

    /// What it wants to log in to, as soon as it has said so; `None` for discovery.
    #[must_use]
    pub fn target_name(&self) -> Option<&IscsiName> {
        self.names.as_ref()?.target_name.as_ref()
    }

    /// When [`LoginTarget::handle_timeout`] is due, if ever.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        (self.state != State::Over).then_some(self.deadline)
    }

    /// Closes the connection if its time is up.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.state != State::Over && now >= self.deadline {
            self.fail(LoginViolation::DeadlinePassed, None);
        }
    }

    /// Takes one PDU: header and complete data segment. Additional header segments need not be
    /// passed in, as a login that has some is refused.
    pub fn handle_pdu(&mut self, header: &BhsBytes, data: &[u8]) {
        if self.state == State::Over {
            return;
        }
        let outcome = self.handle_request(header, data);
        self.settle(outcome);
    }

    /// The owner's answer to [`LoginAction::Authorize`].
    pub fn authorize_reply(&mut self, reply: Result<TargetPolicy, impl Into<LoginRefusal>>) {
        if self.state != State::Authorizing {
            return;
        }
        match reply {
            Ok(policy) => {
                self.state = State::AwaitRequest;
                let outcome = self.begin(policy);
                self.settle(outcome);
            }
            Err(refusal) => self.refuse(&refusal.into()),
        }
    }

    /// The owner's answer to [`LoginAction::Admit`].
    pub fn admit_reply(&mut self, reply: Result<Admission, impl Into<LoginRefusal>>) {
        if self.state != State::Admitting {
            return;
        }
        match reply {
            Ok(admission) => self.complete(admission),
            Err(refusal) => self.refuse(&refusal.into()),
        }
    }

    fn settle(&mut self, outcome: Result<(), LoginViolation>) {
        if let Err(violation) = outcome {
            self.fail(violation, None);
        }
    }

    fn refuse(&mut self, refusal: &LoginRefusal) {
        self.fail(
            LoginViolation::Refused(refusal.status),
            refusal.target_address.as_ref(),
        );
    }

    fn handle_request(&mut self, header: &BhsBytes, data: &[u8]) -> Result<(), LoginViolation> {
        let opcode = opcode_bits(header);
        if opcode != Opcode::LoginRequest.code() {
            return Err(match self.identity {
                None => LoginViolation::NotALogin { opcode },
                Some(_) => LoginViolation::InvalidRequest { opcode },
            });
        }
        if self.state != State::AwaitRequest {
            return Err(LoginViolation::RequestBeforeAnswer);
        }
        let request = LoginRequestBhs::view(header);
        self.check_request(request, data)?;
        self.request_flags = request.flags;
        self.gathered.push(data)?;
        if request.is_continued() {
            self.respond(Vec::new(), false, None);
            return Ok(());
        }
        let text = self.gathered.take();
        if self.names.is_none() {
            return self.ask_authorization(text);
        }
        self.negotiate(&parse(&text)?)
    }

    /// All rules that can be checked on the header alone.
    fn check_request(
        &mut self,
        request: &LoginRequestBhs,
        data: &[u8],
    ) -> Result<(), LoginViolation> {
        let identity = Identity::of(request);
        if self.identity.is_none() {
            // Kept before any check, so that a refusal can name what it refuses.
            self.identity = Some(identity);
            self.cmd_sn = request.cmd_sn();
            self.begin_stage(request)?;
        }
        self.requests = self.requests.saturating_add(1);
        if self.requests > LOGIN_REQUESTS_MAX {
            return Err(LoginViolation::TooManyRequests {
                limit: LOGIN_REQUESTS_MAX,
            });
        }
        if data.len() > LOGIN_SEGMENT_MAX_BYTES {
            return Err(LoginViolation::SegmentTooLong {
                got_bytes: data.len(),
                limit_bytes: LOGIN_SEGMENT_MAX_BYTES,
            });
        }
        if request.total_ahs_length_words != 0 {
            return Err(LoginViolation::UnexpectedAhs {
                words: request.total_ahs_length_words,
            });
        }
        if self.identity != Some(identity) {
            return Err(LoginViolation::IdentityChanged);
        }
        if request.is_transit() && request.is_continued() {
            return Err(LoginViolation::TransitAndContinue);
        }
        let goes_forward = request
            .next_stage()
            .is_some_and(|next| is_forward(self.stage, next));
        if request.current_stage() != Some(self.stage) || (request.is_transit() && !goes_forward) {
            return Err(LoginViolation::InvalidStage {
                flags: request.flags,
            });
        }
        if !data.is_empty() && !self.answer.is_empty() {
            return Err(LoginViolation::KeysDuringAnswer);
        }
        Ok(())
    }

    /// What only the first request decides.
    fn begin_stage(&mut self, request: &LoginRequestBhs) -> Result<(), LoginViolation> {
        if request.version_min > 0 {
            return Err(LoginViolation::UnsupportedVersion {
                version_min: request.version_min,
            });
        }
        match request.current_stage() {
            Some(stage) if stage != LoginStage::FullFeaturePhase => self.stage = stage,
            Some(_) | None => {
                return Err(LoginViolation::InvalidStage {
                    flags: request.flags,
                });
            }
        }
        if !request.tsih().is_none() {
            self.negotiation = Negotiation::new(
                Role::Target,
                Phase::JoiningLogin,
                SessionType::Normal,
                OperationalPreferences::default(),
            );
        }
        Ok(())
    }

    /// Reads the names out of the first text and asks the owner about them. Everything else in
    /// the text has to wait, because the answers depend on the target.
    fn ask_authorization(&mut self, text: Vec<u8>) -> Result<(), LoginViolation> {
        let pairs = parse(&text)?;
        let value = |key: Key| {
            pairs
                .iter()
                .find(|pair| pair.key == key.name())
                .map(|pair| pair.value)
        };
        let initiator_name = value(Key::InitiatorName)
            .ok_or(LoginViolation::MissingKey(Key::InitiatorName))
            .and_then(|name| IscsiName::parse(name).map_err(LoginViolation::InitiatorName))?;
        let session_type = match value(Key::SessionType) {
            None => SessionType::Normal,
            Some(word) => SessionType::parse(word).ok_or(LoginViolation::UnknownSessionType)?,
        };
        let target_name = value(Key::TargetName)
            .map(|name| IscsiName::parse(name).map_err(LoginViolation::TargetName))
            .transpose()?;
        match session_type {
            SessionType::Normal if target_name.is_none() => {
                return Err(LoginViolation::MissingKey(Key::TargetName));
            }
            SessionType::Discovery => self.check_discovery_leads()?,
            SessionType::Normal => {}
        }
        let request = AuthorizeRequest {
            initiator_name,
            target_name,
            session_type,
        };
        self.names = Some(request.clone());
        self.first_text = text;
        self.state = State::Authorizing;
        self.actions.push_back(LoginAction::Authorize(request));
        Ok(())
    }

    fn check_discovery_leads(&self) -> Result<(), LoginViolation> {
        match self.identity {
            Some(identity) if !identity.tsih.is_none() => Err(LoginViolation::DiscoveryJoin {
                tsih: identity.tsih.0,
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// The owner has agreed: take up the first text.
    fn begin(&mut self, policy: TargetPolicy) -> Result<(), LoginViolation> {
        let session_type = self.session_type();
        if self.stage != LoginStage::SecurityNegotiation
            && matches!(
                policy.auth,
                TargetAuth::Chap {
                    is_required: true,
                    ..
                }
            )
        {
            return Err(LoginViolation::SecuritySkipped);
        }
        self.negotiation
            .configure(session_type, policy.preferences.clone());
        if session_type == SessionType::Normal {
            self.answer.push_number(
                Key::TargetPortalGroupTag.name(),
                policy.portal_group_tag.into(),
            );
        }
        self.policy = Some(policy);
        let text = std::mem::take(&mut self.first_text);
        self.take_keys(&parse(&text)?, true)?;
        self.reply()
    }

    fn negotiate(&mut self, pairs: &[Pair<'_>]) -> Result<(), LoginViolation> {
        let had_offers = self.negotiation.is_waiting();
        self.take_keys(pairs, false)?;
        if had_offers && let Some(key) = self.negotiation.unanswered() {
            return Err(LoginViolation::OfferUnanswered(key));
        }
        self.reply()
    }

    fn take_keys(&mut self, pairs: &[Pair<'_>], is_first: bool) -> Result<(), LoginViolation> {
        let mut chap = ChapKeys::default();
        let mut auth_method = None;
        let fresh: Vec<Pair<'_>> = pairs
            .iter()
            .filter(|pair| is_first || !self.is_repeated(pair))
            .copied()
            .collect();
        for (key, value) in self.negotiation.handle_text(&fresh, &mut self.answer)? {
            if chap.take(key, value) {
                continue;
            }
            let is_name = matches!(key, Key::InitiatorName | Key::TargetName | Key::SessionType);
            if is_name && !is_first {
                return Err(LoginViolation::LateKey(key));
            }
            // The names were read before; what is left are declarations without use here.
            if key == Key::AuthMethod {
                auth_method = Some(value);
            } else if key == Key::InitiatorAlias {
                self.initiator_alias = Some(value.to_owned());
            }
        }
        if let Some(offered) = auth_method {
            self.choose_auth_method(offered)?;
        }
        if !chap.is_empty() {
            self.authenticate(&chap)?;
        }
        Ok(())
    }

    /// Whether a pair says in the operational stage what was said before it. Some initiators (QEMU and
    /// others with libiscsi) declare their names in each stage; nothing changes by that.
    fn is_repeated(&self, pair: &Pair<'_>) -> bool {
        if self.stage != LoginStage::OperationalNegotiation {
            return false;
        }
        let Some(names) = &self.names else {
            return false;
        };
        let name = || IscsiName::parse(pair.value).ok();
        match Key::from_name(pair.key) {
            Some(Key::InitiatorName) => name().is_some_and(|name| name == names.initiator_name),
            Some(Key::TargetName) => name().is_some_and(|name| names.target_name == Some(name)),
            Some(Key::SessionType) => SessionType::parse(pair.value) == Some(names.session_type),
            Some(Key::InitiatorAlias) => self.initiator_alias.as_deref() == Some(pair.value),
            Some(Key::AuthMethod) => self.auth_offer.as_deref() == Some(pair.value),
            Some(_) | None => false,
        }
    }

    fn choose_auth_method(&mut self, offered: &str) -> Result<(), LoginViolation> {
        let key = Key::AuthMethod.name();
        if self.stage != LoginStage::SecurityNegotiation {
            self.answer.push(key, ReservedAnswer::Reject.text());
            return Ok(());
        }
        let accepted: &[&str] = match self.policy.as_ref().map(|policy| &policy.auth) {
            Some(TargetAuth::Chap {
                is_required: true, ..
            }) => &["CHAP"],
            Some(TargetAuth::Chap { .. }) => &["CHAP", "None"],
            Some(TargetAuth::None) | None => &["None"],
        };
        // The first of the initiator's list that will do.
        let method = offered
            .split(',')
            .find_map(|word| accepted.iter().find(|method| **method == word))
            .ok_or(LoginViolation::NoCommonAuthMethod)?;
        let method = *method;
        self.auth_offer = Some(offered.to_owned());
        self.answer.push(key, method);
        self.auth = if method == "CHAP" {
            AuthState::Chap(ChapTarget::new(self.challenge))
        } else {
            AuthState::Nobody
        };
        Ok(())
    }

    fn authenticate(&mut self, keys: &ChapKeys<'_>) -> Result<(), LoginViolation> {
        let (
            AuthState::Chap(chap),
            Some(TargetPolicy {
                auth:
                    TargetAuth::Chap {
                        algorithms,
                        accounts,
                        ..
                    },
                ..
            }),
        ) = (&mut self.auth, &self.policy)
        else {
            return Err(crate::chap::ChapError::OutOfTurn(Key::ChapAlgorithm).into());
        };
        if let Some(name) = keys.name {
            self.claimed_user = Some(name.to_owned());
        }
        if let Some(user) = chap.handle(keys, algorithms, accounts, &mut self.answer)? {
            self.auth = AuthState::Proved(user.to_owned());
        }
        Ok(())
    }

    /// Answers a complete text: with the next piece, or with the end of the stage.
    fn reply(&mut self) -> Result<(), LoginViolation> {
        let next = self.wanted_stage()?;
        if self.stage == LoginStage::OperationalNegotiation {
            self.declare();
        }
        let mut granted = next;
        if next == Some(LoginStage::FullFeaturePhase)
            && self
                .negotiation
                .offer_where_default_is_too_much(&mut self.answer)
        {
            granted = None;
        }
        if self.answer.left_bytes() > LOGIN_SEGMENT_MAX_BYTES {
            // The stage cannot end in a response that is continued.
            granted = None;
        }
        if granted == Some(LoginStage::FullFeaturePhase) {
            return self.ask_admission();
        }
        let (segment, more) = self.answer.next_segment(LOGIN_SEGMENT_MAX_BYTES);
        self.respond(segment, more, granted);
        if let Some(stage) = granted {
            self.stage = stage;
        }
        Ok(())
    }

    /// The stage the initiator asks for, unless authentication has to go on first.
    fn wanted_stage(&self) -> Result<Option<LoginStage>, LoginViolation> {
        if self.request_flags & flags::TRANSIT == 0 {
            return Ok(None);
        }
        let next = LoginStage::from_code(self.request_flags & flags::STAGE_MASK);
        if self.stage != LoginStage::SecurityNegotiation {
            return Ok(next);
        }
        let is_required = matches!(
            self.policy,
            Some(TargetPolicy {
                auth: TargetAuth::Chap {
                    is_required: true,
                    ..
                },
                ..
            })
        );
        match self.auth {
            AuthState::Proved(_) | AuthState::Nobody => Ok(next),
            AuthState::Open if is_required => Err(LoginViolation::NoCommonAuthMethod),
            AuthState::Open => Ok(next),
            AuthState::Chap(_) => Ok(None),
        }
    }

    /// Says once what this side declares in operational negotiation.
    fn declare(&mut self) {
        self.negotiation.declare_segment_length(&mut self.answer);
        if !std::mem::replace(&mut self.alias_is_sent, true)
            && let Some(alias) = self
                .policy
                .as_ref()
                .and_then(|policy| policy.target_alias.as_deref())
        {
            self.answer.push(Key::TargetAlias.name(), alias);
        }
    }

    fn ask_admission(&mut self) -> Result<(), LoginViolation> {
        if let Some(key) = self.negotiation.unacceptable() {
            return Err(LoginViolation::Unacceptable(key));
        }
        let (Some(names), Some(identity), Some(policy)) =
            (&self.names, self.identity, &self.policy)
        else {
            // The names are read and the policy is asked for before anything is negotiated.
            return Err(LoginViolation::MissingKey(Key::InitiatorName));
        };
        let login = Box::new(NegotiatedLogin {
            initiator_name: names.initiator_name.clone(),
            initiator_alias: self.initiator_alias.clone(),
            target_name: names.target_name.clone(),
            session_type: names.session_type,
            chap_user: match &self.auth {
                AuthState::Proved(user) => Some(user.clone()),
                AuthState::Open | AuthState::Chap(_) | AuthState::Nobody => None,
            },
            isid: identity.isid,
            tsih: identity.tsih,
            cid: identity.cid,
            portal_group_tag: policy.portal_group_tag,
            session: self.negotiation.session_parameters(),
            connection: self.negotiation.connection_parameters(),
            cmd_sn: self.cmd_sn,
            // The final response takes one number.
            next_stat_sn: self.stat_sn.next(),
        });
        self.admitted = Some(login.clone());
        self.state = State::Admitting;
        self.actions.push_back(LoginAction::Admit(login));
        Ok(())
    }

    fn complete(&mut self, admission: Admission) {
        let (segment, _) = self.answer.next_segment(LOGIN_SEGMENT_MAX_BYTES);
        let mut header = self.response_header(Some(LoginStage::FullFeaturePhase), false);
        header.tsih = admission.tsih.0.into();
        header.stamp(self.stat_sn, admission.exp_cmd_sn, admission.max_cmd_sn);
        self.send(&header, segment);
        self.state = State::Over;
        if let Some(login) = self.admitted.take() {
            let established = EstablishedLogin {
                login: *login,
                tsih: admission.tsih,
            };
            self.actions
                .push_back(LoginAction::Complete(Box::new(established)));
        }
    }

    fn respond(&mut self, segment: Vec<u8>, continued: bool, next: Option<LoginStage>) {
        let header = self.response_header(next, continued);
        self.send(&header, segment);
    }

    fn response_header(&self, next: Option<LoginStage>, continued: bool) -> LoginResponseBhs {
        let mut header = LoginResponseBhs::new();
        header.flags = self.stage.code() << flags::CURRENT_STAGE_SHIFT;
        if let Some(next) = next {
            header.flags |= flags::TRANSIT | next.code();
        }
        if continued {
            header.flags |= flags::CONTINUE;
        }
        if let Some(identity) = self.identity {
            header.isid = identity.isid;
            header.tsih = identity.tsih.0.into();
            header.initiator_task_tag = identity.initiator_task_tag.into();
        }
        // Nothing is known here of the window of a session to join; a closed one promises least.
        header.stamp(self.stat_sn, self.cmd_sn, self.cmd_sn.previous());
        header
    }

    fn send(&mut self, header: &LoginResponseBhs, segment: Vec<u8>) {
        self.stat_sn = self.stat_sn.next();
        self.actions
            .push_back(LoginAction::Send(Pdu::new(header.as_bhs_bytes(), segment)));
    }

    fn fail(&mut self, violation: LoginViolation, address: Option<&TargetAddress>) {
        if let Some(status) = violation.status() {
            let mut header = self.response_header(None, false);
            (header.status_class, header.status_detail) = status.class_and_detail();
            let mut text = TextWriter::new();
            if let Some(address) = address {
                text.push(Key::TargetAddress.name(), &address.to_string());
            }
            self.send(&header, text.into_bytes());
        }
        self.state = State::Over;
        self.actions.push_back(LoginAction::Close(violation));
    }

    fn session_type(&self) -> SessionType {
        self.names
            .as_ref()
            .map_or(SessionType::Normal, |names| names.session_type)
    }
}

const _: () = {
    const fn is_send<T: Send>() {}
    // A login moves to the core of its session between two calls.
    is_send::<LoginTarget>();
};
