//! Answers to those who speak HTTP on a port that speaks HTTPS: a browser is sent to the same page over TLS, a program
//! is refused, because a token that it sent has gone over the network in clear. No request gets any further here,
//! with or without a token.

use std::io;

use api::problem::{Problem, ProblemKind};
use axum::Router;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use tokio::net::TcpStream;

use crate::answer::Refusal;

/// Whether a connection begins as a request of HTTP does. Waits for its first byte and leaves it there.
///
/// Spec: RFC 9110 section 9.1: the methods that are registered are words of capital letters. RFC 8446 section 5.1: a
/// handshake begins with 22, which is no letter.
pub(crate) async fn is_spoken(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    let count = stream.peek(&mut first).await?;
    Ok(count == 1 && first[0].is_ascii_uppercase())
}

/// What answers all of them.
pub(crate) fn router() -> Router {
    Router::new().fallback(answer)
}

async fn answer(request: Request) -> Response {
    let path = request.uri().path();
    let is_program = path.starts_with(api::PREFIX) || path == "/metrics";
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let page = request.uri().path_and_query().map_or("/", |it| it.as_str());
    let close = (header::CONNECTION, "close".to_owned());
    match host(request.headers()) {
        Some(host) if is_read && !is_program => {
            // Not for ever: `tls = false` may be configured one day.
            let to = (header::LOCATION, format!("https://{host}{page}"));
            (StatusCode::TEMPORARY_REDIRECT, [close, to]).into_response()
        }
        Some(_) | None => {
            let detail = "this port speaks HTTPS: write https:// in the URL; nothing was done. If the request had a \
                token, it went over the network in clear: revoke it and create another one";
            let refusal = Refusal(Problem::new(ProblemKind::BadRequest, detail));
            ([close], refusal).into_response()
        }
    }
}

/// The server that the client means. Where it lies, it sends itself elsewhere.
fn host(headers: &HeaderMap) -> Option<Authority> {
    let host = headers.get(header::HOST)?.to_str().ok()?;
    let host: Authority = host.parse().ok()?;
    (!host.as_str().contains('@')).then_some(host)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    async fn ask(method: &str, path: &str, host: Option<&str>) -> (StatusCode, Option<String>) {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(host) = host {
            request = request.header(header::HOST, host);
        }
        let response = answer(request.body(Body::empty()).unwrap()).await;
        let location = response.headers().get(header::LOCATION);
        let location = location.map(|to| to.to_str().unwrap().to_owned());
        (response.status(), location)
    }

    #[tokio::test]
    async fn pages_are_found_over_tls_and_nothing_else_is() {
        let to = |to: &str| (StatusCode::TEMPORARY_REDIRECT, Some(to.to_owned()));
        let refused = (StatusCode::BAD_REQUEST, None);
        let san = Some("san.example:3262");
        assert_eq!(ask("GET", "/", san).await, to("https://san.example:3262/"));
        assert_eq!(
            ask("HEAD", "/a.js?b=c", Some("[::1]:3262")).await,
            to("https://[::1]:3262/a.js?b=c")
        );
        for (method, path, host) in [
            ("POST", "/", san),
            ("GET", "/api/v1/status", san),
            ("GET", "/metrics", san),
            ("GET", "/", None),
            ("GET", "/", Some("user@san.example")),
            ("GET", "/", Some("san.example/x")),
        ] {
            assert_eq!(
                ask(method, path, host).await,
                refused,
                "{method} {path} {host:?}"
            );
        }
    }
}
