//! `tarn nbd`

use api::edit::{Edit, Keys, NbdKeys, Thing};
use api::spec::Nbd;
use clap::{Args, Subcommand};
use client::{Path, path};

use super::Outcome;
use super::api_session::{ApiSession, Consent};
use super::failure::Failure;
use super::remote::Ask;
use super::table::{Column, words};
use crate::error::plain;

const ADD_HELP: &str = "\
PLACE is the path of a unix socket, or an address: ADDRESS:PORT, IPv6 in brackets.

Examples:
  tarn nbd add 127.0.0.1:10809 --luns demo
  tarn nbd add /run/tarn/nbd.sock --luns demo,data --mode 0660";

const SET_HELP: &str = "\
An empty value takes the key out of the configuration.

Examples:
  tarn nbd set 127.0.0.1:10809 --luns demo,data
  tarn nbd set 127.0.0.1:10809 --groups ''";

/// `tarn nbd`
#[derive(Debug, Subcommand)]
pub enum NbdVerb {
    /// List all servers of NBD.
    List {},
    /// Show a server of NBD.
    Show {
        /// Its socket or address.
        place: String,
    },
    /// Serve units to clients of NBD.
    #[command(after_help = ADD_HELP)]
    Add(Given),
    /// Change a server of NBD.
    #[command(after_help = SET_HELP)]
    Set {
        /// What it is to have.
        #[command(flatten)]
        given: Given,
        /// Whether a person is asked.
        #[command(flatten)]
        consent: Consent,
    },
    /// Remove a server of NBD; its sessions end.
    Rm {
        /// Its socket or address.
        place: String,
        /// Whether a person is asked.
        #[command(flatten)]
        consent: Consent,
    },
}

/// A server of NBD, or keys of it.
#[derive(Args, Debug)]
pub struct Given {
    /// Its socket or address.
    #[arg(value_name = "PLACE")]
    place: String,
    /// Units that clients may have, separated by commas. Use it for each disk that is exported.
    #[arg(long, value_name = "ID,...")]
    luns: Option<String>,
    /// Groups of clients that find them, separated by commas. Without it all do. Use it to
    /// limit who has them.
    #[arg(long, value_name = "ID,...")]
    groups: Option<String>,
    /// Mode of the file of the socket, as 0660. Use it to let a group of users in.
    #[arg(long)]
    mode: Option<String>,
    /// File of the certificate, in PEM. Clients have to begin TLS then. Use it off
    /// loopback.
    #[arg(long, value_name = "FILE")]
    certificate: Option<String>,
    /// File of the private key, in PEM. Use it with --certificate.
    #[arg(long, value_name = "FILE")]
    key: Option<String>,
    /// File of certificates that vouch for those of clients, the key `ca`. Use it to ask clients
    /// for one.
    #[arg(id = "client_ca", long = "client-ca", value_name = "FILE")]
    ca: Option<String>,
}

const COLUMNS: &[Column<Nbd>] = &[
    words("place", |server| server.place().to_owned()),
    words("luns", |server| server.luns.join(", ")),
    words("groups", |server| server.groups.join(", ")),
    words("tls", |server| {
        let with_names = server.ca.as_ref().map(|_| "certificates of clients");
        let with = server.certificate.as_ref().map(|_| "yes");
        with_names.or(with).unwrap_or("no").to_owned()
    }),
];

fn at(place: &str) -> Path {
    path(&["nbd", place])
}

fn show(server: &Nbd) -> String {
    let texts = [
        ("place", Some(server.place().to_owned())),
        ("luns", Some(server.luns.join(", "))),
        (
            "groups",
            Some(server.groups.join(", ")).filter(|groups| !groups.is_empty()),
        ),
        ("mode", server.mode.clone()),
        ("certificate", server.certificate.clone()),
        ("key", server.key.clone()),
        ("ca", server.ca.clone()),
    ];
    let lines = texts
        .into_iter()
        .filter_map(|(key, text)| Some((key, text?)));
    lines
        .map(|(key, text)| format!("{key:<12} {}\n", plain(&text)))
        .collect()
}

fn listed(text: &str) -> Vec<String> {
    let names = text.split(',').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

impl Ask for NbdVerb {
    fn ask(&self, api: &ApiSession) -> Outcome {
        match self {
            Self::List {} => api.list(&path(&["nbd"]), COLUMNS),
            Self::Show { place } => api.show(&at(place), show),
            Self::Add(given) => given.add(api),
            Self::Set { given, consent } => given.set(api, *consent),
            Self::Rm { place, consent } => api.remove(
                &at(place),
                *consent,
                &format!("Remove the server of NBD at {place}?"),
            ),
        }
    }
}

impl Given {
    fn add(&self, api: &ApiSession) -> Outcome {
        // What is no address is a path: an address has a digit, a bracket or a colon and no slash.
        let is_address = !self.place.contains('/')
            && (self.place.contains(':') || self.place.parse::<std::net::IpAddr>().is_ok());
        let (bind, socket) = match is_address {
            true => (Some(self.place.clone()), None),
            false => (None, Some(self.place.clone())),
        };
        let server = Nbd {
            bind,
            socket,
            mode: self.mode.clone(),
            luns: self.luns.as_deref().map(listed).unwrap_or_default(),
            groups: self.groups.as_deref().map(listed).unwrap_or_default(),
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            ca: self.ca.clone(),
        };
        api.edit(Consent::GIVEN, vec![Edit::Add(Thing::Nbd(server))], None)
    }

    fn set(&self, api: &ApiSession, consent: Consent) -> Outcome {
        let keys = NbdKeys::of([&self.place])
            .with_some("mode", self.mode.clone())
            .with_some("luns", self.luns.as_deref().map(listed))
            .with_some("groups", self.groups.as_deref().map(listed))
            .with_some("certificate", self.certificate.clone())
            .with_some("key", self.key.clone())
            .with_some("ca", self.ca.clone());
        if keys.is_empty() {
            return Err(Failure::NothingGiven { noun: "nbd" });
        }
        api.edit(consent, vec![Edit::Set(Keys::Nbd(keys))], None)
    }
}
