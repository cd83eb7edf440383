//! The table of store kinds. Whatever depends on the kind of a store asks a column of it: the reader and the schema,
//! the plan of a change, identities, the administration's views, the documentation, the import.
//!
//! A new kind is a row here and the store itself; a place of a new form is a variant of
//! [`StorePlace`](super::StorePlace) besides.

use crate::keys::SIZE;

/// What a store keeps the data in.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum StoreKind {
    /// A path of which only opening it shows whether it is a file or a block device.
    Path,
    /// A regular file.
    File,
    /// A block device.
    Block,
    /// Memory, gone when the process ends.
    Memory,
    /// Nothing: writes are dropped, reads are zeros. For measuring.
    Null,
    /// An export of an NBD server.
    Nbd,
    /// The same over TLS.
    Nbds,
    /// An export of an NBD server on a socket of this machine.
    NbdUnix,
    /// An image of a Ceph cluster.
    Rbd,
    /// A device of a HyperSCSI group.
    Hyperscsi,
    /// A logical unit of an iSCSI target.
    Iscsi,
    /// A snapshot of a unit of the same configuration.
    Snapshot,
    /// Named stores, a chunk of each in turn.
    Stripe,
    /// Named stores, one behind the other.
    Concat,
    /// A CD or DVD drive, with a file in it or empty.
    Cdrom,
    /// A SCSI device of any type, whose commands are passed through.
    Scsi,
    /// A device that a process of somebody else emulates.
    Handler,
}

/// What a unit is whose store is of a kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DeviceType {
    /// A disk.
    Disk,
    /// A CD or DVD drive.
    Optical,
    /// Whatever the device is.
    Foreign,
}

/// An option of a STORE.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreOption {
    /// `size=`
    Size,
    /// `blocksize=`
    BlockSize,
    /// `readonly`
    ReadOnly,
    /// `cache=`
    Cache,
    /// `thin`
    Thin,
    /// `serial=`
    Serial,
    /// `format=`
    Format,
    /// `removable`
    Removable,
    /// `socket=`
    Socket,
    /// `ca=`
    Ca,
    /// `connections=`
    Connections,
    /// `retry=`
    Retry,
    /// `conf=`
    Conf,
    /// `user=`
    User,
    /// `keyring=`
    Keyring,
    /// `takeover=`
    Takeover,
    /// `chunk=`
    Chunk,
    /// `server=`
    Server,
    /// `udp=`
    Udp,
    /// `interface=`
    Interface,
    /// `password_file=`
    PasswordFile,
    /// `initiator=`
    Initiator,
    /// `mutual_user=`
    MutualUser,
    /// `mutual_password_file=`
    MutualPasswordFile,
    /// `level=`
    Level,
}

/// What several kinds have in common, and options of theirs no others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Family {
    /// Another program has the data.
    Servers,
    /// A Ceph cluster has it.
    Clusters,
    /// A server of a HyperSCSI group has it.
    Groups,
    /// An iSCSI target has it.
    Targets,
    /// Named stores have it.
    Compositions,
    /// Another process carries commands out.
    Handlers,
}

impl Family {
    /// Why a store of no such family cannot have an option of it.
    pub(super) const fn missing(self) -> &'static str {
        match self {
            Self::Servers => "there is no server",
            Self::Clusters => "there is no Ceph cluster",
            Self::Groups => "there is no HyperSCSI group",
            Self::Targets => "there is no iSCSI target",
            Self::Compositions => "there are no members",
            Self::Handlers => "there is no handler",
        }
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct KindRow {
    /// The kind.
    pub kind: StoreKind,
    /// The word before the colon; none for a path that stands alone.
    pub word: &'static str,
    /// How the part after the colon is read.
    pub(super) place: PlaceForm,
    /// Where the place names the medium: two stores with one place in one space have one medium. `None` where each
    /// store has a medium of its own, which lives and ends with its unit.
    pub(super) space: Option<&'static str>,
    /// What has to be at the path that the process opens, locks and watches; `None` where there is none.
    pub(super) node: Option<Node>,
    /// What the administration calls the kind, and how it calls the same on a block device.
    pub shown: (&'static str, &'static str),
    /// Whether the data takes memory of the process.
    pub(super) is_memory: bool,
    /// What the unit is. What only a disk can have and do asks this column.
    pub device: DeviceType,
    /// The options that such a store could only ignore, and why.
    pub(super) without: &'static [(StoreOption, &'static str)],
    /// What people call it in a list to choose from.
    pub title: &'static str,
    /// What it is, for the documentation.
    pub meaning: &'static str,
}

const SIZED: &str = "the size follows the colon";
const NO_CACHE: &str = "there is nothing below it to cache";
const NO_IMAGE: &str = "there is no image to look at";
const OWN_SIZE: &str = "a device brings its own size";
const SIZE_OF_DEVICE: &str = "the device brings its own size";
const SIZE_OF_DISK: &str = "the disk brings its own size";
const SIZE_OF_SERVER: &str = "an export brings its own size";
const CACHE_OF_SERVER: &str = "the server has the cache";
const BYTES_OF_SERVER: &str = "the server gives the bytes of the disk";
const NO_TLS: &str = "there is no certificate without TLS; write nbds:";
const NO_SOCKET: &str = "the server is a host; write nbd+unix: for a socket";
pub(super) const SIZE_OF_SNAPSHOT: &str = "a snapshot keeps the size that it has";
const CACHE_OF_IMAGE: &str = "the cache of librbd is always off";
const BYTES_OF_IMAGE: &str = "the cluster gives the bytes of the disk";
const BLOCKS_OF_LUN: &str = "a snapshot has the blocks of its lun";
const FORMAT_OF_LUN: &str = "a snapshot is read as its lun is";
const NO_WRITES: &str = "a snapshot is only read";
const OF_MEMBERS: &str = "write it in the [[store]] of each member";
const NO_CHUNKS: &str = "a concat has no chunks";
const DISC: &str = "a disc is only read";
const SIZE_OF_DISC: &str = "a disc keeps the size that it has";
const BLOCKS_OF_DISC: &str = "a disc has blocks of 2048 bytes";
const FORMAT_OF_DISC: &str = "a disc is read as it is";
const REMOVABLE_DISC: &str = "a disc always is";
const OWN_BLOCKS: &str = "the device has blocks of its own, if any";
const OWN_CACHE: &str = "the device has the cache, if any";
const OWN_MEDIUM: &str = "the device says what can be done with its medium";
const READ_BY_TARGET: &str = "write readonly at the target";

/// All kinds, in the order of the documentation.
#[rustfmt::skip] // One kind a block, one column a line.
pub const KINDS: [KindRow; 17] = [
    KindRow {
        kind: StoreKind::Path, word: "", place: PlaceForm::Path,
        space: Some(""), node: Some(Node::FileOrDevice), shown: ("file", "block"), is_memory: false, device: DeviceType::Disk,
        without: &[],
        title: "File or block device",
        meaning: "a file or a block device, whichever is there",
    },
    KindRow {
        kind: StoreKind::File, word: "file", place: PlaceForm::Path,
        space: Some(""), node: Some(Node::File), shown: ("file", "file"), is_memory: false, device: DeviceType::Disk,
        without: &[],
        title: "File",
        meaning: "a regular file",
    },
    KindRow {
        kind: StoreKind::Block, word: "block", place: PlaceForm::Path,
        space: Some(""), node: Some(Node::Device), shown: ("block", "block"), is_memory: false, device: DeviceType::Disk,
        without: &[(StoreOption::Size, OWN_SIZE)],
        title: "Block device",
        meaning: "a block device",
    },
    KindRow {
        kind: StoreKind::Memory, word: "mem", place: PlaceForm::Size,
        space: None, node: None, shown: ("memory", "memory"), is_memory: true, device: DeviceType::Disk,
        without: &[(StoreOption::Size, SIZED), (StoreOption::Cache, NO_CACHE), (StoreOption::Format, NO_IMAGE)],
        title: "Memory",
        meaning: "memory, gone when Tarn ends",
    },
    KindRow {
        kind: StoreKind::Null, word: "null", place: PlaceForm::Size,
        space: None, node: None, shown: ("null", "null"), is_memory: false, device: DeviceType::Disk,
        without: &[(StoreOption::Size, SIZED), (StoreOption::Cache, NO_CACHE), (StoreOption::Format, NO_IMAGE)],
        title: "Nothing",
        meaning: "nothing: writes are dropped, reads are zeros; for measuring",
    },
    KindRow {
        kind: StoreKind::Nbd, word: "nbd", place: PlaceForm::Server,
        space: Some("nbd"), node: None, shown: ("nbd", "nbd"), is_memory: false, device: DeviceType::Disk,
        without: &[
            (StoreOption::Size, SIZE_OF_SERVER), (StoreOption::Cache, CACHE_OF_SERVER),
            (StoreOption::Format, BYTES_OF_SERVER), (StoreOption::Ca, NO_TLS), (StoreOption::Socket, NO_SOCKET),
        ],
        title: "NBD export",
        meaning: "an export of an NBD server",
    },
    KindRow {
        kind: StoreKind::Nbds, word: "nbds", place: PlaceForm::Server,
        space: Some("nbd"), node: None, shown: ("nbd", "nbd"), is_memory: false, device: DeviceType::Disk,
        without: &[
            (StoreOption::Size, SIZE_OF_SERVER), (StoreOption::Cache, CACHE_OF_SERVER),
            (StoreOption::Format, BYTES_OF_SERVER), (StoreOption::Socket, NO_SOCKET),
        ],
        title: "NBD export over TLS",
        meaning: "an export of an NBD server, over TLS",
    },
    KindRow {
        kind: StoreKind::NbdUnix, word: "nbd+unix", place: PlaceForm::Socket,
        space: Some("nbd+unix"), node: None, shown: ("nbd", "nbd"), is_memory: false, device: DeviceType::Disk,
        without: &[
            (StoreOption::Size, SIZE_OF_SERVER), (StoreOption::Cache, CACHE_OF_SERVER),
            (StoreOption::Format, BYTES_OF_SERVER), (StoreOption::Ca, NO_TLS),
        ],
        title: "NBD export on a unix socket",
        meaning: "an export of an NBD server on a unix socket",
    },
    KindRow {
        kind: StoreKind::Rbd, word: "rbd", place: PlaceForm::Image,
        space: Some("rbd"), node: None, shown: ("rbd", "rbd"), is_memory: false, device: DeviceType::Disk,
        without: &[
            (StoreOption::Cache, CACHE_OF_IMAGE), (StoreOption::Format, BYTES_OF_IMAGE),
        ],
        title: "Ceph RBD image",
        meaning: "an image of a Ceph cluster, or a snapshot of one (needs librbd1)",
    },
    KindRow {
        kind: StoreKind::Hyperscsi, word: "hyperscsi", place: PlaceForm::Device,
        space: Some("hyperscsi"), node: None, shown: ("hyperscsi", "hyperscsi"), is_memory: false, device: DeviceType::Disk,
        without: &[
            (StoreOption::Size, SIZE_OF_DEVICE), (StoreOption::Cache, CACHE_OF_SERVER),
            (StoreOption::Format, BYTES_OF_SERVER),
        ],
        title: "HyperSCSI device",
        meaning: "a device of a HyperSCSI group",
    },
    KindRow {
        kind: StoreKind::Iscsi, word: "iscsi", place: PlaceForm::Lun,
        space: Some("iscsi"), node: None, shown: ("iscsi", "iscsi"), is_memory: false, device: DeviceType::Disk,
        without: &[
            (StoreOption::Size, SIZE_OF_DISK), (StoreOption::Cache, CACHE_OF_SERVER),
            (StoreOption::Format, BYTES_OF_SERVER),
        ],
        title: "iSCSI disk",
        meaning: "a disk of an iSCSI target",
    },
    KindRow {
        kind: StoreKind::Snapshot, word: "snap", place: PlaceForm::Snapshot,
        space: Some(""), node: Some(Node::File), shown: ("snapshot", "snapshot"), is_memory: false, device: DeviceType::Disk,
        without: &[
            (StoreOption::Size, SIZE_OF_SNAPSHOT), (StoreOption::BlockSize, BLOCKS_OF_LUN), (StoreOption::Cache, NO_WRITES),
            (StoreOption::Thin, NO_WRITES), (StoreOption::Format, FORMAT_OF_LUN), (StoreOption::Removable, NO_WRITES),
        ],
        title: "Snapshot",
        meaning: "a snapshot of a LUN of this configuration, which is only read",
    },
    KindRow {
        kind: StoreKind::Stripe, word: "stripe", place: PlaceForm::Members { count_min: 2 },
        space: None, node: None, shown: ("stripe", "stripe"), is_memory: false, device: DeviceType::Disk,
        without: &[
            (StoreOption::Size, OF_MEMBERS), (StoreOption::BlockSize, OF_MEMBERS), (StoreOption::Cache, OF_MEMBERS),
            (StoreOption::Thin, OF_MEMBERS), (StoreOption::Format, OF_MEMBERS),
        ],
        title: "Stripe",
        meaning: "2 to 16 named stores (`[[store]]`), a chunk of each in turn",
    },
    KindRow {
        kind: StoreKind::Concat, word: "concat", place: PlaceForm::Members { count_min: 1 },
        space: None, node: None, shown: ("concat", "concat"), is_memory: false, device: DeviceType::Disk,
        without: &[
            (StoreOption::Size, OF_MEMBERS), (StoreOption::BlockSize, OF_MEMBERS), (StoreOption::Cache, OF_MEMBERS),
            (StoreOption::Thin, OF_MEMBERS), (StoreOption::Format, OF_MEMBERS), (StoreOption::Chunk, NO_CHUNKS),
        ],
        title: "Concat",
        meaning: "1 to 16 named stores (`[[store]]`), one behind the other; more can be added at its end",
    },
    KindRow {
        kind: StoreKind::Cdrom, word: "cdrom", place: PlaceForm::Disc,
        space: Some(""), node: Some(Node::File), shown: ("cdrom", "cdrom"), is_memory: false, device: DeviceType::Optical,
        without: &[
            (StoreOption::Size, SIZE_OF_DISC), (StoreOption::BlockSize, BLOCKS_OF_DISC), (StoreOption::ReadOnly, DISC),
            (StoreOption::Cache, DISC), (StoreOption::Thin, DISC), (StoreOption::Format, FORMAT_OF_DISC),
            (StoreOption::Removable, REMOVABLE_DISC),
        ],
        title: "CD or DVD drive",
        meaning: "a CD or DVD drive with an ISO file in it, or an empty one (`cdrom:`)",
    },
    KindRow {
        kind: StoreKind::Scsi, word: "scsi", place: PlaceForm::Foreign,
        space: Some("iscsi"), node: None, shown: ("scsi", "scsi"), is_memory: false, device: DeviceType::Foreign,
        without: &[
            (StoreOption::Size, SIZE_OF_DEVICE), (StoreOption::BlockSize, OWN_BLOCKS), (StoreOption::ReadOnly, READ_BY_TARGET),
            (StoreOption::Cache, OWN_CACHE), (StoreOption::Thin, OWN_MEDIUM), (StoreOption::Format, OWN_BLOCKS),
            (StoreOption::Removable, OWN_MEDIUM),
        ],
        title: "SCSI device",
        meaning: "a SCSI device of any type, passed through: `/dev/NODE` of this machine, or `iscsi://HOST[:PORT]/TARGET/LUN`",
    },
    KindRow {
        kind: StoreKind::Handler, word: "handler", place: PlaceForm::Handler,
        space: Some(""), node: None, shown: ("handler", "handler"), is_memory: false, device: DeviceType::Foreign,
        without: &[
            (StoreOption::Size, SIZE_OF_DEVICE), (StoreOption::BlockSize, OWN_BLOCKS), (StoreOption::ReadOnly, READ_BY_TARGET),
            (StoreOption::Cache, OWN_CACHE), (StoreOption::Thin, OWN_MEDIUM), (StoreOption::Format, OWN_BLOCKS),
            (StoreOption::Removable, OWN_MEDIUM),
        ],
        title: "Handler",
        meaning: "a device of any type that another process emulates, which listens on a unix socket",
    },
];

impl StoreKind {
    /// Its row.
    pub fn row(self) -> &'static KindRow {
        let [first, ..] = &KINDS;
        KINDS.iter().find(|row| row.kind == self).unwrap_or(first)
    }

    /// What messages call it.
    pub(crate) fn name(self) -> &'static str {
        match self.row().word {
            "" => "path",
            word => word,
        }
    }
}

impl KindRow {
    /// How a store of the kind is written, as in `file:PATH`.
    pub fn usage(&self) -> String {
        match self.word {
            "" => self.place.word().to_owned(),
            word => format!("{word}:{}", self.place.word()),
        }
    }

    /// What stands after the colon, as the documentation writes it: `PATH` or `SIZE`.
    pub fn place_word(&self) -> &'static str {
        self.place.word()
    }

    pub(super) const fn family(&self) -> Option<Family> {
        match self.place {
            PlaceForm::Server | PlaceForm::Socket => Some(Family::Servers),
            PlaceForm::Image => Some(Family::Clusters),
            PlaceForm::Device => Some(Family::Groups),
            PlaceForm::Lun | PlaceForm::Foreign => Some(Family::Targets),
            PlaceForm::Members { .. } => Some(Family::Compositions),
            PlaceForm::Handler => Some(Family::Handlers),
            PlaceForm::Path | PlaceForm::Size | PlaceForm::Snapshot | PlaceForm::Disc => None,
        }
    }

    /// Whether named stores have the data.
    pub fn is_composition(&self) -> bool {
        matches!(self.place, PlaceForm::Members { .. })
    }

    /// How it is written before the options, as a regular expression of ECMA-262.
    pub(super) fn pattern(&self) -> String {
        match self.word {
            "" => format!("(?![A-Za-z0-9+]+:){}", self.place.pattern()),
            word => format!("{}:{}", word.replace('+', r"\+"), self.place.pattern()),
        }
    }
}

/// What may be at a path that a store opens, locks and watches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Node {
    /// A regular file or a block device.
    FileOrDevice,
    /// A regular file.
    File,
    /// A block device.
    Device,
}

impl Node {
    /// Whether a regular file may be there.
    pub const fn takes_files(self) -> bool {
        matches!(self, Self::FileOrDevice | Self::File)
    }

    /// Whether a block device may be there.
    pub const fn takes_devices(self) -> bool {
        matches!(self, Self::FileOrDevice | Self::Device)
    }

    /// What has to be there, and what to write for something else.
    pub const fn wanted(self) -> &'static str {
        match self {
            Self::FileOrDevice => "a regular file or a block device",
            Self::File => "a regular file, or write block: for a block device",
            Self::Device => "a block device, or write file: for a regular file",
        }
    }
}

/// How the part after the colon is read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PlaceForm {
    /// A path.
    Path,
    /// A size.
    Size,
    /// A server and the name of an export.
    Server,
    /// The name of an export. The server's socket is an option.
    Socket,
    /// An image of a pool.
    Image,
    /// A device of a group.
    Device,
    /// A logical unit of a target.
    Lun,
    /// A unit and a snapshot of it.
    Snapshot,
    /// A path, or nothing.
    Disc,
    /// A device, wherever it is.
    Foreign,
    /// The path of a socket.
    Handler,
    /// The ids of named stores.
    Members {
        /// How many there are at least.
        count_min: usize,
    },
}

impl PlaceForm {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Path => "PATH",
            Self::Size => "SIZE",
            Self::Server => "//HOST[:PORT][/EXPORT]",
            Self::Socket => "///[EXPORT]?socket=PATH",
            Self::Image => "POOL[/NAMESPACE]/IMAGE[@SNAP]",
            Self::Device => "//GROUP/DEVICE",
            Self::Lun => "//HOST[:PORT]/TARGET/LUN",
            Self::Snapshot => "LUN@NAME",
            Self::Disc => "[PATH]",
            Self::Foreign => "DEVICE",
            Self::Handler => "SOCKET",
            Self::Members { .. } => "ID,...",
        }
    }

    /// How it is written, for messages.
    pub(super) const fn usage(self) -> &'static str {
        match matches!(self, Self::Foreign) {
            true => "/dev/NODE or iscsi://HOST[:PORT]/TARGET/LUN",
            false => self.word(),
        }
    }

    fn pattern(self) -> &'static str {
        match self {
            Self::Path | Self::Handler => "[^?]+",
            // Without the anchors of the pattern that stands alone.
            Self::Size => SIZE.trim_start_matches('^').trim_end_matches('$'),
            Self::Server => r"//[^/?]+(?:/[^?]*)?",
            Self::Socket => r"//(?:/[^?]*)?",
            Self::Image => "[^?/]+(?:/[^?/]+){1,2}",
            Self::Device => "//[^?/]+/[^?/]+",
            Self::Lun => "//[^?/]+/[^?/]+/[0-9]{1,5}",
            Self::Snapshot => "[A-Za-z0-9._-]+@[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
            Self::Disc => "[^?]*",
            Self::Foreign => "(?:/dev/[^?]+|iscsi://[^?/]+/[^?/]+/[0-9]{1,5})",
            Self::Members { .. } => "[^?]+",
        }
    }
}

/// How each kind is written, for messages.
pub(super) fn usages() -> String {
    let usages: Vec<_> = KINDS.iter().map(KindRow::usage).collect();
    or_list(&usages)
}

/// The words of all kinds that have one, for messages.
pub(super) fn words() -> String {
    let words = KINDS
        .iter()
        .map(|row| row.word)
        .filter(|word| !word.is_empty());
    or_list(&words.collect::<Vec<_>>())
}

/// `a, b or c`.
pub(super) fn or_list<T: AsRef<str>>(words: &[T]) -> String {
    joined(words, "or")
}

/// `a, b and c`.
pub(super) fn and_list<T: AsRef<str>>(words: &[T]) -> String {
    joined(words, "and")
}

fn joined<T: AsRef<str>>(words: &[T], joint: &str) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [before @ .., last] => format!("{} {joint} {last}", before.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_one_row_and_a_word_of_its_own() {
        for row in &KINDS {
            assert_eq!(row.kind.row().word, row.word);
            let same = KINDS.iter().filter(|other| other.word == row.word);
            assert_eq!(same.count(), 1, "{:?}", row.word);
            assert!(
                row.word.is_empty() || crate::store::spec::is_kind_word(row.word),
                "{:?}",
                row.word
            );
        }
    }

    #[test]
    fn whatever_has_a_node_has_a_medium() {
        for row in &KINDS {
            assert!(row.node.is_none() || row.space.is_some(), "{:?}", row.word);
        }
    }
}
