//! Log devices of units, which the journal that ships uses: their requests, and what a start does with them.

use std::sync::Arc;
use std::time::Duration;

use engine::UnitIndex;
use store::{Bias, Journal, Limits, LogOptions, Noted, Shape};

use crate::disk::{BLOCK_BYTES, Disk};
use crate::log::medium::{Fate, Kept, Medium};
use crate::log::{BLOCK, HEADERS, Notes};
use crate::prng::Prng;

/// The log device of a unit.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) device: Medium,
    notes: Arc<Notes>,
    unit: [u8; 16],
    bias: Bias,
    shape: Shape,
    /// Of 1000 requests those that fail.
    failures: u32,
    /// Records that starts have carried out again.
    replayed: u64,
}

impl Log {
    /// A log of this unit, which its disk uses from now on.
    pub(super) fn draw(unit: UnitIndex, disk: &Disk, prng: &mut Prng) -> Self {
        let record_bytes = BLOCK * prng.size(2, 4);
        let ring_bytes = (record_bytes * prng.size(4, 8)) as u64;
        let len = usize::try_from(HEADERS + ring_bytes).unwrap_or(0);
        let mut name = *b"unit of the sim.";
        name[0] = b'0' + u8::try_from(unit.0).unwrap_or(0);
        let mut log = Self {
            device: Medium::new(vec![0; len]),
            notes: Arc::default(),
            unit: name,
            bias: match prng.chance(500) {
                true => Bias::Latency,
                false => Bias::Throughput,
            },
            shape: Shape {
                ring_bytes,
                record_bytes,
                limits: Limits {
                    loose_bytes: BLOCK_BYTES * prng.size(8, 200),
                    loose_changes: prng.size(4, 40),
                    live_records: prng.size(2, 20),
                    pass_bytes: BLOCK_BYTES * prng.size(8, 32),
                },
            },
            failures: match prng.chance(400) {
                true => u32::try_from(prng.size(1, 30)).unwrap_or(0),
                false => 0,
            },
            replayed: 0,
        };
        log.start(disk);
        log
    }

    /// The program starts: what the disk has not is taken from the log.
    #[expect(
        clippy::expect_used,
        reason = "a log that is not found ends the life with this word"
    )]
    pub(super) fn start(&mut self, disk: &Disk) {
        let options = LogOptions {
            unit: self.unit,
            known: self.notes.saved().known,
            new_id: self.unit,
            bias: self.bias,
            medium: Vec::new(),
            noted: Arc::clone(&self.notes) as Arc<dyn Noted>,
        };
        let device = self.device.clone();
        let size = (disk.blocks() * BLOCK_BYTES) as u64;
        let started = Journal::start(&device, device.len(), disk, size, &options, self.shape);
        let (journal, done) = started.expect("the log of the unit is found");
        self.replayed += done.records;
        disk.log_to(journal, device);
    }

    pub(super) const fn replayed(&self) -> u64 {
        self.replayed
    }

    /// The machine stops: of what was not synced any part may be there.
    pub(super) fn crash(&mut self, prng: &mut Prng) {
        let kept = [
            Kept::Nothing,
            Kept::Done,
            Kept::Asked,
            Kept::Sectors,
            Kept::Blocks,
        ];
        let kept = prng.pick(&kept).unwrap_or(Kept::Sectors);
        self.device = Medium::new(self.device.after_crash(kept, prng));
    }

    /// A request ends. What it was, and the core to wake.
    pub(super) fn end_request(
        &self,
        (now, is_young): (Duration, bool),
        prng: &mut Prng,
    ) -> Option<(String, usize)> {
        let at = prng.size(0, self.device.waiting().checked_sub(1)?);
        let what = self.device.describe(at);
        let fate = match is_young && prng.chance(self.failures) {
            true => Fate::Failed,
            false => Fate::Good,
        };
        let moment = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        let core = self.device.complete(at, fate, moment, prng)?;
        Some((format!("{what}: {fate:?}"), core))
    }
}
