//! Peers that have not proved who they are: how many there may be, from where, and what all of them
//! may hold together.
//!
//! [`Unproved`] counts connections in login and discovery sessions by their source. At a limit the
//! source with the most of them gives one up, its oldest: a peer with a source of its own is
//! not displaced by strangers, however many of them there are.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ::iscsi::discovery::TargetRecord;
use ::iscsi::limits::SESSION_HOLD_MAX_BYTES;
use ::iscsi::pdu::Tsih;
use ::iscsi::target::Budget;
use engine::table::Key;

/// The network of one site, which has as many addresses of it as it likes.
const SITE_BITS: u32 = 64;

/// What a [`LoginKey`] names.
#[derive(Debug)]
pub enum OfLogin {}

/// Names a connection in its login phase.
pub type LoginKey = Key<OfLogin>;

/// Answers to SendTargets that sessions share as long as one of them has it: those who may see the
/// same targets at the same addresses have the same list.
#[derive(Debug, Default)]
pub struct SharedLists(Mutex<Vec<Weak<[TargetRecord]>>>);

impl SharedLists {
    /// The list that is equal to this one.
    pub fn share(&self, list: Vec<TargetRecord>) -> Arc<[TargetRecord]> {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lists.retain(|known| known.strong_count() > 0);
        let known = lists.iter().filter_map(Weak::upgrade);
        if let Some(equal) = known.into_iter().find(|known| known[..] == list[..]) {
            return equal;
        }
        let list: Arc<[TargetRecord]> = list.into();
        lists.push(Arc::downgrade(&list));
        list
    }
}

/// Where a peer comes from, as far as limits go.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Source(IpAddr);

impl Source {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(address.into()),
            IpAddr::V6(address) => {
                let site = address.to_bits() >> SITE_BITS << SITE_BITS;
                Self(Ipv6Addr::from_bits(site).into())
            }
        }
    }
}

/// One that is counted.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Peer {
    /// A connection in login, by its place in the table of logins.
    Login(LoginKey),
    /// A discovery session.
    Discovery(Tsih),
}

/// How many there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnprovedLimits {
    /// Of one source.
    pub(crate) per_address_max: usize,
    /// Connections in login.
    pub(crate) logins_max: usize,
    /// Discovery sessions.
    pub(crate) discovery_max: usize,
}

/// Which limit was reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Crowding {
    /// The source has as many as it may.
    #[error("more than {0} unfinished logins and discovery sessions from this address")]
    Address(usize),
    /// There are as many logins as there may be.
    #[error("more than {0} logins are not complete")]
    Logins(usize),
    /// There are as many discovery sessions as there may be.
    #[error("more than {0} discovery sessions")]
    Discovery(usize),
    /// The budget is used up.
    #[error("the memory for logins and discovery sessions, {0} bytes, is used up")]
    Memory(usize),
    /// Descriptors are kept back.
    #[error("no more than {0} connections leave descriptors for the administration")]
    Descriptors(usize),
}

/// What one source has, by age.
#[derive(Debug, Default)]
struct Crowd {
    logins: BTreeMap<u64, LoginKey>,
    discovery: BTreeMap<u64, Tsih>,
}

impl Crowd {
    fn len(&self) -> usize {
        self.logins.len() + self.discovery.len()
    }

    fn oldest_login(&self) -> Option<(u64, Peer)> {
        let (&age, &key) = self.logins.first_key_value()?;
        Some((age, Peer::Login(key)))
    }

    fn oldest_discovery(&self) -> Option<(u64, Peer)> {
        let (&age, &tsih) = self.discovery.first_key_value()?;
        Some((age, Peer::Discovery(tsih)))
    }

    fn oldest(&self) -> Option<(u64, Peer)> {
        let both = [self.oldest_login(), self.oldest_discovery()];
        both.into_iter().flatten().min()
    }
}

/// Where one that is counted stands.
#[derive(Clone, Copy, Debug)]
struct Place {
    source: Source,
    age: u64,
    /// All that it may hold is taken out of the budget.
    is_paid: bool,
}

/// All connections in login and all discovery sessions.
#[derive(Debug)]
pub(crate) struct Unproved {
    limits: UnprovedLimits,
    budget: Arc<Budget>,
    sources: HashMap<Source, Crowd>,
    places: HashMap<Peer, Place>,
    discovery_count: usize,
    next_age: u64,
}

impl Unproved {
    pub(crate) fn new(limits: UnprovedLimits, budget: Arc<Budget>) -> Self {
        Self {
            limits,
            budget,
            sources: HashMap::new(),
            places: HashMap::new(),
            discovery_count: 0,
            next_age: 0,
        }
    }

    /// Limits for those who come from now on. Each of them takes the place of one at most that is there.
    pub(crate) const fn set_limits(&mut self, limits: UnprovedLimits) {
        self.limits = limits;
    }

    fn login_count(&self) -> usize {
        self.places.len() - self.discovery_count
    }

    /// Counts one more. Gives the one that must go for it, which counts no more; it is the new one
    /// itself when there is no other.
    pub(crate) fn begin(&mut self, peer: Peer, address: IpAddr) -> Option<(Peer, Crowding)> {
        let crowding = self.insert(peer, Source::of(address))?;
        let source = Source::of(address);
        let gone = match crowding {
            Crowding::Address(_) => self.sources.get(&source).and_then(Crowd::oldest),
            Crowding::Logins(_) => {
                self.most_crowded(|crowd| crowd.logins.len(), Crowd::oldest_login)
            }
            Crowding::Discovery(_) => {
                self.most_crowded(|crowd| crowd.discovery.len(), Crowd::oldest_discovery)
            }
            Crowding::Memory(_) | Crowding::Descriptors(_) => {
                self.most_crowded(Crowd::len, Crowd::oldest)
            }
        };
        let (_, gone) = gone?;
        self.end(gone);
        if let Some(place) = self.places.get_mut(&peer)
            && !place.is_paid
        {
            place.is_paid = self.budget.take(SESSION_HOLD_MAX_BYTES);
        }
        Some((gone, crowding))
    }

    /// The one that goes when there is no descriptor for another connection.
    pub(super) fn displace(&mut self) -> Option<Peer> {
        let (_, gone) = self.most_crowded(Crowd::len, Crowd::oldest)?;
        self.end(gone);
        Some(gone)
    }

    /// Adds to the books; gives the limit that is passed by it.
    fn insert(&mut self, peer: Peer, source: Source) -> Option<Crowding> {
        let age = self.next_age;
        self.next_age += 1;
        let is_paid = self.budget.take(SESSION_HOLD_MAX_BYTES);
        let place = Place {
            source,
            age,
            is_paid,
        };
        let before = self.places.insert(peer, place);
        debug_assert!(before.is_none(), "{peer:?} is counted twice");
        let crowd = self.sources.entry(source).or_default();
        match peer {
            Peer::Login(key) => drop(crowd.logins.insert(age, key)),
            Peer::Discovery(tsih) => {
                crowd.discovery.insert(age, tsih);
                self.discovery_count += 1;
            }
        }
        let UnprovedLimits {
            per_address_max,
            logins_max,
            discovery_max,
        } = self.limits;
        if crowd.len() > per_address_max {
            Some(Crowding::Address(per_address_max))
        } else if matches!(peer, Peer::Login(_)) && self.login_count() > logins_max {
            Some(Crowding::Logins(logins_max))
        } else if matches!(peer, Peer::Discovery(_)) && self.discovery_count > discovery_max {
            Some(Crowding::Discovery(discovery_max))
        } else {
            (!is_paid).then_some(Crowding::Memory(self.budget.limit()))
        }
    }

    /// The oldest of the source that has the most; of several, of that which has had it longest.
    fn most_crowded(
        &self,
        count: impl Fn(&Crowd) -> usize,
        oldest: impl Fn(&Crowd) -> Option<(u64, Peer)>,
    ) -> Option<(u64, Peer)> {
        let candidates = self.sources.values().filter_map(|crowd| {
            let (age, peer) = oldest(crowd)?;
            Some((count(crowd), age, peer))
        });
        let most = candidates.max_by(|one, other| (one.0, other.1).cmp(&(other.0, one.1)));
        most.map(|(_, age, peer)| (age, peer))
    }

    /// It is over, or has proved who it is.
    pub(crate) fn end(&mut self, peer: Peer) {
        let Some(place) = self.places.remove(&peer) else {
            return;
        };
        let Place {
            source,
            age,
            is_paid,
        } = place;
        if is_paid {
            self.budget.give_back(SESSION_HOLD_MAX_BYTES);
        }
        let Some(crowd) = self.sources.get_mut(&source) else {
            return;
        };
        match peer {
            Peer::Login(_) => drop(crowd.logins.remove(&age)),
            Peer::Discovery(_) => {
                crowd.discovery.remove(&age);
                self.discovery_count -= 1;
            }
        }
        if crowd.len() == 0 {
            self.sources.remove(&source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: UnprovedLimits = UnprovedLimits {
        per_address_max: 4,
        logins_max: 6,
        discovery_max: 3,
    };

    fn machine() -> Unproved {
        Unproved::new(LIMITS, Arc::new(Budget::new(usize::MAX)))
    }

    fn from(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    const fn login(number: u64) -> Peer {
        Peer::Login(LoginKey::from_bits(number))
    }

    const fn discovery(number: u16) -> Peer {
        Peer::Discovery(Tsih(number))
    }

    #[test]
    fn one_address_displaces_its_own_oldest_beyond_its_limit() {
        let mut unproved = machine();
        assert_eq!(unproved.begin(login(0), from(9)), None);
        assert_eq!(unproved.begin(discovery(1), from(1)), None);
        for number in 1..4 {
            assert_eq!(unproved.begin(login(number), from(1)), None);
        }
        let gone = unproved.begin(login(4), from(1));
        assert_eq!(gone, Some((discovery(1), Crowding::Address(4))));
        let gone = unproved.begin(login(5), from(1));
        assert_eq!(gone, Some((login(1), Crowding::Address(4))));
    }

    #[test]
    fn a_lower_limit_ends_nobody_and_each_newcomer_takes_one_place() {
        let mut unproved = machine();
        for number in 0..4 {
            assert_eq!(unproved.begin(login(number), from(1)), None);
        }
        let per_address_max = 2;
        unproved.set_limits(UnprovedLimits {
            per_address_max,
            ..LIMITS
        });
        assert_eq!(unproved.login_count(), 4);
        let gone = unproved.begin(login(4), from(1));
        assert_eq!(gone, Some((login(0), Crowding::Address(2))));
        assert_eq!(unproved.login_count(), 4);
        unproved.set_limits(LIMITS);
        unproved.end(login(1));
        assert_eq!(unproved.begin(login(5), from(1)), None);
    }

    #[test]
    fn the_oldest_login_of_the_fullest_address_gives_way() {
        let mut unproved = machine();
        unproved.begin(login(0), from(9));
        for (number, address) in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2)] {
            assert_eq!(unproved.begin(login(number), from(address)), None);
        }
        let gone = unproved.begin(login(6), from(3));
        assert_eq!(gone, Some((login(3), Crowding::Logins(6))));
        // Two addresses have two now: the one with the oldest of them.
        let gone = unproved.begin(login(7), from(4));
        assert_eq!(gone, Some((login(1), Crowding::Logins(6))));
    }

    #[test]
    fn discovery_sessions_have_a_limit_of_their_own() {
        let mut unproved = machine();
        for number in 1..4 {
            assert_eq!(unproved.begin(discovery(number), from(1)), None);
        }
        let gone = unproved.begin(discovery(4), from(2));
        assert_eq!(gone, Some((discovery(1), Crowding::Discovery(3))));
        assert_eq!(unproved.begin(login(1), from(1)), None);
        unproved.end(discovery(4));
        unproved.end(discovery(4));
        assert_eq!(unproved.begin(discovery(5), from(2)), None);
    }

    #[test]
    fn every_place_is_paid_for() {
        for (places, is_enough) in [(3, true), (2, false)] {
            let budget = Arc::new(Budget::new(places * SESSION_HOLD_MAX_BYTES));
            let mut unproved = Unproved::new(LIMITS, Arc::clone(&budget));
            for number in 0..2 {
                assert_eq!(unproved.begin(login(number), from(1)), None);
            }
            let gone = unproved.begin(login(2), from(2));
            assert_eq!(gone.is_none(), is_enough, "{places} places: {gone:?}");
            assert!(gone.is_none_or(|(peer, _)| peer == login(0)));
            assert_eq!(budget.used(), places * SESSION_HOLD_MAX_BYTES);
            (0..3).for_each(|number| unproved.end(login(number)));
            assert_eq!(budget.used(), 0);
        }
    }

    #[test]
    fn a_site_counts_as_one_address() {
        let address = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(address("2001:db8:1:2::1"), address("2001:db8:1:2:ffff::9"));
        assert_ne!(address("2001:db8:1:2::1"), address("2001:db8:1:3::1"));
        assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
        assert_ne!(address("192.0.2.1"), address("192.0.2.2"));
    }

    #[test]
    fn equal_lists_are_one_and_go_with_their_last_user() {
        let lists = SharedLists::default();
        let list = |name: &str| {
            vec![TargetRecord {
                name: name.to_owned(),
                addresses: Vec::new(),
            }]
        };
        let (one, other) = (lists.share(list("a")), lists.share(list("b")));
        assert!(Arc::ptr_eq(&one, &lists.share(list("a"))));
        assert!(!Arc::ptr_eq(&one, &other));
        drop((one, other));
        let last = lists.share(list("c"));
        assert_eq!(lists.0.lock().unwrap().len(), 1);
        drop(last);
    }
}
