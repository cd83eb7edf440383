//! Which cores this process may use, and tying a thread to one.

use std::io;
use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// What the process was allowed when it first asked; a pinned thread is allowed less.
static ALLOWED: OnceLock<CpuSet> = OnceLock::new();

fn allowed() -> io::Result<CpuSet> {
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

/// Ties the calling thread to one core. Threads it starts later inherit that, save the helper
/// threads of a reactor.
pub fn pin(core: usize) -> io::Result<()> {
    let allowed = allowed()?;
    if core >= CpuSet::MAX_CPU || !allowed.is_set(core) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("core {core} is not one this process may use"),
        ));
    }
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// Lets the calling thread run on all cores of the process again.
pub(crate) fn unpin() -> io::Result<()> {
    Ok(sched_setaffinity(None, &allowed()?)?)
}

/// The calling thread, as the system numbers it; `/proc/self/task` tells of it.
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
    fn a_thread_can_be_tied_to_each_usable_core_and_to_no_other() {
        let cores = usable().unwrap();
        assert!(!cores.is_empty());
        // On a thread of its own, since the test runner's go on to other tests.
        std::thread::spawn(move || {
            for &core in &cores {
                pin(core).unwrap();
                assert_eq!(rustix::thread::sched_getcpu(), core);
            }
            assert_eq!(usable().unwrap(), cores);
            unpin().unwrap();
            let outside = cores.last().unwrap() + 1;
            assert!(pin(outside).is_err());
            assert!(pin(usize::MAX).is_err());
        })
        .join()
        .unwrap();
    }
}
