//! The files of the console, which are part of the program.
//!
//! Their names stay while their content changes, so browsers ask each time whether it has.

use api::problem::ProblemKind;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use crate::answer::{Answer, Refusal};

/// A file of the console.
#[derive(Debug)]
struct File {
    path: &'static str,
    content_type: &'static str,
    tag: &'static str,
    plain: &'static [u8],
    /// The same, by gzip.
    packed: &'static [u8],
}

static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/console.rs"));

/// What no route answers: a file of the console, or nothing.
pub(crate) async fn file(request: Request) -> Answer {
    answer(FILES, &request)
}

fn answer(files: &[File], request: &Request) -> Answer {
    let path = match request.uri().path() {
        "/" => "/index.html",
        other => other,
    };
    let Some(file) = files.iter().find(|file| file.path == path) else {
        let detail = format!("there is no {path}; see /api/v1/openapi.json for all paths");
        return Err(Refusal::new(ProblemKind::NotFound, detail));
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let detail = format!("{path} has no {}", request.method());
        let refusal = Refusal::new(ProblemKind::MethodNotAllowed, detail);
        return Ok(([(header::ALLOW, "GET, HEAD")], refusal).into_response());
    }
    Ok(serve(file, request.headers()))
}

fn serve(file: &File, headers: &HeaderMap) -> Response {
    let is_packed = takes_gzip(headers) && file.packed.len() < file.plain.len();
    let tag = format!("\"{}{}\"", file.tag, if is_packed { "-gz" } else { "" });
    let common = [
        (header::CACHE_CONTROL, "no-cache"),
        (header::VARY, "Accept-Encoding"),
        (header::ETAG, tag.as_str()),
    ];
    let known = headers.get(header::IF_NONE_MATCH);
    if known.is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    let content = [(header::CONTENT_TYPE, file.content_type)];
    if is_packed {
        let encoding = [(header::CONTENT_ENCODING, "gzip")];
        return (common, content, encoding, Body::from(file.packed)).into_response();
    }
    (common, content, Body::from(file.plain)).into_response()
}

/// Spec: RFC 9110 section 12.5.3; a weight of zero means no.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let fields = headers.get_all(header::ACCEPT_ENCODING).iter();
    fields
        .filter_map(|field| field.to_str().ok())
        .flat_map(|field| field.split(','))
        .any(|range| {
            let (name, weight) = range.split_once(';').unwrap_or((range, ""));
            let weight = weight.trim().trim_start_matches("q=");
            let is_zero = weight.parse::<f32>().is_ok_and(|weight| weight == 0.0);
            matches!(name.trim(), "gzip" | "*") && !is_zero
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: File = File {
        path: "/a.js",
        content_type: "text/javascript; charset=utf-8",
        tag: "0123",
        plain: b"plain plain plain",
        packed: b"packed",
    };

    fn headers(fields: &[(header::HeaderName, &str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn the_root_is_the_index_and_files_are_only_read() {
        let files = [
            FILE,
            File {
                path: "/index.html",
                packed: b"as long as 17 is!",
                ..FILE
            },
        ];
        for (method, path, status, allowed) in [
            (Method::GET, "/", 200, ""),
            (Method::HEAD, "/index.html", 200, ""),
            (Method::GET, "/a.js", 200, ""),
            (Method::POST, "/a.js", 405, "GET, HEAD"),
            (Method::GET, "/b.js", 404, ""),
            (Method::POST, "/b.js", 404, ""),
        ] {
            let request = Request::builder().method(method.clone()).uri(path);
            let request = request.header(header::ACCEPT_ENCODING, "gzip");
            let request = request.body(Body::empty()).unwrap();
            let response = answer(&files, &request).into_response();
            let heads = response.headers();
            let head = |name| heads.get(name).map_or("", |it| it.to_str().unwrap());
            assert_eq!(response.status().as_u16(), status, "{method} {path}");
            assert_eq!(head(header::ALLOW), allowed, "{method} {path}");
            // One that is no shorter so is sent as it is.
            let encoding = if path == "/a.js" && status == 200 {
                "gzip"
            } else {
                ""
            };
            assert_eq!(head(header::CONTENT_ENCODING), encoding, "{method} {path}");
        }
    }

    #[test]
    fn gzip_is_sent_to_those_who_take_it() {
        for (accept, is_taken) in [
            ("gzip, br", true),
            ("br;q=1.0, gzip;q=0.5", true),
            ("*", true),
            ("gzip;q=0", false),
            ("br", false),
            ("", false),
        ] {
            let fields = headers(&[(header::ACCEPT_ENCODING, accept)]);
            assert_eq!(takes_gzip(&fields), is_taken, "{accept}");
            let response = serve(&FILE, &fields);
            let is_packed = response.headers().contains_key(header::CONTENT_ENCODING);
            assert_eq!(is_packed, is_taken, "{accept}");
        }
    }

    #[test]
    fn a_file_that_is_known_is_not_sent_again() {
        let response = serve(&FILE, &headers(&[(header::IF_NONE_MATCH, "\"0123\"")]));
        assert_eq!(response.status(), StatusCode::NOT_MODIFIED);
        let response = serve(&FILE, &headers(&[(header::IF_NONE_MATCH, "\"0124\"")]));
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[header::ETAG], "\"0123\"");
    }
}
