//! What runs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::event::Finding;
use crate::spec;

/// The daemon in one look.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Status {
    /// Version of Tarn.
    pub version: String,
    /// Process.
    pub pid: u32,
    /// When it began.
    pub started_ms: u64,
    /// Now, by the clock of the daemon.
    pub now_ms: u64,
    /// Revision of the configuration that runs.
    pub revision: u64,
    /// The file it was started with; absent for a daemon that was given stores on its command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_file: Option<String>,
    /// The state directory.
    pub state_directory: String,
    /// Threads that serve.
    pub cores: u32,
    /// Logical units.
    pub luns: u32,
    /// Targets.
    pub targets: u32,
    /// Sessions, discovery sessions too.
    pub sessions: u32,
    /// Keys of the configuration that take effect when Tarn starts again, as `[server] cores: 2 -> 4`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
    /// Certificates in use that say how long they are valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<Certificate>,
    /// What an administrator should look at, the worst first.
    pub findings: Vec<Finding>,
}

/// A certificate in use.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Certificate {
    /// What has it: `administration`, or the place of a server of NBD.
    pub of: String,
    /// It is valid no longer than this; of several in its file, the first that ends.
    pub not_after_ms: u64,
}

/// A logical unit.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Lun {
    /// As it is configured. A STORE of the command line has the store as its `id`.
    pub spec: spec::Lun,
    /// `file`, `block`, `memory`, `null`, `nbd`, `rbd` or `cdrom`.
    pub kind: String,
    /// What it is for initiators: `disk`, or `cdrom`, a CD or DVD drive.
    #[serde(default, rename = "type")]
    #[schema(required = true)]
    pub device_type: String,
    /// Size of its medium; 0 where there is none.
    pub size_bytes: u64,
    /// Size of a logical block; 0 of a device of others, which says that itself.
    pub block_bytes: u32,
    /// The store refuses writes.
    pub readonly: bool,
    /// `writeback`, `writethrough` or `direct`; absent where there is nothing to cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    /// Unmapped blocks give their space back.
    pub thin: bool,
    /// The serial number in use.
    pub serial: String,
    /// The NAA designator in use, hexadecimal.
    pub naa: String,
    /// Its medium, if that can be ejected; absent for a fixed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub medium: Option<Medium>,
    /// Why its data cannot be reached, in words; absent where it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<String>,
    /// What keeps it, or its log, from being used; absent where nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<LunTrouble>,
    /// Who has reserved it or is registered with it; absent where nobody is. Without the registrations one by one,
    /// which `/luns/{id}/reservations` has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservations: Option<Reservations>,
    /// The targets that export it.
    pub shown_by: Vec<LunPath>,
    /// The servers of NBD and the groups of HyperSCSI that serve it.
    #[serde(default)]
    #[schema(required = true)]
    pub served_by: Vec<LunService>,
}

/// What keeps a unit, or its log, from being used.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct LunTrouble {
    /// The code of the finding. The unit is not served: `log-lost`, until somebody decides about its log;
    /// `medium-changed`, its store is not what was served; `store-unopened`, its store cannot be opened. It is served,
    /// but not by its log: `log-failed`.
    pub code: String,
    /// Why, in words.
    pub why: String,
}

/// The reservations of a unit.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Reservations {
    /// The type of the persistent reservation, as `write-exclusive` or `exclusive-access-registrants-only`; absent
    /// without one.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Who holds it; absent without one, and where all that are registered hold it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<ReservationNexus>,
    /// Since when it is held; absent where that is before the start of the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// How many I_T nexuses are registered.
    pub registered: u32,
    /// Registrations and reservation outlive a restart (APTPL).
    pub aptpl: bool,
    /// They could not be read, so every command that they could forbid is refused.
    pub lost: bool,
    /// Who holds the unit by RESERVE, the reservation of SPC-2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_by: Option<ReservationNexus>,
    /// Who is registered, in the order of registration; only in `/luns/{id}/reservations`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub registrations: Vec<Registration>,
}

/// An I_T nexus that is registered, or holds a reservation.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct ReservationNexus {
    /// `iscsi`, `nbd` or `hyperscsi`.
    pub transport: String,
    /// InitiatorName, or what sessions of another transport have in its place.
    pub initiator: String,
    /// ISID of the initiator port, 12 hexadecimal digits; absent where the transport has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isid: Option<String>,
    /// Relative target port identifier.
    pub target_port: u16,
    /// The initiator has a session that sees the unit, perhaps of another port; absent in lists of units, and where the
    /// data plane does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_session: Option<bool>,
}

/// A registration for persistent reservations.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Registration {
    /// Who is registered.
    pub nexus: ReservationNexus,
    /// Its key, as `0x` and 16 hexadecimal digits.
    pub key: String,
    /// It holds the reservation, alone or with all that are registered.
    pub holder: bool,
    /// Since when; absent where that is before the start of the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
}

/// A medium that can be ejected.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Medium {
    /// It is in. One that is ejected stays so over a restart.
    pub loaded: bool,
    /// InitiatorNames of the sessions that prevent its removal, one for each session.
    pub prevented_by: Vec<String>,
}

/// A quota, and what the disks hold that it counts.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[schema(as = view::Quota)]
pub struct Quota {
    /// `owner:NAME` or `pool:PLACE`.
    pub name: String,
    /// As it is configured.
    pub spec: spec::Quota,
    /// The units that it counts, some of them perhaps in part.
    pub luns: Vec<String>,
    /// How large they are together.
    pub provisioned_bytes: u64,
    /// How large they may be together.
    pub provisioned_max_bytes: Option<u64>,
    /// What they were found to take together; absent: nobody has looked, as is so without `used`.
    pub used_bytes: Option<u64>,
    /// What they may take together.
    pub used_max_bytes: Option<u64>,
    /// `free`; `low`: initiators are notified; `full`: what needs space fails.
    pub space: String,
}

/// A group of HyperSCSI.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[schema(as = view::Hyperscsi)]
pub struct Hyperscsi {
    /// What it is known by: `NAME at INTERFACE` or `NAME at udp:ADDRESS:PORT`.
    pub name: String,
    /// As it is configured, defaults filled in.
    pub spec: spec::Hyperscsi,
    /// Where it is served: a port 0 of the file is the real one here.
    pub place: String,
    /// Where the password is: `file`, `configuration` or, without one, `none`.
    pub password: String,
    /// The ids of its sessions.
    pub sessions: Vec<u64>,
}

/// The data of a unit as it was at one moment.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Snapshot {
    /// The unit whose store has it.
    pub lun: String,
    /// Its name. The unit has no other one of this name.
    pub name: String,
    /// When it was taken.
    pub taken_ms: u64,
    /// Size of the unit then.
    pub size_bytes: u64,
    /// The file that has it, or the STORE of it in its cluster without options.
    pub path: String,
}

/// How far a flatten is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Flattened {
    /// The unit.
    pub lun: String,
    /// It has all of its data. Otherwise the flatten goes on; who asks again waits for it.
    pub done: bool,
    /// How much of it is done.
    pub percent: u8,
}

/// What has come of a rollback.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct RolledBack {
    /// The unit.
    pub lun: String,
    /// Why it is not known yet which data it has; its commands wait until that is known. Absent when it has the data of
    /// the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<String>,
}

/// Snapshots of one moment.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct SnapshotsTaken {
    /// One for each unit, in the order they were asked for.
    pub snapshots: Vec<Snapshot>,
    /// How long commands of these units waited.
    pub paused_us: u64,
}

/// One way to a unit.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct LunPath {
    /// The target.
    pub target: String,
    /// The logical unit number there.
    pub lun: u16,
    /// Who sees it; empty: everyone who may log in.
    pub groups: Vec<String>,
    /// Writes are refused on this way.
    pub readonly: bool,
}

/// A server of NBD or a group of HyperSCSI that serves a unit.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct LunService {
    /// `nbd` or `hyperscsi`.
    pub protocol: String,
    /// What it is known by: the place of the server, or `NAME at PLACE` of the group.
    pub name: String,
    /// What clients call the unit there.
    pub device: String,
    /// The groups of clients that find it; empty: all that reach the server. Those of HyperSCSI need the password.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Writes are refused there.
    pub readonly: bool,
    /// The least protection that a group of HyperSCSI accepts for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
}

/// A target.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Target {
    /// As it is configured, defaults filled in.
    pub spec: spec::Target,
    /// Where it listens, in the order of the portals: a port 0 of the file is the real one here.
    pub bound: Vec<String>,
    /// Sessions it has.
    pub sessions: u32,
}

/// A session of the target role.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Session {
    /// Names the session: counted from 1, never given again while this daemon runs.
    pub id: u64,
    /// InitiatorName, or what sessions of another transport have in its place.
    pub initiator: String,
    /// Where it comes from, `ADDRESS:PORT`; of a client on Ethernet its MAC address.
    pub address: String,
    /// TargetName, `nbd:EXPORT` or `hyperscsi:GROUP`; absent for discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The CHAP user it proved to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The core it lives on.
    pub core: u32,
    /// When it began.
    pub since_ms: u64,
    /// What it sees.
    pub luns: Vec<SessionLun>,
    /// Commands under way.
    pub commands: u32,
    /// Commands it may have under way.
    pub window: u32,
    /// What only sessions of its transport have.
    pub transport: Transport,
}

impl Session {
    /// What it has as a session of iSCSI; absent if it is none.
    pub const fn iscsi(&self) -> Option<&IscsiSession> {
        match &self.transport {
            Transport::Iscsi(session) => Some(session),
            Transport::Nbd(_) | Transport::Hyperscsi(_) => None,
        }
    }
}

/// The transport of a session, with what only its sessions have.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// iSCSI.
    Iscsi(IscsiSession),
    /// NBD.
    Nbd(NbdSession),
    /// HyperSCSI.
    Hyperscsi(HyperscsiSession),
}

impl Transport {
    /// `iscsi`, `nbd` or `hyperscsi`.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Iscsi(_) => "iscsi",
            Self::Nbd(_) => "nbd",
            Self::Hyperscsi(_) => "hyperscsi",
        }
    }

    /// Where a client of another transport than iSCSI has reached it: the server of NBD, the place of a group.
    pub fn server(&self) -> Option<&str> {
        match self {
            Self::Iscsi(_) => None,
            Self::Nbd(session) => Some(&session.service),
            Self::Hyperscsi(session) => Some(&session.place),
        }
    }

    /// The names that the certificate of a client of NBD proves.
    pub fn names(&self) -> &[String] {
        match self {
            Self::Nbd(session) => &session.names,
            Self::Iscsi(_) | Self::Hyperscsi(_) => &[],
        }
    }
}

/// A session as iSCSI has it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct IscsiSession {
    /// TSIH: what the target calls the session.
    pub tsih: u16,
    /// ISID, 12 hexadecimal digits.
    pub isid: String,
    /// Target portal group tag.
    pub portal_group: u16,
    /// Its connections, as they are now.
    pub connections: Vec<Connection>,
    /// Violations of the protocol by the initiator, on all connections that the session has had.
    pub violations: u64,
    /// How often this initiator port replaced a session of its own since the daemon began.
    pub reinstatements: u64,
}

/// A connection of a session of iSCSI.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Connection {
    /// CID, the initiator's number for it.
    pub cid: u16,
    /// Where it comes from, `ADDRESS:PORT`.
    pub address: String,
    /// The address of this host that it reached.
    pub portal: String,
    /// Negotiated: header digests are on.
    pub header_digest: bool,
    /// Negotiated: data digests are on.
    pub data_digest: bool,
}

/// A session as NBD has it: one connection.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct NbdSession {
    /// Name of the export.
    pub export: String,
    /// The server that the client reached, as it is configured: its socket or address.
    pub service: String,
    /// The names that the client's certificate proves; empty without one.
    pub names: Vec<String>,
}

/// A session as HyperSCSI has it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct HyperscsiSession {
    /// Name of the group.
    pub group: String,
    /// Where the group is served: the interface, or the address of UDP with its real port.
    pub place: String,
}

/// A unit as a session sees it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct SessionLun {
    /// The number.
    pub lun: u16,
    /// The unit.
    pub id: String,
    /// Writes are refused.
    pub readonly: bool,
    /// At which level of protection a session of HyperSCSI has opened it: `none`, `crc`, `hash` or `encrypt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
}

/// The last PDUs of a session or an initiator, as they are kept; of a session of HyperSCSI its frames.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Trace {
    /// The id of a session, or an InitiatorName.
    pub subject: String,
    /// When it began.
    pub since_ms: u64,
    /// How much it keeps of the data of each SCSI PDU and ping.
    pub data_bytes: u32,
    /// How much it keeps in all, as a file.
    pub keep_bytes: u32,
    /// PDUs that it has.
    pub pdus: u64,
    /// Older ones that are gone.
    pub dropped: u64,
}

/// Whose access is asked for: the dry run of the rules.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct AccessQuestion {
    /// InitiatorName.
    pub initiator: String,
    /// Where it would come from; absent: an address that no rule names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The CHAP user it would prove to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The name that its certificate would prove to servers of NBD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

/// What that initiator would meet at one target, server of NBD or group of HyperSCSI.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Access {
    /// Discovery asks for CHAP (`discovery_auth` of `[server]`), and this initiator would not pass: it finds no
    /// target, but may log in to one that it names.
    #[serde(default)]
    pub discovery_needs_chap: bool,
    /// What is met: `iscsi`, `nbd` or `hyperscsi`.
    #[serde(default = "iscsi")]
    #[schema(required = true)]
    pub protocol: String,
    /// The target, the place of the server, or `NAME at PLACE` of the group.
    pub target: String,
    /// It may log in.
    pub may_login: bool,
    /// CHAP is asked for.
    pub needs_chap: bool,
    /// The password of the group of HyperSCSI is asked for.
    #[serde(default)]
    pub needs_password: bool,
    /// Discovery shows the target, the list of the server has exports for it, or the group answers who asks for its
    /// name.
    pub is_discovered: bool,
    /// Why, in words.
    pub reason: String,
    /// What it would see.
    pub luns: Vec<SessionLun>,
}

fn iscsi() -> String {
    "iscsi".to_owned()
}

/// Something that the doctor looks for, whether it has found it or not.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Check {
    /// The code that a finding has.
    pub code: String,
    /// What the finding says.
    pub finding: String,
}

/// Places on this machine where the data of units may be.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Places {
    /// Directories: the `roots` of `[confine]` and what is in them; without `roots`, those that have files of units.
    pub directories: Vec<String>,
    /// Block devices.
    pub devices: Vec<BlockDevice>,
    /// Files of discs (`.iso`) beside those that are in drives.
    #[serde(default)]
    #[schema(required = true)]
    pub discs: Vec<String>,
}

/// A block device.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct BlockDevice {
    /// Its path.
    pub path: String,
    /// Its size; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// The unit that has its data there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lun: Option<String>,
}
