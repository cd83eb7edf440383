//! Who may log in to what, and what they see there. Pure functions of the model.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::{
    ChapAlgorithm, Group, GroupIndex, InitiatorMatch, LunNumber, Model, NbdServer, Target,
    TargetIndex, TargetLun, UnitIndex, UserIndex, Viewers,
};

/// What is known of an initiator.
#[derive(Clone, Copy, Debug)]
pub struct Initiator<'a> {
    /// InitiatorName, as it was sent.
    pub name: &'a str,
    /// Where its connection comes from.
    pub address: IpAddr,
    /// The user it proved to be by CHAP.
    pub user: Option<UserIndex>,
    /// The names that its certificate proves.
    pub certificate: &'a [String],
}

/// Why an initiator may not log in.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Denial {
    /// The target wants CHAP and there was none.
    #[error("target needs CHAP and the initiator did not authenticate")]
    NotAuthenticated,
    /// The user is proved and may still not log in to this target.
    #[error("the CHAP user is not listed in auth of the target")]
    UserNotListed,
    /// The user is proved, and its names are others.
    #[error("the CHAP user may not have this initiator name")]
    NameNotOfUser,
    /// The name is a user's alone, and this is not that user.
    #[error("the initiator name is that of another CHAP user")]
    NameOfAnotherUser,
    /// None of the target's units is for this initiator.
    #[error("no LUN of the target is for this initiator")]
    NothingToSee,
    /// Two units are meant for this initiator under one number, and neither comes first.
    #[error(
        "LUN {lun} of the target is one unit for group {first} and another for group {second}, and the initiator is \
         in both"
    )]
    TwoUnits {
        /// The number.
        lun: LunNumber,
        /// A group that it is in.
        first: String,
        /// Another one.
        second: String,
    },
}

/// Whether a login uses CHAP, and who may prove to be whom.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Authentication {
    /// AuthMethod is None: no user could make a difference.
    None,
    /// An initiator may authenticate as one of these and then sees more: units are shown to
    /// groups that name users, and the target takes everyone.
    Optional(Vec<UserIndex>),
    /// An initiator must authenticate as one of these.
    Required(Vec<UserIndex>),
}

/// The units that one initiator sees in one target.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LunMap {
    /// In the order of their numbers.
    entries: Vec<LunEntry>,
}

/// A unit that an initiator sees.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LunEntry {
    /// Its number.
    pub lun: LunNumber,
    /// The unit.
    pub unit: UnitIndex,
    /// Writes are refused.
    pub read_only: bool,
}

impl LunMap {
    /// All entries, in the order of their numbers.
    pub fn entries(&self) -> &[LunEntry] {
        &self.entries
    }

    /// The entry with this number.
    pub fn find(&self, lun: LunNumber) -> Option<&LunEntry> {
        let position = self
            .entries
            .binary_search_by_key(&lun, |entry| entry.lun)
            .ok()?;
        self.entries.get(position)
    }
}

impl Model {
    /// Whether the initiator may log in to the target, and which units it sees.
    ///
    /// A target with `auth` takes only those users. A unit with `groups` is seen by members of
    /// one of them, a unit without by everyone who may log in. Under a number that several units have, each is for the
    /// members of its groups, and one without groups for all others. An initiator that would see none
    /// of a target's units may not log in; a target without any units takes everyone, so that it can be
    /// filled later.
    ///
    /// # Errors
    ///
    /// Why not. An index of another model is denied as well.
    pub fn login(&self, target: TargetIndex, initiator: &Initiator<'_>) -> Result<LunMap, Denial> {
        let target = self.targets.get(target.0).ok_or(Denial::NothingToSee)?;
        match initiator.user {
            None if !target.auth.is_empty() => return Err(Denial::NotAuthenticated),
            Some(user) if !target.auth.is_empty() && !target.auth.contains(&user) => {
                return Err(Denial::UserNotListed);
            }
            Some(_) | None => {}
        }
        let takes_users = self.takes_users(target);
        self.check_name(initiator, takes_users)?;
        let entries = self.visible(target, initiator)?;
        if entries.is_empty() && !target.luns.is_empty() {
            return Err(Denial::NothingToSee);
        }
        Ok(LunMap { entries })
    }

    /// What the initiator sees of the target.
    ///
    /// # Errors
    ///
    /// Two groups that it is in see different units under one number.
    fn visible(&self, target: &Target, initiator: &Initiator<'_>) -> Result<Vec<LunEntry>, Denial> {
        let mut entries: Vec<LunEntry> = Vec::new();
        // Where the last of them comes from.
        let mut last: Option<(Viewers, &TargetLun)> = None;
        for (key, entry) in target.luns.by_key() {
            if !self.is_viewer(key.viewers, initiator) {
                continue;
            }
            match last.filter(|(_, there)| there.lun == key.lun) {
                Some((first, there)) if key.viewers != Viewers::All => {
                    if !std::ptr::eq(there, entry) {
                        return Err(Denial::TwoUnits {
                            lun: key.lun,
                            first: self.viewers_name(first),
                            second: self.viewers_name(key.viewers),
                        });
                    }
                }
                Some(_) => {}
                None => {
                    last = Some((key.viewers, entry));
                    entries.push(LunEntry {
                        lun: key.lun,
                        unit: entry.unit,
                        read_only: entry.read_only,
                    });
                }
            }
        }
        Ok(entries)
    }

    fn viewers_name(&self, viewers: Viewers) -> String {
        match viewers {
            Viewers::Group(group) => {
                let group = self.groups.get(group.0);
                group.map_or_else(String::new, |group| group.id.clone())
            }
            Viewers::All => "*".to_owned(),
        }
    }

    /// Whether the initiator may have the name that it claims. Where nobody is asked who he is,
    /// names are no user's.
    ///
    /// # Errors
    ///
    /// Why not.
    fn check_name(&self, initiator: &Initiator<'_>, takes_users: bool) -> Result<(), Denial> {
        let name = initiator.name;
        let user = initiator
            .user
            .and_then(|user| self.users.get(user.position()));
        let is_taken = || self.users.iter().any(|user| user.owns_name(name));
        match user {
            Some(user) if !user.may_have_name(name) => Err(Denial::NameNotOfUser),
            Some(user) if user.owns_name(name) => Ok(()),
            Some(_) | None if takes_users && is_taken() => Err(Denial::NameOfAnotherUser),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether the target asks who somebody is, or may.
    fn takes_users(&self, target: &Target) -> bool {
        let groups = target.luns.groups();
        let mut groups = groups.filter_map(|group| self.groups.get(group.0));
        !target.auth.is_empty() || groups.any(|group| group.users().next().is_some())
    }

    /// The units that a client of NBD may have who is at this address, and whose certificate proves these names.
    pub fn exports(&self, server: &NbdServer, address: IpAddr, names: &[String]) -> Vec<UnitIndex> {
        // It claims no name, and proves no user.
        let client = Initiator {
            name: "",
            address,
            user: None,
            certificate: names,
        };
        let mut groups = server.groups.iter();
        let is_in = |group: &GroupIndex| self.is_viewer(Viewers::Group(*group), &client);
        if server.groups.is_empty() || groups.any(is_in) {
            server.luns.clone()
        } else {
            Vec::new()
        }
    }

    /// Whether a login to the target uses CHAP.
    pub fn authentication(&self, target: TargetIndex) -> Authentication {
        let Some(target) = self.targets.get(target.0) else {
            return Authentication::None;
        };
        if !target.auth.is_empty() {
            return Authentication::Required(target.auth.clone());
        }
        let groups = target.luns.groups();
        let mut users: Vec<_> = groups
            .filter_map(|group| self.groups.get(group.0))
            .flat_map(Group::users)
            .collect();
        users.sort_unstable();
        users.dedup();
        if users.is_empty() {
            Authentication::None
        } else {
            Authentication::Optional(users)
        }
    }

    /// The algorithms of CHAP that discovery accepts: those that some target with users accepts, so
    /// that a minimum which holds for all targets holds there, too.
    pub fn discovery_algorithms(&self) -> Vec<ChapAlgorithm> {
        let asks = |target: &&Target| self.takes_users(target);
        let accepted: BTreeSet<ChapAlgorithm> = self
            .targets
            .iter()
            .filter(asks)
            .flat_map(|target| target.chap_algorithms.iter().copied())
            .collect();
        let all = ChapAlgorithm::ALL.into_iter();
        all.filter(|one| accepted.is_empty() || accepted.contains(one))
            .collect()
    }

    /// Whether a discovery session uses CHAP.
    pub fn discovery_authentication(&self) -> Authentication {
        if self.server.discovery_auth.is_empty() {
            Authentication::None
        } else {
            Authentication::Required(self.server.discovery_auth.clone())
        }
    }

    /// Whether discovery lists the target to the initiator: exactly if it could log in.
    ///
    /// An initiator that did not authenticate for its discovery session still may for a login, and
    /// so may one that did as a user for discovery alone, whom no target and no group names. So for
    /// these every user that a login takes is tried.
    pub fn discovers(&self, target: TargetIndex, initiator: &Initiator<'_>) -> bool {
        let is_discoverer = |user: &UserIndex| self.discoverers.contains(user);
        let initiator = &Initiator {
            user: initiator.user.filter(|user| !is_discoverer(user)),
            ..*initiator
        };
        let could_be = |user| {
            let initiator = Initiator { user, ..*initiator };
            self.login(target, &initiator).is_ok()
        };
        let could_become = match self.authentication(target) {
            Authentication::None => Vec::new(),
            Authentication::Optional(users) | Authentication::Required(users) => users,
        };
        could_be(initiator.user)
            || (initiator.user.is_none()
                && could_become.into_iter().any(|user| could_be(Some(user))))
    }

    /// Those of `discovery_auth` that no target and no group names.
    pub(crate) fn users_for_discovery_alone(&self) -> BTreeSet<UserIndex> {
        let listed = self.targets.iter().flat_map(|target| &target.auth).copied();
        let grouped = self.groups.iter().flat_map(Group::users);
        let named: BTreeSet<_> = listed.chain(grouped).collect();
        let users = self.server.discovery_auth.iter().copied();
        users.filter(|user| !named.contains(user)).collect()
    }

    fn is_viewer(&self, viewers: Viewers, initiator: &Initiator<'_>) -> bool {
        match viewers {
            Viewers::Group(group) => {
                let group = self.groups.get(group.0);
                group.is_some_and(|group| group.has(initiator))
            }
            Viewers::All => true,
        }
    }
}

impl Group {
    /// Whether the initiator belongs to the group.
    pub fn has(&self, initiator: &Initiator<'_>) -> bool {
        let is_it = |entry: &InitiatorMatch| entry.is_it(initiator);
        self.initiators.iter().any(is_it) && !self.excluded.iter().any(is_it)
    }

    /// The users that belong to the group by being themselves.
    pub(crate) fn users(&self) -> impl Iterator<Item = UserIndex> + '_ {
        self.initiators.iter().filter_map(|entry| match entry {
            InitiatorMatch::User(user) => Some(*user),
            InitiatorMatch::Name(_)
            | InitiatorMatch::Address(_)
            | InitiatorMatch::NameAt(..)
            | InitiatorMatch::Certificate(_) => None,
        })
    }
}

impl InitiatorMatch {
    fn is_it(&self, initiator: &Initiator<'_>) -> bool {
        match self {
            Self::Name(pattern) => pattern.matches(initiator.name),
            Self::Address(network) => network.contains(initiator.address),
            Self::NameAt(pattern, network) => {
                pattern.matches(initiator.name) && network.contains(initiator.address)
            }
            Self::User(user) => initiator.user == Some(*user),
            Self::Certificate(pattern) => {
                let mut names = initiator.certificate.iter();
                names.any(|name| pattern.matches(name))
            }
        }
    }
}

impl Target {
    /// Whether anybody who reaches the target sees one of its units unasked.
    pub(crate) fn is_open(&self) -> bool {
        let mut keys = self.luns.by_key();
        self.auth.is_empty() && keys.any(|(key, _)| key.viewers == Viewers::All)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::TargetLuns;

    const FILE: &str = r#"
        lun = [
            { id = "open", store = "mem:1M" },
            { id = "lab", store = "mem:1M?readonly" },
            { id = "net", store = "mem:1M" },
            { id = "hers", store = "mem:1M" },
        ]
        user = [
            { name = "alice", secret_file = "a" },
            { name = "bob", secret_file = "b" },
            { name = "eve", secret_file = "e" },
            { name = "mallory", secret_file = "m", initiators = ["iqn.2001-01.example.own:*"] },
        ]
        group = [
            { id = "lab", initiators = ["iqn.2001-01.example.lab:*"] },
            { id = "net", initiators = ["192.0.2.0/24", "2001:db8::/32"] },
            { id = "hers", initiators = ["alice"] },
            { id = "there", initiators = ["iqn.2001-01.example.there:*@203.0.113.0/28"] },
        ]

        [[target]]
        name = "iqn.2026-11.example.tarn:mixed"
        luns = [
            { lun = 7, id = "hers", groups = ["hers"] },
            { lun = 0, id = "open" },
            { lun = 2, id = "net", groups = ["net", "lab"], readonly = true },
            { lun = 1, id = "lab", groups = ["lab"] },
            { lun = 4, id = "open", groups = ["there"] },
        ]

        [[target]]
        name = "iqn.2026-11.example.tarn:closed"
        auth = ["alice", "bob"]
        luns = [{ lun = 0, id = "hers", groups = ["hers"] }]

        [[target]]
        name = "iqn.2026-11.example.tarn:empty"
    "#;

    fn model() -> Model {
        Model::from_toml(FILE, Path::new("tarn.toml")).unwrap()
    }

    fn initiator<'a>(model: &Model, name: &'a str, address: &str, user: &str) -> Initiator<'a> {
        Initiator {
            name,
            address: address.parse().unwrap(),
            user: model.user_by_name(user),
            certificate: &[],
        }
    }

    const STRANGER: &str = "iqn.2001-01.example.other:x";
    const THERE: &str = "iqn.2001-01.example.There:x";
    const LAB: &str = "iqn.2001-01.Example.LAB:x";

    #[test]
    fn each_initiator_sees_what_its_groups_allow_and_no_more() {
        let model = model();
        let target = model
            .target_by_name("iqn.2026-11.example.tarn:mixed")
            .unwrap();
        for (name, address, user, luns) in [
            (STRANGER, "198.51.100.1", "", &[0][..]),
            (LAB, "198.51.100.1", "", &[0, 1, 2]),
            (STRANGER, "192.0.2.9", "", &[0, 2]),
            (STRANGER, "::ffff:192.0.2.9", "", &[0, 2]),
            (STRANGER, "2001:db8::9", "", &[0, 2]),
            (STRANGER, "198.51.100.1", "alice", &[0, 7]),
            (STRANGER, "198.51.100.1", "bob", &[0]),
            (LAB, "192.0.2.9", "alice", &[0, 1, 2, 7]),
            (THERE, "203.0.113.9", "", &[0, 4]),
            (THERE, "203.0.113.19", "", &[0]),
            (STRANGER, "203.0.113.9", "", &[0]),
        ] {
            let map = model
                .login(target, &initiator(&model, name, address, user))
                .unwrap();
            let seen: Vec<_> = map
                .entries()
                .iter()
                .map(|entry| entry.lun.value())
                .collect();
            assert_eq!(seen, luns, "{name} {address} {user}");
            assert_eq!(map.find(LunNumber(3)), None);
        }
    }

    #[test]
    fn an_exclusion_that_would_exclude_nobody_is_refused() {
        let with = |entries: &str| {
            let entry = format!("{{ id = \"lab\", initiators = [{entries}] }}");
            let lab = "{ id = \"lab\", initiators = [\"iqn.2001-01.example.lab:*\"] }";
            Model::from_toml(&FILE.replace(lab, &entry), Path::new("tarn.toml"))
        };
        for wrong in [
            "!*@[2001:db8::1]",
            "!*@10.0.0.256",
            "!*@",
            "!*@*",
            "!iqn.x@1.2.3.4/+8",
        ] {
            assert!(with(&format!("\"*\", \"{wrong}\"")).is_err(), "{wrong}");
        }
        let model = with(r#""*", "!*@::ffff:192.0.2.0/120", "!::ffff:198.51.100.1""#).unwrap();
        let target = model
            .target_by_name("iqn.2026-11.example.tarn:mixed")
            .unwrap();
        for (address, is_in) in [
            ("192.0.2.9", false),
            ("198.51.100.1", false),
            ("192.0.3.9", true),
        ] {
            let map = model
                .login(target, &initiator(&model, STRANGER, address, ""))
                .unwrap();
            assert_eq!(map.find(LunNumber(1)).is_some(), is_in, "{address}");
        }
    }

    #[test]
    fn under_one_number_each_sees_the_unit_of_its_group_and_all_others_another() {
        let mut model = model();
        let target = model
            .target_by_name("iqn.2026-11.example.tarn:mixed")
            .unwrap();
        let entry = |unit, groups: &[usize]| TargetLun {
            lun: LunNumber(0),
            unit: UnitIndex(unit),
            groups: groups.iter().copied().map(GroupIndex).collect(),
            read_only: false,
        };
        let entries = vec![entry(0, &[]), entry(3, &[2, 1]), entry(1, &[0])];
        model.targets[target.position()].luns = TargetLuns::new(entries);
        for (name, address, user, unit) in [
            (STRANGER, "198.51.100.1", "", "open"),
            (STRANGER, "198.51.100.1", "alice", "hers"),
            (STRANGER, "192.0.2.9", "", "hers"),
            (LAB, "198.51.100.1", "bob", "lab"),
            (LAB, "198.51.100.1", "alice", ""),
            (LAB, "192.0.2.9", "", ""),
        ] {
            let login = model.login(target, &initiator(&model, name, address, user));
            if unit.is_empty() {
                let second = if user.is_empty() { "net" } else { "hers" };
                let expected = Denial::TwoUnits {
                    lun: LunNumber(0),
                    first: "lab".to_owned(),
                    second: second.to_owned(),
                };
                assert_eq!(login, Err(expected), "{name} {address} {user}");
                continue;
            }
            let map = model
                .login(target, &initiator(&model, name, address, user))
                .unwrap();
            let [entry] = map.entries() else {
                panic!("{map:?}");
            };
            let seen = model.units()[entry.unit.position()].id.as_deref();
            assert_eq!(seen, Some(unit), "{name} {address} {user}");
        }
    }

    #[test]
    fn who_is_excluded_is_in_no_group_whatever_else_matches() {
        let text = FILE.replace(
            "[\"iqn.2001-01.example.lab:*\"]",
            "[\"!iqn.2001-01.example.LAB:b*\", \"iqn.2001-01.example.lab:*\", \"!192.0.2.0/24\", \"alice\"]",
        );
        let model = Model::from_toml(&text, Path::new("tarn.toml")).unwrap();
        let lab = &model.groups()[0];
        for (name, address, user, is_in) in [
            (LAB, "198.51.100.1", "", true),
            ("iqn.2001-01.example.lab:bad", "198.51.100.1", "", false),
            (
                "IQN.2001-01.example.lab:BAD",
                "198.51.100.1",
                "alice",
                false,
            ),
            (LAB, "192.0.2.1", "", false),
            (LAB, "::ffff:192.0.2.1", "", false),
            (STRANGER, "198.51.100.1", "alice", true),
            (STRANGER, "198.51.100.1", "", false),
        ] {
            let initiator = initiator(&model, name, address, user);
            assert_eq!(lab.has(&initiator), is_in, "{name} {address} {user}");
        }
        let effective = model.effective();
        let again = Model::from_toml(&effective, Path::new("tarn.toml")).unwrap();
        assert_eq!(again.groups()[0], *lab);
        assert!(crate::diff(&model, &again).groups.is_empty());
    }

    #[test]
    fn writes_are_refused_by_the_store_or_by_the_entry() {
        let model = model();
        let target = model
            .target_by_name("iqn.2026-11.example.tarn:mixed")
            .unwrap();
        let map = model
            .login(target, &initiator(&model, LAB, "192.0.2.9", "alice"))
            .unwrap();
        let read_only: Vec<_> = map.entries().iter().map(|entry| entry.read_only).collect();
        assert_eq!(read_only, [false, true, true, false]);
        let entry = map.find(LunNumber(7)).unwrap();
        assert_eq!(
            model.units()[entry.unit.position()].id.as_deref(),
            Some("hers")
        );
    }

    #[test]
    fn a_target_with_users_takes_only_those_and_only_if_they_see_something() {
        let model = model();
        let target = model
            .target_by_name("iqn.2026-11.example.tarn:closed")
            .unwrap();
        for (user, expected) in [
            ("", Err(Denial::NotAuthenticated)),
            ("eve", Err(Denial::UserNotListed)),
            ("bob", Err(Denial::NothingToSee)),
            ("alice", Ok(1)),
        ] {
            let got = model
                .login(target, &initiator(&model, LAB, "192.0.2.9", user))
                .map(|map| map.entries().len());
            assert_eq!(got, expected, "{user}");
        }
    }

    /// A name that a user lists is that user's wherever a target takes users, and it has no other.
    #[test]
    fn a_user_is_bound_to_its_names_and_they_to_the_user() {
        const OWN: &str = "iqn.2001-01.example.OWN:x";
        let model = model();
        let other = || Err(Denial::NameOfAnotherUser);
        for (target, name, user, expected) in [
            ("mixed", OWN, "mallory", Ok(1)),
            ("mixed", STRANGER, "mallory", Err(Denial::NameNotOfUser)),
            ("mixed", OWN, "", other()),
            ("mixed", OWN, "alice", other()),
            ("mixed", STRANGER, "alice", Ok(2)),
            ("closed", OWN, "alice", other()),
            // Nobody is asked there who he is.
            ("empty", OWN, "", Ok(0)),
            ("empty", STRANGER, "mallory", Err(Denial::NameNotOfUser)),
        ] {
            let index = model.target_by_name(&format!("iqn.2026-11.example.tarn:{target}"));
            let initiator = initiator(&model, name, "198.51.100.1", user);
            let got = model.login(index.unwrap(), &initiator);
            let got = got.map(|map| map.entries().len());
            assert_eq!(got, expected, "{name} as {user:?} at {target}");
        }
    }

    #[test]
    fn chap_is_required_optional_or_pointless() {
        let model = model();
        let user = |name| model.user_by_name(name).unwrap();
        for (target, expected) in [
            ("mixed", Authentication::Optional(vec![user("alice")])),
            (
                "closed",
                Authentication::Required(vec![user("alice"), user("bob")]),
            ),
            ("empty", Authentication::None),
        ] {
            let name = format!("iqn.2026-11.example.tarn:{target}");
            let target = model.target_by_name(&name).unwrap();
            assert_eq!(model.authentication(target), expected, "{name}");
        }
        assert_eq!(model.discovery_authentication(), Authentication::None);
    }

    #[test]
    fn a_minimum_of_all_targets_holds_for_discovery() {
        use ChapAlgorithm::{Md5, Sha3_256, Sha256};

        let target = |name: &str, rest: &str| {
            format!("[[target]]\nname = \"iqn.2026-11.example:{name}\"\n{rest}\n")
        };
        let chap = |words: &str| format!("auth = [\"alice\"]\nchap_algorithms = [{words}]");
        let (strong, legacy) = (chap("\"sha256\", \"sha3-256\""), chap("\"md5\""));
        for (targets, expected) in [
            (vec![strong.clone()], vec![Sha3_256, Sha256]),
            (vec![strong.clone(), String::new()], vec![Sha3_256, Sha256]),
            (vec![strong, legacy], vec![Sha3_256, Sha256, Md5]),
            (vec![String::new()], ChapAlgorithm::ALL.to_vec()),
        ] {
            let mut text = "user = [{ name = \"alice\", secret_file = \"a\" }]\n".to_owned();
            for (n, rest) in targets.iter().enumerate() {
                text += &target(&format!("t{n}"), rest);
            }
            let model = Model::from_toml(&text, Path::new("tarn.toml")).unwrap();
            assert_eq!(model.discovery_algorithms(), expected, "{text}");
        }
    }

    #[test]
    fn a_target_without_units_takes_everyone() {
        let model = model();
        let target = model
            .target_by_name("iqn.2026-11.example.tarn:empty")
            .unwrap();
        let map = model.login(target, &initiator(&model, STRANGER, "::1", ""));
        assert_eq!(map, Ok(LunMap::default()));
    }

    /// Alice has two purposes, and eve is for discovery alone.
    #[test]
    fn a_user_for_discovery_alone_is_shown_what_others_could_reach() {
        let text = format!("{FILE}\n[server]\ndiscovery_auth = [\"alice\", \"eve\"]\n");
        let model = Model::from_toml(&text, Path::new("tarn.toml")).unwrap();
        let closed = model.target_by_name("iqn.2026-11.example.tarn:closed");
        for (user, is_shown) in [("eve", true), ("", true), ("alice", true), ("bob", false)] {
            let initiator = initiator(&model, STRANGER, "198.51.100.1", user);
            assert_eq!(
                model.discovers(closed.unwrap(), &initiator),
                is_shown,
                "{user}"
            );
        }
        let eve = initiator(&model, STRANGER, "198.51.100.1", "eve");
        assert!(model.login(closed.unwrap(), &eve).is_err());
    }

    #[test]
    fn discovery_lists_what_a_login_could_reach() {
        let model = model();
        for (name, user, listed) in [
            (STRANGER, "", &["mixed", "closed", "empty"][..]),
            (STRANGER, "alice", &["mixed", "closed", "empty"]),
            (STRANGER, "bob", &["mixed", "empty"]),
            (STRANGER, "eve", &["mixed", "empty"]),
        ] {
            let initiator = initiator(&model, name, "198.51.100.1", user);
            let got: Vec<_> = model
                .target_indices()
                .filter(|&target| model.discovers(target, &initiator))
                .map(|target| model.targets()[target.position()].name.as_str())
                .map(|name| name.trim_start_matches("iqn.2026-11.example.tarn:"))
                .collect();
            assert_eq!(got, listed, "{user}");
        }
    }
}
