//! From a failure to the shortest beginning of its story that ends the same way.

use crate::initiator::Breach;
use crate::trace::Trace;
use crate::world::{Report, World};

/// Runs a seed. The diary is kept only if it will be read.
pub fn run(seed: u64, actions_max: usize, keep_trace: bool) -> Report {
    let trace = if keep_trace {
        Trace::kept()
    } else {
        Trace::default()
    };
    World::new(seed, actions_max, trace).run()
}

/// A failure, in its shortest form.
#[derive(Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// How many actions it takes.
    pub actions: usize,
    /// What is broken after so many.
    pub breach: Breach,
    /// What happened, line by line.
    pub trace: Vec<String>,
}

/// Runs a seed and, if it fails, looks for the shortest prefix of its actions that fails too, by
/// halving. A shorter one may fail by another rule; it is a failure all the same.
pub fn examine(seed: u64, actions_max: usize) -> Result<Report, Box<Failure>> {
    let report = run(seed, actions_max, false);
    if report.breach.is_none() {
        return Ok(report);
    }
    let actions = shortest_failing(report.actions, |actions| {
        run(seed, actions, false).breach.is_some()
    });
    let last = run(seed, actions, true);
    let breach = last.breach.unwrap_or_else(|| {
        let detail = "the same seed gave another story".to_owned();
        Breach::new("determinism", detail)
    });
    Err(Box::new(Failure {
        seed,
        actions,
        breach,
        trace: last.trace.lines().to_vec(),
    }))
}

/// The smallest number that fails, given that `all` does, if failing once means failing with
/// every larger number; else some small one.
fn shortest_failing(all: usize, mut fails: impl FnMut(usize) -> bool) -> usize {
    let (mut good, mut bad) = (0, all);
    if bad > 0 && fails(0) {
        return 0;
    }
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fails(middle) {
            bad = middle;
        } else {
            good = middle;
        }
    }
    bad
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halving_finds_the_edge() {
        for edge in 0..=20 {
            let mut tries = 0;
            let found = shortest_failing(20, |actions| {
                tries += 1;
                actions >= edge
            });
            assert_eq!(found, edge);
            assert!(tries <= 6, "{tries} tries");
        }
    }
}
