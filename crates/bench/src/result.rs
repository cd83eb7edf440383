//! From samples to figures: medians, spreads, and ratios to the first target.

use crate::process::CpuTime;
use crate::tally::Sample;
use crate::workload::Point;

/// What was measured of all targets at one point.
#[derive(Clone, Debug)]
pub struct PointResult {
    /// The point.
    pub point: Point,
    /// In the order of the command line; the first is what the others are compared with.
    pub targets: Vec<TargetResult>,
}

/// What was measured of one target at one point.
#[derive(Clone, Debug)]
pub struct TargetResult {
    /// What reports call it.
    pub label: String,
    /// One for each round, in order.
    pub samples: Vec<Sample>,
}

/// A figure of a sample.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Metric {
    /// Good I/Os a second.
    Iops,
    /// 10^6 bytes a second.
    Throughput,
    /// Median latency.
    P50,
    /// Latency that 1 of 100 I/Os exceeds.
    P99,
    /// Latency that 1 of 1000 I/Os exceeds.
    P999,
    /// CPU time of the target's process for each I/O.
    TargetCpu,
    /// Of it in user mode, from a coarser source.
    TargetUser,
    /// Of it in the kernel, from a coarser source.
    TargetSystem,
    /// CPU time of the generator for each I/O.
    GeneratorCpu,
}

/// How a figure is printed.
#[derive(Clone, Copy, Debug)]
pub struct MetricForm {
    /// Which.
    pub metric: Metric,
    /// Its key in JSON, with the unit.
    pub key: &'static str,
    /// Its name in tables.
    pub name: &'static str,
    /// Its unit; empty for a plain number.
    pub unit: &'static str,
    /// True when more is better.
    pub more_is_better: bool,
    /// Digits behind the point.
    pub digits: usize,
}

impl Metric {
    /// Every figure, in the order of reports.
    pub const FORMS: [MetricForm; 9] = [
        form(Self::Iops, "iops", "IOPS", "", true, 0),
        form(Self::Throughput, "mb_per_s", "MB/s", "MB/s", true, 1),
        form(Self::P50, "p50_us", "p50", "us", false, 1),
        form(Self::P99, "p99_us", "p99", "us", false, 1),
        form(Self::P999, "p999_us", "p99.9", "us", false, 1),
        form(
            Self::TargetCpu,
            "target_cpu_us_per_io",
            "target CPU",
            "us/IO",
            false,
            2,
        ),
        form(
            Self::TargetUser,
            "target_user_us_per_io",
            "user CPU",
            "us/IO",
            false,
            2,
        ),
        form(
            Self::TargetSystem,
            "target_system_us_per_io",
            "system CPU",
            "us/IO",
            false,
            2,
        ),
        form(
            Self::GeneratorCpu,
            "generator_cpu_us_per_io",
            "own CPU",
            "us/IO",
            false,
            2,
        ),
    ];

    /// How it is printed.
    #[must_use]
    pub fn form(self) -> MetricForm {
        let [first, ..] = Self::FORMS;
        let found = Self::FORMS.into_iter().find(|form| form.metric == self);
        // Every metric has its form, as a test makes sure.
        found.unwrap_or(first)
    }

    /// The figure of a sample; `None` when it was not measured or nothing was done.
    #[must_use]
    pub fn of(self, sample: &Sample, point: &Point) -> Option<f64> {
        let tally = &sample.tally;
        if tally.ios() == 0 {
            return None;
        }
        let percentile = |per_million| tally.latency.percentile_ns(per_million) as f64 / 1e3;
        let per_io = |time: std::time::Duration| time.as_secs_f64() * 1e6 / tally.ios() as f64;
        let cpu = |part: fn(&CpuTime) -> std::time::Duration| {
            sample.target_cpu.as_ref().map(|cpu| per_io(part(cpu)))
        };
        match self {
            Self::Iops => Some(tally.iops),
            Self::Throughput => Some(tally.iops * f64::from(point.block_bytes) / 1e6),
            Self::P50 => Some(percentile(500_000)),
            Self::P99 => Some(percentile(990_000)),
            Self::P999 => Some(percentile(999_000)),
            Self::TargetCpu => cpu(|cpu| cpu.total),
            Self::TargetUser => cpu(|cpu| cpu.user),
            Self::TargetSystem => cpu(|cpu| cpu.system),
            Self::GeneratorCpu => Some(per_io(tally.generator_cpu)),
        }
    }
}

const fn form(
    metric: Metric,
    key: &'static str,
    name: &'static str,
    unit: &'static str,
    more_is_better: bool,
    digits: usize,
) -> MetricForm {
    MetricForm {
        metric,
        key,
        name,
        unit,
        more_is_better,
        digits,
    }
}

/// What several rounds gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// The spread of these values; `None` when there is none.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let upper = *values.get(half)?;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(*values.get(half.checked_sub(1)?)?, upper)
        } else {
            upper
        };
        Some(Self { median, min, max })
    }
}

impl PointResult {
    /// A figure of a target over all rounds.
    #[must_use]
    pub fn spread(&self, target: usize, metric: Metric) -> Option<Spread> {
        Spread::of(self.values(target, metric).flatten().collect())
    }

    /// How a figure of a target compares with that of the first one: the spread of the ratios,
    /// each from the two samples of one round, which were taken right after each other.
    #[must_use]
    pub fn ratio(&self, target: usize, metric: Metric) -> Option<Spread> {
        let pairs = self.values(target, metric).zip(self.values(0, metric));
        let ratios = pairs.filter_map(|(own, first)| {
            let (own, first) = (own?, first?);
            (first > 0.0).then_some(own / first)
        });
        Spread::of(ratios.collect())
    }

    /// True when a later target is better than the first by this figure, in the median.
    #[must_use]
    pub fn beats_first(&self, target: usize, metric: Metric) -> bool {
        if target == 0 {
            return false;
        }
        self.ratio(target, metric).is_some_and(|ratio| {
            if metric.form().more_is_better {
                ratio.median > 1.0
            } else {
                ratio.median < 1.0
            }
        })
    }

    /// True when every sample is good.
    #[must_use]
    pub fn is_good(&self) -> bool {
        let mut samples = self.targets.iter().flat_map(|target| &target.samples);
        samples.all(Sample::is_good)
    }

    /// The figure of each round.
    fn values(&self, target: usize, metric: Metric) -> impl Iterator<Item = Option<f64>> {
        let samples = self.targets.get(target).map(|target| &target.samples);
        samples
            .into_iter()
            .flatten()
            .map(move |sample| metric.of(sample, &self.point))
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::time::Duration;

    use super::*;
    use crate::tally::Tally;
    use crate::workload::Access;

    /// A sample of so many I/Os a second and a median of so many microseconds.
    pub(crate) fn sample(iops: f64, latency_us: u64) -> Sample {
        let mut tally = Tally {
            reads: 1000,
            iops,
            window: Duration::from_secs(1),
            generator_cpu: Duration::from_millis(2),
            ..Tally::default()
        };
        (0..1000).for_each(|_| tally.latency.record(latency_us * 1000));
        Sample {
            tally,
            target_cpu: Some(CpuTime {
                user: Duration::from_millis(1),
                system: Duration::from_millis(2),
                total: Duration::from_millis(3),
            }),
            failure: None,
        }
    }

    /// A point with these targets.
    pub(crate) fn result(depth: u32, targets: &[(&str, &[f64])]) -> PointResult {
        PointResult {
            point: Point {
                access: Access::RandRead,
                block_bytes: 4096,
                depth,
                sessions: 1,
                read_percent: 70,
            },
            targets: targets
                .iter()
                .map(|(label, rates)| TargetResult {
                    label: (*label).to_owned(),
                    samples: rates.iter().map(|&iops| sample(iops, 50)).collect(),
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{result, sample};
    use super::*;

    fn spread(values: &[f64]) -> Option<(f64, f64, f64)> {
        Spread::of(values.to_vec()).map(|s| (s.min, s.median, s.max))
    }

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[2.0]), Some((2.0, 2.0, 2.0)));
        assert_eq!(spread(&[3.0, 1.0]), Some((1.0, 2.0, 3.0)));
        assert_eq!(spread(&[9.0, 1.0, 5.0]), Some((1.0, 5.0, 9.0)));
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        // The machine was twice as slow in the second round; the ratio does not show it.
        let result = result(
            1,
            &[("a", &[100.0, 50.0, 100.0]), ("b", &[80.0, 40.0, 90.0])],
        );
        let ratio = result.ratio(1, Metric::Iops).unwrap();
        assert_eq!((ratio.min, ratio.median, ratio.max), (0.8, 0.8, 0.9));
        assert!(!result.beats_first(1, Metric::Iops));
        assert!(!result.beats_first(0, Metric::Iops));
        assert_eq!(result.ratio(2, Metric::Iops), None);
    }

    #[test]
    fn less_latency_is_better_and_more_throughput_is() {
        let mut result = result(1, &[("a", &[100.0]), ("b", &[101.0])]);
        assert!(result.beats_first(1, Metric::Iops));
        assert!(!result.beats_first(1, Metric::P50));
        result.targets[1].samples = vec![sample(100.0, 40)];
        assert!(result.beats_first(1, Metric::P50));
        assert!(!result.beats_first(1, Metric::Iops));
    }

    #[test]
    fn figures_have_their_units() {
        let result = result(1, &[("a", &[1000.0])]);
        let figure = |metric| result.spread(0, metric).unwrap().median;
        assert!((figure(Metric::Throughput) - 4.096).abs() < 1e-9);
        assert!((figure(Metric::P50) - 50.0).abs() < 50.0 / 64.0);
        assert!((figure(Metric::TargetCpu) - 3.0).abs() < 1e-9);
        assert!((figure(Metric::GeneratorCpu) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn each_metric_has_its_form() {
        for metric in [
            Metric::Iops,
            Metric::Throughput,
            Metric::P50,
            Metric::P99,
            Metric::P999,
            Metric::TargetCpu,
            Metric::TargetUser,
            Metric::TargetSystem,
            Metric::GeneratorCpu,
        ] {
            assert_eq!(metric.form().metric, metric);
        }
    }
}
