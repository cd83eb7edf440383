//! Who has what of what all sessions at targets share: places, connections, memory for what waits and for what they
//! see, and, on each core, buffers.
//!
//! Each holder has a share of each, and none can take so much that the next one finds nothing.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ::iscsi::limits::{DISCOVERY_HOLD_MAX_BYTES, SESSION_HOLD_MAX_BYTES};
use ::iscsi::negotiate::SessionParameters;
use ::iscsi::target::{Budget, HoldLimits, Share};
use memory::{Party, Pool};

use super::member::Member;
use super::throttle::origin;

/// Among whom it is shared.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) enum Holder {
    /// A user, wherever it logs in from.
    User(String),
    /// Initiators that have not authenticated: they choose their names, so their address counts.
    Origin(IpAddr),
}

impl Holder {
    pub(super) fn of(member: &Member) -> Self {
        Self::new(member.user.as_deref(), member.peer.ip())
    }

    /// Who has proved this user, if any, and comes from there.
    pub(super) fn new(user: Option<&str>, address: IpAddr) -> Self {
        user.map_or_else(
            || Self::Origin(origin(address)),
            |user| Self::User(user.to_owned()),
        )
    }
}

/// Parties are looked over for those that are not in use when there are so many, and then twice as many as were left.
const PARTIES_SWEPT_AT: usize = 16;

/// The holders on one core, each a party among those that share its buffers.
#[derive(Debug, Default)]
pub(super) struct Parties {
    /// A party stays for as long as one of its sessions is there, or a buffer of one that was; and after that until
    /// others are many. So there are no more than twice as many as are in use, or than a few.
    parties: HashMap<Holder, Party>,
    sweep_at: usize,
}

impl Parties {
    /// An account for a session of this holder.
    pub(super) fn account(&mut self, holder: Holder, pool: &Pool) -> Pool {
        if self.parties.len() >= self.sweep_at.max(PARTIES_SWEPT_AT) {
            self.sweep();
        }
        let party = self.parties.entry(holder);
        party.or_insert_with(|| pool.party()).account()
    }

    /// Drops those that are not in use.
    pub(super) fn sweep(&mut self) {
        self.parties.retain(|_, party| party.is_in_use());
        self.parties.shrink_to_fit();
        self.sweep_at = self.parties.len().saturating_mul(2);
    }
}

/// Memory for requests of peers that are not whole or wait for their turn, and for the LUNs that sessions see, on all
/// cores.
#[derive(Clone, Debug)]
pub struct Holding {
    /// Of connections in login and discovery sessions. Sessions at targets have no part of it.
    pub logins: Arc<Budget>,
    /// Of sessions without a user, which share it by their addresses.
    pub unproved: Arc<Budget>,
    /// Of the sessions of users, who share it.
    pub proved: Arc<Budget>,
    /// For what sessions without a user see, which share it by their addresses.
    pub unproved_luns: Arc<Budget>,
    /// The same of users.
    pub proved_luns: Arc<Budget>,
}

/// Sessions have one part in so many of what peers that have not authenticated may hold; logins have the rest.
const SESSIONS_PART: usize = 4;

/// What a LUN of a session takes at most, in bytes: its entries in what the session sees, and its nexus in the core's
/// view of the unit and at the owner of that, with the room that tables have beyond need.
const LUN_BYTES: usize = 512;

/// So many LUNs of a session are in its place. Sessions with more do not keep those with few away.
const LUNS_FREE: usize = 16;

impl Holding {
    /// So many bytes for peers that have not authenticated, and as many for users. The same again for what strangers
    /// see, and four times as many for what users do, whom an administrator knows: some 100 hosts with eight paths to
    /// 1,000 LUNs each, by default.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let of_sessions = bytes / SESSIONS_PART;
        let budget = |bytes| Arc::new(Budget::new(bytes));
        Self {
            logins: budget(bytes - of_sessions),
            unproved: budget(of_sessions),
            proved: budget(bytes),
            unproved_luns: budget(bytes),
            proved_luns: budget(bytes.saturating_mul(4)),
        }
    }

    /// There is as much from now on as another one has.
    pub fn set_limits(&self, as_of: &Self) {
        self.logins.set_limit(as_of.logins.limit());
        self.unproved.set_limit(as_of.unproved.limit());
        self.proved.set_limit(as_of.proved.limit());
        self.unproved_luns.set_limit(as_of.unproved_luns.limit());
        self.proved_luns.set_limit(as_of.proved_luns.limit());
    }
}

/// What there is in all.
#[derive(Debug)]
pub(super) struct Common {
    sessions: Arc<Budget>,
    connections: Arc<Budget>,
    holding: Holding,
}

impl Common {
    /// So many sessions, so many connections of them, and memory.
    pub(super) fn new(sessions_max: usize, connections_max: usize, holding: Holding) -> Self {
        Self {
            sessions: Arc::new(Budget::new(sessions_max)),
            connections: Arc::new(Budget::new(connections_max)),
            holding,
        }
    }

    /// There may be so many sessions from now on. Those that are there stay.
    pub(super) fn set_sessions_max(&self, sessions_max: usize) {
        self.sessions.set_limit(sessions_max);
    }

    /// The memory that all share.
    pub(super) const fn holding(&self) -> &Holding {
        &self.holding
    }

    /// The shares of a holder that has nothing yet.
    pub(super) fn shares(&self, holder: &Holder) -> Shares {
        let share = |budget: &Arc<Budget>| Arc::new(Share::new(Arc::clone(budget)));
        let (held, luns) = match holder {
            Holder::User(_) => (&self.holding.proved, &self.holding.proved_luns),
            Holder::Origin(_) => (&self.holding.unproved, &self.holding.unproved_luns),
        };
        Shares {
            sessions: share(&self.sessions),
            connections: share(&self.connections),
            held: share(held),
            luns: share(luns),
        }
    }
}

/// What one holder has of it.
#[derive(Clone, Debug)]
pub struct Shares {
    /// Sessions at targets.
    pub(super) sessions: Arc<Share>,
    /// Connections of those.
    connections: Arc<Share>,
    /// Bytes of requests that wait.
    held: Arc<Share>,
    /// Bytes for what its sessions see.
    luns: Arc<Share>,
}

impl Shares {
    /// Whether the holder may have one more session.
    pub(super) fn have_place(&self) -> bool {
        self.sessions.has_room() && self.may_connect()
    }

    /// Those of the only holder of a test.
    #[cfg(test)]
    pub(crate) fn alone() -> Self {
        let common = Common::new(1, 1, Holding::new(1 << 20));
        common.shares(&Holder::User("alone".to_owned()))
    }

    /// Whether the holder may have one more connection.
    pub(super) fn may_connect(&self) -> bool {
        self.connections.has_room()
    }

    /// A session that sees so many LUNs, if the holder may have it.
    pub(super) fn take_luns(&self, luns: usize) -> Option<Arc<LunsHeld>> {
        let bytes = LunsHeld::bytes_of(luns);
        let is_there = bytes == 0 || self.luns.take(bytes);
        is_there.then(|| self.hold_luns(bytes))
    }

    /// The same, whether the holder may have it or not.
    pub(super) fn count_luns(&self, luns: usize) -> Arc<LunsHeld> {
        let bytes = LunsHeld::bytes_of(luns);
        self.luns.count_more(bytes);
        self.hold_luns(bytes)
    }

    fn hold_luns(&self, bytes: usize) -> Arc<LunsHeld> {
        Arc::new(LunsHeld {
            share: Arc::clone(&self.luns),
            bytes: AtomicUsize::new(bytes),
        })
    }

    /// Counts a connection for as long as the value is there.
    pub(crate) fn count_connection(&self) -> ConnectionPlace {
        self.connections.count();
        ConnectionPlace(Arc::clone(&self.connections))
    }
}

/// Those of one holder are the same.
impl PartialEq for Shares {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.sessions, &other.sessions)
    }
}

impl Eq for Shares {}

/// A connection that counts for its holder.
#[derive(Debug)]
pub(crate) struct ConnectionPlace(Arc<Share>);

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.0.give_back(1);
    }
}

/// What a session sees, which counts for its holder for as long as this is there.
#[derive(Debug)]
pub struct LunsHeld {
    share: Arc<Share>,
    bytes: AtomicUsize,
}

impl LunsHeld {
    const fn bytes_of(luns: usize) -> usize {
        luns.saturating_sub(LUNS_FREE).saturating_mul(LUN_BYTES)
    }

    /// It sees so many from now on: an administrator wants it so, whether the holder may have them or not.
    pub(super) fn change(&self, luns: usize) {
        let bytes = Self::bytes_of(luns);
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        self.share.count_more(bytes);
        self.share.give_back(before);
    }
}

impl Drop for LunsHeld {
    fn drop(&mut self) {
        self.share.give_back(*self.bytes.get_mut());
    }
}

/// That of one session is the same.
impl PartialEq for LunsHeld {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for LunsHeld {}

/// What a session may hold of requests that are not whole or came before their turn. A discovery session has no
/// shares.
///
/// Commands of several connections may overtake each other by a burst each: a session whose user is
/// proved has room for that. A discovery session has paid with its place among those that have proved
/// nothing.
pub(super) fn hold_limits(
    shares: Option<&Shares>,
    is_proved: bool,
    parameters: &SessionParameters,
    gap_timeout: Duration,
) -> HoldLimits {
    let Some(shares) = shares else {
        return HoldLimits::alone(DISCOVERY_HOLD_MAX_BYTES, gap_timeout);
    };
    HoldLimits {
        share: Arc::clone(&shares.held),
        session_max_bytes: SESSION_HOLD_MAX_BYTES,
        per_connection_bytes: if is_proved {
            parameters.first_burst_length_bytes as usize
        } else {
            0
        },
        gap_timeout,
    }
}

#[cfg(test)]
mod tests {
    use ::iscsi::negotiate::{Negotiation, OperationalPreferences, Phase, Role, SessionType};
    use memory::Need;

    use super::*;

    fn user(name: &str) -> Holder {
        Holder::new(Some(name), [192, 0, 2, 1].into())
    }

    #[test]
    fn sessions_of_a_user_are_one_party_wherever_it_logs_in_from_and_strangers_are_by_address() {
        let from = |user, last| Holder::new(user, [192, 0, 2, last].into());
        assert_eq!(from(Some("mallory"), 1), from(Some("mallory"), 2));
        assert_ne!(from(Some("mallory"), 1), from(Some("alice"), 1));
        assert_ne!(from(Some("mallory"), 1), from(None, 1));
        assert_ne!(from(None, 1), from(None, 2));
    }

    #[test]
    fn a_user_with_many_sessions_leaves_buffers_to_another() {
        let pool = Pool::new(64 << 20).unwrap();
        let mut parties = Parties::default();
        let mut held = Vec::new();
        for len in [8 << 20, 1 << 20, 64 << 10, 4 << 10] {
            for _ in 0..100 {
                let session = parties.account(user("mallory"), &pool);
                held.extend(session.allocate_for(Need::Begin, len));
            }
        }
        let free = pool.free_bytes();
        assert!(free >= 12 << 20, "{free}");
        let alice = parties.account(user("alice"), &pool);
        held.push(alice.allocate_for(Need::Begin, 4 << 20).unwrap());
        let alice = parties.account(user("alice"), &pool);
        assert!(
            alice.allocate_for(Need::Arrived, 4 << 10).is_err(),
            "it has much"
        );
        held.pop();
        held.push(alice.allocate_for(Need::Begin, 256 << 10).unwrap());
        held.push(alice.allocate_for(Need::Arrived, 4 << 10).unwrap());
    }

    #[test]
    fn a_party_stays_while_a_session_or_a_buffer_of_it_is_there_and_not_for_ever() {
        let pool = Pool::new(0).unwrap();
        let mut parties = Parties::default();
        let session = parties.account(user("here"), &pool);
        let gone = parties.account(user("gone"), &pool);
        let buffer = gone.allocate_for(Need::Begin, 1).unwrap();
        drop(gone);
        for number in 0..1000 {
            let _ended = parties.account(user(&number.to_string()), &pool);
            assert!(parties.parties.len() <= PARTIES_SWEPT_AT);
        }
        parties.sweep();
        assert_eq!(parties.parties.len(), 2);
        drop((buffer, session));
        parties.sweep();
        assert_eq!(parties.parties.len(), 0);
    }

    #[test]
    fn many_parties_are_swept_when_there_are_twice_as_many_as_were_in_use() {
        let pool = Pool::new(0).unwrap();
        let mut parties = Parties::default();
        let here: Vec<_> = (0..40)
            .map(|number| parties.account(user(&format!("here {number}")), &pool))
            .collect();
        parties.sweep();
        assert_eq!(parties.parties.len(), here.len());
        for number in 0..40 {
            let _ended = parties.account(user(&format!("gone {number}")), &pool);
            assert_eq!(
                parties.parties.len(),
                here.len() + number + 1,
                "none is looked for"
            );
        }
        let _ended = parties.account(user("one more"), &pool);
        assert_eq!(parties.parties.len(), here.len() + 1);
    }

    #[test]
    fn all_parts_of_what_may_be_held_have_other_limits_from_now_on() {
        let holding = Holding::new(4000);
        let limits = || {
            let budgets = [
                &holding.logins,
                &holding.unproved,
                &holding.proved,
                &holding.unproved_luns,
                &holding.proved_luns,
            ];
            budgets.map(|budget| budget.limit())
        };
        assert_eq!(limits(), [3000, 1000, 4000, 4000, 16_000]);
        holding.set_limits(&Holding::new(8002));
        assert_eq!(limits(), [6002, 2000, 8002, 8002, 32_008]);
    }

    #[test]
    fn a_session_of_a_user_may_hold_a_burst_of_each_connection() {
        let common = Common::new(8, 8, Holding::new(1 << 20));
        let shares = common.shares(&user("alice"));
        let negotiated = Negotiation::new(
            Role::Target,
            Phase::LeadingLogin,
            SessionType::Normal,
            OperationalPreferences::default(),
        );
        let parameters = SessionParameters {
            first_burst_length_bytes: 7000,
            ..negotiated.session_parameters()
        };
        let second = Duration::from_secs(1);
        for (is_proved, bytes) in [(true, 7000), (false, 0)] {
            let limits = hold_limits(Some(&shares), is_proved, &parameters, second);
            assert_eq!(limits.per_connection_bytes, bytes);
            assert_eq!(limits.session_max_bytes, SESSION_HOLD_MAX_BYTES);
            assert_eq!(limits.gap_timeout, second);
        }
        let alone = hold_limits(None, true, &parameters, second);
        assert_eq!(alone.session_max_bytes, DISCOVERY_HOLD_MAX_BYTES);
        assert_eq!(alone.per_connection_bytes, 0);
    }

    #[test]
    fn sixteen_luns_are_in_the_place_of_a_session() {
        let bytes = [0, 16, 17, 1016].map(LunsHeld::bytes_of);
        assert_eq!(bytes, [0, 0, 512, 512_000]);
    }
}
