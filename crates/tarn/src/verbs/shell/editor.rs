//! The line that a person types, with TAB for what may stand there.

use std::cell::RefCell;
use std::rc::Rc;

use clap::Command;
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use tree::{EntryKind, Spot, Walker};

use super::super::suggest::{self, Partial, Source, quoted};
use super::line;

/// Lines that are kept. They are not written anywhere.
const HISTORY_MAX: usize = 500;

/// What a line is read with.
pub(super) type Lines = Editor<Names, MemHistory>;

/// Knows what may stand in a line.
pub(super) struct Names {
    pub(super) command: Command,
    pub(super) walker: Rc<Walker>,
    pub(super) spot: Rc<RefCell<Spot>>,
    pub(super) source: suggest::Daemon,
}

/// A word that may stand there, and whether the line goes on in it.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Offer {
    word: String,
    is_open: bool,
}

pub(super) fn lines(names: Names) -> rustyline::Result<Lines> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(HISTORY_MAX)?
        .auto_add_history(true)
        .build();
    let history = MemHistory::with_config(&config);
    let mut editor = Editor::with_history(config, history)?;
    editor.set_helper(Some(names));
    Ok(editor)
}

impl Names {
    fn offers(&self, words: &[String], last: &str) -> Vec<Offer> {
        let spot = self.spot.borrow().clone();
        let Some((first, rest)) = words.split_first() else {
            return self.commands(&spot, last);
        };
        match first.as_str() {
            "cd" if rest.is_empty() => self.paths(&spot, last, |kind| kind != EntryKind::File),
            "ls" if rest.is_empty() => self.paths(&spot, last, |kind| kind != EntryKind::File),
            "cat" => self.paths(&spot, last, |_| true),
            "write" if rest.is_empty() => self.paths(&spot, last, |_| true),
            "help" => offered(&self.command, rest, last, &self.source),
            _ if line::builtin(first).is_some() => Vec::new(),
            _ => match line::arguments(&self.command, &spot, words) {
                Some(arguments) => offered(&self.command, &arguments, last, &self.source),
                None => Vec::new(),
            },
        }
    }

    /// First words of a line.
    fn commands(&self, spot: &Spot, last: &str) -> Vec<Offer> {
        let builtins = line::BUILTINS.iter().map(|one| one.name.to_owned());
        let subject = spot.subject();
        let noun = subject.and_then(|subject| line::noun(&self.command, &subject));
        let verbs = noun.into_iter().flat_map(Command::get_subcommands);
        let top = self.command.get_subcommands();
        let names = verbs.chain(top).filter(|one| !one.is_hide_set());
        let names = names.map(|one| one.get_name().to_owned());
        let mut words: Vec<String> = builtins.chain(names).collect();
        words.retain(|word| word.starts_with(last) && word != "shell");
        words.sort();
        words.dedup();
        let offer = |word| Offer {
            word,
            is_open: false,
        };
        words.into_iter().map(offer).collect()
    }

    /// Paths of the tree.
    fn paths(&self, spot: &Spot, last: &str, is_wanted: fn(EntryKind) -> bool) -> Vec<Offer> {
        let (above, begun) = match last.rfind('/') {
            Some(at) => last.split_at(at + 1),
            None => ("", last),
        };
        // Nothing is said of a directory that is not there, nor of a daemon that does not answer: a person is typing.
        let entries = self.walker.list(spot, above).unwrap_or_default();
        let entries = entries
            .into_iter()
            .filter(|entry| entry.name.starts_with(begun) && is_wanted(entry.kind));
        let offer = |entry: tree::Entry| {
            let is_open = entry.kind != EntryKind::File;
            let end = if is_open { "/" } else { "" };
            Offer {
                word: format!("{above}{}{end}", entry.name),
                is_open,
            }
        };
        entries.map(offer).collect()
    }
}

fn offered(command: &Command, words: &[String], last: &str, source: &dyn Source) -> Vec<Offer> {
    let found = suggest::suggest(command, words, last, source);
    let offer = |one: suggest::Suggestion| Offer {
        word: one.word,
        is_open: false,
    };
    let mut offers: Vec<_> = found.words.into_iter().map(offer).collect();
    if found.are_files {
        offers.extend(files(last));
    }
    offers
}

/// Files of this machine.
fn files(last: &str) -> Vec<Offer> {
    let (above, begun) = match last.rfind('/') {
        Some(at) => last.split_at(at + 1),
        None => ("", last),
    };
    let directory = if above.is_empty() { "." } else { above };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let offer = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let is_hidden = name.starts_with('.') && !begun.starts_with('.');
        if is_hidden || !name.starts_with(begun) {
            return None;
        }
        let is_open = entry.path().is_dir();
        let end = if is_open { "/" } else { "" };
        Some(Offer {
            word: format!("{above}{name}{end}"),
            is_open,
        })
    };
    let mut offers: Vec<_> = entries.filter_map(offer).collect();
    offers.sort_by(|a, b| a.word.cmp(&b.word));
    offers
}

impl Completer for Names {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _ctx: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let Partial { words, last, start } = suggest::partial(line.get(..pos).unwrap_or(line));
        let pair = |offer: Offer| {
            let end = if offer.is_open { "" } else { " " };
            Pair {
                replacement: format!("{}{end}", quoted(&offer.word)),
                display: offer.word,
            }
        };
        let offers = self.offers(&words, &last);
        Ok((start, offers.into_iter().map(pair).collect()))
    }
}

impl Hinter for Names {
    type Hint = String;
}

impl Highlighter for Names {}

impl Validator for Names {}

impl Helper for Names {}

#[cfg(test)]
mod tests {
    use durable::scratch::Scratch;

    use super::*;

    #[test]
    fn files_are_offered_in_order_and_hidden_ones_where_a_dot_asks_for_them() {
        let scratch = Scratch::new();
        let root = scratch.path().display();
        for name in ["b", "ba", "a", ".b"] {
            std::fs::write(scratch.path().join(name), "").unwrap();
        }
        std::fs::create_dir(scratch.path().join("bc")).unwrap();
        for (begun, expected) in [
            ("", &["a", "b", "ba", "bc/"][..]),
            ("b", &["b", "ba", "bc/"]),
            ("bc", &["bc/"]),
            (".", &[".b"]),
            ("c", &[]),
            ("c/", &[]),
        ] {
            let offers = files(&format!("{root}/{begun}"));
            let words: Vec<_> = offers.iter().map(|offer| offer.word.clone()).collect();
            let expected: Vec<_> = expected
                .iter()
                .map(|name| format!("{root}/{name}"))
                .collect();
            assert_eq!(words, expected, "{begun}");
            for offer in offers {
                assert_eq!(offer.is_open, offer.word.ends_with('/'));
            }
        }
        // Without a directory it is the one where the process runs.
        let offers = files("Cargo.tom");
        assert_eq!(offers[0].word, "Cargo.toml");
    }
}
