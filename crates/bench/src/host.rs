//! The machine that the generator runs on, as far as figures depend on it.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// What has to be reported with a figure.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Host {
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the first CPU.
    pub cpu_model: String,
    /// CPUs that are online.
    pub cpus: usize,
    /// TCP congestion control of new sockets.
    pub congestion_control: String,
    /// CPUs that generator threads were pinned to; empty when they were not.
    pub pinned_cpus: Vec<usize>,
    /// When the benchmark began, in UTC: 2026-11-21T08:15:00Z.
    pub date: String,
    /// Version of Tarn that generated the load.
    pub tarn_version: String,
    /// The command line, without secrets.
    pub command_line: Vec<String>,
}

impl Host {
    /// This machine, now.
    #[must_use]
    pub fn here(pinned_cpus: Vec<usize>, command_line: Vec<String>) -> Self {
        let read = |path: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            text.trim().to_owned()
        };
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            kernel: read("/proc/sys/kernel/osrelease"),
            cpu_model: cpu_model(&read("/proc/cpuinfo")),
            cpus: count_cpus(&read("/sys/devices/system/cpu/online")),
            congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            pinned_cpus,
            date: utc(since_1970.map_or(0, |time| time.as_secs())),
            tarn_version: env!("CARGO_PKG_VERSION").to_owned(),
            command_line,
        }
    }
}

fn cpu_model(cpuinfo: &str) -> String {
    let model = cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == "model name");
    // Other architectures than x86 have no such line.
    model.map_or_else(
        || std::env::consts::ARCH.to_owned(),
        |(_, value)| value.trim().to_owned(),
    )
}

/// The number of CPUs in a list such as `0-3,6`.
fn count_cpus(list: &str) -> usize {
    let counts = list.split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some(last.checked_sub(first)? + 1)
    });
    counts.sum()
}

/// Seconds since 1970 as a date of the Gregorian calendar.
///
/// Counted in eras of 400 years that begin with March, so that the day that may be missing comes
/// last.
fn utc(seconds: u64) -> String {
    const DAY_SECONDS: u64 = 86_400;
    const ERA_DAYS: u64 = 146_097;
    // From 0000-03-01 to 1970-01-01.
    const EPOCH_DAY: u64 = 719_468;
    let (day, second) = (seconds / DAY_SECONDS + EPOCH_DAY, seconds % DAY_SECONDS);
    let (era, day) = (day / ERA_DAYS, day % ERA_DAYS);
    let leap_days = day / 1460 - day / 36_524 + day / 146_096;
    let year_of_era = (day - leap_days) / 365;
    let day = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let year = era * 400 + year_of_era + carry;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days_and_years() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
            (1_798_761_600, "2027-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), date);
        }
    }

    #[test]
    fn lists_of_cpus_are_counted() {
        for (list, count) in [("0", 1), ("0-3", 4), ("0-3,6,8-9", 7), ("", 0)] {
            assert_eq!(count_cpus(list), count);
        }
    }

    #[test]
    fn the_first_model_name_counts() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: Other\n";
        assert_eq!(cpu_model(text), "Some CPU @ 2 GHz");
        assert_eq!(cpu_model(""), std::env::consts::ARCH);
    }

    #[test]
    fn this_machine_is_described() {
        let host = Host::here(vec![1], vec!["tarn".to_owned()]);
        assert!(host.cpus > 0 && !host.kernel.is_empty() && !host.cpu_model.is_empty());
    }
}
