//! What an image takes in its cluster: its own objects, and those that its snapshots keep.
//!
//! It is counted as `rbd du` does, object by object. The objects of each snapshot that differ from the snapshot before
//! it are counted once, as they do not change; those of the image that differ from the last snapshot each time.
//!
//! Who asks never waits: the answer is the outcome of the last count, and the question has the next one made, on one of
//! some threads that all images of the process share. A cluster that hangs holds those that count its images; they do
//! not keep others from being counted, as others begin beside them. An image has one at most. It counts over the
//! connection that serves the image, and holds no lock of the store while it asks the cluster. When the last user of
//! the store is gone, its count ends with the next object; the end of the process waits for that as for an image that
//! is closed.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rbd::{CallError, Image};

use super::errno::{CANCELED, NOT_CONNECTED};
use super::shared::{Common, Standing};
use crate::attendants::spawn;

/// Threads that count at a time, those left out that hang.
const THREADS_MAX: usize = 4;
/// A count that has taken so long may be one that hangs: others need not wait for it.
const HANGS: Duration = Duration::from_secs(30);
/// Where each object has to be looked at, the same between two pieces, but no longer than this.
const PIECE_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The images that are to be counted, and who counts.
#[derive(Debug, Default)]
struct Counters {
    queue: VecDeque<Weak<Common>>,
    /// By number: since when each has its image.
    busy: BTreeMap<u64, Instant>,
    last: u64,
}

static COUNTERS: Mutex<Option<Counters>> = Mutex::new(None);

fn counters<T>(call: impl FnOnce(&mut Counters) -> T) -> T {
    let mut counters = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner);
    call(counters.get_or_insert_default())
}

impl Counters {
    /// Threads that are not known to hang.
    fn at_work(&self) -> usize {
        let is_at_work = |since: &&Instant| since.elapsed() < HANGS;
        self.busy.values().filter(is_at_work).count()
    }

    /// Takes an image into the queue. The number of a thread that is to begin, as there are too few for the queue, or
    /// as some of them hang.
    fn enter(&mut self, common: Option<Weak<Common>>) -> Option<u64> {
        self.queue.extend(common);
        let is_short = !self.queue.is_empty() && self.at_work() < THREADS_MAX;
        is_short.then(|| {
            self.last += 1;
            self.busy.insert(self.last, Instant::now());
            self.last
        })
    }

    /// The next image of a thread; without one it ends. One that has hung ends where there are enough others.
    fn next(&mut self, number: u64) -> Option<Weak<Common>> {
        self.busy.remove(&number);
        if self.at_work() >= THREADS_MAX {
            return None;
        }
        let next = self.queue.pop_front();
        if next.is_some() {
            self.busy.insert(number, Instant::now());
        }
        next
    }
}

/// What the image was found to take last; has it counted again. Does not wait.
///
/// # Errors
///
/// `WouldBlock`: nobody has counted it yet.
pub(super) fn used_bytes(common: &Arc<Common>) -> io::Result<u64> {
    // One that is a snapshot itself is counted with its image, where that is a disk.
    if common.options.snapshot.is_some() {
        return Ok(0);
    }
    let is_open = matches!(common.standing(), Standing::Up(_)) && !common.is_closed();
    let order = (is_open && common.meter.takes_order()).then(|| Arc::downgrade(common));
    if let Some(number) = counters(|all| all.enter(order)) {
        begin(number);
    }
    let bytes = common.meter.state().bytes;
    bytes.ok_or_else(|| io::ErrorKind::WouldBlock.into())
}

fn begin(number: u64) {
    let run = move || {
        while let Some(common) = counters(|all| all.next(number)) {
            if let Some(common) = common.upgrade() {
                count_now(&common);
            }
        }
    };
    if let Err(error) = spawn("tarn-rbd", run) {
        // What is in the queue waits for the next question.
        tracing::warn!(%error, "there is no thread to count what images take");
        counters(|all| all.busy.remove(&number));
    }
}

fn count_now(common: &Common) {
    let begun = Instant::now();
    let counted = match common.standing() {
        Standing::Up(image) => count(common, &image),
        Standing::Opening | Standing::Gone => Err(CallError {
            call: "open",
            errno: NOT_CONNECTED,
        }),
    };
    if let Some(reason) = common.meter.end(counted, begun.elapsed()) {
        let image = &common.options;
        tracing::warn!(%image, reason, "counting the space of an RBD image failed: quotas use the last figure");
    }
}

fn count(common: &Common, image: &Image) -> Result<u64, CallError> {
    let known = common.meter.state().parts.clone();
    let mut snapshots = image.snapshots()?;
    snapshots.sort_by_key(|one| one.id);
    let (mut all, mut parts, mut since) = (0_u64, HashMap::new(), None);
    for snapshot in &snapshots {
        let before = since.map(|one: &rbd::ImageSnapshot| one.id);
        let part = (snapshot.id, before);
        let name = since.map(|one| &*one.name);
        let bytes = match known.get(&part) {
            Some(bytes) => *bytes,
            None => {
                let there = image.at_snapshot(&snapshot.name)?;
                let bytes = walk(common, &there, name, snapshot.size_bytes)?;
                // Kept also if the rest of this count fails: a snapshot does not change.
                common.meter.state().parts.insert(part, bytes);
                bytes
            }
        };
        all = all.saturating_add(bytes);
        parts.insert(part, bytes);
        since = Some(snapshot);
    }
    let name = since.map(|one| &*one.name);
    let own = walk(common, image, name, image.size_bytes()?)?;
    common.meter.state().parts = parts;
    Ok(all.saturating_add(own))
}

/// Counts the objects of an image that differ from a snapshot: at once where it is known which do, otherwise piece by
/// piece.
fn walk(
    common: &Common,
    image: &Image,
    since: Option<&str>,
    size_bytes: u64,
) -> Result<u64, CallError> {
    // A rollback changes what is counted.
    let goes_on = || !common.meter.state().is_given_up && !common.is_closed();
    let ask = |range: Range<u64>| image.own_bytes(since, range, &goes_on);
    if image.knows_objects()? {
        return ask(0..size_bytes);
    }
    let (mut at, mut all) = (0, 0_u64);
    while at < size_bytes {
        let end = size_bytes.min(at.saturating_add(common.found.walk_bytes.max(1)));
        let begun = Instant::now();
        all = all.saturating_add(ask(at..end)?);
        at = end;
        if !goes_on() {
            return Err(CallError {
                call: "rbd_diff_iterate2",
                errno: CANCELED,
            });
        }
        thread::park_timeout(begun.elapsed().min(PIECE_PAUSE_MAX));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_bounded_and_those_that_hang_are_replaced() {
        let mut all = Counters::default();
        let image = || Some(Weak::new());
        assert_eq!(all.enter(None), None, "nothing is to be counted");
        let begun: Vec<_> = (0..10).filter_map(|_| all.enter(image())).collect();
        assert_eq!(begun, [1, 2, 3, 4]);
        for number in begun {
            assert!(all.next(number).is_some());
        }
        assert_eq!(all.enter(image()), None);
        let long_ago = Instant::now().checked_sub(HANGS).unwrap();
        all.busy.insert(2, long_ago);
        assert_eq!(all.enter(None), Some(5), "one hangs");
        assert!(all.next(5).is_some());
        // It goes on, and there are enough without it.
        assert!(all.next(2).is_none());
        assert_eq!((all.busy.len(), all.queue.len()), (4, 6));
        all.queue.clear();
        assert!(all.next(1).is_none());
        assert_eq!(all.busy.len(), 3);
    }
}
