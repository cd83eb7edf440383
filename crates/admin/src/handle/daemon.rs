//! What runs: units, targets, sessions, counters, events.

use std::sync::Arc;
use std::time::Instant;

use api::control::Control;
use api::event::Severity;
use api::figures::Range;
use api::plan::Document;
use api::problem::{Problem, ProblemKind};
use api::request::EventQuestion;
use api::view::{AccessQuestion, Target};
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Refusal, json, json_at};
use crate::app::App;
use crate::ask::{Asked, Named};
use crate::call::Much;
use crate::feed::Keeping;
use crate::limits;

/// `GET /status`
pub(crate) async fn status(State(app): State<Arc<App>>) -> Answer {
    Ok(json(&app.calls.read(|control| control.status()).await?))
}

/// All things of a kind, and the revision that has them. That is read first: a later view with an earlier tag can only
/// make a conditional change fail that might have been right.
async fn with_revision<T, F>(app: &App, read: F) -> Result<Much<(u64, Vec<T>)>, Refusal>
where
    T: Send + 'static,
    F: FnOnce(&dyn Control, &Document) -> Result<Vec<T>, Problem> + Send + 'static,
{
    let ask = app.calls.read_much(move |control| {
        let document = control.document();
        Ok::<_, Problem>((document.revision, read(control, &document)?))
    });
    Ok(ask.await?.good()?)
}

/// All things of a kind.
pub(super) async fn all<T, F>(app: &App, read: F) -> Answer
where
    T: Serialize + Send + 'static,
    F: FnOnce(&dyn Control, &Document) -> Result<Vec<T>, Problem> + Send + 'static,
{
    let answer = with_revision(app, read).await?;
    let (revision, things) = &*answer;
    Ok(json_at(things, *revision))
}

/// The one of them that is wanted, of this kind and name.
pub(super) async fn the_one<T, F>(
    app: &App,
    (kind, name): (&str, &str),
    read: F,
    is_it: impl Fn(&T) -> bool,
) -> Answer
where
    T: Serialize + Send + 'static,
    F: FnOnce(&dyn Control, &Document) -> Result<Vec<T>, Problem> + Send + 'static,
{
    let answer = with_revision(app, read).await?;
    let (revision, things) = &*answer;
    let thing = things.iter().find(|thing| is_it(thing));
    let thing = thing.ok_or_else(|| missing(kind, name))?;
    Ok(json_at(thing, *revision))
}

/// `GET /luns`
pub(crate) async fn luns(State(app): State<Arc<App>>) -> Answer {
    all(&app, |control, _| Ok(control.luns())).await
}

/// `GET /luns/{id}`
pub(crate) async fn lun(State(app): State<Arc<App>>, Named(id): Named<String>) -> Answer {
    let luns = |control: &dyn Control, _: &Document| Ok(control.luns());
    the_one(&app, ("lun", &id), luns, |lun| lun.spec.id == id).await
}

/// `GET /targets`
pub(crate) async fn targets(State(app): State<Arc<App>>) -> Answer {
    all(&app, |control, _| control.targets()).await
}

/// `GET /targets/{name}`
pub(crate) async fn target(State(app): State<Arc<App>>, Named(name): Named<String>) -> Answer {
    let targets = |control: &dyn Control, _: &Document| control.targets();
    let is_it = |target: &Target| target.spec.name == name;
    the_one(&app, ("target", &name), targets, is_it).await
}

/// `GET /sessions`
pub(crate) async fn sessions(State(app): State<Arc<App>>) -> Answer {
    Ok(json(&app.calls.read(|control| control.sessions()).await??))
}

/// `GET /sessions/{session}`
pub(crate) async fn session(State(app): State<Arc<App>>, Named(id): Named<u64>) -> Answer {
    let sessions = app.calls.read(|control| control.sessions()).await??;
    let session = sessions.iter().find(|session| session.id == id);
    Ok(json(
        session.ok_or_else(|| missing("session", &id.to_string()))?,
    ))
}

/// `DELETE /sessions/{session}`
pub(crate) async fn end_session(State(app): State<Arc<App>>, Named(id): Named<u64>) -> Answer {
    app.calls
        .read(move |control| control.end_session(id))
        .await??;
    app.calls.await_end_of(id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `GET /access`
pub(crate) async fn access(
    State(app): State<Arc<App>>,
    Asked(question): Asked<AccessQuestion>,
) -> Answer {
    let ask = app
        .calls
        .read_much(move |control| control.access(&question));
    Ok(json(&*ask.await?.good()?))
}

/// `GET /stats`
pub(crate) async fn stats(State(app): State<Arc<App>>) -> Answer {
    let (stats, kept) = app.calls.read_counters(|control| control.stats()).await?;
    let keep = |body| Body::new(Keeping::new(body, kept));
    Ok(json(&stats).map(keep))
}

/// `GET /space`
pub(crate) async fn space(State(app): State<Arc<App>>) -> Answer {
    Ok(json(&app.calls.read(|control| control.space()).await?))
}

/// `GET /checks`
pub(crate) async fn checks(State(app): State<Arc<App>>) -> Answer {
    Ok(json(&app.calls.read(|control| control.checks()).await?))
}

/// `GET /places`
pub(crate) async fn places(State(app): State<Arc<App>>) -> Answer {
    Ok(json(&app.calls.read(|control| control.places()).await?))
}

/// Which figures.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WhichFigures {
    #[serde(default)]
    range: Range,
    lun: Option<String>,
}

/// `GET /figures`
pub(crate) async fn figures(
    State(app): State<Arc<App>>,
    Asked(which): Asked<WhichFigures>,
) -> Answer {
    let WhichFigures { range, lun } = which;
    let ask = move |control: &dyn Control| control.figures(range, lun.as_deref());
    Ok(json(&app.calls.read(ask).await??))
}

/// Which events.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    after: Option<u64>,
    most: Option<usize>,
    limit: Option<usize>,
    severity: Option<Severity>,
    kind: Option<String>,
    lun: Option<String>,
    target: Option<String>,
    initiator: Option<String>,
    user: Option<String>,
    since: Option<u64>,
}

/// `GET /events`
pub(crate) async fn events(State(app): State<Arc<App>>, Asked(which): Asked<Which>) -> Answer {
    let most = which.most.or(which.limit);
    let most = most.unwrap_or(limits::EVENTS_DEFAULT);
    let kinds = which.kind.iter().flat_map(|kinds| kinds.split(','));
    let question = EventQuestion {
        after: which.after,
        most,
        severity: which.severity.unwrap_or(Severity::Info),
        kinds: kinds.map(str::to_owned).collect(),
        lun: which.lun,
        target: which.target,
        initiator: which.initiator,
        user: which.user,
        since_ms: which.since,
    };
    let ask = app.calls.read(move |control| control.events(question));
    Ok(json(&ask.await?))
}

/// `GET /findings`
pub(crate) async fn findings(State(app): State<Arc<App>>) -> Answer {
    let findings = app.calls.read_much(|control| control.findings());
    Ok(json(&*findings.await?))
}

/// `GET /healthz`
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// `GET /readyz`
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Answer {
    app.ready.ask(&app.calls, Instant::now()).await?;
    Ok("ok\n".into_response())
}

/// 404.
pub(crate) fn missing(what: &str, name: &str) -> Refusal {
    Refusal::new(
        ProblemKind::NotFound,
        format!("there is no {what} {name:?}; check the name"),
    )
}

/// 404.
pub(crate) fn no_revision(revision: u64) -> Refusal {
    Refusal::new(
        ProblemKind::NotFound,
        format!("there is no revision {revision}; see tarn history"),
    )
}
