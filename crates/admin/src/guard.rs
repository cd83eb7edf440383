//! Whether a caller may: every request goes through here, by the table of routes.

use std::sync::Arc;

use api::access::Role;
use api::problem::{Problem, ProblemKind};
use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use subtle::ConstantTimeEq as _;

use crate::answer::Refusal;
use crate::app::App;
use crate::ask;
use crate::audit::{self, Purpose};
use crate::call::{Asker, Request as Placed, on_behalf_of};
use crate::caller::{Author, Caller, NothingDone, Proof, identify, shows_proof};
use crate::connections::Link;
use crate::peer::{self, Peer};
use crate::route::{Needs, Route};
use crate::{console, routes};

/// Brings the second secret of a console login.
pub(crate) const CSRF_HEADER: &str = "x-tarn-csrf";

/// The router of the table: every request goes through [`site`], and to a known path through [`guard`].
pub(crate) fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    for route in routes::ROUTES {
        router = router.route(route.path, (route.handler)());
    }
    router
        .fallback(console::file)
        .route_layer(from_fn_with_state(Arc::clone(app), guard))
        .layer(from_fn_with_state(Arc::clone(app), site))
        .with_state(Arc::clone(app))
}

/// For every request, known path or not: it is meant for this server, and its answer is neither
/// cached nor framed nor mistaken for another type.
pub(crate) async fn site(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    // Otherwise pipelined requests of one connection would all be answered before any request of another connection.
    tokio::task::yield_now().await;
    let may_ask = check_target(&request)
        .and_then(|()| peer_of(&request))
        .and_then(|peer| peer::check_site(&peer, request.headers(), &app.names()));
    let mut response = match may_ask {
        Ok(()) => next.run(request).await,
        Err(problem) => refuse_and_note(&app, &request, None, problem),
    };
    for (name, value) in &SITE_HEADERS {
        let headers = response.headers_mut();
        headers.entry(name).or_insert_with(|| value.clone());
    }
    response
}

/// Refuses a target that names another server than Host does.
fn check_target(request: &Request) -> Result<(), Problem> {
    let host = request.headers().get(header::HOST);
    let is_host = |name: &Authority| {
        host.is_some_and(|host| {
            host.as_bytes()
                .eq_ignore_ascii_case(name.as_str().as_bytes())
        })
    };
    match request.uri().authority() {
        Some(name) if !is_host(name) => {
            let detail =
                "the target of the request names another server than its Host; nothing was done";
            Err(Problem::new(ProblemKind::BadRequest, detail))
        }
        Some(_) | None => Ok(()),
    }
}

/// Fields of every answer that does not bring its own.
static SITE_HEADERS: [(header::HeaderName, HeaderValue); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
             font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; \
             frame-ancestors 'none'",
        ),
    ),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

/// For every request to a known path: the method is known, the caller may, the body is not too long.
pub(crate) async fn guard(
    State(app): State<Arc<App>>,
    path: MatchedPath,
    request: Request,
    next: Next,
) -> Response {
    if request.method() == Method::OPTIONS {
        return (StatusCode::NO_CONTENT, allow(path.as_str())).into_response();
    }
    let Some(route) = routes::find(request.method(), path.as_str()) else {
        let detail = format!("{} has no {}", path.as_str(), request.method());
        let refusal = Refusal::new(ProblemKind::MethodNotAllowed, detail);
        ask::discard(request.into_body()).await;
        return (allow(path.as_str()), refusal).into_response();
    };
    let is_plan = match is_plan(route, &request) {
        Ok(is_plan) => is_plan,
        Err(refusal) => {
            ask::discard(request.into_body()).await;
            return refusal.into_response();
        }
    };
    let caller = match admit(&app, route.needs(is_plan), &request) {
        Ok(caller) => caller,
        Err(refused) => return turn_away(&app, request, *refused).await,
    };
    let place = match &caller {
        None => None,
        Some(caller) => match place_for(&app, caller, route, &request) {
            Ok(place) => Some(place),
            Err(problem) => {
                ask::discard(request.into_body()).await;
                return Refusal(problem).into_response();
            }
        },
    };
    let author = caller.as_ref().map(|caller| caller.author.clone());
    let mut entry = entry_of(&request, author);
    entry.purpose = route.purpose(is_plan);
    let mut request = match with_whole_body(request, route).await {
        Ok(request) => request,
        Err(refusal) => {
            let response = refusal.into_response();
            app.note(entry, response.status());
            return response;
        }
    };
    // Who is not known asks nothing that needs a place.
    let Some((caller, place)) = caller.zip(place) else {
        return run(app, entry, next.run(request)).await;
    };
    request.extensions_mut().insert(caller);
    request.extensions_mut().insert(Arc::clone(&place));
    let answer = on_behalf_of(Arc::clone(&place), next.run(request));
    let mut response = run(app, entry, answer).await;
    response.extensions_mut().insert(place);
    response
}

/// A place for a request whose caller is known. Its connection makes no room for others from then on.
fn place_for(
    app: &App,
    caller: &Caller,
    route: &Route,
    request: &Request,
) -> Result<Arc<Placed>, Problem> {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let most = route.body_bytes_max();
    let body_bytes = match route.takes {
        Some(_) => length.unwrap_or(most).min(most),
        None => 0,
    };
    let connection = request.extensions().get::<Link>();
    app.calls
        .admit((caller.lane(), &caller.author), body_bytes, connection)
}

/// A change in a task of its own: one that has begun is made and noted to its end also when the caller has gone.
async fn run(
    app: Arc<App>,
    mut entry: audit::Entry,
    answer: impl Future<Output = Response> + Send + 'static,
) -> Response {
    if entry.purpose == Purpose::Question {
        return answer.await;
    }
    let asker = Asker::default();
    let task = tokio::spawn(asker.task(async move {
        let response = answer.await;
        if let Some(Author(name)) = response.extensions().get() {
            entry.author = Some(name.clone());
        }
        if response.extensions().get::<NothingDone>().is_none() {
            app.note(entry, response.status());
        }
        response
    }));
    task.await.unwrap_or_else(|error| {
        tracing::error!(%error, "a request failed");
        let detail = "the administration failed at this request; see the log";
        Refusal::new(ProblemKind::Unavailable, detail).into_response()
    })
}

/// The answer to a request that goes no further.
async fn turn_away(app: &App, request: Request, refused: Refused) -> Response {
    let Refused { problem, author } = refused;
    let is_lost = is_navigation(request.method(), request.headers());
    let is_unknown = problem.kind == ProblemKind::Unauthorized;
    // A request without a token is no guess: opening the console begins with one.
    let response = if request.method().is_safe() && !shows_proof(request.headers()) {
        Refusal(problem).into_response()
    } else {
        refuse_and_note(app, &request, author, problem)
    };
    ask::discard(request.into_body()).await;
    if is_lost && is_unknown {
        return (StatusCode::SEE_OTHER, [(header::LOCATION, "/")]).into_response();
    }
    response
}

/// Whether a browser wants to show what it asks for: a person is better off with the console, which begins with its
/// login, than with a problem in JSON.
fn is_navigation(method: &Method, headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|it| it.to_str().ok());
    let is_page = accept.is_some_and(|accept| {
        accept
            .split(',')
            .any(|one| one.trim().starts_with("text/html"))
    });
    method == Method::GET && is_page && !headers.contains_key(header::AUTHORIZATION)
}

/// Why a request goes no further, and whose it was as far as that is known.
#[derive(Debug)]
struct Refused {
    problem: Problem,
    author: Option<String>,
}

/// Whether a change is only to be planned. A query with a name that the route does not know goes no further: who
/// writes `Plan=true` must not get the deed.
fn is_plan(route: &Route, request: &Request) -> Result<bool, Refusal> {
    ask::check_query(request.uri(), route.fields())?;
    Ok(route.conditional && ask::asks_for_plan(request.uri())?)
}

fn admit(app: &App, needs: Needs, request: &Request) -> Result<Option<Caller>, Box<Refused>> {
    let anonymous = |problem| {
        Box::new(Refused {
            problem,
            author: None,
        })
    };
    let least = match needs {
        Needs::Nothing => return Ok(None),
        Needs::Role(role) => role,
    };
    let peer = peer_of(request).map_err(anonymous)?;
    let caller = identify(app, &peer, request.headers()).map_err(anonymous)?;
    may(&caller, least, request).map_err(|problem| {
        Box::new(Refused {
            problem,
            author: Some(caller.author.clone()),
        })
    })?;
    Ok(Some(caller))
}

fn may(caller: &Caller, least: Role, request: &Request) -> Result<(), Problem> {
    caller.must_have(least)?;
    let Proof::Cookie { csrf, .. } = &caller.proof else {
        return Ok(());
    };
    let told = request.headers().get(CSRF_HEADER);
    let is_told = told.is_some_and(|told| bool::from(told.as_bytes().ct_eq(csrf.as_bytes())));
    if request.method().is_safe() || is_told {
        return Ok(());
    }
    Err(Problem::new(
        ProblemKind::Forbidden,
        "a change by the console needs X-Tarn-CSRF, with the value that the login gave",
    ))
}

/// The peer of the connection a request came by.
pub(crate) fn peer_of(request: &Request) -> Result<Peer, Problem> {
    let peer = request.extensions().get::<Peer>();
    peer.copied().ok_or_else(|| {
        Problem::new(
            ProblemKind::Unavailable,
            "it is not known where the request comes from",
        )
    })
}

/// Reads the body before anything is said of the request, as [`ask::collect`] says why.
async fn with_whole_body(request: Request, route: &Route) -> Result<Request, Refusal> {
    let (parts, body) = request.into_parts();
    let bytes = ask::collect(body, route.body_bytes_max()).await?;
    if route.takes.is_none() && !bytes.is_empty() {
        let detail = format!(
            "{} {} takes no body; nothing was done, send it without one",
            route.method, route.path
        );
        return Err(Refusal::new(ProblemKind::BadRequest, detail));
    }
    Ok(Request::from_parts(parts, Body::from(bytes)))
}

fn refuse_and_note(
    app: &App,
    request: &Request,
    author: Option<String>,
    problem: Problem,
) -> Response {
    let entry = entry_of(request, author);
    let response = Refusal(problem).into_response();
    app.note(entry, response.status());
    response
}

fn entry_of(request: &Request, author: Option<String>) -> audit::Entry {
    let peer = request.extensions().get::<Peer>();
    audit::Entry {
        author,
        peer: peer.map(Peer::to_string).unwrap_or_default(),
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        purpose: Purpose::Change,
    }
}

fn allow(path: &str) -> [(header::HeaderName, String); 1] {
    let methods: Vec<_> = routes::methods(path).collect();
    [(header::ALLOW, methods.join(", "))]
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use api::access::NewToken;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;

    use super::*;
    use crate::caller::of_cookie;
    use crate::testing::{Double, app};
    use durable::scratch::Scratch;

    /// What a TCP peer on this machine, as a proxy is, is answered to a login with this token.
    async fn login(app: &Arc<App>, token: &str) -> Response {
        let local: SocketAddr = "127.0.0.1:3262".parse().unwrap();
        let request = Request::post("/api/v1/login")
            .header(header::HOST, "127.0.0.1:3262")
            .header(header::CONTENT_TYPE, "application/json")
            .extension(Peer::Tcp {
                address: local,
                local,
                is_tls: false,
            })
            .body(Body::from(format!("{{\"token\": \"{token}\"}}")))
            .unwrap();
        let router = TowerToHyperService::new(router(app));
        router.call(request).await.unwrap()
    }

    /// What root is answered at the socket.
    async fn ask(app: &Arc<App>, method: Method, uri: &str, body: &'static str) -> (u16, String) {
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::HOST, "tarn")
            .header(header::CONTENT_TYPE, "application/json")
            .extension(Peer::Unix { uid: 0 })
            .body(Body::from(body))
            .unwrap();
        let router = TowerToHyperService::new(router(app));
        let response = router.call(request).await.unwrap();
        let status = response.status().as_u16();
        let body = ask::collect(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    /// Otherwise pipelined requests of one connection delay all other callers.
    #[tokio::test]
    async fn a_request_yields_to_other_connections() {
        let scratch = Scratch::new();
        let app = app(&Arc::default(), &scratch);
        let mut first = pin!(ask(&app, Method::GET, "/api/v1/openapi.json", ""));
        let mut context = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert_eq!(first.await.0, 200);
    }

    /// The double of the daemon panics at every change, so none of these gets to it.
    #[tokio::test]
    async fn no_route_takes_a_name_in_its_query_that_it_does_not_list() {
        let scratch = Scratch::new();
        let app = app(&Arc::default(), &scratch);
        for route in routes::ROUTES {
            let path = route.path.replace(['{', '}'], "");
            for name in ["Plan", "plam", "unknown", ""] {
                let uri = format!("{path}?{name}=true");
                let (status, body) = ask(&app, route.method.clone(), &uri, "").await;
                assert_eq!(status, 400, "{} {uri}: {body}", route.method);
                let known = route.fields().all(|field| body.contains(field.name));
                assert!(
                    known && body.contains(&format!("{name:?}").replace('"', "\\\"")),
                    "{body}"
                );
            }
            if !route.conditional {
                let (status, body) =
                    ask(&app, route.method.clone(), &format!("{path}?plan=true"), "").await;
                assert_eq!(status, 400, "{} {path}: {body}", route.method);
            }
        }
    }

    #[tokio::test]
    async fn a_target_that_names_another_server_than_host_is_refused() {
        let scratch = Scratch::new();
        let app = app(&Arc::default(), &scratch);
        for (uri, status) in [
            ("http://evil.example/api/v1/whoami", 400),
            ("http://tarn:1/api/v1/whoami", 400),
            ("http://TARN/api/v1/whoami", 200),
            ("/api/v1/whoami", 200),
        ] {
            let (answered, body) = ask(&app, Method::GET, uri, "").await;
            assert_eq!(answered, status, "{uri}: {body}");
        }
    }

    /// Its LUNs and targets are not in its document, so every edit would find that they do not exist.
    #[tokio::test]
    async fn what_cannot_be_changed_is_said_before_any_edit_is_looked_at() {
        let scratch = Scratch::new();
        let app = app(&Arc::new(Double::that_is_fixed()), &scratch);
        for plan in ["", "?plan=true"] {
            let uri = format!("/api/v1/luns/web{plan}");
            let (status, body) = ask(&app, Method::DELETE, &uri, "").await;
            assert_eq!(status, 409, "{body}");
            assert!(body.contains("it has no document"), "{body}");
        }
    }

    #[tokio::test]
    async fn a_value_that_a_query_cannot_have_is_answered_with_what_is_expected() {
        let scratch = Scratch::new();
        let app = app(&Arc::default(), &scratch);
        for (uri, expected) in [
            (
                "/api/v1/events?after=x",
                "a whole number from 0 to 18446744073709551615",
            ),
            (
                "/api/v1/events?after=18446744073709551616",
                "a whole number from 0 to",
            ),
            ("/api/v1/events?most=1001", "a whole number from 0 to 1000"),
            ("/api/v1/live?after=-1", "a whole number from 0 to"),
            ("/api/v1/luns/web?plan=yes", "true or false"),
        ] {
            let method = if uri.contains("plan") {
                Method::DELETE
            } else {
                Method::GET
            };
            let (status, body) = ask(&app, method, uri, "").await;
            assert_eq!(status, 400, "{uri}: {body}");
            assert!(body.contains(expected), "{uri}: {body}");
        }
        let (status, body) = ask(&app, Method::GET, "/api/v1/events?most=1000&after=0", "").await;
        assert_eq!(status, 200, "{body}");
    }

    #[tokio::test]
    async fn a_route_without_a_body_refuses_every_body() {
        let scratch = Scratch::new();
        let app = app(&Arc::default(), &scratch);
        let without = routes::ROUTES.iter().filter(|route| route.takes.is_none());
        for route in without {
            let path = route.path.replace(['{', '}'], "");
            for body in ["{}", "null", "what"] {
                let (status, answer) = ask(&app, route.method.clone(), &path, body).await;
                assert_eq!(status, 400, "{} {path}: {answer}", route.method);
                assert!(answer.contains("takes no body"), "{answer}");
            }
        }
    }

    #[tokio::test]
    async fn only_a_document_may_be_longer_than_other_bodies() {
        let scratch = Scratch::new();
        let app = app(&Arc::default(), &scratch);
        let (small, large) = (
            crate::limits::BODY_BYTES_MAX,
            crate::limits::DOCUMENT_BYTES_MAX,
        );
        let blanks: &'static str = " ".repeat(large + 1).leak();
        for (uri, most) in [("/api/v1/luns/a", small), ("/api/v1/config", large)] {
            for (length, expected) in [(most, 400), (most + 1, 413)] {
                let (status, body) = ask(&app, Method::PUT, uri, &blanks[..length]).await;
                assert_eq!(status, expected, "{uri}: {body}");
            }
        }
    }

    fn new_token(app: &App, name: &str) -> String {
        let new = NewToken {
            name: name.to_owned(),
            role: Role::Viewer,
        };
        app.tokens.make(new, 0).unwrap().token.unwrap()
    }

    #[tokio::test]
    async fn a_right_token_logs_in_after_any_number_of_wrong_ones_from_its_address() {
        let scratch = Scratch::new();
        let app = app(&Arc::default(), &scratch);
        let token = new_token(&app, "a");
        let mut last = StatusCode::OK;
        for _ in 0..100 {
            last = login(&app, "tarn_wrong").await.status();
        }
        assert_eq!(last, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(login(&app, &token).await.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn logins_of_a_viewer_push_no_administrator_out() {
        let scratch = Scratch::new();
        let app = app(&Arc::default(), &scratch);
        let admin = NewToken {
            name: "admin".to_owned(),
            role: Role::Admin,
        };
        let admin = app.tokens.make(admin, 0).unwrap().token.unwrap();
        let opened = login(&app, &admin).await;
        let cookie = opened.headers()[header::SET_COOKIE].to_str().unwrap();
        let (cookie, _) = cookie.split_once(';').unwrap();
        let (_, cookie) = cookie.split_once('=').unwrap();
        let viewer = new_token(&app, "viewer");
        for _ in 0..2 * crate::limits::LOGINS_MAX {
            assert_eq!(login(&app, &viewer).await.status(), StatusCode::OK);
        }
        assert!(of_cookie(&app, cookie).is_some());
    }

    #[tokio::test]
    async fn a_login_is_noted_with_whose_it_is() {
        let scratch = Scratch::new();
        let daemon = Arc::new(Double::default());
        let app = app(&daemon, &scratch);
        login(&app, &new_token(&app, "a")).await;
        let noted = daemon.noted();
        let noted: Vec<_> = noted
            .iter()
            .map(|event| (event.kind.as_str(), event.author.as_deref()))
            .collect();
        assert_eq!(noted, [("admin-change", Some("a"))]);
    }
}
