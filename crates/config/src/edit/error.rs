//! Why an edit cannot be made, whatever the rest of the configuration says.

use crate::{
    AddressRule, HyperScsiRule, LunNumber, NameRule, QuotaRule, Rule, SizeRule, StoreRule,
};

/// How many users of a thing a message names.
const NAMED_MAX: usize = 4;

/// Why an edit was not made. Nothing was changed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EditError {
    /// There is no such thing.
    #[error("there is no {what} {name:?}; check the name, or add it first")]
    NotFound {
        /// What was looked for.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// Another thing has the name already.
    #[error("{what} {name:?} exists already; choose another name")]
    Exists {
        /// What has it.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A group has the device already, whose name is the id of its unit.
    #[error(
        "unit {id:?} is a device of group {group:?} already; change it with tarn hyperscsi device set {group:?} {id}"
    )]
    DeviceExists {
        /// The group.
        group: String,
        /// The unit.
        id: String,
    },
    /// A target does not show anything there.
    #[error("target {target} has no {what} {name}; see tarn target show {target}")]
    NotAtTarget {
        /// The target.
        target: String,
        /// What was looked for.
        what: &'static str,
        /// Its number or address.
        name: String,
    },
    /// Something still refers to it.
    #[error("{what} {name:?} is still used by {}; remove it there first", some(.by))]
    InUse {
        /// What is used.
        what: &'static str,
        /// Its name.
        name: String,
        /// What uses it.
        by: Vec<String>,
    },
    /// A value does not fit its key.
    #[error("{why}; check the key and the type of its value")]
    Value {
        /// Which, and why not.
        why: String,
    },
    /// The only portal of a target.
    #[error(
        "portal {bind} is the only one of target {target}; add another first, or remove the target"
    )]
    LastPortal {
        /// The target.
        target: String,
        /// The portal.
        bind: String,
    },
    /// A number of a target that shows another unit.
    #[error(
        "target {target} shows another unit as LUN {lun}; unmap that first (tarn target unmap {target} {lun}), take \
         another number, or give each unit groups of its own"
    )]
    LunTaken {
        /// The target.
        target: String,
        /// The number.
        lun: u16,
    },
    /// A number under which each group sees another unit.
    #[error("target {target} shows several units as LUN {lun}; say whose with --group: {}", some(.groups))]
    LunShared {
        /// The target.
        target: String,
        /// The number.
        lun: u16,
        /// The first group of each unit.
        groups: Vec<String>,
    },
    /// A target that shows as many units as it may.
    #[error(
        "target {target} has no free LUN up to {}; take one away first",
        LunNumber::MAX
    )]
    NoFreeLun {
        /// The target.
        target: String,
    },
    /// A unit cannot lose blocks that initiators know of.
    #[error(
        "lun {id:?} has {size_bytes} bytes and cannot shrink to {wanted_bytes}; make a new lun and copy what is needed"
    )]
    CannotShrink {
        /// The unit.
        id: String,
        /// Its size.
        size_bytes: u64,
        /// What was asked for.
        wanted_bytes: u64,
    },
    /// A drive or a device of others is as large as its medium.
    #[error(
        "lun {id:?} is {store}, which has the size of its medium: load another disc, or look at the device itself"
    )]
    SizeOfDrive {
        /// The unit.
        id: String,
        /// Its store.
        store: String,
    },
    /// A block device has its size from elsewhere.
    #[error(
        "lun {id:?} is the block device {store}, which brings its own size; grow the device itself, as with lvextend"
    )]
    SizeOfDevice {
        /// The unit.
        id: String,
        /// Its store.
        store: String,
    },
    /// An export has its size from its server.
    #[error(
        "lun {id:?} is the export {store} of a server, which gives it its size; grow it there, and the disk grows \
         when Tarn connects again"
    )]
    SizeOfExport {
        /// The unit.
        id: String,
        /// Its store.
        store: String,
    },
    /// A snapshot has its size for good.
    #[error(
        "lun {id:?} is the snapshot {store}, which keeps the size that it has; grow the image, and make a snapshot of \
         that"
    )]
    SizeOfSnapshot {
        /// The unit.
        id: String,
        /// Its store.
        store: String,
    },
    /// Another size for a composition.
    #[error(
        "lun {id:?} is {store}, whose members have the size; give a member a larger size= (tarn store set), or add \
         a member to a concat (tarn lun set)"
    )]
    SizeOfMembers {
        /// The unit.
        id: String,
        /// Its store.
        store: String,
    },
    /// A name that several groups of HyperSCSI have.
    #[error("several groups of HyperSCSI are called {name:?}; say which: {}", some(.groups))]
    SeveralGroups {
        /// The name.
        name: String,
        /// What each is known by.
        groups: Vec<String>,
    },
    /// A user without a secret.
    #[error("user {name:?} has no secret; give one, or the file that holds it")]
    SecretMissing {
        /// The user.
        name: String,
    },
    // A value that the edit would write is wrong in itself.
    /// A text or a key.
    #[error(transparent)]
    Rule(#[from] Rule),
    /// A size.
    #[error(transparent)]
    Size(#[from] SizeRule),
    /// A STORE.
    #[error(transparent)]
    Store(#[from] StoreRule),
    /// An address.
    #[error(transparent)]
    Address(#[from] AddressRule),
    /// The name of a target.
    #[error(transparent)]
    Name(#[from] NameRule),
    /// A quota.
    #[error(transparent)]
    Quota(#[from] QuotaRule),
    /// A group of HyperSCSI.
    #[error(transparent)]
    HyperScsi(#[from] HyperScsiRule),
}

/// The first of the names, and how many more there are.
fn some(names: &[String]) -> String {
    let shown: Vec<&str> = names.iter().take(NAMED_MAX).map(String::as_str).collect();
    let shown = shown.join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
