//! The configuration as a document: read, plan, apply, history.

use std::sync::Arc;

use api::plan::{Change, Inspection};
use api::request::Rollback;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse as _;

use super::daemon::missing;
use crate::answer::{self, Answer, Refusal, json, json_at};
use crate::app::App;
use crate::ask::{IfMatch, Named, Told};
use crate::guard::Caller;

/// Characters of a comment.
const COMMENT_MAX: usize = 200;

/// `GET /config`
pub(crate) async fn document(State(app): State<Arc<App>>, headers: HeaderMap) -> Answer {
    let document = app.calls.read_much(0, |control| control.document()).await?;
    let tag = answer::etag(document.revision);
    let known = headers.get(header::IF_NONE_MATCH);
    if known.is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
    }
    Ok(json_at(&*document, document.revision))
}

/// `GET /config/effective`
pub(crate) async fn effective(State(app): State<Arc<App>>) -> Answer {
    let document = app
        .calls
        .read_much(0, |control| control.effective())
        .await?;
    Ok(json_at(&*document, document.revision))
}

/// `PUT /config`
pub(crate) async fn apply(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    IfMatch(only_at): IfMatch,
    Told(change): Told<Change>,
) -> Answer {
    check_comment(change.comment.as_deref())?;
    let apply =
        move |control: &dyn api::control::Control| control.apply(change, only_at, &caller.author);
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
    let inspection = Inspection::of(caller.role);
    let bytes = change.text.len();
    let plan = app
        .calls
        .read_much(bytes, move |control| control.plan(&change.text, inspection))
        .await?
        .good()?;
    Ok(json_at(&*plan, plan.revision))
}

/// `GET /config/history`
pub(crate) async fn history(State(app): State<Arc<App>>) -> Answer {
    Ok(json(&app.calls.read(|control| control.history()).await?))
}

/// `GET /config/history/{revision}`
pub(crate) async fn past(State(app): State<Arc<App>>, Named(revision): Named<u64>) -> Answer {
    let ask = app
        .calls
        .read_much(0, move |control| control.document_of(revision));
    let document = ask.await?;
    let document = document
        .as_ref()
        .ok_or_else(|| missing("revision", &revision.to_string()))?;
    Ok(json(document))
}

/// `POST /config/rollback`
pub(crate) async fn rollback(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    IfMatch(only_at): IfMatch,
    Told(back): Told<Rollback>,
) -> Answer {
    check_comment(back.comment.as_deref())?;
    let apply =
        move |control: &dyn api::control::Control| control.roll_back(back, only_at, &caller.author);
    let applied = app.calls.change(apply).await??;
    let applied = app.calls.settle(applied).await;
    Ok(answer::applied(&applied, false))
}

fn check_comment(comment: Option<&str>) -> Result<(), Refusal> {
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
