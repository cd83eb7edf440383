//! Values of keys: numbers, ranges, booleans and lists, as text.
//!
//! Spec: RFC 7143 section 6.1.

/// Parses a number, decimal or hexadecimal with `0x`.
#[must_use]
pub fn parse_number(text: &str) -> Option<u32> {
    let (digits, radix) = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .map_or((text, 10), |digits| (digits, 16));
    // A sign would pass from_str_radix but is not in the grammar.
    if digits.starts_with(['+', '-']) {
        return None;
    }
    u32::from_str_radix(digits, radix).ok()
}

/// Parses a number or a range `low~high`; a single number is a range of one.
#[must_use]
pub fn parse_range(text: &str) -> Option<(u32, u32)> {
    let (low, high) = text.split_once('~').unwrap_or((text, text));
    let (low, high) = (parse_number(low)?, parse_number(high)?);
    (low <= high).then_some((low, high))
}

/// Parses a boolean. Case matters.
#[must_use]
pub fn parse_boolean(text: &str) -> Option<bool> {
    match text {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// The word for a boolean.
#[must_use]
pub const fn boolean_text(value: bool) -> &'static str {
    if value { "Yes" } else { "No" }
}

/// Answers that stand in for a value.
///
/// Spec: RFC 7143 section 6.2.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReservedAnswer {
    /// The key is known but has no meaning here.
    Irrelevant,
    /// The value is not acceptable; what was in force stays.
    Reject,
    /// The key is not known.
    NotUnderstood,
}

impl ReservedAnswer {
    /// The word on the wire.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Irrelevant => "Irrelevant",
            Self::Reject => "Reject",
            Self::NotUnderstood => "NotUnderstood",
        }
    }

    /// The answer of this word, if it is one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Irrelevant, Self::Reject, Self::NotUnderstood]
            .into_iter()
            .find(|answer| answer.text() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_parse_in_both_bases_and_nothing_else_does() {
        for (text, value) in [
            ("0", Some(0)),
            ("8192", Some(8192)),
            ("0x2000", Some(8192)),
            ("0X2aF", Some(0x2af)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", None),
            ("0x100000000", None),
            ("", None),
            ("0x", None),
            ("+5", None),
            ("-5", None),
            ("0x+5", None),
            ("5 ", None),
            ("5k", None),
        ] {
            assert_eq!(parse_number(text), value, "{text:?}");
        }
    }

    #[test]
    fn ranges_run_upwards() {
        assert_eq!(parse_range("512~0x400"), Some((512, 1024)));
        assert_eq!(parse_range("7"), Some((7, 7)));
        assert_eq!(parse_range("8~7"), None);
        assert_eq!(parse_range("1~2~3"), None);
        assert_eq!(parse_range("~3"), None);
    }

    #[test]
    fn booleans_know_case() {
        assert_eq!(parse_boolean("Yes"), Some(true));
        assert_eq!(parse_boolean("No"), Some(false));
        for text in ["yes", "YES", "no", "1", "", "true"] {
            assert_eq!(parse_boolean(text), None, "{text:?}");
        }
    }
}
