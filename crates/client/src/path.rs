//! Paths of requests, with names encoded.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All but what RFC 3986 calls unreserved.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A path below `/api/v1`, with its query.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Path(String);

/// The path of these segments below `/api/v1`; each may be any text.
pub fn path(segments: &[&str]) -> Path {
    let mut text = api::PREFIX.to_owned();
    for segment in segments {
        text.push('/');
        text.push_str(&encoded(segment));
    }
    Path(text)
}

impl Path {
    /// The same with one more field in the query, if there is a value.
    #[must_use]
    pub fn with(mut self, name: &str, value: Option<&str>) -> Self {
        if let Some(value) = value {
            self.0.push(if self.0.contains('?') { '&' } else { '?' });
            self.0.push_str(name);
            self.0.push('=');
            self.0.push_str(&encoded(value));
        }
        self
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

fn encoded(text: &str) -> String {
    // A client that takes dots for steps would leave the path.
    match text {
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        text => utf8_percent_encode(text, ENCODED).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_segment_whatever_is_in_them() {
        let name = path(&["luns", "/dev/vg 1/ä?#%", "resize"]);
        assert_eq!(
            name.as_str(),
            "/api/v1/luns/%2Fdev%2Fvg%201%2F%C3%A4%3F%23%25/resize"
        );
        assert_eq!(path(&["luns", ".."]).as_str(), "/api/v1/luns/%2E%2E");
    }

    #[test]
    fn a_query_has_the_fields_that_are_there() {
        let asked = path(&["access"])
            .with("initiator", Some("iqn.x:a&b"))
            .with("address", None)
            .with("user", Some("u"));
        assert_eq!(
            asked.as_str(),
            "/api/v1/access?initiator=iqn.x%3Aa%26b&user=u"
        );
    }
}
