//! Who asks, and how they prove it.

use std::time::Instant;

use api::access::Role;
use api::problem::{Problem, ProblemKind};
use axum::http::{HeaderMap, HeaderValue, header};

use crate::app::App;
use crate::call::Lane;
use crate::peer::Peer;
use crate::tokens::Holder;

/// Who asks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Caller {
    /// For the history and the audit log: `uid 0`, or the token's name.
    pub(crate) author: String,
    /// What they may do.
    pub(crate) role: Role,
    /// How they proved it.
    pub(crate) proof: Proof,
}

/// How a caller proved who they are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Proof {
    /// The kernel has reported their user.
    Socket,
    /// A token.
    Token(Holder),
    /// A login of the console.
    Cookie {
        /// Whose token opened it.
        holder: Holder,
        /// The value of the cookie.
        cookie: String,
        /// What changes have to bring along.
        csrf: String,
    },
}

impl Caller {
    /// Whose places its requests take.
    pub(crate) const fn lane(&self) -> Lane {
        match (&self.proof, self.role) {
            (Proof::Socket, _) => Lane::Socket,
            (_, Role::Admin) => Lane::Admin,
            (_, Role::Operator | Role::Viewer | Role::Metrics) => Lane::BelowAdmin,
        }
    }

    /// Refuses callers of a lower role.
    pub(crate) fn must_have(&self, least: Role) -> Result<(), Problem> {
        if self.role >= least {
            return Ok(());
        }
        let detail = format!(
            "{} has the role {:?}, this needs {least:?}",
            self.author, self.role
        );
        Err(Problem::new(ProblemKind::Forbidden, detail.to_lowercase()))
    }

    /// True while the proof holds: its token has not been revoked, its login has not ended.
    pub(crate) fn is_valid(&self, app: &App) -> bool {
        match &self.proof {
            Proof::Socket => true,
            Proof::Token(holder) => app.tokens.knows(holder),
            Proof::Cookie { holder, cookie, .. } => {
                let found = app.gate().logins.find(cookie, Instant::now());
                found.is_some() && app.tokens.knows(holder)
            }
        }
    }
}

/// In an answer to a request that needed no proof: whose it has turned out to be.
#[derive(Clone, Debug)]
pub(crate) struct Author(pub(crate) String);

/// In an answer to a request that had nothing to do: there is nothing to note.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NothingDone;

pub(crate) fn identify(app: &App, peer: &Peer, headers: &HeaderMap) -> Result<Caller, Problem> {
    let address = match peer {
        Peer::Unix { uid } => {
            return Ok(Caller {
                author: format!("uid {uid}"),
                role: Role::Admin,
                proof: Proof::Socket,
            });
        }
        Peer::Tcp { address, .. } => address.ip(),
    };
    if let Some(told) = headers.get(header::AUTHORIZATION) {
        let holder = bearer(told).and_then(|token| app.tokens.holder(token));
        return match holder {
            Some(holder) => Ok(Caller {
                author: holder.name.clone(),
                role: holder.role,
                proof: Proof::Token(holder),
            }),
            None => Err(failed_attempt(app, address)),
        };
    }
    cookie(headers, peer)
        .and_then(|cookie| of_cookie(app, cookie))
        .ok_or_else(unauthorized)
}

pub(crate) fn of_cookie(app: &App, cookie: &str) -> Option<Caller> {
    let (holder, csrf) = app.gate().logins.find(cookie, Instant::now())?;
    let caller = Caller {
        author: holder.name.clone(),
        role: holder.role,
        proof: Proof::Cookie {
            holder,
            cookie: cookie.to_owned(),
            csrf,
        },
    };
    caller.is_valid(app).then_some(caller)
}

/// Whether a request says who is asking, rightly or not.
pub(crate) fn shows_proof(headers: &HeaderMap) -> bool {
    headers.contains_key(header::AUTHORIZATION) || headers.contains_key(header::COOKIE)
}

/// Counts a wrong token and gives the answer to it.
pub(crate) fn failed_attempt(app: &App, address: std::net::IpAddr) -> Problem {
    let now = Instant::now();
    let mut gate = app.gate();
    if !gate.attempts.may_try(address, now) {
        return too_many();
    }
    gate.attempts.failed(address, now);
    unauthorized()
}

/// 429.
fn too_many() -> Problem {
    Problem::new(
        ProblemKind::TooManyRequests,
        "too many attempts with a wrong token; try again in some seconds",
    )
}

/// 401: the same whatever was wrong.
pub(crate) fn unauthorized() -> Problem {
    Problem::new(
        ProblemKind::Unauthorized,
        "no valid token; make one with `tarn token add` on the server and send it as \
         Authorization: Bearer TOKEN",
    )
}

fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The name of the console's cookie. With `__Host-`, browsers take it over TLS only, from this host
/// only.
pub(crate) const fn cookie_name(peer: &Peer) -> &'static str {
    match peer {
        Peer::Tcp { is_tls: true, .. } => "__Host-tarn",
        Peer::Tcp { is_tls: false, .. } | Peer::Unix { .. } => "tarn",
    }
}

fn cookie<'a>(headers: &'a HeaderMap, peer: &Peer) -> Option<&'a str> {
    let fields = headers.get_all(header::COOKIE).iter();
    fields
        .filter_map(|field| field.to_str().ok())
        .flat_map(|field| field.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(name, value)| (name == cookie_name(peer)).then_some(value))
}
