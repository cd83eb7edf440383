//! The directory of sessions, kept by one core: who is logged in, where, and who waits for an
//! old session to end.
//!
//! Pure: it decides, its owner carries out. A leading login whose initiator port is known
//! (name, ISID and portal group) replaces the old session, and waits until that has ended on its
//! core.
//!
//! Spec: RFC 7143 sections 6.3.5 (session reinstatement) and 6.3.4 (connection reinstatement).

use std::collections::{HashMap, VecDeque};

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
    /// Port pairs that were logged in before, each with how often it has replaced a session of its
    /// own. Those without a session are forgotten when there are too many.
    seen: HashMap<NexusKey, u32>,
    per_core: Vec<usize>,
    sessions_max: usize,
    next_tsih: u16,
    next_nexus: u32,
}

/// TSIH has 16 bits, and zero is none.
const TSIH_COUNT: usize = u16::MAX as usize - 1;

/// How many port pairs are remembered after their session has ended.
const SEEN_MAX: usize = 16 * 1024;

impl<W> Directory<W> {
    pub(crate) fn new(cores: usize, sessions_max: usize, first_tsih: u16) -> Self {
        Self {
            sessions: HashMap::new(),
            by_key: HashMap::new(),
            seen: HashMap::new(),
            per_core: vec![0; cores],
            sessions_max,
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

    /// The core a session is on.
    pub(crate) fn core_with(&self, tsih: Tsih) -> Option<usize> {
        self.sessions.get(&tsih).map(|entry| entry.core)
    }

    /// A leading login wants in. `key` is `None` for discovery.
    pub(crate) fn admit(&mut self, key: Option<NexusKey>, login: W) -> Decision<W> {
        self.decide(key, false, login)
    }

    /// A login wants in that waited for a session of its own ports, which has ended.
    pub(crate) fn admit_after(&mut self, key: NexusKey, login: W) -> Decision<W> {
        self.decide(Some(key), true, login)
    }

    fn decide(&mut self, key: Option<NexusKey>, replaces: bool, login: W) -> Decision<W> {
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
        // Discovery sessions are limited by `Unproved`; they take no place of others.
        let is_full = key.is_some() && self.by_key.len() >= self.sessions_max;
        if is_full || self.sessions.len() >= TSIH_COUNT {
            return Decision::Refuse(LoginStatus::OutOfResources, login);
        }
        Decision::Place(self.place(key, replaces), login)
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

    fn place(&mut self, key: Option<NexusKey>, replaces: bool) -> Placement {
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
        let seen = key.as_ref().and_then(|key| self.remember(key, replaces));
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
            is_return: seen.is_some(),
            reinstatements: seen.unwrap_or_default(),
        }
    }

    /// How often the port pair has replaced a session of its own; `None` when it was not known.
    fn remember(&mut self, key: &NexusKey, replaces: bool) -> Option<u32> {
        if let Some(reinstatements) = self.seen.get_mut(key) {
            *reinstatements = reinstatements.saturating_add(replaces.into());
            return Some(*reinstatements);
        }
        // Beyond the sessions that there are, so that each time many are forgotten.
        if self.seen.len() >= self.by_key.len() + SEEN_MAX {
            let by_key = &self.by_key;
            self.seen.retain(|seen, _| by_key.contains_key(seen));
        }
        self.seen.insert(key.clone(), 0);
        None
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
        assert!(placed(directory.admit_after(key(1).unwrap(), "first")).is_return);
    }

    /// Of two logins that waited the second replaces the first, as soon as that is there.
    #[test]
    fn each_session_of_a_port_that_is_replaced_is_counted() {
        let mut directory = Directory::new(1, 100, 1);
        let known = || key(1).unwrap();
        let old = placed(directory.admit(key(1), ()));
        assert_eq!(old.reinstatements, 0);
        directory.admit(key(1), ());
        directory.admit(key(1), ());
        assert_eq!(directory.ended(old.tsih).unwrap().1.len(), 2);
        let first = placed(directory.admit_after(known(), ()));
        assert_eq!(first.reinstatements, 1);
        let end = Decision::EndFirst {
            core: 0,
            tsih: first.tsih,
        };
        assert_eq!(directory.admit_after(known(), ()), end);
        assert_eq!(directory.ended(first.tsih).unwrap().1.len(), 1);
        let second = placed(directory.admit_after(known(), ()));
        assert_eq!(second.reinstatements, 2);
        // A session that ended by itself was not replaced; the port is still the same.
        assert_eq!(directory.ended(second.tsih).unwrap().1.len(), 0);
        let third = placed(directory.admit(key(1), ()));
        assert_eq!((third.is_return, third.reinstatements), (true, 2));
    }

    #[test]
    fn ports_without_a_session_are_forgotten_when_they_are_too_many() {
        let mut directory = Directory::new(1, 100, 1);
        let kept = placed(directory.admit(key(1), ()));
        directory.admit(key(1), ());
        directory.ended(kept.tsih);
        placed(directory.admit_after(key(1).unwrap(), ()));
        let guest = |number: usize| {
            let initiator_name = format!("iqn.2026-11.example:{number}");
            let key = key(2).unwrap();
            Some(NexusKey {
                initiator_name,
                ..key
            })
        };
        for number in 0..SEEN_MAX + 2 {
            let placement = placed(directory.admit(guest(number), ()));
            assert!(!placement.is_return, "{number}");
            directory.ended(placement.tsih);
        }
        assert_eq!(directory.seen.len(), 3);
        assert_eq!(directory.seen.get(&key(1).unwrap()), Some(&1));
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
    fn the_limit_holds_and_discovery_takes_no_place() {
        let mut directory = Directory::new(1, 2, 1);
        for _ in 0..3 {
            placed(directory.admit(None, ()));
        }
        let first = placed(directory.admit(key(1), ()));
        placed(directory.admit(key(2), ()));
        let refused = Decision::Refuse(LoginStatus::OutOfResources, ());
        assert_eq!(directory.admit(key(3), ()), refused);
        assert!(directory.ended(first.tsih).is_some());
        placed(directory.admit(key(3), ()));
    }
}
