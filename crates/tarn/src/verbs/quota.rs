//! `tarn quota`

use api::edit::{Edit, Keys, QuotaKeys, Thing};
use api::{spec, view};
use clap::{Args, Subcommand};
use client::{Path, path};

use super::Outcome;
use super::api_session::{ApiSession, Consent};
use super::failure::Failure;
use super::human;
use super::remote::Ask;
use super::table::{Column, figures, words};
use crate::error::plain;

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
    Add(Given),
    /// Change a quota.
    #[command(after_help = SET_HELP)]
    Set(Given),
    /// Remove a quota.
    Rm {
        /// Which: owner:NAME or pool:PLACE.
        of: String,
        /// Whether a person is asked.
        #[command(flatten)]
        consent: Consent,
    },
}

/// A quota, or keys of it.
#[derive(Args, Debug)]
pub struct Given {
    /// Which disks it counts: owner:NAME or pool:PLACE.
    #[arg(value_name = "OF")]
    of: String,
    /// The most that the sizes of the disks may be together, as 2T. Use it to limit promises.
    #[arg(long, value_name = "SIZE")]
    provisioned: Option<String>,
    /// The most space that the disks may take together, as 500G. Use it to limit real use.
    #[arg(long, value_name = "SIZE")]
    used: Option<String>,
    /// The part of --used, in percent, from which on everyone is notified. Use it to
    /// learn of it in time.
    #[arg(long, value_name = "PERCENT")]
    soft: Option<u16>,
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
            Self::Add(given) => given.add(api),
            Self::Set(given) => given.set(api),
            Self::Rm { of, consent } => {
                api.remove(&at(of), *consent, &format!("Remove quota {of}?"))
            }
        }
    }
}

impl Given {
    fn add(&self, api: &ApiSession) -> Outcome {
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
            provisioned: self.provisioned.clone(),
            used: self.used.clone(),
            soft: self.soft,
        };
        api.edit(Consent::GIVEN, vec![Edit::Add(Thing::Quota(quota))], None)
    }

    fn set(&self, api: &ApiSession) -> Outcome {
        let keys = QuotaKeys::of([&self.of])
            .with_some("provisioned", self.provisioned.clone())
            .with_some("used", self.used.clone())
            .with_some("soft", self.soft);
        if keys.is_empty() {
            return Err(Failure::NothingGiven { noun: "quota" });
        }
        api.edit(Consent::GIVEN, vec![Edit::Set(Keys::Quota(keys))], None)
    }
}
