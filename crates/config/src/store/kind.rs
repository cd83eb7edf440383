//! The table of store kinds. Whatever depends on the kind of a store asks a column of it: the reader and the schema,
//! the plan of a change, identities, the administration's views, the documentation, the import.
//!
//! A new kind is a row here and the store itself; a place of a new form is a variant of [`StorePlace`] besides.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use super::option::StoreOption;
use crate::keys::{SIZE, size_text};
use crate::{Rule, parse_size};

/// What a store keeps the data in.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum StoreKind {
    /// A path of which only opening it shows whether it is a file or a block device.
    Path,
    /// A regular file.
    File,
    /// A block device.
    Block,
    /// Memory, gone when the process ends.
    Memory,
    /// Nothing: writes are dropped, reads are zeros. For measuring.
    Null,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct KindRow {
    /// The kind.
    pub kind: StoreKind,
    /// The word before the colon; none for a path that stands alone.
    pub word: &'static str,
    /// How the part after the colon is read.
    place: PlaceForm,
    /// Where the place names the medium: two stores with one place in one space have one medium. `None` where each
    /// store has a medium of its own, which lives and ends with its unit.
    space: Option<&'static str>,
    /// What has to be at the path that the process opens, locks and watches; `None` where there is none.
    node: Option<Node>,
    /// What the administration calls the kind, and how it calls the same on a block device.
    pub shown: (&'static str, &'static str),
    /// Whether the data takes memory of the process.
    is_memory: bool,
    /// The options that such a store could only ignore, and why.
    without: &'static [(StoreOption, &'static str)],
    /// What people call it in a list to choose from.
    pub title: &'static str,
    /// What it is, for the documentation.
    pub meaning: &'static str,
}

const SIZED: &str = "the size follows the colon";
const NO_CACHE: &str = "there is nothing below it to cache";
const NO_IMAGE: &str = "there is no image to look at";
const OWN_SIZE: &str = "a device brings its own size";

/// All kinds, in the order of the documentation.
#[rustfmt::skip] // One kind a block, one column a line.
pub const KINDS: [KindRow; 5] = [
    KindRow {
        kind: StoreKind::Path, word: "", place: PlaceForm::Path,
        space: Some(""), node: Some(Node::FileOrDevice), shown: ("file", "block"), is_memory: false,
        without: &[],
        title: "File or block device",
        meaning: "a file or a block device, whichever is there",
    },
    KindRow {
        kind: StoreKind::File, word: "file", place: PlaceForm::Path,
        space: Some(""), node: Some(Node::File), shown: ("file", "file"), is_memory: false,
        without: &[],
        title: "File",
        meaning: "a regular file",
    },
    KindRow {
        kind: StoreKind::Block, word: "block", place: PlaceForm::Path,
        space: Some(""), node: Some(Node::Device), shown: ("block", "block"), is_memory: false,
        without: &[(StoreOption::Size, OWN_SIZE)],
        title: "Block device",
        meaning: "a block device",
    },
    KindRow {
        kind: StoreKind::Memory, word: "mem", place: PlaceForm::Size,
        space: None, node: None, shown: ("memory", "memory"), is_memory: true,
        without: &[(StoreOption::Size, SIZED), (StoreOption::Cache, NO_CACHE), (StoreOption::Format, NO_IMAGE)],
        title: "Memory",
        meaning: "memory, gone when Tarn ends",
    },
    KindRow {
        kind: StoreKind::Null, word: "null", place: PlaceForm::Size,
        space: None, node: None, shown: ("null", "null"), is_memory: false,
        without: &[(StoreOption::Size, SIZED), (StoreOption::Cache, NO_CACHE), (StoreOption::Format, NO_IMAGE)],
        title: "Nothing",
        meaning: "nothing: writes are dropped, reads are zeros; for measuring",
    },
];

impl StoreKind {
    /// Its row.
    pub fn row(self) -> &'static KindRow {
        let [first, ..] = &KINDS;
        KINDS.iter().find(|row| row.kind == self).unwrap_or(first)
    }

    /// What messages call it.
    pub(crate) fn name(self) -> &'static str {
        match self.row().word {
            "" => "path",
            word => word,
        }
    }
}

impl KindRow {
    /// How a store of the kind is written, as in `file:PATH`.
    pub fn usage(&self) -> String {
        match self.word {
            "" => self.place.word().to_owned(),
            word => format!("{word}:{}", self.place.word()),
        }
    }

    /// What stands after the colon, as the documentation writes it: `PATH` or `SIZE`.
    pub fn place_word(&self) -> &'static str {
        self.place.word()
    }

    /// Whether it takes an option.
    pub fn takes(&self, option: StoreOption) -> bool {
        self.check(option).is_ok()
    }

    /// Whether it takes an option, or else why not.
    pub(super) fn check(&self, option: StoreOption) -> Result<(), &'static str> {
        let refusal = self.without.iter().find(|refusal| refusal.0 == option);
        refusal.map_or(Ok(()), |refusal| Err(refusal.1))
    }

    /// How it is written before the options, as a regular expression of ECMA-262.
    pub(super) fn pattern(&self) -> String {
        match self.word {
            "" => format!("(?![A-Za-z0-9]+:){}", self.place.pattern()),
            word => format!("{word}:{}", self.place.pattern()),
        }
    }
}

/// What may be at a path that a store opens, locks and watches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Node {
    /// A regular file or a block device.
    FileOrDevice,
    /// A regular file.
    File,
    /// A block device.
    Device,
}

impl Node {
    /// Whether a regular file may be there.
    pub const fn takes_files(self) -> bool {
        matches!(self, Self::FileOrDevice | Self::File)
    }

    /// Whether a block device may be there.
    pub const fn takes_devices(self) -> bool {
        matches!(self, Self::FileOrDevice | Self::Device)
    }

    /// What has to be there, and what to write for something else.
    pub const fn wanted(self) -> &'static str {
        match self {
            Self::FileOrDevice => "a regular file or a block device",
            Self::File => "a regular file, or write block: for a block device",
            Self::Device => "a block device, or write file: for a regular file",
        }
    }
}

/// The medium of a store: what no two units may have at a time.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Medium<'a> {
    space: &'static str,
    name: &'a OsStr,
}

impl fmt::Display for Medium<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.space.is_empty() {
            write!(f, "{}:", self.space)?;
        }
        self.name.display().fmt(f)
    }
}

/// How the part after the colon is read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum PlaceForm {
    /// A path.
    Path,
    /// A size.
    Size,
}

/// What stands after the colon.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StorePlace {
    /// A path on this machine.
    Path(PathBuf),
    /// A size in bytes: the data has no place of its own.
    Size(u64),
}

impl PlaceForm {
    /// Reads it; `text` is the whole STORE, for messages.
    fn read(self, text: &str, place: &str) -> Result<StorePlace, Rule> {
        Ok(match self {
            Self::Path => StorePlace::Path(parse_path(text, place)?),
            Self::Size => StorePlace::Size(parse_size(place)?),
        })
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Path => "PATH",
            Self::Size => "SIZE",
        }
    }

    fn pattern(self) -> &'static str {
        match self {
            Self::Path => "[^?]+",
            // Without the anchors of the pattern that stands alone.
            Self::Size => SIZE.trim_start_matches('^').trim_end_matches('$'),
        }
    }
}

/// A kind of store with its place.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreAt {
    /// The kind.
    pub kind: StoreKind,
    /// What stands after the colon.
    pub place: StorePlace,
}

impl StoreAt {
    /// Reads the part before the question mark; `text` is the whole STORE, for messages.
    pub(super) fn parse(text: &str, place: &str) -> Result<Self, Rule> {
        let (word, rest) = match place.split_once(':') {
            // What has a slash before the colon, or no letters, is a path with a colon in it.
            Some((word, rest)) if is_kind_word(word) => (word, rest),
            Some(_) | None => ("", place),
        };
        let row = KINDS.iter().find(|row| row.word == word);
        let row = row.ok_or_else(|| Rule::StoreKindUnknown {
            kind: word.to_owned(),
            remedy: format!("file:{place}"),
        })?;
        Ok(Self {
            kind: row.kind,
            place: row.place.read(text, rest)?,
        })
    }

    /// A file or device at a path.
    pub fn path(path: impl Into<PathBuf>) -> Self {
        Self {
            kind: StoreKind::Path,
            place: StorePlace::Path(path.into()),
        }
    }

    /// Memory, or nothing at all, of a size in bytes.
    pub const fn sized(kind: StoreKind, size_bytes: u64) -> Self {
        Self {
            kind,
            place: StorePlace::Size(size_bytes),
        }
    }

    /// What the process has to open, lock and watch, and the path where it is.
    pub fn node(&self) -> Option<(&Path, Node)> {
        match &self.place {
            StorePlace::Path(path) => Some((path, self.kind.row().node?)),
            StorePlace::Size(_) => None,
        }
    }

    /// The medium, unless the store has one of its own that ends with its unit.
    pub fn medium(&self) -> Option<Medium<'_>> {
        let space = self.kind.row().space?;
        match &self.place {
            StorePlace::Path(path) => Some(Medium {
                space,
                name: path.as_os_str(),
            }),
            StorePlace::Size(_) => None,
        }
    }

    /// The memory of the process that the data takes when all of it is written, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.fixed_size_bytes()
            .filter(|_| self.kind.row().is_memory)
            .unwrap_or(0)
    }

    /// The size, if it is what stands after the colon.
    pub(crate) fn fixed_size_bytes(&self) -> Option<u64> {
        match self.place {
            StorePlace::Size(size_bytes) => Some(size_bytes),
            StorePlace::Path(_) => None,
        }
    }

    /// Makes a relative path one below `directory`.
    pub(super) fn below(&mut self, directory: &Path) {
        match &mut self.place {
            // `./a` is `a`, so that one file has one path.
            StorePlace::Path(path) => *path = directory.join(&path).components().collect(),
            StorePlace::Size(_) => {}
        }
    }

    /// The store without its size: what changes when it is another one.
    pub(crate) fn without_size(&self) -> String {
        match self.place {
            StorePlace::Path(_) => self.to_string(),
            StorePlace::Size(_) => self.kind.name().to_owned(),
        }
    }
}

/// As it is written in a STORE.
impl fmt::Display for StoreAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.kind.row().word;
        let place = match &self.place {
            StorePlace::Path(path) => escaped(path),
            StorePlace::Size(bytes) => size_text(*bytes),
        };
        let is_plain = word.is_empty();
        let reads_as_kind = place
            .split_once(':')
            .is_some_and(|(word, _)| is_kind_word(word));
        match (is_plain, reads_as_kind) {
            (true, true) => write!(f, "./{place}"),
            (true, false) => f.write_str(&place),
            (false, _) => write!(f, "{word}:{place}"),
        }
    }
}

/// How each kind is written, for messages.
pub(crate) fn usages() -> String {
    let usages: Vec<_> = KINDS.iter().map(KindRow::usage).collect();
    or_list(&usages)
}

/// The words of all kinds that have one, for messages.
pub(crate) fn words() -> String {
    let words = KINDS
        .iter()
        .map(|row| row.word)
        .filter(|word| !word.is_empty());
    or_list(&words.collect::<Vec<_>>())
}

/// `a, b or c`.
pub(super) fn or_list<T: AsRef<str>>(words: &[T]) -> String {
    joined(words, "or")
}

/// `a, b and c`.
pub(super) fn and_list<T: AsRef<str>>(words: &[T]) -> String {
    joined(words, "and")
}

fn joined<T: AsRef<str>>(words: &[T], joint: &str) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [before @ .., last] => format!("{} {joint} {last}", before.join(", ")),
    }
}

fn is_kind_word(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn parse_path(text: &str, path: &str) -> Result<PathBuf, Rule> {
    let text = text.to_owned();
    if path.is_empty() {
        return Err(Rule::StorePathMissing { text });
    }
    if path.contains('\0') {
        return Err(Rule::StorePathHasNul { text });
    }
    Ok(PathBuf::from(unescape(path)))
}

fn escaped(path: &Path) -> String {
    let text = path.display().to_string();
    text.replace('%', "%25").replace('?', "%3F")
}

/// Turns `%3F` and `%25` into the characters they stand for.
fn unescape(path: &str) -> String {
    let mut plain = String::with_capacity(path.len());
    let mut pieces = path.split('%');
    plain.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        if let Some(rest) = piece
            .strip_prefix("3F")
            .or_else(|| piece.strip_prefix("3f"))
        {
            plain.push('?');
            plain.push_str(rest);
        } else if let Some(rest) = piece.strip_prefix("25") {
            plain.push('%');
            plain.push_str(rest);
        } else {
            plain.push('%');
            plain.push_str(piece);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_one_row_and_a_word_of_its_own() {
        for row in &KINDS {
            assert_eq!(row.kind.row().word, row.word);
            let same = KINDS.iter().filter(|other| other.word == row.word);
            assert_eq!(same.count(), 1, "{:?}", row.word);
            assert!(
                row.word.is_empty() || is_kind_word(row.word),
                "{:?}",
                row.word
            );
        }
    }

    #[test]
    fn whatever_has_a_node_has_a_medium() {
        for row in &KINDS {
            assert!(row.node.is_none() || row.space.is_some(), "{:?}", row.word);
        }
    }

    #[test]
    fn kinds_of_path_share_media_and_memory_has_none() {
        let store = |text: &str| StoreAt::parse(text, text).unwrap();
        assert_eq!(store("a").medium(), store("file:a").medium());
        assert_eq!(store("a").medium(), store("block:a").medium());
        assert_ne!(store("a").medium(), store("b").medium());
        assert_eq!(store("mem:1M").medium(), None);
        assert_eq!(store("null:1M").medium(), None);
        assert_eq!(store("file:a%3Fb").medium().unwrap().to_string(), "a?b");
    }

    #[test]
    fn only_memory_takes_memory() {
        let bytes = |text: &str| StoreAt::parse(text, text).unwrap().memory_bytes();
        assert_eq!(
            [bytes("mem:1M"), bytes("null:1M"), bytes("a")],
            [1 << 20, 0, 0]
        );
    }
}
