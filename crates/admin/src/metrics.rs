//! `/metrics`: what is counted, in the two text formats that Prometheus reads.
//!
//! One table ([`table::METRICS`]) says what there is; docs/reference/metrics.md is compared with it by a test.
//! The text is made piece by piece while it is sent.

mod table;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::control::Control;
use api::event::{Finding, Severity};
use api::stats::{Hyperscsi, Space, Stats};
use api::view::{Session, Status};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse as _;

use self::text::{Format, Text};
use crate::answer::Answer;
use crate::app::App;
use crate::feed::{Keeping, Pieces};

/// What the daemon counted, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    stats: Stats,
    status: Status,
    space: Space,
    /// How many there are of each rule, severity and unit.
    findings: Vec<([String; 3], u64)>,
    /// None when the data plane does not answer.
    sessions: Vec<Session>,
    hyperscsi: Hyperscsi,
}

impl Snapshot {
    fn take(control: &dyn Control) -> Self {
        let status = control.status();
        Self {
            stats: control.stats(),
            findings: by_labels(&status.findings),
            status,
            space: control.space(),
            // Counters are worth most when something hangs.
            sessions: control.sessions().unwrap_or_default(),
            hyperscsi: control.hyperscsi_stats(),
        }
    }
}

/// How many findings there are of each rule, severity and unit.
fn by_labels(findings: &[Finding]) -> Vec<([String; 3], u64)> {
    let mut counts = BTreeMap::new();
    for finding in findings {
        let severity = match finding.severity {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        let lun = finding.lun.clone().unwrap_or_default();
        let labels = [finding.code.clone(), severity.to_owned(), lun];
        *counts.entry(labels).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

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
