//! Which cores this process may use, and letting a thread run on all of them.

use std::io;
use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// What the process was allowed when it first asked; a pinned thread is allowed less.
static ALLOWED: OnceLock<CpuSet> = OnceLock::new();

pub(crate) fn allowed() -> io::Result<CpuSet> {
    if let Some(set) = ALLOWED.get() {
        return Ok(*set);
    }
    let set = sched_getaffinity(None)?;
    Ok(*ALLOWED.get_or_init(|| set))
}

/// The numbers of the cores that this process may run on, in ascending order. Call it first
/// before any thread is pinned.
pub fn usable() -> io::Result<Vec<usize>> {
    let set = allowed()?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&core| set.is_set(core))
        .collect())
}

/// Lets the calling thread run on all cores of the process again.
pub(crate) fn unpin() -> io::Result<()> {
    Ok(sched_setaffinity(None, &allowed()?)?)
}

/// The calling thread, as the system numbers it; `/proc/self/task` shows it.
pub fn thread_id() -> u32 {
    rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_was_tied_to_a_core_may_run_on_all_again() {
        let cores = usable().unwrap();
        assert!(!cores.is_empty());
        // On a thread of its own, since the test runner's go on to other tests.
        std::thread::spawn(move || {
            let mut set = CpuSet::new();
            set.set(cores[0]);
            sched_setaffinity(None, &set).unwrap();
            assert_eq!(usable().unwrap(), cores);
            unpin().unwrap();
            assert_eq!(sched_getaffinity(None).unwrap(), allowed().unwrap());
        })
        .join()
        .unwrap();
    }
}
