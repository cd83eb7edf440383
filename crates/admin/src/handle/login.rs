//! The console's way in and out.

use std::sync::Arc;
use std::time::Instant;

use api::access::Role;
use api::problem::ProblemKind;
use api::request::{Login, WhoAmI};
use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse as _;

use crate::answer::{Answer, Refusal, json};
use crate::app::App;
use crate::ask::Told;
use crate::caller::{self, Author, Caller, NothingDone, Proof};
use crate::limits;
use crate::peer::Peer;

/// `POST /login`
pub(crate) async fn login(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    Told(login): Told<Login>,
) -> Answer {
    // Looked up first: an address may be that of a proxy, and who has a right token does not pay for
    // the guesses of others behind it.
    let Some(holder) = app.tokens.holder(&login.token) else {
        return Err(match &peer {
            Peer::Tcp { address, .. } => caller::failed_attempt(&app, address.ip()),
            Peer::Unix { .. } => caller::unauthorized(),
        }
        .into());
    };
    if holder.role < Role::Viewer {
        let detail = "a token of the role metrics reads /metrics and opens no console";
        return Err(Refusal::new(ProblemKind::Forbidden, detail));
    }
    let (name, role) = (holder.name.clone(), holder.role);
    let opened = app.gate().logins.open(holder, Instant::now());
    let opened = opened.map_err(|error| {
        let detail = format!("the system gives no random bytes: {error}");
        Refusal::new(ProblemKind::Unavailable, detail)
    })?;
    let age = limits::LOGIN_TIME_MAX.as_secs();
    let cookie = set_cookie(&peer, &opened.cookie, age);
    let csrf = opened.csrf;
    let author = Extension(Author(name.clone()));
    Ok((author, [cookie], json(&WhoAmI { name, role, csrf })).into_response())
}

/// `POST /logout`
pub(crate) async fn logout(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    Extension(caller): Extension<Caller>,
) -> Answer {
    let answer = (StatusCode::NO_CONTENT, [set_cookie(&peer, "", 0)]);
    match &caller.proof {
        Proof::Cookie { cookie, .. } => app.gate().logins.close(cookie),
        // There is no login to end, and none lives afterwards.
        Proof::Socket | Proof::Token(_) => {
            return Ok((Extension(NothingDone), answer).into_response());
        }
    }
    Ok(answer.into_response())
}

/// `GET /whoami`
pub(crate) async fn whoami(Extension(caller): Extension<Caller>) -> Answer {
    let csrf = match caller.proof {
        Proof::Cookie { csrf, .. } => csrf,
        Proof::Socket | Proof::Token(_) => String::new(),
    };
    Ok(json(&WhoAmI {
        name: caller.author,
        role: caller.role,
        csrf,
    }))
}

fn set_cookie(peer: &Peer, value: &str, age_s: u64) -> (header::HeaderName, String) {
    let name = caller::cookie_name(peer);
    let secure = match peer {
        Peer::Tcp { is_tls: true, .. } => "; Secure",
        Peer::Tcp { is_tls: false, .. } | Peer::Unix { .. } => "",
    };
    let cookie =
        format!("{name}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}");
    (header::SET_COOKIE, cookie)
}
