//! Names of places in the tree. Knows no daemon: a place may be there or not.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// What a file name cannot have, what would print badly, and what encodes them.
const ENCODED: &AsciiSet = &CONTROLS.add(b'/').add(b'%');

/// Bytes of a file name, by the kernel's limit.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// A directory. Things are named as the daemon names them.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Directory {
    /// The mount point.
    Root,
    /// All units.
    Luns,
    /// The unit of this id.
    Lun(String),
    /// What was counted at the unit of this id.
    LunStats(String),
    /// The snapshots of the unit of this id.
    LunSnapshots(String),
    /// The snapshot of the unit of this id that has this name.
    LunSnapshot(String, String),
    /// All targets.
    Targets,
    /// The target of this name.
    Target(String),
    /// The units that the target of this name shows.
    TargetLuns(String),
    /// The sessions of the target of this name.
    TargetSessions(String),
    /// All sessions.
    Sessions,
    /// The session of this id.
    Session(u64),
    /// What was counted for the initiator of the session of this id.
    SessionStats(u64),
    /// All groups of initiators.
    Groups,
    /// The group of this id.
    Group(String),
    /// All CHAP users.
    Users,
    /// The CHAP user of this name.
    User(String),
    /// All named stores.
    Stores,
    /// The named store of this id.
    Store(String),
    /// All servers of NBD.
    NbdServers,
    /// The server of NBD at this place.
    NbdServer(String),
    /// All quotas.
    Quotas,
    /// The quota of this name.
    Quota(String),
    /// All groups of HyperSCSI.
    Hyperscsi,
    /// The group of HyperSCSI that is known as this.
    HyperscsiGroup(String),
    /// The sessions of that group.
    HyperscsiSessions(String),
}

impl Directory {
    /// The directory it is in; the root is in itself.
    pub(crate) fn parent(&self) -> Self {
        match self {
            Self::Root
            | Self::Luns
            | Self::Targets
            | Self::Sessions
            | Self::Groups
            | Self::Users
            | Self::Stores
            | Self::NbdServers
            | Self::Quotas
            | Self::Hyperscsi => Self::Root,
            Self::Lun(_) => Self::Luns,
            Self::LunStats(id) | Self::LunSnapshots(id) => Self::Lun(id.clone()),
            Self::LunSnapshot(id, _) => Self::LunSnapshots(id.clone()),
            Self::Target(_) => Self::Targets,
            Self::TargetLuns(name) | Self::TargetSessions(name) => Self::Target(name.clone()),
            Self::Session(_) => Self::Sessions,
            Self::SessionStats(id) => Self::Session(*id),
            Self::Group(_) => Self::Groups,
            Self::User(_) => Self::Users,
            Self::Store(_) => Self::Stores,
            Self::NbdServer(_) => Self::NbdServers,
            Self::Quota(_) => Self::Quotas,
            Self::HyperscsiGroup(_) => Self::Hyperscsi,
            Self::HyperscsiSessions(name) => Self::HyperscsiGroup(name.clone()),
        }
    }

    /// Its path from the mount point, for messages; empty for the root.
    fn path(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Luns => "luns".to_owned(),
            Self::Lun(id) => format!("luns/{}", encoded(id)),
            Self::LunStats(id) => format!("luns/{}/stats", encoded(id)),
            Self::LunSnapshots(id) => format!("luns/{}/snapshots", encoded(id)),
            Self::LunSnapshot(id, name) => {
                format!("luns/{}/snapshots/{}", encoded(id), encoded(name))
            }
            Self::Targets => "targets".to_owned(),
            Self::Target(name) => format!("targets/{}", encoded(name)),
            Self::TargetLuns(name) => format!("targets/{}/luns", encoded(name)),
            Self::TargetSessions(name) => format!("targets/{}/sessions", encoded(name)),
            Self::Sessions => "sessions".to_owned(),
            Self::Session(id) => format!("sessions/{id}"),
            Self::SessionStats(id) => format!("sessions/{id}/stats"),
            Self::Groups => "groups".to_owned(),
            Self::Group(id) => format!("groups/{}", encoded(id)),
            Self::Users => "users".to_owned(),
            Self::User(name) => format!("users/{}", encoded(name)),
            Self::Stores => "stores".to_owned(),
            Self::Store(id) => format!("stores/{}", encoded(id)),
            Self::NbdServers => "nbd".to_owned(),
            Self::NbdServer(place) => format!("nbd/{}", encoded(place)),
            Self::Quotas => "quotas".to_owned(),
            Self::Quota(name) => format!("quotas/{}", encoded(name)),
            Self::Hyperscsi => "hyperscsi".to_owned(),
            Self::HyperscsiGroup(name) => format!("hyperscsi/{}", encoded(name)),
            Self::HyperscsiSessions(name) => format!("hyperscsi/{}/sessions", encoded(name)),
        }
    }
}

/// A place in the tree.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Place {
    /// A directory.
    Directory(Directory),
    /// A file of a directory, by the name that its table has.
    File(Directory, &'static str),
    /// A symbolic link of a directory.
    Link(Directory, String),
}

impl Place {
    /// The mount point.
    pub(crate) const ROOT: Self = Self::Directory(Directory::Root);

    /// Its path from the mount point, for messages.
    pub(crate) fn path(&self) -> String {
        let (directory, name) = match self {
            Self::Directory(directory) => return directory.path(),
            Self::File(directory, name) => (directory, *name),
            Self::Link(directory, name) => (directory, name.as_str()),
        };
        match directory.path().as_str() {
            "" => name.to_owned(),
            path => format!("{path}/{name}"),
        }
    }
}

/// The file name of a thing.
pub(crate) fn encoded(text: &str) -> String {
    match text {
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        text => utf8_percent_encode(text, ENCODED).to_string(),
    }
}

/// The thing of a file name; `None` for a name that no thing has.
pub(crate) fn decoded(name: &str) -> Option<String> {
    let text = percent_decode_str(name).decode_utf8().ok()?.into_owned();
    // Each thing has one name, not all that decode to it.
    (encoded(&text) == name).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thing_has_one_name_without_slashes() {
        for (text, name) in [
            ("disk0", "disk0"),
            (
                "iqn.2026-11.example.tarn:demo",
                "iqn.2026-11.example.tarn:demo",
            ),
            ("block:/dev/vg/a b", "block:%2Fdev%2Fvg%2Fa b"),
            ("100%", "100%25"),
            ("a\nb", "a%0Ab"),
            ("ä", "%C3%A4"),
            (".", "%2E"),
            ("..", "%2E%2E"),
        ] {
            assert_eq!(encoded(text), name);
            assert_eq!(decoded(name).as_deref(), Some(text));
        }
        for name in ["%64isk", "a/b", "..", "%", "%2f", "%FF"] {
            assert_eq!(decoded(name), None, "{name}");
        }
    }

    #[test]
    fn paths_lead_from_the_mount_point() {
        let session = Directory::SessionStats(7);
        assert_eq!(session.parent(), Directory::Session(7));
        assert_eq!(
            Place::File(session, "reads").path(),
            "sessions/7/stats/reads"
        );
        assert_eq!(Place::File(Directory::Root, "status").path(), "status");
        let link = Place::Link(
            Directory::TargetLuns("iqn.x:a/b".to_owned()),
            "0".to_owned(),
        );
        assert_eq!(link.path(), "targets/iqn.x:a%2Fb/luns/0");
    }
}
