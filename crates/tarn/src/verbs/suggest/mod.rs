//! What may stand at the cursor of a command line: verbs, flags, words, and the ids of what the daemon has. For the
//! completion of shells and for `tarn shell`.
//!
//! The definition of the command line says what there may be; [`Source`] is asked for ids only where one is expected. A
//! daemon that does not answer in time offers no ids, and everything else is offered all the same.

mod ids;
mod kind;
mod words;

use clap::{Arg, ArgAction, Command, ValueHint};

pub(super) use self::ids::Daemon;
pub(super) use self::kind::{Kind, first_kind};
pub(crate) use self::words::Unclosed;
pub(super) use self::words::{Partial, partial, quoted, split};

/// More than a person would look through.
const SUGGESTIONS_MAX: usize = 1000;

/// Knows what there is.
pub(super) trait Source {
    /// The names of all things of a kind; none where nobody answers.
    fn ids(&self, kind: Kind) -> Vec<String>;
}

/// Something that may stand there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Suggestion {
    /// The whole word.
    pub(super) word: String,
    /// What it is, in a few words; empty where the word says it.
    pub(super) about: String,
}

/// What may stand at the cursor.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Suggestions {
    /// Words, each beginning as the one at the cursor does.
    pub(super) words: Vec<Suggestion>,
    /// A file of this machine may stand there.
    pub(super) are_files: bool,
}

/// Where a line has come to.
struct Position<'a> {
    /// The commands, from the program on.
    path: Vec<&'a Command>,
    /// How many positional arguments the last one has.
    positionals: usize,
    /// A flag that still lacks its value.
    pending: Option<&'a Arg>,
    /// After `--` there are no flags.
    has_flags: bool,
}

/// What may stand at the cursor, behind these words (without the name of the program) and in place of `last`.
pub(super) fn suggest(
    command: &Command,
    words: &[String],
    last: &str,
    source: &dyn Source,
) -> Suggestions {
    let position = Position::of(command, words);
    let mut found = position.suggest(last, source);
    found.words.retain(|one| one.word.starts_with(last));
    found.words.truncate(SUGGESTIONS_MAX);
    found
}

impl<'a> Position<'a> {
    fn of(command: &'a Command, words: &[String]) -> Self {
        let mut position = Self {
            path: vec![command],
            positionals: 0,
            pending: None,
            has_flags: true,
        };
        for word in words {
            position.step(word);
        }
        position
    }

    fn step(&mut self, word: &str) {
        if self.pending.take().is_some() {
            return;
        }
        if self.has_flags && word == "--" {
            self.has_flags = false;
        } else if self.has_flags && word.len() > 1 && word.starts_with('-') {
            let flag = self.flag(word);
            self.pending = flag.filter(|flag| !word.contains('=') && wants_value(flag));
        } else if let Some(below) = self
            .command()
            .and_then(|command| command.find_subcommand(word))
        {
            self.path.push(below);
            self.positionals = 0;
        } else {
            self.positionals += 1;
        }
    }

    fn command(&self) -> Option<&'a Command> {
        self.path.last().copied()
    }

    /// The flags of the command, and those that all below a command have.
    fn flags(&self) -> impl Iterator<Item = &'a Arg> + use<'a> {
        let (above, own) = match self.path.split_last() {
            Some((own, above)) => (above.to_vec(), Some(*own)),
            None => (Vec::new(), None),
        };
        let above = above.into_iter().flat_map(Command::get_arguments);
        let own = own.into_iter().flat_map(Command::get_arguments);
        own.chain(above.filter(|argument| argument.is_global_set()))
            .filter(|argument| !argument.is_positional() && !argument.is_hide_set())
    }

    fn flag(&self, word: &str) -> Option<&'a Arg> {
        let name = word.split_once('=').map_or(word, |(name, _)| name);
        self.flags().find(|flag| match name.strip_prefix("--") {
            Some(long) => flag
                .get_long_and_visible_aliases()
                .is_some_and(|all| all.contains(&long)),
            None => name
                .chars()
                .nth(1)
                .is_some_and(|letter| flag.get_short() == Some(letter)),
        })
    }

    fn suggest(&self, last: &str, source: &dyn Source) -> Suggestions {
        if let Some(flag) = self.pending {
            return self.values(flag, "", last, source);
        }
        if self.has_flags && last.starts_with('-') {
            if let Some((name, value)) = last.split_once('=') {
                let flag = self.flag(name);
                let before = format!("{name}=");
                return flag.map_or_else(Suggestions::default, |flag| {
                    self.values(flag, &before, value, source)
                });
            }
            let flags = self.flags().filter_map(|flag| {
                Some(Suggestion {
                    word: format!("--{}", flag.get_long()?),
                    about: first_sentence(flag.get_help().map(ToString::to_string)),
                })
            });
            let help = Suggestion {
                word: "--help".to_owned(),
                about: "Print help".to_owned(),
            };
            return Suggestions {
                words: flags.chain([help]).collect(),
                are_files: false,
            };
        }
        let Some(command) = self.command() else {
            return Suggestions::default();
        };
        let mut found = self.positional(command, last, source);
        let visible = command.get_subcommands().filter(|one| !one.is_hide_set());
        found.words.extend(visible.map(|one| Suggestion {
            word: one.get_name().to_owned(),
            about: first_sentence(one.get_about().map(ToString::to_string)),
        }));
        found
    }

    fn positional(&self, command: &'a Command, last: &str, source: &dyn Source) -> Suggestions {
        let all: Vec<&Arg> = command.get_positionals().collect();
        let is_many = |argument: &&Arg| {
            matches!(argument.get_action(), ArgAction::Append)
                || argument
                    .get_num_args()
                    .is_some_and(|count| count.max_values() > 1)
        };
        let argument = all.get(self.positionals).copied();
        // The last may be there many times.
        let argument = argument.or_else(|| all.last().copied().filter(is_many));
        argument.map_or_else(Suggestions::default, |argument| {
            self.values(argument, "", last, source)
        })
    }

    /// The values of an argument, behind what is there of the word already.
    fn values(
        &self,
        argument: &Arg,
        before: &str,
        value: &str,
        source: &dyn Source,
    ) -> Suggestions {
        // In a list only the part behind the last comma is open.
        let is_list = argument.get_value_delimiter() == Some(',') || is_list_of_ids(argument);
        let done = value
            .rfind(',')
            .filter(|_| is_list)
            .map_or(0, |comma| comma + 1);
        let before = format!("{before}{}", value.get(..done).unwrap_or_default());
        let suggestion = |word: &str, about: String| Suggestion {
            word: format!("{before}{word}"),
            about,
        };
        let fixed = argument.get_possible_values();
        if !fixed.is_empty() {
            let words = fixed.iter().filter(|value| !value.is_hide_set());
            let words = words.map(|value| {
                let about = value.get_help().map(ToString::to_string);
                suggestion(value.get_name(), first_sentence(about))
            });
            return Suggestions {
                words: words.collect(),
                are_files: false,
            };
        }
        let names = self.path.iter().skip(1).map(|command| command.get_name());
        let verb = names.collect::<Vec<_>>().join(" ");
        if let Some(kind) = kind::kind_of(&verb, argument) {
            let ids = source.ids(kind);
            return Suggestions {
                words: ids.iter().map(|id| suggestion(id, String::new())).collect(),
                are_files: false,
            };
        }
        let is_store = matches!(argument.get_id().as_str(), "store" | "stores" | "log");
        let is_path = matches!(
            argument.get_value_hint(),
            ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath
        );
        Suggestions {
            words: Vec::new(),
            are_files: is_path || is_store,
        }
    }
}

/// Lists that the daemon takes apart.
fn is_list_of_ids(argument: &Arg) -> bool {
    let names = argument.get_value_names().unwrap_or_default();
    names.iter().any(|name| name.ends_with(",..."))
}

/// Whether a flag takes the word behind it.
fn wants_value(flag: &Arg) -> bool {
    flag.get_action().takes_values()
        && !flag.is_require_equals_set()
        && flag
            .get_num_args()
            .is_none_or(|count| count.min_values() > 0)
}

fn first_sentence(text: Option<String>) -> String {
    let text = text.unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let end = line.find(". ").unwrap_or(line.len());
    line.get(..end)
        .unwrap_or(line)
        .trim_end_matches('.')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::cli;

    /// Has two things of each kind, and keeps what it was asked for.
    #[derive(Default)]
    struct Fixed(RefCell<Vec<Kind>>);

    impl Source for Fixed {
        fn ids(&self, kind: Kind) -> Vec<String> {
            self.0.borrow_mut().push(kind);
            let name = format!("{kind:?}").to_lowercase();
            vec![format!("{name}:1"), format!("{name}:2")]
        }
    }

    fn at(line: &str) -> (Vec<String>, bool, Vec<Kind>) {
        let command = cli::command();
        let Partial { words, last, .. } = partial(line);
        let source = Fixed::default();
        let found = suggest(&command, &words, &last, &source);
        let words = found.words.into_iter().map(|one| one.word).collect();
        (words, found.are_files, source.0.into_inner())
    }

    #[test]
    fn verbs_and_flags_come_from_the_definition() {
        let (words, ..) = at("lun re");
        assert_eq!(words, ["resize", "reservation", "rename"]);
        let (words, ..) = at("sta");
        assert_eq!(words, ["state", "status"]);
        let (words, ..) = at("lun add web /a --si");
        assert_eq!(words, ["--size"]);
        let (words, ..) = at("lun show --so");
        assert_eq!(words, ["--socket"], "flags of all verbs");
        let (words, ..) = at("token add a ");
        assert_eq!(words, ["metrics", "viewer", "operator", "admin"]);
        let (words, ..) = at("lun add a b --thin=");
        assert_eq!(words, ["--thin=true", "--thin=false"]);
        assert!(!at("").0.contains(&"complete".to_owned()), "what is hidden");
    }

    #[test]
    fn ids_are_offered_where_a_thing_is_named() {
        for (line, expected, kind) in [
            ("lun show ", &["lun:1", "lun:2"][..], Kind::Lun),
            ("lun ls", &[], Kind::Lun),
            ("lun delete lun:2", &["lun:2"], Kind::Lun),
            ("target map ", &["target:1", "target:2"], Kind::Target),
            ("target map t 0 ", &["lun:1", "lun:2"], Kind::Lun),
            (
                "target map t 0 x --groups group:1,",
                &["group:1,group:1", "group:1,group:2"],
                Kind::Group,
            ),
            (
                "lun add a /b --target ",
                &["target:1", "target:2"],
                Kind::Target,
            ),
            ("lun --json show ", &["lun:1", "lun:2"], Kind::Lun),
            ("lun --socket x show ", &["lun:1", "lun:2"], Kind::Lun),
            ("hyperscsi device add g ", &["lun:1", "lun:2"], Kind::Lun),
            (
                "nbd set p --luns=lun:",
                &["--luns=lun:1", "--luns=lun:2"],
                Kind::Lun,
            ),
            (
                "snapshot rm ",
                &["snapshot:1", "snapshot:2"],
                Kind::Snapshot,
            ),
            ("events --lun ", &["lun:1", "lun:2"], Kind::Lun),
        ] {
            let (words, _, asked) = at(line);
            assert_eq!(words, expected, "{line}");
            if !expected.is_empty() {
                assert_eq!(asked, [kind], "{line}");
            }
        }
    }

    #[test]
    fn new_names_and_files_are_no_ids() {
        for (line, files) in [
            ("lun add ", false),
            ("lun rename a ", false),
            ("lun add a ", true),
            ("apply ", true),
            ("serve a ", true),
            ("trace save x -o ", true),
            ("target map t ", false),
            ("lun show a b ", false),
        ] {
            let (words, are_files, asked) = at(line);
            assert_eq!(
                (words.len(), are_files, asked.len()),
                (0, files, 0),
                "{line}"
            );
        }
    }
}
