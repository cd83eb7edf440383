//! `/metrics`: what is counted, in the two text formats that Prometheus reads.
//!
//! One table ([`table::METRICS`]) says what there is; docs/METRICS.md is compared with it by a test.
//! The text is made piece by piece while it is sent.

mod table;
mod text;

use std::sync::Arc;

use api::control::Control;
use api::stats::Stats;
use api::view::{Session, Status};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse as _;

use self::text::{Format, Text};
use crate::answer::Answer;
use crate::app::App;
use crate::feed::Pieces;

/// What the daemon counted, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    stats: Stats,
    status: Status,
    /// None when the data plane does not answer.
    sessions: Vec<Session>,
}

impl Snapshot {
    fn take(control: &dyn Control) -> Self {
        Self {
            stats: control.stats(),
            status: control.status(),
            // Counters are worth most when something hangs.
            sessions: control.sessions().unwrap_or_default(),
        }
    }
}

/// `GET /metrics`
pub(crate) async fn serve(State(app): State<Arc<App>>, headers: HeaderMap) -> Answer {
    let snapshot = app.calls.read(Snapshot::take).await?;
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|value| value.to_str().ok());
    let format = Format::for_accept(accept.unwrap_or_default());
    let text = Text::new(format, snapshot);
    let content = [(header::CONTENT_TYPE, format.content_type())];
    Ok((content, Body::new(Pieces(text))).into_response())
}
