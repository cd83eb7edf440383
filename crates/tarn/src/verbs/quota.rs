//! `tarn quota`

use api::edit::{Edit, Keys, Thing};
use api::{spec, view};
use clap::{Args, Subcommand};
use client::{Path, path};

use super::Outcome;
use super::api_session::{ApiSession, Consent};
use super::failure::Failure;
use super::human;
use super::keys::{Change, New};
use super::remote::Ask;
use super::table::{Column, figures, words};
use daemon::error::plain;

const ADD_HELP: &str = "\
OF says which disks are counted: owner:NAME, pool:DIRECTORY, or pool:rbd:POOL.

Examples:
  tarn quota add owner:accounts --provisioned 2T --used 500G
  tarn quota add pool:/srv --used 8T --soft 80";

const SET_HELP: &str = "\
An empty size ends a limit, and --soft 0 gives the default back.

Examples:
  tarn quota set owner:accounts --used 600G";

/// `tarn quota`
#[derive(Debug, Subcommand)]
pub enum QuotaVerb {
    /// List all quotas, and what the disks hold that they count.
    List {},
    /// Show a quota.
    Show {
        /// Which: owner:NAME or pool:PLACE.
        of: String,
    },
    /// Add a quota.
    #[command(after_help = ADD_HELP)]
    Add(Add),
    /// Change a quota.
    #[command(after_help = SET_HELP)]
    Set(Set),
    /// Remove a quota.
    Rm {
        /// Which: owner:NAME or pool:PLACE.
        of: String,
        /// Whether a person is asked.
        #[command(flatten)]
        consent: Consent,
    },
}

/// A quota that is made.
#[derive(Args, Debug)]
pub struct Add {
    /// Which disks it counts: owner:NAME or pool:PLACE.
    #[arg(value_name = "OF")]
    of: String,
    /// Its keys.
    #[command(flatten)]
    keys: New<spec::Quota>,
}

/// A quota that is changed.
#[derive(Args, Debug)]
pub struct Set {
    /// Which disks it counts: owner:NAME or pool:PLACE.
    #[arg(value_name = "OF")]
    of: String,
    /// What changes.
    #[command(flatten)]
    keys: Change<spec::Quota>,
}

/// Of how many bytes how many are there.
fn of_bytes(bytes: Option<u64>, most: Option<u64>) -> String {
    let text = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), human::size);
    format!("{} of {}", text(bytes), text(most))
}

const COLUMNS: &[Column<view::Quota>] = &[
    words("quota", |quota| quota.name.clone()),
    figures("provisioned", |quota| {
        of_bytes(Some(quota.provisioned_bytes), quota.provisioned_max_bytes)
    }),
    figures("used", |quota| {
        of_bytes(quota.used_bytes, quota.used_max_bytes)
    }),
    words("space", |quota| quota.space.clone()),
    words("luns", |quota| quota.luns.join(", ")),
];

fn at(of: &str) -> Path {
    path(&["quotas", of])
}

fn show(quota: &view::Quota) -> String {
    let lines = [
        ("quota", quota.name.clone()),
        (
            "provisioned",
            of_bytes(Some(quota.provisioned_bytes), quota.provisioned_max_bytes),
        ),
        ("used", of_bytes(quota.used_bytes, quota.used_max_bytes)),
        ("space", quota.space.clone()),
        ("luns", quota.luns.join(", ")),
    ];
    lines
        .into_iter()
        .map(|(key, text)| format!("{key:<12} {}\n", plain(&text)))
        .collect()
}

impl Ask for QuotaVerb {
    fn ask(&self, api: &ApiSession) -> Outcome {
        match self {
            Self::List {} => api.list(&path(&["quotas"]), COLUMNS),
            Self::Show { of } => api.show(&at(of), show),
            Self::Add(add) => add.ask(api),
            Self::Set(set) => set.ask(api),
            Self::Rm { of, consent } => {
                api.remove(&at(of), *consent, &format!("Remove quota {of}?"))
            }
        }
    }
}

impl Add {
    fn ask(&self, api: &ApiSession) -> Outcome {
        let (owner, pool) = match self.of.split_once(':') {
            Some(("owner", owner)) => (Some(owner.to_owned()), None),
            Some(("pool", pool)) => (None, Some(pool.to_owned())),
            Some(_) | None => {
                return Err(Failure::QuotaOfNothing {
                    of: self.of.clone(),
                });
            }
        };
        let quota = spec::Quota {
            owner,
            pool,
            ..self.keys.made()
        };
        api.edit(Consent::GIVEN, vec![Edit::Add(Thing::Quota(quota))], None)
    }
}

impl Set {
    fn ask(&self, api: &ApiSession) -> Outcome {
        if self.keys.is_empty() {
            return Err(Failure::NothingGiven { noun: "quota" });
        }
        let keys = self.keys.of([&self.of]);
        api.edit(Consent::GIVEN, vec![Edit::Set(Keys::Quota(keys))], None)
    }
}
