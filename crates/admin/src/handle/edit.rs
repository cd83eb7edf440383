//! Changes of single things: the document that runs is edited and planned or applied, on the revision it was read at.
//! A request without a revision is for the edits, not for the revision, so they are tried again when the configuration
//! changed meanwhile.

use std::sync::Arc;
use std::time::Instant;

use api::access::Role;
use api::control::Control;
use api::edit::{EDITS_MAX, Edit, Edits};
use api::plan::{Applied, Change, Inspection, Origin, Plan};
use api::problem::{Problem, ProblemKind};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use config::{Draft, EditError};

use super::configuration::{check_comment, check_revision};
use crate::answer::{self, Answer, Refusal, json_at};
use crate::app::App;
use crate::ask::{Terms, Told};
use crate::caller::Caller;
use crate::limits;

/// `POST /config/edits`
pub(crate) async fn edits(editor: Editor, Told(edits): Told<Edits>) -> Answer {
    check_comment(edits.comment.as_deref())?;
    check_number(edits.edits.len())?;
    let needed = edits.edits.iter().map(Edit::needs).max();
    let needed = needed.filter(|_| !editor.terms.is_plan);
    editor.caller.must_have(needed.unwrap_or(Role::Operator))?;
    editor.make(edits, false).await
}

fn check_number(edits: usize) -> Result<(), Refusal> {
    if edits <= EDITS_MAX {
        return Ok(());
    }
    let detail = format!(
        "a request makes {EDITS_MAX} edits at most, this one has {edits}; nothing was done, send them in several \
         requests or apply the whole document"
    );
    Err(Refusal::field("edits", detail))
}

/// A request for a change of what is configured: who asks for it, and on what terms.
#[derive(Debug)]
pub(crate) struct Editor {
    app: Arc<App>,
    caller: Caller,
    terms: Terms,
}

impl FromRequestParts<Arc<App>> for Editor {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refusal> {
        let unknown = || Refusal::new(ProblemKind::Unavailable, "it is not known who asks");
        Ok(Self {
            app: Arc::clone(app),
            caller: parts.extensions.get().cloned().ok_or_else(unknown)?,
            terms: Terms::from_request_parts(parts, app).await?,
        })
    }
}

impl Editor {
    /// Makes or plans one edit.
    pub(crate) async fn one(self, edit: Edit) -> Answer {
        let edits = Edits {
            edits: vec![edit],
            comment: None,
        };
        self.make(edits, true).await
    }

    /// Makes edits and answers when they have taken effect, or answers with their plan. `shows_new`: the answer says by
    /// its status whether a thing was made.
    async fn make(self, edits: Edits, shows_new: bool) -> Answer {
        let Self { app, caller, terms } = self;
        if terms.is_plan {
            let role = caller.role;
            let means = (role, Inspection::of(role));
            let ask = move |control: &dyn Control| plan(control, terms.only_at, edits, means);
            let plan = app.calls.read_much(ask).await?.good()?;
            return Ok(json_at(&*plan, plan.revision));
        }
        let change = move |control: &dyn Control| apply(control, terms.only_at, &caller, edits);
        let (applied, is_new) = app.calls.change(change).await??;
        let applied = app.calls.settle(applied).await;
        Ok(answer::applied(&applied, is_new && shows_new))
    }
}

/// Makes edits. The second value is true when the last of them has made a thing.
pub(super) fn apply(
    control: &dyn Control,
    only_at: Option<u64>,
    caller: &Caller,
    mut edits: Edits,
) -> Result<(Applied, bool), Problem> {
    // Nothing is kept for a change that cannot be made, and no edit is looked at: what runs is not in the document.
    control.check_changeable()?;
    check_revision(control.document().revision, only_at)?;
    let mut kept = Kept::new(control);
    kept.keep_secrets(&mut edits.edits)?;
    for _ in 0..limits::EDIT_TRIES_MAX {
        let document = control.document();
        check_revision(document.revision, only_at)?;
        let made = Made::of(&document.text, &edits.edits, caller.role)?;
        let change = Change {
            text: made.text,
            comment: edits.comment.clone(),
        };
        match control.apply(change, made.origin, Some(document.revision), &caller.author) {
            Err(problem) if problem.kind == ProblemKind::RevisionMismatch && only_at.is_none() => {}
            outcome => return outcome.map(|applied| (applied, made.is_new)),
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

/// What edits would do.
fn plan(
    control: &dyn Control,
    only_at: Option<u64>,
    mut edits: Edits,
    (role, inspection): (Role, Inspection),
) -> Result<Plan, Problem> {
    control.check_changeable()?;
    let document = control.document();
    check_revision(document.revision, only_at)?;
    let mut kept = Kept::new(control);
    match inspection {
        // Let go again when the plan is made.
        Inspection::Files => kept.keep_secrets(&mut edits.edits)?,
        Inspection::DocumentOnly => name_secrets(&mut edits.edits),
    }
    let made = Made::of(&document.text, &edits.edits, role)?;
    let plan = control.plan(&made.text, &made.origin, inspection)?;
    check_revision(plan.revision, Some(document.revision))?;
    Ok(plan)
}

/// What edits make of a document.
struct Made {
    text: String,
    origin: Origin,
    /// The last of them has made a thing.
    is_new: bool,
}

impl Made {
    fn of(text: &str, edits: &[Edit], role: Role) -> Result<Self, Problem> {
        let mut draft = draft(text)?;
        let mut is_new = false;
        let begin = Instant::now();
        for (at, edit) in edits.iter().enumerate() {
            if begin.elapsed() > limits::EDITS_TIME_MAX {
                return Err(Problem::new(
                    ProblemKind::TooLarge,
                    format!(
                        "{at} of {} edits of this configuration took more than {} s; nothing was done, send fewer in \
                         a request or apply the whole document",
                        edits.len(),
                        limits::EDITS_TIME_MAX.as_secs()
                    ),
                ));
            }
            is_new = draft.make(edit).map_err(|error| {
                let mut problem = problem_of(&error);
                if edits.len() > 1 {
                    problem.place = Some(format!("edits[{at}]"));
                }
                problem
            })?;
        }
        let renames = draft.renames();
        Ok(Self {
            text: draft.to_string(),
            origin: Origin::Edited { renames, role },
            is_new,
        })
    }
}

/// The document that runs, to be read or edited.
pub(crate) fn draft(text: &str) -> Result<Draft, Problem> {
    Draft::parse(text).map_err(|error| Problem::new(ProblemKind::InvalidConfig, error.to_string()))
}

/// The one table from a failed edit to a problem.
pub(crate) fn problem_of(error: &EditError) -> Problem {
    let kind = match error {
        EditError::NotFound { .. } | EditError::NotAtTarget { .. } => ProblemKind::NotFound,
        EditError::Exists { .. }
        | EditError::DeviceExists { .. }
        | EditError::SeveralGroups { .. }
        | EditError::InUse { .. }
        | EditError::LunTaken { .. }
        | EditError::LunShared { .. }
        | EditError::NoFreeLun { .. }
        | EditError::LastPortal { .. } => ProblemKind::Conflict,
        EditError::CannotShrink { .. }
        | EditError::SizeOfDevice { .. }
        | EditError::SizeOfDrive { .. }
        | EditError::SizeOfExport { .. }
        | EditError::SizeOfSnapshot { .. }
        | EditError::SizeOfMembers { .. } => ProblemKind::Refused,
        EditError::SecretMissing { .. } | EditError::Value { .. } => ProblemKind::BadRequest,
        EditError::Rule(_)
        | EditError::Size(_)
        | EditError::Store(_)
        | EditError::Address(_)
        | EditError::Name(_)
        | EditError::Quota(_)
        | EditError::HyperScsi(_) => ProblemKind::InvalidConfig,
    };
    Problem::new(kind, error.to_string())
}

/// Secrets that are kept for one change, and released when that is over.
struct Kept<'a> {
    control: &'a dyn Control,
    paths: Vec<String>,
}

impl<'a> Kept<'a> {
    fn new(control: &'a dyn Control) -> Self {
        let paths = Vec::new();
        Self { control, paths }
    }

    /// Puts secrets into files of the daemon; the edits name the files then.
    fn keep_secrets(&mut self, edits: &mut [Edit]) -> Result<(), Problem> {
        for one in edits.iter_mut().flat_map(Edit::secrets) {
            if let Some(secret) = one.secret.take() {
                let path = self.control.keep_secret(one.of, secret.as_str())?;
                self.paths.push(path.clone());
                *one.file = Some(path);
            }
        }
        Ok(())
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        for path in &self.paths {
            self.control.release_secret(path);
        }
    }
}

/// Has edits name files that are not there, for plans that look at none: whether a secret is the one that is kept
/// already is not for everybody to know.
fn name_secrets(edits: &mut [Edit]) {
    for one in edits.iter_mut().flat_map(Edit::secrets) {
        if one.secret.take().is_some() {
            *one.file = Some("a file that this change makes".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::Proof;
    use crate::testing::Double;

    #[test]
    fn edits_are_made_again_when_others_were_quicker_and_secrets_are_released_whatever_becomes_of_them()
     {
        let most = u32::try_from(limits::EDIT_TRIES_MAX).unwrap();
        for (races, only_at, expected) in [
            (0, None, Ok((8, true))),
            (most - 1, None, Ok((8, true))),
            (most, None, Err(ProblemKind::Conflict)),
            (0, Some(7), Ok((8, true))),
            (1, Some(7), Err(ProblemKind::RevisionMismatch)),
            (0, Some(6), Err(ProblemKind::RevisionMismatch)),
        ] {
            let daemon = Double::that_others_change(races);
            let caller = Caller {
                author: "uid 0".to_owned(),
                role: Role::Admin,
                proof: Proof::Socket,
            };
            let edits =
                r#"{"edits": [{"add": {"user": {"name": "eve", "secret": "secret of eve"}}}]}"#;
            let edits = serde_json::from_str(edits).unwrap();
            let made = apply(&daemon, only_at, &caller, edits);
            let made = made.map(|(applied, is_new)| (applied.revision, is_new));
            assert_eq!(
                made.map_err(|problem| problem.kind),
                expected,
                "{races} {only_at:?}"
            );
            let asked = daemon.asked();
            let ends = [asked.first(), asked.last()].map(Option::<&String>::cloned);
            let kept = [
                "keep secret User(\"eve\") secret of eve",
                "release secret kept/13",
            ];
            let is_kept = only_at != Some(6);
            assert_eq!(
                ends,
                kept.map(|one| is_kept.then(|| one.to_owned())),
                "{races} {only_at:?}"
            );
        }
    }

    #[test]
    fn a_request_makes_so_many_edits_and_not_one_more() {
        assert!(check_number(EDITS_MAX).is_ok());
        let refused = check_number(EDITS_MAX + 1).unwrap_err().0;
        assert_eq!(refused.place.as_deref(), Some("edits"));
        assert!(refused.detail.contains("this one has 1001"), "{refused:?}");
    }
}
