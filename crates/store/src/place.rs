//! Where a file lies, and which way its operations may take to the kernel.
//!
//! A core must never wait inside a system call, because everything that it serves would wait with it. So an
//! operation is issued on the core's own thread only where the kernel promises to refuse instead of to wait
//! (`RWF_NOWAIT`), and only on file systems that keep this promise, also for the metadata they have to read first.
//! A read from the page cache is tried only when the cache has all of it. Everything else belongs on the lane of the
//! unit: workers of its own, which share nothing with the workers of another unit.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{Dev, OFlags, fcntl_getfl, fcntl_setfl, fstat, fstatfs};

use crate::geometry::{queue_of_disk, read_number};

/// File systems of this kernel whose reads from the page cache honour `RWF_NOWAIT`. `f_type` of `statfs`, from
/// linux/magic.h.
const EXT4: i128 = 0xef53;
const XFS: i128 = 0x5846_5342;
const BTRFS: i128 = 0x9123_683e;
const F2FS: i128 = 0xf2f5_2010;
const TMPFS: i128 = 0x0102_1994;

/// What the queue of a device takes, when the kernel does not say.
const QUEUE_DEFAULT: u64 = 128;

/// Where the kernel does not report what the page cache has (before Linux 6.5), a read that it does not have may start
/// some requests of read-ahead on the thread that asks for it, and the thread waits when the queue of the device is
/// full. So no more reads are tried at once there while this part of the queue may be taken by earlier ones.
const QUEUE_SHARE: u64 = 16;

/// A read counts once for each part of this size, in bytes: read-ahead asks for so much at a time.
const REQUEST_BYTES: usize = 128 * 1024;

/// How writes reach the medium.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CacheMode {
    /// Through the page cache; durable after a flush.
    #[default]
    WriteBack,
    /// Through the page cache; each write is durable when it is answered.
    WriteThrough,
    /// Past the page cache; durable after a flush, which empties the cache of the disk.
    Direct,
}

/// Kinds of operations on a lane. Each has its own bound on how many run at once, so that many of one kind do
/// not keep the others out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Class {
    /// Reads.
    Read,
    /// Writes that one inode lets in one at a time.
    WriteInTurn,
    /// Other writes.
    Write,
    /// What may wait for the medium to write: flushes, durable writes, allocation.
    Flush,
    /// Questions: size, extents.
    Query,
}

/// The way of an operation to the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Route {
    /// The ring of the core.
    Ring,
    /// The ring, which refuses what would wait; then the lane.
    Try(Class),
    /// The lane of the file.
    Lane(Class),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// Memory of this process, which never waits for anybody.
    Memory,
    /// A file system or device whose page cache can be read without waiting.
    Refusing {
        /// Direct transfers and buffered writes that would wait are refused when that is asked for. Else they may read
        /// metadata first, and wait for that.
        writes: bool,
    },
    /// Anything else: FUSE, NFS, CIFS, overlays, what is not known.
    Waiting,
}

/// What is known of the place of a file. All cores share it.
#[derive(Debug)]
pub struct Place {
    kind: Kind,
    is_direct: bool,
    /// The inode lets one writer in at a time.
    writes_in_turn: bool,
    device: Arc<Device>,
}

/// A device below one or more files, for the whole process.
#[derive(Debug)]
struct Device {
    /// Reads under way that the page cache did not have, by their parts.
    reads: AtomicUsize,
    /// Flushes under way, which may fill the queue.
    flushes: AtomicUsize,
    /// With so many reads no more are tried from the page cache.
    tried_max: usize,
    /// Lanes with an operation that is overdue.
    overdue: AtomicUsize,
}

impl Device {
    fn new(queue_length: Option<u64>) -> Self {
        let share = queue_length.unwrap_or(QUEUE_DEFAULT) / QUEUE_SHARE;
        Self {
            reads: AtomicUsize::new(0),
            flushes: AtomicUsize::new(0),
            tried_max: usize::try_from(share).unwrap_or(usize::MAX).max(1),
            overdue: AtomicUsize::new(0),
        }
    }
}

/// Devices in use, by the number of the disk below.
static DEVICES: Mutex<Option<HashMap<Dev, Weak<Device>>>> = Mutex::new(None);

fn device_of(number: Dev) -> Arc<Device> {
    let (disk, queue) = queue_of_disk(number);
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let devices = devices.get_or_insert_default();
    if let Some(device) = devices.get(&disk).and_then(Weak::upgrade) {
        return device;
    }
    devices.retain(|_, device| device.strong_count() > 0);
    let length = queue.and_then(|queue| read_number(&queue, "nr_requests"));
    let device = Arc::new(Device::new(length));
    devices.insert(disk, Arc::downgrade(&device));
    device
}

/// What a file does on the file system with this magic number.
const fn kind_of(magic: i128, is_block_device: bool) -> Kind {
    match magic {
        _ if is_block_device => Kind::Refusing { writes: true },
        XFS => Kind::Refusing { writes: true },
        BTRFS | EXT4 | F2FS | TMPFS => Kind::Refusing { writes: false },
        _ => Kind::Waiting,
    }
}

impl Place {
    /// The place of an open file. Reads no longer note the time of access, which would start a transaction of
    /// the file system on the thread that reads.
    pub(crate) fn of(file: &OwnedFd, is_block_device: bool, cache: CacheMode) -> Self {
        let is_direct = cache == CacheMode::Direct;
        // Its type differs between platforms and may have a sign; every magic number has 32 bits.
        let magic = fstatfs(file).map_or(0, |found| i128::from(found.f_type) & 0xffff_ffff);
        let kind = kind_of(magic, is_block_device);
        if kind != Kind::Waiting
            && let Ok(flags) = fcntl_getfl(file)
        {
            // The kernel refuses it to a user who does not own the file; then it is as it was.
            let _unchanged = fcntl_setfl(file, flags | OFlags::NOATIME);
        }
        let number = fstat(file).map_or(0, |found| {
            if is_block_device {
                found.st_rdev
            } else {
                found.st_dev
            }
        });
        Self {
            kind,
            is_direct,
            writes_in_turn: kind != Kind::Waiting && !is_block_device && !is_direct,
            device: device_of(number),
        }
    }

    /// Memory that looks like a file.
    pub fn memory() -> Arc<Self> {
        Arc::new(Self {
            kind: Kind::Memory,
            is_direct: false,
            writes_in_turn: false,
            device: Arc::new(Device::new(None)),
        })
    }

    /// A file of which nothing is known, so that every operation takes the lane.
    pub fn unknown() -> Arc<Self> {
        Arc::new(Self {
            kind: Kind::Waiting,
            is_direct: false,
            writes_in_turn: false,
            device: Arc::new(Device::new(None)),
        })
    }

    /// The way of an operation of this kind, now.
    pub(crate) fn route(&self, class: Class) -> Route {
        if self.kind == Kind::Memory {
            return Route::Ring;
        }
        let is_in_turn = class == Class::Write && self.writes_in_turn;
        let class = if is_in_turn {
            Class::WriteInTurn
        } else {
            class
        };
        let refuses = match (self.kind, class) {
            (Kind::Refusing { writes }, Class::Read) => self.is_direct && writes,
            (Kind::Refusing { writes }, Class::Write | Class::WriteInTurn) => writes,
            (Kind::Memory | Kind::Refusing { .. } | Kind::Waiting, _) => false,
        };
        if refuses && !self.is_overdue() {
            Route::Try(class)
        } else {
            Route::Lane(class)
        }
    }

    /// Whether reads from the page cache may be tried on the thread of a core at all.
    pub(crate) fn is_tried(&self) -> bool {
        matches!(self.kind, Kind::Refusing { .. }) && !self.is_overdue()
    }

    /// Whether one may be tried that the cache may not have.
    pub(crate) fn may_try_blindly(&self) -> bool {
        self.device.reads.load(Ordering::Relaxed) < self.device.tried_max
            && self.device.flushes.load(Ordering::Relaxed) == 0
    }

    /// Whether any use of the file may wait for anybody: a server, another program.
    pub(crate) fn may_wait(&self) -> bool {
        self.kind == Kind::Waiting
    }

    fn is_overdue(&self) -> bool {
        self.device.overdue.load(Ordering::Relaxed) > 0
    }

    /// A lane begins to have an operation that is overdue, or has none any more.
    pub fn set_overdue(&self, is_overdue: bool) {
        if is_overdue {
            self.device.overdue.fetch_add(1, Ordering::Relaxed);
        } else {
            let before = self.device.overdue.fetch_sub(1, Ordering::Relaxed);
            debug_assert!(before > 0, "no lane of the device is overdue");
        }
    }

    /// A read of so many bytes begins, on the ring or on the lane: it counts for the device.
    pub(crate) fn begin_read(&self, bytes: usize) -> UnderWay {
        self.begin(|device| &device.reads, 1 + bytes / REQUEST_BYTES)
    }

    /// The same of what may fill the queue of the device.
    pub(crate) fn begin_flush(&self) -> UnderWay {
        self.begin(|device| &device.flushes, 1)
    }

    fn begin(&self, counter: Counter, parts: usize) -> UnderWay {
        counter(&self.device).fetch_add(parts, Ordering::Relaxed);
        UnderWay {
            device: Arc::clone(&self.device),
            counter,
            parts,
        }
    }
}

type Counter = fn(&Device) -> &AtomicUsize;

/// An operation that counts for its device until this is dropped.
#[derive(Debug)]
pub struct UnderWay {
    device: Arc<Device>,
    counter: Counter,
    parts: usize,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        (self.counter)(&self.device).fetch_sub(self.parts, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::{DiskFile, RingOperation, StoreFile};

    const EXT4_KIND: Kind = Kind::Refusing { writes: false };

    fn place(kind: Kind, is_direct: bool) -> Arc<Place> {
        Arc::new(Place {
            kind,
            is_direct,
            writes_in_turn: kind != Kind::Waiting && !is_direct,
            device: Arc::new(Device::new(Some(64))),
        })
    }

    fn file_at(place: &Arc<Place>) -> crate::FileHandle {
        let fd = rustix::fs::memfd_create("place", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        Rc::new(StoreFile::new(
            Arc::new(DiskFile::memory(fd)),
            Arc::clone(place),
        ))
    }

    fn write(place: &Arc<Place>, durable: bool) -> Route {
        let file = file_at(place);
        let write = RingOperation::Write {
            file,
            offset: 0,
            data: memory::Payload::Heap(vec![0; 512]),
            done: 0,
            durable,
        };
        write.route()
    }

    #[test]
    fn writes_are_tried_on_xfs_and_block_devices_and_reads_on_more() {
        const NFS: i128 = 0x6969;
        let (all, reads) = (Kind::Refusing { writes: true }, EXT4_KIND);
        for (magic, is_block_device, expected) in [
            (XFS, false, all),
            (BTRFS, false, reads),
            (EXT4, false, reads),
            (F2FS, false, reads),
            (TMPFS, false, reads),
            (TMPFS, true, all),
            (NFS, false, Kind::Waiting),
            (NFS, true, all),
        ] {
            assert_eq!(kind_of(magic, is_block_device), expected, "{magic:#x}");
        }
    }

    #[test]
    fn only_what_refuses_to_wait_is_tried_on_the_ring() {
        let (ext4, xfs) = (EXT4_KIND, Kind::Refusing { writes: true });
        for (kind, is_direct, expected) in [
            (Kind::Memory, false, Route::Ring),
            (Kind::Waiting, false, Route::Lane(Class::Write)),
            (Kind::Waiting, true, Route::Lane(Class::Write)),
            (ext4, false, Route::Lane(Class::WriteInTurn)),
            (ext4, true, Route::Lane(Class::Write)),
            (xfs, true, Route::Try(Class::Write)),
            (xfs, false, Route::Try(Class::WriteInTurn)),
        ] {
            let place = place(kind, is_direct);
            assert_eq!(write(&place, false), expected, "{kind:?} {is_direct}");
            if kind != Kind::Memory {
                assert_eq!(write(&place, true), Route::Lane(Class::Flush));
            }
        }
    }

    #[test]
    fn every_operation_takes_the_lane_of_its_class_and_reads_past_the_cache_are_tried() {
        let pool = memory::Pool::new(0).unwrap();
        for (is_direct, read) in [
            (false, Route::Lane(Class::Read)),
            (true, Route::Try(Class::Read)),
        ] {
            let place = place(Kind::Refusing { writes: true }, is_direct);
            let file = || file_at(&place);
            let buffer = pool.allocate(512).unwrap();
            let range = 0..512;
            let found = Vec::new();
            let mode = crate::AllocateMode::PunchHole;
            #[rustfmt::skip] // One operation per line.
            let operations = [
                (RingOperation::Read { file: file(), offset: 0, buffer, done: 0 }, read),
                (RingOperation::Sync { file: file() }, Route::Lane(Class::Flush)),
                (RingOperation::Allocate { file: file(), mode, range: range.clone() }, Route::Lane(Class::Flush)),
                (RingOperation::Extents { file: file(), range, block_bytes: 512, found }, Route::Lane(Class::Query)),
                (RingOperation::Size { file: file(), is_block_device: false, bytes: 0 }, Route::Lane(Class::Query)),
            ];
            for (operation, expected) in operations {
                assert_eq!(operation.route(), expected, "{operation:?}");
            }
        }
    }

    #[test]
    fn nothing_is_tried_on_a_device_with_an_overdue_operation() {
        let place = place(Kind::Refusing { writes: true }, false);
        assert!(place.is_tried());
        place.set_overdue(true);
        assert!(!place.is_tried());
        assert_eq!(write(&place, false), Route::Lane(Class::WriteInTurn));
        place.set_overdue(false);
        assert!(place.is_tried());
        assert_eq!(write(&place, false), Route::Try(Class::WriteInTurn));
    }

    #[test]
    fn reads_are_tried_blindly_while_few_wait_for_the_device() {
        let pool = memory::Pool::new(0).unwrap();
        let place = place(EXT4_KIND, false);
        let read = |len: usize| {
            let read = RingOperation::Read {
                file: file_at(&place),
                offset: 0,
                buffer: pool.allocate(len).unwrap(),
                done: 0,
            };
            read.begin()
        };
        let mut reads = Vec::new();
        for _ in 0..3 {
            reads.push(read(512));
            assert!(place.may_try_blindly());
        }
        reads.push(read(512));
        assert!(!place.may_try_blindly(), "4 of a queue of 64");
        reads.pop();
        assert!(place.may_try_blindly());
        reads = vec![read(1024 * 1024)];
        assert!(!place.may_try_blindly(), "9 parts");
        drop(reads);
        assert!(place.may_try_blindly());
    }

    #[test]
    fn a_read_counts_once_for_each_part_and_a_queue_has_a_share_for_those_that_are_tried() {
        let place = place(EXT4_KIND, false);
        for (bytes, parts) in [(0, 1), (131_071, 1), (131_072, 2), (1 << 20, 9)] {
            let _under_way = place.begin_read(bytes);
            assert_eq!(place.device.reads.load(Ordering::Relaxed), parts, "{bytes}");
        }
        assert_eq!(place.device.reads.load(Ordering::Relaxed), 0);
        for (length, share) in [(Some(0), 1), (Some(31), 1), (Some(32), 2), (Some(64), 4)] {
            assert_eq!(Device::new(length).tried_max, share, "{length:?}");
        }
        assert!(Place::unknown().may_wait() && !Place::memory().may_wait());
    }

    #[test]
    fn nothing_is_tried_blindly_while_a_flush_may_fill_the_queue() {
        let place = place(EXT4_KIND, false);
        let file = file_at(&place);
        let flush = RingOperation::Sync { file }.begin();
        assert!(!place.may_try_blindly());
        drop(flush);
        assert!(place.may_try_blindly());
    }

    #[test]
    fn files_on_one_device_share_what_is_counted() {
        let file = std::fs::File::open("/proc/self/exe").unwrap().into();
        let (one, other) = (
            Place::of(&file, false, CacheMode::WriteBack),
            Place::of(&file, false, CacheMode::WriteBack),
        );
        assert!(Arc::ptr_eq(&one.device, &other.device));
    }
}
