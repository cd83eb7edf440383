//! `tarn state`: looks after the state directory. Asks no daemon.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use config::Model;

use daemon::prepare::read_text;
use daemon::state::{Pruned, State};
use daemon::{Environment, StartError, say};

/// What to do with the state directory.
#[derive(Debug, Subcommand)]
pub enum StateVerb {
    /// List damaged files of the state directory.
    Check(StateArgs),
    /// Replace damaged files by their copies. Restart Tarn afterwards.
    Restore(RestoreArgs),
    /// Accept what is at the places of stores when Tarn starts next, whatever was served there. Use it on a machine
    /// that was restored from a backup; while Tarn runs, use tarn lun adopt.
    Adopt(AdoptArgs),
    /// Remove the state of LUNs that have not been served for long: serial number, NAA designator,
    /// reservations.
    Prune(PruneArgs),
}

/// Which state directory.
#[derive(Args, Debug)]
pub struct StateArgs {
    /// Configuration file that names the state directory. Use it for services.
    #[arg(long, value_name = "FILE", conflicts_with = "state")]
    config: Option<PathBuf>,

    /// The state directory. Use it if tarn serve has the same flag. [default: that of tarn serve]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

/// `tarn state restore`.
#[derive(Args, Debug)]
pub struct RestoreArgs {
    #[command(flatten)]
    which: StateArgs,

    /// Move damaged files aside that have no good copy. Use it if there is no backup: the
    /// reservations, tokens or identities in these files are lost.
    #[arg(long)]
    discard: bool,
}

/// `tarn state adopt`.
#[derive(Args, Debug)]
pub struct AdoptArgs {
    #[command(flatten)]
    which: StateArgs,

    /// The LUNs, by id; one that has naa in the configuration, by that NAA.
    #[arg(required_unless_present = "all")]
    ids: Vec<String>,

    /// All LUNs. Use it after a restore on other hardware.
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

/// `tarn state prune`.
#[derive(Args, Debug)]
pub struct PruneArgs {
    #[command(flatten)]
    which: StateArgs,

    /// Minimum number of days without use. Use it to remove state earlier or later.
    #[arg(long, value_name = "DAYS", default_value_t = 365)]
    unused_days: u64,
}

/// Carries it out.
///
/// # Errors
///
/// Files are damaged still, or cannot be read.
pub(crate) fn run(verb: &StateVerb, environment: &Environment) -> anyhow::Result<()> {
    match verb {
        StateVerb::Check(args) => check(&state(args, environment)?),
        StateVerb::Restore(args) => restore(&state(&args.which, environment)?, args.discard),
        StateVerb::Adopt(args) => {
            let state = state(&args.which, environment)?;
            adopt(&state, (!args.all).then_some(&args.ids))
        }
        StateVerb::Prune(args) => prune(&state(&args.which, environment)?, args.unused_days),
    }
}

fn state(args: &StateArgs, environment: &Environment) -> anyhow::Result<State> {
    let configured = match &args.config {
        Some(file) => {
            let text = read_text(file)?;
            Model::from_toml(&text, file)?.server().state.clone()
        }
        None => args.state.clone(),
    };
    let directory = configured.map_or_else(|| environment.state_directory(), Ok)?;
    anyhow::ensure!(
        directory.is_dir(),
        "there is no state directory {}; give --config FILE or --state DIR as tarn serve has it",
        directory.display()
    );
    anyhow::ensure!(
        is_state_directory(&directory)?,
        "{} is not a state directory of tarn, it has none of the files of one; give --config FILE or --state DIR as \
         tarn serve has it",
        directory.display()
    );
    Ok(State::open(directory)?)
}

/// Whether a Tarn has served with this directory: one of the files that only it makes is there.
fn is_state_directory(directory: &Path) -> Result<bool, StartError> {
    for name in [
        "identities.toml",
        "identities.toml.last",
        "units",
        "tokens.toml",
        "events.next",
    ] {
        match directory.join(name).symlink_metadata() {
            Ok(_) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => {
                return Err(StartError::StateUnusable {
                    path: directory.to_owned(),
                    source,
                });
            }
        }
    }
    Ok(false)
}

fn check(state: &State) -> anyhow::Result<()> {
    let damaged = state.damaged_files()?;
    for file in &damaged {
        let remedy = if file.has_copy {
            "its copy is good, run tarn state restore"
        } else {
            "there is no good copy"
        };
        let path = file.path.display();
        say(
            io::stdout().lock(),
            &format!("{path}: {}; {remedy}\n", file.problem),
        );
    }
    let directory = state.directory().display();
    match damaged.len() {
        0 => {
            say(
                io::stdout().lock(),
                &format!("{directory}: every file is whole\n"),
            );
            Ok(())
        }
        1 => anyhow::bail!("{directory}: a file is damaged"),
        many => anyhow::bail!("{directory}: {many} files are damaged"),
    }
}

fn restore(state: &State, discards: bool) -> anyhow::Result<()> {
    let (lines, left) = state.restore(discards)?;
    for line in &lines {
        say(io::stdout().lock(), &format!("{line}\n"));
    }
    let directory = state.directory().display();
    if lines.is_empty() {
        say(
            io::stdout().lock(),
            &format!("{directory}: every file is whole\n"),
        );
    }
    anyhow::ensure!(
        left == 0,
        "{directory}: files that are damaged still: {left}"
    );
    Ok(())
}

fn adopt(state: &State, ids: Option<&Vec<String>>) -> anyhow::Result<()> {
    let wanted = |id: &str| ids.is_none_or(|ids| ids.iter().any(|one| one == id));
    let (adopted, refused) = state.adopt(wanted)?;
    for id in &adopted {
        let line = format!("lun {id}: what is there at the next start is served\n");
        say(io::stdout().lock(), &line);
    }
    let unknown = ids.into_iter().flatten();
    let unknown = unknown.filter(|id| !adopted.contains(id) && !refused.contains(id));
    let unknown: Vec<&str> = unknown.map(String::as_str).collect();
    anyhow::ensure!(
        refused.is_empty(),
        "lun {}: a Tarn serves it; use tarn lun adopt",
        refused.join(", ")
    );
    let directory = state.directory().display();
    anyhow::ensure!(
        unknown.is_empty(),
        "lun {}: {directory} has no such lun; check the name, or give the NAA if the configuration sets one",
        unknown.join(", ")
    );
    Ok(())
}

fn prune(state: &State, days: u64) -> anyhow::Result<()> {
    let pruned = state.prune(days)?;
    for Pruned {
        name,
        naa,
        unused_days,
    } in &pruned
    {
        say(
            io::stdout().lock(),
            &format!("{name}  {naa}  unused for {unused_days} days\n"),
        );
    }
    let directory = state.directory().display();
    let text = match pruned.len() {
        0 => format!("{directory}: every record was used in the last {days} days\n"),
        1 => format!("{directory}: a record is pruned\n"),
        many => format!("{directory}: {many} records are pruned\n"),
    };
    say(io::stdout().lock(), &text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use durable::scratch::Scratch;

    use super::*;

    #[test]
    fn any_file_that_only_tarn_makes_shows_its_directory() {
        let names = [
            "identities.toml",
            "identities.toml.last",
            "units",
            "tokens.toml",
            "events.next",
        ];
        for (name, expected) in names
            .map(|name| (name, true))
            .into_iter()
            .chain([("history", false)])
        {
            let scratch = Scratch::new();
            std::fs::write(scratch.path().join(name), "").unwrap();
            assert_eq!(
                is_state_directory(scratch.path()).unwrap(),
                expected,
                "{name}"
            );
            let error = is_state_directory(&scratch.path().join(name)).unwrap_err();
            assert!(matches!(error, StartError::StateUnusable { .. }), "{error}");
        }
    }
}
