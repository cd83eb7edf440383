//! Addresses of targets, as given on the command line. Knows the forms, connects to nothing.

use std::path::PathBuf;

use remote::HyperscsiOptions;
use zeroize::Zeroizing;

use crate::error::BenchError;

/// The port of iSCSI where none is given.
pub const ISCSI_PORT: u16 = 3260;
/// The port of NBD where none is given.
pub const NBD_PORT: u16 = 10809;

/// A password. Has no `Debug`; its memory is wiped when it is dropped.
#[derive(Clone, Eq, PartialEq)]
#[expect(
    missing_debug_implementations,
    reason = "secrets are not to reach a log"
)]
pub struct Password(Zeroizing<Vec<u8>>);

impl Password {
    /// Takes the bytes over.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes, for the digest.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Who logs in, and how that is proved.
#[derive(Clone, Eq, PartialEq)]
#[expect(
    missing_debug_implementations,
    reason = "secrets are not to reach a log"
)]
pub struct Login {
    /// CHAP name.
    pub user: String,
    /// CHAP secret.
    pub password: Password,
}

/// A target to measure.
#[derive(Clone)]
#[expect(
    missing_debug_implementations,
    reason = "secrets are not to reach a log"
)]
pub struct Target {
    /// What reports call it.
    pub label: String,
    /// Where it is.
    pub address: Address,
}

/// Where a target is, by kind.
#[derive(Clone, Eq, PartialEq)]
#[expect(
    missing_debug_implementations,
    reason = "secrets are not to reach a log"
)]
pub enum Address {
    /// An iSCSI logical unit.
    Iscsi {
        /// Name or address, without brackets.
        host: String,
        /// TCP port.
        port: u16,
        /// TargetName.
        target: String,
        /// Logical unit number, as a flat number.
        lun: u16,
        /// For CHAP.
        login: Option<Login>,
    },
    /// An NBD export over TCP.
    Nbd {
        /// Name or address, without brackets.
        host: String,
        /// TCP port.
        port: u16,
        /// Name of the export; empty for the default one.
        export: String,
    },
    /// An NBD export over a Unix socket.
    NbdUnix {
        /// Path of the socket.
        socket: PathBuf,
        /// Name of the export; empty for the default one.
        export: String,
    },
    /// A device of a HyperSCSI group.
    Hyperscsi(Box<HyperscsiOptions>),
    /// A file or block device of this machine.
    File {
        /// Its path.
        path: PathBuf,
        /// Past the page cache.
        direct: bool,
    },
}

impl Target {
    /// Reads `[NAME=]URL`. `device` reads URLs of HyperSCSI devices, whose password and carrier are not in them.
    ///
    /// # Errors
    ///
    /// [`BenchError::Url`], without the password.
    pub fn parse<E: From<BenchError>>(
        text: &str,
        device: impl FnOnce(&str) -> Result<HyperscsiOptions, E>,
    ) -> Result<Self, E> {
        let (label, url) = split_label(text);
        let address = if url.starts_with("hyperscsi:") {
            Address::Hyperscsi(Box::new(device(url)?))
        } else {
            parse_address(url).map_err(|problem| BenchError::Url {
                url: redacted(url),
                problem,
            })?
        };
        let label = label.map_or_else(|| address.place(), str::to_owned);
        Ok(Self { label, address })
    }
}

impl Address {
    /// Host and port, or the path: the label where none is given.
    #[must_use]
    pub fn place(&self) -> String {
        match self {
            Self::Iscsi { host, port, .. } | Self::Nbd { host, port, .. } => host_port(host, *port),
            Self::NbdUnix { socket, .. } => socket.display().to_string(),
            Self::Hyperscsi(options) => {
                format!("hyperscsi://{}/{}", options.group, options.device)
            }
            Self::File { path, .. } => path.display().to_string(),
        }
    }

    /// What kind of transport leads there: `iscsi`, `nbd`, `hyperscsi` or `file`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Iscsi { .. } => "iscsi",
            Self::Nbd { .. } | Self::NbdUnix { .. } => "nbd",
            Self::Hyperscsi(_) => "hyperscsi",
            Self::File { .. } => "file",
        }
    }
}

/// A host and port, with brackets where the host has colons of its own.
#[must_use]
pub fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// A command line argument without the password of a URL, for reports and errors.
#[must_use]
pub fn redacted(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    // Not only what a good URL has: the password of a wrong one is as secret.
    let Some((user, secret)) = rest.split_once('%') else {
        return text.to_owned();
    };
    match secret.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{user}%***@{host}"),
        None if user.contains('/') => text.to_owned(),
        None => format!("{scheme}://{user}%***"),
    }
}

/// A label goes up to the first `=`, if that comes before anything an address begins with.
fn split_label(text: &str) -> (Option<&str>, &str) {
    match text.split_once('=') {
        Some((label, url)) if !label.is_empty() && !label.contains(['/', ':', '?', '@']) => {
            (Some(label), url)
        }
        Some(_) | None => (None, text),
    }
}

fn parse_address(url: &str) -> Result<Address, String> {
    /// What a scheme makes of what follows it.
    type Parser = fn(&str) -> Result<Address, String>;
    const SCHEMES: [(&str, Parser); 4] = [
        ("iscsi://", parse_iscsi),
        ("nbd://", parse_nbd),
        ("nbd+unix://", parse_nbd_unix),
        ("file:", parse_file),
    ];
    let found = SCHEMES
        .iter()
        .find_map(|(scheme, parser)| url.strip_prefix(scheme).map(|rest| (parser, rest)));
    match found {
        Some((parser, rest)) => parser(rest),
        None if url.contains("://") => Err(
            "unknown scheme; use iscsi://, nbd://, nbd+unix://, hyperscsi:// or file:".to_owned(),
        ),
        None => parse_file(url),
    }
}

fn parse_iscsi(rest: &str) -> Result<Address, String> {
    const FORM: &str = "write it as iscsi://[user%password@]host[:port]/target-name/lun";
    let (authority, path) = rest.split_once('/').ok_or(FORM)?;
    let (target, lun) = path.rsplit_once('/').ok_or(FORM)?;
    let lun = lun
        .parse()
        .ok()
        .filter(|&lun| lun < 1 << 14)
        .ok_or_else(|| format!("LUN {lun:?} is not a number below 16384; {FORM}"))?;
    if target.is_empty() {
        return Err(FORM.to_owned());
    }
    let (login, authority) = match authority.rsplit_once('@') {
        Some((login, authority)) => (Some(parse_login(login)?), authority),
        None => (None, authority),
    };
    let (host, port) = parse_authority(authority, ISCSI_PORT)?;
    Ok(Address::Iscsi {
        host,
        port,
        target: text_of(target)?,
        lun,
        login,
    })
}

fn parse_login(text: &str) -> Result<Login, String> {
    let (user, password) = text
        .split_once('%')
        .ok_or("a user needs a password: write user%password@, or use --user and --secret-file")?;
    if user.is_empty() || password.is_empty() {
        return Err("user and password must not be empty".to_owned());
    }
    Ok(Login {
        user: text_of(user)?,
        password: Password(decode(password)?),
    })
}

fn parse_nbd(rest: &str) -> Result<Address, String> {
    let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = parse_authority(authority, NBD_PORT)?;
    let export = text_of(export)?;
    Ok(Address::Nbd { host, port, export })
}

fn parse_nbd_unix(rest: &str) -> Result<Address, String> {
    const FORM: &str = "write it as nbd+unix:///export?socket=PATH";
    let (export, query) = rest.split_once('?').ok_or(FORM)?;
    let socket = query.strip_prefix("socket=").ok_or(FORM)?;
    let export = export.strip_prefix('/').ok_or(FORM)?;
    if socket.is_empty() {
        return Err(FORM.to_owned());
    }
    Ok(Address::NbdUnix {
        socket: text_of(socket)?.into(),
        export: text_of(export)?,
    })
}

fn parse_file(rest: &str) -> Result<Address, String> {
    let (path, direct) = match rest.split_once('?') {
        None => (rest, false),
        Some((path, "cache=direct")) => (path, true),
        Some((path, "cache=writeback")) => (path, false),
        Some((_, option)) => {
            return Err(format!(
                "unknown option {option:?}; use cache=direct or cache=writeback"
            ));
        }
    };
    if path.is_empty() {
        return Err("no path; name a file or a block device".to_owned());
    }
    let path = path.into();
    Ok(Address::File { path, direct })
}

/// `host[:port]`, IPv6 in brackets.
fn parse_authority(text: &str, port_default: u16) -> Result<(String, u16), String> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(rest) => rest
            .split_once(']')
            .ok_or("the bracket of the IPv6 address is not closed")?,
        None => {
            let end = text.find(':').unwrap_or(text.len());
            text.split_at(end)
        }
    };
    if host.is_empty() {
        return Err("no host; name one or write its address".to_owned());
    }
    let port = match rest.strip_prefix(':') {
        None if rest.is_empty() => port_default,
        None => return Err(format!("{rest:?} after the host; write host:port")),
        Some(port) => port.parse().ok().filter(|&port| port != 0).ok_or_else(|| {
            format!("port {port:?} is none; write 1 to 65535, and IPv6 in brackets")
        })?,
    };
    Ok((host.to_owned(), port))
}

fn text_of(encoded: &str) -> Result<String, String> {
    let bytes = decode(encoded)?;
    std::str::from_utf8(&bytes)
        .map(str::to_owned)
        .map_err(|_| "percent-encoded bytes are no UTF-8".to_owned())
}

/// Undoes percent-encoding. The result has its full room at once: a vector that grows would leave
/// copies of a password behind.
fn decode(text: &str) -> Result<Zeroizing<Vec<u8>>, String> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len()));
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        let value = digit().zip(digit()).map(|(high, low)| high * 16 + low);
        let value = value.and_then(|value| u8::try_from(value).ok());
        bytes.push(value.ok_or("a % is not followed by two hexadecimal digits; write % as %25")?);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iscsi(
        host: &str,
        port: u16,
        target: &str,
        lun: u16,
        login: Option<(&str, &str)>,
    ) -> Address {
        Address::Iscsi {
            host: host.to_owned(),
            port,
            target: target.to_owned(),
            lun,
            login: login.map(|(user, password)| Login {
                user: user.to_owned(),
                password: Password::new(password.as_bytes().to_vec()),
            }),
        }
    }

    fn nbd(host: &str, port: u16, export: &str) -> Address {
        let (host, export) = (host.to_owned(), export.to_owned());
        Address::Nbd { host, port, export }
    }

    fn parse(text: &str) -> Result<Target, BenchError> {
        Target::parse(text, |url| panic!("{url} is of HyperSCSI"))
    }

    fn file(path: &str, direct: bool) -> Address {
        let path = path.into();
        Address::File { path, direct }
    }

    #[test]
    fn every_form_is_read() {
        #[rustfmt::skip]
        let cases = [
            ("iscsi://h/iqn.x:y/0", "h:3260", iscsi("h", 3260, "iqn.x:y", 0, None)),
            ("iscsi://[::1]:3261/iqn.x:y/16383", "[::1]:3261", iscsi("::1", 3261, "iqn.x:y", 16383, None)),
            ("ours=iscsi://al%pa%25ss%40%2f@127.0.0.1/iqn.x/7", "ours", iscsi("127.0.0.1", 3260, "iqn.x", 7, Some(("al", "pa%ss@/")))),
            ("nbd://h", "h:10809", nbd("h", 10809, "")),
            ("nbd://h:1/a%20b/c", "h:1", nbd("h", 1, "a b/c")),
            ("nbd+unix:///e?socket=/run/s", "/run/s", Address::NbdUnix { socket: "/run/s".into(), export: "e".to_owned() }),
            ("file:/tmp/a", "/tmp/a", file("/tmp/a", false)),
            ("d=file:a?cache=direct", "d", file("a", true)),
            ("/dev/sda", "/dev/sda", file("/dev/sda", false)),
            ("x=/dev/sda", "x", file("/dev/sda", false)),
        ];
        for (text, label, address) in cases {
            let target = parse(text).unwrap();
            assert_eq!(target.label, label, "{text}");
            assert!(target.address == address, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_says_what_to_write() {
        for (text, message) in [
            ("iscsi://h/iqn.x", "write it as iscsi://"),
            ("iscsi://h/iqn.x/a", "LUN \"a\" is not a number below 16384"),
            ("iscsi://h/iqn.x/16384", "LUN \"16384\" is not a number"),
            ("iscsi:///iqn.x/0", "no host"),
            ("iscsi://h:0/iqn.x/0", "port \"0\" is none"),
            ("iscsi://::1/iqn.x/0", "no host"),
            ("iscsi://[::1/iqn.x/0", "bracket"),
            ("iscsi://u@h/iqn.x/0", "a user needs a password"),
            ("iscsi://u%@h/iqn.x/0", "must not be empty"),
            ("iscsi://u%secret%zz@h/iqn.x/0", "write % as %25"),
            ("nbd+unix:///e", "write it as nbd+unix://"),
            ("http://h/", "unknown scheme"),
            ("file:", "no path"),
            ("file:a?cache=none", "unknown option"),
        ] {
            let error = parse(text).err().unwrap().to_string();
            assert!(error.contains(message), "{text}: {error}");
            assert!(!error.contains("secret%"), "{error}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        for (text, shown) in [
            ("iscsi://u%pass@h/i/0", "iscsi://u%***@h/i/0"),
            ("iscsi://u%p@ss@h/i/0", "iscsi://u%***@h/i/0"),
            ("x=iscsi://u%pass@h", "x=iscsi://u%***@h"),
            ("iscsi://u%pa/ss@h/i/0", "iscsi://u%***@h/i/0"),
            ("iscsi://u%pass/i/0", "iscsi://u%***"),
            ("iscsi://h/i@x/0", "iscsi://h/i@x/0"),
            ("nbd://h/a%20b", "nbd://h/a%20b"),
            ("--rw", "--rw"),
        ] {
            assert_eq!(redacted(text), shown);
        }
    }
}
