//! The directory of sessions, kept by one core: who is logged in, where, and who waits for an
//! old session to end.
//!
//! Pure: it decides, its owner carries out. A leading login whose initiator port is known
//! (name, ISID and portal group) replaces the old session, and waits until that has ended on its
//! core.
//!
//! Spec: RFC 7143 sections 6.3.5 (session reinstatement) and 6.3.4 (connection reinstatement).

use std::collections::{HashMap, HashSet, VecDeque};

use iscsi::pdu::{Isid, LoginStatus, Tsih};
use scsi::NexusId;

use crate::plan::TargetIndex;

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
    /// No more sessions.
    Refuse(LoginStatus, W),
}

#[derive(Debug)]
struct Entry<W> {
    /// `None` for discovery sessions.
    key: Option<NexusKey>,
    core: usize,
    /// Set while the session is being ended to make room for these logins, of which only the
    /// last will live; each would replace the one before.
    waiting: VecDeque<W>,
}

/// All sessions. `W` is a login that waits.
#[derive(Debug)]
pub(crate) struct Directory<W> {
    sessions: HashMap<Tsih, Entry<W>>,
    by_key: HashMap<NexusKey, Tsih>,
    /// Port pairs that were logged in before; forgotten when there are too many.
    seen: HashSet<NexusKey>,
    per_core: Vec<usize>,
    sessions_max: usize,
    next_tsih: u16,
    next_nexus: u32,
}

/// How many port pairs are remembered after their session has ended.
const SEEN_MAX: usize = 16 * 1024;

impl<W> Directory<W> {
    pub(crate) fn new(cores: usize, sessions_max: usize, first_tsih: u16) -> Self {
        Self {
            sessions: HashMap::new(),
            by_key: HashMap::new(),
            seen: HashSet::new(),
            per_core: vec![0; cores],
            // TSIH has 16 bits, and zero is none.
            sessions_max: sessions_max.min(usize::from(u16::MAX) - 1),
            next_tsih: first_tsih,
            next_nexus: 0,
        }
    }

    /// The core of a session.
    pub(crate) fn core_of(&self, tsih: Tsih, key: &NexusKey) -> Result<usize, LoginStatus> {
        let entry = self
            .sessions
            .get(&tsih)
            .ok_or(LoginStatus::SessionDoesNotExist)?;
        if entry.key.as_ref() != Some(key) {
            return Err(LoginStatus::SessionDoesNotExist);
        }
        if !entry.waiting.is_empty() {
            return Err(LoginStatus::CannotIncludeInSession);
        }
        Ok(entry.core)
    }

    /// A leading login wants in. `key` is `None` for discovery.
    pub(crate) fn admit(&mut self, key: Option<NexusKey>, login: W) -> Decision<W> {
        if let Some(key) = &key
            && let Some(&tsih) = self.by_key.get(key)
            && let Some(entry) = self.sessions.get_mut(&tsih)
        {
            entry.waiting.push_back(login);
            return if entry.waiting.len() == 1 {
                Decision::EndFirst {
                    core: entry.core,
                    tsih,
                }
            } else {
                Decision::Wait
            };
        }
        if self.sessions.len() >= self.sessions_max {
            return Decision::Refuse(LoginStatus::OutOfResources, login);
        }
        Decision::Place(self.place(key), login)
    }

    /// A session has ended on its core, with all its tasks. Gives the logins that waited for
    /// that, first come first.
    pub(crate) fn ended(&mut self, tsih: Tsih) -> Option<(NexusKey, VecDeque<W>)> {
        let entry = self.sessions.remove(&tsih)?;
        if let Some(load) = self.per_core.get_mut(entry.core) {
            *load = load.saturating_sub(1);
        }
        let key = entry.key?;
        self.by_key.remove(&key);
        Some((key, entry.waiting))
    }

    fn place(&mut self, key: Option<NexusKey>) -> Placement {
        let loads = self.per_core.iter().enumerate();
        let core = loads
            .min_by_key(|(_, load)| **load)
            .map_or(0, |(core, _)| core);
        if let Some(load) = self.per_core.get_mut(core) {
            *load += 1;
        }
        while self.next_tsih == 0 || self.sessions.contains_key(&Tsih(self.next_tsih)) {
            self.next_tsih = self.next_tsih.wrapping_add(1);
        }
        let tsih = Tsih(self.next_tsih);
        self.next_tsih = self.next_tsih.wrapping_add(1);
        self.next_nexus = self.next_nexus.wrapping_add(1);
        let nexus = NexusId(self.next_nexus);
        let is_return = key.as_ref().is_some_and(|key| self.remember(key));
        if let Some(key) = &key {
            self.by_key.insert(key.clone(), tsih);
        }
        self.sessions.insert(
            tsih,
            Entry {
                key,
                core,
                waiting: VecDeque::new(),
            },
        );
        Placement {
            core,
            tsih,
            nexus,
            is_return,
        }
    }

    /// True when the port pair was known.
    fn remember(&mut self, key: &NexusKey) -> bool {
        if self.seen.len() >= SEEN_MAX && !self.seen.contains(key) {
            self.seen.clear();
        }
        !self.seen.insert(key.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(isid: u8) -> Option<NexusKey> {
        Some(NexusKey {
            initiator_name: "iqn.2026-11.example:host".to_owned(),
            isid: Isid([0, 0, 0, 0, 0, isid]),
            target: TargetIndex(0),
            portal_group_tag: 1,
        })
    }

    fn placed<W: std::fmt::Debug>(decision: Decision<W>) -> Placement {
        match decision {
            Decision::Place(placement, _) => placement,
            Decision::EndFirst { .. } | Decision::Wait | Decision::Refuse(..) => {
                panic!("{decision:?}")
            }
        }
    }

    #[test]
    fn sessions_spread_over_the_cores_and_numbers_differ() {
        let mut directory = Directory::new(2, 100, 0xffff);
        let first = placed(directory.admit(key(1), ()));
        let second = placed(directory.admit(key(2), ()));
        assert_ne!(first.core, second.core);
        assert_eq!((first.tsih, second.tsih), (Tsih(0xffff), Tsih(1)));
        assert_ne!(first.nexus, second.nexus);
    }

    #[test]
    fn a_known_port_waits_for_its_old_session_and_returns() {
        let mut directory = Directory::new(1, 100, 1);
        let old = placed(directory.admit(key(1), "old"));
        assert!(!old.is_return);
        let end = Decision::EndFirst {
            core: 0,
            tsih: old.tsih,
        };
        assert_eq!(directory.admit(key(1), "first"), end);
        assert_eq!(directory.admit(key(1), "second"), Decision::Wait);
        let key_of = key(1).unwrap();
        assert_eq!(
            directory.core_of(old.tsih, &key_of),
            Err(LoginStatus::CannotIncludeInSession)
        );
        let (ended, waiting) = directory.ended(old.tsih).unwrap();
        assert_eq!(
            (ended, waiting),
            (key_of, VecDeque::from(["first", "second"]))
        );
        assert!(placed(directory.admit(key(1), "first")).is_return);
    }

    #[test]
    fn a_session_is_joined_only_by_its_own_port() {
        let mut directory = Directory::new(1, 100, 1);
        let session = placed(directory.admit(key(1), ()));
        assert_eq!(directory.core_of(session.tsih, &key(1).unwrap()), Ok(0));
        let missing = Err(LoginStatus::SessionDoesNotExist);
        assert_eq!(directory.core_of(session.tsih, &key(2).unwrap()), missing);
        assert_eq!(directory.core_of(Tsih(9), &key(1).unwrap()), missing);
    }

    #[test]
    fn the_limit_holds_and_discovery_counts() {
        let mut directory = Directory::new(1, 2, 1);
        let discovery = placed(directory.admit(None, ()));
        placed(directory.admit(None, ()));
        let refused = Decision::Refuse(LoginStatus::OutOfResources, ());
        assert_eq!(directory.admit(key(1), ()), refused);
        assert_eq!(directory.ended(discovery.tsih), None);
        placed(directory.admit(key(1), ()));
    }
}
