//! The verbs of an administrator: each sends requests to the daemon over `/api/v1` and prints the answer.
//!
//! A module for each noun, with the flags and the tables of its verbs. None of them knows more of
//! the daemon than the API; the socket is the same that scripts and the console may use.

mod access;
mod api_session;
mod changes;
mod completion;
mod configuration;
mod difference;
mod doctor;
mod events;
pub mod exit;
mod failure;
mod group;
mod history;
mod human;
mod hyperscsi;
mod keys;
mod lun;
mod man;
mod mount;
mod nbd;
mod output;
mod portal;
mod quota;
mod rates;
mod remote;
mod screen;
mod secrets;
mod session;
mod shell;
mod snapshot;
mod status;
mod store;
mod suggest;
mod table;
mod target;
pub(crate) mod terminal;
mod token;
mod top;
mod trace;
mod user;

use std::io;
use std::process::ExitCode;

use clap::Subcommand;

use self::remote::{Alone, Noun, Run as _};
use daemon::{Environment, error, say};

pub(crate) use self::failure::Outcome;

/// What to ask the daemon.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show the state of the daemon.
    Status(Alone<status::Status>),
    /// Show rates, latencies and queue depth of units and initiators, live.
    Top(Alone<top::Top>),
    /// Print events.
    Events(Alone<events::Events>),
    /// Find what limits or endangers the service, and say what to do.
    Doctor(Alone<doctor::Doctor>),
    /// Logical units.
    Lun(Noun<lun::LunVerb>),
    /// Snapshots: the data of units as it was at one moment.
    Snapshot(Noun<snapshot::SnapshotVerb>),
    /// Targets, and the units they export.
    Target(Noun<target::TargetVerb>),
    /// Addresses of targets.
    Portal(Noun<portal::PortalVerb>),
    /// Groups of initiators.
    Group(Noun<group::GroupVerb>),
    /// Stores without a number, of which a unit is composed.
    Store(Noun<store::StoreVerb>),
    /// Servers of NBD: units for clients that speak no iSCSI.
    Nbd(Noun<nbd::NbdVerb>),
    /// Groups of HyperSCSI: units for its clients.
    Hyperscsi(Noun<hyperscsi::HyperscsiVerb>),
    /// Quotas: what disks may be large and take together.
    Quota(Noun<quota::QuotaVerb>),
    /// CHAP users.
    User(Noun<user::UserVerb>),
    /// Sessions of initiators.
    Session(Noun<session::SessionVerb>),
    /// Traces of the PDUs of a session or an initiator, for Wireshark.
    Trace(Noun<trace::TraceVerb>),
    /// Show what an initiator would see: a dry run of the access rules.
    WhoSees(Alone<access::WhoSees>),
    /// Show what applying a configuration file would do; change nothing.
    Plan(Alone<configuration::PlanArgs>),
    /// Apply a configuration file, as a whole or not at all.
    Apply(Alone<configuration::Apply>),
    /// Compare the running configuration with a file.
    Diff(Alone<difference::Diff>),
    /// Print the running configuration.
    Show(Alone<configuration::Show>),
    /// List the revisions of the configuration.
    History(Alone<history::History>),
    /// Apply an earlier revision again, as a new revision.
    Rollback(Alone<history::Rollback>),
    /// Tokens for access from other machines.
    Token(Noun<token::TokenVerb>),
    /// Mount the running state as a file system, to read and to write.
    Mount(mount::Mount),
    /// Walk through the running state and change it, with TAB for all names.
    Shell(shell::Shell),
    /// Print the completion script for a shell.
    Completion(completion::Completion),
    /// What may stand at the end of a line, for the scripts of shells.
    #[command(hide = true)]
    Complete(completion::Complete),
    /// Write the manual pages.
    Man(man::Pages),
}

/// Carries a verb out and says how it ended, by [`exit::TABLE`].
pub(crate) fn run(verb: &Verb, environment: &Environment, is_json: bool) -> ExitCode {
    match carry_out(verb, environment) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            let exit = failure.exit();
            if is_json {
                say(io::stderr().lock(), &format!("{}\n", failure.json()));
                return exit.into();
            }
            let lines = match failure.mistakes() {
                [] => vec![error::one_line(&failure.into())],
                all => all
                    .iter()
                    .map(|one| error::plain(&format!("tarn: {one}")))
                    .collect(),
            };
            for line in lines {
                say(io::stderr().lock(), &format!("{line}\n"));
            }
            exit.into()
        }
    }
}

fn carry_out(verb: &Verb, environment: &Environment) -> Outcome {
    match verb {
        Verb::Status(alone) => alone.run(environment),
        Verb::Top(alone) => alone.run(environment),
        Verb::Events(alone) => alone.run(environment),
        Verb::Doctor(alone) => alone.run(environment),
        Verb::Lun(noun) => noun.run(environment),
        Verb::Snapshot(noun) => noun.run(environment),
        Verb::Target(noun) => noun.run(environment),
        Verb::Portal(noun) => noun.run(environment),
        Verb::Group(noun) => noun.run(environment),
        Verb::Store(noun) => noun.run(environment),
        Verb::Nbd(noun) => noun.run(environment),
        Verb::Hyperscsi(noun) => noun.run(environment),
        Verb::Quota(noun) => noun.run(environment),
        Verb::User(noun) => noun.run(environment),
        Verb::Session(noun) => noun.run(environment),
        Verb::Trace(noun) => noun.run(environment),
        Verb::WhoSees(alone) => alone.run(environment),
        Verb::Plan(alone) => alone.run(environment),
        Verb::Apply(alone) => alone.run(environment),
        Verb::Diff(alone) => alone.run(environment),
        Verb::Show(alone) => alone.run(environment),
        Verb::History(alone) => alone.run(environment),
        Verb::Rollback(alone) => alone.run(environment),
        Verb::Token(noun) => noun.run(environment),
        Verb::Mount(mount) => mount.run(environment),
        Verb::Shell(shell) => shell.run(environment),
        Verb::Completion(completion) => Ok(completion.print()),
        Verb::Complete(complete) => Ok(complete.print(environment)),
        Verb::Man(man) => man.write(),
    }
}
