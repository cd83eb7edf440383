//! Counters to points: one row of points for each range. Each point is made from the counters themselves, so that a
//! percentile of two hours is one of all commands in them. Pure.

use std::collections::VecDeque;

use api::figures::{FigurePoint, Range};
use api::stats::LATENCY_BOUNDS_US;
use plane::{KindCounts, LATENCY_BUCKETS, SeriesCounts};

/// A range: how long its steps are, and how many of them are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    pub(super) step_ms: u64,
    pub(super) points_max: u32,
}

/// One hour, one day, thirty days.
pub(super) const LEVELS: [Level; 3] = [
    Level {
        step_ms: 10_000,
        points_max: 360,
    },
    Level {
        step_ms: 300_000,
        points_max: 288,
    },
    Level {
        step_ms: 7_200_000,
        points_max: 360,
    },
];

/// A clock that shows an earlier time (2020-01-01) has not been set yet: what happens then has no time.
const CLOCK_SET_MS: u64 = 1_577_836_800_000;

/// The position of a range in [`LEVELS`].
pub(super) const fn level_of(range: Range) -> usize {
    match range {
        Range::Hour => 0,
        Range::Day => 1,
        Range::Month => 2,
    }
}

/// Reads and writes, by bucket of their latency.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Latency(pub(super) [u64; LATENCY_BUCKETS]);

impl Default for Latency {
    fn default() -> Self {
        Self([0; LATENCY_BUCKETS])
    }
}

impl Latency {
    fn combine(&mut self, other: &Self, with: fn(u64, u64) -> u64) {
        for (mine, other) in self.0.iter_mut().zip(other.0) {
            *mine = with(*mine, other);
        }
    }

    /// The latency that this part of them did not exceed, interpolated within its bucket; above all bounds the last
    /// bound. `None` if there were none.
    fn percentile(&self, part: f64) -> Option<f64> {
        let total: u64 = self.0.iter().sum();
        if total == 0 {
            return None;
        }
        let mut left = part * real(total);
        let mut low = 0.0;
        for (count, bound) in self.0.into_iter().zip(LATENCY_BOUNDS_US) {
            let (count, high) = (real(count), real(bound));
            if count > 0.0 && left <= count {
                return Some(low + (high - low) * (left / count));
            }
            left -= count;
            low = high;
        }
        Some(low)
    }
}

/// Counters of a unit, of all its initiators together: what they are, what they gained in an interval, or what they
/// gained in several.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Gain {
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) others: u64,
    pub(super) read_bytes: u64,
    pub(super) write_bytes: u64,
    pub(super) errors: u64,
    /// Commands that wait; over an interval, times its milliseconds.
    pub(super) depth: u64,
    /// Processor time of a core, the mean of all.
    pub(super) busy_us: u64,
    /// Sessions, times milliseconds.
    pub(super) session_ms: u64,
    pub(super) latency: Latency,
}

impl Gain {
    /// How many numbers [`Gain::numbers`] has.
    pub(super) const NUMBERS: usize = 9;

    /// All but the latencies.
    pub(super) const fn numbers(&self) -> [u64; Self::NUMBERS] {
        [
            self.reads,
            self.writes,
            self.others,
            self.read_bytes,
            self.write_bytes,
            self.errors,
            self.depth,
            self.busy_us,
            self.session_ms,
        ]
    }

    pub(super) const fn of_numbers(numbers: [u64; Self::NUMBERS], latency: Latency) -> Self {
        let [
            reads,
            writes,
            others,
            read_bytes,
            write_bytes,
            errors,
            depth,
            busy_us,
            session_ms,
        ] = numbers;
        Self {
            reads,
            writes,
            others,
            read_bytes,
            write_bytes,
            errors,
            depth,
            busy_us,
            session_ms,
            latency,
        }
    }

    /// Adds the counters of one more initiator.
    pub(super) fn count(&mut self, series: &SeriesCounts) {
        let [read, write, other] = &series.kinds;
        self.depth += u64::from(series.depth);
        self.reads += read.count;
        self.writes += write.count;
        self.others += other.count;
        self.read_bytes += read.bytes;
        self.write_bytes += write.bytes;
        self.errors += read.errors + write.errors;
        let latency = |kind: &KindCounts| Latency(kind.latency);
        self.latency.combine(&latency(read), u64::wrapping_add);
        self.latency.combine(&latency(write), u64::wrapping_add);
    }

    /// What these counters gained since `before`, in an interval of `passed_ms`. Counters that shrank began again:
    /// all of them is new.
    pub(super) fn since(&self, before: Option<&Self>, passed_ms: u64) -> Self {
        let gained = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        let mut gain = self.clone();
        if let Some(before) = before {
            let mut numbers = self.numbers();
            for (now, before) in numbers.iter_mut().zip(before.numbers()) {
                *now = gained(*now, before);
            }
            gain = Self::of_numbers(numbers, self.latency.clone());
            gain.latency.combine(&before.latency, |now, before| {
                now.checked_sub(before).unwrap_or(now)
            });
        }
        gain.depth = self.depth.saturating_mul(passed_ms);
        gain
    }

    /// Takes another interval, or another unit, together with this.
    pub(super) fn add(&mut self, other: &Self) {
        let mut numbers = self.numbers();
        for (mine, other) in numbers.iter_mut().zip(other.numbers()) {
            *mine = mine.saturating_add(other);
        }
        *self = Self::of_numbers(numbers, std::mem::take(&mut self.latency));
        self.latency.combine(&other.latency, u64::saturating_add);
    }

    /// Whether a command was answered.
    pub(super) const fn is_active(&self) -> bool {
        self.reads > 0 || self.writes > 0 || self.others > 0
    }
}

/// How many figures a point has.
pub(super) const FIGURES: usize = 11;

/// A point as it is kept: each figure as a logarithm, which takes two bytes and errs by less than a thousandth.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Point {
    /// Time since 1970 in steps.
    pub(super) step: u32,
    pub(super) figures: [u16; FIGURES],
}

/// Steps of the logarithm to a doubling: 43 doublings have room, which are 9 TB/s.
const PER_DOUBLING: f64 = 1500.0;

/// Times how much a part of one is kept, so that it has digits.
const PART: f64 = 1000.0;

fn pack(value: f64) -> u16 {
    // A cast of floats saturates, and makes 0 of what is no number.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let packed = ((value + 1.0).log2() * PER_DOUBLING).round() as u16;
    packed
}

/// With four digits: more would be noise.
fn unpack(packed: u16) -> f64 {
    let value = (f64::from(packed) / PER_DOUBLING).exp2() - 1.0;
    if value <= 0.0 {
        return 0.0;
    }
    let unit = 10_f64.powf(3.0 - value.log10().floor());
    (value * unit).round() / unit
}

/// Counters as a float, which is exact to 2^53.
const fn real(value: u64) -> f64 {
    value as f64
}

/// What is counted in a step that is not over.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Open {
    pub(super) step: u32,
    /// How much of it was counted.
    pub(super) passed_ms: u64,
    pub(super) gain: Gain,
}

impl Open {
    fn point(&self) -> Point {
        let passed_ms = real(self.passed_ms.max(1));
        let per_second = |count: u64| pack(real(count) * 1000.0 / passed_ms);
        let mean = |sum: u64| pack(real(sum) / passed_ms);
        let latency = |part| pack(self.gain.latency.percentile(part).unwrap_or(0.0));
        let gain = &self.gain;
        let figures = [
            per_second(gain.reads),
            per_second(gain.writes),
            per_second(gain.others),
            per_second(gain.read_bytes),
            per_second(gain.write_bytes),
            per_second(gain.errors),
            latency(0.5),
            latency(0.99),
            mean(gain.depth),
            pack(real(gain.busy_us) / 1000.0 / passed_ms * PART),
            mean(gain.session_ms),
        ];
        Point {
            step: self.step,
            figures,
        }
    }
}

fn shown(point: &Point, level: &Level) -> FigurePoint {
    let [
        read_iops,
        write_iops,
        other_iops,
        read_bytes,
        write_bytes,
        errors,
        p50,
        p99,
        depth,
        busy,
        sessions,
    ] = point.figures.map(unpack);
    let latency = |us: f64| (us > 0.0).then_some(us);
    FigurePoint {
        at_ms: u64::from(point.step) * level.step_ms,
        read_iops,
        write_iops,
        other_iops,
        read_bytes,
        write_bytes,
        errors,
        p50_us: latency(p50),
        p99_us: latency(p99),
        depth,
        busy: Some(busy / PART),
        sessions: Some(sessions),
    }
}

/// The points of one range.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub(super) open: Option<Open>,
    /// Steps rise, and none is older than the range.
    pub(super) points: VecDeque<Point>,
}

impl Row {
    fn add(&mut self, level: &Level, at_ms: u64, passed_ms: u64, gain: &Gain) {
        let Ok(step) = u32::try_from(at_ms / level.step_ms) else {
            return;
        };
        if let Some(open) = &mut self.open
            && open.step == step
        {
            open.passed_ms += passed_ms;
            open.gain.add(gain);
            return;
        }
        let gain = gain.clone();
        let next = Open {
            step,
            passed_ms,
            gain,
        };
        if let Some(last) = self.open.replace(next) {
            // All that it will ever need, and not up to twice as much.
            let room = level.points_max as usize + 1;
            self.points
                .reserve_exact(room.saturating_sub(self.points.len()));
            self.points.push_back(last.point());
        }
        // Where the clock was set back, what it shows again is counted again.
        while self.points.back().is_some_and(|last| last.step >= step) {
            self.points.pop_back();
        }
        let is_old = |point: &Point| point.step.saturating_add(level.points_max) <= step;
        while self.points.front().is_some_and(is_old) {
            self.points.pop_front();
        }
    }

    fn shown(&self, level: &Level, now_ms: u64) -> Vec<FigurePoint> {
        let now = now_ms / level.step_ms;
        let is_in = |point: &Point| {
            let step = u64::from(point.step);
            step <= now && now - step < u64::from(level.points_max)
        };
        let open = self.open.as_ref().map(Open::point);
        let points = self.points.iter().copied().chain(open).filter(is_in);
        points.map(|point| shown(&point, level)).collect()
    }
}

/// The figures of one unit, or of all together, for each of [`LEVELS`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Series(pub(super) [Row; LEVELS.len()]);

impl Series {
    /// What was gained in the `passed_ms` before `now_ms`. An interval belongs to the step that its middle is in.
    pub(super) fn add(&mut self, now_ms: u64, passed_ms: u64, gain: &Gain) {
        if now_ms < CLOCK_SET_MS || passed_ms == 0 {
            return;
        }
        let at_ms = now_ms.saturating_sub(passed_ms / 2);
        for (row, level) in self.0.iter_mut().zip(&LEVELS) {
            row.add(level, at_ms, passed_ms, gain);
        }
    }

    /// The points of a range, the oldest first.
    pub(super) fn points(&self, range: Range, now_ms: u64) -> Vec<FigurePoint> {
        let at = level_of(range);
        self.0[at].shown(&LEVELS[at], now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A moment with which steps of all ranges begin.
    const START_MS: u64 = 7_200_000 * 245_000;

    fn reads(count: u64) -> Gain {
        let mut gain = Gain {
            reads: count,
            read_bytes: count * 4096,
            ..Gain::default()
        };
        gain.latency.0[plane::latency_bucket(100)] = count;
        gain
    }

    fn steps(points: &[FigurePoint]) -> Vec<u64> {
        points.iter().map(|point| point.at_ms).collect()
    }

    fn near(found: f64, wanted: f64) {
        assert!((found - wanted).abs() <= wanted * 0.001, "{found} {wanted}");
    }

    #[test]
    fn figures_survive_packing_with_three_digits_and_nothing_stays_nothing() {
        assert_eq!(unpack(pack(0.0)), 0.0);
        assert_eq!(pack(f64::NAN), 0);
        for value in [0.5, 1.0, 17.0, 999.0, 1.0e6, 1.0e9, 5.0e12] {
            near(unpack(pack(value)), value);
        }
    }

    #[test]
    fn a_step_has_the_rates_of_its_time_and_the_percentiles_of_its_commands() {
        let mut series = Series::default();
        series.add(START_MS + 5000, 5000, &reads(1000));
        series.add(START_MS + 10_000, 5000, &reads(3000));
        series.add(START_MS + 20_000, 10_000, &reads(0));
        let points = series.points(Range::Hour, START_MS + 20_000);
        assert_eq!(steps(&points), [START_MS, START_MS + 10_000]);
        near(points[0].read_iops, 400.0);
        near(points[0].read_bytes, 400.0 * 4096.0);
        // Within the bucket of 96 to 128 us.
        near(points[0].p50_us.unwrap(), 112.0);
        assert_eq!((points[1].read_iops, points[1].p50_us), (0.0, None));
        let day = series.points(Range::Day, START_MS + 20_000);
        assert_eq!(steps(&day), [START_MS]);
        near(day[0].read_iops, 200.0);
    }

    #[test]
    fn a_range_ends_where_it_says_and_a_pause_has_no_points() {
        let mut series = Series::default();
        for second in 1..=8000 {
            // Five minutes in which nothing runs.
            if !(5001..=5300).contains(&second) {
                series.add(START_MS + second * 1000, 1000, &reads(1));
            }
        }
        let end_ms = START_MS + 8_000_000;
        let hour = series.points(Range::Hour, end_ms);
        assert_eq!(hour.first().unwrap().at_ms, end_ms - 3_590_000);
        assert!(hour.len() < 360);
        assert!(!steps(&hour).contains(&(START_MS + 5_100_000)));
        assert_eq!(series.points(Range::Month, end_ms).len(), 2);
        // Later, all of it is too old.
        assert!(series.points(Range::Hour, end_ms + 3_600_000).is_empty());
        for row in &series.0 {
            assert!(row.points.len() <= 360);
        }
    }

    #[test]
    fn a_clock_that_is_set_back_or_not_yet_set_does_no_harm() {
        let mut series = Series::default();
        series.add(START_MS + 3_600_000, 1000, &reads(1));
        series.add(1_000_000, 1000, &reads(1));
        assert_eq!(series.points(Range::Hour, START_MS + 3_600_000).len(), 1);
        series.add(START_MS + 100_000, 1000, &reads(7));
        series.add(START_MS + 110_000, 1000, &reads(8));
        let points = series.points(Range::Hour, START_MS + 110_000);
        assert_eq!(steps(&points), [START_MS + 90_000, START_MS + 100_000]);
    }

    #[test]
    fn counters_that_began_again_are_all_new() {
        let (before, now) = (reads(10), reads(4));
        let gain = now.since(Some(&before), 1000);
        assert_eq!((gain.reads, gain.latency.clone()), (4, now.latency.clone()));
        let gain = reads(15).since(Some(&before), 1000);
        assert_eq!((gain.reads, gain.read_bytes), (5, 5 * 4096));
    }
}
