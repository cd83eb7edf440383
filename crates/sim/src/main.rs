//! Runs many seeds, or tells the story of one.
//!
//! `sim --seeds 1000` runs seeds 0 to 999; `--from 5000` begins elsewhere; `--seed 7` runs one and
//! prints its diary, `--actions 12` only so much of it. The exit code is 1 if a rule was broken.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the output is what it is for")]

use std::process::ExitCode;

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
    let mut failures: u64 = 0;
    let (mut events, mut good) = (0, 0);
    for seed in first..first + count {
        match sim::shrink::examine(seed, actions) {
            Ok(report) => {
                events += report.events;
                good += report.good;
            }
            Err(failure) => {
                failures += 1;
                let sim::shrink::Failure {
                    seed,
                    actions,
                    breach,
                    trace,
                } = *failure;
                println!(
                    "seed {seed}: {}: {} (after {actions} actions, {} lines; \
                     `--seed {seed} --actions {actions}` tells them)",
                    breach.rule,
                    breach.detail,
                    trace.len()
                );
            }
        }
    }
    println!("{count} seeds, {events} events, {good} commands answered GOOD, {failures} failures");
    ExitCode::from(u8::from(failures > 0))
}

/// The diary of one run.
fn tell(seed: u64, actions: usize) -> ExitCode {
    let report = sim::shrink::run(seed, actions, true);
    for line in report.trace.lines() {
        println!("{line}");
    }
    ExitCode::from(u8::from(report.breach.is_some()))
}
