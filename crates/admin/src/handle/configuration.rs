//! The configuration as a document: read, plan, apply, history.

use std::borrow::Cow;
use std::sync::Arc;

use api::access::Role;
use api::control::Control;
use api::plan::{Change, Document, Inspection, Origin};
use api::problem::{Problem, ProblemKind};
use api::request::Rollback;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse as _;

use super::daemon::no_revision;
use crate::answer::{self, Answer, Refusal, json, json_at};
use crate::app::App;
use crate::ask::{Named, Terms, Told};
use crate::caller::Caller;

/// Characters of a comment.
const COMMENT_MAX: usize = 200;

/// `GET /config`
pub(crate) async fn document(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Answer {
    let document = app.calls.read_much(|control| control.document()).await?;
    let tag = answer::etag(document.revision);
    let known = headers.get(header::IF_NONE_MATCH);
    if known.is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
    }
    Ok(json_at(
        &shown_to(&caller, document.clone()),
        document.revision,
    ))
}

/// A document without what only an administrator may read.
fn shown_to(caller: &Caller, mut document: Document) -> Document {
    if caller.role < Role::Admin {
        document.text = config::without_secrets(&document.text).into_owned();
    }
    document
}

/// `GET /config/effective`
pub(crate) async fn effective(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Answer {
    let document = app.calls.read_much(|control| control.effective()).await?;
    Ok(json_at(
        &shown_to(&caller, document.clone()),
        document.revision,
    ))
}

/// `PUT /config`
pub(crate) async fn apply(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    terms: Terms,
    Told(change): Told<Change>,
) -> Answer {
    check_comment(change.comment.as_deref())?;
    if terms.is_plan {
        let text = move |_: &dyn Control| Ok((change.text, Origin::Written));
        return planned(&app, &caller, terms, text).await;
    }
    let apply = move |control: &dyn Control| {
        control.apply(change, Origin::Written, terms.only_at, &caller.author)
    };
    let applied = app.calls.change(apply).await??;
    let applied = app.calls.settle(applied).await;
    Ok(answer::applied(&applied, false))
}

/// `POST /plan`
pub(crate) async fn plan(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Told(change): Told<Change>,
) -> Answer {
    let terms = Terms {
        only_at: None,
        is_plan: true,
    };
    let text = move |_: &dyn Control| Ok((change.text, Origin::Written));
    planned(&app, &caller, terms, text).await
}

/// What applying the document would do that `text` gives.
async fn planned(
    app: &App,
    caller: &Caller,
    terms: Terms,
    text: impl FnOnce(&dyn Control) -> Result<(String, Origin), Problem> + Send + 'static,
) -> Answer {
    let inspection = Inspection::of(caller.role);
    let ask = move |control: &dyn Control| {
        let (text, origin) = text(control)?;
        let text = match inspection {
            Inspection::Files => Cow::Borrowed(text.as_str()),
            // As it was shown to those who may not read secrets, it means those that are there.
            Inspection::DocumentOnly => {
                // Others are not those, whatever they are.
                let text = match origin {
                    Origin::Written => config::with_other_secrets(&text),
                    Origin::Edited { .. } | Origin::Past => Cow::Borrowed(text.as_str()),
                };
                Cow::Owned(config::with_secrets_of(&text, &control.document().text).into_owned())
            }
        };
        let plan = control.plan(&text, &origin, inspection)?;
        check_revision(plan.revision, terms.only_at)?;
        Ok::<_, Problem>(plan)
    };
    let plan = app.calls.read_much(ask).await?.good()?;
    Ok(json_at(&*plan, plan.revision))
}

/// `GET /config/history`
pub(crate) async fn history(State(app): State<Arc<App>>) -> Answer {
    Ok(json(&app.calls.read(|control| control.history()).await?))
}

/// `GET /config/history/{revision}`
pub(crate) async fn past(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Named(revision): Named<u64>,
) -> Answer {
    let ask = app
        .calls
        .read_much(move |control| control.document_of(revision));
    let document = ask.await?;
    let document = document.as_ref().ok_or_else(|| no_revision(revision))?;
    Ok(json(&shown_to(&caller, document.clone())))
}

/// `POST /config/rollback`
pub(crate) async fn rollback(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    terms: Terms,
    Told(back): Told<Rollback>,
) -> Answer {
    check_comment(back.comment.as_deref())?;
    if terms.is_plan {
        let text = move |control: &dyn Control| {
            let past = control.document_of(back.revision);
            let past = past.ok_or_else(|| no_revision(back.revision).0)?;
            Ok((past.text, Origin::Past))
        };
        return planned(&app, &caller, terms, text).await;
    }
    let apply = move |control: &dyn Control| control.roll_back(back, terms.only_at, &caller.author);
    let applied = app.calls.change(apply).await??;
    let applied = app.calls.settle(applied).await;
    Ok(answer::applied(&applied, false))
}

/// 412 when another revision runs than the one asked for.
pub(super) fn check_revision(runs: u64, only_at: Option<u64>) -> Result<(), Problem> {
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

pub(super) fn check_comment(comment: Option<&str>) -> Result<(), Refusal> {
    let is_line =
        |text: &str| text.chars().count() <= COMMENT_MAX && !text.chars().any(char::is_control);
    if comment.is_none_or(is_line) {
        return Ok(());
    }
    let detail = format!("a comment is one line of {COMMENT_MAX} characters at most");
    Err(Refusal::field("comment", detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_one_line() {
        let longest = "ä".repeat(COMMENT_MAX);
        for (comment, is_good) in [
            (None, true),
            (Some(longest.as_str()), true),
            (Some(&format!("{longest}ä")), false),
            (Some("a\nb"), false),
        ] {
            assert_eq!(check_comment(comment).is_ok(), is_good, "{comment:?}");
        }
    }
}
