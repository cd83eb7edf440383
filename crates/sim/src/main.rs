//! Runs many seeds, or prints the events of one.
//!
//! `sim --seeds 1000` runs seeds 0 to 999, each in all worlds; `--from 5000` begins elsewhere; `--first` ends with the
//! first seed that fails, as it is; `--world NAME` runs one of them: `target`, `flush`, `log` or `many`. `--seed 7`
//! runs one and prints its diary, `--actions 12` only so much of it, `--world log` or `many` that of another one.
//! `--marks crates` reads the sources below that directory and prints which of the rare states that they name were
//! reached. The exit code is 1 if a rule was broken, or such a state was not reached.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the output is what it is for"
)]

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use sim::flush::Breach;
use sim::log::Planted;
use sim::many::Score;
use sim::rare;
use sim::shrink::{Failure, examine, run};
use sim::world::Report;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str| -> Option<u64> {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse().ok()
    };
    let actions = number("--actions").and_then(|actions| usize::try_from(actions).ok());
    let actions = actions.unwrap_or(usize::MAX);
    let world = match Only::of(&arguments) {
        Ok(world) => world,
        Err(other) => {
            eprintln!(
                "--world \"{other}\": there are target, flush, log and many; without it all are run"
            );
            return ExitCode::from(2);
        }
    };
    if let Some(seed) = number("--seed") {
        return match world {
            Only::Log => print_life(sim::log::run_noted(seed, Planted::default())),
            Only::Many => print_life(sim::many::run_noted(seed, None)),
            Only::All | Only::Target | Only::Flush => tell(seed, actions),
        };
    }
    let (first, count) = (
        number("--from").unwrap_or(0),
        number("--seeds").unwrap_or(100),
    );
    let stops = arguments.iter().any(|argument| argument == "--first");
    let mut failures: u64 = 0;
    let (mut events, mut good, mut totals) = (0, 0, Totals::default());
    let began = Instant::now();
    for seed in first..first + count {
        for breach in aside(world, seed, &mut totals) {
            failures += 1;
            println!("seed {seed}: {}: {}", breach.rule, breach.detail);
        }
        if matches!(world, Only::All | Only::Target) {
            match in_target(seed, actions, stops) {
                Ok(report) => {
                    events += report.events;
                    good += report.good;
                    totals.simulated += report.simulated;
                }
                Err(text) => {
                    failures += 1;
                    println!("{text}");
                }
            }
        }
        if stops && failures > 0 {
            break;
        }
    }
    if let Some(directory) = value_of(&arguments, "--marks") {
        failures += tell_marks(Path::new(directory));
    }
    println!(
        "{count} seeds, {events} events, {good} commands answered GOOD, {} crashes of logs, {failures} failures",
        totals.crashes
    );
    println!("{}", totals.score);
    println!("{}", totals.pace(began.elapsed()));
    ExitCode::from(u8::from(failures > 0))
}

/// What follows an option.
fn value_of<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    let at = arguments.iter().position(|argument| argument == name)?;
    arguments.get(at + 1).map(String::as_str)
}

/// Prints which rare states were reached. Gives how many were not.
fn tell_marks(directory: &Path) -> u64 {
    let names = match rare::named(directory) {
        Ok(names) => names,
        Err(error) => {
            println!("--marks {}: {error}", directory.display());
            return 1;
        }
    };
    let (reached, never) = rare::reached(&names);
    println!(
        "marks: {} of {} reached, the rarest first:",
        reached.len(),
        names.len()
    );
    for (count, name) in &reached {
        println!("{count:>12} {name}");
    }
    for name in &never {
        println!("       never {name}");
    }
    never.len() as u64
}

/// Which worlds a seed is lived in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Only {
    All,
    Target,
    Flush,
    Log,
    Many,
}

impl Only {
    /// The name is the error where there is no such world.
    fn of(arguments: &[String]) -> Result<Self, &str> {
        let Some(at) = arguments.iter().position(|argument| argument == "--world") else {
            return Ok(Self::All);
        };
        match arguments.get(at + 1).map_or("", String::as_str) {
            "target" => Ok(Self::Target),
            "flush" => Ok(Self::Flush),
            "log" => Ok(Self::Log),
            "many" => Ok(Self::Many),
            other => Err(other),
        }
    }
}

/// What all seeds have seen.
#[derive(Debug, Default)]
struct Totals {
    crashes: u64,
    /// What the reference has judged of `many`.
    score: Score,
    /// How long it took for those inside.
    simulated: Duration,
}

impl Totals {
    /// How much faster time goes inside.
    fn pace(&self, took: Duration) -> String {
        let minutes = self.simulated.as_secs() / 60;
        let times = self.simulated.as_millis() / took.as_millis().max(1);
        let (hours, tenths, took) = (minutes / 60, minutes % 60 / 6, took.as_secs());
        format!("simulated {hours}.{tenths} h in {took} s: {times} to 1")
    }
}

/// The worlds beside that of the target.
fn aside(world: Only, seed: u64, totals: &mut Totals) -> Vec<Breach> {
    let mut breaches = Vec::new();
    if matches!(world, Only::All | Only::Flush) {
        breaches.extend(sim::flush::run(seed).err());
    }
    if matches!(world, Only::All | Only::Log) {
        match sim::log::run(seed, Planted::default()) {
            Ok(report) => totals.crashes += report.crashes,
            Err(breach) => breaches.push(breach),
        }
    }
    if matches!(world, Only::All | Only::Many) {
        match sim::many::run(seed, None) {
            Ok(report) => {
                totals.simulated += report.simulated;
                totals.score.add(report.score);
            }
            Err(breach) => breaches.push(breach),
        }
    }
    breaches
}

/// The diary of a life in one of those.
fn print_life<R: std::fmt::Debug>((result, diary): (Result<R, Breach>, Vec<String>)) -> ExitCode {
    diary.iter().for_each(|line| println!("{line}"));
    match &result {
        Ok(report) => println!("{report:?}"),
        Err(breach) => println!("{}: {}", breach.rule, breach.detail),
    }
    ExitCode::from(u8::from(result.is_err()))
}

/// A life in the world of the target. The error is its failure in words; `as_it_is`, without looking for a shorter one.
fn in_target(seed: u64, actions: usize, as_it_is: bool) -> Result<Report, String> {
    if !as_it_is {
        return examine(seed, actions).map_err(|failure| describe(&failure));
    }
    let report = run(seed, actions, false);
    match &report.breach {
        Some(breach) => Err(format!("seed {seed}: {}: {}", breach.rule, breach.detail)),
        None => Ok(report),
    }
}

/// A failure in one line.
fn describe(failure: &Failure) -> String {
    let Failure {
        seed,
        actions,
        breach,
        trace,
    } = failure;
    format!(
        "seed {seed}: {}: {} (after {actions} actions, {} lines; \
         `--seed {seed} --actions {actions}` tells them)",
        breach.rule,
        breach.detail,
        trace.len()
    )
}

/// The diary of one run.
fn tell(seed: u64, actions: usize) -> ExitCode {
    let report = run(seed, actions, true);
    for line in report.trace.lines() {
        println!("{line}");
    }
    ExitCode::from(u8::from(report.breach.is_some()))
}
