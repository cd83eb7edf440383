//! What things of a checked model say, key by key: what two models are compared by, and what the effective
//! configuration says.

use serde::Serialize;
use serde_json::{Map, Value as Json};

use crate::keys::{Form, Key, SECTION_LUN, SectionKeys};
use crate::specs::{Said, full_store, user_name};
use crate::value::{KeyOf, Keyed, key, list, path, quoted, size};
use crate::{Model, OPTIONS, OptionRow, StoreOption, Unit, specs};

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
        &specs::lun(thing, Said::Whole),
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

/// The process itself.
pub(crate) const SERVER: &[KeyOf<Model>] = &[
    key("state", |model| model.server.state.as_deref().map(path)),
    key("cores", |model| {
        model.server.cores.map(|cores| cores.to_string())
    }),
    key("busy_poll_us", |model| {
        Some(model.server.busy_poll_us.to_string())
    }),
    key("coalescing", |model| {
        Some(quoted(model.server.coalescing.as_str()))
    }),
    key("log", |model| {
        model.server.log.map(|level| quoted(level.as_str()))
    }),
    key("discovery_auth", |model| {
        let users = model.server.discovery_auth.iter();
        Some(list(users.map(|user| quoted(user_name(model, *user)))))
    }),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreSpec;

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
