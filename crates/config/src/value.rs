//! Values of a checked model as TOML: what two models are compared by, and what the effective
//! configuration says. One table per kind of thing; every value has exactly one form.

use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value as Json};

use crate::keys::{Form, Key, SECTION_LUN, SectionKeys, size_text};
use crate::specs::{Said, full_store, user_name};
use crate::{
    Mail, Model, Notify, NotifyTo, OPTIONS, OptionRow, Server, StoreOption, Unit, UserIndex, unit,
};

/// A key of a thing of the model and how to read its value.
#[derive(Debug)]
pub(crate) struct KeyOf<T: 'static> {
    /// The key as the file has it.
    pub(crate) name: &'static str,
    /// The value as TOML; `None` where there is none.
    pub(crate) value: fn(&Model, &T) -> Option<String>,
}

/// The same of such a thing.
pub(crate) fn values<T>(model: &Model, keys: &[KeyOf<T>], thing: &T) -> Keyed {
    let value = |key: &KeyOf<T>| (key.name, (key.value)(model, thing));
    keys.iter().map(value).collect()
}

const fn key<T>(name: &'static str, value: fn(&Model, &T) -> Option<String>) -> KeyOf<T> {
    KeyOf { name, value }
}

/// All keys of a kind of thing, in the order of the table of keys, with the values of one of them as TOML.
pub(crate) type Keyed = Vec<(&'static str, Option<String>)>;

/// What a section says of a thing, but for these keys.
pub(crate) fn keyed<T: Serialize>(section: &SectionKeys, thing: &T, without: &[&str]) -> Keyed {
    match serde_json::to_value(thing) {
        Ok(Json::Object(table)) => {
            let mut keys = toml_keys(section, &table);
            keys.retain(|(key, _)| !without.contains(key));
            keys
        }
        Ok(_) | Err(_) => Vec::new(),
    }
}

/// A unit, with the options of its store as keys of their own.
pub(crate) fn of_unit(thing: &Unit) -> Keyed {
    let store = &thing.store;
    let members = store.members();
    let texts = || list(members.iter().map(|one| quoted(&full_store(&one.store))));
    let mut keys = vec![
        ("store", Some(quoted(&store.at.without_size()))),
        ("size", store.configured_size_bytes().map(size)),
        ("members", (!members.is_empty()).then(texts)),
    ];
    let is_said =
        |row: &&OptionRow| ![StoreOption::Size, StoreOption::Serial].contains(&row.option);
    let options = OPTIONS.iter().filter(is_said);
    keys.extend(options.map(|row| (row.word, row.option.toml(store))));
    keys.extend(keyed(
        &SECTION_LUN,
        &unit::lun(thing, Said::Whole),
        &["id", "store"],
    ));
    keys
}

fn toml_keys(section: &SectionKeys, table: &Map<String, Json>) -> Keyed {
    let value = |key: &Key| {
        let value = match (table.get(key.name), key.form) {
            (Some(value), form) => Some(toml(&form, value)),
            // What the API leaves out.
            (None, Form::Flag) => Some("false".to_owned()),
            (None, Form::List { .. }) => Some("[]".to_owned()),
            (None, _) => None,
        };
        (key.name, value)
    };
    section.keys.iter().map(value).collect()
}

fn toml(form: &Form, value: &Json) -> String {
    match (form, value) {
        (Form::List { entries, .. }, Json::Array(values)) => {
            let nested = entries
                .iter()
                .find(|form| matches!(form, Form::Table { .. }));
            let form = nested.or_else(|| entries.first()).unwrap_or(form);
            list(values.iter().map(|value| toml(form, value)))
        }
        (Form::Table { keys, .. }, Json::Object(table)) => {
            let keys = toml_keys(keys, table).into_iter();
            let keys = keys.filter_map(|(key, value)| Some(format!("{key} = {}", value?)));
            format!("{{ {} }}", keys.collect::<Vec<_>>().join(", "))
        }
        (_, Json::String(text)) => quoted(text),
        (_, other) => other.to_string(),
    }
}

/// Somebody who gets events, without what they are found by.
pub(crate) const NOTIFY: &[KeyOf<Notify>] = &[
    key("secret_file", |_, notify| match &notify.to {
        NotifyTo::Webhook { secret, .. } => Some(path(&secret.path)),
        NotifyTo::Mail(_) => None,
    }),
    key("smtp", |_, notify| Some(quoted(&mail(notify)?.smtp.text))),
    key("from", |_, notify| {
        Some(quoted(mail(notify)?.from.as_ref()?))
    }),
    key("smtp_user", |_, notify| {
        Some(quoted(&mail(notify)?.login.as_ref()?.user))
    }),
    key("smtp_password_file", |_, notify| {
        Some(path(&mail(notify)?.login.as_ref()?.password.path))
    }),
    key("events", |_, notify| {
        Some(list(notify.events.iter().map(|kind| quoted(kind))))
    }),
];

/// What is said of the mail of one who gets mail.
const fn mail(notify: &Notify) -> Option<&Mail> {
    match &notify.to {
        NotifyTo::Mail(mail) => Some(mail),
        NotifyTo::Webhook { .. } => None,
    }
}

/// The process itself.
pub(crate) const SERVER: &[KeyOf<Server>] = &[
    key("state", |_, server| server.state.as_deref().map(path)),
    key("cores", |_, server| {
        server.cores.map(|cores| cores.to_string())
    }),
    key("busy_poll_us", |_, server| {
        Some(server.busy_poll_us.to_string())
    }),
    key("coalescing", |_, server| {
        Some(quoted(server.coalescing.as_str()))
    }),
    key("log", |_, server| {
        server.log.map(|level| quoted(level.as_str()))
    }),
    key("discovery_auth", |model, server| {
        Some(user_names(model, &server.discovery_auth))
    }),
];

fn user_names(model: &Model, users: &[UserIndex]) -> String {
    list(users.iter().map(|user| quoted(user_name(model, *user))))
}

/// A path as a TOML string. One that is not UTF-8 cannot be said in TOML; it is shown as near as
/// may be.
pub(crate) fn path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

/// A number of bytes as a size.
pub(crate) fn size(bytes: u64) -> String {
    quoted(&size_text(bytes))
}

pub(crate) fn list(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

/// Whether a character is no sign of its own but changes how others are shown: control characters, line and paragraph
/// separators, and what turns the direction of writing. A name with one could pass for another, or break a line.
#[must_use]
pub fn is_invisible(character: char) -> bool {
    // Spec: Unicode, general category Cc, U+2028 and U+2029, property Bidi_Control.
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// A text as a basic string of TOML, always on one line.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            hidden if is_invisible(hidden) => {
                quoted.push_str(&format!("\\u{:04X}", u32::from(hidden)));
            }
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreSpec;

    #[test]
    fn what_hides_or_turns_other_characters_is_in_no_name() {
        for hidden in [
            "a\u{202e}b",
            "a\u{2028}b",
            "a\u{2066}b",
            "a\u{85}b",
            "a\u{1b}[31m",
        ] {
            assert!(
                crate::file::check_text("a name", 64, hidden).is_err(),
                "{hidden:?}"
            );
        }
        for plain in ["a b", "\u{e9}\u{301}", "\u{5e9}\u{5dc}", "\u{1f600}"] {
            assert!(
                crate::file::check_text("a name", 64, plain).is_ok(),
                "{plain:?}"
            );
        }
    }

    #[test]
    fn a_quoted_text_is_one_line_of_toml_and_reads_back() {
        for text in [
            "",
            "a",
            "a\"b\\c",
            "a\nb\u{7f}\u{85}\t\u{202e}",
            "\u{e9}\u{1f600}",
        ] {
            let line = format!("x = {}", quoted(text));
            assert_eq!(line.lines().count(), 1, "{line}");
            let table: toml::Table = line.parse().unwrap();
            assert_eq!(table["x"].as_str(), Some(text));
        }
    }

    #[test]
    fn a_full_store_reads_back_as_the_same_store() {
        for text in [
            "disk.img",
            "./mem:1",
            "file:a%3Fb%25?size=1M&serial=S",
            "/srv/a:b?cache=direct&readonly&thin=false&format=raw",
            "block:/dev/sdx?blocksize=4096",
            "mem:1G?thin",
            "null:512",
            "nbd://h/a%3Fb?retry=0&removable",
            "rbd:p/i?size=1M&takeover=wait",
            "nbds://[::1]:1?ca=/a%26b&connections=4&readonly",
            "nbd+unix:///a?thin=false&socket=/run/s",
            "stripe:a,b,c?chunk=16k&readonly",
            "concat:a?serial=S&removable",
        ] {
            let store = StoreSpec::parse(text).unwrap();
            let again = StoreSpec::parse(&full_store(&store)).unwrap();
            let expected = StoreSpec {
                text: again.text.clone(),
                serial: None,
                ..store
            };
            assert_eq!(again, expected, "{text}");
        }
    }
}
