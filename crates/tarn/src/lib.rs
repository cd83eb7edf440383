//! The program around the data plane: command line, configuration, secrets, state directory,
//! logs, and what is said to people.
//!
//! Everything that the process takes from its surroundings (arguments, environment, files other
//! than the stores) is taken here and nowhere below. [`prepare()`] does it in one go, so that
//! nothing starts half: either it gives [`Prepared`], all that is needed to serve, or one
//! [`StartError`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod access;
mod administration;
mod aliases;
mod attach;
pub mod banner;
mod bench;
mod calendar;
pub mod cli;
mod confinement;
mod daemon;
pub mod environment;
pub mod error;
mod expiry;
mod headroom;
mod import;
pub mod interface;
pub mod locate;
pub mod logging;
mod medium;
mod password;
pub mod prepare;
mod report;
mod save;
pub mod secret;
mod serve;
mod service;
mod signal;
pub mod state;
mod store_options;
pub mod upkeep;
pub mod verbs;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;
use confine::inherited::Inherited;
#[cfg(test)]
use durable::scratch;

pub use crate::attach::{AttachArgs, DiscoverArgs, DiscoverVerb};
pub use crate::bench::{BenchArgs, CpuList};
pub use cli::{CheckArgs, Cli, Command, ServeArgs};
pub use environment::Environment;
pub use error::StartError;
pub use import::ImportArgs;
pub use prepare::{Prepared, prepare};

/// The command line or the configuration is wrong; nothing was started.
const EXIT_WRONG: u8 = 2;
/// Something went wrong that nobody can put right before the start.
const EXIT_FAILED: u8 = 1;
/// For the images of Ceph clusters and sessions of HyperSCSI to be closed at the end.
const CLOSE_MAX: std::time::Duration = std::time::Duration::from_secs(3);

/// Runs the program with these arguments and says how it ended: 0 for a clean end, 2 for what an
/// administrator can put right before anything starts, 1 for everything else.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut cli = match cli::parse(&arguments) {
        Ok(cli) => cli,
        Err(error) => return report_usage(&error, &arguments),
    };
    let environment = Environment::of_process();
    let outcome = match &mut cli.command {
        Command::Serve(args) => serve(args, &environment),
        Command::Help { words } => return help(words),
        Command::Check(args) => return check(args, &environment),
        Command::Attach(args) => attach::attach(args, &environment),
        Command::Discover { verb } => attach::discover(verb, &environment),
        Command::Bench(args) => bench::run(args, &environment),
        Command::Verb(verb) => {
            let is_json = report::wants_json(&arguments);
            return verbs::run(verb, &environment, is_json);
        }
        Command::Import(args) => import::run(args),
        Command::State { verb } => upkeep::run(verb, &environment),
    };
    let status = match outcome {
        Ok(()) => 0,
        Err(error) => {
            let said = error.downcast_ref::<attach::service::Ended>();
            let status = match said {
                Some(ended) => ended.0,
                None if error.is::<StartError>() => EXIT_WRONG,
                None => EXIT_FAILED,
            };
            if said.is_none() {
                report::report(
                    &error::one_line(&error),
                    status,
                    report::wants_json(&arguments),
                );
            }
            status
        }
    };
    if !remote::wait_for_images(CLOSE_MAX) {
        let line = "a store is not closed: its server or cluster does not answer";
        reactor::process::end_at_once(status, line);
    }
    ExitCode::from(status)
}

fn serve(args: &mut ServeArgs, environment: &Environment) -> anyhow::Result<()> {
    args.complete().map_err(StartError::StoreOption)?;
    if !std::path::Path::new("/proc/self/task").exists() {
        return Err(StartError::NoProc.into());
    }
    let inherited = Inherited::take().map_err(StartError::Inherited)?;
    let prepared = prepare(args, environment)?;
    let log = logging::start(&prepared.log)?;
    for warning in &prepared.warnings {
        tracing::warn!("{warning}");
    }
    let signals = signal::Signals::catch_reload()?;
    serve::serve(prepared, inherited, &log, signals)
}

fn check(args: &CheckArgs, environment: &Environment) -> ExitCode {
    match prepare::check(args, environment) {
        Ok(text) => {
            say(io::stdout().lock(), &text);
            ExitCode::SUCCESS
        }
        Err(mistakes) => {
            for error in mistakes {
                let line = error::one_line(&error.into());
                say(io::stderr().lock(), &format!("{line}\n"));
            }
            ExitCode::from(EXIT_WRONG)
        }
    }
}

/// Prints the help of a command.
fn help(words: &[String]) -> ExitCode {
    let mut line = vec![OsString::from("tarn")];
    line.extend(words.iter().map(OsString::from));
    line.push("--help".into());
    match cli::parse(&line) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => report_usage(&error, &line),
    }
}

/// Prints what clap has to say: help in full, errors in one line as all others.
fn report_usage(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    let text = error::plain_numbers(error, &error.render().to_string());
    if !error.use_stderr() {
        say(io::stdout().lock(), &text);
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        say(io::stderr().lock(), &text);
    } else {
        let line = error::usage_line(&text, &cli::command_of(arguments));
        report::report(&line, EXIT_WRONG, report::wants_json(arguments));
    }
    ExitCode::from(EXIT_WRONG)
}

/// Writes to a stream of the process. A failure is ignored: nobody reads the stream any more.
fn say(mut stream: impl io::Write, text: &str) {
    let _unread = stream
        .write_all(text.as_bytes())
        .and_then(|()| stream.flush());
}
