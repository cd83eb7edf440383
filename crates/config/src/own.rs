//! Stores that this very Tarn exports: it would have to serve them before it could open them.
//!
//! What is compared is what is written. A name other than that of this machine, and an address of a server that listens
//! at all of them, may lead here as well; who opens an export looks at where it leads.

use std::net::{IpAddr, SocketAddr};

use crate::error::Broken as _;
use crate::{ConfigError, HostPort, Model, NbdPlace, Place, ServerAddress, StoreSpec, Unit};

/// A store that this very Tarn has to serve before it can open it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "store {store:?} is an export of this Tarn itself, of the server at {first}, which serves when all stores are \
     open; name the store of that lun, or an export of another server"
)]
pub(crate) struct StoreOfOwn {
    /// The export.
    pub(crate) store: String,
    /// Where the server is given.
    pub(crate) first: Place,
}

impl Model {
    /// No store is an export of NBD, a device of HyperSCSI or a LUN of iSCSI of this configuration.
    pub(crate) fn check_own(&self) -> Result<(), ConfigError> {
        let stores = self.units().iter().flat_map(Unit::stores);
        for (store, place) in stores {
            if let Some(first) = self.own_server(store) {
                let (store, first) = (store.at.to_string(), first.clone());
                return Err(StoreOfOwn { store, first }.at(place.clone()));
            }
        }
        Ok(())
    }

    /// Where the server of this store is given, if it is one of this configuration.
    fn own_server(&self, store: &StoreSpec) -> Option<&Place> {
        if let Some(export) = store.at.export() {
            let mut all = self.nbd().iter();
            let own = all.find(|one| is_reached(&one.at, export.server()))?;
            return Some(&own.place);
        }
        if let Some(lun) = store.at.target_lun() {
            let own = self.targets().iter().find(|one| one.name == *lun.target());
            let mut portals = own?.portals.iter();
            let portal = portals.find(|portal| leads_to(portal.bind, lun.portal()))?;
            return Some(&portal.place);
        }
        let device = store.at.device()?;
        let asked = device.udp()?;
        let mut all = self.hyperscsi().iter();
        let own = all.find(|one| {
            let leads_here = one.at.udp().is_some_and(|bind| leads_to(bind, asked));
            one.name == device.group() && leads_here
        })?;
        Some(&own.place)
    }
}

/// Whether what is written as the server of a store leads to one that listens here.
fn is_reached(at: &NbdPlace, server: &ServerAddress) -> bool {
    match (at, server) {
        (NbdPlace::Address(bind), ServerAddress::Tcp(server)) => leads_to(*bind, server),
        (NbdPlace::Socket { path, .. }, ServerAddress::Unix(socket)) => path == socket,
        (NbdPlace::Address(_), ServerAddress::Unix(_))
        | (NbdPlace::Socket { .. }, ServerAddress::Tcp(_)) => false,
    }
}

/// Whether a host and a port lead to a socket that is bound to this address.
fn leads_to(bind: SocketAddr, server: &HostPort) -> bool {
    let (ip, is_any) = (bind.ip(), bind.ip().is_unspecified());
    let leads = match server.host.parse::<IpAddr>() {
        Ok(host) if is_any => host.is_loopback() && host.is_ipv4() == ip.is_ipv4(),
        Ok(host) => host == ip,
        Err(_) => server.host == "localhost" && (is_any || ip.is_loopback()),
    };
    bind.port() == server.port && leads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_what_leads_to_it() {
        let tcp = |bind: &str| NbdPlace::Address(bind.parse().unwrap());
        let unix = NbdPlace::Socket {
            path: "/run/a.sock".into(),
            mode: 0o600,
        };
        let (one, all, other) = (
            tcp("127.0.0.1:10809"),
            tcp("[::]:10809"),
            tcp("192.0.2.1:10809"),
        );
        for (store, leads_to) in [
            ("nbd://127.0.0.1/a", [true, false, false, false]),
            ("nbds://localhost:10809/b", [true, true, false, false]),
            ("nbd://[::1]/a", [false, true, false, false]),
            ("nbd://127.0.0.1:10810/a", [false; 4]),
            ("nbd://192.0.2.1/a", [false, false, true, false]),
            ("nbd://host.example/a", [false; 4]),
            (
                "nbd+unix:///a?socket=/run/a.sock",
                [false, false, false, true],
            ),
            ("nbd+unix:///a?socket=/run/b.sock", [false; 4]),
        ] {
            let store = StoreSpec::parse(store).unwrap();
            let server = store.at.export().unwrap().server();
            let found = [&one, &all, &other, &unix].map(|at| is_reached(at, server));
            assert_eq!(found, leads_to, "{server:?}");
        }
    }

    #[test]
    fn own_exports_and_devices_are_refused_and_those_of_others_are_not() {
        let with = |store: &str| {
            let text = format!(
                r#"
[[lun]]
id = "a"
store = "mem:1M"
[[store]]
id = "m"
store = "{store}"
[[lun]]
id = "b"
store = "concat:m"
[[nbd]]
bind = "127.0.0.1:10809"
luns = ["a"]
[[target]]
name = "iqn.2026-11.example.tarn:t"
portals = ["127.0.0.1:3261"]
luns = [{{ lun = 0, id = "a" }}]
[[hyperscsi.group]]
name = "g"
udp = "127.0.0.1:5674"
password = "long enough"
[[hyperscsi.group.device]]
id = "a"
"#
            );
            Model::from_toml(&text, std::path::Path::new("/etc/tarn/tarn.toml"))
        };
        for store in [
            "nbd://localhost/a",
            "hyperscsi://g/a?udp=localhost:5674&password_file=/p",
            "iscsi://localhost:3261/iqn.2026-11.example.tarn:t/0",
        ] {
            let error = with(store).unwrap_err().to_string();
            assert!(error.contains("store[0].store"), "{error}");
            assert!(
                error.contains("is an export of this Tarn itself"),
                "{error}"
            );
        }
        for store in [
            "nbd://localhost:1/a",
            "iscsi://localhost/iqn.2026-11.example.tarn:t/0",
            "iscsi://localhost:3261/iqn.2026-11.example.tarn:u/0",
            "hyperscsi://h/a?udp=localhost:5674&password_file=/p",
            "hyperscsi://g/a?udp=192.0.2.1:5674&password_file=/p",
        ] {
            assert!(with(store).is_ok(), "{store}");
        }
    }
}
