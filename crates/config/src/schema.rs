//! The JSON schema of the configuration file, for editors that complete and check while somebody
//! types. It is made of the table of keys, so it cannot know another key than the reader.
//!
//! Spec: JSON Schema, draft 2020-12.

use std::fmt::Write as _;

use crate::keys::{Fallback, Form, Key, SECTION_TOP, SIZE, SectionKeys, size_text};

/// The schema as JSON text.
pub fn schema() -> String {
    let mut members = vec![
        (
            "$schema",
            text("https://json-schema.org/draft/2020-12/schema"),
        ),
        ("title", text("Configuration of Tarn (tarn.toml)")),
    ];
    members.extend(section_members(&SECTION_TOP));
    let mut json = String::new();
    Json::Object(members).write(&mut json, 0);
    json.push('\n');
    json
}

/// As much of JSON as a schema needs. Members keep their order.
enum Json {
    /// A value that is JSON already.
    Plain(String),
    List(Vec<Self>),
    Object(Vec<(&'static str, Self)>),
}

impl Json {
    fn write(&self, out: &mut String, depth: usize) {
        let (open, close, count) = match self {
            Self::Plain(value) => {
                out.push_str(value);
                return;
            }
            Self::List(values) => ('[', ']', values.len()),
            Self::Object(members) => ('{', '}', members.len()),
        };
        out.push(open);
        for at in 0..count {
            out.push_str(if at == 0 { "\n" } else { ",\n" });
            out.push_str(&"  ".repeat(depth + 1));
            self.write_entry(at, out, depth + 1);
        }
        if count > 0 {
            out.push('\n');
            out.push_str(&"  ".repeat(depth));
        }
        out.push(close);
    }

    fn write_entry(&self, at: usize, out: &mut String, depth: usize) {
        let value = match self {
            Self::Plain(_) => None,
            Self::List(values) => values.get(at),
            Self::Object(members) => members.get(at).map(|(name, value)| {
                out.push_str(&quoted(name));
                out.push_str(": ");
                value
            }),
        };
        if let Some(value) = value {
            value.write(out, depth);
        }
    }
}

fn text(text: &str) -> Json {
    Json::Plain(quoted(text))
}

fn number(number: u64) -> Json {
    Json::Plain(number.to_string())
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut json = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => json.extend(['\\', character]),
            control if control < ' ' => {
                // Writing to a string cannot fail.
                write!(json, "\\u{:04x}", u32::from(control)).unwrap_or_default();
            }
            plain => json.push(plain),
        }
    }
    json.push('"');
    json
}

type Members = Vec<(&'static str, Json)>;

fn section_members(section: &SectionKeys) -> Members {
    let is_required = |key: &&Key| matches!(key.default, Fallback::Required);
    let required: Vec<_> = section.keys.iter().filter(is_required).collect();
    #[rustfmt::skip]
    let mut members = vec![
        ("description", text(section.meaning)),
        ("type", text("object")),
        ("properties", Json::Object(section.keys.iter().map(|key| (key.name, property(key))).collect())),
        ("additionalProperties", Json::Plain("false".to_owned())),
    ];
    if !required.is_empty() {
        let names = required.iter().map(|key| text(key.name)).collect();
        members.push(("required", Json::List(names)));
    }
    members
}

fn property(key: &Key) -> Json {
    let mut members = form_members(&key.form);
    members.retain(|(name, _)| *name != "description");
    members.insert(0, ("description", text(&described(key))));
    let default = match (key.default, key.form) {
        (Fallback::Required | Fallback::Words(_), _) => None,
        (Fallback::Value(value), _) => Some(Json::Plain(value.to_owned())),
        (Fallback::Number(bytes), Form::Bytes { .. }) => Some(text(&size_text(bytes))),
        (Fallback::Number(value), _) => Some(number(value)),
    };
    members.extend(default.map(|default| ("default", default)));
    Json::Object(members)
}

/// What the key does and takes, as an editor shows it.
fn described(key: &Key) -> String {
    format!("{} Takes: {}.", key.meaning, key.form)
}

fn form_members(form: &Form) -> Members {
    match form {
        Form::Text { pattern, .. } => text_members(pattern),
        Form::Store => text_members(&crate::store::pattern()),
        Form::Flag => vec![("type", text("boolean"))],
        Form::OneOf(words) => {
            vec![(
                "enum",
                Json::List(words.iter().map(|word| text(word)).collect()),
            )]
        }
        Form::List { entries, .. } => vec![("type", text("array")), ("items", any_of(entries))],
        Form::Table { keys, .. } => section_members(keys),
        Form::Number { min, max } => number_members(*min, *max),
        Form::Bytes { min, max } => {
            let forms = vec![
                Json::Object(number_members(*min, *max)),
                Json::Object(text_members(SIZE)),
            ];
            vec![("anyOf", Json::List(forms))]
        }
    }
}

fn any_of(forms: &[Form]) -> Json {
    match forms {
        [form] => Json::Object(form_members(form)),
        forms => {
            let forms = forms.iter().map(|form| Json::Object(form_members(form)));
            Json::Object(vec![("anyOf", Json::List(forms.collect()))])
        }
    }
}

fn text_members(pattern: &str) -> Members {
    vec![("type", text("string")), ("pattern", text(pattern))]
}

fn number_members(min: u64, max: u64) -> Members {
    vec![
        ("type", text("integer")),
        ("minimum", number(min)),
        ("maximum", number(max)),
    ]
}
