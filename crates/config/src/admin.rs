//! `[admin]`: how administrators reach the daemon. Opens nothing; what is left out is for the
//! binary, which knows the user.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::error::{At as _, Broken as _};
use crate::fields::{read_path, read_u16};
use crate::keys::{HISTORY_DEFAULT, HISTORY_MAX, SECTION_ADMIN};
use crate::names::FirstUse;
use crate::reader::{Field, Section};
use crate::value::{KeyOf, list, path, quoted};
use crate::{ConfigError, Place, Rule, is_host};

/// Why administrators cannot come in so.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum AdminRule {
    /// Something that is no address with port for administrators.
    #[error("address {text:?} is not ADDRESS:PORT; write 127.0.0.1:8443 or [::1]:8443")]
    Address {
        /// The address as written.
        text: String,
    },
    /// Administration without encryption where others can listen.
    #[error(
        "{text:?} would carry tokens without encryption beyond this machine; remove tls = false, or listen on \
         127.0.0.1 or [::1]"
    )]
    PlainOffLoopback {
        /// The address as written.
        text: String,
    },
    /// Something that is no host name.
    #[error("{text:?} is not a host name; write it as san.example, without scheme and port")]
    HostName {
        /// The name as written.
        text: String,
    },
}

/// Longest path of a unix socket in bytes: `sun_path` without its NUL, and without the `.new` that its name has until
/// it is complete.
///
/// Spec: unix(7).
const SOCKET_PATH_BYTES_MAX: usize = 103;

/// How administrators reach the daemon.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Admin {
    /// Whether they can at all.
    pub is_enabled: bool,
    /// The unix socket; `None` leaves it to the binary.
    pub socket: Option<PathBuf>,
    /// Addresses to listen on.
    pub listen: Vec<AdminListener>,
    /// Whether those addresses speak TLS.
    pub tls: bool,
    /// Certificate and key; `None` has them made at the first start.
    pub certificate: Option<Certificate>,
    /// Names by which browsers may reach the console, besides the addresses.
    pub names: Vec<String>,
    /// Revisions of the configuration that are kept.
    pub history: u16,
}

/// An address where administrators are listened to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AdminListener {
    /// Where to listen; port 0 is any free port.
    pub bind: SocketAddr,
    /// Where it is given, for errors that only binding it shows.
    pub place: Place,
}

/// The files of a certificate, both in PEM.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Certificate {
    /// The certificate, with those that lead to its root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Where the certificate is named, for errors that only reading it shows.
    pub place: Place,
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            is_enabled: true,
            socket: None,
            listen: Vec::new(),
            tls: true,
            certificate: None,
            names: Vec::new(),
            history: HISTORY_DEFAULT,
        }
    }
}

/// The keys of the section with their values.
pub(crate) const ADMIN: [KeyOf<Admin>; 8] = [
    KeyOf {
        name: "enabled",
        value: |admin| Some(admin.is_enabled.to_string()),
    },
    KeyOf {
        name: "socket",
        value: |admin| admin.socket.as_deref().map(path),
    },
    KeyOf {
        name: "listen",
        value: |admin| {
            let binds = admin.listen.iter().map(|listener| listener.bind);
            Some(list(binds.map(|bind| quoted(&bind.to_string()))))
        },
    },
    KeyOf {
        name: "tls",
        value: |admin| Some(admin.tls.to_string()),
    },
    KeyOf {
        name: "certificate",
        value: |admin| Some(path(&admin.certificate.as_ref()?.certificate)),
    },
    KeyOf {
        name: "key",
        value: |admin| Some(path(&admin.certificate.as_ref()?.key)),
    },
    KeyOf {
        name: "names",
        value: |admin| Some(list(admin.names.iter().map(|name| quoted(name)))),
    },
    KeyOf {
        name: "history",
        value: |admin| Some(admin.history.to_string()),
    },
];

/// Reads the section.
pub(crate) fn read(top: &Section<'_>, directory: &Path) -> Result<Admin, ConfigError> {
    let default = Admin::default();
    let Some(section) = top.section("admin", SECTION_ADMIN)? else {
        return Ok(default);
    };
    let flag = |field: Option<Field<'_>>, default| field.map_or(Ok(default), |f| f.flag());
    let tls = flag(section.field("tls"), default.tls)?;
    Ok(Admin {
        is_enabled: flag(section.field("enabled"), default.is_enabled)?,
        socket: match section.field("socket") {
            Some(field) => Some(read_socket(&field, directory)?),
            None => None,
        },
        listen: read_listen(section.field("listen"), tls)?,
        tls,
        certificate: read_certificate(&section, directory)?,
        names: read_names(section.field("names"))?,
        history: match section.field("history") {
            Some(field) => read_u16(&field, 1, HISTORY_MAX)?,
            None => default.history,
        },
    })
}

/// The path of a unix socket that is to be made.
pub(crate) fn read_socket(field: &Field<'_>, directory: &Path) -> Result<PathBuf, ConfigError> {
    let path = read_path("path of the socket", field, directory)?;
    let got_bytes = path.as_os_str().len();
    if got_bytes > SOCKET_PATH_BYTES_MAX {
        let rule = Rule::TooLong {
            what: "path of the socket",
            got_bytes,
            max_bytes: SOCKET_PATH_BYTES_MAX,
        };
        return Err(rule.at(field.place()));
    }
    Ok(path)
}

fn read_listen(field: Option<Field<'_>>, tls: bool) -> Result<Vec<AdminListener>, ConfigError> {
    let Some(field) = field else {
        return Ok(Vec::new());
    };
    let mut seen = FirstUse::new("address");
    let mut listeners = Vec::new();
    for entry in field.entries()? {
        let place = entry.place();
        let bind = parse_listen(entry.text()?, tls).at(|| place.clone())?;
        seen.insert(bind.to_string(), place.clone())?;
        listeners.push(AdminListener { bind, place });
    }
    Ok(listeners)
}

fn parse_listen(text: &str, tls: bool) -> Result<SocketAddr, AdminRule> {
    let bind: SocketAddr = text.parse().map_err(|_| AdminRule::Address {
        text: text.to_owned(),
    })?;
    if !tls && !bind.ip().to_canonical().is_loopback() {
        return Err(AdminRule::PlainOffLoopback {
            text: text.to_owned(),
        });
    }
    Ok(bind)
}

fn read_certificate(
    section: &Section<'_>,
    directory: &Path,
) -> Result<Option<Certificate>, ConfigError> {
    let (certificate, key) = (section.field("certificate"), section.field("key"));
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(Certificate {
            certificate: read_path("path of the certificate", &certificate, directory)?,
            key: read_path("path of the key", &key, directory)?,
            place: certificate.place(),
        })),
        (Some(alone), None) => Err(Rule::NotWithout { missing: "key" }.at(alone.place())),
        (None, Some(alone)) => {
            let missing = "certificate";
            Err(Rule::NotWithout { missing }.at(alone.place()))
        }
    }
}

fn read_names(field: Option<Field<'_>>) -> Result<Vec<String>, ConfigError> {
    let Some(field) = field else {
        return Ok(Vec::new());
    };
    let mut seen = FirstUse::new("name");
    let mut names = Vec::new();
    for entry in field.entries()? {
        let text = entry.text()?;
        if !is_host(text) {
            let text = text.to_owned();
            return Err(AdminRule::HostName { text }.at(entry.place()));
        }
        let name = text.to_ascii_lowercase();
        seen.insert(&name, entry.place())?;
        names.push(name);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    fn admin(text: &str) -> Result<Admin, String> {
        let text = format!("[admin]\n{text}\n");
        let model = Model::from_toml(&text, Path::new("/etc/tarn/tarn.toml"));
        match model {
            Ok(model) => Ok(model.admin().clone()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn every_key_is_read_and_each_may_be_left_out() {
        assert_eq!(admin(""), Ok(Admin::default()));
        let full = admin(
            "enabled = false\nsocket = \"tarn.sock\"\nlisten = [\"[::]:8443\"]\ntls = true\n\
             certificate = \"c.pem\"\nkey = \"/k.pem\"\nnames = [\"SAN.example\", \"192.0.2.1\"]\n\
             history = 5",
        )
        .unwrap();
        assert!(!full.is_enabled);
        assert_eq!(
            full.socket.as_deref(),
            Some(Path::new("/etc/tarn/tarn.sock"))
        );
        assert_eq!(full.listen[0].bind.to_string(), "[::]:8443");
        let certificate = full.certificate.unwrap();
        assert_eq!(certificate.certificate, Path::new("/etc/tarn/c.pem"));
        assert_eq!(certificate.key, Path::new("/k.pem"));
        assert_eq!(full.names, ["san.example", "192.0.2.1"]);
        assert_eq!(full.history, 5);
    }

    #[test]
    fn plain_text_stays_on_this_machine() {
        for listen in [
            "127.0.0.1:80",
            "127.9.9.9:80",
            "[::1]:80",
            "[::ffff:127.0.0.1]:80",
        ] {
            let got = admin(&format!("tls = false\nlisten = [\"{listen}\"]"));
            assert!(got.is_ok(), "{got:?}");
        }
        for listen in ["0.0.0.0:80", "[::]:80", "192.0.2.1:80"] {
            let got = admin(&format!("tls = false\nlisten = [\"{listen}\"]")).unwrap_err();
            let expected = format!(
                "/etc/tarn/tarn.toml:3: admin.listen[0]: {listen:?} would carry tokens without encryption beyond \
                 this machine; remove tls = false, or listen on 127.0.0.1 or [::1]"
            );
            assert_eq!(got, expected);
        }
    }

    #[test]
    fn mistakes_name_their_place_and_remedy() {
        let long = format!("socket = \"{}\"", "x".repeat(98));
        for (text, expected) in [
            (
                "listen = [\"localhost:80\"]",
                "2: admin.listen[0]: address \"localhost:80\" is not ADDRESS:PORT; write 127.0.0.1:8443 or [::1]:8443",
            ),
            (
                "listen = [\"127.0.0.1\"]",
                "2: admin.listen[0]: address \"127.0.0.1\" is not ADDRESS:PORT; write 127.0.0.1:8443 or [::1]:8443",
            ),
            (
                "listen = [\"[::1]:80\", \"[::1]:80\"]",
                "2: admin.listen[1]: address \"[::1]:80\" is already used at /etc/tarn/tarn.toml:2: admin.listen[0]; \
                 give each its own",
            ),
            (
                "key = \"k\"",
                "2: admin.key: this needs \"certificate\" beside it; give both, or neither to have them made",
            ),
            (
                "certificate = \"c\"",
                "2: admin.certificate: this needs \"key\" beside it; give both, or neither to have them made",
            ),
            (
                "names = [\"a b\"]",
                "2: admin.names[0]: \"a b\" is not a host name; write it as san.example, without scheme and port",
            ),
            (
                "history = 0",
                "2: admin.history: 0 is outside 1..=10000; choose a number in that range",
            ),
            (
                "socket = \"\"",
                "2: admin.socket: path of the socket is empty; give it at least one character",
            ),
            (
                &long,
                "2: admin.socket: path of the socket of 108 bytes is too long; the limit is 103 bytes",
            ),
        ] {
            let expected = format!("/etc/tarn/tarn.toml:{expected}");
            assert_eq!(admin(text), Err(expected));
        }
    }

    #[test]
    fn administrators_and_initiators_need_addresses_of_their_own() {
        let target =
            "[[target]]\nname = \"iqn.2026-11.example.tarn:t\"\nportals = [\"0.0.0.0:3260\"]";
        let got = admin(&format!("listen = [\"127.0.0.1:3260\"]\n{target}"));
        assert_eq!(
            got.unwrap_err(),
            "/etc/tarn/tarn.toml:2: admin.listen[0]: address \"127.0.0.1:3260\" is already used at \
             /etc/tarn/tarn.toml:5: target[0].portals[0]; give each its own"
        );
        assert!(admin(&format!("listen = [\"127.0.0.1:3261\"]\n{target}")).is_ok());
        let got = admin("listen = [\"127.0.0.1:9\", \"0.0.0.0:9\"]\n").unwrap_err();
        assert!(
            got.contains("admin.listen[1]: address 0.0.0.0:9 overlaps 127.0.0.1:9 at"),
            "{got}"
        );
    }
}
