//! `/metrics`: what is counted, in the two text formats that Prometheus reads.
//!
//! One table ([`table::METRICS`]) says what there is; docs/reference/metrics.md is compared with it by a test.
//! The text is made piece by piece while it is sent.

mod table;
mod text;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse as _;

use self::table::Snapshot;
use self::text::{Format, Text};
use crate::answer::Answer;
use crate::app::App;
use crate::feed::{Keeping, Pieces};

/// `GET /metrics`
pub(crate) async fn serve(State(app): State<Arc<App>>, headers: HeaderMap) -> Answer {
    let (snapshot, kept) = app.calls.read_counters(Snapshot::take).await?;
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|value| value.to_str().ok());
    let format = Format::for_accept(accept.unwrap_or_default());
    let text = Text::new(format, snapshot);
    let content = [(header::CONTENT_TYPE, format.content_type())];
    let body = Body::new(Keeping::new(Pieces(text), kept));
    Ok((content, body).into_response())
}
