//! Who may what: every route and every kind of edit for a caller without a token and for each role.
//! `BLESS=1` writes rights.txt anew; read the difference before it is committed.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use api::access::{NewToken, Role};
use api::edit::Edits;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, header};
use durable::scratch::Scratch;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;

use crate::app::App;
use crate::peer::Peer;
use crate::testing::{Double, app};
use crate::{guard, routes};

const ROLES: [Role; 4] = [Role::Metrics, Role::Viewer, Role::Operator, Role::Admin];
/// Each kind of edit alone, and what needs less before and behind what needs more.
const EDITS: [&str; 9] = [
    r#"{"resize": {"lun": "a", "size_bytes": 2097152}}"#,
    r#"{"rename": {"lun": "a", "id": "b"}}"#,
    r#"{"add": {"lun": {"id": "a", "store": "mem:1M"}}}"#,
    r#"{"put": {"lun": {"id": "a", "store": "mem:1M"}}}"#,
    r#"{"set": {"lun": {"id": "a", "owner": "b"}}}"#,
    r#"{"remove": {"lun": "a"}}"#,
    r#"{"hide": {"lun": "a"}}"#,
    r#"{"rename": {"lun": "a", "id": "b"}}, {"remove": {"lun": "a"}}"#,
    r#"{"remove": {"lun": "a"}}, {"rename": {"lun": "a", "id": "b"}}"#,
];

/// The status of an answer to a TCP peer.
async fn ask(app: &Arc<App>, token: Option<&str>, method: &Method, uri: &str, body: &str) -> u16 {
    let local: SocketAddr = "127.0.0.1:3262".parse().unwrap();
    let mut request = Request::builder()
        .method(method)
        .uri(uri)
        .header(header::HOST, "127.0.0.1:3262")
        .header(header::CONTENT_TYPE, "application/json")
        .extension(Peer::Tcp {
            address: local,
            local,
            is_tls: false,
        });
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let router = TowerToHyperService::new(guard::router(app));
    router.call(request).await.unwrap().status().as_u16()
}

/// What nobody, and then each role, is told: `401` or `403`, or `may` for whatever comes behind that.
async fn row(app: &Arc<App>, tokens: &[String], method: &Method, uri: &str, body: &str) -> String {
    let mut row = String::new();
    for token in [None].into_iter().chain(tokens.iter().map(Some)) {
        let status = ask(app, token.map(String::as_str), method, uri, body).await;
        let word = match status {
            401 | 403 => status.to_string(),
            _ => "may".to_owned(),
        };
        let _infallible = write!(row, "{word} ");
    }
    row
}

/// No answer comes from the daemon, whose double would panic: no route takes this body, and its configuration is fixed.
#[tokio::test]
async fn each_role_may_what_is_written_and_nothing_else() {
    let scratch = Scratch::new();
    let app = app(&Arc::new(Double::that_is_fixed()), &scratch);
    let tokens = ROLES.map(|role| {
        let name = format!("{role:?}");
        app.tokens
            .make(NewToken { name, role }, 0)
            .unwrap()
            .token
            .unwrap()
    });
    let mut text = "nobody metrics viewer operator admin\n".to_owned();
    for route in routes::ROUTES {
        let path = route.path.replace(['{', '}'], "");
        for plan in ["", "?plan=true"]
            .into_iter()
            .take(1 + usize::from(route.conditional))
        {
            let row = row(
                &app,
                &tokens,
                &route.method,
                &format!("{path}{plan}"),
                "what",
            )
            .await;
            let _infallible = writeln!(text, "{row}{} {}{plan}", route.method, route.path);
        }
    }
    let uri = "/api/v1/config/edits";
    for edits in EDITS {
        let body = format!("{{\"edits\": [{edits}]}}");
        // Otherwise what is written below says nothing.
        serde_json::from_str::<Edits>(&body).unwrap();
        let row = row(&app, &tokens, &Method::POST, uri, &body).await;
        let _infallible = writeln!(text, "{row}POST {uri} {edits}");
    }
    let path = format!("{}/src/rights.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(&path).unwrap());
}
