//! The CPU time of a target's process, from /proc.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// CPU time that a process used between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTime {
    /// In user mode, from `stat`, in steps of a clock tick (10 ms).
    pub user: Duration,
    /// In the kernel, from `stat`, in steps of a clock tick.
    pub system: Duration,
    /// In all, from `schedstat` of every thread: exact, but a thread that ended is not in it
    /// from its last look on.
    pub total: Duration,
}

/// A process whose CPU time is measured.
#[derive(Clone, Debug)]
pub struct Process {
    proc: PathBuf,
    tick: Duration,
}

/// What one look showed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Look {
    user_ticks: u64,
    system_ticks: u64,
    /// Nanoseconds on a CPU, by thread.
    threads: BTreeMap<u32, u64>,
}

/// The CPUs that a process may run on, as the kernel lists them (`0-3,8`); `None` when it is gone.
#[must_use]
pub fn allowed_cpus(pid: u32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(line.trim().to_owned())
}

impl Process {
    /// The process with this number.
    #[must_use]
    pub fn new(pid: u32) -> Self {
        let ticks_per_second = rustix::param::clock_ticks_per_second();
        Self {
            proc: format!("/proc/{pid}").into(),
            tick: Duration::from_secs(1)
                .checked_div(u32::try_from(ticks_per_second).unwrap_or(0))
                .unwrap_or_default(),
        }
    }

    /// What it has used until now.
    ///
    /// # Errors
    ///
    /// It is gone, or may not be looked at.
    pub fn look(&self) -> io::Result<Look> {
        let stat = fs::read_to_string(self.proc.join("stat"))?;
        let odd = || io::Error::other("stat has another form than expected");
        let (user_ticks, system_ticks) = parse_stat(&stat).ok_or_else(odd)?;
        let mut threads = BTreeMap::new();
        for entry in fs::read_dir(self.proc.join("task"))? {
            let path = entry?.path();
            // A thread may end between being listed and being looked at.
            if let (Some(thread), Ok(text)) =
                (number_of(&path), fs::read_to_string(path.join("schedstat")))
            {
                threads.insert(thread, parse_schedstat(&text).ok_or_else(odd)?);
            }
        }
        Ok(Look {
            user_ticks,
            system_ticks,
            threads,
        })
    }

    /// What was used between two looks.
    #[must_use]
    pub fn used(&self, before: &Look, after: &Look) -> CpuTime {
        let ticks = |before: u64, after: u64| {
            let ticks = u32::try_from(after.saturating_sub(before)).unwrap_or(u32::MAX);
            self.tick.saturating_mul(ticks)
        };
        let threads = after.threads.iter().map(|(thread, &after)| {
            after.saturating_sub(before.threads.get(thread).copied().unwrap_or(0))
        });
        CpuTime {
            user: ticks(before.user_ticks, after.user_ticks),
            system: ticks(before.system_ticks, after.system_ticks),
            total: Duration::from_nanos(threads.sum()),
        }
    }
}

fn number_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.parse().ok()
}

/// Fields 14 and 15, utime and stime in ticks. The name, field 2, may hold anything, so fields are
/// counted from the last parenthesis.
fn parse_stat(text: &str) -> Option<(u64, u64)> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// The first field, nanoseconds on a CPU.
fn parse_schedstat(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_a_name_of_any_form() {
        let stat = "12 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 111 222 0 0 20 0";
        assert_eq!(parse_stat(stat), Some((111, 222)));
        assert_eq!(parse_stat("12 (a) S 1 2"), None);
        assert_eq!(parse_schedstat("987654321 55 3\n"), Some(987_654_321));
        assert_eq!(parse_schedstat(""), None);
    }

    #[test]
    fn threads_that_came_count_in_full_and_those_that_went_do_not() {
        let process = Process {
            proc: PathBuf::new(),
            tick: Duration::from_millis(10),
        };
        let look = |user_ticks, threads: &[(u32, u64)]| Look {
            user_ticks,
            system_ticks: 7,
            threads: threads.iter().copied().collect(),
        };
        let before = look(3, &[(1, 100), (2, 50)]);
        let after = look(5, &[(1, 150), (3, 7)]);
        let expected = CpuTime {
            user: Duration::from_millis(20),
            system: Duration::ZERO,
            total: Duration::from_nanos(57),
        };
        assert_eq!(process.used(&before, &after), expected);
    }

    #[test]
    fn the_own_process_can_be_looked_at_and_a_missing_one_not() {
        assert!(Process::new(std::process::id()).look().is_ok());
        assert!(Process::new(u32::MAX).look().is_err());
    }
}
