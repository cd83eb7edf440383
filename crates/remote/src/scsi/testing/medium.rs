//! A disk in memory that obeys its test.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use super::answer::{Answer, check, good};
use super::tape::Tape;

pub(crate) const BLOCK: usize = 512;

/// No two disks are one.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// What the disk is and does.
#[derive(Debug)]
pub(crate) struct Medium {
    /// It is no disk, but this.
    pub(crate) tape: Option<Tape>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) designator: [u8; 16],
    pub(crate) is_read_only: bool,
    /// Unit attentions to come: code and qualifier.
    pub(crate) attentions: VecDeque<(u8, u8)>,
    /// So many commands find it busy.
    pub(crate) busy: usize,
    /// Commands on the medium get no answer.
    pub(crate) holds: bool,
    /// The sense key of a SYNCHRONIZE CACHE.
    pub(crate) flush_fails: Option<u8>,
    /// How many commands of each opcode it has carried out.
    pub(crate) counts: BTreeMap<u8, usize>,
    pub(crate) unmapped: bool,
    pub(crate) aborted: usize,
    /// It writes back, and says so.
    pub(crate) writes_back: bool,
    /// It does FUA, and says so; else it takes no notice of it.
    pub(crate) has_fua: bool,
    /// It has a SYNCHRONIZE CACHE.
    pub(crate) has_flush: bool,
    /// What was given back reads zeros.
    pub(crate) reads_zeros: bool,
    /// The blocks of a READ or WRITE, at most; 0: as many as are wanted.
    pub(crate) blocks_max: u32,
    /// The blocks of a WRITE SAME, at most.
    pub(crate) zeros_blocks_max: u64,
    /// So many TEST UNIT READY find it not ready.
    pub(crate) unready: usize,
    /// The next command with this opcode meets a unit attention.
    pub(crate) interrupts: Option<u8>,
    /// It has written something that it has only in its cache.
    pub(crate) is_dirty: bool,
    /// Commands on the medium fail with these sense data, and have no effect.
    pub(crate) fails_with: Option<Vec<u8>>,
    /// The next command on the medium ends with what became of an earlier write.
    pub(crate) defers: bool,
    /// So many flushes end with what Tarn reports once of a lost cache.
    pub(crate) reports_loss: u8,
}

impl Medium {
    /// One that has just been switched on.
    pub(crate) fn new(size: usize) -> Self {
        let mut designator = [5; 16];
        designator[8..].copy_from_slice(&NEXT.fetch_add(1, Ordering::SeqCst).to_be_bytes());
        Self {
            tape: None,
            bytes: vec![0; size],
            designator,
            is_read_only: false,
            attentions: VecDeque::from([(0x29, 0)]),
            busy: 0,
            holds: false,
            flush_fails: None,
            counts: BTreeMap::new(),
            unmapped: false,
            aborted: 0,
            writes_back: true,
            has_fua: true,
            has_flush: true,
            reads_zeros: true,
            blocks_max: 0,
            zeros_blocks_max: 4096,
            unready: 0,
            interrupts: None,
            is_dirty: false,
            fails_with: None,
            defers: false,
            reports_loss: 0,
        }
    }

    /// Carries a command out; `None`: it is held.
    pub(crate) fn execute(&mut self, cdb: &[u8], data: &[u8]) -> Option<Answer> {
        if let Some(tape) = &mut self.tape {
            let attention = match cdb[0] {
                0x12 => None,
                _ => self.attentions.pop_front(),
            };
            return match attention {
                Some((code, qualifier)) => Some(check(6, code, qualifier, 0)),
                None => tape.execute(cdb, data, &self.designator),
            };
        }
        let is_of_medium = matches!(cdb[0], 0x88 | 0x89 | 0x8a | 0x91 | 0x93);
        if is_of_medium && self.holds {
            return None;
        }
        if self
            .interrupts
            .take_if(|opcode| *opcode == cdb[0])
            .is_some()
        {
            return Some(check(6, 0x3f, 0x0e, 0));
        }
        if cdb[0] != 0x12
            && let Some((code, qualifier)) = self.attentions.pop_front()
        {
            return Some(check(6, code, qualifier, 0));
        }
        if is_of_medium && std::mem::take(&mut self.defers) {
            let mut answer = check(3, 0x0c, 0, 0);
            answer.sense[0] |= 1;
            return Some(answer);
        }
        if let Some(sense) = self.fails_with.clone().filter(|_| is_of_medium) {
            return Some(Answer {
                status: 2,
                sense,
                data: Vec::new(),
            });
        }
        if is_of_medium && self.busy > 0 {
            self.busy -= 1;
            return Some(Answer {
                status: 8,
                ..Answer::default()
            });
        }
        *self.counts.entry(cdb[0]).or_default() += 1;
        if cdb[0] == 0 && self.unready > 0 {
            self.unready -= 1;
            return Some(check(2, 0x04, 0x01, 0));
        }
        Some(match is_of_medium {
            true => self.work(cdb, data),
            false => self.describe(cdb),
        })
    }

    /// What it is.
    fn describe(&self, cdb: &[u8]) -> Answer {
        match (cdb[0], cdb[1] & 0x1f) {
            (0x00, _) => good(Vec::new()),
            (0x12, 0) => good(vec![0; 36]),
            (0x12, _) => self.page(cdb[2]),
            (0x5a, _) => {
                let flags = u8::from(self.has_fua) << 4 | u8::from(self.is_read_only) << 7;
                let cache = u8::from(self.writes_back) << 2;
                let mut page = vec![0, 0, 0, flags, 0, 0, 0, 0, 0x08, 18, cache];
                page.resize(28, 0);
                good(page)
            }
            (0x9e, 0x10) => {
                let blocks = (self.bytes.len() / BLOCK) as u64;
                let mut capacity = (blocks - 1).to_be_bytes().to_vec();
                let unmaps = 0x80 | u8::from(self.reads_zeros) << 6;
                capacity.extend([0, 0, 2, 0, 0, 3, unmaps, 0]);
                capacity.resize(32, 0);
                good(capacity)
            }
            (0x9e, 0x12) => {
                let mut status = vec![0, 0, 0, 20, 0, 0, 0, 0];
                status.extend(&cdb[2..10]);
                status.extend(u32::MAX.to_be_bytes());
                status.extend([u8::from(self.unmapped), 0, 0, 0]);
                good(status)
            }
            _ => check(5, 0x20, 0, 0),
        }
    }

    /// What it does with its data.
    fn work(&mut self, cdb: &[u8], data: &[u8]) -> Answer {
        let lba = u64::from_be_bytes(cdb[2..10].try_into().unwrap());
        let count = match cdb[0] {
            0x89 => cdb[13].into(),
            _ => u32::from_be_bytes(cdb[10..14].try_into().unwrap()),
        };
        let start = usize::try_from(lba).unwrap() * BLOCK;
        let length = count as usize * BLOCK;
        if cdb[0] == 0x91 {
            if let Some(left) = self.reports_loss.checked_sub(1) {
                self.reports_loss = left;
                return check(4, 0x0c, 0, 0);
            }
            return match self.flush_fails {
                Some(key) => check(key, 0x0c, 0, 0),
                None if !self.has_flush => check(5, 0x20, 0, 0),
                None => {
                    self.is_dirty = false;
                    good(Vec::new())
                }
            };
        }
        if matches!(cdb[0], 0x88 | 0x8a) && self.blocks_max > 0 && count > self.blocks_max {
            return check(5, 0x24, 0, 0);
        }
        let is_durable = self.has_fua && cdb[0] != 0x93 && cdb[1] & 0x08 != 0;
        self.is_dirty |= cdb[0] != 0x88 && self.writes_back && !is_durable;
        let Some(place) = self.bytes.get_mut(start..start + length) else {
            return check(5, 0x21, 0, 0);
        };
        match cdb[0] {
            0x93 if u64::from(count) > self.zeros_blocks_max => check(5, 0x24, 0, 0),
            0x88 => good(place.to_vec()),
            0x8a => {
                place.copy_from_slice(data);
                good(Vec::new())
            }
            0x93 => {
                self.unmapped = cdb[1] & 0x08 != 0;
                let blocks = place.chunks_mut(BLOCK);
                blocks.for_each(|block| block.copy_from_slice(data));
                good(Vec::new())
            }
            _ => {
                let (expected, new) = data.split_at(length);
                match place.iter().zip(expected).position(|(a, b)| a != b) {
                    Some(at) => check(0x0e, 0x1d, 0, u32::try_from(at).unwrap()),
                    None => {
                        place.copy_from_slice(new);
                        good(Vec::new())
                    }
                }
            }
        }
    }

    fn page(&self, page: u8) -> Answer {
        let mut data = vec![0, page, 0, 60];
        data.resize(64, 0);
        match page {
            0xb0 => {
                data[5] = 8;
                data[8..12].copy_from_slice(&self.blocks_max.to_be_bytes());
                data[36..44].copy_from_slice(&self.zeros_blocks_max.to_be_bytes());
            }
            0x83 => {
                let mut data = vec![0, page, 0, 20, 1, 3, 0, 16];
                data.extend(self.designator);
                return good(data);
            }
            0xb1 => data[5] = 1,
            0xb2 => data[5] = 0xe0,
            _ => return check(5, 0x24, 0, 0),
        }
        good(data)
    }
}
