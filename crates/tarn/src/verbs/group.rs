//! `tarn group`

use api::spec::Group;
use clap::{Args, Subcommand};
use client::path;

use super::Outcome;
use super::desk::Desk;
use super::failure::Failure;
use super::remote::Ask;
use super::resource::{self, Resource as _};
use super::table::{Column, figures, words};
use crate::error::plain;

/// `tarn group`
#[derive(Debug, Subcommand)]
pub enum GroupVerb {
    /// List all groups.
    List {},
    /// Tell who is in one group.
    Show {
        /// The group.
        id: String,
    },
    /// Add a group.
    Add(Add),
    /// Change who is in a group.
    Set(Set),
    /// Remove a group that no unit is shown to.
    Rm {
        /// The group.
        id: String,
        /// Do not ask. For scripts.
        #[arg(long)]
        yes: bool,
    },
}

const ADD_HELP: &str = "\
INITIATOR is a name, a pattern of names, an address, a network, or a CHAP user.

Examples:
  tarn group add blades 'iqn.2026-11.example:blade*' 192.0.2.0/24";

/// `tarn group add`
#[derive(Args, Debug)]
#[command(after_help = ADD_HELP)]
pub struct Add {
    /// What units shall call the group.
    id: String,
    /// Who is in it.
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
    /// Who is in it, instead of all who were.
    #[arg(value_name = "INITIATOR", conflicts_with_all = ["add", "remove"])]
    initiators: Vec<String>,
    /// Who is in it as well, once for each. For who keeps the others.
    #[arg(long, value_name = "INITIATOR")]
    add: Vec<String>,
    /// Who is in it no more, once for each. For who keeps the others.
    #[arg(long, value_name = "INITIATOR")]
    remove: Vec<String>,
}

const COLUMNS: &[Column<Group>] = &[
    words("id", |g| g.id.clone()),
    figures("count", |g| g.initiators.len().to_string()),
    words("initiators", |g| g.initiators.join(", ")),
];

impl Ask for GroupVerb {
    fn ask(&self, desk: &Desk) -> Outcome {
        match self {
            Self::List {} => desk.list(&path(&["groups"]), COLUMNS),
            Self::Show { id } => desk.show(&Group::at(id), show),
            Self::Add(add) => resource::add(
                desk,
                &Group {
                    id: add.id.clone(),
                    initiators: add.initiators.clone(),
                },
            ),
            Self::Set(set) => set.ask(desk),
            Self::Rm { id, yes } => {
                desk.remove(&Group::at(id), *yes, &format!("Remove group {id}?"))
            }
        }
    }
}

fn show(group: &Group) -> String {
    let lines = group.initiators.iter();
    lines
        .map(|initiator| format!("{}\n", plain(initiator)))
        .collect()
}

impl Set {
    fn ask(&self, desk: &Desk) -> Outcome {
        let is_given = [&self.initiators, &self.add, &self.remove];
        if is_given.iter().all(|list| list.is_empty()) {
            return Err(Failure::NothingGiven { noun: "group" });
        }
        resource::set(desk, &self.id, |group: &mut Group| {
            self.alter(&mut group.initiators)
        })
    }

    fn alter(&self, initiators: &mut Vec<String>) {
        if !self.initiators.is_empty() {
            initiators.clone_from(&self.initiators);
        }
        initiators.retain(|initiator| !self.remove.contains(initiator));
        for new in &self.add {
            if !initiators.contains(new) {
                initiators.push(new.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stays_keeps_the_place_and_who_is_there_is_not_added_again() {
        let texts = |texts: &[&str]| texts.iter().map(|&t| t.to_owned()).collect::<Vec<_>>();
        let set = |initiators: &[&str], add: &[&str], remove: &[&str]| Set {
            id: "g".to_owned(),
            initiators: texts(initiators),
            add: texts(add),
            remove: texts(remove),
        };
        for (set, expected) in [
            (set(&[], &["c", "b"], &[]), &["a", "b", "c"][..]),
            (set(&[], &["c"], &["a"]), &["b", "c"]),
            (set(&["x", "y"], &[], &[]), &["x", "y"]),
        ] {
            let mut initiators = texts(&["a", "b"]);
            set.alter(&mut initiators);
            assert_eq!(initiators, expected, "{set:?}");
        }
    }
}
