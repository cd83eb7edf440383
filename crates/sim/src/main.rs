//! Runs many seeds, or prints the events of one.
//!
//! `sim --seeds 1000` runs seeds 0 to 999, each in the world and in that of flushes; `--from 5000` begins
//! elsewhere; `--first` ends with the first seed that fails, as it is. `--seed 7` runs one and prints its
//! diary, `--actions 12` only so much of it. The exit code is 1 if a rule was broken.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the output is what it is for")]

use std::process::ExitCode;

use sim::shrink::{Failure, examine, run};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str| -> Option<u64> {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse().ok()
    };
    let actions = number("--actions").and_then(|actions| usize::try_from(actions).ok());
    let actions = actions.unwrap_or(usize::MAX);
    if let Some(seed) = number("--seed") {
        return tell(seed, actions);
    }
    let (first, count) = (
        number("--from").unwrap_or(0),
        number("--seeds").unwrap_or(100),
    );
    let stops = arguments.iter().any(|argument| argument == "--first");
    let mut failures: u64 = 0;
    let (mut events, mut good) = (0, 0);
    for seed in first..first + count {
        if let Err(breach) = sim::flush::run(seed) {
            failures += 1;
            println!("seed {seed}: {}: {}", breach.rule, breach.detail);
        }
        if stops {
            let report = run(seed, actions, false);
            if let Some(breach) = report.breach {
                failures += 1;
                println!("seed {seed}: {}: {}", breach.rule, breach.detail);
            }
        } else {
            match examine(seed, actions) {
                Ok(report) => {
                    events += report.events;
                    good += report.good;
                }
                Err(failure) => {
                    failures += 1;
                    describe(&failure);
                }
            }
        }
        if stops && failures > 0 {
            break;
        }
    }
    println!("{count} seeds, {events} events, {good} commands answered GOOD, {failures} failures");
    ExitCode::from(u8::from(failures > 0))
}

/// A failure in one line.
fn describe(failure: &Failure) {
    let Failure {
        seed,
        actions,
        breach,
        trace,
    } = failure;
    println!(
        "seed {seed}: {}: {} (after {actions} actions, {} lines; \
         `--seed {seed} --actions {actions}` tells them)",
        breach.rule,
        breach.detail,
        trace.len()
    );
}

/// The diary of one run.
fn tell(seed: u64, actions: usize) -> ExitCode {
    let report = run(seed, actions, true);
    for line in report.trace.lines() {
        println!("{line}");
    }
    ExitCode::from(u8::from(report.breach.is_some()))
}
