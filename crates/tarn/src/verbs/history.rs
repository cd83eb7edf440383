//! `tarn history`, `tarn rollback`

use api::plan::{Document, Revision};
use api::request;
use clap::Args;
use client::path;

use super::desk::Desk;
use super::failure::Failure;
use super::remote::Ask;
use super::table::{Column, figures, words};
use super::{Outcome, changes, configuration, human, terminal};

/// `tarn history`
#[derive(Args, Debug)]
pub struct History {}

const ROLLBACK_HELP: &str = "\
The text of the earlier revision becomes a new revision. On a terminal, the plan is shown and has
to be confirmed.

Examples:
  tarn rollback
  tarn rollback 41 --comment 'the second shelf is back' --yes";

/// `tarn rollback`
#[derive(Args, Debug)]
#[command(after_help = ROLLBACK_HELP)]
pub struct Rollback {
    /// Revision to go back to. [default: the one before the running one]
    revision: Option<u64>,
    /// What the rollback is for. Use it to explain the revision in the history.
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
    /// Do not ask for confirmation. Use it in scripts.
    #[arg(long)]
    yes: bool,
}

const COLUMNS: &[Column<Revision>] = &[
    figures("revision", |r| r.revision.to_string()),
    words("applied", |r| human::moment(r.applied_ms)),
    words("by", |r| r.author.clone()),
    words("what for, or what", what),
];

fn what(revision: &Revision) -> String {
    if let Some(comment) = &revision.comment {
        return comment.clone();
    }
    match revision.summary.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first, rest @ ..] => format!("{first}, and {} more", rest.len()),
    }
}

impl Ask for History {
    fn ask(&self, desk: &Desk) -> Outcome {
        desk.list(&path(&["config", "history"]), COLUMNS)
    }
}

impl Ask for Rollback {
    fn ask(&self, desk: &Desk) -> Outcome {
        let history = desk.get::<Vec<Revision>>(&path(&["config", "history"]))?;
        let running = desk.get::<Document>(&path(&["config"]))?.value.revision;
        let earlier = history.value.iter().find(|r| r.revision < running);
        let revision = self.revision.or_else(|| earlier.map(|r| r.revision));
        let revision = revision.ok_or(Failure::NoEarlier)?;
        if !self.yes && !desk.paper.is_json && terminal::has_person() {
            agree(desk, revision)?;
        }
        let body = request::Rollback {
            revision,
            comment: self.comment.clone(),
        };
        let answer = terminal::busy("applying", || {
            let at = path(&["config", "rollback"]);
            desk.client.post(&at, &body, Some(running))
        })?;
        desk.applied(&answer)
    }
}

/// Shows a person the plan and asks.
fn agree(desk: &Desk, revision: u64) -> Result<(), Failure> {
    let at = path(&["config", "history", &revision.to_string()]);
    let text = desk.get::<Document>(&at)?.value.text;
    let plan = configuration::plan(desk, text)?.value;
    desk.paper.remark(&changes::plan(desk.paper, &plan));
    configuration::check_applicable(&plan)?;
    desk.confirm(false, &format!("Go back to revision {revision}?"))
}
