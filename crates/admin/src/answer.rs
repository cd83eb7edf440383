//! Answers: JSON, problems, revisions as ETag.

use api::plan::Applied;
use api::problem::{Problem, ProblemKind};
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// What handlers give.
pub(crate) type Answer = Result<Response, Refusal>;

/// A problem as the answer.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) Problem);

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl Refusal {
    /// A problem of this kind.
    pub(crate) fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self(Problem::new(kind, detail))
    }

    /// A field of the request that makes no sense.
    pub(crate) fn field(name: &str, detail: impl Into<String>) -> Self {
        let mut problem = Problem::new(ProblemKind::BadRequest, detail);
        problem.place = Some(name.to_owned());
        Self(problem)
    }
}

/// Header fields that go with a kind of problem.
static PROBLEM_HEADERS: [(ProblemKind, HeaderName, HeaderValue); 3] = [
    (
        ProblemKind::Unauthorized,
        header::WWW_AUTHENTICATE,
        HeaderValue::from_static("Bearer realm=\"tarn\""),
    ),
    (
        ProblemKind::TooManyRequests,
        header::RETRY_AFTER,
        HeaderValue::from_static("6"),
    ),
    (
        ProblemKind::Unavailable,
        header::RETRY_AFTER,
        HeaderValue::from_static("1"),
    ),
];

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(problem) = self;
        let mut response = written(&problem, "application/problem+json");
        *response.status_mut() =
            StatusCode::from_u16(problem.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        for (kind, name, value) in &PROBLEM_HEADERS {
            if *kind == problem.kind {
                response.headers_mut().insert(name, value.clone());
            }
        }
        if let Some(revision) = problem.revision {
            set_etag(&mut response, revision);
        }
        response
    }
}

/// 200 with this as JSON.
pub(crate) fn json<T: Serialize>(value: &T) -> Response {
    written(value, "application/json")
}

/// 200 with this, which is JSON.
pub(crate) fn json_text(text: &'static str) -> Response {
    let content_type = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}

/// 200 with this as JSON; the revision it belongs to as ETag.
pub(crate) fn json_at<T: Serialize>(value: &T, revision: u64) -> Response {
    let mut response = json(value);
    set_etag(&mut response, revision);
    response
}

/// What a change gave: 201 when it made a thing, else 200.
pub(crate) fn applied(applied: &Applied, is_new: bool) -> Response {
    made(json_at(applied, applied.revision), is_new)
}

/// The same as 201 when a thing was made.
pub(crate) fn made(mut response: Response, is_new: bool) -> Response {
    if is_new {
        *response.status_mut() = StatusCode::CREATED;
    }
    response
}

/// The entity tag of a revision.
pub(crate) fn etag(revision: u64) -> String {
    format!("\"{revision}\"")
}

fn set_etag(response: &mut Response, revision: u64) {
    if let Ok(value) = HeaderValue::try_from(etag(revision)) {
        response.headers_mut().insert(header::ETAG, value);
    }
}

fn written<T: Serialize>(value: &T, content_type: &'static str) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => (
            [(header::CONTENT_TYPE, HeaderValue::from_static(content_type))],
            Body::from(bytes),
        )
            .into_response(),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written as JSON");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
