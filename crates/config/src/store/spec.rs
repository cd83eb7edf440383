//! What a STORE says.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use super::device::GroupDevice;
use super::escape::{IN_PATH, escape};
use super::export::Export;
use super::image::Image;
use super::kind::{DeviceType, Node, StoreKind};
use super::lun::FarLun;
use crate::keys::size_text;
use crate::{Place, Serial};

/// Where the data of a unit lives and how it is to be treated.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreSpec {
    /// The STORE as the administrator wrote it, for messages.
    pub text: String,
    /// Kind and place of the data.
    pub at: StoreAt,
    /// Size in bytes that a file is made with, or grown to; it is never shrunk.
    ///
    /// Always `None` for memory and null stores, whose size is in [`StoreKind`], and for
    /// block devices, which bring their own.
    pub size_bytes: Option<u64>,
    /// Size of a logical block.
    pub block_size: BlockSize,
    /// Nobody may write, whatever a target says.
    pub read_only: bool,
    /// When a write is on stable storage.
    pub cache: CacheMode,
    /// Whether unmapped blocks give their space back. `None` leaves it to the kind of store:
    /// files and memory are thin, a block device is if it can discard.
    pub thin: Option<bool>,
    /// Serial number, if the administrator wants a certain one.
    pub serial: Option<Serial>,
    /// The bytes are the disk, even if they begin like an image of another format.
    pub format_raw: bool,
    /// Initiators can eject the medium and load it again.
    pub removable: bool,
    /// Certificates that the server is checked against; `None` for those that this machine trusts.
    pub ca: Option<PathBuf>,
    /// The most connections to the server; `None` leaves it to the number of cores.
    pub connections: Option<u8>,
    /// How long commands wait while the server cannot be reached, in seconds.
    pub retry_seconds: u32,
    /// An image that another client has is waited for.
    pub waits_for_lock: bool,
    /// How many bytes a stripe has on one member before it goes on with the next.
    pub chunk_bytes: u64,
}

/// The chunk of a stripe, unless the store says something else.
const CHUNK_BYTES_DEFAULT: u64 = 64 << 10;

/// How long commands wait for a server, unless the store says something else.
const RETRY_SECONDS_DEFAULT: u32 = 20;

/// Size of a logical block in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum BlockSize {
    /// 512 bytes, which every initiator can boot from.
    #[default]
    B512,
    /// 2048 bytes, those of a CD or DVD.
    B2048,
    /// 4096 bytes.
    B4096,
}

impl BlockSize {
    /// In bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::B512 => 512,
            Self::B2048 => 2048,
            Self::B4096 => 4096,
        }
    }
}

/// When a write is on stable storage.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CacheMode {
    /// After SYNCHRONIZE CACHE or with FUA; until then the page cache has it.
    #[default]
    Writeback,
    /// Before the command is answered.
    Writethrough,
    /// The page cache is gone round (O_DIRECT).
    Direct,
}

impl CacheMode {
    /// The word of the option.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Writeback => "writeback",
            Self::Writethrough => "writethrough",
            Self::Direct => "direct",
        }
    }
}

impl StoreSpec {
    /// A store with every option left out.
    pub fn new(at: StoreAt) -> Self {
        let is_disc = at.kind.row().device == DeviceType::Optical;
        Self {
            text: at.to_string(),
            at,
            size_bytes: None,
            block_size: match is_disc {
                true => BlockSize::B2048,
                false => BlockSize::default(),
            },
            read_only: is_disc,
            cache: CacheMode::default(),
            thin: None,
            serial: None,
            format_raw: false,
            removable: is_disc,
            ca: None,
            connections: None,
            retry_seconds: RETRY_SECONDS_DEFAULT,
            waits_for_lock: false,
            chunk_bytes: CHUNK_BYTES_DEFAULT,
        }
    }

    /// Whether its unit is a disk.
    pub fn is_disk(&self) -> bool {
        self.at.kind.row().device == DeviceType::Disk
    }

    /// Whether it takes no writes, and those who see it may change nothing else of it either. A drive may be reserved,
    /// locked and ejected: only its disc is read-only.
    pub fn is_read_only_disk(&self) -> bool {
        self.read_only && self.is_disk()
    }

    /// The size that the configuration gives the store, in bytes.
    pub fn configured_size_bytes(&self) -> Option<u64> {
        self.size_bytes.or_else(|| self.at.fixed_size_bytes())
    }

    /// Makes a relative path one below `directory`.
    pub(crate) fn below(mut self, directory: &Path) -> Self {
        self.at.below(directory);
        self.ca = self.ca.map(|ca| directory.join(ca));
        self
    }
}

impl fmt::Display for StoreSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
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
    /// Nothing: a drive without a disc.
    Empty,
}

/// A `[[store]]` section.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NamedStore {
    /// The `id` of the file.
    pub id: String,
    /// Where its data lives.
    pub store: StoreSpec,
    /// Where the store is given.
    pub place: Place,
}

/// The members of a composition, in order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Members {
    /// As they are written.
    pub(super) ids: Vec<String>,
    /// The sections of these ids; none until the whole file is read.
    pub(super) stores: Vec<NamedStore>,
}

impl Members {
    /// As it is written.
    fn text(&self) -> String {
        self.ids.join(",")
    }
}

/// A snapshot of a unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SnapshotOf {
    /// The `id` of the unit.
    pub lun: String,
    /// What the snapshot is called.
    pub name: String,
    /// What is opened; `None` until all units are read.
    pub(super) at: Option<Box<StoreAt>>,
}

impl SnapshotOf {
    /// As it is written.
    fn text(&self) -> String {
        format!("{}@{}", self.lun, self.name)
    }

    /// What is opened.
    pub(super) fn at(&self) -> Option<&StoreAt> {
        self.at.as_deref()
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

impl StoreAt {
    /// A file or device at a path.
    pub fn path(path: impl Into<PathBuf>) -> Self {
        Self {
            kind: StoreKind::Path,
            place: StorePlace::Path(path.into()),
        }
    }

    /// A drive with a file in it, or without one where the path is empty.
    pub fn disc(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self {
            kind: StoreKind::Cdrom,
            place: match path.as_os_str().is_empty() {
                true => StorePlace::Empty,
                false => StorePlace::Path(path),
            },
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
            | StorePlace::Members(_)
            | StorePlace::Empty => None,
        }
    }

    /// The medium, unless the store has one of its own that ends with its unit. A composition has those of its
    /// members: [`crate::Unit::media`].
    pub fn medium(&self) -> Option<Medium<'_>> {
        let space = match &self.place {
            // A path is one, whatever is made of what is there.
            StorePlace::Path(_) => "",
            StorePlace::Size(_)
            | StorePlace::Export(_)
            | StorePlace::Image(_)
            | StorePlace::Device(_)
            | StorePlace::Lun(_)
            | StorePlace::Snapshot(_)
            | StorePlace::Members(_)
            | StorePlace::Empty => self.kind.row().space?,
        };
        let name = match &self.place {
            StorePlace::Path(path) => path.as_os_str(),
            StorePlace::Export(export) => OsStr::new(export.text()),
            StorePlace::Image(image) => OsStr::new(image.text()),
            StorePlace::Device(device) => OsStr::new(device.text()),
            StorePlace::Lun(lun) => OsStr::new(lun.text()),
            StorePlace::Snapshot(snapshot) => return snapshot.at()?.medium(),
            StorePlace::Size(_) | StorePlace::Members(_) | StorePlace::Empty => return None,
        };
        Some(Medium { space, name })
    }

    /// The export, if a server has the data.
    pub fn export(&self) -> Option<&Export> {
        let StorePlace::Export(export) = &self.place else {
            return None;
        };
        Some(export)
    }

    /// The image, if a Ceph cluster has the data.
    pub fn image(&self) -> Option<&Image> {
        let StorePlace::Image(image) = &self.place else {
            return None;
        };
        Some(image)
    }

    /// The device, if a HyperSCSI server has the data.
    pub fn device(&self) -> Option<&GroupDevice> {
        let StorePlace::Device(device) = &self.place else {
            return None;
        };
        Some(device)
    }

    /// The logical unit, if an iSCSI target has the data.
    pub fn target_lun(&self) -> Option<&FarLun> {
        let StorePlace::Lun(lun) = &self.place else {
            return None;
        };
        Some(lun)
    }

    /// The path of a SCSI device of this machine, whose commands are passed through.
    pub fn local_device(&self) -> Option<&Path> {
        let StorePlace::Path(path) = &self.place else {
            return None;
        };
        (self.kind == StoreKind::Scsi).then_some(path)
    }

    /// The socket of a process that emulates a device.
    pub fn handler(&self) -> Option<&Path> {
        let StorePlace::Path(path) = &self.place else {
            return None;
        };
        (self.kind == StoreKind::Handler).then_some(path)
    }

    /// The memory of the process that the data takes when all of it is written, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.fixed_size_bytes()
            .filter(|_| self.kind.row().is_memory)
            .unwrap_or(0)
    }

    /// The size, if it is what stands after the colon.
    pub(crate) fn fixed_size_bytes(&self) -> Option<u64> {
        let StorePlace::Size(size_bytes) = self.place else {
            return None;
        };
        Some(size_bytes)
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
            StorePlace::Size(_)
            | StorePlace::Snapshot(_)
            | StorePlace::Members(_)
            | StorePlace::Empty => {}
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
            | StorePlace::Members(_)
            | StorePlace::Empty => self.before_options(),
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
            StorePlace::Path(path) => escape(&path.display().to_string(), IN_PATH),
            StorePlace::Size(bytes) => size_text(*bytes),
            StorePlace::Export(export) => export.before_options(),
            StorePlace::Image(image) => image.before_options(),
            StorePlace::Device(device) => device.before_options(),
            StorePlace::Lun(lun) if self.kind == StoreKind::Scsi => format!("iscsi:{}", lun.text()),
            StorePlace::Lun(lun) => lun.text().to_owned(),
            StorePlace::Snapshot(snapshot) => snapshot.text(),
            StorePlace::Members(members) => members.text(),
            StorePlace::Empty => String::new(),
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

pub(super) fn is_kind_word(word: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+';
    !word.is_empty() && word.bytes().all(is_part)
}
