//! The table of options that a STORE may have after the question mark.

use std::path::Path;

use super::export::{option_of_path, path_of_option};
use super::image::Image;
use super::kind::{Family, KindRow, SIZE_OF_SNAPSHOT, StoreOption, and_list, or_list};
use super::rule::StoreRule;
use super::spec::{BlockSize, CacheMode, StorePlace, StoreSpec};
use crate::keys::{SIZE, size_text};
use crate::value::quoted;
use crate::{Serial, parse_size};

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct OptionRow {
    /// The option.
    pub option: StoreOption,
    /// The word before the equals sign.
    pub word: &'static str,
    /// What it takes.
    takes: Takes,
    /// The kinds that it is for; none: all, but those that say why not.
    of: &'static [Family],
    /// What holds when it is left out, for the documentation.
    pub fallback: &'static str,
    /// How it is written and what it does, for the help of the command line.
    pub help: (&'static str, &'static str),
    /// What it does, for the documentation.
    pub meaning: &'static str,
    /// Takes over a value, which is one of those that `takes` allows.
    set: fn(&mut StoreSpec, Value<'_>) -> Result<(), StoreRule>,
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
    /// The name of a user of Ceph.
    User,
    /// A power of two in this range, as a size.
    Power {
        min: u64,
        max: u64,
    },
    /// A number in this range.
    Count {
        min: u32,
        max: u32,
    },
    Path,
    /// A name that people give.
    Name,
    /// A host with a port.
    Address,
    /// The name of a network interface.
    Interface,
    /// The name of an iSCSI initiator.
    Iqn,
}

/// A value as it was read.
#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Bytes(u64),
    Flag(bool),
    Count(u32),
    Text(&'a str),
}

/// All options, in the order of the documentation.
#[rustfmt::skip] // One option a block.
pub const OPTIONS: [OptionRow; 25] = [
    OptionRow {
        option: StoreOption::Size, word: "size", takes: Takes::Size, of: &[], fallback: "the file or image must exist",
        help: ("size=SIZE", "create a missing file or image of this size, grow a smaller one"),
        meaning: "Creates a missing file or image of this size and grows a smaller one; a larger one stays as it is.",
        set: |spec, value| { spec.size_bytes = value.bytes(); Ok(()) },
        get: |spec| spec.size_bytes.map(size_text),
    },
    OptionRow {
        option: StoreOption::BlockSize, word: "blocksize", takes: Takes::Number(&["512", "4096"]), of: &[], fallback: "`512`",
        help: ("blocksize=N", "512 (default) or 4096"),
        meaning: "Size of a logical block. Sizes must be whole blocks.",
        set: |spec, value| {
            spec.block_size = if value.text() == "4096" { BlockSize::B4096 } else { BlockSize::B512 };
            Ok(())
        },
        get: |spec| Some(spec.block_size.bytes().to_string()),
    },
    OptionRow {
        option: StoreOption::ReadOnly, word: "readonly", takes: Takes::Flag, of: &[], fallback: "`false`",
        help: ("readonly", "refuse writes"),
        meaning: "Refuses writes.",
        set: |spec, value| { spec.read_only = value.flag(); Ok(()) },
        get: |spec| Some(spec.read_only.to_string()),
    },
    OptionRow {
        option: StoreOption::Cache, word: "cache", takes: Takes::Word(&["writeback", "writethrough", "direct"]), of: &[],
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
        option: StoreOption::Thin, word: "thin", takes: Takes::Flag, of: &[],
        fallback: "file and memory: `true`; block device: if it can discard; export: if its server can; image: `true`",
        help: ("thin=false", "keep the space of unmapped blocks"),
        meaning: "Whether unmapped blocks release their space.",
        set: |spec, value| { spec.thin = Some(value.flag()); Ok(()) },
        get: |spec| spec.thin.map(|thin| thin.to_string()),
    },
    OptionRow {
        option: StoreOption::Serial, word: "serial", takes: Takes::Serial, of: &[], fallback: "generated once and kept",
        help: ("serial=TEXT", "unit serial number, instead of a generated one"),
        meaning: "Unit serial number.",
        set: |spec, value| { spec.serial = Some(Serial::parse(value.text())?); Ok(()) },
        get: |spec| spec.serial.as_ref().map(|serial| serial.as_str().to_owned()),
    },
    OptionRow {
        option: StoreOption::Format, word: "format", takes: Takes::Word(&["raw"]), of: &[],
        fallback: "an image of another format is refused",
        help: ("format=raw", "use the bytes as the disk, even if they look like an image"),
        meaning: "Uses the bytes as the disk, even if they look like a qcow2 or VMDK image.",
        set: |spec, _| { spec.format_raw = true; Ok(()) },
        get: |spec| spec.format_raw.then(|| "raw".to_owned()),
    },
    OptionRow {
        option: StoreOption::Removable, word: "removable", takes: Takes::Flag, of: &[], fallback: "`false`",
        help: ("removable", "let initiators eject the medium and load it again"),
        meaning: "Removable medium (RMB), which initiators can eject and load.",
        set: |spec, value| { spec.removable = value.flag(); Ok(()) },
        get: |spec| Some(spec.removable.to_string()),
    },
    OptionRow {
        option: StoreOption::Socket, word: "socket", takes: Takes::Path, of: &[Family::Servers], fallback: "required",
        help: ("socket=PATH", "the socket of the server, for nbd+unix:"),
        meaning: "The socket of the server.",
        set: |spec, value| {
            let socket = path_of_option("socket", value.text())?;
            if let StorePlace::Export(export) = &mut spec.at.place {
                export.set_socket(socket);
            }
            Ok(())
        },
        get: |spec| spec.at.export()?.socket(),
    },
    OptionRow {
        option: StoreOption::Ca, word: "ca", takes: Takes::Path, of: &[Family::Servers],
        fallback: "those that this machine trusts",
        help: ("ca=PATH", "the certificates that a server of nbds: is checked against"),
        meaning: "Certificate authorities (PEM) for the server's certificate.",
        set: |spec, value| { spec.ca = Some(path_of_option("ca", value.text())?); Ok(()) },
        get: |spec| spec.ca.as_deref().map(option_of_path),
    },
    OptionRow {
        option: StoreOption::Connections, word: "connections", takes: Takes::Count { min: 1, max: 16 }, of: &[Family::Servers],
        fallback: "one for each core, at most 16",
        help: ("connections=N", "the most connections to the server"),
        meaning: "The most connections to the server; one if it lacks CAN_MULTI_CONN.",
        set: |spec, value| { spec.connections = u8::try_from(value.count()).ok(); Ok(()) },
        get: |spec| spec.connections.map(|connections| connections.to_string()),
    },
    OptionRow {
        option: StoreOption::Retry, word: "retry", takes: Takes::Count { min: 0, max: 3600 }, of: &[Family::Servers, Family::Clusters, Family::Groups, Family::Targets, Family::Handlers],
        fallback: "`20`",
        help: ("retry=SECONDS", "how long commands wait for a lost server or cluster (20); 0: they fail at once"),
        meaning: "Seconds that commands wait for an unreachable server, before they end with NOT READY. With `rbd:` at \
             least 5, and a write that has begun waits as long as the cluster has it.",
        set: |spec, value| { spec.retry_seconds = value.count(); Ok(()) },
        get: |spec| Some(spec.retry_seconds.to_string()),
    },
    OptionRow {
        option: StoreOption::Conf, word: "conf", takes: Takes::Path, of: &[Family::Clusters],
        fallback: "`$CEPH_CONF`, then `/etc/ceph/ceph.conf`",
        help: ("conf=PATH", "the configuration file of the Ceph cluster"),
        meaning: "The configuration file of the Ceph cluster.",
        set: |spec, value| {
            let conf = path_of_option("conf", value.text())?;
            if let StorePlace::Image(image) = &mut spec.at.place {
                image.set_conf(conf);
            }
            Ok(())
        },
        get: |spec| spec.at.image()?.conf_option(),
    },
    OptionRow {
        option: StoreOption::User, word: "user", takes: Takes::User,
        of: &[Family::Clusters, Family::Groups, Family::Targets],
        fallback: "`admin`; of a HyperSCSI group, the group itself; of an iSCSI target, nobody",
        help: ("user=NAME", "the user of the Ceph cluster, without client.; of a HyperSCSI group or iSCSI target"),
        meaning: "The user of the cluster, group or target (CHAP).",
        set: |spec, value| {
            let user = Some(value.text().to_owned());
            if let StorePlace::Image(image) = &mut spec.at.place {
                image.user = user;
            } else if let StorePlace::Device(device) = &mut spec.at.place {
                device.user = user;
            } else if let StorePlace::Lun(lun) = &mut spec.at.place {
                lun.user = user;
            }
            Ok(())
        },
        get: |spec| {
            let of_image = spec.at.image().and_then(|image| image.user.clone());
            let of_device = of_image.or_else(|| spec.at.device()?.user.clone());
            of_device.or_else(|| spec.at.target_lun()?.user.clone())
        },
    },
    OptionRow {
        option: StoreOption::Keyring, word: "keyring", takes: Takes::Path, of: &[Family::Clusters],
        fallback: "as the configuration file of the cluster says",
        help: ("keyring=PATH", "the file with the key of that user"),
        meaning: "The file with the key of that user.",
        set: |spec, value| {
            let keyring = path_of_option("keyring", value.text())?;
            if let StorePlace::Image(image) = &mut spec.at.place {
                image.keyring = Some(keyring);
            }
            Ok(())
        },
        get: |spec| spec.at.image()?.keyring_option(),
    },
    OptionRow {
        option: StoreOption::Takeover, word: "takeover", takes: Takes::Word(&["refuse", "wait"]), of: &[Family::Clusters],
        fallback: "`refuse`",
        help: ("takeover=wait", "wait for an image that another client has, instead of ending the start"),
        meaning: "When another client has the image: `refuse` is an error; with `wait` the disk is NOT READY until \
             that client ends or dies (needs the exclusive lock).",
        set: |spec, value| { spec.waits_for_lock = value.text() == "wait"; Ok(()) },
        get: |spec| Some(if spec.waits_for_lock { "wait" } else { "refuse" }.to_owned()),
    },
    OptionRow {
        option: StoreOption::Chunk, word: "chunk", takes: Takes::Power { min: 4 << 10, max: 16 << 20 },
        of: &[Family::Compositions], fallback: "`64k`",
        help: ("chunk=SIZE", "how much of a stripe is on one member before the next (64k)"),
        meaning: "Bytes of a stripe on one member before the next.",
        set: |spec, value| { spec.chunk_bytes = value.bytes().unwrap_or(spec.chunk_bytes); Ok(()) },
        get: |spec| Some(size_text(spec.chunk_bytes)),
    },
    OptionRow {
        option: StoreOption::Server, word: "server", takes: Takes::Name, of: &[Family::Groups],
        fallback: "the only one of the group that has the device",
        help: ("server=NAME", "the server of a HyperSCSI group, by name or address, if several have such a device"),
        meaning: "The server, by name or address, if several have the device.",
        set: |spec, value| {
            let StorePlace::Device(device) = &mut spec.at.place else { return Ok(()) };
            right("server", value.text(), device.set_server(value.text()), "a name of 1 to 64 bytes")
        },
        get: |spec| spec.at.device()?.server_option(),
    },
    OptionRow {
        option: StoreOption::Udp, word: "udp", takes: Takes::Address, of: &[Family::Groups],
        fallback: "`interface` is required",
        help: ("udp=HOST[:PORT]", "where servers of a HyperSCSI group are asked (port 5674)"),
        meaning: "The server, or the broadcast address of a network; port 5674 by default.",
        set: |spec, value| {
            let StorePlace::Device(device) = &mut spec.at.place else { return Ok(()) };
            right("udp", value.text(), device.set_udp(value.text()), "HOST or HOST:PORT, with a port from 1 to 65535 (IPv6 in brackets)")
        },
        get: |spec| spec.at.device()?.udp_option(),
    },
    OptionRow {
        option: StoreOption::Interface, word: "interface", takes: Takes::Interface, of: &[Family::Groups],
        fallback: "`udp` is required",
        help: ("interface=NAME", "the interface on whose network servers of a HyperSCSI group are asked"),
        meaning: "The interface for servers on Ethernet. Needs CAP_NET_RAW at the start.",
        set: |spec, value| {
            let StorePlace::Device(device) = &mut spec.at.place else { return Ok(()) };
            right("interface", value.text(), device.set_interface(value.text()), "the name of an interface, see `ip link`")
        },
        get: |spec| spec.at.device()?.interface_option(),
    },
    OptionRow {
        option: StoreOption::PasswordFile, word: "password_file", takes: Takes::Path,
        of: &[Family::Groups, Family::Targets],
        fallback: "there is no password",
        help: ("password_file=PATH", "the file with the password of a HyperSCSI group or user, or of `user` at an iSCSI target"),
        meaning: "The file with the password of the group or user: at least 8 bytes.",
        set: |spec, value| {
            let file = path_of_option("password_file", value.text())?;
            if let StorePlace::Device(device) = &mut spec.at.place {
                device.password_file = Some(file);
            } else if let StorePlace::Lun(lun) = &mut spec.at.place {
                lun.password_file = Some(file);
            }
            Ok(())
        },
        get: |spec| match spec.at.target_lun() {
            Some(lun) => lun.password_option(),
            None => spec.at.device()?.password_option(),
        },
    },
    OptionRow {
        option: StoreOption::Initiator, word: "initiator", takes: Takes::Iqn, of: &[Family::Targets],
        fallback: "`iqn.2026-11.example.tarn:client`",
        help: ("initiator=NAME", "the iSCSI name of this side"),
        meaning: "The InitiatorName of this side.",
        set: |spec, value| {
            let StorePlace::Lun(lun) = &mut spec.at.place else { return Ok(()) };
            right("initiator", value.text(), lun.set_initiator(value.text()), "the name of an iSCSI initiator (iqn., eui. or naa.)")
        },
        get: |spec| spec.at.target_lun()?.initiator.as_ref().map(ToString::to_string),
    },
    OptionRow {
        option: StoreOption::MutualUser, word: "mutual_user", takes: Takes::Name, of: &[Family::Targets],
        fallback: "the target does not authenticate",
        help: ("mutual_user=NAME", "whom an iSCSI target has to prove to be"),
        meaning: "The name with which the target authenticates (mutual CHAP).",
        set: |spec, value| {
            let StorePlace::Lun(lun) = &mut spec.at.place else { return Ok(()) };
            right("mutual_user", value.text(), lun.set_mutual_user(value.text()), "a name of 1 to 64 bytes")
        },
        get: |spec| spec.at.target_lun()?.mutual_user_option(),
    },
    OptionRow {
        option: StoreOption::MutualPasswordFile, word: "mutual_password_file", takes: Takes::Path, of: &[Family::Targets],
        fallback: "the target does not authenticate",
        help: ("mutual_password_file=PATH", "the file with the secret of mutual_user"),
        meaning: "The file with the secret of `mutual_user`, which differs from that of `user`.",
        set: |spec, value| {
            let file = path_of_option("mutual_password_file", value.text())?;
            if let StorePlace::Lun(lun) = &mut spec.at.place {
                lun.mutual_password_file = Some(file);
            }
            Ok(())
        },
        get: |spec| spec.at.target_lun()?.mutual_password_option(),
    },
    OptionRow {
        option: StoreOption::Level, word: "level", takes: Takes::Word(&["none", "crc", "hash", "encrypt"]), of: &[Family::Groups],
        fallback: "what the server requires",
        help: ("level=LEVEL", "the least protection of a HyperSCSI device: none, crc, hash or encrypt"),
        meaning: "The least protection; the server may require more.",
        set: |spec, value| {
            if let StorePlace::Device(device) = &mut spec.at.place {
                device.level = Some(value.text().to_owned());
            }
            Ok(())
        },
        get: |spec| spec.at.device()?.level.clone(),
    },
];

impl Value<'_> {
    fn bytes(self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Flag(_) | Self::Count(_) | Self::Text(_) => None,
        }
    }

    fn count(self) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Bytes(_) | Self::Flag(_) | Self::Text(_) => 0,
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
            Self::Bytes(_) | Self::Flag(_) | Self::Count(_) => "",
        }
    }
}

impl KindRow {
    /// Whether it takes an option.
    pub fn takes(&self, option: StoreOption) -> bool {
        self.check(option).is_ok()
    }

    /// Whether it takes an option, or else why not.
    pub(super) fn check(&self, option: StoreOption) -> Result<(), &'static str> {
        let of = option.row().of;
        let is_its = self.family().is_some_and(|family| of.contains(&family));
        if let Some(family) = of.first().filter(|_| !is_its) {
            return Err(family.missing());
        }
        let refusal = self.without.iter().find(|refusal| refusal.0 == option);
        refusal.map_or(Ok(()), |refusal| Err(refusal.1))
    }
}

impl StoreSpec {
    /// Whether the kind of store takes this option.
    pub fn takes(&self, option: StoreOption) -> bool {
        self.at.kind.row().takes(option)
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
            Takes::Flag | Takes::Number(_) | Takes::Count { .. } => value,
            Takes::Size
            | Takes::Power { .. }
            | Takes::Word(_)
            | Takes::Serial
            | Takes::User
            | Takes::Name
            | Takes::Address
            | Takes::Interface
            | Takes::Iqn
            | Takes::Path => quoted(&value),
        })
    }
}

impl OptionRow {
    /// How it is written in the documentation: with an equals sign, if it cannot stand alone.
    pub fn usage(&self) -> String {
        match self.takes {
            Takes::Flag => self.word.to_owned(),
            Takes::Size
            | Takes::Power { .. }
            | Takes::Number(_)
            | Takes::Word(_)
            | Takes::Serial
            | Takes::User
            | Takes::Count { .. }
            | Takes::Name
            | Takes::Address
            | Takes::Interface
            | Takes::Iqn
            | Takes::Path => {
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
            Takes::Power { min, max } => {
                format!(
                    "a power of two from {} to {}",
                    size_text(min),
                    size_text(max)
                )
            }
            Takes::Count { min, max } => format!("a number from {min} to {max}"),
            Takes::User => "a name, without `client.`".to_owned(),
            Takes::Path => "a path".to_owned(),
            Takes::Name => "a name of 1 to 64 bytes".to_owned(),
            Takes::Address => "a host, or a host and a port".to_owned(),
            Takes::Interface => "name of an interface".to_owned(),
            Takes::Iqn => "iSCSI name".to_owned(),
        }
    }

    /// Whether it takes nothing, `true` or `false`.
    pub const fn is_flag(&self) -> bool {
        matches!(self.takes, Takes::Flag)
    }

    /// Whether it takes a path of this machine.
    pub const fn is_path(&self) -> bool {
        matches!(self.takes, Takes::Path)
    }

    /// The words that it takes, where it takes no others.
    pub const fn choices(&self) -> &'static [&'static str] {
        match self.takes {
            Takes::Flag => &["true", "false"],
            Takes::Number(words) | Takes::Word(words) => words,
            Takes::Size
            | Takes::Serial
            | Takes::User
            | Takes::Power { .. }
            | Takes::Count { .. }
            | Takes::Path
            | Takes::Name
            | Takes::Address
            | Takes::Interface
            | Takes::Iqn => &[],
        }
    }

    /// The option as it stands in a STORE. A value that would begin another option is refused.
    fn written(&self, value: &str) -> Result<String, StoreRule> {
        let word = self.word;
        if self.is_path() {
            return Ok(format!("{word}={}", option_of_path(Path::new(value))));
        }
        if value.contains('&') {
            return Err(StoreRule::OptionValue {
                option: word,
                value: value.to_owned(),
                wanted: format!("{} (without '&')", self.takes()),
            });
        }
        Ok(format!("{word}={value}"))
    }

    /// The option as a regular expression of ECMA-262.
    pub(super) fn pattern(&self) -> String {
        let word = self.word;
        match self.takes {
            Takes::Size | Takes::Power { .. } => format!(
                "{word}={}",
                SIZE.trim_start_matches('^').trim_end_matches('$')
            ),
            Takes::Flag => format!("{word}(?:=(?:true|false))?"),
            Takes::Number([one]) | Takes::Word([one]) => format!("{word}={one}"),
            Takes::Number(words) | Takes::Word(words) => format!("{word}=(?:{})", words.join("|")),
            Takes::Serial => format!("{word}=[!-%'-~]{{1,64}}"),
            Takes::Count { max, .. } => format!("{word}=[0-9]{{1,{}}}", digits(max)),
            Takes::User => format!("{word}=(?!client\\.)[!-%'-~]{{1,64}}"),
            Takes::Path | Takes::Name | Takes::Address | Takes::Interface | Takes::Iqn => {
                format!("{word}=[^&]+")
            }
        }
    }

    /// Reads the value and gives it to the store.
    fn read(&self, spec: &mut StoreSpec, value: Option<&str>) -> Result<(), StoreRule> {
        let text = value.unwrap_or_default();
        let wrong = |wanted| StoreRule::OptionValue {
            option: self.word,
            value: text.to_owned(),
            wanted,
        };
        let one_of = |words: &[&str]| {
            let is_known = words.contains(&text);
            let value = is_known.then_some(Value::Text(text));
            value.ok_or_else(|| wrong(or_list(words)))
        };
        let value = match self.takes {
            Takes::Size => Value::Bytes(parse_size(text)?),
            // An option that is merely named is on.
            Takes::Flag if value.is_none() => Value::Flag(true),
            Takes::Flag => one_of(&["true", "false"]).map(|_| Value::Flag(text == "true"))?,
            Takes::Number(words) | Takes::Word(words) => one_of(words)?,
            Takes::Serial
            | Takes::Path
            | Takes::Name
            | Takes::Address
            | Takes::Interface
            | Takes::Iqn => Value::Text(text),
            Takes::User if is_user(text) => Value::Text(text),
            Takes::User => return Err(wrong("a name, without client.".to_owned())),
            Takes::Power { min, max } => {
                let bytes = parse_size(text)?;
                let is_right = bytes.is_power_of_two() && (min..=max).contains(&bytes);
                let bytes = is_right.then_some(bytes);
                Value::Bytes(bytes.ok_or_else(|| wrong(self.takes()))?)
            }
            Takes::Count { min, max } => {
                let is_number = text.len() <= digits(max) && !text.starts_with('+');
                let count = text.parse().ok().filter(|_| is_number);
                let count = count.filter(|count| (min..=max).contains(count));
                Value::Count(count.ok_or_else(|| wrong(self.takes()))?)
            }
        };
        (self.set)(spec, value)
    }
}

/// Refuses what is not right.
fn right(option: &'static str, value: &str, is_right: bool, wanted: &str) -> Result<(), StoreRule> {
    match is_right {
        true => Ok(()),
        false => Err(StoreRule::OptionValue {
            option,
            value: value.to_owned(),
            wanted: wanted.to_owned(),
        }),
    }
}

/// Whether Ceph could have such a user.
fn is_user(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic())
        && !name.starts_with("client.")
}

/// Decimal digits of a number.
fn digits(number: u32) -> usize {
    number.to_string().len()
}

/// The words of all options, for messages.
fn words() -> String {
    let words: Vec<_> = OPTIONS.iter().map(|row| row.word).collect();
    and_list(&words)
}

/// A STORE with more options, each with its value as a person has given it apart from the STORE. What the STORE has
/// already is refused when it is read.
///
/// # Errors
///
/// A value that no option can have.
pub fn with_options<'a>(
    store: &str,
    options: impl IntoIterator<Item = (&'a OptionRow, &'a str)>,
) -> Result<String, StoreRule> {
    let mut text = store.to_owned();
    for (row, value) in options {
        text.push(if text.contains('?') { '&' } else { '?' });
        text.push_str(&row.written(value)?);
    }
    Ok(text)
}

/// A STORE with these options in place of those that it has, as [`with_options`] has them.
///
/// # Errors
///
/// A value that no option can have.
pub fn with_changed_options(
    store: &str,
    options: &[(&OptionRow, &str)],
) -> Result<String, StoreRule> {
    let stays = |option: &&str| {
        let word = option.split_once('=').map_or(*option, |(word, _)| word);
        options.iter().all(|(row, _)| row.word != word)
    };
    let (place, old) = store.split_once('?').unwrap_or((store, ""));
    let kept: Vec<_> = old.split('&').filter(stays).collect();
    let kept = match kept.join("&") {
        none if none.is_empty() => place.to_owned(),
        kept => format!("{place}?{kept}"),
    };
    with_options(&kept, options.iter().copied())
}

/// Reads the options after the question mark into a store of a known kind.
pub(super) fn read_all(spec: &mut StoreSpec, text: &str) -> Result<(), StoreRule> {
    let mut given: Vec<StoreOption> = Vec::new();
    for option in text.split('&') {
        let (word, value) = match option.split_once('=') {
            Some((word, value)) => (word, Some(value)),
            None => (option, None),
        };
        let row = OPTIONS.iter().find(|row| row.word == word);
        let row = row.ok_or_else(|| StoreRule::OptionUnknown {
            option: word.to_owned(),
            known: words(),
        })?;
        row.read(spec, value)?;
        if given.contains(&row.option) {
            return Err(StoreRule::OptionTwice { option: row.word });
        }
        given.push(row.option);
    }
    let snapshot = spec.at.image().and_then(Image::snapshot);
    let is_snapshot = snapshot.is_some() || spec.snapshot().is_some();
    if is_snapshot && given.contains(&StoreOption::ReadOnly) && !spec.read_only {
        return Err(StoreRule::OptionValue {
            option: "readonly",
            value: "false".to_owned(),
            wanted: "true, as a snapshot is only read".to_owned(),
        });
    }
    if snapshot.is_some() && given.contains(&StoreOption::Size) {
        return Err(StoreRule::OptionNotForKind {
            option: "size",
            kind: spec.at.kind.name(),
            remedy: SIZE_OF_SNAPSHOT,
        });
    }
    let of_target =
        |row: &&OptionRow| row.of.contains(&Family::Targets) && row.option != StoreOption::Retry;
    let mut rows = OPTIONS.iter().filter(|row| given.contains(&row.option));
    if spec.at.local_device().is_some()
        && let Some(row) = rows.find(of_target)
    {
        return Err(StoreRule::OptionNotForKind {
            option: row.word,
            kind: "scsi:/dev",
            remedy: Family::Targets.missing(),
        });
    }
    // What this kind of store could only ignore is refused, in the order of the table.
    for row in OPTIONS.iter().filter(|row| given.contains(&row.option)) {
        spec.at
            .kind
            .row()
            .check(row.option)
            .map_err(|remedy| StoreRule::OptionNotForKind {
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
    use crate::store::{KINDS, StoreKind};

    #[test]
    fn options_that_are_given_apart_read_back_as_they_were_given() {
        let row = |word: &str| OPTIONS.iter().find(|row| row.word == word).unwrap();
        let with = |store: &str, options: &[(&str, &str)]| {
            let options = options.iter().map(|&(word, value)| (row(word), value));
            with_options(store, options)
        };
        assert_eq!(with("/a", &[]).unwrap(), "/a");
        let text = with("/a?thin", &[("size", "1M"), ("cache", "direct")]).unwrap();
        assert_eq!(text, "/a?thin&size=1M&cache=direct");
        let path = "/x&y%26z";
        let text = with("nbds://h", &[("ca", path)]).unwrap();
        assert_eq!(
            StoreSpec::parse(&text).unwrap().ca,
            Some(path.into()),
            "{text}"
        );
        assert!(with("/a", &[("serial", "S&readonly")]).is_err());
        let twice = with("/a?size=1M", &[("size", "2M")]).unwrap();
        assert!(matches!(
            StoreSpec::parse(&twice),
            Err(StoreRule::OptionTwice { .. })
        ));
    }

    #[test]
    fn changed_options_take_the_place_of_those_that_are_there_and_of_no_others() {
        let row = |word: &str| OPTIONS.iter().find(|row| row.word == word).unwrap();
        let with = |store: &str, word, value| with_changed_options(store, &[(row(word), value)]);
        for (store, expected) in [
            ("/a", "/a?cache=direct"),
            (
                "/a?size=1M&cache=writeback&thin",
                "/a?size=1M&thin&cache=direct",
            ),
            ("/a?cache=writeback", "/a?cache=direct"),
        ] {
            assert_eq!(with(store, "cache", "direct").unwrap(), expected);
        }
        assert_eq!(with("/a?thin", "thin", "false").unwrap(), "/a?thin=false");
    }

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
            let values: Vec<String> = match row.takes {
                Takes::Size => vec!["1M".to_owned()],
                Takes::Flag => vec!["true".to_owned(), "false".to_owned()],
                Takes::Number(words) | Takes::Word(words) => {
                    words.iter().map(|&word| word.to_owned()).collect()
                }
                Takes::Serial => vec!["A1".to_owned()],
                Takes::Power { min, max } => vec![size_text(min), size_text(max)],
                Takes::Count { min, max } => vec![min.to_string(), max.to_string()],
                Takes::User => vec!["target".to_owned()],
                Takes::Path => vec!["a/b?=%26%25".to_owned()],
                Takes::Name => vec!["a/b?=%26%25".to_owned()],
                Takes::Address => vec!["h:1".to_owned()],
                Takes::Interface => vec!["eth0".to_owned()],
                Takes::Iqn => vec!["iqn.2026-11.example:a".to_owned()],
            };
            for value in values {
                let is_its = |kind: &&KindRow| kind.takes(row.option);
                let store = match KINDS.iter().find(is_its).unwrap().kind {
                    StoreKind::Nbd => "nbd://h",
                    StoreKind::Nbds => "nbds://h",
                    StoreKind::NbdUnix => "nbd+unix:///",
                    StoreKind::Rbd => "rbd:p/i",
                    StoreKind::Hyperscsi => "hyperscsi://g/d?udp=h",
                    StoreKind::Iscsi => "iscsi://h/iqn.2026-11.example:t/0?user=a&password_file=b",
                    StoreKind::Scsi => "scsi:iscsi://h/iqn.2026-11.example:t/0",
                    StoreKind::Handler => "handler:a",
                    StoreKind::Stripe => "stripe:a,b",
                    StoreKind::Concat => "concat:a",
                    StoreKind::Cdrom => "cdrom:a",
                    StoreKind::Path
                    | StoreKind::File
                    | StoreKind::Block
                    | StoreKind::Memory
                    | StoreKind::Snapshot
                    | StoreKind::Null => "a",
                };
                // A device has one of both.
                let is_way = matches!(row.option, StoreOption::Udp | StoreOption::Interface);
                let store = if is_way { "hyperscsi://g/d" } else { store };
                // Each of both needs the other.
                let store = match row.word {
                    "mutual_user" => format!("{store}&mutual_password_file=a"),
                    "mutual_password_file" => format!("{store}&mutual_user=a"),
                    _ => store.to_owned(),
                };
                let joint = if store.contains('?') { '&' } else { '?' };
                let text = format!("{store}{joint}{}={value}", row.word);
                let spec = StoreSpec::parse(&text).unwrap();
                assert_eq!(row.option.value(&spec), Some(value), "{text}");
            }
        }
    }
}
