//! The numbers of the target ports, which persistent reservations name them by.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

/// A target port: folded name of its target, and target portal group tag.
pub(crate) type PortName = (String, u16);

/// The relative target port identifiers that were given, the oldest first.
///
/// Spec: SPC-5, relative target port identifier: 1 to 65,535.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub(super) struct Ports(Vec<Port>);

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Port {
    target: String,
    group: u16,
    relative_id: NonZeroU16,
}

/// There are more ports than numbers.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Exhausted;

impl Port {
    fn name(&self) -> PortName {
        (self.target.clone(), self.group)
    }
}

impl Ports {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of each port; one that has none gets the next. The number of a port that is gone
    /// is kept for it, until there is no other left: then the one that was given first goes to
    /// another.
    pub(super) fn number(
        &mut self,
        present: &BTreeSet<PortName>,
    ) -> Result<BTreeMap<PortName, u16>, Exhausted> {
        let known = self.0.iter();
        let mut numbers: BTreeMap<_, _> = known
            .map(|port| (port.name(), port.relative_id.get()))
            .filter(|(name, _)| present.contains(name))
            .collect();
        let mut last = self.0.iter().map(|port| port.relative_id).max();
        for name in present {
            if numbers.contains_key(name) {
                continue;
            }
            let next = last.map_or(Some(NonZeroU16::MIN), |last| last.checked_add(1));
            let relative_id = match next {
                Some(next) => next,
                None => self.take_back(present)?,
            };
            last = last.max(next);
            numbers.insert(name.clone(), relative_id.get());
            let (target, group) = name.clone();
            self.0.push(Port {
                target,
                group,
                relative_id,
            });
        }
        Ok(numbers)
    }

    /// The names of ports that have these numbers.
    pub(super) fn names(&self, numbers: &BTreeSet<u16>) -> BTreeMap<u16, PortName> {
        let known = self
            .0
            .iter()
            .map(|port| (port.relative_id.get(), port.name()));
        known
            .filter(|(number, _)| numbers.contains(number))
            .collect()
    }

    /// The number of the port that was numbered first of those that are gone.
    fn take_back(&mut self, present: &BTreeSet<PortName>) -> Result<NonZeroU16, Exhausted> {
        let is_gone = |port: &Port| !present.contains(&port.name());
        let oldest = self.0.iter().position(is_gone).ok_or(Exhausted)?;
        Ok(self.0.remove(oldest).relative_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(targets: impl IntoIterator<Item = u32>) -> BTreeSet<PortName> {
        let name = |number: u32| (format!("iqn.2026-11.example.tarn:{number}"), 1);
        targets.into_iter().map(name).collect()
    }

    fn numbers(ports: &mut Ports, targets: impl IntoIterator<Item = u32>) -> Vec<u16> {
        let numbers = ports.number(&names(targets)).unwrap();
        numbers.into_values().collect()
    }

    #[test]
    fn a_port_keeps_its_number_and_one_that_is_gone_keeps_it_too() {
        let mut ports = Ports::default();
        assert_eq!(numbers(&mut ports, [3, 5]), [1, 2]);
        assert_eq!(numbers(&mut ports, [1, 5]), [3, 2]);
        assert_eq!(numbers(&mut ports, [1, 3, 4]), [3, 1, 4]);
        let known = ports.names(&BTreeSet::from([2, 3, 9]));
        assert_eq!(known.into_values().collect::<BTreeSet<_>>(), names([1, 5]));
    }

    #[test]
    fn the_portal_groups_of_a_target_are_ports_of_their_own() {
        let mut ports = Ports::default();
        let target = "iqn.2026-11.example.tarn:t".to_owned();
        let present = BTreeSet::from([(target.clone(), 1), (target.clone(), 7)]);
        let numbers = ports.number(&present).unwrap();
        assert_eq!(numbers[&(target.clone(), 1)], 1);
        assert_eq!(numbers[&(target, 7)], 2);
    }

    #[test]
    fn when_all_numbers_were_given_those_of_ports_that_are_gone_are_given_again() {
        let mut ports = Ports::default();
        let all = u32::from(u16::MAX);
        let numbers_of_all = numbers(&mut ports, 0..all);
        assert_eq!(numbers_of_all.len(), usize::from(u16::MAX));
        let gone = numbers(&mut ports, [0, 1]);
        let present = (2..all).chain([all, all + 1]);
        let again = ports.number(&names(present)).unwrap();
        let distinct: BTreeSet<_> = again.values().collect();
        assert_eq!(distinct.len(), usize::from(u16::MAX));
        for (number, gone) in [all, all + 1].into_iter().zip(gone) {
            let [name] = &names([number]).into_iter().collect::<Vec<_>>()[..] else {
                unreachable!()
            };
            assert_eq!(again[name], gone);
        }
        assert_eq!(ports.number(&names(0..=all)), Err(Exhausted));
    }
}
