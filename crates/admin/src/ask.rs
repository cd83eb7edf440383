//! What a request says: its body, the names in its path, its query, its precondition. Whatever does
//! not fit is a problem that names the field.

use api::problem::ProblemKind;
use axum::body::Body;
use axum::extract::path::ErrorKind;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri, header};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;

use crate::answer::Refusal;
use crate::limits;
use crate::route::{Field, Value};

/// The body, as JSON. The guard has read it, and it was not too long.
#[derive(Debug)]
pub(crate) struct Told<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Told<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Refusal> {
        check_content_type(request.headers())?;
        let bytes = collect(request.into_body(), limits::DOCUMENT_BYTES_MAX).await?;
        check_object(&bytes)?;
        serde_json::from_slice(&bytes).map(Self).map_err(|error| {
            let detail = format!("the body: {}", in_words(&error.to_string()));
            Refusal::new(ProblemKind::BadRequest, detail)
        })
    }
}

/// A list of values would be taken for an object whose fields have them, in the order of their declaration.
fn check_object(bytes: &[u8]) -> Result<(), Refusal> {
    match bytes.trim_ascii_start().first() {
        Some(b'{') | None => Ok(()),
        Some(_) => Err(Refusal::new(
            ProblemKind::BadRequest,
            "the body: a JSON object is expected, as {\"name\": \"value\"}",
        )),
    }
}

fn check_content_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let given = headers.get(header::CONTENT_TYPE);
    let given = given.map(|value| value.to_str().unwrap_or_default());
    let essence = given.map(|text| text.split(';').next().unwrap_or_default().trim());
    match essence {
        Some(kind) if kind.eq_ignore_ascii_case("application/json") => Ok(()),
        Some(_) | None => Err(Refusal::new(
            ProblemKind::UnsupportedMediaType,
            "the body is JSON; send it with Content-Type: application/json",
        )),
    }
}

/// All of a body. One that is too long is read to its end and dropped: a client that is still sending when an
/// answer ends the connection may never read it.
pub(crate) async fn collect(mut body: Body, most: usize) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    let mut length = 0_usize;
    let read = async {
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else {
                continue;
            };
            length = length.saturating_add(data.len());
            if length <= most {
                bytes.extend_from_slice(&data);
            } else if length > limits::DISCARDED_BYTES_MAX {
                break;
            }
        }
        Ok::<_, axum::Error>(())
    };
    let wrong = |detail| Refusal::new(ProblemKind::BadRequest, detail);
    match tokio::time::timeout(limits::BODY_TIME_MAX, read).await {
        Ok(Ok(())) if length > most => Err(too_large(most)),
        Ok(Ok(())) => Ok(bytes),
        Ok(Err(error)) => Err(wrong(format!("the body broke off: {error}"))),
        Err(_) => Err(wrong(format!(
            "the body did not come within {} s",
            limits::BODY_TIME_MAX.as_secs()
        ))),
    }
}

/// Reads what is not wanted, as [`collect`] does and why.
pub(crate) async fn discard(body: Body) {
    drop(collect(body, 0).await);
}

/// 413.
fn too_large(most: usize) -> Refusal {
    Refusal::new(
        ProblemKind::TooLarge,
        format!("the body is longer than {most} bytes, which is the most for this request"),
    )
}

/// The names in the path, decoded.
#[derive(Debug)]
pub(crate) struct Named<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let names = Path::from_request_parts(parts, state).await;
        names
            .map(|Path(names)| Self(names))
            .map_err(|rejection| Refusal::new(ProblemKind::BadRequest, wrong_path(&rejection)))
    }
}

/// All names in paths that are not text are whole numbers.
fn wrong_path(rejection: &PathRejection) -> String {
    let PathRejection::FailedToDeserializePathParams(failed) = rejection else {
        return format!("the path: {rejection}");
    };
    let (ErrorKind::ParseError {
        value,
        expected_type: kind,
    }
    | ErrorKind::ParseErrorAtIndex {
        value,
        expected_type: kind,
        ..
    }
    | ErrorKind::ParseErrorAtKey {
        value,
        expected_type: kind,
        ..
    }) = failed.kind()
    else {
        return format!("the path: {rejection}");
    };
    format!("{value:?} in the path: {} is expected", kind_in_words(kind))
}

/// What stands after the question mark.
#[derive(Debug)]
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let query = Query::from_request_parts(parts, state).await;
        query
            .map(|Query(asked)| Self(asked))
            .map_err(|rejection| wrong_query(&rejection))
    }
}

/// The revision a change must start from; none: any.
///
/// Spec: RFC 9110 section 13.1.1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct IfMatch(pub(crate) Option<u64>);

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Refusal> {
        let mut values = parts.headers.get_all(header::IF_MATCH).iter();
        let Some(value) = values.next() else {
            return Ok(Self(None));
        };
        let text = value.to_str().unwrap_or_default().trim();
        if values.next().is_some() || text.contains(',') {
            return Err(Refusal::field(
                "If-Match",
                "one revision at most; send the ETag of the answer that was edited",
            ));
        }
        revision_of(text)
    }
}

/// On what terms a change of the configuration is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Terms {
    /// The revision it must start from; none: any.
    pub(crate) only_at: Option<u64>,
    /// Answer with the plan, and change nothing.
    pub(crate) is_plan: bool,
}

impl<S: Send + Sync> FromRequestParts<S> for Terms {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let IfMatch(only_at) = IfMatch::from_request_parts(parts, state).await?;
        let is_plan = asks_for_plan(&parts.uri)?;
        Ok(Self { only_at, is_plan })
    }
}

/// Refuses a query that has another name than these, or a value that its field cannot have.
pub(crate) fn check_query(
    uri: &Uri,
    known: impl Iterator<Item = &'static Field> + Clone,
) -> Result<(), Refusal> {
    let query = Query::<Vec<(String, String)>>::try_from_uri(uri);
    let query = query.map_err(|rejection| wrong_query(&rejection))?.0;
    for (name, value) in &query {
        let Some(field) = known.clone().find(|field| field.name == name) else {
            return Err(unknown_name(name, known));
        };
        let expected = match field.value {
            Value::Number(most) if !value.parse().is_ok_and(|number: u64| number <= most) => {
                format!("a whole number from 0 to {most}")
            }
            Value::Flag if !matches!(value.as_str(), "true" | "false") => {
                "true or false".to_owned()
            }
            Value::Text | Value::Number(_) | Value::Flag => continue,
        };
        let detail = format!("{name}={value:?} in the query: {expected} is expected");
        return Err(Refusal::field(name, detail));
    }
    Ok(())
}

fn unknown_name(name: &str, known: impl Iterator<Item = &'static Field>) -> Refusal {
    let known: Vec<&str> = known.map(|field| field.name).collect();
    let known = match known[..] {
        [] => "this request takes none".to_owned(),
        _ => format!("it takes {}", known.join(", ")),
    };
    let detail =
        format!("the query has {name:?}, which is not known here; {known}; nothing was done");
    Refusal::field(name, detail)
}

fn wrong_query(rejection: &QueryRejection) -> Refusal {
    let text = rejection.body_text();
    let text = text
        .strip_prefix("Failed to deserialize query string: ")
        .unwrap_or(&text);
    Refusal::new(
        ProblemKind::BadRequest,
        format!("the query: {}", in_words(text)),
    )
}

/// What a library that reads JSON or a query says, without the names of Rust's types.
fn in_words(text: &str) -> String {
    const EXPECTED: &str = "expected ";
    let text = text.replace("unknown variant", "unknown value");
    let Some((before, behind)) = text.split_once(EXPECTED) else {
        return text;
    };
    let (kind, rest) = match behind.find(" at line ") {
        Some(end) => behind.split_at(end),
        None => (behind, ""),
    };
    format!("{before}{EXPECTED}{}{rest}", kind_in_words(kind))
}

/// What a type of Rust is to somebody who writes a request.
fn kind_in_words(kind: &str) -> String {
    let whole = |most: u64| format!("a whole number from 0 to {most}");
    match kind {
        "u8" => whole(u8::MAX.into()),
        "u16" => whole(u16::MAX.into()),
        "u32" => whole(u32::MAX.into()),
        "u64" | "usize" => whole(u64::MAX),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        "a boolean" => "true or false".to_owned(),
        _ if kind.starts_with("struct ") || kind.starts_with("internally tagged") => {
            "an object".to_owned()
        }
        _ if kind.starts_with("enum ") => "an object with one key".to_owned(),
        _ => kind.to_owned(),
    }
}

/// Whether a change is only to be planned.
pub(crate) fn asks_for_plan(uri: &Uri) -> Result<bool, Refusal> {
    #[derive(serde::Deserialize)]
    struct Query {
        #[serde(default)]
        plan: bool,
    }
    let query = axum::extract::Query::<Query>::try_from_uri(uri);
    query
        .map(|query| query.plan)
        .map_err(|rejection| Refusal::field("plan", wrong_query(&rejection).0.detail))
}

fn revision_of(tag: &str) -> Result<IfMatch, Refusal> {
    if tag == "*" {
        return Ok(IfMatch(None));
    }
    let digits = tag
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let digits = digits.filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    match digits.and_then(|text| text.parse().ok()) {
        Some(revision) => Ok(IfMatch(Some(revision))),
        // A tag that was never given matches nothing; what is no tag at all is a mistake.
        None => Err(Refusal::new(
            if tag.trim_start_matches("W/").starts_with('"') && tag.len() > 1 && tag.ends_with('"')
            {
                ProblemKind::RevisionMismatch
            } else {
                ProblemKind::BadRequest
            },
            format!("If-Match {tag:?} is no revision; revisions look like \"42\", with the quotes"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_without_types_of_rust() {
        use api::edit::Edits;
        use api::spec::Portal;

        fn of<T: DeserializeOwned>(body: &str) -> String {
            let error = serde_json::from_str::<T>(body).err().unwrap();
            in_words(&error.to_string())
        }
        let details = [
            (of::<Portal>("7"), "expected an object at line 1"),
            (
                of::<Edits>(r#"{"edits": [{"hide": 7}]}"#),
                "an object at line 1",
            ),
            (of::<Edits>(r#"{"edits": [7]}"#), "expected "),
            (
                of::<u16>("\"a\""),
                "expected a whole number from 0 to 65535 at",
            ),
            (of::<Vec<u16>>("{}"), "expected a list at"),
            (of::<bool>("1"), "expected true or false at"),
            (of::<Portal>("[]"), "expected an object at"),
            (
                of::<api::access::Role>("\"x\""),
                "unknown value `x`, expected one of `metrics`",
            ),
        ];
        for (detail, expected) in details {
            assert!(detail.contains(expected), "{detail}");
            for word in ["struct", "enum", "variant", "Edit", "u16"] {
                assert!(!detail.contains(word), "{detail}");
            }
        }
    }

    #[test]
    fn revisions_have_one_form() {
        for (tag, revision) in [("*", None), ("\"42\"", Some(42)), ("\"0\"", Some(0))] {
            assert_eq!(revision_of(tag).unwrap(), IfMatch(revision), "{tag}");
        }
        for (tag, expected) in [
            ("42", ProblemKind::BadRequest),
            ("\"", ProblemKind::BadRequest),
            ("", ProblemKind::BadRequest),
            ("W/\"42\"", ProblemKind::RevisionMismatch),
            ("\"-1\"", ProblemKind::RevisionMismatch),
            ("\"+1\"", ProblemKind::RevisionMismatch),
            ("\"\"", ProblemKind::RevisionMismatch),
        ] {
            let kind = revision_of(tag).unwrap_err().0.kind;
            assert_eq!(kind, expected, "{tag}");
        }
    }

    #[test]
    fn a_body_is_an_object() {
        for (body, is_good) in [
            ("{\"force\": true}", true),
            (" \r\n\t{}", true),
            ("", true),
            ("[]", false),
            (" [true]", false),
            ("\"text\"", false),
            ("null", false),
        ] {
            assert_eq!(check_object(body.as_bytes()).is_ok(), is_good, "{body}");
        }
    }

    #[test]
    fn a_plan_is_asked_for_in_one_way() {
        for (uri, is_plan) in [
            ("/x", Some(false)),
            ("/x?plan=true", Some(true)),
            ("/x?plan=false", Some(false)),
            ("/x?plan", None),
            ("/x?plan=", None),
            ("/x?plan=yes", None),
            ("/x?plan=true&plan=false", None),
        ] {
            let asked = asks_for_plan(&uri.parse().unwrap());
            assert_eq!(asked.ok(), is_plan, "{uri}");
        }
    }

    #[test]
    fn json_is_the_only_content_type() {
        for (value, is_good) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("text/plain", false),
            ("application/jsonp", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, value.parse().unwrap());
            assert_eq!(check_content_type(&headers).is_ok(), is_good, "{value}");
        }
        assert!(check_content_type(&HeaderMap::new()).is_err());
    }
}
