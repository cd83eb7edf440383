//! Several units under one number of a target: each is for the members of its groups, and for nobody twice.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::net::IpAddr;

use crate::error::Broken as _;
use crate::value::quoted;
use crate::{
    Cidr, ConfigError, Group, GroupIndex, InitiatorMatch, LunNumber, NamePattern, Place, Rule,
    TargetLun, Viewers,
};

/// Two units that somebody would see under one number.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum ViewRule {
    /// Two units for one group under one number.
    #[error(
        "group {group:?} already sees another unit as LUN {lun}, at {first}; take another number, or other groups"
    )]
    Twice {
        /// The number.
        lun: LunNumber,
        /// The group.
        group: String,
        /// The other entry.
        first: Place,
    },
    /// Two groups that see different units under one number, and an initiator that is in both.
    #[error(
        "LUN {lun} is one unit for group {other:?} (at {first}) and another for group {this:?}, and {who} is in both; \
         take it out of one of them (an entry with ! excludes), or take another number"
    )]
    Overlap {
        /// The number.
        lun: LunNumber,
        /// The group of this entry.
        this: String,
        /// The group of the other.
        other: String,
        /// Who is in both.
        who: String,
        /// The other entry.
        first: Place,
    },
}

/// Finds initiators to which one number would be two units.
///
/// It refuses what is certain, and names the initiator. From which address a name comes, and which user has it, is
/// known at the login; there such an initiator is refused ([`Denial::TwoUnits`](crate::Denial)).
pub(crate) struct ViewCheck<'a> {
    groups: &'a [Group],
    /// Which groups see another unit than which, as it was found good: often the same for many numbers.
    good: HashSet<Vec<(usize, GroupIndex)>>,
}

impl<'a> ViewCheck<'a> {
    pub(crate) fn new(groups: &'a [Group]) -> Self {
        Self {
            groups,
            good: HashSet::new(),
        }
    }

    /// The units of one target, and where their numbers are.
    pub(crate) fn check(
        &mut self,
        luns: &[TargetLun],
        places: &[Place],
    ) -> Result<(), ConfigError> {
        let mut by_number: BTreeMap<LunNumber, Vec<(&TargetLun, &Place)>> = BTreeMap::new();
        for (lun, place) in luns.iter().zip(places) {
            by_number.entry(lun.lun).or_default().push((lun, place));
        }
        let shared = by_number.values().filter(|entries| entries.len() > 1);
        for entries in shared {
            self.check_keys(entries)?;
            self.check_members(entries)?;
        }
        Ok(())
    }

    fn check_keys(&self, entries: &[(&TargetLun, &Place)]) -> Result<(), ConfigError> {
        let mut first_use: BTreeMap<Viewers, &Place> = BTreeMap::new();
        for (entry, place) in entries {
            for key in entry.keys() {
                let Some(first) = first_use.insert(key.viewers, place) else {
                    continue;
                };
                let (lun, first) = (key.lun, first.clone());
                let place = (*place).clone();
                return Err(match key.viewers {
                    Viewers::All => Rule::Twice {
                        what: "lun",
                        name: lun.to_string(),
                        first,
                    }
                    .at(place),
                    Viewers::Group(group) => ViewRule::Twice {
                        lun,
                        group: self.id(group),
                        first,
                    }
                    .at(place),
                });
            }
        }
        Ok(())
    }

    fn check_members(&mut self, entries: &[(&TargetLun, &Place)]) -> Result<(), ConfigError> {
        let all = entries.iter().enumerate();
        let all = all.flat_map(|(at, (entry, _))| entry.groups.iter().map(move |one| (at, *one)));
        let views: Vec<(usize, GroupIndex)> = all.collect();
        if self.good.contains(&views) {
            return Ok(());
        }
        if let Some((first, second, who)) = self.shared(&views) {
            let place = |at: usize| entries.get(at).map(|(_, place)| (*place).clone());
            let lun = entries.first().map(|(entry, _)| entry.lun);
            if let (Some(lun), Some(place), Some(first_place)) =
                (lun, place(second.0), place(first.0))
            {
                let (this, other) = (self.id(second.1), self.id(first.1));
                let who = who.to_string();
                let first = first_place;
                return Err(ViewRule::Overlap {
                    lun,
                    this,
                    other,
                    who,
                    first,
                }
                .at(place));
            }
        }
        self.good.insert(views);
        Ok(())
    }

    /// Two groups of different entries, and who is in both.
    fn shared(&self, views: &[(usize, GroupIndex)]) -> Option<(View, View, Who)> {
        // Names are most of what groups have, and are compared by a table.
        let mut names: BTreeMap<&str, View> = BTreeMap::new();
        for &(entry, group) in views {
            for pattern in self.group(group)?.names().filter(|one| one.is_name()) {
                let name = pattern.as_str();
                let first = names
                    .insert(name, (entry, group))
                    .filter(|first| first.0 != entry);
                let Some(first) = first else { continue };
                if let Some(who) = self.common_name(first.1, group, name) {
                    return Some((first, (entry, group), who));
                }
            }
        }
        for (at, &second) in views.iter().enumerate() {
            let has_pattern = |view: &View| self.group(view.1).is_some_and(Group::is_open_ended);
            for &first in views.iter().take(at).filter(|first| first.0 != second.0) {
                if has_pattern(&first) || has_pattern(&second) {
                    let groups = self.group(first.1).zip(self.group(second.1));
                    if let Some(who) = groups.and_then(|(one, two)| one.shares(two)) {
                        return Some((first, second, who));
                    }
                }
            }
        }
        None
    }

    fn common_name(&self, one: GroupIndex, two: GroupIndex, name: &str) -> Option<Who> {
        let is_out = |group| {
            self.group(group)
                .is_none_or(|group| group.excludes_name(name))
        };
        (!is_out(one) && !is_out(two)).then(|| Who::Name(name.to_owned()))
    }

    fn group(&self, group: GroupIndex) -> Option<&'a Group> {
        self.groups.get(group.position())
    }

    fn id(&self, group: GroupIndex) -> String {
        let group = self.group(group);
        group.map_or_else(String::new, |group| group.id.clone())
    }
}

/// A group, and the entry whose unit it sees.
type View = (usize, GroupIndex);

/// Who is in two groups.
enum Who {
    /// The initiator of this name.
    Name(String),
    /// Initiators of names that both patterns match.
    Patterns(String, String),
    /// An initiator at this address.
    Address(IpAddr),
    /// An initiator of such a name at this address.
    NameAt(String, IpAddr),
    /// Someone who is the same in both.
    Same(&'static str),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "initiator {}", quoted(name)),
            Self::Patterns(one, two) if one == two => write!(f, "initiator {}", quoted(one)),
            Self::Patterns(one, two) => write!(
                f,
                "an initiator whose name matches {} and {}",
                quoted(one),
                quoted(two)
            ),
            Self::Address(address) => write!(f, "an initiator at {address}"),
            Self::NameAt(name, address) => {
                write!(f, "initiator {} at {address}", quoted(name))
            }
            Self::Same(what) => f.write_str(what),
        }
    }
}

impl NamePattern {
    /// It matches one name alone.
    fn is_name(&self) -> bool {
        !self.as_str().contains(['*', '?'])
    }
}

impl Group {
    fn names(&self) -> impl Iterator<Item = &NamePattern> {
        self.initiators.iter().filter_map(|entry| {
            let InitiatorMatch::Name(pattern) = entry else {
                return None;
            };
            Some(pattern)
        })
    }

    /// Other entries than names of one initiator.
    fn is_open_ended(&self) -> bool {
        let is_one = |entry: &InitiatorMatch| matches!(entry, InitiatorMatch::Name(pattern) if pattern.is_name());
        !self.initiators.iter().all(is_one)
    }

    fn excludes_name(&self, name: &str) -> bool {
        let mut excluded = self.excluded.iter();
        excluded
            .any(|entry| matches!(entry, InitiatorMatch::Name(pattern) if pattern.matches(name)))
    }

    fn excludes_address(&self, address: IpAddr) -> bool {
        let mut excluded = self.excluded.iter();
        excluded.any(|entry| match entry {
            InitiatorMatch::Address(network) => network.contains(address),
            InitiatorMatch::NameAt(pattern, network) => {
                pattern.as_str() == "*" && network.contains(address)
            }
            InitiatorMatch::Name(_) | InitiatorMatch::User(_) | InitiatorMatch::Certificate(_) => {
                false
            }
        })
    }

    fn excludes_name_at(&self, name: &str, address: IpAddr) -> bool {
        let mut excluded = self.excluded.iter();
        self.excludes_name(name)
            || self.excludes_address(address)
            || excluded.any(|entry| {
                matches!(entry, InitiatorMatch::NameAt(pattern, network)
                    if pattern.matches(name) && network.contains(address))
            })
    }

    /// An initiator whose name matches both patterns, at an address of both networks, if neither group takes it out.
    fn shares_name_at(
        &self,
        other: &Self,
        names: (&NamePattern, &NamePattern),
        networks: (&Cidr, &Cidr),
    ) -> Option<Who> {
        let name = names.0.common(names.1)?;
        let address = networks.0.common(networks.1)?;
        let is_out = [self, other]
            .iter()
            .any(|group| group.excludes_name_at(&name, address));
        (!is_out).then_some(Who::NameAt(name, address))
    }

    /// Who is in both groups, where that is certain.
    fn shares(&self, other: &Self) -> Option<Who> {
        let pairs = self.initiators.iter();
        let mut pairs = pairs.flat_map(|one| other.initiators.iter().map(move |two| (one, two)));
        pairs.find_map(|(one, two)| match (one, two) {
            (InitiatorMatch::Name(one), InitiatorMatch::Name(two)) => {
                let name = one.common(two)?;
                let is_in = !self.excludes_name(&name) && !other.excludes_name(&name);
                is_in.then(|| match one.is_name() || two.is_name() {
                    true => Who::Name(name),
                    false => Who::Patterns(one.to_string(), two.to_string()),
                })
            }
            (InitiatorMatch::Address(one), InitiatorMatch::Address(two)) => {
                let address = one.common(two)?;
                let is_in = !self.excludes_address(address) && !other.excludes_address(address);
                is_in.then_some(Who::Address(address))
            }
            (InitiatorMatch::User(one), InitiatorMatch::User(two)) => {
                (one == two).then_some(Who::Same("a user that both name"))
            }
            (InitiatorMatch::NameAt(one, at), InitiatorMatch::NameAt(two, other_at)) => {
                self.shares_name_at(other, (one, two), (at, other_at))
            }
            (InitiatorMatch::NameAt(one, at), InitiatorMatch::Name(two))
            | (InitiatorMatch::Name(two), InitiatorMatch::NameAt(one, at)) => {
                self.shares_name_at(other, (one, two), (at, at))
            }
            (InitiatorMatch::NameAt(one, at), InitiatorMatch::Address(two))
            | (InitiatorMatch::Address(two), InitiatorMatch::NameAt(one, at)) => {
                self.shares_name_at(other, (one, one), (at, two))
            }
            // Certificates are those of clients of NBD, who see no numbers.
            (
                InitiatorMatch::Name(_)
                | InitiatorMatch::Address(_)
                | InitiatorMatch::NameAt(..)
                | InitiatorMatch::User(_)
                | InitiatorMatch::Certificate(_),
                _,
            ) => None,
        })
    }
}

#[cfg(test)]
mod tests;
