//! What is configured, section by section: the keys of `tarn.toml`, as in docs/reference/configuration.md.
//!
//! A key that may be left out of the file may be left out here and is then absent, not `null`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;
use zeroize::Zeroizing;

/// `[[lun]]`: a logical unit.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = spec::Lun)]
pub struct Lun {
    /// What targets call the unit.
    pub id: String,
    /// Where the data lives, as `file:/srv/disk.img?size=10G`.
    pub store: String,
    /// Unit serial number, if not the one that was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// NAA designator in hexadecimal digits, if not the one that was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub naa: Option<String>,
    /// T10 vendor identification, if not `TARN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Product identification, if not `DISK`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// Product revision level, if not the version of Tarn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Whose disk it is, for quotas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The log device, as `file:/srv/log.img?size=4G`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// What the log is for: `latency` or `throughput`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_bias: Option<String>,
    /// Commands of the vendor are passed to the device, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub vendor_commands: bool,
    /// Snapshots that are taken by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<Schedule>,
}

/// How often snapshots of a unit are taken, and how many of each period are kept; absent: none of it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = spec::Schedule)]
pub struct Schedule {
    /// How many are kept of those of full hours, up to 168.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hourly: Option<u16>,
    /// How many are kept of those of days, up to 180.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily: Option<u16>,
    /// How many are kept of those of weeks (Sundays), up to 104.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weekly: Option<u16>,
    /// When those of days and weeks are taken, `HH:MM` in UTC; absent: midnight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// `[[store]]`: a store that a unit names as a member.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = spec::Store)]
pub struct Store {
    /// What compositions call the store.
    pub id: String,
    /// Where the data lives, as `file:/srv/disk.img?size=10G`.
    pub store: String,
}

/// `[[nbd]]`: a server of NBD. It is known by its `socket`, else by its `bind`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = spec::Nbd)]
pub struct Nbd {
    /// The address it listens on, as `127.0.0.1:10809`, which is what is meant if neither this nor `socket` is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<String>,
    /// The unix socket it listens on instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// The mode of the file of the socket, as `0660`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The `id`s of the units that are its exports.
    #[serde(default)]
    #[schema(required)]
    pub luns: Vec<String>,
    /// The groups of clients that find them; empty: everyone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// The file of its certificate: clients have to begin TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// The file of the private key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The file of those who vouch for the certificates of clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
}

/// `[[quota]]`: what some disks may take together. It is known as `owner:NAME` or `pool:PLACE`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = spec::Quota)]
pub struct Quota {
    /// It counts the disks of this owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// It counts the disks in this directory, or with `rbd:POOL` the images of this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The most that their sizes may be together, as `2T` or in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<String>,
    /// The most that they may take together, as `500G` or in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<String>,
    /// The part of `used`, in percent, from which on everyone is notified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft: Option<u16>,
}

/// `[[hyperscsi.group]]`: units for clients of HyperSCSI. It is known as `NAME at PLACE`, where PLACE is its
/// interface or `udp:ADDRESS:PORT`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = spec::Hyperscsi)]
pub struct Hyperscsi {
    /// By which clients find it.
    pub name: String,
    /// The interface whose frames reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The address at which UDP reaches it, instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<String>,
    /// The name that clients log in with; absent: that of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The file of the password, which must be private. In a request without it, `password` and `open`, what clients
    /// need stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<String>,
    /// The password, 8 to 128 bytes; only ever in requests. Tarn keeps it in a private file of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(write_only, value_type = Option<String>)]
    pub password: Option<Secret>,
    /// Clients need no password.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// What is sent again after a loss: `selective` or `window`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmit: Option<String>,
    /// What the path is like: `wired` or `wireless`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Its devices, at least one; clients may call them by their positions.
    #[serde(default)]
    #[schema(required)]
    pub device: Vec<HyperscsiDevice>,
}

/// A device of a group of HyperSCSI.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = spec::HyperscsiDevice)]
pub struct HyperscsiDevice {
    /// The `id` of its unit.
    pub id: String,
    /// The least protection that is accepted: `none`, `crc`, `hash` or `encrypt`; absent: `encrypt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// Writes are refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub readonly: bool,
}

impl Nbd {
    /// What it is known by.
    pub fn place(&self) -> &str {
        let place = self.socket.as_deref().or(self.bind.as_deref());
        place.unwrap_or("127.0.0.1:10809")
    }
}

impl Quota {
    /// What it is known by.
    pub fn name(&self) -> String {
        match (&self.owner, &self.pool) {
            (Some(owner), _) => format!("owner:{owner}"),
            (None, Some(pool)) => format!("pool:{pool}"),
            (None, None) => String::new(),
        }
    }
}

/// `[[target]]`: an iSCSI target.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = spec::Target)]
pub struct Target {
    /// TargetName.
    pub name: String,
    /// TargetAlias.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// Where it is reached; absent: the default of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub portals: Option<Vec<Portal>>,
    /// CHAP users that may log in; empty: everyone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub auth: Vec<String>,
    /// CHAP algorithms; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap_algorithms: Option<Vec<String>>,
    /// TARGET COLD RESET of an initiator ends the sessions of all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cold_reset: bool,
    /// What it shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub luns: Vec<TargetLun>,
}

/// An address of a target.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Portal {
    /// `ADDRESS:PORT` to listen on, IPv6 in brackets.
    pub bind: String,
    /// `HOST:PORT` that discovery reports, if not the address the initiator came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<String>,
    /// Target portal group tag; absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u16>,
}

/// An entry of a target's `luns`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetLun {
    /// The logical unit number, up to 16383. Several entries may have it if each is for other groups.
    pub lun: u16,
    /// The `id` of the unit.
    pub id: String,
    /// The groups that see it; empty: everyone who may log in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Writes are refused through this entry.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub readonly: bool,
}

/// `[[group]]`: a group of initiators.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// What units call the group.
    pub id: String,
    /// Name patterns, addresses, networks and users; what follows a `!` is not in the group.
    #[serde(default)]
    #[schema(required)]
    pub initiators: Vec<String>,
}

/// `[[user]]`: a CHAP user. Secrets go in and never come out.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// CHAP_N of the initiator.
    pub name: String,
    /// The file of the secret, which must be private. Absent in a request that brings a `secret`:
    /// Tarn keeps it in a private file of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<String>,
    /// The secret, 12 to 128 bytes; only ever in requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(write_only, value_type = Option<String>)]
    pub secret: Option<Secret>,
    /// With what the target proves itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual: Option<Mutual>,
    /// The InitiatorNames (patterns) that are this user's alone and the only ones it may have. Absent in
    /// a request: they stay; empty: it may have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiators: Option<Vec<String>>,
}

/// The target's side of mutual CHAP.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Mutual {
    /// CHAP_N of the target.
    pub name: String,
    /// As [`User::secret_file`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<String>,
    /// As [`User::secret`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(write_only, value_type = Option<String>)]
    pub secret: Option<Secret>,
}

/// A secret in a request: wiped from memory when dropped, and not shown by `Debug`.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<Zeroizing<String>> for Secret {
    fn from(text: Zeroizing<String>) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Zeroizing::new(text)))
    }
}
