//! Figures as people read them: sizes, ages, moments.

use daemon::calendar::Moment;

/// Binary units of sizes, each 1024 times the one before.
const SIZES: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
/// Units of time in seconds, and how many of each make the one before.
const AGES: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];

/// A size in the largest unit that it has one of: `10 GiB`, `1.5 MiB`.
pub(super) fn size(bytes: u64) -> String {
    let largest = (bytes.max(1).ilog2() / 10) as usize;
    let unit = SIZES.get(largest).copied().unwrap_or("EiB");
    // Two digits are for people; --json has every byte.
    let figure = format!("{:.2}", bytes as f64 / (1_u64 << (10 * largest)) as f64);
    let figure = figure.trim_end_matches('0').trim_end_matches('.');
    format!("{figure} {unit}")
}

/// A latency in microseconds, in the unit that suits it: `85 µs`, `1.25 ms`, `2.10 s`.
pub(super) fn latency(us: f64) -> String {
    // The borders are where three digits would become four.
    match us {
        us if us < 999.5 => format!("{} µs", digits(us)),
        us if us < 999_500.0 => format!("{} ms", digits(us / 1e3)),
        us => format!("{} s", digits(us / 1e6)),
    }
}

/// Bytes a second, in powers of 1000: `12.3 MB/s`.
pub(super) fn throughput(bytes: u64) -> String {
    let (mut figure, mut unit) = (bytes as f64, "B/s");
    for larger in ["kB/s", "MB/s", "GB/s", "TB/s"] {
        if figure < 999.5 {
            break;
        }
        (figure, unit) = (figure / 1e3, larger);
    }
    format!("{} {unit}", digits(figure))
}

/// Three digits, as the console has them: 1.23, 12.3, 123.
fn digits(figure: f64) -> String {
    match figure {
        figure if figure >= 99.95 || figure.fract() == 0.0 => format!("{figure:.0}"),
        figure if figure >= 9.995 => format!("{figure:.1}"),
        figure => format!("{figure:.2}"),
    }
}

/// How long ago a moment was, in its two largest units: `3 d 4 h`.
pub(super) fn age(then_ms: u64, now_ms: u64) -> String {
    let mut seconds = now_ms.saturating_sub(then_ms) / 1000;
    let mut parts = Vec::new();
    for (unit, length) in AGES {
        let count = seconds / length;
        seconds %= length;
        if count > 0 || !parts.is_empty() {
            parts.push((count, unit));
        }
    }
    let shown: Vec<_> = parts
        .into_iter()
        .take(2)
        .filter(|(count, _)| *count > 0)
        .map(|(count, unit)| format!("{count} {unit}"))
        .collect();
    if shown.is_empty() {
        return "0 s".to_owned();
    }
    shown.join(" ")
}

/// A moment: `2026-11-21 10:03:36Z`.
pub(super) fn moment(at_ms: u64) -> String {
    let Moment {
        date: (year, month, day),
        time: (hour, minute, second),
    } = Moment::of(at_ms / 1000);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

/// A count with its noun: `1 session`, `2 sessions`.
pub(super) fn count(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_their_largest_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536 << 10, "1.5 MiB"),
            (10 << 30, "10 GiB"),
            ((1 << 40) + (1 << 38), "1.25 TiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(size(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn latencies_have_the_unit_that_suits_them() {
        for (us, text) in [
            (0.0, "0 µs"),
            (1.5, "1.50 µs"),
            (999.0, "999 µs"),
            (999.6, "1.00 ms"),
            (12_345.0, "12.3 ms"),
            (1250.0, "1.25 ms"),
            (2.1e6, "2.10 s"),
        ] {
            assert_eq!(latency(us), text);
        }
    }

    #[test]
    fn throughputs_are_those_of_the_console() {
        for (bytes, text) in [
            (0, "0 B/s"),
            (999, "999 B/s"),
            (1_000, "1 kB/s"),
            (12_345_678, "12.3 MB/s"),
            (1_234_000_000, "1.23 GB/s"),
            (999_600, "1.00 MB/s"),
        ] {
            assert_eq!(throughput(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn ages_have_their_two_largest_units() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (61, "1 min 1 s"),
            (3_605, "1 h"),
            (93_784, "1 d 2 h"),
        ] {
            assert_eq!(age(5_000, 5_000 + seconds * 1000), text, "{seconds}");
        }
        assert_eq!(age(9, 5), "0 s", "a clock that was put back");
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399, "2000-02-28 23:59:59Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (951_868_800, "2000-03-01 00:00:00Z"),
            (1_735_689_599, "2024-12-31 23:59:59Z"),
            (4_107_542_400, "2100-03-01 00:00:00Z"),
            (1_795_255_416, "2026-11-21 10:03:36Z"),
        ] {
            assert_eq!(moment(seconds * 1000), text);
        }
    }
}
