//! What the threads of one point share. No locks: numbers that one side writes.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Where a point is. It only goes forward.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    /// I/Os go, nothing is counted yet.
    WarmUp,
    /// I/Os are counted.
    Measured,
    /// No more I/Os are submitted.
    Over,
}

/// Shared by the measuring thread and its generators.
#[derive(Debug, Default)]
pub(crate) struct Control {
    phase: AtomicU8,
    /// One for each generator thread.
    pub(crate) gauges: Vec<Gauge>,
}

impl Control {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            phase: AtomicU8::new(0),
            gauges: (0..threads).map(|_| Gauge::default()).collect(),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::WarmUp,
            1 => Phase::Measured,
            _ => Phase::Over,
        }
    }

    /// Goes on to a phase; does nothing when that is past.
    pub(crate) fn enter(&self, phase: Phase) {
        let number = match phase {
            Phase::WarmUp => 0,
            Phase::Measured => 1,
            Phase::Over => 2,
        };
        self.phase.fetch_max(number, Ordering::Relaxed);
    }

    /// I/Os of all threads so far, and the worst of their medians in nanoseconds.
    pub(crate) fn read(&self) -> (u64, u64) {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let ios = self.gauges.iter().map(|gauge| read(&gauge.ios)).sum();
        let medians = self.gauges.iter().map(|gauge| read(&gauge.median_ns));
        (ios, medians.max().unwrap_or(0))
    }
}

/// How far one generator thread is. It may lag; nothing depends on it but what is shown.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Gauge {
    ios: AtomicU64,
    median_ns: AtomicU64,
}

impl Gauge {
    pub(crate) fn show(&self, ios: u64, median_ns: u64) {
        self.ios.store(ios, Ordering::Relaxed);
        self.median_ns.store(median_ns, Ordering::Relaxed);
    }
}

/// Set from outside when the user wants an end.
pub type Interrupt = AtomicBool;
