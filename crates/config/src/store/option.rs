//! The table of options that a STORE may have after the question mark.

use super::kind::{and_list, or_list};
use super::{BlockSize, CacheMode, StoreSpec};
use crate::keys::{SIZE, size_text};
use crate::{Rule, Serial, parse_size};

/// An option of a STORE.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreOption {
    /// `size=`
    Size,
    /// `blocksize=`
    BlockSize,
    /// `readonly`
    ReadOnly,
    /// `cache=`
    Cache,
    /// `thin`
    Thin,
    /// `serial=`
    Serial,
    /// `format=`
    Format,
    /// `removable`
    Removable,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct OptionRow {
    /// The option.
    pub option: StoreOption,
    /// The word before the equals sign.
    pub word: &'static str,
    /// What it takes.
    takes: Takes,
    /// What holds when it is left out, for the documentation.
    pub fallback: &'static str,
    /// How it is written and what it does, for the help of the command line.
    pub help: (&'static str, &'static str),
    /// What it does, for the documentation.
    pub meaning: &'static str,
    /// Takes over a value, which is one of those that `takes` allows.
    set: fn(&mut StoreSpec, Value<'_>) -> Result<(), Rule>,
    /// The value of a store in its one form; `None` where there is none.
    get: fn(&StoreSpec) -> Option<String>,
}

/// What an option takes.
#[derive(Clone, Copy, Debug)]
enum Takes {
    Size,
    /// Nothing, `true` or `false`.
    Flag,
    /// One of these numbers.
    Number(&'static [&'static str]),
    /// One of these words.
    Word(&'static [&'static str]),
    Serial,
}

/// A value as it was read.
#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Bytes(u64),
    Flag(bool),
    Text(&'a str),
}

/// All options, in the order of the documentation.
#[rustfmt::skip] // One option a block.
pub const OPTIONS: [OptionRow; 8] = [
    OptionRow {
        option: StoreOption::Size, word: "size", takes: Takes::Size, fallback: "the file must exist",
        help: ("size=SIZE", "create a missing file of this size, grow a smaller one"),
        meaning: "Creates a missing file of this size and grows a smaller one; never shrinks a file.",
        set: |spec, value| { spec.size_bytes = value.bytes(); Ok(()) },
        get: |spec| spec.size_bytes.map(size_text),
    },
    OptionRow {
        option: StoreOption::BlockSize, word: "blocksize", takes: Takes::Number(&["512", "4096"]), fallback: "`512`",
        help: ("blocksize=N", "512 (default) or 4096"),
        meaning: "Size of a logical block. Sizes must be whole blocks.",
        set: |spec, value| {
            spec.block_size = if value.text() == "4096" { BlockSize::B4096 } else { BlockSize::B512 };
            Ok(())
        },
        get: |spec| Some(spec.block_size.bytes().to_string()),
    },
    OptionRow {
        option: StoreOption::ReadOnly, word: "readonly", takes: Takes::Flag, fallback: "`false`",
        help: ("readonly", "refuse writes"),
        meaning: "Refuses writes.",
        set: |spec, value| { spec.read_only = value.flag(); Ok(()) },
        get: |spec| Some(spec.read_only.to_string()),
    },
    OptionRow {
        option: StoreOption::Cache, word: "cache", takes: Takes::Word(&["writeback", "writethrough", "direct"]),
        fallback: "`writeback`",
        help: ("cache=MODE", "writeback (default), writethrough or direct"),
        meaning: "When a write is on stable storage: `writeback` after SYNCHRONIZE CACHE or with FUA; `writethrough` before \
                  it is answered; `direct` as with `writeback`, but past the page cache (O_DIRECT).",
        set: |spec, value| {
            let modes = [CacheMode::Writeback, CacheMode::Writethrough, CacheMode::Direct];
            let mode = modes.into_iter().find(|mode| mode.as_str() == value.text());
            spec.cache = mode.unwrap_or_default();
            Ok(())
        },
        get: |spec| Some(spec.cache.as_str().to_owned()),
    },
    OptionRow {
        option: StoreOption::Thin, word: "thin", takes: Takes::Flag,
        fallback: "file and memory: `true`; block device: if it can discard",
        help: ("thin=false", "do not release the space of unmapped blocks"),
        meaning: "Whether unmapped blocks release their space.",
        set: |spec, value| { spec.thin = Some(value.flag()); Ok(()) },
        get: |spec| spec.thin.map(|thin| thin.to_string()),
    },
    OptionRow {
        option: StoreOption::Serial, word: "serial", takes: Takes::Serial, fallback: "generated once and kept",
        help: ("serial=TEXT", "unit serial number, instead of a generated one"),
        meaning: "Unit serial number.",
        set: |spec, value| { spec.serial = Some(Serial::parse(value.text())?); Ok(()) },
        get: |spec| spec.serial.as_ref().map(|serial| serial.as_str().to_owned()),
    },
    OptionRow {
        option: StoreOption::Format, word: "format", takes: Takes::Word(&["raw"]),
        fallback: "an image of another format is refused",
        help: ("format=raw", "use the bytes as the disk, even if they look like an image"),
        meaning: "Uses the bytes of the file as the disk, even if they begin like a qcow2 or VMDK image.",
        set: |spec, _| { spec.format_raw = true; Ok(()) },
        get: |spec| spec.format_raw.then(|| "raw".to_owned()),
    },
    OptionRow {
        option: StoreOption::Removable, word: "removable", takes: Takes::Flag, fallback: "`false`",
        help: ("removable", "let initiators eject the medium and load it again"),
        meaning: "Removable medium (RMB): initiators can eject it, load it again and prevent that. The data stays.",
        set: |spec, value| { spec.removable = value.flag(); Ok(()) },
        get: |spec| Some(spec.removable.to_string()),
    },
];

impl Value<'_> {
    fn bytes(self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Flag(_) | Self::Text(_) => None,
        }
    }

    fn flag(self) -> bool {
        matches!(self, Self::Flag(true))
    }
}

impl<'a> Value<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::Text(text) => text,
            Self::Bytes(_) | Self::Flag(_) => "",
        }
    }
}

impl StoreOption {
    /// Its row.
    pub fn row(self) -> &'static OptionRow {
        let [first, ..] = &OPTIONS;
        OPTIONS
            .iter()
            .find(|row| row.option == self)
            .unwrap_or(first)
    }

    /// Its value for a store, if the kind of store takes it.
    pub fn value(self, spec: &StoreSpec) -> Option<String> {
        let value = (self.row().get)(spec);
        value.filter(|_| spec.takes(self))
    }

    /// The same as TOML.
    pub(crate) fn toml(self, spec: &StoreSpec) -> Option<String> {
        let value = self.value(spec)?;
        Some(match self.row().takes {
            Takes::Flag | Takes::Number(_) => value,
            Takes::Size | Takes::Word(_) | Takes::Serial => crate::value::quoted(&value),
        })
    }
}

impl OptionRow {
    /// How it is written in the documentation: with an equals sign, if it cannot stand alone.
    pub fn usage(&self) -> String {
        match self.takes {
            Takes::Flag => self.word.to_owned(),
            Takes::Size | Takes::Number(_) | Takes::Word(_) | Takes::Serial => {
                format!("{}=", self.word)
            }
        }
    }

    /// What it takes, in words.
    pub fn takes(&self) -> String {
        match self.takes {
            Takes::Size => "size".to_owned(),
            Takes::Flag => "nothing, `true` or `false`".to_owned(),
            Takes::Number(words) | Takes::Word(words) => {
                let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
                or_list(&words)
            }
            Takes::Serial => "1 to 64 printable ASCII characters".to_owned(),
        }
    }

    /// The option as a regular expression of ECMA-262.
    pub(super) fn pattern(&self) -> String {
        let word = self.word;
        match self.takes {
            Takes::Size => format!(
                "{word}={}",
                SIZE.trim_start_matches('^').trim_end_matches('$')
            ),
            Takes::Flag => format!("{word}(?:=(?:true|false))?"),
            Takes::Number([one]) | Takes::Word([one]) => format!("{word}={one}"),
            Takes::Number(words) | Takes::Word(words) => format!("{word}=(?:{})", words.join("|")),
            Takes::Serial => format!("{word}=[!-%'-~]{{1,64}}"),
        }
    }

    /// Reads the value and gives it to the store.
    fn read(&self, spec: &mut StoreSpec, value: Option<&str>) -> Result<(), Rule> {
        let text = value.unwrap_or_default();
        let one_of = |words: &[&str]| {
            let is_known = words.contains(&text);
            is_known
                .then_some(Value::Text(text))
                .ok_or_else(|| Rule::StoreOptionValue {
                    option: self.word,
                    value: text.to_owned(),
                    wanted: or_list(words),
                })
        };
        let value = match self.takes {
            Takes::Size => Value::Bytes(parse_size(text)?),
            // An option that is merely named is on.
            Takes::Flag if value.is_none() => Value::Flag(true),
            Takes::Flag => one_of(&["true", "false"]).map(|_| Value::Flag(text == "true"))?,
            Takes::Number(words) | Takes::Word(words) => one_of(words)?,
            Takes::Serial => Value::Text(text),
        };
        (self.set)(spec, value)
    }
}

/// The words of all options, for messages.
pub(crate) fn words() -> String {
    let words: Vec<_> = OPTIONS.iter().map(|row| row.word).collect();
    and_list(&words)
}

/// Reads the options after the question mark into a store of a known kind.
pub(super) fn read_all(spec: &mut StoreSpec, text: &str) -> Result<(), Rule> {
    let mut given: Vec<StoreOption> = Vec::new();
    for option in text.split('&') {
        let (word, value) = match option.split_once('=') {
            Some((word, value)) => (word, Some(value)),
            None => (option, None),
        };
        let row = OPTIONS.iter().find(|row| row.word == word);
        let row = row.ok_or_else(|| Rule::StoreOptionUnknown {
            option: word.to_owned(),
        })?;
        row.read(spec, value)?;
        if given.contains(&row.option) {
            return Err(Rule::StoreOptionTwice { option: row.word });
        }
        given.push(row.option);
    }
    // What this kind of store could only ignore is refused, in the order of the table.
    for row in OPTIONS.iter().filter(|row| given.contains(&row.option)) {
        spec.at
            .kind
            .row()
            .check(row.option)
            .map_err(|remedy| Rule::StoreOptionNotForKind {
                option: row.word,
                kind: spec.at.kind.name(),
                remedy,
            })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_has_one_row() {
        for row in &OPTIONS {
            assert_eq!(row.option.row().word, row.word);
        }
    }

    /// A value that `takes` allows and `set` drops would read back as the default.
    #[test]
    fn every_value_of_every_option_is_kept() {
        for row in &OPTIONS {
            let values: Vec<&str> = match row.takes {
                Takes::Size => vec!["1M"],
                Takes::Flag => vec!["true", "false"],
                Takes::Number(words) | Takes::Word(words) => words.to_vec(),
                Takes::Serial => vec!["A1"],
            };
            for value in values {
                let text = format!("a?{}={value}", row.word);
                let spec = StoreSpec::parse(&text).unwrap();
                assert_eq!(row.option.value(&spec).as_deref(), Some(value), "{text}");
            }
        }
    }
}
