//! What is legal and most likely not meant.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;

use crate::{
    ChapAlgorithm, Group, HyperScsiGroup, HyperScsiPassword, InitiatorMatch, Model, NbdServer,
    Place, Target, Unit, UserIndex,
};

/// Something legal that an administrator should know of.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// Everyone who reaches the address can read and write.
    #[error(
        "{place}: target {target} is open without CHAP to everyone who can connect to {portal}; set auth or groups \
         in a configuration file, or listen on 127.0.0.1"
    )]
    OpenOffLoopback {
        /// The portal.
        place: Place,
        /// The target.
        target: String,
        /// The address.
        portal: String,
    },
    /// Data, and who may have it, is what anybody on the way makes of it.
    #[error(
        "{place}: clients of NBD reach {bind} without TLS, so anybody on the way reads and changes what they send; \
         {}",
        remedy_of_plain(place)
    )]
    NbdOffLoopback {
        /// The address.
        place: Place,
        /// The address.
        bind: String,
    },
    /// Nobody can be in the groups.
    #[error(
        "{place}: no client of NBD is in the groups of this section, as they have patterns of names and users alone; \
         add {remedy}"
    )]
    NbdNobody {
        /// The server.
        place: Place,
        /// What to add.
        remedy: &'static str,
    },
    /// Everyone who reaches the place can read and write.
    #[error(
        "{place}: group {group} of HyperSCSI needs no password, so everybody who reaches {at} may have its devices; \
         give it a password_file"
    )]
    HyperScsiOpen {
        /// The key that says so.
        place: Place,
        /// The group.
        group: String,
        /// Where it is.
        at: String,
    },
    /// A password in a file that others may read.
    #[error(
        "{place}: others may read the password of group {group}, as the file has mode {mode:04o}; use password_file, \
         or run chmod 600 {file}"
    )]
    PasswordExposed {
        /// The password.
        place: Place,
        /// The group.
        group: String,
        /// The configuration file.
        file: String,
        /// Its mode.
        mode: u32,
    },
    /// Only the weakest algorithm is allowed.
    #[error(
        "{place}: target {target} accepts CHAP with md5 only, which a listener can attack offline; add sha256 or \
         sha3-256"
    )]
    Md5Only {
        /// The target.
        place: Place,
        /// The target.
        target: String,
    },
    /// A name that the standard's profile does not have.
    #[error(
        "{place}: the name of target {target} has an underscore, which RFC 3722 leaves out; some initiators refuse it"
    )]
    Underscore {
        /// The target.
        place: Place,
        /// The target.
        target: String,
    },
    /// A configuration that serves nothing yet.
    #[error(
        "{place}: there is no [[target]], no [[nbd]] and no [[hyperscsi.group]]; nothing can be reached until one is \
         added"
    )]
    NoTarget {
        /// The file.
        place: Place,
    },
    /// A target that shows nothing.
    #[error("{place}: target {target} has no luns; initiators will see an empty target")]
    NoLuns {
        /// The target.
        place: Place,
        /// The target.
        target: String,
    },
    /// A unit that no target shows.
    #[error(
        "{place}: lun {id:?} is in no target, no [[nbd]] and no [[hyperscsi.group]], so nobody sees it"
    )]
    UnitUnused {
        /// The store of the unit.
        place: Place,
        /// The unit.
        id: String,
    },
    /// The image of a disc that is no disc.
    #[error(
        "{place}: {path} is served as a disk; if it is to be a disc in a CD or DVD drive, write cdrom:{path}"
    )]
    IsoAsDisk {
        /// The store of the unit.
        place: Place,
        /// The file.
        path: String,
    },
    /// A named store that no unit has.
    #[error("{place}: store {id:?} is in no lun, so it is not opened")]
    StoreUnused {
        /// The store.
        place: Place,
        /// Its name.
        id: String,
    },
    /// A user that nothing refers to.
    #[error("{place}: user {name:?} is in no auth, discovery_auth or group, so it is never used")]
    UserUnused {
        /// The secret of the user.
        place: Place,
        /// The user.
        name: String,
    },
}

/// What to do about NBD without TLS. An argument has no section.
const fn remedy_of_plain(place: &Place) -> &'static str {
    match place {
        Place::File { .. } => "give the section a certificate, or listen on 127.0.0.1",
        Place::Argument { .. } => "listen on 127.0.0.1, or at a socket",
    }
}

impl Warning {
    /// Where it is.
    fn place(&self) -> &Place {
        match self {
            Self::OpenOffLoopback { place, .. }
            | Self::NbdOffLoopback { place, .. }
            | Self::NbdNobody { place, .. }
            | Self::IsoAsDisk { place, .. }
            | Self::HyperScsiOpen { place, .. }
            | Self::PasswordExposed { place, .. }
            | Self::Md5Only { place, .. }
            | Self::Underscore { place, .. }
            | Self::NoTarget { place, .. }
            | Self::NoLuns { place, .. }
            | Self::UnitUnused { place, .. }
            | Self::StoreUnused { place, .. }
            | Self::UserUnused { place, .. } => place,
        }
    }

    /// What it says, without the line, which any edit above it moves.
    fn words(&self) -> String {
        self.to_string().replacen(&self.place().to_string(), "", 1)
    }
}

impl NbdServer {
    /// No client is in its groups, whatever it is.
    fn shuts_out(&self, model: &Model) -> Option<Warning> {
        let has_names = self.tls.as_ref().is_some_and(|tls| tls.ca.is_some());
        let may_match = |entry: &InitiatorMatch| match entry {
            InitiatorMatch::Address(_) => true,
            InitiatorMatch::Certificate(_) => has_names,
            // A client claims no name: only what matches nothing at all matches it.
            InitiatorMatch::Name(pattern) | InitiatorMatch::NameAt(pattern, _) => {
                pattern.matches("")
            }
            InitiatorMatch::User(_) => false,
        };
        let groups = self.groups.iter();
        let mut groups = groups.filter_map(|group| model.groups.get(group.position()));
        let is_open = groups.any(|group| group.initiators.iter().any(may_match));
        (!self.groups.is_empty() && !is_open).then(|| Warning::NbdNobody {
            place: self.place.clone(),
            remedy: if has_names {
                "an address, or certificate:NAME"
            } else {
                "an address, or give the section a ca and add certificate:NAME"
            },
        })
    }

    /// What is legal about it and most likely not meant.
    fn warning(&self) -> Option<Warning> {
        let address = self.at.address().filter(|_| self.tls.is_none())?;
        let is_far = !address.ip().to_canonical().is_loopback();
        is_far.then(|| Warning::NbdOffLoopback {
            place: self.place.clone(),
            bind: address.to_string(),
        })
    }
}

impl HyperScsiGroup {
    /// What is legal about it and most likely not meant.
    fn warning(&self) -> Option<Warning> {
        match &self.password {
            HyperScsiPassword::Open { place } => Some(Warning::HyperScsiOpen {
                place: place.clone(),
                group: self.name.clone(),
                at: self.at.to_string(),
            }),
            HyperScsiPassword::Written { .. } | HyperScsiPassword::File(_) => None,
        }
    }
}

impl Model {
    /// A warning for each password that stands in the configuration, if others than the owner may read `file`.
    pub fn exposed_passwords(&self, file: &Path, mode: u32) -> Vec<Warning> {
        let is_exposed = mode & 0o044 != 0;
        let groups = self.hyperscsi.iter().filter(|_| is_exposed);
        let warning = |group: &HyperScsiGroup| match &group.password {
            HyperScsiPassword::Written { place, .. } => Some(Warning::PasswordExposed {
                place: place.clone(),
                group: group.name.clone(),
                file: file.display().to_string(),
                mode,
            }),
            HyperScsiPassword::Open { .. } | HyperScsiPassword::File(_) => None,
        };
        groups.filter_map(warning).collect()
    }

    /// The warnings that the other model does not have, wherever they stand; also those of passwords in a `file` of
    /// this mode, if it is known.
    pub fn new_warnings(&self, old: &Self, file: Option<(&Path, u32)>) -> Vec<String> {
        let all = |model: &Self| {
            let exposed = file.map(|(file, mode)| model.exposed_passwords(file, mode));
            let mut all = model.warnings();
            all.extend(exposed.into_iter().flatten());
            all
        };
        let known: HashSet<String> = all(old).iter().map(Warning::words).collect();
        let all = all(self);
        let new = all
            .iter()
            .filter(|warning| !known.contains(&warning.words()));
        new.map(ToString::to_string).collect()
    }

    /// Everything that is legal and most likely not meant, in the order of the file.
    pub fn warnings(&self) -> Vec<Warning> {
        let is_empty = self.targets.is_empty() && self.nbd.is_empty() && self.hyperscsi.is_empty();
        let no_target = is_empty.then(|| Warning::NoTarget {
            place: self.place.clone(),
        });
        let of_targets = self.targets.iter().flat_map(Target::warnings);
        let of_nbd = self.nbd.iter().flat_map(|server| {
            let both = [server.warning(), server.shuts_out(self)];
            both.into_iter().flatten()
        });
        no_target
            .into_iter()
            .chain(of_targets)
            .chain(of_nbd)
            .chain(self.hyperscsi.iter().filter_map(HyperScsiGroup::warning))
            .chain(self.isos_as_disks())
            .chain(self.unused_units())
            .chain(self.unused_stores())
            .chain(self.unused_users())
            .collect()
    }

    fn isos_as_disks(&self) -> impl Iterator<Item = Warning> + '_ {
        let as_disk = |unit: &Unit| {
            let (path, _) = unit.store.at.node().filter(|_| unit.store.is_disk())?;
            let is_iso = path.extension()?.eq_ignore_ascii_case("iso");
            is_iso.then(|| Warning::IsoAsDisk {
                place: unit.place.clone(),
                path: path.display().to_string(),
            })
        };
        self.units.iter().filter_map(as_disk)
    }

    fn unused_units(&self) -> impl Iterator<Item = Warning> + '_ {
        let entries = self.targets.iter().flat_map(|target| target.luns.entries());
        let exports = self.nbd.iter().flat_map(|server| &server.luns);
        let devices = self.hyperscsi.iter().flat_map(|group| &group.devices);
        let devices = devices.map(|device| &device.unit);
        let units = entries
            .map(|entry| &entry.unit)
            .chain(exports)
            .chain(devices);
        let used: HashSet<usize> = units.map(|unit| unit.position()).collect();
        self.units
            .iter()
            .enumerate()
            .filter(move |(position, _)| !used.contains(position))
            .map(|(_, unit)| Warning::UnitUnused {
                place: unit.place.clone(),
                id: unit.to_string(),
            })
    }

    fn unused_stores(&self) -> impl Iterator<Item = Warning> + '_ {
        let members = self.units.iter().flat_map(|unit| unit.store.members());
        let used: HashSet<&str> = members.map(|one| one.id.as_str()).collect();
        let unused = self
            .stores
            .iter()
            .filter(move |one| !used.contains(one.id.as_str()));
        unused.map(|one| Warning::StoreUnused {
            place: one.place.clone(),
            id: one.id.clone(),
        })
    }

    fn unused_users(&self) -> impl Iterator<Item = Warning> + '_ {
        let auth = self.targets.iter().flat_map(|target| &target.auth);
        let users = auth.chain(&self.server.discovery_auth).copied();
        let used: HashSet<usize> = users
            .chain(self.groups.iter().flat_map(Group::users))
            .map(UserIndex::position)
            .collect();
        self.users
            .iter()
            .enumerate()
            .filter(move |(position, _)| !used.contains(position))
            .map(|(_, user)| Warning::UserUnused {
                place: user.secret.place.clone(),
                name: user.name.clone(),
            })
    }
}

impl Target {
    fn warnings(&self) -> Vec<Warning> {
        let target = self.name.to_string();
        let mut warnings = Vec::new();
        if self.is_open() {
            let off_loopback = |ip: IpAddr| !ip.to_canonical().is_loopback();
            for portal in self
                .portals
                .iter()
                .filter(|portal| off_loopback(portal.bind.ip()))
            {
                warnings.push(Warning::OpenOffLoopback {
                    place: portal.place.clone(),
                    target: target.clone(),
                    portal: portal.bind.to_string(),
                });
            }
        }
        if !self.auth.is_empty() && self.chap_algorithms == [ChapAlgorithm::Md5] {
            warnings.push(Warning::Md5Only {
                place: self.place.clone(),
                target: target.clone(),
            });
        }
        if target.contains('_') {
            warnings.push(Warning::Underscore {
                place: self.place.clone(),
                target: target.clone(),
            });
        }
        if self.luns.is_empty() {
            warnings.push(Warning::NoLuns {
                place: self.place.clone(),
                target,
            });
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn warnings(rest: &str) -> Vec<String> {
        let text = format!(
            "lun = [{{ id = \"a\", store = \"mem:1M\" }}]\n\
             user = [{{ name = \"alice\", secret_file = \"s\" }}]\n\
             group = [{{ id = \"g\", initiators = [\"alice\"] }}]\n\
             [[target]]\n\
             name = \"iqn.2026-11.example.tarn:t\"\n\
             {rest}\n"
        );
        let model = Model::from_toml(&text, Path::new("t.toml")).unwrap();
        model.warnings().iter().map(Warning::to_string).collect()
    }

    const OPEN: &str = "luns = [{ lun = 0, id = \"a\" }]";
    const GROUPED: &str = "luns = [{ lun = 0, id = \"a\", groups = [\"g\"] }]";

    #[test]
    fn a_portal_off_loopback_warns_unless_someone_guards_it() {
        let message = |portal: &str| {
            vec![format!(
                "t.toml:6: target[0].portals[0]: target iqn.2026-11.example.tarn:t is open without CHAP to everyone \
                 who can connect to {portal}; set auth or groups in a configuration file, or listen on 127.0.0.1"
            )]
        };
        for (portal, more, expected) in [
            ("127.0.0.1:3260", OPEN, vec![]),
            ("127.9.9.9:3260", OPEN, vec![]),
            ("[::1]:3260", OPEN, vec![]),
            ("[::ffff:127.0.0.1]:3260", OPEN, vec![]),
            ("0.0.0.0:3260", OPEN, message("0.0.0.0:3260")),
            ("[::]:3260", OPEN, message("[::]:3260")),
            ("192.0.2.1:3260", OPEN, message("192.0.2.1:3260")),
            ("192.0.2.1:3260", GROUPED, vec![]),
            (
                "192.0.2.1:3260",
                &format!("auth = [\"alice\"]\n{OPEN}"),
                vec![],
            ),
        ] {
            let got = warnings(&format!("portals = [\"{portal}\"]\n{more}"));
            assert_eq!(got, expected, "{portal} {more}");
        }
    }

    #[test]
    fn md5_alone_warns_and_md5_among_others_does_not() {
        let with = |algorithms: &str| {
            warnings(&format!(
                "auth = [\"alice\"]\nchap_algorithms = [{algorithms}]\n{OPEN}"
            ))
        };
        assert_eq!(with("\"md5\", \"sha256\""), Vec::<String>::new());
        assert_eq!(
            with("\"md5\""),
            [
                "t.toml:5: target[0].name: target iqn.2026-11.example.tarn:t accepts CHAP with md5 only, which a \
                 listener can attack offline; add sha256 or sha3-256"
            ]
        );
    }

    #[test]
    fn an_underscore_in_a_name_is_taken_with_a_note() {
        let text = "lun = [{ id = \"a\", store = \"mem:1M\" }]\n\
                    [[target]]\nname = \"iqn.2026-11.example.tarn:a_b\"\n\
                    luns = [{ lun = 0, id = \"a\" }]\n";
        let model = Model::from_toml(text, Path::new("t.toml")).unwrap();
        let got: Vec<_> = model.warnings().iter().map(Warning::to_string).collect();
        assert_eq!(
            got,
            [
                "t.toml:3: target[0].name: the name of target iqn.2026-11.example.tarn:a_b has an underscore, which \
                 RFC 3722 leaves out; some initiators refuse it"
            ]
        );
    }

    #[test]
    fn a_file_without_a_target_may_get_one_later() {
        let model = Model::from_toml("", Path::new("t.toml")).unwrap();
        let got: Vec<_> = model.warnings().iter().map(Warning::to_string).collect();
        assert_eq!(
            got,
            [
                "t.toml:1: there is no [[target]], no [[nbd]] and no [[hyperscsi.group]]; nothing can be reached until \
                 one is added"
            ]
        );
    }

    #[test]
    fn what_nothing_refers_to_warns() {
        let text = "lun = [{ id = \"a\", store = \"mem:1M\" }]\n\
                    user = [{ name = \"alice\", secret_file = \"s\" }]\n\
                    target = [{ name = \"iqn.2026-11.example.tarn:t\" }]\n";
        let model = Model::from_toml(text, Path::new("t.toml")).unwrap();
        let got: Vec<_> = model.warnings().iter().map(Warning::to_string).collect();
        assert_eq!(
            got,
            [
                "t.toml:3: target[0].name: target iqn.2026-11.example.tarn:t has no luns; initiators will see an \
                 empty target",
                "t.toml:1: lun[0].store: lun \"a\" is in no target, no [[nbd]] and no [[hyperscsi.group]], so nobody \
                 sees it",
                "t.toml:2: user[0].secret_file: user \"alice\" is in no auth, discovery_auth or group, so it is \
                 never used",
            ]
        );
    }
}
