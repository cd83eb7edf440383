//! The directory of sessions, kept by one core: who is logged in, where, and who waits for an
//! old session to end.
//!
//! Pure: it decides, its owner carries out. A leading login whose initiator port is known
//! (name, ISID and portal group) replaces the old session, and waits until that has ended on its
//! core. Whether it may, and whether a connection may join a session, is for [`Member::decide`] to
//! say.
//!
//! Spec: RFC 7143 sections 6.3.5 (session reinstatement) and 6.3.4 (connection reinstatement).

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

use ::iscsi::login::{Entry as Entrance, EntryRefusal};
use ::iscsi::pdu::{LoginStatus, Tsih};
use engine::TargetIndex;
use scsi::NexusId;

use super::holder::{Common, Holder, LunsHeld, Shares};
use super::member::{Member, NexusKey};
use super::throttle::origin;
use crate::identity::SessionId;
use crate::policy::Policy;

/// Where a new session goes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Placement {
    /// The core that it lives on.
    pub core: usize,
    /// How it is called.
    pub id: SessionId,
    /// How it is called on the wire.
    pub tsih: Tsih,
    /// Its I_T nexus.
    pub nexus: NexusId,
    /// This pair of ports had a session before in the life of this process.
    pub is_return: bool,
    /// A TARGET COLD RESET ended that one, or came after it.
    pub was_reset: bool,
    /// How often this pair of ports has replaced a session of its own, this time included.
    pub reinstatements: u32,
    /// What its holder has; `None` for a discovery session.
    pub shares: Option<Shares>,
    /// What it sees, as it counts for its holder; `None` for a discovery session.
    pub luns_held: Option<Arc<LunsHeld>>,
}

/// The place of a session of another transport, which shares what there is of places with those of iSCSI.
#[derive(Clone, Debug)]
pub struct OtherPlace {
    /// The core that it lives on.
    pub core: usize,
    /// How it is called.
    pub id: SessionId,
    /// Its I_T nexus.
    pub nexus: NexusId,
    /// What its holder has.
    pub shares: Shares,
    holder: Holder,
}

/// What is to be done with a leading login.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Decision<W> {
    /// Make the session.
    Place(Placement, W),
    /// End this session first; the login waits in the directory.
    EndFirst { core: usize, tsih: Tsih },
    /// The login waits for a session that is already being ended, in the place of this one.
    Wait(Option<W>),
    /// No more sessions, or the one in the way is another's.
    Refuse(LoginStatus, W),
}

#[derive(Debug)]
struct Entry<W> {
    /// Who began it; `None` for discovery sessions.
    member: Option<Member>,
    core: usize,
    /// The login that the session is being ended for: the last one, as each would replace the one
    /// before.
    waiting: Option<W>,
    /// It has been asked to end, which it does whether somebody still waits or not.
    is_ending: bool,
}

/// A pair of ports, by a hash of 128 bits that nobody outside can foresee. What is remembered of those
/// that are gone has no memory of its own, which would lie between that of the sessions to come.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct PortPair([u64; 2]);

impl PortPair {
    fn of(key: &NexusKey, hashes: &[RandomState; 2]) -> Self {
        Self(hashes.each_ref().map(|hash| hash.hash_one(key)))
    }
}

/// What is known of a port pair that was logged in before.
#[derive(Clone, Copy, Debug)]
struct Seen {
    target: TargetIndex,
    /// How often it has replaced a session of its own.
    reinstatements: u32,
    /// The target was reset since its last login.
    was_reset: bool,
}

/// All sessions. `W` is a login that waits.
#[derive(Debug)]
pub(super) struct Directory<W> {
    sessions: BTreeMap<Tsih, Entry<W>>,
    by_key: HashMap<NexusKey, Tsih>,
    /// Port pairs that were logged in before. Those without a session are forgotten when there are
    /// too many.
    seen: HashMap<PortPair, Seen>,
    hashes: [RandomState; 2],
    per_core: Vec<usize>,
    /// Those who have sessions at targets.
    holders: HashMap<Holder, Shares>,
    common: Common,
    /// TSIHs of the sessions that ended last. They are not given again so soon: letters between
    /// cores may still name them.
    ended: VecDeque<Tsih>,
    next_nexus: u32,
    /// How many sessions were placed: the last that was is called so.
    placed: u64,
}

/// How many port pairs are remembered after their session has ended.
const SEEN_MAX: usize = 16 * 1024;

/// How many TSIHs rest after the end of their session.
const RESTING_MAX: usize = 1024;

/// As many sessions can be distinguished: TSIH has 16 bits, and zero is none.
const TSIHS_MAX: usize = u16::MAX as usize - 1;

impl<W> Directory<W> {
    pub(super) fn new(cores: usize, common: Common) -> Self {
        Self {
            sessions: BTreeMap::new(),
            by_key: HashMap::new(),
            seen: HashMap::new(),
            hashes: Default::default(),
            per_core: vec![0; cores],
            holders: HashMap::new(),
            common,
            ended: VecDeque::new(),
            next_nexus: 0,
            placed: 0,
        }
    }

    /// What all share.
    pub(super) const fn common(&self) -> &Common {
        &self.common
    }

    /// The core of the session that a newcomer wants to join, if it may.
    pub(super) fn join(
        &self,
        tsih: Tsih,
        newcomer: &Member,
        policy: &dyn Policy,
    ) -> Result<usize, LoginStatus> {
        let entry = self.sessions.get(&tsih);
        let session = entry.and_then(|entry| entry.member.as_ref());
        match (newcomer.decide(true, session, policy), entry) {
            (Entrance::Join, Some(entry)) if !entry.is_ending => Ok(entry.core),
            (Entrance::Join, Some(_)) => Err(LoginStatus::CannotIncludeInSession),
            (Entrance::Refuse(refusal), _) => Err(refusal.status()),
            (Entrance::Join | Entrance::Begin | Entrance::Reinstate, _) => {
                Err(EntryRefusal::NoSuchSession.status())
            }
        }
    }

    /// The core a session is on.
    pub(super) fn core_with(&self, tsih: Tsih) -> Option<usize> {
        self.sessions.get(&tsih).map(|entry| entry.core)
    }

    /// A leading login wants in. `member` is `None` for discovery; `random` decides what number the
    /// session gets.
    pub(super) fn admit(
        &mut self,
        member: Option<Member>,
        login: W,
        policy: &dyn Policy,
        random: u16,
    ) -> Decision<W> {
        self.decide(member, false, login, policy, random)
    }

    /// A login wants in that waited for a session of its own ports, which has ended.
    pub(super) fn admit_after(
        &mut self,
        member: Member,
        login: W,
        policy: &dyn Policy,
        random: u16,
    ) -> Decision<W> {
        self.decide(Some(member), true, login, policy, random)
    }

    fn decide(
        &mut self,
        member: Option<Member>,
        replaces: bool,
        login: W,
        policy: &dyn Policy,
        random: u16,
    ) -> Decision<W> {
        if let Some(member) = &member
            && let Some(&tsih) = self.by_key.get(&member.nexus)
            && let Some(entry) = self.sessions.get_mut(&tsih)
        {
            if let Entrance::Refuse(refusal) = member.decide(false, entry.member.as_ref(), policy) {
                return Decision::Refuse(refusal.status(), login);
            }
            let displaced = entry.waiting.replace(login);
            return match displaced {
                None if !std::mem::replace(&mut entry.is_ending, true) => Decision::EndFirst {
                    core: entry.core,
                    tsih,
                },
                displaced => Decision::Wait(displaced),
            };
        }
        // Discovery sessions are limited by `Unproved`; they take no place of others. Who replaces a session has its
        // place: that was kept until it ended, and nobody has come since then.
        let room = match &member {
            Some(member) => self.room_for(member, replaces).map(Some),
            None => Some(None),
        };
        let Some(room) = room.filter(|_| self.sessions.len() < TSIHS_MAX) else {
            return Decision::Refuse(LoginStatus::OutOfResources, login);
        };
        Decision::Place(self.place((member, room), replaces, random), login)
    }

    /// One of the places that are free, and memory for what this newcomer sees, if it may have them.
    fn room_for(&self, newcomer: &Member, replaces: bool) -> Option<(Shares, Arc<LunsHeld>)> {
        let shares = self.shares_of(&Holder::of(newcomer));
        let luns = if replaces {
            shares.count_luns(newcomer.luns)
        } else {
            let place = shares.have_place().then_some(newcomer.luns);
            shares.take_luns(place?)?
        };
        Some((shares, luns))
    }

    /// What a holder has, who may have nothing yet.
    fn shares_of(&self, holder: &Holder) -> Shares {
        let known = self.holders.get(holder).cloned();
        known.unwrap_or_else(|| self.common.shares(holder))
    }

    /// Gives back what tables have room for beyond need.
    pub(super) fn shrink(&mut self) {
        self.holders.shrink_to_fit();
        self.by_key.shrink_to_fit();
        self.seen.shrink_to_fit();
    }

    /// A place for a session of another transport, whose client has not authenticated. On the core with the fewest
    /// sessions, or on a certain one.
    pub(super) fn place_other(
        &mut self,
        address: IpAddr,
        core: Option<usize>,
    ) -> Option<OtherPlace> {
        let holder = Holder::Origin(origin(address));
        let shares = self.shares_of(&holder);
        if !shares.have_place() {
            return None;
        }
        shares.sessions.count();
        self.holders.insert(holder.clone(), shares.clone());
        let core = core.unwrap_or_else(|| self.emptiest_core());
        let (id, nexus) = self.next_names(core);
        Some(OtherPlace {
            core,
            id,
            nexus,
            shares,
            holder,
        })
    }

    /// That session has ended, with all its tasks.
    pub(super) fn leave_other(&mut self, place: &OtherPlace) {
        self.leave_core(place.core);
        self.give_back(&place.holder);
    }

    /// A holder has one session less.
    fn give_back(&mut self, holder: &Holder) {
        if let Some(shares) = self.holders.get(holder) {
            shares.sessions.give_back(1);
            if shares.sessions.held() == 0 {
                self.holders.remove(holder);
            }
        }
    }

    /// The core with the fewest sessions.
    fn emptiest_core(&self) -> usize {
        let loads = self.per_core.iter().enumerate();
        let emptiest = loads.min_by_key(|(_, load)| **load);
        emptiest.map_or(0, |(core, _)| core)
    }

    /// Names that no session has had, for one more session on this core.
    fn next_names(&mut self, core: usize) -> (SessionId, NexusId) {
        if let Some(load) = self.per_core.get_mut(core) {
            *load += 1;
        }
        self.next_nexus = self.next_nexus.wrapping_add(1);
        self.placed += 1;
        (SessionId(self.placed), NexusId(self.next_nexus))
    }

    /// A core has a session less.
    fn leave_core(&mut self, core: usize) {
        if let Some(load) = self.per_core.get_mut(core) {
            debug_assert!(*load > 0, "core {core} has no session");
            *load = load.saturating_sub(1);
        }
    }

    /// A session has ended on its core, with all its tasks. Gives the login that waited for that.
    pub(super) fn ended(&mut self, tsih: Tsih) -> Option<W> {
        let entry = self.sessions.remove(&tsih)?;
        if self.ended.len() >= RESTING_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(tsih);
        self.leave_core(entry.core);
        if let Some(member) = &entry.member {
            self.by_key.remove(&member.nexus);
            self.give_back(&Holder::of(member));
        }
        entry.waiting
    }

    /// No session is there.
    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Logins that wait for an old session to end.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &W> {
        let entries = self.sessions.values();
        entries.filter_map(|entry| entry.waiting.as_ref())
    }

    /// Logins that have waited too long for an old session to end, taken out. That goes on ending.
    pub(super) fn take_overdue(&mut self, mut is_overdue: impl FnMut(&W) -> bool) -> Vec<W> {
        let mut overdue = Vec::new();
        for entry in self.sessions.values_mut() {
            overdue.extend(entry.waiting.take_if(|login| is_overdue(login)));
        }
        overdue
    }

    /// A TSIH that nobody can foresee: the first that is free from a random one on.
    fn free_tsih(&mut self, random: u16) -> Tsih {
        while self.sessions.len() + self.ended.len() >= TSIHS_MAX && !self.ended.is_empty() {
            self.ended.pop_front();
        }
        let mut tsih = Tsih(random);
        // There is one: sessions and resting ones together are fewer than `TSIHS_MAX`.
        while tsih.is_none() || self.sessions.contains_key(&tsih) || self.ended.contains(&tsih) {
            tsih = Tsih(tsih.0.wrapping_add(1));
        }
        tsih
    }

    fn place(
        &mut self,
        (member, room): (Option<Member>, Option<(Shares, Arc<LunsHeld>)>),
        replaces: bool,
        random: u16,
    ) -> Placement {
        let core = self.emptiest_core();
        let (id, nexus) = self.next_names(core);
        let tsih = self.free_tsih(random);
        let key = member.as_ref().map(|member| &member.nexus);
        let seen = key.and_then(|key| self.remember(key, replaces));
        let (shares, luns_held) = room.unzip();
        if let (Some(member), Some(shares)) = (&member, &shares) {
            self.by_key.insert(member.nexus.clone(), tsih);
            shares.sessions.count();
            self.holders.insert(Holder::of(member), shares.clone());
        }
        self.sessions.insert(
            tsih,
            Entry {
                member,
                core,
                waiting: None,
                is_ending: false,
            },
        );
        Placement {
            core,
            id,
            tsih,
            nexus,
            is_return: seen.is_some(),
            was_reset: seen.is_some_and(|seen| seen.was_reset),
            reinstatements: seen.map_or(0, |seen| seen.reinstatements),
            shares,
            luns_held,
        }
    }

    /// A target was reset: every port pair of it learns that with its next login.
    pub(super) fn note_reset(&mut self, target: TargetIndex) {
        for seen in self.seen.values_mut() {
            seen.was_reset |= seen.target == target;
        }
    }

    /// What is known of the port pair, this login counted; `None` when it was not known.
    fn remember(&mut self, key: &NexusKey, replaces: bool) -> Option<Seen> {
        let pair = PortPair::of(key, &self.hashes);
        if let Some(seen) = self.seen.get_mut(&pair) {
            seen.reinstatements = seen.reinstatements.saturating_add(replaces.into());
            let was_reset = std::mem::take(&mut seen.was_reset);
            return Some(Seen { was_reset, ..*seen });
        }
        // Beyond the sessions that there are, so that each time many are removed.
        if self.seen.len() >= self.by_key.len() + SEEN_MAX {
            let pairs = self.by_key.keys();
            let pairs: HashSet<_> = pairs.map(|key| PortPair::of(key, &self.hashes)).collect();
            self.seen.retain(|pair, _| pairs.contains(pair));
        }
        let seen = Seen {
            target: key.target,
            reinstatements: 0,
            was_reset: false,
        };
        self.seen.insert(pair, seen);
        None
    }
}

#[cfg(test)]
mod tests;
