//! What a change is refused for before anything is done.

use api::plan::Origin;
use api::problem::{Problem, ProblemKind};

use super::planning::Planned;
use crate::daemon::views;

pub(super) fn check_revision(runs: u64, only_at: Option<u64>) -> Result<(), Problem> {
    if only_at.is_none_or(|wanted| wanted == runs) {
        return Ok(());
    }
    let detail = format!("revision {runs} runs; read it and make the change again");
    let mut problem = Problem::new(ProblemKind::RevisionMismatch, detail);
    problem.revision = Some(runs);
    Err(problem)
}

/// Refuses what the role of the caller may not do, by what the change does and not by what its edits are called.
pub(super) fn check_role(origin: &Origin, planned: &Planned) -> Result<(), Problem> {
    match origin {
        Origin::Edited { role, .. } if *role < planned.needs => {
            let detail = format!(
                "the role {role:?} resizes and renames luns, and this change is more: {}",
                views::summary(&planned.plan.steps).join(", ")
            );
            Err(Problem::new(ProblemKind::Forbidden, detail.to_lowercase()))
        }
        Origin::Edited { .. } | Origin::Written | Origin::Past => Ok(()),
    }
}
