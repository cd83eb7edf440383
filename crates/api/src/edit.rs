//! Edits of the configuration: single changes that keep everything else of the document, made together.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::Role;
use crate::patch::{Patch, Patched};
use crate::spec;

/// Edits in one request.
pub const EDITS_MAX: usize = 1000;

/// Edits that are made one after the other, all of them or none, as one revision.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Edits {
    /// What to change, in this order.
    #[schema(max_items = 1000)]
    pub edits: Vec<Edit>,
    /// What it is for, for the history; one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// One change of the document. What it does not name stays as it is: comments, order, keys that are not written.
/// A value that is a table is set as a whole.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Edit {
    /// Makes a thing; a conflict if there is one of its name.
    Add(Thing),
    /// Makes a thing, or makes it so: keys that are not given are taken out.
    Put(Thing),
    /// Changes the keys that are given, of a thing that is there.
    Set(Keys),
    /// Removes a thing that nothing refers to.
    Remove(Name),
    /// Takes a unit from every target that shows it.
    Hide {
        /// Its `id`.
        lun: String,
    },
    /// Gives a unit another size.
    Resize {
        /// Its `id`.
        lun: String,
        /// The new size.
        size_bytes: u64,
    },
    /// Gives a unit another `id`; targets follow.
    Rename {
        /// The `id` that it has.
        lun: String,
        /// The new one.
        id: String,
    },
}

/// A thing, with all its keys.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Thing {
    /// A unit.
    Lun(spec::Lun),
    /// A named store.
    Store(spec::Store),
    /// A server of NBD.
    Nbd(spec::Nbd),
    /// A quota.
    Quota(spec::Quota),
    /// A group of HyperSCSI.
    Hyperscsi(spec::Hyperscsi),
    /// A device of such a group.
    Device(GroupDevice),
    /// A target.
    Target(spec::Target),
    /// A group of initiators.
    Group(spec::Group),
    /// A CHAP user.
    User(spec::User),
    /// A unit as a target shows it.
    View(View),
    /// An address of a target.
    Portal(TargetPortal),
}

/// A unit as a target shows it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct View {
    /// The target.
    pub target: String,
    /// The logical unit number; absent: the lowest that nobody sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lun: Option<u16>,
    /// The `id` of the unit.
    pub id: String,
    /// The groups that see it; empty: everyone who may log in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Writes are refused through this entry.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub readonly: bool,
}

/// An address of a target.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetPortal {
    /// The target.
    pub target: String,
    /// The address.
    pub portal: spec::Portal,
}

/// A device of a group of HyperSCSI.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupDevice {
    /// The group: `NAME at PLACE`, or its name where no other group has that.
    pub hyperscsi: String,
    /// The device.
    pub device: spec::HyperscsiDevice,
}

/// Keys of a thing. A key that is absent stays; an empty text or list takes the key out of the document.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Keys {
    /// Of a unit.
    Lun(LunKeys),
    /// Of a named store.
    Store(StoreKeys),
    /// Of a server of NBD.
    Nbd(NbdKeys),
    /// Of a quota.
    Quota(QuotaKeys),
    /// Of a group of HyperSCSI.
    Hyperscsi(HyperscsiKeys),
    /// Of a device of such a group.
    Device(DeviceKeys),
    /// Of a target.
    Target(TargetKeys),
    /// Of a group of initiators.
    Group(GroupKeys),
    /// Of a CHAP user.
    User(UserKeys),
}

/// Keys of a group of HyperSCSI. The password goes in and never comes out.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HyperscsiKeys {
    /// Which group: `NAME at PLACE`, or its name where no other group has that.
    pub hyperscsi: String,
    /// The name that clients log in with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The file of the password, which must be private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<String>,
    /// The password, 8 to 128 bytes; Tarn keeps it in a private file of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(write_only, value_type = Option<String>)]
    pub password: Option<spec::Secret>,
    /// True: nobody needs a password any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<bool>,
    /// What is sent again after a loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmit: Option<String>,
    /// What the path is like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Its devices, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Vec<spec::HyperscsiDevice>>,
}

/// Who is in a group.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupKeys {
    /// Which group.
    pub id: String,
    /// All who are in it from now on; absent: those who were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiators: Option<Vec<String>>,
    /// Who is in it as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<String>,
    /// Who is in it no more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
}

/// Keys of a CHAP user. Secrets go in and never come out.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserKeys {
    /// Which user.
    pub name: String,
    /// The file of the secret, which must be private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<String>,
    /// The secret, 12 to 128 bytes; Tarn keeps it in a private file of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(write_only, value_type = Option<String>)]
    pub secret: Option<spec::Secret>,
    /// With what the target proves itself; a secret that is absent stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual: Option<spec::Mutual>,
    /// The target proves itself no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_mutual: bool,
    /// The InitiatorNames (patterns) that are this user's alone; empty: it may have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiators: Option<Vec<String>>,
}

/// Keys of a unit.
pub type LunKeys = Patch<spec::Lun>;

impl Patched for spec::Lun {
    const SCHEMA: &'static str = "LunKeys";
    const NAMED_BY: &'static [(&'static str, &'static str)] = &[("id", "Which unit.")];
    const IDENTITY: &'static [&'static str] = &["id"];
}

/// Keys of a named store.
pub type StoreKeys = Patch<spec::Store>;

impl Patched for spec::Store {
    const SCHEMA: &'static str = "StoreKeys";
    const NAMED_BY: &'static [(&'static str, &'static str)] = &[("id", "Which store.")];
    const IDENTITY: &'static [&'static str] = &["id"];
}

/// Keys of a server of NBD.
pub type NbdKeys = Patch<spec::Nbd>;

impl Patched for spec::Nbd {
    const SCHEMA: &'static str = "NbdKeys";
    const NAMED_BY: &'static [(&'static str, &'static str)] =
        &[("nbd", "Which server: its socket or address.")];
    const IDENTITY: &'static [&'static str] = &["bind", "socket"];
}

/// Keys of a quota.
pub type QuotaKeys = Patch<spec::Quota>;

impl Patched for spec::Quota {
    const SCHEMA: &'static str = "QuotaKeys";
    const NAMED_BY: &'static [(&'static str, &'static str)] =
        &[("quota", "Which quota: `owner:NAME` or `pool:PLACE`.")];
    const IDENTITY: &'static [&'static str] = &["owner", "pool"];
}

/// Keys of a device of a group of HyperSCSI.
pub type DeviceKeys = Patch<spec::HyperscsiDevice>;

impl Patched for spec::HyperscsiDevice {
    const SCHEMA: &'static str = "DeviceKeys";
    const NAMED_BY: &'static [(&'static str, &'static str)] = &[
        (
            "hyperscsi",
            "The group: `NAME at PLACE`, or its name where no other group has that.",
        ),
        ("id", "Which device, by the `id` of its unit."),
    ];
    const IDENTITY: &'static [&'static str] = &["id"];
}

/// Keys of a target.
pub type TargetKeys = Patch<spec::Target>;

impl Patched for spec::Target {
    const SCHEMA: &'static str = "TargetKeys";
    const NAMED_BY: &'static [(&'static str, &'static str)] = &[("name", "Which target.")];
    const IDENTITY: &'static [&'static str] = &["name"];
}

/// What names a thing.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Name {
    /// The `id` of a unit.
    Lun(String),
    /// The `id` of a named store.
    Store(String),
    /// The socket or the address of a server of NBD.
    Nbd(String),
    /// What a quota counts: `owner:NAME` or `pool:PLACE`.
    Quota(String),
    /// A group of HyperSCSI: `NAME at PLACE`, or its name where no other group has that.
    Hyperscsi(String),
    /// A device of such a group.
    Device {
        /// The group.
        hyperscsi: String,
        /// The `id` of its unit.
        id: String,
    },
    /// The name of a target.
    Target(String),
    /// The `id` of a group.
    Group(String),
    /// The name of a user.
    User(String),
    /// A number of a target.
    View {
        /// The target.
        target: String,
        /// The logical unit number.
        lun: u16,
        /// The group that sees it no more, or `*` for those who are in no group; needed where several units have the
        /// number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
    },
    /// An address of a target.
    Portal {
        /// The target.
        target: String,
        /// The address it is bound to.
        bind: String,
    },
}

impl Edit {
    /// The role that making it needs.
    pub const fn needs(&self) -> Role {
        match self {
            Self::Resize { .. } | Self::Rename { .. } => Role::Operator,
            Self::Add(_) | Self::Put(_) | Self::Set(_) | Self::Remove(_) | Self::Hide { .. } => {
                Role::Admin
            }
        }
    }

    /// The secrets it brings, each with whose it is, and where the file that keeps it is named.
    pub fn secrets(&mut self) -> Vec<SecretPlace<'_>> {
        let (user, file, secret, mutual) = match self {
            Self::Add(Thing::Hyperscsi(group)) | Self::Put(Thing::Hyperscsi(group)) => {
                return vec![SecretPlace {
                    of: SecretOf::Hyperscsi(&group.name),
                    file: &mut group.password_file,
                    secret: &mut group.password,
                }];
            }
            Self::Set(Keys::Hyperscsi(keys)) => {
                return vec![SecretPlace {
                    of: SecretOf::Hyperscsi(&keys.hyperscsi),
                    file: &mut keys.password_file,
                    secret: &mut keys.password,
                }];
            }
            Self::Add(Thing::User(user)) | Self::Put(Thing::User(user)) => (
                &user.name,
                &mut user.secret_file,
                &mut user.secret,
                &mut user.mutual,
            ),
            Self::Set(Keys::User(keys)) => (
                &keys.name,
                &mut keys.secret_file,
                &mut keys.secret,
                &mut keys.mutual,
            ),
            Self::Add(_)
            | Self::Put(_)
            | Self::Set(_)
            | Self::Remove(_)
            | Self::Hide { .. }
            | Self::Resize { .. }
            | Self::Rename { .. } => return Vec::new(),
        };
        let own = SecretPlace {
            of: SecretOf::User(user),
            file,
            secret,
        };
        let back = mutual.as_mut().map(|mutual| SecretPlace {
            of: SecretOf::Mutual(user),
            file: &mut mutual.secret_file,
            secret: &mut mutual.secret,
        });
        std::iter::once(own).chain(back).collect()
    }
}

/// Whose a secret is, by the name of what it is configured with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SecretOf<'a> {
    /// A CHAP user proves itself with it.
    User(&'a str),
    /// The target proves itself with it, to this user.
    Mutual(&'a str),
    /// Clients of a group of HyperSCSI need it.
    Hyperscsi(&'a str),
}

/// Where an edit brings a secret.
#[derive(Debug)]
pub struct SecretPlace<'a> {
    /// Whose it is.
    pub of: SecretOf<'a>,
    /// The file that keeps it.
    pub file: &'a mut Option<String>,
    /// The secret itself, if it is brought.
    pub secret: &'a mut Option<spec::Secret>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_is_one_key_with_what_it_takes() {
        let edits: Edits = serde_json::from_str(
            r#"{"edits": [
                {"add": {"lun": {"id": "a", "store": "mem:1G"}}},
                {"put": {"view": {"target": "iqn.x", "id": "a"}}},
                {"set": {"group": {"id": "g", "add": ["iqn.y"]}}},
                {"remove": {"portal": {"target": "iqn.x", "bind": "127.0.0.1:1"}}},
                {"remove": {"lun": "b"}},
                {"resize": {"lun": "a", "size_bytes": 5}}
            ]}"#,
        )
        .unwrap();
        assert_eq!(edits.edits.len(), 6);
        let again = serde_json::to_value(&edits).unwrap();
        assert_eq!(serde_json::from_value::<Edits>(again).unwrap(), edits);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for text in [
            r#"{"edits": [{"resize": {"lun": "a", "size_bytes": 5, "force": true}}]}"#,
            r#"{"edits": [{"remove": {"view": {"target": "t", "lun": 1, "id": "a"}}}]}"#,
            r#"{"edits": [{"add": {"view": {"target": "t", "id": "a", "write": true}}}]}"#,
            r#"{"edits": [{"set": {"lun": {"id": "a", "stor": "b"}}}]}"#,
            r#"{"edits": [{"drop": {"lun": "a"}}]}"#,
            r#"{"edits": [], "force": true}"#,
        ] {
            assert!(serde_json::from_str::<Edits>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn secrets_are_found_wherever_they_stand_but_not_by_debug() {
        let user = r#"{"name": "u", "secret": "an-own-secret", "mutual": {"name": "t", "secret": "a-mutual-secret"}}"#;
        for verb in ["put", "add", "set"] {
            let text = format!(r#"{{"{verb}": {{"user": {user}}}}}"#);
            let mut edit: Edit = serde_json::from_str(&text).unwrap();
            assert!(!format!("{edit:?}").contains("-secret"), "{edit:?}");
            let again = serde_json::to_string(&edit).unwrap();
            assert_eq!(serde_json::from_str::<Edit>(&again).unwrap(), edit);
            let found = edit.secrets();
            let found: Vec<_> = found
                .iter()
                .map(|one| {
                    let secret = one.secret.as_ref().map(spec::Secret::as_str);
                    (one.of, secret)
                })
                .collect();
            let expected = [
                (SecretOf::User("u"), Some("an-own-secret")),
                (SecretOf::Mutual("u"), Some("a-mutual-secret")),
            ];
            assert_eq!(found, expected, "{text}");
        }
        for (verb, group) in [
            (
                "put",
                r#"{"name": "g", "udp": "[::1]", "password": "a-password", "device": []}"#,
            ),
            ("set", r#"{"hyperscsi": "g", "password": "a-password"}"#),
        ] {
            let text = format!(r#"{{"{verb}": {{"hyperscsi": {group}}}}}"#);
            let mut edit: Edit = serde_json::from_str(&text).unwrap();
            assert!(!format!("{edit:?}").contains("a-password"), "{edit:?}");
            let found = edit.secrets();
            let found: Vec<_> = found
                .iter()
                .map(|one| (one.of, one.secret.as_ref().map(spec::Secret::as_str)))
                .collect();
            assert_eq!(found, [(SecretOf::Hyperscsi("g"), Some("a-password"))]);
        }
        let mut edit = Edit::Remove(Name::User("u".to_owned()));
        assert!(edit.secrets().is_empty());
    }
}
