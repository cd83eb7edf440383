//! Flags for the keys of a section of the configuration: made of the table of keys, so that a new key has its flag.

use std::fmt;

use api::patch::{Patch, Patched};
use api::spec;
use clap::builder::StyledStr;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use config::keys::{
    Fallback, Form, Key, SECTION_LUN, SECTION_NBD, SECTION_QUOTA, SECTION_TARGET, SectionKeys,
};
use serde_json::{Map, Value};

/// A thing whose keys have flags.
pub(super) trait Flagged: Patched + Clone + fmt::Debug + 'static {
    /// Its keys.
    const SECTION: &'static SectionKeys;
    /// Those without a flag: what names it, and what is given otherwise.
    const WITHOUT: &'static [&'static str];
    /// Keys whose flag has another name.
    const CALLED: &'static [(&'static str, &'static str)] = &[];
}

impl Flagged for spec::Lun {
    const SECTION: &'static SectionKeys = &SECTION_LUN;
    const WITHOUT: &'static [&'static str] = &["id", "store"];
}

impl Flagged for spec::Target {
    const SECTION: &'static SectionKeys = &SECTION_TARGET;
    const WITHOUT: &'static [&'static str] = &["name"];
}

impl Flagged for spec::Nbd {
    const SECTION: &'static SectionKeys = &SECTION_NBD;
    const WITHOUT: &'static [&'static str] = &["bind", "socket"];
    // `--ca` is that of the connection to the daemon.
    const CALLED: &'static [(&'static str, &'static str)] = &[("ca", "client_ca")];
}

impl Flagged for spec::Quota {
    const SECTION: &'static SectionKeys = &SECTION_QUOTA;
    const WITHOUT: &'static [&'static str] = &["owner", "pool"];
}

/// The keys of a thing that were given.
#[derive(Debug)]
pub(super) struct Given<T, const IS_CHANGE: bool> {
    keys: Map<String, Value>,
    /// One with these keys, and no others.
    thing: Box<T>,
}

/// Keys of a thing that is made.
pub(super) type New<T> = Given<T, false>;

/// Keys of a thing that is changed.
pub(super) type Change<T> = Given<T, true>;

impl<T: Flagged> New<T> {
    /// A thing with these keys, and no others.
    pub(super) fn made(&self) -> T {
        T::clone(&self.thing)
    }

    /// Whether a key was given.
    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }
}

impl<T: Flagged> Change<T> {
    /// The same as keys of this thing.
    pub(super) fn of<const COUNT: usize>(&self, names: [&str; COUNT]) -> Patch<T> {
        let keys = self.keys.clone().into_iter();
        keys.fold(Patch::of(names), |patch, (key, value)| {
            patch.with(&key, value)
        })
    }

    /// Whether nothing was given.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

fn called<T: Flagged>(key: &Key) -> &'static str {
    let other = T::CALLED.iter().find(|(name, _)| *name == key.name);
    other.map_or(key.name, |(_, called)| called)
}

/// The keys of a thing that are true, by name.
pub(super) fn marks<T: Flagged>(thing: &T) -> String {
    let thing = serde_json::to_value(thing).unwrap_or_default();
    let keys = T::SECTION.keys.iter().map(|key| key.name);
    let is_set = |key: &&str| thing.get(*key).and_then(Value::as_bool) == Some(true);
    keys.filter(is_set).collect::<Vec<_>>().join(", ")
}

/// The keys that have flags: not lists of tables, which verbs of their own change.
fn flagged<T: Flagged>(is_change: bool) -> impl Iterator<Item = &'static Key> {
    let is_flagged = move |key: &&Key| {
        let is_listed = if let Form::List { entries, .. } = key.form
            && Form::table(entries).is_some()
        {
            !is_change && entries.iter().any(is_text)
        } else {
            true
        };
        is_listed && !T::WITHOUT.contains(&key.name)
    };
    T::SECTION.keys.iter().filter(is_flagged)
}

const fn is_text(form: &Form) -> bool {
    matches!(form, Form::Text { .. })
}

impl<T: Flagged, const IS_CHANGE: bool> Args for Given<T, IS_CHANGE> {
    fn augment_args(command: Command) -> Command {
        flagged::<T>(IS_CHANGE).fold(command, |command, key| {
            command.arg(flag::<T>(key, IS_CHANGE))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn flag<T: Flagged>(key: &Key, is_change: bool) -> Arg {
    let called = called::<T>(key);
    let flag = Arg::new(called)
        .long(called.replace('_', "-"))
        .help(help(key, is_change));
    match key.form {
        Form::Flag if is_change => flag
            .value_name("BOOL")
            .value_parser(clap::value_parser!(bool)),
        Form::Flag => flag.action(ArgAction::SetTrue),
        Form::Number { min, max } => {
            // 0 takes the key out.
            let min = if is_change { 0 } else { min };
            flag.value_name("N")
                .value_parser(clap::value_parser!(u64).range(min..=max))
        }
        Form::Bytes { .. } => flag.value_name("SIZE"),
        Form::Store => flag.value_name("STORE"),
        Form::OneOf(words) => flag.value_name(words.join("|")),
        Form::Text { .. } => flag.value_name("TEXT"),
        Form::Table { .. } => flag.value_name("KEY=VALUE,..."),
        Form::List { .. } => flag.value_name("A,B,..."),
    }
}

fn help(key: &Key, is_change: bool) -> StyledStr {
    let mut text = plain(key.meaning);
    text += &format!(" Use it {}.", plain(key.set_it));
    match key.default {
        Fallback::Required => {}
        Fallback::Words(_) | Fallback::Value(_) | Fallback::Number(_) if is_change => {
            text += " An empty value removes it.";
        }
        Fallback::Words(_) | Fallback::Value(_) | Fallback::Number(_) => {
            text += &format!(" [default: {}]", plain(&key.default_text()));
        }
    }
    text.into()
}

/// The Markdown of the reference without its marks: a link as the path of the page.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](../")
        && let Some((before, _)) = before.rsplit_once('[')
        && let Some((page, after)) = after.split_once(')')
    {
        plain += &format!("{before}docs/{page}");
        rest = after;
    }
    (plain + rest).replace('`', "")
}

impl<T: Flagged, const IS_CHANGE: bool> FromArgMatches for Given<T, IS_CHANGE> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut keys = Map::new();
        for key in flagged::<T>(IS_CHANGE) {
            if let Some(value) = value_of(matches, called::<T>(key), &key.form)? {
                keys.insert(key.name.to_owned(), value);
            }
        }
        let thing = Patch::<T>::nameless(keys.clone()).applied(&T::default());
        let thing = thing.map_err(|error| {
            Error::raw(
                ErrorKind::ValueValidation,
                format!("{error}; check the value\n"),
            )
        })?;
        let thing = Box::new(thing);
        Ok(Self { keys, thing })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn value_of(matches: &ArgMatches, called: &str, form: &Form) -> Result<Option<Value>, Error> {
    Ok(match form {
        Form::Flag => {
            let is_given =
                matches.value_source(called) == Some(clap::parser::ValueSource::CommandLine);
            matches
                .get_one::<bool>(called)
                .filter(|_| is_given)
                .map(|flag| Value::from(*flag))
        }
        Form::Number { .. } => matches
            .get_one::<u64>(called)
            .map(|number| Value::from(*number)),
        Form::Table { keys, .. } => match matches.get_one::<String>(called) {
            Some(text) => Some(table(keys, text)?),
            None => None,
        },
        Form::List { entries, .. } => {
            let entry = |text: &str| match Form::table(entries).and_then(|keys| keys.keys.first()) {
                Some(first) => {
                    Value::Object(Map::from_iter([(first.name.to_owned(), text.into())]))
                }
                None => text.into(),
            };
            let text = matches.get_one::<String>(called);
            text.map(|text| {
                text.split(',')
                    .filter(|part| !part.is_empty())
                    .map(entry)
                    .collect()
            })
        }
        Form::Text { .. } | Form::Store | Form::OneOf(_) | Form::Bytes { .. } => matches
            .get_one::<String>(called)
            .map(|text| Value::from(text.as_str())),
    })
}

/// `KEY=VALUE,...` as a table.
fn table(keys: &SectionKeys, text: &str) -> Result<Value, Error> {
    let mut table = Map::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let wrong = || {
            let known = keys
                .keys
                .iter()
                .map(|key| format!("{}={}", key.name, key.form));
            let known = known.collect::<Vec<_>>().join(", ").replace('`', "");
            Error::raw(
                ErrorKind::ValueValidation,
                format!("{part:?} is none of {known}\n"),
            )
        };
        let (word, value) = part.split_once('=').ok_or_else(wrong)?;
        let key = keys
            .keys
            .iter()
            .find(|key| key.name == word)
            .ok_or_else(wrong)?;
        let value = if matches!(key.form, Form::Number { .. }) {
            value.parse::<u16>().map_err(|_| wrong())?.into()
        } else {
            Value::from(value)
        };
        table.insert(word.to_owned(), value);
    }
    Ok(table.into())
}

#[cfg(test)]
mod tests;
