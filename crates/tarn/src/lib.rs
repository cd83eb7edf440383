//! The command line: what is asked of the program, of a daemon that serves, and of servers elsewhere; and what is said
//! to people. What serves is the crate `daemon`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod aliases;
mod attach;
mod bench;
pub mod cli;
mod import;
mod report;
mod store_options;
pub mod upkeep;
pub mod verbs;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;
use daemon::{Environment, StartError, error, prepare, say};

pub use crate::attach::{AttachArgs, DiscoverArgs, DiscoverVerb};
pub use crate::bench::{BenchArgs, CpuList};
pub use cli::{CheckArgs, Cli, Command, ServeArgs};
pub use import::ImportArgs;

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
    let cli = match cli::parse(&arguments) {
        Ok(cli) => cli,
        Err(error) => return report_usage(&error, &arguments),
    };
    let environment = Environment::of_process();
    let outcome = match cli.command {
        Command::Serve(args) => serve(args, &environment),
        Command::Help { words } => return help(&words),
        Command::Check(args) => return check(&args, &environment),
        Command::Attach(args) => attach::attach(&args, &environment),
        Command::Discover { verb } => attach::discover(&verb, &environment),
        Command::Bench(args) => bench::run(&args, &environment),
        Command::Verb(verb) => {
            let is_json = report::wants_json(&arguments);
            return verbs::run(&verb, &environment, is_json);
        }
        Command::Import(args) => import::run(&args),
        Command::State { verb } => upkeep::run(&verb, &environment),
    };
    let status = match outcome {
        Ok(()) => 0,
        Err(error) => {
            let said = error.downcast_ref::<attach::service::Ended>();
            let status = match said {
                Some(ended) => ended.0,
                None if is_wrong(&error) => EXIT_WRONG,
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

/// Whether somebody has to put something right before it is tried again.
fn is_wrong(error: &anyhow::Error) -> bool {
    error.is::<StartError>()
        || error.is::<store_options::StoreOptionError>()
        || error.is::<bench::BenchError>()
        || error.is::<import::ImportError>()
}

fn serve(mut args: ServeArgs, environment: &Environment) -> anyhow::Result<()> {
    args.complete().map_err(store_options::StoreOptionError)?;
    daemon::serve::run(&args.into_asked(), environment)
}

fn check(args: &CheckArgs, environment: &Environment) -> ExitCode {
    match prepare::check(&args.file, environment) {
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
    let text = report::plain_numbers(error, &error.render().to_string());
    if !error.use_stderr() {
        say(io::stdout().lock(), &text);
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        say(io::stderr().lock(), &text);
    } else {
        let line = report::usage_line(&text, &cli::command_of(arguments));
        report::report(&line, EXIT_WRONG, report::wants_json(arguments));
    }
    ExitCode::from(EXIT_WRONG)
}
