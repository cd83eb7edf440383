//! Traces: what goes over connections.

use std::sync::Arc;

use api::request::Tracing;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse as _;

use crate::answer::{Answer, json, made};
use crate::app::App;
use crate::ask::{Named, Told};
use crate::file::file;

/// What a trace is read as.
pub(crate) const FILE: &str = "application/vnd.tcpdump.pcap";

/// `GET /traces`
pub(crate) async fn list(State(app): State<Arc<App>>) -> Answer {
    Ok(json(&app.calls.read(|control| control.traces()).await?))
}

/// `PUT /traces/{subject}`
pub(crate) async fn start(
    State(app): State<Arc<App>>,
    Named(subject): Named<String>,
    Told(how): Told<Tracing>,
) -> Answer {
    let start = app
        .calls
        .change(move |control| control.start_trace(&subject, how));
    let (trace, has_begun) = start.await??;
    Ok(made(json(&trace), has_begun))
}

/// `GET /traces/{subject}`
pub(crate) async fn read(State(app): State<Arc<App>>, Named(subject): Named<String>) -> Answer {
    let place = app.calls.admit_file()?;
    let read = app.calls.read(move |control| control.read_trace(&subject));
    Ok(file(read.await??, FILE, place))
}

/// `DELETE /traces/{subject}`
pub(crate) async fn stop(State(app): State<Arc<App>>, Named(subject): Named<String>) -> Answer {
    let stop = app
        .calls
        .change(move |control| control.stop_trace(&subject));
    stop.await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}
