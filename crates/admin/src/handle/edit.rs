//! A change of one thing: the document that runs is edited and applied, on the revision it was read
//! at. Whoever names no revision wants the edit, not the revision, so it is made anew when the
//! configuration changed meanwhile.

use std::sync::Arc;

use api::control::Control;
use api::plan::{Applied, Change};
use api::problem::{Problem, ProblemKind};
use config::{Draft, EditError};

use crate::answer::{self, Answer};
use crate::app::App;
use crate::ask::IfMatch;
use crate::guard::Caller;
use crate::limits;

/// Edits a draft; true when it made a thing.
pub(crate) trait Edit: Fn(&mut Draft) -> Result<bool, EditError> + Send + 'static {}

impl<F: Fn(&mut Draft) -> Result<bool, EditError> + Send + 'static> Edit for F {}

/// Makes an edit and answers when it has taken effect.
pub(crate) async fn make(
    app: &Arc<App>,
    caller: Caller,
    IfMatch(only_at): IfMatch,
    edit: impl Edit,
) -> Answer {
    let change = move |control: &dyn Control| apply(control, only_at, &caller.author, &edit);
    let (applied, is_new) = app.calls.change(change).await??;
    let applied = app.calls.settle(applied).await;
    Ok(answer::applied(&applied, is_new))
}

/// Makes an edit. The second value is true when a thing was made.
pub(crate) fn apply(
    control: &dyn Control,
    only_at: Option<u64>,
    author: &str,
    edit: &impl Edit,
) -> Result<(Applied, bool), Problem> {
    for _ in 0..limits::EDIT_TRIES_MAX {
        let document = control.document();
        check_revision(document.revision, only_at)?;
        let mut draft = draft(&document.text)?;
        let is_new = edit(&mut draft).map_err(|error| problem_of(&error))?;
        let change = Change {
            text: draft.to_string(),
            comment: None,
        };
        match control.apply(change, Some(document.revision), author) {
            Err(problem) if problem.kind == ProblemKind::RevisionMismatch && only_at.is_none() => {}
            outcome => return outcome.map(|applied| (applied, is_new)),
        }
    }
    Err(Problem::new(
        ProblemKind::Conflict,
        format!(
            "the configuration changed meanwhile, {} times in a row; try again",
            limits::EDIT_TRIES_MAX
        ),
    ))
}

/// 412 when another revision runs than the one asked for.
pub(crate) fn check_revision(runs: u64, only_at: Option<u64>) -> Result<(), Problem> {
    match only_at {
        Some(wanted) if wanted != runs => {
            let mut problem = Problem::new(
                ProblemKind::RevisionMismatch,
                format!("If-Match names revision {wanted}, but {runs} runs; read it again first"),
            );
            problem.revision = Some(runs);
            Err(problem)
        }
        Some(_) | None => Ok(()),
    }
}

/// The document that runs, to be read or edited.
pub(crate) fn draft(text: &str) -> Result<Draft, Problem> {
    Draft::parse(text).map_err(|error| Problem::new(ProblemKind::InvalidConfig, error.to_string()))
}

/// The one table from a failed edit to a problem.
fn problem_of(error: &EditError) -> Problem {
    let kind = match error {
        EditError::NotFound { .. } => ProblemKind::NotFound,
        EditError::Exists { .. }
        | EditError::InUse { .. }
        | EditError::LastPortal { .. }
        | EditError::CannotShrink { .. }
        | EditError::SizeOfDevice { .. } => ProblemKind::Conflict,
        EditError::SecretMissing { .. } => ProblemKind::BadRequest,
        EditError::Rule(_) => ProblemKind::InvalidConfig,
        // The type may get variants; whatever cannot be written breaks a rule.
        _ => ProblemKind::InvalidConfig,
    };
    Problem::new(kind, error.to_string())
}
