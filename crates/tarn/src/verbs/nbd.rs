//! `tarn nbd`

use api::edit::{Edit, Keys, Thing};
use api::spec::Nbd;
use clap::{Args, Subcommand};
use client::{Path, path};

use super::Outcome;
use super::api_session::{ApiSession, Consent};
use super::failure::Failure;
use super::keys::{Change, New};
use super::remote::Ask;
use super::table::{Column, words};
use daemon::error::plain;

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
    Add(Add),
    /// Change a server of NBD.
    #[command(after_help = SET_HELP)]
    Set(Set),
    /// Remove a server of NBD; its sessions end.
    Rm {
        /// Its socket or address.
        place: String,
        /// Whether a person is asked.
        #[command(flatten)]
        consent: Consent,
    },
}

/// A server of NBD that is made.
#[derive(Args, Debug)]
pub struct Add {
    /// Its socket or address.
    #[arg(value_name = "PLACE")]
    place: String,
    /// Its keys.
    #[command(flatten)]
    keys: New<Nbd>,
}

/// A server of NBD that is changed.
#[derive(Args, Debug)]
pub struct Set {
    /// Its socket or address.
    #[arg(value_name = "PLACE")]
    place: String,
    /// What changes.
    #[command(flatten)]
    keys: Change<Nbd>,
    /// Whether a person is asked.
    #[command(flatten)]
    consent: Consent,
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

impl Ask for NbdVerb {
    fn ask(&self, api: &ApiSession) -> Outcome {
        match self {
            Self::List {} => api.list(&path(&["nbd"]), COLUMNS),
            Self::Show { place } => api.show(&at(place), show),
            Self::Add(add) => add.ask(api),
            Self::Set(set) => set.ask(api),
            Self::Rm { place, consent } => api.remove(
                &at(place),
                *consent,
                &format!("Remove the server of NBD at {place}?"),
            ),
        }
    }
}

impl Add {
    fn ask(&self, api: &ApiSession) -> Outcome {
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
            ..self.keys.made()
        };
        api.edit(Consent::GIVEN, vec![Edit::Add(Thing::Nbd(server))], None)
    }
}

impl Set {
    fn ask(&self, api: &ApiSession) -> Outcome {
        if self.keys.is_empty() {
            return Err(Failure::NothingGiven { noun: "nbd" });
        }
        let keys = self.keys.of([&self.place]);
        api.edit(self.consent, vec![Edit::Set(Keys::Nbd(keys))], None)
    }
}
