//! Options of a STORE as flags: `--size 10G` beside `?size=10G`, for which a shell needs no quotes.
//!
//! The flags are made from the table of options that the grammar of STOREs has, so that a new option is a flag too.

use std::sync::LazyLock;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use config::{OPTIONS, OptionRow, StoreRule};

const HEADING: &str = "Options of STORE";

/// Options that were given as flags, with their values.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    given: Vec<(&'static OptionRow, String)>,
}

impl StoreOptions {
    /// A STORE with these options.
    ///
    /// # Errors
    ///
    /// A value that no option can have.
    pub(crate) fn of(&self, store: &str) -> Result<String, StoreRule> {
        let options = self.given.iter();
        config::with_options(store, options.map(|(row, value)| (*row, value.as_str())))
    }

    /// A STORE with these options in place of those that it has.
    ///
    /// # Errors
    ///
    /// A value that no option can have.
    pub(crate) fn changed(&self, store: &str) -> Result<String, StoreRule> {
        let options = self.given.iter();
        let options: Vec<_> = options.map(|(row, value)| (*row, value.as_str())).collect();
        config::with_changed_options(store, &options)
    }

    /// None was given.
    pub(crate) const fn is_empty(&self) -> bool {
        self.given.is_empty()
    }
}

/// An option of a STORE that was given as a flag.
#[derive(Debug, thiserror::Error)]
#[error("the options of the STORE are wrong: {0}")]
pub(crate) struct StoreOptionError(pub(crate) StoreRule);

/// Options that stay in STORE: flags of these names say where the daemon is.
const NOT_FLAGS: [&str; 2] = ["socket", "ca"];

/// The argument that has a file instead of STOREs.
const FILE: &str = "config";

/// The names of an option on a command line.
struct Names {
    /// Among the arguments of a command, of which one may have the word of the option.
    id: String,
    /// `password-file` of `password_file`.
    flag: String,
}

static NAMES: LazyLock<Vec<(&'static str, Names)>> = LazyLock::new(|| {
    let names = |row: &OptionRow| Names {
        id: format!("store-option-{}", row.word),
        flag: row.word.replace('_', "-"),
    };
    OPTIONS.iter().map(|row| (row.word, names(row))).collect()
});

fn names(row: &OptionRow) -> (&'static str, &'static str) {
    let found = NAMES.iter().find(|(word, _)| *word == row.word);
    found.map_or((row.word, row.word), |(_, names)| (&names.id, &names.flag))
}

fn id(row: &OptionRow) -> &'static str {
    names(row).0
}

fn flag(row: &OptionRow) -> &'static str {
    names(row).1
}

/// Which argument has the STORE; `None` where the command is made without one, or changes the one that is there.
fn store(command: &Command) -> Option<&'static str> {
    let has = |name: &&str| {
        let mut arguments = command.get_arguments();
        arguments.any(|argument| argument.get_id() == *name && argument.is_positional())
    };
    ["stores", "store"].into_iter().find(has)
}

fn argument(row: &'static OptionRow, store: Option<&'static str>, has_file: bool) -> Arg {
    let (usage, meaning) = row.help;
    let help = format!("In STORE: {usage}. Use it to {}", purpose(row, meaning));
    let mut argument = Arg::new(id(row))
        .long(flag(row))
        .help(help)
        .help_heading(HEADING)
        .hide_possible_values(true);
    if let Some(store) = store {
        argument = argument.requires(store);
    }
    if has_file {
        // What is required is not asked for beside an argument that excludes it.
        argument = argument.conflicts_with(FILE);
    }
    if row.is_flag() {
        return argument
            .value_name("BOOL")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_parser(["true", "false"]);
    }
    let argument = argument.value_name(usage.split_once('=').map_or("VALUE", |(_, name)| name));
    if row.is_path() {
        argument.value_hint(clap::ValueHint::FilePath)
    } else {
        argument
    }
}

/// What an option is for, as the end of a sentence.
fn purpose(row: &OptionRow, meaning: &str) -> String {
    if row.is_flag() {
        return format!("{meaning}.");
    }
    match meaning.split_once(' ') {
        Some(("create" | "use" | "wait", _)) => format!("{meaning}."),
        _ => format!("set {meaning}."),
    }
}

impl Args for StoreOptions {
    fn augment_args(command: Command) -> Command {
        let store = store(&command);
        let has_file = command
            .get_arguments()
            .any(|argument| argument.get_id() == FILE);
        let is_taken = |command: &Command, row: &OptionRow| {
            let flag = flag(row);
            let mut arguments = command.get_arguments();
            arguments.any(|argument| argument.get_long() == Some(flag))
        };
        // Where the command has such a flag of its own, the option is written into STORE.
        OPTIONS.iter().fold(command, |command, row| {
            let is_word = NOT_FLAGS.contains(&row.word) || is_taken(&command, row);
            match is_word {
                true => command,
                false => command.arg(argument(row, store, has_file)),
            }
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for StoreOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |row: &'static OptionRow| {
            // An option that the command does not have is no mistake: another flag has its name.
            let value = matches.try_get_one::<String>(id(row)).ok().flatten()?;
            Some((row, value.clone()))
        };
        Ok(Self {
            given: OPTIONS.iter().filter_map(value).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    #[test]
    fn every_option_is_a_flag_of_the_commands_that_take_a_store() {
        let command = cli::command();
        for (path, own) in [
            (&["serve"][..], &["password_file"][..]),
            (&["lun", "add"], &["serial", "readonly"]),
            (&["lun", "set"], &["serial"]),
            (&["lun", "load"], &[]),
            (&["store", "add"], &[]),
            (&["store", "set"], &[]),
        ] {
            let mut at = &command;
            for word in path {
                at = at.find_subcommand(word).unwrap();
            }
            for row in &OPTIONS {
                let has = at
                    .get_arguments()
                    .any(|argument| argument.get_id() == id(row));
                let is_word = own.contains(&row.word) || NOT_FLAGS.contains(&row.word);
                assert_eq!(has, !is_word, "{path:?} {}", row.word);
            }
        }
    }

    #[test]
    fn an_option_needs_a_store_unless_it_changes_the_one_that_is_there() {
        assert!(cli::parse(["tarn", "lun", "load", "cd", "/a", "--removable"]).is_ok());
        assert!(cli::parse(["tarn", "lun", "load", "cd", "--removable"]).is_err());
        assert!(cli::parse(["tarn", "lun", "set", "a", "--size", "1G"]).is_ok());
        assert!(cli::parse(["tarn", "lun", "set", "a", "--store", "/a", "--size", "1G"]).is_ok());
    }
}
