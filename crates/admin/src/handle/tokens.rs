//! Tokens: list, make, revoke. They live in a file, which is written where calls may block.

use std::sync::Arc;

use api::access::NewToken;
use api::problem::Problem;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse as _;

use crate::answer::{Answer, json};
use crate::app::App;
use crate::ask::{Named, Told};
use crate::audit::now_ms;

/// `GET /tokens`
pub(crate) async fn list(State(app): State<Arc<App>>) -> Answer {
    Ok(json(&app.tokens.list()))
}

/// `POST /tokens`
pub(crate) async fn make(State(app): State<Arc<App>>, Told(new): Told<NewToken>) -> Answer {
    let shared = Arc::clone(&app);
    let make = app.calls.change(move |_| shared.tokens.make(new, now_ms()));
    let mut response = json(&make.await??);
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

/// `DELETE /tokens/{name}`
pub(crate) async fn revoke(State(app): State<Arc<App>>, Named(name): Named<String>) -> Answer {
    let shared = Arc::clone(&app);
    let revoke = app.calls.change(move |_| -> Result<(), Problem> {
        let holder = shared.tokens.revoke(&name)?;
        shared.gate().logins.close_all_of(&holder);
        Ok(())
    });
    revoke.await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}
