//! The front: carries logins to their end, knows where every session is. One core has it.
//!
//! A login is a line with one receive or one send under way. Events and the time go in; what is to
//! be done with lines, and reported to others, comes out as [`Action`]s. At its end the line goes to the
//! core of its session, which sends the final response.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::iter;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::iscsi::discovery::{TargetRecord, TextRecords};
use ::iscsi::framing::PduBuffer;
use ::iscsi::limits::LOGIN_SEGMENT_MAX_BYTES;
use ::iscsi::login::{LoginAction, LoginTarget, LoginViolation, NegotiatedLogin, RANDOM_BYTES};
use ::iscsi::names::IscsiName;
use ::iscsi::pdu::{LoginStatus, Tsih};
use engine::TargetIndex;
use engine::deadlines::{Deadlines, Moment};
use engine::table::Table;
use marks::sometimes;
use memory::Message;
use scsi::{PortName, Principal};

use super::action::{Action, Adoption, Entry};
use super::directory::{Decision, Directory, OtherPlace};
use super::failure::LoginFailure;
use super::holder::{Common, Holding};
use super::member::{Member, NexusKey};
use super::profile::{SessionProfile, transport_id};
use super::throttle::{GuessLimiter, JoinLimiter};
use super::unproved::{Crowding, LoginKey, OfLogin, Peer, SharedLists, Unproved, UnprovedLimits};
use super::wire::Line;
use crate::policy::{Asker, Policy, TargetPlan};

/// Sizes and times of the front.
#[derive(Clone, Debug)]
pub struct FrontSettings {
    /// How many cores take sessions.
    pub cores: usize,
    /// Sessions in all.
    pub sessions_max: usize,
    /// Connections that have not finished their login.
    pub logins_max: usize,
    /// Discovery sessions.
    pub discovery_max: usize,
    /// Connections in login and discovery sessions of one address.
    pub unproved_per_address_max: usize,
    /// Connections in all that leave enough descriptors for all else.
    pub connections_max: usize,
    /// What peers make all cores hold.
    pub holding: Holding,
    /// From the first byte to full-feature phase.
    pub login_timeout: Duration,
}

/// Random bytes for one login.
#[derive(Clone, Copy, Debug)]
pub struct LoginRandom {
    /// For challenges.
    pub challenges: [u8; RANDOM_BYTES],
    /// What the number of a new session comes from.
    pub tsih: u16,
}

/// Whether a new connection leaves enough descriptors for stores and the administration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Descriptors {
    /// It does.
    Enough,
    /// It does, because one that has proved nothing goes for it. So many connections there may be.
    MadeRoom(usize),
    /// It does not. So many connections there may be.
    NotEnough(usize),
}

/// A login that has ended well and waits for the session it replaces to end.
#[derive(Debug)]
struct Waiting<L> {
    line: L,
    machine: Box<LoginTarget>,
    negotiated: Box<NegotiatedLogin>,
    unread: Vec<u8>,
    profile: Box<SessionProfile>,
    /// What the number of its session comes from.
    random: u16,
}

/// A connection that has not finished its login.
#[derive(Debug)]
struct Login<L> {
    line: L,
    machine: LoginTarget,
    buffer: PduBuffer,
    target: Option<TargetIndex>,
    is_receiving: bool,
    is_sending: bool,
    /// No more is received; it goes when what is under way has ended.
    is_closing: bool,
    /// Answers that wait for the one being sent.
    output: VecDeque<Message>,
    close_when_sent: bool,
    /// Its refusal is not sent before.
    hold_until: Option<Duration>,
    /// The login has ended well; the session is to be found when nothing is under way.
    negotiated: Option<Box<NegotiatedLogin>>,
    /// What the number of its session comes from.
    random: u16,
}

impl<L> Login<L> {
    /// Nobody has put an end to it yet.
    const fn is_under_way(&self) -> bool {
        !self.is_closing && !self.close_when_sent
    }

    /// When something is to be done for it by itself. One whose refusal waits is over, and takes no longer than that.
    fn deadline(&self) -> Option<Duration> {
        let late = self.hold_until.or_else(|| self.machine.poll_timeout());
        late.filter(|_| !self.is_closing)
    }
}

const fn unproved_limits(settings: &FrontSettings) -> UnprovedLimits {
    UnprovedLimits {
        per_address_max: settings.unproved_per_address_max,
        logins_max: settings.logins_max,
        discovery_max: settings.discovery_max,
    }
}

/// The front.
#[derive(Debug)]
pub struct Front<L: Line> {
    policy: Arc<dyn Policy>,
    targets: BTreeMap<TargetIndex, TargetPlan>,
    directory: Directory<Waiting<L>>,
    /// Joins that failed, by where they came from.
    joins: JoinLimiter,
    /// Wrong proofs of CHAP.
    guesses: GuessLimiter,
    logins: Table<Login<L>, OfLogin>,
    login_deadlines: Deadlines<LoginKey>,
    /// Before this no login has waited too long for the session that it replaces.
    waiting_until: Option<Duration>,
    /// Logins and discovery sessions, by where they come from.
    unproved: Unproved,
    lists: Arc<SharedLists>,
    connections_max: usize,
    login_timeout: Duration,
    actions: VecDeque<Action<L>>,
}

impl<L: Line> Front<L> {
    /// A front at which nobody stands. `lists` is shared with the cores of the sessions.
    pub fn new(settings: &FrontSettings, policy: Arc<dyn Policy>, lists: Arc<SharedLists>) -> Self {
        let limits = unproved_limits(settings);
        let holding = settings.holding.clone();
        let logins = Arc::clone(&holding.logins);
        let common = Common::new(settings.sessions_max, settings.connections_max, holding);
        Self {
            policy,
            targets: BTreeMap::new(),
            directory: Directory::new(settings.cores, common),
            joins: JoinLimiter::default(),
            guesses: GuessLimiter::default(),
            logins: Table::default(),
            login_deadlines: Deadlines::default(),
            waiting_until: None,
            unproved: Unproved::new(limits, logins),
            lists,
            connections_max: settings.connections_max,
            login_timeout: settings.login_timeout,
            actions: VecDeque::new(),
        }
    }

    /// Limits for what begins from now on. Nothing ends for them; the number of cores and of connections stays.
    pub fn set_limits(&mut self, settings: &FrontSettings) {
        self.unproved.set_limits(unproved_limits(settings));
        self.login_timeout = settings.login_timeout;
        let common = self.directory.common();
        common.set_sessions_max(settings.sessions_max);
        common.holding().set_limits(&settings.holding);
    }

    /// Something is to be taken with [`Self::poll_action`].
    #[inline]
    pub(super) fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// What is to be done next. To be called after every other call until it gives `None`.
    pub fn poll_action(&mut self) -> Option<Action<L>> {
        self.actions.pop_front()
    }

    /// The rules and targets are others from now on. Logins that are under way meet the new ones
    /// when they end.
    pub fn set_access(
        &mut self,
        policy: Arc<dyn Policy>,
        targets: impl Iterator<Item = (TargetIndex, TargetPlan)>,
    ) {
        self.policy = policy;
        self.targets = targets.collect();
    }

    /// The targets.
    pub fn targets(&self) -> impl Iterator<Item = (TargetIndex, &TargetPlan)> {
        self.targets.iter().map(|(index, plan)| (*index, plan))
    }

    /// A target was reset, as its initiators learn with their next login.
    pub fn note_reset(&mut self, target: TargetIndex) {
        self.directory.note_reset(target);
    }

    /// The line of a login.
    pub fn line(&self, key: LoginKey) -> Option<&L> {
        self.logins.get(key).map(|login| &login.line)
    }

    /// The lines of all logins, to be changed.
    pub fn lines_mut(&mut self) -> impl Iterator<Item = &mut L> {
        self.logins.iter_mut().map(|(_, login)| &mut login.line)
    }

    /// How many logins are under way.
    pub fn logins(&self) -> usize {
        self.logins.len()
    }

    /// A place for a session of another transport.
    pub fn place_other(&mut self, address: IpAddr) -> Option<OtherPlace> {
        self.directory.place_other(address, None)
    }

    /// The same on a certain core, which has the way to its client.
    pub fn place_other_on(&mut self, address: IpAddr, core: usize) -> Option<OtherPlace> {
        self.directory.place_other(address, Some(core))
    }

    /// That session is over, with all its tasks.
    pub fn leave_other(&mut self, place: &OtherPlace) {
        self.directory.leave_other(place);
    }

    /// Nobody stands here, and no session is known.
    pub fn is_idle(&self) -> bool {
        self.logins.is_empty() && self.directory.is_empty() && self.actions.is_empty()
    }

    /// Gives back what tables have room for beyond need.
    pub fn shrink(&mut self) {
        self.logins.shrink_to_fit();
        self.directory.shrink();
    }

    /// Before this moment no login runs out of time.
    #[inline]
    pub(super) fn soonest(&self) -> Moment {
        let logins = self.login_deadlines.soonest(self.logins.len());
        Moment::of(self.waiting_until).min(logins)
    }

    /// When the next login runs out of time.
    pub fn poll_timeout(&mut self) -> Option<Duration> {
        let logins = &self.logins;
        let of = |key| logins.get(key)?.deadline();
        let next = self.login_deadlines.next(logins.len(), of);
        self.waiting_until.into_iter().chain(next).min()
    }

    // ---- connections -------------------------------------------------------------------------

    /// Sees to it that one connection more than `in_use` and the logins leaves enough descriptors for
    /// stores and the administration.
    pub fn find_descriptor(&mut self, in_use: usize) -> Descriptors {
        let most = self.connections_max;
        if in_use.saturating_add(self.logins.len()) < most {
            return Descriptors::Enough;
        }
        if let Some(gone) = self.unproved.displace() {
            self.displace(gone, Crowding::Descriptors(most));
            return Descriptors::MadeRoom(most);
        }
        self.actions.push_back(Action::Displaced);
        Descriptors::NotEnough(most)
    }

    /// A connection has come in.
    pub fn accept(&mut self, line: L, random: LoginRandom, now: Duration) -> LoginKey {
        let address = line.peer().ip();
        let key = self.logins.insert(Login {
            line,
            machine: LoginTarget::new(now, self.login_timeout, random.challenges),
            buffer: PduBuffer::new(),
            target: None,
            is_receiving: false,
            is_sending: false,
            is_closing: false,
            output: VecDeque::new(),
            close_when_sent: false,
            hold_until: None,
            negotiated: None,
            random: random.tsih,
        });
        if let Some(deadline) = self.logins[key].deadline() {
            self.login_deadlines.set(key, deadline);
        }
        let gone = self.unproved.begin(Peer::Login(key), address);
        if let Some((gone, crowding)) = gone {
            sometimes!("a login gives way to another");
            self.displace(gone, crowding);
        }
        self.receive(key);
        key
    }

    /// Ends a login or a discovery session that must go for another.
    fn displace(&mut self, peer: Peer, crowding: Crowding) {
        match peer {
            Peer::Login(key) => self.end_login(key, LoginFailure::Displaced(crowding)),
            Peer::Discovery(tsih) => {
                self.actions.push_back(Action::Displaced);
                if let Some(core) = self.directory.core_with(tsih) {
                    self.actions.push_back(Action::EndDiscovery { core, tsih });
                }
            }
        }
    }

    fn receive(&mut self, key: LoginKey) {
        let Some(login) = self.logins.get_mut(key) else {
            return;
        };
        // The next request answers what was sent last.
        let is_its_turn = !login.is_sending && login.output.is_empty();
        let is_needed = login.is_under_way() && login.negotiated.is_none();
        if is_its_turn && is_needed && !login.is_receiving {
            login.is_receiving = true;
            self.actions.push_back(Action::Receive(key));
        }
    }

    /// Bytes that [`Action::Receive`] has brought.
    pub fn handle_bytes(
        &mut self,
        key: LoginKey,
        bytes: &[u8],
        context: &L::Context,
        times: (Duration, SystemTime),
    ) {
        let Some(login) = self.logins.get_mut(key) else {
            return;
        };
        login.is_receiving = false;
        if login.is_closing {
            self.lose(key);
            return;
        }
        login.buffer.push(bytes);
        self.advance(key, context, times);
    }

    /// [`Action::Receive`] has brought nothing: the connection has ended, or failed.
    pub fn handle_end(&mut self, key: LoginKey) {
        if let Some(login) = self.logins.get_mut(key) {
            login.is_receiving = false;
            self.lose(key);
        }
    }

    /// Takes PDUs for as long as it is the initiator's turn.
    fn advance(&mut self, key: LoginKey, context: &L::Context, times: (Duration, SystemTime)) {
        while let Some(login) = self.logins.get_mut(key)
            && login.is_under_way()
            && login.negotiated.is_none()
        {
            match login.buffer.next_pdu(LOGIN_SEGMENT_MAX_BYTES, false, false) {
                Ok(Some(pdu)) => {
                    login.machine.handle_pdu(&pdu.header, &pdu.data);
                    let name = login.machine.initiator_name();
                    login.line.note_login(&pdu, name, context);
                    self.act(key, times);
                }
                Ok(None) => {
                    self.receive(key);
                    return;
                }
                Err(error) => {
                    self.end_login(key, error.into());
                    return;
                }
            }
        }
    }

    /// Does what the login machine asks for.
    fn act(&mut self, key: LoginKey, times: (Duration, SystemTime)) {
        while let Some(login) = self.logins.get_mut(key)
            && let Some(action) = login.machine.poll_action()
        {
            match action {
                LoginAction::Send(pdu) => {
                    let mut message = Message::default();
                    message.push_bytes(&pdu.to_bytes(false, false));
                    login.line.note_sent(&message);
                    login.output.push_back(message);
                }
                LoginAction::Authorize(request) => {
                    let asker = Asker {
                        initiator_name: request.initiator_name.as_str(),
                        address: login.line.peer().ip(),
                        portal: login.line.portal(),
                        user: None,
                    };
                    let target_name = request.target_name.as_ref().map(|name| name.as_str());
                    let reply = self.policy.authorize(&asker, target_name);
                    let reply = reply.map(|authorization| {
                        login.target = authorization.target;
                        authorization.policy
                    });
                    login.machine.authorize_reply(reply);
                }
                LoginAction::Admit(negotiated) => login.negotiated = Some(negotiated),
                // Said only after an admission, which happens on the core of the session.
                LoginAction::Complete(_) => debug_assert!(false, "complete before admitted"),
                LoginAction::Close(violation) => {
                    login.close_when_sent = true;
                    let is_wrong_proof = violation.is_wrong_proof();
                    self.report_failed(key, violation.into());
                    if is_wrong_proof {
                        self.hold_refusal(key, times.0);
                    }
                }
            }
        }
        self.send(key);
        self.settle(key, times);
    }

    fn report_failed(&mut self, key: LoginKey, failure: LoginFailure) {
        if let Some(login) = self.logins.get(key) {
            let name = |name: Option<&IscsiName>| name.map(|name| name.as_str().to_owned());
            self.actions.push_back(Action::Failed {
                peer: login.line.peer(),
                initiator: name(login.machine.initiator_name()),
                target: name(login.machine.target_name()),
                failure,
            });
        }
    }

    /// A wrong proof of CHAP costs who guesses some time: its refusal waits. Nothing else does.
    fn hold_refusal(&mut self, key: LoginKey, now: Duration) {
        let Some(login) = self.logins.get_mut(key) else {
            return;
        };
        let (address, user) = (login.line.peer().ip(), login.machine.claimed_user());
        let user = user.unwrap_or_default();
        let wrong = self.guesses.note(address, user, now);
        if wrong.is_guessing {
            let user = user.to_owned();
            self.actions.push_back(Action::Guessing { address, user });
        }
        if !wrong.delay.is_zero() {
            login.hold_until = Some(now + wrong.delay);
            self.login_deadlines.set(key, now + wrong.delay);
        }
    }

    fn send(&mut self, key: LoginKey) {
        let Some(login) = self.logins.get_mut(key) else {
            return;
        };
        if !login.is_sending
            && !login.is_closing
            && login.hold_until.is_none()
            && let Some(message) = login.output.pop_front()
        {
            login.is_sending = true;
            self.actions.push_back(Action::Send(key, message));
        }
    }

    /// What [`Action::Send`] asked for is sent, or could not be.
    pub fn handle_sent(&mut self, key: LoginKey, is_sent: bool, times: (Duration, SystemTime)) {
        let Some(login) = self.logins.get_mut(key) else {
            return;
        };
        login.is_sending = false;
        if !is_sent || login.is_closing {
            self.lose(key);
            return;
        }
        self.send(key);
        self.settle(key, times);
        self.receive(key);
    }

    /// When nothing is under way: closes, or finds the session.
    fn settle(&mut self, key: LoginKey, times: (Duration, SystemTime)) {
        let Some(login) = self.logins.get_mut(key) else {
            return;
        };
        if login.is_sending || login.is_receiving || !login.output.is_empty() {
            return;
        }
        if login.close_when_sent {
            self.close(key);
        } else if let Some(negotiated) = login.negotiated.take() {
            self.place(key, negotiated, times);
        }
    }

    // ---- sessions ----------------------------------------------------------------------------

    /// Finds or makes the session of a login that ended well.
    fn place(
        &mut self,
        key: LoginKey,
        negotiated: Box<NegotiatedLogin>,
        times: (Duration, SystemTime),
    ) {
        let tsih = negotiated.tsih;
        let (member, profile, joined) = match self.whereto(key, &negotiated, times) {
            Ok(found) => found,
            Err(status) => {
                if let Some(login) = self.logins.get_mut(key) {
                    login.machine.admit_reply(Err(status));
                    self.act(key, times);
                }
                return;
            }
        };
        let Some(login) = self.logins.remove(key) else {
            return;
        };
        self.unproved.end(Peer::Login(key));
        let waiting = Waiting {
            line: login.line,
            machine: Box::new(login.machine),
            unread: login.buffer.into_unread(),
            profile: Box::new(profile),
            negotiated,
            random: login.random,
        };
        if let Some(core) = joined {
            self.send_away(core, waiting, |_| Entry::Join { tsih });
        } else {
            let (random, until) = (waiting.random, waiting.machine.poll_timeout());
            let decision = self.directory.admit(member, waiting, &*self.policy, random);
            self.carry_out(decision, until);
        }
    }

    /// Who is behind a login that ended well, and the core of the session that it joins, if it wants
    /// to join one.
    fn whereto(
        &mut self,
        key: LoginKey,
        negotiated: &NegotiatedLogin,
        (now, since): (Duration, SystemTime),
    ) -> Result<(Option<Member>, SessionProfile, Option<usize>), LoginStatus> {
        let login = self.logins.get(key).ok_or(LoginStatus::TargetError)?;
        let name = negotiated.target_name.as_ref();
        let mut profile = SessionProfile {
            initiator_name: negotiated.initiator_name.as_str().to_owned(),
            target_name: name.map(|name| name.as_str().to_owned()),
            isid: negotiated.isid,
            peer: login.line.peer(),
            portal: login.line.portal(),
            user: negotiated.chap_user.clone(),
            target: login.target,
            portal_group_tag: negotiated.portal_group_tag,
            since,
            port: PortName {
                transport_id: Arc::from([]),
                target_port: 0,
                principal: Principal::Unknown,
            },
            luns: Vec::new(),
            text: TextRecords::for_discovery(Vec::new()),
        };
        let member = self.grant(&mut profile)?;
        if negotiated.tsih.is_none() {
            return Ok((member, profile, None));
        }
        let newcomer = member.ok_or(LoginStatus::SessionDoesNotExist)?;
        let core = self.join(negotiated.tsih, &newcomer, now)?;
        Ok((Some(newcomer), profile, Some(core)))
    }

    /// The core of the session that a login wants to join.
    fn join(&mut self, tsih: Tsih, newcomer: &Member, now: Duration) -> Result<usize, LoginStatus> {
        let address = newcomer.peer.ip();
        if !self.joins.allows(address, now) {
            return Err(LoginStatus::OutOfResources);
        }
        let found = self.directory.join(tsih, newcomer, &*self.policy);
        if found.is_err() {
            sometimes!("a connection may not join the session");
            self.joins.note_failure(address, now);
        }
        found
    }

    /// Fills in what the rules, as they are now, give the initiator of a session.
    /// `None` for discovery.
    fn grant(&self, profile: &mut SessionProfile) -> Result<Option<Member>, LoginStatus> {
        let asker = profile.asker();
        let records = |only| {
            let visible = self.policy.targets(&asker, only).into_iter();
            visible.map(|target| TargetRecord {
                name: target.name,
                addresses: target.addresses,
            })
        };
        let Some(target) = profile.target else {
            if !self.policy.may_discover(&asker) {
                return Err(LoginStatus::AuthorizationFailure);
            }
            let list = self.lists.share(records(None).collect());
            profile.text = TextRecords::for_discovery_shared(list);
            return Ok(None);
        };
        let tag = profile.portal_group_tag;
        let ports = self.targets.get(&target).map(|plan| &plan.ports);
        let port = ports.and_then(|ports| ports.iter().find(|port| port.portal_group_tag == tag));
        let target_port = port.ok_or(LoginStatus::TargetError)?.relative_id;
        let own = records(Some(target)).next().ok_or(LoginStatus::NotFound)?;
        let luns = self.policy.luns(&asker, target)?;
        profile.port = PortName {
            transport_id: transport_id(&profile.initiator_name, profile.isid),
            target_port,
            principal: match profile.user.as_deref() {
                Some(user) => Principal::User(user.into()),
                None => Principal::Nobody,
            },
        };
        profile.luns = luns;
        profile.text = TextRecords::for_target(own);
        Ok(Some(Member {
            nexus: NexusKey {
                initiator_name: profile.initiator_name.clone(),
                isid: profile.isid,
                target,
                portal_group_tag: tag,
            },
            user: profile.user.clone(),
            peer: profile.peer,
            portal: profile.portal,
            luns: profile.luns.len(),
        }))
    }

    /// Does what the directory has decided for a login, which waits until then if it has to.
    fn carry_out(&mut self, decision: Decision<Waiting<L>>, until: Option<Duration>) {
        if matches!(decision, Decision::EndFirst { .. } | Decision::Wait(_)) {
            self.waiting_until = self.waiting_until.into_iter().chain(until).min();
        }
        match decision {
            Decision::Place(placement, waiting) => {
                let (core, address) = (placement.core, waiting.profile.peer.ip());
                let is_discovery = waiting.profile.target.is_none();
                let discovery = is_discovery.then_some(placement.tsih);
                self.send_away(core, waiting, |profile| Entry::Found { placement, profile });
                if let Some(tsih) = discovery
                    && let Some((gone, crowding)) =
                        self.unproved.begin(Peer::Discovery(tsih), address)
                {
                    self.displace(gone, crowding);
                }
            }
            Decision::EndFirst { core, tsih } => {
                sometimes!("a login ends the session that it replaces");
                self.actions.push_back(Action::EndSession { core, tsih });
            }
            Decision::Wait(None) => {}
            Decision::Wait(Some(older)) => {
                sometimes!("a second login waits for a session to end");
                self.turn_away(older, LoginStatus::ServiceUnavailable);
            }
            Decision::Refuse(status, waiting) => self.turn_away(waiting, status),
        }
    }

    fn turn_away(&mut self, waiting: Waiting<L>, status: LoginStatus) {
        let Waiting { line, machine, .. } = waiting;
        self.actions.push_back(Action::TurnAway {
            line,
            machine,
            status,
        });
    }

    fn send_away(
        &mut self,
        core: usize,
        waiting: Waiting<L>,
        entry: impl FnOnce(Box<SessionProfile>) -> Entry,
    ) {
        let Waiting {
            line,
            machine,
            negotiated,
            unread,
            profile,
            ..
        } = waiting;
        let adoption = Box::new(Adoption {
            line,
            machine: *machine,
            negotiated,
            unread,
            entry: entry(profile),
        });
        self.actions.push_back(Action::Adopt { core, adoption });
    }

    /// A session has ended on its core, with all its tasks. A login that waited for that goes on.
    pub fn handle_session_ended(&mut self, tsih: Tsih) {
        self.unproved.end(Peer::Discovery(tsih));
        let Some(mut login) = self.directory.ended(tsih) else {
            return;
        };
        // The rules may be others than when it began to wait.
        sometimes!("a login goes on after the session that it replaces");
        match self.grant(&mut login.profile) {
            Ok(Some(member)) => {
                let (random, until) = (login.random, login.machine.poll_timeout());
                let policy = &*self.policy;
                let decision = self.directory.admit_after(member, login, policy, random);
                self.carry_out(decision, until);
            }
            // Discovery sessions replace none.
            Ok(None) => debug_assert!(false, "a discovery session is replaced"),
            Err(status) => self.turn_away(login, status),
        }
    }

    // ---- time and ends -----------------------------------------------------------------------

    /// Time has come.
    pub fn handle_timeout(&mut self, times: (Duration, SystemTime)) {
        let now = times.0;
        let logins = &self.logins;
        let of = |key| logins.get(key)?.deadline();
        let due: Vec<LoginKey> = iter::from_fn(|| self.login_deadlines.due(now, of)).collect();
        for key in due {
            let Some(login) = self.logins.get_mut(key) else {
                continue;
            };
            if login.machine.poll_timeout().is_some_and(|at| now >= at) {
                sometimes!("a login takes too long");
                self.end_login(key, LoginViolation::DeadlinePassed.into());
                continue;
            }
            login.hold_until = None;
            if let Some(deadline) = login.deadline() {
                self.login_deadlines.set(key, deadline);
            }
            self.send(key);
        }
        if self.waiting_until.is_some_and(|at| now >= at) {
            self.end_overdue_waiting(now);
        }
    }

    /// Refuses logins that have waited too long for the session they replace.
    fn end_overdue_waiting(&mut self, now: Duration) {
        let is_late = |login: &Waiting<L>| login.machine.poll_timeout().is_some_and(|at| now >= at);
        for login in self.directory.take_overdue(is_late) {
            sometimes!("a login has waited too long for a session to end");
            self.turn_away(login, LoginStatus::ServiceUnavailable);
        }
        let left = self.directory.waiting();
        let left = left.filter_map(|login| login.machine.poll_timeout());
        self.waiting_until = left.min();
    }

    /// The connection of a login is gone. One that ends before it says who it is was none: ports
    /// are tried like that, to see whether somebody listens.
    fn lose(&mut self, key: LoginKey) {
        let login = self.logins.get(key);
        if login.is_some_and(|login| login.machine.initiator_name().is_some()) {
            sometimes!("a login is lost on its way");
            self.end_login(key, LoginFailure::Abandoned);
        } else {
            self.close(key);
        }
    }

    /// Ends a login from outside, without a word to its initiator.
    fn end_login(&mut self, key: LoginKey, failure: LoginFailure) {
        if self.logins.get(key).is_some_and(Login::is_under_way) {
            self.report_failed(key, failure);
        }
        self.close(key);
    }

    /// Ends all logins, without a word.
    pub fn close_all(&mut self) {
        let logins: Vec<LoginKey> = self.logins.keys().collect();
        for key in logins {
            self.close(key);
        }
    }

    fn close(&mut self, key: LoginKey) {
        let Some(login) = self.logins.get_mut(key) else {
            return;
        };
        let is_new = !std::mem::replace(&mut login.is_closing, true);
        let is_busy = login.is_receiving || login.is_sending;
        if is_new {
            self.unproved.end(Peer::Login(key));
            if is_busy {
                self.actions.push_back(Action::Shut(key));
            }
        }
        if !is_busy && let Some(login) = self.logins.remove(key) {
            self.actions.push_back(Action::Close(login.line));
        }
    }
}
