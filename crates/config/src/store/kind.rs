//! The table of store kinds. Whatever depends on the kind of a store asks a column of it: the reader and the schema,
//! the plan of a change, identities, the administration's views, the documentation, the import.
//!
//! A new kind is a row here and the store itself; a place of a new form is a variant of [`StorePlace`] besides.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use super::device::GroupDevice;
use super::export::Export;
use super::image::Image;
use super::lun::FarLun;
use super::members::Members;
use super::option::StoreOption;
use super::snapshot::SnapshotOf;
use crate::keys::{SIZE, size_text};
use crate::{StoreRule, parse_size};

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
}

impl Family {
    /// Why a store of no such family cannot have an option of it.
    const fn missing(self) -> &'static str {
        match self {
            Self::Servers => "there is no server",
            Self::Clusters => "there is no Ceph cluster",
            Self::Groups => "there is no HyperSCSI group",
            Self::Targets => "there is no iSCSI target",
            Self::Compositions => "there are no members",
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
    place: PlaceForm,
    /// Where the place names the medium: two stores with one place in one space have one medium. `None` where each
    /// store has a medium of its own, which lives and ends with its unit.
    space: Option<&'static str>,
    /// What has to be at the path that the process opens, locks and watches; `None` where there is none.
    pub(super) node: Option<Node>,
    /// What the administration calls the kind, and how it calls the same on a block device.
    pub shown: (&'static str, &'static str),
    /// Whether the data takes memory of the process.
    is_memory: bool,
    /// The options that such a store could only ignore, and why.
    without: &'static [(StoreOption, &'static str)],
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

/// All kinds, in the order of the documentation.
#[rustfmt::skip] // One kind a block, one column a line.
pub const KINDS: [KindRow; 14] = [
    KindRow {
        kind: StoreKind::Path, word: "", place: PlaceForm::Path,
        space: Some(""), node: Some(Node::FileOrDevice), shown: ("file", "block"), is_memory: false,
        without: &[],
        title: "File or block device",
        meaning: "a file or a block device, whichever is there",
    },
    KindRow {
        kind: StoreKind::File, word: "file", place: PlaceForm::Path,
        space: Some(""), node: Some(Node::File), shown: ("file", "file"), is_memory: false,
        without: &[],
        title: "File",
        meaning: "a regular file",
    },
    KindRow {
        kind: StoreKind::Block, word: "block", place: PlaceForm::Path,
        space: Some(""), node: Some(Node::Device), shown: ("block", "block"), is_memory: false,
        without: &[(StoreOption::Size, OWN_SIZE)],
        title: "Block device",
        meaning: "a block device",
    },
    KindRow {
        kind: StoreKind::Memory, word: "mem", place: PlaceForm::Size,
        space: None, node: None, shown: ("memory", "memory"), is_memory: true,
        without: &[(StoreOption::Size, SIZED), (StoreOption::Cache, NO_CACHE), (StoreOption::Format, NO_IMAGE)],
        title: "Memory",
        meaning: "memory, gone when Tarn ends",
    },
    KindRow {
        kind: StoreKind::Null, word: "null", place: PlaceForm::Size,
        space: None, node: None, shown: ("null", "null"), is_memory: false,
        without: &[(StoreOption::Size, SIZED), (StoreOption::Cache, NO_CACHE), (StoreOption::Format, NO_IMAGE)],
        title: "Nothing",
        meaning: "nothing: writes are dropped, reads are zeros; for measuring",
    },
    KindRow {
        kind: StoreKind::Nbd, word: "nbd", place: PlaceForm::Server,
        space: Some("nbd"), node: None, shown: ("nbd", "nbd"), is_memory: false,
        without: &[
            (StoreOption::Size, SIZE_OF_SERVER), (StoreOption::Cache, CACHE_OF_SERVER),
            (StoreOption::Format, BYTES_OF_SERVER), (StoreOption::Ca, NO_TLS), (StoreOption::Socket, NO_SOCKET),
        ],
        title: "NBD export",
        meaning: "an export of an NBD server",
    },
    KindRow {
        kind: StoreKind::Nbds, word: "nbds", place: PlaceForm::Server,
        space: Some("nbd"), node: None, shown: ("nbd", "nbd"), is_memory: false,
        without: &[
            (StoreOption::Size, SIZE_OF_SERVER), (StoreOption::Cache, CACHE_OF_SERVER),
            (StoreOption::Format, BYTES_OF_SERVER), (StoreOption::Socket, NO_SOCKET),
        ],
        title: "NBD export over TLS",
        meaning: "an export of an NBD server, over TLS",
    },
    KindRow {
        kind: StoreKind::NbdUnix, word: "nbd+unix", place: PlaceForm::Socket,
        space: Some("nbd+unix"), node: None, shown: ("nbd", "nbd"), is_memory: false,
        without: &[
            (StoreOption::Size, SIZE_OF_SERVER), (StoreOption::Cache, CACHE_OF_SERVER),
            (StoreOption::Format, BYTES_OF_SERVER), (StoreOption::Ca, NO_TLS),
        ],
        title: "NBD export on a unix socket",
        meaning: "an export of an NBD server on a unix socket",
    },
    KindRow {
        kind: StoreKind::Rbd, word: "rbd", place: PlaceForm::Image,
        space: Some("rbd"), node: None, shown: ("rbd", "rbd"), is_memory: false,
        without: &[
            (StoreOption::Cache, CACHE_OF_IMAGE), (StoreOption::Format, BYTES_OF_IMAGE),
        ],
        title: "Ceph RBD image",
        meaning: "an image of a Ceph cluster, or a snapshot of one (needs librbd1)",
    },
    KindRow {
        kind: StoreKind::Hyperscsi, word: "hyperscsi", place: PlaceForm::Device,
        space: Some("hyperscsi"), node: None, shown: ("hyperscsi", "hyperscsi"), is_memory: false,
        without: &[
            (StoreOption::Size, SIZE_OF_DEVICE), (StoreOption::Cache, CACHE_OF_SERVER),
            (StoreOption::Format, BYTES_OF_SERVER),
        ],
        title: "HyperSCSI device",
        meaning: "a device of a HyperSCSI group",
    },
    KindRow {
        kind: StoreKind::Iscsi, word: "iscsi", place: PlaceForm::Lun,
        space: Some("iscsi"), node: None, shown: ("iscsi", "iscsi"), is_memory: false,
        without: &[
            (StoreOption::Size, SIZE_OF_DISK), (StoreOption::Cache, CACHE_OF_SERVER),
            (StoreOption::Format, BYTES_OF_SERVER),
        ],
        title: "iSCSI disk",
        meaning: "a disk of an iSCSI target",
    },
    KindRow {
        kind: StoreKind::Snapshot, word: "snap", place: PlaceForm::Snapshot,
        space: Some(""), node: Some(Node::File), shown: ("snapshot", "snapshot"), is_memory: false,
        without: &[
            (StoreOption::Size, SIZE_OF_SNAPSHOT), (StoreOption::BlockSize, BLOCKS_OF_LUN), (StoreOption::Cache, NO_WRITES),
            (StoreOption::Thin, NO_WRITES), (StoreOption::Format, FORMAT_OF_LUN), (StoreOption::Removable, NO_WRITES),
        ],
        title: "Snapshot",
        meaning: "a snapshot of a LUN of this configuration, which is only read",
    },
    KindRow {
        kind: StoreKind::Stripe, word: "stripe", place: PlaceForm::Members { count_min: 2 },
        space: None, node: None, shown: ("stripe", "stripe"), is_memory: false,
        without: &[
            (StoreOption::Size, OF_MEMBERS), (StoreOption::BlockSize, OF_MEMBERS), (StoreOption::Cache, OF_MEMBERS),
            (StoreOption::Thin, OF_MEMBERS), (StoreOption::Format, OF_MEMBERS),
        ],
        title: "Stripe",
        meaning: "2 to 16 named stores (`[[store]]`), a chunk of each in turn",
    },
    KindRow {
        kind: StoreKind::Concat, word: "concat", place: PlaceForm::Members { count_min: 1 },
        space: None, node: None, shown: ("concat", "concat"), is_memory: false,
        without: &[
            (StoreOption::Size, OF_MEMBERS), (StoreOption::BlockSize, OF_MEMBERS), (StoreOption::Cache, OF_MEMBERS),
            (StoreOption::Thin, OF_MEMBERS), (StoreOption::Format, OF_MEMBERS), (StoreOption::Chunk, NO_CHUNKS),
        ],
        title: "Concat",
        meaning: "1 to 16 named stores (`[[store]]`), one behind the other; more can be added at its end",
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

    /// Whether it takes an option.
    pub fn takes(&self, option: StoreOption) -> bool {
        self.check(option).is_ok()
    }

    /// Whether it takes an option, or else why not.
    pub(super) fn check(&self, option: StoreOption) -> Result<(), &'static str> {
        let of = option.row().of;
        let is_its = self.family().is_some_and(|family| of.contains(&family));
        if let Some(family) = of.first().filter(|_| !is_its) {
            return Err(family.missing());
        }
        let refusal = self.without.iter().find(|refusal| refusal.0 == option);
        refusal.map_or(Ok(()), |refusal| Err(refusal.1))
    }

    const fn family(&self) -> Option<Family> {
        match self.place {
            PlaceForm::Server | PlaceForm::Socket => Some(Family::Servers),
            PlaceForm::Image => Some(Family::Clusters),
            PlaceForm::Device => Some(Family::Groups),
            PlaceForm::Lun => Some(Family::Targets),
            PlaceForm::Members { .. } => Some(Family::Compositions),
            PlaceForm::Path | PlaceForm::Size | PlaceForm::Snapshot => None,
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

/// The medium of a store: what no two units may have at a time.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Medium<'a> {
    space: &'static str,
    name: &'a OsStr,
}

impl fmt::Display for Medium<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.space.is_empty() {
            write!(f, "{}:", self.space)?;
        }
        self.name.display().fmt(f)
    }
}

/// How the part after the colon is read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum PlaceForm {
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
    /// The ids of named stores.
    Members {
        /// How many there are at least.
        count_min: usize,
    },
}

/// What stands after the colon.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StorePlace {
    /// A path on this machine.
    Path(PathBuf),
    /// A size in bytes: the data has no place of its own.
    Size(u64),
    /// An export of a server.
    Export(Export),
    /// An image of a Ceph cluster.
    Image(Image),
    /// A device of a HyperSCSI group.
    Device(GroupDevice),
    /// A logical unit of an iSCSI target.
    Lun(FarLun),
    /// A snapshot of a unit.
    Snapshot(SnapshotOf),
    /// Named stores.
    Members(Members),
}

impl PlaceForm {
    /// Reads it; `text` is the whole STORE, for messages.
    fn read(self, text: &str, place: &str) -> Result<StorePlace, StoreRule> {
        Ok(match self {
            Self::Path => StorePlace::Path(parse_path(text, place)?),
            Self::Size => StorePlace::Size(parse_size(place)?),
            Self::Server => StorePlace::Export(self.take(text, Export::of_server(place))?),
            Self::Socket => StorePlace::Export(self.take(text, Export::of_socket(place))?),
            Self::Image => StorePlace::Image(self.take(text, Image::parse(place))?),
            Self::Device => StorePlace::Device(self.take(text, GroupDevice::parse(place))?),
            Self::Lun => StorePlace::Lun(self.take(text, FarLun::parse(place))?),
            Self::Snapshot => StorePlace::Snapshot(self.take(text, SnapshotOf::parse(place))?),
            Self::Members { count_min } => {
                StorePlace::Members(Members::parse(text, place, count_min)?)
            }
        })
    }

    fn take<T>(self, text: &str, read: Result<T, &'static str>) -> Result<T, StoreRule> {
        read.map_err(|problem| StoreRule::Server {
            text: text.to_owned(),
            problem,
            usage: self.word(),
        })
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Path => "PATH",
            Self::Size => "SIZE",
            Self::Server => "//HOST[:PORT][/EXPORT]",
            Self::Socket => "///[EXPORT]?socket=PATH",
            Self::Image => "POOL[/NAMESPACE]/IMAGE[@SNAP]",
            Self::Device => "//GROUP/DEVICE",
            Self::Lun => "//HOST[:PORT]/TARGET/LUN",
            Self::Snapshot => "LUN@NAME",
            Self::Members { .. } => "ID,...",
        }
    }

    fn pattern(self) -> &'static str {
        match self {
            Self::Path => "[^?]+",
            // Without the anchors of the pattern that stands alone.
            Self::Size => SIZE.trim_start_matches('^').trim_end_matches('$'),
            Self::Server => r"//[^/?]+(?:/[^?]*)?",
            Self::Socket => r"//(?:/[^?]*)?",
            Self::Image => "[^?/]+(?:/[^?/]+){1,2}",
            Self::Device => "//[^?/]+/[^?/]+",
            Self::Lun => "//[^?/]+/[^?/]+/[0-9]{1,5}",
            Self::Snapshot => "[A-Za-z0-9._-]+@[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
            Self::Members { .. } => "[^?]+",
        }
    }
}

/// A kind of store with its place.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreAt {
    /// The kind.
    pub kind: StoreKind,
    /// What stands after the colon.
    pub place: StorePlace,
}

impl StoreAt {
    /// Reads the part before the question mark; `text` is the whole STORE, for messages.
    pub(super) fn parse(text: &str, place: &str) -> Result<Self, StoreRule> {
        let (word, rest) = match place.split_once(':') {
            // What has a slash before the colon, or no letters, is a path with a colon in it.
            Some((word, rest)) if is_kind_word(word) => (word, rest),
            Some(_) | None => ("", place),
        };
        let row = KINDS.iter().find(|row| row.word == word);
        let row = row.ok_or_else(|| StoreRule::KindUnknown {
            kind: word.to_owned(),
            remedy: format!("file:{place}"),
            known: words(),
        })?;
        Ok(Self {
            kind: row.kind,
            place: row.place.read(text, rest)?,
        })
    }

    /// A file or device at a path.
    pub fn path(path: impl Into<PathBuf>) -> Self {
        Self {
            kind: StoreKind::Path,
            place: StorePlace::Path(path.into()),
        }
    }

    /// Memory, or nothing at all, of a size in bytes.
    pub const fn sized(kind: StoreKind, size_bytes: u64) -> Self {
        Self {
            kind,
            place: StorePlace::Size(size_bytes),
        }
    }

    /// What the process has to open, lock and watch, and the path where it is.
    pub fn node(&self) -> Option<(&Path, Node)> {
        match &self.place {
            StorePlace::Path(path) => Some((path, self.kind.row().node?)),
            StorePlace::Snapshot(snapshot) => snapshot.at()?.node(),
            StorePlace::Size(_)
            | StorePlace::Export(_)
            | StorePlace::Image(_)
            | StorePlace::Device(_)
            | StorePlace::Lun(_)
            | StorePlace::Members(_) => None,
        }
    }

    /// The medium, unless the store has one of its own that ends with its unit. A composition has those of its
    /// members: [`crate::Unit::media`].
    pub fn medium(&self) -> Option<Medium<'_>> {
        let space = self.kind.row().space?;
        let name = match &self.place {
            StorePlace::Path(path) => path.as_os_str(),
            StorePlace::Export(export) => OsStr::new(export.text()),
            StorePlace::Image(image) => OsStr::new(image.text()),
            StorePlace::Device(device) => OsStr::new(device.text()),
            StorePlace::Lun(lun) => OsStr::new(lun.text()),
            StorePlace::Snapshot(snapshot) => return snapshot.at()?.medium(),
            StorePlace::Size(_) | StorePlace::Members(_) => return None,
        };
        Some(Medium { space, name })
    }

    /// The export, if a server has the data.
    pub fn export(&self) -> Option<&Export> {
        match &self.place {
            StorePlace::Export(export) => Some(export),
            StorePlace::Path(_)
            | StorePlace::Size(_)
            | StorePlace::Image(_)
            | StorePlace::Device(_)
            | StorePlace::Lun(_)
            | StorePlace::Snapshot(_)
            | StorePlace::Members(_) => None,
        }
    }

    /// The image, if a Ceph cluster has the data.
    pub fn image(&self) -> Option<&Image> {
        match &self.place {
            StorePlace::Image(image) => Some(image),
            StorePlace::Path(_)
            | StorePlace::Size(_)
            | StorePlace::Export(_)
            | StorePlace::Device(_)
            | StorePlace::Lun(_)
            | StorePlace::Snapshot(_)
            | StorePlace::Members(_) => None,
        }
    }

    /// The device, if a HyperSCSI server has the data.
    pub fn device(&self) -> Option<&GroupDevice> {
        match &self.place {
            StorePlace::Device(device) => Some(device),
            StorePlace::Path(_)
            | StorePlace::Size(_)
            | StorePlace::Export(_)
            | StorePlace::Image(_)
            | StorePlace::Lun(_)
            | StorePlace::Snapshot(_)
            | StorePlace::Members(_) => None,
        }
    }

    /// The logical unit, if an iSCSI target has the data.
    pub fn target_lun(&self) -> Option<&FarLun> {
        match &self.place {
            StorePlace::Lun(lun) => Some(lun),
            StorePlace::Path(_)
            | StorePlace::Size(_)
            | StorePlace::Export(_)
            | StorePlace::Image(_)
            | StorePlace::Device(_)
            | StorePlace::Snapshot(_)
            | StorePlace::Members(_) => None,
        }
    }

    /// The memory of the process that the data takes when all of it is written, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.fixed_size_bytes()
            .filter(|_| self.kind.row().is_memory)
            .unwrap_or(0)
    }

    /// The size, if it is what stands after the colon.
    pub(crate) fn fixed_size_bytes(&self) -> Option<u64> {
        match self.place {
            StorePlace::Size(size_bytes) => Some(size_bytes),
            StorePlace::Path(_)
            | StorePlace::Export(_)
            | StorePlace::Image(_)
            | StorePlace::Device(_)
            | StorePlace::Lun(_)
            | StorePlace::Snapshot(_)
            | StorePlace::Members(_) => None,
        }
    }

    /// Makes a relative path one below `directory`.
    pub(super) fn below(&mut self, directory: &Path) {
        match &mut self.place {
            // `./a` is `a`, so that one file has one path.
            StorePlace::Path(path) => *path = directory.join(&path).components().collect(),
            StorePlace::Export(export) => export.below(directory),
            StorePlace::Image(image) => image.below(directory),
            StorePlace::Device(device) => device.below(directory),
            StorePlace::Lun(lun) => lun.below(directory),
            StorePlace::Size(_) | StorePlace::Snapshot(_) | StorePlace::Members(_) => {}
        }
    }

    /// The store without its size: what changes when it is another one.
    pub(crate) fn without_size(&self) -> String {
        match &self.place {
            StorePlace::Path(_)
            | StorePlace::Export(_)
            | StorePlace::Image(_)
            | StorePlace::Device(_)
            | StorePlace::Lun(_)
            | StorePlace::Members(_) => self.before_options(),
            // By whatever name the unit goes, it is the same store.
            StorePlace::Snapshot(snapshot) => match snapshot.at() {
                Some(at) => format!("snap:{}", at.before_options()),
                None => self.before_options(),
            },
            StorePlace::Size(_) => self.kind.name().to_owned(),
        }
    }

    /// As it is written before the question mark.
    pub(super) fn before_options(&self) -> String {
        let word = self.kind.row().word;
        let place = match &self.place {
            StorePlace::Path(path) => escaped(path),
            StorePlace::Size(bytes) => size_text(*bytes),
            StorePlace::Export(export) => export.before_options(),
            StorePlace::Image(image) => image.before_options(),
            StorePlace::Device(device) => device.before_options(),
            StorePlace::Lun(lun) => lun.text().to_owned(),
            StorePlace::Snapshot(snapshot) => snapshot.text(),
            StorePlace::Members(members) => members.text(),
        };
        let is_plain = word.is_empty();
        let reads_as_kind = place
            .split_once(':')
            .is_some_and(|(word, _)| is_kind_word(word));
        match (is_plain, reads_as_kind) {
            (true, true) => format!("./{place}"),
            (true, false) => place,
            (false, _) => format!("{word}:{place}"),
        }
    }
}

/// As it is written in a STORE.
impl fmt::Display for StoreAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.before_options())?;
        let socket = self.export().and_then(Export::socket);
        let socket = socket.map(|socket| format!("socket={socket}"));
        let options = socket.or_else(|| self.image().map(Image::options));
        let options = options.or_else(|| self.device().map(GroupDevice::options));
        let options = options.or_else(|| self.target_lun().map(FarLun::options));
        let mut options = options.iter().filter(|options| !options.is_empty());
        options.try_for_each(|options| write!(f, "?{options}"))
    }
}

/// How each kind is written, for messages.
fn usages() -> String {
    let usages: Vec<_> = KINDS.iter().map(KindRow::usage).collect();
    or_list(&usages)
}

/// The words of all kinds that have one, for messages.
fn words() -> String {
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

fn is_kind_word(word: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+';
    !word.is_empty() && word.bytes().all(is_part)
}

fn parse_path(text: &str, path: &str) -> Result<PathBuf, StoreRule> {
    let text = text.to_owned();
    if path.is_empty() {
        let usages = usages();
        return Err(StoreRule::PathMissing { text, usages });
    }
    if path.contains('\0') {
        return Err(StoreRule::PathHasNul { text });
    }
    Ok(PathBuf::from(unescape(path, IN_PATH)))
}

/// What has a meaning of its own in a path.
const IN_PATH: Escapes = &[('%', "25"), ('?', "3F")];

/// Characters, and the hexadecimal digits that stand for each after a percent sign. The percent sign comes first.
pub(super) type Escapes = &'static [(char, &'static str)];

fn escaped(path: &Path) -> String {
    escape(&path.display().to_string(), IN_PATH)
}

/// Writes these characters as a percent sign with their digits.
pub(super) fn escape(text: &str, escapes: Escapes) -> String {
    escapes
        .iter()
        .fold(text.to_owned(), |text, (character, digits)| {
            text.replace(*character, &format!("%{digits}"))
        })
}

/// Turns percent signs with the digits of these characters into the characters; all others stay.
pub(super) fn unescape(text: &str, escapes: Escapes) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut pieces = text.split('%');
    plain.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2).unwrap_or(("", piece));
        let escape = escapes
            .iter()
            .find(|escape| escape.1.eq_ignore_ascii_case(digits));
        match escape {
            Some((character, _)) => {
                plain.push(*character);
                plain.push_str(rest);
            }
            None => {
                plain.push('%');
                plain.push_str(piece);
            }
        }
    }
    plain
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
                row.word.is_empty() || is_kind_word(row.word),
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

    #[test]
    fn kinds_of_path_share_media_and_memory_has_none() {
        let store = |text: &str| StoreAt::parse(text, text).unwrap();
        assert_eq!(store("a").medium(), store("file:a").medium());
        assert_eq!(store("a").medium(), store("block:a").medium());
        assert_ne!(store("a").medium(), store("b").medium());
        assert_eq!(store("nbd://h").medium(), store("nbds://H:10809/").medium());
        assert_ne!(store("nbd://h/a").medium(), store("nbd://h/b").medium());
        assert_ne!(store("nbd://h").medium(), store("nbd+unix:///").medium());
        let export = store("nbds://h/a");
        assert_eq!(export.medium().unwrap().to_string(), "nbd://h:10809/a");
        let image = store("rbd:p/n/i@s");
        assert_eq!(image.medium().unwrap().to_string(), "rbd:p/n/i@s");
        let device = store("hyperscsi://g/d");
        assert_eq!(device.medium().unwrap().to_string(), "hyperscsi://g/d");
        assert_eq!(store("mem:1M").medium(), None);
        assert_eq!(store("null:1M").medium(), None);
        assert_eq!(store("file:a%3Fb").medium().unwrap().to_string(), "a?b");
    }

    #[test]
    fn only_memory_takes_memory() {
        let bytes = |text: &str| StoreAt::parse(text, text).unwrap().memory_bytes();
        assert_eq!(
            [bytes("mem:1M"), bytes("null:1M"), bytes("a")],
            [1 << 20, 0, 0]
        );
    }
}
