//! The commands that a disk is used with, and what is made of their answers. Whatever a server sends is read or
//! refused; a field that is missing counts as zero.

use std::fmt;
use std::ops::{Deref, Range};

use store::{Extent, IoFailure};

use super::job::{Bytes, Job, Work};
use super::medium::Identity;

/// The data of a GET LBA STATUS, at most: so many extents and a header.
const STATUS_BYTES: u32 = 8 + 16 * 256;
/// Zeros are written in pieces of this size, so that others are served in between.
pub(crate) const ZEROS_BYTES_MAX: u64 = 64 << 20;
/// Larger physical blocks are a matter of speed, not of a medium.
const PHYSICAL_BYTES_MAX: u64 = 64 << 10;

pub(crate) const GOOD: u8 = 0x00;
pub(crate) const CHECK_CONDITION: u8 = 0x02;
pub(crate) const BUSY: u8 = 0x08;
pub(crate) const RESERVATION_CONFLICT: u8 = 0x18;
pub(crate) const TASK_SET_FULL: u8 = 0x28;
pub(crate) const TASK_ABORTED: u8 = 0x40;

/// A CDB with the data that goes with it and the room for what comes.
#[derive(Debug)]
pub(crate) struct Cdb {
    pub(crate) bytes: Vec<u8>,
    pub(crate) data: Bytes,
    pub(crate) room: u32,
}

impl Cdb {
    pub(crate) fn reading(bytes: Vec<u8>, room: u32) -> Self {
        let data = Bytes::default();
        Self { bytes, data, room }
    }

    fn writing(bytes: Vec<u8>, data: Bytes) -> Self {
        let room = 0;
        Self { bytes, data, room }
    }
}

/// The name of a command that a device is looked at with.
impl fmt::Display for Cdb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [opcode, second, page] = [0, 1, 2].map(|at| byte(&self.bytes, at));
        match (opcode, second) {
            (0x00, _) => f.write_str("TEST UNIT READY"),
            (0x12, 0) => f.write_str("INQUIRY"),
            (0x12, _) => write!(f, "INQUIRY of page {page:02x}h"),
            (0x5a, _) => f.write_str("MODE SENSE (10)"),
            (0x9e, _) => f.write_str("READ CAPACITY (16)"),
            (0xa3, _) => f.write_str("REPORT SUPPORTED OPERATION CODES"),
            _ => write!(f, "command {opcode:02x}h"),
        }
    }
}

/// A command of 16 bytes on a range of blocks.
fn of_range(opcode: u8, flags: u8, lba: u64, blocks: u32, last: [u8; 2]) -> Vec<u8> {
    let mut bytes = vec![opcode, flags];
    bytes.extend(lba.to_be_bytes());
    bytes.extend(blocks.to_be_bytes());
    bytes.extend(last);
    bytes
}

/// INQUIRY, of the page with this number if there is one.
pub(crate) fn inquiry(page: Option<u8>) -> Cdb {
    let room = 255;
    Cdb::reading(
        vec![
            0x12,
            u8::from(page.is_some()),
            page.unwrap_or(0),
            0,
            room,
            0,
        ],
        room.into(),
    )
}

/// INQUIRY of a page that is longer than a byte can say.
pub(crate) fn inquiry_of(page: u8, room: u16) -> Cdb {
    let [high, low] = room.to_be_bytes();
    Cdb::reading(vec![0x12, 1, page, high, low, 0], room.into())
}

/// TEST UNIT READY.
pub(crate) fn test_unit_ready() -> Cdb {
    Cdb::reading(vec![0; 6], 0)
}

/// READ CAPACITY(16).
pub(crate) fn read_capacity() -> Cdb {
    let room = 32;
    Cdb::reading(of_range(0x9e, 0x10, 0, room, [0; 2]), room)
}

/// MODE SENSE(10) of the caching page, without block descriptors.
pub(crate) fn mode_sense() -> Cdb {
    let room = 255;
    Cdb::reading(vec![0x5a, 0x08, 0x08, 0, 0, 0, 0, 0, room, 0], room.into())
}

/// The command that carries a job out at a device that is this now.
pub(crate) fn command(job: &Job, facts: &Facts) -> Cdb {
    let block = u64::from(facts.block_bytes);
    let lba = job.offset / block;
    let blocks = |bytes: u64| u32::try_from(bytes / block).unwrap_or(u32::MAX);
    let fua = |durable: bool| if durable && facts.has_fua { 0x08 } else { 0 };
    match &job.work {
        Work::Read { bytes } => {
            let cdb = of_range(0x88, 0, lba, blocks((*bytes).into()), [0; 2]);
            Cdb::reading(cdb, *bytes)
        }
        Work::Write { data, durable } => {
            let count = blocks(data.len() as u64);
            Cdb::writing(
                of_range(0x8a, fua(*durable), lba, count, [0; 2]),
                data.clone(),
            )
        }
        Work::Flush => Cdb::writing(of_range(0x91, 0, 0, 0, [0; 2]), Bytes::default()),
        Work::Zeros { bytes, unmap } => {
            let flags = if *unmap && facts.can_unmap { 0x08 } else { 0 };
            let cdb = of_range(0x93, flags, lba, blocks(*bytes), [0; 2]);
            let zeros = vec![0; usize::try_from(block).unwrap_or_default()];
            Cdb::writing(cdb, zeros.into())
        }
        Work::Compare { data, durable } => {
            let count = blocks(data.len() as u64 / 2);
            let mut cdb = vec![0x89, fua(*durable)];
            cdb.extend(lba.to_be_bytes());
            cdb.extend([0, 0, 0, u8::try_from(count).unwrap_or(u8::MAX), 0, 0]);
            Cdb::writing(cdb, data.clone())
        }
        Work::Extents { .. } => Cdb::reading(
            of_range(0x9e, 0x12, lba, STATUS_BYTES, [0; 2]),
            STATUS_BYTES,
        ),
        Work::Look => test_unit_ready(),
    }
}

/// What keeps a device from being a disk here.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// It is no disk.
    #[error(
        "it is no disk; CD and DVD drives and other devices are used by an initiator of the system"
    )]
    NoDisk,
    /// Blocks of the device are other ones than those of the disk.
    #[error("its blocks have {device_bytes} bytes, those of the disk {block_bytes}; {remedy}")]
    Blocks {
        /// Of the device.
        device_bytes: u32,
        /// Of the disk.
        block_bytes: u32,
        /// What to do.
        remedy: &'static str,
    },
    /// Not a whole number of blocks, or none.
    #[error(
        "{size_bytes} bytes are not a whole number of blocks of {block_bytes} bytes, at least one"
    )]
    Size {
        /// Of the device.
        size_bytes: u64,
        /// Of the disk.
        block_bytes: u32,
    },
    /// The device takes no writes.
    #[error("the device is read-only; add ?readonly to its URL")]
    ReadOnly,
}

/// What a device is found to be.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Facts {
    pub(crate) size_bytes: u64,
    /// Of the device. A disk may have larger ones.
    pub(crate) block_bytes: u32,
    pub(crate) physical_bytes: u32,
    pub(crate) is_disk: bool,
    pub(crate) is_read_only: bool,
    pub(crate) has_fua: bool,
    /// It says that it has a cache, which is on. One that does not say so may have one all the same.
    pub(crate) says_cache: bool,
    pub(crate) is_rotating: bool,
    /// WRITE SAME gives space back, and what was given back reads zeros.
    pub(crate) can_unmap: bool,
    pub(crate) granularity_bytes: u32,
    /// How much one WRITE SAME may zero; 0: there is none.
    pub(crate) zeros_bytes_max: u64,
    /// It says which blocks hold data.
    pub(crate) has_status: bool,
    /// The data of a READ or WRITE, at most; a whole number of blocks.
    pub(crate) transfer_bytes_max: u32,
    /// The blocks of a COMPARE AND WRITE, at most.
    pub(crate) compare_blocks: u8,
    /// The data of a command that this side moves, at most.
    pub(crate) data_bytes_max: u32,
    /// Which device it is; `None`: it does not say.
    pub(crate) identity: Option<Identity>,
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let found = bytes.get(at..at.saturating_add(N));
    found
        .and_then(|found| found.try_into().ok())
        .unwrap_or([0; N])
}

fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

impl Facts {
    /// Whether this is not more than such a device does at a time.
    pub(crate) fn takes(&self, work: &Work) -> bool {
        match work {
            Work::Read { bytes } => *bytes <= self.transfer_bytes_max,
            Work::Write { data, .. } => data.len() as u64 <= self.transfer_bytes_max.into(),
            Work::Zeros { bytes, .. } => *bytes <= self.zeros_bytes_max,
            Work::Compare { .. } | Work::Flush | Work::Extents { .. } | Work::Look => true,
        }
    }

    /// Asks a device what it is; `ask` gives nothing where the device refuses a command. `None`: it has no size.
    pub(crate) fn find<D: Deref<Target = [u8]>, E>(
        data_bytes_max: u32,
        mut ask: impl FnMut(Cdb) -> Result<Option<D>, E>,
    ) -> Result<Option<Self>, E> {
        let mut facts = Self {
            data_bytes_max,
            ..Self::default()
        };
        if let Some(data) = ask(inquiry(None))? {
            facts.take_inquiry(&data);
        }
        if !facts.is_disk {
            // What else is asked for is of disks.
            return Ok(Some(facts));
        }
        let capacity = ask(read_capacity())?;
        if capacity
            .and_then(|data| facts.take_capacity(&data))
            .is_none()
        {
            return Ok(None);
        }
        if let Some(data) = ask(mode_sense())? {
            facts.take_mode(&data);
        }
        let mut unmaps = false;
        for page in [0xb0, 0xb1, 0xb2] {
            if let Some(data) = ask(inquiry(Some(page)))? {
                facts.take_page(page, &data, data_bytes_max);
                unmaps |= page == 0xb2;
            }
        }
        facts.can_unmap &= unmaps;
        facts.settle(data_bytes_max);
        if let Some(data) = ask(inquiry(Some(0x83)))? {
            facts.identity = Identity::of_designators(&data);
        }
        if facts.identity.is_none()
            && let Some(standard) = ask(inquiry(None))?
            && let Some(serial) = ask(inquiry(Some(0x80)))?
        {
            facts.identity = Identity::of_serial(&standard, &serial);
        }
        Ok(Some(facts))
    }

    /// Whether it can be a disk with blocks of this length, to be written unless `read_only`.
    pub(crate) fn check(&self, block_bytes: u32, read_only: bool) -> Result<(), Unfit> {
        let device_bytes = self.block_bytes;
        if !self.is_disk {
            return Err(Unfit::NoDisk);
        }
        if device_bytes == 0
            || !block_bytes.is_multiple_of(device_bytes)
            || self.transfer_bytes_max < block_bytes
        {
            let remedy = match device_bytes {
                4096 => "add the option blocksize=4096",
                _ => "such a device cannot be a disk here",
            };
            return Err(Unfit::Blocks {
                device_bytes,
                block_bytes,
                remedy,
            });
        }
        let size_bytes = self.size_bytes;
        if size_bytes == 0 || !size_bytes.is_multiple_of(block_bytes.into()) {
            return Err(Unfit::Size {
                size_bytes,
                block_bytes,
            });
        }
        match self.is_read_only && !read_only {
            true => Err(Unfit::ReadOnly),
            false => Ok(()),
        }
    }

    /// From the answer to READ CAPACITY(16): size and blocks; `None` where that is none.
    pub(crate) fn take_capacity(&mut self, data: &[u8]) -> Option<()> {
        data.get(..12)?;
        let blocks = u64::from_be_bytes(word(data, 0)).checked_add(1)?;
        let block_bytes = u32::from_be_bytes(word(data, 8));
        self.size_bytes = blocks.checked_mul(block_bytes.into())?;
        self.block_bytes = block_bytes;
        let exponent = u32::from(byte(data, 13) & 0x0f);
        let physical = u64::from(block_bytes) << exponent;
        self.physical_bytes = u32::try_from(physical.min(PHYSICAL_BYTES_MAX)).ok()?;
        // LBPME and LBPRZ.
        self.has_status = byte(data, 14) & 0x80 != 0;
        self.can_unmap = byte(data, 14) & 0xc0 == 0xc0;
        Some(())
    }

    /// From standard INQUIRY data.
    pub(crate) fn take_inquiry(&mut self, data: &[u8]) {
        // A disk that is connected.
        self.is_disk = !data.is_empty() && byte(data, 0) == 0;
    }

    /// From MODE SENSE(10).
    pub(crate) fn take_mode(&mut self, data: &[u8]) {
        self.is_read_only = byte(data, 3) & 0x80 != 0;
        self.has_fua = byte(data, 3) & 0x10 != 0;
        let page = 8 + usize::from(u16::from_be_bytes(word(data, 6)));
        let is_caching_page = byte(data, page) & 0x3f == 0x08;
        self.says_cache = is_caching_page && byte(data, page + 2) & 0x04 != 0;
    }

    /// From a page of vital product data.
    pub(crate) fn take_page(&mut self, page: u8, data: &[u8], data_bytes_max: u32) {
        if byte(data, 1) != page {
            return;
        }
        let block = u64::from(self.block_bytes.max(1));
        match page {
            0xb0 => {
                self.compare_blocks = byte(data, 5);
                let blocks = u32::from_be_bytes(word(data, 8));
                if blocks > 0 {
                    let bytes = (u64::from(blocks) * block).min(data_bytes_max.into());
                    self.transfer_bytes_max = u32::try_from(bytes).unwrap_or(data_bytes_max);
                }
                let granularity = u64::from(u32::from_be_bytes(word(data, 28)));
                self.granularity_bytes =
                    u32::try_from((granularity * block).min(1 << 30)).unwrap_or(0);
                let blocks = u64::from_be_bytes(word(data, 36));
                let bytes = blocks.saturating_mul(block).min(ZEROS_BYTES_MAX);
                self.zeros_bytes_max = bytes - bytes % block;
            }
            0xb1 => self.is_rotating = u16::from_be_bytes(word(data, 4)) > 1,
            // LBPWS: WRITE SAME(16) may give space back.
            0xb2 => self.can_unmap &= byte(data, 5) & 0x40 != 0,
            _ => {}
        }
    }

    /// When all pages have been seen, or are not there.
    pub(crate) fn settle(&mut self, data_bytes_max: u32) {
        let block = self.block_bytes.max(1);
        if self.transfer_bytes_max == 0 {
            self.transfer_bytes_max = data_bytes_max;
        }
        self.transfer_bytes_max -= self.transfer_bytes_max % block;
        if self.zeros_bytes_max == 0 && self.can_unmap {
            // There is a WRITE SAME, and no limit to it.
            self.zeros_bytes_max = ZEROS_BYTES_MAX;
        }
        self.can_unmap &= self.zeros_bytes_max > 0;
    }
}

/// The extents in an answer to GET LBA STATUS, from the start of the range on, not behind its end.
pub(crate) fn extents(
    data: &[u8],
    range: Range<u64>,
    count_max: usize,
    block_bytes: u32,
) -> Vec<Extent> {
    let block = u64::from(block_bytes);
    let listed = usize::try_from(u32::from_be_bytes(word(data, 0))).unwrap_or(0);
    let end = listed.saturating_add(4).min(data.len());
    let mut found: Vec<Extent> = Vec::new();
    let mut at = range.start;
    for entry in data.get(8..end).unwrap_or_default().chunks_exact(16) {
        let start = u64::from_be_bytes(word(entry, 0)).saturating_mul(block);
        let length = u64::from(u32::from_be_bytes(word(entry, 8))).saturating_mul(block);
        let (start, end) = (start.max(at), start.saturating_add(length).min(range.end));
        if start != at || end <= start {
            break;
        }
        let mapped = byte(entry, 12) & 0x0f != 1;
        if let Some(last) = found.last_mut().filter(|last| last.mapped == mapped) {
            last.range.end = end;
        } else if found.len() < count_max {
            let range = start..end;
            found.push(Extent { range, mapped });
        } else {
            break;
        }
        at = end;
    }
    if found.is_empty() {
        // What a server does not say is taken for data.
        let mapped = true;
        found.push(Extent { range, mapped });
    }
    found
}

/// What sense data say.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Sense {
    /// There are some: a failure without says nothing of what became of the command.
    pub(crate) is_there: bool,
    /// They are of an earlier command, which was answered as good; this one was not carried out.
    pub(crate) is_deferred: bool,
    pub(crate) key: u8,
    pub(crate) code: u8,
    pub(crate) qualifier: u8,
    pub(crate) information: Option<u64>,
}

pub(crate) const KEY_RECOVERED: u8 = 0x1;
pub(crate) const KEY_NOT_READY: u8 = 0x2;
pub(crate) const KEY_MEDIUM: u8 = 0x3;
const KEY_HARDWARE: u8 = 0x4;
pub(crate) const KEY_ILLEGAL: u8 = 0x5;
pub(crate) const KEY_ATTENTION: u8 = 0x6;
pub(crate) const KEY_PROTECT: u8 = 0x7;
pub(crate) const KEY_ABORTED: u8 = 0xb;
pub(crate) const KEY_OVERFLOW: u8 = 0xd;
pub(crate) const KEY_MISCOMPARE: u8 = 0xe;

impl Sense {
    /// Fixed and descriptor format.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        match byte(bytes, 0) & 0x7f {
            0x70 | 0x71 => Self {
                is_there: bytes.len() > 2,
                is_deferred: byte(bytes, 0) & 1 != 0,
                key: byte(bytes, 2) & 0x0f,
                code: byte(bytes, 12),
                qualifier: byte(bytes, 13),
                information: (byte(bytes, 0) & 0x80 != 0)
                    .then(|| u64::from(u32::from_be_bytes(word(bytes, 3)))),
            },
            0x72 | 0x73 => Self {
                is_there: bytes.len() > 1,
                is_deferred: byte(bytes, 0) & 1 != 0,
                key: byte(bytes, 1) & 0x0f,
                code: byte(bytes, 2),
                qualifier: byte(bytes, 3),
                information: information(bytes),
            },
            _ => Self::default(),
        }
    }

    /// For people, where it keeps a disk from being used.
    pub(crate) fn not_ready(&self) -> String {
        let (key, code, qualifier) = (self.key, self.code, self.qualifier);
        format!("the disk is not ready (sense {key:x}h/{code:02x}h/{qualifier:02x}h)")
    }

    /// Whether the device may have lost what was in its cache: its power was off, or it was reset inside. That others
    /// have reset it, or that a session has ended, takes no cache with it.
    pub(crate) const fn is_about_power(&self) -> bool {
        self.key == KEY_ATTENTION
            && matches!((self.code, self.qualifier), (0x29, 0x00 | 0x01 | 0x04))
    }

    /// Whether a device that goes on reports once, to a flush, that it has lost its cache: as Tarn does.
    pub(crate) const fn is_about_cache(&self) -> bool {
        self.key == KEY_HARDWARE && self.code == 0x0c && self.qualifier == 0
    }

    /// What it means for a job, where trying again does not help. `place` is a block within the job, if the device
    /// named one, else 0.
    pub(crate) fn failure(&self, offset: u64, block_bytes: u32) -> IoFailure {
        let place = self
            .information
            .map(|lba| lba.saturating_mul(block_bytes.into()));
        let at = place.filter(|place| *place >= offset).unwrap_or(offset);
        match self.key {
            KEY_MEDIUM => IoFailure::Medium { offset: at },
            KEY_PROTECT if self.code == 0x27 && self.qualifier == 0x07 => {
                IoFailure::NoSpace { offset }
            }
            KEY_PROTECT => IoFailure::ReadOnly,
            KEY_OVERFLOW => IoFailure::NoSpace { offset },
            // Here the field counts bytes from the start of the range.
            KEY_MISCOMPARE => IoFailure::Miscompare {
                offset: self.information.unwrap_or(0),
            },
            KEY_ILLEGAL if self.code == 0x21 => IoFailure::Truncated { offset },
            KEY_NOT_READY | KEY_ATTENTION | KEY_ABORTED => IoFailure::NotReady,
            _ => IoFailure::Hardware { errno: 0 },
        }
    }
}

/// The information descriptor.
fn information(bytes: &[u8]) -> Option<u64> {
    let end = 8_usize
        .saturating_add(byte(bytes, 7).into())
        .min(bytes.len());
    let mut rest = bytes.get(8..end)?;
    loop {
        let (kind, length) = (*rest.first()?, usize::from(*rest.get(1)?));
        if kind == 0 && length == 10 && byte(rest, 2) & 0x80 != 0 {
            let field = rest.get(4..12)?.try_into().ok()?;
            return Some(u64::from_be_bytes(field));
        }
        rest = rest.get(length.saturating_add(2)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sense_data_of_both_formats_are_read() {
        let mut fixed = [0; 18];
        fixed[0] = 0xf0;
        fixed[2] = 3;
        fixed[6] = 9;
        fixed[12] = 0x11;
        let sense = Sense::parse(&fixed);
        assert_eq!(
            (sense.key, sense.code, sense.information),
            (3, 0x11, Some(9))
        );
        assert_eq!(
            sense.failure(512, 512),
            IoFailure::Medium { offset: 9 * 512 }
        );
        assert_eq!(
            sense.failure(1 << 20, 512),
            IoFailure::Medium { offset: 1 << 20 },
            "a block before the job"
        );
        let mut described = vec![0x72, 0x0e, 0x1d, 0, 0, 0, 0, 20];
        // Another descriptor comes first.
        described.extend([2, 6, 0, 0, 0, 0, 0, 0, 0, 10, 0x80, 0]);
        described.extend(700_u64.to_be_bytes());
        let sense = Sense::parse(&described);
        assert_eq!(
            sense.failure(512, 512),
            IoFailure::Miscompare { offset: 700 }
        );
        for length in 0..described.len() {
            assert_eq!(
                Sense::parse(&described[..length]).information,
                None,
                "{length}"
            );
        }
    }

    #[test]
    fn extents_end_where_the_answer_makes_no_sense() {
        let entry = |lba: u64, blocks: u32, status: u8| {
            let mut bytes = lba.to_be_bytes().to_vec();
            bytes.extend(blocks.to_be_bytes());
            bytes.extend([status, 0, 0, 0]);
            bytes
        };
        let answer = |entries: &[Vec<u8>]| {
            let mut bytes = vec![0; 8];
            bytes.extend(entries.concat());
            let listed = u32::try_from(bytes.len() - 4).unwrap();
            bytes[..4].copy_from_slice(&listed.to_be_bytes());
            bytes
        };
        let whole = |range, mapped| Extent { range, mapped };
        // The first begins before the range, the last ends behind it.
        let data = answer(&[entry(0, 4, 0), entry(4, 4, 1), entry(8, 100, 0)]);
        let expected = [
            whole(1024..2048, true),
            whole(2048..4096, false),
            whole(4096..8192, true),
        ];
        assert_eq!(extents(&data, 1024..8192, 8, 512), expected);
        assert_eq!(extents(&data, 1024..8192, 2, 512), expected[..2]);
        // A hole in the answer, or an endless block.
        let gap = answer(&[entry(0, 4, 1), entry(8, 4, 1)]);
        assert_eq!(extents(&gap, 0..8192, 8, 512), [whole(0..2048, false)]);
        let far = answer(&[entry(u64::MAX, u32::MAX, 1)]);
        assert_eq!(extents(&far, 0..8192, 8, 512), [whole(0..8192, true)]);
        assert_eq!(extents(&[], 0..8192, 8, 512), [whole(0..8192, true)]);
    }
}
