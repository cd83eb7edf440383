//! The STORE grammar: where the data of a unit lives, in one word.
//!
//! `PATH | file:PATH | block:PATH | mem:SIZE | null:SIZE`, then options after the first `?`,
//! joined by `&`. In a path `%3F` stands for a question mark and `%25` for a percent sign;
//! a percent sign before anything else stands for itself.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::{Rule, Serial, parse_size};

/// Where the data of a unit lives and how it is to be treated.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreSpec {
    /// The STORE as the administrator wrote it, for messages.
    pub text: String,
    /// Kind and place of the data.
    pub kind: StoreKind,
    /// Size in bytes that a file is made with, or grown to; it is never shrunk.
    ///
    /// Always `None` for memory and null stores, whose size is in [`StoreKind`], and for
    /// block devices, which bring their own.
    pub size_bytes: Option<u64>,
    /// Size of a logical block.
    pub block_size: BlockSize,
    /// Nobody may write, whatever a target says.
    pub read_only: bool,
    /// When a write is on stable storage.
    pub cache: CacheMode,
    /// Whether unmapped blocks give their space back. `None` leaves it to the kind of store:
    /// files and memory are thin, a block device is if it can discard.
    pub thin: Option<bool>,
    /// Serial number, if the administrator wants a certain one.
    pub serial: Option<Serial>,
    /// The bytes are the disk, even if they begin like an image of another format.
    pub format_raw: bool,
}

/// Kind and place of the data.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StoreKind {
    /// A path of which only opening it tells whether it is a file or a block device.
    Auto {
        /// The path.
        path: PathBuf,
    },
    /// A regular file.
    File {
        /// The path.
        path: PathBuf,
    },
    /// A block device.
    Block {
        /// The path.
        path: PathBuf,
    },
    /// Memory, gone when the process ends.
    Memory {
        /// In bytes.
        size_bytes: u64,
    },
    /// Nothing: writes are dropped, reads are zeros. For measuring.
    Null {
        /// In bytes.
        size_bytes: u64,
    },
}

/// Size of a logical block in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum BlockSize {
    /// 512 bytes, which every initiator can boot from.
    #[default]
    B512,
    /// 4096 bytes.
    B4096,
}

impl BlockSize {
    /// In bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::B512 => 512,
            Self::B4096 => 4096,
        }
    }
}

/// When a write is on stable storage.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CacheMode {
    /// After SYNCHRONIZE CACHE or with FUA; until then the page cache has it.
    #[default]
    Writeback,
    /// Before the command is answered.
    Writethrough,
    /// The page cache is gone round (O_DIRECT).
    Direct,
}

impl CacheMode {
    /// The word of the option.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Writeback => "writeback",
            Self::Writethrough => "writethrough",
            Self::Direct => "direct",
        }
    }
}

impl StoreKind {
    /// The path, if the data has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Auto { path } | Self::File { path } | Self::Block { path } => Some(path),
            Self::Memory { .. } | Self::Null { .. } => None,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Auto { .. } => "path",
            Self::File { .. } => "file",
            Self::Block { .. } => "block",
            Self::Memory { .. } => "mem",
            Self::Null { .. } => "null",
        }
    }

    /// The size, if the kind of store has it in itself.
    pub(crate) fn fixed_size_bytes(&self) -> Option<u64> {
        match self {
            Self::Memory { size_bytes } | Self::Null { size_bytes } => Some(*size_bytes),
            Self::Auto { .. } | Self::File { .. } | Self::Block { .. } => None,
        }
    }
}

impl StoreSpec {
    /// Reads a STORE.
    ///
    /// # Errors
    ///
    /// Any rule of the grammar, of sizes and of serial numbers.
    pub fn parse(text: &str) -> Result<Self, Rule> {
        let (place, options) = match text.split_once('?') {
            Some((place, options)) => (place, Some(options)),
            None => (text, None),
        };
        let kind = parse_kind(text, place)?;
        let options = Options::parse(options)?;
        options.check_kind(&kind)?;
        let spec = Self {
            text: text.to_owned(),
            size_bytes: options.size_bytes,
            block_size: options.block_size.unwrap_or_default(),
            read_only: options.read_only.unwrap_or_default(),
            cache: options.cache.unwrap_or_default(),
            thin: options.thin,
            serial: options.serial,
            format_raw: options.format_raw.unwrap_or_default(),
            kind,
        };
        spec.check_whole_blocks()?;
        Ok(spec)
    }

    /// Makes a relative path one below `directory`.
    pub(crate) fn below(mut self, directory: &Path) -> Self {
        match &mut self.kind {
            StoreKind::Auto { path } | StoreKind::File { path } | StoreKind::Block { path } => {
                *path = directory.join(&path);
            }
            StoreKind::Memory { .. } | StoreKind::Null { .. } => {}
        }
        self
    }

    fn check_whole_blocks(&self) -> Result<(), Rule> {
        let block_size_bytes = u64::from(self.block_size.bytes());
        match self.size_bytes.or_else(|| self.kind.fixed_size_bytes()) {
            Some(size_bytes) if !size_bytes.is_multiple_of(block_size_bytes) => {
                Err(Rule::SizeNotWholeBlocks {
                    size_bytes,
                    block_size_bytes,
                    next_bytes: size_bytes.saturating_add(
                        block_size_bytes.saturating_sub(size_bytes % block_size_bytes),
                    ),
                })
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl fmt::Display for StoreSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The part before the question mark. `text` is the whole STORE, for messages.
fn parse_kind(text: &str, place: &str) -> Result<StoreKind, Rule> {
    let (prefix, rest) = match place.split_once(':') {
        // What has a slash before the colon, or no letters, is a path with a colon in it.
        Some((prefix, rest)) if is_kind_word(prefix) => (prefix, rest),
        Some(_) | None => ("", place),
    };
    Ok(match prefix {
        "" => StoreKind::Auto {
            path: parse_path(text, rest)?,
        },
        "file" => StoreKind::File {
            path: parse_path(text, rest)?,
        },
        "block" => StoreKind::Block {
            path: parse_path(text, rest)?,
        },
        "mem" => StoreKind::Memory {
            size_bytes: parse_size(rest)?,
        },
        "null" => StoreKind::Null {
            size_bytes: parse_size(rest)?,
        },
        kind => {
            return Err(Rule::StoreKindUnknown {
                kind: kind.to_owned(),
                remedy: format!("file:{place}"),
            });
        }
    })
}

pub(crate) fn is_kind_word(prefix: &str) -> bool {
    !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn parse_path(text: &str, path: &str) -> Result<PathBuf, Rule> {
    if path.is_empty() {
        return Err(Rule::StorePathMissing {
            text: text.to_owned(),
        });
    }
    if path.contains('\0') {
        return Err(Rule::StorePathHasNul {
            text: text.to_owned(),
        });
    }
    Ok(PathBuf::from(unescape(path)))
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

/// The options after the question mark, each as it was given.
#[derive(Debug, Default)]
struct Options {
    size_bytes: Option<u64>,
    block_size: Option<BlockSize>,
    read_only: Option<bool>,
    cache: Option<CacheMode>,
    thin: Option<bool>,
    serial: Option<Serial>,
    format_raw: Option<bool>,
}

impl Options {
    fn parse(text: Option<&str>) -> Result<Self, Rule> {
        let mut options = Self::default();
        for option in text.into_iter().flat_map(|text| text.split('&')) {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option, None),
            };
            options.take(name, value)?;
        }
        Ok(options)
    }

    fn take(&mut self, name: &str, value: Option<&str>) -> Result<(), Rule> {
        match name {
            "size" => once(
                &mut self.size_bytes,
                "size",
                parse_size(value.unwrap_or_default())?,
            ),
            "blocksize" => once(
                &mut self.block_size,
                "blocksize",
                word(
                    "blocksize",
                    value,
                    &[("512", BlockSize::B512), ("4096", BlockSize::B4096)],
                    "512 or 4096",
                )?,
            ),
            "readonly" => once(&mut self.read_only, "readonly", flag("readonly", value)?),
            "cache" => once(
                &mut self.cache,
                "cache",
                word(
                    "cache",
                    value,
                    &[
                        ("writeback", CacheMode::Writeback),
                        ("writethrough", CacheMode::Writethrough),
                        ("direct", CacheMode::Direct),
                    ],
                    "writeback, writethrough or direct",
                )?,
            ),
            "thin" => once(&mut self.thin, "thin", flag("thin", value)?),
            "serial" => once(
                &mut self.serial,
                "serial",
                Serial::parse(value.unwrap_or_default())?,
            ),
            "format" => once(
                &mut self.format_raw,
                "format",
                word("format", value, &[("raw", true)], "raw")?,
            ),
            unknown => Err(Rule::StoreOptionUnknown {
                option: unknown.to_owned(),
            }),
        }
    }

    /// Refuses options that this kind of store could only ignore.
    fn check_kind(&self, kind: &StoreKind) -> Result<(), Rule> {
        let refuse = |option, remedy| {
            Err(Rule::StoreOptionNotForKind {
                option,
                kind: kind.name(),
                remedy,
            })
        };
        match kind {
            StoreKind::Auto { .. } | StoreKind::File { .. } => Ok(()),
            StoreKind::Block { .. } if self.size_bytes.is_some() => {
                refuse("size", "a device brings its own size")
            }
            StoreKind::Block { .. } => Ok(()),
            StoreKind::Memory { .. } | StoreKind::Null { .. } => {
                if self.size_bytes.is_some() {
                    refuse("size", "the size stands after the colon")
                } else if self.cache.is_some() {
                    refuse("cache", "there is nothing below it to cache")
                } else if self.format_raw.is_some() {
                    refuse("format", "there is no image to look at")
                } else {
                    Ok(())
                }
            }
        }
    }
}

fn once<T>(slot: &mut Option<T>, option: &'static str, value: T) -> Result<(), Rule> {
    if slot.replace(value).is_some() {
        return Err(Rule::StoreOptionTwice { option });
    }
    Ok(())
}

fn flag(option: &'static str, value: Option<&str>) -> Result<bool, Rule> {
    // An option that is merely named is on.
    word(
        option,
        Some(value.unwrap_or("true")),
        &[("true", true), ("false", false)],
        "true or false",
    )
}

fn word<T: Copy>(
    option: &'static str,
    value: Option<&str>,
    words: &[(&str, T)],
    wanted: &'static str,
) -> Result<T, Rule> {
    let value = value.unwrap_or_default();
    words
        .iter()
        .find_map(|(word, meaning)| (*word == value).then_some(*meaning))
        .ok_or_else(|| Rule::StoreOptionValue {
            option,
            value: value.to_owned(),
            wanted,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auto(path: &str) -> StoreKind {
        StoreKind::Auto { path: path.into() }
    }

    fn file(path: &str) -> StoreKind {
        StoreKind::File { path: path.into() }
    }

    #[test]
    fn every_kind_of_store_is_read() {
        for (text, kind) in [
            ("disk.img", auto("disk.img")),
            ("/srv/disk.img", auto("/srv/disk.img")),
            ("/srv/a:b", auto("/srv/a:b")),
            ("./mem:1", auto("./mem:1")),
            ("file:disk.img", file("disk.img")),
            ("file:mem:1", file("mem:1")),
            ("file:a%3Fb", file("a?b")),
            ("file:a%3fb", file("a?b")),
            ("100%25", auto("100%")),
            ("a%253F", auto("a%3F")),
            ("50%", auto("50%")),
            ("a%20b", auto("a%20b")),
            (
                "block:/dev/sdx",
                StoreKind::Block {
                    path: "/dev/sdx".into(),
                },
            ),
            (
                "mem:256M",
                StoreKind::Memory {
                    size_bytes: 256 << 20,
                },
            ),
            (
                "null:1T",
                StoreKind::Null {
                    size_bytes: 1 << 40,
                },
            ),
        ] {
            assert_eq!(StoreSpec::parse(text).unwrap().kind, kind, "{text}");
        }
    }

    #[test]
    fn options_left_out_take_their_defaults() {
        let spec = StoreSpec::parse("disk.img").unwrap();
        assert_eq!(
            spec,
            StoreSpec {
                text: "disk.img".to_owned(),
                kind: auto("disk.img"),
                size_bytes: None,
                block_size: BlockSize::B512,
                read_only: false,
                cache: CacheMode::Writeback,
                thin: None,
                serial: None,
                format_raw: false,
            }
        );
    }

    #[test]
    fn every_option_is_read() {
        let spec = StoreSpec::parse(
            "disk.img?size=1M&blocksize=4096&readonly&cache=direct&thin=false&serial=A1&format=raw",
        )
        .unwrap();
        assert_eq!(spec.size_bytes, Some(1 << 20));
        assert_eq!(spec.block_size.bytes(), 4096);
        assert!(spec.read_only);
        assert_eq!(spec.cache, CacheMode::Direct);
        assert_eq!(spec.thin, Some(false));
        assert_eq!(spec.serial.unwrap().as_str(), "A1");
        assert!(spec.format_raw);
        let spec = StoreSpec::parse("disk.img?readonly=false&thin&cache=writethrough").unwrap();
        assert!(!spec.read_only);
        assert_eq!(spec.thin, Some(true));
        assert_eq!(spec.cache, CacheMode::Writethrough);
    }

    #[test]
    fn what_is_no_store_names_the_rule() {
        for (text, message) in [
            ("", "store \"\" names no path"),
            ("?size=1M", "store \"?size=1M\" names no path"),
            ("file:", "store \"file:\" names no path"),
            ("a\0b", "has a NUL character"),
            ("nbd:host", "store kind \"nbd\" is not known"),
            ("nbd:host", "\"file:nbd:host\""),
            ("mem:", "size \"\": no number"),
            ("mem:10X", "size \"10X\": unknown suffix \"X\""),
            (
                "mem:511",
                "size 511 is not a multiple of blocksize 512; the next that fits is 512",
            ),
            ("mem:513", "the next that fits is 1024"),
            (
                "mem:2560?blocksize=4096",
                "size 2560 is not a multiple of blocksize 4096; the next that fits is 4096",
            ),
            (
                "a?size=1000",
                "size 1000 is not a multiple of blocksize 512",
            ),
            ("a?", "store option \"\" is not known"),
            ("a?sice=1M", "store option \"sice\" is not known"),
            ("a?size=1M&size=1M", "store option \"size\" is given twice"),
            ("a?thin&thin=false", "store option \"thin\" is given twice"),
            (
                "a?blocksize=520",
                "store option blocksize=\"520\" is not known; use 512 or 4096",
            ),
            (
                "a?readonly=yes",
                "store option readonly=\"yes\" is not known; use true or false",
            ),
            ("a?cache=none", "use writeback, writethrough or direct"),
            (
                "a?format=qcow2",
                "store option format=\"qcow2\" is not known; use raw",
            ),
            ("a?serial=", "serial is empty"),
            ("block:/dev/sdx?size=1M", "a device brings its own size"),
            ("mem:1M?size=1M", "the size stands after the colon"),
            ("null:1M?cache=direct", "there is nothing below it to cache"),
            ("mem:1M?format=raw", "there is no image to look at"),
        ] {
            let got = StoreSpec::parse(text).unwrap_err().to_string();
            assert!(got.contains(message), "{text}: {got}");
        }
    }

    #[test]
    fn a_relative_path_is_taken_from_the_directory_and_an_absolute_one_is_not() {
        for (text, path) in [("a", "/etc/tarn/a"), ("/srv/a", "/srv/a")] {
            let spec = StoreSpec::parse(text)
                .unwrap()
                .below(Path::new("/etc/tarn"));
            assert_eq!(spec.kind.path(), Some(Path::new(path)));
        }
    }
}
