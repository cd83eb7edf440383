//! `tarn history`, `tarn rollback`

use api::plan::{Document, Plan, Revision};
use api::request;
use clap::Args;
use client::path;

use super::api_session::{ApiSession, without_person};
use super::failure::Failure;
use super::remote::Ask;
use super::table::{Column, figures, words};
use super::{Outcome, changes, configuration, human, terminal};

/// `tarn history`
#[derive(Args, Debug)]
pub struct History {}

const ROLLBACK_HELP: &str = "\
The text of the earlier revision becomes a new revision. On a terminal, the plan is shown and has
to be confirmed; elsewhere, sessions lose something only with --yes. After a rollback, tarn rollback
without a revision undoes it.

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
    fn ask(&self, api: &ApiSession) -> Outcome {
        api.list(&path(&["config", "history"]), COLUMNS)
    }
}

impl Ask for Rollback {
    fn ask(&self, api: &ApiSession) -> Outcome {
        let history = api.get::<Vec<Revision>>(&path(&["config", "history"]))?;
        let running = api.get::<Document>(&path(&["config"]))?.value.revision;
        let earlier = history.value.iter().find(|r| r.revision < running);
        let revision = self.revision.or_else(|| earlier.map(|r| r.revision));
        let revision = revision.ok_or(Failure::NoEarlier)?;
        let undone = history.value.iter().find(|r| r.revision == running);
        if self.revision.is_none() && undone.is_some_and(is_rollback) {
            api.note(&format!(
                "revision {running} is a rollback, and this undoes it: it goes back to revision {revision}; to go \
                 further back, name a revision of tarn history"
            ));
        }
        if !self.yes {
            agree(api, revision)?;
        }
        let body = request::Rollback {
            revision,
            comment: self.comment.clone(),
        };
        let answer = terminal::busy("applying", || {
            let at = path(&["config", "rollback"]);
            api.client.post(&at, &body, Some(running))
        })?;
        api.applied(&answer)
    }
}

/// By the comment that the daemon gives one.
fn is_rollback(revision: &Revision) -> bool {
    let comment = revision.comment.as_deref();
    comment.is_some_and(|comment| comment.starts_with("back to revision "))
}

/// Shows a person the plan and asks; without one, nothing may be taken away from sessions.
fn agree(api: &ApiSession, revision: u64) -> Result<(), Failure> {
    let at = path(&["config", "rollback"]).with("plan", Some("true"));
    let body = request::Rollback {
        revision,
        comment: None,
    };
    let plan = api.client.post::<Plan>(&at, &body, None)?.value;
    if !api.may_ask() {
        return without_person(&plan);
    }
    changes::warn(api.output, &plan.warnings);
    api.output.remark(&changes::plan(api.output, &plan));
    configuration::check_applicable(&plan)?;
    api.confirm(false, &format!("Go back to revision {revision}?"))
}
