//! `tarn group`

use api::edit::{Edit, GroupKeys, Keys, Thing};
use api::spec::Group;
use clap::{Args, Subcommand};
use client::{Path, path};

use super::Outcome;
use super::api_session::{ApiSession, Consent};
use super::failure::Failure;
use super::remote::Ask;
use super::table::{Column, figures, words};
use daemon::error::plain;

/// `tarn group`
#[derive(Debug, Subcommand)]
pub enum GroupVerb {
    /// List all groups.
    List {},
    /// Show the members of a group.
    Show {
        /// The group.
        id: String,
    },
    /// Add a group.
    Add(Add),
    /// Change the members of a group.
    Set(Set),
    /// Remove a group that no target refers to.
    Rm {
        /// The group.
        id: String,
        /// Whether a person is asked.
        #[command(flatten)]
        consent: Consent,
    },
}

const ADD_HELP: &str = "\
INITIATOR is a name, a pattern of names, an address, a network, or a CHAP user; what follows
a ! is not in the group.

Examples:
  tarn group add blades 'iqn.2026-11.example:blade*' 192.0.2.0/24
  tarn group add others '*' '!iqn.2026-11.example:blade*'";

/// `tarn group add`
#[derive(Args, Debug)]
#[command(after_help = ADD_HELP)]
pub struct Add {
    /// Id of the new group.
    id: String,
    /// Members of the group.
    #[arg(required = true, value_name = "INITIATOR")]
    initiators: Vec<String>,
}

const SET_HELP: &str = "\
Examples:
  tarn group set blades --add 'iqn.2026-11.example:blade9' --remove 'iqn.2026-11.example:blade1'";

/// `tarn group set`
#[derive(Args, Debug)]
#[command(after_help = SET_HELP)]
pub struct Set {
    /// The group.
    id: String,
    /// New members; they replace all present ones.
    #[arg(value_name = "INITIATOR", conflicts_with_all = ["add", "remove"])]
    initiators: Vec<String>,
    /// Member to add; repeat the flag for several. Use it to keep the other members.
    #[arg(long, value_name = "INITIATOR")]
    add: Vec<String>,
    /// Member to remove; repeat the flag for several. Use it to keep the other members.
    #[arg(long, value_name = "INITIATOR")]
    remove: Vec<String>,
    /// Whether a person is asked.
    #[command(flatten)]
    consent: Consent,
}

const COLUMNS: &[Column<Group>] = &[
    words("id", |g| g.id.clone()),
    figures("count", |g| g.initiators.len().to_string()),
    words("initiators", |g| g.initiators.join(", ")),
];

impl Ask for GroupVerb {
    fn ask(&self, api: &ApiSession) -> Outcome {
        match self {
            Self::List {} => api.list(&path(&["groups"]), COLUMNS),
            Self::Show { id } => api.show(&at(id), show),
            Self::Add(add) => {
                let group = Group {
                    id: add.id.clone(),
                    initiators: add.initiators.clone(),
                };
                api.edit(Consent::GIVEN, vec![Edit::Add(Thing::Group(group))], None)
            }
            Self::Set(set) => set.ask(api),
            Self::Rm { id, consent } => {
                api.remove(&at(id), *consent, &format!("Remove group {id}?"))
            }
        }
    }
}

fn at(id: &str) -> Path {
    path(&["groups", id])
}

fn show(group: &Group) -> String {
    let lines = group.initiators.iter();
    lines
        .map(|initiator| format!("{}\n", plain(initiator)))
        .collect()
}

impl Set {
    fn ask(&self, api: &ApiSession) -> Outcome {
        let is_given = [&self.initiators, &self.add, &self.remove];
        if is_given.iter().all(|list| list.is_empty()) {
            return Err(Failure::NothingGiven { noun: "group" });
        }
        let is_whole = !self.initiators.is_empty();
        let keys = GroupKeys {
            id: self.id.clone(),
            initiators: is_whole.then(|| self.initiators.clone()),
            add: self.add.clone(),
            remove: self.remove.clone(),
        };
        api.edit(self.consent, vec![Edit::Set(Keys::Group(keys))], None)
    }
}
