//! What a change is refused for, and how that is said.

use api::plan::Origin;
use api::problem::{Problem, ProblemKind};

use super::planning::Planned;
use crate::StartError;
use crate::file::unwritten;
use crate::views;

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

/// Nothing of the change was made.
pub(super) fn unprepared(error: &StartError) -> Problem {
    let detail = crate::error::chain(error);
    if let StartError::StateUnusable { source, .. } = error {
        unwritten(detail, source)
    } else {
        failed(detail)
    }
}

pub(super) fn failed(detail: String) -> Problem {
    Problem::new(ProblemKind::ApplyFailed, detail)
}
