//! The STORE grammar: where the data of a unit lives, in one word.
//!
//! A kind and a place, then options after the first `?`, joined by `&`. In a path and the name of an export `%3F`
//! stands for a question mark and `%25` for a percent sign, in an option that is a path `%26` for an ampersand; a
//! percent sign before anything else stands for itself.

mod device;
mod escape;
mod export;
mod image;
mod kind;
mod lun;
mod members;
mod option;
mod rule;
mod snapshot;
mod spec;

use std::fmt::Write as _;
use std::path::PathBuf;

pub use self::device::GroupDevice;
use self::escape::{IN_PATH, unescape};
pub use self::export::{Export, ServerAddress};
pub use self::image::Image;
pub use self::kind::{DeviceType, KINDS, KindRow, Node, StoreKind, StoreOption};
use self::kind::{PlaceForm, usages, words};
pub use self::lun::FarLun;
pub use self::option::{OPTIONS, OptionRow, with_changed_options, with_options};
pub use self::rule::StoreRule;
use self::spec::is_kind_word;
pub use self::spec::{
    BlockSize, CacheMode, Medium, Members, NamedStore, SnapshotOf, StoreAt, StorePlace, StoreSpec,
};
use crate::parse_size;

impl PlaceForm {
    /// Reads it; `text` is the whole STORE, for messages.
    fn read(self, text: &str, place: &str) -> Result<StorePlace, StoreRule> {
        Ok(match self {
            Self::Disc if place.is_empty() => StorePlace::Empty,
            Self::Path | Self::Disc | Self::Handler => StorePlace::Path(parse_path(text, place)?),
            Self::Size => StorePlace::Size(parse_size(place)?),
            Self::Server => StorePlace::Export(self.take(text, Export::of_server(place))?),
            Self::Socket => StorePlace::Export(self.take(text, Export::of_socket(place))?),
            Self::Image => StorePlace::Image(self.take(text, Image::parse(place))?),
            Self::Device => StorePlace::Device(self.take(text, GroupDevice::parse(place))?),
            Self::Lun => StorePlace::Lun(self.take(text, FarLun::parse(place))?),
            Self::Foreign => match place.strip_prefix("iscsi:") {
                Some(lun) => StorePlace::Lun(self.take(text, FarLun::parse(lun))?),
                None if place.starts_with("/dev/") => StorePlace::Path(parse_path(text, place)?),
                None => self.take(text, Err("does not say where its device is"))?,
            },
            Self::Snapshot => StorePlace::Snapshot(self.take(text, SnapshotOf::parse(place))?),
            Self::Members { count_min } => {
                StorePlace::Members(Members::parse(text, place, count_min)?)
            }
        })
    }

    fn take<T>(self, text: &str, read: Result<T, &'static str>) -> Result<T, StoreRule> {
        read.map_err(|problem| StoreRule::Server {
            text: text.to_owned(),
            problem,
            usage: self.usage(),
        })
    }
}

fn parse_path(text: &str, path: &str) -> Result<PathBuf, StoreRule> {
    let text = text.to_owned();
    if path.is_empty() {
        let usages = usages();
        return Err(StoreRule::PathMissing { text, usages });
    }
    if path.contains('\0') {
        return Err(StoreRule::PathHasNul { text });
    }
    Ok(PathBuf::from(unescape(path, IN_PATH)))
}

impl StoreAt {
    /// Reads the part before the question mark; `text` is the whole STORE, for messages.
    fn parse(text: &str, place: &str) -> Result<Self, StoreRule> {
        let (word, rest) = match place.split_once(':') {
            // What has a slash before the colon, or no letters, is a path with a colon in it.
            Some((word, rest)) if is_kind_word(word) => (word, rest),
            Some(_) | None => ("", place),
        };
        let row = KINDS.iter().find(|row| row.word == word);
        let row = row.ok_or_else(|| StoreRule::KindUnknown {
            kind: word.to_owned(),
            remedy: format!("file:{place}"),
            known: words(),
        })?;
        Ok(Self {
            kind: row.kind,
            place: row.place.read(text, rest)?,
        })
    }
}

impl StoreSpec {
    /// Reads a STORE.
    ///
    /// # Errors
    ///
    /// Any rule of the grammar, of sizes and of serial numbers.
    pub fn parse(text: &str) -> Result<Self, StoreRule> {
        let (place, options) = match text.split_once('?') {
            Some((place, options)) => (place, Some(options)),
            None => (text, None),
        };
        let mut spec = Self {
            text: text.to_owned(),
            ..Self::new(StoreAt::parse(text, place)?)
        };
        if let Some(options) = options {
            option::read_all(&mut spec, options)?;
        }
        spec.read_only |= spec
            .at
            .image()
            .is_some_and(|image| image.snapshot().is_some())
            || spec.snapshot().is_some();
        spec.check_socket()?;
        spec.check_carrier()?;
        spec.check_login()?;
        spec.check_whole_blocks()?;
        Ok(spec)
    }

    /// The store as one STORE with those options that `is_shown` lets through, which gets the value too.
    pub fn to_store(&self, is_shown: impl Fn(&OptionRow, &str) -> bool) -> String {
        let mut text = self.at.before_options();
        let mut joint = '?';
        for row in &OPTIONS {
            let value = row.option.value(self);
            if let Some(value) = value.filter(|value| is_shown(row, value)) {
                // Writing to a string cannot fail.
                write!(text, "{joint}{}={value}", row.word).unwrap_or_default();
                joint = '&';
            }
        }
        text
    }

    fn check_socket(&self) -> Result<(), StoreRule> {
        let server = self.at.export().map(Export::server);
        match server {
            Some(ServerAddress::Unix(socket)) if socket.as_os_str().is_empty() => {
                Err(StoreRule::Server {
                    text: self.text.clone(),
                    problem: "has no socket",
                    usage: self.at.kind.row().place_word(),
                })
            }
            Some(ServerAddress::Unix(_) | ServerAddress::Tcp(_)) | None => Ok(()),
        }
    }

    /// Nothing says by itself where servers of a group are.
    fn check_carrier(&self) -> Result<(), StoreRule> {
        let Some(device) = self.at.device() else {
            return Ok(());
        };
        let problem = match (device.udp(), device.interface()) {
            (Some(_), None) | (None, Some(_)) => return Ok(()),
            (None, None) => "does not say where servers are asked",
            (Some(_), Some(_)) => "says twice where servers are asked",
        };
        Err(StoreRule::Server {
            text: self.text.clone(),
            problem,
            usage: "//GROUP/DEVICE?udp=HOST[:PORT] or //GROUP/DEVICE?interface=NAME",
        })
    }

    /// A name without a secret is of no use.
    fn check_login(&self) -> Result<(), StoreRule> {
        let lun = self.at.target_lun();
        match lun.and_then(FarLun::incomplete) {
            None => Ok(()),
            Some(problem) => Err(StoreRule::Server {
                text: self.text.clone(),
                problem,
                usage: "//HOST[:PORT]/TARGET/LUN?user=NAME&password_file=PATH",
            }),
        }
    }

    fn check_whole_blocks(&self) -> Result<(), StoreRule> {
        let block_size_bytes = u64::from(self.block_size.bytes());
        match self.configured_size_bytes() {
            Some(size_bytes) if !size_bytes.is_multiple_of(block_size_bytes) => {
                Err(StoreRule::NotWholeBlocks {
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

/// A STORE as a regular expression of ECMA-262: it takes everything that the reader takes, and little more.
pub(crate) fn pattern() -> String {
    let kinds: Vec<_> = KINDS.iter().map(KindRow::pattern).collect();
    let options: Vec<_> = OPTIONS.iter().map(OptionRow::pattern).collect();
    let (kinds, options) = (kinds.join("|"), options.join("|"));
    format!(r"^(?:{kinds})(?:\?(?:(?:{options})(?:&(?!$)|$))+)?$")
}

/// Of the first column of the help.
const USAGE_WIDTH: usize = 15;

/// Kinds and options for the help of the command line, a line each.
pub fn store_help() -> (String, String) {
    let kinds = KINDS.iter().map(|row| (row.usage(), row.meaning));
    let options = OPTIONS
        .iter()
        .map(|row| (row.help.0.to_owned(), row.help.1));
    let line = |(usage, meaning): (String, &str)| match usage.len() {
        ..=USAGE_WIDTH => format!("  {usage:<USAGE_WIDTH$} {meaning}\n"),
        _ => format!("  {usage}\n  {:USAGE_WIDTH$} {meaning}\n", ""),
    };
    (kinds.map(line).collect(), options.map(line).collect())
}

/// Kinds and options in Markdown, as they stand in `docs/guide/stores.md`.
pub fn store_reference() -> String {
    let mut text = format!(
        "```\nSTORE = {}\n\noptions after '?', separated by '&'\n```\n\n",
        KINDS.map(|row| row.usage()).join("\n      | ")
    );
    text.push_str("| Store | What it is |\n|---|---|\n");
    for row in &KINDS {
        text.push_str(&format!("| `{}` | {} |\n", row.usage(), row.meaning));
    }
    text.push_str("\n| Option | Takes | If left out | What it does |\n|---|---|---|---|\n");
    for row in &OPTIONS {
        let (takers, others): (Vec<_>, Vec<_>) =
            // A path alone is a file or a block device.
            KINDS
                .iter()
                .filter(|kind| !kind.word.is_empty())
                .partition(|kind| kind.takes(row.option));
        let words = |kinds: &[&KindRow]| {
            let words = kinds.iter().map(|kind| format!("`{}`", kind.word));
            kind::or_list(&words.collect::<Vec<_>>())
        };
        let limits = match (takers.len(), others.len()) {
            (_, 0) => String::new(),
            (some, rest) if some <= rest => format!(" Only for {}.", words(&takers)),
            _ => format!(" Not for {}.", words(&others)),
        };
        let (usage, takes, fallback, meaning) =
            (row.usage(), row.takes(), row.fallback, row.meaning);
        text.push_str(&format!(
            "| `{usage}` | {takes} | {fallback} | {meaning}{limits} |\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn auto(path: &str) -> StoreAt {
        StoreAt::path(path)
    }

    fn at_path(kind: StoreKind, path: &str) -> StoreAt {
        StoreAt {
            kind,
            ..StoreAt::path(path)
        }
    }

    fn file(path: &str) -> StoreAt {
        at_path(StoreKind::File, path)
    }

    #[test]
    fn every_kind_of_store_is_read() {
        for (text, at) in [
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
            ("block:/dev/sdx", at_path(StoreKind::Block, "/dev/sdx")),
            ("mem:256M", StoreAt::sized(StoreKind::Memory, 256 << 20)),
            ("null:1T", StoreAt::sized(StoreKind::Null, 1 << 40)),
            ("./a+b:c", auto("./a+b:c")),
        ] {
            assert_eq!(StoreSpec::parse(text).unwrap().at, at, "{text}");
        }
    }

    #[test]
    fn options_left_out_take_their_defaults() {
        let spec = StoreSpec::parse("disk.img").unwrap();
        assert_eq!(
            spec,
            StoreSpec {
                text: "disk.img".to_owned(),
                at: auto("disk.img"),
                size_bytes: None,
                block_size: BlockSize::B512,
                read_only: false,
                cache: CacheMode::Writeback,
                thin: None,
                serial: None,
                format_raw: false,
                removable: false,
                ca: None,
                connections: None,
                retry_seconds: 20,
                waits_for_lock: false,
                chunk_bytes: 65_536,
            }
        );
    }

    #[test]
    fn every_option_is_read() {
        let spec = StoreSpec::parse(
            "disk.img?size=1M&blocksize=4096&readonly&cache=direct&thin=false&serial=A1&format=raw&removable",
        )
        .unwrap();
        assert_eq!(spec.size_bytes, Some(1 << 20));
        assert_eq!(spec.block_size.bytes(), 4096);
        assert!(spec.read_only);
        assert_eq!(spec.cache, CacheMode::Direct);
        assert_eq!(spec.thin, Some(false));
        assert_eq!(spec.serial.unwrap().as_str(), "A1");
        assert!(spec.format_raw);
        assert!(spec.removable);
        let spec = StoreSpec::parse("disk.img?readonly=false&thin&cache=writethrough").unwrap();
        assert!(!spec.read_only);
        assert_eq!(spec.thin, Some(true));
        assert_eq!(spec.cache, CacheMode::Writethrough);
    }

    #[test]
    fn every_form_of_an_export_is_read_and_written_again() {
        for (text, again, server, name) in [
            ("nbd://Host", "nbd://host:10809", "host:10809", ""),
            ("nbd://h:1/a%3Fb", "nbd://h:1/a%3Fb", "h:1", "a?b"),
            (
                "nbds://[::1]/x:y",
                "nbds://[::1]:10809/x:y",
                "[::1]:10809",
                "x:y",
            ),
            ("nbd+unix://?socket=s", "nbd+unix:///?socket=s", "s", ""),
            (
                "nbd+unix:///a?socket=/s%26%25",
                "nbd+unix:///a?socket=/s%26%25",
                "/s&%",
                "a",
            ),
        ] {
            let spec = StoreSpec::parse(text).unwrap();
            let export = spec.at.export().unwrap();
            let got = match export.server() {
                ServerAddress::Tcp(server) => server.to_string(),
                ServerAddress::Unix(socket) => socket.display().to_string(),
            };
            assert_eq!((got.as_str(), export.name()), (server, name), "{text}");
            assert_eq!(spec.at.to_string(), again, "{text}");
            assert_eq!(StoreSpec::parse(again).unwrap().at, spec.at, "{text}");
        }
    }

    #[test]
    fn every_option_of_a_server_is_read() {
        let spec = StoreSpec::parse("nbds://h?ca=c%26d&connections=16&retry=0&thin=false").unwrap();
        assert_eq!(spec.ca.as_deref(), Some(Path::new("c&d")));
        assert_eq!((spec.connections, spec.retry_seconds), (Some(16), 0));
        let spec = spec.below(Path::new("/etc/tarn"));
        assert_eq!(spec.ca.as_deref(), Some(Path::new("/etc/tarn/c&d")));
        let spec = StoreSpec::parse("nbd+unix:///?socket=s").unwrap();
        let spec = spec.below(Path::new("/run"));
        assert_eq!(spec.at.to_string(), "nbd+unix:///?socket=/run/s");
    }

    #[test]
    fn every_option_of_an_image_is_read() {
        let text = "rbd:p/i?conf=c%26d&user=u&keyring=/k&retry=9&takeover=wait&size=1M";
        let spec = StoreSpec::parse(text).unwrap();
        let image = spec.at.image().unwrap();
        assert_eq!(image.conf(), Some(Path::new("c&d")));
        assert_eq!(image.user.as_deref(), Some("u"));
        assert_eq!((spec.retry_seconds, spec.read_only), (9, false));
        assert_eq!(
            (spec.waits_for_lock, spec.size_bytes),
            (true, Some(1 << 20))
        );
        let spec = spec.below(Path::new("/etc/tarn"));
        let again = "rbd:p/i?conf=/etc/tarn/c%26d&user=u&keyring=/k";
        assert_eq!(spec.at.to_string(), again);
        assert_eq!(StoreSpec::parse(again).unwrap().at, spec.at);
        assert_eq!(
            spec.at.medium().unwrap().to_string(),
            "rbd:p/i?conf=/etc/tarn/c%26d"
        );
        assert!(StoreSpec::parse("rbd:p/i@s").unwrap().read_only);
        assert_eq!(
            StoreSpec::parse("rbd:p/i").unwrap().at.to_string(),
            "rbd:p/i"
        );
    }

    #[test]
    fn devices_of_groups_are_read_and_have_one_form() {
        let text =
            "hyperscsi://a%2Fb/d?server=s%26t&udp=H&password_file=p&user=u&level=hash&retry=0";
        let spec = StoreSpec::parse(text).unwrap();
        let device = spec.at.device().unwrap();
        assert_eq!((device.group(), device.device()), ("a/b", "d"));
        assert_eq!(
            (device.server(), device.user.as_deref()),
            (Some("s&t"), Some("u"))
        );
        assert_eq!(device.udp().unwrap().to_string(), "h:5674");
        assert_eq!(device.level.as_deref(), Some("hash"));
        let medium = "hyperscsi://a%2Fb/d?server=s%26t&udp=h:5674";
        assert_eq!(spec.at.medium().unwrap().to_string(), medium);
        let spec = spec.below(Path::new("/etc"));
        let shown = format!("{medium}&password_file=/etc/p&user=u");
        assert_eq!(spec.at.to_string(), shown);
        let again = StoreSpec::parse(&spec.to_store(|_, _| true)).unwrap();
        assert_eq!((again.at, again.retry_seconds), (spec.at, 0));
    }

    #[test]
    fn a_device_is_reached_by_an_interface_too() {
        let spec = StoreSpec::parse("hyperscsi://g/d?interface=e%26h0").unwrap();
        let device = spec.at.device().unwrap();
        assert_eq!((device.interface(), device.udp()), (Some("e&h0"), None));
        let medium = spec.at.medium().unwrap().to_string();
        assert_eq!(medium, "hyperscsi://g/d?interface=e%26h0");
        assert_eq!(StoreSpec::parse(&medium).unwrap().at, spec.at);
    }

    #[test]
    fn what_is_no_device_of_a_group_names_the_rule() {
        #[rustfmt::skip]
        let cases = [
            ("hyperscsi:g/d?udp=h", "has no // before its group; write //GROUP/DEVICE after the colon"),
            ("hyperscsi://g?udp=h", "names no device"),
            ("hyperscsi://g/?udp=h", "has a name that is empty"),
            ("hyperscsi://g/d", "does not say where servers are asked; write //GROUP/DEVICE?udp=HOST[:PORT] or "),
            ("hyperscsi://g/d?interface=a:b", "store option interface has the wrong value \"a:b\"; use the name of an interface, see `ip link`"),
            ("hyperscsi://g/d?udp=h&interface=e", "says twice where servers are asked; write //GROUP/DEVICE?udp="),
            ("hyperscsi://g/d?udp=h:0", "store option udp has the wrong value \"h:0\"; use HOST or HOST:PORT, with a port from 1 to 65535 (IPv6 in brackets)"),
            ("hyperscsi://g/d?udp=h&server=", "use a name of 1 to 64 bytes"),
            ("hyperscsi://g/d?udp=h&level=all", "use none, crc, hash or encrypt"),
            ("hyperscsi://g/d?udp=h&size=1M", "the device brings its own size"),
            ("nbd://h?level=crc", "there is no HyperSCSI group"),
        ];
        for (text, part) in cases {
            let message = StoreSpec::parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text:?}: {message}");
        }
    }

    #[test]
    fn what_is_no_store_names_the_rule() {
        #[rustfmt::skip]
        let cases = [
            ("", "store \"\" names no path"),
            ("?size=1M", "store \"?size=1M\" names no path"),
            ("file:", "store \"file:\" names no path"),
            ("a\0b", "has a NUL character"),
            ("zfs:host", "store kind \"zfs\" is not known"),
            ("zfs:host", "\"file:zfs:host\""),
            ("rbd:lun0", "names no pool, or no image; write POOL[/NAMESPACE]/IMAGE[@SNAP] after the colon"),
            ("rbd:p/i@s?size=1M", "a snapshot keeps the size that it has"),
            ("rbd:p/i?takeover=take", "use refuse or wait"),
            ("rbd:p/i?cache=direct", "the cache of librbd is always off"),
            ("rbd:p/i?connections=2", "there is no server"),
            ("rbd:p/i?user=client.a", "use a name, without client."),
            ("rbd:p/i?user=", "use a name, without client."),
            ("rbd:p/i@s?readonly=false", "use true, as a snapshot is only read"),
            ("nbd://h?conf=a", "there is no Ceph cluster"),
            ("a?keyring=a", "there is no Ceph cluster"),
            ("a+b:c", "store kind \"a+b\" is not known"),
            ("mem:", "size \"\": no number"),
            ("mem:10X", "size \"10X\": unknown suffix \"X\""),
            ("mem:511", "size 511 is not a multiple of blocksize 512; the next that fits is 512"),
            ("mem:513", "the next that fits is 1024"),
            ("mem:2560?blocksize=4096", "size 2560 is not a multiple of blocksize 4096; the next that fits is 4096"),
            ("a?size=1000", "size 1000 is not a multiple of blocksize 512"),
            ("a?", "store option \"\" is not known"),
            ("a?sice=1M", "store option \"sice\" is not known"),
            ("a?size=1M&size=1M", "store option \"size\" is given twice"),
            ("a?thin&thin=false", "store option \"thin\" is given twice"),
            ("a?blocksize=520", "store option blocksize has the wrong value \"520\"; use 512 or 4096"),
            ("a?readonly=yes", "store option readonly has the wrong value \"yes\"; use true or false"),
            ("a?cache=none", "use writeback, writethrough or direct"),
            ("a?format=qcow2", "store option format has the wrong value \"qcow2\"; use raw"),
            ("a?serial=", "serial is empty"),
            ("block:/dev/sdx?size=1M", "a device brings its own size"),
            ("mem:1M?size=1M", "the size follows the colon"),
            ("null:1M?cache=direct", "there is nothing below it to cache"),
            ("mem:1M?format=raw", "there is no image to look at"),
            ("nbd:h", "store \"nbd:h\" has no // before its server; write //HOST[:PORT][/EXPORT] after the colon"),
            ("nbd://?retry=1", "names no server"),
            ("nbd+unix:///a", "has no socket; write ///[EXPORT]?socket=PATH after the colon"),
            ("nbd+unix:///a?socket=", "store option socket has the wrong value \"\"; use a path"),
            ("nbd://h?size=1M", "store option \"size\" is not for nbd stores; an export brings its own size"),
            ("nbds://h?cache=direct", "the server has the cache"),
            ("nbd://h?format=raw", "the server gives the bytes of the disk"),
            ("nbd://h?ca=a", "write nbds:"),
            ("nbds://h?socket=a", "write nbd+unix: for a socket"),
            ("a?retry=1", "store option \"retry\" is not for path stores; there is no server"),
            ("mem:1M?connections=1", "there is no server"),
            ("nbd://h?connections=0", "store option connections has the wrong value \"0\"; use a number from 1 to 16"),
            ("nbd://h?connections=17", "use a number from 1 to 16"),
            ("nbd://h?retry=3601", "use a number from 0 to 3600"),
            ("nbd://h?retry=+1", "use a number from 0 to 3600"),
            ("nbd://h?retry=00001", "use a number from 0 to 3600"),
            ("nbd://h?retry", "use a number from 0 to 3600"),
        ];
        for (text, message) in cases {
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
            assert_eq!(spec.at.node(), Some((Path::new(path), Node::FileOrDevice)));
        }
    }

    #[test]
    fn kinds_of_path_share_media_and_memory_has_none() {
        let store = |text: &str| StoreAt::parse(text, text).unwrap();
        assert_eq!(store("a").medium(), store("file:a").medium());
        assert_eq!(store("a").medium(), store("block:a").medium());
        assert_ne!(store("a").medium(), store("b").medium());
        assert_eq!(store("nbd://h").medium(), store("nbds://H:10809/").medium());
        assert_ne!(store("nbd://h/a").medium(), store("nbd://h/b").medium());
        assert_ne!(store("nbd://h").medium(), store("nbd+unix:///").medium());
        let export = store("nbds://h/a");
        assert_eq!(export.medium().unwrap().to_string(), "nbd://h:10809/a");
        let image = store("rbd:p/n/i@s");
        assert_eq!(image.medium().unwrap().to_string(), "rbd:p/n/i@s");
        let device = store("hyperscsi://g/d");
        assert_eq!(device.medium().unwrap().to_string(), "hyperscsi://g/d");
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
