//! The directory of sessions, kept by one core: who is logged in, where, and who waits for an
//! old session to end.
//!
//! Pure: it decides, its owner carries out. A leading login whose initiator port is known
//! (name, ISID and portal group) replaces the old session, and waits until that has ended on its
//! core. Whether it may, and whether a connection may join a session, is for [`Member::decide`] to
//! say.
//!
//! Spec: RFC 7143 sections 6.3.5 (session reinstatement) and 6.3.4 (connection reinstatement).

use std::collections::{HashMap, VecDeque};

use iscsi::login::{Entry as Entrance, EntryRefusal};
use iscsi::pdu::{Isid, LoginStatus, Tsih};
use scsi::NexusId;

use crate::plan::TargetIndex;
use crate::policy::Policy;
use crate::proof::Member;

/// The initiator port and target port of a session: at most one session has each.
///
/// Discovery sessions have no target and may exist any number of times.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct NexusKey {
    pub(crate) initiator_name: String,
    pub(crate) isid: Isid,
    pub(crate) target: TargetIndex,
    pub(crate) portal_group_tag: u16,
}

/// Where a new session goes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Placement {
    pub(crate) core: usize,
    pub(crate) tsih: Tsih,
    pub(crate) nexus: NexusId,
    /// This pair of ports had a session before in the life of this process.
    pub(crate) is_return: bool,
    /// A TARGET COLD RESET ended that one, or came after it.
    pub(crate) was_reset: bool,
    /// How often this pair of ports has replaced a session of its own, this time included.
    pub(crate) reinstatements: u32,
}

/// What is to be done with a leading login.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Decision<W> {
    /// Make the session.
    Place(Placement, W),
    /// End this session first; the login waits in the directory.
    EndFirst { core: usize, tsih: Tsih },
    /// The login waits for a session that is already being ended.
    Wait,
    /// No more sessions, or the one in the way is another's.
    Refuse(LoginStatus, W),
}

#[derive(Debug)]
struct Entry<W> {
    /// Who began it; `None` for discovery sessions.
    member: Option<Member>,
    core: usize,
    /// Set while the session is being ended to make room for these logins, of which only the
    /// last will live; each would replace the one before.
    waiting: VecDeque<W>,
    /// It has been asked to end, which it does whether somebody still waits or not.
    is_ending: bool,
}

/// What is known of a port pair that was logged in before.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// How often it has replaced a session of its own.
    reinstatements: u32,
    /// The target was reset since its last login.
    was_reset: bool,
}

/// All sessions. `W` is a login that waits.
#[derive(Debug)]
pub(crate) struct Directory<W> {
    sessions: HashMap<Tsih, Entry<W>>,
    by_key: HashMap<NexusKey, Tsih>,
    /// Port pairs that were logged in before. Those without a session are forgotten when there are
    /// too many.
    seen: HashMap<NexusKey, Seen>,
    per_core: Vec<usize>,
    sessions_max: usize,
    /// TSIHs of the sessions that ended last. They are not given again so soon: letters between
    /// cores may still name them.
    ended: VecDeque<Tsih>,
    next_nexus: u32,
}

/// How many port pairs are remembered after their session has ended.
const SEEN_MAX: usize = 16 * 1024;

/// How many TSIHs rest after the end of their session.
const RESTING_MAX: usize = 1024;

/// As many sessions can be told apart: TSIH has 16 bits, and zero is none.
const TSIHS_MAX: usize = u16::MAX as usize - 1;

impl<W> Directory<W> {
    pub(crate) fn new(cores: usize, sessions_max: usize) -> Self {
        Self {
            sessions: HashMap::new(),
            by_key: HashMap::new(),
            seen: HashMap::new(),
            per_core: vec![0; cores],
            sessions_max,
            ended: VecDeque::new(),
            next_nexus: 0,
        }
    }

    /// The core of the session that a newcomer wants to join, if it may.
    pub(crate) fn join(
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
    pub(crate) fn core_with(&self, tsih: Tsih) -> Option<usize> {
        self.sessions.get(&tsih).map(|entry| entry.core)
    }

    /// A leading login wants in. `member` is `None` for discovery; `random` decides what number the
    /// session gets.
    pub(crate) fn admit(
        &mut self,
        member: Option<Member>,
        login: W,
        policy: &dyn Policy,
        random: u16,
    ) -> Decision<W> {
        self.decide(member, false, login, policy, random)
    }

    /// A login wants in that waited for a session of its own ports, which has ended.
    pub(crate) fn admit_after(
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
            entry.waiting.push_back(login);
            return if !std::mem::replace(&mut entry.is_ending, true) {
                Decision::EndFirst {
                    core: entry.core,
                    tsih,
                }
            } else {
                Decision::Wait
            };
        }
        // Discovery sessions are limited by `Unproved`; they take no place of others.
        let is_full = member.is_some() && self.by_key.len() >= self.sessions_max;
        if is_full || self.sessions.len() >= TSIHS_MAX {
            return Decision::Refuse(LoginStatus::OutOfResources, login);
        }
        Decision::Place(self.place(member, replaces, random), login)
    }

    /// A session has ended on its core, with all its tasks. Gives the logins that waited for
    /// that, first come first.
    pub(crate) fn ended(&mut self, tsih: Tsih) -> VecDeque<W> {
        let Some(entry) = self.sessions.remove(&tsih) else {
            return VecDeque::new();
        };
        if self.ended.len() >= RESTING_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(tsih);
        if let Some(load) = self.per_core.get_mut(entry.core) {
            *load = load.saturating_sub(1);
        }
        if let Some(member) = &entry.member {
            self.by_key.remove(&member.nexus);
        }
        entry.waiting
    }

    /// Logins that have waited too long for an old session to end, taken out. That goes on ending.
    pub(crate) fn take_overdue(&mut self, mut is_overdue: impl FnMut(&W) -> bool) -> Vec<W> {
        let mut overdue = Vec::new();
        for entry in self.sessions.values_mut() {
            if !entry.waiting.iter().any(&mut is_overdue) {
                continue;
            }
            for login in std::mem::take(&mut entry.waiting) {
                if is_overdue(&login) {
                    overdue.push(login);
                } else {
                    entry.waiting.push_back(login);
                }
            }
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

    fn place(&mut self, member: Option<Member>, replaces: bool, random: u16) -> Placement {
        let loads = self.per_core.iter().enumerate();
        let core = loads
            .min_by_key(|(_, load)| **load)
            .map_or(0, |(core, _)| core);
        if let Some(load) = self.per_core.get_mut(core) {
            *load += 1;
        }
        let tsih = self.free_tsih(random);
        self.next_nexus = self.next_nexus.wrapping_add(1);
        let nexus = NexusId(self.next_nexus);
        let key = member.as_ref().map(|member| &member.nexus);
        let seen = key.and_then(|key| self.remember(key, replaces));
        if let Some(key) = key {
            self.by_key.insert(key.clone(), tsih);
        }
        self.sessions.insert(
            tsih,
            Entry {
                member,
                core,
                waiting: VecDeque::new(),
                is_ending: false,
            },
        );
        Placement {
            core,
            tsih,
            nexus,
            is_return: seen.is_some(),
            was_reset: seen.is_some_and(|seen| seen.was_reset),
            reinstatements: seen.unwrap_or_default().reinstatements,
        }
    }

    /// A target was reset: every port pair of it learns that with its next login.
    pub(crate) fn note_reset(&mut self, target: TargetIndex) {
        for (key, seen) in &mut self.seen {
            seen.was_reset |= key.target == target;
        }
    }

    /// What is known of the port pair, this login counted; `None` when it was not known.
    fn remember(&mut self, key: &NexusKey, replaces: bool) -> Option<Seen> {
        if let Some(seen) = self.seen.get_mut(key) {
            seen.reinstatements = seen.reinstatements.saturating_add(replaces.into());
            let was_reset = std::mem::take(&mut seen.was_reset);
            return Some(Seen { was_reset, ..*seen });
        }
        // Beyond the sessions that there are, so that each time many are forgotten.
        if self.seen.len() >= self.by_key.len() + SEEN_MAX {
            let by_key = &self.by_key;
            self.seen.retain(|seen, _| by_key.contains_key(seen));
        }
        self.seen.insert(key.clone(), Seen::default());
        None
    }
}

#[cfg(test)]
mod tests;
