//! The latch of failed flushes: the product's own file store (`store`), on a simulated kernel.
//!
//! Here nothing stands in for the code that ships: a real store is opened, and every operation that
//! it asks its core's ring for is answered from a model of a kernel that reports a lost write-back
//! once. Requests of several cores overlap, are cancelled, aborted, or never end.
//!
//! | Rule | What must hold |
//! | --- | --- |
//! | `a-failed-flush-stays-known` | after the kernel has reported a lost flush, no flush or durable write ends well |
//! | `good-is-durable` | a durable write that ends well was synced after it was written |
//! | `nothing-is-latched-in-vain` | while no flush has failed and no request is undecided, flushes end well |
//! | `a-medium-error-is-where-it-is` | a read fails at the first block that cannot be read, and only then |

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use memory::{Payload, Pool};
use store::{
    Backstore, IoFailure, IoRequest, IoResult, IoTag, OpenOptions, Order, Outlet, PartTag,
    RingOperation, SharedStore, StoreKind, Submitted,
};

use crate::disk::{BLOCK_BYTES, blocks_of};
use crate::prng::Prng;
use crate::setup::smallest_pool;

const CORES: usize = 2;
const STEPS: usize = 200;
const BYTES: usize = 4096;
const EIO: i32 = 5;
const EROFS: i32 = 30;
const EOPNOTSUPP: i32 = 95;
const ENOSPC: i32 = 28;
const ECANCELED: i32 = 125;

/// A rule that was broken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Breach {
    /// Its name, as in the table above.
    pub rule: &'static str,
    /// The seed that shows it.
    pub seed: u64,
    /// What happened.
    pub detail: String,
}

/// A request that the store has not ended.
struct Open {
    core: usize,
    tag: IoTag,
    operation: RingOperation,
    /// It is to be durable when it ends: a flush or a durable write.
    is_promise: bool,
    /// A flush had been reported lost when it began.
    is_after_loss: bool,
    /// Its data is on the medium, as the kernel was asked for it.
    is_synced: bool,
    /// The kernel refused a try of it in a way that may have been a lost flush.
    is_doubtful: bool,
}

struct World {
    seed: u64,
    prng: Prng,
    stores: Vec<Box<dyn Backstore>>,
    outlet: Outlet,
    open: Vec<Open>,
    next_tag: u64,
    pool: Pool,
    /// Blocks that cannot be read.
    bad: BTreeSet<usize>,
    /// Reads that are not over, by tag, and where they begin.
    reads: BTreeMap<u64, u64>,
    /// The kernel has reported a lost flush.
    is_lost: bool,
    /// A doubt that nobody decided is left for good.
    is_doubted: bool,
}

/// Lives one seed through.
///
/// # Errors
///
/// A rule was broken, or the store cannot be opened at all.
pub fn run(seed: u64) -> Result<(), Breach> {
    let scratch = Scratch::new();
    let mut options = OpenOptions::new(StoreKind::File, scratch.0.join("disk"));
    options.size_bytes = Some(1 << 20);
    let broken = |detail: String| Breach {
        rule: "it-opens",
        seed,
        detail,
    };
    let shared: Arc<dyn SharedStore> = options.open().map_err(|error| broken(error.to_string()))?;
    let mut stores = Vec::new();
    for _ in 0..CORES {
        stores.push(shared.handle().map_err(|error| broken(error.to_string()))?);
    }
    let mut prng = Prng::stream(seed, "flush");
    let bad = (0..prng.size(0, 4)).map(|_| prng.size(0, 16 * BYTES / BLOCK_BYTES - 1));
    let mut world = World {
        seed,
        bad: bad.collect(),
        prng,
        pool: smallest_pool(),
        reads: BTreeMap::new(),
        stores,
        outlet: Outlet::default(),
        open: Vec::new(),
        next_tag: 0,
        is_lost: false,
        is_doubted: false,
    };
    for _ in 0..STEPS {
        world.step()?;
    }
    world.end(&*shared)
}

impl World {
    fn step(&mut self) -> Result<(), Breach> {
        if self.open.is_empty() || (self.open.len() < 8 && self.prng.chance(400)) {
            return self.begin();
        }
        let index = self.prng.size(0, self.open.len() - 1);
        let request = self.open.swap_remove(index);
        self.go_on(request)
    }

    fn begin(&mut self) -> Result<(), Breach> {
        let core = self.prng.size(0, CORES - 1);
        let durable = self.prng.chance(500);
        let offset = self.prng.below(16) * BYTES as u64;
        let tag = IoTag(self.next_tag);
        self.next_tag += 1;
        let mut is_flush = false;
        let request = match self.prng.below(100) {
            0..36 => {
                is_flush = true;
                IoRequest::Flush
            }
            36..44 => self.begin_read(tag, offset),
            44..50 => IoRequest::WriteZeros {
                range: offset..offset + BYTES as u64,
                durable,
            },
            _ => IoRequest::Write {
                offset,
                data: Payload::Heap(vec![7; BYTES]),
                durable,
            },
        };
        let submitted = self.stores[core].submit(tag, request, &mut self.outlet);
        let result = match submitted {
            Submitted::Done(result) => Some(result),
            Submitted::Taken => None,
        };
        let is_promise = is_flush || durable && !self.reads.contains_key(&tag.0);
        let after = (self.is_lost, false, false);
        self.carry_on(core, tag, result, is_promise, after)
    }

    fn begin_read(&mut self, tag: IoTag, offset: u64) -> IoRequest {
        self.reads.insert(tag.0, offset);
        IoRequest::Read {
            offset,
            len: BYTES,
            buffer: self.pool.allocate(BYTES).ok(),
        }
    }

    fn carry_on(
        &mut self,
        core: usize,
        tag: IoTag,
        result: Option<IoResult>,
        is_promise: bool,
        (is_after_loss, is_synced, is_doubtful): (bool, bool, bool),
    ) -> Result<(), Breach> {
        if let Some(result) = result {
            return self.judge(tag, result, is_promise, is_after_loss, is_synced);
        }
        match self.outlet.next_order() {
            Some(Order::Answer { result, .. }) => {
                self.judge(tag, result, is_promise, is_after_loss, is_synced)
            }
            Some(Order::Ring { operation, .. }) => {
                self.open.push(Open {
                    core,
                    tag,
                    operation,
                    is_promise,
                    is_after_loss,
                    is_synced,
                    is_doubtful,
                });
                Ok(())
            }
            other => self.breach("it-runs-on-the-ring", format!("{other:?}")),
        }
    }

    /// The kernel ends an operation, or the task of it is aborted.
    fn go_on(&mut self, request: Open) -> Result<(), Breach> {
        let Open {
            core,
            tag,
            operation,
            is_promise,
            is_after_loss,
            is_synced,
            mut is_doubtful,
        } = request;
        // The second try of a durable write is a plain one.
        let is_recheck = is_doubtful;
        let (result, is_now_synced) = self.kernel(&operation, is_recheck, &mut is_doubtful);
        // Only a second try that fails as the first one did proves that no flush failed.
        self.is_doubted |= is_recheck && result != -ENOSPC;
        let store = &mut self.stores[core];
        if self.prng.chance(100) {
            // The task was aborted meanwhile: the rest is not begun.
            store.cancel(tag, &mut self.outlet);
            let order = self.outlet.next_order();
            if !matches!(order, Some(Order::CancelParts(_))) {
                return self.breach("it-runs-on-the-ring", format!("{order:?}"));
            }
            self.is_doubted |= is_doubtful;
        }
        store.handle_ring_result(PartTag::of(tag), operation, result, &mut self.outlet);
        let synced = is_synced || is_now_synced;
        let facts = (is_after_loss, synced, is_doubtful);
        self.carry_on(core, tag, None, is_promise, facts)
    }

    /// What the kernel answers, and whether the data of the request is durable by it.
    fn kernel(
        &mut self,
        operation: &RingOperation,
        is_recheck: bool,
        is_doubtful: &mut bool,
    ) -> (i32, bool) {
        let part = match operation {
            RingOperation::Write { data, done, .. } if self.prng.chance(50) => {
                (data.len() - done) / 2
            }
            RingOperation::Write { data, done, .. } => data.len() - done,
            RingOperation::Read { .. }
            | RingOperation::Sync { .. }
            | RingOperation::Allocate { .. }
            | RingOperation::Extents { .. }
            | RingOperation::Size { .. } => 0,
        };
        let len = i32::try_from(part).unwrap_or(i32::MAX);
        match operation {
            RingOperation::Write { durable: true, .. } => match self.prng.below(10) {
                // The flush half failed, and what others wrote is lost with it.
                0 => {
                    self.is_lost = true;
                    *is_doubtful = true;
                    (-EIO, false)
                }
                // The write half did.
                1 => {
                    *is_doubtful = true;
                    (-ENOSPC, false)
                }
                2 => (-ECANCELED, false),
                _ => (len, true),
            },
            RingOperation::Write { .. } => match self.prng.below(8) {
                // What failed for lack of space does so again.
                0..=4 if is_recheck && !self.is_lost => (-ENOSPC, false),
                5 => (-ECANCELED, false),
                6 if is_recheck => (-EROFS, false),
                _ => (len, false),
            },
            RingOperation::Sync { .. } => match self.prng.below(20) {
                0 => {
                    self.is_lost = true;
                    (-EIO, false)
                }
                1 => (-ECANCELED, false),
                _ => (0, true),
            },
            RingOperation::Read {
                offset,
                buffer,
                done,
                ..
            } => {
                let end = offset + buffer.len() as u64;
                (self.read(offset + *done as u64..end), false)
            }
            RingOperation::Allocate { .. } => match self.prng.below(4) {
                0 => (0, false),
                1 => (-ENOSPC, false),
                _ => (-EOPNOTSUPP, false),
            },
            RingOperation::Extents { .. } | RingOperation::Size { .. } => (-EIO, false),
        }
    }

    /// What the kernel answers to a read. Of several blocks at once it may fail although each of them can be read.
    fn read(&mut self, range: Range<u64>) -> i32 {
        let blocks = blocks_of(&range);
        let bad = self.bad.range(blocks.clone()).next();
        let good = bad.map_or(blocks.end, |bad| *bad) - blocks.start;
        let some = match self.prng.below(10) {
            0 if blocks.len() > 1 => return -EIO,
            1 => self.prng.size(0, good),
            _ if good < blocks.len() && self.prng.chance(500) => return -EIO,
            _ => good,
        };
        match i32::try_from(some * BLOCK_BYTES).unwrap_or(i32::MAX) {
            0 if good == 0 => -EIO,
            count => count,
        }
    }

    /// A read is over.
    fn judge_read(&self, offset: u64, result: &IoResult) -> Result<(), Breach> {
        let blocks = blocks_of(&(offset..offset + BYTES as u64));
        let bad = self.bad.range(blocks).next();
        let first = bad.map(|bad| (bad * BLOCK_BYTES) as u64);
        let is_right = match result {
            Ok(_) => first.is_none(),
            Err(IoFailure::Medium { offset }) => first == Some(*offset),
            Err(_) => true,
        };
        match is_right {
            true => Ok(()),
            false => self.breach(
                "a-medium-error-is-where-it-is",
                format!("{first:?}: {result:?}"),
            ),
        }
    }

    fn judge(
        &mut self,
        tag: IoTag,
        result: IoResult,
        is_promise: bool,
        is_after_loss: bool,
        is_synced: bool,
    ) -> Result<(), Breach> {
        if let Some(offset) = self.reads.remove(&tag.0) {
            return self.judge_read(offset, &result);
        }
        if result.is_err() || !is_promise {
            return Ok(());
        }
        if is_after_loss {
            return self.breach("a-failed-flush-stays-known", "it ended well".to_owned());
        }
        if !is_synced {
            return self.breach("good-is-durable", "it was not synced".to_owned());
        }
        Ok(())
    }

    /// Everything that is open ends; what is left is the latch.
    fn end(&mut self, shared: &dyn SharedStore) -> Result<(), Breach> {
        for _ in 0..100 * STEPS {
            let Some(request) = self.open.pop() else {
                break;
            };
            self.go_on(request)?;
        }
        let is_latched = shared.is_flush_latched();
        if self.is_lost && !is_latched {
            return self.breach(
                "a-failed-flush-stays-known",
                "no latch at the end".to_owned(),
            );
        }
        if !self.is_lost && !self.is_doubted && is_latched && self.open.is_empty() {
            return self.breach(
                "nothing-is-latched-in-vain",
                "a latch at the end".to_owned(),
            );
        }
        Ok(())
    }

    fn breach(&self, rule: &'static str, detail: String) -> Result<(), Breach> {
        let seed = self.seed;
        Err(Breach { rule, seed, detail })
    }
}

/// A directory that goes away with this value; in memory where there is such a place, because its
/// file system is one on which a durable write is one operation.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let memory = Path::new("/dev/shm");
        let base = match memory.is_dir() {
            true => memory.to_owned(),
            false => std::env::temp_dir(),
        };
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("tarn-sim-{}-{number}", std::process::id()));
        // What is wrong with it shows when the store is opened.
        drop(fs::create_dir(&path));
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}
