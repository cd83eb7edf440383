//! `[[nbd]]`: where clients of NBD come in, and what they find there.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::admin::read_socket;
use crate::error::{At as _, Broken as _};
use crate::fields::read_path;
use crate::keys::SECTION_NBD;
use crate::names::AllNames;
use crate::reader::Section;
use crate::{
    Certificate, ConfigError, GroupIndex, NBD_PORT, Place, Rule, Unit, UnitIndex, address,
};

/// Something that is no mode of a socket.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is not the mode of a socket; write four octal digits, as in \"0660\"")]
pub(crate) struct SocketMode {
    /// The mode as written.
    pub(crate) text: String,
}

/// Something that is no disk.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("lun {lun} is no disk, and NBD knows nothing else; take it out of the list")]
pub(crate) struct NoDisk {
    /// Which.
    pub(crate) lun: String,
}

/// Only the user that Tarn runs as, and root, may connect.
const SOCKET_MODE_DEFAULT: u32 = 0o600;

/// Where clients of NBD come in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NbdPlace {
    /// At an address; port 0 is any free port.
    Address(SocketAddr),
    /// At a unix socket.
    Socket {
        /// Where it is.
        path: PathBuf,
        /// Who may connect, as the mode of its file.
        mode: u32,
    },
}

impl NbdPlace {
    /// The address, unless it is a unix socket.
    pub const fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Address(address) => Some(*address),
            Self::Socket { .. } => None,
        }
    }

    /// The unix socket and its mode, if it is one.
    pub fn socket(&self) -> Option<(&Path, u32)> {
        match self {
            Self::Address(_) => None,
            Self::Socket { path, mode } => Some((path, *mode)),
        }
    }
}

/// The address or the path, by which a server is known.
impl fmt::Display for NbdPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Socket { path, .. } => path.display().fmt(f),
        }
    }
}

/// The TLS of a server of NBD.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NbdTls {
    /// Certificate and key.
    pub certificate: Certificate,
    /// The certificates that vouch for those of clients; `None`: clients need none.
    pub ca: Option<PathBuf>,
}

/// Where clients of NBD come in, and what they find there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NbdServer {
    /// Where to listen.
    pub at: NbdPlace,
    /// With it, clients have to begin TLS.
    pub tls: Option<NbdTls>,
    /// The units, each an export under its `id`; at least one.
    pub luns: Vec<UnitIndex>,
    /// Who may have them; empty: everyone.
    pub groups: Vec<GroupIndex>,
    /// Where the address is given.
    pub place: Place,
}

/// Where a server of NBD listens, and where that is said.
fn read_nbd_place(
    section: &Section<'_>,
    directory: &Path,
) -> Result<(NbdPlace, Place), ConfigError> {
    let mode = section.field("mode");
    let (bind, socket) = (section.field("bind"), section.field("socket"));
    match (bind, socket) {
        (Some(_), Some(socket)) => Err(Rule::NotBoth { other: "bind" }.at(socket.place())),
        (None, Some(socket)) => {
            let mode = match mode {
                Some(field) => read_mode(field.text()?).at(|| field.place())?,
                None => SOCKET_MODE_DEFAULT,
            };
            let path = read_socket(&socket, directory)?;
            Ok((NbdPlace::Socket { path, mode }, socket.place()))
        }
        (bind, None) => {
            if let Some(mode) = mode {
                return Err(Rule::NotAlone { missing: "socket" }.at(mode.place()));
            }
            let address = match &bind {
                Some(field) => address::parse_nbd_bind(field.text()?).at(|| field.place())?,
                None => SocketAddr::from((Ipv4Addr::LOCALHOST, NBD_PORT)),
            };
            let place = bind.map_or_else(|| section.place(), |field| field.place());
            Ok((NbdPlace::Address(address), place))
        }
    }
}

fn read_nbd_tls(section: &Section<'_>, directory: &Path) -> Result<Option<NbdTls>, ConfigError> {
    let (certificate, key) = (section.field("certificate"), section.field("key"));
    let ca = section.field("ca");
    match (certificate, key, ca) {
        (None, None, None) => Ok(None),
        (Some(certificate), Some(key), ca) => Ok(Some(NbdTls {
            certificate: Certificate {
                certificate: read_path("path of the certificate", &certificate, directory)?,
                key: read_path("path of the key", &key, directory)?,
                place: certificate.place(),
            },
            ca: ca
                .map(|ca| read_path("path of the certificates", &ca, directory))
                .transpose()?,
        })),
        (Some(alone), None, _) => Err(Rule::NotAlone { missing: "key" }.at(alone.place())),
        (None, Some(alone), _) | (None, None, Some(alone)) => {
            let missing = "certificate";
            Err(Rule::NotAlone { missing }.at(alone.place()))
        }
    }
}

/// A mode of a file as it is usually written, in octal.
fn read_mode(text: &str) -> Result<u32, SocketMode> {
    let wrong = || SocketMode {
        text: text.to_owned(),
    };
    let is_octal = text.len() == 4 && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|_| is_octal);
    mode.filter(|mode| *mode <= 0o777).ok_or_else(wrong)
}

/// The servers of NBD of a file.
pub(crate) fn read_nbd(
    top: &Section<'_>,
    names: &AllNames<'_>,
    units: &[Unit],
    directory: &Path,
) -> Result<Vec<NbdServer>, ConfigError> {
    let mut servers = Vec::new();
    for entry in top.entries("nbd")? {
        let section = entry.section(SECTION_NBD)?;
        let luns = section.required("luns")?;
        let (at, place) = read_nbd_place(&section, directory)?;
        let server = NbdServer {
            at,
            tls: read_nbd_tls(&section, directory)?,
            luns: names.units.find_all(Some(luns.clone()), UnitIndex)?,
            groups: names.groups.find_all(section.field("groups"), GroupIndex)?,
            place,
        };
        if server.luns.is_empty() {
            let remedy = "name a lun, or remove the section";
            return Err(Rule::EmptyList { remedy }.at(luns.place()));
        }
        let of = |lun: &UnitIndex| units.get(lun.position());
        let mut found = server.luns.iter().filter_map(of);
        if let Some(unit) = found.find(|unit| !unit.store.is_disk()) {
            let lun = unit.to_string();
            return Err(NoDisk { lun }.at(luns.place()));
        }
        servers.push(server);
    }
    Ok(servers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_four_octal_digits_of_rights() {
        for (text, mode) in [("0000", 0), ("0660", 0o660), ("0777", 0o777)] {
            assert_eq!(read_mode(text).ok(), Some(mode), "{text}");
        }
        for text in ["1000", "660", "00660", "0680", "066x", "+660", ""] {
            assert!(read_mode(text).is_err(), "{text}");
        }
    }
}
