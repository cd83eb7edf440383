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

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::extract::Request;
    use axum::http::Method;
    use durable::scratch::Scratch;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;

    use super::*;
    use crate::testing::{Double, app, local, token};
    use crate::{ask, guard};

    /// Status, `Set-Cookie` and body.
    async fn answer(
        app: &Arc<App>,
        peer: Peer,
        (method, path, body): (Method, &str, &str),
        fields: &[(&str, &str)],
    ) -> (u16, String, String) {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/api/v1/{path}"))
            .header(header::HOST, "127.0.0.1:3262")
            .header(header::CONTENT_TYPE, "application/json")
            .extension(peer);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let router = TowerToHyperService::new(guard::router(app));
        let response = router.call(request).await.unwrap();
        let status = response.status().as_u16();
        let cookie = response.headers().get(header::SET_COOKIE);
        let cookie = cookie.map(|cookie| cookie.to_str().unwrap().to_owned());
        let body = ask::collect(response.into_body(), 1 << 20).await.unwrap();
        let body = String::from_utf8(body).unwrap();
        (status, cookie.unwrap_or_default(), body)
    }

    #[tokio::test]
    async fn a_login_lasts_until_its_logout_and_a_change_by_it_needs_what_it_gave() {
        let (scratch, daemon) = (Scratch::new(), Arc::new(Double::default()));
        let app = app(&daemon, &scratch);
        let viewer = token(&app, "v", Role::Viewer);
        for (is_tls, name, rest) in [
            (
                false,
                "tarn",
                "; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict",
            ),
            (
                true,
                "__Host-tarn",
                "; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure",
            ),
        ] {
            let peer = local(is_tls);
            let login = format!("{{\"token\": \"{viewer}\"}}");
            let login = (Method::POST, "login", login.as_str());
            let (status, cookie, body) = answer(&app, peer, login, &[]).await;
            let whole = cookie.strip_suffix(rest).unwrap();
            let value = whole.strip_prefix(name).unwrap().strip_prefix('=').unwrap();
            assert_eq!((status, value.len()), (200, 64), "{cookie}");
            let who: WhoAmI = serde_json::from_str(&body).unwrap();
            assert_eq!((who.name.as_str(), who.role), ("v", Role::Viewer));
            assert!(!who.csrf.is_empty());
            let proof = ("cookie", whole);
            let whoami = (Method::GET, "whoami", "");
            let (status, _, again) = answer(&app, peer, whoami.clone(), &[proof]).await;
            assert_eq!((status, &again), (200, &body));
            let logout = (Method::POST, "logout", "");
            let (status, _, _) = answer(&app, peer, logout.clone(), &[proof]).await;
            assert_eq!(status, 403);
            let told = [proof, ("x-tarn-csrf", who.csrf.as_str())];
            let (status, cookie, _) = answer(&app, peer, logout, &told).await;
            assert_eq!(
                (status, cookie),
                (204, format!("{name}=; {}", rest[2..].replace("43200", "0")))
            );
            assert_eq!(answer(&app, peer, whoami, &[proof]).await.0, 401);
        }
        let noted = daemon.noted();
        let noted: Vec<_> = noted.iter().map(|event| event.kind.as_str()).collect();
        let each = [
            "admin-change",
            "admin-refused",
            "admin-change",
            "admin-refused",
        ];
        assert_eq!(noted, [each, each].concat());
    }

    #[tokio::test]
    async fn who_reads_metrics_opens_no_console_and_a_wrong_token_opens_nothing() {
        let (scratch, daemon) = (Scratch::new(), Arc::new(Double::default()));
        let app = app(&daemon, &scratch);
        let metrics = token(&app, "m", Role::Metrics);
        for (peer, token, expected) in [
            (local(true), metrics.as_str(), 403),
            (local(true), "wrong", 401),
            (Peer::Unix { uid: 0 }, "wrong", 401),
        ] {
            let login = format!("{{\"token\": \"{token}\"}}");
            let (status, cookie, _) =
                answer(&app, peer, (Method::POST, "login", &login), &[]).await;
            assert_eq!((status, cookie.as_str()), (expected, ""));
        }
        let whoami = (Method::GET, "whoami", "");
        let proof = format!("Bearer {}", token(&app, "v", Role::Viewer));
        let fields = [("authorization", proof.as_str())];
        let (status, _, body) = answer(&app, local(true), whoami, &fields).await;
        assert_eq!(
            (status, body.as_str()),
            (200, r#"{"name":"v","role":"viewer","csrf":""}"#)
        );
    }
}
