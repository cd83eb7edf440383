//! Reads a TOML tree with the place of everything at hand. Knows the form, not the meaning.
//!
//! A [`Section`] refuses unknown keys when it is opened, before anything in it is looked at; a
//! [`Field`] gives its value as the type asked for, or the error that names its line.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{At as _, Broken as _, nearest_hint};
use crate::keys::SectionKeys;
use crate::{ConfigError, Place, Rule, parse_size};

/// The text of a configuration file and its name, from which places are made.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    file: &'a str,
    text: &'a str,
    /// Where each line but the first begins, so that a place costs no walk through the text.
    line_starts: Vec<usize>,
    /// Paths of keys, entries and sections that are read as if they were not there.
    masked: BTreeSet<String>,
    /// By the name of the key: what is read in the place of a key that is masked and must be there.
    stand_ins: Option<&'a DeTable<'a>>,
    /// What places are called, where the text is not the administrator's.
    naming: Option<Naming<'a>>,
}

/// From the path of a key to the place that its value was made from.
#[derive(Clone, Copy)]
struct Naming<'a>(&'a dyn Fn(&str) -> Place);

impl fmt::Debug for Naming<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Naming")
    }
}

impl<'a> Source<'a> {
    pub(crate) fn new(file: &'a str, text: &'a str) -> Self {
        let line_starts = text.match_indices('\n').map(|(at, _)| at + 1).collect();
        Self {
            file,
            text,
            line_starts,
            masked: BTreeSet::new(),
            stand_ins: None,
            naming: None,
        }
    }

    /// A text that a program has made, with the places that the values of its keys were made from.
    pub(crate) fn made(text: &'a str, place: &'a dyn Fn(&str) -> Place) -> Self {
        Self {
            naming: Some(Naming(place)),
            ..Self::new("", text)
        }
    }

    /// The same, with values for keys that are masked.
    pub(crate) fn with_stand_ins(self, stand_ins: &'a DeTable<'a>) -> Self {
        Self {
            stand_ins: Some(stand_ins),
            ..self
        }
    }

    /// Has a path read as if it were not there. False if it is so already.
    pub(crate) fn mask(&mut self, path: String) -> bool {
        self.masked.insert(path)
    }

    pub(crate) fn is_masked(&self, path: &str) -> bool {
        self.masked.contains(path)
    }

    /// Whether something below a path is read as if it were not there.
    pub(crate) fn is_masked_below(&self, path: &str) -> bool {
        ["[", "."].iter().any(|next| {
            let below = format!("{path}{next}");
            let mut from = self.masked.range(below.clone()..);
            from.next().is_some_and(|masked| masked.starts_with(&below))
        })
    }

    /// Parses the text; the tree borrows from it.
    pub(crate) fn parse(&self) -> Result<Spanned<DeTable<'a>>, ConfigError> {
        DeTable::parse(self.text).map_err(|error| self.syntax(error.message(), error.span()))
    }

    /// The error that the text is not TOML, in the parser's words.
    pub(crate) fn syntax(&self, message: &str, span: Option<Range<usize>>) -> ConfigError {
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        Rule::Syntax { message }.at(self.place(span.unwrap_or_default(), String::new()))
    }

    fn place(&self, span: Range<usize>, key: String) -> Place {
        if let Some(Naming(place)) = self.naming {
            return place(&key);
        }
        let lines_before = self
            .line_starts
            .partition_point(|&start| start <= span.start);
        Place::File {
            file: self.file.to_owned(),
            line: 1 + lines_before,
            key,
        }
    }
}

/// The path of a key in a section.
pub(crate) fn joined(section: &str, key: &str) -> String {
    match section {
        "" => key.to_owned(),
        section => format!("{section}.{key}"),
    }
}

/// A table of the file whose keys are all known.
#[derive(Clone, Debug)]
pub(crate) struct Section<'a> {
    source: &'a Source<'a>,
    table: &'a DeTable<'a>,
    span: Range<usize>,
    path: String,
    known: SectionKeys,
}

impl<'a> Section<'a> {
    /// The file as a whole.
    pub(crate) fn top(
        source: &'a Source<'a>,
        root: &'a Spanned<DeTable<'a>>,
        known: SectionKeys,
    ) -> Result<Self, ConfigError> {
        // The span of the whole document would blame its first line, which is as good as any.
        Self::open(source, root.get_ref(), 0..0, String::new(), known)
    }

    fn open(
        source: &'a Source<'a>,
        table: &'a DeTable<'a>,
        span: Range<usize>,
        path: String,
        known: SectionKeys,
    ) -> Result<Self, ConfigError> {
        let unknown = table
            .keys()
            .filter(|name| {
                known
                    .keys
                    .iter()
                    .all(|key| key.name != name.get_ref().as_ref())
            })
            .filter(|name| !source.is_masked(&joined(&path, name.get_ref())))
            .min_by_key(|name| name.span().start);
        if let Some(name) = unknown {
            let names = || known.keys.iter().map(|key| key.name);
            let key = name.get_ref().to_string();
            let hint = nearest_hint(&key, names(), || {
                format!("known here: {}", names().collect::<Vec<_>>().join(", "))
            });
            return Err(Rule::UnknownKey { key, hint }.at(source.place(name.span(), path)));
        }
        Ok(Self {
            source,
            table,
            span,
            path,
            known,
        })
    }

    /// The value of a key, if the file has it.
    pub(crate) fn field(&self, name: &'static str) -> Option<Field<'a>> {
        debug_assert!(
            self.known.keys.iter().any(|key| key.name == name),
            "{name} is read and not listed in {}",
            self.known.heading
        );
        let path = joined(&self.path, name);
        let table = match self.source.is_masked(&path) {
            true => self.source.stand_ins?,
            false => self.table,
        };
        let mut keys = table.iter();
        let (_, value) = keys.find(|(key, _)| key.get_ref().as_ref() == name)?;
        Some(Field {
            source: self.source,
            value,
            path,
        })
    }

    /// The value of a key that must be there.
    pub(crate) fn required(&self, name: &'static str) -> Result<Field<'a>, ConfigError> {
        self.field(name).ok_or_else(|| {
            Rule::MissingKey {
                key: name,
                section: self.known.heading,
            }
            .at(self.place())
        })
    }

    /// The entries of an array key; none if the file does not have it.
    pub(crate) fn entries(&self, name: &'static str) -> Result<Vec<Field<'a>>, ConfigError> {
        self.field(name)
            .map_or_else(|| Ok(Vec::new()), |field| field.entries())
    }

    /// A section below this one.
    pub(crate) fn section(
        &self,
        name: &'static str,
        known: SectionKeys,
    ) -> Result<Option<Self>, ConfigError> {
        self.field(name)
            .map(|field| field.section(known))
            .transpose()
    }

    pub(crate) fn place(&self) -> Place {
        self.source.place(self.span.clone(), self.path.clone())
    }
}

/// A value of the file.
#[derive(Clone, Debug)]
pub(crate) struct Field<'a> {
    source: &'a Source<'a>,
    value: &'a Spanned<DeValue<'a>>,
    path: String,
}

impl<'a> Field<'a> {
    pub(crate) fn place(&self) -> Place {
        self.source.place(self.value.span(), self.path.clone())
    }

    pub(crate) fn text(&self) -> Result<&'a str, ConfigError> {
        self.value
            .get_ref()
            .as_str()
            .ok_or_else(|| self.wrong_type("a string"))
    }

    /// The text, if it is one, without an error if it is not.
    pub(crate) fn text_or_none(&self) -> Option<&'a str> {
        self.value.get_ref().as_str()
    }

    pub(crate) fn flag(&self) -> Result<bool, ConfigError> {
        self.value
            .get_ref()
            .as_bool()
            .ok_or_else(|| self.wrong_type("true or false"))
    }

    /// A number from `min` to `max`.
    pub(crate) fn number(&self, min: u64, max: u64) -> Result<u64, ConfigError> {
        let integer = self
            .value
            .get_ref()
            .as_integer()
            .ok_or_else(|| self.wrong_type("a whole number"))?;
        let out_of_range = || Rule::OutOfRange {
            got: integer.to_string(),
            min,
            max,
        };
        u64::from_str_radix(integer.as_str(), integer.radix())
            .ok()
            .filter(|number| (min..=max).contains(number))
            .ok_or_else(out_of_range)
            .at(|| self.place())
    }

    /// A number of bytes from `min` to `max`, as a number or as a size.
    pub(crate) fn bytes(&self, min: u64, max: u64) -> Result<u64, ConfigError> {
        let Some(text) = self.text_or_none() else {
            return self.number(min, max);
        };
        let bytes = parse_size(text).at(|| self.place())?;
        if !(min..=max).contains(&bytes) {
            let got = text.to_owned();
            return Err(Rule::OutOfRange { got, min, max }.at(self.place()));
        }
        Ok(bytes)
    }

    pub(crate) fn entries(&self) -> Result<Vec<Self>, ConfigError> {
        let array = self
            .value
            .get_ref()
            .as_array()
            .ok_or_else(|| self.no_list())?;
        Ok(array
            .iter()
            .enumerate()
            .map(|(index, value)| Self {
                source: self.source,
                value,
                path: format!("{}[{index}]", self.path),
            })
            .filter(|entry| !self.source.is_masked(&entry.path))
            .collect())
    }

    pub(crate) fn section(&self, known: SectionKeys) -> Result<Section<'a>, ConfigError> {
        let table = self
            .value
            .get_ref()
            .as_table()
            .ok_or_else(|| self.no_table(&known))?;
        Section::open(
            self.source,
            table,
            self.value.span(),
            self.path.clone(),
            known,
        )
    }

    fn no_list(&self) -> ConfigError {
        let is_section = !self.path.contains('.') || self.path.starts_with("hyperscsi.");
        if is_section && self.value.get_ref().as_table().is_some() {
            // Without the numbers of entries.
            let words = self.path.split('.');
            let words = words.filter_map(|word| word.split('[').next());
            let list = words.collect::<Vec<_>>().join(".");
            return Rule::OneOfList { list }.at(self.place());
        }
        self.wrong_type("a list")
    }

    fn no_table(&self, known: &SectionKeys) -> ConfigError {
        let position = self.path.rsplit_once('[');
        let position = position.and_then(|(_, rest)| rest.strip_suffix(']'));
        let written = format!("{:?}", self.text_or_none().unwrap_or("NAME"));
        let example = known.example.replace("%n", position.unwrap_or("0"));
        let example = example.replace("%s", &written);
        let got = self.got();
        Rule::NoTable { got, example }.at(self.place())
    }

    fn wrong_type(&self, wanted: &'static str) -> ConfigError {
        let got = self.got();
        Rule::WrongType { wanted, got }.at(self.place())
    }

    /// What is there, with its value if that is short.
    fn got(&self) -> String {
        match self.value.get_ref() {
            DeValue::String(text) => format!("the string {text:?}"),
            DeValue::Integer(number) => format!("the number {number}"),
            DeValue::Float(number) => format!("the number {}", number.as_str()),
            DeValue::Boolean(flag) => flag.to_string(),
            DeValue::Datetime(date) => format!("the date {date}"),
            DeValue::Array(_) => "a list".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        }
    }
}
