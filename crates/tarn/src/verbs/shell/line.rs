//! What a line of the shell means: a step through the tree, or a verb with the noun and the id of where one is.

use clap::Command;
use tree::{Spot, Subject};

use super::super::failure::Failure;
use super::super::suggest;

/// A command of the shell itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Builtin {
    /// Its name.
    pub(super) name: &'static str,
    /// How it is written.
    pub(super) usage: &'static str,
    /// What it does.
    pub(super) about: &'static str,
    /// How many words it takes, at least and at most.
    count: (usize, usize),
    does: fn(&[String]) -> Action,
}

/// What is to be done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Action {
    /// Nothing: an empty line.
    Nothing,
    /// To another directory.
    Go(String),
    /// Show what is in a directory.
    List(String),
    /// Show values.
    Read(Vec<String>),
    /// Write a value.
    Write(String, String),
    /// Say where one is.
    Where,
    /// List commands, or show the help of one.
    Help(Vec<String>),
    /// A verb of the program, by its arguments.
    Verb(Vec<String>),
    /// The end.
    Exit,
}

fn word(words: &[String], at: usize) -> String {
    words.get(at).cloned().unwrap_or_default()
}

/// The commands of the shell itself. Their names come before all others.
#[rustfmt::skip]
pub(super) const BUILTINS: &[Builtin] = &[
    Builtin { name: "cd", usage: "cd [PATH]", about: "go to a directory; without PATH to the root", count: (0, 1),
        does: |words| Action::Go(words.first().cloned().unwrap_or_else(|| "/".to_owned())) },
    Builtin { name: "ls", usage: "ls [PATH]", about: "show what is in a directory", count: (0, 1),
        does: |words| Action::List(word(words, 0)) },
    Builtin { name: "cat", usage: "cat PATH...", about: "show values", count: (1, usize::MAX),
        does: |words| Action::Read(words.to_vec()) },
    Builtin { name: "write", usage: "write PATH VALUE", about: "change a value that can be written", count: (2, 2),
        does: |words| Action::Write(word(words, 0), word(words, 1)) },
    Builtin { name: "pwd", usage: "pwd", about: "show where you are", count: (0, 0), does: |_| Action::Where },
    Builtin { name: "help", usage: "help [COMMAND]", about: "list all commands, or show the help of one",
        count: (0, usize::MAX), does: |words| Action::Help(words.to_vec()) },
    Builtin { name: "exit", usage: "exit", about: "leave the shell, as Ctrl-D does", count: (0, 0), does: |_| Action::Exit },
    Builtin { name: "quit", usage: "quit", about: "the same", count: (0, 0), does: |_| Action::Exit },
];

/// Verbs that would be a shell in the shell, or are for scripts of other shells.
const NOT_HERE: [&str; 2] = ["shell", "complete"];

pub(super) fn builtin(name: &str) -> Option<&'static Builtin> {
    BUILTINS.iter().find(|builtin| builtin.name == name)
}

/// What these words mean at a spot.
pub(super) fn action(command: &Command, spot: &Spot, words: &[String]) -> Result<Action, Failure> {
    let Some((first, rest)) = words.split_first() else {
        return Ok(Action::Nothing);
    };
    if let Some(builtin) = builtin(first) {
        let (least, most) = builtin.count;
        return match (least..=most).contains(&rest.len()) {
            true => Ok((builtin.does)(rest)),
            false => Err(Failure::ShellWords {
                usage: builtin.usage,
            }),
        };
    }
    match arguments(command, spot, words) {
        Some(arguments) => Ok(Action::Verb(arguments)),
        None => Err(Failure::ShellVerb {
            word: first.clone(),
        }),
    }
}

/// The arguments of the program that words are short for at a spot; `None` where they are no verb.
pub(super) fn arguments(command: &Command, spot: &Spot, words: &[String]) -> Option<Vec<String>> {
    let (first, rest) = words.split_first()?;
    // With the name of the program before it, it is a verb of the top level.
    let (first, rest, is_top) = match first.as_str() {
        "tarn" => {
            let (first, rest) = rest.split_first()?;
            (first, rest, true)
        }
        _ => (first, rest, false),
    };
    let here = spot.subject().filter(|_| !is_top);
    if let Some(arguments) = here.and_then(|subject| of_subject(command, &subject, first, rest)) {
        return Some(arguments);
    }
    let top = command.find_subcommand(first)?;
    if NOT_HERE.contains(&top.get_name()) {
        return None;
    }
    Some(std::iter::once(first).chain(rest).cloned().collect())
}

/// The noun of a subject, as the definition of the command line has it.
pub(super) fn noun<'a>(command: &'a Command, subject: &Subject) -> Option<&'a Command> {
    let mut words = subject.noun.split(' ');
    words.try_fold(command, |command, word| command.find_subcommand(word))
}

/// A verb of the thing one is at. It gets the id of the thing where it takes one.
fn of_subject(
    command: &Command,
    subject: &Subject,
    first: &str,
    rest: &[String],
) -> Option<Vec<String>> {
    let noun = noun(command, subject)?;
    let verb = noun.find_subcommand(first)?;
    let path = format!("{} {}", subject.noun, verb.get_name());
    let mut arguments: Vec<String> = path.split(' ').map(str::to_owned).collect();
    let takes = suggest::first_kind(&path, verb);
    let id = subject
        .id
        .as_ref()
        .filter(|id| takes.is_some_and(|kind| is_of(kind, id)));
    // Help is about the verb, whichever thing it is for.
    let wants_help = rest.iter().any(|word| word == "--help" || word == "-h");
    arguments.extend(id.filter(|_| !wants_help).cloned());
    arguments.extend(rest.iter().cloned());
    Some(arguments)
}

/// Whether an id is one of a kind: a verb of snapshots takes a unit or a snapshot, `LUN@NAME`.
fn is_of(kind: suggest::Kind, id: &str) -> bool {
    kind != suggest::Kind::Snapshot || id.contains('@')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    fn at(noun: &'static str, id: Option<&str>, line: &str) -> Option<String> {
        let words = suggest::split(line).unwrap();
        let subject = Subject {
            noun,
            id: id.map(str::to_owned),
        };
        let (first, rest) = words.split_first().unwrap();
        of_subject(&cli::command(), &subject, first, rest).map(|words| words.join(" "))
    }

    #[test]
    fn verbs_are_those_of_the_thing_one_is_at() {
        for (noun, id, line, expected) in [
            ("lun", None, "show web", Some("lun show web")),
            ("lun", None, "create web mem:1G", Some("lun add web mem:1G")),
            ("lun", Some("web"), "show", Some("lun show web")),
            ("lun", Some("web"), "resize 20G", Some("lun resize web 20G")),
            ("lun", Some("web"), "list", Some("lun list")),
            (
                "lun",
                Some("web"),
                "add db mem:1G",
                Some("lun add db mem:1G"),
            ),
            ("lun", Some("web"), "set --help", Some("lun set --help")),
            ("lun", Some("web"), "status", None),
            (
                "target",
                Some("iqn.a"),
                "map 0 web",
                Some("target map iqn.a 0 web"),
            ),
            (
                "snapshot",
                Some("web"),
                "create",
                Some("snapshot create web"),
            ),
            (
                "snapshot",
                Some("web"),
                "rm web@a",
                Some("snapshot rm web@a"),
            ),
            (
                "snapshot",
                Some("web@a"),
                "rollback",
                Some("snapshot rollback web@a"),
            ),
            ("session", Some("7"), "rm --yes", Some("session rm 7 --yes")),
            (
                "hyperscsi group",
                Some("ABC at eth1"),
                "show",
                Some("hyperscsi group show ABC at eth1"),
            ),
        ] {
            assert_eq!(
                at(noun, id, line).as_deref(),
                expected,
                "{noun} {id:?} {line}"
            );
        }
    }

    #[test]
    fn at_the_root_verbs_are_those_of_the_program() {
        let command = cli::command();
        let action = |line: &str| {
            let words = suggest::split(line).unwrap();
            action(&command, &Spot::ROOT, &words)
        };
        let verb = |line: &str| Action::Verb(suggest::split(line).unwrap());
        assert_eq!(action("status --json").unwrap(), verb("status --json"));
        assert_eq!(action("tarn lun ls").unwrap(), verb("lun ls"));
        assert_eq!(action("").unwrap(), Action::Nothing);
        assert_eq!(action("cd").unwrap(), Action::Go("/".to_owned()));
        assert_eq!(
            action("write a 'b c'").unwrap(),
            Action::Write("a".to_owned(), "b c".to_owned())
        );
        for wrong in ["shell", "complete bash x", "nonsense", "tarn"] {
            assert!(
                matches!(action(wrong), Err(Failure::ShellVerb { .. })),
                "{wrong}"
            );
        }
        for wrong in ["cd a b", "cat", "write a", "pwd x"] {
            assert!(
                matches!(action(wrong), Err(Failure::ShellWords { .. })),
                "{wrong}"
            );
        }
    }

    #[test]
    fn every_directory_of_the_tree_has_a_noun_of_the_command_line() {
        let command = cli::command();
        for name in [
            "lun",
            "snapshot",
            "target",
            "session",
            "group",
            "user",
            "store",
            "nbd",
            "quota",
            "hyperscsi group",
        ] {
            let subject = Subject {
                noun: name,
                id: None,
            };
            assert!(
                noun(&command, &subject).is_some_and(Command::has_subcommands),
                "{name}"
            );
        }
    }
}
