//! What each request asks of the daemon, and what it is answered: where the daemon answers, and where it refuses.
//! `BLESS=1` writes answers.txt anew; read the difference before it is committed.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;

use api::access::Role;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use durable::scratch::Scratch;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;

use crate::peer::Peer;
use crate::testing::{Double, app, local, token};
use crate::{ask, guard, routes};

/// Method, path and query, body. An `@` before the method: by a token of the role operator. A number behind it:
/// `If-Match`.
#[rustfmt::skip]
const REQUESTS: &[(&str, &str, &str)] = &[
    ("GET", "status", ""),
    ("GET", "config", ""),
    ("@GET", "config", ""),
    ("PUT", "config", r#"{"text": "[[lun]]\n", "comment": "why"}"#),
    ("PUT 7", "config", r#"{"text": "[[lun]]\n"}"#),
    ("PUT", "config", r#"{"text": "[[lun]]\n", "comment": "a\nb"}"#),
    ("PUT", "config?plan=true", r#"{"text": "[[lun]]\n"}"#),
    ("PUT 6", "config?plan=true", r#"{"text": "[[lun]]\n"}"#),
    ("POST", "plan", r#"{"text": "[[lun]]\n"}"#),
    ("@POST", "plan", r#"{"text": "[[hyperscsi.group]]\nname = \"ABC\"\npassword = \"another secret\"\n"}"#),
    ("GET", "config/effective", ""),
    ("@GET", "config/effective", ""),
    ("GET", "config/history", ""),
    ("GET", "config/history/6", ""),
    ("@GET", "config/history/6", ""),
    ("GET", "config/history/5", ""),
    ("GET", "config/history/x", ""),
    ("POST", "config/rollback", r#"{"revision": 6}"#),
    ("POST 7", "config/rollback", r#"{"revision": 6, "comment": "back"}"#),
    ("POST", "config/rollback", r#"{"revision": 6, "comment": "\u0007"}"#),
    ("POST", "config/rollback?plan=true", r#"{"revision": 6}"#),
    ("POST", "config/rollback?plan=true", r#"{"revision": 5}"#),
    ("@POST", "config/rollback?plan=true", r#"{"revision": 6}"#),
    ("POST", "config/edits", r#"{"edits": [], "comment": "a\nb"}"#),
    ("POST", "config/edits", r#"{"edits": [{"hide": {"lun": "a"}}, {"remove": {"lun": "a"}}], "comment": "why"}"#),
    ("POST", "config/edits", r#"{"edits": [{"remove": {"lun": "x"}}]}"#),
    ("POST", "config/edits", r#"{"edits": [{"hide": {"lun": "a"}}, {"remove": {"lun": "x"}}]}"#),
    ("POST", "config/edits?plan=true", r#"{"edits": [{"add": {"user": {"name": "eve", "secret": "secret of eve"}}}]}"#),
    ("@POST", "config/edits?plan=true", r#"{"edits": [{"add": {"user": {"name": "eve", "secret": "secret of eve"}}}]}"#),
    ("POST 6", "config/edits?plan=true", r#"{"edits": [{"remove": {"lun": "b"}}]}"#),
    ("@POST", "config/edits", r#"{"edits": [{"resize": {"lun": "a", "size_bytes": 3145728}}]}"#),
    ("@POST", "config/edits", r#"{"edits": []}"#),
    ("GET", "luns", ""),
    ("GET", "luns/a", ""),
    ("GET", "luns/x", ""),
    ("PUT", "luns/c", r#"{"id": "c", "store": "mem:3M"}"#),
    ("PUT 7", "luns/a", r#"{"id": "a", "store": "mem:3M"}"#),
    ("PUT 6", "luns/a", r#"{"id": "a", "store": "mem:3M"}"#),
    ("PUT", "luns/a", r#"{"id": "c", "store": "mem:3M"}"#),
    ("DELETE", "luns/b", ""),
    ("@POST", "luns/a/resize", r#"{"size_bytes": 3145728}"#),
    ("@POST", "luns/a/resize", r#"{"size_bytes": 512}"#),
    ("@POST", "luns/a/rename", r#"{"id": "c"}"#),
    ("POST", "luns/a/eject", r#"{"force": true}"#),
    ("POST", "luns/a/eject", "{}"),
    ("POST", "luns/x/load", ""),
    ("POST", "luns/a/load", ""),
    ("GET", "luns/a/reservations", ""),
    ("POST", "luns/a/reservations/clear", ""),
    ("POST", "luns/a/takeover", ""),
    ("POST", "luns/a/log/discard", ""),
    ("POST", "luns/a/log/replay", ""),
    ("POST", "luns/a/adopt", ""),
    ("GET", "luns/a/snapshots", ""),
    ("DELETE", "luns/a/snapshots/s", ""),
    ("POST", "luns/a/snapshots/s/rollback", ""),
    ("POST", "luns/a/snapshots/s/clone", r#"{"lun": {"id": "c", "store": "/srv/c"}}"#),
    ("POST", "luns/a/snapshots/s/clone",
        r#"{"lun": {"id": "c", "store": "/srv/c"}, "view": {"target": "iqn.2026-11.x:one", "id": "c", "lun": 4}}"#),
    ("POST", "luns/a/snapshots/s/clone", r#"{"lun": {"id": "b", "store": "/srv/c"}}"#),
    ("POST", "luns/a/snapshots/unmade/clone", r#"{"lun": {"id": "c", "store": "/srv/c"}}"#),
    ("POST", "luns/a/flatten", ""),
    ("GET", "snapshots", ""),
    ("POST", "snapshots", r#"{"luns": ["a", "b"], "name": "s"}"#),
    ("GET", "targets", ""),
    ("GET", "targets/iqn.2026-11.x:one", ""),
    ("GET", "targets/iqn.2026-11.x:three", ""),
    ("PUT", "targets/iqn.2026-11.x:two", r#"{"name": "iqn.2026-11.x:two"}"#),
    ("PUT", "targets/iqn.2026-11.x:two", r#"{"name": "iqn.2026-11.x:one"}"#),
    ("DELETE", "targets/iqn.2026-11.x:one", ""),
    ("PUT", "targets/iqn.2026-11.x:one/luns/3", r#"{"lun": 3, "id": "b", "groups": ["known"], "readonly": true}"#),
    ("PUT", "targets/iqn.2026-11.x:one/luns/3", r#"{"lun": 4, "id": "b"}"#),
    ("DELETE", "targets/iqn.2026-11.x:one/luns/0", ""),
    ("DELETE", "targets/iqn.2026-11.x:one/luns/0?group=known", ""),
    ("DELETE", "targets/iqn.2026-11.x:one/luns/65536", ""),
    ("PUT", "targets/iqn.2026-11.x:one/portals/127.0.0.1:9", r#"{"bind": "127.0.0.1:9", "group": 4}"#),
    ("PUT", "targets/iqn.2026-11.x:one/portals/127.0.0.1:9", r#"{"bind": "127.0.0.1:8"}"#),
    ("DELETE", "targets/iqn.2026-11.x:one/portals/127.0.0.1:3260", ""),
    ("GET", "stores", ""),
    ("GET", "stores/right", ""),
    ("GET", "stores/x", ""),
    ("PUT", "stores/new", r#"{"id": "new", "store": "/srv/new?size=1M"}"#),
    ("PUT", "stores/new", r#"{"id": "old", "store": "/srv/new?size=1M"}"#),
    ("DELETE", "stores/left", ""),
    ("GET", "nbd", ""),
    ("GET", "nbd/127.0.0.1:10809", ""),
    ("GET", "nbd/127.0.0.1", ""),
    ("GET", "nbd/%2Frun%2Fnbd", ""),
    ("GET", "nbd/127.0.0.1:9", ""),
    ("PUT", "nbd/127.0.0.2:10809", r#"{"bind": "127.0.0.2", "luns": ["a"]}"#),
    ("PUT", "nbd/127.0.0.2", r#"{"bind": "127.0.0.3", "luns": ["a"]}"#),
    ("PUT", "nbd/%2Frun%2Fnbd", r#"{"socket": "/run/nbd", "luns": ["a"]}"#),
    ("PUT", "nbd/%2Frun%2Fnbd", r#"{"socket": "/run/nbd2", "luns": ["a"]}"#),
    ("DELETE", "nbd/127.0.0.1", ""),
    ("GET", "quotas", ""),
    ("GET", "quotas/owner:bob", ""),
    ("GET", "quotas/owner:eve", ""),
    ("PUT", "quotas/owner:eve", r#"{"owner": "eve", "used": "1M"}"#),
    ("PUT", "quotas/owner:eve", r#"{"owner": "bob", "used": "1M"}"#),
    ("PUT", "quotas/pool:%2Fsrv", r#"{"pool": "/srv", "used": "1M"}"#),
    ("PUT", "quotas/pool:%2Fsrv", r#"{"pool": "/srv2", "used": "1M"}"#),
    ("DELETE", "quotas/owner:bob", ""),
    ("GET", "hyperscsi", ""),
    ("GET", "hyperscsi/ABC", ""),
    ("GET", "hyperscsi/ABC%20at%20udp:127.0.0.1:5674", ""),
    ("GET", "hyperscsi/DEF%20at%20udp:127.0.0.1:5674", ""),
    ("GET", "hyperscsi/XYZ", ""),
    ("PUT", "hyperscsi/NEW%20at%20udp:127.0.0.2:5674",
        r#"{"name": "NEW", "udp": "127.0.0.2", "password": "secret of new", "device": [{"id": "b"}]}"#),
    ("PUT", "hyperscsi/NEW", r#"{"name": "OLD", "udp": "127.0.0.2", "open": true, "device": []}"#),
    ("PUT", "hyperscsi/NEW", r#"{"name": "NEW", "open": true, "device": []}"#),
    ("DELETE", "hyperscsi/ABC", ""),
    ("PUT", "hyperscsi/ABC/devices/b", r#"{"id": "b", "level": "crc"}"#),
    ("PUT", "hyperscsi/ABC/devices/b", r#"{"id": "a"}"#),
    ("DELETE", "hyperscsi/ABC/devices/a", ""),
    ("GET", "groups", ""),
    ("GET", "groups/other", ""),
    ("GET", "groups/x", ""),
    ("PUT", "groups/new", r#"{"id": "new", "initiators": ["iqn.2026-11.x:n"]}"#),
    ("PUT", "groups/new", r#"{"id": "old", "initiators": ["iqn.2026-11.x:n"]}"#),
    ("DELETE", "groups/known", ""),
    ("GET", "users", ""),
    ("GET", "users/bob", ""),
    ("GET", "users/x", ""),
    ("PUT", "users/eve", r#"{"name": "eve", "secret": "secret of eve", "mutual": {"name": "t", "secret": "and back"}}"#),
    ("PUT", "users/eve", r#"{"name": "bob", "secret": "secret of eve"}"#),
    ("DELETE", "users/alice", ""),
    ("GET", "sessions", ""),
    ("GET", "sessions/1", ""),
    ("GET", "sessions/3", ""),
    ("DELETE", "sessions/2", ""),
    ("GET", "traces", ""),
    ("PUT", "traces/1", r#"{"data_bytes": 64}"#),
    ("PUT", "traces/2", r#"{"keep_bytes": 65536}"#),
    ("GET", "traces/1", ""),
    ("DELETE", "traces/1", ""),
    ("GET", "access?initiator=iqn.2026-11.x:k&address=192.0.2.1&user=bob&certificate=c", ""),
    ("GET", "stats", ""),
    ("GET", "space", ""),
    ("GET", "figures", ""),
    ("GET", "figures?range=24h&lun=a", ""),
    ("GET", "events", ""),
    ("GET", "events?after=1&most=2&limit=3&severity=error&kind=a,b&lun=l&target=t&initiator=i&user=u&since=4", ""),
    ("GET", "events?limit=3", ""),
    ("GET", "findings", ""),
    ("GET", "checks", ""),
    ("GET", "places", ""),
    ("GET", "tokens", ""),
    ("DELETE", "tokens/x", ""),
    ("GET", "whoami", ""),
    ("@GET", "whoami", ""),
    ("POST", "logout", ""),
    ("GET", "openapi.json", ""),
    ("GET", "/metrics", ""),
    ("GET", "/healthz", ""),
    ("GET", "/readyz", ""),
];

/// What these answer differs from time to time, or never ends: other tests ask them.
const ELSEWHERE: [&str; 3] = [
    "POST /api/v1/tokens",
    "POST /api/v1/login",
    "GET /api/v1/live",
];

/// Longer bodies are not written.
const BODY_MAX: usize = 1500;

/// Longer bodies are written once.
const BODY_MIN: usize = 150;

fn path_of(uri: &str) -> String {
    match uri.starts_with('/') {
        true => uri.to_owned(),
        false => format!("/api/v1/{uri}"),
    }
}

/// What a request asks of the daemon, and the status and heads of its answer; then the body.
async fn answered(
    daemon: Double,
    (method, uri, body): (&str, &str, &str),
) -> (Vec<String>, String) {
    let (daemon, scratch) = (Arc::new(daemon), Scratch::new());
    let app = app(&daemon, &scratch);
    let (method, revision) = method.split_once(' ').unwrap_or((method, ""));
    let by_token = method.strip_prefix('@');
    let mut request = Request::builder()
        .method(by_token.unwrap_or(method))
        .uri(path_of(uri))
        .header(header::HOST, "127.0.0.1:3262")
        .header(header::CONTENT_TYPE, "application/json");
    if !revision.is_empty() {
        request = request.header(header::IF_MATCH, format!("\"{revision}\""));
    }
    request = match by_token {
        None => request.extension(Peer::Unix { uid: 0 }),
        Some(_) => {
            let token = format!("Bearer {}", token(&app, "op", Role::Operator));
            let request = request.header(header::AUTHORIZATION, token);
            request.extension(local(false))
        }
    };
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let response = TowerToHyperService::new(guard::router(&app)).call(request);
    let response = response.await.unwrap();
    let mut lines: Vec<_> = daemon.asked().iter().map(|line| masked(line)).collect();
    let notes = daemon.noted().into_iter();
    lines.extend(notes.map(|event| format!("{}: {}", event.kind, event.message)));
    let status = response.status().as_u16().to_string();
    let heads = [header::ETAG, header::CONTENT_TYPE, header::SET_COOKIE].into_iter();
    let heads = heads.filter_map(|name| response.headers().get(name)?.to_str().ok());
    lines.push(
        [status.as_str()]
            .into_iter()
            .chain(heads)
            .collect::<Vec<_>>()
            .join(" "),
    );
    let body = ask::collect(response.into_body(), 1 << 20).await.unwrap();
    (lines, String::from_utf8_lossy(&body).into_owned())
}

/// Without a password that was drawn: who may read no secret plans with another one in its place.
fn masked(line: &str) -> String {
    const KEY: &str = "password = \"";
    let Some((before, (password, rest))) = line
        .split_once(KEY)
        .and_then(|(before, rest)| Some((before, rest.split_once('"')?)))
    else {
        return line.to_owned();
    };
    match password.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => format!("{before}{KEY}DRAWN\"{rest}"),
        false => format!("{before}{KEY}{password}\"{}", masked(rest)),
    }
}

/// Whether a path is one of those that a route has.
fn is_of(template: &str, path: &str) -> bool {
    let (template, path): (Vec<_>, Vec<_>) =
        (template.split('/').collect(), path.split('/').collect());
    let fits = |(own, part): (&&str, &&str)| own == part || own.starts_with('{');
    template.len() == path.len() && template.iter().zip(&path).all(fits)
}

#[tokio::test]
async fn each_request_asks_what_is_written_and_answers_what_is_written() {
    let (mut text, mut seen) = (String::new(), BTreeSet::new());
    for (method, uri, body) in REQUESTS {
        let request = (*method, *uri, *body);
        text += format!("{method} {uri} {body}").trim_end();
        text.push('\n');
        let (lines, body) = answered(Double::that_answers(), request).await;
        let (refused, _) = answered(Double::that_refuses(), request).await;
        for line in &lines {
            let _infallible = writeln!(text, "  {}", line.replace('\n', "\n    "));
        }
        let body = match body.trim_end() {
            long if long.len() > BODY_MAX => "a long body",
            other if other.len() > BODY_MIN && !seen.insert(other.to_owned()) => "a body as before",
            other => other,
        };
        if !body.is_empty() {
            let _infallible = writeln!(text, "    {body}");
        }
        let is_other = |line: &&String| !line.starts_with("admin-") && !lines.contains(line);
        for line in refused.iter().filter(is_other) {
            let _infallible = writeln!(text, "  refused: {}", line.replace('\n', "\n    "));
        }
    }
    for route in routes::ROUTES {
        let of_route = |(method, uri, _): &&(&str, &str, &str)| {
            let path = path_of(uri.split('?').next().unwrap());
            let method = method.trim_start_matches('@').split(' ').next().unwrap();
            route.method.as_str() == method && is_of(route.path, &path)
        };
        let name = format!("{} {}", route.method, route.path);
        let is_asked = REQUESTS.iter().any(|request| of_route(&request));
        assert_eq!(is_asked, !ELSEWHERE.contains(&name.as_str()), "{name}");
    }
    let path = format!("{}/src/answers.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(&path).unwrap());
}
