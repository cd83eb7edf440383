//! The front desk: logins, and which core has which session.

use std::collections::BTreeMap;
use std::time::Duration;

use iscsi::framing::PduBuffer;
use iscsi::limits::LOGIN_SEGMENT_MAX_BYTES;
use iscsi::login::{
    Claim, Entry, LoginAction, LoginTarget, NegotiatedLogin, RANDOM_BYTES, TargetAuth,
    TargetPolicy, decide_entry,
};
use iscsi::pdu::{Isid, LoginStatus, Tsih};
use scsi::NexusId;

use super::core::Core;
use super::{Adoption, Letter, TARGET_NAME};
use crate::network::Arrival;

/// A connection that logs in.
#[derive(Debug)]
pub(super) struct Entering {
    pub(super) link: usize,
    pub(super) login: LoginTarget,
    pub(super) buffer: PduBuffer,
}

/// A session, for the directory.
#[derive(Debug)]
struct Placement {
    initiator: String,
    isid: Isid,
    user: Option<String>,
    core: usize,
    nexus: NexusId,
}

/// The one portal group of the one target.
const PORTAL_GROUP: u16 = 1;

/// A claim to a session of the one target.
fn claim<'a>(initiator_name: &'a str, isid: Isid, user: Option<&'a str>) -> Claim<'a> {
    Claim {
        initiator_name,
        isid,
        target: 0,
        portal_group_tag: PORTAL_GROUP,
        user,
    }
}

impl Placement {
    fn claim(&self) -> Claim<'_> {
        claim(&self.initiator, self.isid, self.user.as_deref())
    }
}

/// A leading login that waits for an older session of the same name to end.
#[derive(Debug)]
struct Waiting {
    entering: Entering,
    negotiated: Box<NegotiatedLogin>,
}

/// The front desk.
#[derive(Debug, Default)]
pub(super) struct Front {
    entering: BTreeMap<usize, Entering>,
    directory: BTreeMap<u16, Placement>,
    waiting: BTreeMap<u16, Waiting>,
    sessions_so_far: u16,
}

impl Front {
    pub(super) fn accept(
        &mut self,
        link: usize,
        now: Duration,
        timeout: Duration,
        random: [u8; RANDOM_BYTES],
    ) {
        let entering = Entering {
            link,
            login: LoginTarget::new(now, timeout, random),
            buffer: PduBuffer::new(),
        };
        self.entering.insert(link, entering);
    }

    pub(super) fn has(&self, link: usize) -> bool {
        self.entering.contains_key(&link) || self.is_waiting(link)
    }

    /// Whether more of its bytes are wanted.
    pub(super) fn wants(&self, link: usize) -> bool {
        self.entering.contains_key(&link)
    }

    fn is_waiting(&self, link: usize) -> bool {
        let mut waiting = self.waiting.values();
        waiting.any(|waiting| waiting.entering.link == link)
    }

    pub(super) fn len(&self) -> usize {
        self.entering.len() + self.waiting.len() + self.directory.len()
    }

    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        let logins = self.entering.values();
        logins
            .filter_map(|entering| entering.login.poll_timeout())
            .min()
    }
}

impl Core {
    pub(super) fn arrive_at_front(&mut self, link: usize, arrival: Arrival) {
        let Some(front) = &mut self.front else {
            return;
        };
        let Arrival::Bytes(bytes) = arrival else {
            if front.entering.remove(&link).is_some() {
                self.close_link(link);
            }
            return;
        };
        let Some(mut entering) = front.entering.remove(&link) else {
            return;
        };
        entering.buffer.push(&bytes);
        self.go_on(entering);
    }

    /// Cuts PDUs as long as the login takes them.
    fn go_on(&mut self, mut entering: Entering) {
        loop {
            match entering
                .buffer
                .next_pdu(LOGIN_SEGMENT_MAX_BYTES, false, false)
            {
                Ok(Some(pdu)) => {
                    entering.login.handle_pdu(&pdu.header, &pdu.data);
                    match self.follow_login(entering) {
                        Some(same) => entering = same,
                        None => return,
                    }
                }
                Ok(None) => break,
                Err(_) => {
                    self.close_link(entering.link);
                    return;
                }
            }
        }
        if let Some(front) = &mut self.front {
            front.entering.insert(entering.link, entering);
        }
    }

    /// Does what the login machine asks for. `None` when the connection has left the desk.
    fn follow_login(&mut self, mut entering: Entering) -> Option<Entering> {
        let link = entering.link;
        while let Some(action) = entering.login.poll_action() {
            match action {
                LoginAction::Send(pdu) => {
                    let bytes = pdu.to_bytes(false, false);
                    self.outgoing.entry(link).or_default().push_bytes(&bytes);
                }
                LoginAction::Authorize(request) => {
                    let is_known = request
                        .target_name
                        .is_some_and(|name| name.to_string() == TARGET_NAME);
                    let policy = TargetPolicy {
                        auth: TargetAuth::None,
                        preferences: self.settings.preferences.clone(),
                        portal_group_tag: PORTAL_GROUP,
                        target_alias: None,
                    };
                    let reply = is_known.then_some(policy).ok_or(LoginStatus::NotFound);
                    entering.login.authorize_reply(reply);
                }
                LoginAction::Admit(negotiated) => {
                    self.place(entering, negotiated);
                    return None;
                }
                LoginAction::Complete(_) => {}
                LoginAction::Close(_) => {
                    self.close_link(link);
                    return None;
                }
            }
        }
        Some(entering)
    }

    /// Finds the core of a session, after an older one of the same name has ended.
    fn place(&mut self, entering: Entering, negotiated: Box<NegotiatedLogin>) {
        let Some(front) = &mut self.front else {
            return;
        };
        let initiator = negotiated.initiator_name.to_string();
        let newcomer = claim(&initiator, negotiated.isid, negotiated.chap_user.as_deref());
        let is_join = !negotiated.tsih.is_none();
        let same =
            |place: &Placement| place.initiator == initiator && place.isid == negotiated.isid;
        let meant = if is_join {
            front.directory.get_key_value(&negotiated.tsih.0)
        } else {
            front.directory.iter().find(|(_, place)| same(place))
        };
        let session = meant.map(|(_, place)| place.claim());
        // Everybody here is granted the same.
        let entry = decide_entry(&newcomer, is_join, session.as_ref(), true);
        let (tsih, place) = match (entry, meant) {
            (Entry::Begin, _) => {
                self.open_session(entering, negotiated);
                return;
            }
            (Entry::Join | Entry::Reinstate, Some((&tsih, place))) => (tsih, place),
            (Entry::Join | Entry::Reinstate | Entry::Refuse(_), _) => {
                self.close_link(entering.link);
                return;
            }
        };
        let (core, nexus) = (place.core, place.nexus);
        if entry == Entry::Join {
            self.send_off(core, entering, negotiated, Tsih(tsih), nexus);
        } else {
            let waiting = Waiting {
                entering,
                negotiated,
            };
            // Of two that wait for the same, the later takes the place of the earlier.
            let earlier = front.waiting.insert(tsih, waiting);
            self.post(core, Letter::EndSession(Tsih(tsih)));
            if let Some(earlier) = earlier {
                self.close_link(earlier.entering.link);
            }
        }
    }

    fn open_session(&mut self, entering: Entering, negotiated: Box<NegotiatedLogin>) {
        let cores = self.settings.cores;
        let Some(front) = &mut self.front else {
            return;
        };
        front.sessions_so_far += 1;
        let tsih = Tsih(front.sessions_so_far);
        let nexus = NexusId(u32::from(tsih.0));
        let core = usize::from(tsih.0) % cores;
        let place = Placement {
            initiator: negotiated.initiator_name.to_string(),
            isid: negotiated.isid,
            user: negotiated.chap_user.clone(),
            core,
            nexus,
        };
        front.directory.insert(tsih.0, place);
        self.send_off(core, entering, negotiated, tsih, nexus);
    }

    fn send_off(
        &mut self,
        core: usize,
        connection: Entering,
        negotiated: Box<NegotiatedLogin>,
        tsih: Tsih,
        nexus: NexusId,
    ) {
        // Answers of the login that wait here would be overtaken by those of the session; a link
        // with unsent answers has a peer that does not play by the rules of a login.
        self.outgoing.remove(&connection.link);
        let adoption = Box::new(Adoption {
            connection,
            negotiated,
            tsih,
            nexus,
        });
        self.post(core, Letter::Adopt(adoption));
    }

    pub(super) fn handle_session_ended(&mut self, tsih: Tsih) {
        let Some(front) = &mut self.front else {
            return;
        };
        front.directory.remove(&tsih.0);
        if let Some(waiting) = front.waiting.remove(&tsih.0) {
            self.open_session(waiting.entering, waiting.negotiated);
        }
    }

    pub(super) fn time_out_logins(&mut self) {
        let now = self.now;
        let Some(front) = &mut self.front else {
            return;
        };
        let late = |entering: &Entering| {
            let due = entering.login.poll_timeout();
            due.is_some_and(|due| due <= now)
        };
        let late = front.entering.iter().filter(|(_, entering)| late(entering));
        let late: Vec<usize> = late.map(|(&link, _)| link).collect();
        for link in late {
            let Some(front) = &mut self.front else {
                return;
            };
            if let Some(mut entering) = front.entering.remove(&link) {
                entering.login.handle_timeout(now);
                self.follow_login(entering);
            }
        }
    }
}
